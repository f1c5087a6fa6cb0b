"""The experiment `arc`: the errors of the notes' methods on an arc, and what is said of them."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("arc", ROOT / "experiments" / "arc.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def near(experiment):
    return experiment.integrate(1.0, 1.0, [0.1, 0.2, 0.5], np.float64)


@pytest.mark.long
def test_errors_of_the_end_point(near):
    """With the step h, the end point is off by |exp(i) - 1| |w(h) - 1|, w the quadrature weight of a step: exact to round-off."""
    expected = {
        ("Euler", 0.1): 4.7949214306e-2,
        ("midpoint", 0.1): 3.9963784e-4,
        ("RK4", 0.1): 3.33033517e-8,
        ("Euler", 0.5): 2.4055063e-1,
        ("midpoint", 0.5): 1.00613445e-2,
        ("RK4", 0.5): 2.09642471e-5,
    }
    for (name, step), error in expected.items():
        np.testing.assert_allclose(
            near.error.sel(integrator=name, step=step), error, rtol=2e-8, err_msg=f"{name} {step}"
        )
    for step in near.step.values:
        half = 0.5 * step
        # Chords of the arc are |exp(i h) - 1| = 2 sin(h / 2) long and point along its middle; the methods'
        # steps are these.
        chord, turn = 2.0 * np.sin(half), np.exp(1j * half)
        steps = {"Euler": step, "midpoint": step * turn, "RK4": step / 6.0 * (1.0 + 4.0 * turn + turn**2)}
        for name, made in steps.items():
            error = abs(np.exp(1j) - 1.0) * abs(made / (chord * turn) - 1.0)
            np.testing.assert_allclose(
                near.error.sel(integrator=name, step=step), error, rtol=0.0, atol=1e-15
            )


def test_the_heading_is_exact_so_that_it_adds_nothing_to_the_error(near):
    assert float(near.heading.max()) < 1e-15


def test_paths_end_where_their_steps_do(near):
    assert near.path.shape == (3, 3, 11, 3)
    np.testing.assert_array_equal(np.isfinite(near.path.values[0, :, :, 0]).sum(axis=1), [11, 6, 3])
    np.testing.assert_allclose(
        near.path.sel(integrator="Euler", step=0.5)[2, :2],
        [0.5 + 0.5 * np.cos(0.5), 0.5 * np.sin(0.5)],
        rtol=1e-15,
    )


def test_the_exact_path_of_a_curvature(experiment):
    np.testing.assert_allclose(
        experiment.exact(-2.0, np.array([0.0, 0.25 * np.pi])), [[0.0, 0.0], [0.5, -0.5]], rtol=0, atol=2e-16
    )
    # 1 - cos of a small angle keeps its digits.
    np.testing.assert_allclose(experiment.exact(1e-9, np.array([1.0]))[0, 1], 5e-10, rtol=1e-15)


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys, "argv", ["arc.py", "--out", str(out), *(x for change in changes for x in ("--set", change))]
    )
    return experiment.main()


@pytest.mark.long
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    assert run(experiment, monkeypatch, tmp_path, "experiment.far_steps=[0.05, 0.1, 0.5]") == 0
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "arc.png",
        "arc.zarr",
        "report.md",
        "run.json",
    }
    found = json.loads((folder / "run.json").read_text())
    assert len(found["arc"]) == 6
    first = found["arc"][0]
    assert (first["length, m"], first["step, m"], first["steps"]) == ("1", "0.1", "10")
    assert float(first["Euler: end, m"]) == pytest.approx(4.7949214306e-2, rel=1e-8)
    midpoint, rk4, same_step, same_work, reach = found["findings"]
    assert "by a factor of 120 at 0.1 m, 60 at 0.2 m, 23.9 at 0.5 m" in midpoint
    assert "1.44e+06 at 0.1 m" in rk4
    # |exp(10 i) - 1| h / 2 = 0.1 at h = 0.104, where |exp(10 i) - 1| h^2 / 24 = 0.87 mm.
    assert "Euler is off by 100 mm with steps of 0.104 m" in same_step
    assert (
        "midpoint by 0.869 mm (the statement does not hold), RK4 by 7.87e-05 mm (the statement holds)"
        in same_step
    )
    assert "RK4 takes steps of 0.417 m and is off by 0.0203 mm (the statement holds)" in same_work
    assert "0.0354 m with midpoint" in reach
    report = (folder / "report.md").read_text()
    assert all(sentence in report for sentence in found["findings"])
    assert "0.0479492143" in report
    assert str(folder) in capsys.readouterr().out


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        ("experiment.curvature=0.0", "experiment.curvature: Value error, must not be zero"),
        ("experiment.steps=[0.3]", "steps: 1 m must be a whole number of steps of 0.3 m"),
        ("experiment.far=-1.0", "experiment.far: Input should be greater than 0"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
