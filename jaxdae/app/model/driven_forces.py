"""Forces of a config that a time-varying input can drive, and the number that the input replaces.

A torque in space has three components. Its input is the magnitude in N m along the direction given in the
config.
"""

import math
from typing import Any

from jaxdae.app.config.config_source import Document, Location, value_at
from jaxdae.app.config.problems import Problem

NUMBERS = {"torque": "torque", "joint_force": "force", "motor": "torque"}
"""The number that an input replaces, by type of force."""


def start(force: Any) -> float:
    """Return the constant value, in N m or N, that an input replaces, from the plain values of a force."""
    value = force[NUMBERS[force["type"]]]
    return math.hypot(*value) if isinstance(value, list | tuple) else float(value)


def with_input(force: dict[str, Any], index: int) -> dict[str, Any]:
    """Replace the constant in the plain values of a force by the input with this index."""
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
"""The numbers of bodies and joints that do not affect the motion of a first-order mechanism."""


def idle_problem(
    document: Document, values: Any, place: Location, path: str, location: Location
) -> Problem | None:
    """Return a problem if an entry varies a number without effect, else None.

    A force that a table or a law drives ignores its constant. A first-order mechanism ignores masses, gravity
    and the springs, damping, friction and armature of joints.

    Args:
        document: the config as written.
        values: the config as plain values, as written or validated.
        place: the location of the entry.
        path: the path of the number in the entry.
        location: the location of the number. A component of a torque in space has an effect even if an input
            drives the torque, because it changes the direction.
    """
    if _is_driven(values, location):
        return document.problem(
            place,
            f"{path!r}, which an input replaces",
            "a number that affects the motion",
            "remove it, or the input",
        )
    below = location[1:]
    unused = below[:1] == ("gravity",) or (
        len(below) > 2 and below[2] in _OF_SECOND_ORDER.get(str(below[0]), ())
    )
    if location[:1] == ("mechanism",) and unused and value_at(values, ("mechanism", "order")) == "first":
        got = f"{path!r}, which does not change the motion of a mechanism with order: first"
        return document.problem(
            place, got, "a number that affects the motion", "remove it, or use order: second"
        )
    return None


def _is_driven(values: Any, location: Location) -> bool:
    """Return whether a number is the constant of a force that a table or a law drives."""
    force = value_at(values, location[:3])
    if (
        location[:2] != ("mechanism", "forces")
        or len(location) != 4
        or location[3] != NUMBERS.get(str(value_at(force, ("type",))))
    ):
        return False
    given = [value_at(values, (key, "inputs")) for key in ("controls", "control")]
    name = value_at(force, ("name",))
    return isinstance(name, str) and any(name in names for names in given if isinstance(names, dict | list))
