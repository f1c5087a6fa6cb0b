"""Planar body frames, and derivatives of whatever is measured between two of them.

A body has the pose (x, y, theta): its mass center and its rotation. A joint or a force looks at two bodies only, through a function
of their frames. Everything that mechanics asks of such a function is a derivative of it, and autodiff supplies them:

    rows of J      its derivatives in the six pose directions of the two bodies,
    rate           its derivative along the motion,
    bias           its second derivative along the motion at constant velocities.

The frames carry cos(theta) and sin(theta), computed once a body. Along the motion they change by (-omega sin, omega cos), and at second
order by -omega^2 (cos, sin): with these tangents the functions need no trigonometry of their own, which is what makes them cheap.

Everything is scalars: a frame is (x, y, angle, cos, sin), a vector (x, y), a measure a tuple of rows. Stacked over elements, and over
worlds in a batch, each of them is an array of its own with the worlds along its contiguous axis, which is what the compiler can vectorize.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.typing import Leaf


@pytree
class Vector:
    """A vector in the plane, as two scalars."""

    x: Leaf
    y: Leaf

    def __add__(self, other: Vector) -> Vector:
        """Returns the sum."""
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: Vector) -> Vector:
        """Returns the difference."""
        return Vector(self.x - other.x, self.y - other.y)

    def dot(self, other: Vector) -> Any:
        """Returns the inner product."""
        return self.x * other.x + self.y * other.y

    def quarter_turn(self) -> Vector:
        """Returns the vector turned by +90 degrees."""
        return Vector(-self.y, self.x)


class Frame(NamedTuple):
    """The frame of a body: mass center (x, y) in m, angle in rad with its cosine and sine; scalars."""

    x: Any
    y: Any
    angle: Any
    cos: Any
    sin: Any

    def point(self, place: Any) -> Vector:
        """Returns the world coordinates of a point given in the body's frame (2,)."""
        return Vector(self.x, self.y) + self.direction(place)

    def direction(self, vector: Any) -> Vector:
        """Returns the world components of a vector given in the body's frame (2,)."""
        x, y = vector[0], vector[1]
        return Vector(self.cos * x - self.sin * y, self.sin * x + self.cos * y)

    def components_of(self, vector: Any) -> Array:
        """Returns a vector (2,) of the world in the body's frame (2,)."""
        x, y = vector[0], vector[1]
        return jnp.stack([self.cos * x + self.sin * y, -self.sin * x + self.cos * y])

    def place_of(self, place: Any) -> Array:
        """Returns a place (2,) of the world in the body's frame (2,)."""
        return self.components_of(place - jnp.stack([self.x, self.y]))


class Twist(NamedTuple):
    """How a frame moves: velocity (x, y) of its origin in m/s, rate of its angle in rad/s; scalars."""

    x: Any
    y: Any
    angle: Any

    def at(self, frame: Frame, place: Vector) -> Vector:
        """Returns the velocity in the world of the point of the body that is at a place of the world."""
        return Vector(self.x - self.angle * (place.y - frame.y), self.y + self.angle * (place.x - frame.x))


class Pairs(NamedTuple):
    """Which two bodies each element of a group connects, as selection matrices (k, n); the ground's rows are zero."""

    a: np.ndarray
    b: np.ndarray


def pairs(a: tuple[int, ...], b: tuple[int, ...], bodies: int) -> Pairs:
    """Returns selection matrices for static index tuples, in which the ground has the index `bodies`."""
    eye = np.eye(bodies + 1)[:, :-1]
    return Pairs(eye[list(a)], eye[list(b)])


class Kinematics(NamedTuple):
    """All bodies: places, angles with cosines and sines, and velocities; every entry (n,)."""

    frame: Frame
    velocity: tuple[Any, Any, Any]


def kinematics(q: Array, v: Array) -> Kinematics:
    """Returns the frames at coordinates q (3 n,) moving with velocities v (3 n,)."""
    x, y, angle = (q.reshape(-1, 3)[:, k] for k in range(3))
    twist = v.reshape(-1, 3)
    return Kinematics(Frame(x, y, angle, *cos_sin(angle)), (twist[:, 0], twist[:, 1], twist[:, 2]))


Sides = tuple[Frame, Frame]


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
        pair: the selection matrices.
        entry: what to select.
        fuse: whether the consumers may recompute the entry; not where it is expensive.
    """
    if fuse and entry.shape[0] <= _SUMMED_UP_TO:
        a, b = (sum(jnp.asarray(side[:, n], entry.dtype) * entry[n] for n in range(entry.shape[0])) for side in pair)
        return jnp.asarray(a), jnp.asarray(b)
    chosen = selected(np.concatenate([pair.a, pair.b]), entry)
    count = pair.a.shape[0]
    return chosen[:count], chosen[count:]


def selected(side: np.ndarray, entry: Array) -> Array:
    """Returns the entries (n,) that the rows of a 0/1 matrix (k, n) select, (k,); zero for rows of zeros."""
    if entry.shape[0] <= _MULTIPLIED_UP_TO:
        return jnp.asarray(side, entry.dtype) @ entry
    return jnp.concatenate([entry, jnp.zeros((1,), entry.dtype)])[_numbers(side)]


def _numbers(side: np.ndarray) -> np.ndarray:
    """Returns the number of the entry that each row selects (k,); rows of zeros, as of the ground, have one beyond the last."""
    return np.where(side.any(axis=1), side.argmax(axis=1), side.shape[1])


def summed(pair: Pairs, a: Array, b: Array) -> Array:
    """Returns the sums (n,) over all elements of entries of their bodies, (k,) of each side; those of the ground fall away.

    The transpose of the selection: products with 0/1 matrices for few bodies, additions to indexed entries for many.
    """
    bodies = pair.a.shape[1]
    if bodies <= _MULTIPLIED_UP_TO:
        side_a, side_b = (jnp.asarray(side.T, a.dtype) for side in pair)
        return side_a @ a + side_b @ b
    return jnp.zeros((bodies + 1,), a.dtype).at[_numbers(pair.a)].add(a).at[_numbers(pair.b)].add(b)[:-1]


def ends(pair: Pairs, motion: Kinematics) -> Sides:
    """Returns the frames of both sides of every element, stacked (k,); the ground is at the origin."""
    x, y, angle = (_select(pair, entry) for entry in motion.frame[:3])
    cos, sin = (_select(pair, entry, fuse=False) for entry in motion.frame[3:])
    grounded = [np.where(side.sum(axis=1) == 0.0, 1.0, 0.0) for side in pair]
    upright = [c + jnp.asarray(is_ground, c.dtype) if np.any(is_ground) else c for c, is_ground in zip(cos, grounded, strict=True)]
    a, b = (Frame(x[k], y[k], angle[k], upright[k], sin[k]) for k in range(2))
    return a, b


def _moving(pair: Pairs, motion: Kinematics, at: Sides) -> Sides:
    """Returns the derivatives of the frames along the motion."""
    velocity = [_select(pair, entry) for entry in motion.velocity]
    a, b = (
        Frame(dx, dy, omega, -omega * frame.sin, omega * frame.cos)
        for (dx, dy, omega), frame in zip(zip(*velocity, strict=True), at, strict=True)
    )
    return a, b


def _bending(at: Sides, moving: Sides) -> Sides:
    """Returns the second derivatives of the frames along the motion at constant velocities."""
    a, b = (
        Frame(
            jnp.zeros_like(frame.x),
            jnp.zeros_like(frame.y),
            jnp.zeros_like(frame.angle),
            -(rate.angle**2) * frame.cos,
            -(rate.angle**2) * frame.sin,
        )
        for frame, rate in zip(at, moving, strict=True)
    )
    return a, b


def values(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns measure(element, frame_a, frame_b, t), a tuple of rows, of every element, stacked (k, rows)."""
    return _stacked(_each(measure, group, ends(pair, motion), t))


def rates(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the derivatives along the motion, explicit time included, (k, rows)."""
    at = ends(pair, motion)
    moving = _moving(pair, motion, at)
    return _stacked(jax.jvp(lambda x, s: _each(measure, group, x, s), (at, t), (moving, jnp.ones_like(t)))[1])


def biases(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the second derivatives along the motion at constant velocities, (k, rows)."""
    at = ends(pair, motion)
    moving = _moving(pair, motion, at)
    one = jnp.ones_like(t)

    def rate(x: Any, dx: Any, s: Any) -> Any:
        return jax.jvp(lambda x, s: _each(measure, group, x, s), (x, s), (dx, one))[1]

    return _stacked(jax.jvp(rate, (at, moving, t), (moving, _bending(at, moving), one))[1])


def blocks(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> list[list[tuple[Any, ...]]]:
    """Returns the derivatives in the pose directions: blocks[side][direction][row] (k,), with sides a, b and directions x, y, theta."""
    at = ends(pair, motion)

    def along(side: int, fields: tuple[str, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
        def moved(*entries: Any) -> Any:
            frame = at[side]._replace(**dict(zip(fields, entries, strict=True)))
            return _each(measure, group, (frame, at[1]) if side == 0 else (at[0], frame), t)

        return jax.jvp(moved, tuple(getattr(at[side], name) for name in fields), tangents)[1]

    one = jnp.ones_like(at[0].x)
    return [
        [
            along(side, ("x",), (one,)),
            along(side, ("y",), (one,)),
            along(side, ("angle", "cos", "sin"), (one, -frame.sin, frame.cos)),
        ]
        for side, frame in enumerate(at)
    ]


def dense_rows(block: list[list[tuple[Any, ...]]], pair: Pairs) -> Array:
    """Returns rows (k rows, 3 n) of a Jacobian from its blocks; the columns of the ground fall away."""
    dtype = block[0][0][0].dtype
    side_a, side_b = (jnp.asarray(side, dtype) for side in pair)
    rows = range(len(block[0][0]))
    entries = [[side_a * block[0][c][r][:, None] + side_b * block[1][c][r][:, None] for c in range(3)] for r in rows]
    dense = jnp.stack([jnp.stack(row, axis=-1) for row in entries], axis=1)
    return dense.reshape(pair.a.shape[0] * len(entries), -1)


# Measures of velocities: measure(element, frame_a, frame_b, twist_a, twist_b, t), affine in the twists.


def _twists(pair: Pairs, motion: Kinematics) -> tuple[Twist, Twist]:
    """Returns the twists of both sides of every element, stacked (k,); the ground is at rest."""
    velocity = [_select(pair, entry) for entry in motion.velocity]
    a, b = (Twist(*entries) for entries in zip(*velocity, strict=True))
    return a, b


def velocity_values(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns a measure of velocities of every element, stacked (k, rows)."""
    return _stacked(_each_moving(measure, group, ends(pair, motion), _twists(pair, motion), t))


def velocity_biases(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns the derivatives of a measure of velocities along the motion at constant velocities, (k, rows)."""
    at, twists = ends(pair, motion), _twists(pair, motion)
    along = _moving(pair, motion, at), jnp.ones_like(t)
    return _stacked(jax.jvp(lambda x, s: _each_moving(measure, group, x, twists, s), (at, t), along)[1])


def velocity_blocks(measure: Callable[..., Any], group: Any, pair: Pairs, motion: Kinematics, t: Any) -> list[list[tuple[Any, ...]]]:
    """Returns the derivatives of a measure of velocities in the velocities, as `blocks` of those in the poses."""
    at, twists = ends(pair, motion), _twists(pair, motion)
    one, zero = jnp.ones_like(at[0].x), jnp.zeros_like(at[0].x)
    still = Twist(zero, zero, zero)

    def along(side: int, name: str) -> tuple[Any, ...]:
        moved = still._replace(**{name: one})
        directions = (moved, still) if side == 0 else (still, moved)
        return jax.jvp(lambda x: _each_moving(measure, group, at, x, t), (twists,), (directions,))[1]

    return [[along(side, name) for name in Twist._fields] for side in range(2)]


def _each_moving(measure: Callable[..., Any], group: Any, sides: Sides, twists: tuple[Twist, Twist], t: Any) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b, va, vb: measure(element, a, b, va, vb, t))(group, *sides, *twists)


def pair_rows(block: list[list[tuple[Any, ...]]]) -> tuple[Array, Array]:
    """Returns the entries of rows in the velocities of both of their bodies, 2 x (k rows, 3), from the blocks of a group."""
    first, second = (jnp.stack([jnp.stack(direction, axis=-1) for direction in side], axis=-1).reshape(-1, 3) for side in block)
    return first, second


def _each(measure: Callable[..., Any], group: Any, sides: Sides, t: Any) -> tuple[Any, ...]:
    return jax.vmap(lambda element, a, b: measure(element, a, b, t))(group, *sides)


def _stacked(rows: tuple[Any, ...]) -> Array:
    return jnp.stack(rows, axis=-1)
