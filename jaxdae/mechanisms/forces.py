"""Forces as stacked groups, by virtual work.

An element measures one or more coordinates s between two frames (a length, an angle, the place of a point) and has an effort e for
each. Virtual work, e ds, makes the generalized force (ds/dq)^T e, so that an element consists of what it measures and the effort
that it answers with; the derivatives are those of `frames`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms.frames import Frame
from jaxdae.mechanisms.joints import Rows
from jaxdae.typing import Leaf


@pytree(kw_only=True)
class LinearSpring:
    """A spring and damper between two points: stiffness in N/m, damping in N s/m, rest length in m."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    stiffness: Leaf
    damping: Leaf
    rest_length: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the length in m; its derivative at length zero is taken as zero."""
        gap = b.point(self.point_b) - a.point(self.point_a)
        square = gap.dot(gap)
        apart = square > 0.0
        safe: Any = jnp.where(apart, square, 1.0)
        return (jnp.where(apart, jnp.sqrt(safe), 0.0),)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the thrust in N."""
        return -self.stiffness * (s - self.rest_length) - self.damping * rate

    def energy(self, s: Array) -> Any:
        """Returns the elastic energy in J."""
        return 0.5 * self.stiffness * (s[0] - self.rest_length) ** 2


@pytree(kw_only=True)
class TorsionalSpring:
    """A spring and damper on a relative rotation: N m/rad, N m s/rad, rest angle in rad."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    stiffness: Leaf
    damping: Leaf
    rest_angle: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the relative angle in rad."""
        return (b.angle - a.angle,)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the torque on b in N m."""
        return -self.stiffness * (s - self.rest_angle) - self.damping * rate

    def energy(self, s: Array) -> Any:
        """Returns the elastic energy in J."""
        return 0.5 * self.stiffness * (s[0] - self.rest_angle) ** 2


@pytree(kw_only=True)
class Torque:
    """A torque on b with its reaction on a: torque + gain u[input], in N m."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    torque: Leaf
    gain: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the relative angle in rad."""
        return (b.angle - a.angle,)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the torque in N m."""
        return jnp.stack([self.torque + self.gain * u])

    def energy(self, s: Array) -> Any:
        """Returns the potential of the constant part in J."""
        return -self.torque * s[0]


@pytree(kw_only=True)
class SlideForce:
    """A force along the axis of a prismatic joint, on b with its reaction on a: force + gain u[input], in N."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    point_a: Leaf
    point_b: Leaf
    axis: Leaf
    force: Leaf
    gain: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the slide along the axis in m."""
        gap = b.point(self.point_b) - a.point(self.point_a)
        return (gap.dot(a.direction(self.axis)),)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the force in N."""
        return jnp.stack([self.force + self.gain * u])

    def energy(self, s: Array) -> Any:
        """Returns the potential of the constant part in J."""
        return -self.force * s[0]


@pytree(kw_only=True)
class WorldForce:
    """A force on a point of b with fixed direction in the world: force + u[input] direction, in N."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    point: Leaf
    force: Leaf
    direction: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the place of the point in m."""
        place = b.point(self.point)
        return place.x, place.y

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the force in N."""
        return self.force + u * self.direction

    def energy(self, s: Array) -> Any:
        """Returns the potential of the constant part in J."""
        return -jnp.sum(self.force * s)


@pytree(kw_only=True)
class BodyForce:
    """A force on a point of b that turns with b: force + u[input] direction in the body's frame, in N. It has no potential."""

    names: tuple[str, ...] = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    inputs: tuple[int, ...] = static()
    point: Leaf
    force: Leaf
    direction: Leaf

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the place of the point in m."""
        place = b.point(self.point)
        return place.x, place.y

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Returns the force in the world, in N."""
        force = b.direction(self.force + u * self.direction)
        return jnp.stack([force.x, force.y])

    def energy(self, s: Array) -> Any:
        """Returns zero."""
        return jnp.zeros_like(s[0])
