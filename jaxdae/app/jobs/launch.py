"""Launch modes of `jaxdae run`: resume, merge, one chunk per job, or distributed processes."""

import os
import pathlib
import shutil
import socket
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import rich.console

from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.jobs.hosts import Hosts
from jaxdae.app.jobs.run_record import Run, begin
from jaxdae.app.jobs.shares import Shares
from jaxdae.app.model.build import Worlds
from jaxdae.app.runs import locks, open_run, run_folder
from jaxdae.app.runs.run_identity import check, identity
from jaxdae.base.atomic_writes import force_names

Load = Callable[[str], tuple[Config, Worlds]]


def resume(
    folder: pathlib.Path, load: Load, console: rich.console.Console, devices: int | None = None
) -> Run:
    """Continue a stopped or killed run from its checkpoints to its end.

    Args:
        folder: the run folder.
        load: function that reads a config and closes its loops.
        console: console for the progress.
        devices: number of CPU cores or devices that share the worlds; None for all.

    Raises:
        Refused: the run does not exist, another process works on it, or it was started with different code.
        Failed: the disk failed during the run.
        KeyboardInterrupt: the run was interrupted; the message describes the state of the run folder.
    """
    open_run.simulation(folder, "--resume", digests=False)
    with locks.lock(folder):
        # Check again: the process that held the lock until now may have completed the run.
        return _opened(open_run.simulation(folder, "--resume"), load, console, "--resume", devices).all()


def merge(folder: pathlib.Path, load: Load, console: rich.console.Console) -> Run:
    """Merge the results of the jobs of `jaxdae run --chunks`.

    Raises:
        Refused: the run does not exist, parts are missing, or parts belong to another run.
    """
    open_run.simulation(folder, "merge", digests=False)
    with locks.lock(folder):
        return _opened(open_run.simulation(folder, "merge"), load, console, "merge").merge()


def share(
    config: Config,
    worlds: Worlds,
    parent: pathlib.Path,
    console: rich.console.Console,
    source: str,
    job: tuple[int, int],
    devices: int | None = None,
) -> tuple[str, str]:
    """Simulate chunk `job[0]` of `job[1]` of a shared run; return a text of the progress and of the failures.

    All jobs with the same config and code use the same folder below `parent`, in any order of arrival. The
    text of the failures depends only on the worlds of the chunk, so a restarted job ends with the same exit
    code.
    """
    folder = shared_folder(config, parent, source)
    record = _begun(folder, config, "--chunks")
    shares = Shares(folder, record, config, worlds, console, number=job[0], devices=devices)
    if record["complete"]:
        return f"{folder} is complete", shares.failed(*job)
    done = shares.share(*job)
    return f"{done}\njaxdae merge {folder} combines all chunks", shares.failed(*job)


def distributed(
    config: Config,
    worlds: Worlds,
    parent: pathlib.Path,
    console: rich.console.Console,
    source: str,
    hosts: Hosts,
    devices: int | None = None,
) -> Run | None:
    """Simulate the worlds of this process; process 0 completes the run after all processes finish.

    The same command continues a stopped run.

    Returns:
        The run in process 0, None in the other processes.
    """
    folder = shared_folder(config, parent, source)
    record = _begun(folder, config, "--distributed")
    mesh = jax.sharding.Mesh(np.asarray(jax.local_devices()), ("world",))
    shares = Shares(
        folder, record, config, worlds, console, hosts.index, mesh, devices, reports=hosts.index == 0
    )
    count = min(hosts.count, shares.grid.chunks)
    if hosts.index < count and not record["complete"]:
        shares.share(hosts.index, count)
    if not record["complete"]:
        shares.wait()
    hosts.meet()
    if hosts.index > 0:
        return None
    if record["complete"]:
        raise Refused(f"--distributed: got a complete run: {folder}; use jaxdae plot to draw it")
    return shares.merge("--distributed")


def shared_folder(config: Config, parent: pathlib.Path, source: str) -> pathlib.Path:
    """Return the shared folder of a run, named after the config; create it atomically if it is missing."""
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
    """Return the record of a shared folder, after checking that it belongs to this config and code."""
    record = open_run.recorded(folder).record
    check(folder, record.get("identity", {}), identity(config), asked)
    return record


def _opened(
    found: open_run.Opened, load: Load, console: rich.console.Console, asked: str, devices: int | None = None
) -> Shares:
    config, worlds = load(str(found.folder / run_folder.CONFIG))
    check(found.folder, found.record["identity"], identity(config), asked)
    return Shares(found.folder, found.record, config, worlds, console, devices=devices)
