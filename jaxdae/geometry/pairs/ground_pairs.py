"""Contacts of shapes with the ground: a half space (a plane in space, a line in the plane) or a terrain.

The contacts of polyhedra are all their corners, and the contacts of a capsule are the half spheres at its
ends. The deepest point of an ellipsoid with semi-axes r and rotation R is c - A A^T n / |A^T n| with
A = R diag(r).

*Cylinder.* With the axis u, the lowest point of the rim of an end at c is c - r p / |p|, p = n - (n . u) u.
On a standing cylinder, p = 0, and every point of the rim is lowest. There the direction is not unique, and
its derivative is infinite. Therefore p / |p| is replaced by p / sqrt(|p|^2 + eps): the point moves to the
center of the end as the cylinder stands up. The gap is too large by at most 0.3 r sqrt(eps), and exact to
round-off from an inclination of 0.1 rad. Three points of the rim of the nearer end, which are fixed in the
body, support a standing cylinder. At the change of the nearer end, the cylinder lies, and the gaps of these
points are continuous.

*Terrain* z = h(x, y). A corner is a ball without radius. The gap is the clearance of
`jaxdae.geometry.wheel_contact`. On the ground it is the distance; at a distance g from a terrain with a
radius of curvature R, it has an error of the order g^2 / R, and the normal an error of the order g / R. The
gap has the derivative of the distance, so the normal row is the rate of the gap. The edges and faces
of a shape do not touch: a box does not rest on a ridge between its corners.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.geometry.pairs.contact_points import Points, above_plane
from jaxdae.geometry.shapes import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Disc,
    Ellipsoid,
    PlanarCapsule,
    Polygon,
    Pose,
    Sphere,
)
from jaxdae.geometry.spatial_frames import Vector
from jaxdae.geometry.terrain import Terrain
from jaxdae.geometry.wheel_contact import ball_contact


def ends(capsule: Any, at: Pose) -> Array:
    """Return the centers (2, d) of both ends of a capsule or a cylinder."""
    offset = capsule.half_length * at.main
    return jnp.stack([at.place - offset, at.place + offset])


def plane_ball(plane: Any, at_a: Pose, ball: Sphere | Disc, at_b: Pose) -> Points:
    """Return the contact of a plane with a ball."""
    return above_plane(at_a.place, at_a.main, at_b.place[None], ball.radius)


def plane_capsule(plane: Any, at_a: Pose, capsule: Capsule | PlanarCapsule, at_b: Pose) -> Points:
    """Return the contacts of a plane with both ends of a capsule."""
    return above_plane(at_a.place, at_a.main, ends(capsule, at_b), capsule.radius)


def plane_box(plane: Any, at_a: Pose, box: Box, at_b: Pose) -> Points:
    """Return the contacts of a plane with the eight corners of a box."""
    return above_plane(at_a.place, at_a.main, at_b.point(box.corners()), 0.0)


def plane_vertices(plane: Any, at_a: Pose, shape: Polygon | ConvexMesh, at_b: Pose) -> Points:
    """Return the contacts of a plane with the vertices of a polygon or a mesh."""
    return above_plane(at_a.place, at_a.main, at_b.point(shape.vertices), 0.0)


def plane_ellipsoid(plane: Any, at_a: Pose, ellipsoid: Ellipsoid, at_b: Pose) -> Points:
    """Return the contact of a plane with an ellipsoid."""
    stretched = at_b.axes * ellipsoid.radii
    along = jnp.sum(stretched * at_a.main[:, None], axis=0)
    point = at_b.place - jnp.sum(stretched * along, axis=1) / jnp.sqrt(jnp.sum(along * along))
    return above_plane(at_a.place, at_a.main, point[None], 0.0)


RIM = 2.0 * np.pi / 3.0 * np.arange(3)
"""The angles of the fixed points on the rim of a cylinder, in rad."""


def plane_cylinder(plane: Any, at_a: Pose, cylinder: Cylinder, at_b: Pose) -> Points:
    """Return the contacts of a plane with the lowest points of both rims and three fixed points of a rim."""
    normal, axis, both = at_a.main, at_b.main, ends(cylinder, at_b)
    upright = jnp.sum(normal * axis)
    leaning = normal - upright * axis
    lowest = leaning / jnp.sqrt(jnp.sum(leaning * leaning) + float(jnp.finfo(normal.dtype).eps))
    cos, sin = (jnp.asarray(x, normal.dtype)[:, None] for x in (np.cos(RIM), np.sin(RIM)))
    nearer: Any = jnp.where(upright < 0.0, both[1], both[0])
    rim = nearer + cylinder.radius * (cos * at_b.axes[:, 0] + sin * at_b.axes[:, 1])
    return above_plane(at_a.place, normal, jnp.concatenate([both - cylinder.radius * lowest, rim]), 0.0)


def terrain_ball(terrain: Terrain, at_a: Pose, ball: Sphere, at_b: Pose) -> Points:
    """Return the contact of a terrain with a ball."""
    return _above_terrain(terrain, at_a, at_b.place[None], ball.radius)


def terrain_capsule(terrain: Terrain, at_a: Pose, capsule: Capsule, at_b: Pose) -> Points:
    """Return the contacts of a terrain with both ends of a capsule."""
    return _above_terrain(terrain, at_a, ends(capsule, at_b), capsule.radius)


def terrain_box(terrain: Terrain, at_a: Pose, box: Box, at_b: Pose) -> Points:
    """Return the contacts of a terrain with the eight corners of a box."""
    return _above_terrain(terrain, at_a, at_b.point(box.corners()), jnp.zeros_like(at_b.place[0]))


def terrain_vertices(terrain: Terrain, at_a: Pose, mesh: ConvexMesh, at_b: Pose) -> Points:
    """Return the contacts of a terrain with the vertices of a mesh."""
    return _above_terrain(terrain, at_a, at_b.point(mesh.vertices), jnp.zeros_like(at_b.place[0]))


def _above_terrain(terrain: Terrain, at: Pose, centers: Array, radius: Any) -> Points:
    """Return the contacts of a terrain with balls with centers (k, 3) in the world."""

    def contact(center: Array) -> tuple[Array, Array, Array]:
        found = ball_contact(terrain, Vector(*center), radius)
        return found.clearance, found.place.array(), found.normal.array()

    gap, place, normal = jax.vmap(contact)(at.local(centers))
    normal = jnp.sum(at.axes * normal[:, None, :], axis=-1)
    return Points(gap, at.point(place) - 0.5 * gap[:, None] * normal, normal)
