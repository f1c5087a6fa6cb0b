"""Kinds of fields of joint and force types: names, inputs and truth values; others are in `number_kinds`, `places` and `functions`.

The kind of a field says everything that is asked of it: what a user may give (`mistakes`), how it becomes an entry of a stacked group
(`placed`), and what configs and tables of the documentation write of it (`description`, `plain`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxdae.mechanisms.values import (
    hint,
    said,
    shown,
)

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


NOTHING = Known((), (), "", {})
"""No names, for the mistakes of fields that refer to nothing."""


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
        needs: another field without which it has no effect; groups go without it there.
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
    needs: str | None = None
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

    may_be_empty: bool = False
    plain: ClassVar[str] = "texts"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields unknown names, and joints without a coordinate."""
        if not isinstance(value, tuple | list) or not (value or self.may_be_empty):
            yield f'must be names of joints, such as ("hip", "knee"), got {shown(value)}'
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
        return value.placed(start.everything, start.numbers).measuring(getattr(element, "number", 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Kind):
    """The index of an input, or None. In a group: the index, -1 for none."""

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no index."""
        if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0):
            yield f"must be an index 0, 1, ..., got {shown(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the index, a tuple of one."""
        return (-1 if value is None else value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth(Kind):
    """True or false."""

    plain: ClassVar[str] = "truth"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no truth value."""
        if not isinstance(value, bool | np.bool_):
            yield f"must be True or False, got {shown(value)}"


def unknown_coordinate(joint: Any, along: Any, names: Known, field: str = "along") -> Iterable[str]:
    """Yields the name of a coordinate that a joint does not have; None is its first one."""
    if (known := names.coordinates.get(joint, ()) if isinstance(joint, str) else ()) and along is not None and along not in known:
        yield f"{field} is {along!r}, which is no coordinate of {joint!r}{hint(along, known)}"
