"""First-order systems with constraints: x' follows a desired rate as closely as the constraints allow.

    x' = rate(t, x, u)                    desired motion
    c(t, x) = 0,   w(t, x, x') = 0        constraints

In general both cannot hold at once: the rate holds in the subspace of velocities that the constraints allow.
The infeasible part of the rate is an unknown combination of the constraint gradients. With
J = [dc/dx; dw/dx'] and the sign convention of this package (multipliers push with +J^T lam),

    [ I  -J^T ] [ x'  ]   [ rate ]
    [ J    0  ] [ lam ] = [ -b   ]          b = [dc/dt; w(t, x, 0)]: rows that depend explicitly on time

    x' = P rate - J^+ b,      P = I - J^T (J J^T)^-1 J,      lam = -(J J^T)^-1 (J rate + b)

These formulas hold for rows that are affine in x'. `jaxdae.systems.nonaffine_rows` handles other rows. x' is
the feasible velocity nearest to the rate. The lecture notes write x' + c_x^T lambda = f: their lambda is
-lam. They use the identity as the weight W of the distance. A system whose coordinates mix meters and radians
may define another weight (`mass_matrix`).

In `State(t, q, v)` of such a system q is x, and v is x', an output: steps start from t and q alone.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", sections 3.4.1 and 3.4.2; lecture notes,
    Carnegie Mellon University.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.compile.rematerialization import made_again
from jaxdae.matrices import DiagonalMatrix, MassOperator
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.saddle_point.derivative import solve
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.evaluation import Evaluation, checked
from jaxdae.systems.linearization import Linearization, linearize_at
from jaxdae.systems.masks import Masked
from jaxdae.systems.nonaffine_rows import Curved, has_affine_rows, on_curved_rows
from jaxdae.systems.state_checks import report_state, state_status
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import (
    AnySystem,
    State,
    check_fit,
    check_system,
    checked_state,
    default_tolerance,
    wanted_rate,
)
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Coordinates, Count, Input, Rows, Scalar, Square, Velocity


class KinematicSystem(AnySystem):
    """A first-order system, x' = rate(t, x, u) subject to constraints.

    Subclass it, decorate it with `@jaxdae.tree.pytree`, and write `rate`. The methods `constraint(t, x)`,
    `velocity_constraint(t, x, xdot)`, `retract` and `difference` are the same as in `System`. Projections,
    `initialize` and `diagnose` also apply, with the weight W in place of the mass matrix. Integrate the
    system with `Kinematic`, not with methods for forces.

    Example:
        >>> @jaxdae.tree.pytree
        ... class Unicycle(jaxdae.KinematicSystem):
        ...     def rate(self, t, x, u):
        ...         return jnp.stack([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])
    """

    first_order: ClassVar[bool] = True

    @abc.abstractmethod
    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return the desired velocity f (nv,), in the units of x per second: x' without constraints."""

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count | None:
        """Return a `Status` () that explains an undefined rate; None, the default, if there is none."""
        return None

    def step_status(self, before: State, after: State, u: Input) -> Count | None:
        """Return SINGULAR if the rate has a pole between two states (), else OK; None, the default, never."""
        return None

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return the weight W (nv, nv) of corrections |dx|_W^2 = dx^T W dx, the identity by default.

        Override it (or `mass_operator`) if there are fewer velocities than coordinates, or if coordinates mix
        meters and radians.
        """
        return jnp.eye(q.shape[0], dtype=q.dtype)

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return W for solvers: dense if `mass_matrix` is overridden, else a diagonal of ones."""
        plain = type(self).mass_matrix is KinematicSystem.mass_matrix
        return DiagonalMatrix(jnp.ones_like(q)) if plain else super().mass_operator(q)


def kinematic_velocity(
    system: AnySystem, state: State, u: Input = None, *, solver: SaddlePointSolver | None = None
) -> tuple[Velocity, Rows]:
    """Return the feasible velocity nearest to the rate, and the multipliers.

    They satisfy W (x' - rate) = J^T lam and [c'; w](t, x, x') = 0.

    Args:
        system: the kinematic system, or a wrapper around one.
        state: time (s) and coordinates; its velocities are not used.
        u: input (nu,) for `system.rate`.
        solver: a saddle-point solver; None for the default solver of the system.

    Returns:
        x' (nv,), and lam (nc,): the constraints add +W^-1 J^T lam to the rate. The result is NaN if rows are
        dependent and the solver needs full rank. The status is then SINGULAR, and `LeastSquares()` can
        compute x'.

    Raises:
        TypeError: not a `KinematicSystem`.
        ValueError: if a parameter of the system is out of range.

    Warns:
        StateWarning: if the coordinates violate the constraints.

    Differentiable with respect to system, state and u, forward and reverse. Rows that are affine in x' need
    one factorization, and have derivatives of every order. For other rows, Newton's iteration finds a
    velocity with locally minimal distance from the rate, with derivatives up to the third order. The function
    inspects the jaxpr of the rows to determine whether they are affine; `affine_rows = True` in the class of
    the system asserts it. `kinematic_status` reports whether the rows hold and leave any motion.
    """
    check_kinematic(system)
    check_solver(solver)
    state = checked_state(state)
    found = _kept_apart(system, state, u, solver)
    report_state("kinematic_velocity", system, state, found)
    return found


def kinematic_status(
    system: AnySystem, state: State, u: Input = None, *, solver: SaddlePointSolver | None = None
) -> Count:
    """Return a `Status` () that reports whether `kinematic_velocity` has a valid result.

    * INCONSISTENT_START: the coordinates violate the constraints, see `state_status`.
    * SINGULAR: the solver needs full rank and rows are dependent; or rows are not affine in x' and the rate
      has no unique nearest velocity. Example: every velocity with |x'|^2 = 1 is equally near to a zero rate.
    * CONFLICTING_ROWS: rows contradict each other, so that no velocity satisfies all of them; or they allow
      only zero velocity although the rate is not zero.
    * NOT_CONVERGED: Newton's iteration for rows that are not affine in x' finds no nearest velocity.

    Args:
        system: the kinematic system.
        state: time (s) and coordinates.
        u: input (nu,).
        solver: a saddle-point solver; None for the default solver of the system.

    `diagnose(system, state)` names the rows.
    """
    return first_failure(state_status(system, state), feasible_velocity(system, state, u, solver)[2])


def feasible_velocity(
    system: AnySystem, state: State, u: Input, solver: SaddlePointSolver | None
) -> tuple[Velocity, Rows, Count]:
    """Return the results of `kinematic_velocity` and `kinematic_status`, from one solution."""
    check_kinematic(system)
    check_solver(solver)
    return _feasible_velocity(system, checked_state(state), u, solver)


def held_velocity(system: AnySystem, state: State, u: Input, solver: SaddlePointSolver | None) -> Velocity:
    """Return the result of `kinematic_velocity`, or NaN if it violates the rows.

    This is cheaper than a status. The status also reports whether dependent rows make the velocity
    unreliable, and whether any motion is left.
    """
    check_kinematic(system)
    check_solver(solver)
    return _held_velocity(system, checked_state(state), u, solver)


def check_kinematic(system: Any) -> None:
    """Raise an error if `system` is not a valid `KinematicSystem`, nor a wrapper around one.

    Raises:
        TypeError: another system, or no system.
        ValueError: if a parameter is out of range.
    """
    check_system(system)
    if not system.first_order:
        raise TypeError(
            f"system must be a jaxdae.KinematicSystem, x' = rate(t, x, u), got {type(system).__name__}; "
            "use RungeKutta and related methods for systems with forces"
        )


@jax.jit
@made_again
def _kept_apart(system: Any, state: State, u: Input, solver: Any) -> tuple[Velocity, Rows]:
    return _feasible_velocity(system, state, u, solver)[:2]


@jax.jit
def _feasible_velocity(system: Any, state: State, u: Input, solver: Any) -> tuple[Velocity, Rows, Count]:
    at = _at_rate(system.at_input(u), state, u)
    v, lam, here, curved = _nearest(at, solver)
    status, of_rate = _status(at, v, here, curved), at.system.rate_status(state.t, state.q, u)
    if of_rate is not None:
        status = first_failure(of_rate, status)
    return v, lam, status


def step_status(system: AnySystem, before: State, after: State, u: Input, solver: Any) -> Count:
    """Return SINGULAR () if a step passes a singular configuration of the rows or a pole of the rate.

    The result is OK otherwise.

    Let J_0 and J_1 be the rows before and after the step, and G = I + J_0^+ (J_1 - J_0). In a step that
    resolves the motion, G = I + O(h). At a singular configuration, a singular value of J changes its sign. G
    then has a negative eigenvalue, the ratio of this singular value after and before the step. The feasible
    velocity v_1 has a pole there, in the direction of the eigenvector. w = (G - I) v_1 amplifies this
    direction, and the step passes the configuration if w^T W G w < 0, for rows of any rank.

    Args:
        system: a system of first order.
        before: the state before the step.
        after: the state after the step, with its feasible velocity.
        u: input (nu,) at the end of the step.
        solver: a saddle-point solver; None for the default solver of the system.
    """
    before, after, still = jax.lax.stop_gradient((before, after, jnp.zeros_like(after.v)))
    own: Any = system
    pole, bound = own.step_status(before, after, u), system.at_input(u)
    status = jnp.zeros((), jnp.int32) if pole is None else pole
    if system.sizes(before.q).nc == 0 or not has_affine_rows(bound, after):
        return status
    here, end = (
        linearize_at(bound.evaluate(before.t, before.q, still), solver),
        bound.evaluate(after.t, after.q, still),
    )

    def change(v: Velocity) -> Velocity:
        """Return (G - I) v (nv,)."""
        rows = end.jacobian.times(v) - here.jacobian.times(v)
        return solve(here.factors, here.mass, here.jacobian, here.compliance, None, rows)[0]

    w = change(after.v)
    rounding = float(jnp.finfo(w.dtype).eps) ** 0.5 * jnp.max(jnp.abs(after.v), initial=0.0)
    passed = (jnp.sum(here.mass.times(w) * (w + change(w))) < 0.0) & (jnp.max(jnp.abs(w)) > rounding)
    return first_failure(status, jnp.where(passed, Status.SINGULAR, Status.OK))


@jax.jit
def _held_velocity(system: Any, state: State, u: Input, solver: Any) -> Velocity:
    at = _at_rate(system.at_input(u), state, u)
    v, _, here, curved = _nearest(at, solver)
    left: Any = jnp.any(_left(at, v, here))
    if curved is not None:
        left = jnp.where(curved.bent, ~(curved.settled & _met(at, v, *_limits(at, v, here))), left)
    return jnp.where(left, jnp.nan, v)


def _speeds(at: Evaluation) -> Velocity:
    """Return the characteristic sizes (nv,) of the velocities, in their units."""
    return scales(at.system, at.system.names.velocity_units, at.v.shape[0], at.v.dtype)


def _limits(at: Evaluation, v: Velocity, here: Linearization) -> tuple[Any, Any]:
    """Return the residuals (nc,) that count as zero, and the mask of hard rows (nc,)."""
    rows = scales(at.system, at.system.names.row_units, here.jacobian.shape[0], v.dtype)
    limit = default_tolerance(v.dtype) * rows * (1.0 + jnp.max(jnp.abs(v) / _speeds(at), initial=0.0))
    return limit, jnp.ones((), bool) if here.compliance is None else here.compliance == 0.0


def _met(at: Evaluation, v: Velocity, limit: Any, hard: Any) -> Any:
    """Return whether a velocity satisfies all hard rows of a system ()."""
    return ~jnp.any(hard & (jnp.abs(at.with_velocities(v).velocity) > limit))


def _left(at: Evaluation, v: Velocity, here: Linearization) -> Any:
    """Return which hard rows (nc,) the velocity v violates, from the terms at the desired velocity."""
    limit, hard = _limits(at, v, here)
    return hard & (jnp.abs(at.velocity + here.jacobian.times(v - at.v)) > limit)


def _status(at: Evaluation, v: Velocity, here: Linearization, curved: Curved | None) -> Count:
    """Return the status of the feasible velocity v for the desired velocity of a state."""
    wanted, residual = at.v, at.velocity
    found = jnp.all(jnp.isfinite(v)) | ~(jnp.all(jnp.isfinite(wanted)) & jnp.all(jnp.isfinite(residual)))
    limit, hard = _limits(at, v, here)
    conflict = jnp.any(_left(at, v, here))
    if curved is not None:
        # The linearization at a rate where curved rows are stationary has no solution, regardless of the
        # rows' values.
        found &= curved.flat | curved.bent | ~conflict
    if residual.shape[0]:
        blocked, reliable = _freedom(at, v, here)
        conflict |= blocked
        found &= reliable
    met = _met(at, v, limit, hard)
    if curved is not None:
        conflict, met = conflict & ~curved.bent, met & curved.settled
        # A non-finite rate or diverging iterations, not a singular matrix, are the cause.
        found |= ~jnp.all(jnp.isfinite(wanted)) | (curved.bent & ~jnp.all(jnp.isfinite(v)))
    status: Any = jnp.where(
        conflict, Status.CONFLICTING_ROWS, jnp.where(met, Status.OK, Status.NOT_CONVERGED)
    )
    told: Any = jnp.where(found, status, Status.SINGULAR)
    return told.astype(jnp.int32)


def _in_general_position(size: int, dtype: Any) -> Velocity:
    """Return a generic velocity (nv,), which no rows block or allow by coincidence."""
    return jnp.asarray(np.cos(1.0 + np.arange(size)), dtype)


def determines(found: Callable[[Velocity], Velocity], size: int, dtype: Any) -> Any:
    """Return whether rows determine velocities (): whether row values identify a generic velocity.

    Args:
        found: function of a velocity (nv,) that returns the solver's reconstruction from the row values.
        size: nv.
        dtype: of velocities.
    """
    probe = _in_general_position(size, dtype)
    return jnp.max(jnp.abs(found(probe) - probe), initial=0.0) <= float(jnp.finfo(dtype).eps) ** 0.25


def _freedom(at: Evaluation, v: Velocity, here: Linearization) -> tuple[Any, Any]:
    """Return whether rows block all motion although the rate is nonzero, and whether the solver is reliable.

    The first result also requires that the rows would block any other rate. The solver with its own notion of
    rank answers this: it projects a generic velocity. Coordinates that appear in no row, such as the angles
    of steered wheels, are always free, and are left out. A second projection must not change the result of
    the first. If it does, a solver that needs full rank has amplified rounding errors of nearly dependent
    rows, and is unreliable.
    """
    wanted, speeds = at.v, _speeds(at)
    probe = jnp.where(here.jacobian.touched(), speeds * _in_general_position(v.shape[0], v.dtype), 0.0)

    def projected(x: Velocity) -> Velocity:
        return (
            x
            + solve(here.factors, here.mass, here.jacobian, here.compliance, None, -here.jacobian.times(x))[0]
        )

    def size(x: Velocity) -> Any:
        return jnp.max(jnp.abs(x) / speeds)

    left = projected(probe)
    small = float(jnp.finfo(v.dtype).eps) ** 0.5
    stopped = size(left) <= small
    blocked = stopped & (size(v) <= small * size(wanted)) & jnp.any(wanted != 0.0)
    reliable = stopped | (size(projected(left) - left) <= 1e-3 * size(left))
    if here.compliance is not None:  # Each projection of soft rows reduces the velocity again.
        reliable |= jnp.any((here.compliance > 0.0) & (here.jacobian.row_sizes() > 0.0))
    return blocked, reliable


@jax.jit
def unprojected_rate(system: Any, state: State, u: Input, solver: Any) -> Velocity:
    """Return the rate (nv,) without position-level rows, which the step enforces.

    Velocity-level rows remain part of the differential equation, because no root finding for positions could
    enforce them.

    Args:
        system: the kinematic system.
        state: time (s) and coordinates.
        u: input (nu,).
        solver: a saddle-point solver, for the velocity-level rows.
    """
    at = _at_rate(system.at_input(u), state, u)
    leading, trailing = at.position.shape[0], at.velocity_constraint.shape[0]
    if trailing == 0:
        return at.v
    return _nearest(Masked(at.system, jnp.arange(leading + trailing) >= leading).around(at), solver)[0]


def _at_rate(system: Any, state: State, u: Input) -> Evaluation:
    """Return the terms at the desired velocity."""
    check_fit(system, state)
    with jax.named_scope("rate"):
        wanted = checked(
            "rate(t, x, u)", wanted_rate(system, state.t, state.q, u), state.v.shape, state.q.dtype
        )
    return system.evaluate(state.t, state.q, wanted)


def _nearest(at: Evaluation, solver: Any) -> tuple[Velocity, Rows, Linearization, Curved | None]:
    """Return the feasible velocity nearest to the velocity of an evaluation, and the multipliers.

    The function also returns the linearization, and information about rows that may be curved,
    None if all rows are affine.
    """
    with jax.named_scope("saddle_point"):
        here = linearize_at(at, solver)
        change, lam = solve(here.factors, here.mass, here.jacobian, here.compliance, None, -at.velocity)
    state = State(at.t, at.q, at.v)
    if has_affine_rows(at.system, state):
        return at.v + change, lam, here, None
    with jax.named_scope("curved_rows"):
        v, lam, curved = on_curved_rows(at.system, state, here, at.v + change, lam)
    return v, lam, here, curved
