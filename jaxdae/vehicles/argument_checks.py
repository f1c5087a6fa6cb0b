"""Validation of the arguments of vehicle constructors and maps; traced numbers are not checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jaxdae.mechanisms.describe.numbers import concrete, shown


def refuse(caller: str, *mistakes: Iterable[str]) -> None:
    """Raise a single error that lists all mistakes, if there are any.

    Args:
        caller: name of the calling function, for the message.
        mistakes: messages about each argument.

    Raises:
        ValueError: at least one mistake.
    """
    if found := [each for some in mistakes for each in some]:
        raise ValueError(f"{caller}: " + "; ".join(found))


def length_mistakes(name: str, x: Any) -> Iterator[str]:
    """Yield a value that is not a positive, finite length in m."""
    known = concrete(x)
    if known is not None and not (known.ndim == 0 and np.isfinite(known) and known > 0.0):
        yield f"{name} must be positive and finite, in m, got {shown(x)}"


def offset_mistakes(name: str, x: Any) -> Iterator[str]:
    """Yield a value that is not a finite, nonzero distance in m; its sign is a direction."""
    known = concrete(x)
    if known is not None and not (known.ndim == 0 and np.isfinite(known) and known != 0.0):
        yield f"{name} must be finite and nonzero, in m, got {shown(x)}"


def number_mistakes(name: str, x: Any, size: int, what: str) -> Iterator[str]:
    """Yield a message unless x is `size` finite numbers; `what` describes them, such as "(x, y) in m"."""
    known = concrete(x)
    if known is not None and not (known.shape == (size,) and np.all(np.isfinite(known))):
        yield f"{name} must be {size} finite numbers, {what}, got {shown(x)}"


def _is_for(known: np.ndarray, count: int, *, listed: bool = False) -> bool:
    """Return whether the array is one number or one per element; `listed` accepts a list of length one."""
    return known.shape == () or ((listed or count > 1) and known.shape == (count,))


def wheel_mistakes(
    name: str, x: Any, count: int, each: str = "wheel", *, listed: bool = False
) -> Iterator[str]:
    """Yield a message unless x is one finite number, or `count` of them, one per wheel or other `each`."""
    known = concrete(x)
    if known is not None and not (_is_for(known, count, listed=listed) and np.all(np.isfinite(known))):
        shape = f" of shape {known.shape}" if known.ndim else ""
        wanted = f"one number, or {count} of them, one per {each}" if listed or count > 1 else "one number"
        yield f"{name} must be {wanted}, finite, got {shown(x)}{shape}"


def radius_mistakes(name: str, x: Any, count: int) -> Iterator[str]:
    """Yield a message unless x is one positive radius in m, or one per wheel."""
    found, known = list(wheel_mistakes(name, x, count)), concrete(x)
    yield from found
    if not found and known is not None and not np.all(known > 0.0):
        yield f"{name} must be positive, got {shown(x)}"


def angle_mistakes(name: str, x: Any, count: int | None) -> Iterator[str]:
    """Yield a message unless x holds `count` kingpin angles in rad; a count of None allows any shape."""
    known = concrete(x)
    if known is None:
        return
    if count is not None and not _is_for(known, count):
        yield from wheel_mistakes(name, x, count)
    elif not np.all(np.abs(known) <= np.pi):
        yield f"{name} must lie between -pi and pi, got {shown(x)}; angles are in rad"


def frame_mistakes(center: Any, pose: Any) -> Iterator[str]:
    """Yield messages about the mass center and the initial pose of a vehicle in the plane."""
    yield from number_mistakes("center", center, 2, "(x, y) in m")
    yield from number_mistakes("pose", pose, 3, "(x, y, heading) in m and rad")
