"""The plots of a run: positions, constraint violation, energy balance, and the overlay picture."""

import pathlib
from typing import Any

import numpy as np
import xarray as xr

from jaxdae.app import picture
from jaxdae.app.schema import Config
from jaxdae.app.style import COLORS, GRAY, line_style, styled

_POINTS = 2000
_WORLDS_IN_BAND = 1024
_ROWS = (("x", "m"), ("y", "m"), ("theta", "rad"))


def draw_all(folder: pathlib.Path, config: Config, data: xr.Dataset) -> list[pathlib.Path]:
    """Draws the plots of a run into a folder and returns their files."""
    folder.mkdir(exist_ok=True)
    files = []
    with styled() as figure_class:
        for drawing in (positions, violation, energy, overlay):
            figure = drawing(figure_class, config, data)
            files.append(folder / f"{drawing.__name__}.png")
            figure.savefig(files[-1], bbox_inches="tight")
    return files


def positions(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Returns a figure of x, y and theta of all bodies; a band spans the worlds."""
    names = [body.name for body in config.mechanism.bodies]
    thin = _thinned(data)
    q = thin.q.isel(world=slice(0, _WORLDS_IN_BAND)).values
    figure = figure_class(figsize=(9, 7.5), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    for row, (axes, (coordinate, unit)) in enumerate(zip(panels, _ROWS, strict=True)):
        for index, name in enumerate(names):
            values = q[..., 3 * index + row]
            style = line_style(index)
            if len(values) > 1:
                axes.fill_between(thin.time, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.18, linewidth=0)
            axes.plot(thin.time, values[0], label=name, **style)
        axes.set_ylabel(f"{coordinate} in {unit}")
        axes.margins(x=0)
    worlds = f"; bands: {len(q)} worlds" if len(q) > 1 else ""
    panels[0].set_title(f"{config.name}: centers of mass and angles, nominal world{worlds}")
    panels[-1].set_xlabel("time in s")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def violation(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Returns a figure of the constraint violation of positions and velocities, log axes."""
    figure = figure_class(figsize=(9, 5.5), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    drawn = (("violation", "largest |g|", "m or rad"), ("velocity_violation", "largest |dg/dt|", "m/s or rad/s"))
    for axes, (name, quantity, unit) in zip(panels, drawn, strict=True):
        values = data[name].values
        time, peaks = _peaks(data.time.values, values)
        _draw_peaks(axes, time, peaks)
        axes.set_ylabel(f"{quantity} in {unit}")
        axes.margins(x=0)
    panels[0].set_title(f"{config.name}: constraint violation, largest of all steps\n{_method(config)}")
    if data.sizes["world"] > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    panels[-1].set_xlabel("time in s")
    return figure


def energy(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Returns a figure of the energies, and of what is missing in their balance."""
    thin = _thinned(data)
    figure = figure_class(figsize=(9, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    kinetic, potential, work = (thin[name].values for name in ("kinetic_energy", "potential_energy", "work"))
    lines = (
        ("kinetic", kinetic[0]),
        ("potential", potential[0]),
        ("kinetic + potential", (kinetic + potential)[0]),
        ("work done on it", work[0]),
    )
    for index, (label, values) in enumerate(lines):
        if label != "work done on it" or np.any(values):
            upper.plot(thin.time, values, label=label, **line_style(index))
    upper.set_ylabel("energy in J")
    upper.set_title(f"{config.name}: energy of the nominal world")
    upper.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    time, peaks = _peaks(data.time.values, np.abs(balance(data)))
    _draw_peaks(lower, time, peaks)
    lower.set_ylabel("error of the balance\n|E - E(0) - work| in J")
    lower.set_xlabel("time in s")
    if len(peaks) > 1:
        lower.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    for axes in (upper, lower):
        axes.margins(x=0)
    return figure


def overlay(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Returns a figure of the mechanism of the nominal world at several instants."""
    time = data.time.values
    wanted = config.output.overlay
    instants = np.linspace(time[0], time[-1], 6) if wanted is None else np.asarray(wanted)
    chosen = np.unique(np.abs(time[None, :] - instants[:, None]).argmin(axis=1))
    nominal = data.q.isel(world=0)
    shape = (-1, len(config.mechanism.bodies), 3)
    stride = max(1, len(time) // _POINTS)
    figure = figure_class(figsize=(8.5, 6.5), layout="constrained")
    axes = figure.subplots()
    picture.draw(
        axes,
        config.mechanism,
        time[chosen],
        nominal.isel(time=chosen).values.reshape(shape),
        nominal.isel(time=slice(None, None, stride)).values.reshape(shape),
    )
    axes.set_title(f"{config.name}: nominal world")
    axes.grid(color="#f0f0f0")
    axes.tick_params(colors=GRAY)
    return figure


def balance(data: xr.Dataset) -> np.ndarray:
    """Returns E - E(0) - work (world, time) in J, zero for an exact simulation."""
    total = data.kinetic_energy.values + data.potential_energy.values
    return total - total[:, :1] - data.work.values


def _thinned(data: xr.Dataset) -> xr.Dataset:
    """Returns the data set with at most about as many instants as a plot can show."""
    return data.isel(time=slice(None, None, max(1, data.sizes["time"] // _POINTS)))


def _peaks(time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest value of each stretch of time: peaks survive where points do not fit."""
    stride = max(1, len(time) // _POINTS)
    starts = np.arange(0, len(time), stride)
    return time[starts], np.maximum.reduceat(values, starts, axis=1)


def _draw_peaks(axes: Any, time: np.ndarray, peaks: np.ndarray) -> None:
    """Draws the nominal world and the largest of all on a log axis over whole decades, two at least.

    Zero is drawn at the lower edge, and round-off does not look like a mountain range.
    """
    positive = peaks[np.isfinite(peaks) & (peaks > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if positive.size else (-18.0, -16.0)
    low, high = np.floor(low), np.ceil(high)
    low = min(low, high - 2)
    if len(peaks) > 1:
        largest = np.maximum(peaks.max(axis=0), 10.0**low)
        axes.plot(time, largest, color=COLORS[1], linewidth=0.9, label=f"largest of {len(peaks)} worlds")
    axes.plot(time, np.maximum(peaks[0], 10.0**low), color=COLORS[0], linewidth=0.9, label="nominal world")
    axes.set_yscale("log")
    axes.set_ylim(10.0**low, 10.0**high)


def _method(config: Config) -> str:
    parts = [config.integrator.type]
    projection = config.integrator.projection
    if projection is None or (projection.position is None and not projection.velocity):
        parts.append("no projection")
    else:
        parts.append(
            "projection of " + " and ".join(w for w, on in (("positions", projection.position), ("velocities", projection.velocity)) if on)
        )
    if config.stabilization.type != "none":
        parts.append(config.stabilization.type)
    return ", ".join(parts) + f", dt = {config.dt:g} s, {config.precision}"
