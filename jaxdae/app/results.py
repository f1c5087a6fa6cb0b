"""Labelled results on disk: dimensions world, time, coordinate and row; appended block by block.

Zarr version 2 with consolidated metadata is what every Zarr library reads without warnings. Chunks of zeros are written, too: readers
fill in what is missing without a word, so that only a store in which nothing is ever left out can be seen to be damaged.
"""

import logging
import pathlib
from typing import Any

import numpy as np
import xarray as xr

_FLUSH_BYTES = 64_000_000
_CHUNK_BYTES = 4_000_000

VARIABLES = {
    "q": ("coordinates of the bodies", ("coordinate",), "see unit"),
    "v": ("velocities of the bodies", ("coordinate",), "see unit, per s"),
    "a": ("accelerations of the bodies", ("coordinate",), "see unit, per s^2"),
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
}


class Writer:
    """Collects blocks of saved states and appends them to a Zarr store.

    Args:
        store: the folder of the store; must not exist.
        coordinates: names of the coordinates.
        units: their units.
        rows: names of the constraint rows.
        row_units: their units.
        parameters: varied numbers: path and values (world,).
        attributes: attributes of the data set.
    """

    def __init__(
        self,
        store: pathlib.Path,
        coordinates: list[str],
        units: list[str],
        rows: list[str],
        row_units: list[str],
        parameters: dict[str, np.ndarray],
        attributes: dict[str, Any],
    ):
        """Writes nothing yet."""
        self._store, self._attributes = store, attributes
        self._labels = {
            "coordinate": coordinates,
            "unit": ("coordinate", units),
            "row": rows,
            "row_unit": ("row", row_units),
        }
        self._parameters = parameters
        self._blocks: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        self._bytes = 0
        self._started = False

    def add(self, time: np.ndarray, block: dict[str, np.ndarray]) -> None:
        """Adds a block: instants (time,) and arrays (world, time, ...) by the names of `VARIABLES`."""
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
        arrays = {name: np.concatenate([block[name] for _, block in self._blocks], axis=1) for name in VARIABLES}
        self._blocks, self._bytes = [], 0
        dimensions = {name: ("world", "time", *extra) for name, (_, extra, _) in VARIABLES.items()}
        data = xr.Dataset({name: (dimensions[name], array) for name, array in arrays.items()}, {"time": time})
        if self._started:
            data.to_zarr(self._store, append_dim="time", zarr_format=2, consolidated=True, write_empty_chunks=True)
            return
        for name, (meaning, _, units) in VARIABLES.items():
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
