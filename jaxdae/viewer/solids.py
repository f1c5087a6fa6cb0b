"""Solids of bodies, from the positions and axes of their joints.

In the plane, a body is a sheet around its joints, the convex hull of circles about them. Bodies that share a
joint lie in different layers. In space, a body is a bar between two joints, a sheet if its joints lie in a
plane, or otherwise a star of bars from its mass center. Wheels are discs, with a mark that shows their
rotation. A body whose only joint is at its mass center is the box with its mass and its inertia.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.joints import (
    planar_joints,
    planar_wheels,
    spatial_gears,
    spatial_joints,
    terrain_wheels,
)
from jaxdae.viewer.drawn_elements import places_in_bodies
from jaxdae.viewer.meshes import Mesh, ball, basis, circle, cuboid, cylinder, merged, prism, surface, wheel
from jaxdae.viewer.outline import Drawn, Outline, hull, middle_lines

_WIDTH = 0.09  # of a bar, relative to the length of bodies
_SHEET = 0.3  # thickness of sheets relative to their width
_Z = np.array([0.0, 0.0, 1.0])
_SAME = 1e-6  # relative to the total size: closer points are one point
_MARGIN = 0.25  # of terrain around the motion, relative to its size


class Terrain(NamedTuple):
    """The terrain below wheels, a surface z = h(x, y).

    Attributes:
        terrain: a terrain of `jaxdae.vehicles`.
    """

    terrain: Any

    def mesh(self, places: np.ndarray, size: float) -> Mesh:
        """Return the triangles of the terrain below positions (..., 3), with a margin."""
        flat = places.reshape(-1, 3)
        flat = flat[np.isfinite(flat).all(axis=-1)]
        low, high = flat[:, :2].min(axis=0), flat[:, :2].max(axis=0)
        margin = _MARGIN * max(size, float((high - low).max()))

        def height(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            return np.nan_to_num(np.asarray(jax.vmap(self.terrain.height)(x, y), float))

        return surface(height, low - margin, high + margin)


@dataclasses.dataclass(frozen=True)
class Solids:
    """The solids of a mechanism.

    Attributes:
        bodies: meshes by body name, in the frames of the bodies.
        details: meshes of joints and marks by body name, in the frames of the bodies.
        ground: the mesh of the ground supports, in the world; None without supports.
        terrains: the terrain below wheels.
        links: the links of the outline.
        thickness: the radius of a bar in m.
        stands: whether wheels stand on the plane.
    """

    bodies: dict[str, Mesh]
    details: dict[str, Mesh]
    ground: Mesh | None
    terrains: tuple[Terrain, ...]
    links: list[tuple[str, str, np.ndarray, str, np.ndarray]]
    thickness: float
    stands: bool


class Round(NamedTuple):
    """A wheel, a pinion or a sphere.

    Attributes:
        body: the name of its body.
        is_all: whether it is the whole body.
        solid: width in m -> meshes of the wheel and of its mark, in the frame of the body.
    """

    body: str
    is_all: bool
    solid: Callable[[float], tuple[Mesh, Mesh]]


def _disc(center: np.ndarray, axle: np.ndarray, radius: float) -> Callable[[float], tuple[Mesh, Mesh]]:
    def solid(width: float) -> tuple[Mesh, Mesh]:
        frame, width = basis(axle), min(width, 0.6 * radius)
        spoke = cuboid(np.array([0.86 * radius, 0.12 * radius, 0.56 * width]), frame, center)
        return wheel(center, axle, radius, width), spoke

    return solid


def _on_terrain(joint: Any) -> Round:
    return Round(joint.b, True, _disc(joint.point_b, joint.axis, float(joint.radius)))


def _sphere_on_terrain(joint: Any) -> Round:
    radius, center = float(joint.radius), np.asarray(joint.point_b, float)

    def solid(width: float) -> tuple[Mesh, Mesh]:
        return ball(center, radius), cylinder(
            center - 1.01 * radius * _Z, center + 1.01 * radius * _Z, 0.25 * radius
        )

    return Round(joint.b, True, solid)


def _upright(joint: Any) -> Round:
    """Return a wheel of a planar vehicle, which stands on the plane and is seen from above."""
    heading = np.array([*joint.axis, 0.0])
    center = np.array([*joint.point_b, 0.0])
    axle = np.cross(_Z, heading)
    radius = float(joint.radius) if "radius" in joint.kind.kinds() else None

    def solid(width: float) -> tuple[Mesh, Mesh]:
        return _disc(center, axle, 2.2 * width if radius is None else radius)(width)

    return Round(joint.b, False, solid)


def _pinion(joint: Any) -> Round:
    return Round(joint.b, False, _disc(np.array([*joint.point_b, 0.0]), _Z, abs(float(joint.radius))))


def _spatial_pinion(joint: Any) -> Round:
    return Round(joint.b, False, _disc(joint.point_b, joint.axes_b[:, 1], abs(float(joint.radius))))


ROUND: dict[type, Callable[[Any], Round]] = {
    terrain_wheels.RollingDisc: _on_terrain,
    terrain_wheels.SlidingDisc: _on_terrain,
    terrain_wheels.RollingSphere: _sphere_on_terrain,
    terrain_wheels.SlidingSphere: _sphere_on_terrain,
    planar_wheels.LateralWheel: _upright,
    planar_wheels.RollingWheel: _upright,
    planar_wheels.TractionWheel: _upright,
    planar_wheels.RollerWheel: _upright,
    planar_joints.RackAndPinion: _pinion,
    spatial_gears.RackAndPinion: _spatial_pinion,
}
"""The round shapes of joints, by joint type."""

_TURNING = (spatial_joints.Revolute, spatial_joints.Cylindrical, spatial_joints.Screw)
_SLIDING = (spatial_joints.Prismatic, spatial_joints.PointOnLine)


def solids(elements: Drawn, shape: Outline, size: float, bold: float = 1.0) -> Solids:
    """Return the solids of a mechanism.

    Args:
        elements: the elements of the mechanism.
        shape: its outline.
        size: the size of its motion in m.
        bold: the factor on the usual thickness.
    """
    rounds = [ROUND[joint.kind](joint) for joint in elements.joints if joint.kind in ROUND]
    width = bold * _WIDTH * _length(elements, shape, size)
    whole = {each.body for each in rounds if each.is_all}
    layers = _layers(elements) if elements.dimension == 2 else {}
    bodies: dict[str, list[Mesh]] = {}
    details: dict[str, list[Mesh]] = {}
    for body in elements.bodies:
        made = _sheet(body, shape, width, layers) if elements.dimension == 2 else _spatial(body, shape, width)
        bodies[body.name] = [] if body.name in whole else [made]
        details[body.name] = []
    for each in (each for each in rounds if each.body in bodies):
        disc, mark = each.solid(width)
        bodies[each.body].append(disc)
        details[each.body].append(mark)
    ground: list[Mesh] = []
    for joint in (joint for joint in elements.joints if joint.kind not in ROUND):
        _add_joint(joint, elements.dimension, width, max(layers.values(), default=0), details, ground)
    terrains = tuple(Terrain(joint.terrain) for joint in elements.joints if "terrain" in joint.kind.kinds())[
        :1
    ]
    return Solids(
        {name: merged(meshes) for name, meshes in bodies.items() if meshes},
        {name: merged(meshes) for name, meshes in details.items() if meshes},
        merged(ground) if ground else None,
        terrains,
        shape.links,
        0.35 * width,
        any(ROUND.get(joint.kind) is _upright for joint in elements.joints),
    )


def _length(elements: Drawn, shape: Outline, size: float) -> float:
    """Return the median length of bodies in m."""
    spans = [
        float(np.ptp(np.vstack([shape.joints[body.name], 0.0 * shape.joints[body.name][:1]]), axis=0).max())
        for body in elements.bodies
    ]
    usual = [span for span in spans if span > _SAME * size]
    return float(np.median(usual)) if usual else 0.5 * size


def _layers(elements: Drawn) -> dict[str, int]:
    """Return the layers of planar bodies: each body takes the lowest layer that no neighbor occupies."""
    neighbors: dict[str, set[str]] = {body.name: set() for body in elements.bodies}
    for joint in elements.joints:
        ends = [end for end in (joint.a, joint.b) if end in neighbors]
        if len(ends) == 2:
            neighbors[ends[0]].add(ends[1])
            neighbors[ends[1]].add(ends[0])
    layers: dict[str, int] = {}
    for name, others in neighbors.items():
        taken = {layers[other] for other in others if other in layers}
        layers[name] = next(k for k in range(len(neighbors)) if k not in taken)
    return layers


def _sheet(body: Any, shape: Outline, width: float, layers: dict[str, int]) -> Mesh:
    """Return a planar body: the hull of circles about its joints.

    A body with one joint also has a circle about its center. An outline that the body gives replaces them.
    """
    joints = shape.joints[body.name]
    bottom = layers[body.name] * _SHEET * width
    if getattr(body, "outline", None):
        return prism(shape.bodies[body.name], bottom + 0.02 * width, bottom + 0.98 * _SHEET * width)
    places = joints if len(joints) > 1 else np.vstack([joints, np.zeros((1, 2))])
    radius = 0.5 * width if np.ptp(places, axis=0).max() > 0.2 * width else 0.9 * width
    corners = hull([place + point for place in places for point in circle(radius)])
    return prism(corners, bottom + 0.02 * width, bottom + 0.98 * _SHEET * width)


def _spatial(body: Any, shape: Outline, width: float) -> Mesh:
    joints, lines = shape.joints[body.name], shape.lines[body.name]
    span = max(float(np.ptp(joints, axis=0).max()), float(np.abs(joints).max()))
    if len(joints) == 1 and span < 0.2 * width and not getattr(body, "outline", None):
        axes = middle_lines(body)
        halves = np.array([0.5 * np.linalg.norm(line[1] - line[0]) for line in axes])
        given = np.zeros(3) if body.inertia is None else body.inertia
        directions = np.linalg.eigh(np.diag(given) if np.ndim(given) == 1 else given)[1]
        # Give thin bodies, such as point masses, a visible size.
        return cuboid(np.maximum(halves, 0.25 * width), directions * np.sign(np.linalg.det(directions)))
    meshes = []
    for line in lines:
        if len(line) > 3 and np.allclose(line[0], line[-1]):
            meshes.append(_plate(line[:-1], width))
        else:
            meshes += [
                cylinder(start, end, 0.35 * width)
                for start, end in itertools.pairwise(line)
                if np.linalg.norm(end - start) > 1e-9
            ]
    if len(joints) == 1:
        meshes.append(ball(np.zeros(3), 0.8 * width))
    return merged(meshes) if meshes else ball(joints[0], 0.8 * width)


def _plate(corners: np.ndarray, width: float) -> Mesh:
    """Return a sheet around coplanar points (n, 3)."""
    middle = corners.mean(axis=0)
    directions = np.linalg.svd(corners - middle)[2]
    directions[2] *= np.sign(np.linalg.det(directions))
    flat = (corners - middle) @ directions[:2].T
    around = hull([place + point for place in flat for point in circle(0.35 * width)])
    mesh = prism(around, -0.15 * width, 0.15 * width)
    return Mesh(middle + mesh.vertices @ directions, mesh.faces)


def _add_joint(
    joint: Any, dimension: int, width: float, top: int, details: dict[str, list[Mesh]], ground: list[Mesh]
) -> None:
    """Add the marker of a joint to its second body, or to its first body if the second one is the ground.

    Also add the support of a joint on the ground.
    """
    bodies, places = {"b": joint.b, "a": joint.a}, places_in_bodies(joint)
    carrier = next((end for end, body in bodies.items() if end in places and body in details), None)
    if carrier is not None:
        details[bodies[carrier]].append(_marker(joint, carrier, places[carrier], dimension, width, top))
    ground += [_foot(places[end], width) for end, body in bodies.items() if end in places and body == GROUND]


def _marker(joint: Any, end: str, at: np.ndarray, dimension: int, width: float, top: int) -> Mesh:
    if dimension == 2:
        reach = _SHEET * width * (top + 1.4)
        return prism(np.asarray(at) + circle(0.22 * width), -0.4 * _SHEET * width, reach)
    if joint.kind not in (*_TURNING, *_SLIDING):
        return ball(at, 0.5 * width)
    axes = joint.axes_a if end == "a" else joint.axes_b
    if joint.kind in _SLIDING:
        return cuboid(np.array([0.5, 0.5, 0.9]) * width, axes, at)
    return cylinder(at - 0.55 * width * axes[:, 2], at + 0.55 * width * axes[:, 2], 0.45 * width)


def _foot(at: np.ndarray, width: float) -> Mesh:
    """Return the ground support at a joint."""
    if len(at) == 2:
        corners = np.asarray(at) + 1.3 * width * np.array([(0.0, 0.35), (-0.9, -1.0), (0.9, -1.0)])
        return prism(corners, -0.9 * _SHEET * width, -0.1 * _SHEET * width)
    return cuboid(np.full(3, 0.5 * width), center=at)
