"""The experiment `flipping_body`: the time between flips, and what methods keep of energy and momentum."""

import importlib.util
import pathlib

import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("flipping_body", ROOT / "experiments" / "flipping_body.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def body():
    config, worlds = load(str(ROOT / "configs" / "flipping_body.yaml"))
    with precision(config):
        system, _, start = worlds.one()
    return config, system, start


@pytest.mark.long
def test_flips_come_when_elliptic_integrals_say(experiment, body):
    config, system, start = body
    with precision(config):
        result = experiment.simulate(system, start, experiment.METHODS["rkmk4"], 1e-3, 12000, 2)
    at = experiment.flips(result)
    assert (result.status, len(at)) == (jd.Status.OK, 3)
    np.testing.assert_allclose(
        np.diff(at), experiment.time_between_flips((1.0, 2.0, 3.0), (0.01, 5.0, 0.02)), rtol=0.0, atol=1e-6
    )
    assert result.energy.max() < 1e-12
    assert result.momentum.max() < 1e-10


def test_the_time_between_flips_knows_both_outer_axes(experiment):
    """About the axis of the largest moment and about that of the smallest; small swings about it are those of
    the linear equations.
    """
    near_c, near_a = (
        experiment.time_between_flips((1.0, 2.0, 3.0), omega)
        for omega in ((1e-6, 1e-6, 5.0), (5.0, 1e-6, 1e-6))
    )
    rate_c, rate_a = (
        5.0 * np.sqrt((3.0 - 1.0) * (3.0 - 2.0) / (1.0 * 2.0)),
        5.0 * np.sqrt((2.0 - 1.0) * (3.0 - 1.0) / (2.0 * 3.0)),
    )
    np.testing.assert_allclose([near_c, near_a], [np.pi / rate_c, np.pi / rate_a], rtol=1e-9)


@pytest.mark.exhaustive
def test_symmetric_methods_keep_the_energy_and_swing_about_the_momentum(experiment, body):
    config, system, start = body
    with precision(config):
        result = experiment.simulate(system, start, experiment.METHODS["rattle"], config.dt, 5000, 10)
    assert result.energy.max() < 1e-12
    assert 1e-6 < result.momentum.max() < 1e-4


@pytest.mark.exhaustive
def test_many_steps_of_the_eighth_order(experiment, body):
    config, system, start = body
    with precision(config):
        result = experiment.simulate(system, start, experiment.METHODS["kahan_li8"], config.dt, 100_000, 100)
    assert result.momentum.max() < 1e-11
    assert result.energy.max() < 2e-11
