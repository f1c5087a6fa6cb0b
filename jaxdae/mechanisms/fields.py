"""What the fields of joint and force types are: places, directions, numbers, names of bodies.

A field of a type is declared with one of the functions of this file. The kind that they leave in its metadata says everything else that is
asked of the field: what a user may give (`mistakes`), how it becomes an entry of a stacked group (`placed`), and what configs and tables of
the documentation write of it (`description`, `plain`).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.functions import as_pytree
from jaxdae.geometry.rotation import quat_normalize, rotation_matrix

GROUND = "ground"
"""The name that stands for the fixed world."""


class Known(NamedTuple):
    """What a description may refer to: the names of bodies and of joints with a coordinate, and what types of joints have one.

    `coordinates` are the names of the coordinates of all joints, by the names of the joints.
    """

    bodies: Sequence[str]
    movable: Sequence[str]
    movable_types: str
    coordinates: Mapping[str, Sequence[str]]


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
        dimension: of the space in which the type is, 2 in the plane.
    """

    text: str
    unit: str = ""
    default: str = ""
    in_config: bool = True
    required: bool = False
    sparse: bool = False
    dimension: int = 2

    @property
    def goes(self) -> bool:
        """Whether other fields are made of it, and groups go without it."""
        return False

    names_body: ClassVar[bool] = False
    """Whether it names a body whose frame the mathematics sees."""

    is_direction: ClassVar[bool] = False
    """Whether it is a direction that is fixed in a body."""

    is_place: ClassVar[bool] = False
    """Whether it is a place in a body, for which one in the world may be given."""

    plain: ClassVar[str] = "number"
    """How a config writes it: name, number, vector, direction, matrix, text, truth or motion."""

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
        if value not in known:
            yield f"is {value!r}, which is no body{hint(value, known)}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number of the body, a tuple of one."""
        return (start.numbers[value],)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointName(Kind):
    """The name of a joint that has a coordinate."""

    plain: ClassVar[str] = "text"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields an unknown name, and a joint without a coordinate."""
        if value not in names.movable:
            yield f"is {value!r}, which is no {names.movable_types} joint{hint(value, names.movable)}"


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
class World(Kind):
    """A place in the world at the start pose; a group has only what it stands for, places in bodies."""

    plain: ClassVar[str] = "vector"

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{self.text} in the world at the start pose, {self.axes} in m"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no vector."""
        if value is not None:
            yield from _vector_mistakes(value, self.dimension)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns None."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point(World):
    """A place in the frame of a body, or instead of it a place in the world.

    Attributes:
        body: the field with the name of the body.
        world: the field with the place in the world.
    """

    body: str
    world: str
    is_place: ClassVar[bool] = True

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{self.text} in the frame of {self.body} (ground: the world), {self.axes} in m"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the place in the frame of the body."""
        if value is not None:
            return vector(value)
        return start.frames[self.body].place_of(vector(getattr(start.given, self.world)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Direction(Kind):
    """A unit vector fixed in a body: a direction of the world where a place in the world is given, else one in the frame of the body.

    Attributes:
        body: the field with the name of the body.
        world: the field with the place in the world.
    """

    body: str
    world: str
    is_direction: ClassVar[bool] = True
    plain: ClassVar[str] = "direction"

    @property
    def description(self) -> str:
        """What it is, in a line."""
        return f"{self.text}, {self.axes}: in the world with `{self.world}`, else in the frame of {self.body}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no direction."""
        axis = concrete(value)
        if not is_vector(value, self.dimension) or (axis is not None and not np.any(axis)):
            count = "two numbers that are not both zero" if self.dimension == 2 else "three numbers that are not all zero"
            yield f"must be {count}, got {value}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the unit vector in the frame of the body."""
        axis = vector(value)
        axis = axis / jnp.linalg.norm(axis)
        return axis if getattr(start.given, self.world) is None else start.frames[self.body].components_of(axis)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis(Direction):
    """A direction that may be left out; the axes of a joint are made of some of them, and groups then have these instead.

    Attributes:
        transient: whether groups go without it.
    """

    world: str | None
    transient: bool = True

    @property
    def goes(self) -> bool:
        """Whether groups go without it."""
        return self.transient

    @property
    def description(self) -> str:
        """What it is, in a line."""
        where = (
            f"in the frame of {self.body}" if self.world is None else f"in the world with `{self.world}`, else in the frame of {self.body}"
        )
        return f"{self.text}, {self.axes}: {where}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no direction."""
        return () if value is None else super().mistakes(value, names)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the unit vector in the frame of the body (3,), None where there is none."""
        if value is None:
            return None
        axis = vector(value) / jnp.linalg.norm(vector(value))
        in_world = self.world is not None and getattr(start.given, self.world) is not None
        return start.frames[self.body].components_of(axis) if in_world else axis


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointAxes(Kind):
    """The axes x, y, z of a joint in the frame of a body: the columns of a rotation matrix (3, 3), or a quaternion wxyz (4,).

    Attributes:
        body: the field with the name of the body.
        columns: fields with directions that the axes of the joint are made of: one for z, two for x and y.
    """

    body: str
    columns: tuple[str, ...]
    plain: ClassVar[str] = "quaternion"

    @property
    def description(self) -> str:
        """What it is, in a line."""
        made = f"made of {' and '.join(self.columns)}" if self.columns and self.body == "a" else "those of the start pose"
        return f"the axes of the joint in the frame of {self.body}, a quaternion [w, x, y, z]; left out: {made}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no rotation."""
        numbers = None if value is None else concrete(value)
        if numbers is None:
            return
        if not np.all(np.isfinite(numbers)) or numbers.shape not in ((4,), (3, 3)) or not np.any(numbers):
            yield f"must be a quaternion of four numbers or a rotation matrix (3, 3), got {value}"
        elif numbers.ndim == 2 and not (np.allclose(numbers.T @ numbers, np.eye(3), atol=1e-6) and np.linalg.det(numbers) > 0.0):
            yield f"must be a rotation matrix, right-handed with columns of length 1 at right angles, got {value}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the matrix (3, 3)."""
        if value is not None:
            given = jnp.asarray(value, jnp.result_type(float))
            return given if given.ndim == 2 else rotation_matrix(quat_normalize(given))
        if self.body == "b":
            return _in_frame(start.frames["b"], _in_world(start.frames["a"], element.axes_a))
        if not self.columns:
            return jnp.eye(3, dtype=jnp.result_type(float))
        kinds: Any = element.kinds()
        given = [start.frames[kinds[name].body].direction(getattr(element, name)).array() for name in self.columns]
        return _in_frame(start.frames["a"], _basis(*given))


def _in_frame(frame: Any, columns: Any) -> Any:
    """Returns vectors of the world, columns (3, 3), in the frame of a body."""
    return jnp.stack([frame.components_of(columns[:, k]) for k in range(3)], axis=1)


def _in_world(frame: Any, columns: Any) -> Any:
    """Returns vectors of a body, columns (3, 3), in the world."""
    return jnp.stack([frame.direction(columns[:, k]).array() for k in range(3)], axis=1)


def _basis(first: Any, second: Any = None) -> Any:
    """Returns axes as columns (3, 3): z along the first direction, or x along it and y along what of the second is normal to it."""
    if second is None:
        # Across the axis of the world from which it is farthest.
        away = jnp.eye(3, dtype=first.dtype)[jnp.argmin(jnp.abs(first))]
        x = away - jnp.dot(away, first) * first
        x = x / jnp.linalg.norm(x)
        return jnp.stack([x, jnp.cross(first, x), first], axis=1)
    y = second - jnp.dot(first, second) * first
    y = y / jnp.linalg.norm(y)
    return jnp.stack([first, y, jnp.cross(first, y)], axis=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Kind):
    """A joint inside of an element that acts along one of its coordinates. In a group: its entry, without names and numbers of bodies."""

    in_config: bool = False

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the joint as an entry of a group."""
        inner = value.placed(start.everything, start.numbers)
        static = [field.name for field in dataclasses.fields(inner) if field.metadata.get("static")]
        return dataclasses.replace(inner, **dict.fromkeys(static, ()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number(Kind):
    """A number.

    Attributes:
        above: it must be larger.
        at_least: in a config it must not be smaller; from Python it may, so that dampers may drive.
        at_start: (element, frame of a, frame of b) -> what it is where it is left out, at the start pose.
    """

    above: float | None = None
    at_least: float | None = None
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
        if not is_number(value):
            yield f"must be a finite number, got {value!r}"
        elif self.above is not None and numbers is not None and not numbers > self.above:
            yield f"must be positive, got {value}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the number as an array ()."""
        if value is None and self.at_start is not None:
            return self.at_start(element, start.frames["a"], start.frames["b"])
        return real(value)


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
        return _vector_mistakes(value, self.dimension)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the components."""
        return vector(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(Kind):
    """The index of an input, or None. In a group: the index, -1 for none."""

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no index."""
        if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0):
            yield f"must be an index 0, 1, ..., got {value!r}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the index, a tuple of one."""
        return (-1 if value is None else value,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth(Kind):
    """True or false."""

    plain: ClassVar[str] = "truth"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Function(Kind):
    """A function: a pytree that is called, whose numbers are leaves, or a plain function.

    Attributes:
        name: of the field.
        what: what it must be, in words.
        returns: what it returns, in words.
        takes: the shape of its argument.
        gives: the shape of what it returns.
    """

    name: str
    what: str
    returns: str
    takes: tuple[int, ...] = ()
    gives: tuple[int, ...] = ()

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no such function."""
        expected = f"must be {self.what}, got {value!r}"
        if not callable(value) or isinstance(value, type):
            yield expected
            return
        numbers = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
        wrong = [x for x in numbers if (known := concrete(x)) is not None and not np.all(np.isfinite(known))]
        if wrong:
            yield f"has {wrong[0]!r} where a finite number is needed"
            return
        try:
            shape = jax.eval_shape(lambda x: value(x), jnp.zeros(self.takes)).shape
        except Exception as error:
            yield f"{expected}, which fails: {error}"
            return
        if shape != self.gives:
            yield f"{expected}, which returns shape {shape} instead of {self.returns}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the function as a pytree of arrays."""
        # A plain function is structure: it has no leaves.
        return jax.tree.map(real, as_pytree(value, f"joint {element.name[0]!r}: {self.name}"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Motion(Function):
    """A function of time."""

    name: str = "motion"
    what: str = "a function of time such as Sinusoid(...)"
    returns: str = "one number"
    plain: ClassVar[str] = "motion"


# Fields.


def name(what: str) -> Any:
    """Declares the name of an element, in a group the names of all."""
    return _static(ElementName(text=f"the name of the {what}, a word"))


def body(text: str, *, ground: bool = True, **default: Any) -> Any:
    """Declares the name of a body."""
    return _static(BodyName(text=text, ground=ground), **default)


def joint(text: str) -> Any:
    """Declares the name of a joint that has a coordinate."""
    return _static(JointName(text=text))


def world(text: str) -> Any:
    """Declares a place in the world, None where the place is given in bodies."""
    return _leaf(World(text=text, unit="m"), default=None)


def point(text: str, body: str, world: str) -> Any:
    """Declares a place in the frame of a body, None where it is given in the world."""
    return _leaf(Point(text=text, unit="m", body=body, world=world), default=None)


def direction(text: str, body: str, world: str) -> Any:
    """Declares a direction that is fixed in a body; it must be given."""
    return _leaf(Direction(text=text, body=body, world=world))


def axis(text: str, body: str = "a", world: str | None = "at") -> Any:
    """Declares a direction that the axes of a joint are made of, None where these are given."""
    return _leaf(Axis(text=text, body=body, world=world), default=None)


def fixed_axis(text: str, body: str) -> Any:
    """Declares a direction in the frame of a body; it must be given."""
    return _leaf(Axis(text=text, body=body, world=None, transient=False))


def joint_axes(body: str, columns: tuple[str, ...] = ("axis",)) -> Any:
    """Declares the axes of a joint in the frame of a body, None where they follow from directions or the start pose."""
    return _leaf(JointAxes(text="the axes of the joint", body=body, columns=columns, in_config=False), default=None)


def inner() -> Any:
    """Declares a joint along whose coordinate an element acts."""
    return _leaf(Inner(text="the joint"))


def coordinate(text: str) -> Any:
    """Declares the name of a coordinate of a joint, None for its first one."""
    return _static(CoordinateName(text=text), default=None)


def index(text: str) -> Any:
    """Declares a number that is structure, such as which coordinate of a joint is meant; in a group a tuple."""
    return _static(Index(text=text, in_config=False), default=0)


def number(text: str, unit: str = "", *, value: Any = dataclasses.MISSING, kw_only: bool = False, **options: Any) -> Any:
    """Declares a number with a default `value`, or none; the options are those of `Number`."""
    return _leaf(Number(text=text, unit=unit, **options), default=value, kw_only=kw_only)


def at_start(text: str, unit: str, measure: Callable[[Any, Any, Any], Any], **options: Any) -> Any:
    """Declares a number that is measured at the start pose where it is not given."""
    return _leaf(Number(text=text, unit=unit, default="that of the start pose", at_start=measure, **options), default=None)


def components(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declares the components of a vector."""
    return _leaf(Components(text=text, unit=unit, **options), default=value)


def input_index() -> Any:
    """Declares the index of the input that an element reads, none by default."""
    return _static(Input(text="the index of the input", in_config=False), default=None)


def truth(text: str, *, value: bool) -> Any:
    """Declares a truth value."""
    return _static(Truth(text=text), default=value)


def motion(text: str) -> Any:
    """Declares a function of time."""
    return _leaf(Motion(text=text))


def curve(text: str) -> Any:
    """Declares a curve: a function of a number that returns a place."""
    what = "a function of a number s that returns a place (3,)"
    return _leaf(Function(text=text, name="curve", what=what, returns="(3,)", gives=(3,), in_config=False))


def surface(text: str) -> Any:
    """Declares a surface: a function of a place that is zero on it."""
    what = "a function of a place (3,) that returns a number"
    return _leaf(Function(text=text, name="surface", what=what, returns="one number", takes=(3,), in_config=False))


def _leaf(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"kind": kind}, **options)


def _static(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"static": True, "kind": kind}, **options)


# Values.


def concrete(x: Any) -> np.ndarray | None:
    """Returns the numbers, NaN where they are none, or None where they are traced."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)):
        return None
    try:
        return np.asarray(x, float)
    except (TypeError, ValueError):
        return np.asarray(np.nan)


def is_vector(x: Any, size: int) -> bool:
    """Returns whether something is so many finite numbers, or traced."""
    numbers = concrete(x)
    return numbers is None or (numbers.shape == (size,) and bool(np.all(np.isfinite(numbers))))


def is_number(x: Any) -> bool:
    """Returns whether something is a finite number, or traced."""
    numbers = concrete(x)
    return numbers is None or (numbers.ndim == 0 and bool(np.isfinite(numbers)))


def is_positive(x: Any) -> bool:
    """Returns whether something is a positive number, or traced."""
    numbers = concrete(x)
    return is_number(x) and (numbers is None or bool(numbers > 0.0))


def real(x: Any) -> Any:
    """Returns a number as an array of the default precision."""
    return jnp.asarray(x, jnp.result_type(float))


def vector(x: Any) -> Any:
    """Returns numbers as an array of the default precision."""
    return jnp.stack([real(entry) for entry in x])


def hint(name: Any, known: Sequence[str]) -> str:
    """Returns what might have been meant by an unknown name."""
    close = difflib.get_close_matches(str(name), known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f" (there is: {', '.join(dict.fromkeys(known))})"


def unknown_coordinate(joint: Any, along: Any, names: Known) -> Iterable[str]:
    """Yields the name of a coordinate that a joint does not have; None is its first one."""
    known = names.coordinates.get(joint, ())
    if known and along is not None and along not in known:
        yield f"along is {along!r}, which is no coordinate of {joint!r}{hint(along, known)}"


def _vector_mistakes(value: Any, dimension: int) -> Iterable[str]:
    if not is_vector(value, dimension):
        names = "two finite numbers (x, y)" if dimension == 2 else "three finite numbers (x, y, z)"
        yield f"must be {names}, got {value}"
