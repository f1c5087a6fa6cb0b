"""Explicit Runge-Kutta methods from their Butcher tableaus.

For y' = F(t, y) with y = (q, v) and F = (v, a(t, q, v)),

    k_i = F(t + c_i h, y + h sum_j a_ij k_j),   j < i,        y+ = y + h sum_i b_i k_i.

Positions move through `retract`. The method integrates the tangent step xi from the start of the step, q = q0
(+) xi, with its own rate xi' (see `jaxdae.integrators.tangent_rates`): v itself in flat coordinates, and v
corrected for curvature in other coordinates, such as quaternions. The method therefore has the order of its
tableau in all coordinates. On curved coordinates, it is the method of Munthe-Kaas.

With `unroll=True`, the program of a step contains every stage separately. This is fastest for small
mechanisms and in reverse mode. With `unroll=False`, it contains one stage in a loop, and is shorter by a
factor of about the number of stages. Ratios of the loop to unrolled stages, for RK4 in double precision on a
CPU: the Whipple bicycle (24 velocities, 21 rows) takes 0.6 to 0.8 of the compile time and 1.0 to 1.1 of the
step time; a crank-rocker (9 velocities, 8 rows, with projections) takes 0.85 of the compile time, 1.1 of the
step time, and 1.8 of the time for reverse-mode gradients.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization
from jaxdae.integrators.integrator import StepInfo, stage_dynamics, step_info
from jaxdae.integrators.method import PointMethod
from jaxdae.integrators.tangent_rates import tangent_rate
from jaxdae.systems.linearization import Point
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf, Rows, Velocity

Slopes = tuple[list[Velocity], list[Velocity]]
"""xi' and a of all stages."""


@dataclasses.dataclass(frozen=True)
class Tableau:
    """The coefficients of an explicit Runge-Kutta method.

    Attributes:
        a: the strictly lower triangular rows: a[i] has i entries.
        b: the weights, one per stage; they sum to 1.
        c: the stage times; c[i] is the sum of a[i].

    Raises:
        ValueError: the lengths do not match, or the sums violate consistency.
    """

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the coefficients, which are Python numbers and never tracers."""
        stages = len(self.b)
        if stages == 0 or len(self.a) != stages or len(self.c) != stages:
            raise ValueError(
                f"Tableau: a, b and c need the same number of stages, at least 1; got {len(self.a)}, "
                f"{stages} and {len(self.c)}"
            )
        for i, row in enumerate(self.a):
            if len(row) != i:
                raise ValueError(
                    f"Tableau: row {i} of a must have {i} entries (explicit method), got {len(row)}"
                )
            if abs(sum(row) - self.c[i]) > 1e-12:
                raise ValueError(f"Tableau: c[{i}] = {self.c[i]} must equal the sum of a[{i}] = {sum(row)}")
        if abs(sum(self.b) - 1.0) > 1e-12:
            raise ValueError(f"Tableau: the weights b sum to {sum(self.b)}, expected 1")


EULER = Tableau(a=((),), b=(1.0,), c=(0.0,))
MIDPOINT = Tableau(a=((), (1 / 2,)), b=(0.0, 1.0), c=(0.0, 1 / 2))
HEUN = Tableau(a=((), (1.0,)), b=(1 / 2, 1 / 2), c=(0.0, 1.0))
RALSTON3 = Tableau(a=((), (1 / 2,), (0.0, 3 / 4)), b=(2 / 9, 1 / 3, 4 / 9), c=(0.0, 1 / 2, 3 / 4))
RK4 = Tableau(
    a=((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(0.0, 1 / 2, 1 / 2, 1.0),
)
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


def stability_coefficients(tableau: Tableau) -> list[float]:
    """Return the coefficients c_k of the stability function.

    The function is R(z) = 1 + z b^T (1 - z A)^-1 1 = sum_k c_k z^k.
    """
    size = len(tableau.b)
    matrix = np.array([[*row, *[0.0] * (size - len(row))] for row in tableau.a])
    found, power = [1.0], np.ones(size)
    for _ in range(size):
        found.append(float(np.dot(tableau.b, power)))
        power = matrix @ power
    return found


def stability_matrix(tableau: Tableau, rate: Any) -> Any:
    """Return the stability function R of an explicit tableau at a matrix (2, 2)."""
    *below, total = (c * jnp.eye(2, dtype=rate.dtype) for c in stability_coefficients(tableau))
    for coefficient in reversed(below):
        total = coefficient + rate @ total
    return total


def amplifying_rate(tableau: Tableau) -> float:
    """Return the smallest x > 0 with |R(-x)| >= 1.1, where R is the stability function, else infinity."""
    x = np.linspace(0.0, 50.0, 5001)
    large = np.abs(np.polynomial.polynomial.polyval(-x, stability_coefficients(tableau))) >= 1.1
    return float(x[np.argmax(large)]) if large.any() else float("inf")


def combine(coefficients: tuple[float, ...], slopes: list[Any]) -> Any:
    """Return sum_j coefficients_j slopes_j; omit terms with coefficient zero from the program."""
    terms = [c * k for c, k in zip(coefficients, slopes, strict=False) if c != 0.0]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@pytree
class RungeKutta(PointMethod):
    """An explicit Runge-Kutta method in flat coordinates or with any `retract`; the tableau sets its order.

    Attributes:
        tableau: the coefficients; constructors such as `RungeKutta.rk4()` set them.
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
        unroll: whether the program contains each stage separately. For large mechanisms, a loop over the
            stages compiles faster (see the module).

    References:
        E. Hairer, S. P. Norsett, G. Wanner, "Solving Ordinary Differential Equations I", chapter II. H.
        Munthe-Kaas, "High order Runge-Kutta methods on manifolds", Appl. Numer. Math. 29 (1999).
    """

    begins_at_estimate: ClassVar[bool] = True
    tableau: Tableau = static(one_of=Tableau, default=RK4)
    solver: Leaf = None
    stabilization: Stabilization = NoStabilization()
    unroll: bool = static(one_of=bool, default=True)

    @classmethod
    def midpoint(cls, **kwargs: Any) -> RungeKutta:
        """Return the explicit midpoint method: order 2, two stages."""
        return cls(tableau=MIDPOINT, **kwargs)

    @classmethod
    def heun(cls, **kwargs: Any) -> RungeKutta:
        """Return Heun's method (explicit trapezoidal rule): order 2, two stages."""
        return cls(tableau=HEUN, **kwargs)

    @classmethod
    def ralston3(cls, **kwargs: Any) -> RungeKutta:
        """Return Ralston's method of order 3, three stages."""
        return cls(tableau=RALSTON3, **kwargs)

    @classmethod
    def rk4(cls, **kwargs: Any) -> RungeKutta:
        """Return the classical method of order 4, four stages."""
        return cls(tableau=RK4, **kwargs)

    @classmethod
    def dormand_prince5(cls, **kwargs: Any) -> RungeKutta:
        """Return Dormand and Prince's method of order 5, six stages."""
        return cls(tableau=DORMAND_PRINCE5, **kwargs)

    @property
    def position_share(self) -> float:
        """The share of h^2 a in the displacement of a step: b^T c, 1/2 for order two and higher."""
        return sum(b * c for b, c in zip(self.tableau.b, self.tableau.c, strict=True))

    @property
    def damping_limit(self) -> float:
        """The largest h mu for which the stability function stays below 1.1: 2.83 for RK4."""
        return amplifying_rate(self.tableau)

    def step_matrix(self, rate: Any) -> Any:
        """Return the stability function of the matrix, R(rate)."""
        return stability_matrix(self.tableau, rate)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; one evaluation of the dynamics per stage."""
        state = point.state
        slopes, lam, last = (self._one_by_one if self.unroll else self._in_a_loop)(system, point, u, dt)
        xi, dv = (dt * combine(self.tableau.b, of_kind) for of_kind in slopes)
        new = State(state.t + dt, system.retract(state.q, xi), state.v + dv)
        return Point(new, stage=last), memory, step_info(system, new, slopes[1][0], lam)

    def _one_by_one(self, system: AnySystem, point: Point, u: Any, dt: Any) -> tuple[Slopes, Rows, Any]:
        """Return slopes, multipliers of the first stage, and the linearization at the last stage.

        The linearization is None if the first stage has none.
        """
        state, last = point.state, point.linearization
        (a, lam), _ = stage_dynamics(self, system, point.origin, u, point.linearization, keep=False)
        rates, accelerations = [state.v], [a]
        for i, (row, c) in enumerate(zip(self.tableau.a[1:], self.tableau.c[1:], strict=True), start=2):
            keep = point.linearization is not None and i == len(self.tableau.b)
            (rate, acceleration), _, here = self._slope(
                system, state, u, c * dt, dt * combine(row, rates), dt * combine(row, accelerations), keep
            )
            last = here or last
            rates.append(rate)
            accelerations.append(acceleration)
        return (rates, accelerations), lam, last

    def _in_a_loop(self, system: AnySystem, point: Point, u: Any, dt: Any) -> tuple[Slopes, Rows, Any]:
        """Return the same as `_one_by_one`.

        If the linearization of the first stage is known, this stage is outside the loop, because it needs
        less work.
        """
        state, known = point.state, point.linearization
        first, stages, dtype = 0 if known is None else 1, len(self.tableau.b), state.v.dtype
        slopes, before = jnp.zeros((2, stages, *state.v.shape), dtype), []
        if known is not None:
            (a, lam), _ = stage_dynamics(self, system, point.origin, u, known, keep=False)
            slopes, before = slopes.at[:, 0].set(jnp.stack([state.v, a])), [lam]

        def stage(carry: Any, at: Any) -> tuple[Any, Rows]:
            (slopes, _), (i, row, c) = carry, at
            # Sum elementwise, because a matrix product would be less accurate on accelerators.
            xi, dv = dt * jnp.sum(row[:, None] * slopes, axis=1)
            slope, lam, here = self._slope(system, state, u, c * dt, xi, dv, keep=known is not None)
            return (slopes.at[:, i].set(jnp.stack(slope)), here), lam

        rows = jnp.asarray([[*row, *[0.0] * (stages - len(row))] for row in self.tableau.a], dtype)
        along = (jnp.arange(first, stages), rows[first:], jnp.asarray(self.tableau.c[first:], dtype))
        (slopes, last), lams = jax.lax.scan(stage, (slopes, known), along)
        return (list(slopes[0]), list(slopes[1])), (before or lams)[0], last

    def _slope(
        self, system: AnySystem, start: State, u: Any, after: Any, xi: Any, dv: Any, keep: bool
    ) -> tuple[tuple[Any, Any], Rows, Any]:
        """Return (xi', a), lam and, if requested, the linearization at a stage.

        The stage is at time `after` from the start, displaced by xi and dv.
        """
        at = State(start.t + after, system.retract(start.q, xi), start.v + dv)
        rate = tangent_rate(system, start.q, xi, at.v)
        (a, lam), here = stage_dynamics(self, system, at, u, None, keep)
        return (rate, a), lam, here
