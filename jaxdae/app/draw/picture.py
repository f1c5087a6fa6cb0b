"""The overlay picture: the mechanism at several instants, from its config and its coordinates."""

from typing import Any

import numpy as np

from jaxdae.app.config.schema_mechanism import PlanarMechanism
from jaxdae.app.draw.plot_style import GRAY
from jaxdae.app.model.config_outline import outline
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.viewer.outline import Outline, placed

PATH = "#cfcfcf"
"""The color of the joint paths."""


def shades(count: int) -> Any:
    """Return one color per instant (count, 4), pale for early instants."""
    import matplotlib as mpl

    return mpl.colormaps["cividis_r"](np.linspace(0.2, 1.0, count) if count > 1 else [1.0])


def draw(
    axes: Any, mechanism: PlanarMechanism, instants: np.ndarray, poses: np.ndarray, path: np.ndarray
) -> None:
    """Draw a planar mechanism at several instants, from pale to strong, into matplotlib axes.

    Args:
        axes: the matplotlib axes.
        mechanism: the mechanism.
        instants: times (k,) in s.
        poses: coordinates (k, bodies, 3) at these times.
        path: coordinates (time, bodies, 3) of the whole motion, for the joint paths.
    """
    from matplotlib.patches import Polygon

    shape = outline(mechanism)
    names = list(shape.bodies)
    for index, name in enumerate(names):
        for place in shape.joints[name]:
            xy = placed(path[:, index], place)
            axes.plot(xy[:, 0], xy[:, 1], color=PATH, linewidth=0.6, zorder=1)
    for k, (instant, color) in enumerate(zip(instants, shades(len(instants)), strict=True)):
        last = k == len(instants) - 1
        strength, width = (1.0, 2.2) if last else (0.75, 1.4)
        pose = dict(zip(names, poses[k], strict=True)) | {GROUND: np.zeros(3)}
        for name in names:
            corners = placed(pose[name], _with_center(shape.bodies[name]))
            if len(corners) > 2:
                axes.add_patch(
                    Polygon(
                        corners, closed=True, facecolor=(*color[:3], 0.12), edgecolor="none", zorder=2 + k
                    )
                )
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
            joints = placed(pose[name], shape.joints[name])
            axes.plot(
                joints[:, 0], joints[:, 1], "o", color=color, markersize=3.2 if last else 2.4, zorder=4 + k
            )
        for kind, a, point_a, b, point_b in shape.links:
            ends = np.stack([placed(pose[a], point_a), placed(pose[b], point_b)])
            dashes = "--" if kind == "spring" else "-"
            axes.plot(
                ends[:, 0],
                ends[:, 1],
                color=color,
                linestyle=dashes,
                alpha=strength,
                linewidth=1.1,
                zorder=3 + k,
            )
        axes.plot([], [], color=color, linewidth=width, label=f"at {instant:.4g} s")
    _draw_ground(axes, shape, poses)
    axes.set_aspect("equal", adjustable="box")
    axes.margins(0.06)
    axes.set_xlabel("x in m")
    axes.set_ylabel("y in m")
    axes.plot([], [], color=PATH, linewidth=1.0, label="paths of the joints")
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


def _with_center(points: np.ndarray) -> np.ndarray:
    """Return the points of the line through a body; a body with one joint is a line to its center of mass."""
    return np.vstack([points, np.zeros((1, 2))]) if len(points) < 2 else points
