"""Arguments of functions of mechanisms: other systems, meaningless numbers, degrees, impossible motions."""

import warnings

import jax.numpy as jnp
import pytest
from all_cases import all_cases
from small_systems import without_typechecker

import jaxdae as jd
from jaxdae import control, models, robots
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.kinematics.closed_chains import problem_of

TARGET = jk.PoseTarget("base_link", position=(0.1, 0.1))
FUNCTIONS = {
    "inverse_kinematics": lambda m, s: jk.inverse_kinematics(m, TARGET, s),
    "forward_kinematics": lambda m, s: jk.forward_kinematics(m, {"base_link.x": 0.1}, s),
    "branches": lambda m, s: jk.branches(m, TARGET, s.q[None]),
    "follow": lambda m, s: jk.follow(m, lambda t: TARGET, s, jnp.zeros(1)),
    "workspace": lambda m, s: jk.workspace(m, lambda p: TARGET, jnp.zeros((1, 2)), s, ("base_link.x",)),
    "calibrate": lambda m, s: jk.calibrate(m, {"base_link.x": jnp.zeros(1)}, TARGET, s, ["joints.a.length"]),
    "transmission": lambda m, s: jk.transmission(m, s, TARGET, ("base_link.x",)),
    "actuator_efforts": lambda m, s: jk.actuator_efforts(m, s, s.v, ("base_link.x",)),
    "static_equilibrium": lambda m, s: jk.static_equilibrium(m, s),
    "reactions": lambda m, s: jm.reactions(m, s, s.v),
    "to_joints": lambda m, s: jm.to_joints(m, s),
    "to_absolute": lambda m, s: jm.to_absolute(m, s),
    "BodyPoint": lambda m, s: control.BodyPoint.named(m, "base_link", (0.0, 0.0)),
    "BodyFrame": lambda m, s: control.BodyFrame.named(m, "base_link"),
    "JointCoordinate": lambda m, s: control.JointCoordinate.named(m, "front_kingpin"),
    "terrain_report": lambda m, s: jv.terrain_report(m, s.q),
    "place_on_terrain": lambda m, s: jv.place_on_terrain(m, s.q, (0.0, 0.0), 0.0),
    "HeightLoads": lambda m, s: jv.HeightLoads(m).loads(s),
    "LoadTransfer": lambda m, s: jv.LoadTransfer(m, 0.5).loads(s),
    "joint_state": lambda m, s: robots.joint_state(m, s.q, {"front_kingpin": 0.1}),
    "center_of_mass": lambda m, s: robots.center_of_mass(m, s.q),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_order_mechanisms_and_wrappers_are_refused_by_name(name):
    robot, q = jm.kinematic_mechanism(jv.bicycle(1.2))
    state = jd.State(jnp.zeros(()), q, jnp.zeros(q.size))
    with (
        without_typechecker(),
        pytest.raises(TypeError, match="got KinematicMechanism; pass its field 'mechanism'"),
    ):
        FUNCTIONS[name](robot, state)
    with without_typechecker(), pytest.raises(TypeError, match="got Soft; pass its field 'system'"):
        FUNCTIONS[name](jd.Soft(robot.mechanism, 1.0), state)


def test_a_first_order_mechanism_has_no_reactions_and_no_inertia():
    robot, q = jm.kinematic_mechanism(jv.bicycle(1.2))
    state = jd.State(jnp.zeros(()), q, jnp.zeros(q.size))
    with pytest.raises(TypeError, match="has no reactions, because masses and forces do not affect"):
        jm.reactions(robot.mechanism, state, jnp.zeros(len(robot.mechanism.names.rows)))
    tool = jk.PoseTarget("base_link", position=(0.0, 0.0))
    assert jk.transmission(robot.mechanism, state, tool, ("base_link.x",)).inertia is None


def test_poses_do_not_determine_the_motion_of_rolling_wheels():
    robot, q = jm.kinematic_mechanism(jv.differential_drive(0.4, 0.1))
    for call in (
        lambda: jk.forward_kinematics(robot.mechanism, {"left_wheel.theta": 1.0}, q),
        lambda: jk.follow(robot.mechanism, lambda t: TARGET, q, jnp.zeros(1)),
    ):
        with pytest.raises(ValueError, match=r"rows of velocity level \(.*left.*\); simulate it"):
            call()


TIP = jk.PoseTarget("rod1", position=(0.05, 0.4), point=(0.175, 0.0))
MOTORS = ("motor1", "motor2")


def solved(target, **options):
    """Check the arguments of inverse kinematics of a five-bar."""
    linkage, start = models.five_bar()
    with without_typechecker():
        problem_of(linkage, target, start, options.get("limits"), options.get("weights"))


def transmitted(motors=MOTORS, **options):
    linkage, start = models.five_bar()
    with without_typechecker():
        jk.transmission(linkage, start, TIP, motors, **options)


def efforts(acceleration, motors=MOTORS, **options):
    linkage, start = models.five_bar()
    with without_typechecker():
        jk.actuator_efforts(linkage, start, acceleration, motors, **options)


@pytest.mark.long
@all_cases(
    ("call", "message"),
    [
        (lambda: solved((TIP, TIP), weights=(1.0, -1.0)), r"weights must be positive numbers, got -1\.0"),
        (lambda: solved(TIP, weights=(True,)), "weights must be positive numbers, got True"),
        (lambda: solved(TIP, limits={"motor1": (False, True)}), "lower <= upper"),
        (lambda: solved(TIP, limits={"motor1": jnp.array([3.0, 1.0])}), "lower <= upper"),
        (lambda: solved(jk.JointTarget({"motor1": True})), "'motor1' must be real numbers, got True"),
        (lambda: solved(jk.JointTarget({"motor1": "1.0"})), "'motor1' must be real numbers, got '1.0'"),
        (
            lambda: solved(jk.JointTarget({"motor1": 1.0, "motor1.angle": 2.0})),
            "'motor1.angle' is named twice",
        ),
        (lambda: solved(jk.PoseTarget("rod1", (True, False))), "position must be real numbers"),
        (lambda: transmitted(motor_stiffness=-1.0), r"motor_stiffness must be positive, got -1\.0"),
        (lambda: transmitted(("motor1", "motor1")), "'motor1' is named twice"),
        (lambda: efforts(jnp.zeros(4), weights=(-1.0, 1.0)), "weights must be positive"),
    ],
)
def test_meaningless_numbers_of_kinematics_are_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@all_cases(
    "call",
    [
        lambda: solved(jk.JointTarget({"motor1": 90})),
        lambda: solved(jk.PoseTarget("rod1", orientation=45.0)),
        lambda: solved(TIP, limits={"motor1": (-180, 180)}),
    ],
)
def test_angles_of_kinematics_in_degrees_have_a_warning(call):
    with pytest.warns(jm.DescriptionWarning, match="if it is in degrees, write"):
        call()


@pytest.mark.long
def test_efforts_of_an_impossible_acceleration_have_a_warning():
    with pytest.warns(jd.StateWarning, match="the acceleration violates the constraints"):
        efforts(jnp.ones(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        efforts(jnp.zeros(4))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_efforts_report_impossible_accelerations_of_any_size(size):
    """The hinges forbid an acceleration of the cranks about their mass centers; the gears allow it."""
    places = {"left": (0.0, 0.0, 0.0), "right": (3.0 * size, 0.0, 0.0)}
    bodies = [jm.Body(name, 1.0, 0.1 * size**2, pose) for name, pose in places.items()]
    hinges = [
        jm.Revolute(f"hinge of {name}", "ground", name, at=(place[0] + size, 0.0))
        for name, place in places.items()
    ]
    gears = jm.Gear("gears", "left", "right", ratio=-1.0)
    mechanism, q = jm.planar_mechanism(bodies, [*hinges, gears])
    state = jd.State(0.0, q, jnp.zeros(6))
    turning = jnp.array([0.0, 0.0, 1.0, 0.0, 0.0, -1.0])
    with pytest.warns(jd.StateWarning, match="the acceleration violates the constraints"):
        jk.actuator_efforts(mechanism, state, turning, ["left.theta"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        possible = jnp.array([0.0, -size, 1.0, 0.0, size, -1.0])
        jk.actuator_efforts(mechanism, state, possible, ["left.theta"])
