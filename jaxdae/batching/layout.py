"""On which devices the worlds of a batch run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def device_axes(tree: Any) -> tuple[str, ...]:
    """Returns the axes of a mesh over which arrays, or their shapes, differ inside of `jax.shard_map`; none outside of it."""
    return tuple(sorted(frozenset().union(*(getattr(jax.typeof(x), "vma", None) or () for x in jax.tree.leaves(tree)))))


def varying(tree: Any, axes: tuple[str, ...]) -> Any:
    """Returns the tree with every leaf marked as different over these axes: a loop asks that of its start where its end is."""
    if not axes:
        return tree

    def marked(x: Any) -> Any:
        missing = tuple(axis for axis in axes if axis not in jax.typeof(x).vma)
        return jax.lax.pcast(x, missing, to="varying") if missing else x

    return jax.tree.map(marked, tree)


def spread_over_devices(leaves: list[Any], axes: list[int | None], worlds: int) -> list[Any]:
    """Returns the leaves placed on all devices, split along their world axes, where the number of devices divides them.

    Where the caller has set a mesh (`jax.set_mesh`), or is inside of `jax.shard_map`, the caller has placed them.
    """
    devices = jax.devices()
    if len(devices) == 1 or worlds % len(devices) or not jax.sharding.get_abstract_mesh().empty:
        return leaves
    mesh = jax.sharding.Mesh(np.asarray(devices), ("world",))

    def place(x: Any, axis: int | None) -> Any:
        names: list[str | None] = [None] * jnp.ndim(x)
        if axis is not None:
            names[axis] = "world"
        return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names)))

    return [place(x, axis) for x, axis in zip(leaves, axes, strict=True)]
