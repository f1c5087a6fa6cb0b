"""Constraint stabilization: feedback in the acceleration row, and projections after a step.

Only second derivatives of g appear in the equations of motion, so the errors of an integrator let g and g'
drift. The module has two families of remedies:

* A *target* for the acceleration row, J a = r instead of J a = -gamma: `Baumgarte` and `MultiplierFeedback`.
* A *projection* of positions and velocities back onto the manifold after a step. The metric W measures the
  correction. W is the identity, as in the lecture, or the mass matrix, which leaves the momentum along the
  manifold unchanged:

      velocities:  minimize |v - v_e|_W  subject to  [g'; w] = 0,
      positions:   q = q_e (+) xi,  W xi = -J0^T mu,  g(t, q) = 0      J0 = J at the linearization point q0.

  Both are saddle-point problems with W in place of M, so they use the same solvers as the dynamics.

References:
    J. Baumgarte, "Stabilization of constraints and integrals of motion in dynamical systems", Comput. Methods
    Appl. Mech. Eng. 1 (1972). S. Savin, "Contact-aware Control", lecture 5, equations (11) to (20).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import came, check_requirements, not_negative, offers
from jaxdae.linalg import newton
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.derivative import solve
from jaxdae.saddle_point.saddle_point_solver import SOLVER_TEXT, is_solver, reweighted
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, factorized, linearize_at
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.nonaffine_rows import has_affine_rows, on_curved_rows
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf, Rows, Velocity

STABILIZATION_TEXT = "stabilization must be a stabilization, such as Baumgarte(10.0, 10.0)"


class Stabilization(Protocol):
    """The target r of the acceleration row J a = r."""

    def target(self, at: Evaluation, linearization: Linearization) -> Rows:
        """Return r (nc,), in row units per second squared.

        Args:
            at: the terms of the system at the state: `at.position` is g (ng,), `at.velocity` is [g'; w]
                (nc,), and `at.bias` is gamma (nc,).
            linearization: M and J at the state, as operators.
        """
        ...


def is_stabilization(stabilization: Any) -> bool:
    """Return whether an object is a valid stabilization; None is valid and means `NoStabilization()`."""
    return stabilization is None or offers(stabilization, "target")


def check_stabilization(stabilization: Any) -> None:
    """Raise TypeError if an object is not a stabilization, for example text or a class."""
    if not is_stabilization(stabilization):
        raise TypeError(f"{STABILIZATION_TEXT}, got {came(stabilization)}")


@pytree
class NoStabilization:
    """The plain differentiated constraint, r = -gamma.

    Integration errors accumulate, so the rows drift, in general quadratically in time.
    """

    def target(self, at: Evaluation, linearization: Linearization) -> Rows:
        """Return r = -gamma."""
        return -at.bias


@pytree
class Baumgarte:
    """Feedback in the acceleration row: g'' + 2 alpha g' + beta^2 g = 0, and w' + 2 alpha w = 0.

    Attributes:
        alpha: damping in 1/s; alpha = beta is critical.
        beta: frequency in 1/s. With a fixed step h, explicit integrators are unstable above a limit of 0.8/h
            to 2.8/h.
    """

    alpha: Leaf
    beta: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the gains; see `jaxdae.base.requirements`."""
        yield not_negative(self.alpha), "alpha must not be negative"
        yield not_negative(self.beta), "beta must not be negative"

    def target(self, at: Evaluation, linearization: Linearization) -> Rows:
        """Return r = -gamma - 2 alpha [g'; w] - beta^2 [g; 0]."""
        velocity = at.velocity
        return -at.bias - 2.0 * self.alpha * velocity - self.beta**2 * _padded(at, velocity)


@pytree
class MultiplierFeedback:
    """The form of the lecture: the feedback is added to the multiplier, lam - alpha g - beta g'.

    As a force J^T lam it adds the acceleration -M^-1 J^T (alpha g + beta g') to the plain solution. This
    equals the saddle-point system with gamma + e on the right, e = (J M^-1 J^T)(alpha g + beta g'). The
    resulting multipliers include the feedback. The feedback of velocity-level rows is beta w.

    Attributes:
        alpha: stiffness of the constraint, lam unit per row unit (N/m for a row in meters).
        beta: damping of the constraint, lam unit per row unit per second (N s/m).
    """

    alpha: Leaf
    beta: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the gains; see `jaxdae.base.requirements`."""
        yield not_negative(self.alpha), "alpha must not be negative"
        yield not_negative(self.beta), "beta must not be negative"

    def target(self, at: Evaluation, linearization: Linearization) -> Rows:
        """Return r = -gamma - J M^-1 J^T (alpha [g; 0] + beta [g'; w])."""
        velocity, jacobian = at.velocity, linearization.jacobian
        feedback = self.alpha * _padded(at, velocity) + self.beta * velocity
        return -at.bias - jacobian.times(linearization.mass.solve(jacobian.transpose_times(feedback)))


def _padded(at: Evaluation, velocity: Rows) -> Rows:
    """Return [g; 0] (nc,): velocity-level rows have no position residual."""
    g = at.position
    missing = velocity.shape[0] - g.shape[0]
    return jnp.concatenate([g, jnp.zeros((missing,), g.dtype)]) if missing else g


class Metric(enum.Enum):
    """The norm of a correction."""

    MASS = "mass"
    """|x|^2 = x^T M x: a velocity correction is an impulse of the constraints and keeps the momentum along
    the manifold."""
    EUCLIDEAN = "euclidean"
    """|x|^2 = x^T x, the norm of the lecture; it mixes meters and radians."""


class Origin(enum.Enum):
    """The point q0 at which a position projection linearizes the constraints, as in the lecture."""

    ESTIMATE = "estimate"
    """At the estimate itself."""
    PREVIOUS = "previous"
    """At the state before the step, as in SHAKE."""
    STAGE = "stage"
    """Use J of the last stage of the step (for one-stage methods, of the previous state), which is already
    factorized. It falls back to `ESTIMATE` without such a stage: outside of `Projected`, with
    velocity-level or soft rows, or if the projection has its own solver."""
    SHARED = "shared"
    """At the estimate, and the next step reuses the linearization: it takes frames, M, J, their factors and
    all forces at the estimate, and continues from the corrected positions. Velocities are projected at the
    corrected positions with J of the estimate. A step without that projection whose final violations
    nobody reads computes the body frames only once. It falls back to `ESTIMATE` in the same cases as
    `STAGE`. See `jaxdae.integrators.projected`."""


def _projector(
    metric: Metric, solver: SaddlePointSolver | None, at: Evaluation, known: Linearization | None
) -> Linearization:
    """Return the linearization with W in place of M.

    This is `known` itself in the mass metric. Otherwise it reuses the decomposition of J in `known`, if there
    is one.
    """
    if known is not None and metric is Metric.MASS:
        return known
    if known is not None:
        weight = known.mass.identity()
        factors = reweighted(known.factors, weight)
        if factors is not None:
            return dataclasses.replace(known, mass=weight, factors=factors)
    weight = None if metric is Metric.MASS else at.mass.identity()
    return linearize_at(at, solver or (known and known.solver), weight=weight)


def _position_rows(at: Linearization, rows: int) -> Linearization:
    """Return the linearization of the rows of g alone."""
    if rows == at.jacobian.shape[0]:
        return at
    compliance = None if at.compliance is None else at.compliance[:rows]
    return factorized(at.solver, at.mass, at.jacobian.leading(rows), compliance)


@pytree
class VelocityProjection:
    """The projection v = argmin |v - v_e|_W subject to [g'; w](t, q, v) = 0.

    It takes one linear solve, or Newton iterations for rows that are not affine in v. In the Euclidean metric
    and with time-independent constraints this is v = N N^T v_e, as in the lecture. In the mass metric the
    change of momentum is an impulse of the constraints: it keeps the momentum along the manifold, and with
    time-independent constraints it never increases the energy.

    Attributes:
        metric: W, see `Metric`.
        solver: a saddle-point solver; None for the solver of the integrator, or `SchurComplement()` without
            an integrator.
    """

    metric: Metric = static(one_of=Metric, default=Metric.MASS)
    solver: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield is_solver(self.solver), SOLVER_TEXT

    def project(
        self, system: AnySystem, state: State, previous: State | None = None, at: Linearization | None = None
    ) -> State:
        """Return the state with projected velocities.

        Args:
            system: the mechanical system.
            state: the state to project.
            previous: the state before the step; not used.
            at: the result of `linearize` at this state, if already known.
        """
        return _state(self.projected(system.evaluate(state.t, state.q, state.v), previous, at))

    def projected(self, at: Evaluation, previous: State | None, known: Linearization | None) -> Evaluation:
        """Return the terms at the projected state, from those at the state to project; see `project`."""
        rows = hard_rows(at)
        here = _projector(self.metric, self.solver, rows, known)
        dv, lam = solve(here.factors, here.mass, here.jacobian, here.compliance, None, -rows.velocity)
        v = at.v + dv
        if not has_affine_rows(rows.system, _state(at)):
            v = on_curved_rows(rows.system, _state(at), here, v, lam)[0]
        return at.with_velocities(v)


def _state(at: Evaluation) -> State:
    return State(at.t, at.q, at.v)


def _origin(origin: Origin, at: Evaluation, previous: State | None) -> Evaluation:
    """Return the terms at q0."""
    if origin is not Origin.PREVIOUS:
        return at
    if previous is None:
        raise ValueError(
            "this position projection linearizes at the previous state (origin=Origin.PREVIOUS), but no "
            "previous state was given:"
            " pass previous=..., or use Origin.ESTIMATE"
        )
    return at.system.evaluate(at.t, previous.q, at.v)


@pytree
class LinearPositionProjection:
    """The projection of the lecture onto the linearized constraint g0 + J0 (q - q0) = 0.

    q = (I - N N^T)(q0 - J^+ g0) + N N^T q_e, which is q_e - J^+ (g0 + J0 (q_e - q0)), where J^+ is the
    W-weighted pseudoinverse. The remaining violation is of second order in q - q0.

    Attributes:
        metric: W, see `Metric`; the lecture uses `Metric.EUCLIDEAN`.
        origin: q0, see `Origin`.
        solver: a saddle-point solver; None for the solver of the integrator, or `SchurComplement()` without
            an integrator.
    """

    metric: Metric = static(one_of=Metric, default=Metric.MASS)
    origin: Origin = static(one_of=Origin, default=Origin.ESTIMATE)
    solver: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield is_solver(self.solver), SOLVER_TEXT

    def project(
        self, system: AnySystem, state: State, previous: State | None = None, at: Linearization | None = None
    ) -> State:
        """Return the state with projected positions and unchanged velocities.

        Args:
            system: the mechanical system.
            state: the state to project.
            previous: the state before the step.
            at: the result of `linearize` at the origin, if already known.
        """
        return _state(self.projected(system.evaluate(state.t, state.q, state.v), previous, at))

    def projected(self, at: Evaluation, previous: State | None, known: Linearization | None) -> Evaluation:
        """Return the terms at the projected state, from those at the state to project; see `project`."""
        start = hard_rows(_origin(self.origin, at, previous))
        system, residual = start.system, start.position
        here = _position_rows(_projector(self.metric, self.solver, start, known), residual.shape[0])
        if self.origin is Origin.PREVIOUS:
            # J0 at the new time, even if the factorization belongs to the previous time.
            step, still = system.difference(start.q, at.q), jnp.zeros_like(at.v)
            residual = (
                residual
                + jax.jvp(lambda xi: system.constraint(at.t, system.retract(start.q, xi)), (still,), (step,))[
                    1
                ]
            )
        xi, _ = solve(here.factors, here.mass, here.jacobian, here.compliance, None, -residual)
        return at.system.evaluate(at.t, system.retract(at.q, xi), at.v)


@pytree
class PositionProjection:
    """The projection that converges to round-off: q = q_e (+) xi with W xi = -J0^T mu and g(t, q) = 0.

    It applies a fixed number of simplified Newton corrections with constant J0 and factorization. Each
    correction multiplies the violation by about the relative change of J from J0 to the result. The
    derivative is the derivative of the projection, by the implicit function theorem.

    The origin trades cost against convergence. At the estimate, the default, three corrections reduce a
    violation of 1e-4 to round-off. At the last stage no factorization is needed. A Runge-Kutta method whose
    last stage is at the end of the step, such as RK4, then converges nearly as fast. The only stage of an
    Euler method is the state before the step. Reusing its factorization saves half of the work of the step,
    but each correction reduces the violation only by a factor of about h |v|, two to three digits at small
    steps.

    Attributes:
        metric: W, see `Metric`.
        origin: the point of J0, see `Origin`.
        iterations: the number of corrections, at least 1.
        solver: a saddle-point solver; None for the solver of the integrator, or `SchurComplement()` without
            an integrator.
        tolerance: a violation above tolerance min(1, L) + 4 eps (1 + max |q|), in row units, sets
            `Status.NOT_CONVERGED`. L is the characteristic length of the system in m.
    """

    metric: Metric = static(one_of=Metric, default=Metric.MASS)
    origin: Origin = static(one_of=Origin, default=Origin.ESTIMATE)
    iterations: int = static(default=3)
    solver: Leaf = None
    tolerance: Leaf = 1e-5

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield is_solver(self.solver), SOLVER_TEXT
        yield self.iterations >= 1, "iterations must be at least 1"
        yield not_negative(self.tolerance), "tolerance must not be negative"

    def project(
        self, system: AnySystem, state: State, previous: State | None = None, at: Linearization | None = None
    ) -> State:
        """Return the state with projected positions and unchanged velocities.

        Args:
            system: the mechanical system.
            state: the state to project.
            previous: the state before the step.
            at: the result of `linearize` at the origin, if already known.
        """
        return _state(self.projected(system.evaluate(state.t, state.q, state.v), previous, at))

    def projected(self, at: Evaluation, previous: State | None, known: Linearization | None) -> Evaluation:
        """Return the terms at the projected state, from those at the state to project; see `project`."""
        check_requirements("projection", self)
        elsewhere = self.origin is Origin.PREVIOUS and known is None
        start = hard_rows(_origin(self.origin, at, previous) if elsewhere else at)
        system = start.system
        # The first correction uses the frames at the estimate, if they are known.
        residual = system.constraint(at.t, at.q) if elsewhere else start.position
        rows = residual.shape[0]
        here = _position_rows(_projector(self.metric, self.solver, start, known), rows)
        factors = jax.lax.stop_gradient(here.factors)
        args = (system, at.t, at.q, here.mass, here.jacobian, factors)
        guess = (jnp.zeros_like(at.v), jnp.zeros((rows,), at.q.dtype))
        xi, lam = factors.solve(None, -jax.lax.stop_gradient(residual))
        begun = (jax.lax.stop_gradient(xi), -jax.lax.stop_gradient(lam))
        (xi, _), _ = newton.simplified_newton(
            _position_update,
            _position_residual,
            _position_correction,
            self.iterations,
            guess,
            args,
            begun=begun,
        )
        return at.system.evaluate(at.t, system.retract(at.q, xi), at.v)


def _position_update(x: tuple[Velocity, Rows], args: Any) -> tuple[Velocity, Rows]:
    """Return x minus the correction for its residual.

    Only g is nonzero, because every iterate (xi, mu) satisfies the first row.
    """
    xi, mu = x
    system, t, q, *_, factors = args
    dxi, lam = factors.solve(None, -system.constraint(t, system.retract(q, xi)))
    return xi + dxi, mu - lam


def _position_residual(x: tuple[Velocity, Rows], args: Any) -> tuple[Velocity, Rows]:
    """Return [W xi + J0^T mu; g(t, q_e (+) xi)].

    For J0 near J its derivative is near the symmetric matrix [W J0^T; J0 0].
    """
    xi, mu = x
    system, t, q, weight, jacobian, _ = args
    return weight.times(xi) + jacobian.transpose_times(mu), system.constraint(t, system.retract(q, xi))


def _position_correction(residual: tuple[Velocity, Rows], args: Any) -> tuple[Velocity, Rows]:
    """Return the solution of [W J0^T; J0 0] [dxi; dmu] = residual."""
    dxi, lam = args[-1].solve(*residual)
    return dxi, -lam


@pytree
class Projection:
    """Position projection, then velocity projection at the new positions; either may be None.

    Attributes:
        position: `PositionProjection()`, `LinearPositionProjection()` or None.
        velocity: `VelocityProjection()` or None.
    """

    position: PositionProjection | LinearPositionProjection | None = PositionProjection()
    velocity: VelocityProjection | None = VelocityProjection()

    def requirements(self) -> Any:
        """Yield the conditions on the types of the parts; see `jaxdae.base.requirements`."""
        position, velocity = self.position, self.velocity
        of_positions, of_velocities = (
            (PositionProjection, LinearPositionProjection),
            (VelocityProjection, Projection),
        )
        fits = position is None or (
            offers(position, "project", "solver") and not isinstance(position, of_velocities)
        )
        yield fits, "position must be a PositionProjection(), a LinearPositionProjection() or None"
        fits = velocity is None or (
            offers(velocity, "project", "solver") and not isinstance(velocity, (*of_positions, Projection))
        )
        yield fits, "velocity must be a VelocityProjection() or None"

    def project(self, system: AnySystem, state: State, previous: State | None = None) -> State:
        """Return the projected state."""
        if self.position is not None:
            state = self.position.project(system, state, previous)
        if self.velocity is not None:
            state = self.velocity.project(system, state, previous)
        return state

    def resolved(self, solver: SaddlePointSolver | None) -> tuple[Any, VelocityProjection | None]:
        """Return both projections, with `solver` in place of a missing solver."""
        position, velocity = self.position, self.velocity
        if position is not None:
            position = dataclasses.replace(position, solver=position.solver or solver)
        if velocity is not None:
            velocity = dataclasses.replace(velocity, solver=velocity.solver or solver)
        return position, velocity
