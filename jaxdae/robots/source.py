"""Robot files as trees of elements that know their lines, and the list of what is wrong with them.

Elements are made by Expat, of the standard library, because messages are to name lines. Document types and entities are refused: no robot
needs them, and they can make a small file a large one.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from xml.parsers import expat

import numpy as np

LARGEST = 50_000_000
"""The size of the largest file that is read, in bytes."""

DEEPEST = 400
"""How deep elements may be nested."""


class RobotFileError(ValueError):
    """A file that describes no robot; the message lists everything that is wrong with it, each with file and line.

    Attributes:
        problems: one text each.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


@dataclasses.dataclass
class Node:
    """An element of a file; `content` is the text in it, without that of its children."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Node] = dataclasses.field(default_factory=list)
    content: str = ""

    def all(self, tag: str) -> Iterator[Node]:
        """Yields the children with a tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> Node | None:
        """Returns the first child with a tag."""
        return next(self.all(tag), None)

    def everything(self) -> Iterator[Node]:
        """Yields the element and all that is in it, in the order of the file."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


class Source:
    """A file while it is read: what is found wrong is collected, so that all of it is told at once."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.problems: list[str] = []

    def wrong(self, line: int, text: str) -> None:
        """Notes a mistake."""
        self.problems.append(f"{self.path}:{line}: {text}")

    def end(self) -> None:
        """Raises RobotFileError where anything was wrong."""
        if self.problems:
            raise RobotFileError(self.problems)

    def any_root(self) -> Node:
        """Returns the root element.

        Raises:
            RobotFileError: a file that cannot be read, or is no XML.
        """
        try:
            size = self.path.stat().st_size
            data = self.path.read_bytes() if size <= LARGEST else b""
        except OSError as error:
            raise RobotFileError([f"{self.path}: cannot be read: {error.strerror}"]) from error
        if size > LARGEST:
            raise RobotFileError([f"{self.path}: has {size} bytes; a robot has {LARGEST} at most"])
        return self._parsed(data)

    def root(self, tag: str) -> Node:
        """Returns the root element, which must have this tag.

        Raises:
            RobotFileError: a file that cannot be read, or is no such XML.
        """
        root = self.any_root()
        if root.tag != tag:
            raise RobotFileError([f"{self.path}:{root.line}: the root element is <{root.tag}>, expected <{tag}>"])
        return root

    def _parsed(self, data: bytes) -> Node:
        parser = expat.ParserCreate()
        top = Node("", {}, 0)
        open_nodes = [top]

        def start(tag: str, attributes: dict[str, str]) -> None:
            if len(open_nodes) > DEEPEST:
                raise RobotFileError([f"{self.path}:{parser.CurrentLineNumber}: elements are nested more than {DEEPEST} deep"])
            node = Node(tag, attributes, parser.CurrentLineNumber)
            open_nodes[-1].children.append(node)
            open_nodes.append(node)

        def text(data: str) -> None:
            open_nodes[-1].content += data

        def refuse(*_: object) -> None:
            raise RobotFileError([f"{self.path}:{parser.CurrentLineNumber}: a document type or an entity; write the file without"])

        parser.buffer_text = True
        parser.CharacterDataHandler = text
        parser.StartElementHandler = start
        parser.EndElementHandler = lambda _: open_nodes.pop()
        parser.StartDoctypeDeclHandler = refuse
        parser.EntityDeclHandler = refuse
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise RobotFileError([f"{self.path}:{error.lineno}: no XML: {expat.ErrorString(error.code)}"]) from error
        except (ValueError, LookupError) as error:
            if isinstance(error, RobotFileError):
                raise
            raise RobotFileError([f"{self.path}: no XML: {error}"]) from error
        return top.children[0]

    def text(self, node: Node, name: str) -> str:
        """Returns an attribute that must be there."""
        value = node.attributes.get(name, "")
        if not value:
            self.wrong(node.line, f"<{node.tag}> has no {name}")
        return value

    def numbers(self, node: Node | None, name: str, default: Sequence[float], *, endless: bool = False) -> np.ndarray:
        """Returns an attribute of as many finite numbers, or `endless` ones, as the default has; the default where it is missing."""
        if node is None or name not in node.attributes:
            return np.asarray(default, float)
        text = node.attributes[name]
        try:
            values = np.asarray([float(word) for word in text.split()])
        except ValueError:
            values = np.asarray([np.nan])
        if values.shape != (len(default),) or np.any(np.isnan(values)) or not (endless or np.all(np.isfinite(values))):
            kind = "" if endless else "finite "
            count = f"a {kind}number" if len(default) == 1 else f"{len(default)} {kind}numbers"
            self.wrong(node.line, f"{name} of <{node.tag}> must be {count}, got {text!r}")
            return np.asarray(default, float)
        return values

    def number(self, node: Node | None, name: str, default: float = 0.0, *, endless: bool = False) -> float:
        """Returns an attribute that is one finite number, or an `endless` one."""
        return float(self.numbers(node, name, (default,), endless=endless)[0])

    def needed(self, inside: Node, tag: str, name: str) -> float:
        """Returns an attribute of a child, one finite number that must be there."""
        node = inside.first(tag)
        if node is None or name not in node.attributes:
            self.wrong(inside.line if node is None else node.line, f"<{inside.tag}> has no <{tag} {name}=...>")
        return self.number(node, name)

    def values(self, node: Node | None, default: Sequence[float], *, endless: bool = False) -> np.ndarray:
        """Returns the text of an element, as `numbers`; the default where there is no element or no text."""
        if node is None or not node.content.strip():
            return np.asarray(default, float)
        words = Node(node.tag, {"text": node.content.strip()}, node.line)
        return self.numbers(words, "text", default, endless=endless)

    def value(self, node: Node | None, default: float, *, endless: bool = False) -> float:
        """Returns the text of an element, one finite number, or an `endless` one; the default where there is no element."""
        if node is not None and not node.content.strip():
            self.wrong(node.line, f"<{node.tag}> has no number")
        return float(self.values(node, (default,), endless=endless)[0])

    def truth_of(self, node: Node, name: str) -> bool:
        """Returns an attribute that is true or false; false where it is missing."""
        return self.truth(Node(name, {}, node.line, content=node.attributes.get(name, "")), False)

    def truth(self, node: Node | None, default: bool) -> bool:
        """Returns the text of an element, true or false."""
        if node is None or not node.content.strip():
            return default
        text = node.content.strip().lower()
        if text not in ("true", "false", "1", "0"):
            self.wrong(node.line, f"<{node.tag}> must be true or false, got {text!r}")
        return text in ("true", "1")
