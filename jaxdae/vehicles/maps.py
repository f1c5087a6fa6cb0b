"""Maps between spins of wheels, twists and poses of a vehicle in the plane, and how its odometry drifts.

A twist V = (v_x, v_y, omega) in the vehicle frame, constant over dt, moves the pose along an arc: with a = omega dt,

    R(theta) [ sin(a)/a   -(1 - cos(a))/a ] [v_x] dt,      theta + a,
             [ (1 - cos(a))/a    sin(a)/a ] [v_y]

without error whatever the step. Noise of the twist, white with the density N (3, 3) per second, makes the covariance of the pose grow by

    P(dt) = A P A^T + int_0^dt B(s) N B(s)^T ds,

A the derivative of the pose at the end in that at the start, B(s) that in a jump of the pose along the frame at s. Both follow from
lever arms: an error in heading at s turns all that comes after it.

References:
    S. Thrun, W. Burgard, D. Fox, "Probabilistic Robotics" (2005), chapter 5. K. S. Chong, L. Kleeman, "Accurate odometry and error
    modelling for a mobile robot", ICRA 1997.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.geometry.trigonometry import chord
from jaxdae.mechanisms.values import floating
from jaxdae.vehicles.layout import Wheels
from jaxdae.vehicles.overconstraint import Answer, WheelReport, vehicle_twist

_POSE, _TWIST = "(x, y, heading) in m and rad", "(v_x, v_y, omega) in m/s and rad/s"


def _three(caller: str, name: str, what: str, x: Array) -> Array:
    """Returns three numbers, and raises where they are not so many."""
    if x.shape != (3,):
        raise ValueError(f"{caller}: {name} must have shape (3,), {what}, got {x.shape}")
    return x


def wheel_rates(wheels: Wheels, twist: Any) -> Array:
    """Returns the spins (k,) in rad/s with which the wheels follow a twist without slip along their headings.

    Args:
        wheels: the wheels as they stand.
        twist: (v_x, v_y, omega) in the vehicle frame in m/s and rad/s; ROS 2's `cmd_vel` is its linear.x, linear.y and angular.z.

    Raises:
        ValueError: a twist that is not three numbers.
    """
    twist = _three("wheel_rates", "twist", _TWIST, jnp.asarray(twist, wheels.place.dtype))
    return wheels.rolling() @ twist / wheels.radius


def steering_angles(wheels: Wheels, twist: Any) -> Array:
    """Returns the angles (k,) in rad of headings that follow a twist without slip; that of a wheel which stands is zero.

    Args:
        wheels: the wheels; as they stand does not matter.
        twist: (v_x, v_y, omega) in the vehicle frame in m/s and rad/s.

    Raises:
        ValueError: a twist that is not three numbers.
    """
    vx, vy, omega = _three("steering_angles", "twist", _TWIST, jnp.asarray(twist, wheels.place.dtype))
    x, y = vx - omega * wheels.place[:, 1], vy + omega * wheels.place[:, 0]
    still = (x == 0.0) & (y == 0.0)
    across: Any = jnp.where(still, 0.0, y)
    ahead: Any = jnp.where(still, 1.0, x)
    return jnp.arctan2(across, ahead)


def body_twist(wheels: Wheels, rates: Any, slip: Answer | None = None) -> tuple[Array, WheelReport]:
    """Returns the twist (3,) that comes nearest to the spins of the wheels, and how they slip.

    Args:
        wheels: the wheels as they stand.
        rates: their spins (k,) in rad/s.
        slip: `LeastResidual()` by default: all slips, along and across, in least squares.
    """
    return vehicle_twist(wheels, rates=rates, slip=slip)


def integrate_twist(pose: Any, twist: Any, dt: Any) -> Array:
    """Returns the pose (3,) after dt at a constant twist, exactly; pose (x, y, heading) in m and rad, dt in s.

    Raises:
        ValueError: a pose or a twist that is not three numbers.
    """
    x, y, heading = _three("integrate_twist", "pose", _POSE, floating(pose))
    vx, vy, omega = _three("integrate_twist", "twist", _TWIST, floating(twist))
    turn = omega * dt
    ahead, aside = chord(turn)
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    dx, dy = (ahead * vx - aside * vy) * dt, (aside * vx + ahead * vy) * dt
    return jnp.stack([x + cos * dx - sin * dy, y + sin * dx + cos * dy, heading + turn])


def wheel_noise(wheels: Wheels, rates: Any, variance_per_meter: Any, slip: Answer | None = None) -> Array:
    """Returns the density (3, 3) of the noise of a twist whose wheels have independent errors in their travels.

    Args:
        wheels: the wheels as they stand.
        rates: their spins (k,) in rad/s.
        variance_per_meter: of the travel of each wheel in m, one or (k,).
        slip: as for `body_twist`.
    """
    rates = jnp.asarray(rates, wheels.place.dtype)
    slopes = jax.jacfwd(lambda spins: body_twist(wheels, spins, slip)[0])(rates) / wheels.radius
    variance = jnp.asarray(variance_per_meter, rates.dtype)
    return (slopes * (variance * jnp.abs(wheels.radius * rates))) @ slopes.T


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def odometry_covariance(covariance: Any, pose: Any, twist: Any, noise: Any, dt: Any) -> Array:
    """Returns the covariance (3, 3) of the pose (x, y, heading) after dt at a constant twist.

    Args:
        covariance: (3, 3) at the start in m^2, m rad and rad^2.
        pose: (3,) at the start.
        twist: (3,) in the vehicle frame.
        noise: density (3, 3) of the noise of the twist per second, see `wheel_noise`.
        dt: in s. Exact to rounding: the integral has sixteen nodes over what is beyond full turns, and as many over a full turn.

    Raises:
        ValueError: shapes that do not fit.
    """
    pose = _three("odometry_covariance", "pose", _POSE, floating(pose))
    covariance, noise = (jnp.asarray(matrix, pose.dtype) for matrix in (covariance, noise))
    for name, matrix in (("covariance", covariance), ("noise", noise)):
        if matrix.shape != (3, 3):
            raise ValueError(f"odometry_covariance: {name} must have shape (3, 3), of (x, y, heading), got {matrix.shape}")
    end = integrate_twist(pose, twist, dt)

    def influence(at: Any) -> Array:
        """Returns the derivative of the pose at the end in the pose `at`."""
        one, zero = jnp.ones_like(at[0]), jnp.zeros_like(at[0])
        return jnp.stack([jnp.stack([one, zero, at[1] - end[1]]), jnp.stack([zero, one, end[0] - at[0]]), jnp.stack([zero, zero, one])])

    def grown(node: Any) -> Array:
        at = integrate_twist(pose, twist, node)
        cos, sin = jnp.cos(at[2]), jnp.sin(at[2])
        one, zero = jnp.ones_like(cos), jnp.zeros_like(cos)
        turned = jnp.stack([jnp.stack([cos, -sin, zero]), jnp.stack([sin, cos, zero]), jnp.stack([zero, zero, one])])
        lever = influence(at) @ turned
        return lever @ noise @ lever.T

    def over(span: Any) -> Array:
        """Returns the integral over the first `span` seconds."""
        nodes = jnp.asarray(0.5 * (_NODES + 1.0), pose.dtype) * span
        weights = jnp.asarray(0.5 * _WEIGHTS, pose.dtype) * span
        return jnp.einsum("s,sij->ij", weights, jax.vmap(grown)(nodes))

    # The end is that of a circle again after each full turn, and so are all levers to it.
    rate = jnp.abs(floating(twist)[2])
    turns = jnp.floor(rate * dt / (2.0 * jnp.pi))
    period = jnp.where(turns > 0.0, 2.0 * jnp.pi / jnp.where(turns > 0.0, rate, 1.0), 0.0)
    start = influence(pose)
    return start @ covariance @ start.T + over(dt - turns * period) + turns * over(period)
