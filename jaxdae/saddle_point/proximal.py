"""Method of multipliers: regularize the system, then remove the regularization by iteration.

With a small mu > 0 in its zero block, the saddle-point matrix can always be factorized, whatever the rank of
J. With the previous multipliers on the right-hand side,

    M a - J^T lam_k+1           = f
    J a + C lam_k+1 + mu lam_k+1 = r + mu lam_k,

every solve multiplies the error along an eigenvector of the Delassus matrix with eigenvalue s by mu / (s +
mu), and all iterations share one Cholesky factorization. In correction form, (S + mu) (lam_k+1 - lam_k) = r -
F x_k - C lam_k with S = F F^T + C, the iteration reduces rounding errors of the factorization by the same
factor.

Dependent rows. Their directions have s = 0. If r is consistent, the iteration adds nothing along them:
started from zero, the limit is the shortest lam. If r is inconsistent, each iteration adds the same (S +
mu)^-1 rho, where rho is the inconsistent part of r and the limit of the residual. `ProximalFactors.solve`
subtracts this contribution at the end.

References:
    J. Carpentier, R. Budhiraja, N. Mansard, "Proximal and sparse resolution of constrained dynamic
    equations", Robotics: Science and Systems (2021).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import check_requirements
from jaxdae.linalg import small_matrix
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class ProximalFactors:
    """The mass factors, F = J R^-T, C, and the Cholesky factor of S + mu."""

    mass: Leaf
    scaled_jacobian: Leaf
    compliance: Leaf
    regularized: Leaf
    iterations: int = static()

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        free = None if f is None else self.mass.scaled(f)
        start = r if free is None else r - self.scaled_jacobian.times(free)
        lam, rest = self._iterate(start)
        lam = lam - self.iterations * self._correction(rest)
        # Remove the contribution of rounding along dependent rows, of order eps / mu. If a row is soft, lam
        # can be too large to isolate it.
        noise = self._iterate(lam)[1]
        lam = lam - (
            noise if self.compliance is None else jnp.where(jnp.any(self.compliance > 0.0), 0.0, noise)
        )
        pushed = self.scaled_jacobian.transpose_times(lam)
        return self.mass.unscaled(pushed if free is None else free + pushed), lam

    def inconsistent(self, r: Rows) -> None:
        """Return None because derivatives assume that r is consistent.

        The residual of the iteration is not a projection of r if the regularization is of the same size as an
        eigenvalue of S.
        """

    def _iterate(self, start: Rows) -> tuple[Rows, Rows]:
        """Return the multipliers and the residual of S lam = start."""
        lam = self._correction(start)
        for _ in range(self.iterations - 1):
            lam = lam + self._correction(self._rest(start, lam))
        return lam, self._rest(start, lam)

    def _rest(self, start: Rows, lam: Rows) -> Rows:
        pushed = self.scaled_jacobian.times(self.scaled_jacobian.transpose_times(lam))
        return start - pushed if self.compliance is None else start - pushed - self.compliance * lam

    def _correction(self, rest: Rows) -> Rows:
        return self.regularized.solve(rest)


@pytree
class Proximal:
    """Proximal method of multipliers: one Cholesky factorization of the regularized Delassus matrix.

    Attributes:
        regularization: mu divided by the mean diagonal entry of the Delassus matrix, added to hard rows; None
            for eps^(1/2).
        iterations: number of solves that share the factorization, at least 1. Each solve multiplies the error
            in a direction with eigenvalue s by mu / (s + mu). Five solves leave an error of 1e-9 at s = 1e-6
            of the mean in double precision, but 1e-3 at s = 1e-3 of the mean in single precision.

    In single precision, solutions are wrong along eigenvectors of the Delassus matrix with small eigenvalues:
    for an eigenvalue of 1e-4 of the mean, a quarter of the component is missing. Example: the smallest
    nonzero eigenvalues of Bricard's six-bar are about 5e-4 of the mean. Its accelerations are wrong, and its
    rollouts end with NOT_CONVERGED. With `LeastSquares` and `NullSpace`, the accelerations have errors of
    1e-5.

    Dependent rows are allowed. Accelerations are unique and their derivatives are exact for consistent r. lam
    has minimum norm, and its derivative is exact up to multipliers that produce no force. M must be positive
    definite. The solver is nearly as fast as `SchurComplement`.
    """

    regularization: Leaf = None
    iterations: int = static(default=5)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.regularization is None or self.regularization > 0, "regularization must be positive"
        yield self.iterations >= 1, "iterations must be at least 1"

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> ProximalFactors:
        """Return the factors; O(nc^2 nv + nc^3) for diagonal M.

        Raises:
            ValueError: `regularization` is not positive or `iterations` is less than 1.
        """
        check_requirements("solver", self)
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        delassus = scaled.gram()
        if compliance is not None:
            delassus = small_matrix.add_diagonal(delassus, compliance)
        relative = (
            float(jnp.finfo(delassus.dtype).eps) ** 0.5
            if self.regularization is None
            else self.regularization
        )
        size = delassus.shape[0]
        scale = jnp.trace(delassus) / max(size, 1)
        # Zero rows also need a pivot.
        shift = jnp.broadcast_to(
            jnp.asarray(relative, delassus.dtype) * jnp.where(scale > 0.0, scale, 1.0), (size,)
        )
        if compliance is not None:
            # Do not regularize soft rows: mu must not dominate a compliance that exceeds the rounding errors
            # of S.
            shift = jnp.where(compliance > 1e3 * float(jnp.finfo(delassus.dtype).eps) * scale, 0.0, shift)
        regularized = small_matrix.solving_factors(small_matrix.add_diagonal(delassus, shift))
        return ProximalFactors(mass_factors, scaled, compliance, regularized, self.iterations)
