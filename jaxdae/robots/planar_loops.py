"""Loops whose links move in one plane because all joints along the path are hinges about parallel axes.

Let n be the direction of these axes. It is fixed in every link of the path. The two links of the loop joint
therefore move relative to each other only in the plane normal to n, with three degrees of freedom: two
translations and a rotation about n. Slides normal to n on the path preserve this property.

*Balls and hinges about n.* Of the three rows of a ball, only the two normal to n constrain the motion. The
row along n prescribes a distance that no motion changes. A hinge about n has the same two rows; its tilts are
always zero. Both joints are therefore equivalent to a point on a line along n, whose two rows are
independent. The constraint forces do the same work, and solvers that need full rank apply.

*Welds and sliders* also constrain the angle between the links. Let e be a direction normal to n that is fixed
in both links. Consider the plane of the first link through the joint that n and e span. The angle is zero if
two points of the second link, one meter apart along e, are in that plane. A weld, and a slider along n, are
therefore a point on a line and a point in a plane. A slider normal to n, along e, is two points in a plane.
These rows are also independent. The row of the second point is the sine of the angle times one meter.

A loop joint with a gap along n can never be closed: this is a mistake in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.mechanisms import GROUND
from jaxdae.robots.robot_graph import HERE, Branch, Joint, Link, Pose, axes_with_z

PARALLEL = 1e-5
"""The sine of the angle below which axes count as parallel: files round to five digits; skew hinges lock."""

REDUCIBLE = (js.Ball, js.Revolute, js.Cylindrical, js.Weld, js.Prismatic)
"""The joint types that have fewer rows in a loop of parallel hinges."""

EXACT = 1e-9
"""The sine above which a note reports that axes were treated as parallel."""


class Reduced(NamedTuple):
    """A planar loop joint: its replacement joints, its gap along the axes in m, and the largest axis sine."""

    joints: tuple[Joint, ...]
    gap: float
    sine: float


def _way(links: tuple[str, str], above: Mapping[str, Branch]) -> list[Branch]:
    """Return the branches on the path between two links."""

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


def reduced(
    joint: Joint, branches: Sequence[Branch], free: Sequence[str], links: Mapping[str, Link]
) -> Reduced | None:
    """Return the replacement of a loop joint in a loop of parallel hinges; None if not applicable or useful.

    Args:
        joint: the loop joint.
        branches: branches of the tree.
        free: links that move freely.
        links: links by name.
    """
    if joint.kind not in REDUCIBLE or joint.numbers:
        return None  # A reduction would lose the forces along its coordinates.
    above = {branch.child: branch for branch in branches}
    way = _way((joint.parent, joint.child), above)
    roots = {end for branch in way for end in (branch.parent, branch.child)}
    if len({_root(end, above) for end in (joint.parent, joint.child)}) > 1 or not roots:
        return None  # The path leads over a free link.

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
        sines.append(
            float(abs(axis @ n)) if kind is js.Prismatic else float(np.linalg.norm(np.cross(axis, n)))
        )
    a, b = world(joint.parent).then(joint.in_parent), world(joint.child).then(joint.in_child)
    slides_along = joint.kind is js.Prismatic and bool(
        np.linalg.norm(np.cross(a.rotation[:, 2], n)) < PARALLEL
    )
    if joint.kind in (js.Revolute, js.Cylindrical) or slides_along:
        sines.append(float(np.linalg.norm(np.cross(a.rotation[:, 2], n))))
    holds_angle = joint.kind in (js.Weld, js.Prismatic)
    if holds_angle:  # The components of n in the joint axes must be the same in both links.
        sines.append(float(np.linalg.norm(a.rotation.T @ n - b.rotation.T @ n)))
    if joint.kind is js.Prismatic and not slides_along:
        sines.append(float(abs(a.rotation[:, 2] @ n)))
    if max(sines) >= PARALLEL:
        return None

    def made(name: str, kind: Any, axis: np.ndarray, away: np.ndarray) -> Joint:
        """Return a joint with a world axis; its child point is offset by `away` in the axes of the joint."""
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
        return None  # Rotated by half a turn, which the sine of the angle does not detect.
    across = np.cross(n, a.rotation @ along)
    first = (js.PointOnLine, n) if joint.kind is js.Weld or slides_along else (js.PointOnPlane, across)
    held = made(joint.name, *first, here), made(f"{joint.name} angle", js.PointOnPlane, across, along)
    return Reduced(held, gap, max(sines))


def _root(link: str, above: Mapping[str, Branch]) -> str:
    while link in above:
        link = above[link].parent
    return link
