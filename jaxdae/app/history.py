"""The history of a fit as a table: `history.csv`, with a row for every iteration up to the last checkpoint.

It is put in place whole at every checkpoint, right after it: a process killed at any instant leaves a valid table whose rows are those
of the checkpoint, or of the one before. A fit that is continued begins with the table of its checkpoint.
"""

import csv
import io
import os
import pathlib
from typing import Any

import numpy as np

from jaxdae import tuning

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
        count = len(np.asarray(told.loss))
        columns: dict[str, Any] = {"iteration": np.arange(1, count + 1)}
        columns |= {name: np.asarray(getattr(told, name)) for name in _COLUMNS}
        columns["skipped"] = np.asarray(told.skipped).astype(int)
        columns |= {name.replace("/", "."): np.asarray(x) for name, x in recorded.items() if np.ndim(x) == 1}
        # Rows that were written once do not change: only new ones are put into words.
        header = self._rows == 0
        self._text += table({name: x[self._rows :] for name, x in columns.items()}, header=header)
        self._rows = count
        write_text(self._file, self._text)


def table(columns: dict[str, Any], header: bool = True) -> str:
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


def write_text(file: pathlib.Path, text: str) -> None:
    """Writes a file, whole or not at all."""
    partial = file.with_name(file.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)
