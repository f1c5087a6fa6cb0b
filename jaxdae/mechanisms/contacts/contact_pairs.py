"""Contacts of a mechanism: gaps, contact axes and rows of all pairs of shapes at one configuration.

A contact has axes (n, t1[, t2]) at its place x. Its rows are the velocity of the material point of b at x
relative to the material point of a at x, in these axes. With the twists of both bodies and arms r = x - p,

    e . (v_b + omega_b x r_b) - e . (v_a + omega_a x r_a),      e = n, t1, t2,

so the blocks of b are (e, r_b x e), and the blocks of a are their negatives. The coordinates pull the blocks
back as they do for joints. The normal row is the rate of the gap (`jaxdae.geometry.pairs.contact_points`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief, join_first, meant
from jaxdae.geometry import planar_frames, spatial_frames
from jaxdae.geometry.pairs.contact_points import Points, joined, tangents
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.describe.numbers import named_positive
from jaxdae.mechanisms.joints.terrain_contact import pushing
from jaxdae.typing import Coordinates, Leaf, Scalar


@pytree
class ContactGeometry:
    """Contacts of a mechanism at one configuration.

    Attributes:
        gap: (m,) in m; negative: penetration.
        rows: (m (1 + tangents), nv), in the order normal, t1[, t2] per contact.
        drift: (m (1 + tangents),) in m/s, zero.
        friction: mu (m,).
        restitution: e (m,).
        place: (m, d) in the world, in m.
        normal: unit normals (m, d) in the world, from a to b.
    """

    gap: Leaf
    rows: Leaf
    drift: Leaf
    friction: Leaf
    restitution: Leaf
    place: Leaf
    normal: Leaf


@pytree
class ContactPairs:
    """The pairs of shapes of a mechanism, stacked by their types.

    Attributes:
        groups: the pairs of each type, such as `groups["plane_box"].friction` (k,). Contacts follow the order
            of the groups, then of the pairs, then of the contact points of a pair.
    """

    groups: dict[str, Pair]

    @property
    def names(self) -> tuple[str, ...]:
        """One name per contact: of the pair, with the contact point if it has several ("left.corner2")."""
        return tuple(f"{pair}.{label}" if label else pair for pair, label in self._labels())

    @property
    def pair_names(self) -> tuple[str, ...]:
        """The pair of each contact."""
        return tuple(pair for pair, _ in self._labels())

    @property
    def rebounding(self) -> tuple[str, ...]:
        """The names of the pairs with a restitution above zero in any world, if not traced."""
        groups = self.groups.values()
        return tuple(name for group in groups for name in named_positive(group.names, group.restitution))

    def numbers(self, *names: str) -> tuple[int, ...]:
        """Return the indices of contacts, from their names or the names of their pairs.

        Raises:
            ValueError: no name, or an unknown one.
        """
        if not names:
            raise ValueError("name at least one contact, or one pair of shapes")
        found: list[int] = []
        for name in names:
            own = [k for k, both in enumerate(zip(self.pair_names, self.names, strict=True)) if name in both]
            if not own:
                known = dict.fromkeys((*self.pair_names, *self.names))
                raise ValueError(f"no contact {brief(name)}; {meant(name, known) or join_first(known)}")
            found += own
        return tuple(found)

    def named_leaf(self, names: Sequence[str]) -> tuple[str, int] | None:
        """Return leaf path and index of a number of one pair: <pair>.friction, <pair>.shape_b.radius.

        Raises:
            KeyError: the number has no effect, such as the orientation of a ball.
        """
        for key, group in self.groups.items():
            if len(names) > 1 and names[0] in group.names:
                *way, last = names[1:]
                owner = functools.reduce(lambda part, name: getattr(part, name, None), way, group)
                if owner is not None and getattr(owner, last, owner) is None:
                    raise KeyError(
                        f"{'.'.join(names)} has no effect, and no leaf; leaf_paths lists all leaves"
                    )
                return ".".join(["groups", key, *names[1:]]), group.names.index(names[0])
        return None

    def points(self, motion: Kinematics) -> Points:
        """Return the contact points of all pairs, from the frames of all bodies."""
        bodies = motion.frame[0].shape[0]
        found = [_group_points(group, Pairs(group.a, group.b, bodies), motion) for group in self._groups()]
        return joined(*found)

    def touch(
        self, coordinates: BodyCoordinates, motion: Kinematics, q: Coordinates, t: Scalar
    ) -> ContactGeometry:
        """Return the gaps, axes and rows of all contacts.

        Args:
            coordinates: the coordinates of the mechanism.
            motion: the frames of all bodies at q.
            q: the coordinates (nq,).
            t: the time, without effect: shapes are fixed in their bodies.
        """
        points = self.points(motion)
        block, pair = self.blocks(points, motion)
        rows = coordinates.dense_rows(q, motion, block, pair)
        return ContactGeometry(
            gap=points.gap,
            rows=rows,
            drift=jnp.zeros(rows.shape[:1], rows.dtype),
            friction=self._numbers("friction"),
            restitution=self._numbers("restitution"),
            place=points.place,
            normal=points.normal,
        )

    def blocks(self, points: Points, motion: Kinematics) -> tuple[Blocks, Pairs]:
        """Return the derivatives of the rows by the twists of both bodies of each contact, and the bodies."""
        pair = Pairs(self._repeated("a"), self._repeated("b"), motion.frame[0].shape[0])
        return _blocks(points, *measures.ends(pair, motion)), pair

    def _labels(self) -> list[tuple[str, str]]:
        """Return the pair and the contact point of each contact."""
        groups = self.groups.values()
        return [(name, label) for group in groups for name in group.names for label in group.labels]

    def _groups(self) -> Sequence[Pair]:
        return list(self.groups.values())

    def _repeated(self, side: str) -> tuple[int, ...]:
        """Return the body of each contact on one side."""
        return tuple(body for group in self._groups() for body in getattr(group, side) for _ in group.labels)

    def _numbers(self, name: str) -> Array:
        """Return a number of the pairs, per contact (m,)."""
        return jnp.concatenate(
            [jnp.repeat(getattr(group, name), len(group.labels)) for group in self._groups()]
        )


def _group_points(group: Pair, pair: Pairs, motion: Kinematics) -> Points:
    """Return the contact points of a group, stacked (k contacts, ...)."""
    a, b = measures.ends(pair, motion)
    found = jax.vmap(lambda element, a, b: element.points(a, b))(group, a, b)
    return Points(*(part.reshape(-1, *part.shape[2:]) for part in found))


def _blocks(points: Points, a: Any, b: Any) -> Blocks:
    """Return the derivatives of the rows by the twists of both bodies, from their stacked frames (m,)."""
    axes = jax.vmap(lambda normal: (normal, *tangents(normal)))(points.normal)
    if points.normal.shape[1] == 3:
        place = spatial_frames.Vector(*points.place.T)
        return pushing(a, b, [(spatial_frames.Vector(*axis.T), place) for axis in axes])
    x, y = jnp.stack(axes).transpose(2, 0, 1)
    place = planar_frames.Vector(*points.place.T)

    def force(frame: planar_frames.Frame) -> Array:
        arm = place - frame.place
        return jnp.stack([x, y, arm.x * y - arm.y * x])

    return -force(a), force(b)
