"""Whether a start satisfies the constraints, so that a rollout may begin there.

A start off the manifold has no motion to be simulated: a projection would move it there in the first step, by as much as it is off, to
whichever side is nearest, and velocities that break the constraints would lose the energy of the impulse that stops them. Neither is what
was asked for, and either would look like a simulation. So a rollout compares the residuals of its start, row by row, with

    |g_i| <= tolerance (1 + max |q|) max_j |J_ij|,        |[g'; w]_i| <= tolerance (1 + max |v|) max_j |J_ij|,

for rows in m and m/s, with the characteristic length L (`AnySystem.characteristic_length`) and coordinates and velocities in m,

    |g_i| <= tolerance (L + max |q|),                     |[g'; w]_i| <= tolerance (L / 1 s + max |v|),

and a world that fails the test has the status INCONSISTENT_START and does not move. With the largest entry of its row of J a residual is
measured by how far the coordinates are off, in m or rad, in whatever units the row is written. The size of the coordinates stands for
rounding: a place 1e4 m away is known to 1e-3 m in single precision. The 1 is a radian, or a unit of a row without a unit.
`initialize` makes consistent starts.

Quaternions have to be of length 1, to the same tolerance: joints that carry bodies have no rows that would notice.

A row that no coordinate can change, |J_ij| <= sqrt(eps), is a redundant one, such as those of the second of two hinges on one axis in joint
coordinates. Its residual, which is made of sums of places, may be as large as their rounding: 1000 eps (1 + max |q|).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.masks import hard_rows
from jaxdae.requirements import requirements_met
from jaxdae.status import Status
from jaxdae.system import AnySystem, State, velocity_residual
from jaxdae.tolerances import are_lengths, scales


def start_status(system: AnySystem, state: State, tolerance: Any) -> Any:
    """Returns INCONSISTENT_START where the hard rows do not hold at a state, else the condition of the system, OK for most ().

    Args:
        system: the system; rows that are soft or switched off do not count.
        state: the start. The velocities of a `KinematicSystem` are a result of its steps and do not count.
        tolerance: see the module.

    A residual that is NaN passes, because the first step reports it as what it is.
    """
    rows = hard_rows(system.at(state.q), state)
    g = rows.opening(state.t, state.q)
    scale = rows.jacobian_operator(state.t, state.q, state.v).row_sizes()
    names = system.names
    is_open = _exceeds(g, _limits(system, names.row_units, scale[: g.shape[0]], names.coordinate_units, state.q), tolerance)
    if not system.first_order:
        limits = _limits(system, names.row_units, scale, names.velocity_units, state.v)
        is_open |= _exceeds(velocity_residual(rows, state), limits, tolerance)
    if not system.flat:
        is_open |= _off_its_space(system, state, tolerance)
    condition = system.condition(state.t, state.q)
    closed: Any = Status.OK if condition is None else condition
    status: Any = jnp.where(is_open, Status.INCONSISTENT_START, closed)
    return status.astype(jnp.int32)


def _off_its_space(system: Any, state: State, tolerance: Any) -> Any:
    """Returns whether coordinates are none of the system (): quaternions that are not of length 1. `retract` makes them such."""
    off = jnp.abs(system.retract(state.q, jnp.zeros_like(state.v)) - state.q)
    limit = jnp.asarray(tolerance, off.dtype) * (1.0 + jnp.max(jnp.abs(state.q), initial=0.0))
    return jnp.any(off > limit) & (tolerance < jnp.inf)


def first_status(system: AnySystem, integrator: Any, controls: Any, state: State, dt: Any, tolerance: Any, goes_on: bool) -> Any:
    """Returns the status () that a rollout begins with: OK, INCONSISTENT_START, or OUT_OF_RANGE where a parameter has no meaning.

    Args:
        system: the system.
        integrator: the method.
        controls: inputs, a law, or None.
        state: the start.
        dt: the step in s, which must be positive and finite; None where there is none.
        tolerance: see the module.
        goes_on: whether the rollout goes on from another, whose end is no start.
    """
    status = jnp.zeros((), jnp.int32) if goes_on else start_status(system, state, tolerance)
    met = requirements_met((system, integrator, controls))
    if dt is not None:
        met &= (dt > 0.0) & jnp.isfinite(dt)
    return jnp.where(met, status, Status.OUT_OF_RANGE).astype(jnp.int32)


_ROUNDINGS = 1000.0
"""How many units of rounding the residual of a row may have that no coordinate can change."""


def _limits(system: AnySystem, row_units: Any, scale: Any, units: Any, values: Any) -> tuple[Any, Any]:
    """Return the sizes (k,) to which residuals are relative, and the part of their limits that rounding takes.

    Args:
        system: the system.
        row_units: of the rows.
        scale: largest entries (k,) of the rows of J.
        units: of the values.
        values: coordinates or velocities.
    """
    far = jnp.max(jnp.where(are_lengths(units, values.shape[0]), jnp.abs(values), 0.0), initial=0.0)
    sizes = scales(system, row_units, scale.shape[0], values.dtype)
    eps, largest, size = jnp.finfo(values.dtype).eps, jnp.max(scale, initial=1.0), 1.0 + jnp.max(jnp.abs(values), initial=0.0)
    moves = scale > eps**0.5 * largest
    rounding = jnp.where(moves, 0.0, _ROUNDINGS * eps * largest * size)
    return jnp.where(are_lengths(row_units, scale.shape[0]) & moves, sizes + far, scale * size), rounding


def _exceeds(residual: Any, limits: tuple[Any, Any], tolerance: Any) -> Any:
    tolerance = jnp.asarray(tolerance, residual.dtype)
    limit = jnp.maximum(tolerance * limits[0], limits[1])
    # Any start passes with an infinite tolerance, in rows of zeros too.
    return jnp.any(jnp.abs(residual) > limit) & (tolerance < jnp.inf)
