"""Variational integrators: the discrete Euler-Lagrange equations with constraints, forces and nonholonomic rows.

A discrete Lagrangian Ld(q0, q1), an approximation of the integral of L = T - V over a step, stands for the action, and stationarity of the
discrete action (D1, D2: derivatives with respect to the first and the second argument) gives

    D2 Ld(q0, q1) + D1 Ld(q1, q2) + F + J(q1)^T lam = 0,        g(t2, q2) = 0.

Read with the momentum at q1 between its two terms (the discrete Legendre transforms) it is a one-step method for (q, p), p = M v, which
starts from velocities and gives velocities:

    p0 = -D1 Ld(q0, q1) - F^-  - J(q0)^T Lam0,        g(t1, q1) = 0                             determine q1 and Lam0,
    p1 =  D2 Ld(q0, q1) + F^+  + J(q1)^T Lam1,        J(q1) M(q1)^-1 p1 + dg/dt = 0             determine p1 and Lam1.

Lam1 is what the next step's Lam0 would make up for: without the second line's constraint (the SHAKE form) the positions are the same and
only the velocities leave the manifold. The two discrete Lagrangians here take T and V at the mean velocity w = (q1 - q0) / h,

    midpoint:       Ld = h L((q0 + q1) / 2, w),
    trapezoidal:    Ld = h/2 L(q0, w) + h/2 L(q1, w).

Neither V nor T is differentiated. A system gives M and f, the force of the *accelerations*, f = Q + dT/dq - dV/dq - (dM/dt) v; what
stands in the momentum equation is Q + dL/dq = f + (dM/dt) v =: F, with dM/dt v the derivative of M(q) v along the motion. So

    midpoint:       -D1 Ld - F^- = M(qm) w - h/2 F(qm, w),                D2 Ld + F^+ = M(qm) w + h/2 F(qm, w),
    trapezoidal:    -D1 Ld - F^- = (M(q0) + M(q1)) w / 2 - h/2 F(q0, w),      D2 Ld + F^+ = (M(q0) + M(q1)) w / 2 + h/2 F(q1, w).

For constant M and forces of position alone the trapezoidal method is RATTLE (and SHAKE). Both are symmetric, hence of order two, and
symplectic on the constraint manifold where forces come from a potential: the energy error oscillates and does not drift; momenta of
symmetries are kept exactly.

*Velocity-level rows* follow the discrete Lagrange-d'Alembert principle: A(q0)^T Lam0 in the first line, the rows at the midpoint (or the
mean of those at both ends) in place of g, and at q1 with p1 in the second line. Again symmetric.

*Rows that give way* (compliance) are taken at the start and at the mean velocity, which is of order one. Rows that are switched off do
nothing.

*Coordinates that are not flat.* Positions move by `retract`, w is the constant velocity in q1 = q0 (+) h w, and everything above stays
symmetric and of order two. Symplectic it is in coordinates with q' = v.

References:
    J. E. Marsden, M. West, "Discrete mechanics and variational integrators", Acta Numerica 10 (2001), sections 1.5, 3.2 and 3.5.
    H. C. Andersen, "Rattle: a velocity version of the Shake algorithm", J. Comput. Phys. 52 (1983). J. Cortes, S. Martinez,
    "Non-holonomic integrators", Nonlinearity 14 (2001). E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", VII.1.4.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import StepInfo, closed_step_info, convergence, dynamics_at_start, input_at
from jaxdae.integrators.method import PointMethod
from jaxdae.linearization import Point, linearize
from jaxdae.newton import Corrections, DenseNewton, NewtonMethod, is_newton, simplified_newton
from jaxdae.requirements import not_negative, offers
from jaxdae.saddle_point.derivative import solve
from jaxdae.system import AnySystem, State, applied_force, velocity_residual
from jaxdae.typing import Leaf, Rows, Velocity


class DiscreteLagrangian(Protocol):
    """A symmetric discrete Lagrangian with its discrete forces and its discrete velocity-level rows."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns -D1 Ld - F^- (nv,), the momentum at the start, for q1 = q0 (+) xi."""
        ...

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns D2 Ld + F^+ (nv,), the momentum at the end."""
        ...

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Returns the discrete velocity-level rows (nw,)."""
        ...


def _momentum(system: AnySystem, q: Any, v: Any) -> Any:
    return system.mass_operator(q).times(v)


def _moved(system: AnySystem, state: State, xi: Any, share: float, dt: Any) -> State:
    """Returns the state with mean velocities after a share of the step."""
    return State(state.t + share * dt, system.retract(state.q, share * xi), xi / dt)


def _lagrangian_force(system: AnySystem, at: State, u: Any) -> Any:
    """Returns F = f + (dM/dt) v."""
    along = jax.jvp(lambda s: _momentum(system, system.retract(at.q, s * at.v), at.v), (jnp.zeros_like(at.t),), (jnp.ones_like(at.t),))[1]
    return applied_force(system, at.t, at.q, at.v, input_at(u, at, system)) + along


@pytree
class MidpointLagrangian:
    """Ld = h L((q0 + q1) / 2, (q1 - q0) / h): implicit, stable for stiff potentials."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns M(qm) w - h/2 F(qm, w)."""
        middle = _moved(system, state, xi, 0.5, dt)
        return _momentum(system, middle.q, middle.v) - 0.5 * dt * _lagrangian_force(system, middle, u)

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns M(qm) w + h/2 F(qm, w)."""
        middle = _moved(system, state, xi, 0.5, dt)
        return _momentum(system, middle.q, middle.v) + 0.5 * dt * _lagrangian_force(system, middle, u)

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Returns w at the midpoint."""
        middle = _moved(system, state, xi, 0.5, dt)
        return system.velocity_constraint(middle.t, middle.q, middle.v)


@pytree
class TrapezoidalLagrangian:
    """Ld = h/2 (L(q0, w) + L(q1, w)), w = (q1 - q0) / h: forces at the two ends only."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns (M(q0) + M(q1)) w / 2 - h/2 F(q0, w)."""
        start = _moved(system, state, xi, 0.0, dt)
        return self._mean_momentum(system, state, xi, dt) - 0.5 * dt * _lagrangian_force(system, start, u)

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Returns (M(q0) + M(q1)) w / 2 + h/2 F(q1, w)."""
        end = _moved(system, state, xi, 1.0, dt)
        return self._mean_momentum(system, state, xi, dt) + 0.5 * dt * _lagrangian_force(system, end, u)

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Returns the mean of w at both ends."""
        start, end = (_moved(system, state, xi, share, dt) for share in (0.0, 1.0))
        return 0.5 * (system.velocity_constraint(start.t, start.q, start.v) + system.velocity_constraint(end.t, end.q, end.v))

    def _mean_momentum(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Velocity:
        start, end = (_moved(system, state, xi, share, dt) for share in (0.0, 1.0))
        return 0.5 * (_momentum(system, start.q, start.v) + _momentum(system, end.q, end.v))


def _residual(x: Any, args: Any) -> tuple[Any, Any]:
    """Returns h (-D1 Ld - F^- - p0) + J0^T mu and [g; h w], for x = (xi, mu) with mu = -h Lam0.

    Both rows are scaled so that the derivative is near the symmetric matrix [M J^T; J -C] of the start. Soft rows, and rows that are
    switched off, read h^2 (J a + gamma) + C h^2 lam = 0 with a the acceleration of the first half step, and h^2 lam = -2 mu.
    """
    xi, mu = x
    lagrangian, system, state, u, dt, jacobian, compliance, bias, *_ = args
    momentum = _momentum(system, state.q, state.v)
    first = dt * (lagrangian.before(system, state, xi, u, dt) - momentum) + jacobian.transpose_times(mu)
    position = system.constraint(state.t + dt, system.retract(state.q, xi))
    second = jnp.concatenate([position, dt * lagrangian.velocity_rows(system, state, xi, dt)])
    if compliance is not None:
        soft = jacobian.times(xi - dt * state.v) + 0.5 * dt**2 * bias - compliance * mu
        second = jnp.where(compliance > 0.0, soft, second)
    return first, second


def _correction(rhs: Any, factors: Any) -> tuple[Any, Any]:
    """Returns the solution of [M J^T; J -C] [dxi; dmu] = rhs."""
    dxi, lam = factors.solve(*rhs)
    return dxi, -lam


def _of_start(rhs: Any, args: Any) -> tuple[Any, Any]:
    return _correction(rhs, args[-1])


def _displacements(x: Any, args: Any) -> Any:
    return x[0]


def _update(x: Any, args: Any) -> tuple[Any, Any]:
    (xi, mu), (dxi, dmu) = x, _of_start(_residual(x, args), args)
    return xi - dxi, mu - dmu


def _start(method: Any, system: AnySystem, point: Point, u: Any, dt: Any) -> tuple[Any, tuple[Velocity, Rows], Any, Any]:
    """Returns the linearization and the dynamics at the start, the arguments of `_residual`, and a guess from Taylor's expansion."""
    state = point.state
    at = point.linearization or linearize(system, state, method.solver)
    a, lam = dynamics_at_start(method, system, state, at, u)
    bias = None if at.compliance is None else system.constraint_bias(state.t, state.q, state.v)
    args = (method.lagrangian, system, state, u, dt, at.jacobian, at.compliance, bias)
    return at, (a, lam), args, (dt * state.v + 0.5 * dt**2 * a, -0.5 * dt**2 * lam)


def _finish(method: Any, system: AnySystem, state: State, u: Any, dt: Any, start: Any, x: Any, report: Any) -> tuple[Point, StepInfo]:
    """Returns the end of the step with consistent velocities (in the SHAKE form with those that there are)."""
    (xi, _), (a, lam) = x, start
    t, q = state.t + dt, system.retract(state.q, xi)
    mean = State(t, q, xi / dt)
    at = linearize(system, mean, method.solver)
    # For the change from the mean velocities: what rounding does to M^-1 M v, always in one direction, would add up over the steps.
    momentum = method.lagrangian.after(system, state, xi, u, dt) - _momentum(system, q, mean.v)
    if method.velocity_level:
        # Rows that are affine in v, which all are that one projection can satisfy, are linearized anywhere without error.
        target: Any = -velocity_residual(system, mean)
        if at.compliance is not None:
            target = jnp.where(at.compliance > 0.0, -0.5 * dt * system.constraint_bias(t, q, mean.v), target)
        change, _ = solve(at.factors, at.mass, at.jacobian, at.compliance, momentum, target)
    else:
        change = at.mass.solve(momentum)
    new = State(t, q, mean.v + change)
    return Point(new, at), closed_step_info(system, new, a, lam, *report)


@pytree
class Rattle(PointMethod):
    """RATTLE: the trapezoidal discrete Lagrangian, solved with one factorization a step. Order 2, symmetric, symplectic.

    The factorization at the start of the step is that of the velocities at the end of the step before. Corrections gain about two digits
    each at small steps.

    Attributes:
        solver: a saddle-point solver; with one that allows dependent rows the method does.
        iterations: corrections of the positions, at least 1.
        velocity_level: whether velocities are made consistent; False is the SHAKE form, with the same positions.
        tolerance: the last correction, relative to 1 + |xi|, above which the status is NOT_CONVERGED; None for what the precision
            can reach, eps^0.6 + 16 eps (1 + |q|).

    References:
        H. C. Andersen, J. Comput. Phys. 52 (1983); J.-P. Ryckaert, G. Ciccotti, H. J. C. Berendsen, J. Comput. Phys. 23 (1977).
    """

    symmetric: ClassVar[bool] = True
    solver: Leaf = None
    iterations: int = static(default=8)
    velocity_level: bool = static(one_of=bool, default=True)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    @property
    def lagrangian(self) -> TrapezoidalLagrangian:
        """The discrete Lagrangian."""
        return TrapezoidalLagrangian()

    def begin(self, system: AnySystem, state: State) -> Point:
        """Returns the start with its linearization."""
        return Point(state, linearize(system, state, self.solver))

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt; one factorization, and one evaluation of the force a correction where it depends on velocities."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)
        at, start, args, guess = _start(self, system, point, u, dt)
        args = (*args, jax.lax.stop_gradient(at.factors))
        x, change = simplified_newton(_update, _residual, _of_start, self.iterations, guess, args, moving=_displacements)
        report = self.iterations, convergence(change, self.tolerance, state.q, 1.0)
        new, info = _finish(self, system, state, u, dt, start, x, report)
        return new, memory, info


@pytree
class DiscreteEulerLagrange(PointMethod):
    """The discrete Euler-Lagrange equations of any discrete Lagrangian, by Newton's method on their KKT matrix. Order 2, symmetric.

    By default the derivative of both rows is computed by forward mode and factorized as it is, so that forces may be stiff and depend on
    velocities. `SaddlePointNewton` and `Rattle`, which has its corrections, are cheaper where they are not.

    Attributes:
        lagrangian: `MidpointLagrangian()` or `TrapezoidalLagrangian()`, or another `DiscreteLagrangian`.
        solver: a saddle-point solver for velocities and first guesses.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; corrections are those of the positions.
        velocity_level: whether velocities are made consistent.

    References:
        J. E. Marsden, M. West, "Discrete mechanics and variational integrators", Acta Numerica 10 (2001).
    """

    symmetric: ClassVar[bool] = True
    lagrangian: Any = MidpointLagrangian()
    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=6)
    velocity_level: bool = static(one_of=bool, default=True)

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield offers(self.lagrangian, "before", "after"), "lagrangian must be MidpointLagrangian() or TrapezoidalLagrangian()"
        yield is_newton(self.newton)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Returns the start with its linearization."""
        return Point(state, linearize(system, state, self.solver))

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)
        at, start, args, guess = _start(self, system, point, u, dt)
        corrections = Corrections(_displacements, lambda: at.factors, _correction, _correction)
        x, change = self.newton.root(_residual, guess, args, corrections)
        report = self.newton.iterations, convergence(change, self.newton.tolerance, state.q, 1.0)
        new, info = _finish(self, system, state, u, dt, start, x, report)
        return new, memory, info
