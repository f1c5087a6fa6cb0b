"""The twist of least residual: least squares of three unknowns, of which the first may be given, number by number.

Of rows a_i with targets s_i and weights w_i, the twist V = (v_x, v_y, omega) minimizes

    sum_i w_i e_i^2,      e_i = s_i - a_i . V.

Where v_x is given it is known, and the others follow from two equations. With the free columns A of the rows and K = A^T W A, small
changes of the problem change the free part x of V by

    K dx = sum_i (w_i de_i + dw_i e_i) A_i + w_i e_i dA_i,      de_i = ds_i - da_i . V, with v_x as given and x as it is,

so that reverse mode needs the solution, the factor of K and one more substitution, not what they were made of.

Every number is an array of its own. In a batch it has one entry a world, wherever `jax.vmap` puts these, and XLA makes few loops of all
of them, which vectorize; of arrays with three rows a wheel it copies and transposes before it multiplies. A step of a car by RK4 takes
0.3 of the time, its gradient 0.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from jaxdae.small_matrix import factor_entries, less_products

Row = Sequence[Any]
"""What a row takes of (v_x, v_y, omega): three numbers."""


@jax.custom_jvp
def least_residual(rows: Sequence[Row], target: Sequence[Any], weights: Sequence[Any], speed: Any) -> tuple[Any, ...]:
    """Returns the twist (v_x, v_y, omega) of least residual, three numbers; NaN where it is not the only one.

    Args:
        rows: a_i, three numbers each.
        target: s_i, a number for each row.
        weights: w_i, a number for each row, zero or more.
        speed: v_x in m/s where it is held; None where it is free like the others.

    Differentiable, forward and reverse, at every order.
    """
    given = () if speed is None else (speed,)
    left = [s - _product(row, given) for row, s in zip(rows, target, strict=True)]
    free = [row[len(given) :] for row in rows]
    force = [_sum(w * row[j] * e for row, w, e in zip(free, weights, left, strict=True)) for j in range(len(free[0]))]
    return (*given, *_substituted(_factor(free, weights), force))


@least_residual.defjvp
def _least_residual_jvp(primals: Any, tangents: Any) -> Any:
    rows, target, weights, speed = primals
    twist = least_residual(*primals)
    row_dots, target_dots, weight_dots, speed_dot = tangents
    held = 0 if speed is None else 1
    force: list[Any] = [0.0] * (3 - held)
    for row, s, w, row_dot, s_dot, w_dot in zip(rows, target, weights, row_dots, target_dots, weight_dots, strict=True):
        residual = s - _product(row, twist)
        change = s_dot - _product(row_dot, twist)
        change = change - row[0] * speed_dot if held else change
        pull, weighted = w * change + w_dot * residual, w * residual
        force = [x + pull * a + weighted * da for x, a, da in zip(force, row[held:], row_dot[held:], strict=True)]
    found = _substituted(_factor([row[held:] for row in rows], weights), force)
    return twist, (speed_dot, *found) if held else tuple(found)


def _factor(rows: Sequence[Row], weights: Sequence[Any]) -> list[list[Array]]:
    """Returns the rows of L with L L^T = A^T W A, up to the diagonal; NaN where a pivot is none."""

    def entry(i: int, j: int) -> Any:
        return _sum(w * row[i] * row[j] for row, w in zip(rows, weights, strict=True))

    return factor_entries([[entry(i, j) for j in range(i + 1)] for i in range(len(rows[0]))])


def _substituted(lower: list[list[Array]], force: Sequence[Any]) -> list[Array]:
    """Returns x with L L^T x = f."""
    size = len(force)
    y: list[Array] = []
    for i in range(size):
        y.append(less_products(force[i], lower[i], y) / lower[i][i])
    x: list[Array] = []
    for i in reversed(range(size)):
        x.insert(0, less_products(y[i], [lower[k][i] for k in range(i + 1, size)], x) / lower[i][i])
    return x


def _product(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Returns the sum of the products of two lists, as far as both go; zero where one is empty."""
    return _sum(x * y for x, y in zip(left, right, strict=False))


def _sum(terms: Any) -> Any:
    first, *rest = [*terms] or [0.0]
    for term in rest:
        first = first + term
    return first
