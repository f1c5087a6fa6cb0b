"""Rollouts that end at an event: closed forms, derivatives with the change of the event time, failures."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import central
from switching_problems import GRAVITY, LENGTH, MASS, String, numbers

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.switching import Switching, Unilateral, rollout_until

RK4 = jd.RungeKutta.rk4()


@jd.tree.pytree
class Ball(jd.System):
    """A mass of 1 kg on a vertical line, with a weight and a force."""

    weight: Any

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.weight * jnp.ones_like(q) + (0.0 if u is None else u)


def height(system, state):
    """Return the height above a floor that rises by 0.5 m/s."""
    return state.q[0] - 0.5 * state.t


def landed(z, controls=None, dt=0.1, steps=14):
    """Return t, q and v of a ball on the floor; z: start height and velocity, weight."""
    start = jd.State(jnp.zeros(()), z[:1], z[1:2])
    found = rollout_until(Ball(z[2]), RK4, start, height, controls, dt=dt, steps=steps)
    return jnp.concatenate([found.state.t[None], found.state.q, found.state.v]), found.info


def closed(z):
    """Return the root of q0 + (v0 - 0.5) t - g t^2 / 2, and the state there."""
    speed = z[1] - 0.5
    t = (speed + jnp.sqrt(speed**2 + 2 * z[0] * z[2])) / z[2]
    return jnp.stack([t, z[0] + z[1] * t - z[2] * t**2 / 2, z[1] - z[2] * t])


START = np.array([1.0, 2.0, 9.0])


def state_at_landing(z):
    return landed(z)[0]


@pytest.mark.long
def test_a_landing_and_its_derivatives():
    """Runge-Kutta methods are exact for a parabola, so only round-off is left."""
    values = jax.jit(lambda z: (*landed(z), jax.jacfwd(state_at_landing)(z), jax.jacrev(state_at_landing)(z)))
    value, info, forward, reverse = values(START)
    assert info.status == jd.Status.OK
    np.testing.assert_allclose(value, closed(START), rtol=1e-14)
    np.testing.assert_allclose(forward, jax.jacfwd(closed)(START), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(reverse, forward, rtol=1e-13, atol=1e-14)


@pytest.mark.exhaustive
def test_second_derivatives():
    second = jax.jit(jax.jacfwd(jax.jacrev(state_at_landing)))(START)
    np.testing.assert_allclose(second, jax.hessian(closed)(START), rtol=1e-11, atol=1e-12)


@pytest.mark.long
def test_each_world_ends_at_its_own_event_and_a_late_one_fails_alone():
    starts = jnp.asarray([[1.0, 2.0, 9.0], [0.5, 0.0, 9.0], [1.0, 8.0, 9.0], [0.0, 2.0, 9.0]])

    def seen(z):
        value, info = landed(z)
        return value, (value, info)

    slopes, (values, info) = jax.jit(jax.vmap(jax.jacfwd(seen, has_aux=True)))(starts)
    np.testing.assert_array_equal(info.status, [0, 0, jd.Status.STEP_BUDGET, 0])
    exact = np.array(jax.vmap(closed)(starts))
    exact[2] = [1.4, 1.0 + 8.0 * 1.4 - 4.5 * 1.4**2, 8.0 - 9.0 * 1.4]  # after all steps
    np.testing.assert_allclose(values, exact, rtol=1e-13, atol=1e-15)
    with pytest.raises(jd.SimulationError, match="without an event"):
        jd.raise_if_failed(jax.tree.map(lambda x: x[2], info))
    np.testing.assert_array_equal(np.isnan(slopes).all(axis=(1, 2)), [False, False, True, False])
    np.testing.assert_array_equal(np.isnan(slopes).any(axis=(1, 2)), [False, False, True, False])


@pytest.mark.long
def test_inputs_of_the_last_step_and_laws():
    """A force of 9 N carries the ball over the first half second; a law does the same."""
    held = jnp.where(jnp.arange(14) < 5, 9.0, 0.0)[:, None]
    t = 0.5 + closed(jnp.asarray([1.0 + 0.5 * 2.0 - 0.25, 2.0, 9.0]))[0]
    for controls in (held, lambda t, state: jnp.where(t < 0.5, 9.0, 0.0)[None]):
        value, _ = landed(START, controls)
        # The law jumps at the end of a step, whose last stage sees the value behind the jump.
        exact = controls is held
        np.testing.assert_allclose(value[0], t, rtol=1e-14 if exact else 0.1)

    def time(force):
        return landed(START, held * force)[0][0]

    np.testing.assert_allclose(jax.grad(time)(1.0), central(time, 1.0), rtol=1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("switching", [True, False])
def test_methods_with_memory(switching):
    """A ball on a string passes a vertical line: after a flight and a jerk, or with adaptive steps."""
    string = jd.Masked(String(*numbers(MASS, LENGTH, GRAVITY)), jnp.array([not switching]))
    if switching:
        integrator: Any = Switching(jd.Projected(RK4), Unilateral(jnp.array([-1.0])))
        place, velocity, line, side = jnp.array([0.2, -0.1]), jnp.array([-1.0, 0.4]), 0.1, -1.0
    else:
        integrator = jd.diffrax.Adaptive(rtol=1e-11, atol=1e-11)
        place, velocity, line, side = LENGTH * jnp.array([0.6, -0.8]), jnp.array([0.24, 0.18]), -0.3, 1.0

    def crossed(s):
        start = jd.State(jnp.zeros(()), place, velocity * s)
        passes = lambda _, at: side * (at.q[0] - line)  # noqa: E731
        found = rollout_until(string, integrator, start, passes, dt=0.02, steps=60)
        value = jnp.concatenate([found.state.t[None], found.state.q, found.state.v])
        return value, (value, found.info)

    both = jax.jit(jax.jacfwd(crossed, has_aux=True))
    slope, (value, info) = both(1.0)
    assert info.status == jd.Status.OK
    assert abs(value[1] - line) < 1e-14
    if switching:
        assert info.impulse[0] < -0.1
    np.testing.assert_allclose(slope, central(lambda s: both(s)[1][0], 1.0), rtol=1e-6, atol=1e-7)


def _start():
    return jd.State(0.0, jnp.ones(1), jnp.zeros(1))


@all_cases(
    "event, error, message",
    [
        (3, TypeError, "event must be a function (system, state) -> (), got int"),
        (lambda system, state: state.q, ValueError, "event must return a scalar, got shape (1,)"),
    ],
)
def test_messages(event, error, message):
    with pytest.raises(error) as caught:
        rollout_until(Ball(9.0), RK4, _start(), event, dt=0.1, steps=3)
    assert message in str(caught.value)


@pytest.mark.long
def test_steps_beyond_the_stability_limit():
    """Friction of 200 N m holds an arm, which turns by 0.1 mrad. With RK4 at 1 ms it fell, status OK."""
    arm = jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0))
    hinge = jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0), friction=200.0)
    mechanism, q = jm.planar_mechanism([arm], [hinge], coordinates=jm.Joints())
    start = jd.State(jnp.zeros(()), q, jnp.zeros(1))
    run = jax.jit(lambda dt: rollout_until(mechanism, RK4, start, below, dt=dt, steps=100).info.status)
    assert [run(dt) for dt in (1e-3, 1e-6)] == [jd.Status.UNSTABLE, jd.Status.STEP_BUDGET]


@pytest.mark.exhaustive
def test_gains_beyond_the_stability_limit():
    arm = jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0))
    hinge = jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0))
    mechanism, q = jm.planar_mechanism([arm], [hinge])
    gains = jd.RungeKutta.rk4(stabilization=jd.Baumgarte(5000.0, 5000.0))
    start = jd.State(jnp.zeros(()), q, jnp.zeros(3))
    found = rollout_until(mechanism, gains, start, below, dt=1e-3, steps=10)
    assert found.info.status == jd.Status.UNSTABLE


def below(system, state):
    """Return the angle above -5 mrad."""
    return state.q[-1] + 0.005
