"""Checks of numbers in configs that pydantic cannot express; a union would report an error per member."""

from typing import Any

from jaxdae.app.config.problems import is_finite
from jaxdae.mechanisms.describe.kinds import NOTHING
from jaxdae.mechanisms.describe.number_kinds import Bounded, Limits, PerCoordinate


def limits(given: Any, *, kind: Limits) -> Any:
    """Return joint limits if they have the form of `Limits`."""
    for mistake in kind.mistakes(given, NOTHING):
        form = "[lower, upper]" if kind.count == 1 else f"a list of {kind.count} pairs [lower, upper]"
        raise ValueError(f"{given}|{form}, with null for no limit|limits {mistake.split(', got')[0]}")
    return given


def each(given: Any, *, kind: PerCoordinate) -> Any:
    """Return one number, or one number per coordinate of a joint."""
    numbers = given if isinstance(given, list | tuple) else [given]
    bounds = [
        f"{sign} {bound:g}" for sign, bound in ((">", kind.above), (">=", kind.at_least)) if bound is not None
    ]
    if given is None and not kind.required:
        return given
    fits = all(map(is_finite, numbers)) and not any(kind.out_of_bounds(numbers))
    if not fits or len(numbers) != (kind.count if isinstance(given, list | tuple) else 1):
        got = f"{list(given)}" if isinstance(given, list | tuple) else f"{given!r}"
        expected = " ".join(["a finite number", *bounds]) + f", or a list of {kind.count} of them"
        raise ValueError(f"{got}|{expected}|one number applies to all coordinates of the joint")
    return given


def in_bounds(given: Any, *, kind: Bounded) -> Any:
    """Return a number if it is within the bounds of its kind."""
    for bound, remedy in kind.out_of_bounds(given):
        raise ValueError(f"{given}|a number that must {bound}|{remedy}")
    return given
