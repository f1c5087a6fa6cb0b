"""What becomes of the features of robot files: one small file for each feature and format, and the table that
`docs/robots.md` shows.

A cell says what a feature comes to: supported (the description has it), reported (`report.ignored` has its
line, `strict` refuses it) or refused (a `RobotFileError` with its line). Files are parsed, not simulated:
that the dynamics follow is tested elsewhere.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jaxdae import robots
from jaxdae.mechanisms import spatial as js


@dataclasses.dataclass(frozen=True)
class Cell:
    """A feature in a format: its text, and the file with it."""

    text: str
    file: str

    @property
    def line(self):
        return self.file[: self.file.index(self.text)].count("\n") + 1


@dataclasses.dataclass(frozen=True)
class Supported(Cell):
    """What of the robot has it."""

    has: Callable[[Any], Any]
    word = "supported"

    def verify(self, path):
        robot = robots.load(path, strict=True)
        assert self.has(robot), robot


class OnRequest(Supported):
    """The report stores it, and the description has it with `limits=True`."""

    word = "on request"

    def verify(self, path):
        super().verify(path)
        assert joint(robots.load(path)).limits is None
        loaded = robots.load(path, limits=True)
        assert joint(loaded).limits == (-1.0, 2.0)
        assert "limits of joints: 1; 1 enforced" in str(loaded.report)


@dataclasses.dataclass(frozen=True)
class Reported(Cell):
    """What the report calls it."""

    what: str
    word = "reported"

    def verify(self, path):
        ignored = robots.load(path).report.ignored
        assert (self.what, self.line, 1) in ignored, ignored
        with pytest.raises(
            robots.RobotFileError, match=rf":{self.line}: <{self.what}> is not used \(1 times\)"
        ):
            robots.load(path, strict=True)


@dataclasses.dataclass(frozen=True)
class Refused(Cell):
    """What the message says."""

    message: str
    word = "refused"

    def verify(self, path):
        with pytest.raises(robots.RobotFileError) as error:
            robots.load(path)
        assert f"{path}:{self.line}: " in str(error.value)
        assert self.message in str(error.value)


def near(got, expected):
    return np.allclose(got, expected, atol=1e-12)


def joint(robot):
    """Returns the joint of the examples."""
    return next(one for one in robot.description.joints if one.name == "j")


def body(robot):
    """Returns the body of the examples that moves."""
    return next(one for one in robot.description.bodies if one.name == "b")


class Urdf:
    """Files with a feature in a joint, in a link, or in the robot."""

    ending = ".urdf"
    BOX = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'

    @classmethod
    def robot(cls, text, joint="", kind="revolute", box=BOX):
        ends = f'<link name="a">{cls.BOX}</link><link name="b">{box}</link>'
        hinge = f'<joint name="j" type="{kind}"><parent link="a"/><child link="b"/>{joint}</joint>'
        return text, f"<robot>\n{ends}\n{hinge}\n{text}</robot>"

    @classmethod
    def joint(cls, text, kind="revolute"):
        return text, cls.robot("<!-- -->", f"\n{text}\n", kind)[1]

    @classmethod
    def link(cls, text):
        return text, cls.robot("<!-- -->", box=f"\n{text}\n")[1]


class Sdf:
    """Files with a feature in an axis, in a joint, in a link, or in the model."""

    ending = ".sdf"
    BOX = "<inertial><mass>2</mass><inertia><ixx>1</ixx><iyy>1</iyy><izz>1</izz></inertia></inertial>"

    @classmethod
    def model(cls, text, joint="<axis><xyz>0 0 1</xyz></axis>", kind="revolute", box=BOX, parent="world"):
        ends = f'<link name="a">{cls.BOX}</link><link name="b">{box}</link>'
        hinge = f'<joint name="j" type="{kind}"><parent>{parent}</parent><child>b</child>{joint}</joint>'
        return text, f'<sdf version="1.11">\n<model name="m">\n{ends}\n{hinge}\n{text}</model></sdf>'

    @classmethod
    def joint(cls, text, kind="revolute", parent="world"):
        return text, cls.model("<!-- -->", f"\n{text}\n", kind, parent=parent)[1]

    @classmethod
    def axis(cls, text, kind="revolute"):
        return text, cls.joint(f"<axis>\n{text}\n<xyz>0 0 1</xyz></axis>", kind)[1]

    @classmethod
    def link(cls, text):
        return text, cls.model("<!-- -->", box=f"\n{text}\n")[1]


class Mjcf:
    """Files with a feature in a joint, in a body, in the world, or beside it."""

    ending = ".xml"
    BOX = '<inertial pos="0 0 0" mass="2" diaginertia="1 1 1"/>'

    @classmethod
    def beside(cls, text, joint='<joint name="j" axis="0 0 1"/>', place="", box=BOX, world=""):
        inside = f'<body name="b" {place}>{joint}{box}<site name="s"/></body>\n{world}'
        return text, f"<mujoco>\n<worldbody>\n{inside}</worldbody>\n{text}</mujoco>"

    @classmethod
    def joint(cls, text):
        return text, cls.beside("<!-- -->", f'\n<joint name="j" {text}/>\n')[1]

    @classmethod
    def body(cls, text):
        return text, cls.beside("<!-- -->", box=f"\n{text}\n")[1]

    @classmethod
    def place(cls, text):
        return text, cls.beside("<!-- -->", place=f"\n{text}\n")[1]

    @classmethod
    def world(cls, text):
        return text, cls.beside("<!-- -->", world=f"\n{text}\n")[1]

    @classmethod
    def actuator(cls, text):
        return text, cls.beside(f"<actuator>\n{text}\n</actuator>")[1]

    @classmethod
    def equality(cls, text):
        return text, cls.beside(f"<equality>\n{text}\n</equality>")[1]


def turned(robot):
    """Returns whether the moving body is turned by a quarter about z and half a meter up."""
    return near(np.abs(body(robot).quaternion), [0.5**0.5, 0, 0, 0.5**0.5]) and near(
        body(robot).place, [0, 0, 0.5]
    )


def field(name, value):
    return lambda robot: near(getattr(joint(robot), name), value)


def of_type(kind):
    return lambda robot: isinstance(joint(robot), kind)


def limits(robot):
    return robot.report.limits["j"]["lower"] == -1.0 and robot.report.limits["j"]["upper"] == 2.0


def force(kind):
    return lambda robot: [type(one) for one in robot.description.forces] == [kind]


def loop(*kinds):
    return lambda robot: [one.kind for one in robot.report.loops] == list(kinds)


def hinge(name, kind, inside=""):
    """Returns a joint of a URDF that carries the link c."""
    return f'<joint name="{name}" type="{kind}"><parent link="a"/><child link="c"/>{inside}</joint>'


U, S, M = Urdf, Sdf, Mjcf
FEATURES = {
    "orientation as Euler angles": (
        Supported(*U.joint('<origin xyz="0 0 0.5" rpy="0 0 1.5707963267948966"/>'), turned),
        Supported(*S.link("<pose degrees='true'>0 0 0.5 0 0 90</pose>" + S.BOX), turned),
        Supported(*M.place('pos="0 0 0.5" euler="0 0 90"'), turned),
    ),
    "orientation as quaternion": (
        Supported(*U.joint('<origin xyz="0 0 0.5" quat_xyzw="0 0 1 1"/>'), turned),
        Supported(*S.link("<pose rotation_format='quat_xyzw'>0 0 0.5 0 0 1 1</pose>" + S.BOX), turned),
        Supported(*M.place('pos="0 0 0.5" quat="1 0 0 1"'), turned),
    ),
    "axes of any length": (
        Supported(*U.joint('<axis xyz="0 0 3"/>'), lambda robot: near(joint(robot).axes_a[:, 2], [0, 0, 1])),
        Supported(
            *S.joint("<axis><xyz>0 0 3</xyz></axis>"),
            lambda robot: near(joint(robot).axes_a[:, 2], [0, 0, 1]),
        ),
        Supported(*M.joint('axis="0 0 3"'), lambda robot: near(joint(robot).axes_a[:, 2], [0, 0, 1])),
    ),
    "a zero axis": (
        Refused(*U.joint('<axis xyz="0 0 0"/>'), "the axis of joint 'j' is zero"),
        Refused(*S.joint("<axis><xyz>0 0 0</xyz></axis>"), "the axis of joint 'j' is zero"),
        Refused(*M.joint('axis="0 0 0"'), "axis too small"),
    ),
    "mass and inertia computed from shapes": (
        None,
        Refused(*S.link("<inertial auto='true'/>"), "write mass and inertia"),
        Supported(*M.body('<geom size="0.1" mass="3"/>'), lambda robot: body(robot).mass == 3.0),
    ),
    "moving links without mass at the end of a chain (SDF: the default mass is 1 kg)": (
        Refused(
            *U.robot('<link name="c"/>' + hinge("k", "revolute")), "moves by the joint 'k' and has no mass"
        ),
        Supported(
            *S.link("<!-- one kg, the default of the format -->"), lambda robot: body(robot).mass == 1.0
        ),
        Refused(*M.world("<body><joint/></body>"), "mass and inertia of moving bodies must be larger"),
    ),
    "a second inertial of a link": (
        Refused(*U.link(U.BOX + U.BOX), "has a second <inertial>"),
        Refused(*S.link(S.BOX + S.BOX), "has a second <inertial>"),
        None,
    ),
    "limits of joints": (
        OnRequest(*U.joint('<limit lower="-1" upper="2"/>'), limits),
        OnRequest(*S.axis("<limit><lower>-1</lower><upper>2</upper></limit>"), limits),
        OnRequest(*M.joint('type="slide" range="-1 2"'), limits),
    ),
    "limits of continuous hinges": (
        Reported(
            *U.joint('<limit lower="1" upper="2"/>', "continuous"),
            "lower and upper limit of a continuous joint",
        ),
        None,
        None,
    ),
    "damping": (
        Supported(*U.joint('<dynamics damping="2"/>'), field("damping", 2.0)),
        Supported(*S.axis("<dynamics><damping>2</damping></dynamics>"), field("damping", 2.0)),
        Supported(*M.joint('damping="2"'), field("damping", 2.0)),
    ),
    "dry friction: smooth, or exact with `dry_friction=True`": (
        Supported(*U.joint('<dynamics friction="2"/>'), field("friction", 2.0)),
        Supported(*S.axis("<dynamics><friction>2</friction></dynamics>"), field("friction", 2.0)),
        Supported(*M.joint('frictionloss="2"'), field("friction", 2.0)),
    ),
    "springs": (
        Reported(*U.joint('<dynamics spring_stiffness="2"/>'), "dynamics spring_stiffness"),
        Supported(
            *S.axis("<dynamics><spring_stiffness>2</spring_stiffness></dynamics>"), field("stiffness", 2.0)
        ),
        Supported(*M.joint('stiffness="2" springref="90"'), field("rest", np.pi / 2)),
    ),
    "nonlinear (polynomial) springs and dampers": (
        None,
        None,
        Reported(*M.joint('damping="1 2"'), "damping polynomial"),
    ),
    "inertia of motors": (None, None, Supported(*M.joint('armature="2"'), field("armature", 2.0))),
    "damping of ball joints": (
        Supported(*U.joint('<dynamics damping="2"/>', "spherical"), force(js.RotationalDamper)),
        Reported(*S.joint("<axis><dynamics/></axis>", "ball"), "dynamics of a ball joint"),
        Supported(*M.joint('type="ball" damping="2"'), force(js.RotationalDamper)),
    ),
    "damping of free links": (
        Reported(*U.joint('<dynamics damping="2"/>', "floating"), "dynamics of a floating joint"),
        None,
        Reported(*M.joint('type="free" stiffness="2"'), "stiffness of a free joint"),
    ),
    "mimic joints": (
        Supported(
            *U.robot(f'<link name="c">{U.BOX}</link>' + hinge("k", "revolute", '<mimic joint="j"/>')),
            lambda robot: "k_mimic" in robot.report.relations,
        ),
        Supported(
            *S.model(
                f'<link name="c">{S.BOX}</link><joint name="k" '
                'type="revolute"><parent>a</parent><child>c</child>'
                "<axis><xyz>0 0 1</xyz><mimic joint='j'/></axis></joint>"
            ),
            lambda robot: "k_mimic" in robot.report.relations,
        ),
        Supported(
            *M.equality('<joint joint1="j" polycoef="1 0 0 0 0"/>'),
            lambda robot: isinstance(robot.description.joints[-1], js.PrescribedMotion),
        ),
    ),
    "mimic ball joints": (
        Refused(*U.joint('<mimic joint="k"/>', "spherical"), "only revolute and prismatic joints can mimic"),
        Refused(*S.axis("<mimic joint='k'/>", "ball"), "only revolute, prismatic and screw joints can mimic"),
        None,
    ),
    "screws": (
        Refused(*U.robot(hinge("k", "screw")), "unknown type 'screw'"),
        Supported(
            *S.joint("<axis><xyz>0 0 1</xyz></axis><screw_thread_pitch>0.1</screw_thread_pitch>", "screw"),
            field("lead", 0.1 / (2 * np.pi)),
        ),
        None,
    ),
    "universal joints": (
        Refused(*U.robot(hinge("k", "universal")), "unknown type 'universal'"),
        Supported(
            *S.joint("<axis><xyz>0 0 1</xyz></axis><axis2><xyz>1 0 0</xyz></axis2>", "universal"),
            of_type(js.Universal),
        ),
        None,
    ),
    "planar joints": (Supported(*U.joint("<!-- -->", "planar"), of_type(js.Planar)), None, None),
    "a second axis of a hinge": (
        Refused(*U.joint('<axis xyz="0 0 1"/><axis xyz="0 1 0"/>'), "has a second <axis>"),
        Reported(*S.joint("<axis2><xyz>1 0 0</xyz></axis2>"), "axis2 of a revolute joint"),
        None,
    ),
    "start positions of joints": (
        None,
        Reported(*S.axis("<initial_position>1</initial_position>"), "initial_position"),
        Supported(
            *M.beside('<keyframe><key name="home" qpos="1"/></keyframe>'),
            lambda robot: robot.start["j"] == 1.0,
        ),
    ),
    "loops of joints": (
        Refused(
            *U.robot('<joint name="k" type="fixed"><parent link="a"/><child link="b"/></joint>'),
            "URDF does not support loops; remove joint 'k' and pass loops=[...]",
        ),
        Supported(
            *S.model('<joint name="k" type="ball"><parent>b</parent><child>world</child></joint>'),
            loop("ball"),
        ),
        Supported(*M.equality('<connect body1="b" anchor="0 0 0"/>'), loop("ball")),
    ),
    "loops closed by welds": (
        None,
        Supported(
            *S.model(
                '<joint name="h" type="ball"><parent>world</parent><child>a</child></joint>'
                '<joint name="k" type="fixed"><parent>b</parent><child>a</child></joint>'
            ),
            loop("weld"),
        ),
        Supported(*M.equality('<weld body1="b"/>'), loop("weld")),
    ),
    "equalities that are switched off": (
        None,
        None,
        Reported(
            *M.equality('<connect body1="b" anchor="0 0 0" active="false"/>'), "equality with active=false"
        ),
    ),
    "gravity compensation of links": (
        None,
        Supported(*S.link("<gravity>false</gravity>" + S.BOX), force(js.Force)),
        Supported(*M.place('gravcomp="0.5"'), force(js.Force)),
    ),
    "motors and servos": (
        Reported(*U.robot("<transmission/>"), "transmission"),
        Reported(*S.model("<plugin/>"), "plugin"),
        Supported(*M.actuator('<position joint="j" kp="3"/>'), force(js.Actuator)),
    ),
    "actuators with an internal state, muscles": (
        None,
        None,
        Reported(*M.actuator('<intvelocity joint="j" actrange="-1 1"/>'), "actuator with activation"),
    ),
    "plugin actuators": (
        None,
        None,
        Reported(
            '<plugin plugin="mujoco.pid" joint="j"/>',
            M.actuator('<plugin plugin="mujoco.pid" joint="j"/>')[1].replace(
                "<mujoco>", '<mujoco><extension><plugin plugin="mujoco.pid"/></extension>'
            ),
            "muscle, plugin or actuator with several controls",
        ),
    ),
    "limits of the total actuator force at a joint": (
        None,
        None,
        Reported(*M.joint('actuatorfrcrange="-1 1"'), "actuatorfrcrange"),
    ),
    "actuators on fixed bodies": (
        None,
        None,
        Supported(
            *M.beside('<actuator><motor site="w" gear="1 0 0 0 0 0"/></actuator>', world='<site name="w"/>'),
            lambda robot: not robot.description.forces,
        ),
    ),
    "fixed tendons": (
        None,
        None,
        Supported(
            *M.beside('<tendon><fixed stiffness="2"><joint joint="j" coef="1"/></fixed></tendon>'),
            force(js.Tendon),
        ),
    ),
    "spatial tendons": (
        None,
        None,
        Reported(
            *M.beside(
                '<tendon><spatial><site site="s"/><site site="w"/></spatial></tendon>',
                world='<site name="w" pos="0 0 1"/>',
            ),
            "spatial tendon",
        ),
    ),
    "flexible bodies": (
        None,
        None,
        Reported(
            *M.world(
                '<flexcomp name="f" type="grid" count="2 2 1" spacing="1 1 1" dim="2" mass="1" radius="0.1"/>'
            ),
            "flex",
        ),
    ),
    "mocap bodies": (None, None, Reported(*M.world('<body mocap="true"/>'), "mocap")),
    "fluid (air, water)": (
        None,
        Reported(*S.link("<enable_wind>true</enable_wind>" + S.BOX), "enable_wind"),
        Reported(*M.beside('<option density="1"/>'), "option density or viscosity"),
    ),
    "sensors": (
        Reported(*U.robot("<sensor/>"), "sensor"),
        Reported(*S.link("<sensor/>" + S.BOX), "sensor"),
        Reported(*M.beside('<sensor><jointpos joint="j"/></sensor>'), "sensor"),
    ),
    "safety controllers and calibration": (Reported(*U.joint("<calibration/>"), "calibration"), None, None),
    "extensions of other programs": (
        Reported(*U.robot("<gazebo/>"), "gazebo"),
        Reported(*S.model("<gripper/>"), "gripper"),
        Refused(*M.beside("<gazebo/>"), "unrecognized element"),
    ),
    "unknown attributes": (
        Reported(*U.joint('<limit lower="0" upper="1" acceleration="3"/>'), "limit acceleration"),
        Reported(*S.joint("<axis><xyz expresed_in='a'>0 0 1</xyz></axis>"), "xyz expresed_in"),
        Refused(*M.joint('axsi="0 0 1"'), "unrecognized attribute"),
    ),
    "non-numeric values": (
        Refused(*U.joint('<axis xyz="0 0 nan"/>'), "must be 3 finite numbers"),
        Refused(*S.joint("<axis><xyz>0 0 nan</xyz></axis>"), "must be 3 finite numbers"),
        Refused(*M.joint('axis="0 0 x"'), "attribute 'axis'"),
    ),
    "missing values": (
        Refused(*U.link("<inertial><mass/></inertial>"), "<inertial> has no <mass value=...>"),
        Refused(*S.link("<inertial><mass/></inertial>"), "<mass> has no number"),
        Refused(*M.body('<inertial mass="2"/>'), "pos"),
    ),
}
FORMATS = (Urdf, Sdf, Mjcf)


def table():
    """Returns the lines of the table."""
    rows = [
        "| " + " | ".join((name, *(cell.word if cell else "-" for cell in cells))) + " |"
        for name, cells in FEATURES.items()
    ]
    return ["| feature | URDF | SDF | MJCF |", "|---|---|---|---|", *rows]
