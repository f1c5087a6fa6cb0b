"""The default combination of methods: Newton from the guess, and Newton from an interior point."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem.contact_interface import ContactProblem, better
from jaxdae.contact_problem.contact_newton import ContactNewton
from jaxdae.contact_problem.gauss_seidel import GaussSeidel
from jaxdae.contact_problem.interior_point import InteriorPoint
from jaxdae.typing import Scalar


@pytree
class Robust:
    """Warm Newton iterations, then a cold start that Newton finishes; the result with the smaller residual.

    Attributes:
        warm: iterations of `ContactNewton` from the guess.
        interior: iterations of `InteriorPoint` from a cold start; 0 to omit it.
        sweeps: sweeps of `GaussSeidel` from the guess if `interior` is 0.
        finish: iterations of `ContactNewton` from the result of the cold start.
    """

    warm: int = static(default=3)
    interior: int = static(default=25)
    sweeps: int = static(default=20)
    finish: int = static(default=10)

    @classmethod
    def quick(cls) -> Robust:
        """Return the solver without an interior point, which suffices for feet, hands and wheels."""
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
        warm = ContactNewton(self.warm).solve(problem, guess)
        if self.interior:
            cold = InteriorPoint(self.interior).solve(problem, jnp.zeros_like(guess))
        else:
            cold = GaussSeidel(self.sweeps).solve(problem, warm[0])
        return better(warm, ContactNewton(self.finish).solve(problem, cold[0]))
