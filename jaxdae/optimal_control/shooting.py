"""How a sweep's changes are tried: as one motion, or at all stages at once.

*Single shooting* (iLQR, DDP). A trial with the fraction s follows the motion from the start with the feedback of the sweep,

    u_k <- u_k + s k_k + K_k z_k,      z_k: the coordinates of the new state in the chart of the old one,

within the limits. Trials are motions, so there is no gap, and the cost alone decides.

*Multiple shooting*. The states are unknowns too; the gaps e_k = F(x_k, u_k) - x_{k+1} are to vanish. The quadratic problem takes them into
account. A trial closes the fraction s of each: with the same feedback, from the start, the next state is set where

    F(x_k, u_k) - x_{k+1} = (1 - s) e_k,

back on the manifold (Giftthaler et al. 2018, Mastalli et al. 2020). With the gaps so small in every trial, long steps are possible where
states that move along the linear model would open new gaps of second order. What decides is

    cost + weight sum_k |e_k|,

an exact penalty: with a weight above all costates |p_k| it falls along the change, and has its minimum where the gaps are zero. A guess of
the states, which need not be a motion, is what this is for: the feedback of the first sweep holds the first motion near it.

References:
    H. G. Bock, K. J. Plitt, "A multiple shooting algorithm for direct solution of optimal control problems", IFAC World Congress (1984).
    M. Giftthaler et al., "A family of iterative Gauss-Newton shooting methods for nonlinear optimal control", IROS (2018). C. Mastalli et
    al., "Crocoddyl", ICRA (2020). J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd edition (2006), section 18.3.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.optimal_control.chart import Chart, away, chart_at, coordinates, moved
from jaxdae.optimal_control.expansion import Expansion
from jaxdae.optimal_control.problem import Problem, advance, is_ok, stacked_after
from jaxdae.optimal_control.sweep import Sweep
from jaxdae.system import State
from jaxdae.typing import Leaf


@pytree
class Direction:
    """What a sweep promises.

    Attributes:
        promised: (2,): what is weighed changes by about s promised[0] + s^2 promised[1].
        weight: of the gaps ().
    """

    promised: Leaf
    weight: Leaf


@pytree
class Trial:
    """A trajectory that was tried.

    Attributes:
        states: (stages + 1, ...).
        controls: (stages, nu).
        gaps: (stages,), how far each stage ends from the state that follows.
        status: of the steps ().
    """

    states: Leaf
    controls: Leaf
    gaps: Leaf
    status: Leaf


class Shooting(Protocol):
    """A way to try changes; a pytree."""

    def direction(self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array) -> Direction:
        """Returns what a sweep promises; the weight of the gaps is at least that given."""
        ...

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Returns the state that follows a stage which ends at `new`.

        Args:
            problem: the problem.
            new: F(x_k, u_k).
            chart: at x_{k+1} of the trajectory.
            gap: e_k there.
            part: the fraction of the change.
        """
        ...


def within(limits: tuple[Array, Array] | None, u: Array) -> Array:
    """Returns inputs cut at their limits."""
    return u if limits is None else jnp.clip(u, *limits)


@pytree
class Single:
    """Trials are motions from the start."""

    def direction(self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array) -> Direction:
        """Returns what the sweep promised."""
        return Direction(swept.promised, weight)

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Returns the end of the stage."""
        return new


@pytree
class Multiple:
    """Trials close a part of the gaps."""

    def direction(self, at: Expansion, swept: Sweep, controls: Array, limits: Any, weight: Array) -> Direction:
        """Returns the slope along the solution of the quadratic problem, and a weight with which it is downward."""

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
        # Gaps of the size of rounding have no weight, and then this is single shooting.
        open_ = gaps > float(jnp.finfo(gaps.dtype).eps) ** 0.5
        # Above all costates, and so large that half of what the gaps promise is more than the cost may rise.
        costates = jnp.max(jnp.linalg.norm(at.costate, axis=1))
        rise: Any = jnp.where(open_, 2.0 * down / jnp.where(open_, gaps, 1.0), 0.0)
        weight = jnp.maximum(jnp.maximum(weight, 1.5 * costates), rise)
        along = jnp.stack([down - weight * gaps, jnp.zeros_like(down)])
        return Direction(jnp.where(open_, along, swept.promised), weight)

    def next_state(self, problem: Problem, new: State, chart: Chart, gap: Array, part: Array) -> State:
        """Returns the state that leaves 1 - part of the gap, on the manifold."""
        way = -(1.0 - part) * (chart.basis @ gap)
        here = chart_at(problem.system, new, gap.shape[0])
        some = moved(problem.system, here, new, here.basis.T @ way)
        # The whole of a gap is closed exactly.
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
    """Returns the trajectory after a fraction of the change, under the feedback of the sweep."""
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
    """Returns states and inputs with the gaps between them."""
    before, after = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[1:], states)

    def stage(given: Any) -> tuple[Array, Array]:
        state, following, u = given
        new, status = advance(problem, state, u)
        return jnp.linalg.norm(away(problem.system, following, new)), status

    gaps, status = jax.lax.map(stage, (before, after, controls))
    return Trial(states, controls, gaps, status[jnp.argmax(~is_ok(status))])


def motion(problem: Problem, controls: Array, status: Array) -> Trial:
    """Returns the motion from the start under given inputs."""

    def stage(carried: Any, u: Array) -> Any:
        state, status = advance(problem, carried[0], u, carried[1])
        return (state, status), state

    (_, status), rest = jax.lax.scan(stage, (problem.state, status), controls)
    return Trial(stacked_after(problem.state, rest), controls, jnp.zeros((controls.shape[0],), controls.dtype), status)
