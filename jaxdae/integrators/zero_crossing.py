"""Locate the zero of a quantity within a step.

Hermite's cubic interpolates the quantity from its values and rates at both ends; the error of its zero is
O(h^4).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.typing import Rows

_SEARCH = 12  # bracketed Newton iterations for the zero of a cubic


def first_zero(wanted: Any, start: Rows, start_slope: Rows, end: Rows, end_slope: Rows) -> Rows:
    """Return, for each row, the zero in [0, 1] of the cubic with these values and slopes at 0 and 1.

    The result is differentiable. It is 0 if the start is not positive, and 1 if the end is positive, because
    these rows have no zero to locate. It is 1 for rows that are not `wanted`. For a cubic that rises from
    zero, such as the gap of a body that takes off and lands in the same step, the result is its next zero.
    """
    eps = float(jnp.finfo(start.dtype).eps)
    rises = (start_slope > 0.0) & (jnp.abs(start) <= eps**0.5 * start_slope)
    inside = wanted & ((start > 0.0) | rises) & (end <= 0.0)
    # Replace the other rows by a line with its zero in the middle, so that nothing below divides by zero.
    m0, r0, m1, r1 = (
        jnp.where(inside, x, y)
        for x, y in ((start, 1.0), (start_slope, -2.0), (end, -1.0), (end_slope, -2.0))
    )
    coefficients = _cubic(m0, r0, m1, r1)

    def newton(s: Rows, c: Any) -> tuple[Rows, Rows]:
        value, slope = c[0] + s * (c[1] + s * (c[2] + s * c[3])), _slope(s, c)
        return value, s - value / jnp.where(slope == 0.0, -1.0, slope)

    # A cubic that rises from zero is s times a quadratic.
    shifted = (*coefficients[1:], jnp.zeros_like(m0))
    still = jax.lax.stop_gradient(
        [jnp.where(rises, x, y) for x, y in zip(shifted, coefficients, strict=True)]
    )

    def shrink(_: Any, bracket: Any) -> Any:
        low, high, s = bracket
        value, guess = newton(s, still)
        low, high = jnp.where(value > 0.0, s, low), jnp.where(value > 0.0, high, s)
        return low, high, jnp.where((guess > low) & (guess < high), guess, 0.5 * (low + high))

    secant = still[0] / (still[0] - sum(still))
    s = jax.lax.fori_loop(0, _SEARCH, shrink, (jnp.zeros_like(secant), jnp.ones_like(secant), secant))[2]
    # Two Newton steps at the root change only its derivatives, to second order.
    for _ in range(2):
        s = newton(s, coefficients)[1]
    # Values outside the interval result from rounding. Clip the value without changing the derivative.
    s = s + jax.lax.stop_gradient(jnp.clip(s, 0.0, 1.0) - s)
    return jnp.where(inside, s, jnp.where(wanted & (start <= 0.0), 0.0, 1.0))


def slope_at(s: Rows, start: Rows, start_slope: Rows, end: Rows, end_slope: Rows) -> Rows:
    """Return, for each row, the slope at s of the cubic with these values and slopes at 0 and 1."""
    return _slope(s, _cubic(start, start_slope, end, end_slope))


def _cubic(m0: Rows, r0: Rows, m1: Rows, r1: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the coefficients of the cubic, the constant first."""
    return m0, r0, 3.0 * (m1 - m0) - 2.0 * r0 - r1, r0 + r1 - 2.0 * (m1 - m0)


def _slope(s: Rows, c: Any) -> Rows:
    return c[1] + s * (2.0 * c[2] + 3.0 * s * c[3])
