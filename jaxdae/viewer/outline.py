"""The outline of a mechanism: the joints of each body in its frame, lines between bodies, and ground points.

The joints of a body determine its shape, with the points and the outline that a config gives. If a body has
no joint, or only a joint at its center of mass, its inertia determines its shape. Plots and animations of
runs draw these lines; the viewer turns them into solids.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxdae.mechanisms.describe.kinds import GROUND

_PIN = 0.12  # half the length of a pin, relative to the size of a body
_SAME = 1e-9  # relative to the size of a body: closer joints are drawn as one


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The elements of a mechanism, from a config or from a built mechanism.

    Attributes:
        dimension: 2 in the plane, 3 in space.
        bodies: bodies with `name`, `mass` and `inertia`; from a config also with `points` to draw, and with
            the corners `outline` of the drawn polygon.
        poses: start poses of the bodies (3,) or (7,), for points given in the world; empty without such
            points.
        joints: joints with their type `kind` and the fields of the type.
        forces: forces with their type `kind` and the fields of the type.
    """

    dimension: int
    bodies: Sequence[Any]
    poses: Mapping[str, np.ndarray]
    joints: Sequence[Any]
    forces: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class Outline:
    """The drawn points and lines of a mechanism.

    Attributes:
        bodies: corners of each body (n, dimension) in its frame, m; in space, the vertices of its lines in
            `lines`.
        joints: joints and other points of each body (n, dimension) in its frame, m; its center if it has
            none.
        links: lines between bodies: (rod, spring or slide, body a, point a, body b, point b).
        ground_points: joints on the ground, m.
        slides: ground points with a sliding direction.
        lines: in space, the polylines of each body, each (k, 3) in its frame, m.
    """

    bodies: dict[str, np.ndarray]
    joints: dict[str, np.ndarray]
    links: list[tuple[str, str, np.ndarray, str, np.ndarray]]
    ground_points: list[np.ndarray]
    slides: list[tuple[np.ndarray, np.ndarray]]
    lines: dict[str, list[np.ndarray]]


def outline(mechanism: Drawn) -> Outline:
    """Return the outline of a mechanism, with points in the frames of its bodies."""
    poses, spatial = mechanism.poses, mechanism.dimension == 3
    center = np.zeros(mechanism.dimension)
    points: dict[str, list[np.ndarray]] = {
        body.name: [np.asarray(point, float) for point in getattr(body, "points", ())]
        for body in mechanism.bodies
    }
    given = {
        body.name: np.asarray(corners, float)
        for body in mechanism.bodies
        if (corners := getattr(body, "outline", None))
    }
    pins: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in points}
    links, ground_points, slides = [], [], []

    def local(body: str, world: Any, point: Any) -> np.ndarray:
        if point is not None or body == GROUND:
            return np.asarray(point if point is not None else world, float)
        return seen_from(poses[body], np.asarray(world, float))

    for element, link in (
        *((joint, "rod") for joint in mechanism.joints),
        *((force, "spring") for force in mechanism.forces),
    ):
        kind = element.kind
        fields: dict[str, Any] = kind.kinds()
        ends: dict[str, np.ndarray] = {}
        for world, point in kind.places():
            body = getattr(element, fields[point].body)
            ends[body] = local(body, getattr(element, world), getattr(element, point))
            (ground_points if body == GROUND else points[body]).append(ends[body])
        if spatial:
            for name, direction in _pins(element):
                if name == GROUND:
                    continue
                pins[name].append(
                    (
                        ends[name],
                        direction if element.at is None else seen_from(poses[name], direction, place=False),
                    )
                )
            if _slides(kind) and GROUND not in ends:
                (a, point_a), (b, point_b) = ends.items()
                links.append(("slide", a, point_a, b, point_b))
        # Two world points are the ends of a line.
        if len({world for world, _ in kind.places()}) == 2:
            (a, point_a), (b, point_b) = ends.items()
            links.append((link, a, point_a, b, point_b))
        for name, field in fields.items():
            direction = getattr(element, name, None)
            along = field.plain == "direction" and (not spatial or _slides(kind))
            if along and direction is not None and getattr(element, field.body) == GROUND:
                axis = np.asarray(direction, float)
                slides.append((ends[GROUND], axis / np.linalg.norm(axis)))
    distinct = {name: _distinct(places) for name, places in points.items()}
    joints = {name: np.array(places or [center]) for name, places in distinct.items()}
    ground_points = _distinct(ground_points)
    if not spatial:
        return Outline(
            {name: hull(places) for name, places in distinct.items()} | given,
            joints,
            links,
            ground_points,
            slides,
            {},
        )
    lines = {body.name: _lines(joints[body.name], body, pins[body.name]) for body in mechanism.bodies}
    lines |= {name: [np.vstack([corners, corners[:1]])] for name, corners in given.items()}
    return Outline(
        {name: np.concatenate(lines[name]) for name in lines}, joints, links, ground_points, slides, lines
    )


def shown(shape: Outline, name: str) -> np.ndarray:
    """Return the drawn points of a body in its frame.

    These are its joints and, in space, the vertices of its lines. In the plane, a body with one joint also
    has its center.
    """
    joints = shape.joints[name]
    if name in shape.lines:
        return np.vstack([joints, *shape.lines[name]])
    return np.vstack([joints, np.zeros((1, 2))]) if len(joints) < 2 else joints


def placed(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Transform body-frame points to the world: one pose and many points, or many poses and one point."""
    dimension = points.shape[-1]
    return pose[..., :dimension] + turned(points, pose[..., dimension:])


def seen_from(pose: np.ndarray, point: np.ndarray, *, place: bool = True) -> np.ndarray:
    """Transform a world point, or a direction if `place` is false, to the frame of a body."""
    dimension = point.shape[-1]
    back = -pose[dimension:] if dimension == 2 else pose[dimension:] * [1.0, -1.0, -1.0, -1.0]
    return turned(point - pose[:dimension] if place else point, back)


def turned(points: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Rotate points (..., dimension) by angles (..., 1) or unit quaternions wxyz (..., 4)."""
    if points.shape[-1] == 2:
        c, s = np.cos(by[..., 0]), np.sin(by[..., 0])
        return np.stack(
            [c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], axis=-1
        )
    scalar, vector = by[..., :1], by[..., 1:]
    across = 2.0 * np.cross(vector, points)
    return points + scalar * across + np.cross(vector, across)


def _slides(kind: Any) -> bool:
    """Return whether a spatial joint type has a sliding direction."""
    return "slide" in getattr(kind, "coordinates", ())


def _pins(element: Any) -> list[tuple[str, np.ndarray]]:
    """Return the bodies of a joint with the directions of pins fixed in them, as in a universal joint."""
    fields = {
        name: field
        for name, field in element.kind.kinds().items()
        if field.plain == "direction" and hasattr(element, name)
    }
    if len({field.body for field in fields.values()}) < 2 or "at" not in element.kind.kinds():
        return []
    given = [(getattr(element, field.body), getattr(element, name)) for name, field in fields.items()]
    return [
        (body, np.asarray(axis, float) / np.linalg.norm(axis)) for body, axis in given if axis is not None
    ]


def _lines(joints: np.ndarray, body: Any, pins: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Return the polylines of a spatial body, and its pins.

    The polylines connect two joints, go around the joints if these lie in a plane, or otherwise form a star.
    """
    size = max(float(np.ptp(joints, axis=0).max()), float(np.abs(joints).max()))
    return _shape(joints, body, size) + [
        np.stack([at - _PIN * size * along, at + _PIN * size * along]) for at, along in pins
    ]


def _shape(joints: np.ndarray, body: Any, size: float) -> list[np.ndarray]:
    if len(joints) == 1:
        return middle_lines(body) if size < _SAME else [np.vstack([joints, np.zeros((1, 3))])]
    if len(joints) == 2:
        return [joints]
    middle = joints.mean(axis=0)
    _, spread, directions = np.linalg.svd(joints - middle)
    if spread[2] < 1e-6 * spread[0]:
        corners = hull(list((joints - middle) @ directions[:2].T))
        around = middle + corners @ directions[:2]
        return [around if len(around) < 3 else np.vstack([around, around[:1]])]
    return [np.stack([np.zeros(3), joint]) for joint in joints]


def middle_lines(body: Any) -> list[np.ndarray]:
    """Return the center lines of the box with the mass and inertia of a body.

    The lines have zero length if the body lacks mass or inertia.
    """
    if body.inertia is None or not body.mass:
        return [np.zeros((2, 3))] * 3
    given = np.asarray(body.inertia, float)
    moments, axes = np.linalg.eigh(np.diag(given) if given.ndim == 1 else given)
    # A box with sides 2 a, 2 b, 2 c has m (b^2 + c^2) / 3 about its first axis.
    halves = np.sqrt(np.maximum(1.5 * (moments.sum() - 2.0 * moments) / body.mass, 0.0))
    return [np.stack([-half * axis, half * axis]) for half, axis in zip(halves, axes.T, strict=True)]


def _distinct(points: list[np.ndarray]) -> list[np.ndarray]:
    kept: list[np.ndarray] = []
    for point in points:
        if not any(np.allclose(point, other, rtol=1e-6, atol=1e-12) for other in kept):
            kept.append(point)
    return kept


def hull(points: list[np.ndarray]) -> np.ndarray:
    """Return the corners of the convex hull of distinct planar points in order (Andrew's monotone chain)."""
    distinct = sorted(points, key=lambda p: (p[0], p[1]))
    if len(distinct) < 3:
        return np.array(distinct).reshape(-1, 2)

    def half(sequence: list[np.ndarray]) -> list[np.ndarray]:
        chain: list[np.ndarray] = []
        for point in sequence:
            while len(chain) > 1 and _cross(chain[-2], chain[-1], point) <= 0:
                chain.pop()
            chain.append(point)
        return chain[:-1]

    around = half(distinct) + half(distinct[::-1])
    return np.array(around if len(around) > 1 else [distinct[0], distinct[-1]])


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    (ux, uy), (vx, vy) = b - a, c - a
    scale = math.hypot(ux, uy) * math.hypot(vx, vy)
    cross = ux * vy - uy * vx
    return 0.0 if abs(cross) <= 1e-9 * scale else float(cross)
