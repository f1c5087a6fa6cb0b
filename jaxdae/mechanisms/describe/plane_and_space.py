"""Weight and inertial wrenches of bodies in the plane and in space."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.geometry import planar_frames, screws, spatial_frames


@dataclasses.dataclass(frozen=True)
class Plane:
    """Bodies that move in a plane: inertia (n,), gravity (2,)."""

    name: ClassVar[str] = "plane"
    dimension: ClassVar[int] = 2
    frame: ClassVar[Any] = planar_frames.Frame
    twist: ClassVar[Any] = planar_frames.Twist
    screw: ClassVar[Any] = screws.PlanarScrew
    body_inertia: ClassVar[Any] = screws.PlanarInertia

    def weight(self, mass: Any, gravity: Any) -> planar_frames.Twist:
        """Return the weights of all bodies as wrenches, in N and N m."""
        return planar_frames.Twist(mass * gravity[0], mass * gravity[1], jnp.zeros_like(mass))

    def gyroscopic(self, inertia: Any, twist: planar_frames.Twist) -> planar_frames.Twist | None:
        """Return None, because planar bodies have no gyroscopic torques."""
        return None

    def inertial(self, mass: Any, inertia: Any, change: planar_frames.Twist) -> planar_frames.Twist:
        """Return M_b times the rates of twists, as wrenches."""
        return planar_frames.Twist(mass * change.x, mass * change.y, inertia * change.angle)

    def about(
        self, wrench: planar_frames.Twist, frame: planar_frames.Frame, arm: planar_frames.Vector
    ) -> tuple[Any, Any]:
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
    frame: ClassVar[Any] = spatial_frames.Frame
    twist: ClassVar[Any] = spatial_frames.Twist
    screw: ClassVar[Any] = screws.SpatialScrew
    body_inertia: ClassVar[Any] = screws.SpatialInertia

    def weight(self, mass: Any, gravity: Any) -> spatial_frames.Twist:
        """Return the weights of all bodies as wrenches, in N and N m."""
        zero = jnp.zeros_like(mass)
        return spatial_frames.Twist(mass * gravity[0], mass * gravity[1], mass * gravity[2], zero, zero, zero)

    def gyroscopic(self, inertia: Any, twist: spatial_frames.Twist) -> spatial_frames.Twist | None:
        """Return -omega_body x (I omega_body) of all bodies, as wrenches."""
        torque = -twist.omega_body.cross(_turning(inertia, twist.omega_body))
        zero = jnp.zeros_like(twist.x)
        return spatial_frames.Twist(zero, zero, zero, torque.x, torque.y, torque.z)

    def inertial(self, mass: Any, inertia: Any, change: spatial_frames.Twist) -> spatial_frames.Twist:
        """Return M_b times the rates of twists, as wrenches."""
        torque = _turning(inertia, change.omega_body)
        return spatial_frames.Twist(
            mass * change.x, mass * change.y, mass * change.z, torque.x, torque.y, torque.z
        )

    def about(
        self, wrench: spatial_frames.Twist, frame: spatial_frames.Frame, arm: spatial_frames.Vector
    ) -> tuple[Any, Any]:
        """Return force (k, 3) and torque (k, 3) of wrenches about other points, in the world.

        Args:
            wrench: wrenches about the mass centers.
            frame: the frames of the bodies.
            arm: vectors from these points to the mass centers.
        """
        torque = frame.turned(wrench.omega_body) + arm.cross(wrench.velocity)
        return jnp.stack(wrench[:3], axis=1), jnp.stack([torque.x, torque.y, torque.z], axis=1)


def _turning(inertia: Any, omega: spatial_frames.Vector) -> spatial_frames.Vector:
    """Return I omega of all bodies."""
    if inertia.ndim == 2:
        return spatial_frames.Vector(
            *(inertia[:, k] * entry for k, entry in enumerate((omega.x, omega.y, omega.z)))
        )
    rows = (
        inertia[:, k, 0] * omega.x + inertia[:, k, 1] * omega.y + inertia[:, k, 2] * omega.z for k in range(3)
    )
    return spatial_frames.Vector(*rows)


PLANE = Plane()
SPACE = Space()
