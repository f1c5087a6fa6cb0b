"""Motions that switch: when, with which impulse, at which energy, and with which derivatives.

Three mechanisms with closed forms. A *string* goes slack where its tension vanishes and jerks when its ball
returns to the circle. A *block* rocks on its two lower corners, of which the impact on one frees the other. A
*bead* meets rows that come and go by the clock, and all of its motion is quadratic in time. The two-link
walker is tested with its experiment, in `tests/app`.
"""

import functools
import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import Pendulum, cast, state
from small_systems import central, oscillating, oscillator, without_typechecker
from switching_problems import (
    ANGLE,
    FALL,
    GRAVITY,
    LENGTH,
    MASS,
    THROW,
    Bead,
    Block,
    N,
    String,
    T,
    flight,
    guided,
    impact,
    numbers,
)

import jaxdae as jd
import jaxdae.control as jc

RK4 = jd.Projected(jd.RungeKutta.rk4())
EXACT = jd.textbook.Taylor(jerk=False)  # for motions that are quadratic in time
started = jax.jit(lambda integrator, system, at: integrator.init(system, at))
one_step = jax.jit(lambda integrator, system, at, memory, dt: integrator.step(system, at, memory, None, dt))


# The string.


PULLS = jd.switching.Unilateral(jnp.array([-1.0]))


def string(on=True):
    return jd.Masked(String(*numbers(MASS, LENGTH, GRAVITY)), jnp.array([on]))


def thrown(speed):
    """Returns the start states of balls on the circle, with the given speeds along it."""
    c, s = np.cos(ANGLE), np.sin(ANGLE)
    speed = jnp.asarray(speed)
    return jd.State(
        jnp.zeros_like(speed),
        jnp.broadcast_to(LENGTH * jnp.array([s, -c]), (*speed.shape, 2)),
        speed[..., None] * jnp.array([c, s]),
    )


WORLDS, STEPS = 200, 200
SPEEDS = np.sqrt(
    np.linspace(3.1, 4.6, WORLDS) * GRAVITY * LENGTH - 2 * GRAVITY * LENGTH * (1 - np.cos(ANGLE))
)


def throw(events, dt, worlds=slice(None), on=True):
    return jd.batch_rollout(
        string(on), jd.switching.Switching(RK4, PULLS, events), thrown(SPEEDS[worlds]), dt=dt, steps=STEPS
    )


def energies(system, states):
    return np.asarray(jax.jit(jax.vmap(jax.vmap(lambda x: jd.energy(system, x))))(states))


def found(run):
    """Returns what `flight` does, from a trajectory, with the energies (world, entry), the start among them."""
    impulse, active, switched = (
        np.asarray(x)[..., 0] for x in (run.info.impulse, run.info.active, run.info.switched)
    )
    energy = np.concatenate(
        [(MASS * (SPEEDS**2 / 2 - GRAVITY * LENGTH * np.cos(ANGLE)))[:, None], energies(string(), run.state)],
        axis=1,
    )
    worlds, off, on = np.arange(len(active)), np.argmin(active, axis=1), np.argmax(impulse != 0.0, axis=1)
    numbers = {"slack": switched[worlds, off], "taut": switched[worlds, on], "impulse": impulse[worlds, on]}
    return {**numbers, "loss": energy[worlds, on] - energy[worlds, on + 1]}, energy


@pytest.fixture(scope="module")
def throws():
    """The same throws at steps of 10 and of 5 ms, with located switches and without."""
    runs = {(events, dt): throw(events, dt) for events, dt in itertools.product((1, 0), (0.01, 0.005))}
    for run in runs.values():
        jd.raise_if_failed(run)
    return runs


def mean_errors(run):
    exact, ours = flight(SPEEDS), found(run)[0]
    return {name: np.mean(np.abs(ours[name] - exact[name])) for name in exact}


class TestString:
    @pytest.mark.long
    def test_located_switches_are_of_fourth_order(self, throws):
        coarse, fine = (mean_errors(throws[1, dt]) for dt in (0.01, 0.005))
        # The worlds average over where in the step the switch falls. 2^4 = 16; the release itself is located
        # to second order.
        assert 3.5 < coarse["slack"] / fine["slack"] < 4.5
        for name in ("taut", "impulse", "loss"):
            assert 12.0 < coarse[name] / fine[name] < 20.0
        # (h omega)^4 / 24 with omega = v / L up to 6/s is 5e-7, of impulses up to 7 N s and energies up to 18
        # J.
        for name, bound in {"slack": 2e-5, "taut": 1e-7, "impulse": 2e-6, "loss": 5e-6}.items():
            assert fine[name] < bound

    @pytest.mark.long
    def test_switches_at_the_end_of_steps_are_of_first_order(self, throws):
        coarse, fine = (mean_errors(throws[0, dt]) for dt in (0.01, 0.005))
        # Late by half a step in the mean; the impulse grows by m g h / 2 or so, and by the curvature of the
        # path.
        for name, error in fine.items():
            assert 1.6 < coarse[name] / error < 2.5
        for name, bound in {"slack": 3e-3, "taut": 3e-3, "impulse": 0.06, "loss": 0.12}.items():
            assert bound / 10 < fine[name] < bound

    @pytest.mark.long
    def test_the_string_pulls_or_hangs(self, throws):
        run = throws[1, 0.005]
        system = string().system
        lam, active = np.asarray(run.info.lam)[:, 1:, 0], np.asarray(run.info.active)[..., 0]
        gap = np.asarray(jax.vmap(jax.vmap(lambda x: system.constraint(x.t, x.q)))(run.state))[..., 0]
        # The multipliers are those at the start of a step, where the rows of the entry before are on.
        np.testing.assert_array_equal(lam[~active[:, :-1]], 0.0)
        assert np.all(lam[active[:, :-1]] <= 0.0)
        np.testing.assert_allclose(gap[active], 0.0, rtol=0, atol=1e-15)
        # A string that has just gone slack is short by less than round-off: the third derivative of the gap
        # is the first to move.
        assert np.max(gap[~active]) < 1e-15
        # Between the switches of a flight the ball is free.
        flying = ~active[:, 1:] & ~active[:, :-1]
        change = np.diff(np.asarray(run.state.v), axis=1)[flying]
        np.testing.assert_allclose(change[:, 0], 0.0, rtol=0, atol=1e-14)
        np.testing.assert_allclose(change[:, 1], -GRAVITY * 0.005, rtol=0, atol=1e-13)

    @pytest.mark.long
    def test_energy_is_never_gained(self, throws):
        energy = found(throws[1, 0.005])[1]
        # Up to the error of RK4 in a step: (h omega)^5 / 120 = 2e-10 of some 20 J.
        assert np.max(np.diff(energy, axis=1)) < 1e-8
        assert np.all(energy[:, -1] < energy[:, 0] - 1.0)

    def test_every_world_at_its_own_time(self, throws):
        ours, _ = found(throws[1, 0.005])
        assert len(np.unique(np.round(ours["taut"], 6))) > WORLDS / 2

    def test_nothing_compiles_for_other_rows(self, throws):
        from test_trajectory import counted_compilations

        with counted_compilations() as events:
            loose = throw(1, 0.01, on=False)
        assert not events
        # The ball flies outward, so that the string is taut at once. The gap has a double zero there, found
        # to some 1e-5 of the step; until then the ball gets a radial velocity of v^2 / L = 30 m/s^2 times
        # 1e-7 s, which the string takes.
        np.testing.assert_array_equal(np.asarray(loose.info.active)[:, 0], True)
        np.testing.assert_allclose(loose.info.impulse[:, 0], 0.0, rtol=0, atol=3e-5)
        np.testing.assert_allclose(loose.state.q, throws[1, 0.01].state.q, rtol=0, atol=1e-6)

    def test_a_broken_world_leaves_the_others_alone(self, throws):
        start = thrown(SPEEDS)
        spoiled = jd.State(start.t, start.q, start.v.at[7, 0].set(jnp.nan))
        run = jd.batch_rollout(string(), jd.switching.Switching(RK4, PULLS, 1), spoiled, dt=0.01, steps=STEPS)
        others = np.arange(WORLDS) != 7
        np.testing.assert_array_equal(run.info.status[7], jd.Status.NONFINITE)
        for x, y in zip(jax.tree.leaves(run), jax.tree.leaves(throws[1, 0.01]), strict=True):
            np.testing.assert_array_equal(x[others], y[others])

    @pytest.mark.long
    @pytest.mark.parametrize("dtype", [pytest.param(jnp.float64, marks=pytest.mark.long), jnp.float32])
    def test_a_string_that_jerks_and_is_slack_again(self, dtype):
        """At the top gravity pulls the ball inward by more than it needs at this speed: the impulse stays,
        the row does not.
        """
        integrator = jd.switching.Switching(EXACT, PULLS)
        system, at = cast((string(False), state([0.0, LENGTH - 1e-3], [0.3, 0.5])), dtype)
        new, memory, info = one_step(integrator, system, at, started(integrator, system, at), 0.01)
        assert {x.dtype for x in jax.tree.leaves((new, memory, info))} == {
            np.dtype(x) for x in (dtype, "int32", "bool")
        }
        impulse, instant = impact(np.concatenate([at.q, at.v]).astype(float))
        assert not memory.active[0]
        # The gap is a quartic in time, of which Hermite's cubic misses g^2 h^4 / (8 L) / 16 = 1e-8 m, or 2e-8
        # s at 0.5 m/s. In single precision the gap, a difference of squares near 1, is known to 6e-8 m at
        # both ends.
        single = dtype is jnp.float32
        np.testing.assert_allclose(info.switched[0], instant, rtol=0.0, atol=4e-7 if single else 2e-8)
        np.testing.assert_allclose(info.impulse[0], impulse, rtol=0.0, atol=6e-6 if single else 3e-7)
        # Inward by gravity from there on, and along the circle as before.
        np.testing.assert_allclose(new.v[1], -GRAVITY * (0.01 - instant), rtol=0, atol=1e-3)
        np.testing.assert_allclose(new.v[0], 0.3, rtol=0, atol=1e-3)
        assert jd.energy(system, new) < jd.energy(system, at) - 0.1


@pytest.mark.long
def test_derivatives_across_a_jerk():
    """The impulse and its instant, and position and velocity behind it, as functions of the start of the
    ball's flight.
    """
    start, direction = np.array([0.3, -0.72, 1.1, -2.3]), np.array([0.5, -0.4, 0.7, 0.2])
    weights = np.array([0.3, -0.8, 1.2, 0.5, -0.6, 0.9])

    def ours(z, events=1):
        integrator, at = jd.switching.Switching(EXACT, PULLS, events), jd.State(jnp.zeros(()), z[:2], z[2:])
        new, _, info = integrator.step(string(False), at, integrator.init(string(False), at), None, 0.02)
        return jnp.concatenate([info.impulse, info.switched, new.q, new.v])

    def weighted(z):
        value = ours(z)
        return jnp.sum(weights * value), value

    @jax.jit
    def both(z):
        return *jax.value_and_grad(weighted, has_aux=True)(z), jax.jvp(ours, (z,), (direction,))[1]

    (_, value), reverse, forward = both(start)
    # Hermite's cubic misses g^2 h^4 / (8 L) / 16 = 1.5e-7 m, or 6e-8 s; the impulse changes by some 10 N s in
    # a second.
    np.testing.assert_allclose(value[:2], impact(start), rtol=0.0, atol=1e-6)
    np.testing.assert_allclose(reverse @ direction, weights @ forward, rtol=1e-11)
    difference = central(lambda s: both(start + s * direction)[0][1], 0.0)
    np.testing.assert_allclose(forward, difference, rtol=1e-7, atol=1e-8)
    for k, unit in enumerate(np.eye(4)):
        difference = central(lambda s, unit=unit: both(start + s * unit)[0][0], 0.0)
        np.testing.assert_allclose(reverse[k], difference, rtol=1e-7, atol=1e-8)
    # The derivative of Hermite's error: it is 1.5e-7 m for a zero in the middle of the step and nothing at
    # its ends.
    true = central(lambda s: impact(start + s * direction), 0.0)
    np.testing.assert_allclose(forward[:2], true, rtol=0.0, atol=5e-5)

    # At the end of the step the impulse has the derivative of one at a given time.
    _, on_grid = jax.jit(lambda z: jax.jvp(lambda x: ours(x, 0), (z,), (direction,)))(start)
    assert on_grid[1] == 0.0
    assert abs(on_grid[0] - forward[0]) > 0.1


@pytest.mark.exhaustive
def test_a_row_that_comes_on_at_the_start_of_a_step():
    """Hanging at rest with the string off: the part of the step up to the switch has no length, by which
    backward Euler divides.
    """
    system = jd.Masked(String(*numbers(1.0, 1.0, 9.81)), jnp.array([False]))

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def after(speed):
        at = jd.State(jnp.zeros(()), jnp.array([0.0, -1.0]), jnp.stack([speed, jnp.zeros(())]))
        integrator = jd.switching.Switching(jd.BackwardEuler(), PULLS)
        new, memory, info = integrator.step(system, at, integrator.init(system, at), None, 0.01)
        return new.q[0], (new.q, memory.active, info.status)

    (_, (q, active, status)), slope = after(0.0)
    assert status == jd.Status.OK
    np.testing.assert_array_equal(active, True)
    np.testing.assert_allclose(q, [0.0, -1.0], rtol=0, atol=1e-14)
    # Backward Euler of a pendulum of length 1: v (1 + h^2 g) = v0, x = h v.
    np.testing.assert_allclose(slope, 0.01 / (1.0 + 0.01**2 * 9.81), rtol=1e-9)


# The block.


A, B = 0.2, 0.6
PUSHES = jd.switching.Unilateral(jnp.array([1.0, 1.0, 0.0, 0.0]), follows=(0, 1, 0, 1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("law", "events"),
    [
        (jd.switching.Unilateral(jnp.array([-1.0])), 1),
        pytest.param(jd.switching.Unilateral(jnp.array([-1.0])), 0, marks=pytest.mark.exhaustive),
    ],
)
def test_a_string_that_is_too_long_from_the_start_is_not_pulled_in(law, events):
    """30 % too long and off, it would come on in the first step and jump back by 0.3 m."""
    masked = jd.Masked(Pendulum(*(jnp.asarray(x) for x in (1.0, 1.0, 9.81))), jnp.array([False]))
    start = jd.State(jnp.zeros(()), jnp.array([0.0, -1.3]), jnp.array([0.0, -0.1]))
    found = jd.rollout(
        masked,
        jd.switching.Switching(jd.Projected(jd.RungeKutta.rk4()), law, events),
        start,
        dt=0.01,
        steps=2,
    )
    np.testing.assert_array_equal(found.info.status, jd.Status.INCONSISTENT_START)


@pytest.mark.long
def test_a_block_that_rocks_over():
    """Housner's block: the impact on a corner frees the other one and leaves 1 - (3/2) sin^2(alpha) of the
    rate, tan(alpha) = a / b.

    The angular momentum about the corner that strikes is kept; about a corner the moment of inertia is 4 R^2
    / 3 for unit mass. With both corners on the floor the other one would be pulled, and the law refuses that.
    The instant is the start of the step.
    """
    rate, alpha, reach = 0.4, np.arctan2(A, B), np.hypot(A, B)
    kept = 1.0 - 1.5 * np.sin(alpha) ** 2
    # Upright, turning counterclockwise about its right corner, so that the left one comes down.
    at = state([0.0, B, 0.0], [-B * rate, -A * rate, rate])
    system = jd.Masked(Block(*numbers(A, B, GRAVITY)), jnp.array([False, True, False, True]))
    # Both corners on the floor make one row too many: the solver must allow that.
    integrator = jd.switching.Switching(
        jd.Projected(jd.RungeKutta.midpoint(solver=jd.LeastSquares())), PUSHES
    )
    new, memory, info = one_step(integrator, system, at, started(integrator, system, at), 1e-3)
    np.testing.assert_array_equal(memory.active, [True, False, True, False])
    np.testing.assert_array_equal(info.switched, 0.0)
    # From turning about one corner to turning about the other: upward and along the floor.
    np.testing.assert_allclose(
        info.impulse, [A * (1 + kept) * rate, 0.0, B * (1 - kept) * rate, 0.0], rtol=1e-13
    )
    energy = (4 * reach**2 / 3) * (kept * rate) ** 2 / 2 + GRAVITY * B
    # The midpoint rule, (h omega)^3.
    np.testing.assert_allclose(jd.energy(system, new), energy, rtol=1e-9)
    heights = system.system.constraint(new.t, new.q)
    np.testing.assert_allclose(heights[0], 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(heights[1], 2 * A * kept * rate * 1e-3, rtol=0.02)
    # The weight turns it back: angular acceleration -g a about the corner.
    np.testing.assert_allclose(new.v[2], kept * rate - GRAVITY * A / (4 * reach**2 / 3) * 1e-3, rtol=1e-5)


# The bead.


def bead(rows=1):
    directions = jnp.asarray(np.stack([N, T])[:rows])
    return jd.Masked(Bead(directions, jnp.asarray(FALL)), jnp.zeros(rows, bool))


class TestSchedule:
    @pytest.mark.exhaustive
    def test_by_the_clock_to_round_off_and_its_derivative(self):
        """Every piece is quadratic, and times are located exactly; at the ends of steps the rest has no
        length, but a derivative.
        """
        weights = np.array([0.7, -1.3, 0.4, 1.1, 0.9])

        def last(times):
            integrator = jd.switching.Switching(EXACT, jd.switching.Scheduled(times[0], times[1]))
            run = jd.rollout(bead(), integrator, state([0.0, 0.0], THROW), dt=0.1, steps=5)
            ends = jnp.concatenate([run.state.q[-1], run.state.v[-1], run.info.impulse[-1]])
            return jnp.sum(weights * ends), (ends, run.info.active, run.info.switched)

        with_slopes = jax.jit(jax.value_and_grad(last, has_aux=True))
        for times in (np.array([0.1234, 0.3771]), np.array([0.2, 0.4])):
            (_, (ends, active, switched)), slopes = with_slopes(times)
            np.testing.assert_allclose(ends, guided(*times, 0.5), rtol=1e-12, atol=1e-13)
            np.testing.assert_array_equal(active[:, 0], [False, True, True, False, False])
            np.testing.assert_allclose(switched[:, 0], [0.0, *times[[0, 0, 1, 1]]], rtol=1e-13)
            for slope, unit in zip(slopes, np.eye(2), strict=True):
                difference = central(
                    lambda s, unit=unit, times=times: weights @ guided(*(times + s * unit), 0.5), 0.0
                )
                np.testing.assert_allclose(slope, difference, rtol=1e-7)

    @pytest.mark.parametrize("events", [0, 1, 2])
    def test_two_switches_in_one_step(self, events):
        """Rows along N at 0.03 and along T at 0.08, which stops the bead, in a step of 0.1 s."""
        law = jd.switching.Scheduled(jnp.array([0.03, 0.08]), jnp.inf)
        integrator = jd.switching.Switching(EXACT, law, events)
        at = state([0.0, 0.0], THROW)
        first, memory, info = one_step(integrator, bead(2), at, started(integrator, bead(2), at), 0.1)
        slides = THROW + 0.03 * FALL
        slides, pull = T * (T @ slides), T * (T @ FALL)
        if events == 0:
            np.testing.assert_allclose(first.q, THROW * 0.1 + FALL * 0.1**2 / 2, rtol=1e-13)
            np.testing.assert_array_equal(memory.active, True)
        if events == 1:
            # The second row waits for the next step.
            np.testing.assert_allclose(first.v, slides + 0.07 * pull, rtol=1e-13)
            np.testing.assert_array_equal(memory.active, [True, False])
            first, memory, info = one_step(integrator, bead(2), first, memory, 0.1)
            np.testing.assert_allclose(info.switched, [0.03, 0.1], rtol=1e-13)
        if events == 2:
            start = THROW * 0.03 + FALL * 0.03**2 / 2
            np.testing.assert_allclose(first.q, start + slides * 0.05 + pull * 0.05**2 / 2, rtol=1e-13)
            np.testing.assert_allclose(info.switched, [0.03, 0.08], rtol=1e-13)
            np.testing.assert_allclose(
                info.impulse, [-2 * N @ (THROW + 0.03 * FALL), -2 * T @ (slides + 0.05 * pull)], rtol=1e-13
            )
        np.testing.assert_allclose(first.v, 0.0, rtol=0, atol=1e-14)


@jd.tree.pytree
class Floor:
    """A law of one's own, without further methods: the row is on while the bead is below a height."""

    height: Any

    def __call__(self, system, state, lam, active):
        return (state.q[1] < self.height)[None]


@pytest.mark.long
def test_a_law_of_ones_own_switches_at_the_end_of_steps():
    starts = jax.tree.map(lambda x: jnp.stack([x] * 2), state([0.0, 0.0], THROW))
    law = Floor(jnp.array([-0.3, -jnp.inf]))
    integrator = jd.switching.Switching(EXACT, law)
    axes = (None, jd.tree.batch_axes(integrator, "law.height"), 0, None)
    run = jd.batch_rollout(bead(), integrator, starts, dt=0.05, steps=20, in_axes=axes)
    y, along, active = (
        np.asarray(run.state.q)[0, :, 1],
        np.asarray(run.state.v)[0] @ N,
        np.asarray(run.info.active)[..., 0],
    )
    np.testing.assert_array_equal(active[0], y < -0.3)
    assert 2 < np.sum(~active[0]) < 18
    np.testing.assert_allclose(along[active[0]], 0.0, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(active[1], False)
    np.testing.assert_allclose(run.state.q[1, -1], THROW + FALL / 2, rtol=1e-12)


@jd.tree.pytree
class Answer:
    """A law with a fixed answer."""

    rows: Any

    def __call__(self, system, state, lam, active):
        return self.rows


HELD = jc.HeldInputs(jnp.zeros(1), jnp.zeros((1, 1)))


@pytest.mark.long
@all_cases(
    ("system", "integrator", "error", "message"),
    [
        (
            oscillator(),
            jd.switching.Switching(RK4, PULLS),
            TypeError,
            "Switching needs a Masked system, got Oscillator; write Masked(system, active)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, PULLS, -1),
            ValueError,
            "Switching.events must not be negative, got -1",
        ),
        *(
            (
                string(),
                wrapped,
                TypeError,
                "integrator must not switch rows; write Switching(..., law) around projections",
            )
            for inside in (
                jd.switching.Switching(RK4, PULLS),
                jc.Sampled(jd.switching.Switching(RK4, PULLS), HELD),
            )
            for wrapped in (
                jd.Projected(inside),
                jd.textbook.Sequential(inside),
                jd.textbook.ProjectedStep(inside),
            )
        ),
        (
            string(),
            jd.switching.Switching(jd.Projected(jc.Sampled(RK4, HELD)), PULLS),
            TypeError,
            "integrator must not contain Sampled; write Sampled(Switching(integrator, law), feedback)",
        ),
        (
            jd.Masked(string().system, jnp.ones(2)),
            jd.switching.Switching(RK4, PULLS),
            ValueError,
            "Masked.active must have one entry per constraint row, shape (1,), got shape (2,)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, jd.switching.Unilateral(jnp.ones(2))),
            ValueError,
            "Unilateral.direction must have one entry per constraint row, shape (1,), got (2,)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, jd.switching.Unilateral(jnp.ones(1), (0, 0))),
            ValueError,
            "Unilateral.follows must name a row for each of the 1 rows, got (0, 0)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, jd.switching.Unilateral(jnp.ones(1), (1,))),
            ValueError,
            "Unilateral.follows must name a row for each of the 1 rows, got (1,)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, Answer(jnp.ones(2, bool))),
            ValueError,
            "the law must return one boolean per constraint row, shape (1,), got bool of shape (2,)",
        ),
        (
            string(),
            jd.switching.Switching(RK4, Answer(jnp.ones(1))),
            ValueError,
            "the law must return one boolean per constraint row, shape (1,), got float64 of shape (1,)",
        ),
    ],
)
def test_mistakes(system, integrator, error, message):
    with without_typechecker(), pytest.raises(error, match=re.escape(message)):
        jd.rollout(system, integrator, oscillating(), dt=0.1, steps=1)
