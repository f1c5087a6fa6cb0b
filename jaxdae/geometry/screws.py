"""Motions, forces and inertias of bodies about one common origin, in world axes.

About a common origin, the motion of a body is the sum of the motions of the joints that carry it, whatever
their distances. The momentum of several bodies is the sum of their momenta. Recursions over a tree of bodies
are therefore sums. A motion is the velocity of the point of the (extended) body at the origin, with the
angular velocity. A force is a force with its torque about the origin. An inertia is (m, m c, I), with the
mass center c and I about the origin.

The positions of frames are relative to that origin. It is near the bodies, because round-off grows with the
square of (distance / size).

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxdae.geometry import planar_frames, spatial_frames


class PlanarScrew(NamedTuple):
    """Planar motion or force: velocity (x, y) at the origin and angular velocity, or force and torque.

    The torque is about the origin.
    """

    x: Any
    y: Any
    angle: Any

    @classmethod
    def of_axis(cls, frame: planar_frames.Frame, turning: Any, sliding: Any) -> PlanarScrew:
        """Return the motion subspace of a joint; stacked.

        The joint rotates by turning () about the origin of a frame, and translates by sliding (2,) along
        directions in it.
        """
        along = frame.turned(planar_frames.Vector(sliding[:, 0], sliding[:, 1]))
        return cls(along.x + turning * frame.y, along.y - turning * frame.x, turning)

    @classmethod
    def of_wrench(cls, frame: planar_frames.Frame, wrench: planar_frames.Twist) -> PlanarScrew:
        """Return a force and a torque at the origin of a frame as a force about the common origin."""
        return cls(wrench.x, wrench.y, wrench.angle + frame.x * wrench.y - frame.y * wrench.x)

    @classmethod
    def of_twist(cls, frame: planar_frames.Frame, twist: planar_frames.Twist) -> PlanarScrew:
        """Return the motion of a frame with this twist."""
        return cls(twist.x + twist.angle * frame.y, twist.y - twist.angle * frame.x, twist.angle)

    def wrench_at(self, frame: planar_frames.Frame) -> planar_frames.Twist:
        """Return the force and the torque about the origin of a frame."""
        return planar_frames.Twist(self.x, self.y, self.angle - frame.x * self.y + frame.y * self.x)

    def cross(self, other: PlanarScrew) -> PlanarScrew:
        """Return the rate of another motion that is fixed in a body with this motion."""
        return PlanarScrew(
            -self.angle * other.y + self.y * other.angle,
            self.angle * other.x - self.x * other.angle,
            jnp.zeros_like(other.angle),
        )

    def moving(self, frame: planar_frames.Frame) -> planar_frames.Frame:
        """Return the derivative of a frame with this motion."""
        velocity = self.at(frame)
        return planar_frames.Frame(
            velocity.x, velocity.y, self.angle, -self.angle * frame.sin, self.angle * frame.cos
        )

    def at(self, frame: planar_frames.Frame) -> planar_frames.Twist:
        """Return the twist of a frame with this motion."""
        return planar_frames.Twist(self.x - self.angle * frame.y, self.y + self.angle * frame.x, self.angle)

    def acceleration_at(
        self, frame: planar_frames.Frame, motion: PlanarScrew, twist: planar_frames.Twist
    ) -> planar_frames.Twist:
        """Return the rate of the twist of a frame with the motion `motion`, whose rate is this screw.

        The twist is `motion.at(frame)`.
        """
        rate = self.at(frame)
        return planar_frames.Twist(
            rate.x - motion.angle * twist.y, rate.y + motion.angle * twist.x, rate.angle
        )


class PlanarInertia(NamedTuple):
    """Planar inertia: m in kg, m c in kg m, I about the origin in kg m^2."""

    mass: Any
    x: Any
    y: Any
    moment: Any

    @classmethod
    def of_bodies(cls, frame: planar_frames.Frame, mass: Any, inertia: Any) -> PlanarInertia:
        """Return the inertia of bodies with mass centers at the origins of frames."""
        return cls(mass, mass * frame.x, mass * frame.y, inertia + mass * (frame.x**2 + frame.y**2))

    def times(self, motion: PlanarScrew) -> PlanarScrew:
        """Return the momentum of a motion."""
        x = self.mass * motion.x - motion.angle * self.y
        y = self.mass * motion.y + motion.angle * self.x
        return PlanarScrew(x, y, self.moment * motion.angle + self.x * motion.y - self.y * motion.x)

    def rows(self) -> list[list[Any]]:
        """Return the rows of the matrix that maps motions to momenta."""
        zero = jnp.zeros_like(self.mass)
        return [[self.mass, zero, -self.y], [zero, self.mass, self.x], [-self.y, self.x, self.moment]]


class SpatialScrew(NamedTuple):
    """Spatial motion or force: linear entries (x, y, z), angular entries (wx, wy, wz).

    A motion is the velocity at the origin and the angular velocity. A force is a force and its torque about
    the origin.
    """

    x: Any
    y: Any
    z: Any
    wx: Any
    wy: Any
    wz: Any

    @classmethod
    def _of(cls, linear: spatial_frames.Vector, angular: spatial_frames.Vector) -> SpatialScrew:
        return cls(linear.x, linear.y, linear.z, angular.x, angular.y, angular.z)

    @property
    def linear(self) -> spatial_frames.Vector:
        """Return the velocity at the origin, or the force."""
        return spatial_frames.Vector(self.x, self.y, self.z)

    @property
    def angular(self) -> spatial_frames.Vector:
        """Return the angular velocity, or the torque about the origin."""
        return spatial_frames.Vector(self.wx, self.wy, self.wz)

    @classmethod
    def of_axis(cls, frame: spatial_frames.Frame, turning: Any, sliding: Any) -> SpatialScrew:
        """Return the motion subspace of a joint; stacked.

        The joint rotates by turning (3,) about the origin of a frame, and translates by sliding (3,) along
        directions in it.
        """
        axis, along = (
            frame.turned(spatial_frames.Vector(x[:, 0], x[:, 1], x[:, 2])) for x in (turning, sliding)
        )
        return cls._of(along + frame.place.cross(axis), axis)

    @classmethod
    def of_wrench(cls, frame: spatial_frames.Frame, wrench: spatial_frames.Twist) -> SpatialScrew:
        """Return a force and a torque at the origin of a frame as a force about the common origin.

        The torque of the wrench is in frame axes.
        """
        return cls._of(wrench.velocity, frame.turned(wrench.omega_body) + frame.place.cross(wrench.velocity))

    @classmethod
    def of_twist(cls, frame: spatial_frames.Frame, twist: spatial_frames.Twist) -> SpatialScrew:
        """Return the motion of a frame with this twist."""
        omega = twist.omega_world(frame)
        return cls._of(twist.velocity + frame.place.cross(omega), omega)

    def wrench_at(self, frame: spatial_frames.Frame) -> spatial_frames.Twist:
        """Return the force and the torque about the origin of a frame; the torque is in frame axes."""
        torque = frame.turned_back(self.angular - frame.place.cross(self.linear))
        return spatial_frames.Twist(self.x, self.y, self.z, torque.x, torque.y, torque.z)

    def cross(self, other: SpatialScrew) -> SpatialScrew:
        """Return the rate of another motion that is fixed in a body with this motion."""
        linear = self.angular.cross(other.linear) + self.linear.cross(other.angular)
        return SpatialScrew._of(linear, self.angular.cross(other.angular))

    def moving(self, frame: spatial_frames.Frame) -> spatial_frames.Frame:
        """Return the derivative of a frame with this motion."""
        velocity = self.linear + self.angular.cross(frame.place)
        return spatial_frames.Frame.of_axes(velocity, *(self.angular.cross(axis) for axis in frame.axes))

    def at(self, frame: spatial_frames.Frame) -> spatial_frames.Twist:
        """Return the twist of a frame with this motion."""
        velocity, omega = self.linear + self.angular.cross(frame.place), frame.turned_back(self.angular)
        return spatial_frames.Twist(velocity.x, velocity.y, velocity.z, omega.x, omega.y, omega.z)

    def acceleration_at(
        self, frame: spatial_frames.Frame, motion: SpatialScrew, twist: spatial_frames.Twist
    ) -> spatial_frames.Twist:
        """Return the rate of the twist of a frame with the motion `motion`, whose rate is this screw.

        The twist is `motion.at(frame)`.
        """
        rate = self.at(frame)
        turned = motion.angular.cross(twist.velocity)
        return rate._replace(x=rate.x + turned.x, y=rate.y + turned.y, z=rate.z + turned.z)


class SpatialInertia(NamedTuple):
    """Spatial inertia: m in kg, m c in kg m, and I about the origin in kg m^2, six entries of a matrix."""

    mass: Any
    x: Any
    y: Any
    z: Any
    xx: Any
    yy: Any
    zz: Any
    xy: Any
    xz: Any
    yz: Any

    @classmethod
    def of_bodies(cls, frame: spatial_frames.Frame, mass: Any, inertia: Any) -> SpatialInertia:
        """Return the inertia of bodies with mass centers at the origins of frames.

        The body inertia is (n, 3) or (n, 3, 3) in frame axes.
        """
        x, y, z = frame.x, frame.y, frame.z
        rows = (
            (frame.r11, frame.r12, frame.r13),
            (frame.r21, frame.r22, frame.r23),
            (frame.r31, frame.r32, frame.r33),
        )

        def entry(i: int, j: int) -> Any:
            if inertia.ndim == 2:
                return sum(rows[i][k] * inertia[:, k] * rows[j][k] for k in range(3))
            return sum(rows[i][k] * inertia[:, k, m] * rows[j][m] for k in range(3) for m in range(3))

        return cls(
            mass,
            mass * x,
            mass * y,
            mass * z,
            entry(0, 0) + mass * (y * y + z * z),
            entry(1, 1) + mass * (x * x + z * z),
            entry(2, 2) + mass * (x * x + y * y),
            entry(0, 1) - mass * x * y,
            entry(0, 2) - mass * x * z,
            entry(1, 2) - mass * y * z,
        )

    def times(self, motion: SpatialScrew) -> SpatialScrew:
        """Return the momentum of a motion."""
        first, omega, velocity = spatial_frames.Vector(self.x, self.y, self.z), motion.angular, motion.linear
        turning = spatial_frames.Vector(
            self.xx * omega.x + self.xy * omega.y + self.xz * omega.z,
            self.xy * omega.x + self.yy * omega.y + self.yz * omega.z,
            self.xz * omega.x + self.yz * omega.y + self.zz * omega.z,
        )
        return SpatialScrew._of(
            velocity.times(self.mass) + omega.cross(first), turning + first.cross(velocity)
        )

    def rows(self) -> list[list[Any]]:
        """Return the rows of the matrix that maps motions to momenta."""
        zero = jnp.zeros_like(self.mass)
        return [
            [self.mass, zero, zero, zero, self.z, -self.y],
            [zero, self.mass, zero, -self.z, zero, self.x],
            [zero, zero, self.mass, self.y, -self.x, zero],
            [zero, -self.z, self.y, self.xx, self.xy, self.xz],
            [self.z, zero, -self.x, self.xy, self.yy, self.yz],
            [-self.y, self.x, zero, self.xz, self.yz, self.zz],
        ]
