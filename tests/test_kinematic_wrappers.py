"""First-order systems inside of wrappers: rows that are masked, soft, goals, or switched by a law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.control import Coordinates, Goal, WithGoals
from jaxdae.systems.wrapper import Wrapper


@jd.tree.pytree
class Floor(jd.KinematicSystem):
    """A point with the rate (1, -cos(pi t)) above a floor y = 0, and a row that may hold x at 0."""

    row_names = ("floor", "stop")

    def rate(self, t, x, u):
        return jnp.stack([jnp.ones_like(t), -jnp.cos(jnp.pi * t)])

    def constraint(self, t, x):
        return jnp.stack([x[1], x[0]])


@jd.tree.pytree
class Skate(jd.KinematicSystem):
    """(x, y, theta) that may not slip sideways; u is its rate."""

    n_inputs: Any = jd.tree.static(default=3)

    def rate(self, t, x, u):
        return u

    def velocity_constraint(self, t, x, xdot):
        return jnp.stack([jnp.cos(x[2]) * xdot[1] - jnp.sin(x[2]) * xdot[0]])


@jd.tree.pytree
class Driven(Skate):
    """The same, whose row is taken for that of a drive."""

    driven_rows = 1


def start(*x):
    return jd.State(jnp.asarray(0.0), jnp.array(x), jnp.zeros(len(x)))


def test_wrappers_pass_on_what_a_system_is():
    for wrapped in (
        jd.Masked(Floor(), jnp.ones(2, bool)),
        jd.Soft(Floor(), jnp.asarray(1.0)),
        jd.Masked(jd.Soft(Floor(), 1.0), [1, 0]),
    ):
        assert wrapped.first_order
        assert wrapped.names.rows == wrapped.row_names == ("floor", "stop")
        assert wrapped.sizes(jnp.zeros(2)) == (2, 2, 2, 0, None)
    masked = jd.Masked(Skate(), jnp.ones(1, bool))
    assert (masked.n_inputs, masked.sizes(jnp.zeros(3))) == (3, (3, 3, 0, 1, 3))
    goals = WithGoals(Skate(), (Goal(Coordinates((0, 1)), jnp.zeros(2)),))
    assert (goals.first_order, goals.sizes(jnp.zeros(3))) == (True, (3, 3, 2, 1, 3))
    assert goals.names.filled(goals.sizes(jnp.zeros(3))).rows == ("row 0", "row 1", "row 2")


def test_wrappers_pass_on_all_that_a_system_has():
    """What they leave to the defaults of `System` would be wrong without a word: rows of drives, and rows by
    which starts are judged.
    """
    for contract in (jd.interfaces.AnySystem, jd.KinematicSystem):
        assert {name for name in vars(contract) if not name.startswith("_")} <= set(vars(Wrapper))
    wrappers = [kind for kind in Wrapper.__subclasses__() if kind.__module__.startswith("jaxdae.")]
    assert {jd.Masked, jd.Soft, WithGoals} <= set(wrappers)
    assert all(("constraint" in vars(kind)) == ("opening" in vars(kind)) for kind in wrappers)
    to, along = Goal(Coordinates((0,)), jnp.zeros(1)), Goal(Coordinates((0,)), rate=jnp.zeros(1))
    for goals, rows in (((to,), 1), ((to, along), 0)):
        assert WithGoals(jd.Masked(Driven(), jnp.ones(1, bool)), goals).driven_rows == rows


def test_a_row_that_is_off_leaves_the_rate_alone():
    rate = jnp.array([1.0, 0.5, 0.2])
    at = start(0.0, 0.0, 0.3)
    for active, expected in ((False, rate), (True, jd.kinematic_velocity(Skate(), at, rate)[0])):
        np.testing.assert_allclose(
            jd.kinematic_velocity(jd.Masked(Skate(), jnp.array([active])), at, rate)[0],
            expected,
            rtol=0,
            atol=1e-15,
        )


def test_a_soft_row_gives_way_in_proportion():
    # x' = rate + J^T lam with J x' + C lam = 0: one unit row of a wall against the rate r gives lam = -r / (1
    # + C).
    v, lam = jd.kinematic_velocity(jd.Soft(Floor(), jnp.array([0.25, 1.0])), start(0.0, 0.0))
    np.testing.assert_allclose(lam, [1.0 / 1.25, -1.0 / 2.0], rtol=1e-14)
    np.testing.assert_allclose(v, [1.0 / 2.0, -0.25 / 1.25], rtol=1e-14)


def test_a_goal_is_a_row():
    # A skate that heads along x and is asked to turn at 0.5 rad/s, whatever its rate says.
    system = WithGoals(Skate(), (Goal(Coordinates((2,)), rate=jnp.array([0.5])),))
    trajectory = jd.rollout(
        system,
        jd.Kinematic.rk4(),
        start(0.0, 0.0, 0.0),
        jnp.tile(jnp.array([1.0, 0.0, 0.0]), (200, 1)),
        dt=0.01,
    )
    jd.raise_if_failed(trajectory.info)
    # Its speed is the share of (1, 0) along its heading, cos(theta), with theta = t / 2.
    t, theta = 2.0, 1.0
    expected = [0.5 * t + 0.5 * np.sin(2.0 * theta), np.sin(theta) ** 2, theta]
    np.testing.assert_allclose(trajectory.state.q[-1], expected, rtol=0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("events", "error"),
    [pytest.param(1, 1e-6, marks=pytest.mark.long), pytest.param(0, 2e-2, marks=pytest.mark.exhaustive)],
)
def test_a_point_that_lands_on_a_floor_and_leaves_it(events, error):
    # y = 0.1 - sin(pi t) / pi until it is 0, then 0 until the rate points up at t = 1/2, then (1 - sin(pi t))
    # / pi.
    law = jd.switching.Unilateral(jnp.array([1.0, 0.0]))
    integrator = jd.switching.Switching(jd.Projected(jd.Kinematic.rk4()), law, events=events)
    system = jd.Masked(Floor(), jnp.zeros(2, bool))

    def end(height):
        at = jd.State(jnp.asarray(0.0), jnp.stack([jnp.zeros_like(height), height]), jnp.zeros(2))
        return jd.rollout(system, integrator, at, dt=0.01, steps=100)

    trajectory = end(jnp.asarray(0.1))
    jd.raise_if_failed(trajectory.info)
    t, y = trajectory.state.t, trajectory.state.q[:, 1]
    landed = np.arcsin(0.1 * np.pi) / np.pi
    expected = np.where(
        t < landed, 0.1 - np.sin(np.pi * t) / np.pi, np.where(t < 0.5, 0.0, (1.0 - np.sin(np.pi * t)) / np.pi)
    )
    np.testing.assert_allclose(y, expected, rtol=0, atol=error)
    np.testing.assert_allclose(trajectory.state.q[:, 0], t, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(trajectory.info.impulse, 0.0)
    on = np.asarray(trajectory.info.active[:, 0])
    assert on[20:45].all()
    assert not on[60:].any()
    # The velocity that is reported is the one along the floor: its y is zero where the row is on.
    np.testing.assert_allclose(
        trajectory.state.v[25:45], jnp.tile(jnp.array([1.0, 0.0]), (20, 1)), rtol=0, atol=1e-12
    )
    if events:
        np.testing.assert_allclose(trajectory.info.switched[-1, 0], 0.5, rtol=0, atol=1e-4)
        # Where it ends does not depend on where it began: the floor has taken that off.
        np.testing.assert_allclose(
            jax.jacfwd(lambda h: end(h).state.q[-1, 1])(jnp.asarray(0.1)), 0.0, rtol=0, atol=1e-6
        )
