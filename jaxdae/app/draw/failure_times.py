"""Failure times of worlds for plots. The state of a failed world stays constant, so plots hide that part."""

import dataclasses
from typing import Any

import numpy as np

from jaxdae.systems.status import Status

_FAR = 20.0  # in units of the drawing size; farther points would make the rest too small to see


@dataclasses.dataclass(frozen=True)
class Failure:
    """Failure of one world.

    Attributes:
        entry: index of the first saved entry of a failed step; its state does not belong to its time.
        status: status of this entry.
        after: time in s of the previous entry, or of the first entry.
        until: time in s of the failed entry; the failure occurred between `after` and `until`.
        span: time in s between the first and the last entry.
    """

    entry: int
    status: Status
    after: float
    until: float
    span: float

    def __str__(self) -> str:
        """Describe the failure, with a time interval if the interval is visible in a plot."""
        until = f" to {self.until:.4g}" if self.until - self.after > 0.02 * self.span else ""
        return f"failed at t = {self.after:.4g}{until} s ({self.status.name})"


def first_failure(status: Any, time: Any) -> Failure | None:
    """Return the failure of a world, or None if it did not fail.

    Args:
        status: `jaxdae.Status` of each entry (time,).
        time: times of the entries in s (time,).
    """
    status, time = np.asarray(status), np.asarray(time, float)
    if not np.any(status != Status.OK):
        return None
    entry = int(np.argmax(status != Status.OK))
    after, until = float(time[max(entry - 1, 0)]), float(time[entry])
    return Failure(entry, Status(int(status[entry])), after, until, float(time[-1] - time[0]))


class Failures:
    """Failures in a batch of worlds.

    Args:
        status: `jaxdae.Status` of each entry (world, time).
        time: times of the entries in s (time,).

    Attributes:
        nominal: the failure of world 0, or None if it did not fail.
        survived: indices of the worlds that did not fail; plots compute bands from these worlds.
        good: (world, time), True for entries before the failure of their world.
    """

    def __init__(self, status: Any, time: Any):
        """Find the failures in the entries."""
        bad = np.asarray(status) != Status.OK
        self.time = np.asarray(time, float)
        self.nominal = first_failure(np.asarray(status)[0], time)
        self.good = ~np.logical_or.accumulate(bad, axis=1)
        self.good[:, 0] = True  # the start is valid even if the first step fails
        self.survived = np.flatnonzero(~bad.any(axis=1))
        self._first = first_failure(np.asarray(status)[int(np.argmin(self.good.sum(axis=1)))], time)

    @property
    def end(self) -> float:
        """Return the end time in s of the data to draw, over the nominal world and all surviving worlds."""
        return float(
            self.time[-1] if self.nominal is None or self.survived.size else self.time[self.good[0]][-1]
        )

    def __str__(self) -> str:
        """Describe the failed worlds and the first failure in one or two lines; empty without failures."""
        worlds = len(self.good)
        failed = worlds - self.survived.size
        if not failed:
            return ""
        if worlds == 1:
            return f"{self.nominal}"
        many = f"all {worlds}" if failed == worlds else f"{failed} of {worlds}"
        first = str(self._first).removeprefix("failed ")
        lines = [f"nominal world {self.nominal}"] if self.nominal is not None else []
        return "\n".join([*lines, f"{many} worlds failed, the first {first}"])

    def drawn(self, values: np.ndarray) -> np.ndarray:
        """Replace values (world, time, ...) after a failure by NaN."""
        return np.where(self.good.reshape(self.good.shape + (1,) * (values.ndim - 2)), values, np.nan)


def entries_in_view(places: np.ndarray) -> int:
    """Return how many leading entries of positions (time, points, 2) in m stay near the first entry.

    Before a world fails, its positions may diverge by 25 orders of magnitude. NaN counts as near.
    """
    start = places[0][np.isfinite(places[0]).all(axis=-1)]
    size = float(np.ptp(start, axis=0).max()) if len(start) else 0.0
    far = np.any(np.abs(places - places[:1]) > _FAR * (size or 1.0), axis=(1, 2))
    return int(np.argmax(far)) if far.any() else len(places)
