"""Assign GPUs to processes that share a host: each process gets its own GPUs.

By default, JAX gives a process all visible GPUs. Under SLURM and Open MPI before 5, it gives a process the
GPU whose index is the local rank. Neither rule works for every launch:

- A task that SLURM binds to a GPU sees only this GPU, as number 0.
- JAX does not recognize Open MPI 5 and later, so each process would reserve most of the memory of all GPUs.
- A single task on a whole host would get only one of its GPUs.

This module therefore chooses the GPU numbers.
"""

import importlib.metadata
import os
import re
from typing import NamedTuple

from jaxdae.app.config.problems import Refused

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
LOOPBACK = re.compile(r"localhost|127\..*|\[?::1\]?")


class Place(NamedTuple):
    """Local rank of a process on its host, and the number of processes on this host."""

    index: int
    count: int


def place(host: str, process: int | None, processes: int | None) -> Place | None:
    """Return the local rank of this process and the local process count; None if they are unknown.

    Args:
        host: host name of the coordinator. A loopback address means that all processes run on this host.
        process: index of this process, as given by the user; None if a scheduler provides it.
        processes: number of processes, as given by the user; None if a scheduler provides it.
    """
    given = os.environ
    if process is not None and processes is not None and LOOPBACK.fullmatch(host):
        return Place(process, processes)
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in given:
        return Place(int(given["OMPI_COMM_WORLD_LOCAL_RANK"]), int(given["OMPI_COMM_WORLD_LOCAL_SIZE"]))
    if "SLURM_LOCALID" in given and "SLURM_STEP_TASKS_PER_NODE" in given:
        tasks = _tasks(given["SLURM_STEP_TASKS_PER_NODE"])
        return Place(int(given["SLURM_LOCALID"]), tasks[int(given.get("SLURM_NODEID", "0"))])
    return None


def own(at: Place | None) -> list[int] | None:
    """Return the numbers of the visible GPUs that a process uses; None leaves the choice to JAX.

    Raises:
        Refused: there are fewer GPUs than processes.
    """
    if at is None or "JAX_LOCAL_DEVICE_IDS" in os.environ:  # JAX reads this variable itself.
        return None
    seen = _seen()
    if seen is None:  # JAX does the same under the schedulers that it knows.
        return [at.index] if at.count > 1 else None
    there = int(os.environ.get("SLURM_GPUS_ON_NODE", seen))
    if at.count == 1 or seen < there or (seen == 1 and "SLURM_GPUS_ON_NODE" not in os.environ):
        return list(range(seen))  # The process has its own host, or is bound to the visible GPUs.
    if seen >= at.count:
        return list(range(at.index * seen // at.count, (at.index + 1) * seen // at.count))
    if not _used(os.environ.get("JAX_PLATFORMS")):
        return None
    same = f"the same {seen} GPUs" if seen > 1 else "the same GPU"
    raise Refused(
        f"--distributed: got {at.count} processes on a host that see {same}, expected one process per GPU, "
        f"such as srun --ntasks-per-node={seen} --gpus-per-task=1, or a different CUDA_VISIBLE_DEVICES for "
        "each process"
    )


def _seen() -> int | None:
    """Return the number of GPUs that the environment makes visible to this process; None if it is not set."""
    told = next((os.environ[name] for name in _VISIBLE if name in os.environ), None)
    return (
        None
        if told is None
        else len([name for name in told.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]) or None
    )


def _tasks(told: str) -> list[int]:
    """Return the tasks per host from the notation of SLURM: 8(x2),4 means 8, 8, 4."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", told)
    return [int(tasks) for tasks, times in groups for _ in range(int(times or 1))]


def _used(platforms: str | None) -> bool:
    """Return whether JAX would use GPUs: it has a GPU plugin, and `platforms` does not exclude it."""
    plugins = [plugin.name for plugin in importlib.metadata.entry_points(group="jax_plugins")]
    wanted = any(name in (platforms or "gpu") for name in ("gpu", "cuda", "rocm"))
    return wanted and any("cuda" in name or "rocm" in name for name in plugins)
