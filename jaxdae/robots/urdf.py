"""Robots from URDF, the Unified Robot Description Format of ROS.

A file is a list of links and of joints. A joint says where its child's frame is in that of its parent, `xyz` in m and `rpy` in rad with
R = Rz(yaw) Ry(pitch) Rx(roll), and about or along which axis of that frame it moves. Inertia is about the mass center in the axes of
`<inertial><origin>`.

References:
    The format: https://wiki.ros.org/urdf/XML
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae.mechanisms.values import hint
from jaxdae.robots.model import Ignored, Joint, Link, Mimic, Pose, Robot, robot
from jaxdae.robots.source import Node, RobotFileError, Source

_KINDS = {
    "fixed": "fixed",
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "planar": "planar",
    "floating": "floating",
}
_KNOWN = {
    "robot": {"link", "joint"},
    "link": {"inertial"},
    "inertial": {"origin", "mass", "inertia"},
    "joint": {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
}
_LIMITS = ("lower", "upper", "velocity", "effort")


def load_urdf(path: pathlib.Path, base: str, gravity: Any) -> Robot:
    """Returns the robot of a URDF file; see `jaxdae.robots.load`."""
    source = Source(path)
    root = source.root("robot")
    if any(":" in node.tag for node in root.children) or any("${" in text for node in root.children for text in node.attributes.values()):
        raise RobotFileError([f"{path}:{root.line}: a xacro source, not a URDF; run `xacro {path.name} > robot.urdf` first"])
    links = _links(source, root)
    joints = [joint for node in root.all("joint") if (joint := _joint(source, node, links)) is not None]
    _check_names(source, joints)
    _check_mimics(source, joints)
    if not links:
        source.wrong(root.line, "the robot has no links")
    source.end()
    return robot(source, root.attributes.get("name", path.stem), links, joints, base, _ignored(root), gravity)


def _pose(source: Source, node: Node | None) -> Pose:
    roll, pitch, yaw = source.numbers(node, "rpy", (0.0, 0.0, 0.0))
    (cr, sr), (cp, sp), (cy, sy) = ((np.cos(angle), np.sin(angle)) for angle in (roll, pitch, yaw))
    about_x = np.asarray([[1.0, 0.0, 0.0], [0.0, cr, -sr], [0.0, sr, cr]])
    about_y = np.asarray([[cp, 0.0, sp], [0.0, 1.0, 0.0], [-sp, 0.0, cp]])
    about_z = np.asarray([[cy, -sy, 0.0], [sy, cy, 0.0], [0.0, 0.0, 1.0]])
    return Pose(about_z @ about_y @ about_x, source.numbers(node, "xyz", (0.0, 0.0, 0.0)))


def _links(source: Source, root: Node) -> dict[str, Link]:
    links: dict[str, Link] = {}
    for node in root.all("link"):
        name = source.text(node, "name")
        if name in links:
            source.wrong(node.line, f"the link {name!r} is there a second time, after line {links[name].line}; rename one of them")
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
    mass = source.number(inertial.first("mass"), "value")
    at = inertial.first("inertia")
    xx, xy, xz, yy, yz, zz = (source.number(at, key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
    inertia = np.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if mass < 0.0:
        source.wrong(inertial.line, f"the mass of link {name!r} must not be negative, got {mass:g}")
    return Link(name, node.line, mass, pose.place, pose.rotation @ inertia @ pose.rotation.T)


def _joint(source: Source, node: Node, links: Mapping[str, Link]) -> Joint | None:
    before = len(source.problems)
    name, kind = source.text(node, "name"), source.text(node, "type")
    if kind and kind not in _KINDS:
        known = ", ".join(_KINDS)
        source.wrong(node.line, f"the joint {name!r} has the unknown type {kind!r}{hint(kind, list(_KINDS))}; there is: {known}")
    ends = {}
    for side in ("parent", "child"):
        end = node.first(side)
        ends[side] = "" if end is None else end.attributes.get("link", "")
        if ends[side] not in links:
            line = node.line if end is None else end.line
            source.wrong(line, f"the {side} of joint {name!r} is the unknown link {ends[side]!r}{hint(ends[side], list(links))}")
    axis = source.numbers(node.first("axis"), "xyz", (1.0, 0.0, 0.0))
    length = np.linalg.norm(axis)
    if kind in ("revolute", "continuous", "prismatic", "planar") and not length > 0.0:
        source.wrong(node.line, f"the axis of joint {name!r} is zero: give a direction, such as 0 0 1")
    dynamics, limit = node.first("dynamics"), node.first("limit")
    acting = {key: source.number(dynamics, key) for key in ("damping", "friction")}
    for key, value in acting.items():
        if value < 0.0:
            source.wrong(node.line, f"the {key} of joint {name!r} must not be negative, got {value:g}")
    limits = {key: source.number(limit, key) for key in _LIMITS if limit is not None and key in limit.attributes}
    if kind != "continuous" and limits.get("lower", 0.0) > limits.get("upper", 0.0) and {"lower", "upper"} <= limits.keys():
        source.wrong(node.line, f"the joint {name!r} has the lower limit {limits['lower']:g} above the upper one {limits['upper']:g}")
    followed, mimic = node.first("mimic"), None
    if followed is not None:
        mimic = Mimic(source.text(followed, "joint"), source.number(followed, "multiplier", 1.0), source.number(followed, "offset"))
    pose = _pose(source, node.first("origin"))
    if len(source.problems) > before:
        return None
    unit = axis / length if length > 0.0 else axis
    return Joint(name, node.line, _KINDS[kind], ends["parent"], ends["child"], pose, unit, **acting, limits=limits, mimic=mimic)


def _check_names(source: Source, joints: list[Joint]) -> None:
    lines: dict[str, int] = {}
    for joint in joints:
        if joint.name in lines:
            source.wrong(joint.line, f"the joint {joint.name!r} is there a second time, after line {lines[joint.name]}; rename one of them")
        lines.setdefault(joint.name, joint.line)


def _check_mimics(source: Source, joints: list[Joint]) -> None:
    by_name = {joint.name: joint for joint in joints}
    for joint in joints:
        seen = [joint.name]
        at: Joint | None = joint
        while at is not None and at.mimic is not None:
            other = by_name.get(at.mimic.other)
            if at is joint and (other is None or other.kind not in ("revolute", "prismatic")):
                known = [name for name, one in by_name.items() if one.kind in ("revolute", "prismatic") and name != joint.name]
                what = "unknown joint" if other is None else f"{other.kind} joint"
                source.wrong(joint.line, f"the joint {joint.name!r} mimics the {what} {at.mimic.other!r}{hint(at.mimic.other, known)}")
                break
            if other is not None and other.name in seen:
                source.wrong(joint.line, f"the joint {joint.name!r} mimics itself, by way of {' -> '.join([*seen, other.name])}")
                break
            seen.append(at.mimic.other)
            at = other


def _ignored(root: Node) -> tuple[Ignored, ...]:
    """Returns the elements that nothing here uses, in the order of their first lines."""
    found: dict[str, list[int]] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        known = _KNOWN.get(node.tag, set())
        for child in node.children:
            if child.tag in known:
                waiting.append(child)
            else:
                found.setdefault(child.tag, []).append(child.line)
    return tuple(sorted((Ignored(tag, min(lines), len(lines)) for tag, lines in found.items()), key=lambda one: one.line))
