"""Configs in space and in joint coordinates: what they build, what a run holds of them, and every mistake
that they can have.
"""

import copy
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from all_cases import all_cases

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.app.config import config_elements
from jaxdae.app.config.gap_lines import gap_lines
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_mechanism import PYTHON_TYPES, SECTIONS, WHEELS
from jaxdae.app.config.type_tables import table
from jaxdae.app.model import build, coordinate_names, structure
from jaxdae.app.model.close_loops import notes
from jaxdae.app.model.config_outline import outline
from jaxdae.app.model.load_config import load
from jaxdae.app.model.objective import objective
from jaxdae.app.model.units import unit_of
from jaxdae.app.runs import energy_account
from jaxdae.app.runs.saved_fields import observe
from jaxdae.app.runs.simulate import Simulator
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.forces.spatial_forces import SPATIAL_FORCES
from jaxdae.mechanisms.joints.spatial_joints import SPATIAL_JOINTS

ROOT = pathlib.Path(__file__).parents[2]
HALF = np.sqrt(0.5)

EVERYTHING = """
name: everything
mechanism:
  space: space
  gravity: [0, 1, -9]
  bodies:
    - {name: one, mass: 1, inertia: [0.1, 0.2, 0.3], pose: {place: [1, 0, 0]}}
    - {name: two, mass: 2, inertia: [[0.3, 0.01, 0], [0.01, 0.2, 0.02], [0, 0.02, 0.4]], pose: {place: [2, 0, 1], rpy: [0.1, 0.2, 0.3]}}
    - {name: three, mass: 3, inertia: [0.1, 0.2, 0.3], pose: {place: [0, 2, 0], quaternion: [2, 0, 0, 2]}}
  joints:
    - {type: revolute, name: A, a: ground, b: one, axis: [0, 0, 2], at: [0, 0, 0], damping: 0.1}
    - {type: prismatic, name: B, a: one, b: two, axis: [1, 0, 0], point_a: [1, 0, 0], point_b: [0, 0, 0]}
    - {type: cylindrical, name: C, a: ground, b: three, axis: [0, 1, 0], at: [0, 2, 0]}
    - {type: screw, name: D, a: ground, b: three, axis: [0, 1, 0], at: [0, 2, 0], lead: -0.1}
    - {type: universal, name: E, a: one, b: two, axis: [1, 0, 0], second: [0, 1, 0], at: [1, 0, 0]}
    - {type: ball, name: F, a: one, b: two, at: [1.5, 0, 0]}
    - {type: planar, name: G, a: one, b: two, axis: [0, 1, 1], at: [1.5, 0, 0]}
    - {type: weld, name: H, a: one, b: three, point_a: [0, 0, 0], point_b: [1, 0, 0], axes_a: [1, 0, 0, 0], axes_b: [3, 0, 0, 4]}
    - {type: rod, name: I, a: one, b: two, at_a: [1, 0, 0], at_b: [2, 0, 1], length: 1.5}
    - {type: point_on_line, name: J, a: one, b: two, axis: [1, 0, 0], at: [1, 0, 0]}
    - {type: point_on_plane, name: K, a: one, b: two, axis: [1, 0, 0], at: [1, 0, 0]}
    - {type: constant_velocity, name: L, a: one, b: two, axis: [1, 0, 0], at: [1, 0, 0]}
    - {type: gear, name: M, a: one, b: two, axis_a: [1, 0, 0], axis_b: [0, 1, 0], ratio: -2}
    - {type: bevel_gear, name: N, a: one, b: two, axis_a: [1, 0, 0], axis_b: [0, 1, 0], ratio: -2}
    - {type: rack_and_pinion, name: O, a: one, b: two, axis: [1, 0, 0], pinion_axis: [0, 1, 0], radius: 0.2, at: [1, 0, 0]}
    - {type: prescribed_motion, name: P, joint: C, along: angle, motion: {type: sinusoid, amplitude: 1, frequency_hz: 2}}
    - {type: relation, name: Q, joint: A, other: C, other_along: angle, coefficients: [0.1, 2, 3], reference: 0}
    - {type: tendon_relation, name: R, joints: [A, B], weights: [1, -2], others: [C], other_weights: [3], coefficients: [0, 2]}
  forces:
    - {type: linear_spring, name: a, a: ground, b: one, at_a: [0, 0, 1], at_b: [1, 0, 0], stiffness: 3, damping: 0.1}
    - {type: force, name: b, body: one, point: [0, 0, 0], force: [1, 2, 3], body_frame: true}
    - {type: torque, name: c, a: ground, b: one, torque: [1, 2, 3]}
    - {type: joint_force, name: d, joint: C, along: slide, force: 1, stiffness: 2, rest: 0.1}
    - {type: rotational_damper, name: e, a: one, b: two, damping: 0.5}
    - {type: rotational_spring, name: j, a: one, b: two, stiffness: 0.5}
    - {type: drag, name: f, body: two, at: [2, 0, 1], linear: 0.1, quadratic: 0.2}
    - {type: motor, name: h, joint: B, ratio: 3, rotor_inertia: 0.01, torque: 2}
    - {type: bushing, name: g, a: one, b: two, at: [1, 0, 0], stiffness: [1, 2, 3], damping: [0.1, 0, 0]}
    - {type: actuator, name: i, joint: B, ratio: 2, bias: [1, -2, -0.5], most_force: 0.5}
    - {type: tendon, name: k, joints: [A, C], weights: [0.5, -0.2], stiffness: 2, damping: 0.1, slack_to: 3, bias: [1, 0, -0.5]}
duration: 1
dt: 0.1
"""


def in_python():
    """Returns the description of `EVERYTHING` as a user of the library writes it."""
    bodies = [
        js.Body("one", 1.0, (0.1, 0.2, 0.3), (1.0, 0.0, 0.0)),
        js.Body(
            "two",
            2.0,
            ((0.3, 0.01, 0.0), (0.01, 0.2, 0.02), (0.0, 0.02, 0.4)),
            (2.0, 0.0, 1.0),
            of_rpy(0.1, 0.2, 0.3),
        ),
        js.Body("three", 3.0, (0.1, 0.2, 0.3), (0.0, 2.0, 0.0), (HALF, 0.0, 0.0, HALF)),
    ]
    x, y, z, here = (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)
    joints = [
        js.Revolute("A", "ground", "one", z, (0, 0, 0), damping=0.1),
        js.Prismatic("B", "one", "two", x, point_a=(1, 0, 0), point_b=(0, 0, 0)),
        js.Cylindrical("C", "ground", "three", y, (0, 2, 0)),
        js.Screw("D", "ground", "three", y, (0, 2, 0), lead=-0.1),
        js.Universal("E", "one", "two", x, y, here),
        js.Ball("F", "one", "two", (1.5, 0, 0)),
        js.Planar("G", "one", "two", (0, 1, 1), (1.5, 0, 0)),
        js.Weld(
            "H",
            "one",
            "three",
            point_a=(0, 0, 0),
            point_b=(1, 0, 0),
            axes_a=(1, 0, 0, 0),
            axes_b=(0.6, 0, 0, 0.8),
        ),
        js.Rod("I", "one", "two", here, (2, 0, 1), length=1.5),
        js.PointOnLine("J", "one", "two", x, here),
        js.PointOnPlane("K", "one", "two", x, here),
        js.ConstantVelocity("L", "one", "two", x, here),
        js.Gear("M", "one", "two", x, y, -2.0),
        js.BevelGear("N", "one", "two", x, y, -2.0),
        js.RackAndPinion("O", "one", "two", x, y, here, radius=0.2),
        js.PrescribedMotion("P", "C", jm.Sinusoid(1.0, 2.0), along="angle"),
        js.Relation("Q", "A", "C", (0.1, 2.0, 3.0), 0.0, other_along="angle"),
        js.TendonRelation("R", ("A", "B"), (1.0, -2.0), ("C",), (3.0,), (0.0, 2.0)),
    ]
    forces = [
        js.LinearSpring("a", "ground", "one", (0, 0, 1), here, stiffness=3.0, damping=0.1),
        js.Force("b", "one", point=(0, 0, 0), force=(1, 2, 3), body_frame=True),
        js.Torque("c", "ground", "one", (1, 2, 3)),
        js.JointForce("d", "C", 1.0, along="slide", stiffness=2.0, rest=0.1),
        js.RotationalDamper("e", "one", "two", 0.5),
        js.RotationalSpring("j", "one", "two", stiffness=0.5),
        js.Drag("f", "two", (2, 0, 1), linear=0.1, quadratic=0.2),
        js.Motor("h", "B", ratio=3.0, rotor_inertia=0.01, torque=2.0),
        js.Bushing("g", "one", "two", here, stiffness=(1.0, 2.0, 3.0), damping=(0.1, 0.0, 0.0)),
        js.Actuator("i", "B", ratio=2.0, bias=(1.0, -2.0, -0.5), most_force=0.5),
        js.Tendon("k", ("A", "C"), (0.5, -0.2), 2.0, 0.1, slack_to=3.0, bias=(1.0, 0.0, -0.5)),
    ]
    return jm.Description(
        space=jm.SPACE, bodies=bodies, joints=joints, forces=forces, gravity=(0.0, 1.0, -9.0)
    )


def of_rpy(roll, pitch, yaw):
    """Returns the quaternion of R = Rz(yaw) Ry(pitch) Rx(roll), from the matrices."""

    def about(axis, angle):
        # The columns are the products of the axis with the unit vectors.
        cross = np.cross(np.eye(3)[axis], np.eye(3)).T
        return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross

    r = about(2, yaw) @ about(1, pitch) @ about(0, roll)
    w = 0.5 * np.sqrt(1.0 + np.trace(r))
    return np.array([w, *(np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]]) / (4.0 * w))])


@pytest.mark.long
def test_a_config_builds_what_python_builds():
    config = Config.model_validate(yaml.safe_load(EVERYTHING))
    used = {element.type for element in (*config.mechanism.joints, *config.mechanism.forces)}
    # Wheels and their terrains are in test_vehicle_configs, tires on them in test_height_loads, free joints
    # in test_joint_coordinates.
    elsewhere = {*WHEELS["space"], "brush_tire", "magic_formula_tire", "free"}
    assert used | elsewhere == set(SECTIONS["space"])
    ours, q, v, _ = build.construct(config.model_dump())
    theirs, expected = jm.mechanism(in_python())
    assert (ours.names, ours.joint_names) == (theirs.names, theirs.joint_names)
    np.testing.assert_allclose(q, expected, rtol=0, atol=1e-15)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(v, np.zeros(18))


def test_roll_pitch_yaw_and_quaternions_of_any_length():
    config = Config.model_validate(yaml.safe_load(EVERYTHING))
    poses = [body.pose.model_dump() for body in config.mechanism.bodies]
    quarter = config_elements.orientation({"quaternion": None, "rpy": (0.0, 0.0, np.pi / 2)})
    np.testing.assert_allclose(jnp.stack(quarter), [HALF, 0, 0, HALF], rtol=0, atol=1e-15)
    # The x axis of a body that is first rolled by a quarter turn, then pitched by one, points down.
    x = np.asarray(
        js.Body(
            "b",
            1.0,
            (1, 1, 1),
            quaternion=config_elements.orientation({"quaternion": None, "rpy": (np.pi / 2, np.pi / 2, 0.0)}),
        )
        .frame()
        .axes[0]
        .array()
    )
    np.testing.assert_allclose(x, [0, 0, -1], rtol=0, atol=1e-15)
    assert poses[0] == {"place": (1.0, 0.0, 0.0), "quaternion": None, "rpy": None}
    (note,) = notes(config)
    assert note == "bodies.three.pose.quaternion has length 2.82843; it is normalized"


def test_the_tables_of_types_in_space_are_those_of_their_fields():
    text = (ROOT / "docs" / "configs_reference.md").read_text()
    for types in (SPATIAL_JOINTS, SPATIAL_FORCES):
        usable = [kind for kind in types if kind.type_key() not in PYTHON_TYPES]
        assert table(usable) in text, "put this table into docs/configs_reference.md:\n" + table(usable)


FREE = {
    "name": "test",
    "mechanism": {
        "space": "space",
        "bodies": [
            {
                "name": "base",
                "mass": 1.0,
                "inertia": [0.1, 0.2, 0.3],
                "pose": {"place": [0, 0, 0]},
                "free": True,
            },
            {
                "name": "arm",
                "mass": 1.0,
                "inertia": [0.1, 0.2, 0.3],
                "pose": {"place": [1, 0, 0]},
                "free": True,
            },
        ],
    },
    "duration": 1.0,
    "dt": 0.01,
}
HINGED = {
    "name": "test",
    "mechanism": {
        "space": "space",
        "coordinates": "joints",
        "bodies": [
            {"name": "base", "mass": 1.0, "inertia": [0.1, 0.2, 0.3], "pose": {"place": [0, 0, 0]}},
            {"name": "arm", "mass": 1.0, "inertia": [0.1, 0.2, 0.3], "pose": {"place": [1, 0, 0]}},
        ],
        "joints": [
            {
                "type": "cylindrical",
                "name": "shaft",
                "a": "ground",
                "b": "base",
                "axis": [1, 0, 0],
                "at": [0, 0, 0],
            },
            {"type": "ball", "name": "socket", "a": "base", "b": "arm", "at": [0.5, 0, 0]},
            {"type": "rod", "name": "stay", "a": "ground", "b": "arm", "at_a": [1, 1, 0], "at_b": [1, 0, 0]},
        ],
        "forces": [
            {"type": "joint_force", "name": "motor", "joint": "shaft", "along": "angle", "force": 1.0}
        ],
    },
    "duration": 1.0,
    "dt": 0.01,
}


def messages(tmp_path, data, *overrides):
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        load(str(file), overrides)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    return lines


ARM = "mechanism.bodies.arm."
FREE_MISTAKES = {
    "unknown space": (
        "space=spce",
        "mechanism.space",
        "the unknown space 'spce'",
        "one of plane, space",
        "did you mean 'space'?",
    ),
    "pose of the plane": (
        "bodies.arm.pose=[0, 0, 0]",
        ARM + "pose",
        "a list of 3: [0, 0, 0]",
        "a mapping",
        "place: [x, y, z]",
    ),
    "no place": (
        "bodies.arm.pose={rpy: [0, 0, 0]}",
        ARM + "pose.place",
        "got nothing",
        "add place",
        "[x, y, z] in m",
    ),
    "null quaternion": (
        "bodies.arm.pose.quaternion=[0, 0, 0, 0]",
        ARM + "pose.quaternion",
        "a quaternion that is not zero",
        "[1, 0, 0, 0]",
    ),
    "short quaternion": (
        "bodies.arm.pose.quaternion=[1, 0, 0]",
        ARM + "pose.quaternion.3",
        "got nothing",
        "[w, x, y, z]",
    ),
    "two orientations": (
        "bodies.arm.pose={place: [0, 0, 0], quaternion: [1, 0, 0, 0], rpy: [0, 0, 0]}",
        ARM + "pose",
        "quaternion and rpy",
        "one of them",
    ),
    "inertia of the plane": (
        "bodies.arm.inertia=0.1",
        ARM + "inertia",
        "got 0.1",
        "three principal moments, or three rows",
    ),
    "inertia of text": ("bodies.arm.inertia=[1, 2, much]", ARM + "inertia", "three principal moments"),
    "inertia that is not symmetric": (
        "bodies.arm.inertia=[[1, 0.1, 0], [0, 1, 0], [0, 0, 1]]",
        ARM + "inertia",
        "a symmetric matrix",
        "both sides of the diagonal",
    ),
    "negative inertia": (
        "bodies.arm.inertia=[1, -2, 3]",
        ARM + "inertia",
        "principal moments -2, 1, 3",
        "principal moments > 0",
    ),
    "indefinite inertia": (
        "bodies.arm.inertia=[[1, 2, 0], [2, 1, 0], [0, 0, 1]]",
        ARM + "inertia",
        "principal moments -1, 1, 3",
    ),
    "cut in absolute coordinates": (
        "cut=[A]",
        "mechanism.cut",
        "cut with coordinates absolute",
        "remove cut",
    ),
    "unknown coordinates": (
        "coordinates=joint",
        "mechanism.coordinates",
        "absolute or joints",
        "did you mean 'joints'?",
    ),
    "coordinate of the plane": (
        "start.fixed=[arm.theta]",
        "start.fixed.0",
        "'arm.theta'",
        "body.omega_x",
        "did you mean",
    ),
    "velocity of the plane": (
        "start.velocities.arm.theta=1",
        "start.velocities.arm.theta",
        "body.x, body.y, body.z",
    ),
    "a velocity twice": (
        "start.velocities={arm.x: 1, arm.vx: 2}",
        "'arm.vx', which is another name of 'arm.x'",
        "each velocity once",
    ),
    "gravity of the plane": ("gravity=[0, -9.81]", "mechanism.gravity.2", "got nothing", "[x, y, z]"),
    "vary a place": (
        "batch.vary=[{path: bodies.arm.pose.place.z, std: 1}]",
        "start value of arm.z",
        "add arm.z to start.fixed",
    ),
    "vary an orientation": (
        "batch.vary=[{path: bodies.base.pose.rpy.0, std: 1}]",
        "start value of base.omega_x and base.omega_y and base.omega_z",
        "to start.fixed",
    ),
    "vary no entry": (
        "batch.vary=[{path: bodies.arm.inertia.q, std: 1}]",
        "batch.vary.0.path",
        "the unknown path",
    ),
    "type that needs a function": (
        "mechanism.joints=[{type: point_on_curve, name: w, a: ground, b: arm}]",
        "mechanism.joints.w.type",
        "this type needs a function: build the mechanism in Python",
    ),
    "type of the plane": (
        "mechanism.forces=[{type: torsional_spring, name: s, a: ground, b: arm}]",
        "the unknown type 'torsional_spring'",
        "linear_spring",
    ),
}


@all_cases("name", FREE_MISTAKES)
def test_each_mistake_of_free_bodies_is_told_with_its_place_and_remedy(tmp_path, name):
    override, *expected = FREE_MISTAKES[name]
    data = copy.deepcopy(FREE)
    data["mechanism"]["bodies"][0]["pose"]["rpy"] = [0, 0, 0]
    (line,) = messages(tmp_path, data, override)
    for part in expected:
        assert part in line


HINGED_MISTAKES = {
    "unknown joint to cut": (
        "cut=[sockt]",
        "mechanism.cut.0",
        "the unknown joint 'sockt'",
        "did you mean 'socket'?",
    ),
    "unknown coordinate": (
        "start.fixed=[shaft.turn]",
        "start.fixed.0",
        "a coordinate of a joint of the tree",
        "'shaft.turn'",
    ),
    "quaternion as a velocity": (
        "start.velocities={socket.qw: 1}",
        "start.velocities.socket.qw",
        "a coordinate of a joint of the tree",
    ),
    "along": (
        "forces.motor.along=turn",
        "mechanism.forces.motor.along",
        "not a coordinate of 'shaft'",
        "slide, angle",
    ),
    "joint without coordinate": (
        "forces.motor.joint=socket",
        "the joint 'socket' of type the text 'ball'",
        "revolute or prismatic",
    ),
    "null axis": (
        "joints.shaft.axis=[0, 0, 0]",
        "mechanism.joints.shaft.axis",
        "a direction of non-zero length",
        "[1, 0, 0]",
    ),
    "no axis": ("joints.shaft.axis=null", "mechanism.joints.shaft", "no axis", "the axes as axis, or axes_a"),
    "axes twice": (
        "joints.shaft.axes_a=[1, 0, 0, 0]",
        "mechanism.joints.shaft",
        "axis, axes_a",
        "one of these forms",
    ),
    "place twice": (
        "joints.socket.point_a=[0, 0, 0]",
        "mechanism.joints.socket",
        "at, point_a",
        "the place as at or point_a with point_b",
    ),
    "pose varied": (
        "batch.vary=[{path: bodies.arm.pose.place.x, std: 1}]",
        "the start pose of 'arm', the reference of joint coordinates",
        "coordinates: absolute",
    ),
    "point in the plane": (
        "tune={parameters: [{path: bodies.arm.mass}], loss: [{type: point, body: arm, target: [0, 1]}]}",
        "tune.loss.0.target",
        "a list of 2",
        "3 numbers in space",
    ),
    "reaction of the tree": (
        "tune={parameters: [{path: bodies.arm.mass}], loss: [{type: reaction, joint: shaft}]}",
        "tune.loss.0.joint",
        "has no multipliers",
        "add it to cut",
    ),
    "unknown coordinate of a term": (
        "tune={parameters: [{path: bodies.arm.mass}], loss: [{type: coordinate, coordinate: shaft.turn, "
        "target: 1}]}",
        "the unknown coordinate 'shaft.turn'",
    ),
    "damping of too many": (
        "joints.shaft.damping=[1, 2, 3]",
        "mechanism.joints.shaft.damping",
        "[1, 2, 3]",
        "or a list of 2 of them",
    ),
    "unknown position": (
        "start.positions={shaft.turn: 1}",
        "start.positions.shaft.turn",
        "a coordinate of a joint",
        "'shaft.turn'",
    ),
    "quaternion as a position": (
        "start.positions={socket.qw: 1}",
        "start.positions.socket.qw",
        "a coordinate of a joint of the tree",
    ),
    "a position that is not given": (
        "batch.vary=[{path: start.positions.shaft.angle, std: 1}]",
        "batch.vary.0.path",
        "give start.positions a value of shaft.angle",
    ),
    "torque as an input": (
        "optimize={inputs: [{force: push}], loss: [{type: effort}]}",
        "the unknown force 'push'",
        "a joint_force",
    ),
}


@all_cases("name", HINGED_MISTAKES)
def test_each_mistake_in_joint_coordinates_is_told_with_its_place_and_remedy(tmp_path, name, monkeypatch):
    override, *expected = HINGED_MISTAKES[name]
    monkeypatch.setattr(
        "jaxdae.app.model.load_config._skeleton", lambda document: None
    )  # closing loops is not what is tested here
    (line,) = messages(tmp_path, HINGED, override)
    for part in expected:
        assert part in line


def test_a_torque_without_direction_is_no_input(tmp_path):
    data = copy.deepcopy(FREE)
    data["mechanism"]["forces"] = [
        {"type": "torque", "name": "push", "a": "ground", "b": "arm", "torque": [0, 0, 0]}
    ]
    (line,) = messages(tmp_path, data, "optimize={inputs: [{force: push}], loss: [{type: effort}]}")
    for part in ("optimize.inputs.0.force", "the torque 'push' with magnitude 0", "a nonzero torque"):
        assert part in line


SHAFT = """
name: shaft
mechanism:
  space: space
  coordinates: joints
  bodies:
    - {name: arm, mass: 1.0, inertia: [0.01, 0.08, 0.08], pose: {place: [0.5, 0, 0]}}
    - {name: disk, mass: 2.0, inertia: [0.02, 0.01, 0.01], pose: {place: [1, 0, 0]}}
  joints:
    - {type: revolute, name: shoulder, a: ground, b: arm, axis: [0, 0, 1], at: [0, 0, 0]}
    - {type: cylindrical, name: shaft, a: arm, b: disk, axis: [1, 0, 0], at: [1, 0, 0], damping: [0.1, 0.2], stiffness: 3, rest: [0.1, 0.3]}
  forces:
    - {type: motor, name: drive, joint: shaft, along: angle, ratio: 10, torque: 0.3, rotor_inertia: 1.0e-4}
    - {type: torque, name: push, a: ground, b: arm, torque: [0, 0.4, 0.3]}
start: {positions: {shaft.slide: 0.2, shoulder.angle: 0.5}, velocities: {shoulder.angle: 1.0}}
batch:
  size: 3
  vary:
    - {path: joints.shaft.damping.1, distribution: uniform, low: 0.1, high: 0.3}
    - {path: start.positions.shoulder.angle, distribution: uniform, low: 0.4, high: 0.6}
integrator: {type: semi_implicit_euler, projection: none}
duration: 0.1
dt: 0.01
optimize:
  inputs: [{force: drive, knots: 3, lower: -1, upper: 1}, {force: push, knots: 3}]
  loss: [{type: velocity, coordinate: shaft.angle, target: 0, over: final}]
"""


@pytest.mark.long
def test_numbers_by_coordinate_and_starts_by_joint():
    config = Config.model_validate(yaml.safe_load(SHAFT))
    built = build.worlds(config)
    samples = built.parameters
    assert len(set(samples["start.positions.shoulder.angle"])) == 3
    np.testing.assert_array_equal(built.state.q[:, 0], samples["start.positions.shoulder.angle"])
    # By the names of q: shoulder.angle, shaft.slide, shaft.angle; the arm starts turned, the places of its
    # joints do not turn with it.
    np.testing.assert_array_equal(built.state.q[:, 1:], [[0.2, 0.0]] * 3)
    np.testing.assert_array_equal(built.state.v, [[1.0, 0.0, 0.0]] * 3)
    for world in range(3):
        tree = built.one(world)[0].coordinates
        np.testing.assert_array_equal(tree.damping, [0.0, 0.1, samples["joints.shaft.damping.1"][world]])
        np.testing.assert_array_equal(tree.stiffness, [0.0, 3.0, 3.0])
        np.testing.assert_array_equal(tree.rest, [0.0, 0.1, 0.3])
    values = config.model_dump()
    assert unit_of(values, ("start", "positions", "shaft.slide")) == "m"
    assert unit_of(values, ("start", "positions", "shoulder.angle")) == "rad"


@pytest.mark.exhaustive
def test_motors_and_torques_as_inputs():
    """Constant inputs of the size of the torques of the config have its loss: that of a run in which nothing
    is driven.
    """
    config = Config.model_validate(yaml.safe_load(SHAFT))
    built = build.worlds(config)
    found = objective(config, built, config.optimize)
    assert {name: float(knots[0]) for name, knots in found.parameters.items()} == {"drive": 0.3, "push": 0.5}
    system, method, start = built.one()
    end = jax.jit(lambda s: jd.rollout(system, method, s, dt=config.dt, steps=config.steps))(start).state
    np.testing.assert_allclose(found.loss(found.parameters), end.v[-1, 2] ** 2, rtol=1e-12)
    assert end.v[-1, 2] > 0.1


def test_a_cut_that_leaves_a_loop(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxdae.app.model.load_config._skeleton", lambda document: None)
    data = copy.deepcopy(HINGED)
    hinge = {
        "type": "revolute",
        "name": "hinge",
        "a": "ground",
        "b": "arm",
        "axis": [0, 0, 1],
        "at": [1, 0, 0],
    }
    data["mechanism"]["joints"] += [hinge, hinge | {"name": "other"}]
    (line,) = messages(tmp_path, data, "cut=[other]")
    assert (
        "mechanism.cut: got a cut that leaves a loop that 'socket' closes, expected joints that open "
        "all loops" in line
    )
    assert "name one joint of each loop" in line


def test_several_mistakes_are_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxdae.app.model.load_config._skeleton", lambda document: None)
    lines = messages(
        tmp_path,
        HINGED,
        "bodies.arm.mass=-1",
        "start.fixed=[shaft.turn]",
        "joints.stay.length=0",
        "forces.motor.along=turn",
    )
    # A rod with a mistake hides the tree, and with it which coordinates there are.
    assert len(lines) == 3
    for place in (
        "mechanism.bodies.arm.mass",
        "mechanism.joints.stay.length",
        "mechanism.forces.motor.along",
    ):
        assert any(f": {place}: " in line for line in lines)
    assert len(messages(tmp_path, HINGED, "bodies.arm.mass=-1", "start.fixed=[shaft.turn]")) == 2


def test_what_the_library_finds_wrong_has_its_place_too(tmp_path):
    data = copy.deepcopy(HINGED)
    forks = {
        "type": "universal",
        "name": "forks",
        "a": "base",
        "b": "arm",
        "axis": [1, 0, 0],
        "second": [2, 0, 0],
        "at": [0.5, 0, 0],
    }
    data["mechanism"]["joints"][1:] = [
        forks,
        {"type": "rod", "name": "stay", "a": "ground", "b": "arm", "at_a": [1, 0, 0], "at_b": [1, 0, 0]},
    ]
    lines = messages(tmp_path, data)
    assert (
        ": mechanism.joints.forks: got a joint that cannot be built: joint 'forks': axis and second must "
        "not be parallel" in lines[0]
    )
    assert ": mechanism.joints.stay: got a joint that cannot be built" in lines[1]
    assert "its points coincide at the start pose" in lines[1]


@pytest.mark.long
def test_a_tree_in_which_nothing_resists_is_told_with_its_joint(tmp_path):
    """A cross without mass on one hinge; between two it is what it is for, and is drawn too."""
    hinge = {"type": "revolute", "name": "A", "a": "ground", "b": "cross", "axis": [0, 0, 1], "at": [0, 0, 0]}
    cross = {"name": "cross", "massless": True, "pose": {"place": [0, 0, 0]}}
    mechanism = {"space": "space", "coordinates": "joints", "bodies": [cross], "joints": [hinge]}
    data = {"name": "cross", "mechanism": mechanism, "duration": 0.1, "dt": 0.05}
    (line,) = messages(tmp_path, data)
    assert ": mechanism.joints.A: got a joint that cannot be built: joint 'A': it moves no inertia" in line
    arm = {"name": "arm", "mass": 1.0, "inertia": [0.1, 0.1, 0.1], "pose": {"place": [0.5, 0, 0]}}
    mechanism["bodies"].append(arm)
    mechanism["joints"].append({**hinge, "name": "B", "a": "cross", "b": "arm", "axis": [0, 1, 0]})
    assert "cross" in outline(Config.model_validate(data).mechanism).lines


@pytest.mark.long
def test_names_of_coordinates_are_those_of_the_mechanism():
    for data in (FREE, HINGED, yaml.safe_load(EVERYTHING)):
        for form in ("absolute", "joints"):
            given = copy.deepcopy(data)
            given["mechanism"]["coordinates"] = form
            config = Config.model_validate(given)
            system = build.construct(config.model_dump())[0]
            assert coordinate_names.of_values(given) == coordinate_names.of_system(system)
    entries = coordinate_names.of_values(HINGED)
    assert entries is not None
    assert (
        entries.rates["shaft.angle"],
        entries.rates["shaft.angle_rate"],
        entries.rates["socket.omega_z"],
    ) == (1, 1, 4)
    assert not any(name.startswith("socket.q") for name in entries.rates)
    values = Config.model_validate(
        HINGED | {"start": {"velocities": {"shaft.slide": 1.0, "socket.omega_x": 2.0}}}
    ).model_dump()
    assert [unit_of(values, ("start", "velocities", name)) for name in ("shaft.slide", "socket.omega_x")] == [
        "m/s",
        "rad/s",
    ]
    places = (("bodies", 0, "pose", "place", 1), ("bodies", 0, "inertia", 2), ("forces", 0, "force"))
    assert [unit_of(values, ("mechanism", *place)) for place in places] == ["m", "kg m^2", "N m"]


def test_the_tree_in_words():
    config = Config.model_validate(HINGED)
    assert structure.lines(config) == [
        "tree (joint coordinates):",
        "ground",
        "  base (cylindrical shaft)",
        "    arm (ball socket)",
        "loops closed by:",
        "  stay (rod between ground and arm)",
        "coordinates: shaft.slide, shaft.angle, socket.qw, socket.qx, socket.qy, socket.qz",
        "joints: 1 cylindrical, 1 ball, 1 rod",
    ]
    free = structure.lines(Config.model_validate(FREE))
    assert free[1:5] == ["ground", "  base (moves freely)", "  arm (moves freely)", "loops closed by: none"]


PENDULUM = """
name: pendulum
mechanism:
  space: space
  bodies:
    - {name: arm, mass: 1, inertia: [0.01, 0.02, 0.03], pose: {place: [0.3, 0, 0]}}
    - {name: bob, mass: 1, inertia: [0.01, 0.02, 0.03], pose: {place: [0.6, 0, -0.3]}}
  joints:
    - {type: revolute, name: hinge, a: ground, b: arm, axis: [0, 1, 0], at: [0, 0, 0], damping: 0.3}
    - {type: ball, name: socket, a: arm, b: bob, at: [0.6, 0, 0]}
start:
  velocities: {}
integrator: rk4
duration: 0.2
dt: 1e-3
save_every: 4
"""


# The socket turns against the arm.
ABSOLUTE = "{arm.omega_y: 1.0, bob.omega_x: 0.0, bob.omega_y: 1.0, bob.omega_z: 2.0}"
JOINTS = "{hinge.angle: 1.0, socket.omega_x: 0.0, socket.omega_y: 0.0, socket.omega_z: 2.0}"


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Returns config, worlds, summary and what was saved of the pendulum in both forms of coordinates."""
    file = tmp_path_factory.mktemp("space") / "pendulum.yaml"
    file.write_text(PENDULUM)
    found = {}
    for form, start in (("absolute", ABSOLUTE), ("joints", JOINTS)):
        config, worlds = load(str(file), (f"coordinates={form}", f"start.velocities={start}"))
        blocks = []
        with jax.enable_x64(True):
            summary = Simulator(config, 10).run(
                worlds, lambda instants, block, kept=blocks: kept.append(block)
            )
        saved = {name: np.concatenate([block[name] for block in blocks], axis=1)[0] for name in blocks[0]}
        found[form] = config, worlds, summary, saved
    return found


@pytest.mark.exhaustive
def test_both_forms_start_alike_and_move_alike(both):
    (_, _, one, absolute), (_, _, other, joints) = both["absolute"], both["joints"]
    assert (one.failure, other.failure) == ("", "")
    poses, theirs = joints["pose"], absolute["q"].reshape(51, 2, 7)
    sign = np.where(np.sum(poses[..., 3:] * theirs[..., 3:], axis=-1, keepdims=True) < 0, -1.0, 1.0)
    np.testing.assert_allclose(poses[..., :3], theirs[..., :3], rtol=0, atol=1e-9)
    np.testing.assert_allclose(poses[..., 3:], sign * theirs[..., 3:], rtol=0, atol=1e-9)
    np.testing.assert_allclose(joints["twist"].reshape(51, 12), absolute["v"], rtol=0, atol=1e-8)
    assert "pose" not in absolute


@pytest.mark.exhaustive
def test_the_balance_of_energy_knows_of_inertia_that_depends_on_the_coordinates(both):
    for _, _, summary, saved in both.values():
        assert saved["work"][-1] < -1e-3
        assert summary.energy_balance_error < 1e-6 * summary.energy_exchanged


@pytest.mark.long
def test_the_power_that_enters_knows_of_the_inertia_of_motors_on_slides():
    """In absolute coordinates as well, where the slide of two bodies that turn makes M depend on q."""
    bodies = [jm.Body("left", 1.0, 0.3, (0.3, -0.2, 0.4)), jm.Body("right", 2.0, 0.4, (1.1, 0.6, -1.2))]
    rail = jm.Prismatic("rail", "left", "right", axis=(1.0, 2.0), at=(0.2, 0.8), damping=0.2, armature=0.5)
    mechanism, q = jm.planar_mechanism(bodies, [rail], gravity=(0.0, -9.81))
    with jax.enable_x64(True):
        start, _ = jd.initialize(mechanism, q, np.arange(1.0, 7.0))
        found = observe(
            (None, None),
            mechanism,
            jd.RungeKutta.rk4(),
            (jax.tree.map(lambda x: x[None, None], start), (), None),
            0.1,
        )
        a = found["a"][0, 0]
        power = energy_account.power(mechanism, start, None, None)

        def energy(h):
            return jd.energy(
                mechanism, jd.State(start.t, mechanism.retract(start.q, h * start.v), start.v + h * a)
            )

        gained = jax.jvp(energy, (0.0,), (1.0,))[1]
    assert abs(gained) > 0.1
    np.testing.assert_allclose(power, gained, rtol=1e-12)


CONTACT = {
    "name": "floor",
    "a": "ground",
    "b": "box",
    "shape_a": {"type": "plane"},
    "shape_b": {"type": "box", "half": [0.1, 0.1, 0.1]},
    "friction": 0.5,
}


def with_contact(**changes):
    box = {"name": "box", "mass": 1.0, "inertia": [0.01] * 3, "pose": {"place": [0, 0, 0.1]}, "free": True}
    mechanism = {"space": "space", "bodies": [box], "contacts": [CONTACT | changes]}
    return {"name": "box", "mechanism": mechanism, "duration": 0.02, "dt": 0.01}


def test_contacts_of_configs_reach_the_mechanism():
    values = Config.model_validate(with_contact()).model_dump()
    system, _, _, method = build.construct(values)
    assert system.contacts.names == tuple(f"floor.corner{k}" for k in range(8))
    assert repr(method) == repr(jd.contact.Touching(build.integrator(values)))
    step = {"solver": {"type": "interior_point", "iterations": 30}, "smoothing": 1e-6, "penetration": 0.01}
    values = Config.model_validate(with_contact() | {"contact_step": step}).model_dump()
    solver = jd.contact.InteriorPoint(30)
    expected = jd.contact.Touching(
        build.integrator(values), contact_solver=solver, smoothing=1e-6, penetration=0.01
    )
    assert repr(build.construct(values)[3]) == repr(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape_b": {"type": "box", "half": [0.1, -0.1, 0.1]}}, "half must be positive"),
        ({"shape_a": {"type": "cube"}}, "union_tag_invalid|does not match any of the expected tags"),
        ({"friction": -0.5}, "greater than or equal to 0"),
        ({"restitution": 1.5}, "less than or equal to 1"),
    ],
)
def test_invalid_contacts_of_configs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Config.model_validate(with_contact(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"contact_step": {"solver": "gauss_seidel", "smoothing": 1e-6}},
            "smoothing with solver gauss_seidel",
        ),
        ({"contact_step": {"solver": {"type": "robust", "interior": 0}, "smoothing": 1.0}}, "smoothing with"),
        ({"contact_step": {"most": 0}}, "greater than or equal to 1"),
        ({"contact_step": {"most": 2}, "without": True}, "contact_step without contacts"),
        ({"start": {"separate": True}, "without": True}, "separate without contacts"),
    ],
)
def test_invalid_contact_options_are_rejected(changes, message):
    values = with_contact() | changes
    if values.pop("without", False):
        values["mechanism"]["contacts"] = []
    with pytest.raises(ValueError, match=message):
        Config.model_validate(values)


@pytest.mark.long
def test_a_start_inside_the_ground_names_the_contacts(tmp_path):
    values = with_contact()
    values["mechanism"]["bodies"][0]["pose"]["place"][2] = 0.05
    file = tmp_path / "box.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=r"a start beyond floor\.corner0 by 0\.05 m") as caught:
        load(str(file))
    assert str(caught.value).count("a start beyond floor") == 4
    file.write_text(yaml.safe_dump(values | {"start": {"separate": True}}))
    _, worlds = load(str(file))
    assert worlds.state.q[0, 2] == pytest.approx(0.1, abs=1e-9)
    system, _, state = worlds.one()
    lines = [*gap_lines("contacts", system, system.touch(state.t, state.q.at[2].add(-0.2)))]
    assert lines == ["contacts                    1", "  floor                     penetration 0.2 m"]
    start = {"separate": True, "fixed": ["box.x", "box.y", "box.z"]}
    file.write_text(yaml.safe_dump(values | {"start": start}))
    with pytest.raises(
        ConfigError, match=r"penetrate by 0\.05 m or rad.*do not keep .* of box\.x, box\.y, box\.z"
    ):
        load(str(file))
