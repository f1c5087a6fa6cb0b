"""Loops whose links move in one plane by themselves, because all joints on their way round are hinges about parallel axes.

Let n be the direction of these axes. It is fixed in every link of the way. So the two links of the joint that closes the loop move against
each other in the plane across n only: two slides and a turn about n, three freedoms. Slides across n on the way change nothing of that.

*Balls and hinges about n.* Of the three rows of a ball only the two across n say anything; the one along n asks for a distance that no
motion changes. A hinge about n has the same two; its tilts are zero anyway. Both are therefore a point on a line along n, whose two rows
are independent: the same forces do the same work, and solvers that need full rank work.

*Welds and sliders* ask for the angle between the links as well. Let e be a direction across n that is fixed in both links, and take the
plane of the first link through the joint that is spanned by n and e. The angle is zero where two points of the second link, a meter apart
along e, are in that plane. So a weld, and a slider along n, are a point on a line and a point in a plane; a slider across n, along e, is
two points in a plane. These rows are independent too; that of the second point is the sine of the angle, times a meter.

A joint that closes a loop with a distance along n can never be closed: a mistake of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.mechanisms import GROUND
from jaxdae.robots.graph import HERE, Branch, Joint, Link, Pose, axes_with_z

PARALLEL = 1e-5
"""The sine of the angle below which axes are parallel: files write angles with five digits, and hinges that are not quite parallel lock."""

REDUCIBLE = (js.Ball, js.Revolute, js.Cylindrical, js.Weld, js.Prismatic)
"""The types of joints that have fewer rows in a loop of parallel hinges."""

EXACT = 1e-9
"""The sine above which it is said that axes were taken for parallel ones."""


class Reduced(NamedTuple):
    """A joint of a loop in the plane: what takes its place, how far it is open along the axes in m, and the largest sine between axes."""

    joints: tuple[Joint, ...]
    gap: float
    sine: float


def _way(links: tuple[str, str], above: Mapping[str, Branch]) -> list[Branch]:
    """Returns the branches between two links."""

    def up(link: str) -> list[Branch]:
        found = []
        while link in above:
            found.append(above[link])
            link = above[link].parent
        return found

    first, second = up(links[0]), up(links[1])
    while first and second and first[-1].child == second[-1].child:
        first.pop()
        second.pop()
    return first + second


def reduced(joint: Joint, branches: Sequence[Branch], free: Sequence[str], links: Mapping[str, Link]) -> Reduced | None:
    """Returns what takes the place of a joint that closes a loop of parallel hinges; None where it does not, or where nothing is to gain.

    Args:
        joint: that closes a loop.
        branches: of the tree.
        free: links that move freely.
        links: by name.
    """
    if joint.kind not in REDUCIBLE or joint.numbers:
        return None  # What acts along its coordinates would be lost.
    above = {branch.child: branch for branch in branches}
    way = _way((joint.parent, joint.child), above)
    roots = {end for branch in way for end in (branch.parent, branch.child)}
    if len({_root(end, above) for end in (joint.parent, joint.child)}) > 1 or not roots:
        return None  # The way leads over a free link.

    def world(link: str) -> Pose:
        return HERE if link == GROUND else links[link].pose

    moving = [branch.joint for branch in way if branch.joint.kind is not js.Weld]
    axes = [(one.kind, (world(one.parent).rotation @ one.in_parent.rotation)[:, 2]) for one in moving]
    normals = [axis for kind, axis in axes if kind is js.Revolute]
    if not normals:
        return None
    n = normals[0]
    sines = [0.0]
    for kind, axis in axes:
        if kind not in (js.Revolute, js.Planar, js.Prismatic):
            return None
        sines.append(float(abs(axis @ n)) if kind is js.Prismatic else float(np.linalg.norm(np.cross(axis, n))))
    a, b = world(joint.parent).then(joint.in_parent), world(joint.child).then(joint.in_child)
    slides_along = joint.kind is js.Prismatic and bool(np.linalg.norm(np.cross(a.rotation[:, 2], n)) < PARALLEL)
    if joint.kind in (js.Revolute, js.Cylindrical) or slides_along:
        sines.append(float(np.linalg.norm(np.cross(a.rotation[:, 2], n))))
    holds_angle = joint.kind in (js.Weld, js.Prismatic)
    if holds_angle:  # Both links are to see n in the same direction of the joint.
        sines.append(float(np.linalg.norm(a.rotation.T @ n - b.rotation.T @ n)))
    if joint.kind is js.Prismatic and not slides_along:
        sines.append(float(abs(a.rotation[:, 2] @ n)))
    if max(sines) >= PARALLEL:
        return None

    def made(name: str, kind: Any, axis: np.ndarray, away: np.ndarray) -> Joint:
        """Returns a joint with this axis in the world and a point of the child so far from that of the joint, in its axes."""
        in_parent = Pose(axes_with_z(axis), a.place).seen_from(world(joint.parent))
        in_child = Pose(axes_with_z(axis), b.place + b.rotation @ away).seen_from(world(joint.child))
        return Joint(name, joint.line, kind, joint.parent, joint.child, in_parent, in_child, closes=True)

    gap = 0.0 if joint.kind is js.Cylindrical or slides_along else float((b.place - a.place) @ n)
    here, along = np.zeros(3), np.eye(3)[2]
    if not holds_angle:
        return Reduced((made(joint.name, js.PointOnLine, n, here),), gap, max(sines))
    if joint.kind is js.Weld or slides_along:
        along = axes_with_z(a.rotation.T @ n)[:, 0]
    if holds_angle and not (a.rotation @ along) @ (b.rotation @ along) > 0.0:
        return None  # Turned over: the sine of the angle would not notice.
    across = np.cross(n, a.rotation @ along)
    first = (js.PointOnLine, n) if joint.kind is js.Weld or slides_along else (js.PointOnPlane, across)
    held = made(joint.name, *first, here), made(f"{joint.name} angle", js.PointOnPlane, across, along)
    return Reduced(held, gap, max(sines))


def _root(link: str, above: Mapping[str, Branch]) -> str:
    while link in above:
        link = above[link].parent
    return link
