"""Contacts of URDF and SDF files: the pairs, coefficients, gaps and motion of an equal MJCF file."""

import dataclasses

import jax
import numpy as np
import pytest
from robot_contact_files import MJCF, SDF, URDF

import jaxdae as jd
from jaxdae import contact, robots
from jaxdae import mechanisms as jm

mujoco = pytest.importorskip("mujoco")


def loaded(folder, ending, text, contacts, **options):
    path = folder / f"robot{ending}"
    path.write_text(text)
    return robots.load(path, contacts=contacts, **options)


def three(folder):
    """Return the robots of the three files, MJCF first."""
    return [
        loaded(folder, ".xml", MJCF, True),
        loaded(folder, ".urdf", URDF, ["ground", "hand"], base="floating"),
        loaded(folder, ".sdf", SDF, True),
    ]


def pairs(robot):
    """Return the numbers of the contacts by name, without prefixes of models and in a fixed order of bodies."""
    found = {}
    for one in robot.description.contacts:
        a, b = one.name.split("/")
        sides = {a: (one.a, one.shape_a), b: (one.b, one.shape_b)}
        found[tuple(sorted(sides))] = one.friction, one.restitution, dict(sorted(sides.items()))
    return found


def numbers(shape):
    return [np.ravel(np.asarray(x, float)) for x in jax.tree.leaves(dataclasses.asdict(shape))]


def test_pairs_of_urdf_and_sdf_are_those_of_an_equal_mjcf_file(tmp_path):
    expected, *others = map(pairs, three(tmp_path))
    for found, bounce in zip(others, (0.0, 0.4), strict=True):
        assert found.keys() == expected.keys()
        for name, (friction, restitution, sides) in found.items():
            assert friction == expected[name][0]
            assert restitution == (bounce if "tip" in name else 0.0)
            for geom, (body, shape) in sides.items():
                own_body, own_shape = expected[name][2][geom]
                assert body.removeprefix("robot::") == own_body
                assert type(shape) is type(own_shape)
                np.testing.assert_allclose(
                    np.concatenate(numbers(shape)), np.concatenate(numbers(own_shape)), atol=1e-12
                )


def test_unused_elements_and_meshes_are_reported(tmp_path):
    _, urdf, sdf = (robot.report for robot in three(tmp_path))
    assert [one.what for one in urdf.ignored] == ["contact_coefficients kp", "mu2", "kp", "kd"]
    assert [one.what for one in sdf.ignored] == ["mu2", "fdir1", "slip1", "torsional", "kp", "soft_cfm"]
    assert "contacts between mesh and plane are not supported: 1 pairs of geoms" in urdf.notes
    without = loaded(tmp_path, ".urdf", URDF, False).report.ignored
    assert [one.what for one in without] == ["collision", "gazebo"]


def test_filters_of_the_formats(tmp_path):
    # Links of one model of an SDF collide on request, and a URDF has a ground only by name.
    filtered = SDF.replace("<self_collide>true</self_collide>", "")
    assert set(pairs(loaded(tmp_path, ".sdf", filtered, ["robot::hand"]))) == {("ground", "tip")}
    masked = SDF.replace("<contact>", "<contact><collide_bitmask>0x0</collide_bitmask>")
    assert not any("tip" in name for name in pairs(loaded(tmp_path, ".sdf", masked, True)))
    assert set(pairs(loaded(tmp_path, ".urdf", URDF, True))) == {("shell", "tip"), ("drum", "tip")}
    # The root of a URDF is fixed by default, and cannot touch the ground.
    standing = pairs(loaded(tmp_path, ".urdf", URDF, ["ground"]))
    assert set(standing) == {("ground", "rod"), ("ground", "tip")}
    twice = URDF.replace('"tip"', '"rod"')
    assert ("drum", "hand_collision0") in pairs(loaded(tmp_path, ".urdf", twice, True))


def test_mistakes_of_collision_elements_are_listed(tmp_path):
    wrong = URDF.replace("<mu1>0.3", "<mu1>-0.3").replace('<sphere radius="0.06"/>', "<sphere/>")
    with pytest.raises(robots.RobotFileError) as error:
        loaded(tmp_path, ".urdf", wrong, True)
    first, *_, last = error.value.problems
    assert "friction of a collision of link 'torso' must be non-negative, got -0.3" in first
    assert "<sphere> has no radius" in last
    robots.load(tmp_path / "robot.urdf")  # Contacts are read only on request.
    with pytest.raises(robots.RobotFileError, match="restitution of a collision of link"):
        loaded(tmp_path, ".sdf", SDF.replace(">0.4<", ">1.4<"), True)


@pytest.mark.exhaustive
def test_hands_of_the_three_formats_have_equal_gaps_and_motions(tmp_path):
    step = contact.Touching(jd.SemiImplicitEuler(), contact_solver=contact.ContactNewton(10))
    turned = (0.0, 0.0, 0.17, np.cos(0.2), np.sin(0.2), 0.0, 0.0)
    rigid = SDF.replace("<restitution_coefficient>0.4", "<restitution_coefficient>0.0")
    files = [(".xml", MJCF, "", None), (".urdf", URDF, "", "floating"), (".sdf", rigid, "robot::", None)]
    ends = []
    for ending, text, prefix, base in files:
        robot = loaded(tmp_path, ending, text, [f"{prefix}hand"], base=base)
        mechanism, q = jm.mechanism(robot.description, jm.Joints())
        state = robots.joint_state(
            mechanism, q, robot.start | {f"{prefix}torso": turned, f"{prefix}elbow": 0.3}
        )
        moved = jd.rollout(mechanism, step, state, dt=4e-3, steps=50)
        assert (moved.info.status == 0).all()
        assert moved.info.force.max() > 1.0
        place = robots.link_frame(robot.report, mechanism, moved.state.q[-1], f"{prefix}hand")[0]
        ends.append((np.sort(moved.info.gap[0]), place))
    for gap, place in ends[1:]:
        np.testing.assert_allclose(gap, ends[0][0], atol=1e-12)
        np.testing.assert_allclose(place, ends[0][1], atol=1e-9)


def test_collision_shapes_in_degrees_raise_a_warning(tmp_path):
    inertial = (
        '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    )
    box = '<geometry><box size="1 2 3"/></geometry>'
    urdf = f'<robot name="r"><link name="a">{inertial}<collision><origin rpy="90 0 0"/>{box}</collision></link></robot>'
    one, other = (
        f'<link name="{name}"><collision name="box"><pose>0 0 0 {turn} 0 0</pose>'
        "<geometry><box><size>1 2 3</size></box></geometry></collision></link>"
        for name, turn in (("a", 90), ("b", 0))
    )
    sdf = f'<sdf version="1.9"><model name="m">{one}{other}</model></sdf>'
    for ending, text, contacts in ((".urdf", urdf, ["ground"]), (".sdf", sdf, True)):
        with pytest.warns(
            jm.DescriptionWarning, match="is 90 0 0 rad; if these are degrees, write 1.5708 0 0"
        ):
            robot = loaded(tmp_path, ending, text, contacts, base="floating")
        assert any(note.startswith("angles: ") for note in robot.report.notes)
