"""The experiment `identification`: what the motion cannot show, and fits of a short record with an integrator
that compiles fast.
"""

import dataclasses
import importlib.util
import json
import pathlib
import sys

import jax
import numpy as np
import pytest
import xarray as xr

import jaxdae
from jaxdae.app import load

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = str(ROOT / "configs" / "identification.yaml")


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "identification", ROOT / "experiments" / "identification.py"
    )
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules["identification"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["identification"]


def bench(experiment, *changes):
    config, worlds = load(CONFIG, changes)
    settings = experiment.Settings.model_validate(config.experiment)
    return experiment.bench(config, settings, worlds), settings


@pytest.mark.exhaustive
def test_the_coupler_mass_can_be_moved_to_its_pins_without_a_change_of_the_motion(experiment):
    at, _ = bench(experiment, "duration=0.2", "experiment.window=0.1")
    matrix, unseen = experiment.base_parameters(at.system)
    np.testing.assert_allclose(matrix @ unseen, 0.0, rtol=0, atol=1e-15)
    assert np.linalg.matrix_rank(matrix) == 5
    before = at.truth()
    moved = dataclasses.replace(
        at.system, mass=at.system.mass + 0.5 * unseen[:3], inertia=at.system.inertia + 0.5 * unseen[3:]
    )
    simulate = jax.jit(at.simulate)
    one, other = (
        np.asarray(simulate(parameters, at.motor)) for parameters in (before, before | {"system": moved})
    )
    # Up to the error of RK4, whose projections weigh by the masses: (h omega)^5 with omega of 6/s is 2e-8.
    np.testing.assert_allclose(other[:, :9], one[:, :9], rtol=0.0, atol=2e-8)
    # The forces on the ground do change, by the masses that the links have lost times their acceleration less
    # gravity.
    forces = [9 + at.system.row_names.index(name) for name in ("A.y", "D.y")]
    a, _ = jaxdae.forward_dynamics(at.system, at.start, at.motor(at.start.t, at.start))
    lost = 0.5 * unseen[:3] @ (np.asarray(a)[1::3] + 9.81)
    assert abs(lost) > 1.0
    np.testing.assert_allclose((other - one)[0, forces].sum(), lost, rtol=1e-10)


@pytest.mark.long
def test_signals_are_those_of_the_state_at_each_sample(experiment):
    at, _ = bench(experiment, "duration=0.05", "experiment.window=0.05", "integrator=semi_implicit_euler")
    motion = np.asarray(at.simulate(at.truth(), at.motor))
    np.testing.assert_allclose(motion[0, :9], at.start.q, rtol=0.0, atol=1e-15)
    start = jaxdae.State(at.start.t, at.start.q, at.start.v)
    _, lam = jaxdae.forward_dynamics(at.system, start, at.motor(start.t, start))
    np.testing.assert_allclose(motion[0, 9:], lam, rtol=1e-12)
    # With finer steps the samples stay where they are.
    finer = np.asarray(at.simulate(at.truth(), at.motor, finer=2))
    assert finer.shape == motion.shape
    np.testing.assert_allclose(finer[:, :9], motion[:, :9], rtol=0.0, atol=2e-2)


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    arguments = [
        "identification.py",
        "--out",
        str(out),
        *(x for change in changes for x in ("--set", change)),
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    return experiment.main()


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    """Euler's method for model and data alike: a tenth of the program, and no error of discretization between
    them.
    """
    changes = (
        "duration=0.4",
        "integrator=semi_implicit_euler",
        "experiment.finer=1",
        "experiment.window=0.2",
    )
    assert (
        run(
            experiment,
            monkeypatch,
            tmp_path,
            *changes,
            "experiment.repeats=3",
            "experiment.noise=1e-4",
            "experiment.guess=0.2",
        )
        == 0
    )
    (folder,) = tmp_path.iterdir()
    pictures = {"fit.png", "intervals.png", "singular_values.png", "identification.gif"}
    assert pictures <= {path.name for path in folder.iterdir()}
    found = xr.open_zarr(folder / "identification.zarr", group="fits", consolidated=False).load()
    assert bool(found.converged.all())
    # 280 residuals: 0.04 of scatter in their standard deviation.
    np.testing.assert_allclose(found.standard_deviation, 1.0, rtol=0, atol=0.2)
    scores = (found.estimate - found.truth) / found.standard_error
    assert float(np.abs(scores).max()) < 5.0
    np.testing.assert_array_equal(found.covered, np.abs(scores) <= found.coverage_factor)
    assert found.coverage_factor == pytest.approx(1.959964, abs=1e-6)
    known = xr.open_zarr(folder / "identification.zarr", group="identifiability", consolidated=False).load()
    expected = known.expected.sel(signals="angles and forces", parameter=found.parameter)
    np.testing.assert_allclose(found.standard_error.mean("repeat") / found.truth, expected, rtol=0.2)
    record = json.loads((folder / "run.json").read_text())
    assert len(record["identification"]) == 10
    assert str(folder) in capsys.readouterr().out


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        ("experiment.forces=[E.x]", "no E.x; there is: crank.x, crank.y"),
        ("experiment.window=7.0", "window: expected between one step and 5 s, got 7 s"),
        ("start.fixed=[]", "one coordinate must be fixed at the start, and a torque must act"),
        ("experiment.motor.phase=[0.0]", "amplitude, frequency_hz and phase must have one length"),
        ("experiment.confidence=1.5", "experiment.confidence: Input should be less than 1"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
