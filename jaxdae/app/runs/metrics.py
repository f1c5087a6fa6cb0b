"""Progress metrics of a run, in `metrics.jsonl` of its folder, for `jaxdae status` and for plotting tools.

A simulation appends one line of JSON per block:

    {"time": "2026-01-31T12:00:00+00:00", "worlds": [0, 256], "steps": 400, "of": 10000,
     "world_steps_per_s": 2.1e6, "failed": 0, "memory_MB": 310}

If several processes share a run, each process writes its own file, such as `metrics-0017.jsonl`. A fit
appends one line per checkpoint:

    {"time": "2026-01-31T12:00:00+00:00", "worlds": [0, 256], "iterations": 40, "of": 200, "loss": 0.0123,
     "gradient_norm": 0.4, "skipped": 0, "world_steps_per_s": 2.1e5, "memory_MB": 310}

The speed in the first line of a fit, and in the first line after a resume, includes the compilation of the
loss.
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

from jaxdae.app.runs.result_grid import Range
from jaxdae.app.runs.simulate import Summary
from jaxdae.systems.status import Status
from jaxdae.tuning import FitStep

PATTERN = "metrics*.jsonl"
_LINE = 100_000  # bytes, longer than any line


class Metrics:
    """Append the metric lines of one process.

    Args:
        folder: the run folder.
        steps: steps per world.
        share: the number of the process or job; None for a run with a single process.
    """

    def __init__(self, folder: pathlib.Path, steps: int, share: int | None = None):
        """Store the file name and the start time; write nothing yet."""
        self._file = folder / ("metrics.jsonl" if share is None else f"metrics-{share:04d}.jsonl")
        self._steps = steps
        self._before, self._done = time.monotonic(), 0

    def begin(self, done: int) -> None:
        """Record that a part continues after `done` steps, and remove a truncated last line."""
        _mend(self._file)
        self._before, self._done = time.monotonic(), done

    def add(self, worlds: Range, summary: Summary) -> None:
        """Append a line.

        Args:
            worlds: the worlds of the part.
            summary: the summary of the part so far.
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
    """Append the metric lines of a fit.

    Args:
        folder: the run folder.
        iterations: the planned number of iterations.
        worlds: worlds per iteration.
        steps: steps per world.
    """

    def __init__(self, folder: pathlib.Path, iterations: int, worlds: int, steps: int):
        """Read the progress of a resumed fit; write nothing yet."""
        self._file = folder / "metrics.jsonl"
        self._of, self._worlds, self._steps = iterations, worlds, steps
        self._done = next(
            (int(line.get("iterations", 0)) for line in last_lines(folder) if isinstance(line, dict)), 0
        )
        self._before = time.monotonic()

    def add(self, told: FitStep) -> None:
        """Append a line if there are new iterations; a resumed fit first reports the state of its checkpoint.

        Args:
            told: the history so far, with a leading axis of iterations.
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
            # After a kill between a checkpoint and its line, this value is too large in one line.
            "world_steps_per_s": _rate(self._worlds * self._steps * (done - self._done), now - self._before),
        }
        self._before, self._done = now, done
        _mend(self._file)
        _append(self._file, line)


def _rate(count: int, seconds: float) -> float:
    return float(f"{count / max(seconds, 1e-9):.4g}")


def _append(file: pathlib.Path, line: dict[str, Any]) -> None:
    """Append a line, with the time first and the memory last."""
    time_now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with file.open("a", encoding="utf-8") as stream:
        stream.write(
            json.dumps({"time": time_now} | line | {"memory_MB": memory_bytes() // 1_000_000}) + "\n"
        )


def _mend(file: pathlib.Path) -> None:
    """Remove an incomplete last line, left by a killed process or a power failure.

    Otherwise the next line would be appended to it.
    """
    with contextlib.suppress(FileNotFoundError), file.open("r+b") as stream:
        size = stream.seek(0, os.SEEK_END)
        first = stream.seek(max(0, size - _LINE))
        whole = first + stream.read().rfind(b"\n") + 1
        if whole < size:
            stream.truncate(whole)


def memory_bytes() -> int:
    """Return the peak resident memory of this process."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def last_lines(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Return the last complete line of each process of a run."""
    found = []
    for file in sorted(folder.glob(PATTERN)):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in reversed(lines):
            try:
                found.append(json.loads(line))
                break
            except ValueError:  # The last line may be truncated.
                continue
    return found
