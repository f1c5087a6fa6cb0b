"""Trials of the changes from a sweep: as one motion, or at all stages simultaneously.

*Single shooting* (iLQR, DDP). A trial with the fraction s follows the motion from the start with the feedback
of the sweep,

    u_k <- u_k + s k_k + K_k z_k,      z_k: the coordinates of the new state in the chart of the old state,

within the limits. Trials are motions and have no gaps; the cost alone decides on acceptance.

*Multiple shooting*. The states are also unknowns, and the gaps e_k = F(x_k, u_k) - x_{k+1} must vanish. The
quadratic problem includes the gaps. A trial closes the fraction s of each gap: with the same feedback, from
the start, the next state satisfies

    F(x_k, u_k) - x_{k+1} = (1 - s) e_k,

back on the manifold (Giftthaler et al. 2018, Mastalli et al. 2020). Every trial thus has small gaps, which
permits long steps. States that move along the linear model would instead open new gaps of second order. The
merit function

    cost + weight sum_k |e_k|

decides on acceptance. It is an exact penalty: with a weight above all costates |p_k| it decreases along the
change, and its minimum has zero gaps. This method is for guesses of the states that need not be a motion: the
feedback of the first sweep keeps the first motion near the guess.

References:
    H. G. Bock, K. J. Plitt, "A multiple shooting algorithm for direct solution of optimal control problems",
    IFAC World Congress (1984). M. Giftthaler et al., "A family of iterative Gauss-Newton shooting methods for
    nonlinear optimal control", IROS (2018). C. Mastalli et al., "Crocoddyl", ICRA (2020). J. Nocedal, S. J.
    Wright, "Numerical Optimization", 2nd edition (2006), section 18.3.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.optimal_control.backward_sweep import Sweep
from jaxdae.optimal_control.expansion import Expansion
from jaxdae.optimal_control.minimal_coordinates import Chart, away, chart_at, coordinates, moved
from jaxdae.optimal_control.problem import Problem, advance, is_ok, stacked_after
from jaxdae.systems.system import State
from jaxdae.typing import Leaf


@pytree
class Direction:
    """The predicted effect of a sweep.

    Attributes:
        promised: (2,): the merit function changes by about s promised[0] + s^2 promised[1].
        weight: weight of the gaps ().
    """

    promised: Leaf
    weight: Leaf


@pytree
class Trial:
    """A trial trajectory.

    Attributes:
        states: (stages + 1, ...).
        controls: (stages, nu).
        gaps: (stages,), the distance of the end of each stage from the next state.
        status: status of the steps ().
    """

    states: Leaf
    controls: Leaf
    gaps: Leaf
    status: Leaf


class Shooting(Protocol):
    """A method for trials; a pytree."""

    def direction(
        self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array
    ) -> Direction:
        """Return the predicted effect of a sweep; the weight of the gaps is at least the given weight."""
        ...

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Return the state after a stage that ends at `new`.

        Args:
            problem: the problem.
            new: F(x_k, u_k).
            chart: the chart at x_{k+1} of the trajectory.
            gap: e_k of the stage.
            part: the fraction of the change.
        """
        ...


def within(limits: tuple[Array, Array] | None, u: Array) -> Array:
    """Return inputs clipped to their limits."""
    return u if limits is None else jnp.clip(u, *limits)


@pytree
class Single:
    """Trials are motions from the start."""

    def direction(
        self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array
    ) -> Direction:
        """Return the predicted effect of the sweep, with the given weight."""
        return Direction(swept.promised, weight)

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Return the end of the stage."""
        return new


@pytree
class Multiple:
    """Trials close a fraction of the gaps."""

    def direction(
        self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array
    ) -> Direction:
        """Return the slope along the solution of the quadratic problem, with a weight for descent."""

        def stage(z: Array, given: Any) -> tuple[Array, tuple[Array, Array]]:
            a, b, gap, u, change, gain = given
            du = within(limits, u + change + gain @ z) - u
            new = a @ z + b @ du + gap
            return new, (new, du)

        first = jnp.zeros_like(at.gap[0])
        _, (rest, du) = jax.lax.scan(stage, first, (at.a, at.b, at.gap, controls, swept.change, swept.gain))
        z = jnp.concatenate([first[None], rest])
        w = jnp.concatenate([z[:-1], du], axis=1)
        down = jnp.sum(at.slope * w) + at.final_slope @ z[-1]
        gaps = jnp.sum(jnp.linalg.norm(at.gap, axis=1))
        # Gaps of the size of rounding errors have no weight; the method is then single shooting.
        open_ = gaps > float(jnp.finfo(gaps.dtype).eps) ** 0.5
        # Above all costates, and large enough that half of the predicted decrease from the gaps exceeds the
        # predicted increase of the cost.
        costates = jnp.max(jnp.linalg.norm(at.costate, axis=1))
        rise: Any = jnp.where(open_, 2.0 * down / jnp.where(open_, gaps, 1.0), 0.0)
        weight = jnp.maximum(jnp.maximum(weight, 1.5 * costates), rise)
        along = jnp.stack([down - weight * gaps, jnp.zeros_like(down)])
        return Direction(jnp.where(open_, along, swept.promised), weight)

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Return the state on the manifold that leaves the fraction 1 - part of the gap."""
        way = -(1.0 - part) * (chart.basis @ gap)
        here = chart_at(problem.system, new, gap.shape[0])
        some = moved(problem.system, here, new, here.basis.T @ way)
        # A full step closes the gap exactly.
        return jax.tree.map(lambda moved, ended: jnp.where(part == 1.0, ended, moved), some, new)


def attempt(
    problem: Problem,
    shooting: Shooting,
    at: Expansion,
    swept: Sweep,
    states: State,
    controls: Array,
    limits: tuple[Array, Array] | None,
    part: Array,
) -> Trial:
    """Return the trajectory after a fraction of the change, under the feedback of the sweep."""
    system = problem.system

    def stage(carried: Any, given: Any) -> Any:
        state, status = carried
        nominal, chart, following, gap, u, change, gain = given
        z = coordinates(system, chart, nominal, state)
        u = within(limits, u + part * change + gain @ z)
        new, status = advance(problem, state, u, status)
        state = shooting.next_state(problem, new, following, gap, part)
        return (state, status), (state, u, jnp.linalg.norm(away(system, state, new)))

    nominal, charts = jax.tree.map(lambda x: x[:-1], (states, at.charts))
    following = jax.tree.map(lambda x: x[1:], at.charts)
    first = jax.tree.map(lambda x: x[0], states)
    begin = (first, jnp.zeros((), jnp.int32))
    given = (nominal, charts, following, at.gap, controls, swept.change, swept.gain)
    (_, status), (rest, u, gaps) = jax.lax.scan(stage, begin, given)
    return Trial(stacked_after(first, rest), u, gaps, status)


def between(problem: Problem, states: State, controls: Array) -> Trial:
    """Return states and inputs with the gaps between the stages."""
    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)

    def stage(given: Any) -> tuple[Array, Array]:
        state, following, u = given
        new, status = advance(problem, state, u)
        return jnp.linalg.norm(away(problem.system, following, new)), status

    gaps, status = jax.lax.map(stage, (before, after, controls))
    return Trial(states, controls, gaps, status[jnp.argmax(~is_ok(status))])


def motion(problem: Problem, controls: Array, status: Array) -> Trial:
    """Return the motion from the start under given inputs."""

    def stage(carried: Any, u: Array) -> Any:
        state, status = advance(problem, carried[0], u, carried[1])
        return (state, status), state

    (_, status), rest = jax.lax.scan(stage, (problem.state, status), controls)
    return Trial(
        stacked_after(problem.state, rest), controls, jnp.zeros((controls.shape[0],), controls.dtype), status
    )
