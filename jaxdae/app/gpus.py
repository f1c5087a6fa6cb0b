"""Which GPUs a process takes where several run on one host: each its own.

By itself JAX gives a process all GPUs that it sees, and under SLURM and Open MPI before 5 the one whose number is that of the process on
its host. Neither suits every start: a task that SLURM binds to a GPU sees that one alone, as number 0; Open MPI from 5 on is not
recognized, and each of its processes would take most of the memory of all GPUs; a task for a whole host would have one of its GPUs.
Hence the numbers are chosen here.
"""

import importlib.metadata
import os
import re
from typing import NamedTuple

from jaxdae.app.problems import Refused

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
LOOPBACK = re.compile(r"localhost|127\..*|\[?::1\]?")


class Place(NamedTuple):
    """Where a process is among those of its host: which one it is, and how many there are."""

    index: int
    count: int


def place(host: str, process: int | None, processes: int | None) -> Place | None:
    """Returns the place of this process on its host; None where nothing tells.

    Args:
        host: of the coordinator. One that is reached from its own host alone means that all processes are there.
        process: which of all it was told to be; None where a scheduler tells.
        processes: how many it was told there are; None likewise.
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
    """Returns the numbers of the GPUs that a process takes, among those that it sees; None leaves them to JAX.

    Raises:
        Refused: fewer GPUs than processes.
    """
    if at is None or "JAX_LOCAL_DEVICE_IDS" in os.environ:  # JAX reads that itself.
        return None
    seen = _seen()
    if seen is None:  # What JAX does under the schedulers that it knows.
        return [at.index] if at.count > 1 else None
    there = int(os.environ.get("SLURM_GPUS_ON_NODE", seen))
    if at.count == 1 or seen < there or (seen == 1 and "SLURM_GPUS_ON_NODE" not in os.environ):
        return list(range(seen))  # The process has a host of its own, or was bound to what it sees.
    if seen >= at.count:
        return list(range(at.index * seen // at.count, (at.index + 1) * seen // at.count))
    if not _used(os.environ.get("JAX_PLATFORMS")):
        return None
    same = f"the same {seen} GPUs" if seen > 1 else "the same GPU"
    raise Refused(
        f"--distributed: got {at.count} processes on a host that see {same}, expected one process a GPU,"
        f" such as srun --ntasks-per-node={seen} --gpus-per-task=1, or CUDA_VISIBLE_DEVICES of its own for each"
    )


def _seen() -> int | None:
    """Returns how many GPUs the environment lets this process see; None where it does not say."""
    told = next((os.environ[name] for name in _VISIBLE if name in os.environ), None)
    return None if told is None else len([name for name in told.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]) or None


def _tasks(told: str) -> list[int]:
    """Returns the tasks of each host from what SLURM writes: 8(x2),4 is 8, 8, 4."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", told)
    return [int(tasks) for tasks, times in groups for _ in range(int(times or 1))]


def _used(platforms: str | None) -> bool:
    """Returns whether JAX would compute on GPUs: it has a plugin for them and was not told to leave them."""
    plugins = [plugin.name for plugin in importlib.metadata.entry_points(group="jax_plugins")]
    wanted = any(name in (platforms or "gpu") for name in ("gpu", "cuda", "rocm"))
    return wanted and any("cuda" in name or "rocm" in name for name in plugins)
