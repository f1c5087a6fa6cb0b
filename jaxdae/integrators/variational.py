"""Variational integrators: discrete Euler-Lagrange equations with constraints, forces and nonholonomic rows.

A discrete Lagrangian Ld(q0, q1) approximates the integral of L = T - V over a step and thereby defines a
discrete action. Stationarity of this action (D1, D2: derivatives with respect to the first and the second
argument) gives

    D2 Ld(q0, q1) + D1 Ld(q1, q2) + F + J(q1)^T lam = 0,        g(t2, q2) = 0.

With the momentum at q1 inserted between the two terms (the discrete Legendre transforms), this is a one-step
method for (q, p), p = M v, which starts from velocities and returns velocities:

    p0 = -D1 Ld(q0, q1) - F^- - J(q0)^T Lam0,    g(t1, q1) = 0                          determine q1 and Lam0,
    p1 =  D2 Ld(q0, q1) + F^+ + J(q1)^T Lam1,    J(q1) M(q1)^-1 p1 + dg/dt = 0          determine p1 and Lam1.

The next step's Lam0 would compensate for Lam1: without the constraint in the second line (the SHAKE form),
the positions are the same and only the velocities leave the manifold. The two discrete Lagrangians in this
module evaluate T and V at the mean velocity w = (q1 - q0) / h,

    midpoint:       Ld = h L((q0 + q1) / 2, w),
    trapezoidal:    Ld = h/2 L(q0, w) + h/2 L(q1, w).

The code does not differentiate V or T. A system provides M and f, the force in the equation for the
*accelerations*, f = Q + dT/dq - dV/dq - (dM/dt) v. The momentum equation contains Q + dL/dq = f + (dM/dt) v
=: F, with dM/dt v the derivative of M(q) v along the motion. Hence

    midpoint:       -D1 Ld - F^- = M(qm) w - h/2 F(qm, w),
                     D2 Ld + F^+ = M(qm) w + h/2 F(qm, w),
    trapezoidal:    -D1 Ld - F^- = (M(q0) + M(q1)) w / 2 - h/2 F(q0, w),
                     D2 Ld + F^+ = (M(q0) + M(q1)) w / 2 + h/2 F(q1, w).

For constant M and forces that depend only on positions, the trapezoidal method is RATTLE (and SHAKE). Both
methods are symmetric, hence of order two. If the forces have a potential, they are symplectic on the
constraint manifold: the energy error oscillates without drift, and the momenta of symmetries are conserved
exactly.

*Velocity-level rows* follow the discrete Lagrange-d'Alembert principle: A(q0)^T Lam0 in the first line, the
rows at the midpoint (or their mean over both ends) in place of g, and the rows at q1 with p1 in the second
line. The method remains symmetric. Rows that are not affine in v reduce the order to one: A then depends on
v, and the second line is solved for their linearization at w. If it leaves the rows open, the status is
NOT_CONVERGED.

*Soft rows* (with compliance) are evaluated at the start and at the mean velocity, which is of order one.
Inactive rows have no effect.

*Curved coordinates.* Positions move by `retract`, and w is the constant velocity in q1 = q0 (+) h w. The
method remains symmetric and of order two. It is symplectic in coordinates with q' = v.

References:
    J. E. Marsden, M. West, "Discrete mechanics and variational integrators", Acta Numerica 10 (2001),
    sections 1.5, 3.2 and 3.5. H. C. Andersen, "Rattle: a velocity version of the Shake algorithm", J. Comput.
    Phys. 52 (1983). J. Cortes, S. Martinez, "Non-holonomic integrators", Nonlinearity 14 (2001). E. Hairer,
    C. Lubich, G. Wanner, "Geometric Numerical Integration", VII.1.4.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import not_negative, offers
from jaxdae.integrators.integrator import (
    StepInfo,
    closed_step_info,
    convergence,
    dynamics_at_start,
    input_at,
    with_closed_velocities,
)
from jaxdae.integrators.method import PointMethod
from jaxdae.linalg.newton import Corrections, DenseNewton, NewtonMethod, is_newton, simplified_newton
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.linearization import Point, linearize, linearize_at
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf, Rows, Velocity


class DiscreteLagrangian(Protocol):
    """A symmetric discrete Lagrangian with its discrete forces and its discrete velocity-level rows."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return -D1 Ld - F^- (nv,), the momentum at the start, for q1 = q0 (+) xi."""
        ...

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return D2 Ld + F^+ (nv,), the momentum at the end."""
        ...

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Return the discrete velocity-level rows (nw,)."""
        ...


def _momentum(system: AnySystem, q: Any, v: Any) -> Any:
    return system.mass_operator(q).times(v)


def _moved(system: AnySystem, state: State, xi: Any, share: float, dt: Any) -> State:
    """Return the state after a share of the step, with mean velocities."""
    return State(state.t + share * dt, system.retract(state.q, share * xi), xi / dt)


def _lagrangian_force(system: AnySystem, at: State, u: Any) -> Any:
    """Return F = f + (dM/dt) v."""
    along = jax.jvp(
        lambda s: _momentum(system, system.retract(at.q, s * at.v), at.v),
        (jnp.zeros_like(at.t),),
        (jnp.ones_like(at.t),),
    )[1]
    return system.evaluate(at.t, at.q, at.v).force(input_at(u, at, system)) + along


@pytree
class MidpointLagrangian:
    """Ld = h L((q0 + q1) / 2, (q1 - q0) / h): implicit, stable for stiff potentials."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return M(qm) w - h/2 F(qm, w)."""
        middle = _moved(system, state, xi, 0.5, dt)
        return _momentum(system, middle.q, middle.v) - 0.5 * dt * _lagrangian_force(system, middle, u)

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return M(qm) w + h/2 F(qm, w)."""
        middle = _moved(system, state, xi, 0.5, dt)
        return _momentum(system, middle.q, middle.v) + 0.5 * dt * _lagrangian_force(system, middle, u)

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Return the velocity-level rows at the midpoint."""
        middle = _moved(system, state, xi, 0.5, dt)
        return system.velocity_constraint(middle.t, middle.q, middle.v)


@pytree
class TrapezoidalLagrangian:
    """Ld = h/2 (L(q0, w) + L(q1, w)), w = (q1 - q0) / h: forces at the two ends only."""

    def before(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return (M(q0) + M(q1)) w / 2 - h/2 F(q0, w)."""
        start = _moved(system, state, xi, 0.0, dt)
        return self._mean_momentum(system, state, xi, dt) - 0.5 * dt * _lagrangian_force(system, start, u)

    def after(self, system: AnySystem, state: State, xi: Velocity, u: Any, dt: Any) -> Velocity:
        """Return (M(q0) + M(q1)) w / 2 + h/2 F(q1, w)."""
        end = _moved(system, state, xi, 1.0, dt)
        return self._mean_momentum(system, state, xi, dt) + 0.5 * dt * _lagrangian_force(system, end, u)

    def velocity_rows(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Rows:
        """Return the mean of the velocity-level rows at both ends."""
        start, end = (_moved(system, state, xi, share, dt) for share in (0.0, 1.0))
        return 0.5 * (
            system.velocity_constraint(start.t, start.q, start.v)
            + system.velocity_constraint(end.t, end.q, end.v)
        )

    def _mean_momentum(self, system: AnySystem, state: State, xi: Velocity, dt: Any) -> Velocity:
        start, end = (_moved(system, state, xi, share, dt) for share in (0.0, 1.0))
        return 0.5 * (_momentum(system, start.q, start.v) + _momentum(system, end.q, end.v))


def _residual(x: Any, args: Any) -> tuple[Any, Any]:
    """Return h (-D1 Ld - F^- - p0) + J0^T mu and [g; h w], for x = (xi, mu) with mu = -h Lam0.

    Both rows are scaled so that the derivative is near the symmetric matrix [M J^T; J -C] at the start. Soft
    and inactive rows are h^2 (J a + gamma) + C h^2 lam = 0, divided by 2, with a the acceleration of the
    first half step and h^2 lam = -2 mu.
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
    """Return the solution of [M J^T; J -C] [dxi; dmu] = rhs."""
    dxi, lam = factors.solve(*rhs)
    return dxi, -lam


def _of_start(rhs: Any, args: Any) -> tuple[Any, Any]:
    return _correction(rhs, args[-1])


def _displacements(x: Any, args: Any) -> Any:
    return x[0]


def _update(x: Any, args: Any) -> tuple[Any, Any]:
    (xi, mu), (dxi, dmu) = x, _of_start(_residual(x, args), args)
    return xi - dxi, mu - dmu


def _start(
    method: Any, system: AnySystem, point: Point, u: Any, dt: Any
) -> tuple[Any, tuple[Velocity, Rows], Any, Any]:
    """Return the linearization and (a, lam) at the start, arguments of `_residual`, and a Taylor guess."""
    state = point.state
    at = point.linearization or linearize(system, state, method.solver)
    a, lam = dynamics_at_start(method, system, state, at, u)
    bias = None if at.compliance is None else system.constraint_bias(state.t, state.q, state.v)
    args = (method.lagrangian, system, state, u, dt, at.jacobian, at.compliance, bias)
    return at, (a, lam), args, (dt * state.v + 0.5 * dt**2 * a, -0.5 * dt**2 * lam)


def _finish(
    method: Any, system: AnySystem, state: State, u: Any, dt: Any, start: Any, x: Any, report: Any
) -> tuple[Point, StepInfo]:
    """Return the end of the step with consistent velocities.

    The SHAKE form returns the velocities without this correction.
    """
    (xi, _), (a, lam) = x, start
    t, q = state.t + dt, system.retract(state.q, xi)
    mean = State(t, q, xi / dt)
    end = system.evaluate(mean.t, mean.q, mean.v)
    at = linearize_at(end, method.solver)
    # Solve for the change from the mean velocities: the rounding error of M^-1 M v has a constant direction
    # and would accumulate over the steps.
    momentum = method.lagrangian.after(system, state, xi, u, dt) - _momentum(system, q, mean.v)
    if method.velocity_level:
        # A single projection requires rows that are affine in v. Their linearization is exact at any
        # velocity.
        target: Any = -end.velocity
        if at.compliance is not None:
            target = jnp.where(at.compliance > 0.0, -0.5 * dt * end.bias, target)
        change, _ = solve(at.factors, at.mass, at.jacobian, at.compliance, momentum, target)
    else:
        change = at.mass.solve(momentum)
    new = State(t, q, mean.v + change)
    info = closed_step_info(system, new, a, lam, *report)
    return Point(new, at), with_closed_velocities(system, new, info) if method.velocity_level else info


@pytree
class Rattle(PointMethod):
    """RATTLE: the trapezoidal discrete Lagrangian with one factorization per step.

    The method has order 2 and is symmetric and symplectic. The factorization at the start of the step is the
    one used for the velocities at the end of the previous step. At small steps, each correction gains about
    two digits.

    Attributes:
        solver: a saddle-point solver; the method allows dependent rows if the solver does.
        iterations: number of position corrections, at least 1.
        velocity_level: whether the step projects its final velocities onto the constraints; False is the
            SHAKE form, with the same positions.
        tolerance: the largest accepted last correction, relative to 1 + |xi|; a larger one sets
            NOT_CONVERGED; None for the limit of the precision, eps^0.6 + 16 eps (1 + |q|).

    References:
        H. C. Andersen, J. Comput. Phys. 52 (1983); J.-P. Ryckaert, G. Ciccotti, H. J. C. Berendsen, J.
        Comput. Phys. 23 (1977).
    """

    symmetric: ClassVar[bool] = True
    solver: Leaf = None
    iterations: int = static(default=8)
    velocity_level: bool = static(one_of=bool, default=True)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    @property
    def lagrangian(self) -> TrapezoidalLagrangian:
        """The discrete Lagrangian."""
        return TrapezoidalLagrangian()

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start with its linearization."""
        return Point(state, linearize(system, state, self.solver))

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt.

        The step takes one factorization. If the force depends on velocities, it also takes one evaluation of
        the force per correction.
        """
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)
        at, start, args, guess = _start(self, system, point, u, dt)
        args = (*args, jax.lax.stop_gradient(at.factors))
        x, change = simplified_newton(
            _update, _residual, _of_start, self.iterations, guess, args, moving=_displacements
        )
        report = self.iterations, convergence(change, self.tolerance, state.q, 1.0)
        new, info = _finish(self, system, state, u, dt, start, x, report)
        return new, memory, info


@pytree
class DiscreteEulerLagrange(PointMethod):
    """The discrete Euler-Lagrange equations of any discrete Lagrangian, solved by Newton's method.

    The method has order 2 and is symmetric. By default, forward mode computes the derivative of both rows,
    and the complete KKT matrix is factorized. Forces may therefore be stiff and depend on velocities. For
    other forces, `SaddlePointNewton` and `Rattle`, which uses its corrections, cost less.

    Attributes:
        lagrangian: `MidpointLagrangian()` or `TrapezoidalLagrangian()`, or another `DiscreteLagrangian`.
        solver: a saddle-point solver for velocities and first guesses.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; the corrections update the
            positions.
        velocity_level: whether the step projects its final velocities onto the constraints.

    References:
        J. E. Marsden, M. West, "Discrete mechanics and variational integrators", Acta Numerica 10 (2001).
    """

    symmetric: ClassVar[bool] = True
    lagrangian: Any = MidpointLagrangian()
    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=6)
    velocity_level: bool = static(one_of=bool, default=True)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (
            offers(self.lagrangian, "before", "after"),
            "lagrangian must be MidpointLagrangian() or TrapezoidalLagrangian()",
        )
        yield is_newton(self.newton)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start with its linearization."""
        return Point(state, linearize(system, state, self.solver))

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)
        at, start, args, guess = _start(self, system, point, u, dt)
        corrections = Corrections(_displacements, lambda: at.factors, _correction, _correction)
        x, change = self.newton.root(_residual, guess, args, corrections)
        report = self.newton.iterations, convergence(change, self.newton.tolerance, state.q, 1.0)
        new, info = _finish(self, system, state, u, dt, start, x, report)
        return new, memory, info
