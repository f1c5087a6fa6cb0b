"""The saddle-point system, its solver interface, and its derivative.

Every solver here finds (a, lam) with

    M a - J^T lam = f
    J a + C lam   = r                         C: diagonal compliance, zero for rigid constraints

in two phases: `factorize(M, J, C)` does the O(n^3) work, and the factors solve any number of right-hand sides. Projections, the L
blocks and the derivative below all reuse one factorization.

Derivative. With the residual above differentiated,

    M da - J^T dlam = df - dM a + dJ^T lam
    J da + C dlam   = dr - dJ a - dC lam

so the tangent is one more solve with the *same* factors, and reverse mode is its transpose; the factors themselves are never
differentiated. The tangent's solve is a `lax.custom_linear_solve`, which knows its transpose and its own derivative, so that the rule
holds at every order (`jax.hessian`). For that it is written in (a, -lam), where the matrix [M J^T; J -C] is symmetric. The value
itself is computed outside of it: the batching rule of `custom_linear_solve` would move the world axis to the front, away from where
the small-matrix routines are fast.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero

from jaxdae import small_matrix
from jaxdae.saddle_point import mass as mass_matrix
from jaxdae.saddle_point.mass import DiagonalMatrix, MassMatrix
from jaxdae.typing import Jacobian, Rows, Velocity


class SaddlePointFactors(Protocol):
    """A factorized saddle-point matrix: a pytree that solves for any right-hand side."""

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,); linear in both."""
        ...


class SaddlePointSolver(Protocol):
    """A method for saddle-point systems; a pytree without state."""

    def factorize(self, mass: MassMatrix, jacobian: Jacobian, compliance: Rows) -> SaddlePointFactors:
        """Returns factors of [M -J^T; J C]."""
        ...

    def __call__(self, mass: MassMatrix, jacobian: Jacobian, f: Velocity | None, r: Rows, compliance: Any = 0.0) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for one right-hand side; differentiable with respect to every argument."""
        ...


def _tangent_or_zero(tangent: Any, like: Array) -> Array:
    return jnp.zeros_like(like) if isinstance(tangent, SymbolicZero) else tangent


@jax.custom_jvp
def _solve(factors: Any, mass: Any, jacobian: Array, compliance: Array, f: Array | None, r: Array) -> tuple[Array, Array]:
    return factors.solve(f, r)


def _solve_jvp(primals: Any, tangents: Any) -> Any:
    factors, mass, jacobian, compliance, f, r = primals
    _, dmass, djacobian, dcompliance, df, dr = tangents
    # Through the primitive, not through `_solve`: JAX drops custom rules where it builds linear programs inside of others, and a second
    # derivative would then see the constant factors only.
    a, lam = _linear_solve(factors, mass, jacobian, compliance, jnp.zeros((jacobian.shape[1],), r.dtype) if f is None else f, r)
    rhs_f = jnp.zeros_like(a) if f is None else _tangent_or_zero(df, f)
    rhs_r = _tangent_or_zero(dr, r)
    dmass_leaves = [leaf for leaf in jax.tree.leaves(dmass) if not isinstance(leaf, SymbolicZero)]
    if dmass_leaves:
        is_diagonal = isinstance(mass, DiagonalMatrix)
        rhs_f = rhs_f - mass_matrix.times(DiagonalMatrix(dmass_leaves[0]) if is_diagonal else dmass_leaves[0], a)
    if not isinstance(djacobian, SymbolicZero):
        rhs_f = rhs_f + small_matrix.rmatvec(djacobian, lam)
        rhs_r = rhs_r - small_matrix.matvec(djacobian, a)
    if not isinstance(dcompliance, SymbolicZero):
        rhs_r = rhs_r - dcompliance * lam
    return (a, lam), _linear_solve(factors, mass, jacobian, compliance, rhs_f, rhs_r)


def _linear_solve(factors: Any, mass: Any, jacobian: Array, compliance: Array, f: Array, r: Array) -> Any:
    """Returns (a, lam) as `_solve`, but through a primitive that can be transposed."""
    size = f.shape[0]

    def matrix(x: Array) -> Array:
        a, minus_lam = x[:size], x[size:]
        force = mass_matrix.times(mass, a) + small_matrix.rmatvec(jacobian, minus_lam)
        return jnp.concatenate([force, small_matrix.matvec(jacobian, a) - compliance * minus_lam])

    def inverse(_: Any, rhs: Array) -> Array:
        a, lam = factors.solve(rhs[:size], rhs[size:])
        return jnp.concatenate([a, -lam])

    # One vector, because the primitive's transpose needs every part of the right-hand side to be a tangent.
    x = jax.lax.custom_linear_solve(matrix, jnp.concatenate([f, r]), inverse, symmetric=True)
    return x[:size], -x[size:]


_solve.defjvp(_solve_jvp, symbolic_zeros=True)


def solve(factors: Any, mass: MassMatrix, jacobian: Jacobian, compliance: Rows, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
    """Returns (a, lam) from factors, differentiable with respect to M, J, C, f and r.

    Args:
        factors: what `solver.factorize(M, J, C)` returned. Its derivative is ignored: pass it as it is.
        mass: M, dense (nv, nv) or `DiagonalMatrix`.
        jacobian: J (nc, nv).
        compliance: C, the diagonal of the zero block, (nc,).
        f: first right-hand side (nv,); None for zero.
        r: second right-hand side (nc,).
    """
    return _solve(jax.lax.stop_gradient(factors), mass, jacobian, compliance, f, r)


def solve_once(
    solver: SaddlePointSolver, mass: MassMatrix, jacobian: Jacobian, f: Velocity | None, r: Rows, compliance: Any
) -> tuple[Velocity, Rows]:
    """Returns (a, lam) for one right-hand side: factorize, then `solve`. What `solver(...)` does."""
    diagonal = jnp.broadcast_to(jnp.asarray(compliance, r.dtype), r.shape)
    factors = solver.factorize(*jax.lax.stop_gradient((mass, jacobian, diagonal)))
    return solve(factors, mass, jacobian, diagonal, f, r)
