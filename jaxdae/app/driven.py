"""The forces of a config that an input over time can drive, and which number of theirs it takes the place of.

A torque in space has three numbers: the input is its size in N m, along the direction that the config gives it.
"""

import math
from typing import Any

NUMBERS = {"torque": "torque", "joint_force": "force", "motor": "torque"}
"""What an input drives, by the types of forces."""


def start(force: Any) -> float:
    """Returns the constant value of what an input drives, in N m or N, from the plain values of a force."""
    value = force[NUMBERS[force["type"]]]
    return math.hypot(*value) if isinstance(value, list | tuple) else float(value)


def with_input(force: dict[str, Any], index: int) -> dict[str, Any]:
    """Returns the plain values of a force that an input alone drives."""
    key = NUMBERS[force["type"]]
    if not isinstance(force[key], list | tuple):
        return force | {key: 0.0, "input": index}
    size = start(force)
    direction = tuple(entry / size for entry in force[key])
    return force | {key: (0.0, 0.0, 0.0), "direction": direction, "input": index}
