"""Any integrator, followed by a projection onto the constraint manifold.

The projection moves the state by no more than the local error of the step (up to a constant), so the order of the wrapped method is
kept (E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", section IV.4).

The velocity projection at the end of a step and the dynamics at the start of the next need the same factorization. It is handed on with
the state, as a `Point`, which makes one factorization less a step; with `Origin.PREVIOUS` the position projection uses it as well, and with
`Origin.STAGE` it uses that of the method's last stage.

With `Origin.SHARED` it is the other way round: M and J are those of the estimate q_e at the end of the step, which the projection of
positions moves by xi, and the next step goes on with them,

    q = q_e (+) xi,    W xi = -J(q_e)^T mu,  g(q) = 0,            a = a(t, q_e, v),  and so on from (q, v),

so that where the bodies are, M, J, and their factors are found once a step. |xi| is the local error of the positions in the directions of
the constraints, O(h^(p+1)). By so much the accelerations of the first stage are off, velocities by O(h^(p+2)) in a step, and the order p is
kept. J is as good as at the state: each correction gains a factor |xi|. Velocities are projected at q with that J. The accelerations that
the step reports are those at q_e. The estimate belongs to the motion: it is differentiated with it, and a rollout that goes on from a state
begins with q_e = q.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, StepInfo, is_open, largest, step_info
from jaxdae.integrators.method import NOT_SWITCHING, PointWrapping, switches_rows
from jaxdae.integrators.motion import bound
from jaxdae.linearization import Linearization, Point, linearize, located
from jaxdae.requirements import offers
from jaxdae.stabilization import Origin, PositionProjection, Projection
from jaxdae.status import Status, first_failure
from jaxdae.system import AnySystem, State, default_tolerance
from jaxdae.tolerances import shortest_scale
from jaxdae.typing import Count


def _follows(part: Any) -> bool:
    """Returns whether a projection solves as the integrator does."""
    return part.solver is None


def _serves_both(system: AnySystem, state: State) -> bool:
    """Returns whether one linearization serves the end of a step and the start of the next.

    It does where J does not depend on the velocities, which are projected after it is made, and where no row is soft, because
    projections leave soft rows out.
    """
    without_velocity_rows = jax.eval_shape(system.velocity_constraint, state.t, state.q, state.v).shape[0] == 0
    return without_velocity_rows and system.compliance(state.t, state.q) is None


def projection_status(system: AnySystem, projection: Projection | None, info: StepInfo, state: State) -> Count:
    """Returns the status () of a projection, NOT_CONVERGED where it has left more than it ought to.

    That is where an iterated position projection leaves more than its tolerance (see `is_open`), or where velocities break the rows after
    their projection, |[g'; w]| > 1e-5 (min(1, L) + max |v|) with the characteristic length L (3.5e-4 in single precision): rows that
    contradict each other, or are far from affine.

    Args:
        system: the system.
        projection: what was projected; None for nothing.
        info: with the violations after it.
        state: coordinates and velocities after it.
    """
    left = jnp.zeros((), bool)  # Comparisons with NaN are false: that is a matter of its own.
    if projection is not None and isinstance(projection.position, PositionProjection):
        left |= is_open(system, info.violation, state.q, projection.position.tolerance)
    if projection is not None and projection.velocity is not None:
        left |= info.velocity_violation > default_tolerance(state.v.dtype) * (shortest_scale(system, state.v.dtype) + largest(state.v))
    status: Any = jnp.where(left, Status.NOT_CONVERGED, Status.OK)
    return status.astype(jnp.int32)


@pytree
class Projected(PointWrapping):
    """The step of `integrator`, then `projection`.

    Attributes:
        integrator: any integrator.
        projection: what is projected, in which metric; `Projection()` projects positions to round-off, then velocities.
    """

    integrator: Integrator
    projection: Projection = Projection()

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield (
            offers(self.projection, "resolved"),
            "projection must be a Projection(position, velocity), with one of them None for the other alone",
        )
        yield not switches_rows(self.integrator), NOT_SWITCHING
        yield (
            not self._goes_on_at_estimate or self.inner.begins_at_estimate,
            "Origin.SHARED needs an integrator that begins at the estimate: SemiImplicitEuler, ExplicitEuler or RungeKutta",
        )

    @property
    def _goes_on_at_estimate(self) -> bool:
        """Whether steps begin with what the projection of positions has made at the estimate."""
        position = self.projection.position
        return isinstance(position, PositionProjection) and position.origin is Origin.SHARED and _follows(position)

    def begin(self, system: AnySystem, state: State) -> Point:
        """Returns the start, linearized where steps and projections share a linearization."""
        point = self.inner.begin(system, state)
        if point.linearization is not None or not self.inner.takes_linearization or not _serves_both(system, state):
            return point
        estimate = state.q if self._goes_on_at_estimate else None
        return Point(state, linearize(system, state, self.roles.solver), estimate=estimate)

    def advance(self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any) -> tuple[Point, Any, StepInfo]:
        """Returns the projected point after dt; status NOT_CONVERGED where a projection does not reach the manifold."""
        end, memory, inner = self.inner.advance(system, point, memory, u, dt)
        system = bound(system, end.state, u)
        shared = point.estimate is not None
        project = self._projected_at_estimate if shared else self._projected
        new, here = project(system, point, end)
        system = located(system, new.q, self.roles.solver)
        after = step_info(system, new, inner.a, inner.lam)
        # What else the method reports stays: efforts of motors, rows that are on.
        found = {name: getattr(after, name) for name in ("violation", "velocity_violation", "iterations")}
        info = dataclasses.replace(inner, **found)
        if isinstance(self.projection.position, PositionProjection):
            info = dataclasses.replace(info, iterations=inner.iterations + self.projection.position.iterations)
        failed = projection_status(system, self.projection, info, new)
        info = dataclasses.replace(info, status=first_failure(inner.status, failed))
        return Point(new, here, estimate=end.q if shared else None), memory, info

    def _projected(self, system: AnySystem, point: Point, end: Point) -> tuple[State, Linearization | None]:
        """Returns the projected end of a step from a point, and the linearization there where there was one at the point."""
        new, solver = end.state, self.roles.solver
        position, velocity = self.projection.resolved(solver)
        if position is not None:
            with jax.named_scope("position_projection"):
                known = {Origin.PREVIOUS: point.linearization, Origin.STAGE: end.latest}.get(position.origin)
                new = position.project(system, new, point.state, known if _follows(self.projection.position) else None)
        system = located(system, new.q, solver)
        here = None
        if point.linearization is not None:
            with jax.named_scope("linearize"):
                here = linearize(system, new, solver)
        if velocity is not None:
            with jax.named_scope("velocity_projection"):
                new = velocity.project(system, new, point.state, here if _follows(self.projection.velocity) else None)
        return new, here

    def _projected_at_estimate(self, system: AnySystem, point: Point, end: Point) -> tuple[State, Linearization]:
        """Returns the end of a step from a point, projected with the linearization at the end itself."""
        new, solver = end.state, self.roles.solver
        position, velocity = self.projection.resolved(solver)
        system = located(system, new.q, solver)
        with jax.named_scope("linearize"):
            here = linearize(system, new, solver)
        with jax.named_scope("position_projection"):
            new = position.project(system, new, point.state, here)
        if velocity is not None:
            with jax.named_scope("velocity_projection"):
                system = located(system, new.q, solver)
                new = velocity.project(system, new, point.state, here if _follows(self.projection.velocity) else None)
        return new, here
