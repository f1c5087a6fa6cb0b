"""Derivatives of whatever is measured between two body frames, in the plane and in space.

A joint or a force looks at two bodies only, through a function of their frames. Everything that mechanics asks of such a function is a
derivative of it, and autodiff supplies them:

    rows of J      its derivatives in the directions of the twists of the two bodies, 3 or 6 each,
    rate           its derivative along the motion,
    bias           its second derivative along the motion, for accelerations of the bodies that do not depend on those of the coordinates.

The tangents of frames along a motion are closed forms of `jaxdae.geometry.planar` and `spatial`, so that measures need no trigonometry of
their own, which is what makes them cheap. Everything is scalars: a frame is a tuple of them, and a measure returns a tuple of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Pairs(NamedTuple):
    """Which two bodies each element of a group connects, as numbers (k,); the ground has the number `bodies`."""

    a: np.ndarray
    b: np.ndarray
    bodies: int


def pairs(a: tuple[int, ...], b: tuple[int, ...], bodies: int) -> Pairs:
    """Returns which bodies the elements of a group connect."""
    return Pairs(np.asarray(a, int), np.asarray(b, int), bodies)


class Kinematics(NamedTuple):
    """How all bodies are and move: stacked frames, twists, and the part of the rates of the twists that no acceleration makes.

    Every entry of frames and twists is an array (n,). The last is T' v of twists T v, None where it is zero.
    """

    frame: Any
    velocity: Any
    bias: Any = None


Sides = tuple[Any, Any]


_SUMMED_UP_TO = 4
"""The number of bodies up to which entries are selected by sums; measured on CPU: a product costs some 10 us for 1024 worlds, a sum next to
nothing, because the compiler fuses it into its consumers."""

_MULTIPLIED_UP_TO = 8
"""The number of entries up to which they are selected by products; beyond, the zeros of the matrices cost more than indices do. Measured on
CPU with 1024 worlds: the forces of a chain of 5 take 1.1 us a world by products and 0.5 by indices, gradients 0.30 and 0.37; with 8 links
they are even but for the forces, with 20 indices take half the time."""


def _select(pair: Pairs, entry: Array, *, fuse: bool = True) -> tuple[Array, Array]:
    """Returns the entry (n,) of the bodies on both sides of every element, 2 x (k,); zero for the ground.

    For few bodies products with 0/1 matrices instead of indices: the compiler would gather element by element. For many the products
    would be nearly all zeros, and quadratic in the number of bodies.

    Args:
        pair: the bodies of the elements.
        entry: what to select.
        fuse: whether the consumers may recompute the entry; not where it is expensive.
    """
    if fuse and entry.shape[0] <= _SUMMED_UP_TO:
        sides = (_matrix(side, entry.shape[0]) for side in pair[:2])
        a, b = (sum(jnp.asarray(side[:, n], entry.dtype) * entry[n] for n in range(entry.shape[0])) for side in sides)
        return jnp.asarray(a), jnp.asarray(b)
    chosen = selected(np.concatenate(pair[:2]), entry)
    count = pair.a.shape[0]
    return chosen[:count], chosen[count:]


def selected(numbers: np.ndarray, entry: Array) -> Array:
    """Returns the entries (k,) with these numbers; zero for the number n, one beyond the last."""
    if entry.shape[0] <= _MULTIPLIED_UP_TO:
        return jnp.asarray(_matrix(numbers, entry.shape[0]), entry.dtype) @ entry
    return jnp.concatenate([entry, jnp.zeros((1,), entry.dtype)])[numbers]


def _matrix(numbers: np.ndarray, count: int) -> np.ndarray:
    """Returns the matrix (k, count) with a one in each row, none for the number `count`."""
    return np.eye(count + 1)[:, :-1][numbers]


def summed(pair: Pairs, a: Array, b: Array) -> Array:
    """Returns the sums (n,) over all elements of entries of their bodies, (k,) of each side; those of the ground fall away.

    The transpose of the selection: products with 0/1 matrices for few bodies, additions to indexed entries for many.
    """
    if pair.bodies <= _MULTIPLIED_UP_TO:
        side_a, side_b = (jnp.asarray(_matrix(side, pair.bodies).T, a.dtype) for side in pair[:2])
        return side_a @ a + side_b @ b
    return jnp.zeros((pair.bodies + 1,), a.dtype).at[pair.a].add(a).at[pair.b].add(b)[:-1]


def ends(pair: Pairs, motion: Kinematics) -> Sides:
    """Returns the frames of both sides of every element, stacked (k,); the ground is at the origin."""
    kind = type(motion.frame)
    named = zip(kind._fields, motion.frame, kind.GROUND, strict=True)
    entries = [(_select(pair, entry, fuse=name not in kind.COSTLY), still) for name, entry, still in named]
    a, b = (kind(*(_on_ground(entry[k], side == pair.bodies, still) for entry, still in entries)) for k, side in enumerate(pair[:2]))
    return a, b


def frames_of(numbers: np.ndarray, frames: Any) -> Any:
    """Returns the frames with these numbers, a stacked `Frame` (k,); that of the ground for the number one beyond the last.

    All entries at once: the compiler would otherwise compute them anew for every consumer, and for those of these again.
    """
    ground = jnp.asarray(frames.GROUND, frames[0].dtype)[:, None]
    return type(frames)(*jnp.concatenate([jnp.stack(frames), ground], axis=1)[:, numbers])


def _on_ground(entry: Array, is_ground: np.ndarray, value: float) -> Array:
    """Returns the entry, which is zero where there is ground, with the value of the ground there."""
    return entry + jnp.asarray(np.where(is_ground, value, 0.0), entry.dtype) if value and np.any(is_ground) else entry


def _both(pair: Pairs, twist: Any) -> tuple[Any, Any]:
    """Returns the twists of both sides of every element, stacked (k,); the ground is at rest."""
    entries = [_select(pair, entry) for entry in twist]
    a, b = (type(twist)(*(entry[k] for entry in entries)) for k in range(2))
    return a, b


def _along(pair: Pairs, motion: Kinematics, at: Sides) -> Sides:
    """Returns the derivatives of the frames along the motion."""
    a, b = (frame.along(twist) for frame, twist in zip(at, _both(pair, motion.velocity), strict=True))
    return a, b


def _bending(pair: Pairs, motion: Kinematics, at: Sides) -> Sides:
    """Returns the second derivatives of the frames along the motion, without what accelerations of the coordinates make."""
    changes = (None, None) if motion.bias is None else _both(pair, motion.bias)
    twists = _both(pair, motion.velocity)
    a, b = (frame.bending(twist, change) for frame, twist, change in zip(at, twists, changes, strict=True))
    return a, b


def values(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns measure(element, frame_a, frame_b, t), a tuple of rows, of every element, stacked (k, rows)."""
    return _stacked(_each(measure, group, ends(pair, motion), t))


def rates(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the derivatives along the motion, explicit time included, (k, rows)."""
    at = ends(pair, motion)
    tangents = _along(pair, motion, at), jnp.ones_like(t)
    return _stacked(jax.jvp(lambda x, s: _each(measure, group, x, s), (at, t), tangents)[1])


def biases(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the second derivatives along the motion, without what accelerations of the coordinates make, (k, rows)."""
    at = ends(pair, motion)
    moving = _along(pair, motion, at)
    one = jnp.ones_like(t)

    def rate(x: Any, dx: Any, s: Any) -> Any:
        return jax.jvp(lambda x, s: _each(measure, group, x, s), (x, s), (dx, one))[1]

    return _stacked(jax.jvp(rate, (at, moving, t), (moving, _bending(pair, motion, at), one))[1])


Blocks = list[list[tuple[Any, ...]]]
"""Derivatives of the rows of a group in the directions of the twists: blocks[side][direction][row] (k,), with sides a and b."""


def blocks(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Blocks:
    """Returns the derivatives of a measure in the directions of the twists of both bodies."""
    at = ends(pair, motion)

    def along(side: int, changes: dict[str, Any]) -> tuple[Any, ...]:
        def moved(entries: dict[str, Any]) -> Any:
            frame = at[side]._replace(**entries)
            return _each(measure, group, (frame, at[1]) if side == 0 else (at[0], frame), t)

        return jax.jvp(moved, ({name: getattr(at[side], name) for name in changes},), (changes,))[1]

    return [[along(side, changes) for changes in frame.directions()] for side, frame in enumerate(at)]


def dense_rows(block: Blocks, pair: Pairs) -> Array:
    """Returns rows (k rows, bodies width) of a Jacobian from its blocks; the columns of the ground fall away."""
    first = block[0][0]
    side_a, side_b = (jnp.asarray(_matrix(side, pair.bodies), first[0].dtype) for side in pair[:2])
    entries = [
        [side_a * on_a[r][:, None] + side_b * on_b[r][:, None] for on_a, on_b in zip(*block, strict=True)] for r in range(len(first))
    ]
    dense = jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=1)
    return dense.reshape(pair.a.shape[0] * len(entries), -1)


def pair_rows(block: Blocks) -> tuple[Array, Array]:
    """Returns the entries of rows in the twists of both of their bodies, 2 x (k rows, width), from the blocks of a group."""
    first, second = (jnp.stack([jnp.stack(direction, axis=-1) for direction in side], axis=-1).reshape(-1, len(side)) for side in block)
    return first, second


# Measures of velocities: measure(element, frame_a, frame_b, twist_a, twist_b, t), affine in the twists.


def velocity_values(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns a measure of velocities of every element, stacked (k, rows)."""
    return _stacked(_each_moving(measure, group, ends(pair, motion), _both(pair, motion.velocity), t))


def velocity_biases(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the derivatives of a measure of velocities along the motion, without what accelerations make, (k, rows)."""
    at, twists = ends(pair, motion), _both(pair, motion.velocity)
    moving, one = _along(pair, motion, at), jnp.ones_like(t)
    if motion.bias is None:
        return _stacked(jax.jvp(lambda x, s: _each_moving(measure, group, x, twists, s), (at, t), (moving, one))[1])
    along = moving, _both(pair, motion.bias), one
    return _stacked(jax.jvp(lambda x, dx, s: _each_moving(measure, group, x, dx, s), (at, twists, t), along)[1])


def velocity_blocks(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Blocks:
    """Returns the derivatives of a measure of velocities in the twists of both bodies."""
    at, twists = ends(pair, motion), _both(pair, motion.velocity)
    one, zero = jnp.ones_like(at[0].x), jnp.zeros_like(at[0].x)
    kind = type(motion.velocity)
    still = kind(*(zero for _ in kind._fields))

    def along(side: int, name: str) -> tuple[Any, ...]:
        moved = still._replace(**{name: one})
        directions = (moved, still) if side == 0 else (still, moved)
        return jax.jvp(lambda x: _each_moving(measure, group, at, x, t), (twists,), (directions,))[1]

    return [[along(side, name) for name in kind._fields] for side in range(2)]


# Compiled as units: a measure is written in Python once, and all of its derivatives, a dozen for J alone, are taken of what was written.
@functools.partial(jax.jit, static_argnums=0)
def _each_moving(measure: Callable[..., Any], group: Any, sides: Sides, twists: tuple[Any, Any], t: Any) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b, va, vb: measure(element, a, b, va, vb, t))(group, *sides, *twists)


@functools.partial(jax.jit, static_argnums=0)
def _each(measure: Callable[..., Any], group: Any, sides: Sides, t: Any) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b: measure(element, a, b, t))(group, *sides)


def _stacked(rows: tuple[Any, ...]) -> Array:
    return jnp.stack(rows, axis=-1)
