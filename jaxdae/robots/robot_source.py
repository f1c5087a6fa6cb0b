"""Robot files as trees of elements with line numbers, and the list of their mistakes.

Expat, from the standard library, parses the elements, because messages name lines. Document types and
entities are rejected: no robot needs them, and they can expand a small file enormously. `Library` reads the
files of one robot and enforces the limits of `jaxdae.robots.file_limits`.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence
from xml.parsers import expat

import numpy as np

from jaxdae.base.suggestions import brief, shorten
from jaxdae.robots.file_limits import (
    DEEPEST,
    DEEPEST_INCLUDE,
    LARGEST_XML,
    MOST_BYTES,
    MOST_ELEMENTS,
    MOST_FILES,
    MOST_PROBLEMS,
)

_LONGEST = 2000
"""The longest problem in a message, in characters."""


class RobotFileError(ValueError):
    """An invalid robot file; the message lists all mistakes, each with file and line.

    Attributes:
        problems: one text per mistake.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        shown = [shorten(text, _LONGEST) for text in problems[: MOST_PROBLEMS + 1]]
        more = [f"... ({len(problems)} problems in all)"] if len(problems) > len(shown) else []
        super().__init__("\n".join([*shown, *more]))


@dataclasses.dataclass
class Node:
    """An element of a file; `content` is its text without the text of its children."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Node] = dataclasses.field(default_factory=list)
    content: str = ""

    def all(self, tag: str) -> Iterator[Node]:
        """Yield the children with a tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> Node | None:
        """Return the first child with a tag."""
        return next(self.all(tag), None)

    def everything(self) -> Iterator[Node]:
        """Yield the element and all its descendants, in the order of the file."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


class Library:
    """The files of one robot. Each XML file is parsed once; `jaxdae.robots.file_limits` limits the totals."""

    def __init__(self) -> None:
        self._roots: dict[pathlib.Path, tuple[Node, int]] = {}
        self._totals: collections.Counter[str] = collections.Counter()

    def root(self, path: pathlib.Path, chain: Sequence[pathlib.Path] = ()) -> Node:
        """Return the root element of an XML file.

        Args:
            path: path of the file.
            chain: the files that include it, outermost first, with links resolved.

        Raises:
            RobotFileError: an unreadable file, invalid XML, a cycle of includes, or an exceeded limit.
        """
        real = pathlib.Path(os.path.realpath(path))
        if real in chain:
            way = " -> ".join(one.name for one in [*chain[chain.index(real) :], real])
            raise RobotFileError([f"{chain[-1]}: files include each other in a cycle: {shorten(way, 400)}"])
        if len(chain) > DEEPEST_INCLUDE:
            raise RobotFileError([f"{path}: files are included more than {DEEPEST_INCLUDE} deep"])
        self._count(path, "XML files", 1, MOST_FILES)
        if real not in self._roots:
            data = self.data(path, LARGEST_XML)
            self._roots[real] = _parsed(path, data, MOST_ELEMENTS)
        root, elements = self._roots[real]
        self._count(path, "XML elements", elements, MOST_ELEMENTS)
        return root

    def data(self, path: pathlib.Path, largest: int = MOST_BYTES) -> bytes:
        """Return the content of a regular file of at most `largest` bytes.

        Raises:
            RobotFileError: an unreadable file, a folder, a device, or an exceeded limit.
        """
        try:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode):
                kind = "a folder" if stat.S_ISDIR(state.st_mode) else "a device or a pipe"
                raise RobotFileError([f"{path}: cannot be read: it is {kind}, expected a file"])
            if state.st_size > largest:
                raise RobotFileError([f"{path}: has {state.st_size} bytes; the limit is {largest}"])
            self._count(path, "bytes in all files", state.st_size, MOST_BYTES)
            with path.open("rb") as stream:
                return stream.read(state.st_size)
        except (OSError, ValueError) as error:
            if isinstance(error, RobotFileError):
                raise
            raise RobotFileError(
                [f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"]
            ) from error

    def _count(self, path: pathlib.Path, what: str, more: int, most: int) -> None:
        self._totals[what] += more
        if self._totals[what] > most:
            raise RobotFileError(
                [f"{path}: the robot has at least {self._totals[what]} {what}; the limit is {most}"]
            )


class Source:
    """A file during reading, which collects mistakes in order to report all of them at once.

    Args:
        path: path of the file.
        library: reader of the files of the robot; by default a new reader.
        chain: the files that include it, outermost first, with links resolved.
    """

    def __init__(
        self, path: pathlib.Path, library: Library | None = None, chain: Sequence[pathlib.Path] = ()
    ) -> None:
        self.path = path
        self.chain = chain
        self.library = library or Library()
        self.problems: list[str] = []
        self.doubts: list[str] = []

    def doubt(self, line: int, text: str) -> None:
        """Note a probable mistake."""
        self.doubts.append(f"line {line}: {text}")

    def wrong(self, line: int, text: str) -> None:
        """Note a mistake.

        Raises:
            RobotFileError: too many mistakes.
        """
        self.problems.append(f"{self.path}:{line}: {shorten(text, _LONGEST)}")
        if len(self.problems) >= MOST_PROBLEMS:
            raise RobotFileError(
                [*self.problems, f"{self.path}: stopped reading after {MOST_PROBLEMS} errors"]
            )

    def end(self) -> None:
        """Raise RobotFileError if mistakes were noted."""
        if self.problems:
            raise RobotFileError(self.problems)

    def root(self, tag: str) -> Node:
        """Return the root element, which must have this tag.

        Raises:
            RobotFileError: an unreadable file, invalid XML, or another root element.
        """
        root = self.library.root(self.path, self.chain)
        if root.tag != tag:
            raise RobotFileError(
                [f"{self.path}:{root.line}: the root element is <{shorten(root.tag)}>, expected <{tag}>"]
            )
        return root

    def at_most(self, most: int, count: int, what: str) -> None:
        """Raise RobotFileError if a count exceeds the limit."""
        if count > most:
            raise RobotFileError([f"{self.path}: the robot has {count} {what}; the limit is {most}"])

    def text(self, node: Node, name: str) -> str:
        """Return a required attribute."""
        value = node.attributes.get(name, "")
        if not value:
            self.wrong(node.line, f"<{node.tag}> has no {name}")
        return value

    def numbers(
        self, node: Node | None, name: str, default: Sequence[float], *, endless: bool = False
    ) -> np.ndarray:
        """Return an attribute with as many numbers as the default; infinite ones only if `endless`."""
        if node is None or name not in node.attributes:
            return np.asarray(default, float)
        text = node.attributes[name]
        try:
            values = np.asarray([float(word) for word in text.split()])
        except ValueError:
            values = np.asarray([np.nan])
        if (
            values.shape != (len(default),)
            or np.any(np.isnan(values))
            or not (endless or np.all(np.isfinite(values)))
        ):
            kind = "" if endless else "finite "
            count = f"a {kind}number" if len(default) == 1 else f"{len(default)} {kind}numbers"
            self.wrong(node.line, f"{name} of <{node.tag}> must be {count}, got {brief(text)}")
            return np.asarray(default, float)
        return values

    def number(self, node: Node | None, name: str, default: float = 0.0, *, endless: bool = False) -> float:
        """Return an attribute that is one number, which may be infinite if `endless`."""
        return float(self.numbers(node, name, (default,), endless=endless)[0])

    def needed(self, inside: Node, tag: str, name: str) -> float:
        """Return a required attribute of a child, one finite number."""
        node = inside.first(tag)
        if node is None or name not in node.attributes:
            self.wrong(
                inside.line if node is None else node.line, f"<{inside.tag}> has no <{tag} {name}=...>"
            )
        return self.number(node, name)

    def values(self, node: Node | None, default: Sequence[float], *, endless: bool = False) -> np.ndarray:
        """Return the text of an element as in `numbers`; the default without an element or text."""
        if node is None or not node.content.strip():
            return np.asarray(default, float)
        words = Node(node.tag, {"text": node.content.strip()}, node.line)
        return self.numbers(words, "text", default, endless=endless)

    def value(self, node: Node | None, default: float, *, endless: bool = False) -> float:
        """Return the text of an element, one number, which may be infinite if `endless`; else the default."""
        if node is not None and not node.content.strip():
            self.wrong(node.line, f"<{node.tag}> has no number")
        return float(self.values(node, (default,), endless=endless)[0])

    def truth_of(self, node: Node, name: str) -> bool:
        """Return a true or false attribute; false if it is missing."""
        return self.truth(Node(name, {}, node.line, content=node.attributes.get(name, "")), False)

    def truth(self, node: Node | None, default: bool) -> bool:
        """Return the text of an element, true or false; the default without an element or text."""
        if node is None or not node.content.strip():
            return default
        text = node.content.strip().lower()
        if text not in ("true", "false", "1", "0"):
            self.wrong(node.line, f"<{node.tag}> must be true or false, got {brief(text)}")
        return text in ("true", "1")


def _parsed(path: pathlib.Path, data: bytes, most: int) -> tuple[Node, int]:
    """Return the root element of a document, and the number of its elements and attributes."""
    parser = expat.ParserCreate()
    parser.buffer_size = 1 << 20  # Fewer text callbacks.
    top = Node("", {}, 0)
    open_nodes: list[Node] = [top]
    texts: list[list[str]] = [[]]
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1 + len(attributes) // 10
        if len(open_nodes) > DEEPEST:
            raise RobotFileError(
                [f"{path}:{parser.CurrentLineNumber}: elements are nested more than {DEEPEST} deep"]
            )
        if count > most:
            raise RobotFileError(
                [f"{path}:{parser.CurrentLineNumber}: the file has more than {most} XML elements"]
            )
        node = Node(tag, attributes, parser.CurrentLineNumber)
        open_nodes[-1].children.append(node)
        open_nodes.append(node)
        texts.append([])

    def end(_: str) -> None:
        open_nodes.pop().content = "".join(texts.pop())

    def refuse(*_: object) -> None:
        raise RobotFileError(
            [f"{path}:{parser.CurrentLineNumber}: document types and entities are not supported; remove them"]
        )

    parser.buffer_text = True
    parser.CharacterDataHandler = lambda data: texts[-1].append(data)
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise RobotFileError(
            [f"{path}:{error.lineno}: invalid XML: {expat.ErrorString(error.code)}"]
        ) from error
    except (ValueError, LookupError) as error:
        if isinstance(error, RobotFileError):
            raise
        raise RobotFileError([f"{path}: invalid XML: {error}"]) from error
    return top.children[0], count
