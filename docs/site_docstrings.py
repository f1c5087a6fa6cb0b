"""Docstrings of the library as reStructuredText.

They are plain text with code in single backticks, equations as indented blocks, and sections in Google's
style, which Sphinx's napoleon reads after this.
"""

import re

CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:", "Note:", "Example:", "Examples:")
BULLET = re.compile(r"^\s*([*-]|\d+\.)\s+")


def escaped(text):
    """Returns a piece of text outside of code with the marks of reStructuredText escaped."""
    return re.sub(r"([|*])", r"\\\1", re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", text))


def marked(line):
    """Returns a line with code in double backticks and everything else plain."""
    bullet = BULLET.match(line)
    head, rest = (line[: bullet.end()], line[bullet.end() :]) if bullet else ("", line)
    pieces = CODE.split(rest.replace("``", "`"))
    return head + "".join(f"``{piece}``" if k % 2 else escaped(piece) for k, piece in enumerate(pieces))


def rst(lines):
    """Returns the lines of a docstring: equations as literal blocks, references as a paragraph, code and marks as they are meant."""
    found, part, listed, before = [], "text", False, ""
    for line in lines:
        bare = line.strip()
        if bare and not line.startswith(" "):
            part = "section" if bare in SECTIONS else "references" if bare == "References:" else "text"
            listed = part == "text" and (listed or bool(BULLET.match(line)))
        elif bare and part == "text" and not listed and not before:
            # An indented block after an empty line that continues no list.
            part = "equation"
            found += ["::", ""]
        if part == "references":
            found += ["**References**", ""] if bare == "References:" else [marked(bare)]
        else:
            found.append(line if part == "equation" else marked(line))
        before = bare
    return found


def to_rst(app, what, name, obj, options, lines):
    """Mends a docstring in place; a handler of Sphinx's event autodoc-process-docstring."""
    lines[:] = rst(lines)
