"""Forward or reverse mode: how the gradient of a loss is computed.

Forward mode pushes one tangent for every trained number through the rollout, all of them in one vectorized pass. Its memory does not grow
with the number of steps, and for a handful of numbers it is the faster of the two. Reverse mode costs the same for one number and for a
million, a few forward passes, and keeps one state a step (one every `segment` steps, where the loss calls `rollout(segment=...)`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.flatten_util
import jax.numpy as jnp


class Mode(Protocol):
    """How a gradient is computed."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Returns loss(at) and its gradient, a pytree like `at`."""
        ...


@dataclasses.dataclass(frozen=True)
class Forward:
    """Forward mode: one tangent for every number, vectorized."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Returns loss(at) and its gradient by `jax.jvp`."""
        flat, unravel = jax.flatten_util.ravel_pytree(at)

        def push(tangent: Any) -> Any:
            return jax.jvp(lambda x: loss(unravel(x)), (flat,), (tangent,))

        value, gradient = jax.vmap(push, out_axes=(None, 0))(jnp.eye(flat.size, dtype=flat.dtype))
        return value, unravel(gradient)


@dataclasses.dataclass(frozen=True)
class Reverse:
    """Reverse mode."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Returns loss(at) and its gradient by `jax.grad`."""
        return jax.value_and_grad(loss)(at)


@dataclasses.dataclass(frozen=True)
class ByCount:
    """Forward mode up to `limit` numbers, reverse mode above: the rule of `fit` unless it is told otherwise.

    Attributes:
        limit: the largest number of trained numbers (of one start) for which forward mode is taken.
    """

    limit: int = 8

    def chosen(self, count: int) -> Forward | Reverse:
        """Returns the mode for so many trained numbers."""
        return Forward() if count <= self.limit else Reverse()

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Returns loss(at) and its gradient by the chosen mode."""
        return self.chosen(sum(jnp.size(x) for x in jax.tree.leaves(at))).value_and_grad(loss, at)
