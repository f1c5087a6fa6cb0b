"""Functions of time for prescribed motions: callable pytrees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
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


def motion_doubts(motion: Any, *, is_angle: bool) -> Iterable[str]:
    """Yield warnings about angles of a motion that are probably in degrees.

    Phases are angles in every motion. Rates count as rates in rad/s.

    Args:
        motion: the motion; functions other than `Polynomial` and `Sinusoid` are skipped.
        is_angle: whether the motion is an angle.
    """
    angles: dict[str, Any] = {}
    if isinstance(motion, Sinusoid):
        angles = {"phase": motion.phase}
        if is_angle:
            angles |= {"amplitude": motion.amplitude, "offset": motion.offset}
    elif isinstance(motion, Polynomial) and is_angle:
        angles = {"coefficients[0]": motion.coefficients[0]}
    for name, angle in angles.items():
        yield from doubts_of(f"{name} of the motion", [angle], rests_in_degrees)
