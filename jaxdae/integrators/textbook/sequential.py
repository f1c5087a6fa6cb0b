"""Sequential approach: integrate the unconstrained differential equation for one step, then solve c = 0.

For a `KinematicSystem`, the unconstrained equation is x' = f(t, x, u), `Kinematic(projected=False)`, as in
the lecture notes. For a system with forces, it is the index-1 equation: with the multipliers eliminated, M a
= f + J^T lam is an ordinary differential equation. This equation contains the second derivatives of the
constraints and drifts off the constraints themselves. (Without multipliers, M a = f, root-finding for
positions would leave velocities that point more and more into the constraints.) Only c = 0 is solved. For
systems with forces, this method is therefore `Projected` without its velocity part, which also removes the
drift of the velocities.

*Questions of the notes.* Does root-finding undo the step, and is the effective step h or shorter? The
correction is perpendicular to the constraints, up to their curvature along it. It removes the infeasible
component, and disturbs the motion along the constraints only to second order in its own size. For the index-1
equation, it is as small as the local error, so the method keeps its order. For x' = f, it is as large as h
|f_perp|, and f does not contain the curvature of the motion caused by the constraints: the result is of first
order for any tableau, unless f itself is feasible. Measured orders with RK4: 4.0 for the double pendulum and
for a bead on a rotating wire; 0.9 to 1.0 for a point on a circle in a wind across it; 4.0 if the rate follows
the curve.

Velocity-level rows of a first-order system, such as a wheel without slip, cannot be enforced by root-finding.
The unconstrained equation satisfies them, and a correction as large as the step must not violate them. The
correction therefore moves along them, J_w xi = 0 with J_w at the end of the step. (A correction across them
reaches c = 0 by a slipping motion, for any step size.)

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.1; lecture notes, Carnegie
    Mellon University, 3.4.1.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.stabilization import PositionProjection, Projection
from jaxdae.integrators.equation_of_motion import bound, with_feasible_velocity
from jaxdae.integrators.integrator import Integrator, StepInfo, largest, step_info
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, of_points, switches_rows
from jaxdae.integrators.projected import Projected, projection_status
from jaxdae.systems.evaluation import WrappedEvaluation
from jaxdae.systems.linearization import Point
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.status import first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Residual, VelocityResidual


@pytree
class Sequential(PointWrapping):
    """The step of `integrator`, then root-finding for c(t, q) = 0; velocities do not change.

    For a first-order system, the correction moves along velocity-level rows. If these rows block every path
    to a root, the status is NOT_CONVERGED.

    Attributes:
        integrator: any integrator. The notes use `Kinematic(projected=False)` for x' = f. For systems with
            forces, an integrator such as `RungeKutta.rk4()` keeps its order.
        root: the root-finding method, a fixed number of Newton corrections with one factorization. The
            default is eight, because an unconstrained step may end far from the manifold, and each correction
            reduces the error by a factor of about h |f_perp|. Its metric defines the nearest root (Newton's
            step in the notes uses `Metric.EUCLIDEAN`, the default of a kinematic system).
    """

    integrator: Integrator
    root: PositionProjection = PositionProjection(iterations=8)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield isinstance(self.root, PositionProjection), "root must be a PositionProjection(...)"
        yield not switches_rows(self.integrator), NOT_SWITCHING

    @property
    def inner(self) -> Projected:
        """The inner integrator, with root-finding after its steps."""
        return Projected(self.integrator, Projection(self.root, velocity=None))

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt; NOT_CONVERGED if the violation exceeds the tolerance of `root`."""
        if system.first_order and system.sizes(point.q).nw:
            end, memory, info = self._along_rows(system, point, memory, u, dt)
        else:
            end, memory, info = self.inner.advance(system, point, memory, u, dt)
        if system.first_order:
            new, status = with_feasible_velocity(system, end.state, u, self.roles.solver)
            rates = largest(hard_rows(bound(system, new, u).evaluate(new.t, new.q, new.v)).velocity)
            end = Point(new, end.linearization)
            info = dataclasses.replace(
                info, velocity_violation=rates, status=first_failure(info.status, status)
            )
        return end, memory, info

    def _along_rows(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the wrapped step, corrected by a root along the velocity-level rows."""
        end, memory, info = of_points(self.integrator).advance(system, point, memory, u, dt)
        rows, root = (
            bound(system, end.state, u),
            dataclasses.replace(self.root, solver=self.root.solver or self.roles.solver),
        )
        with jax.named_scope("position_projection"):
            new = root.project(_Along(rows, end.state), end.state, point.state)
        after = step_info(rows, new, info.a, info.lam)
        status = first_failure(
            info.status, projection_status(system, Projection(root, velocity=None), after, new)
        )
        info = dataclasses.replace(
            info, violation=after.violation, iterations=info.iterations + root.iterations, status=status
        )
        return end.moved(system, new), memory, info


@pytree
class _AlongEvaluation(WrappedEvaluation):
    """The terms of `_Along`."""

    @property
    def position(self) -> Residual:
        """[g; J_w xi] (nc,)."""
        g, origin, system = self.inner.position, self.system.origin, self.system.system
        xi = system.difference(origin.q, self.q)
        return jnp.concatenate(
            [g, system.jacobian_operator(origin.t, origin.q, origin.v).times(xi)[g.shape[0] :]]
        )

    @property
    def opening(self) -> Residual:
        return self.position

    @property
    def velocity_constraint(self) -> VelocityResidual:
        """An empty array (0,)."""
        return jnp.zeros((0,), self.q.dtype)


@pytree
class _Along(Wrapper):
    """A system with its velocity-level rows turned into position-level rows.

    These rows are J_w xi = 0 for q = origin (+) xi, with J_w at the origin.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _AlongEvaluation
    system: AnySystem
    origin: State
