"""Recursions over rows of a grid, several rows in a step of the loop.

What `jax.lax.scan` does with `unroll`, in fewer operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

AT_ONCE = 4
"""How many levels a step of a scan takes at most, where rows are short: a step costs half a microsecond. Rows of few nodes are taken one by
one all the same, sums and articulated bodies apart: what is made of products and sums is computed again in each of several levels. One
world, times of a step by one level in place of four: a chain of 256 in space takes 0.88 by frames and another 0.88 by substitutions, but
1.15 by articulated bodies; a ladder of 64 four-bars 0.85 in both coordinates, with programs of two thirds of the length. A tree with five
limbs takes 1.03 by frames and as much by substitutions."""

_FEW = 3
"""The width of a grid up to which rows have few nodes."""

_LONG = 256
"""The number of entries from which a row is long."""


def looped(
    row: Callable[[Any, Any], tuple[Any, Any]],
    given: Any,
    own: Any,
    *,
    shape: tuple[int, int],
    longest: int,
    inward: bool,
    at_once: int,
    stacked: bool = False,
) -> tuple[Any, Any]:
    """Returns what the last row gives, and what all nodes keep.

    Args:
        row: takes what a row is given and what its nodes have; returns what they give, and what they keep.
        given: what the first row is given, a pytree of arrays.
        own: what nodes have, a pytree of arrays (levels width, ...), row after row.
        shape: levels and width.
        longest: how many entries a row has at most.
        inward: whether the recursion goes from the last row to the first.
        at_once: how many levels a step of the loop takes at most, where rows are of few nodes, see `AT_ONCE`.
        stacked: whether a step stacks what its rows keep, in place of joining it; what is no more than a sum is faster so (a chain of 256
            in space, one world: a step takes 1.16 of the time where sums are joined).
    """
    levels, width = shape
    together = max(min(_together(levels, width, longest, at_once), levels), 1)
    is_stack = stacked and together > 1

    def rows(given: Any, own: Any, count: int = together, join: Any = jnp.concatenate) -> tuple[Any, Any]:
        kept = []
        for k in range(count)[:: -1 if inward else 1]:
            given, keeps = row(given, jax.tree.map(lambda x, k=k: x[k * width : (k + 1) * width], own))
            kept.append(keeps)
        return given, jax.tree.map(lambda *parts: parts[0] if count == 1 else join(parts), *kept[:: -1 if inward else 1])

    if together == levels and not inward:  # Inward, of what the first row gives, nothing is read: without it, it would be another unit.
        return rows(given, own)
    steps, rest = divmod(levels, together)
    # Those that are left over come before the others.
    cut = (levels - rest if inward else rest) * width
    first, last = (jax.tree.map(lambda x, of=of: x[of], own) for of in (slice(cut), slice(cut, None)))
    few, many = (last, first) if inward else (first, last)
    others = None
    if rest:
        given, others = rows(given, few, rest)
    grids = jax.tree.map(lambda x: x.reshape(steps, together * width, *x.shape[1:]), many)
    join = jnp.stack if is_stack else jnp.concatenate
    given, found = jax.lax.scan(lambda given, own: rows(given, own, join=join), given, grids, reverse=inward)
    kept = jax.tree.map(lambda x: x.reshape(-1, *x.shape[3 if is_stack else 2 :]), found)
    if rest:
        kept = jax.tree.map(lambda *parts: jnp.concatenate(parts), *((kept, others) if inward else (others, kept)))
    return given, kept


def _together(levels: int, width: int, longest: int, at_once: int) -> int:
    """Returns how many levels a step of the loop takes; those that are left over are a program of their own."""
    if longest >= _LONG:
        return 1
    is_narrow = width <= _FEW and levels > 2  # One or two levels are no loop.
    most = at_once if is_narrow else AT_ONCE
    return next((count for count in range(most, 1, -1) if levels % count == 0), most)
