"""What the joints of mechanisms in space share: their axes, and what acts along their coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree
from jaxdae.geometry.spatial import Frame
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Joint, Name, Number, Place, Rows
from jaxdae.mechanisms.joints import spatial_parts as parts
from jaxdae.mechanisms.joints.elements import WithElements
from jaxdae.mechanisms.joints.pair_rows import PAIRS
from jaxdae.mechanisms.measures import Derivatives
from jaxdae.mechanisms.space import SPACE, Plane, Space
from jaxdae.spelling import brief

PARALLEL = 1e-6
"""The sine of the angle below which two directions are parallel."""


class SpatialJoint(Joint):
    """A joint in space; one with `coordinates` can be driven, damped and prescribed along them."""

    space: ClassVar[Plane | Space] = SPACE
    derivatives: ClassVar[Derivatives] = PAIRS


class Facing(SpatialJoint):
    """A joint whose rows are sines of the angles that it forbids: they are zero as well where b is turned over by half a turn."""

    turns_over: ClassVar[bool] = True

    def facing(self, a: Frame, b: Frame) -> Any:
        """Returns the cosine of the angle whose sine the rows in rad have as their length: here of that between the z axes."""
        return parts.axis_a(self, a, 2).dot(parts.axis_b(self, b, 2))

    def opening(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the residual, its rows in rad longer by angle / sin(angle): they are zero at half a turn no more."""
        rows, cosine, units = self.residual(a, b, t), self.facing(a, b), list(self.rows.values())
        square = sum(row * row for row, unit in zip(rows, units, strict=True) if unit == "rad")
        aligned = square < jnp.finfo(cosine.dtype).eps
        sine = jnp.sqrt(jnp.where(aligned, 1.0, square))
        longer = jnp.where(aligned, 1.0, jnp.arctan2(sine, cosine) / sine)
        # At half a turn there is no direction to turn back in: any will do.
        turned = jnp.where(aligned & (cosine < 0.0), jnp.pi, 0.0)
        first = units.index("rad")
        return tuple(
            row if unit == "m" else row * longer + (turned if k == first else 0.0)
            for k, (row, unit) in enumerate(zip(rows, units, strict=True))
        )


@pytree
class OnAxis(SpatialJoint):
    """A joint with an axis: z of the joint, along `axis` at the start pose.

    The `axis` is a direction in the world with `at`, in the frame of a with `point_a` and `point_b`. In a group `axes_a` and `axes_b` say
    all of it.
    """

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the first body, or ground")
    b: BodyName = fields.body("the second body, or ground")
    axis: Any = fields.axis("the axis of the joint")
    at: Place = fields.world("the joint")
    point_a: Place = fields.point("the joint", "a", "at")
    point_b: Place = fields.point("the joint", "b", "at")
    axes_a: Any = fields.joint_axes("a")
    axes_b: Any = fields.joint_axes("b")

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Returns the frames of the joint in both bodies."""
        return parts.frames_of_joint(self)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields an axis that is missing, or there twice."""
        if self.axis is None and self.axes_a is None:
            yield "needs a direction: give axis, or axes_a and axes_b"
        if self.axis is not None and self.axes_a is not None:
            yield "has both axis and axes_a: give one of them"


DAMPER, SPRING = "RotationalDamper", "RotationalSpring"
ROTATIONAL = {
    "damping": f"add the force {DAMPER}(name, a, b, damping) between the same bodies, which resists about all axes",
    "stiffness": f"add the force {SPRING}(name, a, b, stiffness=...) between the same bodies, which pulls back about any axis",
    "rest": f"the force {SPRING} is at rest where its axes_a and axes_b coincide",
}
"""What acts on any rotation of one body against another, for keywords of joints that turn about axes."""


class Movable(WithElements, SpatialJoint):
    """A joint with coordinates, whose angles are in (-pi, pi]."""

    counts_turns: ClassVar[bool] = False


@pytree(kw_only=True)
class AnyOrientation(SpatialJoint):
    """A joint that leaves any orientation, with what may act on each of its velocities in joint coordinates.

    An inertia that is the same about all axes, and dry friction on each component, as robot files have them; both are part of the reaction.
    """

    tree_only: ClassVar[tuple[str, ...]] = ("armature", "friction")

    armature: Number = fields.number(
        "the inertia that motors add to each velocity, on joints of a tree only,",
        "kg m^2 or kg",
        value=0.0,
        at_least=0.0,
        sparse=True,
    )
    friction: Number = fields.number(
        "the dry friction against each velocity, on joints of a tree only,", "N m or N", value=0.0, at_least=0.0, sparse=True
    )
    friction_speed: Number = fields.number(
        "the speed at which friction has 76 % of its size", "rad/s or m/s", value=0.01, above=0.0, needs="friction"
    )

    def elements(self) -> dict[str, Any]:
        """Returns what acts on each velocity of an element of a group, by the names of the fields."""
        return {name: getattr(self, name) for name in ("armature", "friction", "friction_speed")}


def two_axes_mistakes(joint: Any, places: Mapping[str, Any], names: tuple[str, str]) -> Iterable[str]:
    """Yields what is wrong with the two directions that the axes of a joint are made of: missing, there twice, or parallel.

    Args:
        joint: the described joint.
        places: the directions in the world at the start pose by the names of their fields, None where one is traced or wrong.
        names: of the fields.
    """
    given = [name for name in names if getattr(joint, name) is not None]
    if joint.axes_a is not None:
        yield from (f"has both {name} and axes_a: give one of them" for name in given)
        return
    if len(given) < 2:
        yield f"needs two directions: give {names[0]} and {names[1]}, or axes_a and axes_b"
        return
    first, second = (places[name] for name in names)
    if first is not None and second is not None and np.linalg.norm(np.cross(first, second)) < PARALLEL:
        given = [brief(getattr(joint, name), str) for name in names[:2]]
        yield f"{names[0]} and {names[1]} must not be parallel, got {given[0]} and {given[1]}"
