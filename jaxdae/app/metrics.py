"""How a run goes on, a line of JSON for every block, in `metrics.jsonl` of its folder: for `jaxdae status`, and for any tool that draws.

    {"time": "2026-01-31T12:00:00+00:00", "worlds": [0, 256], "steps": 400, "of": 10000,
     "world_steps_per_s": 2.1e6, "failed": 0, "memory_MB": 310}

Each process of a run that several share has a file of its own, `metrics-0017.jsonl`. A fit has a line for every checkpoint:

    {"time": "2026-01-31T12:00:00+00:00", "worlds": [0, 256], "iterations": 40, "of": 200, "loss": 0.0123, "gradient_norm": 0.4,
     "skipped": 0, "world_steps_per_s": 2.1e5, "memory_MB": 310}

The speed in the first line of a fit, and in the first after it was continued, has the compiling of the loss in it.
"""

import contextlib
import datetime
import json
import os
import pathlib
import resource
import sys
import time
from typing import Any

import numpy as np

from jaxdae.app.grid import Range
from jaxdae.app.simulate import Summary
from jaxdae.status import Status
from jaxdae.tuning import FitStep

PATTERN = "metrics*.jsonl"
_LINE = 100_000  # bytes, more than any line has


class Metrics:
    """Appends the lines of one process.

    Args:
        folder: of the run.
        steps: steps of each world.
        share: the number of the process or of the job; None where there is one alone.
    """

    def __init__(self, folder: pathlib.Path, steps: int, share: int | None = None):
        """Writes nothing yet."""
        self._file = folder / ("metrics.jsonl" if share is None else f"metrics-{share:04d}.jsonl")
        self._steps = steps
        self._before, self._done = time.monotonic(), 0

    def begin(self, done: int) -> None:
        """Notes that a part goes on after so many steps; a line that was cut off before is removed."""
        _mend(self._file)
        self._before, self._done = time.monotonic(), done

    def add(self, worlds: Range, summary: Summary) -> None:
        """Appends a line.

        Args:
            worlds: of the part.
            summary: what it is like so far.
        """
        now, size = time.monotonic(), worlds[1] - worlds[0]
        line = {
            "worlds": list(worlds),
            "steps": summary.steps,
            "of": self._steps,
            "world_steps_per_s": _rate(size * (summary.steps - self._done), now - self._before),
            "failed": size - summary.status.get(Status.OK.name, 0),
        }
        self._before, self._done = now, summary.steps
        _append(self._file, line)


class FitMetrics:
    """Appends the lines of a fit.

    Args:
        folder: of the run.
        iterations: how many there are to be.
        worlds: how many worlds an iteration simulates.
        steps: the steps of each.
    """

    def __init__(self, folder: pathlib.Path, iterations: int, worlds: int, steps: int):
        """Reads how far a fit is that is continued; writes nothing yet."""
        self._file = folder / "metrics.jsonl"
        self._of, self._worlds, self._steps = iterations, worlds, steps
        self._done = next((int(line.get("iterations", 0)) for line in last_lines(folder) if isinstance(line, dict)), 0)
        self._before = time.monotonic()

    def add(self, told: FitStep) -> None:
        """Appends a line, where there are iterations without one: a fit that is continued tells first what its checkpoint has.

        Args:
            told: what happened so far, with a leading axis of iterations.
        """
        now, done = time.monotonic(), len(told.loss)
        if done <= self._done:
            self._before = now
            return
        line = {
            "worlds": [0, self._worlds],
            "iterations": done,
            "of": self._of,
            "loss": float(told.loss[-1]),
            "gradient_norm": float(told.gradient_norm[-1]),
            "skipped": int(np.sum(told.skipped)),
            # Where a process was killed after a checkpoint and before its line, this is too large once.
            "world_steps_per_s": _rate(self._worlds * self._steps * (done - self._done), now - self._before),
        }
        self._before, self._done = now, done
        _mend(self._file)
        _append(self._file, line)


def _rate(count: int, seconds: float) -> float:
    return float(f"{count / max(seconds, 1e-9):.4g}")


def _append(file: pathlib.Path, line: dict[str, Any]) -> None:
    """Appends a line, with the time before and the memory behind."""
    time_now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"time": time_now} | line | {"memory_MB": memory_bytes() // 1_000_000}) + "\n")


def _mend(file: pathlib.Path) -> None:
    """Removes a last line without its end, which a process that was killed or a power failure left: the next would become part of it."""
    with contextlib.suppress(FileNotFoundError), file.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        first = stream.seek(max(0, size - _LINE))
        whole = first + stream.read().rfind(b"\n") + 1
        if whole < size:
            stream.truncate(whole)


def memory_bytes() -> int:
    """Returns the most memory that this process had at a time."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def last_lines(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the last whole line of each process of a run."""
    found = []
    for file in sorted(folder.glob(PATTERN)):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines):
            try:
                found.append(json.loads(line))
                break
            except ValueError:  # The last line may be cut off.
                continue
    return found
