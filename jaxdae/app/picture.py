"""The overlay picture: the mechanism at several instants, drawn from its config and its coordinates."""

import dataclasses
import math
from typing import Any

import numpy as np

from jaxdae.app.schema_mechanism import TYPES, Mechanism
from jaxdae.app.style import GRAY

GROUND = "ground"
_PATH = "#cfcfcf"


@dataclasses.dataclass(frozen=True)
class Outline:
    """What a picture of a mechanism shows.

    Attributes:
        bodies: corners of each body (n, 2) in its frame, m.
        joints: joints and other places of each body (n, 2) in its frame, m; its center where it has none.
        links: lines between bodies: (rod or spring, body a, point a, body b, point b).
        ground_points: joints on the ground, m.
        slides: ground points with a direction along which something slides.
    """

    bodies: dict[str, np.ndarray]
    joints: dict[str, np.ndarray]
    links: list[tuple[str, str, np.ndarray, str, np.ndarray]]
    ground_points: list[np.ndarray]
    slides: list[tuple[np.ndarray, np.ndarray]]


def outline(mechanism: Mechanism) -> Outline:
    """Returns the drawing of a mechanism, its places in the frames of its bodies."""
    poses = {body.name: np.asarray(body.pose) for body in mechanism.bodies}
    points: dict[str, list[np.ndarray]] = {name: [] for name in poses}
    links, ground_points, slides = [], [], []

    def local(body: str, world: Any, point: Any) -> np.ndarray:
        if point is not None or body == GROUND:
            return np.asarray(point if point is not None else world, float)
        x, y, theta = poses[body]
        return _turned(np.asarray(world, float) - (x, y), -theta)

    for element, link in (*((joint, "rod") for joint in mechanism.joints), *((force, "spring") for force in mechanism.forces)):
        kind = TYPES[element.type]
        fields: dict[str, Any] = kind.kinds()
        ends: dict[str, np.ndarray] = {}
        for world, point in kind.places():
            body = getattr(element, fields[point].body)
            ends[body] = local(body, getattr(element, world), getattr(element, point))
            (ground_points if body == GROUND else points[body]).append(ends[body])
        # Two places in the world are the ends of a line.
        if len({world for world, _ in kind.places()}) == 2:
            (a, point_a), (b, point_b) = ends.items()
            links.append((link, a, point_a, b, point_b))
        for name, field in fields.items():
            if field.plain == "direction" and getattr(element, field.body) == GROUND:
                axis = np.asarray(getattr(element, name), float)
                slides.append((ends[GROUND], axis / np.linalg.norm(axis)))
    distinct = {name: _distinct(places) for name, places in points.items()}
    joints = {name: np.array(places or [(0.0, 0.0)]) for name, places in distinct.items()}
    return Outline({name: _hull(places) for name, places in distinct.items()}, joints, links, _distinct(ground_points), slides)


def places(mechanism: Mechanism, poses: np.ndarray) -> np.ndarray:
    """Returns where all that is drawn of a mechanism is at poses (time, bodies, 3), (time, points, 2) in m; the ground is left out."""
    shape = outline(mechanism)
    points = [_placed(poses[:, index], place) for index, name in enumerate(shape.bodies) for place in _with_center(shape.joints[name])]
    return np.stack(points, axis=1)


def draw(axes: Any, mechanism: Mechanism, instants: np.ndarray, poses: np.ndarray, path: np.ndarray) -> None:
    """Draws a mechanism at several instants into matplotlib axes, early ones pale, the last one strong.

    Args:
        axes: where to draw.
        mechanism: what.
        instants: times (k,) in s.
        poses: coordinates (k, bodies, 3) at these times.
        path: coordinates (time, bodies, 3) of the whole motion, for the paths of the joints.
    """
    import matplotlib as mpl
    from matplotlib.patches import Polygon

    shape = outline(mechanism)
    names = list(shape.bodies)
    for index, name in enumerate(names):
        for place in shape.joints[name]:
            xy = _placed(path[:, index], place)
            axes.plot(xy[:, 0], xy[:, 1], color=_PATH, linewidth=0.6, zorder=1)
    shades = mpl.colormaps["cividis_r"](np.linspace(0.2, 1.0, len(instants)) if len(instants) > 1 else [1.0])
    for k, (instant, color) in enumerate(zip(instants, shades, strict=True)):
        last = k == len(instants) - 1
        strength, width = (1.0, 2.2) if last else (0.75, 1.4)
        pose = dict(zip(names, poses[k], strict=True)) | {GROUND: np.zeros(3)}
        for name in names:
            corners = _placed(pose[name], _with_center(shape.bodies[name]))
            if len(corners) > 2:
                axes.add_patch(Polygon(corners, closed=True, facecolor=(*color[:3], 0.12), edgecolor="none", zorder=2 + k))
                corners = np.vstack([corners, corners[:1]])
            axes.plot(
                corners[:, 0],
                corners[:, 1],
                color=color,
                alpha=strength,
                linewidth=width,
                solid_capstyle="round",
                zorder=3 + k,
            )
            joints = _placed(pose[name], shape.joints[name])
            axes.plot(joints[:, 0], joints[:, 1], "o", color=color, markersize=3.2 if last else 2.4, zorder=4 + k)
        for kind, a, point_a, b, point_b in shape.links:
            ends = np.stack([_placed(pose[a], point_a), _placed(pose[b], point_b)])
            dashes = "--" if kind == "spring" else "-"
            axes.plot(ends[:, 0], ends[:, 1], color=color, linestyle=dashes, alpha=strength, linewidth=1.1, zorder=3 + k)
        axes.plot([], [], color=color, linewidth=width, label=f"at {instant:.4g} s")
    _draw_ground(axes, shape, poses)
    axes.set_aspect("equal", adjustable="box")
    axes.margins(0.06)
    axes.set_xlabel("x in m")
    axes.set_ylabel("y in m")
    axes.plot([], [], color=_PATH, linewidth=1.0, label="paths of the joints")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _draw_ground(axes: Any, shape: Outline, poses: np.ndarray) -> None:
    span = max(np.ptp(poses[..., 0]), np.ptp(poses[..., 1]), 1e-9)
    for point, axis in shape.slides:
        axes.axline(point, point + 1e-3 * span * axis, color=GRAY, linewidth=0.8, linestyle=":", zorder=0)
    for number, point in enumerate(shape.ground_points):
        label = "on the ground" if number == 0 else None
        axes.plot(
            *point,
            marker="^",
            markersize=9,
            markerfacecolor="white",
            markeredgecolor="black",
            linestyle="",
            zorder=50,
            label=label,
        )
    if any(kind == "spring" for kind, *_ in shape.links):
        axes.plot([], [], color=GRAY, linestyle="--", linewidth=1.1, label="spring")


def _placed(pose: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Returns body-frame points in the world: one pose and many points, or many poses and one point."""
    return pose[..., :2] + _turned(points, pose[..., 2])


def _turned(points: np.ndarray, angle: Any) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * points[..., 0] - s * points[..., 1], s * points[..., 0] + c * points[..., 1]], axis=-1)


def _with_center(points: np.ndarray) -> np.ndarray:
    """Returns the points to draw a line through; a body with one joint is a line to its center of mass."""
    return np.vstack([points, np.zeros((1, 2))]) if len(points) < 2 else points


def _distinct(points: list[np.ndarray]) -> list[np.ndarray]:
    kept: list[np.ndarray] = []
    for point in points:
        if not any(np.allclose(point, other, rtol=1e-6, atol=1e-12) for other in kept):
            kept.append(point)
    return kept


def _hull(points: list[np.ndarray]) -> np.ndarray:
    """Returns those of distinct points that are corners of the convex hull, in order (Andrew's monotone chain)."""
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

    hull = half(distinct) + half(distinct[::-1])
    return np.array(hull if len(hull) > 1 else [distinct[0], distinct[-1]])


def _cross(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    (ux, uy), (vx, vy) = b - a, c - a
    scale = math.hypot(ux, uy) * math.hypot(vx, vy)
    cross = ux * vy - uy * vx
    return 0.0 if abs(cross) <= 1e-9 * scale else float(cross)
