"""Primal-dual interior-point method for Signorini contact with exact Coulomb friction.

*Central path.* With w = D p + b, for kappa > 0,

    p_n w_n = kappa                                normals
    rho psi + p_t . w_t = kappa                    discs; rho = mu p_n or the bound of a dry-friction row
    rho w_t + psi p_t = 0

The second and third line are the product of (rho, p_t) and (psi, w_t) in the algebra of the second-order
cone. At kappa = 0 they say that p_t lies in the disc and opposes w_t: psi = |w_t|. The rows are not the
optimality conditions of a convex problem (these would couple w_n and psi), so this is exact Coulomb friction,
and the path is followed without a guarantee of convergence.

*Newton step.* Let (r_n, r_p, r_t) be the residuals of the three lines. The second line gives

    dpsi = (r_p - psi drho - p_t . dw_t - w_t . dp_t) / rho,

and the third line becomes

    A_tt dp_t + B_tt dw_t + a drho = r_t - p_t r_p / rho,
    A_tt = psi 1 - p_t w_t^T / rho,   B_tt = rho 1 - p_t p_t^T / rho,   a = w_t - (psi / rho) p_t,

with drho = mu dp_n. B_tt is positive definite inside the disc, with the inverse (1 + p_t p_t^T / (rho^2 -
|p_t|^2)) / rho. Substitution of dw = D dp + (D p + b - w) leaves one system of n rows,

    (D + B^-1 A) dp = B^-1 r - (D p + b - w).

*Steps.* Mehrotra's predictor and corrector: the affine step (kappa = 0) determines the next target of kappa
and the second-order terms. A step ends at 0.99 of the distance to the boundary of the cones. With smoothing,
the path ends at kappa. The correction is then omitted, because it assumes that the path continues to zero.

References:
    S. Mehrotra, SIAM Journal on Optimization 2 (1992), 575-601.
    T. Howell, S. Le Cleac'h, J. Brüdigam, Z. Kolter, M. Schwager, Z. Manchester, "Dojo: A differentiable
    physics engine for robotics", arXiv:2203.00806 (2022), for the cone products of Coulomb friction.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem.contact_interface import ContactProblem
from jaxdae.contact_problem.contact_law import BlockDiagonal, best_iterate
from jaxdae.linalg.small_matrix import add_diagonal
from jaxdae.typing import Leaf, Scalar

SMALLEST_FRICTION = 1e-6
"""Smallest friction coefficient and smallest bound in scaled units: the path needs discs with an interior."""
TO_BOUNDARY = 0.99
"""Share of the distance to the boundary that a step may take."""
START = 100.0
"""Normal impulses of the start, in scaled units.

A stack of five boxes with a mass ratio of 1000 needs impulses up to 14. From 1, 15 iterations leave 6 of 64
such problems above 1e-3; from 100 to 1000, all are below 2e-5.
"""


DISTANT = 10.0
"""Largest separation velocity in a scaled problem, where contacts that approach have velocities of at most 1.

In 20 problems of random scenes that failed with 15 or 25 iterations, open contacts had velocities up to 1e5.
With this bound, 19 converge.
"""


@pytree
class _Point:
    """An iterate: impulses p (n,), velocities w (n,) and psi (m + f,)."""

    p: Leaf
    w: Leaf
    psi: Leaf


@pytree
class InteriorPoint:
    """Interior-point method: follow the central path from a cold start; see the module for the equations.

    It ignores the guess. Stacks with large mass ratios need 10 to 20 iterations, and boxes that stick on
    several corners up to 50.

    Attributes:
        iterations: largest number of iterations, at least 1.
    """

    iterations: int = static(default=15)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.iterations >= 1, "iterations must be at least 1"

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`."""
        return follow_path(problem, START, self.iterations)


def follow_path(problem: ContactProblem, start: Any, iterations: int) -> tuple[Array, Scalar]:
    """Return the iterate with the smallest residual and this residual.

    Args:
        problem: the problem.
        start: normal impulses of the start (), in scaled units.
        iterations: largest number of iterations.
    """
    inner = _with_interior(problem)
    return best_iterate(
        problem, lambda point: _step(inner, point), _start(inner, start), iterations, lambda point: point.p
    )


def _with_interior(problem: ContactProblem) -> ContactProblem:
    """Return the problem with friction, bounds and diagonal slightly above zero.

    In the exact law, contacts farther away than `DISTANT` count as equally far: their size would otherwise
    delay the path. The residual belongs to the problem itself.
    """
    rounding = 4.0 * float(jnp.finfo(problem.velocity.dtype).eps)
    velocity = problem.velocity
    if problem.smoothing is None:
        velocity = problem.join(jnp.minimum(problem.normals(velocity), DISTANT), problem.discs(velocity))
    return dataclasses.replace(
        problem,
        velocity=velocity,
        delassus=add_diagonal(problem.delassus, jnp.full_like(problem.velocity, rounding)),
        friction=jnp.maximum(problem.friction, SMALLEST_FRICTION),
        bound=None if problem.bound is None else jnp.maximum(problem.bound, SMALLEST_FRICTION),
    )


def _start(problem: ContactProblem, impulse: Any) -> _Point:
    """Return the point of the central path with p_n = `impulse`, w_n = 1, w_t = p_t = 0, kappa = p_n w_n."""
    contacts, one_sided, dry = problem.sizes
    dtype = problem.velocity.dtype
    ones = jnp.ones((contacts + one_sided,), dtype)
    w = problem.join(ones, jnp.zeros((contacts + dry, problem.tangents), dtype))
    return _Point(impulse * w, w, impulse / problem.radii(impulse * ones))


def _step(problem: ContactProblem, point: _Point) -> _Point:
    """Return the next iterate."""
    gap = problem.velocities(point.p) - point.w
    normal_p, disc_p = problem.normals(point.p), problem.discs(point.p)
    normal_w, disc_w = problem.normals(point.w), problem.discs(point.w)
    radii = problem.radii(normal_p)
    inverse_b = _inverse_b(disc_p, radii)
    slope = disc_w - (point.psi / radii)[:, None] * disc_p
    factors = jax.scipy.linalg.lu_factor(
        problem.delassus + _condensed(problem, point, inverse_b, slope).dense()
    )

    def direction(target: Array, second: tuple[Array, Array, Array]) -> _Point:
        """Return the Newton step toward kappa = target, without the second-order terms."""
        r_n = target - normal_p * normal_w - second[0]
        r_p = target - radii * point.psi - jnp.sum(disc_p * disc_w, -1) - second[1]
        r_t = -radii[:, None] * disc_w - point.psi[:, None] * disc_p - second[2]
        condensed = jnp.einsum("mij,mj->mi", inverse_b, r_t - disc_p * (r_p / radii)[:, None])
        dp = jax.scipy.linalg.lu_solve(factors, problem.join(r_n / normal_p, condensed) - gap)
        dw = problem.delassus @ dp + gap
        change = r_p - point.psi * _change_of_radii(problem, dp)
        change = change - jnp.sum(disc_p * problem.discs(dw) + disc_w * problem.discs(dp), -1)
        return _Point(dp, dw, change / radii)

    zero = jnp.zeros((), gap.dtype)
    affine = direction(zero, (zero, zero, zero))
    reached = _longest(problem, point, affine)
    now = _mean_product(problem, point)
    after = _mean_product(problem, _moved(point, affine, reached))
    target = jnp.clip((after / now) ** 3, 1e-8, 1.0) * now
    weight = reached * reached
    if problem.smoothing is not None:
        weight = jnp.where(target > problem.smoothing, weight, 0.0)
        target = jnp.maximum(target, problem.smoothing)
    d_radii, d_disc = _change_of_radii(problem, affine.p), problem.discs(affine.p)
    second = (
        problem.normals(affine.p) * problem.normals(affine.w),
        d_radii * affine.psi + jnp.sum(d_disc * problem.discs(affine.w), -1),
        d_radii[:, None] * problem.discs(affine.w) + affine.psi[:, None] * d_disc,
    )
    step = direction(target, jax.tree.map(lambda x: weight * x, second))
    new = _moved(point, step, jnp.minimum(1.0, TO_BOUNDARY * _longest(problem, point, step)))
    finite = jnp.all(jnp.isfinite(new.p)) & jnp.all(jnp.isfinite(new.w)) & jnp.all(jnp.isfinite(new.psi))
    return jax.tree.map(lambda x, y: jnp.where(finite, x, y), new, point)


def _inverse_b(disc_p: Array, radii: Array) -> Array:
    """Return B_tt^-1 of every disc (m + f, tangents, tangents)."""
    inside = jnp.maximum(radii * radii - jnp.sum(disc_p * disc_p, -1), jnp.finfo(radii.dtype).tiny)
    outer = disc_p[:, :, None] * disc_p[:, None, :]
    return (jnp.eye(disc_p.shape[1], dtype=radii.dtype) + outer / inside[:, None, None]) / radii[
        :, None, None
    ]


def _condensed(problem: ContactProblem, point: _Point, inverse_b: Array, slope: Array) -> BlockDiagonal:
    """Return B^-1 A, with psi eliminated."""
    contacts = problem.sizes[0]
    disc_p, disc_w = problem.discs(point.p), problem.discs(point.w)
    normal = problem.normals(point.w) / problem.normals(point.p)
    radii = problem.radii(problem.normals(point.p))
    eye = jnp.eye(problem.tangents, dtype=normal.dtype)
    a = point.psi[:, None, None] * eye - disc_p[:, :, None] * disc_w[:, None, :] / radii[:, None, None]
    disc = jnp.einsum("mij,mjk->mik", inverse_b, a)
    coupling = jnp.einsum("mij,mj->mi", inverse_b, slope)[:contacts] * problem.friction[:, None]
    top = jnp.pad(normal[:contacts, None, None], ((0, 0), (0, 0), (0, problem.tangents)))
    block = jnp.concatenate([top, jnp.concatenate([coupling[:, :, None], disc[:contacts]], axis=2)], axis=1)
    return BlockDiagonal(block, jnp.concatenate([normal[contacts:], disc[contacts:, 0, 0]]))


def _change_of_radii(problem: ContactProblem, dp: Array) -> Array:
    """Return the change of the radii: mu dp_n for contacts, zero for dry-friction rows."""
    contacts, _, dry = problem.sizes
    return jnp.pad(problem.friction * problem.normals(dp)[:contacts], (0, dry))


def _mean_product(problem: ContactProblem, point: _Point) -> Scalar:
    """Return kappa of the point of the path that is nearest to an iterate: the mean of the products."""
    normals = problem.normals(point.p) * problem.normals(point.w)
    radii = problem.radii(problem.normals(point.p))
    discs = radii * point.psi + jnp.sum(problem.discs(point.p) * problem.discs(point.w), -1)
    return jnp.mean(jnp.concatenate([normals, discs]))


def _moved(point: _Point, step: _Point, length: Array) -> _Point:
    return jax.tree.map(lambda x, dx: x + length * dx, point, step)


def _longest(problem: ContactProblem, point: _Point, step: _Point) -> Scalar:
    """Return the largest step length up to 1 that stays in all cones."""
    normals = [
        _to_zero(problem.normals(x), problem.normals(dx)) for x, dx in ((point.p, step.p), (point.w, step.w))
    ]
    radii = problem.radii(problem.normals(point.p))
    discs = [
        _to_cone(radii, problem.discs(point.p), _change_of_radii(problem, step.p), problem.discs(step.p)),
        _to_cone(point.psi, problem.discs(point.w), step.psi, problem.discs(step.w)),
    ]
    return jnp.min(jnp.concatenate([*normals, *discs]), initial=1.0)


def _to_zero(x: Array, dx: Array) -> Array:
    """Return the step lengths to x + s dx = 0 (infinite if x does not decrease)."""
    falls = dx < 0.0
    return jnp.where(falls, -x / jnp.where(falls, dx, 1.0), jnp.inf)


def _to_cone(x0: Array, xt: Array, d0: Array, dt: Array) -> Array:
    """Return the step lengths to the boundary |xt + s dt| = x0 + s d0 of second-order cones.

    The smallest positive root of a s^2 + 2 b s + c, with the root formula that does not cancel.
    """
    tiny = jnp.finfo(x0.dtype).tiny
    a = d0 * d0 - jnp.sum(dt * dt, -1)
    b = x0 * d0 - jnp.sum(xt * dt, -1)
    c = jnp.maximum(x0 * x0 - jnp.sum(xt * xt, -1), 0.0)
    real = b * b - a * c >= 0.0
    root = jnp.sqrt(jnp.where(real, b * b - a * c, 0.0))
    q = -(b + jnp.where(b >= 0.0, root, -root))
    first = jnp.where(jnp.abs(a) > tiny, q / jnp.where(jnp.abs(a) > tiny, a, 1.0), jnp.inf)
    second = jnp.where(jnp.abs(q) > tiny, c / jnp.where(jnp.abs(q) > tiny, q, 1.0), jnp.inf)
    lengths = [jnp.where(real & (s > 0.0), s, jnp.inf) for s in (first, second)]
    return jnp.minimum(jnp.minimum(*lengths), _to_zero(x0, d0))
