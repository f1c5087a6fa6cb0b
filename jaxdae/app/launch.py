"""The ways in which `jaxdae run` begins: anew, where a run stopped, as one of many jobs, as one of many processes."""

import os
import pathlib
import shutil
import socket
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import rich.console

from jaxdae.app import locks, opened, run_folder
from jaxdae.app.build import Worlds
from jaxdae.app.hosts import Hosts
from jaxdae.app.identity import check, identity
from jaxdae.app.problems import Refused
from jaxdae.app.run_record import Run, begin
from jaxdae.app.schema import Config
from jaxdae.app.shares import Shares
from jaxdae.disk import force_names

Load = Callable[[str], tuple[Config, Worlds]]


def resume(folder: pathlib.Path, load: Load, console: rich.console.Console, devices: int | None = None) -> Run:
    """Continues a run that was stopped or killed, from its checkpoints to its end.

    Args:
        folder: of the run.
        load: reads a config and closes its loops.
        console: for progress.
        devices: among how many cores of a CPU, or devices, the worlds are divided; None for all.

    Raises:
        Refused: no such run, another process works on it, or it was begun by other code.
        Failed: the disk let the run down on the way.
        KeyboardInterrupt: with what is left behind in words.
    """
    opened.simulation(folder, "--resume", digests=False)
    with locks.lock(folder):
        # Once more: the process that held the lock a moment ago may have ended the run.
        return _opened(opened.simulation(folder, "--resume"), load, console, "--resume", devices).all()


def merge(folder: pathlib.Path, load: Load, console: rich.console.Console) -> Run:
    """Puts together what the jobs of `jaxdae run --chunks` left behind.

    Raises:
        Refused: no such run, parts that are missing, or parts of another run.
    """
    opened.simulation(folder, "merge", digests=False)
    with locks.lock(folder):
        return _opened(opened.simulation(folder, "merge"), load, console, "merge").merge()


def share(
    config: Config,
    worlds: Worlds,
    parent: pathlib.Path,
    console: rich.console.Console,
    source: str,
    job: tuple[int, int],
    devices: int | None = None,
) -> tuple[str, str]:
    """Simulates chunk `job[0]` of `job[1]` of a run that many jobs share; returns in words what was done and what failed, if anything.

    All jobs of a config, with the same code, find the same folder below `parent`, whoever comes first. What failed follows from the worlds
    of the chunk alone, so that a job that is started again ends with the same exit code.
    """
    folder = shared_folder(config, parent, source)
    record = _begun(folder, config, "--chunks")
    shares = Shares(folder, record, config, worlds, console, number=job[0], devices=devices)
    if record["complete"]:
        return f"{folder} is complete", shares.failed(*job)
    done = shares.share(*job)
    return f"{done}\njaxdae merge {folder} puts all chunks together", shares.failed(*job)


def distributed(
    config: Config,
    worlds: Worlds,
    parent: pathlib.Path,
    console: rich.console.Console,
    source: str,
    hosts: Hosts,
    devices: int | None = None,
) -> Run | None:
    """Simulates the worlds of this process; process 0 ends the run when all are done. The same command continues a run that was stopped.

    Returns:
        The run in process 0, None in the others.
    """
    folder = shared_folder(config, parent, source)
    record = _begun(folder, config, "--distributed")
    mesh = jax.sharding.Mesh(np.asarray(jax.local_devices()), ("world",))
    shares = Shares(folder, record, config, worlds, console, hosts.index, mesh, devices, reports=hosts.index == 0)
    count = min(hosts.count, shares.grid.chunks)
    if hosts.index < count and not record["complete"]:
        shares.share(hosts.index, count)
    if not record["complete"]:
        shares.wait()
    hosts.meet()
    if hosts.index > 0:
        return None
    if record["complete"]:
        raise Refused(f"--distributed: got a run that is complete: {folder}; jaxdae plot draws it")
    return shares.merge("--distributed")


def shared_folder(config: Config, parent: pathlib.Path, source: str) -> pathlib.Path:
    """Returns the folder that all processes of a run share: its name follows from the config, and it is put in place whole."""
    folder = parent / f"{config.name}-{identity(config)['config'][:10]}"
    if not (folder / run_folder.RECORD).exists():
        mine = parent / f".{folder.name}.{socket.gethostname()}.{os.getpid()}"
        made, _ = begin(config, mine, source)
        try:
            made.rename(folder)
            force_names(parent)
        except OSError:
            if not (folder / run_folder.RECORD).exists():
                raise
        finally:
            shutil.rmtree(mine, ignore_errors=True)
    return folder


def _begun(folder: pathlib.Path, config: Config, asked: str) -> dict[str, Any]:
    """Returns the record of a folder that processes share, which must be that of the run that they were asked for."""
    record = opened.recorded(folder).record
    check(folder, record.get("identity", {}), identity(config), asked)
    return record


def _opened(found: opened.Opened, load: Load, console: rich.console.Console, asked: str, devices: int | None = None) -> Shares:
    config, worlds = load(str(found.folder / run_folder.CONFIG))
    check(found.folder, found.record["identity"], identity(config), asked)
    return Shares(found.folder, found.record, config, worlds, console, devices=devices)
