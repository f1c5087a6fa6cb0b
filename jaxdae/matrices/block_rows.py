"""Jacobian rows that connect a few bodies each, stored as blocks with static indices.

A joint connects two bodies, so each row of J has entries for the velocities of two bodies. A relation between
the coordinates of two joints has entries for up to four bodies. With these blocks, the cost of J x and J^T y
grows with the number of rows, whatever the number of bodies. J J^T has an entry only where two rows share a
body.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.thresholds import TERMS_UP_TO, UNROLLED_UP_TO
from jaxdae.geometry.trigonometry import once
from jaxdae.matrices.elimination import elimination
from jaxdae.matrices.elimination_factors import factorize
from jaxdae.matrices.jacobian import GramFactors, JacobianOperator, softened_cholesky
from jaxdae.trees.tree_layout import padded_take
from jaxdae.typing import Leaf


@pytree
class BlockRows(JacobianOperator):
    """J with entries for the velocities of two or a few bodies per row.

    Attributes:
        first: (nc, width), the entries of each row for its first body; width is 3 in the plane and 6 in
            space.
        second: (nc, width), the entries of each row for its second body.
        a: the index of the first body of each row; `bodies` for the ground, which has no columns (static).
        b: the index of the second body of each row, different from the first (static).
        bodies: the number of bodies; nv = bodies width (static).
        further: (nc, sides, width), the entries of each row for its further bodies, zero for missing bodies;
            or None.
        others: the indices of the further bodies of each row, all different, at most as many as `further` has
            sides; empty if no row has further bodies (static).
    """

    first: Leaf
    second: Leaf
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    bodies: int = static()
    further: Leaf = None
    others: tuple[tuple[int, ...], ...] = static(default=())

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""
        return len(self.a), self.bodies * self.first.shape[-1]

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.first.dtype

    @property
    def connected(self) -> tuple[tuple[int, ...], ...]:
        """Return the bodies of each row."""
        return tuple(
            (*pair, *more)
            for *pair, more in zip(self.a, self.b, self.others or ((),) * len(self.a), strict=True)
        )

    @property
    def sides(self) -> tuple[Any, ...]:
        """Return the entries of all rows for their first, second, ... bodies, (nc, width) each."""
        more = () if self.further is None else tuple(self.further[:, k] for k in range(self.further.shape[1]))
        return self.first, self.second, *more

    @property
    def _numbers(self) -> list[np.ndarray]:
        """Return the indices (nc,) of the first, second, ... bodies of all rows.

        Rows with fewer bodies have the index of the ground there.
        """
        return [
            np.asarray([on[k] if k < len(on) else self.bodies for on in self.connected], int).reshape(-1)
            for k in range(len(self.sides))
        ]

    def _with(self, sides: Sequence[Any]) -> BlockRows:
        """Return rows on the same bodies with other entries."""
        first, second, *more = sides
        return BlockRows(
            first, second, self.a, self.b, self.bodies, jnp.stack(more, axis=1) if more else None, self.others
        )

    def _of_bodies(self, entries: Any, ground: float = 0.0) -> list[Any]:
        """Gather body data (bodies, ...) for the first, second, ... bodies of all rows, (nc, ...) each."""
        padded = jnp.concatenate([entries, jnp.full((1, *entries.shape[1:]), ground, entries.dtype)])
        return [padded[numbers] for numbers in self._numbers]

    def _to_bodies(self, sides: Sequence[Any]) -> Any:
        """Sum row data over the rows of each body (bodies, ...)."""
        return _by_joints(self._numbers, self.bodies, sides)

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""
        first, *more = (
            side * of
            for side, of in zip(self.sides, self._of_bodies(x.reshape(self.bodies, -1)), strict=True)
        )
        return jnp.sum(sum(more, first), axis=1)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        return self._to_bodies([side * y[:, None] for side in self.sides]).reshape(-1)

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Return the matrix as an array."""
        eye = np.eye(self.bodies + 1)[:, :-1]
        first, *more = (
            jnp.asarray(eye[numbers].reshape(-1, self.bodies), self.dtype)[:, :, None] * side[:, None, :]
            for numbers, side in zip(self._numbers, self.sides, strict=True)
        )
        total: Any = sum(more, first)
        return total.reshape(self.shape)

    def masked(self, active: Bool[Array, " nc"]) -> BlockRows:
        """Return J with zeros in inactive rows."""
        return self._with([jnp.where(active[:, None], side, 0.0) for side in self.sides])

    def between(self, start: int, stop: int) -> BlockRows:
        """Return the rows start, ..., stop - 1."""
        of = slice(start, stop)
        others = self.others[of]
        further = (
            None
            if self.further is None or not any(others)
            else self.further[of, : max(len(each) for each in others)]
        )
        return BlockRows(
            self.first[of],
            self.second[of],
            self.a[of],
            self.b[of],
            self.bodies,
            further,
            others if any(others) else (),
        )

    def over_columns(self, divisors: Float[Array, " nv"]) -> BlockRows:
        """Return J diag(d)^-1, computed by blocks."""
        of_bodies = self._of_bodies(divisors.reshape(self.bodies, -1), ground=1.0)
        return self._with([side / of for side, of in zip(self.sides, of_bodies, strict=True)])

    def times_blocks(self, blocks: Float[Array, "k b b"]) -> JacobianOperator:
        """Return J B with B block diagonal; as blocks if each body has one or several blocks of B."""
        count, size, _ = blocks.shape
        if count % self.bodies:
            return super().times_blocks(blocks)
        parts = count // self.bodies
        each = self._of_bodies(blocks.reshape(self.bodies, parts, size, size))
        # Sums instead of matrix products, for which the compiler calls a library routine per row. `once`
        # prevents XLA from recomputing the entries of the rows for each column of the blocks.
        sides = [
            jnp.sum(once(side).reshape(-1, parts, size, 1) * of, axis=2)
            for side, of in zip(self.sides, each, strict=True)
        ]
        return self._with([side.reshape(self.first.shape) for side in sides])

    def gram(self) -> Float[Array, "nc nc"]:
        """Return J J^T, from the products of all pairs of blocks that share a body."""
        lower = lower_gram(self.connected, self.bodies, self.sides)
        return lower + jnp.tril(lower, -1).T

    def gram_factors(self, compliance: Float[Array, " nc"] | None) -> GramFactors:
        """Return the factors of J J^T + C.

        Many rows are factorized by elimination over a tree, few rows as a dense matrix.
        """
        if len(self.a) <= UNROLLED_UP_TO:
            return softened_cholesky(lower_gram(self.connected, self.bodies, self.sides), compliance)
        order = elimination(self.connected, self.bodies, self.first.shape[1])
        soft = jnp.zeros_like(self.first[:, 0]) if compliance is None else compliance
        return factorize(order, self.sides, soft, functools.partial(lower_gram, self.connected, self.bodies))

    def row_sizes(self) -> Float[Array, " nc"]:
        """Return the largest magnitude in each row, ignoring entries for the ground."""
        sizes = (
            jnp.max(jnp.where(numbers[:, None] < self.bodies, jnp.abs(side), 0.0), axis=1)
            for numbers, side in zip(self._numbers, self.sides, strict=True)
        )
        return functools.reduce(jnp.maximum, sizes)

    def touched(self) -> Bool[Array, " nv"]:
        """Return which columns have a nonzero entry in any row."""
        return (self._to_bodies([(side != 0.0).astype(self.dtype) for side in self.sides]) > 0.0).reshape(-1)


def _by_joints(on: Sequence[np.ndarray], bodies: int, sides: Sequence[Any]) -> Any:
    """Sum sides over the rows of each body (bodies, ...); rows have the first, second, ... bodies `on`."""
    # In most mechanisms all joints have the same number of rows. Sum over the rows of each joint first.
    same = np.all([of[1:] == of[:-1] for of in on], axis=0)
    each = int(np.gcd.reduce(np.flatnonzero(~same) + 1, initial=len(on[0]))) or 1
    joints = np.concatenate([of[::each] for of in on])
    order = np.argsort(joints, kind="stable")
    ends = np.searchsorted(joints[order], np.arange(bodies + 1))
    entries = jnp.concatenate([jnp.sum(side.reshape(-1, each, *side.shape[1:]), axis=1) for side in sides])
    return _sums(entries, [order[begin:end] for begin, end in itertools.pairwise(ends)])


def _sums(entries: Any, groups: Sequence[np.ndarray]) -> Any:
    """Sum the entries (n, ...) of each group of indices (groups, ...).

    Add the first entries of all groups at once, then the second entries, and so on: CPUs run a scatter-add as
    a loop over the entries. Sum large groups in parts first, so that the number of terms does not grow with
    the largest group.
    """
    most = max((len(group) for group in groups), default=0)
    if most > TERMS_UP_TO:
        cut = [[group[k : k + TERMS_UP_TO] for k in range(0, len(group), TERMS_UP_TO)] for group in groups]
        ends = np.cumsum([0, *(len(parts) for parts in cut)])
        return _sums(
            _sums(entries, [part for parts in cut for part in parts]),
            [np.arange(a, b) for a, b in itertools.pairwise(ends)],
        )
    table = np.full((most, len(groups)), entries.shape[0])
    for number, group in enumerate(groups):
        table[: len(group), number] = group
    return sum(
        (padded_take(entries, numbers) for numbers in table),
        jnp.zeros((len(groups), *entries.shape[1:]), entries.dtype),
    )


def lower_gram(connected: tuple[tuple[int, ...], ...], bodies: int, sides: Sequence[Any]) -> Any:
    """Return the lower triangle (nc, nc) of J J^T.

    Args:
        connected: the bodies of each row.
        bodies: the number of bodies.
        sides: the entries of all rows for their first, second, ... bodies, (nc, width) each.
    """
    where, count, terms = _shared(connected, bodies)
    blocks = jnp.concatenate([*sides, jnp.zeros_like(sides[0][:1])])
    values = sum(
        (jnp.sum(blocks[left] * blocks[right], axis=1) for left, right in terms),
        jnp.zeros((count,), blocks.dtype),
    )
    return jnp.concatenate([values, jnp.zeros((1,), blocks.dtype)])[where]


@functools.lru_cache(maxsize=64)
def _shared(
    connected: tuple[tuple[int, ...], ...], bodies: int
) -> tuple[np.ndarray, int, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the sparsity pattern (where, count, terms) of the lower triangle of J J^T.

    `where` (nc, nc) is the index of each entry among the `count` structurally nonzero entries, and `count`
    for all other entries. Each of the `terms` holds the indices of the two blocks that it multiplies, for
    every nonzero entry. The number of terms is the largest number of bodies that two rows share. Blocks are
    numbered side by side, followed by a block of zeros.
    """
    rows = len(connected)
    incident: list[list[tuple[int, int]]] = [[] for _ in range(bodies)]
    for row, on in enumerate(connected):
        for side, body in enumerate(on):
            if body < bodies:
                incident[body].append((row, side * rows + row))
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for blocks in incident:
        for i, left in blocks:
            for j, right in blocks:
                if j <= i:
                    found.setdefault((i, j), []).append((left, right))
    places = sorted(found)
    nothing = (rows * max((len(on) for on in connected), default=0),) * 2
    count = max((len(terms) for terms in found.values()), default=0)
    columns = [
        np.asarray([(*found[p], *[nothing] * count)[k] for p in places], int).reshape(-1, 2)
        for k in range(count)
    ]
    where = np.full((rows, rows), len(places), np.int32)
    for number, (i, j) in enumerate(places):
        where[i, j] = number
    return where, len(places), [(pairs[:, 0], pairs[:, 1]) for pairs in columns]
