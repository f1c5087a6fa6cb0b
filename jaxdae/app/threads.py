"""How the cores of a CPU are used: as so many devices, each with its share of the worlds. Decided before JAX starts."""

import jax

from jaxdae.app.problems import Refused


def use(devices: int | None) -> None:
    """Makes the CPU count as so many devices; None leaves it as it is.

    Raises:
        Refused: JAX has started already.
    """
    if devices is None:
        return
    try:
        jax.config.update("jax_num_cpu_devices", devices)
    except RuntimeError as error:
        raise Refused(f"--devices: got {devices} in a process that has begun to compute ({error}); start a new one") from None
