"""Contact points of two shapes, and the distances of points, balls and planes that all pairs build on.

The witness points x_a and x_b of a contact are points of the two surfaces with parallel tangent planes. With
the unit normal n from a to b,

    gap = n . (x_b - x_a),      place = (x_a + x_b) / 2,      x_b - x_a = gap n.

The witness points move over their shapes, but only along the tangent planes. Therefore the rate of the gap is
n . (v_b - v_a), with the velocities of the material points of both bodies at `place`. The distance is
stationary, so its derivative is the same with the witness points fixed.

All functions are unbatched and hold for the plane (d = 2) and for space (d = 3). Shapes a and b are given
with their frames in the world.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array


class Points(NamedTuple):
    """Contact points of two shapes.

    Attributes:
        gap: (k,) in m; negative: penetration.
        place: midpoints of the witness points (k, d) in the world, in m.
        normal: unit normals (k, d) from a to b.
    """

    gap: Array
    place: Array
    normal: Array

    def flipped(self) -> Points:
        """Return the contact points of the same shapes with a and b exchanged."""
        return Points(self.gap, self.place, -self.normal)


def direction(x: Array, instead: Array) -> tuple[Array, Array]:
    """Return the unit vector along x (d,) and the length of x; for x = 0, the unit vector `instead`.

    The derivative at x = 0 is the derivative with the direction fixed.
    """
    square = jnp.sum(x * x)
    vanishes = square < float(jnp.finfo(x.dtype).tiny)
    safe: Any = jnp.where(vanishes, instead, x)
    unit = safe / jnp.sqrt(jnp.sum(safe * safe))
    return unit, jnp.sum(unit * x)


def balls(a: Array, radius_a: Any, b: Array, radius_b: Any, instead: Array) -> Points:
    """Return the contact of two balls: discs in the plane, spheres in space.

    Args:
        a: the center (d,) in m.
        radius_a: the radius in m.
        b: the center (d,) in m.
        radius_b: the radius in m.
        instead: the unit normal (d,) of balls with the same center.
    """
    normal, distance = direction(b - a, instead)
    place = 0.5 * (a + radius_a * normal + b - radius_b * normal)
    return Points((distance - radius_a - radius_b)[None], place[None], normal[None])


def ball_at(center: Array, distance: Any, normal: Array, radius: Any) -> Points:
    """Return the contact of a ball whose center has a signed distance from a surface with this normal."""
    place = center - 0.5 * (distance + radius) * normal
    return Points((distance - radius)[None], place[None], normal[None])


def joined(*points: Points) -> Points:
    """Return several sets of contact points as one set."""
    return Points(*(jnp.concatenate(part) for part in zip(*points, strict=True)))


def above_plane(point: Array, normal: Array, centers: Array, radius: Any) -> Points:
    """Return the contacts of balls with a half space: one per ball.

    Args:
        point: a point of the plane (d,) in m.
        normal: the outward unit normal (d,).
        centers: the centers of the balls (k, d) in m.
        radius: the radius of all balls in m; zero for points.
    """
    height = jnp.sum((centers - point) * normal, axis=-1)
    place = centers - (0.5 * (height + radius))[:, None] * normal
    return Points(height - radius, place, jnp.broadcast_to(normal, centers.shape))


def tangents(normal: Array) -> tuple[Array, ...]:
    """Return unit tangents that complete a unit normal (d,) to right-handed axes.

    In the plane, the tangent is the normal turned by -90 degrees: +x for the normal +y. For the normal +z,
    the tangents are +x and +y. In space, they jump where n_z passes -3/4. A step with contact needs the same
    tangents at its start and end, so no jump may be at n_z = 0: rounding moves the normals of walls to both
    sides.

    References:
        T. Duff et al., "Building an Orthonormal Basis, Revisited", Journal of Computer Graphics Techniques 6
        (2017).
    """
    if normal.shape == (2,):
        return (jnp.stack([normal[1], -normal[0]]),)
    x, y, z = normal
    sign: Any = jnp.where(z < -0.75, -1.0, 1.0).astype(normal.dtype)
    a = -1.0 / (sign + z)
    b = x * y * a
    return (
        jnp.stack([1.0 + sign * x * x * a, sign * b, -sign * x]),
        jnp.stack([b, sign + y * y * a, -y]),
    )
