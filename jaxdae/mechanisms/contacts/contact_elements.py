"""Pairs of shapes that can touch, as elements of a description and as stacked groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import brief
from jaxdae.geometry.pairs.contact_points import Points
from jaxdae.geometry.pairs.pair_types import pair_type, shape_name, supported
from jaxdae.geometry.planar_frames import Frame as PlanarFrame
from jaxdae.geometry.shapes import Pose, shape_mistakes
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.elements import BodyName, Element, Number
from jaxdae.mechanisms.describe.kinds import GROUND, Kind, Known, Start
from jaxdae.mechanisms.describe.numbers import real


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapeKind(Kind):
    """A collision shape, in the frame of a body."""

    plain: ClassVar[str] = "shape"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield the errors of the shape."""
        yield from shape_mistakes(value, self.dimension)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the shape with arrays."""
        return jax.tree.map(real, value) if offers(value, "height") else value.arrays()


def _shape(text: str) -> Any:
    return dataclasses.field(metadata={"kind": ShapeKind(text=text)})


@pytree
class Pair(Element):
    """Two shapes of two bodies that can touch, with exact Coulomb friction.

    The normal points from a to b. The contact force acts on b, and its reaction on a. A simulation includes
    contacts only with `jaxdae.contact.Touching` or `jaxdae.contact.ContactStepping`.
    """

    noun: ClassVar[str] = "contact"

    a: BodyName = fields.body("the first body, often ground")
    b: BodyName = fields.body("the second body")
    shape_a: Any = _shape("the shape of a, in the frame of a")
    shape_b: Any = _shape("the shape of b, in the frame of b")
    friction: Number = fields.number("the friction coefficient mu", value=0.0, at_least=0.0)
    restitution: Number = fields.number(
        "Newton's coefficient of restitution e", value=0.0, at_least=0.0, at_most=1.0
    )

    @property
    def key(self) -> str:
        """The name of the group that the pair belongs to, such as "plane_box"."""
        return f"{shape_name(self.shape_a)}_{shape_name(self.shape_b)}"

    def mistakes(self, places: Any) -> Iterable[str]:
        """Yield an error if the two shapes have no contact function."""
        for dimension in (2, 3):
            known = not (shape_mistakes(self.shape_a, dimension) or shape_mistakes(self.shape_b, dimension))
            if known and pair_type(self.shape_a, self.shape_b) is None:
                yield (
                    f"contacts between {shape_name(self.shape_a)} and {shape_name(self.shape_b)} are not "
                    f"supported; supported pairs, in either order: {supported(dimension)}"
                )

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about angles of planar shapes that are probably in degrees."""
        for name, shape in (("shape_a", self.shape_a), ("shape_b", self.shape_b)):
            if offers(shape, "angle"):
                yield from doubts_of(f"angle of {name}", [shape.angle], rests_in_degrees)

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error for bodies without a position."""
        for body in dict.fromkeys((self.a, self.b)):
            if body in names.rotors:
                yield (
                    f"{brief(body)} is a rotor, which has an angle but no position; name the body that "
                    "carries it"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the contacts of one pair; empty text for a single contact."""
        kind = pair_type(self.shape_a, self.shape_b)
        return () if kind is None else kind.labels(self.shape_a, self.shape_b)

    def points(self, a: Any, b: Any) -> Points:
        """Return the contact points of one pair, from the frames of its bodies."""
        kind = pair_type(self.shape_a, self.shape_b)
        if kind is None:
            raise ValueError(f"contacts of {self.key} are not supported")
        return kind.touch(self.shape_a, _located(self.shape_a, a), self.shape_b, _located(self.shape_b, b))


def _located(shape: Any, frame: Any) -> Pose:
    """Return the world frame of a shape, from the frame of its body."""
    body = _pose(frame)
    return body if offers(shape, "height") else body.then(shape.frame())


def _pose(frame: Any) -> Pose:
    """Return the frame of a body with arrays."""
    place = frame.place.array()
    if isinstance(frame, PlanarFrame):
        rows = [jnp.stack([frame.cos, -frame.sin]), jnp.stack([frame.sin, frame.cos])]
        return Pose(place, jnp.stack(rows))
    return Pose(place, jnp.stack([axis.array() for axis in frame.axes], axis=-1))


def neighbors(joints: Sequence[Any]) -> set[frozenset[str]]:
    """Return the pairs of bodies that a joint connects, in the tree or across a loop, except with the ground.

    Neighbors usually overlap at their joint, so readers of files exclude their contacts. A joint to the
    ground does not exclude contacts with the ground: a planar robot moves relative to the ground by joints.

    Args:
        joints: the joints of a description. Joints that cannot be in a tree, such as rods and gears, do not
            make neighbors.
    """
    ends = [frozenset((joint.a, joint.b)) for joint in joints if joint.in_tree]
    return {pair for pair in ends if GROUND not in pair}
