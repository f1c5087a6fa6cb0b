"""What became of a robot file: where its links are, what closes loops, what was left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from jaxdae.mechanisms import GROUND, Description
from jaxdae.robots.graph import Ignored, Keyframe
from jaxdae.robots.postures import Posture
from jaxdae.spelling import join_first, shorten

_LONGEST = 2000
_SHOWN = 50


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


class Carried(NamedTuple):
    """How a link hangs on the tree of the file.

    Attributes:
        parent: the link that carries it, or "ground".
        child: the link.
        joint: the name of the joint; where the link is free that of the link itself, unless another joint has it.
        kind: "fixed", "free", "ball" or, for joints with coordinates, "axes".
        reversed: whether the joint leads from the child to the parent.
        wraps: whether it turns without limits.
        turned: the rotation of the child in the parent (3, 3) in the pose of the file.
        number: of the link in the file, or of its joint in a URDF.
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
        name: of the joint.
        kind: its type, such as "ball".
        a: the first link.
        b: the second link.
        rows: how many rows it has.
        rows_in_file: how many the joint of the file has: more where it joins links that move in one plane by themselves.
    """

    name: str
    kind: str
    a: str
    b: str
    rows: int
    rows_in_file: int


@dataclasses.dataclass(frozen=True)
class Report:
    """What became of a file.

    Attributes:
        robot: its name in the file.
        base: "fixed" or "floating".
        frames: where each link and each named frame or site is, by name.
        merged: links that are part of another body, by name, with the name of that body.
        grounded: links with mass that are welded to the ground; their mass is not in the mechanism.
        limits: of joints, by name; stored, not enforced.
        ignored: elements that neither the mechanism nor the viewer uses.
        loops: the joints that close loops.
        notes: what else is worth to be known: inertias that no body has, loops that were reduced or closed.
        tree: how links hang on each other, carriers first.
        by_names: whether Pinocchio orders joints by their names, as with URDF.
        mass: of all bodies, in kg.
        keyframes: named states of the file; see `joint_state`.
        controls: the names of the inputs.
        relations: the coordinates that follow others, as equations, by the names of the rows.
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

    def __str__(self) -> str:
        links = {one.child for one in self.tree}
        bodies = {frame.body for frame in self.frames.values()} - {GROUND}
        lines = [f"{self.robot}: {len(links)} links, {len(bodies)} bodies, {self.base} base, {self.mass:.6g} kg"]
        if self.grounded:
            lines.append(f"welded to the ground, without effect: {join_first(self.grounded)}")
        lines += _first(
            f"loop {one.name}: {one.kind} between {one.a} and {one.b}, {one.rows} rows"
            + (f" in place of {one.rows_in_file}" if one.rows < one.rows_in_file else "")
            for one in self.loops
        )
        lines += _first(f"relation {name}: {text}" for name, text in self.relations.items())
        if self.limits:
            lines.append(f"limits of joints: {len(self.limits)}; stored, not enforced")
        if self.controls:
            lines.append(f"inputs: {join_first(self.controls)}")
        if self.keyframes:
            lines.append(f"states: {join_first(self.keyframes)}")
        lines += _first(self.notes)
        lines += _first(f"not used: <{shorten(one.what)}>, {one.count} times, first in line {one.line}" for one in self.ignored)
        return "\n".join(shorten(line, _LONGEST) for line in lines)


def _first(lines: Iterable[str]) -> list[str]:
    """Return the first lines, and one with the number of the others."""
    found = list(lines)
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], f"... ({more} more lines like this)"] if more > 0 else found


class Robot(NamedTuple):
    """What `load` returns.

    Attributes:
        description: of the mechanism, with the joints' names and the names of links for bodies.
        start: the coordinates of joints at the start by name, as `joint_state` takes them, in rad and m: those of the state `home` where
            the file has one, else those of the pose of the file, or what mimic joints have there. A
            dictionary that remembers these numbers through `start | {...}`.
        report: what became of the file.
    """

    description: Description
    start: Posture
    report: Report
