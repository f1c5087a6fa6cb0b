"""The smaller system: eliminate the accelerations, solve for the multipliers.

The first row gives a = M^-1 (f + J^T lam); put into the second, (J M^-1 J^T + C) lam = r - J M^-1 f. The matrix on the left is the
Delassus matrix: symmetric, positive definite where J has full row rank (or C > 0). It is smaller than the full saddle point and
needs no pivoting, but its condition number is about the square: the lecture's remark that the second method is "smaller/faster but
numerically can have worse condition numbers".

With M = R R^T and F = J R^-T everything is written in scaled variables, x = R^T a and s = R^-1 f:

    (F F^T + C) lam = r - F s,        x = s + F^T lam.

Only F is needed, never J and J M^-1 side by side, and F F^T is symmetric to the last bit.
"""

from __future__ import annotations

from jaxdae._pytree import pytree
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.saddle_point.interface import SaddlePointFactors
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class SchurFactors:
    """The mass factors, F = J R^-T, and the Cholesky factor of the Delassus matrix."""

    mass: Leaf
    scaled_jacobian: Leaf
    delassus: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,)."""
        free = None if f is None else self.mass.scaled(f)
        rest = r if free is None else r - self.scaled_jacobian.times(free)
        lam = self.delassus.solve(rest)
        pushed = self.scaled_jacobian.transpose_times(lam)
        return self.mass.unscaled(pushed if free is None else free + pushed), lam

    def inconsistent(self, r: Rows) -> None:
        """Returns None: the method needs full rank."""


@pytree
class SchurComplement:
    """Cholesky of M, then of the Delassus matrix J M^-1 J^T + C.

    Needs M positive definite and J of full row rank (or C > 0); otherwise the result is NaN, which a rollout reports as
    `Status.NONFINITE`. The fastest choice for mechanisms in absolute coordinates, where M is diagonal.
    """

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> SaddlePointFactors:
        """Returns factors of [M -J^T; J C]; O(nc^2 nv + nc^3) for matrices, less where M and J are eliminated by their structure."""
        together = jacobian.eliminated(mass, compliance)
        if together is not None:
            return together
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        return SchurFactors(mass_factors, scaled, scaled.gram_factors(compliance))
