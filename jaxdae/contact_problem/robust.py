"""The default combination of methods: Newton from the guess, and Newton from an interior point."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.where_needed import where_needed
from jaxdae.contact_problem.contact_interface import ContactProblem, better
from jaxdae.contact_problem.contact_law import accepted_residual, is_unsolved
from jaxdae.contact_problem.contact_newton import ContactNewton, newton_first
from jaxdae.contact_problem.gauss_seidel import GaussSeidel
from jaxdae.contact_problem.interior_point import InteriorPoint
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Scalar

PHASES = ((1e-2, 10), (1e-3, 30), (1e-4, 10))
"""Compliance and number of the steps of the method of multipliers in each of its phases, in scaled units.

Of 57 difficult problems of legs, boxes and stacks, `CYCLES` of these phases solve all. A constant compliance
of 1e-3 leaves one above 1e-6, and a constant compliance of 1e-2 leaves eight.
"""
CYCLES = 2
"""Number of times that these phases repeat."""
TOGETHER = 1
"""Newton iterations that all worlds of a batch take together. Later ones run for single worlds."""


@pytree
class Robust:
    """Newton iterations from the guess; if they fail, Newton iterations from the result of a cold start.

    If these fail too, Newton iterations restart from every step of the method of multipliers,

        p_k+1 solves the problem with D + c and b - c p_k,      p_0 = 0.

    In `Touching`, the gaps and the slip of redundant contacts, such as the corners of a body with two legs,
    may be incompatible by nanometers. Their impulses then grow until some contacts slip, far away from the
    result of the interior point. With the compliance c, the problem of each step has no redundant contacts,
    and p_k moves slowly toward these impulses. The steps apply to the exact law with an interior point.

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
        """Return the best result of Newton iterations from an interior point, and from multiplier steps."""
        dtype = problem.velocity.dtype
        phases = np.concatenate([np.full(count, c) for c, count in PHASES * CYCLES])
        compliances = varying_with(jnp.asarray(phases, dtype), best)
        accepted = 0.3 * accepted_residual(dtype)

        # Inside `jax.shard_map`, branches of a batched condition must be jitted functions: their constants
        # would otherwise be arguments of the condition, which must vary over devices.
        @jax.jit
        def from_interior(count: Array, p: Array) -> tuple[Array, Array]:
            return InteriorPoint(self.interior).solve(problem, p)[0], p

        @jax.jit
        def from_multipliers(count: Array, p: Array) -> tuple[Array, Array]:
            c = jnp.full_like(p, compliances[count - 1])
            soft = dataclasses.replace(
                problem, delassus=add_diagonal(problem.delassus, c), velocity=problem.velocity - c * p
            )
            p = ContactNewton(self.finish).solve(soft, p)[0]
            return p, p

        def attempt(carry: Any) -> Any:
            count, p, best = carry
            start, p = jax.lax.cond(count == 0, from_interior, from_multipliers, count, p)
            return count + 1, p, better(best, ContactNewton(self.finish).solve(problem, start))

        def goes_on(carry: Any) -> Any:
            count, _, (_, error) = carry
            return (count == 0) | (count <= len(phases)) & ~(error <= accepted)

        first = varying_with((jnp.zeros((), jnp.int32), jnp.zeros_like(best[0])), best)
        return jax.lax.while_loop(goes_on, attempt, (*first, best))[2]
