"""The projection approach: take the component that violates the constraints to first order out of a step.

A step dx has a feasible and an infeasible component, and c_x dx = 0 is what feasible means. In the notes' words, project dx into the
tangent plane:

    dx_parallel = (I - J^T (J J^T)^-1 J) dx.

Rows that move by themselves ask for J dx = -h b, b = [dg/dt; w(t, q, 0)], in first order: the step's mean velocity dx / h is to satisfy
the velocity constraints [g'; w] = 0. Of a system with forces the same is done to the velocities, where J dv = -h gamma is feasible. In a
metric W both are saddle-point problems with W in place of M; where coordinates are curved, the step is xi = difference(q0, q1).

*What it costs.* Tangent planes are those at the start of the step (`point` = 0, the notes'), and a step of length s in a tangent plane
leaves the manifold by curvature s^2 / 2. So violations of O(h) build up, and a method that knew better is bent back to first order: this
keeps a crude method feasible, it does not keep an accurate one accurate.

At `point` = 1/2 chord and tangent plane are parallel to second order; exactly for quadratic constraints, where
c(x + dx) - c(x) = J(x + dx / 2) dx. The result is of second order then, as long as the step by itself is feasible to that order: around
index-1 methods, or where x' = f is feasible.

What is violated at the start stays violated: steps are projected, not states.

Measured on the double pendulum over 0.5 s, in 256 steps of RK4: order 1.0 and |g| up to 2e-3 at `point` = 0, order 2.0 and 3e-9 at 1/2,
order 4.0 and 5e-11 of RK4 alone.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.1; lecture notes, Carnegie Mellon University, 3.4.1.4.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxdae._pytree import pytree, static
from jaxdae.integrators.interface import Integrator, StepInfo, step_info
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, switches_rows
from jaxdae.integrators.motion import bound, with_feasible_velocity
from jaxdae.linearization import Point, linearize
from jaxdae.masks import hard_rows
from jaxdae.saddle_point.derivative import solve
from jaxdae.stabilization import Metric
from jaxdae.status import first_failure
from jaxdae.system import AnySystem, State, velocity_residual
from jaxdae.typing import Leaf


@pytree
class ProjectedStep(PointWrapping):
    """The step of `integrator` without its infeasible component. Order 1; with `point` = 1/2 around an index-1 method order 2.

    Velocity-level feedback of the integrator (`Baumgarte`) is an infeasible component too, and is taken out with the others.

    Attributes:
        integrator: any integrator; `Kinematic(projected=False)` is the notes' for x' = f.
        point: where in the step tangent planes are taken, as a fraction of it: 0 at its start, the notes', 1/2 in its middle.
        metric: W, see `Metric`; the notes' is `Metric.EUCLIDEAN`, which a kinematic system has by default.
        solver: a saddle-point solver; None for the solver of the integrator, else the default solver of the system.
    """

    integrator: Integrator
    point: Leaf = 0.0
    metric: Metric = static(one_of=Metric, default=Metric.MASS)
    solver: Leaf = None

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield (self.point >= 0) & (self.point <= 1), "point must lie between 0 and 1"
        yield not switches_rows(self.integrator), NOT_SWITCHING

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt; beyond the wrapped step one factorization and two solves."""
        end, memory, inner = self.inner.advance(system, point, memory, u, dt)
        state, inside = point.state, self.roles.solver
        is_kinematic = system.first_order
        xi, dv = system.difference(state.q, end.q), end.v - state.v
        # A kinematic system's v is no part of where it starts; the mean velocity is where its rows are linearized.
        v = xi / dt if is_kinematic else state.v + self.point * dv
        at = State(state.t + self.point * dt, system.retract(state.q, self.point * xi), v)
        with jax.named_scope("projected_step"):
            rows = hard_rows(bound(system, at, u), at)
            weight = None if self.metric is Metric.MASS else rows.mass_operator(at.q).identity()
            here = linearize(rows, at, self.solver or inside, weight=weight)

            def correction(excess: Any) -> Any:
                return solve(here.factors, here.mass, here.jacobian, here.compliance, None, -excess)[0]

            xi = xi + correction(dt * velocity_residual(rows, State(at.t, at.q, xi / dt)))
            if not is_kinematic:
                bias = rows.constraint_bias(at.t, at.q, at.v)
                dv = dv + correction(here.jacobian.times(dv) + dt * bias)
        new = State(end.t, system.retract(state.q, xi), state.v + dv)
        new, status = with_feasible_velocity(system, new, u, inside)
        info = step_info(bound(system, new, u), new, inner.a, inner.lam, status=first_failure(inner.status, status))
        # What was factorized at the end of the wrapped step is of another state.
        return end.moved(system, new), memory, dataclasses.replace(info, iterations=inner.iterations)
