"""Least squares with exact rows, in one elimination.

For rows R with right-hand sides b, and a subset H of the rows that holds exactly,

    K [ x  ]   [ R^T b ]            [ R^T R  H^T ]
      [ mu ] = [ g     ],      K =  [ H      0   ],      K = L D L^T,      D = diag(1, ..., 1, -1, ..., -1),

R^T R is positive definite, so that no pivoting is needed. The right-hand side is an additional row of K,
which the elimination turns into the l of L^T (x, mu) = l. Each column follows from the previous columns by a
sum of products, a square root and a division, which XLA compiles to two kernels. Two factorizations, the
inverse of a triangle and its products would take twice as many. A single world uses LAPACK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.batching.last import joined, with_rule, worlds_back, worlds_last
from jaxdae.operators import DenseMatrix, DenseRows
from jaxdae.outlining import outlined
from jaxdae.saddle_point import SchurComplement
from jaxdae.small_matrix import rounding
from jaxdae.thresholds import UNROLLED_UP_TO


@jax.custom_jvp
def normal_solution(rows: Any, b: Any, hard: Any, g: Any) -> Any:
    """Return (x, mu) (n + h,): least squares of rows x - b subject to hard x = g; NaN if not unique.

    Args:
        rows: R (r, n), of full rank.
        b: (r,).
        hard: H (h, n), independent rows that are a subset of R.
        g: (h,).

    Differentiable, forward and reverse, at every order.
    """
    return _solved(rows, hard, jnp.concatenate([b @ rows, g]))


@normal_solution.defjvp
def _normal_solution_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    return jax.jvp(_through_primitives, primals, tangents)


def _through_primitives(rows: Any, b: Any, hard: Any, g: Any) -> Any:
    """Return the result of `normal_solution` by a solve that JAX can differentiate and transpose."""
    n = rows.shape[1]
    still = jax.lax.stop_gradient((rows, hard))

    def product(x: Any) -> Any:
        return jnp.concatenate([(rows @ x[:n]) @ rows + x[n:] @ hard, hard @ x[:n]])

    return jax.lax.custom_linear_solve(product, jnp.concatenate([b @ rows, g]), lambda _, y: _solved(*still, y), symmetric=True)


def _one(rows: Any, hard: Any, rhs: Any) -> Any:
    """Return K^-1 times a right-hand side (n + h,) of one world, with LAPACK."""
    n = rows.shape[1]
    x, lam = SchurComplement().factorize(DenseMatrix(rows.T @ rows), DenseRows(hard), None).solve(rhs[:n], rhs[n:])
    return jnp.concatenate([x, -lam])


def _many(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> Any:
    rows, hard, _ = arguments
    if max(rows.shape[-1], hard.shape[-2]) > UNROLLED_UP_TO:
        return jax.vmap(_one, in_axes=[0 if of else None for of in batched], axis_size=size)(*arguments)
    return worlds_back(_eliminated(*worlds_last(size, batched, arguments)))


_solved = with_rule(_one, _many)


def _eliminated(rows: Array, hard: Array, rhs: Array) -> Array:
    """Return K^-1 rhs (n + h, worlds) for R (r, n, worlds), H (h, n, worlds) and rhs (n + h, worlds)."""
    n, h = rows.shape[1], hard.shape[0]
    matrix = _normal_matrix(rows, hard, rhs)
    roots: list[Array] = []
    columns: list[Array] = []  # Below their roots.
    for j in range(n + h):
        above = [column[j - k - 1 : j - k] for k, column in enumerate(columns)]
        below = [x * column[j - k :] for k, (x, column) in enumerate(zip(above, columns, strict=True))]
        squares = [x * x for x in above]
        # The pivot is computed separately: with two consumers it would become a third kernel.
        if j < n:
            whole, pivot, pending, size = matrix[j, j : j + 1], matrix[j, j : j + 1], matrix[j + 1 :, j], n
            pivot, pending = _less(pivot, squares), _less(pending, below)
        else:
            whole, size = _sum(squares[:n]), h
            pending = _sum(below[:n]) - jnp.pad(rhs[j : j + 1], [(n + h - 1 - j, 0), (0, 0)])
            pivot, pending = _less(whole, squares[n:]), _less(pending, below[n:])
        # A pivot below the rounding error of its original entry carries no information.
        roots.append(jnp.sqrt(jnp.where(pivot > rounding(size, rows.dtype) * whole, pivot, jnp.nan)))
        columns.append(pending / roots[j])
    x: list[Array] = []
    for j in reversed(range(n + h)):
        known = [columns[j][k : k + 1] * each for k, each in enumerate(reversed(x))]
        x.append(_less(columns[j][-1:], known) / roots[j])
    return joined(*x[::-1])


def _less(x: Array, terms: list[Array]) -> Array:
    return x - _sum(terms) if terms else x


def _sum(terms: list[Array]) -> Array:
    return sum(terms[1:], terms[0])


@outlined
def _normal_matrix(rows: Array, hard: Array, rhs: Array) -> Array:
    """Return the first n columns of K and of its right-hand side (n + h + 1, n, worlds)."""
    gram = sum(row[:, None] * row[None] for row in rows)
    return jnp.concatenate([gram, hard, rhs[None, : rows.shape[1]]])
