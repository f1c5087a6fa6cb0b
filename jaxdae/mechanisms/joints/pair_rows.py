"""Rows of joints in space whose derivatives are closed forms, of all joints of a type at once.

The rows of hinges, sliders, balls and their like are made of three things: the gap between a point of a and a point of b in the world, its
components along axes of a, and products of axes of a and of b. With R s a vector that is fixed in a body with the angular velocity omega,

    (R s)' = R (omega x s) = sum over j of omega_j (R[:, j + 2] s[j + 1] - R[:, j + 1] s[j + 2]),

indices modulo 3, and J needs no more of them. Autodiff finds it number by number, for one direction of a twist after the other. In arrays,
with the joints along the last axis, it has a tenth of the operations. A step of many bodies in absolute coordinates is traced in 0.65 of
the time then, and traced and compiled in 0.75 to 0.88 of it as JAX comes, in 0.87 to 0.94 with `--xla_cpu_use_fusion_emitters=false` (trees
of 30 and 64, chains of 5 to 64, each of 64 worlds). It runs as fast, because arrays end in the order in which solvers read them; with
joints last in what is returned a step takes 1.09 of the time. Values, rates and biases gain nothing by arrays: they compile as long, and a
step takes 1.02 to 1.06 of the time.
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

from jaxdae.mechanisms.measures import AUTODIFF, Kinematics, Pairs, frame_entries


class Product(NamedTuple):
    """A factor times the inner product of an axis of the joint in a and one in b, by their numbers."""

    factor: float
    a: int
    b: int


class PairRows(NamedTuple):
    """What the rows of a joint are, in their order.

    Attributes:
        gap: whether the first three are the gap between `point_a` and `point_b`, in the world.
        slides: the axes of a along which components of the gap are the first rows instead.
        products: the rows after them, each the sum of its products, of as many in every row.
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
"""The residuals whose rows are known. One that overrides such a residual is another function, and is differentiated as it is written."""


def of_pairs(rows: PairRows) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator of a `residual`, which says that its rows are these."""

    def said(residual: Callable[..., Any]) -> Callable[..., Any]:
        KNOWN[residual] = rows
        return residual

    return said


def _sides_of(measure: Any, group: Any, pair: Pairs, motion: Kinematics, t: Any) -> tuple[Array, Array]:
    """Returns what `Derivatives.sides` does, in closed form where the rows of the measure are known."""
    rows = KNOWN.get(measure)
    return AUTODIFF.sides(measure, group, pair, motion, t) if rows is None else _sides(rows, group, pair, motion.frame)


PAIRS = AUTODIFF._replace(sides=_sides_of)
"""Autodiff of what is measured, apart from sides of rows that are known."""


class _Body(NamedTuple):
    """The body on one side of all joints: its place (3, k) and R (3, 3, k), and in it the point (3, k) and the axes (3, 3, k) or None."""

    place: Array
    turn: Array
    point: Array
    axes: Any


def _bodies(group: Any, pair: Pairs, frames: Any) -> list[_Body]:
    """Returns both sides of all joints of a group; joints without axes have none."""
    entries = jnp.split(frame_entries(np.concatenate(pair.sides), frames), 2, axis=1)
    axes = [group.axes_a, group.axes_b] if hasattr(group, "axes_a") else [None, None]
    return [
        _Body(at[:3], at[3:].reshape(3, 3, -1), point.T, None if own is None else own.transpose(1, 2, 0))
        for at, point, own in zip(entries, (group.point_a, group.point_b), axes, strict=True)
    ]


def _dot(x: Array, y: Array) -> Array:
    """Returns inner products over the first axis, added in the order in which those of single vectors are."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def _next(x: Array, axis: int) -> tuple[Array, Array]:
    """Returns x[j + 1] and x[j + 2] for j = 0, 1, 2 along an axis of length 3, indices modulo 3."""
    five = jnp.concatenate([x, jax.lax.slice_in_dim(x, 0, 2, axis=axis)], axis=axis)
    return jax.lax.slice_in_dim(five, 1, 4, axis=axis), jax.lax.slice_in_dim(five, 2, 5, axis=axis)


def _turned(turn: Array, vector: Array) -> Array:
    """Returns R s (3, ..., k) of vectors s (3, ..., k)."""
    first, second, third = (turn[:, j].reshape(3, *(1,) * (vector.ndim - 2), -1) for j in range(3))
    return first * vector[0] + second * vector[1] + third * vector[2]


def _turning(turn: Array, vector: Array) -> Array:
    """Returns the derivatives of R s by the angular velocity in the body, (3, 3, ..., k): along the world's axes, by each component."""
    one, two = (columns.reshape(3, 3, *(1,) * (vector.ndim - 2), -1) for columns in _next(turn, 1))
    s_one, s_two = _next(vector, 0)
    return two * s_one - one * s_two


@functools.partial(jax.jit, static_argnums=(0, 2))  # A unit: a step asks for it up to three times, and JAX traces it once.
def _sides(rows: PairRows, group: Any, pair: Pairs, frames: Any) -> tuple[Array, Array]:
    """Returns the entries of all rows in the twists of both bodies, 2 x (k rows, 6)."""
    a, b = _bodies(group, pair, frames)
    parts = ([*_gap_rows(rows, a, b)] if rows.gap or rows.slides else []) + ([_product_rows(rows, a, b)] if rows.products else [])
    first, second = (_joined([part[side] for part in parts]) for side in range(2))
    return first, second


_Part = tuple[tuple[Array, Array], tuple[Array, Array]]
"""Of each side the derivatives (rows, 3, k) by the velocity and by the angular velocity."""


def _gap_rows(rows: PairRows, a: _Body, b: _Body) -> list[_Part]:
    """Returns the derivatives of the gap p_b + R_b s_b - p_a - R_a s_a, or of its components along axes of a."""
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
    """Returns the derivatives of sums of products of axes."""
    by_a, by_b = [], []
    for some in zip(*rows.products, strict=True):
        factors = jnp.asarray([product.factor for product in some], a.place.dtype)[:, None]
        own_a, own_b = a.axes[:, np.asarray([product.a for product in some])], b.axes[:, np.asarray([product.b for product in some])]
        by_a.append(factors * _dot(_turning(a.turn, own_a), _turned(b.turn, own_b)[:, None]))
        by_b.append(factors * _dot(_turned(a.turn, own_a)[:, None], _turning(b.turn, own_b)))
    still = jnp.zeros((len(rows.products), 3, a.place.shape[1]), a.place.dtype)
    on_a, on_b = ((still, functools.reduce(operator.add, by).swapaxes(0, 1)) for by in (by_a, by_b))
    return on_a, on_b


def _joined(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Returns the entries (k rows, 6) of one side. Each part has its axes in order before it is joined: so they are in memory then."""
    ordered = [[part.transpose(2, 0, 1) for part in each] for each in parts]
    return jnp.concatenate([jnp.concatenate(each, axis=2) for each in ordered], axis=1).reshape(-1, 6)
