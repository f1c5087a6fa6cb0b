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
from jaxdae.mechanisms.measures import Frame

GROUND = "ground"
"""The name that stands for the fixed world."""


class Known(NamedTuple):
    """What a description may refer to: the names of bodies and of joints with a coordinate, and what types of joints have one."""

    bodies: Sequence[str]
    movable: Sequence[str]
    movable_types: str


class Start(NamedTuple):
    """The start pose as an element sees it: what was given, the frames of its bodies by their fields, and the numbers of all bodies."""

    given: Any
    frames: Mapping[str, Frame]
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
    """

    text: str
    unit: str = ""
    default: str = ""
    in_config: bool = True
    required: bool = False
    sparse: bool = False

    names_body: ClassVar[bool] = False
    """Whether it names a body whose frame the mathematics sees."""

    is_place: ClassVar[bool] = False
    """Whether it is a place in a body, for which one in the world may be given."""

    plain: ClassVar[str] = "number"
    """How a config writes it: name, number, pair, direction, text, truth or motion."""

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
class World(Kind):
    """A place in the world at the start pose; a group has only what it stands for, places in bodies."""

    plain: ClassVar[str] = "pair"

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{self.text} in the world at the start pose, [x, y] in m"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no pair of numbers."""
        if value is not None:
            yield from _pair_mistakes(value)

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
        return f"{self.text} in the frame of {self.body} (ground: the world), [x, y] in m"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the place in the frame of the body (2,)."""
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
    plain: ClassVar[str] = "direction"

    @property
    def description(self) -> str:
        """What it is, in a line."""
        return f"{self.text}, [x, y]: in the world with `{self.world}`, else in the frame of {self.body}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no direction."""
        axis = concrete(value)
        if not is_vector(value, 2) or (axis is not None and not np.any(axis)):
            yield f"must be two numbers that are not both zero, got {value}"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the unit vector in the frame of the body (2,)."""
        axis = vector(value)
        axis = axis / jnp.linalg.norm(axis)
        return axis if getattr(start.given, self.world) is None else start.frames[self.body].components_of(axis)


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
    at_start: Callable[[Any, Frame, Frame], Any] | None = None

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
    """Two numbers, the components of a vector."""

    plain: ClassVar[str] = "pair"

    @property
    def description(self) -> str:
        """What it is, with its unit, in a line."""
        return f"{super().description}, [x, y]"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no pair of numbers."""
        return _pair_mistakes(value)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the components (2,)."""
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
class Motion(Kind):
    """A function of time: a pytree, whose numbers are leaves, or a plain function."""

    plain: ClassVar[str] = "motion"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yields what is no function of time that returns a number."""
        expected = f"must be a function of time such as Sinusoid(...), got {value!r}"
        if not callable(value) or isinstance(value, type):
            yield expected
            return
        numbers = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
        wrong = [x for x in numbers if (known := concrete(x)) is not None and not np.all(np.isfinite(known))]
        if wrong:
            yield f"has {wrong[0]!r} where a finite number is needed"
            return
        try:
            shape = jax.eval_shape(lambda t: value(t), jnp.zeros(())).shape
        except Exception as error:
            yield f"{expected}, which fails: {error}"
            return
        if shape != ():
            yield f"{expected}, which returns shape {shape} instead of one number"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Returns the motion as a pytree of arrays."""
        # A plain function is structure: it has no leaves.
        return jax.tree.map(real, as_pytree(value, f"joint {element.name[0]!r}: motion"))


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


def number(text: str, unit: str = "", *, value: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declares a number with a default `value`, or none; the options are those of `Number`."""
    return _leaf(Number(text=text, unit=unit, **options), default=value)


def at_start(text: str, unit: str, measure: Callable[[Any, Frame, Frame], Any], **options: Any) -> Any:
    """Declares a number that is measured at the start pose where it is not given."""
    return _leaf(Number(text=text, unit=unit, default="that of the start pose", at_start=measure, **options), default=None)


def components(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declares the two components of a vector."""
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


def _pair_mistakes(value: Any) -> Iterable[str]:
    if not is_vector(value, 2):
        yield f"must be two finite numbers (x, y), got {value}"
