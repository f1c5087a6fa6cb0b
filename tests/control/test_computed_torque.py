"""Outputs and inputs of mechanisms, compensation of weight, computed torque and operational-space control.

Open arms against the textbook formulas in minimal coordinates; closed loops (a five-bar, and a redundant arm
on a parallelogram with one motor too many) against the dynamics themselves.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_problems import JointArm, arm, errors_of_second_order, five_bar, moving, parallel_arm
from small_systems import central, without_typechecker

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm

RK4 = jd.Projected(jd.RungeKutta.rk4(unroll=False))
SCHUR = jd.SchurComplement()
ANGLES = (0.3, -0.5, 0.9)
LENGTHS = (0.5, 0.4, 0.3)

accelerations = jax.jit(lambda system, at, u: jd.forward_dynamics(system, at, u)[0])
evaluate = jax.jit(lambda law, at: law(at.t, at))
task_dynamics = jax.jit(jc.task_dynamics)


@pytest.fixture(scope="module")
def open_arm():
    mechanism, state = arm(LENGTHS, ANGLES)
    return mechanism, moving(mechanism, state)


@pytest.fixture(scope="module")
def closed_arm():
    mechanism, state = parallel_arm()
    return mechanism, moving(mechanism, state)


@pytest.fixture(scope="module")
def joints(open_arm):
    """The open arm in its three angles, at the same state."""
    _, state = open_arm
    system = JointArm(jnp.array(LENGTHS))
    q, v = state.q[2::3], state.v[2::3]
    zero = jnp.zeros(3)
    return system, q, v, system.mass_matrix(q), -system.force(jnp.zeros(()), q, v, zero)


MOTOR_MAP = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 1.0]])
"""Generalized forces on absolute angles from torques in the hinges."""


def tip(mechanism, body="rod2", length=LENGTHS[-1]):
    return jc.BodyPoint.named(mechanism, body, (length / 2, 0.0))


def joint_tip(q):
    return jnp.stack([jnp.sum(jnp.array(LENGTHS) * jnp.cos(q)), jnp.sum(jnp.array(LENGTHS) * jnp.sin(q))])


# Outputs and inputs.


@pytest.mark.long
def test_outputs_by_name(open_arm):
    mechanism, state = open_arm
    hinge = jc.Coordinates.named(mechanism, "rod0.theta", ("rod1.theta", "rod0.theta"))
    np.testing.assert_allclose(hinge(state.q), [0.3, -0.8], rtol=0, atol=1e-14)
    np.testing.assert_allclose(jc.Coordinates((2, 5))(state.q), [0.3, -0.5], rtol=0, atol=1e-14)
    np.testing.assert_allclose(tip(mechanism)(state.q), joint_tip(jnp.array(ANGLES)), rtol=0, atol=1e-14)


@pytest.mark.long
def test_the_motion_of_an_output_is_that_of_its_place(open_arm):
    """y' and b against differences along the motion at constant velocities, Jy against differences in every
    coordinate.
    """
    mechanism, state = open_arm
    y = tip(mechanism)
    motion = jc.output_motion(mechanism, y, state)
    at = lambda s: y(state.q + s * state.v)  # noqa: E731
    np.testing.assert_allclose(motion.rate, central(at, 0.0), rtol=1e-9)
    np.testing.assert_allclose(motion.rate, motion.jacobian @ state.v, rtol=1e-13)
    np.testing.assert_allclose(motion.bias, (at(1e-3) - 2.0 * at(0.0) + at(-1e-3)) / 1e-6, rtol=0, atol=1e-4)
    columns = [central(lambda s, e=e: y(state.q + s * e), 0.0) for e in jnp.eye(9)]
    np.testing.assert_allclose(motion.jacobian, np.stack(columns, axis=1), rtol=0, atol=1e-9)


@pytest.mark.long
def test_the_input_matrix_is_that_of_the_motors(open_arm):
    mechanism, state = open_arm
    expected = np.zeros((9, 3))
    expected[2::3] = MOTOR_MAP
    np.testing.assert_allclose(jc.input_matrix(mechanism, state), expected, rtol=0, atol=1e-14)
    masked = jd.Masked(mechanism, jnp.ones(6))
    np.testing.assert_allclose(jc.input_matrix(masked, state), expected, rtol=0, atol=1e-14)


@pytest.mark.long
def test_accelerations_are_affine_in_the_inputs(closed_arm):
    mechanism, state = closed_arm
    u = jnp.array([1.0, -2.0, 3.0, 0.5])
    response = jc.input_response(mechanism, state, solver=SCHUR)
    np.testing.assert_allclose(
        response.drift + response.matrix @ u, accelerations(mechanism, state, u), rtol=0, atol=1e-10
    )


# Weight.


def rest(mechanism, state, u):
    return accelerations(mechanism, jd.State(state.t, state.q, jnp.zeros_like(state.v)), u)


@pytest.mark.long
def test_weight_of_an_open_arm_is_the_gradient_of_its_energy(open_arm, joints):
    mechanism, state = open_arm
    system, q, *_ = joints
    load = jax.grad(lambda q: system.potential_energy(0.0, q))(q)
    np.testing.assert_allclose(MOTOR_MAP @ jc.static_inputs(mechanism, state), load, rtol=0, atol=1e-12)


@pytest.mark.long
def test_redundant_motors_do_not_fight(closed_arm):
    """Four motors, three freedoms: at rest, and no smaller inputs do it. The two cranks of the parallelogram
    share their load evenly.
    """
    mechanism, state = closed_arm
    u = jc.static_inputs(mechanism, state)
    np.testing.assert_allclose(rest(mechanism, state, u), 0.0, rtol=0, atol=1e-11)
    idle = np.linalg.svd(jc.input_response(mechanism, state).matrix)[2][
        -1
    ]  # the direction that moves nothing
    np.testing.assert_allclose(idle @ u, 0.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u[0], u[1], rtol=1e-12)


@pytest.mark.long
def test_too_few_motors_do_their_best():
    """One motor at a five-bar: what acceleration remains is orthogonal, in the mass metric, to what the motor
    can do.
    """
    mechanism, state = five_bar(("left",))
    u = jc.static_inputs(mechanism, state)
    response = jc.input_response(mechanism, state)
    remaining = response.drift + response.matrix @ u
    assert float(jnp.max(jnp.abs(remaining))) > 1.0
    mass = mechanism.mass_matrix(state.q)
    np.testing.assert_allclose(response.matrix.T @ mass @ remaining, 0.0, rtol=0, atol=1e-12)


@pytest.mark.exhaustive
def test_weight_is_differentiated_with_redundant_and_with_missing_motors(closed_arm):
    """The pseudoinverse has constant rank 3 of four columns, and 1 of one column with a remainder."""
    for mechanism, state in (closed_arm, five_bar(("left",))):

        @jax.jit
        def inputs(scale, mechanism=mechanism, state=state):
            model = jd.tree.set_leaf(mechanism, "mass", mechanism.mass.at[1].mul(scale))
            return jc.static_inputs(model, state)

        slope = jax.jit(lambda s, inputs=inputs: jax.jvp(inputs, (s,), (1.0,))[1])(1.2)
        np.testing.assert_allclose(slope, central(inputs, 1.2), rtol=0, atol=1e-8)


# Computed torque.


@pytest.mark.long
def test_computed_torque_of_an_open_arm_is_the_classical_law(open_arm, joints):
    """tau = M (qd'' + Kd e' + Kp e) + c in angles."""
    mechanism, state = open_arm
    _, q, v, mass, load = joints
    target = jnp.array([0.1, 0.2, -0.3])
    output = jc.Coordinates((2, 5, 8))
    law = jc.ComputedTorque(
        model=mechanism, output=output, reference=target, kp=jnp.array([100.0, 80.0, 60.0]), kd=12.0
    )
    expected = mass @ (jnp.array([100.0, 80.0, 60.0]) * (target - q) - 12.0 * v) + load
    np.testing.assert_allclose(MOTOR_MAP @ evaluate(law, state), expected, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["five_bar", "open"])
def test_errors_decay_as_told(name):
    """e'' + kd e' + kp e = 0 along the motion: a tip of a five-bar, and two angles of an arm; RK4 itself errs
    by about 1e-10 here.
    """
    mechanism, state = arm(LENGTHS[:2], ANGLES[:2]) if name == "open" else five_bar()
    output = (
        jc.Coordinates((2, 5))
        if name == "open"
        else jc.BodyPoint.named(mechanism, "upper_left", (np.hypot(0.45, 0.45) / 2, 0.0))
    )
    state = moving(mechanism, state)
    target = output(state.q) + jnp.array([0.05, -0.03])
    law = jc.ComputedTorque(model=mechanism, output=output, reference=target, kp=100.0, kd=12.0, solver=SCHUR)
    trajectory = jd.rollout(mechanism, RK4, state, law, dt=1e-3, steps=200, save_every=20)
    jd.raise_if_failed(trajectory)
    error = target - jax.vmap(output)(trajectory.state.q)
    rate = -jc.output_motion(mechanism, output, state).rate
    for k in range(2):
        expected = errors_of_second_order(
            trajectory.state.t, target[k] - output(state.q)[k], rate[k], 100.0, 12.0
        )
        np.testing.assert_allclose(error[:, k], expected, rtol=0, atol=1e-9)


@jd.tree.pytree
class Circle:
    """A reference that moves: center + radius (cos, sin)(rate t)."""

    center: Any
    radius: Any
    rate: Any

    def __call__(self, t):
        return self.center + self.radius * jnp.stack([jnp.cos(self.rate * t), jnp.sin(self.rate * t)])


@pytest.mark.long
def test_a_moving_reference_is_fed_forward(closed_arm):
    """On the reference, with its velocity, the output gets exactly the acceleration of the reference: here of
    a circle.
    """
    mechanism, state = closed_arm
    output = tip(mechanism, "hand", np.hypot(0.3, 0.3))
    motion = jc.output_motion(mechanism, output, state)
    circle = Circle(output(state.q) - jnp.array([0.2, 0.0]), 0.2, 3.0)
    law = jc.ComputedTorque(model=mechanism, output=output, reference=circle, kp=50.0, kd=5.0)
    a = accelerations(mechanism, state, evaluate(law, state))
    expected = jnp.array([-0.2 * 9.0, 0.0]) + 5.0 * (jnp.array([0.0, 0.6]) - motion.rate)
    np.testing.assert_allclose(motion.jacobian @ a + motion.bias, expected, rtol=0, atol=1e-10)


@pytest.mark.long
def test_outputs_out_of_reach_get_no_infinite_input():
    """A stretched arm cannot move its tip along itself: the pseudoinverse leaves that direction alone."""
    mechanism, state = arm(LENGTHS[:2], (0.4, 0.4))
    along = jnp.array([jnp.cos(0.4), jnp.sin(0.4)])
    output = tip(mechanism, "rod1", LENGTHS[1])
    law = jc.ComputedTorque(
        model=mechanism, output=output, reference=output(state.q) + along, kp=100.0, kd=0.0
    )
    hold = jc.ComputedTorque(model=mechanism, output=output, reference=output(state.q), kp=100.0, kd=0.0)
    np.testing.assert_allclose(evaluate(law, state), evaluate(hold, state), rtol=0, atol=1e-8)


# Operational space.


@pytest.mark.long
def test_task_inertia_of_an_open_arm_is_khatibs(open_arm, joints):
    """Lambda = (J M^-1 J^T)^-1 and its dynamically consistent inverse T# = J^T Lambda, in the angles of the
    arm.
    """
    mechanism, state = open_arm
    _, q, _, mass, _ = joints
    jacobian = jax.jacfwd(joint_tip)(q)
    inertia = np.linalg.inv(jacobian @ np.linalg.solve(mass, jacobian.T))
    task = task_dynamics(mechanism, tip(mechanism), state)
    np.testing.assert_allclose(task.inertia, inertia, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(MOTOR_MAP @ task.inverse, jacobian.T @ inertia, rtol=1e-10, atol=1e-10)


@pytest.mark.long
def test_null_space_torques_leave_the_task_alone(closed_arm):
    """Redundant arm, closed loop, one motor too many: any u0 through P changes the task's acceleration by
    less than 1e-10.
    """
    mechanism, state = closed_arm
    hand = tip(mechanism, "hand", np.hypot(0.3, 0.3))
    task = task_dynamics(mechanism, hand, state)
    motion = jc.output_motion(mechanism, hand, state)
    still = motion.jacobian @ accelerations(mechanism, state, jnp.zeros(4))
    moved_at_all = 0.0
    for u0 in 10.0 * jnp.eye(4):
        a = accelerations(mechanism, state, task.projector @ u0)
        np.testing.assert_allclose(motion.jacobian @ a, still, rtol=0, atol=1e-10)
        moved_at_all = max(
            moved_at_all, float(jnp.max(jnp.abs(a - accelerations(mechanism, state, jnp.zeros(4)))))
        )
    assert moved_at_all > 1.0
    np.testing.assert_allclose(task.matrix @ task.inverse, np.eye(2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(task.projector @ task.projector, task.projector, rtol=0, atol=1e-12)
    # Task and posture share no kinetic energy; the inertia is that of the constrained arm.
    response = jc.input_response(mechanism, state)
    mobility = response.matrix.T @ mechanism.mass_matrix(state.q) @ response.matrix
    np.testing.assert_allclose(task.inverse.T @ mobility @ task.projector, 0.0, rtol=0, atol=1e-11)
    inverse = jd.operators.kkt_inverse(mechanism, state).L11
    np.testing.assert_allclose(
        task.inertia @ motion.jacobian @ inverse @ motion.jacobian.T, np.eye(2), rtol=0, atol=1e-10
    )


@pytest.mark.long
def test_the_law_follows_its_task_whatever_the_posture_wants(closed_arm):
    mechanism, state = closed_arm
    hand = tip(mechanism, "hand", np.hypot(0.3, 0.3))
    posture = jc.Sum(
        (
            jc.PD(model=mechanism, output=jc.Coordinates((2, 8, 11, 14)), reference=0.5, kp=30.0, kd=3.0),
            weight(mechanism),
        )
    )
    target = hand(state.q) + jnp.array([0.1, 0.02])
    settings = {"model": mechanism, "task": hand, "reference": target, "kp": 50.0, "kd": 8.0}
    motion = jc.output_motion(mechanism, hand, state)
    wanted = 50.0 * (target - motion.value) - 8.0 * motion.rate
    inputs = [evaluate(jc.OperationalSpace(**settings, posture=p), state) for p in (None, posture)]
    for u in inputs:
        np.testing.assert_allclose(
            motion.jacobian @ accelerations(mechanism, state, u) + motion.bias, wanted, rtol=0, atol=1e-10
        )
    assert float(jnp.max(jnp.abs(inputs[1] - inputs[0]))) > 1.0


def weight(mechanism):
    return jc.GravityCompensation(mechanism)


@pytest.mark.long
def test_laws_are_differentiated(closed_arm):
    """With redundant motors, at constant rank; forward and reverse, with respect to mass and reference."""
    mechanism, state = closed_arm
    hand = tip(mechanism, "hand", np.hypot(0.3, 0.3))

    def total(x):
        model = jd.tree.set_leaf(mechanism, "mass", mechanism.mass.at[3].mul(x[0]))
        law = jc.OperationalSpace(
            model=model, task=hand, reference=x[1:], kp=50.0, kd=8.0, posture=weight(model)
        )
        return jnp.sum(law(state.t, state) ** 2)

    x = jnp.array([1.1, 0.9, 0.4])
    both = jax.jit(jax.value_and_grad(total))
    reverse = both(x)[1]
    direction = jnp.array([0.3, -0.7, 0.5])
    forward = jax.jit(lambda x: jax.jvp(total, (x,), (direction,))[1])(x)
    np.testing.assert_allclose(forward, reverse @ direction, rtol=1e-9)
    differences = [central(lambda s, k=k: both(x.at[k].set(s))[0], x[k]) for k in range(3)]
    np.testing.assert_allclose(reverse, differences, rtol=1e-6)


# Messages.


def test_messages_about_names_and_inputs(open_arm):
    mechanism, state = open_arm
    with pytest.raises(ValueError, match=r"no coordinate 'rod9.theta'; available: rod0.x, rod0.y"):
        jc.Coordinates.named(mechanism, ("rod1.theta", "rod9.theta"))
    with pytest.raises(ValueError, match="name at least one coordinate"):
        jc.Coordinates.named(mechanism)
    with pytest.raises(ValueError, match=r"no body 'rod9'; available: rod0, rod1, rod2"):
        jc.BodyPoint.named(mechanism, "rod9", (0.0, 0.0))
    passive, _ = jm.planar_mechanism([jm.Body("b", mass=1.0, inertia=1.0)], [], [])
    with pytest.raises(ValueError, match="Mechanism has no inputs; give forces an input=k to read"):
        jc.input_matrix(passive, state)
    with pytest.raises(
        ValueError, match=r"JointArm does not define its number of inputs; give inputs=\.\.\."
    ):
        jc.static_inputs(JointArm(jnp.array(LENGTHS)), jd.State(0.0, jnp.zeros(3), jnp.zeros(3)))


def test_messages_about_laws(open_arm):
    mechanism, state = open_arm
    settings: dict[str, Any] = {"model": mechanism, "reference": 0.0, "kp": jnp.ones((3, 2)), "kd": 1.0}
    pid = jc.PID(model=mechanism, output=tip(mechanism), reference=0.0, kp=1.0, ki=1.0)
    with without_typechecker():
        with pytest.raises(
            ValueError, match=r"kp and kd must give one acceleration per output, shape \(2,\), got \(3,\)"
        ):
            jc.ComputedTorque(output=tip(mechanism), **{**settings, "kd": jnp.ones((3, 2))})(state.t, state)
        with pytest.raises(TypeError, match="PID has memory"):
            jc.OperationalSpace(task=tip(mechanism), **settings, posture=pid)(state.t, state)
