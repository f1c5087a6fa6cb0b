"""Fields that are numbers, with their bounds: one number, one per coordinate of a joint, components of a vector, lists."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms.kinds import Kind, Known, Start
from jaxdae.mechanisms.values import batches, concrete, is_number, is_vector, real, shape_of, shown, vector, vector_mistakes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded(Kind):
    """Real numbers within bounds. Python, configs and the readers of robot files check the same bounds.

    Attributes:
        above: the numbers must be larger.
        at_least: the numbers must not be smaller.
        within: the absolute values of the numbers must be smaller.
        nonzero: the remedy for a zero, where zero has no meaning.
    """

    above: float | None = None
    at_least: float | None = None
    within: float | None = None
    nonzero: str = ""

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds of a config, as `gt` and `ge`."""
        return {key: bound for key, bound in (("gt", self.above), ("ge", self.at_least)) if bound is not None}

    def out_of_bounds(self, value: Any) -> Iterable[tuple[str, str]]:
        """Yield each bound that known numbers break, in words, with the remedy for it, which may be empty."""
        numbers = concrete(value)
        if numbers is None:
            return
        if self.above is not None and not np.all(numbers > self.above):
            yield "be positive" if self.above == 0.0 else f"be larger than {self.above:g}", ""
        if self.at_least is not None and not np.all(numbers >= self.at_least):
            yield "be non-negative" if self.at_least == 0.0 else f"be at least {self.at_least:g}", ""
        if self.within is not None and not np.all(np.abs(numbers) < self.within):
            yield f"lie between -{self.within:.6g} and {self.within:.6g}", f"the unit is {self.unit}"
        if self.nonzero and np.any(numbers == 0.0):
            yield "not be zero", self.nonzero

    def bound_mistakes(self, value: Any) -> Iterable[str]:
        """Yield the mistakes of finite numbers, or of traced ones, that are out of bounds."""
        for bound, remedy in self.out_of_bounds(value):
            yield f"must {bound}, got {shown(value)}" + (f": {remedy}" if remedy else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number(Bounded):
    """A number.

    Attributes:
        at_start: (element, frame of a, frame of b) -> what it is where it is left out, at the start pose.
        may_be_none: whether it may be left out though nothing here says what it then is.
    """

    may_be_none: bool = False
    at_start: Callable[[Any, Any, Any], Any] | None = None

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no number, or out of bounds."""
        if value is None and (self.may_be_none or self.at_start is not None):
            return
        if not self.fits(value):
            yield f"must be {self.wanted}, got {shown(value)}{batches(value)}"
        else:
            yield from self.bound_mistakes(value)

    @property
    def wanted(self) -> str:
        """The expected value, in words."""
        return "a finite number"

    def fits(self, value: Any) -> bool:
        """Return whether a value has the right shape and is finite."""
        return is_number(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number as an array ()."""
        if value is None and self.at_start is not None:
            return self.at_start(element, start.frames["a"], start.frames["b"])
        # Known numbers stay known inside of a program, so that groups can go without zeros.
        with jax.ensure_compile_time_eval() if concrete(value) is not None else contextlib.nullcontext():
            return real(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PerCoordinate(Number):
    """A number for each coordinate of a joint, or one for all of them.

    In a group: () of joints with one coordinate, (coordinates,) of others.

    Attributes:
        units: by the units of the coordinates.
        count: how many coordinates the type of joint has.
    """

    units: Mapping[str, str]
    count: int = 1

    def of(self, element: Any) -> Kind:
        """Returns what the field is in a type of joint."""
        units = dict.fromkeys(self.units[unit] for unit in element.coordinates.values())
        return dataclasses.replace(self, dimension=element.space.dimension, unit=" and ".join(units), count=len(element.coordinates))

    @property
    def wanted(self) -> str:
        """The expected value, in words."""
        return f"a finite number{f', or {self.count} of them' if self.count > 1 else ''}"

    def fits(self, value: Any) -> bool:
        """Return whether a value is one number, or one number per coordinate."""
        return is_number(value) or (self.count > 1 and is_vector(value, self.count))

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the numbers as an array; what is known stays known inside of a program, so that groups can go without what is zero."""
        known = value is not None and concrete(value) is not None
        with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
            placed = real(super().placed(value, element, start))
            return jnp.broadcast_to(placed, (self.count,)) if self.count > 1 else placed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components(Bounded):
    """The components of a vector."""

    plain: ClassVar[str] = "vector"

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{super().description}, {self.axes}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no vector, or out of bounds."""
        found = list(vector_mistakes(value, self.dimension))
        return found or self.bound_mistakes(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the components."""
        return vector(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Numbers(Kind):
    """Any number of numbers, at least one."""

    plain: ClassVar[str] = "numbers"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no list of numbers."""
        numbers, shape = concrete(value), shape_of(value)
        if len(shape or ()) != 1 or shape == (0,) or not (numbers is None or np.all(np.isfinite(numbers))):
            yield f"must be a list of finite numbers, got {shown(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the numbers."""
        return vector(value)
