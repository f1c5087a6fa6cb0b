"""Sums over a tree as products with constant matrices. In a batch the worlds are last in them, in their derivatives and transposes.

Reverse mode of a rollout is made of the transposes of these sums, with closed forms between them. JAX would write the cotangents of all
components side by side for a product whose rows are worlds: each entry by itself, with all that it is made of, and no two worlds at a time.
A gradient through a tree of 30 bodies took 8.4 forward passes then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.batching.last import linear, with_rule, worlds_back, worlds_last
from jaxdae.levels import ordered
from jaxdae.mechanisms.measures import columns as columns_of
from jaxdae.outlining import outlined


def multiplied(matrices: Sequence[np.ndarray], entries: Sequence[Any]) -> list[list[Any]]:
    """Returns the products C x (m,) of constant matrices C (m, n) and several x (n,), for each matrix those of all x.

    In a batch the worlds are last in one product, and in what is made of the results then, too. Differentiable, but not to be called with
    derivatives: reverse mode could not transpose it, as it does `linearly_multiplied`.
    """
    products = _products(matrices)

    @jax.custom_jvp
    def one(*entries: Any) -> tuple[Any, ...]:
        return products(*entries)

    @one.defjvp
    def one_jvp(primals: Any, tangents: Any) -> Any:
        # A product for each matrix: of several results there may be one alone whose derivative is asked for. Equal ones are one.
        rates = {matrix.tobytes(): linearly_multiplied(matrix, tangents) for matrix in matrices}
        return one(*primals), tuple(itertools.chain(*(rates[matrix.tobytes()] for matrix in matrices)))

    found, k = list(one(*entries)), len(entries)
    return [found[j : j + k] for j in range(0, len(found), k)]


def linearly_multiplied(matrix: np.ndarray, entries: Sequence[Any]) -> list[Any]:
    """Returns the products C x (m,) of a constant matrix C (m, n) and several x (n,), of derivatives too, which may be transposed."""
    rows, columns = matrix.shape
    size = max(rows, columns)  # As many results as entries; those that are too few are filled up with zeros.
    square = np.zeros((size, size))
    square[:rows, :columns] = matrix
    entries = [jnp.pad(x, (0, size - columns)) if size > columns else x for x in entries]
    found = linear(_products([square]), _products([square.T]), entries)
    return [x[:rows] if size > rows else x for x in found]


def summed_at(columns: np.ndarray, entries: Any, count: int) -> Any:
    """Returns sums (k, count) of entries (k, n) over those that stand in each of so many columns; those in column `count` fall away."""
    nothing = jnp.zeros((entries.shape[0], count + 1), entries.dtype)
    if len(set(columns)) < len(columns):
        return nothing.at[:, columns].add(entries)[:, :-1]
    # One body at most for each velocity: found by indices, which is faster than additions.
    bodies = np.full(count + 1, entries.shape[1])
    bodies[columns] = np.arange(len(columns))
    if np.array_equal(bodies[:-1], np.arange(entries.shape[1])):
        return entries
    return columns_of(jnp.concatenate([entries, nothing[:, :1]], axis=1), bodies[:-1])


def _products(matrices: Sequence[np.ndarray]) -> Callable[..., Any]:
    """Returns the function from entries to the products with all of these matrices, one after the other."""
    matrix = np.concatenate(matrices)
    ends = np.cumsum([len(matrix) for matrix in matrices])
    is_choice = bool(np.all(matrix.sum(axis=1) <= 1.0))
    chosen = np.where(matrix.any(axis=1), matrix.argmax(axis=1), matrix.shape[1])
    rows, places = np.unique(matrix, axis=0, return_inverse=True)  # Equal rows are multiplied once.
    first = np.unique(places.reshape(-1), return_index=True)[1]
    order = np.argsort(first)  # Rows stay in the order in which they come, so that most need not be moved afterwards.
    rows, places = rows[order], np.argsort(order)[places.reshape(-1)]

    def of_one(*entries: Any) -> Any:
        stacked = jnp.stack(entries)
        return tuple(row for matrix in matrices for row in stacked @ jnp.asarray(matrix.T, stacked.dtype))

    def at_once(size: int, batched: Sequence[bool], entries: Sequence[Any]) -> Any:
        last = worlds_last(size, batched, entries)
        taken = chosen if is_choice else places
        if not is_choice:
            products = _multiplied_last(jnp.asarray(rows, last[0].dtype), *last)
            last = [products[:, k * size : (k + 1) * size] for k in range(len(last))]
        wanted = [taken[end - len(matrix) : end] for matrix, end in zip(matrices, ends, strict=True)]
        return worlds_back(tuple(ordered(x, numbers) for numbers in wanted for x in last))

    return with_rule(of_one, at_once)


@outlined
def _multiplied_last(matrix: Any, *entries: Any) -> Any:
    """Returns products (m, k worlds) with k entries (n, worlds); a unit as `jaxdae.batching.last.together` is."""
    return matrix @ jnp.concatenate(entries, axis=1)
