"""Base classes of the elements of a mechanism description: joints and forces, with bodies referenced by name.

Positions: `at`, `at_a`, `at_b` are world coordinates at the start pose of the bodies. `point`, `point_a`,
`point_b` are coordinates in the frame of a body, whose origin is its mass center; for the ground, in the
world. Give one of the two forms. `a` and `b` are names of bodies or `GROUND`. Units are SI. Numbers may be
traced, so a mechanism can be built inside a differentiated function (lengths as design variables).

Each joint or force type is one class. Its fields (`jaxdae.mechanisms.describe.fields`) are its description,
and its methods are its equations. A mechanism stores the elements of one type as a group: an instance of the
same class whose arrays have a leading element axis, whose names and body indices are tuples, and whose world
positions are None. The equations operate on one element of a group.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import not_above
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.describe.keywords import ByKeywords
from jaxdae.mechanisms.describe.kinds import NOTHING, Kind, Known, Start
from jaxdae.mechanisms.describe.links import Step
from jaxdae.mechanisms.describe.measures import AUTODIFF, Derivatives
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE, Plane, Space
from jaxdae.systems.status import Status

Number = Any
Place = Any
Rows = tuple[Any, ...]
Name = Any  # Text; in a group, a tuple of texts.
BodyName = Any  # Text; in a group, a tuple of indices. The ground has index n, the number of bodies.


@pytree
class Element(ByKeywords):
    """Base class of joints, forces and drives. The fields `name`, `a` and `b` come first."""

    space: ClassVar[Plane | Space] = PLANE
    """The space of its bodies; a type that exists in both spaces reads the dimension from its data."""

    noun: ClassVar[str]
    """The sort of element, in descriptions of its name."""

    site: ClassVar[str] = "the joint"
    """The text of the fields `at`, `point`, `point_a` and `point_b`: what is there."""

    line: ClassVar[str] = "the axis"
    """The text of the field `axis`: what has this direction."""

    ordered: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of fields of a group of which the first must not be above the second."""

    described: ClassVar[Mapping[str, str]] = {}
    """Fields of the descriptions of a group under other names: described name to name in the group."""

    axis_fields: ClassVar[tuple[str, ...]] = ()
    """The direction fields that define the axes of a joint: one for z, two for x and y."""

    name: Name = fields.name()

    @classmethod
    @functools.cache
    def kinds(cls, space: Plane | Space | None = None) -> dict[str, Kind]:
        """Return the kinds of the fields by name, in argument order: keyword-only fields last.

        Args:
            space: the space of the mechanism; None for the space of the type. Some types exist in both.
        """
        every: Any = dataclasses.fields(cls)
        return {
            field.name: field.metadata["kind"].of(cls, space or cls.space)
            for field in sorted(every, key=lambda field: field.kw_only)
        }

    @classmethod
    def type_key(cls) -> str:
        """Return the name of the type in configs, such as "point_on_line"."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Return the default of a field, or `...` if it has no default."""
        found = next(field for field in dataclasses.fields(cls) if field.name == name)
        return ... if found.default is dataclasses.MISSING else found.default

    @classmethod
    def summary(cls) -> str:
        """Return a summary of the type: the first paragraph of its docstring."""
        return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())

    @classmethod
    def places(cls) -> tuple[tuple[str, str], ...]:
        """Return the pairs of fields that specify a position: the world field and the body field."""
        kinds: dict[str, Any] = {name: kind for name, kind in cls.kinds().items() if kind.is_place}
        return tuple((kind.world, name) for name, kind in kinds.items())

    @classmethod
    def ways(cls) -> tuple[tuple[str, ...], ...]:
        """Return all ways to specify the positions, each as a tuple of fields; uniform ways come first."""
        pairs = cls.places()
        ways = [
            tuple(dict.fromkeys(way))
            for way in itertools.product(*pairs)
            if not any(set(pair) <= set(way) for pair in pairs)
        ]
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
    def without_effect(self) -> tuple[str, ...]:
        """The fields without effect, which the group of an element omits."""
        return ()

    def leaf_of(self, field: str, number: int) -> tuple[str, None] | None:
        """Return the leaf of a group that holds a field of the description of an element, or None."""
        name = self.described.get(field, field)
        return (name, None) if name in self.kinds() and getattr(self, name) is not None else None

    @property
    def conserves_energy(self) -> bool:
        """Whether all forces of the described element have a potential."""
        return True

    def resolved(self, joints: Mapping[str, Any]) -> Any:
        """Return the element that a description resolves to; by default, the description itself.

        Args:
            joints: the described joints, by name.
        """
        return self

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about implausible values, such as angles in degrees; none by default.

        Args:
            joints: the described joints, by name.
        """
        return ()

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield the mistakes of a description beyond its single fields.

        Args:
            places: positions and directions in the world at the start pose, by the names of their body
                fields; None for one that is missing, traced or invalid.
        """
        return ()

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the numbers of a group; see `jaxdae.base.requirements`.

        They are the bounds of the fields, so a leaf that is replaced at run time has the range of the
        description.
        """
        for name, kind in self.kinds().items():
            if (value := getattr(self, name)) is not None:
                yield from kind.requirements(name, value)
        for least, most in self.ordered:
            yield not_above(getattr(self, least), getattr(self, most)), f"{least} must not be above {most}"

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield references to unknown names, beyond the single fields."""
        return ()

    def idle(self, space: Plane | Space) -> Iterable[tuple[str, str]]:
        """Yield each known number without effect, with the missing field that it needs.

        A field counts as missing if it holds the default object itself. An explicit zero is a choice. A zero
        gain is not a mistake.
        """
        for name, kind in self.kinds(space).items():
            value, default = getattr(self, name), self.default_of(name)
            if (
                kind.needs is None
                or value is default
                or getattr(self, kind.needs) is not self.default_of(kind.needs)
            ):
                continue
            known = None if any(kind.mistakes(value, NOTHING)) else concrete(value)
            if known is not None and (
                default is None or np.any((known != concrete(default)) & (known != 0.0))
            ):
                yield name, kind.needs

    def placed(self, frames: Mapping[str, Any], numbers: Mapping[str, int]) -> Any:
        """Return the element as a group entry.

        It has body-frame positions, numbers as arrays, and start-pose values for defaults.

        Args:
            frames: the frames of all bodies at the start pose, by name.
            numbers: the indices of all bodies, by name.
        """
        kinds = self.kinds(SPACE if isinstance(next(iter(frames.values())), SPACE.frame) else PLANE)
        ends = {name: frames[getattr(self, name)] for name, kind in kinds.items() if kind.names_body}
        start = Start(self, ends, frames, numbers)
        element: Any = self
        for name, kind in kinds.items():
            element = dataclasses.replace(element, **{name: kind.placed(getattr(self, name), element, start)})
        transient = [name for name, kind in kinds.items() if kind.transient]
        return dataclasses.replace(element, **dict.fromkeys(transient))


class Joint(Element):
    """A joint type: rows that are zero when the joint holds.

    Rows constrain positions (`residual`) or velocities (`velocity_residual`). A position-level row is in m or
    rad, and its multiplier is in N or N m. A velocity-level row is in m/s or rad/s, with multipliers in the
    same units.
    """

    noun: ClassVar[str] = "joint"

    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("limits", "restitution", "dry_friction"), "it has no coordinate that can be limited"
    )

    rows: ClassVar[dict[str, str]] = {}
    """The names and units of the position-level rows."""

    velocity_rows: ClassVar[dict[str, str]] = {}
    """The names and units of the velocity-level rows."""

    coordinates: ClassVar[dict[str, str]] = {}
    """The names and units of the coordinates along the degrees of freedom of the joint."""

    movable: ClassVar[bool] = False
    """Whether the type has coordinates along which a motion can be prescribed and a force can act."""

    in_tree: ClassVar[bool] = False
    """Whether the joint can be in the tree of joint coordinates, with its freedoms as coordinates."""

    tree_only: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that only tree joints in joint coordinates support."""

    tree_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that matter only in a tree; joints with rows omit them."""

    turns_over: ClassVar[bool] = False
    """Whether the rows are sines of angles, which also vanish if b is flipped over."""

    margins: ClassVar[dict[str, Status]] = {}
    """Quantities that must be positive for a valid joint, each with the status of a violation."""

    acting: ClassVar[str] = ""
    """Text that names the forces that act between the bodies of a joint without coordinates."""

    unread: ClassVar[dict[str, tuple[str, ...]]] = {
        "rad": ("point_a", "point_b", "angle"),
        "m": ("axes_b", "angle"),
    }
    """The fields that a coordinate in rad, or a coordinate in m, does not depend on."""

    prescribes: ClassVar[bool] = False
    """Whether the row makes a coordinate of another joint a function of time."""

    relative: ClassVar[bool] = True
    """Whether rows and coordinates are invariant to a common rigid motion of both bodies.

    Gears are not, because they count turns in the world.
    """

    derivatives: ClassVar[Derivatives] = AUTODIFF
    """The differentiation method of the rows."""

    def steps(self) -> tuple[Step, ...]:
        """Return the freedoms of a group element as links, in joint axes, in the order of `coordinate`."""
        raise NotImplementedError(f"{type(self).__name__}.steps")

    def joint_frames(self) -> tuple[Any, Any]:
        """Return the joint frames in a and in b of a group element, which coincide at zero coordinates."""
        raise NotImplementedError(f"{type(self).__name__}.joint_frames")

    def residual(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the position-level rows."""
        return ()

    def opening(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the rows that find and check a start: the residual, with angles instead of their sines."""
        return self.residual(a, b, t)

    def velocity_residual(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Return the velocity-level rows, affine in the twists of both frames."""
        return ()

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the coordinates of the joint in m and rad; in space angles are in (-pi, pi]."""
        return ()

    def room(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the `margins`, in their order."""
        return ()

    def measuring(self, number: int) -> Joint:
        """Return a group element with only the fields that a coordinate depends on, without names."""
        joint: Any = self
        static = {field.name: field.metadata.get("static") for field in dataclasses.fields(joint)}
        unread = self.unread[list(self.coordinates.values())[number]] if self.coordinates else ()
        without = [name for name in (*unread, *self.elements()) if name in static]
        return dataclasses.replace(
            joint, **{name: () for name in static if static[name]}, **dict.fromkeys(without)
        )

    def elements(self) -> dict[str, Any]:
        """Return the spring, damping, friction and armature fields of a group by name."""
        return {}

    @property
    def acts(self) -> bool:
        """Whether a group has any effort along its coordinates."""
        return False

    @property
    def springs(self) -> bool:
        """Whether a group has springs along its coordinates."""
        return False

    @property
    def forgets(self) -> bool:
        """Whether a group has springs on angles that are known modulo 2 pi only."""
        return False

    @property
    def reflects(self) -> bool:
        """Whether a group has armature along its coordinates."""
        return False


class Force(Element):
    """A force type: a measure between two frames, and the effort that it produces.

    A type with `quasi` measures quasi-velocities, which are not the rate of any coordinate, such as an
    angular velocity. It defines `rate` instead of `coordinate`.
    """

    noun: ClassVar[str] = "force"

    quasi: ClassVar[bool] = False

    resists: ClassVar[bool] = True
    """Whether the effort depends on coordinates or velocities."""

    derivatives: ClassVar[Derivatives] = AUTODIFF
    """The differentiation method of the measure."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, with -1 for elements without an input."""
        return (-1,) * len(self.name)

    @property
    def measured_joint(self) -> tuple[str, int] | None:
        """The joint name and coordinate index that a resolved force measures with full turns, or None."""
        return None

    @property
    def forgets(self) -> bool:
        """Whether the efforts of a group may jump where angles jump by a full turn; see `lost`."""
        return False

    @property
    def nearest(self) -> Any:
        """Reference angles (k,) in rad, or None.

        Angles measured between frames are shifted by full turns so that they are nearest to these angles.
        """
        return None

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether efforts of a group end at a jump by a full turn (k,).

        Args:
            s: the measured coordinates (k, rows).
            ends: a function that returns whether an angle in [-pi, pi] rad reaches or passes half a turn.
        """
        raise NotImplementedError(f"{type(self).__name__}.lost")

    def adds_to(self, joint: Joint) -> Joint:
        """Return a described joint with the contribution of the force added.

        Most forces add nothing; motors add their rotor inertia.
        """
        return joint

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the measured coordinates."""
        raise NotImplementedError(f"{type(self).__name__}.coordinate")

    def rate(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Return the measured velocities, linear in the twists."""
        raise NotImplementedError(f"{type(self).__name__}.rate")

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the effort on each measured coordinate."""
        raise NotImplementedError(f"{type(self).__name__}.effort")

    def energy(self, s: Array) -> Any:
        """Return the potential energy in J; zero by default."""
        return jnp.zeros_like(s[0])


def known_names(
    bodies: Sequence[Body | Rotor | SpatialBody], joints: Sequence[Any], types: Sequence[type[Joint]]
) -> Known:
    """Return the names that a description may refer to."""
    movable_types = " or ".join(kind.type_key() for kind in types if kind.movable)
    coordinates = {joint.name: tuple(joint.coordinates) for joint in joints}
    rotors = [body.name for body in bodies if body.turns_only]
    movable = [joint.name for joint in joints if joint.movable]
    instead = {joint.name: f"; {joint.acting}" for joint in joints if joint.acting}
    return Known([body.name for body in bodies], movable, movable_types, coordinates, rotors, instead)
