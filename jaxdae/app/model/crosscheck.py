"""Checks between the parts of a config: names, references, connections and mutual consistency of numbers.

The checks read the values as written instead of the validated config. They therefore also run if the schema
finds errors, and they skip anything that the schema already reports.
"""

import math
from collections.abc import Iterator
from typing import Any, TypeGuard

from jaxdae.app.config.config_source import AXES, Document, Location, entry_names, find, value_at
from jaxdae.app.config.explain import expectation, field_at
from jaxdae.app.config.problems import Problem, did_you_mean, is_finite, is_whole, show
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_mechanism import DRIVE_TYPES, MOVABLE, TYPES, space_of
from jaxdae.app.model import config_laws as laws
from jaxdae.app.model import coordinate_names, driven_forces
from jaxdae.app.model.crosscheck_kinematics import kinematics_problems
from jaxdae.app.model.crosscheck_tuning import tuning_problems
from jaxdae.mechanisms.describe.function_kinds import Ground
from jaxdae.mechanisms.describe.kinds import JointName, JointNames

GROUND = "ground"
_MOST_STEPS = 100_000_000
_MOST_SAVED = 20_000_000_000
_VARIABLE = ("mechanism", "start", "stabilization")


def crosscheck(document: Document, config: Config | None = None) -> list[Problem]:
    """Return the problems between the parts of a config; `config` is its validated form, if available."""
    check = _Check(document, config)
    return [
        problem
        for part in (
            check.names,
            check.references,
            check.connections,
            check.cut,
            check.coordinates,
            check.steps,
            check.output,
            check.vary,
            check.tuning,
            check.kinematics,
            check.laws,
            check.idle,
        )
        for problem in part()
    ]


class _Check:
    def __init__(self, document: Document, config: Config | None):
        self.document = document
        self.data = document.data
        self.resolved = document.data if config is None else config.model_dump()
        self.bodies = list(self._elements("bodies"))
        self.rotors = list(self._elements("rotors"))
        self.joints = list(self._elements("joints"))
        self.forces = list(self._elements("forces"))
        self.drives = list(self._elements("drives"))
        self.contacts = list(self._elements("contacts"))
        self.body_names = [
            body["name"] for _, body in (*self.bodies, *self.rotors) if isinstance(body.get("name"), str)
        ]
        self.rotor_names = [rotor["name"] for _, rotor in self.rotors if isinstance(rotor.get("name"), str)]
        self.space = space_of(self._at("mechanism"))
        self.entries = coordinate_names.of_values(self.data)

    def _elements(self, key: str) -> Iterator[tuple[Location, dict]]:
        elements = self._at("mechanism", key)
        for index, element in enumerate(elements if isinstance(elements, list) else []):
            if isinstance(element, dict):
                yield ("mechanism", key, index), element

    def _at(self, *location: str | int) -> Any:
        """Return the value as written at a location, or None if it is missing."""
        return value_at(self.data, location)

    # names

    def names(self) -> Iterator[Problem]:
        for elements, what in (
            ([*self.bodies, *self.rotors], "body"),
            (self.joints, "joint"),
            (self.forces, "force"),
            (self.drives, "drive"),
            (self.contacts, "contact"),
        ):
            seen: dict[str, Location] = {}
            for location, element in elements:
                name = element.get("name")
                if not isinstance(name, str):
                    continue
                place = (*location, "name")
                if name == GROUND:
                    yield self.document.problem(
                        place,
                        f"the name {GROUND!r}",
                        f"another name for the {what}",
                        f"{GROUND} is the fixed world",
                    )
                elif name in seen:
                    remedy = f"rename one of them (the first is in {self.document.line(seen[name])})"
                    yield self.document.problem(
                        place, f"the {what} name {name!r} a second time", "each name once", remedy
                    )
                else:
                    seen[name] = place

    def references(self) -> Iterator[Problem]:
        for location, element in (*self.joints, *self.forces, *self.drives, *self.contacts):
            for key in ("a", "b", "body"):
                named = element.get(key)
                known = self.body_names if key == "body" else [*self.body_names, GROUND]
                if isinstance(named, str) and named not in known:
                    expected = (
                        "a body of the mechanism" if key == "body" else "a body of the mechanism or ground"
                    )
                    yield self.document.problem(
                        (*location, key), f"the unknown body {named!r}", expected, did_you_mean(named, known)
                    )
            spin = element.get("spin")
            if isinstance(spin, str) and spin not in self.rotor_names:
                got = (
                    f"the body {spin!r}, which is not a rotor"
                    if spin in self.body_names
                    else f"the unknown rotor {spin!r}"
                )
                remedy = did_you_mean(spin, self.rotor_names, "rotors")
                yield self.document.problem((*location, "spin"), got, "a rotor of the mechanism", remedy)
            if self._stands_on_nothing(element):
                expected, remedy = "a terrain", "add terrain to the mechanism, such as terrain: {type: plane}"
                yield self.document.problem(location, "a wheel in space without a terrain", expected, remedy)
            if isinstance(element.get("a"), str) and element.get("a") == element.get("b"):
                yield self.document.problem(
                    (*location, "b"),
                    f"{element['b']!r} on both sides",
                    "two different bodies",
                    "name another body",
                )
            kind = (TYPES[self.space] | DRIVE_TYPES[self.space]).get(str(element.get("type")))
            for key in (
                []
                if kind is None
                else [key for key, field in kind.kinds().items() if isinstance(field, JointName)]
            ):
                yield from self._joint_reference(location, element, key)
            for key in (
                []
                if kind is None
                else [key for key, field in kind.kinds().items() if isinstance(field, JointNames)]
            ):
                for number in range(len(given) if isinstance(given := element.get(key), list) else 0):
                    yield from self._joint_reference((*location, key), given, number)

    def _stands_on_nothing(self, element: dict) -> bool:
        kind = TYPES[self.space].get(str(element.get("type")))
        needs = kind is not None and any(isinstance(field, Ground) for field in kind.kinds().values())
        return needs and element.get("terrain") is None and self._at("mechanism", "terrain") is None

    def _joint_reference(self, location: Location, element: Any, key: str | int) -> Iterator[Problem]:
        named = element[key] if isinstance(key, int) else element.get(key)
        types, movable_types = TYPES[self.space], MOVABLE[self.space]
        if not isinstance(named, str):
            return
        joints = {joint["name"]: joint for _, joint in self.joints if isinstance(joint.get("name"), str)}
        movable = [name for name, joint in joints.items() if joint.get("type") in movable_types]
        if named in movable and isinstance(key, int):
            return
        if named in movable:
            where = "along" if key == "joint" else f"{key}_along"
            along, known = element.get(where), list(getattr(types[joints[named]["type"]], "coordinates", ()))
            if isinstance(along, str) and known and along not in known:
                got = f"{along!r}, which is not a coordinate of {named!r}"
                yield self.document.problem(
                    (*location, where), got, "a coordinate of the joint", did_you_mean(along, known, "one")
                )
            return
        got = (
            f"the joint {named!r} of type {show(joints[named].get('type'))}"
            if named in joints
            else f"the unknown joint {named!r}"
        )
        expected = f"a {' or '.join(movable_types)} joint"
        yield self.document.problem((*location, key), got, expected, did_you_mean(named, movable, "joints"))

    # connections

    def connections(self) -> Iterator[Problem]:
        """Yield a problem for each group of bodies without a connection to ground or to a `free` body."""
        groups = {name: name for name in (*self.body_names, GROUND)}

        def root(name: str) -> str:
            while groups[name] != name:
                name = groups[name]
            return name

        for _, element in (*self.joints, *self.forces):
            a, b = element.get("a"), element.get("b")
            if isinstance(a, str) and isinstance(b, str) and a in groups and b in groups:
                groups[root(a)] = root(b)
        anchored = {root(GROUND)} | {
            root(body["name"])
            for _, body in self.bodies
            if body.get("free") is True and body.get("name") in list(groups)
        }
        reported = set()
        for location, body in self.bodies:
            name = body.get("name")
            if (
                isinstance(name, str)
                and name in groups
                and root(name) not in anchored
                and root(name) not in reported
            ):
                reported.add(root(name))
                others = [
                    other
                    for other in dict.fromkeys(self.body_names)
                    if other != name and root(other) == root(name)
                ]
                company = f" with {', '.join(others)}" if others else ""
                got = f"the body {name!r}{company} without a connection to the ground"
                remedy = "add the missing joint, or add `free: true` to a body that moves freely"
                yield self.document.problem(
                    location, got, "a chain of joints or springs to the ground", remedy
                )

    # coordinates

    def cut(self) -> Iterator[Problem]:
        given = self._at("mechanism", "cut")
        if not isinstance(given, list) or self._at("mechanism", "coordinates") != "joints":
            return
        known = [joint["name"] for _, joint in self.joints if isinstance(joint.get("name"), str)]
        unknown = [
            (index, name) for index, name in enumerate(given) if isinstance(name, str) and name not in known
        ]
        for index, name in unknown:
            place = ("mechanism", "cut", index)
            yield self.document.problem(
                place,
                f"the unknown joint {name!r}",
                "a joint of the mechanism",
                did_you_mean(name, known, "joints"),
            )
        if unknown:
            return
        try:
            coordinate_names.tree(self.data)
        except ValueError as error:
            got, _, remedy = str(error).removeprefix("Joints.cut: ").partition(";")
            yield self.document.problem(
                ("mechanism", "cut"), f"a cut that {got}", "joints that open all loops", remedy.strip()
            )

    def coordinates(self) -> Iterator[Problem]:
        if self.entries is None:
            return
        known = list(self.entries.rates)
        fixed = self._at("start", "fixed")
        velocities = self._at("start", "velocities")
        places = [
            (("start", "fixed", i), name, False)
            for i, name in enumerate(fixed if isinstance(fixed, list) else [])
        ]
        places += [
            (("start", "velocities", name), name, True)
            for name in (velocities if isinstance(velocities, dict) else {})
        ]
        positions = self._at("start", "positions")
        places += [
            (("start", "positions", name), name, True)
            for name in (positions if isinstance(positions, dict) else {})
        ]
        seen: dict[tuple[str | int, int], str] = {}
        for location, name, key in places:
            if not isinstance(name, str):
                continue
            if name not in (self.entries.places if location[1] == "positions" else known):
                got = f"the unknown coordinate {name!r}"
                yield self.document.problem(
                    location, got, self._coordinate_words(), did_you_mean(name, known), key=key
                )
                continue
            number = location[1], self.entries.rates[name]
            if seen.setdefault(number, name) != name:
                got = f"{name!r}, which is another name of {seen[number]!r}"
                yield self.document.problem(
                    location, got, "each velocity once", "remove one of them", key=key
                )

    def _coordinate_words(self) -> str:
        """Describe the coordinates of this mechanism for a message."""
        if self._at("mechanism", "coordinates") == "joints":
            return "a coordinate of a joint of the tree, such as joint.angle"
        if self.space == "space":
            return "body.x, body.y, body.z or body.omega_x, body.omega_y, body.omega_z"
        return "body.x, body.y or body.theta"

    # consistency of numbers

    def steps(self) -> Iterator[Problem]:
        dt, duration = self._at("dt"), self._at("duration")
        if not (_positive(dt) and _positive(duration)):
            return
        ratio = duration / dt
        if ratio > _MOST_STEPS:
            yield self.document.problem(
                ("dt",),
                f"{ratio:.3g} steps",
                f"at most {_MOST_STEPS:.0e} steps",
                "lengthen dt or shorten duration",
            )
            return
        steps = round(ratio)
        if steps < 1 or abs(ratio - steps) > 1e-6 * max(ratio, 1.0):
            near = " or ".join(
                dict.fromkeys(
                    f"{count * dt:.9g}" for count in (max(math.floor(ratio), 1), math.floor(ratio) + 1)
                )
            )
            got = f"{show(duration)} s, which is {ratio:.9g} steps of {show(dt)} s"
            yield self.document.problem(
                ("duration",), got, "a whole number of steps", f"set duration to {near}"
            )
            return
        every = self._at("save_every")
        every = every if _count(every) else 1
        if steps % every:
            around = range(max(1, min(every, steps) // 4), min(every * 4, steps + 1))
            divisors = [n for n in around if steps % n == 0] or [1, steps]
            near = ", ".join(str(n) for n in sorted(sorted(divisors, key=lambda n: abs(n - every))[:3]))
            yield self.document.problem(
                ("save_every",),
                f"{every}, which does not divide the number of steps, {steps}",
                "a divisor of the number of steps",
                f"for example {near}",
            )
            return
        worlds = self._at("batch", "size")
        saved = steps // every * (worlds if _count(worlds) else 1) * max(1, len(self.bodies))
        if saved > _MOST_SAVED:
            yield self.document.problem(
                ("save_every",), f"{saved:.2g} saved poses", f"at most {_MOST_SAVED:.0e}", "raise save_every"
            )

    def output(self) -> Iterator[Problem]:
        duration, instants = self._at("duration"), self._at("output", "overlay")
        for index, instant in enumerate(instants if isinstance(instants, list) else []):
            if _positive(duration) and _positive(instant) and instant > duration * (1 + 1e-9):
                yield self.document.problem(
                    ("output", "overlay", index),
                    f"{show(instant)} s",
                    f"a time up to the end at {show(duration)} s",
                    "",
                )

    # batch

    def vary(self) -> Iterator[Problem]:
        entries = self._at("batch", "vary")
        seen: dict[Location, Location] = {}
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            path = entry.get("path") if isinstance(entry, dict) else None
            if not isinstance(path, str) or not path:
                continue
            place = ("batch", "vary", index, "path")
            target, rest = find(self.resolved, path.split("."))
            target_below = (
                *target,
                *(
                    AXES.get(word, 2 if word == "z" else int(word) if word.isdecimal() else word)
                    for word in rest
                ),
            )
            if rest and not (isinstance(value_at(self.resolved, target), dict) and self._field(target_below)):
                got, expected = f"the unknown path {path!r}", "the path of a number of this config"
                yield self.document.problem(place, got, expected, self._near(target, rest))
            elif target_below in seen:
                remedy = f"the first is in {self.document.line(seen[target_below])}"
                yield self.document.problem(place, f"{path!r} a second time", "each number once", remedy)
            else:
                seen[target_below] = place
                yield from self._variable(place, path, target_below, entry)

    def tuning(self) -> Iterator[Problem]:
        yield from tuning_problems(self.document, self.resolved, self.entries)

    def kinematics(self) -> Iterator[Problem]:
        yield from kinematics_problems(self.document, self.entries)

    def laws(self) -> Iterator[Problem]:
        if self.document.hidden:  # The forces and coordinates of the laws are not known yet.
            return iter(())
        return laws.problems(self.document, None if self.entries is None else self.entries.places)

    def idle(self) -> Iterator[Problem]:
        """Yield a problem for each number that needs a missing one, such as a rest length without stiffness.

        An explicit zero counts as given.
        """
        for location, element in (*self.joints, *self.forces):
            kind = TYPES[self.space].get(str(element.get("type")))
            if kind is None:
                continue
            for key, field in kind.kinds().items():
                # Configs converted from robot files also spell out the defaults.
                if field.needs is None or element.get(key) in (None, kind.default_of(key)):
                    continue
                if element.get(field.needs) is not None:
                    continue
                if (*location, field.needs) not in self._changing():
                    got, expected = f"{key} without {field.needs}", f"{key} with {field.needs} only"
                    yield self.document.problem(
                        (*location, key), got, expected, f"remove {key}, or add {field.needs}"
                    )

    def _changing(self) -> set[Location]:
        """Return the locations of varied or trained numbers; a list counts as a whole if one entry varies."""
        entries = [self._at("batch", "vary"), self._at("tune", "parameters")]
        given = [value_at(one, ("path",)) for each in entries if isinstance(each, list) for one in each]
        return {
            find(self.resolved, path.split("."))[0][:4] for path in given if isinstance(path, str) and path
        }

    def _field(self, target: Location) -> tuple | None:
        """Return the schema entry for a location; None for unknown coordinates."""
        known = {} if self.entries is None else self.entries.rates
        if target[:2] == ("start", "velocities") and (len(target) != 3 or target[2] not in known):
            return None
        if target[:2] == ("start", "positions") and (
            len(target) != 3 or value_at(self.resolved, target) is None
        ):
            return None
        return field_at(Config, self.resolved, target)

    def _near(self, target: Location, rest: list[str]) -> str:
        value = value_at(self.resolved, target)
        inside = f"after {self.document.path(target)!r} " if target else ""
        names: list[str] = []
        if target == ("start", "positions") and self.entries is not None and rest[0] in self.entries.places:
            return f"give start.positions a value of {rest[0]} for world 0"
        if target == ("start", "velocities"):
            names = [] if self.entries is None else list(self.entries.rates)
        elif isinstance(value, dict):
            names = list(value)
        elif isinstance(value, list | tuple):
            named = [element["name"] for element in value if isinstance(value_at(element, ("name",)), str)]
            names = named or entry_names(target[-1] if target else "", value)
        return inside + did_you_mean(rest[0], names, "keys")

    def _variable(self, place: Location, path: str, target: Location, entry: dict) -> Iterator[Problem]:
        field = self._field(target)
        if target[0] not in _VARIABLE or field is None or expectation(field[0]) != "a finite number":
            got = f"{path!r}" + (
                f", which is {expectation(field[0])}" if field and target[0] in _VARIABLE else ""
            )
            expected = f"a number of the sections {', '.join(_VARIABLE)}"
            yield self.document.problem(place, got, expected, "for example forces.motor.torque")
            return
        nominal = value_at(self.resolved, target)
        if nominal is None and self._default(target) is None:
            yield self.document.problem(
                place, f"{path!r}, which has no value", "a value for world 0", f"give {path} a value"
            )
        elif entry.get("scatter") is not None and (
            nominal == 0 or (nominal is None and self.resolved is not self.data)
        ):
            got = f"a relative scatter of {path!r}, which {'is 0' if nominal == 0 else 'has no value'}"
            yield self.document.problem(place, got, "a nonzero nominal value", "give std, or low and high")
        if problem := driven_forces.idle_problem(self.document, self.resolved, place, path, target):
            yield problem
        yield from self._pose(place, target)

    def _default(self, target: Location) -> Any:
        """Return the default of an element's parameter (None: from the start pose), 0 for other numbers."""
        kind = TYPES[self.space].get(str(value_at(self.resolved, (*target[:3], "type"))))
        return 0.0 if kind is None or len(target) < 4 else kind.default_of(str(target[3]))

    def _pose(self, place: Location, target: Location) -> Iterator[Problem]:
        """Yield a problem if the loop closure or a joint position overrides a varied start pose.

        Its coordinate must be fixed, and the joints of the body must be placed in body frames.
        """
        if len(target) < 5 or target[1] != "bodies" or target[3] != "pose":
            return
        body = value_at(self.data, target[:3])
        name = body.get("name") if isinstance(body, dict) else None
        if self._at("mechanism", "coordinates") == "joints":
            got = f"the start pose of {name!r}, the reference of joint coordinates"
            yield self.document.problem(
                place, got, "a number other than a pose", "use coordinates: absolute, or vary start.positions"
            )
            return
        held = self._held(str(name), target)
        fixed = self._at("start", "fixed")
        missing = [coordinate for coordinate in held if not (isinstance(fixed, list) and coordinate in fixed)]
        if missing:
            listed = " and ".join(missing)
            got = f"the start value of {listed}, which the loop closure may change"
            what = "a fixed coordinate" if len(missing) == 1 else "fixed coordinates"
            yield self.document.problem(place, got, what, f"add {', '.join(missing)} to start.fixed")
        for location, element in (*self.joints, *self.forces):
            if name in (element.get("a"), element.get("b"), element.get("body")) and any(
                k in element for k in ("at", "at_a", "at_b")
            ):
                yield self.document.problem(
                    place,
                    f"the start pose of {name!r}, which also moves the place of {element.get('name')!r}",
                    "joints of that body placed by point_a and point_b",
                    f"give the places of {self.document.path(location)} in body frames",
                )

    def _held(self, name: str, target: Location) -> list[str]:
        """Return the coordinates to fix so that the loop closure preserves a number of a start pose."""
        if self.space == "plane":
            return [f"{name}.{list(AXES)[int(target[4])]}"]
        if target[4] == "place":
            return [f"{name}.{'xyz'[int(target[5])]}"]
        return [f"{name}.omega_{axis}" for axis in "xyz"]


def _positive(value: object) -> TypeGuard[int | float]:
    return is_finite(value) and value > 0


def _count(value: object) -> TypeGuard[int]:
    return is_whole(value) and value >= 1
