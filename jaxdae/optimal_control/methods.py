"""The solvers by name: iLQR and its Newton variant, and multiple shooting. Both are the iteration of `solver`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.optimal_control.expansion import Curvature
from jaxdae.optimal_control.problem import Problem, checked_problem, finite_or_raise
from jaxdae.optimal_control.shooting import Multiple, Shooting, Single
from jaxdae.optimal_control.solver import Options, Solution, solve
from jaxdae.requirements import checked_count
from jaxdae.system import State


def ilqr(
    problem: Problem,
    controls: Any,
    *,
    curvature: Curvature = Curvature.GAUSS_NEWTON,
    iterations: int = 100,
    tolerance: float | None = None,
    feasibility: float | None = None,
    damping: float = 1e-6,
    penalty: float = 10.0,
    enough: float | None = None,
) -> Solution:
    """Returns the best inputs from a guess, by iLQR or Newton's method with limits of inputs, on the manifold (single shooting).

    Args:
        problem: the problem.
        controls: the guess (stages, nu), moved into the limits.
        curvature: which second derivatives: `Curvature.GAUSS_NEWTON` (iLQR) or `Curvature.EXACT` (as DDP).
        iterations: at most so many passes (static); the last one finds that nothing is left to do.
        tolerance: of the projected gradient, relative to 1 + |J|, where a J below zero counts with that of the guess at most;
            sqrt(eps) by default.
        feasibility: of constraints, in their units; sqrt(eps) by default.
        damping: mu at the start, in units of cost by the square of those of inputs.
        penalty: of constraints at the start.
        enough: a cost low enough to end with, where the best is not asked for; None goes on to the end.

    Raises:
        TypeError, ValueError: as `Problem` says what it holds.

    Compiled; `jax.vmap(lambda u: ilqr(problem, u))(guesses)` solves from many starts in one program. Look at `Solution.status`. Not
    differentiable in reverse mode. Forward mode differentiates the passes that were made: from a guess that is the solution already none
    is made, and inputs do not move. The slope of the least cost in a parameter is that of the cost of these inputs, held.
    """
    return _solved(problem, Single(), controls, None, curvature, iterations, tolerance, feasibility, damping, penalty, enough)


def multiple_shooting(
    problem: Problem,
    controls: Any,
    states: State | None = None,
    *,
    curvature: Curvature = Curvature.GAUSS_NEWTON,
    iterations: int = 100,
    tolerance: float | None = None,
    feasibility: float | None = None,
    damping: float = 1e-6,
    penalty: float = 10.0,
    enough: float | None = None,
) -> Solution:
    """Returns the best inputs and states from a guess of both, by Gauss-Newton or Newton steps with gaps between the stages.

    Args:
        problem: the problem.
        controls: the guess (stages, nu), moved into the limits.
        states: the guess of the states, a stacked `State` (stages + 1, ...), each on the manifold; the first is the start of the problem.
            None for the motion under the inputs.
        curvature: which second derivatives.
        iterations: at most so many passes (static).
        tolerance: of the projected gradient, relative to 1 + |J|, where a J below zero counts with that of the guess at most;
            sqrt(eps) by default.
        feasibility: of constraints and gaps; sqrt(eps) by default.
        damping: mu at the start.
        penalty: of constraints at the start.
        enough: a cost low enough to end with, where the best is not asked for; None goes on to the end.

    Raises:
        TypeError, ValueError: as `ilqr`; states of another shape.

    Compiled, and differentiable as little, as `ilqr`.
    """
    return _solved(problem, Multiple(), controls, states, curvature, iterations, tolerance, feasibility, damping, penalty, enough)


def _solved(
    problem: Problem,
    shooting: Shooting,
    controls: Any,
    states: State | None,
    curvature: Curvature,
    iterations: int,
    tolerance: float | None,
    feasibility: float | None,
    damping: float,
    penalty: float,
    enough: float | None,
) -> Solution:
    problem, controls = checked_problem(problem, controls)
    finite_or_raise("controls", controls)
    if not isinstance(curvature, Curvature):
        raise TypeError(f"curvature must be Curvature.GAUSS_NEWTON or Curvature.EXACT, got {curvature!r}")
    checked_count("iterations", iterations)
    least = float(jnp.finfo(controls.dtype).eps) ** 0.5
    given = {"tolerance": tolerance, "feasibility": feasibility, "damping": damping, "penalty": penalty}
    for name, value in given.items():
        if value is not None and not (value > 0.0 or (name == "damping" and value == 0.0)):
            raise ValueError(f"{name} must be positive, got {value!r}")
    numbers = [least if x is None else x for x in given.values()] + [-float("inf") if enough is None else enough]
    options = Options(*(_number(x, controls) for x in numbers))
    if states is not None:
        states = _checked_states(problem, states)
    return solve(problem, shooting, controls, states, options, iterations=iterations, curvature=curvature)


def _number(x: Any, like: Array) -> Array:
    return jnp.asarray(x, like.dtype)


def _checked_states(problem: Problem, states: Any) -> State:
    """Returns the guess of the states, its first the start of the problem."""
    if not isinstance(states, State):
        raise TypeError(f"states must be a stacked State(t, q, v), got {type(states).__name__}")
    start, nodes = problem.state, problem.stages + 1
    for name in ("q", "v"):
        expected, came = (nodes, *getattr(start, name).shape), jnp.shape(getattr(states, name))
        if came != expected:
            raise ValueError(f"states.{name} must have the shape (stages + 1, ...) = {expected}, got {came}")
    dtype = start.q.dtype
    # Times are those of the stages, whatever the guess says.
    times = start.t + problem.every * jnp.asarray(problem.dt, dtype) * jnp.arange(nodes, dtype=dtype)
    q, v = (jnp.asarray(x, dtype) for x in (states.q, states.v))
    return State(times, q.at[0].set(start.q), v.at[0].set(start.v))
