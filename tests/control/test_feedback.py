"""PD, PID, sums, limits and sampling of feedback laws, on a pendulum with a motor; in batches and under
derivatives.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import Oscillator, central, without_typechecker

import jaxdae as jd
from jaxdae import control as jc

INTEGRATOR = jd.Projected(jd.SemiImplicitEuler(), jd.Projection(jd.textbook.LinearPositionProjection()))
DT = 0.01


@jd.tree.pytree
class MotorPendulum(jd.System):
    """A point mass on a massless rod of length 1 with a torque u about the origin, written in x and y."""

    mass: Any
    n_inputs: int = jd.tree.static(default=1)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        # Half of the torque comes as a force that the rod carries in part: B has a column along the rod, too.
        push = u[0] * (jnp.stack([-q[1], q[0]]) + 0.5 * q) / (q @ q)
        return push + jnp.stack([jnp.zeros_like(self.mass), -9.81 * self.mass])

    def constraint(self, t, q):
        return 0.5 * jnp.stack([q @ q - 1.0])


@jd.tree.pytree
class Angle:
    """The angle of the rod, counted from the x axis."""

    def __call__(self, q):
        return jnp.stack([jnp.arctan2(q[1], q[0])])


@jd.tree.pytree
class Ramp:
    """A target that moves at constant acceleration."""

    start: Any
    speed: Any
    acceleration: Any

    def __call__(self, t):
        return jnp.stack([self.start + self.speed * t + 0.5 * self.acceleration * t**2])


PENDULUM = MotorPendulum(jnp.array(2.0))
TARGET = -0.4
HANGING = jd.State(jnp.zeros(()), jnp.array([0.0, -1.0]), jnp.zeros(2))
PD = jc.PD(model=PENDULUM, output=Angle(), reference=TARGET, kp=80.0, kd=20.0)
PID = jc.PID(model=PENDULUM, output=Angle(), reference=TARGET, kp=80.0, ki=100.0, kd=20.0)
WEIGHT = jc.GravityCompensation(PENDULUM)


def angle_of(state):
    return jnp.arctan2(state.q[..., 1], state.q[..., 0])


def run(law, steps=600, start=HANGING, integrator=INTEGRATOR):
    """Returns the trajectory under a law that is evaluated once a step."""
    trajectory = jd.rollout(PENDULUM, jc.Sampled(integrator, law), start, dt=DT, steps=steps)
    jd.raise_if_failed(trajectory)
    return trajectory


# The laws themselves.


def test_pd_is_its_formula():
    t = jnp.asarray(0.7)
    at = jd.State(t, jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6]) * 1.5)  # turning at 1.5 rad/s
    law = jc.PD(model=PENDULUM, output=Angle(), reference=Ramp(0.1, 0.2, 0.3), kp=4.0, kd=jnp.array([2.0]))
    error = 0.1 + 0.2 * 0.7 + 0.15 * 0.7**2 - np.arctan2(-0.8, 0.6)
    rate = 0.2 + 0.3 * 0.7 - 1.5
    np.testing.assert_allclose(law(t, at), [4.0 * error + 2.0 * rate], rtol=1e-14)
    two_motors = jc.PD(
        model=PENDULUM, output=Angle(), reference=Ramp(0.1, 0.2, 0.3), kp=jnp.array([[4.0], [1.0]])
    )
    np.testing.assert_allclose(two_motors(t, at), [4.0 * error, error], rtol=1e-14)


def test_weight_is_the_torque_of_the_rod():
    """u = m g x: not a trace of the part of the input that the rod carries."""
    for angle in (-1.5, 0.0, 0.4):
        at = jd.State(jnp.zeros(()), jnp.array([np.cos(angle), np.sin(angle)]), jnp.array([3.0, -2.0]))
        np.testing.assert_allclose(WEIGHT(at.t, at), [2.0 * 9.81 * np.cos(angle)], rtol=0, atol=1e-13)


@pytest.mark.long
def test_pd_stops_short_and_both_remedies_reach_the_target():
    """PD ends where kp e = m g cos(angle); with compensation, or with an integral, the error vanishes."""
    short = run(PD).state
    end = angle_of(short)[-1]
    np.testing.assert_allclose(80.0 * (TARGET - end), 2.0 * 9.81 * np.cos(end), rtol=1e-5)
    compensated = run(jc.Sum((PD, WEIGHT))).state
    integrating = run(PID).state
    for reached in (compensated, integrating):
        np.testing.assert_allclose(angle_of(reached)[-1], TARGET, rtol=0, atol=1e-4)


@pytest.mark.exhaustive
def test_feedforward_of_a_pid_is_a_sum_without_limits():
    with_feedforward = run(jc.PID(**{**vars(PID), "feedforward": WEIGHT}), steps=20)
    summed = run(jc.Sum((PID, WEIGHT)), steps=20)
    np.testing.assert_allclose(with_feedforward.state.q, summed.state.q, rtol=0, atol=1e-14)


# Memory.


def memory_after(law, errors):
    """Returns inputs and integrals of a law over given errors, with dt = 0.1; the reference is zero."""
    memory = law.init(PENDULUM, HANGING)
    inputs, integrals = [], []
    for error in errors:
        at = jd.State(jnp.zeros(()), jnp.array([np.cos(-error), np.sin(-error)]), jnp.zeros(2))
        u, memory = law.update(at.t, at, memory, 0.1)
        inputs.append(float(u[0]))
        integrals.append(float(memory[0]))
    return inputs, integrals


def test_the_integral_stands_still_at_the_limit_and_comes_back():
    law = jc.PID(
        model=PENDULUM,
        output=Angle(),
        reference=0.0,
        kp=1.0,
        ki=10.0,
        lower=-1.5,
        upper=2.0,
        integral=jnp.array([0.5]),
    )
    inputs, integrals = memory_after(law, [1.0, 1.0, 1.0, -0.5, -1.5, -1.5])
    # 1.5 | 2.5 limited: no integration | likewise | 1.0: down | -0.5: down | -2.0 limited: no integration
    np.testing.assert_allclose(integrals, [1.5, 1.5, 1.5, 1.0, -0.5, -0.5], rtol=0, atol=1e-14)
    np.testing.assert_allclose(inputs, [1.5, 2.0, 2.0, 1.0, -0.5, -1.5], rtol=0, atol=1e-14)


@pytest.mark.long
def test_limits_that_do_not_hold_stop_no_integral():
    """Compiled as well, where what is wanted is computed twice and may differ from what was clipped by
    rounding: here it did.
    """
    system = Oscillator(mass=jnp.array([2.0]), stiffness=jnp.asarray(0.5))
    numbers = {
        "model": system,
        "output": jc.Coordinates((0,)),
        "reference": 0.3,
        "kp": 3.0,
        "ki": 2.0,
        "kd": 1.0,
        "integral": 0.3,
    }
    start = jd.State(jnp.asarray(1.7), jnp.array([1.0]), jnp.zeros(1))
    wide, free = (
        jd.rollout(
            system,
            jc.Sampled(jd.RungeKutta.dormand_prince5(), jc.PID(**numbers, **limits)),
            start,
            dt=0.05,
            steps=60,
        ).state.q
        for limits in ({"lower": -1e6, "upper": 1e6}, {})
    )
    np.testing.assert_allclose(wide, free, rtol=1e-12)


@pytest.mark.exhaustive
def test_clamping_avoids_the_overshoot_of_windup():
    """From hanging to -0.4 rad with a motor that can just do it: a clipped PID winds up, one with limits of
    its own does not.
    """
    limits = {"lower": -25.0, "upper": 25.0}
    wound = angle_of(run(jc.Saturated(PID, **limits)).state)
    clamped = angle_of(run(jc.PID(**{**vars(PID), **limits})).state)
    assert float(jnp.max(wound)) - TARGET > 2.0 * (float(jnp.max(clamped)) - TARGET) > 0.0


@pytest.mark.long
def test_sampling_is_a_held_input():
    """Sampled gives the same motion as its inputs given as an array; `every` holds them over several steps."""
    every = 3
    law = jc.Saturated(jc.Sum((PID, WEIGHT)), -30.0, 30.0)
    sampled = jd.rollout(PENDULUM, jc.Sampled(INTEGRATOR, law, every=every), HANGING, dt=DT, steps=12)
    memory, at, inputs = law.init(PENDULUM, HANGING), HANGING, []
    for k in range(0, 12, every):
        u, memory = law.update(at.t, at, memory, every * DT)
        inputs += [u] * every
        at = jax.tree.map(lambda x, k=k: x[k + every - 1], sampled.state)
    by_array = jd.rollout(PENDULUM, INTEGRATOR, HANGING, jnp.stack(inputs), dt=DT)
    np.testing.assert_allclose(sampled.state.q, by_array.state.q, rtol=0, atol=1e-14)


@pytest.mark.exhaustive
def test_controls_are_added_to_the_law():
    zeros = jnp.full((3, 1), 5.0)
    with_array = jd.rollout(PENDULUM, jc.Sampled(INTEGRATOR, PD), HANGING, zeros, dt=DT)
    with_law = jd.rollout(
        PENDULUM, jc.Sampled(INTEGRATOR, PD), HANGING, lambda t, state: jnp.array([5.0]), dt=DT, steps=3
    )
    alone = jd.rollout(PENDULUM, jc.Sampled(INTEGRATOR, PD), HANGING, dt=DT, steps=3)
    np.testing.assert_allclose(with_array.state.q, with_law.state.q, rtol=0, atol=1e-15)
    # 5 N m on 2 kg m^2 over one step of the semi-implicit method.
    np.testing.assert_allclose(
        angle_of(with_array.state)[0] - angle_of(alone.state)[0], 2.5 * DT**2, rtol=1e-3
    )


@pytest.mark.exhaustive
def test_worlds_have_memories_of_their_own():
    angles = jnp.array([-1.5, -0.9, 0.3])
    starts = jd.State(0.0, jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1), jnp.zeros((3, 2)))
    gains = jnp.array([20.0, 100.0, 150.0])
    integrator = jd.tree.set_leaf(jc.Sampled(INTEGRATOR, PID), "law.ki", gains)
    axes = (None, jd.tree.batch_axes(integrator, "law.ki"), 0, None)
    many = jd.batch_rollout(PENDULUM, integrator, starts, dt=DT, steps=40, save_every=40, in_axes=axes)
    for k in range(3):
        start = jd.State(jnp.zeros(()), starts.q[k], starts.v[k])
        law = jd.tree.set_leaf(PID, "ki", gains[k])
        one = jd.rollout(PENDULUM, jc.Sampled(INTEGRATOR, law), start, dt=DT, steps=40, save_every=40)
        np.testing.assert_allclose(many.state.q[k], one.state.q, rtol=0, atol=1e-13)


@pytest.mark.long
def test_a_world_without_a_finite_input_freezes():
    starts = jd.State(0.0, jnp.array([[0.0, -1.0], [1.0, 0.0]]), jnp.zeros((2, 2)))
    integrator = jd.tree.set_leaf(jc.Sampled(INTEGRATOR, PID), "law.ki", jnp.array([jnp.nan, 100.0]))
    axes = (None, jd.tree.batch_axes(integrator, "law.ki"), 0, None)
    many = jd.batch_rollout(PENDULUM, integrator, starts, dt=DT, steps=40, save_every=40, in_axes=axes)
    assert list(np.asarray(many.info.status[:, -1])) == [jd.Status.NONFINITE, jd.Status.OK]
    assert np.all(np.isfinite(many.state.q))


# Derivatives.


@pytest.mark.long
def test_gains_are_differentiated_through_the_memory():
    def end(values):
        law = jc.PID(
            **{
                **vars(PID),
                "kp": values[0],
                "ki": values[1],
                "kd": values[2],
                "integral": values[3],
                "feedforward": WEIGHT,
            }
        )
        trajectory = jd.rollout(
            PENDULUM, jc.Sampled(INTEGRATOR, law), HANGING, dt=DT, steps=30, save_every=30
        )
        return angle_of(trajectory.state)[-1]

    values = jnp.array([80.0, 100.0, 20.0, 0.3])
    both, direction = jax.jit(jax.value_and_grad(end)), jnp.array([0.7, -1.3, 0.4, 1.1])
    reverse, forward = both(values)[1], jax.jit(lambda x: jax.jvp(end, (x,), (direction,))[1])(values)
    np.testing.assert_allclose(forward, reverse @ direction, rtol=1e-11)
    differences = [central(lambda s, k=k: both(values.at[k].set(s))[0], values[k], 1e-4) for k in range(4)]
    np.testing.assert_allclose(reverse, differences, rtol=0, atol=1e-7 * np.abs(differences).max())
    assert np.all(np.abs(reverse) > 1e-6)


def test_a_limit_passes_on_one_derivative_or_the_other():
    law = jc.Saturated(PD, jnp.array([-10.0]), jnp.array([10.0]))
    gradient = jax.grad(lambda law: law(HANGING.t, HANGING)[0])(law)  # far beyond the upper limit
    assert float(gradient.upper[0]) == 1.0
    assert float(gradient.law.kp) == 0.0
    wide = jd.tree.set_leaf(law, "upper", jnp.array([1e3]))
    gradient = jax.grad(lambda law: law(HANGING.t, HANGING)[0])(wide)
    assert float(gradient.upper[0]) == 0.0
    np.testing.assert_allclose(gradient.law.kp, TARGET + np.pi / 2, rtol=1e-14)


# Messages.


def pd(**changes):
    return jc.PD(**{"model": PENDULUM, "output": Angle(), "reference": 0.0, "kp": 1.0, **changes})


def test_a_law_with_memory_cannot_be_a_control():
    for law in (PID, jc.Sum((PD, PID)), jc.Saturated(PID, -1.0, 1.0)):
        with pytest.raises(TypeError, match=r"PID has memory.*Sampled\(integrator, law\)"):
            jd.rollout(PENDULUM, INTEGRATOR, HANGING, law, dt=DT, steps=2)


@all_cases(
    ("law", "message"),
    [
        (pd(reference=jnp.zeros(2)), r"reference must have the shape of the output \(1,\)"),
        (
            jc.PD(model=PENDULUM, output=Angle(), reference=0.0, kp=jnp.ones(2)),
            r"kp must be a number, or of shape \(1,\) or \(nu, 1\), got \(2,\)",
        ),
        (
            jc.PD(model=PENDULUM, output=lambda q: q[0], reference=0.0, kp=1.0),
            r"output\(q\) must return a vector, got shape \(\)",
        ),
        (
            jc.Saturated(PD, jnp.zeros(2), 1.0),
            r"lower must be a number or have the shape of the input \(1,\), got \(2,\)",
        ),
        (
            jc.Saturated(PD, None, jnp.ones(3)),
            r"upper must be a number or have the shape of the input \(1,\), got \(3,\)",
        ),
        (jc.Sum(()), "Sum.laws must hold at least one law"),
        (
            jc.Sum((PD, pd(kp=jnp.ones((2, 1))))),
            r"inputs of one shape, got \[\(1,\), \(2,\)\]",
        ),
    ],
)
def test_messages_about_values(law, message):
    with without_typechecker(), pytest.raises(ValueError, match=message):
        law(HANGING.t, HANGING)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (3, r"output must be a pytree with __call__\(q\).*got int"),
        (lambda q: [q[0]], r"output\(q\) must return an array, got list; use jnp.stack"),
    ],
)
def test_messages_about_types(output, message):
    with without_typechecker(), pytest.raises(TypeError, match=message):
        pd(output=output)(HANGING.t, HANGING)


def test_messages_of_pid_and_sampled():
    with pytest.raises(
        ValueError, match=r"PID\.integral must be a number or have the shape of the input \(1,\), got \(2,\)"
    ):
        jd.tree.set_leaf(PID, "integral", jnp.zeros(2)).init(PENDULUM, HANGING)
    with pytest.raises(ValueError, match=r"Sampled\.every must be at least 1, got 0"):
        jc.Sampled(INTEGRATOR, PD, every=0).init(PENDULUM, HANGING)
