"""Loop-closure error of each joint, in millimeters and degrees. Computed on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Opening(NamedTuple):
    """Loop-closure error of a joint.

    Attributes:
        joint: the name of the joint.
        distance: the root of the sum of squares of its rows in m.
        angle: the root of the sum of squares of its rows in rad.
    """

    joint: str
    distance: float
    angle: float

    def __str__(self) -> str:
        """Return the joint with its error in mm and degrees."""
        # Avoid exponents: print distances from 0.9995 m on in whole mm.
        ways = (
            [f"{1e3 * self.distance:.{'3g' if self.distance < 0.9995 else '0f'}} mm"] if self.distance else []
        )
        turns = [f"{np.degrees(self.angle):.3g} degrees"] if self.angle else []
        return f"{self.joint} by {' and '.join([*ways, *turns])}"


def openings(
    names: Sequence[str], units: Sequence[str], residual: Any, tolerance: float
) -> tuple[Opening, ...]:
    """Return the joints with a loop-closure error above the tolerance, largest error first.

    Args:
        names: the names of the rows at position level, such as "pin.x"; the part before the last dot names
            the joint.
        units: the units of the rows, m or rad; rows without a unit are ignored.
        residual: the residuals of the rows (ng,).
        tolerance: the largest residual, in m or rad, of a closed row. Closed rows of an open joint count as
            zero.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, unit, value in zip(names, units, np.asarray(residual, float), strict=False):
        if unit in ("m", "rad") and not abs(value) <= tolerance:
            found.setdefault(name.rsplit(".", 1)[0], {"m": [], "rad": []})[unit].append(float(value))
    joints = [
        Opening(joint, *(float(np.linalg.norm(rows[unit])) for unit in ("m", "rad")))
        for joint, rows in found.items()
    ]
    return tuple(sorted(joints, key=lambda opening: -max(opening.distance, opening.angle)))
