"""Slip of the tires of a planar vehicle at a state."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import join_first
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.measures import Pairs
from jaxdae.mechanisms.forces.planar_tires import Contact, regularized
from jaxdae.systems.system import State, check_fit, check_mechanism, checked_state
from jaxdae.typing import Leaf


@pytree
class TireSlip:
    """Slip of the k tires of a vehicle, with the signs of docs/vehicles.md.

    Attributes:
        ratio: slip ratios (V_r - v_x) / |v_x| (k,), positive when driving; zero for wheels that roll freely.
        angle: slip angles atan(v_y / |v_x|) (k,) in rad.
        speed: slip speeds (k, 2) in m/s, along the heading of the wheel and to its left.
        names: names of the tires (static).
    """

    ratio: Leaf
    angle: Leaf
    speed: Leaf
    names: tuple[str, ...] = static()


def tire_slip(mechanism: Mechanism, state: State) -> TireSlip:
    """Return the slip of all tires of a planar mechanism at a state.

    Below the speed `slow` of a tire, |v_x| is regularized as in its force.

    Raises:
        ValueError: the mechanism has no planar tires, or a tire whose rim speed is an input.

    Differentiable; `jax.vmap` computes the slip along a trajectory.

    Example:
        >>> found = jv.tire_slip(car, state)
    """
    check_mechanism(mechanism)
    state = checked_state(state)
    check_fit(mechanism, state)
    groups = _tires(mechanism)
    names = tuple(name for group in groups for name in group.names)
    driven = [group for group in groups if _has_input(group)]
    if not groups or driven:
        problem = "has no planar tires" if not groups else "has tires with an input as rim speed"
        listed = [name for group in driven for name in group.names]
        raise ValueError(f"tire_slip: the mechanism {problem}{': ' if listed else ''}{join_first(listed)}")
    motion = mechanism.coordinates.kinematics(state.q, state.v)
    parts = []
    for group in groups:
        pair, measure = Pairs(group.a, group.b, len(mechanism.body_names)), type(group).rate
        rows = group.derivatives.velocity_values(measure, group, pair, motion, state.t)
        under: Any = regularized(rows[:, 2], group.slow)
        parts.append((-rows[:, 0] / under, jnp.arctan(rows[:, 1] / under), rows[:, :2]))
    return TireSlip(*(jnp.concatenate(column) for column in zip(*parts, strict=True)), names=names)


def tires_with_slip(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the names of the tires in the order of `tire_slip`; empty where `tire_slip` raises an error."""
    groups = _tires(mechanism)
    return () if any(map(_has_input, groups)) else tuple(name for group in groups for name in group.names)


def _tires(mechanism: Mechanism) -> list[Any]:
    return [group for group in mechanism.forces.values() if isinstance(group, Contact)]


def _has_input(group: Contact) -> bool:
    """Return whether the rim speed of a tire is an input."""
    return any(number >= 0 for number in group.inputs)
