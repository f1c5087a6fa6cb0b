"""User descriptions of relations between joint coordinates.

`jaxdae.mechanisms.couplings.relations` implements them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.elements import Joint, Number
from jaxdae.mechanisms.describe.kinds import Known, unknown_coordinate
from jaxdae.mechanisms.describe.numbers import concrete, shown


@pytree
class Relation(Joint):
    """A joint coordinate s follows another: s - reference = p(s_other - other_reference), p a polynomial.

    A mimic joint of a robot file with multiplier and offset has coefficients (offset, multiplier) and both
    references zero. A gear pair between two joints has (0, ratio). The default references are the coordinates
    at the start pose.
    """

    joint: Any = fields.joint("the follower joint")
    other: Any = fields.joint("the leading joint")
    coefficients: Any = fields.numbers("c0, c1, c2, ... of the polynomial", value=(0.0, 1.0))
    reference: Number = fields.number(
        "the offset subtracted from the coordinate",
        "rad or m",
        value=None,
        may_be_none=True,
        default="the value at the start pose",
    )
    other_reference: Number = fields.number(
        "the offset subtracted from the leading coordinate",
        "rad or m",
        value=None,
        may_be_none=True,
        default="the value at the start pose",
    )
    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")
    other_along: Any = fields.coordinate("the coordinate of the other joint; default: the first")

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about angles that are probably in degrees: the constant and the references."""
        for joint, along, fields_of_angles in (
            (self.joint, self.along, {"coefficients[0]": self.coefficients[0], "reference": self.reference}),
            (self.other, self.other_along, {"other_reference": self.other_reference}),
        ):
            units = list(joints[joint].coordinates.values())
            if units[joint_coordinate(joints[joint], along)] == "rad":
                for name, angle in fields_of_angles.items():
                    yield from doubts_of(name, [angle], rests_in_degrees)

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield errors for coordinates that the joints lack, and for a coordinate that follows itself."""
        yield from unknown_coordinate(self.joint, self.along, names)
        yield from unknown_coordinate(self.other, self.other_along, names, "other_along")
        own = names.coordinates.get(self.joint, ())
        if self.joint == self.other and _index(own, self.along) == _index(own, self.other_along):
            yield (
                f"relates the coordinate of {self.joint!r} to itself; name another joint, or another of "
                "its coordinates as other_along"
            )


@pytree
class TendonRelation(Joint):
    """A tendon length L follows another: L - reference = p(L_other - other_reference), p a polynomial.

    The sums are lengths, as in `Tendon`. Without `others`, the first sum is held at reference + c0. Each
    joint contributes its first coordinate. The default references are the sums at the start pose.
    """

    joints: Any = fields.joint_names("the joints of the sum; the first coordinate of each counts")
    weights: Any = fields.numbers("the weights of their coordinates, m/rad or 1", value=(1.0,), required=True)
    others: Any = fields.joint_names("the joints of the leading sum; default: none", default=())
    other_weights: Any = fields.numbers(
        "the weights of their coordinates, m/rad or 1", value=(1.0,), needs="others"
    )
    coefficients: Any = fields.numbers("c0, c1, c2, ... of the polynomial", value=(0.0, 1.0))
    reference: Number = fields.number(
        "the offset subtracted from the sum",
        "m",
        value=None,
        may_be_none=True,
        default="the value at the start pose",
    )
    other_reference: Number = fields.number(
        "the offset subtracted from the leading sum",
        "m",
        value=None,
        may_be_none=True,
        default="the value at the start pose",
        needs="others",
    )

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error unless there is one weight per joint."""
        yield from one_each(self.joints, self.weights, "weights")
        if self.others:
            yield from one_each(self.others, self.other_weights, "other_weights")


def one_each(joints: Any, weights: Any, field: str) -> Iterable[str]:
    """Yield an error unless there is one weight per joint."""
    numbers = concrete(weights)
    if (
        numbers is not None
        and isinstance(joints, tuple | list)
        and joints
        and numbers.shape != (len(joints),)
    ):
        yield f"{field} must be one number per joint ({len(joints)} joints), got {shown(weights)}"


def joint_coordinate(joint: Any, along: Any) -> int:
    """Return the index of a joint coordinate by name; None is the first coordinate."""
    return _index(tuple(joint.coordinates), along)


def _index(names: Sequence[str], along: Any) -> int:
    """Return the index of a name, 0 for None, and -1 for an unknown name."""
    return 0 if along is None else list(names).index(along) if along in names else -1
