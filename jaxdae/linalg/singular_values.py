"""Singular value decomposition with a rank set by a tolerance, in shapes independent of the rank."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.compile.batch_last import one_by_one
from jaxdae.linalg import small_matrix
from jaxdae.typing import Leaf


def rank_tolerance(dtype: Any) -> float:
    """Return eps^(1/2), the default relative tolerance below which a singular value counts as zero."""
    return float(jnp.finfo(dtype).eps) ** 0.5


_full = one_by_one(partial(jnp.linalg.svd, full_matrices=True))
_thin = one_by_one(partial(jnp.linalg.svd, full_matrices=False))
_values = one_by_one(partial(jnp.linalg.svd, compute_uv=False))


def svd(matrix: Array, full: bool) -> tuple[Array, Array, Array]:
    """Return U, s, V^T of a matrix (m, n), full or thin (min(m, n) vectors); do not differentiate."""
    return (_full if full else _thin)(matrix)


def singular_values(matrix: Array) -> Array:
    """Return s (min(m, n),) of a matrix (m, n) in descending order; do not differentiate."""
    return _values(matrix)


@pytree
class ThinSVD:
    """A = U S V^T. The pseudoinverse treats singular values below the tolerance as zero.

    Attributes:
        left: U (m, k); columns of discarded directions are zero.
        gain: 1/s (k,), zero in discarded directions.
        right: V^T (k, n).
    """

    left: Leaf
    gain: Leaf
    right: Leaf

    @classmethod
    def of(
        cls, matrix: Array, tolerance: Any = None, all_right: bool = False
    ) -> tuple[ThinSVD, Array, Array]:
        """Return the decomposition, the mask of retained singular values (k,), and V^T.

        Args:
            matrix: A (m, n).
            tolerance: relative to the largest singular value; None for `rank_tolerance`.
            all_right: whether to return V^T complete, (n, n).
        """
        m, n = matrix.shape
        if m == 0 or n == 0:
            none = jnp.zeros((0,), matrix.dtype)
            right = jnp.eye(n, dtype=matrix.dtype)
            return (
                cls(jnp.zeros((m, 0), matrix.dtype), none, right[:0]),
                none > 0,
                right if all_right else right[:0],
            )
        u, s, vt = svd(matrix, all_right and m < n)
        limit = rank_tolerance(matrix.dtype) if tolerance is None else jnp.asarray(tolerance, matrix.dtype)
        kept = s > limit * s[0]
        gain = jnp.where(kept, 1.0 / jnp.where(kept, s, 1.0), 0.0)
        return cls(u * kept.astype(u.dtype)[None, :], gain, vt[: s.shape[0]]), kept, vt

    def solve(self, r: Array) -> Array:
        """Return A^+ r."""
        return small_matrix.rmatvec(self.right, self.gain * small_matrix.rmatvec(self.left, r))

    def solve_transposed(self, x: Array) -> Array:
        """Return (A^+)^T x."""
        return small_matrix.matvec(self.left, self.gain * small_matrix.matvec(self.right, x))

    def inconsistent(self, r: Array) -> Array:
        """Return (I - A A^+) r."""
        return r - small_matrix.matvec(self.left, small_matrix.rmatvec(self.left, r))
