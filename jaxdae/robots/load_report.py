"""The report of a loaded robot file: link frames, loop joints and unused elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from jaxdae.base.suggestions import join_first, shorten
from jaxdae.mechanisms import GROUND, Description
from jaxdae.robots.postures import Posture
from jaxdae.robots.robot_graph import Ignored, Keyframe

_LONGEST = 2000
_SHOWN = 50


@dataclasses.dataclass(frozen=True)
class LinkFrame:
    """The pose of a link in the frame of a body, or in the world for links of the ground.

    Attributes:
        body: name of the body, or "ground".
        rotation: (3, 3), axes of the link in the axes of the body.
        place: (3,) origin of the link in the frame of the body, whose origin is the mass center, in m.
    """

    body: str
    rotation: np.ndarray
    place: np.ndarray


class Carried(NamedTuple):
    """A link and its joint in the tree of the file.

    Attributes:
        parent: parent link, or "ground".
        child: the link.
        joint: name of the joint. For a free link it is the link name, unless another joint has that name.
        kind: "fixed", "free", "ball" or, for joints with coordinates, "axes".
        reversed: whether the joint leads from the child to the parent.
        wraps: whether it turns without limits.
        turned: rotation of the child in the parent (3, 3) in the pose of the file.
        number: index of the link in the file, or of its joint in a URDF.
    """

    parent: str
    child: str
    joint: str
    kind: str
    reversed: bool
    wraps: bool
    turned: np.ndarray
    number: int


class Loop(NamedTuple):
    """A joint that closes a loop.

    Attributes:
        name: name of the joint.
        kind: its type, such as "ball".
        a: the first link.
        b: the second link.
        rows: its number of rows.
        rows_in_file: number of rows of the joint in the file, which is larger if the joint connects links of
            a planar loop.
    """

    name: str
    kind: str
    a: str
    b: str
    rows: int
    rows_in_file: int


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of a loaded file.

    Attributes:
        robot: name of the robot in the file.
        base: "fixed" or "floating".
        frames: frame of each link, named frame or site in its body, by name.
        merged: links that are part of another body, by name, with the name of that body.
        grounded: links with mass that are welded to the ground; the mechanism does not contain their mass.
        limits: joint limits, by name; `load(..., limits=True)` adds them to the description.
        ignored: elements that neither the mechanism nor the viewer uses.
        loops: the loop joints.
        notes: other notes, such as doubtful inertias and loops that were reduced or closed.
        tree: links and joints of the tree, parents first.
        by_names: whether Pinocchio orders joints by name, as for URDF.
        mass: mass of all bodies, in kg.
        keyframes: named states of the file; see `joint_state`.
        controls: names of the inputs.
        relations: relations between coordinates as equations, by row name.
        enforced: the joints of the description with limits.
    """

    robot: str
    base: str
    frames: Mapping[str, LinkFrame]
    merged: Mapping[str, str]
    grounded: tuple[str, ...]
    limits: Mapping[str, Mapping[str, float]]
    ignored: tuple[Ignored, ...]
    loops: tuple[Loop, ...] = ()
    notes: tuple[str, ...] = ()
    tree: tuple[Carried, ...] = ()
    by_names: bool = True
    mass: float = 0.0
    keyframes: Mapping[str, Keyframe] = dataclasses.field(default_factory=dict)
    controls: tuple[str, ...] = ()
    relations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    enforced: tuple[str, ...] = ()

    def __str__(self) -> str:
        links = {one.child for one in self.tree}
        bodies = {frame.body for frame in self.frames.values()} - {GROUND}
        lines = [
            f"{self.robot}: {len(links)} links, {len(bodies)} bodies, {self.base} base, {self.mass:.6g} kg"
        ]
        if self.grounded:
            lines.append(f"welded to the ground, ignored: {join_first(self.grounded)}")
        lines += _first(
            f"loop {one.name}: {one.kind} between {one.a} and {one.b}, {one.rows} rows"
            + (f" instead of {one.rows_in_file}" if one.rows < one.rows_in_file else "")
            for one in self.loops
        )
        lines += _first(f"relation {name}: {text}" for name, text in self.relations.items())
        if self.limits:
            enforced = f"{len(self.enforced)} enforced" if self.enforced else "stored, not enforced"
            lines.append(f"limits of joints: {len(self.limits)}; {enforced}")
        if self.controls:
            lines.append(f"inputs: {join_first(self.controls)}")
        if self.keyframes:
            lines.append(f"states: {join_first(self.keyframes)}")
        lines += _first(self.notes)
        lines += _first(
            f"not used: <{shorten(one.what)}>, {one.count} times, first in line {one.line}"
            for one in self.ignored
        )
        return "\n".join(shorten(line, _LONGEST) for line in lines)


def _first(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and a line with the number of the remaining lines."""
    found = list(lines)
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], f"... ({more} more lines like this)"] if more > 0 else found


class Robot(NamedTuple):
    """The result of `load`.

    Attributes:
        description: description of the mechanism, with the joint names of the file and link names for bodies.
        start: start coordinates by joint, in the form of `joint_state`, in rad and m. They come from the
            state `home` if the file has one, else from the pose of the file, with consistent mimic joints. A
            dictionary that remembers these numbers through `start | {...}`.
        report: the report of the file.
    """

    description: Description
    start: Posture
    report: Report
