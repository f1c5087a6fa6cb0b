"""Robots as links and joints, whatever file they come from, and the description of a mechanism that follows.

All links are placed with all joints at zero. Links that are welded to each other are one body, with the name of that among them which is
nearest to the root; its axes are those of this link, its frame is in the common mass center. What is welded to the root of a robot that
stands is ground.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.geometry.rotation import matrix_quaternion
from jaxdae.mechanisms import SPACE, Description
from jaxdae.robots.source import Source

GROUND = "ground"


class Pose(NamedTuple):
    """A frame in another: rotation (3, 3) to its axes, place (3,) in m."""

    rotation: np.ndarray
    place: np.ndarray

    def then(self, inner: Pose) -> Pose:
        """Returns where a frame is that has a pose in this one."""
        return Pose(self.rotation @ inner.rotation, self.place + self.rotation @ inner.place)


HERE = Pose(np.eye(3), np.zeros(3))


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link.

    Attributes:
        name: unique.
        line: in its file.
        mass: in kg; zero for a frame without a body.
        center: of mass (3,) in the axes of the link, in m.
        inertia: about the mass center in the axes of the link (3, 3), in kg m^2.
    """

    name: str
    line: int
    mass: float = 0.0
    center: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((3, 3)))


@dataclasses.dataclass(frozen=True)
class Mimic:
    """A joint that follows another one: q = multiplier q_other + offset."""

    other: str
    multiplier: float
    offset: float


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint between two links.

    Attributes:
        name: unique.
        line: in its file.
        kind: "fixed", "revolute", "prismatic", "planar" or "floating".
        parent: the name of a link.
        child: the name of a link.
        pose: of the child in the parent at zero.
        axis: of unit length in the axes of the child.
        damping: in N m s/rad or N s/m.
        friction: in N m or N.
        limits: of the coordinate and of its rate and effort, by name.
        mimic: what it follows, None for nothing.
    """

    name: str
    line: int
    kind: str
    parent: str
    child: str
    pose: Pose
    axis: np.ndarray
    damping: float = 0.0
    friction: float = 0.0
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    mimic: Mimic | None = None


@dataclasses.dataclass(frozen=True)
class LinkFrame:
    """Where a link is: its pose in the frame of a body, or in the world for links of the ground.

    Attributes:
        body: the name of the body, or "ground".
        rotation: (3, 3), the axes of the link in those of the body.
        place: (3,) of the origin of the link in the frame of the body, whose origin is the mass center, in m.
    """

    body: str
    rotation: np.ndarray
    place: np.ndarray


class Ignored(NamedTuple):
    """What a file has that nothing here uses: the element, the line where it is first, and how often it is there."""

    what: str
    line: int
    count: int


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a file.

    Attributes:
        robot: its name in the file.
        base: "fixed" or "floating".
        frames: where each link is, by name.
        merged: links that are part of another body, by name, with the name of that body.
        grounded: links with mass that are welded to the ground; their mass is not in the mechanism.
        limits: of joints, by name.
        ignored: what was not used.
    """

    robot: str
    base: str
    frames: Mapping[str, LinkFrame]
    merged: Mapping[str, str]
    grounded: tuple[str, ...]
    limits: Mapping[str, Mapping[str, float]]
    ignored: tuple[Ignored, ...]

    def __str__(self) -> str:
        bodies = {frame.body for frame in self.frames.values()} - {GROUND}
        lines = [f"{self.robot}: {len(self.frames)} links, {len(bodies)} bodies, {self.base} base"]
        if self.grounded:
            lines.append(f"welded to the ground, without effect: {', '.join(self.grounded)}")
        lines += [f"not used: <{one.what}>, {one.count} times, first in line {one.line}" for one in self.ignored]
        return "\n".join(lines)


class Robot(NamedTuple):
    """What `load` returns.

    Attributes:
        description: of the mechanism, with the joints' names and the names of links for bodies.
        start: the coordinates of joints at the start by name, in rad and m: zeros, or what mimic joints have there.
        report: what became of the file.
    """

    description: Description
    start: dict[str, float]
    report: Report


def _placed(source: Source, links: Mapping[str, Link], joints: Sequence[Joint]) -> tuple[str, list[Joint], dict[str, Pose]]:
    """Returns the root, the joints from the root outward, and the poses of all links at zero."""
    parents: dict[str, Joint] = {}
    children: dict[str, list[Joint]] = {name: [] for name in links}
    for joint in joints:
        if joint.child in parents:
            first = parents[joint.child]
            source.wrong(
                joint.line,
                f"link {joint.child!r} has two parents, by the joints {first.name!r} and {joint.name!r}: URDF cannot hold loops;"
                f" remove one of them and close the loop in the description",
            )
            continue
        parents[joint.child] = joint
        children[joint.parent].append(joint)
    roots = [name for name in links if name not in parents]
    if len(roots) > 1:
        line = links[roots[1]].line
        source.wrong(line, f"the links {', '.join(map(repr, roots))} have no parent: a robot has one root; join the others to it")
    order: list[Joint] = []
    poses = dict.fromkeys(roots[:1], HERE)
    queue = deque(roots[:1])
    while queue:
        for joint in children[queue.popleft()]:
            if joint.child not in poses:
                poses[joint.child] = poses[joint.parent].then(joint.pose)
                order.append(joint)
                queue.append(joint.child)
    around = [name for name in links if name not in poses and name not in roots]
    if around and len(roots) <= 1:
        source.wrong(
            links[around[0]].line, f"the links {', '.join(map(repr, around))} go round in a circle: no chain of joints leads to a root"
        )
    source.end()
    return roots[0], order, poses


def _together(members: Sequence[Link], poses: Mapping[str, Pose]) -> tuple[float, np.ndarray, np.ndarray]:
    """Returns mass, mass center in the world and inertia about it in the axes of the world, of welded links."""
    mass = sum(link.mass for link in members)
    centers = [poses[link.name].then(Pose(np.eye(3), link.center)).place for link in members]
    center = sum((link.mass * at for link, at in zip(members, centers, strict=True)), np.zeros(3)) / (mass or 1.0)
    inertia = np.zeros((3, 3))
    for link, at in zip(members, centers, strict=True):
        turn, arm = poses[link.name].rotation, at - center
        inertia += turn @ link.inertia @ turn.T + link.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return mass, center, inertia


def robot(
    source: Source, name: str, links: Mapping[str, Link], joints: Sequence[Joint], base: str, ignored: tuple[Ignored, ...], gravity: Any
) -> Robot:
    """Returns a robot from its links and joints.

    Args:
        source: the file, for messages.
        name: of the robot.
        links: by name.
        joints: whose links are among these.
        base: "fixed" or "floating".
        ignored: what of the file was not used.
        gravity: (3,) in m/s^2.

    Raises:
        RobotFileError: everything that is wrong with the structure, and moving links without mass.
    """
    root, order, poses = _placed(source, links, joints)
    floating = base == "floating"
    owner = {root: root if floating else GROUND}
    for joint in order:
        owner[joint.child] = owner[joint.parent] if joint.kind == "fixed" else joint.child
        if joint.kind == "floating" and owner[joint.parent] != GROUND:
            source.wrong(joint.line, f"the floating joint {joint.name!r} must begin at the root of a robot with a fixed base")
    members: dict[str, list[Link]] = {}
    for link, body in owner.items():
        members.setdefault(body, []).append(links[link])
    bodies, frames = [], {}
    for body, inside in members.items():
        here = HERE
        if body != GROUND:
            mass, center, inertia = _together(inside, poses)
            turn = poses[body].rotation
            here = Pose(turn, center)
            if not mass > 0.0:
                source.wrong(
                    links[body].line, f"link {body!r} moves and has no mass, and nothing with mass is welded to it: give it an <inertial>"
                )
                continue
            moments = np.linalg.eigvalsh(inertia)
            if not moments[0] > 0.0:
                text = f"the inertia of link {body!r}, with what is welded to it, has the principal moments {moments}; all must be positive"
                source.wrong(links[body].line, text)
                continue
            quaternion = np.asarray(matrix_quaternion(jnp.asarray(turn)), float)
            bodies.append(js.Body(body, mass, turn.T @ inertia @ turn, place=center, quaternion=quaternion / np.linalg.norm(quaternion)))
        for link in inside:
            rotation, place = here.rotation.T @ poses[link.name].rotation, here.rotation.T @ (poses[link.name].place - here.place)
            frames[link.name] = LinkFrame(body, rotation, place)
    source.end()
    made: list[Any] = []
    start: dict[str, float] = {}
    for joint in order:
        ends = {"a": owner[joint.parent], "b": owner[joint.child]}
        at, axis = poses[joint.child].place, poses[joint.child].rotation @ joint.axis
        acting = {"damping": joint.damping, "friction": joint.friction}
        if joint.kind == "revolute":
            made.append(js.Revolute(joint.name, **ends, axis=axis, at=at, **acting))
        elif joint.kind == "prismatic":
            made.append(js.Prismatic(joint.name, **ends, axis=axis, at=at, **acting))
        elif joint.kind == "planar":
            made.append(js.Planar(joint.name, **ends, axis=axis, at=at, damping=joint.damping))
        if joint.kind in ("revolute", "prismatic"):
            start[joint.name] = 0.0
    for joint in order:
        if joint.mimic is not None:
            polynomial = (joint.mimic.offset, joint.mimic.multiplier)
            made.append(js.Relation(f"{joint.name}_mimic", joint.name, joint.mimic.other, polynomial, 0.0, 0.0))
    mimics = {joint.name: joint.mimic for joint in order if joint.mimic is not None}
    for follower in mimics:
        start[follower] = _followed(follower, mimics)
    report = Report(
        robot=name,
        base=base,
        frames=frames,
        merged={link: body for link, body in owner.items() if body not in (GROUND, link)},
        grounded=tuple(link.name for link in members.get(GROUND, []) if link.mass > 0.0),
        limits={joint.name: joint.limits for joint in order if joint.limits},
        ignored=ignored,
    )
    return Robot(Description(space=SPACE, bodies=bodies, joints=made, gravity=gravity), start, report)


def _followed(joint: str, mimics: Mapping[str, Mimic]) -> float:
    """Returns the coordinate of a joint where those that nothing determines are zero."""
    if joint not in mimics:
        return 0.0
    return mimics[joint].multiplier * _followed(mimics[joint].other, mimics) + mimics[joint].offset
