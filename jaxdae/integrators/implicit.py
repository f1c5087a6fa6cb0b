"""Implicit methods with constraints on positions: backward Euler and the implicit midpoint rule.

Both solve for the mean accelerations a of the step and the multipliers lam at one point of it, at which the forces are taken,

    M(q*) a = f(t*, q*, v*) + J(q*)^T lam,        v1 = v0 + h a,        q1 = q0 (+) h v_q,

with the constraints required where the step ends: position-level rows at q1, whatever the drift before was, so there is none. Backward
Euler (the lecture's: the function is evaluated at x_{i+1}) has * = 1 and v_q = v1; the midpoint rule has * at the middle, v* = v_q =
(v0 + v1) / 2, and velocity-level rows at the middle.

The rows are divided by the power of h with which a moves them, and by the share s that * has of the step, 1 or 1/2: g / (s h^2) has the
derivative J with respect to a. Newton's matrix is then that of the saddle point up to terms in h, however short the step,

    [M + s h D + s^2 h^2 K, -J^T; J, C],        D = -df/dv,  K = d(M a - f - J^T lam)/dq;

`jaxdae.newton` says how it is inverted.

Velocities of position-level rows are not required to be consistent. Those of backward Euler are of first order like all else; those of the
midpoint rule alternate from step to step by O(h^2): wrap it in `Projected(..., Projection(position=None))` where they matter.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import StepInfo, closed_step_info, convergence, dynamics_at_start, input_at
from jaxdae.integrators.method import PointMethod
from jaxdae.linearization import Linearization, Point, linearize
from jaxdae.newton import Corrections, DenseNewton, NewtonMethod, is_newton
from jaxdae.operators import AutodiffRows
from jaxdae.system import AnySystem, State, applied_force
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class Unknowns:
    """What Newton's iteration solves for: h a (nv,) and h lam (nc,), the changes of velocities and the impulses of the step.

    Of first-order systems h x' and h lam.

    Their last bits are those of velocities and momenta. Those of a and lam themselves would be 1/h times as large: positions of size 1 that
    are rounded leave g / h^2 with errors of eps / h^2, and an iteration for a could not tell them from its own.
    """

    dv: Leaf
    impulse: Leaf


def dynamic_rows(system: AnySystem, at: State, a: Velocity, lam: Rows, u: Any) -> Velocity:
    """Returns M a - f - J^T lam (nv,) at a state."""
    force = applied_force(system, at.t, at.q, at.v, input_at(u, at, system))
    return system.mass_operator(at.q).times(a) - force - AutodiffRows(system, at).transpose_times(lam)


def hard_or_soft(system: AnySystem, at: State, a: Velocity, lam: Rows, rows: Rows) -> Rows:
    """Returns the rows (nc,), in those with compliance J a + gamma + C lam instead."""
    compliance = system.compliance(at.t, at.q)
    if compliance is None:
        return rows
    soft = AutodiffRows(system, at).times(a) + system.constraint_bias(at.t, at.q, at.v) + compliance * lam
    return jnp.where(compliance > 0.0, soft, rows)


def saddle_point_corrections(at: Linearization) -> Corrections:
    """Returns the corrections of a method whose Newton matrix is near the saddle point at the start of the step."""
    return Corrections(_velocities, lambda: at.factors, _correction, _transposed_correction)


def _velocities(x: Unknowns, args: Any) -> Any:
    return x.dv


def _correction(rhs: Unknowns, factors: Any) -> Unknowns:
    return Unknowns(*factors.solve(rhs.dv, rhs.impulse))


def _transposed_correction(rhs: Unknowns, factors: Any) -> Unknowns:
    # The transpose of [M -J^T; J C] differs from it by the signs of the second row and of the second column.
    dv, impulse = factors.solve(rhs.dv, -rhs.impulse)
    return Unknowns(dv, -impulse)


def _end(share: float, system: AnySystem, state: State, a: Velocity, dt: Any) -> tuple[State, State]:
    """Returns the point where forces are taken, and the end of the step."""
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


def _step(method: Any, share: float, residual: Any, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> Any:
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
    """Backward Euler: M(q1) (v1 - v0) / h = f(t1, q1, v1) + J(q1)^T lam, q1 = q0 (+) h v1, g(t1, q1) = 0, w(t1, q1, v1) = 0. Order 1.

    Damps everything that is faster than the step.

    Attributes:
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; corrections are those of h a and h lam.
    """

    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=8)

    @property
    def position_share(self) -> float:
        """The share of h^2 a in the displacement of a step: 1, positions move with the new velocity."""
        return 1.0

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield is_newton(self.newton)

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt."""
        return _step(self, 1.0, _backward_euler, system, point, memory, u, dt)


@pytree
class ImplicitMidpoint(PointMethod):
    """The implicit midpoint rule with g(t1, q1) = 0 at the end of the step. Order 2, symmetric; no numerical damping.

    Attributes:
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; corrections are those of h a and h lam.
    """

    symmetric: ClassVar[bool] = True
    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=6)

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield is_newton(self.newton)

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt."""
        return _step(self, 0.5, _midpoint, system, point, memory, u, dt)
