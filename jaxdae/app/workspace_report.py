"""The results of `jaxdae map`: a workspace over a grid as a table, pictures and arrays."""

import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import kinematics
from jaxdae.app.config.config_elements import orientation
from jaxdae.app.config.precision import precision
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_kinematics import Map
from jaxdae.app.draw.plot_style import styled
from jaxdae.app.experiment_report import conclude
from jaxdae.app.experiment_script import Script
from jaxdae.app.model.config_outline import outline
from jaxdae.app.model.coordinate_names import mechanism_of
from jaxdae.systems.status import Status
from jaxdae.viewer.outline import placed

NUMBERS = "map.npz"
TITLES = {
    "type1": "distance from type 1",
    "type2": "distance from type 2",
    "dexterity": "dexterity",
    "manipulability": "manipulability",
    "smallest_singular_value": "smallest singular value",
    "margin": "distance from limits in rad or m",
}
_SLICES = 6


def report(asked: Script) -> None:
    """Print the table of a map, and write it to a new run folder with pictures and arrays."""
    section: Any = asked.config.map
    with precision(asked.config):
        system, _, start = asked.worlds.one()
        mechanism = mechanism_of(system)
        found = _solved(mechanism, section, start)
        frames = jax.tree.map(np.asarray, mechanism.frames(start.q)._asdict())
    arrays: dict[str, Any] = _arrays(found, section)
    poses = None
    if section.z is None:
        places = np.stack([frames[name] for name in ("x", "y", "angle")], axis=-1)
        poses = dict(zip(mechanism.body_names, places, strict=True))

    def write(folder: pathlib.Path) -> None:
        np.savez_compressed(folder / NUMBERS, **arrays)

    figures = {name: figure(asked.config, arrays, name, poses) for name in section.quantities}
    headings = ("quantity", "smallest", f"at ({', '.join(section.axes)}) in m", "median", "largest")
    conclude(asked, headings, list(_rows(section, arrays)), list(_sentences(section, arrays)), figures, write)


def _solved(mechanism: Any, section: Map, start: Any) -> kinematics.Workspace:
    """Return the workspace; leaves have the shape of the grid as their leading axes."""
    places = np.meshgrid(*(axis.centers for axis in section.axes.values()), indexing="ij")
    turn = section.theta if section.rpy is None else jnp.stack(orientation({"rpy": section.rpy}))

    def pose(place: Any) -> kinematics.PoseTarget:
        return kinematics.PoseTarget(section.body, place, turn, section.point)

    points = jnp.asarray(np.stack(places, axis=-1), start.q.dtype)
    return kinematics.workspace(mechanism, pose, points, start, section.actuated)


def _arrays(found: kinematics.Workspace, section: Map) -> dict[str, np.ndarray]:
    """Return the arrays of the file: axes, coordinates, status and all quantities, by name."""
    transmission = found.transmission
    quantities = {name: getattr(transmission, name) for name in TITLES if hasattr(transmission, name)}
    quantities["smallest_singular_value"] = transmission.dexterity * transmission.singular_values[..., 0]
    arrays = {"reachable": found.reachable, "status": found.info.status, "crossed": found.info.crossed}
    arrays |= {"q": found.state.q, "margin": found.margin, **quantities}
    axes = {name: axis.centers for name, axis in section.axes.items()}
    return axes | {name: np.asarray(x) for name, x in arrays.items()}


def _rows(section: Map, arrays: dict[str, np.ndarray]) -> Iterator[tuple[str, ...]]:
    """Yield the row of each quantity in the table, for reached poses."""
    reached = arrays["reachable"]
    for name in section.quantities if reached.any() else ():
        values = np.where(reached, arrays[name], np.nan)
        least = np.unravel_index(np.nanargmin(values), values.shape)
        place = ", ".join(f"{arrays[x][k]:.4g}" for x, k in zip(section.axes, least, strict=True))
        numbers = [f"{x:.4g}" for x in (values[least], np.nanmedian(values), np.nanmax(values))]
        yield TITLES[name], numbers[0], f"({place})", *numbers[1:]


def _sentences(section: Map, arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """Yield the findings: the reached area or volume, and the share of poses with each status."""
    reached, wide = arrays["reachable"], [axis for axis in section.axes.values() if axis.cells > 1]
    size = reached.sum() * np.prod([(axis.upper - axis.lower) / axis.cells for axis in wide])
    what, unit = ("area", "m^2") if len(wide) == 2 else ("volume", "m^3")
    yield f"{section.body} reaches {reached.sum()} of {reached.size} poses: {what} {size:.5g} {unit}."
    codes, counts = np.unique(arrays["status"], return_counts=True)
    told = [
        f"{Status(code).name} {n} ({n / reached.size:.1%})" for code, n in zip(codes, counts, strict=True)
    ]
    yield f"Status of the poses: {', '.join(told)}."
    if crossed := np.sum(arrays["crossed"] & reached):
        yield f"The path to {crossed} of the reached poses passes through a singular configuration."


def figure(
    config: Config, arrays: dict[str, np.ndarray], name: str, poses: dict[str, np.ndarray] | None
) -> Any:
    """Return the figure of a quantity: one panel in two dimensions, slices in three.

    Args:
        config: the config.
        arrays: the arrays of the map.
        name: the name of the quantity.
        poses: the start poses (3,) of all bodies in the plane, or None.
    """
    section: Any = config.map
    across, up, *deep = [key for key, axis in section.axes.items() if axis.cells > 1]
    values = np.squeeze(np.where(arrays["reachable"], arrays[name], np.nan))
    layers = values if deep else values[..., None]
    chosen = np.unique(np.linspace(0, layers.shape[2] - 1, _SLICES).round().astype(int))
    columns = min(len(chosen), 3)
    with styled() as figure_class:
        size = (6.5, 5.0) if not deep else (4.0 * columns + 1.0, 3.5 * -(-len(chosen) // columns))
        drawn = figure_class(figsize=size, layout="constrained")
        panels = drawn.subplots(-(-len(chosen) // columns), columns, squeeze=False).ravel()
        top = np.nanmax(layers) if arrays["reachable"].any() else 1.0
        for axes, k in zip(panels, chosen, strict=False):
            shades = axes.pcolormesh(
                arrays[across], arrays[up], layers[..., k].T, vmin=0.0, vmax=top, rasterized=True
            )
            axes.set(aspect="equal", xlabel=f"{across} in m", ylabel=f"{up} in m")
            axes.set_title(f"{deep[0]} = {arrays[deep[0]][k]:.4g} m" if deep else TITLES[name])
            if poses is not None:
                _draw_start(axes, config, poses)
        for axes in panels[len(chosen) :]:
            axes.remove()
        drawn.colorbar(shades, ax=panels[: len(chosen)].tolist(), label=TITLES[name] if deep else None)
        return drawn


def _draw_start(axes: Any, config: Config, poses: dict[str, np.ndarray]) -> None:
    """Draw the bodies of a planar mechanism at the start, and its joints on the ground."""
    shape = outline(config.mechanism)
    for name, corners in shape.bodies.items():
        axes.plot(*placed(poses[name], corners).T, color="black", marker="o", markersize=3)
    for point in shape.ground_points:
        axes.plot(*point, color="black", marker="^", markersize=8)
