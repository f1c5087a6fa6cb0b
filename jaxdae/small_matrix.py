"""Dense linear algebra on small matrices: LAPACK for one, unrolled code for a batch.

The matrices of a mechanism are tiny (2 to some 40 rows) and there are many of them. LAPACK spends about 0.7 us on an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead; in a batch the same work takes a fifth of that when it is written as elementwise
operations over the worlds, under two conditions:

* The world axis is the last, contiguous one. `jax.vmap` moves it to the front, so the factorizations have a batching rule of their own
  that runs the unrolled code with worlds last.
* Nothing is computed twice. XLA's CPU backend copies cheap operations into every consumer but keeps the results of square roots and
  divisions; the code therefore divides by the diagonal instead of multiplying with its inverse.

Unrolled code is long, and a step has more solves than factorizations: from 5 rows on, substitutions are compiled once (`outlining`). A step
of a five-bar with 10 rows, three factorizations and five solves, is compiled in three quarters of the time and runs as fast. Of
factorizations the same would take little more off the compile time, and cost a sixth to a half of the time to run.

A factorization returns the triangular factor L and its inverse W. For a single matrix, which goes to LAPACK, a solve is two products with
W, cheaper than two LAPACK calls. In an unrolled batch it is a substitution with L, which reads half as much memory; W is then not computed
where nobody asks for it, because XLA drops what is not used. A batch of matrices with more than `UNROLLED_UP_TO` rows goes to LAPACK
as well.

On accelerators the number of kernels counts, and a substitution is one for every row or two. There a solve of a batch is two products with
W, two kernels, and factors are computed entry by entry, which XLA fuses: a step of Andrews' mechanism, RK4 with projections and 14 rows, is
179 kernels, and 352 when it is written as for a CPU.

The functions with a batching rule are not meant to be differentiated: they stand inside solves whose derivative is given by the implicit
function theorem (`saddle_point.derivative`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae._pytree import pytree
from jaxdae.batching.last import ruled
from jaxdae.checkpointing import FACTOR, named
from jaxdae.devices import on_accelerator
from jaxdae.outlining import outlined
from jaxdae.typing import Leaf

UNROLLED_UP_TO = 20
"""The largest size that is unrolled in a batch. Measured on one core of a CPU, 1024 worlds, factorization and one solve against LAPACK's
Cholesky: 8 to 12 times as fast at 8 rows, 5 to 10 at 12, 2 to 5 at 20. More rows would take too long to compile."""

SUMMED_UP_TO = 4
"""The largest size up to which products are written as sums. A call of the compiler's routine for products takes some 25 ns a world; a
four-bar in joint coordinates, 3 velocities and 2 rows, takes 0.9 of the time of one world with sums, and 0.8 of that of each of 64."""


def matvec(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Returns the product A x."""
    return jnp.sum(matrix * x, axis=1) if _is_tiny(matrix.shape) else matrix @ x


def rmatvec(matrix: Float[Array, "m n"], y: Float[Array, " m"]) -> Float[Array, " n"]:
    """Returns the product A^T y."""
    return jnp.sum(matrix * y[:, None], axis=0) if _is_tiny(matrix.shape) else y @ matrix


def product_transposed(left: Float[Array, "m n"], right: Float[Array, "k n"]) -> Float[Array, "m k"]:
    """Returns the product A B^T."""
    if _is_tiny((*left.shape, right.shape[0])):
        return jnp.sum(left[:, None] * right, axis=2)
    return left @ right.T


def _is_tiny(sizes: tuple[int, ...]) -> bool:
    """Returns whether products of matrices of these sizes are best written as sums."""
    return max(sizes) <= SUMMED_UP_TO


def diagonal(matrix: Float[Array, "... n n"]) -> Float[Array, "... n"]:
    """Returns the diagonal: every (n + 1)th entry. One slice; `jnp.diagonal` is twenty operations, with a choice by platform."""
    size = matrix.shape[-1]
    return matrix.reshape(*matrix.shape[:-2], size * size)[..., :: size + 1]


def add_diagonal(matrix: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Returns A + diag(d), without a scatter."""
    return matrix + jnp.eye(matrix.shape[-1], dtype=matrix.dtype) * diagonal[:, None]


@pytree
class Cholesky:
    """A = L L^T, and the inverse of L.

    Attributes:
        lower: L (n, n).
        inverse: W = L^-1 (n, n), lower triangular: A^-1 = W^T W.
    """

    lower: Leaf
    inverse: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns A^-1 b."""
        return _solve(self.lower, self.inverse, b)


def cholesky(matrix: Float[Array, "n n"]) -> Cholesky:
    """Returns the Cholesky factor of a symmetric positive definite matrix, and its inverse.

    Only the lower triangle is read. Where a pivot is not positive, or no more than rounding errors of the diagonal entry it comes from, the
    factors are NaN: of a singular matrix, rounding would otherwise make usable-looking numbers.
    """
    return Cholesky(*named(_factorize(matrix), FACTOR))


def inverse_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns W (n, n), lower triangular with A^-1 = W^T W; see `cholesky`."""
    return _factorize(matrix)[1]


@ruled
def _factorize(matrix: Array) -> tuple[Array, Array]:
    return _lapack(matrix)


@_factorize.def_vmap
def _factorize_worlds(size: int, batched: Any, matrix: Array) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    if not batched[0]:
        return _lapack(matrix), (False, False)
    if not _unrolls(matrix):
        return _lapack(matrix), (True, True)
    eliminate = _eliminate_entries if on_accelerator() else _eliminate
    lower, inverse = (jnp.moveaxis(x, -1, 0) for x in eliminate(jnp.moveaxis(matrix, 0, -1)))
    return (lower, inverse), (True, True)


def _unrolls(matrix: Array) -> bool:
    return 0 < matrix.shape[-1] <= UNROLLED_UP_TO


@ruled
def _solve(lower: Array, inverse: Array, b: Array) -> Array:
    return rmatvec(inverse, matvec(inverse, b))


@_solve.def_vmap
def _solve_worlds(size: int, batched: Any, lower: Array, inverse: Array, b: Array) -> tuple[Array, bool]:
    of_factor, _, of_side = batched
    if not any(batched):  # Only the tangents of a batch are.
        return rmatvec(inverse, matvec(inverse, b)), False
    if not (of_factor and _unrolls(lower)):
        axes = [0 if x else None for x in batched[1:]]
        return jax.vmap(lambda w, y: rmatvec(w, matvec(w, y)), in_axes=axes)(inverse, b), True
    b = b.T if of_side else jnp.broadcast_to(b[:, None], (b.shape[0], size))
    if on_accelerator():
        rows = jnp.moveaxis(inverse, 0, -1)
        return jnp.sum(rows * jnp.sum(rows * b, axis=1)[:, None], axis=0).T, True
    return _substitute(jnp.moveaxis(lower, 0, -1), b).T, True


def rounding(size: int, dtype: Any) -> float:
    """Returns the fraction of a diagonal entry below which a pivot of a matrix of this size says nothing: 4 n eps."""
    return 4.0 * size * float(jnp.finfo(dtype).eps)


def lower_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns L of a matrix of any size by LAPACK, without the inverse; NaN where `cholesky` is."""
    return _lapack_lower(matrix)


def _lapack_lower(matrix: Array) -> Array:
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    pivots, entries = (diagonal(x) for x in (lower, matrix))
    regular = jnp.all(pivots**2 > rounding(matrix.shape[-1], matrix.dtype) * entries, axis=-1)[..., None, None]
    return jnp.where(regular, lower, jnp.nan)


def _lapack(matrix: Array) -> tuple[Array, Array]:
    lower = _lapack_lower(matrix)
    eye = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return lower, jax.lax.linalg.triangular_solve(lower, eye, left_side=True, lower=True)


def _eliminate(matrix: Array) -> tuple[Array, Array]:
    """Returns L and W (n, n, worlds) for A (n, n, worlds), by eliminating the columns of [A | I] from left to right.

    Of the right half only the lower triangle is kept: after step j, the rows below hold j + 1 entries.
    """
    size = matrix.shape[0]
    limit = rounding(size, matrix.dtype)
    entries = [matrix[j, j] for j in range(size)]
    padding = [(0, 0)] * (matrix.ndim - 2)
    pending = matrix[:, :0]
    columns, rows = [], []
    for j in range(size):
        pivot = matrix[0, 0]
        root = jnp.sqrt(jnp.where(pivot > limit * entries[j], pivot, jnp.nan))
        column = matrix[:, 0] / root
        row = jnp.concatenate([pending[0] / root, (1.0 / root)[None]])
        columns.append(column)
        rows.append(jnp.pad(row, [(0, size - 1 - j), *padding]))
        pending = jnp.pad(pending[1:], [(0, 0), (0, 1), *padding]) - column[1:, None] * row[None]
        matrix = matrix[1:, 1:] - column[1:, None] * column[None, 1:]
    return _lower(columns), jnp.stack(rows)


def _eliminate_entries(matrix: Array) -> tuple[Array, Array]:
    """Returns L and W (n, n, worlds) for A (n, n, worlds), entry by entry.

    What `_eliminate` computes, but of single entries of all worlds: accelerators make a handful of kernels of them, where every column
    would be two of its own.
    """
    size = matrix.shape[0]
    lower = factor_entries([[matrix[i, j] for j in range(i + 1)] for i in range(size)])
    inverse: list[list[Array]] = [[] for _ in range(size)]
    for i, row in enumerate(lower):
        for j in range(i):
            below = [inverse[k][j] for k in range(j, i)]
            inverse[i].append(less_products(jnp.zeros_like(row[i]), row[j:i], below) / row[i])
        inverse[i].append(1.0 / row[i])
    return _triangle(lower), _triangle(inverse)


def factor_entries(matrix: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Returns the rows of L, A = L L^T, up to the diagonal, of those of A; NaN where a pivot is no more than rounding errors."""
    lower: list[list[Array]] = [[] for _ in matrix]
    for i, row in enumerate(lower):
        for j, other in enumerate(lower[:i]):
            row.append(less_products(matrix[i][j], row, other) / other[j])
        entry = matrix[i][i]
        pivot = less_products(entry, row, row)
        row.append(jnp.sqrt(jnp.where(pivot > rounding(len(matrix), pivot.dtype) * entry, pivot, jnp.nan)))
    return lower


def less_products(entry: Array, left: Sequence[Array], right: Sequence[Array]) -> Array:
    """Returns the entry less the products of two lists of others, as far as both go."""
    for x, y in zip(left, right, strict=False):
        entry = entry - x * y
    return entry


def _triangle(rows: list[list[Array]]) -> Array:
    """Returns the lower triangular matrix (n, n, worlds) of rows that end at the diagonal."""
    zero = jnp.zeros_like(rows[0][0])
    return jnp.stack([jnp.stack([*row, *[zero] * (len(rows) - len(row))]) for row in rows])


def _lower(columns: list[Array]) -> Array:
    """Returns the lower triangular matrix (n, n, worlds) of columns that begin at the diagonal.

    One reading of all columns: padded, they would be written twice, each by a kernel of its own that is to be compiled.
    """
    entries = jnp.concatenate([*columns, jnp.zeros_like(columns[0][:1])])
    order = np.full((len(columns), len(columns)), len(entries) - 1)
    j, i = np.triu_indices(len(columns))
    order[i, j] = np.arange(len(entries) - 1)
    return entries[order]


def _once_unless_tiny(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns a function of a matrix of many worlds (m, n, worlds) and more, outlined but for tiny matrices."""
    once = outlined(function)

    def call(matrix: Array, *others: Array) -> Array:
        return (function if _is_tiny(matrix.shape[:2]) else once)(matrix, *others)

    return call


@_once_unless_tiny
def _substitute(lower: Array, b: Array) -> Array:
    """Returns A^-1 b (n, worlds) for L (n, n, worlds)."""
    size = b.shape[0]
    y: list[Array] = []
    x: list[Array] = [b] * size
    for j in range(size):
        rest = b[j]
        for i in range(j):
            rest = rest - lower[j, i] * y[i]
        y.append(rest / lower[j, j])
    for j in reversed(range(size)):
        rest = y[j]
        for i in range(j + 1, size):
            rest = rest - lower[i, j] * x[i]
        x[j] = rest / lower[j, j]
    return jnp.stack(x)
