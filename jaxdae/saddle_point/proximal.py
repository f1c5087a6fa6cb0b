"""The method of multipliers: regularize, and iterate the regularization away.

The saddle point with a small mu > 0 in its zero block can always be factorized, whatever the rank of J. With the previous multipliers on
the right,

    M a - J^T lam_k+1           = f
    J a + C lam_k+1 + mu lam_k+1 = r + mu lam_k,

every solve reduces the error along a direction in which the Delassus matrix has eigenvalue s by mu / (s + mu), and all iterations
share one Cholesky factorization. In the form of a correction, (S + mu) (lam_k+1 - lam_k) = r - F x_k - C lam_k with S = F F^T + C, rounding
errors of the factorization are reduced by the same factor.

Dependent rows. Their directions have s = 0. Where r is consistent nothing is added along them: started from zero the limit is the
shortest lam. Where it is not, each iteration adds the same (S + mu)^-1 rho, with rho the inconsistent part of r, which is what the
residual converges to; it is taken off again at the end.

References:
    J. Carpentier, R. Budhiraja, N. Mansard, "Proximal and sparse resolution of constrained dynamic equations", Robotics: Science and
    Systems (2021).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.requirements import check_requirements
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
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,)."""
        free = None if f is None else self.mass.scaled(f)
        start = r if free is None else r - self.scaled_jacobian.times(free)
        lam, rest = self._iterate(start)
        lam = lam - self.iterations * self._correction(rest)
        # What rounding has added along dependent rows, some eps / mu. Where a row is soft, lam can be too large to find it.
        noise = self._iterate(lam)[1]
        lam = lam - (noise if self.compliance is None else jnp.where(jnp.any(self.compliance > 0.0), 0.0, noise))
        pushed = self.scaled_jacobian.transpose_times(lam)
        return self.mass.unscaled(pushed if free is None else free + pushed), lam

    def inconsistent(self, r: Rows) -> None:
        """Returns None: derivatives take r to be consistent.

        What the iteration leaves over would be no projection where the regularization and an eigenvalue of S are of one size.
        """

    def _iterate(self, start: Rows) -> tuple[Rows, Rows]:
        """Returns the multipliers and what is left of the right-hand side `start` of S lam = start."""
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
    """The proximal method of multipliers: one Cholesky factorization of the regularized Delassus matrix, a few corrections.

    Attributes:
        regularization: mu over the mean diagonal entry of the Delassus matrix, added to hard rows; None for eps^(1/2).
        iterations: how many solves share the factorization, at least 1. Each gains a factor mu / (s + mu) in a direction with eigenvalue s:
            five of them leave 1e-9 where s is 1e-6 of the mean in double precision, but 1e-3 where it is 1e-3 in single precision.

    In single precision small eigenvalues of the Delassus matrix are lost: at 1e-4 of the mean a quarter of what is along them is missing.
    Accelerations of Bricard's six-bar (5e-4) are wrong, and its rollouts end NOT_CONVERGED; `LeastSquares` and `NullSpace` reach 1e-5.

    Dependent rows are allowed. Accelerations are unique and their derivatives exact for consistent r; lam is the shortest, and its
    derivative is exact up to multipliers without force. Needs M positive definite. Nearly as fast as `SchurComplement`.
    """

    regularization: Leaf = None
    iterations: int = static(default=5)

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield self.regularization is None or self.regularization > 0, "regularization must be positive"
        yield self.iterations >= 1, "iterations must be at least 1"

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> ProximalFactors:
        """Returns the factors; O(nc^2 nv + nc^3) for diagonal M.

        Raises:
            ValueError: no iteration.
        """
        check_requirements("solver", self)
        mass_factors = mass.factorize()
        scaled = mass_factors.scaled_rows(jacobian)
        delassus = scaled.gram()
        if compliance is not None:
            delassus = small_matrix.add_diagonal(delassus, compliance)
        relative = float(jnp.finfo(delassus.dtype).eps) ** 0.5 if self.regularization is None else self.regularization
        size = delassus.shape[0]
        scale = jnp.trace(delassus) / max(size, 1)
        # Rows that are all zero still need a pivot.
        shift = jnp.broadcast_to(jnp.asarray(relative, delassus.dtype) * jnp.where(scale > 0.0, scale, 1.0), (size,))
        if compliance is not None:
            # Soft rows are regular by themselves: what is more than rounding errors of S must not drown in mu.
            shift = jnp.where(compliance > 1e3 * float(jnp.finfo(delassus.dtype).eps) * scale, 0.0, shift)
        regularized = small_matrix.solving_factors(small_matrix.add_diagonal(delassus, shift))
        return ProximalFactors(mass_factors, scaled, compliance, regularized, self.iterations)
