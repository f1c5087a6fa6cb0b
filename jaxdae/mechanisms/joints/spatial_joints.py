"""Joints of spatial mechanisms. `SPATIAL_JOINTS` lists all of them.

Specify a joint by positions and directions in the world at the start pose (`at`, `axis`), or by points and
axes in the frames of both bodies (`point_a`, `axes_a`, ...). The joint's own axes have z along `axis`. The
start pose determines unspecified fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief
from jaxdae.geometry.spatial_frames import Frame, Vector
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Number, Place, Rows
from jaxdae.mechanisms.describe.links import Step, axis, ball, place
from jaxdae.mechanisms.joints import spatial_measures as parts
from jaxdae.mechanisms.joints.relation_elements import Relation, TendonRelation
from jaxdae.mechanisms.joints.rod import Rod
from jaxdae.mechanisms.joints.spatial_base import (
    ROTATIONAL,
    AnyOrientation,
    Facing,
    Movable,
    OnAxis,
    WithAxes,
    two_axes_mistakes,
)
from jaxdae.mechanisms.joints.spatial_curves import PointOnCurve, PointOnSurface, SphereOnSurface
from jaxdae.mechanisms.joints.spatial_gears import BevelGear, Gear, RackAndPinion
from jaxdae.mechanisms.joints.spatial_prescribed import PrescribedMotion
from jaxdae.mechanisms.joints.terrain_wheels import RollingDisc, RollingSphere, SlidingDisc, SlidingSphere

_TURNING = "for free rotation, add the forces Torque, RotationalSpring or RotationalDamper between the bodies"
_BUSHING = (
    "for a compliant connection, use the force Bushing with stiffness, rotational_stiffness, damping and "
    "rotational_damping"
)

_UPRIGHT = 1e-3
"""Cosine of the angle between the axes of a Cardan joint below which they count as normal to each other."""


@pytree
class Revolute(Facing, OnAxis, Movable):
    """A hinge: a point of a and a point of b coincide, and b turns about an axis fixed in both."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "z": "m", "tilt_x": "rad", "tilt_y": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"angle": "rad"}

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the rotation about the axis."""
        return (axis(parts.Z, parts.NONE, "angle", "rad"),)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in the world in m, and the tilt of the axes in rad."""
        gap = parts.gap(self, a, b)
        return gap.x, gap.y, gap.z, *parts.tilt(self, a, b)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the joint angle in rad."""
        return (parts.turn(self, a, b),)


@pytree
class Prismatic(Facing, OnAxis, Movable):
    """A slider: b moves along an axis fixed in a, without turning against a."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "rot_x": "rad", "rot_y": "rad", "rot_z": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"slide": "m"}

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the slide along the axis."""
        return (axis(parts.NONE, parts.Z, "slide", "m"),)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distances from the line along x and y of the joint in m, and the rotation in rad."""
        return parts.slide(self, a, b, 0), parts.slide(self, a, b, 1), *parts.rotation(self, a, b)

    def facing(self, a: Frame, b: Frame) -> Any:
        """Return the cosine of the rotation angle."""
        return parts.aligned(self, a, b)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slide along the axis in m."""
        return (parts.slide(self, a, b),)


@pytree
class Cylindrical(Facing, OnAxis, Movable):
    """A sleeve on a shaft: b slides along an axis fixed in both bodies and turns about it."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "tilt_x": "rad", "tilt_y": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"slide": "m", "angle": "rad"}

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the slide along the axis and the rotation about it."""
        return axis(parts.NONE, parts.Z, "slide", "m"), axis(parts.Z, parts.NONE, "angle", "rad")

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distances from the line along x and y in m, and the tilt of the axes in rad."""
        return parts.slide(self, a, b, 0), parts.slide(self, a, b, 1), *parts.tilt(self, a, b)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slide along the axis in m and the angle in rad.

        A coordinate whose fields are missing is zero.
        """
        slide = jnp.zeros_like(a.x) if self.point_a is None else parts.slide(self, a, b)
        return slide, jnp.zeros_like(a.x) if self.axes_b is None else parts.turn(self, a, b)


@pytree
class Screw(Facing, OnAxis, Movable):
    """A nut on a screw: b turns about an axis fixed in both bodies, and moves along it by `lead` per radian.

    The slide determines the number of turns, so the row holds for any number of turns.
    """

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "tilt_x": "rad", "tilt_y": "rad", "thread": "m"}
    coordinates: ClassVar[dict[str, str]] = {"angle": "rad"}
    counts_turns: ClassVar[bool] = True
    unread: ClassVar[dict[str, tuple[str, ...]]] = {"rad": ("axes_b",)}

    lead: Number = fields.number(
        "the travel along the axis per radian; positive for a right-handed thread,",
        "m/rad",
        kw_only=True,
        nonzero="use a Revolute joint for rotation without travel",
    )
    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the rotation about the axis with the slide along it."""
        return (axis(parts.Z, self.lead * parts.Z, "angle", "rad"),)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distances from the line in m, the tilt of the axes in rad, and the thread slip in m."""
        slide, angle = parts.slide(self, a, b), parts.turn(self, a, b)
        thread = self.lead * parts.nearest_turn(slide / self.lead - angle)
        return parts.slide(self, a, b, 0), parts.slide(self, a, b, 1), *parts.tilt(self, a, b), thread

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the angle in rad, including full turns, from the slide."""
        return (parts.slide(self, a, b) / self.lead,)


@pytree
class _CardanAxes(TwoBodies):
    axis: Any = fields.axis("the axis that is fixed in a")
    second: Any = fields.axis("the axis that is fixed in b, perpendicular to the first axis,", "b")


@pytree
class Universal(WithAxes, _CardanAxes, Movable):
    """A Cardan joint: b turns about an axis fixed in a and an axis fixed in b, which are perpendicular."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "z": "m", "twist": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"first": "rad", "second": "rad"}

    axis_fields: ClassVar[tuple[str, ...]] = ("axis", "second")
    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the rotations about both axes."""
        return axis(parts.X, parts.NONE, "first", "rad"), axis(parts.Y, parts.NONE, "second", "rad")

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in the world in m, and the error of the right angle in rad."""
        gap = parts.gap(self, a, b)
        return gap.x, gap.y, gap.z, parts.axis_a(self, a, 0).dot(parts.axis_b(self, b, 1))

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the angles about the axis of a and about the axis of b, in rad."""
        y_a, z_a = parts.axis_a(self, a, 1), parts.axis_a(self, a, 2)
        x_b, z_b = parts.axis_b(self, b, 0), parts.axis_b(self, b, 2)
        x_a, y_b = parts.axis_a(self, a, 0), parts.axis_b(self, b, 1)
        return jnp.arctan2(z_a.dot(y_b), y_a.dot(y_b)), jnp.arctan2(x_a.dot(z_b), x_a.dot(x_b))

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for axes that are missing, specified twice, or not at a right angle.

        The row would silently force the axes to a right angle.
        """
        if found := list(two_axes_mistakes(self, places, ("axis", "second"))):
            return found
        first, second = places["axis"], places["second"]
        if first is None or second is None or abs(cosine := float(np.dot(first, second))) < _UPRIGHT:
            return ()
        angle = f"{np.degrees(np.arccos(cosine)):.4g} degrees"
        given = f"{brief(self.axis, str)} and {brief(self.second, str)}"
        return [f"axis and second must be perpendicular at the start pose, got {given} at {angle}"]


@pytree
class Ball(PointOfBoth, AnyOrientation):
    """A ball in a socket: a point of a and a point of b coincide."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "z": "m"}
    instead: ClassVar[Mapping[str, str]] = ROTATIONAL
    acting: ClassVar[str] = _TURNING

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return a free orientation."""
        return (ball(),)

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the joint frames at the points, with the axes of the bodies."""
        return parts.parallel(self.point_a), parts.parallel(self.point_b)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in the world, in m."""
        gap = parts.gap(self, a, b)
        return gap.x, gap.y, gap.z


@pytree
class Planar(Facing, OnAxis, Movable):
    """b slides over a plane that is fixed in a, and turns about its normal."""

    rows: ClassVar[dict[str, str]] = {"normal": "m", "tilt_x": "rad", "tilt_y": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "angle": "rad"}

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return two slides in the plane and the rotation about its normal."""
        return (
            axis(parts.NONE, parts.X, "x", "m"),
            axis(parts.NONE, parts.Y, "y", "m"),
            axis(parts.Z, parts.NONE, "angle", "rad"),
        )

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distance from the plane in m, and the tilt of the normals in rad."""
        return parts.slide(self, a, b), *parts.tilt(self, a, b)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slides along x and y of the joint in m, and the angle about its z axis in rad.

        A coordinate whose fields are missing is zero.
        """
        zero = jnp.zeros_like(a.x)
        slides = (
            (zero, zero) if self.point_a is None else (parts.slide(self, a, b, 0), parts.slide(self, a, b, 1))
        )
        return *slides, zero if self.axes_b is None else parts.turn(self, a, b)


@pytree
class Weld(Facing, WithAxes):
    """Two bodies move as one, in their relative start pose unless you give points and axes for both."""

    rows: ClassVar[dict[str, str]] = {
        "x": "m",
        "y": "m",
        "z": "m",
        "rot_x": "rad",
        "rot_y": "rad",
        "rot_z": "rad",
    }
    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("damping", "stiffness"), f"a weld is rigid; {_BUSHING}"
    )

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return an empty tuple, because a weld has no degrees of freedom."""
        return ()

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in the world in m, and the rotation of b relative to a in rad."""
        gap = parts.gap(self, a, b)
        return gap.x, gap.y, gap.z, *parts.rotation(self, a, b)

    def facing(self, a: Frame, b: Frame) -> Any:
        """Return the cosine of the rotation angle."""
        return parts.aligned(self, a, b)


@pytree
class Free(TwoBodies, AnyOrientation):
    """b moves freely relative to a; the coordinates describe a frame fixed in b, such as a link frame.

    In joint coordinates, q is the position of that frame in a and its quaternion wxyz; v is the velocity of
    its origin in the axes of a and its angular velocity in its own axes. If a is the ground, these are qpos
    and qvel of a free joint in MuJoCo. A body without any joint moves by its mass center instead. If a joint
    with rows can also place b in the tree, that joint takes precedence. In absolute coordinates, this joint
    has no effect.
    """

    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("damping", "stiffness"),
        "add the force Bushing between the same bodies, or Drag and RotationalDamper",
    )

    a: BodyName = fields.body("the reference body, usually ground")
    b: BodyName = fields.body("the body that moves", ground=False)
    point_b: Place = fields.components(
        "the origin of the frame in the frame of b", "m", value=(0.0, 0.0, 0.0)
    )
    axes_b: Any = fields.frame_axes("the axes of the frame", "b")

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return a free position and a free orientation."""
        return place(), ball()

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the frame of a and the joint frame in b."""
        in_b = Frame.of_axes(Vector(*self.point_b), *(Vector(*self.axes_b[:, k]) for k in range(3)))
        return parts.parallel(jnp.zeros_like(self.point_b)), in_b


@pytree
class PointOnLine(OnAxis, Movable):
    """A pin in a slot: a point of b stays on a line that is fixed in a, and b turns freely."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m"}
    coordinates: ClassVar[dict[str, str]] = {"slide": "m"}

    in_tree: ClassVar[bool] = True
    tree_fields: ClassVar[tuple[str, ...]] = ("axes_b",)

    def steps(self) -> tuple[Step, ...]:
        """Return the slide along the line and a free orientation."""
        return axis(parts.NONE, parts.Z, "slide", "m"), ball()

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distances from the line along x and y of the joint, in m."""
        return parts.slide(self, a, b, 0), parts.slide(self, a, b, 1)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the position along the line in m."""
        return (parts.slide(self, a, b),)


@pytree
class PointOnPlane(OnAxis, Movable):
    """A point of b stays on a plane that is fixed in a, and b turns freely."""

    rows: ClassVar[dict[str, str]] = {"normal": "m"}
    coordinates: ClassVar[dict[str, str]] = {"x": "m", "y": "m"}

    in_tree: ClassVar[bool] = True
    tree_fields: ClassVar[tuple[str, ...]] = ("axes_b",)

    def steps(self) -> tuple[Step, ...]:
        """Return two slides in the plane and a free orientation."""
        return axis(parts.NONE, parts.X, "x", "m"), axis(parts.NONE, parts.Y, "y", "m"), ball()

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the position in the plane along x and y of the joint, in m."""
        return parts.slide(self, a, b, 0), parts.slide(self, a, b, 1)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distance from the plane in m."""
        return (parts.slide(self, a, b),)


@pytree
class ConstantVelocity(Facing, OnAxis):
    """A constant-velocity joint: points of a and b coincide, and both turn equally fast about their shafts.

    The shafts are the z axes of the joint in both bodies. The angle between them must be less than half a
    turn. The ball tracks lie in the bisecting plane of the shafts and prevent twist: x_a . y_b = y_a . x_b.
    """

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "z": "m", "twist": "rad"}
    instead: ClassVar[Mapping[str, str]] = ROTATIONAL
    acting: ClassVar[str] = _TURNING

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in the world in m, and the twist of the shafts in rad."""
        gap = parts.gap(self, a, b)
        x_a, y_a = parts.axis_a(self, a, 0), parts.axis_a(self, a, 1)
        x_b, y_b = parts.axis_b(self, b, 0), parts.axis_b(self, b, 1)
        return gap.x, gap.y, gap.z, 0.5 * (y_a.dot(x_b) - x_a.dot(y_b))

    def facing(self, a: Frame, b: Frame) -> Any:
        """Return the cosine of the twist, scaled by the bend of the shafts like the sine in the row."""
        return 0.5 * (
            parts.axis_a(self, a, 0).dot(parts.axis_b(self, b, 0))
            + parts.axis_a(self, a, 1).dot(parts.axis_b(self, b, 1))
        )


SPATIAL_JOINTS = (
    Revolute,
    Prismatic,
    Cylindrical,
    Screw,
    Universal,
    Ball,
    Planar,
    Weld,
    Free,
    Rod,
    PointOnLine,
    PointOnPlane,
    ConstantVelocity,
    Gear,
    BevelGear,
    RackAndPinion,
    PointOnCurve,
    PointOnSurface,
    SphereOnSurface,
    RollingDisc,
    RollingSphere,
    SlidingDisc,
    SlidingSphere,
    PrescribedMotion,
    Relation,
    TendonRelation,
)
