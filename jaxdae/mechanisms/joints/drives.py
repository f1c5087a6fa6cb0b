"""Driven velocities of a first-order mechanism: each drive is a row that sets a velocity to an input.

With the velocity named rate, the row is rate = u[k]. Drives name the actuated quantities: wheel spins,
kingpin angles, the speed of a point, the yaw rate of a body. The slip angle or slip ratio of a wheel may also
be an input. A dynamic mechanism ignores drives; its actuators are forces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame, Twist
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import (
    AxisInB,
    AxisInBody,
    OneBody,
    PointOfB,
    PointOfBody,
    TwoBodies,
)
from jaxdae.mechanisms.describe.elements import BodyName, Joint, Rows
from jaxdae.mechanisms.describe.kinds import GROUND, Known, unknown_coordinate
from jaxdae.mechanisms.describe.numbers import hint, said
from jaxdae.mechanisms.joints.planar_wheels import contact_velocity


class Drive(Joint):
    """Base class of driven velocities."""

    noun: ClassVar[str] = "drive"
    velocity_rows: ClassVar[dict[str, str]] = {"rate": ""}

    slips: ClassVar[str] = ""
    """Name of the wheel quantity that the input replaces; empty if the drive sets a velocity."""

    @property
    def unit(self) -> str:
        """The unit of the velocity."""
        return "rad/s"


@pytree
class BodyTurn(TwoBodies, Drive):
    """The angular velocity of b."""

    a: BodyName = fields.body("the ground")
    b: BodyName = fields.body("the body or rotor that turns")

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the angular velocity in rad/s."""
        return (moving_b.angle,)


@pytree
class PointSpeed(PointOfB, AxisInB, Drive):
    """The speed of a point of b along an axis that is fixed in b."""

    site: ClassVar[str] = "the point"
    line: ClassVar[str] = "the direction of the speed"

    @property
    def unit(self) -> str:
        """The unit of the speed."""
        return "m/s"

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the speed in m/s."""
        return (contact_velocity(self, b, moving_b)[0],)


@pytree
class CoordinateRate(TwoBodies, Drive):
    """The rate of a coordinate of a joint between a and b."""

    joint: Any = fields.inner()
    number: Any = fields.index("which coordinate")

    @property
    def key(self) -> str:
        """The name of the element's group, from the joint type and the coordinate index."""
        return f"coordinate_rate_{self.joint.type_key()}_{self.number[0]}"

    @property
    def unit(self) -> str:
        """The unit of the rate."""
        return f"{list(self.joint.coordinates.values())[self.number[0]]}/s"

    def velocity_residual(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Return the rate in rad/s or m/s."""

        def coordinate(a: Any, b: Any) -> Any:
            return self.joint.coordinate(a, b, t)[self.number[0]]

        return (jax.jvp(coordinate, (a, b), (a.along(moving_a), b.along(moving_b)))[1],)


@pytree
class SpinRate(Drive):
    """The spin of a wheel, in rad/s."""

    spin: Any = fields.rotor("the driven rotor")

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the rotor is missing."""
        if self.spin is None:
            yield "needs a spin, the name of the driven Rotor"

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return a drive of the rotor's angular velocity."""
        return BodyTurn(self.name, GROUND, self.spin)


@pytree
class YawRate(OneBody, Drive):
    """The angular velocity of a body, in rad/s."""

    body: BodyName = fields.body("the driven body", ground=False)

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return a drive of the body's angular velocity."""
        return BodyTurn(self.name, GROUND, self.body)


@pytree
class Speed(PointOfBody, AxisInBody, Drive):
    """The speed of a point of a body along an axis that is fixed in the body, in m/s.

    With `at`, `axis` is a direction in the world at the start pose. With `point`, it is a direction in the
    frame of the body.
    """

    site: ClassVar[str] = "the point"
    line: ClassVar[str] = "the direction of the speed"

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the speed drive with the body as `b`."""
        return PointSpeed(self.name, GROUND, self.body, self.axis, self.at, self.point)


@pytree
class JointRate(Drive):
    """The rate of a coordinate of a joint, such as the angle of a kingpin, in rad/s or m/s."""

    joint: Any = fields.joint("the driven joint")
    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the joint does not have the coordinate."""
        return unknown_coordinate(self.joint, self.along, names)

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return a drive of the named joint's coordinate."""
        joint = joints[self.joint]
        number = 0 if self.along is None else list(joint.coordinates).index(self.along)
        return CoordinateRate(self.name, joint.a, joint.b, joint, number)


class _Slip(Drive):
    """A wheel quantity that is an input: it replaces a parameter of the wheel's row and adds no row."""

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the wheel does not exist."""
        drive: Any = self
        # The build checks whether the joint has this quantity, because only then are the rows of the wheels
        # known.
        if not isinstance(drive.wheel, str) or drive.wheel not in names.coordinates:
            yield (
                f"wheel is {said(drive.wheel)}, which is not a "
                f"joint{hint(drive.wheel, list(names.coordinates))}"
            )


@pytree
class SlipAngle(_Slip):
    """The slip angle of a wheel as an input of a first-order model, in rad: n . v + tan(u) e . v = 0."""

    slips: ClassVar[str] = "slip_angle"

    wheel: Any = fields.wheel("the wheel whose slip is the input")

    @property
    def unit(self) -> str:
        """The unit of the angle."""
        return "rad"


@pytree
class SlipRatio(_Slip):
    """The slip ratio of a wheel as an input of a first-order model: e . v = (1 - u) r spin."""

    slips: ClassVar[str] = "slip_ratio"

    wheel: Any = fields.wheel("the wheel whose slip is the input")

    @property
    def unit(self) -> str:
        """The unit of the ratio, which is dimensionless."""
        return ""


DRIVES: dict[str, tuple[type[Drive], ...]] = {
    "plane": (SpinRate, YawRate, Speed, JointRate, SlipAngle, SlipRatio),
    "space": (JointRate,),
}
"""The drives that are available in each space."""
