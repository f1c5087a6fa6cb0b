"""Expand `vehicle:` and `wheels:` in configs to bodies, rotors and joints.

`vehicle: {type: differential_drive, wheel_separation: 0.5, ...}` calls a constructor of `jaxdae.vehicles`
with named parameters. `wheels` defines wheels next to explicit bodies. They are joints with optional type and
axis. A wheel with an `inertia` gets its own rotor. Both sections are expanded before any other processing of
the mechanism, as if you had typed the elements. All other elements stay, so that motors are torques on the
rotors of a vehicle.
"""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pydantic
import yaml

from jaxdae import vehicles
from jaxdae.app.config.problems import Problem, did_you_mean, is_finite, show
from jaxdae.app.config.schema_mechanism import WHEELS
from jaxdae.app.config.schema_terrain import TERRAINS, terrain
from jaxdae.app.config.yaml_nodes import added, double, node, plain, values
from jaxdae.mechanisms import SPACE, Description

KEYS = ("vehicle", "wheels")
"""The keys of a `mechanism` section that this module expands."""

Found = Iterator[tuple[tuple[str | int, ...], str, str, str]]
"""Tuples of location below the mechanism, actual value, expected value and remedy."""


def _whipple(*, terrain: Any = None, gravity: Any = 9.81, **numbers: Any) -> Description:
    """Return the Whipple bicycle of a config, whose parameters are separate keyword arguments."""
    return vehicles.whipple_bicycle(vehicles.BicycleParameters(**numbers), terrain=terrain, gravity=gravity)


_MASSES = ("mass", "inertia")
_SIZES = ("radius", "separation", "track")
"""Name endings of parameters that must be positive: masses, moments of inertia and lengths."""
_POSITIVE_OF_BICYCLE = (
    "rR",
    "mR",
    "IRxx",
    "IRyy",
    "mB",
    "IBxx",
    "IByy",
    "IBzz",
    "mH",
    "IHxx",
    "IHyy",
    "IHzz",
    "rF",
    "mF",
    "IFxx",
    "IFyy",
)
"""The positive parameters of `BicycleParameters`, with the names of the published benchmark.

Products of inertia may have any sign.
"""


@dataclasses.dataclass(frozen=True)
class _Parameter:
    """A parameter of a constructor.

    Attributes:
        default: the default value; `...` without a default.
        text: its description, for messages.
        required: whether a config must give it; masses are required, because bodies move under forces in a
            config.
        positive: whether it must be positive.
    """

    default: Any
    text: str
    required: bool
    positive: bool


def _parameter(name: str, default: Any, text: str) -> _Parameter:
    """Return a parameter with the properties that follow from its name."""
    required = default is ... or (default is None and name.endswith(_MASSES))
    return _Parameter(
        default, text, required, name.endswith((*_MASSES, *_SIZES)) or name in _POSITIVE_OF_BICYCLE
    )


def _of_function(function: Callable[..., Any]) -> dict[str, _Parameter]:
    """Return the parameters of a constructor with their descriptions in its docstring."""
    documented = (inspect.getdoc(function) or "").partition("Args:\n")[2].partition("\n\n")[0]
    texts = {
        name: " ".join(text.split()).rstrip(".")
        for name, text in re.findall(r"^ +(\w+): ((?:.|\n {8})+)$", documented, re.M)
    }
    given = inspect.signature(function).parameters.values()
    return {
        each.name: _parameter(
            each.name, ... if each.default is each.empty else each.default, texts.get(each.name, "")
        )
        for each in given
    }


def _of_bicycle() -> dict[str, _Parameter]:
    documented = inspect.getdoc(vehicles.BicycleParameters) or ""
    texts = {name: text.rstrip(".") for name, text in re.findall(r"^ +(\w+): (.+)$", documented, re.M)}
    fields = dataclasses.fields(vehicles.BicycleParameters)  # pyright: ignore[reportArgumentType]
    numbers = {
        field.name: _parameter(field.name, field.default, texts.get(field.name, "")) for field in fields
    }
    return numbers | {
        "gravity": _parameter("gravity", 9.81, "in m/s^2"),
        "terrain": _parameter("terrain", None, ""),
    }


_MAKERS: dict[str, Callable[..., Description]] = {
    "differential_drive": vehicles.differential_drive,
    "skid_steer": vehicles.skid_steer,
    "ackermann": vehicles.ackermann,
    "bicycle": vehicles.bicycle,
    "truck_and_trailers": vehicles.truck_and_trailers,
    "mecanum": vehicles.mecanum,
    "omni": vehicles.omni,
    "segway": vehicles.segway,
    "rocker_bogie": vehicles.rocker_bogie,
    "whipple_bicycle": _whipple,
}
PARAMETERS: dict[str, dict[str, _Parameter]] = {
    name: _of_bicycle() if maker is _whipple else _of_function(maker) for name, maker in _MAKERS.items()
}
"""The parameters of vehicles by their names in configs."""


def expand(section: yaml.MappingNode) -> tuple[list[Problem], bool, list[yaml.Node]]:
    """Expand vehicle and wheels of a `mechanism` section in place.

    Args:
        section: the section.

    Returns:
        The errors, whether bodies are missing because of them (then skip further checks of the mechanism),
        and the joints from the wheels section.
    """
    given = {key.value: value for key, value in section.value}
    section.value = [(key, value) for key, value in section.value if key.value not in KEYS]
    problems, missing, joints = [], False, []
    if "vehicle" in given:
        with double():
            of_first_order = "order" in given and given["order"].value == "first"
            ground = plain(given["terrain"]) if "terrain" in given else None
            found, description = _vehicle(plain(given["vehicle"]), ground, of_first_order)
            space = given["space"].value if "space" in given else ""
            if description is not None and space in WHEELS and space != description.space.name:
                kind, own = plain(given["vehicle"])["type"], description.space.name
                expected = f"space: {own} for this vehicle"
                found, description = (
                    [(("type",), f"{kind} with space: {space}", expected, f"remove space: {space}")],
                    None,
                )
            try:
                if description is not None:
                    _write(section, description, given["vehicle"], of_first_order)
            except (TypeError, ValueError):
                expected = "one number, or one number per wheel or trailer"
                found, description = [((), "a list instead of a number", expected, "")], None
        problems += [_problem(given["vehicle"], ("vehicle", *place), *words) for place, *words in found]
        missing = description is None
    if "wheels" in given:
        space = "space" if "space" in given and given["space"].value == "space" else "plane"
        for place, *words in _wheels(section, given["wheels"], space, joints):
            problems.append(_problem(given["wheels"], ("wheels", *place), *words))
    return problems, missing, joints


def _problem(at: yaml.Node, place: tuple[str | int, ...], got: str, expected: str, remedy: str) -> Problem:
    """Return a problem at the deepest node of a place, whose first part is the key of the node `at`."""
    words: list[str] = [str(place[0])]
    for part in place[1:]:
        if isinstance(at, yaml.MappingNode):
            at = next((value for key, value in at.value if key.value == part), at)
            words.append(str(part))
        elif isinstance(at, yaml.SequenceNode) and isinstance(part, int):
            at = at.value[part]
            name = plain(at).get("name") if isinstance(at, yaml.MappingNode) else None
            words.append(name if isinstance(name, str) else str(part))
        else:
            words.append(str(part))
    mark = at.start_mark
    # Overrides have their own location text, without a line of the file.
    in_file = not mark.name.startswith("--set")
    where = f"{mark.name}:{mark.line + 1}" if in_file else mark.name
    return Problem(
        where, ".".join(["mechanism", *words]), got, expected, remedy, mark.line + 1 if in_file else 0
    )


def _vehicle(given: Any, ground: Any, massless: bool) -> tuple[list[Any], Description | None]:
    """Return the errors of a vehicle, and its description if it has no errors."""
    if not isinstance(given, dict):
        return [
            ((), show(given), "a mapping", f"{{type: ..., parameters}}; types are {', '.join(_MAKERS)}")
        ], None
    name = given.get("type")
    if not isinstance(name, str) or name not in _MAKERS:
        came = "no type" if "type" not in given else f"the unknown type {name!r}"
        return [(("type",), came, f"one of {', '.join(_MAKERS)}", did_you_mean(name, _MAKERS))], None
    found = list(_mistakes(PARAMETERS[name], given, massless))
    if found:
        return found, None
    numbers = {key: value for key, value in given.items() if key != "type"}
    ground = {"type": ground} if isinstance(ground, str) else ground
    if "terrain" in PARAMETERS[name] and isinstance(ground, dict) and str(ground.get("type")) in TERRAINS:
        # Another check reports errors of the terrain at their location.
        with contextlib.suppress(pydantic.ValidationError):
            numbers["terrain"] = terrain(TERRAINS[ground["type"]].model_validate(ground).model_dump())
    try:
        return [], _MAKERS[name](**numbers)
    except (ValueError, TypeError, IndexError) as error:
        return [
            ((), str(error).removeprefix(f"{name}: "), f"parameters of a vehicle of type {name}", "")
        ], None


def _mistakes(parameters: dict[str, _Parameter], given: dict[str, Any], massless: bool) -> Found:
    known = {key: each for key, each in parameters.items() if key != "terrain"}
    for key, value in given.items():
        if key == "type":
            continue
        if key == "terrain" and key in parameters:
            yield (
                (key,),
                "a terrain in the vehicle section",
                "a terrain in the mechanism section",
                "move it: mechanism.terrain is the ground of all wheels",
            )
        elif key not in known:
            yield (key,), "an unknown key", "a parameter of the vehicle", did_you_mean(key, known, "keys")
        elif not _is_numbers(value) and not (
            value is None and known[key].default is None and not known[key].required
        ):
            yield (key,), show(value), "finite numbers", f"{key}: {known[key].text}"
        elif isinstance(known[key].default, tuple) and np.asarray(value).shape not in _shapes(
            key, known[key]
        ):
            count = len(known[key].default)
            yield (key,), show(value), f"a list of {count} numbers", f"{key}: {known[key].text}"
        elif known[key].positive and not np.all(np.asarray(value) > 0.0):
            yield (key,), show(value), "numbers > 0", f"{key}: {known[key].text}"
    for key, each in known.items():
        needed = each.default is ... if massless else each.required
        if needed and key not in given:
            yield (key,), "nothing", "finite numbers", f"add {key}: {each.text}"


def _shapes(key: str, parameter: _Parameter) -> list[tuple[int, ...]]:
    """Return the valid shapes of a list of numbers; one steering angle may serve both wheels."""
    return [(len(parameter.default),), *([()] if key == "steering" else [])]


def _is_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return (
            all(map(_is_numbers, value))
            and len({len(each) if isinstance(each, list) else 0 for each in value}) <= 1
        )
    return is_finite(value)


def _write(section: yaml.MappingNode, description: Description, at: yaml.Node, of_first_order: bool) -> None:
    """Insert a vehicle into a section, before the present elements.

    A first-order vehicle includes its drives, and unit masses where it has none.
    """
    bodies: list[dict[str, Any]] = []
    rotors: list[dict[str, Any]] = []
    for body in (body.with_unit_mass() if of_first_order else body for body in description.bodies):
        each = {"name": body.name, "inertia": np.asarray(body.inertia, float).tolist()}
        if body.turns_only:
            rotors.append(each | {"angle": float(body.angle)})
        elif hasattr(body, "place"):
            bodies.append(each | {"mass": float(body.mass), "pose": _spatial_pose(body), "free": True})
        else:
            bodies.append(
                each | {"mass": float(body.mass), "pose": np.asarray(body.pose, float).tolist(), "free": True}
            )
    joints = [values(joint) for joint in description.joints]
    mark = at.start_mark
    drives = [values(drive) for drive in description.drives] if of_first_order else []
    for key, entries in (("bodies", bodies), ("rotors", rotors), ("joints", joints), ("drives", drives)):
        if entries:
            added(section, key, node(entries, mark), first=True)
    present = {key.value for key, _ in section.value}
    defaults: dict[str, Any] = {}
    if description.gravity is not None:
        defaults["gravity"] = np.asarray(description.gravity, float).tolist()
    if description.space is SPACE:
        defaults |= {"space": "space", "terrain": {"type": "plane"}}
    section.value += [
        (node(key, mark), node(value, mark)) for key, value in defaults.items() if key not in present
    ]


def _spatial_pose(body: Any) -> dict[str, Any]:
    return {
        "place": np.asarray(body.place, float).tolist(),
        "quaternion": np.asarray(body.quaternion, float).tolist(),
    }


def _wheels(section: yaml.MappingNode, given: yaml.Node, space: str, joints: list[yaml.Node]) -> Found:
    """Insert wheels below the joints of a section, and yield the errors that only wheels can have."""
    if not isinstance(given, yaml.SequenceNode):
        yield (), show(plain(given)), "a list", "the wheels, a list of {name, body, point, ...}"
        return
    usual, types = next(iter(WHEELS[space])), WHEELS[space]
    for index, wheel in enumerate(given.value):
        if not isinstance(wheel, yaml.MappingNode):
            yield (index,), show(plain(wheel)), "a mapping", "a wheel, {name, body, point, ...}"
            continue
        entries = {key.value: value for key, value in wheel.value}
        mark, written = wheel.start_mark, plain(wheel)
        kind = written.get("type", usual)
        if str(kind) not in types:
            yield (
                (index, "type"),
                f"the unknown type {kind!r}",
                f"one of {', '.join(types)}",
                did_you_mean(kind, types),
            )
            continue
        joint = yaml.MappingNode(
            wheel.tag, [(key, value) for key, value in wheel.value if key.value != "inertia"], mark
        )
        left_out: dict[str, Any] = {"type": usual}
        if space == "plane" and "point" in entries:
            # The default axis is in the body frame. With `at`, the heading depends on the start pose, so the
            # config must give it.
            left_out["axis"] = [1.0, 0.0]
        if "inertia" in entries:
            if "spin" in entries or space == "space":
                remedy = "the rotor has the inertia" if space == "plane" else "the body has the inertia"
                yield (index, "inertia"), "an inertia", "no inertia", f"remove it: {remedy}"
            elif isinstance(written.get("name"), str):
                spin = f"{written['name']}_spin"
                left_out["spin"] = spin
                pairs = [(node("name", mark), node(spin, mark)), (node("inertia", mark), entries["inertia"])]
                rotor = yaml.MappingNode("tag:yaml.org,2002:map", pairs, mark)
                added(section, "rotors", yaml.SequenceNode("tag:yaml.org,2002:seq", [rotor], mark))
        joint.value += [
            (node(key, mark), node(value, mark)) for key, value in left_out.items() if key not in entries
        ]
        added(section, "joints", yaml.SequenceNode("tag:yaml.org,2002:seq", [joint], mark))
        joints.append(joint)
