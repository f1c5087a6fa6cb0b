"""The mass matrix as an operator: dense by default, diagonal where the system knows that it is.

A mechanism in absolute coordinates has a diagonal mass matrix; treating it as dense would cost a factorization per step. Solvers
see only the functions of this module, so that another structure (block diagonal, say) is one more class here.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree
from jaxdae.typing import Leaf


@pytree
class DiagonalMatrix:
    """A diagonal matrix, stored as its diagonal (n,)."""

    diagonal: Leaf


MassMatrix: TypeAlias = Float[Array, "n n"] | DiagonalMatrix


@pytree
class MassFactors:
    """What is needed to multiply with M^-1: the inverse diagonal (n,), or the lower Cholesky factor (n, n)."""

    inverse_diagonal: Leaf
    lower: Leaf

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns M^-1 b."""
        if self.lower is None:
            return self.inverse_diagonal * b
        return small_matrix.cholesky_solve(self.lower, b)

    def solve_rows(self, rows: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """Returns B M^-1, row by row: each row of B is a right-hand side of its own."""
        if self.lower is None:
            return rows * self.inverse_diagonal[None, :]
        return small_matrix.cholesky_solve_rows(self.lower, rows)


def factorize(mass: MassMatrix) -> MassFactors:
    """Returns the factors of a symmetric positive definite mass matrix."""
    if isinstance(mass, DiagonalMatrix):
        return MassFactors(inverse_diagonal=1.0 / mass.diagonal, lower=None)
    return MassFactors(inverse_diagonal=None, lower=small_matrix.cholesky(mass))


def times(mass: MassMatrix, x: Float[Array, " n"]) -> Float[Array, " n"]:
    """Returns M x."""
    if isinstance(mass, DiagonalMatrix):
        return mass.diagonal * x
    return small_matrix.matvec(mass, x)


def solve(mass: MassMatrix, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Returns M^-1 b, differentiable with respect to both."""
    if isinstance(mass, DiagonalMatrix):
        return b / mass.diagonal
    factors = factorize(jax.lax.stop_gradient(mass))
    return jax.lax.custom_linear_solve(lambda x: times(mass, x), b, lambda _, y: factors.solve(y), symmetric=True)


def as_dense(mass: MassMatrix) -> Float[Array, "n n"]:
    """Returns the matrix as an array (n, n)."""
    return jnp.diag(mass.diagonal) if isinstance(mass, DiagonalMatrix) else mass


def identity_like(mass: MassMatrix) -> DiagonalMatrix:
    """Returns the identity of the same size and dtype: the Euclidean metric."""
    diagonal = mass.diagonal if isinstance(mass, DiagonalMatrix) else mass[0]
    return DiagonalMatrix(jnp.ones_like(diagonal))
