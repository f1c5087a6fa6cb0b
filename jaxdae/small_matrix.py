"""Dense linear algebra on small matrices: LAPACK for one, unrolled code for a batch.

The matrices of a mechanism are tiny (2 to some 40 rows) and there are many of them. LAPACK spends about 0.7 us on an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead; in a batch the same work takes a fifth of that when it is written as elementwise
operations over the worlds, under two conditions:

* The world axis is the last, contiguous one. `jax.vmap` moves it to the front, so the factorizations have a batching rule of their own
  that runs the unrolled code with worlds last.
* Nothing is computed twice. XLA's CPU backend copies cheap operations into every consumer but keeps the results of square roots,
  divisions and sums over an axis; every row of factors therefore ends with a division, and every step of a substitution with such a sum.

What takes time to compile is the number of kernels, some 10 ms each, however short, and three times that where arrays are put together in
one. A batch therefore goes block by block, up to `BLOCK` rows at a time. A block is two kernels a row. All else is a sum over the rows of a
block, one kernel each: what is left of the matrix below it, and every step of a substitution. From 5 rows on factorizations and
substitutions are compiled once for all matrices of that size in a program (`outlining`). The step of a five-bar compiles in 0.86 to 0.95
of the time of code that is written out row by row everywhere, and takes 0.97 to 1.03 of the time to run.

A factorization returns what a batch solves with, and the inverse W of L. For a single matrix, which goes to LAPACK, a solve is two products
with W, cheaper than two LAPACK calls. In a batch it is the substitution; W is then not computed where nobody asks for it, because XLA drops
what is not used. A batch of matrices with more than `UNROLLED_UP_TO` rows goes to LAPACK as well.

On accelerators the number of kernels counts, and a substitution is one for every row or two. There a solve of a batch is two products with
W, two kernels, or one with A^-1 where nobody asks for W; the bound of their errors is the same. Factors are computed entry by entry, of
more than `ENTRIES_UP_TO` rows by halves, which XLA fuses: a step of Andrews' mechanism with 20 rows is 155 kernels, row by row it was 352.

The functions with a batching rule are not meant to be differentiated: they stand inside solves whose derivative is given by the implicit
function theorem (`saddle_point.derivative`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae._pytree import pytree
from jaxdae.batching.last import Ruled, over_worlds, worlds_back
from jaxdae.checkpointing import FACTOR, made_again, named
from jaxdae.devices import on_accelerator
from jaxdae.outlining import outlined
from jaxdae.thresholds import BLOCK, ENTRIES_UP_TO, UNROLLED_UP_TO
from jaxdae.typing import Leaf


def matvec(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Returns the product A x."""
    if _is_written(matrix.shape):
        return _added(column * entry for column, entry in zip(jnp.unstack(matrix, axis=1), jnp.unstack(x), strict=True))
    return matrix @ x


def rmatvec(matrix: Float[Array, "m n"], y: Float[Array, " m"]) -> Float[Array, " n"]:
    """Returns the product A^T y."""
    if _is_written(matrix.shape):
        return _added(row * entry for row, entry in zip(jnp.unstack(matrix), jnp.unstack(y), strict=True))
    return y @ matrix


def product_transposed(left: Float[Array, "m n"], right: Float[Array, "k n"]) -> Float[Array, "m k"]:
    """Returns the product A B^T."""
    if _is_written((*left.shape, right.shape[0])):
        return _added(a[:, None] * b for a, b in zip(jnp.unstack(left, axis=1), jnp.unstack(right, axis=1), strict=True))
    return left @ right.T


def _is_written(sizes: tuple[int, ...]) -> bool:
    """Returns whether products of matrices of these sizes are best written out term by term."""
    return on_accelerator() and min(sizes) > 0 and max(sizes) <= UNROLLED_UP_TO


def _added(terms: Iterable[Array]) -> Array:
    """Returns the sum of some terms, added one to the other."""
    return functools.reduce(operator.add, terms)


def diagonal(matrix: Float[Array, "... n n"]) -> Float[Array, "... n"]:
    """Returns the diagonal: every (n + 1)th entry. One slice; `jnp.diagonal` is twenty operations, with a choice by platform."""
    size = matrix.shape[-1]
    return matrix.reshape(*matrix.shape[:-2], size * size)[..., :: size + 1]


def add_diagonal(matrix: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Returns A + diag(d), without a scatter."""
    return matrix + np.eye(matrix.shape[-1], dtype=matrix.dtype) * diagonal[:, None]


Block: TypeAlias = tuple[Array, Array]


@pytree
class Cholesky:
    """A = L L^T in the two forms that solves take.

    Attributes:
        blocks: what those of a batch take, one after the other along the diagonal: the inverse of a block of L (m, m), and the columns of L
            below it, as rows (m, k). None of matrices that are not unrolled.
        inverse: W = L^-1 (n, n), lower triangular: A^-1 = W^T W.
    """

    blocks: tuple[tuple[Leaf, Leaf], ...]
    inverse: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns A^-1 b."""
        return _solve(self.blocks, self.inverse, b)


def cholesky(matrix: Float[Array, "n n"]) -> Cholesky:
    """Returns the Cholesky factor of a symmetric positive definite matrix, and its inverse.

    Only the lower triangle is read. Where a pivot is not positive, or no more than rounding errors of the diagonal entry it comes from, the
    factors are NaN: of a singular matrix, rounding would otherwise make usable-looking numbers.
    """
    return Cholesky(*named(_factorize(matrix), FACTOR))


@pytree
class Inverse:
    """A^-1 (n, n), symmetric: what accelerators solve with, in one product."""

    matrix: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns A^-1 b."""
        return _multiplied(self.matrix, b)


def solving_factors(matrix: Float[Array, "n n"]) -> Cholesky | Inverse:
    """Returns what solves with a symmetric positive definite matrix in the fewest kernels, or the fastest; NaN where `cholesky` is."""
    if on_accelerator() and _unrolls(matrix):
        return Inverse(named(_inverted(matrix), FACTOR))
    return cholesky(matrix)


def inverse_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns W (n, n), lower triangular with A^-1 = W^T W; see `cholesky`."""
    return _factorize(matrix)[1]


@Ruled
def _factorize(matrix: Array) -> tuple[tuple[Block, ...], Array]:
    return _factors(*_lapack(matrix))


@_factorize.def_vmap
def _factorize_worlds(size: int, batched: Any, matrix: Array) -> tuple[Any, Any]:
    if not (batched[0] and _unrolls(matrix)):
        factors = _factors(*_lapack(matrix))
    else:
        last = jnp.moveaxis(matrix, 0, -1)
        factors = _factors(*worlds_back(_eliminate_halves(last))) if on_accelerator() else worlds_back(_eliminated(last))
    return factors, jax.tree.map(lambda _: batched[0], factors)


def _factors(lower: Array, inverse: Array) -> tuple[tuple[Block, ...], Array]:
    """Returns the blocks and W (..., n, n) of L and W (..., n, n)."""
    columns, blocks = jnp.swapaxes(lower, -1, -2), _blocks(lower.shape[-1])
    return tuple((inverse[..., start:end, start:end], columns[..., start:end, end:]) for start, end in blocks), inverse


def _blocks(size: int) -> tuple[tuple[int, int], ...]:
    """Returns where the blocks of rows of a matrix begin and end."""
    count = -(-size // BLOCK) if size <= UNROLLED_UP_TO else 0
    ends = [size * k // count for k in range(count + 1)] if count else []
    return tuple(pairwise(ends))


def _unrolls(matrix: Array) -> bool:
    return 0 < matrix.shape[-1] <= UNROLLED_UP_TO


@Ruled
def _solve(blocks: tuple[Block, ...], inverse: Array, b: Array) -> Array:
    return rmatvec(inverse, matvec(inverse, b))


@_solve.def_vmap
def _solve_worlds(size: int, batched: Any, blocks: tuple[Block, ...], inverse: Array, b: Array) -> tuple[Array, bool]:
    _, of_factor, of_side = batched
    if not (of_factor or of_side):  # Only the tangents of a batch are.
        return rmatvec(inverse, matvec(inverse, b)), False
    if not (of_factor and _unrolls(inverse)):
        axes = [0 if x else None for x in batched[1:]]
        return jax.vmap(lambda w, y: rmatvec(w, matvec(w, y)), in_axes=axes)(inverse, b), True
    b = b.T if of_side else jnp.broadcast_to(b[:, None], (b.shape[0], size))
    if on_accelerator():
        rows = jnp.moveaxis(inverse, 0, -1)
        return jnp.sum(rows * jnp.sum(rows * b, axis=1)[:, None], axis=0).T, True
    return _substitute(jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), blocks), b).T, True


def _squared(inverse: Array) -> Array:
    """Returns A^-1 = W^T W (n, n, ...) of W."""
    return jnp.sum(inverse[:, :, None] * inverse[:, None], axis=0)


_inverted = over_worlds(lambda matrix: _squared(_factorize(matrix)[1]), lambda matrix: _squared(_eliminate_halves(matrix)[1]))
_multiplied = over_worlds(lambda matrix, b: jnp.sum(matrix * b, axis=1))


def rounding(size: int, dtype: Any) -> float:
    """Returns the fraction of a diagonal entry below which a pivot of a matrix of this size says nothing: 4 n eps."""
    return 4.0 * size * float(jnp.finfo(dtype).eps)


def lower_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Returns L of a matrix of any size by LAPACK, without the inverse; NaN where `cholesky` is."""
    return _lapack_lower(matrix)


def solved_by_factor(lower: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Returns A^-1 b for the Cholesky factor L of A, by LAPACK.

    For matrices of 21 to 40 rows of one world, with few solutions each: inverting L of 21 rows takes 2.2 us, both substitutions 1.
    """
    half = jax.lax.linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)[:, 0]


def _lapack_lower(matrix: Array) -> Array:
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    pivots, entries = (diagonal(x) for x in (lower, matrix))
    regular = jnp.all(pivots**2 > rounding(matrix.shape[-1], matrix.dtype) * entries, axis=-1)[..., None, None]
    return jnp.where(regular, lower, jnp.nan)


def _lapack(matrix: Array) -> tuple[Array, Array]:
    lower = _lapack_lower(matrix)
    eye = jnp.broadcast_to(np.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return lower, jax.lax.linalg.triangular_solve(lower, eye, left_side=True, lower=True)


@made_again
@jax.jit
def _eliminated(matrix: Array) -> tuple[tuple[Block, ...], Array]:
    """Returns the blocks of A (n, n, worlds) and W (n, n, worlds).

    A unit, which is traced once in a program. Checkpointed it is also one that loops do not take apart when they are differentiated: they
    would compute what is constant in it outside. Where a program runs on several devices, XLA's partitioner of JAX 0.9 reads memory that it
    has freed wherever a function returns constants, and sometimes crashes.
    """
    blocks = (_eliminate if len(matrix) < BLOCK else _eliminated_once)(matrix)
    return blocks, _inverse_of_blocks(blocks, matrix)


def _eliminate(matrix: Array) -> tuple[Block, ...]:
    """Returns the blocks of A (n, n, worlds), each of what is left of A, less the products with the blocks before it."""
    size = matrix.shape[0]
    limits = rounding(size, matrix.dtype) * matrix.reshape(size * size, *matrix.shape[2:])[:: size + 1]
    done: list[Block] = []
    for start, end in _blocks(size):
        width = end - start
        inverse, below = _factorized(jnp.swapaxes(matrix[:, :width], 0, 1), limits[start:end])
        done.append((inverse, below))
        matrix = matrix[width:, width:] - jnp.sum(below[:, :, None] * below[:, None], axis=0)
    return tuple(done)


def _factorized(columns: Array, limits: Array) -> Block:
    """Returns the first block of A, whose first m columns are given as rows (m, n, worlds); NaN where a pivot is not above its limit.

    Row j is its column of A, less the products with the rows before it, over the root of its pivot; up to the diagonal it is the column of
    the identity in place of A's, and only the rows of the inverse before it count. What is below comes from the columns themselves, not by
    products with the inverse: of a block whose rows nearly depend on each other these have errors as large as the pivots of later rows that
    do depend on others, which would then look usable.
    """
    width, places, shape = len(columns), np.arange(columns.shape[1]), columns.shape[1:]
    rows: list[Array] = []
    for j, column in enumerate(columns):
        factors = [_cut(row, j) for row in rows]
        pivot = _cut(column, j)
        row = jax.lax.select(_spread(places > j, shape), column, _spread((places == j).astype(column.dtype), shape))
        for k, (before, factor) in enumerate(zip(rows, factors, strict=True)):
            pivot = jax.lax.sub(pivot, jax.lax.mul(factor, factor))
            product = jax.lax.mul(before, jax.lax.broadcast_in_dim(factor, shape, range(len(shape))))
            counts = _spread((places > j) | (places <= k), shape)
            row = jax.lax.sub(row, jax.lax.select(counts, product, jax.lax.full_like(product, 0)))
        root = jnp.sqrt(jnp.where(pivot > _cut(limits, j), pivot, jnp.nan))
        rows.append(row / root)
    both = jnp.stack(rows)
    lower = np.tri(width, dtype=bool).reshape(width, width, *[1] * (columns.ndim - 2))
    return jnp.where(lower, both[:, :width], 0), both[:, width:]


_eliminated_once = outlined(_eliminate)


def _cut(x: Array, place: int) -> Array:
    """Returns x[place : place + 1]; indexing takes longer to trace."""
    return jax.lax.slice_in_dim(x, place, place + 1)


def _spread(x: Any, shape: tuple[int, ...]) -> Array:
    """Returns x along the first axis of an array of this shape, the same along the others."""
    return jax.lax.broadcast_in_dim(x, shape, (0,))


def _inverse_of_blocks(blocks: tuple[Block, ...], matrix: Array) -> Array:
    """Returns W (n, n, worlds) of the blocks of A (n, n, worlds): of n unit vectors the first half of a substitution."""
    units = jax.lax.broadcast_in_dim(np.eye(len(matrix), dtype=matrix.dtype), matrix.shape, (0, 1))
    return jax.vmap(lambda b: jnp.concatenate(_halfway(blocks, b)), in_axes=1, out_axes=1)(units)


def _eliminate_halves(matrix: Array, limits: Any = None) -> tuple[Array, Array]:
    """Returns L and W (n, n, worlds) for A (n, n, worlds), what `_eliminate` computes, as accelerators make few kernels of it.

    Entries of few rows; of more, those of the first half, the rows below by substitution, and those of what is left of the second half. A
    pivot has to be above its limit (n, worlds), see `factor_entries`. What is factorized is an array first unless it is tiny: the compiler
    would compute each of its entries anew for every reader.
    """
    size = len(matrix)
    matrix = matrix if size < BLOCK else jax.lax.optimization_barrier(matrix)
    if size <= ENTRIES_UP_TO:
        return _eliminate_entries(matrix, limits)
    limits = rounding(size, matrix.dtype) * matrix.reshape(size * size, -1)[:: size + 1] if limits is None else limits
    half, below = size // 2, []
    first, inverse = _eliminate_halves(matrix[:half, :half], limits[:half])
    for k, row in enumerate(first):
        entries = jnp.unstack(row)
        below.append(less_products(matrix[half:, k], entries, below) / entries[k])
    across = jax.lax.optimization_barrier(jnp.stack(below, axis=1))
    second, last = _eliminate_halves(matrix[half:, half:] - _products(across, across), limits[half:])
    corner = -jnp.sum(last[:, :, None] * _products(across, jnp.swapaxes(inverse, 0, 1)), axis=1)
    return _lower(first, across, second), _lower(inverse, corner, last)


def _products(left: Array, right: Array) -> Array:
    """Returns the product A B^T (m, k, worlds) of A (m, n, worlds) and B (k, n, worlds)."""
    return jnp.sum(left[:, None] * right, axis=2)


def _lower(first: Array, below: Array, second: Array) -> Array:
    """Returns a lower triangular matrix (n, n, worlds) of its blocks."""
    above = jnp.zeros_like(jnp.swapaxes(below, 0, 1))
    return jnp.concatenate([jnp.concatenate([first, below]), jnp.concatenate([above, second])], axis=1)


def _eliminate_entries(matrix: Array, limits: Any) -> tuple[Array, Array]:
    """Returns L and W (n, n, worlds) for A (n, n, worlds), entry by entry, with limits of pivots (n, worlds) as `factor_entries`."""
    size = matrix.shape[0]
    lower = factor_entries([[matrix[i, j] for j in range(i + 1)] for i in range(size)], limits)
    inverse: list[list[Array]] = [[] for _ in range(size)]
    for i, row in enumerate(lower):
        for j in range(i):
            below = [inverse[k][j] for k in range(j, i)]
            inverse[i].append(less_products(jnp.zeros_like(row[i]), row[j:i], below) / row[i])
        inverse[i].append(1.0 / row[i])
    return _triangle(lower), _triangle(inverse)


def factor_entries(matrix: Sequence[Sequence[Array]], limits: Any = None) -> list[list[Array]]:
    """Returns the rows of L, A = L L^T, up to the diagonal, of those of A; NaN where a pivot is not above its limit.

    Args:
        matrix: the rows of A up to the diagonal, of entries (worlds,) each.
        limits: of all pivots (n, worlds); None for what rounding errors of their diagonal entries are.
    """
    lower: list[list[Array]] = [[] for _ in matrix]
    for i, row in enumerate(lower):
        for j, other in enumerate(lower[:i]):
            row.append(less_products(matrix[i][j], row, other) / other[j])
        entry = matrix[i][i]
        pivot = less_products(entry, row, row)
        limit = rounding(len(matrix), pivot.dtype) * entry if limits is None else limits[i]
        row.append(jnp.sqrt(jnp.where(pivot > limit, pivot, jnp.nan)))
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


def _substitute(blocks: tuple[Block, ...], b: Array) -> Array:
    """Returns A^-1 b (n, worlds) for the blocks of A."""
    return (_substituted if len(b) < BLOCK else _substituted_once)(blocks, b)


def _substituted(blocks: tuple[Block, ...], b: Array) -> Array:
    x = b[len(b) :]
    for (inverse, below), y in zip(reversed(blocks), reversed(_halfway(blocks, b)), strict=True):
        rest = y - jnp.sum(below * x, axis=1) if len(x) else y
        x = jnp.concatenate([jnp.sum(inverse * rest[:, None], axis=0), x])
    return x


def _halfway(blocks: tuple[Block, ...], b: Array) -> list[Array]:
    """Returns L^-1 b, block by block, for b (n, worlds)."""
    done: list[Array] = []
    for inverse, below in blocks:
        done.append(jnp.sum(inverse * b[: len(inverse)], axis=1))
        b = b[len(inverse) :] - jnp.sum(below * done[-1][:, None], axis=0)
    return done


_substituted_once = outlined(_substituted)
