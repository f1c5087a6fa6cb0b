"""Static equilibria against closed forms, damped simulations and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm

WEIGHT = 9.81 * 0.5  # of a rod of 1 kg and 1 m, times its lever, in N m


def rod(stiffness):
    """Returns a rod that a spring holds horizontally, and a motor in its hinge."""
    hinge = jm.Revolute("hinge", jm.GROUND, "rod", at=(0.0, 0.0), stiffness=stiffness, rest=0.0)
    motor = jm.JointForce("motor", "hinge", force=0.0, input=0)
    return jm.planar_mechanism(
        [jm.Body("rod", 1.0, 1.0 / 12.0, pose=(0.5, 0.0, 0.0))],
        [hinge],
        [motor],
        gravity=(0.0, -9.81),
        coordinates=jm.Joints(),
    )


def four_bar(stiffness):
    """Returns a damped four-bar whose crank hangs on a spring."""
    bodies = [
        jm.Body("crank", 1.0, 0.1, pose=(0.25, 0.0, 0.0)),
        jm.Body("coupler", 2.0, 0.2, pose=(1.0, 0.0, 0.0)),
        jm.Body("rocker", 1.0, 0.1, pose=(1.5, 0.5, -np.pi / 2)),
    ]
    spring = {"stiffness": stiffness, "rest": 0.3, "damping": 2.0}
    joints = [
        jm.Revolute("a", jm.GROUND, "crank", at=(0.0, 0.0), **spring),
        jm.Revolute("b", "crank", "coupler", at=(0.5, 0.0)),
        jm.Revolute("c", "coupler", "rocker", at=(1.5, 0.0)),
        jm.Revolute("d", jm.GROUND, "rocker", at=(1.5, 1.0)),
    ]
    return jm.planar_mechanism(bodies, joints, gravity=(0.0, -9.81))


@pytest.mark.long
def test_spring_and_weight_balance():
    """k theta = -m g l cos(theta); dtheta/dk = -theta / (k - m g l sin(theta)); NaN stays in its world."""

    def angle(k):
        state, info = jk.static_equilibrium(*rod(k), jnp.zeros(1))
        return state.q[0], info.status

    k = jnp.array([10.0, jnp.nan, 40.0])
    (theta, status), slope = jax.jit(jax.vmap(jax.value_and_grad(angle, has_aux=True)))(k)
    assert status.tolist() == [jd.Status.OK, jd.Status.NONFINITE, jd.Status.OK]
    of = jnp.array([0, 2])
    np.testing.assert_allclose((k * theta + WEIGHT * jnp.cos(theta))[of], 0.0, atol=1e-13)
    expected = -theta / (k - WEIGHT * jnp.sin(theta))
    np.testing.assert_allclose(slope[of], expected[of], rtol=1e-12)


def test_motor_balances_weight_up_to_a_largest_torque():
    """cos(theta) = torque / (m g l); with more torque, |a| is smallest when the rod is horizontal."""
    mechanism, q = rod(0.0)
    find = jax.jit(jax.vmap(lambda u: jk.static_equilibrium(mechanism, q + 0.1, u)))
    state, info = find(jnp.array([[2.0], [6.0]]))
    assert info.status.tolist() == [jd.Status.OK, jd.Status.UNREACHABLE]
    np.testing.assert_allclose(jnp.cos(state.q[0]), 2.0 / WEIGHT, rtol=1e-14)
    np.testing.assert_allclose(info.error[1], (6.0 - WEIGHT) / (1.0 / 12.0 + 0.25), rtol=1e-8)


def test_mistakes():
    mechanism, _ = rod(1.0)
    with pytest.raises(ValueError, match="q"):
        jk.static_equilibrium(mechanism, jnp.zeros(2))


@pytest.mark.long
def test_closed_loop_comes_to_rest_there():
    def found(k):
        mechanism, q = four_bar(k)
        return mechanism, jk.static_equilibrium(mechanism, q)

    mechanism, (state, info) = found(20.0)
    assert info.status == jd.Status.OK
    assert info.violation <= 1e-16
    start = jd.State(0.0, four_bar(20.0)[1], state.v)
    method = jd.Projected(jd.SemiImplicitEuler())
    moved = jd.rollout(mechanism, method, start, dt=5e-3, steps=4000, save_every=4000)
    np.testing.assert_allclose(moved.state.q[-1], state.q, atol=1e-13)
    slope = jax.jit(jax.jacfwd(lambda k: found(k)[1][0].q))(20.0)
    change = found(20.0 + 1e-4)[1][0].q - found(20.0 - 1e-4)[1][0].q
    np.testing.assert_allclose(slope, change / 2e-4, atol=1e-10)
