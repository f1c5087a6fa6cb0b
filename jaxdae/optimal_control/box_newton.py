"""Minimization of a small quadratic function with bounds, by projected Newton steps.

    minimize  x^T H x / 2 + g^T x      subject to  lower <= x <= upper,      H positive definite.

At x, the entries at a bound against which the gradient H x + g pushes are fixed (active set c); the other
entries are free (set f). For the free entries the unbounded minimum is -H_ff^-1 (g_f + H_fc x_c). The step
goes toward it, is clipped to the bounds, and has the fraction 1, 1/2, 1/4, ... that decreases the function
most. The active set is correct after finitely many steps, and one full step then ends at the minimum. There
the free entries respond to a change of g by -H_ff^-1 and the fixed entries do not respond. This response is
the feedback gain.

References:
    D. P. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM
    Journal on Control and Optimization 20 (1982). Y. Tassa, N. Mansard, E. Todorov, "Control-limited
    differential dynamic programming", ICRA (2014), section III.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.linalg import small_matrix

_FRACTIONS = 8
_MORE_ITERATIONS = 4
"""Iterations beyond the number of variables. Each iteration identifies at least one entry of the active set,
except for ties."""


def box_minimum(h: Array, g: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
    """Return the minimum of a quadratic function with bounds, and its factors on the free entries.

    Args:
        h: H (n, n), symmetric.
        g: g (n,).
        lower: (n,), non-positive, so that zero is within the bounds.
        upper: (n,), non-negative.

    Returns:
        The minimum x (n,), the mask of its free entries (n,), W with W^T W = H_ff^-1 (zero elsewhere), and
        whether H_ff is positive definite (). If it is not, the other values are finite.
    """

    def held(x: Array) -> Array:
        slope = g + h @ x
        return ((x <= lower) & (slope > 0.0)) | ((x >= upper) & (slope < 0.0))

    def factor(free: Array) -> Any:
        both = free[:, None] & free[None, :]
        w = small_matrix.inverse_cholesky(jnp.where(both, h, jnp.eye(h.shape[0], dtype=h.dtype)))
        return jnp.where(both, w, 0.0)

    def value(x: Array) -> Array:
        return 0.5 * x @ h @ x + g @ x

    fractions = 0.5 ** jnp.arange(_FRACTIONS, dtype=g.dtype)

    def improve(at: Any) -> Any:
        x, _, _, count, _ = at
        free = ~held(x)
        w = factor(free)
        step = -(w.T @ (w @ jnp.where(free, g + h @ x, 0.0)))
        trials = jnp.clip(x + fractions[:, None] * jnp.nan_to_num(step), lower, upper)
        best = trials[jnp.argmin(jax.vmap(value)(trials))]
        # If only rounding errors remain, the full step is as good as any other.
        better = value(best) < value(x)
        new: Any = jnp.where(better, best, x)
        return new, free, w, count + 1, ~better | jnp.all(held(new) == ~free) & jnp.all(best == trials[0])

    size = g.shape[0]
    free = jnp.ones((size,), bool)
    start = (jnp.zeros_like(g), free, jnp.zeros_like(h), 0, jnp.zeros((), bool))
    x, free, w, _, _ = jax.lax.while_loop(
        lambda at: (at[3] < size + _MORE_ITERATIONS) & ~at[4], improve, start
    )
    good = jnp.all(jnp.isfinite(w))
    usable: Any = jnp.where(good, w, 0.0)
    return x, free, usable, good


def minimum(h: Array, g: Array) -> tuple[Array, Array, Array]:
    """Return the unbounded minimum (n,), W with W^T W = H^-1, and whether H is positive definite ().

    If H is not positive definite, the other values are finite.
    """
    w = small_matrix.inverse_cholesky(h)
    good = jnp.all(jnp.isfinite(w))
    w: Any = jnp.where(good, w, 0.0)
    return -(w.T @ (w @ g)), w, good
