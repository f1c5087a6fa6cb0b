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
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.batching.last import linear
from jaxdae.batching.varying import varying_with
from jaxdae.parents import PRODUCTS_UP_TO, InPlaces, parents_of, stay
from jaxdae.row_loops import AT_ONCE, looped

SUMMED_BY_PRODUCTS_UP_TO = 96
"""The number of nodes up to which sums over ancestors and descendants are products with 0/1 matrices, recursions beyond."""

_RUNS = 32
"""How many runs of rows are copied one by one; beyond, all rows are found by indices, an entry at a time."""

_PARTS = 4
"""How many grids there are at most: each of them is a scan of its own in the program."""

_WORTH = 4
"""How many places a further grid has to save."""

_ALIKE = 1 / 7
"""How many places for each node it may cost that a row by itself is as wide as those beside it: both are one program then. A tree of 30
bodies with five limbs, each of 64 worlds, takes 1.01 of the time, of 64 bodies 0.98."""

_TALL = 16
"""From how many levels on a base stands in several places: it is a full row of the scan then, not a short one by itself."""

_SEARCH = 0.25
"""How many places it costs a node to find its parent, where that is not the one in the same place of the row above."""


@dataclasses.dataclass(frozen=True)
class Levels:
    """The grid of a tree; structure, not data.

    Attributes:
        parents: of each node, which come before it; the number of nodes for a root.
        copies: whether a base may stand in several places. What recursions inward read of it is the same in all of them, unless they are
            linear, see `once`.
    """

    parents: tuple[int, ...]
    copies: bool = False

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
        bounds = np.asarray([0, *ends])
        parts = list(itertools.pairwise(bounds.tolist()))
        wide = np.asarray([max(widths[begin:end]) for begin, end in parts], int)
        # In the first level of a grid nothing has to be found.
        searched, later = (np.asarray([not all(straight[begin + k : end]) for begin, end in parts], bool) for k in (0, 1))
        # The least work of the levels up to each cut in so many grids, and the first levels of these.
        best: list[dict[int, tuple[float, tuple[int, ...]]]] = [{0: (0.0, ())}]
        for _ in range(_PARTS):
            found: dict[int, tuple[float, tuple[int, ...]]] = {}
            for k, begin in enumerate(bounds[:-1].tolist()):
                if begin not in best[-1]:
                    continue
                work, firsts = best[-1][begin]
                searching = np.logical_or.accumulate(np.append(later[k], searched[k + 1 :]))
                spans = (bounds[k + 1 :] - begin) * np.maximum.accumulate(wide[k:])
                for end, total in zip(ends[k:], (work + spans * (1.0 + _SEARCH * searching) + _WORTH).tolist(), strict=True):
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
    def _is_copied(self) -> bool:
        """Whether the first node stands above each of its children, in a row as wide as those of the grid below."""
        widths = self._grid_widths
        if not self.copies or len(widths) < 2 or self._cuts[1] > 1 or len(self._rows[0]) > 1 or self._cuts[2] < _TALL:
            return False
        return 1 < widths[0] == widths[1] <= PRODUCTS_UP_TO

    @functools.cached_property
    def _slots(self) -> list[np.ndarray]:
        """The node in each place of each grid (levels, width); the number of nodes where there is none."""
        grids = []
        for (begin, end), width in zip(itertools.pairwise(self._cuts), self._grid_widths, strict=True):
            slots = np.full((end - begin, width), self.count, int)
            if begin == 0 and self._is_copied:
                grids.append(np.zeros_like(slots))
                continue
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
    def once(self) -> np.ndarray:
        """As `in_places`, with every node in one place alone: of these, linear recursions inward read what they are linear in."""
        return np.where(np.isin(np.arange(len(self.in_places)), self.places), self.in_places, self.count)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Where each node is among all places (nodes,); the last one where there are several."""
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

    def added(self, entry: Any) -> Any:
        """Returns what a linear recursion inward left in all places (places, ...) at every node (nodes, ...)."""
        if not self._is_copied:
            return ordered(entry, self.places)
        width = self._grid_widths[0]
        return jnp.concatenate([jnp.sum(entry[:width], axis=0, keepdims=True), ordered(entry[width:], self.places[1:] - width)])

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

    def inward(
        self,
        step: Callable[[Any, Any], tuple[Any, Any]],
        own: Any,
        nothing: Any,
        *,
        placed: bool = False,
        linear: bool = False,
        at_once: int = 1,
    ) -> Any:
        """Returns what a recursion from the leaves to the roots leaves at every node.

        Args:
            step: takes what the nodes of a row have, and the sums of what their children gave; returns what they give, and what they keep.
            own: what nodes have, a pytree of arrays (nodes, ...); zero in empty places of a row, which give zero for it.
            nothing: what a childless node is given, a pytree of arrays (...) of zeros.
            placed: whether arrays are (places, ...), in the order of `in_places`, so that nothing has to be moved.
            linear: whether what nodes keep is linear in what they have and are given, and is to be summed by `added`. Arrays are placed
                then, by `once` what it is linear in.
            at_once: how many levels a step of a scan takes at most, where rows are short and of few nodes; see `AT_ONCE`.
        """

        def row(given: Any, at: Any) -> tuple[Any, Any]:
            entries, above = at
            gives, keeps = step(entries, given)
            return jax.tree.map(above.summed, gives), keeps

        return self._scanned(row, own, nothing, inward=True, linear=linear, placed=placed or linear, at_once=at_once)

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
            return step(entries, jax.tree.map(above.handed, given))

        return self._scanned(row, own, nothing, inward=False, linear=True, placed=placed, at_once=at_once)

    def _scanned(
        self, row: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any, *, inward: bool, linear: bool, placed: bool, at_once: int
    ) -> Any:
        leaves, structure = jax.tree.flatten(own)
        leaves = leaves if placed else [ordered(leaf, self.in_places) for leaf in leaves]
        # The numbers of the grids that one scan runs through.
        first = 2 if linear and self._is_copied else 1
        scans = [list(range(first)), *([k] for k in range(first, len(self._slots)))]
        ends = np.cumsum([sum(self._slots[k].size for k in numbers) for numbers in scans])
        kept: list[Any] = [None] * len(scans)
        row = jax.jit(row)  # A unit: once in the program for all rows of a width.
        given: Any = None
        for scan in range(len(scans))[:: -1 if inward else 1]:
            slots, above = (np.concatenate([each[k] for k in scans[scan]]) for each in (self._slots, self._within))
            (rows, width), dtype = slots.shape, leaves[0].dtype
            part = [leaf[ends[scan] - slots.size : ends[scan]] for leaf in leaves]
            if given is None:
                given = jax.tree.map(lambda x, width=width: jnp.broadcast_to(x, (width, *x.shape)), nothing)
                given = varying_with(given, leaves)
            else:
                given = self._passed(given, scans[scan][-1] + 1 if inward else scans[scan][0], dtype, inward=inward)
            places = parents_of(above, width, dtype)
            at = jax.tree.unflatten(structure, part), jax.tree.map(lambda x, size=slots.size: x.reshape(size, *x.shape[2:]), places)
            longest = max(leaf.size // max(rows, 1) for leaf in part)
            given, kept[scan] = looped(row, given, at, shape=slots.shape, longest=longest, inward=inward, at_once=at_once)
        flat = jax.tree.map(lambda *parts: parts[0] if len(parts) == 1 else jnp.concatenate(parts), *kept)
        return flat if placed else jax.tree.map(lambda x: ordered(x, self.places), flat)

    @functools.cached_property
    def _within(self) -> list[np.ndarray]:
        """The place of each parent in each grid by itself (levels, width); that of the node for the first row of a lower grid."""
        return [
            above if number == 0 else np.concatenate([np.arange(above.shape[1])[None], above[1:]])
            for number, above in enumerate(self._above)
        ]

    def _passed(self, given: Any, lower: int, dtype: Any, *, inward: bool) -> Any:
        """Returns what a grid gives to the one above it, or what it is given from there."""
        width, places = self._slots[lower - 1].shape[1], self._above[lower][0]
        if self._is_copied and lower == 1:  # Inward: the base is given the same in all of its places.
            base = InPlaces(1, tuple(np.where(places >= 0, 0, -1).tolist()))
            return jax.tree.map(lambda x: jnp.broadcast_to(base.summed(x), (width, *x.shape[1:])), given)
        above = parents_of(places, width, dtype)
        return jax.tree.map(above.summed if inward else above.handed, given)

    @functools.cached_property
    def _is_straight(self) -> bool:
        """Whether there is one grid, in which nothing has to be found: a chain, or several that are equally long."""
        return len(self._within) == 1 and stay(self._within[0], self._grid_widths[0])


def _linearly_summed(levels: Levels, entry: Any, *, inward: bool) -> Any:
    """Returns what `_summed` does, which the other way transposes; JAX 0.9 transposes no scans of tangents alone, as rules make them."""
    way, back = (lambda entry, inward=inward: (_summed(levels, entry, inward),) for inward in (inward, not inward))
    return linear(way, back, (entry,))[0]


def _summed(levels: Levels, entry: Any, inward: bool) -> Any:
    """Returns the sums over all that each node carries, or over all that carry it, by a recursion."""
    if not levels._is_straight:
        return _recursively_summed(levels, entry, inward)
    laid = ordered(entry, levels.in_places)
    # Inward is outward from the last node on, so that the program has one loop for both. A row has a node of each of several chains.
    shape = levels._slots[0].shape
    found = jnp.flip(_row_sums(jnp.flip(laid, 0), shape), 0) if inward else _row_sums(laid, shape)
    return ordered(found, levels.places)


def _plus(own: Any, given: Any) -> tuple[Any, Any]:
    return (own + given,) * 2


@functools.partial(jax.jit, static_argnums=(0, 2))  # A unit: the program has it once for all sums of the same kind.
def _recursively_summed(levels: Levels, entry: Any, inward: bool) -> Any:
    return (levels.inward if inward else levels.outward)(_plus, entry, jnp.zeros(entry.shape[1:], entry.dtype), at_once=AT_ONCE)


@functools.partial(jax.jit, static_argnums=1)
def _row_sums(laid: Any, shape: tuple[int, int]) -> Any:
    """Returns the sums (levels width, ...) over each row and all above it."""
    nothing = varying_with(jnp.zeros((shape[1], *laid.shape[1:]), laid.dtype), laid)
    longest = laid.size // shape[0]

    def row(given: Any, own: Any) -> tuple[Any, Any]:
        return _plus(own, given)

    return looped(row, nothing, laid, shape=shape, longest=longest, inward=False, at_once=AT_ONCE, stacked=True)[1]


def ordered(entry: Any, numbers: np.ndarray) -> Any:
    """Returns the rows of an entry (n, ...) with these numbers; zeros for the number n. A few runs of rows are copied as such."""
    count = entry.shape[0]
    if np.array_equal(numbers, np.arange(count)):
        return entry
    # A run goes on while numbers do, or while they are the same.
    steps = np.diff(numbers)
    goes_on = np.where(numbers[1:] == count, steps == 0, (steps == 0) | (steps == 1))
    goes_on[1:] &= steps[1:] == np.where(goes_on[:-1], steps[:-1], steps[1:])
    ends = np.flatnonzero(np.append(~goes_on, True)) + 1
    if not len(numbers) or len(ends) > _RUNS:
        return jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[numbers]
    return jnp.concatenate([_run(entry, numbers[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)])


def _run(entry: Any, numbers: np.ndarray) -> Any:
    """Returns the rows of a run, see `ordered`."""
    at, rows, shape = int(numbers[0]), len(numbers), entry.shape[1:]
    if at == entry.shape[0]:
        return jnp.zeros((rows, *shape), entry.dtype)
    return jnp.broadcast_to(entry[at : at + 1], (rows, *shape)) if numbers[-1] == at else entry[at : at + rows]
