"""Velocity-level rows of second-order systems that are not affine in the velocities: starts, projections and
impulses.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd

MASS = np.array([1.0, 2.0, 3.0])
ROUND_OFF = {"rtol": 0, "atol": 1e-14}


@jd.tree.pytree
class Fast(jd.System):
    """Particles whose common speed |v| is given."""

    speed: Any

    def mass_matrix(self, q):
        return jnp.diag(jnp.asarray(MASS, q.dtype))

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81, 0.3])

    def velocity_constraint(self, t, q, v):
        return jnp.stack([jnp.sqrt(v @ v) - self.speed])


def assert_nearest(v, wanted):
    """|v| = 1 and, for a Lagrange multiplier p, M (v - wanted) = p v."""
    v, push = np.asarray(v), MASS * (np.asarray(v) - np.asarray(wanted))
    np.testing.assert_allclose(np.linalg.norm(v), 1.0, **ROUND_OFF)
    np.testing.assert_allclose(np.cross(push, v), 0.0, rtol=0, atol=1e-12)


@pytest.mark.long
def test_starts_projections_and_impulses_meet_the_rows():
    system, q = Fast(jnp.array(1.0)), jnp.zeros(3)
    project = jax.jit(lambda state: jd.VelocityProjection().project(system, state).v)
    for wanted in ([0.3, 0.2, 0.5], [3.0, -2.0, 1.0], [1.0, 1.0, 1.0]):
        state, info = jd.initialize(system, q, jnp.array(wanted))
        assert info.status == jd.Status.OK
        assert_nearest(state.v, wanted)
        wanted_state = jd.State(jnp.array(0.0), q, jnp.array(wanted))
        assert_nearest(project(wanted_state), wanted)
        v, impulse = jd.constraint_impulse(system, wanted_state)
        assert_nearest(v, wanted)
        np.testing.assert_allclose(MASS * (v - np.asarray(wanted)), impulse * v, rtol=0, atol=1e-12)


@pytest.mark.long
def test_held_velocities_stay():
    state, _ = jd.initialize(
        Fast(jnp.array(1.0)),
        jnp.zeros(3),
        jnp.array([0.4, 0.1, 0.0]),
        fixed_velocity=np.array([True, False, False]),
    )
    np.testing.assert_allclose(state.v, [0.4, 0.84**0.5, 0.0], **ROUND_OFF)


@pytest.mark.exhaustive
def test_long_steps_keep_the_rows_to_round_off():
    system = Fast(jnp.array(1.0))
    state, _ = jd.initialize(system, jnp.zeros(3), jnp.ones(3))
    found = jd.rollout(system, jd.Projected(jd.RungeKutta.rk4()), state, dt=0.5, steps=20)
    assert not np.any(found.info.status)
    np.testing.assert_allclose(np.linalg.norm(found.state.v, axis=1), 1.0, **ROUND_OFF)


@pytest.mark.parametrize(
    "method", [jd.HalfExplicitRungeKutta(), jd.Rattle()], ids=["half_explicit", "rattle"]
)
def test_steps_that_solve_one_linearization_report_open_rows(method):
    """One linear solve per step leaves an error that grows with the step."""

    @jax.jit
    def end(dt):
        start = jd.State(jnp.zeros(()), jnp.zeros(3), jnp.array([0.48, 0.64, 0.6]))
        return method.step(Fast(jnp.array(1.0)), start, method.init(Fast(jnp.array(1.0)), start), None, dt)[2]

    assert end(0.1).velocity_violation > 1e-4
    assert end(0.1).status == jd.Status.NOT_CONVERGED
    assert end(1e-4).status == jd.Status.OK
