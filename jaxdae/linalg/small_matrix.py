"""Dense linear algebra on small matrices: LAPACK for one matrix, unrolled code for a batch.

A mechanism has many tiny matrices, of 2 to some 40 rows. LAPACK takes about 0.7 us for an 8 by 8 Cholesky
factorization and solve, nearly all of it overhead. In a batch, the same work takes a fifth of that time as
elementwise operations over the worlds, under two conditions:

* The batch axis is the last, contiguous axis. `jax.vmap` moves it to the front, so the factorizations have a
  batching rule of their own, which runs the unrolled code with the batch axis last.
* Nothing is computed twice. XLA's CPU backend duplicates cheap operations into every consumer, but stores the
  results of square roots, divisions and sums over an axis. Every row of factors therefore ends with a
  division, and every step of a substitution with such a sum.

The number of kernels determines the compile time: each takes some 10 ms, however short, and three times that
if it concatenates arrays. A batch is therefore processed block by block, up to `BLOCK` rows at a time. A
block takes two kernels per row. All other work is a sum over the rows of a block, one kernel each: the update
of the matrix below the block, and every step of a substitution. From 5 rows on, factorizations and
substitutions are compiled once per matrix size in a program (`outlining`). Relative to fully unrolled code,
the step of a five-bar takes 0.86 to 0.95 of the compile time and 0.97 to 1.03 of the run time.

A factorization returns the factors that solves of a batch use, and the inverse W of L. A single matrix goes
to LAPACK, and its solves are two products with W, which is cheaper than two LAPACK calls. Solves of a batch
are substitutions. XLA then drops the computation of W unless something else reads W. A batch of matrices with
more than `UNROLLED_UP_TO` rows also goes to LAPACK.

On accelerators the number of kernels determines the run time, and a substitution takes a kernel for every one
or two rows. There a solve of a batch is two products with W, two kernels, or one product with A^-1 if nothing
else reads W. Both have the same error bound. Factors are computed entry by entry up to `ENTRIES_UP_TO` rows
and by halves above, so that XLA fuses them: a step of Andrews' mechanism with 20 rows takes 155 kernels,
compared with 352 row by row.

Do not differentiate the functions with a batching rule. They are used inside solves whose derivative follows
from the implicit function theorem (`saddle_point.derivative`).
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

from jaxdae.base.dataclass import pytree
from jaxdae.compile.batch_last import Ruled, over_worlds, worlds_back
from jaxdae.compile.noinline import outlined
from jaxdae.compile.platform import on_accelerator
from jaxdae.compile.rematerialization import FACTOR, made_again, named
from jaxdae.compile.thresholds import BLOCK, ENTRIES_UP_TO, UNROLLED_UP_TO
from jaxdae.typing import Leaf


def matvec(matrix: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """Return the product A x."""
    if _is_written(matrix.shape):
        return _added(
            column * entry for column, entry in zip(jnp.unstack(matrix, axis=1), jnp.unstack(x), strict=True)
        )
    return matrix @ x


def rmatvec(matrix: Float[Array, "m n"], y: Float[Array, " m"]) -> Float[Array, " n"]:
    """Return the product A^T y."""
    if _is_written(matrix.shape):
        return _added(row * entry for row, entry in zip(jnp.unstack(matrix), jnp.unstack(y), strict=True))
    return y @ matrix


def product_transposed(left: Float[Array, "m n"], right: Float[Array, "k n"]) -> Float[Array, "m k"]:
    """Return the product A B^T."""
    if _is_written((*left.shape, right.shape[0])):
        return _added(
            a[:, None] * b for a, b in zip(jnp.unstack(left, axis=1), jnp.unstack(right, axis=1), strict=True)
        )
    return left @ right.T


def _is_written(sizes: tuple[int, ...]) -> bool:
    """Return whether to write products of matrices of these sizes term by term."""
    return on_accelerator() and min(sizes) > 0 and max(sizes) <= UNROLLED_UP_TO


def _added(terms: Iterable[Array]) -> Array:
    """Return the sum of the terms, added one after another."""
    return functools.reduce(operator.add, terms)


def diagonal(matrix: Float[Array, "... n n"]) -> Float[Array, "... n"]:
    """Return the diagonal, every (n + 1)th entry, as one slice.

    `jnp.diagonal` takes twenty operations, including a choice by platform.
    """
    size = matrix.shape[-1]
    return matrix.reshape(*matrix.shape[:-2], size * size)[..., :: size + 1]


def add_diagonal(matrix: Float[Array, "n n"], diagonal: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Return A + diag(d) without a scatter."""
    return matrix + np.eye(matrix.shape[-1], dtype=matrix.dtype) * diagonal[:, None]


Block: TypeAlias = tuple[Array, Array]


@pytree
class Cholesky:
    """The factorization A = L L^T in the two forms that solves use.

    Attributes:
        blocks: the form for batches, block by block along the diagonal: the inverse of a diagonal block of L
            (m, m), and the columns of L below the block, as rows (m, k). Empty for matrices that are not
            unrolled.
        inverse: W = L^-1 (n, n), lower triangular: A^-1 = W^T W.
    """

    blocks: tuple[tuple[Leaf, Leaf], ...]
    inverse: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return A^-1 b."""
        return _solve(self.blocks, self.inverse, b)


def cholesky(matrix: Float[Array, "n n"]) -> Cholesky:
    """Return the Cholesky factor of a symmetric positive definite matrix, and its inverse.

    Only the lower triangle is read. The factors are NaN if a pivot is not positive, or if it is within the
    rounding error of the diagonal entry that it comes from. Otherwise, rounding would turn a singular matrix
    into plausible numbers.
    """
    return Cholesky(*named(_factorize(matrix), FACTOR))


@pytree
class Inverse:
    """The symmetric matrix A^-1 (n, n), with which accelerators solve in one product."""

    matrix: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return A^-1 b."""
        return _multiplied(self.matrix, b)


def solving_factors(matrix: Float[Array, "n n"]) -> Cholesky | Inverse:
    """Return the fastest factors for solves with a symmetric positive definite matrix.

    On accelerators these are the factors with the fewest kernels. They are NaN if `cholesky` gives NaN.
    """
    if on_accelerator() and _unrolls(matrix):
        return Inverse(named(_inverted(matrix), FACTOR))
    return cholesky(matrix)


def inverse_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return W (n, n), lower triangular with A^-1 = W^T W; see `cholesky`."""
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
        factors = (
            _factors(*worlds_back(_eliminate_halves(last)))
            if on_accelerator()
            else worlds_back(_eliminated(last))
        )
    return factors, jax.tree.map(lambda _: batched[0], factors)


def _factors(lower: Array, inverse: Array) -> tuple[tuple[Block, ...], Array]:
    """Return the blocks and W (..., n, n), from L and W (..., n, n)."""
    columns, blocks = jnp.swapaxes(lower, -1, -2), _blocks(lower.shape[-1])
    return tuple(
        (inverse[..., start:end, start:end], columns[..., start:end, end:]) for start, end in blocks
    ), inverse


def _blocks(size: int) -> tuple[tuple[int, int], ...]:
    """Return the first row and the end of each block of rows of a matrix."""
    count = -(-size // BLOCK) if size <= UNROLLED_UP_TO else 0
    ends = [size * k // count for k in range(count + 1)] if count else []
    return tuple(pairwise(ends))


def _unrolls(matrix: Array) -> bool:
    return 0 < matrix.shape[-1] <= UNROLLED_UP_TO


@Ruled
def _solve(blocks: tuple[Block, ...], inverse: Array, b: Array) -> Array:
    return rmatvec(inverse, matvec(inverse, b))


@_solve.def_vmap
def _solve_worlds(
    size: int, batched: Any, blocks: tuple[Block, ...], inverse: Array, b: Array
) -> tuple[Array, bool]:
    _, of_factor, of_side = batched
    if not (of_factor or of_side):  # Only tangents are batched.
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
    """Return A^-1 = W^T W (n, n, ...) from W."""
    return jnp.sum(inverse[:, :, None] * inverse[:, None], axis=0)


_inverted = over_worlds(
    lambda matrix: _squared(_factorize(matrix)[1]), lambda matrix: _squared(_eliminate_halves(matrix)[1])
)
_multiplied = over_worlds(lambda matrix, b: jnp.sum(matrix * b, axis=1))


def rounding(size: int, dtype: Any) -> float:
    """Return the fraction of a diagonal entry below which a pivot is rounding error, 4 n eps for n rows."""
    return 4.0 * size * float(jnp.finfo(dtype).eps)


def lower_cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return L of a matrix of any size by LAPACK, without the inverse; NaN if `cholesky` gives NaN."""
    return _lapack_lower(matrix)


def solved_by_factor(lower: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Return A^-1 b from the Cholesky factor L of A, by LAPACK.

    This is for matrices of 21 to 40 rows of one world, with few solves each: the inversion of L with 21 rows
    takes 2.2 us, both substitutions take 1 us.
    """
    half = jax.lax.linalg.triangular_solve(lower, b[:, None], left_side=True, lower=True)
    return jax.lax.linalg.triangular_solve(lower, half, left_side=True, lower=True, transpose_a=True)[:, 0]


def _lapack_lower(matrix: Array) -> Array:
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    pivots, entries = (diagonal(x) for x in (lower, matrix))
    regular = jnp.all(pivots**2 > rounding(matrix.shape[-1], matrix.dtype) * entries, axis=-1)[
        ..., None, None
    ]
    return jnp.where(regular, lower, jnp.nan)


def _lapack(matrix: Array) -> tuple[Array, Array]:
    lower = _lapack_lower(matrix)
    eye = jnp.broadcast_to(np.eye(matrix.shape[-1], dtype=matrix.dtype), matrix.shape)
    return lower, jax.lax.linalg.triangular_solve(lower, eye, left_side=True, lower=True)


@made_again
@jax.jit
def _eliminated(matrix: Array) -> tuple[tuple[Block, ...], Array]:
    """Return the blocks of A (n, n, worlds) and W (n, n, worlds).

    JAX traces this jitted function once per program. `jax.checkpoint` also keeps the function whole in
    differentiated loops, which would otherwise hoist its constants. In programs for several devices, the
    partitioner of XLA in JAX 0.9 reads freed memory wherever a function returns constants, and sometimes
    crashes.
    """
    blocks = (_eliminate if len(matrix) < BLOCK else _eliminated_once)(matrix)
    return blocks, _inverse_of_blocks(blocks, matrix)


def _eliminate(matrix: Array) -> tuple[Block, ...]:
    """Return the blocks of A (n, n, worlds).

    Each block factorizes the remaining matrix: A minus the products with the preceding blocks.
    """
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
    """Return the first block of A, whose first m columns are given as rows (m, n, worlds).

    The result is NaN if a pivot is not above its limit. Row j is column j of A, minus the products with the
    preceding rows, divided by the root of its pivot. Up to the diagonal, column j of the identity replaces
    column j of A, and only the preceding rows of the inverse contribute.

    The rows below the block come from the columns themselves, not from products with the inverse. For a block
    of nearly dependent rows, such products have errors as large as the pivots of later dependent rows, which
    would then look usable.
    """
    width, places, shape = len(columns), np.arange(columns.shape[1]), columns.shape[1:]
    rows: list[Array] = []
    for j, column in enumerate(columns):
        factors = [_cut(row, j) for row in rows]
        pivot = _cut(column, j)
        row = jax.lax.select(
            _spread(places > j, shape), column, _spread((places == j).astype(column.dtype), shape)
        )
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
    """Return x[place : place + 1]; indexing takes longer to trace."""
    return jax.lax.slice_in_dim(x, place, place + 1)


def _spread(x: Any, shape: tuple[int, ...]) -> Array:
    """Broadcast a vector x along the first axis of an array of this shape."""
    return jax.lax.broadcast_in_dim(x, shape, (0,))


def _inverse_of_blocks(blocks: tuple[Block, ...], matrix: Array) -> Array:
    """Return W (n, n, worlds) from the blocks of A (n, n, worlds) by forward substitution."""
    units = jax.lax.broadcast_in_dim(np.eye(len(matrix), dtype=matrix.dtype), matrix.shape, (0, 1))
    return jax.vmap(lambda b: jnp.concatenate(_halfway(blocks, b)), in_axes=1, out_axes=1)(units)


def _eliminate_halves(matrix: Array, limits: Any = None) -> tuple[Array, Array]:
    """Return L and W (n, n, worlds) of A (n, n, worlds) with few kernels on accelerators.

    Few rows are factorized entry by entry. More rows are split in two halves: factorize the first half,
    compute the rows below it by substitution, and factorize the remaining matrix of the second half. A pivot
    must be above its limit (n, worlds), see `factor_entries`. A fusion barrier makes XLA store the matrix
    first unless it is tiny. Otherwise XLA would recompute each of its entries in every consumer.
    """
    size = len(matrix)
    matrix = matrix if size < BLOCK else jax.lax.optimization_barrier(matrix)
    if size <= ENTRIES_UP_TO:
        return _eliminate_entries(matrix, limits)
    limits = (
        rounding(size, matrix.dtype) * matrix.reshape(size * size, -1)[:: size + 1]
        if limits is None
        else limits
    )
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
    """Return the product A B^T (m, k, worlds) of A (m, n, worlds) and B (k, n, worlds)."""
    return jnp.sum(left[:, None] * right, axis=2)


def _lower(first: Array, below: Array, second: Array) -> Array:
    """Return a lower triangular matrix (n, n, worlds) from its blocks."""
    above = jnp.zeros_like(jnp.swapaxes(below, 0, 1))
    return jnp.concatenate([jnp.concatenate([first, below]), jnp.concatenate([above, second])], axis=1)


def _eliminate_entries(matrix: Array, limits: Any) -> tuple[Array, Array]:
    """Return L and W (n, n, worlds) of A (n, n, worlds), entry by entry.

    The limits of the pivots (n, worlds) are as in `factor_entries`.
    """
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
    """Return the rows of L up to the diagonal, A = L L^T; NaN if a pivot is not above its limit.

    Args:
        matrix: the rows of A up to the diagonal, with entries (worlds,) each.
        limits: the limits of all pivots (n, worlds); None for the rounding errors of the diagonal entries.
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
    """Subtract from an entry the products of two lists of entries, up to the length of the shorter list."""
    for x, y in zip(left, right, strict=False):
        entry = entry - x * y
    return entry


def _triangle(rows: list[list[Array]]) -> Array:
    """Return the lower triangular matrix (n, n, worlds) from rows that end at the diagonal."""
    zero = jnp.zeros_like(rows[0][0])
    return jnp.stack([jnp.stack([*row, *[zero] * (len(rows) - len(row))]) for row in rows])


def _substitute(blocks: tuple[Block, ...], b: Array) -> Array:
    """Return A^-1 b (n, worlds) from the blocks of A."""
    return (_substituted if len(b) < BLOCK else _substituted_once)(blocks, b)


def _substituted(blocks: tuple[Block, ...], b: Array) -> Array:
    x = b[len(b) :]
    for (inverse, below), y in zip(reversed(blocks), reversed(_halfway(blocks, b)), strict=True):
        rest = y - jnp.sum(below * x, axis=1) if len(x) else y
        x = jnp.concatenate([jnp.sum(inverse * rest[:, None], axis=0), x])
    return x


def _halfway(blocks: tuple[Block, ...], b: Array) -> list[Array]:
    """Return L^-1 b, block by block, for b (n, worlds)."""
    done: list[Array] = []
    for inverse, below in blocks:
        done.append(jnp.sum(inverse * b[: len(inverse)], axis=1))
        b = b[len(inverse) :] - jnp.sum(below * done[-1][:, None], axis=0)
    return done


_substituted_once = outlined(_substituted)
