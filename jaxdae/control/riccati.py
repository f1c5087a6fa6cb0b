"""The algebraic Riccati equation, solved and differentiated in JAX.

For x' = A x + B u and the cost of x^T Q x + u^T R u over all time, the optimal u is -R^-1 B^T X x, where X is
the stabilizing solution of

    A^T X + X A - X G X + Q = 0,        G = B R^-1 B^T.

*Solution.* The Hamiltonian matrix H = [A -G; -Q -A^T] has the invariant subspace [I; X], on which it acts as
the closed loop A - G X. The sign function of H is -1 on the stable subspace, so (sign(H) + I) [I; X] = 0.
With W = sign(H), X solves the consistent overdetermined system

    [W12; W22 + I] X = -[W11 + I; W21].

sign(H) is the limit of the Newton iteration Z -> (c Z + (c Z)^-1) / 2, which converges quadratically.
c = |det Z|^(-1/2n) keeps the iteration short. One step of Newton's method for the equation itself
(Kleinman's) then removes the rounding errors: with Ac = A - G X, the correction solves the Lyapunov equation
Ac^T D + D Ac = -(residual).

*Derivative.* By the implicit function theorem, with the same Lyapunov operator,

    Ac^T dX + dX Ac = -(dQ + dA^T X + X dA - X dG X).

This linear system of n^2 unknowns is solved as one system; n is twice the mobility, at most a few tens. The
solution is differentiable in forward and reverse mode, to every order.

References:
    J. D. Roberts, "Linear model reduction and solution of the algebraic Riccati equation by use of the sign
    function", International Journal of Control 32 (1980). R. Byers, "Solving the algebraic Riccati equation
    with the matrix sign function", Linear Algebra and its Applications 85 (1987). D. L. Kleinman, "On an
    iterative technique for Riccati equation computations", IEEE Transactions on Automatic Control 13 (1968).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.batch_last import one_by_one

Matrix = Float[Array, "n n"]

_SIGN_ITERATIONS = 30
"""The Newton iteration halves the distance of eigenvalues from the imaginary axis, on a logarithmic scale of
the spectrum, and then converges quadratically. With determinant scaling, 30 corrections suffice for ratios up
to about 1e8."""

_least_squares = one_by_one(lambda left, right: jnp.linalg.lstsq(left, right)[0])


def solve_lyapunov(a: Matrix, q: Matrix) -> Matrix:
    """Return X with A^T X + X A + Q = 0, by one linear system of n^2 unknowns; differentiable.

    Args:
        a: A (n, n), without a pair of eigenvalues whose sum is zero.
        q: Q (n, n).
    """
    eye = jnp.eye(a.shape[0], dtype=a.dtype)
    # Row by row: (A^T X)_ij = sum_k A_ki X_kj and (X A)_ij = sum_k X_ik A_kj.
    operator = jnp.kron(a.T, eye) + jnp.kron(eye, a.T)
    return jnp.linalg.solve(operator, -q.reshape(-1)).reshape(q.shape)


def solve_riccati(a: Matrix, g: Matrix, q: Matrix) -> Matrix:
    """Return the stabilizing X with A^T X + X A - X G X + Q = 0; NaN if the iteration does not find one.

    Args:
        a: A (n, n).
        g: G = B R^-1 B^T (n, n), symmetric, positive semidefinite.
        q: Q (n, n), symmetric, positive semidefinite.

    X exists if (A, B) is stabilizable and Q weights every mode on the imaginary axis. Differentiable in
    forward and reverse mode, to every order.
    """
    return _riccati(a, g, q)


@jax.custom_jvp
def _riccati(a: Matrix, g: Matrix, q: Matrix) -> Matrix:
    n = a.shape[0]
    sign = _sign(jnp.block([[a, -g], [-q, -a.T]]))
    eye = jnp.eye(n, dtype=a.dtype)
    left = jnp.concatenate([sign[:n, n:], sign[n:, n:] + eye])
    right = jnp.concatenate([sign[:n, :n] + eye, sign[n:, :n]])
    x = _least_squares(left, -right)
    x = 0.5 * (x + x.T)

    x = x + solve_lyapunov(a - g @ x, _residual(a, g, q, x))
    x = 0.5 * (x + x.T)
    size = (
        2.0 * jnp.linalg.norm(a) * jnp.linalg.norm(x)
        + jnp.linalg.norm(q)
        + jnp.linalg.norm(g) * jnp.linalg.norm(x) ** 2
    )
    solved = jnp.linalg.norm(_residual(a, g, q, x)) <= float(jnp.finfo(a.dtype).eps) ** 0.5 * size
    # Only the stabilizing solution of the equation has a stable Ac. Ac is stable if and only if
    # Ac^T Y + Y Ac = -I has a solution Y > 0.
    stable = jnp.all(jnp.isfinite(jnp.linalg.cholesky(solve_lyapunov(a - g @ x, eye))))
    return worlds_first(jnp.where(solved & stable, x, jnp.nan))


def _riccati_jvp(primals: Any, tangents: Any) -> Any:
    a, g, q = primals
    da, dg, dq = tangents
    x = _riccati(a, g, q)
    change = dq + da.T @ x + x @ da - x @ dg @ x
    return x, worlds_first(solve_lyapunov(a - g @ x, change))


_riccati.defjvp(_riccati_jvp)


def _residual(a: Matrix, g: Matrix, q: Matrix, x: Matrix) -> Matrix:
    return a.T @ x + x @ a - x @ g @ x + q


def _sign(matrix: Array) -> Array:
    """Return the sign function of a matrix without eigenvalues on the imaginary axis."""
    n = matrix.shape[0]

    def correct(_: Any, z: Array) -> Array:
        inverse = jnp.linalg.inv(z)
        scale = jnp.exp(-jnp.linalg.slogdet(z)[1] / n)
        return 0.5 * (scale * z + inverse / scale)

    return jax.lax.fori_loop(0, _SIGN_ITERATIONS, correct, matrix)
