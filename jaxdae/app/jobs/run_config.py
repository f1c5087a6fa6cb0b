"""Simulate a config, save the results, and write plots and a report."""

import pathlib

import rich.console

from jaxdae.app.config.schema import Config
from jaxdae.app.jobs.run_record import Run, begin
from jaxdae.app.jobs.shares import Shares
from jaxdae.app.model.build import Worlds
from jaxdae.app.runs import locks


def run(
    config: Config,
    worlds: Worlds,
    parent: pathlib.Path,
    console: rich.console.Console,
    source: str = "",
    devices: int | None = None,
) -> Run:
    """Run a checked config in a new folder below `parent`.

    Args:
        config: the config.
        worlds: its worlds, from `jaxdae.app.model.load_config.load`.
        parent: the parent of the new run folder.
        console: the console for progress.
        source: the file of the config, for the record.
        devices: the number of CPU cores or devices that share the worlds; None for all.

    Raises:
        Refused: the run folder cannot be created.
        Failed: a disk error stopped the run.
        KeyboardInterrupt: with a message about the saved part of the run. The simulated steps are written,
            and the record marks the run as incomplete.
    """
    folder, record = begin(config, parent, source)
    with locks.lock(folder):
        return Shares(folder, record, config, worlds, console, devices=devices).all()
