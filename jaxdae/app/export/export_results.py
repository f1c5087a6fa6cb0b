"""`jaxdae export`: export the results of a run as CSV, NPZ or MCAP; see docs/results.md."""

import csv
import importlib
import io
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.runs import open_run, results, run_folder
from jaxdae.base.atomic_writes import PARTIAL, whole

FORMATS = ("csv", "npz", "mcap")

_ALONG = {"q": "coordinate", "v": "velocity", "a": "velocity", "lam": "row", "u": "input"}
_OF_CONTACTS = {
    "contact_gap": "m",
    "contact_slip": "m/s",
    "contact_force": "N",
    "limit_gap": "",
    "limit_force": "",
    "friction_force": "",
    "slip_ratio": "1",
    "slip_angle": "rad",
}
"""Variables of contacts, limits, dry friction and tires, with units; empty if they depend on the joint."""
_SCALARS = ("violation", "velocity_violation", "kinetic_energy", "potential_energy", "work", "status")


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        name: name, such as "q.crank.theta", "lam.A.x", "pose.crank.x" or "status".
        unit: unit, such as "rad".
        variable: the variable of the results.
        index: index of the column's entry in that variable.
    """

    name: str
    unit: str
    variable: str
    index: tuple[int, ...]


def columns(data: xr.Dataset) -> list[Column]:
    """Return the columns of the results, without world and time."""
    found = []
    for name, along in _ALONG.items():
        if name not in data:  # for example, inputs of a mechanism without inputs
            continue
        along = "coordinate" if along not in data.dims else along
        given = "unit" if along == "coordinate" else f"{along}_unit"
        units = (
            [str(unit) for unit in data[given].values]
            if along == "velocity" or name in ("q", "lam", "u")
            else [f"{u}/s" for u in data[given].values]
        )
        if name == "lam":
            of_lengths, of_angles = (
                ("N", "N m") if str(data.lam.attrs["units"]).startswith("N") else ("m/s", "rad/s")
            )
            units = [of_lengths if unit.startswith("m") else of_angles for unit in units]
        elif name == "a":
            units = [
                _per_second(unit if along == "velocity" else f"{data[given].values[k]}/s")
                for k, unit in enumerate(units)
            ]
        found += [
            Column(f"{name}.{label}", units[k], name, (k,)) for k, label in enumerate(data[along].values)
        ]
    for name, entries, kinds in (("pose", "in_pose", ("m", "rad")), ("twist", "in_twist", ("m/s", "rad/s"))):
        for k, body in enumerate(data.body.values if name in data else ()):
            for j, entry in enumerate(data[entries].values):
                unit = "1" if str(entry).startswith("q") else kinds[str(entry).startswith(("theta", "omega"))]
                found.append(Column(f"{name}.{body}.{entry}", unit, name, (k, j)))
    found += [column for name in _OF_CONTACTS if name in data for column in _contact_columns(data, name)]
    return found + [Column(name, str(data[name].attrs.get("units", "1")), name, ()) for name in _SCALARS]


def _contact_columns(data: xr.Dataset, name: str) -> Iterator[Column]:
    """Yield the columns of a variable of contacts, joints or tires, such as "contact_force.foot.normal"."""
    along = [data[dimension].values for dimension in data[name].dims if dimension not in ("world", "time")]
    for index in np.ndindex(*map(len, along)):
        labels = ".".join(str(values[k]) for values, k in zip(along, index, strict=True))
        unit = _OF_CONTACTS[name]
        if not unit:
            unit = str(data[f"{name.split('_')[0]}_unit"].values[index[0]])
        if name == "limit_force":
            unit = "N" if unit == "m" else "N m"
        yield Column(f"{name}.{labels}", unit, name, index)


def _per_second(unit: str) -> str:
    return unit[:-2] + "/s^2" if unit.endswith("/s") else f"{unit}/s"


def export(
    found: open_run.Opened, kind: str, out: pathlib.Path | None = None, worlds: int | None = None
) -> list[pathlib.Path]:
    """Export the results of a run and return the paths of the files.

    Args:
        found: the run folder.
        kind: "csv", "npz" or "mcap".
        out: the file; by default results.csv, results.npz or results.mcap in the run folder.
        worlds: number of worlds to export, starting with world 0; None for all.

    Raises:
        Refused: the run has no results, or the file is not writable.
        ModuleNotFoundError: MCAP export without the package foxglove.
    """
    store = found.folder / run_folder.RESULTS
    path = found.folder / f"results.{kind}" if out is None else out
    write: dict[str, Callable[..., list[pathlib.Path]]] = {"csv": _csv, "npz": _npz, "mcap": _mcap}
    safe_files.check_place(path, ", or choose another --out")
    try:
        with results.read(store, found.record.get("written")) as data:
            return write[kind](path, data.isel(world=slice(0, worlds)), found)
    except OSError as error:
        raise Refused(safe_files.explained(error, path)) from error


# Tables.


def _csv(path: pathlib.Path, data: xr.Dataset, found: open_run.Opened) -> list[pathlib.Path]:
    """Write one row per world and time, and a second file with the meaning of the columns."""
    shown = columns(data)
    values = {name: data[name].values for name in {column.variable for column in shown}}
    with whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["world", "time", *(column.name for column in shown)])
        for k, world in enumerate(data.world.values):
            rows = [values[column.variable][(k, slice(None), *column.index)] for column in shown]
            for time, *row in zip(data.time.values, *rows, strict=True):
                # The repr of a float is the shortest text that parses to the same number.
                writer.writerow([int(world), repr(float(time)), *(repr(x.item()) for x in row)])
    legend = path.with_name(f"{path.stem}_columns.csv")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["column", "unit", "meaning"])
    writer.writerows([("world", "1", "number of the world; 0 is the nominal world"), ("time", "s", "time")])
    writer.writerows(
        (column.name, column.unit, data[column.variable].attrs.get("long_name", "")) for column in shown
    )
    safe_files.write_text(legend, text.getvalue())
    return [path, legend]


def _npz(path: pathlib.Path, data: xr.Dataset, found: open_run.Opened) -> list[pathlib.Path]:
    """Write all variables as arrays, with their coordinates and the names of their axes."""
    arrays: dict[str, Any] = {
        str(name): np.asarray(data[name].values) for name in [*data.data_vars, *data.coords]
    }
    arrays = {name: x.astype(str) if x.dtype.kind in "OT" else x for name, x in arrays.items()}
    arrays |= {f"axes_of_{name}": np.array(data[name].dims) for name in data.data_vars}
    with whole(path) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    return [path]


# Messages.


def _mcap(path: pathlib.Path, data: xr.Dataset, found: open_run.Opened) -> list[pathlib.Path]:
    """Write timestamped transforms, shapes, named coordinates and multipliers of every world."""
    try:
        foxglove: Any = importlib.import_module("foxglove")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "MCAP needs the extra export: pip install '.[export]' in a clone of jaxdae", name="foxglove"
        ) from error
    from jaxdae.app.export.view_run import Seen

    seen = Seen(found, data.sizes["world"], all_instants=True)
    context = foxglove.Context()
    ended = path.with_name(f"{path.stem}{PARTIAL}{path.suffix}")  # the writer expects this extension
    with whole(path, ended) as partial, foxglove.open_mcap(partial, context=context) as _:
        for k, world in enumerate(data.world.values):
            _log_world(f"/world_{int(world)}", seen.scene, k, data.isel(world=k).load(), context)
    return [path]


def _log_world(topic: str, scene: Any, world: int, data: xr.Dataset, context: Any) -> None:
    foxglove, channels, messages = (
        importlib.import_module(f"foxglove{name}") for name in ("", ".channels", ".messages")
    )

    prefix = topic.strip("/")
    transforms, shapes = (
        kind(f"{topic}/{name}", context=context)
        for kind, name in ((channels.FrameTransformsChannel, "tf"), (channels.SceneUpdateChannel, "scene"))
    )
    named = {
        name: foxglove.Channel(f"{topic}/{name}", context=context, message_encoding="json")
        for name in ("coordinates", "multipliers", "state")
    }
    shapes.log(
        messages.SceneUpdate(entities=list(_entities(prefix, scene))), log_time=_nanoseconds(scene.times[0])
    )
    shown = columns(data.expand_dims("world"))
    groups = {
        name: [c for c in shown if c.variable in of]
        for name, of in (("coordinates", "qv"), ("multipliers", ("lam",)), ("state", _SCALARS))
    }
    values = {name: data[name].values for name in {column.variable for column in shown}}
    for k, time in enumerate(scene.times):
        at, stamp = _nanoseconds(time), messages.Timestamp(*divmod(_nanoseconds(time), 1_000_000_000))
        found = []
        for j, body in enumerate(scene.bodies):
            x, y, z, qw, qx, qy, qz = (float(number) for number in scene.poses[world, k, j])
            found.append(
                messages.FrameTransform(
                    timestamp=stamp,
                    parent_frame_id=prefix,
                    child_frame_id=f"{prefix}/{body}",
                    translation=messages.Vector3(x=x, y=y, z=z),
                    rotation=messages.Quaternion(x=qx, y=qy, z=qz, w=qw),
                )
            )
        transforms.log(messages.FrameTransforms(transforms=found), log_time=at)
        for name, channel in named.items():
            message = {
                column.name.removeprefix("lam."): values[column.variable][(k, *column.index)].item()
                for column in groups[name]
            }
            channel.log({"time": float(time)} | message, log_time=at)


def _nanoseconds(time: Any) -> int:
    # A log cannot hold negative times.
    return max(0, round(float(time) * 1e9))


def _entities(prefix: str, scene: Any) -> Iterator[Any]:
    """Yield the solids of a world in the frames of their bodies."""
    messages = importlib.import_module("foxglove.messages")

    for part in scene.parts:
        red, green, blue = (x / 255.0 for x in part.color)
        triangles = messages.TriangleListPrimitive(
            points=[messages.Point3(x=float(x), y=float(y), z=float(z)) for x, y, z in part.mesh.vertices],
            indices=[int(k) for k in part.mesh.faces.reshape(-1)],
            color=messages.Color(r=red, g=green, b=blue, a=1.0),
        )
        frame = prefix if part.body < 0 else f"{prefix}/{scene.bodies[part.body]}"
        yield messages.SceneEntity(frame_id=frame, id=part.name, frame_locked=True, triangles=[triangles])
