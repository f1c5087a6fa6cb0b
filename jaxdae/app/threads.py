"""Among what the worlds of a batch are divided: the cores of a CPU, each with a thread of its own, or the devices that JAX sees.

Measured with 64 worlds of Andrews' mechanism on two cores: one program over both cores takes 0.40 s, as on one core, for its operations
are too short to be shared; two threads take 0.19 s, two host devices (`jax.shard_map`) 0.18 s. Threads run one program, so that no bit
depends on how many there are; programs for several devices are fused otherwise, to other last bits (docs/layout.md says why).
"""

import os

import jax
import numpy as np

from jaxdae.app.problems import Refused


def divided(devices: int | None) -> tuple[int, jax.sharding.Mesh | None]:
    """Returns the number of threads, and the devices; None for all that JAX sees.

    Args:
        devices: how many cores, or devices, are used; None for all.

    Raises:
        Refused: more devices than there are.
    """
    if jax.default_backend() == "cpu":
        return devices or _cores(), None
    found = jax.local_devices()
    if devices is None:
        return 1, None
    if devices > len(found):
        raise Refused(f"--devices: got {devices}, expected at most {len(found)}, which JAX sees")
    return 1, jax.sharding.Mesh(np.asarray(found[:devices]), ("world",))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
