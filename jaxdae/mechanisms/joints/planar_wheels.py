"""Wheels on the ground of planar mechanisms: rows that constrain the velocity of the contact point.

A wheel is at a point p of its carrier body, with its heading e fixed there and n = e rotated to the left. A
steered wheel is fixed to a body of its own, with a `Revolute` as its kingpin. A caster is such a body with
the wheel behind the kingpin. With v the velocity of p and phi' the spin of the wheel, forward positive, the
wheel equation has a component normal to the heading and a component along it:

    lateral   n . v + tan(alpha) e . v = 0,        rolling   e . v - (1 - s) r phi' = 0.

The slip angle alpha and slip ratio s are prescribed values. They are numbers or functions of time; in
first-order mechanisms they may also be inputs (`SlipAngle`, `SlipRatio` in `Description.drives`). The
default, zero, is no slip. Both rows are in m/s, so their multipliers are the forces of the ground on the
wheel in N, along n and along e. With slip, the lateral multiplier acts along n + tan(alpha) e, the direction
in which the row constrains the wheel.

The spin of a wheel is not a rotation in the plane. It is the angle of a `Rotor`, whose inertia is the wheel
inertia about the axle. Wheels without spin have no rolling row and need no radius. A joint sees only two
bodies, and the ground does not move. Therefore a is the rotor, and b is the body that carries the wheel.

A wheel with rollers around its rim constrains only the velocity along the axles of the rollers that touch the
ground. With these axles at the angle gamma to the heading, c = (cos gamma) e + (sin gamma) n,

    c . (v - r phi' e) = 0,

gamma = +-45 degrees for Mecanum wheels, 0 for omni wheels.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", sections 3.4 and 3.5 (wheel equations). J.
    Agullo, S. Cardona,
    J. Vivancos, "Kinematics of vehicles with directional sliding wheels", Mechanism and Machine Theory 22
    (1987), for rollers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame, Twist, Vector
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxisInB, AxisInBody, PointOfB, PointOfBody
from jaxdae.mechanisms.describe.elements import BodyName, Joint, Number, Rows
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.numbers import at_time, is_there


def contact_velocity(wheel: Any, b: Frame, moving_b: Twist) -> tuple[Any, Any]:
    """Return the velocity of a wheel's contact point along its heading and to the left of it, in m/s.

    Args:
        wheel: with `point_b` (2,) in m and `axis` (2,), a unit vector, both in the frame of b.
        b: the frame of the body that carries the wheel.
        moving_b: the twist of that body.
    """
    heading = b.direction(wheel.axis)
    velocity = moving_b.at(b, b.point(wheel.point_b))
    return velocity.dot(heading), velocity.dot(heading.quarter_turn())


@pytree
class CarriedWheel(PointOfB, AxisInB, Joint):
    """A wheel at a point of b, with its heading; a is the rotor whose angle is its spin."""

    relative: ClassVar[bool] = False
    described: ClassVar[Mapping[str, str]] = {"point": "point_b"}
    site: ClassVar[str] = "the wheel"
    line: ClassVar[str] = "the heading of the wheel"

    a: BodyName = fields.body("the rotor, or ground for a wheel without spin")
    b: BodyName = fields.body("the body that carries the wheel")


@pytree
class LateralWheel(CarriedWheel):
    """A wheel without spin: a place of b does not slip across the heading."""

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s"}

    slip_angle: Any = fields.varying("the slip angle", "rad", value=0.0, within=0.5 * np.pi)

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the lateral row in m/s."""
        along, across = contact_velocity(self, b, moving_b)
        return (across + jnp.tan(at_time(self.slip_angle, t)) * along,)


@pytree
class SpinningWheel(CarriedWheel):
    """A wheel with a rotor."""

    radius: Number = fields.number("the radius", "m", value=1.0, above=0.0)


@pytree
class TractionWheel(SpinningWheel):
    """A wheel with spin that may slip sideways: the second wheel of an axle, without a second lateral row."""

    velocity_rows: ClassVar[dict[str, str]] = {"rolling": "m/s"}

    slip_ratio: Any = fields.varying("the slip ratio", value=0.0)

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the rolling row in m/s."""
        return (self.rolling(contact_velocity(self, b, moving_b)[0], moving_a, t),)

    def rolling(self, along: Any, moving_a: Twist, t: Any) -> Any:
        """Return the rolling row in m/s, for the speed along the heading."""
        return along - (1.0 - at_time(self.slip_ratio, t)) * self.radius * moving_a.angle


@pytree
class RollingWheel(TractionWheel):
    """A wheel with spin: its rim does not slip on the ground, neither across the heading nor along it."""

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s", "rolling": "m/s"}

    slip_angle: Any = fields.varying("the slip angle", "rad", value=0.0, within=0.5 * np.pi)

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the lateral and rolling rows in m/s."""
        along, across = contact_velocity(self, b, moving_b)
        return across + jnp.tan(at_time(self.slip_angle, t)) * along, self.rolling(along, moving_a, t)


@pytree
class RollerWheel(SpinningWheel):
    """A wheel with rollers around its rim: its contact does not slip along the axles of the rollers."""

    velocity_rows: ClassVar[dict[str, str]] = {"rolling": "m/s"}

    roller_angle: Number = fields.number(
        "the angle from the heading to the axles of the rollers", "rad", value=0.0, within=np.pi
    )

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the slip along the axle of the roller on the ground in m/s."""
        along, across = contact_velocity(self, b, moving_b)
        slip = Vector(along - self.radius * moving_a.angle, across)
        return (slip.dot(Vector(jnp.cos(self.roller_angle), jnp.sin(self.roller_angle))),)


@pytree
class Wheel(PointOfBody, AxisInBody, Joint):
    """A wheel on the ground with no slip or given slip: a lateral row, and a rolling row if it has a spin.

    `axis` is the heading. With `at`, it is a direction in the world at the start pose. With `point`, it is a
    direction in the frame of the body. The force of the ground on the wheel points to the left of the heading
    for the row "lateral", and along the heading for the row "rolling".
    """

    site: ClassVar[str] = "the wheel"
    line: ClassVar[str] = "the heading of the wheel"

    body: BodyName = fields.body(
        "the body that carries the wheel: the chassis, or the knuckle of a steered wheel", ground=False
    )
    radius: Number = fields.number(
        "the radius", "m", value=None, may_be_none=True, above=0.0, default="the wheel has no spin"
    )
    spin: Any = fields.rotor(
        "the rotor whose angle is the spin of the wheel; default: no rolling row", default=None
    )
    lateral: bool = fields.truth("false if another wheel of the axle has the lateral row", value=True)
    slip_angle: Any = fields.varying(
        "the slip angle, n . v + tan(slip_angle) e . v = 0,", "rad", value=0.0, within=0.5 * np.pi
    )
    slip_ratio: Any = fields.varying("the slip ratio, e . v = (1 - slip_ratio) r spin", value=0.0)

    @property
    def conserves_energy(self) -> bool:
        """Whether the wheel does not slip."""
        return not (is_there(self.slip_angle) or is_there(self.slip_ratio))

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the wheel joint with the rows that the fields select."""
        place = self.body, self.axis, self.at, self.point
        if self.spin is None:
            return LateralWheel(self.name, GROUND, *place, slip_angle=self.slip_angle)
        rolling = {"radius": self.radius, "slip_ratio": self.slip_ratio}
        if self.lateral:
            return RollingWheel(self.name, self.spin, *place, slip_angle=self.slip_angle, **rolling)
        return TractionWheel(self.name, self.spin, *place, **rolling)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for inconsistent fields.

        These are a rolling row without spin or radius, slip without its row, and a wheel without rows.
        """
        if self.spin is None and self.radius is not None:
            yield (
                "has a radius but no spin; give the name of a Rotor as spin for a rolling row, or omit the "
                "radius"
            )
        elif self.spin is not None and self.radius is None:
            yield f"has the spin {self.spin!r} but no radius; a rolling row needs the radius in m"
        if self.spin is None and is_there(self.slip_ratio):
            yield "has a slip_ratio but no spin; only a rolling row slips along the heading"
        if not self.lateral and is_there(self.slip_angle):
            yield "has a slip_angle and lateral=False; only a lateral row slips across the heading"
        if self.spin is None and not self.lateral:
            yield "has no rows; give lateral=True, or a spin and a radius"


@pytree
class _WithRollers(PointOfBody, AxisInBody, Joint):
    """Base class of wheel descriptions with rollers."""

    site: ClassVar[str] = "the wheel"
    line: ClassVar[str] = "the heading of the wheel"

    body: BodyName = fields.body("the body that carries the wheel", ground=False)
    spin: Any = fields.rotor("the rotor whose angle is the spin of the wheel", kw_only=True)
    radius: Number = fields.number("the radius", "m", value=None, kw_only=True, above=0.0, required=True)

    def rolling(self, roller_angle: Any) -> RollerWheel:
        """Return the wheel joint with its row."""
        return RollerWheel(
            self.name, self.spin, self.body, self.axis, self.at, self.point, self.radius, roller_angle
        )

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the spin is missing."""
        if self.spin is None:
            yield "needs a spin, the name of the Rotor whose angle is the rotation of the wheel"


@pytree
class MecanumWheel(_WithRollers):
    """A wheel with oblique rollers on its rim: no slip along the axles of the rollers on the ground.

    In the usual arrangement, the rollers of the four wheels form an X seen from above. Their angles are -45,
    45, 45 and -45 degrees at the front left, front right, rear left and rear right. The rollers that touch
    the ground are on the lower side of the wheels, and form an O.
    """

    roller_angle: Number = fields.number(
        "the angle from the heading to the axles of the rollers on the ground, to the left,",
        "rad",
        value=None,
        kw_only=True,
        required=True,
        within=np.pi,
    )

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the wheel joint with its row."""
        return self.rolling(self.roller_angle)


@pytree
class OmniWheel(_WithRollers):
    """A wheel with rollers across its rim: no slip along the heading, free to the side."""

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the wheel joint with its row."""
        return self.rolling(0.0)


WHEELS = (Wheel, MecanumWheel, OmniWheel)
