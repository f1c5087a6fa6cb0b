"""Extensions of Diffrax: solvers with a projection after every step, and controllers with a memory.

Only this module imports Diffrax at load time. It is loaded only if adaptive integration is used.

*Projected solver.* A step of an explicit method from y0 = (q0, v0) gives an estimate y1_e and an estimate of
its local error. The projection moves y1_e onto the constraint manifold by at most that error (up to a
constant), so the method keeps its order (E. Hairer, C. Lubich, G. Wanner, "Geometric Numerical Integration",
section IV.4). This has three consequences for a wrapper around Diffrax solvers:

* The error estimate is that of the method, before the projection. Only this estimate shows whether the step
  is too long. The projection removes errors across the manifold, so an estimate after it would accept a step
  that left the manifold by a large distance.
* The next step starts at the projected y1 and cannot reuse results of the previous step. Methods whose last
  stage is the first stage of the next step (FSAL: Bosh3, Dopri5, Dopri8, Tsit5) evaluate it again: one more
  evaluation per step.
* Dense output is that of the method, from y0 to y1_e. It is as accurate as the interpolant of the method, but
  it does not satisfy the constraints, and it meets the start of the next step only to within the local error.
  Project the values that you read from it, as `adaptive_rollout` does.

*Remembered step.* An integration that is divided into pieces loses its step size at every boundary: the last
step of a piece is shortened to reach its end, and the next proposal of the controller is also short.
`RememberedStep` wraps a controller and passes on the longer of the two proposals, before and after the
shortening.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from jaxdae.dynamics.stabilization import Origin, Projection
from jaxdae.systems.linearization import linearize
from jaxdae.systems.system import AnySystem, State


def projected_state(
    system: AnySystem, projection: Projection | None, solver: Any, estimate: State, previous: State
) -> State:
    """Return the estimate projected onto the manifold.

    Normalize coordinates, project positions, then project velocities. If no row is soft and no projection has
    its own solver, one factorization at the estimate serves both projections. It is inaccurate by the local
    error only. The fixed number of position corrections and a second velocity correction remove this error.

    Args:
        system: the mechanical system.
        projection: the projection; None for normalization only.
        solver: the saddle-point solver of projections without their own solver.
        estimate: the state to project.
        previous: the state before the step, on the manifold.
    """
    if estimate.q.shape != estimate.v.shape:
        # More coordinates than velocities: sums of stages leave the set of unit quaternions. Return to it
        # through the tangent step.
        estimate = dataclasses.replace(
            estimate, q=system.retract(previous.q, system.difference(previous.q, estimate.q))
        )
    if projection is None:
        return estimate
    position, velocity = projection.resolved(solver)
    hard = system.compliance(estimate.t, estimate.q) is None
    at_estimate = hard and getattr(position, "origin", Origin.ESTIMATE) is not Origin.PREVIOUS
    own = projection.position
    share_position = at_estimate and position is not None and own.solver is None  # pyright: ignore
    share_velocity = velocity is not None and projection.velocity.solver is None and hard  # pyright: ignore
    with jax.named_scope("linearize"):
        at = linearize(system, estimate, solver) if share_position or share_velocity else None
    state = estimate
    if position is not None:
        with jax.named_scope("position_projection"):
            state = position.project(system, state, previous, at if share_position else None)
    if velocity is not None:
        with jax.named_scope("velocity_projection"):
            state = velocity.project(system, state, previous, at if share_velocity else None)
            if share_velocity and position is not None:
                state = velocity.project(system, state, previous, at)
    return state


class ProjectedSolver(diffrax.AbstractWrappedSolver):
    """A Diffrax solver with a projection after every step, for y = (q, v).

    Attributes:
        solver: an explicit Diffrax solver.
        system: the mechanical system.
        projection: the projection; None for normalization of unit quaternions and similar coordinates only.
        saddle_point: the saddle-point solver of projections without their own solver.
        clock: map from the time of the integration to the time of the system in s; None for the identity.
    """

    solver: diffrax.AbstractSolver
    system: Any
    projection: Any
    saddle_point: Any
    clock: Any = None

    @property
    def term_structure(self) -> Any:
        """The term structure of the inner solver."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        """The interpolant of the method, from the projected start to the end before the projection."""
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:
        """The term arguments of the inner solver."""
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self) -> Any:
        """The type of the stage loop of a Runge-Kutta solver.

        The forward-mode adjoints of Diffrax set it through this name.
        """
        return getattr(self.solver, "scan_kind", "none")

    def order(self, terms: Any) -> Any:
        """Return the order of the inner solver, which the projection preserves."""
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        """Return the strong order of the inner solver."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        """Return the order of the error estimate, which the projection does not change."""
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        """Return None because the projection invalidates the solver state of the previous step."""
        return None

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> Any:
        """Return the projected step, with the error estimate and dense output before the projection."""
        fresh = self.solver.init(terms, t0, t1, y0, args)
        y1, error, dense_info, _, result = self.solver.step(terms, t0, t1, y0, args, fresh, made_jump)
        ends = (jnp.asarray(t, y0[0].dtype) for t in (t0, t1))
        before, after = ends if self.clock is None else map(self.clock, ends)
        previous, estimate = State(before, *y0), State(after, *y1)
        state = projected_state(self.system, self.projection, self.saddle_point, estimate, previous)
        return (state.q, state.v), error, dense_info, None, result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """Return the vector field."""
        return self.solver.func(terms, t0, y0, args)


class RememberedStep(diffrax.AbstractAdaptiveStepSizeController):
    """A step size controller that resumes from a stored state and stores the next step.

    Its state is (step, state of the inner controller).

    Attributes:
        controller: an adaptive controller.
        memory: the initial state.
        first: the length of the first step.
    """

    controller: Any
    memory: Any
    first: Any

    @property
    def rtol(self) -> Any:  # pyright: ignore
        """The relative tolerance of the inner controller."""
        return self.controller.rtol

    @property
    def atol(self) -> Any:  # pyright: ignore
        """The absolute tolerance of the inner controller."""
        return self.controller.atol

    @property
    def norm(self) -> Any:  # pyright: ignore
        """The norm of the inner controller."""
        return self.controller.norm

    def wrap(self, direction: Any) -> RememberedStep:
        """Return the controller for integration in a direction."""
        return dataclasses.replace(self, controller=self.controller.wrap(direction))

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> Any:
        """Return the end of the first step and the stored state."""
        return t0 + self.first, self.memory

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        """Return the result of the inner controller; a shortened step does not shorten the next proposal."""
        before, inner = controller_state
        keep, next_t0, next_t1, made_jump, new_inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, inner
        )
        proposed = next_t1 - next_t0
        # A step that was not shortened differs from its proposal by the round-off of the times.
        was_cut = keep & (t1 - t0 < 0.999 * before)
        step = jnp.where(was_cut, jnp.maximum(proposed, before), proposed)
        # The error of a shortened step is too small and must not enter the error history of the inner
        # controller.
        inner = jax.tree.map(lambda old, new: jnp.where(was_cut, old, new), inner, new_inner)
        return keep, next_t0, next_t1, made_jump, (step, inner), result


def differentiable(solver: Any) -> Any:
    """Return the solver with Runge-Kutta stage loops that support forward and reverse mode.

    The default loop of Diffrax supports reverse mode only.
    """

    def is_method(x: Any) -> bool:
        return issubclass(type(x), diffrax.AbstractRungeKutta)

    return jax.tree.map(
        lambda x: dataclasses.replace(x, scan_kind="bounded") if is_method(x) else x,
        solver,
        is_leaf=is_method,
    )
