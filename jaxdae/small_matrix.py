"""Dense linear algebra on small matrices: LAPACK for one, unrolled columns for a batch.

The matrices of a mechanism are tiny (2 to some 40 rows) and there are many of them. LAPACK spends about 0.7 us on an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead; in a batch the same work takes a tenth of that when it is written as elementwise operations
over the worlds, under two conditions:

* The world axis is the last, contiguous one. `jax.vmap` moves it to the front, so `cholesky` and `cholesky_solve` have a batching rule of
  their own that runs the unrolled code with worlds last.
* Nothing is computed twice. XLA's CPU backend copies cheap operations into every consumer but keeps the results of square roots and
  divisions; substitution therefore divides by the diagonal instead of multiplying with its inverse.

A single matrix goes to LAPACK (one call instead of dozens of small kernels, and little to compile), and so does a batch of matrices with more
than `UNROLLED_UP_TO` rows.

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

UNROLLED_UP_TO = 16
"""The largest size that is unrolled in a batch; measured on CPU: 5 to 7 times faster than LAPACK at 8 rows, 1.5 times at 16."""


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
def cholesky(matrix: Array) -> Array:
    """Returns the lower factor L of a symmetric positive definite A = L L^T (n, n); NaN where A is not positive definite.

    Only the lower triangle of A is read.
    """
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


@cholesky.def_vmap
def _cholesky_of_worlds(size: int, batched: Any, matrix: Array) -> tuple[Array, bool]:
    if matrix.shape[-1] > UNROLLED_UP_TO:
        return jax.lax.linalg.cholesky(matrix, symmetrize_input=False), True
    return jnp.moveaxis(_factor(jnp.moveaxis(matrix, 0, -1)), -1, 0), True


@custom_vmap
def cholesky_solve(lower: Array, b: Array) -> Array:
    """Returns x (n,) with L L^T x = b, from the factor L (n, n) of `cholesky`."""
    return _lapack_solve(lower, b)


@cholesky_solve.def_vmap
def _cholesky_solve_of_worlds(size: int, batched: Any, lower: Array, b: Array) -> tuple[Array, bool]:
    lower, b = (
        x if has_axis else jnp.broadcast_to(x, (size, *x.shape)) for x, has_axis in zip((lower, b), batched, strict=True)
    )
    if lower.shape[-1] > UNROLLED_UP_TO:
        return _lapack_solve(lower, b), True
    return jnp.moveaxis(_substitute(jnp.moveaxis(lower, 0, -1), jnp.moveaxis(b, 0, -1)), -1, 0), True


def cholesky_solve_rows(lower: Float[Array, "n n"], rows: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Returns X with X L L^T = B: every row of B is a right-hand side."""
    y = jax.lax.linalg.triangular_solve(lower, rows.T, left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, y, left_side=True, lower=True, transpose_a=True).T


def _lapack_solve(lower: Array, b: Array) -> Array:
    y = jax.lax.linalg.triangular_solve(lower, b[..., None], left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, y, left_side=True, lower=True, transpose_a=True)[..., 0]


def _factor(matrix: Array) -> Array:
    """Returns the factor of A (n, n, worlds), column by column: each column updates the block to its right."""
    size, columns = matrix.shape[0], []
    for j in range(size):
        column = matrix[:, 0] / jnp.sqrt(matrix[0, 0])
        columns.append(jnp.pad(column, [(j, 0)] + [(0, 0)] * (matrix.ndim - 2)))
        below = column[1:]
        matrix = matrix[1:, 1:] - below[:, None] * below[None]
    return jnp.stack(columns, axis=1)


def _substitute(lower: Array, b: Array) -> Array:
    """Returns x with L L^T x = b for L (n, n, worlds) and b (n, worlds): forward, then backward."""
    size, x = lower.shape[0], list(b)
    for i in range(size):
        x[i] = (x[i] - sum(lower[i, k] * x[k] for k in range(i))) / lower[i, i]
    for i in reversed(range(size)):
        x[i] = (x[i] - sum(lower[k, i] * x[k] for k in range(i + 1, size))) / lower[i, i]
    return jnp.stack(x)
