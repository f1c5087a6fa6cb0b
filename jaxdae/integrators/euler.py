"""First-order methods: explicit Euler and semi-implicit (symplectic) Euler."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization
from jaxdae.integrators.integrator import StepInfo, stage_dynamics, step_info
from jaxdae.integrators.method import PointMethod
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf


@pytree
class ExplicitEuler(PointMethod):
    """q+ = q (+) h v, v+ = v + h a(t, q, v). Order 1.

    Attributes:
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
    """

    begins_at_estimate: ClassVar[bool] = True
    solver: Leaf = None
    stabilization: Stabilization = NoStabilization()

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which v' = -mu v decays: 2."""
        return 2.0

    @property
    def position_share(self) -> float:
        """The share of h^2 a in the displacement of a step: 0; positions move with the old velocity."""
        return 0.0

    def step_matrix(self, rate: Any) -> Any:
        """Return 1 + rate."""
        return jnp.eye(2, dtype=rate.dtype) + rate

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; one evaluation of the dynamics."""
        state = point.state
        (a, lam), _ = stage_dynamics(self, system, point.origin, u, point.linearization, keep=False)
        new = State(state.t + dt, system.retract(state.q, dt * state.v), state.v + dt * a)
        return Point(new, stage=point.linearization), memory, step_info(system, new, a, lam)


@pytree
class SemiImplicitEuler(PointMethod):
    """v+ = v + h a(t, q, v), q+ = q (+) h v+. Order 1; symplectic without constraints.

    This is the standard method of physics engines.

    Attributes:
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
    """

    begins_at_estimate: ClassVar[bool] = True
    solver: Leaf = None
    stabilization: Stabilization = NoStabilization()

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which v' = -mu v decays: 2."""
        return 2.0

    @property
    def position_share(self) -> float:
        """The share of h^2 a in the displacement of a step: 1; positions move with the new velocity."""
        return 1.0

    def step_matrix(self, rate: Any) -> Any:
        """Return the matrix (2, 2) of a step: positions move with the new velocities."""
        return jnp.eye(2, dtype=rate.dtype) + rate.at[0].add(rate[1])

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; one evaluation of the dynamics."""
        state = point.state
        (a, lam), _ = stage_dynamics(self, system, point.origin, u, point.linearization, keep=False)
        v = state.v + dt * a
        new = State(state.t + dt, system.retract(state.q, dt * v), v)
        return Point(new, stage=point.linearization), memory, step_info(system, new, a, lam)
