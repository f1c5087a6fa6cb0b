"""The experiment `five_bar_drawing`: both methods draw, the fit improves on its start, and wrong settings are
named.
"""

import importlib.util
import json
import pathlib
import sys

import jax.numpy as jnp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "five_bar_drawing", ROOT / "experiments" / "five_bar_drawing.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys,
        "argv",
        ["five_bar_drawing.py", "--out", str(out), *(x for change in changes for x in ("--set", change))],
    )
    return experiment.main()


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    """A small figure with few knots. Control is late by about h^2 a / (2 beta), 0.2 mm at 9 m/s^2."""
    short = (
        "duration=0.4",
        "dt=2e-3",
        "save_every=4",
        "experiment.size=[0.003, 0.002]",
        "experiment.limit=20.0",
    )
    short += ("experiment.knots=4", "experiment.iterations=3")
    assert run(experiment, monkeypatch, tmp_path, *short) == 0
    (folder,) = tmp_path.iterdir()
    files = {
        "config.yaml",
        "five_bar_drawing.gif",
        "five_bar_drawing.png",
        "five_bar_drawing.zarr",
        "report.md",
        "run.json",
    }
    assert {path.name for path in folder.iterdir()} == files
    controlled, replayed, optimized = json.loads((folder / "run.json").read_text())["five_bar_drawing"]
    assert float(controlled["rms error, mm"]) < 0.5
    assert float(optimized["rms error, mm"]) < float(replayed["rms error, mm"])
    assert float(optimized["largest torque, N m"]) <= 20.0
    assert str(folder) in capsys.readouterr().out


def test_the_figure_begins_and_ends_at_rest_in_its_center(experiment):
    figure = experiment.Eight(jnp.array([1.0, 2.0]), jnp.array([0.3, 0.2]), jnp.asarray(4.0))
    places = np.array([figure(jnp.asarray(t)) for t in (0.0, 1e-3, 1.0, 2.0, 4.0, 5.0)])
    np.testing.assert_allclose(places[[0, 3, 4, 5]], [[1.0, 2.0]] * 4, rtol=0, atol=1e-15)
    assert np.max(np.abs(places[1] - places[0])) < 1e-8
    # A quarter of the time: the angle is pi / 2 - 1.
    np.testing.assert_allclose(places[2], [1.0 + 0.3 * np.sin(np.pi / 2 - 1), 2.0 + 0.2 * np.sin(np.pi - 2)])


def test_torques_between_knots_are_linear(experiment):
    np.testing.assert_allclose(
        experiment.hats(8, 2) @ [0.0, 4.0, -4.0], [0.5, 1.5, 2.5, 3.5, 3.0, 1.0, -1.0, -3.0]
    )


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        ("experiment.motors=[A, Z]", "experiment.motors: must be the hinges with a joint_force, ['A', 'E']"),
        ("experiment.limit=0.0", "experiment.limit: Input should be greater than 0"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
