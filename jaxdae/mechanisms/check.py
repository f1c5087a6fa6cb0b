"""Mistakes in the description of a mechanism, all of them at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdae.mechanisms.bodies import Body, DescriptionWarning, Rotor, SpatialBody
from jaxdae.mechanisms.describe import known_names
from jaxdae.mechanisms.kinds import GROUND, Known
from jaxdae.mechanisms.space import Plane, Space
from jaxdae.mechanisms.values import concrete, is_vector

BODIES: dict[str, tuple[Any, ...]] = {"plane": (Body, Rotor), "space": (SpatialBody,)}


class DescriptionError(ValueError):
    """Mistakes in a description.

    Attributes:
        mistakes: what each is of ("body", "joint", "force", or empty), its name, and the mistake in words.
    """

    def __init__(self, caller: str, mistakes: Sequence[tuple[str, str, str]]) -> None:
        """Keeps the mistakes."""
        self.mistakes = tuple(mistakes)
        super().__init__(f"{caller}: " + "; ".join(text for _, _, text in self.mistakes))


class Elements(NamedTuple):
    """One of the lists of a description, with the types that its elements may have."""

    given: Sequence[Any]
    types: tuple[Any, ...]


def check_description(
    caller: str, space: Plane | Space, bodies: Sequence[Any], elements: Mapping[str, Elements], gravity: Any, *, massless: bool
) -> None:
    """Raises where a description has mistakes, and tells all of them.

    Args:
        caller: who asks, for messages.
        space: in which the mechanism is.
        bodies: what should be bodies.
        elements: what should be joints, forces and drives, by "joint", "force" and "drive".
        gravity: in m/s^2.
        massless: whether bodies may go without mass and inertia.

    Raises:
        TypeError: things in the lists that are of none of the types.
        DescriptionError: a ValueError: names, places, axes, values that no mechanism has.

    Warns:
        DescriptionWarning: of what no body has.
    """
    lists = {"body": Elements(bodies, BODIES[space.name]), **elements}
    mistakes = [mistake for what, some in lists.items() for mistake in _kind_mistakes(what, some.given, some.types)]
    if mistakes:
        raise TypeError(f"{caller}: " + "; ".join(mistakes))
    names = known_names(bodies, elements["joint"].given, elements["joint"].types)
    wrong = [(body, mistake) for body in bodies for mistake in body.mistakes(massless)]
    # Numbers that are known stay known inside of a function that is being compiled.
    with jax.ensure_compile_time_eval():
        frames = {} if wrong else {body.name: body.frame() for body in bodies} | {GROUND: space.frame(*space.frame.GROUND)}
    mistakes = [
        *((what, name, m) for what, some in lists.items() for name, m in _name_mistakes(what, some.given)),
        *(("body", body.name, f"body {body.name!r}: {mistake}") for body, mistake in wrong),
        *(
            (what, item.name, f"{what} {item.name!r}{mistake}")
            for what, some in elements.items()
            for item in some.given
            for mistake in _element_mistakes(item, names, frames)
        ),
    ]
    if not bodies:
        mistakes.insert(0, ("", "", "a mechanism needs at least one body"))
    if not is_vector(gravity, space.dimension):
        count = "two finite numbers (x, y)" if space.dimension == 2 else "three finite numbers (x, y, z)"
        mistakes.append(("", "", f"gravity must be {count} in m/s^2, got {gravity}"))
    if mistakes:
        raise DescriptionError(caller, mistakes)
    doubts = [f"body {body.name!r}: {doubt}" for body in bodies for doubt in body.doubts()]
    if doubts:
        # At the line that builds the mechanism.
        warnings.warn(f"{caller}: " + "; ".join(doubts), DescriptionWarning, stacklevel=4)


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


def _name_mistakes(what: str, items: Sequence[Any]) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            yield item.name, f"{what} name {item.name!r} is used twice"
        if item.name == GROUND:
            yield item.name, f"a {what} cannot be named {GROUND!r}: that is the fixed world"
        seen.add(item.name)


def _element_mistakes(item: Any, names: Known, frames: Mapping[str, Any]) -> Iterable[str]:
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
    for body in dict.fromkeys(getattr(item, kinds[point].body) for _, point in pairs):
        if body in names.rotors:
            yield f": {body!r} is a rotor, which has an angle and no place: name the body that carries it"
    places = {point: _start_place(item, at, point, kinds[point], frames) for at, point in pairs}
    directions = {name: _start_direction(item, name, kind, frames) for name, kind in kinds.items() if kind.is_direction}
    for mistake in (*item.mistakes(places | directions), *item.unknown(names)):
        yield f": {mistake}"


def _start_place(item: Any, at: str, point: str, kind: Any, frames: Mapping[str, Any]) -> Any:
    """Returns a place in the world at the start pose, None where it is traced or a mistake of its own."""
    frame, in_world = frames.get(getattr(item, kind.body)), getattr(item, at) is not None
    place = concrete(getattr(item, at if in_world else point))
    if frame is None or concrete(list(frame)) is None or place is None or place.shape != (kind.dimension,):
        return None
    with jax.ensure_compile_time_eval():
        return place if in_world else concrete(frame.point(place).array())


def _start_direction(item: Any, name: str, kind: Any, frames: Mapping[str, Any]) -> Any:
    """Returns a unit vector in the world at the start pose, None where there is none, it is traced or a mistake of its own."""
    frame, given = frames.get(getattr(item, kind.body)), getattr(item, name)
    axis = None if given is None else concrete(given)
    if frame is None or concrete(list(frame)) is None or axis is None or axis.shape != (kind.dimension,) or not np.any(axis):
        return None
    axis = axis / np.linalg.norm(axis)
    in_world = kind.world is not None and getattr(item, kind.world) is not None
    with jax.ensure_compile_time_eval():
        return axis if in_world else concrete(frame.direction(axis).array())
