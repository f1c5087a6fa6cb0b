"""How the fields of joint and force types are declared; what they are is in `kinds`, `places` and `functions`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jaxdae.mechanisms.functions import Function, Ground, Motion, Varying
from jaxdae.mechanisms.kinds import (
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
from jaxdae.mechanisms.number_kinds import Components, Number, Numbers, PerCoordinate
from jaxdae.mechanisms.places import Axis, Direction, FrameAxes, JointAxes, Point, World


def name(what: str) -> Any:
    """Declares the name of an element, in a group the names of all."""
    return _static(ElementName(text=f"the name of the {what}, a word"))


def body(text: str, *, ground: bool = True, **default: Any) -> Any:
    """Declares the name of a body."""
    return _static(BodyName(text=text, ground=ground), **default)


def rotor(text: str, **default: Any) -> Any:
    """Declares the name of a rotor, the spin of a wheel."""
    return _static(RotorName(text=text), **default)


def joint(text: str) -> Any:
    """Declares the name of a joint that has a coordinate."""
    return _static(JointName(text=text))


def joint_names(text: str, **default: Any) -> Any:
    """Declares the names of joints that have a coordinate; there may be none of them where that is the default."""
    return _static(JointNames(text=text, may_be_empty=bool(default)), **default)


def wheel(text: str) -> Any:
    """Declares the name of a wheel."""
    return _static(CoordinateName(text=text))


def world(text: str) -> Any:
    """Declares a place in the world, None where the place is given in bodies."""
    return _leaf(World(text=text, unit="m"), default=None)


def point(text: str, body: str, world: str) -> Any:
    """Declares a place in the frame of a body, None where it is given in the world."""
    return _leaf(Point(text=text, unit="m", body=body, world=world), default=None)


def direction(text: str, body: str, world: str, **default: Any) -> Any:
    """Declares a direction that is fixed in a body; it must be given. With a default of None whoever builds the mechanism says so."""
    return _leaf(Direction(text=text, body=body, world=world, required=True), **default)


def axis(text: str, body: str = "a", world: str | None = "at") -> Any:
    """Declares a direction that the axes of a joint are made of, None where these are given."""
    return _leaf(Axis(text=text, body=body, world=world), default=None)


def fixed_axis(text: str, body: str) -> Any:
    """Declares a direction in the frame of a body; it must be given."""
    return _leaf(Axis(text=text, body=body, world=None, transient=False))


def joint_axes(body: str, columns: tuple[str, ...] = ("axis",)) -> Any:
    """Declares the axes of a joint in the frame of a body, None where they follow from directions or the start pose."""
    return _leaf(JointAxes(text="the axes of the joint", body=body, columns=columns), default=None)


def frame_axes(text: str, body: str) -> Any:
    """Declares the axes of a frame that is fixed in a body, None for those of the body."""
    return _leaf(FrameAxes(text=text, body=body), default=None)


def inner() -> Any:
    """Declares a joint along whose coordinate an element acts."""
    return _leaf(Inner(text="the joint"))


def coordinate(text: str) -> Any:
    """Declares the name of a coordinate of a joint, None for its first one."""
    return _static(CoordinateName(text=text), default=None)


def index(text: str) -> Any:
    """Declares a number that is structure, such as which coordinate of a joint is meant; in a group a tuple."""
    return _static(Index(text=text, in_config=False), default=0)


def number(text: str, unit: str = "", *, value: Any = dataclasses.MISSING, kw_only: Any = dataclasses.MISSING, **options: Any) -> Any:
    """Declares a number with a default `value`, or none; the options are those of `Number`."""
    return _leaf(Number(text=text, unit=unit, **options), default=value, kw_only=kw_only)


def varying(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declares a number that may be a function of time instead, with a default `value`; the options are those of `Number`."""
    return _leaf(Varying(text=text, unit=unit, **options), default=value)


def per_coordinate(text: str, units: Mapping[str, str], *, value: Any, **options: Any) -> Any:
    """Declares a number for each coordinate of a joint, with units by those of the coordinates; groups go without it where it is zero."""
    return _leaf(PerCoordinate(text=text, units=units, **{"sparse": "needs" not in options, **options}), default=value, kw_only=True)


def at_start(text: str, unit: str, measure: Callable[[Any, Any, Any], Any], **options: Any) -> Any:
    """Declares a number that is measured at the start pose where it is not given."""
    return _leaf(Number(text=text, unit=unit, default="that of the start pose", at_start=measure, **options), default=None)


def components(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declares the components of a vector."""
    return _leaf(Components(text=text, unit=unit, **options), default=value)


def numbers(text: str, unit: str = "", *, value: Any, **options: Any) -> Any:
    """Declares any number of numbers."""
    return _leaf(Numbers(text=text, unit=unit, **options), default=value)


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


def terrain(text: str) -> Any:
    """Declares a terrain."""
    return _leaf(Ground(text=text, inherited=True, default="that of the mechanism"), default=None, kw_only=True)


def _leaf(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"kind": kind}, **options)


def _static(kind: Kind, **options: Any) -> Any:
    return dataclasses.field(metadata={"static": True, "kind": kind}, **options)
