"""The section `terrain` of a mechanism in space: the ground under its wheels.

Each type is a class of `jaxdae.vehicles`. The keys are the fields of the class, with the descriptions in its
docstring. Errors that the class finds in its numbers are errors of the section. A height map has `heights`,
which the surface interpolates, or `z`, the heights of its control net.
"""

import dataclasses
import functools
import inspect
import operator
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model, model_validator

from jaxdae.app.config.problems import is_finite
from jaxdae.geometry.terrain import Cylinder, HeightMap, Hills, Plane, Terrain, terrain_mistakes
from jaxdae.mechanisms.describe.numbers import concrete

KINDS: dict[str, type[Terrain]] = {
    "plane": Plane,
    "hills": Hills,
    "cylinder": Cylinder,
    "height_map": HeightMap,
}
"""The types of terrain by their names in configs."""

UNITS = {
    "offset": "m",
    "amplitudes": "m",
    "kx": "rad/m",
    "ky": "rad/m",
    "phase": "rad",
    "radius": "m",
    "center": "m",
    "spacing": "m",
}
"""The units of the numbers of terrains, by their keys."""

_Pair = Annotated[tuple[float, float], Strict(False)]
_Triple = Annotated[tuple[float, float, float], Strict(False)]
_Several = Annotated[tuple[float, ...], Strict(False)]


def _one_or_two(value: Any) -> Any:
    """Return one number or two after one check; a union would report an error for each of its members."""
    numbers = value if isinstance(value, list | tuple) else [value]
    if not all(map(is_finite, numbers)) or len(numbers) != (2 if isinstance(value, list | tuple) else 1):
        got = f"{list(value)}" if isinstance(value, list | tuple) else f"{value!r}"
        raise ValueError(
            f"{got}|a finite number, or a list of two|the spacing of the grid in m, or [along x, along y]"
        )
    return value


def _whole(value: Any) -> Any:
    """Return a table of heights after one check, so that a map with many holes is one error."""
    rows = value if isinstance(value, list | tuple) else []
    sizes = [len(row) if isinstance(row, list | tuple) else 0 for row in rows]
    if not rows or len(set(sizes)) > 1 or not sizes[0]:
        raise ValueError(
            f"rows of {sorted(set(sizes))} numbers|rows of numbers in m, all of the same length|row k has "
            "the heights along y"
        )
    entries = [(k, j, each) for k, row in enumerate(rows) for j, each in enumerate(row)]
    holes = [(k, j) for k, j, each in entries if not is_finite(each)]
    if holes:
        got = (
            f"{len(holes)} of {len(entries)} heights that are not finite numbers, the first at "
            f"{list(holes[0])}"
        )
        raise ValueError(f"{got}|finite numbers|fill the holes of the map first")
    return tuple(tuple(float(each) for each in row) for row in rows)


_Table: Any = Annotated[
    tuple[Annotated[tuple[float, ...], Strict(False)], ...], Strict(False), BeforeValidator(_whole)
]
_ANNOTATIONS: dict[str, Any] = {
    "normal": _Triple,
    "center": _Triple,
    "axis": _Pair,
    "origin": _Pair,
    "z": _Table | None,
    **dict.fromkeys(("amplitudes", "kx", "ky", "phase"), _Several),
    "spacing": Annotated[float | _Pair, BeforeValidator(_one_or_two)],
    **dict.fromkeys(("offset", "radius"), float),
}


class TerrainSection(BaseModel):
    """A surface z = h(x, y)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    kind: ClassVar[type[Terrain]]

    @model_validator(mode="after")
    def _sound(self) -> "TerrainSection":
        values = self.model_dump()
        if "heights" in values and (values["heights"] is None) == (values["z"] is None):
            got = "both heights and z" if values["z"] is not None else "neither heights nor z"
            raise ValueError(
                f"{got}|one of them|the surface interpolates heights; z has the heights of its control net"
            )
        if values.get("heights") is not None:
            # The same checks as in `HeightMap.through`, without the solution for the control net.
            values |= {"z": values["heights"], "heights": None}
        if found := terrain_mistakes(terrain(values)):
            raise ValueError(
                f"an invalid {values['type']}: {'; '.join(found)}|a surface|correct these numbers"
            )
        return self


def terrain(values: dict[str, Any]) -> Terrain:
    """Return the terrain of a section from plain values, which may be traced."""
    # Each list becomes one leaf.
    given = {key: _array(value) for key, value in values.items() if key != "type" and value is not None}
    heights = given.pop("heights", None)
    if heights is not None:
        return HeightMap.through(heights, **given)
    return KINDS[values["type"]](**given)


def _array(value: Any) -> Any:
    known = concrete(value)
    return jnp.asarray(value) if known is None else known.astype(float)


def _texts(kind: type[Terrain]) -> dict[str, str]:
    """Return the descriptions of the fields of a class from its docstring."""
    documented = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    return {
        name: text.rstrip(".") for name, text in re.findall(r"^\s+(\w+): (.+)$", documented, re.MULTILINE)
    }


def _model(key: str, kind: type[Terrain]) -> type[TerrainSection]:
    """Return the section model of a terrain type."""
    texts, entries = _texts(kind), {}
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        missing = field.default is dataclasses.MISSING and field.name != "z"
        default: Any = ... if missing else None if field.name == "z" else field.default
        entries[field.name] = (
            _ANNOTATIONS[field.name],
            Field(default=default, description=texts[field.name]),
        )
    if kind is HeightMap:
        entries["heights"] = (
            _Table | None,
            Field(default=None, description="(nx, ny) heights in m that the surface interpolates"),
        )
    made = create_model(  # pyright: ignore[reportCallIssue]
        f"{kind.__name__}Terrain",
        __base__=TerrainSection,
        __module__=__name__,
        type=(Literal[key], ...),  # pyright: ignore[reportArgumentType]
        **entries,  # pyright: ignore[reportArgumentType]
    )
    made.__doc__ = (inspect.getdoc(kind) or "").split("\n")[0]
    made.kind = kind
    return made


TERRAINS: dict[str, type[TerrainSection]] = {key: _model(key, kind) for key, kind in KINDS.items()}
"""The sections of all types of terrain, by their names in configs."""

if TYPE_CHECKING:
    Ground = Any
else:
    Ground = Annotated[
        Annotated[functools.reduce(operator.or_, TERRAINS.values()), Field(discriminator="type")],
        BeforeValidator(lambda value: {"type": value} if isinstance(value, str) else value),
    ]
