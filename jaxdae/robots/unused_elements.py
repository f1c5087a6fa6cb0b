"""Unused parts of an XML file: unknown elements and attributes, and text where the format allows none.

A duplicate of an element that the format allows once is a mistake of the file, because only one of the two
could act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from jaxdae.robots.robot_graph import Ignored
from jaxdae.robots.robot_source import Node, Source


@dataclasses.dataclass(frozen=True)
class Format:
    """The used parts of a format.

    Attributes:
        elements: used child elements, by tag.
        attributes: used attributes, by tag.
        several: elements that may occur more than once.
        texts: whether elements have text.
        drawn: pairs of an element and a child element that the viewer reads, with their content.
    """

    elements: Mapping[str, Collection[str]]
    attributes: Mapping[str, Collection[str]]
    several: Collection[str]
    texts: bool
    drawn: Collection[tuple[str, str]] = ()


def unused(
    source: Source, nodes: Iterable[Node], known: Format, further: Mapping[str, list[int]]
) -> tuple[Ignored, ...]:
    """Return the unused items in the order of their first lines, and report duplicate elements as mistakes.

    Args:
        source: the file.
        nodes: the elements to check, including their descendants.
        known: the used parts of the format.
        further: lines of items that are read but have no effect, by description.
    """
    found = {what: list(lines) for what, lines in further.items() if lines}
    waiting, seen = list(nodes), set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for name in node.attributes:
            if name not in known.attributes.get(node.tag, ()) and ":" not in name and name != "xmlns":
                found.setdefault(f"{node.tag} {name}", []).append(node.line)
        if node.content.strip() and not known.texts:
            found.setdefault(f"text in {node.tag}", []).append(node.line)
        once: set[str] = set()
        for child in node.children:
            if (node.tag, child.tag) in known.drawn:
                continue
            if child.tag not in known.elements.get(node.tag, ()):
                found.setdefault(child.tag, []).append(child.line)
                continue
            waiting.append(child)
            if child.tag in once and child.tag not in known.several:
                source.wrong(
                    child.line,
                    f"<{node.tag}> in line {node.line} has a second <{child.tag}>; remove one of them",
                )
            once.add(child.tag)
    return tuple(
        sorted(
            (Ignored(what, min(lines), len(lines)) for what, lines in found.items()), key=lambda one: one.line
        )
    )
