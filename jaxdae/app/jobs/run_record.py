"""The record of a run from start to end, with its plots and its report."""

import dataclasses
import datetime
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import rich.table

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.runs import run_folder, run_report
from jaxdae.app.runs.run_identity import identity
from jaxdae.app.runs.simulate import Summary


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        config: its config.
        folder: its folder.
        summary: the summary of the simulation.
        record: the contents of `run.json`.
    """

    config: Config
    folder: pathlib.Path
    summary: Summary
    record: dict[str, Any]


def draw_finished(
    draw: Callable[..., None], folder: pathlib.Path, config: Config, record: dict[str, Any]
) -> None:
    """Draw a run that has just finished; if drawing is interrupted, report that its results are complete.

    Args:
        draw: the drawing function for simulations or for fits.
        folder: the run folder.
        config: its config.
        record: the contents of its `run.json`.

    Raises:
        Failed: a disk error prevented the plots.
        KeyboardInterrupt: with a message about the saved results.
    """
    told = f"the results in {folder} are complete; use jaxdae plot {folder} to draw them"
    try:
        draw(folder, config, record, pictures=config.output.plots)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(told) from None
    except OSError as error:
        raise run_folder.failed(error, folder, told) from error


def begin(config: Config, parent: pathlib.Path, source: str = "") -> tuple[pathlib.Path, dict[str, Any]]:
    """Return a new run folder with the resolved config, and the record of the run that starts now.

    Raises:
        Refused: the folder cannot be created; nothing is left of it.
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
        "environment": run_folder.environment(
            pathlib.Path(source).resolve().parent if source else pathlib.Path.cwd()
        ),
        "config": run_folder.resolved(config),
    }
    try:
        folder = run_folder.create(parent, config.name, started)
    except OSError as error:
        raise Refused(safe_files.explained(error, parent)) from error
    try:
        run_folder.write_config(folder, config)
        run_folder.write_record(folder, record)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Refused(safe_files.explained(error, folder)) from error
    return folder, record


def finish(
    folder: pathlib.Path,
    record: dict[str, Any],
    stopped: str = "",
    digests: dict[str, str] | None = None,
    **found: Any,
) -> None:
    """Write the results and the end of a run into its record, with the digests of its result files.

    Args:
        folder: the run folder.
        record: the record from `begin`.
        stopped: the reason of an early end; the run is then incomplete.
        digests: the digests of the results; by default, the digests of the files now on disk.
        found: entries added to the record.
    """
    record |= found
    if stopped:
        record["stopped"] = stopped
    else:
        record.pop("stopped", None)
        safe_files.remove_leftovers(folder)
        record["finished"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record["complete"] = not stopped
    record["digests"] = run_folder.digests(folder) if digests is None else digests
    run_folder.write_record(folder, record)


def draw(folder: pathlib.Path, config: Config, record: dict[str, Any], pictures: bool) -> None:
    """Draw the plots of a run if `pictures` is set, and write its report; replace existing files."""
    from jaxdae.app.draw import plots
    from jaxdae.app.runs import results

    shown = []
    if pictures:
        with (
            results.read(folder / run_folder.RESULTS, record.get("written")) as data,
            run_folder.pictures(folder) as place,
        ):
            drawn = plots.draw_all(place, config, data)
        shown = [folder / run_folder.PLOTS / file.name for file in drawn]
    run_report.write(folder / run_folder.REPORT, config, record, shown)


def table(config: Config, record: dict[str, Any]) -> rich.table.Table:
    """Return the summary of a run as a table for the console."""
    summary = rich.table.Table(title=config.title, title_justify="left", show_header=False)
    for label, value in run_report.rows(config, record):
        summary.add_row(label, value)
    return summary
