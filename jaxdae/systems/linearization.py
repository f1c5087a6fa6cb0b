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
import numpy as np
from jax import Array
from jaxtyping import Bool

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.saddle_point_solver import needs_full_rank, needs_products_only
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.system import AnySystem, State
from jaxdae.systems.tolerances import scales
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
    mass = at.mass if weight is None else weight
    return factorized(used, mass, jacobian, compliance, lost_rows(at.system, used, jacobian))


def factorized(
    solver: SaddlePointSolver,
    mass: MassOperator,
    jacobian: JacobianOperator,
    compliance: Any,
    lost: Bool[Array, " nc"] | None = None,
) -> Linearization:
    """Return the linearization for given M, J and C; the factors are NaN if a hard row is lost."""
    still: Any = jax.lax.stop_gradient((mass, jacobian, compliance))
    if lost is not None:
        hard = lost if compliance is None else lost & (still[2] == 0.0)
        still = still[0], still[1].with_nan(jax.lax.stop_gradient(hard)), still[2]
    factors = jax.lax.stop_gradient(solver).factorize(*still)
    return Linearization(solver, mass, jacobian, compliance, factors)


LOST = 100.0
"""A row is lost if rounding may turn its direction by more than 1/LOST."""


def lost_rows(
    system: AnySystem, solver: SaddlePointSolver, jacobian: JacobianOperator
) -> Bool[Array, " nc"] | None:
    """Return which rows rounding has made meaningless; None if no row can be.

    In joint coordinates, the lever arms of a loop can vanish. In a parallelogram that lies flat along x, no
    joint velocity opens the loop along x, and sigma, the largest entry of this row, decreases to zero. The
    loop is closed only up to eps D, with D the size of a body. This leaves an error of eps D / sigma in the
    coordinates that the row would fix. The error turns the row itself by eps D l / sigma^2, where l is the
    lever arm across it: the largest entry of the other rows of the joint in the same unit, or D / 10 without
    such rows, because rows of small gears are short but do not turn. A factorization does not notice the
    loss, because the pivot of such a row is as large as its diagonal entry.

    A row is lost if 0 < sigma^2 <= 100 eps D l, with D = 2 L for rows in m, at most 2 m, where L is the
    characteristic length, and D = 2 for rows in rad. Factorizations find rows that are zero. The entries of
    rows in absolute coordinates do not become small, and solvers that determine the rank do not need the
    test.
    """
    if not (system.vanishing_rows and needs_full_rank(solver)):
        return None
    count, names = jacobian.shape[0], system.names
    units = np.asarray([*names.row_units, *[""] * count][:count])
    if not np.any(units != ""):
        return None
    joints = np.asarray([row.rpartition(".")[0] for row in (*names.rows, *[""] * count)][:count])
    others = (units[:, None] == units) & (joints[:, None] == joints) & ~np.eye(count, dtype=bool)
    sigma = jacobian.row_sizes()
    size = 2.0 * jnp.minimum(scales(system, tuple(units), count, sigma.dtype), 1.0)
    arm = jnp.where(others.any(axis=1), jnp.max(jnp.where(others, sigma, 0.0), axis=1), 0.1 * size)
    bound = LOST * float(jnp.finfo(sigma.dtype).eps) * size * arm
    return (units != "") & (sigma > 0.0) & (sigma * sigma <= bound)


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
