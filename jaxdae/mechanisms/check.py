"""Mistakes in the description of a mechanism, all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxdae.mechanisms import specs


def check_specs(
    bodies: Sequence[specs.Body], joints: Sequence[specs.Joint], forces: Sequence[specs.ForceElement]
) -> None:
    """Raises ValueError listing every mistake: names, places, axes, values that no mechanism has."""
    mistakes = [
        *_name_mistakes("body", bodies),
        *_name_mistakes("joint", joints),
        *_name_mistakes("force", forces),
        *(m for body in bodies for m in _body_mistakes(body)),
        *(m for joint in joints for m in _reference_mistakes("joint", joint, bodies, joints)),
        *(m for force in forces for m in _reference_mistakes("force", force, bodies, joints)),
        *(m for joint in joints for m in _place_mistakes("joint", joint)),
        *(m for force in forces for m in _place_mistakes("force", force)),
    ]
    if not bodies:
        mistakes.insert(0, "a mechanism needs at least one body")
    if mistakes:
        raise ValueError("planar_mechanism: " + "; ".join(mistakes))


def _concrete(x: Any) -> np.ndarray | None:
    """Returns the numbers, or None where they are traced."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x)):
        return None
    return np.asarray(x, float)


def _name_mistakes(what: str, items: Sequence[Any]) -> Iterable[str]:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            yield f"{what} name {item.name!r} is used twice"
        if item.name == specs.GROUND:
            yield f"a {what} cannot be named {specs.GROUND!r}: that is the fixed world"
        seen.add(item.name)


def _body_mistakes(body: specs.Body) -> Iterable[str]:
    for name in ("mass", "inertia"):
        value = _concrete(getattr(body, name))
        if value is not None and not (np.ndim(value) == 0 and np.isfinite(value) and value > 0.0):
            yield f"body {body.name!r}: {name} must be a positive number, got {getattr(body, name)}"
    pose = _concrete(body.pose)
    if pose is not None and not (pose.shape == (3,) and np.all(np.isfinite(pose))):
        yield f"body {body.name!r}: pose must be three finite numbers (x, y, theta), got {body.pose}"


def _reference_mistakes(
    what: str, item: Any, bodies: Sequence[specs.Body], joints: Sequence[specs.Joint]
) -> Iterable[str]:
    names = [body.name for body in bodies]
    ends = [(end, getattr(item, end)) for end in ("a", "b") if hasattr(item, end)]
    for end, name in ends:
        if name not in names and name != specs.GROUND:
            yield f"{what} {item.name!r}: {end} is {name!r}, which is no body{_hint(name, [*names, specs.GROUND])}"
    if len(ends) == 2 and ends[0][1] == ends[1][1]:
        yield f"{what} {item.name!r} connects {ends[0][1]!r} with itself"
    if isinstance(item, specs.Force) and item.body not in names:
        yield f"{what} {item.name!r}: body is {item.body!r}, which is no body{_hint(item.body, names)}"
    if isinstance(item, specs.PrescribedMotion | specs.JointForce):
        movable = [j.name for j in joints if isinstance(j, specs.Revolute | specs.Prismatic)]
        if item.joint not in movable:
            yield (
                f"{what} {item.name!r}: joint is {item.joint!r}, which is no revolute or prismatic joint"
                f"{_hint(item.joint, movable)}"
            )
    if isinstance(item, specs.PrescribedMotion) and not callable(item.motion):
        yield f"{what} {item.name!r}: motion must be a function of time such as Sinusoid(...), got {item.motion!r}"
    number = getattr(item, "input", None)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        yield f"{what} {item.name!r}: input must be an index 0, 1, ..., got {number!r}"


def _place_mistakes(what: str, item: Any) -> Iterable[str]:
    if isinstance(item, specs.Rod | specs.LinearSpring):
        choices = [("at_a", "point_a"), ("at_b", "point_b")]
    elif isinstance(item, specs.Force):
        choices = [("at", "point")]
    elif hasattr(item, "point_a"):
        choices = [("at", "point_a"), ("at", "point_b")]
    else:
        choices = []
    missing = [f"{x} or {y}" for x, y in choices if getattr(item, x) is None and getattr(item, y) is None]
    double = [f"{x} and {y}" for x, y in choices if getattr(item, x) is not None and getattr(item, y) is not None]
    if missing:
        yield f"{what} {item.name!r} needs a place: give {' and '.join(missing)}"
    if double:
        yield f"{what} {item.name!r} has both {' and both '.join(double)}: give one of them"
    for place in {name for pair in choices for name in pair}:
        value = getattr(item, place)
        if value is not None and (numbers := _concrete(value)) is not None:
            if numbers.shape != (2,) or not np.all(np.isfinite(numbers)):
                yield f"{what} {item.name!r}: {place} must be two finite numbers (x, y), got {value}"
    if hasattr(item, "axis") and (axis := _concrete(item.axis)) is not None:
        if axis.shape != (2,) or not np.all(np.isfinite(axis)) or not np.any(axis):
            yield f"{what} {item.name!r}: axis must be two numbers that are not both zero, got {item.axis}"
    if isinstance(item, specs.Rod) and item.length is not None and (length := _concrete(item.length)) is not None:
        if not (np.isfinite(length) and length > 0.0):
            yield f"{what} {item.name!r}: length must be positive, got {item.length}"


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (there is: {', '.join(known)})"
