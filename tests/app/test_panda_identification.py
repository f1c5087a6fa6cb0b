"""The experiment `panda_identification`: its regressor against inverse dynamics, and what can be known of a
matrix.
"""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import robots
from jaxdae.app.config.config_source import read

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "panda_identification", ROOT / "experiments" / "panda_identification.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_torques_are_those_of_inverse_dynamics_and_intervals_hold(experiment):
    section = read(str(ROOT / "configs" / "panda_identification.yaml")).data["experiment"]
    settings = experiment.Settings.model_validate(section | {"samples": 40, "repeats": 50})
    at = experiment.arm(str(ROOT / "configs" / "models" / "gripper_arm.urdf"))
    data = experiment.measured(at, settings, 3)
    q, v, a = (jnp.asarray(x) for x in experiment.motion(at, settings, 3))
    assert np.all((q[:, at.hinges] > at.limits[:, 0]) & (q[:, at.hinges] < at.limits[:, 1]))
    expected = jax.vmap(lambda q, v, a: robots.inverse_dynamics(at.system, jd.State(jnp.zeros(()), q, v), a))(
        q, v, a
    )[:, at.hinges]
    np.testing.assert_allclose(data.torques, expected, rtol=0.0, atol=1e-13 * np.abs(expected).max())
    truth = experiment.truth_of(at)
    scale = np.sqrt(np.mean(data.torques**2, axis=0))
    jacobian = np.asarray(
        jax.jacfwd(lambda x: experiment.torques_of(at, data, x) / scale)(jnp.asarray(truth))
    ).reshape(-1, truth.size)
    found = experiment.base(jacobian)
    assert (
        len(found.chosen)
        == np.linalg.matrix_rank(jacobian, tol=1e-7 * np.linalg.norm(jacobian, 2))
        < truth.size
    )
    result, _, guess = experiment.fits(at, settings, data, found, 3)
    expected = truth[found.chosen] + found.shares @ (truth - guess)[found.others]
    held = np.abs(np.asarray(result.parameters["base"]) - expected) <= 1.96 * np.asarray(
        result.standard_error["base"]
    )
    # 95 %, from so many intervals that are not independent within a repeat: four standard deviations of 50
    # repeats.
    assert abs(held.mean() - 0.95) < 4.0 * np.sqrt(0.95 * 0.05 / 50)


def test_columns_that_depend_on_others(experiment):
    matrix = np.random.default_rng(0).standard_normal((6, 3)) @ np.array(
        [[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    )
    found = experiment.base(matrix)
    assert len(found.chosen) == 3
    np.testing.assert_allclose(
        matrix[:, found.chosen] @ found.shares, matrix[:, found.others], rtol=0, atol=1e-13
    )
