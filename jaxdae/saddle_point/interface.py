"""The saddle-point system and the interface of its solvers.

Every solver here finds (a, lam) with

    M a - J^T lam = f
    J a + C lam   = r                         C: diagonal compliance, None or zero for rigid constraints

in two phases: `factorize(M, J, C)` does the O(n^3) work, and the factors solve any number of right-hand sides. Projections, the L
blocks and the derivative (`saddle_point.derivative`) all reuse one factorization.

In (a, mu) with mu = -lam the matrix is symmetric, K = [M J^T; J -C], and for M > 0, C >= 0 its null space holds multipliers only: those
with J^T mu = 0 and C mu = 0, one for every redundant row. Solvers that allow these return x = K^+ b, the Moore-Penrose solution:

    a     is unique where r is consistent (and satisfies the rows in the least-squares sense where it is not),
    lam   is the shortest of all multipliers with the same force J^T lam: it has no part in the null space.
"""

from __future__ import annotations

from typing import Any, Protocol

from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.requirements import came, check_requirements, offers
from jaxdae.typing import Rows, Velocity


class SaddlePointFactors(Protocol):
    """A factorized saddle-point matrix: a pytree that solves for any right-hand side.

    A further method is optional, see `reweighted`: factors that hold a decomposition of J alone return from `reweighted(mass)` the factors
    with another matrix in place of M.
    """

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,); linear in both."""
        ...

    def inconsistent(self, r: Rows) -> Rows | None:
        """Returns the part of r (nc,) that no (a, lam) can produce, Q r; None from methods that need full rank, where it is zero."""
        ...


class SaddlePointSolver(Protocol):
    """A method for saddle-point systems; a pytree without state. `solve_saddle_point` uses one on given matrices.

    A solver that knows no structure begins with `mass.as_dense()` and `jacobian.as_dense()`. One that needs only products with J says so by
    a class attribute `matrix_free = True`, see `needs_products_only`: systems then hand it J in a form that is never a matrix.
    """

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> SaddlePointFactors:
        """Returns factors of [M -J^T; J C]; C is None for zero."""
        ...


def needs_products_only(solver: SaddlePointSolver) -> bool:
    """Returns whether a solver says by `matrix_free = True` that it never forms J. Others are handed J as the system has it."""
    return offers(solver, "matrix_free") and bool(solver.matrix_free)  # pyright: ignore[reportAttributeAccessIssue]


def reweighted(factors: Any, mass: MassOperator) -> Any:
    """Returns the factors with another matrix in place of M where they can do so without decomposing J anew, else None.

    Args:
        factors: what a solver's `factorize` returned.
        mass: the other matrix, an operator.
    """
    return factors.reweighted(mass) if offers(factors, "reweighted") else None


SOLVER_TEXT = "solver must be a saddle-point solver, such as SchurComplement()"


def is_solver(solver: Any) -> bool:
    """Returns whether something may stand where a saddle-point solver belongs; None does everywhere, for a default."""
    return solver is None or offers(solver, "factorize")


def check_solver(solver: Any) -> None:
    """Raises where a solver is none, or its numbers have no meaning.

    Raises:
        TypeError: text, a class, or anything else that is no solver.
        ValueError: a negative tolerance.
    """
    if not is_solver(solver):
        raise TypeError(f"{SOLVER_TEXT}, got {came(solver)}")
    check_requirements("solver", solver)
