"""Operational-space control that is consistent with the constraints.

A task x(q) has x'' = Jt a + b, and the accelerations of a constrained system are a = a0 + L11 B u. In terms
of the inputs,

    x'' = T u + (Jt a0 + b),        T = Jt L11 B.

Many u give the same x''. Khatib's choice is the *dynamically consistent* one: the u that moves the system
least, measured by the kinetic energy of the accelerations. For an open arm with a motor at every joint (B =
I, L11 = M^-1) it is u = Jt^T Lambda x'', with the task inertia Lambda = (Jt M^-1 Jt^T)^-1. The same measure
with constraints and passive joints is

    |u|_W^2 = |L11 B u|_M^2 = u^T W u,      W = B^T L11 M L11 B = B^T L11 B,

and minimizing it under T u = x'' gives, with K = R L11 B, R^T R = M (so W = K^T K), and S = T K^+,

    Lambda = (T W^+ T^T)^+ = (S S^T)^+,     T# = W^+ T^T Lambda = K^+ S^+,      P = I - T# T.

* T T# = I if the inputs can reach the task. T P = 0 always: T K^+ K = T, because the rows of T are
  combinations of the rows of K, so T P = T - S S^+ S K = 0. Inputs P u0 give the task no acceleration, for
  any u0.
* K^T K P u0 and T# x'' are orthogonal: (T#)^T W P = 0. Task and posture share no kinetic energy.
* Inputs that constraints carry (K u = 0: motors that work against each other) pass through P unchanged and
  move nothing.

With a motor at every degree of freedom T W^+ T^T = Jt L11 Jt^T, the task mobility of an unactuated
constrained system. All inverses are pseudoinverses. Dependent tasks, singular configurations and redundant
motors therefore need no special treatment.

References:
    O. Khatib, "A unified approach for motion and force control of robot manipulators: the operational space
    formulation", IEEE Journal of Robotics and Automation 3 (1987). F. Aghili, "A unified approach for inverse
    and direct dynamics of constrained multibody systems based on linear projection operator", IEEE
    Transactions on Robotics 21 (2005).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import fraction
from jaxdae.control.computed_torque import commanded
from jaxdae.control.inputs import input_response
from jaxdae.control.law import has_memory, is_law, refuse_call
from jaxdae.control.outputs import output_motion
from jaxdae.integrators.integrator import checked_input
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, SingularValues, pseudoinverse
from jaxdae.saddle_point.saddle_point_solver import SOLVER_TEXT, is_solver
from jaxdae.systems.system import MODEL_TEXT, AnySystem, State, is_system
from jaxdae.typing import Input, Leaf


@pytree
class TaskDynamics:
    """Task acceleration as a function of the inputs: x'' = matrix u + drift.

    Attributes:
        matrix: T (nx, nu).
        drift: Jt a0 + b (nx,).
        inertia: Lambda (nx, nx).
        inverse: T# (nu, nx), the dynamically consistent inverse of T.
        projector: P = I - T# T (nu, nu); inputs P u0 give the task no acceleration.
    """

    matrix: Leaf
    drift: Leaf
    inertia: Leaf
    inverse: Leaf
    projector: Leaf


def task_dynamics(
    system: AnySystem,
    task: Any,
    state: State,
    inputs: int | None = None,
    *,
    solver: SaddlePointSolver | None = None,
    rank_tolerance: Any = 1e-5,
) -> TaskDynamics:
    """Return the dynamics of a task x(q) of a constrained system in terms of its inputs.

    Args:
        system: the mechanical system.
        task: x(q), a pytree with `__call__(q)`, such as `BodyPoint`.
        state: time (s), coordinates and velocities.
        inputs: the number of inputs, if the system does not define it.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.
        rank_tolerance: singular values of K and of S below this fraction of the largest count as zero.

    Raises:
        ValueError: unknown number of inputs, or lengths that do not fit.
        TypeError: the task is not callable.

    Differentiable where ranks do not change.
    """
    response = input_response(system, state, inputs, solver=solver)
    x = output_motion(system, task, state)
    rank = NullSpace(SingularValues(rank_tolerance))
    matrix = x.jacobian @ response.matrix
    weighted_inverse = pseudoinverse(response.weighted, rank)
    reach = pseudoinverse(matrix @ weighted_inverse, rank)
    inverse = weighted_inverse @ reach
    projector = jnp.eye(matrix.shape[1], dtype=matrix.dtype) - inverse @ matrix
    return TaskDynamics(matrix, x.jacobian @ response.drift + x.bias, reach.T @ reach, inverse, projector)


@pytree(kw_only=True)
class OperationalSpace:
    """Inputs with which a task obeys e'' + Kd e' + Kp e = 0, and a posture law that cannot disturb it.

    Attributes:
        model: the controller's model of the system.
        task: x(q), a pytree with `__call__(q)`, such as `BodyPoint`.
        reference: xd: (nx,), a number, or a pytree with `__call__(t)`, twice differentiable.
        kp: in 1/s^2: a number, (nx,) or (nx, nx).
        kd: in 1/s; 2 sqrt(kp) is critical damping.
        posture: a law for the inputs, projected so that it does not accelerate the task; None for no posture.
            It must provide the weight compensation and the damping of the motions that the task leaves free:
            `Sum((PD(...), GravityCompensation(model)))`.
        solver: a saddle-point solver; None for `NullSpace()`, which allows dependent rows;
            `SchurComplement()` is faster.
        rank_tolerance: see `task_dynamics`.
        inputs: the number of inputs, if the model does not define it (static).

    Differentiable where ranks do not change.
    """

    model: AnySystem
    task: Any = function_field()
    reference: Any = function_field()
    kp: Leaf
    kd: Leaf
    posture: Any = function_field(default=None)
    solver: Leaf = None
    rank_tolerance: Leaf = 1e-5
    inputs: int | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_system(self.model), MODEL_TEXT
        yield is_solver(self.solver), SOLVER_TEXT
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"
        yield self.posture is None or is_law(self.posture), "posture must be a feedback law, or None"

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        if self.posture is not None and has_memory(self.posture):
            refuse_call(self.posture)
        at = State(t, state.q, state.v)
        x = task_dynamics(
            self.model, self.task, at, self.inputs, solver=self.solver, rank_tolerance=self.rank_tolerance
        )
        wanted = commanded(self.reference, self.kp, self.kd, t, output_motion(self.model, self.task, at))
        u = x.inverse @ (wanted - x.drift)
        return (
            u
            if self.posture is None
            else u + x.projector @ checked_input(self.posture, self.posture(t, state))
        )
