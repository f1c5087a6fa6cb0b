"""What differs from device to device inside of `jax.shard_map`: a loop asks that its start is marked as different where its end is."""

from __future__ import annotations

from typing import Any

import jax


def _axes_of(x: Any) -> frozenset[str]:
    """Returns the axes over which one array, or its shape, differs; JAX before 0.12 calls them by another name."""
    of = jax.typeof(x)
    return of.manual_axis_type.varying if hasattr(of, "manual_axis_type") else getattr(of, "vma", None) or frozenset()


def device_axes(tree: Any) -> tuple[str, ...]:
    """Returns the axes of a mesh over which arrays, or their shapes, differ inside of `jax.shard_map`; none outside of it."""
    return tuple(sorted(frozenset().union(*(_axes_of(x) for x in jax.tree.leaves(tree)))))


def varying(tree: Any, axes: tuple[str, ...]) -> Any:
    """Returns the tree with every leaf marked as different over these axes."""
    if not axes:
        return tree

    def marked(x: Any) -> Any:
        missing = tuple(axis for axis in axes if axis not in _axes_of(x))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(marked, tree)


def varying_with(tree: Any, *others: Any) -> Any:
    """Returns the tree with every leaf marked as different over the axes over which any of it, or of the others, differs."""
    return varying(tree, device_axes((tree, others)))
