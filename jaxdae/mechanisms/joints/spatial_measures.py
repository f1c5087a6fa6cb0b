"""Measures between two frames shared by spatial joints and forces.

A joint has its own axes x, y, z in both bodies, the columns of `axes_a` and `axes_b`, and a point in each
body. The axes and points coincide where all joint coordinates are zero. With unit vectors x_a, ..., z_b in
the world, small rotations phi of b relative to a, in the axes of the joint, are

    phi_x = -y_a . z_b,    phi_y = x_a . z_b,    phi_z = y_a . x_b        (to first order).

Joints that constrain these rotations use them as rows: their multipliers are torques about the axes of the
joint.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.spatial_frames import Frame, Twist, Vector
from jaxdae.mechanisms.joints.joint_measures import gap

X, Y, Z = np.eye(3)
NONE = np.zeros(3)


def frames_of_joint(element: Any) -> tuple[Frame, Frame]:
    """Return the joint frames in a and in b, with the axes of the joint, for one element of a group."""
    a, b = (
        Frame.of_axes(Vector(*point), *(Vector(*axes[:, k]) for k in range(3)))
        for point, axes in ((element.point_a, element.axes_a), (element.point_b, element.axes_b))
    )
    return a, b


def parallel(point: Any) -> Frame:
    """Return the frame at a point of a body (3,), with the axes of the body."""
    zero, one = jnp.zeros((), point.dtype), jnp.ones((), point.dtype)
    return Frame(point[0], point[1], point[2], one, zero, zero, zero, one, zero, zero, zero, one)


def axis_a(element: Any, a: Frame, k: int) -> Vector:
    """Return joint axis 0, 1 or 2 that is fixed in a, in the world."""
    return a.direction(element.axes_a[:, k])


def axis_b(element: Any, b: Frame, k: int) -> Vector:
    """Return joint axis 0, 1 or 2 that is fixed in b, in the world."""
    return b.direction(element.axes_b[:, k])


def tilt(element: Any, a: Frame, b: Frame) -> tuple[Any, Any]:
    """Return the rotations about x and y of a that misalign the z axes, to first order, in rad."""
    z_b = axis_b(element, b, 2)
    return -axis_a(element, a, 1).dot(z_b), axis_a(element, a, 0).dot(z_b)


def rotation(element: Any, a: Frame, b: Frame) -> tuple[Any, Any, Any]:
    """Return sin(angle) times the rotation axis of b relative to a, in the axes of the joint.

    To first order, this is the rotation in rad.
    """
    x_a, y_a, z_a = (axis_a(element, a, k) for k in range(3))
    x_b, y_b, z_b = (axis_b(element, b, k) for k in range(3))
    return (
        0.5 * (z_a.dot(y_b) - y_a.dot(z_b)),
        0.5 * (x_a.dot(z_b) - z_a.dot(x_b)),
        0.5 * (y_a.dot(x_b) - x_a.dot(y_b)),
    )


def aligned(element: Any, a: Frame, b: Frame) -> Any:
    """Return the cosine of the rotation angle of b relative to a, from the trace of the rotation matrix."""
    return 0.5 * (sum(axis_a(element, a, k).dot(axis_b(element, b, k)) for k in range(3)) - 1.0)


def turn(element: Any, a: Frame, b: Frame, k: int = 2) -> Any:
    """Return the angle of b relative to a about a joint axis, in (-pi, pi] rad.

    The result is correct to first order if the axes in a and b are misaligned.
    """
    first, second = (k + 1) % 3, (k + 2) % 3
    x_a, y_a = axis_a(element, a, first), axis_a(element, a, second)
    x_b, y_b = axis_b(element, b, first), axis_b(element, b, second)
    return jnp.arctan2(y_a.dot(x_b) - x_a.dot(y_b), x_a.dot(x_b) + y_a.dot(y_b))


def slide(element: Any, a: Frame, b: Frame, k: int = 2) -> Any:
    """Return the component of the gap along a joint axis that is fixed in a, in m."""
    return gap(element, a, b).dot(axis_a(element, a, k))


def forgets_turns(joint: Any, number: int) -> bool:
    """Return whether a joint coordinate is an angle known modulo 2 pi when measured between frames."""
    return list(joint.coordinates.values())[number] == "rad" and not joint.counts_turns


def nearest_turn(angle: Any) -> Any:
    """Return an angle reduced by full turns to [-pi, pi] rad."""
    return angle - 2.0 * jnp.pi * jnp.round(angle / (2.0 * jnp.pi))


NEAR_HALF_TURN = 0.2
"""Distance from half a turn, in rad, at which a rollout ends with OUT_OF_RANGE."""


def near_half_turn(angle: Any) -> Any:
    """Return whether an angle in [-pi, pi] rad is within `NEAR_HALF_TURN` of half a turn.

    There it jumps by a full turn.
    """
    return jnp.abs(angle) > jnp.pi - NEAR_HALF_TURN


def spin(a: Frame, b: Frame, moving_a: Twist, moving_b: Twist) -> tuple[Any, Any, Any]:
    """Return the angular velocity of b relative to a in the world, in rad/s."""
    omega = moving_b.omega_world(b) - moving_a.omega_world(a)
    return omega.x, omega.y, omega.z
