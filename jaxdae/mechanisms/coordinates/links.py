"""The chains of a tree: each joint as one link for each of its freedoms, made when a mechanism is built.

A link hangs on its parent by a fixed frame and a motion of its own: it turns and slides along one axis (`AXIS`), takes any orientation
(`BALL`), or any place (`PLACE`). A hinge is one link, a cylindrical joint two, a free body a place and a ball.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from jaxdae.trees.tree import Tree

AXIS, BALL, PLACE = "axis", "ball", "place"
COORDINATES = {AXIS: 1, BALL: 4, PLACE: 3}
VELOCITIES = {AXIS: 1, BALL: 3, PLACE: 3}


class Step(NamedTuple):
    """One link of a joint.

    Attributes:
        kind: `AXIS`, `BALL` or `PLACE`.
        turning: by how much an axis turns a unit of its coordinate: () in the plane, (3,) in the axes of the joint in space.
        sliding: by how much it slides: (2,) or (3,) in the axes of the joint.
        names: of its coordinates, with their units.
        velocity_names: of its velocities, with their units.
    """

    kind: str
    turning: Any
    sliding: Any
    names: tuple[tuple[str, str], ...]
    velocity_names: tuple[tuple[str, str], ...]


def axis(turning: Any, sliding: Any, name: str, unit: str) -> Step:
    """Returns the link of one freedom."""
    return Step(AXIS, turning, sliding, ((name, unit),), ((f"{name}_rate", f"{unit}/s"),))


_BALL_NAMES = tuple((f"q{c}", "") for c in "wxyz"), tuple((f"omega_{c}", "rad/s") for c in "xyz")
_PLACE_NAMES = tuple((c, "m") for c in "xyz"), tuple((f"v{c}", "m/s") for c in "xyz")


def ball() -> Step:
    """Returns the link of any orientation, a quaternion wxyz of the child in the parent; its velocity is in the axes of the child."""
    return Step(BALL, np.zeros(3), np.zeros(3), *_BALL_NAMES)


def place() -> Step:
    """Returns the link of any place."""
    return Step(PLACE, np.zeros(3), np.zeros(3), *_PLACE_NAMES)


@dataclasses.dataclass(frozen=True)
class Structure:
    """The shape of a tree, as tuples of numbers; the ground has the number of links.

    Attributes:
        parents: of each link, which come before it.
        kinds: of each link.
        body_links: the link that carries each body.
        names: of q, with units.
        velocity_names: of v, with units.
        joints: of each link, the number of the joint that it is of.
        backward: of each joint, whether it leads from the child to the parent, so that its links are in opposite order.
        ends: of each joint, the numbers of the parent and of the child.
        joint_names: the joints of the tree in their order, bodies that move freely under their own names.
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
        """The number of links."""
        return len(self.parents)

    def starts(self, sizes: dict[str, int]) -> np.ndarray:
        """Returns where the numbers of each link begin."""
        return np.concatenate([[0], np.cumsum([sizes[kind] for kind in self.kinds])]).astype(int)[:-1]

    def of_kind(self, kind: str) -> np.ndarray:
        """Returns the numbers of the links of a kind."""
        return np.asarray([k for k, each in enumerate(self.kinds) if each == kind], int)

    def places(self, kind: str, sizes: dict[str, int]) -> np.ndarray:
        """Returns where the numbers of the links of a kind are (links, size)."""
        return self.starts(sizes)[self.of_kind(kind)][:, None] + np.arange(sizes[kind])

    @property
    def vectors_and_balls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Where numbers that add up are in q and in v (k,), and where orientations are in q (balls, 4) and in v (balls, 3)."""
        in_q, in_v = ({kind: self.places(kind, sizes) for kind in (AXIS, PLACE, BALL)} for sizes in (COORDINATES, VELOCITIES))
        vectors_q, vectors_v = (np.concatenate([places[AXIS].reshape(-1), places[PLACE].reshape(-1)]) for places in (in_q, in_v))
        return vectors_q, vectors_v, in_q[BALL], in_v[BALL]

    def of_joint(self, name: str, kind: str) -> list[int]:
        """Returns the links of a kind that a joint has, in the order of the joint."""
        number = self.joint_names.index(name)
        links = [k for k, joint in enumerate(self.joints) if joint == number and self.kinds[k] == kind]
        return links[::-1] if self.backward[number] else links

    def axes_of_joint(self, name: str) -> list[int]:
        """Returns where the velocities of the axes of a joint are, in the order of its coordinates."""
        starts = self.starts(VELOCITIES)
        return [int(starts[link]) for link in self.of_joint(name, AXIS)]

    @property
    def same_joint(self) -> np.ndarray:
        """Whether two velocities belong to one joint (nv, nv)."""
        of = np.asarray(self.joints, int)[self.column_links]
        return of[:, None] == of[None, :]

    @property
    def carried_bodies(self) -> np.ndarray:
        """Whether a body is carried by a joint (n, joints)."""
        carried = np.zeros((len(self.body_links) + 1, len(self.ends)), bool)
        for joint, (parent, child) in enumerate(self.ends):
            carried[child] = carried[parent]
            carried[child, joint] = True
        return carried[:-1]

    @property
    def column_links(self) -> np.ndarray:
        """The link of each velocity (nv,)."""
        return np.repeat(np.arange(self.count), [VELOCITIES[kind] for kind in self.kinds])

    @property
    def last_columns(self) -> np.ndarray:
        """The last velocity of each link, and for the ground the number of velocities (links + 1,)."""
        return np.append(np.cumsum([VELOCITIES[kind] for kind in self.kinds]).astype(int) - 1, len(self.velocity_names))

    @functools.cached_property
    def tree(self) -> Tree:
        """The velocities as nodes: each below the one before it in its link, the first of a link below the last of the parent."""
        links, last = self.column_links, self.last_columns
        first = np.append(True, links[1:] != links[:-1]) if links.size else np.zeros(0, bool)
        above = last[np.asarray(self.parents, int)[links]] if links.size else links
        return Tree(tuple(int(k) for k in np.where(first, above, np.arange(links.size) - 1)))

    @functools.cached_property
    def link_tree(self) -> Tree:
        """The links as nodes."""
        return Tree(self.parents)

    @property
    def carried(self) -> np.ndarray:
        """Whether a link is carried by the link of a velocity (links + 1, nv), itself included; the ground by none."""
        nodes = self.tree.is_ancestor
        return np.concatenate([nodes, np.zeros((1, nodes.shape[1]), bool)])[self.last_columns]

    @property
    def carried_links(self) -> np.ndarray:
        """Whether a link is carried by another, itself included (links, links)."""
        return self.link_tree.is_ancestor

    @property
    def roots(self) -> np.ndarray:
        """The first link of the tree to which each link belongs (links,)."""
        found: list[int] = []
        for k, parent in enumerate(self.parents):
            found.append(k if parent == self.count else found[parent])
        return np.asarray(found, int)
