"""Contacts of convex polygons and capsules in the plane, by separating axes.

A capsule is a rectangle of zero width with a radius, and a polygon has the radius zero. Let an edge have the
vertices p and p', the unit tangent u, and the outward normal n. The separation of the edge is the smallest
n . (x - p) over the vertices x of the other shape. The edge with the largest separation of both shapes is the
*reference*, and the edge of the other shape with the most opposite normal is the *incident* edge. For shapes
that overlap, the reference has the smallest penetration.

The two contacts are the ends of the interval in which both edges overlap along u. Each end is a vertex of one
edge and the nearest point of the other edge, so the distance is stationary, and both contacts share one
normal if the edges are parallel. The smaller gap is the distance of shapes that are apart.

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

from jaxdae.geometry.pairs.contact_points import Points, ball_at, direction, joined
from jaxdae.geometry.pairs.ground_pairs import ends
from jaxdae.geometry.shapes import Disc, PlanarCapsule, Polygon, Pose


class _Edges(NamedTuple):
    """Edges of a polygon: start, tangent and outward normal (n, 2), length (n,)."""

    start: Array
    tangent: Array
    normal: Array
    length: Array


def _edges(vertices: Array) -> _Edges:
    """Return the edges of a counterclockwise polygon (n, 2)."""
    after = vertices[np.roll(np.arange(vertices.shape[0]), -1)]
    length = jnp.sqrt(jnp.sum((after - vertices) ** 2, axis=1))
    tangent = (after - vertices) / length[:, None]
    return _Edges(vertices, tangent, jnp.stack([tangent[:, 1], -tangent[:, 0]], axis=1), length)


def _outline(shape: Any, at: Pose) -> tuple[_Edges, Any]:
    """Return the edges of a shape in the world, and its radius."""
    if isinstance(shape, Polygon):
        return _edges(at.point(shape.vertices)), 0.0
    low, high = ends(shape, at)
    right, up = at.axes[:, 0], at.main
    length, none = 2.0 * shape.half_length, jnp.zeros_like(shape.half_length)
    start, tangent = jnp.stack([low, high, high, low]), jnp.stack([up, -right, -up, right])
    normal = jnp.stack([right, up, -right, -up])
    return _Edges(start, tangent, normal, jnp.stack([length, none, length, none])), shape.radius


def polygon_ball(polygon: Polygon, at_a: Pose, ball: Disc, at_b: Pose) -> Points:
    """Return the contact of a polygon with a disc; inside, with the normal of the nearest edge."""
    x = at_b.place
    edges = _edges(at_a.point(polygon.vertices))
    normals, distances = jax.vmap(lambda *edge: _from_edge(x, _Edges(*edge), apart=True))(*edges)
    heights = jnp.sum(edges.normal * (x - edges.start), axis=1)
    inside = jnp.max(heights) <= 0.0
    # Outside, the nearest edge in front of the point; inside, the edge with the smallest depth.
    away = jnp.where(heights > 0.0, distances, jnp.inf)
    edge: Any = jnp.where(inside, jnp.argmax(heights), jnp.argmin(away))
    return ball_at(x, distances[edge], normals[edge], ball.radius)


def convex_convex(a: Polygon | PlanarCapsule, at_a: Pose, b: Polygon | PlanarCapsule, at_b: Pose) -> Points:
    """Return the two contacts of polygons or capsules in the plane."""
    (edges_a, radius_a), (edges_b, radius_b) = _outline(a, at_a), _outline(b, at_b)
    apart_a, apart_b = _separations(edges_a, edges_b.start), _separations(edges_b, edges_a.start)
    first = jnp.max(apart_a) >= jnp.max(apart_b)
    apart = jnp.maximum(jnp.max(apart_a), jnp.max(apart_b)) > 0.0
    # The edges of a and b that face each other.
    on_a = jnp.where(first, jnp.argmax(apart_a), _facing(edges_a, edges_b.normal[jnp.argmax(apart_b)]))
    on_b = jnp.where(first, _facing(edges_b, edges_a.normal[jnp.argmax(apart_a)]), jnp.argmax(apart_b))
    edge_a, edge_b = (_Edges(*(part[k] for part in edges)) for edges, k in ((edges_a, on_a), (edges_b, on_b)))
    sides = (edge_a, radius_a), (edge_b, radius_b)
    return joined(*(_end(*sides, apart, at_start) for at_start in (True, False)))


def _separations(edges: _Edges, vertices: Array) -> Array:
    """Return the smallest height (n,) of the vertices of another polygon above each edge."""
    offsets = vertices - edges.start[:, None]
    return jnp.min(jnp.sum(edges.normal[:, None] * offsets, axis=2), axis=1)


def _facing(edges: _Edges, normal: Array) -> Array:
    """Return the index of the edge whose normal is most opposite to a normal."""
    return jnp.argmin(jnp.sum(edges.normal * normal, axis=1))


def _end(a: tuple[_Edges, Any], b: tuple[_Edges, Any], apart: Any, at_start: bool) -> Points:
    """Return the contact at the start or at the end of the overlap along the tangent of a."""
    (edge_a, radius_a), (edge_b, radius_b) = a, b
    # The tangents are opposite: the overlap starts at the start of a, or at the end of b.
    starts = edge_a.start, edge_b.start
    stops = tuple(edge.start + edge.length * edge.tangent for edge in (edge_a, edge_b))
    vertex_a, vertex_b = (starts[0], stops[1]) if at_start else (stops[0], starts[1])
    along = jnp.sum(edge_a.tangent * (vertex_b - vertex_a))
    of_b = along > 0.0 if at_start else along < 0.0
    normal_b, distance_b = _from_edge(vertex_b, edge_a, apart)
    normal_a, distance_a = _from_edge(vertex_a, edge_b, apart)
    normal = jnp.where(of_b, normal_b, -normal_a)
    distance = jnp.where(of_b, distance_b, distance_a)
    x_a = jnp.where(of_b, vertex_b - distance_b * normal_b, vertex_a)
    x_b = jnp.where(of_b, vertex_b, vertex_a - distance_a * normal_a)
    place = 0.5 * (x_a + radius_a * normal + x_b - radius_b * normal)
    return Points((distance - radius_a - radius_b)[None], place[None], normal[None])


def _from_edge(x: Array, edge: _Edges, apart: Any) -> tuple[Array, Array]:
    """Return the normal (2,) and the distance () of a point from an edge; negative behind the edge.

    Beyond the ends of the edge, the nearest end determines the distance if the shapes are apart, and the
    height above the edge if they overlap.
    """
    offset = x - edge.start
    along, height = jnp.sum(edge.tangent * offset), jnp.sum(edge.normal * offset)
    nearest = jnp.where(along < 0.0, 0.0, jnp.where(along > edge.length, edge.length, along))
    at_end = (nearest != along) & apart
    from_end = jnp.where(at_end, offset - nearest * edge.tangent, edge.normal)
    normal, distance = direction(from_end, edge.normal)
    return jnp.where(at_end, normal, edge.normal), jnp.where(at_end, distance, height)
