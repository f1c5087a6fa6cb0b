"""Rows that connect two bodies each: a Jacobian as blocks with static indices, never as a matrix.

A joint sees two bodies, so that a row of J has entries in the velocities of two bodies only. Stored as these, J x and J^T y take
as many operations as there are rows, whatever the number of bodies, and J J^T has entries where two rows share a body.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.operators.elimination import elimination
from jaxdae.operators.elimination_factors import eliminate
from jaxdae.operators.jacobian import GramFactors, JacobianOperator
from jaxdae.typing import Leaf

ELIMINATED_FROM = small_matrix.UNROLLED_UP_TO + 1
"""The number of rows from which J J^T is factorized without being formed. Chains of hinges, one world / each of 64, us a step: with 24 rows
8.8 / 6.4 as a matrix and 13 / 1.6 by elimination, with 128 rows 440 / 605 and 45 / 8."""


@pytree
class BlockRows(JacobianOperator):
    """J with entries in the velocities of two bodies a row.

    Attributes:
        first: (nc, width), the entries of each row in the velocities of its first body: width 3 in the plane, 6 in space.
        second: (nc, width), those of its second body.
        a: the first body of each row; `bodies` for the ground, which has no columns (static).
        b: the second body of each row, another than the first (static).
        bodies: how many there are; nv = bodies width (static).
    """

    first: Leaf
    second: Leaf
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    bodies: int = static()

    @property
    def shape(self) -> tuple[int, int]:
        """Returns (nc, nv)."""
        return len(self.a), self.bodies * self.first.shape[-1]

    @property
    def dtype(self) -> Any:
        """Returns the type of the numbers."""
        return self.first.dtype

    def _of_bodies(self, entries: Any, ground: float = 0.0) -> tuple[Any, Any]:
        """Returns the entries (bodies, ...) of both bodies of each row, 2 x (nc, ...)."""
        padded = jnp.concatenate([entries, jnp.full((1, *entries.shape[1:]), ground, entries.dtype)])
        return padded[np.asarray(self.a, int)], padded[np.asarray(self.b, int)]

    def _to_bodies(self, first: Any, second: Any) -> Any:
        """Returns the sums (bodies, ...) over the rows of each body."""
        at = np.asarray((*self.a, *self.b), int)
        return jax.ops.segment_sum(jnp.concatenate([first, second]), at, self.bodies + 1)[:-1]

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Returns J x."""
        of_a, of_b = self._of_bodies(x.reshape(self.bodies, -1))
        return jnp.sum(self.first * of_a + self.second * of_b, axis=1)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Returns J^T y."""
        return self._to_bodies(self.first * y[:, None], self.second * y[:, None]).reshape(-1)

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Returns the matrix as an array."""
        eye = np.eye(self.bodies + 1)[:, :-1]
        side_a, side_b = (jnp.asarray(eye[list(side)].reshape(-1, self.bodies), self.dtype)[:, :, None] for side in (self.a, self.b))
        return (side_a * self.first[:, None, :] + side_b * self.second[:, None, :]).reshape(self.shape)

    def masked(self, active: Bool[Array, " nc"]) -> BlockRows:
        """Returns J with zeros in the rows that are not active."""
        first, second = (jnp.where(active[:, None], side, 0.0) for side in (self.first, self.second))
        return BlockRows(first, second, self.a, self.b, self.bodies)

    def between(self, start: int, stop: int) -> BlockRows:
        """Returns the rows start, ..., stop - 1."""
        return BlockRows(self.first[start:stop], self.second[start:stop], self.a[start:stop], self.b[start:stop], self.bodies)

    def over_columns(self, divisors: Float[Array, " nv"]) -> BlockRows:
        """Returns J diag(d)^-1, by blocks."""
        of_a, of_b = self._of_bodies(divisors.reshape(self.bodies, -1), ground=1.0)
        return BlockRows(self.first / of_a, self.second / of_b, self.a, self.b, self.bodies)

    def times_blocks(self, blocks: Float[Array, "k b b"]) -> JacobianOperator:
        """Returns J B with B block diagonal: by blocks where those of B are the bodies'."""
        if blocks.shape[0] != self.bodies:
            return super().times_blocks(blocks)
        of_a, of_b = self._of_bodies(blocks)
        first, second = (jnp.einsum("ri,rij->rj", side, block) for side, block in ((self.first, of_a), (self.second, of_b)))
        return BlockRows(first, second, self.a, self.b, self.bodies)

    def gram(self) -> Float[Array, "nc nc"]:
        """Returns J J^T, from the products of all pairs of blocks that share a body."""
        places, terms = _shared(self.a, self.b, self.bodies)
        sides = jnp.concatenate([self.first, self.second, jnp.zeros((1, self.first.shape[1]), self.dtype)])
        values = sum((jnp.sum(sides[left] * sides[right], axis=1) for left, right in terms), jnp.zeros(places.shape, self.dtype))
        rows = len(self.a)
        flat = jnp.zeros((rows * rows,), self.dtype)
        return flat.at[places].set(values, unique_indices=True, indices_are_sorted=True).reshape(rows, rows)

    def gram_factors(self, compliance: Float[Array, " nc"] | None) -> GramFactors:
        """Returns the factors of J J^T + C: by elimination over a tree where there are many rows, else of the matrix."""
        if len(self.a) < ELIMINATED_FROM:
            return super().gram_factors(compliance)
        order = elimination(self.a, self.b, self.bodies, self.first.shape[1])
        return eliminate(order, self.first, self.second, jnp.zeros_like(self.first[:, 0]) if compliance is None else compliance)

    def row_sizes(self) -> Float[Array, " nc"]:
        """Returns the largest magnitude in each row; the ground's entries do not count."""
        on_a, on_b = (np.asarray(side, int)[:, None] < self.bodies for side in (self.a, self.b))
        sizes = (jnp.max(jnp.where(on, jnp.abs(x), 0.0), axis=1) for on, x in ((on_a, self.first), (on_b, self.second)))
        return jnp.maximum(*sizes)

    def touched(self) -> Bool[Array, " nv"]:
        """Returns which columns have entries in any row."""
        entries = ((side != 0.0).astype(self.dtype) for side in (self.first, self.second))
        return (self._to_bodies(*entries) > 0.0).reshape(-1)


@functools.lru_cache(maxsize=64)
def _shared(a: tuple[int, ...], b: tuple[int, ...], bodies: int) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Returns the nonzero entries of J J^T as ascending places in the flat matrix, and the two blocks of each of its terms.

    Two rows share two bodies at most, so that there are two terms; blocks are numbered as those of `first`, of `second`, and one of zeros.
    """
    rows = len(a)
    incident: list[list[tuple[int, int]]] = [[] for _ in range(bodies)]
    for offset, side in ((0, a), (rows, b)):
        for row, body in enumerate(side):
            if body < bodies:
                incident[body].append((row, offset + row))
    terms: dict[int, list[tuple[int, int]]] = {}
    for blocks in incident:
        for i, left in blocks:
            for j, right in blocks:
                terms.setdefault(i * rows + j, []).append((left, right))
    places = np.asarray(sorted(terms), int)
    nothing = (2 * rows, 2 * rows)
    columns = [np.asarray([(*terms[p], nothing)[k] for p in places], int).reshape(-1, 2) for k in range(2)]
    return places, [(pairs[:, 0], pairs[:, 1]) for pairs in columns]
