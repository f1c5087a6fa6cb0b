"""The overlay picture of a spatial mechanism with equal axis scales, and its lines for animations."""

from typing import Any

import numpy as np

from jaxdae.app.config.schema_mechanism import SpatialMechanism
from jaxdae.app.draw.picture import PATH, shades
from jaxdae.app.draw.plot_style import GRAY
from jaxdae.app.model.config_outline import outline
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.viewer.outline import placed, shown

_AT_REST = np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
_TICKS = 6  # at most, on the longest axis
_MARGIN = 0.04  # relative to the longest side
_THINNEST = 0.35  # shortest over longest side of the box, so that a flat mechanism also gets a visible box


def draw(
    axes: Any, mechanism: SpatialMechanism, instants: np.ndarray, poses: np.ndarray, path: np.ndarray
) -> None:
    """Draw a spatial mechanism at several instants, from pale to strong, into 3-D axes.

    Args:
        axes: the matplotlib 3-D axes.
        mechanism: the mechanism.
        instants: times (k,) in s.
        poses: poses of the bodies (k, bodies, 7) at these times, positions in m and quaternions wxyz.
        path: poses (time, bodies, 7) of the whole motion, for the joint paths.
    """
    shape = outline(mechanism)
    names = list(shape.bodies)
    seen = [np.array(shape.ground_points).reshape(-1, 3)]
    for index, name in enumerate(names):
        for place in shape.joints[name]:
            axes.plot(*placed(path[:, index], place).T, color=PATH, linewidth=0.6)
        seen += [placed(path[:, index], place) for place in shown(shape, name)]
    for k, (instant, color) in enumerate(zip(instants, shades(len(instants)), strict=True)):
        last = k == len(instants) - 1
        strength, width = (1.0, 2.2) if last else (0.75, 1.3)
        pose = dict(zip(names, poses[k], strict=True)) | {GROUND: _AT_REST}
        for name in names:
            for line in shape.lines[name]:
                corners = placed(pose[name], line)
                _fill(axes, corners, color)
                axes.plot(*corners.T, color=color, alpha=strength, linewidth=width, solid_capstyle="round")
            joints = placed(pose[name], shape.joints[name])
            axes.plot(*joints.T, "o", color=color, alpha=strength, markersize=3.2 if last else 2.4)
        for kind, a, point_a, b, point_b in shape.links:
            ends = np.stack([placed(pose[a], point_a), placed(pose[b], point_b)])
            axes.plot(
                *ends.T,
                color=color,
                linestyle="--" if kind == "spring" else "-",
                alpha=strength,
                linewidth=0.8 * width,
            )
        axes.plot([], [], [], color=color, linewidth=width, label=f"at {instant:.4g} s")
    size = box(
        axes,
        np.concatenate(
            [np.concatenate(seen), *(placed(poses[:, k], np.zeros(3)) for k in range(len(names)))]
        ),
    )
    for number, point in enumerate(shape.ground_points):
        label = "on the ground" if number == 0 else None
        marker = {
            "marker": "^",
            "markersize": 8,
            "markerfacecolor": "white",
            "markeredgecolor": "black",
            "linestyle": "",
        }
        axes.plot(*np.reshape(point, (3, 1)), **marker, label=label)
    for point, axis in shape.slides:
        axes.plot(
            *np.stack([point - 0.5 * size * axis, point + 0.5 * size * axis]).T,
            color=GRAY,
            linewidth=0.8,
            linestyle=":",
        )
    if any(kind == "spring" for kind, *_ in shape.links):
        axes.plot([], [], [], color=GRAY, linestyle="--", linewidth=1.1, label="spring")
    axes.plot([], [], [], color=PATH, linewidth=1.0, label="paths of the joints")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def skeleton(mechanism: SpatialMechanism, poses: np.ndarray) -> dict[str, np.ndarray]:
    """Return the lines of the bodies over time for `write_animation`, by body name.

    Each line has shape (time, vertices, 3), in m.

    Args:
        mechanism: the mechanism of a config, `config.mechanism`.
        poses: poses of the bodies (time, bodies, 7), positions in m and quaternions wxyz.
    """
    shape = outline(mechanism)
    lines = {}
    for index, name in enumerate(shape.bodies):
        # Join the lines of a body into one line with gaps.
        gap = np.full((1, 3), np.nan)
        points = np.concatenate([part for line in shape.lines[name] for part in (line, gap)])[:-1]
        lines[name] = np.stack([placed(poses[:, index], point) for point in points], axis=1)
    return lines


def box(axes: Any, places: np.ndarray) -> float:
    """Set limits of 3-D axes around points (n, 3) in m with one scale; return the longest side in m."""
    from matplotlib.ticker import MaxNLocator

    places = places[np.isfinite(places).all(axis=-1)]
    low, high = places.min(axis=0), places.max(axis=0)
    side = float((high - low).max()) or 1.0
    middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 0.5 * _THINNEST * side) + _MARGIN * side
    low, high = middle - half, middle + half
    axes.set(
        xlim=(low[0], high[0]),
        ylim=(low[1], high[1]),
        zlim=(low[2], high[2]),
        xlabel="x in m",
        ylabel="y in m",
        zlabel="z in m",
    )
    axes.set_box_aspect(high - low)
    for axis, length in zip((axes.xaxis, axes.yaxis, axes.zaxis), high - low, strict=True):
        axis.set_pane_color((1.0, 1.0, 1.0, 0.0))
        axis.set_major_locator(MaxNLocator(max(2, round(_TICKS * length / (high - low).max()))))
        axis.labelpad = 8.0
    return side


def _fill(axes: Any, corners: np.ndarray, color: Any) -> None:
    """Fill a closed polygon."""
    if len(corners) > 3 and np.allclose(corners[0], corners[-1]):
        from mpl_toolkits.mplot3d.art3d import Poly3DCollection

        axes.add_collection3d(Poly3DCollection([corners], facecolor=(*color[:3], 0.12), edgecolor="none"))
