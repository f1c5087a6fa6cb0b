"""Inside of `jax.shard_map`, where JAX asks of loops and derivative rules that they say over which devices
their numbers differ.

One device is enough: what differs is known from the mesh, not from how many devices it has.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Pendulum, state

import jaxdae as jd
from jaxdae.linalg.newton import simplified_newton

ROD = Pendulum(*(jnp.asarray(x) for x in (1.3, 1.0, 9.81)))
HERE = jax.sharding.PartitionSpec("worlds")


def sharded(function, x):
    """Returns the function of many worlds, inside of a mesh."""
    mesh = jax.make_mesh((1,), ("worlds",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.jit(jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=HERE, out_specs=HERE))(x)


def square_roots(a):
    """Returns the roots of many numbers at once, which are corrected in a loop."""
    values, _ = simplified_newton(
        lambda x, a: x - (x**2 - a) / 2.0,
        lambda x, a: x**2 - a,
        lambda rest, a: rest / 2.0,
        8,
        jnp.ones(70),
        a * jnp.ones(70),
    )
    return values


def assembled(x):
    """Returns the coordinates of a pendulum that were a little off."""
    return jd.initialize(ROD, jnp.array([0.6, -0.8]) + x)[0].q


def slope(x):
    """Returns the derivative of the end of a rollout, whose report holds integers."""

    def end(x):
        start = state(jnp.array([0.6, -0.8]), x * jnp.array([0.8, 0.6]))
        return jd.rollout(ROD, jd.Rattle(), start, dt=0.01, steps=3).state.q[-1, 0]

    return jax.grad(end)(x)


@pytest.mark.parametrize("function", [square_roots, assembled, pytest.param(slope, marks=pytest.mark.long)])
def test_functions_are_what_they_are_outside(function):
    x = jnp.array([1.1, 1.3]) if function is not assembled else jnp.array([0.01, 0.02])
    np.testing.assert_array_equal(sharded(function, x), jax.jit(jax.vmap(function))(x))
