"""The saddle-point matrix of a system at a state, factorized once for all who need it there.

The dynamics at a state, the projection of its velocities, and (linearized at the state before a step) the projection of the positions
after the step all solve with the same matrix. It travels with the state that it belongs to: a `Point` is both, and is what integrators,
projections and wrappers hand on. What was factorized at the end of a step serves the beginning of the next, so that a step of a one-stage
method costs a single factorization.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.interface import needs_products_only
from jaxdae.system import AnySystem, State
from jaxdae.typing import Coordinates, Leaf, Scalar, Velocity


@pytree
class Linearization:
    """M, J and C at a state with their factorization: what dynamics and projections at one state share.

    Attributes:
        solver: the saddle-point solver that made the factors.
        mass: M, an operator.
        jacobian: J, an operator.
        compliance: C (nc,), or None where all rows are hard.
        factors: the factorized saddle-point matrix; constant under differentiation (the implicit function theorem needs no more).
    """

    solver: Leaf
    mass: Leaf
    jacobian: Leaf
    compliance: Leaf
    factors: Leaf


def located(system: AnySystem, q: Coordinates, solver: SaddlePointSolver | None) -> AnySystem:
    """Returns the system for one who asks for several of its terms at q, see `AnySystem.at`, and who may linearize it for a solver.

    J that is never formed holds the system that it is the J of: the system itself then, which is the same from step to step.
    """
    return system if solver is not None and needs_products_only(solver) else system.at(q)


def linearize(
    system: AnySystem,
    state: State,
    solver: SaddlePointSolver | None = None,
    compliance: Any = None,
    weight: MassOperator | None = None,
) -> Linearization:
    """Returns the factorized saddle-point matrix of a system at a state.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities; velocities matter for constraints that are not affine in them.
        solver: a saddle-point solver; None for the default solver of the system.
        compliance: scalar or (nc,), added to that of the system.
        weight: a matrix in place of the mass matrix.
    """
    solver = solver or system.default_solver
    system = located(system, state.q, solver)
    rows = system.jacobian_products if needs_products_only(solver) else system.jacobian_operator
    jacobian = rows(state.t, state.q, state.v)
    own = system.compliance(state.t, state.q)
    if own is not None or compliance is not None:
        total = jnp.zeros((jacobian.shape[0],), state.q.dtype)
        for given in (own, compliance):
            total = total if given is None else total + jnp.asarray(given, total.dtype)
        compliance = total
    return factorized(solver, system.mass_operator(state.q) if weight is None else weight, jacobian, compliance)


def factorized(solver: SaddlePointSolver, mass: MassOperator, jacobian: JacobianOperator, compliance: Any) -> Linearization:
    """Returns the linearization of given M, J and C."""
    still: Any = jax.lax.stop_gradient((solver, mass, jacobian, compliance))
    factors = still[0].factorize(*still[1:])
    return Linearization(solver, mass, jacobian, compliance, factors)


@pytree
class Point:
    """Where a step begins or ends: a state, and what was factorized there.

    Attributes:
        state: time (s), coordinates and velocities.
        linearization: the `Linearization` at the state, None where nobody made one.
        stage: that of the last stage of the step that ended here, for projections that are content with it (`Origin.STAGE`). It belongs to
            another state and never begins a step.
        estimate: the coordinates (nq,) at which the linearization was made, where those of the state were corrected afterwards
            (`Origin.SHARED`); None where these are those of the state. They belong to the motion as the state does.

    Linearizations follow from the motion and are no part of it: they are constant under differentiation, and nothing of them is saved.
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
        """What the step that ended here factorized last, at its end or in its last stage."""
        return self.linearization or self.stage

    @property
    def origin(self) -> State:
        """The state at which the linearization was made: where a step that begins here takes the dynamics of its first stage."""
        return self.state if self.estimate is None else State(self.state.t, self.estimate, self.state.v)

    def again(self, system: AnySystem) -> Point:
        """Returns the point, linearized anew where it was linearized."""
        if self.linearization is None:
            return Point(self.state)
        return Point(self.state, linearize(system, self.origin, self.linearization.solver), estimate=self.estimate)

    def moved(self, system: AnySystem, state: State) -> Point:
        """Returns the point at another state, linearized there where it was linearized here.

        Args:
            system: the mechanical system.
            state: the other state.
        """
        return dataclasses.replace(self, state=state, estimate=None if self.estimate is None else state.q).again(system)
