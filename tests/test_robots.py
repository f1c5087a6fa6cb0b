"""Robots from files: the mechanism is what the file says, and whatever is wrong with a file is told with its
line.
"""

import pathlib
import xml.etree.ElementTree as ET

import jax
import numpy as np
import pytest
from agreement import body_accelerations
from all_cases import all_cases

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

FILE = pathlib.Path(__file__).parents[1] / "configs" / "models" / "gripper_arm.urdf"
POSITIONS = {"yaw": 0.7, "shoulder": -0.4, "reach": 0.2, "grip": 0.3, "grip_back": -0.25}
RATES = {"yaw": 1.0, "shoulder": -2.0, "reach": 0.5, "grip": 3.0, "grip_back": -3.0}


def about(axis, angle):
    cross = np.cross(np.eye(3), axis)
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def numbers(node, key, default="0 0 0"):
    return np.asarray([float(x) for x in (default if node is None else node.get(key, default)).split()])


def origin(node):
    """Returns the 4 x 4 matrix of an <origin>."""
    roll, pitch, yaw = numbers(node, "rpy")
    matrix = np.eye(4)
    matrix[:3, :3] = about((0, 0, 1), yaw) @ about((0, 1, 0), pitch) @ about((1, 0, 0), roll)
    matrix[:3, 3] = numbers(node, "xyz")
    return matrix


def placed(positions):
    """Returns the poses of all links as 4 x 4 matrices, from the file by another reader."""
    root = ET.parse(FILE).getroot()
    poses = {"base": np.eye(4)}
    for joint in root.findall("joint"):  # parents come first in this file
        moved = np.eye(4)
        axis = numbers(joint.find("axis"), "xyz", "1 0 0")
        value = positions.get(joint.get("name"), 0.0)
        if joint.get("type") == "prismatic":
            moved[:3, 3] = value * axis / np.linalg.norm(axis)
        elif joint.get("type") != "fixed":
            moved[:3, :3] = about(axis / np.linalg.norm(axis), value)
        poses[joint.find("child").get("link")] = (
            poses[joint.find("parent").get("link")] @ origin(joint.find("origin")) @ moved
        )
    return poses


def energies(step=1e-5):
    """Returns kinetic and potential energy at POSITIONS and RATES, by differences of the poses; the base
    stands.
    """
    root = ET.parse(FILE).getroot()
    ahead, behind = (
        placed({name: POSITIONS[name] + sign * step * RATES[name] for name in POSITIONS}) for sign in (1, -1)
    )
    here = placed(POSITIONS)
    kinetic = potential = 0.0
    for link in root.findall("link"):
        inertial, name = link.find("inertial"), link.get("name")
        if inertial is None or name == "base":
            continue
        own = origin(inertial.find("origin"))
        mass, tensor = float(inertial.find("mass").get("value")), inertial.find("inertia")
        xx, xy, xz, yy, yz, zz = (
            float(tensor.get(key)) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        before, at, after = (poses[name] @ own for poses in (behind, here, ahead))
        velocity = (after - before)[:3, 3] / (2 * step)
        turning = (after - before)[:3, :3] @ at[:3, :3].T / (2 * step)
        omega = at[:3, :3].T @ np.asarray([turning[2, 1], turning[0, 2], turning[1, 0]])
        kinetic += (
            0.5 * mass * velocity @ velocity
            + 0.5 * omega @ np.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ omega
        )
        potential += mass * 9.81 * at[2, 3]
    return kinetic, potential


@pytest.fixture(scope="module")
def robot():
    return robots.load(FILE)


@pytest.fixture(scope="module")
def arm(robot):
    mechanism, q = jm.mechanism(robot.description, jm.Joints())
    return mechanism, robots.joint_state(mechanism, q, POSITIONS, RATES)


def test_links_are_where_the_file_puts_them(robot, arm):
    mechanism, state = arm
    frames = mechanism.frames(state.q)
    places, rows = np.stack(frames[:3], axis=1), np.stack(frames[3:], axis=-1).reshape(-1, 3, 3)
    for link, pose in placed(POSITIONS).items():
        frame = robot.report.frames[link]
        turn, place = np.eye(3), np.zeros(3)
        if frame.body != "ground":
            number = mechanism.body_names.index(frame.body)
            turn, place = rows[number], places[number]
        np.testing.assert_allclose(turn @ frame.rotation, pose[:3, :3], rtol=0, atol=1e-14, err_msg=link)
        np.testing.assert_allclose(place + turn @ frame.place, pose[:3, 3], rtol=0, atol=1e-14, err_msg=link)


def test_energies_are_those_of_the_file(arm):
    mechanism, state = arm
    kinetic, potential = energies()
    np.testing.assert_allclose(mechanism.kinetic_energy(state.q, state.v), kinetic, rtol=1e-8)
    np.testing.assert_allclose(mechanism.potential_energy(state.t, state.q), potential, rtol=1e-13)


def test_what_moves_what_follows_and_what_resists(robot, arm):
    mechanism, state = arm
    assert mechanism.body_names == ("column", "arm", "boom", "finger", "thumb")
    assert mechanism.names.coordinates == (
        "yaw.angle",
        "shoulder.angle",
        "reach.slide",
        "grip.angle",
        "grip_back.angle",
    )
    assert mechanism.names.rows == ("grip_back_mimic.relation",)
    np.testing.assert_allclose(
        mechanism.constraint(state.t, state.q), -0.25 - (0.05 - 0.3), rtol=0, atol=1e-15
    )
    np.testing.assert_array_equal(mechanism.coordinates.damping, [0.05, 0.1, 0.0, 0.0, 0.0])
    assert robot.start == {"yaw": 0.0, "shoulder": 0.0, "reach": 0.0, "grip": 0.0, "grip_back": 0.05}


def test_the_report(robot):
    report = robot.report
    assert report.merged == {"camera": "boom", "tool": "boom"}
    assert report.grounded == ("base",)
    assert report.limits["grip_back"] == {"lower": -0.8, "upper": 0.2, "velocity": 5.0, "effort": 5.0}
    assert [(one.what, one.count) for one in report.ignored] == [("transmission", 1)]
    assert str(report).splitlines() == [
        "gripper_arm: 8 links, 5 bodies, fixed base, 4.7 kg",
        "welded to the ground, ignored: base",
        "relation grip_back_mimic: grip_back = 0.05 + -1 grip",
        "limits of joints: 4; stored, not enforced",
        "not used: <transmission>, 1 times, first in line 102",
    ]


@pytest.mark.long
def test_a_rollout_and_its_derivative(robot):
    mechanism, q = jm.mechanism(robot.description, jm.Joints())

    def end(angle):
        start = robots.joint_state(mechanism, q, robot.start | {"yaw": angle})
        return jaxdae.rollout(
            mechanism, jaxdae.SemiImplicitEuler(), start, dt=1e-3, steps=20, save_every=20
        ).state.q[-1, 0]

    both = jax.jit(jax.value_and_grad(end))
    behind, ahead = (both(0.1 + side * 1e-5)[0] for side in (-1, 1))
    np.testing.assert_allclose(both(0.1)[1], (ahead - behind) / 2e-5, rtol=1e-7)


def test_a_floating_base():
    found = robots.load(FILE, base="floating")
    mechanism, q = jm.mechanism(found.description, jm.Joints())
    assert mechanism.body_names[0] == "base"
    assert len(mechanism.names.velocities) == 11
    np.testing.assert_allclose(np.sum(mechanism.mass), 9.7, rtol=1e-14)
    state = robots.joint_state(mechanism, q, POSITIONS)
    np.testing.assert_array_equal(state.q[:7], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])


@pytest.mark.exhaustive
def test_both_forms_of_coordinates_accelerate_alike(robot, arm):
    mechanism, state = arm
    absolute, _ = jm.mechanism(robot.description)
    solver = jaxdae.DenseKKT()
    a, _ = jaxdae.forward_dynamics(mechanism, state, None, solver=solver)
    there = jm.to_absolute(mechanism, state)
    expected, _ = jaxdae.forward_dynamics(absolute, there, None, solver=solver)
    np.testing.assert_allclose(
        body_accelerations(mechanism, state, a), expected, rtol=0, atol=1e-10 * np.abs(expected).max()
    )


BOX = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def link(name, inside=""):
    return f'<link name="{name}">{inside}</link>'


def joint(kind="revolute", parent="a", child="b", inside="", name="j"):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'
    )


def of(*parts):
    return f"<robot>{''.join(parts)}</robot>"


LINKS = link("a") + link("b", BOX)

MISTAKES = {
    "no XML": ("<robot", ":1: invalid XML: "),
    "another root": ("<mujoco/>", ":1: the root element is <mujoco>, expected <robot>"),
    "an entity": (
        '<!DOCTYPE r [<!ENTITY e "x">]><robot/>',
        ": document types and entities are not supported; remove them",
    ),
    "xacro": (of('<xacro:macro name="m"/>'), "a xacro source, not a URDF; run `xacro"),
    "a xacro value": (of(link("${x}")), "a xacro source, not a URDF"),
    "no links": (of(), ":1: the robot has no links"),
    "a nameless link": (of("<link/>"), "<link> has no name"),
    "a link twice": (
        of(LINKS, "\n", link("a"), joint()),
        ":2: the link 'a' is already defined in line 1",
    ),
    "ground": (of(link("ground")), "a link must not be named 'ground'"),
    "a joint twice": (of(LINKS, joint(), joint()), "the joint 'j' is already defined in line 1"),
    "a type": (of(LINKS, joint("revolut")), "unknown type 'revolut' (did you mean 'revolute'?)"),
    "a link that is not": (of(LINKS, joint(parent="aa")), "the parent of joint 'j' is the unknown link 'aa'"),
    "no child": (
        of(LINKS, '<joint name="j" type="fixed"><parent link="a"/></joint>'),
        "the child of joint 'j' is the unknown",
    ),
    "two roots": (of(LINKS), "the links 'a', 'b' have no parent; a robot has one root"),
    "two parents": (
        of(LINKS, joint(), joint(name="k")),
        "link 'b' has two parents, by the joints 'j' and 'k'; URDF does not support loops",
    ),
    "a circle": (
        of(LINKS, link("c"), joint("fixed", "c", "b"), joint("fixed", "b", "c", name="k")),
        "the links 'b', 'c' form a cycle",
    ),
    "an axis of zero": (of(LINKS, joint(inside='<axis xyz="0 0 0"/>')), "the axis of joint 'j' is zero"),
    "words": (
        of(LINKS, joint(inside='<axis xyz="0 x 0"/>')),
        "xyz of <axis> must be 3 finite numbers, got '0 x 0'",
    ),
    "infinity": (of(LINKS, joint(inside='<axis xyz="0 inf 0"/>')), "must be 3 finite numbers"),
    "limits": (
        of(LINKS, joint(inside='<limit lower="1" upper="0"/>')),
        "the joint 'j' has the lower limit 1 above the upper one 0",
    ),
    "effort": (
        of(LINKS, joint(inside='<limit lower="0" upper="1" effort="-5" velocity="1"/>')),
        "the effort limit of joint 'j' must be non-negative, got -5",
    ),
    "damping": (
        of(LINKS, joint(inside='<dynamics damping="-1"/>')),
        "joint 'j': damping must be non-negative, got -1",
    ),
    "mass": (
        of(LINKS, joint()).replace('mass value="1"', 'mass value="-1"'),
        "the mass of link 'b' must not be negative, got -1",
    ),
    "no mass": (
        of(LINKS, joint()).replace(BOX, ""),
        "link 'b' moves by the joint 'j' and has no mass, and the links that it carries",
    ),
    "inertia": (
        of(LINKS, joint()).replace('ixx="1"', 'ixx="-1"'),
        "and has 1 kg with the principal moments of inertia [-1.  1.  1.]",
    ),
    "inertia that is not felt": (
        of(LINKS, joint()).replace('iyy="1"', 'iyy="-1"'),
        "link 'b', including the links welded to it: inertia must be positive definite",
    ),
    "a mimic of nothing": (
        of(LINKS, joint(inside='<mimic joint="k"/>')),
        "the joint 'j' mimics the unknown joint 'k'",
    ),
    "a mimic of itself": (
        of(LINKS, joint(inside='<mimic joint="j"/>')),
        "the joint 'j' mimics itself through j -> j",
    ),
    "floating": (
        of(LINKS, link("c", BOX), joint(), joint("floating", "b", "c", name="k")),
        "the floating joint 'k' must have the root, or a link welded to the root, as parent",
    ),
}


@all_cases("name", MISTAKES)
def test_mistakes_in_a_file(name, tmp_path):
    text, message = MISTAKES[name]
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.raises(robots.RobotFileError) as error:
        robots.load(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_all_mistakes_at_once(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(of(LINKS, "\n", joint("hinge"), "\n", link("c", BOX.replace('value="1"', 'value="?"'))))
    with pytest.raises(robots.RobotFileError) as error:
        robots.load(path)
    assert [problem.removeprefix(str(path))[:2] for problem in error.value.problems] == [":3", ":2"]


def test_mistakes_in_the_call(tmp_path, arm):
    with pytest.raises(
        ValueError, match=r"'arm.obj' must be a robot file that ends in .urdf or .sdf or .xml or .mjcf"
    ):
        robots.load(tmp_path / "arm.obj")
    with pytest.raises(ValueError, match="base must be 'fixed' or 'floating', got 'free'"):
        robots.load(FILE, base="free")
    with pytest.raises(robots.RobotFileError, match="cannot be read: No such file"):
        robots.load(tmp_path / "none.urdf")
    with pytest.raises(robots.RobotFileError, match=r":102: <transmission> is not used \(1 times\)"):
        robots.load(FILE, strict=True)
    mechanism, state = arm
    with pytest.raises(
        ValueError,
        match=r"positions of 'yew', which is not a joint with coordinates \(did you mean 'yaw'\?\)",
    ):
        robots.joint_state(mechanism, state.q, {"yew": 1.0})
    for value in (np.nan, np.inf, "1", True):
        with pytest.raises(ValueError, match="positions of 'yaw' must be finite numbers, got"):
            robots.joint_state(mechanism, state.q, {"yaw": value})


def test_what_acts_in_balls(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(
        of(
            link("a", BOX),
            link("b", BOX),
            joint("spherical", inside='<dynamics damping="2" spring_stiffness="3"/>'),
        )
    )
    robot = robots.load(path, base="floating")
    assert [(force.a, force.b, force.damping) for force in robot.description.forces] == [("a", "b", 2.0)]
    assert [one.what for one in robot.report.ignored] == ["dynamics spring_stiffness"]
    path.write_text(
        of(link("a"), link("b", BOX), joint(inside='<limit lower="1" upper="2" velocity="inf"/>'))
    )
    assert robots.load(path).report.limits == {"j": {"lower": 1.0, "upper": 2.0}}
    assert "the start violates the limits of: j" in robots.load(path).report.notes
    path.write_text(
        of(link("a"), link("b", BOX), joint("continuous", inside='<limit lower="1" upper="2" velocity="3"/>'))
    )
    report = robots.load(path).report
    assert report.limits == {"j": {"velocity": 3.0}}
    assert not any("violates the limits" in note for note in report.notes)


def test_floating_joint_at_the_root_makes_a_free_body(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(of(LINKS, joint("floating")))
    mechanism, _ = jm.mechanism(robots.load(path).description, jm.Joints())
    assert len(mechanism.names.velocities) == 6


@pytest.mark.long
def test_planar_joints_move_in_the_plane_across_their_axis(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(of(LINKS, joint("planar", inside='<axis xyz="0 0 1"/>')))
    (found,) = robots.load(path).description.joints
    assert isinstance(found, js.Planar)
    np.testing.assert_allclose(found.axes_a[:, 2], [0.0, 0.0, 1.0])
