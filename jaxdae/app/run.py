"""A run: simulate, save, draw, report."""

import pathlib

import rich.console

from jaxdae.app import locks
from jaxdae.app.build import Worlds
from jaxdae.app.run_record import Run, begin
from jaxdae.app.schema import Config
from jaxdae.app.shares import Shares


def run(
    config: Config, worlds: Worlds, parent: pathlib.Path, console: rich.console.Console, source: str = "", devices: int | None = None
) -> Run:
    """Runs a checked config into a new folder below `parent`.

    Args:
        config: the config.
        worlds: its worlds, from `jaxdae.app.config.load`.
        parent: where the run folder is made.
        console: for progress.
        source: the file of the config, for the record.
        devices: among how many cores of a CPU, or devices, the worlds are divided; None for all.

    Raises:
        Refused: no folder can be made there.
        Failed: the disk let the run down on the way.
        KeyboardInterrupt: with what is left behind in words. What was simulated is written, and the record says that it is not all.
    """
    folder, record = begin(config, parent, source)
    with locks.lock(folder):
        return Shares(folder, record, config, worlds, console, devices=devices).all()
