"""Numerical factors of J J^T + C by elimination, and solutions with them; see `jaxdae.operators.elimination`.

A front is the matrix of the unknowns of a node and of its border, with the node's own unknowns first. Node
arrays may have further axes at the end, the batch axes.

The stored factors are X and L^-T S, which replaces L: the operations that eliminate the columns of [A; B]
turn an identity matrix below them into L^-T S. Solutions are then products with both, y = S (L^-T S)^T b and
x = (L^-T S) S (S y - X^T x of the border). The program does not unroll over the unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.batching.last import Ruled, joined, solved_by_worlds, worlds_back, worlds_last
from jaxdae.checkpointing import FACTOR, made_again, named
from jaxdae.operators.elimination import Elimination
from jaxdae.thresholds import DENSE_ROWS_UP_TO
from jaxdae.trees.sweep import inward, outward
from jaxdae.typing import Leaf


@pytree
class EliminationFactors:
    """Factors of J J^T + C: by elimination for a batch or many rows, dense for few rows of one world.

    Attributes:
        order: the elimination order (static).
        lower: the Cholesky factor (nc, nc) of the dense matrix; infinite in a batch, (0, 0) for many rows.
        columns: [L^-T S; X] of all nodes (slots, own + border, own); infinite if `lower` is used.
    """

    order: Elimination = static()
    lower: Leaf
    columns: Leaf

    def solve(self, b: Float[Array, " nc"]) -> Float[Array, " nc"]:
        """Return (J J^T + C)^-1 b."""
        order = self.order

        def one(factors: Any, b: Any) -> Any:
            if not _is_small(order):
                return many(factors, b)
            return small_matrix.solved_by_factor(factors[0], b)

        def many(factors: Any, b: Any) -> Any:
            return _solved(order, factors[1], b)

        return solved_by_worlds(one, many)((self.lower, self.columns), b)


def _is_small(order: Elimination) -> bool:
    return len(order.connected) <= DENSE_ROWS_UP_TO


def eliminate(order: Elimination, sides: Sequence[Any], compliance: Any, gram: Callable[..., Any]) -> EliminationFactors:
    """Return the factors of J J^T + C; NaN if a pivot is within rounding error.

    Args:
        order: the elimination order.
        sides: the entries of all rows for the velocities of their first, second, ... bodies, (nc, width)
            each.
        compliance: C (nc,).
        gram: function from the sides to J J^T (nc, nc), of which only the lower triangle is read.
    """
    rows, shape = len(order.connected), (len(order.numbers), sum(order.sizes), order.sizes[0])

    @Ruled
    def factorized(compliance: Any, *sides: Any) -> tuple[Any, Any]:
        if not _is_small(order):
            return jnp.zeros((0, 0), compliance.dtype), _made(order, compliance, *sides)
        matrix = small_matrix.add_diagonal(gram(sides), compliance)
        return small_matrix.lower_cholesky(matrix), jnp.full(shape, jnp.inf, compliance.dtype)

    @factorized.def_vmap
    def worlds(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        if not any(batched):
            return factorized(*arguments), (False, False)
        soft, *rest = worlds_last(size, batched, arguments)
        # Without compliance, C is a constant. If it were broadcast to all worlds, the compiler would take a
        # second to look up each of its zeros.
        columns = worlds_back(_made(order, soft if batched[0] else arguments[0][:, None], *rest))
        return (jnp.full((rows, rows) if _is_small(order) else (0, 0), jnp.inf, columns.dtype), columns), (False, True)

    return EliminationFactors(order, *named(factorized(compliance, *sides), FACTOR))


def constant(values: Any, like: Any, axes: int) -> Any:
    """Return constants as an array with `axes` trailing axes of size one."""
    return jnp.asarray(values, like.dtype).reshape(*np.shape(values), *[1] * axes)


def _unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rematerialized function (order, *arrays) that JAX traces once per program.

    A step factorizes up to three times and solves four times. The tracing time of a step falls to 0.7 of its
    value.
    """
    return made_again(jax.jit(function, static_argnums=0), static_argnums=0)


@_unit
def _made(order: Elimination, compliance: Any, *sides: Any) -> Any:
    """Return [L^-T S; X] (slots, own + border, own, ...) for rows (nc, width, ...) and C (nc, ...)."""
    return _factorized(order, _assembled(order, sides, compliance))


def _assembled(order: Elimination, sides: Sequence[Any], compliance: Any) -> Any:
    """Assemble the first columns of all fronts (slots, own + border, own, ...).

    The rows have the shape (nc, width, ...) and C has the shape (nc, ...).
    """
    first, own = sides[0], order.sizes[0]
    rows, worlds = len(order.connected), first.ndim - 2
    parts = *sides, jnp.zeros_like(first[:1])
    # The rows had the batch axis first. The outlined `joined` transposes them once, not per front.
    entries = joined(*parts) if worlds else jnp.concatenate(parts)
    one, *more = (on[:, :, None] * on[:, None, :own] for on in (entries[numbers] for numbers in order.sides))
    columns = jnp.sum(sum(more, one), axis=3)
    if order.unknowns > rows:
        columns = columns + entries.reshape(-1, *entries.shape[2:])[order.motions]
    # The diagonal: C for rows, -1 for motions, and the sign of the node, 1 or -1, for padding.
    soft = jnp.concatenate([compliance, jnp.zeros_like(compliance[:1])])[np.minimum(order.numbers, rows)]
    ones = np.where(order.numbers < rows, 0.0, order.signs[:, None])
    eye = constant(np.eye(sum(order.sizes), order.sizes[0])[None], first, worlds)
    return columns + eye * (soft + constant(ones, first, worlds))[:, None]


def _factorized(order: Elimination, columns: Any) -> Any:
    """Return [L^-T S; X] (slots, own + border, own, ...) from the first columns of the fronts.

    An identity matrix below the columns turns into L^-T S, as the rows of the border turn into X. After all
    columns are eliminated, one pass updates the remaining matrix of the border.
    """
    own, border = order.sizes
    worlds, sizes = columns.ndim - 3, columns.shape[3:]
    limit = small_matrix.rounding(len(order.connected), columns.dtype)
    eye = constant(np.eye(own), columns, worlds)

    def step(mine: Any, given: Any) -> tuple[Any, Any]:
        columns, sign, passed, entries = mine

        def eliminate_one(pending: Any, at: Any) -> tuple[Any, Any]:
            j, entry = at
            column = jax.lax.dynamic_index_in_dim(pending, j, 2, keepdims=False)
            pivot = sign[:, 0] * jax.lax.dynamic_index_in_dim(column, j, 1, keepdims=False)
            regular: Any = jnp.where(pivot > limit * jnp.abs(entry), pivot, jnp.nan)
            # Empty slots have the sign zero. Their pivots are set to one.
            safe: Any = jnp.where(sign[:, 0] == 0.0, 1.0, regular)
            column = sign * column / jnp.sqrt(safe)[:, None]
            return pending - sign[:, None] * column[:, :, None] * column[:, None, :own], column

        ones = jnp.broadcast_to(eye, (columns.shape[0], own, own, *sizes))
        pending = jnp.concatenate([given[:, :, :own] + columns, ones], axis=1)
        found = jax.lax.scan(eliminate_one, pending, (np.arange(own), jnp.moveaxis(entries, 1, 0)), unroll=own)[1]
        beyond, inverse = found[:, :, own : own + border], found[:, :, own + border :]
        rest = given[:, own:, own:]
        for j in range(own):
            rest = rest - sign[:, None] * beyond[j][:, :, None] * beyond[j][:, None]
        if order.aligned:
            gives = _padded(_padded(rest, own, 1), own, 2)
        else:
            gives = jnp.sum(jnp.sum(passed[:, :, :, None] * rest[:, None], axis=2)[:, :, None] * passed[:, None], axis=3)
        return gives, jnp.moveaxis(jnp.concatenate([inverse, beyond], axis=2), 0, 2)

    # Pivots are compared with the diagonal before elimination.
    entries = jnp.stack([columns[:, j, j] for j in range(own)], axis=1)
    signs, passed = constant(order.signs[:, None], columns, worlds), constant(order.passed, columns, worlds)
    nothing = jnp.zeros((own + border, own + border, *sizes), columns.dtype)
    return inward(order.tree, step, (columns, signs, passed, entries), nothing)


@_unit
def _solved(order: Elimination, columns: Any, b: Any) -> Any:
    """Return (J J^T + C)^-1 b (nc, ...) from the factors (slots, own + border, own, ...)."""
    own, border = order.sizes
    worlds, sizes = b.ndim - 1, b.shape[1:]
    padded = jnp.concatenate([b, jnp.zeros((order.unknowns + 1 - b.shape[0], *sizes), b.dtype)])
    signs, passed = constant(order.signs[:, None], b, worlds), constant(order.passed, b, worlds)

    def down(mine: Any, given: Any) -> tuple[Any, Any]:
        columns, sign, passed, b = mine
        y = jnp.sum(columns[:, :own] * (given[:, :own] + b)[:, :, None], axis=1)
        rest = given[:, own:] - jnp.sum(columns[:, own:] * (sign * y)[:, None], axis=2)
        return _padded(rest, own, 1) if order.aligned else jnp.sum(passed * rest[:, None], axis=2), y

    def up(mine: Any, front: Any) -> tuple[Any, Any]:
        columns, sign, passed, y = mine
        beyond = front[:, :border] if order.aligned else jnp.sum(passed * front[:, :, None], axis=1)
        rest = sign * (y - jnp.sum(columns[:, own:] * beyond[:, :, None], axis=1))
        x = jnp.sum(columns[:, :own] * rest[:, None], axis=2)
        return jnp.concatenate([x, beyond], axis=1), x

    nothing = jnp.zeros((own + border, *sizes), b.dtype)
    y = inward(order.tree, down, (columns, signs, passed, padded[order.numbers]), nothing)
    x = outward(order.tree, up, (columns, signs, passed, y), nothing)
    where = np.zeros(order.unknowns + 1, int)  # The entry of the padding is not read.
    where[order.numbers.reshape(-1)] = np.arange(order.numbers.size)
    return x.reshape(-1, *sizes)[where[: b.shape[0]]]


def _padded(entry: Any, more: int, axis: int) -> Any:
    """Append `more` zeros along an axis."""
    return jnp.pad(entry, [(0, more if k == axis else 0) for k in range(entry.ndim)])


def present(pivot: Any) -> Any:
    """Return the pivot, and one for empty slots, which have a pivot of zero."""
    return jnp.where(pivot == 0.0, 1.0, pivot)
