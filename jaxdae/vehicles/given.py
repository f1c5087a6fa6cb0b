"""What is given to the constructors and maps of vehicles: all that is wrong with it at once. Numbers that are traced are not looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jaxdae.mechanisms.values import concrete, shown


def refuse(caller: str, *mistakes: Iterable[str]) -> None:
    """Raises where anything is wrong.

    Args:
        caller: who asks, for the message.
        mistakes: what is wrong with each of what was given, in words.

    Raises:
        ValueError: all mistakes.
    """
    if found := [each for some in mistakes for each in some]:
        raise ValueError(f"{caller}: " + "; ".join(found))


def length_mistakes(name: str, x: Any) -> Iterator[str]:
    """Yield a value that is not a positive, finite length in m."""
    known = concrete(x)
    if known is not None and not (known.ndim == 0 and np.isfinite(known) and known > 0.0):
        yield f"{name} must be a positive, finite number of meters, got {shown(x)}"


def offset_mistakes(name: str, x: Any) -> Iterator[str]:
    """Yield a value that is not a finite, nonzero distance in m; its sign is a direction."""
    known = concrete(x)
    if known is not None and not (known.ndim == 0 and np.isfinite(known) and known != 0.0):
        yield f"{name} must be a finite number of meters that is not zero, got {shown(x)}"


def number_mistakes(name: str, x: Any, size: int, what: str) -> Iterator[str]:
    """Yields what is not so many finite numbers; what: what they are, such as "(x, y) in m"."""
    known = concrete(x)
    if known is not None and not (known.shape == (size,) and np.all(np.isfinite(known))):
        yield f"{name} must be {size} finite numbers, {what}, got {shown(x)}"


def _is_for(known: np.ndarray, count: int, *, listed: bool = False) -> bool:
    """Returns whether numbers are one for all, or one for each of several; where they are listed there may be one of them."""
    return known.shape == () or ((listed or count > 1) and known.shape == (count,))


def wheel_mistakes(name: str, x: Any, count: int, each: str = "wheel", *, listed: bool = False) -> Iterator[str]:
    """Yields what is neither one number nor one a wheel, or whatever else there are several of, or of which there is a list."""
    known = concrete(x)
    if known is not None and not (_is_for(known, count, listed=listed) and np.all(np.isfinite(known))):
        shape = f" of shape {known.shape}" if known.ndim else ""
        wanted = f"one number, or {count} of them, one a {each}" if listed or count > 1 else "one number"
        yield f"{name} must be {wanted}, finite, got {shown(x)}{shape}"


def radius_mistakes(name: str, x: Any, count: int) -> Iterator[str]:
    """Yield a value that is neither one positive radius in m nor one per wheel."""
    found, known = list(wheel_mistakes(name, x, count)), concrete(x)
    yield from found
    if not found and known is not None and not np.all(known > 0.0):
        yield f"{name} must be positive, got {shown(x)}"


def angle_mistakes(name: str, x: Any, count: int | None) -> Iterator[str]:
    """Yields what are no angles of so many kingpins, in rad; a count of None allows an array of any shape."""
    known = concrete(x)
    if known is None:
        return
    if count is not None and not _is_for(known, count):
        yield from wheel_mistakes(name, x, count)
    elif not np.all(np.abs(known) <= np.pi):
        yield f"{name} must lie between -pi and pi, got {shown(x)}; angles are in rad"


def frame_mistakes(center: Any, pose: Any) -> Iterator[str]:
    """Yields what is wrong with the mass center and the start of a vehicle in the plane."""
    yield from number_mistakes("center", center, 2, "(x, y) in m")
    yield from number_mistakes("pose", pose, 3, "(x, y, heading) in m and rad")
