"""The two first-order methods: explicit Euler, and its semi-implicit (symplectic) variant."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import StepInfo, known_linearization, stage_dynamics, step_info
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.stabilization import NoStabilization, Stabilization
from jaxdae.system import State, System


@pytree
class ExplicitEuler:
    """q+ = q (+) h v, v+ = v + h a(t, q, v). Order 1.

    Attributes:
        solver: a saddle-point solver.
        stabilization: the target of the acceleration row.
    """

    takes_linearization: ClassVar[bool] = True
    solver: SaddlePointSolver = SchurComplement()
    stabilization: Stabilization = NoStabilization()

    def init(self, system: System, state: State) -> tuple[()]:
        """Returns (): the method needs no memory."""
        return ()

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt; one evaluation of the dynamics."""
        (a, lam), _ = stage_dynamics(self, system, state, u, known_linearization(memory), keep=False)
        new = State(state.t + dt, system.retract(state.q, dt * state.v), state.v + dt * a)
        return new, memory, step_info(system, new, a, lam)


@pytree
class SemiImplicitEuler:
    """v+ = v + h a(t, q, v), q+ = q (+) h v+. Order 1; symplectic without constraints, and the workhorse of physics engines.

    Attributes:
        solver: a saddle-point solver.
        stabilization: the target of the acceleration row.
    """

    takes_linearization: ClassVar[bool] = True
    solver: SaddlePointSolver = SchurComplement()
    stabilization: Stabilization = NoStabilization()

    def init(self, system: System, state: State) -> tuple[()]:
        """Returns (): the method needs no memory."""
        return ()

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt; one evaluation of the dynamics."""
        (a, lam), _ = stage_dynamics(self, system, state, u, known_linearization(memory), keep=False)
        v = state.v + dt * a
        new = State(state.t + dt, system.retract(state.q, dt * v), v)
        return new, memory, step_info(system, new, a, lam)
