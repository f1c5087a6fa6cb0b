"""The experiment `minitaur_hop`: the derivative of a hop through push-off and landing."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
from jaxdae import contact
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_a_hop_and_its_derivative():
    spec = importlib.util.spec_from_file_location("minitaur_hop", ROOT / "experiments" / "minitaur_hop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config, _ = load(str(ROOT / "configs" / "minitaur_hop.yaml"), ("dt=4e-3",))
    with precision(config):
        # `Touching` closes the loop, also without `Projected`, which compiles longer.
        method = contact.Touching(jaxdae.SemiImplicitEuler(), contact_solver=contact.ContactNewton(10))
        hop = module.Hop(config, method)
        knots = hop.first()
        along = jnp.asarray(np.random.default_rng(0).standard_normal(knots.shape))

        @jax.jit
        def pushed(knots):
            return jax.jvp(hop.cost, (knots,), (along,))

        (_, trajectory), (slope, _) = pushed(knots)
        up, down = (pushed(knots + sign * 1e-5 * along)[0][0] for sign in (1.0, -1.0))
    assert not np.any(trajectory.info.status)
    assert np.max(trajectory.info.violation) < 1e-14
    gap = np.asarray(trajectory.info.gap)[:, 0]
    assert gap.max() > 1e-3  # the leg hops,
    assert abs(gap[-1]) < 1e-5  # and lands; gaps of a step are of second order in the motion of the step
    np.testing.assert_allclose(slope, (up - down) / 2e-5, rtol=1e-5)
