"""All files of an MJCF robot as one document and named buffers, checked before MuJoCo's compiler sees them.

MuJoCo's virtual file system opens files on disk if it does not know a name. Therefore nothing in the document
names a file on disk: elements replace includes, folders (`meshdir`, ...) are removed, and buffer names
replace file names. Paths are resolved as in MuJoCo: against the folder of the main file and the folder in
`<compiler>`, then against the folder of the included file.

Elements without effect on mechanics that can take much memory are reduced: textures to one pixel, height
fields to 2 x 2 points. Skins, sensors, custom data and buffer sizes are removed. The number of elements after
`replicate`, `attach`, `composite` and `flexcomp` is limited.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from jaxdae.base.suggestions import brief
from jaxdae.robots.file_limits import DEEPEST, MOST_BYTES, MOST_EXPANDED, MOST_STATES
from jaxdae.robots.referenced_files import Folders, Outside
from jaxdae.robots.robot_source import Library, Node, RobotFileError

_FOLDERS = {
    "mesh": "meshdir",
    "hfield": "assetdir",
    "skin": "assetdir",
    "texture": "texturedir",
    "flexcomp": "",
}
"""The folder in which MuJoCo looks for a file first, before the folder of the included file."""

_REMOVED = ("skin", "sensor", "custom", "size")
_KEPT = {
    "texture": ({"name", "type", "class"}, {"builtin": "flat", "width": "1", "height": "1"}),
    "hfield": ({"name", "size"}, {"nrow": "2", "ncol": "2"}),
}
"""The preserved attributes of reduced elements, and replacements for the other attributes."""

_VERTICES_PER_ELEMENT = 10
_BYTES_PER_POINT = 60
_POINTS = 1000
"""The assumed number of points of a flexible body without a count."""


class Prepared(NamedTuple):
    """An MJCF robot for `mujoco.MjSpec.from_string`.

    Attributes:
        root: the document, with the lines of the main file.
        parsed: files that MuJoCo's parser opens, by buffer name: attached models and flexible bodies.
        assets: files that MuJoCo's compiler opens, by buffer name.
        missing: files that do not exist, by the names that replace them.
        names: file names by buffer name, for messages.
        removed: lines of removed elements, by kind.
    """

    root: Node
    parsed: dict[str, bytes]
    assets: dict[str, bytes]
    missing: dict[str, str]
    names: dict[str, str]
    removed: dict[str, list[int]]


def prepared(path: pathlib.Path, folders: Folders, library: Library) -> Prepared:
    """Return an MJCF robot with all of its files.

    Args:
        path: path of the main file.
        folders: folders in which files may be read.
        library: reader of the files.

    Raises:
        RobotFileError: files outside the folders, missing includes and models, cycles, or exceeded limits.
    """
    reading = _Reading(folders, library)
    root = _Model(reading, path.absolute(), ()).root()
    if reading.problems:
        raise RobotFileError(reading.problems)
    names = {buffer: found.name for (found, _), buffer in reading.names.items()}
    return Prepared(root, reading.parsed, reading.assets, reading.missing, names, reading.removed)


def document(node: Node) -> str:
    """Return an element as XML text that preserves the line numbers of elements."""
    pieces: list[str] = []
    waiting: list[Node | str] = [node]
    line = 1
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            pieces.append(item)
            continue
        pieces.append("\n" * (item.line - line))
        line = max(line, item.line)
        attributes = "".join(f" {name}={quoteattr(text)}" for name, text in item.attributes.items())
        pieces.append(f"<{item.tag}{attributes}>")
        waiting += [f"</{item.tag}>", *reversed(item.children)]
    return "".join(pieces)


@dataclasses.dataclass
class _Reading:
    """The buffers of a robot during reading."""

    folders: Folders
    library: Library
    parsed: dict[str, bytes] = dataclasses.field(default_factory=dict)
    assets: dict[str, bytes] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    removed: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)
    names: dict[tuple[pathlib.Path, bool], str] = dataclasses.field(default_factory=dict)
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
    """Part of buffer names, random so that no file on disk can have such a name intentionally."""

    def wrong(self, file: pathlib.Path, line: int, text: str) -> None:
        """Note a mistake."""
        self.problems.append(f"{file}:{line}: {text}")

    def buffer(self, found: pathlib.Path, parsed: bool) -> tuple[str, int]:
        """Return the name and the size of the buffer of a file that MuJoCo's parser or compiler opens."""
        buffers = self.parsed if parsed else self.assets
        key = found, parsed
        if key not in self.names:
            suffix = found.suffix.lower() if re.fullmatch(r"\.\w{1,8}", found.suffix) else ""
            self.names[key] = f"{self.token}-{len(self.names)}{suffix}"
            buffers[self.names[key]] = self.library.data(found)
        return self.names[key], len(buffers[self.names[key]])


class _Origin(NamedTuple):
    """The file of an element, and the folder of that file if it is included."""

    file: pathlib.Path
    included: str | None


class _Model:
    """The document of one model: the main file, or the file of `<asset><model>`."""

    def __init__(self, reading: _Reading, path: pathlib.Path, chain: Sequence[pathlib.Path]) -> None:
        self.reading, self.path, self.home = reading, path, str(path.parent)
        self.chain = (*chain, pathlib.Path(os.path.realpath(path)))
        self.settings: dict[str, str] = {}
        """The last values of meshdir, texturedir, assetdir and strippath."""
        self.compiled = {"meshdir": "", "texturedir": ""}
        self.files: list[tuple[Node, _Origin, int]] = []
        self.named: dict[str, int] = {}
        self.attached: dict[str, tuple[int, int]] = {}
        """The number of elements and the bytes of attached models, by name."""
        self.bytes_of: dict[int, int] = {}
        """The sizes of the files of flexible bodies, by the identities of their elements."""
        self.elements = self.bytes = self.keys = 0

    def root(self) -> Node:
        """Return the document of the model."""
        read = self.reading.library.root(self.path, self.chain[:-1])
        if read.tag != "mujoco":
            raise RobotFileError(
                [f"{self.path}:{read.line}: the root element is <{brief(read.tag)[1:-1]}>, expected <mujoco>"]
            )
        (root,) = self._merged(read, _Origin(self.path, None), self.chain, None, 0)
        for node, origin, line in self.files:
            self._rename(node, origin, line)
        self._sized(root, 1)
        for value, limit, what in (
            (self.elements, MOST_EXPANDED, "elements after replicate, attach and flexible bodies"),
            (self.bytes, MOST_BYTES, "bytes of meshes after attach"),
            (self.keys * self.elements, MOST_STATES, "keyframes times elements"),
        ):
            if value > limit:
                raise RobotFileError(
                    [f"{self.path}: the model has {_in_digits(value)} {what}; the limit is {limit}"]
                )
        return root

    def _merged(
        self, node: Node, origin: _Origin, chain: Sequence[pathlib.Path], line: int | None, depth: int
    ) -> list[Node]:
        """Return a copy of an element without includes, or the elements that replace an include.

        Args:
            node: the element.
            origin: its file.
            chain: the files that include it.
            line: line of the include in the main file, None in the main file itself.
            depth: depth of the element.
        """
        if depth > DEEPEST:
            raise RobotFileError([f"{origin.file}:{node.line}: elements are nested more than {DEEPEST} deep"])
        if node.tag == "include":
            return self._included(node, origin, chain, line, depth)
        at = node.line if line is None else line
        if node.tag in _REMOVED:
            counted = {"skin": [node], "sensor": node.children}.get(node.tag, [])
            if counted:
                self.reading.removed.setdefault(node.tag, []).extend(
                    one.line if line is None else at for one in counted
                )
            if node.tag == "skin" and "file" in node.attributes:
                self.files.append((Node(node.tag, dict(node.attributes), at), origin, node.line))
            return []
        copy = Node(node.tag, dict(node.attributes), at)
        if node.tag == "compiler":
            self._settle(copy)
        if any(_names_file(key) for key in copy.attributes) or node.tag in _KEPT:
            self.files.append((copy, origin, node.line))
        for child in node.children:
            copy.children += self._merged(child, origin, chain, line, depth + 1)
        return [copy]

    def _included_place(self, name: str, origin: _Origin) -> str:
        """Return the path of an included file: in the folder of the main file, else of the including file."""
        place = os.path.normpath(os.path.join(self.home, name))
        if origin.included is not None and not os.path.exists(place):
            return os.path.normpath(os.path.join(origin.included, name))
        return place

    def _included(
        self, node: Node, origin: _Origin, chain: Sequence[pathlib.Path], line: int | None, depth: int
    ) -> list[Node]:
        """Return the elements of an included file."""
        name = node.attributes.get("file", "")
        place = self._included_place(name, origin)
        found = self._found(name, place)
        if isinstance(found, str):
            self.reading.wrong(origin.file, node.line, f"<include> {found}")
            return []
        root = self.reading.library.root(found, chain)
        inner = _Origin(found, os.path.dirname(place))
        at = node.line if line is None else line
        return [
            copy for child in root.children for copy in self._merged(child, inner, (*chain, found), at, depth)
        ]

    def _found(self, name: str, place: str) -> pathlib.Path | str:
        """Return the checked path of a file, or the reason why it cannot be read."""
        folders = self.reading.folders
        return folders.found(name if "://" in name or not name.strip() else place, folders.home)

    def _settle(self, node: Node) -> None:
        """Take the settings of folders from a <compiler>."""
        given = {
            key: node.attributes.pop(key)
            for key in ("assetdir", "meshdir", "texturedir", "strippath")
            if key in node.attributes
        }
        self.settings |= given
        if "assetdir" in given:
            self.compiled = dict.fromkeys(self.compiled, given["assetdir"])
        self.compiled |= {key: text for key, text in given.items() if key in self.compiled}

    def _rename(self, node: Node, origin: _Origin, line: int) -> None:
        """Replace the files that an element names by buffers."""
        if node.tag == "model":
            self._attach(node, origin, line)
            return
        names = {key: node.attributes.pop(key) for key in list(node.attributes) if _names_file(key)}
        for key, name in names.items():
            if node.tag not in _FOLDERS or not (key == "file" or node.tag == "texture"):
                self.reading.wrong(origin.file, line, f"<{node.tag}> has the unknown attribute {brief(key)}")
                continue
            if not name:
                continue
            if key == "file" and not node.attributes.get("name"):
                # MuJoCo derives the name from the file name.
                node.attributes["name"] = re.split(r"[/\\]", name)[-1].rpartition(".")[0] or name
            found = self._found(name, self._place(node.tag, name, origin))
            if isinstance(found, pathlib.Path):
                if node.tag in ("mesh", "flexcomp"):
                    node.attributes[key], size = self.reading.buffer(found, node.tag == "flexcomp")
                    self.bytes += size
                    if node.tag == "flexcomp":
                        self.bytes_of[id(node)] = size
            elif isinstance(found, Outside) or node.tag == "flexcomp":
                self.reading.wrong(origin.file, line, f"<{node.tag}> {found}")
            else:
                suffix = pathlib.PurePosixPath(name).suffix[:9]
                replaced = f"{self.reading.token}-missing{len(self.reading.missing)}{suffix}"
                self.reading.missing[replaced] = name
                if node.tag == "mesh":
                    node.attributes[key] = replaced
        if node.tag in _KEPT:
            kept, others = _KEPT[node.tag]
            node.attributes = {key: text for key, text in node.attributes.items() if key in kept} | others

    def _place(self, tag: str, name: str, origin: _Origin) -> str:
        """Return the path of a file as MuJoCo resolves it."""
        probed, compiled = (
            self._folder(key) for key in (_FOLDERS[tag], "texturedir" if tag == "texture" else "meshdir")
        )
        if self.settings.get("strippath") == "true":
            name = re.split(r"[/\\]", name)[-1]
        elif origin.included is not None and not os.path.exists(os.path.join(self.home, probed, name)):
            return os.path.normpath(os.path.join(origin.included, name))
        return os.path.normpath(os.path.join(self.home, compiled if compiled is not None else "", name))

    def _folder(self, key: str) -> str:
        return "" if not key else self.settings.get(key) or self.settings.get("assetdir", "")

    def _attach(self, node: Node, origin: _Origin, line: int) -> None:
        """Replace the file of a <model> by a buffer."""
        name = node.attributes.get("file", "")
        place = self._included_place(name, origin)
        found = self._found(name, place)
        if isinstance(found, str):
            self.reading.wrong(origin.file, line, f"<model> {found}")
            return
        lexical = pathlib.Path(place) if os.path.realpath(place) == str(found) else found
        model = _Model(self.reading, lexical, self.chain)
        root = model.root()
        buffer = f"{self.reading.token}-model{len(self.reading.parsed)}.xml"
        self.reading.parsed[buffer] = document(root).encode()
        node.attributes["file"] = buffer
        name = node.attributes.get("name") or root.attributes.get("model") or "MuJoCo Model"
        self.attached[name] = model.elements, model.bytes
        self.elements += model.elements
        self.bytes += model.bytes

    def _sized(self, node: Node, copies: int) -> int:
        """Return the number of elements that an element makes; add those of all its copies to the total."""
        own = _own_size(node, self.path) + 3 * self.bytes_of.get(id(node), 0) // _BYTES_PER_POINT
        if node.tag == "attach":
            own += self._source(node)
        times = math.prod(_whole_numbers(node, "count", self.path)) if node.tag == "replicate" else 1
        self.elements += own * copies
        self.keys += node.tag == "key"
        found = own + times * sum(self._sized(child, copies * times) for child in node.children)
        if node.tag in ("body", "frame") and "name" in node.attributes:
            self.named[node.attributes["name"]] = found
        return found

    def _source(self, node: Node) -> int:
        """Return the number of elements that an <attach> copies; all so far if its source is a copy."""
        if "model" not in node.attributes:
            return self.named.get(
                node.attributes.get("body") or node.attributes.get("frame", ""), self.elements
            )
        elements, count = self.attached.get(node.attributes["model"], (self.elements, 0))
        self.bytes += count
        return elements


def _in_digits(value: int) -> str:
    """Return a number, with an exponent if it is large."""
    return str(value) if value < 10**12 else f"more than 10^{min(value.bit_length() * 3 // 10, 10**6)}"


def _names_file(attribute: str) -> bool:
    return attribute.lower().startswith("file")


def _own_size(node: Node, path: pathlib.Path) -> int:
    """Return the number of elements that the compiler makes of an element itself."""
    given = node.attributes
    if node.tag in ("flexcomp", "composite", "flex"):
        grid = _POINTS if node.tag == "flexcomp" and not {"count", "file"} & given.keys() else 1
        points = (
            _product(node, "count", grid, path)
            + _product(node, "cellcount", 1, path)
            + _product(node, "subgrid", 1, path)
        )
        return 1 + 3 * points + len(given.get("point", "")) // 2
    if node.tag == "mesh" and "builtin" in given:
        first, second, *_ = (*_whole_numbers(node, "params", path), 1, 1)
        square = given["builtin"].startswith("super")
        return 1 + max(first, 1) * max(second if not square else first, 1) // _VERTICES_PER_ELEMENT
    return 1 + _product(node, "actdim", 0, path) + _product(node, "nsample", 0, path) // 10


def _product(node: Node, key: str, default: int, path: pathlib.Path) -> int:
    """Return the product of the whole numbers of an attribute, or the default."""
    return math.prod(_whole_numbers(node, key, path)) if key in node.attributes else default


def _whole_numbers(node: Node, key: str, path: pathlib.Path) -> list[int]:
    """Return an attribute as whole numbers that are not negative."""
    text = node.attributes.get(key, "")
    try:
        return [max(0, int(float(word))) for word in text.split()]
    except (OverflowError, ValueError):
        raise RobotFileError(
            [f"{path}:{node.line}: {key} of <{node.tag}> must be finite numbers, got {brief(text)}"]
        ) from None
