"""Least squares by Gauss-Newton steps with Levenberg-Marquardt damping.

For residuals r(z) (m,) of n free variables the step d minimizes |r + J d|^2 + mu |D d|^2, where D contains
the largest column norms of J so far (which makes the step independent of units). With R the triangular factor
of J, computed once per point, this is a problem of 2n rows,

    [ R          ]       [ -Q^T r ]
    [ sqrt(mu) D ] d  =  [  0     ],

solved by a second QR factorization. The normal equations, which square the condition number, are never
formed.

*Damping.* mu follows the gain ratio rho, the reduction of F = |r|^2 / 2 divided by the prediction of the
linear model,

    promised = |J d|^2 / 2 + mu |D d|^2,
    promised = (s - s^2 / 2) |J d|^2 + s mu |D d|^2        for a step that is shortened to s d,

by Nielsen's rule: mu changes by the factor max(1/3, 1 - (2 rho - 1)^3) after a step that reduces F, and
otherwise grows by nu = 2, 4, 8, ...

*The Jacobian* is computed in forward mode, all columns in one vectorized pass together with the residuals.
With more than three variables per residual it is computed in reverse mode, all rows in one pass. The first
evaluation is also a pass of the loop, so that the residuals are compiled once.

*Covariance.* At the minimum, with independent errors of one standard deviation sigma in the data, the free
variables have the covariance sigma^2 (J^T J)^-1. Functions x(z) have, to first order ("delta method"), the
covariance dx/dz sigma^2 (J^T J)^-1 (dx/dz)^T. Bounds are functions of single variables, so that dx/dz is
diagonal.

References:
    K. Madsen, H. B. Nielsen, O. Tingleff, "Methods for Non-Linear Least Squares Problems", 2nd edition, DTU
    (2004), sections 3.2, 3.3. G. A. F. Seber, C. J. Wild, "Nonlinear Regression", Wiley (1989), sections 2.1
    and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.systems.status import Status
from jaxdae.tuning.parameters import Trainable, reparametrize
from jaxdae.typing import Leaf

_BLOCKED = 100.0
"""Ratio of the largest cosine between residuals and columns to the cosine of convergence. Above it, short
steps with much damping do not count as convergence."""


@pytree
class LeastSquaresResult:
    """The result of least squares.

    Attributes:
        parameters: the parameters at the minimum.
        residual: r (m,) at the minimum.
        cost: |r|^2 / 2 ().
        covariance: (n, n) of the trained numbers in their own units, in the order of `paths` and of the
            entries of each leaf. Infinite if the residuals do not determine the numbers, or without a given
            standard deviation if there are no more residuals than numbers.
        standard_error: square roots of its diagonal by path, in the shapes of the leaves ((k,) for
            `Entries`).
        standard_deviation: sigma () of the residuals: the given value, or sqrt(|r|^2 / (m - n)).
        gradient: the largest cosine () between r and a column of J, zero at a minimum.
        iterations: the number of iterations ().
        status: OK, NOT_CONVERGED, or NONFINITE (). NONFINITE means that residuals or their derivatives are
            not finite at the start, as for failed rollouts and assemblies, so that nothing was fitted.
        paths: the trained leaves.
    """

    parameters: Leaf
    residual: Leaf
    cost: Leaf
    covariance: Leaf
    standard_error: Leaf
    standard_deviation: Leaf
    gradient: Leaf
    iterations: Leaf
    status: Leaf
    paths: tuple[str, ...] = static()


@pytree
class _At:
    """State of the iteration: free variables with residuals and Jacobian, damping, scaling, step results."""

    z: Leaf
    residual: Leaf
    jacobian: Leaf
    damping: Leaf
    growth: Leaf
    scale: Leaf
    count: Leaf
    begun: Leaf
    done: Leaf


def least_squares(
    residual: Callable[[Any], Any],
    parameters: Any,
    *,
    trainable: Trainable = None,
    iterations: int = 50,
    damping: float = 1e-3,
    max_step: float | None = None,
    tolerance: float | None = None,
    standard_deviation: Any = None,
) -> LeastSquaresResult:
    """Return the parameters that minimize |residual(parameters)|^2, with their covariance.

    Args:
        residual: parameters -> residuals (any shape), each divided by its standard deviation if these differ.
        parameters: any pytree.
        trainable: the trained leaves and their ranges, see `reparametrize`; all floating-point leaves by
            default.
        iterations: the maximum number of iterations. Each iteration costs one evaluation of the residual and
            its Jacobian, and so does the start.
        damping: initial mu, relative to the columns of J.
        max_step: the largest change of a free variable per iteration (of log x with `Positive`); longer steps
            are shortened. Use it for residuals that are useful only near the start, such as residuals of
            rollouts.
        tolerance: the iteration converges if one of three values is below it: the step relative to the free
            variables, the predicted relative reduction of |r|, or the cosine between r and the columns of J.
            sqrt(eps) by default. If steps are small only because trials were rejected and |r| still decreases
            along a variable, the status is NOT_CONVERGED: the residuals ahead are not finite or have a kink.
        standard_deviation: sigma of the residuals, for the covariance; estimated from the final residuals by
            default.

    Raises:
        ValueError: as `reparametrize`; counts or numbers that are not positive.

    The loop is one `lax.while_loop` of fixed shapes: `jax.vmap` over parameters fits many starts
    simultaneously, and `jax.jit` around it avoids repeated tracing. A trial that is not finite counts as a
    failed step. If the start is not finite, the status is NONFINITE and nothing is fitted: check the status.
    The loop does not support reverse mode.
    """
    for name, value in (
        ("iterations", iterations),
        ("damping", damping),
        ("max_step", max_step),
        ("tolerance", tolerance),
    ):
        if value is not None and not value > 0:
            raise ValueError(f"least_squares: {name} must be positive, got {value!r}")
    chosen = reparametrize(parameters, trainable)
    parameters = jax.tree.map(jnp.asarray, parameters)
    start, unravel = jax.flatten_util.ravel_pytree(chosen.split(parameters))
    limit = float(jnp.finfo(start.dtype).eps) ** 0.5 if tolerance is None else tolerance

    def of_free(z: Any) -> Any:
        return jnp.ravel(residual(chosen.join(parameters, unravel(z))))

    found = jax.lax.while_loop(
        lambda at: (at.count <= iterations) & ~at.done,
        lambda at: _iterate(of_free, at, limit, max_step),
        _begin(of_free, start, damping),
    )
    free = unravel(found.z)
    slope = jax.jvp(
        lambda z: jax.flatten_util.ravel_pytree(chosen.values(unravel(z)))[0],
        (found.z,),
        (jnp.ones_like(found.z),),
    )[1]
    sigma, covariance = _covariance(found, slope, standard_deviation)
    error = jnp.sqrt(jnp.diagonal(covariance))
    return LeastSquaresResult(
        parameters=chosen.join(parameters, free),
        residual=found.residual,
        cost=0.5 * jnp.sum(found.residual**2),
        covariance=covariance,
        standard_error=unravel(error),
        standard_deviation=sigma,
        gradient=_cosine(found),
        iterations=found.count - 1,
        status=_status(found),
        paths=tuple(sorted(chosen.paths)),
    )


def _status(at: _At) -> Any:
    """Return the status of the iteration (); only the start can be a point that is not finite."""
    finite = jnp.all(jnp.isfinite(at.residual)) & jnp.all(jnp.isfinite(at.jacobian))
    ended: Any = jnp.where(at.done, Status.OK, Status.NOT_CONVERGED)
    status: Any = jnp.where(finite, ended, Status.NONFINITE)
    return status.astype(jnp.int32)


def _linearized(residual: Any, z: Any) -> tuple[Any, Any]:
    """Return r and J."""
    rows = jax.eval_shape(residual, z).shape[0]
    if 3 * rows < z.size:
        value, pull = jax.vjp(residual, z)
        return value, jax.vmap(lambda d: pull(d)[0])(jnp.eye(rows, dtype=z.dtype))
    value, columns = jax.vmap(lambda d: jax.jvp(residual, (z,), (d,)), out_axes=(None, 1))(
        jnp.eye(z.size, dtype=z.dtype)
    )
    return value, columns


def _begin(residual: Any, z: Any, damping: Any) -> _At:
    """Return the iteration before the first evaluation."""
    rows, one, no = jax.eval_shape(residual, z).shape[0], jnp.ones((), z.dtype), jnp.asarray(False)
    nothing = jnp.zeros((rows,), z.dtype), jnp.zeros((rows, z.size), z.dtype)
    return _At(z, *nothing, damping * one, 2.0 * one, jnp.zeros_like(z), jnp.zeros((), jnp.int32), no, no)


def _columns(jacobian: Any) -> Any:
    return jnp.sqrt(jnp.sum(jacobian**2, axis=0))


def _cosine(at: _At) -> Any:
    """Return the largest cosine between the residuals and a column of J; zero if either vanishes."""
    lengths = _columns(at.jacobian) * jnp.sqrt(jnp.sum(at.residual**2))
    divisor: Any = jnp.where(lengths > 0, lengths, 1.0)
    return jnp.max(jnp.abs(at.residual @ at.jacobian) / divisor)


def _iterate(residual: Any, at: _At, limit: Any, max_step: float | None) -> _At:
    scale: Any = jnp.where(at.scale > 0, at.scale, 1.0)
    orthogonal, triangle = jnp.linalg.qr(at.jacobian)
    stacked = jnp.concatenate([triangle, jnp.diag(jnp.sqrt(at.damping) * scale)])
    right = jnp.concatenate([-(orthogonal.T @ at.residual), jnp.zeros_like(at.z)])
    q, r = jnp.linalg.qr(stacked)
    step = jax.scipy.linalg.solve_triangular(r, q.T @ right)
    share = (
        jnp.ones((), step.dtype)
        if max_step is None
        else jnp.minimum(1.0, max_step / jnp.maximum(jnp.max(jnp.abs(step)), max_step))
    )
    trial = jnp.where(at.begun, at.z + share * step, at.z)
    value, jacobian = _linearized(residual, trial)

    cost, new_cost = 0.5 * jnp.sum(at.residual**2), 0.5 * jnp.sum(value**2)
    linear, damped = jnp.sum((triangle @ step) ** 2), at.damping * jnp.sum((scale * step) ** 2)
    promised = (share - 0.5 * share**2) * linear + share * damped
    finite = jnp.all(jnp.isfinite(value)) & jnp.all(jnp.isfinite(jacobian)) & jnp.all(jnp.isfinite(step))
    divisor: Any = jnp.where(promised > 0, promised, 1.0)
    ratio: Any = jnp.where(finite, (cost - new_cost) / divisor, -1.0)
    better = (finite & (ratio > 0)) | ~at.begun
    # Test convergence also before the step is accepted: at the minimum no step is better.
    small = jnp.sqrt(jnp.sum(step**2)) <= limit * (limit + jnp.sqrt(jnp.sum(at.z**2)))
    # Relative reduction of F; the relative reduction of |r| is half of it.
    settled = 0.5 * linear + damped <= limit**2 * cost
    # A step that is short because trials were rejected, at the edge of the finite region or at a kink, is not
    # convergence.
    slope = jnp.max(jnp.abs(at.residual @ at.jacobian) / scale)
    blocked = (at.damping > 1.0) & (slope > _BLOCKED * limit * jnp.sqrt(2.0 * cost))
    change: Any = jnp.where(better, jnp.maximum(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3), at.growth)
    new = _At(
        z=jnp.where(better, trial, at.z),
        residual=jnp.where(better, value, at.residual),
        jacobian=jnp.where(better, jacobian, at.jacobian),
        damping=at.damping * jnp.where(at.begun, change, 1.0),
        growth=jnp.where(better, jnp.full_like(at.growth, 2.0), 2.0 * at.growth),
        scale=jnp.where(better, jnp.maximum(at.scale, _columns(jacobian)), at.scale),
        count=at.count + 1,
        begun=jnp.asarray(True),
        done=at.done,
    )
    # A start without finite derivatives ends the iteration. NaN fails every comparison and needs this
    # explicit test.
    lost = ~at.begun & ~finite
    exact = ~jnp.any(new.residual != 0)
    return _At(
        **{
            **vars(new),
            "done": (finite & at.begun & (small | settled) & ~blocked)
            | exact
            | lost
            | (_cosine(new) <= limit),
        }
    )


def _covariance(at: _At, slope: Any, given: Any) -> tuple[Any, Any]:
    """Return sigma, and the covariance of the trained numbers in their own units."""
    rows, count = at.jacobian.shape
    square = jnp.sum(at.residual**2)
    freedom = max(rows - count, 0)
    sigma = (
        jnp.asarray(given, square.dtype)
        if given is not None
        else jnp.sqrt(square / freedom)
        if freedom
        else jnp.full_like(square, jnp.inf)
    )
    if rows < count or (given is None and not freedom):
        return sigma, jnp.full((count, count), jnp.inf, square.dtype)
    lengths = _columns(at.jacobian)
    scale: Any = jnp.where(lengths > 0, lengths, 1.0)
    triangle = jnp.linalg.qr(at.jacobian / scale, mode="r")
    pivots = jnp.abs(jnp.diagonal(triangle))
    determined = jnp.min(pivots) > jnp.finfo(square.dtype).eps * rows
    eye = jnp.eye(count, dtype=square.dtype)
    inverse = jax.scipy.linalg.solve_triangular(jnp.where(determined, triangle, eye), eye)
    inverse = (slope / scale)[:, None] * inverse
    return sigma, jnp.where(determined, sigma**2 * (inverse @ inverse.T), jnp.inf)
