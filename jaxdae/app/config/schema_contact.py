"""Contacts, which are pairs of collision shapes of two bodies, and their solution in each step.

The sections of shapes are generated from the fields of `jaxdae.geometry.shapes`.
"""

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, Strict, create_model, model_validator

from jaxdae.app.config.schema_tuning import written_out
from jaxdae.app.config.section import Name, Section
from jaxdae.contact_problem import Robust
from jaxdae.geometry import shapes

SHAPES: dict[str, dict[str, type[shapes.Shape]]] = {
    "plane": {
        "line": shapes.Line,
        "disc": shapes.Disc,
        "capsule": shapes.PlanarCapsule,
        "polygon": shapes.Polygon,
    },
    "space": {
        "plane": shapes.Plane,
        "sphere": shapes.Sphere,
        "capsule": shapes.Capsule,
        "box": shapes.Box,
        "cylinder": shapes.Cylinder,
        "ellipsoid": shapes.Ellipsoid,
        "convex_mesh": shapes.ConvexMesh,
    },
}
"""The shapes by their names in configs, in each space."""

_TEXTS = {
    "radius": "the radius in m",
    "half_length": "half the length between the centers of the ends in m",
    "half": "half the lengths of the edges in m, [x, y, z]",
    "radii": "the radii in m, [x, y, z]",
    "vertices": "the vertices in the frame of the shape in m",
    "at": "the origin of the shape in the frame of the body in m; for the ground, in the world",
    "quaternion": "the orientation of the shape in the frame of the body, wxyz",
    "angle": "the angle of the shape in the frame of the body in rad",
}


def shape_of(section: dict[str, Any], space: str) -> shapes.Shape:
    """Return a shape from the plain values of its section, which may be traced."""
    return SHAPES[space][section["type"]](**{key: x for key, x in section.items() if key != "type"})


def shape_values(shape: shapes.Shape, space: str) -> dict[str, Any]:
    """Return the section of a shape; the inverse of `shape_of`."""
    (key,) = (key for key, kind in SHAPES[space].items() if type(shape) is kind)
    every: Any = dataclasses.fields(shape)  # pyright: ignore[reportArgumentType]
    return {"type": key} | {field.name: np.asarray(getattr(shape, field.name)).tolist() for field in every}


def _valid(section: Any, *, space: str) -> Any:
    """Return the section of a shape if its numbers are valid."""
    for mistake in shape_of(section.model_dump(), space).mistakes():
        text, got = mistake.split(", got ")[0], mistake.partition(", got ")[2]
        raise ValueError(f"{got or 'this shape'}|a shape with valid sizes|{text}")
    return section


def _model(key: str, kind: type[shapes.Shape], space: str) -> Any:
    """Return the section of a type of shape."""
    vector: Any = Annotated[tuple[(float,) * kind.dimension], Strict(False)]
    numbers = {
        "at": vector,
        "quaternion": Annotated[tuple[(float,) * 4], Strict(False)],
        "vertices": Annotated[tuple[vector, ...], Strict(False)],
        **{name: vector if shape else float for name, shape in kind.sizes.items()},
    }
    every: Any = dataclasses.fields(kind)  # pyright: ignore[reportArgumentType]
    entries = {
        field.name: (
            numbers.get(field.name, float),
            Field(
                default=... if field.default is dataclasses.MISSING else field.default,
                description=_TEXTS[field.name],
            ),
        )
        for field in every
    }
    made: Any = create_model(  # pyright: ignore[reportCallIssue]
        f"{kind.__name__}Shape",
        __base__=Section,
        __module__=__name__,
        __doc__=(kind.__doc__ or "").split("\n")[0],
        type=(Literal[key], ...),  # pyright: ignore[reportArgumentType]
        **entries,  # pyright: ignore[reportArgumentType]
    )
    return Annotated[made, AfterValidator(functools.partial(_valid, space=space))]


def _contact(space: str) -> Any:
    """Return the section of a contact."""
    models = [_model(key, kind, space) for key, kind in SHAPES[space].items()]
    shape: Any = Annotated[functools.reduce(operator.or_, models), Field(discriminator="type")]
    listed = ", ".join(SHAPES[space])
    texts = {side: f"the shape of {side}, {{type: ...}} with one of {listed}" for side in ("a", "b")}
    return create_model(  # pyright: ignore[reportCallIssue]
        f"{'Spatial' if space == 'space' else 'Planar'}Contact",
        __base__=Section,
        __module__=__name__,
        __doc__="Two shapes of two bodies that can touch.",
        name=(Name, Field(description="the name of the contact, a word")),
        a=(str, Field(description="the first body, often ground")),
        b=(str, Field(description="the second body")),
        shape_a=(shape, Field(description=texts["a"])),
        shape_b=(shape, Field(description=texts["b"])),
        friction=(float, Field(default=0.0, ge=0, description="the friction coefficient mu")),
        restitution=(
            float,
            Field(default=0.0, ge=0, le=1, description="Newton's coefficient of restitution e"),
        ),
    )


if TYPE_CHECKING:
    PlanarContact: TypeAlias = Any
    SpatialContact: TypeAlias = Any
else:
    PlanarContact, SpatialContact = _contact("plane"), _contact("space")


_ROBUST = Robust()


class RobustContactSolver(Section):
    """Newton from the last impulses; where it fails, an interior point, then Newton again."""

    type: Literal["robust"] = "robust"
    warm: int = Field(
        default=_ROBUST.warm, ge=0, description="Newton iterations from the impulses of the last step"
    )
    interior: int = Field(
        default=_ROBUST.interior, ge=0, description="iterations of the interior point; 0 to omit it"
    )
    sweeps: int = Field(default=_ROBUST.sweeps, ge=1, description="sweeps of Gauss-Seidel if interior is 0")
    finish: int = Field(
        default=_ROBUST.finish, ge=0, description="Newton iterations from the result of the cold start"
    )


class IteratedContactSolver(Section):
    """One of the methods that `robust` combines, alone."""

    type: Literal["contact_newton", "interior_point", "gauss_seidel"]
    iterations: int | None = Field(
        default=None, ge=1, description="the number of iterations; omit for the library's default"
    )


class ContactStep(Section):
    """The solution of contacts, joint limits and dry friction in each step."""

    solver: Annotated[
        Annotated[RobustContactSolver | IteratedContactSolver, Field(discriminator="type")],
        BeforeValidator(written_out),
    ] = Field(default=RobustContactSolver(), description="a solver's name, or {type: ..., options}")
    smoothing: float | None = Field(
        default=None, gt=0, description="the energy in J that smooths the contact law; omit for the exact law"
    )
    penetration: float | None = Field(
        default=None,
        gt=0,
        description="the largest penetration of a start in m or rad; omit for 1e-3 of the size, at most 1 mm",
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="the largest residual of the contact law, relative to the velocities; omit for a value "
        "that fits the precision",
    )
    most: int | None = Field(
        default=None,
        ge=1,
        description="the number of contacts with the smallest gaps to solve for; omit for all contacts",
    )

    @model_validator(mode="after")
    def _smoothing_where_interior(self) -> "ContactStep":
        solver = self.solver
        interior = (
            solver.interior > 0
            if isinstance(solver, RobustContactSolver)
            else solver.type == "interior_point"
        )
        if self.smoothing is not None and not interior:
            raise ValueError(
                f"smoothing with solver {solver.type} without an interior point|a smoothing only with an "
                "interior point|choose robust or interior_point"
            )
        return self
