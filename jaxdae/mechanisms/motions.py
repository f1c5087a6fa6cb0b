"""Functions of time for prescribed motions: pytrees that are called with t."""

from __future__ import annotations

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.typing import Leaf, Scalar


@pytree
class Polynomial:
    """c0 + c1 t + c2 t^2 + ...

    Attributes:
        coefficients: (n,), in rad or m per s^k.
    """

    coefficients: Leaf

    def __call__(self, t: Scalar) -> Scalar:
        """Returns the value at time t (s)."""
        value = jnp.zeros_like(t)
        for k in reversed(range(len(self.coefficients))):
            value = value * t + self.coefficients[k]
        return value


@pytree
class Sinusoid:
    """offset + amplitude sin(2 pi frequency t + phase).

    Attributes:
        amplitude: in rad or m.
        frequency: in Hz.
        phase: in rad.
        offset: in rad or m.
    """

    amplitude: Leaf
    frequency: Leaf
    phase: Leaf = 0.0
    offset: Leaf = 0.0

    def __call__(self, t: Scalar) -> Scalar:
        """Returns the value at time t (s)."""
        return self.offset + self.amplitude * jnp.sin(2.0 * jnp.pi * self.frequency * t + self.phase)
