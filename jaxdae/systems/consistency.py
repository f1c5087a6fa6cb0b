"""Check that a start satisfies the constraints before a rollout.

A start off the manifold has no well-defined motion. A projection would move it in the first step to the
nearest point of the manifold, and velocities that violate the constraints would lose the energy of the
impulse that stops them. The result would look like a valid simulation of a motion that nobody asked for. A
rollout therefore compares the residuals of its start, row by row, with

    |g_i| <= tolerance (1 + max |q|) max_j |J_ij|,        |[g'; w]_i| <= tolerance (1 + max |v|) max_j |J_ij|,

and for rows in m and m/s, with the characteristic length L (`AnySystem.characteristic_length`) and with
coordinates and velocities in m and m/s,

    |g_i| <= max(tolerance L, 16 eps max |q|),            |[g'; w]_i| <= tolerance (L / 1 s + max |v|).

A world that fails the test has the status INCONSISTENT_START and does not move. The largest entry of the row
of J converts a residual in any row unit to a coordinate error, in m or rad. The size of the coordinates
accounts for rounding: single precision resolves a position 1e4 m away to 1e-3 m. Rows in rad compare with
the coordinates that are not in m. Their limits, too, are at least 16 times the rounding of all coordinates.
The 1 is a radian, or a unit of a row without a unit. In a row in rad that also depends on coordinates in m,
such as an angle that follows a slide, the entries of these coordinates count times L:

    |g_i| <= tolerance max(L max_j |J_ij| of lengths, (1 + max |q|) max_j |J_ij| of angles).

`initialize` computes consistent starts.

Quaternions must have length 1, to the same tolerance, because the joints that carry bodies have no rows that
would detect other lengths.

A row that no coordinate can change, |J_ij| <= sqrt(eps), is redundant. An example is the second of two hinges
on one axis in joint coordinates. Its residual is a sum of positions, and may be as large as their rounding:
1000 eps (1 + max |q|).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.requirements import requirements_met
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State
from jaxdae.systems.tolerances import are_angles, are_lengths, scales


def start_status(system: AnySystem, state: State, tolerance: Any) -> Any:
    """Return the status () of a start: INCONSISTENT_START if it violates hard rows.

    Otherwise return the condition of the system, which is usually OK.

    Args:
        system: the system; soft and inactive rows do not count.
        state: the start. The velocities of a `KinematicSystem` are a result of its steps and do not count.
        tolerance: see the module.

    A NaN residual passes, because the first step reports it as non-finite.
    """
    rows = hard_rows(system.evaluate(state.t, state.q, state.v))
    g, jacobian, names = rows.opening, rows.jacobian, system.names
    limits = _limits(system, jacobian, names.coordinate_units, state.q, of_places=True)
    is_open = _exceeds(g, jax.tree.map(lambda limit: limit[: g.shape[0]], limits), tolerance)
    if not system.first_order:
        limits = _limits(system, jacobian, names.velocity_units, state.v, of_places=False)
        is_open |= _exceeds(rows.velocity, limits, tolerance)
    if not system.flat:
        is_open |= _off_its_space(system, state, tolerance)
    condition = system.condition(state.t, state.q)
    closed: Any = Status.OK if condition is None else condition
    status: Any = jnp.where(is_open, Status.INCONSISTENT_START, closed)
    return status.astype(jnp.int32)


def _off_its_space(system: Any, state: State, tolerance: Any) -> Any:
    """Return whether quaternions do not have length 1 (). `retract` normalizes them."""
    off = jnp.abs(system.retract(state.q, jnp.zeros_like(state.v)) - state.q)
    limit = jnp.asarray(tolerance, off.dtype) * (1.0 + jnp.abs(state.q))
    return jnp.any(off > limit) & (tolerance < jnp.inf)


def first_status(
    system: AnySystem, integrator: Any, controls: Any, state: State, dt: Any, tolerance: Any, goes_on: bool
) -> Any:
    """Return the initial status () of a rollout: OK, INCONSISTENT_START, or another condition of the start.

    OUT_OF_RANGE means that a parameter is out of range.

    Args:
        system: the system.
        integrator: the method.
        controls: inputs, a law, or None.
        state: the start.
        dt: the step in s, which must be positive and finite; None for adaptive integration.
        tolerance: see the module.
        goes_on: whether the rollout continues another one, whose end is not checked.
    """
    status = jnp.zeros((), jnp.int32) if goes_on else start_status(system, state, tolerance)
    met = requirements_met((system, integrator, controls))
    if dt is not None:
        met &= (dt > 0.0) & jnp.isfinite(dt)
    return jnp.where(met, status, Status.OUT_OF_RANGE).astype(jnp.int32)


_ROUNDINGS = 1000.0
"""The largest accepted residual of a row that no coordinate can change, in units of rounding."""
_FAR_ROUNDINGS = 16.0
"""The accepted residual of other rows of position level, in units of the rounding of the coordinates."""


def _limits(system: AnySystem, jacobian: Any, units: Any, values: Any, *, of_places: bool) -> tuple[Any, Any]:
    """Return the sizes (nc,) to which residuals are relative, and the share of rounding in their limits.

    Args:
        system: the system.
        jacobian: the rows of J.
        units: of the values.
        values: coordinates or velocities.
        of_places: whether the values are coordinates, whose distance from the origin matters for rounding
            only.
    """
    row_units, scale = system.names.row_units, jacobian.row_sizes()
    lengths, rows = are_lengths(units, values.shape[0]), are_lengths(row_units, scale.shape[0])
    far = jnp.max(jnp.where(lengths, jnp.abs(values), 0.0), initial=0.0)
    near = 1.0 + jnp.max(jnp.where(lengths, 0.0, jnp.abs(values)), initial=0.0)
    sizes = scales(system, row_units, scale.shape[0], values.dtype)
    angles = are_angles(row_units, scale.shape[0])
    eps, largest, size = (
        jnp.finfo(values.dtype).eps,
        jnp.max(scale, initial=1.0),
        1.0 + jnp.max(jnp.abs(values), initial=0.0),
    )
    moves = scale > eps**0.5 * largest
    rounding: Any = jnp.where(moves, 0.0, _ROUNDINGS * eps * largest * size)
    relative = jnp.where(rows & moves, sizes + far, scale * size)
    if of_places:
        rounding = jnp.where(moves, _FAR_ROUNDINGS * eps * (scale * near + far), rounding)
        relative = jnp.where(rows & moves, sizes, scale * jnp.where(angles, near, size))
    moved = are_lengths(system.names.velocity_units, jacobian.shape[1])
    # Entries per meter count times a length, so that the sizes have the unit of the row.
    length = jnp.asarray(system.characteristic_length, values.dtype)
    if angles.any() and moved.any():
        reach = length if of_places else length + far
        weighted = _row_sizes(jacobian, jnp.where(moved, reach, near))
        relative = jnp.where(angles & moves, weighted, relative)
    if of_places and moved.any():
        distant = _row_sizes(jacobian, jnp.where(moved, jnp.maximum(length, far), near)) + far
        rounding = jnp.where((rows | angles) & moves, _FAR_ROUNDINGS * eps * distant, rounding)
    return relative, rounding


def _row_sizes(jacobian: Any, weights: Any) -> Any:
    """Return the largest magnitude in each row of J, with each column times a positive weight."""
    return jacobian.over_columns(1.0 / weights).row_sizes()


def _exceeds(residual: Any, limits: tuple[Any, Any], tolerance: Any) -> Any:
    tolerance = jnp.asarray(tolerance, residual.dtype)
    limit = jnp.maximum(tolerance * limits[0], limits[1])
    # With an infinite tolerance any start passes, even for zero rows of J.
    return jnp.any(jnp.abs(residual) > limit) & (tolerance < jnp.inf)
