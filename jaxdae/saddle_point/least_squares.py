"""Accelerations by Gauss' principle, multipliers by least squares.

In scaled variables, x = R^T a with M = R R^T, F = J R^-T and s = R^-1 f, the constrained accelerations are
the feasible accelerations nearest to the free ones (Gauss' principle of least constraint): minimize |x - s|
subject to F x = r. With z = x - s,

    z = F^+ (r - F s),        lam = (F^+)^T z,

where z is the shortest solution and lam contains the shortest multipliers with F^T lam = z. Dependent rows
are redundant and harmless: z is unique for consistent r, and lam shares the load between them (least norm).
If r is inconsistent, the rows are satisfied in the least-squares sense. The pseudoinverse comes from the
singular values of F, so its condition number is not squared, as it is in the Delassus matrix F F^T.

Soft rows, J a + C lam = r, are hard rows with additional columns: G = [F C^1/2] replaces F, and the last
entries of z equal C^1/2 lam.

References:
    F. E. Udwadia, R. E. Kalaba, "A new perspective on constrained motion", Proc. R. Soc. Lond. A 439 (1992).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import fraction
from jaxdae.linalg.singular_values import ThinSVD
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class LeastSquaresFactors:
    """The mass factors, F = J R^-T, and the singular values of [F C^1/2]."""

    mass: Leaf
    scaled_jacobian: Leaf
    svd: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        size = self.scaled_jacobian.shape[1]
        free = None if f is None else self.mass.scaled(f)
        rest = r if free is None else r - self.scaled_jacobian.times(free)
        z = self.svd.solve(rest)
        x = z[:size] if free is None else free + z[:size]
        return self.mass.unscaled(x), self.svd.solve_transposed(z)

    def inconsistent(self, r: Rows) -> Rows:
        """Return the part of r that no accelerations can produce."""
        return self.svd.inconsistent(r)


@pytree
class LeastSquares:
    """Minimum-norm multipliers and unique accelerations for dependent but consistent rows.

    The method computes one SVD of J M^-1/2.

    Attributes:
        tolerance: singular values of J M^-1/2 below this fraction of the largest count as zero; None for
            eps^(1/2). These singular values also depend on the masses, so the default is as small as
            possible. Mechanisms whose rows are dependent throughout their motion need a larger value; see
            `SingularValues.tolerance`.

    M must be positive definite. Derivatives are exact at full rank and at constant deficient rank, including
    the derivatives of the minimum-norm multipliers.
    """

    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> LeastSquaresFactors:
        """Return the mass factors and the singular values of the scaled Jacobian."""
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        dense = scaled.as_dense()
        wide = (
            dense if compliance is None else jnp.concatenate([dense, jnp.diag(jnp.sqrt(compliance))], axis=1)
        )
        return LeastSquaresFactors(mass_factors, scaled, ThinSVD.of(wide, self.tolerance)[0])
