"""Joints as stacked groups: one pytree a type, every leaf with a leading axis of joints.

A joint type is a class whose `residual` looks at one joint and two frames and returns the tuple of rows that are zero when the joint
holds; `jax.vmap` runs it over the group. Rows in meters have multipliers in newtons, rows in radians in newton meters.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms.frames import Frame
from jaxdae.typing import Leaf

Rows = tuple[Any, ...]


def _gap(joint: Any, a: Frame, b: Frame) -> Any:
    """Returns the vector from the joint's point on a to its point on b, in the world."""
    return b.point(joint.point_b) - a.point(joint.point_a)


def _along(joint: Any, a: Frame, b: Frame) -> Any:
    """Returns the component of the gap along the joint's axis, which is fixed in a."""
    return _gap(joint, a, b).dot(a.direction(joint.axis))


def _across(joint: Any, a: Frame, b: Frame) -> Any:
    """Returns the component of the gap normal to the joint's axis."""
    return _gap(joint, a, b).dot(a.direction(joint.axis).quarter_turn())


@pytree(kw_only=True)
class Revolute:
    """Two points coincide; the bodies turn freely. Damping in N m s/rad."""

    rows: ClassVar[tuple[str, ...]] = ("x", "y")
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    damping: Leaf = None

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the gap between the points, in m."""
        gap = _gap(self, a, b)
        return gap.x, gap.y

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the joint angle in rad."""
        return (b.angle - a.angle,)


@pytree(kw_only=True)
class Prismatic:
    """A point of b slides on a line fixed in a, without turning. Damping in N s/m."""

    rows: ClassVar[tuple[str, ...]] = ("normal", "angle")
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    axis: Leaf
    angle: Leaf
    damping: Leaf = None

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the distance from the line in m, and the relative rotation in rad."""
        return _across(self, a, b), b.angle - a.angle - self.angle

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the slide along the axis in m."""
        return (_along(self, a, b),)


@pytree(kw_only=True)
class Weld:
    """Rigidity: the pose of b relative to a is constant."""

    rows: ClassVar[tuple[str, ...]] = ("x", "y", "angle")
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    angle: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the gap between the points in m, and the relative rotation in rad."""
        gap = _gap(self, a, b)
        return gap.x, gap.y, b.angle - a.angle - self.angle


@pytree(kw_only=True)
class Rod:
    """A massless rod of fixed length between two points."""

    rows: ClassVar[tuple[str, ...]] = ("length",)
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    length: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns (d^2 - L^2) / (2 L) in m: the elongation to first order, and smooth at d = 0; the multiplier is the thrust in N."""
        gap = _gap(self, a, b)
        return ((gap.dot(gap) - self.length**2) / (2.0 * self.length),)


@pytree(kw_only=True)
class PointOnLine:
    """A point of b stays on a line fixed in a, and b turns freely."""

    rows: ClassVar[tuple[str, ...]] = ("normal",)
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    axis: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the distance from the line, in m."""
        return (_across(self, a, b),)


@pytree(kw_only=True)
class Gear:
    """The rotations of two bodies since the start are in a fixed ratio: theta_b - ratio theta_a = offset."""

    rows: ClassVar[tuple[str, ...]] = ("angle",)
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    ratio: Leaf
    offset: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the phase error in rad."""
        return (b.angle - self.ratio * a.angle - self.offset,)


@pytree(kw_only=True)
class PrescribedAngle:
    """The angle of a revolute joint since the start is a given function of time."""

    rows: ClassVar[tuple[str, ...]] = ("angle",)
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    offset: Leaf
    motion: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the error of the angle in rad; the multiplier is the motor torque in N m."""
        return (b.angle - a.angle - self.offset - self.motion(t),)


@pytree(kw_only=True)
class PrescribedSlide:
    """The slide of a prismatic joint since the start is a given function of time."""

    rows: ClassVar[tuple[str, ...]] = ("slide",)
    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    axis: Leaf
    offset: Leaf
    motion: Leaf

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the error of the slide in m; the multiplier is the motor force in N."""
        return (_along(self, a, b) - self.offset - self.motion(t),)
