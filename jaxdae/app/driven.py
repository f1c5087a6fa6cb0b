"""The forces of a config that an input over time can drive, and which number of theirs it takes the place of.

A torque in space has three numbers: the input is its size in N m, along the direction that the config gives it.
"""

import math
from typing import Any

from jaxdae.app.problems import Problem
from jaxdae.app.source import Document, Location, value_at

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


def idle(values: Any, location: Location) -> bool:
    """Returns whether a number of a config is the constant of a force that a table or a law drives, which does nothing.

    Args:
        values: the config as plain values, as written or validated.
        location: where the number is. The entries of a torque in space say along which direction it acts.
    """
    force = value_at(values, location[:3])
    if location[:2] != ("mechanism", "forces") or len(location) != 4 or location[3] != NUMBERS.get(str(value_at(force, ("type",)))):
        return False
    given = [value_at(values, (key, "inputs")) for key in ("controls", "control")]
    name = value_at(force, ("name",))
    return isinstance(name, str) and any(name in names for names in given if isinstance(names, dict | list))


def idle_problem(document: Document, place: Location, path: str) -> Problem:
    """Returns what is wrong with an entry of a config, at a place, that names such a number by its path."""
    return document.problem(place, f"{path!r}, in whose place an input acts", "a number that acts", "remove it, or the input")
