"""Schur complement: eliminate the accelerations and solve for the multipliers.

The first row gives a = M^-1 (f + J^T lam). Substituting it into the second row gives (J M^-1 J^T + C) lam = r
- J M^-1 f. The matrix on the left is the Delassus matrix. It is symmetric, and positive definite if J has
full row rank (or C > 0). It is smaller than the full saddle-point matrix and needs no pivoting, but its
condition number is about the square of that matrix's condition number. The lecture remarks that the second
method is "smaller/faster but numerically can have worse condition numbers".

With M = R R^T and F = J R^-T, the equations in scaled variables, x = R^T a and s = R^-1 f, are

    (F F^T + C) lam = r - F s,        x = s + F^T lam.

The solver stores only F, not both J and J M^-1, and F F^T is symmetric to the last bit.
"""

from __future__ import annotations

from typing import ClassVar

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.saddle_point.saddle_point_solver import SaddlePointFactors
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class SchurFactors:
    """The mass factors, F = J R^-T, and the Cholesky factor of the Delassus matrix."""

    mass: Leaf
    scaled_jacobian: Leaf
    delassus: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        free = None if f is None else self.mass.scaled(f)
        rest = r if free is None else r - self.scaled_jacobian.times(free)
        lam = self.delassus.solve(rest)
        pushed = self.scaled_jacobian.transpose_times(lam)
        return self.mass.unscaled(pushed if free is None else free + pushed), lam

    def inconsistent(self, r: Rows) -> None:
        """Return None because the method requires full rank."""


@pytree
class SchurComplement:
    """Cholesky factorization of M, then of the Delassus matrix J M^-1 J^T + C.

    M must be positive definite and J must have full row rank (or C > 0). Otherwise the result is NaN, which a
    rollout reports as `Status.NONFINITE`. This solver is the fastest choice for mechanisms in absolute
    coordinates, where M is diagonal.
    """

    full_rank: ClassVar[bool] = True

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> SaddlePointFactors:
        """Return the factors of [M -J^T; J C].

        The cost is O(nc^2 nv + nc^3) for matrices, and lower if M and J support structured elimination.
        """
        together = jacobian.eliminated(mass, compliance)
        if together is not None:
            return together
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        return SchurFactors(mass_factors, scaled, scaled.gram_factors(compliance))
