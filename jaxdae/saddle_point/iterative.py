"""Matrix-free Krylov methods on the Delassus operator: products with J, J^T and M^-1 only.

These methods solve S lam = r - J M^-1 f with S = J M^-1 J^T + C without forming S or J. J x and J^T y are one
forward-mode and one reverse-mode derivative of the constraints, and M^-1 uses its structure. This is
efficient for large, sparse systems.

*Conjugate gradients* are implemented in the form that minimizes the residual: conjugate residuals, in the
same Krylov space. With dependent rows, round-off makes r inconsistent. The plain form then stalls and grows,
because its step lengths measure the part of the residual that cannot be reduced. With a preconditioner P
(symmetric, near S^-1) and u = P rho, the recurrences are

    w = S u,  gamma = u^T w,  pi <- u + beta pi,  q <- w + beta q,  alpha = gamma / (q^T P q),
    lam <- lam + alpha pi,  rho <- rho - alpha q,  u <- u - alpha P q,  beta = gamma_new / gamma,

and gamma vanishes when the reducible part of the residual does. The loop ends at the first of three events:

* gamma is small compared with its first value,
* gamma is small compared with the effect of rounding errors of r, |P r|^2 tr(S) eps^2 (an r that is
  irreducible from the start has no meaningful first value),
* the search direction has a Rayleigh quotient pi^T S pi / pi^T pi that counts as zero. The remaining residual
  then lies along dependent rows. Near the manifold, but not on it, such rows are only nearly dependent.

A second round on the recomputed residual removes the accumulated rounding errors.

*Choice of multipliers.* With a zero initial guess and without a preconditioner, lam lies in the span of b, S
b, S^2 b, ..., with b = r - J M^-1 f. For consistent rows b is in the range of S, and so is lam, which is
therefore the shortest. Otherwise b has a component Q b in the null space of S, where Q is the projector onto
it, and lam is the shortest plus a multiple of Q b. This lam yields the same force J^T lam, the same
least-squares accelerations, and the same residual Q b; only lam is longer. `LeastSquares`, `NullSpace` and
`Proximal` return the shortest in both cases.

*Stabilized biconjugate gradients* are the method that the virtual-work formulation uses for the same
equation. The implementation comes from `jax.scipy`.

Both loops end by tolerance. They are never differentiated: derivatives are solves with the same operator. A
solve that has not converged after `max_iterations` returns NaN rather than a wrong number; a rollout reports
it as `Status.NONFINITE`.

References:
    Y. Saad, "Iterative Methods for Sparse Linear Systems", sections 6.8 and 7.4. H. A. van der Vorst,
    "Bi-CGSTAB", SIAM J. Sci. Stat. Comput. 13 (1992).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import checked_count, fraction
from jaxdae.compile.sharding import varying_with
from jaxdae.linalg import small_matrix
from jaxdae.matrices import JacobianOperator, MassOperator, as_jacobian_operator, as_mass_operator
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class IterativeFactors:
    """Operands of the products (mass factors, J, C) and the method, with its preconditioner and tolerance."""

    mass: Leaf
    jacobian: Leaf
    compliance: Leaf
    method: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        free = None if f is None else self.mass.unscaled(self.mass.scaled(f))
        rest = r if free is None else r - self.jacobian.times(free)
        lam = rest if rest.shape[0] == 0 else self.method.run(self.delassus, rest)
        pushed = self._pushed(lam)
        return pushed if free is None else free + pushed, lam

    def inconsistent(self, r: Rows) -> None:
        """Return None because derivatives assume that r is consistent."""

    def delassus(self, y: Rows) -> Rows:
        """Return S y."""
        result = self.jacobian.times(self._pushed(y))
        return result if self.compliance is None else result + self.compliance * y

    def _pushed(self, y: Rows) -> Velocity:
        return self.mass.unscaled(self.mass.scaled(self.jacobian.transpose_times(y)))


def _precondition(preconditioner: Any, y: Rows) -> Rows:
    """Return P y: P is a diagonal (nc,), blocks (k, b, b) with k b = nc, or None for the identity."""
    if preconditioner is None:
        return y
    if preconditioner.ndim == 1:
        return preconditioner * y
    return jnp.einsum("kij,kj->ki", preconditioner, y.reshape(preconditioner.shape[0], -1)).reshape(-1)


def _limits(method: Any, rows: int, dtype: Any) -> tuple[Any, Any, int]:
    """Return the tolerance, the error above which a result is rejected, and the iteration limit."""
    eps = float(jnp.finfo(dtype).eps)
    tolerance = jnp.asarray(4.0 * eps if method.tolerance is None else method.tolerance, dtype)
    iterations = 4 * rows + 20 if method.max_iterations is None else method.max_iterations
    return tolerance, jnp.maximum(100.0 * tolerance, eps**0.5), iterations


def _check(method: Any, rows: int) -> None:
    if method.max_iterations is not None:
        checked_count(f"{type(method).__name__}.max_iterations", method.max_iterations)
    given = method.preconditioner
    if given is None:
        return
    shape = jnp.shape(given)
    fits = shape == (rows,) or (len(shape) == 3 and shape[1] == shape[2] and shape[0] * shape[1] == rows)
    if not fits:
        raise ValueError(
            f"{type(method).__name__}.preconditioner must be a diagonal ({rows},) or blocks (k, b, b) with "
            f"k b = {rows}, got shape {shape}"
        )


@pytree
class ConjugateGradient:
    """Matrix-free conjugate gradients on the Delassus operator, in the form that minimizes the residual.

    Attributes:
        tolerance: relative size of the residual, measured by the acceleration that it causes, at which the
            loop ends; None for 4 eps.
        max_iterations: maximum number of iterations; None for 4 nc + 20.
        preconditioner: an approximate inverse of the Delassus matrix: a diagonal (nc,) or diagonal blocks (k,
            b, b); see `block_preconditioner`.
        rank_tolerance: directions in which J M^-1/2 is smaller than this fraction of its Frobenius norm count
            as dependent; None for eps^(1/2). See `LeastSquares.tolerance`.

    Dependent rows are allowed. Accelerations are unique, and their derivatives are exact for consistent r.
    Inconsistent rows are satisfied in the least-squares sense. Without a preconditioner and for consistent r,
    lam has minimum norm, and its derivative is exact up to multipliers that produce no force. For
    inconsistent r, lam also contains a multiple of the part of r that no accelerations can produce. M must be
    positive definite.
    """

    matrix_free: ClassVar[bool] = True
    tolerance: Leaf = None
    max_iterations: int | None = static(default=None)
    preconditioner: Leaf = None
    rank_tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> IterativeFactors:
        """Return the operators; only M is factorized."""
        _check(self, jacobian.shape[0])
        return IterativeFactors(mass.factorize(), jacobian, compliance, self)

    def run(self, operator: Any, b: Rows) -> Rows:
        """Return the solution y (nc,) of S y = b, or NaN."""
        tolerance, acceptable, iterations = _limits(self, b.shape[0], b.dtype)
        eps = float(jnp.finfo(b.dtype).eps)
        rank = eps if self.rank_tolerance is None else jnp.asarray(self.rank_tolerance, b.dtype) ** 2
        size = jnp.sum(_precondition(self.preconditioner, b) ** 2)
        probe = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], b.shape[0]), b.dtype)
        trace = jnp.sum(probe * operator(probe))  # an estimate

        # Use a loop instead of unrolled copies, because the operator is large.
        def refined(k: Any, carry: Any) -> Any:
            y, first, _ = carry
            rho = b - operator(y)
            u = _precondition(self.preconditioner, rho)
            w = operator(u)
            gamma = jnp.sum(u * w)
            scale: Array = jnp.asarray(jnp.where(k == 0, gamma, first))
            # The estimate must not fall below the first Rayleigh quotient.
            total = jnp.maximum(trace, scale / jnp.maximum(size, float(jnp.finfo(b.dtype).tiny)))
            noise = eps**2 * total * size

            def dependent(pi: Rows, q: Rows) -> Any:
                return jnp.sum(pi * q) <= rank * total * jnp.sum(pi**2)

            def advance(carry: Any) -> Any:
                y, rho, u, pi, q, gamma, count = carry
                pq = _precondition(self.preconditioner, q)
                alpha = gamma / jnp.sum(q * pq)
                y, rho, u = y + alpha * pi, rho - alpha * q, u - alpha * pq
                w = operator(u)
                new = jnp.sum(u * w)
                beta = new / gamma
                return y, rho, u, u + beta * pi, w + beta * q, new, count + 1

            def unfinished(carry: Any) -> Any:
                *_, pi, q, gamma, count = carry
                return (gamma > tolerance**2 * scale + noise) & ~dependent(pi, q) & (count < iterations)

            start = (y, rho, u, u, w, gamma, jnp.zeros((), jnp.int32))
            y, *_, pi, q, gamma, _ = jax.lax.while_loop(unfinished, advance, start)
            # Use `<=` so that NaN does not pass.
            return y, scale, dependent(pi, q) | (gamma <= acceptable**2 * scale + 1e4 * noise)

        y, _, done = jax.lax.fori_loop(
            0, 2, refined, varying_with((jnp.zeros_like(b), jnp.zeros((), b.dtype), jnp.zeros((), bool)), b)
        )
        return jnp.asarray(jnp.where(done, y, jnp.nan))


@pytree
class BiconjugateGradient:
    """Matrix-free stabilized biconjugate gradients on the Delassus operator, for consistent rows.

    Attributes:
        tolerance: relative size of the residual at which the loop ends; None for 4 eps.
        max_iterations: maximum number of iterations; None for 4 nc + 20.
        preconditioner: as in `ConjugateGradient`.

    The method does not need symmetry, and is therefore less robust than `ConjugateGradient`: it can break
    down, and then returns NaN.
    """

    matrix_free: ClassVar[bool] = True
    tolerance: Leaf = None
    max_iterations: int | None = static(default=None)
    preconditioner: Leaf = None

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> IterativeFactors:
        """Return the operators; only M is factorized."""
        _check(self, jacobian.shape[0])
        return IterativeFactors(mass.factorize(), jacobian, compliance, self)

    def run(self, operator: Any, b: Rows) -> Rows:
        """Return the solution y (nc,) of S y = b, or NaN."""
        tolerance, acceptable, iterations = _limits(self, b.shape[0], b.dtype)
        y = jnp.zeros_like(b)
        for _ in range(2):
            y, _ = jax.scipy.sparse.linalg.bicgstab(
                operator,
                b,
                y,
                tol=tolerance,  # pyright: ignore[reportArgumentType]
                maxiter=iterations,
                M=lambda x: _precondition(self.preconditioner, x),
            )
        rest = b - operator(y)
        return jnp.where(jnp.sum(rest**2) <= acceptable**2 * jnp.sum(b**2), y, jnp.nan)


def block_preconditioner(mass: Any, jacobian: Any, block: int = 1) -> Any:
    """Return the inverses of the diagonal blocks of J M^-1 J^T.

    The shape is (nc,) for block = 1, else (nc / block, block, block).

    Args:
        mass: M, an array (nv, nv) or an operator.
        jacobian: J (nc, nv), an array or an operator, at a configuration that is typical of the motion.
        block: rows per block; 2 for the joints of a planar mechanism of revolute joints.

    Raises:
        ValueError: `block` does not divide the number of rows.
    """
    jacobian = as_jacobian_operator(jacobian)
    rows = jacobian.shape[0]
    if block < 1 or rows % block:
        raise ValueError(f"block must divide the number of rows, {rows}, got {block}")
    scaled = as_mass_operator(mass).factorize().scaled_rows(jacobian).as_dense()
    if block == 1:
        return 1.0 / jnp.sum(scaled**2, axis=1)
    grouped = scaled.reshape(rows // block, block, -1)
    return jnp.linalg.inv(jax.vmap(small_matrix.product_transposed)(grouped, grouped))
