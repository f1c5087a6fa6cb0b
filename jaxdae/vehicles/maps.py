"""Maps between wheel spins, twists and poses of a vehicle in the plane, and its odometry drift.

A constant twist V = (v_x, v_y, omega) in the vehicle frame moves the pose along an arc. After dt, with a =
omega dt, the position changes by the first expression, and the heading is the second:

    R(theta) [ sin(a)/a   -(1 - cos(a))/a ] [v_x] dt,      theta + a.
             [ (1 - cos(a))/a    sin(a)/a ] [v_y]

This is exact for any step. White noise of the twist with the density N (3, 3) per second increases the
covariance of the pose by

    P(dt) = A P A^T + int_0^dt B(s) N B(s)^T ds.

Here A is the derivative of the final pose with respect to the initial pose. B(s) is the derivative of the
final pose with respect to a jump of the pose along the frame at s. Both follow from lever arms: a heading
error at s rotates all later motion.

References:
    S. Thrun, W. Burgard, D. Fox, "Probabilistic Robotics" (2005), chapter 5. K. S. Chong, L. Kleeman,
    "Accurate
    odometry and error modelling for a mobile robot", ICRA 1997.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.requirements import check_requirements
from jaxdae.geometry.trigonometry import chord
from jaxdae.mechanisms.describe.numbers import floating
from jaxdae.vehicles.overconstraint import Answer, WheelReport, vehicle_twist
from jaxdae.vehicles.wheel_layout import Wheels

_POSE, _TWIST = "(x, y, heading) in m and rad", "(v_x, v_y, omega) in m/s and rad/s"


def _three(caller: str, name: str, what: str, x: Array) -> Array:
    """Return x, and raise ValueError unless it has shape (3,)."""
    if x.shape != (3,):
        raise ValueError(f"{caller}: {name} must have shape (3,), {what}, got {x.shape}")
    return x


def wheel_rates(wheels: Wheels, twist: Any) -> Array:
    """Return the spins (k,) in rad/s of wheels that follow a twist without slip along their headings.

    Args:
        wheels: the wheels at their current steering angles.
        twist: (v_x, v_y, omega) in the vehicle frame in m/s and rad/s; linear.x, linear.y and angular.z of
            ROS 2's `cmd_vel`.

    Raises:
        ValueError: twist does not have shape (3,); a known radius is not positive.
    """
    check_requirements("wheels", wheels)
    twist = _three("wheel_rates", "twist", _TWIST, jnp.asarray(twist, wheels.place.dtype))
    return wheels.rolling() @ twist / wheels.radius


def steering_angles(wheels: Wheels, twist: Any) -> Array:
    """Return the heading angles (k,) in rad that follow a twist without slip; zero for a wheel at rest.

    Args:
        wheels: the wheels; their current steering angles are ignored.
        twist: (v_x, v_y, omega) in the vehicle frame in m/s and rad/s.

    Raises:
        ValueError: twist does not have shape (3,).
    """
    vx, vy, omega = _three("steering_angles", "twist", _TWIST, jnp.asarray(twist, wheels.place.dtype))
    x, y = vx - omega * wheels.place[:, 1], vy + omega * wheels.place[:, 0]
    still = (x == 0.0) & (y == 0.0)
    across: Any = jnp.where(still, 0.0, y)
    ahead: Any = jnp.where(still, 1.0, x)
    return jnp.arctan2(across, ahead)


def body_twist(wheels: Wheels, rates: Any, slip: Answer | None = None) -> tuple[Array, WheelReport]:
    """Return the twist (3,) closest to the spins of the wheels, and a report of the wheel slip.

    Args:
        wheels: the wheels at their current steering angles.
        rates: spins of the wheels (k,) in rad/s.
        slip: by default `LeastResidual()`: least squares of all slips, along and across.
    """
    return vehicle_twist(wheels, rates=rates, slip=slip)


def integrate_twist(pose: Any, twist: Any, dt: Any) -> Array:
    """Return the exact pose (3,) after dt at a constant twist; pose (x, y, heading) in m and rad, dt in s.

    Raises:
        ValueError: pose or twist does not have shape (3,).
    """
    x, y, heading = _three("integrate_twist", "pose", _POSE, floating(pose))
    vx, vy, omega = _three("integrate_twist", "twist", _TWIST, floating(twist))
    turn = omega * dt
    ahead, aside = chord(turn)
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    dx, dy = (ahead * vx - aside * vy) * dt, (aside * vx + ahead * vy) * dt
    return jnp.stack([x + cos * dx - sin * dy, y + sin * dx + cos * dy, heading + turn])


def wheel_noise(wheels: Wheels, rates: Any, variance_per_meter: Any, slip: Answer | None = None) -> Array:
    """Return the noise density (3, 3) of a twist from independent errors in the wheel travels.

    Args:
        wheels: the wheels at their current steering angles.
        rates: spins of the wheels (k,) in rad/s.
        variance_per_meter: variance of the travel of each wheel per meter in m, one or (k,).
        slip: as for `body_twist`.
    """
    rates = jnp.asarray(rates, wheels.place.dtype)
    slopes = jax.jacfwd(lambda spins: body_twist(wheels, spins, slip)[0])(rates) / wheels.radius
    variance = jnp.asarray(variance_per_meter, rates.dtype)
    return (slopes * (variance * jnp.abs(wheels.radius * rates))) @ slopes.T


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def odometry_covariance(covariance: Any, pose: Any, twist: Any, noise: Any, dt: Any) -> Array:
    """Return the covariance (3, 3) of the pose (x, y, heading) after dt at a constant twist.

    Args:
        covariance: initial covariance (3, 3) in m^2, m rad and rad^2.
        pose: initial pose (3,).
        twist: (3,) in the vehicle frame.
        noise: noise density (3, 3) of the twist per second; see `wheel_noise`.
        dt: in s. The result is exact up to rounding: the integral uses sixteen nodes over the remainder
            beyond full turns, and sixteen over one full turn.

    Raises:
        ValueError: mismatched shapes.
    """
    pose = _three("odometry_covariance", "pose", _POSE, floating(pose))
    covariance, noise = (jnp.asarray(matrix, pose.dtype) for matrix in (covariance, noise))
    for name, matrix in (("covariance", covariance), ("noise", noise)):
        if matrix.shape != (3, 3):
            raise ValueError(
                f"odometry_covariance: {name} must have shape (3, 3), of (x, y, heading), got {matrix.shape}"
            )
    end = integrate_twist(pose, twist, dt)

    def influence(at: Any) -> Array:
        """Return the derivative of the final pose with respect to the pose `at`."""
        one, zero = jnp.ones_like(at[0]), jnp.zeros_like(at[0])
        return jnp.stack(
            [
                jnp.stack([one, zero, at[1] - end[1]]),
                jnp.stack([zero, one, end[0] - at[0]]),
                jnp.stack([zero, zero, one]),
            ]
        )

    def grown(node: Any) -> Array:
        at = integrate_twist(pose, twist, node)
        cos, sin = jnp.cos(at[2]), jnp.sin(at[2])
        one, zero = jnp.ones_like(cos), jnp.zeros_like(cos)
        turned = jnp.stack(
            [jnp.stack([cos, -sin, zero]), jnp.stack([sin, cos, zero]), jnp.stack([zero, zero, one])]
        )
        lever = influence(at) @ turned
        return lever @ noise @ lever.T

    def over(span: Any) -> Array:
        """Return the integral over the first `span` seconds."""
        nodes = jnp.asarray(0.5 * (_NODES + 1.0), pose.dtype) * span
        weights = jnp.asarray(0.5 * _WEIGHTS, pose.dtype) * span
        return jnp.einsum("s,sij->ij", weights, jax.vmap(grown)(nodes))

    # After each full turn the pose and its lever arms to the end repeat.
    rate = jnp.abs(floating(twist)[2])
    turns = jnp.floor(rate * dt / (2.0 * jnp.pi))
    period = jnp.where(turns > 0.0, 2.0 * jnp.pi / jnp.where(turns > 0.0, rate, 1.0), 0.0)
    start = influence(pose)
    return start @ covariance @ start.T + over(dt - turns * period) + turns * over(period)
