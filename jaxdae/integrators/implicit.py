"""Implicit methods with position-level constraints: backward Euler and the implicit midpoint rule.

Both methods solve for the mean accelerations a of the step and for the multipliers lam. They evaluate the
forces at one point of the step, marked *,

    M(q*) a = f(t*, q*, v*) + J(q*)^T lam,        v1 = v0 + h a,        q1 = q0 (+) h v_q,

and impose the position-level rows at q1, the end of the step, independently of earlier errors, so there is no
drift. Backward Euler (in the lecture: the function is evaluated at x_{i+1}) has * = 1 and v_q = v1. The
midpoint rule has * at the middle, v* = v_q = (v0 + v1) / 2, and velocity-level rows at the middle.

The rows are divided by the power of h with which a moves them, and by s, the position of * as a fraction of
the step, 1 or 1/2: g / (s h^2) has the derivative J with respect to a. Newton's matrix is then the
saddle-point matrix up to terms in h, for any step length,

    [M + s h D + s^2 h^2 K, -J^T; J, C],        D = -df/dv,  K = d(M a - f - J^T lam)/dq;

see `jaxdae.linalg.newton` for its inverse.

Velocities need not be consistent with position-level rows. The velocity errors of backward Euler are of first
order, like its other errors. The velocity errors of the midpoint rule alternate from step to step by O(h^2).
If they matter, wrap the method in `Projected(..., Projection(position=None))`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.integrators.integrator import StepInfo, closed_step_info, convergence, dynamics_at_start, input_at
from jaxdae.integrators.method import PointMethod
from jaxdae.linalg.newton import Corrections, DenseNewton, NewtonMethod, is_newton
from jaxdae.matrices import AutodiffRows
from jaxdae.systems.linearization import Linearization, Point, linearize
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class Unknowns:
    """Unknowns of Newton's iteration: h a (nv,) and h lam (nc,), velocity changes and impulses.

    For first-order systems, the unknowns are h x' and h lam.

    Their rounding errors are those of velocities and momenta. The rounding errors of a and lam would be 1/h
    times as large: rounding positions of size 1 gives g / h^2 an error of eps / h^2, and an iteration for a
    could not distinguish this error from its own corrections.
    """

    dv: Leaf
    impulse: Leaf


def dynamic_rows(system: AnySystem, at: State, a: Velocity, lam: Rows, u: Any) -> Velocity:
    """Return M a - f - J^T lam (nv,) at a state."""
    terms = system.evaluate(at.t, at.q, at.v)
    return (
        terms.mass.times(a)
        - terms.force(input_at(u, at, system))
        - AutodiffRows(system, at).transpose_times(lam)
    )


def hard_or_soft(system: AnySystem, at: State, a: Velocity, lam: Rows, rows: Rows) -> Rows:
    """Return the rows (nc,), with J a + gamma + C lam in place of rows with compliance."""
    compliance = system.compliance(at.t, at.q)
    if compliance is None:
        return rows
    soft = AutodiffRows(system, at).times(a) + system.constraint_bias(at.t, at.q, at.v) + compliance * lam
    return jnp.where(compliance > 0.0, soft, rows)


def saddle_point_corrections(at: Linearization) -> Corrections:
    """Return the corrections for a Newton matrix near the saddle-point matrix at the start of the step."""
    return Corrections(_velocities, lambda: at.factors, _correction, _transposed_correction)


def _velocities(x: Unknowns, args: Any) -> Any:
    return x.dv


def _correction(rhs: Unknowns, factors: Any) -> Unknowns:
    return Unknowns(*factors.solve(rhs.dv, rhs.impulse))


def _transposed_correction(rhs: Unknowns, factors: Any) -> Unknowns:
    # The transpose of [M -J^T; J C] differs from the matrix by the signs of the second row and the second
    # column.
    dv, impulse = factors.solve(rhs.dv, -rhs.impulse)
    return Unknowns(dv, -impulse)


def _end(share: float, system: AnySystem, state: State, a: Velocity, dt: Any) -> tuple[State, State]:
    """Return the point at which forces are evaluated, and the end of the step."""
    v = state.v + dt * a
    mean = state.v + share * dt * a
    rate = v if share == 1.0 else mean
    at = State(state.t + share * dt, system.retract(state.q, share * dt * rate), mean)
    return at, State(state.t + dt, system.retract(state.q, dt * rate), v)


def _residual(share: float, x: Unknowns, args: Any) -> Unknowns:
    system, state, u, dt = args
    a, lam = x.dv / dt, x.impulse / dt
    at, end = _end(share, system, state, a, dt)
    position = system.constraint(end.t, end.q) / (share * dt**2)
    velocity = system.velocity_constraint(at.t, at.q, at.v) / (share * dt)
    rows = hard_or_soft(system, at, a, lam, jnp.concatenate([position, velocity]))
    return Unknowns(dt * dynamic_rows(system, at, a, lam, u), dt * rows)


def _backward_euler(x: Unknowns, args: Any) -> Unknowns:
    return _residual(1.0, x, args)


def _midpoint(x: Unknowns, args: Any) -> Unknowns:
    return _residual(0.5, x, args)


def _step(
    method: Any, share: float, residual: Any, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
) -> Any:
    state, dt = point.state, jnp.asarray(dt, point.q.dtype)
    at = point.linearization or linearize(system, state, method.solver)
    a, lam = dynamics_at_start(method, system, state, at, u)
    guess, args = Unknowns(dt * a, dt * lam), (system, state, u, dt)
    x, change = method.newton.root(residual, guess, args, saddle_point_corrections(at))
    _, new = _end(share, system, state, x.dv / dt, dt)
    status = convergence(change, method.newton.tolerance, new.q, 1.0 / (share * dt))
    info = closed_step_info(system, new, a, lam, method.newton.iterations, status)
    return Point(new, stage=point.linearization), memory, info


@pytree
class BackwardEuler(PointMethod):
    """Backward Euler with g(t1, q1) = 0 and w(t1, q1, v1) = 0. Order 1.

    The equations are M(q1) (v1 - v0) / h = f(t1, q1, v1) + J(q1)^T lam, q1 = q0 (+) h v1. The method damps
    all modes that are faster than the step.

    Attributes:
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and
            projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; the corrections update h a
            and h lam.
    """

    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=8)

    @property
    def position_share(self) -> float:
        """The share of h^2 a in the displacement of a step: 1; positions move with the new velocity."""
        return 1.0

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_newton(self.newton)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt."""
        return _step(self, 1.0, _backward_euler, system, point, memory, u, dt)


@pytree
class ImplicitMidpoint(PointMethod):
    """Implicit midpoint rule with g(t1, q1) = 0 at the end of the step.

    The method has order 2, is symmetric and has no numerical damping.

    Attributes:
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and
            projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; the corrections update h a
            and h lam.
    """

    symmetric: ClassVar[bool] = True
    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=6)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_newton(self.newton)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt."""
        return _step(self, 0.5, _midpoint, system, point, memory, u, dt)
