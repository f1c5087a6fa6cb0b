"""Accelerations by Gauss' principle, multipliers by least squares.

In scaled variables, x = R^T a with M = R R^T, F = J R^-T and s = R^-1 f, the constrained accelerations are those nearest to the free
ones (Gauss' principle of least constraint): minimize |x - s| subject to F x = r. With z = x - s,

    z = F^+ (r - F s),        lam = (F^+)^T z,

the shortest z, and the shortest multipliers with F^T lam = z. Rows that depend on others are redundant and do no harm: z is unique for
consistent r, and lam shares the load between them (least norm); where r is not consistent the rows are satisfied in the least-squares
sense. The pseudoinverse comes from the singular values of F, so that its condition number enters once, where the Delassus matrix F F^T
squares it.

Soft rows, J a + C lam = r, are hard rows with further columns: G = [F C^1/2] in place of F, with the last entries of z equal to C^1/2 lam.

References:
    F. E. Udwadia, R. E. Kalaba, "A new perspective on constrained motion", Proc. R. Soc. Lond. A 439 (1992).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.requirements import fraction
from jaxdae.saddle_point.singular_values import ThinSVD
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class LeastSquaresFactors:
    """The mass factors, F = J R^-T, and the singular values of [F C^1/2]."""

    mass: Leaf
    scaled_jacobian: Leaf
    svd: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,)."""
        size = self.scaled_jacobian.shape[1]
        free = None if f is None else self.mass.scaled(f)
        rest = r if free is None else r - self.scaled_jacobian.times(free)
        z = self.svd.solve(rest)
        x = z[:size] if free is None else free + z[:size]
        return self.mass.unscaled(x), self.svd.solve_transposed(z)

    def inconsistent(self, r: Rows) -> Rows:
        """Returns the part of r that no accelerations can produce."""
        return self.svd.inconsistent(r)


@pytree
class LeastSquares:
    """Minimum-norm multipliers for dependent but consistent rows; accelerations are unique. One SVD of J M^-1/2.

    Attributes:
        tolerance: singular values of J M^-1/2 below this fraction of the largest count as zero; None for eps^(1/2). Here masses count, too,
            so that the default is as small as it can be; mechanisms whose rows are dependent on all of their motion need more, see
            `SingularValues.tolerance`.

    Needs M positive definite. Exact derivatives at full and at constant deficient rank, of the shortest multipliers as well.
    """

    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> LeastSquaresFactors:
        """Returns the mass factors and the singular values of the scaled Jacobian."""
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        dense = scaled.as_dense()
        wide = dense if compliance is None else jnp.concatenate([dense, jnp.diag(jnp.sqrt(compliance))], axis=1)
        return LeastSquaresFactors(mass_factors, scaled, ThinSVD.of(wide, self.tolerance)[0])
