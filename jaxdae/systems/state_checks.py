"""Checks of single states on the host: violated constraints, and causes of results that are not finite.

Functions that evaluate one instant, such as `forward_dynamics`, compute plausible numbers at states that
violate the constraints: a loop that is open, or a mimic joint that did not follow its driver. Called with
concrete arrays, they warn. Under `jit`, `vmap` and `grad` nothing can be reported, and `state_status` returns
the same verdict as an array.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.requirements import check_requirements, requirements_met
from jaxdae.systems.consistency import start_status
from jaxdae.systems.linearization import lost_rows
from jaxdae.systems.masks import Masked, hard_rows
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State, check_fit, checked_state, default_tolerance
from jaxdae.typing import Coordinates, Count

_NAMED = 3
"""The largest number of rows, coordinates or inputs that a warning names."""


class StateWarning(UserWarning):
    """A function evaluated a state that violates the constraints, or its result is not finite."""


def state_status(system: AnySystem, state: State, *, tolerance: Any = None) -> Count:
    """Return whether a state satisfies the constraints of a system, as a `Status` ().

    Args:
        system: the system; soft rows, inactive rows, contacts and joint limits do not count.
            `jaxdae.contact.Touching` checks contacts and joint limits in its steps.
        state: time (s), coordinates and velocities. A `KinematicSystem` ignores the velocities.
        tolerance: as `start_tolerance` of `rollout`; 1e-5 by default, 3.5e-4 in single precision.

    Returns:
        OK; INCONSISTENT_START if a row of position or velocity level is violated, or if a quaternion does not
        have length 1; OUT_OF_RANGE if a parameter is out of range; or the condition of the system, such as
        OFF_TERRAIN. Rows that are NaN pass.

    Raises:
        TypeError: `system` or `state` has the wrong type.
        ValueError: shapes that do not fit, or a negative tolerance.

    A pure function: `jit` and `vmap` apply. `initialize` returns a state that satisfies the constraints.
    """
    if isinstance(tolerance, int | float) and not tolerance >= 0:
        raise ValueError(f"state_status: tolerance must be non-negative, got {tolerance}")
    state = checked_state(state)
    check_fit(system, state)
    status = start_status(system, state, default_tolerance(state.q.dtype) if tolerance is None else tolerance)
    found: Any = jnp.where(requirements_met(system), status, Status.OUT_OF_RANGE)
    return found.astype(jnp.int32)


def report_state(function: str, system: AnySystem, state: State, *results: Any) -> None:
    """Warn if a state violates the constraints; do nothing under `jit`, `vmap` and `grad`.

    Call it directly from the public function: the warning points to the caller of that function.

    Args:
        function: the name of the public function.
        system: the system.
        state: the state that the function evaluated.
        *results: the results of the function; a tracer among them means that nothing can be reported.

    Raises:
        ValueError: if a parameter of the system is out of range.
    """
    if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((system, state, results))):
        _report(function, system, checked_state(state), "initialize(system, state.q, state.v)")


def report_coordinates(function: str, system: AnySystem, q: Coordinates, *results: Any) -> None:
    """Warn if coordinates violate rows of position level that do not depend on time, see `report_state`.

    Raises:
        ValueError: if a parameter of the system is out of range.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((system, q, results))):
        return
    q = jnp.asarray(q)
    sizes = system.sizes(q)
    # The time and the velocities are unknown: at time NaN, rows that depend on time are NaN and pass.
    state = State(jnp.full((), jnp.nan, q.dtype), q, jnp.zeros((sizes.nv,), q.dtype))
    _report(function, Masked(system, np.arange(sizes.nc) < sizes.ng), state, "initialize(system, q)")


@jax.jit
def _status(system: AnySystem, state: State) -> Count:
    return start_status(system, state, default_tolerance(state.q.dtype))


def _report(function: str, system: AnySystem, state: State, remedy: str) -> None:
    check_requirements("system", system)
    status = _status(system, state)
    # Inside of a trace, constants give traced results.
    if isinstance(status, Tracer) or int(status) == Status.OK:
        return
    found = Status(int(status))
    if found != Status.INCONSISTENT_START:
        text = f"{found.name} at this state: {found.meaning}"
    else:
        violated = _violations(system, state)
        follows = (
            "; in robots.joint_state, give the driver, and jaxdae computes its followers"
            if ".relation" in violated
            else ""
        )
        text = f"the state violates the constraints: {violated}. Close them with {remedy}{follows}"
    warnings.warn(f"{function}: {text}", StateWarning, stacklevel=4)


def _violations(system: AnySystem, state: State) -> str:
    """Return the rows that are violated most, with values and units."""
    rows, names = (
        hard_rows(system.evaluate(state.t, state.q, state.v)),
        system.names.filled(system.sizes(state.q)),
    )
    g = rows.opening
    found = list(zip(np.asarray(g, float), names.rows, names.row_units, strict=False))
    if not system.first_order:
        units = [f"{unit}/s" if unit and k < len(g) else unit for k, unit in enumerate(names.row_units)]
        rates = np.asarray(rows.velocity, float)
        found += list(zip(rates, [f"rate of {name}" for name in names.rows], units, strict=True))
    # Residuals in the units of the coordinates: small entries in J make small residuals of large errors.
    scale = np.asarray(rows.jacobian.row_sizes(), float)
    scale = np.where(scale > 1e-8 * max(1.0, scale.max(initial=0.0)), scale, 1.0)
    sizes = (
        np.nan_to_num(np.abs([value for value, _, _ in found]))
        / np.concatenate([scale[: len(g)], scale])[: len(found)]
    )
    named = [
        int(k)
        for k in np.argsort(-sizes, kind="stable")[:_NAMED]
        if sizes[k] > 1e-3 * sizes.max() and sizes[k] > 0.0
    ]
    parts = [f"{found[k][1]} = {found[k][0]:.3g}{' ' if found[k][2] else ''}{found[k][2]}" for k in named]
    if not system.flat:
        off = np.abs(np.asarray(system.retract(state.q, jnp.zeros_like(state.v)) - state.q))
        if np.max(off, initial=0.0) > default_tolerance(state.q.dtype):
            parts.append(
                f"the quaternion with {names.coordinates[int(np.argmax(off))]} does not have length 1"
            )
    return ", ".join(parts)


def report_nonfinite(
    function: str, system: AnySystem, state: State, u: Any, solver: Any, results: Any
) -> None:
    """Warn with the cause if accelerations or multipliers are not finite; do nothing under `jit` and so on.

    Args:
        function: the name of the public function.
        system: the system.
        state: the state that the function evaluated.
        u: input.
        solver: the saddle-point solver.
        results: accelerations and multipliers.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((system, state, u, solver, results))):
        return
    if all(np.all(np.isfinite(np.asarray(result))) for result in results):
        return
    warnings.warn(
        f"{function}: the result is not finite: {_cause(system, state, u, solver)}",
        StateWarning,
        stacklevel=3,
    )


def _cause(system: AnySystem, state: State, u: Any, solver: Any) -> str:
    """Return why accelerations are not finite."""
    names = system.names.filled(system.sizes(state.q))
    t, q, v = state.t, state.q, state.v
    at = system.evaluate(t, q, v)
    force, bias = at.force(u), at.bias
    mass, jacobian = (np.asarray(x, float) for x in (at.mass.as_dense(), at.dense_jacobian))
    inputs = np.zeros(0) if u is None else np.asarray(u, float).reshape(-1)
    for what, values, of in (
        ("the time", np.asarray(t, float).reshape(1), ("t",)),
        ("the coordinates", q, names.coordinates),
        ("the velocities", v, names.velocities),
        ("the input", inputs, (*names.inputs, *(f"u{k}" for k in range(len(names.inputs), inputs.size)))),
        ("the force", force, names.velocities),
        ("the mass matrix", np.sum(mass, axis=1), names.velocities),
        ("the Jacobian", np.sum(jacobian, axis=1), names.rows),
        ("the constraint bias", bias, names.rows),
    ):
        wrong = [
            name for name, value in zip(of, np.asarray(values, float), strict=False) if not np.isfinite(value)
        ]
        if wrong:
            return (
                f"{what} is not finite ({_first(wrong)})"
                if what[-1] != "s"
                else f"{what} are not finite ({_first(wrong)})"
            )
    eps, kind = float(jnp.finfo(q.dtype).eps), type(solver).__name__
    size, modes = np.linalg.eigh(mass)
    massless = size <= 100.0 * eps * len(size) * max(size[-1], 0.0)
    if np.any(massless):
        return (
            f"the mass matrix is singular ({_first(_part(modes[:, massless], names.velocities))}); give "
            "each moving coordinate mass"
        )
    lost = None if solver is None else lost_rows(system, solver, at.jacobian)
    if lost is not None and np.any(lost):
        unmoved = _first([names.rows[k] for k in np.flatnonzero(lost)])
        return (
            f"no velocity moves along the rows {unmoved} (a singular configuration), and {kind} needs full "
            "rank; use NullSpace() as solver"
        )
    dependent, rank = _dependent(jacobian, mass, eps)
    if len(dependent):
        return (
            f"the rows {_first([names.rows[k] for k in dependent])} are linearly dependent (rank {rank} of "
            f"{len(jacobian)} rows), and {kind} needs full rank; use LeastSquares(1e-5) or NullSpace() "
            "as solver; independent_rows(system, state) names the rows to keep"
        )
    return (
        f"{kind} found no solution, although the force, the mass matrix and the rows are finite and "
        "regular; try LeastSquares(1e-5) as solver"
    )


def _dependent(jacobian: np.ndarray, mass: np.ndarray, eps: float) -> tuple[np.ndarray, int]:
    """Return the rows of J that depend on each other, and the rank of J, both in the mass metric."""
    if not len(jacobian):
        return np.zeros(0, int), 0
    weighted = np.linalg.solve(np.linalg.cholesky(mass), jacobian.T).T
    lengths = np.linalg.norm(weighted, axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(weighted / np.where(lengths > 0.0, lengths, 1.0))
    rank = int(np.sum(sizes > 10.0 * eps**0.5 * sizes[0])) if sizes[0] > 0.0 else 0
    return np.flatnonzero(np.max(np.abs(left[:, rank:]), axis=1, initial=0.0) > 1e-4), rank


def _part(modes: np.ndarray, names: tuple[str, ...]) -> list[str]:
    """Return the names of the entries that take part in modes (n, k)."""
    return [names[k] for k in np.flatnonzero(np.max(np.abs(modes), axis=1) > 1e-4)]


def _first(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
