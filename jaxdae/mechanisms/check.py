"""Mistakes in the description of a mechanism, all of them at once."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.mechanisms import specs


def check_specs(
    bodies: Sequence[specs.Body],
    joints: Sequence[specs.Joint],
    forces: Sequence[specs.ForceElement],
    gravity: Any = (0.0, 0.0),
) -> None:
    """Raises ValueError listing every mistake: names, places, axes, values that no mechanism has."""
    mistakes: list[str] = []
    kinds = (("body", specs.Body), ("joint", specs.Joint), ("force", specs.ForceElement))
    for (what, kind), items in zip(kinds, (bodies, joints, forces), strict=True):
        mistakes += _kind_mistakes(what, items, kind)
    if mistakes:
        raise TypeError("planar_mechanism: " + "; ".join(mistakes))
    mistakes = [
        *_name_mistakes("body", bodies),
        *_name_mistakes("joint", joints),
        *_name_mistakes("force", forces),
        *(m for body in bodies for m in _body_mistakes(body)),
        *(m for joint in joints for m in _reference_mistakes("joint", joint, bodies, joints)),
        *(m for force in forces for m in _reference_mistakes("force", force, bodies, joints)),
        *(m for joint in joints for m in _place_mistakes("joint", joint)),
        *(m for force in forces for m in _place_mistakes("force", force)),
        *(m for joint in joints for m in _number_mistakes("joint", joint)),
        *(m for force in forces for m in _number_mistakes("force", force)),
        *(m for joint in joints for m in _motion_mistakes(joint)),
        *(m for joint in joints for m in _rod_mistakes(joint, bodies)),
    ]
    if not bodies:
        mistakes.insert(0, "a mechanism needs at least one body")
    if not _is_vector(gravity, 2):
        mistakes.append(f"gravity must be two finite numbers (x, y) in m/s^2, got {gravity}")
    if mistakes:
        raise ValueError("planar_mechanism: " + "; ".join(mistakes))


def _concrete(x: Any) -> np.ndarray | None:
    """Returns the numbers, NaN where they are none, or None where they are traced."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)):
        return None
    try:
        return np.asarray(x, float)
    except (TypeError, ValueError):
        return np.asarray(np.nan)


def _is_vector(x: Any, size: int) -> bool:
    numbers = _concrete(x)
    return numbers is None or (numbers.shape == (size,) and bool(np.all(np.isfinite(numbers))))


def _is_number(x: Any) -> bool:
    numbers = _concrete(x)
    return numbers is None or (numbers.ndim == 0 and bool(np.isfinite(numbers)))


def _is_positive(x: Any) -> bool:
    numbers = _concrete(x)
    return _is_number(x) and (numbers is None or bool(numbers > 0.0))


def _kind_mistakes(what: str, items: Any, kind: Any) -> Iterable[str]:
    plural = "bodies" if what == "body" else f"{what}s"
    if not isinstance(items, Sequence) or isinstance(items, str):
        yield f"{plural} must be a list, got {type(items).__name__}"
        return
    known = ", ".join(k.__name__ for k in getattr(kind, "__args__", (kind,)))
    for k, item in enumerate(items):
        if not isinstance(item, kind):
            yield f"{plural}[{k}] is a {type(item).__name__}; expected {known}"
        elif not (isinstance(item.name, str) and item.name):
            yield f"{plural}[{k}]: name must be text, got {item.name!r}"


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
        if not _is_positive(getattr(body, name)):
            yield f"body {body.name!r}: {name} must be a positive number, got {getattr(body, name)}"
    if not _is_vector(body.pose, 3):
        yield f"body {body.name!r}: pose must be three finite numbers (x, y, theta), got {body.pose}"


def _reference_mistakes(what: str, item: Any, bodies: Sequence[specs.Body], joints: Sequence[specs.Joint]) -> Iterable[str]:
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
            yield (f"{what} {item.name!r}: joint is {item.joint!r}, which is no revolute or prismatic joint{_hint(item.joint, movable)}")
    number = getattr(item, "input", None)
    if number is not None and (not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 0):
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
    for place in dict.fromkeys(name for pair in choices for name in pair):
        value = getattr(item, place)
        if value is not None and not _is_vector(value, 2):
            yield f"{what} {item.name!r}: {place} must be two finite numbers (x, y), got {value}"
    direction = getattr(item, "axis", None)
    if hasattr(item, "axis"):
        axis = _concrete(direction)
        if not _is_vector(direction, 2) or (axis is not None and not np.any(axis)):
            yield f"{what} {item.name!r}: axis must be two numbers that are not both zero, got {direction}"


def _number_mistakes(what: str, item: Any) -> Iterable[str]:
    vectors = ("force", "direction") if isinstance(item, specs.Force) else ()
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if field.name in vectors:
            if not _is_vector(value, 2):
                yield f"{what} {item.name!r}: {field.name} must be two finite numbers (x, y), got {value}"
        elif field.name in _NUMBERS and not (value is None and field.default is None) and not _is_number(value):
            yield f"{what} {item.name!r}: {field.name} must be a finite number, got {value!r}"


_NUMBERS = (
    "damping",
    "force",
    "gain",
    "length",
    "ratio",
    "rest_angle",
    "rest_length",
    "stiffness",
    "torque",
)


def _motion_mistakes(item: Any) -> Iterable[str]:
    if not isinstance(item, specs.PrescribedMotion):
        return
    expected = f"joint {item.name!r}: motion must be a function of time such as Sinusoid(...), got {item.motion!r}"
    if not callable(item.motion) or isinstance(item.motion, type):
        yield expected
        return
    numbers = [leaf for leaf in jax.tree.leaves(item.motion) if leaf is not item.motion]
    wrong = [x for x in numbers if (values := _concrete(x)) is not None and not np.all(np.isfinite(values))]
    if wrong:
        yield f"joint {item.name!r}: motion has {wrong[0]!r} where a finite number is needed"
        return
    try:
        shape = jax.eval_shape(lambda t: item.motion(t), jnp.zeros(())).shape
    except Exception as error:
        yield f"{expected}, which fails: {error}"
        return
    if shape != ():
        yield f"{expected}, which returns shape {shape} instead of one number"


def _rod_mistakes(item: Any, bodies: Sequence[specs.Body]) -> Iterable[str]:
    if not isinstance(item, specs.Rod):
        return
    if item.length is not None:
        if _is_number(item.length) and not _is_positive(item.length):
            yield f"joint {item.name!r}: length must be positive, got {item.length}"
        return
    poses = {body.name: body.pose for body in bodies} | {specs.GROUND: (0.0, 0.0, 0.0)}
    ends = [_start_place(poses.get(item.a), item.at_a, item.point_a), _start_place(poses.get(item.b), item.at_b, item.point_b)]
    if ends[0] is not None and ends[1] is not None and np.array_equal(*ends):
        yield f"joint {item.name!r}: its points coincide at the start pose, so that its length would be 0; give length"


def _start_place(pose: Any, at: Any, point: Any) -> Any:
    """Returns a place in the world at the start pose, None where it is traced or a mistake of its own."""
    pose, place = _concrete(pose), _concrete(point if at is None else at)
    if pose is None or place is None or pose.shape != (3,) or place.shape != (2,):
        return None
    if at is not None:
        return place
    c, s = np.cos(pose[2]), np.sin(pose[2])
    return pose[:2] + np.array([c * place[0] - s * place[1], s * place[0] + c * place[1]])


def _hint(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (there is: {', '.join(dict.fromkeys(known))})"
