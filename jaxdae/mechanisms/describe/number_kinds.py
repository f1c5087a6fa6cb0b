"""Numeric fields with bounds: one number, one per joint coordinate, vector components, lists."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms.describe.kinds import Kind, Known, Start
from jaxdae.mechanisms.describe.numbers import (
    batches,
    concrete,
    is_number,
    is_vector,
    real,
    shape_of,
    shown,
    vector,
    vector_mistakes,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded(Kind):
    """Real numbers within bounds. Python, configs and the readers of robot files check the same bounds.

    Attributes:
        above: the numbers must be larger.
        at_least: the numbers must not be smaller.
        at_most: the numbers must not be larger.
        within: the absolute values of the numbers must be smaller.
        nonzero: the remedy for a zero, where zero has no meaning.
    """

    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    within: float | None = None
    nonzero: str = ""

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds in a config, as `gt`, `ge` and `le`."""
        each = ("gt", self.above), ("ge", self.at_least), ("le", self.at_most)
        return {key: bound for key, bound in each if bound is not None}

    def limits(self, x: Any) -> Iterable[tuple[Any, str, str]]:
        """Yield each bound as a condition on numbers, its text, and its remedy, which may be empty."""
        if self.above is not None:
            yield (
                x > self.above,
                "be positive" if self.above == 0.0 else f"be greater than {self.above:g}",
                "",
            )
        if self.at_least is not None:
            yield (
                x >= self.at_least,
                "be non-negative" if self.at_least == 0.0 else f"be at least {self.at_least:g}",
                "",
            )
        if self.at_most is not None:
            yield x <= self.at_most, f"be at most {self.at_most:g}", ""
        if self.within is not None:
            yield (
                abs(x) < self.within,
                f"lie between -{self.within:.6g} and {self.within:.6g}",
                f"the unit is {self.unit}",
            )
        if self.nonzero:
            yield x != 0.0, "not be zero", self.nonzero

    def requirements(self, name: str, value: Any) -> Iterable[tuple[Any, str]]:
        """Yield the bounds of numbers; functions of time are not bounded."""
        if not callable(value):
            yield from ((condition, f"{name} must {bound}") for condition, bound, _ in self.limits(value))

    def out_of_bounds(self, value: Any) -> Iterable[tuple[str, str]]:
        """Yield each violated bound of known numbers as text, with its remedy, which may be empty."""
        numbers = concrete(value)
        if numbers is not None:
            yield from (
                (bound, remedy) for condition, bound, remedy in self.limits(numbers) if not np.all(condition)
            )

    def bound_mistakes(self, value: Any) -> Iterable[str]:
        """Yield the errors of finite or traced numbers that are out of bounds."""
        for bound, remedy in self.out_of_bounds(value):
            yield f"must {bound}, got {shown(value)}" + (f": {remedy}" if remedy else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number(Bounded):
    """A number.

    Attributes:
        at_start: (element, frame of a, frame of b) -> the default, measured at the start pose.
        may_be_none: whether the value may be None although this field defines no default.
    """

    may_be_none: bool = False
    at_start: Callable[[Any, Any, Any], Any] | None = None

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a number, or is out of bounds."""
        if value is None and (self.may_be_none or self.at_start is not None):
            return
        if not self.fits(value):
            yield f"must be {self.wanted}, got {shown(value)}{batches(value)}"
        else:
            yield from self.bound_mistakes(value)

    @property
    def wanted(self) -> str:
        """The expected value, as text."""
        return "a finite number"

    def fits(self, value: Any) -> bool:
        """Return whether a value has the right shape and is finite."""
        return is_number(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the number as an array (), or None if it may be missing."""
        if value is None and self.at_start is not None:
            return self.at_start(element, start.frames["a"], start.frames["b"])
        if value is None and self.may_be_none:
            return None
        # Known numbers stay concrete inside a compiled program, so that groups can omit zeros.
        with jax.ensure_compile_time_eval() if concrete(value) is not None else contextlib.nullcontext():
            return real(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfCoordinates(Kind):
    """A value per joint coordinate.

    Attributes:
        units: the unit of the value for each coordinate unit.
        count: the number of coordinates of the joint type.
    """

    units: Mapping[str, str]
    count: int = 1

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a joint type."""
        units = dict.fromkeys(self.units[unit] for unit in element.coordinates.values())
        return dataclasses.replace(
            self, dimension=space.dimension, unit=" and ".join(units), count=len(element.coordinates)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerCoordinate(OfCoordinates, Number):
    """A number per joint coordinate, or one number for all coordinates.

    In a group: () for joints with one coordinate, else (coordinates,).
    """

    @property
    def wanted(self) -> str:
        """The expected value, as text."""
        return f"a finite number{f', or {self.count} of them' if self.count > 1 else ''}"

    def each(self, value: Any) -> list[Any]:
        """Return the numbers of all coordinates."""
        return [value] * self.count if is_number(value) else list(value)

    def fits(self, value: Any) -> bool:
        """Return whether a value is one number, or one number per coordinate."""
        return is_number(value) or (self.count > 1 and is_vector(value, self.count))

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the numbers as an array.

        Known numbers stay concrete inside a compiled program, so that groups can omit zeros.
        """
        known = value is not None and concrete(value) is not None
        with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
            placed = real(super().placed(value, element, start))
            return jnp.broadcast_to(placed, (self.count,)) if self.count > 1 else placed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits(OfCoordinates):
    """Limits (lower, upper) of the only joint coordinate, or a list of limits, one entry per coordinate.

    An entry None, a bound None and an infinite bound mean no limit. Groups omit the field.
    """

    transient: bool = True
    plain: ClassVar[str] = "limits"

    def each(self, value: Any) -> list[tuple[Any, Any] | None]:
        """Return the limits per coordinate: None without any, and bounds None without a limit."""
        if value is None:
            return [None] * self.count
        pairs = [value] if self.count == 1 else value
        return [None if pair is None else _bounds(pair) for pair in pairs]

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value does not have the form, or a lower limit is not below the upper one."""
        if value is None:
            return
        pairs = [value] if self.count == 1 else value
        if not _has_length(pairs, self.count) or not all(
            pair is None or (_has_length(pair, 2) and all(_is_bound(bound) for bound in pair))
            for pair in pairs
        ):
            form = "(lower, upper)" if self.count == 1 else f"a list of {self.count} pairs (lower, upper)"
            yield f"must be {form} with numbers, or None for no limit, got {shown(value)}"
            return
        for pair in (pair for pair in pairs if pair is not None):
            lower, upper = (None if bound is None else concrete(bound) for bound in pair)
            if lower is not None and upper is not None and not lower < upper:
                yield f"must have the lower limit below the upper limit, got {shown(value)}"


def _has_length(x: Any, count: int) -> bool:
    return (
        (shape_of(x) or ())[:1] == (count,)
        if hasattr(x, "shape")
        else isinstance(x, list | tuple) and len(x) == count
    )


def _is_bound(bound: Any) -> bool:
    """Return whether a bound is None, a number that is not NaN, or traced."""
    numbers = None if bound is None else concrete(bound)
    return numbers is None or (numbers.ndim == 0 and not np.isnan(numbers))


def _bounds(pair: Any) -> tuple[Any, Any] | None:
    """Return the bounds, None for a missing or infinite bound; None if both are."""

    def present(bound: Any) -> Any:
        numbers = None if bound is None else concrete(bound)
        return None if numbers is not None and np.isinf(numbers) else bound

    lower, upper = map(present, pair)
    return None if lower is None and upper is None else (lower, upper)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components(Bounded):
    """The components of a vector.

    Attributes:
        first: the default is the vector (first, 0) or (first, 0, 0); None without such a default.
    """

    first: float | None = None
    plain: ClassVar[str] = "vector"

    @property
    def description(self) -> str:
        """A one-line description with the unit."""
        return f"{super().description}, {self.axes}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield errors if the value is not a vector, or is out of bounds."""
        if value is None and self.first is not None:
            return ()
        found = list(vector_mistakes(value, self.dimension))
        return found or self.bound_mistakes(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the components."""
        return vector((self.first, *(0.0,) * (self.dimension - 1)) if value is None else value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbers(Kind):
    """A list of at least one number."""

    plain: ClassVar[str] = "numbers"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a list of numbers."""
        numbers, shape = concrete(value), shape_of(value)
        if len(shape or ()) != 1 or shape == (0,) or not (numbers is None or np.all(np.isfinite(numbers))):
            yield f"must be a list of finite numbers, got {shown(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the numbers."""
        return vector(value)
