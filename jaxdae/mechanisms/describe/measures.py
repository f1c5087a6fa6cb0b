"""Derivatives of measures between two body frames, in the plane and in space.

A joint or a force depends on two bodies, through a function of their frames, the measure. Autodiff supplies
all quantities that the equations of motion need:

    rows of J      the wrenches of unit multipliers on the two bodies, from the gradient of each row by the
                   entries of both frames: 3 or 6 numbers per body,
    rate           derivative along the motion,
    bias           second derivative along the motion, without coordinate accelerations.

The derivatives of frames along a motion are closed forms in `jaxdae.geometry.planar_frames` and
`spatial_frames`. Measures therefore need no trigonometric functions, which makes them cheap. A measure must
be differentiable in reverse mode. All quantities are scalars: a frame is a tuple of scalars, and a measure
returns a tuple of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.compile.platform import on_accelerator


class Pairs(NamedTuple):
    """The two bodies of each element of a group, as indices (k,); structure, not data.

    The number of bodies, `bodies`, is the index of the ground.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    bodies: int

    @property
    def sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of the bodies a and of the bodies b (k,)."""
        return np.asarray(self.a, int), np.asarray(self.b, int)


class Kinematics(NamedTuple):
    """The motion of all bodies: stacked frames, twists, and the bias of the twists.

    Every entry of frames and twists is an array (n,). Twists are None if no caller needs them. For the twists
    T v, the bias is T' v: the rate of the twists at v' = 0. None stands for zero. `located` is the result of
    `BodyCoordinates.locate`, if the coordinates need more than the frames; else None.
    """

    frame: Any
    velocity: Any
    bias: Any = None
    located: Any = None


Sides = tuple[Any, Any]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _taken(numbers: tuple[int, ...], entry: Array) -> Array:
    """Return the entries (k, ...) of (n, ...) with these indices; the index n gives zero.

    The derivative is a matrix product. The transpose of a gather is a scatter with additions in arbitrary
    order, whose last digits would not be reproducible.
    """
    padded = jnp.pad(entry, [(0, 1), *[(0, 0)] * (entry.ndim - 1)]) if entry.shape[0] in numbers else entry
    return padded.at[np.asarray(numbers, int)].get(mode="promise_in_bounds", wrap_negative_indices=False)


@_taken.defjvp
def _taken_jvp(
    numbers: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (entry,), (change,) = primals, tangents
    matrix = _matrix(np.asarray(numbers, int), entry.shape[0]).reshape(
        len(numbers), -1, *(1,) * (entry.ndim - 1)
    )
    return _taken(numbers, entry), jnp.sum(jnp.asarray(matrix, entry.dtype) * change, axis=1)


def selected(numbers: np.ndarray, entry: Array) -> Array:
    """Return the entries (k,) with these indices; the index n, one beyond the last entry, gives zero."""
    return jnp.concatenate([entry, jnp.zeros((1,), entry.dtype)])[numbers]


def columns(x: Array, numbers: np.ndarray) -> Array:
    """Return x[..., numbers]; on accelerators, the derivative is a product, for reproducible results."""
    if on_accelerator():
        return jnp.moveaxis(_taken(tuple(numbers.tolist()), jnp.moveaxis(x, -1, 0)), 0, -1)
    return x[..., numbers]


def _matrix(numbers: np.ndarray, count: int) -> np.ndarray:
    """Return the matrix (k, count) with a one in each row; rows of the index `count` are zero."""
    return np.eye(count + 1)[:, :-1][numbers]


def summed(pair: Pairs, a: Array, b: Array) -> Array:
    """Return the sums (n,) per body of the entries (k,) of both sides of all elements.

    Entries of the ground are dropped. This is the transpose of the selection.
    """
    side_a, side_b = pair.sides
    return jnp.zeros((pair.bodies + 1,), a.dtype).at[side_a].add(a).at[side_b].add(b)[:-1]


def ends(pair: Pairs, motion: Kinematics) -> Sides:
    """Return the frames of both sides of every element, stacked (k,); the ground is at the origin."""
    return _sides(type(motion.frame), frame_entries(np.concatenate(pair.sides), motion.frame))


def frames_of(numbers: np.ndarray, frames: Any) -> Any:
    """Return the frames with these indices, a stacked `Frame` (k,); the index after the last is the ground.

    All entries are gathered together. Otherwise, XLA would recompute them in every consumer, recursively.
    """
    return type(frames)(*jnp.unstack(frame_entries(numbers, frames)))


def frame_entries(numbers: np.ndarray, frames: Any) -> Array:
    """Return the entries of the frames with these indices (entries, k)."""
    ground = jnp.asarray(frames.GROUND, frames[0].dtype)[:, None]
    if np.all(numbers == frames[0].shape[0]):
        return jnp.broadcast_to(ground, (ground.shape[0], len(numbers)))
    return columns(jnp.concatenate([jnp.stack(frames), ground], axis=1), numbers)


def _sides(kind: type, entries: Array) -> Sides:
    """Return both sides of all elements from their entries (entries, 2 k), side a first.

    Use a split, not slices: reverse mode would pad the derivative of each slice with zeros to full size and
    add the results.
    """
    a, b = (kind(*jnp.unstack(side)) for side in jnp.split(entries, 2, axis=1))
    return a, b


def both(pair: Pairs, twist: Any) -> tuple[Any, Any]:
    """Return the twists of both sides of every element, stacked (k,); the ground is at rest."""
    return _sides(
        type(twist), columns(jnp.pad(jnp.stack(twist), ((0, 0), (0, 1))), np.concatenate(pair.sides))
    )


def _along(pair: Pairs, motion: Kinematics, at: Sides) -> Sides:
    """Return the derivatives of the frames along the motion."""
    a, b = (frame.along(twist) for frame, twist in zip(at, both(pair, motion.velocity), strict=True))
    return a, b


def _bending(pair: Pairs, motion: Kinematics, at: Sides) -> Sides:
    """Return the second derivatives of the frames along the motion, without coordinate accelerations."""
    changes = (None, None) if motion.bias is None else both(pair, motion.bias)
    twists = both(pair, motion.velocity)
    a, b = (frame.bending(twist, change) for frame, twist, change in zip(at, twists, changes, strict=True))
    return a, b


# Compiled separately: a step calls them many times, and JAX traces and differentiates each of them once.
_unit = functools.partial(jax.jit, static_argnums=(0, 2))


@_unit
def values(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Return measure(element, frame_a, frame_b, t), a tuple of rows, of every element, stacked (k, rows)."""
    return _stacked(_each(measure, group, ends(pair, motion), t))


@_unit
def rates(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Return the derivatives along the motion, including explicit time dependence (k, rows)."""
    at = ends(pair, motion)
    tangents = _along(pair, motion, at), jnp.ones_like(t)
    return _stacked(jax.jvp(lambda x, s: _each(measure, group, x, s), (at, t), tangents)[1])


@_unit
def biases(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Return the second derivatives along the motion, without coordinate accelerations (k, rows)."""
    at = ends(pair, motion)
    moving = _along(pair, motion, at)
    one = jnp.ones_like(t)

    def rate(x: Any, dx: Any, s: Any) -> Any:
        return jax.jvp(lambda x, s: _each(measure, group, x, s), (x, s), (dx, one))[1]

    return _stacked(jax.jvp(rate, (at, moving, t), (moving, _bending(pair, motion, at), one))[1])


Blocks = tuple[Array, Array]
"""Derivatives of the rows of a group by the twists of bodies a and b, each (directions, rows, k)."""


@_unit
def blocks(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Blocks:
    """Return the derivatives of a measure by the twists of both bodies.

    The derivative of a row is the wrench that a unit multiplier exerts on each body. It follows from the
    gradient of the row by the entries of the frames.
    """
    at = ends(pair, motion)
    return _wrenches(
        lambda sides: _each(measure, group, sides, t),
        at,
        lambda gradients: [frame.wrench_of(by) for frame, by in zip(at, gradients, strict=True)],
    )


def _wrenches(rows_of: Callable[[Any], Any], at: Any, wrenches_of: Callable[[Any], Any]) -> Blocks:
    """Return the wrenches of unit multipliers, from the gradients of rows (k,) at stacked sides.

    The elements of a group are independent, so the gradient of a sum over them contains the gradient of each.
    """
    rows, pull = jax.vjp(rows_of, at)

    def of_unit(unit: Array) -> list[Array]:
        multipliers = tuple(jnp.full_like(x, entry) for x, entry in zip(rows, unit, strict=True))
        return [jnp.stack(wrench) for wrench in wrenches_of(*pull(multipliers))]

    on_a, on_b = jax.vmap(of_unit, out_axes=1)(jnp.eye(len(rows)))
    return on_a, on_b


@functools.partial(jax.jit, static_argnums=1)
def dense_rows(block: Blocks, pair: Pairs) -> Array:
    """Return Jacobian rows (k rows, bodies width) from their blocks, without columns of the ground."""
    width, rows, k = block[0].shape
    on_a, on_b = (
        jnp.asarray(_matrix(numbers, pair.bodies), side.dtype)[:, None, :, None]
        * side.transpose(2, 1, 0)[:, :, None]
        for side, numbers in zip(block, pair.sides, strict=True)
    )
    return (on_a + on_b).reshape(k * rows, pair.bodies * width)


# Velocity measures: measure(element, frame_a, frame_b, twist_a, twist_b, t), affine in the twists.


@_unit
def velocity_values(
    measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any
) -> Array:
    """Return a velocity measure of every element, stacked (k, rows)."""
    return _stacked(_each_moving(measure, group, ends(pair, motion), both(pair, motion.velocity), t))


@_unit
def velocity_biases(
    measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any
) -> Array:
    """Return the derivatives of a velocity measure along the motion, without accelerations (k, rows)."""
    at, twists = ends(pair, motion), both(pair, motion.velocity)
    moving, one = _along(pair, motion, at), jnp.ones_like(t)
    if motion.bias is None:
        return _stacked(
            jax.jvp(lambda x, s: _each_moving(measure, group, x, twists, s), (at, t), (moving, one))[1]
        )
    along = moving, both(pair, motion.bias), one
    return _stacked(
        jax.jvp(lambda x, dx, s: _each_moving(measure, group, x, dx, s), (at, twists, t), along)[1]
    )


@_unit
def velocity_blocks(
    measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any
) -> Blocks:
    """Return the derivatives of a velocity measure with respect to the twists of both bodies."""
    at = ends(pair, motion)
    return _wrenches(
        lambda twists: _each_moving(measure, group, at, twists, t),
        both(pair, motion.velocity),
        lambda gradients: gradients,
    )


# Compiled separately: the measure is traced once, and all derivatives (a dozen for J alone) reuse the trace.
@functools.partial(jax.jit, static_argnums=0)
def _each_moving(
    measure: Callable[..., Any], group: Any, sides: Sides, twists: tuple[Any, Any], t: Any
) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b, va, vb: measure(element, a, b, va, vb, t))(group, *sides, *twists)


@functools.partial(jax.jit, static_argnums=0)
def _each(measure: Callable[..., Any], group: Any, sides: Sides, t: Any) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b: measure(element, a, b, t))(group, *sides)


def _stacked(rows: tuple[Any, ...]) -> Array:
    return jnp.stack(rows, axis=-1)


class Derivatives(NamedTuple):
    """Differentiation rules for the rows of a joint type: functions of (measure, group, pair, motion, t)."""

    values: Callable[..., Array]
    rates: Callable[..., Array]
    biases: Callable[..., Array]
    blocks: Callable[..., Blocks]
    velocity_values: Callable[..., Array]
    velocity_biases: Callable[..., Array]
    velocity_blocks: Callable[..., Blocks]


AUTODIFF = Derivatives(values, rates, biases, blocks, velocity_values, velocity_biases, velocity_blocks)
"""Rules that differentiate the measure by autodiff only."""
