"""Gears, bevel gears, and a rack with a pinion in space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.spatial_frames import Frame, Twist, Vector
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Number, Rows
from jaxdae.mechanisms.joints import spatial_measures as parts
from jaxdae.mechanisms.joints.joint_measures import NO_RADIUS
from jaxdae.mechanisms.joints.spatial_base import PARALLEL, SpatialJoint, WithAxes, two_axes_mistakes


@pytree
class TwoWheels(TwoBodies, SpatialJoint):
    """Wheels of a and b that turn at a ratio about axes fixed in their bodies."""

    a: BodyName = fields.body("the first wheel")
    b: BodyName = fields.body("the second wheel")
    axis_a: Any = fields.fixed_axis("the axis of the first wheel", "a")
    axis_b: Any = fields.fixed_axis("the axis of the second wheel", "b")
    ratio: Number = fields.number("the rotation of b divided by the rotation of a")


@pytree
class Gear(TwoWheels):
    """Gear wheels fixed in a and b: omega_b . axis_b = ratio omega_a . axis_a, with axes fixed in a and b.

    The row constrains velocities, so any ratio holds over any number of turns. The bearings of the wheels are
    separate joints, on the ground. Both angular velocities are relative to the world.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"ratio": "rad/s"}
    relative: ClassVar[bool] = False

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the slip of the wheels in rad/s; the multiplier is a torque in N m."""
        spin_a, spin_b = (
            axis[0] * twist.wx + axis[1] * twist.wy + axis[2] * twist.wz
            for axis, twist in ((self.axis_a, moving_a), (self.axis_b, moving_b))
        )
        return (spin_b - self.ratio * spin_a,)


@pytree
class BevelGear(TwoWheels):
    """Bevel gears, with axes that meet, turn at a ratio relative to their carrier, as in a differential.

    With unit vectors n_a, n_b along the axes and angular velocities omega_a = omega + s_a n_a, omega_b =
    omega + s_b n_b, where omega is the angular velocity of the carrier, the wheels do not slip when s_b =
    ratio s_a. The difference of both angular velocities does not depend on the carrier. It is projected on a
    vector m in the plane of the axes, along the normal of the tooth flanks of the cones that roll on each
    other:

        (omega_b - omega_a) . m = 0,
        m = ((ratio - c) n_a + (1 - ratio c) n_b) / (1 - c^2),    c = n_a . n_b,

    for which n_b . m = 1 and n_a . m = ratio. Parallel axes have no such vector, because the motion of the
    carrier then matters.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"ratio": "rad/s"}

    ratio: Number = fields.number(
        "the rotation of b divided by the rotation of a, both relative to their carrier"
    )

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the slip of the wheels in rad/s; the multiplier is the torque on b about its axis in N m."""
        n_a, n_b = a.direction(self.axis_a), b.direction(self.axis_b)
        c = n_a.dot(n_b)
        normal = (n_a.times(self.ratio - c) + n_b.times(1.0 - self.ratio * c)).times(1.0 / (1.0 - c * c))
        return (Vector(*parts.spin(a, b, moving_a, moving_b)).dot(normal),)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error for parallel axes."""
        axes = places["axis_a"], places["axis_b"]
        if axes[0] is not None and axes[1] is not None and np.linalg.norm(np.cross(*axes)) < PARALLEL:
            yield "axis_a and axis_b must not be parallel; use a Gear for wheels with parallel axes"


@pytree
class _RackAxes(TwoBodies):
    axis: Any = fields.axis("the direction of the rack")
    pinion_axis: Any = fields.axis("the axis of the pinion, normal to the rack,")


@pytree
class RackAndPinion(WithAxes, _RackAxes):
    """A pinion of b rolls without slip on a rack of a: its center moves as far as its rim turns.

    The x axis of the joint is along the rack and the y axis along the axis of the pinion, both fixed in a. z
    = x cross y points from the rack to the center of the pinion, which is the point of b. For a rack on the
    ground along x and the axis along y, this is a wheel that rolls forward as it turns by a positive angle. A
    negative radius places the pinion on the other side. Both motions are measured from the start pose. The
    joint transmits only the force along the rack. Other joints must hold the center on its line and the axis
    in its direction.

    The slide determines the number of turns, as for `Screw`.
    """

    rows: ClassVar[dict[str, str]] = {"slip": "m"}
    site: ClassVar[str] = "the center of the pinion"
    axis_fields: ClassVar[tuple[str, ...]] = ("axis", "pinion_axis")

    a: BodyName = fields.body("the body with the rack, or ground")
    b: BodyName = fields.body("the body with the pinion, or ground")
    radius: Number = fields.number(
        "the radius of the pinion; negative if the pinion is on the other side of the rack,",
        "m",
        kw_only=True,
        nonzero=NO_RADIUS,
    )
    offset: Number = fields.at_start(
        "the slide less the way of the rim", "m", lambda joint, a, b: joint.rolled(a, b), in_config=False
    )

    def rolled(self, a: Frame, b: Frame) -> Any:
        """Return the slide of the center along the rack minus the rim travel, in m, modulo full turns."""
        return parts.slide(self, a, b, 0) - self.radius * parts.turn(self, a, b, 1)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slip of the rim on the rack in m; the multiplier is the force along the rack in N."""
        return (self.radius * parts.nearest_turn((self.rolled(a, b) - self.offset) / self.radius),)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for axes that are missing, specified twice, or parallel."""
        return two_axes_mistakes(self, places, ("axis", "pinion_axis"))
