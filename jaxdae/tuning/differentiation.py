"""Forward or reverse mode for the gradient of a loss.

Forward mode pushes one tangent per trained number through the rollout, all in one vectorized pass. Its memory
does not grow with the number of steps, and it is the faster mode for a few numbers. The cost of reverse mode
does not depend on the number of trained numbers: a few forward passes for one number or for a million. It
saves one state per step (or one per `segment` steps, if the loss calls `rollout(segment=...)`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.flatten_util
import jax.numpy as jnp


class Mode(Protocol):
    """A method to compute a gradient."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Return loss(at) and its gradient, a pytree like `at`."""
        ...


@dataclasses.dataclass(frozen=True)
class Forward:
    """Forward mode: one tangent per number, vectorized."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Return loss(at) and its gradient by `jax.jvp`."""
        flat, unravel = jax.flatten_util.ravel_pytree(at)

        def push(tangent: Any) -> Any:
            return jax.jvp(lambda x: loss(unravel(x)), (flat,), (tangent,))

        value, gradient = jax.vmap(push, out_axes=(None, 0))(jnp.eye(flat.size, dtype=flat.dtype))
        return value, unravel(gradient)


@dataclasses.dataclass(frozen=True)
class Reverse:
    """Reverse mode."""

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Return loss(at) and its gradient by `jax.grad`."""
        return jax.value_and_grad(loss)(at)


@dataclasses.dataclass(frozen=True)
class ByCount:
    """Forward mode up to `limit` numbers, reverse mode above; the default of `fit`.

    Attributes:
        limit: the largest number of trained numbers (of one start) for which forward mode is used.
    """

    limit: int = 8

    def chosen(self, count: int) -> Forward | Reverse:
        """Return the mode for the given number of trained numbers."""
        return Forward() if count <= self.limit else Reverse()

    def value_and_grad(self, loss: Callable[[Any], Any], at: Any) -> tuple[Any, Any]:
        """Return loss(at) and its gradient by the chosen mode."""
        return self.chosen(sum(jnp.size(x) for x in jax.tree.leaves(at))).value_and_grad(loss, at)
