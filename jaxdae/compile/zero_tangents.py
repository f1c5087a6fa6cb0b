"""Derivative rules that differentiate only arguments with a tangent.

A rule of `jax.custom_jvp` with symbolic zeros knows which of its arguments have a tangent. Derivatives with
respect to the other arguments would cost time, and are undefined for integers or constant factors.
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
        structure: the tree structure of the arguments.
        places: the indices of the leaves with a tangent.
        dots: the tangents of all leaves, including symbolic zeros.
    """

    leaves: list[Any]
    structure: Any
    places: list[int]
    dots: list[Any]

    @classmethod
    def of(cls, primals: Any, tangents: Any) -> Moving:
        """Find the leaves with a tangent among arguments, given the tangents."""
        leaves, structure = jax.tree.flatten(primals)
        dots = structure.flatten_up_to(tangents)
        places = [
            k for k, (x, dx) in enumerate(zip(leaves, dots, strict=True)) if is_float(x) and not is_still(dx)
        ]
        return cls(leaves, structure, places, dots)

    @property
    def values(self) -> list[Any]:
        """Return the leaves with a tangent."""
        return [self.leaves[k] for k in self.places]

    @property
    def tangents(self) -> list[Any]:
        """Return the tangents of these leaves."""
        return [self.dots[k] for k in self.places]

    def filled(self, values: Any) -> Any:
        """Return the arguments with other values for the leaves with a tangent."""
        leaves = list(self.leaves)
        for k, value in zip(self.places, values, strict=True):
            leaves[k] = value
        return jax.tree.unflatten(self.structure, leaves)


def is_still(tangent: Any) -> bool:
    """Return whether a tangent is symbolically zero."""
    return isinstance(tangent, SymbolicZero) or getattr(tangent, "dtype", None) == jax.dtypes.float0


def is_float(x: Any) -> bool:
    """Return whether a value is differentiable, a real or complex floating-point number."""
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def zero_tangent(x: Any) -> Any:
    """Return the zero tangent of a constant."""
    # The tangent of an integer is a symbolic zero that varies over the same mesh axes as the integer.
    return jnp.zeros_like(x) if is_float(x) else zero_from_primal(x, symbolic_zeros=True)
