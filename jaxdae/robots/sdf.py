"""Robots from SDF, the format of Gazebo and Drake.

A file is a model, or a world with models. Models contain links, joints and frames, all with poses in other
frames (`jaxdae.robots.sdf_frames`). A joint may connect any two links. Joints outside the spanning tree close
loops, which are closed in the pose of the file by definition. In that pose all joint coordinates are zero.

A gearbox enforces theta_2 = -ratio theta_1, with the angles of the parent about `axis` and of the child about
`axis2`, both relative to the reference body. It becomes a relation between the hinges of the two on that
body.

References:
    The format: http://sdformat.org/spec, and there "Pose frame semantics". The sign of a gearbox follows
    `gearbox_ratio` in the description of joints of version 1.12, which defines theta_2 = -gearbox_ratio
    theta_1.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.angle_units import doubt, limits_in_degrees, orientation_in_degrees
from jaxdae.robots.file_limits import MOST_LINKS
from jaxdae.robots.referenced_files import Folders
from jaxdae.robots.robot_graph import HERE, Coupling, Graph, Joint, Link, Pose, axes_with_z, joint_at
from jaxdae.robots.robot_source import Node, RobotFileError, Source
from jaxdae.robots.sdf_collisions import contacts
from jaxdae.robots.sdf_frames import Frames, Scope, in_scopes
from jaxdae.robots.unused_elements import Format, unused

_KINDS: dict[str, Any] = {
    "fixed": js.Weld,
    "revolute": js.Revolute,
    "continuous": js.Revolute,
    "prismatic": js.Prismatic,
    "ball": js.Ball,
    "universal": js.Universal,
    "revolute2": js.Universal,
    "screw": js.Screw,
    "gearbox": None,
}
_AXIS = {"xyz", "limit", "dynamics", "mimic", "use_parent_model_frame"}
_JOINT = (
    "pose",
    "parent",
    "child",
    "axis",
    "axis2",
    "screw_thread_pitch",
    "thread_pitch",
    "gearbox_ratio",
    "gearbox_reference_body",
)
_READ = Format(
    elements={
        "sdf": {"model", "world"},
        "world": {"model", "include", "frame", "joint", "gravity"},
        "model": {"link", "joint", "frame", "pose", "static", "model", "include"},
        "include": {"uri", "name", "pose", "placement_frame", "static"},
        "link": {"pose", "inertial", "gravity"},
        "inertial": {"pose", "mass", "inertia"},
        "inertia": {"ixx", "iyy", "izz", "ixy", "ixz", "iyz"},
        "frame": {"pose"},
        "joint": _JOINT,
        "axis": _AXIS,
        "axis2": _AXIS,
        "limit": {"lower", "upper", "effort", "velocity"},
        "dynamics": {"damping", "friction", "spring_stiffness", "spring_reference"},
        "mimic": {"multiplier", "offset", "reference"},
    },
    attributes={
        "sdf": {"version"},
        "world": {"name"},
        "model": {"name", "canonical_link", "placement_frame"},
        "include": {"merge"},
        "link": {"name"},
        "inertial": {"auto"},
        "frame": {"name", "attached_to"},
        "joint": {"name", "type"},
        "pose": {"relative_to", "rotation_format", "degrees", "frame"},
        "parent": {"link"},
        "child": {"link"},
        "xyz": {"expressed_in"},
        "mimic": {"joint", "axis"},
    },
    several={"model", "world", "include", "frame", "joint", "link"},
    texts=True,
    drawn={("link", "visual")},
)
_AXES = {js.Universal: 2, js.Weld: 0, js.Ball: 0, None: 2}
"""The number of axes of a joint, 1 for types that are not listed."""
_ENDLESS = 1e15  # SDF uses 1e16 for "no limit".


def read_sdf(path: pathlib.Path, folders: Folders) -> tuple[Source, Graph]:
    """Return an SDF file and the graph in it; see `jaxdae.robots.load`."""
    source = Source(path)
    root = source.root("sdf")
    version = sdf_version(source, root)
    scopes, frames = in_scopes(source, root, version, folders)
    if not any(scope.node.tag == "model" for scope in scopes):
        source.wrong(root.line, "the file has no <model>")
    source.end()
    for tag in ("link", "joint"):
        source.at_most(MOST_LINKS, sum(1 for scope in scopes for _ in scope.all(tag)), f"{tag}s")
    named_nodes = [(scope.named(node), node) for scope in scopes for node in scope.all("link")]
    links = {name: _link(source, node, name, frames) for name, node in named_nodes}
    source.end()
    joints, couplings = _joints(source, scopes, frames, links)
    if not links:
        source.wrong(root.line, "the robot has no links")
    source.end()
    gravity = next(
        (
            source.values(node, (0.0, 0.0, -9.81))
            for scope in scopes
            for node in scope.node.all("gravity")
            if scope.is_world
        ),
        None,
    )
    source.end()
    models = [scope.node.attributes.get("name", "") for scope in scopes if not scope.is_world]
    named = {
        name: (link, frames.in_link(name, links))
        for name in frames.extra()
        if (link := frames.link_of(name)) in links
    }
    return source, Graph(
        models[0] if models else path.stem,
        _first_canonical(links, scopes),
        joints,
        couplings,
        frames=named,
        gravity=gravity,
        contacts=partial(contacts, source, scopes, frames, joints),
        ignored=unused(source, [root, *(scope.node for scope in scopes)], _READ, _not_acting(scopes)),
    )


def _joints(
    source: Source, scopes: Sequence[Scope], frames: Frames, links: dict[str, Link]
) -> tuple[list[Joint], list[Coupling]]:
    """Return the joints and couplings of all models; gears refer to joints and come last."""
    joints: list[Joint] = []
    gears: list[tuple[Scope, Node]] = []
    couplings: list[Coupling] = []
    for scope in scopes:
        joints += _standing(scope, links)
        for node in scope.all("joint"):
            kind = node.attributes.get("type", "")
            if kind not in _KINDS:
                name, known = node.attributes.get("name"), list(_KINDS)
                text = (
                    f"the joint {brief(name)} has the unknown type {brief(kind)}{hint(kind, known)}; "
                    f"available: {join_first(known)}"
                )
                source.wrong(node.line, text)
            elif kind == "gearbox":
                gears.append((scope, node))
            elif (made := _joint(source, scope, node, frames, links)) is not None:
                joints.append(made)
                couplings += _mimics(source, scope, node)
    source.end()
    couplings += [
        gear
        for scope, node in gears
        if (gear := _gear(source, scope, node, frames, joints, links)) is not None
    ]
    _check_couplings(source, couplings, joints)
    return joints, couplings


def sdf_version(source: Source, root: Node) -> tuple[int, int]:
    """Return the format version of a file.

    Raises:
        RobotFileError: the file has no valid version.
    """
    text = root.attributes.get("version", "")
    parts = text.split(".")
    if len(parts) < 2 or parts[0] != "1" or not (parts[1].isdigit() and len(parts[1]) < 4):
        raise RobotFileError(
            [f"{source.path}:{root.line}: <sdf> has the version {brief(text)}; expected one such as 1.9"]
        )
    return int(parts[0]), int(parts[1])


def _first_canonical(links: dict[str, Link], scopes: Sequence[Scope]) -> dict[str, Link]:
    """Return the links, with the canonical link of the first model first."""
    first = next((scope.canonical() for scope in scopes if not scope.is_world), None)
    return links if first not in links else {first: links[first]} | links


def _standing(scope: Scope, links: dict[str, Link]) -> list[Joint]:
    """Return the welds that fix the links of a static model."""
    if not scope.static:
        return []
    held = [links[scope.named(node)] for node in scope.all("link")]
    return [
        Joint(f"{link.name} weld", link.line, js.Weld, GROUND, link.name, link.pose, HERE) for link in held
    ]


def _link(source: Source, node: Node, name: str, frames: Frames) -> Link:
    pose, inertial = frames.pose(name), node.first("inertial")
    lifted = 0.0 if source.truth(node.first("gravity"), True) else 1.0
    if inertial is None:
        # The default of the format.
        return Link(name, node.line, pose, 1.0, np.zeros(3), np.eye(3), lifted)
    if source.truth_of(inertial, "auto"):
        source.wrong(
            inertial.line,
            f"the inertia of link {brief(name)} is specified by its collisions, which are not read; write "
            "mass and inertia",
        )
    own = inertial.first("pose")
    if own is not None and own.attributes.get("relative_to"):
        source.wrong(
            own.line,
            f"the pose of the inertia of link {brief(name)} is relative to the link; remove relative_to",
        )
    at = frames.raw(source, own)
    mass = source.value(inertial.first("mass"), 1.0)
    tensor = inertial.first("inertia")
    defaults = {"ixx": 1.0, "iyy": 1.0, "izz": 1.0, "ixy": 0.0, "ixz": 0.0, "iyz": 0.0}
    xx, yy, zz, xy, xz, yz = (
        source.value(None if tensor is None else tensor.first(key), value) for key, value in defaults.items()
    )
    inertia = np.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if mass < 0.0:
        source.wrong(inertial.line, f"the mass of link {brief(name)} must not be negative, got {mass:g}")
    return Link(name, node.line, pose, mass, at.place, at.rotation @ inertia @ at.rotation.T, lifted)


def _ends(source: Source, scope: Scope, node: Node, frames: Frames) -> tuple[str, str] | None:
    """Return the links that a joint connects."""
    found = []
    for side in ("parent", "child"):
        end = node.first(side)
        given = "" if end is None else (end.content.strip() or end.attributes.get("link", ""))
        link = GROUND if given == "world" else frames.link_of(scope.full(given))
        if link is None:
            line, said = (
                (node if end is None else end).line,
                f"the {side} of joint {brief(node.attributes.get('name'))} is",
            )
            known = [one.removeprefix(scope.prefix) for one in frames.entries if one.startswith(scope.prefix)]
            if given in known:
                source.wrong(line, f"{said} the frame {brief(given)}, which is not attached to a link")
            else:
                source.wrong(line, f"{said} the unknown link {brief(given)}{hint(given, known)}")
        found.append(link)
    if None in found:
        return None
    if found[0] == found[1]:
        source.wrong(
            node.line,
            f"the joint {brief(node.attributes.get('name'))} connects {brief(found[0])} with itself",
        )
        return None
    return found[0], found[1]


def _joint(source: Source, scope: Scope, node: Node, frames: Frames, links: dict[str, Link]) -> Joint | None:
    before = len(source.problems)
    name, written = scope.named(node), node.attributes["type"]
    kind, ends = _KINDS[written], _ends(source, scope, node, frames)
    at = frames.joint_pose(name)
    count = _AXES.get(kind, 1)
    nodes = [node.first("axis"), node.first("axis2")][:count]
    axes = [_axis(source, scope, node, one, frames, at, np.eye(3)[2]) for one in nodes]
    numbers: dict[str, Any] = {}
    limits: dict[str, float] = {}
    if count:
        numbers = _acting(source, nodes)
        limits = _limits(source, node, nodes)
    if kind in (js.Revolute, js.Universal):
        _doubt_angles(source, node, name, numbers, limits)
    if kind is js.Screw:
        numbers["lead"] = _lead(source, node)
    if len(source.problems) > before or ends is None or at is None:
        return None
    rotation = np.eye(3)
    if count == 1:
        rotation = axes_with_z(axes[0])
    if count == 2:
        first, second = axes
        if abs(first @ second) > 1e-9:
            source.wrong(
                node.line,
                f"the axes of joint {brief(name)} must be at right angles; write it as two revolute joints "
                "with a link between",
            )
            return None
        rotation = np.stack([first, second, np.cross(first, second)], axis=1)
    frame = at.then(Pose(rotation, np.zeros(3)))
    return joint_at(
        name,
        node.line,
        kind,
        ends,
        links,
        frame,
        numbers=numbers,
        limits=limits,
        wraps=written == "continuous",
    )


def _axis(
    source: Source,
    scope: Scope,
    joint: Node,
    node: Node | None,
    frames: Frames,
    at: Pose | None,
    default: np.ndarray,
) -> np.ndarray:
    """Return the unit axis of a joint in its own frame."""
    xyz = None if node is None else node.first("xyz")
    axis = default if xyz is None else source.values(xyz, tuple(default))
    length = np.linalg.norm(axis)
    if not length > 0.0:
        source.wrong(
            (xyz or joint).line,
            f"the axis of joint {brief(joint.attributes.get('name'))} is zero; give a direction, such as 0 "
            "0 1",
        )
        return default
    expressed = "" if xyz is None else xyz.attributes.get("expressed_in", "")
    of_model = node is not None and (
        source.truth(node.first("use_parent_model_frame"), False) or scope.version < (1, 5)
    )
    if at is None or not (expressed or of_model):
        return axis / length
    name = scope.full(expressed) if expressed else scope.model_frame
    if expressed and not frames.has(name):
        text = (
            f"the axis of joint {brief(joint.attributes.get('name'))} is expressed in the unknown frame "
            f"{brief(expressed)}"
        )
        source.wrong((xyz or joint).line, f"{text}{hint(expressed, list(frames.entries))}")
        return default
    return at.rotation.T @ frames.pose(name).rotation @ axis / length


def _acting(source: Source, nodes: Sequence[Node | None]) -> dict[str, Any]:
    """Return the forces along the coordinates of a joint."""
    found: dict[str, Any] = {}
    names = (
        ("damping", "damping"),
        ("friction", "friction"),
        ("spring_stiffness", "stiffness"),
        ("spring_reference", "rest"),
    )
    for given, field in names:
        values = []
        for node in nodes:
            dynamics = None if node is None else node.first("dynamics")
            at = None if dynamics is None else dynamics.first(given)
            values.append(source.value(at, 0.0))
        if any(values) or (field == "rest" and "stiffness" in found):
            found[field] = values[0] if len(values) == 1 else np.asarray(values)
    if "stiffness" not in found:
        found.pop("rest", None)
    return found


def _limits(source: Source, joint: Node, nodes: Sequence[Node | None]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node, suffix in zip(nodes, ("", "2"), strict=False):
        limit = None if node is None else node.first("limit")
        values = {
            key: source.value(one, 0.0, endless=True)
            for key in ("lower", "upper", "velocity", "effort")
            if limit is not None and (one := limit.first(key))
        }
        found |= {
            key + suffix: value
            for key, value in values.items()
            if abs(value) < _ENDLESS and not (key in ("velocity", "effort") and value < 0.0)
        }
        if values.get("lower", -np.inf) > values.get("upper", np.inf):
            name = joint.attributes.get("name")
            source.wrong(
                joint.line,
                f"the joint {brief(name)} has the lower limit {values['lower']:g} above the upper one "
                f"{values['upper']:g}",
            )
    return found


def _doubt_angles(
    source: Source, node: Node, name: str, numbers: dict[str, Any], limits: dict[str, float]
) -> None:
    """Note joint angles that are probably in degrees."""
    for suffix in ("", "2"):
        ends = [limits[side + suffix] for side in ("lower", "upper") if side + suffix in limits]
        if limits_in_degrees(ends):
            source.doubt(node.line, doubt(f"the limit of joint {brief(name)}", ends, degrees=False))
    rest = np.atleast_1d(numbers.get("rest", 0.0))
    if orientation_in_degrees(rest):
        source.doubt(node.line, doubt(f"spring_reference of joint {brief(name)}", rest, degrees=False))


def _lead(source: Source, node: Node) -> float:
    """Return the lead of a screw in m/rad; `screw_thread_pitch` is in m/turn, `thread_pitch` in -rad/m."""
    turn, old = node.first("screw_thread_pitch"), node.first("thread_pitch")
    if turn is not None:
        lead = source.value(turn, 0.0) / (2.0 * np.pi)
    else:
        pitch = source.value(old, 0.0)
        lead = -1.0 / pitch if pitch else 0.0
    if not lead:
        source.wrong(
            (turn or old or node).line,
            "a screw needs a nonzero <screw_thread_pitch>, in m per turn; positive is right-handed",
        )
    return lead


def _mimics(source: Source, scope: Scope, node: Node) -> list[Coupling]:
    found = []
    for key in ("axis", "axis2"):
        axis = node.first(key)
        mimic = None if axis is None else axis.first("mimic")
        if mimic is None:
            continue
        if key == "axis2" or mimic.attributes.get("axis", "axis") != "axis":
            source.wrong(
                mimic.line, "mimic of a second axis is not supported; write the joint as two revolute joints"
            )
            continue
        multiplier, offset, reference = (
            source.value(mimic.first(name), value)
            for name, value in (("multiplier", 1.0), ("offset", 0.0), ("reference", 0.0))
        )
        name = scope.named(node)
        angles = [offset, reference]
        if node.attributes["type"] == "revolute" and orientation_in_degrees(angles):
            source.doubt(
                mimic.line,
                doubt(f"<mimic> of joint {brief(name)}: offset and reference", angles, degrees=False),
            )
        other = scope.full(source.text(mimic, "joint"))
        found.append(Coupling(f"{name}_mimic", mimic.line, name, other, (offset, multiplier), 0.0, reference))
    return found


def _gear(
    source: Source, scope: Scope, node: Node, frames: Frames, joints: Sequence[Joint], links: dict[str, Link]
) -> Coupling | None:
    """Return the coupling of a gearbox."""
    ends, name, at = (
        _ends(source, scope, node, frames),
        scope.named(node),
        frames.joint_pose(scope.named(node)),
    )
    reference = node.first("gearbox_reference_body")
    carrier = frames.link_of(scope.full("" if reference is None else reference.content.strip()))
    ratio = source.value(node.first("gearbox_ratio"), 1.0)
    if ends is None or at is None:
        return None
    if carrier is None or not ratio:
        source.wrong(
            node.line,
            f"the gearbox {brief(name)} needs a <gearbox_reference_body> that is a link, and a nonzero "
            "<gearbox_ratio>",
        )
        return None
    angles = []
    for end, key in zip(ends, ("axis", "axis2"), strict=True):
        axis = at.rotation @ _axis(source, scope, node, node.first(key), frames, at, np.eye(3)[2])
        hinge = next(
            (one for one in joints if one.kind is js.Revolute and {one.parent, one.child} == {carrier, end}),
            None,
        )
        frame = (
            None
            if hinge is None
            else (HERE if hinge.parent == GROUND else links[hinge.parent].pose).then(hinge.in_parent)
        )
        along = 0.0 if frame is None else float(frame.rotation[:, 2] @ axis)
        if hinge is None or not abs(abs(along) - 1.0) < 1e-6:
            source.wrong(
                node.line,
                f"the gearbox {brief(name)} needs a revolute joint between {brief(carrier)} and "
                f"{brief(end)} about its <{key}>",
            )
            return None
        angles.append((hinge.name, np.sign(along) * (1.0 if hinge.child == end else -1.0)))
    (first, turn_1), (second, turn_2) = angles
    return Coupling(name, node.line, second, first, (0.0, float(-ratio * turn_1 / turn_2)))


def _check_couplings(source: Source, couplings: Sequence[Coupling], joints: Sequence[Joint]) -> None:
    able = {joint.name: joint for joint in joints if joint.kind in (js.Revolute, js.Prismatic, js.Screw)}
    others = {one.joint: one.other for one in couplings}
    done: set[str] = set()
    for one in couplings:
        if one.joint not in able:
            source.wrong(
                one.line,
                f"the joint {brief(one.joint)} must have exactly one coordinate; only revolute, prismatic "
                "and screw joints can mimic others",
            )
        if one.other not in able:
            source.wrong(
                one.line,
                f"the joint {brief(one.joint)} mimics the unknown joint "
                f"{brief(one.other)}{hint(one.other, list(able))}",
            )
        way = {one.joint: None}  # In order.
        at = one.joint
        while at in others and others[at] not in way and others[at] not in done:
            at = others[at]
            way[at] = None
        if others.get(at) == one.joint:
            source.wrong(
                one.line,
                f"the joint {brief(one.joint)} mimics itself through {join_first([*way, one.joint], ' -> ')}",
            )
        else:
            done |= way.keys()


def _not_acting(scopes: Sequence[Scope]) -> dict[str, list[int]]:
    """Return the lines of inactive joint elements: dynamics of balls and gearboxes, and second axes."""
    found: dict[str, list[int]] = {}
    for node in (node for scope in scopes for node in scope.all("joint")):
        written = node.attributes.get("type", "")
        axes = [*node.all("axis"), *node.all("axis2")]
        for tag in {"ball": ("dynamics",), "gearbox": ("dynamics", "mimic")}.get(written, ()):
            found.setdefault(f"{tag} of a {written} joint", []).extend(
                one.line for axis in axes for one in axis.all(tag)
            )
        if _AXES.get(_KINDS[written], 1) == 1:
            found.setdefault(f"axis2 of a {written} joint", []).extend(
                axis.line for axis in node.all("axis2")
            )
    return found
