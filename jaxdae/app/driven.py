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


_OF_SECOND_ORDER = {
    "bodies": ("mass", "inertia"),
    "joints": ("damping", "friction", "friction_speed", "stiffness", "rest", "armature"),
}
"""The numbers of bodies and joints that do not change the motion of first order."""


def idle_problem(document: Document, values: Any, place: Location, path: str, location: Location) -> Problem | None:
    """Return the problem of an entry that varies a number without effect; None if the number acts.

    A force that a table or a law drives ignores its constant. A mechanism of first order ignores masses, gravity
    and the springs, damping, friction and armature of joints.

    Args:
        document: the config as written.
        values: the config as plain values, as written or validated.
        place: the place of the entry.
        path: the path of the number in the entry.
        location: the place of the number. The entries of a torque in space say along which direction it acts.
    """
    if _is_driven(values, location):
        return document.problem(place, f"{path!r}, in whose place an input acts", "a number that acts", "remove it, or the input")
    below = location[1:]
    unused = below[:1] == ("gravity",) or (len(below) > 2 and below[2] in _OF_SECOND_ORDER.get(str(below[0]), ()))
    if location[:1] == ("mechanism",) and unused and value_at(values, ("mechanism", "order")) == "first":
        got = f"{path!r}, which does not change the motion of a mechanism with order: first"
        return document.problem(place, got, "a number that acts", "remove it, or use order: second")
    return None


def _is_driven(values: Any, location: Location) -> bool:
    """Return whether a number is the constant of a force that a table or a law drives."""
    force = value_at(values, location[:3])
    if location[:2] != ("mechanism", "forces") or len(location) != 4 or location[3] != NUMBERS.get(str(value_at(force, ("type",)))):
        return False
    given = [value_at(values, (key, "inputs")) for key in ("controls", "control")]
    name = value_at(force, ("name",))
    return isinstance(name, str) and any(name in names for names in given if isinstance(names, dict | list))
