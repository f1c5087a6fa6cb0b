"""The experiment `singular_configurations`: its branch of motion, its start times, and what it says about
results.
"""

import importlib.util
import pathlib

import numpy as np
import pytest
import redundant_problems
import xarray as xr

import jaxdae as jd
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "singular_configurations", ROOT / "experiments" / "singular_configurations.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def configured(experiment):
    config, worlds = load(str(ROOT / "configs" / "singular_configurations.yaml"))
    with precision(config):
        system, _, state = worlds.one()
        branch = experiment.Branch.of(system, state)
    return experiment.Settings.model_validate(config.experiment), config, branch


@pytest.mark.long
def test_the_branch_is_the_exact_motion(configured):
    _, _, branch = configured
    times = np.linspace(0.0, 10.0, 41)
    poses, velocities = branch.at(times)
    exact = redundant_problems.double_four_bar_at(times)
    # Angles are up to 30 rad; both sides are elliptic functions to round-off.
    np.testing.assert_allclose(poses.reshape(41, -1), exact.q, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(velocities.reshape(41, -1), exact.v, rtol=0.0, atol=1e-11)
    assert branch.in_line() == pytest.approx(redundant_problems.double_four_bar_in_line(), abs=1e-13)


def test_one_step_ends_as_long_before_the_links_are_in_line_as_it_should(experiment, configured):
    settings, config, branch = configured
    first, in_line, *others = experiment.starts(settings, branch, config.dt)
    assert first == 0.0
    distance = np.remainder(branch.in_line() - np.array([in_line, *others]), config.dt)
    expected = np.append(
        0.0, np.geomspace(settings.approach.closest, settings.approach.farthest, settings.approach.count)
    )
    np.testing.assert_allclose(
        np.minimum(distance, config.dt - distance),
        np.minimum(expected, config.dt - expected),
        rtol=0,
        atol=1e-15,
    )


def test_what_is_said_about_results(experiment):
    ok, failed = int(jd.Status.OK), int(jd.Status.NONFINITE)

    def results(errors, status):
        data = {"error": errors, "status": status, "energy_error": [0.1] * 4, "opening": [0.2] * 4}
        return xr.Dataset({name: (("world", "time"), np.array(x)[:, None]) for name, x in data.items()})

    found = {
        "null_space": results([1e-6, 1e-5, 1e-5, 1e-6], [ok] * 4),
        "dense_kkt": results([1e-6, 0.0, 3.0, 1e-6], [ok, failed, ok, ok]),
    }
    good, bad = experiment.conclusion(found, np.array([1e-9, 1e-3])).splitlines()
    assert "NullSpace follows the branch in all worlds, to 1.0e-05 m" in good
    assert (
        "is lost in 2 of 4 worlds, at up to 1e-09 s from it: 1 stop with a status that says so, 1 go on "
        "without one" in bad
    )
    row = experiment.summary(found)[1]
    assert (row[0], row[1], row[5], row[-1]) == ("DenseKKT (LU)", "OK", "NONFINITE", "1 of 2")
