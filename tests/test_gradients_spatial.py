"""Derivatives of rollouts in space with respect to everything that a user gives: forward, reverse and central
differences agree.

An arm of two bodies on a hinge and a ball is held by feedback of where its upper body is. Lengths, masses,
inertia, the axis of the hinge, the numbers of a spring and of the feedback, and the start are differentiated
all at once, in both forms of coordinates.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

PARAMETERS = {
    "lengths": jnp.array([0.7, 0.4]),
    "masses": jnp.array([1.0, 0.5]),
    "inertia": jnp.array([[0.1, 0.01, -0.02], [0.01, 0.08, 0.01], [-0.02, 0.01, 0.12]]),
    "axis": jnp.array([0.3, 1.0, -0.2]),
    "spring": jnp.array([2.0, 0.1, 0.3]),
    "gains": jnp.array([3.0, 0.8]),
    "angle": jnp.array(0.4),
    "rates": jnp.array([2.0, 0.5, -1.0, 3.0]),
}


@jd.tree.pytree
class Holding:
    """Feedback of the place and the velocity of the upper body along x, as a torque in the hinge."""

    mechanism: jm.Mechanism
    gains: jax.Array

    def __call__(self, t, state):
        place, velocity = self.mechanism.frames(state.q).x[0], self.mechanism.twists(state.q, state.v).x[0]
        return -jnp.stack([self.gains[0] * place + self.gains[1] * velocity])


def arm(given, coordinates):
    """Returns the arm, hanging down, with the start pose in its coordinates."""
    stiffness, damping, armature = given["spring"]
    zero, first = jnp.zeros(()), given["lengths"][0]
    inertia = 0.5 * (given["inertia"] + given["inertia"].T)
    second = given["lengths"][1]
    bodies = [
        js.Body("upper", given["masses"][0], inertia, (zero, zero, -first / 2)),
        js.Body("lower", given["masses"][1], 0.3 * inertia, (zero, zero, -first - second / 2)),
    ]
    acting = {"stiffness": stiffness, "damping": damping, "armature": armature}
    joints = [
        js.Revolute("hinge", "ground", "upper", given["axis"], (0.0, 0.0, 0.0), **acting),
        js.Ball("elbow", "upper", "lower", at=(zero, zero, -first)),
    ]
    return jm.spatial_mechanism(
        bodies, joints, [js.JointForce("motor", "hinge", input=0)], coordinates=coordinates
    )


def end(given, coordinates, steps):
    """Returns a sum of where the last body is and how it moves after so many steps of 2 ms."""
    mechanism, q = tree, _ = arm(given, jm.Joints())
    start, method = (
        jd.State(jnp.zeros(()), q.at[0].set(given["angle"]), given["rates"]),
        jd.SemiImplicitEuler(),
    )
    if isinstance(coordinates, jm.Absolute):
        mechanism, _ = arm(given, coordinates)
        start, method = jm.to_absolute(tree, start), jd.Projected(method)
    last = jd.rollout(
        mechanism, method, start, Holding(mechanism, given["gains"]), dt=2e-3, steps=steps, save_every=steps
    ).state
    frame, twist = mechanism.frames(last.q[-1]), mechanism.twists(last.q[-1], last.v[-1])
    return sum(k * x[-1] for k, x in enumerate((*frame[:3], *twist[:3]), 1))


@functools.partial(jax.jit, static_argnums=(1, 2))
def derivatives(given, coordinates, steps):
    """Returns the gradient in reverse and in forward mode, six directions, and differences of fourth order
    along them.
    """
    flat, unravel = ravel_pytree(given)

    def of(x):
        return end(unravel(x), coordinates, steps)

    # Steps of 3e-4 leave some 1e-12, and rounding 1e-11.
    directions, step = (
        jnp.asarray(np.random.default_rng(0).normal(size=(6, flat.size)) / flat.size**0.5),
        3e-4,
    )
    forward = jax.lax.map(lambda e: jax.jvp(of, (flat,), (e,))[1], jnp.eye(flat.size))
    shifted = jax.lax.map(of, flat + step * jnp.concatenate([k * directions for k in (-2, -1, 1, 2)]))
    before2, before, after, after2 = jnp.split(shifted, 4)
    return (
        jax.grad(of)(flat),
        forward,
        directions,
        (8.0 * (after - before) - (after2 - before2)) / (12.0 * step),
    )


def check(given, coordinates, steps):
    reverse, forward, directions, differences = derivatives(given, coordinates, steps)
    assert np.all(np.abs(forward) > 1e-6), "every number matters"
    np.testing.assert_allclose(reverse, forward, rtol=1e-11, atol=1e-11 * float(jnp.max(jnp.abs(forward))))
    np.testing.assert_allclose(differences, directions @ forward, rtol=1e-7, atol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates",
    [jm.Joints(), pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive)],
    ids=["joints", "absolute"],
)
def test_derivatives_through_200_steps(coordinates):
    check(PARAMETERS, coordinates, 200)
