"""Recursions over a tree: outward from the roots to the leaves, and inward from the leaves to the roots.

All arrays of a recursion are slot data (slots, ..., *lanes), see `jaxdae.trees.tree_layout`. Lanes are the
worlds of a batch, or nothing for one world. `jaxdae.compile.batch_last.over_worlds` calls a function once for
all worlds of a batch, with the worlds last.

This is the only file that scans over levels or looks up parents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.compile.batch_last import linear
from jaxdae.compile.platform import for_kernel
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.thresholds import DENSE_UP_TO
from jaxdae.linalg.small_matrix import product_transposed
from jaxdae.trees.tree_layout import Tree, padded_take

Step = Callable[[Any, Any], tuple[Any, Any]]


def outward(tree: Tree, step: Step, own: Any, root: Any) -> Any:
    """Return the node results of a recursion from the roots to the leaves, a pytree (slots, ...).

    Args:
        tree: the tree.
        step: (data of the nodes of a row, values from their parents) -> (values for their children, results).
        own: the data of the nodes, a pytree of arrays (slots, ...).
        root: the value that a root receives, a pytree of arrays (...).
    """
    carry, found = None, []
    for grid, above, part in zip(tree.grids, tree.above, _parts(tree, own), strict=True):
        width = grid.shape[1]
        carry = (
            _broadcast(root, width, part)
            if carry is None
            else jax.tree.map(lambda x, to=above[0]: _handed(x, to), carry)
        )
        carry, results = _scan(step, part, carry, _Rows(above, inward=False))
        found.append(results)
    return _joined(found)


def inward(tree: Tree, step: Step, own: Any, leaf: Any) -> Any:
    """Return the node results of a recursion from the leaves to the roots, a pytree (slots, ...).

    Args:
        tree: the tree.
        step: (data of the nodes of a row, sums of the values from their children) -> (values for the parents,
            results).
        own: the data of the nodes, a pytree of arrays (slots, ...); empty slots must give zero for zero data.
        leaf: the value that a leaf receives, a pytree of zeros (...).
    """
    carry, found = None, []
    parts = list(_parts(tree, own))
    for k in reversed(range(len(parts))):
        width = tree.grids[k].shape[1]
        if carry is None:
            carry = _broadcast(leaf, width, parts[k])
        else:
            carry = jax.tree.map(lambda x, to=tree.above[k + 1][0], width=width: _summed(x, to, width), carry)
        carry, results = _scan(step, parts[k], carry, _Rows(tree.above[k], inward=True))
        found.append(results)
    return _joined(found[::-1])


def sum_to_leaves(tree: Tree, x: Array) -> Array:
    """Return the sums (nodes, ...) of x (nodes, ...) over each node and its ancestors.

    The transpose of `sum_to_root`.
    """
    return _sum(tree, x, to_root=False)


def sum_to_root(tree: Tree, x: Array) -> Array:
    """Return the sums (nodes, ...) of x (nodes, ...) over each node and its descendants."""
    return _sum(tree, x, to_root=True)


class _Rows:
    """The links between the rows of a grid: the parents of a row in the row above.

    Attributes:
        table: indices for each row, (rows, width) of parents or (rows, width, children) of children; None
            where every node occupies the slot of its parent.
    """

    def __init__(self, above: np.ndarray, inward: bool) -> None:
        within = np.concatenate([np.arange(above.shape[1])[None], above[1:]])
        self.inward, self.table = inward, None
        if not _is_identity(within):
            self.table = _children(within, above.shape[1]) if inward else np.maximum(within, 0)

    def step(self, step: Step, at: tuple[Any, Any], carry: Any) -> tuple[Any, Any]:
        """Return the carry for the next row and the results of a row."""
        own, table = at
        if table is None:
            return step(own, carry)
        if not self.inward:
            return step(own, jax.tree.map(lambda x: x[table], carry))
        given, results = step(own, carry)
        return jax.tree.map(lambda x: _gathered_sum(x, table), given), results


def _scan(step: Step, part: Any, carry: Any, rows: _Rows) -> tuple[Any, Any]:
    """Return the values that the last row of a grid gives, and the results (rows width, ...)."""

    def body(carry: Any, at: Any) -> tuple[Any, Any]:
        return rows.step(step, at, carry)

    at = part, None if rows.table is None else jnp.asarray(rows.table)
    if jax.tree.leaves(part)[0].shape[0] == 1:
        return body(carry, jax.tree.map(lambda x: x[0], at))
    # In a kernel, loops over few levels cost more than the operations that they save.
    carry, results = jax.lax.scan(body, carry, at, reverse=rows.inward, unroll=for_kernel() or 1)
    return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)


def _parts(tree: Tree, own: Any) -> Any:
    """Yield the data of each grid, a pytree of arrays (rows, width, ...)."""
    begin = 0
    for grid in tree.grids:
        yield jax.tree.map(
            lambda x, at=begin, grid=grid: x[at : at + grid.size].reshape(*grid.shape, *x.shape[1:]), own
        )
        begin += grid.size


def _broadcast(value: Any, width: int, part: Any) -> Any:
    """Return the value once for each slot of a row, varying over devices where the node data do."""
    return varying_with(jax.tree.map(lambda x: jnp.broadcast_to(x, (width, *jnp.shape(x))), value), part)


def _joined(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *each: each[0] if len(each) == 1 else jnp.concatenate(each), *parts)


def _handed(x: Array, above: np.ndarray) -> Array:
    """Return the values of the parents (width of the row, ...)."""
    return padded_take(x, np.where(above < 0, x.shape[0], above))


def _summed(x: Array, above: np.ndarray, width: int) -> Array:
    """Return the sums over children (width of the row above, ...)."""
    return _gathered_sum(x, _children(above[None], width)[0])


def _gathered_sum(x: Array, children: Any) -> Array:
    """Return sums (width, ...) over children slots (width, children); the number of slots marks no child."""
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1])])
    return sum((padded[children[:, k]] for k in range(1, children.shape[1])), padded[children[:, 0]])


def _children(above: np.ndarray, width: int) -> np.ndarray:
    """Return the slots of the children of each slot of the row above (rows, width, children).

    The row's width for none.
    """
    most = max(int(np.bincount(row[row >= 0], minlength=1).max()) for row in above)
    found = np.full((len(above), width, max(most, 1)), above.shape[1])
    for row, slots in zip(found, above, strict=True):
        used = np.zeros(width, int)
        for slot, parent in enumerate(slots.tolist()):
            if parent >= 0:
                row[parent, used[parent]] = slot
                used[parent] += 1
    return found


def _is_identity(above: np.ndarray) -> bool:
    """Return whether every node occupies the slot of its parent."""
    return bool(np.all((above == np.arange(above.shape[1])) | (above < 0)))


def _sum(tree: Tree, x: Array, *, to_root: bool) -> Array:
    if tree.count <= DENSE_UP_TO:
        matrix = jnp.asarray(tree.is_ancestor.T if to_root else tree.is_ancestor, x.dtype)
        return product_transposed(matrix, x.reshape(tree.count, math.prod(x.shape[1:])).T).reshape(x.shape)
    # JAX does not transpose a scan all of whose inputs are tangents, as in derivative rules.
    return linear(
        lambda x: (_swept_sum(tree, x, to_root),), lambda y: (_swept_sum(tree, y, not to_root),), (x,)
    )[0]


def _swept_sum(tree: Tree, x: Array, to_root: bool) -> Array:
    sweep, nothing = inward if to_root else outward, jnp.zeros(x.shape[1:], x.dtype)
    return tree.to_nodes(sweep(tree, lambda own, given: (own + given,) * 2, tree.to_slots(x), nothing))
