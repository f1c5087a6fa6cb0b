"""Consistent starts: positions that close the loops, and velocities that keep them closed ("assembly").

*Positions* are computed from a rough guess by Levenberg-Marquardt on g(t, q) = 0 over the free coordinates.
The step comes from a singular value decomposition of J, so that redundant rows and singular guesses do no
harm. The iteration may stall with open rows if no direction reduces their residuals to first order. Examples
are a straight chain between points that are too close, and a joint at half a turn. It then restarts once from
a slightly perturbed position. Rows that are sines of angles are replaced by the angles (`opening`), because
sines also vanish at half a turn.

*Derivatives.* The iteration itself is never differentiated. At its result q* the derivative is the derivative
of the minimum-norm correction. With P the pseudoinverse of J over the free coordinates, two steps

    q <- q - P g(t, q),      P held constant,

do not change the value, because g is zero. They carry the exact first and second derivatives of the manifold,
dq = (I - P J) dq_guess - P dg, with respect to parameters, guess and fixed values. The derivatives are exact
at constant rank, full or not.

These are the derivatives of closing once more from q*. They ignore how the path from a rough guess selects
the point on the manifold. That matters if the rows leave free coordinates a choice: if the guess is off by d,
the derivatives *along* the manifold are wrong by about d times its curvature. For a four-bar with links of 1
to 2.5 m and derivatives with respect to lengths, the error is 1 % for a guess that is off by 0.1 m, and 5 %
for 0.3 m.

*Penetration*, if `contacts` are given, is removed along the manifold (`jaxdae.dynamics.separation`). In the
derivative, the gaps of the contacts that push are rows like g.

*Velocities* are projected in the mass metric, also by the pseudoinverse,

    v = v_e - W^-1/2 (J W^-1/2)^+ [g'; w],      W = M + s J^T J,  s > 0.

Fixed velocities have neither rows nor columns in M and J: the other velocities move as if the fixed ones were
infinitely heavy. For M > 0 this is the projection with W = M for any s, and so are its derivatives:
s |J dv|^2 is the same for all corrections dv with the same J dv, so the smallest correction in W is also the
smallest in M. The term with s handles massless coordinates that the constraints determine: W > 0 as long as
every motion that the constraints allow has mass. Rows that are not affine in v use the iteration of
`jaxdae.systems.nonaffine_rows` with W = M instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief
from jaxdae.compile.precompute import prepared
from jaxdae.compile.sharding import varying_with
from jaxdae.dynamics.loop_closure_error import openings
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.dynamics.separation import gap_rows, gap_sizes, separated
from jaxdae.linalg.singular_values import svd
from jaxdae.systems.contacts import touch_of
from jaxdae.systems.evaluation import checked
from jaxdae.systems.nonaffine_rows import has_affine_rows, nearest_on_curved_rows
from jaxdae.systems.status import SimulationError, Status
from jaxdae.systems.system import AnySystem, State, check_fit, check_system, velocity_residual
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf

_ITERATIONS = 200

_DAMPING = 1e-3
_CAREFUL = 1.0
"""Damping of the first step, and of the first step after the perturbation, over the square of the largest
singular value. An undamped step along a direction that changes no row to first order is many turns long."""

_ASIDE = 0.03
"""The perturbation of a stalled iteration, in m and rad: larger than rounding, and small against the
remaining residuals."""

_NAMED = 5
"""The largest number of open joints that an error names."""


@pytree
class InitializeInfo:
    """Report on closing the loops.

    Attributes:
        violation: largest |g| () of the result, in row units; here and in `residual` angles replace their
            sines (`Joint.opening`).
        velocity_violation: largest |[g'; w]| () of the result, row units per second.
        iterations: Levenberg-Marquardt iterations ().
        status: OK; INCONSISTENT_START if rows stay open or gaps negative; or the `condition` of the system at
            the result ().
        residual: g (ng,) of the result.
        gap: gaps of contacts, then of joint limits (m + k,) of the result in m or rad; None if `initialize`
            ignored them.
    """

    violation: Leaf
    velocity_violation: Leaf
    iterations: Leaf
    status: Leaf
    residual: Leaf
    gap: Leaf = None


def initialize(
    system: AnySystem,
    q: Any,
    v: Any = None,
    *,
    t: Any = 0.0,
    fixed: Any = None,
    fixed_velocity: Any = None,
    contacts: Any = None,
    tolerance: float | None = None,
) -> tuple[State, InitializeInfo]:
    """Return a consistent start near a guess, and the remaining constraint violations.

    Args:
        system: the mechanical system.
        q: guess of the coordinates (nq,).
        v: desired velocities (nv,); zero by default. The result has the nearest consistent velocities in the
            mass metric.
        t: start time in s.
        fixed: mask (nv,) of coordinates that keep their guessed values; none by default.
        fixed_velocity: mask (nv,) of velocities that keep their values; none by default.
        contacts: True to separate bodies that penetrate and joints beyond their limits, by the smallest
            displacement of free coordinates that keeps the loops closed; for a hand-written system, pass its
            contacts instead of True, such as `contact.FunctionContacts(...)`. None to ignore contacts.
        tolerance: largest |g| that counts as closed, in rad, and in units of the characteristic length for
            rows in m; eps^0.6 by default (4e-10 in double, 7e-5 in single precision).

    Returns:
        `State` and `InitializeInfo`.

    Raises:
        SimulationError: the loops cannot be closed (the message names the rows, and the joints with their
            openings in mm and degrees); the bodies cannot be separated (the message names the contacts); or
            the closed position violates a limit of the system (`System.condition`), such as a wheel outside
            its terrain. Under `jit`, `vmap` and `grad` no error is raised; check `info.status`.
        ValueError: shapes that do not fit, or `contacts=True` for a system without contacts and limits.

    Differentiable with respect to system, q, v and t, forward and reverse, to second order. The derivative is
    exact if the guess is closed, or if the number of fixed coordinates equals the number of degrees of
    freedom. Otherwise, the derivative is the derivative of a second call that starts from the result, and
    disagrees with finite differences of the whole function. In this case, close the guess first, and
    differentiate a second call from the closed guess. If the constraints cannot be satisfied, the result is
    the best point found, with finite but meaningless derivatives. A rollout from there has the status
    INCONSISTENT_START at all entries, and its derivatives are NaN.

    Example:
        >>> start, info = jaxdae.initialize(robot, q, contacts=True)  # lifts sunken feet onto the ground
    """
    q, v, t = _checked_guess(system, q, v, t)
    held, held_velocity = (
        _checked_mask("fixed", fixed, v.shape),
        _checked_mask("fixed_velocity", fixed_velocity, v.shape),
    )
    if isinstance(tolerance, int | float) and not tolerance > 0:
        raise ValueError(f"initialize: tolerance must be positive, got {tolerance}")
    limit = float(jnp.finfo(q.dtype).eps) ** 0.6 if tolerance is None else tolerance
    separates = contacts is not None and contacts is not False
    own = None if contacts is True or not separates else contacts
    state, info = _initialize(
        system, q, v, jnp.asarray(t, q.dtype), held, held_velocity, limit, own, separates
    )
    # Under eager differentiation the status is concrete, but the values for the message are not.
    known = not any(isinstance(x, Tracer) for x in jax.tree.leaves((state, info)))
    if known and int(info.status) != Status.OK:
        raise SimulationError(_message(system, state, info, held, held_velocity, limit))
    return state, info


def _checked_guess(system: Any, q: Any, v: Any, t: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return coordinates (nq,), desired velocities (nv,) and time (), after checks.

    Raises:
        TypeError: text, a missing value, or an object that is not a system.
        ValueError: wrong shape, coordinates that are not floating point, numbers that are not finite.
    """
    for name, value in (("q", q), ("v", v), ("t", t)):
        if isinstance(value, str) or (value is None and name != "v"):
            raise TypeError(
                f"initialize: {name} must be {'a number' if name == 't' else 'a vector'}, got {brief(value)}"
            )
    q, t = jnp.asarray(q), jnp.asarray(t)
    if q.ndim != 1 or not jnp.issubdtype(q.dtype, jnp.floating):
        raise ValueError(
            f"initialize: q must be a floating-point vector, got shape {q.shape} and dtype {q.dtype}"
        )
    if t.ndim != 0:
        raise ValueError(f"initialize: t must be a single number, got shape {t.shape}")
    size = _velocities(system, q)
    v = jnp.zeros((size,), q.dtype) if v is None else jnp.asarray(v, q.dtype)
    if v.shape != (size,):
        raise ValueError(f"initialize: v must have shape {(size,)}, got {v.shape}")
    for name, value in (("q", q), ("v", v), ("t", t)):
        if not isinstance(value, Tracer) and not np.all(np.isfinite(value)):
            raise ValueError(f"initialize: {name} must be finite, got {value}")
    return q, v, t


def _checked_mask(name: str, mask: Any, shape: tuple[int, ...]) -> Any:
    """Return a mask (nv,), all false if no mask is given.

    Raises:
        ValueError: wrong shape or dtype.
    """
    mask = (
        np.zeros(shape, bool) if mask is None else mask if isinstance(mask, jax.Array) else np.asarray(mask)
    )
    if mask.shape != shape or mask.dtype != bool:
        raise ValueError(
            f"initialize: {name} must be a boolean mask of shape {shape}, got {mask.dtype}{mask.shape}"
        )
    return mask


def _velocities(system: Any, q: Any) -> int:
    """Return nv, from the shape of the mass matrix."""
    check_system(system)
    try:
        mass = jax.eval_shape(system.mass_matrix, q)
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"system.mass_matrix(q) fails for q of shape {q.shape}; check its length: {error}"
        ) from error
    return checked("mass_matrix(q)", mass, (None, None), q.dtype).shape[0]


def _message(
    system: Any, state: State, info: InitializeInfo, fixed: Any, fixed_velocity: Any, limit: Any
) -> str:
    found = Status(int(info.status))
    if found != Status.INCONSISTENT_START:
        return f"{found.name}: the constraints are closed, but {found.meaning}. Start from a different guess."
    known = system.names.filled(system.sizes(state.q))
    gap = np.zeros(0) if info.gap is None else np.asarray(info.gap)
    if info.violation <= limit and np.any(gap < -limit):
        named = [*known.contacts, *(f"joint limit {k}" for k in range(len(gap) - len(known.contacts)))]
        worst = [k for k in np.argsort(gap)[:3] if gap[k] < -limit]
        deepest = ", ".join(f"{named[k]}: {gap[k]:.3g}" for k in worst)
        return (
            f"{found.name}: the bodies cannot be separated{_held(fixed, 'coordinates')}; smallest gaps "
            f"{deepest}. Start from a better guess, or free a coordinate."
        )
    if info.violation <= limit:
        residual = np.asarray(velocity_residual(system, state))
        what, quantity, held = "velocities cannot be made consistent", "rates", (fixed_velocity, "velocities")
        remedy = "Free a velocity, or give desired velocities that the constraints allow."
    else:
        residual = np.asarray(info.residual)
        what, quantity, held = "constraints cannot be closed", "residuals", (fixed, "coordinates")
        remedy = "Check lengths and joint positions, start from a better guess, or free a coordinate."
    names = known.rows
    order = np.argsort(-np.nan_to_num(np.abs(residual), nan=np.inf))[:3]
    rows = ", ".join(f"{names[k]}: {residual[k]:.3g}" for k in order)
    wide = openings(names, known.row_units, residual, limit) if quantity == "residuals" else ()
    more = f" and {len(wide) - _NAMED} more" if len(wide) > _NAMED else ""
    stay = f". Still open: {', '.join(map(str, wide[:_NAMED]))}{more}" if wide else ""
    return f"{found.name}: the {what}{_held(*held)}; largest {quantity} {rows}{stay}. {remedy}"


def _held(fixed: Any, what: str) -> str:
    """Return the number of fixed coordinates or velocities, as text."""
    return f" with {int(np.sum(fixed))} {what} held fixed" if np.any(fixed) else ""


@partial(jax.jit, static_argnames="separates")
def _initialize(
    system: Any,
    guess: Any,
    wanted: Any,
    t: Any,
    fixed: Any,
    fixed_velocity: Any,
    limit: Any,
    contacts: Any,
    separates: bool,
) -> tuple[State, InitializeInfo]:
    check_fit(system, State(t, guess, wanted))
    system = prepared(system)
    velocity_residual(system, State(t, guess, wanted))  # For its checks; the compiler drops it.
    free = (~fixed).astype(guess.dtype)
    still: Any = jax.lax.stop_gradient
    if not system.flat:  # Normalize the quaternions.
        guess = system.retract(guess, jnp.zeros_like(wanted))
    units, length = system.names, partial(scales, still(system), dtype=guess.dtype)
    rows = jax.eval_shape(system.constraint, t, guess).shape[0]
    sizes, columns = length(units.row_units, rows), length(units.velocity_units, wanted.shape[0])
    closed, iterations = _levenberg_marquardt(
        still(system), still(guess), still(t), free, limit, sizes, columns
    )
    moving, pushing = free * columns, None
    if separates:
        closed, pushing = separated(still(system), still(contacts), still(t), closed, moving, sizes, limit)
    # Same value as `closed`, same derivative as the guess.
    q = closed + (guess - still(guess))
    if rows or (pushing is not None and pushing.shape[0]):
        q = _corrected(system, contacts, t, q, moving, sizes, limit, pushing)
    at = system.evaluate(t, q, wanted)
    v = _consistent_velocity(at, (~fixed_velocity).astype(guess.dtype), limit)
    state, at = State(t, q, v), at.with_velocities(v)
    residual, rate = at.opening, at.velocity
    violation = jnp.max(jnp.abs(residual)) if rows else jnp.zeros((), q.dtype)
    velocity_violation = jnp.max(jnp.abs(rate)) if rate.shape[0] else jnp.zeros((), q.dtype)
    scale = 1.0 + jnp.max(jnp.abs(wanted / columns), initial=0.0)
    open_by = jnp.max(jnp.abs(residual) / sizes, initial=0.0)
    rate_by = jnp.max(jnp.abs(rate) / length(units.row_units, rate.shape[0]), initial=0.0)
    gap, apart = None, True
    if separates:
        touch = touch_of(contacts, at, "initialize")
        gap, apart = touch.gap, jnp.all(touch.gap >= -limit * gap_sizes(still(system), touch))
    holds = apart & (open_by <= limit) & (rate_by <= limit**0.5 * scale) & jnp.all(jnp.isfinite(v))
    condition = system.condition(t, q)
    closed: Any = jnp.asarray(Status.OK if condition is None else condition, jnp.int32)
    status = jnp.where(holds, closed, jnp.asarray(Status.INCONSISTENT_START, jnp.int32))
    return state, InitializeInfo(violation, velocity_violation, iterations, status, residual, gap)


def _corrected(
    system: Any, contacts: Any, t: Any, q: Any, columns: Any, sizes: Any, limit: Any, pushing: Any
) -> Any:
    """Return q after two corrections of the rows of g, and of the gaps that push.

    Args:
        system: the system.
        contacts: contacts of a hand-written system, or None.
        t: the time.
        q: closed coordinates (nq,).
        columns: the characteristic sizes of the velocities (nv,), zero for fixed coordinates.
        sizes: the characteristic sizes of the rows (ng,).
        limit: the largest relative residual that counts as closed.
        pushing: which gaps push (m + k,); None without contacts.
    """
    still: Any = jax.lax.stop_gradient

    def residual(at: Any) -> Any:
        closing = at.position / sizes
        if pushing is None:
            return closing
        touch = touch_of(contacts, at, "initialize")
        return jnp.concatenate(
            [closing, jnp.where(pushing, touch.gap, 0.0) / gap_sizes(still(system), touch)]
        )

    at = system.evaluate(t, q, jnp.zeros_like(columns))
    jacobian = at.dense_jacobian[: sizes.shape[0]] * columns / sizes[:, None]
    if pushing is not None:
        touch = touch_of(contacts, at, "initialize")
        lifting = gap_rows(touch) / gap_sizes(still(system), touch)[:, None]
        lifted: Any = jnp.where(pushing[:, None], lifting * columns, 0.0)
        jacobian = jnp.concatenate([jacobian, lifted])
    inverse = still(pseudoinverse(still(jacobian), rank_tolerance(still(jacobian), limit)))
    # If the loops stay open, return the best point found unchanged: it does not lie on the manifold.
    left = residual(at)
    reached = jnp.max(jnp.abs(still(left))) <= jnp.sqrt(jnp.asarray(limit, q.dtype))

    def corrected(q: Any, left: Any) -> Any:
        correction: Any = jnp.where(reached, inverse @ left, 0.0)
        return system.retract(q, -columns * correction)

    q = corrected(q, left)
    return corrected(q, residual(system.evaluate(t, q)))


def _levenberg_marquardt(
    system: Any, guess: Any, t: Any, free: Any, limit: Any, sizes: Any, columns: Any
) -> tuple[Any, Any]:
    """Return coordinates that minimize |g / sizes| near the guess, and the number of iterations.

    Steps are relative to `columns`.
    """
    rows = jax.eval_shape(system.constraint, t, guess).shape[0]
    if rows == 0:
        return guess, jnp.zeros((), jnp.int32)
    at_rest = jnp.zeros_like(free)

    def jacobian(at: Any) -> Any:
        if not at.turns_over:
            return at.dense_jacobian[:rows]
        return jax.jacfwd(lambda xi: system.evaluate(t, system.retract(at.q, xi)).opening)(at_rest)

    eps = float(jnp.finfo(guess.dtype).eps)

    def residual(q: Any) -> Any:
        return system.evaluate(t, q).opening / sizes

    def proposal(q: Any, damping: Any) -> Any:
        at = system.evaluate(t, q, at_rest)
        rows = jacobian(at) * (free * columns) / sizes[:, None]
        left, s, right = svd(rows, full=False)
        kept = s > s[0] * rank_tolerance(rows, limit)
        gain = jnp.where(kept, s / (s**2 + damping * s[0] ** 2), 0.0)
        return -columns * (right.T @ (gain * (left.T @ (at.opening / sizes))))

    # If the sum of squares is larger, a row is open.
    largest = rows * jnp.asarray(limit, guess.dtype) ** 2
    # Cosines of integers break any symmetry of the mechanism.
    aside = _ASIDE * free * columns * jnp.cos(jnp.arange(free.shape[0], dtype=free.dtype))

    def body(carry: Any) -> Any:
        q, damping, error, count, _, rest, tried = carry
        step = proposal(q, damping)
        trial = system.retract(q, step)
        new_error = jnp.sum(residual(trial) ** 2)
        better = new_error < error
        settled = jnp.max(jnp.abs(step) / columns) <= 4.0 * eps * (1.0 + jnp.max(jnp.abs(q)))
        q: Any = jnp.where(better, trial, q)
        error: Any = jnp.where(better, new_error, error)
        less: Any = jnp.where(damping < 1e-12, 0.0, damping * 0.1)
        damping: Any = jnp.where(better, less, jnp.maximum(10.0 * damping, 1e-8))
        done = settled | (damping > 1e8)
        again = done & ~tried & (error > largest)
        rest = jnp.where(again, q, rest)
        q, error = jnp.where(again, system.retract(q, aside), q), jnp.where(again, jnp.inf, error)
        return q, jnp.where(again, _CAREFUL, damping), error, count + 1, done & ~again, rest, tried | again

    start_error = jnp.sum(residual(guess) ** 2)
    counters = jnp.zeros((), jnp.int32), start_error == 0.0
    start = (guess, jnp.asarray(_DAMPING, guess.dtype), start_error, *counters, guess, jnp.zeros((), bool))
    q, _, error, count, _, rest, tried = jax.lax.while_loop(
        lambda c: (c[3] < _ITERATIONS) & ~c[4], body, varying_with(start, system, t, free)
    )
    # Keep the perturbed iteration only if it closes the rows; otherwise the earlier result is as good.
    return jnp.where(tried & ~(error <= largest), rest, q), count


def _consistent_velocity(at: Any, free: Any, limit: Any) -> Any:
    """Return the velocities nearest to those of an evaluation in the mass metric, with [g'; w] = 0."""
    residual, system, state = at.velocity, at.system, State(at.t, at.q, at.v)
    if residual.shape[0] == 0:
        return state.v
    moving, mass = at.dense_jacobian * free, at.mass.as_dense()
    if not has_affine_rows(system, state):
        # W = M, because on curved rows s |J dv|^2 differs between corrections.
        held = jnp.diag((1.0 - free) * jnp.mean(jnp.diag(mass)))
        return nearest_on_curved_rows(system, state, mass * free[:, None] * free + held, free)
    lower = jnp.linalg.cholesky(_weight(mass, moving, free))
    scaled = jax.scipy.linalg.solve_triangular(lower, moving.T, lower=True).T
    xi = pseudoinverse(scaled, jax.lax.stop_gradient(rank_tolerance(moving, limit))) @ residual
    return state.v - free * jax.scipy.linalg.solve_triangular(lower, xi, lower=True, trans=1)


def _weight(mass: Any, jacobian: Any, free: Any) -> Any:
    """Return W = M + s J^T J (nv, nv) over free velocities; s makes both terms equally large.

    Fixed velocities are decoupled.
    """
    mass = mass * free[:, None] * free
    sizes = jax.lax.stop_gradient((jnp.trace(mass), jnp.sum(jacobian**2)))
    total, rows = (jnp.where(size > 0.0, size, 1.0) for size in sizes)
    return mass + (total / rows) * (jacobian.T @ jacobian) + jnp.diag(total * (1.0 - free))
