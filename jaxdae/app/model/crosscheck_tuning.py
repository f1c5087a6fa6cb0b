"""Check the sections `tune` and `optimize` against the rest of a config: paths, bounds and names."""

from collections.abc import Iterator
from typing import Any

import annotated_types

from jaxdae.app.config.config_source import Document, Location, entry_names, find, value_at
from jaxdae.app.config.explain import expectation, field_at
from jaxdae.app.config.problems import Problem, did_you_mean, is_number, show
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_mechanism import space_of
from jaxdae.app.model import coordinate_names, driven_forces
from jaxdae.app.model.coordinate_names import Entries

TRAINABLE = ("mechanism", "start", "stabilization", "integrator", "control")
_DIMENSIONS = {"plane": 2, "space": 3}


def target(resolved: Any, path: str) -> tuple[Location, list[str]]:
    """Return the location of a path and the rest of the path that does not resolve.

    A start velocity resolves even if the config omits it.
    """
    location, rest = find(resolved, path.split("."))
    if location == ("start", "velocities") and len(rest) == 1:
        return (*location, rest[0]), []
    return location, rest


def bounds(resolved: Any, location: Location, lower: Any, upper: Any) -> tuple[Any, Any]:
    """Tighten the given bounds of a number by the bounds of the schema, such as 0 for a mass."""
    field = field_at(Config, resolved, location)
    for item in field[1] if field else ():
        least = (
            getattr(item, "gt", None) if isinstance(item, annotated_types.Gt) else getattr(item, "ge", None)
        )
        most = (
            getattr(item, "lt", None) if isinstance(item, annotated_types.Lt) else getattr(item, "le", None)
        )
        lower = lower if least is None else least if lower is None else max(lower, least)
        upper = upper if most is None else most if upper is None else min(upper, most)
    return lower, upper


def tuning_problems(document: Document, resolved: Any, entries: Entries | None) -> Iterator[Problem]:
    """Yield the conflicts between the sections `tune` and `optimize` and the rest of the config.

    Args:
        document: the config as written.
        resolved: its values, including defaults if the config passed validation.
        entries: the names of coordinates and velocities; None if errors make them unavailable.
    """
    rates = None if entries is None else list(entries.rates)
    parameters = value_at(document.data, ("tune", "parameters"))
    for index, entry in enumerate(parameters if isinstance(parameters, list) else []):
        yield from _parameter(
            document, resolved, rates, ("tune", "parameters", index), entry, parameters[:index]
        )
    inputs = value_at(document.data, ("optimize", "inputs"))
    for index, entry in enumerate(inputs if isinstance(inputs, list) else []):
        yield from _input(document, ("optimize", "inputs", index), entry, inputs[:index])
    for section in ("tune", "optimize"):
        terms = value_at(document.data, (section, "loss"))
        for index, term in enumerate(terms if isinstance(terms, list) else []):
            if isinstance(term, dict):
                yield from _term(document, entries, (section, "loss", index), term)


def _parameter(
    document: Document, resolved: Any, rates: list[str] | None, place: Location, entry: Any, before: list
) -> Iterator[Problem]:
    path = value_at(entry, ("path",))
    if not isinstance(path, str) or not path:
        return
    where = (*place, "path")
    location, rest = target(resolved, path)
    field = None if rest else field_at(Config, resolved, location)
    velocity = location[:2] == ("start", "velocities")
    if velocity and rates is None:
        return
    unknown_velocity = velocity and (len(location) != 3 or location[2] not in (rates or []))
    if rest or field is None or unknown_velocity:
        value = value_at(resolved, location)
        known = rates or [] if velocity else _names(value, location)
        word = location[2] if unknown_velocity and len(location) == 3 else (rest or [path])[0]
        inside = f"after {document.path(location)!r} " if location and not unknown_velocity else ""
        remedy = inside + did_you_mean(word, known, "keys")
        yield document.problem(
            where, f"the unknown path {path!r}", "the path of a number of this config", remedy
        )
        return
    if location[0] not in TRAINABLE or expectation(field[0]) != "a finite number":
        got = f"{path!r}, which is {expectation(field[0])}"
        yield document.problem(
            where, got, f"a number of the sections {', '.join(TRAINABLE)}", "for example stabilization.alpha"
        )
        return
    twice = [
        other
        for other in before
        if isinstance(value_at(other, ("path",)), str) and target(resolved, other["path"])[0] == location
    ]
    varied = value_at(document.data, ("batch", "vary"))
    varied = (
        [v["path"] for v in varied if isinstance(value_at(v, ("path",)), str)]
        if isinstance(varied, list)
        else []
    )
    if twice:
        yield document.problem(where, f"{path!r} a second time", "each number once", "remove one of them")
    if problem := driven_forces.idle_problem(document, resolved, where, path, location):
        yield problem
    if any(target(resolved, v)[0] == location for v in varied):
        yield document.problem(
            where,
            f"{path!r}, which batch.vary varies",
            "a number with the same value in all worlds",
            "remove one",
        )
    start = value_at(resolved, location)
    if start is None and velocity:
        start = 0.0
    lower, upper = (value_at(entry, (key,)) for key in ("lower", "upper"))
    if any(isinstance(bound, bool | str | list | dict) for bound in (lower, upper)):
        return
    if not is_number(start):
        yield document.problem(
            where, f"{path!r}, which has no value", "a start value", f"give {path} a value"
        )
        return
    yield from _inside(document, place, path, float(start), *bounds(resolved, location, lower, upper))


def _inside(
    document: Document, place: Location, what: str, start: Any, lower: Any, upper: Any
) -> Iterator[Problem]:
    low, high = lower is not None and start <= lower, upper is not None and start >= upper
    if low or high:
        limit = f"above {lower:g}" if low else f"below {upper:g}"
        yield document.problem(
            place,
            f"{what}, which starts at {start:g}",
            f"a start {limit}",
            "change the start value or the bound",
        )


def _in_tree(document: Document) -> list[str]:
    """Return the joints of the spanning tree; empty in absolute coordinates or if errors prevent the tree."""
    if value_at(document.data, ("mechanism", "coordinates")) != "joints":
        return []
    try:
        found = coordinate_names.tree(document.data)
    except ValueError:
        return []
    return [] if found is None else [edge.joint.name for edge in found.edges if edge.joint is not None]


def _names(value: Any, location: Location = ()) -> list[str]:
    if isinstance(value, dict):
        return [str(key) for key in value]
    if isinstance(value, list | tuple):
        named = [element["name"] for element in value if isinstance(value_at(element, ("name",)), str)]
        return named or entry_names(location[-1] if location else "", value)
    return []


def _input(document: Document, place: Location, entry: Any, before: list) -> Iterator[Problem]:
    name = value_at(entry, ("force",))
    forces = value_at(document.data, ("mechanism", "forces"))
    named = (
        {f["name"]: f for f in forces if isinstance(value_at(f, ("name",)), str)}
        if isinstance(forces, list)
        else {}
    )
    motors = [key for key, force in named.items() if str(force.get("type")) in driven_forces.NUMBERS]
    if not isinstance(name, str):
        return
    where = (*place, "force")
    if name not in motors:
        got = (
            f"the force {name!r} of type {show(named[name].get('type'))}"
            if name in named
            else f"the unknown force {name!r}"
        )
        yield document.problem(
            where,
            got,
            " or ".join(f"a {kind}" for kind in driven_forces.NUMBERS),
            did_you_mean(name, motors, "one"),
        )
        return
    if any(value_at(other, ("force",)) == name for other in before):
        yield document.problem(where, f"{name!r} a second time", "each force once", "remove one of them")
    start: Any = named[name].get(driven_forces.NUMBERS[str(named[name].get("type"))])
    if isinstance(start, list) and all(is_number(x) for x in start):
        start = driven_forces.start(named[name])
        if start == 0.0:
            remedy = "the input acts along the direction of the torque"
            yield document.problem(where, f"the torque {name!r} with magnitude 0", "a nonzero torque", remedy)
            return
    lower, upper = entry.get("lower"), entry.get("upper")
    if is_number(start) and all(x is None or is_number(x) for x in (lower, upper)):
        yield from _inside(document, place, name, start, lower, upper)


def _term(document: Document, entries: Entries | None, place: Location, term: dict) -> Iterator[Problem]:
    mechanism = value_at(document.data, ("mechanism",))
    bodies, joints, contacts = (value_at(mechanism, (key,)) for key in ("bodies", "joints", "contacts"))
    planar = value_at(mechanism, ("coordinates",)) != "joints" and space_of(mechanism) == "plane"
    known: list[str] = []
    if entries is not None:
        known = list(entries.rates) if term.get("type") == "velocity" else entries.names
    for key, there, what in (
        ("coordinate", known, "body.x, body.y or body.theta" if planar else "a coordinate of the mechanism"),
        ("body", _names(bodies if isinstance(bodies, list) else []), "a body of the mechanism"),
        ("joint", _names(joints if isinstance(joints, list) else []), "a joint of the mechanism"),
        ("contact", _names(contacts if isinstance(contacts, list) else []), "a contact of the mechanism"),
    ):
        named = term.get(key)
        if isinstance(named, str) and named not in there and (entries is not None or key != "coordinate"):
            yield document.problem(
                (*place, key), f"the unknown {key} {named!r}", what, did_you_mean(named, there)
            )
    if term.get("type") == "reaction" and term.get("joint") in _in_tree(document):
        got = (
            f"the joint {term['joint']!r}, which belongs to the tree of joint coordinates and has no "
            "multipliers"
        )
        yield document.problem(
            (*place, "joint"),
            got,
            "a joint that closes a loop",
            "use coordinates: absolute, or add it to cut",
        )
    for key in ("point", "target") if term.get("type") == "point" else ():
        given, size = term.get(key), _DIMENSIONS[space_of(mechanism)]
        if isinstance(given, list) and len(given) != size and len(given) in _DIMENSIONS.values():
            where = "in space" if size == 3 else "in the plane"
            yield document.problem(
                (*place, key), f"a list of {len(given)}", f"{size} numbers {where}", "give a position in m"
            )
    if term.get("type") == "effort" and place[0] == "tune":
        yield document.problem(
            (*place, "type"),
            "effort, but section tune has no inputs",
            "a term of the motion",
            "use it in the section optimize",
        )
