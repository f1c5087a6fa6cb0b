"""The resistance of the surroundings to a motion, in the plane and in space."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array


def resistance(linear: Any, quadratic: Any, velocity: Array) -> Array:
    """Returns -(linear + quadratic |v|) v, differentiable at rest.

    Args:
        linear: in N s/m.
        quadratic: in N s^2/m^2.
        velocity: (2,) or (3,) in m/s.
    """
    square = jnp.sum(velocity * velocity)
    moves = square > 0.0
    speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, 1.0)), 0.0)
    return -(linear + quadratic * speed) * velocity
