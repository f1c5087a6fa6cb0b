"""Angles in rad that are probably in degrees.

The rules have few false positives. Joints that wind up have limits that are multiples of pi, or powers of
ten, which stand for "no limit".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxdae.mechanisms.describe.numbers import concrete

TWO_TURNS = 4.0 * math.pi + 0.01
_LARGEST = 720.0
"""The largest limit of a joint in degrees."""
_OF_HALF_TURNS = 0.02
"""Tolerance for rounded multiples of half a turn."""


def looks_like_degrees(angle: float) -> bool:
    """Return whether an angle in rad is a multiple of 5 or 22.5, and at least ten, like most in degrees."""
    return bool(abs(angle) >= 10.0 and (angle % 5.0 == 0.0 or angle % 22.5 == 0.0))


def limits_in_degrees(limits: Iterable[float]) -> bool:
    """Return whether joint limits in rad look like degrees: over two turns, not a power of ten or k pi."""
    return any(TWO_TURNS < abs(limit) <= _LARGEST and not _has_no_unit(abs(limit)) for limit in limits)


def _has_no_unit(limit: float) -> bool:
    """Return whether a limit in rad is a multiple of half a turn, or a power of ten for "no limit"."""
    half_turns = limit / math.pi
    is_rounded = (2.0 * limit).is_integer()
    return math.log10(limit).is_integer() or (
        not is_rounded and abs(half_turns - round(half_turns)) <= _OF_HALF_TURNS
    )


def rests_in_degrees(rests: Iterable[float]) -> bool:
    """Return whether rest angles in rad look like degrees."""
    return any(map(looks_like_degrees, rests))


def doubts_of(name: str, angles: Iterable[Any], in_degrees: Callable[[list[float]], bool]) -> Iterable[str]:
    """Yield a warning if the known angles of a field are probably in degrees.

    Args:
        name: the field.
        angles: its values in rad; None, infinite and traced values are skipped.
        in_degrees: returns whether angles in rad look like degrees.
    """
    numbers = (None if angle is None else concrete(angle) for angle in angles)
    known = [float(x) for x in numbers if x is not None and np.isfinite(x)]
    if in_degrees(known):
        given, radians = (", ".join(f"{x:.6g}" for x in xs) for xs in (known, np.radians(known)))
        yield f"{name} is {given} rad; if it is in degrees, write {radians} rad"
