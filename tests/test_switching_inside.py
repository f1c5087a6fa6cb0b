"""What `Switching` owes to the integrator inside: its memory, and the forces that only it knows of."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from problems import state
from switching_problems import GRAVITY, LENGTH, MASS, String

import jaxdae as jd
from jaxdae import control as jc


@pytest.mark.long
def test_a_method_keeps_its_memory_where_nothing_switches():
    """Begun anew in every step, generalized-alpha is of first order: 16 times as far off after these steps as
    it is by itself.
    """
    string = jd.Masked(String(*(jnp.asarray(x) for x in (MASS, LENGTH, GRAVITY))), jnp.ones(1, bool))
    start = state(LENGTH * np.array([0.6, -0.8]), [0.24, 0.18])
    alone = jd.GeneralizedAlpha(0.0)
    ends = [
        jd.rollout(string, method, start, dt=0.02, steps=20, save_every=20).state.q[-1]
        for method in (alone, jd.switching.Switching(alone, jd.switching.Unilateral(-jnp.ones(1)), events=0))
    ]
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-12)


@jd.tree.pytree
class Foot(jd.System):
    """A mass of 2 kg on the ground, which carries it."""

    weight: Any

    def mass_matrix(self, q):
        return 2.0 * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.weight * jnp.ones_like(q)

    def constraint(self, t, q):
        return q


@pytest.mark.exhaustive
def test_a_foot_lets_go_where_a_goal_lifts_it():
    """The goal pulls by its limit of 50 N, against a weight of 20 N, until it has its speed: 30 N / 2 kg for
    1/15 s, then 1 m/s.
    """
    speed = jc.Goal(jc.Coordinates((0,)), rate=1.0)
    lift = jc.GoalGroup(goals=(speed,), coupling=jc.Coupling.AFTER, limit=50.0)
    method = jd.switching.Switching(
        jc.VelocityStepping(groups=(lift,)), jd.switching.Unilateral(jnp.ones(1)), events=0
    )
    found = jd.rollout(
        jd.Masked(Foot(jnp.asarray(20.0)), jnp.ones(1, bool)), method, state([0.0]), dt=0.01, steps=20
    )
    assert np.all(found.info.status == jd.Status.OK)
    assert not np.any(found.info.active[2:])
    np.testing.assert_allclose(found.state.v[-1], 1.0, rtol=1e-12)
    # What the goal does is told too: at its limit, then less as the speed is reached, then the weight alone.
    efforts = np.asarray(found.info.inside.efforts[0][:, 0])
    np.testing.assert_allclose(efforts[[0, 2, -1]], [50.0, 50.0, 20.0], rtol=1e-12)
    np.testing.assert_allclose(found.state.q[-1], 0.2 - 1.0 / 30.0, rtol=0, atol=0.02)
