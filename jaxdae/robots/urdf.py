"""Robots from URDF, the Unified Robot Description Format of ROS.

A file is a list of links and joints. A joint defines the frame of its child in the frame of its parent, `xyz`
in m and `rpy` in rad with R = Rz(yaw) Ry(pitch) Rx(roll), and the axis of motion in the frame of the child.
Inertia is about the mass center in the axes of `<inertial><origin>`.

References:
    The format: https://wiki.ros.org/urdf/XML
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.angle_units import doubt, limits_in_degrees, orientation_in_degrees
from jaxdae.robots.collision_elements import SHAPES, collision, named, on_the_ground, pairs
from jaxdae.robots.file_limits import MOST_LINKS
from jaxdae.robots.robot_graph import (
    HERE,
    Coupling,
    FileContacts,
    Graph,
    Joint,
    Link,
    Pose,
    axes_with_z,
    joint_at,
    quaternion_matrix,
    roll_pitch_yaw,
)
from jaxdae.robots.robot_source import Node, RobotFileError, Source
from jaxdae.robots.unused_elements import Format, unused

_FREE = object()
_KINDS: dict[str, Any] = {
    "fixed": js.Weld,
    "revolute": js.Revolute,
    "continuous": js.Revolute,
    "prismatic": js.Prismatic,
    "planar": js.Planar,
    "spherical": js.Ball,
    "floating": _FREE,
}
_WITH_AXIS = ("revolute", "continuous", "prismatic", "planar")
_FOLLOWING = (js.Revolute, js.Prismatic)
_LIMITS = ("lower", "upper", "velocity", "effort")
_READ = Format(
    elements={
        "robot": {"link", "joint"},
        "link": {"inertial"},
        "inertial": {"origin", "mass", "inertia"},
        "joint": {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
    },
    attributes={
        "robot": {"name", "version"},
        "link": {"name"},
        "joint": {"name", "type"},
        "origin": {"xyz", "rpy", "quat_xyzw"},
        "mass": {"value"},
        "inertia": {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"},
        "parent": {"link"},
        "child": {"link"},
        "axis": {"xyz"},
        "limit": _LIMITS,
        "dynamics": {"damping", "friction"},
        "mimic": {"joint", "multiplier", "offset"},
    },
    several={"link", "joint"},
    texts=False,
    drawn={("link", "visual"), ("robot", "material")},
)
_READ_BY_CONTACTS = Format(
    elements={
        "collision": {"origin", "geometry", "contact_coefficients"},
        "geometry": SHAPES.keys(),
        "gazebo": {"mu1"},
    },
    attributes={
        "collision": {"name"},
        "origin": _READ.attributes["origin"],
        "contact_coefficients": {"mu"},
        "gazebo": {"reference"},
        "mu1": {"value"},
        **SHAPES,
    },
    several=(),
    texts=True,
)


class _Mimic(NamedTuple):
    """The driver of a mimic joint: q = multiplier q_other + offset."""

    other: str
    multiplier: float
    offset: float


class _Joint(NamedTuple):
    """A joint of the file: pose of the child in the parent at zero, and a unit axis in the child frame."""

    name: str
    line: int
    kind: Any
    parent: str
    child: str
    pose: Pose
    axis: np.ndarray
    numbers: dict[str, float]
    limits: dict[str, float]
    mimic: _Mimic | None
    wraps: bool


def read_urdf(path: pathlib.Path) -> tuple[Source, Graph]:
    """Return a URDF file and the graph in it; see `jaxdae.robots.load`."""
    source = Source(path)
    root = source.root("robot")
    if any(
        node.tag.startswith("xacro:") or any("${" in text for text in node.attributes.values())
        for node in root.everything()
    ):
        raise RobotFileError(
            [
                f"{path}:{root.line}: this is a xacro source, not a URDF; run `xacro {path.name} > "
                "robot.urdf` first"
            ]
        )
    for tag in ("link", "joint"):
        source.at_most(MOST_LINKS, sum(1 for _ in root.all(tag)), f"{tag}s")
    links = _links(source, root)
    joints = [joint for node in root.all("joint") if (joint := _joint(source, node, links)) is not None]
    _check_names(source, joints)
    _check_mimics(source, joints)
    if not links:
        source.wrong(root.line, "the robot has no links")
    source.end()
    order, poses = _placed(source, links, joints)
    # The root link first: the tree of a floating base grows from it.
    first = next(iter(poses))
    placed = {
        name: dataclasses.replace(links[name], pose=poses[name]) for name in dict.fromkeys((first, *links))
    }
    found = [_in_graph(joint, placed) for joint in order if joint.kind is not _FREE]
    couplings = [
        Coupling(
            f"{joint.name}_mimic",
            joint.line,
            joint.name,
            joint.mimic.other,
            (joint.mimic.offset, joint.mimic.multiplier),
        )
        for joint in order
        if joint.mimic is not None
    ]
    forces = [
        js.RotationalDamper(f"{joint.name} damping", joint.parent, joint.child, joint.numbers["damping"])
        for joint in order
        if joint.kind is js.Ball and joint.numbers["damping"]
    ]
    afloat = tuple(joint.child for joint in order if joint.kind is _FREE)
    lost = [
        one.line
        for node in root.all("joint")
        if _KINDS[node.attributes["type"]] is _FREE
        for one in node.all("dynamics")
    ]
    turning = [node for node in root.all("joint") if node.attributes["type"] == "continuous"]
    endless = [
        one.line
        for node in turning
        for one in node.all("limit")
        if {"lower", "upper"} & one.attributes.keys()
    ]
    ignored = unused(
        source,
        [root],
        _READ,
        {"dynamics of a floating joint": lost, "lower and upper limit of a continuous joint": endless},
    )
    return source, Graph(
        root.attributes.get("name", path.stem),
        placed,
        found,
        couplings,
        forces,
        ignored=ignored,
        afloat=afloat,
        contacts=partial(_contacts, source, root, found),
    )


def _contacts(source: Source, root: Node, joints: Sequence[Joint]) -> FileContacts:
    """Return the pairs of <collision> elements, and their pairs with the plane z = 0.

    The friction coefficient is `mu` of <contact_coefficients> of the element, or <mu1> of <gazebo> of its
    link.
    """
    extensions = [node for node in root.all("gazebo") if "reference" in node.attributes]
    of_links = {
        node.attributes["reference"]: source.value(_with_text(mu), 1.0)
        for node in extensions
        if (mu := node.first("mu1")) is not None
    }
    nodes = [(link.attributes["name"], node) for link in root.all("link") for node in link.all("collision")]
    found = []
    for link, node in nodes:
        of_element = node.first("contact_coefficients")
        geometry = next(iter(getattr(node.first("geometry"), "children", ())), None)
        if geometry is None:
            continue
        friction = of_links.get(link)
        if of_element is not None and "mu" in of_element.attributes:
            friction = source.number(of_element, "mu")
        pose, name = _pose(source, node.first("origin")), node.attributes.get("name", "")
        found.append(collision(source, name, link, pose, geometry, friction))
    found = named(source, found)
    ignored = unused(source, [*(node for _, node in nodes), *extensions], _READ_BY_CONTACTS, {})
    return FileContacts([*pairs(found, joints), *on_the_ground(found)], ("collision", "gazebo"), ignored)


def _with_text(node: Node) -> Node:
    """Return an element with its attribute `value`, an old form of Gazebo's extensions, as text."""
    return dataclasses.replace(node, content=node.attributes.get("value", node.content))


def _in_graph(joint: _Joint, links: Mapping[str, Link]) -> Joint:
    frame = links[joint.child].pose.then(Pose(axes_with_z(joint.axis), np.zeros(3)))
    ends = joint.parent, joint.child
    # The damping of balls is a separate force.
    numbers = {
        key: value
        for key, value in joint.numbers.items()
        if value and (joint.kind is not js.Ball or key == "friction")
    }
    numbers = {} if joint.kind is js.Weld else numbers
    options = {"numbers": numbers, "limits": joint.limits, "wraps": joint.wraps}
    return joint_at(joint.name, joint.line, joint.kind, ends, links, frame, **options)


def _placed(
    source: Source, links: Mapping[str, Link], joints: Sequence[_Joint]
) -> tuple[list[_Joint], dict[str, Pose]]:
    """Return the joints from the root outward, and all link poses at zero, with the root at the origin."""
    parents: dict[str, _Joint] = {}
    children: dict[str, list[_Joint]] = {name: [] for name in links}
    for joint in joints:
        if joint.child in parents:
            first = parents[joint.child]
            source.wrong(
                joint.line,
                f"link {brief(joint.child)} has two parents, by the joints {brief(first.name)} and "
                f"{brief(joint.name)}; URDF does not support loops; remove joint {brief(joint.name)} and "
                "pass loops=[...]",
            )
            continue
        parents[joint.child] = joint
        children[joint.parent].append(joint)
    roots = [name for name in links if name not in parents]
    if len(roots) > 1:
        line = links[roots[1]].line
        source.wrong(
            line,
            f"the links {join_first(map(brief, roots))} have no parent; a robot has one root, so connect "
            "the others to it",
        )
    order: list[_Joint] = []
    poses = dict.fromkeys(roots[:1], HERE)
    still = set(roots[:1])
    queue = deque(roots[:1])
    while queue:
        for joint in children[queue.popleft()]:
            if joint.child in poses:
                continue
            poses[joint.child] = poses[joint.parent].then(joint.pose)
            if joint.kind is js.Weld and joint.parent in still:
                still.add(joint.child)
            if joint.kind is _FREE and joint.parent not in still:
                source.wrong(
                    joint.line,
                    f"the floating joint {brief(joint.name)} must have the root, or a link welded to the "
                    "root, as parent",
                )
            order.append(joint)
            queue.append(joint.child)
    around = [name for name in links if name not in poses and name not in roots]
    if around and len(roots) <= 1:
        source.wrong(
            links[around[0]].line,
            f"the links {join_first(map(brief, around))} form a cycle; no chain of joints connects them to "
            "a root",
        )
    source.end()
    return order, poses


def _pose(source: Source, node: Node | None) -> Pose:
    place, rpy = source.numbers(node, "xyz", (0.0, 0.0, 0.0)), source.numbers(node, "rpy", (0.0, 0.0, 0.0))
    if node is None or "quat_xyzw" not in node.attributes:
        if node is not None and orientation_in_degrees(rpy):
            source.doubt(node.line, doubt("rpy of <origin>", rpy, degrees=False))
        return Pose(roll_pitch_yaw(*rpy), place)
    quaternion = source.numbers(node, "quat_xyzw", (0.0, 0.0, 0.0, 1.0))
    if "rpy" in node.attributes or not np.any(quaternion):
        source.wrong(node.line, "<origin> must have either rpy or a nonzero quat_xyzw")
        return HERE
    return Pose(quaternion_matrix(np.roll(quaternion, 1)), place)


def _links(source: Source, root: Node) -> dict[str, Link]:
    links: dict[str, Link] = {}
    for node in root.all("link"):
        name = source.text(node, "name")
        if name in links:
            source.wrong(
                node.line,
                f"the link {brief(name)} is already defined in line {links[name].line}; rename one of them",
            )
        elif name == "ground":
            source.wrong(node.line, "a link must not be named 'ground', which is the fixed world; rename it")
        elif name:
            links[name] = _link(source, node, name)
    return links


def _link(source: Source, node: Node, name: str) -> Link:
    inertial = node.first("inertial")
    if inertial is None:
        return Link(name, node.line)
    pose = _pose(source, inertial.first("origin"))
    mass = source.needed(inertial, "mass", "value")
    xx, yy, zz = (source.needed(inertial, "inertia", key) for key in ("ixx", "iyy", "izz"))
    xy, xz, yz = (source.number(inertial.first("inertia"), key) for key in ("ixy", "ixz", "iyz"))
    inertia = np.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if mass < 0.0:
        source.wrong(inertial.line, f"the mass of link {brief(name)} must not be negative, got {mass:g}")
    return Link(name, node.line, HERE, mass, pose.place, pose.rotation @ inertia @ pose.rotation.T)


def _joint(source: Source, node: Node, links: Mapping[str, Link]) -> _Joint | None:
    before = len(source.problems)
    name, kind = source.text(node, "name"), source.text(node, "type")
    if kind and kind not in _KINDS:
        known = ", ".join(_KINDS)
        source.wrong(
            node.line,
            f"the joint {brief(name)} has the unknown type {brief(kind)}{hint(kind, list(_KINDS))}; "
            f"available: {known}",
        )
    ends = {}
    for side in ("parent", "child"):
        end = node.first(side)
        ends[side] = "" if end is None else end.attributes.get("link", "")
        if ends[side] not in links:
            line = node.line if end is None else end.line
            source.wrong(
                line,
                f"the {side} of joint {brief(name)} is the unknown link "
                f"{brief(ends[side])}{hint(ends[side], list(links))}",
            )
    axis = source.numbers(node.first("axis"), "xyz", (1.0, 0.0, 0.0))
    length = np.linalg.norm(axis)
    if kind in _WITH_AXIS and not length > 0.0:
        source.wrong(
            (node.first("axis") or node).line,
            f"the axis of joint {brief(name)} is zero; give a direction, such as 0 0 1",
        )
    dynamics, limit = node.first("dynamics"), node.first("limit")
    acting = {key: source.number(dynamics, key) for key in ("damping", "friction")}
    limits = {
        key: source.number(limit, key, endless=True)
        for key in _LIMITS
        if limit is not None and key in limit.attributes
    }
    if (
        kind != "continuous"
        and limits.get("lower", 0.0) > limits.get("upper", 0.0)
        and {"lower", "upper"} <= limits.keys()
    ):
        source.wrong(
            node.line,
            f"the joint {brief(name)} has the lower limit {limits['lower']:g} above the upper one "
            f"{limits['upper']:g}",
        )
    for key in ("velocity", "effort"):
        if limits.get(key, 0.0) < 0.0:
            source.wrong(
                node.line,
                f"the {key} limit of joint {brief(name)} must be non-negative, got {limits[key]:g}",
            )
    # A continuous joint has limits of its rate and effort only, whatever its file contains.
    ends_there = {"lower", "upper"} if kind == "continuous" else set()
    limits = {key: value for key, value in limits.items() if np.isfinite(value) and key not in ends_there}
    ends_of = [limits[key] for key in ("lower", "upper") if key in limits]
    if limit is not None and kind == "revolute" and limits_in_degrees(ends_of):
        source.doubt(limit.line, doubt(f"the limit of joint {brief(name)}", ends_of, degrees=False))
    followed, mimic = node.first("mimic"), None
    if followed is not None and kind not in ("fixed", "revolute", "continuous", "prismatic"):
        source.wrong(
            followed.line,
            f"the joint {brief(name)} is {kind}; only revolute and prismatic joints can mimic others",
        )
    if followed is not None and kind != "fixed":  # A fixed joint has no coordinate.
        mimic = _Mimic(
            source.text(followed, "joint"),
            source.number(followed, "multiplier", 1.0),
            source.number(followed, "offset"),
        )
    if (
        mimic is not None
        and followed is not None
        and kind != "prismatic"
        and orientation_in_degrees([mimic.offset])
    ):
        source.doubt(
            followed.line, doubt(f"the mimic offset of joint {brief(name)}", [mimic.offset], degrees=False)
        )
    pose = _pose(source, node.first("origin"))
    if len(source.problems) > before:
        return None
    unit = axis / length if length > 0.0 else np.asarray([1.0, 0.0, 0.0])
    return _Joint(
        name,
        node.line,
        _KINDS[kind],
        ends["parent"],
        ends["child"],
        pose,
        unit,
        acting,
        limits,
        mimic,
        wraps=kind == "continuous",
    )


def _check_names(source: Source, joints: list[_Joint]) -> None:
    lines: dict[str, int] = {}
    for joint in joints:
        if joint.name in lines:
            source.wrong(
                joint.line,
                f"the joint {brief(joint.name)} is already defined in line {lines[joint.name]}; rename one "
                "of them",
            )
        lines.setdefault(joint.name, joint.line)


def _check_mimics(source: Source, joints: list[_Joint]) -> None:
    by_name = {joint.name: joint for joint in joints}
    done: set[str] = set()
    for joint in joints:
        seen = {joint.name: None}  # In order.
        at: _Joint | None = joint
        while at is not None and at.mimic is not None:
            other = by_name.get(at.mimic.other)
            if at is joint and (other is None or other.kind not in _FOLLOWING):
                known = [
                    name for name, one in by_name.items() if one.kind in _FOLLOWING and name != joint.name
                ]
                what = "unknown joint" if other is None else f"{_key(other.kind)} joint"
                source.wrong(
                    joint.line,
                    f"the joint {brief(joint.name)} mimics the {what} "
                    f"{brief(at.mimic.other)}{hint(at.mimic.other, known)}",
                )
                break
            if other is not None and other.name in seen:
                way = join_first([*seen, other.name], " -> ")
                source.wrong(joint.line, f"the joint {brief(joint.name)} mimics itself through {way}")
                break
            if other is None or other.name in done:
                break
            seen[other.name] = None
            at = other
        done |= seen.keys()


def _key(kind: Any) -> str:
    return next(key for key, known in _KINDS.items() if known is kind)
