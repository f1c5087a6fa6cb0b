"""Errors in a config, one line each: location, actual value, expected value and remedy.

Every check of a config returns `Problem` values and continues. The user therefore sees all of them together
in one `ConfigError`. This module does not import JAX.
"""

import dataclasses
import math
import sys
from collections.abc import Iterable
from typing import TypeGuard

from jaxdae.base.suggestions import meant, shorten


@dataclasses.dataclass(frozen=True)
class Problem:
    """One error in a config.

    Attributes:
        where: the file and line, or the command-line option, with the error.
        path: the location in the config in the notation of `--set`, for example
            `mechanism.bodies.crank.mass`.
        got: the actual value.
        expected: the expected value.
        remedy: the remedy; empty if `expected` implies it.
        line: the line in the file, for sorting; 0 outside of the file.
    """

    where: str
    path: str
    got: str
    expected: str
    remedy: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Return the problem as one line."""
        place = f"{self.where}: {self.path}: " if self.path else f"{self.where}: "
        text = f"{place}got {self.got}, expected {self.expected}"
        return " ".join((f"{text}; {self.remedy}" if self.remedy else text).split())


class ConfigError(Exception):
    """A config with errors; `problems` lists all of them in the order of the file."""

    def __init__(self, problems: Iterable[Problem]):
        """Store the problems, sorted by line and without duplicates."""
        self.problems: tuple[Problem, ...] = tuple(
            sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Refused(Exception):
    """A request that cannot be fulfilled; nothing has changed.

    The text is the whole message, and the exit code is 2.
    """


class Failed(Exception):
    """An operation that failed after it had started.

    The text is the whole message, and the exit code is 1.
    """


def did_you_mean(word: object, known: Iterable[str], what: str = "") -> str:
    """Return the remedy for a misspelled word: the closest known word, or the list of known words."""
    words = list(dict.fromkeys(str(name) for name in known))
    if question := meant(word, words):
        return question
    if not words:
        return {"": "no names exist here", "one": "none exists here"}.get(what, f"no {what} exist here")
    shown = ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")
    return f"choose {what + ' ' if what else ''}from: {shown}"


def show(value: object) -> str:
    """Return a config value in words for messages, shortened if it is long."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {shorten(repr(value))}"
    if isinstance(value, float):
        return (
            repr(value) if math.isfinite(value) else {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
        )
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}: {shorten(str(list(value)))}" if value else "an empty list"
    return shorten(str(value))


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a config value is a number; infinity and NaN are numbers, true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """Return whether a config value is a finite number; integers beyond the range of a double are not."""
    return is_number(value) and bool(abs(value) <= sys.float_info.max)  # convert a NumPy bool, too


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a config value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)
