"""The impulse that makes velocities consistent with rows that switch on; see `jaxdae.systems.masks`."""

from __future__ import annotations

from typing import Any

import jax

from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.derivative import solve
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.masks import Masked, hard_rows
from jaxdae.systems.nonaffine_rows import has_affine_rows, on_curved_rows
from jaxdae.systems.state_checks import report_state
from jaxdae.systems.system import AnySystem, State, check_system, checked_state
from jaxdae.typing import Rows, Velocity


def constraint_impulse(
    system: AnySystem, state: State, active: Any = None, *, solver: SaddlePointSolver | None = None
) -> tuple[Velocity, Rows]:
    """Return the velocities after the impulse that makes them consistent, and the impulse.

    M (v+ - v) = J^T p, J v+ + dg/dt = 0. The impact is plastic: nothing rebounds. Momentum along the manifold
    is conserved. If no row depends on time, the kinetic energy decreases by (v - v+)^T M (v - v+) / 2. A
    time-dependent row does work.

    Args:
        system: the mechanical system; rows with compliance do not act.
        state: time (s), coordinates and velocities before the impulse.
        active: (nc,), which rows are on; None for the active rows of `system`.
        solver: a saddle-point solver; `SchurComplement()` by default.

    Returns:
        v+ (nv,) and p (nc,), the time integral of lam: N s for a row in meters, N m s for one in radians;
        zero in rows that are off.

    Warns:
        StateWarning: the coordinates violate active rows, or the velocities still violate a row after the
            impulse. The function checks nothing under `jit`, `vmap` and `grad`.

    Differentiable except with respect to `active`. One factorization.
    """
    check_system(system)
    check_solver(solver)
    state = checked_state(state)
    v, p = _constraint_impulse(system, state, active, solver)
    rows = system if active is None else Masked(system, active)
    report_state("constraint_impulse", rows, State(state.t, state.q, v), p)
    return v, p


@jax.jit
def _constraint_impulse(
    system: AnySystem, state: State, active: Any, solver: SaddlePointSolver | None
) -> tuple[Velocity, Rows]:
    masked = system if active is None else Masked(system, active)
    rows = hard_rows(masked.evaluate(state.t, state.q, state.v))
    at = linearize_at(rows, solver)
    change, p = solve(at.factors, at.mass, at.jacobian, at.compliance, None, -rows.velocity)
    if has_affine_rows(rows.system, state):
        return state.v + change, p
    return on_curved_rows(rows.system, state, at, state.v + change, p)[:2]
