"""Least squares on the manifold of closed loops: the iteration and the derivative of inverse kinematics.

With the loop rows g(t, q), the residuals e(q) of the targets times the roots of their weights, and the gaps
c(q) of limits, the solution is, in this order of priority,

    g = 0 and c >= 0,      |e| minimal,      |x| minimal,      x = q (-) q_start.                       (1)

The last condition applies if e = 0 can be reached and leaves free directions. Lengths are relative to the
characteristic length.

*Iteration.* Let h be the hard rows: g and the active gaps. With H = dh/dxi, P = H^+, N = I - P H, E = de/dxi,

    step = -P h - N (E N)^+_mu (e - E P h),                                                              (2)

where (.)^+_mu is the damped pseudoinverse of Levenberg and Marquardt. Bjorck calls (2) the null-space method
for least squares with equality constraints. P is damped in the same way while h is open, and the targets then
do not matter. The new point is retracted onto h = 0 by the iteration q <- q (+) -P h with constant P. All
points are therefore on the manifold, and steps are short, so the solution stays on the branch that is
connected with the start. An active-set method treats the gaps: a step ends at the first limit that it meets,
whose gap becomes a hard row. Gaps whose multipliers have the wrong sign are released. If e = 0 is reached and
directions are free, e joins h, and x takes the place of e.

*Singular configurations.* If [g; e] has as many rows as there are velocities, the sign of the determinant of
its Jacobian changes where the path crosses a singular configuration.

*Derivative.* The solution satisfies the stationarity of the Lagrange function

    L = |s|^2 / 2 + lam^T h,      s = e, or s = x with e among the rows h,                               (3)

and h = 0. With K = d^2 L / dxi^2, the implicit function theorem gives

    [K  H^T] [dxi ]     [d(dL/dxi)]
    [H   0 ] [dlam] = - [dh       ],                                                                     (4)

where the right-hand side is the change with respect to parameters, targets and start. The pseudoinverse of
the matrix allows dependent rows of constant rank.

References:
    A. Bjorck, "Numerical Methods for Least Squares Problems" (1996), sections 5.1 and 9.2. P.-A. Absil, R.
    Mahony, R. Sepulchre, "Optimization Algorithms on Matrix Manifolds" (2008), section 8.4, for least squares
    on manifolds. J. Nocedal, S. J. Wright, "Numerical Optimization" (2006), section 16.5, for active sets,
    and theorem 12.1 and section 18.1 for the conditions (3) and the matrix (4).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.sharding import varying_with
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.linalg.singular_values import svd
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf

ITERATIONS = 200
_DAMPING = 1e-3
_SLOW = 0.7
"""Factor of the damping after a step that is accepted, above `_DAMPING`; 0.1 below.

Targets out of reach need a nearly constant damping. Of 47 targets out of reach of a Delta robot, 34 need more
than 200 iterations with a factor of 0.1 throughout, and one with 0.7. Targets in reach take 7 in both cases.
"""
_LONGEST = 0.3
"""The longest step in rad and characteristic lengths, a fraction of a turn: steps stay on their branch."""
_RETRACTIONS = 10


@pytree
class Problem:
    """The data of (1) for a pose of a mechanism.

    Attributes:
        mechanism: the mechanism.
        targets: the targets.
        weights: one weight () per target.
        lower: lower limits (k,) of named coordinates.
        upper: upper limits (k,).
        t: the time.
        start: coordinates (nq,).
        places: the indices of the named coordinates in q (static).
        own_limits: whether the joint limits of the mechanism apply (static).
    """

    closest = True
    """Whether |x| is minimized where e = 0 leaves free directions."""

    mechanism: Any
    targets: tuple[Any, ...]
    weights: tuple[Leaf, ...]
    lower: Leaf
    upper: Leaf
    t: Leaf
    start: Leaf
    places: tuple[int, ...] = static(default=())
    own_limits: bool = static(default=True)

    def errors(self, q: Array) -> Array:
        """Return the residuals (m,) of all targets in m and rad."""
        frames = self.mechanism.frames(q)
        return jnp.concatenate([target.error(self.mechanism, frames, q) for target in self.targets])

    def moved(self, q: Array, xi: Array) -> Array:
        """Return q after a displacement xi (nv,) relative to `columns`."""
        return self.mechanism.retract(q, self.columns * xi)

    def away(self, q: Array) -> Array:
        """Return the displacement (nv,) from the start to q, relative to `columns`."""
        return self.mechanism.difference(self.start, q) / self.columns

    def rows(self, q: Array) -> Rows:
        """Return all rows at q, relative to their sizes."""
        rows = self.measured(q)
        return Rows(rows.loops / self.loop_sizes, rows.gaps, rows.errors / self.error_sizes)

    def measured(self, q: Array) -> Rows:
        """Return all rows at q in m and rad."""
        mechanism, t = self.mechanism, self.t
        loops, gaps = mechanism.evaluate(t, q).opening, []
        if self.own_limits and mechanism.joint_limits is not None:
            motion = mechanism.coordinates.at_rest(q)
            gaps.append(mechanism.joint_limits.gaps(mechanism.coordinates, motion, q, t))
        limited = q[jnp.asarray(self.places, int)]
        return Rows(
            loops, jnp.concatenate([*gaps, limited - self.lower, self.upper - limited]), self.errors(q)
        )

    @property
    def loop_sizes(self) -> Array:
        """The characteristic sizes of the loop rows (ng,)."""
        return self._sizes(self.mechanism.names.row_units, self.mechanism.sizes(self.start).ng)

    @property
    def error_sizes(self) -> Array:
        """The characteristic sizes of the residuals over the roots of their weights (m,)."""
        units = [target.units(self.mechanism) for target in self.targets]
        pairs = zip(units, self.weights, strict=True)
        roots = [jnp.full((len(unit),), jnp.sqrt(weight), self.start.dtype) for unit, weight in pairs]
        return self._sizes(sum(units, ()), sum(map(len, units))) / jnp.concatenate(roots)

    @property
    def columns(self) -> Array:
        """The characteristic sizes of the velocities (nv,)."""
        units = self.mechanism.names.velocity_units
        return self._sizes(units, len(units))

    def _sizes(self, units: Any, count: int) -> Array:
        return jax.lax.stop_gradient(scales(self.mechanism, units, count, self.mechanism.dtype))


class Rows(NamedTuple):
    """Loop rows (ng,), gaps (k,) and weighted residuals (m,), or their derivatives (..., nv)."""

    loops: Any
    gaps: Any
    errors: Any

    def hard(self, active: Any, reached: Any) -> Array:
        """Return h: the rows of loops, of active gaps and, if `reached`, of targets; others are zero."""
        return jnp.concatenate([self.loops, _where(active, self.gaps), _where(reached, self.errors)])


class Solution(NamedTuple):
    """The result of the iteration.

    Attributes:
        q: coordinates (nq,).
        rows: the rows at q.
        active: whether each gap (k,) is zero.
        reached: whether e = 0, so that x was minimized ().
        settled: whether the iteration converged ().
        crossed: whether it crossed a singular configuration ().
        iterations: their number ().
    """

    q: Any
    rows: Any
    active: Any
    reached: Any
    settled: Any
    crossed: Any
    iterations: Any


def _where(mask: Any, rows: Any) -> Any:
    """Return rows, with zeros in place of rows that the mask does not select."""
    mask = jnp.broadcast_to(mask, rows.shape[:1])
    return jnp.where(mask.reshape(-1, *(1,) * (rows.ndim - 1)), rows, 0.0)


def tolerance(dtype: Any) -> float:
    """Return the largest relative row that counts as zero, as in `initialize`."""
    return float(jnp.finfo(dtype).eps) ** 0.6


def scaled_inverse(matrix: Array) -> Array:
    """Return the pseudoinverse (n, m) of a matrix (m, n) with scaled rows and columns, also for m = 0."""
    if not matrix.shape[0]:
        return matrix.T
    return pseudoinverse(matrix, jax.lax.stop_gradient(rank_tolerance(matrix, tolerance(matrix.dtype))))


class _Carry(NamedTuple):
    q: Any
    rows: Any
    active: Any
    reached: Any
    damping: Any
    last: Any
    floor: Any
    side: Any
    crossed: Any
    done: Any
    count: Any


class _Step(NamedTuple):
    """The step (2) at a point.

    Attributes:
        xi: the step (nv,), relative to `columns`.
        inverse: P (nv, rows of h).
        soft: |s|^2 ().
        wrong: the active gaps (k,) that would grow if they were released.
        free: whether rows leave free directions ().
        side: the sign of the determinant of the Jacobian of [g; e] (), or 1.
        rows: the rows.
        slope: the derivatives of the gaps (k, nv).
        opening: the largest |h| ().
    """

    xi: Any
    inverse: Any
    soft: Any
    wrong: Any
    free: Any
    side: Any
    rows: Any
    slope: Any
    opening: Any


def _step(problem: Any, at: _Carry) -> tuple[_Step, _Carry]:
    """Return the step (2), from e = 0 on toward the start, and the point with its active limits."""
    still, limit = jnp.zeros_like(problem.columns), tolerance(at.q.dtype)
    slopes, rows = jax.jacfwd(lambda xi: (problem.rows(problem.moved(at.q, xi)),) * 2, has_aux=True)(still)
    # Violated limits are active from the beginning.
    at = at._replace(active=at.active | ((at.count == 0) & (rows.gaps < 0.0)))
    hard, across = rows.hard(at.active, at.reached), slopes.hard(at.active, at.reached)
    left, s, right = svd(across, full=False)
    kept = s > s[0] * rank_tolerance(across, limit)
    opening = jnp.max(jnp.abs(hard), initial=0.0)
    damping: Any = jnp.where(opening <= limit, 0.0, at.damping * s[0] ** 2)
    divisor: Any = jnp.where(kept, s**2 + damping, 1.0)
    gain: Any = jnp.where(kept, s / divisor, 0.0)
    inverse = (right.T * gain) @ left.T
    bound = right[: s.shape[0]] * kept[:, None].astype(s.dtype)

    def along(x: Array) -> Array:  # N x, or x N of a matrix x.
        return x - (x @ bound.T) @ bound

    closing = -inverse @ hard
    left, s, right = svd(along(slopes.errors), full=False)
    # Relative to E, because E N is rounding if hard rows leave no motion.
    kept_soft = s > jnp.linalg.norm(slopes.errors) * rank_tolerance(slopes.errors, limit)
    squares: Any = jnp.where(kept_soft, s**2 + at.damping * s[0] ** 2, 1.0)
    gain = jnp.where(kept_soft, s / squares, 0.0)
    onto = -right.T @ (gain * (left.T @ (rows.errors + slopes.errors @ closing)))
    away = problem.away(at.q)
    back = -along(away) / (1.0 + at.damping)
    toward: Any = jnp.where(opening <= limit, onto, 0.0)
    xi = closing + jnp.where(at.reached, back, toward)
    gradient = jnp.where(at.reached, away, slopes.errors.T @ rows.errors)
    soft = jnp.where(at.reached, jnp.sum(away**2), jnp.sum(rows.errors**2))
    # The change of |s|^2 / 2 per unit of each gap.
    change = (gradient @ inverse)[rows.loops.shape[0] :][: rows.gaps.shape[0]]
    worst: Any = jnp.where(at.active, change, 0.0)
    wrong = (worst < -limit * jnp.sqrt(soft)) & (soft > limit**2) & (opening <= limit)
    free = (jnp.sum(kept) + jnp.sum(kept_soft)) < still.shape[0]
    square = jnp.concatenate([slopes.loops, slopes.errors])
    side = jnp.sign(jnp.linalg.det(square)) if square.shape[0] == square.shape[1] else jnp.ones_like(soft)
    return _Step(xi, inverse, soft, wrong, free, side, rows, slopes.gaps, opening), at


def _no_rows(problem: Any, q: Array) -> Rows:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(problem.rows, q))


def _largest(x: Array) -> Array:
    return jnp.max(jnp.abs(x), initial=0.0)


def _until_limit(step: _Step, active: Any, xi: Array) -> tuple[Array, Array]:
    """Return the fraction of a step up to the first inactive gap that it closes, and these gaps (k,)."""
    rate = step.slope @ xi
    closing = ~active & (rate < 0.0)
    speed: Any = jnp.where(closing, -rate, 1.0)
    parts: Any = jnp.where(closing, jnp.maximum(step.rows.gaps, 0.0) / speed, jnp.inf)
    part = jnp.minimum(jnp.min(parts, initial=jnp.inf), 1.0)
    return part, (part < 1.0) & (parts <= part)


def _retracted(
    problem: Any, q: Array, xi: Array, inverse: Array, active: Any, reached: Any
) -> tuple[Array, Rows]:
    """Return q (+) xi with h = 0, by corrections with constant P, and the rows there."""
    rounding = 4.0 * float(jnp.finfo(q.dtype).eps)

    def body(carry: Any) -> Any:
        q, xi, count, _ = carry
        q = problem.moved(q, xi)
        rows = problem.rows(q)
        return q, -inverse @ rows.hard(active, reached), count + 1, rows

    start = (q, xi, jnp.zeros((), jnp.int32), _no_rows(problem, q))
    q, _, _, rows = jax.lax.while_loop(
        lambda c: (c[2] == 0) | ((c[2] < _RETRACTIONS) & (_largest(c[1]) > rounding)),
        body,
        varying_with(start, problem),
    )
    return q, rows


def iterate(problem: Any, most: Any) -> Solution:
    """Return the solution of (1) on the branch of the start after at most `most` iterations.

    Args:
        problem: a `Problem`, or another pytree with `start`, `closest`, `columns`, `rows`, `moved` and
            `away`; `solved` also needs `t`, `loop_sizes`, `error_sizes` and `errors`.
        most: the largest number of iterations.

    Not differentiable.
    """
    closed = problem.start
    eps, limit = float(jnp.finfo(closed.dtype).eps), tolerance(closed.dtype)

    def body(at: _Carry) -> _Carry:
        step, at = _step(problem, at)
        size = _largest(step.xi)
        xi = step.xi * (_LONGEST / jnp.maximum(size, _LONGEST))
        part, hits = _until_limit(step, at.active, xi)
        size = part * _largest(xi)
        trial, rows = _retracted(problem, at.q, part * xi, step.inverse, at.active, at.reached)
        opening = _largest(rows.hard(at.active, at.reached))
        soft = jnp.where(at.reached, jnp.sum(problem.away(trial) ** 2), jnp.sum(rows.errors**2))
        # Below the rounding of |s|^2, steps must shrink.
        level = (soft <= step.soft * (1.0 + 8.0 * eps)) & (size < 0.9 * at.last)
        lower = (opening <= limit) & ((soft < step.soft) | level)
        better = jnp.where(step.opening <= limit, lower, opening < step.opening)
        tiny = size <= 4.0 * eps * (1.0 + _largest(at.q))
        blocked = (part < 1.0) & (better | tiny)
        beyond = rows.gaps < -4.0 * eps * (1.0 + _largest(at.q))
        active = (at.active & ~(better & step.wrong)) | (blocked & hits) | (better & beyond)
        stopped = (tiny & ~blocked & ~jnp.any(better & beyond)) | (at.damping > 1e8)
        # A release that does not decrease |s|^2 is not repeated.
        release = stopped & jnp.any(step.wrong) & (step.soft < at.floor)
        onward = stopped & ~release & ~at.reached & step.free & (step.soft <= limit**2)
        onward = onward & problem.closest
        again = release | onward
        factor: Any = jnp.where(at.damping <= _DAMPING, 0.1, _SLOW)
        less: Any = jnp.where(at.damping < 1e-12, 0.0, factor * at.damping)
        damping: Any = jnp.where(better | blocked, less, jnp.maximum(10.0 * at.damping, 0.1 * _DAMPING))
        last: Any = jnp.where(better, size, at.last)
        turned = (step.side * at.side < 0.0) & ~at.reached
        return _Carry(
            q=jnp.where(better, trial, at.q),
            rows=jax.tree.map(lambda new, old: jnp.where(better, new, old), rows, step.rows),
            active=active & ~(release & step.wrong),
            reached=at.reached | onward,
            damping=jnp.where(again, _DAMPING, damping),
            last=jnp.where(again, jnp.inf, last),
            floor=jnp.where(release, step.soft * (1.0 - limit), at.floor),
            side=jnp.where(step.side == 0.0, at.side, step.side),
            crossed=at.crossed | turned,
            done=stopped & ~again,
            count=at.count + 1,
        )

    no = jnp.zeros((), bool)
    none = _no_rows(problem, closed)
    start = _Carry(
        q=closed,
        rows=none,
        active=none.gaps < 0.0,
        reached=no,
        damping=jnp.asarray(_DAMPING, closed.dtype),
        last=jnp.asarray(jnp.inf, closed.dtype),
        floor=jnp.asarray(jnp.inf, closed.dtype),
        side=jnp.zeros((), closed.dtype),
        crossed=no,
        done=no,
        count=jnp.zeros((), jnp.int32),
    )
    end = jax.lax.while_loop(lambda at: (at.count < most) & ~at.done, body, varying_with(start, problem))
    return Solution(end.q, end.rows, end.active, end.reached, end.done, end.crossed, end.count)


@jax.custom_jvp
def with_derivative(problem: Any, q: Array, errors: Array, active: Array, reached: Array) -> Any:
    """Return the solution and its residuals, with the derivative (4) with respect to the problem.

    Args:
        problem: the data.
        q: the solution (nq,).
        errors: the residuals (m,) in m and rad.
        active: whether each gap (k,) is zero.
        reached: whether e = 0 and |x| was minimized ().
    """
    return q, errors


@partial(with_derivative.defjvp, symbolic_zeros=True)
def _derivative(primals: Any, tangents: Any) -> Any:
    problem, _, _, active, reached = primals
    (q, errors), columns = with_derivative(*primals), problem.columns
    none, limit = jnp.zeros_like(columns), tolerance(q.dtype)
    # Numbers without a tangent are constants, which saves most of the compilation.
    leaves, structure = jax.tree.flatten(problem)
    changes = structure.flatten_up_to(tangents[0])
    varying = [k for k, change in enumerate(changes) if not isinstance(change, SymbolicZero)]

    def of(values: Any) -> Any:
        new = list(leaves)
        for k, value in zip(varying, values, strict=True):
            new[k] = value
        return jax.tree.unflatten(structure, new)

    def hard(xi: Array, problem: Any) -> Array:
        return problem.rows(problem.moved(q, xi)).hard(active, reached)

    def lagrangian(xi: Array, lam: Array, problem: Any) -> Array:
        moved = problem.moved(q, xi)
        rows = problem.rows(moved)
        soft = jnp.where(reached, jnp.sum(problem.away(moved) ** 2), jnp.sum(rows.errors**2))
        return 0.5 * soft + lam @ rows.hard(active, reached)

    def slope(xi: Array, lam: Array, problem: Any) -> Array:
        return jax.jacfwd(lagrangian)(xi, lam, problem)

    across = jax.jacfwd(hard)(none, problem)
    gradient = slope(none, jnp.zeros(across.shape[:1], q.dtype), problem)
    lam = -gradient @ pseudoinverse(across, jax.lax.stop_gradient(rank_tolerance(across, limit)))
    curvature = jax.jacfwd(slope)(none, lam, problem)
    empty = jnp.zeros((across.shape[0],) * 2, q.dtype)
    matrix = jnp.block([[curvature, across.T], [across, empty]])
    inverse = scaled_inverse(matrix)
    primal, tangent = [leaves[k] for k in varying], [changes[k] for k in varying]
    change = jax.jvp(
        lambda *x: jnp.concatenate([slope(none, lam, of(x)), hard(none, of(x))]), primal, tangent
    )[1]
    xi = -(inverse @ change)[: columns.shape[0]]
    moved = jax.jvp(lambda x: problem.moved(q, x), (none,), (xi,))[1]
    rates = jax.jvp(lambda q, *x: of(x).errors(q), (q, *primal), (moved, *tangent))[1]
    return (q, errors), (moved, rates)
