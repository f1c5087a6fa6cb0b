"""A quadratic function of few variables within limits, by projected Newton steps.

    least  x^T H x / 2 + g^T x      with  lower <= x <= upper,      H positive definite.

At x the entries that stand at a limit, with the gradient H x + g pushing against it, are held (set c); the others are free (set f). For
those the minimum without limits is -H_ff^-1 (g_f + H_fc x_c), and the step goes towards it, cut at the limits, by the fraction 1, 1/2, 1/4,
... that lowers the function most. The set of held entries is right after finitely many steps, and one full step then ends at the minimum.
There the free entries respond to a change of g by -H_ff^-1, the held ones do not: that is the gain of the feedback.

References:
    D. P. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM Journal on Control and Optimization
    20 (1982). Y. Tassa, N. Mansard, E. Todorov, "Control-limited differential dynamic programming", ICRA (2014), section III.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae import small_matrix

_FRACTIONS = 8
_MORE_ITERATIONS = 4
"""Beyond the number of variables: each iteration finds at least one entry of the set that is held, but for ties."""


def box_minimum(h: Array, g: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array, Array]:
    """Returns the minimum x (n,), whether its entries are free (n,), W with W^T W = H_ff^-1 (zero elsewhere), and whether all is well ().

    Args:
        h: H (n, n), symmetric.
        g: g (n,).
        lower: (n,), not positive: zero is within the limits.
        upper: (n,), not negative.

    Where H_ff is not positive definite the last is False, and the others are finite.
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
        # Where rounding is all that is left the full step is as good as any.
        better = value(best) < value(x)
        new: Any = jnp.where(better, best, x)
        return new, free, w, count + 1, ~better | jnp.all(held(new) == ~free) & jnp.all(best == trials[0])

    size = g.shape[0]
    free = jnp.ones((size,), bool)
    start = (jnp.zeros_like(g), free, jnp.zeros_like(h), 0, jnp.zeros((), bool))
    x, free, w, _, _ = jax.lax.while_loop(lambda at: (at[3] < size + _MORE_ITERATIONS) & ~at[4], improve, start)
    good = jnp.all(jnp.isfinite(w))
    usable: Any = jnp.where(good, w, 0.0)
    return x, free, usable, good


def minimum(h: Array, g: Array) -> tuple[Array, Array, Array]:
    """Returns the minimum (n,) without limits, W with W^T W = H^-1, and whether H is positive definite (); finite where it is not."""
    w = small_matrix.inverse_cholesky(h)
    good = jnp.all(jnp.isfinite(w))
    w: Any = jnp.where(good, w, 0.0)
    return -(w.T @ (w @ g)), w, good
