"""Explicit Runge-Kutta methods for first-order systems, x' = rate(t, x, u) with constraints.

The notes enforce constraints on x' = f in three ways. Here these are

    sequential:            Sequential(Kinematic(tableau, projected=False))     a step of x' = f, then root-finding for c = 0
    projected step:        ProjectedStep(Kinematic(tableau, projected=False))  a step of x' = f without its infeasible component
    projected derivative:  Kinematic(tableau)                                  steps of x' = P f - J^+ b, feasible at every stage

and the last, which is of the order of its tableau, may be wrapped in turn: `Projected(Kinematic.rk4())` removes the little drift it has.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", sections 3.4.1, 3.4.2 and 3.5.2; lecture notes, Carnegie Mellon
    University.
"""

from __future__ import annotations

from typing import Any

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import StepInfo, input_at, step_info
from jaxdae.integrators.runge_kutta import MIDPOINT, RK4, Tableau, combine
from jaxdae.kinematic import KinematicSystem, check_kinematic, kinematic_velocity, unprojected_rate
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.system import State, System
from jaxdae.typing import Velocity

EULER = Tableau(a=((),), b=(1.0,), c=(0.0,))


@pytree
class Kinematic:
    """An explicit Runge-Kutta method for a `KinematicSystem`, of the order of its tableau; `Kinematic.rk4()` and its sisters fill it in.

    A step starts from t and q alone. The v that it returns is the feasible velocity at its end, with the input of the step. `lam` is that
    of `kinematic_velocity` at the start, `a` the mean acceleration over the step, (v at the end - v at the start) / h.

    A feedback law (t, state) sees the time and the coordinates of a stage; the velocity it sees is the one at the start of the step.

    Attributes:
        tableau: the coefficients.
        projected: whether the derivative is projected, x' = P f - J^+ b (the notes' third approach). Without, it is f: position-level
            rows are left to `Sequential` or `ProjectedStep` around this; rows at velocity level are enforced in any case.
        solver: a saddle-point solver.
    """

    tableau: Tableau = static(default=RK4)
    projected: bool = static(default=True)
    solver: SaddlePointSolver = SchurComplement()

    @classmethod
    def euler(cls, **kwargs: Any) -> Kinematic:
        """Returns Euler's method: order 1, one stage."""
        return cls(tableau=EULER, **kwargs)

    @classmethod
    def midpoint(cls, **kwargs: Any) -> Kinematic:
        """Returns the explicit midpoint method: order 2, two stages."""
        return cls(tableau=MIDPOINT, **kwargs)

    @classmethod
    def rk4(cls, **kwargs: Any) -> Kinematic:
        """Returns the classical Runge-Kutta method: order 4, four stages."""
        return cls(tableau=RK4, **kwargs)

    def init(self, system: System, state: State) -> tuple[()]:
        """Returns (): the method needs no memory."""
        check_kinematic(system)
        return ()

    def step(self, system: System, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt; one evaluation of the rate a stage, and one at the end."""
        check_kinematic(system)

        def moved(coefficients: tuple[float, ...], t: Any) -> State:
            return State(t, system.retract(state.q, dt * combine(coefficients, slopes)), state.v)

        start, lam = kinematic_velocity(system, state, input_at(u, state.t, state), solver=self.solver)  # pyright: ignore[reportArgumentType]
        slopes = [start if self.projected else self._slope(system, state, u)]
        for row, c in zip(self.tableau.a[1:], self.tableau.c[1:], strict=True):
            slopes.append(self._slope(system, moved(row, state.t + c * dt), u))
        new = with_feasible_velocity(self, system, moved(self.tableau.b, state.t + dt), u)
        return new, memory, step_info(system, new, (new.v - start) / dt, lam)

    def _slope(self, system: Any, at: State, u: Any) -> Velocity:
        stage_input = input_at(u, at.t, at)
        if self.projected:
            return kinematic_velocity(system, at, stage_input, solver=self.solver)[0]
        return unprojected_rate(system, at, stage_input, self.solver)


def with_feasible_velocity(integrator: Any, system: System, state: State, u: Any) -> State:
    """Returns a state whose coordinates have been moved: of a kinematic system, with its velocity there; else as it is.

    Args:
        integrator: the method, for its field `solver`.
        system: the system.
        state: the state.
        u: input, or a law of it.
    """
    if not isinstance(system, KinematicSystem):
        return state
    solver = getattr(integrator, "solver", None)
    return State(state.t, state.q, kinematic_velocity(system, state, input_at(u, state.t, state), solver=solver)[0])
