"""What forces in the plane and in space have in common."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Force, Name, Number, Place, Rows
from jaxdae.mechanisms.joints import parts


class Driven(Force):
    """A force that may read an input."""

    input: Any

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, -1 for none."""
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
    stiffness: Number = fields.number("the stiffness", "N/m", value=0.0, at_least=0.0)
    damping: Number = fields.number("the damping", "N s/m", value=0.0, at_least=0.0)
    rest_length: Number = fields.at_start("the length without force", "m", parts.distance, at_least=0.0)

    @property
    def conserves_energy(self) -> bool:
        """Whether it is not damped."""
        return self.damping == 0.0

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Returns the length in m; its derivative at length zero is taken as zero."""
        return (parts.distance(self, a, b),)

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Returns the thrust in N."""
        return -self.stiffness * (s - self.rest_length) - self.damping * rate

    def energy(self, s: Array) -> Any:
        """Returns the elastic energy in J."""
        return 0.5 * self.stiffness * (s[0] - self.rest_length) ** 2
