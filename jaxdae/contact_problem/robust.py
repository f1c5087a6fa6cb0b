"""The default combination of methods: Newton from the guess, and Newton from an interior point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.where_needed import where_needed
from jaxdae.contact_problem.contact_interface import ContactProblem, better
from jaxdae.contact_problem.contact_law import accepted_residual, is_unsolved
from jaxdae.contact_problem.contact_newton import ContactNewton, newton_first
from jaxdae.contact_problem.gauss_seidel import GaussSeidel
from jaxdae.contact_problem.interior_point import START, InteriorPoint, follow_path
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Scalar

STARTS = (START, 0.3 * START, 3.0 * START)
"""Starts of `InteriorPoint`.

In some problems, 3 of 10 paths end 1e-6 from the solution, where Newton's method does not converge. Which
ones, depends on the last digits of the problem. The three starts solve all of 40 such problems.
"""
SOFTENING = (1e-5, 1e-6, 1e-2, 1e-3, 1e-4)
"""The compliance c of each proximal step, repeated, for problems with unit diagonal blocks of D.

Of 372 problems of legs on a plane that Newton's method does not solve from the guess, two remain. Five
remain if the starts are the impulses after 100, 200, ... sweeps of `GaussSeidel` with random changes instead.
"""
PROXIMAL_STEPS = 10
"""Largest number of proximal steps."""
SWEEPS = 100
"""Sweeps of `GaussSeidel` before Newton's method in each proximal step."""
TOGETHER = 1
"""Newton iterations that all worlds of a batch take together. Later ones run for single worlds."""


@pytree
class Robust:
    """Newton iterations from the guess; if they fail, Newton iterations from the result of a cold start.

    If these fail too, Newton iterations restart from the results of two other starts of `InteriorPoint`, and
    then from proximal steps (the method of multipliers): p_k+1 solves the problem with D + c and b - c p_k.
    The compliance c separates redundant contacts whose velocities are incompatible by rounding errors. If the
    steps converge, their limit solves the problem without c. Restarts apply to the exact law with an interior
    point.

    Each part ends at round-off, so that most steps need only a few Newton iterations. Worlds of a batch that
    need more do not delay the others (`compile.where_needed`).

    Attributes:
        warm: largest number of iterations of `ContactNewton` from the guess.
        interior: largest number of iterations of `InteriorPoint` from a cold start; 0 to omit it.
        sweeps: sweeps of `GaussSeidel` from the guess if `interior` is 0.
        finish: largest number of iterations of `ContactNewton` from the result of the cold start.
    """

    warm: int = static(default=36)
    interior: int = static(default=50)
    sweeps: int = static(default=20)
    finish: int = static(default=36)

    @classmethod
    def quick(cls) -> Robust:
        """Return the solver without an interior point: for single points, spheres and wheels.

        It compiles faster. For bodies on several corners it may not converge.
        """
        return cls(interior=0)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.warm >= 0, "warm must be non-negative"
        yield self.interior >= 0, "interior must be non-negative"
        yield self.sweeps >= 1, "sweeps must be at least 1"
        yield self.finish >= 0, "finish must be non-negative"

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`.

        Raises:
            ValueError: the problem is smoothed and `interior` is 0.
        """

        def rest(problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
            warm = ContactNewton(self.warm).solve(problem, guess)
            return where_needed(is_unsolved(warm), cold, warm, problem, guess, warm)

        def cold(problem: ContactProblem, guess: Array, best: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
            if self.interior and problem.smoothing is None:
                return self._restarted(problem, best)
            if self.interior:
                start = InteriorPoint(self.interior).solve(problem, guess)
            else:
                start = GaussSeidel(self.sweeps).solve(problem, best[0])
            return better(best, ContactNewton(self.finish).solve(problem, start[0]))

        return newton_first(problem, guess, TOGETHER, rest)

    def _restarted(self, problem: ContactProblem, best: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
        """Return the best result of Newton iterations from interior points, and then from proximal steps."""
        dtype, finish = problem.velocity.dtype, ContactNewton(self.finish)
        starts, softening = varying_with(
            tuple(jnp.asarray(values, dtype) for values in (STARTS, SOFTENING)), best
        )
        accepted = 0.01 * accepted_residual(dtype)

        # Inside `jax.shard_map`, branches of a batched condition must be jitted functions: their constants
        # would otherwise be arguments of the condition, which must vary over devices.
        @jax.jit
        def from_interior(count: Array, p: Array) -> tuple[Array, Array]:
            return follow_path(problem, starts[count], self.interior)[0], p

        @jax.jit
        def from_proximal_step(count: Array, p: Array) -> tuple[Array, Array]:
            c = softening[(count - len(STARTS)) % len(SOFTENING)]
            soft = add_diagonal(problem.delassus, jnp.broadcast_to(c, p.shape))
            softer = replace(problem, delassus=soft, velocity=problem.velocity - c * p)
            p = finish.solve(softer, GaussSeidel(SWEEPS).solve(softer, p)[0])[0]
            return p, p

        def attempt(carry: Any) -> Any:
            count, p, best = carry
            start, p = jax.lax.cond(count < len(STARTS), from_interior, from_proximal_step, count, p)
            return count + 1, p, better(best, finish.solve(problem, start))

        def goes_on(carry: Any) -> Any:
            count, _, (_, error) = carry
            return (count == 0) | (count < len(STARTS) + PROXIMAL_STEPS) & ~(error <= accepted)

        count = varying_with(jnp.zeros((), jnp.int32), best)
        return jax.lax.while_loop(goes_on, attempt, (count, best[0], best))[2]
