"""Functions of one world that are batched with the batch axis last.

Elementwise operations and scans are fast in this layout. `jax.vmap` puts the batch axis first. A function
that accepts arrays with arbitrary trailing axes is instead called once for all worlds, with the batch axis as
a trailing axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.noinline import outlined
from jaxdae.compile.platform import on_accelerator
from jaxdae.compile.sharding import varying_with

_PART = 64
"""The number of worlds that iterate together on a CPU, so that loop carries and intermediate results stay in
the cache. Pose of a rover with 16 velocities, time per world in a batch of 1024: 21.2 us with all worlds at
once, 19 us in parts of 256, 15.5 us in parts of 64."""


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


def faster_by_worlds(
    function: Callable[..., Any], rule: Callable[[int, Sequence[bool], Sequence[Any]], Any]
) -> Callable[..., Any]:
    """Return a function of arrays with a batching rule for undifferentiated batches; see `with_rule`.

    Args:
        function: takes arrays and returns a pytree of arrays; also defines the derivatives.
        rule: as in `with_rule`.
    """
    ruled_function = with_rule(function, rule)

    @jax.custom_jvp
    def one(*arguments: Any) -> Any:
        return ruled_function(*arguments)

    @one.defjvp
    def one_jvp(primals: Any, tangents: Any) -> Any:
        return worlds_first(jax.jvp(function, primals, tangents))  # See `jaxdae.compile.batch_axis`.

    return one


def concatenated(parts: Sequence[Any]) -> Any:
    """Concatenate arrays (k,); a batch copies them with the batch axis last. Differentiable."""
    return faster_by_worlds(
        lambda *parts: jnp.concatenate(parts), lambda *batch: worlds_back(joined(*worlds_last(*batch)))
    )(*parts)


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


def repeated_so_often(body: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return a function (carried, *arguments) that repeats a step `count` times; see `jax.lax.fori_loop`.

    In a batch, all arrays that the loop reads and carries have the batch axis last. A plain
    `jax.lax.fori_loop` would move the axis to the front. Arrays with the batch axis last, such as factors,
    would then be copied before the loop and back in each step.

    Args:
        body: (carried, *arguments) -> the carry after a step, a pytree with the structure of `carried`.
        count: the number of steps.

    Do not differentiate the returned function, and do not close over traced arrays.
    """

    @Ruled
    def one(carried: Any, arguments: Any) -> Any:
        return jax.lax.fori_loop(
            0, count, lambda _, at: body(at, *arguments), varying_with(carried, arguments)
        )

    @one.def_vmap
    def many(size: int, batched: Any, carried: Any, arguments: Any) -> tuple[Any, Any]:
        begun, structure = jax.tree.flatten(carried)
        begun = worlds_last(size, jax.tree.leaves(batched[0]), begun)
        axes = jax.tree.map(lambda of_worlds: -1 if of_worlds else None, batched[1])
        moved = jax.tree.map(
            lambda x, of_worlds: jnp.moveaxis(x, 0, -1) if of_worlds else x, arguments, batched[1]
        )
        step = jax.vmap(lambda at, rest: body(at, *rest), in_axes=(-1, axes), out_axes=-1, axis_size=size)
        begun = varying_with(jax.tree.unflatten(structure, begun), moved)
        found = worlds_back(jax.lax.fori_loop(0, count, lambda _, at: step(at, moved), begun))
        return found, jax.tree.map(lambda _: True, found)

    def repeated(carried: Any, *arguments: Any) -> Any:
        return one(jax.tree.map(jnp.asarray, carried), arguments)

    return repeated


def repeated_by_worlds(
    first: Callable[..., Any], goes_on: Callable[..., Any], body: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that repeats a step while a condition holds; see `jax.lax.while_loop`.

    In a batch, the carry has the batch axis last, unlike in `jax.lax.while_loop`, and each world stops on its
    own. If JAX's default device is a CPU, large batches run in parts.

    Args:
        first: (*arguments) -> the initial carry, a pytree.
        goes_on: (carried) -> whether another step is needed ().
        body: (carried, *arguments) -> the carry after a step.

    Do not differentiate the returned function, and do not close over traced arrays.
    """
    # Jitted, so that JAX traces them once for one world and for both batch sizes.
    first, body = jax.jit(first), jax.jit(body)

    @Ruled
    def one(*arguments: Any) -> Any:
        return jax.lax.while_loop(
            goes_on, lambda carried: body(carried, *arguments), varying_with(first(*arguments), arguments)
        )

    def at_once(size: int, structure: Any, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> Any:
        """Return the results of `size` worlds; the batch axis is first there and in leaves with an axis."""
        moved = [x if axis is None else jnp.moveaxis(x, 0, -1) for x, axis in zip(leaves, axes, strict=True)]
        mapped = partial(jax.vmap, out_axes=-1, axis_size=size)
        begun = mapped(lambda *x: first(*jax.tree.unflatten(structure, x)), in_axes=axes)(*moved)
        step = mapped(
            lambda carried, *x: body(carried, *jax.tree.unflatten(structure, x)), in_axes=(-1, *axes)
        )

        def some_go_on(carried: Any) -> Any:
            return jnp.any(carried[1])

        def stepped(carried: Any) -> Any:
            before, going = carried
            after = jax.tree.map(lambda new, old: jnp.where(going, new, old), step(before, *moved), before)
            return after, going & still(after)

        still = mapped(goes_on, in_axes=-1)
        begun = varying_with(begun, moved)
        return worlds_back(jax.lax.while_loop(some_go_on, stepped, (begun, still(begun)))[0])

    def by_parts(size: int, structure: Any, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> Any:
        """Return the results of `at_once` in parts of `_PART` worlds, padded by copies of the last world."""
        parts = -(-size // _PART)
        numbers = np.minimum(np.arange(parts * _PART), size - 1)
        many = [
            x if axis is None else x[numbers].reshape(parts, _PART, *x.shape[1:])
            for x, axis in zip(leaves, axes, strict=True)
        ]

        def of_part(own: Any) -> Any:
            rest = iter(own)
            return at_once(
                _PART,
                structure,
                axes,
                [x if axis is None else next(rest) for x, axis in zip(many, axes, strict=True)],
            )

        found = jax.lax.map(of_part, tuple(x for x, axis in zip(many, axes, strict=True) if axis is not None))
        return jax.tree.map(lambda x: x.reshape(parts * _PART, *x.shape[2:])[:size], found)

    @one.def_vmap
    def many(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(arguments)
        axes = tuple(-1 if of_worlds else None for of_worlds in jax.tree.leaves(batched))
        # Choose here: tracing the other variant too, for an absent device, takes as long as everything else.
        in_parts = size > _PART and not on_accelerator()
        results = (by_parts if in_parts else at_once)(size, structure, axes, leaves)
        return results, jax.tree.map(lambda _: True, results)

    return one
