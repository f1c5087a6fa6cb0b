"""The solvers: iLQR with its Newton variant, and multiple shooting. Both use the iteration of `solver`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.requirements import checked_count
from jaxdae.optimal_control.expansion import Curvature
from jaxdae.optimal_control.iteration import Options, Solution, solve
from jaxdae.optimal_control.problem import Problem, checked_problem, finite_or_raise
from jaxdae.optimal_control.shooting import Multiple, Shooting, Single
from jaxdae.systems.system import State


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
    """Return locally optimal inputs from a guess, by iLQR or Newton's method.

    The method is single shooting on the manifold, with input limits.

    Args:
        problem: the problem.
        controls: the guess (stages, nu), clipped to the limits.
        curvature: the second derivatives to use: `Curvature.GAUSS_NEWTON` (iLQR) or `Curvature.EXACT` (as
            DDP).
        iterations: the maximum number of passes (static); the last pass of a converged solution only verifies
            convergence.
        tolerance: tolerance of the projected gradient, relative to 1 + |J|; sqrt(eps) by default. The |J| of
            a negative J counts at most as the |J| of the guess.
        feasibility: tolerance of constraints, in their units; sqrt(eps) by default.
        damping: initial mu, in units of cost per square of the input units.
        penalty: initial penalty of constraints.
        enough: a cost at which the iteration may stop before the minimum; None to continue to the minimum.

    Raises:
        TypeError, ValueError: invalid fields of `Problem`, or arguments that do not fit.

    Compiled; `jax.vmap(lambda u: ilqr(problem, u))(guesses)` solves from many starts in one program. Check
    `Solution.status`. Not differentiable in reverse mode. Forward mode differentiates the passes that the
    iteration executes. From a guess that is already the solution, the iteration does not move, and the inputs
    have derivative zero. The derivative of the minimal cost with respect to a parameter is the derivative of
    the cost with the optimal inputs held constant.
    """
    return _solved(
        problem,
        Single(),
        controls,
        None,
        curvature,
        iterations,
        tolerance,
        feasibility,
        damping,
        penalty,
        enough,
    )


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
    """Return locally optimal inputs and states from a guess of both, with gaps between the stages.

    The method uses Gauss-Newton or Newton steps.

    Args:
        problem: the problem.
        controls: the guess (stages, nu), clipped to the limits.
        states: the guess of the states, a stacked `State` (stages + 1, ...), each on the manifold. The start
            of the problem replaces the first state. None for the motion under the inputs.
        curvature: the second derivatives to use.
        iterations: the maximum number of passes (static).
        tolerance: tolerance of the projected gradient, relative to 1 + |J|; sqrt(eps) by default. The |J| of
            a negative J counts at most as the |J| of the guess.
        feasibility: tolerance of constraints and gaps; sqrt(eps) by default.
        damping: initial mu.
        penalty: initial penalty of constraints.
        enough: a cost at which the iteration may stop before the minimum; None to continue to the minimum.

    Raises:
        TypeError, ValueError: as `ilqr`; states with wrong shapes.

    Compiled; differentiable with the same restrictions as `ilqr`.
    """
    return _solved(
        problem,
        Multiple(),
        controls,
        states,
        curvature,
        iterations,
        tolerance,
        feasibility,
        damping,
        penalty,
        enough,
    )


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
    numbers = [least if x is None else x for x in given.values()] + [
        -float("inf") if enough is None else enough
    ]
    options = Options(*(_number(x, controls) for x in numbers))
    if states is not None:
        states = _checked_states(problem, states)
    return solve(problem, shooting, controls, states, options, iterations=iterations, curvature=curvature)


def _number(x: Any, like: Array) -> Array:
    return jnp.asarray(x, like.dtype)


def _checked_states(problem: Problem, states: Any) -> State:
    """Return the guess of the states, with the start of the problem as first state."""
    if not isinstance(states, State):
        raise TypeError(f"states must be a stacked State(t, q, v), got {type(states).__name__}")
    start, nodes = problem.state, problem.stages + 1
    for name in ("q", "v"):
        expected, came = (nodes, *getattr(start, name).shape), jnp.shape(getattr(states, name))
        if came != expected:
            raise ValueError(f"states.{name} must have the shape (stages + 1, ...) = {expected}, got {came}")
    dtype = start.q.dtype
    # Use the times of the stages and ignore the times of the guess.
    times = start.t + problem.every * jnp.asarray(problem.dt, dtype) * jnp.arange(nodes, dtype=dtype)
    q, v = (jnp.asarray(x, dtype) for x in (states.q, states.v))
    return State(times, q.at[0].set(start.q), v.at[0].set(start.v))
