"""The full saddle-point matrix, factorized as it stands.

LU with partial pivoting of [M -J^T; J C]. The lecture's advice ("generally solving the KKT system is better"): its condition number
is that of the problem and not its square, and M need only be positive definite on the null space of J, so that massless
coordinates are allowed where the constraints determine them.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxdae import small_matrix
from jaxdae._pytree import pytree
from jaxdae.checkpointing import FACTOR, named
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class DenseFactors:
    """LU factors and pivots of the full saddle-point matrix."""

    lu: Leaf
    pivots: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,)."""
        size = self.lu.shape[0] - r.shape[0]
        f = jnp.zeros((size,), r.dtype) if f is None else f
        solution = jax.scipy.linalg.lu_solve((self.lu, self.pivots), jnp.concatenate([f, r]))
        return solution[:size], solution[size:]

    def inconsistent(self, r: Rows) -> None:
        """Returns None: the method needs full rank."""


@pytree
class DenseKKT:
    """One LU factorization of the full saddle-point matrix.

    Needs the matrix to be invertible: J of full row rank (or C > 0), M positive definite on the null space of J. Otherwise, to working
    precision, the result is NaN. The most accurate choice for ill-conditioned masses; several times slower than `SchurComplement`.
    """

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> DenseFactors:
        """Returns factors of [M -J^T; J C]; O((nv + nc)^3)."""
        rows, lower = jacobian.shape[0], jacobian.as_dense()
        corner = jnp.zeros((rows, rows), jacobian.dtype) if compliance is None else jnp.diag(compliance)
        matrix = jnp.block([[mass.as_dense(), -lower.T], [lower, corner]])
        lu, pivots = jax.scipy.linalg.lu_factor(matrix)
        # Against the largest entry of the column: rounding would make numbers of a zero pivot.
        limit = small_matrix.rounding(matrix.shape[0], matrix.dtype) * jnp.max(jnp.abs(matrix), axis=0, initial=0.0)
        regular = jnp.all(jnp.abs(jnp.diagonal(lu)) > limit)
        return DenseFactors(*named((jnp.where(regular, lu, jnp.nan), pivots), FACTOR))
