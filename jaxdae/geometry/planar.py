"""Frames, twists and wrenches of planar bodies, as scalars.

A body has the pose (x, y, theta): its mass center and its rotation. A frame carries cos(theta) and sin(theta) as well, computed once a
body. Along the motion they change by omega (-sin, cos), and at second order by -omega^2 (cos, sin) + omega' (-sin, cos): with these
tangents, functions of frames need no trigonometry of their own.

Everything is scalars, (x, y, angle, cos, sin). Stacked over bodies, and over worlds in a batch, each of them is an array of its own with
the worlds along its contiguous axis, which is what the compiler can vectorize. `jaxdae.geometry.spatial` has the same methods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.typing import Leaf


@pytree
class Vector:
    """A vector in the plane, as two scalars."""

    x: Leaf
    y: Leaf

    def __add__(self, other: Vector) -> Vector:
        """Returns the sum."""
        return Vector(self.x + other.x, self.y + other.y)

    def __sub__(self, other: Vector) -> Vector:
        """Returns the difference."""
        return Vector(self.x - other.x, self.y - other.y)

    def dot(self, other: Vector) -> Any:
        """Returns the inner product."""
        return self.x * other.x + self.y * other.y

    def array(self) -> Array:
        """Returns the components (2,)."""
        return jnp.stack([self.x, self.y])

    def quarter_turn(self) -> Vector:
        """Returns the vector turned by +90 degrees."""
        return Vector(-self.y, self.x)


class Twist(NamedTuple):
    """How a frame moves: velocity (x, y) of its origin in m/s, rate of its angle in rad/s. As a wrench: force in N, torque in N m."""

    x: Any
    y: Any
    angle: Any

    def at(self, frame: Frame, place: Vector) -> Vector:
        """Returns the velocity in the world of the point of the body that is at a place of the world."""
        return Vector(self.x - self.angle * (place.y - frame.y), self.y + self.angle * (place.x - frame.x))


class Frame(NamedTuple):
    """The frame of a body: mass center (x, y) in m, angle in rad with its cosine and sine; scalars.

    `GROUND` contains the entries of the frame of the ground, and `PLACE` the names of the entries of the origin.
    `ANGLES_ADD` says whether the angle of a frame in another one adds to that of the other.
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
        """Returns the frame of a pose."""
        return cls(x, y, angle, *cos_sin(angle))

    def point(self, place: Any) -> Vector:
        """Returns the world coordinates of a point given in the body's frame (2,)."""
        return Vector(self.x, self.y) + self.direction(place)

    def direction(self, vector: Any) -> Vector:
        """Returns the world components of a vector given in the body's frame (2,)."""
        x, y = jnp.unstack(jnp.asarray(vector))
        return Vector(self.cos * x - self.sin * y, self.sin * x + self.cos * y)

    def components_of(self, vector: Any) -> Array:
        """Returns a vector (2,) of the world in the body's frame (2,)."""
        x, y = jnp.unstack(jnp.asarray(vector))
        return jnp.stack([self.cos * x + self.sin * y, -self.sin * x + self.cos * y])

    def place_of(self, place: Any) -> Array:
        """Returns a place (2,) of the world in the body's frame (2,)."""
        return self.components_of(place - jnp.stack([self.x, self.y]))

    @classmethod
    def of_axis(cls, s: Any, turning: Any, sliding: Any) -> Frame:
        """Returns the frame after a motion by s along axes: turning (k,), sliding (k, 2), a unit of s each."""
        return cls.of_pose(sliding[:, 0] * s, sliding[:, 1] * s, turning * s)

    @property
    def place(self) -> Vector:
        """The origin in the world."""
        return Vector(self.x, self.y)

    def turned(self, vector: Vector) -> Vector:
        """Returns a vector in the world from its components in the body."""
        return Vector(self.cos * vector.x - self.sin * vector.y, self.sin * vector.x + self.cos * vector.y)

    def turned_back(self, vector: Vector) -> Vector:
        """Returns a vector in the body from its components in the world."""
        return Vector(self.cos * vector.x + self.sin * vector.y, -self.sin * vector.x + self.cos * vector.y)

    def then(self, other: Frame) -> Frame:
        """Returns a frame given in this one, in the world."""
        place = self.place + self.turned(other.place)
        cos, sin = self.cos * other.cos - self.sin * other.sin, self.sin * other.cos + self.cos * other.sin
        return Frame(place.x, place.y, self.angle + other.angle, cos, sin)

    def array(self) -> Array:
        """Returns the entries of stacked frames (5, n)."""
        return jnp.stack(self)

    @classmethod
    def of_array(cls, entries: Array) -> Frame:
        """Returns the frames of entries (5, n)."""
        return cls(*entries)

    @staticmethod
    def composed(a: Array, b: Array) -> Array:
        """Returns the entries of frames b given in frames a."""
        return Frame(*a).then(Frame(*b)).array()

    def seen_from(self, other: Frame) -> Frame:
        """Returns this frame as it is in another one."""
        place = other.turned_back(self.place - other.place)
        cos, sin = other.cos * self.cos + other.sin * self.sin, other.cos * self.sin - other.sin * self.cos
        return Frame(place.x, place.y, self.angle - other.angle, cos, sin)

    def turning_and_sliding(self, rate: Frame) -> tuple[Array, Array]:
        """Returns how the frame turns (n,) and slides (n, 2), in its own axes, where its entries have this rate; stacked."""
        return rate.angle, self.turned_back(rate.place).array().T

    def along(self, twist: Twist) -> Frame:
        """Returns the derivative of the frame along a motion."""
        return Frame(twist.x, twist.y, twist.angle, -twist.angle * self.sin, twist.angle * self.cos)

    def bending(self, twist: Twist, change: Twist | None) -> Frame:
        """Returns the second derivative of the frame along a motion whose twist has this rate of change, None for a constant one."""
        zero = jnp.zeros_like(self.x)
        square = twist.angle**2
        if change is None:
            return Frame(zero, zero, zero, -square * self.cos, -square * self.sin)
        turned = -square * self.cos - change.angle * self.sin, -square * self.sin + change.angle * self.cos
        return Frame(change.x, change.y, change.angle, *turned)

    def directions(self) -> tuple[dict[str, Any], ...]:
        """Returns the derivatives of the frame in the directions of a twist, each as those of its entries that change."""
        one = jnp.ones_like(self.x)
        return {"x": one}, {"y": one}, {"angle": one, "cos": -self.sin, "sin": self.cos}
