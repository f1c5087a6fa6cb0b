"""Contacts of two boxes, by separating axes and clipping.

Convex polyhedra are apart along the normal of a face or along the cross product of two edges. For boxes,
these are 15 axes. With the axes r_k of a, s_j of b, the half lengths h and the offset d of the centers, the
separation along a unit vector n is

    |n . d| - sum_k h_ak |n . r_k| - sum_j h_bj |n . s_j|,

negative if the boxes overlap along n. The *reference* is the face with the largest separation, and the
*incident* face is the face of the other box with the most opposite normal. The contacts are

    start0, end0, ...   the ends of the part of each side of the incident face above the reference face,
    corner0, ...        the corners of the reference face, against the incident face,
    cross               the edges whose cross product separates the boxes most.

The first 12 contain all corners of the polygon in which the projections of both faces overlap. Contacts that
coincide share their force. The gap of a point is its height over the face. Beyond the borders, the gap is the
distance from the face, or for a point below the plane the distance from the borders. The face is larger by
1e-4 of the smallest half length.

If the edges separate the boxes by D > 0 more than the faces, the gaps of the first 12 grow by D, because the
boxes touch in the cross. Otherwise the cross is open: its gap is the separation of the faces, at least zero,
plus 1e-4 of the smallest half length. D is reduced by this length, which favors faces where both separations
are equal, as for boxes that lie on each other.

A side that is parallel to a border of the reference face has no unique end. Below a sine of eps^(1/4),
the derivative holds the end fixed (`jaxdae.geometry.pairs.round_pairs.held`).

The smallest gap of boxes that are apart is not larger than their distance, and equal to it where a corner
faces a face or an edge crosses an edge. The rate of the gap is the normal velocity for these features.

References:
    S. Gottschalk, "Separating Axis Theorem", Technical Report TR96-024, UNC Chapel Hill (1996).
    E. Catto, "Contact Manifolds", Game Developers Conference (2007).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.geometry.pairs.contact_points import Points, direction, joined
from jaxdae.geometry.pairs.round_pairs import held, nearest
from jaxdae.geometry.shapes import Box, Pose

_BIAS = 1e-4
_PARALLEL = 1e-6
"""The largest sin^2 of the angle of two edges that count as parallel."""
_TURN = np.asarray([(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
"""The signs of the corners of a face (4, 2), in the order of its sides."""


class _Face(NamedTuple):
    """A face of a box in the world: center (3,), tangents (2, 3), normal (3,), half lengths (2,)."""

    center: Array
    tangents: Array
    normal: Array
    half: Array

    def corners(self) -> Array:
        """Return the corners (4, 3)."""
        along = jnp.asarray(_TURN, self.half.dtype) * self.half
        return self.center + jnp.sum(along[:, :, None] * self.tangents, axis=1)


def box_box(a: Box, at_a: Pose, b: Box, at_b: Pose) -> Points:
    """Return the 13 contacts of two boxes."""
    offset = at_b.place - at_a.place
    cosines = jnp.sum(at_a.axes[:, :, None] * at_b.axes[:, None, :], axis=0)
    along_a, along_b = (_components(at, offset) for at in (at_a, at_b))
    apart_a = jnp.abs(along_a) - a.half - jnp.sum(jnp.abs(cosines) * b.half, axis=1)
    apart_b = jnp.abs(along_b) - b.half - jnp.sum(jnp.abs(cosines) * a.half[:, None], axis=0)
    bias = _BIAS * jnp.minimum(jnp.min(a.half), jnp.min(b.half))
    of_a = jnp.max(apart_a) + bias >= jnp.max(apart_b)
    apart = jnp.where(of_a, jnp.max(apart_a), jnp.max(apart_b))

    on_a = _face(a, at_a, jnp.argmax(apart_a), along_a)
    on_b = _face(b, at_b, jnp.argmax(apart_b), -along_b)
    reference = jax.tree.map(lambda x, y: jnp.where(of_a, x, y), on_a, on_b)
    other = jax.tree.map(lambda x, y: jnp.where(of_a, x, y), _facing(b, at_b, on_a), _facing(a, at_a, on_b))
    sides = _above(reference, _clipped(other, reference), bias)
    corners = _above(other, reference.corners(), bias).flipped()
    found = joined(sides, corners)
    normal = jnp.where(of_a, found.normal, -found.normal)

    cross, between = _cross(a, at_a, b, at_b, jnp.where(of_a, reference.normal, -reference.normal))
    more = between - apart - bias
    gap = jnp.where(more > 0.0, between, jnp.maximum(apart, 0.0) + bias)
    return joined(
        Points(found.gap + jnp.maximum(more, 0.0), found.place, normal),
        Points(gap[None], cross.place, cross.normal),
    )


def _face(box: Box, at: Pose, axis: Any, along: Array) -> _Face:
    """Return the face whose normal is an axis of the box, in the sense of `along` (3,)."""
    order = (jnp.arange(3) + axis + 1) % 3
    axes, half = at.axes[:, order], box.half[order]
    normal = jnp.where(along[axis] < 0.0, -1.0, 1.0) * axes[:, 2]
    return _Face(at.place + half[2] * normal, axes[:, :2].T, normal, half[:2])


def _facing(box: Box, at: Pose, face: _Face) -> _Face:
    """Return the face of a box whose normal is most opposite to the normal of a face."""
    along = -_components(at, face.normal)
    return _face(box, at, jnp.argmax(jnp.abs(along)), along)


def _clipped(face: _Face, reference: _Face) -> Array:
    """Return the ends (8, 3) of the parts of the sides of a face above the reference.

    A side that is not above the reference has both ends at one of its points near the reference.
    """
    start = face.corners()
    side = start[np.asarray([1, 2, 3, 0])] - start
    x = jnp.sum((start - reference.center)[:, None, :] * reference.tangents, axis=2)
    rate = jnp.sum(side[:, None, :] * reference.tangents, axis=2)
    tiny = float(jnp.finfo(rate.dtype).eps) * jnp.max(face.half)
    rate = jnp.where(jnp.abs(rate) < tiny, tiny, rate)
    sin2 = rate * rate / jnp.sum(side * side, axis=1)[:, None]
    low, high = (held((sign * reference.half - x) / rate, sin2) for sign in (-1.0, 1.0))
    enters = jnp.clip(jnp.max(jnp.minimum(low, high), axis=1), 0.0, 1.0)
    leaves = jnp.clip(jnp.min(jnp.maximum(low, high), axis=1), 0.0, 1.0)
    middle = (enters + leaves) / 2.0
    missed = enters > leaves
    first, last = (jnp.where(missed, middle, t)[:, None] for t in (enters, leaves))
    return jnp.stack([start + first * side, start + last * side], axis=1).reshape(8, 3)


def _above(face: _Face, points: Array, margin: Any) -> Points:
    """Return the contacts of points (k, 3) with a face, with normals from the face to the points.

    The face is larger by a margin, so that points on its border are above it.
    """
    half = face.half + margin

    def contact(x: Array) -> tuple[Array, Array, Array]:
        offset = x - face.center
        height, along = jnp.sum(offset * face.normal), jnp.sum(face.tangents * offset, axis=1)
        outside = along - jnp.clip(along, -half, half)
        beyond = jnp.sum(outside[:, None] * face.tangents, axis=0)
        is_outside = jnp.any(jnp.abs(along) > half)
        unit, distance = direction(beyond + jnp.maximum(height, 0.0) * face.normal, face.normal)
        normal = jnp.where(is_outside & (height > 0.0), unit, face.normal)
        gap = jnp.where(is_outside, distance, height)
        return gap, x - 0.5 * (beyond + height * face.normal), normal

    return Points(*jax.vmap(contact)(points))


def _cross(a: Box, at_a: Pose, b: Box, at_b: Pose, instead: Array) -> tuple[Points, Array]:
    """Return the contact of the edges with the largest separation, and this separation.

    The separation of parallel edges is -inf, and their normal is `instead`.
    """
    offset = at_b.place - at_a.place

    def axis(u: Array, v: Array) -> tuple[Array, Array]:
        """Return the common normal of two edges, from a to b, and its separation."""
        crossed = jnp.cross(u, v)
        parallel = jnp.sum(crossed * crossed) < _PARALLEL
        normal, _ = direction(jnp.where(parallel, instead, crossed), instead)
        normal = jnp.where(jnp.sum(normal * offset) < 0.0, -normal, normal)
        return normal, jnp.where(parallel, -jnp.inf, _separation(a, at_a, b, at_b, normal))

    normals, separations = jax.vmap(lambda u: jax.vmap(lambda v: axis(u, v))(at_b.axes.T))(at_a.axes.T)
    best = jnp.argmax(separations)
    i, j, normal = best // 3, best % 3, normals.reshape(9, 3)[best]
    edge_a, edge_b = _edge(a, at_a, i, normal), _edge(b, at_b, j, -normal)
    along_a, along_b = at_a.axes[:, i], at_b.axes[:, j]
    s, t = nearest(edge_b - edge_a, along_a, a.half[i], along_b, b.half[j])
    place = 0.5 * (edge_a + s * along_a + edge_b + t * along_b)
    separation = separations.reshape(9)[best]
    return Points(separation[None], place[None], normal[None]), separation


def _separation(a: Box, at_a: Pose, b: Box, at_b: Pose, normal: Array) -> Array:
    """Return the separation of two boxes along a unit vector from a to b."""
    sizes = (jnp.sum(box.half * jnp.abs(_components(at, normal))) for box, at in ((a, at_a), (b, at_b)))
    return jnp.sum(normal * (at_b.place - at_a.place)) - sum(sizes)


def _edge(box: Box, at: Pose, axis: Any, ahead: Array) -> Array:
    """Return the center (3,) of the edge along an axis that is farthest in a direction."""
    sign = jnp.where(_components(at, ahead) < 0.0, -1.0, 1.0)
    return at.point(jnp.where(jnp.arange(3) == axis, 0.0, sign * box.half))


def _components(at: Pose, vector: Array) -> Array:
    """Return the components (3,) of a vector in the world along the axes of a frame."""
    return jnp.sum(at.axes * vector[:, None], axis=0)
