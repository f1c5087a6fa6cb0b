"""Coordinates of spatial joints prescribed as functions of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.spatial_frames import Frame
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.attachments import TwoBodies
from jaxdae.mechanisms.describe.elements import Joint, Number, Rows
from jaxdae.mechanisms.describe.kinds import Known, unknown_coordinate
from jaxdae.mechanisms.describe.motions import motion_doubts
from jaxdae.mechanisms.joints import spatial_measures as parts
from jaxdae.mechanisms.joints.spatial_base import SpatialJoint


@pytree
class PrescribedMotion(SpatialJoint):
    """An ideal drive: a joint coordinate minus `reference` (default: its start value) is a function of time.

    The motion needs a continuous velocity. At a jump of the velocity, a method without projection opens the
    joint at the rate of the jump, with the status OK; `info.violation` shows the opening. Use `Projected`.

    Attributes:
        name: unique among the joints.
        joint: the name of a joint with coordinates, such as `Revolute` or `Cylindrical`.
        motion: called with t (s): a pytree such as `Sinusoid` or `Polynomial`, whose numbers are leaves, or a
            plain function.
        along: the name of the coordinate, such as "slide" or "angle"; None for the first coordinate.
        reference: the coordinate in m or rad from which the motion is measured; None for its value at the
            start pose.
    """

    joint: Any = fields.joint("the driven joint")
    motion: Any = fields.motion(
        "the coordinate over time, {type: polynomial, coefficients: [...]} or {type: sinusoid, ...}"
    )
    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")
    reference: Number = fields.number(
        "the zero of the motion",
        "rad or m",
        value=None,
        may_be_none=True,
        default="the value at the start pose",
    )

    @property
    def conserves_energy(self) -> bool:
        """False, because motors do work."""
        return False

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the joint does not have the coordinate."""
        return unknown_coordinate(self.joint, self.along, names)

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the joint that prescribes the named joint's coordinate."""
        joint = joints[self.joint]
        names = list(joint.coordinates)
        number = 0 if self.along is None else names.index(self.along)
        kind = PrescribedAngle if joint.coordinates[names[number]] == "rad" else PrescribedSlide
        return kind(self.name, joint.a, joint.b, joint, self.motion, number, self.reference)


@pytree
class _Prescribed(TwoBodies, SpatialJoint):
    """A joint that prescribes a coordinate of another joint as a function of time."""

    prescribes: ClassVar[bool] = True
    described: ClassVar[Mapping[str, str]] = {"reference": "offset"}

    joint: Any = fields.inner()
    motion: Any = fields.motion("the coordinate over time")
    number: Any = fields.index("which coordinate")
    offset: Number = fields.at_start(
        "the coordinate at the start", "rad or m", lambda joint, a, b: joint.measured(a, b)
    )

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about angles of the motion and its zero that are probably in degrees."""
        is_angle = "rad" in self.rows.values()
        yield from motion_doubts(self.motion, is_angle=is_angle)
        if is_angle:
            yield from doubts_of("reference", [self.offset], rests_in_degrees)

    @property
    def key(self) -> str:
        """The name of the element's group, from the motion type, the joint type and the coordinate index."""
        return (
            f"{self.type_key()}_{type(self.motion).__name__.lower()}_{self.joint.type_key()}_{self.number[0]}"
        )

    def measured(self, a: Frame, b: Frame) -> Any:
        """Return the coordinate in m or rad."""
        return self.joint.coordinate(a, b, None)[self.number[0]]


@pytree
class PrescribedAngle(_Prescribed):
    """An angle of a joint, less an offset, is a given function of time."""

    rows: ClassVar[dict[str, str]] = {"angle": "rad"}

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the angle error in rad, reduced by full turns; the multiplier is the motor torque in N m."""
        return (parts.nearest_turn(self.measured(a, b) - self.offset - self.motion(t)),)


@pytree
class PrescribedSlide(_Prescribed):
    """A slide of a joint, less an offset, is a given function of time."""

    rows: ClassVar[dict[str, str]] = {"slide": "m"}

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the error of the slide in m; the multiplier is the motor force in N."""
        return (self.measured(a, b) - self.offset - self.motion(t),)
