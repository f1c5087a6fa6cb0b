"""What SDF files may say of frames, joints and other files, and what is wrong with them."""

import numpy as np
import pytest
from all_cases import all_cases

import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

BOX = "<inertial><mass>1</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>"


def link(name, pose="", inside=BOX):
    return f'<link name="{name}">{pose}{inside}</link>'


def joint(kind="revolute", parent="a", child="b", inside="<axis><xyz>0 0 1</xyz></axis>", name="j"):
    return (
        f'<joint name="{name}" type="{kind}"><parent>{parent}</parent><child>{child}</child>{inside}</joint>'
    )


def of(*parts, version="1.9", model="name='m'"):
    return f'<sdf version="{version}">\n<model {model}>{"".join(parts)}</model></sdf>'


def loaded(tmp_path, text, **options):
    path = tmp_path / "robot.sdf"
    path.write_text(text)
    return robots.load(path, **options)


def place(robot, name):
    """Returns place and axes of a frame in the world, at the start poses of bodies."""
    frame = robot.report.frames[name]
    bodies = {body.name: body for body in robot.description.bodies}
    if frame.body == "ground":
        return frame.place, frame.rotation
    turned = robots.quaternion_matrix(np.asarray(bodies[frame.body].quaternion))
    return bodies[frame.body].place + turned @ frame.place, turned @ frame.rotation


Z90 = np.asarray([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
TURN = "1.5707963267948966"


def test_poses_in_other_frames(tmp_path):
    robot = loaded(
        tmp_path,
        of(
            f"<pose>0 0 5 0 0 {TURN}</pose>",
            link("a", "<pose>1 0 0 0 0 0</pose>"),
            link("b", '<pose relative_to="f" degrees="true">1 0 0 0 0 90</pose>'),
            '<frame name="f" attached_to="a"><pose>0 1 0 0 0 0</pose></frame>',
            '<frame name="g" attached_to="f"/>',
            '<frame name="h"><pose relative_to="j" rotation_format="quat_xyzw">0 0 1 0 0 1 1</pose></frame>',
            joint(
                inside='<pose relative_to="a">0 0 2 0 0 0</pose><axis><xyz expressed_in="b">1 0 '
                "0</xyz></axis>"
            ),
        ),
    )
    np.testing.assert_allclose(place(robot, "a")[0], [0, 1, 5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "f")[0], [-1, 1, 5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "b")[0], [-1, 2, 5], rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "b")[1], Z90 @ Z90, rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "g")[0], place(robot, "f")[0])
    np.testing.assert_allclose(place(robot, "h")[0], [0, 1, 8], rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "h")[1], Z90 @ Z90, rtol=0, atol=1e-15)
    assert robot.report.frames["h"].body == "a"
    (found,) = jointed(robot)
    bodies = {
        body.name: robots.quaternion_matrix(np.asarray(body.quaternion)) for body in robot.description.bodies
    }
    np.testing.assert_allclose(bodies["a"] @ found.axes_a[:, 2], (Z90 @ Z90)[:, 0], rtol=0, atol=1e-15)


WORLD = "<sdf version='1.11'><world name='w'>{}</world></sdf>"


def test_a_world_of_one_model(tmp_path):
    """Its model may be placed in a frame of the world, and named by the joints of the world."""
    frame = f"<frame name='f'><pose>0 0 2 0 0 {TURN}</pose></frame>"
    model = f"<model name='m'><pose relative_to='f'>1 0 0 0 0 0</pose>{link('a')}{link('b')}{joint()}</model>"
    robot = loaded(tmp_path, WORLD.format(frame + model))
    np.testing.assert_allclose(place(robot, "a")[0], [0, 1, 2], rtol=0, atol=1e-15)
    np.testing.assert_allclose(place(robot, "a")[1], Z90, rtol=0, atol=1e-15)
    held = WORLD.format(
        frame + model + joint("fixed", "world", "m::a", '<pose relative_to="m::__model__"/>', "w")
    )
    assert loaded(tmp_path, held).report.grounded == ("a",)


def test_what_would_be_lost(tmp_path):
    """Inertias that collisions are to give, and inertial poses in other frames, are refused; what acts in
    balls is told.
    """
    for inertial, message in (
        ("auto='true'>", "specified by its collisions"),
        ("><pose relative_to='f'/>", "remove relative_to"),
    ):
        with pytest.raises(robots.RobotFileError, match=message):
            loaded(tmp_path, of(link("a", "", f"<inertial {inertial}</inertial>")))
    acting = "<axis><dynamics><damping>3</damping></dynamics></axis>"
    report = loaded(tmp_path, of(link("a"), link("b"), joint("ball", inside=acting))).report
    assert [one.what for one in report.ignored] == ["dynamics of a ball joint"]


def jointed(robot):
    """Returns the joints of a robot but those of links that move freely."""
    return [one for one in robot.description.joints if one.type_key() != "free"]


@pytest.mark.parametrize(
    ("version", "frame", "axis"),
    [("1.4", "", Z90[:, 0]), ("1.6", "", (Z90 @ Z90)[:, 0]), ("1.6", "1", Z90[:, 0])],
)
def test_axes_before_frames_had_names(version, frame, axis, tmp_path):
    """In the model before 1.5; since then in the joint, unless `use_parent_model_frame`."""
    inside = f"<axis><xyz>1 0 0</xyz><use_parent_model_frame>{frame}</use_parent_model_frame></axis>"
    text = of(
        f"<pose>0 0 0 0 0 {TURN}</pose>",
        link("a"),
        link("b", f"<pose>1 0 0 0 0 {TURN}</pose>"),
        joint(inside=inside),
        version=version,
    )
    robot = loaded(tmp_path, text)
    (found,) = jointed(robot)
    turned = robots.quaternion_matrix(np.asarray(robot.description.bodies[0].quaternion))
    np.testing.assert_allclose(turned @ found.axes_a[:, 2], axis, rtol=0, atol=1e-15)


def test_bases(tmp_path):
    text = of(link("a"), link("b"), joint(), joint("fixed", "world", "a", "", "w"))
    assert loaded(tmp_path, text).report.grounded == ("a",)
    assert loaded(tmp_path, text, base="floating").report.grounded == ()
    free = of(link("a"), link("b"), joint())
    assert loaded(tmp_path, free).report.base == "floating"
    assert loaded(tmp_path, free, base="fixed").report.grounded == ("a",)
    assert [
        one.child
        for one in loaded(
            tmp_path, of(link("a"), link("b"), joint(), model="name='m' canonical_link='b'")
        ).report.tree
    ] == [
        "b",
        "a",
    ]
    still = loaded(tmp_path, of("<static>true</static>", link("a"), link("b"), joint()))
    assert still.report.grounded == ("a", "b")
    assert "no link moves" in str(still.report)


def test_worlds_models_in_models_and_other_files(tmp_path):
    (tmp_path / "hand").mkdir()
    (tmp_path / "hand" / "model.config").write_text("<model><sdf version='1.9'>hand.sdf</sdf></model>")
    (tmp_path / "hand" / "hand.sdf").write_text(
        of(
            "<pose>9 9 9 0 0 0</pose>",
            link("palm", "<pose>0 0 1 0 0 0</pose>"),
            '<frame name="grip" attached_to="palm"/>',
            model="name='hand'",
        )
    )
    include = (
        "<include {}><uri>model://hand</uri><name>left</name><pose relative_to='a'>0 2 0 0 0 "
        "0</pose>{}</include>"
    )
    nested = of(
        link("a"),
        include.format("", ""),
        joint("fixed", "a", "left::palm", ""),
        joint("ball", "left::grip", "c", "", "k"),
        link("c"),
    )
    robot = loaded(tmp_path, nested)
    np.testing.assert_allclose(place(robot, "left::palm")[0], [0, 2, 1])
    assert robot.report.merged == {"left::palm": "a"}
    placed = loaded(
        tmp_path, nested.replace("</include>", "<placement_frame>grip</placement_frame></include>")
    )
    np.testing.assert_allclose(place(placed, "left::palm")[0], [0, 2, 0], rtol=0, atol=1e-15)
    merged = loaded(
        tmp_path, of(link("a"), include.format("merge='true'", ""), joint("fixed", "a", "palm", ""))
    )
    np.testing.assert_allclose(place(merged, "palm")[0], [0, 2, 1])
    world = (
        "<sdf version='1.9'><world name='w'><gravity>0 0 "
        f"-1.6</gravity>{of(link('a'))[20:-6].strip()}</world></sdf>"
    )
    robot = loaded(tmp_path, world)
    np.testing.assert_array_equal(robot.description.gravity, [0, 0, -1.6])


def test_what_acts_and_what_follows(tmp_path):
    spring = "<spring_stiffness>4</spring_stiffness><spring_reference>0.5</spring_reference>"
    dynamics = f"<dynamics><damping>2</damping><friction>3</friction>{spring}</dynamics>"
    limit = "<limit><lower>-inf</lower><upper>2</upper><velocity>1e16</velocity><effort>-1</effort></limit>"
    mimic = (
        "<mimic joint='j'><multiplier>2</multiplier><offset>0.1</offset><reference>0.3</reference></mimic>"
    )
    weightless = link("c", inside="<gravity>false</gravity>" + BOX)
    text = of(
        link("a"),
        link("b"),
        weightless,
        joint(inside=f"<axis><xyz>0 0 1</xyz>{dynamics}{limit}</axis>"),
        joint(child="c", inside=f"<axis><xyz>0 0 1</xyz>{mimic}</axis>", name="k"),
    )
    robot = loaded(tmp_path, text, base="fixed")
    hinge, relation = robot.description.joints[0], robot.description.joints[-1]
    assert (hinge.damping, hinge.friction, hinge.stiffness, hinge.rest) == (2.0, 3.0, 4.0, 0.5)
    assert robot.report.limits == {"j": {"upper": 2.0}}
    assert (relation.joint, relation.other, relation.coefficients, relation.other_reference) == (
        "k",
        "j",
        (0.1, 2.0),
        0.3,
    )
    assert robot.start["k"] == pytest.approx(0.1 - 0.6)
    (force,) = robot.description.forces
    np.testing.assert_allclose(force.force, [0, 0, 9.81])


def test_a_gearbox_ties_the_hinges_of_its_carrier(tmp_path):
    """theta_2 = -ratio theta_1 about the axes of the gearbox, whichever way the hinges are written."""
    axis = "<axis><xyz>0 0 {}</xyz></axis>"
    gear = (
        "<gearbox_ratio>3</gearbox_ratio><gearbox_reference_body>a</gearbox_reference_body>"
        + axis.format(1)
        + "<axis2><xyz>0 0 1</xyz></axis2>"
    )
    text = of(
        *(link(name) for name in "abc"),
        joint("revolute", "b", "a", axis.format(1), "first"),
        joint("revolute", "a", "c", axis.format(-1), "second"),
        joint("gearbox", "b", "c", gear, "gear"),
    )
    robot = loaded(tmp_path, text, base="fixed")
    relation = robot.description.joints[-1]
    # theta_1 = -q_first, theta_2 = -q_second: q_second = -3 q_first.
    assert isinstance(relation, js.Relation)
    assert (relation.joint, relation.other, relation.coefficients) == ("second", "first", (0.0, -3.0))
    mechanism, _ = jm.mechanism(robot.description, jm.Joints())
    assert mechanism.names.rows == ("gear.relation",)


LINKS = link("a") + link("b")
MISTAKES = {
    "no version": ("<sdf><model name='m'/></sdf>", ":1: <sdf> has the version ''; expected one such as 1.9"),
    "another root": ("<robot/>", "the root element is <robot>, expected <sdf>"),
    "no model": ("<sdf version='1.9'/>", "the file has no <model>"),
    "no links": (of(), "the robot has no links"),
    "a link twice": (
        of(link("a"), "\n", link("a")),
        ":3: the link 'a' is already used by the link in line 2",
    ),
    "a name of two things": (
        of(LINKS, joint(name="a")),
        "the joint 'a' is already used by the link",
    ),
    "world": (of(link("world")), "a link must not be named 'world'"),
    "a type": (of(LINKS, joint("hinge")), "the joint 'j' has the unknown type 'hinge'"),
    "a link that is not": (of(LINKS, joint(child="bb")), "the child of joint 'j' is the unknown link 'bb'"),
    "itself": (of(LINKS, joint(child="a")), "the joint 'j' connects 'a' with itself"),
    "an axis of zero": (
        of(LINKS, joint(inside="<axis><xyz>0 0 0</xyz></axis>")),
        "the axis of joint 'j' is zero",
    ),
    "an axis in nothing": (
        of(LINKS, joint(inside="<axis><xyz expressed_in='bb'>0 0 1</xyz></axis>")),
        "the axis of joint 'j' is expressed in the unknown frame 'bb' (did you mean 'b'?)",
    ),
    "words": (
        of(LINKS, joint(inside="<axis><xyz>0 x 0</xyz></axis>")),
        "text of <xyz> must be 3 finite numbers, got '0 x 0'",
    ),
    "a pose in nothing": (
        of(link("a", "<pose relative_to='q'>0 0 0 0 0 0</pose>")),
        "the pose of 'a' is relative to the unknown frame 'q'",
    ),
    "a circle": (
        of(link("a", "<pose relative_to='b'/>"), link("b", "<pose relative_to='a'/>"), joint()),
        "is defined in a cycle: a -> b -> a",
    ),
    "an old frame": (
        of(link("a", "<pose frame='b'/>"), version="1.6"),
        "a pose with frame='b', which SDF does not define",
    ),
    "a screw": (of(LINKS, joint("screw")), "a screw needs a nonzero <screw_thread_pitch>"),
    "skew axes": (
        of(LINKS, joint("universal", inside="<axis><xyz>0 0 1</xyz></axis><axis2><xyz>0 1 1</xyz></axis2>")),
        "the axes of joint 'j' must be at right angles",
    ),
    "a gearbox of nothing": (
        of(LINKS, joint("gearbox")),
        "the gearbox 'j' needs a <gearbox_reference_body> that is a link",
    ),
    "a loose frame": (
        of(LINKS, "<frame name='f' attached_to='zz'/>", joint(child="f")),
        "the child of joint 'j' is the frame 'f', which is not attached to a link",
    ),
    "limits": (
        of(LINKS, joint(inside="<axis><limit><lower>1</lower><upper>0</upper></limit></axis>")),
        "the joint 'j' has the lower limit 1 above the upper one 0",
    ),
    "damping": (
        of(LINKS, joint(inside="<axis><dynamics><damping>-1</damping></dynamics></axis>")),
        "joint 'j': damping must be non-negative, got -1",
    ),
    "a mimic of nothing": (
        of(LINKS, joint(inside="<axis><mimic joint='k'/></axis>")),
        "the joint 'j' mimics the unknown joint 'k'",
    ),
    "a mimic of itself": (
        of(LINKS, joint(inside="<axis><mimic joint='j'/></axis>")),
        "the joint 'j' mimics itself through j -> j",
    ),
    "truth": (of("<static>maybe</static>", link("a")), "<static> must be true or false, got 'maybe'"),
    "mass": (
        of(link("a").replace("<mass>1", "<mass>-1")),
        "the mass of link 'a' must not be negative, got -1",
    ),
    "a canonical link": (
        of(link("a"), model="name='m' canonical_link='b'"),
        "the canonical_link 'b' is not a link of the model",
    ),
    "an include of nothing": (of(link("a"), "<include/>"), "<include> cannot be read: it has no <uri>"),
}


@all_cases("name", MISTAKES)
def test_mistakes_in_a_file(name, tmp_path):
    text, message = MISTAKES[name]
    with pytest.raises(robots.RobotFileError) as error:
        loaded(tmp_path, text)
    assert message in str(error.value)
    assert str(tmp_path / "robot.sdf") in str(error.value)


def test_joints_within_a_body_are_left_out(tmp_path):
    text = of(LINKS, joint("fixed", inside=""), joint(name="k"))
    robot = loaded(tmp_path, text)
    assert jointed(robot) == []
    assert "joint 'k' in line 2 joins 'a' and 'b', which are one body; the joint is ignored" in str(
        robot.report
    )
