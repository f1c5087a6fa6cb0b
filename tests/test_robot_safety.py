"""Robot files read nothing outside of their folders, and small files take little time and memory."""

import os
import pathlib
import struct
import warnings

import numpy as np
import pytest

import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.base import requirements
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.describe.description_checks import DescriptionError

INERTIAL = "<inertial><mass value='1'/><inertia ixx='1' iyy='1' izz='1' ixy='0' ixz='0' iyz='0'/></inertial>"
BOX = '<body><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
SHAPE = '<body name="a"><freejoint/><geom type="mesh" mesh="x"/></body>'


def tetrahedron(path, size):
    """Write a tetrahedron as binary STL; its mass is 1000 size^3 / 6 kg."""
    corners = size * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    path.parent.mkdir(parents=True, exist_ok=True)
    faces = [
        struct.pack("<12fH", 0, 0, 0, *corners[list(f)].reshape(-1), 0)
        for f in [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    ]
    path.write_bytes(b"\0" * 80 + struct.pack("<I", 4) + b"".join(faces))


def written(folder, files):
    """Write files; returns the first one."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / next(iter(files))


def mjcf(body="", rest=""):
    return f"<mujoco>{rest}<worldbody>{body}</worldbody></mujoco>"


def refused(path, message, **options):
    with pytest.raises(robots.RobotFileError) as error:
        robots.load(path, **options)
    assert message in str(error.value), str(error.value)[:2000]
    assert len(str(error.value)) < 20_000


def test_mjcf_files_outside_of_the_folder(tmp_path):
    """Whatever attribute, setting or link leads out: the file is refused, also if a file of the same name is
    inside.
    """
    pytest.importorskip("mujoco")
    home = tmp_path / "home"
    for place in (home, tmp_path / "secret"):
        tetrahedron(place / "x.stl", 1.0)
    (home / "link.stl").symlink_to(tmp_path / "secret" / "x.stl")
    (home / "folder").symlink_to(tmp_path / "secret")
    written(tmp_path / "secret", {"m.xml": mjcf(BOX), "t.png": ""})
    mesh = '<asset><mesh name="x" file="x.stl"/></asset>'
    inner = {
        "inc.xml": f"<mujoco>{mesh}</mujoco>",
        "sub/inc.xml": '<mujoco><asset><mesh file="../../secret/x.stl"/></asset></mujoco>',
    }
    settings = {"set.xml": '<mujoco><compiler meshdir="../secret"/></mujoco>'}
    cases = [
        mjcf(SHAPE, '<compiler meshdir="../secret"/><include file="inc.xml"/>'),
        mjcf(SHAPE, '<include file="inc.xml"/><compiler assetdir="../secret"/>'),
        mjcf(SHAPE, f'{mesh}<include file="set.xml"/>'),
        mjcf(SHAPE, f'<compiler meshdir="{tmp_path}/secret"/>{mesh}'),
        mjcf(SHAPE, f'<compiler meshdir="folder"/>{mesh}'),
        mjcf(
            SHAPE,
            '<compiler meshdir="../secret" strippath="true"/><asset><mesh file="../home/x.stl"/></asset>',
        ),
        mjcf(SHAPE, '<asset><mesh name="x" file="link.stl"/></asset>'),
        mjcf(SHAPE, f'<asset><mesh name="x" file="{tmp_path}/secret/x.stl"/></asset>'),
        mjcf(SHAPE, '<include file="sub/inc.xml"/>'),
        mjcf('<flexcomp name="f" type="mesh" file="../secret/x.stl" mass="1"/>'),
        mjcf(f'<body><flexcomp name="f" type="gmsh" file="folder/x.stl" mass="1"/>{BOX}</body>'),
        mjcf(BOX, '<asset><hfield name="h" file="../secret/t.png" size="1 1 1 1"/></asset>'),
        mjcf(BOX, '<asset><skin name="s" file="../secret/s.skn"/></asset>'),
        mjcf(BOX, '<deformable><skin name="s" file="../secret/s.skn"/></deformable>'),
        mjcf('<attach model="m" prefix="p"/>', '<asset><model name="m" file="../secret/m.xml"/></asset>'),
        mjcf(
            BOX, '<compiler texturedir="../secret"/><asset><texture name="t" type="2d" file="t.png"/></asset>'
        ),
        *(
            mjcf(BOX, f'<asset><texture name="t" type="cube" file{side}="../secret/t.png"/></asset>')
            for side in ("right", "left", "up", "down", "front", "back")
        ),
    ]
    for text in cases:
        path = written(home, {"robot.xml": text, **inner, **settings})
        refused(path, "is outside the folder of the robot")
        assert not robots.read_visuals(path)[0]
        (report,) = robots.read_visuals(path)[1]
        assert "is outside the folder" in report


def test_mjcf_files_are_found_where_mujoco_finds_them(tmp_path):
    """The same masses and inertias as MuJoCo itself finds, for every layout of folders; each place has a mesh
    of its own size.
    """
    mujoco = pytest.importorskip("mujoco")
    for k, place in enumerate(
        ("x.stl", "sub/x.stl", "meshes/x.stl", "sub/meshes/x.stl", "assets/x.stl", "meshes/deep/x.stl")
    ):
        tetrahedron(tmp_path / place, 1.0 + 0.1 * k)
    mesh = '<asset><mesh file="x.stl"/></asset>'
    inner = f"<mujoco>{mesh}</mujoco>"
    cases = [
        ({"robot.xml": mjcf(SHAPE, mesh)}, 1.0),
        ({"robot.xml": mjcf(SHAPE, f'<compiler meshdir="meshes"/>{mesh}')}, 1.2),
        ({"robot.xml": mjcf(SHAPE, f'{mesh}<compiler assetdir="assets"/>')}, 1.4),
        ({"robot.xml": mjcf(SHAPE, f'<compiler meshdir="meshes" assetdir="assets"/>{mesh}')}, 1.2),
        ({"robot.xml": mjcf(SHAPE, f'<compiler meshdir="{tmp_path}/meshes/"/>{mesh}')}, 1.2),
        ({"robot.xml": mjcf(SHAPE, f'<compiler meshdir="sub/../meshes"/>{mesh}')}, 1.2),
        ({"robot.xml": mjcf(SHAPE, '<asset><mesh file="sub/../meshes/./x.stl"/></asset>')}, 1.2),
        ({"robot.xml": mjcf(SHAPE, f'<asset><mesh file="{tmp_path}/sub/x.stl"/></asset>')}, 1.1),
        (
            {
                "robot.xml": mjcf(
                    SHAPE, '<compiler meshdir="meshes"/><asset><mesh file="../sub/x.stl"/></asset>'
                )
            },
            1.1,
        ),
        (
            {
                "robot.xml": mjcf(
                    SHAPE,
                    '<compiler strippath="true" meshdir="meshes"/><asset><mesh file="../a/x.stl"/></asset>',
                )
            },
            1.2,
        ),
        ({"robot.xml": mjcf(SHAPE, '<include file="sub/inc.xml"/>'), "sub/inc.xml": inner}, 1.0),
        (
            {
                "robot.xml": mjcf(SHAPE, '<include file="sub/inc.xml"/><compiler meshdir="meshes"/>'),
                "sub/inc.xml": inner,
            },
            1.2,
        ),
        (
            {
                "robot.xml": mjcf(SHAPE, '<include file="sub/inc.xml"/>'),
                "sub/inc.xml": '<mujoco><asset><mesh file="meshes/deep/../x.stl"/></asset><compiler '
                'meshdir="none"/></mujoco>',
            },
            1.3,
        ),
        (
            {
                "robot.xml": mjcf(SHAPE, '<include file="sub/inc.xml"/>'),
                "sub/inc.xml": '<mujoco><compiler meshdir="meshes"/><include file="more.xml"/></mujoco>',
                "sub/more.xml": inner,
            },
            1.2,
        ),
        (
            {
                "robot.xml": mjcf(
                    '<attach model="m" prefix="p"/>', '<asset><model name="m" file="sub/model.xml"/></asset>'
                ),
                "sub/model.xml": mjcf(SHAPE, f'<compiler meshdir="meshes"/>{mesh}'),
            },
            1.3,
        ),
    ]
    for files, size in cases:
        path = written(tmp_path, files)
        (body,) = robots.load(path).description.bodies
        theirs = mujoco.MjModel.from_xml_path(str(path))
        assert body.mass == theirs.body_mass[1] == pytest.approx(1000.0 * size**3 / 6.0, rel=1e-6), files
        np.testing.assert_allclose(
            np.linalg.eigvalsh(np.asarray(body.inertia)), np.sort(theirs.body_inertia[1]), rtol=1e-12
        )


@pytest.mark.long
def test_limits_of_mjcf(tmp_path):
    """Copies, sizes and includes are counted before anything is compiled."""
    pytest.importorskip("mujoco")
    nested = (
        '<replicate count="1000"><frame><replicate count="1000"><frame pos="1 0 0">'
        + BOX
        + "</frame></replicate></frame></replicate>"
    )
    motor = '<actuator><general joint="j" dyntype="user" actdim="100000000"/></actuator>'
    hinge = '<body><joint name="j"/><geom size=".1"/></body>'
    twice = '<body name="b{1}"><attach body="b{0}" prefix="l{1}"/><attach body="b{0}" prefix="r{1}"/></body>'
    doubled = "".join(twice.format(k - 1, k) for k in range(1, 40))
    expanded = "elements after replicate, attach and flexible bodies; the limit is 30000"
    include = '<include file="{0}"/>'.format
    chain = {f"f{k}.xml": f"<mujoco>{2 * include(f'f{k + 1}.xml')}</mujoco>" for k in range(15)}
    models = {
        f"m{k}.xml": mjcf(
            '<attach model="m" prefix="l"/><attach model="m" prefix="r"/>',
            f'<asset><model name="m" file="m{k + 1}.xml"/></asset>',
        )
        for k in range(16)
    }
    for files, message in (
        (
            {"robot.xml": mjcf(f'<replicate count="1000000">{BOX}</replicate>')},
            f"the model has 3000003 {expanded}",
        ),
        ({"robot.xml": mjcf(nested)}, expanded),
        ({"robot.xml": mjcf(f'<replicate count="1e300">{BOX}</replicate>')}, expanded),
        (
            {"robot.xml": mjcf(f'<replicate count="nan">{BOX}</replicate>')},
            "count of <replicate> must be finite numbers, got 'nan'",
        ),
        ({"robot.xml": mjcf(f'<body name="b0">{BOX}</body>' + doubled)}, expanded),
        (models | {"m16.xml": mjcf(BOX)}, expanded),
        (
            {
                "robot.xml": mjcf(
                    '<flexcomp name="f" type="grid" count="100 100 100" spacing="1 1 1" mass="1" dim="3"/>'
                )
            },
            expanded,
        ),
        (
            {"robot.xml": mjcf(BOX, '<asset><mesh name="m" builtin="plate" params="3000 3000"/></asset>')},
            expanded,
        ),
        ({"robot.xml": mjcf(hinge).replace("</mujoco>", motor + "</mujoco>")}, expanded),
        (
            {"robot.xml": mjcf(5000 * BOX, "<keyframe>" + 500 * "<key/>" + "</keyframe>")},
            "keyframes times elements; the limit is 2000000",
        ),
        (
            {"robot.xml": f"<mujoco>{3 * include('robot.xml')}</mujoco>"},
            "files include each other in a cycle: robot.xml -> robot.xml",
        ),
        (
            {"robot.xml": mjcf(rest=include("a.xml")), "a.xml": mjcf(rest=include("robot.xml"))},
            "cycle: robot.xml -> a.xml -> robot.xml",
        ),
        (
            {"robot.xml": mjcf(rest='<asset><model name="m" file="robot.xml"/></asset>')},
            "files include each other in a cycle: robot.xml -> robot.xml",
        ),
        (chain | {"f15.xml": "<mujoco/>"}, "XML files; the limit is 1000"),
        (
            {"robot.xml": mjcf(SHAPE, '<asset><mesh name="x" file="a.stl"/></asset>'), "a.stl": "no mesh"},
            "in STL file 'a.stl'",
        ),
    ):
        refused(written(tmp_path, files), message)


def test_sizes_that_mechanics_does_not_need(tmp_path):
    """Textures, height fields, custom data and buffer sizes do not reach the compiler; colors of materials
    reach the viewer.
    """
    mujoco = pytest.importorskip("mujoco")
    from jaxdae.robots.mjcf_compiler import compiled
    from jaxdae.robots.mjcf_files import prepared
    from jaxdae.robots.referenced_files import Folders
    from jaxdae.robots.robot_source import Library

    asset = (
        '<asset><texture name="t" type="2d" builtin="flat" width="30000" height="30000"/>'
        '<material name="red" texture="t" rgba="1 0 0 1"/><texture name="s" type="skybox" '
        'builtin="gradient" width="9000"/>'
        '<hfield name="h" nrow="20000" ncol="20000" size="1 1 1 1"/></asset>'
        '<size nuserdata="300000000" nkey="30000000" memory="1000G"/><custom><numeric name="n" size="400" '
        'data="1"/></custom>'
    )
    body = (
        '<body name="b"><freejoint/><geom size=".1" material="red"/></body><geom type="hfield" hfield="h"/>'
    )
    path = written(tmp_path, {"robot.xml": mjcf(body, asset)})
    model = compiled(mujoco, path, prepared(path, Folders(tmp_path), Library()))[1]
    assert (model.ntexdata < 100, model.nhfielddata, model.nuserdata, model.nkey, model.nnumeric) == (
        True,
        4,
        0,
        0,
        0,
    )
    ignored = {one.what: one.count for one in robots.load(path).report.ignored}
    assert ignored == {"geom": 2, "hfield": 1, "material": 1, "texture": 2}
    assert [part.color for part in robots.read_visuals(path)[0]] == [(1.0, 0.0, 0.0)]


def test_limits_of_urdf_and_sdf(tmp_path, monkeypatch):
    """Includes, nesting, entities, devices, numbers of elements and long texts."""
    sdf = "<sdf version='1.9'><model name='m'><link name='a'/>{}</model></sdf>".format
    include = "<include><name>n{1}</name><uri>{0}</uri></include>".format
    chain = {f"f{k}.sdf": sdf(include(f"f{k + 1}.sdf", 1) + include(f"f{k + 1}.sdf", 2)) for k in range(12)}
    deep = "<link name='a'>" + 500 * "<a>" + 500 * "</a>" + "</link>"
    many = "".join(f"<link name='l{k}'/>" for k in range(10_001))
    laughs = "<!DOCTYPE r [<!ENTITY a 'ha'><!ENTITY b '&a;&a;'>]><robot name='r'><link name='&b;'/></robot>"
    joint = "<joint name='j' type='{}'><parent link='{}'/><child link='b'/>{}</joint>".format
    two = f"<link name='a'/><link name='b'>{INERTIAL}</link>"
    names = "".join(f"<link name='a{k // 2}'/>" for k in range(2000))
    for name, text, message in (
        (
            "r.sdf",
            sdf(include("r.sdf", 1) + include("r.sdf", 2)),
            "files include each other in a cycle: r.sdf -> r.sdf",
        ),
        ("r.sdf", sdf(include("pipe", 1)), "it is a device or a pipe, expected a file"),
        ("r.sdf", sdf(include("zero", 1)), "is outside the folder of the robot"),
        ("r.sdf", sdf(include("dir", 1)), "does not exist"),
        ("r.sdf", sdf(include("a/" * 5000, 1)), "is not a valid path: it has 500"),
        ("r.urdf", f"<robot name='r'>{deep}</robot>", "elements are nested more than 400 deep"),
        ("r.urdf", f"<robot name='r'>{many}</robot>", "the robot has 10001 links; the limit is 10000"),
        ("r.urdf", laughs, "document types and entities are not supported; remove them"),
        ("r.urdf", f"<robot name='r'>{names}</robot>", "stopped reading after 50 errors"),
        (
            "r.urdf",
            f"<robot name='r'>{two.replace('1', '1' * 100_000, 1)}</robot>",
            "value of <mass> must be a finite number, got '111",
        ),
        (
            "r.urdf",
            f"<robot name='r'>{two}{joint('revolute', 'x' * 1_000_000, '')}</robot>",
            "is the unknown link 'xxx",
        ),
        (
            "r.urdf",
            f"<robot name='r'>{two}{joint('y' * 1_000_000, 'a', '')}</robot>",
            "has the unknown type 'yyy",
        ),
    ):
        path = written(tmp_path, {name: text})
        if not (tmp_path / "pipe").exists():
            os.mkfifo(tmp_path / "pipe")
            (tmp_path / "zero").symlink_to("/dev/zero")
            (tmp_path / "dir").mkdir()
        refused(path, message)
    monkeypatch.setattr("jaxdae.robots.robot_source.MOST_FILES", 100)
    refused(
        written(tmp_path, chain | {"f12.sdf": sdf("")}),
        "the robot has at least 101 XML files; the limit is 100",
    )
    monkeypatch.setattr("jaxdae.robots.robot_source.MOST_ELEMENTS", 1000)
    refused(
        written(tmp_path, {"r.urdf": "<robot>" + 1000 * "<a/>" + "</robot>"}), "more than 1000 XML elements"
    )
    twice = {"r.sdf": sdf(include("b.sdf", 1) + include("b.sdf", 2)), "b.sdf": sdf(500 * "<a/>")}
    refused(written(tmp_path, twice), "XML elements; the limit is 1000")
    (tmp_path / "folder.urdf").mkdir()
    refused(tmp_path / "folder.urdf", "cannot be read: it is a folder, expected a file")


@pytest.mark.long
def test_long_chains_of_mimic_joints(tmp_path):
    """A joint that follows the next one 1,100 times: q_k = 1 + q_(k+1)."""
    count = 1100
    joints = "".join(
        f"<link name='l{k}'>{INERTIAL}</link><joint name='j{k}' type='continuous'><parent link='l'/><child "
        f"link='l{k}'/>" + (f"<mimic joint='j{k + 1}' offset='1'/>" if k < count else "") + "</joint>"
        for k in range(1, count + 1)
    )
    start = robots.load(
        written(tmp_path, {"r.urdf": f"<robot name='r'><link name='l'/>{joints}</robot>"})
    ).start
    assert start["j1"] == count - 1.0


def test_long_reports(tmp_path):
    """The report shows 50 lines of each kind; a strict error shows 51 problems."""
    unknown = "".join(f"<u{k}/>" for k in range(300))
    path = written(tmp_path, {"r.urdf": f"<robot name='{'r' * 10_000}'><link name='a'/>{unknown}</robot>"})
    report = robots.load(path).report
    assert len(report.ignored) == 300
    assert str(report).endswith("... (250 more lines like this)")
    assert len(str(report)) < 6000
    refused(path, "... (300 problems in all)", strict=True)


def test_long_values_in_messages():
    """Values, names and lists are cut in messages of descriptions and of requirements."""
    huge = 10**100_000
    inertia = (1.0, 1.0, 1.0)
    for bodies, message, count in (
        (
            [js.Body("b" * 100_000, huge, inertia)],
            "bbb...: mass must be a positive number, got a huge int; joint 'j': a ",
            3,
        ),
        (
            [js.Body("c", 1.0, inertia) for _ in range(101)],
            "body name 'c' is used twice; names must be unique; ... (82 more)",
            102,
        ),
    ):
        with pytest.raises(DescriptionError) as error:
            jm.spatial_mechanism(bodies, [js.Ball("j", "d", "c" * 100_000, at=(0.0, 0.0, 0.0))])
        assert message in str(error.value)
        assert (len(str(error.value)) < 4000, len(error.value.mistakes)) == (True, count)
    for value in (huge, "x" * 100_000, list(range(100_000))):
        assert len(requirements.came(value)) < 200
    with pytest.raises(ValueError, match="count must be at least 1, got a huge int"):
        requirements.checked_count("count", -huge)


def doubts(path):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        report = robots.load(path).report
    messages = [str(one.message) for one in found if one.category is jm.DescriptionWarning]
    notes = [note for note in report.notes if note.startswith("angles: ")]
    assert [message.split(": ", 2)[2] for message in messages] == [
        note.removeprefix("angles: ") for note in notes
    ]
    return "".join(notes)


class Hinge:
    """A hinge in a format: the texts of its orientation, its limits and the offset of a joint that follows
    it.
    """

    @staticmethod
    def urdf(rpy="0 0 0", limits=("-1", "1"), offset="0"):
        joints = "".join(
            f"<link name='{child}'>{INERTIAL}</link><joint name='{name}' type='revolute'><origin "
            f"rpy='{rpy}'/><parent link='base'/>"
            f"<child link='{child}'/><limit lower='{limits[0]}' upper='{limits[1]}'/>{more}</joint>"
            for name, child, more in (("j", "a", ""), ("k", "b", f"<mimic joint='j' offset='{offset}'/>"))
        )
        return f"<robot name='r'><link name='base'/>{joints}</robot>"

    @staticmethod
    def sdf(rpy="0 0 0", limits=("-1", "1"), offset="0"):
        joints = "".join(
            f"<link name='{child}'><pose>0 0 0 {rpy}</pose></link><joint name='{name}' "
            "type='revolute'><parent>world</parent>"
            f"<child>{child}</child><axis><limit><lower>{limits[0]}</lower><upper>{limits[1]}</upper></limit>{more}</axis></joint>"
            for name, child, more in (
                ("j", "a", ""),
                ("k", "b", f"<mimic joint='j'><offset>{offset}</offset></mimic>"),
            )
        )
        return f"<sdf version='1.11'><model name='m'>{joints}</model></sdf>"


@pytest.mark.long
def test_angles_in_degrees(tmp_path):
    """Degrees in URDF and SDF get a warning and a line of the report; turns, multiples of pi and "no limit"
    get none.
    """
    wrong = [
        *({"rpy": text} for text in ("0 90 0", "45 0 0", "0 0 -180", "10 0 0", "0 0 22.5", "0 57.29578 0")),
        *(
            {"limits": ends}
            for ends in (
                ("-180", "180"),
                ("-90", "90"),
                ("0", "120"),
                ("-166", "166"),
                ("-22.5", "15"),
                ("-360", "360"),
            )
        ),
        *(
            {"limits": ends}
            for ends in (("-169.9", "169.9"), ("-57.29578", "1"), ("-12.6051", "22"), ("0", "343.77"))
        ),
        *({"offset": text} for text in ("90", "-45", "180")),
    ]
    right = [
        *(
            {"rpy": text}
            for text in (
                "0 1.5708 0",
                "3.14159265 0 -3.14159265",
                "0 0 6.28318",
                "-6.2832 0 9.42478",
                "7 0 0",
            )
        ),
        *(
            {"limits": ends}
            for ends in (
                ("-6.28", "6.28"),
                ("-12.57", "12.57"),
                ("-12.566370614", "12.566370614"),
                ("-18.85", "18.85"),
            )
        ),
        *(
            {"limits": ends}
            for ends in (("-100", "100"), ("-1000", "1000"), ("-1e16", "1e16"), ("-10", "10"), ("-12", "12"))
        ),
        *({"limits": ends} for ends in (("-31.4159", "31.4159"), ("-3.14", "3.14"), ("-inf", "inf"))),
        *(
            {"limits": ends}
            for ends in (("-15.7", "15.7"), ("-25.133", "25.13"), ("-62.832", "62.83"), ("0", "1e4"))
        ),
        *({"offset": text} for text in ("1.5708", "-3.14159", "6.2832", "0.5")),
    ]
    for ending, write in (("urdf", Hinge.urdf), ("sdf", Hinge.sdf)):
        for case in wrong:
            assert "if these are degrees, write" in doubts(
                written(tmp_path, {f"r.{ending}": write(**case)})
            ), (ending, case)
        for case in right:
            assert not doubts(written(tmp_path, {f"r.{ending}": write(**case)})), (ending, case)
    degrees = Hinge.sdf(rpy="0 90 0").replace("<pose>", "<pose degrees='true'>")
    assert not doubts(written(tmp_path, {"r.sdf": degrees}))
    assert "is 0 1.5708 0 degrees; if these are radians, write 0 90.0002 0" in doubts(
        written(tmp_path, {"r.sdf": degrees.replace("0 90 0", "0 1.5708 0")})
    )
    prismatic = Hinge.urdf(limits=("-20", "20"), offset="15").replace("revolute", "prismatic")
    assert not doubts(written(tmp_path, {"r.urdf": prismatic}))
    assert "limit of joint 'j' is -180 180 rad; if these are degrees, write -3.14159 3.14159" in doubts(
        written(tmp_path, {"r.urdf": Hinge.urdf(limits=("-180", "180"))})
    )


def test_angles_of_mjcf(tmp_path):
    """Degrees with angle="radian", and radians with angle="degree", the default."""
    pytest.importorskip("mujoco")
    body = '<body euler="{1}"><joint type="{2}" range="{0}" limited="true"/><geom size=".1"/></body>'.format
    spring = '<body><joint springref="{0}" stiffness="1"/><geom size=".1"/></body>'.format
    for angle, text, expected in (
        (
            "radian",
            body("-180 180", "0 0 0", "hinge"),
            "the range of joint 'joint0' is -180 180 rad; if these are degrees",
        ),
        (
            "radian",
            body("-1 1", "0 90 0", "hinge"),
            "euler of <body> is 0 90 0 rad; if these are degrees, write 0 1.5708 0",
        ),
        ("radian", body("-180 180", "0 0 0", "slide"), ""),
        ("radian", body("-12.57 12.57", "0 1.5708 0", "hinge"), ""),
        ("degree", body("-180 180", "0 90 0", "hinge"), ""),
        (
            "degree",
            body("-3.14159 3.14159", "0 0 0", "hinge"),
            "is -3.14159 3.14159 degrees; if these are radians, write -180 180",
        ),
        ("degree", body("-90 90", "0 1.5708 0", "hinge"), "euler of <body> is 0 1.5708 0 degrees"),
        ("degree", body("-3 3", "0 1 2", "hinge"), ""),
        ("radian", spring("90"), "springref of joint 'joint0' is 90 rad; if these are degrees, write 1.5708"),
        ("radian", spring("1.5708"), ""),
        (
            "degree",
            spring("1.5708"),
            "springref of joint 'joint0' is 1.5708 degrees; if these are radians, write 90.0002",
        ),
        ("degree", spring("90"), ""),
    ):
        found = doubts(written(tmp_path, {"r.xml": mjcf(text, f'<compiler angle="{angle}"/>')}))
        assert expected in found, (angle, text, found)
        assert bool(expected) == bool(found)


def test_published_files_have_no_doubtful_angles():
    for folder in (
        pathlib.Path(__file__).parent / "reference" / "models",
        pathlib.Path(__file__).parents[1] / "configs" / "models",
    ):
        for path in sorted(folder.glob("*.*df")):
            assert not doubts(path)


def test_angles_of_equalities_and_keyframes_are_in_radians(tmp_path):
    """MuJoCo does not convert these, whatever the unit of the file."""
    pytest.importorskip("mujoco")
    links = "".join(f'<body name="{name}"><joint name="{name}"/><geom size=".1"/></body>' for name in "jk")
    for offset, angle in (("0.5", "1.5708"), ("90", "0"), ("-45", "0"), ("0", "-120"), ("0", "30")):
        more = f'<equality><joint joint1="k" joint2="j" polycoef="{offset} 1 0 0 0"/></equality>'
        more += f'<keyframe><key qpos="{angle} 0"/></keyframe>'
        found = doubts(written(tmp_path, {"r.xml": f"<mujoco><worldbody>{links}</worldbody>{more}</mujoco>"}))
        expected = [f"polycoef of the equality of joint 'k' is {offset} rad; if these are degrees"] * (
            abs(float(offset)) > 1.0
        )
        expected += [f"qpos of a keyframe of joint 'j' is {angle} rad; if these are degrees"] * (
            abs(float(angle)) > 2.0
        )
        assert all(text in found for text in expected)
        assert bool(found) == bool(expected)
