"""What nothing reads of an XML file: elements and attributes that are not known, and text where the format has none.

What is there twice, where the format has it once, is a mistake of the file: only one of the two could act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from jaxdae.robots.graph import Ignored
from jaxdae.robots.source import Node, Source


@dataclasses.dataclass(frozen=True)
class Format:
    """What is read of a format.

    Attributes:
        elements: what is read in an element, by its tag.
        attributes: the attributes that are read of an element, by its tag.
        several: the elements that there may be more than one of.
        texts: whether elements have text.
        drawn: the pairs of an element and an element in it that the viewer reads, with their content.
    """

    elements: Mapping[str, Collection[str]]
    attributes: Mapping[str, Collection[str]]
    several: Collection[str]
    texts: bool
    drawn: Collection[tuple[str, str]] = ()


def unused(source: Source, nodes: Iterable[Node], known: Format, further: Mapping[str, list[int]]) -> tuple[Ignored, ...]:
    """Returns what nothing uses, in the order of the first lines; notes elements that are there twice as mistakes.

    Args:
        source: the file.
        nodes: the elements to look into, with what is in them.
        known: what is read.
        further: lines of what is read but not used, by what it is.
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
                source.wrong(child.line, f"<{node.tag}> in line {node.line} has a second <{child.tag}>; remove one of them")
            once.add(child.tag)
    return tuple(sorted((Ignored(what, min(lines), len(lines)) for what, lines in found.items()), key=lambda one: one.line))
