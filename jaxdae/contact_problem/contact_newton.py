"""Semismooth Newton method for the contact law F(p, D p + b) = 0."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem.contact_interface import ContactProblem
from jaxdae.contact_problem.contact_law import best_iterate, law, newton_matrix
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

        def step(p: Array) -> Array:
            change = jnp.linalg.solve(newton_matrix(problem, p, regular), error(p))
            trials = p - lengths[:, None] * change
            sizes = jax.vmap(lambda p: jnp.sum(error(p) ** 2))(trials)
            return trials[jnp.argmin(jnp.where(jnp.isfinite(sizes), sizes, jnp.inf))]

        return best_iterate(problem, step, guess, self.iterations)
