"""What forces in the plane and in space have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Force, Name, Number, Place, Rows
from jaxdae.mechanisms.joints import parts


def times(coefficient: Any, x: Any) -> Any:
    """Return a coefficient times x, zero for a group that goes without the coefficient."""
    return 0.0 if coefficient is None else coefficient * x


class Driven(Force):
    """A force that may read an input."""

    of_input: ClassVar[tuple[str, ...]] = ("gain",)
    """The fields that act on the input only; groups go without them where no element reads an input."""

    input: Any

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, -1 for none.

        Raises:
            ValueError: an element reads an input, but the group has no coefficient for it.
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
        """Whether it is not damped."""
        return self.damping == 0.0

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns half the square of the length in m^2: other than the length it is smooth where both ends meet."""
        gap = parts.gap(self, a, b)
        return (0.5 * gap.dot(gap),)

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Returns the thrust by the length in N/m; times the gap it is the force.

        Where both ends meet, the direction of a rest length and of damping is unknown and they do nothing. A spring of rest length zero is
        as stiff there as elsewhere.
        """
        apart, length = _length(s)
        # The rate of the length is that of s by the length.
        if self.stiffness is None:
            return jnp.asarray(jnp.where(apart, -self.damping * rate / length**2, 0.0))
        thrust = -self.stiffness * (length - self.rest_length) - self.damping * rate / length
        return jnp.where(apart, thrust / length, -self.stiffness)

    def energy(self, s: Array) -> Any:
        """Returns the elastic energy in J."""
        if self.stiffness is None:
            return jnp.zeros_like(s[0])
        apart, length = _length(s[0])
        touching = self.stiffness * (s[0] + 0.5 * self.rest_length**2)
        return jnp.where(apart, 0.5 * self.stiffness * (length - self.rest_length) ** 2, touching)


def _length(s: Array) -> tuple[Any, Any]:
    """Returns whether the ends of springs are apart, and the lengths of which s are half the squares in m; sqrt(2) where they are not."""
    apart = s > 0.0
    squares: Any = jnp.where(apart, s, 1.0)
    return apart, jnp.sqrt(2.0 * squares)
