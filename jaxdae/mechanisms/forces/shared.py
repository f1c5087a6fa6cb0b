"""Shared base classes of forces in the plane and in space."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Force, Name, Number, Place, Rows
from jaxdae.mechanisms.joints import parts


def times(coefficient: Any, x: Any) -> Any:
    """Return a coefficient times x, or zero if the group does not have the coefficient."""
    return 0.0 if coefficient is None else coefficient * x


class Driven(Force):
    """A force that may read an input."""

    of_input: ClassVar[tuple[str, ...]] = ("gain",)
    """Fields that scale the input; groups omit them if no element reads an input."""

    input: Any

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, with -1 for elements without an input.

        Raises:
            ValueError: if an element reads an input, but the group has no coefficient for it.
        """
        absent = [name for name in self.of_input if getattr(self, name) is None]
        if absent and any(k is not None and k >= 0 for k in self.input):
            raise ValueError(f"{self.key}: the group reads inputs {self.input} without {', '.join(absent)}; give it, one entry per element")
        return self.input


@pytree
class SpringBetweenPoints(Force):
    """What the springs of both spaces share."""

    name: Name = fields.name("force")
    a: BodyName = fields.body("the first body, or ground")
    b: BodyName = fields.body("the second body, or ground")
    at_a: Place = fields.world("the end on a")
    at_b: Place = fields.world("the end on b")
    point_a: Place = fields.point("the end on a", "a", "at_a")
    point_b: Place = fields.point("the end on b", "b", "at_b")
    stiffness: Number = fields.number("the stiffness", "N/m", value=0.0, at_least=0.0, sparse=True)
    damping: Number = fields.number("the damping", "N s/m", value=0.0, at_least=0.0)
    rest_length: Number = fields.at_start("the length without force", "m", parts.distance, at_least=0.0, needs="stiffness")

    @property
    def conserves_energy(self) -> bool:
        """Whether the spring has no damping."""
        return self.damping == 0.0

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Return half the squared length in m^2, which unlike the length is smooth where the ends meet."""
        gap = parts.gap(self, a, b)
        return (0.5 * gap.dot(gap),)

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the compressive force divided by the length in N/m; times the gap, it is the force vector.

        If the ends meet, the force direction is undefined, and damping and a rest length contribute nothing.
        A spring with rest length zero has the same stiffness there as elsewhere.
        """
        apart, length = _length(s)
        # The rate of the length is the rate of s divided by the length.
        if self.stiffness is None:
            return jnp.asarray(jnp.where(apart, -self.damping * rate / length**2, 0.0))
        thrust = -self.stiffness * (length - self.rest_length) - self.damping * rate / length
        return jnp.where(apart, thrust / length, -self.stiffness)

    def energy(self, s: Array) -> Any:
        """Return the elastic energy in J."""
        if self.stiffness is None:
            return jnp.zeros_like(s[0])
        apart, length = _length(s[0])
        touching = self.stiffness * (s[0] + 0.5 * self.rest_length**2)
        return jnp.where(apart, 0.5 * self.stiffness * (length - self.rest_length) ** 2, touching)


def _length(s: Array) -> tuple[Any, Any]:
    """Return whether the ends of springs are apart, and the lengths in m from half their squares s.

    If the ends are not apart, the length is sqrt(2).
    """
    apart = s > 0.0
    squares: Any = jnp.where(apart, s, 1.0)
    return apart, jnp.sqrt(2.0 * squares)
