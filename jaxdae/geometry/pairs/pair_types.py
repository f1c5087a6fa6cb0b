"""The table of the pairs of shapes that can touch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxdae.geometry import shapes as sh
from jaxdae.geometry.pairs import ground_pairs as ground
from jaxdae.geometry.pairs import polygon_pairs as polygon
from jaxdae.geometry.pairs import round_pairs as rounded
from jaxdae.geometry.pairs.box_box import box_box
from jaxdae.geometry.pairs.box_pairs import box_capsule
from jaxdae.geometry.pairs.contact_points import Points
from jaxdae.geometry.terrain import Terrain

Touch = Callable[[Any, sh.Pose, Any, sh.Pose], Points]
"""(shape a, frame of a, shape b, frame of b) -> contact points, frames in the world."""


class PairType(NamedTuple):
    """A pair of shape types.

    Attributes:
        touch: the function that returns the contact points.
        labels: (shape a, shape b) -> the names of the contact points; empty text for a single contact.
    """

    touch: Touch
    labels: Callable[[Any, Any], tuple[str, ...]]


def _named(*names: str) -> Callable[[Any, Any], tuple[str, ...]]:
    return lambda a, b: names


def _vertices(a: Any, b: Any) -> tuple[str, ...]:
    return tuple(f"vertex{k}" for k in range(b.vertices.shape[-2]))


_SINGLE, _ENDS = _named(""), _named("end0", "end1")
_OF_SIDES = tuple(f"{end}{k}" for k in range(4) for end in ("start", "end"))
_OF_BOXES = _named(*_OF_SIDES, *(f"corner{k}" for k in range(4)), "cross")
_CORNERS = _named(*(f"corner{k}" for k in range(8)))

PAIRS: dict[tuple[type, type], PairType] = {
    (sh.Plane, sh.Sphere): PairType(ground.plane_ball, _SINGLE),
    (sh.Plane, sh.Capsule): PairType(ground.plane_capsule, _ENDS),
    (sh.Plane, sh.Box): PairType(ground.plane_box, _CORNERS),
    (sh.Plane, sh.Cylinder): PairType(ground.plane_cylinder, _named("low0", "low1", "rim0", "rim1", "rim2")),
    (sh.Plane, sh.Ellipsoid): PairType(ground.plane_ellipsoid, _SINGLE),
    (sh.Plane, sh.ConvexMesh): PairType(ground.plane_vertices, _vertices),
    (Terrain, sh.Sphere): PairType(ground.terrain_ball, _SINGLE),
    (Terrain, sh.Capsule): PairType(ground.terrain_capsule, _ENDS),
    (Terrain, sh.Box): PairType(ground.terrain_box, _CORNERS),
    (Terrain, sh.ConvexMesh): PairType(ground.terrain_vertices, _vertices),
    (sh.Sphere, sh.Sphere): PairType(rounded.ball_ball, _SINGLE),
    (sh.Capsule, sh.Sphere): PairType(rounded.capsule_ball, _SINGLE),
    (sh.Capsule, sh.Capsule): PairType(rounded.capsule_capsule, _named("end0", "end1", "cross")),
    (sh.Box, sh.Sphere): PairType(rounded.box_ball, _SINGLE),
    (sh.Box, sh.Capsule): PairType(box_capsule, _named("end0", "end1", "cross")),
    (sh.Box, sh.Box): PairType(box_box, _OF_BOXES),
    (sh.Cylinder, sh.Sphere): PairType(rounded.cylinder_ball, _SINGLE),
    (sh.Line, sh.Disc): PairType(ground.plane_ball, _SINGLE),
    (sh.Line, sh.PlanarCapsule): PairType(ground.plane_capsule, _ENDS),
    (sh.Line, sh.Polygon): PairType(ground.plane_vertices, _vertices),
    (sh.Disc, sh.Disc): PairType(rounded.ball_ball, _SINGLE),
    (sh.PlanarCapsule, sh.Disc): PairType(rounded.capsule_ball, _SINGLE),
    (sh.Polygon, sh.Disc): PairType(polygon.polygon_ball, _SINGLE),
    (sh.PlanarCapsule, sh.PlanarCapsule): PairType(polygon.convex_convex, _ENDS),
    (sh.Polygon, sh.PlanarCapsule): PairType(polygon.convex_convex, _ENDS),
    (sh.Polygon, sh.Polygon): PairType(polygon.convex_convex, _ENDS),
}
"""The supported pairs, each in one order; `pair_type` also returns the other order."""


def shape_name(shape: Any) -> str:
    """Return the name of a shape type in messages and keys of groups, such as "box"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", _kind(shape).__name__).lower()


def _kind(shape: Any) -> type:
    return Terrain if isinstance(shape, Terrain) else type(shape)


def pair_type(a: Any, b: Any) -> PairType | None:
    """Return the type of a pair of shapes in the given order, or None if it is not supported."""
    if found := PAIRS.get((_kind(a), _kind(b))):
        return found
    if found := PAIRS.get((_kind(b), _kind(a))):
        touch, labels = found

        def exchanged(a: Any, at_a: sh.Pose, b: Any, at_b: sh.Pose) -> Points:
            return touch(b, at_b, a, at_a).flipped()

        return PairType(exchanged, lambda a, b: labels(b, a))
    return None


def supported(dimension: int) -> str:
    """Return the supported pairs of shapes of the plane (2) or of space (3), as text."""
    return ", ".join(f"{a.__name__} and {b.__name__}" for a, b in PAIRS if b.dimension == dimension)
