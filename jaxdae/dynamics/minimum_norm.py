"""Minimum-norm corrections of constraint rows: the pseudoinverse, its rank, and its derivative."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.compile.batch_last import one_by_one


def rank_tolerance(jacobian: Any, limit: Any) -> Any:
    """Return the fraction () of the largest singular value of J below which singular values count as zero.

    Nearly dependent rows have small singular values, of the size of the remaining residuals. They come from
    lengths that are written with few digits, or from rounding far from the origin. Including these values
    would lock the mechanism, or move it far away to where the digits fit. A motion of 1 m or 1 rad that opens
    rows by no more than the closing tolerance counts as free. The fraction never exceeds the rank tolerance
    of the solvers.
    """
    eps = float(jnp.finfo(jacobian.dtype).eps)
    rounding, most = 10.0 * max(jacobian.shape) * eps, max(1e-5, eps**0.5)
    size = jnp.sqrt(jnp.sum(jacobian**2))
    return jnp.clip(10.0 * limit / jnp.where(size > 0.0, size, 1.0), rounding, most)


_inverted = one_by_one(lambda matrix, tolerance: jnp.linalg.pinv(matrix, rtol=tolerance))


@jax.custom_jvp
def pseudoinverse(matrix: Any, tolerance: Any) -> Any:
    """Return A^+ of A, whose rows may be dependent.

    Singular values below the fraction `tolerance` of the largest count as zero.
    `jaxdae.operators.pseudoinverse` solves column by column. It gives the same numbers, but `initialize`
    takes up to five times as long with it.

    At constant rank, with P = A^+ (G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses", SIAM J.
    Numer. Anal. 10, 1973):

        dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P.
    """
    return _inverted(matrix, tolerance)


@pseudoinverse.defjvp
def _pseudoinverse_jvp(primals: Any, tangents: Any) -> Any:
    (a, tolerance), (change, _) = primals, tangents
    p = pseudoinverse(a, tolerance)
    across, along = change.T - (change.T @ a) @ p, change.T - p @ (a @ change.T)
    return p, -p @ (change @ p) + p @ (p.T @ across) + (along @ p.T) @ p
