"""The iteration that all methods share: expand, sweep, try, and where constraints remain, raise their multipliers.

One pass of the loop is

1. the expansion of the problem about the trajectory, where it moved;
2. a sweep with the damping mu, or with more of it where that is not enough for a positive definite problem;
3. at a stationary trajectory: the end, or with constraints left open new multipliers. Elsewhere trials with the fractions 1, 1/2, 1/4, ...
   of the change, of which the first is taken that lowers what is weighed by a ten-thousandth of what the quadratic model promised;
4. after a trial that was taken whole or by half mu falls, by a factor that grows with each in a row; after one that was refused, or
   taken by an eighth or less, it grows likewise (after Tassa, Erez, Todorov 2012).

A trajectory is stationary where no input within its limits would lower the cost J. That is so where the projected gradient, the largest
|dJ/du| of entries that stand at no limit or could leave it downward, is at most  tolerance (1 + |J|),  and the largest gap at most the
feasibility. A maximum or a saddle is stationary, too; a guess exactly on it is the end. A cost below zero counts with |J| of the guess
at most, so that one without a lower bound does not end as if it had one. With constraints J is the augmented Lagrangian. Its tolerance is
loose at first, and a tenth of that with every new set of multipliers; the penalty grows tenfold where the rows did not fall to a quarter.

Trials that fail, in a step or because a cost is not finite, cost infinity.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.control.regulator import TrajectoryFeedback
from jaxdae.optimal_control.augmented import Multipliers, merit, no_multipliers, total_cost, updated, violation
from jaxdae.optimal_control.expansion import Curvature, Expansion, expand
from jaxdae.optimal_control.problem import Problem, begin_status, is_ok
from jaxdae.optimal_control.shooting import Shooting, Trial, attempt, between, motion
from jaxdae.optimal_control.sweep import Sweep, sweep
from jaxdae.status import Status
from jaxdae.system import State
from jaxdae.typing import Leaf

_SHARE = 1e-4
"""Of the promised decrease that a trial has to keep (Armijo)."""
_HALVINGS = 5
_LONG, _SHORT = 0.5, 0.125
"""Fractions of a change from which on the damping falls, and up to which it grows."""
_LEAST, _MOST = 1e-6, 1e10
"""Of the damping; below the least it is zero."""
_LOOSE = 1e-2
"""The tolerance of the first multipliers, relative to 1 + |J|."""
_GROWTH, _FALL = 10.0, 0.25
"""Of the penalty, and what the violation has to fall to."""
_HIGHEST = 1e10
"""The largest penalty: constraints that are still open contradict each other, or the limits."""


@pytree
class Options:
    """Numbers of the iteration.

    Attributes:
        tolerance: of the projected gradient, relative to 1 + |J|.
        feasibility: of constraints and gaps.
        damping: mu at the start.
        penalty: r at the start.
        enough: a cost J that is low enough to end with, with the constraints kept.
    """

    tolerance: Leaf
    feasibility: Leaf
    damping: Leaf
    penalty: Leaf
    enough: Leaf


@pytree
class History:
    """What every pass of the iteration found before it moved; NaN after the last pass.

    Attributes:
        cost: J () without constraints (iterations,).
        gradient: the projected gradient.
        violation: the largest open constraint.
        gap: the sum of all gaps.
        step: the fraction that was taken; 0 where none was, and where multipliers were raised.
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
    """What a solver found.

    Attributes:
        states: a stacked `State` (stages + 1, ...), the start first.
        controls: inputs of the stages (stages, nu); `problem.held(controls)` are those of all steps.
        gains: (stages, nu, 2 nv): u_k + gains (q - q_k, v - v_k) answers small deviations, best to first order with `Curvature.EXACT`. Of
            the last trajectory that was expanded: where the status is not OK, of the one before.
        multipliers: of the constraints.
        cost: J (), without constraints; NaN where the status is that of a guess that fails.
        gradient: the projected gradient ().
        violation: the largest |h| or c () that is open.
        gap: the largest gap () between stages.
        iterations: how many passes were made ().
        status: OK, NOT_CONVERGED, or why the guess has no motion ().
        history: of all passes.
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
        """Returns the feedback law that keeps a system on this trajectory at least cost; meant for `Sampled(integrator, law, every)`."""
        states = self.states
        return TrajectoryFeedback(
            problem.system, states.q, states.v, self.controls, -self.gains, jnp.asarray(problem.state.t), self.feedback_period
        )


@pytree
class _At:
    """The iteration.

    Attributes:
        trial: the trajectory.
        value: J () with the terms of the constraints.
        first: |J| of the guess ().
        multipliers: of the constraints.
        expansion: about the trajectory, or the one before where it moved.
        swept: the last sweep.
        moved: whether the trajectory is another than that of the expansion.
        damping: mu.
        growth: by what it changed last.
        weight: of the gaps.
        target: tolerance of the present multipliers.
        open: the violation at the last multipliers.
        gradient: the projected gradient.
        count: passes.
        done: whether this is the end.
        status: of the whole.
        history: of the passes.
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
    """Returns the solution from a guess; a problem of `checked_problem`.

    Args:
        problem: the problem, its dimension counted.
        shooting: how changes are tried.
        controls: the guess (stages, nu), moved into the limits.
        states: the guess of the states; None for the motion of the inputs.
        options: numbers.
        multipliers: from an earlier solution; None for zero.
        iterations: at most so many passes.
        curvature: which second derivatives.
    """
    limits = problem.limits(controls) if problem.limited else None
    controls = controls if limits is None else jnp.clip(controls, *limits)
    begun = begin_status(problem)
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
        status=at.status,
        history=at.history,
        feedback_period=period,
    )


def _begin(problem: Problem, trial: Trial, options: Options, multipliers: Any, iterations: int, curvature: Curvature) -> _At:
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
    """Returns the dimension of a problem that was counted."""
    if problem.dimension is None:
        raise ValueError("Problem.dimension is not known here: give problem.counted()")
    return problem.dimension


def projected(limits: tuple[Array, Array] | None, controls: Array, gradient: Array) -> Array:
    """Returns the largest |dJ/du| () of inputs that may follow it downward."""
    if limits is not None:
        stuck = ((controls <= limits[0]) & (gradient > 0.0)) | ((controls >= limits[1]) & (gradient < 0.0))
        gradient = jnp.where(stuck, 0.0, gradient)
    return jnp.max(jnp.abs(gradient))


def _pass(problem: Problem, shooting: Shooting, limits: Any, options: Options, curvature: Curvature, at: _At) -> _At:
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
        at, expansion=expansion, swept=swept, gradient=gradient, moved=jnp.zeros((), bool), damping=used, growth=growth
    )
    step = jnp.zeros_like(at.value)

    def move() -> tuple[_At, Array]:
        return _move(problem, shooting, limits, at, gaps)

    if problem.constrained:
        rested = closed & (gradient <= at.target * scale)
        new, step = jax.lax.cond(
            done, lambda: (at, step), lambda: jax.lax.cond(rested, lambda: (_raise(problem, options, at, opened), step), move)
        )
    else:
        new, step = jax.lax.cond(done, lambda: (at, step), move)
    found = History(total_cost(problem, states, controls), gradient, opened, jnp.sum(gaps), step, used)
    history = jax.tree.map(lambda all_, one: all_.at[at.count].set(one), at.history, found)
    status: Any = jnp.where(done, Status.OK, new.status)
    return dataclasses.replace(new, history=history, count=at.count + 1, done=new.done | done, status=status.astype(jnp.int32))


def _swept(expansion: Expansion, controls: Array, limits: Any, at: _At) -> tuple[Sweep, Array, Array]:
    """Returns a sweep with the damping of the iteration, or with the least of those above it that suffice; damping and its growth."""

    def again(carried: Any) -> Any:
        _, _, _, damping, growth = carried
        grown = jnp.maximum(2.0, 2.0 * growth)
        return sweep(expansion, controls, limits, damping), damping, growth, jnp.maximum(damping * grown, _LEAST), grown

    failed = dataclasses.replace(at.swept, good=jnp.zeros((), bool))
    begin = (failed, at.damping, at.growth, at.damping, at.growth)
    with jax.named_scope("sweep"):
        swept, damping, growth, _, _ = jax.lax.while_loop(lambda x: ~x[0].good & (x[3] <= _MOST), again, begin)
    return swept, damping, growth


def _raise(problem: Problem, options: Options, at: _At, opened: Array) -> _At:
    """Returns the iteration with new multipliers."""
    states, controls, r = at.trial.states, at.trial.controls, at.multipliers.penalty
    slow = opened > jnp.maximum(_FALL * at.open, options.feasibility)
    multipliers = updated(problem, at.multipliers, states, controls, jnp.where(slow, _GROWTH * r, r))
    value = merit(problem, multipliers, states, controls)
    target = jnp.maximum(options.tolerance, 0.1 * at.target)
    hopeless = multipliers.penalty > _HIGHEST
    return dataclasses.replace(
        at, multipliers=multipliers, value=value, target=target, open=opened, moved=jnp.ones((), bool), done=hopeless
    )


def _move(problem: Problem, shooting: Shooting, limits: Any, at: _At, gaps: Array) -> tuple[_At, Array]:
    """Returns the iteration after trials, and the fraction that was taken."""
    states, controls = at.trial.states, at.trial.controls
    to = shooting.direction(at.expansion, at.swept, controls, limits, at.weight)
    eps = float(jnp.finfo(controls.dtype).eps)
    before = at.value + to.weight * jnp.sum(gaps)
    # What rounding leaves of a sum of this size: the last steps may not be refused for it.
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
        begin = (jnp.full_like(at.value, 2.0), at.trial, at.value, jnp.zeros((), bool), jnp.zeros((), jnp.int32))
        part, tried, value, taken, _ = jax.lax.while_loop(lambda x: at.swept.good & ~x[3] & (x[4] <= _HALVINGS), again, begin)
    kept = jax.tree.map(partial(jnp.where, taken), tried, at.trial)
    # A whole step says that the model is good, and less damping will do; a short one, that it is not.
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
