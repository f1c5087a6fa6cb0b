"""Read a config file and record the origin of every value.

The reader composes YAML into nodes, grafts `--set` overrides into the nodes, and then converts the nodes to
plain Python values. A duplicate key in a mapping is an error. A place in the config is a *location*: a tuple
of keys and list indices. Its text form has dots, with list elements by name: `mechanism.bodies.crank.mass`.
The leading `mechanism.` is optional. `x`, `y`, `theta` (in space `x`, `y`, `z`) name the entries of a vector,
and `w`, `x`, `y`, `z` name the entries of a quaternion.
"""

import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import yaml

from jaxdae.app.config import bare_robot, safe_files
from jaxdae.app.config.problems import ConfigError, Problem, did_you_mean, show
from jaxdae.app.config.yaml_reader import Loader, as_mapping, key_text, longest_key, name_of
from jaxdae.base.suggestions import meant, shorten

Location = tuple[str | int, ...]
CONFIG_BYTES = 10_000_000
_DEPTH = 40
_SIZE = 200_000
AXES = {"x": 0, "y": 1, "theta": 2}
_ENTRIES: dict[int, tuple[dict[str, int], ...]] = {
    2: ({"x": 0, "y": 1},),
    3: (AXES, {"x": 0, "y": 1, "z": 2}),
    4: ({"w": 0, "x": 1, "y": 2, "z": 3},),
}
"""The names of the entries of vectors and quaternions, by their length."""
_WRITTEN_OUT = ("vehicle", "wheels")
_SECTIONS_OF_MECHANISM = (
    "bodies",
    "rotors",
    "joints",
    "forces",
    "gravity",
    "space",
    "coordinates",
    "cut",
    "terrain",
    *_WRITTEN_OUT,
)
Defaults = Callable[[tuple[str, ...], Callable[[tuple[str, ...]], str | None]], Any]
"""A function from keys, and a lookup of the text at other keys, to the default value at these keys."""


def _no_defaults(path: tuple[str, ...], written: Callable[[tuple[str, ...]], str | None]) -> Any:
    return None


_DOTTED_KEYS = ("positions", "velocities")


class Document:
    """A config file with its overrides: plain values in `data`, and the origin of each value.

    Attributes:
        data: the values, as dictionaries, lists, text, numbers, truth values and None.
        problems: errors in the YAML itself and in the overrides.
        name: the file name as given.
    """

    def __init__(
        self, name: str, text: str, overrides: tuple[str, ...] = (), defaults: Defaults = _no_defaults
    ):
        """Read a config from its text.

        Args:
            name: the file name in messages.
            text: YAML.
            overrides: entries `path.to.key=value`, with the value in YAML.
            defaults: the default value at omitted keys; None without a default.

        Raises:
            ConfigError: the text is not YAML, so no further check is possible.
        """
        self.name = name
        self.problems: list[Problem] = []
        self._defaults = defaults
        self._root = self._compose(text, name)
        self._size = 0
        self._check_size(self._root)
        self.hidden, self._wheels = False, []
        # Overrides of expanded sections apply before the expansion; overrides of its results apply
        # afterwards.
        of_robot = [each for each in overrides if _key_of_mechanism(each) in bare_robot.KEYS]
        of_vehicle = [each for each in overrides if _key_of_mechanism(each) in _WRITTEN_OUT]
        self._override_all(of_robot)
        self._write_out_robot(name)
        self._override_all(of_vehicle)
        self._write_out_vehicle()
        self._override_all(each for each in overrides if each not in (*of_robot, *of_vehicle))
        self._size = 0
        self.data = self._construct(self._root, (), ())

    # places

    def problem(
        self, location: Location, got: str, expected: str, remedy: str = "", *, key: bool = False
    ) -> Problem:
        """Return a problem at a location; `key` points at the key instead of its value."""
        node = self._nearest(location, key)
        where, line = self._where(node)
        return Problem(where, self.path(location), got, expected, remedy, line)

    def path(self, location: Location) -> str:
        """Return a location in the notation of `--set`, with list elements by name if they have one."""
        words: list[str] = []
        value: object = self.data
        for part in location:
            inside = _child(value, part)
            if isinstance(part, int):
                name = inside.get("name") if isinstance(inside, dict) else None
                twice = (
                    isinstance(value, list)
                    and sum(isinstance(e, dict) and e.get("name") == name for e in value) > 1
                )
                words.append(name if isinstance(name, str) and name and not twice else str(part))
            else:
                words.append(str(part))
            value = inside
        # Joints from the wheels section.
        if location[:2] == ("mechanism", "joints") and any(
            self._nearest(location[:3], False) is wheel for wheel in self._wheels
        ):
            words[1] = "wheels"
        return ".".join(words)

    def line(self, location: Location) -> str:
        """Return the file and line (or the override) of a location."""
        return self._where(self._nearest(location, key=False))[0]

    def _where(self, node: yaml.Node) -> tuple[str, int]:
        mark = node.start_mark
        if mark.name == self.name:
            return f"{mark.name}:{mark.line + 1}", mark.line + 1
        return mark.name, 0

    def _nearest(self, location: Location, key: bool) -> yaml.Node:
        node = self._root
        for depth, part in enumerate(location):
            if isinstance(node, yaml.MappingNode):
                pair = next((pair for pair in node.value if key_text(pair[0]) == str(part)), None)
                if pair is None:
                    return node
                if key and depth == len(location) - 1:
                    return pair[0]
                node = pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
            else:
                return node
        return node

    # reading

    def _compose(self, text: str, name: str) -> yaml.Node:
        try:
            loader = Loader(text)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, int(error.position)) + 1
            where = f"{name}:{line}" if name == self.name else name
            got = f"the character U+{ord(str(text[int(error.position)])):04X}, which YAML does not allow"
            raise ConfigError(
                [Problem(where, "", got, "text", "remove it, or save the file as UTF-8", line)]
            ) from None
        loader.name = name
        try:
            node = loader.get_single_node()
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            what = " ".join(
                str(part)
                for part in (getattr(error, "context", None), getattr(error, "problem", None))
                if part
            )
            where, line = (
                (f"{name}:{mark.line + 1}", mark.line + 1)
                if mark is not None and name == self.name
                else (name, 0)
            )
            got = what or " ".join(str(error).split()) or "text nested too deeply"
            raise ConfigError(
                [
                    Problem(
                        where,
                        "",
                        f"text that is not YAML ({got})",
                        "a YAML mapping",
                        "check indentation, brackets and quotes there",
                        line,
                    )
                ]
            ) from None
        finally:
            loader.dispose()
        if node is None:
            node = yaml.ScalarNode("tag:yaml.org,2002:null", "", yaml.Mark(name, 0, 0, 0, None, 0))
        return node

    def _counted(self, node: yaml.Node, above: tuple[int, ...]) -> tuple[int, ...]:
        """Count a node and return the nodes above its children; raise ConfigError beyond the limits."""
        self._size += 1
        if id(node) in above or len(above) > _DEPTH or self._size > _SIZE:
            where, line = self._where(node)
            problem = Problem(
                where,
                "",
                "a value that contains itself or is nested too deeply",
                "a plain config",
                "write the values out instead of repeating them through anchors",
                line,
            )
            raise ConfigError([*self.problems, problem])
        return (*above, id(node))

    def _check_size(self, node: yaml.Node, above: tuple[int, ...] = ()) -> None:
        """Raise ConfigError if a node with its repetitions is too large; sections are expanded afterwards."""
        above = self._counted(node, above)
        children = [] if isinstance(node, yaml.ScalarNode) else node.value
        for child in children:
            self._check_size(child[1] if isinstance(child, tuple) else child, above)

    def _construct(self, node: yaml.Node, location: Location, above: tuple[int, ...]) -> object:
        above = self._counted(node, above)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._construct(child, (*location, index), above) for index, child in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode):
            return self._construct_mapping(node, location, above)
        loader = Loader("")
        try:
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            where, line = self._where(node)
            got = f"{node.value!r} with the tag {node.tag}"
            self.problems.append(
                Problem(where, _written(location), got, "a plain value", "remove the tag", line)
            )
            return None
        finally:
            loader.dispose()

    def _construct_mapping(self, node: yaml.MappingNode, location: Location, above: tuple[int, ...]) -> dict:
        mapping: dict[str, object] = {}
        first: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            key = key_text(key_node)
            value = self._construct(value_node, (*location, key), above)
            if key in first:
                where, line = self._where(key_node)
                remedy = f"keep one of them (the first is in {self._where(first[key])[0]})"
                self.problems.append(
                    Problem(
                        where,
                        _written((*location, key)),
                        "the key a second time",
                        "each key once",
                        remedy,
                        line,
                    )
                )
                continue
            first[key], mapping[key] = key_node, value
        return mapping

    def _mechanism(self, *keys: str) -> yaml.MappingNode | None:
        """Return the mechanism section if it has any of some keys."""
        sections = self._root.value if isinstance(self._root, yaml.MappingNode) else ()
        section = next((value for key, value in sections if key_text(key) == "mechanism"), None)
        has = isinstance(section, yaml.MappingNode) and any(key_text(key) in keys for key, _ in section.value)
        return section if has else None

    def _write_out_vehicle(self) -> None:
        """Expand a vehicle, and wheels next to bodies."""
        section = self._mechanism(*_WRITTEN_OUT)
        if section is not None:
            from jaxdae.app.config import vehicle_section

            problems, self.hidden, self._wheels = vehicle_section.expand(section)
            self.problems += problems

    def _write_out_robot(self, name: str) -> None:
        """Expand a mechanism from a file."""
        section = self._mechanism("file")
        if section is not None:
            # Import the library here, so that other configs load without it.
            from jaxdae.app.config import robot_section

            problems = robot_section.expand(section, name, self._root)
            if problems:
                raise ConfigError(problems)

    # overrides

    def _text_at(self, keys: tuple[str, ...]) -> str | None:
        """Return the text at some keys, or None without text."""
        node = self._root
        for key in keys:
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            node = next((value for name, value in pairs if key_text(name) == key), None)
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _override_all(self, overrides: Iterable[str]) -> None:
        for override in overrides:
            self._override(override)

    def _override(self, override: str) -> None:
        path, equals, value = override.partition("=")
        label = f"--set {shorten(override)}"
        if not equals or not path.strip():
            self.problems.append(
                Problem(label, "", show(override), "path.to.key=value", "for example --set dt=0.001")
            )
            return
        try:
            value_node = self._compose(value, label)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return
        parts = path.strip().split(".")
        if parts[0] in _SECTIONS_OF_MECHANISM:
            parts.insert(0, "mechanism")
        if not isinstance(self._root, yaml.MappingNode):
            return
        self._graft(self._root, parts, [], value_node, label)

    def _graft(
        self, node: yaml.Node, parts: list[str], done: list[str], value: yaml.Node, label: str
    ) -> None:
        if isinstance(node, yaml.SequenceNode):
            index = _index_in_nodes(node, parts[0])
            if index is None:
                names = [name for name in map(name_of, node.value) if name] or [
                    str(i) for i in range(len(node.value))
                ]
                remedy = did_you_mean(parts[0], names, "one")
                self.problems.append(
                    Problem(
                        label, ".".join([*done, parts[0]]), f"{parts[0]!r}", "an element of the list", remedy
                    )
                )
            elif len(parts) == 1:
                node.value[index] = value
            else:
                child = node.value[index] = as_mapping(node.value[index], label)
                self._graft(child, parts[1:], [*done, parts[0]], value, label)
            return
        if not isinstance(node, yaml.MappingNode):
            self.problems.append(
                Problem(
                    label,
                    ".".join([*done, parts[0]]),
                    f"a key below a plain value ({'.'.join(done)})",
                    "a key of a mapping",
                    "shorten the path",
                )
            )
            return
        used, position = longest_key(node, parts)
        if position is None:
            used = len(parts) if done and done[-1] in _DOTTED_KEYS else 1
            key = yaml.ScalarNode(
                "tag:yaml.org,2002:str", ".".join(parts[:used]), yaml.Mark(label, 0, 0, 0, None, 0)
            )
            below = value if used == len(parts) else self._default([*done, key.value], label)
            node.value.append((key, below))
            position = len(node.value) - 1
        key, child = node.value[position]
        if used == len(parts):
            node.value[position] = (key, value)
        else:
            child = as_mapping(child, label)
            node.value[position] = (key, child)
            self._graft(child, parts[used:], [*done, *parts[:used]], value, label)

    def _default(self, path: list[str], label: str) -> yaml.Node:
        """Return the value that an override of an omitted key modifies: the default, or an empty mapping."""
        default = self._defaults(tuple(path), self._text_at)
        if not isinstance(default, dict | list | tuple):
            default = {}
        return self._compose(yaml.safe_dump(default), label)


def _key_of_mechanism(override: str) -> str:
    """Return the key of an override in the section `mechanism`, which may be omitted for some keys."""
    return override.partition("=")[0].strip().removeprefix("mechanism.").split(".")[0]


def read(path: str, overrides: tuple[str, ...] = (), defaults: Defaults = _no_defaults) -> Document:
    """Return the config in a file, or the config of a robot file (see `bare_robot`), with overrides.

    Args:
        path: a YAML file or a robot file.
        overrides: entries `path.to.key=value`, with the value in YAML.
        defaults: as in `Document`.

    Raises:
        ConfigError: the file is missing, unreadable or not YAML.
    """
    file = pathlib.Path(path)
    if bare_robot.is_robot(path) and file.is_file():
        return Document(path, bare_robot.config_of(path), overrides, defaults)
    try:
        text = safe_files.read_text(file, CONFIG_BYTES)
    except FileNotFoundError:
        raise ConfigError([Problem(path, "", "no such file", "a config file", _near_file(file))]) from None
    except IsADirectoryError:
        raise ConfigError([Problem(path, "", "a folder", "a config file", _near_file(file / "*"))]) from None
    except UnicodeDecodeError:
        raise ConfigError(
            [Problem(path, "", "bytes that are not UTF-8 text", "a config file", "save it as UTF-8")]
        ) from None
    except safe_files.Unreadable as error:
        raise ConfigError([Problem(path, "", error.got, "a config file", error.remedy)]) from None
    except ValueError as error:
        raise ConfigError(
            [Problem(path, "", f"an invalid file name ({error})", "a config file", "check the path")]
        ) from None
    except OSError as error:
        raise ConfigError(
            [
                Problem(
                    path,
                    "",
                    f"an unreadable file ({error.strerror})",
                    "a config file",
                    "check its permissions",
                )
            ]
        ) from None
    return Document(path, text, overrides, defaults)


def find(data: object, parts: list[str]) -> tuple[Location, list[str]]:
    """Return the location of a dotted path, and the parts of the path that do not exist.

    Args:
        data: values as in `Document.data`.
        parts: the path, split at its dots.
    """
    location: list[str | int] = []
    value = data
    rest = list(parts)
    if rest and rest[0] in _SECTIONS_OF_MECHANISM and isinstance(data, dict) and rest[0] not in data:
        rest.insert(0, "mechanism")
    if rest[:2] == ["mechanism", "wheels"]:
        rest[1] = "joints"  # The joints section contains the expanded wheels.
    while rest:
        if isinstance(value, dict):
            used = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in value), None)
            step = None if used is None else ".".join(rest[:used])
        else:
            used, step = 1, _index_in_values(value, rest[0]) if isinstance(value, list | tuple) else None
        if step is None:
            break
        value = _child(value, step)
        location.append(step)
        rest = rest[used:]
    return tuple(location), _undotted(location, rest)


def value_at(data: object, location: Location) -> Any:
    """Return the value at a location, or None if the location does not exist."""
    for part in location:
        data = _child(data, part)
    return data


def _undotted(location: list[str | int], rest: list[str]) -> list[str]:
    """Return the rest of a path, with dotted keys such as `crank.theta` joined."""
    words = [*location[-1:], *rest]
    for index, word in enumerate(words[:-1]):
        if word in _DOTTED_KEYS:
            words[index + 1 :] = [".".join(str(part) for part in words[index + 1 :])]
            break
    return [str(word) for word in words[len(location[-1:]) :]]


def _child(value: object, part: str | int) -> object:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list | tuple) and isinstance(part, int) and 0 <= part < len(value):
        return value[part]
    return None


def _written(location: Location) -> str:
    return ".".join(str(part) for part in location)


def _index_in_nodes(node: yaml.SequenceNode, word: str) -> int | None:
    kinds = {yaml.SequenceNode: []}
    values = [
        {"name": name_of(c)} if isinstance(c, yaml.MappingNode) else kinds.get(type(c)) for c in node.value
    ]
    return _index_in_values(values, word)


def _index_in_values(values: list | tuple, word: str) -> int | None:
    for index, value in enumerate(values):
        if isinstance(value, dict) and value.get("name") == word:
            return index
    if re.fullmatch(r"[0-9]+", word) and int(word) < len(values):
        return int(word)
    if any(isinstance(value, dict | list | tuple) for value in values):
        return None
    return next((names[word] for names in _ENTRIES.get(len(values), ()) if word in names), None)


def entry_names(key: object, values: list | tuple) -> list[str]:
    """Return the names of the entries of a vector in paths; empty for entries without names.

    Args:
        key: the key of the vector in a config, such as gravity.
        values: its entries.
    """
    if key == "inertia" or any(isinstance(value, dict | list | tuple) for value in values):
        return []
    names = _ENTRIES.get(len(values), ({},))
    return list(names[0] if key == "pose" else names[-1])


def _near_file(file: pathlib.Path) -> str:
    """Return the remedy for a missing file: a file with a similar name in the same folder or in configs/."""
    known = [
        str(found)
        for folder in (file.parent, pathlib.Path("configs"))
        for found in sorted(folder.glob("*.yaml"))
    ]
    same_name = [name for name in known if pathlib.Path(name).stem == file.stem]
    return meant(same_name[0] if same_name else file, known) or "check the path; configs/ holds examples"
