"""Collision shapes: convex bodies with a position and an orientation in the frame of their body.

A shape in space has the fields `at` (3,) and `quaternion` (4,), a shape in the plane has `at` (2,) and
`angle`. They define the frame of the shape in the frame of its body, which is the mass center and the axes of
the body; for the ground, the world. A `jaxdae.geometry.terrain.Terrain` also serves as a shape in space, in
the frame of its body.

All numbers are leaves. `mistakes` reports invalid shapes of a description, and `requirements` are the same
conditions on numbers that change at run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import brief
from jaxdae.geometry.rotation import quat_normalize, rotation_matrix
from jaxdae.geometry.terrain import terrain_mistakes
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.typing import Leaf

MOST_VERTICES = 64
"""The largest number of vertices of a `ConvexMesh`: each vertex is one contact with a plane."""


class Pose(NamedTuple):
    """The frame of a shape or a body: origin (d,) in m, and its axes as the columns of a rotation (d, d).

    Products with d = 2 or 3 are sums, because small matrix products have a lower precision on accelerators.
    """

    place: Array
    axes: Array

    def then(self, other: Pose) -> Pose:
        """Return `other`, which is given in this frame, in the frame in which this frame is given."""
        return Pose(self.point(other.place), jnp.sum(self.axes[:, :, None] * other.axes, axis=1))

    def point(self, x: Any) -> Array:
        """Return the outer coordinates of points (..., d) that are given in this frame."""
        return self.place + jnp.sum(self.axes * x[..., None, :], axis=-1)

    def local(self, x: Any) -> Array:
        """Return the coordinates in this frame of points (..., d) that are given outside."""
        return jnp.sum((x - self.place)[..., None] * self.axes, axis=-2)

    @property
    def main(self) -> Array:
        """The last axis (d,): z in space, y in the plane."""
        return self.axes[:, -1]


class Shape:
    """Base class of shapes. `sizes` are the fields of positive lengths, with their shapes."""

    dimension: ClassVar[int]
    sizes: ClassVar[dict[str, tuple[int, ...]]] = {}
    may_vanish: ClassVar[bool] = False
    """Whether the sizes may be zero."""

    at: Any

    def frame(self) -> Pose:
        """Return the frame of the shape in the frame of its body."""
        raise NotImplementedError(f"{type(self).__name__}.frame")

    def arrays(self) -> Any:
        """Return the shape with arrays in the default precision."""
        names = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        made = {name: _array(getattr(self, name)) for name in names}
        return dataclasses.replace(self, **made)  # pyright: ignore[reportArgumentType]

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the numbers of one shape; only the shapes of traced numbers are checked."""
        expected = {**self.sizes, "at": (self.dimension,)}
        found = [
            f"{name} must be {_words(shape)}, got {brief(getattr(self, name), str)}"
            for name, shape in expected.items()
            if not _fits(getattr(self, name), shape)
        ]
        yield from found
        if found:
            return
        for name in self.sizes:
            size = _numbers(getattr(self, name))
            if size is not None and not np.all(size >= 0.0 if self.may_vanish else size > 0.0):
                yield f"{name} must be {self._range}, got {brief(getattr(self, name), str)}"

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the conditions on the sizes; see `jaxdae.base.requirements`."""
        for name in self.sizes:
            size = getattr(self, name)
            yield size >= 0.0 if self.may_vanish else size > 0.0, f"{name} must be {self._range}"

    @property
    def _range(self) -> str:
        return "non-negative" if self.may_vanish else "positive"


@pytree
class SpatialShape(Shape):
    """A shape in space.

    Attributes:
        at: the origin of the shape in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) of the shape in the frame of the body, of any length.
    """

    dimension: ClassVar[int] = 3

    at: Leaf = dataclasses.field(default=(0.0, 0.0, 0.0), kw_only=True)
    quaternion: Leaf = dataclasses.field(default=(1.0, 0.0, 0.0, 0.0), kw_only=True)

    def frame(self) -> Pose:
        """Return the frame of the shape in the frame of its body."""
        return Pose(jnp.asarray(self.at), rotation_matrix(quat_normalize(jnp.asarray(self.quaternion))))

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the numbers of one shape."""
        yield from super().mistakes()
        if not _fits(self.quaternion, (4,)):
            yield f"quaternion must be {_words((4,))}, got {brief(self.quaternion, str)}"
        elif (quaternion := _numbers(self.quaternion)) is not None and not np.any(quaternion):
            yield (
                f"quaternion must not be zero, got {brief(self.quaternion, str)}; (1, 0, 0, 0) has the axes "
                "of the body"
            )


@pytree
class PlanarShape(Shape):
    """A shape in the plane.

    Attributes:
        at: the origin of the shape in the frame of the body (2,) in m.
        angle: the orientation of the shape in the frame of the body () in rad.
    """

    dimension: ClassVar[int] = 2

    at: Leaf = dataclasses.field(default=(0.0, 0.0), kw_only=True)
    angle: Leaf = dataclasses.field(default=0.0, kw_only=True)

    def frame(self) -> Pose:
        """Return the frame of the shape in the frame of its body."""
        cos, sin = cos_sin(jnp.asarray(self.angle))
        return Pose(jnp.asarray(self.at), jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])]))

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the numbers of one shape."""
        yield from super().mistakes()
        if not _fits(self.angle, ()):
            yield f"angle must be {_words(())}, got {brief(self.angle, str)}"


@pytree
class Plane(SpatialShape):
    """The half space below the x-y plane of its frame; the outward normal is +z.

    Attributes:
        at: a point of the plane in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """


@pytree
class Sphere(SpatialShape):
    """A sphere.

    Attributes:
        radius: the radius in m; zero for a point.
        at: the center in the frame of the body (3,) in m.
        quaternion: without effect, and not a leaf of a mechanism.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radius": ()}
    may_vanish: ClassVar[bool] = True

    radius: Leaf

    def frame(self) -> Pose:
        """Return the frame at the center, with the axes of the body."""
        return _unrotated(self.at)

    def arrays(self) -> Any:
        """Return the sphere with arrays in the default precision, without an orientation."""
        return dataclasses.replace(super().arrays(), quaternion=None)


@pytree
class Capsule(SpatialShape):
    """A cylinder along the z axis of its frame, closed by half spheres.

    Attributes:
        radius: the radius in m.
        half_length: half of the distance between the centers of the half spheres in m.
        at: the center in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radius": (), "half_length": ()}

    radius: Leaf
    half_length: Leaf


@pytree
class Cylinder(SpatialShape):
    """A cylinder along the z axis of its frame, with flat ends.

    Attributes:
        radius: the radius in m.
        half_length: half of the length in m.
        at: the center in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radius": (), "half_length": ()}

    radius: Leaf
    half_length: Leaf


@pytree
class Ellipsoid(SpatialShape):
    """An ellipsoid.

    Attributes:
        radii: the semi-axes along x, y and z (3,) in m.
        at: the center in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radii": (3,)}

    radii: Leaf


@pytree
class ConvexMesh(SpatialShape):
    """The convex hull of points, which must not lie in one plane.

    Attributes:
        vertices: the points (n, 3) in m, from 4 to 64; points inside the hull do not change the shape, but
            cost time.
        at: the origin of the points in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """

    vertices: Leaf

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the numbers of one mesh."""
        yield from super().mistakes()
        if not _is_table(self.vertices, 4, 3):
            yield (
                f"vertices must be a table (n, 3) of at least 4 finite positions, got "
                f"{brief(self.vertices, str)}"
            )
        elif (count := np.shape(self.vertices)[0]) > MOST_VERTICES:
            yield f"vertices must have at most {MOST_VERTICES} rows, got {count}; simplify the mesh"
        elif (vertices := _numbers(self.vertices)) is not None and _is_flat(vertices):
            yield f"vertices must not lie in one plane, got {brief(self.vertices, str)}"


def _is_flat(vertices: np.ndarray) -> bool:
    """Return whether points in space lie in one plane, to rounding errors."""
    sizes = np.linalg.svd(vertices - np.mean(vertices, axis=0), compute_uv=False)
    return bool(sizes[-1] <= 1e-9 * sizes[0])


@pytree
class Box(SpatialShape):
    """A box.

    Attributes:
        half: half of the edge lengths along x, y and z (3,) in m.
        at: the center in the frame of the body (3,) in m.
        quaternion: the orientation wxyz (4,) in the frame of the body.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"half": (3,)}

    half: Leaf

    def corners(self) -> Array:
        """Return the corners (8, 3) in the frame of the box; z changes fastest."""
        return jnp.asarray(BOX_SIGNS, self.half.dtype) * self.half


BOX_SIGNS = np.stack(np.meshgrid(*[(-1.0, 1.0)] * 3, indexing="ij"), axis=-1).reshape(8, 3)
"""The signs of the coordinates of the corners of a box (8, 3)."""


@pytree
class Line(PlanarShape):
    """The half plane below the x axis of its frame; the outward normal is +y.

    Attributes:
        at: a point of the line in the frame of the body (2,) in m.
        angle: the orientation in the frame of the body in rad.
    """


@pytree
class Disc(PlanarShape):
    """A disc in the plane.

    Attributes:
        radius: the radius in m; zero for a point.
        at: the center in the frame of the body (2,) in m.
        angle: without effect, and not a leaf of a mechanism.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radius": ()}
    may_vanish: ClassVar[bool] = True

    radius: Leaf

    def frame(self) -> Pose:
        """Return the frame at the center, with the axes of the body."""
        return _unrotated(self.at)

    def arrays(self) -> Any:
        """Return the disc with arrays in the default precision, without an orientation."""
        return dataclasses.replace(super().arrays(), angle=None)


@pytree
class PlanarCapsule(PlanarShape):
    """A rectangle along the y axis of its frame, closed by half discs.

    Attributes:
        radius: the radius in m.
        half_length: half of the distance between the centers of the half discs in m.
        at: the center in the frame of the body (2,) in m.
        angle: the orientation in the frame of the body in rad.
    """

    sizes: ClassVar[dict[str, tuple[int, ...]]] = {"radius": (), "half_length": ()}

    radius: Leaf
    half_length: Leaf


@pytree
class Polygon(PlanarShape):
    """A convex polygon in the plane.

    Attributes:
        vertices: the vertices (n, 2) in m, counterclockwise, at least 3, without three on one line.
        at: the origin of the vertices in the frame of the body (2,) in m.
        angle: the orientation in the frame of the body in rad.
    """

    vertices: Leaf

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the numbers of one polygon."""
        yield from super().mistakes()
        if not _is_table(self.vertices, 3, 2):
            yield (
                f"vertices must be a table (n, 2) of at least 3 finite positions, got "
                f"{brief(self.vertices, str)}"
            )
        elif (vertices := _numbers(self.vertices)) is not None:
            turns = _turns(vertices)
            if np.all(turns < 0.0):
                yield "vertices must be in counterclockwise order; reverse the list"
            elif not np.all(turns > 0.0) or _winds(vertices) != 1:
                yield (
                    "vertices must be the corners of a convex polygon in counterclockwise order, without "
                    f"three of them on one line; check vertex {int(np.argmin(turns))}"
                )

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the condition that the polygon is convex; see `jaxdae.base.requirements`."""
        if np.ndim(self.vertices) >= 2:  # The placeholder of traced vertices has no axes.
            yield _turns(self.vertices) > 0.0, "vertices must be convex and counterclockwise"


def _turns(vertices: Any) -> Any:
    """Return the cross products (..., n) of the edges before and after each vertex."""
    order = np.arange(np.shape(vertices)[-2])
    before = vertices - vertices[..., np.roll(order, 1), :]
    after = vertices[..., np.roll(order, -1), :] - vertices
    return before[..., 0] * after[..., 1] - before[..., 1] * after[..., 0]


def _winds(vertices: np.ndarray) -> int:
    """Return the number of turns of a closed polygon; a pentagram has two."""
    edges = np.roll(vertices, -1, axis=0) - vertices
    angles = np.arctan2(edges[:, 1], edges[:, 0])
    changes = np.mod(np.roll(angles, -1) - angles, 2.0 * np.pi)
    return round(float(np.sum(changes)) / (2.0 * np.pi))


SPATIAL_SHAPES: tuple[type[Shape], ...] = (
    Plane,
    Sphere,
    Capsule,
    Box,
    Cylinder,
    Ellipsoid,
    ConvexMesh,
)
PLANAR_SHAPES: tuple[type[Shape], ...] = (Line, Disc, PlanarCapsule, Polygon)


def shape_mistakes(shape: Any, dimension: int) -> list[str]:
    """Return all errors of a shape of a description; empty for a valid shape.

    Args:
        shape: the value to check.
        dimension: 2 in the plane, 3 in space.
    """
    if dimension == 3 and offers(shape, "height"):
        return terrain_mistakes(shape)
    kinds = SPATIAL_SHAPES if dimension == 3 else PLANAR_SHAPES
    if isinstance(shape, kinds):
        try:
            return list(shape.mistakes())
        except (TypeError, ValueError) as error:
            return [f"contains a non-numeric value: {error}"]
    here = "space" if dimension == 3 else "the plane"
    given = f"the class {shape.__name__}" if isinstance(shape, type) else f"a {type(shape).__name__}"
    names = ", ".join(kind.__name__ for kind in kinds) + (" or a terrain" if dimension == 3 else "")
    return [f"must be a shape of {here} ({names}), got {given}"]


def _unrotated(place: Any) -> Pose:
    """Return the frame at a point (d,) of a body, with the axes of the body."""
    place = jnp.asarray(place)
    return Pose(place, jnp.eye(place.shape[0], dtype=place.dtype))


def _array(x: Any) -> Any:
    return jnp.asarray(x, jnp.result_type(float))


def _numbers(x: Any) -> np.ndarray | None:
    """Return the values as a host array, or None if they are traced."""
    return None if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)) else np.asarray(x, float)


def _fits(x: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a value has a shape, and is traced or finite.

    Text and booleans do not count as numbers.
    """
    known = (np.asarray(leaf) for leaf in jax.tree.leaves(x) if not isinstance(leaf, Tracer))
    if any(leaf.dtype.kind in "bUSO" for leaf in known):
        return False
    numbers = _numbers(x)
    if numbers is None:
        return jax.eval_shape(_array, x).shape == shape
    return numbers.shape == shape and bool(np.all(np.isfinite(numbers)))


def _is_table(x: Any, least: int, columns: int) -> bool:
    """Return whether a value is a table of at least `least` rows, traced or finite."""
    numbers = _numbers(x)
    shape = jax.eval_shape(_array, x).shape if numbers is None else numbers.shape
    right = len(shape) == 2 and shape[0] >= least and shape[1] == columns
    return right and (numbers is None or bool(np.all(np.isfinite(numbers))))


def _words(shape: tuple[int, ...]) -> str:
    return "a finite number" if shape == () else f"{shape[0]} finite numbers"
