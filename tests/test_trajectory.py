"""Rollouts: what they return, how worlds fail, what they cost to call again, and what they say about
mistakes.
"""

import contextlib
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import two_devices
from all_cases import all_cases
from problems import Pendulum, assert_same_bits, cast, state
from small_systems import Oscillator, central, oscillating, oscillator, without_typechecker

import jaxdae as jd
from jaxdae import Status

DT = 0.01
ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
EULER = jd.SemiImplicitEuler()
STABLE = jd.SemiImplicitEuler(stabilization=jd.Baumgarte(jnp.asarray(2.0, float), jnp.asarray(3.0, float)))
CLOSED = jd.Projected(STABLE)


@jd.tree.pytree
class Displaced(Pendulum):
    """A pendulum whose row has a constant offset."""

    offset: Any

    def constraint(self, t, q):
        return super().constraint(t, q) + self.offset


@jd.tree.pytree
class Swing(Pendulum):
    """A pendulum that is pushed by its input."""

    def force(self, t, q, v, u):
        return super().force(t, q, v, u) if u is None else super().force(t, q, v, u) + u


def swing():
    return Swing(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81)))


def start(angle=0.3, rate=0.5):
    c, s = np.cos(angle), np.sin(angle)
    return state([s, -c], [rate * c, rate * s], 0.2)


@jd.tree.pytree
class Damper:
    """A feedback law with a gain."""

    gain: Any

    def __call__(self, t, at):
        return -self.gain * at.v * jnp.cos(t)


def stack(trees):
    return jax.tree.map(lambda *x: jnp.stack(x), *trees)


def assert_close(x, y, **tolerance):
    assert jax.tree.structure(x) == jax.tree.structure(y)
    for name, a, b in zip(jd.tree.leaf_paths(x), jax.tree.leaves(x), jax.tree.leaves(y), strict=True):
        np.testing.assert_allclose(a, b, **(tolerance or ROUND_OFF), err_msg=name)


def world(trajectory, k):
    return jax.tree.map(lambda x: x[k], trajectory)


class TestOneWorld:
    def test_is_a_loop_of_steps(self):
        at, law = start(), Damper(0.7)
        trajectory = jd.rollout(swing(), STABLE, at, law, dt=DT, steps=4)
        for k in range(4):
            at, _, info = STABLE.step(swing(), at, (), law, DT)
            assert_close(world(trajectory.state, k), at)
            assert_close(world(trajectory.info, k), info)
        np.testing.assert_allclose(trajectory.state.t, 0.2 + DT * np.arange(1, 5), rtol=1e-15)

    @pytest.mark.long
    def test_save_every_keeps_every_kth_state_and_the_largest_violation(self):
        plain = jd.RungeKutta.heun()
        every = jd.rollout(swing(), plain, start(), dt=0.1, steps=12)
        thinned = jd.rollout(swing(), plain, start(), dt=0.1, steps=12, save_every=4)
        assert_close(thinned.state, jax.tree.map(lambda x: x[3::4], every.state))
        assert_close(thinned.info.a, every.info.a[3::4])
        for name in ("violation", "velocity_violation"):
            largest = np.max(np.reshape(getattr(every.info, name), (3, 4)), axis=1)
            np.testing.assert_allclose(getattr(thinned.info, name), largest, **ROUND_OFF)

    @pytest.mark.long
    def test_one_entry_for_all_steps(self):
        at = jd.rollout(swing(), EULER, start(), dt=DT, steps=12)
        last = jd.rollout(swing(), EULER, start(), dt=DT, steps=12, save_every=12)
        assert last.state.q.shape == (1, 2)
        np.testing.assert_allclose(last.state.q[0], at.state.q[-1], **ROUND_OFF)

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("save_every", "segment"),
        [
            (1, 12),
            (2, 4),
            (4, 4),
            *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in ((1, 1), (4, 2), (12, 1))),
        ],
    )
    def test_segments_change_nothing(self, save_every, segment):
        controls = jnp.cos(jnp.arange(24.0)).reshape(12, 2)
        whole = jd.rollout(swing(), EULER, start(), controls, dt=DT)
        split = jd.rollout(swing(), EULER, start(), controls, dt=DT, save_every=save_every, segment=segment)
        assert_close(split.state, jax.tree.map(lambda x: x[save_every - 1 :: save_every], whole.state))

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("save_every", "segment"), [pytest.param(1, 3, marks=pytest.mark.exhaustive), (6, 2)]
    )
    def test_gradient_with_segments(self, save_every, segment):
        def last(mass, rate):
            system = jd.tree.set_leaf(swing(), "mass", mass)
            at = jd.State(start().t, start().q, rate * start().v)
            trajectory = jd.rollout(
                system, STABLE, at, Damper(2.0), dt=DT, steps=6, save_every=save_every, segment=segment
            )
            return jnp.sum(jnp.array([1.0, 2.0]) * trajectory.state.q[-1])

        of_mass, of_rate = jax.grad(last, argnums=(0, 1))(1.3, 1.0)
        np.testing.assert_allclose(of_mass, central(lambda x: last(x, 1.0), 1.3, 1e-5), rtol=1e-6)
        np.testing.assert_allclose(of_rate, central(lambda x: last(1.3, x), 1.0, 1e-5), rtol=1e-8)

    def test_time_does_not_drift(self):
        # Summed in single precision, 30 000 steps of 0.1 s are wrong by some 10 s; counted, by one rounding.
        system, at = cast((oscillator(), oscillating()), jnp.float32)
        trajectory = jd.rollout(system, EULER, at, dt=0.1, steps=30_000, save_every=10_000)
        assert trajectory.state.t.dtype == jnp.float32
        np.testing.assert_allclose(trajectory.state.t, [1000.0, 2000.0, 3000.0], rtol=2e-7)

    def test_plain_numbers_and_lists_will_do(self):
        exact = jd.rollout(oscillator(), EULER, state([0.5, 0.1], [0.0, 1.0], 1.0), dt=1.0, steps=2)
        with without_typechecker():
            for at in (
                jd.State(1, np.array([0.5, 0.1]), np.array([0.0, 1.0])),
                jd.State(1.0, [0.5, 0.1], [0.0, 1.0]),
            ):
                assert_close(jd.rollout(oscillator(), EULER, at, dt=1, steps=np.int64(2)), exact)


class TestControls:
    @pytest.mark.long
    def test_an_array_is_held_and_a_law_is_evaluated(self):
        system, at = swing(), start()
        controls = jnp.cos(jnp.arange(10.0)).reshape(5, 2)
        held = jd.rollout(system, EULER, at, controls, dt=DT)
        # The same inputs as a law of time.
        looked_up = jax.tree_util.Partial(
            lambda table, t, _: table[jnp.int32(jnp.round((t - 0.2) / DT))], controls
        )
        assert_close(jd.rollout(system, EULER, at, looked_up, dt=DT, steps=5), held)
        assert_close(jd.rollout(system, EULER, at, np.asarray(controls), dt=DT, steps=5), held)

    @pytest.mark.long
    def test_none_is_no_input(self):
        zero = jd.rollout(swing(), EULER, start(), jnp.zeros((3, 2)), dt=DT)
        assert_close(jd.rollout(swing(), EULER, start(), dt=DT, steps=3), zero)

    @pytest.mark.long
    def test_a_plain_function_is_a_law(self):
        expected = jd.rollout(swing(), jd.RungeKutta.heun(), start(), Damper(0.7), dt=DT, steps=5)
        law = lambda t, at: -0.7 * at.v * jnp.cos(t)  # noqa: E731 (that is how users write it)
        assert_close(jd.rollout(swing(), jd.RungeKutta.heun(), start(), law, dt=DT, steps=5), expected)

    @pytest.mark.long
    @pytest.mark.parametrize("derivative", [jax.grad, pytest.param(jax.jacfwd, marks=pytest.mark.exhaustive)])
    def test_a_plain_function_may_capture_what_is_differentiated(self, derivative):
        def end(gain, law):
            return jnp.sum(jd.rollout(swing(), EULER, start(), law, dt=DT, steps=5).state.q[-1])

        captured = derivative(lambda gain: end(gain, lambda t, at: -gain * at.v * jnp.cos(t)))(0.7)
        np.testing.assert_allclose(
            captured, central(lambda gain: end(gain, Damper(gain)), 0.7, 1e-4), rtol=1e-6
        )


class TestManyWorlds:
    states = (start(0.3), start(1.2, -0.4), start(-2.0, 3.0))

    def check(self, batch, singles):
        for k, single in enumerate(singles):
            assert_close(world(batch, k), single)

    @pytest.mark.exhaustive
    def test_start_states(self):
        batch = jd.batch_rollout(swing(), CLOSED, stack(self.states), dt=DT, steps=5)
        self.check(batch, [jd.rollout(swing(), CLOSED, at, dt=DT, steps=5) for at in self.states])

    @pytest.mark.exhaustive
    def test_a_common_start_time(self):
        states = stack(self.states)
        batch = jd.batch_rollout(swing(), EULER, jd.State(0.2, states.q, states.v), dt=DT, steps=3)
        assert_close(batch, jd.batch_rollout(swing(), EULER, states, dt=DT, steps=3))

    @pytest.mark.exhaustive
    def test_taylor(self):
        # Its derivative of the dynamics goes through the batched factorization.
        batch = jd.batch_rollout(swing(), jd.textbook.Taylor(), stack(self.states), dt=DT, steps=3)
        self.check(
            batch, [jd.rollout(swing(), jd.textbook.Taylor(), at, dt=DT, steps=3) for at in self.states]
        )

    def test_batch_of_one(self):
        batch = jd.batch_rollout(swing(), EULER, stack(self.states[:1]), dt=DT, steps=3)
        self.check(batch, [jd.rollout(swing(), EULER, self.states[0], dt=DT, steps=3)])

    @pytest.mark.long
    def test_any_leaf(self):
        masses, gains = jnp.array([0.7, 1.3, 2.0]), jnp.array([1.0, 2.0, 5.0])
        laws = Damper(jnp.array([0.0, 0.5, 1.0]))
        system = jd.tree.set_leaf(swing(), "mass", masses)
        integrator = jd.tree.set_leaf(CLOSED, "integrator.stabilization.alpha", gains)
        axes = (
            jd.tree.batch_axes(system, "mass"),
            jd.tree.batch_axes(integrator, "integrator.stabilization.alpha"),
            None,
            0,
        )
        batch = jd.batch_rollout(system, integrator, start(), laws, dt=DT, steps=5, in_axes=axes)
        singles = [
            jd.rollout(
                jd.tree.set_leaf(swing(), "mass", masses[k]),
                jd.tree.set_leaf(CLOSED, "integrator.stabilization.alpha", gains[k]),
                start(),
                Damper(laws.gain[k]),
                dt=DT,
                steps=5,
            )
            for k in range(3)
        ]
        self.check(batch, singles)

    @pytest.mark.long
    @pytest.mark.parametrize("shared", [pytest.param(True, marks=pytest.mark.exhaustive), False])
    def test_control_arrays(self, shared):
        controls = jnp.cos(jnp.arange(3 * 4 * 2.0)).reshape(3, 4, 2)
        used = controls[0] if shared else controls
        batch = jd.batch_rollout(
            swing(),
            EULER,
            stack(self.states),
            used,
            dt=DT,
            save_every=2,
            segment=2,
            in_axes=(None, None, 0, None if shared else 0),
        )
        singles = [
            jd.rollout(swing(), EULER, at, controls[0 if shared else k], dt=DT, save_every=2)
            for k, at in enumerate(self.states)
        ]
        self.check(batch, singles)

    @pytest.mark.long
    def test_a_shared_plain_function(self):
        states = stack(self.states)
        batch = jd.batch_rollout(
            swing(), EULER, states, lambda t, at: -0.7 * at.v * jnp.cos(t), dt=DT, steps=5
        )
        assert_close(batch, jd.batch_rollout(swing(), EULER, states, Damper(0.7), dt=DT, steps=5))

        def end(gain, as_leaf):
            law = Damper(gain) if as_leaf else lambda t, at: -gain * at.v * jnp.cos(t)
            return jnp.sum(jd.batch_rollout(swing(), EULER, states, law, dt=DT, steps=5).state.q[:, -1])

        np.testing.assert_allclose(
            jax.jvp(lambda k: end(k, False), (0.7,), (1.0,))[1],
            central(lambda k: end(k, True), 0.7),
            rtol=1e-8,
        )

    @pytest.mark.long
    def test_world_axis_elsewhere(self):
        states = stack(self.states)
        moved = jd.State(states.t, states.q.T, states.v.T)
        batch = jd.batch_rollout(
            swing(), EULER, moved, dt=DT, steps=3, in_axes=(None, None, jd.State(0, 1, 1), None)
        )
        assert_close(batch, jd.batch_rollout(swing(), EULER, states, dt=DT, steps=3))

    def test_vmap_of_a_rollout(self):
        states = stack(self.states)
        mapped = jax.vmap(lambda at: jd.rollout(swing(), EULER, at, dt=DT, steps=3))(states)
        assert_close(mapped, jd.batch_rollout(swing(), EULER, states, dt=DT, steps=3))

    def test_inside_jit(self):
        states = stack(self.states)
        compiled = jax.jit(lambda x, dt: jd.batch_rollout(swing(), EULER, x, dt=dt, steps=3))(states, DT)
        assert_close(compiled, jd.batch_rollout(swing(), EULER, states, dt=DT, steps=3))

    @pytest.mark.exhaustive
    def test_without_rows_and_with_different_masses(self):
        masses = jnp.array([[1.0, 2.0], [3.0, 4.0]])
        system = jd.tree.set_leaf(oscillator(), "mass", masses)
        integrator = jd.Projected(EULER)
        axes = (jd.tree.batch_axes(system, "mass"), None, None, None)
        batch = jd.batch_rollout(system, integrator, oscillating(), dt=DT, steps=3, in_axes=axes)
        singles = [
            jd.rollout(jd.tree.set_leaf(oscillator(), "mass", m), integrator, oscillating(), dt=DT, steps=3)
            for m in masses
        ]
        self.check(batch, singles)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(
            jax.vmap(lambda s: jd.rollout(swing(), CLOSED, s, dt=DT, steps=3)),
            id="vmap",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(None, id="batch_rollout", marks=pytest.mark.long),
    ],
)
def test_derivative_of_a_compiled_batch(run):
    """As many worlds as coordinates: a world axis in the wrong place would not be noticed by shapes."""
    run = run or (lambda s: jd.batch_rollout(swing(), CLOSED, s, dt=DT, steps=3))
    states, change = stack([start(0.3), start(0.9, -0.2)]), stack([start(0.1, 0.7), start(-0.4, 0.2)])
    compiled = jax.jit(lambda x: run(x).state)
    single = jax.jit(
        lambda x, dx: jax.jvp(lambda s: jd.rollout(swing(), CLOSED, s, dt=DT, steps=3).state, (x,), (dx,))
    )
    x, dx = jax.jvp(compiled, (states,), (change,))
    for k in range(2):
        alone = single(world(states, k), world(change, k))
        assert_close(world(x, k), alone[0])
        assert_close(world(dx, k), alone[1])
    weights = jax.tree.map(jnp.sin, x)
    pulled = jax.vjp(compiled, states)[1](weights)[0]
    inner = [
        sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, pair), strict=True))
        for pair in ((weights, dx), (pulled, change))
    ]
    np.testing.assert_allclose(*inner, **ROUND_OFF)


@jd.tree.pytree
class AdamsBashforth:
    """A two-step method: v+ = v + h (3 a - b) / 2 with b from the step before, kept in a memory of an array,
    a count and a flag.
    """

    damping: Any

    def init(self, system, at):
        return {"a": jnp.zeros_like(at.v), "count": jnp.zeros((), jnp.int32), "started": jnp.zeros((), bool)}

    def step(self, system, at, memory, u, dt):
        a, lam = jd.forward_dynamics(system, at, u)
        a = a - self.damping * at.v
        slope = jnp.where(memory["started"], 1.5 * a - 0.5 * memory["a"], a)
        new = jd.State(at.t + dt, at.q + dt * at.v, at.v + dt * slope)
        zero = jnp.zeros_like(at.t)
        info = jd.interfaces.StepInfo(a, lam, zero, zero, memory["count"], jnp.asarray(Status.OK, jnp.int32))
        return new, {"a": a, "count": memory["count"] + 1, "started": jnp.ones((), bool)}, info


class TestMemory:
    """Integrators may carry anything from step to step."""

    integrator = AdamsBashforth(jnp.asarray(0.3, float))

    def run(self, damping=0.3, controls=None):
        controls = jnp.zeros((4, 2)) if controls is None else controls
        trajectory = jd.rollout(
            oscillator(), AdamsBashforth(damping), oscillating(), controls, dt=0.1, segment=2
        )
        return trajectory, jnp.sum(jnp.array([1.0, 2.0]) * trajectory.state.q[-1])

    def test_is_passed_on(self):
        at, before = oscillating(), None
        q, v = np.asarray(at.q), np.asarray(at.v)
        for _ in range(4):
            a = -3.0 * q / np.array([1.0, 2.0]) - 0.3 * v
            q, v = q + 0.1 * v, v + 0.1 * (a if before is None else 1.5 * a - 0.5 * before)
            before = a
        trajectory, _ = self.run()
        np.testing.assert_allclose(trajectory.state.q[-1], q, **ROUND_OFF)
        np.testing.assert_array_equal(trajectory.info.iterations, np.arange(4))

    @pytest.mark.long
    @pytest.mark.parametrize("worlds", [None, 2])
    def test_goes_on_from_another_rollout(self, worlds):
        at = oscillating() if worlds is None else stack([oscillating()] * worlds)
        run = functools.partial(
            jd.rollout if worlds is None else jd.batch_rollout, oscillator(), self.integrator, dt=0.1
        )
        whole = run(at, steps=4)
        first = run(at, steps=2)
        last = jax.tree.map(
            lambda x: x[..., -1, :] if x.ndim > whole.state.t.ndim else x[..., -1], first.state
        )
        second = run(last, steps=2, memory=first.memory)
        entries = (whole.state, whole.info)
        half = jd.Trajectory(
            *jax.tree.map(lambda x: jnp.take(x, jnp.arange(2, 4), axis=whole.state.t.ndim - 1), entries),
            whole.memory,
        )
        assert_close(second, half)
        np.testing.assert_array_equal(second.memory["count"], 4 if worlds is None else [4] * worlds)
        assert_close(second.memory["a"], whole.info.a[..., -1, :])
        assert not np.allclose(run(last, steps=2).state.v, half.state.v)

    def test_has_derivatives(self):
        reverse = jax.grad(lambda k: self.run(k)[1])(0.3)
        np.testing.assert_allclose(reverse, central(lambda k: self.run(k)[1], 0.3, 1e-4), rtol=1e-6)

    def test_freezes_with_its_world(self):
        controls = np.zeros((3, 4, 2))
        controls[1, 2] = np.nan
        worlds = jd.batch_rollout(
            oscillator(),
            self.integrator,
            oscillating(),
            jnp.asarray(controls),
            dt=0.1,
            in_axes=(None, None, None, 0),
        )
        healthy, _ = self.run()
        for k in (0, 2):
            assert_close(world(worlds, k), healthy)
        np.testing.assert_array_equal(worlds.info.status[1], [0, 0, Status.NONFINITE, Status.NONFINITE])
        np.testing.assert_allclose(worlds.state.q[1, 3], healthy.state.q[1], **ROUND_OFF)


class TestFailedWorlds:
    """Four worlds: of the third the input is NaN in the step with index 2, of the last the start is."""

    steps = 5

    def controls(self, spoiled=True):
        controls = np.cos(np.arange(4 * self.steps * 2.0)).reshape(4, self.steps, 2)
        if spoiled:
            controls[2, 2, 0] = np.nan
        return jnp.asarray(controls)

    def states(self, spoiled=True):
        states = stack([start(0.3), start(1.2), start(-0.7), start(2.0)])
        return jd.State(states.t, states.q.at[3, 1].set(jnp.nan) if spoiled else states.q, states.v)

    def run(self, spoiled=True, **options):
        axes = (None, None, 0, 0)
        return jd.batch_rollout(
            swing(), STABLE, self.states(spoiled), self.controls(spoiled), dt=DT, in_axes=axes, **options
        )

    def test_the_others_go_on_bit_for_bit(self):
        spoiled, healthy = self.run(), self.run(spoiled=False)
        assert_same_bits(jax.tree.map(lambda x: x[:2], spoiled), jax.tree.map(lambda x: x[:2], healthy))
        np.testing.assert_array_equal(spoiled.info.status[:2], Status.OK)

    def test_a_failed_world_freezes_at_its_last_good_state(self):
        spoiled, healthy = self.run(), self.run(spoiled=False)
        np.testing.assert_array_equal(spoiled.info.status[2], [0, 0, *[Status.NONFINITE] * 3])
        assert_same_bits(jax.tree.map(lambda x: x[2, :2], spoiled), jax.tree.map(lambda x: x[2, :2], healthy))
        for k in range(2, self.steps):
            assert_same_bits(
                jax.tree.map(lambda x, k=k: x[2, k], spoiled.state),
                jax.tree.map(lambda x: x[2, 1], spoiled.state),
            )
        for name in ("a", "lam", "violation", "velocity_violation", "iterations"):
            np.testing.assert_array_equal(getattr(spoiled.info, name)[2, 2:], 0)

    def test_a_world_that_starts_with_nan_never_moves(self):
        spoiled = self.run()
        np.testing.assert_array_equal(spoiled.info.status[3], Status.NONFINITE)
        np.testing.assert_array_equal(spoiled.state.t[3], 0.2)
        np.testing.assert_array_equal(spoiled.state.v[3], np.broadcast_to(start(2.0).v, (self.steps, 2)))

    def test_thinned_and_in_segments(self):
        every, thinned = self.run(), self.run(save_every=5, segment=1)
        assert_same_bits(thinned.state, jax.tree.map(lambda x: x[:, 4:], every.state))
        np.testing.assert_array_equal(thinned.info.status, every.info.status[:, 4:])
        # The violations before the failure are reported.
        np.testing.assert_array_equal(thinned.info.violation[2, 0], np.max(every.info.violation[2]))

    def test_single_world(self):
        single = jd.rollout(swing(), STABLE, start(-0.7), self.controls()[2], dt=DT)
        assert_close(single, world(self.run(), 2))

    def test_a_start_time_that_is_not_finite(self):
        at = jd.State(jnp.asarray(jnp.nan), start().q, start().v)
        np.testing.assert_array_equal(
            jd.rollout(swing(), EULER, at, dt=DT, steps=2).info.status, Status.NONFINITE
        )

    @pytest.mark.parametrize("method", [EULER, jd.RungeKutta.rk4()])
    def test_rows_that_are_not_finite(self, method):
        """A constant has no derivative, so that accelerations do not show the NaN."""
        system = Displaced(*(jnp.asarray(x) for x in (1.3, 1.0, 9.81, jnp.nan)))
        np.testing.assert_array_equal(
            jd.rollout(system, method, start(), dt=DT, steps=2).info.status, Status.NONFINITE
        )

    @pytest.mark.long
    def test_the_status_of_the_integrator_counts(self):
        # The tolerance of each world is a leaf: the second cannot meet its own.
        projection = jd.Projection(jd.PositionProjection(iterations=1, tolerance=jnp.array([1.0, 1e-12])))
        integrator = jd.Projected(EULER, projection)
        axes = (None, jd.tree.batch_axes(integrator, "projection.position.tolerance"), None, None)
        trajectory = jd.batch_rollout(swing(), integrator, start(), dt=DT, steps=3, in_axes=axes)
        np.testing.assert_array_equal(trajectory.info.status, [[0, 0, 0], [Status.NOT_CONVERGED] * 3])
        np.testing.assert_array_equal(trajectory.state.q[1], np.broadcast_to(start().q, (3, 2)))
        with pytest.raises(
            jd.SimulationError,
            match="NOT_CONVERGED at entry 0 of world 1; 1 of 2 worlds failed: an iteration",
        ):
            jd.raise_if_failed(trajectory)

    def test_raise_if_failed(self):
        jd.raise_if_failed(self.run(spoiled=False))
        with pytest.raises(
            jd.SimulationError,
            match="NONFINITE at entry 0 of world 3; 2 of 4 worlds failed: the step produced NaN",
        ):
            jd.raise_if_failed(self.run())

    @pytest.mark.long
    def test_gradients_stay_finite_and_those_of_the_good_worlds_right(self):
        def total(mass, worlds, states, controls):
            system = jd.tree.set_leaf(swing(), "mass", mass)
            trajectory = jd.batch_rollout(system, STABLE, states, controls, dt=DT, in_axes=(None, None, 0, 0))
            return jnp.sum(trajectory.state.q[:, :, 0] * worlds[:, None])

        compiled = jax.jit(jax.grad(total))

        def gradient(worlds, spoiled=True):
            return compiled(1.3, jnp.asarray(worlds), self.states(spoiled), self.controls(spoiled))

        good = [1.0, 1.0, 0.0, 0.0]
        np.testing.assert_allclose(gradient(good), gradient(good, spoiled=False), rtol=1e-12)

        # World 2 stands still after two steps, so that its last state counts four times; world 3 does not
        # depend on anything.
        def first_two(mass):
            system = jd.tree.set_leaf(swing(), "mass", mass)
            q = jd.rollout(system, STABLE, start(-0.7), self.controls()[2, :2], dt=DT).state.q
            return q[0, 0] + 4.0 * q[1, 0]

        frozen = gradient([0.0, 0.0, 1.0, 0.0])
        np.testing.assert_allclose(frozen, central(first_two, 1.3, 1e-5), rtol=1e-6)
        assert gradient([0.0, 0.0, 0.0, 1.0]) == 0.0


@contextlib.contextmanager
def counted_compilations():
    """Counts what XLA compiles."""
    events = []

    def listen(name, seconds, **_):
        if name.endswith("backend_compile_duration"):
            events.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


class TestRecompilation:
    @pytest.mark.long
    def test_no_leaf_compiles_anew(self):
        def run(mass=1.0, gain=2.0, tolerance=1e-5, angle=0.3, control=0.0, dt=0.01, steps=4):
            method = jd.SemiImplicitEuler(stabilization=jd.Baumgarte(gain, gain))
            integrator = jd.Projected(method, jd.Projection(jd.PositionProjection(tolerance=tolerance)))
            jd.rollout(Swing(mass, 1.0, 9.81), integrator, start(angle), Damper(control), dt=dt, steps=steps)

        def run_many(mass=1.0, angle=0.3, dt=0.01):
            jd.batch_rollout(Swing(mass, 1.0, 9.81), EULER, stack([start(angle), start(1.0)]), dt=dt, steps=4)

        run()
        run_many()
        with counted_compilations() as events:
            for change in (
                {"mass": 2.0},
                {"gain": 5.0},
                {"tolerance": 1e-3},
                {"angle": 1.0},
                {"control": 0.5},
                {"dt": 0.02},
            ):
                run(**change)
                assert not events, change
            for change in ({"mass": 2.0}, {"angle": 0.7}, {"dt": 0.02}):
                run_many(**change)
                assert not events, change
            # The count is part of the program; it also shows that compilations are counted.
            run(steps=5)
            assert len(events) == 1

    def test_a_plain_function_compiles_once(self):
        def law(t, at):
            return -at.v

        jd.rollout(swing(), EULER, start(), law, dt=DT, steps=3)
        with counted_compilations() as events:
            jd.rollout(swing(), EULER, start(1.0), law, dt=DT, steps=3)
        assert not events


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxdae as jd
from problems import Pendulum, state

assert len(jax.devices()) == 2
system = Pendulum(*(jnp.asarray(x, float) for x in (1.3, 1.0, 9.81)))
angles = np.linspace(-2.0, 2.0, 6)
states = jd.State(jnp.zeros(6), jnp.asarray(np.stack([np.sin(angles), -np.cos(angles)], axis=1)), jnp.zeros((6, 2)))
integrator = jd.SemiImplicitEuler()
spread = jd.batch_rollout(system, integrator, states, dt=0.01, steps=5)
assert len(spread.state.q.sharding.device_set) == 2, spread.state.q.sharding
# An odd number of worlds does not divide: a copy of the last one fills up.
odd = jd.batch_rollout(system, integrator, jax.tree.map(lambda x: x[:5], states), dt=0.01, steps=5)
assert odd.state.q.shape == (5, 5, 2) and len(odd.state.q.sharding.device_set) == 2, odd.state.q.sharding
for x, y in zip(jax.tree.leaves(spread), jax.tree.leaves(odd), strict=True):
    np.testing.assert_allclose(x[:5], y, rtol=1e-12, atol=1e-12)
print("the same")
"""


@pytest.mark.long
def test_two_devices():
    done = two_devices.run(DEVICES, flags=two_devices.FAST)
    assert done.stdout.strip() == "the same", done.stderr


TWO = stack([start(0.3), start(1.0)])
STACKED_MASS = jd.tree.set_leaf(swing(), "mass", jnp.ones(3))

MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no steps": ({"steps": None}, ValueError, "steps is required if controls are not an array"),
    "zero steps": ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
    "float steps": ({"steps": 2.0}, TypeError, "steps must be an integer, got 2.0"),
    "boolean steps": ({"steps": True}, TypeError, "steps must be an integer, got True"),
    "zero save_every": ({"save_every": 0}, ValueError, "save_every must be at least 1, got 0"),
    "save_every": ({"save_every": 3}, ValueError, "save_every = 3 must divide steps = 4"),
    "segment": (
        {"segment": 3},
        ValueError,
        "segment = 3 must divide steps = 4, and divide or be divided by save_every = 1",
    ),
    "segment and save_every": (
        {"steps": 12, "save_every": 4, "segment": 6},
        ValueError,
        "segment = 6 must divide steps = 12, and divide or be divided by save_every = 4",
    ),
    "negative segment": ({"segment": -1}, ValueError, "segment must be at least 1, got -1"),
    "zero dt": ({"dt": 0.0}, ValueError, "dt must be positive and finite, got 0.0"),
    "negative dt": ({"dt": -0.1}, ValueError, "dt must be positive and finite, got -0.1"),
    "nan dt": ({"dt": np.nan}, ValueError, "dt must be positive and finite, got nan"),
    "many dt": ({"dt": jnp.ones(2)}, ValueError, "dt must be a single number, got shape (2,)"),
    "dt as text": ({"dt": "0.1"}, TypeError, "dt must be a number, the step in s, got '0.1'"),
    "missing dt": ({"dt": None}, TypeError, "dt must be a number, the step in s, got None"),
    "controls and steps": (
        {"controls": jnp.zeros((3, 2))},
        ValueError,
        "steps is 4, but controls have 3 steps; omit steps or make them equal",
    ),
    "controls with one axis": (
        {"controls": jnp.zeros(4)},
        ValueError,
        "controls must have shape (steps, nu), got (4,)",
    ),
    "no controls": (
        {"controls": jnp.zeros((0, 2)), "steps": None},
        ValueError,
        "steps must be at least 1, got 0",
    ),
    "list of controls": (
        {"controls": [[0.0, 0.0]] * 4},
        TypeError,
        "controls must be an array (steps, nu), a feedback law with __call__(t, state), or None; got list",
    ),
    "Boolean controls": (
        {"controls": jnp.ones((4, 2), bool)},
        TypeError,
        "controls must contain real numbers, got bool",
    ),
    "complex controls": (
        {"controls": jnp.ones((4, 2), complex)},
        TypeError,
        "controls must contain real numbers, got complex",
    ),
    "a class as integrator": (
        {"integrator": jd.SemiImplicitEuler},
        TypeError,
        "integrator must have a method step",
    ),
    "a function as integrator": (
        {"integrator": jd.RungeKutta.rk4},
        TypeError,
        "call it: RungeKutta.rk4(), not RungeKutta.rk4",
    ),
    "a solver as integrator": (
        {"integrator": jd.DenseKKT()},
        TypeError,
        "integrator must have a method step",
    ),
}

SINGLE = {
    "many worlds": (
        {"state": TWO},
        ValueError,
        "state.q must have one axis, got shape (2, 2); for many worlds use batch_rollout",
    ),
    "another length": (
        {"system": oscillator(), "state": state([0.0, 0.0, 0.0])},
        ValueError,
        "for q of shape (3,) and v of shape (3,)",
    ),
    "v of another length": (
        {"state": jd.State(0.0, jnp.zeros(2), jnp.zeros(3))},
        ValueError,
        "for q of shape (2,) and v of shape (3,)",
    ),
    "initialize's pair": (
        {"state": (start(), None)},
        TypeError,
        "state must be a State(t, q, v), got tuple: initialize returns",
    ),
    "planar_mechanism's pair": (
        {"system": (swing(), None)},
        TypeError,
        "got tuple: planar_mechanism returns (mechanism, q)",
    ),
    "another precision": (
        {"state": cast(start(), jnp.float32)},
        TypeError,
        "returned float64, but the state is float32; use the same precision for the system and the state",
    ),
}

MANY = {
    "one world": (
        {"state": start()},
        ValueError,
        "state.q must have a leading world axis, shape (worlds, nq), got (2,); for equal starts, use",
    ),
    "nothing stacked": (
        {"state": start(), "in_axes": (None,) * 4},
        ValueError,
        "no leaf has a world axis; stack the start states",
    ),
    "no worlds": (
        {"state": jax.tree.map(lambda x: x[:0], TWO)},
        ValueError,
        "one positive number of worlds, got [0]",
    ),
    "two numbers of worlds": (
        {"system": STACKED_MASS, "in_axes": (jd.tree.batch_axes(STACKED_MASS, "mass"), None, 0, None)},
        ValueError,
        "the stacked leaves must have one positive number of worlds, got [2, 3]",
    ),
    "a leaf without world axis": (
        {"in_axes": (jd.tree.batch_axes(swing(), "mass"), None, 0, None)},
        ValueError,
        "in_axes names axis 0 of a leaf of shape (), which has no such axis",
    ),
    "too few axes": (
        {"in_axes": (None, None, 0)},
        ValueError,
        "in_axes must have four entries, for system, integrator, state and",
    ),
    "negative axis": (
        {"in_axes": (None, None, -1, None)},
        ValueError,
        "in_axes must hold axis numbers 0, 1, ... or None, got -1",
    ),
    "axis as text": (
        {"in_axes": (None, None, "0", None)},
        ValueError,
        "in_axes must hold axis numbers 0, 1, ... or None, got '0'",
    ),
    "axes of another object": (
        {"in_axes": (jd.tree.batch_axes(oscillator(), "mass"), None, 0, None)},
        ValueError,
        "in_axes must be a prefix of (system, integrator, state, controls), as in jax.vmap",
    ),
    "controls without worlds": (
        {"controls": jnp.zeros((2, 4)), "in_axes": (None, None, 0, 0)},
        ValueError,
        "controls must have shape (worlds, steps, nu), got (2, 4)",
    ),
    "controls with worlds, but no axis": (
        {"controls": jnp.zeros((2, 4, 2))},
        ValueError,
        "controls must have shape (steps, nu), got (2, 4, 2)",
    ),
    "stacked leaf without axis": (
        {"system": Oscillator(jnp.ones((3, 2)), 1.0), "state": stack([oscillating()] * 3)},
        ValueError,
        "system.mass_matrix(q) must return an array of shape (2, 2) for q of shape (2,) and v of shape "
        "(2,), got",
    ),
    "initialize's pair": (
        {"state": (TWO, None)},
        TypeError,
        "state must be a State(t, q, v), got tuple: initialize returns",
    ),
}


def provoke(function, defaults, changes, error, message):
    arguments = {
        "system": swing(),
        "integrator": EULER,
        "controls": None,
        "dt": DT,
        "steps": 4,
        **defaults,
        **changes,
    }
    positional = [arguments.pop(name) for name in ("system", "integrator", "state", "controls")]
    with without_typechecker(), jax.numpy_dtype_promotion("standard"), pytest.raises(error) as caught:
        function(*positional, **arguments)
    assert message in str(caught.value)


@all_cases(("changes", "error", "message"), {**MISTAKES, **SINGLE}.values(), ids={**MISTAKES, **SINGLE})
def test_mistakes_in_a_rollout(changes, error, message):
    provoke(jd.rollout, {"state": start()}, changes, error, message)


@all_cases(("changes", "error", "message"), {**MISTAKES, **MANY}.values(), ids={**MISTAKES, **MANY})
def test_mistakes_in_a_batch_rollout(changes, error, message):
    provoke(jd.batch_rollout, {"state": TWO}, changes, error, message)
