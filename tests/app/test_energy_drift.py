"""The experiment `energy_drift`: its fit, its settings, and a small run of every method."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest
import xarray as xr
from all_cases import all_cases

import jaxdae as jd
from jaxdae.app import load
from jaxdae.app.config.config_source import read

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "energy_drift.yaml"
SPACE = ROOT / "configs" / "energy_drift_space.yaml"


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("energy_drift", ROOT / "experiments" / "energy_drift.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def config():
    return load(str(CONFIG))[0]


TIMES = 0.1 * np.arange(1, 10001)
OSCILLATION = 1e-6 * (np.sin(5.9 * TIMES) + 0.3 * np.cos(2 * np.pi / 1.7 * TIMES + 1.0))


def test_an_oscillation_does_not_drift(experiment):
    found = experiment.fit(TIMES, OSCILLATION, 50)
    assert experiment.verdict(found, walk=0.0, unit=1e-16) == "none"
    assert found.amplitude == pytest.approx(1.3e-6, rel=1e-2)
    assert found.times.shape == found.means.shape == (50,)


@pytest.mark.parametrize("drift", [3e-8, -3e-8, 1e-6])
def test_a_drift_far_below_the_oscillation_is_found(experiment, drift):
    found = experiment.fit(TIMES, OSCILLATION + drift * TIMES / TIMES[-1], 50)
    assert found.drift == pytest.approx(drift, abs=3 * found.error)
    assert found.error < 1e-8
    assert experiment.verdict(found, walk=0.0, unit=1e-16) == "DRIFTS"


def test_what_grows_with_the_square_of_time_drifts(experiment):
    # Its residuals are far from independent; the wider standard error must not hide it.
    found = experiment.fit(TIMES, (TIMES / TIMES[-1]) ** 2, 50)
    assert experiment.verdict(found, walk=0.0, unit=1e-16) == "DRIFTS"


def test_a_line_is_found_exactly(experiment):
    found = experiment.fit(TIMES, 2.0 - 3.0 * TIMES, 50)
    assert found.drift == pytest.approx(-3000.0, rel=1e-12)
    assert found.error < 1e-9


def test_constant_values_have_no_drift(experiment):
    found = experiment.fit(TIMES, np.zeros_like(TIMES), 50)
    assert (found.drift, found.error, found.amplitude) == (0.0, 0.0, 0.0)
    assert experiment.verdict(found, walk=0.0, unit=1e-16) == "none"


def test_round_off_is_called_so(experiment):
    eps = np.finfo(float).eps
    walk = experiment.random_walk(10**6, eps)
    assert walk == pytest.approx(3e3 * eps)
    line = TIMES / TIMES[-1]
    below, above = (experiment.fit(TIMES, scale * walk * line, 50) for scale in (0.5, 2.0))
    assert experiment.verdict(below, walk, 1e6 * eps) == "round-off"
    assert experiment.verdict(above, walk, 1e6 * eps) == "DRIFTS, 0.006 eps a step"


def settings_with(experiment, config, **changes):
    given = dict(config.experiment)
    pendulum = given["spherical_pendulum"] | changes.pop("pendulum", {})
    return experiment.Settings.model_validate(given | {"spherical_pendulum": pendulum} | changes)


@all_cases(
    ("changes", "message"),
    [
        ({"methods": ["rattle", "verlet"]}, "methods.1"),
        ({"methods": []}, "methods"),
        ({"mechanism": ""}, "mechanism"),
        ({"blocks": 3}, "blocks"),
        ({"opening": 0.0}, "opening"),
        ({"pendulum": {"length": 1.1}}, "is 1 m from the origin, expected length = 1.1 m"),
        ({"pendulum": {"velocity": [0.1, 1.0, 0.0]}}, "must be at right angles to position"),
        ({"pendulum": {"velocity": [0.6, 0.0, 0.8]}}, "its angular momentum is zero"),
        ({"pendulum": {"velocity": [0.0, 0.0, 0.0]}}, "its angular momentum is zero"),
        ({"weight": 1.0}, "weight"),
    ],
)
def test_settings_that_are_wrong(experiment, config, changes, message):
    with pytest.raises(ValueError, match=message):
        settings_with(experiment, config, **changes)


def test_plans_that_do_not_fit(experiment, config):
    methods = experiment.plans(config, settings_with(experiment, config))
    assert [plan["steps"] for _, plan in methods] == [10**6] * 4 + [10**5] * 2
    with pytest.raises(
        ValueError, match=r"experiment\.blocks: got 6000, with 10000 entries expected at most 5000"
    ):
        experiment.plans(config, settings_with(experiment, config, blocks=6000))
    coarse = {"dt": 0.03, "methods": ["rk4"]}
    with pytest.raises(
        ValueError, match=r"experiment\.coarse\.dt: got 0\.03 s, expected a whole fraction of 0\.1 s"
    ):
        experiment.plans(config, settings_with(experiment, config, coarse=coarse))


def test_the_mechanism_has_the_name_that_its_config_gives(experiment, config):
    given = config.experiment, read(str(SPACE)).data["experiment"]
    titles = [experiment.Settings.model_validate(section).titles for section in given]
    assert [title["mechanism"] for title in titles] == ["crank-rocker", "four-bar in space"]


@pytest.mark.exhaustive
def test_every_method_runs(experiment, config):
    settings = settings_with(experiment, config)
    problem = settings.spherical_pendulum.build(float)
    assert set(experiment.METHODS) == set(experiment.NAMES)
    for method in experiment.METHODS:
        run = experiment.simulate(
            "pendulum", problem, method, jd.SchurComplement(), dt=1e-3, steps=400, save_every=10
        )
        assert run.status == jd.Status.OK
        # The oscillation is of the order (h w)^2 with w = 6/s, that of round-off a few units a step.
        assert run.largest("energy_error") < 1e-5
        assert run.largest("opening") < 1e-15
        assert run.largest("momentum_error") < 1e-12
        assert run.data.time.values[-1] == pytest.approx(0.4)
        assert run.label == experiment.NAMES[method]


def fabricated(experiment):
    """Returns a `simulate` that makes up results: Suzuki's composition drifts on the mechanism, and the
    pendulum's momentum is off.
    """

    def simulate(name, problem, method, solver, *, coarse=False, dt, steps, save_every):
        t = dt * save_every * np.arange(1, steps // save_every + 1)
        slope = {"rk4": -1e-5, "suzuki4": 1e-9 if name == "mechanism" else 0.0}.get(method, 0.0)
        fields = {
            "energy_error": 1e-6 * np.sin(50.0 * t) * (method == "rattle") + slope * t,
            "opening": np.full_like(t, 1e-15),
        }
        fields["status"] = np.full(t.shape, int(jd.Status.OK))
        if name == "pendulum":
            fields["momentum_error"] = (1e-9 if method == "suzuki4" else 1e-13) * t
        data = xr.Dataset({key: ("time", x) for key, x in fields.items()}, {"time": t})
        return experiment.Run(name, method, dt, coarse, steps, 1.0, data)

    return simulate


@pytest.mark.long
def test_what_is_said_about_results(experiment, monkeypatch, tmp_path):
    changes = ("--set", "experiment.methods=[rattle, suzuki4, rk4]", "--set", "duration=10")
    monkeypatch.setattr(sys, "argv", ["energy_drift.py", str(CONFIG), *changes, "--out", str(tmp_path)])
    monkeypatch.setattr(experiment, "simulate", fabricated(experiment))
    assert experiment.main() == 0
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / "run.json").read_text())
    names = ["RATTLE", "Suzuki 4", "RK4", "Suzuki 4, 10 ms", "RK4, 10 ms"]
    assert [row["method"] for row in record["energy_drift"]] == names * 2
    drifting = [row["verdict"].startswith("DRIFTS") for row in record["energy_drift"]]
    assert drifting == [False, True, True, True, True, False, False, True, False, True]
    assert (folder / "energy_drift.png").stat().st_size > 0
    report = (folder / "report.md").read_text()
    assert "Over 10000 steps these drift or fail: Suzuki 4 on the crank-rocker." in report
    assert "the bar of 1e-12 m is kept" in report
    assert "the bar of 1e-11 is NOT kept by Suzuki 4 on the spherical pendulum" in report
    assert "**RK4** drifts by -1.0e-04 on the crank-rocker at 1 ms" in report
