"""Krylov methods on the Delassus operator: only products with J, J^T and M^-1.

S lam = r - J M^-1 f with S = J M^-1 J^T + C is solved without S or J ever being formed: J x and J^T y are one forward- and one
reverse-mode derivative of the constraints, M^-1 follows its structure. That pays for large, sparse systems.

*Conjugate gradients* run here in the form that minimizes the residual: conjugate residuals, in the same Krylov space. With dependent rows
round-off makes r inconsistent. The plain form then stalls and grows, because its step lengths measure the part of the residual that cannot
be reduced. With a preconditioner P (symmetric, near S^-1) and u = P rho the recurrences are

    w = S u,  gamma = u^T w,  pi <- u + beta pi,  q <- w + beta q,  alpha = gamma / (q^T P q),
    lam <- lam + alpha pi,  rho <- rho - alpha q,  u <- u - alpha P q,  beta = gamma_new / gamma,

and gamma vanishes when the reducible part of the residual does. The loop ends at the first of three events:

* gamma is small against its first value,
* gamma is small against what rounding errors of r amount to, |P r|^2 tr(S) eps^2, because an r that is irreducible from the start has no
  first value to speak of,
* the search direction has a Rayleigh quotient pi^T S pi / pi^T pi that counts as zero. What is left then lies along dependent rows; near
  the manifold, not on it, such rows are nearly dependent only.

A second round on the recomputed residual takes off what rounding has added.

*Which multipliers.* Started from zero and without preconditioner, lam lies in the span of b, S b, S^2 b, ..., with b = r - J M^-1 f. For
consistent rows b is in the range of S, and so is lam: it is the shortest. Otherwise b has a part Q b in the null space of S, Q being the
projector onto it, and lam is the shortest plus a multiple of Q b. That makes the same force J^T lam and the same accelerations, those of
least squares, and leaves the same residual Q b; only lam is longer. `LeastSquares`, `NullSpace` and `Proximal` return the shortest in both
cases.

*Biconjugate gradients*, stabilized, are what the virtual-work formulation uses for the same equation; taken from `jax.scipy`.

Both loops end by tolerance. They are never differentiated: derivatives are solves with the same operator. A solve that has not converged
after `max_iterations` returns NaN rather than a wrong number; a rollout reports it as `Status.NONFINITE`.

References:
    Y. Saad, "Iterative Methods for Sparse Linear Systems", sections 6.8 and 7.4. H. A. van der Vorst, "Bi-CGSTAB", SIAM J. Sci. Stat.
    Comput. 13 (1992).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.batching.varying import varying_with
from jaxdae.operators import JacobianOperator, MassOperator, as_jacobian_operator, as_mass_operator
from jaxdae.requirements import checked_count, fraction
from jaxdae.typing import Leaf, Rows, Velocity


@pytree
class IterativeFactors:
    """What the products need: mass factors, J, C, the preconditioner; and the method with its tolerance."""

    mass: Leaf
    jacobian: Leaf
    compliance: Leaf
    method: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Returns (a, lam) for the right-hand sides f (nv,), None for zero, and r (nc,)."""
        free = None if f is None else self.mass.unscaled(self.mass.scaled(f))
        rest = r if free is None else r - self.jacobian.times(free)
        lam = rest if rest.shape[0] == 0 else self.method.run(self.delassus, rest)
        pushed = self._pushed(lam)
        return pushed if free is None else free + pushed, lam

    def inconsistent(self, r: Rows) -> None:
        """Returns None: derivatives take r to be consistent."""

    def delassus(self, y: Rows) -> Rows:
        """Returns S y."""
        result = self.jacobian.times(self._pushed(y))
        return result if self.compliance is None else result + self.compliance * y

    def _pushed(self, y: Rows) -> Velocity:
        return self.mass.unscaled(self.mass.scaled(self.jacobian.transpose_times(y)))


def _precondition(preconditioner: Any, y: Rows) -> Rows:
    """Returns P y: P a diagonal (nc,), blocks (k, b, b) with k b = nc, or None for one."""
    if preconditioner is None:
        return y
    if preconditioner.ndim == 1:
        return preconditioner * y
    return jnp.einsum("kij,kj->ki", preconditioner, y.reshape(preconditioner.shape[0], -1)).reshape(-1)


def _limits(method: Any, rows: int, dtype: Any) -> tuple[Any, Any, int]:
    """Returns the tolerance, the error above which a result is no result, and the largest number of iterations."""
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
            f"{type(method).__name__}.preconditioner must be a diagonal ({rows},) or blocks (k, b, b) with k b = {rows}, got shape {shape}"
        )


@pytree
class ConjugateGradient:
    """Conjugate gradients on the Delassus operator, in the form that minimizes the residual; matrix-free.

    Attributes:
        tolerance: relative size of the residual, as the acceleration it causes, at which the loop ends; None for 4 eps.
        max_iterations: None for 4 nc + 20.
        preconditioner: an approximate inverse of the Delassus matrix, a diagonal (nc,) or blocks (k, b, b) on it; see
            `block_preconditioner`.
        rank_tolerance: directions in which J M^-1/2 is smaller than this fraction of its Frobenius norm count as dependent; None for
            eps^(1/2). See `LeastSquares.tolerance`.

    Dependent rows are allowed. Accelerations are unique, and their derivatives exact for consistent r; they satisfy inconsistent rows in
    the least-squares sense. Without a preconditioner and for consistent r, lam is the shortest, and its derivative is exact up to
    multipliers without force; for inconsistent r it is longer by a multiple of the part of r that no accelerations can produce. Needs M
    positive definite.
    """

    matrix_free: ClassVar[bool] = True
    tolerance: Leaf = None
    max_iterations: int | None = static(default=None)
    preconditioner: Leaf = None
    rank_tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> IterativeFactors:
        """Returns the operators; the only factorization is that of M."""
        _check(self, jacobian.shape[0])
        return IterativeFactors(mass.factorize(), jacobian, compliance, self)

    def run(self, operator: Any, b: Rows) -> Rows:
        """Returns the solution y (nc,) of S y = b, or NaN."""
        tolerance, acceptable, iterations = _limits(self, b.shape[0], b.dtype)
        eps = float(jnp.finfo(b.dtype).eps)
        rank = eps if self.rank_tolerance is None else jnp.asarray(self.rank_tolerance, b.dtype) ** 2
        size = jnp.sum(_precondition(self.preconditioner, b) ** 2)
        probe = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], b.shape[0]), b.dtype)
        trace = jnp.sum(probe * operator(probe))  # an estimate

        # Loops, not copies: an operator is a good deal of code.
        def refined(k: Any, carry: Any) -> Any:
            y, first, _ = carry
            rho = b - operator(y)
            u = _precondition(self.preconditioner, rho)
            w = operator(u)
            gamma = jnp.sum(u * w)
            scale: Array = jnp.asarray(jnp.where(k == 0, gamma, first))
            # The estimate is at least the first Rayleigh quotient.
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
            # Not `gamma > ...`: what is not a number must not pass.
            return y, scale, dependent(pi, q) | (gamma <= acceptable**2 * scale + 1e4 * noise)

        y, _, done = jax.lax.fori_loop(0, 2, refined, varying_with((jnp.zeros_like(b), jnp.zeros((), b.dtype), jnp.zeros((), bool)), b))
        return jnp.asarray(jnp.where(done, y, jnp.nan))


@pytree
class BiconjugateGradient:
    """Stabilized biconjugate gradients on the Delassus operator; matrix-free. For consistent rows.

    Attributes:
        tolerance: relative size of the residual at which the loop ends; None for 4 eps.
        max_iterations: None for 4 nc + 20.
        preconditioner: as in `ConjugateGradient`.

    Needs no symmetry, and is less robust than `ConjugateGradient` for it: it can break down, and then returns NaN.
    """

    matrix_free: ClassVar[bool] = True
    tolerance: Leaf = None
    max_iterations: int | None = static(default=None)
    preconditioner: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"

    def factorize(self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None) -> IterativeFactors:
        """Returns the operators; the only factorization is that of M."""
        _check(self, jacobian.shape[0])
        return IterativeFactors(mass.factorize(), jacobian, compliance, self)

    def run(self, operator: Any, b: Rows) -> Rows:
        """Returns the solution y (nc,) of S y = b, or NaN."""
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
    """Returns the inverses of the diagonal blocks of J M^-1 J^T: (nc,) for block = 1, else (nc / block, block, block).

    Args:
        mass: M, an array (nv, nv) or an operator.
        jacobian: J (nc, nv), an array or an operator, at a configuration that is typical for the motion.
        block: rows a block; 2 for the joints of a planar mechanism of revolute joints.

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
