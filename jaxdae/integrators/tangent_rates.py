"""Rates in the coordinates of `retract`, which preserve the order of a method on curved spaces.

Coordinates on a curved space (unit quaternions) move by q = q0 (+) xi. A Runge-Kutta method that adds up the
steps h v as in a flat space has at most order two there. It should instead integrate the equation for xi,
which lives in a flat space. With q(t) = q0 (+) xi(t) and the velocity v at q(t),

    d/dxi [q0 (+) xi] xi' = d/ds [q (+) s v]    at s = 0,

which is a linear equation for xi'. For rotations with q (+) xi = q exp(xi), its solution is the inverse of
the right-trivialized derivative of the exponential, dexp^-1_{-xi} v = v + xi x v / 2 + .... For flat
coordinates it is v itself. Systems with a closed-form solution, such as mechanisms, provide it as
`System.step_rate`. For other systems with an inverse of (+), it is a directional derivative,

    xi' = d/ds [(q (+) s v) (-) q0]    at s = 0,        (-): `System.difference`.

In (xi, v), a method has the order of its tableau, and every stage lies on the space (Munthe-Kaas).

References:
    H. Munthe-Kaas, "High order Runge-Kutta methods on manifolds", Appl. Numer. Math. 29 (1999). A. Iserles,
    H. Z. Munthe-Kaas, S. P. Norsett, A. Zanna, "Lie-group methods", Acta Numerica 9 (2000).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxdae.systems.system import AnySystem, System
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Coordinates, Velocity


def tangent_rate(system: AnySystem, q0: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
    """Return the rate xi' (nv,) of q0 (+) xi(t) for velocity v.

    Args:
        system: the system. Its `retract`, and `step_rate` or `difference` if it overrides them, define how
            coordinates move.
        q0: coordinates at the start of the step (nq,).
        xi: the tangent step so far (nv,).
        v: the velocity at q0 (+) xi (nv,).

    Raises:
        ValueError: `difference` does not return a tangent step.
    """
    if system.flat:
        return v
    known = system.step_rate(q0, xi, v)
    if known is not None:
        return known
    q = system.retract(q0, xi)
    zero, one = jnp.zeros((), v.dtype), jnp.ones((), v.dtype)
    if type(_innermost(system)).difference is System.difference:
        moving = jax.jvp(lambda s: system.retract(q, s * v), (zero,), (one,))[1]
        directions = jax.jacfwd(lambda x: system.retract(q0, x))(xi)
        # The directions are independent and `moving` lies in their span, so the normal equations are exact.
        return jnp.linalg.solve(directions.T @ directions, directions.T @ moving)
    rate = jax.jvp(lambda s: system.difference(q0, system.retract(q, s * v)), (zero,), (one,))[1]
    if rate.shape != v.shape:
        raise ValueError(
            f"system.difference(q0, q1) must return a tangent step of shape {v.shape}, got {rate.shape}; a "
            "system that defines retract must also define its inverse, difference"
        )
    return rate


def _innermost(system: AnySystem) -> AnySystem:
    while isinstance(system, Wrapper):
        system = system.system
    return system
