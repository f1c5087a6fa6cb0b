"""The plots of a run: positions, constraint violation, energy balance and the overlay picture."""

import pathlib
from typing import Any

import numpy as np
import xarray as xr

from jaxdae.app.config.schema import Config
from jaxdae.app.draw import picture, picture_space
from jaxdae.app.draw.failure_times import Failures, entries_in_view
from jaxdae.app.draw.plot_style import COLORS, GRAY, line_style, styled
from jaxdae.app.model.config_outline import places
from jaxdae.app.runs import results

_POINTS = 2000
_WORLDS_IN_BAND = 1024
_STILL = 1e-11  # in m or rad
_RAN_AWAY = 100.0  # times the usual magnitude
_PLANAR = (("x", "m"), ("y", "m"), ("theta", "rad"))
_SPATIAL = (("x", "m"), ("y", "m"), ("z", "m"), ("rotation", "rad"))


def draw_all(folder: pathlib.Path, config: Config, data: xr.Dataset) -> list[pathlib.Path]:
    """Draw the plots of a run into a folder and return their files."""
    folder.mkdir(exist_ok=True)
    files = []
    with styled() as figure_class:
        joints = (coordinates,) if config.mechanism.coordinates == "joints" else ()
        # A first-order mechanism has no masses and no energies.
        energies = (energy,) if config.mechanism.order == "second" else ()
        touching = [contacts] * ("contact_gap" in data) + [limits] * ("limit_gap" in data)
        touching += [slip] * ("slip_ratio" in data)
        for drawing in (positions, *joints, violation, *energies, *touching, overlay):
            figure = drawing(figure_class, config, data)
            files.append(folder / f"{drawing.__name__}.png")
            figure.savefig(files[-1], bbox_inches="tight")
    return files


def positions(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the poses of all bodies.

    The panels show x, y and theta in the plane, and x, y, z and the rotation angle since the start in space.
    A band spans the worlds that did not fail.
    """
    names = [body.name for body in config.mechanism.bodies]
    rows, angle = (_SPATIAL, "rotation angles") if config.mechanism.space == "space" else (_PLANAR, "angles")

    def of_bodies(part: xr.Dataset, drawn: Any) -> list[np.ndarray]:
        poses = drawn(results.poses(part, len(names)).values)
        shown = (
            np.concatenate([poses[..., :3], _turn(poses[..., 3:])[..., None]], axis=-1)
            if poses.shape[-1] == 7
            else poses
        )
        return [shown[..., row] for row in range(len(rows))]

    labels = [(f"{quantity} in {unit}", names) for quantity, unit in rows]
    return _panels(figure_class, config, data, labels, of_bodies, f"centers of mass and {angle}")


def _turn(quaternions: np.ndarray) -> np.ndarray:
    """Return the rotation angles of quaternions (..., time, body, 4) since the start, in rad, at most pi."""
    start = quaternions[..., :1, :, :]
    scalar = np.sum(start * quaternions, axis=-1)
    vector = np.linalg.norm(quaternions - scalar[..., None] * start, axis=-1)
    return 2.0 * np.arctan2(vector, np.abs(scalar))


def coordinates(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the joint coordinates with one panel per unit.

    A band spans the worlds that did not fail.
    """
    names, units = data.coordinate.values, data.unit.values
    chosen = [(unit, np.flatnonzero(units == unit)) for unit in ("rad", "m", "") if np.any(units == unit)]
    labels = [
        (f"in {unit}" if unit else "quaternions", [str(name) for name in names[indices]])
        for unit, indices in chosen
    ]

    def of_joints(part: xr.Dataset, drawn: Any) -> list[np.ndarray]:
        q = drawn(part.q.values)
        return [q[..., indices] for _, indices in chosen]

    return _panels(figure_class, config, data, labels, of_joints, "joint coordinates")


def contacts(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the smallest gap, the normal force and the friction of each pair of shapes.

    The friction is the sum of the friction forces of a pair, divided by the sum of its normal forces. It is
    at most the friction coefficient, which it reaches at the edge of the friction cone. A force is the mean
    over the step that ends at its time, so an impact is a peak. A band spans the worlds that did not fail.
    """
    pairs = list(dict.fromkeys(data.pair.values.astype(str)))
    groups = [np.flatnonzero(data.pair.values == pair) for pair in pairs]

    def of_pairs(part: xr.Dataset, drawn: Any) -> list[np.ndarray]:
        gap, force = (drawn(part[name].values) for name in ("contact_gap", "contact_force"))
        size = np.linalg.norm(force[..., 1:], axis=-1)
        smallest = np.stack([gap[..., group].min(axis=-1) for group in groups], axis=-1)
        normal, friction = (
            np.stack([forces[..., group].sum(axis=-1) for group in groups], axis=-1)
            for forces in (force[..., 0], size)
        )
        return [smallest, normal, friction / np.where(normal == 0.0, 1.0, normal)]

    labels = [
        (label, pairs) for label in ("smallest gap in m", "normal force in N", "friction / normal force")
    ]
    return _panels(figure_class, config, data, labels, of_pairs, "contacts")


def limits(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the distances of joint coordinates from their limits, and of the limit forces."""
    names, units = data.limit.values, data.limit_unit.values
    chosen = [(unit, np.flatnonzero(units == unit)) for unit in ("rad", "m") if np.any(units == unit)]
    labels = []
    for unit, indices in chosen:
        quantity, lines = ("torque in N m", "force in N")[unit == "m"], [str(name) for name in names[indices]]
        labels += [(f"distance in {unit}", lines), (quantity, lines)]

    def of_limits(part: xr.Dataset, drawn: Any) -> list[np.ndarray]:
        gap, force = (drawn(part[name].values) for name in ("limit_gap", "limit_force"))
        return [values[..., indices] for _, indices in chosen for values in (gap, force)]

    return _panels(figure_class, config, data, labels, of_limits, "joint limits")


def slip(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the slip ratios in % and the slip angles in degrees of the tires."""
    names = [str(name) for name in data.tire.values]

    def of_tires(part: xr.Dataset, drawn: Any) -> list[np.ndarray]:
        return [100.0 * drawn(part.slip_ratio.values), np.rad2deg(drawn(part.slip_angle.values))]

    labels = [("slip ratio in %", names), ("slip angle in degrees", names)]
    return _panels(figure_class, config, data, labels, of_tires, "slip of the tires")


def _panels(
    figure_class: Any,
    config: Config,
    data: xr.Dataset,
    labels: list[tuple[str, list[str]]],
    read: Any,
    what: str,
) -> Any:
    """Return a figure of the panels (world, time, line) that `read` extracts from the results.

    Args:
        figure_class: the figure class of matplotlib.
        config: the config.
        data: the results.
        labels: for each panel, the axis label and the names of the lines.
        read: (part of the results, function that masks values (world, time, ...)) -> panels.
        what: the plotted quantities, for the title.
    """
    failures = Failures(data.status.values, data.time.values)
    chosen = _thinned(failures)
    time, survived = data.time.values[chosen], failures.survived[:_WORLDS_IN_BAND]
    nominal = [panel[0, chosen] for panel in read(data.isel(world=slice(0, 1)), failures.drawn)]
    band = read(data.isel(world=survived, time=chosen), lambda values: values)
    figure = figure_class(figsize=(9, 2.5 * max(len(labels), 2)), layout="constrained")
    panels = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
    shared = len({tuple(lines) for _, lines in labels}) == 1
    for row, (axes, (label, lines)) in enumerate(zip(panels, labels, strict=True)):
        for index, name in enumerate(lines):
            style = line_style(index)
            if data.sizes["world"] > 1 and len(survived):
                one = band[row][..., index]
                axes.fill_between(
                    time, one.min(axis=0), one.max(axis=0), color=style["color"], alpha=0.18, linewidth=0
                )
            _draw_nominal(axes, failures, time, nominal[row][:, index], label=name, **style)
        axes.set_ylabel(label)
        low, high = axes.get_ylim()
        if high - low < _STILL:
            # Keep the round-off of constant values small on the axis.
            axes.set_ylim(low - 1.0, high + 1.0)
        _fit_time(axes, failures)
        if failures.nominal is not None:
            _fit_values(axes, nominal[row], band[row])
        if not shared:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    worlds = (
        f"; bands: min to max of {len(survived)} worlds" if data.sizes["world"] > 1 and len(survived) else ""
    )
    worlds += " that did not fail" if worlds and str(failures) else ""
    _set_title(panels[0], f"{config.title}: {what}, nominal world{worlds}", failures)
    panels[-1].set_xlabel("time in s")
    if shared:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def violation(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the constraint violations of positions and velocities, with logarithmic axes."""
    failures = Failures(data.status.values, data.time.values)
    figure = figure_class(figsize=(9, 5.5), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    drawn = (
        ("violation", "largest |g|", "m or rad"),
        ("velocity_violation", "largest |dg/dt|", "m/s or rad/s"),
    )
    for axes, (name, quantity, unit) in zip(panels, drawn, strict=True):
        _draw_peaks(axes, failures, data[name].values)
        axes.set_ylabel(f"{quantity} in {unit}")
    _set_title(
        panels[0], f"{config.title}: constraint violation, largest of all steps\n{_method(config)}", failures
    )
    if data.sizes["world"] > 1:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    panels[-1].set_xlabel("time in s")
    return figure


def energy(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the energies and of the error of the energy balance."""
    failures = Failures(data.status.values, data.time.values)
    chosen = _thinned(failures)
    figure = figure_class(figsize=(9, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    kinetic, potential, work = (
        failures.drawn(data[name].isel(world=slice(0, 1)).values)[0, chosen]
        for name in ("kinetic_energy", "potential_energy", "work")
    )
    with np.errstate(over="ignore", invalid="ignore"):
        lines = [("kinetic", kinetic), ("potential", potential), ("kinetic + potential", kinetic + potential)]
    if np.any(np.nan_to_num(work)):
        lines.append(("work (motors, friction, ...)", work))
    for index, (label, values) in enumerate(lines):
        # The work line coincides with kinetic + potential if the balance holds and both start at zero.
        style = line_style(index) | ({"linestyle": "--"} if label.startswith("work") else {})
        _draw_nominal(upper, failures, data.time.values[chosen], values, label=label, **style)
    upper.set_ylabel("energy in J")
    _fit_time(upper, failures)
    if failures.nominal is not None:
        _fit_values(upper, np.stack([values for _, values in lines], axis=1), np.zeros(0))
    _set_title(upper, f"{config.title}: energy of the nominal world", failures)
    upper.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    _draw_peaks(lower, failures, np.abs(balance(data)))
    lower.set_ylabel(
        "change of energy\n|E - E(0)| in J"
        if config.touches
        else "energy balance error\n|E - E(0) - work| in J"
    )
    lower.set_xlabel("time in s")
    if data.sizes["world"] > 1:
        lower.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def overlay(figure_class: Any, config: Config, data: xr.Dataset) -> Any:
    """Return a figure of the nominal world at several instants, up to its failure."""
    mechanism = config.mechanism
    nominal = results.poses(data.isel(world=slice(0, 1)), len(mechanism.bodies)).values[0]
    failures = Failures(data.status.values, data.time.values)
    title = f"{config.title}: nominal world"
    if failures.nominal is not None:
        nominal = nominal[failures.good[0]]
        seen = entries_in_view(places(mechanism, nominal))
        if seen < len(nominal):
            nominal = nominal[:seen]
            title += (
                f"\ndrawn up to t = {data.time.values[seen - 1]:.4g} s, where the motion leaves the picture"
            )
    time = data.time.values[: len(nominal)]
    chosen = _instants(config, time)
    figure = figure_class(figsize=(8.5, 6.5), layout="constrained")
    drawn = time[chosen], nominal[chosen], nominal[:: max(1, len(time) // _POINTS)]
    if mechanism.space == "space":
        axes = figure.add_subplot(projection="3d")
        picture_space.draw(axes, mechanism, *drawn)
        _set_title(axes, title, failures)
        return figure
    axes = figure.subplots()
    picture.draw(axes, mechanism, *drawn)
    _set_title(axes, title, failures)
    axes.grid(color="#f0f0f0")
    axes.tick_params(colors=GRAY)
    return figure


def balance(data: xr.Dataset) -> np.ndarray:
    """Return E - E(0) - work (world, time) in J, which is zero for an exact simulation."""
    # Values of diverging worlds may have overflowed before the failure.
    with np.errstate(over="ignore", invalid="ignore"):
        total = data.kinetic_energy.values + data.potential_energy.values
        return total - total[:, :1] - data.work.values


def _instants(config: Config, time: np.ndarray) -> np.ndarray:
    """Return the saved states nearest to the instants of the picture.

    Instants after the last saved state are dropped, unless none would remain.
    """
    if config.output.overlay is None:
        wanted = np.linspace(time[0], time[-1], 6)
    else:
        wanted = np.asarray(config.output.overlay)
        within = wanted[wanted <= time[-1] * (1.0 + 1e-9)]
        wanted = within if within.size else time[-1:]
    return np.unique(np.abs(time[None, :] - wanted[:, None]).argmin(axis=1))


def _thinned(failures: Failures) -> np.ndarray:
    """Return the indices of the plotted states, including the last good state of the nominal world."""
    count = len(failures.time)
    return np.union1d(np.arange(0, count, max(1, count // _POINTS)), np.flatnonzero(failures.good[0])[-1:])


def _peaks(time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the maximum over each time interval, so that thinning preserves peaks."""
    stride = max(1, len(time) // _POINTS)
    starts = np.arange(0, len(time), stride)
    return time[starts], np.fmax.reduceat(values, starts, axis=1)


def _draw_nominal(axes: Any, failures: Failures, time: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """Draw the nominal world as a line, or as a dot if it failed at once."""
    at_once = failures.nominal is not None and failures.good[0].sum() == 1
    axes.plot(time, values, **style, **({"marker": "o", "clip_on": False} if at_once else {}))


def _set_title(axes: Any, title: str, failures: Failures) -> None:
    axes.set_title("\n".join(line for line in (title, str(failures)) if line))


def _fit_time(axes: Any, failures: Failures) -> None:
    """Mark the failure of the nominal world, and end the time axis there unless another world continues."""
    time, end = failures.time, failures.end
    axes.margins(x=0)
    if failures.nominal is not None:
        axes.axvline(
            time[failures.good[0]][-1],
            color="black",
            linestyle=":",
            linewidth=1.2,
            label="nominal world fails",
        )
    if time[0] < end < time[-1]:
        axes.set_xlim(time[0], min(time[0] + 1.03 * (end - time[0]), time[-1]))
    elif time[0] < time[-1]:
        axes.set_xlim(time[0], time[-1])


def _fit_values(axes: Any, nominal: np.ndarray, band: np.ndarray) -> None:
    """Limit the value axis if values diverged before a failure, and annotate the largest value.

    Args:
        axes: the axes with the lines.
        nominal: values of the nominal world (time, lines), NaN after its failure.
        band: values of the worlds that did not fail.
    """
    good = np.abs(nominal[np.isfinite(nominal).all(axis=-1)])
    # The first half shows the magnitude of the values before they diverge.
    usual = max(float(np.max(good[: max(1, len(good) // 2)])), float(np.max(np.abs(band), initial=0.0)), 1e-9)
    largest = float(np.max(good))
    if largest > _RAN_AWAY * usual:
        axes.set_ylim(-5.0 * usual, 5.0 * usual)
        note = {
            "va": "top",
            "fontsize": 9,
            "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        }
        axes.text(0.01, 0.97, f"diverges, up to {largest:.1e}", transform=axes.transAxes, **note)


def _draw_peaks(axes: Any, failures: Failures, values: np.ndarray) -> None:
    """Draw the nominal world and the maximum over the worlds that did not fail, on a logarithmic axis.

    The axis spans whole decades, at least two, so that round-off stays small. Zero is drawn at the lower
    edge.
    """
    worlds, survived = len(values), failures.survived
    shown = np.concatenate([failures.drawn(values)[:1], values[survived]])
    time, peaks = _peaks(failures.time, shown)
    positive = peaks[np.isfinite(peaks) & (peaks > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if positive.size else (-18.0, -16.0)
    low, high = np.floor(low), np.ceil(high)
    low = min(low, high - 2)
    if worlds > 1 and survived.size:
        largest = np.maximum(peaks[1:].max(axis=0), 10.0**low)
        which = "worlds" if survived.size == worlds else "worlds\nthat did not fail"
        axes.plot(time, largest, color=COLORS[1], linewidth=0.9, label=f"largest of {survived.size} {which}")
    _draw_nominal(
        axes,
        failures,
        time,
        np.maximum(peaks[0], 10.0**low),
        color=COLORS[0],
        linewidth=0.9,
        label="nominal world",
    )
    axes.set_yscale("log")
    axes.set_ylim(10.0**low, 10.0**high)
    _fit_time(axes, failures)


def _method(config: Config) -> str:
    parts = [config.integrator.type]
    projection = config.integrator.projection
    if projection is None or (projection.position is None and not projection.velocity):
        parts.append("no projection")
    else:
        parts.append(
            "projection of "
            + " and ".join(
                w for w, on in (("positions", projection.position), ("velocities", projection.velocity)) if on
            )
        )
    if config.stabilization.type != "none":
        parts.append(config.stabilization.type)
    return ", ".join(parts) + f", dt = {config.dt:g} s, {config.precision}"
