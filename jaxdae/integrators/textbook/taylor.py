"""Taylor expansion of the motion.

With a(t, q, v) from the dynamics, the motion expands as

    q(t + h) = q + h v + h^2/2 a + ...,        v(t + h) = v + h a + h^2/2 j + ...,    j = da/dt along the
    motion.

The lecture's scheme (4) keeps h^2/2 a in the positions and only h a in the velocities. Its positions have a
local error of order three, but its velocities have a local error of order two, so the method is of *first
order* over a fixed time. With the jerk j, which automatic differentiation computes as one directional
derivative of the dynamics, the method is of second order in both.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization
from jaxdae.integrators.integrator import StepInfo, stage_dynamics, step_info
from jaxdae.integrators.method import PointMethod
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf


@pytree
class Taylor(PointMethod):
    """q+ = q (+) (h v + h^2/2 a), v+ = v + h a + h^2/2 j. Order 2; order 1 without the jerk j.

    Attributes:
        jerk: whether to include the second-order term of the velocities; False is the lecture's scheme.
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.

    References:
        S. Savin, "Contact-aware Control", lecture 5, equation (4).
    """

    jerk: bool = static(one_of=bool, default=True)
    solver: Leaf = None
    stabilization: Stabilization = NoStabilization()

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which v' = -mu v decays: 2 with and without the jerk."""
        return 2.0

    def step_matrix(self, rate: Any) -> Any:
        """Return 1 + rate + rate^2 / 2; without the jerk, the velocities lack the last term."""
        square = 0.5 * (rate @ rate)
        return jnp.eye(2, dtype=rate.dtype) + rate + (square if self.jerk else square.at[1].set(0.0))

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt.

        The step takes one evaluation of the dynamics, plus one directional derivative for the jerk.
        """
        state = point.state
        (a, lam), _ = stage_dynamics(
            self, system, state, u, None if self.jerk else point.linearization, keep=False
        )
        v = state.v + dt * a
        if self.jerk:
            # A state that moves with rates (1, v, a). `retract` moves q, so this also holds for coordinates
            # with q' != v.
            def along(s: Any) -> Any:
                at = State(state.t + s, system.retract(state.q, s * state.v), state.v + s * a)
                return stage_dynamics(self, system, at, u, None, keep=False)[0][0]

            _, j = jax.jvp(along, (jnp.zeros_like(dt),), (jnp.ones_like(dt),))
            v = v + 0.5 * dt**2 * j
        new = State(state.t + dt, system.retract(state.q, dt * state.v + 0.5 * dt**2 * a), v)
        return Point(new, stage=point.linearization), memory, step_info(system, new, a, lam)
