"""Fields that joints, forces and drives share: the bodies, points and axes that an element connects.

Each class states a few fields, and an element type inherits the classes whose fields it has. Fields of
classes further to the right come first: `class Prismatic(PointOfBoth, AxisInA, Movable)` has the fields name,
a, b, axis, at, point_a, point_b. The type states the texts of points and axes, `site` and `line`. A class
further to the left overrides fields that both classes state, so a type restates fields with its own text.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.elements import BodyName, Element, Place


@pytree
class TwoBodies(Element):
    """An element between two bodies."""

    a: BodyName = fields.body("the first body, or ground")
    b: BodyName = fields.body("the second body, or ground")


@pytree
class PointOfBoth(TwoBodies):
    """An element at a point that is fixed in both bodies; at the start pose the two points coincide."""

    at: Place = fields.world()
    point_a: Place = fields.point("a", "at")
    point_b: Place = fields.point("b", "at")


@pytree
class PointOfEach(TwoBodies):
    """An element between a point of a and a point of b."""

    at_a: Place = fields.world("the end on a")
    at_b: Place = fields.world("the end on b")
    point_a: Place = fields.point("a", "at_a", "the end on a")
    point_b: Place = fields.point("b", "at_b", "the end on b")


@pytree
class PointOfB(TwoBodies):
    """An element at a point of b."""

    at: Place = fields.world()
    point_b: Place = fields.point("b", "at")


@pytree
class AxisInA(TwoBodies):
    """An element with a direction that is fixed in a; the type also has a field `at`."""

    axis: Any = fields.direction("a", "at")


@pytree
class AxisInB(TwoBodies):
    """An element with a direction that is fixed in b; the type also has a field `at`."""

    axis: Any = fields.direction("b", "at")


@pytree
class AxesOfBoth(TwoBodies):
    """An element with own axes x, y, z in space that are fixed in both bodies."""

    axes_a: Any = fields.joint_axes("a")
    axes_b: Any = fields.joint_axes("b")


@pytree
class OneBody(Element):
    """An element of one body."""

    body: BodyName = fields.body("the body", ground=False)


@pytree
class PointOfBody(OneBody):
    """An element at a point of a body."""

    at: Place = fields.world()
    point: Place = fields.point("body", "at")


@pytree
class AxisInBody(OneBody):
    """An element with a direction that is fixed in its body; the build reports a missing direction."""

    axis: Any = fields.direction("body", "at", default=None)


@pytree
class GroundAndPoint(PointOfBody):
    """An element between the ground and a point of a body.

    Equations read both bodies of every element as a and b.
    """

    site: ClassVar[str] = "the point"

    body: BodyName = fields.body("the body that the force acts on", ground=False)
    a: BodyName = fields.ground()

    @property
    def b(self) -> BodyName:
        """The body."""
        return self.body
