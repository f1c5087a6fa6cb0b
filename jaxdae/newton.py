"""Newton's iteration with a fixed count and a fixed matrix, differentiated by the implicit function theorem.

For F(x, args) = 0 with a symmetric approximate inverse C of dF/dx (the factorization at some nearby point, computed once),

    x_{k+1} = x_k - C F(x_k, args)

converges linearly with the ratio |I - C dF/dx|, which is small where C is from close by. The derivative of the root is

    dF/dx dx = -dF/dargs dargs,

a linear system that is solved by the same iteration with the same C: dx_{k+1} = dx_k + C (b - dF/dx dx_k). Its transpose is solved with the
transposed products and again C. So neither mode differentiates the iteration that found x, nor C, and both need only products with dF/dx.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.flatten_util import ravel_pytree

from jaxdae.worlds import worlds_first

Update = Callable[[Any, Any], Any]
Residual = Callable[[Any, Any], Any]
Correction = Callable[[Any, Any], Any]


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def simplified_newton(update: Update, residual: Residual, correction: Correction, iterations: int, x0: Any, args: Any) -> Any:
    """Returns x with residual(x, args) = 0 after a fixed number of corrections.

    Args:
        update: (x, args) -> x - C F(x, args). Separate from the two below, because parts of F that stay zero along the iteration need
            not be computed. Like them it must not close over traced values. It is not differentiated.
        residual: (x, args) -> F, a pytree like x.
        correction: (F, args) -> C F, linear in F, with C symmetric: an approximate inverse of dF/dx. It is not differentiated.
        iterations: how many corrections, at least 1.
        x0: the start; the result does not depend on it where the iteration converges, and its derivative is taken as zero.
        args: all that the root depends on; differentiable.

    Differentiable with respect to `args`, forward, reverse and second order, to the accuracy that `iterations` corrections reach.
    """
    x = x0
    for _ in range(iterations):
        x = update(x, args)
    return worlds_first(x)


@simplified_newton.defjvp
def _simplified_newton_jvp(
    update: Update, residual: Residual, correction: Correction, iterations: int, primals: Any, tangents: Any
) -> tuple[Any, Any]:
    x0, args = primals
    still = jax.lax.stop_gradient(simplified_newton(update, residual, correction, iterations, x0, args))
    unflatten = ravel_pytree(still)[1]

    def correct(b: Any) -> Any:
        return ravel_pytree(correction(unflatten(b), args))[0]

    def refine(multiply: Any, b: Any) -> Any:
        dx = correct(b)
        for _ in range(iterations - 1):
            dx = dx + correct(b - multiply(dx))
        return dx

    def solve(at: Any, rhs: Any) -> Any:
        """Returns (dF/dx)^-1 rhs at x = `at`."""

        def product(dx: Any) -> Any:
            return ravel_pytree(jax.jvp(lambda y: residual(y, args), (at,), (unflatten(dx),))[1])[0]

        # One vector, because the primitive's transpose needs every part of the right-hand side to be a tangent.
        return unflatten(jax.lax.custom_linear_solve(product, ravel_pytree(rhs)[0], refine, transpose_solve=refine))

    # One more Newton step changes the root by round-off only, and gives it a derivative that does not depend on this rule: JAX drops
    # custom rules where it builds linear programs inside of others, and second derivatives would be lost.
    x = worlds_first(jax.tree.map(operator.sub, still, solve(still, residual(still, args))))
    _, change = jax.jvp(lambda a: residual(x, a), (args,), (tangents[1],))
    return x, jax.tree.map(operator.neg, solve(x, change))
