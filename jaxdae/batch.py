"""The worlds of a batch: which leaves are stacked, how many worlds there are, and on which devices they run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def leaf_axes(in_axes: Any, arguments: Any) -> list[int | None]:
    """Returns the axis of every leaf of the arguments, from a prefix tree of axes."""
    wrong = [axis for axis in jax.tree.leaves(in_axes) if not isinstance(axis, int) or axis < 0]
    if wrong:
        raise ValueError(f"in_axes must hold axis numbers 0, 1, ... or None, got {wrong[0]!r}")
    marked = jax.tree.map(lambda axis: -1 if axis is None else axis, in_axes, is_leaf=lambda x: x is None)
    try:
        spread = jax.tree.broadcast(marked, arguments)
    except ValueError as error:
        raise ValueError(
            "in_axes must be a prefix of (system, integrator, state, controls), as in jax.vmap; batch_axes(system, 'mass')"
            f" makes one: {error}"
        ) from error
    return [None if axis == -1 else axis for axis in jax.tree.leaves(spread)]


def count_worlds(leaves: list[Any], axes: list[int | None]) -> int:
    """Returns how many worlds the stacked leaves have.

    Raises:
        ValueError: none is stacked, or they differ.
    """
    sizes = []
    for x, axis in zip(leaves, axes, strict=True):
        if axis is None:
            continue
        if jnp.ndim(x) <= axis:
            raise ValueError(f"in_axes names axis {axis} of a leaf of shape {jnp.shape(x)}: it has no world axis")
        sizes.append(jnp.shape(x)[axis])
    if not sizes:
        raise ValueError("batch_rollout: no leaf has a world axis; stack the start states, or name stacked leaves in in_axes")
    if len(set(sizes)) > 1 or sizes[0] == 0:
        raise ValueError(f"batch_rollout: the stacked leaves must have one positive number of worlds, got {sorted(set(sizes))}")
    return sizes[0]


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
