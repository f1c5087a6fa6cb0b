"""Constraints as terms of the cost: the augmented Lagrangian.

Rows h = 0 and c <= 0 with multipliers y and a penalty r > 0 add these terms to the cost of their stage:

    y^T h + r |h|^2 / 2        and        (|max(0, y + r c)|^2 - |y|^2) / 2 r.

At the minimum of the augmented Lagrangian the multipliers become  y + r h  and  max(0, y + r c).  With them,
the derivative of the Lagrangian equals the derivative of the augmented Lagrangian: zero. Each repetition
reduces the rows by a factor of about 1/r. The penalty r grows if the rows do not decrease.

Reference:
    D. P. Bertsekas, "Constrained Optimization and Lagrange Multiplier Methods" (1982), chapters 2 and 3.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.optimal_control.problem import Problem, final_cost, final_rows, running_cost, stage_rows
from jaxdae.systems.system import State
from jaxdae.typing import Leaf


@pytree
class Multipliers:
    """Multipliers of the constraints, and the penalty.

    Attributes:
        stages: (y of h (stages, k), y of c (stages, k)).
        final: (y of h_f (k,), y of c_f (k,)).
        penalty: r ().
    """

    stages: Leaf
    final: Leaf
    penalty: Leaf


def no_multipliers(problem: Problem, controls: Array, penalty: Any) -> Multipliers:
    """Return zero multipliers with a penalty."""
    state, u = problem.state, controls[0]
    shapes = jax.eval_shape(lambda: (stage_rows(problem, state, u), final_rows(problem, state)))
    zeros = [tuple(jnp.zeros(x.shape, u.dtype) for x in rows) for rows in shapes]
    stages = tuple(jnp.zeros((problem.stages, *x.shape), u.dtype) for x in zeros[0])
    return Multipliers(stages, zeros[1], jnp.asarray(penalty, u.dtype))


def _terms(rows: tuple[Array, Array], of_rows: Any, penalty: Array) -> Array:
    (h, c), (y, yc) = rows, of_rows
    equal = jnp.sum(y * h + 0.5 * penalty * h**2)
    return equal + 0.5 * jnp.sum(jnp.maximum(0.0, yc + penalty * c) ** 2 - yc**2) / penalty


def stage_merit(problem: Problem, of_rows: Any, penalty: Array, state: State, u: Array) -> Array:
    """Return the cost () of a stage, including its constraint terms."""
    cost = running_cost(problem, state, u)
    if problem.equality is None and problem.inequality is None:
        return cost
    return cost + _terms(stage_rows(problem, state, u), of_rows, penalty)


def final_merit(problem: Problem, multipliers: Multipliers, state: State) -> Array:
    """Return the final cost (), including its constraint terms."""
    cost = final_cost(problem, state)
    if problem.final_equality is None and problem.final_inequality is None:
        return cost
    return cost + _terms(final_rows(problem, state), multipliers.final, multipliers.penalty)


def merit(problem: Problem, multipliers: Multipliers, states: State, controls: Array) -> Array:
    """Return the augmented Lagrangian () of states (stages + 1, ...) and inputs (stages, nu)."""
    inner, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    each = jax.vmap(lambda at, u, y: stage_merit(problem, y, multipliers.penalty, at, u))(
        inner, controls, multipliers.stages
    )
    return jnp.sum(each) + final_merit(problem, multipliers, last)


def total_cost(problem: Problem, states: State, controls: Array) -> Array:
    """Return the cost () without constraints."""
    inner, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    each = jax.vmap(lambda at, u: running_cost(problem, at, u))(inner, controls)
    return jnp.sum(each) + final_cost(problem, last)


def all_rows(problem: Problem, states: State, controls: Array) -> tuple[Any, Any]:
    """Return the rows of all stages, (h (stages, k), c (stages, k)), and the final rows."""
    inner, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    return jax.vmap(lambda at, u: stage_rows(problem, at, u))(inner, controls), final_rows(problem, last)


def violation(problem: Problem, states: State, controls: Array) -> Array:
    """Return the largest |h| or max(0, c) () of all stages and the final state."""
    (h, c), (hf, cf) = all_rows(problem, states, controls)
    parts = [jnp.max(jnp.abs(x), initial=0.0) for x in (h, hf)] + [jnp.max(x, initial=0.0) for x in (c, cf)]
    return jnp.max(jnp.stack(parts))


def updated(
    problem: Problem, multipliers: Multipliers, states: State, controls: Array, penalty: Array
) -> Multipliers:
    """Return the multipliers after the minimization of the augmented Lagrangian, with the next penalty."""
    r = multipliers.penalty

    def new(rows: Any, y: Any) -> Any:
        return (y[0] + r * rows[0], jnp.maximum(0.0, y[1] + r * rows[1]))

    at_stages, at_end = all_rows(problem, states, controls)
    return Multipliers(new(at_stages, multipliers.stages), new(at_end, multipliers.final), penalty)
