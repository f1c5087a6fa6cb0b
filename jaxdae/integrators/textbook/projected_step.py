"""Projection approach: remove the component of a step that violates the constraints to first order.

A step dx has a feasible and an infeasible component; a feasible step satisfies c_x dx = 0. The lecture notes
project dx onto the tangent plane:

    dx_parallel = (I - J^T (J J^T)^-1 J) dx.

For rows that depend on time, J dx = -h b, b = [dg/dt; w(t, q, 0)], to first order: the mean velocity dx / h
of the step must satisfy the velocity constraints [g'; w] = 0. For a system with forces, the velocities are
projected in the same way, onto J dv = -h gamma. In a metric W, both are saddle-point problems with W in place
of M. For curved coordinates, the step is xi = difference(q0, q1).

*Accuracy.* The tangent planes are those at the start of the step (`point` = 0, as in the notes), and a step
of length s in a tangent plane leaves the manifold by curvature s^2 / 2. Violations of O(h) therefore
accumulate, and a more accurate method falls to first order. This projection keeps a low-order method feasible
but does not preserve a high order.

At `point` = 1/2, chord and tangent plane are parallel to second order, and exactly parallel for quadratic
constraints, where c(x + dx) - c(x) = J(x + dx / 2) dx. The result is then of second order if the step itself
is feasible to that order, that is, around index-1 methods, or if x' = f is feasible.

A violation at the start remains: the method projects steps, not states.

Measured on the double pendulum over 0.5 s, with 256 steps of RK4: order 1.0 and |g| up to 2e-3 at `point` =
0, order 2.0 and 3e-9 at 1/2, order 4.0 and 5e-11 for RK4 alone.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.1; lecture notes, Carnegie
    Mellon University, 3.4.1.4.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxdae.base.dataclass import pytree, static
from jaxdae.dynamics.stabilization import Metric
from jaxdae.integrators.equation_of_motion import bound, with_feasible_velocity
from jaxdae.integrators.integrator import Integrator, StepInfo, step_info
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, switches_rows
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.linearization import Point, linearize_at
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.status import first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf


@pytree
class ProjectedStep(PointWrapping):
    """The step of `integrator` without its infeasible component.

    The order is 1; with `point` = 1/2 around an index-1 method it is 2. Velocity-level feedback of the
    integrator (`Baumgarte`) is also an infeasible component, and is removed.

    Attributes:
        integrator: any integrator; the notes use `Kinematic(projected=False)` for x' = f.
        point: position of the tangent planes as a fraction of the step: 0 at its start (as in the notes), 1/2
            in its middle.
        metric: W, see `Metric`; the notes use `Metric.EUCLIDEAN`, the default of a kinematic system.
        solver: a saddle-point solver; None for the solver of the integrator, else the default solver of the
            system.
    """

    integrator: Integrator
    point: Leaf = 0.0
    metric: Metric = static(one_of=Metric, default=Metric.MASS)
    solver: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (self.point >= 0) & (self.point <= 1), "point must lie between 0 and 1"
        yield not switches_rows(self.integrator), NOT_SWITCHING

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; one factorization and two solves in addition to the wrapped step."""
        end, memory, inner = self.inner.advance(system, point, memory, u, dt)
        state, inside = point.state, self.roles.solver
        is_kinematic = system.first_order
        xi, dv = system.difference(state.q, end.q), end.v - state.v
        # A step of a kinematic system does not depend on its initial v. Linearize its rows at the mean
        # velocity.
        v = xi / dt if is_kinematic else state.v + self.point * dv
        at = State(state.t + self.point * dt, system.retract(state.q, self.point * xi), v)
        with jax.named_scope("projected_step"):
            rows = hard_rows(bound(system, at, u).evaluate(at.t, at.q, at.v))
            weight = None if self.metric is Metric.MASS else rows.mass.identity()
            here = linearize_at(rows, self.solver or inside, weight=weight)

            def correction(excess: Any) -> Any:
                return solve(here.factors, here.mass, here.jacobian, here.compliance, None, -excess)[0]

            xi = xi + correction(dt * rows.with_velocities(xi / dt).velocity)
            if not is_kinematic:
                dv = dv + correction(here.jacobian.times(dv) + dt * rows.bias)
        new = State(end.t, system.retract(state.q, xi), state.v + dv)
        new, status = with_feasible_velocity(system, new, u, inside)
        info = step_info(
            bound(system, new, u), new, inner.a, inner.lam, status=first_failure(inner.status, status)
        )
        # The factorization at the end of the wrapped step belongs to a different state.
        return end.moved(system, new), memory, dataclasses.replace(info, iterations=inner.iterations)
