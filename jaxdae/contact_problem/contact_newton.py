"""Semismooth Newton method for the contact law F(p, D p + b) = 0.

The law holds for the velocities r u if it holds for u, for any r > 0. With D and b multiplied by the
augmentation parameter r, the roots are the same, but the iterates differ: z = p - r u decides whether a
contact is closed and whether it sticks. For redundant contacts, such as the corners of a box, iterations with
a constant r may cycle between two sets of modes, or stop at a local minimum of |F|. Iterations come in phases
of four. Full steps with r = 1 usually reach a root in the first phase. The second phase takes the best of
four step lengths, and the others have other values of r.

The matrix dF/dp is singular where D is. The compliance that `contact_problem.solve` adds prevents this. In
the first phase, a shift of the diagonal by a few rounding errors avoids division by zero without compliance.
In the others, a shift by sqrt(eps) limits steps along impulses that cause almost no motion. In the first
phase, this shift would be harmful: it is as large as the compliance, so that each iteration would only halve
the error of the distribution among redundant contacts.

References:
    P. Alart, A. Curnier, Computer Methods in Applied Mechanics and Engineering 92 (1991), 353-375, for r.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.where_needed import where_needed
from jaxdae.contact_problem.contact_interface import ContactProblem
from jaxdae.contact_problem.contact_law import best_iterate, is_unsolved, law, newton_matrix
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Scalar

AUGMENTATION = (1.0, 1.0, 0.1, 10.0)
"""Augmentation parameter r of each phase, for problems with unit diagonal blocks of D."""
SEARCHES = (False, True, False, False)
"""Whether steps have the best length instead of the full length, in each phase.

Of 2560 problems of a humanoid on eight corners, 24 % need more than the first phase, 6 % more than four
phases and 1 % more than nine. Without searches, a four-bar that leans into a wall cycles forever between an
open contact and one that sticks. Without shifts, this happens with searches too, and of 100 worlds of legs
that fall on a plane, `Robust` with one interior point stops 3 instead of 1.
"""
ITERATIONS = 4
"""Iterations of each phase."""
STEP_LENGTHS = (1.0, 0.5, 0.2, 0.05)


@pytree
class ContactNewton:
    """Semismooth Newton method on the function of Alart and Curnier (`contact_problem.contact_law`).

    From a good guess, such as the impulses of the previous step, 1 to 4 iterations reach round-off. From a
    poor guess the method may cycle between sticking and sliding; start from the result of `InteriorPoint`
    there.

    Attributes:
        iterations: largest number of iterations.
    """

    iterations: int = static(default=8)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.iterations >= 0, "iterations must be non-negative"

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`."""
        eps = float(jnp.finfo(guess.dtype).eps)
        shift = [4.0 * eps, *(eps**0.5,) * (len(AUGMENTATION) - 1)]

        def table(of_phases: Any) -> np.ndarray:
            """Return the values of the phases per iteration."""
            return np.resize(np.repeat(of_phases, ITERATIONS), max(1, self.iterations))

        parameters, shifts = (jnp.asarray(table(x), guess.dtype) for x in (AUGMENTATION, shift))
        searches, lengths = table(SEARCHES), jnp.asarray(STEP_LENGTHS, guess.dtype)

        def step(iterate: tuple[Array, Array]) -> tuple[Array, Array]:
            p, count = iterate
            at = augmented(problem, parameters[count])

            def error(p: Array) -> Array:
                return law(at, p, at.velocities(p))

            regular = add_diagonal(at.delassus, jnp.broadcast_to(shifts[count], guess.shape))
            change: Array = jnp.linalg.solve(newton_matrix(at, p, regular), error(p))
            new = p - change
            if searches.any():  # Otherwise, all iterations belong to the first phase.
                trials = p - lengths[:, None] * change
                sizes = jax.vmap(lambda p: jnp.sum(error(p) ** 2))(trials)
                best = jnp.argmin(jnp.where(jnp.isfinite(sizes), sizes, jnp.inf))
                new = jnp.where(jnp.asarray(searches)[count], trials[best], new)
            kept: Any = jnp.where(jnp.all(jnp.isfinite(new)), new, p)
            return kept, count + 1

        start = (guess, jnp.zeros((), jnp.int32))
        return best_iterate(problem, step, start, self.iterations, lambda iterate: iterate[0])


def newton_first(
    problem: ContactProblem,
    guess: Array,
    iterations: int,
    rest: Callable[[ContactProblem, Array], tuple[Array, Scalar]],
) -> tuple[Array, Scalar]:
    """Return the result of a few Newton iterations, or of another method where these are not enough.

    All worlds of a batch take these iterations together. The other method runs for single worlds.

    Args:
        problem: the problem.
        guess: impulses (n,).
        iterations: number of Newton iterations.
        rest: the other method, a function of the problem and the guess. It must not close over arrays.
    """
    first = ContactNewton(iterations).solve(problem, guess)
    return where_needed(is_unsolved(first), rest, first, problem, guess)


def augmented(problem: ContactProblem, r: Scalar) -> ContactProblem:
    """Return the problem with the velocities r u, which has the same impulses."""
    return dataclasses.replace(
        problem,
        delassus=r * problem.delassus,
        velocity=r * problem.velocity,
        smoothing=None if problem.smoothing is None else r * problem.smoothing,
    )
