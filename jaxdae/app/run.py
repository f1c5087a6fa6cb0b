"""A run: simulate, save, draw, report."""

import dataclasses
import datetime
import pathlib
import time
from typing import Any

import rich.console
import rich.table

from jaxdae.app import report, run_folder
from jaxdae.app.build import Worlds
from jaxdae.app.precision import precision
from jaxdae.app.progress import Progress
from jaxdae.app.schema import Config
from jaxdae.app.simulate import Summary, simulate


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind.

    Attributes:
        folder: its folder.
        summary: what the simulation was like.
        record: what `run.json` holds.
    """

    folder: pathlib.Path
    summary: Summary
    record: dict[str, Any]


def run(config: Config, worlds: Worlds, parent: pathlib.Path, console: rich.console.Console, source: str = "") -> Run:
    """Runs a checked config into a new folder below `parent`.

    Args:
        config: the config.
        worlds: its worlds, from `jaxdae.app.config.load`.
        parent: where the run folder is made.
        console: for progress.
        source: the file of the config, for the record.
    """
    from jaxdae.app import results

    folder, record = begin(config, parent, source)
    clock = time.perf_counter()
    system = worlds.one()[0]
    writer = results.Writer(
        folder / run_folder.RESULTS,
        list(system.coordinate_names),
        list(system.coordinate_units),
        list(system.row_names),
        list(system.row_units),
        worlds.parameters,
        {
            "name": config.name,
            "description": config.description,
            "dt_s": config.dt,
            "integrator": config.integrator.type,
        },
    )
    with precision(config), Progress(config.steps, console, worlds.size) as progress:
        summary = simulate(config, worlds, writer.add, progress.update)
    writer.flush()
    finish(folder, record, results=_results(summary), timing=_timing(config, worlds, summary, clock))
    draw(folder, config, record)
    return Run(folder, summary, record)


def begin(config: Config, parent: pathlib.Path, source: str = "") -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns a new run folder that holds the resolved config, and the record of a run that begins now."""
    started = datetime.datetime.now(datetime.UTC)
    folder = run_folder.create(parent, config.name, started)
    run_folder.write_config(folder, config)
    record: dict[str, Any] = {
        "name": config.name,
        "started": started.isoformat(timespec="seconds"),
        "finished": None,
        "command": run_folder.command_line(),
        "source": source,
        "seed": config.batch.seed,
        "precision": config.precision,
        "environment": run_folder.environment(pathlib.Path(source).resolve().parent if source else pathlib.Path.cwd()),
        "config": run_folder.resolved(config),
    }
    run_folder.write_record(folder, record)
    return folder, record


def finish(folder: pathlib.Path, record: dict[str, Any], **found: Any) -> None:
    """Writes what a run found into its record, and that it ended."""
    record |= found
    record["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run_folder.write_record(folder, record)


def draw(folder: pathlib.Path, config: Config, record: dict[str, Any]) -> None:
    """Draws plots and report of a run, over those that are there."""
    from jaxdae.app import plots, results

    pictures = []
    if config.output.plots:
        with results.read(folder / run_folder.RESULTS) as data:
            pictures = plots.draw_all(folder / run_folder.PLOTS, config, data)
    report.write(folder / run_folder.REPORT, config, record, pictures)


def table(config: Config, record: dict[str, Any]) -> rich.table.Table:
    """Returns the summary of a run as a table for the console."""
    summary = rich.table.Table(title=config.name, title_justify="left", show_header=False)
    for label, value in report.rows(config, record):
        summary.add_row(label, value)
    return summary


def _results(summary: Summary) -> dict[str, Any]:
    timing = ("compile_s", "simulate_s")
    return {key: value for key, value in dataclasses.asdict(summary).items() if key not in timing}


def _timing(config: Config, worlds: Worlds, summary: Summary, clock: float) -> dict[str, float]:
    seconds = max(summary.simulate_s, 1e-9)
    return {
        "compile_s": summary.compile_s,
        "simulate_s": summary.simulate_s,
        "wall_s": time.perf_counter() - clock,
        "worlds_per_s": worlds.size / seconds,
        "world_steps_per_s": worlds.size * config.steps / seconds,
    }
