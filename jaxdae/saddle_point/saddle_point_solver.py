"""The saddle-point system and the interface of its solvers.

Every solver in this package computes (a, lam) with

    M a - J^T lam = f
    J a + C lam   = r                         C: diagonal compliance, None or zero for rigid constraints

in two phases: `factorize(M, J, C)` does the O(n^3) work, and the factors solve any number of right-hand
sides. Projections, the L blocks and the derivative (`saddle_point.derivative`) all reuse one factorization.

In (a, mu) with mu = -lam the matrix is symmetric, K = [M J^T; J -C]. For M > 0 and C >= 0, its null space
contains multipliers only: those with J^T mu = 0 and C mu = 0, one for every redundant row. Solvers that allow
redundant rows return x = K^+ b, the Moore-Penrose solution:

    a     is unique if r is consistent (otherwise it satisfies the rows in the least-squares sense),
    lam   is the shortest of all multipliers with the same force J^T lam: it has no component in the null
    space.
"""

from __future__ import annotations

from typing import Any, Protocol

from jaxdae.base.requirements import came, check_requirements, offers
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.typing import Rows, Velocity


class SaddlePointFactors(Protocol):
    """A factorized saddle-point matrix: a pytree that solves for any right-hand side.

    The method `reweighted(mass)` is optional (see the function `reweighted`). Factors that store only a
    decomposition of J implement it and return the factors with another matrix in place of M.
    """

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam), linear in the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        ...

    def inconsistent(self, r: Rows) -> Rows | None:
        """Return Q r, the part of r (nc,) that no (a, lam) can produce.

        Methods that require full rank return None, because Q r is zero.
        """
        ...


class SaddlePointSolver(Protocol):
    """A method for saddle-point systems: a stateless pytree.

    Apply it to given matrices with `solve_saddle_point`. A solver that exploits no structure starts with
    `mass.as_dense()` and `jacobian.as_dense()`. A solver that needs only products with J sets the class
    attribute `matrix_free = True` (see `needs_products_only`). Systems then pass J as an operator that is
    never formed as a matrix. A solver for J of full row rank sets `full_rank = True` (see `needs_full_rank`).
    Systems then pass NaN for rows of J that rounding has made meaningless (`linearization.lost_rows`).
    """

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> SaddlePointFactors:
        """Return the factors of [M -J^T; J C]; C = None means zero."""
        ...


def needs_products_only(solver: SaddlePointSolver) -> bool:
    """Return whether the solver declares `matrix_free = True`, that is, never forms J.

    Other solvers receive J in the form that the system provides.
    """
    given: Any = solver
    return offers(given, "matrix_free") and bool(given.matrix_free)


def needs_full_rank(solver: SaddlePointSolver) -> bool:
    """Return whether the solver declares `full_rank = True`, that is, J must have full row rank."""
    given: Any = solver
    return offers(given, "full_rank") and bool(given.full_rank)


def reweighted(factors: Any, mass: MassOperator) -> Any:
    """Return the factors with another matrix in place of M, or None if that needs a new decomposition of J.

    Args:
        factors: the result of a solver's `factorize`.
        mass: the other matrix, an operator.
    """
    return factors.reweighted(mass) if offers(factors, "reweighted") else None


SOLVER_TEXT = "solver must be a saddle-point solver, such as SchurComplement()"


def is_solver(solver: Any) -> bool:
    """Return whether the value is a saddle-point solver, or None for the default solver."""
    return solver is None or offers(solver, "factorize")


def check_solver(solver: Any) -> None:
    """Raise an error if the value is not a solver, or if its parameters are invalid.

    Raises:
        TypeError: text, a class, or anything else that is not a solver.
        ValueError: a negative tolerance.
    """
    if not is_solver(solver):
        raise TypeError(f"{SOLVER_TEXT}, got {came(solver)}")
    check_requirements("solver", solver)
