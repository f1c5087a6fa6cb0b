"""Programs for devices that these tests do not have: JAX lowers them, without LAPACK's functions and without
callbacks.
"""

import dataclasses

import control_problems
import jax
import jax.numpy as jnp
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv

WORLDS = 3


def _many(x):
    return jnp.tile(x, (WORLDS, *(1 for _ in x.shape)))


def _gradient():
    """Of a batch of rollouts with projections."""
    system, start = control_problems.five_bar()
    method = jd.Projected(jd.SemiImplicitEuler())

    def end(v):
        at = dataclasses.replace(jax.tree.map(_many, start), t=jnp.zeros(WORLDS), v=v)
        return jnp.sum(jd.batch_rollout(system, method, at, dt=0.01, steps=3).state.q[:, -1])

    return jax.grad(end), (_many(start.v),)


def _implicit():
    """Of an implicit method, whose corrections are dense."""
    system, start = control_problems.five_bar()
    return (
        lambda v: (
            jd.rollout(
                system, jd.GeneralizedAlpha(), dataclasses.replace(start, v=v), dt=0.01, steps=2
            ).state.q
        ),
        (start.v,),
    )


def _assembly():
    """Of many starts, by pseudoinverses."""
    system, start = control_problems.five_bar()
    return jax.vmap(lambda q: jd.initialize(system, q)[0].q), (_many(start.q),)


def _pose():
    """Of a rover on hills in joint coordinates, whose contacts are searched."""
    hills = jv.Hills(*(jnp.array([x]) for x in (0.1, 1.0, 0.5, 0.2)))
    system, q = jm.mechanism(jv.rocker_bogie(hills), jm.Joints())
    return jax.vmap(lambda at: jv.place_on_terrain(system, q, at, 0.3, suspension=jv.ROVER_SUSPENSION)[0]), (
        jnp.zeros((WORLDS, 2)),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(_gradient, marks=pytest.mark.exhaustive),
        _implicit,
        pytest.param(_assembly, marks=pytest.mark.exhaustive),
        pytest.param(_pose, marks=pytest.mark.long),
    ],
)
def test_programs_are_lowered_for_accelerators(program):
    function, arguments = program()
    traced = jax.jit(function).trace(*arguments)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "lapack" not in text
        assert "callback" not in text
