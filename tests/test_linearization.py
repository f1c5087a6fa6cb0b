"""One factorization for all who need it: the same results, less work, and nothing extra to store."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from catalogue import METHODS, first, in_ci
from problems import CrankRocker, double_pendulum, double_pendulum_state
from small_systems import consistent, everything

import jaxdae as jd
from jaxdae import control as jc
from jaxdae.integrators.method import of_points
from jaxdae.systems.linearization import Linearization, Point, linearize

DT = 1e-3


def swing():
    return double_pendulum()


def swinging():
    return double_pendulum_state(swing().length, jnp.array([0.7, -0.4]), jnp.array([1.5, -2.0]))


def alone(method):
    """Returns the method without the sharing: its projections have a solver of their own, which happens to be
    the same one.
    """
    projection = jd.Projection(
        jd.PositionProjection(solver=method.solver), jd.VelocityProjection(solver=method.solver)
    )
    return jd.Projected(method, projection)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    in_ci(first(METHODS, lambda method: not method.closed), "rk4"),
)
def test_sharing_changes_nothing(name):
    method = METHODS[name].integrator
    shared = jd.Projected(method)
    assert isinstance(shared.begin(swing(), swinging()).linearization, Linearization)
    results = [
        jax.jit(jd.rollout, static_argnames="steps")(swing(), i, swinging(), dt=DT, steps=4)
        for i in (shared, alone(method))
    ]
    for x, y in zip(*(jax.tree.leaves(r) for r in results), strict=True):
        # The same sums in another order.
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


def test_velocity_rows_do_not_share():
    # J may depend on the velocities, which are projected after it would be made.
    assert jd.Projected(jd.SemiImplicitEuler()).begin(everything(), consistent()).linearization is None


def test_soft_rows_do_not_share():
    assert (
        jd.Projected(jd.SemiImplicitEuler()).begin(jd.Soft(swing(), 1e-3), swinging()).linearization is None
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("integrator", "factorizations"),
    [
        (jd.Projected(jd.SemiImplicitEuler()), 2),
        pytest.param(
            jd.Projected(
                jd.SemiImplicitEuler(), jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE))
            ),
            1,
            marks=pytest.mark.long,
        ),
        pytest.param(
            jd.Projected(
                jd.SemiImplicitEuler(), jd.Projection(jd.PositionProjection(origin=jd.Origin.PREVIOUS))
            ),
            1,
            marks=pytest.mark.long,
        ),
        pytest.param(jd.Projected(jd.RungeKutta.rk4()), 5, marks=pytest.mark.long),
        (jd.Projected(jd.RungeKutta.rk4(), jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE))), 4),
    ],
    ids=("euler", "euler at the stage", "euler at the previous state", "rk4", "rk4 at the stage"),
)
def test_factorizations_of_a_step(integrator, factorizations):
    # A diagonal mass matrix: the only Cholesky factorizations are those of the Delassus matrix.
    system, start = CrankRocker().build()
    point = integrator.begin(system, start)
    step = jax.jit(lambda at: integrator.advance(system, at, (), None, DT)).lower(point)
    calls = re.findall(r'custom_call_target="(\w*potrf\w*)"', step.compile().as_text())
    assert len(calls) == factorizations


@jd.tree.pytree
class Hand:
    """Explicit Euler as a user writes it, for plain states: fields of their own choice, no base class."""

    gain: Any = 0.0

    def init(self, system, at):
        return ()

    def step(self, system, at, memory, u, dt):
        a, lam = jd.forward_dynamics(system, at, u)
        new = jd.State(at.t + dt, at.q + dt * at.v, at.v + dt * (a - self.gain * at.v))
        zero = jnp.zeros_like(at.t)
        return (
            new,
            memory,
            jd.interfaces.StepInfo(
                a, lam, zero, zero, jnp.zeros((), jnp.int32), jnp.asarray(jd.Status.OK, jnp.int32)
            ),
        )


class TestPoints:
    """Memory is memory only; what was factorized travels with the state."""

    @all_cases("name", METHODS)
    def test_no_memory_holds_a_factorization(self, name):
        for method in (METHODS[name].integrator, jd.Projected(METHODS[name].integrator)):
            memory = jax.eval_shape(method.init, swing(), swinging())
            assert memory == () or isinstance(METHODS[name].integrator, jd.GeneralizedAlpha)
            assert not any(
                isinstance(x, Linearization)
                for x in jax.tree.leaves(memory, is_leaf=lambda x: isinstance(x, Linearization))
            )

    @pytest.mark.long
    @pytest.mark.parametrize(
        "method",
        [jd.Projected(jd.RungeKutta.rk4()), pytest.param(jd.Rattle(), marks=pytest.mark.exhaustive)],
        ids=("projected", "rattle"),
    )
    def test_a_step_of_plain_states_is_that_of_points(self, method):
        point = method.begin(swing(), swinging())
        end, _, info = jax.jit(lambda at: method.advance(swing(), at, (), None, DT))(point)
        new, memory, same = jax.jit(lambda at: method.step(swing(), at, method.init(swing(), at), None, DT))(
            swinging()
        )
        assert (type(new), memory) == (jd.State, ())
        assert jax.tree.structure(end) == jax.tree.structure(point)
        for x, y in zip(jax.tree.leaves((end.state, info)), jax.tree.leaves((new, same)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-14)
        np.testing.assert_array_equal(end.q, end.state.q)
        np.testing.assert_array_equal(end.v, end.state.v)

    @pytest.mark.long
    def test_a_users_integrator_sees_plain_states(self):
        euler = jd.ExplicitEuler()
        for ours, theirs in (
            (euler, Hand()),
            (jd.Projected(euler), jd.Projected(Hand())),
            (jd.textbook.Sequential(euler), jd.textbook.Sequential(Hand())),
        ):
            results = [
                jax.jit(lambda at, i=i: jd.rollout(swing(), i, at, dt=DT, steps=4).state)(swinging())
                for i in (ours, theirs)
            ]
            for x, y in zip(*map(jax.tree.leaves, results), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)

    def test_a_users_integrator_is_solved_around_by_its_own_solver(self):
        @jd.tree.pytree
        class Solving(Hand):
            solver: Any = jd.DenseKKT()
            stabilization: Any = None

        for wrapper in (jd.Projected, jd.textbook.Sequential, jd.textbook.ProjectedStep):
            assert isinstance(wrapper(Solving()).roles.solver, jd.DenseKKT)
            assert wrapper(Hand()).roles.solver is None
            assert isinstance(wrapper(Solving()).roles.stabilization, jd.NoStabilization)

    def test_wrappers_have_the_roles_of_what_they_wrap(self):
        gains = jd.Baumgarte(10.0, 10.0)
        method = jd.RungeKutta.rk4(solver=jd.NullSpace(), stabilization=gains)
        for wrapped in (
            jd.Projected(method),
            jd.textbook.Sequential(method),
            jd.textbook.ProjectedStep(method, solver=jd.DenseKKT()),
            jd.Projected(jd.Projected(method)),
        ):
            assert wrapped.roles == (method.solver, gains)

    def test_a_step_that_is_overridden_is_made(self):
        @jd.tree.pytree
        class Slow(jd.ExplicitEuler):
            def step(self, system, at, memory, u, dt):
                new, memory, info = super().step(system, at, memory, u, 0.5 * dt)
                return dataclasses.replace(new, t=at.t + dt), memory, info

        end = of_points(Slow()).advance(swing(), Point(swinging()), (), None, DT)[0]
        half = jd.ExplicitEuler().step(swing(), swinging(), (), None, 0.5 * DT)[0]
        np.testing.assert_array_equal(end.q, half.q)
        assert end.t == swinging().t + DT

    @pytest.mark.long
    def test_a_wrapper_inside_of_a_wrapper_hands_on_what_is_of_its_own_end(self):
        # The outer projection moves the state at which the inner one was linearized, and what stands between
        # them knows of neither.
        inner = jd.Projected(jd.SemiImplicitEuler(), jd.Projection(velocity=None))
        method = jd.textbook.ProjectedStep(jc.Sampled(inner, lambda t, at: 0.1 * at.v[:1]), 0.5)
        point, memory = method.begin(swing(), swinging()), method.init(swing(), swinging())
        advance = jax.jit(lambda at: method.advance(swing(), at, memory, None, 0.05))
        end = advance(point)[0]
        again, _, info = advance(end)
        fresh, _, expected = jax.jit(lambda at: method.step(swing(), at, memory, None, 0.05))(end.state)
        np.testing.assert_allclose(again.q, fresh.q, rtol=1e-13)
        np.testing.assert_allclose(info.a, expected.a, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("method", [jd.SemiImplicitEuler(), jd.RungeKutta.rk4()], ids=("euler", "rk4"))
def test_the_last_stage_closes_the_loop_too(method):
    system, start = CrankRocker().build()
    projection = jd.Projection(jd.PositionProjection(origin=jd.Origin.STAGE, iterations=4))
    trajectory = jd.rollout(system, jd.Projected(method, projection), start, dt=DT, steps=100, save_every=100)
    jd.raise_if_failed(trajectory.info)
    # Each correction gains h |v| <= 1e-2 or more: four take 1e-5 below round-off.
    assert trajectory.info.violation[0] <= 1e-13


@pytest.mark.long
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
    np.testing.assert_allclose(jax.grad(end)(shift), exact, rtol=0, atol=1e-9)


@pytest.mark.long
def test_reverse_mode_stores_no_factorization():
    # What a step adds to the temporary memory of a gradient: its start state, its input and little else, not
    # J and its factors.
    system, start = CrankRocker().build()
    integrator = jd.Projected(jd.SemiImplicitEuler())

    def temporary(steps):
        def end(v):
            at = dataclasses.replace(start, v=v)
            return jnp.sum(jd.rollout(system, integrator, at, dt=DT, steps=steps, save_every=steps).state.q)

        return jax.jit(jax.grad(end)).lower(start.v).compile().memory_analysis().temp_size_in_bytes

    state_bytes = sum(x.nbytes for x in jax.tree.leaves(start))
    assert temporary(2000) - temporary(1000) <= 1000 * 2 * state_bytes


@pytest.mark.long
def test_forward_dynamics_takes_it():
    at = linearize(swing(), swinging(), jd.DenseKKT())
    known = jd.forward_dynamics(swing(), swinging(), linearization=at)
    for x, y in zip(known, jd.forward_dynamics(swing(), swinging(), solver=jd.DenseKKT()), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-14)
