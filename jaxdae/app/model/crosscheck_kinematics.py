"""Check the section `map` against the mechanism of a config: names, dimensions and joint limits."""

from collections.abc import Iterator
from typing import Any

from jaxdae.app.config.config_source import Document, Location, value_at
from jaxdae.app.config.problems import Problem, did_you_mean
from jaxdae.app.config.schema_mechanism import space_of
from jaxdae.app.model import coordinate_names
from jaxdae.app.model.coordinate_names import Entries


def kinematics_problems(document: Document, entries: Entries | None) -> Iterator[Problem]:
    """Yield the conflicts between the section `map` and the mechanism.

    Args:
        document: the config as written.
        entries: the names of the coordinates; None if errors make them unavailable.
    """
    given = value_at(document.data, ("map",))
    if not isinstance(given, dict):
        return
    mechanism = value_at(document.data, ("mechanism",))
    plane = space_of(mechanism) == "plane"
    yield from _frame(document, ("map",), given)
    yield from _names(document, ("map", "actuated"), entries)
    for key in ("z", "rpy") if plane else ("theta",):
        if given.get(key) is not None:
            where = "in the plane" if plane else "in space"
            yield document.problem(("map", key), f"{key} {where}", f"no {key}", f"remove {key}")
    if not plane and "z" not in given:
        yield document.problem(("map",), "no z", "z in space", "add z: a number, or {lower, upper, cells}")
    quantities, joints = given.get("quantities"), value_at(mechanism, ("joints",))
    limited = isinstance(joints, list) and any(value_at(joint, ("limits",)) for joint in joints)
    if isinstance(quantities, list) and "margin" in quantities and not limited:
        place = ("map", "quantities", quantities.index("margin"))
        yield document.problem(
            place, "margin without joint limits", "a joint with limits", "add limits to a joint"
        )


def _frame(document: Document, place: Location, given: dict) -> Iterator[Problem]:
    """Yield the problems of `body` and `point` of a frame."""
    mechanism = value_at(document.data, ("mechanism",))
    rotors = [value_at(rotor, ("name",)) for rotor in value_at(mechanism, ("rotors",)) or ()]
    bodies = [name for name in coordinate_names.body_names(mechanism) if name not in rotors]
    body, point = given.get("body"), given.get("point")
    if isinstance(body, str) and body not in bodies:
        yield document.problem(
            (*place, "body"),
            f"the unknown body {body!r}",
            "a body of the mechanism",
            did_you_mean(body, bodies),
        )
    size = 2 if space_of(mechanism) == "plane" else 3
    if isinstance(point, list) and len(point) in (2, 3) and len(point) != size:
        expected = f"{size} numbers {'in the plane' if size == 2 else 'in space'}"
        yield document.problem((*place, "point"), f"a list of {len(point)}", expected, "give a point in m")


def _names(document: Document, place: Location, entries: Entries | None) -> Iterator[Problem]:
    """Yield the problems of a list of coordinates, named as in `jaxdae.kinematics`."""
    given = value_at(document.data, place)
    if entries is None or not isinstance(given, list):
        return
    full = list(entries.places)
    short = [name.rsplit(".", 1)[0] for name in full]
    known: dict[Any, str] = dict(zip(full, full, strict=True))
    known |= {name: full[k] for k, name in enumerate(short) if short.count(name) == 1}
    for k, name in enumerate(given):
        if not isinstance(name, str):
            continue
        if name not in known:
            got, expected = f"the unknown coordinate {name!r}", "a coordinate of the mechanism"
            yield document.problem((*place, k), got, expected, did_you_mean(name, full, "one"))
        elif known[name] in [known.get(other) for other in given[:k]]:
            yield document.problem(
                (*place, k), f"{name!r} a second time", "each coordinate once", "remove it"
            )
