"""Relations between coordinates of joints, as a user describes them; what they do is in `jaxdae.mechanisms.relations`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import Joint, Name, Number
from jaxdae.mechanisms.kinds import Known, unknown_coordinate
from jaxdae.mechanisms.values import concrete
from jaxdae.spelling import brief


@pytree
class Relation(Joint):
    """The coordinate of a `joint` follows that of an `other` one: s - reference = p(s_other - other_reference), p a polynomial.

    A mimic joint of a robot file with its multiplier and offset has the coefficients (offset, multiplier) and both references zero; gears
    between two joints have (0, ratio). References are those of the start pose by default.
    """

    name: Name = fields.name("joint")
    joint: Any = fields.joint("the joint that follows")
    other: Any = fields.joint("the joint that is followed")
    coefficients: Any = fields.numbers("c0, c1, c2, ... of the polynomial", value=(0.0, 1.0))
    reference: Number = fields.number(
        "what is taken from the coordinate", "rad or m", value=None, may_be_none=True, default="that of the start pose"
    )
    other_reference: Number = fields.number(
        "what is taken from the coordinate that is followed", "rad or m", value=None, may_be_none=True, default="that of the start pose"
    )
    along: Any = fields.coordinate("which coordinate of the joint, such as slide or angle; left out: the first")
    other_along: Any = fields.coordinate("which coordinate of the other joint; left out: the first")

    def unknown(self, names: Known) -> Iterable[str]:
        """Yields coordinates that the joints do not have, and a coordinate that is to follow itself."""
        yield from unknown_coordinate(self.joint, self.along, names)
        yield from unknown_coordinate(self.other, self.other_along, names, "other_along")
        own = names.coordinates.get(self.joint, ())
        if self.joint == self.other and _index(own, self.along) == _index(own, self.other_along):
            yield f"relates the coordinate of {self.joint!r} to itself: name another joint, or another coordinate of it as other_along"


@pytree
class TendonRelation(Joint):
    """A weighted sum of joint coordinates follows another one: L - reference = p(L_other - other_reference), p a polynomial.

    The sums are lengths as those of `Tendon`; without `others` the first one is held at reference + c0. Of each joint it is the first
    coordinate that counts. References are those of the start pose by default.
    """

    name: Name = fields.name("joint")
    joints: Any = fields.joint_names("the joints of the sum, of each its first coordinate")
    weights: Any = fields.numbers("the weights of their coordinates, m/rad or 1", value=(1.0,), required=True)
    others: Any = fields.joint_names("the joints of the sum that is followed; left out: none", default=())
    other_weights: Any = fields.numbers("the weights of their coordinates, m/rad or 1", value=(1.0,))
    coefficients: Any = fields.numbers("c0, c1, c2, ... of the polynomial", value=(0.0, 1.0))
    reference: Number = fields.number("what is taken from the sum", "m", value=None, may_be_none=True, default="that of the start pose")
    other_reference: Number = fields.number(
        "what is taken from the sum that is followed", "m", value=None, may_be_none=True, default="that of the start pose"
    )

    def unknown(self, names: Known) -> Iterable[str]:
        """Yields weights that are not one for each joint."""
        yield from one_each(self.joints, self.weights, "weights")
        if self.others:
            yield from one_each(self.others, self.other_weights, "other_weights")


def one_each(joints: Any, weights: Any, field: str) -> Iterable[str]:
    """Yields weights that are not one for each joint."""
    numbers = concrete(weights)
    if numbers is not None and isinstance(joints, tuple | list) and numbers.shape != (len(joints),):
        yield f"{field} must be one number for each of the {len(joints)} joints, got {brief(weights)}"


def joint_coordinate(joint: Any, along: Any) -> int:
    """Returns which coordinate of a joint has a name; None is the first one."""
    return _index(tuple(joint.coordinates), along)


def _index(names: Sequence[str], along: Any) -> int:
    """Returns which of the names is meant, -1 for none of them."""
    return 0 if along is None else list(names).index(along) if along in names else -1
