"""A rod between two points, with the same equation in the plane and in space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import PointOfEach
from jaxdae.mechanisms.describe.elements import Joint, Number, Rows
from jaxdae.mechanisms.joints import joint_measures


@pytree
class Rod(PointOfEach, Joint):
    """A massless rod between a point of a and a point of b, by default as long as at the start pose."""

    rows: ClassVar[dict[str, str]] = {"length": "m"}
    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("damping", "stiffness"),
        "a rod has constant length; use the force LinearSpring for stiffness and damping",
    )

    length: Number = fields.at_start("the distance", "m", joint_measures.distance, above=0.0)

    def residual(self, a: Any, b: Any, t: Any) -> Rows:
        """Return (d^2 - L^2) / (2 L) in m: the elongation to first order, smooth at d = 0.

        The multiplier is the compressive force in N.
        """
        gap = joint_measures.gap(self, a, b)
        return ((gap.dot(gap) - self.length**2) / (2.0 * self.length),)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the default length would be zero."""
        ends = places["point_a"], places["point_b"]
        if self.length is None and ends[0] is not None and ends[1] is not None and np.array_equal(*ends):
            yield "its points coincide at the start pose, so its default length would be 0; give length"
