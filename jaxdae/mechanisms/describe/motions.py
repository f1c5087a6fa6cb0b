"""Functions of time for prescribed motions: callable pytrees."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe.numbers import shape_of, shown
from jaxdae.typing import Leaf, Scalar


@pytree
class Polynomial:
    """c0 + c1 t + c2 t^2 + ...

    Attributes:
        coefficients: (n,), in rad or m per s^k.
    """

    coefficients: Leaf

    def __call__(self, t: Scalar) -> Scalar:
        """Return the value at time t (s).

        Raises:
            ValueError: if the coefficients are not a list of at least one number.
        """
        if (shape_of(self.coefficients) or ()) in ((), (0,)):
            raise ValueError(
                "Polynomial.coefficients must be a list of at least one number, got "
                f"{shown(self.coefficients)}"
            )
        value = jnp.zeros_like(t)
        for k in reversed(range(len(self.coefficients))):
            value = value * t + self.coefficients[k]
        return value


@pytree
class Sinusoid:
    """offset + amplitude sin(2 pi frequency t + phase).

    Attributes:
        amplitude: in rad or m.
        frequency: in Hz, positive.
        phase: in rad.
        offset: in rad or m.
    """

    amplitude: Leaf
    frequency: Leaf
    phase: Leaf = 0.0
    offset: Leaf = 0.0

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield self.frequency > 0.0, "frequency must be positive"

    def __call__(self, t: Scalar) -> Scalar:
        """Return the value at time t (s)."""
        return self.offset + self.amplitude * jnp.sin(2.0 * jnp.pi * self.frequency * t + self.phase)
