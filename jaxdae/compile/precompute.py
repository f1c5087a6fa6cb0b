"""Quantities that depend on parameters only, computed once before a loop over steps.

The parameters of a mechanism are the fields of its joints. In joint coordinates they determine the frames and
axes of the links. `prepared` computes these before the loop over steps, for every mechanism in a pytree of
systems, wrappers and control laws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def _is_prepared(node: Any) -> bool:
    """Return whether a node of a pytree has parameters to compute beforehand."""
    return hasattr(type(node), "prepared")


def prepared(tree: Any) -> Any:
    """Return a pytree in which every node with a method `prepared` is replaced by its result."""
    return jax.tree.map(
        lambda node: node.prepared() if _is_prepared(node) else node, tree, is_leaf=_is_prepared
    )


def prepared_over_worlds(tree: Any, axes: Any, vmap: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the prepared pytree of many worlds and its batch axes.

    Args:
        tree: a pytree whose leaves have their batch axis last, or have none.
        axes: the same pytree with -1 or None in place of each leaf.
        vmap: `jax.vmap` for the number of worlds.
    """
    nodes, structure = jax.tree.flatten(tree, is_leaf=_is_prepared)
    axes_of = structure.flatten_up_to(axes)
    found, found_axes = [], []
    for node, along in zip(nodes, axes_of, strict=True):
        if _is_prepared(node):
            after = node.prepared_axes(along)
            node, along = vmap(lambda one: one.prepared(), in_axes=(along,), out_axes=after)(node), after
        found.append(node)
        found_axes.append(along)
    return structure.unflatten(found), structure.unflatten(found_axes)
