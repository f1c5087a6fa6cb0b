"""Velocities that a mechanism of first order is driven by: each is a row that holds it at an input, rate = u[k].

They say what is actuated: spins of wheels, angles of kingpins, the speed of a point, the yaw rate of a body. A dynamic mechanism does not
see them; its motors are forces. How much a wheel slips may be an input, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax

from jaxdae._pytree import pytree
from jaxdae.geometry.planar import Frame, Twist
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Joint, Name, Place, Rows
from jaxdae.mechanisms.joints.wheels import contact_velocity
from jaxdae.mechanisms.kinds import GROUND, Known, unknown_coordinate
from jaxdae.mechanisms.values import hint, said


class Drive(Joint):
    """A type of velocity that is driven."""

    velocity_rows: ClassVar[dict[str, str]] = {"rate": ""}

    slips: ClassVar[str] = ""
    """The number of a wheel that is an input in place of a velocity."""

    @property
    def unit(self) -> str:
        """The unit of the velocity."""
        return "rad/s"


@pytree
class BodyTurn(Drive):
    """The angular velocity of b."""

    name: Name = fields.name("drive")
    a: BodyName = fields.body("the ground")
    b: BodyName = fields.body("the body or rotor that turns")

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Returns the angular velocity in rad/s."""
        return (moving_b.angle,)


@pytree
class PointSpeed(Drive):
    """The speed of a point of b along an axis that is fixed in b."""

    name: Name = fields.name("drive")
    a: BodyName = fields.body("the ground")
    b: BodyName = fields.body("the body")
    axis: Any = fields.direction("the direction of the speed", "b", "at")
    at: Place = fields.world("the point")
    point_b: Place = fields.point("the point", "b", "at")

    @property
    def unit(self) -> str:
        """The unit of the speed."""
        return "m/s"

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Returns the speed in m/s."""
        return (contact_velocity(self, b, moving_b)[0],)


@pytree
class CoordinateRate(Drive):
    """The rate of a coordinate of a joint between a and b."""

    name: Name = fields.name("drive")
    a: BodyName = fields.body("the first body, or ground")
    b: BodyName = fields.body("the second body, or ground")
    joint: Any = fields.inner()
    number: Any = fields.index("which coordinate")

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to: by the joint and its coordinate."""
        return f"coordinate_rate_{self.joint.type_key()}_{self.number[0]}"

    @property
    def unit(self) -> str:
        """The unit of the rate."""
        return f"{list(self.joint.coordinates.values())[self.number[0]]}/s"

    def velocity_residual(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Returns the rate in rad/s or m/s."""

        def coordinate(a: Any, b: Any) -> Any:
            return self.joint.coordinate(a, b, t)[self.number[0]]

        return (jax.jvp(coordinate, (a, b), (a.along(moving_a), b.along(moving_b)))[1],)


@pytree
class SpinRate(Drive):
    """The spin of a wheel, in rad/s."""

    name: Name = fields.name("drive")
    spin: Any = fields.rotor("the rotor that is turned")

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a missing rotor."""
        if self.spin is None:
            yield "needs a spin: the name of the Rotor that is turned"

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Returns the angular velocity of the rotor."""
        return BodyTurn(self.name, GROUND, self.spin)


@pytree
class YawRate(Drive):
    """The angular velocity of a body, in rad/s."""

    name: Name = fields.name("drive")
    body: BodyName = fields.body("the body that is turned", ground=False)

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Returns the angular velocity of the body."""
        return BodyTurn(self.name, GROUND, self.body)


@pytree
class Speed(Drive):
    """The speed of a point of a body along an axis that is fixed in the body, in m/s.

    The `axis` is a direction in the world at the start pose with `at`, in the frame of the body with `point`.
    """

    name: Name = fields.name("drive")
    body: BodyName = fields.body("the body", ground=False)
    axis: Any = fields.direction("the direction of the speed", "body", "at")
    at: Place = fields.world("the point")
    point: Place = fields.point("the point", "body", "at")

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Returns the speed with its body as the second of two."""
        return PointSpeed(self.name, GROUND, self.body, self.axis, self.at, self.point)


@pytree
class JointRate(Drive):
    """The rate of a coordinate of a joint, such as the angle of a kingpin, in rad/s or m/s; in the plane and in space."""

    name: Name = fields.name("drive")
    joint: Any = fields.joint("the joint that is moved")
    along: Any = fields.coordinate("which coordinate of the joint, such as slide or angle; left out: the first")

    def unknown(self, names: Known) -> Iterable[str]:
        """Yields a coordinate that the joint does not have."""
        return unknown_coordinate(self.joint, self.along, names)

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Returns the rate of the coordinate of the named joint."""
        joint = joints[self.joint]
        number = 0 if self.along is None else list(joint.coordinates).index(self.along)
        return CoordinateRate(self.name, joint.a, joint.b, joint, number)


class _Slip(Drive):
    """A number of a wheel that is an input: its row is held at what the input says, and there is no further one."""

    def unknown(self, names: Known) -> Iterable[str]:
        """Yields a wheel that there is not, or that has no such row."""
        drive: Any = self
        # Whether a joint has the number is known where the mechanism is built, from the rows that its wheels have.
        if not isinstance(drive.wheel, str) or drive.wheel not in names.coordinates:
            yield f"wheel is {said(drive.wheel)}, which is no joint{hint(drive.wheel, list(names.coordinates))}"


@pytree
class SlipAngle(_Slip):
    """The slip angle of a wheel as an input of first order, in rad: n . v + tan(u) e . v = 0."""

    slips: ClassVar[str] = "slip_angle"

    name: Name = fields.name("drive")
    wheel: Any = fields.wheel("the wheel that slips as the input says")

    @property
    def unit(self) -> str:
        """The unit of the angle."""
        return "rad"


@pytree
class SlipRatio(_Slip):
    """The slip ratio of a wheel as an input of first order: e . v = (1 - u) r spin."""

    slips: ClassVar[str] = "slip_ratio"

    name: Name = fields.name("drive")
    wheel: Any = fields.wheel("the wheel that slips as the input says")

    @property
    def unit(self) -> str:
        """The unit of the ratio: it has none."""
        return ""


DRIVES: dict[str, tuple[type[Drive], ...]] = {"plane": (SpinRate, YawRate, Speed, JointRate, SlipAngle, SlipRatio), "space": (JointRate,)}
"""What can be driven in each space."""
