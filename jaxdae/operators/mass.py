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
    """M = R R^T with R lower triangular: the roots of the diagonal (n,), or W = R^-1 (n, n)."""

    root: Leaf
    inverse: Leaf

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns R^-1 b."""
        return b / self.root if self.inverse is None else small_matrix.matvec(self.inverse, b)

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns R^-T x."""
        return x / self.root if self.inverse is None else small_matrix.rmatvec(self.inverse, x)

    def scaled_rows(self, rows: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """Returns B R^-T: each row scaled."""
        if self.inverse is None:
            return rows / self.root[None, :]
        return small_matrix.product_transposed(rows, self.inverse)


def factorize(mass: MassMatrix) -> MassFactors:
    """Returns the factors of a symmetric positive definite mass matrix."""
    if isinstance(mass, DiagonalMatrix):
        return MassFactors(root=jnp.sqrt(mass.diagonal), inverse=None)
    return MassFactors(root=None, inverse=small_matrix.inverse_cholesky(mass))


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
    return jax.lax.custom_linear_solve(lambda x: times(mass, x), b, lambda _, y: factors.unscaled(factors.scaled(y)), symmetric=True)


def as_dense(mass: MassMatrix) -> Float[Array, "n n"]:
    """Returns the matrix as an array (n, n)."""
    return jnp.diag(mass.diagonal) if isinstance(mass, DiagonalMatrix) else mass


def identity_like(mass: MassMatrix) -> DiagonalMatrix:
    """Returns the identity of the same size and dtype: the Euclidean metric."""
    diagonal = mass.diagonal if isinstance(mass, DiagonalMatrix) else mass[0]
    return DiagonalMatrix(jnp.ones_like(diagonal))
