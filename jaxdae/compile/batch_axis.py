"""Position of the batch axis, which indexes worlds, and the number of worlds.

The batching rule of each primitive chooses the batch axis of its results. Dot products and elementwise
operations keep the axis of their operands; linear solves move it to the front. When a compiled batch traces a
`jax.custom_jvp` function, the operations of the function fix the batch axes of its results. If the function
is differentiated later, JAX assumes the same axes for the results of the derivative rule, although the rule
computes them by other operations.

If the rule puts the batch axis elsewhere, the results are silently wrong for square arrays, and other arrays
raise a shape error. Both the function and its rule must therefore return their results with the batch axis at
the same position: use `worlds_first`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def worlds_first(tree: Any) -> Any:
    """Return the tree unchanged; under `jax.vmap`, move the batch axis of every leaf to the front.

    The batching rule of a concatenation of two slices always moves the batch axis to the front. XLA
    simplifies the concatenation to the original array.
    """
    return jax.tree.map(lambda x: jnp.concatenate([x[:1], x[1:]]) if jnp.ndim(x) else x, tree)


def leaf_axes(in_axes: Any, arguments: Any) -> list[int | None]:
    """Return the batch axis of every leaf of the arguments, from a prefix tree of axes."""
    wrong = [axis for axis in jax.tree.leaves(in_axes) if not isinstance(axis, int) or axis < 0]
    if wrong:
        raise ValueError(f"in_axes must hold axis numbers 0, 1, ... or None, got {wrong[0]!r}")
    marked = jax.tree.map(lambda axis: -1 if axis is None else axis, in_axes, is_leaf=lambda x: x is None)
    try:
        spread = jax.tree.broadcast(marked, arguments)
    except ValueError as error:
        raise ValueError(
            "in_axes must be a prefix of (system, integrator, state, controls), as in jax.vmap; "
            f"batch_axes(system, 'mass') returns one: {error}"
        ) from error
    return [None if axis == -1 else axis for axis in jax.tree.leaves(spread)]


def count_worlds(leaves: list[Any], axes: list[int | None]) -> int:
    """Return the number of worlds in the stacked leaves.

    Raises:
        ValueError: no leaf is stacked, a leaf does not have the given axis, or the leaves do not have the
            same positive number of worlds.
    """
    sizes = []
    for x, axis in zip(leaves, axes, strict=True):
        if axis is None:
            continue
        if jnp.ndim(x) <= axis:
            raise ValueError(
                f"in_axes names axis {axis} of a leaf of shape {jnp.shape(x)}, which has no such axis"
            )
        sizes.append(jnp.shape(x)[axis])
    if not sizes:
        raise ValueError(
            "batch_rollout: no leaf has a world axis; stack the start states, or name stacked leaves in "
            "in_axes"
        )
    if len(set(sizes)) > 1 or sizes[0] == 0:
        raise ValueError(
            "batch_rollout: the stacked leaves must have one positive number of worlds, got "
            f"{sorted(set(sizes))}"
        )
    return sizes[0]
