"""Where `jax.vmap` puts the world axis of results that have a derivative rule of their own.

The batching rule of a primitive chooses the axis of its results: dots and elementwise operations keep the one they are given, solves move
it to the front. A compiled batch fixes the axes of a `jax.custom_jvp` function when it is traced, from the operations of the function;
where it is differentiated later, the same axes are assumed for the results of the derivative rule, which comes to them by other
operations. Where these leave the world axis elsewhere, the results are wrong without a word if a square array hides it, and an error of
shapes if not. Both the function and its rule must therefore return their results with the world axis at one place.
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
