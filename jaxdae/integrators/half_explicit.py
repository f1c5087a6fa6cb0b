"""Half-explicit Runge-Kutta methods: explicit in positions and velocities, implicit in the multipliers.

The constraint is imposed at the velocity level (index 2), r(t, q, v) = [g'; w] = 0. The stages are

    Q_i = q0 (+) h sum_{j<i} a_ij V_j,      V_i = v0 + h sum_{j<i} a_ij A_j,
    M(Q_i) A_i = f(t_i, Q_i, V_i) + J(Q_i)^T lam_i,

and lam_i is chosen such that the *next* stage satisfies r(t_{i+1}, Q_{i+1}, V_{i+1}) = 0 (for the last stage,
the result of the step). Since Q_{i+1} is known before lam_i, this equation is linear for rows that are affine
in v:

    h a_{i+1,i} J(Q_{i+1}) M(Q_i)^-1 J(Q_i)^T lam_i = -r(t_{i+1}, Q_{i+1}, V*),     V*: V_{i+1} with lam_i =
    0.

The result satisfies [g'; w] = 0 to round-off. g itself drifts by the error of the method, and `Projected`
removes this drift. Explicit tableaus must satisfy more order conditions here than for ordinary differential
equations (classical RK4 falls to order two). `HEM4` satisfies them to order four in positions and velocities
with five stages.

References:
    V. Brasey, E. Hairer, "Half-explicit Runge-Kutta methods for differential-algebraic systems of index 2",
    SIAM J. Numer. Anal. 30 (1993). E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II",
    section VII.6.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators.integrator import (
    StepInfo,
    dynamics_at_start,
    input_at,
    step_info,
    with_closed_velocities,
)
from jaxdae.integrators.method import PointMethod
from jaxdae.integrators.runge_kutta import Tableau, amplifying_rate, combine, stability_matrix
from jaxdae.integrators.tangent_rates import tangent_rate
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf

_S = sqrt(6.0)
HEM4 = Tableau(
    a=(
        (),
        (3 / 10,),
        ((1 + _S) / 30, (11 - 4 * _S) / 30),
        ((-79 - 31 * _S) / 150, (-1 - 4 * _S) / 30, (24 + 11 * _S) / 25),
        ((14 + 5 * _S) / 6, (-8 + 7 * _S) / 6, (-9 - 7 * _S) / 4, (9 - _S) / 4),
    ),
    b=(0.0, 0.0, (16 - _S) / 36, (16 + _S) / 36, 1 / 9),
    c=(0.0, 3 / 10, (4 - _S) / 10, (4 + _S) / 10, 1.0),
)


@pytree
class HalfExplicitRungeKutta(PointMethod):
    """A half-explicit Runge-Kutta method for the index-2 form; order four with its default tableau.

    Rows that are not affine in v reduce the order to two; if a step leaves them open, the status is
    NOT_CONVERGED. The multipliers of the stages are first-order approximations. As for all methods, the
    multipliers in `StepInfo` come from the dynamics at the start.

    Attributes:
        tableau: the coefficients; a[i][i-1] and the last weight must be nonzero.
        solver: a saddle-point solver for the dynamics at the start and for projections around the method. The
            stages solve a nonsymmetric matrix by LU.
    """

    tableau: Tableau = static(one_of=Tableau, default=HEM4)
    solver: Leaf = None

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which the stability function stays below 1.1."""
        return amplifying_rate(self.tableau)

    def step_matrix(self, rate: Any) -> Any:
        """Return the stability function of the matrix, R(rate)."""
        return stability_matrix(self.tableau, rate)

    def init(self, system: AnySystem, state: State) -> tuple[()]:
        """Return (): the method has no memory.

        Raises:
            ValueError: the tableau has a zero in place of the coefficient that enforces the constraint of the
                next stage.
        """
        below = [row[-1] for row in self.tableau.a[1:]] + [self.tableau.b[-1]]
        if 0.0 in below:
            raise ValueError(
                "HalfExplicitRungeKutta: the last entry of each row of a, and of b, must not be zero; got "
                f"{below}; HEM4 is a suitable tableau"
            )
        return ()

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; one LU factorization per stage."""
        state = point.state
        dt = jnp.asarray(dt, state.q.dtype)
        rows = [*self.tableau.a[1:], self.tableau.b]
        times = [*self.tableau.c[1:], 1.0]
        a, start_lam = dynamics_at_start(self, system, state, point.linearization, u)
        at, xi = state, jnp.zeros_like(state.v)
        rates, accelerations = [], []
        for row, c in zip(rows, times, strict=True):
            rates.append(tangent_rate(system, state.q, xi, at.v) if rates else at.v)
            xi = dt * combine(row, rates)
            t, q = state.t + c * dt, system.retract(state.q, xi)
            here = system.evaluate(at.t, at.q, at.v)
            mass, pull = here.mass, here.dense_jacobian
            free = mass.solve(here.force(input_at(u, at, system)))
            push = jax.vmap(mass.solve, out_axes=1)(pull) if pull.shape[0] else pull.T
            ahead = system.evaluate(t, q, state.v + dt * combine(row, [*accelerations, free]))
            matrix, rest = dt * row[-1] * (ahead.dense_jacobian @ push), -ahead.velocity
            compliance = here.compliance
            if compliance is not None:
                soft = compliance > 0.0
                matrix = jnp.where(soft[:, None], pull @ push + jnp.diag(compliance), matrix)
                rest = jnp.where(soft, -here.bias - pull @ free, rest)
            lam = jnp.linalg.solve(matrix, rest) if pull.shape[0] else rest
            accelerations.append(free + push @ lam)
            at = State(t, q, state.v + dt * combine(row, accelerations))
        info = with_closed_velocities(system, at, step_info(system, at, a, start_lam))
        return Point(at, stage=point.linearization), memory, info
