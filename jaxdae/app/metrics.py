"""How a run goes on, a line of JSON for every block, in `metrics.jsonl` of its folder: for `jaxdae status`, and for any tool that draws.

    {"time": "2026-01-31T12:00:00+00:00", "worlds": [0, 256], "steps": 400, "of": 10000,
     "world_steps_per_s": 2.1e6, "failed": 0, "memory_MB": 310}

Each process of a run that several share has a file of its own, `metrics-0017.jsonl`.
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

from jaxdae.app.grid import Range
from jaxdae.app.simulate import Summary
from jaxdae.status import Status

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
        line: dict[str, Any] = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "worlds": list(worlds),
            "steps": summary.steps,
            "of": self._steps,
            "world_steps_per_s": float(f"{size * (summary.steps - self._done) / max(now - self._before, 1e-9):.4g}"),
            "failed": size - summary.status.get(Status.OK.name, 0),
            "memory_MB": memory_bytes() // 1_000_000,
        }
        self._before, self._done = now, summary.steps
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


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
