"""Measures between two frames for joints and forces; `gap` and `distance` work in the plane and in space."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.geometry.planar_frames import Frame

NO_RADIUS = "use a joint such as Prismatic for sliding without rotation"
"""The remedy for a pinion with radius zero."""


def parallel(point: Any, angle: Any = 0.0) -> Frame:
    """Return the frame at a point of a body (2,), rotated relative to the body by an angle."""
    return Frame.of_pose(point[0], point[1], jnp.asarray(angle, point.dtype))


def turn(element: Any, a: Frame, b: Frame) -> Any:
    """Return the rotation of b relative to a in rad."""
    return b.angle - a.angle


def gap(element: Any, a: Any, b: Any) -> Any:
    """Return the vector from the element's point on a to its point on b, in the world."""
    return b.point(element.point_b) - a.point(element.point_a)


def entries(vector: Any) -> tuple[Any, ...]:
    """Return the components of a vector in the plane or in space."""
    return tuple(jax.tree.leaves(vector))


def along(element: Any, a: Frame, b: Frame) -> Any:
    """Return the component of the gap along the element's axis, which is fixed in a."""
    return gap(element, a, b).dot(a.direction(element.axis))


def across(element: Any, a: Frame, b: Frame) -> Any:
    """Return the component of the gap normal to the element's axis."""
    return gap(element, a, b).dot(a.direction(element.axis).quarter_turn())


def distance(element: Any, a: Any, b: Any) -> Any:
    """Return the length of the gap; the derivative at length zero is defined as zero."""
    ends = gap(element, a, b)
    square = ends.dot(ends)
    apart = square > 0.0
    safe: Any = jnp.where(apart, square, 1.0)
    return jnp.where(apart, jnp.sqrt(safe), 0.0)
