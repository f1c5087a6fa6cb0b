"""Motions, forces and inertias of bodies about one common origin, in the axes of the world.

About a common origin the motion of a body is the sum of those of the joints that carry it, whatever the distances between them, and the
momentum of several bodies is the sum of theirs: this is what makes recursions over a tree of bodies sums. A motion is the velocity of the
point of the (extended) body that is at the origin, with its angular velocity; a force is a force with its torque about the origin; an
inertia is (m, m c, I), with the mass center c and I about the origin.

Frames have their places counted from that origin. It is near the bodies: digits are lost like the square of (distance / size).

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxdae.geometry import planar, spatial


class PlanarScrew(NamedTuple):
    """Velocity (x, y) at the origin with angular velocity, or force (x, y) with torque about the origin."""

    x: Any
    y: Any
    angle: Any

    @classmethod
    def of_axis(cls, frame: planar.Frame, turning: Any, sliding: Any) -> PlanarScrew:
        """Returns the motion of a joint: turning () about the origin of a frame, and sliding (2,) along directions in it; stacked."""
        along = frame.turned(planar.Vector(sliding[:, 0], sliding[:, 1]))
        return cls(along.x + turning * frame.y, along.y - turning * frame.x, turning)

    @classmethod
    def of_wrench(cls, frame: planar.Frame, wrench: planar.Twist) -> PlanarScrew:
        """Returns a force at the origin of a frame and a torque as a force about the common origin."""
        return cls(wrench.x, wrench.y, wrench.angle + frame.x * wrench.y - frame.y * wrench.x)

    @classmethod
    def of_twist(cls, frame: planar.Frame, twist: planar.Twist) -> PlanarScrew:
        """Returns the motion of a frame with this twist."""
        return cls(twist.x + twist.angle * frame.y, twist.y - twist.angle * frame.x, twist.angle)

    def wrench_at(self, frame: planar.Frame) -> planar.Twist:
        """Returns a force as one at the origin of a frame with its torque about it."""
        return planar.Twist(self.x, self.y, self.angle - frame.x * self.y + frame.y * self.x)

    def cross(self, other: PlanarScrew) -> PlanarScrew:
        """Returns the rate of another motion that is carried along by this one."""
        return PlanarScrew(
            -self.angle * other.y + self.y * other.angle, self.angle * other.x - self.x * other.angle, jnp.zeros_like(other.angle)
        )

    def moving(self, frame: planar.Frame) -> planar.Frame:
        """Returns the derivative of a frame that moves so."""
        velocity = self.at(frame)
        return planar.Frame(velocity.x, velocity.y, self.angle, -self.angle * frame.sin, self.angle * frame.cos)

    def at(self, frame: planar.Frame) -> planar.Twist:
        """Returns the twist of a frame that moves so."""
        return planar.Twist(self.x - self.angle * frame.y, self.y + self.angle * frame.x, self.angle)

    def acceleration_at(self, frame: planar.Frame, motion: PlanarScrew, twist: planar.Twist) -> planar.Twist:
        """Returns the rate of the twist of a frame that moves with `motion`, whose rate this is; the twist is `motion.at(frame)`."""
        rate = self.at(frame)
        return planar.Twist(rate.x - motion.angle * twist.y, rate.y + motion.angle * twist.x, rate.angle)


class PlanarInertia(NamedTuple):
    """m in kg, m c in kg m, I about the origin in kg m^2."""

    mass: Any
    x: Any
    y: Any
    moment: Any

    @classmethod
    def of_bodies(cls, frame: planar.Frame, mass: Any, inertia: Any) -> PlanarInertia:
        """Returns the inertia of bodies with their mass centers at the origins of frames."""
        return cls(mass, mass * frame.x, mass * frame.y, inertia + mass * (frame.x**2 + frame.y**2))

    def times(self, motion: PlanarScrew) -> PlanarScrew:
        """Returns the momentum of a motion."""
        x = self.mass * motion.x - motion.angle * self.y
        y = self.mass * motion.y + motion.angle * self.x
        return PlanarScrew(x, y, self.moment * motion.angle + self.x * motion.y - self.y * motion.x)

    def rows(self) -> list[list[Any]]:
        """Returns the rows of the matrix that takes motions to momenta."""
        zero = jnp.zeros_like(self.mass)
        return [[self.mass, zero, -self.y], [zero, self.mass, self.x], [-self.y, self.x, self.moment]]


class SpatialScrew(NamedTuple):
    """Velocity (x, y, z) at the origin with angular velocity (wx, wy, wz), or force with torque about the origin."""

    x: Any
    y: Any
    z: Any
    wx: Any
    wy: Any
    wz: Any

    @classmethod
    def _of(cls, linear: spatial.Vector, angular: spatial.Vector) -> SpatialScrew:
        return cls(linear.x, linear.y, linear.z, angular.x, angular.y, angular.z)

    @property
    def linear(self) -> spatial.Vector:
        """The velocity at the origin, or the force."""
        return spatial.Vector(self.x, self.y, self.z)

    @property
    def angular(self) -> spatial.Vector:
        """The angular velocity, or the torque about the origin."""
        return spatial.Vector(self.wx, self.wy, self.wz)

    @classmethod
    def of_axis(cls, frame: spatial.Frame, turning: Any, sliding: Any) -> SpatialScrew:
        """Returns the motion of a joint: turning (3,) about the origin of a frame, and sliding (3,), along directions in it; stacked."""
        axis, along = (frame.turned(spatial.Vector(x[:, 0], x[:, 1], x[:, 2])) for x in (turning, sliding))
        return cls._of(along + frame.place.cross(axis), axis)

    @classmethod
    def of_wrench(cls, frame: spatial.Frame, wrench: spatial.Twist) -> SpatialScrew:
        """Returns a force at the origin of a frame and a torque in its axes as a force about the common origin."""
        return cls._of(wrench.velocity, frame.turned(wrench.omega_body) + frame.place.cross(wrench.velocity))

    @classmethod
    def of_twist(cls, frame: spatial.Frame, twist: spatial.Twist) -> SpatialScrew:
        """Returns the motion of a frame with this twist."""
        omega = twist.omega_world(frame)
        return cls._of(twist.velocity + frame.place.cross(omega), omega)

    def wrench_at(self, frame: spatial.Frame) -> spatial.Twist:
        """Returns a force as one at the origin of a frame with its torque about it, in the axes of the frame."""
        torque = frame.turned_back(self.angular - frame.place.cross(self.linear))
        return spatial.Twist(self.x, self.y, self.z, torque.x, torque.y, torque.z)

    def cross(self, other: SpatialScrew) -> SpatialScrew:
        """Returns the rate of another motion that is carried along by this one."""
        linear = self.angular.cross(other.linear) + self.linear.cross(other.angular)
        return SpatialScrew._of(linear, self.angular.cross(other.angular))

    def moving(self, frame: spatial.Frame) -> spatial.Frame:
        """Returns the derivative of a frame that moves so."""
        velocity = self.linear + self.angular.cross(frame.place)
        return spatial.Frame.of_axes(velocity, *(self.angular.cross(axis) for axis in frame.axes))

    def at(self, frame: spatial.Frame) -> spatial.Twist:
        """Returns the twist of a frame that moves so."""
        velocity, omega = self.linear + self.angular.cross(frame.place), frame.turned_back(self.angular)
        return spatial.Twist(velocity.x, velocity.y, velocity.z, omega.x, omega.y, omega.z)

    def acceleration_at(self, frame: spatial.Frame, motion: SpatialScrew, twist: spatial.Twist) -> spatial.Twist:
        """Returns the rate of the twist of a frame that moves with `motion`, whose rate this is; the twist is `motion.at(frame)`."""
        rate = self.at(frame)
        turned = motion.angular.cross(twist.velocity)
        return rate._replace(x=rate.x + turned.x, y=rate.y + turned.y, z=rate.z + turned.z)


class SpatialInertia(NamedTuple):
    """m in kg, m c in kg m, I about the origin in kg m^2, six entries of a symmetric matrix."""

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
    def of_bodies(cls, frame: spatial.Frame, mass: Any, inertia: Any) -> SpatialInertia:
        """Returns the inertia of bodies with their mass centers at the origins of frames; inertia (n, 3) or (n, 3, 3) in their axes."""
        x, y, z = frame.x, frame.y, frame.z
        rows = ((frame.r11, frame.r12, frame.r13), (frame.r21, frame.r22, frame.r23), (frame.r31, frame.r32, frame.r33))

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
        """Returns the momentum of a motion."""
        first, omega, velocity = spatial.Vector(self.x, self.y, self.z), motion.angular, motion.linear
        turning = spatial.Vector(
            self.xx * omega.x + self.xy * omega.y + self.xz * omega.z,
            self.xy * omega.x + self.yy * omega.y + self.yz * omega.z,
            self.xz * omega.x + self.yz * omega.y + self.zz * omega.z,
        )
        return SpatialScrew._of(velocity.times(self.mass) + omega.cross(first), turning + first.cross(velocity))

    def rows(self) -> list[list[Any]]:
        """Returns the rows of the matrix that takes motions to momenta."""
        zero = jnp.zeros_like(self.mass)
        return [
            [self.mass, zero, zero, zero, self.z, -self.y],
            [zero, self.mass, zero, -self.z, zero, self.x],
            [zero, zero, self.mass, self.y, -self.x, zero],
            [zero, -self.z, self.y, self.xx, self.xy, self.xz],
            [self.z, zero, -self.x, self.xy, self.yy, self.yz],
            [-self.y, self.x, zero, self.xz, self.yz, self.zz],
        ]
