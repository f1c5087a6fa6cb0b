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

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.1; lecture notes, Carnegie Mellon University, 3.4.1.3.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, StepInfo, largest
from jaxdae.integrators.kinematic import first_failure
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, switches_rows
from jaxdae.integrators.motion import bound, with_feasible_velocity
from jaxdae.integrators.projected import Projected
from jaxdae.linearization import Point
from jaxdae.masks import hard_rows
from jaxdae.stabilization import PositionProjection, Projection
from jaxdae.system import AnySystem, velocity_residual


@pytree
class Sequential(PointWrapping):
    """The step of `integrator`, then root-finding for c(t, q) = 0; velocities are left alone.

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
        end, memory, info = self.inner.advance(system, point, memory, u, dt)
        if system.first_order:
            new, status = with_feasible_velocity(system, end.state, u, self.roles.solver)
            rates = largest(velocity_residual(hard_rows(bound(system, new, u), new), new))
            end = Point(new, end.linearization)
            info = dataclasses.replace(info, velocity_violation=rates, status=first_failure(info.status, status))
        return end, memory, info
