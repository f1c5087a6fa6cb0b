"""Explicit Runge-Kutta methods from their Butcher tableaus.

For y' = F(t, y) with y = (q, v) and F = (v, a(t, q, v)),

    k_i = F(t + c_i h, y + h sum_j a_ij k_j),   j < i,        y+ = y + h sum_i b_i k_i.

Positions move through `retract`, and what is summed up is the tangent step xi from the start of the step, q = q0 (+) xi, by its own rate
xi' (see `jaxdae.integrators.tangent`): v itself in flat coordinates, v corrected for the curvature in others such as quaternions. So the
method has the order of its tableau in all of them; on curved coordinates this is the method of Munthe-Kaas.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import StepInfo, stage_dynamics, step_info
from jaxdae.integrators.method import PointMethod
from jaxdae.integrators.tangent import tangent_rate
from jaxdae.linearization import Point
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.stabilization import NoStabilization, Stabilization
from jaxdae.system import AnySystem, State


@dataclasses.dataclass(frozen=True)
class Tableau:
    """The coefficients of an explicit Runge-Kutta method.

    Attributes:
        a: the strictly lower triangular rows: a[i] has i entries.
        b: the weights, one a stage; they sum to 1.
        c: the stage times; c[i] is the sum of a[i].

    Raises:
        ValueError: wrong lengths, or sums that no consistent method has.
    """

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]

    def __post_init__(self) -> None:
        """Checks the coefficients: they are plain numbers, never tracers."""
        stages = len(self.b)
        if stages == 0 or len(self.a) != stages or len(self.c) != stages:
            raise ValueError(
                f"Tableau: a, b and c need the same number of stages, at least 1; got {len(self.a)}, {stages} and {len(self.c)}"
            )
        for i, row in enumerate(self.a):
            if len(row) != i:
                raise ValueError(f"Tableau: row {i} of a must have {i} entries (explicit method), got {len(row)}")
            if abs(sum(row) - self.c[i]) > 1e-12:
                raise ValueError(f"Tableau: c[{i}] = {self.c[i]} is not the sum of a[{i}] = {sum(row)}")
        if abs(sum(self.b) - 1.0) > 1e-12:
            raise ValueError(f"Tableau: the weights b sum to {sum(self.b)}, not to 1")


MIDPOINT = Tableau(a=((), (1 / 2,)), b=(0.0, 1.0), c=(0.0, 1 / 2))
HEUN = Tableau(a=((), (1.0,)), b=(1 / 2, 1 / 2), c=(0.0, 1.0))
RALSTON3 = Tableau(a=((), (1 / 2,), (0.0, 3 / 4)), b=(2 / 9, 1 / 3, 4 / 9), c=(0.0, 1 / 2, 3 / 4))
RK4 = Tableau(a=((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), b=(1 / 6, 1 / 3, 1 / 3, 1 / 6), c=(0.0, 1 / 2, 1 / 2, 1.0))
DORMAND_PRINCE5 = Tableau(
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    ),
    b=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0),
)


def combine(coefficients: tuple[float, ...], slopes: list[Any]) -> Any:
    """Returns sum_j coefficients_j slopes_j; the terms with coefficient zero are left out of the program."""
    terms = [c * k for c, k in zip(coefficients, slopes, strict=False) if c != 0.0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@pytree
class RungeKutta(PointMethod):
    """An explicit Runge-Kutta method, of the order of its tableau, in flat coordinates and with any `retract`.

    `RungeKuttaMuntheKaas` is another name of it.

    Attributes:
        tableau: the coefficients; `RungeKutta.rk4()` and its sisters fill it in.
        solver: a saddle-point solver.
        stabilization: the target of the acceleration row.

    References:
        E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", chapter II. H. Munthe-Kaas, "High order
        Runge-Kutta methods on manifolds", Appl. Numer. Math. 29 (1999).
    """

    tableau: Tableau = static(one_of=Tableau, default=RK4)
    solver: SaddlePointSolver = SchurComplement()
    stabilization: Stabilization = NoStabilization()

    @classmethod
    def midpoint(cls, **kwargs: Any) -> RungeKutta:
        """Returns the explicit midpoint method: order 2, two stages."""
        return cls(tableau=MIDPOINT, **kwargs)

    @classmethod
    def heun(cls, **kwargs: Any) -> RungeKutta:
        """Returns Heun's method (explicit trapezoidal rule): order 2, two stages."""
        return cls(tableau=HEUN, **kwargs)

    @classmethod
    def ralston3(cls, **kwargs: Any) -> RungeKutta:
        """Returns Ralston's method of order 3, three stages."""
        return cls(tableau=RALSTON3, **kwargs)

    @classmethod
    def rk4(cls, **kwargs: Any) -> RungeKutta:
        """Returns the classical method of order 4, four stages."""
        return cls(tableau=RK4, **kwargs)

    @classmethod
    def dormand_prince5(cls, **kwargs: Any) -> RungeKutta:
        """Returns Dormand and Prince's method of order 5, six stages."""
        return cls(tableau=DORMAND_PRINCE5, **kwargs)

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt; one evaluation of the dynamics a stage."""
        state, last = point.state, point.linearization

        def moved(coefficients: tuple[float, ...], t: Any) -> tuple[State, Any]:
            xi = dt * combine(coefficients, rates)
            return State(t, system.retract(state.q, xi), state.v + dt * combine(coefficients, accelerations)), xi

        (a, lam), _ = stage_dynamics(self, system, state, u, point.linearization, keep=False)
        rates, accelerations = [state.v], [a]
        for i, (row, c) in enumerate(zip(self.tableau.a[1:], self.tableau.c[1:], strict=True), start=2):
            stage, xi = moved(row, state.t + c * dt)
            rates.append(tangent_rate(system, state.q, xi, stage.v))
            keep = point.linearization is not None and i == len(self.tableau.b)
            (acceleration, _), here = stage_dynamics(self, system, stage, u, None, keep)
            last = here or last
            accelerations.append(acceleration)
        new, _ = moved(self.tableau.b, state.t + dt)
        return Point(new, stage=last), memory, step_info(system, new, a, lam)


RungeKuttaMuntheKaas = RungeKutta
"""The name that the method has in the literature on curved coordinates."""
