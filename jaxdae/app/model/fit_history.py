"""History of a fit as a table: `history.csv`, with one row per iteration up to the last checkpoint.

The table is replaced atomically right after every checkpoint. A process that is killed at any time leaves a
valid table with the rows of the last checkpoint or of the checkpoint before it. A continued fit starts with
the table of its checkpoint.
"""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae import tuning
from jaxdae.app.config import safe_files
from jaxdae.app.config.schema_tuning import Optimize, Tune

_COLUMNS = ("loss", "gradient_norm", "learning_rate", "update_norm")
NOT_PARAMETERS = ("iteration", *_COLUMNS, "skipped")


class History:
    """Table of one fit.

    Args:
        file: path of the table.
    """

    def __init__(self, file: pathlib.Path):
        """Start an empty table without writing a file."""
        self._file, self._text, self._rows = file, "", 0

    def write(self, told: tuning.FitStep, recorded: dict[str, Any]) -> None:
        """Write the table of the history so far.

        Args:
            told: the fit steps with a leading iteration axis, including the iterations of previous calls.
            recorded: the trained numbers before each iteration, by leaf path; only scalars have a column.
        """
        columns = _columns(told, recorded)
        # Existing rows do not change: format only the new rows.
        header = self._rows == 0
        self._text += table({name: x[self._rows :] for name, x in columns.items()}, header=header)
        self._rows = len(columns["iteration"])
        safe_files.write_text(self._file, self._text)


def _columns(told: tuning.FitStep, recorded: Mapping[str, Any]) -> dict[str, np.ndarray]:
    columns = {"iteration": np.arange(1, len(np.asarray(told.loss)) + 1)}
    columns |= {name: np.asarray(getattr(told, name)) for name in _COLUMNS}
    columns["skipped"] = np.asarray(told.skipped).astype(int)
    return columns | {
        name.replace("/", "."): np.asarray(x) for name, x in recorded.items() if np.ndim(x) == 1
    }


def table_of_checkpoint(arrays: Mapping[str, np.ndarray], section: Tune | Optimize) -> str:
    """Return the table that belongs to a checkpoint.

    Args:
        arrays: the arrays of the checkpoint.
        section: the config section of the fit, which gives the column names of the trained numbers.

    Raises:
        ValueError: the arrays do not contain the history of a fit.
    """
    count = sum(name.startswith("history_") for name in arrays)
    leaves = [arrays[f"history_{k}"] for k in range(count)]
    fields = len(dataclasses.fields(tuning.FitStep))
    numbers = [x for x in leaves[fields:] if x.ndim == 1]
    # JAX sorts the leaves of a mapping by name. The names contain slashes in place of the dots of the paths.
    names = (
        sorted(entry.path.replace(".", "/") for entry in section.parameters)
        if isinstance(section, Tune)
        else []
    )
    if count < fields or len({len(x) for x in leaves}) != 1:
        raise ValueError("a history that is not the history of a fit")
    return table(_columns(tuning.FitStep(*leaves[:fields]), dict(zip(names, numbers, strict=True))))


def table(columns: Mapping[str, Any], header: bool = True) -> str:
    """Format columns of equal length as CSV, with numbers at full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True))
    return text.getvalue()


def read_table(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the columns of a table of numbers."""
    with file.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return {name: np.array([float(row[k]) for row in rows]) for k, name in enumerate(header)}
