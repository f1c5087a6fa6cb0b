"""The links of a tree: each joint becomes a chain of links, one per elementary motion.

The chains are built together with the mechanism. A link has a fixed frame in its parent, and one elementary
motion: rotation and translation along one axis (`AXIS`), any orientation (`BALL`), or any position (`PLACE`).
A hinge is one link, a cylindrical joint two links, and a free body a position and a ball.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from jaxdae.trees.tree_layout import Tree

AXIS, BALL, PLACE = "axis", "ball", "place"
COORDINATES = {AXIS: 1, BALL: 4, PLACE: 3}
VELOCITIES = {AXIS: 1, BALL: 3, PLACE: 3}


class Step(NamedTuple):
    """One link of a joint.

    Attributes:
        kind: `AXIS`, `BALL` or `PLACE`.
        turning: the rotation of an axis per unit of its coordinate: () in the plane, (3,) in the joint axes
            in space.
        sliding: the translation of an axis per unit of its coordinate: (2,) or (3,) in the joint axes.
        names: the names of its coordinates, with their units.
        velocity_names: the names of its velocities, with their units.
    """

    kind: str
    turning: Any
    sliding: Any
    names: tuple[tuple[str, str], ...]
    velocity_names: tuple[tuple[str, str], ...]


def axis(turning: Any, sliding: Any, name: str, unit: str) -> Step:
    """Return a link with one degree of freedom."""
    return Step(AXIS, turning, sliding, ((name, unit),), ((f"{name}_rate", f"{unit}/s"),))


_BALL_NAMES = tuple((f"q{c}", "") for c in "wxyz"), tuple((f"omega_{c}", "rad/s") for c in "xyz")
_PLACE_NAMES = tuple((c, "m") for c in "xyz"), tuple((f"v{c}", "m/s") for c in "xyz")


def ball() -> Step:
    """Return a link with any orientation.

    Its coordinates are a quaternion wxyz (child to parent). Its velocity is in the axes of the child.
    """
    return Step(BALL, np.zeros(3), np.zeros(3), *_BALL_NAMES)


def place() -> Step:
    """Return a link with any position."""
    return Step(PLACE, np.zeros(3), np.zeros(3), *_PLACE_NAMES)


@dataclasses.dataclass(frozen=True)
class Structure:
    """The structure of a tree, as tuples of indices; the number of links stands for the ground.

    Attributes:
        parents: the parent of each link; parents precede children.
        kinds: the kind of each link.
        body_links: the link that carries each body.
        names: the names of q, with units.
        velocity_names: the names of v, with units.
        joints: the index of the joint of each link.
        backward: for each joint, whether it points from the child to the parent, so that its links are in
            opposite order.
        ends: the indices of the parent body and of the child body of each joint.
        joint_names: the names of the tree joints in their order; a free body uses its own name.
    """

    parents: tuple[int, ...]
    kinds: tuple[str, ...]
    body_links: tuple[int, ...]
    names: tuple[tuple[str, str], ...]
    velocity_names: tuple[tuple[str, str], ...]
    joints: tuple[int, ...]
    backward: tuple[bool, ...]
    ends: tuple[tuple[int, int], ...]
    joint_names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Return the number of links."""
        return len(self.parents)

    def starts(self, sizes: dict[str, int]) -> np.ndarray:
        """Return the index of the first coordinate or velocity of each link."""
        return np.concatenate([[0], np.cumsum([sizes[kind] for kind in self.kinds])]).astype(int)[:-1]

    def of_kind(self, kind: str) -> np.ndarray:
        """Return the indices of the links of a kind."""
        return np.asarray([k for k, each in enumerate(self.kinds) if each == kind], int)

    def places(self, kind: str, sizes: dict[str, int]) -> np.ndarray:
        """Return the indices of the coordinates or velocities of the links of a kind (links, size)."""
        return self.starts(sizes)[self.of_kind(kind)][:, None] + np.arange(sizes[kind])

    @property
    def vectors_and_balls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the indices of additive entries and of orientations, in q and in v.

        The shapes are (k,) in q, (k,) in v, (balls, 4) in q, and (balls, 3) in v.
        """
        in_q, in_v = (
            {kind: self.places(kind, sizes) for kind in (AXIS, PLACE, BALL)}
            for sizes in (COORDINATES, VELOCITIES)
        )
        vectors_q, vectors_v = (
            np.concatenate([places[AXIS].reshape(-1), places[PLACE].reshape(-1)]) for places in (in_q, in_v)
        )
        return vectors_q, vectors_v, in_q[BALL], in_v[BALL]

    def of_joint(self, name: str, kind: str) -> list[int]:
        """Return the links of a joint that have this kind, in the order of the joint."""
        number = self.joint_names.index(name)
        links = [k for k, joint in enumerate(self.joints) if joint == number and self.kinds[k] == kind]
        return links[::-1] if self.backward[number] else links

    def axes_of_joint(self, name: str) -> list[int]:
        """Return the indices of the axis velocities of a joint, in the order of its coordinates."""
        starts = self.starts(VELOCITIES)
        return [int(starts[link]) for link in self.of_joint(name, AXIS)]

    @property
    def same_joint(self) -> np.ndarray:
        """Return whether two velocities belong to the same joint (nv, nv)."""
        of = np.asarray(self.joints, int)[self.column_links]
        return of[:, None] == of[None, :]

    @property
    def carried_bodies(self) -> np.ndarray:
        """Return whether a joint supports a body (n, joints)."""
        carried = np.zeros((len(self.body_links) + 1, len(self.ends)), bool)
        for joint, (parent, child) in enumerate(self.ends):
            carried[child] = carried[parent]
            carried[child, joint] = True
        return carried[:-1]

    @property
    def column_links(self) -> np.ndarray:
        """Return the link of each velocity (nv,)."""
        return np.repeat(np.arange(self.count), [VELOCITIES[kind] for kind in self.kinds])

    @property
    def last_columns(self) -> np.ndarray:
        """Return the index of the last velocity of each link, and nv for the ground (links + 1,)."""
        return np.append(
            np.cumsum([VELOCITIES[kind] for kind in self.kinds]).astype(int) - 1, len(self.velocity_names)
        )

    @functools.cached_property
    def tree(self) -> Tree:
        """Return the tree of the velocities.

        The parent of a velocity is the preceding velocity of its link. The parent of the first velocity of a
        link is the last velocity of the parent link.
        """
        links, last = self.column_links, self.last_columns
        first = np.append(True, links[1:] != links[:-1]) if links.size else np.zeros(0, bool)
        above = last[np.asarray(self.parents, int)[links]] if links.size else links
        return Tree(tuple(int(k) for k in np.where(first, above, np.arange(links.size) - 1)))

    @functools.cached_property
    def link_tree(self) -> Tree:
        """Return the tree of the links."""
        return Tree(self.parents)

    @property
    def carried(self) -> np.ndarray:
        """Return whether a velocity moves a link (links + 1, nv); the last row, the ground, is False."""
        nodes = self.tree.is_ancestor
        return np.concatenate([nodes, np.zeros((1, nodes.shape[1]), bool)])[self.last_columns]

    @property
    def roots(self) -> np.ndarray:
        """Return the root link of the tree that contains each link (links,)."""
        found: list[int] = []
        for k, parent in enumerate(self.parents):
            found.append(k if parent == self.count else found[parent])
        return np.asarray(found, int)
