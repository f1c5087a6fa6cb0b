"""Field declarations of joint and force types; `kinds`, `places` and `functions` define their behavior."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxdae.mechanisms.describe.function_kinds import Function, Ground, Motion, Varying
from jaxdae.mechanisms.describe.kinds import (
    GROUND,
    BodyName,
    CoordinateName,
    ElementName,
    Index,
    Inner,
    Input,
    JointName,
    JointNames,
    Kind,
    RotorName,
    Truth,
)
from jaxdae.mechanisms.describe.number_kinds import Components, Limits, Number, Numbers, PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import Axis, Direction, FrameAxes, JointAxes, Point, World


def name() -> Any:
    """Declare the name of an element; in a group, the names of all elements."""
    return _static(ElementName(text="the name"))


def body(text: str, *, ground: bool = True, **default: Any) -> Any:
    """Declare the name of a body."""
    return _static(BodyName(text=text, ground=ground), **default)


def ground() -> Any:
    """Declare the ground as the first body of an element that acts on one body."""
    return _static(BodyName(text="the ground", in_config=False), default=GROUND, kw_only=True)


def rotor(text: str, **default: Any) -> Any:
    """Declare the name of a rotor, the spin of a wheel."""
    return _static(RotorName(text=text), **default)


def joint(text: str) -> Any:
    """Declare the name of a joint that has a coordinate."""
    return _static(JointName(text=text))


def joint_names(text: str, **default: Any) -> Any:
    """Declare the names of joints that have a coordinate; may be empty if that is the default."""
    return _static(JointNames(text=text, may_be_empty=bool(default)), **default)


def wheel(text: str) -> Any:
    """Declare the name of a wheel."""
    return _static(CoordinateName(text=text))


def world(text: str = "") -> Any:
    """Declare a world position, None if the position is given in bodies.

    The default text is `Element.site`.
    """
    return _leaf(World(text=text, unit="m"), default=None)


def point(body: str, world: str, text: str = "") -> Any:
    """Declare a position in the frame of a body, None if it is given in the world.

    The default text is `Element.site`.
    """
    return _leaf(Point(text=text, unit="m", body=body, world=world), default=None)


def direction(body: str, world: str, **default: Any) -> Any:
    """Declare a required direction that is fixed in a body; its text is `Element.line`.

    With a default of None, the build reports a missing direction.
    """
    return _leaf(Direction(text="", body=body, world=world, required=True), **default)


def axis(text: str, body: str = "a", world: str | None = "at") -> Any:
    """Declare a direction that defines the axes of a joint, None if the axes are given."""
    return _leaf(Axis(text=text, body=body, world=world), default=None)


def fixed_axis(text: str, body: str) -> Any:
    """Declare a required direction in the frame of a body."""
    return _leaf(Axis(text=text, body=body, world=None, transient=False))


def joint_axes(body: str) -> Any:
    """Declare the axes of a joint in a body frame, None if directions or the start pose determine them.

    The directions are those of `Element.axis_fields`.
    """
    return _leaf(JointAxes(text="the axes of the joint", body=body), default=None)


def frame_axes(text: str, body: str) -> Any:
    """Declare the axes of a frame that is fixed in a body, None for the body axes."""
    return _leaf(FrameAxes(text=text, body=body), default=None)


def inner() -> Any:
    """Declare a joint along whose coordinate an element acts."""
    return _leaf(Inner(text="the joint"))


def coordinate(text: str) -> Any:
    """Declare the name of a coordinate of a joint, None for the first coordinate."""
    return _static(CoordinateName(text=text), default=None)


def index(text: str) -> Any:
    """Declare a structural number, such as the index of a joint coordinate; in a group a tuple."""
    return _static(Index(text=text, in_config=False), default=0)


def number(
    text: str,
    unit: str = "",
    *,
    value: Any = dataclasses.MISSING,
    kw_only: Any = dataclasses.MISSING,
    **options: Any,
) -> Any:
    """Declare a number with an optional default `value`; the options are those of `Number`."""
    return _leaf(Number(text=text, unit=unit, **options), default=value, kw_only=kw_only)


def varying(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declare a number or a function of time, with a default `value`; the options are those of `Number`."""
    return _leaf(Varying(text=text, unit=unit, **options), default=value)


def per_coordinate(text: str, units: Mapping[str, str], *, value: Any, **options: Any) -> Any:
    """Declare a number per joint coordinate, with units that depend on those of the coordinates.

    Groups omit the field if it is zero.
    """
    return _leaf(
        PerCoordinate(text=text, units=units, **{"sparse": "needs" not in options, **options}),
        default=value,
        kw_only=True,
    )


def limits(text: str, units: Mapping[str, str]) -> Any:
    """Declare limits (lower, upper) per joint coordinate, with units that depend on the coordinates."""
    return _leaf(Limits(text=text, units=units, default="no limits"), default=None, kw_only=True)


def at_start(text: str, unit: str, measure: Callable[[Any, Any, Any], Any], **options: Any) -> Any:
    """Declare a number that is measured at the start pose if it is not given."""
    return _leaf(
        Number(text=text, unit=unit, default="the value at the start pose", at_start=measure, **options),
        default=None,
    )


def components(text: str, unit: str = "", *, value: Any = None, **options: Any) -> Any:
    """Declare the components of a vector; the options are those of `Components`."""
    return _leaf(Components(text=text, unit=unit, **options), default=value)


def numbers(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declare a list of numbers of any length."""
    return _leaf(Numbers(text=text, unit=unit, **options), default=value)


def input_index() -> Any:
    """Declare the index of the input that an element reads; none by default."""
    return _static(Input(text="the index of the input", in_config=False), default=None)


def truth(text: str, *, value: bool) -> Any:
    """Declare a Boolean."""
    return _static(Truth(text=text), default=value)


def motion(text: str, **options: Any) -> Any:
    """Declare a function of time."""
    return _leaf(Motion(text=text), **options)


def curve(text: str) -> Any:
    """Declare a curve: a function of a number that returns a position."""
    what = "a function of a number s that returns a position (3,)"
    return _leaf(Function(text=text, name="curve", what=what, returns="(3,)", gives=(3,), in_config=False))


def surface(text: str) -> Any:
    """Declare a surface: a function of a position that is zero on the surface."""
    what = "a function of a position (3,) that returns a number"
    return _leaf(
        Function(text=text, name="surface", what=what, returns="one number", takes=(3,), in_config=False)
    )


def terrain(text: str) -> Any:
    """Declare a terrain."""
    return _leaf(
        Ground(text=text, inherited=True, default="the terrain of the mechanism"), default=None, kw_only=True
    )


def _leaf(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"kind": kind}, **options)


def _static(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"static": True, "kind": kind}, **options)
