"""Least squares of calibration: identifiable directions, robust weights and covariance.

Let x (p,) be corrections of the parameters, zero for the nominal robot. At the readings of the encoders plus
the offsets in x, forward kinematics closes the loops. The residuals r(x) (N,) are the differences of the
measured and the computed poses, over their standard deviations. All rows have the same weight at first. A
group g contains the rows of one target in one unit, such as the positions of the tool, in all P poses. The
efforts of each motor are a group of their own (`measured_efforts`).

*Identifiable directions.* Let D contain the characteristic sizes of the parameters, and J = dr/dx at x = 0.
The singular value decomposition

    J D = U S V^T,      x = D V S^+ z,                                                                  (1)

defines one coordinate in z per identifiable direction, where S^+ is zero for singular values below the
largest one over the largest condition number. Corrections along the other columns of V do not change the
poses to first order. The solution is therefore the correction of minimum norm |D^-1 x|, and near the solution
dr/dz = A has almost orthonormal columns.

*Closed loops.* Let h(q, x) contain the rows of loops and motors at the coordinates q of a pose, e(q, x) its
residuals, and H = dh/dxi. A displacement of q by -H^+ (h + h_x dx) keeps h = 0 to first order, so

    r = e - e_xi H^+ h,      dr/dx = e_x - e_xi H^+ h_x,                                                (2)

by the implicit function theorem. Each iteration corrects q and x together, from one linearization, and closes
the loops by the way (lifted Newton method).

*Iteration.* Gauss-Newton steps dz = -(A^T W A)^-1 A^T W r with the weights of Huber,

    W = diag(min(1, k / |r_i / s_g|)),    s_g = median_g |r_i| / 0.6745 sqrt(N / (N - n)),    k = 1.345,  (3)

(iteratively reweighted least squares), where n is the number of identifiable directions. k gives 95 % of the
efficiency of least squares if the errors are normal. Without robust weights, W = 1. Each group has its own
scale s_g, because the given ratios of standard deviations may be wrong. With the median of all residuals,
exact orientations would turn every noisy position into an outlier. At least half of the weights of a group
are 1, so the scales hardly change the weight of one group relative to another.

A measured number is exact if the median of its residuals is below the tolerance of forward kinematics, such
as the tilt of a planar robot in space. It is not part of the median of its group, and its scale is this
tolerance.

*Covariance.* With psi = W r and the rows A_g of a group, the stationary point of the loss is A^T psi = 0. If
the errors change by e, its change dz satisfies sum_g A_g^T psi'(r_g) (e_g + A_g dz) = 0. Let m_g be the
fraction of rows with |r_i| <= k s_g, where psi' = 1, of N_g rows. Then

    cov(z) = B^-1 sum_g v_g A_g^T A_g B^-1,      B = sum_g m_g A_g^T A_g,                               (4)
    v_g = kappa_g^2 psi_g^T psi_g / (N_g - n_g),   kappa_g = 1 + n_g / N_g (1 - m_g) / m_g,
    n_g = m_g tr(B^-1 A_g^T A_g).

The n_g add up to tr(B^-1 B) = n. For W = 1, the residuals are (I - H) e with H = A B^-1 A^T, and n_g is the
trace of the block of H. If all errors have the same variance, the expectation of r_g^T r_g is this variance
times N_g - n_g. With one group, (4) is Huber's estimate, kappa^2 psi^T psi / (N - n) / m^2 (A^T A)^-1.

The intervals x +- t std(x) have the quantile t of Student's distribution with N - n degrees of freedom. They
are exact if r is linear in x, W = 1, and the errors of a single group are normal. They are infinite if
N_g - n_g < 1 for a group.

*Outliers.* Let a_i be a row of A. The fit follows the errors, so both terms of r_i = e_i + a_i^T dz have
a negative covariance. Hence var(r_i) <= s_g^2 + a_i^T cov(z) a_i. A pose is an outlier if |r_i| of a row is
larger than 3.5 times the square root of this bound.

References:
    J. Hollerbach, W. Khalil, M. Gautier, "Model identification", Springer Handbook of Robotics, 2nd edition
    (2016), chapter 6, for identifiable parameters and scaling. G. A. F. Seber, C. J. Wild, "Nonlinear
    Regression" (1989), sections 2.1.2 and 5.1, for covariance and intervals. P. J. Huber, "Robust Statistics"
    (1981), section 7.6, equation (6.5), for (4) with one group, and section 7.8 for the iteration. H. White,
    "A heteroskedasticity-consistent covariance matrix estimator", Econometrica 48 (1980). B. Iglewicz, D. C.
    Hoaglin, "How to Detect and Handle Outliers" (1993), for the limit of outliers. J. Albersmeyer, M. Diehl,
    "The lifted Newton method and its application in optimization", SIAM J. Optim. 20 (2010).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.precompute import prepared
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.kinematics.closed_chains import determined, problem_of, solved
from jaxdae.kinematics.geometric_parameters import Parameter, centers_of, corrected, offsets_of, with_center
from jaxdae.kinematics.least_squares_on_loops import tolerance
from jaxdae.kinematics.targets import JointTarget
from jaxdae.linalg.singular_values import svd
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.status import Status
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf

_HUBER = 1.345
_OUTLIER = 3.5
"""Residual over its standard deviation above which a pose is an outlier (Iglewicz and Hoaglin)."""
_ITERATIONS = 50
_REWEIGHTINGS = 20
"""Updates of the weights per linearization; each reduces their error by a factor of about 4."""


@pytree
class Calibration:
    """Result of `calibrate`, for n poses with m measured numbers each, and p corrections.

    Attributes:
        mechanism: the calibrated mechanism.
        offsets: the offset () of each calibrated encoder, position minus reading, by the name of its motor.
        names: the names of the corrections (p,) (static).
        units: their units (p,), such as m or rad (static).
        correction: the corrections (p,).
        standard_error: their standard errors (p,); infinite where the poses do not identify a correction.
        covariance: covariance (p, p) along the identifiable directions.
        directions: (p, p), each row an orthonormal direction of corrections over their characteristic sizes.
        singular_values: of the scaled Jacobian at the nominal mechanism (p,), in descending order.
        identifiable: whether each direction (p,) is identifiable.
        error: residuals (n, m) of all poses in m, rad, N m and N, in the order of the measurements.
        weight: weights (n, m) of the residuals in the fit, between 0 and 1.
        outlier: whether a pose (n,) has a residual above 3.5 robust standard deviations, or fails.
        held_out_rms: root mean square () of residuals over standard deviations, for held-out poses; NaN
            without such poses.
        sigma: estimated standard deviation () of the residuals, relative to the given standard deviations.
        freedom: the number of residuals minus the number of identifiable directions ().
        pose_status: status of forward kinematics of each pose (n,) of the nominal mechanism. Poses that fail
            are not part of the fit.
        iterations: the number of iterations ().
        status: OK or NOT_CONVERGED ().
    """

    mechanism: Mechanism
    offsets: Mapping[str, Any]
    names: tuple[str, ...] = static()
    units: tuple[str, ...] = static()
    correction: Leaf
    standard_error: Leaf
    covariance: Leaf
    directions: Leaf
    singular_values: Leaf
    identifiable: Leaf
    error: Leaf
    weight: Leaf
    outlier: Leaf
    held_out_rms: Leaf
    sigma: Leaf
    freedom: Leaf
    pose_status: Leaf
    iterations: Leaf
    status: Leaf

    def interval(self, level: Any = 0.95) -> tuple[Array, Array]:
        """Return the lower and upper ends (p,) of the confidence intervals; infinite where unknown.

        Args:
            level: the probability () that an interval contains the true value.
        """
        error, quantile = self.standard_error, t_quantile(level, self.freedom)[..., None]
        half: Any = jnp.where(jnp.isfinite(error), quantile.astype(error.dtype) * error, jnp.inf)
        return self.correction - half, self.correction + half


def t_quantile(level: Any, freedom: Any) -> Array:
    """Return t such that |T| <= t has the probability `level`, for Student's T; shapes broadcast.

    The probability is the incomplete beta function I_y(1 / 2, f / 2) at y = t^2 / (f + t^2), and bisection
    finds y (M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions", 26.7.1 and 26.5.27).
    """
    level, freedom = jnp.broadcast_arrays(*(jnp.asarray(x, jnp.result_type(float)) for x in (level, freedom)))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        below = jax.scipy.special.betainc(0.5, 0.5 * freedom, middle) < level
        return jnp.where(below, middle, ends[0]), jnp.where(below, ends[1], middle)

    y = jax.lax.fori_loop(0, 60, halve, (jnp.zeros_like(level), jnp.ones_like(level)))[0]
    return jnp.sqrt(freedom * y / (1.0 - y))


class _Model(NamedTuple):
    """Linear model of all poses.

    Attributes:
        r: residuals (n, m) of (2), scaled.
        jacobian: dr/dx (n, m, p).
        closing: -H^+ h (n, nv).
        moving: -H^+ h_x (n, nv, p).
    """

    r: Any
    jacobian: Any
    closing: Any
    moving: Any


def _linearized(
    mechanism: Mechanism, parameters: Sequence[Parameter], poses: Any, sizes: Array, x: Array, q: Array
) -> _Model:
    """Return the model (2) at corrections x (p,) and coordinates q (n, nq).

    A measured point stays where it is if the center of mass of its body changes.
    """
    velocity_units = mechanism.names.velocity_units
    columns = scales(mechanism, velocity_units, len(velocity_units), q.dtype)

    def one(pose: Any, q: Array) -> _Model:
        def rows(xi: Array, x: Array) -> Any:
            changed, offsets = prepared(corrected(mechanism, parameters, x)), offsets_of(parameters, x)
            motors = {name: reading + offsets.get(name, 0.0) for name, reading in pose[0].values.items()}
            there = changed.retract(q, columns * xi)
            found = problem_of(changed, JointTarget(motors), q, {}, None).rows(there)
            frames, centers = changed.frames(there), centers_of(parameters, x)
            targets = [with_center(target.checked(changed), centers) for target in pose[1:]]
            errors = [target.error(changed, frames, there) for target in targets]
            both = jnp.concatenate([found.loops, found.errors]), jnp.concatenate(errors) / sizes
            return both, both

        slopes, (h, e) = jax.jacfwd(rows, (0, 1), has_aux=True)(jnp.zeros_like(columns), x)
        (h_xi, h_x), (e_xi, e_x) = slopes
        inverse = pseudoinverse(h_xi, rank_tolerance(h_xi, tolerance(q.dtype)))
        closing, moving = -inverse @ h, -inverse @ h_x
        return _Model(e + e_xi @ closing, e_x + e_xi @ moving, columns * closing, columns[:, None] * moving)

    return jax.vmap(one)(poses, q)


class _Fit(NamedTuple):
    """Data of the fit that do not change.

    Attributes:
        used: whether each residual (P, m) is part of the fit.
        floor: the scale of exact numbers (m,).
        same: whether two of the numbers (m, m) of a pose are in the same group.
        basis: D V S^+ of (1) (p, p); columns of directions that are not identifiable are zero.
        known: whether each direction (p,) is identifiable.
        robust: whether residuals have the weights of Huber (static).
    """

    used: Any
    floor: Any
    same: Any
    basis: Any
    known: Any
    robust: bool

    @property
    def counts(self) -> Any:
        """The number of residuals N and the number of identifiable directions n, as real numbers."""
        return tuple(jnp.sum(x, dtype=self.basis.dtype) for x in (self.used, self.known))

    def linear(self, model: _Model) -> tuple[Any, Any]:
        """Return r (N,) and A = dr/dz (N, p), zero for residuals that are not part of the fit."""
        used, r = self.used.reshape(-1), model.r.reshape(-1)
        a = model.jacobian.reshape(r.shape[0], -1) @ self.basis
        return jnp.where(used, r, 0.0), jnp.where(used[:, None], a, 0.0)

    def groups(self, r: Array) -> tuple[Any, Any]:
        """Return |r| (P, m), and which numbers (m, m) determine the scale and the variance of each number."""
        size: Any = jnp.where(self.used, jnp.abs(r).reshape(self.used.shape), jnp.nan)
        exact = jnp.nanmedian(size, axis=0) <= self.floor
        return size, jnp.where(exact[:, None], jnp.eye(exact.shape[0], dtype=bool), self.same & ~exact)

    def weights(self, r: Array) -> tuple[Any, Any, Any]:
        """Return the weights (P, m) of (3), whether residuals are within the limit (P, m), and s_g (m,)."""
        size, members = self.groups(r)
        chosen: Any = jnp.where(members[:, None], size, jnp.nan)
        middle: Any = jnp.nanmedian(chosen, axis=(1, 2))
        rows, directions = self.counts
        spread: Any = middle / 0.6745 * jnp.sqrt(rows / jnp.maximum(rows - directions, 1.0))
        spread = jnp.maximum(spread, self.floor)
        inside: Any = (size <= _HUBER * spread) | (not self.robust)
        smaller: Any = jnp.where(inside, 1.0, _HUBER * spread / jnp.where(inside, 1.0, size))
        return jnp.where(self.used, smaller, 0.0), inside & self.used, spread

    def normal(self, a: Array, w: Any) -> Array:
        """Return A^T W A (p, p), with ones for directions that are not identifiable."""
        return a.T @ (w[:, None] * a) + jnp.diag(jnp.where(self.known, 0.0, 1.0).astype(a.dtype))

    def step(self, r: Array, a: Array) -> Array:
        """Return the step dz (p,) that minimizes the loss of the linear residuals r + A dz."""

        def reweighted(_: Any, dz: Array) -> Array:
            w = self.weights(r + a @ dz)[0].reshape(-1)
            return -jnp.linalg.solve(self.normal(a, w), a.T @ (w * r))

        still = jnp.zeros(a.shape[1:], a.dtype)
        return jax.lax.fori_loop(0, _REWEIGHTINGS if self.robust else 1, reweighted, still)

    def covariance(self, r: Array, a: Array) -> tuple[Any, Any, Any]:
        """Return cov(z) (p, p) of (4), the variances v_g / m_g^2 (m,), and whether all of them are known."""
        w, inside, _ = self.weights(r)
        members = self.groups(r)[1].astype(a.dtype)
        rows = members @ jnp.sum(self.used, axis=0, dtype=a.dtype)
        share = members @ jnp.sum(inside, axis=0, dtype=a.dtype) / rows
        columns = a.reshape(*self.used.shape, -1)
        squares = jnp.einsum("ncp,ncq->cpq", columns, columns)
        inverse = jnp.linalg.inv(self.normal(a, jnp.broadcast_to(share, self.used.shape).reshape(-1)))
        directions = share * (members @ jnp.einsum("pq,cqp->c", inverse, squares))
        kappa = 1.0 + directions / rows * (1.0 - share) / share
        psi = (w * r.reshape(w.shape)) ** 2
        variances = kappa**2 * (members @ jnp.sum(psi, axis=0)) / jnp.maximum(rows - directions, 1.0)
        found = inverse @ jnp.einsum("c,cpq->pq", variances, squares) @ inverse
        enough = jnp.all(rows - directions > 1.0 - tolerance(a.dtype))
        return found, variances / share**2, enough


@partial(jax.jit, static_argnames=("parameters", "robust"))
def fitted(
    mechanism: Mechanism,
    poses: Any,
    start: Array,
    sizes: Array,
    floor: Array,
    same: Array,
    held: Array,
    scale: Array,
    condition: Any,
    parameters: tuple[Parameter, ...],
    robust: bool,
) -> Calibration:
    """Return the result of `calibrate` for checked arguments."""
    units = tuple(parameter.unit for parameter in parameters for _ in range(parameter.size))
    rows = held.shape[0] * sizes.shape[0]

    def closed(motors: Any) -> Any:
        state, info = solved(problem_of(mechanism, motors, start, {}, None))
        return state, determined(mechanism, state, info.status, motors.values)

    begun, pose_status = jax.vmap(closed)(poses[0])
    reached = pose_status == Status.OK
    linearized = partial(_linearized, mechanism, parameters, poses, sizes)
    x = jnp.zeros(scale.shape, start.dtype)
    model = linearized(x, begun.q)

    used = jnp.broadcast_to((reached & ~held)[:, None], model.r.shape)
    scaled: Any = jnp.where(used[..., None], model.jacobian * scale, 0.0)
    scaled = scaled.reshape(rows, -1)
    # At least p rows, for a square V.
    s, right = svd(jnp.pad(scaled, ((0, max(len(units) - rows, 0)), (0, 0))), full=False)[1:]
    known = s > s[0] / condition
    divisor: Any = jnp.where(known, s, 1.0)
    fit = _Fit(
        used, floor, same, scale[:, None] * right.T * jnp.where(known, 1.0 / divisor, 0.0), known, robust
    )

    def body(carry: Any) -> Any:
        x, q, model, count, _ = carry
        r, a = fit.linear(model)
        dz = fit.step(r, a)
        dx = fit.basis @ dz
        q = jax.vmap(mechanism.retract)(q, model.closing + model.moving @ dx)
        size = jnp.max(jnp.abs(s * (right @ ((x + dx) / scale))))
        enough = 1e-6 * jnp.min(fit.weights(r + a @ dz)[2]) + tolerance(x.dtype) * size
        return x + dx, q, linearized(x + dx, q), count + 1, jnp.max(jnp.abs(dz)) <= enough

    carry = (x, begun.q, model, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    x, _, model, count, done = jax.lax.while_loop(lambda c: (c[3] < _ITERATIONS) & ~c[4], body, carry)

    r, a = fit.linear(model)
    w, _, spread = fit.weights(r)
    of_z, variances, enough = fit.covariance(r, a)
    covariance = fit.basis @ of_z @ fit.basis.T
    every = model.jacobian @ fit.basis
    largest = jnp.sqrt(spread**2 + jnp.einsum("ncp,pq,ncq->nc", every, of_z, every))
    unknown = jnp.sum(jnp.where(known[:, None], 0.0, right) ** 2, axis=0)
    found = enough & (unknown <= tolerance(x.dtype))
    squares = jnp.mean(model.r**2, axis=1)
    return Calibration(
        mechanism=corrected(mechanism, parameters, x),
        offsets=offsets_of(parameters, x),
        names=tuple(entry for parameter in parameters for entry in parameter.entries),
        units=units,
        correction=x,
        standard_error=jnp.where(found, jnp.sqrt(jnp.diagonal(covariance)), jnp.inf),
        covariance=jnp.where(enough, covariance, jnp.inf),
        directions=right,
        singular_values=s,
        identifiable=known,
        error=model.r * sizes,
        weight=w,
        outlier=~reached | jnp.any(jnp.abs(model.r) > _OUTLIER * largest, axis=1),
        held_out_rms=jnp.sqrt(jnp.mean(squares, where=reached & held)),
        sigma=jnp.where(enough, jnp.sqrt(jnp.mean(variances)), jnp.inf),
        freedom=jnp.sum(used) - jnp.sum(known),
        pose_status=pose_status,
        iterations=count,
        status=jnp.where(done, Status.OK, Status.NOT_CONVERGED).astype(jnp.int32),
    )
