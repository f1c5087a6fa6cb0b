"""Loops whose links move in one plane by themselves, because all joints on their way round are hinges about parallel axes.

Let n be the direction of these axes. It is fixed in every link of the way, so that the two links of the joint that closes the loop move
against each other in the plane across n only: two slides and a turn about n, three freedoms. Of the three rows of a ball then only two say
anything, those across n; the one along n asks for a distance that no motion changes. A hinge about n has the same two; its tilts are zero
anyway. Both are therefore a point on a line along n, whose two rows are independent: the same forces do the same work, and solvers that
need full rank work. Slides across n on the way keep all of that.

A joint that closes a loop with a distance along n can never be closed: a mistake of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import jaxdae.mechanisms.spatial as js
from jaxdae.mechanisms import GROUND
from jaxdae.robots.graph import HERE, Branch, Joint, Link, Pose, axes_with_z

PARALLEL = 1e-5
"""The sine of the angle below which axes are parallel: files write angles with five digits, and hinges that are not quite parallel lock."""

EXACT = 1e-9
"""The sine above which it is said that axes were taken for parallel ones."""


class Reduced(NamedTuple):
    """A joint of a loop in the plane: what takes its place, how far it is open along the axes in m, and the largest sine between axes."""

    joint: Joint
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
    if joint.kind not in (js.Ball, js.Revolute, js.Cylindrical) or joint.numbers:
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
    if joint.kind is not js.Ball:
        sines.append(float(np.linalg.norm(np.cross(a.rotation[:, 2], n))))
    if max(sines) >= PARALLEL:
        return None
    frames = (Pose(axes_with_z(n), end.place).seen_from(world(link)) for end, link in ((a, joint.parent), (b, joint.child)))
    in_parent, in_child = frames
    gap = 0.0 if joint.kind is js.Cylindrical else float((b.place - a.place) @ n)
    line = Joint(joint.name, joint.line, js.PointOnLine, joint.parent, joint.child, in_parent, in_child, closes=True)
    return Reduced(line, gap, max(sines))


def _root(link: str, above: Mapping[str, Branch]) -> str:
    while link in above:
        link = above[link].parent
    return link
