"""Arrays that vary over devices inside `jax.shard_map`.

The initial carry of a loop must be marked as varying over the same mesh axes as its final carry.
"""

from __future__ import annotations

from typing import Any

import jax


def _axes_of(x: Any) -> frozenset[str]:
    """Return the mesh axes over which an array or a shape varies. JAX before 0.12 names them differently."""
    of = jax.typeof(x)
    return (
        of.manual_axis_type.varying
        if hasattr(of, "manual_axis_type")
        else getattr(of, "vma", None) or frozenset()
    )


def device_axes(tree: Any) -> tuple[str, ...]:
    """Return the mesh axes over which arrays or shapes vary inside `jax.shard_map`; no axes outside of it."""
    return tuple(sorted(frozenset().union(*(_axes_of(x) for x in jax.tree.leaves(tree)))))


def varying(tree: Any, axes: tuple[str, ...]) -> Any:
    """Mark every leaf of the tree as varying over these mesh axes."""
    if not axes:
        return tree

    def marked(x: Any) -> Any:
        missing = tuple(axis for axis in axes if axis not in _axes_of(x))
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(marked, tree)


def varying_with(tree: Any, *others: Any) -> Any:
    """Mark every leaf as varying over all mesh axes over which any leaf or any of the others varies."""
    return varying(tree, device_axes((tree, others)))
