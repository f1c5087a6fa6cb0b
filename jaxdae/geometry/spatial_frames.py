"""Frames, twists and wrenches of bodies in space, as scalars.

A body has a position p (its mass center) and a rotation R, body to world, given by a unit quaternion wxyz.
Its twist is (p', omega_body): the velocity of the mass center in world axes, and the angular velocity in body
axes, as in `jaxdae.geometry.rotation`. With the cross-product matrix [omega], along the motion

    R' = R [omega],        R'' = R [omega]^2 + R [omega'].

Functions of frames are differentiated with these tangents, so no code differentiates a quaternion. A wrench
has the same axes, with the force in world axes and the torque about the mass center in body axes. The power
of a wrench is therefore the inner product with the twist.

All entries are scalars; a frame has 3 + 9 entries. Stacked over bodies, and over the worlds of a batch, each
entry is a separate array. The worlds are its contiguous axis, so XLA can vectorize over them.
`jaxdae.geometry.planar_frames` has the same methods.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.typing import Leaf


@pytree
class Vector:
    """A vector in space, as three scalars."""

    x: Leaf
    y: Leaf
    z: Leaf

    def __add__(self, other: Vector) -> Vector:
        """Return the sum."""
        return Vector(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: Vector) -> Vector:
        """Return the difference."""
        return Vector(self.x - other.x, self.y - other.y, self.z - other.z)

    def __neg__(self) -> Vector:
        """Return the negative vector."""
        return Vector(-self.x, -self.y, -self.z)

    def times(self, factor: Any) -> Vector:
        """Return the vector times a scalar."""
        return Vector(factor * self.x, factor * self.y, factor * self.z)

    def dot(self, other: Vector) -> Any:
        """Return the inner product."""
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: Vector) -> Vector:
        """Return the cross product."""
        return Vector(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def array(self) -> Array:
        """Return the components (3,)."""
        return jnp.stack([self.x, self.y, self.z])


class Twist(NamedTuple):
    """The twist of a frame: world velocity (x, y, z) of its origin in m/s, and angular velocity in rad/s.

    The angular velocity (wx, wy, wz) is in body axes. As a wrench: force in world axes in N, torque about the
    origin in body axes in N m.
    """

    x: Any
    y: Any
    z: Any
    wx: Any
    wy: Any
    wz: Any

    @property
    def velocity(self) -> Vector:
        """Return the velocity of the origin in the world."""
        return Vector(self.x, self.y, self.z)

    @property
    def omega_body(self) -> Vector:
        """Return the angular velocity in body axes."""
        return Vector(self.wx, self.wy, self.wz)

    def omega_world(self, frame: Frame) -> Vector:
        """Return the angular velocity in world axes."""
        return frame.turned(self.omega_body)

    def at(self, frame: Frame, place: Vector) -> Vector:
        """Return the world velocity of the body point at a position in the world."""
        return self.velocity + self.omega_world(frame).cross(place - frame.place)


class Frame(NamedTuple):
    """The frame of a body: mass center (x, y, z) in m, and the rotation matrix R row by row; scalars.

    The columns of R are the body axes. `GROUND` contains the entries of the frame of the ground, and `PLACE`
    the names of the entries of the origin. `ANGLES_ADD` tells whether the angles of composed frames add.
    """

    GROUND = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    PLACE = ("x", "y", "z")
    ANGLES_ADD = False

    x: Any
    y: Any
    z: Any
    r11: Any
    r12: Any
    r13: Any
    r21: Any
    r22: Any
    r23: Any
    r31: Any
    r32: Any
    r33: Any

    @classmethod
    def of_pose(cls, place: Any, quat_wb: Any) -> Frame:
        """Return the frame of a pose.

        Args:
            place: the position (3,) or (3, n), in m.
            quat_wb: the unit quaternion (4,) or (4, n), wxyz, body to world.
        """
        w, x, y, z = quat_wb
        at_x, at_y, at_z = place
        return cls(
            at_x,
            at_y,
            at_z,
            1.0 - 2.0 * (y * y + z * z),
            2.0 * (x * y - w * z),
            2.0 * (x * z + w * y),
            2.0 * (x * y + w * z),
            1.0 - 2.0 * (x * x + z * z),
            2.0 * (y * z - w * x),
            2.0 * (x * z - w * y),
            2.0 * (y * z + w * x),
            1.0 - 2.0 * (x * x + y * y),
        )

    @classmethod
    def of_axis(cls, s: Any, turning: Any, sliding: Any) -> Frame:
        """Return the frame after a motion by s along axes.

        The rotation per unit of s is turning (k, 3), of length 1 or 0. The translation per unit of s is
        sliding (k, 3). Rodrigues' formula, R = I + sin(s) [n] + (1 - cos(s)) [n]^2, gives the identity if n =
        0.
        """
        cos, sin = kept_cos_sin(s)
        x, y, z = turning[:, 0], turning[:, 1], turning[:, 2]
        rest = 1.0 - cos
        return cls(
            sliding[:, 0] * s,
            sliding[:, 1] * s,
            sliding[:, 2] * s,
            1.0 - rest * (y * y + z * z),
            rest * x * y - sin * z,
            rest * x * z + sin * y,
            rest * x * y + sin * z,
            1.0 - rest * (x * x + z * z),
            rest * y * z - sin * x,
            rest * x * z - sin * y,
            rest * y * z + sin * x,
            1.0 - rest * (x * x + y * y),
        )

    @classmethod
    def of_axes(cls, place: Vector, e1: Vector, e2: Vector, e3: Vector) -> Frame:
        """Return the frame with this origin and these axes."""
        return cls(place.x, place.y, place.z, e1.x, e2.x, e3.x, e1.y, e2.y, e3.y, e1.z, e2.z, e3.z)

    def then(self, other: Frame) -> Frame:
        """Return `other`, which is given in this frame, as a frame in the world."""
        return Frame.of_axes(
            self.place + self.turned(other.place), *(self.turned(axis) for axis in other.axes)
        )

    def array(self) -> Array:
        """Return the matrix [R p] (3, 4, n) of stacked frames.

        One array costs less than twelve if frames are composed many times.
        """
        rows = (
            (self.r11, self.r12, self.r13, self.x),
            (self.r21, self.r22, self.r23, self.y),
            (self.r31, self.r32, self.r33, self.z),
        )
        return jnp.stack([jnp.stack(row) for row in rows])

    @classmethod
    def of_array(cls, matrix: Array) -> Frame:
        """Return the frames with matrices [R p] (3, 4, n)."""
        return cls(*matrix[:, 3], *(matrix[i, j] for i in range(3) for j in range(3)))

    @staticmethod
    def composed(a: Array, b: Array) -> Array:
        """Return the matrices of frames b, which are given in frames a: [R_a R_b, R_a p_b + p_a]."""
        is_place = jnp.asarray([[False, False, False, True]]).reshape(1, 4, *[1] * (a.ndim - 2))
        place: Any = jnp.where(is_place, a, 0.0)
        return a[:, 0, None] * b[None, 0] + a[:, 1, None] * b[None, 1] + a[:, 2, None] * b[None, 2] + place

    def seen_from(self, other: Frame) -> Frame:
        """Return this frame relative to another frame."""
        return Frame.of_axes(
            other.turned_back(self.place - other.place), *(other.turned_back(axis) for axis in self.axes)
        )

    @property
    def place(self) -> Vector:
        """Return the origin in the world."""
        return Vector(self.x, self.y, self.z)

    @property
    def axes(self) -> tuple[Vector, Vector, Vector]:
        """Return the body axes in the world, the columns of R."""
        return (
            Vector(self.r11, self.r21, self.r31),
            Vector(self.r12, self.r22, self.r32),
            Vector(self.r13, self.r23, self.r33),
        )

    def turned(self, vector: Vector) -> Vector:
        """Return R times a vector: the world components of a vector given in body components."""
        x, y, z = vector.x, vector.y, vector.z
        return Vector(
            self.r11 * x + self.r12 * y + self.r13 * z,
            self.r21 * x + self.r22 * y + self.r23 * z,
            self.r31 * x + self.r32 * y + self.r33 * z,
        )

    def turned_back(self, vector: Vector) -> Vector:
        """Return R^T times a vector: the body components of a vector given in world components."""
        x, y, z = vector.x, vector.y, vector.z
        return Vector(
            self.r11 * x + self.r21 * y + self.r31 * z,
            self.r12 * x + self.r22 * y + self.r32 * z,
            self.r13 * x + self.r23 * y + self.r33 * z,
        )

    def direction(self, vector: Any) -> Vector:
        """Return the world components of a vector given in body components (3,)."""
        return self.turned(Vector(*jnp.unstack(jnp.asarray(vector))))

    def point(self, place: Any) -> Vector:
        """Return the world coordinates of a point given in body coordinates (3,)."""
        return self.place + self.direction(place)

    def components_of(self, vector: Any) -> Array:
        """Return the body components (3,) of a vector given in world components (3,)."""
        return self.turned_back(Vector(*jnp.unstack(jnp.asarray(vector)))).array()

    def place_of(self, place: Any) -> Array:
        """Return the body coordinates (3,) of a point given in world coordinates (3,)."""
        return self.components_of(place - self.place.array())

    def along(self, twist: Twist) -> Frame:
        """Return the derivative of the frame along a motion: p', R [omega]."""
        return Frame.of_axes(twist.velocity, *_spun(self.axes, twist.omega_body))

    def turning_and_sliding(self, rate: Frame) -> tuple[Array, Array]:
        """Return the angular velocity (n, 3) and velocity (n, 3) in frame axes, from rates of the entries.

        The rate of a rotation matrix is R [omega]. For any other rate, the symmetric part of R^T R' is not a
        motion and has no effect.
        """
        e1, e2, e3 = self.axes
        d1, d2, d3 = rate.axes
        pairs = (e3, d2, e2, d3), (e1, d3, e3, d1), (e2, d1, e1, d2)
        turning = jnp.stack([0.5 * (a.dot(b) - c.dot(d)) for a, b, c, d in pairs], axis=1)
        return turning, self.turned_back(rate.place).array().T

    def bending(self, twist: Twist, change: Twist | None) -> Frame:
        """Return the second derivative of the frame along a motion.

        `change` is the rate of the twist, or None for a constant twist.
        """
        twice = _spun(_spun(self.axes, twist.omega_body), twist.omega_body)
        if change is None:
            zero = jnp.zeros_like(self.x)
            return Frame.of_axes(Vector(zero, zero, zero), *twice)
        turned = (
            first + second for first, second in zip(twice, _spun(self.axes, change.omega_body), strict=True)
        )
        return Frame.of_axes(change.velocity, *turned)

    def wrench_of(self, gradient: Frame) -> Twist:
        """Return the derivatives of a function of the frame in the twist directions, from its gradient.

        A rotation about body axis j turns the two other axes, R' = R [e_j].
        """
        e1, e2, e3 = self.axes
        g1, g2, g3 = gradient.axes
        turning = g2.dot(e3) - g3.dot(e2), g3.dot(e1) - g1.dot(e3), g1.dot(e2) - g2.dot(e1)
        return Twist(gradient.x, gradient.y, gradient.z, *turning)


def _spun(axes: tuple[Vector, Vector, Vector], omega: Vector) -> tuple[Vector, Vector, Vector]:
    """Return the columns of A [omega] from the columns of A."""
    e1, e2, e3 = axes
    return (
        e2.times(omega.z) - e3.times(omega.y),
        e3.times(omega.x) - e1.times(omega.z),
        e1.times(omega.y) - e2.times(omega.x),
    )
