"""Frames, twists and wrenches of planar bodies, as scalars.

A body has the pose (x, y, theta): its mass center and its rotation. A frame also stores cos(theta) and
sin(theta), computed once per body. Along a motion they have the derivatives omega (-sin, cos), and the second
derivatives -omega^2 (cos, sin) + omega' (-sin, cos). With these derivatives, functions of frames need no
trigonometric functions.

All entries (x, y, angle, cos, sin) are scalars. Stacked over bodies, and over the worlds of a batch, each
entry is a separate array. The worlds are its contiguous axis, so XLA can vectorize over them.
`jaxdae.geometry.spatial_frames` has the same methods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.typing import Leaf


@pytree
class Vector:
    """A vector in the plane, as two scalars."""

    x: Leaf
    y: Leaf

    def __add__(self, other: Vector) -> Vector:
        """Return the sum."""
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: Vector) -> Vector:
        """Return the difference."""
        return Vector(self.x - other.x, self.y - other.y)

    def dot(self, other: Vector) -> Any:
        """Return the inner product."""
        return self.x * other.x + self.y * other.y

    def array(self) -> Array:
        """Return the components (2,)."""
        return jnp.stack([self.x, self.y])

    def quarter_turn(self) -> Vector:
        """Return the vector rotated by +90 degrees."""
        return Vector(-self.y, self.x)


class Twist(NamedTuple):
    """The twist of a frame: velocity (x, y) of its origin in m/s, and rate of its angle in rad/s.

    As a wrench: force in N, torque in N m.
    """

    x: Any
    y: Any
    angle: Any

    def at(self, frame: Frame, place: Vector) -> Vector:
        """Return the world velocity of the body point at a position in the world."""
        return Vector(self.x - self.angle * (place.y - frame.y), self.y + self.angle * (place.x - frame.x))


class Frame(NamedTuple):
    """The frame of a body: mass center (x, y) in m, angle in rad with its cosine and sine; scalars.

    `GROUND` contains the entries of the frame of the ground, and `PLACE` the names of the entries of the
    origin. `ANGLES_ADD` tells whether the angles of composed frames add.
    """

    GROUND = (0.0, 0.0, 0.0, 1.0, 0.0)
    PLACE = ("x", "y")
    ANGLES_ADD = True

    x: Any
    y: Any
    angle: Any
    cos: Any
    sin: Any

    @classmethod
    def of_pose(cls, x: Any, y: Any, angle: Any) -> Frame:
        """Return the frame of a pose."""
        return cls(x, y, angle, *cos_sin(angle))

    def point(self, place: Any) -> Vector:
        """Return the world coordinates of a point given in body coordinates (2,)."""
        return Vector(self.x, self.y) + self.direction(place)

    def direction(self, vector: Any) -> Vector:
        """Return the world components of a vector given in body components (2,)."""
        x, y = jnp.unstack(jnp.asarray(vector))
        return Vector(self.cos * x - self.sin * y, self.sin * x + self.cos * y)

    def components_of(self, vector: Any) -> Array:
        """Return the body components (2,) of a vector given in world components (2,)."""
        x, y = jnp.unstack(jnp.asarray(vector))
        return jnp.stack([self.cos * x + self.sin * y, -self.sin * x + self.cos * y])

    def place_of(self, place: Any) -> Array:
        """Return the body coordinates (2,) of a point given in world coordinates (2,)."""
        return self.components_of(place - jnp.stack([self.x, self.y]))

    @classmethod
    def of_axis(cls, s: Any, turning: Any, sliding: Any) -> Frame:
        """Return the frame after a motion by s along axes.

        The rotation per unit of s is turning (k,), and the translation per unit of s is sliding (k, 2).
        """
        return cls.of_pose(sliding[:, 0] * s, sliding[:, 1] * s, turning * s)

    @property
    def place(self) -> Vector:
        """Return the origin in the world."""
        return Vector(self.x, self.y)

    def turned(self, vector: Vector) -> Vector:
        """Return the world components of a vector given in body components."""
        return Vector(self.cos * vector.x - self.sin * vector.y, self.sin * vector.x + self.cos * vector.y)

    def turned_back(self, vector: Vector) -> Vector:
        """Return the body components of a vector given in world components."""
        return Vector(self.cos * vector.x + self.sin * vector.y, -self.sin * vector.x + self.cos * vector.y)

    def then(self, other: Frame) -> Frame:
        """Return `other`, which is given in this frame, as a frame in the world."""
        place = self.place + self.turned(other.place)
        cos, sin = self.cos * other.cos - self.sin * other.sin, self.sin * other.cos + self.cos * other.sin
        return Frame(place.x, place.y, self.angle + other.angle, cos, sin)

    def array(self) -> Array:
        """Return the entries of stacked frames (5, n)."""
        return jnp.stack(self)

    @classmethod
    def of_array(cls, entries: Array) -> Frame:
        """Return the frames with entries (5, n)."""
        return cls(*entries)

    @staticmethod
    def composed(a: Array, b: Array) -> Array:
        """Return the entries of frames b, which are given in frames a."""
        return Frame(*a).then(Frame(*b)).array()

    def seen_from(self, other: Frame) -> Frame:
        """Return this frame relative to another frame."""
        place = other.turned_back(self.place - other.place)
        cos, sin = other.cos * self.cos + other.sin * self.sin, other.cos * self.sin - other.sin * self.cos
        return Frame(place.x, place.y, self.angle - other.angle, cos, sin)

    def turning_and_sliding(self, rate: Frame) -> tuple[Array, Array]:
        """Return the angular velocity (n,) and velocity (n, 2) in frame axes, from rates of the entries."""
        return rate.angle, self.turned_back(rate.place).array().T

    def along(self, twist: Twist) -> Frame:
        """Return the derivative of the frame along a motion."""
        return Frame(twist.x, twist.y, twist.angle, -twist.angle * self.sin, twist.angle * self.cos)

    def bending(self, twist: Twist, change: Twist | None) -> Frame:
        """Return the second derivative of the frame along a motion.

        `change` is the rate of the twist, or None for a constant twist.
        """
        zero = jnp.zeros_like(self.x)
        square = twist.angle**2
        if change is None:
            return Frame(zero, zero, zero, -square * self.cos, -square * self.sin)
        turned = -square * self.cos - change.angle * self.sin, -square * self.sin + change.angle * self.cos
        return Frame(change.x, change.y, change.angle, *turned)

    def wrench_of(self, gradient: Frame) -> Twist:
        """Return the derivatives of a function of the frame in the twist directions, from its gradient."""
        turning = gradient.angle + self.cos * gradient.sin - self.sin * gradient.cos
        return Twist(gradient.x, gradient.y, turning)
