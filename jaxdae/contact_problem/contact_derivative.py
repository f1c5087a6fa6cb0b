"""Solution of contact problems with exact derivatives.

*Derivative.* The solution satisfies F(p, D p + b) = 0 (`contact_law.law`). With A = dF/dp and B = dF/du,

    (A + B D) dp = -(B (dD p + db) + dF/dmu dmu + dF/dbound dbound + dF/dkappa dkappa).

The right-hand side is the derivative of F along the tangents of the problem, at constant p. The rule is
linear in the tangents, so reverse mode and higher orders follow. The iterations are never differentiated.
With smoothing, F is the rounded law: the derivative is the derivative of the rounded solution and agrees with
finite differences.

At a kink of the exact law (a contact that rests at exactly zero load, a body that starts to slide), the
derivative is one of the one-sided derivatives. At zero velocity and zero impulse, that is the derivative of
the open contact.

*Compliance.* A body that slides on more than three points has infinitely many sets of normal forces. Their
distribution affects its rotation, so that its motion is not unique. The default compliance C, sqrt(eps) times
the mean diagonal entry of D per contact, makes the impulses unique. One step of the method of multipliers
then removes its effect on the motion: p_1 solves the problem with D + C, and the result solves it with D + C
and b - C p_1. The velocity C (p - p_1) that remains is 1e-16 of the velocity that the impulses remove, and
bodies do not creep. Along impulses that cause no motion, D n = 0, the distribution stays that of p_1: n^T C p
= n^T C p_1.

*Scaling.* The problem is scaled once for all solvers (`ContactProblem.scales`). Solutions do not depend on
the factors, so the rule holds them constant.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import check_requirements
from jaxdae.compile.sharding import varying_with
from jaxdae.contact_problem.contact_interface import ContactProblem, ContactSolver, better
from jaxdae.contact_problem.contact_law import law, newton_matrix, residual
from jaxdae.contact_problem.contact_newton import ContactNewton, newton_first
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Scalar


@jax.custom_jvp
@jax.jit
def _solve(problem: ContactProblem, solver: Any, guess: Array) -> tuple[Array, Scalar]:
    # A jitted function is traced once, although a step solves several problems of the same shape.
    return solver.solve(problem, guess)


@_solve.defjvp
def _solve_jvp(primals: Any, tangents: Any) -> Any:
    problem, solver, guess = primals
    p, size = _solve(problem, solver, guess)

    def error(problem: ContactProblem) -> Array:
        return law(problem, p, problem.velocities(p))

    change = jax.jvp(error, (problem,), (tangents[0],))[1]
    dp = -jnp.linalg.solve(newton_matrix(problem, p, problem.delassus), change)
    return (p, size), (dp, jnp.zeros_like(size))


def solve(
    solver: ContactSolver,
    problem: ContactProblem,
    guess: Array | None = None,
    compliance: Array | None = None,
) -> tuple[Array, Scalar]:
    """Solve a contact problem; return the impulses p (n,) in N s and the residual ().

    Args:
        solver: a contact solver, such as `Robust()`.
        problem: the problem.
        guess: impulses (n,) from which solvers may start, in N s; None for zero. Not differentiated.
        compliance: (n,), added to the diagonal of D, in m/s per N s: contacts give way. None for rigid
            contacts with unique impulses; see the module.

    The residual of the contact law is relative to the largest scaled velocity of approach: 1e-10 or less is
    round-off in double precision. Check it, because the number of iterations is limited and because some
    problems have no solution. p is differentiable with respect to all fields of the problem, in forward and
    reverse mode, at every order. The derivative of the residual is zero.

    Raises:
        ValueError: negative friction or bounds, or a smoothing that is not positive.
    """
    check_requirements("problem", problem)
    check_requirements("solver", solver)
    factors, size = jax.lax.stop_gradient(problem.scales())
    scaled = problem.scaled(factors, size)
    start = jnp.zeros_like(problem.velocity) if guess is None else guess / (factors * size)
    given = problem.default_compliance() if compliance is None else compliance
    soft = factors**2 * given
    regular = dataclasses.replace(scaled, delassus=add_diagonal(scaled.delassus, soft))
    # Loops need a carry that varies over the same devices from the start (`jax.shard_map`).
    regular, start = varying_with((regular, start))
    p, error = _solve(regular, solver, jax.lax.stop_gradient(start))
    if compliance is not None:
        return factors * size * _zero_where_open(regular, p), error
    corrected = dataclasses.replace(regular, velocity=scaled.velocity - soft * p)
    rigid, _ = _solve(corrected, _Correction(), jax.lax.stop_gradient(p))
    errors = [residual(*jax.lax.stop_gradient((scaled, x))) for x in (p, rigid)]
    p, error = better((p, errors[0]), (rigid, errors[1]))
    return factors * size * _zero_where_open(scaled, p), error


def _zero_where_open(problem: ContactProblem, p: Array) -> Array:
    """Return p (n,) with exact zeros where contacts and one-sided rows are open, p_n <= u_n.

    Solvers leave rounding errors there, and a step would count the rows as pressed. The rounded law presses
    all rows.
    """
    if problem.smoothing is not None:
        return p
    is_open = problem.normals(p) <= problem.normals(problem.velocities(p))  # NaN remains NaN.
    return jnp.where(problem.taking_part(~is_open), p, 0.0)


@pytree
class _Correction:
    """Newton's method from a solution of almost the same problem: one iteration, and more where needed."""

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`."""
        return newton_first(problem, guess, 1, ContactNewton(CORRECTION).solve)


CORRECTION = 12
"""Largest number of Newton iterations that remove the effect of the default compliance."""
