"""The twist of least residual: least squares in three unknowns, of which the first may be given, in scalars.

For rows a_i with targets s_i and weights w_i, the twist V = (v_x, v_y, omega) minimizes

    sum_i w_i e_i^2,      e_i = s_i - a_i . V.

If v_x is given, the other two unknowns follow from two equations. Let A be the free columns of the rows, and
K = A^T W A. Small changes of the problem change the free part x of V by

    K dx = sum_i (w_i de_i + dw_i e_i) A_i + w_i e_i dA_i,      de_i = ds_i - da_i . V, with v_x given and x
    fixed.

Reverse mode therefore needs only the solution, the factor of K and one more substitution, and not the
intermediate values of the factorization.

Every number is a separate array. In a batch it has one entry per world, on any axis that `jax.vmap` chooses,
and XLA fuses all of them into a few vectorized loops. Arrays with three entries per row would be copied and
transposed before each product. An RK4 step of a car takes 0.3 of the time, its gradient 0.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from jaxdae.linalg.small_matrix import factor_entries, less_products

Row = Sequence[Any]
"""The coefficients of (v_x, v_y, omega) in a row: three numbers."""


@jax.custom_jvp
def least_residual(
    rows: Sequence[Row], target: Sequence[Any], weights: Sequence[Any], speed: Any
) -> tuple[Any, ...]:
    """Return the twist (v_x, v_y, omega) of least residual as three scalars; NaN if it is not unique.

    Args:
        rows: a_i, three numbers each.
        target: s_i, one number per row.
        weights: w_i, one non-negative number per row.
        speed: v_x in m/s if it is prescribed; None if it is free like the other unknowns.

    Differentiable, forward and reverse, at every order.
    """
    given = () if speed is None else (speed,)
    left = [s - _product(row, given) for row, s in zip(rows, target, strict=True)]
    free = [row[len(given) :] for row in rows]
    force = [
        _sum(w * row[j] * e for row, w, e in zip(free, weights, left, strict=True))
        for j in range(len(free[0]))
    ]
    return (*given, *_substituted(_factor(free, weights), force))


@least_residual.defjvp
def _least_residual_jvp(primals: Any, tangents: Any) -> Any:
    rows, target, weights, speed = primals
    twist = least_residual(*primals)
    row_dots, target_dots, weight_dots, speed_dot = tangents
    held = 0 if speed is None else 1
    force: list[Any] = [0.0] * (3 - held)
    for row, s, w, row_dot, s_dot, w_dot in zip(
        rows, target, weights, row_dots, target_dots, weight_dots, strict=True
    ):
        residual = s - _product(row, twist)
        change = s_dot - _product(row_dot, twist)
        change = change - row[0] * speed_dot if held else change
        pull, weighted = w * change + w_dot * residual, w * residual
        force = [
            x + pull * a + weighted * da for x, a, da in zip(force, row[held:], row_dot[held:], strict=True)
        ]
    found = _substituted(_factor([row[held:] for row in rows], weights), force)
    return twist, (speed_dot, *found) if held else tuple(found)


def _factor(rows: Sequence[Row], weights: Sequence[Any]) -> list[list[Array]]:
    """Return the rows of L with L L^T = A^T W A, up to the diagonal; NaN if a pivot is not positive."""

    def entry(i: int, j: int) -> Any:
        return _sum(w * row[i] * row[j] for row, w in zip(rows, weights, strict=True))

    return factor_entries([[entry(i, j) for j in range(i + 1)] for i in range(len(rows[0]))])


def _substituted(lower: list[list[Array]], force: Sequence[Any]) -> list[Array]:
    """Return x with L L^T x = f."""
    size = len(force)
    y: list[Array] = []
    for i in range(size):
        y.append(less_products(force[i], lower[i], y) / lower[i][i])
    x: list[Array] = []
    for i in reversed(range(size)):
        x.insert(0, less_products(y[i], [lower[k][i] for k in range(i + 1, size)], x) / lower[i][i])
    return x


def _product(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Return the sum of products of two lists, up to the shorter length; zero if one is empty."""
    return _sum(x * y for x, y in zip(left, right, strict=False))


def _sum(terms: Any) -> Any:
    first, *rest = [*terms] or [0.0]
    for term in rest:
        first = first + term
    return first
