"""Dense linear algebra on small matrices: LAPACK for one, unrolled rows for a batch.

The matrices of a mechanism are tiny (2 to some 40 rows) and there are many of them. LAPACK spends about 0.7 us on an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead; in a batch the same work takes a fifth of that when it is written as elementwise
operations over the worlds, under two conditions:

* The world axis is the last, contiguous one. `jax.vmap` moves it to the front, so the factorizations have a batching rule of their own
  that runs the unrolled code with worlds last.
* Nothing is computed twice. XLA's CPU backend copies cheap operations into every consumer but keeps the results of square roots and
  divisions; the code therefore divides by the diagonal instead of multiplying with its inverse.

A factorization returns the *inverse* of the triangular factor, so that each solve is two products: less to compile than substitutions, and
no LAPACK call. A single matrix goes to LAPACK, and so does a batch of matrices with more than `UNROLLED_UP_TO` rows.

The functions with a batching rule are not meant to be differentiated: they stand inside solves whose derivative is given by the implicit
function theorem (`saddle_point.interface`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jaxtyping import Float

UNROLLED_UP_TO = 20
"""The largest size that is unrolled in a batch. Measured on CPU, 1024 worlds, factorization and one solve against LAPACK's Cholesky: 6
times as fast at 4 rows, 4 to 6 at 8, 2 to 3 at 12, equal at 20, where the inverse factor that further solves need makes the difference."""


def matvec(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Returns the product A x."""
    return matrix @ x


def rmatvec(matrix: Float[Array, "m n"], y: Float[Array, " m"]) -> Float[Array, " n"]:
    """Returns the product A^T y."""
    return y @ matrix


def product_transposed(left: Float[Array, "m n"], right: Float[Array, "k n"]) -> Float[Array, "m k"]:
    """Returns the product A B^T."""
    return left @ right.T


def add_diagonal(matrix: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Returns A + diag(d), without a scatter."""
    return matrix + jnp.eye(matrix.shape[-1], dtype=matrix.dtype) * diagonal[:, None]


@custom_vmap
def inverse_cholesky(matrix: Array) -> Array:
    """Returns W (n, n), lower triangular with A^-1 = W^T W: the inverse of the Cholesky factor of A.

    A is symmetric positive definite, and only its lower triangle is read. Where a pivot is not positive, or no more than rounding errors of
    the diagonal entry it comes from, W is NaN: of a singular matrix, rounding would otherwise make usable-looking numbers.
    """
    return _lapack(matrix)


@inverse_cholesky.def_vmap
def _inverse_cholesky_of_worlds(size: int, batched: Any, matrix: Array) -> tuple[Array, bool]:
    if matrix.shape[-1] > UNROLLED_UP_TO or matrix.shape[-1] == 0:
        return _lapack(matrix), True
    return jnp.moveaxis(_eliminate(jnp.moveaxis(matrix, 0, -1)), -1, 0), True


def rounding(size: int, dtype: Any) -> float:
    """Returns the fraction of a diagonal entry below which a pivot of a matrix of this size says nothing: 4 n eps."""
    return 4.0 * size * float(jnp.finfo(dtype).eps)


def _lapack(matrix: Array) -> Array:
    size = matrix.shape[-1]
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    pivots, entries = (jnp.diagonal(x, axis1=-2, axis2=-1) for x in (lower, matrix))
    regular = jnp.all(pivots**2 > rounding(size, matrix.dtype) * entries, axis=-1)[..., None, None]
    eye = jnp.broadcast_to(jnp.eye(size, dtype=matrix.dtype), matrix.shape)
    return jax.lax.linalg.triangular_solve(jnp.where(regular, lower, jnp.nan), eye, left_side=True, lower=True)


def _eliminate(matrix: Array) -> Array:
    """Returns W (n, n, worlds) for A (n, n, worlds), by eliminating the columns of [A | I] from left to right.

    Of the right half only the lower triangle is kept: after step j, row i > j holds j + 1 entries.
    """
    size = matrix.shape[0]
    limit = rounding(size, matrix.dtype)
    entries = [matrix[j, j] for j in range(size)]
    pending: list[Array] = [matrix[:0, 0]] * size
    rows = []
    for j in range(size):
        pivot = matrix[0, 0]
        root = jnp.sqrt(jnp.where(pivot > limit * entries[j], pivot, jnp.nan))
        column = matrix[:, 0] / root
        row = jnp.concatenate([pending[j] / root, (1.0 / root)[None]])
        rows.append(row)
        for i in range(j + 1, size):
            filled = jnp.concatenate([pending[i], jnp.zeros_like(root)[None]]) if j else jnp.zeros_like(row)
            pending[i] = filled - column[i - j] * row
        matrix = matrix[1:, 1:] - column[1:, None] * column[None, 1:]
    padding = [(0, 0)] * (matrix.ndim - 2)
    return jnp.stack([jnp.pad(row, [(0, size - 1 - j), *padding]) for j, row in enumerate(rows)])
