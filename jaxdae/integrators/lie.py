"""Runge-Kutta-Munthe-Kaas methods: Runge-Kutta methods in the coordinates of `retract`.

Coordinates on a curved space (unit quaternions) move by q = q0 (+) xi. A Runge-Kutta method that adds h v to h v as if the space were flat
is of order two at best there; what it should integrate is the equation for xi, which lives in a flat space. With q(t) = q0 (+) xi(t) and
the velocity v at q(t),

    xi' = d/ds [(q0 (+) xi) (+) s v] (-) q0    at s = 0,        (-): `System.difference`, the inverse of (+),

one directional derivative. For rotations with q (+) xi = q exp(xi) it is the inverse of the right-trivialized derivative of the
exponential, dexp^-1_{-xi} v = v + xi x v / 2 + ..., and for flat coordinates it is v itself. In (xi, v) the method has the order of its
tableau, and every stage is on the space.

Reference:
    H. Munthe-Kaas, "High order Runge-Kutta methods on manifolds", Appl. Numer. Math. 29 (1999). A. Iserles, H. Z. Munthe-Kaas,
    S. P. Norsett, A. Zanna, "Lie-group methods", Acta Numerica 9 (2000).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import StepInfo, stage_dynamics, step_info
from jaxdae.integrators.runge_kutta import DORMAND_PRINCE5, RK4, Tableau, combine
from jaxdae.masks import Wrapper
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.stabilization import NoStabilization, Stabilization
from jaxdae.system import State, System
from jaxdae.typing import Coordinates, Velocity


def tangent_rate(system: System, q0: Coordinates, q: Coordinates, v: Velocity) -> Velocity:
    """Returns xi' (nv,) of q0 (+) xi(t) = q(t) where q(t) moves with velocity v.

    Raises:
        ValueError: a system with a `retract` of its own, but without its inverse `difference`.
    """

    def along(s: Any) -> Any:
        return system.difference(q0, system.retract(q, s * v))

    rate = jax.jvp(along, (jnp.zeros((), v.dtype),), (jnp.ones((), v.dtype),))[1]
    if rate.shape != v.shape:
        raise ValueError(
            f"system.difference(q0, q1) must return a tangent step of shape {v.shape}, got {rate.shape}:"
            " a system with a retract of its own needs its inverse as well"
        )
    return rate


def is_flat(system: System) -> bool:
    """Returns whether q (+) xi is q + xi, so that `tangent_rate` returns v."""
    while isinstance(system, Wrapper):
        system = system.system
    return type(system).retract is System.retract


@pytree
class RungeKuttaMuntheKaas:
    """An explicit Runge-Kutta method for coordinates with any `retract`, of the order of its tableau.

    For flat coordinates the same as `RungeKutta`. Needs `System.difference`.

    Attributes:
        tableau: the coefficients; the classical method of order 4 by default.
        solver: a saddle-point solver.
        stabilization: the target of the acceleration row.
    """

    tableau: Tableau = static(default=RK4)
    solver: SaddlePointSolver = SchurComplement()
    stabilization: Stabilization = NoStabilization()

    @classmethod
    def rk4(cls, **kwargs: Any) -> RungeKuttaMuntheKaas:
        """Returns the classical method: order 4, four stages."""
        return cls(tableau=RK4, **kwargs)

    @classmethod
    def dormand_prince5(cls, **kwargs: Any) -> RungeKuttaMuntheKaas:
        """Returns Dormand and Prince's method: order 5, six stages."""
        return cls(tableau=DORMAND_PRINCE5, **kwargs)

    def init(self, system: System, state: State) -> tuple[()]:
        """Returns (): the method needs no memory."""
        return ()

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt; one evaluation of the dynamics a stage."""
        dt = jnp.asarray(dt, state.q.dtype)

        def moved(coefficients: tuple[float, ...], t: Any) -> State:
            q = system.retract(state.q, dt * combine(coefficients, rates))
            return State(t, q, state.v + dt * combine(coefficients, accelerations))

        (a, lam), _ = stage_dynamics(self, system, state, u, None, keep=False)
        rates, accelerations = [state.v], [a]
        for row, c in zip(self.tableau.a[1:], self.tableau.c[1:], strict=True):
            stage = moved(row, state.t + c * dt)
            (acceleration, _), _ = stage_dynamics(self, system, stage, u, None, keep=False)
            rates.append(tangent_rate(system, state.q, stage.q, stage.v))
            accelerations.append(acceleration)
        new = moved(self.tableau.b, state.t + dt)
        return new, memory, step_info(system, new, a, lam)
