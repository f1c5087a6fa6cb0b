"""Functions of one world whose batches have the world axis last, where elementwise operations and scans are fast.

`jax.vmap` puts the world axis first. A function that works on arrays of any trailing axes is called once for all worlds instead, with the
world axis as the trailing one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxdae.batching.axes import worlds_first
from jaxdae.batching.varying import varying_with
from jaxdae.devices import on_accelerator
from jaxdae.outlining import outlined

_PART = 64
"""How many worlds repeat steps together on a CPU: what they carry and compute stays in the cache. A pose of a rover with 16 velocities,
each of 1024: 21.2 us where all go together, 19 by 256, 15.5 by 64."""


def worlds_last(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> list[Any]:
    """Returns arguments with a world axis, of which the batched ones have theirs in front, at the end."""
    return [
        jnp.moveaxis(x, 0, -1) if of_worlds else jnp.broadcast_to(x[..., None], (*x.shape, size))
        for x, of_worlds in zip(arguments, batched, strict=True)
    ]


def worlds_everywhere(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Returns arguments with a world axis, of which the batched ones have theirs in front, in front of all."""
    return tuple(x if of_worlds else jnp.broadcast_to(x, (size, *x.shape)) for x, of_worlds in zip(arguments, batched, strict=True))


def worlds_back(results: Any) -> Any:
    """Returns results with the last axis in front, where `jax.vmap` expects that of the worlds."""
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), results)


class Ruled:
    """A function of arrays, which may make constants, with a rule for batches that is given by `def_vmap`.

    `custom_vmap` takes the constants of its function for arguments that no batch has many of. A condition that differs from world to world
    makes many of everything that its branches read, these constants too, and fails. Those of a compiled unit are its own.

    Inside of `jax.shard_map` all results differ from device to device where any argument does: those of one world as those of a batch,
    which is made of what was traced of one world.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._one = custom_vmap(jax.jit(lambda *arguments: varying_with(function(*arguments), arguments)))

    def __call__(self, *arguments: Any) -> Any:
        """Returns the results of one world, or of a batch by the rule."""
        return self._one(*arguments)

    def def_vmap(self, rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Takes the rule (size, batched, *arguments) -> (results, which of them are batched), as that of `custom_vmap`."""

        def marked(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
            results, of_results = rule(size, batched, *arguments)
            return varying_with(results, arguments), of_results

        self._one.def_vmap(marked)
        return rule


def with_rule(function: Callable[..., Any], rule: Callable[[int, Sequence[bool], Sequence[Any]], Any]) -> Callable[..., Any]:
    """Returns a function of arrays, in place of which a rule is called where a batch has many of any of its arguments.

    Args:
        function: takes arrays and returns a pytree of arrays.
        rule: (size, batched, arguments) -> what the function returns of all worlds, their axis in front everywhere. Arguments that are
            batched have theirs in front, too.

    Not to be differentiated, and no closure over traced arrays.
    """

    # Positional arguments only: `custom_vmap` would take the defaults of others for arrays.
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
    """Returns a function of arrays, with a batching rule that makes one call for all worlds.

    Args:
        function: takes arrays and returns a pytree of arrays.
        many: what is called of all worlds, whose axis is the last of all arrays; by default the function, where it takes such arrays too.

    Not to be differentiated, and no closure over traced arrays.
    """
    return with_rule(function, lambda *batch: worlds_back((many or function)(*worlds_last(*batch))))


def faster_by_worlds(function: Callable[..., Any], rule: Callable[[int, Sequence[bool], Sequence[Any]], Any]) -> Callable[..., Any]:
    """Returns a function of arrays, in place of which a rule is called of batches where nothing is differentiated; see `with_rule`.

    Args:
        function: takes arrays and returns a pytree of arrays; its derivatives are those of what is returned.
        rule: as in `with_rule`.
    """
    ruled_function = with_rule(function, rule)

    @jax.custom_jvp
    def one(*arguments: Any) -> Any:
        return ruled_function(*arguments)

    @one.defjvp
    def one_jvp(primals: Any, tangents: Any) -> Any:
        return worlds_first(jax.jvp(function, primals, tangents))  # As the rule has them, see `jaxdae.batching.axes`.

    return one


def concatenated(parts: Sequence[Any]) -> Any:
    """Returns arrays (k,) joined; a batch joins them with the worlds last, by copying. Differentiable."""
    return faster_by_worlds(lambda *parts: jnp.concatenate(parts), lambda *batch: worlds_back(joined(*worlds_last(*batch))))(*parts)


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of arrays whose batches call it for one world after the other on a CPU, and for all at once elsewhere.

    For factorizations by LAPACK. jaxlib divides a batch of them among the threads of XLA's pool and waits for the parts on one of these
    threads. Where as many batches are factorized at a time as there are threads, all wait, and the program never ends: two independent SVDs
    of a step do so on two cores. Of one matrix nothing is divided. It costs the same time of the CPU and changes no bit.

    Args:
        function: takes arrays and returns a pytree of arrays.

    Not to be differentiated, and no closure over traced arrays.
    """

    def by_turns(*every: Any) -> Any:
        # A batch of batches comes through the rule again.
        return jax.lax.map(lambda world: one(*world), every)

    def rule(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> Any:
        every = worlds_everywhere(size, batched, arguments)
        return jax.lax.platform_dependent(*every, cpu=by_turns, default=jax.vmap(function))

    one = with_rule(function, rule)
    return one


def solved_by_worlds(one: Callable[..., Any], many: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function (factors, *sides) -> solutions, where a batch of worlds has factors of another form than one world has.

    Right-hand sides alone may be many, too: those of one world, whose factors are of its own form, and each world of a batch may have
    several. They are seen as columns, which leaves the question of the form to the worlds.

    Args:
        one: the function of factors (a tuple of arrays) and right-hand sides (n,) of one world; returns a pytree of arrays (n,).
        many: the same of a batch, all of whose arrays have one axis more, at their ends.

    Not to be differentiated, and no closure over traced arrays.
    """

    @Ruled
    def columns(factors: Any, sides: Any) -> Any:
        return _by_columns(partial(one, factors), sides)

    @columns.def_vmap
    def worlds(size: int, batched: Any, factors: Any, sides: Any) -> tuple[Any, Any]:
        of_factors, of_sides = batched
        if not any((*of_factors, *of_sides)):
            results = columns(factors, sides)
            return results, jax.tree.map(lambda _: False, results)
        if any(of_factors):
            every = worlds_last(size, (*of_factors, *of_sides), (*factors, *sides))
            results = worlds_back(_by_columns(partial(many, tuple(every[: len(factors)])), every[len(factors) :]))
        else:
            wide = tuple(x.reshape(x.shape[0], -1) for x in worlds_last(size, of_sides, sides))
            results = jax.tree.map(lambda x: worlds_back(x.reshape(x.shape[0], -1, size)), columns(factors, wide))
        return results, jax.tree.map(lambda _: True, results)

    def solve(factors: tuple[Any, ...], *sides: Any) -> Any:
        return jax.tree.map(lambda x: x[:, 0], columns(factors, tuple(side[:, None] for side in sides)))

    return solve


def linear(function: Callable[..., Any], transpose: Callable[..., Any], entries: Sequence[Any]) -> list[Any]:
    """Returns the results (n,), as many as entries (n,), of a linear function whose transpose is given; both may have rules for batches.

    For JAX it is the solution of a linear system, for whose matrix it never asks: of what has a transpose of its own, nothing else may have
    such rules inside. All entries are one right-hand side, of which a part may be known to be zero.

    Args:
        function: (*entries) -> results.
        transpose: (*results) -> entries.
        entries: at which the function is wanted; derivatives, too.
    """
    count = len(entries)

    def of_one(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, b: jnp.concatenate(of(*parts(b)))

    def parts(b: Any) -> list[Any]:
        return jnp.split(b, count) if count > 1 else [b]

    b = jnp.concatenate(list(entries))
    return parts(jax.lax.custom_linear_solve(lambda x: x, b, of_one(function), of_one(transpose)))


def together(*entries: Any) -> Any:
    """Returns arrays of one shape as one, by copying; see `joined`."""
    return joined(*entries).reshape(len(entries), *entries[0].shape)


@outlined
def joined(*parts: Any) -> Any:
    """Returns arrays joined along their first axis.

    A unit: what enters an array is otherwise computed number by number where that is done, in a loop with a case for each part, which takes
    the compiler up to a hundred times as long as copying. So would a further axis that parts get in it.
    """
    return jnp.concatenate(parts)


def as_many_as(tree: Any, *others: Any) -> Any:
    """Returns the tree; where `jax.vmap` makes many of any array of it or of the others, it has an entry for each world everywhere.

    A loop whose start is the same in all worlds, and whose steps differ, has a start of one world and steps of many. Factors of one world
    may have another form (see `solved_by_worlds`), so what they are made of is to be as many as all that the steps depend on.

    Not to be differentiated.
    """
    leaves, structure = jax.tree.flatten(tree)

    @Ruled
    def same(leaves: Any, rest: Any) -> Any:
        return leaves

    @same.def_vmap
    def worlds(size: int, batched: Any, leaves: Any, rest: Any) -> tuple[Any, Any]:
        many = any(jax.tree.leaves(batched))
        spread = list(worlds_everywhere(size, batched[0], leaves)) if many else leaves
        return same(spread, rest), [many] * len(leaves)

    rest = [x for x in jax.tree.leaves(others) if hasattr(x, "dtype")]
    return jax.tree.unflatten(structure, same([jnp.asarray(x) for x in leaves], rest))


def _by_columns(function: Callable[..., Any], sides: Sequence[Any]) -> Any:
    """Returns the function of each column (n, ...) of arrays (n, columns, ...), as columns."""
    if sides[0].shape[1] == 1:
        return jax.tree.map(lambda x: x[:, None], function(*(side[:, 0] for side in sides)))
    return jax.vmap(function, in_axes=1, out_axes=1)(*sides)


def repeated_so_often(body: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Returns a function (carried, *arguments) that repeats a step so many times; see `jax.lax.fori_loop`.

    In a batch the worlds are last in all that the loop reads and carries. `jax.lax.fori_loop` would have them first: arrays in which they
    are last, such as factors, were then copied before the loop, and back in each of its steps.

    Args:
        body: (carried, *arguments) -> what is carried after a step, a pytree like what was carried before.
        count: how often.

    Not to be differentiated, and no closure over traced arrays.
    """

    @Ruled
    def one(carried: Any, arguments: Any) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, at: body(at, *arguments), varying_with(carried, arguments))

    @one.def_vmap
    def many(size: int, batched: Any, carried: Any, arguments: Any) -> tuple[Any, Any]:
        begun, structure = jax.tree.flatten(carried)
        begun = worlds_last(size, jax.tree.leaves(batched[0]), begun)
        axes = jax.tree.map(lambda of_worlds: -1 if of_worlds else None, batched[1])
        moved = jax.tree.map(lambda x, of_worlds: jnp.moveaxis(x, 0, -1) if of_worlds else x, arguments, batched[1])
        step = jax.vmap(lambda at, rest: body(at, *rest), in_axes=(-1, axes), out_axes=-1, axis_size=size)
        begun = varying_with(jax.tree.unflatten(structure, begun), moved)
        found = worlds_back(jax.lax.fori_loop(0, count, lambda _, at: step(at, moved), begun))
        return found, jax.tree.map(lambda _: True, found)

    def repeated(carried: Any, *arguments: Any) -> Any:
        return one(jax.tree.map(jnp.asarray, carried), arguments)

    return repeated


def repeated_by_worlds(first: Callable[..., Any], goes_on: Callable[..., Any], body: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of arguments that repeats a step while there is need to, of as many worlds as there are; see `jax.lax.while_loop`.

    In a batch the worlds are last in all that is carried, which `jax.lax.while_loop` would have first, and each stops by itself. Large
    batches are taken in parts where JAX's default device is a CPU.

    Args:
        first: (*arguments) -> what is carried, a pytree.
        goes_on: of what is carried, whether another step is needed ().
        body: (carried, *arguments) -> what is carried after a step.

    Not to be differentiated, and no closure over traced arrays.
    """
    # As units they are traced once: for one world, and for both sizes of batches.
    first, body = jax.jit(first), jax.jit(body)

    @Ruled
    def one(*arguments: Any) -> Any:
        return jax.lax.while_loop(goes_on, lambda carried: body(carried, *arguments), varying_with(first(*arguments), arguments))

    def at_once(size: int, structure: Any, axes: tuple[int | None, ...], leaves: Sequence[Any]) -> Any:
        """Returns the results of so many worlds, whose axis is the first of all results and of the leaves with an axis."""
        moved = [x if axis is None else jnp.moveaxis(x, 0, -1) for x, axis in zip(leaves, axes, strict=True)]
        mapped = partial(jax.vmap, out_axes=-1, axis_size=size)
        begun = mapped(lambda *x: first(*jax.tree.unflatten(structure, x)), in_axes=axes)(*moved)
        step = mapped(lambda carried, *x: body(carried, *jax.tree.unflatten(structure, x)), in_axes=(-1, *axes))

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
        """Returns what `at_once` does, `_PART` worlds after the other; the last one fills up what does not divide."""
        parts = -(-size // _PART)
        numbers = np.minimum(np.arange(parts * _PART), size - 1)
        many = [x if axis is None else x[numbers].reshape(parts, _PART, *x.shape[1:]) for x, axis in zip(leaves, axes, strict=True)]

        def of_part(own: Any) -> Any:
            rest = iter(own)
            return at_once(_PART, structure, axes, [x if axis is None else next(rest) for x, axis in zip(many, axes, strict=True)])

        found = jax.lax.map(of_part, tuple(x for x, axis in zip(many, axes, strict=True) if axis is not None))
        return jax.tree.map(lambda x: x.reshape(parts * _PART, *x.shape[2:])[:size], found)

    @one.def_vmap
    def many(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(arguments)
        axes = tuple(-1 if of_worlds else None for of_worlds in jax.tree.leaves(batched))
        # One of both, decided here: to trace the other one too, for a device that is not there, takes as long as all else.
        in_parts = size > _PART and not on_accelerator()
        results = (by_parts if in_parts else at_once)(size, structure, axes, leaves)
        return results, jax.tree.map(lambda _: True, results)

    return one
