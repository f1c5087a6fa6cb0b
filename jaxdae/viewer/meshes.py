"""Triangle meshes of simple solids. Faces that meet at a sharp edge do not share vertices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

SINGLE = np.single
"""The precision of browser graphics."""

_SIDES = 20  # of circles
_CELLS = 6  # grid steps per field of the checkerboard on a surface


class Mesh(NamedTuple):
    """A triangle mesh.

    Attributes:
        vertices: (n, 3) in m.
        faces: (m, 3) vertex indices, counterclockwise as seen from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray


def merged(meshes: Sequence[Mesh]) -> Mesh:
    """Merge several meshes into one."""
    firsts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + first for mesh, first in zip(meshes, firsts, strict=False)]
    return Mesh(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces))


def basis(axis: np.ndarray) -> np.ndarray:
    """Return a rotation matrix (3, 3) whose third column points along an axis (3,) of any length."""
    z = np.asarray(axis, float) / np.linalg.norm(axis)
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


def prism(corners: np.ndarray, bottom: float, top: float) -> Mesh:
    """Return the prism above a polygon whose edges do not cross.

    Args:
        corners: (n, 2) in m, in order.
        bottom: z of its lower face in m.
        top: z of its upper face in m.
    """
    n = len(corners)
    corners = corners if _area(corners) > 0.0 else corners[::-1]
    low, high = (np.column_stack([corners, np.full(n, z)]) for z in (bottom, top))
    inside = _triangles(corners)
    sides = []
    for k in range(n):
        j = (k + 1) % n
        quad = np.array([low[k], low[j], high[j], high[k]])
        sides.append(Mesh(quad, np.array([(0, 1, 2), (0, 2, 3)])))
    return merged([Mesh(low, inside[:, ::-1]), Mesh(high, inside), *sides])


def _area(corners: np.ndarray) -> float:
    """Return the area of a polygon (n, 2), positive in counterclockwise order."""
    x, y = corners.T
    return 0.5 * float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def _triangles(corners: np.ndarray) -> np.ndarray:
    """Return the triangles (n - 2, 3) of a counterclockwise polygon.

    Each step cuts off an ear: a corner whose triangle with its neighbors turns left and contains no other
    corner. Every polygon without crossing edges has one (G. H. Meisters, Amer. Math. Monthly 82, 1975).
    Without an ear, because edges cross or by rounding, the step cuts off the next corner.
    """
    left, found = list(range(len(corners))), []
    while len(left) > 3:
        ear = next((k for k in range(1, len(left)) if _is_ear(corners, left, k)), 1)
        found.append((left[ear - 1], left[ear], left[(ear + 1) % len(left)]))
        del left[ear]
    return np.array([*found, tuple(left)])


def _is_ear(corners: np.ndarray, left: list[int], k: int) -> bool:
    own = [left[k - 1], left[k], left[(k + 1) % len(left)]]
    a, b, c = corners[own]
    others = corners[[j for j in left if j not in own]]

    def side(p: np.ndarray, q: np.ndarray, points: np.ndarray) -> Any:
        return (q[0] - p[0]) * (points[..., 1] - p[1]) - (q[1] - p[1]) * (points[..., 0] - p[0])

    within = (side(a, b, others) >= 0.0) & (side(b, c, others) >= 0.0) & (side(c, a, others) >= 0.0)
    return bool(side(a, b, c) > 0.0 and not within.any())


def circle(radius: float) -> np.ndarray:
    """Return points (n, 2) of a circle about the origin."""
    angles = 2.0 * np.pi * np.arange(_SIDES) / _SIDES
    return radius * np.column_stack([np.cos(angles), np.sin(angles)])


def cylinder(start: np.ndarray, end: np.ndarray, radius: float, tip: float | None = None) -> Mesh:
    """Return a cylinder between two points (3,), or a cone frustum with radius `tip` at its end.

    The lateral surface is smooth.
    """
    start, end = np.asarray(start, float), np.asarray(end, float)
    frame, ring = basis(end - start), circle(1.0)
    low, high = (
        place + (size * ring) @ frame[:, :2].T
        for place, size in ((start, radius), (end, radius if tip is None else tip))
    )
    n = len(ring)
    fan = np.array([(0, k, k + 1) for k in range(1, n - 1)])
    following = (np.arange(n) + 1) % n
    side = np.concatenate(
        [
            np.column_stack([np.arange(n), following, following + n]),
            np.column_stack([np.arange(n), following + n, n + np.arange(n)]),
        ]
    )
    return merged([Mesh(np.concatenate([low, high]), side), Mesh(low, fan[:, ::-1]), Mesh(high, fan)])


def ball(center: np.ndarray, radius: float) -> Mesh:
    """Return a sphere."""
    rows, columns = 8, 14
    polar = np.pi * np.arange(rows + 1) / rows
    around = 2.0 * np.pi * np.arange(columns) / columns
    grid = np.stack(
        [
            np.sin(polar)[:, None] * np.cos(around),
            np.sin(polar)[:, None] * np.sin(around),
            np.repeat(np.cos(polar)[:, None], columns, axis=1),
        ],
        axis=-1,
    )
    k, j = (each.reshape(-1) for each in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    a, b = k * columns + j, k * columns + (j + 1) % columns
    faces = np.concatenate(
        [np.column_stack([a, a + columns, b + columns]), np.column_stack([a, b + columns, b])]
    )
    return Mesh(np.asarray(center, float) + radius * grid.reshape(-1, 3), faces)


def cuboid(halves: np.ndarray, frame: np.ndarray | None = None, center: np.ndarray | None = None) -> Mesh:
    """Return a box with half sides (3,) along the columns of a frame (3, 3)."""
    x, y, z = np.asarray(halves, float)
    mesh = prism(np.array([(-x, -y), (x, -y), (x, y), (-x, y)]), -z, z)
    frame = np.eye(3) if frame is None else frame
    return Mesh(mesh.vertices @ frame.T + (0.0 if center is None else np.asarray(center, float)), mesh.faces)


def wheel(center: np.ndarray, axle: np.ndarray, radius: float, width: float) -> Mesh:
    """Return a disc about an axle (3,) through its center."""
    half = 0.5 * width * np.asarray(axle, float) / np.linalg.norm(axle)
    return cylinder(center - half, center + half, radius)


def arrow() -> Mesh:
    """Return an arrow of length 1 along z, to be scaled; its shaft has radius 0.5 and its head 1.2."""
    z = np.array([0.0, 0.0, 1.0])
    return merged([cylinder(0.0 * z, 0.75 * z, 0.5), cylinder(0.75 * z, z, 1.2, 1e-3)])


def surface(
    height: Callable[[np.ndarray, np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, count: int = 60
) -> Mesh:
    """Return the surface z = height(x, y) over a rectangle, from a grid.

    Args:
        height: a function of arrays x and y in m.
        low: (2,) the corner with the smallest x and y.
        high: (2,) the opposite corner.
        count: grid steps along the longer side.
    """
    sides = np.maximum(np.asarray(high, float) - low, 1e-9)
    steps = np.maximum(np.ceil(count * sides / sides.max()), 1).astype(int)
    x, y = np.meshgrid(
        *(np.linspace(a, b, n + 1) for a, b, n in zip(low, high, steps, strict=True)), indexing="ij"
    )
    z = np.broadcast_to(np.asarray(height(x.reshape(-1), y.reshape(-1)), float), (x.size,))
    k, j = (each.reshape(-1) for each in np.meshgrid(np.arange(steps[0]), np.arange(steps[1]), indexing="ij"))
    a, across = k * (steps[1] + 1) + j, steps[1] + 1
    faces = np.concatenate(
        [np.column_stack([a, a + across, a + across + 1]), np.column_stack([a, a + across + 1, a + 1])]
    )
    return Mesh(np.column_stack([x.reshape(-1), y.reshape(-1), z]), faces)


def checkered(mesh: Mesh) -> tuple[Mesh, Mesh]:
    """Return the two colors of a checkerboard on a `surface`, whose lines make hills visible."""
    corner = mesh.vertices[:, :2].min(axis=0)
    step = np.array([np.diff(np.unique(mesh.vertices[:, axis])[:2])[0] for axis in (0, 1)])
    middle = mesh.vertices[mesh.faces][..., :2].mean(axis=1)
    odd = np.floor((middle - corner) / (_CELLS * step)).sum(axis=1) % 2 == 1
    return _part(mesh, ~odd), _part(mesh, odd)


def _part(mesh: Mesh, chosen: np.ndarray) -> Mesh:
    """Return some faces of a mesh, with the vertices that they use."""
    used, numbers = np.unique(mesh.faces[chosen], return_inverse=True)
    return Mesh(mesh.vertices[used], numbers.reshape(-1, 3))
