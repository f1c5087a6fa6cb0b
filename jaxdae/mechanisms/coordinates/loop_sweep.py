"""F = J R^-T of the rows of loops in a tree, for batches: only where it is not zero, and without J.

A row pushes with wrenches P on a few nodes. With M = R R^T of articulated bodies (`jaxdae.mechanisms.coordinates.articulated`), the column
y = R^-1 J^T of the row follows from the leaves to the roots: with s = S / sqrt(D) and u = U / sqrt(D) of each node,

    phi_k = P_k + sum over children c of (phi_c - u_c y_c),        y_k = s_k . phi_k  (+ the entry of the row in v_k by itself / sqrt(D_k)),

where phi_k is the force that comes to the node, once all that it carries is free to move. So y is zero but at the nodes on which the row
pushes, and those that carry them: a row of one leg has no part in the other one. Above the closing of a loop, where J is zero because
pushes cancel, y is not. The sums of the Delassus matrix, F F^T, go over the nodes that two rows have in common, and so do products with F.

Nodes of a level with equally many rows are taken together, all worlds last. The program grows with the depth of the tree, not with its
width. One world has J and F as matrices, which products are faster with.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.batching.last import Ruled, as_many_as, over_worlds, solved_by_worlds, together, worlds_back, worlds_last
from jaxdae.checkpointing import FACTOR, named
from jaxdae.levels import ordered
from jaxdae.mechanisms.coordinates.articulated import TreeMass, TreeRoot
from jaxdae.mechanisms.coordinates.loop_order import LoopOrder, tables_of
from jaxdae.operators import DenseRows, JacobianOperator, MassOperator
from jaxdae.saddle_point.schur import SchurFactors
from jaxdae.typing import Leaf


class Block(NamedTuple):
    """Nodes of one level with equally many rows: their numbers (n,), and the rows (n, m)."""

    nodes: np.ndarray
    rows: np.ndarray


class Level(NamedTuple):
    """A level of the tree.

    Attributes:
        blocks: the nodes that have rows. A pair is a node with one of its rows; they are numbered block by block.
        pushed: which push comes to each pair, in as many tables as some of them have; pushes are numbered row by row.
        below: which pair of the level below comes to each pair, likewise.
        entries: which entry of the row in the velocity of the node by itself, likewise.
    """

    blocks: list[Block]
    pushed: list[np.ndarray]
    below: list[np.ndarray]
    entries: list[np.ndarray]


class Family(NamedTuple):
    """All nodes whose rows are as many, shared by as many nodes.

    Attributes:
        nodes: of each set of rows (sets, count).
        rows: of each set (sets, m).
    """

    nodes: np.ndarray
    rows: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Which rows have a part in which nodes; structure, not data."""

    order: LoopOrder

    @functools.cached_property
    def _open(self) -> list[tuple[int, ...]]:
        """The rows of each node (nv,)."""
        ground = len(self.order.parents)
        found: list[set[int]] = [set() for _ in range(ground + 1)]
        for row, starts in enumerate(zip(self.order.ends, self.order.own, strict=True)):
            for start in (*starts[0], *starts[1]):
                node = start
                while node < ground:
                    found[node].add(row)
                    node = self.order.parents[node]
        return [tuple(sorted(rows)) for rows in found[:-1]]

    @functools.cached_property
    def levels(self) -> list[Level]:
        """The levels from the leaves to the roots."""
        order, opened = self.order, self._open
        depths = order.tree.depths
        sides, entries = (max((len(each) for each in numbers), default=0) for numbers in (order.ends, order.own))
        numbers: dict[tuple[int, int], int] = {}
        found = []
        for depth in reversed(range(int(depths.max()) + 1)):
            nodes = [int(node) for node in np.flatnonzero(depths == depth) if opened[node]]
            sizes = sorted({len(opened[node]) for node in nodes})
            some = [[node for node in nodes if len(opened[node]) == size] for size in sizes]
            blocks = [Block(np.asarray(own, int), np.asarray([opened[node] for node in own], int)) for own in some]
            pairs = {pair: k for k, pair in enumerate((node, row) for own in some for node in own for row in opened[node])}
            pushed = [
                (pairs[end, row], row * sides + side)
                for row, ends in enumerate(order.ends)
                for side, end in enumerate(ends)
                if (end, row) in pairs
            ]
            by_itself = [
                (pairs[node, row], row * entries + k)
                for row, own in enumerate(order.own)
                for k, node in enumerate(own)
                if (node, row) in pairs
            ]
            carried = [(pairs[order.parents[node], row], k) for (node, row), k in numbers.items()]
            found.append(
                Level(
                    blocks,
                    tables_of(pushed, len(pairs), len(order.ends) * sides),
                    tables_of(carried, len(pairs), len(numbers)),
                    tables_of(by_itself, len(pairs), len(order.own) * entries),
                )
            )
            numbers = pairs
        return found

    @functools.cached_property
    def families(self) -> list[Family]:
        """The nodes by their rows."""
        sets: dict[tuple[int, ...], list[int]] = {}
        for node, rows in enumerate(self._open):
            if rows:
                sets.setdefault(rows, []).append(node)
        found: dict[tuple[int, int], list[tuple[int, ...]]] = {}
        for rows, nodes in sets.items():
            found.setdefault((len(rows), len(nodes)), []).append(rows)
        return [Family(np.asarray([sets[rows] for rows in some], int), np.asarray(some, int)) for some in found.values()]

    @functools.cached_property
    def of_rows(self) -> list[np.ndarray]:
        """Which entry of the sets of all families is of each row (nc,), in as many tables as some rows have sets."""
        rows = np.concatenate([family.rows.reshape(-1) for family in self.families])
        return tables_of([(int(row), k) for k, row in enumerate(rows)], self.order.rows, len(rows))

    @functools.cached_property
    def of_pairs(self) -> list[np.ndarray]:
        """Which entry of the products of the sets of all families is of each pair of rows (nc nc,), likewise."""
        count = self.order.rows
        pairs = [family.rows[:, :, None] * count + family.rows[:, None] for family in self.families]
        flat = np.concatenate([each.reshape(-1) for each in pairs])
        return tables_of([(int(pair), k) for k, pair in enumerate(flat)], count**2, len(flat))

    @functools.cached_property
    def of_nodes(self) -> np.ndarray:
        """Where each node is among those of all families (nv,), their number where it has no rows."""
        nodes = np.concatenate([family.nodes.reshape(-1) for family in self.families])
        found = np.full(len(self.order.parents), len(nodes))
        found[nodes] = np.arange(len(nodes))
        return found

    @functools.cached_property
    def of_entries(self) -> np.ndarray:
        """Where each entry of Y^T is among those of all families (nc nv,), their number where it is zero."""
        shape = self.order.rows, len(self.order.parents)
        own = [np.broadcast_arrays(family.rows[:, None], family.nodes[:, :, None]) for family in self.families]
        flat = np.concatenate([(rows * shape[1] + nodes).reshape(-1) for rows, nodes in own])
        found = np.full(shape[0] * shape[1], len(flat))
        found[flat] = np.arange(len(flat))
        return found


@functools.lru_cache(maxsize=64)
def sweep_of(order: LoopOrder) -> Sweep:
    """Returns the sweep of an order; it is found once."""
    return Sweep(order)


@pytree
class SweptRows(JacobianOperator):
    """J as a matrix, and as pushes on nodes, of which batches make F.

    Attributes:
        dense: J as a matrix; what is not about F is left to it.
        pushes: of each row on its nodes, about the origins of the trees (nc, sides, k); constant under differentiation, as factors are.
        entries: of each row in velocities by themselves (nc, own), likewise.
        order: which nodes these are (static).
    """

    dense: DenseRows
    pushes: Leaf
    entries: Leaf
    order: LoopOrder = static()

    @property
    def shape(self) -> tuple[int, int]:
        """Returns (nc, nv)."""
        return self.dense.shape

    @property
    def dtype(self) -> Any:
        """Returns the type of the numbers."""
        return self.dense.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Returns J x."""
        return self.dense.times(x)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Returns J^T y."""
        return self.dense.transpose_times(y)

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Returns the matrix."""
        return self.dense.as_dense()

    def masked(self, active: Bool[Array, " nc"]) -> JacobianOperator:
        """Returns J with zeros in the rows that are not active."""
        return self.dense.masked(active)

    def between(self, start: int, stop: int) -> JacobianOperator:
        """Returns the rows start, ..., stop - 1."""
        return self if (start, stop) == (0, self.shape[0]) else self.dense.between(start, stop)

    def touched(self) -> Bool[Array, " nv"]:
        """Returns which columns have entries in any row."""
        return self.dense.touched()

    def _above(self, *others: JacobianOperator) -> JacobianOperator:
        return self.dense.stacked(*others)

    def eliminated(self, mass: MassOperator, compliance: Float[Array, " nc"] | None) -> SchurFactors | None:
        """Returns the factors of [M -J^T; J C] where M is of the same tree; None where it is not."""
        if not isinstance(mass, TreeMass) or mass.levels != self.order.tree:
            return None
        # Factors of one world have another form: where many have rows of their own, so is M taken.
        root = as_many_as(mass, self).factorize()
        scaled = ScaledRows(self.order, *named(_scaled(self, root), FACTOR))
        return SchurFactors(root, scaled, scaled.gram_factors(compliance))


@pytree
class ScaledRows(JacobianOperator):
    """F = J R^-T as a matrix of one world, or by families of nodes of a batch.

    Attributes:
        order: of the rows (static).
        matrix: F (nc, nv) of one world; else infinite.
        families: the columns of F of each family of nodes, by their rows (sets, count, m), of a batch; else infinite.
    """

    order: LoopOrder = static()
    matrix: Leaf
    families: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Returns (nc, nv)."""
        return self.matrix.shape

    @property
    def dtype(self) -> Any:
        """Returns the type of the numbers."""
        return self.matrix.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Returns F x."""
        return self._product(small_matrix.matvec, _times, x)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Returns F^T y."""
        return self._product(small_matrix.rmatvec, _transpose_times, y)

    def _product(self, one: Any, many: Any, x: Any) -> Any:
        sweep = sweep_of(self.order)

        def of_matrix(factors: Any, x: Any) -> Any:
            return one(factors[0], x)

        def of_families(factors: Any, x: Any) -> Any:
            return many(sweep, factors[1:], x)

        return solved_by_worlds(of_matrix, of_families)((self.matrix, *self.families), x)

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Returns the matrix."""
        sweep = sweep_of(self.order)

        def many(matrix: Any, *families: Any) -> Any:
            return ordered(_flat(families), sweep.of_entries).reshape(matrix.shape)

        return self._of_form(lambda matrix, *_: matrix, many)

    def gram(self) -> Float[Array, "nc nc"]:
        """Returns the Delassus matrix F F^T, symmetric to the last bit."""
        sweep, count = sweep_of(self.order), self.order.rows

        def many(matrix: Any, *families: Any) -> Any:
            products = [jnp.sum(y[:, :, :, None] * y[:, :, None], axis=1) for y in families]
            return _summed(sweep.of_pairs, _flat(products)).reshape(count, count, matrix.shape[-1])

        return self._of_form(lambda matrix, *_: small_matrix.product_transposed(matrix, matrix), many)

    def _of_form(self, one: Any, many: Any) -> Any:
        """Returns a function of the matrix, or that of the families of many worlds."""
        function = Ruled(one)

        @function.def_vmap
        def worlds(size: int, batched: Any, *given: Any) -> Any:
            if not batched[1]:
                return function(*given), False
            return worlds_back(many(*worlds_last(size, batched, given))), True

        return function(self.matrix, *self.families)


def swept_rows(order: LoopOrder, matrix: Any, forces: Sequence[Sequence[Sequence[Any]]], entries: Any) -> SweptRows:
    """Returns J of a tree.

    Args:
        order: of its rows.
        matrix: J (nc, nv).
        forces: with which the rows of the elements of each group push on the body of each side, sides[row] of components (elements,).
        entries: of the rows in velocities by themselves (nc, own).
    """
    sides = max((len(ends) for ends in order.ends), default=0)
    shapes = [(len(group), len(group[0])) for group in forces]
    flat = [[component for side in group for force in side for component in force] for group in forces]

    def joined(*components: Any) -> Any:
        found, begin = [], 0
        for (given, count), some in zip(shapes, flat, strict=True):
            entry = together(*components[begin : begin + len(some)])
            entry = jnp.moveaxis(entry.reshape(given, count, -1, *entry.shape[1:]), (3, 1, 0, 2), (0, 1, 2, 3))
            entry = entry.reshape(-1, *entry.shape[2:])
            found.append(jnp.pad(entry, [(0, 0), (0, sides - given), *[(0, 0)] * (entry.ndim - 2)]) if given < sides else entry)
            begin += len(some)
        return jnp.concatenate(found)

    still = jax.lax.stop_gradient([component for some in flat for component in some])
    return SweptRows(DenseRows(matrix), over_worlds(joined)(*still), jax.lax.stop_gradient(entries), order)


def _scaled(rows: SweptRows, root: TreeRoot) -> tuple[Any, tuple[Any, ...]]:
    """Returns the matrix and the families of `ScaledRows`."""
    sweep, dtype = sweep_of(rows.order), rows.dtype

    @Ruled
    def scaled(matrix: Any, root: TreeRoot, pushes: Any, entries: Any) -> Any:
        none = [(*family.nodes.shape, family.rows.shape[1]) for family in sweep.families]
        return root.scaled_rows(DenseRows(matrix)).as_dense(), tuple(jnp.full(shape, jnp.inf, dtype) for shape in none)

    @scaled.def_vmap
    def worlds(size: int, batched: Any, matrix: Any, root: TreeRoot, pushes: Any, entries: Any) -> Any:
        if not any(jax.tree.leaves(batched)):
            found = scaled(matrix, root, pushes, entries)
            return found, jax.tree.map(lambda _: False, found)
        arguments = root.motions, root.pushes, root.inverse, pushes, entries
        of = batched[1].motions, batched[1].pushes, batched[1].inverse, *batched[2:]
        families = worlds_back(_swept(sweep, *worlds_last(size, of, arguments)))
        return (jnp.full(rows.shape, jnp.inf, dtype), families), (False, (True,) * len(families))

    return scaled(rows.dense.matrix, root, rows.pushes, rows.entries)


def _swept(sweep: Sweep, s: Any, u: Any, inverse: Any, pushes: Any, entries: Any) -> tuple[Any, ...]:
    """Returns Y = F^T by families; worlds are last everywhere."""
    k, worlds, places = s.shape[1], s.shape[2:], sweep.order.tree.places
    pushes, entries = pushes.reshape(-1, *pushes.shape[2:]), entries.reshape(-1, *entries.shape[2:])
    below: Any = None
    found: dict[int, Any] = {}
    for level in sweep.levels:
        if not level.blocks:
            continue
        pairs = sum(rows.size for _, rows in level.blocks)
        coming = [ordered(pushes, table) for table in level.pushed] + [ordered(below, table) for table in level.below]
        first, *rest = coming or [jnp.zeros((pairs, k, *worlds), s.dtype)]
        phi: Any = sum(rest, first)
        own = _summed(level.entries, entries) if level.entries else None
        given, begin = [], 0
        for nodes, rows in level.blocks:
            n, m = rows.shape
            here = phi[begin : begin + n * m].reshape(n, m, k, *worlds)
            y = jnp.sum(ordered(s, places[nodes])[:, None] * here, axis=2)
            if own is not None:
                y = y + own[begin : begin + n * m].reshape(n, m, *worlds) * ordered(inverse, nodes)[:, None]
            given.append((here - ordered(u, places[nodes])[:, None] * y[:, :, None]).reshape(n * m, k, *worlds))
            found |= {int(node): y[i : i + 1] for i, node in enumerate(nodes)}
            begin += n * m
        below = jnp.concatenate(given)
    return tuple(
        jnp.concatenate([found[int(node)] for node in family.nodes.reshape(-1)]).reshape(*family.nodes.shape, -1, *worlds)
        for family in sweep.families
    )


def _times(sweep: Sweep, families: Sequence[Any], x: Any) -> Any:
    """Returns F x (nc, worlds)."""
    parts = [
        jnp.sum(y * ordered(x, family.nodes.reshape(-1)).reshape(*family.nodes.shape, 1, -1), axis=1)
        for y, family in zip(families, sweep.families, strict=True)
    ]
    return _summed(sweep.of_rows, _flat(parts))


def _transpose_times(sweep: Sweep, families: Sequence[Any], lam: Any) -> Any:
    """Returns F^T lam (nv, worlds)."""
    pulled = [
        jnp.sum(y * ordered(lam, family.rows.reshape(-1)).reshape(len(family.rows), 1, family.rows.shape[1], -1), axis=2)
        for y, family in zip(families, sweep.families, strict=True)
    ]
    return ordered(_flat(pulled), sweep.of_nodes)


def _summed(tables: Sequence[np.ndarray], entries: Any) -> Any:
    """Returns the sums of the entries in tables."""
    first, *rest = (ordered(entries, table) for table in tables)
    return sum(rest, first)


def _flat(parts: Sequence[Any]) -> Any:
    """Returns entries (..., worlds) of several arrays in one (n, worlds), which is not computed again by those who read it."""
    return jax.lax.optimization_barrier(jnp.concatenate([part.reshape(-1, part.shape[-1]) for part in parts]))
