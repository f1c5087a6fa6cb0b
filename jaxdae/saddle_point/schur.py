"""The smaller system: eliminate the accelerations, solve for the multipliers.

The first row gives a = M^-1 (f + J^T lam); put into the second, (J M^-1 J^T + C) lam = r - J M^-1 f. The matrix on the left is the
Delassus matrix: symmetric, positive definite where J has full row rank (or C > 0). It is smaller than the full saddle point and
needs no pivoting, but its condition number is about the square: the lecture's remark that the second method is "smaller/faster but
numerically can have worse condition numbers".
"""

from __future__ import annotations

from typing import Any

from jaxdae import small_matrix
from jaxdae._pytree import pytree
from jaxdae.saddle_point import mass as mass_matrix
from jaxdae.saddle_point.interface import solve_once
from jaxdae.saddle_point.mass import MassMatrix
from jaxdae.typing import Jacobian, Leaf, Rows, Velocity


@pytree
class SchurFactors:
    """Cholesky factors of M and of the Delassus matrix, with the Jacobian between them."""

    mass: Leaf
    jacobian: Leaf
    lower: Leaf

    def solve(self, f: Velocity, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,) and r (nc,)."""
        free = self.mass.solve(f)
        lam = small_matrix.cholesky_solve(self.lower, r - small_matrix.matvec(self.jacobian, free))
        return free + self.mass.solve(small_matrix.rmatvec(self.jacobian, lam)), lam


@pytree
class SchurComplement:
    """Cholesky of M, then of the Delassus matrix J M^-1 J^T + C.

    Needs M positive definite and J of full row rank (or C > 0); otherwise the result is NaN, which a rollout reports as
    `Status.NONFINITE`. The fastest choice for mechanisms in absolute coordinates, where M is diagonal.
    """

    def factorize(self, mass: MassMatrix, jacobian: Jacobian, compliance: Rows) -> SchurFactors:
        """Returns factors of [M -J^T; J C]; O(nc^2 nv + nc^3) for diagonal M."""
        mass_factors = mass_matrix.factorize(mass)
        delassus = small_matrix.product_transposed(mass_factors.solve_rows(jacobian), jacobian)
        return SchurFactors(mass_factors, jacobian, small_matrix.cholesky(small_matrix.add_diagonal(delassus, compliance)))

    def __call__(
        self, mass: MassMatrix, jacobian: Jacobian, f: Velocity, r: Rows, compliance: Any = 0.0
    ) -> tuple[Velocity, Rows]:
        """Returns (a, lam); see `SaddlePointSolver`."""
        return solve_once(self, mass, jacobian, f, r, compliance)
