"""The experiment `motor_pendulum`: the published frames, and what it says of the lever."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest
import xarray as xr

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "motor_pendulum", ROOT / "experiments" / "motor_pendulum.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys,
        "argv",
        ["motor_pendulum.py", "--out", str(out), *(x for change in changes for x in ("--set", change))],
    )
    return experiment.main()


def published_program(frames):
    """Returns the places of the published program, written again in NumPy; with its lever, and with that of
    virtual work.
    """
    results = []
    for consistent in (False, True):
        q, v, h = np.array([0.0, -1.0]), np.array([5.0, 0.0]), 1e-3
        goal = np.array([np.sin(0.5), -np.cos(0.5)])
        places = [q]
        for _ in range(frames):
            free = v + h * np.array([0.0, -10.0])
            rod = -(q @ free + 0.5 * (q @ q - 1.0) / h) / (q @ q)
            lam = -(free + 0.1 * (q - goal) / h)
            turn = np.array([q[1], -q[0]])
            v = free + rod * q + (turn @ lam) * turn / (q @ q if consistent else 1.0)
            q = q + h * v
            places.append(q)
        results.append(places)
    return np.array(results)


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    assert run(experiment, monkeypatch, tmp_path) == 0
    (folder,) = tmp_path.iterdir()
    files = {
        "config.yaml",
        "motor_pendulum.gif",
        "motor_pendulum.png",
        "motor_pendulum.zarr",
        "report.md",
        "run.json",
    }
    assert {path.name for path in folder.iterdir()} == files
    with xr.open_zarr(folder / "motor_pendulum.zarr", consolidated=False) as data:
        places, torque = data.place.values, data.torque.values
    # The frames of the issue, to 1e-12, and all others.
    for frame, place in {
        0: (0.0, -1.0),
        1: (0.0479425538604203, -1.0),
        10: (0.31629634762772935, -0.9488641584435044),
        299: (0.4794255386041937, -0.8775825618903779),
    }.items():
        np.testing.assert_allclose(places[0, frame], place, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(
        (places[0, 1] - places[0, 0]) / 1e-3, [47.942553860420304, 0.0], rtol=0.0, atol=1e-12
    )
    np.testing.assert_allclose(places[:2], published_program(299), rtol=0.0, atol=1e-12)
    assert 1e-5 < np.max(np.abs(places[1] - places[0])) < 1e-3
    # At rest at the target the motor of every stepper carries the weight: 10 N at a lever of sin(0.5).
    np.testing.assert_allclose(-torque[:, -2], 10.0 * np.sin(0.5), rtol=1e-9)
    record = json.loads((folder / "run.json").read_text())
    assert len(record["motor_pendulum"]) == 6
    assert "reproduced to" in record["findings"][0]
    assert str(folder) in capsys.readouterr().out


def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        ("experiment.beta_goal=2.5", "experiment.beta_goal: Input should be less than 2"),
        ("duration=0.1", "experiment.published: frame 299 is beyond the last of 100"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
