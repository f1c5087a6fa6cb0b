"""When worlds failed, for pictures that say so: a failed world stands still from then on, and is not drawn as if it went on."""

import dataclasses
from typing import Any

import numpy as np

from jaxdae.status import Status

_FAR = 20.0  # times the size of a drawing: what is farther away than that would leave nothing to see of the rest


@dataclasses.dataclass(frozen=True)
class Failure:
    """The failure of one world.

    Attributes:
        entry: the first saved entry that is not of a good step; its state is not of its time.
        status: what happened.
        after: the time of the entry before in s, or of the first one.
        until: the time of the entry in s; the failure is in between.
        span: the time from the first entry to the last in s.
    """

    entry: int
    status: Status
    after: float
    until: float
    span: float

    def __str__(self) -> str:
        """Returns the failure in words; as a stretch of time where a picture would show that it is one."""
        until = f" to {self.until:.4g}" if self.until - self.after > 0.02 * self.span else ""
        return f"failed at t = {self.after:.4g}{until} s ({self.status.name})"


def first_failure(status: Any, time: Any) -> Failure | None:
    """Returns when a world failed, None where it did not.

    Args:
        status: `jaxdae.Status` of each entry (time,).
        time: the entries in s (time,).
    """
    status, time = np.asarray(status), np.asarray(time, float)
    if not np.any(status != Status.OK):
        return None
    entry = int(np.argmax(status != Status.OK))
    after, until = float(time[max(entry - 1, 0)]), float(time[entry])
    return Failure(entry, Status(int(status[entry])), after, until, float(time[-1] - time[0]))


class Failures:
    """Which of many worlds failed, and when.

    Args:
        status: `jaxdae.Status` of each entry (world, time).
        time: the entries in s (time,).

    Attributes:
        nominal: the failure of world 0, None where it did not fail.
        survived: the worlds that did not fail, those that bands are of.
        good: (world, time), which entries are not beyond a failure.
    """

    def __init__(self, status: Any, time: Any):
        """Looks at the entries."""
        bad = np.asarray(status) != Status.OK
        self.time = np.asarray(time, float)
        self.nominal = first_failure(np.asarray(status)[0], time)
        self.good = ~np.logical_or.accumulate(bad, axis=1)
        self.good[:, 0] = True  # the start is the start, also of a world that goes nowhere
        self.survived = np.flatnonzero(~bad.any(axis=1))
        self._first = first_failure(np.asarray(status)[int(np.argmin(self.good.sum(axis=1)))], time)

    @property
    def end(self) -> float:
        """The time up to which there is something to draw of the nominal world and of those that did not fail, in s."""
        return float(self.time[-1] if self.nominal is None or self.survived.size else self.time[self.good[0]][-1])

    def __str__(self) -> str:
        """Returns who failed and when, in one line or two; nothing where nobody did."""
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
        """Returns values (world, time, ...) without those beyond a failure, which become NaN."""
        return np.where(self.good.reshape(self.good.shape + (1,) * (values.ndim - 2)), values, np.nan)


def entries_in_view(places: np.ndarray) -> int:
    """Returns how many of the first entries of places (time, points, 2) in m are near enough to the first one to be drawn with it.

    A world that fails may run away before it does, by 25 orders of magnitude. NaN counts as near.
    """
    start = places[0][np.isfinite(places[0]).all(axis=-1)]
    size = float(np.ptp(start, axis=0).max()) if len(start) else 0.0
    far = np.any(np.abs(places - places[:1]) > _FAR * (size or 1.0), axis=(1, 2))
    return int(np.argmax(far)) if far.any() else len(places)
