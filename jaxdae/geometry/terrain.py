"""Terrain surfaces z = h(x, y), twice continuously differentiable, whose parameters are leaves.

A wheel needs h for its height row, the gradient for the direction of the contact force, and the second
derivatives for the accelerations of the contact. Jumps of these derivatives (bilinear, Catmull-Rom) cause
jumps of the accelerations, and integrators lose their order. Height maps are therefore bicubic B-splines,
which are C^2.

A terrain is one class with two methods: `height`, and the extent of the surface (`inside`). Derivatives come
from autodiff unless the class has closed forms. Outside this extent, the surface has an arbitrary
continuation, so that no value becomes NaN. Rollouts there report `Status.OFF_TERRAIN`.

References:
    C. de Boor, "A Practical Guide to Splines", Springer, 2001, chapters IX and XI (uniform cubic B-splines).
    M. P. do Carmo, "Differential Geometry of Curves and Surfaces", 1976, section 3.3 (graphs of functions).
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import brief
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.typing import Leaf

_EDGE = 1e-6
"""The remaining fraction of the squared radius at the edge of a cylinder, where the slope would be
infinite."""


class Terrain(abc.ABC):
    """A surface z = height(x, y), with all lengths in m.

    To define a terrain, write a subclass with a method `height`, and decorate it with `@jaxdae.tree.pytree`.
    Joints fix the terrain in their body a, which is usually the ground. `height` must be a twice continuously
    differentiable function of two scalars (), written in `jax.numpy`.
    """

    flat: ClassVar[bool] = False
    """Whether the normal is constant."""

    @abc.abstractmethod
    def height(self, x: Any, y: Any) -> Any:
        """Return the height z () of the surface at a position, in m."""

    def height_and_slope(self, x: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return the height in m at a position, and its derivatives along x and y; by autodiff by default."""
        one, none = jnp.ones_like(x), jnp.zeros_like(x)
        height, along_x = jax.jvp(self.height, (x, y), (one, none))
        return height, along_x, jax.jvp(self.height, (x, y), (none, one))[1]

    def second_derivatives(self, x: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return h_xx, h_xy and h_yy in 1/m at a position; by autodiff by default."""
        one, none = jnp.ones_like(x), jnp.zeros_like(x)

        def gradient(x: Any, y: Any) -> tuple[Any, Any]:
            return self.height_and_slope(x, y)[1:]

        xx, xy = jax.jvp(gradient, (x, y), (one, none))[1]
        return xx, xy, jax.jvp(lambda y: gradient(x, y)[1], (y,), (one,))[1]

    def inside(self, x: Any, y: Any) -> Any:
        """Return whether a position is within the extent of the surface, a boolean (); True by default."""
        return jnp.ones((), bool)

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the parameters that are not traced; NaN in a parameter is always an error."""
        return ()

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the conditions on the parameters of one terrain or a group.

        See `jaxdae.base.requirements`.
        """
        return ()


@pytree
class Plane(Terrain):
    """A plane: normal . (x, y, z) = offset |normal|.

    Attributes:
        normal: (3,) of any length, with z > 0.
        offset: the distance of the origin below the plane () in m.
    """

    flat: ClassVar[bool] = True

    normal: Leaf = (0.0, 0.0, 1.0)
    offset: Leaf = 0.0

    def height(self, x: Any, y: Any) -> Any:
        """Return the height z () in m."""
        a, b, c = self.normal
        length = jnp.sqrt(jnp.asarray(a * a + b * b + c * c))
        return (self.offset * length - a * x - b * y) / c

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the condition that the normal points up."""
        yield _entry(self.normal, 2) > 0.0, "normal must have z > 0"

    def mistakes(self) -> Iterable[str]:
        """Yield an error if the normal does not point up, or if the offset is not a scalar."""
        if (normal := _numbers(self.normal)) is not None and not (normal.shape == (3,) and normal[2] > 0.0):
            yield (
                "normal must be three numbers (x, y, z) with z > 0, because the plane is z = height(x, "
                f"y), got {self.normal}"
            )
        if np.shape(self.offset) != ():
            yield f"offset must be one number, got {self.offset}"


@pytree
class Hills(Terrain):
    """Sinusoidal waves: z = sum of amplitudes_k sin(kx_k x + ky_k y + phase_k), for any number of waves.

    Attributes:
        amplitudes: the amplitudes (n,) in m.
        kx: the wave numbers along x (n,) in rad/m.
        ky: the wave numbers along y (n,) in rad/m.
        phase: the phases (n,) in rad.
    """

    amplitudes: Leaf
    kx: Leaf
    ky: Leaf
    phase: Leaf

    def height(self, x: Any, y: Any) -> Any:
        """Return the height z () in m."""
        return jnp.sum(self._waves(x, y)[3])

    def height_and_slope(self, x: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return the height in m at a position, and its derivatives along x and y."""
        if not self._is_plain:
            return super().height_and_slope(x, y)
        kx, ky, cos, sin = self._waves(x, y)
        return jnp.sum(sin), jnp.sum(kx * cos), jnp.sum(ky * cos)

    def second_derivatives(self, x: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return h_xx, h_xy and h_yy in 1/m at a position."""
        if not self._is_plain:
            return super().second_derivatives(x, y)
        kx, ky, _, sin = self._waves(x, y)
        return -jnp.sum(kx * kx * sin), -jnp.sum(kx * ky * sin), -jnp.sum(ky * ky * sin)

    @property
    def _is_plain(self) -> bool:
        """Return whether the closed-form derivatives are valid: no subclass overrides `height`."""
        return type(self).height is Hills.height

    def _waves(self, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
        """Return kx, ky, and the cosines and sines of all waves times their amplitudes (n,)."""
        kx, ky, phase, amplitudes = (
            jnp.asarray(part) for part in (self.kx, self.ky, self.phase, self.amplitudes)
        )
        if not kx.shape == ky.shape == phase.shape == amplitudes.shape:
            # Otherwise, one wave would be broadcast to several.
            shapes = [part.shape for part in (amplitudes, kx, ky, phase)]
            raise ValueError(
                f"Hills: amplitudes, kx, ky and phase must be lists of equal length, got shapes {shapes}"
            )
        cos, sin = kept_cos_sin(kx * x + ky * y + phase)
        return kx, ky, amplitudes * cos, amplitudes * sin

    def mistakes(self) -> Iterable[str]:
        """Yield an error if the lists have different lengths."""
        shapes = {name: np.shape(getattr(self, name)) for name in ("amplitudes", "kx", "ky", "phase")}
        if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
            yield (
                "amplitudes, kx, ky and phase must be lists of equal length, got shapes "
                f"{list(shapes.values())}"
            )


@pytree
class Cylinder(Terrain):
    """The upper half of a horizontal cylinder, a ridge; with a negative radius the lower half, a trough.

    z = center_z + sign(radius) sqrt(radius^2 - d^2), where d is the horizontal distance of (x, y) from the
    axis. The extent of the surface is |d| < |radius|.

    Attributes:
        radius: the radius in m; negative for a trough.
        axis: the direction of the axis in the x-y plane (2,), of any length.
        center: a point on the axis (3,) in m.
    """

    radius: Leaf
    axis: Leaf = (0.0, 1.0)
    center: Leaf = (0.0, 0.0, 0.0)

    def height(self, x: Any, y: Any) -> Any:
        """Return the height z () in m."""
        rest = self._rest(x, y)
        return self.center[2] + jnp.sign(self.radius) * jnp.sqrt(
            jnp.maximum(rest, _EDGE * self.radius * self.radius)
        )

    def inside(self, x: Any, y: Any) -> Any:
        """Return whether the cylinder is above or below a position."""
        return self._rest(x, y) > _EDGE * self.radius * self.radius

    def _rest(self, x: Any, y: Any) -> Any:
        """Return radius^2 - d^2."""
        u, v = self.axis
        across = (x - self.center[0]) * v - (y - self.center[1]) * u
        return self.radius * self.radius - across * across / (u * u + v * v)

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the conditions on the radius and the axis."""
        yield self.radius != 0.0, "radius must not be zero"
        yield (_entry(self.axis, 0) != 0.0) | (_entry(self.axis, 1) != 0.0), "axis must not be zero"

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the radius, the axis and the center."""
        if (radius := _numbers(self.radius)) is not None and not (radius.shape == () and radius != 0.0):
            yield (
                "radius must be a nonzero number (positive for a ridge, negative for a trough), got "
                f"{self.radius}"
            )
        if (axis := _numbers(self.axis)) is not None and not (axis.shape == (2,) and np.any(axis)):
            yield f"axis must be two numbers (x, y) that are not both zero, got {self.axis}"
        if np.shape(self.center) != (3,):
            yield f"center must be three numbers (x, y, z), got {self.center}"


@pytree
class HeightMap(Terrain):
    """A uniform bicubic B-spline over a grid: C^2 and local (4 x 4 values per position).

    It is differentiable with respect to its values and the position. With i = floor(x / spacing) and the
    remainder s in [0, 1), along each axis

        h = sum_k w_k(s) z[i - 1 + k],
        w = ((1 - s)^3, 3 s^3 - 6 s^2 + 4, -3 s^3 + 3 s^2 + 3 s + 1, s^3) / 6.

    The values z are a control net. The surface smooths them (z + (z'' spacing^2) / 6 at a grid point to
    leading order), and reproduces planes exactly. `HeightMap.through` computes the values z of a surface
    through given heights. The net is extrapolated linearly beyond its last rows, so the map covers the whole
    grid and passes through its corners. Outside the grid, the height equals the height at the nearest grid
    position, and `inside` is False.

    Attributes:
        z: the values (nx, ny) in m, nx and ny at least 2; z[i, j] belongs to origin + (i, j) spacing.
        spacing: the grid spacing () or (2,) in m.
        origin: the position of z[0, 0] (2,) in m.
    """

    z: Leaf
    spacing: Leaf
    origin: Leaf = (0.0, 0.0)

    @classmethod
    def through(cls, heights: Any, spacing: Any, origin: Any = (0.0, 0.0)) -> HeightMap:
        """Return the map through given heights at the grid points: the natural bicubic spline.

        Along each axis (z[i-1] + 4 z[i] + z[i+1]) / 6 = heights[i] inside, z = heights at both ends. The map
        is linear in the heights and differentiable. It takes one dense solve per axis.

        Args:
            heights: the heights (nx, ny) in m.
            spacing: the grid spacing () or (2,) in m.
            origin: the position of heights[0, 0] (2,) in m.

        Raises:
            ValueError: if a parameter is invalid, or if a height is not finite. A single such height would
                make all of z non-finite.
        """
        check_terrain("HeightMap.through", cls(heights, spacing, origin))
        z = jnp.asarray(heights)
        # Convert integer heights to floating point.
        z = z if jnp.issubdtype(z.dtype, jnp.floating) else z.astype(jnp.result_type(float))
        for _ in range(2):
            z = jnp.linalg.solve(jnp.asarray(_interpolation(z.shape[0]), z.dtype), z).T
        return cls(z, spacing, origin)

    def height(self, x: Any, y: Any) -> Any:
        """Return the height z () in m."""
        for mistake in self._spacing_mistakes():
            raise ValueError(f"HeightMap: {mistake}")
        z = jnp.asarray(self.z)
        (i, along_x), (j, along_y) = (
            _weights(*scaled, count) for scaled, count in zip(self._scaled(x, y), z.shape, strict=True)
        )
        rows, columns = (
            jnp.clip(k - 1 + jnp.arange(4, dtype=k.dtype), 0, count - 1)
            for k, count in zip((i, j), z.shape, strict=True)
        )
        return along_x @ (z[rows[:, None], columns[None, :]] @ along_y)

    def inside(self, x: Any, y: Any) -> Any:
        """Return whether a position is on the grid, including its edges."""
        scaled = zip(self._scaled(x, y), np.shape(self.z), strict=True)
        inside = [(s >= -rounding) & (s <= count - 1.0 + rounding) for (s, rounding), count in scaled]
        return inside[0] & inside[1]

    def _scaled(self, x: Any, y: Any) -> list[tuple[Any, Any]]:
        """Return a position in units of the spacing, and its rounding error at the end, for each axis."""
        spacing, found = jnp.broadcast_to(jnp.asarray(self.spacing), (2,)), []
        for k, (place, count) in enumerate(zip((x, y), np.shape(self.z), strict=True)):
            s = (place - self.origin[k]) / spacing[k]
            size = count + jax.lax.stop_gradient(jnp.abs(self.origin[k] / spacing[k]))
            found.append((s, 4.0 * float(jnp.finfo(s.dtype).eps) * size))
        return found

    def requirements(self) -> Iterable[tuple[Any, str]]:
        """Yield the condition that the spacing is positive."""
        for spacing in self.spacing if isinstance(self.spacing, tuple | list) else (self.spacing,):
            yield spacing > 0.0, "spacing must be positive"

    def mistakes(self) -> Iterable[str]:
        """Yield the errors of the size, the heights, the spacing and the origin of the map."""
        shape = np.shape(self.z)
        if len(shape) != 2 or min(shape) < 2:
            yield f"z must be a table (nx, ny) of at least 2 x 2 heights, got shape {shape}"
        elif (z := _numbers(self.z)) is not None and not np.all(np.isfinite(z)):
            holes = np.argwhere(~np.isfinite(z))
            yield (
                f"z has {len(holes)} of {z.size} non-finite heights, the first at "
                f"{[int(k) for k in holes[0]]}; fill the holes of the map first"
            )
        yield from self._spacing_mistakes()
        if np.shape(self.origin) != (2,):
            yield f"origin must be two numbers (x, y), got {self.origin}"

    def _spacing_mistakes(self) -> Iterable[str]:
        if (spacing := _numbers(self.spacing)) is not None and not (
            spacing.shape in ((), (2,)) and np.all(spacing > 0.0)
        ):
            yield f"spacing must be a positive number, or two of them, got {self.spacing}"


def _entry(x: Any, k: int) -> Any:
    """Return entry k of a vector: a list of numbers, or an array whose last axis is that of the vector."""
    return x[k] if isinstance(x, tuple | list) else x[..., k]


def _weights(s: Any, rounding: Any, count: int) -> tuple[Any, Any]:
    """Return the cell of a scaled position, and the weights (4,) of the values around it."""
    # Do not use `clip`: its derivative at the edge is one half.
    before_end: Any = jnp.where(s > count - 1.0 + rounding, count - 1.0, s)
    s = jnp.where(s < -rounding, 0.0, before_end)
    cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(s)), 0, count - 2)
    s = s - cell
    first = (1.0 - s) ** 3 / 6.0
    second = (3.0 * s**3 - 6.0 * s**2 + 4.0) / 6.0
    third = (-3.0 * s**3 + 3.0 * s**2 + 3.0 * s + 1.0) / 6.0
    fourth = s**3 / 6.0
    # Beyond the end of the grid, the value is 2 z[0] - z[1].
    at_start, at_end = cell == 0, cell == count - 2
    before: Any = jnp.where(at_start, first, 0.0)
    after: Any = jnp.where(at_end, fourth, 0.0)
    weights = (first - before, second + 2.0 * before - after, third - before + 2.0 * after, fourth - after)
    return cell.astype(jnp.int32), jnp.stack(weights)


def _interpolation(count: int) -> np.ndarray:
    """Return the matrix (count, count) from values of the control net to heights at grid points."""
    matrix = (np.eye(count, k=-1) + 4.0 * np.eye(count) + np.eye(count, k=1)) / 6.0
    matrix[[0, -1]] = np.eye(count)[[0, -1]]
    return matrix


def _numbers(x: Any) -> np.ndarray | None:
    """Return the values as a host array, or None if they are traced."""
    return None if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x)) else np.asarray(x, float)


def terrain_mistakes(terrain: Any) -> list[str]:
    """Return all errors of a terrain whose parameters are known; empty for a valid terrain.

    Args:
        terrain: the value to check.
    """
    if not offers(terrain, "height"):
        return [f"must be a terrain, such as Plane() or HeightMap(z, spacing), got {brief(terrain)}"]
    try:
        if found := list(terrain.mistakes()):
            return found
        leaves = [
            (jax.tree_util.keystr(path), _numbers(leaf))
            for path, leaf in jax.tree_util.tree_flatten_with_path(terrain)[0]
        ]
    except (TypeError, ValueError) as error:
        return [f"contains a non-numeric value: {error}"]
    return [
        f"{path.lstrip('.')} must be finite numbers, got {leaf}"
        for path, leaf in leaves
        if leaf is not None and not _finite(leaf)
    ]


def _finite(numbers: np.ndarray) -> bool:
    return bool(np.all(np.isfinite(numbers)))


def check_terrain(name: str, terrain: Any) -> None:
    """Raise an error if a value is not a terrain, or if its parameters are invalid.

    Args:
        name: the name for the message.
        terrain: the value to check.

    Raises:
        ValueError: if there are any errors; the message lists all of them.
    """
    if found := terrain_mistakes(terrain):
        raise ValueError(f"{name}: terrain " + "; ".join(found))
