"""Animations of experiments: polylines that move, paths that grow, markers that stand still, in the plane or in space.

Written as a GIF without a display.
"""

import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae.app.failure import Failure, entries_in_view, first_failure
from jaxdae.app.picture_space import box
from jaxdae.app.style import GRAY, line_style, styled
from jaxdae.disk import PARTIAL, whole

_FASTEST, _SLOWEST = 30.0, 10.0  # frames a second: beyond, viewers skip frames; below, motion looks like slides
_MARGIN = 0.06  # of the larger side, around all that is drawn
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
    """Writes a GIF of motion in the plane or in space, and returns its path. Axes have one scale, and limits that hold everything.

    Played in real time where 10 to 30 frames a second can do that, else as near to it as they can. NaN is not drawn: a line with NaN is
    hidden, or interrupted there. What belongs to a world that failed is drawn up to its failure, which the title tells; where all lines
    failed, the pictures end there.

    Args:
        path: the file, ending in ".gif"; written whole or not at all.
        times: (time,) in s, ascending.
        lines: polylines by name, each (time, vertices, 2) in m, in space (time, vertices, 3).
        traces: paths by name, each (time, 2) or (time, 3) in m, drawn up to the present.
        points: fixed markers by name, each (k, 2) or (k, 3) in m.
        status: `jaxdae.Status` of the world of lines by their names, each (time,); it holds for the trace of the same name too.
        title: above the picture, before the time.
        frames: how many pictures, spread evenly over the entries; fewer where there are fewer entries.

    Raises:
        ValueError: shapes that do not fit, nothing to draw, another ending than ".gif", or a count that is not positive.
    """
    path, times = pathlib.Path(path), np.asarray(times, float)
    groups = {name: dict(given or {}) for name, given in (("lines", lines), ("traces", traces), ("points", points))}
    groups = {name: {key: np.asarray(x, float) for key, x in group.items()} for name, group in groups.items()}
    status = {name: np.asarray(x) for name, x in (status or {}).items()}
    _check(path, times, groups, status, frames)
    failures = {name: failure for name, x in status.items() if (failure := first_failure(x, times)) is not None}
    end = _end_at_failures(groups, failures, len(times))
    shown = np.unique(np.linspace(0, end - 1, min(frames, end)).round().astype(int))
    with styled() as figure_class:
        _write(path, figure_class, times, groups, "\n".join([title, *_told(failures, len(groups["lines"]))]), shown)
    return path


def _end_at_failures(groups: dict[str, dict[str, np.ndarray]], failures: dict[str, Failure], entries: int) -> int:
    """Hides what belongs to failed worlds from where they fail or run away; returns how many entries are left to show."""
    ends = dict.fromkeys(groups["lines"], entries)
    for name, failure in failures.items():
        ends[name] = entries_in_view(groups["lines"][name][: max(failure.entry, 1)])
        for group in (groups["lines"], groups["traces"]):
            if name in group:
                group[name] = group[name].copy()
                group[name][ends[name] :] = np.nan
    return max(ends.values(), default=entries)


def _told(failures: dict[str, Failure], lines: int) -> list[str]:
    """Returns the failures in words, with the names of their lines unless they are one failure of all lines."""
    if len(failures) == lines and len(set(failures.values())) == 1:
        return [f"{next(iter(failures.values()))}"]
    return [f"{name} {failure}" for name, failure in failures.items()]


def _check(
    path: pathlib.Path, times: np.ndarray, groups: dict[str, dict[str, np.ndarray]], status: dict[str, np.ndarray], frames: int
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
            what = f"shape {x.shape}" if name in groups["lines"] else f"no such line in {list(groups['lines'])}"
            raise ValueError(f"status[{name!r}] must have shape ({times.size},) and the name of a line, got {what}")
    if not any(np.isfinite(x).all(axis=-1).any() for entries in groups.values() for x in entries.values()):
        raise ValueError("nothing to draw: no lines, traces or points with finite numbers")


def _dimension(groups: dict[str, dict[str, np.ndarray]]) -> int:
    """Returns 3 where all is in space, else 2."""
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
    # Laid out once: to do it anew for every picture takes twice the time, and would let the axes tremble.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    span = times[shown[-1]] - times[shown[0]]
    rate = float(np.clip((len(shown) - 1) / span, _SLOWEST, _FASTEST)) if span > 0.0 else _SLOWEST
    writer = PillowWriter(fps=rate)  # pyright: ignore[reportArgumentType]
    # The writer knows a picture by its ending.
    with whole(path, path.with_name(f"{path.stem}{PARTIAL}.gif")) as partial, writer.saving(figure, str(partial), dpi=80):
        for k in shown:
            for name, bar in bars.items():
                _set(bar, groups["lines"][name][k])
            for name, trace in paths.items():
                _set(trace, groups["traces"][name][: k + 1])
            axes.set_title("\n".join([f"{heading}   t = {times[k]:.2f} s".strip(), *told]))
            writer.grab_frame()


def _empty(figure_class: Any, groups: dict[str, dict[str, np.ndarray]]) -> tuple[Any, Any]:
    """Returns a figure and its axes, which have room for all places."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if _dimension(groups) == 3:
        figure = figure_class(figsize=(_INCHES + 0.8, _INCHES + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot(projection="3d")
        box(axes, _places(groups))
        return figure, axes
    low, high = _limits(groups)
    width, height = _INCHES * (high - low) / (high - low).max()
    figure = figure_class(figsize=(max(width, 0.4 * _INCHES) + 0.8, max(height, 0.4 * _INCHES) + 0.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x in m", ylabel="y in m")
    return figure, axes


def _begun(axes: Any, groups: dict[str, dict[str, np.ndarray]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draws the points, and returns the traces and the lines by name, without places as yet."""
    styles = map(line_style, itertools.count())
    nothing: list[Any] = [[]] * _dimension(groups)
    for name, place in groups["points"].items():
        axes.plot(*place.T, marker="+", markersize=9, label=name, **{**next(styles), "linestyle": "none"})
    paths = {name: axes.plot(*nothing, linewidth=1.0, alpha=0.8, label=name, **next(styles))[0] for name in groups["traces"]}
    thick = {"marker": "o", "markersize": 3.5, "linewidth": 2.2}
    return paths, {name: axes.plot(*nothing, label=name, **thick, **next(styles))[0] for name in groups["lines"]}


def _set(line: Any, places: np.ndarray) -> None:
    """Moves a line to places (k, 2) or (k, 3)."""
    if places.shape[-1] == 3:
        line.set_data_3d(*places.T)
    else:
        line.set_data(*places.T)


def _places(groups: dict[str, dict[str, np.ndarray]]) -> np.ndarray:
    """Returns all places that are finite (k, 2) or (k, 3)."""
    places = np.concatenate([x.reshape(-1, x.shape[-1]) for entries in groups.values() for x in entries.values()])
    return places[np.isfinite(places).all(axis=-1)]


def _limits(groups: dict[str, dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the lower left and upper right corner of all that is finite, with a margin."""
    places = _places(groups)
    low, high = places.min(axis=0), places.max(axis=0)
    side = (high - low).max() or 1.0
    # A motion along one axis still gets a picture with an area.
    middle, half = 0.5 * (low + high), np.maximum(0.5 * (high - low), 0.1 * side) + _MARGIN * side
    return middle - half, middle + half
