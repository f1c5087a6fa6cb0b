"""Fitted orders of the methods that keep the constraints by themselves, of compositions, and of Munthe-Kaas methods.

As in `test_accuracy_orders`: the slope of log(error) over log(h) at a fixed time, all runs of a case in one compiled program. Four
problems:

* the double pendulum, holonomic, against its reference;
* the Chaplygin sleigh, nonholonomic, against its closed form;
* `Everything`, with forces that depend on all there is, a mass matrix that depends on the configuration, rows that move with time, and one
  of them nonholonomic, against a run with projected Dormand-Prince steps whose own error is below 1e-12;
* flywheels in coordinates on circles, with a `retract` of their own, against the same in angles.

The errors span two to four decades above round-off; with the steps below the slopes come out within 0.1 of the order up to order 6 and
within 0.2 at order 8. Neighboring orders are at least 1 apart.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference_systems
import small_systems

import jaxdae as jd

RATTLE = jd.Rattle(iterations=12)
METHODS = {
    "backward_euler": (jd.BackwardEuler(), 1),
    "rattle": (jd.Rattle(), 2),
    "discrete_euler_lagrange": (jd.DiscreteEulerLagrange(), 2),
    "discrete_euler_lagrange_trapezoidal": (jd.DiscreteEulerLagrange(jd.TrapezoidalLagrangian()), 2),
    "implicit_midpoint": (jd.ImplicitMidpoint(), 2),
    "generalized_alpha": (jd.GeneralizedAlpha(), 2),
    "generalized_alpha_undamped": (jd.GeneralizedAlpha(jnp.asarray(1.0)), 2),
    "half_explicit": (jd.HalfExplicitRungeKutta(), 4),
    "radau_iia": (jd.RadauIIA(), 5),
    "yoshida4": (jd.Composition.yoshida4(RATTLE), 4),
    "suzuki4": (jd.Composition.suzuki4(RATTLE), 4),
    "yoshida6": (jd.Composition.yoshida6(RATTLE), 6),
    "kahan_li6": (jd.Composition.kahan_li6(RATTLE), 6),
    "kahan_li8": (jd.Composition.kahan_li8(RATTLE), 8),
    "kahan_li6_of_midpoint": (jd.Composition.kahan_li6(jd.DiscreteEulerLagrange(newton=jd.DenseNewton(iterations=12))), 6),
}
rolled = jax.jit(lambda system, method, start, dt, clock: jd.rollout(system, method, start, dt=dt, steps=clock.shape[0]))


def double_pendulum():
    reference = problems.reference("double_pendulum")
    k = reference.at(0.5)
    return problems.double_pendulum(), reference.start(), 0.5, reference.q[k], reference.v[k]


def sleigh():
    reference = problems.reference("chaplygin_sleigh")
    system, start = reference_systems.chaplygin_sleigh()
    k = reference.at(1.0)
    return system, start, 1.0, reference.q[k], reference.v[k]


@functools.cache
def everything():
    system, start = small_systems.everything(), small_systems.consistent()
    end = rolled(system, jd.Projected(jd.RungeKutta.dormand_prince5()), start, 0.5 / 400, np.zeros(400))
    return system, start, 0.5, np.asarray(end.state.q[-1]), np.asarray(end.state.v[-1])


@functools.cache
def on_circles():
    in_angles, on_circles = small_systems.wheels()
    start, _ = jd.initialize(in_angles, jnp.array([0.4, -0.9]), jnp.array([1.3, 0.6]), t=0.7)
    flat, curved = small_systems.wheels_states(start.q, start.v, 0.7)
    end = rolled(in_angles, jd.Projected(jd.RungeKutta.dormand_prince5()), flat, 0.5 / 400, np.zeros(400))
    q = np.asarray(end.state.q[-1])
    return on_circles, curved, 0.5, np.stack([np.cos(q), np.sin(q)], axis=1).reshape(-1), np.asarray(end.state.v[-1])


PROBLEMS = {"double_pendulum": double_pendulum, "sleigh": sleigh, "everything": everything, "on_circles": on_circles}
COUNTS = {1: (32, 64, 128), 2: (32, 64, 128), 4: (24, 48, 96), 5: (8, 16, 24), 6: (12, 16, 24), 8: (6, 8, 12)}


def fitted(problem, method, counts):
    """Returns the slope, and the largest violations of the finest run."""
    system, start, duration, q, v = PROBLEMS[problem]()
    errors = []
    for count in counts:
        trajectory = rolled(system, method, start, duration / count, np.zeros(counts[-1]))
        reached = jax.tree.map(lambda x, k=count: np.asarray(x)[k - 1], trajectory)
        assert reached.info.status == jd.Status.OK
        errors.append(max(np.max(np.abs(reached.state.q - q)), np.max(np.abs(reached.state.v - v))))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0], errors


@pytest.mark.parametrize(
    ("problem", "name"),
    [(problem, name) for problem in ("double_pendulum", "everything") for name in METHODS]
    + [("sleigh", name) for name in ("rattle", "discrete_euler_lagrange", "generalized_alpha", "half_explicit", "radau_iia", "kahan_li8")],
)
def test_order(problem, name):
    method, order = METHODS[name]
    counts = (3, 4, 5, 6) if order == 8 and problem == "everything" else COUNTS[order]
    slope, errors = fitted(problem, method, counts)
    assert abs(slope - order) <= (0.2 if order == 8 else 0.1), f"expected order {order}, fitted {slope:.3f} to {errors}"


@pytest.mark.parametrize(
    ("method", "order"),
    [(jd.RungeKutta.rk4(), 4), (jd.RadauIIA(), 5), (jd.GeneralizedAlpha(), 2), (RATTLE, 2), (METHODS["suzuki4"][0], 4)],
    ids=["runge_kutta", "radau_iia", "generalized_alpha", "rattle", "suzuki4"],
)
def test_order_in_coordinates_with_a_retraction(method, order):
    slope, errors = fitted("on_circles", method, COUNTS[order])
    assert abs(slope - order) <= 0.1, f"expected order {order}, fitted {slope:.3f} to {errors}"


def test_shake_has_the_positions_of_rattle():
    system, start, duration, *_ = double_pendulum()
    both = [rolled(system, jd.Rattle(velocity_level=closed), start, duration / 128, np.zeros(128)) for closed in (True, False)]
    np.testing.assert_allclose(both[1].state.q, both[0].state.q, rtol=0.0, atol=1e-13)
    assert np.max(both[0].info.velocity_violation) <= 1e-14
    assert np.max(both[1].info.velocity_violation) > 1e-3
