"""What is wrong with a config, one line each: the place, what came, what was expected, what to do.

Every check of a config returns `Problem` values and goes on, so that all of them reach the user at once as one
`ConfigError`. Nothing here imports JAX.
"""

import dataclasses
import math
import sys
from collections.abc import Iterable
from typing import TypeGuard

from jaxdae.spelling import meant, shorten


@dataclasses.dataclass(frozen=True)
class Problem:
    """One mistake in a config.

    Attributes:
        where: file and line, or the command-line option, that holds the mistake.
        path: place in the config in the words of `--set`, for example `mechanism.bodies.crank.mass`.
        got: what came.
        expected: what was expected.
        remedy: what to do; empty where `expected` says it.
        line: line in the file, for sorting; 0 outside of the file.
    """

    where: str
    path: str
    got: str
    expected: str
    remedy: str = ""
    line: int = 0

    def __str__(self) -> str:
        """Returns the problem as one line."""
        place = f"{self.where}: {self.path}: " if self.path else f"{self.where}: "
        text = f"{place}got {self.got}, expected {self.expected}"
        return " ".join((f"{text}; {self.remedy}" if self.remedy else text).split())


class ConfigError(Exception):
    """A config with mistakes; `problems` lists all that were found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]):
        """Keeps the problems, sorted by line and without repetitions."""
        self.problems: tuple[Problem, ...] = tuple(sorted(dict.fromkeys(problems), key=lambda problem: problem.line))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Refused(Exception):
    """What was asked for cannot be done, and nothing was changed. The text is the whole message; the exit code is 2."""


class Failed(Exception):
    """What had begun could not be brought to its end. The text is the whole message; the exit code is 1."""


def did_you_mean(word: object, known: Iterable[str], what: str = "") -> str:
    """Returns the remedy for a misspelt word: the nearest of the known words, or all of them."""
    words = list(dict.fromkeys(str(name) for name in known))
    if question := meant(word, words):
        return question
    if not words:
        return {"": "there is no such thing here", "one": "there is none here"}.get(what, f"there are no {what} here")
    shown = ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")
    return f"choose {what + ' ' if what else ''}from: {shown}"


def show(value: object) -> str:
    """Returns a value of a config as a reader of the file would name it, shortened where long."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {shorten(repr(value))}"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}: {shorten(str(list(value)))}" if value else "an empty list"
    return shorten(str(value))


def is_number(value: object) -> TypeGuard[int | float]:
    """Returns whether a value of a config is a number; true and false are none, infinity and NaN are."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """Returns whether a value of a config is a finite number; whole numbers that are too large for a double are none."""
    return is_number(value) and bool(abs(value) <= sys.float_info.max)  # Of numbers of NumPy, too, a bool of Python.


def is_whole(value: object) -> TypeGuard[int]:
    """Returns whether a value of a config is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)
