"""Labeled results on disk with dimensions world, time, coordinate and row, filled chunk by chunk.

The store is created completely at the start of a run. If each velocity is the rate of a coordinate,
velocities have the names of coordinates. With quaternions, velocities have their own dimension `velocity`. In
absolute coordinates, q and v are the poses and twists of the bodies. In joint coordinates, `pose` and `twist`
hold them, with the dimensions `body`, `in_pose` and `in_twist`.

Every Zarr library reads Zarr version 2 with consolidated metadata without warnings. The store also contains
chunks of zeros: readers silently fill in missing chunks, so damage is detectable only if no chunk is ever
omitted.
"""

import itertools
import logging
import math
import pathlib
import shutil
from typing import Any

import numpy as np
import xarray as xr
import zarr

from jaxdae.app.config import safe_files
from jaxdae.app.config.schema import Config
from jaxdae.app.model import config_laws, coordinate_names
from jaxdae.app.model.coordinate_names import Entries
from jaxdae.app.runs import store_digests
from jaxdae.app.runs.result_grid import Grid, Range
from jaxdae.base.atomic_writes import beside, force_names
from jaxdae.systems.status import Status
from jaxdae.vehicles.tire_slips import tires_with_slip

_SCALARS = 5  # violations, energies and work, one number each
_STATUS = 4  # bytes
_IN_BODIES: dict[str, dict[str, list[str]]] = {
    "plane": {"in_pose": ["x", "y", "theta"], "in_twist": ["vx", "vy", "omega"]},
    "space": {
        "in_pose": ["x", "y", "z", "qw", "qx", "qy", "qz"],
        "in_twist": ["vx", "vy", "vz", "omega_body_x", "omega_body_y", "omega_body_z"],
    },
}


_TOUCHING = {
    "contact_gap": ("gaps of the contacts; negative: penetration", ("contact",), "m"),
    "contact_slip": ("tangential velocities of the contacts", ("contact", "tangent"), "m/s"),
    "contact_force": (
        "mean forces on body b of the contacts, in their axes, in the step that ends at this time",
        ("contact", "axis"),
        "N",
    ),
    "limit_gap": ("distances of joint coordinates from their limits", ("limit",), "see limit_unit"),
    "limit_force": (
        "mean forces of the joint limits in the step that ends at this time",
        ("limit",),
        "N for limits in m, N m for limits in rad",
    ),
    "friction_force": (
        "mean forces of the dry friction along joint coordinates in the step that ends at this time",
        ("friction",),
        "see friction_unit",
    ),
    "slip_ratio": ("slip ratios of the tires, positive when driving", ("tire",), "1"),
    "slip_angle": ("slip angles of the tires, positive for motion to the left", ("tire",), "rad"),
}
"""Variables of contacts, limits, dry friction and tires, as in `variables`; forces are NaN at the start."""


def variables(
    entries: Entries,
    absolute: bool,
    driven: bool,
    first_order: bool = False,
    touching: tuple[str, ...] = (),
) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return the stored variables by name: meaning, dimensions beyond world and time, and units.

    Args:
        entries: the names of coordinates and velocities.
        absolute: whether coordinates and velocities are poses and twists of the bodies.
        driven: whether inputs over time or a law drive forces.
        first_order: whether drives prescribe velocities; multipliers are then not forces.
        touching: "contact" for a mechanism with contacts, "limit" with joint limits, "friction" with exact
            dry friction in joints, and "tire" with planar tires.
    """
    push, linear, angular = (
        ("the velocities are", "m/s", "rad/s") if first_order else ("the constraint force is", "N", "N m")
    )
    inputs = {"u": ("inputs of the step that starts at this time", ("input",), "see input_unit")}
    moving = "coordinate" if entries.flat else "velocity"
    rate, second = (
        ("see unit, per s", "see unit, per s^2")
        if entries.flat
        else ("see velocity_unit", "see velocity_unit, per s")
    )
    bodies = {
        "pose": (
            "poses of the centers of mass of the bodies",
            ("body", "in_pose"),
            "m; angles rad; quaternions body to world",
        ),
        "twist": ("velocities of the centers of mass of the bodies", ("body", "in_twist"), "m/s and rad/s"),
    }
    more = ({} if absolute else bodies) | (inputs if driven else {})
    more |= {name: found for name, found in _TOUCHING.items() if found[1][0] in touching}
    return {
        "q": ("coordinates", ("coordinate",), "see unit"),
        "v": ("velocities", (moving,), rate),
        "a": ("accelerations", (moving,), second),
        "lam": (
            f"multipliers; {push} +J^T lam",
            ("row",),
            f"{linear} for rows in m or m/s, {angular} for rows in rad or rad/s",
        ),
        "violation": ("largest constraint violation since the previous entry", (), "m or rad"),
        "velocity_violation": (
            "largest violation of the velocity constraints since the previous entry",
            (),
            "m/s or rad/s",
        ),
        "status": ("jaxdae.Status of the world; 0 is OK", (), "1"),
        "kinetic_energy": ("kinetic energy", (), "J"),
        "potential_energy": ("potential energy of gravity and springs", (), "J"),
        "work": (
            "work of motors, given forces, dampers, friction and prescribed motions since the start",
            (),
            "J",
        ),
    } | more


def entry_bytes(system: Any, real: int) -> int:
    """Return the size in bytes of one saved state of one world before compression.

    Args:
        system: the mechanism.
        real: bytes per number.
    """
    entries = coordinate_names.of_system(system)
    mechanism = coordinate_names.mechanism_of(system)
    bodies = (
        0
        if coordinate_names.is_absolute(system)
        else len(mechanism.body_names) * (7 + 6 if mechanism.space.dimension == 3 else 3 + 3)
    )
    inputs = 0 if system.first_order else system.n_inputs or 0
    labels = touching_labels(system)
    sizes = {name: len(label) for name, label in labels.items()}
    touching = [
        math.prod(sizes[d] for d in along) for _, along, _ in _TOUCHING.values() if along[0] in labels
    ]
    numbers = (
        sum(touching)
        + len(entries.coordinates)
        + 2 * len(entries.velocities)
        + len(system.row_names)
        + bodies
        + inputs
    )
    return real * (numbers + _SCALARS) + _STATUS


def poses(data: xr.Dataset, count: int) -> xr.DataArray:
    """Return the poses (world, time, body, 3 or 7) of a run in absolute or joint coordinates.

    Args:
        data: the results.
        count: the number of bodies.
    """
    if "pose" in data:
        return data.pose
    shaped = data.q.values.reshape(*data.q.shape[:2], count, data.q.shape[2] // count)
    return xr.DataArray(shaped, dims=("world", "time", "body", "in_pose"))


def create(
    store: pathlib.Path,
    listed: pathlib.Path,
    config: Config,
    grid: Grid,
    system: Any,
    parameters: dict[str, np.ndarray],
) -> None:
    """Create the store of a run with all names, units, instants and varied numbers, but without results.

    The store is put in place atomically, after the list of its files. If another process of the same run was
    faster, its store stays; it has the same bytes.

    Args:
        store: the folder of the store.
        listed: the file that lists the files of the store with their digests.
        config: the config.
        grid: the chunking of the results.
        system: the mechanism, for the names and units of its coordinates, velocities, rows and bodies.
        parameters: varied numbers: path and values (world,).

    Raises:
        OSError: the disk is full or missing.
    """
    partial = beside(store)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _fill(partial, config, grid, system, parameters)
        made = sorted(file for file in partial.rglob("*") if file.is_file())
        digests = {file.relative_to(partial).as_posix(): safe_files.forced(file) for file in made}
        for folder in {file.parent for file in made}:
            force_names(folder)
        safe_files.write_text(listed, store_digests.lines(digests))
        partial.rename(store)
        force_names(store.parent)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not (store / ".zmetadata").exists():
            raise


def _fill(
    store: pathlib.Path, config: Config, grid: Grid, system: Any, parameters: dict[str, np.ndarray]
) -> None:
    labels = _labels(system) | _inputs(config)
    data = xr.Dataset({}, labels | {"world": np.arange(grid.size), "time": instants(config, grid)})
    data.time.attrs = {"long_name": "time", "units": "s"}
    if parameters:
        data = data.assign_coords(parameter=list(parameters))
        data["varied"] = (("world", "parameter"), np.stack(list(parameters.values()), axis=1))
        data.varied.attrs = {"long_name": "numbers of the config that differ between worlds"}
    data.attrs = {
        "name": config.name,
        "description": config.description,
        "dt_s": config.dt,
        "integrator": config.integrator.type,
    }
    data.to_zarr(
        store,
        mode="w-",
        zarr_format=2,
        consolidated=False,
        encoding={"time": {"chunks": (100_000,)}},
        write_empty_chunks=True,
    )
    sizes = {name: len(label[1] if isinstance(label, tuple) else label) for name, label in labels.items()}
    root = zarr.open_group(store, mode="r+", zarr_format=2)
    stored = variables(
        coordinate_names.of_system(system),
        coordinate_names.is_absolute(system),
        "input" in labels,
        system.first_order,
        tuple(name for name in ("contact", "limit", "friction", "tire") if name in labels),
    )
    for name, (meaning, extra, units) in stored.items():
        shape = tuple(sizes[dimension] for dimension in extra)
        exact = name == "status"
        root.create_array(
            name,
            shape=(grid.size, grid.saved, *shape),
            chunks=(grid.worlds, min(grid.entries, grid.saved), *(max(1, n) for n in shape)),
            dtype="int32" if exact else config.precision,
            # Values without a simulation are NaN. A fill value for the status would make readers convert it
            # to float.
            fill_value=None if exact else np.nan,
            attributes={"long_name": meaning, "units": units, "_ARRAY_DIMENSIONS": ["world", "time", *extra]},
        )
    zarr.consolidate_metadata(store, zarr_format=2)


def instants(config: Config, grid: Grid) -> np.ndarray:
    """Return the times (time,) of the saved states of a run in s."""
    return config.dt * (config.save_every * np.arange(grid.saved))


def _labels(system: Any) -> dict[str, Any]:
    entries = coordinate_names.of_system(system)
    labels: dict[str, Any] = {
        "coordinate": entries.names,
        "unit": ("coordinate", [unit for _, unit in entries.coordinates]),
        "row": list(system.row_names),
        "row_unit": ("row", list(system.names.row_units)),
    }
    if not entries.flat:
        labels["velocity"] = [name for name, _ in entries.velocities]
        labels["velocity_unit"] = ("velocity", [unit for _, unit in entries.velocities])
    if not coordinate_names.is_absolute(system):
        mechanism = coordinate_names.mechanism_of(system)
        bodies = mechanism.body_names[: len(mechanism.body_names) - len(mechanism.rotors)]
        labels |= {"body": list(bodies)} | _IN_BODIES[mechanism.space.name]
    return labels | touching_labels(system)


def touching_labels(system: Any) -> dict[str, Any]:
    """Return the names of contacts with pairs, of joint limits and dry friction with units, and of tires.

    A first-order mechanism has no contact forces and no tires, and no labels.
    """
    mechanism, labels = coordinate_names.mechanism_of(system), {}
    if system.first_order:
        return labels
    if (contacts := mechanism.contacts) is not None:
        axes = ["normal", "tangent1", "tangent2"][: mechanism.space.dimension]
        labels |= {"contact": list(contacts.names), "axis": axes, "tangent": axes[1:]}
        labels["pair"] = ("contact", list(contacts.pair_names))
    if (limits := mechanism.joint_limits) is not None:
        units = ["rad" if limits.angular[k] else "m" for k in limits.of_rows]
        labels |= {"limit": list(limits.names), "limit_unit": ("limit", units)}
    if (friction := mechanism.joint_friction) is not None:
        units = ["N m" if angular else "N" for angular in friction.angular]
        labels |= {"friction": list(friction.names), "friction_unit": ("friction", units)}
    if tires := tires_with_slip(mechanism):
        labels["tire"] = list(tires)
    return labels


def _arrays(store: pathlib.Path) -> dict[str, Any]:
    """Return the arrays (world, time, ...) of a store by name."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        arrays: Any = zarr.open_group(store, mode="r+", zarr_format=2, use_consolidated=True).arrays()
        return {
            name: array for name, array in arrays if array.attrs["_ARRAY_DIMENSIONS"][:2] == ["world", "time"]
        }


def chunk_files(store: pathlib.Path, grid: Grid, worlds: Range, written: int) -> list[str]:
    """Return the store files that are complete once `written` instants of some worlds are written."""
    rows = range(_whole_rows(grid, written))
    columns = _touched(worlds[0], worlds[1] - worlds[0], grid.worlds)
    arrays = [(name, array.ndim) for name, array in _arrays(store).items() if 0 not in array.shape]
    return [_key(name, column, row, ndim) for row in rows for name, ndim in arrays for column in columns]


def _whole_rows(grid: Grid, written: int) -> int:
    """Return the number of complete chunks along time after `written` instants.

    The last chunk of a run may be shorter.
    """
    return -(-grid.saved // grid.entries) if written == grid.saved else written // grid.entries


def what_is_in(name: str, grid: Grid) -> str:
    """Return the worlds and instants of a store file in words; empty for a file without results."""
    column, row, *_ = [*name.rpartition("/")[2].split("."), ""]
    if not (column.isdigit() and row.isdigit() and "/" in name):
        return ""
    worlds, entries = int(column) * grid.worlds, int(row) * grid.entries
    last = min(worlds + grid.worlds, grid.size) - 1, min(entries + grid.entries, grid.saved) - 1
    return f" (worlds {worlds} to {last[0]}, saved states {entries} to {last[1]})"


def _inputs(config: Config) -> dict[str, Any]:
    values = config.model_dump()
    # The inputs of drives are rates, which the saved velocities already contain.
    names = [] if values["mechanism"]["order"] == "first" else config_laws.driven_names(values)
    return {"input": names, "input_unit": ("input", config_laws.input_units(values))} if names else {}


class Writer:
    """Write the saved states of a part of a run into its region of the store, chunk by chunk.

    A chunk is written when all of its instants are available; `pending` holds the remaining instants. A
    listed file is therefore complete. After a kill, the writer writes everything since the last checkpoint
    again, from data in the checkpoint.

    Args:
        store: the folder of the store.
        grid: the chunking of the results.
        worlds: the worlds of the part (first, past the last).
        listed: the file that lists the complete files, see `jaxdae.app.runs.store_digests`.
        written: the number of instants already in the store.
        pending: the following instants, (world, time, ...) by name.
    """

    def __init__(
        self,
        store: pathlib.Path,
        grid: Grid,
        worlds: Range,
        listed: pathlib.Path,
        written: int = 0,
        pending: dict[str, np.ndarray] | None = None,
    ):
        """Open the store."""
        self._store, self._grid, self._first, self._listed = store, grid, worlds[0], listed
        self._blocks = [pending] if pending else []
        self.written = written
        self._arrays = _arrays(store)
        store_digests.keep(listed, chunk_files(store, grid, worlds, written))
        self._remove_later(worlds[1])

    def _remove_later(self, behind: int) -> None:
        """Remove later chunks of a killed writer: they may be truncated and are written again."""
        columns = range(self._first // self._grid.worlds, -(-behind // self._grid.worlds))
        for name, column in itertools.product(self._arrays, columns):
            for file in (self._store / name).glob(f"{column}.*"):
                row = file.name.split(".")[1]
                if row.isdigit() and int(row) >= _whole_rows(self._grid, self.written):
                    file.unlink(missing_ok=True)

    @property
    def pending(self) -> dict[str, np.ndarray]:
        """The instants not yet in the store, (world, time, ...) by name; empty if all are written."""
        if len(self._blocks) > 1:
            self._blocks = [
                {
                    name: np.concatenate([block[name] for block in self._blocks], axis=1)
                    for name in self._arrays
                }
            ]
        return self._blocks[0] if self._blocks else {}

    def add(self, time: np.ndarray, block: dict[str, np.ndarray]) -> None:
        """Add a block and write the complete chunks.

        The block has instants (time,) and arrays (world, time, ...) by the names of `variables`.

        Raises:
            OSError: the disk is full or missing.
        """
        del time  # The store contains all instants from the start.
        self._blocks.append(block)
        waiting = sum(block["status"].shape[1] for block in self._blocks)
        if waiting >= self._grid.entries or self.written + waiting == self._grid.saved:
            whole = (
                waiting
                if self.written + waiting == self._grid.saved
                else waiting // self._grid.entries * self._grid.entries
            )
            store_digests.append(self._listed, self._write(whole))
            rest = {name: array[:, whole:] for name, array in self.pending.items()}
            self.written += whole
            self._blocks = [rest] if waiting > whole else []

    def flush(self) -> int:
        """Write the pending instants, too, in incomplete chunks, so that an interrupted run can be inspected.

        Returns:
            The number of instants then in the store.

        Raises:
            OSError: the disk is full or missing.
        """
        waiting = self.pending["status"].shape[1] if self._blocks else 0
        if waiting:
            self._write(waiting)
        return self.written + waiting

    def _write(self, count: int) -> dict[str, str]:
        """Write the first `count` pending instants and sync the files; return their digests by name."""
        digests: dict[str, str] = {}
        try:
            for name, array in self._arrays.items():
                value = self.pending[name][:, :count]
                if value.size:
                    array[self._first : self._first + value.shape[0], self.written : self.written + count] = (
                        value
                    )
                    digests |= self._forced(name, value)
        except OSError:
            # Chunks are written concurrently. This function raises one error; asyncio would log the other
            # errors later with tracebacks.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise
        return digests

    def _forced(self, name: str, value: np.ndarray) -> dict[str, str]:
        worlds = _touched(self._first, value.shape[0], self._grid.worlds)
        rows = _touched(self.written, value.shape[1], self._grid.entries)
        keys = [_key(name, column, row, value.ndim) for column, row in itertools.product(worlds, rows)]
        digests = {key: safe_files.forced(self._store / key) for key in keys}
        force_names(self._store / name)
        return digests


def _key(name: str, column: int, row: int, ndim: int) -> str:
    """Return the path in the store of a chunk file."""
    return f"{name}/{'.'.join(map(str, (column, row, *[0] * (ndim - 2))))}"


def _touched(first: int, count: int, together: int) -> range:
    """Return the indices of the chunks that hold `count` entries from `first` on."""
    return range(first // together, (first + count - 1) // together + 1)


def read(store: pathlib.Path, written: list[list[int]] | None = None) -> xr.Dataset:
    """Return the data set in a store, loaded lazily.

    Args:
        store: the folder of the store.
        written: the extent of an interrupted run, as parts of worlds (first, past the last, instants); by
            default, all results exist. For an interrupted run, the result has the instants of the nominal
            world, and the worlds that are at least as far.
    """
    data = xr.open_zarr(store, chunks=None)
    if written is None:
        return data
    far = next((entries for first, _, entries in written if first == 0), 0)
    worlds = [world for first, behind, entries in written if entries >= far for world in range(first, behind)]
    return data.isel(world=worlds, time=slice(0, far))


def last_status(store: pathlib.Path, worlds: Range | None = None) -> dict[str, int]:
    """Return the number of worlds per final status, for all worlds or a range of complete worlds."""
    with read(store) as data:
        codes, counts = np.unique(
            data.status.isel(time=-1, world=slice(*(worlds or (None,)))).values, return_counts=True
        )
    return {Status(int(code)).name: int(count) for code, count in zip(codes, counts, strict=True)}
