"""Weight and inertial wrenches of bodies in the plane and in space."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.geometry import planar, screws, spatial


@dataclasses.dataclass(frozen=True)
class Plane:
    """Bodies that move in a plane: inertia (n,), gravity (2,)."""

    name: ClassVar[str] = "plane"
    dimension: ClassVar[int] = 2
    frame: ClassVar[Any] = planar.Frame
    twist: ClassVar[Any] = planar.Twist
    screw: ClassVar[Any] = screws.PlanarScrew
    body_inertia: ClassVar[Any] = screws.PlanarInertia

    def weight(self, mass: Any, gravity: Any) -> planar.Twist:
        """Return the weights of all bodies as wrenches, in N and N m."""
        return planar.Twist(mass * gravity[0], mass * gravity[1], jnp.zeros_like(mass))

    def gyroscopic(self, inertia: Any, twist: planar.Twist) -> planar.Twist | None:
        """Return None, because planar bodies have no gyroscopic torques."""
        return None

    def inertial(self, mass: Any, inertia: Any, change: planar.Twist) -> planar.Twist:
        """Return M_b times the rates of twists, as wrenches."""
        return planar.Twist(mass * change.x, mass * change.y, inertia * change.angle)

    def about(self, wrench: planar.Twist, frame: planar.Frame, arm: planar.Vector) -> tuple[Any, Any]:
        """Return force (k, 2) and torque (k,) of wrenches about other points.

        Args:
            wrench: wrenches about the mass centers.
            frame: the frames of the bodies.
            arm: vectors from these points to the mass centers.
        """
        torque = wrench.angle + arm.x * wrench.y - arm.y * wrench.x
        return jnp.stack([wrench.x, wrench.y], axis=1), torque


@dataclasses.dataclass(frozen=True)
class Space:
    """Bodies that move in space: inertia (n, 3) or (n, 3, 3) in the axes of the body, gravity (3,)."""

    name: ClassVar[str] = "space"
    dimension: ClassVar[int] = 3
    frame: ClassVar[Any] = spatial.Frame
    twist: ClassVar[Any] = spatial.Twist
    screw: ClassVar[Any] = screws.SpatialScrew
    body_inertia: ClassVar[Any] = screws.SpatialInertia

    def weight(self, mass: Any, gravity: Any) -> spatial.Twist:
        """Return the weights of all bodies as wrenches, in N and N m."""
        zero = jnp.zeros_like(mass)
        return spatial.Twist(mass * gravity[0], mass * gravity[1], mass * gravity[2], zero, zero, zero)

    def gyroscopic(self, inertia: Any, twist: spatial.Twist) -> spatial.Twist | None:
        """Return -omega_body x (I omega_body) of all bodies, as wrenches."""
        torque = -twist.omega_body.cross(_turning(inertia, twist.omega_body))
        zero = jnp.zeros_like(twist.x)
        return spatial.Twist(zero, zero, zero, torque.x, torque.y, torque.z)

    def inertial(self, mass: Any, inertia: Any, change: spatial.Twist) -> spatial.Twist:
        """Return M_b times the rates of twists, as wrenches."""
        torque = _turning(inertia, change.omega_body)
        return spatial.Twist(mass * change.x, mass * change.y, mass * change.z, torque.x, torque.y, torque.z)

    def about(self, wrench: spatial.Twist, frame: spatial.Frame, arm: spatial.Vector) -> tuple[Any, Any]:
        """Return force (k, 3) and torque (k, 3) of wrenches about other points, in the world.

        Args:
            wrench: wrenches about the mass centers.
            frame: the frames of the bodies.
            arm: vectors from these points to the mass centers.
        """
        torque = frame.turned(wrench.omega_body) + arm.cross(wrench.velocity)
        return jnp.stack(wrench[:3], axis=1), jnp.stack([torque.x, torque.y, torque.z], axis=1)


def _turning(inertia: Any, omega: spatial.Vector) -> spatial.Vector:
    """Return I omega of all bodies."""
    if inertia.ndim == 2:
        return spatial.Vector(*(inertia[:, k] * entry for k, entry in enumerate((omega.x, omega.y, omega.z))))
    rows = (inertia[:, k, 0] * omega.x + inertia[:, k, 1] * omega.y + inertia[:, k, 2] * omega.z for k in range(3))
    return spatial.Vector(*rows)


PLANE = Plane()
SPACE = Space()
