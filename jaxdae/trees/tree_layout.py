"""The layout of a tree in grids; structure on the host, not data.

A recursion over a tree visits one level at a time. The nodes of a tree stand in *grids*, whose rows are
levels, so that a recursion is one scan per grid over its rows, whatever the number of nodes. The first child
of a node occupies the same slot of the next row. A limb is therefore a column, and its nodes find their
parents without an index.

A single grid would have many empty slots where the tree has levels of different width: a humanoid is narrow
at its base, wide at its limbs and narrow at its hands. A tree has up to four grids, cut at the levels that
give the least work.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax.numpy as jnp
import numpy as np
from jax import Array

_GRIDS = 4
"""The largest number of grids: the program contains one scan per grid."""

_WORTH = 4
"""The least number of slots that one more grid has to save."""

_RUNS = 32
"""The largest number of runs of consecutive rows that are copied as slices; a gather beyond."""

_SEARCH = 0.25
"""The cost per node, in slots, of a row in which nodes find their parents by indices."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree, or several of them.

    Attributes:
        parents: the parent of each node, which precedes the node; the number of nodes for a root.
    """

    parents: tuple[int, ...]

    @property
    def count(self) -> int:
        """Return the number of nodes."""
        return len(self.parents)

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """Return the number of ancestors of each node (nodes,)."""
        depths = np.full(self.count + 1, -1)
        for node, parent in enumerate(self.parents):
            depths[node] = depths[parent] + 1
        return depths[:-1]

    @functools.cached_property
    def is_ancestor(self) -> np.ndarray:
        """Return the matrix (nodes, nodes) whose entry [k, j] tells whether j is k or an ancestor of k."""
        found = np.eye(self.count + 1, self.count, dtype=bool)
        for node, parent in enumerate(self.parents):
            found[node] |= found[parent]
        return found[:-1]

    @functools.cached_property
    def grids(self) -> list[np.ndarray]:
        """Return the nodes in the slots of each grid (rows, width); the number of nodes for an empty slot."""
        parents, found = np.append(self.parents, -1).astype(int), []
        for begin, end in itertools.pairwise(self._cuts):
            rows = self._levels[begin:end]
            grid = np.full((len(rows), max(map(len, rows))), self.count)
            grid[0, : len(rows[0])] = rows[0]
            for row, above, nodes in zip(grid[1:], grid[:-1], rows[1:], strict=True):
                rest = nodes.tolist()
                for node in nodes.tolist():
                    slot = int(np.flatnonzero(above == parents[node])[0])
                    if row[slot] == self.count:
                        row[slot] = node
                        rest.remove(node)
                row[np.flatnonzero(row == self.count)[: len(rest)]] = rest
            found.append(grid)
        return found

    @functools.cached_property
    def slot_nodes(self) -> np.ndarray:
        """Return the node in each slot, grid by grid (slots,); the number of nodes for an empty slot."""
        return np.concatenate([grid.reshape(-1) for grid in self.grids] or [np.zeros(0, int)])

    @functools.cached_property
    def node_slots(self) -> np.ndarray:
        """Return the slot of each node (nodes,)."""
        slots = np.empty(self.count + 1, int)
        slots[self.slot_nodes] = np.arange(len(self.slot_nodes))
        return slots[:-1]

    @functools.cached_property
    def above(self) -> list[np.ndarray]:
        """Return the slot of the parent in its row, for the nodes of each grid (rows, width).

        -1 without a parent.
        """
        parents, column = np.append(self.parents, self.count), np.full(self.count + 1, -1)
        for grid in self.grids:
            column[grid] = np.arange(grid.shape[1])
        column[self.count] = -1
        return [column[parents[grid]] for grid in self.grids]

    def to_slots(self, x: Array) -> Array:
        """Return node data (nodes, ...) in slots (slots, ...), zero in empty slots."""
        return padded_take(x, self.slot_nodes)

    def to_nodes(self, x: Array) -> Array:
        """Return slot data (slots, ...) by node (nodes, ...)."""
        return padded_take(x, self.node_slots)

    @functools.cached_property
    def _levels(self) -> list[np.ndarray]:
        """Return the nodes of each level, in the order of their parents."""
        found: list[np.ndarray] = []
        place = np.zeros(self.count + 1, int)
        for depth in range(int(self.depths.max(initial=-1)) + 1):
            nodes = np.flatnonzero(self.depths == depth)
            nodes = nodes[np.argsort(place[np.asarray(self.parents, int)[nodes]], kind="stable")]
            place[nodes] = np.arange(len(nodes))
            found.append(nodes)
        return found

    @functools.cached_property
    def _cuts(self) -> tuple[int, ...]:
        """Return the first level of each grid, and the number of levels: the cuts with the least work.

        The work of a grid is its number of slots, times 1 + `_SEARCH` where any row but the first one has
        siblings, plus `_WORTH`. A cut between two levels of the same width without siblings saves nothing.
        Dynamic programming over the number of grids finds the best cuts.
        """
        widths = [len(nodes) for nodes in self._levels]
        parents = [np.asarray(self.parents, int)[nodes] for nodes in self._levels]
        siblings = [k > 0 and len(set(each.tolist())) < len(each) for k, each in enumerate(parents)]
        count = len(widths)
        ends = [k for k in range(1, count) if widths[k] != widths[k - 1] or siblings[k] or siblings[k - 1]]
        begins, ends = [0, *ends], [*ends, count]
        best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
        answer: tuple[float, tuple[int, ...]] = (np.inf, ())
        for _ in range(_GRIDS if count else 0):
            found: dict[int, tuple[float, tuple[int, ...]]] = {}
            for begin in (begin for begin in begins if begin in best):
                work, firsts = best[begin]
                for end in (end for end in ends if end > begin):
                    factor = 1.0 + _SEARCH * any(siblings[begin + 1 : end])
                    total = work + (end - begin) * max(widths[begin:end]) * factor + _WORTH
                    if end not in found or total < found[end][0]:
                        found[end] = total, (*firsts, begin)
            best = found
            answer = min(answer, best.get(count, answer))
        return (*answer[1], count)


def padded_take(x: Array, numbers: np.ndarray) -> Array:
    """Return the rows of x (n, ...) with these numbers, zeros for the number n.

    A few runs of rows are copied as slices.
    """
    count, is_empty = x.shape[0], numbers == x.shape[0]
    if np.array_equal(numbers, np.arange(count)):
        return x
    goes_on = (is_empty[1:] == is_empty[:-1]) & (np.diff(numbers) == ~is_empty[1:])
    starts = [0, *(np.flatnonzero(~goes_on) + 1)]
    if len(starts) > _RUNS:
        return jnp.concatenate([x, jnp.zeros_like(x[:1])])[numbers]
    runs = np.split(numbers, starts[1:])
    return jnp.concatenate(
        [
            jnp.zeros_like(x, shape=(len(run), *x.shape[1:])) if run[0] == count else x[run[0] : run[-1] + 1]
            for run in runs
        ]
    )
