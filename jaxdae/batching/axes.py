"""Which axis of an array is that of the worlds, and how many worlds there are.

The batching rule of a primitive chooses the axis of its results: dots and elementwise operations keep the one they are given, solves move
it to the front. A compiled batch fixes the axes of a `jax.custom_jvp` function when it is traced, from the operations of the function;
where it is differentiated later, the same axes are assumed for the results of the derivative rule, which comes to them by other
operations. Where these leave the world axis elsewhere, the results are wrong without a word if a square array hides it, and an error of
shapes if not. Both the function and its rule must therefore return their results with the world axis at one place: `worlds_first`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def worlds_first(tree: Any) -> Any:
    """Returns the tree as it is; under `jax.vmap`, the world axis of every leaf is then its first.

    Written as a concatenation of two slices, because its batching rule always moves the axis to the front; XLA sees that both are one
    array.
    """
    return jax.tree.map(lambda x: jnp.concatenate([x[:1], x[1:]]) if jnp.ndim(x) else x, tree)


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
