"""Suggestions for unknown names, and short texts for messages."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

_COMPARED = 400
_WIDTH = 60
_SHOWN = 12


def meant(word: object, known: Iterable[object]) -> str:
    """Suggest the closest known name, such as "did you mean 'wheel'?", or return "" if none is close."""
    if len(str(word)) > _COMPARED:  # The comparison takes quadratic time.
        return ""
    near = difflib.get_close_matches(
        str(word), [text for name in known if len(text := str(name)) <= _COMPARED], n=1
    )
    return f"did you mean {near[0]!r}?" if near else ""


def shorten(text: str, width: int = _WIDTH) -> str:
    """Return a text cut to a width that fits into a line of a message."""
    return text if len(text) <= width else text[: width - 3] + "..."


def brief(value: object, write: Callable[[object], str] = repr) -> str:
    """Return a value on one line, cut to a width that fits into a message.

    Args:
        value: any object.
        write: repr or str.
    """
    try:
        return shorten(" ".join(write(value).split()), 2 * _WIDTH)
    except ValueError:  # Python refuses to print integers with thousands of digits.
        return f"a huge {type(value).__name__}"


def join_first(items: Iterable[object], separator: str = ", ") -> str:
    """Return the first texts of a list, each shortened, and the total number if there are more."""
    texts = [str(item) for item in items]
    shown = separator.join(shorten(text, 2 * _WIDTH) for text in texts[:_SHOWN])
    return shown if len(texts) <= _SHOWN else f"{shown}{separator}... ({len(texts)} in all)"


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count with its noun, such as "1 body" or "2 bodies"."""
    return f"{count} {one if count == 1 else several or one + 's'}"
