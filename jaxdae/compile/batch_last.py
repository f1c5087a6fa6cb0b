"""Functions of one world that are batched with the batch axis last.

Elementwise operations and scans are fast in this layout. `jax.vmap` puts the batch axis first. A function
that accepts arrays with arbitrary trailing axes is instead called once for all worlds, with the batch axis as
a trailing axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxdae.compile.noinline import outlined
from jaxdae.compile.sharding import varying_with


def worlds_last(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> list[Any]:
    """Move the batch axis of batched arguments from first to last, and broadcast the other arguments."""
    return [
        jnp.moveaxis(x, 0, -1) if of_worlds else jnp.broadcast_to(x[..., None], (*x.shape, size))
        for x, of_worlds in zip(arguments, batched, strict=True)
    ]


def worlds_everywhere(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Broadcast unbatched arguments, so that all arguments have the batch axis first."""
    return tuple(
        x if of_worlds else jnp.broadcast_to(x, (size, *x.shape))
        for x, of_worlds in zip(arguments, batched, strict=True)
    )


def worlds_back(results: Any) -> Any:
    """Move the last axis of all results to the front, where `jax.vmap` expects the batch axis."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), results)


class Ruled:
    """A function of arrays with a batching rule, which `def_vmap` sets. The function may create constants.

    `custom_vmap` treats the constants of its function as arguments that are never batched. A condition whose
    predicate differs between worlds batches everything that its branches read, including these constants, and
    fails. The constants of a jitted function stay inside that function.

    Inside `jax.shard_map`, all results vary over the devices if any argument does. This holds for one world
    as for a batch, because JAX builds a batch from the trace of one world.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._one = custom_vmap(jax.jit(lambda *arguments: varying_with(function(*arguments), arguments)))

    def __call__(self, *arguments: Any) -> Any:
        """Return the results of one world, or apply the batching rule to a batch."""
        return self._one(*arguments)

    def def_vmap(self, rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Set the rule (size, batched, *arguments) -> (results, which are batched), as in `custom_vmap`."""

        def marked(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
            results, of_results = rule(size, batched, *arguments)
            return varying_with(results, arguments), of_results

        self._one.def_vmap(marked)
        return rule


def with_rule(
    function: Callable[..., Any], rule: Callable[[int, Sequence[bool], Sequence[Any]], Any]
) -> Callable[..., Any]:
    """Return a function of arrays that calls a rule instead if any argument is batched.

    Args:
        function: takes arrays and returns a pytree of arrays.
        rule: (size, batched, arguments) -> the function's results for all worlds, all with the batch axis
            first. Batched arguments also have the batch axis first.

    Do not differentiate the returned function, and do not close over traced arrays.
    """

    # Positional arguments only: `custom_vmap` would treat the defaults of other arguments as arrays.
    @Ruled
    def one(*arguments: Any) -> Any:
        return function(*arguments)

    @one.def_vmap
    def many(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        is_batch = any(batched)
        results = rule(size, batched, arguments) if is_batch else one(*arguments)
        return results, jax.tree.map(lambda _: is_batch, results)

    return one


def over_worlds(function: Callable[..., Any], many: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a function of arrays whose batching rule makes a single call for all worlds.

    Args:
        function: takes arrays and returns a pytree of arrays.
        many: the function for a batch, with the batch axis last in all arrays; by default `function`, which
            must then accept such arrays.

    Do not differentiate the returned function, and do not close over traced arrays.
    """
    return with_rule(function, lambda *batch: worlds_back((many or function)(*worlds_last(*batch))))


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that runs a batch one world at a time on a CPU, and at once elsewhere.

    Use it for LAPACK factorizations. jaxlib splits a batch of factorizations among the threads of XLA's pool
    and waits for the parts on one of these threads. If as many batches are factorized concurrently as there
    are threads, all threads wait, and the program deadlocks: two independent SVDs in a step do so on two
    cores. jaxlib does not split a single matrix. The loop takes the same CPU time, and its results are
    bitwise identical.

    Args:
        function: takes arrays and returns a pytree of arrays.

    Do not differentiate the returned function, and do not close over traced arrays.
    """

    def by_turns(*every: Any) -> Any:
        # The recursive call applies the rule to nested batches.
        return jax.lax.map(lambda world: one(*world), every)

    def rule(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> Any:
        every = worlds_everywhere(size, batched, arguments)
        return jax.lax.platform_dependent(*every, cpu=by_turns, default=jax.vmap(function))

    one = with_rule(function, rule)
    return one


def linear(function: Callable[..., Any], transpose: Callable[..., Any], entries: Sequence[Any]) -> list[Any]:
    """Return the results (n,) of a linear function with a given transpose, as many results as entries (n,).

    Both functions may have batching rules. JAX treats the function as the solution of a linear system and
    never asks for the matrix; no other JAX construct with a custom transpose allows batching rules inside.
    The entries are joined into one right-hand side, so the tangents of some entries may be symbolic zeros.

    Args:
        function: (*entries) -> results.
        transpose: (*results) -> entries.
        entries: the arguments of the function; differentiable.
    """
    count = len(entries)

    def of_one(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, b: jnp.concatenate(of(*parts(b)))

    def parts(b: Any) -> list[Any]:
        return jnp.split(b, count) if count > 1 else [b]

    b = jnp.concatenate(list(entries))
    return parts(jax.lax.custom_linear_solve(lambda x: x, b, of_one(function), of_one(transpose)))


@outlined
def joined(*parts: Any) -> Any:
    """Concatenate arrays along their first axis, as an outlined function.

    Otherwise XLA computes the parts element by element inside the concatenation, in a loop with a branch per
    part. The compiler takes up to a hundred times as long for this loop as for a copy. Adding an axis to the
    parts inside this function would have the same effect.
    """
    return jnp.concatenate(parts)
