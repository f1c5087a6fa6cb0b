"""Closed-form derivatives of the rows of spatial joints, for all joints of a type in one computation.

The rows of hinges, sliders, balls and similar joints consist of three things: the gap between a point of a
and a point of b in the world, the components of the gap along axes of a, and products of axes of a and axes
of b. With R s a vector that is fixed in a body with angular velocity omega,

    (R s)' = R (omega x s) = sum over j of omega_j (R[:, j + 2] s[j + 1] - R[:, j + 1] s[j + 2]),

with indices modulo 3. J needs nothing else. Autodiff computes these entries scalar by scalar, with one
gradient per row. The array form pays in batches by XLA: without it, a step of 64 worlds in absolute
coordinates takes 1.2 times as long for a tree of 30 bodies, and 2.1 times for a chain of 64. The time of one
world and the compile time are the same. The resulting arrays have the axis order in which solvers read them.
With the joint axis last in the result, a step takes 1.09 times as long. Values, rates and biases gain nothing
from the array form: their compile time is unchanged, and a step takes 1.02 to 1.06 times as long.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.mechanisms.describe.measures import AUTODIFF, Kinematics, Pairs, frame_entries


class Product(NamedTuple):
    """A factor times the inner product of a joint axis in a and a joint axis in b, both given by index."""

    factor: float
    a: int
    b: int


class PairRows(NamedTuple):
    """The structure of a joint's rows, in order.

    Attributes:
        gap: whether the first three rows are the gap between `point_a` and `point_b`, in the world.
        slides: axes of a; if given, the first rows are the components of the gap along them.
        products: the remaining rows, each a sum of products. Every row has the same number of products.
    """

    gap: bool = False
    slides: tuple[int, ...] = ()
    products: tuple[tuple[Product, ...], ...] = ()


TILT = ((Product(-1.0, 1, 2),), (Product(1.0, 0, 2),))
"""The rows of `spatial_parts.tilt`."""
ROTATION = (
    (Product(0.5, 2, 1), Product(-0.5, 1, 2)),
    (Product(0.5, 0, 2), Product(-0.5, 2, 0)),
    (Product(0.5, 1, 0), Product(-0.5, 0, 1)),
)
"""The rows of `spatial_parts.rotation`."""


KNOWN: dict[Callable[..., Any], PairRows] = {}
"""Residuals with known row structure.

A subclass that overrides such a residual has a different function, which autodiff differentiates.
"""


def of_pairs(rows: PairRows) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that declares the row structure of a `residual`."""

    def said(residual: Callable[..., Any]) -> Callable[..., Any]:
        KNOWN[residual] = rows
        return residual

    return said


def _sides_of(measure: Any, group: Any, pair: Pairs, motion: Kinematics, t: Any) -> tuple[Array, Array]:
    """Return the result of `Derivatives.sides`, in closed form if the row structure is known."""
    rows = KNOWN.get(measure)
    return (
        AUTODIFF.sides(measure, group, pair, motion, t)
        if rows is None
        else _sides(rows, group, pair, motion.frame)
    )


PAIRS = AUTODIFF._replace(sides=_sides_of)
"""Autodiff of measures, with closed-form sides for known row structures."""


class _Body(NamedTuple):
    """The bodies on one side of all joints.

    Each has its position (3, k) and rotation R (3, 3, k), and in its frame the point (3, k) and the axes (3,
    3, k) or None.
    """

    place: Array
    turn: Array
    point: Array
    axes: Any


def _bodies(group: Any, pair: Pairs, frames: Any) -> list[_Body]:
    """Return both sides of all joints of a group; `axes` is None for joints without axes."""
    entries = jnp.split(frame_entries(np.concatenate(pair.sides), frames), 2, axis=1)
    axes = [group.axes_a, group.axes_b] if hasattr(group, "axes_a") else [None, None]
    return [
        _Body(at[:3], at[3:].reshape(3, 3, -1), point.T, None if own is None else own.transpose(1, 2, 0))
        for at, point, own in zip(entries, (group.point_a, group.point_b), axes, strict=True)
    ]


def _dot(x: Array, y: Array) -> Array:
    """Return inner products over the first axis, summed in the same order as for single vectors."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def _next(x: Array, axis: int) -> tuple[Array, Array]:
    """Return x[j + 1] and x[j + 2] for j = 0, 1, 2 along an axis of length 3, indices modulo 3."""
    five = jnp.concatenate([x, jax.lax.slice_in_dim(x, 0, 2, axis=axis)], axis=axis)
    return jax.lax.slice_in_dim(five, 1, 4, axis=axis), jax.lax.slice_in_dim(five, 2, 5, axis=axis)


def _turned(turn: Array, vector: Array) -> Array:
    """Return R s (3, ..., k) for vectors s (3, ..., k)."""
    first, second, third = (turn[:, j].reshape(3, *(1,) * (vector.ndim - 2), -1) for j in range(3))
    return first * vector[0] + second * vector[1] + third * vector[2]


def _turning(turn: Array, vector: Array) -> Array:
    """Return the derivatives of R s by the body-frame angular velocity.

    Returns:
        Array (3, 3, ..., k): world component, angular velocity component, ..., joint.
    """
    one, two = (columns.reshape(3, 3, *(1,) * (vector.ndim - 2), -1) for columns in _next(turn, 1))
    s_one, s_two = _next(vector, 0)
    return two * s_one - one * s_two


@functools.partial(jax.jit, static_argnums=(0, 2))  # JAX traces it once per step, not three times.
def _sides(rows: PairRows, group: Any, pair: Pairs, frames: Any) -> tuple[Array, Array]:
    """Return the entries of all rows in the twists of both bodies, 2 x (k rows, 6)."""
    a, b = _bodies(group, pair, frames)
    parts = ([*_gap_rows(rows, a, b)] if rows.gap or rows.slides else []) + (
        [_product_rows(rows, a, b)] if rows.products else []
    )
    first, second = (_joined([part[side] for part in parts]) for side in range(2))
    return first, second


_Part = tuple[tuple[Array, Array], tuple[Array, Array]]
"""For each side, the derivatives (rows, 3, k) by the velocity and by the angular velocity."""


def _gap_rows(rows: PairRows, a: _Body, b: _Body) -> list[_Part]:
    """Return the derivatives of the gap p_b + R_b s_b - p_a - R_a s_a, or of its components in a."""
    moving_a, moving_b = -_turning(a.turn, a.point), _turning(b.turn, b.point)
    if rows.gap:
        eye = jnp.broadcast_to(jnp.eye(3, dtype=a.place.dtype)[:, :, None], moving_a.shape)
        return [((-eye, moving_a), (eye, moving_b))]
    gap = b.place + _turned(b.turn, b.point) - (a.place + _turned(a.turn, a.point))
    own = a.axes[:, np.asarray(rows.slides)]
    axes = _turned(a.turn, own)
    along = axes.swapaxes(0, 1)
    by_a = _dot(moving_a[:, :, None], axes[:, None]) + _dot(gap[:, None, None], _turning(a.turn, own))
    by_b = _dot(moving_b[:, :, None], axes[:, None])
    return [((-along, by_a.swapaxes(0, 1)), (along, by_b.swapaxes(0, 1)))]


def _product_rows(rows: PairRows, a: _Body, b: _Body) -> _Part:
    """Return the derivatives of the sums of axis products."""
    by_a, by_b = [], []
    for some in zip(*rows.products, strict=True):
        factors = jnp.asarray([product.factor for product in some], a.place.dtype)[:, None]
        own_a, own_b = (
            a.axes[:, np.asarray([product.a for product in some])],
            b.axes[:, np.asarray([product.b for product in some])],
        )
        by_a.append(factors * _dot(_turning(a.turn, own_a), _turned(b.turn, own_b)[:, None]))
        by_b.append(factors * _dot(_turned(a.turn, own_a)[:, None], _turning(b.turn, own_b)))
    still = jnp.zeros((len(rows.products), 3, a.place.shape[1]), a.place.dtype)
    on_a, on_b = ((still, functools.reduce(operator.add, by).swapaxes(0, 1)) for by in (by_a, by_b))
    return on_a, on_b


def _joined(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Return the entries (k rows, 6) of one side.

    Each part is transposed before concatenation, so that the result has this axis order in memory.
    """
    ordered = [[part.transpose(2, 0, 1) for part in each] for each in parts]
    return jnp.concatenate([jnp.concatenate(each, axis=2) for each in ordered], axis=1).reshape(-1, 6)
