"""Drag of the surrounding fluid, in the plane and in space."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Force, Name, Number, Place, Rows


def resistance(linear: Any, quadratic: Any, velocity: Array) -> Array:
    """Return -(linear + quadratic |v|) v, differentiable at rest.

    Args:
        linear: linear drag coefficient in N s/m.
        quadratic: quadratic drag coefficient in N s^2/m^2.
        velocity: (2,) or (3,) in m/s.
    """
    square = jnp.sum(velocity * velocity)
    moves = square > 0.0
    speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, 1.0)), 0.0)
    return -(linear + quadratic * speed) * velocity


@pytree
class DragOnBody(Force):
    """What drag is in both spaces, as it is described."""

    name: Name = fields.name("force")
    body: BodyName = fields.body("the body that the force acts on", ground=False)
    at: Place = fields.world("the point")
    point: Place = fields.point("the point", "body", "at")
    linear: Number = fields.number("the drag at low speed", "N s/m", value=0.0, at_least=0.0)
    quadratic: Number = fields.number("the drag at high speed", "N s^2/m^2", value=0.0, at_least=0.0)

    @property
    def conserves_energy(self) -> bool:
        """False, because drag dissipates energy."""
        return False


@pytree
class DragOnPoint(Force):
    """What drag is in both spaces, with its body as the second of two."""

    quasi: ClassVar[bool] = True

    name: Name = fields.name("force")
    a: BodyName = fields.body("the ground")
    b: BodyName = fields.body("the body that the force acts on")
    at: Place = fields.world("the point")
    point: Place = fields.point("the point", "b", "at")
    linear: Number = fields.number("the drag at low speed", "N s/m", value=0.0)
    quadratic: Number = fields.number("the drag at high speed", "N s^2/m^2", value=0.0)

    def rate(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Return the velocity of the point in the world, in m/s."""
        velocity = moving_b.at(b, b.point(self.point))
        return tuple(getattr(velocity, axis) for axis in "xyz"[: self.space.dimension])

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the force in the world, in N; differentiable at rest."""
        return resistance(self.linear, self.quadratic, rate)
