"""What the fields of joint and force types can be: names and numbers; places and directions are in `places`, functions in `functions`.

The kind of a field says everything that is asked of it: what a user may give (`mistakes`), how it becomes an entry of a stacked group
(`placed`), and what configs and tables of the documentation write of it (`description`, `plain`).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms.values import batches, concrete, hint, is_number, is_vector, real, said, shape_of, vector, vector_mistakes
from jaxdae.spelling import brief

GROUND = "ground"
"""The name that stands for the fixed world."""

_WORLD = ("ground", "world", "origin", "base", "fixed", "none", "")
"""What others call it."""


class Known(NamedTuple):
    """What a description may refer to: the names of bodies and of joints with a coordinate, and what types of joints have one.

    `coordinates` are the names of the coordinates of all joints, by the names of the joints; `rotors` are the bodies without a place;
    `instead` is what to use in place of coordinates of joints that have none, by their names.
    """

    bodies: Sequence[str]
    movable: Sequence[str]
    movable_types: str
    coordinates: Mapping[str, Sequence[str]]
    rotors: Sequence[str] = ()
    instead: Mapping[str, str] = {}


class Start(NamedTuple):
    """The start pose as an element sees it.

    Attributes:
        given: the element as it was described.
        frames: the frames of its bodies, by their fields.
        everything: the frames of all bodies, by name.
        numbers: the numbers of all bodies, by name.
    """

    given: Any
    frames: Mapping[str, Any]
    everything: Mapping[str, Any]
    numbers: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """What a field is.

    Attributes:
        text: what it is, in words.
        unit: of its numbers.
        default: what it is where it is left out, in words.
        in_config: whether a config has it as well.
        required: whether a config must give it.
        sparse: whether groups go without it where it is zero in all their elements.
        only_with: another field without which groups go without it.
        dimension: of the space in which the type is, 2 in the plane.
        transient: whether other fields are made of it, and groups go without it.
        inherited: whether a config may say it once for the whole mechanism instead.
    """

    text: str
    unit: str = ""
    default: str = ""
    in_config: bool = True
    required: bool = False
    sparse: bool = False
    only_with: str | None = None
    dimension: int = 2
    transient: bool = False
    inherited: bool = False

    def of(self, element: Any) -> Kind:
        """Returns what the field is in a type of element."""
        return dataclasses.replace(self, dimension=element.space.dimension)

    names_body: ClassVar[bool] = False
    """Whether it names a body whose frame the mathematics sees."""

    is_direction: ClassVar[bool] = False
    """Whether it is a direction that is fixed in a body."""

    is_place: ClassVar[bool] = False
    """Whether it is a place in a body, for which one in the world may be given."""

    plain: ClassVar[str] = "number"
    """How a config writes it: name, number, numbers, vector, direction, matrix, text, truth or motion."""

    @property
    def axes(self) -> str:
        """The components of a vector, in words."""
        return "[x, y]" if self.dimension == 2 else "[x, y, z]"

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds of a config, as `gt` and `ge`."""
        return {}

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.text}{unit}" + (f"; left out: {self.default}" if self.default else "")

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is wrong with a value; each is to follow the name of the field."""
        return ()

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the value as an entry of a group, from an element whose earlier fields are entries already."""
        return value

    def given_in(self, given: Mapping[str, Any]) -> str:
        """Returns the field that names the body in whose frame the value is given; empty for a value that is given in none.

        Args:
            given: the fields of the element, by name; those that are missing count as None.
        """
        return ""

    def moved(self, value: Any, rotation: Any, place: Any) -> Any:
        """Returns a value that is given in a frame, as it is in another frame; all but places, directions and axes in space stay.

        Args:
            value: in the frame.
            rotation: (3, 3) to the axes of the other frame.
            place: (3,) of the frame in the other one, in m.
        """
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementName(Kind):
    """The name of the element itself."""

    plain: ClassVar[str] = "name"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns a tuple of one name."""
        return (value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BodyName(Kind):
    """The name of a body; `ground` tells whether it may be the ground. In a group: its number."""

    ground: bool = True
    names_body: ClassVar[bool] = True
    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields an unknown name."""
        known = [*names.bodies, GROUND] if self.ground else names.bodies
        if self.ground and (value is None or (isinstance(value, str) and value not in known and value.lower() in _WORLD)):
            yield f"is {value!r}, which is no body: write {GROUND!r}, jaxdae.mechanisms.GROUND, for the fixed world"
        elif not isinstance(value, str) or value not in known:
            yield f"is {said(value)}, which is no body{hint(value, known)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number of the body, a tuple of one."""
        return (start.numbers[value],)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotorName(Kind):
    """The name of a rotor, the spin of a wheel; None for none."""

    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields an unknown name, and a body that is no rotor."""
        if not isinstance(value, str | None):
            yield f"is {said(value)}, which is no rotor{hint(value, names.rotors)}"
        elif value in names.bodies and value not in names.rotors:
            yield f"is {value!r}, which is a body with a place; the spin of a wheel is a Rotor"
        elif value is not None and value not in names.rotors:
            yield f"is {value!r}, which is no rotor{hint(value, names.rotors)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointName(Kind):
    """The name of a joint that has a coordinate."""

    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields an unknown name, and a joint without a coordinate."""
        known = isinstance(value, str) and value in names.coordinates
        if known and value not in names.movable:
            instead = names.instead.get(value, "")
            yield f"is {value!r}, which has no coordinate: it must be a {names.movable_types} joint{instead}"
        elif not known:
            yield f"is {said(value)}, which is no {names.movable_types} joint{hint(value, names.movable)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointNames(Kind):
    """The names of joints that have a coordinate."""

    plain: ClassVar[str] = "texts"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields unknown names, and joints without a coordinate."""
        if not isinstance(value, tuple | list):
            yield f'must be names of joints, such as ("hip", "knee"), got {said(value)}'
            return
        for name in value:
            yield from JointName(text=self.text).mistakes(name, names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoordinateName(Kind):
    """The name of a coordinate of a joint."""

    plain: ClassVar[str] = "text"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index(Kind):
    """A number that is structure; the same for all elements of a group."""

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number, a tuple of one."""
        return (value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Kind):
    """A joint inside of an element that acts along one of its coordinates. In a group: its entry, without names and numbers of bodies."""

    in_config: bool = False

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the joint as an entry of a group."""
        inner = value.placed(start.everything, start.numbers)
        static = [field.name for field in dataclasses.fields(inner) if field.metadata.get("static")]
        return dataclasses.replace(inner, **dict.fromkeys(static, ()), **dict.fromkeys(inner.elements()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A number.

    Attributes:
        above: it must be larger.
        least: it must not be smaller.
        at_least: in a config it must not be smaller; from Python it may, so that dampers may drive.
        at_start: (element, frame of a, frame of b) -> what it is where it is left out, at the start pose.
        may_be_none: whether it may be left out though nothing here says what it then is.
    """

    above: float | None = None
    least: float | None = None
    at_least: float | None = None
    may_be_none: bool = False
    at_start: Callable[[Any, Any, Any], Any] | None = None

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds of a config, as `gt` and `ge`."""
        return {key: bound for key, bound in (("gt", self.above), ("ge", self.at_least)) if bound is not None}

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no number, or too small."""
        if value is None and self.at_start is not None:
            return
        numbers = concrete(value)
        if value is None and self.may_be_none:
            return
        if not is_number(value):
            yield f"must be a finite number, got {brief(value)}{batches(value)}"
        elif self.above is not None and numbers is not None and not numbers > self.above:
            yield f"must be positive, got {brief(value, str)}"
        elif self.least is not None and numbers is not None and not numbers >= self.least:
            yield f"must not be negative, got {brief(value, str)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number as an array ()."""
        if value is None and self.at_start is not None:
            return self.at_start(element, start.frames["a"], start.frames["b"])
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

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no number or so many numbers, or too small."""
        if value is None and self.at_start is not None:
            return
        numbers = concrete(value)
        if not (is_number(value) or (self.count > 1 and is_vector(value, self.count))):
            yield f"must be a finite number{f', or {self.count} of them' if self.count > 1 else ''}, got {brief(value)}"
        elif numbers is not None and self.above is not None and not np.all(numbers > self.above):
            yield f"must be positive, got {brief(value, str)}"
        elif numbers is not None and self.least is not None and not np.all(numbers >= self.least):
            yield f"must not be negative, got {brief(value, str)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the numbers as an array; what is known stays known inside of a program, so that groups can go without what is zero."""
        known = value is not None and concrete(value) is not None
        with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
            placed = real(super().placed(value, element, start))
            return jnp.broadcast_to(placed, (self.count,)) if self.count > 1 else placed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Components(Kind):
    """The components of a vector."""

    plain: ClassVar[str] = "vector"

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{super().description}, {self.axes}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no vector."""
        return vector_mistakes(value, self.dimension)

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
            yield f"must be a list of finite numbers, got {brief(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the numbers."""
        return vector(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Kind):
    """The index of an input, or None. In a group: the index, -1 for none."""

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no index."""
        if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0):
            yield f"must be an index 0, 1, ..., got {brief(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the index, a tuple of one."""
        return (-1 if value is None else value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth(Kind):
    """True or false."""

    plain: ClassVar[str] = "truth"


def unknown_coordinate(joint: Any, along: Any, names: Known, field: str = "along") -> Iterable[str]:
    """Yields the name of a coordinate that a joint does not have; None is its first one."""
    if (known := names.coordinates.get(joint, ()) if isinstance(joint, str) else ()) and along is not None and along not in known:
        yield f"{field} is {along!r}, which is no coordinate of {joint!r}{hint(along, known)}"
