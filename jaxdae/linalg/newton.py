"""Newton iteration with a bounded count and a fixed matrix, differentiated by the implicit function theorem.

For F(x, args) = 0 with an approximate inverse C of dF/dx (a factorization at some nearby point, computed
once), the iteration

    x_{k+1} = x_k - C F(x_k, args)

converges linearly with the ratio |I - C dF/dx|. The ratio is small if C comes from a nearby point. The
derivative of the root is

    dF/dx dx = -dF/dargs dargs.

The same iteration with the same C solves this linear system: dx_{k+1} = dx_k + C (b - dF/dx dx_k). The
transposed products and C^T solve the transposed system. Neither mode therefore differentiates C or the
iteration that computed x, and both need only products with dF/dx. A few corrections are unrolled, so that XLA
fuses them. Four corrections or more run in a loop, which compiles once and ends when corrections are rounding
errors.

*Convergence.* After too few iterations, x is not a root, and its derivative is meaningless. The functions
below therefore also return the size of the last correction, from which the caller derives a status. The size
measures the unknowns that move the system, velocities or displacements. It excludes the multipliers for the
following reason. Positions of size |q| have rounding errors eps |q|, and a constraint corrects the violation
that rounding causes. This passes the rounding errors on

    to velocities with the factor k = |M^-1 J^T (J M^-1 J^T)^-1|,
    to multipliers with the factor |(J M^-1 J^T)^-1|, which is of the size of k^2,

and k grows with the number of bodies in series. No iteration gets below either bound. If the size included
the multipliers, their errors k^2 eps would look like a failed iteration, although the motion is as accurate
as the precision allows. Excluding the multipliers loses nothing: after a correction, J^T dlam = M dv - r,
where r is the momentum residual before it. The *forces* of the multipliers are therefore as accurate as the
motion.

*Choice of C.* Implicit integrators take C from their field `newton`, which is a `DenseNewton` or a
`SaddlePointNewton`. With rows scaled by powers of the step h, their Newton matrix is a saddle-point matrix up
to terms in h,

    [ M + h D + h^2 K   -J^T ]        D = -df/dv,   K = d(M a - f - J^T lam)/dq,
    [       J             C  ]        both times coefficients of the method (gamma' for h, beta' for h^2),

There are two choices:

* `SaddlePointNewton` uses the method's saddle-point solver, with M and J at the start of the step, as
  approximate inverse. It costs one factorization and exploits all structure that the solver knows. It
  neglects D and K, and the rotation of J with the bodies within the step. The ratio of convergence is
  therefore |M^-1 (h D + h^2 K)| + O(h |J'|). Without stiff forces, this is one to two times the angle by
  which bodies rotate per step. With stiff forces it is above 1.
* `DenseNewton` uses the LU factors of the whole matrix at the end of the first guess of the step. It neglects
  only the changes along the iteration, O(h^2). It costs (nv + nc)^3 and nv + nc forward derivatives, whatever
  the structure.

*Intermediate choice.* The solver with M + h D + h^2 K in place of M would be a third choice. Measurements
with generalized-alpha show the ratio of convergence, and the number of corrections down to 4e-10 m/s:

                                              M           M + h D + h^2 K, symmetric part        dense
                                                        SchurComplement   NullSpace, DenseKKT      LU
    chain of 16 links, 8 rad/s, h = 0.01   0.071,  8       0.070,  8          0.070,  8         0.0008, 4
    chain of 4 with springs, h = 0.01      diverges        0.0015, 4          0.0015, 4         0.0002, 4
    flyball governor, h = 0.001            diverges        NaN                0.009,  5         6e-5,   3
    flyball governor, h = 0.01             diverges        NaN                0.40,  25         0.019,  7

(springs of 1e6 N/m and dampers of 1e3 N s/m, on members of 1 kg). Without stiff forces this choice gains
nothing, because J rotates. With stiff forces M + h D + h^2 K is positive definite if springs and dampers are
at rest, but not if multipliers or springs compress members: relative to M, the governor's smallest eigenvalue
is -589 at h = 0.01. Solvers that factorize M then fail. On the null space of J that eigenvalue is 0.99, which
suffices for solvers that accept massless coordinates. But D and K also cost nv forward derivatives and a
dense matrix, for a worse ratio (0.41 with the nonsymmetric part). This choice is therefore not offered: use
`SaddlePointNewton` for many bodies and `DenseNewton` for stiff forces.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import checked_count, not_negative, offers
from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.rematerialization import FACTOR, ROOT, named
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.thresholds import CORRECTIONS_UNROLLED
from jaxdae.typing import Leaf

Update = Callable[[Any, Any], Any]
Residual = Callable[[Any, Any], Any]
Correction = Callable[[Any, Any], Any]


def simplified_newton(
    update: Update,
    residual: Residual,
    correction: Correction,
    iterations: int,
    x0: Any,
    args: Any,
    *,
    transposed: Correction | None = None,
    moving: Residual | None = None,
    begun: Any = None,
) -> tuple[Any, Any]:
    """Return a root x of the residual after a number of corrections, and the size () of the last one.

    Args:
        update: (x, args) -> x - C F(x, args). It is separate from the two functions below, because it can
            skip parts of F that stay zero along the iteration. None of the three may close over traced
            values. It is not differentiated.
        residual: (x, args) -> F, a pytree like x.
        correction: (F, args) -> C F, linear in F, with C an approximate inverse of dF/dx. It is not
            differentiated.
        iterations: the largest number of corrections, at least 1.
        x0: the start. If the iteration converges, the result does not depend on it. Its derivative is taken
            as zero.
        args: all data on which the root depends; differentiable.
        transposed: (F, args) -> C^T F; None if C is symmetric.
        moving: (x, args) -> the unknowns that move the system, a pytree; None for all of x.
        begun: x after the first correction, if the caller already has it; else None.

    The size is the largest |change of a leaf| / (1 + |leaf|) over the moving leaves, where |.| is the largest
    entry. The remaining error is smaller by the ratio of convergence. The size is constant under
    differentiation.

    Raises:
        ValueError: iterations below 1.

    Differentiable with respect to `args` in forward mode, reverse mode and second order, to the accuracy that
    `iterations` corrections reach.
    """
    # Without a correction, the result would be the first guess with the derivative of a root.
    checked_count("iterations", iterations)
    return _newton(
        update,
        residual,
        (correction, transposed or correction),
        moving or _all,
        iterations,
        (x0, begun),
        args,
    )


def _all(x: Any, args: Any) -> Any:
    return x


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3, 4))
def _newton(
    update: Update,
    residual: Residual,
    corrections: tuple[Correction, Correction],
    moving: Residual,
    iterations: int,
    start: tuple[Any, Any],
    args: Any,
) -> Any:
    x0, begun = start
    made, x = (0, x0) if begun is None else (1, begun)

    def corrected(at: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the next iterate and the size of the correction."""
        x = update(at[0], args)
        return x, _relative(moving(at[0], args), moving(x, args))

    size = jnp.asarray(jnp.inf, jnp.result_type(*jax.tree.leaves(x0)))
    at = x, size if begun is None else _relative(moving(x0, args), moving(x, args))
    if iterations > max(made, CORRECTIONS_UNROLLED):
        at = _until_steady(corrected, varying_with(jax.tree.map(jnp.asarray, at), args), iterations - made)
    else:
        for _ in range(made, iterations):
            at = corrected(at)
    return worlds_first(at)


def _until_steady(corrected: Callable[[Any], Any], at: tuple[Any, Any], most: int) -> tuple[Any, Any]:
    """Return the last iterate and the size of the last correction.

    The loop ends after `most` corrections, or when corrections are rounding errors: below eps^0.75, and zero
    or at least half as large as the correction before.
    """
    small = float(jnp.finfo(at[1].dtype).eps) ** 0.75

    def unfinished(carry: Any) -> Any:
        count, (_, size), last = carry
        is_steady = (size <= small) & ((size == 0.0) | (size >= 0.5 * last))
        return (count < most) & ~is_steady  # NaN compares false.

    def body(carry: Any) -> Any:
        count, at, _ = carry
        return count + 1, corrected(at), at[1]

    return jax.lax.while_loop(unfinished, body, (0, at, jnp.full_like(at[1], jnp.inf)))[1]


def _relative(old: Any, new: Any) -> Any:
    """Return the largest relative change () of a leaf; empty leaves do not count."""
    sizes = [
        jnp.max(jnp.abs(y - x)) / (1.0 + jnp.max(jnp.abs(y)))
        for x, y in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        if y.size
    ]
    return jax.lax.stop_gradient(jnp.max(jnp.stack(sizes)))


@_newton.defjvp
def _newton_jvp(
    update: Update,
    residual: Residual,
    corrections: tuple[Correction, Correction],
    moving: Residual,
    iterations: int,
    primals: Any,
    tangents: Any,
) -> tuple[Any, Any]:
    start, args = primals
    still, size = jax.lax.stop_gradient(
        _newton(update, residual, corrections, moving, iterations, start, args)
    )
    unflatten = ravel_pytree(still)[1]

    def refine(correction: Correction, looped: bool, multiply: Any, b: Any) -> Any:
        def correct(rest: Any) -> Any:
            return ravel_pytree(correction(unflatten(rest), args))[0]

        dx = correct(b)
        if not looped:
            for _ in range(iterations - 1):
                dx = dx + correct(b - multiply(dx))
            return dx

        def unfinished(carry: Any) -> Any:
            count, at, step = carry
            return (count < 2 * iterations) & (jnp.max(jnp.abs(step)) > tolerance * jnp.max(jnp.abs(at)))

        def body(carry: Any) -> Any:
            count, at, _ = carry
            step = correct(b - multiply(at))
            return count + 1, at + step, step

        # Errors of derivatives accumulate over the steps of a rollout. The tolerance is a few units in the
        # last place. If the iteration does not reach it, it ends after twice the iterations of x, which had a
        # better start.
        tolerance = float(jnp.finfo(dx.dtype).eps) ** 0.9
        return jax.lax.while_loop(unfinished, body, (0, dx, dx))[1]

    def solve(at: Any, rhs: Any, looped: bool = iterations > CORRECTIONS_UNROLLED) -> Any:
        """Return (dF/dx)^-1 rhs at x = `at`."""

        def product(dx: Any) -> Any:
            return ravel_pytree(jax.jvp(lambda y: residual(y, args), (at,), (unflatten(dx),))[1])[0]

        # One vector: the transpose of the primitive needs a tangent for every part of the right-hand side.
        forward, backward = (partial(refine, correction, looped) for correction in corrections)
        dx = jax.lax.custom_linear_solve(product, ravel_pytree(rhs)[0], forward, transpose_solve=backward)
        return unflatten(dx * _one((at, args)))

    # Take one more Newton step from a residual with value zero and nonzero derivative. JAX drops custom rules
    # where it builds linear programs inside others. Second derivatives would then be lost, unless x has a
    # derivative that does not depend on this rule. The step is a loop, which ends at once for a zero
    # residual.
    rest = jax.tree.map(lambda r: r - jax.lax.stop_gradient(r), residual(still, args))
    x, size = named(
        (worlds_first(jax.tree.map(operator.sub, still, solve(still, rest, looped=True))), size), ROOT
    )
    _, change = jax.jvp(lambda a: residual(x, a), (args,), (tangents[1],))
    return (x, size), (jax.tree.map(operator.neg, solve(x, change)), jnp.zeros_like(size))


@jax.custom_jvp
def _one(x: Any) -> Any:
    """Return one (), with a derivative that is zero in value but not symbolically zero.

    A linear solve saves all inputs of its product, needed or not. If J is constant, the solve needs none of
    them. Second derivatives in reverse mode then ask for the derivative of a transposed solve for which JAX
    knows that neither the matrix nor the right-hand side has a tangent. JAX fails there. As a factor of the
    result, this function gives the right-hand side a tangent.
    """
    return jnp.ones((), jax.tree.leaves(x)[0].dtype)


@_one.defjvp
def _one_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    one = _one(*primals)
    return one, jnp.zeros_like(one)


# Newton iterations with a dense matrix without known structure.


def dense_newton(
    residual: Residual,
    iterations: int,
    factorizations: int,
    x0: Any,
    args: Any,
    moving: Residual | None = None,
) -> tuple[Any, Any]:
    """Return x with residual(x, args) = 0 by LU factors of dF/dx, and the size of the last correction.

    See `simplified_newton`.

    Args:
        residual: (x, args) -> F, a pytree like x. It must not close over traced values.
        iterations: the number of corrections per factorization, at least 1.
        factorizations: how often dF/dx is computed and factorized, at least 1: first at x0, then at the x of
            the preceding iterations.
        x0: the start.
        args: all data on which the root depends; differentiable.
        moving: as in `simplified_newton`.

    Raises:
        ValueError: iterations or factorizations below 1.

    Forward mode computes dF/dx, one product per column. The derivative uses the last factors.
    """
    checked_count("factorizations", factorizations)
    whole = partial(_of_problem, residual)
    forward, backward = (partial(_dense_correction, transpose) for transpose in (0, 1))
    moving = partial(_of_problem, moving or _all)
    update = partial(_corrected, whole, forward)
    x, still = jax.lax.stop_gradient((x0, args))

    def iterated(x: Any, args: Any) -> tuple[Any, Any]:
        factors = _factorized(residual, x, still)
        return simplified_newton(
            update, whole, forward, iterations, x, (args, factors), transposed=backward, moving=moving
        )

    for _ in range(factorizations - 1):
        x, _ = iterated(x, still)
    return iterated(x, args)


def _factorized(residual: Residual, x: Any, args: Any) -> Any:
    flat, unflatten = ravel_pytree(x)
    matrix = jax.jacfwd(lambda y: ravel_pytree(residual(unflatten(y), args))[0])(flat)
    return jax.lax.stop_gradient(named(jax.scipy.linalg.lu_factor(matrix), FACTOR))


def _of_problem(residual: Residual, x: Any, args: Any) -> Any:
    return residual(x, args[0])


def _dense_correction(transpose: int, rhs: Any, args: Any) -> Any:
    flat, unflatten = ravel_pytree(rhs)
    return unflatten(jax.scipy.linalg.lu_solve(args[1], flat, trans=transpose))


# Interface to the integrators.


@dataclasses.dataclass(frozen=True)
class Corrections:
    """Newton iteration of a method: corrections by saddle-point factors, and the unknowns that must converge.

    Attributes:
        moving: (x, args) -> the unknowns that move the system, a pytree; see `simplified_newton`.
        factors: () -> the factors of the saddle point, a pytree; called only where they are used.
        forward: (F, factors) -> C F.
        backward: (F, factors) -> C^T F.
    """

    moving: Residual
    factors: Callable[[], Any]
    forward: Correction
    backward: Correction


class NewtonMethod(Protocol):
    """Source of the corrections of an implicit method: `DenseNewton` or `SaddlePointNewton`."""

    @property
    def iterations(self) -> int:
        """Return the number of corrections per factorization."""
        ...

    @property
    def tolerance(self) -> Any:
        """Return the last correction above which the status is NOT_CONVERGED; None for round-off."""
        ...

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Return a root x and the size () of the last correction, as `simplified_newton`."""
        ...


def is_newton(newton: Any) -> tuple[bool, str]:
    """Return the requirement on a field `newton`, in the form of `jaxdae.base.requirements`."""
    return offers(newton, "root"), "newton must be DenseNewton(...) or SaddlePointNewton(...)"


@pytree
class DenseNewton:
    """Newton corrections with an LU factorization of the whole Newton matrix.

    Forward mode computes the matrix, one product per column. Use it for stiff forces of any kind and for
    small systems. A factorization costs O((nv + nc)^3); in `RadauIIA`, the matrix is three times as large.
    The matrix is evaluated at the first guess of the step, which extrapolates with the acceleration at the
    start. If the slope of a force changes abruptly between the guess and the solution, such as the slope of
    smooth friction near rest, the iteration may not converge (NOT_CONVERGED). Then use more factorizations, a
    shorter step or a larger `friction_speed`.

    Attributes:
        iterations: the number of corrections per factorization, at least 1.
        factorizations: the number of factorizations of the Newton matrix per step, at least 1: first at the
            guess, then at the result of the preceding corrections.
        tolerance: the largest accepted last correction of the velocities (or of the displacements, if a
            method solves for them), relative to 1 + their size. If the last correction is larger, the status
            is NOT_CONVERGED. None for the limit of the precision, eps^0.6 and some eps (1 + |q|) / h, see
            `jaxdae.integrators.integrator.convergence`.
    """

    iterations: int = static(default=8)
    factorizations: int = static(default=1)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yield the requirements on the fields; see `jaxdae.base.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Return the root and the size of the last correction, without saddle-point factors."""
        return dense_newton(residual, self.iterations, self.factorizations, x0, args, corrections.moving)


@pytree
class SaddlePointNewton:
    """Corrections by the method's saddle-point solver with M and J at the start of the step.

    A correction costs as much as a solution by this solver, and exploits the same structure. Use it for many
    bodies and forces that are not stiff; with stiff forces the status is NOT_CONVERGED. The factorization
    also serves the first guess of the step. The method accepts dependent rows if the solver accepts them.

    Attributes:
        iterations: the number of corrections, at least 1. Each correction reduces the error by a factor (see
            the module docstring): about the angle, in rad, by which bodies rotate per step, or twice that
            angle for backward Euler. Sixteen corrections suffice for 0.1 rad: 0.2^16 = 7e-12.
        tolerance: as in `DenseNewton`.
    """

    iterations: int = static(default=16)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yield the requirements on the fields; see `jaxdae.base.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Return the root and the size of the last correction."""
        x0, factors = jax.lax.stop_gradient((x0, corrections.factors()))
        whole = partial(_of_problem, residual)
        forward, backward = (
            partial(_with_factors, part) for part in (corrections.forward, corrections.backward)
        )
        moving = partial(_of_problem, corrections.moving)
        update = partial(_corrected, whole, forward)
        return simplified_newton(
            update, whole, forward, self.iterations, x0, (args, factors), transposed=backward, moving=moving
        )


def _with_factors(correction: Correction, rhs: Any, args: Any) -> Any:
    return correction(rhs, args[1])


def _corrected(residual: Residual, correction: Correction, x: Any, args: Any) -> Any:
    return jax.tree.map(operator.sub, x, correction(residual(x, args), args))
