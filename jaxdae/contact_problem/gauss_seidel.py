"""Gauss-Seidel method: one contact after another."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.contact_problem.contact_interface import ContactProblem
from jaxdae.contact_problem.contact_law import best_iterate, in_disc
from jaxdae.typing import Scalar


@pytree
class GaussSeidel:
    """Gauss-Seidel method: solve one contact after another, for given impulses of the others.

    The normal impulse comes first. The tangential impulse follows, with the largest eigenvalue of D_tt in
    place of D_tt, projected onto the disc of the new normal impulse. Convergence is linear and depends on the
    mass ratios: use it for many worlds at low accuracy, in single precision, or as a guess for
    `ContactNewton`.

    Attributes:
        iterations: largest number of sweeps over all rows, at least 1.
    """

    iterations: int = static(default=50)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield self.iterations >= 1, "iterations must be at least 1"

    def solve(self, problem: ContactProblem, guess: Array) -> tuple[Array, Scalar]:
        """Return the iterate with the smallest residual and this residual; see `ContactSolver`.

        Raises:
            ValueError: the problem is smoothed.
        """
        if problem.smoothing is not None:
            raise ValueError("GaussSeidel solves the exact law; use InteriorPoint or Robust with smoothing")
        contacts, one_sided, dry = problem.sizes
        size = 1 + problem.tangents
        matrix, b = problem.delassus, problem.velocity

        def contact(index: Array, p: Array) -> Array:
            first = index * size
            rows = jax.lax.dynamic_slice_in_dim(matrix, first, size)
            block = jax.lax.dynamic_slice_in_dim(rows, first, size, axis=1)
            u = rows @ p + jax.lax.dynamic_slice_in_dim(b, first, size)
            own = jax.lax.dynamic_slice_in_dim(p, first, size)
            normal = jnp.maximum(own[0] - u[0] / _positive(block[0, 0]), 0.0)
            slip = u[1:] + block[1:, 0] * (normal - own[0])
            stiffness = _positive(_largest_eigenvalue(block[1:, 1:]))
            tangent = in_disc((own[1:] - slip / stiffness)[None], problem.friction[index, None] * normal)[0]
            return jax.lax.dynamic_update_slice_in_dim(p, jnp.append(normal, tangent), first, axis=0)

        bound = jnp.zeros((0,), b.dtype) if problem.bound is None else problem.bound
        lower = jnp.concatenate([jnp.zeros((one_sided,), b.dtype), -bound])
        upper = jnp.concatenate([jnp.full((one_sided,), jnp.inf, b.dtype), bound])

        def single(index: Array, p: Array) -> Array:
            row = contacts * size + index
            u = matrix[row] @ p + b[row]
            return p.at[row].set(
                jnp.clip(p[row] - u / _positive(matrix[row, row]), lower[index], upper[index])
            )

        def sweep(p: Array) -> Array:
            if contacts:
                p = jax.lax.fori_loop(0, contacts, contact, p)
            return jax.lax.fori_loop(0, one_sided + dry, single, p) if one_sided + dry else p

        return best_iterate(problem, sweep, guess, self.iterations)


def _largest_eigenvalue(matrix: Array) -> Array:
    """Return the largest eigenvalue of a symmetric matrix (1, 1) or (2, 2).

    Without its mean eigenvalue, the matrix has the eigenvalues +-x and the squared Frobenius norm 2 x^2.
    """
    size = matrix.shape[0]
    mean = jnp.trace(matrix) / size
    return mean + jnp.sqrt(jnp.sum((matrix - mean * jnp.eye(size, dtype=matrix.dtype)) ** 2) / 2.0)


def _positive(x: Array) -> Array:
    """Return x, or 1 in place of a zero diagonal entry."""
    return jnp.where(x > 0.0, x, 1.0)
