"""The experiment `jumping_leg`: the limit of a motor, the ballistic height, and the gradient of the co-design."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("jumping_leg", ROOT / "experiments" / "jumping_leg.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_motor_limit_and_ballistic_height(experiment):
    limits = {"peak": 0.8, "stall": 1.6, "free": 400.0}
    u, speed = np.array([1.0, 1.0, 1.0, -1.0, 0.5]), np.array([0.0, 300.0, 400.0, -300.0, 100.0])
    torque = experiment.motor_torque(u, speed, **limits)
    np.testing.assert_allclose(torque, [0.8, 0.4, 0.0, -0.4, 0.4], atol=1e-7)
    np.testing.assert_allclose(experiment.apex(0.2, 3.0), 0.2 + 9.0 / 19.62, rtol=1e-7)


@pytest.mark.long
def test_derivative_with_respect_to_geometry_gear_and_torque(experiment):
    config, _ = load(str(ROOT / "configs" / "jumping_leg.yaml"), ("experiment.knots=5",))
    with precision(config):
        settings = experiment.Settings.model_validate(config.experiment)
        method = jaxdae.Projected(jaxdae.SemiImplicitEuler())
        jumper = experiment.Jumper(settings, method, config.dt, 80)
        x = jnp.asarray(jumper.nominal)
        along = jnp.asarray(np.random.default_rng(0).standard_normal(x.shape))
        pushed = jax.jit(lambda x: jax.jvp(jumper.objective, (x,), (along,)))
        value, slope = pushed(x)
        up, down = (pushed(x + sign * 1e-6 * along)[0] for sign in (1.0, -1.0))
        assert value < -0.1  # the leg jumps
        np.testing.assert_allclose(slope, (up - down) / 2e-6, rtol=1e-6)
