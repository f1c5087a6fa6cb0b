"""The history of a fit as a table: `history.csv`, with a row for every iteration up to the last checkpoint.

It is put in place whole at every checkpoint, right after it: a process killed at any instant leaves a valid table whose rows are those
of the checkpoint, or of the one before. A fit that is continued begins with the table of its checkpoint.
"""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae import tuning
from jaxdae.app import files
from jaxdae.app.schema_tuning import Optimize, Tune

_COLUMNS = ("loss", "gradient_norm", "learning_rate", "update_norm")
NOT_PARAMETERS = ("iteration", *_COLUMNS, "skipped")


class History:
    """The table of one fit.

    Args:
        file: where to.
    """

    def __init__(self, file: pathlib.Path):
        """Writes nothing yet."""
        self._file, self._text, self._rows = file, "", 0

    def write(self, told: tuning.FitStep, recorded: dict[str, Any]) -> None:
        """Writes the table of the history so far.

        Args:
            told: what happened, with a leading axis of iterations, those of the calls before included.
            recorded: the trained numbers before each iteration, by leaf path; only single numbers have a column.
        """
        columns = _columns(told, recorded)
        # Rows that were written once do not change: only new ones are put into words.
        header = self._rows == 0
        self._text += table({name: x[self._rows :] for name, x in columns.items()}, header=header)
        self._rows = len(columns["iteration"])
        files.write_text(self._file, self._text)


def _columns(told: tuning.FitStep, recorded: Mapping[str, Any]) -> dict[str, np.ndarray]:
    columns = {"iteration": np.arange(1, len(np.asarray(told.loss)) + 1)}
    columns |= {name: np.asarray(getattr(told, name)) for name in _COLUMNS}
    columns["skipped"] = np.asarray(told.skipped).astype(int)
    return columns | {name.replace("/", "."): np.asarray(x) for name, x in recorded.items() if np.ndim(x) == 1}


def table_of_checkpoint(arrays: Mapping[str, np.ndarray], section: Tune | Optimize) -> str:
    """Returns the table that belongs to a checkpoint.

    Args:
        arrays: those of the checkpoint.
        section: what was learned, which names the columns of the trained numbers.

    Raises:
        ValueError: arrays of something else.
    """
    count = sum(name.startswith("history_") for name in arrays)
    leaves = [arrays[f"history_{k}"] for k in range(count)]
    fields = len(dataclasses.fields(tuning.FitStep))
    numbers = [x for x in leaves[fields:] if x.ndim == 1]
    # JAX orders the leaves of a mapping by their names, in which slashes are where paths have dots.
    names = sorted(entry.path.replace(".", "/") for entry in section.parameters) if isinstance(section, Tune) else []
    if count < fields or len({len(x) for x in leaves}) != 1:
        raise ValueError("a history of something else than a fit")
    return table(_columns(tuning.FitStep(*leaves[:fields]), dict(zip(names, numbers, strict=True))))


def table(columns: Mapping[str, Any], header: bool = True) -> str:
    """Returns columns of equal length as CSV, numbers with all of their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True))
    return text.getvalue()


def read_table(file: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the columns of a table of numbers."""
    with file.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return {name: np.array([float(row[k]) for row in rows]) for k, name in enumerate(header)}
