"""The experiment `baumgarte_tuning`, a tiny version: the pendulum, one integrator, two steps."""

import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest
import xarray as xr

ROOT = pathlib.Path(__file__).parents[2]
TINY = (
    "experiment.mechanisms={pendulum: {config: baumgarte_tuning.yaml, dt: 0.01, duration: 0.4}}",
    "experiment.integrators=[semi-implicit Euler]",
    "experiment.factors=[1, 2]",
    "experiment.iterations=12",
    "experiment.entries=10",
    "experiment.sweep=12",
)


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "baumgarte_tuning", ROOT / "experiments" / "baumgarte_tuning.py"
    )
    module = importlib.util.module_from_spec(spec)
    # Dataclasses of string annotations look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys,
        "argv",
        ["baumgarte_tuning.py", "--out", str(out), *(x for change in changes for x in ("--set", change))],
    )
    return experiment.main()


@pytest.mark.exhaustive
def test_a_tiny_run(experiment, monkeypatch, tmp_path):
    assert run(experiment, monkeypatch, tmp_path, *TINY) == 0
    (folder,) = tmp_path.iterdir()
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.yaml", "gains.png", "gains.zarr", "motion.gif", "report.md", "run.json"}
    found = json.loads((folder / "run.json").read_text())
    assert [row["h, s"] for row in found["gains"]] == ["0.01", "0.02"]
    for row in found["gains"]:
        # Critical damping at 1/h is beyond the limit 0.83 of semi-implicit Euler; the fit stays within it.
        drifts = {rule: row[rule].split(",")[0] for rule in ("none", "critical 1/h", "tuned")}
        assert drifts["critical 1/h"] == "broken" or float(drifts["critical 1/h"]) > 100.0 * float(
            drifts["tuned"]
        )
        assert float(drifts["tuned"]) < 0.2 * float(drifts["none"])
    report = (folder / "report.md").read_text()
    assert all(sentence in report for sentence in found["findings"])


def test_the_limit_is_where_the_drift_jumps(experiment):
    s = np.array([0.1, 0.2, 0.4, 0.8, 1.6])
    drift = np.array([[1e-3, 1e-3], [5e-4, 5e-4], [2e-4, 2e-4], [1e-1, 4e-4], [np.nan, 1e-3]])
    data = xr.Dataset({"sweep_drift": (("s", "dt"), drift)}, {"s": s})
    assert experiment.stability_limit(data) == [0.4, np.inf]


def test_bodies_are_drawn_through_their_joints(experiment):
    from jaxdae.app import load

    config, _ = load(str(ROOT / "configs" / "baumgarte_tuning.yaml"))
    line = experiment.outlines(config.mechanism, np.array([[0.5, 0.0, 0.0], [0.0, 0.5, np.pi / 2.0]]))
    np.testing.assert_allclose(line, [[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]], rtol=0, atol=1e-15)


def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    assert run(experiment, monkeypatch, tmp_path, "experiment.integrators=[rk5]") == 2
    assert "got rk5, expected some of semi-implicit Euler, midpoint, RK4" in " ".join(
        capsys.readouterr().out.split()
    )
    assert not list(tmp_path.iterdir())
