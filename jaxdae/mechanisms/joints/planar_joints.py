"""Joints of planar mechanisms. `PLANAR_JOINTS` lists all of them."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame, Twist
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxisInA, AxisInB, PointOfB, PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Joint, Number, Rows
from jaxdae.mechanisms.describe.links import Step, axis
from jaxdae.mechanisms.forces.planar_forces import SlideForce, Torque
from jaxdae.mechanisms.joints import joint_measures
from jaxdae.mechanisms.joints.joint_measures import NO_RADIUS
from jaxdae.mechanisms.joints.passive_elements import WithElements
from jaxdae.mechanisms.joints.planar_prescribed import PrescribedAngle, PrescribedMotion, PrescribedSlide
from jaxdae.mechanisms.joints.planar_wheels import WHEELS
from jaxdae.mechanisms.joints.relation_elements import Relation, TendonRelation
from jaxdae.mechanisms.joints.rod import Rod


class Movable(WithElements):
    """A joint with one coordinate."""

    def prescribed(self, name: str, motion: Any) -> Joint:
        """Return the joint that prescribes the coordinate as a function of time."""
        raise NotImplementedError(f"{type(self).__name__}.prescribed")

    def driven(self, name: str, force: Number, input: int | None, gain: Number) -> Any:
        """Return the actuator force along the coordinate."""
        raise NotImplementedError(f"{type(self).__name__}.driven")


@pytree
class Revolute(PointOfBoth, Movable):
    """A pin: a point of a and a point of b coincide, and the bodies turn freely."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m"}
    coordinates: ClassVar[dict[str, str]] = {"angle": "rad"}

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points, in m."""
        gap = joint_measures.gap(self, a, b)
        return gap.x, gap.y

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the joint angle in rad."""
        return (joint_measures.turn(self, a, b),)

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the rotation about the point."""
        return (axis(1.0, (0.0, 0.0), "angle", "rad"),)

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the joint frames at the points, parallel to the body frames."""
        return joint_measures.parallel(self.point_a), joint_measures.parallel(self.point_b)

    def prescribed(self, name: str, motion: Any) -> PrescribedAngle:
        """Return the joint that prescribes the angle as a function of time."""
        return PrescribedAngle(name, self.a, self.b, motion)

    def driven(self, name: str, force: Number, input: int | None, gain: Number) -> Torque:
        """Return the motor torque at the joint."""
        return Torque(name, self.a, self.b, force, input, gain)


@pytree
class Prismatic(PointOfBoth, AxisInA, Movable):
    """A slider: b moves along an axis fixed in a, without turning against a.

    With `at`, `axis` is a direction in the world at the start pose. With `point_a` and `point_b`, it is a
    direction in the frame of a.
    """

    rows: ClassVar[dict[str, str]] = {"normal": "m", "angle": "rad"}
    coordinates: ClassVar[dict[str, str]] = {"slide": "m"}
    line: ClassVar[str] = "the direction of the slide"

    angle: Number = fields.at_start(
        "the rotation of b against a", "rad", joint_measures.turn, in_config=False
    )

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distance from the line in m, and the relative rotation in rad."""
        return joint_measures.across(self, a, b), b.angle - a.angle - self.angle

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slide along the axis in m."""
        return (joint_measures.along(self, a, b),)

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return the slide along the axis."""
        return (axis(0.0, self.axis, "slide", "m"),)

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the joint frames at the points, parallel to the frame of a."""
        return joint_measures.parallel(self.point_a), joint_measures.parallel(self.point_b, -self.angle)

    def prescribed(self, name: str, motion: Any) -> PrescribedSlide:
        """Return the joint that prescribes the slide as a function of time."""
        return PrescribedSlide(
            name, self.a, self.b, self.axis, self.at, self.point_a, self.point_b, motion=motion
        )

    def driven(self, name: str, force: Number, input: int | None, gain: Number) -> SlideForce:
        """Return the actuator force along the slide."""
        return SlideForce(
            name, self.a, self.b, self.axis, self.at, self.point_a, self.point_b, force, input, gain
        )


@pytree
class Weld(PointOfBoth, Joint):
    """Two bodies move as one. The relative rotation is that of the start pose."""

    rows: ClassVar[dict[str, str]] = {"x": "m", "y": "m", "angle": "rad"}

    angle: Number = fields.at_start(
        "the rotation of b against a", "rad", joint_measures.turn, in_config=False
    )

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap between the points in m, and the relative rotation in rad."""
        gap = joint_measures.gap(self, a, b)
        return gap.x, gap.y, b.angle - a.angle - self.angle

    in_tree: ClassVar[bool] = True

    def steps(self) -> tuple[Step, ...]:
        """Return an empty tuple, because a weld has no degrees of freedom."""
        return ()

    def joint_frames(self) -> tuple[Frame, Frame]:
        """Return the joint frames at the points, parallel to the frame of a."""
        return joint_measures.parallel(self.point_a), joint_measures.parallel(self.point_b, -self.angle)


@pytree
class PointOnLine(PointOfBoth, AxisInA, Joint):
    """A pin in a slot: a point of b stays on a line that is fixed in a, and b turns freely.

    The line passes through the point of a along `axis`, which is specified as for `Prismatic`.
    """

    rows: ClassVar[dict[str, str]] = {"normal": "m"}
    line: ClassVar[str] = "the direction of the line"

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distance from the line, in m."""
        return (joint_measures.across(self, a, b),)


@pytree
class Gear(TwoBodies, Joint):
    """theta_b = ratio theta_a, both counted from the start pose; a negative ratio for external gears."""

    rows: ClassVar[dict[str, str]] = {"angle": "rad"}
    relative: ClassVar[bool] = False

    ratio: Number = fields.number(
        "the rotation of b divided by the rotation of a; negative for external gears"
    )
    offset: Number = fields.at_start(
        "theta_b - ratio theta_a", "rad", lambda gear, a, b: b.angle - gear.ratio * a.angle, in_config=False
    )

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the phase error in rad."""
        return (b.angle - self.ratio * a.angle - self.offset,)


@pytree
class Skate(PointOfB, AxisInB, Joint):
    """A blade or wheel without lateral slip: a point of b moves over a only along `axis`, fixed in b.

    The row constrains velocity, not position: on the ground, -sin(theta) x' + cos(theta) y' = 0 for a blade
    along the x axis of b. With `at`, `axis` is a direction in the world at the start pose. With `point_b`, it
    is a direction in the frame of b.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"normal": "m/s"}
    site: ClassVar[str] = "the blade"
    line: ClassVar[str] = "the direction of the blade"

    a: BodyName = fields.body("the body with the surface, or ground")
    b: BodyName = fields.body("the body with the blade")

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the blade velocity normal to its axis, relative to the point of a beneath it, in m/s."""
        place = b.point(self.point_b)
        slip = moving_b.at(b, place) - moving_a.at(a, place)
        return (slip.dot(b.direction(self.axis).quarter_turn()),)


@pytree
class RackAndPinion(PointOfBoth, AxisInA, Joint):
    """A pinion of b rolls without slip on a rack of a: its center moves as far as its rim turns.

    The center is the point of b. `axis` is the direction of the rack, specified as for `Prismatic`. With a
    positive radius, the pinion is to the left of the rack when looking along the axis (a wheel on the ground,
    looking along the x axis). With a negative radius, it is to the right. Both motions are measured from the
    start pose. The joint transmits only the force along the rack. Another joint, such as `PointOnLine`, must
    hold the center at its distance from the rack.
    """

    rows: ClassVar[dict[str, str]] = {"slip": "m"}
    site: ClassVar[str] = "the center of the pinion"
    line: ClassVar[str] = "the direction of the rack"

    a: BodyName = fields.body("the body with the rack, or ground")
    b: BodyName = fields.body("the body with the pinion, or ground")
    radius: Number = fields.number(
        "the radius of the pinion; negative if the pinion is on the other side of the rack,",
        "m",
        kw_only=True,
        nonzero=NO_RADIUS,
    )
    offset: Number = fields.at_start(
        "the slide and the turn", "m", lambda joint, a, b: joint.rolled(a, b), in_config=False
    )

    def rolled(self, a: Frame, b: Frame) -> Any:
        """Return the slide of the center along the rack plus the rim travel, in m."""
        return joint_measures.along(self, a, b) + self.radius * joint_measures.turn(self, a, b)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slip of the rim on the rack in m; the multiplier is the force along the rack in N."""
        return (self.rolled(a, b) - self.offset,)


PLANAR_JOINTS = (
    Revolute,
    Prismatic,
    Weld,
    Rod,
    PointOnLine,
    Gear,
    PrescribedMotion,
    Skate,
    RackAndPinion,
    Relation,
    TendonRelation,
    *WHEELS,
)
