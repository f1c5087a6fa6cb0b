"""How far joints are open, in the units of a workshop: what is left of their rows, joint by joint. On the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Opening(NamedTuple):
    """How far a joint is open.

    Attributes:
        joint: its name.
        distance: the root of the sum of squares of its rows in m.
        angle: the same of its rows in rad.
    """

    joint: str
    distance: float
    angle: float

    def __str__(self) -> str:
        """Returns the opening in mm and degrees."""
        # Without an exponent: the workshop has none.
        ways = [f"{1e3 * self.distance:.{'3g' if self.distance < 0.9995 else '0f'}} mm"] if self.distance else []
        turns = [f"{np.degrees(self.angle):.3g} degrees"] if self.angle else []
        return f"{self.joint} by {' and '.join([*ways, *turns])}"


def openings(names: Sequence[str], units: Sequence[str], residual: Any, tolerance: float) -> tuple[Opening, ...]:
    """Returns the joints that are open, the widest first.

    Args:
        names: of the rows at position level, such as "pin.x"; what is before the last dot is the joint.
        units: of the rows, m or rad; rows without a unit are left out.
        residual: of the rows (ng,).
        tolerance: largest residual in m or rad that counts as closed. Rows of an open joint that are closed count as zero.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for name, unit, value in zip(names, units, np.asarray(residual, float), strict=False):
        if unit in ("m", "rad") and not abs(value) <= tolerance:
            found.setdefault(name.rsplit(".", 1)[0], {"m": [], "rad": []})[unit].append(float(value))
    joints = [Opening(joint, *(float(np.linalg.norm(rows[unit])) for unit in ("m", "rad"))) for joint, rows in found.items()]
    return tuple(sorted(joints, key=lambda opening: -max(opening.distance, opening.angle)))
