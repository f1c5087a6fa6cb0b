"""Second-order expansion of a problem about a trajectory, in the minimal coordinates of its states.

*First order.* Every state x_k has a chart (`chart`) with the coordinates z_k. A stage maps x_k and u_k to the
state F(x_k, u_k), which is expressed in the chart of x_{k+1}:

    z_{k+1} = A_k z_k + B_k du_k + e_k,      e_k = N_{k+1}^T (F(x_k, u_k) - x_{k+1}).

Forward mode through the steps computes A_k and B_k. The gap e_k is zero if the trajectory is a motion. With
the costate, computed backward from the end,

    p_N = dl_f/dz,      p_k = dl/dz + A_k^T p_{k+1},

the total cost has the derivative dl/du + B_k^T p_{k+1} with respect to u_k.

*Second order.* The second derivatives of stage k are the second derivatives of

    l(x_k(z), u) + p_{k+1}^T z_{k+1}(z, u)       (Newton's method), on the curved chart,
    l(x_k(z), u)                                 (Gauss-Newton), on the flat chart: costs that are convex in
                                                 the coordinates remain convex.

p is the costate of the trajectory itself. The second derivatives therefore do not depend on results of the
backward sweep, and a sweep with more damping needs no new derivatives. Differential dynamic programming would
use the derivative of the value function instead of p; at the solution both are equal.

References:
    J. F. A. De O. Pantoja, "Differential dynamic programming and Newton's method", International Journal of
    Control 47 (1988). J. C. Dunn, D. P. Bertsekas, "Efficient dynamic programming implementations of Newton's
    method for unconstrained optimal control problems", Journal of Optimization Theory and Applications 63
    (1989). D. H. Jacobson, D. Q. Mayne, "Differential Dynamic Programming" (1970).
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.optimal_control.augmented_lagrangian import Multipliers, final_merit, stage_merit
from jaxdae.optimal_control.minimal_coordinates import Chart, chart_at, coordinates, placed
from jaxdae.optimal_control.problem import Problem, advance
from jaxdae.systems.system import State
from jaxdae.typing import Leaf


class Curvature(enum.Enum):
    """The second derivatives that a solver uses."""

    GAUSS_NEWTON = "gauss_newton"
    """Second derivatives of costs and constraints only (iLQR): cheap. Convergence is linear, and fast if
    little cost remains at the solution."""
    EXACT = "exact"
    """Also second derivatives of the motion (Newton's method, as in DDP): quadratic convergence, but more
    derivatives."""


@pytree
class Expansion:
    """Second-order expansion of a problem about a trajectory, w = (z, du); stacked over the stages.

    Attributes:
        a: A (stages, n, n).
        b: B (stages, n, nu).
        gap: e (stages, n).
        slope: dl/dw (stages, n + nu).
        hessian: (stages, n + nu, n + nu).
        final_slope: dl_f/dz (n,).
        final_hessian: (n, n).
        costate: p_{k+1} (stages, n).
        charts: charts at all states (stages + 1, ...).
    """

    a: Leaf
    b: Leaf
    gap: Leaf
    slope: Leaf
    hessian: Leaf
    final_slope: Leaf
    final_hessian: Leaf
    costate: Leaf
    charts: Leaf

    @property
    def gradient(self) -> Array:
        """The derivative (stages, nu) of the total cost with respect to the inputs, valid without gaps."""
        n = self.a.shape[1]
        return self.slope[:, n:] + jnp.einsum("kzu,kz->ku", self.b, self.costate)


def expand(
    problem: Problem,
    multipliers: Multipliers,
    states: State,
    controls: Array,
    curvature: Curvature,
    dimension: int,
) -> Expansion:
    """Return the second-order expansion of a problem about a trajectory.

    Args:
        problem: the problem.
        multipliers: multipliers of the constraints.
        states: (stages + 1, ...).
        controls: (stages, nu).
        curvature: the second derivatives to use.
        dimension: n.
    """
    system, n, exact = problem.system, dimension, curvature is Curvature.EXACT
    # Loops over the stages instead of batches: XLA unrolls small matrices of a batch, which takes long to
    # compile.
    charts: Chart = jax.lax.map(lambda at: chart_at(system, at, n), states)
    before, after = (
        jax.tree.map(lambda x: x[:-1], (states, charts)),
        jax.tree.map(lambda x: x[1:], (states, charts)),
    )

    def leads_to(w: Array, here: tuple[State, Chart], there: tuple[State, Chart], u: Array) -> Array:
        new, _ = advance(problem, placed(system, here[1], here[0], w[:n], exact), u + w[n:])
        return coordinates(system, there[1], there[0], new)

    def cost(w: Array, here: tuple[State, Chart], u: Array, of_rows: Any) -> Array:
        return stage_merit(
            problem, of_rows, multipliers.penalty, placed(system, here[1], here[0], w[:n], exact), u + w[n:]
        )

    def at_end(z: Array) -> Array:
        last_state, last_chart = jax.tree.map(lambda x: x[-1], (states, charts))
        return final_merit(problem, multipliers, placed(system, last_chart, last_state, z, exact))

    def linear(stage: Any) -> Any:
        here, there, u, of_rows = stage
        w = jnp.zeros((n + u.shape[0],), u.dtype)

        def twice(w: Array) -> tuple[Array, Array]:
            z = leads_to(w, here, there, u)
            return z, z

        with jax.named_scope("linearize"):
            ab, gap = jax.jacfwd(twice, has_aux=True)(w)
            slope = jax.grad(cost)(w, here, u, of_rows)
        return ab, gap, slope

    stages = (before, after, controls, multipliers.stages)
    ab, gap, slope = jax.lax.map(linear, stages)
    z = jnp.zeros((n,), controls.dtype)
    final_slope, final_hessian = jax.grad(at_end)(z), jax.hessian(at_end)(z)
    a, b = ab[..., :n], ab[..., n:]

    def backward(p: Array, at: Any) -> tuple[Array, Array]:
        a, of_cost = at
        return of_cost + a.T @ p, p

    _, costate = jax.lax.scan(backward, final_slope, (a, slope[:, :n]), reverse=True)

    def second(stage: Any) -> Array:
        (here, there, u, of_rows), p = stage
        w = jnp.zeros((n + u.shape[0],), u.dtype)

        def total(w: Array) -> Array:
            value = cost(w, here, u, of_rows)
            return value + p @ leads_to(w, here, there, u) if exact else value

        with jax.named_scope("second_derivatives"):
            return jax.hessian(total)(w)

    hessian = jax.lax.map(second, (stages, costate))
    hessian = 0.5 * (hessian + jnp.swapaxes(hessian, 1, 2))
    return Expansion(
        a, b, gap, slope, hessian, final_slope, 0.5 * (final_hessian + final_hessian.T), costate, charts
    )
