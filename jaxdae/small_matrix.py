"""Dense linear algebra on small matrices: LAPACK for one, unrolled code for a batch.

The matrices of a mechanism are tiny (2 to some 40 rows) and there are many of them. LAPACK spends about 0.7 us on an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead; in a batch the same work takes a fifth of that when it is written as elementwise
operations over the worlds, under two conditions:

* The world axis is the last, contiguous one. `jax.vmap` moves it to the front, so the factorizations have a batching rule of their own
  that runs the unrolled code with worlds last.
* Nothing is computed twice. XLA's CPU backend copies cheap operations into every consumer but keeps the results of square roots,
  divisions and sums over an axis; every row of factors therefore ends with a division, and every step of a substitution with such a sum.

What takes time to compile is the number of kernels, about 12 ms each, however short, and three times that where arrays are put together
in one. A factorization is two kernels a row: its pivot's root, and all of the row. A substitution goes block by block, by sums over the
inverse of a diagonal block and over what stands beside it; the inverses come with the rows of the factor. For 10 rows it is 8 kernels, and
20 row by row. From 5 rows on it is compiled once, too (`outlining`). Blocks of 4 rows run as fast and compile longer; with all of W as one
block a batch takes 1.4 to 2.4 times as long for factors and solves. Factorizations that are compiled once would cost a sixth to a half of
the time to run; pivots instead of roots, L D L^T, save a kernel a row and cost a tenth to a quarter of the time of a step of a five-bar.

A factorization returns what a batch solves with, and the inverse W of L. For a single matrix, which goes to LAPACK, a solve is two products
with W, cheaper than two LAPACK calls. In a batch it is the substitution; W is then not computed where nobody asks for it, because XLA drops
what is not used. A batch of matrices with more than `UNROLLED_UP_TO` rows goes to LAPACK as well.

On accelerators the number of kernels counts, and a substitution is one for every row or two. There a solve of a batch is two products with
W, two kernels, and factors are computed entry by entry, which XLA fuses: a step of Andrews' mechanism, RK4 with projections and 14 rows, is
179 kernels, and 352 when it is written as for a CPU.

The functions with a batching rule are not meant to be differentiated: they stand inside solves whose derivative is given by the implicit
function theorem (`saddle_point.derivative`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
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

BLOCK = 5
"""The largest number of rows of a block whose triangle a batch has the inverse of."""

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
    """A = L L^T in the two forms that solves take, p numbers for those of a batch.

    Attributes:
        packed: p numbers, block after block of rows, each from the first column of its block on. Row j has L[i, j] at the places i > j, and
            up to j the inverse of the diagonal block of L.
        inverse: W = L^-1 (n, n), lower triangular: A^-1 = W^T W.
    """

    packed: Leaf
    inverse: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns A^-1 b."""
        return _solve(self.packed, self.inverse, b)


def cholesky(matrix: Float[Array, "n n"]) -> Cholesky:
    """Returns the Cholesky factor of a symmetric positive definite matrix, and its inverse.

    Only the lower triangle is read. Where a pivot is not positive, or no more than rounding errors of the diagonal entry it comes from, the
    factors are NaN: of a singular matrix, rounding would otherwise make usable-looking numbers.
    """
    return Cholesky(*named(_factorize(matrix), FACTOR))


def inverse_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns W (n, n), lower triangular with A^-1 = W^T W; see `cholesky`."""
    return _invert(matrix)


@ruled
def _invert(matrix: Array) -> Array:
    return _lapack(matrix)[1]


@_invert.def_vmap
def _invert_worlds(size: int, batched: Any, matrix: Array) -> tuple[Array, bool]:
    if not (batched[0] and _unrolls(matrix)):
        return _lapack(matrix)[1], batched[0]
    last = jnp.moveaxis(matrix, 0, -1)
    return jnp.moveaxis(_eliminate_entries(last)[1] if on_accelerator() else _inverse(last), -1, 0), True


@ruled
def _factorize(matrix: Array) -> tuple[Array, Array]:
    return _factors(*_lapack(matrix))


@_factorize.def_vmap
def _factorize_worlds(size: int, batched: Any, matrix: Array) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    if not (batched[0] and _unrolls(matrix)):
        return _factors(*_lapack(matrix)), (batched[0], batched[0])
    last = jnp.moveaxis(matrix, 0, -1)
    if on_accelerator():
        factors = _factors(*(jnp.moveaxis(x, -1, 0) for x in _eliminate_entries(last)))
    else:
        packed, inverse = _eliminated(last)
        factors = jnp.moveaxis(packed, -1, 0), jnp.moveaxis(inverse, -1, 0)
    return factors, (True, True)


def _factors(lower: Array, inverse: Array) -> tuple[Array, Array]:
    """Returns the packed form (..., p) and W (..., n, n) of L and W (..., n, n)."""
    both = jnp.where(np.tri(lower.shape[-1], dtype=bool), inverse, jnp.swapaxes(lower, -1, -2))
    worlds, size = lower.shape[:-2], lower.shape[-1]
    rows = [both[..., start:end, start:].reshape(*worlds, (end - start) * (size - start)) for start, end in _blocks(size)]
    return jnp.concatenate([jnp.zeros((*worlds, 0), lower.dtype), *rows], axis=-1), inverse


def _blocks(size: int) -> tuple[tuple[int, int], ...]:
    """Returns where the blocks of rows of a matrix begin and end."""
    count = -(-size // BLOCK)
    ends = [size * k // count for k in range(count + 1)] if count else []
    return tuple(pairwise(ends))


def _unrolls(matrix: Array) -> bool:
    return 0 < matrix.shape[-1] <= UNROLLED_UP_TO


@ruled
def _solve(packed: Array, inverse: Array, b: Array) -> Array:
    return rmatvec(inverse, matvec(inverse, b))


@_solve.def_vmap
def _solve_worlds(size: int, batched: Any, packed: Array, inverse: Array, b: Array) -> tuple[Array, bool]:
    of_factor, _, of_side = batched
    if not any(batched):  # Only the tangents of a batch are.
        return rmatvec(inverse, matvec(inverse, b)), False
    if not (of_factor and _unrolls(inverse)):
        axes = [0 if x else None for x in batched[1:]]
        return jax.vmap(lambda w, y: rmatvec(w, matvec(w, y)), in_axes=axes)(inverse, b), True
    b = b.T if of_side else jnp.broadcast_to(b[:, None], (b.shape[0], size))
    if on_accelerator():
        rows = jnp.moveaxis(inverse, 0, -1)
        return jnp.sum(rows * jnp.sum(rows * b, axis=1)[:, None], axis=0).T, True
    return _substitute(packed.T, b).T, True


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


@jax.jit
def _eliminated(matrix: Array) -> tuple[Array, Array]:
    """Returns the packed form (p, worlds) and W (n, n, worlds) for A (n, n, worlds). A unit, which is traced once in a program."""
    size = matrix.shape[0]
    packed = _eliminate(matrix, _blocks(size))
    return packed, _inverse_of_packed(packed, size)


def _eliminate(matrix: Array, blocks: tuple[tuple[int, int], ...]) -> Array:
    """Returns the packed form (p, worlds) for A (n, n, worlds), see `Cholesky`.

    Row j is its column of A, less the products with the rows before it, over the root of its pivot; where it belongs to the inverse of its
    diagonal block, it is that of the identity in place of A's. Of rows before it, that have entries of L where this one has the inverse's,
    only those of the inverse count there.
    """
    size, limit = matrix.shape[0], rounding(matrix.shape[0], matrix.dtype)
    rows: list[tuple[int, Array]] = []
    for start, end in blocks:
        places = np.arange(start, size)
        shape = (size - start, *matrix.shape[2:])
        zero = jax.lax.full(shape, 0, matrix.dtype)

        def spread(x: Any, shape: tuple[int, ...] = shape) -> Array:
            return jax.lax.broadcast_in_dim(x, shape, (0,))

        for j in range(start, end):
            column = jax.lax.index_in_dim(_cut(matrix, start), j, 1, keepdims=False)
            entry = _cut(column, j - start, j - start + 1)
            factors = [_cut(row, j - first, j - first + 1) for first, row in rows]
            pivot = _less_products(entry, factors, factors)
            rest = jax.lax.select(spread(places > j), column, spread((places == j).astype(matrix.dtype)))
            for k, ((first, row), factor) in enumerate(zip(rows, factors, strict=True)):
                product = _cut(row, start - first) * factor
                counts = (places > j) | ((places <= k) & (k >= start))
                rest = rest - (product if counts.all() else jax.lax.select(spread(counts), product, zero))
            rows.append((start, rest / jnp.sqrt(jnp.where(pivot > limit * entry, pivot, jnp.nan))))
    return jnp.concatenate([row for _, row in rows])


def _cut(x: Array, start: int, end: int | None = None) -> Array:
    """Returns x[start:end]; indexing takes longer to trace."""
    return jax.lax.slice_in_dim(x, start, end)


def _parts(packed: Array, size: int) -> list[tuple[Array, Array]]:
    """Returns of each block of a packed form (p, worlds) the inverse of its diagonal block, and the columns of L below, as rows."""
    parts, begin = [], 0
    for start, end in _blocks(size):
        count = (end - start) * (size - start)
        rows = _cut(packed, begin, begin + count).reshape(end - start, size - start, *packed.shape[1:])
        parts.append((_lower(rows[:, : end - start]), rows[:, end - start :]))
        begin += count
    return parts


def _lower(matrix: Array) -> Array:
    """Returns the lower triangle of a matrix (n, n, worlds), and zeros."""
    return jnp.where(np.tri(len(matrix), dtype=bool).reshape(*matrix.shape[:2], *[1] * (matrix.ndim - 2)), matrix, 0)


def _inverse(matrix: Array) -> Array:
    """Returns W (n, n, worlds) for A (n, n, worlds): all of it is one block."""
    return _lower(_eliminate(matrix, ((0, len(matrix)),)).reshape(matrix.shape))


def _inverse_of_packed(packed: Array, size: int) -> Array:
    """Returns W (n, n, worlds) of a packed form (p, worlds): of n unit vectors the first half of a substitution."""
    eye = jnp.eye(size, dtype=packed.dtype).reshape(size, size, *[1] * (packed.ndim - 1))
    rest = jnp.broadcast_to(eye, (size, size, *packed.shape[1:]))
    done = []
    for inverse, below in _parts(packed, size):
        count = len(inverse)
        done.append(jnp.sum(inverse[:, :, None] * rest[:count], axis=1))
        rest = rest[count:] - jnp.sum(below[:, :, None] * done[-1][:, None], axis=0)
    return jnp.concatenate(done)


def _eliminate_entries(matrix: Array) -> tuple[Array, Array]:
    """Returns L and W (n, n, worlds) for A (n, n, worlds), entry by entry.

    What `_eliminate` computes, but of single entries of all worlds: accelerators make a handful of kernels of them, where every column
    would be two of its own.
    """
    size = matrix.shape[0]
    limit = rounding(size, matrix.dtype)
    lower: list[list[Array]] = [[] for _ in range(size)]
    inverse: list[list[Array]] = [[] for _ in range(size)]
    for i, row in enumerate(lower):
        for j, other in enumerate(lower[:i]):
            row.append(_less_products(matrix[i, j], row, other) / other[j])
        pivot = _less_products(matrix[i, i], row, row)
        row.append(jnp.sqrt(jnp.where(pivot > limit * matrix[i, i], pivot, jnp.nan)))
    for i, row in enumerate(lower):
        for j in range(i):
            below = [inverse[k][j] for k in range(j, i)]
            inverse[i].append(_less_products(jnp.zeros_like(row[i]), row[j:i], below) / row[i])
        inverse[i].append(1.0 / row[i])
    return _triangle(lower), _triangle(inverse)


def _less_products(entry: Array, left: Sequence[Array], right: Sequence[Array]) -> Array:
    """Returns the entry less the products of two lists of others, as far as both go."""
    for x, y in zip(left, right, strict=False):
        entry = entry - x * y
    return entry


def _triangle(rows: list[list[Array]]) -> Array:
    """Returns the lower triangular matrix (n, n, worlds) of rows that end at the diagonal."""
    zero = jnp.zeros_like(rows[0][0])
    return jnp.stack([jnp.stack([*row, *[zero] * (len(rows) - len(row))]) for row in rows])


def _substitute(packed: Array, b: Array) -> Array:
    """Returns A^-1 b (n, worlds) for a packed form (p, worlds)."""
    return (_substituted if len(b) <= SUMMED_UP_TO else _substituted_once)(packed, b)


def _substituted(packed: Array, b: Array) -> Array:
    parts, rest = _parts(packed, len(b)), b
    done: list[Array] = []
    for inverse, below in parts:
        done.append(jnp.sum(inverse * _cut(rest, 0, len(inverse)), axis=1))
        rest = _cut(rest, len(inverse)) - jnp.sum(below * done[-1][:, None], axis=0)
    x = rest
    for (inverse, below), y in zip(reversed(parts), reversed(done), strict=True):
        rest = y - jnp.sum(below * x, axis=1) if len(x) else y
        x = jnp.concatenate([jnp.sum(inverse * rest[:, None], axis=0), x])
    return x


_substituted_once = outlined(_substituted)
