"""Plots of `jaxdae tune` and `jaxdae optimize`, drawn from their run folder at any time."""

import pathlib
from typing import Any

import numpy as np

from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_tuning import Optimize, Tune
from jaxdae.app.draw.plot_style import GRAY, line_style, styled
from jaxdae.app.model import driven_forces
from jaxdae.app.model.crosscheck_tuning import bounds, target
from jaxdae.app.model.fit_history import NOT_PARAMETERS, read_table
from jaxdae.app.model.units import force_unit, unit_of
from jaxdae.app.runs.run_folder import CONTROLS, HISTORY

_SKIPPED = "#d0d0d0"
_LIMIT: dict[str, Any] = {"color": GRAY, "linestyle": "--", "linewidth": 1.0}


def draw_learned(
    folder: pathlib.Path, place: pathlib.Path, config: Config, record: dict[str, Any]
) -> list[pathlib.Path]:
    """Draw the plots of a fit and return their files; draw the available data of an incomplete fit.

    Args:
        folder: the run folder of the fit.
        place: an empty folder for the plots.
        config: the config of the fit.
        record: the content of its `run.json`.
    """
    columns, command = read_table(folder / HISTORY), record["learned"]["command"]
    section: Tune | Optimize = getattr(config, command)
    drawn = []
    with styled() as figure_class:
        figures = {"history": history_figure(figure_class, config, command, columns)}
        if isinstance(section, Tune):
            figures["parameters"] = parameters_figure(figure_class, config, section, columns)
        elif record["complete"]:
            # Until it completes, a lengthened run still holds the inputs of the shorter run.
            figures["controls"] = controls_figure(
                figure_class, config, section, read_table(folder / CONTROLS), best_iteration(columns)
            )
        for name, figure in figures.items():
            drawn.append(place / f"{name}.png")
            figure.savefig(drawn[-1], bbox_inches="tight")
    return drawn


def best_iteration(columns: dict[str, np.ndarray]) -> int:
    """Return the first iteration, counted from 1, with the smallest loss; ignore skipped iterations."""
    return int(np.argmin(np.where(columns["skipped"] > 0, np.inf, columns["loss"]))) + 1


def history_figure(figure_class: Any, config: Config, command: str, columns: dict[str, np.ndarray]) -> Any:
    """Return a figure of loss and gradient norm over the iterations, with the best iteration marked."""
    section: Tune | Optimize = getattr(config, command)
    iterations, skipped, best = columns["iteration"], columns["skipped"] > 0, best_iteration(columns)
    terms = len(section.loss)
    figure = figure_class(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    labels = (
        f"loss, weighted sum\nof {terms} terms" if terms > 1 else "loss",
        "gradient norm in\nunconstrained variables",
    )
    words = (f"best: iteration {best}", "at the best iteration")
    for axes, name, label, word in zip(panels, ("loss", "gradient_norm"), labels, words, strict=True):
        values = np.where(skipped, np.nan, columns[name])
        axes.plot(iterations, values, **_line(0, len(iterations)))
        if np.all(values[~skipped] > 0):
            axes.set_yscale("log")
        axes.set_ylabel(label)
        _mark_best(axes, best, values[best - 1], f"{word}, {values[best - 1]:.6g}")
        for k in iterations[skipped]:
            axes.axvline(k, color=_SKIPPED, linewidth=0.8, zorder=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    panels[0].set_title(f"{config.name}: {command}, {_progress(section, iterations, skipped)}")
    _iteration_axis(panels[-1])
    return figure


def parameters_figure(
    figure_class: Any, config: Config, section: Tune, columns: dict[str, np.ndarray]
) -> Any:
    """Return a figure of the trained numbers and limits over the iterations, with the best one marked."""
    values, best = config.model_dump(), best_iteration(columns)
    skipped = columns["skipped"] > 0
    names = [name for name in columns if name not in NOT_PARAMETERS]
    limits = {entry.path: (entry.lower, entry.upper) for entry in section.parameters}
    figure = figure_class(figsize=(9, 1.6 + 1.8 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for index, (axes, name) in enumerate(zip(panels, names, strict=True)):
        location = target(values, name)[0]
        unit = unit_of(values, location)
        axes.plot(columns["iteration"], columns[name], **_line(index, len(skipped)))
        _mark_best(
            axes, best, columns[name][best - 1], f"best: {columns[name][best - 1]:.6g} {unit}".rstrip()
        )
        _draw_limits(axes, bounds(values, location, *limits.get(name, (None, None))), unit, all_in_view=False)
        axes.set_ylabel(f"{name}\nin {unit}" if unit else name)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    panels[0].set_title(f"{config.name}: tuned numbers, {_progress(section, columns['iteration'], skipped)}")
    _iteration_axis(panels[-1])
    return figure


def controls_figure(
    figure_class: Any, config: Config, section: Optimize, columns: dict[str, np.ndarray], best: int
) -> Any:
    """Return a figure of the inputs over time and their limits, with every input held over its full step."""
    values = config.model_dump()
    forces = {force["name"]: force for force in values["mechanism"]["forces"]}
    edges = np.append(columns["t"], config.dt * config.steps)
    figure = figure_class(figsize=(9, 1.6 + 2.2 * len(section.inputs)), layout="constrained")
    panels = figure.subplots(len(section.inputs), 1, sharex=True, squeeze=False)[:, 0]
    for axes, given in zip(panels, section.inputs, strict=True):
        force = forces[given.force]
        unit, start = force_unit(values, force), driven_forces.start(force)
        axes.stairs(
            np.full(len(edges) - 1, start),
            edges,
            baseline=None,
            label="start",
            **line_style(1) | {"linestyle": "--"},
        )
        axes.stairs(
            columns[given.force],
            edges,
            baseline=None,
            label=f"optimized, iteration {best}",
            linewidth=1.6,
            **line_style(0),
        )
        _draw_limits(axes, (given.lower, given.upper), unit, all_in_view=True)
        axes.set_ylabel(f"{given.force} in {unit}")
        axes.set_xlim(edges[0], edges[-1])
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    panels[0].set_title(f"{config.name}: inputs over time, held over each step of {config.dt:g} s")
    panels[-1].set_xlabel("time in s")
    return figure


def _line(index: int, count: int) -> dict[str, Any]:
    """Return the line style over iterations; short lines get markers, so that a single point is visible."""
    return line_style(index) | ({"marker": ".", "markersize": 4} if count <= 30 else {})


def _mark_best(axes: Any, best: int, value: float, label: str) -> None:
    axes.axvline(best, color="black", linewidth=0.8, linestyle=":", zorder=1)
    axes.plot(
        [best], [value], linestyle="none", marker="o", color="black", markersize=5, zorder=5, label=label
    )


def _draw_limits(axes: Any, limits: tuple[Any, Any], unit: str, all_in_view: bool) -> None:
    """Draw limits as labeled lines.

    If `all_in_view` is not set, limits farther from the view than its height appear only in the legend.
    """
    low, high = axes.get_ylim()
    for word, limit in zip(("lower", "upper"), limits, strict=True):
        if limit is None:
            continue
        label = f"{word} limit {limit:g} {unit}".rstrip()
        if all_in_view or low - (high - low) <= limit <= high + (high - low):
            axes.axhline(limit, label=label, **_LIMIT)
        else:
            axes.plot([], [], linestyle="none", label=f"{label}, out of view")


def _progress(section: Tune | Optimize, iterations: np.ndarray, skipped: np.ndarray) -> str:
    told = (
        f"{len(iterations)} iterations"
        if len(iterations) == section.iterations
        else f"{len(iterations)} of {section.iterations} iterations"
    )
    return told + (f", {int(skipped.sum())} of them skipped (gray)" if skipped.any() else "")


def _iteration_axis(axes: Any) -> None:
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("iteration")
