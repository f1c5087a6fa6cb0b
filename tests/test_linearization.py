"""One factorization for all who need it: the same results, less work, and nothing extra to store."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import METHODS, leaders
from problems import CrankRocker, double_pendulum, double_pendulum_state
from small_systems import consistent, everything

import jaxdae as jd
from jaxdae.linearization import Linearization, linearize

DT = 1e-3


def swing():
    return double_pendulum()


def swinging():
    return double_pendulum_state(swing().length, jnp.array([0.7, -0.4]), jnp.array([1.5, -2.0]))


def alone(method):
    """Returns the method without the sharing: its projections have a solver of their own, which happens to be the same one."""
    projection = jd.Projection(jd.PositionProjection(solver=method.solver), jd.VelocityProjection(solver=method.solver))
    return jd.Projected(method, projection)


@pytest.mark.parametrize("name", leaders(METHODS, lambda method: not method.closed))
def test_sharing_changes_nothing(name):
    method = METHODS[name].integrator
    shared = jd.Projected(method)
    assert isinstance(shared.init(swing(), swinging()), Linearization)
    results = [jax.jit(jd.rollout, static_argnames="steps")(swing(), i, swinging(), dt=DT, steps=4) for i in (shared, alone(method))]
    for x, y in zip(*(jax.tree.leaves(r) for r in results), strict=True):
        # The same sums in another order.
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


def test_velocity_rows_do_not_share():
    # J may depend on the velocities, which are projected after it would be made.
    assert jd.Projected(jd.SemiImplicitEuler()).init(everything(), consistent()) == ()


def test_soft_rows_do_not_share():
    assert jd.Projected(jd.SemiImplicitEuler()).init(jd.Soft(swing(), 1e-3), swinging()) == ()


@pytest.mark.parametrize(
    ("integrator", "factorizations"),
    [
        (jd.Projected(jd.SemiImplicitEuler()), 2),
        (jd.Projected(jd.SemiImplicitEuler(), jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE))), 1),
        (jd.Projected(jd.SemiImplicitEuler(), jd.Projection(jd.PositionProjection(origin=jd.Origin.PREVIOUS))), 1),
        (jd.Projected(jd.RungeKutta.rk4()), 5),
        (jd.Projected(jd.RungeKutta.rk4(), jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE))), 4),
    ],
    ids=("euler", "euler at the stage", "euler at the previous state", "rk4", "rk4 at the stage"),
)
def test_factorizations_of_a_step(integrator, factorizations):
    # A diagonal mass matrix: the only Cholesky factorizations are those of the Delassus matrix.
    system, start = CrankRocker().build()
    memory = integrator.init(system, start)
    step = jax.jit(lambda at, m: integrator.step(system, at, m, None, DT)).lower(start, memory)
    calls = re.findall(r'custom_call_target="(\w*potrf\w*)"', step.compile().as_text())
    assert len(calls) == factorizations


@pytest.mark.parametrize("method", [jd.SemiImplicitEuler(), jd.RungeKutta.rk4()], ids=("euler", "rk4"))
def test_the_last_stage_closes_the_loop_too(method):
    system, start = CrankRocker().build()
    projection = jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE, iterations=4))
    trajectory = jd.rollout(system, jd.Projected(method, projection), start, dt=DT, steps=100, save_every=100)
    jd.raise_if_failed(trajectory.info)
    # Each correction gains h |v| <= 1e-2 or more: four take 1e-5 below round-off.
    assert trajectory.info.violation[0] <= 1e-13


def test_gradients_go_through_the_shared_factorization():
    # Enough corrections for round-off: what is differentiated implicitly is then what was computed.
    projection = jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE, iterations=6))
    integrator = jd.Projected(jd.SemiImplicitEuler(), projection)

    @jax.jit
    def end(shift):
        at = dataclasses.replace(swinging(), v=swinging().v + shift)
        return jd.rollout(swing(), integrator, at, dt=1e-2, steps=3, save_every=3).state.q[-1, 0]

    shift = jnp.zeros_like(swinging().v)
    exact = [(end(e) - end(-e)) / 2e-5 for e in 1e-5 * jnp.eye(4)]
    # Central differences: 1e-10 of truncation and 1e-11 of round-off.
    np.testing.assert_allclose(jax.grad(end)(shift), exact, atol=1e-9)


@pytest.mark.long
def test_reverse_mode_stores_no_factorization():
    # What a step adds to the temporary memory of a gradient: its start state, its input and little else, not J and its factors.
    system, start = CrankRocker().build()
    integrator = jd.Projected(jd.SemiImplicitEuler())

    def temporary(steps):
        def end(v):
            at = dataclasses.replace(start, v=v)
            return jnp.sum(jd.rollout(system, integrator, at, dt=DT, steps=steps, save_every=steps).state.q)

        return jax.jit(jax.grad(end)).lower(start.v).compile().memory_analysis().temp_size_in_bytes

    state_bytes = sum(x.nbytes for x in jax.tree.leaves(start))
    assert temporary(2000) - temporary(1000) <= 1000 * 2 * state_bytes


def test_forward_dynamics_takes_it():
    at = linearize(swing(), swinging(), jd.DenseKKT())
    known = jd.forward_dynamics(swing(), swinging(), linearization=at)
    for x, y in zip(known, jd.forward_dynamics(swing(), swinging(), solver=jd.DenseKKT()), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)
