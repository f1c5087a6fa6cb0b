"""Trees and loops in a batch, against each world alone."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js

RNG = np.random.default_rng(3)
WORLDS = 4


def branched(*loops, count=17):
    """Returns a tree of 24 velocities or less: a free body with two limbs of hinges, a ball joint and a
    slider.
    """
    bodies = [
        jm.SpatialBody(
            f"link {k}",
            mass=1.0 + 0.1 * k,
            inertia=(0.1, 0.2, 0.15 + 0.005 * k),
            place=(0.3 * (k % 2), 0.1, 0.2 * k),
        )
        for k in range(count)
    ]
    point, axis = (0.1, 0.2, 0.3), (0.0, 0.6, 0.8)
    joints = [
        js.Ball("ball", "link 0", "link 1", point),
        js.Prismatic("slider", "link 0", "link 2", axis, point),
    ]
    joints += [
        js.Revolute(f"hinge {k}", f"link {k - 2}", f"link {k}", np.roll(axis, k), (0.1, 0.2, 0.2 * k))
        for k in range(3, count)
    ]
    return jm.mechanism(jm.Description(space=jm.SPACE, bodies=bodies, joints=[*joints, *loops]), jm.Joints())


@pytest.mark.long
@pytest.mark.parametrize(
    ("owned", "count"), [("fixed", 17), pytest.param("held", 5, marks=pytest.mark.exhaustive)]
)
def test_worlds_may_have_lengths_of_their_own_and_share_directions(owned, count):
    mechanism, start = branched(count=count)
    q = start + jnp.linspace(0.0, 0.1, start.size)
    scales = jnp.asarray([1.0, 1.2, 0.7])

    def seen(scale):
        tree = mechanism.coordinates
        frames = getattr(tree, owned)
        scaled = frames._replace(**{name: scale * getattr(frames, name) for name in frames.PLACE})
        return dataclasses.replace(tree, **{owned: scaled}).near(q)

    found = jax.jit(jax.vmap(seen))(scales)
    alone = jax.jit(seen)
    for k, scale in enumerate(scales):
        jax.tree.map(
            lambda x, y, k=k: np.testing.assert_allclose(x[k], y, rtol=0.0, atol=1e-13), found, alone(scale)
        )


PIN = js.Ball("pin", "link 15", "link 16", (0.2, 0.1, 3.1))


@pytest.mark.long
@pytest.mark.parametrize(
    "loops", [pytest.param((), id="tree", marks=pytest.mark.exhaustive), pytest.param((PIN,), id="loop")]
)
def test_worlds_of_a_larger_tree_are_as_each_alone(loops):
    mechanism, q = branched(*loops)
    nv = len(mechanism.names.velocities)
    assert nv >= mechanism.coordinates.articulated_from
    q = jax.vmap(lambda xi: mechanism.retract(q, xi))(jnp.asarray(RNG.normal(size=(WORLDS, nv))))
    v = jnp.asarray(RNG.normal(size=(WORLDS, nv)))

    def seen(q, v):
        a, _ = jaxdae.forward_dynamics(mechanism, jaxdae.State(jnp.zeros(()), q, v))
        return a, mechanism.frames(q), mechanism.twists(q, v)

    many, one_by_one = jax.jit(jax.vmap(seen))(q, v), jax.jit(seen)
    alone = [one_by_one(q[k], v[k]) for k in range(WORLDS)]
    for entries, *each in zip(*(jax.tree.leaves(found) for found in (many, *alone)), strict=True):
        assert np.allclose(entries, np.stack(each), rtol=1e-11, atol=1e-12)


@pytest.mark.long
def test_derivatives_of_worlds_with_a_loop_are_as_of_each_alone():
    mechanism, q = branched(PIN)
    nv = len(mechanism.names.velocities)
    q = jax.vmap(lambda xi: mechanism.retract(q, xi))(jnp.asarray(RNG.normal(size=(2, nv))))
    v, weights = jnp.asarray(RNG.normal(size=(2, nv))), jnp.asarray(RNG.normal(size=nv))

    def slopes(q, v):
        def acceleration(q):
            return weights @ jaxdae.forward_dynamics(mechanism, jaxdae.State(jnp.zeros(()), q, v))[0]

        return jax.jvp(acceleration, (q,), (jnp.ones_like(q),))[1], jax.grad(acceleration)(q)

    many, one_by_one = jax.jit(jax.vmap(slopes))(q, v), jax.jit(slopes)
    for k in range(2):
        for found, right in zip((x[k] for x in many), one_by_one(q[k], v[k]), strict=True):
            np.testing.assert_allclose(found, right, rtol=0, atol=1e-10 * np.abs(right).max())


@pytest.mark.exhaustive
def test_a_rollout_of_a_batch_is_differentiated_as_that_of_each_world():
    mechanism, q = branched()
    nv = len(mechanism.names.velocities)
    weights, method = jnp.asarray(RNG.normal(size=q.size)), jaxdae.SemiImplicitEuler()

    def end(rollout, q, v):
        start = jaxdae.State(jnp.zeros(v.shape[:-1]), q, v)
        return jnp.sum(rollout(mechanism, method, start, dt=1e-3, steps=2, save_every=2).state.q @ weights)

    # Neither as many worlds as coordinates nor as velocities, so that no axis passes for another.
    q, v = jnp.broadcast_to(q, (WORLDS, q.size)), jnp.asarray(RNG.normal(size=(WORLDS, nv)))
    of_batch = jax.jit(jax.grad(partial(end, jaxdae.batch_rollout), argnums=(0, 1)))(q, v)
    of_worlds = jax.jit(jax.vmap(jax.grad(partial(end, jaxdae.rollout), argnums=(0, 1))))(q, v)
    for found, right in zip(of_batch, of_worlds, strict=True):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-13 * np.abs(right).max())
