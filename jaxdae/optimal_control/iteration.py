"""The iteration that all methods share: expand, sweep, try, and update multipliers of violated constraints.

One pass of the loop has these steps:

1. Expand the problem about the trajectory, if the trajectory has moved.
2. Sweep with the damping mu, or with more damping if the problem is not positive definite.
3. At a stationary trajectory, stop, or update the multipliers if constraints are violated. Otherwise try the
   fractions 1, 1/2, 1/4, ... of the change. Accept the first trial that decreases the merit function by a
   ten-thousandth of the decrease that the quadratic model predicts.
4. Adapt mu. After an accepted fraction of 1 or 1/2, decrease mu, by a factor that grows with each consecutive
   decrease. After a rejection, or an accepted fraction of at most 1/8, increase mu in the same way (after
   Tassa, Erez, Todorov 2012).

A trajectory is stationary if no input change within the limits decreases the cost J. The test has two
conditions. The projected gradient, the largest |dJ/du| of entries that are not at a limit or can leave it
downhill, is at most  tolerance (1 + |J|).  The largest gap is at most the feasibility tolerance. A maximum or
a saddle is also stationary: the iteration stops at a guess exactly on one. For a negative cost, |J| counts at
most as the |J| of the guess. Otherwise a cost without a lower bound would seem to converge. With constraints
J is the augmented Lagrangian. Its tolerance is loose at first and decreases to a tenth with every update of
the multipliers. The penalty grows tenfold if the violation did not decrease to a quarter.

Trials with a failed step or a cost that is not finite have infinite cost.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.control.regulator import TrajectoryFeedback
from jaxdae.optimal_control.augmented_lagrangian import (
    Multipliers,
    merit,
    no_multipliers,
    total_cost,
    updated,
    violation,
)
from jaxdae.optimal_control.backward_sweep import Sweep, sweep
from jaxdae.optimal_control.expansion import Curvature, Expansion, expand
from jaxdae.optimal_control.problem import Problem, begin_status, is_ok, motion_stability
from jaxdae.optimal_control.shooting import Shooting, Trial, attempt, between, motion
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import State
from jaxdae.typing import Leaf

_SHARE = 1e-4
"""Fraction of the predicted decrease that a trial must achieve (Armijo)."""
_HALVINGS = 5
_LONG, _SHORT = 0.5, 0.125
"""Smallest fraction of a change that decreases the damping, and largest fraction that increases it."""
_LEAST, _MOST = 1e-6, 1e10
"""Smallest nonzero and largest damping; smaller values become zero."""
_LOOSE = 1e-2
"""Tolerance for the first multipliers, relative to 1 + |J|."""
_GROWTH, _FALL = 10.0, 0.25
"""Growth factor of the penalty; largest ratio of violations without growth."""
_HIGHEST = 1e10
"""Largest penalty. If it is exceeded, the violated constraints contradict each other, or the limits."""


@pytree
class Options:
    """Parameters of the iteration.

    Attributes:
        tolerance: tolerance of the projected gradient, relative to 1 + |J|.
        feasibility: tolerance of constraints and gaps.
        damping: initial mu.
        penalty: initial r.
        enough: a cost J at which the iteration may stop before the minimum, with the constraints satisfied.
    """

    tolerance: Leaf
    feasibility: Leaf
    damping: Leaf
    penalty: Leaf
    enough: Leaf


@pytree
class History:
    """State of every pass of the iteration before its move; NaN after the last pass.

    Attributes:
        cost: J () without constraints (iterations,).
        gradient: the projected gradient.
        violation: the largest constraint violation.
        gap: the sum of all gaps.
        step: the accepted fraction; 0 if no trial was accepted, and for updates of the multipliers.
        damping: mu.
    """

    cost: Leaf
    gradient: Leaf
    violation: Leaf
    gap: Leaf
    step: Leaf
    damping: Leaf


@pytree
class Solution:
    """The result of a solver.

    Attributes:
        states: a stacked `State` (stages + 1, ...), the start first.
        controls: inputs of the stages (stages, nu); `problem.held(controls)` returns the inputs of all steps.
        gains: (stages, nu, 2 nv): u_k + gains (q - q_k, v - v_k) is the response to small deviations, optimal
            to first order with `Curvature.EXACT`. The gains belong to the last expanded trajectory: if the
            status is not OK, this is the previous trajectory.
        multipliers: multipliers of the constraints.
        cost: J (), without constraints; NaN if the guess fails.
        gradient: the projected gradient ().
        violation: the largest violation |h| or c ().
        gap: the largest gap () between stages.
        iterations: the number of passes ().
        status: OK, NOT_CONVERGED, UNSTABLE if steps of the solution exceed the stability limit for the
            forces, or the reason why the guess fails ().
        history: the `History` of all passes.
        feedback_period: the duration of a stage in s.
    """

    states: Leaf
    controls: Leaf
    gains: Leaf
    multipliers: Leaf
    cost: Leaf
    gradient: Leaf
    violation: Leaf
    gap: Leaf
    iterations: Leaf
    status: Leaf
    history: Leaf
    feedback_period: Leaf

    def feedback(self, problem: Problem) -> TrajectoryFeedback:
        """Return the feedback law that holds a system on this trajectory at minimal cost.

        Use it in `Sampled(integrator, law, every)`.
        """
        states = self.states
        return TrajectoryFeedback(
            problem.system,
            states.q,
            states.v,
            self.controls,
            -self.gains,
            jnp.asarray(problem.state.t),
            self.feedback_period,
        )


@pytree
class _At:
    """State of the iteration.

    Attributes:
        trial: the trajectory.
        value: J (), including the constraint terms.
        first: |J| of the guess ().
        multipliers: multipliers of the constraints.
        expansion: expansion about the trajectory, or about the previous trajectory if it moved.
        swept: the last sweep.
        moved: whether the trajectory differs from the trajectory of the expansion.
        damping: mu.
        growth: last factor of mu.
        weight: weight of the gaps.
        target: tolerance for the current multipliers.
        open: the violation at the last update of the multipliers.
        gradient: the projected gradient.
        count: number of passes.
        done: whether the iteration has ended.
        status: status of the solution.
        history: `History` of the passes.
    """

    trial: Leaf
    value: Leaf
    first: Leaf
    multipliers: Leaf
    expansion: Leaf
    swept: Leaf
    moved: Leaf
    damping: Leaf
    growth: Leaf
    weight: Leaf
    target: Leaf
    open: Leaf
    gradient: Leaf
    count: Leaf
    done: Leaf
    status: Leaf
    history: Leaf


@partial(jax.jit, static_argnames=("iterations", "curvature"))
def solve(
    problem: Problem,
    shooting: Shooting,
    controls: Array,
    states: State | None,
    options: Options,
    multipliers: Multipliers | None = None,
    *,
    iterations: int,
    curvature: Curvature,
) -> Solution:
    """Return the solution from a guess, for a problem from `checked_problem`.

    Args:
        problem: the problem, with its dimension counted.
        shooting: the method for trials.
        controls: the guess (stages, nu), clipped to the limits.
        states: the guess of the states; None for the motion under the inputs.
        options: parameters of the iteration.
        multipliers: multipliers from an earlier solution; None for zero.
        iterations: the maximum number of passes.
        curvature: the second derivatives to use.
    """
    limits = problem.limits(controls) if problem.limited else None
    controls = controls if limits is None else jnp.clip(controls, *limits)
    begun = begin_status(problem, controls)
    finite: Any = jnp.where(jnp.all(jnp.isfinite(controls)), begun, Status.NONFINITE)
    begun = finite.astype(jnp.int32)
    trial = motion(problem, controls, begun) if states is None else between(problem, states, controls)
    trial = dataclasses.replace(trial, status=jnp.where(is_ok(begun), trial.status, begun))
    at = _begin(problem, trial, options, multipliers, iterations, curvature)

    def going(at: _At) -> Array:
        return (at.count < iterations) & ~at.done

    at = jax.lax.while_loop(going, partial(_pass, problem, shooting, limits, options, curvature), at)
    cost = total_cost(problem, at.trial.states, at.trial.controls)
    failed = ~is_ok(trial.status)
    starts = jax.tree.map(lambda x: x[:-1], at.trial.states)
    period = problem.every * jnp.asarray(problem.dt, controls.dtype)
    bases = at.expansion.charts.basis[:-1]
    return Solution(
        states=at.trial.states,
        controls=at.trial.controls,
        gains=at.swept.gain @ jnp.swapaxes(bases, 1, 2),
        multipliers=at.multipliers,
        cost=jnp.where(failed, jnp.nan, cost),
        gradient=at.gradient,
        violation=violation(problem, at.trial.states, at.trial.controls),
        gap=jnp.max(at.trial.gaps),
        iterations=at.count,
        status=first_failure(at.status, motion_stability(problem, starts, at.trial.controls)),
        history=at.history,
        feedback_period=period,
    )


def _begin(
    problem: Problem, trial: Trial, options: Options, multipliers: Any, iterations: int, curvature: Curvature
) -> _At:
    controls = trial.controls
    zero = jnp.zeros((), controls.dtype)
    multipliers = no_multipliers(problem, controls, options.penalty) if multipliers is None else multipliers
    dimension = dimension_of(problem)

    def shapes() -> Any:
        at = expand(problem, multipliers, trial.states, controls, curvature, dimension)
        limits = problem.limits(controls) if problem.limited else None
        return at, sweep(at, controls, limits, zero)

    expansion, swept = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(shapes))
    value = merit(problem, multipliers, trial.states, controls)
    bad: Any = jnp.where(is_ok(trial.status), Status.NONFINITE, trial.status)
    good = is_ok(trial.status) & jnp.isfinite(value)
    status: Any = jnp.where(good, Status.NOT_CONVERGED, bad)
    empty = jnp.full((iterations,), jnp.nan, controls.dtype)
    return _At(
        trial=trial,
        value=value,
        first=jnp.abs(value),
        multipliers=multipliers,
        expansion=expansion,
        swept=swept,
        moved=jnp.ones((), bool),
        damping=jnp.asarray(options.damping, controls.dtype),
        growth=zero + 1.0,
        weight=zero,
        target=jnp.maximum(options.tolerance, _LOOSE) if problem.constrained else zero + options.tolerance,
        open=zero + jnp.inf,
        gradient=zero + jnp.inf,
        count=jnp.zeros((), jnp.int32),
        done=~good,
        status=status.astype(jnp.int32),
        history=History(empty, empty, empty, empty, empty, empty),
    )


def dimension_of(problem: Problem) -> int:
    """Return the counted dimension of a problem."""
    if problem.dimension is None:
        raise ValueError("Problem.dimension is unknown here; pass problem.counted()")
    return problem.dimension


def projected(limits: tuple[Array, Array] | None, controls: Array, gradient: Array) -> Array:
    """Return the largest |dJ/du| () of inputs that can move downhill within the limits."""
    if limits is not None:
        stuck = ((controls <= limits[0]) & (gradient > 0.0)) | ((controls >= limits[1]) & (gradient < 0.0))
        gradient = jnp.where(stuck, 0.0, gradient)
    return jnp.max(jnp.abs(gradient))


def _pass(
    problem: Problem, shooting: Shooting, limits: Any, options: Options, curvature: Curvature, at: _At
) -> _At:
    states, controls = at.trial.states, at.trial.controls

    def anew() -> Expansion:
        return expand(problem, at.multipliers, states, controls, curvature, dimension_of(problem))

    expansion = jax.lax.cond(at.moved, anew, lambda: at.expansion)
    swept, used, growth = _swept(expansion, controls, limits, at)
    gradient = projected(limits, controls, expansion.gradient)
    gaps = jnp.linalg.norm(expansion.gap, axis=1)
    opened = violation(problem, states, controls)
    scale = 1.0 + jnp.maximum(at.value, jnp.minimum(-at.value, at.first))
    closed = jnp.max(gaps) <= options.feasibility
    resting = (gradient <= options.tolerance * scale) | (at.value <= options.enough)
    done = closed & resting & (opened <= options.feasibility)
    at = dataclasses.replace(
        at,
        expansion=expansion,
        swept=swept,
        gradient=gradient,
        moved=jnp.zeros((), bool),
        damping=used,
        growth=growth,
    )
    step = jnp.zeros_like(at.value)

    def move() -> tuple[_At, Array]:
        return _move(problem, shooting, limits, at, gaps)

    if problem.constrained:
        rested = closed & (gradient <= at.target * scale)
        new, step = jax.lax.cond(
            done,
            lambda: (at, step),
            lambda: jax.lax.cond(rested, lambda: (_raise(problem, options, at, opened), step), move),
        )
    else:
        new, step = jax.lax.cond(done, lambda: (at, step), move)
    found = History(total_cost(problem, states, controls), gradient, opened, jnp.sum(gaps), step, used)
    history = jax.tree.map(lambda all_, one: all_.at[at.count].set(one), at.history, found)
    status: Any = jnp.where(done, Status.OK, new.status)
    return dataclasses.replace(
        new, history=history, count=at.count + 1, done=new.done | done, status=status.astype(jnp.int32)
    )


def _swept(expansion: Expansion, controls: Array, limits: Any, at: _At) -> tuple[Sweep, Array, Array]:
    """Return a sweep, its damping and the growth factor.

    The damping is the damping of the iteration, or the first larger value with which the sweep succeeds.
    """

    def again(carried: Any) -> Any:
        _, _, _, damping, growth = carried
        grown = jnp.maximum(2.0, 2.0 * growth)
        return (
            sweep(expansion, controls, limits, damping),
            damping,
            growth,
            jnp.maximum(damping * grown, _LEAST),
            grown,
        )

    failed = dataclasses.replace(at.swept, good=jnp.zeros((), bool))
    begin = (failed, at.damping, at.growth, at.damping, at.growth)
    with jax.named_scope("sweep"):
        swept, damping, growth, _, _ = jax.lax.while_loop(
            lambda x: ~x[0].good & (x[3] <= _MOST), again, begin
        )
    return swept, damping, growth


def _raise(problem: Problem, options: Options, at: _At, opened: Array) -> _At:
    """Return the iteration with updated multipliers."""
    states, controls, r = at.trial.states, at.trial.controls, at.multipliers.penalty
    slow = opened > jnp.maximum(_FALL * at.open, options.feasibility)
    multipliers = updated(problem, at.multipliers, states, controls, jnp.where(slow, _GROWTH * r, r))
    value = merit(problem, multipliers, states, controls)
    target = jnp.maximum(options.tolerance, 0.1 * at.target)
    hopeless = multipliers.penalty > _HIGHEST
    return dataclasses.replace(
        at,
        multipliers=multipliers,
        value=value,
        target=target,
        open=opened,
        moved=jnp.ones((), bool),
        done=hopeless,
    )


def _move(problem: Problem, shooting: Shooting, limits: Any, at: _At, gaps: Array) -> tuple[_At, Array]:
    """Return the iteration after trials, and the accepted fraction."""
    states, controls = at.trial.states, at.trial.controls
    to = shooting.direction(at.expansion, at.swept, controls, limits, at.weight)
    eps = float(jnp.finfo(controls.dtype).eps)
    before = at.value + to.weight * jnp.sum(gaps)
    # Rounding error of a sum of this size, so that rounding does not reject the last steps.
    slack = 8.0 * eps * (1.0 + jnp.abs(before))

    def trial(part: Array) -> tuple[Trial, Array, Array]:
        tried = attempt(problem, shooting, at.expansion, at.swept, states, controls, limits, part)
        value = merit(problem, at.multipliers, tried.states, tried.controls)
        weighed = value + to.weight * jnp.sum(tried.gaps)
        promised = jnp.minimum(0.0, part * to.promised[0] + part**2 * to.promised[1])
        taken = is_ok(tried.status) & jnp.isfinite(weighed) & (weighed <= before + _SHARE * promised + slack)
        return tried, value, taken

    def again(carried: Any) -> Any:
        part, _, _, _, halvings = carried
        return (0.5 * part, *trial(0.5 * part), halvings + 1)

    with jax.named_scope("trials"):
        begin = (
            jnp.full_like(at.value, 2.0),
            at.trial,
            at.value,
            jnp.zeros((), bool),
            jnp.zeros((), jnp.int32),
        )
        part, tried, value, taken, _ = jax.lax.while_loop(
            lambda x: at.swept.good & ~x[3] & (x[4] <= _HALVINGS), again, begin
        )
    kept = jax.tree.map(partial(jnp.where, taken), tried, at.trial)
    # A full step shows that the model is good and needs less damping; a short step shows the opposite.
    less, more = taken & (part >= _LONG), ~taken | (part <= _SHORT)
    shrunk, grown = jnp.minimum(0.5, 0.5 * at.growth), jnp.maximum(2.0, 2.0 * at.growth)
    growth: Any = jnp.where(less, shrunk, jnp.where(more, grown, 1.0))
    damping: Any = jnp.where(more, jnp.maximum(at.damping * growth, _LEAST), at.damping * growth)
    damping = jnp.where(damping < _LEAST, 0.0, damping)
    stuck = ~taken & (damping > _MOST)
    new = dataclasses.replace(
        at,
        trial=kept,
        value=jnp.where(taken, value, at.value),
        moved=taken,
        damping=damping,
        growth=growth,
        weight=to.weight,
        done=stuck,
    )
    fraction: Any = jnp.where(taken, part, 0.0)
    return new, fraction
