"""The mass matrix as an operator: dense by default, diagonal or block diagonal if the system declares it.

A mechanism in absolute coordinates has a diagonal mass matrix. Treating this matrix as dense would cost a
factorization per step. Callers use only the methods of `MassOperator`, so another structure only needs
another class here. The factors have root form, M = R R^T: with x = R^T a and F = J R^-T, the saddle-point
matrix has the identity in place of M.
"""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree
from jaxdae.linalg import small_matrix
from jaxdae.matrices.jacobian import DenseRows, JacobianOperator
from jaxdae.typing import Leaf


class MassFactors(abc.ABC):
    """The factorization M = R R^T, as solves with R; a pytree."""

    @abc.abstractmethod
    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-1 b."""

    @abc.abstractmethod
    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-T x."""

    @abc.abstractmethod
    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Return F = J R^-T; block rows stay block rows if their blocks contain the blocks of R."""


class MassOperator(abc.ABC):
    """A symmetric positive definite matrix M (n, n).

    It is a pytree, so that it is differentiable with respect to its entries.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Return the shape (n, n)."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Return the dtype of the entries."""

    @abc.abstractmethod
    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M x."""

    @abc.abstractmethod
    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M X."""

    @abc.abstractmethod
    def factorize(self) -> MassFactors:
        """Return the factors M = R R^T. Do not differentiate them; use `solve`."""

    @abc.abstractmethod
    def as_dense(self) -> Float[Array, "n n"]:
        """Return the matrix as an array."""

    @abc.abstractmethod
    def diagonal_mean(self) -> Float[Array, ""]:
        """Return trace(M) / n (), the mean mass."""

    @abc.abstractmethod
    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return R^T x for a vector, or for each column of a matrix: |R^T x|^2 = x^T M x. Differentiable."""

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M^-1 b, differentiable with respect to both."""
        factors = jax.lax.stop_gradient(self).factorize()
        return jax.lax.custom_linear_solve(
            self.times, b, lambda _, y: factors.unscaled(factors.scaled(y)), symmetric=True
        )

    def identity(self) -> DiagonalMatrix:
        """Return the identity of the same size and dtype: the Euclidean metric."""
        return DiagonalMatrix(jnp.ones(self.shape[:1], self.dtype))

    def extended(self, size: int) -> MassOperator:
        """Return M with `size` additional coordinates of mass 1, (n + size, n + size)."""
        return DenseMatrix(jax.scipy.linalg.block_diag(self.as_dense(), jnp.eye(size, dtype=self.dtype)))


@pytree
class DenseMatrix(MassOperator):
    """A dense matrix (n, n)."""

    matrix: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (n, n)."""
        return self.matrix.shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.matrix.dtype

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M x."""
        return small_matrix.matvec(self.matrix, x)

    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M X."""
        return self.matrix @ x

    def factorize(self) -> DenseRoot:
        """Return the inverse of the Cholesky factor."""
        return DenseRoot(small_matrix.inverse_cholesky(self.matrix))

    def as_dense(self) -> Float[Array, "n n"]:
        """Return the matrix."""
        return self.matrix

    def diagonal_mean(self) -> Float[Array, ""]:
        """Return trace(M) / n ()."""
        return jnp.mean(jnp.diagonal(self.matrix))

    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return R^T x with R the Cholesky factor."""
        return jnp.linalg.cholesky(self.matrix).T @ x


@pytree
class DenseRoot(MassFactors):
    """M = R R^T with R lower triangular, stored as W = R^-1 (n, n)."""

    inverse: Leaf

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-1 b."""
        return small_matrix.matvec(self.inverse, b)

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-T x."""
        return small_matrix.rmatvec(self.inverse, x)

    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Return F = J R^-T, dense."""
        return DenseRows(small_matrix.product_transposed(jacobian.as_dense(), self.inverse))


@pytree
class DiagonalMatrix(MassOperator):
    """A diagonal matrix, stored as its diagonal (n,)."""

    diagonal: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (n, n)."""
        return self.diagonal.shape * 2

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.diagonal.dtype

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M x."""
        return self.diagonal * x

    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M X."""
        return self.diagonal[:, None] * x

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M^-1 b."""
        return b / self.diagonal

    def factorize(self) -> DiagonalRoot:
        """Return the square roots of the entries."""
        return DiagonalRoot(jnp.sqrt(self.diagonal))

    def as_dense(self) -> Float[Array, "n n"]:
        """Return the matrix as an array."""
        return jnp.diag(self.diagonal)

    def diagonal_mean(self) -> Float[Array, ""]:
        """Return trace(M) / n ()."""
        return jnp.mean(self.diagonal)

    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return R^T x."""
        root = jnp.sqrt(self.diagonal)
        return root * x if x.ndim == 1 else root[:, None] * x

    def extended(self, size: int) -> DiagonalMatrix:
        """Return M with `size` additional coordinates of mass 1."""
        return DiagonalMatrix(jnp.concatenate([self.diagonal, jnp.ones((size,), self.dtype)]))


@pytree
class DiagonalRoot(MassFactors):
    """M = R R^T with R diagonal, stored as its diagonal (n,)."""

    root: Leaf

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-1 b."""
        return b / self.root

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-T x."""
        return x / self.root

    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Return F = J R^-T, in the structure of J."""
        return jacobian.over_columns(self.root)


@pytree
class BlockDiagonalMatrix(MassOperator):
    """A block-diagonal matrix of blocks of equal size, (k, b, b) with n = k b.

    Example: the bodies of a mechanism, each with its own inertia.
    """

    blocks: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (n, n)."""
        return (self.blocks.shape[0] * self.blocks.shape[1],) * 2

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.blocks.dtype

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M x."""
        return _by_block(self.blocks, x)

    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M X."""
        return jax.vmap(self.times, in_axes=1, out_axes=1)(x)

    def factorize(self) -> BlockRoot:
        """Return the inverses of the Cholesky factors of all blocks."""
        return BlockRoot(jax.vmap(small_matrix.inverse_cholesky)(self.blocks))

    def as_dense(self) -> Float[Array, "n n"]:
        """Return the matrix as an array."""
        count = self.blocks.shape[0]
        entries = jnp.eye(count, dtype=self.dtype)[:, None, :, None] * self.blocks[:, :, None, :]
        return entries.reshape(self.shape)

    def diagonal_mean(self) -> Float[Array, ""]:
        """Return trace(M) / n ()."""
        return jnp.mean(jnp.diagonal(self.blocks, axis1=1, axis2=2))

    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return R^T x with R the Cholesky factors of the blocks."""
        upper = jnp.swapaxes(jnp.linalg.cholesky(self.blocks), 1, 2)
        return (
            _by_block(upper, x)
            if x.ndim == 1
            else jax.vmap(lambda y: _by_block(upper, y), in_axes=1, out_axes=1)(x)
        )


@pytree
class BlockRoot(MassFactors):
    """M = R R^T with R block diagonal and lower triangular, stored as W = R^-1 by blocks (k, b, b)."""

    inverses: Leaf

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-1 b."""
        return _by_block(self.inverses, b)

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-T x."""
        return _by_block(jnp.swapaxes(self.inverses, 1, 2), x)

    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Return F = J R^-T, in the structure of J if its blocks match the blocks of M."""
        return jacobian.times_blocks(jnp.swapaxes(self.inverses, 1, 2))


def _by_block(blocks: Any, x: Any) -> Any:
    # A sum instead of matrix products, for which the compiler calls a library routine per block.
    return jnp.sum(blocks * x.reshape(blocks.shape[0], 1, -1), axis=2).reshape(-1)


def as_mass_operator(mass: Any) -> MassOperator:
    """Convert user input to an operator: an array (n, n) to a `DenseMatrix`; an operator stays unchanged."""
    return mass if isinstance(mass, MassOperator) else DenseMatrix(jnp.asarray(mass))
