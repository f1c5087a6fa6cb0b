"""Numerical factors of J J^T + C by elimination, and solutions with them; see `jaxdae.matrices.elimination`.

A front is the matrix of the unknowns of a node and of its border, with the node's own unknowns first. In
terms of `jaxdae.matrices.cholesky_tree`, the joint unknowns of a node are its front. D and Q select its own
unknowns and its border, and R contains the positions of the border in the front of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.batch_factors import Factors, by_columns
from jaxdae.compile.batch_last import joined
from jaxdae.compile.rematerialization import FACTOR, made_again, named
from jaxdae.compile.thresholds import DENSE_ROWS_UP_TO
from jaxdae.linalg import small_matrix
from jaxdae.matrices.cholesky_tree import constant, eliminate, inverses, remaining, solve
from jaxdae.matrices.elimination import Elimination
from jaxdae.trees.tree_sweeps import inward


@pytree
class EliminationFactors:
    """Factors of J J^T + C: by elimination for a batch or many rows, dense for few rows of one world.

    Attributes:
        order: the elimination order (static).
        factors: the Cholesky factor L (nc, nc) of the dense matrix; or A^-1 (slots, own, own) and H (slots,
            own + border, own) of all nodes, see `jaxdae.matrices.cholesky_tree`.
    """

    order: Elimination = static()
    factors: Factors

    def solve(self, b: Float[Array, " nc"]) -> Float[Array, " nc"]:
        """Return (J J^T + C)^-1 b."""
        dense = by_columns(lambda factors, b: small_matrix.solved_by_factor(factors[0], b))
        recursive = by_columns(lambda factors, b: _solved(self.order, factors, b))
        return self.factors.solve(dense, recursive, b[:, None])[:, 0]


def factorize(
    order: Elimination, sides: Sequence[Any], compliance: Any, gram: Callable[..., Any]
) -> EliminationFactors:
    """Return the factors of J J^T + C; NaN if a pivot is within rounding error.

    Args:
        order: the elimination order.
        sides: the entries of all rows for the velocities of their first, second, ... bodies, (nc, width)
            each.
        compliance: C (nc,).
        gram: function from the sides to J J^T (nc, nc), of which only the lower triangle is read.
    """
    rows, slots, own = len(order.connected), len(order.numbers), order.sizes[0]

    def dense(*arguments: Any) -> tuple[Any, ...]:
        *sides, compliance = arguments
        return (small_matrix.lower_cholesky(small_matrix.add_diagonal(gram(sides), compliance)),)

    def recursive(*arguments: Any) -> tuple[Any, ...]:
        return _factorized(order, *arguments)

    shapes = ((rows, rows),), ((slots, own, own), (slots, sum(order.sizes), own))
    found = Factors.of(
        dense, recursive, (*sides, compliance), is_small=rows <= DENSE_ROWS_UP_TO, shapes=shapes
    )
    return EliminationFactors(order, named(found, FACTOR))


def _unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rematerialized function (order, *arrays) that JAX traces once per program.

    A step factorizes up to three times and solves four times. The tracing time of a step falls to 0.7 of its
    value.
    """
    return made_again(jax.jit(function, static_argnums=0), static_argnums=0)


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


def _signs(order: Elimination, like: Any, lanes: int) -> Any:
    return constant(np.repeat(order.signs[:, None], order.sizes[0], axis=1), like, lanes)


@_unit
def _factorized(order: Elimination, *arguments: Any) -> Any:
    """Return A^-1 (slots, own, own, ...) and H (slots, own + border, own, ...).

    The arguments are the sides of the rows (nc, width, ...) and C (nc, ...).
    """
    *sides, compliance = arguments
    own, border = order.sizes
    columns = _assembled(order, sides, compliance)
    lanes = columns.ndim - 3

    def step(mine: Any, given: Any) -> tuple[Any, Any]:
        columns, signs, passed, limits = mine
        inverse, below = eliminate(given[:, :, :own] + columns, signs, limits)
        rest = remaining(given[:, own:, own:], below, signs)
        if order.aligned:
            gives = jnp.pad(rest, [(0, 0), (0, own), (0, own), *[(0, 0)] * lanes])
        else:
            gives = jnp.sum(
                jnp.sum(passed[:, :, :, None] * rest[:, None], axis=2)[:, :, None] * passed[:, None], axis=3
            )
        return gives, (inverse, below)

    # Pivots are compared with the diagonal before elimination.
    diagonal = jnp.stack([columns[:, j, j] for j in range(own)], axis=1)
    limits = small_matrix.rounding(len(order.connected), columns.dtype) * jnp.abs(diagonal)
    signs, passed = _signs(order, columns, lanes), constant(order.passed, columns, lanes)
    nothing = jnp.zeros((own + border, own + border, *columns.shape[3:]), columns.dtype)
    found = inward(order.tree, step, (columns, signs, passed, limits), nothing)
    inverse, below = inverses(found[0], found[1], signs)
    return inverse, jnp.sum(passed[:, :, :, None] * below[:, None], axis=2)


class _Joints(NamedTuple):
    """The relations of a front to its parent, whose data are 0/1 matrices (slots, own + border, border)."""

    own: int
    border: int
    aligned: bool

    def own_part(self, own: Any, g: Any) -> Any:
        return g[:, : self.own]

    def border_part(self, own: Any, g: Any) -> Any:
        rest = g[:, self.own :]
        if self.aligned:
            return jnp.pad(rest, [(0, 0), (0, self.own), *[(0, 0)] * (g.ndim - 2)])
        return jnp.sum(own * rest[:, None], axis=2)

    def joint(self, own: Any, x: Any, z: Any) -> Any:
        beyond = z[:, : self.border] if self.aligned else jnp.sum(own * z[:, :, None], axis=1)
        return jnp.concatenate([x, beyond], axis=1)


@_unit
def _solved(order: Elimination, factors: Any, b: Any) -> Any:
    """Return (J J^T + C)^-1 b (nc, ...) from A^-1 and H."""
    lanes, sizes = b.ndim - 1, b.shape[1:]
    padded = jnp.concatenate([b, jnp.zeros((order.unknowns + 1 - b.shape[0], *sizes), b.dtype)])
    own = constant(order.passed, b, lanes)
    x = solve(
        order.tree, _Joints(*order.sizes, order.aligned), own, factors[0], factors[1], padded[order.numbers]
    )
    where = np.zeros(order.unknowns + 1, int)  # The entry of the padding is not read.
    where[order.numbers.reshape(-1)] = np.arange(order.numbers.size)
    return x.reshape(-1, *sizes)[where[: b.shape[0]]]
