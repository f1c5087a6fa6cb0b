"""Fields for positions, directions and axes, in the world at the start pose or in body frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.rotation import quat_normalize, rotation_matrix
from jaxdae.mechanisms.describe.kinds import Kind, Known, Start
from jaxdae.mechanisms.describe.numbers import (
    concrete,
    has_length,
    is_vector,
    shape_of,
    shown,
    vector,
    vector_mistakes,
)

_UNIT = 1e-4
"""Largest error of the squared length of a direction, and of the entries of a rotation matrix times its
transpose.

It allows for single precision and for the steps of finite differences."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class World(Kind):
    """A world position at the start pose; a group stores the body-frame positions instead."""

    plain: ClassVar[str] = "vector"

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type."""
        return dataclasses.replace(super().of(element, space), text=self.text or element.site)

    @property
    def description(self) -> str:
        """A one-line description with the unit."""
        return f"{self.text} in the world at the start pose, {self.axes} in m"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a vector."""
        if value is not None:
            yield from vector_mistakes(value, self.dimension)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return None."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point(World):
    """A position in the frame of a body, or alternatively a world position.

    Attributes:
        body: the field with the name of the body.
        world: the field with the world position.
    """

    body: str
    world: str
    is_place: ClassVar[bool] = True

    @property
    def description(self) -> str:
        """A one-line description with the unit."""
        return f"{self.text} in the frame of {self.body} (ground: the world), {self.axes} in m"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the position in the frame of the body."""
        if value is not None:
            return vector(value)
        return start.frames[self.body].place_of(vector(getattr(start.given, self.world)))

    def given_in(self, given: Mapping[str, Any]) -> str:
        """Return the name of the body field."""
        return self.body

    def moved(self, value: Any, rotation: Any, place: Any) -> Any:
        """Return the position in the other frame."""
        return place + rotation @ vector(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Direction(Kind):
    """A unit vector fixed in a body.

    It is a world direction if a world position is given, else a direction in the frame of the body.

    Attributes:
        body: the field with the name of the body.
        world: the field with the world position.
    """

    body: str
    world: str
    is_direction: ClassVar[bool] = True
    plain: ClassVar[str] = "direction"

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type."""
        return dataclasses.replace(super().of(element, space), text=self.text or element.line)

    @property
    def description(self) -> str:
        """A one-line description."""
        return f"{self.text}, {self.axes}: in the world with `{self.world}`, else in the frame of {self.body}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a direction."""
        axis = concrete(value)
        if is_vector(value, self.dimension) and (axis is None or np.any(axis)):
            if not has_length(value):
                yield f"must have a nonzero length that does not underflow, got {shown(value)}"
        else:
            count = (
                "two numbers that are not both zero"
                if self.dimension == 2
                else "three numbers that are not all zero"
            )
            yield (
                f"must be {count} ({self.text}), got {value}"
                if value is None
                else f"must be {count}, got {shown(value)}"
            )

    def requirements(self, name: str, value: Any) -> Iterable[tuple[Any, str]]:
        """Yield the condition that the vectors (k, 2) or (k, 3) have length 1."""
        squares = sum(value[..., k] * value[..., k] for k in range(self.dimension))
        yield abs(squares - 1.0) < _UNIT, f"{name} must have length 1"

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the unit vector in the frame of the body."""
        axis = vector(value)
        axis = axis / jnp.linalg.norm(axis)
        return (
            axis if getattr(start.given, self.world) is None else start.frames[self.body].components_of(axis)
        )

    def given_in(self, given: Mapping[str, Any]) -> str:
        """Return the name of the body field, or empty text if a world position and direction are given."""
        return self.body if self.world is None or given.get(self.world) is None else ""

    def moved(self, value: Any, rotation: Any, place: Any) -> Any:
        """Return the direction in the other frame."""
        return rotation @ vector(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis(Direction):
    """An optional direction.

    Most such directions define the axes of a joint, which groups store instead.
    """

    world: str | None
    transient: bool = True

    @property
    def description(self) -> str:
        """A one-line description."""
        where = (
            f"in the frame of {self.body}"
            if self.world is None
            else f"in the world with `{self.world}`, else in the frame of {self.body}"
        )
        return f"{self.text}, {self.axes}: {where}"

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a direction."""
        return () if value is None else super().mistakes(value, names)

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the unit vector in the frame of the body (3,), or None if it is not given."""
        if value is None:
            return None
        axis = vector(value) / jnp.linalg.norm(vector(value))
        in_world = self.world is not None and getattr(start.given, self.world) is not None
        return start.frames[self.body].components_of(axis) if in_world else axis


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointAxes(Kind):
    """The axes x, y, z of a joint in the frame of a body.

    They are the columns of a rotation matrix (3, 3), or a quaternion wxyz (4,).

    Attributes:
        body: the field with the name of the body.
        columns: direction fields that define the axes of the joint: one for z, two for x and y.
    """

    body: str
    columns: tuple[str, ...] = ()
    plain: ClassVar[str] = "quaternion"

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type."""
        kind: Any = super().of(element, space)
        return dataclasses.replace(kind, columns=element.axis_fields)

    @property
    def description(self) -> str:
        """A one-line description."""
        made = (
            f"constructed from {' and '.join(self.columns)}"
            if self.columns and self.body == "a"
            else "the axes at the start pose"
        )
        return (
            f"the axes of the joint in the frame of {self.body}, a quaternion [w, x, y, z]; default: {made}"
        )

    def mistakes(self, value: Any, names: Known) -> Iterable[str]:
        """Yield an error if the value is not a rotation."""
        numbers = None if value is None else concrete(value)
        if numbers is None:
            if value is not None and shape_of(value) not in ((4,), (3, 3)):
                yield f"must be a quaternion of four numbers or a rotation matrix (3, 3), got {shown(value)}"
            return
        if not np.all(np.isfinite(numbers)) or numbers.shape not in ((4,), (3, 3)) or not has_length(numbers):
            yield f"must be a quaternion of four numbers or a rotation matrix (3, 3), got {shown(value)}"
        elif numbers.ndim == 2 and not (
            np.allclose(numbers.T @ numbers, np.eye(3), atol=1e-6) and np.linalg.det(numbers) > 0.0
        ):
            yield (f"must be a rotation matrix (orthonormal columns, determinant +1), got {shown(value)}")

    def requirements(self, name: str, value: Any) -> Iterable[tuple[Any, str]]:
        """Yield the condition that the matrices (k, 3, 3) are rotations."""
        x, y, z = ([value[..., row, column] for row in range(3)] for column in range(3))
        # The columns are right-handed and orthonormal if z = x cross y for two unit vectors x and y at right
        # angles.
        crossed = (x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0])
        errors = [
            _dot(x, x) - 1.0,
            _dot(y, y) - 1.0,
            _dot(x, y),
            *(own - other for own, other in zip(z, crossed, strict=True)),
        ]
        for error in errors:
            yield (
                abs(error) < _UNIT,
                f"{name} must be rotation matrices (orthonormal columns, determinant +1)",
            )

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the matrix (3, 3)."""
        if value is not None:
            return _matrix(value)
        if self.body == "b":
            return _in_frame(start.frames["b"], _in_world(start.frames["a"], element.axes_a))
        if not self.columns:
            return jnp.eye(3, dtype=jnp.result_type(float))
        kinds: Any = element.kinds()
        given = [
            start.frames[kinds[name].body].direction(getattr(element, name)).array() for name in self.columns
        ]
        return _in_frame(start.frames["a"], _basis(*given))

    def given_in(self, given: Mapping[str, Any]) -> str:
        """Return the name of the body field."""
        return self.body

    def moved(self, value: Any, rotation: Any, place: Any) -> Any:
        """Return the axes in the other frame, a matrix (3, 3)."""
        return rotation @ _matrix(value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameAxes(JointAxes):
    """The axes of a frame that is fixed in a body, in the frame of that body; by default the body axes."""

    def of(self, element: Any, space: Any) -> Kind:
        """Return the kind of the field in a given element type."""
        return dataclasses.replace(self, dimension=space.dimension)

    @property
    def description(self) -> str:
        """A one-line description."""
        return (
            f"{self.text} in the frame of {self.body}, a quaternion [w, x, y, z]; default: the axes of "
            f"{self.body}"
        )

    def placed(self, value: Any, element: Any, start: Start) -> Any:
        """Return the matrix (3, 3)."""
        return (
            jnp.eye(3, dtype=jnp.result_type(float))
            if value is None
            else super().placed(value, element, start)
        )


def _dot(x: Sequence[Any], y: Sequence[Any]) -> Any:
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def _matrix(axes: Any) -> Any:
    """Return axes, given as a matrix (3, 3) or a quaternion wxyz, as a matrix."""
    given = jnp.asarray(axes, jnp.result_type(float))
    return given if given.ndim == 2 else rotation_matrix(quat_normalize(given))


def _in_frame(frame: Any, columns: Any) -> Any:
    """Return world vectors, columns (3, 3), in the frame of a body."""
    return jnp.stack([frame.components_of(columns[:, k]) for k in range(3)], axis=1)


def _in_world(frame: Any, columns: Any) -> Any:
    """Return body vectors, columns (3, 3), in the world."""
    return jnp.stack([frame.direction(columns[:, k]).array() for k in range(3)], axis=1)


def _basis(first: Any, second: Any = None) -> Any:
    """Return axes as columns (3, 3).

    With one direction, z is along it. With two, x is along the first, and y along the component of the second
    that is normal to x.
    """
    if second is None:
        # Start x from the world axis that is most nearly normal to the direction.
        away = jnp.eye(3, dtype=first.dtype)[jnp.argmin(jnp.abs(first))]
        x = away - jnp.dot(away, first) * first
        x = x / jnp.linalg.norm(x)
        return jnp.stack([x, jnp.cross(first, x), first], axis=1)
    y = second - jnp.dot(first, second) * first
    y = y / jnp.linalg.norm(y)
    return jnp.stack([first, y, jnp.cross(first, y)], axis=1)
