"""Labelled results on disk: dimensions world, time, coordinate and row; appended block by block.

Where each velocity is the rate of a coordinate, velocities have the names of coordinates; where there are quaternions, they have a
dimension `velocity` of their own. In absolute coordinates q and v are the poses and twists of the bodies; in joint coordinates `pose` and
`twist` have these, with the dimensions `body`, `in_pose` and `in_twist`.

Zarr version 2 with consolidated metadata is what every Zarr library reads without warnings. Chunks of zeros are written, too: readers
fill in what is missing without a word, so that only a store in which nothing is ever left out can be seen to be damaged.
"""

import logging
import pathlib
from typing import Any

import numpy as np
import xarray as xr

from jaxdae.app import naming
from jaxdae.app.naming import Entries

_SCALARS = 5  # violations, energies and work, a number each
_STATUS = 4  # bytes
_IN_BODIES: dict[str, dict[str, list[str]]] = {
    "plane": {"in_pose": ["x", "y", "theta"], "in_twist": ["vx", "vy", "omega"]},
    "space": {
        "in_pose": ["x", "y", "z", "qw", "qx", "qy", "qz"],
        "in_twist": ["vx", "vy", "vz", "omega_body_x", "omega_body_y", "omega_body_z"],
    },
}
_FLUSH_BYTES = 64_000_000
_CHUNK_BYTES = 4_000_000


def variables(entries: Entries, absolute: bool) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Returns what is stored: meaning, dimensions beyond world and time, and units, by name.

    Args:
        entries: the names of coordinates and velocities.
        absolute: whether these are poses and twists of the bodies.
    """
    moving = "coordinate" if entries.flat else "velocity"
    rate, second = ("see unit, per s", "see unit, per s^2") if entries.flat else ("see velocity_unit", "see velocity_unit, per s")
    bodies = {
        "pose": ("poses of the bodies, of their mass centers", ("body", "in_pose"), "m; angles rad; quaternions body to world"),
        "twist": ("velocities of the bodies, of their mass centers", ("body", "in_twist"), "m/s and rad/s"),
    }
    return {
        "q": ("coordinates", ("coordinate",), "see unit"),
        "v": ("velocities", (moving,), rate),
        "a": ("accelerations", (moving,), second),
        "lam": ("multipliers; the constraint force is +J^T lam", ("row",), "N for rows in m or m/s, N m for rows in rad or rad/s"),
        "violation": ("largest constraint violation since the entry before", (), "m or rad"),
        "velocity_violation": ("largest violation of the velocity constraints since the entry before", (), "m/s or rad/s"),
        "status": ("jaxdae.Status of the world, 0 is OK", (), "1"),
        "kinetic_energy": ("kinetic energy", (), "J"),
        "potential_energy": ("potential energy of gravity, springs and constant forces", (), "J"),
        "work": (
            "work since the start of what has no potential (dampers, prescribed motion), from the saved states",
            (),
            "J",
        ),
    } | ({} if absolute else bodies)


def entry_bytes(system: Any, real: int) -> int:
    """Returns how many bytes one saved state of one world takes before compression.

    Args:
        system: the mechanism.
        real: bytes of a number.
    """
    entries = naming.of_system(system)
    bodies = 0 if naming.is_absolute(system) else len(system.body_names) * (7 + 6 if system.space.dimension == 3 else 3 + 3)
    numbers = len(entries.coordinates) + 2 * len(entries.velocities) + len(system.row_names) + bodies
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


class Writer:
    """Collects blocks of saved states and appends them to a Zarr store.

    Args:
        store: the folder of the store; must not exist.
        system: the mechanism, for the names of its coordinates, velocities, rows and bodies, with their units.
        parameters: varied numbers: path and values (world,).
        attributes: attributes of the data set.
    """

    def __init__(self, store: pathlib.Path, system: Any, parameters: dict[str, np.ndarray], attributes: dict[str, Any]):
        """Writes nothing yet."""
        self._store, self._attributes = store, attributes
        entries, absolute = naming.of_system(system), naming.is_absolute(system)
        self._variables = variables(entries, absolute)
        self._labels: dict[str, Any] = {
            "coordinate": entries.names,
            "unit": ("coordinate", [unit for _, unit in entries.coordinates]),
            "row": list(system.row_names),
            "row_unit": ("row", list(system.row_units)),
        }
        if not entries.flat:
            self._labels["velocity"] = [name for name, _ in entries.velocities]
            self._labels["velocity_unit"] = ("velocity", [unit for _, unit in entries.velocities])
        if not absolute:
            bodies = system.body_names[: len(system.body_names) - len(system.rotors)]
            self._labels |= {"body": list(bodies)} | _IN_BODIES[system.space.name]
        self._parameters = parameters
        self._blocks: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        self._bytes = 0
        self._started = False

    def add(self, time: np.ndarray, block: dict[str, np.ndarray]) -> None:
        """Adds a block: instants (time,) and arrays (world, time, ...) by the names of `variables`."""
        self._blocks.append((time, block))
        self._bytes += sum(array.nbytes for array in block.values())
        if self._bytes >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what was collected.

        Raises:
            OSError: the disk is full, or gone.
        """
        try:
            self._append()
        except OSError:
            # Chunks are written side by side. One error is raised here; asyncio would print the others later, each with a traceback.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise

    def _append(self) -> None:
        if not self._blocks:
            return
        time = np.concatenate([instants for instants, _ in self._blocks])
        arrays = {name: np.concatenate([block[name] for _, block in self._blocks], axis=1) for name in self._variables}
        self._blocks, self._bytes = [], 0
        dimensions = {name: ("world", "time", *extra) for name, (_, extra, _) in self._variables.items()}
        data = xr.Dataset({name: (dimensions[name], array) for name, array in arrays.items()}, {"time": time})
        if self._started:
            data.to_zarr(self._store, append_dim="time", zarr_format=2, consolidated=True, write_empty_chunks=True)
            return
        for name, (meaning, _, units) in self._variables.items():
            data[name].attrs = {"long_name": meaning, "units": units}
        data = data.assign_coords(self._labels | {"world": np.arange(arrays["q"].shape[0])})
        data.time.attrs = {"long_name": "time", "units": "s"}
        if self._parameters:
            data = data.assign_coords(parameter=list(self._parameters))
            data["varied"] = (("world", "parameter"), np.stack(list(self._parameters.values()), axis=1))
            data.varied.attrs = {"long_name": "numbers of the config that differ from world to world"}
        data.attrs = self._attributes
        encoding = {name: {"chunks": _chunks(array)} for name, array in arrays.items()}
        encoding["time"] = {"chunks": (100_000,)}
        data.to_zarr(self._store, mode="w-", zarr_format=2, consolidated=True, encoding=encoding, write_empty_chunks=True)
        self._started = True


def read(store: pathlib.Path) -> xr.Dataset:
    """Returns the data set in a store, loaded lazily."""
    return xr.open_zarr(store, chunks=None)


def _chunks(array: np.ndarray) -> tuple[int, ...]:
    worlds, _, *rest = array.shape
    entry = max(1, int(np.prod(rest))) * array.itemsize
    instants = max(1, min(10_000, _CHUNK_BYTES // (entry * min(worlds, 256))))
    return (min(worlds, 256), instants, *[max(1, n) for n in rest])
