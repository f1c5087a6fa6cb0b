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


def whole_code(lines):
    """Return the lines with each code span on one line: a span cannot continue on the next line."""
    found = []
    for line in lines:
        if found and found[-1].count("`") % 2 and line.strip():
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return found


def rst(lines):
    """Returns the lines of a docstring: equations as literal blocks, references as a paragraph, code and marks as they are meant."""
    found, part, listed, before = [], "text", False, ""
    for line in whole_code(lines):
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


FIELD = re.compile(r":[a-z]+[^:]*:")


def separate_fields(app, what, name, obj, options, lines):
    """Insert empty lines between fields and other text in place; a handler of Sphinx's event autodoc-process-docstring.

    The extension that adds the type of the result does not.
    """
    found, field = [], False
    for line in lines:
        last = found[-1] if found else ""
        if last.strip() and line.strip() and not line.startswith(" ") and bool(FIELD.match(line)) != field:
            found.append("")
        if line.strip() and not line.startswith(" "):
            field = bool(FIELD.match(line))
        found.append(line)
    lines[:] = found
