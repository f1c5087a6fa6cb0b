"""The `mechanism` section of a config: bodies, joints, forces, as `jaxdae.mechanisms` names them.

Every field has a description that error messages show as the remedy. `at` places are points of the world at the start
pose; `point` places are in the frame of the body (the ground's frame is the world's). SI units. The sections of joints and forces are made
from the fields of their types.
"""

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model, model_validator

from jaxdae.mechanisms.describe import Element
from jaxdae.mechanisms.forces.planar import PLANAR_FORCES
from jaxdae.mechanisms.joints.planar import PLANAR_JOINTS
from jaxdae.mechanisms.kinds import Kind

Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$")]
Pair = Annotated[tuple[float, float], Strict(False)]
Triple = Annotated[tuple[float, float, float], Strict(False)]

TYPES: dict[str, type[Element]] = {kind.type_key(): kind for kind in (*PLANAR_JOINTS, *PLANAR_FORCES)}
"""The types of joints and forces by their names in configs."""

MOVABLE = tuple(kind.type_key() for kind in PLANAR_JOINTS if kind.movable)
"""The types of joints that have a coordinate."""

PYTHON_ONLY = frozenset(name for kind in TYPES.values() for name, field in kind.kinds().items() if not field.in_config)
"""Fields that a config cannot use."""


class Section(BaseModel):
    """What all sections share: unknown keys are mistakes, types are taken as written, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Body(Section):
    """A rigid body."""

    name: Name = Field(description="the name of the body, a word; not 'ground'")
    mass: float = Field(gt=0, description="the mass in kg")
    inertia: float = Field(gt=0, description="the moment of inertia about the center of mass in kg m^2")
    pose: Triple = Field(description="the start pose of the center of mass, [x in m, y in m, theta in rad]; a guess is enough")
    free: bool = Field(default=False, description="true where nothing is meant to connect the body to the ground")


class Polynomial(Section):
    """c0 + c1 t + c2 t^2 + ..."""

    type: Literal["polynomial"]
    coefficients: Annotated[tuple[float, ...], Strict(False), Field(min_length=1)] = Field(
        description="c0, c1, c2, ... in rad/s^k or m/s^k"
    )


class Sinusoid(Section):
    """offset + amplitude sin(2 pi frequency_hz t + phase)."""

    type: Literal["sinusoid"]
    amplitude: float = Field(description="the amplitude in rad or m")
    frequency_hz: float = Field(gt=0, description="the frequency in Hz")
    phase: float = Field(default=0.0, description="the phase in rad")
    offset: float = Field(default=0.0, description="the mean in rad or m")


class _Element(Section):
    """A joint or a force, its places given in one of the ways of its type, whole and alone."""

    @model_validator(mode="after")
    def _one_way_to_give_the_place(self) -> "_Element":
        kind = TYPES[getattr(self, "type")]  # noqa: B009 (a field of all models made below)
        keys = [key for pair in kind.places() for key in pair]
        given = {key for key in keys if getattr(self, key) is not None}
        if keys and not any(given == set(way) for way in kind.ways()):
            ways = " or ".join(" with ".join(way) for way in kind.ways())
            raise ValueError(f"{', '.join(sorted(given)) or 'no place'}|the place as {ways}|give the place in one of these ways")
        return self


def _no_null_direction(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, int | float) and v == 0 for v in value):
        raise ValueError(f"{list(value)}|a direction of non-zero length|give the axis, for example [1, 0]")
    return value


_ANNOTATIONS: dict[str, Any] = {
    "name": Name,
    "text": str,
    "number": float,
    "numbers": Annotated[tuple[float, ...], Strict(False), Field(min_length=1)],
    "vector": Pair,
    "direction": Annotated[Pair, BeforeValidator(_no_null_direction)],
    "truth": bool,
    "motion": Annotated[Polynomial | Sinusoid, Field(discriminator="type")],
}


def _entry(kind: Kind, default: Any) -> tuple[Any, Any]:
    """Returns a field of a type as pydantic takes it: annotation and default, bounds and description."""
    annotation = _ANNOTATIONS[kind.plain]
    options = {"description": kind.description, **kind.bounds}
    if kind.required or default is ...:
        return annotation, Field(**options)
    return (annotation | None if default is None else annotation), Field(default=default, **options)


def _model(kind: type[Element]) -> type[_Element]:
    """Returns the section of a type of joint or force."""
    entries: dict[str, Any] = {name: _entry(field, kind.default_of(name)) for name, field in kind.kinds().items() if field.in_config}
    return create_model(
        kind.__name__,
        __base__=_Element,
        __module__=__name__,
        __doc__=kind.summary(),
        type=(Literal[kind.type_key()], ...),  # pyright: ignore[reportArgumentType, reportCallIssue]
        **entries,
    )


JOINTS = tuple(_model(kind) for kind in PLANAR_JOINTS)
FORCES = tuple(_model(kind) for kind in PLANAR_FORCES)
if TYPE_CHECKING:
    Joint = Force = Any
else:
    Joint, Force = (Annotated[functools.reduce(operator.or_, models), Field(discriminator="type")] for models in (JOINTS, FORCES))


class Mechanism(Section):
    """Bodies, the joints between them and to the ground, and what acts on them."""

    gravity: Pair = Field(default=(0.0, -9.81), description="the acceleration of gravity in m/s^2, [x, y]")
    bodies: list[Body] = Field(min_length=1, description="the bodies, a list of {name, mass, inertia, pose}")
    joints: list[Joint] = Field(default=[], description="the joints, a list of {type, name, ...}")
    forces: list[Force] = Field(default=[], description="springs, torques and forces, a list of {type, name, ...}")
