"""Contacts of balls and capsules with each other, and of balls with boxes and cylinders: closed forms.

*Two capsules* (in space). Let x_a(s) = c_a + s u_a and x_b(t) = c_b + t u_b be points of the axes. The
distance is stationary where s and t are stationary or at an end. The contacts are

    end0, end1   the ends of the interval in which the axes overlap along u_a. Each is an end of one of both
                 axes, with the nearest point of the other axis. They support parallel capsules.
    cross        the crossing of the axes: both parameters stationary, or clamped.

The smallest of the three gaps is the distance of the capsules. Parallel axes have no unique crossing, and its
derivative is infinite there. Therefore sin^2 of their angle is replaced by sin^2 + eps, and below sqrt(eps)
the derivative holds the crossing fixed on both axes. The error of the gap is of the order eps, and its
derivative is exact, because the distance is stationary.

References:
    C. Ericson, "Real-Time Collision Detection", Morgan Kaufmann (2005), section 5.1.9.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.geometry.pairs.contact_points import Points, ball_at, balls, direction, joined
from jaxdae.geometry.shapes import Box, Capsule, Cylinder, Disc, Pose, Sphere


def ball_ball(a: Sphere | Disc, at_a: Pose, b: Sphere | Disc, at_b: Pose) -> Points:
    """Return the contact of two spheres or two discs."""
    return balls(at_a.place, a.radius, at_b.place, b.radius, at_a.main)


def capsule_ball(capsule: Any, at_a: Pose, ball: Sphere | Disc, at_b: Pose) -> Points:
    """Return the contact of a capsule with a ball."""
    s = clamped(jnp.sum((at_b.place - at_a.place) * at_a.main), capsule.half_length)
    center = at_a.place + s * at_a.main
    return balls(center, capsule.radius, at_b.place, ball.radius, at_a.axes[:, 0])


def capsule_capsule(a: Capsule, at_a: Pose, b: Capsule, at_b: Pose) -> Points:
    """Return the three contacts of two capsules in space."""
    along_a, along_b, offset = at_a.main, at_b.main, at_b.place - at_a.place
    cos = jnp.sum(along_a * along_b)
    to_a, to_b = jnp.sum(offset * along_a), -jnp.sum(offset * along_b)
    sense: Any = jnp.where(cos < 0.0, -1.0, 1.0)
    instead, _ = direction(jnp.cross(along_a, along_b), at_a.axes[:, 0])

    def contact(s: Any, t: Any) -> Points:
        x, y = at_a.place + s * along_a, at_b.place + t * along_b
        return balls(x, a.radius, y, b.radius, instead)

    def overlap(end: float) -> Points:
        """Return the contact at one end of the overlap: -1 or +1 along the axis of a."""
        s_a, t_b = end * a.half_length, end * sense * b.half_length
        t_of_a = clamped(to_b + cos * s_a, b.half_length)
        s_of_b = to_a + cos * t_b
        inner = end * s_of_b < a.half_length
        s = jnp.where(inner, clamped(s_of_b, a.half_length), s_a)
        return contact(s, jnp.where(inner, t_b, t_of_a))

    crossing = contact(*nearest(offset, along_a, a.half_length, along_b, b.half_length))
    return joined(overlap(-1.0), overlap(1.0), crossing)


def nearest(offset: Array, along_a: Array, most_a: Any, along_b: Array, most_b: Any) -> tuple[Any, Any]:
    """Return the parameters s and t of the nearest points of two segments, regularized if parallel.

    Args:
        offset: from the center of a to the center of b (3,) in m.
        along_a: unit vector along a (3,).
        most_a: half of the length of a in m, the largest |s|.
        along_b: unit vector along b (3,).
        most_b: half of the length of b in m, the largest |t|.
    """
    cos, to_a, to_b = jnp.sum(along_a * along_b), jnp.sum(offset * along_a), -jnp.sum(offset * along_b)
    sin2 = 1.0 - cos * cos + float(jnp.finfo(cos.dtype).eps)
    s = clamped((to_a + cos * to_b) / sin2, most_a)
    t = clamped(to_b + cos * s, most_b)
    s = clamped(to_a + cos * t, most_a)
    return held(s, sin2), held(t, sin2)


def held(x: Any, sin2: Any) -> Any:
    """Return x, without derivative where sin^2 of the angle between two lines is below sqrt(eps)."""
    parallel = sin2 < float(jnp.finfo(sin2.dtype).eps) ** 0.5
    return jnp.where(parallel, jax.lax.stop_gradient(x), x)


def box_ball(box: Box, at_a: Pose, ball: Sphere, at_b: Pose) -> Points:
    """Return the contact of a box with a ball."""
    normal, distance = signed_distance(at_a.local(at_b.place), box.half)
    return ball_at(at_b.place, distance, jnp.sum(at_a.axes * normal, axis=1), ball.radius)


def cylinder_ball(cylinder: Cylinder, at_a: Pose, ball: Sphere, at_b: Pose) -> Points:
    """Return the contact of a cylinder with a ball, from the distance in the plane through its axis."""
    x = at_a.local(at_b.place)
    outward, radial = direction(x[:2], jnp.eye(2, dtype=x.dtype)[0])
    half = jnp.stack([cylinder.radius, cylinder.half_length])
    (along, up), distance = signed_distance(jnp.stack([radial, x[2]]), half)
    normal = at_a.axes[:, 0] * (along * outward[0]) + at_a.axes[:, 1] * (along * outward[1]) + up * at_a.main
    return ball_at(at_b.place, distance, normal, ball.radius)


def signed_distance(x: Array, half: Array) -> tuple[Array, Array]:
    """Return the outward normal (d,) and the distance () of a point from a box; negative inside.

    Inside, the nearest face determines the normal.

    Args:
        x: the point (d,) in the frame of the box, in m.
        half: half of the edge lengths (d,) in m.
    """
    away = x - clamped(x, half)
    outward: Any = jnp.where(x < 0.0, -1.0, 1.0)
    depths = outward * x - half
    face = (jnp.arange(x.shape[0]) == jnp.argmax(depths)).astype(x.dtype)
    normal, distance = direction(away, outward * face)
    return normal, jnp.where(jnp.max(depths) > 0.0, distance, jnp.sum(face * depths))


def clamped(x: Any, most: Any) -> Any:
    """Return x limited to [-most, most]; unlike `clip`, with a one-sided derivative at the limits."""
    return jnp.where(x > most, most, jnp.where(x < -most, -most, x))
