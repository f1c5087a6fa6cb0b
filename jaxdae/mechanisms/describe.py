"""What a user writes to describe a mechanism: bodies, joints and forces, by name; and what all types of them share.

Places. `at`, `at_a`, `at_b` are world coordinates at the start pose of the bodies. `point`, `point_a`, `point_b` are coordinates in
the frame of a body, whose origin is its mass center; for the ground, in the world. Either is given. `a` and `b` are names of bodies or
`GROUND`. SI units. Numbers may be traced, so that a mechanism can be built inside a differentiated function (lengths as design variables).

A type of joint or force is one class. Its fields (`jaxdae.mechanisms.fields`) are its description, its methods its mathematics. A
mechanism has a group of the elements of one type: the same class with arrays that have a leading axis of elements, names and numbers of
bodies as tuples, and None for places in the world. The mathematics looks at one element of a group.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.mechanisms.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.coordinates.links import Step
from jaxdae.mechanisms.keywords import ByKeywords
from jaxdae.mechanisms.kinds import NOTHING, Kind, Known, Start
from jaxdae.mechanisms.measures import AUTODIFF, Derivatives
from jaxdae.mechanisms.space import PLANE, Plane, Space
from jaxdae.mechanisms.values import concrete
from jaxdae.status import Status

Number = Any
Place = Any
Rows = tuple[Any, ...]
Name = Any  # Text, in a group a tuple of texts.
BodyName = Any  # Text, in a group a tuple of numbers, where the ground has the number of bodies.


class Element(ByKeywords):
    """What joints and forces share. The fields `name`, `a` and `b` come first."""

    space: ClassVar[Plane | Space] = PLANE
    """Where the bodies are that it looks at."""

    name: Name
    a: BodyName
    b: BodyName

    @classmethod
    @functools.cache
    def kinds(cls) -> dict[str, Kind]:
        """Returns what the fields are, by name, in the order in which they are given: those that need their name last."""
        fields: Any = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return {field.name: field.metadata["kind"].of(cls) for field in sorted(fields, key=lambda field: field.kw_only)}

    @classmethod
    def type_key(cls) -> str:
        """Returns the name of the type in configs, such as "point_on_line"."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Returns the default of a field, `...` where there is none."""
        found = next(field for field in dataclasses.fields(cls) if field.name == name)  # pyright: ignore[reportArgumentType]
        return ... if found.default is dataclasses.MISSING else found.default

    @classmethod
    def summary(cls) -> str:
        """Returns what the type is, in words: the first paragraph of its docstring."""
        return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())

    @classmethod
    def places(cls) -> tuple[tuple[str, str], ...]:
        """Returns the pairs of fields that give a place: the one in the world, the one in a body."""
        kinds: dict[str, Any] = {name: kind for name, kind in cls.kinds().items() if kind.is_place}
        return tuple((kind.world, name) for name, kind in kinds.items())

    @classmethod
    def ways(cls) -> tuple[tuple[str, ...], ...]:
        """Returns all ways to give the places, each as the fields that it needs; the plain ones first."""
        pairs = cls.places()
        ways = [tuple(dict.fromkeys(way)) for way in itertools.product(*pairs) if not any(set(pair) <= set(way) for pair in pairs)]
        plain = [tuple(dict.fromkeys(side)) for side in zip(*pairs, strict=True)]
        return tuple(sorted(ways, key=lambda way: way not in plain))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the elements of a group."""
        return self.name

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to."""
        return self.type_key()

    @property
    def conserves_energy(self) -> bool:
        """Whether all that the described element does has a potential."""
        return True

    def resolved(self, joints: Mapping[str, Any]) -> Any:
        """Returns the element that a description stands for, most of them for themselves.

        Args:
            joints: the described joints, by name.
        """
        return self

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields what is wrong with a description beyond its single fields.

        Args:
            places: the places and directions in the world at the start pose, by the names of their fields in bodies; None where one is
                left out, traced or wrong.
        """
        return ()

    def unknown(self, names: Known) -> Iterable[str]:
        """Yields what a description refers to that there is not, beyond its single fields."""
        return ()

    def idle(self) -> Iterable[tuple[str, str]]:
        """Yield each known number that has no effect, with the field that it needs and that is left out.

        A field is left out if it holds the very object of its default. A zero that is given is a choice. A zero gain is not a mistake.
        """
        for name, kind in self.kinds().items():
            value, default = getattr(self, name), self.default_of(name)
            if kind.needs is None or value is default or getattr(self, kind.needs) is not self.default_of(kind.needs):
                continue
            known = None if any(kind.mistakes(value, NOTHING)) else concrete(value)
            if known is not None and (default is None or np.any((known != concrete(default)) & (known != 0.0))):
                yield name, kind.needs

    def placed(self, frames: Mapping[str, Any], numbers: Mapping[str, int]) -> Any:
        """Returns the element of a group: places in bodies, numbers as arrays, what was left out as it is at the start pose.

        Args:
            frames: the frames of all bodies at the start pose, by name.
            numbers: the numbers of all bodies, by name.
        """
        ends = {name: frames[getattr(self, name)] for name, kind in self.kinds().items() if kind.names_body}
        start = Start(self, ends, frames, numbers)
        element: Any = self
        for name, kind in self.kinds().items():
            element = dataclasses.replace(element, **{name: kind.placed(getattr(self, name), element, start)})
        transient = [name for name, kind in self.kinds().items() if kind.transient]
        return dataclasses.replace(element, **dict.fromkeys(transient))


class Joint(Element):
    """A type of joint: rows that are zero when the joint holds, of positions (`residual`) or of velocities (`velocity_residual`).

    A row at position level is in m or rad, and its multiplier in N or N m. A row at velocity level is in m/s or rad/s, with the same
    multipliers.
    """

    rows: ClassVar[dict[str, str]] = {}
    """The names of the rows at position level with their units."""

    velocity_rows: ClassVar[dict[str, str]] = {}
    """The names of the rows at velocity level with their units."""

    coordinates: ClassVar[dict[str, str]] = {}
    """The names of what is measured along the freedoms of the joint, with their units."""

    movable: ClassVar[bool] = False
    """Whether the type has coordinates, along which a motion can be prescribed and a force act."""

    in_tree: ClassVar[bool] = False
    """Whether the joint can carry a body in joint coordinates, so that its freedoms are coordinates."""

    tree_only: ClassVar[tuple[str, ...]] = ()
    """The names of the numbers that joints of a tree in joint coordinates know, and no others."""

    tree_fields: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that matter in a tree only: joints with rows go without them."""

    turns_over: ClassVar[bool] = False
    """Whether the rows are sines of angles, which are zero as well where b is turned over."""

    limits: ClassVar[dict[str, Status]] = {}
    """The names of what must be positive while the joint means anything, each with the status that says that it is not."""

    acting: ClassVar[str] = ""
    """What acts between the bodies of a joint that has no coordinate, in words."""

    unread: ClassVar[dict[str, tuple[str, ...]]] = {"rad": ("point_a", "point_b", "angle"), "m": ("axes_b", "angle")}
    """The fields that a coordinate in rad, and one in m, do not depend on."""

    prescribes: ClassVar[bool] = False
    """Whether the row makes a coordinate of another joint a function of time."""

    relative: ClassVar[bool] = True
    """Whether the rows and coordinates do not notice where both bodies move as one; those of gears do, which count turns in the world."""

    derivatives: ClassVar[Derivatives] = AUTODIFF
    """How the rows are differentiated."""

    def steps(self) -> tuple[Step, ...]:
        """Returns the freedoms of an element of a group as links, in the axes of the joint, in the order of `coordinate`."""
        raise NotImplementedError(f"{type(self).__name__}.steps")

    def joint_frames(self) -> tuple[Any, Any]:
        """Returns the frames of the joint in a and in b, which coincide where its coordinates are zero, of an element of a group."""
        raise NotImplementedError(f"{type(self).__name__}.joint_frames")

    def residual(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns the rows at position level."""
        return ()

    def opening(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns the rows by which a start is found and judged: the residual, with angles in place of their sines."""
        return self.residual(a, b, t)

    def velocity_residual(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Returns the rows at velocity level, affine in the twists of both frames."""
        return ()

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns the coordinates of the joint in m and rad; in space angles are in (-pi, pi]."""
        return ()

    def room(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns by how much the joint is within its `limits`, in their order."""
        return ()

    def measuring(self, number: int) -> Joint:
        """Return an element of a group with the fields that one of its coordinates depends on, without names and bodies."""
        joint: Any = self
        fields = {field.name: field.metadata.get("static") for field in dataclasses.fields(joint)}
        unread = self.unread[list(self.coordinates.values())[number]] if self.coordinates else ()
        without = [name for name in (*unread, *self.elements()) if name in fields]
        return dataclasses.replace(joint, **{name: () for name, static in fields.items() if static}, **dict.fromkeys(without))

    def elements(self) -> dict[str, Any]:
        """Returns what acts along the coordinates of an element of a group, by the names of the fields."""
        return {}

    @property
    def acts(self) -> bool:
        """Whether something acts along the coordinates of a group."""
        return False

    @property
    def springs(self) -> bool:
        """Whether there are springs along the coordinates of a group."""
        return False

    @property
    def forgets(self) -> bool:
        """Whether a group has springs on angles that forget full turns."""
        return False

    @property
    def reflects(self) -> bool:
        """Whether motors add to the inertia of the coordinates of a group."""
        return False


class Force(Element):
    """A type of force: what it measures between two frames, and the effort that it answers with.

    A type with `quasi` measures velocities that are the rate of nothing, such as an angular velocity, with `rate` in place of `coordinate`.
    """

    quasi: ClassVar[bool] = False

    resists: ClassVar[bool] = True
    """Whether the effort depends on coordinates or velocities."""

    derivatives: ClassVar[Derivatives] = AUTODIFF
    """How what is measured is differentiated."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, -1 for none."""
        return (-1,) * len(self.name)

    @property
    def measured_joint(self) -> tuple[str, int] | None:
        """The name of the joint and which of its coordinates a resolved force measures, with all turns; None where it is none."""
        return None

    @property
    def forgets(self) -> bool:
        """Whether the efforts of a group may jump where angles jump by a full turn; see `lost`."""
        return False

    @property
    def nearest(self) -> Any:
        """The angles (k,) in rad to the nearest turn of which a group measures angles between frames; None if it measures no turns."""
        return None

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether efforts of a group end at a jump by a full turn (k,).

        Args:
            s: the measured coordinates (k, rows).
            ends: a function that returns whether an angle in [-pi, pi] rad comes to half a turn, or passes it.
        """
        raise NotImplementedError(f"{type(self).__name__}.lost")

    def adds_to(self, joint: Joint) -> Joint:
        """Returns a described joint with what the force adds to it: most of them nothing, motors the inertia of their rotors."""
        return joint

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns what is measured."""
        raise NotImplementedError(f"{type(self).__name__}.coordinate")

    def rate(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Returns what is measured of the velocities, linear in the twists."""
        raise NotImplementedError(f"{type(self).__name__}.rate")

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Returns the effort on each of the measured coordinates."""
        raise NotImplementedError(f"{type(self).__name__}.effort")

    def energy(self, s: Array) -> Any:
        """Returns the potential energy in J; none by default."""
        return jnp.zeros_like(s[0])


def known_names(bodies: Sequence[Body | Rotor | SpatialBody], joints: Sequence[Any], types: Sequence[type[Joint]]) -> Known:
    """Returns what a description may refer to."""
    movable_types = " or ".join(kind.type_key() for kind in types if kind.movable)
    coordinates = {joint.name: tuple(joint.coordinates) for joint in joints}
    rotors = [body.name for body in bodies if body.turns_only]
    movable = [joint.name for joint in joints if joint.movable]
    instead = {joint.name: f"; {joint.acting}" for joint in joints if joint.acting}
    return Known([body.name for body in bodies], movable, movable_types, coordinates, rotors, instead)
