"""A costly function that only a few worlds of a batch need.

Under `jax.vmap`, `lax.cond` evaluates both branches for all worlds, and a `lax.while_loop` iterates all
worlds until the last one has finished. Here, a batch evaluates the function only for worlds that need it: one
after another on CPUs, and in groups elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.compile.batch_last import with_rule, worlds_everywhere

GROUPS = 32
"""Largest number of groups of a batch."""


def where_needed(needed: Any, function: Callable[..., Any], otherwise: Any, *arguments: Any) -> Any:
    """Return `function(*arguments)` where it is needed, and `otherwise` elsewhere.

    Args:
        needed: whether the function is needed (), boolean.
        function: takes the arguments and returns a pytree like `otherwise`. It must not close over traced
            arrays.
        otherwise: pytree of arrays.
        arguments: pytrees of arrays.

    The result cannot be differentiated.
    """
    leaves, structure = jax.tree.flatten((needed, otherwise, arguments))

    def of_one(*leaves: Any) -> Any:
        needed, otherwise, arguments = structure.unflatten(leaves)

        def once(carry: Any) -> Any:
            needed, _, arguments = carry
            # Without the barrier, XLA evaluates the function before the loop: its arguments do not change.
            return jnp.zeros_like(needed), function(*arguments), jax.lax.optimization_barrier(arguments)

        # A loop of at most one iteration: fused kernels evaluate both branches of `lax.cond`.
        return jax.lax.while_loop(lambda carry: carry[0], once, (needed, otherwise, arguments))[1]

    def by_turns(*leaves: Any) -> Any:
        return in_parts(jnp.argmax, one, leaves)

    def in_groups(*leaves: Any) -> Any:
        size = -(-len(leaves[0]) // GROUPS)
        return in_parts(
            lambda needed: jax.lax.top_k(needed.astype(jnp.int32), size)[1], jax.vmap(of_one), leaves
        )

    def in_parts(choose: Callable[[Any], Any], evaluate: Callable[..., Any], leaves: Sequence[Any]) -> Any:
        """Evaluate the worlds that are chosen among those that need it, until no world needs it."""

        def part(carry: Any) -> Any:
            needed, results = carry
            worlds = choose(needed)
            found = evaluate(*(x[worlds] for x in leaves))
            return needed.at[worlds].set(False), jax.tree.map(
                lambda x, y: x.at[worlds].set(y), results, found
            )

        needed, otherwise, _ = structure.unflatten(leaves)
        return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), part, (needed, otherwise))[1]

    def rule(size: int, batched: Sequence[bool], leaves: Sequence[Any]) -> Any:
        every = worlds_everywhere(size, batched, leaves)
        return jax.lax.platform_dependent(*every, cpu=by_turns, default=in_groups)

    one = with_rule(of_one, rule)
    return one(*leaves)
