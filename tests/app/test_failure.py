"""Pictures of failed runs: they say when and how worlds failed, and draw nothing beyond."""

import numpy as np
import pytest
import xarray as xr
from all_cases import all_cases

from jaxdae import Status
from jaxdae.app.config.schema import Config
from jaxdae.app.draw import plots
from jaxdae.app.draw.failure_times import Failures, first_failure
from jaxdae.app.draw.plot_style import styled

TIME = np.linspace(0.0, 10.0, 101)
CONFIG = Config.model_validate(
    {
        "name": "rod",
        "mechanism": {
            "bodies": [{"name": "rod", "mass": 1.0, "inertia": 0.1, "pose": [0.5, 0, 0]}],
            "joints": [{"type": "revolute", "name": "hinge", "a": "ground", "b": "rod", "at": [0, 0]}],
        },
        "duration": 10.0,
        "dt": 0.1,
        "output": {"overlay": [0, 5, 10]},
    }
)


def results(*entries, factor=1.0):
    """Returns results of worlds that swing and fail at these entries, or None; half-way there they become
    larger by a factor.
    """
    angle = np.sin(TIME)
    q = np.stack([0.5 * np.cos(angle), 0.5 * np.sin(angle), angle], axis=-1)
    q = np.tile(q, (len(entries), 1, 1))
    status = np.zeros(q.shape[:2], int)
    for world, entry in enumerate(entries):
        if entry is not None:
            status[world, entry:] = Status.UNSTABLE
            q[world, entry // 2 :] *= factor
            q[world, entry:] = q[world, entry - 1]
    names = ("violation", "velocity_violation", "kinetic_energy", "potential_energy", "work")
    fields = dict.fromkeys(names, (("world", "time"), 1e-09 + q[..., 0] ** 2))
    fields |= {"q": (("world", "time", "coordinate"), q), "status": (("world", "time"), status)}
    return xr.Dataset(fields, {"time": TIME})


def drawn(drawing, data):
    with styled() as figure_class:
        return drawing(figure_class, CONFIG, data)


def titled(figure):
    return figure.axes[0].get_title(loc="left").splitlines()


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


EVERY = (plots.positions, plots.violation, plots.energy, plots.overlay)


def test_failures_in_words():
    assert first_failure(np.zeros(3), [0, 1, 2]) is None
    assert str(first_failure([0, 0, 2, 2], [0, 1, 2, 3])) == "failed at t = 1 to 2 s (NOT_CONVERGED)"
    assert str(first_failure(np.arange(101) > 50, TIME)) == "failed at t = 5 s (NONFINITE)"
    assert str(Failures(np.zeros((3, 2)), [0, 1])) == ""


@all_cases("drawing", EVERY)
def test_every_picture_says_who_failed_and_when(drawing):
    assert titled(drawn(drawing, results(31)))[-1] == "failed at t = 3 s (UNSTABLE)"
    assert (
        titled(drawn(drawing, results(None, 31, 21)))[-1]
        == "2 of 3 worlds failed, the first at t = 2 s (UNSTABLE)"
    )
    assert titled(drawn(drawing, results(31, 21)))[-2:] == [
        "nominal world failed at t = 3 s (UNSTABLE)",
        "all 2 worlds failed, the first at t = 2 s (UNSTABLE)",
    ]
    assert not any("fail" in line for line in titled(drawn(drawing, results(None, None))))


@pytest.mark.parametrize("drawing", EVERY[:3])
def test_lines_end_at_the_failure(drawing):
    axes = drawn(drawing, results(31, 41)).axes[0]
    line = axes.lines[0]
    assert line.get_xdata()[np.isfinite(line.get_ydata())][-1] == pytest.approx(3.0)
    # Nothing goes on after that, and the time axis ends there; it does not where another world goes on.
    assert 3.0 < axes.get_xlim()[1] < 3.5
    assert drawn(drawing, results(31, None)).axes[0].get_xlim()[1] == 10.0


def test_the_overlay_ends_at_the_failure():
    figure = drawn(plots.overlay, results(61))
    assert [label for label in legend(figure) if label.startswith("at ")] == ["at 0 s", "at 5 s"]
    # A world that is frozen at its start is drawn once.
    figure = drawn(plots.overlay, results(1))
    assert [label for label in legend(figure) if label.startswith("at ")] == ["at 0 s"]
    assert titled(figure)[-1] == "failed at t = 0 s (UNSTABLE)"
    for drawing in EVERY[:3]:
        (values,) = [line.get_ydata() for line in drawn(drawing, results(1)).axes[0].lines[:1]]
        assert np.isfinite(values).sum() == 1


def test_bands_and_largest_values_are_of_the_worlds_that_did_not_fail():
    data = results(None, 31, None, factor=1e25)
    figure = drawn(plots.positions, data)
    assert titled(figure)[0].endswith("bands: min to max of 2 worlds that did not fail")
    assert figure.axes[0].get_ylim()[1] < 1.0
    figure = drawn(plots.violation, data)
    assert figure.axes[0].get_ylim()[1] == 1.0
    assert "largest of 2 worlds\nthat did not fail" in [line.get_label() for line in figure.axes[0].lines]
    # Where none is left there is no band.
    assert not drawn(plots.positions, results(31, 31, factor=1e25)).axes[0].collections


def test_what_runs_away_before_it_fails_does_not_hide_the_rest():
    data = results(61, factor=1e25)
    figure = drawn(plots.positions, data)
    assert figure.axes[0].get_ylim()[1] < 5.0
    assert [text.get_text() for text in figure.axes[0].texts] == ["diverges, up to 5.0e+24"]
    figure = drawn(plots.overlay, data)
    assert titled(figure)[1] == "drawn up to t = 2.9 s, where the motion leaves the picture"
    assert np.ptp(figure.axes[0].get_xlim()) < 5.0
