"""Implicit one-stage methods for first-order systems: backward Euler and the midpoint rule.

For x' = rate(t, x, u) with constraints, both methods solve for the step xi = h x' and for h lam. They
evaluate the rate and the constraint gradients at one point x*, after a share s of the step: s = 1 for
backward Euler, 1/2 for the midpoint rule.

    W(x*) (xi - h rate(t*, x*, u)) = J(x*)^T h lam,        x* = x0 (+) s xi,  t* = t0 + s h,
    c(t1, x1) = 0,   h w(t*, x*, xi / h) = 0,              x1 = x0 (+) xi.

Position-level rows hold at the end of the step, to the accuracy of Newton's iteration. Velocity-level rows
hold at x* for the mean velocity. Newton's matrix is [W + s h K, -J^T; J, C] with K = -d(W rate)/dx, up to
terms of order h from the curvature of the rows; see `jaxdae.linalg.newton` for its inverse.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.integrators.equation_of_motion import bound, with_feasible_velocity
from jaxdae.integrators.implicit import Unknowns, saddle_point_corrections
from jaxdae.integrators.integrator import StepInfo, convergence, input_at, step_info
from jaxdae.integrators.method import Method
from jaxdae.linalg.newton import DenseNewton, NewtonMethod, is_newton
from jaxdae.matrices import AutodiffRows
from jaxdae.systems.kinematic_system import check_kinematic, feasible_velocity, step_status
from jaxdae.systems.linearization import linearize
from jaxdae.systems.status import first_failure
from jaxdae.systems.system import AnySystem, State, velocity_residual, wanted_rate
from jaxdae.typing import Leaf


def _residual(share: float, x: Unknowns, args: Any) -> Unknowns:
    system, state, u, dt = args
    xi, impulse = x.dv, x.impulse
    at = State(state.t + share * dt, system.retract(state.q, share * xi), xi / dt)
    given = input_at(u, State(at.t, at.q, state.v), system)
    system = system.at_input(given)
    missing = system.mass_operator(at.q).times(xi - dt * wanted_rate(system, at.t, at.q, given))
    position = system.constraint(state.t + dt, system.retract(state.q, xi))
    rows = jnp.concatenate([position, dt * system.velocity_constraint(at.t, at.q, at.v)])
    compliance = system.compliance(at.t, at.q)
    if compliance is not None:
        rows = jnp.where(compliance > 0.0, dt * velocity_residual(system, at) + compliance * impulse, rows)
    return Unknowns(missing - AutodiffRows(system, at).transpose_times(impulse), rows)


@pytree
class KinematicImplicit(Method):
    """An implicit method for a `KinematicSystem`.

    Create it with `KinematicImplicit.backward_euler()`, order 1, or `KinematicImplicit.midpoint()`, order 2
    and symmetric. Backward Euler damps all modes that are faster than the step. The midpoint rule preserves
    them with alternating sign.

    A step depends only on t and q at its start. The returned v, `lam`, `a`, the status and the arguments of a
    feedback law are the same as for `Kinematic`, with two exceptions: the status is NOT_CONVERGED if Newton's
    iteration misses its tolerance, and it is never UNSTABLE.

    Attributes:
        share: position in the step at which the rate is evaluated, 1 for backward Euler and 1/2 for the
            midpoint rule (static).
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many coordinates; the corrections update h
            x' and h lam.
        solver: a saddle-point solver for the velocities at both ends of the step and for the corrections of
            `SaddlePointNewton`.
    """

    share: float = static(default=1.0)
    newton: NewtonMethod = DenseNewton(iterations=8)
    solver: Leaf = None

    @classmethod
    def backward_euler(cls, **kwargs: Any) -> KinematicImplicit:
        """Return backward Euler: order 1."""
        return cls(share=1.0, **kwargs)

    @classmethod
    def midpoint(cls, **kwargs: Any) -> KinematicImplicit:
        """Return the implicit midpoint rule: order 2."""
        return cls(share=0.5, **kwargs)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield 0.5 <= self.share <= 1.0, "share must lie between 1/2, the midpoint rule, and 1, backward Euler"
        yield is_newton(self.newton)

    def init(self, system: AnySystem, state: State) -> tuple[()]:
        """Return (): the method has no memory."""
        check_kinematic(system)
        return ()

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt."""
        check_kinematic(system)
        dt = jnp.asarray(dt, state.q.dtype)
        given = input_at(u, state, system)
        start, lam, status = feasible_velocity(system, state, given, self.solver)
        at = linearize(system, State(state.t, state.q, start), self.solver)
        residual, guess, args = (
            partial(_residual, self.share),
            Unknowns(dt * start, dt * lam),
            (system, state, u, dt),
        )
        x, change = self.newton.root(residual, guess, args, saddle_point_corrections(at))
        end = State(state.t + dt, system.retract(state.q, x.dv), state.v)
        new, ended = with_feasible_velocity(system, end, u, self.solver)
        passed = step_status(system, state, new, input_at(u, new, system), self.solver)
        status = first_failure(
            status, ended, passed, convergence(change, self.newton.tolerance, state.q, 1.0)
        )
        return (
            new,
            memory,
            step_info(bound(system, new, u), new, (new.v - start) / dt, lam, self.newton.iterations, status),
        )
