"""The record of a run from its begin to its end, its pictures and its report."""

import dataclasses
import datetime
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import rich.table

from jaxdae.app import files, report, run_folder
from jaxdae.app.identity import identity
from jaxdae.app.problems import Refused
from jaxdae.app.schema import Config
from jaxdae.app.simulate import Summary


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run left behind.

    Attributes:
        config: its config.
        folder: its folder.
        summary: what the simulation was like.
        record: what `run.json` holds.
    """

    config: Config
    folder: pathlib.Path
    summary: Summary
    record: dict[str, Any]


def draw_finished(draw: Callable[..., None], folder: pathlib.Path, config: Config, record: dict[str, Any]) -> None:
    """Draws a run that has just finished, and says that its results are complete where that is stopped.

    Args:
        draw: of simulations or of fits.
        folder: the run folder.
        config: its config.
        record: what its `run.json` holds.

    Raises:
        Failed: the disk let the pictures down.
        KeyboardInterrupt: with what is left behind in words.
    """
    told = f"the results in {folder} are complete, and jaxdae plot {folder} draws them"
    try:
        draw(folder, config, record, pictures=config.output.plots)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(told) from None
    except OSError as error:
        raise run_folder.failed(error, folder, told) from error


def begin(config: Config, parent: pathlib.Path, source: str = "") -> tuple[pathlib.Path, dict[str, Any]]:
    """Returns a new run folder that holds the resolved config, and the record of a run that begins now.

    Raises:
        Refused: no such folder can be made; nothing is left of it.
    """
    started = datetime.datetime.now(datetime.UTC)
    record: dict[str, Any] = {
        "name": config.name,
        "started": started.isoformat(timespec="seconds"),
        "finished": None,
        "complete": False,
        "command": run_folder.command_line(),
        "source": source,
        "seed": config.batch.seed,
        "precision": config.precision,
        "identity": identity(config),
        "environment": run_folder.environment(pathlib.Path(source).resolve().parent if source else pathlib.Path.cwd()),
        "config": run_folder.resolved(config),
    }
    try:
        folder = run_folder.create(parent, config.name, started)
    except OSError as error:
        raise Refused(files.explained(error, parent)) from error
    try:
        run_folder.write_config(folder, config)
        run_folder.write_record(folder, record)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refused(files.explained(error, folder)) from error
    return folder, record


def finish(folder: pathlib.Path, record: dict[str, Any], stopped: str = "", digests: dict[str, str] | None = None, **found: Any) -> None:
    """Writes what a run found into its record, the digests of its results, and that it ended.

    Args:
        folder: the run folder.
        record: what `begin` returned.
        stopped: why it ended before all was done; such a run is not complete.
        digests: of the results; left out, as they lie on the disk now.
        found: what is added to the record.
    """
    record |= found
    if stopped:
        record["stopped"] = stopped
    else:
        record.pop("stopped", None)
        files.remove_leftovers(folder)
        record["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record["complete"] = not stopped
    record["digests"] = run_folder.digests(folder) if digests is None else digests
    run_folder.write_record(folder, record)


def draw(folder: pathlib.Path, config: Config, record: dict[str, Any], pictures: bool) -> None:
    """Draws the plots of a run, where they are wanted, and writes its report, over those that are there."""
    from jaxdae.app import plots, results

    shown = []
    if pictures:
        with results.read(folder / run_folder.RESULTS, record.get("written")) as data, run_folder.pictures(folder) as place:
            drawn = plots.draw_all(place, config, data)
        shown = [folder / run_folder.PLOTS / file.name for file in drawn]
    report.write(folder / run_folder.REPORT, config, record, shown)


def table(config: Config, record: dict[str, Any]) -> rich.table.Table:
    """Returns the summary of a run as a table for the console."""
    summary = rich.table.Table(title=config.title, title_justify="left", show_header=False)
    for label, value in report.rows(config, record):
        summary.add_row(label, value)
    return summary
