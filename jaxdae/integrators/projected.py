"""Any integrator, followed by a projection onto the constraint manifold.

The projection moves the state by at most the local error of the step (up to a constant), so the wrapped
method keeps its order (E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration", section IV.4).

The velocity projection at the end of a step and the dynamics at the start of the next step need the same
factorization. The method passes it on with the state, as a `Point`, and saves one factorization per step.
With `Origin.PREVIOUS`, the position projection also uses this factorization. With `Origin.STAGE`, it uses the
factorization of the method's last stage.

`Origin.SHARED` reverses this order: M and J are computed at the estimate q_e at the end of the step, the
position projection moves q_e by xi, and the next step reuses M and J,

    q = q_e (+) xi,    W xi = -J(q_e)^T mu,  g(q) = 0,            a = a(t, q_e, v),  and so on from (q, v),

so the kinematics, M, J, and their factors are computed once per step. |xi| is the local error of the
positions in the constrained directions, O(h^(p+1)). The accelerations of the first stage have an error of
this size. The velocity error per step is O(h^(p+2)), so the method keeps its order p. J is as accurate as at
the state: each correction reduces the error by a factor |xi|. Velocities are projected at q with that J. The
step reports the accelerations at q_e. The estimate belongs to the motion: it is differentiated with it, and a
rollout that starts from a state begins with q_e = q.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.dynamics.stabilization import (
    LinearPositionProjection,
    Origin,
    PositionProjection,
    Projection,
    VelocityProjection,
)
from jaxdae.integrators.equation_of_motion import bound
from jaxdae.integrators.integrator import Integrator, StepInfo, is_open, moves_off, step_info_at
from jaxdae.integrators.method import (
    NOT_SWITCHING,
    PointMethod,
    PointWrapping,
    resolves_contacts,
    switches_rows,
)
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, Point, linearize, linearize_at
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Count


def _follows(part: Any) -> bool:
    """Return whether a projection uses the solver of the integrator."""
    return part.solver is None


def _serves_both(system: AnySystem, state: State) -> bool:
    """Return whether one linearization serves the end of a step and the start of the next step.

    This requires that J does not depend on the velocities, which are projected after the linearization, and
    that no row is soft, because projections exclude soft rows.
    """
    without_velocity_rows = (
        jax.eval_shape(system.velocity_constraint, state.t, state.q, state.v).shape[0] == 0
    )
    return without_velocity_rows and system.compliance(state.t, state.q) is None


def linearized_start(
    inner: PointMethod, system: AnySystem, state: State, solver: SaddlePointSolver | None
) -> Point:
    """Return the start point of a wrapper, linearized if its end serves the next step of the inner method.

    Args:
        inner: the inner method.
        system: the mechanical system.
        state: the start.
        solver: the saddle-point solver of the inner method; None for the default solver of the system.
    """
    point = inner.begin(system, state)
    if point.linearization is not None or not inner.takes_linearization or not _serves_both(system, state):
        return point
    return Point(state, linearize(system, state, solver))


def projection_status(
    system: AnySystem, projection: Projection | None, info: StepInfo, state: State
) -> Count:
    """Return the status () of a projection: NOT_CONVERGED if its residual is too large.

    An iterated position projection must not exceed its tolerance (see `is_open`). A velocity projection must
    satisfy [g'; w] (see `moves_off`).

    Args:
        system: the system.
        projection: the projection; None for no projection.
        info: the report with the violations after the projection.
        state: coordinates and velocities after the projection.
    """
    left = jnp.zeros((), bool)  # NaN compares false; it is reported separately.
    if projection is not None and isinstance(projection.position, PositionProjection):
        left |= is_open(system, info.violation, state.q, projection.position.tolerance)
    if projection is not None and projection.velocity is not None:
        left |= moves_off(system, info.velocity_violation, state)
    status: Any = jnp.where(left, Status.NOT_CONVERGED, Status.OK)
    return status.astype(jnp.int32)


@pytree
class Projected(PointWrapping):
    """The step of `integrator`, then `projection`.

    Attributes:
        integrator: any integrator.
        projection: the quantities to project and the metric; `Projection()` projects positions to round-off,
            then velocities.
    """

    integrator: Integrator
    projection: Projection = Projection()

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield (
            offers(self.projection, "resolved"),
            "projection must be a Projection(position, velocity); set one of them to None to omit it",
        )
        yield not switches_rows(self.integrator), NOT_SWITCHING
        yield (
            not resolves_contacts(self.integrator),
            "integrator must not be a step with contact: write Touching(Projected(...), contacts)",
        )
        yield (
            not self._goes_on_at_estimate or self.inner.begins_at_estimate,
            "Origin.SHARED needs an integrator that starts at the estimate: SemiImplicitEuler, "
            "ExplicitEuler or RungeKutta",
        )

    @property
    def _goes_on_at_estimate(self) -> bool:
        """Whether steps start with the linearization of the position projection at the estimate."""
        position = self.projection.position
        return (
            isinstance(position, PositionProjection)
            and position.origin is Origin.SHARED
            and _follows(position)
        )

    def begin(self, system: AnySystem, state: State) -> Point:
        """Return the start, linearized if steps and projections share a linearization."""
        point = linearized_start(self.inner, system, state, self.roles.solver)
        if point.linearization is None or not self._goes_on_at_estimate:
            return point
        return dataclasses.replace(point, estimate=state.q)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the projected point after dt; status NOT_CONVERGED if a projection misses the manifold."""
        end, memory, inner = self.inner.advance(system, point, memory, u, dt)
        system = bound(system, end.state, u)
        shared = point.estimate is not None
        project = self._projected_at_estimate if shared else self._projected
        at, here = project(system, point, end)
        new, after = State(at.t, at.q, at.v), step_info_at(at, inner.a, inner.lam)
        # Keep the other fields of the method's report, such as motor efforts and active rows.
        found = {name: getattr(after, name) for name in ("violation", "velocity_violation", "iterations")}
        info = dataclasses.replace(inner, **found)
        if isinstance(self.projection.position, PositionProjection):
            info = dataclasses.replace(
                info, iterations=inner.iterations + self.projection.position.iterations
            )
        failed = projection_status(system, self.projection, info, new)
        info = dataclasses.replace(info, status=first_failure(inner.status, failed))
        return Point(new, here, estimate=end.q if shared else None), memory, info

    def _projected(
        self, system: AnySystem, point: Point, end: Point
    ) -> tuple[Evaluation, Linearization | None]:
        """Return the terms at the projected end of a step, linearized if the start point is."""
        at, solver = system.evaluate(end.t, end.q, end.v), self.roles.solver
        position, velocity = self.projection.resolved(solver)
        if position is not None:
            known = {Origin.PREVIOUS: point.linearization, Origin.STAGE: end.latest}.get(position.origin)
            at = self._moved(
                "position_projection",
                position,
                at,
                point,
                known if _follows(self.projection.position) else None,
            )
        here = None
        if point.linearization is not None:
            with jax.named_scope("linearize"):
                here = linearize_at(at, solver)
        if velocity is not None:
            at = self._moved(
                "velocity_projection",
                velocity,
                at,
                point,
                here if _follows(self.projection.velocity) else None,
            )
        return at, here

    def _projected_at_estimate(
        self, system: AnySystem, point: Point, end: Point
    ) -> tuple[Evaluation, Linearization]:
        """Return the terms at the end of a step, projected with the linearization at the end itself."""
        at, solver = system.evaluate(end.t, end.q, end.v), self.roles.solver
        position, velocity = self.projection.resolved(solver)
        with jax.named_scope("linearize"):
            here = linearize_at(at, solver)
        at = self._moved("position_projection", position, at, point, here)
        if velocity is not None:
            at = self._moved(
                "velocity_projection",
                velocity,
                at,
                point,
                here if _follows(self.projection.velocity) else None,
            )
        return at, here

    @staticmethod
    def _moved(
        name: str, projection: Any, at: Evaluation, point: Point, known: Linearization | None
    ) -> Evaluation:
        """Return the terms at the projected state; a user's projection has the method `project` alone."""
        with jax.named_scope(name):
            if type(projection) in (PositionProjection, LinearPositionProjection, VelocityProjection):
                return projection.projected(at, point.state, known)
            new = projection.project(at.system, State(at.t, at.q, at.v), point.state, known)
            return at.system.evaluate(new.t, new.q, new.v)
