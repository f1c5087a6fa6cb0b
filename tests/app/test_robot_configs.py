"""Robots from files in configs, and `jaxdae check` of a robot file."""

import pathlib

import numpy as np
import pytest
from all_cases import all_cases
from typer.testing import CliRunner

import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.app.cli import app
from jaxdae.app.config import config_elements, robot_section
from jaxdae.app.config.config_source import Document, read
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.model import build
from jaxdae.app.model.load_config import load

ROOT = pathlib.Path(__file__).parents[2]
MODELS = ROOT / "configs" / "models"
END = "duration: 1\ndt: 0.01\n"


def written_out(mechanism, *overrides):
    text = f"name: test\nmechanism:\n  file: models/gripper_arm.urdf\n{mechanism}{END}"
    return Config.model_validate(Document(str(ROOT / "configs" / "test.yaml"), text, overrides).data)


@pytest.mark.long
def test_a_config_has_the_robot_of_its_file():
    config = written_out("", "bodies.arm.mass=2.5")
    ours, q, _, _ = build.construct(config.model_dump())
    found = robots.load(MODELS / "gripper_arm.urdf")
    theirs, _ = jm.mechanism(found.description, jm.Joints())
    start = robots.joint_state(theirs, q, found.start)
    assert ours.names == theirs.names
    np.testing.assert_allclose(q, start.q, rtol=0, atol=1e-15)
    expected = np.where(np.asarray(theirs.body_names) == "arm", 2.5, theirs.mass)
    np.testing.assert_array_equal(ours.mass, expected)
    moved = q + 0.1
    for one, other in zip(ours.frames(moved), theirs.frames(moved), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)


@pytest.mark.long
def test_what_is_counted_from_the_pose_of_the_file_is_so_where_the_start_is_another(tmp_path):
    """The spring of a ball, and a joint that an equality holds: both are about the pose of the file, not
    about the state `home`.
    """
    pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    ball = (
        '<body pos="0.3 0 0.1" euler="10 0 0"><joint name="b" type="ball" stiffness="4"/><geom '
        'size="0.1" pos="0.1 0 0"/></body>'
    )
    arm = (
        '<body name="a" euler="20 30 0"><joint name="h" axis="0 1 0" ref="30"/><geom size="0.1" pos="0.1 '
        f'0 0"/>{ball}</body>'
    )
    held = '<equality><joint joint1="h" polycoef="0.25 0 0 0 0"/></equality>'
    home = f'<keyframe><key name="home" qpos="{np.radians(30) + 0.25} 0.7 0.5 -0.3 0.2"/></keyframe>'
    (tmp_path / "robot.xml").write_text(f"<mujoco><worldbody>{arm}</worldbody>{held}{home}</mujoco>")
    found = robots.load(tmp_path / "robot.xml", gravity=(0.0, 0.0, 0.0))
    text = f"name: test\nmechanism: {{file: robot.xml, gravity: [0, 0, 0]}}\n{END}"
    ours, q, _, _ = build.construct(
        Config.model_validate(Document(str(tmp_path / "test.yaml"), text).data).model_dump()
    )
    theirs, _ = jm.mechanism(found.description, jm.Joints())
    state = robots.joint_state(theirs, q, found.start)
    np.testing.assert_allclose(q, state.q, rtol=0, atol=1e-15)
    # |phi| of a quaternion wxyz is twice the arctangent of |xyz| over w.
    angle = 2.0 * np.arctan2(np.linalg.norm([0.5, -0.3, 0.2]), 0.7)
    for made in (ours, theirs):
        np.testing.assert_allclose(made.constraint(state.t, q), 0.0, rtol=0, atol=1e-15)
        np.testing.assert_allclose(made.potential_energy(state.t, q), 0.5 * 4.0 * angle**2, rtol=1e-14)


@pytest.mark.long
def test_hinges_start_with_all_their_turns(tmp_path):
    """A state `home` beyond half a turn: poses of bodies alone would take a turn away, which a spring feels."""
    pytest.importorskip("mujoco", reason="the extra robots is not installed: pip install '.[robots]'")
    arm = '<body name="a"><joint name="h" axis="0 1 0" stiffness="2"/><geom size="0.1" pos="0.1 0 0"/></body>'
    (tmp_path / "robot.xml").write_text(
        f'<mujoco><worldbody>{arm}</worldbody><keyframe><key name="home" qpos="4"/></keyframe></mujoco>'
    )
    text = f"name: test\nmechanism: {{file: robot.xml}}\n{END}"
    config = Config.model_validate(Document(str(tmp_path / "test.yaml"), text).data)
    assert config.start.positions == {"h.angle": 4.0}
    np.testing.assert_allclose(build.construct(config.model_dump())[1], [4.0])
    own = Config.model_validate(
        Document(str(tmp_path / "test.yaml"), text, ("start.positions.h.angle=5",)).data
    )
    assert own.start.positions == {"h.angle": 5}


@pytest.mark.long
def test_what_is_added_may_name_links():
    config = written_out(
        "  bodies: [{name: load, mass: 1, inertia: [1, 1, 1], pose: {place: [0, 0, 2]}}]\n"
        "  joints: [{type: ball, name: hook, a: tool, b: load, point_a: [0, 0, 0.1], point_b: [0, 0, 0.3]}]\n"
        "  forces: [{type: force, name: push, body: camera, point: [0.1, 0, 0], force: [1, 2, 3]}]\n"
    )
    described = config_elements.description(config.model_dump())
    frames = robots.load(MODELS / "gripper_arm.urdf").report.frames
    hook = next(joint for joint in described.joints if joint.name == "hook")
    assert (hook.a, hook.b) == (frames["tool"].body, "load")
    np.testing.assert_allclose(
        hook.point_a, frames["tool"].place + frames["tool"].rotation @ [0, 0, 0.1], rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(hook.point_b, [0, 0, 0.3])
    (push,) = described.forces
    np.testing.assert_allclose(
        push.point, frames["camera"].place + frames["camera"].rotation @ [0.1, 0, 0], rtol=0, atol=1e-15
    )


@pytest.mark.long
def test_what_turns_with_a_link_is_in_the_axes_of_the_link():
    forces = (
        "  forces:\n"
        "    - {type: force, name: push, body: camera, point: [0, 0, 0], force: [1, 2, 3], body_frame: "
        "true}\n"
        "    - {type: torque, name: twist, a: ground, b: camera, torque: [1, 2, 3], body_frame: true}\n"
        "    - {type: force, name: pull, body: camera, point: [0, 0, 0], force: [1, 2, 3]}\n"
    )
    push, twist, pull = config_elements.description(written_out(forces).model_dump()).forces
    camera = robots.load(MODELS / "gripper_arm.urdf").report.frames["camera"]
    np.testing.assert_allclose(push.force, camera.rotation @ [1, 2, 3], rtol=0, atol=1e-15)
    np.testing.assert_allclose(twist.torque, camera.rotation @ [1, 2, 3], rtol=0, atol=1e-15)
    np.testing.assert_allclose(pull.force, [1, 2, 3])


def test_mistakes_in_what_is_added_stay_where_they_are():
    wrong = (
        "  forces: [{type: force, name: push, body: camera, point: [[1], [1, 2]], force: heavy, "
        "body_frame: true}]\n"
    )
    with pytest.raises(ValueError, match="point"):
        written_out(wrong)


@pytest.mark.exhaustive
def test_loops_of_a_config():
    config = Config.model_validate(read(str(ROOT / "configs" / "four_bar_gripper.yaml")).data)
    assert config.mechanism.cut == ["pin_left", "pin_right"]
    assert [joint.type for joint in config.mechanism.joints if joint.name.startswith("pin")] == [
        "point_on_line"
    ] * 2


MISTAKES = {
    "no file": ("  file: none.urdf\n", "none.urdf: cannot be read: No such file"),
    "no robot": ("  file: {}\n", "mechanism.file: got {}, expected a path to a robot file"),
    "another ending": ("  file: arm.obj\n", "'arm.obj' must be a robot file that ends in .urdf"),
    "a base": (
        "  file: models/gripper_arm.urdf\n  base: free\n",
        "base must be 'fixed' or 'floating', got 'free'",
    ),
    "a loop": (
        "  file: models/gripper_arm.urdf\n  loops: [{type: bal}]\n",
        "mechanism.loops: got {'type': 'bal'}, which is not a joint",
    ),
    "a link": (
        "  file: models/gripper_arm.urdf\n  loops: [{type: ball, name: l, a: tol, b: arm, at: [0, 0, 0]}]\n",
        "loop 'l': a is 'tol', which is not a link (did you mean 'tool'?)",
    ),
    "packages": (
        "  file: models/gripper_arm.urdf\n  packages: 3\n",
        "mechanism.packages: got 3, expected a mapping of package names to folders",
    ),
}


@all_cases("name", MISTAKES)
def test_mistakes(name):
    section, message = MISTAKES[name]
    with pytest.raises(ConfigError) as error:
        Document(str(ROOT / "configs" / "test.yaml"), f"name: test\nmechanism:\n{section}{END}")
    assert message in str(error.value)
    assert "configs/test.yaml:3" in str(error.value) or "configs/test.yaml:4" in str(error.value)


def test_check_of_a_robot_file():
    lines = robot_section.lines(str(MODELS / "gripper_arm.urdf"))
    for line in (
        "gripper_arm: 8 links, 5 bodies, fixed base, 4.7 kg",
        "      arm (shoulder)",
        "        boom (reach)",
        "          camera (welded)",
        "not used: <transmission>, 1 times, first in line 102",
    ):
        assert line in lines, line
    assert "mobility                    4" in lines[-1]


@pytest.mark.exhaustive
def test_check_prints_the_stable_step_of_the_run_of_a_robot_file(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(
        """<robot name="arm"><link name="base"/><link name="arm"><inertial><origin xyz="0.3 0 0"/><mass value="1"/>
        <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
        <joint name="hinge" type="continuous"><parent link="base"/><child link="arm"/><axis xyz="0 1 0"/>
        <dynamics damping="500"/></joint></robot>"""
    )
    found = CliRunner().invoke(app, ["check", str(path), "--set", "dt=0.0005"])
    assert found.exit_code == 0, found.output
    line = next(line for line in found.output.splitlines() if line.startswith("stable step"))
    # RK4 with growth by 10 % per step, |R(-2.83)| = 1.1; moment about the hinge 0.01 + 0.3^2.
    np.testing.assert_allclose(float(line.split()[2]), 2.83 * (0.01 + 0.3**2) / 500.0, rtol=0.01)
    assert line.endswith("dt = 0.0005 s")


@pytest.mark.exhaustive
def test_a_robot_file_is_a_config_of_its_own(tmp_path):
    config, worlds = load(str(MODELS / "gripper_arm.urdf"), ("duration=0.5", "bodies.arm.mass=2.5"))
    told = written_out("", "name=gripper_arm", "duration=0.5", "dt=0.001", "bodies.arm.mass=2.5")
    assert config.model_dump() | {"mechanism": None} == told.model_dump() | {"mechanism": None}
    ours, q, _, _ = build.construct(config.model_dump())
    theirs, expected, _, _ = build.construct(told.model_dump())
    assert (ours.names, worlds.size) == (theirs.names, 1)
    np.testing.assert_array_equal(q, expected)
    np.testing.assert_array_equal(ours.mass, theirs.mass)
    path = tmp_path / "2 legs.urdf"
    path.write_text("<robot><link/></robot>")
    with pytest.raises(ConfigError, match="<link> has no name"):
        read(str(path))
    path.write_text((MODELS / "gripper_arm.urdf").read_text())
    assert read(str(path)).data["name"] == "_2_legs"
    with pytest.raises(ConfigError, match="no such file"):
        read(str(tmp_path / "none.urdf"))


def test_check_of_what_is_no_robot(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text("<robot><link/></robot>")
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.exit_code == 2
    assert f"{path}:1: <link> has no name" in result.output


def test_names_that_configs_do_not_allow(tmp_path):
    text = (
        (MODELS / "gripper_arm.urdf")
        .read_text()
        .replace('"arm"', '"left arm/1"')
        .replace('"boom"', '"left_arm_1"')
    )
    (tmp_path / "robot.urdf").write_text(text)
    config = tmp_path / "c.yaml"
    config.write_text(f"name: test\nmechanism:\n  file: robot.urdf\n{END}")
    names = [body.name for body in Config.model_validate(read(str(config)).data).mechanism.bodies]
    assert names == ["column", "left_arm_1", "left_arm_1_2", "finger", "thumb"]


UNIVERSAL = """<mujoco><worldbody><body><joint name="first" axis="1 0 0"/><joint name="second" axis="0 1 0"/>
<geom size="0.1" pos="0.2 0.3 1"/></body></worldbody></mujoco>"""


@pytest.mark.long
def test_links_without_mass(tmp_path):
    """MJCF has them between the joints of a body; a config says that it means them."""
    pytest.importorskip("mujoco")
    (tmp_path / "robot.xml").write_text(UNIVERSAL)
    config = tmp_path / "c.yaml"
    config.write_text(f"name: test\nmechanism:\n  file: robot.xml\n{END}")
    written = Config.model_validate(read(str(config)).data)
    assert [(body.massless, body.mass is None) for body in written.mechanism.bodies] == [
        (True, True),
        (False, False),
    ]
    ours, _, _, _ = build.construct(written.model_dump())
    assert ours.mass[0] == 0.0
    for section, message in (
        ("coordinates: absolute", "with coordinates absolute, expected coordinates joints"),
        ("bodies: [{name: b, mass: 1, pose: {place: [0, 0, 0]}}]", "got no inertia, expected inertia"),
    ):
        config.write_text(f"name: test\nmechanism:\n  file: robot.xml\n  {section}\n{END}")
        with pytest.raises(ConfigError, match=message):
            load(str(config))


CUBES = """<robot name="cubes"><link name="low">{body}</link><link name="mid">{mass}</link><link name="top">{body}</link>
<joint name="i" type="fixed"><parent link="low"/><child link="mid"/></joint>
<joint name="j" type="prismatic"><parent link="mid"/><child link="pad"/><axis xyz="0 0 1"/><limit lower="-1" upper="1"
 effort="1" velocity="1"/></joint><link name="pad">{mass}</link>
<joint name="k" type="continuous"><parent link="pad"/><child link="top"/><origin xyz="0 0 0.3"/></joint></robot>"""
MASS = """<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>"""
BALL = """<collision><geometry><sphere radius="0.1"/></geometry></collision>"""


@pytest.mark.long
def test_contacts_of_a_robot_file_reach_configs_and_check(tmp_path):
    (tmp_path / "cubes.urdf").write_text(CUBES.format(body=MASS + BALL, mass=MASS))
    text = f"name: test\nmechanism: {{file: cubes.urdf, file_contacts: %s}}\n{END}"

    def config(contacts):
        return Config.model_validate(Document(str(tmp_path / "a.yaml"), text % contacts, ()).data)

    (pair,) = config("true").mechanism.contacts
    assert (pair.name, pair.a, pair.b, pair.friction) == (
        "low_collision0_top_collision0",
        "ground",
        "top",
        1.0,
    )
    assert (pair.shape_a.radius, pair.shape_b.type) == (0.1, "sphere")
    assert [pair.name for pair in config("[ground]").mechanism.contacts] == ["ground_top_collision0"]
    assert not config("false").mechanism.contacts
    overrides = ("mechanism.file_contacts=[ground]", "mechanism.limits=true", "bodies.top.mass=2")
    changed = Config.model_validate(
        Document(str(tmp_path / "a.yaml"), text % "false", overrides).data
    ).mechanism
    assert [pair.name for pair in changed.contacts] == ["ground_top_collision0"]
    assert [joint.limits for joint in changed.joints if joint.name == "j"] == [[-1.0, 1.0]]
    assert [body.mass for body in changed.bodies if body.name == "top"] == [2.0]
    with pytest.raises(ConfigError, match="names of collision shapes or links"):
        config("3")
    lines = robot_section.lines(str(tmp_path / "cubes.urdf"))
    assert lines[-2:] == ["contacts of the file        1", "  low_collision0/top_collision0 gap 0.1 m"]


@pytest.mark.long
def test_contacts_of_a_config_are_in_the_frames_of_links(tmp_path):
    """The frame of the body is in the mass center, and not parallel to the frame of the link."""
    inertial = MASS.replace("<inertial>", '<inertial><origin xyz="0.1 0.2 0.3" rpy="0.4 0 0"/>')
    (tmp_path / "cubes.urdf").write_text(CUBES.format(body=inertial, mass=MASS))
    shape = "{type: sphere, radius: 0.1, at: [0.5, 0, 0]}"
    pair = f"{{name: one, a: ground, b: top, shape_a: {{type: plane}}, shape_b: {shape}, friction: 0.7}}"
    text = f"name: test\nmechanism: {{file: cubes.urdf, contacts: [{pair}]}}\n{END}"
    config = Config.model_validate(Document(str(tmp_path / "a.yaml"), text, ()).data)
    (found,) = config.mechanism.contacts
    frame = robots.load(tmp_path / "cubes.urdf").report.frames["top"]
    assert np.linalg.norm(frame.place) > 0.1
    np.testing.assert_allclose(
        found.shape_b.at, frame.place + frame.rotation @ [0.5, 0, 0], rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(
        robots.quaternion_matrix(np.asarray(found.shape_b.quaternion)), frame.rotation, rtol=0, atol=1e-12
    )
    assert (found.name, found.a, found.b, found.friction) == ("one", "ground", "top", 0.7)
