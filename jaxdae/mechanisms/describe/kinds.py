"""Field kinds of joint and force types: names, inputs and Booleans.

Other kinds are in `number_kinds`, `places` and `functions`. The kind of a field defines its valid values
(`mistakes`), its conversion to an entry of a stacked group (`placed`), and its text in configs and
documentation tables (`description`, `plain`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from jaxdae.mechanisms.describe.numbers import hint, said, shown

GROUND = "ground"
"""The name of the fixed world."""

_WORLD = ("ground", "world", "origin", "base", "fixed", "none", "")
"""Common other names of the fixed world."""


class Known(NamedTuple):
    """The names that a description may refer to.

    `bodies` are all bodies. `movable` are the joints with a coordinate, and `movable_types` names their
    types. `coordinates` are the coordinate names of each joint. `rotors` are the bodies without a position.
    `instead` is the remedy for each joint without coordinates.
    """

    bodies: Sequence[str]
    movable: Sequence[str]
    movable_types: str
    coordinates: Mapping[str, Sequence[str]]
    rotors: Sequence[str] = ()
    instead: Mapping[str, str] = {}


NOTHING = Known((), (), "", {})
"""An empty set of names, for checks of fields that refer to no names."""


class Start(NamedTuple):
    """The start pose from the perspective of an element.

    Attributes:
        given: the described element.
        frames: the frames of its bodies, by field name.
        everything: the frames of all bodies, by name.
        numbers: the indices of all bodies, by name.
    """

    given: Any
    frames: Mapping[str, Any]
    everything: Mapping[str, Any]
    numbers: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """The kind of a field.

    Attributes:
        text: a description of the field.
        unit: the unit of its numbers.
        default: a description of the default.
        in_config: whether configs have the field.
        required: whether a config must specify it.
        sparse: whether groups omit it if it is zero in all elements.
        needs: another field without which it has no effect; groups then omit it.
        dimension: the dimension of the space of the type, 2 in the plane.
        transient: whether other fields are derived from it, and groups omit it.
        inherited: whether a config may specify it once for the whole mechanism instead.
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

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type, in the plane or in space."""
        return dataclasses.replace(self, dimension=space.dimension)

    names_body: ClassVar[bool] = False
    """Whether it names a body whose frame the equations use."""

    is_direction: ClassVar[bool] = False
    """Whether it is a direction that is fixed in a body."""

    is_place: ClassVar[bool] = False
    """Whether it is a body-frame position for which a world position may be given instead."""

    plain: ClassVar[str] = "number"
    """Its form in a config: name, number, numbers, vector, direction, matrix, text, truth or motion."""

    @property
    def axes(self) -> str:
        """The components of a vector, as text."""
        return "[x, y]" if self.dimension == 2 else "[x, y, z]"

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds in a config, as `gt`, `ge` and `le`."""
        return {}

    @property
    def description(self) -> str:
        """A one-line description with the unit."""
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.text}{unit}" + (f"; default: {self.default}" if self.default else "")

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield the errors of a value; each message follows the name of the field."""
        return ()

    def requirements(self, name: str, value: Any) -> Iterable[tuple[Any, str]]:
        """Yield the conditions on the value in a group; see `jaxdae.base.requirements`.

        Args:
            name: the name of the field.
            value: the values of all elements, with the element axis first; never None.
        """
        return ()

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the value as a group entry, from an element whose earlier fields are already entries."""
        return value

    def given_in(self, given: Mapping[str, Any]) -> str:
        """Return the field that names the body in whose frame the value is given, or empty text.

        Args:
            given: the fields of the element, by name; missing fields count as None.
        """
        return ""

    def moved(self, value: Any, rotation: Any, place: Any) -> Any:
        """Return a value of one frame expressed in another frame.

        Only positions, directions and axes in space change.

        Args:
            value: in the first frame.
            rotation: (3, 3) from the axes of the first frame to the axes of the other frame.
            place: (3,) origin of the first frame in the other frame, in m.
        """
        return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementName(Kind):
    """The name of the element itself."""

    plain: ClassVar[str] = "name"

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type."""
        return dataclasses.replace(super().of(element, space), text=f"the name of the {element.noun}")

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return a tuple of one name."""
        return (value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BodyName(Kind):
    """The name of a body; `ground` allows the ground. In a group: its index."""

    ground: bool = True
    names_body: ClassVar[bool] = True
    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error for an unknown name."""
        known = [*names.bodies, GROUND] if self.ground else names.bodies
        if self.ground and (
            value is None or (isinstance(value, str) and value not in known and value.lower() in _WORLD)
        ):
            yield (
                f"is {value!r}, which is not a body; use {GROUND!r} (jaxdae.mechanisms.GROUND) for the "
                "fixed world"
            )
        elif not isinstance(value, str) or value not in known:
            yield f"is {said(value)}, which is not a body{hint(value, known)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the index of the body, in a tuple of length one."""
        return (start.numbers[value],)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RotorName(Kind):
    """The name of a rotor, the spin of a wheel; may be None."""

    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error for an unknown name, or for a body that is not a rotor."""
        if not isinstance(value, str | None):
            yield f"is {said(value)}, which is not a rotor{hint(value, names.rotors)}"
        elif value in names.bodies and value not in names.rotors:
            yield f"is {value!r}, which is a body with a pose; use a Rotor for the spin of a wheel"
        elif value is not None and value not in names.rotors:
            yield f"is {value!r}, which is not a rotor{hint(value, names.rotors)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointName(Kind):
    """The name of a joint that has a coordinate."""

    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error for an unknown name, or for a joint without a coordinate."""
        known = isinstance(value, str) and value in names.coordinates
        if known and value not in names.movable:
            instead = names.instead.get(value, "")
            yield f"is {value!r}, which has no coordinate; name a {names.movable_types} joint{instead}"
        elif not known:
            yield f"is {said(value)}, which is not a {names.movable_types} joint{hint(value, names.movable)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointNames(Kind):
    """The names of joints that have a coordinate."""

    may_be_empty: bool = False
    plain: ClassVar[str] = "texts"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield errors for unknown names, and for joints without a coordinate."""
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
    """A structural number, the same for all elements of a group."""

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the number in a tuple of length one."""
        return (value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Kind):
    """A joint inside an element that acts along one of its coordinates.

    In a group: its group entry, without names and body indices.
    """

    in_config: bool = False

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the joint as a group entry."""
        return value.placed(start.everything, start.numbers).measuring(getattr(element, "number", 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Kind):
    """The index of an input, or None. In a group: the index, -1 for none.

    Attributes:
        most: the largest number of inputs. Names and controls have an entry for every index.
    """

    most: ClassVar[int] = 10_000

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not an index."""
        if value is not None and (
            not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < self.most
        ):
            yield f"must be an index from 0 to {self.most - 1}, got {shown(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the index in a tuple of length one."""
        return (-1 if value is None else value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth(Kind):
    """True or false."""

    plain: ClassVar[str] = "truth"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a Boolean."""
        if not isinstance(value, bool | np.bool_):
            yield f"must be True or False, got {shown(value)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the Boolean in a tuple of length one."""
        return (value,)


def unknown_coordinate(joint: Any, along: Any, names: Known, field: str = "along") -> Iterable[str]:
    """Yield an error for a coordinate name that a joint does not have; None is the first coordinate."""
    if (
        (known := names.coordinates.get(joint, ()) if isinstance(joint, str) else ())
        and along is not None
        and along not in known
    ):
        yield f"{field} is {along!r}, which is not a coordinate of {joint!r}{hint(along, known)}"
