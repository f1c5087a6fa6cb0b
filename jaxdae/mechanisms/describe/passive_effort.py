"""Effort of springs, dampers and dry friction along a joint coordinate, a tree velocity, or a tendon."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def passive_effort(
    stretch: Any, rate: Any, *, stiffness: Any, damping: Any, friction: Any, friction_speed: Any
) -> Any:
    """Return -stiffness stretch - damping rate - friction tanh(rate / friction_speed), in N or N m.

    Args:
        stretch: the displacement from the rest length or rest angle in m or rad; None without a spring.
        rate: the velocity along the coordinate in m/s or rad/s; None without a damper and friction.
        stiffness: in N/m or N m/rad; None without a spring.
        damping: in N s/m or N m s/rad; None without a damper.
        friction: the Coulomb force or torque in N or N m; None without friction.
        friction_speed: the velocity at which friction reaches 76 % of its limit, in m/s or rad/s.
    """
    total: Any = 0.0
    if damping is not None:
        total = total - damping * rate
    if friction is not None:
        total = total - friction * jnp.tanh(rate / friction_speed)
    if stiffness is not None:
        total = total - stiffness * stretch
    return total
