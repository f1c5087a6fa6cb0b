"""Interleaved timing, and the tables made of it.

Clocks of shared machines drift by tens of percent within minutes. Therefore every repetition runs all
contenders of a group once, one after the other, and ratios are taken within a repetition before their median
is.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Accuracy:
    """How well one engine with one setting follows the mechanism over 10 s at 1 ms."""

    opening: float  # m, largest distance of two points that a joint holds together, over all steps and worlds
    crank_error: float  # rad, crank angle of the nominal world after 1 s minus the reference


@dataclass
class Contender:
    """One engine with one setting on one task."""

    name: str
    run: Callable[[], object]  # does `world_steps` steps and returns when they are done
    world_steps: int
    accuracy: Accuracy
    compile_s: float | None = None
    times: list[float] = field(default_factory=list)  # us per world and step, one a repetition

    @property
    def best(self) -> float:
        """Least time per world and step, us."""
        return min(self.times)

    @property
    def median(self) -> float:
        """Median time per world and step, us."""
        return statistics.median(self.times)

    def ratio(self, other: "Contender") -> float:
        """Time over that of `other`: the median of the ratios within a repetition."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.times, other.times, strict=True))


@dataclass
class Group:
    """Contenders that do the same task; `baselines` are the names that each gets a ratio column against."""

    title: str
    contenders: list[Contender]
    baselines: list[str]

    def __getitem__(self, name: str) -> Contender:
        """Return the contender of that name."""
        return next(contender for contender in self.contenders if contender.name == name)

    def __contains__(self, name: str) -> bool:
        """Report whether a contender of that name takes part."""
        return any(contender.name == name for contender in self.contenders)


def measure(group: Group, repeats: int) -> None:
    """Run every contender once to warm up, then `repeats` times in turn, and store the times."""
    for contender in group.contenders:
        contender.run()
        contender.times.clear()
    for _ in range(repeats):
        for contender in group.contenders:
            start = time.perf_counter()
            contender.run()
            contender.times.append((time.perf_counter() - start) / contender.world_steps * 1e6)


def table(group: Group) -> list[list[str]]:
    """Return header and rows of the group's table."""
    baselines = [name for name in group.baselines if name in group]
    header = ["", "us/step min", "median", "steps/s", *(f"time / {name}" for name in baselines)]
    header += ["loop opening, m", "crank error at 1 s, rad", "compile, s"]
    rows = []
    for contender in group.contenders:
        row = [
            contender.name,
            f"{contender.best:.2f}",
            f"{contender.median:.2f}",
            f"{1e6 / contender.best:.2e}",
        ]
        row += [f"{contender.ratio(group[name]):.2f}" for name in baselines]
        row += [f"{contender.accuracy.opening:.1e}", f"{contender.accuracy.crank_error:+.1e}"]
        row += ["-" if contender.compile_s is None else f"{contender.compile_s:.1f}"]
        rows.append(row)
    return [header, *rows]


def plain(rows: list[list[str]]) -> str:
    """Return the table as aligned plain text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  " + "  ".join(cells))
    return "\n".join(lines)


def markdown(rows: list[list[str]]) -> str:
    """Return the table as Markdown."""
    rule = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:]))


def record(group: Group) -> dict:
    """Return the group as plain data for JSON."""
    return {
        "title": group.title,
        "contenders": [
            {
                "name": contender.name,
                "us_per_step": contender.times,
                "us_per_step_min": contender.best,
                "us_per_step_median": contender.median,
                "loop_opening_m": contender.accuracy.opening,
                "crank_error_1s_rad": contender.accuracy.crank_error,
                "compile_s": contender.compile_s,
            }
            for contender in group.contenders
        ],
    }
