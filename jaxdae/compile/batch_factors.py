"""Factors in two forms: dense matrices for one small world, tree recursions for batches and large worlds.

LAPACK works on rows of one matrix, a recursion on the lanes of a batch. Which form is faster depends on the
size, and on whether `jax.vmap` batches the factorization. `Factors` is the only class that makes this choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.batch_last import Ruled, worlds_back, worlds_everywhere, worlds_last

Shapes = Sequence[tuple[int, ...]]


@pytree
class Factors:
    """The factors of a linear system, in one of two forms.

    `jax.vmap` requires the same arrays from one world and from a batch. The arrays of the unused form are
    therefore filled with infinity.

    Attributes:
        is_small: whether one world uses dense matrices (static).
        dense: the arrays of the dense form; empty if `is_small` is false.
        recursive: the arrays of the recursive form.
    """

    is_small: bool = static()
    dense: tuple[Any, ...]
    recursive: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        dense: Callable[..., tuple[Any, ...]],
        recursive: Callable[..., tuple[Any, ...]],
        arguments: Sequence[Any],
        *,
        is_small: bool,
        shapes: tuple[Shapes, Shapes],
    ) -> Factors:
        """Return the factors of one world or of a batch.

        Args:
            dense: function of the arguments of one small world, returns the arrays of the dense form.
            recursive: function of the arguments, returns the arrays of the recursive form. In a batch, all
                arrays have one more axis at the end, of size one in the last argument if all worlds share it.
            arguments: arrays of the same type.
            is_small: whether one world uses the dense form.
            shapes: the shapes of the arrays of both forms, of one world.

        Do not differentiate the factors, and do not close over traced arrays.
        """

        def unused(form: int) -> tuple[Any, ...]:
            return tuple(
                jnp.full(shape, jnp.inf, arguments[0].dtype) for shape in (shapes[form] if is_small else ())
            )

        @Ruled
        def made(*arguments: Any) -> tuple[Any, Any]:
            return (dense(*arguments), unused(1)) if is_small else ((), recursive(*arguments))

        @made.def_vmap
        def worlds(size: int, batched: Any, *arguments: Any) -> tuple[Any, Any]:
            if not any(batched):
                return made(*arguments), ((False,) * len(unused(0)), (False,) * len(shapes[1]))
            # The last argument, the compliance, is often constant. The compiler would take a second to look
            # up each of its zeros if it were repeated for all worlds.
            last = worlds_last(size, batched[:-1], arguments[:-1])
            last += worlds_last(size if batched[-1] else 1, batched[-1:], arguments[-1:])
            return (unused(0), worlds_back(recursive(*last))), (
                (False,) * len(unused(0)),
                (True,) * len(shapes[1]),
            )

        return cls(is_small, *made(*arguments))

    def solve(self, dense: Callable[..., Any], recursive: Callable[..., Any], *sides: Any) -> Any:
        """Return the solutions for right-hand sides (n, columns), a pytree of arrays (n, columns).

        Right-hand sides may be batched without the factors, which then have the form of one world. Each world
        of a batch may also have several right-hand sides. Such right-hand sides are treated as columns, so
        only batched factors select the recursive form.

        Args:
            dense: function (arrays of the dense form, *sides) -> solutions, of one world.
            recursive: function (arrays of the recursive form, *sides) -> solutions. In a batch, all arrays
                have one more axis at the end.
            sides: the right-hand sides.

        Do not differentiate the solutions, and do not close over traced arrays.
        """
        count = len(self.dense)

        @Ruled
        def solved(factors: Any, sides: Any) -> Any:
            return dense(factors[:count], *sides) if self.is_small else recursive(factors, *sides)

        @solved.def_vmap
        def worlds(size: int, batched: Any, factors: Any, sides: Any) -> tuple[Any, Any]:
            of_factors, of_sides = batched
            if any(of_factors):
                used = slice(count, None)
                last = worlds_last(size, (*of_factors[used], *of_sides), (*factors[used], *sides))
                arrays = len(factors) - count
                results = worlds_back(recursive(last[:arrays], *last[arrays:]))
            elif any(of_sides):
                wide = tuple(x.reshape(x.shape[0], -1) for x in worlds_last(size, of_sides, sides))
                results = jax.tree.map(
                    lambda x: worlds_back(x.reshape(x.shape[0], -1, size)), solved(factors, wide)
                )
            else:
                results = solved(factors, sides)
            return results, jax.tree.map(lambda _: any((*of_factors, *of_sides)), results)

        return solved((*self.dense, *self.recursive), sides)


def by_columns(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a solver of columns (n, columns, ...) from a solver (factors, *sides) of vectors (n, ...)."""

    def solver(factors: Any, *sides: Any) -> Any:
        one = partial(function, factors)
        if sides[0].shape[1] == 1:
            return jax.tree.map(lambda x: x[:, None], one(*(side[:, 0] for side in sides)))
        return jax.vmap(one, in_axes=1, out_axes=1)(*sides)

    return solver


def as_many_as(tree: Any, *others: Any) -> Any:
    """Batch every leaf of the tree if `jax.vmap` batches any array of the tree or of the others.

    A loop may start from the same value in all worlds and take different steps in each world. The initial
    carry is then unbatched, but the steps are batched. Factors of one world may differ in form from factors
    of a batch (see `Factors`). The data of these factors must therefore be batched if any data of the steps
    is.

    Do not differentiate the returned tree.
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
