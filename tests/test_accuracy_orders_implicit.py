"""Fitted orders of the methods that keep the constraints by themselves, of compositions, and of Munthe-Kaas
methods.

As in `test_accuracy_orders`: the slope of log(error) over log(h) at a fixed time, all runs of a case in one
compiled program. Four problems:

* the double pendulum, holonomic, against its reference;
* the Chaplygin sleigh, nonholonomic, against its closed form;
* `Everything`, with forces that depend on all there is, a mass matrix that depends on the configuration, rows
  that move with time, and one of them nonholonomic, against a run with projected Dormand-Prince steps whose
  own error is below 1e-12;
* flywheels in coordinates on circles, with a `retract` of their own, against the same in angles.

The errors span two to four decades above round-off; with the steps below the slopes come out within 0.1 of
the order up to order 6 and within 0.2 at order 8. Neighboring orders are at least 1 apart.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import small_systems
from catalogue import METHODS, SYSTEMS, every, first, in_ci, precise

import jaxdae as jd

rolled = jax.jit(
    lambda system, method, start, dt, clock: jd.rollout(system, method, start, dt=dt, steps=clock.shape[0])
)


def published(name, end):
    reference = problems.reference(name)
    k = reference.at(end)
    return *SYSTEMS[name](), end, reference.q[k], reference.v[k]


def double_pendulum():
    return published("double_pendulum", 0.5)


def sleigh():
    return published("chaplygin_sleigh", 1.0)


@functools.cache
def everything():
    system, start = SYSTEMS["everything"]()
    end = rolled(system, jd.Projected(jd.RungeKutta.dormand_prince5()), start, 0.5 / 400, np.zeros(400))
    return system, start, 0.5, np.asarray(end.state.q[-1]), np.asarray(end.state.v[-1])


@functools.cache
def on_circles():
    in_angles, on_circles = small_systems.wheels()
    start, _ = jd.initialize(in_angles, jnp.array([0.4, -0.9]), jnp.array([1.3, 0.6]), t=0.7)
    flat, curved = small_systems.wheels_states(start.q, start.v, 0.7)
    end = rolled(in_angles, jd.Projected(jd.RungeKutta.dormand_prince5()), flat, 0.5 / 400, np.zeros(400))
    q = np.asarray(end.state.q[-1])
    return (
        on_circles,
        curved,
        0.5,
        np.stack([np.cos(q), np.sin(q)], axis=1).reshape(-1),
        np.asarray(end.state.v[-1]),
    )


PROBLEMS = {
    "double_pendulum": double_pendulum,
    "sleigh": sleigh,
    "everything": everything,
    "on_circles": on_circles,
}
COUNTS = {1: (32, 64, 128), 2: (32, 64, 128), 4: (24, 48, 96), 5: (8, 16, 24), 6: (12, 16, 24), 8: (6, 8, 12)}


def fitted(problem, method, counts):
    """Returns the slope, and the largest violations of the finest run."""
    system, start, duration, q, v = PROBLEMS[problem]()
    errors = []
    for count in counts:
        trajectory = rolled(system, method, start, duration / count, np.zeros(counts[-1]))
        reached = jax.tree.map(
            lambda x, k=count: np.asarray(x)[k - 1], jd.Trajectory(trajectory.state, trajectory.info)
        )
        assert reached.info.status == jd.Status.OK
        errors.append(max(np.max(np.abs(reached.state.q - q)), np.max(np.abs(reached.state.v - v))))
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0], errors


def check_order(problem, name):
    order = METHODS[name].order
    counts = (3, 4, 5, 6) if order == 8 and problem == "everything" else COUNTS[order]
    slope, errors = fitted(problem, precise(name), counts)
    assert abs(slope - order) <= (0.2 if order == 8 else 0.1), (
        f"expected order {order}, fitted {slope:.3f} to {errors}"
    )


# The velocities of SHAKE are of order one; that its positions are those of RATTLE is tested below.
def _counts(method):
    return method.closed and method is not METHODS["shake"]


CLOSED, LEADERS = every(METHODS, _counts), first(METHODS, _counts)


@pytest.mark.parametrize("name", LEADERS)
def test_order_of_a_double_pendulum(name):
    check_order("double_pendulum", name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    in_ci(CLOSED, "rattle", "half_explicit4", "generalized_alpha", "radau_iia", "kahan_li8"),
)
def test_order_with_every_kind_of_term(name):
    check_order("everything", name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    in_ci(LEADERS, "rattle", "radau_iia"),
)
def test_order_of_a_sleigh(name):
    check_order("sleigh", name)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "rk4",
        "generalized_alpha",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("radau_iia", "rattle", "suzuki4")),
    ],
)
def test_order_in_coordinates_with_a_retraction(name):
    check_order("on_circles", name)


@pytest.mark.long
def test_shake_has_the_positions_of_rattle():
    system, start, duration, *_ = double_pendulum()
    both = [
        rolled(system, jd.Rattle(velocity_level=closed), start, duration / 128, np.zeros(128))
        for closed in (True, False)
    ]
    np.testing.assert_allclose(both[1].state.q, both[0].state.q, rtol=0.0, atol=1e-13)
    assert np.max(both[0].info.velocity_violation) <= 1e-14
    assert np.max(both[1].info.velocity_violation) > 1e-3
