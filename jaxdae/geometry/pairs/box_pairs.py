"""Contacts of boxes with capsules: closed forms.

Let x(t) = c + t u be the axis of the capsule in the frame of the box. The distance f(t) of x(t) from the box
is convex and, outside the box, continuously differentiable. Its minimum lies at an end of the axis, or where
x(t) is nearest to the line of one of the 12 edges or to one of the 8 corners. The smallest of these 22 values
is the distance of both shapes. The three contacts are

    cross        the point of the axis with the smallest distance,
    end0, end1   the ends of the part of the axis above the nearest face: an end of the axis, or the point
                 nearest to the edge of the face that the axis crosses. They support capsules that lie on a
                 face, and boxes that lie on a capsule.

Every contact is a stationary distance of two features that are fixed in their bodies. Axes that are parallel
to an edge have no unique nearest point, and its derivative is infinite there. Therefore sin^2 of their angle
is replaced by sin^2 + eps, and below sqrt(eps) the derivative holds the point fixed, as for two capsules
(`jaxdae.geometry.pairs.round_pairs`). If the axis itself is inside the box, gaps are negative, but not the
depth of both shapes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.geometry.pairs.contact_points import Points, ball_at, direction, joined
from jaxdae.geometry.pairs.round_pairs import clamped, held, nearest, signed_distance
from jaxdae.geometry.shapes import BOX_SIGNS, Box, Capsule, Pose

_EDGES = np.concatenate([BOX_SIGNS[BOX_SIGNS[:, k] > 0.0] * (np.arange(3) != k) for k in range(3)])
"""The centers of the edges (12, 3) in units of the half lengths, first the edges along x."""


def box_capsule(box: Box, at_a: Pose, capsule: Capsule, at_b: Pose) -> Points:
    """Return the three contacts of a box with a capsule."""
    half, most, radius = box.half, capsule.half_length, capsule.radius
    center, along = at_a.local(at_b.place), jnp.sum(at_a.axes * at_b.main[:, None], axis=0)

    def ball(t: Any) -> tuple[Points, Array]:
        """Return the contact of the ball at x(t), and its normal."""
        x = center + t * along
        normal, distance = signed_distance(x, half)
        return ball_at(x, distance, normal, radius), normal

    candidates = _candidates(center, along, half, most)
    distances = jax.vmap(lambda t: signed_distance(center + t * along, half)[1])(candidates)
    lowest, normal = ball(candidates[jnp.argmin(distances)])
    inside = jnp.min(distances) < 0.0
    ends = (_end(center, along, half, most, radius, normal, inside, ball, sense) for sense in (-1.0, 1.0))
    points = joined(*ends, lowest)
    turned = jnp.sum(at_a.axes * points.normal[:, None, :], axis=-1)
    return Points(points.gap, at_a.point(points.place), turned)


def _candidates(center: Array, along: Array, half: Array, most: Any) -> Array:
    """Return the parameters t (22,) among which the nearest point of the axis is."""
    eps = float(jnp.finfo(half.dtype).eps)
    edges, corners = (jnp.asarray(signs, half.dtype) * half for signs in (_EDGES, BOX_SIGNS))
    across = jnp.asarray(_EDGES != 0.0, half.dtype) * along
    sin2 = jnp.sum(across * across, axis=1) + eps
    of_edges = held(jnp.sum(across * (edges - center), axis=1) / sin2, sin2)
    of_corners = jnp.sum(along * (corners - center), axis=1)
    inner = clamped(jnp.concatenate([of_edges, of_corners]), most)
    return jnp.concatenate([inner, jnp.stack([-most, most])])


def _end(
    center: Array,
    along: Array,
    half: Array,
    most: Any,
    radius: Any,
    normal: Array,
    inside: Any,
    ball: Any,
    sense: float,
) -> Points:
    """Return the contact at one end of the part of the axis above a face: -1 or +1 along the axis."""
    size = jnp.abs(normal)
    face = jnp.arange(3) == jnp.argmax(size)
    # The axis leaves the face in direction `ahead` through the first of the planes x_j = sign(ahead_j) h_j.
    ahead = sense * along
    outward = jnp.where(ahead < 0.0, -1.0, 1.0)
    moves = ~face & (jnp.abs(along) > float(jnp.finfo(half.dtype).eps))
    times = jnp.where(moves, (outward * half - center) / jnp.where(moves, ahead, 1.0), jnp.inf)
    leaving = jnp.arange(3) == jnp.argmin(times)
    on_edge = jnp.min(times) < most
    up: Any = jnp.where(normal < 0.0, -1.0, 1.0)
    out = jnp.where(face, up, jnp.where(leaving, outward, 0.0))
    edge: Any = out * half
    side = (~face & ~leaving).astype(half.dtype)
    s, t = nearest(center - edge, side, jnp.sum(side * half), along, most)
    x = center + t * along
    away = x - edge - s * side
    unit, distance = direction(away, normal)
    sign: Any = jnp.where(inside & (jnp.sum(away * out) < 0.0), -1.0, 1.0)
    crossed = ball_at(x, sign * distance, sign * unit, radius)
    at_end, _ = ball(sense * most)
    return jax.tree.map(lambda x, y: jnp.where(on_edge, x, y), crossed, at_end)
