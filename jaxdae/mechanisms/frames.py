"""Planar body frames, and derivatives of whatever is measured between two of them.

A body has the pose (x, y, theta): its mass center and its rotation. A joint or a force looks at two bodies only, through a function
of their frames. Everything that mechanics asks of such a function is a derivative of it, and autodiff supplies them:

    rows of J      its derivatives in the six pose directions of the two bodies,
    rate           its derivative along the motion,
    bias           its second derivative along the motion at constant velocities.

The frames carry cos(theta) and sin(theta), computed once a body. Along the motion they change by (-omega sin, omega cos), and at second
order by -omega^2 (cos, sin): with these tangents the functions need no trigonometry of their own, which is what makes them cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@jax.custom_jvp
def _cos_sin(angle: Array) -> tuple[Array, Array]:
    return jnp.cos(angle), jnp.sin(angle)


@_cos_sin.defjvp
def _cos_sin_jvp(primals: Any, tangents: Any) -> Any:
    # The derivative reuses the values; the built-in rules would evaluate both functions again.
    cos, sin = _cos_sin(*primals)
    return (cos, sin), (-sin * tangents[0], cos * tangents[0])


class Frame(NamedTuple):
    """The frame of a body: mass center (2,) in m, angle in rad with its cosine and sine. Or of many, with stacked fields."""

    place: Any
    angle: Any
    cos: Any
    sin: Any

    def point(self, place: Any) -> Any:
        """Returns the world coordinates (2,) of a point given in the body's frame (2,)."""
        return self.place + self.direction(place)

    def direction(self, vector: Any) -> Any:
        """Returns the world components (2,) of a vector given in the body's frame (2,)."""
        return self.cos * vector + self.sin * quarter_turn(vector)


def quarter_turn(vector: Any) -> Any:
    """Returns the vector (2,) turned by +90 degrees."""
    return vector[::-1] * np.asarray([-1, 1], vector.dtype)


class Pairs(NamedTuple):
    """Which two bodies each element of a group connects, as selection matrices (k, n); the ground's rows are zero."""

    a: np.ndarray
    b: np.ndarray


def pairs(a: tuple[int, ...], b: tuple[int, ...], bodies: int) -> Pairs:
    """Returns selection matrices for static index tuples, in which the ground has the index `bodies`."""
    eye = np.eye(bodies + 1)[:, :-1]
    return Pairs(eye[list(a)], eye[list(b)])


class Kinematics(NamedTuple):
    """Frames of all bodies, with their first and second derivatives along the motion; each (n, 5): x, y, angle, cosine, sine."""

    value: Array
    rate: Array
    bias: Array


def kinematics(q: Array, v: Array) -> Kinematics:
    """Returns the frames at coordinates q (3 n,) moving with velocities v (3 n,)."""
    pose, twist = q.reshape(-1, 3), v.reshape(-1, 3)
    omega = twist[:, 2]
    cos, sin = _cos_sin(pose[:, 2])
    turning = jnp.stack([-omega * sin, omega * cos], axis=1)
    bending = jnp.stack([-(omega**2) * cos, -(omega**2) * sin], axis=1)
    return Kinematics(
        value=jnp.concatenate([pose, jnp.stack([cos, sin], axis=1)], axis=1),
        rate=jnp.concatenate([twist, turning], axis=1),
        bias=jnp.concatenate([jnp.zeros_like(twist), bending], axis=1),
    )


def ends(pair: Pairs, frames: Array, ground_cos: float = 1.0) -> tuple[Frame, Frame]:
    """Returns the frames of both sides of every element, stacked (k,); the ground is at the origin with cosine `ground_cos`.

    A product with a 0/1 matrix instead of an index: the compiler then neither gathers element by element nor recomputes the
    trigonometry in every consumer.
    """
    selection = np.concatenate([pair.a, pair.b])
    chosen = jnp.asarray(selection, frames.dtype) @ frames
    is_ground = np.where(selection.sum(axis=1) == 0.0, ground_cos, 0.0)
    cos = chosen[:, 3] + jnp.asarray(is_ground, frames.dtype) if np.any(is_ground) else chosen[:, 3]
    count = pair.a.shape[0]
    a, b = (Frame(chosen[side, :2], chosen[side, 2], cos[side], chosen[side, 4]) for side in (slice(0, count), slice(count, None)))
    return a, b


def values(measure: Callable[..., Any], group: Any, pair: Pairs, frames: Kinematics, t: Any) -> Array:
    """Returns measure(element, frame_a, frame_b, t) (rows,) of every element, stacked (k, rows)."""
    return _each(measure, group, ends(pair, frames.value), t)


def rates(measure: Callable[..., Any], group: Any, pair: Pairs, frames: Kinematics, t: Any) -> Array:
    """Returns the derivatives along the motion, explicit time included, (k, rows)."""
    at, motion = ends(pair, frames.value), ends(pair, frames.rate, 0.0)
    return jax.jvp(lambda x, s: _each(measure, group, x, s), (at, t), (motion, jnp.ones_like(t)))[1]


def biases(measure: Callable[..., Any], group: Any, pair: Pairs, frames: Kinematics, t: Any) -> Array:
    """Returns the second derivatives along the motion at constant velocities, (k, rows)."""
    at, motion = ends(pair, frames.value), ends(pair, frames.rate, 0.0)
    bend = ends(pair, frames.bias, 0.0)
    one = jnp.ones_like(t)

    def rate(x: Any, dx: Any, s: Any) -> Array:
        return jax.jvp(lambda x, s: _each(measure, group, x, s), (x, s), (dx, one))[1]

    return jax.jvp(rate, (at, motion, t), (motion, bend, one))[1]


def blocks(measure: Callable[..., Any], group: Any, pair: Pairs, frames: Kinematics, t: Any) -> Array:
    """Returns the derivatives in the six pose directions (x, y, theta of a, then of b), (k, rows, 6)."""
    at = ends(pair, frames.value)
    _, push = jax.linearize(lambda x: _each(measure, group, x, t), at)
    return jax.vmap(push, out_axes=-1)((_directions(at[0], first=0), _directions(at[1], first=3)))


def _directions(frame: Frame, first: int) -> Frame:
    """Returns the tangents of one side for the six pose directions, stacked (6, k); its own three begin at `first`."""
    own = np.zeros((3, 6, 1))
    own[np.arange(3), first + np.arange(3)] = 1.0
    dtype, count = frame.cos.dtype, frame.cos.shape[0]
    shift = jnp.asarray(np.broadcast_to(np.stack([own[0], own[1]], axis=-1), (6, count, 2)), dtype)
    turn = jnp.asarray(np.broadcast_to(own[2], (6, count)), dtype)
    return Frame(shift, turn, -frame.sin * turn, frame.cos * turn)


def dense_rows(block: Array, pair: Pairs) -> Array:
    """Returns rows (k rows, 3 n) of a Jacobian from blocks (k, rows, 6); the columns of the ground fall away."""
    side_a = jnp.asarray(pair.a[:, None, :, None], block.dtype) * block[:, :, None, :3]
    side_b = jnp.asarray(pair.b[:, None, :, None], block.dtype) * block[:, :, None, 3:]
    return (side_a + side_b).reshape(block.shape[0] * block.shape[1], -1)


def _each(measure: Callable[..., Any], group: Any, sides: tuple[Frame, Frame], t: Any) -> Array:
    return jax.vmap(lambda element, a, b: measure(element, a, b, t))(group, *sides)
