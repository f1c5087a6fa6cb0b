"""Labelled results on disk: dimensions world, time, coordinate and row; made whole at the beginning, filled chunk by chunk.

Where each velocity is the rate of a coordinate, velocities have the names of coordinates; where there are quaternions, they have a
dimension `velocity` of their own. In absolute coordinates q and v are the poses and twists of the bodies; in joint coordinates `pose` and
`twist` have these, with the dimensions `body`, `in_pose` and `in_twist`.

Zarr version 2 with consolidated metadata is what every Zarr library reads without warnings. Chunks of zeros are written, too: readers
fill in what is missing without a word, so that only a store in which nothing is ever left out can be seen to be damaged.
"""

import itertools
import logging
import pathlib
import shutil
from typing import Any

import numpy as np
import xarray as xr
import zarr

from jaxdae.app import files, laws, listing, naming
from jaxdae.app.grid import Grid, Range
from jaxdae.app.naming import Entries
from jaxdae.app.schema import Config
from jaxdae.disk import beside, force_names
from jaxdae.status import Status

_SCALARS = 5  # violations, energies and work, a number each
_STATUS = 4  # bytes
_IN_BODIES: dict[str, dict[str, list[str]]] = {
    "plane": {"in_pose": ["x", "y", "theta"], "in_twist": ["vx", "vy", "omega"]},
    "space": {
        "in_pose": ["x", "y", "z", "qw", "qx", "qy", "qz"],
        "in_twist": ["vx", "vy", "vz", "omega_body_x", "omega_body_y", "omega_body_z"],
    },
}


def variables(entries: Entries, absolute: bool, driven: bool, first_order: bool = False) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Returns what is stored: meaning, dimensions beyond world and time, and units, by name.

    Args:
        entries: the names of coordinates and velocities.
        absolute: whether these are poses and twists of the bodies.
        driven: whether inputs over time or a law drive forces.
        first_order: whether velocities are what drives say, where multipliers are no forces.
    """
    push, linear, angular = ("the velocities are", "m/s", "rad/s") if first_order else ("the constraint force is", "N", "N m")
    inputs = {"u": ("inputs of the step that begins here", ("input",), "see input_unit")}
    moving = "coordinate" if entries.flat else "velocity"
    rate, second = ("see unit, per s", "see unit, per s^2") if entries.flat else ("see velocity_unit", "see velocity_unit, per s")
    bodies = {
        "pose": ("poses of the bodies, of their mass centers", ("body", "in_pose"), "m; angles rad; quaternions body to world"),
        "twist": ("velocities of the bodies, of their mass centers", ("body", "in_twist"), "m/s and rad/s"),
    }
    more = ({} if absolute else bodies) | (inputs if driven else {})
    return {
        "q": ("coordinates", ("coordinate",), "see unit"),
        "v": ("velocities", (moving,), rate),
        "a": ("accelerations", (moving,), second),
        "lam": (f"multipliers; {push} +J^T lam", ("row",), f"{linear} for rows in m or m/s, {angular} for rows in rad or rad/s"),
        "violation": ("largest constraint violation since the entry before", (), "m or rad"),
        "velocity_violation": ("largest violation of the velocity constraints since the entry before", (), "m/s or rad/s"),
        "status": ("jaxdae.Status of the world, 0 is OK", (), "1"),
        "kinetic_energy": ("kinetic energy", (), "J"),
        "potential_energy": ("potential energy of gravity and springs", (), "J"),
        "work": ("work since the start of motors, given forces, dampers, friction and prescribed motions", (), "J"),
    } | more


def entry_bytes(system: Any, real: int) -> int:
    """Returns how many bytes one saved state of one world takes before compression.

    Args:
        system: the mechanism.
        real: bytes of a number.
    """
    entries = naming.of_system(system)
    mechanism = naming.mechanism_of(system)
    bodies = 0 if naming.is_absolute(system) else len(mechanism.body_names) * (7 + 6 if mechanism.space.dimension == 3 else 3 + 3)
    inputs = 0 if system.first_order else system.n_inputs or 0
    numbers = len(entries.coordinates) + 2 * len(entries.velocities) + len(system.row_names) + bodies + inputs
    return real * (numbers + _SCALARS) + _STATUS


def poses(data: xr.Dataset, count: int) -> xr.DataArray:
    """Returns the poses (world, time, body, 3 or 7) of a run in either form of coordinates.

    Args:
        data: the results.
        count: the number of bodies.
    """
    if "pose" in data:
        return data.pose
    shaped = data.q.values.reshape(*data.q.shape[:2], count, data.q.shape[2] // count)
    return xr.DataArray(shaped, dims=("world", "time", "body", "in_pose"))


def create(store: pathlib.Path, listed: pathlib.Path, config: Config, grid: Grid, system: Any, parameters: dict[str, np.ndarray]) -> None:
    """Makes the store of a run: all names, units, instants and varied numbers, and no results yet.

    It is put in place whole, after the list of its files. Where another process of the same run was faster, its store stays, which has the
    same bytes.

    Args:
        store: the folder of the store.
        listed: where its files are listed with their digests.
        config: the config.
        grid: how the results are cut.
        system: the mechanism, for the names of its coordinates, velocities, rows and bodies, with their units.
        parameters: varied numbers: path and values (world,).

    Raises:
        OSError: the disk is full, or gone.
    """
    partial = beside(store)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _fill(partial, config, grid, system, parameters)
        made = sorted(file for file in partial.rglob("*") if file.is_file())
        digests = {file.relative_to(partial).as_posix(): files.forced(file) for file in made}
        for folder in {file.parent for file in made}:
            force_names(folder)
        files.write_text(listed, listing.lines(digests))
        partial.rename(store)
        force_names(store.parent)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not (store / ".zmetadata").exists():
            raise


def _fill(store: pathlib.Path, config: Config, grid: Grid, system: Any, parameters: dict[str, np.ndarray]) -> None:
    labels = _labels(system) | _inputs(config)
    data = xr.Dataset({}, labels | {"world": np.arange(grid.size), "time": instants(config, grid)})
    data.time.attrs = {"long_name": "time", "units": "s"}
    if parameters:
        data = data.assign_coords(parameter=list(parameters))
        data["varied"] = (("world", "parameter"), np.stack(list(parameters.values()), axis=1))
        data.varied.attrs = {"long_name": "numbers of the config that differ from world to world"}
    data.attrs = {"name": config.name, "description": config.description, "dt_s": config.dt, "integrator": config.integrator.type}
    data.to_zarr(store, mode="w-", zarr_format=2, consolidated=False, encoding={"time": {"chunks": (100_000,)}}, write_empty_chunks=True)
    sizes = {name: len(label[1] if isinstance(label, tuple) else label) for name, label in labels.items()}
    root = zarr.open_group(store, mode="r+", zarr_format=2)
    stored = variables(naming.of_system(system), naming.is_absolute(system), "input" in labels, system.first_order)
    for name, (meaning, extra, units) in stored.items():
        shape = tuple(sizes[dimension] for dimension in extra)
        exact = name == "status"
        root.create_array(
            name,
            shape=(grid.size, grid.saved, *shape),
            chunks=(grid.worlds, min(grid.entries, grid.saved), *(max(1, n) for n in shape)),
            dtype="int32" if exact else config.precision,
            # What was not simulated is not a number. A status that readers take for missing would become a float.
            fill_value=None if exact else np.nan,
            attributes={"long_name": meaning, "units": units, "_ARRAY_DIMENSIONS": ["world", "time", *extra]},
        )
    zarr.consolidate_metadata(store, zarr_format=2)


def instants(config: Config, grid: Grid) -> np.ndarray:
    """Returns the times (time,) of the saved states of a run in s."""
    return config.dt * (config.save_every * np.arange(grid.saved))


def _labels(system: Any) -> dict[str, Any]:
    entries = naming.of_system(system)
    labels: dict[str, Any] = {
        "coordinate": entries.names,
        "unit": ("coordinate", [unit for _, unit in entries.coordinates]),
        "row": list(system.row_names),
        "row_unit": ("row", list(system.names.row_units)),
    }
    if not entries.flat:
        labels["velocity"] = [name for name, _ in entries.velocities]
        labels["velocity_unit"] = ("velocity", [unit for _, unit in entries.velocities])
    if not naming.is_absolute(system):
        mechanism = naming.mechanism_of(system)
        bodies = mechanism.body_names[: len(mechanism.body_names) - len(mechanism.rotors)]
        labels |= {"body": list(bodies)} | _IN_BODIES[mechanism.space.name]
    return labels


def _arrays(store: pathlib.Path) -> dict[str, Any]:
    """Returns the arrays (world, time, ...) of a store by name."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        arrays: Any = zarr.open_group(store, mode="r+", zarr_format=2, use_consolidated=True).arrays()
        return {name: array for name, array in arrays if array.attrs["_ARRAY_DIMENSIONS"][:2] == ["world", "time"]}


def chunk_files(store: pathlib.Path, grid: Grid, worlds: Range, written: int) -> list[str]:
    """Returns the files of the store that are whole when so many instants of some worlds are written, by their paths in it."""
    rows = range(_whole_rows(grid, written))
    columns = _touched(worlds[0], worlds[1] - worlds[0], grid.worlds)
    arrays = [(name, array.ndim) for name, array in _arrays(store).items() if 0 not in array.shape]
    return [_key(name, column, row, ndim) for row in rows for name, ndim in arrays for column in columns]


def _whole_rows(grid: Grid, written: int) -> int:
    """Returns how many chunks are whole, one after the other in time, when so many instants are written; the last of all may be shorter."""
    return -(-grid.saved // grid.entries) if written == grid.saved else written // grid.entries


def what_is_in(name: str, grid: Grid) -> str:
    """Returns the worlds and instants of a file of the store in words; nothing of a file that holds no results."""
    column, row, *_ = [*name.rpartition("/")[2].split("."), ""]
    if not (column.isdigit() and row.isdigit() and "/" in name):
        return ""
    worlds, entries = int(column) * grid.worlds, int(row) * grid.entries
    last = min(worlds + grid.worlds, grid.size) - 1, min(entries + grid.entries, grid.saved) - 1
    return f" (worlds {worlds} to {last[0]}, saved states {entries} to {last[1]})"


def _inputs(config: Config) -> dict[str, Any]:
    values = config.model_dump()
    # The inputs of drives are rates, which the velocities of the results are already.
    names = [] if values["mechanism"]["order"] == "first" else laws.driven_names(values)
    return {"input": names, "input_unit": ("input", laws.input_units(values))} if names else {}


class Writer:
    """Writes the saved states of a part of a run into its region of the store, chunk by chunk.

    A chunk is written when all of its instants are there; what is not yet written is `pending`. So a file that is listed is whole. What a
    writer that was killed has written since its last checkpoint is written again: what made it is in the checkpoint.

    Args:
        store: the folder of the store.
        grid: how the results are cut.
        worlds: the worlds of the part (first, behind the last).
        listed: where the files that are whole are listed, see `jaxdae.app.listing`.
        written: the number of instants that are in the store already.
        pending: those that come next, (world, time, ...) by name.
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
        """Opens the store."""
        self._store, self._grid, self._first, self._listed = store, grid, worlds[0], listed
        self._blocks = [pending] if pending else []
        self.written = written
        self._arrays = _arrays(store)
        listing.keep(listed, chunk_files(store, grid, worlds, written))
        self._remove_later(worlds[1])

    def _remove_later(self, behind: int) -> None:
        """Removes what a writer that was killed may have left of later chunks: it may be cut off, and is written again."""
        columns = range(self._first // self._grid.worlds, -(-behind // self._grid.worlds))
        for name, column in itertools.product(self._arrays, columns):
            for file in (self._store / name).glob(f"{column}.*"):
                row = file.name.split(".")[1]
                if row.isdigit() and int(row) >= _whole_rows(self._grid, self.written):
                    file.unlink(missing_ok=True)

    @property
    def pending(self) -> dict[str, np.ndarray]:
        """What is not yet in the store, (world, time, ...) by name; empty where nothing is."""
        if len(self._blocks) > 1:
            self._blocks = [{name: np.concatenate([block[name] for block in self._blocks], axis=1) for name in self._arrays}]
        return self._blocks[0] if self._blocks else {}

    def add(self, time: np.ndarray, block: dict[str, np.ndarray]) -> None:
        """Adds a block: instants (time,) and arrays (world, time, ...) by the names of `variables`; writes the chunks that are whole.

        Raises:
            OSError: the disk is full, or gone.
        """
        del time  # The store has all instants from the beginning.
        self._blocks.append(block)
        waiting = sum(block["status"].shape[1] for block in self._blocks)
        if waiting >= self._grid.entries or self.written + waiting == self._grid.saved:
            whole = waiting if self.written + waiting == self._grid.saved else waiting // self._grid.entries * self._grid.entries
            listing.append(self._listed, self._write(whole))
            rest = {name: array[:, whole:] for name, array in self.pending.items()}
            self.written += whole
            self._blocks = [rest] if waiting > whole else []

    def flush(self) -> int:
        """Writes what is pending, too, without the rest of its chunks, for somebody who looks at a run that was stopped.

        Returns:
            The number of instants that are in the store then.

        Raises:
            OSError: the disk is full, or gone.
        """
        waiting = self.pending["status"].shape[1] if self._blocks else 0
        if waiting:
            self._write(waiting)
        return self.written + waiting

    def _write(self, count: int) -> dict[str, str]:
        """Writes the first `count` of the pending instants, and forces their files to the disk; returns the digests of these by name."""
        digests: dict[str, str] = {}
        try:
            for name, array in self._arrays.items():
                value = self.pending[name][:, :count]
                if value.size:
                    array[self._first : self._first + value.shape[0], self.written : self.written + count] = value
                    digests |= self._forced(name, value)
        except OSError:
            # Chunks are written side by side. One error is raised here; asyncio would print the others later, each with a traceback.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise
        return digests

    def _forced(self, name: str, value: np.ndarray) -> dict[str, str]:
        worlds = _touched(self._first, value.shape[0], self._grid.worlds)
        rows = _touched(self.written, value.shape[1], self._grid.entries)
        keys = [_key(name, column, row, value.ndim) for column, row in itertools.product(worlds, rows)]
        digests = {key: files.forced(self._store / key) for key in keys}
        force_names(self._store / name)
        return digests


def _key(name: str, column: int, row: int, ndim: int) -> str:
    """Returns the path in the store of the file of a chunk."""
    return f"{name}/{'.'.join(map(str, (column, row, *[0] * (ndim - 2))))}"


def _touched(first: int, count: int, together: int) -> range:
    """Returns the numbers of the chunks that hold some entries."""
    return range(first // together, (first + count - 1) // together + 1)


def read(store: pathlib.Path, written: list[list[int]] | None = None) -> xr.Dataset:
    """Returns the data set in a store, loaded lazily.

    Args:
        store: the folder of the store.
        written: what a run that was stopped left behind, parts of worlds as (first, behind the last, instants); left out: all is there. Of
            such a run the worlds are given that are as far as the nominal one, as far as that is.
    """
    data = xr.open_zarr(store, chunks=None)
    if written is None:
        return data
    far = next((entries for first, _, entries in written if first == 0), 0)
    worlds = [world for first, behind, entries in written if entries >= far for world in range(first, behind)]
    return data.isel(world=worlds, time=slice(0, far))


def last_status(store: pathlib.Path, worlds: Range | None = None) -> dict[str, int]:
    """Returns how many worlds of a store, all or some that are complete in it, ended with which status."""
    with read(store) as data:
        codes, counts = np.unique(data.status.isel(time=-1, world=slice(*(worlds or (None,)))).values, return_counts=True)
    return {Status(int(code)).name: int(count) for code, count in zip(codes, counts, strict=True)}
