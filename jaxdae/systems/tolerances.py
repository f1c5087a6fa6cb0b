"""Scales of tolerances: lengths are relative to the characteristic length of a system."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.systems.system import AnySystem


def are_lengths(units: tuple[str, ...], count: int) -> np.ndarray:
    """Return whether each of `count` quantities is in m or m/s; missing units count as others."""
    return np.asarray([unit in ("m", "m/s") for unit in (*units, *("",) * count)][:count], bool)


def scales(system: AnySystem, units: tuple[str, ...], count: int, dtype: Any) -> Any:
    """Return the characteristic sizes (count,) of quantities with these units.

    The size is `system.characteristic_length` for m and m/s, else 1.

    Args:
        system: the system.
        units: such as `system.names.row_units`; missing ones count as 1.
        count: number of quantities.
        dtype: of the result.
    """
    return jnp.where(
        are_lengths(units, count), jnp.asarray(system.characteristic_length, dtype), jnp.ones((), dtype)
    )


def shortest_scale(system: AnySystem, dtype: Any) -> Any:
    """Return min(1, characteristic length) (), the scale of tolerances of mixed quantities."""
    return jnp.minimum(jnp.asarray(system.characteristic_length, dtype), jnp.ones((), dtype))
