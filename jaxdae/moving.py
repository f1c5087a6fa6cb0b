"""Derivative rules that look at what moves and at nothing else.

A rule of `jax.custom_jvp` with symbolic zeros knows which of its arguments have a tangent. To differentiate with respect to the others
would cost time and, where these are integers or constant factors, have no meaning.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, zero_from_primal


@dataclasses.dataclass(frozen=True)
class Moving:
    """The leaves of a pytree of arguments that have a tangent.

    Attributes:
        leaves: all leaves.
        structure: of the arguments.
        places: the numbers of the leaves that move.
        dots: the tangents of all leaves, symbolic zeros among them.
    """

    leaves: list[Any]
    structure: Any
    places: list[int]
    dots: list[Any]

    @classmethod
    def of(cls, primals: Any, tangents: Any) -> Moving:
        """Returns what moves among arguments, given their tangents."""
        leaves, structure = jax.tree.flatten(primals)
        dots = structure.flatten_up_to(tangents)
        places = [k for k, (x, dx) in enumerate(zip(leaves, dots, strict=True)) if is_float(x) and not is_still(dx)]
        return cls(leaves, structure, places, dots)

    @property
    def values(self) -> list[Any]:
        """The leaves that move."""
        return [self.leaves[k] for k in self.places]

    @property
    def tangents(self) -> list[Any]:
        """Their tangents."""
        return [self.dots[k] for k in self.places]

    def filled(self, values: Any) -> Any:
        """Returns the arguments with other values of the leaves that move."""
        leaves = list(self.leaves)
        for k, value in zip(self.places, values, strict=True):
            leaves[k] = value
        return jax.tree.unflatten(self.structure, leaves)


def is_still(tangent: Any) -> bool:
    """Returns whether a tangent is zero by construction."""
    return isinstance(tangent, SymbolicZero) or getattr(tangent, "dtype", None) == jax.dtypes.float0


def is_float(x: Any) -> bool:
    """Returns whether something has derivatives: a real or complex number."""
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def zero_tangent(x: Any) -> Any:
    """Returns the tangent of a constant."""
    # That of an integer is a symbol, which says as the integer does over which devices it differs.
    return jnp.zeros_like(x) if is_float(x) else zero_from_primal(x, symbolic_zeros=True)
