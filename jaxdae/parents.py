"""How the nodes of a row find their parents in the row above: three values, each with the sums over children and what is handed down.

Where parents stand in the same places in every row of a grid, as in chains, limbs and ladders, finding them is part of the program: a few
slices, which the compiler joins with what is around them. Otherwise rows bring their own 0/1 matrices, or places where they are wide. Each
product with a matrix is a program of its own, and what enters it is computed as a matrix, an entry at a time: a step of a ladder of 256
four-bars in joint coordinates, each of 64 worlds, is traced and compiled in 0.83 of the time without them.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static
from jaxdae.typing import Leaf

PRODUCTS_UP_TO = 16
"""The width of a row up to which children find their parents by slices or by products with 0/1 matrices; by indices beyond."""

_SUMS_UP_TO = 3
"""The width of a row up to which products with 0/1 matrices are sums. A step of a chain of 8 in space in absolute coordinates, each of 64
worlds, whose rows are two wide, takes 0.8 of the time and is traced and compiled in 0.93 of it. Wider rows were not measured."""


class Parents(Protocol):
    """How nodes find their parents; a pytree."""

    def summed(self, entry: Any) -> Any:
        """Returns the sums (width, ...) over children of what nodes give (nodes, ...)."""
        ...

    def handed(self, entry: Any) -> Any:
        """Returns what parents have (width, ...) at their children (nodes, ...)."""
        ...


@pytree
class InPlaces:
    """The same in all rows: places that are part of the program.

    Attributes:
        width: of the row above (static).
        places: of the parents (static); -1 for none.
    """

    width: int = static()
    places: tuple[int, ...] = static()

    def summed(self, entry: Any) -> Any:
        """Returns the sums (width, ...) over children."""
        return self._picked(entry, [[k for k, own in enumerate(self.places) if own == place] for place in range(self.width)])

    def handed(self, entry: Any) -> Any:
        """Returns what the parents have (nodes, ...); zero where there is none."""
        return self._picked(entry, [[place] if place >= 0 else [] for place in self.places])

    def _picked(self, entry: Any, wanted: list[list[int]]) -> Any:
        if stay(np.asarray(self.places), self.width):
            return entry
        rows = [jax.lax.slice_in_dim(entry, k, k + 1) for k in range(entry.shape[0])]
        nothing = jnp.zeros_like(entry[:1])
        return jnp.concatenate([sum((rows[k] for k in some[1:]), rows[some[0]]) if some else nothing for some in wanted])


@pytree
class ByProducts:
    """0/1 matrices of each row (..., width, nodes)."""

    matrix: Leaf

    def summed(self, entry: Any) -> Any:
        """Returns the sums (width, ...) over children."""
        return _product(self.matrix, entry)

    def handed(self, entry: Any) -> Any:
        """Returns what the parents have (nodes, ...); zero where there is none."""
        return _product(self.matrix.T, entry)


def _product(matrix: Any, entry: Any) -> Any:
    """Returns A x (m, ...) of a matrix (m, n) and x (n, ...), of few n as a sum that the compiler joins with what is around it."""
    if not 0 < matrix.shape[1] <= _SUMS_UP_TO:
        return jnp.tensordot(matrix, entry, 1)
    columns = matrix.reshape(*matrix.shape, *[1] * (entry.ndim - 1))
    return sum((columns[:, k] * entry[k] for k in range(1, matrix.shape[1])), columns[:, 0] * entry[0])


@pytree
class ByIndices:
    """Places in each row (..., nodes), the width (static) for none."""

    places: Leaf
    width: int = static()

    def summed(self, entry: Any) -> Any:
        """Returns the sums (width, ...) over children."""
        return jnp.zeros((self.width + 1, *entry.shape[1:]), entry.dtype).at[self.places].add(entry)[:-1]

    def handed(self, entry: Any) -> Any:
        """Returns what the parents have (nodes, ...); zero where there is none."""
        return jnp.concatenate([entry, jnp.zeros_like(entry[:1])])[self.places]


def stay(above: np.ndarray, width: int) -> bool:
    """Returns whether all nodes stand in the places of their parents (..., nodes), -1 for none, in a row of this width."""
    return above.shape[-1] == width and bool(np.all((above == np.arange(width)) | (above < 0)))


def parents_of(above: np.ndarray, width: int, dtype: Any) -> Parents:
    """Returns how nodes find their parents in rows of this width.

    Args:
        above: the places of the parents (..., nodes); -1 for none, and in empty places, which may be handed anything and give zero.
        width: of the row above.
        dtype: of matrices.
    """
    if stay(above, width):
        return InPlaces(width, tuple(range(width)))
    rows = above.reshape(-1, above.shape[-1])
    places = rows.max(axis=0)
    if max(above.shape[-1], width) <= PRODUCTS_UP_TO and np.all((rows == places) | (rows < 0)):
        return InPlaces(width, tuple(places.tolist()))
    if width > PRODUCTS_UP_TO:
        return ByIndices(jnp.asarray(np.where(above < 0, width, above)), width)
    return ByProducts(jnp.asarray(above[..., None, :] == np.arange(width)[:, None], dtype))
