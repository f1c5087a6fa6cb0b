"""What tires carry: mechanisms with other loads, and reports of loads that no ground could give."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms import Mechanism
from jaxdae.status import Status
from jaxdae.typing import Leaf


@pytree
class LoadReport:
    """What the tires of a vehicle carry.

    Attributes:
        load: (k,) of the tires in N, not below zero.
        pull: (k,) by how much the ground would have to pull at a wheel in N, zero where it pushes. A wheel that is pulled at would lift
            off: the motion that is computed is not that of the vehicle then.
        change: () the last relative change of the iteration that found the loads.
        status: () OK; NOT_CONVERGED where the iteration has not ended.
        names: of the tires (static).
    """

    load: Leaf
    pull: Leaf
    change: Leaf
    status: Leaf
    names: tuple[str, ...] = static()

    def lifted(self) -> tuple[str, ...]:
        """Returns the names of the tires that are pulled at, on the host."""
        return tuple(name for name, pull in zip(self.names, self.pull, strict=True) if pull > 0.0)


def loaded_tires(mechanism: Mechanism) -> dict[str, Any]:
    """Returns the groups of tires that have a load."""
    return {key: group for key, group in mechanism.forces.items() if hasattr(group, "load")}


def tire_names(mechanism: Mechanism) -> tuple[str, ...]:
    """Returns the names of the tires that have a load, in the order of loads."""
    return tuple(name for group in loaded_tires(mechanism).values() for name in group.names)


def carrying(mechanism: Mechanism, loads: Any) -> Mechanism:
    """Returns the mechanism whose tires have these loads (k,) in N, in the order of `tire_names`."""
    forces, first = dict(mechanism.forces), 0
    for key, group in loaded_tires(mechanism).items():
        behind = first + len(group.names)
        forces[key] = dataclasses.replace(group, load=jax.lax.slice_in_dim(loads, first, behind))
        first = behind
    return dataclasses.replace(mechanism, forces=forces)


def report(mechanism: Mechanism, wanted: Any, change: Any) -> LoadReport:
    """Returns the report of loads (k,) that balance, negative where wheels would have to pull, after an iteration with this last change."""
    pull = jnp.maximum(-wanted, 0.0)
    converged = change <= float(jnp.finfo(wanted.dtype).eps) ** 0.5
    status: Any = jnp.where(converged, Status.OK, Status.NOT_CONVERGED)
    return LoadReport(jnp.maximum(wanted, 0.0), pull, change, status.astype(jnp.int32), tire_names(mechanism))
