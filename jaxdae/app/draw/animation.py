"""GIF animations of experiments: moving polylines, growing traces and fixed markers, in 2D or 3D.

No display is required.
"""

import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae.app.draw.failure_times import Failure, entries_in_view, first_failure
from jaxdae.app.draw.picture_space import box
from jaxdae.app.draw.plot_style import GRAY, line_style, styled
from jaxdae.base.atomic_writes import PARTIAL, whole

_FASTEST, _SLOWEST = 30.0, 10.0  # frames per second: viewers skip frames above; motion stutters below
_MARGIN = 0.06  # fraction of the larger side, added around the drawing
_INCHES = 6.0


def write_animation(
    path: pathlib.Path | str,
    times: Any,
    lines: Mapping[str, Any],
    *,
    traces: Mapping[str, Any] | None = None,
    points: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    title: str = "",
    frames: int = 100,
) -> pathlib.Path:
    """Write a GIF of motion in the plane or in space and return its path.

    All axes have the same scale, and the axis limits contain the whole motion. Playback is in real time if 10
    to 30 frames per second allow it, and as close to real time as possible otherwise. NaN vertices are not
    drawn: they interrupt or hide their line. The lines and traces of a failed world end at its failure, which
    the title states. If all lines fail, the animation ends at the last failure.

    Args:
        path: the file, with the extension ".gif"; written atomically.
        times: (time,) in s, ascending.
        lines: polylines by name, each (time, vertices, 2) in the plane or (time, vertices, 3) in space, in m.
        traces: paths by name, each (time, 2) or (time, 3) in m, drawn up to the current time.
        points: fixed markers by name, each (k, 2) or (k, 3) in m.
        status: `jaxdae.Status` of the world of each line, by line name, each (time,). It also applies to the
            trace of the same name.
        title: text above the picture, before the time.
        frames: maximum number of frames, spread evenly over the entries.

    Raises:
        ValueError: the shapes do not match, there is nothing to draw, the extension is not ".gif", or
            `frames` is not positive.
    """
    path, times = pathlib.Path(path), np.asarray(times, float)
    groups = {
        name: dict(given or {}) for name, given in (("lines", lines), ("traces", traces), ("points", points))
    }
    groups = {name: {key: np.asarray(x, float) for key, x in group.items()} for name, group in groups.items()}
    status = {name: np.asarray(x) for name, x in (status or {}).items()}
    _check(path, times, groups, status, frames)
    failures = {
        name: failure for name, x in status.items() if (failure := first_failure(x, times)) is not None
    }
    end = _end_at_failures(groups, failures, len(times))
    shown = np.unique(np.linspace(0, end - 1, min(frames, end)).round().astype(int))
    with styled() as figure_class:
        _write(
            path,
            figure_class,
            times,
            groups,
            "\n".join([title, *_told(failures, len(groups["lines"]))]),
            shown,
        )
    return path


def _end_at_failures(
    groups: dict[str, dict[str, np.ndarray]], failures: dict[str, Failure], entries: int
) -> int:
    """Hide lines and traces of failed worlds once they fail or leave the view; return the visible entries."""
    ends = dict.fromkeys(groups["lines"], entries)
    for name, failure in failures.items():
        ends[name] = entries_in_view(groups["lines"][name][: max(failure.entry, 1)])
        for group in (groups["lines"], groups["traces"]):
            if name in group:
                group[name] = group[name].copy()
                group[name][ends[name] :] = np.nan
    return max(ends.values(), default=entries)


def _told(failures: dict[str, Failure], lines: int) -> list[str]:
    """Return a text per failure, with the name of its line unless all lines have the same failure."""
    if len(failures) == lines and len(set(failures.values())) == 1:
        return [f"{next(iter(failures.values()))}"]
    return [f"{name} {failure}" for name, failure in failures.items()]


def _check(
    path: pathlib.Path,
    times: np.ndarray,
    groups: dict[str, dict[str, np.ndarray]],
    status: dict[str, np.ndarray],
    frames: int,
) -> None:
    if path.suffix != ".gif":
        raise ValueError(f"path must end in .gif, got {path.name!r}")
    if frames < 1:
        raise ValueError(f"frames must be at least 1, got {frames}")
    if times.ndim != 1 or times.size == 0:
        raise ValueError(f"times must have shape (time,) with at least one entry, got {times.shape}")
    size = _dimension(groups)
    expected = {"lines": (times.size, None, size), "traces": (times.size, size), "points": (None, size)}
    for group, entries in groups.items():
        for name, x in entries.items():
            shape = expected[group]
            if x.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, x.shape, strict=True)):
                wanted = ", ".join("any" if n is None else str(n) for n in shape)
                raise ValueError(f"{group}[{name!r}] must have shape ({wanted}), got {x.shape}")
    for name, x in status.items():
        if name not in groups["lines"] or x.shape != times.shape:
            what = (
                f"shape {x.shape}" if name in groups["lines"] else f"no such line in {list(groups['lines'])}"
            )
            raise ValueError(
                f"status[{name!r}] must have shape ({times.size},) and the name of a line, got {what}"
            )
    if not any(np.isfinite(x).all(axis=-1).any() for entries in groups.values() for x in entries.values()):
        raise ValueError("nothing to draw: no lines, traces or points with finite numbers")


def _dimension(groups: dict[str, dict[str, np.ndarray]]) -> int:
    """Return 3 if all data is in space, else 2."""
    sizes = {x.shape[-1] for entries in groups.values() for x in entries.values() if x.ndim}
    return 3 if sizes == {3} else 2


def _write(
    path: pathlib.Path,
    figure_class: Any,
    times: np.ndarray,
    groups: dict[str, dict[str, np.ndarray]],
    title: str,
    shown: np.ndarray,
) -> None:
    from matplotlib.animation import PillowWriter

    figure, axes = _empty(figure_class, groups)
    paths, bars = _begun(axes, groups)
    axes.tick_params(colors=GRAY)
    figure.legend(loc="outside lower center", ncols=max(1, int(figure.get_figwidth() / 1.8)))
    heading, *told = title.split("\n")
    axes.set_title("\n".join([heading or " ", *told]))
    # Compute the layout once: a new layout per frame doubles the time and makes the axes jitter.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    span = times[shown[-1]] - times[shown[0]]
    rate = float(np.clip((len(shown) - 1) / span, _SLOWEST, _FASTEST)) if span > 0.0 else _SLOWEST
    writer = PillowWriter(fps=rate)  # pyright: ignore[reportArgumentType]
    # The writer infers the format from the extension.
    with (
        whole(path, path.with_name(f"{path.stem}{PARTIAL}.gif")) as partial,
        writer.saving(figure, str(partial), dpi=80),
    ):
        for k in shown:
            for name, bar in bars.items():
                _set(bar, groups["lines"][name][k])
            for name, trace in paths.items():
                _set(trace, groups["traces"][name][: k + 1])
            axes.set_title("\n".join([f"{heading}   t = {times[k]:.2f} s".strip(), *told]))
            writer.grab_frame()


def _empty(figure_class: Any, groups: dict[str, dict[str, np.ndarray]]) -> tuple[Any, Any]:
    """Return a figure and its axes, with limits that contain all positions."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if _dimension(groups) == 3:
        figure = figure_class(figsize=(_INCHES + 0.8, _INCHES + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(projection="3d")
        box(axes, _places(groups))
        return figure, axes
    low, high = _limits(groups)
    width, height = _INCHES * (high - low) / (high - low).max()
    figure = figure_class(
        figsize=(max(width, 0.4 * _INCHES) + 0.8, max(height, 0.4 * _INCHES) + 0.9), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x in m", ylabel="y in m")
    return figure, axes


def _begun(axes: Any, groups: dict[str, dict[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the points, and return the traces and lines by name, still without data."""
    styles = map(line_style, itertools.count())
    nothing: list[Any] = [[]] * _dimension(groups)
    for name, place in groups["points"].items():
        axes.plot(*place.T, marker="+", markersize=9, label=name, **{**next(styles), "linestyle": "none"})
    paths = {
        name: axes.plot(*nothing, linewidth=1.0, alpha=0.8, label=name, **next(styles))[0]
        for name in groups["traces"]
    }
    thick = {"marker": "o", "markersize": 3.5, "linewidth": 2.2}
    return paths, {
        name: axes.plot(*nothing, label=name, **thick, **next(styles))[0] for name in groups["lines"]
    }


def _set(line: Any, places: np.ndarray) -> None:
    """Set the vertices (k, 2) or (k, 3) of a line."""
    if places.shape[-1] == 3:
        line.set_data_3d(*places.T)
    else:
        line.set_data(*places.T)


def _places(groups: dict[str, dict[str, np.ndarray]]) -> np.ndarray:
    """Return all finite positions (k, 2) or (k, 3)."""
    places = np.concatenate(
        [x.reshape(-1, x.shape[-1]) for entries in groups.values() for x in entries.values()]
    )
    return places[np.isfinite(places).all(axis=-1)]


def _limits(groups: dict[str, dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower left and upper right corners of all finite positions, with a margin."""
    places = _places(groups)
    low, high = places.min(axis=0), places.max(axis=0)
    side = (high - low).max() or 1.0
    # Motion along one axis still needs limits with a nonzero area.
    middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 0.1 * side) + _MARGIN * side
    return middle - half, middle + half
