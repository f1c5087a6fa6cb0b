"""Check the sections `map` and `calibrate` against the mechanism of a config: names, dimensions and paths."""

from collections.abc import Iterator
from typing import Any

from jaxdae.app.config.config_source import Document, Location, value_at
from jaxdae.app.config.problems import Problem, did_you_mean
from jaxdae.app.config.schema_mechanism import TYPES, space_of
from jaxdae.app.model import coordinate_names
from jaxdae.app.model.coordinate_names import Entries
from jaxdae.kinematics.geometric_parameters import without_entry
from jaxdae.mechanisms.describe.number_kinds import Components, Number, PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import Direction, JointAxes, Point


def kinematics_problems(document: Document, entries: Entries | None) -> Iterator[Problem]:
    """Yield the conflicts between the sections `map` and `calibrate` and the mechanism.

    Args:
        document: the config as written.
        entries: the names of the coordinates; None if errors make them unavailable.
    """
    for section, check in (("map", _map), ("calibrate", _calibrate)):
        given = value_at(document.data, (section,))
        if isinstance(given, dict):
            yield from _names(document, (section, "actuated"), entries)
            yield from check(document, given)


def _map(document: Document, given: dict) -> Iterator[Problem]:
    mechanism = value_at(document.data, ("mechanism",))
    plane = space_of(mechanism) == "plane"
    yield from _frame(document, ("map",), given)
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


def _calibrate(document: Document, given: dict) -> Iterator[Problem]:
    measured: Any = given.get("measured")
    named = [value_at(one, ("name",)) for one in measured] if isinstance(measured, list) else []
    for k, name in enumerate(named):
        place = ("calibrate", "measured", k)
        if isinstance(measured[k], dict):
            yield from _frame(document, place, measured[k])
        if isinstance(name, str) and name in named[:k]:
            yield document.problem((*place, "name"), f"{name!r} a second time", "each name once", "rename it")
    actuated = given.get("actuated")
    for key in ("offsets", "parameters"):
        unknowns: Any = given.get(key)
        for k, name in enumerate(unknowns if isinstance(unknowns, list) else ()):
            place = ("calibrate", key, k)
            if isinstance(name, str) and name in unknowns[:k]:
                yield document.problem(place, f"{name!r} a second time", "each of them once", "remove it")
            elif key == "offsets" and isinstance(actuated, list) and name not in actuated:
                remedy = did_you_mean(name, actuated, "one")
                yield document.problem(place, f"{name!r}", "an actuated coordinate", remedy)
            elif key == "parameters" and isinstance(name, str):
                yield from _parameter(document, place, name, given.get("effort_std") is not None)


def _parameter(document: Document, place: Location, path: str, with_efforts: bool) -> Iterator[Problem]:
    """Yield the problem of a path that is not a geometric parameter, or not one that acts on efforts."""
    mechanism = value_at(document.data, ("mechanism",))
    types, known, acting = TYPES[space_of(mechanism)], [], ["gravity"]
    for body in coordinate_names.body_names(mechanism):
        acting += [f"bodies.{body}.{field}" for field in ("mass", "inertia", "center")]
    for section in ("joints", "forces"):
        listed = value_at(mechanism, (section,))
        for element in listed if isinstance(listed, list) else ():
            kind = types.get(str(value_at(element, ("type",))))
            for key, field in ({} if kind is None else kind.kinds()).items():
                geometric = section == "joints" and _geometric(field)
                (known if geometric else acting if _acts(field) else []).append(
                    f"{section}.{value_at(element, ('name',))}.{key}"
                )
    given = without_entry(path)
    if given in acting and not with_efforts:
        yield document.problem(
            place, f"{path!r} without efforts", "effort_std", "add effort_std, and efforts to the log"
        )
    elif given not in (*known, *acting):
        expected = "a point, axes or a length of a joint" + (
            ", or a parameter that acts on efforts" if with_efforts else ""
        )
        names = [*known, *(acting if with_efforts else ())]
        yield document.problem(
            place, f"the unknown path {path!r}", expected, did_you_mean(path, names, "one")
        )


def _geometric(kind: Any) -> bool:
    """Return whether a field of a joint has a geometric correction in `jaxdae.kinematics.calibrate`."""
    frame = isinstance(kind, Point | JointAxes) or type(kind) is Direction
    number = isinstance(kind, Number) and not isinstance(kind, PerCoordinate)
    return frame or (number and kind.unit in ("m", "rad"))


def _acts(kind: Any) -> bool:
    """Return whether a field of a joint or a force may act on efforts."""
    return isinstance(kind, Number | Components) and not kind.transient


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
