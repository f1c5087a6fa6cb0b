"""Joint coordinates prescribed as functions of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxisInA, PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import Joint, Number, Rows
from jaxdae.mechanisms.describe.motions import motion_doubts
from jaxdae.mechanisms.joints import joint_measures


@pytree
class PrescribedMotion(Joint):
    """An ideal drive: the coordinate of a `joint` is a function of time, counted from the start pose.

    The motion needs a continuous velocity. At a jump of the velocity, a method without projection opens the
    joint at the rate of the jump, with the status OK; `info.violation` shows the opening. Use `Projected`.

    Attributes:
        name: unique among the joints.
        joint: the name of the `Revolute` (angle in rad) or `Prismatic` (slide in m).
        motion: called with t (s): a pytree such as `Sinusoid` or `Polynomial`, whose numbers are leaves, or a
            plain function.
    """

    joint: Any = fields.joint("the revolute or prismatic driven joint")
    motion: Any = fields.motion(
        "the coordinate over time, {type: polynomial, coefficients: [...]} or {type: sinusoid, ...}"
    )

    @property
    def conserves_energy(self) -> bool:
        """False, because motors do work."""
        return False

    def resolved(self, joints: Mapping[str, Any]) -> Joint:
        """Return the joint that prescribes the named joint's coordinate."""
        return joints[self.joint].prescribed(self.name, self.motion)


class _Prescribed(Joint):
    """A joint that prescribes a coordinate as a function of time."""

    prescribes: ClassVar[bool] = True

    motion: Any

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about angles of the motion that are probably in degrees."""
        yield from motion_doubts(self.motion, is_angle="rad" in self.rows.values())

    @property
    def key(self) -> str:
        """The name of the element's group, from the motion type."""
        return f"{self.type_key()}_{type(self.motion).__name__.lower()}"


@pytree
class PrescribedAngle(TwoBodies, _Prescribed):
    """The angle of a revolute joint since the start is a given function of time."""

    rows: ClassVar[dict[str, str]] = {"angle": "rad"}

    motion: Any = fields.motion("the angle over time")
    offset: Number = fields.at_start("the angle at the start", "rad", joint_measures.turn)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the error of the angle in rad; the multiplier is the motor torque in N m."""
        return (b.angle - a.angle - self.offset - self.motion(t),)


@pytree
class PrescribedSlide(PointOfBoth, AxisInA, _Prescribed):
    """The slide of a prismatic joint since the start is a given function of time."""

    rows: ClassVar[dict[str, str]] = {"slide": "m"}

    motion: Any = fields.motion("the slide over time", kw_only=True)
    offset: Number = fields.at_start("the slide at the start", "m", joint_measures.along)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the error of the slide in m; the multiplier is the motor force in N."""
        return (joint_measures.along(self, a, b) - self.offset - self.motion(t),)
