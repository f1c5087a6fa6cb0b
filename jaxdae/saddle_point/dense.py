"""Direct LU factorization of the full saddle-point matrix.

This module factorizes [M -J^T; J C] by LU with partial pivoting. The lecture gives the same advice
("generally solving the KKT system is better"). The condition number is that of the problem, not its square. M
only needs to be positive definite on the null space of J, so massless coordinates are allowed if the
constraints determine them.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.compile.rematerialization import FACTOR, named
from jaxdae.linalg import small_matrix
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class DenseFactors:
    """LU factors and pivots of the full saddle-point matrix."""

    lu: Leaf
    pivots: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        size = self.lu.shape[0] - r.shape[0]
        f = jnp.zeros((size,), r.dtype) if f is None else f
        solution = jax.scipy.linalg.lu_solve((self.lu, self.pivots), jnp.concatenate([f, r]))
        return solution[:size], solution[size:]

    def inconsistent(self, r: Rows) -> None:
        """Return None because the method requires full rank."""


@pytree
class DenseKKT:
    """One LU factorization of the full saddle-point matrix.

    The matrix must be invertible: J of full row rank (or C > 0), and M positive definite on the null space of
    J. If the matrix is singular to working precision, the result is NaN. This solver is the most accurate
    choice for ill-conditioned masses. It is several times slower than `SchurComplement`.
    """

    full_rank: ClassVar[bool] = True

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> DenseFactors:
        """Return the factors of [M -J^T; J C]; O((nv + nc)^3)."""
        rows, lower = jacobian.shape[0], jacobian.as_dense()
        corner = jnp.zeros((rows, rows), jacobian.dtype) if compliance is None else jnp.diag(compliance)
        matrix = jnp.block([[mass.as_dense(), -lower.T], [lower, corner]])
        lu, pivots = jax.scipy.linalg.lu_factor(matrix)
        # Compare each pivot with the largest entry of its column, because rounding turns a zero pivot into a
        # small number.
        limit = small_matrix.rounding(matrix.shape[0], matrix.dtype) * jnp.max(
            jnp.abs(matrix), axis=0, initial=0.0
        )
        regular = jnp.all(jnp.abs(jnp.diagonal(lu)) > limit)
        return DenseFactors(*named((jnp.where(regular, lu, jnp.nan), pivots), FACTOR))
