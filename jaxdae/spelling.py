"""What may have been meant by a word that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(word: object, known: Iterable[object]) -> str:
    """Returns a question for the nearest of the known words, such as "did you mean 'wheel'?"; nothing where none is near."""
    near = difflib.get_close_matches(str(word), [str(name) for name in known], n=1)
    return f"did you mean {near[0]!r}?" if near else ""
