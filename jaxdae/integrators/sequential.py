"""The sequential approach: integrate the unconstrained differential equation for one step, then find a root of the constraints.

Of a `KinematicSystem` the unconstrained equation is x' = f(t, x, u), `Kinematic(projected=False)`, as in the notes. Of a system with forces
it is the index-1 equation: with the multipliers solved for and put in, M a = f + J^T lam is an ordinary differential equation, which knows
of the constraints by their second derivatives and drifts off the constraints themselves. (Without multipliers, M a = f, root-finding for
positions would leave velocities that point ever more into the constraints.) Only c = 0 is solved for, so for such systems this is
`Projected` without its velocity part, which removes the drift of the velocities as well.

The notes' doubts, answered. Did root-finding undo the step, was it one of h or of less? The correction is perpendicular to the
constraints, up to their curvature along it: it takes off what they forbid, and disturbs the motion along them in second order of its own
size only. Of the index-1 equation it is as small as the local error, and the order of the method stays. Of x' = f it is as large as
h |f_perp|, and f alone knows nothing of how the constraints bend the motion: the result is of first order, whatever the tableau, unless f
is feasible by itself. Measured, with RK4: order 4.0 on the double pendulum and on a bead on a turning wire, 0.9 to 1.0 of a point on a
circle in a wind across it, 4.0 where the rate follows the curve.

Rows at velocity level of a first-order system, a wheel that does not slip, have no root to be found: the unconstrained equation satisfies
them, and a correction as large as the step must not undo that. So it moves along them, J_w xi = 0 with J_w at the end of the step. (A
correction across them ends on c = 0 by a motion that slips, however small the steps are.)

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.1; lecture notes, Carnegie Mellon University, 3.4.1.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, StepInfo, largest, step_info
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, of_points, switches_rows
from jaxdae.integrators.motion import bound, with_feasible_velocity
from jaxdae.integrators.projected import Projected, projection_status
from jaxdae.linearization import Point
from jaxdae.masks import hard_rows
from jaxdae.stabilization import PositionProjection, Projection
from jaxdae.status import first_failure
from jaxdae.system import AnySystem, State, velocity_residual
from jaxdae.typing import Coordinates, Residual, Scalar, Velocity, VelocityResidual
from jaxdae.wrapper import Wrapper


@pytree
class Sequential(PointWrapping):
    """The step of `integrator`, then root-finding for c(t, q) = 0; velocities are left alone.

    Of a first-order system the root is found along rows at velocity level; where these leave no way to it, the status is NOT_CONVERGED.

    Attributes:
        integrator: any integrator. `Kinematic(projected=False)` is the notes' for x' = f; of systems with forces, one such as
            `RungeKutta.rk4()` keeps its order.
        root: the root-finding, a fixed number of Newton corrections with one factorization. Eight by default: an unconstrained step may
            end far off, and each correction gains a factor of about h |f_perp|. Its metric says which root is the nearest (the notes'
            Newton step is `Metric.EUCLIDEAN`, which a kinematic system has by default).
    """

    integrator: Integrator
    root: PositionProjection = PositionProjection(iterations=8)

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield isinstance(self.root, PositionProjection), "root must be a PositionProjection(...)"
        yield not switches_rows(self.integrator), NOT_SWITCHING

    @property
    def inner(self) -> Projected:
        """The integrator inside, with the root-finding after its steps."""
        return Projected(self.integrator, Projection(self.root, velocity=None))

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the point after dt; status NOT_CONVERGED where more than the tolerance of the root-finding is left."""
        if system.first_order and system.sizes(point.q).nw:
            end, memory, info = self._along_rows(system, point, memory, u, dt)
        else:
            end, memory, info = self.inner.advance(system, point, memory, u, dt)
        if system.first_order:
            new, status = with_feasible_velocity(system, end.state, u, self.roles.solver)
            rates = largest(velocity_residual(hard_rows(bound(system, new, u), new), new))
            end = Point(new, end.linearization)
            info = dataclasses.replace(info, velocity_violation=rates, status=first_failure(info.status, status))
        return end, memory, info

    def _along_rows(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns what the step by itself does, and the root that rows at velocity level leave."""
        end, memory, info = of_points(self.integrator).advance(system, point, memory, u, dt)
        rows, root = bound(system, end.state, u), dataclasses.replace(self.root, solver=self.root.solver or self.roles.solver)
        with jax.named_scope("position_projection"):
            new = root.project(_Along(rows, end.state), end.state, point.state)
        after = step_info(rows, new, info.a, info.lam)
        status = first_failure(info.status, projection_status(system, Projection(root, velocity=None), after, new))
        info = dataclasses.replace(info, violation=after.violation, iterations=info.iterations + root.iterations, status=status)
        return end.moved(system, new), memory, info


@pytree
class _Along(Wrapper):
    """A system whose rows at velocity level are rows of positions: J_w xi = 0 for q = origin (+) xi, with J_w at the origin."""

    system: AnySystem
    origin: State

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns [g; J_w xi] (nc,)."""
        g, at = self.system.constraint(t, q), self.origin
        xi = self.system.difference(at.q, q)
        return jnp.concatenate([g, self.system.jacobian_operator(at.t, at.q, at.v).times(xi)[g.shape[0] :]])

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the same."""
        return self.constraint(t, q)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns nothing (0,)."""
        return jnp.zeros((0,), v.dtype)
