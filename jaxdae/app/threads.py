"""Distribute the worlds of a batch over CPU cores, with one thread per core, or over JAX devices.

Measured with 64 worlds of Andrews' mechanism on two cores: one program over both cores takes 0.40 s, as on
one core, because its operations are too short to be shared. Two threads take 0.19 s, and two host devices
(`jax.shard_map`) take 0.18 s. All threads run one program, so no bit depends on the number of threads.
Programs for several devices are fused differently, which changes the last bits (docs/layout.md explains why).
"""

import os

import jax
import numpy as np

from jaxdae.app.problems import Refused


def divided(devices: int | None) -> tuple[int, jax.sharding.Mesh | None]:
    """Return the number of threads and the device mesh; None for all devices that JAX sees.

    Args:
        devices: the number of cores or devices; None for all.

    Raises:
        Refused: `devices` exceeds the number of devices.
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
