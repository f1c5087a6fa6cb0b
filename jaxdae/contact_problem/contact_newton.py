"""Semismooth Newton method for the contact law F(p, D p + b) = 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem.contact_interface import ContactProblem, better
from jaxdae.contact_problem.contact_law import law, newton_matrix, residual
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Scalar

STEP_LENGTHS = (1.0, 0.5, 0.2, 0.05)


@pytree
class ContactNewton:
    """Semismooth Newton method on the function of Alart and Curnier (`contact_problem.contact_law`).

    From a good guess, such as the impulses of the previous step, 1 to 3 iterations reach round-off. From a
    poor guess the method may cycle between sticking and sliding; start from the result of `InteriorPoint`
    there. Each iteration tries four step lengths and takes the one with the smallest |F|.

    Attributes:
        iterations: number of iterations.
    """

    iterations: int = static(default=8)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.iterations >= 0, "iterations must be non-negative"

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`."""
        # The Newton matrix needs a pivot for redundant contacts. A residual without it loses no accuracy.
        shift = float(jnp.finfo(guess.dtype).eps) ** 0.5
        regular = add_diagonal(problem.delassus, jnp.full(guess.shape, shift, guess.dtype))
        lengths = jnp.asarray(STEP_LENGTHS, guess.dtype)

        def error(p: Array) -> Array:
            return law(problem, p, problem.velocities(p))

        def iteration(carry: Any, _: None) -> tuple[Any, None]:
            p, best = carry
            matrix = newton_matrix(problem, p, regular)
            step = jnp.linalg.solve(matrix, error(p))
            trials = p - lengths[:, None] * step
            sizes = jax.vmap(lambda p: jnp.sum(error(p) ** 2))(trials)
            p = trials[jnp.argmin(jnp.where(jnp.isfinite(sizes), sizes, jnp.inf))]
            return (p, better(best, (p, residual(problem, p)))), None

        start = (guess, (guess, residual(problem, guess)))
        return jax.lax.scan(iteration, start, None, length=self.iterations)[0][1]
