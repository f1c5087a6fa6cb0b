"""User descriptions of tendons over joints; `jaxdae.mechanisms.couplings.weighted_sums` implements them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.elements import Force, Number
from jaxdae.mechanisms.describe.kinds import Known
from jaxdae.mechanisms.describe.numbers import concrete, is_there, shown
from jaxdae.mechanisms.forces.motors import NO_RATIO
from jaxdae.mechanisms.joints.relation_elements import one_each


@pytree
class Tendon(Force):
    """A tendon whose length L is a weighted sum of joint coordinates; each receives effort times weight.

    With rate V = L', the tendon has the effort

        -stiffness (L - L0) - damping V - friction tanh(V / friction_speed)
        + ratio clip((g0 + g1 ratio L + g2 ratio V) clip(u) + b0 + b1 ratio L + b2 ratio V).

    Each joint coordinate receives this effort times its weight. L0 is the point nearest to L between
    `slack_from` and `slack_to`, where the spring has no force. The second line is the actuator law of
    `Actuator`, with its `gain` g, `bias` b and bounds. Each joint contributes its first coordinate. Angles
    that are coordinates count full turns; in `Joints()` these are the angles of the tree. For other angles in
    space, an effort that depends on L jumps at half a turn: the status is OUT_OF_RANGE within 0.2 rad of half
    a turn.
    """

    joints: Any = fields.joint_names("the joints that it spans; the first coordinate of each counts")
    weights: Any = fields.numbers(
        "the derivatives of the length with respect to the coordinates, m/rad or 1",
        value=(1.0,),
        required=True,
    )
    stiffness: Number = fields.number("the stiffness", "N/m", value=0.0, at_least=0.0)
    damping: Number = fields.number("the damping", "N s/m", value=0.0, at_least=0.0)
    slack_from: Number = fields.number(
        "the least length at which the spring is slack",
        "m",
        value=None,
        may_be_none=True,
        default="the length at the start pose",
        needs="stiffness",
    )
    slack_to: Number = fields.number(
        "the largest length at which the spring is slack",
        "m",
        value=None,
        may_be_none=True,
        default="the length at the start pose",
        needs="stiffness",
    )
    friction: Number = fields.number("the dry friction", "N", value=0.0, at_least=0.0)
    friction_speed: Number = fields.number(
        "the speed at which friction reaches 76 % of its maximum",
        "m/s",
        value=0.01,
        above=0.0,
        needs="friction",
    )
    input: Any = fields.input_index()
    ratio: Number = fields.number(
        "actuator travel per unit of tendon length; may be negative", value=1.0, nonzero=NO_RATIO
    )
    gain: Any = fields.numbers(
        "input force, and its derivatives with respect to length and rate, N",
        value=(1.0, 0.0, 0.0),
        needs="input",
    )
    bias: Any = fields.numbers(
        "force without input, and its derivatives with respect to length and rate, N", value=(0.0, 0.0, 0.0)
    )
    least_force: Number = fields.number(
        "the least force", "N", value=None, may_be_none=True, default="no bound"
    )
    most_force: Number = fields.number(
        "the largest force", "N", value=None, may_be_none=True, default="no bound"
    )
    least_input: Number = fields.number(
        "the least input", value=None, may_be_none=True, default="no bound", needs="input"
    )
    most_input: Number = fields.number(
        "the largest input", value=None, may_be_none=True, default="no bound", needs="input"
    )

    @property
    def conserves_energy(self) -> bool:
        """Whether the tendon is a spring alone."""
        return self.input is None and not any(is_there(x) for x in (self.damping, self.friction, self.bias))

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error unless there is one weight per joint."""
        return one_each(self.joints, self.weights, "weights")

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for bounds in the wrong order, and for feedback that does not have three numbers."""
        for least, most in (
            ("slack_from", "slack_to"),
            ("least_force", "most_force"),
            ("least_input", "most_input"),
        ):
            low, high = (
                None if (x := getattr(self, name)) is None else concrete(x) for name in (least, most)
            )
            if low is not None and high is not None and np.any(low > high):
                yield f"{least} {low:g} must not be above {most} {high:g}"
        ratio, bias = concrete(self.ratio), concrete(self.bias)
        bounded = self.least_force is not None or self.most_force is not None
        if (
            ratio is not None
            and bias is not None
            and ratio != 1.0
            and not (np.any(bias) or bounded or self.input is not None)
        ):
            yield f"ratio has no effect without input and bias, got ratio = {shown(self.ratio)}; remove ratio"
        for name in ("gain", "bias"):
            numbers = concrete(getattr(self, name))
            if numbers is not None and numbers.ndim == 1 and numbers.shape != (3,):
                yield (
                    f"{name} must be three numbers: constant term, derivative by length, derivative by rate"
                )
