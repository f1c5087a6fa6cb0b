"""Scales of tolerances: lengths are relative to the characteristic length of a system."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.systems.system import AnySystem


def are_lengths(units: tuple[str, ...], count: int) -> np.ndarray:
    """Return whether each of `count` quantities is in m or m/s; missing units count as others."""
    return _have_unit(units, count, ("m", "m/s"))


def are_angles(units: tuple[str, ...], count: int) -> np.ndarray:
    """Return whether each of `count` quantities is in rad or rad/s; missing units count as others."""
    return _have_unit(units, count, ("rad", "rad/s"))


def _have_unit(units: tuple[str, ...], count: int, accepted: tuple[str, ...]) -> np.ndarray:
    return np.asarray([unit in accepted for unit in (*units, *("",) * count)][:count], bool)


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


def size_in_rows(system: AnySystem, x: Any, units: tuple[str, ...], count: int) -> tuple[Any, Any]:
    """Return the unit () of the first `count` rows, and the largest magnitude () of x (n,) in this unit.

    If all of these rows are lengths, the unit is the characteristic length, and angles count as arcs of this
    radius. Otherwise, the unit is 1.

    Args:
        system: the system.
        x: coordinates, or velocities.
        units: of x, such as `system.names.coordinate_units`; missing ones count as angles.
        count: number of rows.
    """
    arm = jnp.ones((), x.dtype)
    if count and are_lengths(system.names.row_units, count).all():
        arm = jnp.asarray(system.characteristic_length, x.dtype)
    arms = jnp.where(are_lengths(units, x.shape[0]), jnp.ones((), x.dtype), arm)
    return arm, jnp.max(arms * jnp.abs(x), initial=0.0)


def shortest_scale(system: AnySystem, dtype: Any) -> Any:
    """Return min(1, characteristic length) (), the scale of tolerances of mixed quantities."""
    return jnp.minimum(jnp.asarray(system.characteristic_length, dtype), jnp.ones((), dtype))
