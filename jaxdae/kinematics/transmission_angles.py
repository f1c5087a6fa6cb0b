"""Transmission angle between the links of a linkage.

With the vectors u and w from the middle joint to the two others,

    angle = atan2(|w - (w . u) u / |u|^2| |u|, w . u),

which is accurate for all angles. In a four-bar with the lengths a (crank), b (coupler), c (follower) and d
(ground), the cosine law for the diagonal between crank pin and ground pin gives

    cos(angle) = (b^2 + c^2 - a^2 - d^2 + 2 a d cos(crank angle)) / (2 b c).

References:
    H. Alt, "Der Uebertragungswinkel und seine Bedeutung fuer das Konstruieren periodischer Getriebe",
    Werkstattstechnik 26 (1932).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.suggestions import brief, join_first
from jaxdae.kinematics.closed_chains import start_state
from jaxdae.kinematics.least_squares_on_loops import tolerance
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.systems.system import State


def transmission_angle(mechanism: Mechanism, state: State | Array, pins: Sequence[str]) -> Array:
    """Return the angle () in rad at the middle one of three joints, between the lines to the two others.

    For the joints crank-coupler, coupler-follower and follower-ground of a four-bar, this is the transmission
    angle. The coupler drives the follower best at pi / 2, and cannot drive it at 0 and pi. The usual limits
    of a design are 40 and 140 degrees.

    Args:
        mechanism: the mechanism.
        state: a state or coordinates (nq,) with closed loops.
        pins: the names of three joints with points; the angle is at the second one.

    Returns:
        The angle in [0, pi]; NaN if traced points coincide. Differentiable except at 0 and pi.

    Raises:
        TypeError: as in `inverse_kinematics`.
        ValueError: unknown names, joints without points, or points that coincide with the middle one.

    Example:
        >>> angle = kinematics.transmission_angle(four_bar, state, ("B", "C", "D"))
    """
    q = start_state(mechanism, state).q
    if isinstance(pins, str) or len(pins) != 3:
        raise ValueError(f"pins: give the names of three joints, got {brief(pins)}")
    frames = mechanism.frames(q)
    first, middle, last = (_point(mechanism, frames, name) for name in pins)
    u, w = first - middle, last - middle
    distance = jnp.minimum(jnp.linalg.norm(u), jnp.linalg.norm(w)) / mechanism.characteristic_length
    known, limit = concrete(distance), tolerance(q.dtype)
    if known is not None and not known > limit:
        raise ValueError(f"pins: {brief(pins[1])} coincides with another joint of {tuple(pins)}")
    apart = distance > limit
    square: Any = jnp.where(apart, u @ u, 1.0)
    across = w - (w @ u) / square * u
    angle: Any = jnp.arctan2(jnp.linalg.norm(across) * jnp.sqrt(square), w @ u)
    angle = jnp.where(apart, angle, jnp.nan)
    return angle


def _point(mechanism: Mechanism, frames: Any, name: str) -> Array:
    """Return the position of the point of a joint on its first body, in the world."""
    every = (*mechanism.joints.values(), *mechanism.carrying.values())
    groups = [group for group in every if getattr(group, "point_a", None) is not None]
    found = [(group, group.names.index(name)) for group in groups if name in group.names]
    if not found:
        known = [name for group in groups for name in group.names]
        raise ValueError(f"pins: {brief(name)} is not a joint with a point; available: {join_first(known)}")
    group, k = found[0]
    body, point = group.a[k], group.point_a[k]
    if body == len(mechanism.body_names):
        return point
    return jax.tree.map(lambda x: x[body], frames).point(point).array()
