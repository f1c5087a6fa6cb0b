"""Robot files in configs, and `jaxdae check` of a robot file on its own.

A `mechanism` section with a `file` is expanded before any other processing. The bodies, joints and forces of
the file precede the elements of the config, as if you had typed them. Elements that the config adds may name
links and frames of the file as bodies, with points and directions in the frames of links. Their world
positions refer to the start pose.
"""

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from jaxdae import mechanisms as jm
from jaxdae import robots
from jaxdae.app.config import bare_robot, yaml_nodes
from jaxdae.app.config.config_elements import described
from jaxdae.app.config.gap_lines import gap_lines
from jaxdae.app.config.problems import Problem
from jaxdae.app.config.schema_contact import SpatialContact, shape_of, shape_values
from jaxdae.app.config.schema_mechanism import TYPES
from jaxdae.dynamics.diagnostics import diagnose
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.mechanisms.describe.kinds import NOTHING, Kind
from jaxdae.robots.attach import changes, on_bodies

_SWITCHES = ("strict", "limits", "dry_friction")


def lines(path: str, base: str | None = None) -> list[str]:
    """Return the output of `jaxdae check` for a robot file.

    Raises:
        robots.RobotFileError: the file has errors.
    """
    with yaml_nodes.double():
        found = robots.load(path, base=base)
        report = found.report
        made, q = jm.mechanism(found.description, jm.Joints())
        state = robots.joint_state(made, q, found.start)
        diagnosis = diagnose(made, state)
        contacts = _contacts(path, base)
    below: dict[str, list[robots.Carried]] = {}
    for one in report.tree:
        below.setdefault(one.parent, []).append(one)

    def tree(link: str, depth: int) -> Iterator[str]:
        for one in sorted(below.get(link, []), key=lambda one: one.number):
            how = "moves freely" if one.kind == "free" else one.joint if one.kind != "fixed" else "welded"
            backward = f", defined from {one.child} to {one.parent}" if one.reversed else ""
            yield f"{'  ' * depth}{one.child} ({how}{backward})"
            yield from tree(one.child, depth + 1)

    return [
        *str(report).splitlines(),
        "tree:",
        "ground",
        *tree("ground", 1),
        str(diagnosis),
        *contacts,
    ]


def _contacts(path: str, base: str | None) -> list[str]:
    """Return lines about the contacts in a robot file: pairs with their gaps, and unsupported shapes."""
    found = robots.load(path, base=base, contacts=True)
    made: Any
    made, q = jm.mechanism(found.description, jm.Joints())
    state = robots.joint_state(made, q, found.start)
    lines = gap_lines("contacts of the file", made, made.touch(state.t, state.q)) if made.gap_names else ()
    return [
        *lines,
        *(note for note in found.report.notes if note.startswith("contacts between")),
    ]


def expand(section: yaml.MappingNode, config: str, root: yaml.Node) -> list[Problem]:
    """Expand the robot of a `mechanism` section in place; return the errors in its keys and file.

    Args:
        section: the section.
        config: the config file; the path of the robot file is relative to its folder.
        root: the config.
    """
    given = {key.value: (key, value) for key, value in section.value}
    plain = {key: yaml_nodes.plain(value) for key, (_, value) in given.items() if key in bare_robot.KEYS}
    mark = given["file"][1].start_mark
    where = f"{mark.name}:{mark.line + 1}"

    def problem(key: str, got: str, expected: str, remedy: str = "") -> Problem:
        at = given[key][1].start_mark
        return Problem(f"{at.name}:{at.line + 1}", f"mechanism.{key}", got, expected, remedy, at.line + 1)

    section.value = [(key, value) for key, value in section.value if key.value not in bare_robot.KEYS]
    if not isinstance(plain["file"], str):
        return [
            problem(
                "file",
                repr(plain["file"]),
                "a path to a robot file",
                f"such as robot.urdf; the formats are {', '.join(robots.ENDINGS)}",
            )
        ]
    path = pathlib.Path(config).parent / plain["file"]
    packages = plain.get("packages") or {}
    if not isinstance(packages, dict) or not all(isinstance(x, str) for x in (*packages, *packages.values())):
        return [
            problem(
                "packages",
                repr(packages),
                "a mapping of package names to folders",
                "such as {my_robot: ../my_robot}",
            )
        ]
    folders = {name: pathlib.Path(config).parent / folder for name, folder in packages.items()}
    wrong_switches = [key for key in _SWITCHES if not isinstance(plain.get(key, False), bool)]
    if wrong_switches:
        return [problem(key, repr(plain[key]), "true or false") for key in wrong_switches]
    loops, wrong = _loops([] if plain.get("loops") is None else plain["loops"])
    if wrong:
        return [
            problem("loops", text, "joints between links, as in joints, or names of joints of the file")
            for text in wrong
        ]
    contacts = plain.get("file_contacts", False)
    if not isinstance(contacts, bool) and not (
        isinstance(contacts, list) and all(isinstance(name, str) for name in contacts)
    ):
        return [problem("file_contacts", repr(contacts), "true, false or names of collision shapes or links")]
    switches = {key: plain.get(key, False) for key in _SWITCHES}
    options = {"base": plain.get("base"), "packages": folders, "contacts": contacts, **switches}
    try:
        with yaml_nodes.double():
            found = robots.load(path, loops=loops, **options)
            poses = _poses(found)
    except robots.RobotFileError as error:
        return [
            Problem(where, "mechanism.file", text, "a robot", "", mark.line + 1) for text in error.problems
        ]
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        return [Problem(where, "mechanism.file", str(error), "a readable robot file", "", mark.line + 1)]
    names = words(found)
    _write(section, found, poses, names, str(path))
    if isinstance(root, yaml.MappingNode):
        _turn(root, section, found, names, str(path))
    return []


def _turn(
    root: yaml.MappingNode,
    section: yaml.MappingNode,
    found: robots.Robot,
    names: Mapping[str, str],
    path: str,
) -> None:
    """Write hinge angles beyond half a turn into the start positions; poses cannot express them."""
    form = next((yaml_nodes.plain(value) for key, value in section.value if key.value == "coordinates"), None)
    cut = next((yaml_nodes.plain(value) for key, value in section.value if key.value == "cut"), None)
    hinges = [joint.name for joint in found.description.joints if isinstance(joint, jm.spatial.Revolute)]
    angles = {names[name]: found.start[name] for name in hinges if name in found.start}
    turned = {
        f"{name}.angle": angle
        for name, angle in angles.items()
        if abs(angle) > np.pi and name not in (cut if isinstance(cut, list) else ())
    }
    if not turned or form != "joints":
        return
    at = root
    for word in ("start", "positions"):
        inside = next((value for key, value in at.value if key.value == word), None)
        if inside is None:
            inside = yaml_nodes.node({}, path)
            at.value.append((yaml_nodes.node(word, path), inside))
        if not isinstance(inside, yaml.MappingNode):
            return  # Later checks report the error.
        at = inside
    given = {key.value for key, _ in at.value}
    at.value += [
        (yaml_nodes.node(key, path), yaml_nodes.node(float(angle), path))
        for key, angle in turned.items()
        if key not in given
    ]


def _loops(given: Any) -> tuple[list[Any], list[str]]:
    loops, wrong = [], []
    for one in given if isinstance(given, list) else [given]:
        if isinstance(one, str):
            loops.append(one)
            continue
        try:
            loops.append(described(one, "space"))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            wrong.append(f"{one!r}, which is not a joint ({error})")
    return loops, wrong


def _poses(found: robots.Robot) -> dict[str, tuple[list[float], list[float]]]:
    """Return position and quaternion of all bodies at the start."""
    made, q = jm.mechanism(found.description, jm.Joints())
    state = jm.to_absolute(made, robots.joint_state(made, q, found.start))
    numbers = np.asarray(state.q, float).reshape(-1, 7)
    return {
        name: (row[:3].tolist(), row[3:].tolist()) for name, row in zip(made.body_names, numbers, strict=True)
    }


def words(found: robots.Robot) -> dict[str, str]:
    """Return valid config names for bodies, joints and forces, with a number appended to duplicates."""
    words: dict[str, str] = {}
    description = found.description
    for group in (description.bodies, description.joints, description.forces, description.contacts):
        taken: set[str] = set()
        for one in group:
            word = re.sub(r"[^A-Za-z0-9_-]", "_", one.name)[:90]
            word = word if re.match(r"[A-Za-z_]", word) else f"_{word}"
            unique, number = word, 2
            while unique in taken:
                unique, number = f"{word}_{number}", number + 1
            taken.add(unique)
            words[one.name] = unique
    return words


def _write(
    section: yaml.MappingNode,
    found: robots.Robot,
    poses: Mapping[str, Any],
    names: Mapping[str, str],
    path: str,
) -> None:
    """Insert a robot into a section, before the present elements."""
    description = found.description
    bodies = [
        {
            "name": names[body.name],
            **_inertial(body),
            "pose": {"place": poses[body.name][0], "quaternion": poses[body.name][1]},
            "free": True,
        }
        for body in description.bodies
    ]
    joints = [yaml_nodes.values(joint, names) for joint in description.joints]
    forces = [yaml_nodes.values(force, names) for force in description.forces]
    present = {key.value: value for key, value in section.value}
    for key in ("bodies", "joints", "forces"):
        if isinstance(present.get(key), yaml.SequenceNode):
            for element in present[key].value:
                _on_bodies(element, found, names)
    if isinstance(present.get("contacts"), yaml.SequenceNode):
        for element in present["contacts"].value:
            _contact_on_bodies(element, found, names)
    contacts = [_contact(pair, names[pair.name], names) for pair in description.contacts]
    elements = {"bodies": bodies, "joints": joints, "forces": forces}
    for key, values in (elements | ({"contacts": contacts} if contacts else {})).items():
        node = yaml_nodes.node(values, path)
        if isinstance(present.get(key), yaml.SequenceNode):
            present[key].value = [*node.value, *present[key].value]
        elif key not in present:
            section.value.append((yaml_nodes.node(key, path), node))
    defaults: dict[str, Any] = {
        "space": "space",
        "coordinates": "joints",
        "gravity": np.asarray(description.gravity, float).tolist(),
    }
    form = present["coordinates"].value if "coordinates" in present else "joints"
    if description.loops and form == "joints":
        defaults["cut"] = [names[name] for name in description.loops]
    section.value += [
        (yaml_nodes.node(key, path), yaml_nodes.node(value, path))
        for key, value in defaults.items()
        if key not in present
    ]


def _contact(pair: Any, name: str, names: Mapping[str, str]) -> dict[str, Any]:
    """Return a pair of collision shapes in config form."""
    return {
        "name": name,
        **{side: names.get(getattr(pair, side), getattr(pair, side)) for side in ("a", "b")},
        **{side: shape_values(getattr(pair, side), "space") for side in ("shape_a", "shape_b")},
        **{key: float(getattr(pair, key)) for key in ("friction", "restitution")},
    }


def _inertial(body: jm.SpatialBody) -> dict[str, Any]:
    """Return mass and inertia in config form; zero values are omitted."""
    mass, inertia = float(body.mass), np.asarray(body.inertia, float)
    given = {"mass": mass} if mass else {}
    given |= {"inertia": inertia.tolist()} if np.any(inertia) else {}
    return given if len(given) == 2 else given | {"massless": True}


def _on_bodies(element: yaml.Node, found: robots.Robot, names: Mapping[str, str]) -> None:
    """Move an element of a config from links to bodies, in place; leave invalid elements to later checks."""
    if not isinstance(element, yaml.MappingNode):
        return
    values = {key.value: value for key, value in element.value}
    type_of = TYPES["space"].get(getattr(values.get("type"), "value", ""))
    if type_of is None:
        return
    kinds = type_of.kinds(jm.SPACE)
    given = {name: yaml_nodes.plain(values[name]) for name in kinds if name in values}
    sound = {name: value for name, value in given.items() if _is_sound(kinds[name], value)}
    with yaml_nodes.double():
        moved = changes(kinds, sound, found.report.frames)
    new = {
        name: yaml_nodes.node(_written(kinds[name], value, names), values[name].start_mark)
        for name, value in moved.items()
    }
    element.value = [(key, new.get(key.value, value)) for key, value in element.value]


def _contact_on_bodies(element: yaml.Node, found: robots.Robot, names: Mapping[str, str]) -> None:
    """Move a contact of a config from links to bodies, in place; leave invalid contacts to later checks."""
    model: Any = SpatialContact
    try:
        section = model.model_validate(yaml_nodes.plain(element)).model_dump()
    except ValidationError:
        return
    shapes = {side: shape_of(section[side], "space") for side in ("shape_a", "shape_b")}
    moved = on_bodies(Pair(**section | shapes), found.report.frames)
    element.value = yaml_nodes.node(_contact(moved, moved.name, names), element.start_mark).value


def _is_sound(kind: Kind, value: Any) -> bool:
    """Return whether a config value is valid for its field; axes are quaternions in configs."""
    if kind.names_body:
        return isinstance(value, str)
    if kind.plain == "quaternion" and not (isinstance(value, list) and len(value) == 4):
        return False
    return not any(kind.mistakes(value, NOTHING))


def _written(kind: Kind, value: Any, names: Mapping[str, str]) -> Any:
    """Return a value of an element in config form."""
    if kind.names_body:
        return names.get(value, value)
    numbers = np.asarray(value, float)
    return (robots.matrix_quaternion(numbers) if kind.plain == "quaternion" else numbers).tolist()
