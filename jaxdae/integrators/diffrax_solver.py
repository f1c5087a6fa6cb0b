"""What Diffrax is handed: its own solvers with a projection after every step, and its own controllers with a memory.

This is the one module that imports Diffrax when it is loaded; it is loaded where adaptive integration is used and nowhere else.

*Projected solver.* A step of an explicit method from y0 = (q0, v0) gives an estimate y1_e and an estimate of its local error. The
projection moves y1_e onto the constraint manifold by no more than that error (up to a constant), so the order is kept (E. Hairer,
C. Lubich, G. Wanner, "Geometric Numerical Integration", section IV.4). Three things follow for a wrapper around Diffrax's solvers:

* The error is that of the method, before the projection: it alone says whether the step is too long. After the projection, errors across
  the manifold are gone, and a step that left it by far would be accepted.
* The next step starts at the projected y1, so that nothing of the step before may be used again. Methods whose last stage is the
  first of the next step (FSAL: Bosh3, Dopri5, Dopri8, Tsit5) evaluate it anew: one evaluation more per step.
* Dense output is that of the method, from y0 to y1_e: as accurate as the method's interpolant, but it neither satisfies the constraints nor
  meets the next step's start more closely than the local error. Project what is read from it, as `adaptive_rollout` does.

*Remembered step.* An integration that is cut into pieces loses the size of its steps at every cut: the last step of a piece is
shortened to meet its end, and what the controller proposes after it is short as well. `RememberedStep` wraps a controller and hands on the
longest of both proposals, the one before the shortening and the one after.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from jaxdae.linearization import linearize
from jaxdae.stabilization import Origin, Projection
from jaxdae.system import AnySystem, State


def projected_state(system: AnySystem, projection: Projection | None, solver: Any, estimate: State, previous: State) -> State:
    """Returns the estimate on the manifold: coordinates normalized, then positions and velocities projected.

    Where no row is soft and no projection has a solver of its own, one factorization at the estimate serves both: it is
    wrong by the local error only, which the fixed number of corrections of the positions and a second one of the velocities remove.

    Args:
        system: the mechanical system.
        projection: what is projected; None for nothing but the normalization.
        solver: the saddle-point solver of projections that name none.
        estimate: the state to project.
        previous: the state before the step, on the manifold.
    """
    if estimate.q.shape != estimate.v.shape:
        # More coordinates than velocities: unit quaternions and the like, which a sum of stages leaves. Back by the tangent step.
        estimate = dataclasses.replace(estimate, q=system.retract(previous.q, system.difference(previous.q, estimate.q)))
    if projection is None:
        return estimate
    position, velocity = projection.resolved(solver)
    hard = system.compliance(estimate.t, estimate.q) is None
    at_estimate = hard and getattr(position, "origin", Origin.ESTIMATE) is not Origin.PREVIOUS
    share_position = position is not None and projection.position.solver is None and at_estimate  # pyright: ignore
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
        projection: what is projected; None for nothing but unit quaternions and the like.
        saddle_point: the saddle-point solver of projections that name none.
        clock: from the integration's own time to that of the system in s; None where they are the same.
    """

    solver: diffrax.AbstractSolver
    system: Any
    projection: Any
    saddle_point: Any
    clock: Any = None

    @property
    def term_structure(self) -> Any:
        """That of the solver inside, as all that follows."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        """The interpolant of the method's step, from the projected start to the end before the projection."""
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:
        """What the solver inside asks of its terms."""
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self) -> Any:
        """How a Runge-Kutta solver loops over its stages; Diffrax's forward-mode adjoints set it through this name."""
        return getattr(self.solver, "scan_kind", "none")

    def order(self, terms: Any) -> Any:
        """Returns the order of the solver inside: the projection keeps it."""
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        """Returns that of the solver inside."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        """Returns the order of the error estimate, which is not touched."""
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        """Returns None: what the solver inside remembers of a step is of the state before the projection, and is not used again."""
        return None

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        """Returns the projected step, with the error estimate and the dense output of the step before the projection."""
        fresh = self.solver.init(terms, t0, t1, y0, args)
        y1, error, dense_info, _, result = self.solver.step(terms, t0, t1, y0, args, fresh, made_jump)
        ends = (jnp.asarray(t, y0[0].dtype) for t in (t0, t1))
        before, after = ends if self.clock is None else map(self.clock, ends)
        previous, estimate = State(before, *y0), State(after, *y1)
        state = projected_state(self.system, self.projection, self.saddle_point, estimate, previous)
        return (state.q, state.v), error, dense_info, None, result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """Returns the vector field."""
        return self.solver.func(terms, t0, y0, args)


class RememberedStep(diffrax.AbstractAdaptiveStepSizeController):
    """A step size controller that starts where it was left, and whose state says what step to take next time.

    Its state is (step, state of the controller inside).

    Attributes:
        controller: an adaptive controller.
        memory: the state to start from.
        first: the length of the first step.
    """

    controller: Any
    memory: Any
    first: Any

    @property
    def rtol(self) -> Any:  # pyright: ignore
        """The relative tolerance of the controller inside."""
        return self.controller.rtol

    @property
    def atol(self) -> Any:  # pyright: ignore
        """The absolute tolerance of the controller inside."""
        return self.controller.atol

    @property
    def norm(self) -> Any:  # pyright: ignore
        """The norm of the controller inside."""
        return self.controller.norm

    def wrap(self, direction: Any) -> RememberedStep:
        """Returns the controller for integration in a direction."""
        return dataclasses.replace(self, controller=self.controller.wrap(direction))

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any) -> Any:
        """Returns the end of the first step, and the remembered state."""
        return t0 + self.first, self.memory

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any, controller_state: Any
    ) -> Any:
        """Returns what the controller inside does; a step that was cut short does not make the next proposal any shorter."""
        before, inner = controller_state
        keep, next_t0, next_t1, made_jump, new_inner, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, inner
        )
        proposed = next_t1 - next_t0
        # A step that was not cut differs from what was proposed by round-off of the times.
        was_cut = keep & (t1 - t0 < 0.999 * before)
        step = jnp.where(was_cut, jnp.maximum(proposed, before), proposed)
        # Nor does its error, which is smaller than it should be, enter what the controller remembers of the errors.
        inner = jax.tree.map(lambda old, new: jnp.where(was_cut, old, new), inner, new_inner)
        return keep, next_t0, next_t1, made_jump, (step, inner), result


def differentiable(solver: Any) -> Any:
    """Returns the solver with the stages of its Runge-Kutta methods in a loop that has forward and reverse mode.

    Diffrax's default loop has reverse mode only.
    """

    def is_method(x: Any) -> bool:
        return issubclass(type(x), diffrax.AbstractRungeKutta)

    return jax.tree.map(lambda x: dataclasses.replace(x, scan_kind="bounded") if is_method(x) else x, solver, is_leaf=is_method)
