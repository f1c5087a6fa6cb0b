"""Automatic choice of the saddle-point solver, with a reason, on the host before compilation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxdae.dynamics.diagnostics import diagnose
from jaxdae.saddle_point import DenseKKT, LeastSquares, NullSpace, SaddlePointSolver, SchurComplement
from jaxdae.systems.system import AnySystem, State, checked_state, default_tolerance


class SolverChoice(NamedTuple):
    """The result of `choose_solver`.

    Attributes:
        solver: the saddle-point solver.
        reason: the reason for the choice, one sentence.
    """

    solver: SaddlePointSolver
    reason: str


def choose_solver(system: AnySystem, state: State) -> SolverChoice:
    """Return the saddle-point solver that suits a system, based on `diagnose` at a state, and the reason.

    The first rule that applies:

    1. M is not positive definite (massless coordinates): `DenseKKT`, or `NullSpace` if rows are dependent.
    2. Rows are dependent: `LeastSquares`, which allows them, and shares the load between them. Its tolerance
       is 1e-5 in double precision: during a motion, redundant rows are only nearly dependent.
    3. J M^-1/2 is so ill-conditioned, condition > eps^(-1/4), that the Delassus matrix with the square of
       this condition number would lose more than half of the digits: `DenseKKT`, whose error grows with the
       condition number, not with its square.
    4. Otherwise `SchurComplement`, the fastest at all measured sizes, up to 2048 rows. It factorizes sparse
       matrices of mechanisms with many bodies, J as rows of body pairs or M as a tree, in linear time.

    The choice is made once, on the host, before compilation; nothing changes at run time. If the motion
    passes through singular configurations, the rank is full at most states, so the function cannot detect it:
    choose `NullSpace` or `LeastSquares` yourself. The function never chooses Krylov methods, because their
    benefit depends on more than the size.

    Args:
        system: the mechanical system.
        state: a typical state of the motion; concrete.

    Raises:
        ValueError: the state or the Jacobian is not finite.
    """
    found = diagnose(system, state)
    dependent, lost = found.rank < found.rows, float(np.finfo(state.q.dtype).eps) ** -0.25
    rows = (
        f"{found.rows - found.rank} of {found.rows} rows depend on others ({', '.join(found.redundant)})"
        if dependent
        else ""
    )
    if not np.isfinite(found.scaled_condition):
        massless = "M is not positive definite"
        return (
            SolverChoice(NullSpace(), f"{massless}, and {rows}")
            if dependent
            else SolverChoice(DenseKKT(), massless)
        )
    if dependent:
        own = system.default_solver
        allows = isinstance(own, LeastSquares)
        return SolverChoice(own if allows else LeastSquares(default_tolerance(state.q.dtype)), rows)
    if found.scaled_condition > lost:
        reason = (
            f"the condition number of J M^-1/2 is {found.scaled_condition:.1e}, above {lost:.0e}, and "
            "the Delassus matrix squares it"
        )
        return SolverChoice(DenseKKT(), reason)
    state = checked_state(state)
    mass, rows = system.mass_operator(state.q), system.jacobian_operator(state.t, state.q, state.v)
    well = f"all {found.rows} rows are independent and well-conditioned ({found.scaled_condition:.1e})"
    reason = f"{well}; M is a {type(mass).__name__}, J are {type(rows).__name__}"
    return SolverChoice(SchurComplement(), reason)
