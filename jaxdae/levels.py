"""Recursions over a tree, level by level: inward from the leaves to the roots, and outward again.

Every node but the roots has a parent one level above its own. The nodes stand in grids, a level a row, and a recursion is a scan over the
rows whose carry is one row: the program does not depend on how many nodes there are, and the work is that of the grids. There are a few
grids, one below the other, where a single one would have many empty places: a humanoid is narrow at its base, wide at its limbs, and narrow
at its hands. The first child of a node stands in the same place of the next row, so that along limbs nothing has to be found. What a
recursion reads and returns are arrays (nodes, ...).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.batching.last import linear
from jaxdae.batching.varying import varying_with

SUMMED_BY_PRODUCTS_UP_TO = 96
"""The number of nodes up to which sums over ancestors and descendants are products with 0/1 matrices, recursions beyond."""

_PRODUCTS_UP_TO = 16
"""The width of a grid up to which children find their parents by products with 0/1 matrices; by indices beyond."""

_RUNS = 32
"""How many runs of rows are copied one by one; beyond, all rows are found by indices, an entry at a time."""

AT_ONCE = 4
"""How many levels a step of a scan takes at most, where rows are short: a step costs half a microsecond. Rows of few nodes are taken one by
one all the same, sums and articulated bodies apart: what is made of products and sums is computed again in each of several levels. One
world, times of a step by one level in place of four: a chain of 256 in space takes 0.88 by frames and another 0.88 by substitutions, but
1.15 by articulated bodies; a ladder of 64 four-bars 0.85 in both coordinates, with programs of two thirds of the length. A tree with five
limbs takes 1.03 by frames and as much by substitutions."""

_FEW = 3
"""The width of a grid up to which rows have few nodes."""

_LONG = 256
"""The number of entries from which a row is long."""

_PARTS = 4
"""How many grids there are at most: each of them is a scan of its own in the program."""

_WORTH = 4
"""How many places a further grid has to save."""

_ALIKE = 1 / 7
"""How many places for each node it may cost that a row by itself is as wide as those beside it: both are one program then. A tree of 30
bodies with five limbs, each of 64 worlds, takes 1.01 of the time, of 64 bodies 0.98."""

_SEARCH = 0.25
"""How many places it costs a node to find its parent, where that is not the one in the same place of the row above."""


@dataclasses.dataclass(frozen=True)
class Levels:
    """The grid of a tree; structure, not data.

    Attributes:
        parents: of each node, which come before it; the number of nodes for a root.
    """

    parents: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.parents)

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """How many nodes lie between each node and the root of its tree (n,)."""
        depths = np.full(self.count + 1, -1)
        for node, parent in enumerate(self.parents):
            depths[node] = depths[parent] + 1
        return depths[:-1]

    @functools.cached_property
    def _widths(self) -> np.ndarray:
        """How many nodes each level has (levels,)."""
        return np.bincount(self.depths, minlength=self.depths.max(initial=-1) + 1)

    @functools.cached_property
    def _rows(self) -> list[np.ndarray]:
        """The nodes of each level, in the order of their parents."""
        found: list[np.ndarray] = []
        place = np.zeros(self.count + 1, int)
        for level in range(len(self._widths)):
            nodes = np.flatnonzero(self.depths == level)
            nodes = nodes[np.argsort(place[np.asarray(self.parents, int)[nodes]], kind="stable")]
            place[nodes] = np.arange(len(nodes))
            found.append(nodes)
        return found

    @functools.cached_property
    def _straight(self) -> np.ndarray:
        """Whether no two nodes of a level have the same parent (levels,)."""
        parents = [np.asarray(self.parents, int)[nodes].tolist() for nodes in self._rows]
        return np.asarray([level == 0 or len(set(above)) == len(above) for level, above in enumerate(parents)], bool)

    @functools.cached_property
    def _cuts(self) -> tuple[int, ...]:
        """The first level of each grid, and the number of levels: what is least work, see `_PARTS`, `_WORTH` and `_SEARCH`."""
        widths, straight, rows = self._widths.tolist(), self._straight.tolist(), len(self._widths)
        # A cut between two levels that are alike saves nothing.
        alike = [widths[k] == widths[k - 1] and straight[k - 1] and straight[k] for k in range(rows)]
        ends = [k for k in range(1, rows) if not alike[k]] + [rows] * (rows > 0)
        # The least work of the levels up to each cut in so many grids, and the first levels of these.
        best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, ())}]
        for _ in range(_PARTS):
            found: dict[int, tuple[float, tuple[int, ...]]] = {}
            for begin, (work, firsts) in best[-1].items():
                width, searching, last = 0, False, begin
                for end in (k for k in ends if k > begin):
                    width = max(width, *widths[last:end])
                    searching = searching or not all(straight[max(last, begin + 1) : end])
                    last = end
                    total = work + (end - begin) * width * (1.0 + _SEARCH * searching) + _WORTH
                    if end not in found or total < found[end][0]:
                        found[end] = total, (*firsts, begin)
            best.append(found)
        return (*min(way[rows] for way in best if rows in way)[1], rows) if rows else (0, 0)

    @functools.cached_property
    def _grid_widths(self) -> list[int]:
        """How many places a row of each grid has; a row by itself as many as those beside it, where that costs little (`_ALIKE`)."""
        widths = [int(self._widths[begin:end].max(initial=0)) for begin, end in itertools.pairwise(self._cuts)]
        for number, rows in enumerate(np.diff(self._cuts).tolist()):
            beside = [width for width in widths[max(number - 1, 0) : number + 2] if width > widths[number]]
            if rows == 1 and beside and min(beside) - widths[number] <= _ALIKE * self.count:
                widths[number] = min(beside)
        return widths

    @functools.cached_property
    def _slots(self) -> list[np.ndarray]:
        """The node in each place of each grid (levels, width); the number of nodes where there is none."""
        grids = []
        for (begin, end), width in zip(itertools.pairwise(self._cuts), self._grid_widths, strict=True):
            slots = np.full((end - begin, width), self.count, int)
            for number, level in enumerate(range(begin, end)):
                row, rest = slots[number], self._rows[level].tolist()
                if number:  # First children stand below their parents.
                    above = slots[number - 1].tolist()
                    for node in list(rest):
                        place = above.index(self.parents[node])
                        if row[place] == self.count:
                            row[place] = node
                            rest.remove(node)
                row[np.flatnonzero(row == self.count)[: len(rest)]] = rest
            grids.append(slots)
        return grids

    @functools.cached_property
    def in_places(self) -> np.ndarray:
        """The nodes in all places, grid by grid (places,); the number of nodes where there is none."""
        return np.concatenate([slots.reshape(-1) for slots in self._slots])

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Where each node is among all places (nodes,)."""
        places = np.empty(self.count + 1, int)
        places[self.in_places] = np.arange(len(self.in_places))
        return places[:-1]

    @functools.cached_property
    def _above(self) -> list[np.ndarray]:
        """The place of each parent in its row, of the nodes of each grid (levels, width); -1 where there is none."""
        column = np.full(self.count + 1, -1)
        for slots in self._slots:
            column[slots] = np.arange(slots.shape[1])
        column[-1] = -1
        return [column[np.append(self.parents, self.count)[slots]] for slots in self._slots]

    @functools.cached_property
    def carried(self) -> np.ndarray:
        """Whether a node is carried by another, itself included: carried[k, j] where j carries k (nodes, nodes)."""
        carried = np.eye(self.count + 1, self.count, dtype=bool)
        for node, parent in enumerate(self.parents):
            carried[node] |= carried[parent]
        return carried[:-1]

    def _laid(self, entry: Any, *, placed: bool) -> list[Any]:
        """Returns an entry (nodes, ...), or (places, ...) where it is placed, as grids (levels, width, ...); zero in empty places."""
        entry = entry if placed else ordered(entry, self.in_places)
        ends = np.cumsum([slots.size for slots in self._slots])
        return [entry[end - slots.size : end].reshape(*slots.shape, *entry.shape[1:]) for slots, end in zip(self._slots, ends, strict=True)]

    def _taken(self, grids: Sequence[Any], *, placed: bool) -> Any:
        """Returns what `_laid` laid."""
        flat = [grid.reshape(slots.size, *grid.shape[2:]) for slots, grid in zip(self._slots, grids, strict=True)]
        entry = flat[0] if len(flat) == 1 else jnp.concatenate(flat)
        return entry if placed else ordered(entry, self.places)

    def pushed(self, entry: Any) -> Any:
        """Returns the sums (nodes, ...) over each node and all that carry it."""
        if self.count <= SUMMED_BY_PRODUCTS_UP_TO:
            return jnp.tensordot(jnp.asarray(self.carried, entry.dtype), entry, 1)

        return _linearly_summed(self, entry, inward=False)

    def pulled(self, entry: Any) -> Any:
        """Returns the sums (nodes, ...) over each node and all that it carries."""
        if self.count <= SUMMED_BY_PRODUCTS_UP_TO:
            return jnp.tensordot(jnp.asarray(self.carried.T, entry.dtype), entry, 1)

        return _linearly_summed(self, entry, inward=True)

    def inward(self, step: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any, *, placed: bool = False, at_once: int = 1) -> Any:
        """Returns what a recursion from the leaves to the roots leaves at every node.

        Args:
            step: takes what the nodes of a row have, and the sums of what their children gave; returns what they give, and what they keep.
            own: what nodes have, a pytree of arrays (nodes, ...); zero in empty places of a row.
            nothing: what a childless node is given, a pytree of arrays (...) of zeros.
            placed: whether arrays are (places, ...), in the order of `in_places`, so that nothing has to be moved.
            at_once: how many levels a step of a scan takes at most, where rows are short and of few nodes; see `AT_ONCE`.
        """

        def row(given: Any, at: Any) -> tuple[Any, Any]:
            entries, above = at
            gives, keeps = step(entries, given)
            return jax.tree.map(lambda x: _to_parents(x, above, x.shape[0]), gives), keeps

        return self._scanned(row, own, nothing, inward=True, placed=placed, at_once=at_once)

    def outward(
        self, step: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any, *, placed: bool = False, at_once: int = 1
    ) -> Any:
        """Returns what a recursion from the roots to the leaves leaves at every node.

        Args:
            step: takes what the nodes of a row have, and what their parents gave; returns what they give, and what they keep.
            own: what nodes have, a pytree of arrays (nodes, ...); zero in empty places of a row.
            nothing: what a root is given, a pytree of arrays (...) of zeros.
            placed: as in `inward`.
            at_once: likewise.
        """

        def row(given: Any, at: Any) -> tuple[Any, Any]:
            entries, above = at
            return step(entries, jax.tree.map(lambda x: _to_children(x, above), given))

        return self._scanned(row, own, nothing, inward=False, placed=placed, at_once=at_once)

    def _scanned(
        self, row: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any, *, inward: bool, placed: bool, at_once: int
    ) -> Any:
        leaves, structure = jax.tree.flatten(own)
        grids = list(zip(*(self._laid(leaf, placed=placed) for leaf in leaves), strict=True))
        numbers = range(len(grids))[:: -1 if inward else 1]
        kept: list[Any] = [None] * len(grids)
        given: Any = None
        for k in numbers:
            slots, dtype = self._slots[k], leaves[0].dtype
            if k == numbers[0]:
                given = jax.tree.map(lambda x, width=slots.shape[1]: jnp.broadcast_to(x, (width, *x.shape)), nothing)
                given = varying_with(given, leaves)
            else:
                given = self._passed(given, k, dtype, inward=inward)
            rows = jax.tree.unflatten(structure, grids[k]), _finding(self._within(k), slots.shape[1], dtype)
            longest = max(grid.size // max(len(slots), 1) for grid in grids[k])
            is_narrow = slots.shape[1] <= _FEW and len(slots) > 2  # One or two levels are no loop.
            unroll = 1 if longest >= _LONG else _unroll(len(slots), at_once if is_narrow else AT_ONCE)
            given, kept[k] = jax.lax.scan(row, given, rows, reverse=inward, unroll=unroll)
        return jax.tree.map(lambda *parts: self._taken(parts, placed=placed), *kept)

    def _within(self, number: int) -> np.ndarray:
        """Returns the place of each parent (levels, width) for a grid by itself; that of the node for the first row of a lower grid."""
        above = self._above[number]
        return above if number == 0 else np.concatenate([np.arange(above.shape[1])[None], above[1:]])

    def _passed(self, given: Any, number: int, dtype: Any, *, inward: bool) -> Any:
        """Returns what the grid above or below gives to this grid."""
        upper, lower = (number, number + 1) if inward else (number - 1, number)
        width, places = self._slots[upper].shape[1], self._above[lower][0]
        if max(width, len(places)) <= _PRODUCTS_UP_TO:
            return jax.tree.map(lambda x: _picked(x, places, width, inward=inward), given)
        above = _finding(places, width, dtype)
        return jax.tree.map(lambda x: _to_parents(x, above, width) if inward else _to_children(x, above), given)


def _linearly_summed(levels: Levels, entry: Any, *, inward: bool) -> Any:
    """Returns what `_summed` does, which the other way transposes; JAX 0.9 transposes no scans of tangents alone, as rules make them."""
    way, back = (lambda entry, inward=inward: (_summed(levels, entry, inward),) for inward in (inward, not inward))
    return linear(way, back, (entry,))[0]


@functools.partial(jax.jit, static_argnums=(0, 2))  # A unit: the program has it once for all sums of the same kind.
def _summed(levels: Levels, entry: Any, inward: bool) -> Any:
    """Returns the sums over all that each node carries, or over all that carry it, by a recursion."""

    def step(own: Any, given: Any) -> tuple[Any, Any]:
        return (own + given,) * 2

    return (levels.inward if inward else levels.outward)(step, entry, jnp.zeros(entry.shape[1:], entry.dtype), at_once=AT_ONCE)


def ordered(entry: Any, numbers: np.ndarray) -> Any:
    """Returns the rows of an entry (n, ...) with these numbers; zeros for the number n. A few runs of rows are copied as such."""
    count = entry.shape[0]
    if np.array_equal(numbers, np.arange(count)):
        return entry
    # A run goes on while numbers do, or while there is nothing.
    goes_on = np.where(numbers[1:] == count, numbers[:-1] == count, np.diff(numbers) == 1)
    ends = np.flatnonzero(np.append(~goes_on, True)) + 1
    if not len(numbers) or len(ends) > _RUNS:
        return jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[numbers]
    runs = [(int(numbers[begin]), int(end - begin)) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    shape = entry.shape[1:]
    return jnp.concatenate([entry[at : at + k] if at < count else jnp.zeros((k, *shape), entry.dtype) for at, k in runs])


def _picked(entry: Any, above: np.ndarray, width: int, *, inward: bool) -> Any:
    """Returns sums (width, ...) over children, or what the parents have (nodes, ...), from rows that are picked one by one.

    Products with 0/1 matrices would do, but the compiler then computes what enters them as a matrix, an entry at a time.
    """
    rows = [jax.lax.slice_in_dim(entry, k, k + 1) for k in range(entry.shape[0])]
    wanted = [np.flatnonzero(above == place) for place in range(width)] if inward else [[place] if place >= 0 else [] for place in above]
    nothing = jnp.zeros_like(entry[:1])
    return jnp.concatenate([sum((rows[k] for k in some[1:]), rows[some[0]]) if len(some) else nothing for some in wanted])


def _unroll(levels: int, most: int) -> int:
    """Returns how many levels a step of a scan takes; those that are left over would be a program of their own."""
    return next((count for count in range(most, 1, -1) if levels % count == 0), most)


def _finding(above: np.ndarray, width: int, dtype: Any) -> Any:
    """Returns how nodes find their parents in a row of this width.

    Args:
        above: the places of the parents (..., nodes), -1 for none.
        width: of the row above.
        dtype: of the numbers.

    Returns:
        Nothing where these are those of the nodes, matrices (..., width, nodes), or places (..., nodes), the width for none.
    """
    if width == above.shape[-1] and np.all((above == np.arange(width)) | (above < 0)):
        return None
    if width > _PRODUCTS_UP_TO:
        return jnp.asarray(np.where(above < 0, width, above))
    return jnp.asarray(above[..., None, :] == np.arange(width)[:, None], dtype)


def _to_parents(entry: Any, above: Any, width: int) -> Any:
    """Returns sums (width, ...) over children."""
    if above is None:
        return entry
    if above.ndim == 1:
        return jnp.zeros((width + 1, *entry.shape[1:]), entry.dtype).at[above].add(entry)[:-1]
    return jnp.tensordot(above, entry, 1)


def _to_children(entry: Any, above: Any) -> Any:
    """Returns what the parents have (nodes, ...); zero where there is none."""
    if above is None:
        return entry
    if above.ndim == 1:
        return jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[above]
    return jnp.tensordot(above.T, entry, 1)
