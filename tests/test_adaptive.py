"""Adaptive integration on Diffrax: the projected solver, `Adaptive` in rollouts, and `adaptive_rollout`."""

import dataclasses
import sys
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import Pendulum, cast, reference, state
from problems import pendulum as reference_pendulum
from small_systems import central, consistent, everything, oscillating, oscillator, without_typechecker

import jaxdae as jd
from jaxdae.integrators.diffrax_solver import projected_state
from jaxdae.systems.system import velocity_residual

TSIT5 = diffrax.Tsit5()
IVPTEST = "ivptest_pendulum"
METHOD = jd.diffrax.Adaptive(method=TSIT5)


def pendulum(length=1.0):
    return Pendulum(jnp.asarray(1.3), jnp.asarray(length, float), jnp.asarray(9.81))


def start(length=1.0, speed=1.5):
    return state(length * jnp.array([0.6, -0.8]), speed * jnp.array([0.8, 0.6]))


def law(t, at):
    return jnp.sin(3.0 * t) - at.q * jnp.roll(at.v, 1)


# Quaternions: a free symmetric top in body rates, with its exact solution.


def times(a, b):
    return jnp.concatenate(
        [(a[0] * b[0] - a[1:] @ b[1:])[None], a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])]
    )


def exponential(rotation):
    """Returns the quaternion of a rotation vector."""
    half = 0.5 * jnp.sqrt(jnp.sum(rotation**2) + 1e-60)
    return jnp.concatenate([jnp.cos(half)[None], 0.5 * jnp.sinc(half / jnp.pi) * rotation])


@jd.tree.pytree
class Top(jd.System):
    inertia: Any

    def mass_matrix(self, q):
        return jnp.diag(self.inertia)

    def force(self, t, q, v, u):
        return -jnp.cross(v, self.inertia * v)

    def retract(self, q, xi):
        return times(q, exponential(xi))

    def difference(self, q0, q1):
        w = times(q0 * jnp.array([1.0, -1.0, -1.0, -1.0]), q1)
        size = jnp.sqrt(jnp.sum(w[1:] ** 2) + 1e-60)
        return 2.0 * jnp.arctan2(size, w[0]) / size * w[1:]


TOP = Top(jnp.array([1.0, 1.0, 1.8]))
RATES = jnp.array([0.7, -0.4, 2.0])


def top_at(t):
    """L is constant and w = L / I1 + w3 (1 - I3 / I1) e3: a turn about L after one about the axis, both at
    constant rate.
    """
    spin = jnp.array([0.0, 0.0, RATES[2] * (1.0 - 1.8)])
    return times(exponential(t * TOP.inertia * RATES), exponential(t * spin))


class TestVectorField:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "u",
        [
            pytest.param(None, marks=pytest.mark.exhaustive),
            pytest.param(jnp.array([0.3, -0.2, 0.1, 0.5]), marks=pytest.mark.exhaustive),
            law,
        ],
        ids=["none", "array", "law"],
    )
    def test_is_the_dynamics(self, u):
        system, at, gains = everything(), consistent(), jd.Baumgarte(2.0, 3.0)
        rate, a = jd.diffrax.vector_field(system, solver=jd.DenseKKT(), stabilization=gains)(
            at.t, (at.q, at.v), u
        )
        given = u(at.t, at) if callable(u) else u
        np.testing.assert_allclose(
            a, jd.forward_dynamics(system, at, given, stabilization=gains)[0], rtol=1e-12
        )
        np.testing.assert_array_equal(rate, at.v)

    def test_curved_coordinates(self):
        q = jnp.array([0.5, -0.5, 0.1, 0.7])
        rate, a = jd.diffrax.vector_field(TOP)(jnp.zeros(()), (q, RATES))
        np.testing.assert_allclose(rate, 0.5 * times(q, jnp.concatenate([jnp.zeros(1), RATES])), rtol=1e-14)
        np.testing.assert_allclose(a, -jnp.cross(RATES, TOP.inertia * RATES) / TOP.inertia, rtol=1e-14)

    def test_mistakes(self):
        with (
            pytest.raises(TypeError, match=r"system must be an instance of a jaxdae.System, got int"),
            without_typechecker(),
        ):
            jd.diffrax.vector_field(3)  # pyright: ignore[reportArgumentType]


class TestProjectedSolver:
    @pytest.mark.long
    def test_a_step_is_that_of_the_method_and_then_the_projection(self):
        """Twice in a row: the second step of a method that hands on its last stage starts anew. The error is
        the method's.
        """
        system, projection = pendulum(), jd.Projection()
        solver = jd.diffrax.projected_solver(TSIT5, system, projection)
        term = diffrax.ODETerm(jd.diffrax.vector_field(system))
        y, known = (start().q, start().v), solver.init(term, 0.0, 0.1, (start().q, start().v), None)
        for t in (0.0, 0.1):
            fresh = TSIT5.init(term, t, t + 0.1, y, None)
            estimate, error, dense, _, _ = TSIT5.step(term, t, t + 0.1, y, None, fresh, False)
            new, our_error, our_dense, known, result = solver.step(term, t, t + 0.1, y, None, known, False)
            expected = projection.project(system, state(*estimate, t + 0.1))
            np.testing.assert_allclose(new[0], expected.q, rtol=0.0, atol=1e-14)
            np.testing.assert_allclose(new[1], expected.v, rtol=0.0, atol=1e-13)
            assert (
                np.max(np.abs(system.constraint(0.0, new[0])))
                < 1e-15
                < np.max(np.abs(system.constraint(0.0, estimate[0])))
            )
            for x, z in zip(
                jax.tree.leaves((error, dense)), jax.tree.leaves((our_error, our_dense)), strict=True
            ):
                np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-16)
            assert result == diffrax.RESULTS.successful
            y = new
        assert solver.order(term) == solver.error_order(term) == 5

    @pytest.mark.exhaustive
    def test_every_accepted_step_is_on_the_manifold(self):
        """Rows that move, velocity-level rows, a law; and the dense output is usable, off the manifold by the
        tolerance.
        """
        system, at = everything(), consistent()
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(jd.diffrax.vector_field(system)),
            jd.diffrax.projected_solver(diffrax.Bosh3(), system),
            t0=at.t,
            t1=at.t + 0.5,
            dt0=None,
            y0=(at.q, at.v),
            args=law,
            stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-5),
            saveat=diffrax.SaveAt(steps=True, dense=True),
            max_steps=128,
        )
        count = int(solution.stats["num_accepted_steps"])
        assert count > 5
        ts, (q, v) = jax.tree.map(lambda x: x[:count], (solution.ts, solution.ys))
        np.testing.assert_allclose(jax.vmap(system.constraint)(ts, q), 0.0, rtol=0, atol=1e-14)
        residual = jax.vmap(lambda *s: system.constraint_rate(*s))(ts, q, v)
        np.testing.assert_allclose(residual, 0.0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(jax.vmap(system.velocity_constraint)(ts, q, v), 0.0, rtol=0, atol=1e-13)
        middle = 0.5 * (ts[3] + ts[4])
        np.testing.assert_allclose(
            system.constraint(middle, solution.evaluate(middle)[0]), 0.0, rtol=0, atol=1e-5
        )
        # Ends of steps are those of the method there, before the projection.
        np.testing.assert_allclose(solution.evaluate(ts[4])[0], q[4], rtol=0.0, atol=1e-5)

    @pytest.mark.exhaustive
    def test_projections_of_their_own_kind(self):
        """A solver, a metric or an origin of its own, or one half only: the projection is that of
        `Projection.project`.
        """
        system, at = everything(), consistent()
        estimate = state(
            at.q + 1e-4 * jnp.array([0.3, -0.2, 0.5, 0.1]),
            at.v + 1e-4 * jnp.array([0.1, 0.4, -0.2, 0.3]),
            at.t,
        )
        for projection in (
            jd.Projection(
                jd.PositionProjection(solver=jd.DenseKKT()), jd.VelocityProjection(metric=jd.Metric.EUCLIDEAN)
            ),
            jd.Projection(
                jd.PositionProjection(origin=jd.Origin.PREVIOUS), jd.VelocityProjection(solver=jd.DenseKKT())
            ),
            jd.Projection(jd.textbook.LinearPositionProjection(), None),
            jd.Projection(None),
            jd.Projection(),
        ):
            new = projected_state(system, projection, jd.DenseKKT(), estimate, at)
            expected = projection.project(system, estimate, at)
            np.testing.assert_allclose(new.q, expected.q, rtol=0.0, atol=1e-14)
            # Where the factorization is shared, so is its metric: it differs by some 1e-4, times a correction
            # of that size.
            np.testing.assert_allclose(new.v, expected.v, rtol=0.0, atol=1e-8)
            if projection.position is not None:
                assert np.max(np.abs(system.constraint(new.t, new.q))) < 1e-7
            if projection.velocity is not None:
                np.testing.assert_allclose(velocity_residual(system, new), 0.0, rtol=0, atol=1e-11)

    def test_mistakes(self):
        system = pendulum()
        cases = [
            (
                (diffrax.Tsit5, system),
                r"method must be a Diffrax solver, .*; call it: Dopri8\(\), not Dopri8",
            ),
            (("tsit5", system), r"method must be a Diffrax solver, like diffrax.Dopri8\(\); got 'tsit5'"),
            (
                (diffrax.Kvaerno5(), system),
                "method must be an explicit Diffrax solver, .*; Kvaerno5 is implicit",
            ),
            ((TSIT5, 3), "system must be an instance of a jaxdae.System, got int"),
            (
                (TSIT5, system, jd.VelocityProjection()),
                r"projection must be a Projection\(position, velocity\) or None, got VelocityProj",
            ),
        ]
        for arguments, message in cases:
            with pytest.raises(TypeError, match=message), without_typechecker():
                jd.diffrax.projected_solver(*arguments)


def test_without_diffrax(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    message = r"adaptive integration needs the extra adaptive; install it with pip install '\.\[adaptive\]' in a clone of jaxdae"
    for use in (
        lambda: jd.diffrax.projected_solver(TSIT5, pendulum()),
        lambda: jd.rollout(pendulum(), jd.diffrax.Adaptive(), start(), dt=0.1, steps=2),
        lambda: jd.diffrax.adaptive_rollout(
            pendulum(), jd.diffrax.Adaptive(), start(), times=jnp.array([0.1])
        ),
    ):
        with pytest.raises(ImportError, match=message):
            use()
    jd.diffrax.vector_field(pendulum())(0.0, (start().q, start().v))


@jax.jit
def run(system, integrator, at, dt):
    """Four steps; compiled once for all tests of one integrator's structure."""
    return jd.rollout(system, integrator, at, dt=dt, steps=4)


class TestAdaptive:
    @pytest.mark.long
    def test_accuracy_follows_the_tolerance(self):
        """The published pendulum at its end, from loose to tight; errors of steps add up, some ten times the
        tolerance.
        """
        problem = reference(IVPTEST)
        index = len(problem.t) - 1
        error = []
        for tolerance in (1e-5, 1e-7, 1e-9):
            method = dataclasses.replace(METHOD, rtol=tolerance, atol=tolerance)
            trajectory = run(reference_pendulum(IVPTEST), method, problem.start(), problem.t[index] / 4)
            jd.raise_if_failed(trajectory)
            error.append(np.max(np.abs(trajectory.state.q[-1] - problem.q[index])))
            assert error[-1] < 30.0 * tolerance
            assert np.max(trajectory.info.violation) < 1e-15
            assert np.max(trajectory.info.velocity_violation) < 1e-14
        assert error[0] > error[1] > error[2]

    @pytest.mark.exhaustive
    def test_steps_are_carried_over_the_grid(self):
        """The first step tries dt; later ones know better. A grid much finer than the steps makes one step
        each.
        """
        system, method = pendulum(), METHOD
        coarse = run(system, method, start(), 0.5).info.iterations
        assert np.all(coarse[1:] >= 3)
        fine = run(system, method, start(), 1e-3).info.iterations
        np.testing.assert_array_equal(fine, 1)
        memory = method.init(system, start())
        at, sizes = start(), []
        # The third end falls just behind the end of a step: the step there is short, but the next is not.
        for dt in (0.3, 0.3, 1e-5, 0.3):
            at, memory, info = compiled_step(method, system, at, memory, dt)
            sizes.append((float(memory[0]), int(info.iterations)))
        assert sizes[2][1] == 1
        assert sizes[2][0] >= sizes[1][0]
        assert sizes[3][1] <= sizes[1][1] + 1

    @pytest.mark.long
    def test_the_report_is_true(self):
        system, at, method = pendulum(), dataclasses.replace(start(), t=jnp.asarray(0.3)), METHOD
        new, _, info = compiled_step(method, system, at, method.init(system, at), 0.1)
        a, lam = jd.forward_dynamics(system, at)
        np.testing.assert_allclose(info.a, a, rtol=1e-12)
        np.testing.assert_allclose(info.lam, lam, rtol=1e-12)
        assert info.status == jd.Status.OK
        assert info.violation < 1e-15
        np.testing.assert_allclose(new.t, 0.4, rtol=1e-15)

    @pytest.mark.long
    def test_budget(self):
        method = METHOD
        failed = run(pendulum(), method, start(), 1000.0)
        np.testing.assert_array_equal(failed.info.status, jd.Status.STEP_BUDGET)
        np.testing.assert_array_equal(failed.state.q[-1], start().q)
        with pytest.raises(
            jd.SimulationError, match="STEP_BUDGET at entry 0: the adaptive integration reached max_steps"
        ):
            jd.raise_if_failed(failed)
        # No accelerations, hence no steps: not a matter of the budget, and soon over.
        failed = run(dataclasses.replace(pendulum(), mass=jnp.zeros(())), method, start(), 0.05)
        np.testing.assert_array_equal(failed.info.status, jd.Status.NONFINITE)
        # The tolerance of the projection is kept an eye on.
        once = jd.Projection(jd.PositionProjection(iterations=1, tolerance=1e-12))
        strict = dataclasses.replace(method, rtol=1.0, atol=1.0, method=diffrax.Heun(), projection=once)
        np.testing.assert_array_equal(
            run(pendulum(), strict, start(), 0.05).info.status, jd.Status.NOT_CONVERGED
        )

    @pytest.mark.long
    def test_batch_is_loop(self):
        """Sixteen pendulums with their own lengths, speeds and steps; and one that fails in their midst."""
        lengths = jnp.linspace(0.5, 2.0, 16)
        starts = jax.vmap(start)(lengths, jnp.linspace(-2.0, 3.0, 16))
        systems = jax.vmap(pendulum)(lengths)
        broken = dataclasses.replace(systems, mass=systems.mass.at[7].set(0.0))
        method = METHOD
        together = jd.batch_rollout(broken, method, starts, dt=0.2, steps=4, in_axes=(0, None, 0, None))
        assert together.info.status[7, 0] == jd.Status.NONFINITE
        for k in (0, 6, 8, 15):
            system, at = jax.tree.map(lambda x, k=k: x[k], (systems, starts))
            alone = run(system, method, at, 0.2)
            np.testing.assert_array_equal(alone.info.iterations, together.info.iterations[k])
            np.testing.assert_allclose(together.state.q[k], alone.state.q, rtol=0.0, atol=1e-12)
            np.testing.assert_allclose(together.state.v[k], alone.state.v, rtol=0.0, atol=1e-11)
        assert len(set(np.asarray(together.info.iterations[:, -1]))) > 1

    @pytest.mark.long
    def test_derivatives(self):
        """Forward = reverse = central difference, with respect to a parameter, the start and the time."""
        method = dataclasses.replace(METHOD, rtol=1e-10, atol=1e-10)

        def end(x):
            trajectory = run(pendulum(x[0]), method, start(x[0], x[1]), x[2])
            return trajectory.state.q[-1, 0] + trajectory.state.v[-1, 1]

        x = jnp.array([1.1, 1.4, 0.1])
        gradient = jax.jit(jax.value_and_grad(end))
        value, reverse = gradient(x)
        np.testing.assert_allclose(value, end(x), rtol=1e-13)
        # Differences see the tolerance, divided by their step: 1e-10 / 1e-4.
        for k in range(3):
            direction = jnp.zeros(3).at[k].set(1.0)
            difference = central(lambda h, d=direction: end(x + h * d), 0.0, 1e-4)
            np.testing.assert_allclose(reverse[k], difference, rtol=1e-5)
        forward = jax.jit(lambda d: jax.jvp(end, (x,), (d,))[1])(jnp.ones(3))
        np.testing.assert_allclose(forward, jnp.sum(reverse), rtol=1e-10)
        # A world that fails keeps its start, and has no derivative.
        failed = gradient(x.at[2].set(1000.0))
        np.testing.assert_allclose(failed[0], 0.6 * 1.1 + 0.6 * 1.4, rtol=1e-14)
        assert np.all(np.isnan(failed[1]))

    @pytest.mark.exhaustive
    def test_derivatives_of_batches(self):
        """Of what worlds share, one of which makes more steps than the other: forward = reverse = central
        difference.
        """
        method = jd.diffrax.Adaptive(method=diffrax.Bosh3(), rtol=1e-5, atol=1e-5, max_steps=32)
        starts = jax.vmap(lambda speed: start(1.0, speed))(jnp.array([1.5, -0.4]))

        def end(gravity):
            system = dataclasses.replace(pendulum(), gravity=gravity)
            return jnp.sum(jd.batch_rollout(system, method, starts, dt=0.1, steps=2).state.q[:, -1, 0])

        reverse = jax.jit(jax.grad(end))(9.81)
        both = jax.jit(lambda g: jax.jvp(end, (g,), (1.0,)))
        np.testing.assert_allclose(both(9.81)[1], reverse, rtol=1e-11)
        # Differences see the lengths of the steps, which change with gravity.
        np.testing.assert_allclose(central(lambda g: both(g)[0], 9.81, 1e-2), reverse, rtol=2e-3)

    @pytest.mark.exhaustive
    def test_second_derivatives(self):
        memory = METHOD.init(pendulum(), start())

        def moved(speed):
            tight = dataclasses.replace(METHOD, rtol=1e-9, atol=1e-9)
            return compiled_step(tight, pendulum(), start(1.0, speed), memory, 0.2)[0].q[0]

        def rate(speed):
            return jax.jvp(moved, (speed,), (1.0,))[1]

        rate, second = jax.jit(rate), jax.jit(lambda speed: jax.jvp(rate, (speed,), (1.0,))[1])
        np.testing.assert_allclose(second(1.5), central(rate, 1.5, 1e-3), rtol=1e-5)

    @pytest.mark.long
    def test_single_precision(self):
        method = dataclasses.replace(METHOD, rtol=1e-5, atol=1e-5)
        system, at = cast((pendulum(), start()), jnp.float32)
        trajectory = run(system, method, at, 0.2)
        jd.raise_if_failed(trajectory)
        assert trajectory.state.q.dtype == trajectory.state.v.dtype == trajectory.state.t.dtype == jnp.float32
        np.testing.assert_allclose(
            trajectory.state.q, run(pendulum(), method, start(), 0.2).state.q, rtol=0.0, atol=1e-4
        )
        assert np.max(trajectory.info.violation) < 1e-6

    @pytest.mark.long
    def test_quaternions_stay_at_unit_length(self):
        at = state([1.0, 0.0, 0.0, 0.0], RATES)
        trajectory = run(TOP, jd.diffrax.Adaptive(rtol=1e-10, atol=1e-10), at, 0.5)
        np.testing.assert_allclose(jnp.linalg.norm(trajectory.state.q, axis=1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(
            trajectory.state.q, jax.vmap(top_at)(trajectory.state.t), rtol=0.0, atol=1e-8
        )

    @all_cases(
        ("fields", "error", "message"),
        [
            ({"rtol": 0.0}, ValueError, "Adaptive.rtol must be positive, got 0.0"),
            ({"atol": -1}, ValueError, "Adaptive.atol must be positive, got -1"),
            ({"max_steps": 0}, ValueError, "Adaptive.max_steps must be at least 1, got 0"),
            ({"max_steps": 2.5}, TypeError, "Adaptive.max_steps must be an integer, got 2.5"),
            ({"method": diffrax.Kvaerno3()}, TypeError, "Kvaerno3 is implicit"),
            ({"projection": 1.0}, TypeError, "or None, got float"),
        ],
    )
    def test_mistakes(self, fields, error, message):
        with without_typechecker():
            method = jd.diffrax.Adaptive(**fields)
            with pytest.raises(error, match=message):
                jd.diffrax.adaptive_rollout(oscillator(), method, oscillating(), times=jnp.array([1.0]))


compiled_step = jax.jit(
    lambda method, *arguments: method.step(arguments[0], arguments[1], arguments[2], None, arguments[3])
)

TIMES = jnp.array([0.05, 0.4, 0.41, 1.0])
LOOSE = dataclasses.replace(METHOD, rtol=1e-8, atol=1e-8)


class TestAdaptiveRollout:
    @pytest.mark.long
    def test_entries_at_any_times(self):
        """Steps across the times agree with steps that end on a grid; entries are on the manifold, their
        reports those of the states.
        """
        trajectory = jd.diffrax.adaptive_rollout(pendulum(), LOOSE, start(), times=TIMES)
        jd.raise_if_failed(trajectory)
        np.testing.assert_array_equal(trajectory.state.t, TIMES)
        on_grid = run(pendulum(), LOOSE, start(), 0.25)
        np.testing.assert_allclose(on_grid.state.q[-1], trajectory.state.q[-1], rtol=0.0, atol=1e-6)
        assert np.max(trajectory.info.violation) < 1e-15
        assert np.max(trajectory.info.velocity_violation) < 1e-14
        a, lam = jd.forward_dynamics(pendulum(), jax.tree.map(lambda x: x[2], trajectory.state))
        np.testing.assert_allclose(trajectory.info.a[2], a, rtol=1e-12)
        np.testing.assert_allclose(trajectory.info.lam[2], lam, rtol=1e-12)
        assert np.all(trajectory.info.iterations == trajectory.info.iterations[0])

    @pytest.mark.long
    def test_budget(self):
        """What was reached is there, the rest is the last good state."""
        far = TIMES.at[2:].set(jnp.array([100.0, 1000.0]))
        trajectory = jd.diffrax.adaptive_rollout(pendulum(), LOOSE, start(), times=far)
        good = np.asarray(trajectory.info.status) == jd.Status.OK
        np.testing.assert_array_equal(good, np.sort(good)[::-1])
        assert good[0]
        assert not good[-1]
        np.testing.assert_array_equal(trajectory.info.status[~good], jd.Status.STEP_BUDGET)
        assert np.all(np.isfinite(trajectory.state.q))
        assert far[good][-1] <= trajectory.state.t[-1] < far[-1]
        assert np.max(trajectory.info.violation) < 1e-15

    @pytest.mark.long
    def test_inputs(self):
        """Held over their intervals, they are those of a rollout over the same grid; constant ones and laws
        likewise.
        """
        grid, inputs = jnp.array([0.2, 0.4, 0.6]), jnp.array([[1.0, -2.0], [0.5, 3.0], [-4.0, 0.2]])
        system, at, method = oscillator(), oscillating(), jd.Projected(jd.RungeKutta.dormand_prince5())
        held = jd.diffrax.adaptive_rollout(system, LOOSE, at, inputs, times=grid)
        fine = jd.rollout(system, method, at, jnp.repeat(inputs, 50, axis=0), dt=0.004, save_every=50)
        np.testing.assert_allclose(held.state.q, fine.state.q, rtol=0.0, atol=1e-7)
        constant = jd.diffrax.adaptive_rollout(system, LOOSE, at, inputs[0], times=grid)
        np.testing.assert_allclose(constant.state.q[0], held.state.q[0], rtol=0.0, atol=1e-7)

    @pytest.mark.long
    def test_batch_is_loop(self):
        lengths = jnp.linspace(0.5, 2.0, 16)
        together = jax.vmap(lambda x: jd.diffrax.adaptive_rollout(pendulum(x), LOOSE, start(x), times=TIMES))(
            lengths
        )
        for k in (0, 9, 15):
            alone = jd.diffrax.adaptive_rollout(pendulum(lengths[k]), LOOSE, start(lengths[k]), times=TIMES)
            np.testing.assert_allclose(together.state.q[k], alone.state.q, rtol=0.0, atol=1e-12)
            np.testing.assert_array_equal(together.info.iterations[k], alone.info.iterations)

    @pytest.mark.exhaustive
    def test_derivatives(self):
        """Reverse mode by default, forward mode by request, both the central difference."""

        def ends(x, adjoint=None):
            return jd.diffrax.adaptive_rollout(
                pendulum(x), LOOSE, start(x), times=TIMES, adjoint=adjoint
            ).state.q[:, 0]

        reverse = jax.jit(jax.grad(lambda x: jnp.sum(ends(x))))(1.1)
        forward = jax.jit(lambda x: jax.jvp(lambda x: ends(x, diffrax.ForwardMode()), (x,), (1.0,))[1])(1.1)
        np.testing.assert_allclose(forward, central(ends, 1.1, 1e-2), rtol=2e-4)
        np.testing.assert_allclose(jnp.sum(forward), reverse, rtol=1e-10)

    @all_cases(
        ("arguments", "error", "message"),
        [
            ({"times": 1.0}, ValueError, r"times must have one axis and at least one entry, got shape \(\)"),
            (
                {"times": jnp.zeros(0)},
                ValueError,
                r"times must have one axis and at least one entry, got shape \(0,\)",
            ),
            ({"times": jnp.array([0.2, 0.1])}, ValueError, "times must be increasing"),
            ({"times": jnp.array([-0.2, 0.1])}, ValueError, r"the first is -0.2 s, state.t is 0.0 s"),
            ({"max_steps": 0}, ValueError, "max_steps must be at least 1, got 0"),
            ({"max_steps": 1.5}, TypeError, "max_steps must be an integer, got 1.5"),
            ({"adjoint": "forward"}, TypeError, r"adjoint must be a Diffrax adjoint, .*; got 'forward'"),
            (
                {"integrator": jd.RungeKutta.rk4()},
                TypeError,
                r"integrator must be an Adaptive\(...\) method, got RungeKutta",
            ),
            (
                {"controls": jnp.zeros((3, 2))},
                ValueError,
                "controls must have one entry per time, got 3 entries for 4 times",
            ),
            ({"controls": jnp.zeros((1, 3, 2))}, TypeError, r"controls must be an array .* got \(1, 3, 2\)"),
            ({"controls": 3.0}, TypeError, "controls must be an array .* got float"),
        ],
    )
    def test_mistakes(self, arguments, error, message):
        arguments = {"times": TIMES, "integrator": LOOSE, **arguments}
        with pytest.raises(error, match=message), without_typechecker():
            jd.diffrax.adaptive_rollout(oscillator(), state=oscillating(), **arguments)
