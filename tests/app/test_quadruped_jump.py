"""The experiment `quadruped_jump`: its motors and feet, and the derivative of its cost through contacts that
switch.
"""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app.config.precision import precision
from jaxdae.app.model.load_config import load

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "quadruped_jump", ROOT / "experiments" / "quadruped_jump.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_a_jump_leaves_the_ground_and_comes_back_with_derivatives_through_its_contacts(experiment):
    config, worlds = load(
        str(ROOT / "configs" / "quadruped_jump.yaml"), ("duration=0.4", "experiment.knots=4")
    )
    settings = experiment.Settings.model_validate(config.experiment)
    with precision(config):
        at = experiment.jumper(config, settings, worlds.one()[1])
        first = experiment.first_torques(at, settings)
        # Held to the posture of the start, motors give the feedforward; between knots it is linear.
        np.testing.assert_allclose(at.motors(0.0, at.start), 0.0, rtol=0, atol=1e-12)
        law = jd.tree.set_leaf(at.motors, "knots", first)
        np.testing.assert_allclose(law.feedforward(0.15), 0.5 * (first[1] + first[2]), rtol=1e-12)
        # What holds the start is what is left when nothing is raised.
        np.testing.assert_allclose(
            jd.forward_dynamics(at.system, at.start, first[-1])[0], 0.0, rtol=0, atol=1e-9
        )

        @jax.jit
        def along(knots, direction):
            def cost(x):
                made = experiment.jump(at, x)
                return 0.5 * jnp.sum(experiment.residuals(at, settings, x, made.state) ** 2), made.info

            return jax.jvp(cost, (knots,), (direction,), has_aux=True)

        direction = jnp.asarray(np.random.default_rng(0).standard_normal(first.shape))
        h = 1e-5
        _, slope, info = along(first, direction)
        behind, ahead = (along(first + side * h * direction, direction)[0] for side in (-1, 1))
        active = np.asarray(info.active)
        assert np.all(np.asarray(info.status) == jd.Status.OK)
        # Both rows of a foot go together; feet are off for a while, and on again.
        np.testing.assert_array_equal(active[:, :2], active[:, 2:])
        flown = ~active[:, :2].any(axis=1)
        assert flown.any()
        assert active[0].all()
        assert active[-1, :2].any()
        # Central differences: h^2 times a third derivative, and round-off of the cost over h.
        np.testing.assert_allclose(slope, (ahead - behind) / (2.0 * h), rtol=1e-5)
