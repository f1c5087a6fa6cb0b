"""Least squares by Gauss-Newton steps, damped after Levenberg and Marquardt.

For residuals r(z) (m,) of n free variables the step d minimizes |r + J d|^2 + mu |D d|^2, with D the largest column norms of J so far
(a matter of units drops out). With R the triangular factor of J, found once a point, that is a problem of 2n rows,

    [ R          ]       [ -Q^T r ]
    [ sqrt(mu) D ] d  =  [  0     ],

solved by a second QR factorization: the normal equations, which square the condition number, are never formed.

*Damping.* It follows the gain ratio rho, the reduction of F = |r|^2 / 2 over what the linear model promised,

    promised = |J d|^2 / 2 + mu |D d|^2,        of a step that is shortened to s d:  (s - s^2 / 2) |J d|^2 + s mu |D d|^2,

by Nielsen's rule: mu falls by max(1/3, 1 - (2 rho - 1)^3) after a step that reduces F, and grows by nu = 2, 4, 8, ... otherwise.

*The Jacobian* is found by forward mode, all columns in one vectorized pass together with the residuals. Where there are more than three
variables for each residual it is found by reverse mode, all rows in one pass. The first evaluation is a pass of the loop as well, so that
the residuals are compiled once.

*Covariance.* At the minimum, with independent errors of one standard deviation sigma in the data, the free variables have the covariance
sigma^2 (J^T J)^-1. Functions x(z) of them have, to first order ("delta method"), dx/dz sigma^2 (J^T J)^-1 (dx/dz)^T. Bounds are functions
of single variables, so that dx/dz is diagonal.

References:
    K. Madsen, H. B. Nielsen, O. Tingleff, "Methods for Non-Linear Least Squares Problems", 2nd edition, DTU (2004), sections 3.2, 3.3.
    G. A. F. Seber, C. J. Wild, "Nonlinear Regression", Wiley (1989), sections 2.1 and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.status import Status
from jaxdae.tuning.parameters import Trainable, reparametrize
from jaxdae.typing import Leaf

_BLOCKED = 100.0
"""The cosine between residuals and columns over that of convergence, from which on short steps of much damping are no convergence."""


@pytree
class LeastSquaresResult:
    """What least squares found.

    Attributes:
        parameters: the parameters at the minimum.
        residual: r (m,) there.
        cost: |r|^2 / 2 ().
        covariance: (n, n) of the trained numbers in their own units, in the order of `paths` and of the entries of each leaf; infinite
            where there are no more residuals than numbers, or where the residuals do not determine them.
        standard_error: its diagonal's square roots by path, in the shapes of the leaves ((k,) for `Entries`).
        standard_deviation: sigma () of the residuals: the given one, or sqrt(|r|^2 / (m - n)).
        gradient: the largest cosine () between r and a column of J, zero at a minimum.
        iterations: how many were used ().
        status: OK, NOT_CONVERGED, or NONFINITE () where residuals or their derivatives are not finite at the start, so that nothing was
            fitted. Those of rollouts and assemblies that failed are not.
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
    """The iteration: free variables, residuals and Jacobian there, damping, scaling, and how the last step went."""

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
    """Returns the parameters that minimize |residual(parameters)|^2, with their covariance.

    Args:
        residual: parameters -> residuals (any shape), each divided by its standard deviation where these differ.
        parameters: any pytree.
        trainable: which leaves, and in which ranges, see `reparametrize`; all floating-point leaves by default.
        iterations: at most so many; each costs one residual and its Jacobian, as does the start.
        damping: mu at the start, relative to the columns of J.
        max_step: the largest change of a free variable in one iteration (of log x with `Positive`); longer steps are shortened. For
            residuals that are only good near the start, such as those of rollouts.
        tolerance: convergence is a step smaller than this relative to the free variables, a promised relative reduction of |r| smaller than
            it, or a cosine between r and the columns of J smaller than it; sqrt(eps) by default. Steps that are small because trials
            were refused end with NOT_CONVERGED where |r| still falls with a variable: what lies ahead is not finite, or has a kink.
        standard_deviation: sigma of the residuals, for the covariance; estimated from what is left of them by default.

    Raises:
        ValueError: as `reparametrize`; counts or numbers that are not positive.

    One `lax.while_loop` of fixed shapes: `jax.vmap` over parameters fits many starts at once, `jax.jit` around it saves tracing. A trial
    that is not finite counts as a failed step; where the start is not finite the status is NONFINITE and nothing is fitted: look at it.
    Reverse mode does not go through the loop.
    """
    for name, value in (("iterations", iterations), ("damping", damping), ("max_step", max_step), ("tolerance", tolerance)):
        if value is not None and not value > 0:
            raise ValueError(f"least_squares: {name} must be positive, got {value!r}")
    chosen = reparametrize(parameters, trainable)
    parameters = jax.tree.map(jnp.asarray, parameters)
    start, unravel = jax.flatten_util.ravel_pytree(chosen.split(parameters))
    limit = float(jnp.finfo(start.dtype).eps) ** 0.5 if tolerance is None else tolerance

    def of_free(z: Any) -> Any:
        return jnp.ravel(residual(chosen.join(parameters, unravel(z))))

    found = jax.lax.while_loop(
        lambda at: (at.count <= iterations) & ~at.done, lambda at: _iterate(of_free, at, limit, max_step), _begin(of_free, start, damping)
    )
    free = unravel(found.z)
    slope = jax.jvp(lambda z: jax.flatten_util.ravel_pytree(chosen.values(unravel(z)))[0], (found.z,), (jnp.ones_like(found.z),))[1]
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
    """Returns how the iteration ended (); a point that is not finite is never taken but for the start."""
    finite = jnp.all(jnp.isfinite(at.residual)) & jnp.all(jnp.isfinite(at.jacobian))
    ended: Any = jnp.where(at.done, Status.OK, Status.NOT_CONVERGED)
    status: Any = jnp.where(finite, ended, Status.NONFINITE)
    return status.astype(jnp.int32)


def _linearized(residual: Any, z: Any) -> tuple[Any, Any]:
    """Returns r and J."""
    rows = jax.eval_shape(residual, z).shape[0]
    if 3 * rows < z.size:
        value, pull = jax.vjp(residual, z)
        return value, jax.vmap(lambda d: pull(d)[0])(jnp.eye(rows, dtype=z.dtype))
    value, columns = jax.vmap(lambda d: jax.jvp(residual, (z,), (d,)), out_axes=(None, 1))(jnp.eye(z.size, dtype=z.dtype))
    return value, columns


def _begin(residual: Any, z: Any, damping: Any) -> _At:
    """Returns the iteration before anything is evaluated."""
    rows, one, no = jax.eval_shape(residual, z).shape[0], jnp.ones((), z.dtype), jnp.asarray(False)
    nothing = jnp.zeros((rows,), z.dtype), jnp.zeros((rows, z.size), z.dtype)
    return _At(z, *nothing, damping * one, 2.0 * one, jnp.zeros_like(z), jnp.zeros((), jnp.int32), no, no)


def _columns(jacobian: Any) -> Any:
    return jnp.sqrt(jnp.sum(jacobian**2, axis=0))


def _cosine(at: _At) -> Any:
    """Returns the largest cosine between the residuals and a column of J; zero where either vanishes."""
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
    share = jnp.ones((), step.dtype) if max_step is None else jnp.minimum(1.0, max_step / jnp.maximum(jnp.max(jnp.abs(step)), max_step))
    trial = jnp.where(at.begun, at.z + share * step, at.z)
    value, jacobian = _linearized(residual, trial)

    cost, new_cost = 0.5 * jnp.sum(at.residual**2), 0.5 * jnp.sum(value**2)
    linear, damped = jnp.sum((triangle @ step) ** 2), at.damping * jnp.sum((scale * step) ** 2)
    promised = (share - 0.5 * share**2) * linear + share * damped
    finite = jnp.all(jnp.isfinite(value)) & jnp.all(jnp.isfinite(jacobian)) & jnp.all(jnp.isfinite(step))
    divisor: Any = jnp.where(promised > 0, promised, 1.0)
    ratio: Any = jnp.where(finite, (cost - new_cost) / divisor, -1.0)
    better = (finite & (ratio > 0)) | ~at.begun
    # Convergence is judged before the step is taken, too: at the minimum no step is better.
    small = jnp.sqrt(jnp.sum(step**2)) <= limit * (limit + jnp.sqrt(jnp.sum(at.z**2)))
    # Of F relatively; of |r| it is half of it.
    settled = 0.5 * linear + damped <= limit**2 * cost
    # A step that is short because trials were refused, at the edge of where residuals are finite or at a kink, is no convergence.
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
    # A start without derivatives leads nowhere; NaN passes no comparison, so it is asked for.
    lost = ~at.begun & ~finite
    exact = ~jnp.any(new.residual != 0)
    return _At(**{**vars(new), "done": (finite & at.begun & (small | settled) & ~blocked) | exact | lost | (_cosine(new) <= limit)})


def _covariance(at: _At, slope: Any, given: Any) -> tuple[Any, Any]:
    """Returns sigma, and the covariance of the trained numbers in their own units."""
    rows, count = at.jacobian.shape
    square = jnp.sum(at.residual**2)
    freedom = max(rows - count, 0)
    sigma = (
        jnp.asarray(given, square.dtype) if given is not None else jnp.sqrt(square / freedom) if freedom else jnp.full_like(square, jnp.inf)
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
