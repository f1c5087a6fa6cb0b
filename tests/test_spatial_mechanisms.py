"""Mechanisms in space: every joint and force against differences, the motions that joints leave, and the
errors of descriptions.
"""

import dataclasses
import functools
import pathlib
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import cast, state
from scipy.spatial.transform import Rotation
from spatial_joints import (
    AT,
    AXIS,
    BODIES,
    CONSERVATIVE,
    FORCES,
    FREE,
    HINGES,
    INERTIA,
    KINDS,
    NUMBERS,
    PLACES,
    SECOND,
    TURNS,
    wxyz,
)

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.matrices import BlockRows
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.build_mechanism import TYPES

EPS = np.finfo(float).eps


def test_every_type_has_a_row():
    joints, forces = TYPES["space"]
    # Relations and tendons are between joints: see test_joint_elements. Wheels stand on a terrain: see
    # test_wheels_in_space. Spheres roll on surfaces in test_sphere_on_surface. Free joints have no rows.
    wheels = {"rolling_disc", "rolling_sphere", "sliding_disc", "sliding_sphere", "sphere_on_surface"}
    elsewhere = {"free", "relation", "tendon_relation", *wheels}
    assert {kind.type_key() for kind in joints} == {
        kind("j", "left", "right").type_key() for kind in KINDS.values()
    } | elsewhere
    # Tires do so, too: see test_height_loads.
    listed = {force.type_key() for elements in FORCES.values() for force in elements} | {
        "brush_tire",
        "magic_formula_tire",
        "tendon",
    }
    assert {kind.type_key() for kind in forces} == listed


# A few types: one with two axes, one with a thread, one at velocity level.
ALL, FEW = tuple(KINDS), ("universal", "screw", "gear")


@functools.cache
def everything(keys=ALL):
    """Returns a mechanism with joints of many types at once, between two bodies and on one and the ground,
    and its start pose.
    """
    pairs = ("left", "right"), ("ground", "right")
    return jm.spatial_mechanism(BODIES, [KINDS[key](f"{key} {a}", a, b) for key in keys for a, b in pairs])


def rows_of(key, a=None):
    """Returns which rows are those of the joints of a type, at position level and at velocity level counted
    together.
    """
    names = [name.split(".")[0] for name in everything()[0].names.rows]
    return np.array([name.split() == [key, a] if a else name.split()[0] == key for name in names])


def wild(mechanism, q):
    """Returns a state near q where no joint holds and everything moves."""
    numbers = jnp.arange(float(len(mechanism.names.velocities)))
    return state(mechanism.retract(q, 0.1 * jnp.cos(numbers)), jnp.sin(1.0 + numbers), 0.6)


@functools.cache
def compiled(keys=ALL):
    """Returns (t, q, v) -> rows of positions and of velocities, J, rates and biases of all joints."""
    mechanism, _ = everything(keys)

    @jax.jit
    def values(t, q, v):
        return mechanism.constraint(t, q), mechanism.velocity_constraint(t, q, v)

    @jax.jit
    def terms(t, q, v):
        return (
            mechanism.constraint_jacobian(t, q, v),
            mechanism.constraint_rate(t, q, v),
            mechanism.constraint_bias(t, q, v),
        )

    return values, terms


# Differences of fourth order at steps where truncation and round-off both are below 1e-9 of numbers of size 1
# to 10; of second ones 1e-7.
STEP, LONG_STEP = 5e-4, 2e-3
NEAR, LESS_NEAR = {"rtol": 1e-9, "atol": 1e-9}, {"rtol": 1e-7, "atol": 1e-7}


@functools.cache
def derivatives():
    """Returns J, rates and biases, and what differences say of them: {what: (ours, differences, tolerance)},
    with rows first.
    """
    mechanism, start = everything()
    at, values = wild(mechanism, start), compiled()[0]
    retract = jax.jit(mechanism.retract)

    def along(s, xi, t=0.0):
        """All rows after a way s along xi at a constant v, and t s later."""
        return np.concatenate(values(at.t + t * s, retract(at.q, s * xi), at.v))

    def slope(xi, t=0.0):
        f = {k: along(k * STEP, xi, t) for k in (-2, -1, 1, 2)}
        return (8.0 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12.0 * STEP)

    f = {k: along(k * LONG_STEP, at.v, 1.0) for k in (-2, -1, 0, 1, 2)}
    bend = (16.0 * (f[1] + f[-1]) - (f[2] + f[-2]) - 30.0 * f[0]) / (12.0 * LONG_STEP**2)
    jacobian, rate, bias = compiled()[1](at.t, at.q, at.v)
    holding, drift = len(rate), slope(at.v, 1.0)
    basis = jnp.eye(12)
    columns = [slope(e) for e in basis]
    # Affine in v.
    pushed = [values(at.t, at.q, at.v + e)[1] - values(at.t, at.q, at.v)[1] for e in basis]
    expected = np.stack(
        [np.concatenate([c[:holding], p]) for c, p in zip(columns, pushed, strict=True)], axis=1
    )
    return {
        "jacobian": (jacobian, expected, NEAR),
        "rate": (rate, drift[:holding], NEAR),
        "bias": (bias, np.concatenate([bend[:holding], drift[holding:]]), LESS_NEAR),
    }


def element_of(name):
    """Returns a joint of the mechanism of everything, and the numbers of its bodies."""
    groups = everything()[0].joints.values()
    (found,) = [
        (jax.tree.map(lambda x, k=k: x[k], group), group, k)
        for group in groups
        for k, n in enumerate(group.names)
        if n == name
    ]
    joint, group, k = found
    return joint, group.a[k], group.b[k]


def moved(key, numbers):
    """Returns q with "right" moved along the freedoms of its joint with "left"."""
    joint, _, _ = element_of(f"{key} left")
    point, axes = (
        (np.asarray(joint.point_a), np.eye(3)) if "point_a" in joint.kinds() else (np.zeros(3), np.eye(3))
    )
    behind = np.eye(3)
    if "axes_a" in joint.kinds():
        axes, behind = (
            np.asarray(joint.axes_a),
            np.eye(3) if joint.axes_b is None else np.asarray(joint.axes_b),
        )
    turn, place = FREE[key].motion(*numbers)
    left = TURNS["left"].as_matrix()
    right = left @ axes @ turn.as_matrix() @ behind.T
    center = (
        np.asarray(PLACES["left"])
        + left @ (point + axes @ np.asarray(place, float))
        - right @ np.asarray(joint.point_b)
    )
    pose = np.concatenate([center, wxyz(Rotation.from_matrix(right))])
    return jnp.concatenate([everything()[1][:7], jnp.asarray(pose)])


def coordinates_of(key, q):
    """Returns the coordinates of the joint of a type between the two bodies."""
    frames = everything()[0].frames(q)
    joint, a, b = element_of(f"{key} left")
    a, b = (type(frames)(*(entry[k] for entry in frames)) for k in (a, b))
    return np.array(joint.coordinate(a, b, 0.0), float)


@pytest.mark.long
@pytest.mark.parametrize("key", KINDS)
def test_derived_terms_of_joints_are_differences(key):
    rows = rows_of(key)
    for what, (ours, differences, tolerance) in derivatives().items():
        chosen = rows[: len(differences)]
        np.testing.assert_allclose(np.asarray(ours)[chosen], differences[chosen], **tolerance, err_msg=what)
    assert np.all(np.max(np.abs(derivatives()["jacobian"][1][rows]), axis=1) > 1e-3), "no row is idle"


class TestFreedoms:
    @pytest.mark.long
    @pytest.mark.parametrize("key", FREE)
    def test_rows_hold_at_the_start_pose_and_leave_so_many_freedoms(self, key):
        (positions, _), (jacobian, _, _) = (
            f(jnp.zeros(()), everything()[1], jnp.zeros(12)) for f in compiled()
        )
        np.testing.assert_allclose(
            np.asarray(positions)[rows_of(key)[: len(positions)]], 0.0, rtol=0, atol=20 * EPS
        )
        between = rows_of(key, "left")
        assert np.sum(between) == 6 - FREE[key].freedoms
        # Moving b alone, and moving a alone, takes as many rows; both together as one body takes none.
        ours = np.asarray(jacobian)[between]
        for columns in (ours[:, :6], ours[:, 6:]):
            assert np.linalg.matrix_rank(columns, 1e-9) == len(ours)

    @pytest.mark.parametrize("key", FREE)
    def test_rows_stay_zero_along_the_freedoms(self, key):
        check_freedoms(key, np.array(NUMBERS[: FREE[key].numbers]))


@pytest.mark.parametrize("key", ["screw", "rack_and_pinion"])
def test_rows_stay_zero_for_many_turns(key):
    check_freedoms(key, np.array([20.0, *NUMBERS[1 : FREE[key].numbers]]))


def check_freedoms(key, numbers):
    """Moves b along the freedoms of its joint, and then a little against them."""
    q = moved(key, numbers)
    positions = np.asarray(compiled()[0](jnp.zeros(()), q, jnp.zeros(12))[0])
    rows = rows_of(key, "left")[: len(positions)]
    np.testing.assert_allclose(positions[rows], 0.0, rtol=0, atol=50 * EPS)
    measured = FREE[key].measured
    if measured:
        np.testing.assert_allclose(coordinates_of(key, q), numbers[:measured], rtol=1e-12)
    away = everything()[0].retract(q, jnp.zeros(12).at[6:].set(0.01 * jnp.arange(1.0, 7.0)))
    assert np.max(np.abs(np.asarray(compiled()[0](jnp.zeros(()), away, jnp.zeros(12))[0])[rows])) > 1e-4


@pytest.mark.long
def test_prescribed_coordinates_count_from_the_start_pose():
    """The row is the coordinate less the motion, and full turns do not matter."""
    t = jnp.asarray(0.7)
    for way, turns in ((0.1 + 0.4 * 0.7 + 0.3 * 0.49, 0), (0.3, 1)):
        angle = 0.4 * np.sin(2.0 * np.pi * 0.3 * 0.7 + 0.2)
        q = moved("cylindrical", (way, angle + 2.0 * np.pi * turns))
        positions = np.asarray(compiled()[0](t, q, jnp.zeros(12))[0])
        for key, expected in (
            ("prescribed_motion", 0.0),
            ("prescribed_slide", way - (0.1 + 0.4 * 0.7 + 0.3 * 0.49)),
        ):
            np.testing.assert_allclose(
                positions[rows_of(key, "left")[: len(positions)]], expected, rtol=0, atol=1e-14
            )
    units = dict(zip(everything()[0].names.rows, everything()[0].names.row_units, strict=True))
    assert (units["prescribed_motion left.angle"], units["prescribed_slide left.slide"]) == ("rad", "m")


@pytest.mark.parametrize("key", ["gear", "bevel_gear"])
def test_wheels_turn_at_their_ratio(key):
    """Of a gear against the ground; of a bevel gear against a carrier, however that turns."""
    _, q = everything()
    ratio, spin = -1.7, 2.3
    axis_a, axis_b = np.array([0.0, 0.6, 0.8]), np.array([1.0, 0.0, 1.0]) / np.sqrt(2.0)
    carrier = np.zeros(3) if key == "gear" else np.array([0.4, -1.2, 0.7])
    spins = [spin * TURNS["left"].apply(axis_a), ratio * spin * TURNS["right"].apply(axis_b)]
    # A gear looks along its axes only: spins of the bodies about others do not matter.
    omega = [
        TURNS[body].inv().apply(carrier + spin) for body, spin in zip(("left", "right"), spins, strict=True)
    ]
    v = jnp.asarray(np.concatenate([[1.0, 2.0, 3.0], omega[0], [3.0, 1.0, 2.0], omega[1]]))
    velocities = np.asarray(compiled()[0](jnp.zeros(()), q, v)[1])
    rows = rows_of(key, "left")[-len(velocities) :]
    np.testing.assert_allclose(velocities[rows], 0.0, rtol=0, atol=1e-14)
    faster = v.at[9:].add(0.1 * jnp.asarray(axis_b))
    np.testing.assert_allclose(np.asarray(compiled()[0](jnp.zeros(()), q, faster)[1])[rows], 0.1, rtol=1e-12)


@pytest.mark.long
def test_tangent_steps_have_the_rate_of_their_difference():
    joints = [
        js.Revolute("hinge", "ground", "left", axis=(0.0, 0.6, 0.8), at=(0.1, 0.2, 0.3)),
        js.Ball("ball", "left", "right", at=(0.3, 0.1, -0.2)),
    ]
    for coordinates in (jm.Absolute(), jm.Joints()):
        mechanism, q = jm.spatial_mechanism(BODIES, joints, coordinates=coordinates)
        xi, v = (jnp.sin(a + jnp.arange(float(len(mechanism.names.velocities)))) for a in (1.0, 2.0))
        for system in (mechanism, jd.Masked(mechanism, jnp.zeros(len(mechanism.names.rows), bool))):
            there = jax.jit(lambda s, m=mechanism: m.difference(q, m.retract(m.retract(q, xi), s * v)))  # noqa: B023
            rate = jax.jvp(there, (0.0,), (1.0,))[1]
            np.testing.assert_allclose(system.step_rate(q, xi, v), rate, rtol=0, atol=100 * EPS)
    # Of another retract nothing is known.
    given = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    assert Backward(**given).step_rate(q, xi, v) is None


@jd.tree.pytree(kw_only=True)
class Backward(jm.Mechanism):
    """A mechanism that moves the other way round."""

    def retract(self, q, xi):
        return super().retract(q, -xi)


@pytest.mark.long
def test_blocks_are_the_matrix():
    mechanism, q = everything(FEW)
    given = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    blocks, at = Blocks(**given), wild(mechanism, q)
    operator = jax.jit(lambda t, q, v: blocks.jacobian_operator(t, q, v))(at.t, at.q, at.v)
    assert isinstance(operator, BlockRows)
    np.testing.assert_allclose(
        operator.as_dense(), compiled(FEW)[1](at.t, at.q, at.v)[0], rtol=1e-13, atol=1e-13
    )


@jd.tree.pytree(kw_only=True)
class Blocks(jm.Mechanism):
    """A mechanism whose J is always blocks."""

    blocks_from: ClassVar[int] = 0


# Forces.


def wrenches(forces, *, v=True, joints=(), u=None):
    """Returns a wild state of two bodies in it, and the wrenches of forces alone (bodies, 6) there: in the
    world, about the origin.
    """
    mechanism, q = jm.spatial_mechanism(BODIES, joints, forces, gravity=(0.0, 0.0, 0.0))
    free, _ = jm.spatial_mechanism(BODIES, [], gravity=(0.0, 0.0, 0.0))
    at = wild(mechanism, q)
    at = at if v else dataclasses.replace(at, v=jnp.zeros(12))
    f = jax.jit(mechanism.force)(at.t, at.q, at.v, u) - free.force(at.t, at.q, at.v, None)
    return mechanism, at, np.array(f).reshape(2, 6)


def about_origin(at, f):
    """Returns forces and torques (bodies, 3) in the world about the origin."""
    poses = np.array(at.q).reshape(2, 7)
    turns = Rotation.from_quat(np.roll(poses[:, 3:], -1, axis=1))
    return f[:, :3], turns.apply(f[:, 3:]) + np.cross(poses[:, :3], f[:, :3])


def motion_of(at):
    """Returns places, rotations, velocities and angular velocities in the world of both bodies."""
    poses, v = np.array(at.q).reshape(2, 7), np.array(at.v).reshape(2, 6)
    turns = Rotation.from_quat(np.roll(poses[:, 3:], -1, axis=1))
    return poses[:, :3], turns, v[:, :3], turns.apply(v[:, 3:])


@pytest.mark.exhaustive
def test_conservative_forces_are_minus_the_gradient_of_their_energy():
    """All at once: an error of one would have to be that of another to pass."""
    forces = [force for key in CONSERVATIVE for force in FORCES[key]]
    mechanism, at, f = wrenches(forces, v=False, joints=HINGES)

    @jax.jit
    @jax.grad
    def gradient(xi):
        return mechanism.potential_energy(at.t, mechanism.retract(at.q, xi))

    np.testing.assert_allclose(f.reshape(-1), -gradient(jnp.zeros(12)), rtol=1e-12, atol=1e-12)
    assert np.max(np.abs(f)) > 0.1
    assert all(
        force.conserves_energy for key in CONSERVATIVE if key != "joint_force" for force in FORCES[key]
    )


@pytest.mark.long
def test_forces_between_bodies_balance():
    """All at once, with numbers of their own each: what one of them leaves, no other takes away."""
    of_bodies = [force for key in FORCES if key not in ("force", "drag") for force in FORCES[key]]
    inner = [force for force in of_bodies if hasattr(force, "joint") or force.a == "left"]
    _, at, f = wrenches(inner, joints=HINGES, u=jnp.array([0.3, -0.7]))
    # The joints are damped, which balances as well.
    for total in (np.sum(x, axis=0) for x in about_origin(at, f)):
        np.testing.assert_allclose(total, 0.0, rtol=0, atol=1e-13)
    assert np.max(np.abs(f)) > 0.1


@pytest.mark.long
def test_forces_and_torques_have_their_directions():
    forces = [
        js.Force(
            "wind", "left", point=(0.1, 0.2, -0.3), force=(1.0, -2.0, 0.5), input=1, direction=(0.5, 0.0, 2.0)
        ),
        js.Force("thrust", "right", point=(0.1, 0.2, -0.3), force=(0.3, 0.4, -1.0), input=0, body_frame=True),
        js.Torque("wheel", "left", "right", (1.0, -2.0, 0.5), input=1, direction=(0.0, 1.0, 2.0)),
        js.Torque(
            "turning wheel",
            "ground",
            "left",
            (1.0, -2.0, 0.5),
            input=2,
            direction=(0.0, 1.0, 2.0),
            body_frame=True,
        ),
    ]
    u = np.array([0.3, -0.7, 0.9])
    mechanism, at, f = wrenches(forces, u=jnp.asarray(u))
    assert mechanism.n_inputs == 3
    assert not any(force.conserves_energy for force in forces[1:])
    _, (left, right), _, _ = motion_of(at)
    wind = np.array([1.0, -2.0, 0.5]) + u[1] * np.array([0.5, 0.0, 2.0])
    thrust = np.array([0.3, 0.4, -1.0]) + u[0] * np.array([1.0, 0.0, 0.0])
    torque, turning = (np.array([1.0, -2.0, 0.5]) + x * np.array([0.0, 1.0, 2.0]) for x in (u[1], u[2]))
    point = np.array([0.1, 0.2, -0.3])
    expected = [
        [*wind, *(np.cross(point, left.inv().apply(wind)) - left.inv().apply(torque) + turning)],
        [*right.apply(thrust), *(np.cross(point, thrust) + right.inv().apply(torque))],
    ]
    np.testing.assert_allclose(f, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.long
def test_dampers_take_the_power_that_they_should():
    """Of each: -c times the square of the rate, of the drag (linear + quadratic |v|) v^2."""
    place, turns, velocity, omega = motion_of(wrenches([])[1])
    spin = omega[1] - omega[0]
    point = velocity[1] + np.cross(omega[1], turns[1].apply([0.1, 0.2, -0.3]))
    speed = np.linalg.norm(point)
    # The springs and the bushing hold at the start pose, from which the wild one differs.
    forces = {
        "oil": (FORCES["rotational_damper"], -0.7 * spin @ spin),
        "air": (FORCES["drag"], -(0.3 + 0.7 * speed) * speed**2),
        "shock absorber": (
            [js.LinearSpring("s", "left", "right", point_a=(0, 0, 0.1), point_b=(0.2, 0, 0), damping=0.6)],
            None,
        ),
    }
    for name, (elements, power) in forces.items():
        _, at, f = wrenches(elements)
        if power is None:
            ends = place[0] + turns[0].apply([0, 0, 0.1]), place[1] + turns[1].apply([0.2, 0, 0])
            rates = (
                velocity[0] + np.cross(omega[0], ends[0] - place[0]),
                velocity[1] + np.cross(omega[1], ends[1] - place[1]),
            )
            along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
            power = -0.6 * ((rates[1] - rates[0]) @ along) ** 2
        np.testing.assert_allclose(np.asarray(at.v) @ f.reshape(-1), power, rtol=1e-12, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize(
    "key",
    [
        "bushing",
        *(
            pytest.param(key, marks=[] if key in ("cylindrical", "screw") else pytest.mark.exhaustive)
            for key in FREE
            if FREE[key].measured
        ),
    ],
)
def test_bushings_and_joints_are_damped_along_their_coordinates(key):
    """The power is -c times the squares of the rates of the coordinates, which differences give."""
    damping, turning = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    forces = (
        [js.Bushing("rubber", "left", "right", AT, damping=damping, rotational_damping=turning)]
        if key == "bushing"
        else []
    )
    mechanism, at, f = wrenches(forces, joints=[] if forces else [KINDS[key](key, "left", "right")])
    (group,) = (mechanism.forces if forces else mechanism.joints).values()
    element = jax.tree.map(lambda x: x[0], group)

    @jax.jit
    def rate(s):
        def coordinate(s):
            frames = mechanism.frames(mechanism.retract(at.q, s * at.v))
            a, b = (type(frames)(*(entry[k] for entry in frames)) for k in range(2))
            return jnp.stack(element.coordinate(a, b, 0.0))

        return jax.jvp(coordinate, (s,), (jnp.ones_like(s),))[1]

    c = np.concatenate([damping, turning]) if forces else np.asarray(group.damping)[0]
    np.testing.assert_allclose(
        np.asarray(at.v) @ f.reshape(-1), -np.sum(c * np.asarray(rate(jnp.zeros(()))) ** 2), rtol=1e-11
    )


@pytest.mark.long
def test_a_driven_joint_takes_the_power_of_its_motor():
    """A constant torque and an input, along a coordinate whose rate is known on the joint's freedoms."""
    (joint,) = [KINDS["cylindrical"]("shaft", "left", "right")]
    joint = dataclasses.replace(joint, damping=0.0)
    for along, rate in (("slide", 0.6), ("angle", -1.3), (None, 0.6)):
        motor = js.JointForce("motor", "shaft", 0.4, input=0, gain=2.0, along=along)
        mechanism, q = jm.spatial_mechanism(BODIES, [joint], [motor], gravity=(0.0, 0.0, 0.0))
        at = state(q, np.zeros(12))
        axis = np.array(AXIS) / np.linalg.norm(AXIS)
        omega = -1.3 * axis
        center = 0.6 * axis + np.cross(omega, np.array(PLACES["right"]) - AT)
        v = np.concatenate([np.zeros(6), center, TURNS["right"].inv().apply(omega)])
        power = v @ np.asarray(mechanism.force(at.t, at.q, at.v, jnp.array([0.7])))
        np.testing.assert_allclose(power, (0.4 + 2.0 * 0.7) * rate, rtol=1e-12)


# Bodies.

ROD = Rotation.from_rotvec([0.3, 0.8, -0.5])


def hanging(bodies):
    """Returns a mechanism with most that there is, hung up on the ground, and its start."""
    joints = [
        js.Revolute("hinge", "ground", "left", AXIS, (0.1, 0.0, 0.2), damping=0.1),
        js.Universal("cross", "left", "right", AXIS, SECOND, AT),
    ]
    forces = [
        js.LinearSpring(
            "spring",
            "ground",
            "right",
            (1.0, 0.0, 0.0),
            (0.1, 0.2, 0.3),
            stiffness=3.0,
            damping=0.3,
            rest_length=0.4,
        ),
        js.Force("thrust", "left", AT, force=(0.3, 0.4, -1.0)),
        js.Bushing(
            "rubber", "left", "right", AT, stiffness=(1.0, 2.0, 3.0), rotational_stiffness=(0.4, 0.5, 0.6)
        ),
    ]
    return jm.spatial_mechanism(bodies, joints, forces)


@jax.jit
def accelerated(mechanism, q, v):
    """Returns v moved onto the constraints, accelerations and multipliers."""
    at = jd.State(jnp.zeros((), q.dtype), q, v)
    a, lam = jd.forward_dynamics(mechanism, at, solver=jd.DenseKKT())
    return a, lam, mechanism.kinetic_energy(q, v), mechanism.potential_energy(at.t, q)


V = jnp.sin(1.0 + jnp.arange(12.0))


# The next test compares moments with a matrix, too.
@pytest.mark.exhaustive
def test_moments_and_matrices_of_inertia_are_the_same():
    left, right = BODIES
    plain = dataclasses.replace(right, inertia=(0.30, 0.41, 0.52))
    forms = [
        [left, plain],
        [left, dataclasses.replace(plain, inertia=np.diag([0.30, 0.41, 0.52]))],
        [
            dataclasses.replace(left, inertia=np.diag([0.2, 0.3, 0.4])),
            dataclasses.replace(plain, inertia=np.diag([0.30, 0.41, 0.52])),
        ],
    ]
    found, shapes = [], []
    for bodies in forms:
        mechanism, q = hanging(bodies)
        shapes.append(mechanism.inertia.shape)
        found.append(accelerated(mechanism, q, V))
        np.testing.assert_allclose(mechanism.mass_operator(q).as_dense(), mechanism.mass_matrix(q), rtol=0)
    assert shapes == [(2, 3), (2, 3, 3), (2, 3, 3)]
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.long
def test_axes_of_the_description_do_not_matter():
    """The same bodies in other frames of theirs: other quaternions, inertias and angular velocities, the same
    motion.
    """
    turn = ROD.as_matrix()
    left, right = BODIES
    turned = [
        dataclasses.replace(
            left, quaternion=wxyz(TURNS["left"] * ROD), inertia=turn.T @ np.diag([0.2, 0.3, 0.4]) @ turn
        ),
        # A quaternion of the other sign.
        dataclasses.replace(
            right, quaternion=-wxyz(TURNS["right"] * ROD), inertia=turn.T @ np.array(INERTIA) @ turn
        ),
    ]
    both = jax.scipy.linalg.block_diag(np.eye(3), turn, np.eye(3), turn)
    (ours, q), (theirs, p) = hanging(BODIES), hanging(turned)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(p).reshape(2, 7)[:, 3:], axis=1), 1.0, rtol=1e-15)
    a, lam, kinetic, potential = accelerated(ours, q, V)
    b, same_lam, same_kinetic, same_potential = accelerated(theirs, p, both.T @ V)
    np.testing.assert_allclose(both @ b, a, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(same_lam, lam, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose([same_kinetic, same_potential], [kinetic, potential], rtol=1e-13)


@all_cases(
    "key",
    [
        key
        for key in FREE
        if "point_a" in {f.name for f in dataclasses.fields(FREE[key].joint("j", "left", "right"))}
    ],
)
def test_places_in_the_world_and_in_the_bodies_are_the_same(key):
    """Where a description has places and axes in the bodies, nothing is taken from the start pose."""
    joint, _, _ = element_of(f"{key} left")
    names = {field.name for field in dataclasses.fields(joint)} & {
        "point_a",
        "point_b",
        "axes_a",
        "axes_b",
        "length",
        "offset",
    }
    unset = dict.fromkeys(
        {"at", "at_a", "at_b", "axis", "second", "pinion_axis"}
        & {field.name for field in dataclasses.fields(joint)}
    )
    # Points on lines and planes have no axes in b, which matter in a tree only.
    given = {
        name: np.eye(3) if getattr(joint, name) is None else np.asarray(getattr(joint, name))
        for name in names
    }
    told = dataclasses.replace(KINDS[key](f"{key} left", "left", "right"), **unset, **given)
    elsewhere = [
        BODIES[0],
        dataclasses.replace(BODIES[1], place=(0.0, 0.0, 0.0), quaternion=(0.1, 0.5, 0.5, 0.7)),
    ]
    mechanism, _ = jm.spatial_mechanism(elsewhere, [told])
    (group,) = mechanism.joints.values()
    for x, y in zip(
        jax.tree.leaves(jax.tree.map(lambda x: x[0], group)), jax.tree.leaves(joint), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-14)


def test_axes_are_quaternions_or_matrices():
    turn = Rotation.from_rotvec([0.3, 0.8, -0.5])
    forms = [wxyz(turn), -2.0 * wxyz(turn), turn.as_matrix()]
    for form in forms:
        joint = js.Revolute(
            "j", "left", "right", point_a=(0, 0, 0), point_b=(0, 0, 0), axes_a=form, axes_b=np.eye(3)
        )
        mechanism, _ = jm.spatial_mechanism(BODIES, [joint])
        np.testing.assert_allclose(
            mechanism.joints["revolute"].axes_a[0], turn.as_matrix(), rtol=1e-14, atol=1e-15
        )


# Where formulas of rotations divide by zero.


@functools.partial(jax.jit, static_argnames="bias")
@functools.partial(jax.grad, argnums=(0, 1, 2))
def gradient(mechanism, q, v, bias):
    """Returns the gradients of a sum of what a mechanism says of q and v."""
    t = jnp.zeros((), q.dtype)
    at = mechanism.evaluate(t, q, v)
    parts = [at.jacobian.as_dense(), at.position, at.force()]
    parts += [mechanism.potential_energy(t, q), mechanism.retract(q, v)]
    if bias:
        parts.append(at.bias)
    return sum(jnp.sum(jnp.sin(1.0 + x)) for x in parts)


ORIGIN = {"point_a": (0.0, 0.0, 0.0), "point_b": (0.0, 0.0, 0.0)}
UNTURNED = {"axes_a": np.eye(3), "axes_b": np.eye(3)}


def at_the_origin(key):
    """Returns the joint of a type with all points at the origins of its bodies, and with their axes."""
    joint = KINDS[key](key, "left", "right")
    names = {field.name for field in dataclasses.fields(joint)}
    unset = dict.fromkeys({"at", "at_a", "at_b", "axis", "second"} & names)
    given = {**ORIGIN, **(UNTURNED if "axes_a" in names else {}), **({"length": 1.0} if key == "rod" else {})}
    return dataclasses.replace(joint, **unset, **given)


ONE, MORE = ("ball",), ("screw",)
OTHERS = ("revolute", "prismatic", "universal", "rod", "constant_velocity")


@pytest.mark.parametrize(
    "keys",
    [
        ONE,
        pytest.param(MORE, marks=pytest.mark.long),
        pytest.param(OTHERS, marks=pytest.mark.exhaustive),
    ],
    ids=["one", "more", "others"],
)
@pytest.mark.parametrize("turn", [0.0, np.pi], ids=["identity", "half_turn"])
def test_gradients_are_finite_at_identity_and_at_half_turns(turn, keys):
    """At rest with all ends of springs in one point, unturned or with one body at half a turn about the axis
    of the hinge.
    """
    bodies = [js.Body("left", 1.0, (0.2, 0.3, 0.4)), js.Body("right", 1.0, INERTIA, (0.0, 0.0, 0.0))]
    forces = [
        js.LinearSpring("spring", "left", "right", **ORIGIN, stiffness=3.0, damping=0.3, rest_length=0.4)
    ]
    if keys != ONE:
        forces.append(js.JointForce("motor", keys[0], 0.1, stiffness=2.0, along="angle"))
    if keys == OTHERS:
        forces.append(js.Drag("air", "right", point=(0.0, 0.0, 0.1), linear=0.1, quadratic=0.2))
        forces.append(
            js.Bushing(
                "rubber",
                "left",
                "right",
                **ORIGIN,
                **UNTURNED,
                stiffness=(1, 2, 3),
                rotational_damping=(1, 2, 3),
            )
        )
    mechanism, q = jm.spatial_mechanism(bodies, [at_the_origin(key) for key in keys], forces)
    # The quaternion of a half turn has w = 0.
    q = q.at[10:].set(jnp.array([np.cos(turn / 2), 0.0, 0.0, np.sin(turn / 2)]).round(15))
    for leaf in jax.tree.leaves(gradient(mechanism, q, jnp.zeros(12), len(keys) > 1)):
        assert np.all(np.isfinite(leaf))


@pytest.mark.long
def test_single_precision_stays_single():
    mechanism, q = everything()
    moving, p = jm.spatial_mechanism(BODIES, HINGES, [force for kind in FORCES for force in FORCES[kind]])
    for system, start in ((mechanism, q), (moving, p)):
        system, at = cast((system, wild(system, start)), jnp.float32)
        u = jnp.zeros(system.n_inputs, jnp.float32)
        for function, arguments in (
            (system.constraint_rate, (at.t, at.q, at.v)),
            (system.velocity_constraint, (at.t, at.q, at.v)),
            (jd.energy, (system, at)),
            (system.force, (at.t, at.q, at.v, u)),
            (system.mass_matrix, (at.q,)),
            (system.retract, (at.q, at.v)),
            (system.difference, (at.q, at.q)),
        ):
            assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(function, *arguments))} == {
                jnp.dtype(jnp.float32)
            }


# Descriptions that are wrong.


def messages(bodies=BODIES, joints=(), forces=(), **options):
    with pytest.raises(ValueError, match="spatial_mechanism") as caught:
        jm.spatial_mechanism(bodies, joints, forces, **options)
    return str(caught.value)


def body(**numbers):
    return [dataclasses.replace(BODIES[0], **numbers), BODIES[1]]


WRONG_BODIES = {
    "must be four finite numbers (w, x, y, z) that are not all zero": {"quaternion": (0.0, 0.0, 0.0, 0.0)},
    "(w, x, y, z) that are not all zero, got (1.0, nan, 0.0, 0.0)": {"quaternion": (1.0, np.nan, 0.0, 0.0)},
    "must be symmetric": {"inertia": [[1.0, 0.1, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]},
    "must be positive definite": {"inertia": (1.0, -1.0, 1.0)},
    "with principal moments": {"inertia": [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]},
    "three principal moments or a matrix (3, 3)": {"inertia": 1.0},
    "mass must be a positive number": {"mass": 0.0},
    "quaternion must have a nonzero length that does not underflow, got (1e-200, 0, 0, 0)": {
        "quaternion": (1e-200, 0, 0, 0)
    },
    "place must be three finite numbers (x, y, z)": {"place": (0.0, 0.0)},
}


@all_cases("message", WRONG_BODIES)
def test_wrong_bodies(message):
    text = messages(body(**WRONG_BODIES[message]))
    assert "body 'left': " in text
    assert message in text


def hinge(kind=js.Revolute, **given):
    return kind("j", "left", "right", **{"at": AT, **given})


ROTATION = "must be a rotation matrix (orthonormal columns, determinant +1)"
WRONG_JOINTS = {
    "axis must be three numbers that are not all zero, got (0, 0, 0)": hinge(axis=(0, 0, 0)),
    "axis must be three numbers that are not all zero, got (1.0, 0.0)": hinge(axis=(1.0, 0.0)),
    "axis must have a nonzero length that does not underflow, got (0, 0, 1e+200)": hinge(axis=(0, 0, 1e200)),
    "needs a direction; give axis, or axes_a and axes_b": hinge(),
    "has both axis and axes_a": hinge(axis=AXIS, axes_a=np.eye(3)),
    "needs a position: give at or point_a and at or point_b": hinge(axis=AXIS, at=None),
    f"axes_a {ROTATION}": hinge(axes_a=2.0 * np.eye(3)),
    f"axes_b {ROTATION}": hinge(axes_a=np.eye(3), axes_b=np.diag([1.0, 1.0, -1.0])),
    "axes_a must be a quaternion of four numbers or a rotation matrix": hinge(axes_a=(0.0, 0.0, 0.0, 0.0)),
    "needs two directions; give axis and second": hinge(js.Universal, axis=AXIS),
    "axis and second must not be parallel": hinge(js.Universal, axis=AXIS, second=(-2.0, 4.0, -1.0)),
    "axis and second must be perpendicular at the start pose": hinge(
        js.Universal, axis=(0.0, 0.0, 1.0), second=(0.0, 1.0, 1.0)
    ),
    "axis and pinion_axis must not be parallel": hinge(
        js.RackAndPinion, axis=AXIS, pinion_axis=AXIS, radius=0.1
    ),
    "is 'lift', which is not a body (did you mean 'left'?)": js.Ball("j", "lift", "right", AT),
    "a is None, which is not a body; use 'ground' (jaxdae.mechanisms.GROUND) for": js.Ball(
        "j", None, "right", AT
    ),
    "b is a SpatialBody, which is not a body (give its name, 'left')": js.Ball("j", "right", BODIES[0], AT),
    "connects 'left' with itself": js.Ball("j", "left", "left", AT),
    "its points coincide": js.Rod("j", "left", "right", AT, AT),
    "axis_a and axis_b must not be parallel": js.BevelGear(
        "j", "ground", "right", TURNS["right"].apply(AXIS), AXIS, 2.0
    ),
    "curve must be a function of a number s that returns a position (3,)": js.PointOnCurve(
        "j", "left", "right", 3.0, AT
    ),
    "returns shape () instead of (3,)": js.PointOnCurve("j", "left", "right", lambda s: s, AT),
    "which returns a list instead of (3,); use jnp.stack": js.PointOnCurve(
        "j", "left", "right", lambda s: [s, s, s], AT
    ),
    "use jax.numpy instead of numpy": js.PrescribedMotion("j", "other", lambda t: np.sin(t)),
    "curve must return finite positions for s = -1.0 to 1.0": js.PointOnCurve(
        "j", "left", "right", lambda s: jnp.sqrt(s) * jnp.ones(3), AT, first=-1.0
    ),
    "surface must have a finite, nonzero gradient at the start, got length 0": js.PointOnSurface(
        "j", "ground", "right", lambda p: 0 * p[0], AT
    ),
    "curve must not be a single point": js.PointOnCurve("j", "left", "right", lambda s: jnp.ones(3), AT),
    "first and last must differ": js.PointOnCurve(
        "j", "left", "right", lambda s: s * jnp.ones(3), AT, first=1.0
    ),
    "returns shape (3,) instead of one number": js.PointOnSurface("j", "left", "right", lambda p: p, AT),
    "joint is 'k', which is not a revolute or": js.PrescribedMotion("j", "k", jm.Polynomial((0.0,))),
    "motion must be a function of time": js.PrescribedMotion("j", "other", 3.0),
    "along is 'angel', which is not a coordinate of 'other' (did you mean 'angle'?)": js.PrescribedMotion(
        "j", "other", jm.Polynomial((0.0,)), "angel"
    ),
}
OTHER = js.Cylindrical("other", "ground", "right", AXIS, AT)


@all_cases("message", WRONG_JOINTS)
def test_wrong_joints(message):
    assert message in messages(joints=[OTHER, WRONG_JOINTS[message]])


WRONG_FORCES = {
    "along is 'angel', which is not a coordinate of 'other' (did you mean 'angle'?)": js.JointForce(
        "f", "other", along="angel"
    ),
    "(available: slide, angle)": js.JointForce("f", "other", along="u"),
    "joint is 'another', which is no": js.JointForce("f", "another", along="u"),
    "torque must be three finite numbers": js.Torque("f", "left", "right", (1.0, 2.0)),
    "input must be an index": js.Force("f", "left", AT, input=-1),
    "body is 'ground', which is not a body": js.Drag("f", "ground", AT),
}


@all_cases("message", WRONG_FORCES)
def test_wrong_forces(message):
    assert message in messages(joints=[OTHER], forces=[WRONG_FORCES[message]])


def test_all_mistakes_come_at_once():
    wrong = body(mass=-1.0, quaternion=(0.0, 0.0, 0.0, 0.0), inertia=(1.0, 0.0, 1.0))
    text = messages(
        wrong,
        [hinge(), js.Ball("j", "left", "rigth", AT)],
        [js.JointForce("f", "nothing")],
        gravity=(0.0, -9.81),
    )
    for part in (
        "mass must",
        "quaternion must",
        "inertia must",
        "needs a direction",
        "'j' is used twice",
        "did you mean 'right'",
        "gravity must be three",
    ):
        assert part in text


def test_inertia_that_is_symmetric_to_round_off_is_accepted():
    turn = ROD.as_matrix()
    inertia = turn @ np.diag([1.0, 1.0, 1e-3]) @ turn.T
    inertia[0, 1] += 1e-15
    nearly = np.diag([1.0, 2.0, 3.0]) + np.array([[0, 1e-18, 0], [0, 0, 0], [0, 0, 0]])
    mechanism, _ = jm.spatial_mechanism([js.Body("a", 1.0, nearly), js.Body("b", 1.0, inertia)], [])
    np.testing.assert_array_equal(mechanism.inertia, np.stack([nearly, inertia]))


def test_planar_elements_are_refused():
    with pytest.raises(
        TypeError, match=r"joints\[0\] is a Revolute of the plane; expected Revolute, Prismatic"
    ):
        jm.spatial_mechanism(BODIES, [jm.Revolute("j", "left", "right", (0.0, 0.0))])


# The page about them.

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "space.md"


def tables():
    """Returns the tables of the page: what the types say of themselves."""

    def summary(kind):
        return kind.summary().replace("|", "\\|")

    joints, forces = TYPES["space"]
    lines = ["## Joints", "", "| joint | rows | coordinates | description |", "|---|---|---|---|"]
    for kind in joints:
        rows = {**kind.rows, **kind.velocity_rows}
        rows, coordinates = (
            ", ".join(f"{name} ({unit})" for name, unit in x.items()) for x in (rows, kind.coordinates)
        )
        lines.append(
            f"| `{kind.__name__}` | {rows or ('none' if kind.in_tree else 'one')} | {coordinates} | "
            f"{summary(kind)} |"
        )
    lines += ["", "## Forces", "", "| force | description |", "|---|---|"]
    lines += [f"| `{kind.__name__}` | {summary(kind)} |" for kind in forces]
    return "\n".join(lines) + "\n"


def test_the_page_has_the_tables_of_the_types():
    assert PAGE.read_text().endswith(tables()), "end docs/space.md with these tables:\n" + tables()


@pytest.mark.long
def test_the_code_of_the_page_runs():
    code = PAGE.read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code, names)
    jd.raise_if_failed(names["trajectory"])
    assert "feed.slide" in names["mechanism"].names.rows
