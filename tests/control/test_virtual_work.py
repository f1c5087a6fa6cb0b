"""The virtual-work map: closed forms, what transmits forces, least squares in both metrics, dependent motors,
derivatives.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from control_problems import arm, moving, parallel_arm

import jaxdae as jd
from jaxdae.control import BodyFrame, BodyPoint, Coordinates, JointCoordinate, VirtualWork, motor_efforts
from jaxdae.control.outputs import output_jacobian

METRICS = pytest.mark.parametrize("metric", [jd.Metric.EUCLIDEAN, jd.Metric.MASS])
efforts = jax.jit(motor_efforts)


@jax.jit
def mapped(motors, system, state, output, lam):
    """Returns the efforts in place of a force on an output, J_m and J_e; compiled once a mechanism."""
    goal = output_jacobian(system, state, output)
    return motors.efforts(system, state, goal, lam), motors.levers(system, state), goal


def hinges(mechanism, *names):
    return tuple(JointCoordinate.named(mechanism, name) for name in names)


def constraint_jacobian(system, state):
    return system.constraint_jacobian(state.t, state.q, state.v)


@pytest.fixture(scope="module")
def three_links():
    mechanism, state = arm((1.0, 0.8, 0.5), (0.7, -0.4, 1.9))
    motors = VirtualWork(hinges(mechanism, "hinge0", "hinge1", "hinge2"))
    return mechanism, state, motors


@pytest.fixture(scope="module")
def parallel():
    return parallel_arm()


@METRICS
@pytest.mark.parametrize("projected", [False, True])
def test_a_pendulum_gets_the_torque_of_the_force(metric, projected):
    # Off the circle too: the map is that of the place where the mass is.
    x, y, lam = 0.7, -1.1, jnp.array([2.0, -3.0])
    motor = jnp.array([[y, -x]]) / (x**2 + y**2)
    tau = efforts(
        motor,
        jnp.eye(2),
        lam,
        constraint_jacobian=jnp.array([[x, y]]) if projected else None,
        mass=jd.operators.DiagonalMatrix(jnp.array([3.0, 3.0])) if metric is jd.Metric.MASS else None,
    )
    np.testing.assert_allclose(tau, [y * lam[0] - x * lam[1]], rtol=1e-14)


@METRICS
def test_three_links_get_the_transposed_jacobian(three_links, metric):
    mechanism, state, motors = three_links
    motors = VirtualWork(motors.motors, metric=metric)
    q = np.asarray(state.q).reshape(3, 3)
    half = 0.5 * np.array([1.0, 0.8, 0.5])
    along = np.stack([np.cos(q[:, 2]), np.sin(q[:, 2])], axis=1) * half[:, None]
    joints, tip = q[:, :2] - along, q[2, :2] + along[2]
    wrench = np.array([2.0, -3.0, 0.7])
    frame = BodyFrame.named(mechanism, "rod2", (0.25, 0.0))
    lever = tip - joints
    for force in (wrench, wrench * [1.0, 1.0, 0.0]):
        tau, _, _ = mapped(motors, mechanism, state, frame, jnp.asarray(force))
        # Every joint carries the moment of the force about itself, and the torque.
        np.testing.assert_allclose(
            tau, lever[:, 0] * force[1] - lever[:, 1] * force[0] + force[2], rtol=0.0, atol=1e-11
        )


def test_without_the_constraints_the_bodies_transmit_nothing(three_links):
    """The force is on the last body, so motors of the first two joints look useless."""
    mechanism, state, motors = three_links
    point, lam = BodyPoint.named(mechanism, "rod2", (0.25, 0.0)), jnp.array([2.0, -3.0])
    with_them, jacobian, goal = mapped(motors, mechanism, state, point, lam)
    without, _, _ = mapped(VirtualWork(motors.motors, project=False), mechanism, state, point, lam)
    assert np.max(np.abs(with_them - without)) > 1.0
    np.testing.assert_allclose(
        without, np.linalg.lstsq(jacobian.T, goal.T @ lam, rcond=None)[0], rtol=0, atol=1e-13
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "metric", [pytest.param(jd.Metric.EUCLIDEAN, marks=pytest.mark.exhaustive), jd.Metric.MASS]
)
def test_work_is_that_of_the_goal(parallel, metric):
    """A closed loop with a motor too many: with all of the mobility driven, motors and goal have one power in
    every motion.
    """
    mechanism, state = parallel
    motors = VirtualWork(hinges(mechanism, "A", "D", "E", "F"), metric=metric)
    frame, lam = (
        BodyFrame.named(mechanism, mechanism.body_names[-1], (0.1, 0.05)),
        jnp.array([2.0, -3.0, 0.7]),
    )
    tau, levers, goal = mapped(motors, mechanism, state, frame, lam)
    for seed in range(3):
        v = moving(mechanism, state, seed).v
        np.testing.assert_allclose(tau @ levers @ v, lam @ goal @ v, rtol=1e-10)
    # The cranks of the parallelogram turn together, so that both motors do the same, and the shortest shares
    # it.
    np.testing.assert_allclose(tau[0], tau[1], rtol=1e-10)


@METRICS
@pytest.mark.parametrize("projected", [False, True])
def test_too_few_motors_do_what_comes_nearest(three_links, metric, projected):
    mechanism, state, _ = three_links
    point, lam = BodyPoint.named(mechanism, "rod2", (0.25, 0.0)), np.array([2.0, -3.0])
    motors = VirtualWork(hinges(mechanism, "hinge0", "hinge2"), metric=metric, project=projected)
    found = mapped(motors, mechanism, state, point, jnp.asarray(lam))
    tau, jacobian, goal, mass = (np.asarray(x) for x in (*found, mechanism.mass_matrix(state.q)))
    weight = np.linalg.inv(mass) if metric is jd.Metric.MASS else np.eye(9)
    if projected:
        basis = np.linalg.svd(np.asarray(constraint_jacobian(mechanism, state)))[2][6:].T
        inertia = basis.T @ mass @ basis if metric is jd.Metric.MASS else np.eye(3)
        weight = basis @ np.linalg.inv(inertia) @ basis.T
    # The normal equations of |J_m^T tau - J_e^T lam| in that weight.
    expected = np.linalg.solve(jacobian @ weight @ jacobian.T, jacobian @ weight @ goal.T @ lam)
    np.testing.assert_allclose(tau, expected, rtol=1e-11)


def test_a_full_mass_matrix_is_the_kinetic_metric_too(three_links):
    mechanism, state, motors = three_links
    jacobian = mapped(
        motors, mechanism, state, BodyPoint.named(mechanism, "rod2", (0.25, 0.0)), jnp.zeros(2)
    )[1]
    given = (jacobian[:2], jnp.eye(9)[6:8], jnp.array([1.0, 2.0]))
    mass = mechanism.mass_matrix(state.q)
    for constraints in (None, constraint_jacobian(mechanism, state)):
        diagonal = efforts(
            *given, constraint_jacobian=constraints, mass=jd.operators.DiagonalMatrix(jnp.diagonal(mass))
        )
        full = efforts(*given, constraint_jacobian=constraints, mass=mass)
        np.testing.assert_allclose(full, diagonal, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "metric", [jd.Metric.EUCLIDEAN, pytest.param(jd.Metric.MASS, marks=pytest.mark.exhaustive)]
)
def test_derivatives(metric):
    """Forward, reverse and central differences agree, with dependent constraints and dependent motors that
    are too few for the goal.
    """
    rng = np.random.default_rng(3)
    at, change = (
        [jnp.asarray(rng.normal(size=shape)) for shape in ((3, 2), (2, 6), (1, 6), (2, 6), (2,))]
        for _ in range(2)
    )
    mass = jd.operators.DiagonalMatrix(jnp.arange(1.0, 7.0)) if metric is jd.Metric.MASS else None

    def found(s):
        mix, motors, constraint, goal, lam = (x + s * dx for x, dx in zip(at, change, strict=True))
        rows = jnp.concatenate([constraint, 2.0 * constraint])
        return motor_efforts(mix @ motors, goal, lam, constraint_jacobian=rows, mass=mass)

    forward, reverse = jax.jit(lambda s: (jax.jacfwd(found)(s), jax.jacrev(found)(s)))(0.0)
    moved = jax.jit(jax.vmap(found))(jnp.array([1e-5, -1e-5]))
    np.testing.assert_allclose(forward, (moved[0] - moved[1]) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)


def test_the_tolerance_decides_what_is_dependent():
    nearly = jnp.array([[1.0, 0.0], [1.0, 1e-7]])
    tau = efforts(nearly, jnp.eye(2), jnp.array([2.0, 1e-7]))
    np.testing.assert_allclose(tau, [1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(
        efforts(nearly, jnp.eye(2), jnp.array([2.0, 1e-7]), rank_tolerance=1e-9), [1.0, 1.0], rtol=1e-6
    )
    np.testing.assert_allclose(
        efforts(nearly, jnp.eye(2), jnp.array([2.0, 3e-7]), rank_tolerance=1e-9), [-1.0, 3.0], rtol=1e-6
    )


def test_no_force_no_effort_and_no_direction_to_turn():
    # A force along the rod does no work about its hinge.
    gradient = jax.grad(lambda lam: efforts(jnp.array([[-1.0, 0.0]]), jnp.eye(2), lam)[0])(jnp.zeros(2))
    np.testing.assert_allclose(gradient, [-1.0, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_array_equal(efforts(jnp.zeros((1, 2)), jnp.eye(2), jnp.ones(2)), [0.0])


class TestMistakes:
    @all_cases(
        ("change", "message"),
        [
            (
                {"goal_jacobian": jnp.eye(3)},
                r"goal_jacobian must have shape \(rows, nv\) with equal nv",
            ),
            ({"motor_jacobian": jnp.zeros((0, 2))}, "motor_jacobian must have at least one row"),
            (
                {"goal_lam": jnp.ones(3)},
                r"goal_lam must have one entry per row of goal_jacobian, shape \(2,\), got \(3,\)",
            ),
            ({"constraint_jacobian": jnp.ones((1, 3))}, "constraint_jacobian must have shape"),
            ({"mass": jnp.eye(3)}, r"mass must have shape \(2, 2\), got \(3, 3\)"),
        ],
    )
    def test_of_arrays(self, change, message):
        given = {
            "motor_jacobian": jnp.ones((1, 2)),
            "goal_jacobian": jnp.eye(2),
            "goal_lam": jnp.ones(2),
            **change,
        }
        with pytest.raises(ValueError, match=message):
            motor_efforts(**given)

    def test_of_motors(self, three_links):
        mechanism, state, motors = three_links
        with pytest.raises(ValueError, match=r"VirtualWork\.motors must hold at least one output"):
            VirtualWork(()).jacobian(mechanism, state)
        with pytest.raises(ValueError, match=r"one row per motor, shape \(3, 9\), got \(1, 9\)"):
            VirtualWork(motors.motors, lever=lambda t, q: q[None]).levers(mechanism, state)
        with pytest.raises(ValueError, match=r"an output must return a vector, got shape \(\)"):
            VirtualWork((lambda q: q[0],)).jacobian(mechanism, state)

    def test_of_names(self, three_links):
        mechanism, _, _ = three_links
        with pytest.raises(
            ValueError, match="joint 'elbow' does not exist; available: hinge0, hinge1, hinge2"
        ):
            JointCoordinate.named(mechanism, "elbow")
        with pytest.raises(ValueError, match="no body 'hand'; available: rod0, rod1, rod2"):
            BodyFrame.named(mechanism, "hand")


@pytest.mark.long
def test_coordinates_of_joints_are_those_that_forces_act_on():
    """A slider on a turning arm, against its definition: the multiplier is then the effort of a `JointForce`."""
    jm = jd.mechanisms
    description = jm.Description(
        bodies=[jm.Body("arm", 1.0, 0.1, (0.0, 0.0, 0.3)), jm.Body("slider", 1.0, 0.1, (0.5, 0.2, 0.3))],
        joints=[
            jm.Revolute("pivot", jm.GROUND, "arm", at=(0.0, 0.0)),
            jm.Prismatic("rail", "arm", "slider", axis=(1.0, 0.0), point_a=(0.1, 0.0), point_b=(0.0, 0.05)),
            jm.Weld("glue", "arm", "slider", at=(0.0, 0.0)),
        ],
        forces=[jm.JointForce("motor", "rail", input=0), jm.JointForce("spin", "pivot", input=1)],
    )
    mechanism, q = jm.mechanism(description)
    at = jd.State(jnp.zeros(()), q, jnp.zeros(6))
    outputs = [JointCoordinate.named(mechanism, name) for name in ("rail", "pivot")]
    cos, sin = np.cos(0.3), np.sin(0.3)
    end = np.array([0.5 - 0.05 * sin, 0.2 + 0.05 * cos]) - 0.1 * np.array([cos, sin])
    np.testing.assert_allclose(outputs[0](q), [end @ [cos, sin]], rtol=1e-14)
    np.testing.assert_allclose(outputs[1](q), [0.3], rtol=1e-15)
    np.testing.assert_allclose(outputs[1](q), Coordinates.named(mechanism, "arm.theta")(q))
    both = VirtualWork(tuple(outputs))
    levers, effect = jax.jit(lambda m, at: (both.levers(m, at), jd.control.input_matrix(m, at)))(
        mechanism, at
    )
    np.testing.assert_allclose(levers, effect.T, rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="joint 'glue' has no coordinate; available: rail, pivot"):
        JointCoordinate.named(mechanism, "glue")
    # In joint coordinates those of the tree are entries of q, with all turns, and bodies are where they carry
    # them.
    tree, _ = jm.mechanism(dataclasses.replace(description, joints=description.joints[:2]), jm.Joints())
    of_joints = jd.State(jnp.zeros(()), jnp.array([7.0, 0.4]), jnp.zeros(2))
    q = jm.to_absolute(tree, of_joints).q
    np.testing.assert_allclose(
        [JointCoordinate.named(tree, name)(of_joints.q)[0] for name in ("pivot", "rail")],
        [7.0, 0.4],
        rtol=1e-14,
    )
    for kind in (BodyFrame, BodyPoint):
        of_tree, of_poses = (kind.named(m, "slider", (0.1, -0.2)) for m in (tree, mechanism))
        np.testing.assert_allclose(of_tree(of_joints.q), of_poses(q), rtol=1e-14)
