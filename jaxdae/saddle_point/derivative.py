"""Solution of saddle-point systems with exact derivatives.

See `jaxdae.saddle_point.saddle_point_solver` for the system.

Derivative at full rank. K x = b gives K dx = db - dK x: one more solve with the *same* factors. Reverse mode
is the transpose of this solve. The factors themselves are never differentiated. The solve is a
`lax.custom_linear_solve`, which defines its own transpose and derivative, so the rule holds at every order
(`jax.hessian`).

Derivative at constant deficient rank. Let Q be the projector onto the null space of K at the point, held
constant. Then T = K + Q is invertible there and nearby, with T^-1 = K^+ + Q at the point. The null space of a
nearby K of the same rank is the range of Y = T^-1 Q (K n = 0 gives T n = Q n; the dimensions agree), so its
projector is Q' = Y (Y^T Y)^-1 Y^T, and

    x = (I - Q') T^-1 (I - Q') b

equals K^+ b for every such K: for null vectors n, n^T (K + Q) x1 = n^T (I - Q') b = 0 shows Q x1 = 0, hence K
x1 = (I - Q') b. Every factor is a linear solve with a known inverse at the point (the inverse of Y^T Y on the
range of Q is the identity). So this derivative is also exact at every order, even for equal singular values,
and no SVD is differentiated. Null vectors have no component in a, and neither do the null vectors of nearby
matrices. The code therefore computes Y and Q' for the rows only. Round-off of accelerations (of light bodies,
1e6 times larger) cannot enter through them.

The value itself is computed outside this scheme: the batching rule of `custom_linear_solve` would move the
batch axis to the front, and the small-matrix routines are fast only with the batch axis last.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.rematerialization import SOLUTION, named
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.zero_tangents import Moving
from jaxdae.matrices import JacobianOperator, MassOperator, as_jacobian_operator, as_mass_operator
from jaxdae.saddle_point.saddle_point_solver import SaddlePointSolver
from jaxdae.typing import Rows, Velocity


@jax.custom_jvp
def _solve(
    factors: Any, mass: Any, jacobian: Any, compliance: Any, f: Array | None, r: Array
) -> tuple[Array, Array]:
    return worlds_first(factors.solve(f, r))


def _solve_jvp(primals: Any, tangents: Any) -> Any:
    factors = primals[0]
    moving = Moving.of(primals[1:], tangents[1:])

    # Use primitives, not `_solve`: JAX drops custom rules when it builds linear programs inside other
    # programs, and a second derivative would then see only the constant factors.
    def solution(*values: Any) -> tuple[Array, Array]:
        return worlds_first(_through_primitives(factors, *moving.filled(values)))

    if not _needs_full_rank(factors, primals[-1]):
        # The residual below ignores the rotation of null vectors and inconsistent right-hand sides.
        return jax.jvp(solution, moving.values, moving.tangents)
    x = named(solution(*moving.values), SOLUTION)

    def residual(*values: Any) -> tuple[Array, Array]:
        """Return b - K x at the solution, as a function of the problem."""
        mass, jacobian, compliance, f, r = moving.filled(values)
        a, lam = x
        force = jacobian.transpose_times(lam) - mass.times(a)
        rate = r - jacobian.times(a)
        return force if f is None else force + f, rate if compliance is None else rate - compliance * lam

    change = jax.jvp(residual, moving.values, moving.tangents)[1]
    return x, _through_primitives(factors, *primals[1:4], *change)


def _needs_full_rank(factors: Any, r: Any) -> bool:
    return jax.eval_shape(factors.inconsistent, r) is None


_solve.defjvp(_solve_jvp, symbolic_zeros=True)


def _through_primitives(
    factors: Any, mass: Any, jacobian: Any, compliance: Any, f: Array | None, r: Array
) -> tuple[Array, Array]:
    """Return the same (a, lam) as `_solve`, from solves that JAX can differentiate and transpose."""
    # Inside `jax.shard_map`, JAX marks everything that a solve reads as device-varying, but only after it has
    # traced the functions of the solve.
    factors, mass, jacobian, compliance, f, r = varying_with((factors, mass, jacobian, compliance, f, r))
    rows = r.shape[0]
    size = jacobian.shape[1]
    b = jnp.concatenate([jnp.zeros((size,), r.dtype) if f is None else f, r])
    full_rank = _needs_full_rank(factors, r)

    def null_part(x: Array) -> Array:
        return factors.inconsistent(x[size:])

    def matrix(x: Array) -> Array:
        a, mu = x[:size], x[size:]
        rate = jacobian.times(a)
        if compliance is not None:
            rate = rate - compliance * mu
        if not full_rank:
            rate = rate + null_part(x)
        return jnp.concatenate([mass.times(a) + jacobian.transpose_times(mu), rate])

    def inverse(_: Any, rhs: Array) -> Array:
        a, lam = factors.solve(rhs[:size], rhs[size:])
        return jnp.concatenate([a, -lam if full_rank else null_part(rhs) - lam])

    def solved(rhs: Array) -> Array:
        # Solve for one vector because the transpose of the primitive requires every part of the right-hand
        # side to be a tangent.
        return jax.lax.custom_linear_solve(matrix, rhs, inverse, symmetric=True)

    if full_rank:
        x = solved(b)
        return x[:size], -x[size:]

    def basis(y: Array) -> Array:
        return solved(jnp.concatenate([jnp.zeros((size,), r.dtype), factors.inconsistent(y)]))[size:]

    def basis_transposed(mu: Array) -> Array:
        return null_part(solved(jnp.concatenate([jnp.zeros((size,), r.dtype), mu])))

    def gram(y: Array) -> Array:
        return basis_transposed(basis(y)) + y - factors.inconsistent(y)

    def without_null(mu: Array) -> Array:
        weights = jax.lax.custom_linear_solve(gram, basis_transposed(mu), lambda _, y: y, symmetric=True)
        return mu - basis(weights)

    if rows == 0:
        x = solved(b)
        return x[:size], x[size:]
    x = solved(jnp.concatenate([b[:size], without_null(r)]))
    return x[:size], -without_null(x[size:])


def solve(
    factors: Any, mass: MassOperator, jacobian: JacobianOperator, compliance: Any, f: Velocity | None, r: Rows
) -> tuple[Velocity, Rows]:
    """Return (a, lam) from factors, differentiable with respect to M, J, C, f and r.

    Args:
        factors: the result of `solver.factorize(M, J, C)`. Its derivative is ignored, so you need no
            `stop_gradient`.
        mass: M, an operator.
        jacobian: J, an operator.
        compliance: C, the diagonal of the lower right block, (nc,); None for zero.
        f: first right-hand side (nv,); None for zero.
        r: second right-hand side (nc,).
    """
    return _solve(jax.lax.stop_gradient(factors), mass, jacobian, compliance, f, r)


def solve_saddle_point(
    solver: SaddlePointSolver, mass: Any, jacobian: Any, f: Velocity | None, r: Rows, compliance: Any = None
) -> tuple[Velocity, Rows]:
    """Factorize and solve M a - J^T lam = f and J a + C lam = r for given matrices; return (a, lam).

    Args:
        solver: a saddle-point solver, such as `SchurComplement()`.
        mass: M, an array (nv, nv) or an operator such as `DiagonalMatrix`.
        jacobian: J, an array (nc, nv) or an operator.
        f: first right-hand side (nv,); None for zero.
        r: second right-hand side (nc,).
        compliance: C, the diagonal of the lower right block: a scalar, or (nc,); None for zero.

    The result is differentiable with respect to every argument except the solver, in forward and reverse
    mode, at every order.
    """
    mass, jacobian = as_mass_operator(mass), as_jacobian_operator(jacobian)
    diagonal = None if compliance is None else jnp.broadcast_to(jnp.asarray(compliance, r.dtype), r.shape)
    factors = solver.factorize(*jax.lax.stop_gradient((mass, jacobian, diagonal)))
    return solve(factors, mass, jacobian, diagonal, f, r)
