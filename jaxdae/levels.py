"""Recursions over a tree, level by level: inward from the leaves to the roots, and outward again.

Every node but the roots has a parent one level above its own. The nodes stand in a grid, a level a row, and a recursion is a scan over the
rows whose carry is one row: the program does not depend on how many nodes there are, and the work is that of the grid. What a recursion
reads and returns are arrays (nodes, ...).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SUMMED_BY_PRODUCTS_UP_TO = 96
"""The number of nodes up to which sums over ancestors and descendants are products with 0/1 matrices, recursions beyond."""

_PRODUCTS_UP_TO = 16
"""The width of a grid up to which children find their parents by products with 0/1 matrices; by indices beyond."""

_UNROLL = 4
"""How many levels a step of a scan takes."""


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
    def _depths(self) -> np.ndarray:
        depths = np.full(self.count + 1, -1)
        for node, parent in enumerate(self.parents):
            depths[node] = depths[parent] + 1
        return depths[:-1]

    @functools.cached_property
    def _slots(self) -> np.ndarray:
        """The node in each place (levels, width); the number of nodes where there is none."""
        rows = [np.flatnonzero(self._depths == level) for level in range(self._depths.max(initial=-1) + 1)]
        slots = np.full((len(rows), max(map(len, rows), default=0)), self.count)
        for row, nodes in zip(slots, rows, strict=True):
            row[: len(nodes)] = nodes
        return slots

    @functools.cached_property
    def _places(self) -> np.ndarray:
        """Where each node is in the grid (nodes,)."""
        places = np.empty(self.count + 1, int)
        places[self._slots.reshape(-1)] = np.arange(self._slots.size)
        return places[:-1]

    @functools.cached_property
    def _above(self) -> np.ndarray:
        """The place of each parent in the row above (levels, width); the width where there is none."""
        width = self._slots.shape[1]
        column = np.append(self._places % max(width, 1), width)
        return column[np.append(self.parents, self.count)[self._slots]]

    @functools.cached_property
    def carried(self) -> np.ndarray:
        """Whether a node is carried by another, itself included: carried[k, j] where j carries k (nodes, nodes)."""
        carried = np.eye(self.count + 1, self.count, dtype=bool)
        for node, parent in enumerate(self.parents):
            carried[node] |= carried[parent]
        return carried[:-1]

    def _laid(self, entry: Any) -> Any:
        """Returns an entry (nodes, ...) as (levels, width, ...); zero in empty places."""
        order = self._slots.reshape(-1)
        if not np.array_equal(order, np.arange(self.count)):
            entry = jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[order]
        return entry.reshape(*self._slots.shape, *entry.shape[1:])

    def _taken(self, grid: Any) -> Any:
        """Returns what `_laid` laid."""
        flat = grid.reshape(self._slots.size, *grid.shape[2:])
        return flat if np.array_equal(self._places, np.arange(flat.shape[0])) else flat[self._places]

    def pushed(self, entry: Any) -> Any:
        """Returns the sums (nodes, ...) over each node and all that carry it."""
        if self.count <= SUMMED_BY_PRODUCTS_UP_TO:
            return jnp.tensordot(jnp.asarray(self.carried, entry.dtype), entry, 1)

        def step(own: Any, above: Any) -> tuple[Any, Any]:
            return (own + above,) * 2

        return self.outward(step, entry, jnp.zeros_like(entry[0]))

    def pulled(self, entry: Any) -> Any:
        """Returns the sums (nodes, ...) over each node and all that it carries."""
        if self.count <= SUMMED_BY_PRODUCTS_UP_TO:
            return jnp.tensordot(jnp.asarray(self.carried.T, entry.dtype), entry, 1)

        def step(own: Any, below: Any) -> tuple[Any, Any]:
            return (own + below,) * 2

        return self.inward(step, entry, jnp.zeros_like(entry[0]))

    def inward(self, step: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any) -> Any:
        """Returns what a recursion from the leaves to the roots leaves at every node.

        Args:
            step: takes what the nodes of a row have, and the sums of what their children gave; returns what they give, and what they keep.
            own: what nodes have, a pytree of arrays (nodes, ...); zero in empty places of a row.
            nothing: what a childless node is given, a pytree of arrays (...) of zeros.
        """

        def row(given: Any, at: Any) -> tuple[Any, Any]:
            entries, above = at
            gives, keeps = step(entries, given)
            return jax.tree.map(lambda x: _to_parents(x, above), gives), keeps

        return self._scanned(row, own, nothing, reverse=True)

    def outward(self, step: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any) -> Any:
        """Returns what a recursion from the roots to the leaves leaves at every node.

        Args:
            step: takes what the nodes of a row have, and what their parents gave; returns what they give, and what they keep.
            own: what nodes have, a pytree of arrays (nodes, ...); zero in empty places of a row.
            nothing: what a root is given, a pytree of arrays (...) of zeros.
        """

        def row(given: Any, at: Any) -> tuple[Any, Any]:
            entries, above = at
            return step(entries, jax.tree.map(lambda x: _to_children(x, above), given))

        return self._scanned(row, own, nothing, reverse=False)

    def _scanned(self, row: Callable[[Any, Any], tuple[Any, Any]], own: Any, nothing: Any, *, reverse: bool) -> Any:
        width = self._slots.shape[1]
        first = jax.tree.map(lambda x: jnp.broadcast_to(x, (width, *x.shape)), nothing)
        rows = jax.tree.map(self._laid, own), self._finding(jax.tree.leaves(own)[0].dtype)
        return jax.tree.map(self._taken, jax.lax.scan(row, first, rows, reverse=reverse, unroll=_UNROLL)[1])

    def _finding(self, dtype: Any) -> Any:
        """Returns how the nodes of a row find their parents, for every row: nothing, matrices (parents, width), or places (width,)."""
        width = self._slots.shape[1]
        if width == 1:
            return None
        if width > _PRODUCTS_UP_TO:
            return jnp.asarray(self._above)
        return jnp.asarray(self._above[:, None, :] == np.arange(width)[:, None], dtype)


def _to_parents(entry: Any, above: Any) -> Any:
    """Returns sums (width, ...) over children."""
    if above is None:
        return entry
    if above.ndim == 1:
        return jnp.zeros((entry.shape[0] + 1, *entry.shape[1:]), entry.dtype).at[above].add(entry)[:-1]
    return jnp.tensordot(above, entry, 1)


def _to_children(entry: Any, above: Any) -> Any:
    """Returns what the parents have (width, ...); zero where there is none."""
    if above is None:
        return entry
    if above.ndim == 1:
        return jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[above]
    return jnp.tensordot(above.T, entry, 1)
