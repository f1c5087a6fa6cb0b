"""The contact law as an equation F(p, u) = 0, exact or rounded.

*Exact law* (Alart and Curnier). With z = p - u, the impulses satisfy the law if and only if

    p_n = max(z_n, 0),        p_t = P_rho(z_t),        rho = mu p_n  or the bound of a dry-friction row,

where P_rho projects onto the disc of radius rho. Proof for a normal: p_n = max(p_n - u_n, 0) holds if u_n = 0
and p_n >= 0, or p_n = 0 and u_n >= 0. For a tangent: p_t is the projection of p_t - u_t onto the disc if -u_t
is normal to the disc at p_t, that is, u_t = 0 inside, and u_t = -s p_t, s >= 0, on the circle. This is De
Saxcé's cone formulation without a cone:

    K contains p,   K* contains u + mu |u_t| e_n,   p . (u + mu |u_t| e_n) = 0,

with K = {|p_t| <= mu p_n} and its dual K*. Without the term mu |u_t| e_n, this would be the convexified
problem, in which sliding bodies lift off.

*Rounded law.* For kappa > 0,

    p_n u_n = kappa,  p_n > 0          <=>    p_n = (z_n + sqrt(z_n^2 + 4 kappa)) / 2
    p_t = -rho u_t / psi,              psi = eps + sqrt(eps^2 + |u_t|^2),  eps = kappa / (2 rho)

Contacts hover with u_n = kappa / p_n, and friction is Coulomb's law with a corner rounded over the width eps.
These are the points of the central path of the interior-point method (`contact_problem.interior_point`): psi
is the positive root of rho psi + p_t . u_t = kappa.

References:
    P. Alart, A. Curnier, Computer Methods in Applied Mechanics and Engineering 92 (1991), 353-375.
    G. De Saxcé, Z.-Q. Feng, Mathematical and Computer Modelling 28 (1998), 225-245.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.compile.sharding import varying_with
from jaxdae.contact_problem.contact_interface import ContactProblem, better
from jaxdae.typing import Leaf, Scalar


def length(x: Array) -> Array:
    """Return the length of the vectors along the last axis; its derivative at zero is zero."""
    squared = jnp.sum(x * x, axis=-1)
    zero = squared == 0.0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squared)))


@jax.jit
def law(problem: ContactProblem, p: Array, u: Array) -> Array:
    """Return F(p, u) (n,), which is zero if and only if the impulses p and velocities u satisfy the law."""
    normal_p, disc_p = problem.normals(p), problem.discs(p)
    z = normal_p - problem.normals(u)
    if problem.smoothing is None:
        normal = jnp.where(z <= 0.0, jnp.zeros_like(z), z)  # NaN remains NaN.
        return p - problem.join(normal, in_disc(disc_p - problem.discs(u), problem.radii(normal)))
    kappa: Array = problem.smoothing
    root = jnp.sqrt(z * z + 4.0 * kappa)
    # The sum cancels for z < 0; the other form of the root does not.
    normal = jnp.where(z > 0.0, (z + root) / 2.0, 2.0 * kappa / (root - jnp.minimum(z, 0.0)))
    radii, slip = jnp.maximum(problem.radii(normal), SMALLEST_RADIUS * kappa), problem.discs(u)
    width = kappa / (2.0 * radii)
    psi = width + jnp.sqrt(width**2 + jnp.sum(slip * slip, axis=-1))
    # Divided by psi + rho: an impulse where the contact slides, a velocity where it sticks.
    error = (psi[:, None] * disc_p + radii[:, None] * slip) / (psi + radii)[:, None]
    return problem.join(normal_p - normal, error)


SMALLEST_RADIUS = 1e-6
"""Smallest radius of a disc in the rounded law, times kappa, in scaled units: keeps its width finite."""


def in_disc(x: Array, radii: Array) -> Array:
    """Return the projections of vectors x (k, t) onto discs with the given radii (k,)."""
    size = length(x)
    # A disc of radius zero counts as sliding: with friction zero, the derivative is that of free motion.
    slides = size >= radii
    factor = jnp.where(slides, radii / jnp.where(size == 0.0, 1.0, size), 1.0)
    return factor[:, None] * x


def residual(problem: ContactProblem, p: Array) -> Scalar:
    """Return max |F| over all rows, at u = D p + b: zero exactly at solutions; in the units of p and u."""
    return jnp.max(jnp.abs(law(problem, p, problem.velocities(p))), initial=0.0)


def best_iterate(
    problem: ContactProblem,
    step: Callable[[Any], Any],
    start: Any,
    iterations: int,
    impulses: Callable[[Any], Array] = lambda iterate: iterate,
) -> tuple[Array, Scalar]:
    """Return the impulses (n,) of the iterate with the smallest residual, and this residual ().

    The iterations end when the residual is round-off. The result of a world does not depend on other worlds
    of a batch.

    Args:
        problem: the problem.
        step: function of an iterate that returns the next iterate.
        start: first iterate.
        iterations: largest number of steps.
        impulses: function of an iterate that returns its impulses (n,); by default the iterate itself.
    """

    def judged(iterate: Any) -> tuple[Array, Scalar]:
        p = impulses(iterate)
        return p, residual(problem, p)

    def goes_on(carry: Any) -> Any:
        count, _, best = carry
        return (count < iterations) & is_unsolved(best)

    def iteration(carry: Any) -> Any:
        count, iterate, best = carry
        iterate = step(iterate)
        return count + 1, iterate, better(best, judged(iterate))

    start = varying_with(start, problem)
    return jax.lax.while_loop(goes_on, iteration, (0, start, judged(start)))[2]


def accepted_residual(dtype: Any) -> float:
    """Return the largest residual of the contact law that counts as converged."""
    return 1e-6 if jnp.finfo(dtype).eps < 1e-10 else 1e-3


def is_unsolved(best: tuple[Array, Scalar]) -> Any:
    """Return whether the residual of a pair (impulses, residual) is more than round-off.

    In a scaled problem, the terms of D p and b have at most the size of p or 1. In a stack of five boxes with
    a mass ratio of 1000, impulses are of the size 1000, and the residual cannot fall below 1e-12.
    """
    p, error = best
    enough = 100.0 * float(jnp.finfo(error.dtype).eps) * jnp.maximum(1.0, jnp.max(jnp.abs(p), initial=0.0))
    return ~(error <= enough)


@pytree
class BlockDiagonal:
    """A matrix with one block per contact and one number per single row.

    Attributes:
        contacts: blocks (m, d, d).
        single: diagonal entries of the one-sided and dry-friction rows (k + f,).
    """

    contacts: Leaf
    single: Leaf

    def times(self, matrix: Array) -> Array:
        """Return the product with a matrix (n, c)."""
        count, size, _ = self.contacts.shape
        rows = matrix[: count * size].reshape(count, size, matrix.shape[1])
        product = jnp.einsum("mij,mjc->mic", self.contacts, rows).reshape(count * size, matrix.shape[1])
        return jnp.concatenate([product, self.single[:, None] * matrix[count * size :]])

    def dense(self) -> Array:
        """Return the matrix (n, n)."""
        count, size, _ = self.contacts.shape
        single = self.single.shape[0]
        eye = np.eye(count, dtype=self.contacts.dtype)
        matrix = (eye[:, None, :, None] * self.contacts[:, :, None, :]).reshape(count * size, count * size)
        if single == 0:
            return matrix
        return jnp.pad(matrix, ((0, single), (0, single))) + jnp.diag(jnp.pad(self.single, (count * size, 0)))


def blocks(function: Callable[[Array], Array], x: Array, problem: ContactProblem) -> BlockDiagonal:
    """Return the Jacobian of a function (n,) -> (n,) that couples only the rows of one contact.

    The tangent with a 1 in the same row of every contact gives one column of all blocks.
    """
    contacts, size = problem.sizes[0], 1 + problem.tangents
    tangents = np.ones((size, *x.shape), x.dtype)
    tangents[:, : contacts * size] = np.tile(np.eye(size), contacts)
    columns = jax.vmap(lambda tangent: jax.jvp(function, (x,), (varying_with(tangent, x),))[1])(tangents)
    blocks = columns[:, : contacts * size].reshape(size, contacts, size).transpose(1, 2, 0)
    return BlockDiagonal(blocks, columns[0, contacts * size :])


def newton_matrix(problem: ContactProblem, p: Array, delassus: Array) -> Array:
    """Return dF/dp = A + B D (n, n), with A = dF/dp at fixed u and B = dF/du at fixed p.

    The exact law has the form F = p - P(p - u), so that A = 1 - B.
    """
    u = problem.velocities(p)
    b = blocks(lambda u: law(problem, p, u), u, problem)
    if problem.smoothing is None:
        eye = jnp.eye(b.contacts.shape[1], dtype=p.dtype)
        a = BlockDiagonal(eye - b.contacts, 1.0 - b.single)
    else:
        a = blocks(lambda p: law(problem, p, u), p, problem)
    return a.dense() + b.times(delassus)
