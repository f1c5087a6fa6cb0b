"""Which solver suits a system, and why. On the host, once, before anything is compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxdae.diagnostics import diagnose
from jaxdae.saddle_point import DenseKKT, LeastSquares, NullSpace, SaddlePointSolver, SchurComplement
from jaxdae.system import AnySystem, State, checked_state


class SolverChoice(NamedTuple):
    """What `choose_solver` returns.

    Attributes:
        solver: the saddle-point solver.
        reason: why it was chosen, a sentence.
    """

    solver: SaddlePointSolver
    reason: str


def choose_solver(system: AnySystem, state: State) -> SolverChoice:
    """Returns the saddle-point solver that suits a system, by what `diagnose` finds at a state, and why.

    The first rule that applies:

    1. M is not positive definite (massless coordinates): `DenseKKT`, or `NullSpace` where rows are dependent.
    2. Rows are dependent: `LeastSquares`, which allows them, and shares the load between them.
    3. J M^-1/2 is so ill-conditioned that the Delassus matrix, with the square of that condition number, would lose more than half of the
       digits, condition > eps^(-1/4): `DenseKKT`, which sees the condition number once.
    4. Otherwise `SchurComplement`, the fastest at all sizes that were measured, up to 2048 rows: what is sparse in a mechanism of many
       bodies, J as rows of body pairs or M as a tree, it factorizes in linear time.

    Decided once, on the host, before anything is compiled; nothing changes at run time. A mechanism that passes singular configurations
    looks regular at most states: choose `NullSpace` or `LeastSquares` for it yourself. Krylov methods are never chosen: when they pay
    depends on more than the size.

    Args:
        system: the mechanical system.
        state: a state that is typical for the motion; concrete.

    Raises:
        ValueError: the state or the Jacobian is not finite.
    """
    found = diagnose(system, state)
    dependent, lost = found.rank < found.rows, float(np.finfo(state.q.dtype).eps) ** -0.25
    rows = f"{found.rows - found.rank} of {found.rows} rows depend on others ({', '.join(found.redundant)})" if dependent else ""
    if not np.isfinite(found.scaled_condition):
        massless = "M is not positive definite"
        return SolverChoice(NullSpace(), f"{massless}, and {rows}") if dependent else SolverChoice(DenseKKT(), massless)
    if dependent:
        return SolverChoice(LeastSquares(), rows)
    if found.scaled_condition > lost:
        reason = f"the condition number of J M^-1/2 is {found.scaled_condition:.1e}, beyond {lost:.0e}, and the Delassus matrix squares it"
        return SolverChoice(DenseKKT(), reason)
    state = checked_state(state)
    mass, rows = system.mass_operator(state.q), system.jacobian_operator(state.t, state.q, state.v)
    well = f"all {found.rows} rows are independent and well-conditioned ({found.scaled_condition:.1e})"
    reason = f"{well}; M is a {type(mass).__name__}, J are {type(rows).__name__}"
    return SolverChoice(SchurComplement(), reason)


def auto_solver(system: AnySystem, state: State) -> SaddlePointSolver:
    """Returns the solver that `choose_solver` chooses, without the reason."""
    return choose_solver(system, state).solver
