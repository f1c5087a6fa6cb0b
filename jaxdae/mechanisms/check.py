"""Mistakes in the description of a mechanism, all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxdae.mechanisms.describe import Body, known_names
from jaxdae.mechanisms.fields import GROUND, Known, concrete, is_positive, is_vector


def check_description(
    bodies: Sequence[Any],
    joints: Sequence[Any],
    forces: Sequence[Any],
    gravity: Any,
    joint_types: tuple[Any, ...],
    force_types: tuple[Any, ...],
) -> None:
    """Raises ValueError listing every mistake: names, places, axes, values that no mechanism has."""
    lists = (("body", bodies, (Body,)), ("joint", joints, joint_types), ("force", forces, force_types))
    mistakes = [mistake for what, items, kinds in lists for mistake in _kind_mistakes(what, items, kinds)]
    if mistakes:
        raise TypeError("planar_mechanism: " + "; ".join(mistakes))
    names = known_names(bodies, joints, joint_types)
    poses = {body.name: body.pose for body in bodies} | {GROUND: (0.0, 0.0, 0.0)}
    mistakes = [
        *(m for what, items, _ in lists for m in _name_mistakes(what, items)),
        *(m for body in bodies for m in _body_mistakes(body)),
        *(f"{what} {item.name!r}{m}" for what, items, _ in lists[1:] for item in items for m in _element_mistakes(item, names, poses)),
    ]
    if not bodies:
        mistakes.insert(0, "a mechanism needs at least one body")
    if not is_vector(gravity, 2):
        mistakes.append(f"gravity must be two finite numbers (x, y) in m/s^2, got {gravity}")
    if mistakes:
        raise ValueError("planar_mechanism: " + "; ".join(mistakes))


def _kind_mistakes(what: str, items: Any, kinds: tuple[Any, ...]) -> Iterable[str]:
    plural = "bodies" if what == "body" else f"{what}s"
    if not isinstance(items, Sequence) or isinstance(items, str):
        yield f"{plural} must be a list, got {type(items).__name__}"
        return
    known = ", ".join(kind.__name__ for kind in kinds)
    for k, item in enumerate(items):
        if not isinstance(item, kinds):
            yield f"{plural}[{k}] is a {type(item).__name__}; expected {known}"
        elif not (isinstance(item.name, str) and item.name):
            yield f"{plural}[{k}]: name must be text, got {item.name!r}"


def _name_mistakes(what: str, items: Sequence[Any]) -> Iterable[str]:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            yield f"{what} name {item.name!r} is used twice"
        if item.name == GROUND:
            yield f"a {what} cannot be named {GROUND!r}: that is the fixed world"
        seen.add(item.name)


def _body_mistakes(body: Body) -> Iterable[str]:
    for name in ("mass", "inertia"):
        if not is_positive(getattr(body, name)):
            yield f"body {body.name!r}: {name} must be a positive number, got {getattr(body, name)}"
    if not is_vector(body.pose, 3):
        yield f"body {body.name!r}: pose must be three finite numbers (x, y, theta), got {body.pose}"


def _element_mistakes(item: Any, names: Known, poses: Mapping[str, Any]) -> Iterable[str]:
    """Yields what is wrong with a joint or a force, each to follow its name."""
    kinds = item.kinds()
    ends = [getattr(item, end) for end in ("a", "b") if end in kinds]
    if len(ends) == 2 and ends[0] == ends[1]:
        yield f" connects {ends[0]!r} with itself"
    pairs = item.places()
    given = {name for pair in pairs for name in pair if getattr(item, name) is not None}
    missing = [f"{x} or {y}" for x, y in pairs if not {x, y} & given]
    double = [f"{x} and {y}" for x, y in pairs if {x, y} <= given]
    if missing:
        yield f" needs a place: give {' and '.join(missing)}"
    if double:
        yield f" has both {' and both '.join(double)}: give one of them"
    for name, kind in kinds.items():
        for mistake in kind.mistakes(getattr(item, name), names):
            yield f": {name} {mistake}"
    bodies = {point: getattr(item, kinds[point].body) for _, point in pairs}
    places = {point: _start_place(poses.get(bodies[point]), getattr(item, at), getattr(item, point)) for at, point in pairs}
    for mistake in item.mistakes(places):
        yield f": {mistake}"


def _start_place(pose: Any, at: Any, point: Any) -> Any:
    """Returns a place in the world at the start pose, None where it is traced or a mistake of its own."""
    pose, place = concrete(pose), concrete(point if at is None else at)
    if pose is None or place is None or pose.shape != (3,) or place.shape != (2,):
        return None
    if at is not None:
        return place
    c, s = np.cos(pose[2]), np.sin(pose[2])
    return pose[:2] + np.array([c * place[0] - s * place[1], s * place[0] + c * place[1]])
