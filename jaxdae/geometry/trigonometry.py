"""Cosine and sine of the same angle, in arithmetic that vectorizes.

XLA's CPU backend evaluates double-precision cosine and sine one number at a time, some 8 ns each. In a batch
of mechanisms this takes a quarter of the time of a step. Both functions together take a dozen
multiplications, which XLA vectorizes over worlds:

    k = round(2 angle / pi),   r = angle - k pi/2 in three exact parts (Cody and Waite),   |r| <= pi/4,
    sin r = r + r^3 P(r^2),    cos r = 1 - r^2/2 + r^4 Q(r^2).

The quadrant k mod 4 selects the function and the sign. Both results are within 1 ulp for |angle| below 1e6
rad (1e4 rad in single precision). Beyond, the error grows like eps |angle|, which is the uncertainty of the
angle itself.

References:
    W. J. Cody, W. Waite, "Software Manual for the Elementary Functions" (1980). The coefficients are those of
    fdlibm (K. C. Ng, Sun Microsystems, 1993) and, in single precision, of S. L. Moshier's Cephes library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class _Coefficients(NamedTuple):
    """pi/2 in parts, and the coefficients of the polynomials P and Q, highest power first."""

    half_pi: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


_DOUBLE = _Coefficients(
    half_pi=(1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
    sine=(
        1.58969099521155010221e-10,
        -2.50507602534068634195e-08,
        2.75573137070700676789e-06,
        -1.98412698298579493134e-04,
        8.33333333332248946124e-03,
        -1.66666666666666324348e-01,
    ),
    cosine=(
        -1.13596475577881948265e-11,
        2.08757232129817482790e-09,
        -2.75573143513906633035e-07,
        2.48015872894767294178e-05,
        -1.38888888888741095749e-03,
        4.16666666666666019037e-02,
    ),
)
_SINGLE = _Coefficients(
    half_pi=(1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8),
    sine=(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    cosine=(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
)


def _polynomial(coefficients: tuple[float, ...], z: Array) -> Array:
    # Do not use an array of constants. JAX would carry one array per call through the loop of a
    # differentiated rollout. Calls with the same angle would then be different computations.
    result = coefficients[0] * z + coefficients[1]
    for c in coefficients[2:]:
        result = result * z + c
    return result


@jax.custom_jvp
def cos_sin(angle: Array) -> tuple[Array, Array]:
    """Return the cosine and the sine of an angle in rad, of any shape."""
    return _cos_sin(angle)


# Compiled separately: a step calls it a few dozen times, and JAX traces its operations once. It uses
# operations of `jax.lax`, which are not compiled functions themselves. This saves two hundred functions to
# differentiate in a gradient.
@jax.jit
def _cos_sin(angle: Array) -> tuple[Array, Array]:
    table = _DOUBLE if jnp.finfo(angle.dtype).bits > 32 else _SINGLE
    k = jax.lax.round(angle * (2.0 / 3.14159265358979323846), jax.lax.RoundingMethod.TO_NEAREST_EVEN)
    r = angle
    for part in table.half_pi:
        r = r - k * part
    z = r * r
    sine = r + r * z * _polynomial(table.sine, z)
    half = 0.5 * z
    # 1 - z/2, with its rounding error added back.
    rounded = 1.0 - half
    cosine = rounded + (((1.0 - rounded) - half) + z * z * _polynomial(table.cosine, z))
    quadrant = k - 4.0 * jax.lax.floor(0.25 * k)
    odd = (quadrant == 1.0) | (quadrant == 3.0)
    c, s = jax.lax.select(odd, sine, cosine), jax.lax.select(odd, cosine, sine)
    c = jax.lax.select((quadrant == 1.0) | (quadrant == 2.0), -c, c)
    return c, jax.lax.select(quadrant >= 2.0, -s, s)


_TERMS = 10
"""The number of terms of the series below, sufficient for angles up to one radian in double precision."""


def chord(angle: Array) -> tuple[Array, Array]:
    """Return sin(a)/a and (1 - cos(a))/a of an angle in rad.

    They are the components of the chord of an arc of length one that turns by the angle, along and across its
    start direction. Up to one radian, the function uses power series: for small nonzero angles, the
    derivatives of the quotients lose all digits.
    """
    small = jnp.abs(angle) <= 1.0
    inside: Any = jnp.where(small, angle, 0.0)
    square = inside * inside
    along, across = jnp.ones_like(square), jnp.ones_like(square)
    for k in range(_TERMS, 0, -1):
        along, across = (
            1.0 - along * square / (2 * k * (2 * k + 1)),
            1.0 - across * square / ((2 * k + 1) * (2 * k + 2)),
        )
    outside: Any = jnp.where(small, 1.0, angle)
    found: Any = jnp.where(small, along, jnp.sin(outside) / outside)
    aside: Any = jnp.where(small, 0.5 * inside * across, jnp.sin(0.5 * outside) ** 2 / (0.5 * outside))
    return found, aside


def kept_cos_sin(angle: Array) -> tuple[Array, Array]:
    """Return the cosine and the sine of an angle in rad, stored for several consumers.

    An exact division by one acts as a fusion barrier: XLA stores the results of divisions instead of
    recomputing them in every consumer.
    """
    one = jnp.where(angle == angle, 1.0, jnp.nan)
    cos, sin = cos_sin(angle)
    return cos / one, sin / one


@cos_sin.defjvp
def _cos_sin_jvp(primals: Any, tangents: Any) -> Any:
    cos, sin = cos_sin(*primals)
    return (cos, sin), (-sin * tangents[0], cos * tangents[0])


def once(x: Array) -> Array:
    """Insert a fusion barrier so that XLA stores `x` and its cotangent.

    Without it, XLA would recompute them in every consumer. As in `kept_cos_sin`, the barrier is an exact
    division by one. In reverse mode, the cotangent passes the same division, so the rest of the chain reads
    its stored value.
    """
    return x / jnp.where(x == x, 1.0, jnp.nan)


@jax.custom_jvp
def kept_turn(angle: Array) -> tuple[Array, Array]:
    """Return the result of `kept_cos_sin`; the derivatives use the stored values."""
    return kept_cos_sin(angle)


@kept_turn.defjvp
def _kept_turn_jvp(primals: Any, tangents: Any) -> Any:
    cos, sin = kept_turn(*primals)
    return (cos, sin), (-sin * tangents[0], cos * tangents[0])


def cos_sin_once(angle: Array) -> tuple[Array, Array]:
    """Return the result of `kept_turn`; reverse mode also stores the cotangent of the angle, see `once`."""
    return kept_turn(once(angle))


@jax.custom_jvp
def _tangent(angle: Array) -> Array:
    cos, sin = cos_sin(angle)
    return sin / cos


@_tangent.defjvp
def _tangent_jvp(primals: Any, tangents: Any) -> Any:
    tangent = _tangent(*primals)
    return tangent, (1.0 + tangent * tangent) * tangents[0]


def tan_once(angle: Array) -> Array:
    """Return the tangent of an angle in rad, stored for several consumers as in `cos_sin_once`."""
    return _tangent(once(angle))
