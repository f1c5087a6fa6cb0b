"""The saddle-point matrix of a system at a state, factorized once and shared.

Three computations solve with the same matrix: the dynamics at a state, the projection of its velocities, and
the projection of the positions after the step, linearized at the state before the step. The matrix travels
with its state: a `Point` holds both, and integrators, projections and wrappers pass it on. The factorization
at the end of a step serves the start of the next step. A step of a one-stage method therefore needs a single
factorization.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.saddle_point_solver import needs_products_only
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Coordinates, Leaf, Scalar, Velocity


@pytree
class Linearization:
    """M, J and C at a state and their factorization, shared by dynamics and projections at that state.

    Attributes:
        solver: the saddle-point solver that computed the factors.
        mass: M, an operator.
        jacobian: J, an operator.
        compliance: C (nc,), or None if all rows are hard.
        factors: the factorized saddle-point matrix; constant under differentiation (the implicit function
            theorem needs no derivative of it).
    """

    solver: Leaf
    mass: Leaf
    jacobian: Leaf
    compliance: Leaf
    factors: Leaf


def linearize(
    system: AnySystem,
    state: State,
    solver: SaddlePointSolver | None = None,
    compliance: Any = None,
    weight: MassOperator | None = None,
) -> Linearization:
    """Return the factorized saddle-point matrix of a system at a state.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities; velocities matter for constraints that are not affine in
            them.
        solver: a saddle-point solver; None for the default solver of the system.
        compliance: scalar or (nc,), added to the compliance of the system.
        weight: a matrix that replaces the mass matrix.
    """
    return linearize_at(system.evaluate(state.t, state.q, state.v), solver, compliance, weight)


def linearize_at(
    at: Evaluation,
    solver: SaddlePointSolver | None = None,
    compliance: Any = None,
    weight: MassOperator | None = None,
) -> Linearization:
    """Return the factorized saddle-point matrix at an evaluation; see `linearize` for the arguments."""
    used: SaddlePointSolver = solver or at.system.default_solver
    jacobian = at.jacobian_products if needs_products_only(used) else at.jacobian
    own = at.compliance
    if own is not None or compliance is not None:
        total = jnp.zeros((jacobian.shape[0],), at.q.dtype)
        for given in (own, compliance):
            total = total if given is None else total + jnp.asarray(given, total.dtype)
        compliance = total
    return factorized(used, at.mass if weight is None else weight, jacobian, compliance)


def factorized(
    solver: SaddlePointSolver, mass: MassOperator, jacobian: JacobianOperator, compliance: Any
) -> Linearization:
    """Return the linearization for given M, J and C."""
    still: Any = jax.lax.stop_gradient((solver, mass, jacobian, compliance))
    factors = still[0].factorize(*still[1:])
    return Linearization(solver, mass, jacobian, compliance, factors)


@pytree
class Point:
    """The start or end of a step: a state and its factorization.

    Attributes:
        state: time (s), coordinates and velocities.
        linearization: the `Linearization` at the state, None if not computed.
        stage: the linearization of the last stage of the step that ended here, for projections that can use
            it (`Origin.STAGE`). It belongs to another state and never starts a step.
        estimate: the coordinates (nq,) of the linearization, if the coordinates of the state were corrected
            afterwards (`Origin.SHARED`); None if they are the coordinates of the state. They are part of the
            motion, as the state is.

    Linearizations follow from the motion and are not part of it. They are constant under differentiation, and
    they are not saved.
    """

    state: Leaf
    linearization: Leaf = None
    stage: Leaf = None
    estimate: Leaf = None

    @property
    def t(self) -> Scalar:
        """Time in s."""
        return self.state.t

    @property
    def q(self) -> Coordinates:
        """Coordinates (nq,)."""
        return self.state.q

    @property
    def v(self) -> Velocity:
        """Velocities (nv,)."""
        return self.state.v

    @property
    def latest(self) -> Linearization | None:
        """The last linearization of the step that ended here: at its end, or in its last stage."""
        return self.linearization or self.stage

    @property
    def origin(self) -> State:
        """The state of the linearization.

        A step that starts here takes the dynamics of its first stage from this state.
        """
        return self.state if self.estimate is None else State(self.state.t, self.estimate, self.state.v)

    def again(self, system: AnySystem) -> Point:
        """Return the point with its linearization, if any, recomputed."""
        if self.linearization is None:
            return Point(self.state)
        return Point(
            self.state, linearize(system, self.origin, self.linearization.solver), estimate=self.estimate
        )

    def moved(self, system: AnySystem, state: State) -> Point:
        """Return the point at another state, linearized there if this point has a linearization.

        Args:
            system: the mechanical system.
            state: the other state.
        """
        return dataclasses.replace(
            self, state=state, estimate=None if self.estimate is None else state.q
        ).again(system)
