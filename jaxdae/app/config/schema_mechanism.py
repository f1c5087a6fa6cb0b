"""The `mechanism` section of a config: bodies, joints and forces, in the plane or in space.

The names are the names in `jaxdae.mechanisms`. Error messages show the description of a field as the remedy.
`at` is a point of the world at the start pose. `point` is in the frame of the body; the frame of the ground
is the world frame. All units are SI. The sections of joints and forces are generated from the fields of their
types.
"""

import functools
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Strict,
    Tag,
    create_model,
    model_validator,
)

from jaxdae.app.config import field_checks
from jaxdae.app.config.problems import is_finite
from jaxdae.app.config.schema_contact import PlanarContact, SpatialContact
from jaxdae.app.config.schema_terrain import Ground as Terrain
from jaxdae.app.config.section import Name, Section
from jaxdae.mechanisms.build_mechanism import TYPES as LIBRARY
from jaxdae.mechanisms.describe.elements import Element
from jaxdae.mechanisms.describe.kinds import Input, JointNames, Kind
from jaxdae.mechanisms.describe.number_kinds import Bounded, Components, Limits, PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import JointAxes
from jaxdae.mechanisms.describe.plane_and_space import PLANE, SPACE
from jaxdae.mechanisms.joints.drives import DRIVES
from jaxdae.mechanisms.joints.planar_wheels import WHEELS as PLANAR_WHEELS
from jaxdae.mechanisms.joints.terrain_wheels import WHEELS as SPATIAL_WHEELS

Pair = Annotated[tuple[float, float], Strict(False)]
Triple = Annotated[tuple[float, float, float], Strict(False)]
Quadruple = Annotated[tuple[float, float, float, float], Strict(False)]
Moment = Annotated[float, Field(gt=0)]
Moments = Annotated[tuple[Moment, Moment, Moment], Strict(False)]
Matrix = Annotated[tuple[Triple, Triple, Triple], Strict(False)]

SPACES = tuple(LIBRARY)
"""The spaces of mechanisms: plane and space."""

SYMMETRIC = 1e-9  # relative to the largest entry: tolerates round-off of rotated or shifted tensors


def _usable(kind: type[Element]) -> bool:
    """Return whether a config can provide all required fields of a type."""
    return all(field.in_config or kind.default_of(name) is not ... for name, field in kind.kinds().items())


TYPES: dict[str, dict[str, type[Element]]] = {
    space: {kind.type_key(): kind for kinds in LIBRARY[space] for kind in kinds if _usable(kind)}
    for space in SPACES
}
"""The types of joints and forces by their names in configs, in each space."""

DRIVE_TYPES: dict[str, dict[str, type[Element]]] = {
    space: {kind.type_key(): kind for kind in DRIVES[space]} for space in SPACES
}
"""The types of drives by their names in configs, in each space."""

WHEELS: dict[str, tuple[str, ...]] = {
    space: tuple(kind.type_key() for kind in kinds)
    for space, kinds in (("plane", PLANAR_WHEELS), ("space", SPATIAL_WHEELS))
}
"""The types of wheels in each space, with the default type first."""

MOVABLE = {space: tuple(kind.type_key() for kind in LIBRARY[space][0] if kind.movable) for space in SPACES}
"""The types of joints that have a coordinate, in each space."""

PYTHON_TYPES = frozenset(
    kind.type_key() for space in SPACES for kinds in LIBRARY[space] for kind in kinds if not _usable(kind)
)
"""Types that need functions, which a config cannot provide."""


class Body(Section):
    """A rigid body in the plane."""

    name: Name = Field(description="the name of the body, a word; not 'ground'")
    mass: float = Field(gt=0, description="the mass in kg")
    inertia: float = Field(gt=0, description="the moment of inertia about the center of mass in kg m^2")
    pose: Triple = Field(
        description="the start pose of the center of mass, [x in m, y in m, theta in rad]; a guess is enough"
    )
    free: bool = Field(default=False, description="true if the body is not connected to the ground by design")
    points: Annotated[tuple[Pair, ...], Strict(False)] = Field(
        default=(), description="points to draw, with their paths, in the frame of the body in m"
    )
    outline: Annotated[tuple[Pair, ...], Strict(False), Field(min_length=3)] | None = Field(
        default=None,
        description="the corners of the drawn polygon in the frame of the body in m; by default, it connects "
        "the joints and points",
    )


class Rotor(Section):
    """A body that only spins, without a position in the plane: a wheel about its axle."""

    name: Name = Field(description="the name of the rotor, a word; not 'ground'")
    inertia: float = Field(gt=0, description="the moment of inertia about the axle in kg m^2")
    angle: float = Field(default=0.0, description="the angle at the start in rad")


def _no_null_vector(value: Any) -> Any:
    if (
        isinstance(value, list | tuple)
        and len(value) in (2, 3, 4)
        and all(is_finite(v) and v == 0 for v in value)
    ):
        if len(value) == 4:
            raise ValueError(
                f"{list(value)}|a quaternion that is not zero|give the orientation, for example [1, 0, 0, 0]"
            )
        example = [1, *(0,) * (len(value) - 1)]
        raise ValueError(f"{list(value)}|a direction of non-zero length|give the axis, for example {example}")
    return value


def _inertia(value: Any) -> Any:
    """Return the moments of inertia if they are physically valid.

    One check covers all forms; a union would report an error for each of its members.
    """
    rows = (
        [row if isinstance(row, list | tuple) else [row] for row in value]
        if isinstance(value, list | tuple)
        else []
    )
    sizes = [len(row) for row in rows]
    if sizes not in ([1, 1, 1], [3, 3, 3]) or not all(is_finite(x) for row in rows for x in row):
        got = f"{list(value)}" if isinstance(value, list | tuple) else f"{value!r}"
        remedy = "about the center of mass in the axes of the body, in kg m^2"
        raise ValueError(f"{got}|three principal moments, or three rows of three numbers|{remedy}")
    given = np.array(rows, float)
    matrix = np.diag(given[:, 0]) if given.shape[1] == 1 else given
    if not np.allclose(matrix, matrix.T, rtol=0.0, atol=SYMMETRIC * np.max(np.abs(matrix))):
        raise ValueError(
            f"{list(value)}|a symmetric matrix|products of inertia are on both sides of the diagonal"
        )
    moments = np.linalg.eigvalsh(matrix)
    if not moments[0] > 0.0:
        listed = ", ".join(f"{moment:.4g}" for moment in moments)
        raise ValueError(
            f"{list(value)} with the principal moments {listed}|principal moments > 0|check the signs"
        )
    return value


class SpatialPose(Section):
    """The start pose of a body in space."""

    place: Triple = Field(description="the position of the center of mass, [x, y, z] in m; a guess is enough")
    quaternion: Annotated[Quadruple, BeforeValidator(_no_null_vector)] | None = Field(
        default=None, description="the orientation, body to world, [w, x, y, z]; any nonzero length"
    )
    rpy: Triple | None = Field(
        default=None,
        description="the orientation as [roll, pitch, yaw] in rad: R = Rz(yaw) Ry(pitch) Rx(roll), as in "
        "URDF",
    )

    @model_validator(mode="after")
    def _one_orientation(self) -> "SpatialPose":
        if self.quaternion is not None and self.rpy is not None:
            raise ValueError(
                "quaternion and rpy|one of them|remove one; without both, the body axes are parallel to the "
                "world axes"
            )
        return self


class SpatialBody(Section):
    """A rigid body in space."""

    name: Name = Field(description="the name of the body, a word; not 'ground'")
    mass: float | None = Field(default=None, gt=0, description="the mass in kg")
    inertia: Annotated[Moments | Matrix, BeforeValidator(_inertia)] | None = Field(
        default=None,
        description="the inertia about the center of mass in body axes in kg m^2: three principal moments, "
        "or a symmetric matrix",
    )
    massless: bool = Field(
        default=False,
        description="true if the body has no mass or no inertia; its joint coordinates must also move other "
        "bodies with mass",
    )
    pose: SpatialPose = Field(
        description="the start pose, {place: [x, y, z], quaternion: [w, x, y, z]} or {place: ..., rpy: [r, "
        "p, y]}"
    )
    free: bool = Field(default=False, description="true if the body is not connected to the ground by design")
    points: Annotated[tuple[Triple, ...], Strict(False)] = Field(
        default=(), description="points to draw, with their paths, in the frame of the body in m"
    )
    outline: Annotated[tuple[Triple, ...], Strict(False), Field(min_length=3)] | None = Field(
        default=None,
        description="the corners of the drawn polygon in the frame of the body in m; by default, lines "
        "connect the joints and points",
    )

    @model_validator(mode="after")
    def _mass_and_inertia(self) -> "SpatialBody":
        missing = [key for key in ("mass", "inertia") if getattr(self, key) is None]
        if missing and not self.massless:
            remedy = "set massless: true, with coordinates: joints"
            raise ValueError(
                f"no {' and no '.join(missing)}|{' and '.join(missing)}|add {' and '.join(missing)}, or "
                f"{remedy}"
            )
        if self.massless and not missing:
            raise ValueError(
                "massless with mass and inertia|a massless body without mass or inertia|remove massless, "
                "mass or inertia"
            )
        return self


class Polynomial(Section):
    """A polynomial, c0 + c1 t + c2 t^2 + ..."""

    type: Literal["polynomial"]
    coefficients: Annotated[tuple[float, ...], Strict(False), Field(min_length=1)] = Field(
        description="c0, c1, c2, ... in rad/s^k or m/s^k"
    )


class Sinusoid(Section):
    """A sine, offset + amplitude sin(2 pi frequency_hz t + phase)."""

    type: Literal["sinusoid"]
    amplitude: float = Field(description="the amplitude in rad or m")
    frequency_hz: float = Field(gt=0, description="the frequency in Hz")
    phase: float = Field(default=0.0, description="the phase in rad")
    offset: float = Field(default=0.0, description="the mean in rad or m")


class ElementSection(Section):
    """A joint or force, with its positions and axes in exactly one of the forms of its type."""

    kind: ClassVar[type[Element]]
    """The type in the library."""

    @model_validator(mode="after")
    def _one_way_to_give_the_place(self) -> "ElementSection":
        keys = [key for pair in self.kind.places() for key in pair]
        given = {key for key in keys if getattr(self, key) is not None}
        if keys and not any(given == set(way) for way in self.kind.ways()):
            ways = " or ".join(" with ".join(way) for way in self.kind.ways())
            raise ValueError(
                f"{', '.join(sorted(given)) or 'no place'}|the place as {ways}|give the place in one of "
                "these forms"
            )
        return self

    @model_validator(mode="after")
    def _one_way_to_give_the_axes(self) -> "ElementSection":
        columns = next(
            (f.columns for n, f in self.kind.kinds().items() if isinstance(f, JointAxes) and n == "axes_a"),
            (),
        )
        given = [name for name in (*columns, "axes_a") if columns and getattr(self, name) is not None]
        if columns and given not in ([*columns], ["axes_a"]):
            ways = f"{' with '.join(columns)}, or axes_a"
            raise ValueError(
                f"{', '.join(given) or 'no axis'}|the axes as {ways}|give the axes in one of these forms"
            )
        return self


_ANNOTATIONS: dict[str, Any] = {
    "name": Name,
    "text": str,
    "number": float,
    "numbers": Annotated[tuple[float, ...], Strict(False), Field(min_length=1)],
    "texts": Annotated[tuple[str, ...], Strict(False)],
    "truth": bool,
    "motion": Annotated[Polynomial | Sinusoid, Field(discriminator="type")],
    "quaternion": Annotated[Quadruple, BeforeValidator(_no_null_vector)],
    "terrain": Terrain,
}
_VECTORS: dict[int, Any] = {2: Pair, 3: Triple}


def _annotation(kind: Kind) -> Any:
    if isinstance(kind, JointNames) and not kind.may_be_empty:
        return Annotated[tuple[str, ...], Strict(False), Field(min_length=1)]
    if isinstance(kind, Components) and kind.bounds:
        one: Any = Annotated[float, Field(gt=kind.above, ge=kind.at_least)]
        return Annotated[tuple[(one,) * kind.dimension], Strict(False)]
    if isinstance(kind, Bounded) and (kind.within or kind.nonzero):
        return Annotated[float, AfterValidator(functools.partial(field_checks.in_bounds, kind=kind))]
    if isinstance(kind, PerCoordinate) and kind.count > 1:
        one = Annotated[float, Field(gt=kind.above, ge=kind.at_least)]
        return Annotated[
            one | Annotated[tuple[(one,) * kind.count], Strict(False)],
            BeforeValidator(functools.partial(field_checks.each, kind=kind)),
        ]
    if isinstance(kind, Limits):
        return Annotated[Any, AfterValidator(functools.partial(field_checks.limits, kind=kind))]
    vector = _VECTORS[kind.dimension]
    vectors = {"vector": vector, "direction": Annotated[vector, BeforeValidator(_no_null_vector)]}
    return (_ANNOTATIONS | vectors)[kind.plain]


def _entry(kind: Kind, default: Any) -> tuple[Any, Any]:
    """Return a field of a type for pydantic: annotation, and default, bounds and description."""
    annotation = _annotation(kind)
    options: dict[str, Any] = {"description": kind.description, **kind.bounds}
    if isinstance(kind, PerCoordinate) and kind.count > 1:
        # The bounds apply to each number.
        options = {"description": f"{kind.description}; one number, or a list of {kind.count}"}
    elif isinstance(kind, Components):
        options = {"description": kind.description}
    if kind.required or (default is ... and not kind.inherited):
        return annotation, Field(**options)
    default = None if default is ... else default
    return (annotation | None if default is None else annotation), Field(default=default, **options)


def _model(kind: type[Element], space: str) -> type[ElementSection]:
    """Return the section model of a type of joint, force or drive."""
    kinds = kind.kinds(SPACE if space == "space" else PLANE)
    entries: dict[str, Any] = {
        name: _entry(field, kind.default_of(name)) for name, field in kinds.items() if field.in_config
    }
    made = create_model(
        kind.__name__ if space == "plane" else f"Spatial{kind.__name__}",
        __base__=ElementSection,
        __module__=__name__,
        __doc__=kind.summary(),
        type=(Literal[kind.type_key()], ...),  # pyright: ignore[reportArgumentType, reportCallIssue]
        **entries,
    )
    made.kind = kind
    return made


SECTIONS: dict[str, dict[str, type[ElementSection]]] = {
    space: {key: _model(kind, space) for key, kind in kinds.items()} for space, kinds in TYPES.items()
}
"""The sections of all types of joints and forces by their names in configs, in each space."""


DRIVE_SECTIONS: dict[str, dict[str, type[ElementSection]]] = {
    space: {key: _model(kind, space) for key, kind in kinds.items()} for space, kinds in DRIVE_TYPES.items()
}
"""The sections of all types of drives by their names in configs, in each space."""


def why_not_here(section: type[BaseModel], key: str) -> str:
    """Explain why a config cannot use a key of a section although the type in Python has it.

    Return an empty string if no type has the key.
    """
    if key == "terrain":
        return "a mechanism in the plane has level ground; use space: space for a terrain"
    if not issubclass(section, ElementSection):
        return ""
    kinds = section.kind.kinds()
    if key not in kinds or kinds[key].in_config or kinds[key].names_body:
        return ""
    of_inputs = any(isinstance(field, Input) for field in kinds.values())
    driven = (
        of_inputs and section.kind.default_of(key) is not ... and not getattr(kinds[key], "at_start", None)
    )
    return (
        "inputs are driven from Python (controls of jaxdae.rollout)"
        if driven
        else "it follows from the start pose"
    )


def _one_of(space: str, number: int) -> Any:
    """Return the union of the sections of joint types (0) or force types (1)."""
    return _any_of([SECTIONS[space][kind.type_key()] for kind in LIBRARY[space][number] if _usable(kind)])


def _any_of(models: Iterable[Any]) -> Any:
    """Return the union of sections, selected by their type."""
    return Annotated[functools.reduce(operator.or_, models), Field(discriminator="type")]


if TYPE_CHECKING:
    PlanarJoint: TypeAlias = Any
    PlanarForce: TypeAlias = Any
    SpatialJoint: TypeAlias = Any
    SpatialForce: TypeAlias = Any
    PlanarDrive: TypeAlias = Any
    SpatialDrive: TypeAlias = Any
else:
    PlanarDrive, SpatialDrive = (_any_of(DRIVE_SECTIONS[space].values()) for space in ("plane", "space"))
    PlanarJoint, PlanarForce = _one_of("plane", 0), _one_of("plane", 1)
    SpatialJoint, SpatialForce = _one_of("space", 0), _one_of("space", 1)


class _Mechanism(Section):
    coordinates: Literal["absolute", "joints"] = Field(
        default="absolute",
        description="absolute (the pose of every body) or joints (joint coordinates of a spanning tree)",
    )
    cut: list[str] = Field(
        default=[],
        description="the names of the joints that close loops; omit for a choice during the construction of "
        "the tree",
    )
    order: Literal["first", "second"] = Field(
        default="second",
        description="second (masses and forces) or first (drives set the velocities, without masses and "
        "forces)",
    )
    rates: dict[str, float] = Field(
        default={},
        description="the constant inputs of drives by name, in m/s or rad/s, slip angles in rad; the default "
        "is zero: {speed: 5.0}",
    )

    @model_validator(mode="after")
    def _cut_where_there_is_a_tree(self) -> "_Mechanism":
        if self.cut and self.coordinates != "joints":
            raise ValueError(
                f"cut with coordinates {self.coordinates}|cut only with coordinates joints|remove cut|cut"
            )
        return self

    @model_validator(mode="after")
    def _drives_where_velocities_are_driven(self) -> "_Mechanism":
        mechanism: Any = self
        if mechanism.order == "first" and mechanism.forces:
            raise ValueError(
                "forces with order first|forces only with order second|remove forces: drives move the "
                "mechanism|forces"
            )
        if mechanism.order == "first" and not mechanism.drives:
            raise ValueError(
                "order first without drives|drives, a list of {type, name, ...}|add drives, which set the "
                "velocities"
            )
        for key in ("drives", "rates"):
            if mechanism.order == "second" and getattr(mechanism, key):
                raise ValueError(
                    f"{key} with order second|{key} only with order first|add order: first, or remove "
                    f"{key}|{key}"
                )
        return self


class PlanarMechanism(_Mechanism):
    """Bodies in the plane, their joints, and forces or drives."""

    space: Literal["plane"] = Field(default="plane", description="plane or space")
    gravity: Pair = Field(default=(0.0, -9.81), description="the acceleration of gravity in m/s^2, [x, y]")
    bodies: list[Body] = Field(min_length=1, description="the bodies, a list of {name, mass, inertia, pose}")
    rotors: list[Rotor] = Field(
        default=[], description="the rotors of wheels, a list of {name, inertia, angle}"
    )
    joints: list[PlanarJoint] = Field(default=[], description="the joints, a list of {type, name, ...}")
    drives: list[PlanarDrive] = Field(
        default=[], description="the driven velocities with order first, a list of {type, name, ...}"
    )
    forces: list[PlanarForce] = Field(
        default=[], description="springs, torques and forces, a list of {type, name, ...}"
    )
    contacts: list[PlanarContact] = Field(
        default=[],
        description="the pairs of shapes that can touch, a list of {name, a, b, shape_a, shape_b, ...}",
    )


class SpatialMechanism(_Mechanism):
    """Bodies in space, their joints, and forces or drives."""

    space: Literal["space"] = Field(description="plane or space")
    terrain: Terrain | None = Field(
        default=None,
        description="the ground of all wheels, {type: plane, hills, cylinder or height_map, ...}",
    )
    gravity: Triple = Field(
        default=(0.0, 0.0, -9.81), description="the acceleration of gravity in m/s^2, [x, y, z]"
    )
    bodies: list[SpatialBody] = Field(
        min_length=1, description="the bodies, a list of {name, mass, inertia, pose}"
    )
    joints: list[SpatialJoint] = Field(default=[], description="the joints, a list of {type, name, ...}")
    drives: list[SpatialDrive] = Field(
        default=[], description="the driven velocities with order first, a list of {type, name, ...}"
    )
    forces: list[SpatialForce] = Field(
        default=[], description="springs, torques and forces, a list of {type, name, ...}"
    )
    contacts: list[SpatialContact] = Field(
        default=[],
        description="the pairs of shapes that can touch, a list of {name, a, b, shape_a, shape_b, ...}",
    )

    @model_validator(mode="after")
    def _massless_in_a_tree(self) -> "SpatialMechanism":
        found = [body.name for body in self.bodies if body.massless]
        if found and self.coordinates != "joints":
            listed = ", ".join(found)
            raise ValueError(
                f"bodies without mass ({listed}) with coordinates {self.coordinates}|coordinates "
                "joints|give them mass and inertia"
            )
        return self


def space_of(mechanism: Any) -> str:
    """Return the space of a mechanism from its section or from plain values.

    The result is `plane` if the space is missing or invalid.
    """
    given = (
        mechanism.get("space", "plane")
        if isinstance(mechanism, dict)
        else getattr(mechanism, "space", "plane")
    )
    return given if given in SPACES else "plane"


def _tag(mechanism: Any) -> Any:
    return (
        mechanism.get("space", "plane")
        if isinstance(mechanism, dict)
        else getattr(mechanism, "space", "plane")
    )


Mechanism = Annotated[
    Annotated[PlanarMechanism, Tag("plane")] | Annotated[SpatialMechanism, Tag("space")], Discriminator(_tag)
]
"""The section `mechanism` in the plane or in space."""
