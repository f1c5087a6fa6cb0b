"""Newton's iteration with a fixed count and a fixed matrix, differentiated by the implicit function theorem.

For F(x, args) = 0 with an approximate inverse C of dF/dx (the factorization at some nearby point, computed once),

    x_{k+1} = x_k - C F(x_k, args)

converges linearly with the ratio |I - C dF/dx|, which is small where C is from close by. The derivative of the root is

    dF/dx dx = -dF/dargs dargs,

a linear system that is solved by the same iteration with the same C: dx_{k+1} = dx_k + C (b - dF/dx dx_k). Its transpose is solved with the
transposed products and C^T. So neither mode differentiates the iteration that found x, nor C, and both need only products with dF/dx.
A few corrections are written one after the other, which XLA fuses. From four on they are a loop, which compiles once; that of the
derivative then ends where it has converged.

*Has it converged?* Too few iterations leave an x that is no root, and the derivative of no root is no derivative. So the size of the last
correction is returned as well, for the caller to make a status of. It is the size of what moves the system, velocities or displacements,
and not of the multipliers, for this reason. Positions of size |q| are rounded by eps |q|, and a constraint closes what rounding opens. That
passes the rounding on

    to velocities with the factor k = |M^-1 J^T (J M^-1 J^T)^-1|, to multipliers with |(J M^-1 J^T)^-1|, which is of the size of k^2,

and k grows with the number of bodies in line. No iteration gets below either. Multipliers that are off by k^2 eps would be taken for an
iteration that fails, where the motion is as sharp as the precision allows. Nothing is lost by leaving them out: after a correction
J^T dlam = M dv - r, with r what was missing of momentum before it. So the *forces* of the multipliers are known as well as the motion is.

*Where C comes from* is a value, `DenseNewton` or `SaddlePointNewton`, that implicit integrators take in their field `newton`. Their Newton
matrix, with rows scaled by powers of the step h, is that of a saddle point up to terms in h,

    [ M + h D + h^2 K   -J^T ]        D = -df/dv,   K = d(M a - f - J^T lam)/dq,
    [       J             C  ]        both times coefficients of the method (gamma' for h, beta' for h^2),

There are two such values.

* `SaddlePointNewton` takes the method's saddle-point solver, with M and J at the start of the step, for an approximate inverse. It costs
  one factorization and has all the structure that the solver knows. D and K are left out, and J turns with the bodies within the step. So
  the ratio of convergence is |M^-1 (h D + h^2 K)| + O(h |J'|): where forces are not stiff, one to two times the angle that bodies turn by
  in a step. Where forces are stiff it is above 1.
* `DenseNewton` takes the LU factors of the whole matrix, where the first guess of the step ends. Only what changes along the iteration is
  left, O(h^2). It costs (nv + nc)^3 and nv + nc forward derivatives, whatever the structure.

*Between the two* would be the solver with M + h D + h^2 K in place of M. Measured with generalized-alpha: the ratio of convergence, and
the corrections down to 4e-10 m/s,

                                              M           M + h D + h^2 K, symmetric part        dense
                                                        SchurComplement   NullSpace, DenseKKT      LU
    chain of 16 links, 8 rad/s, h = 0.01   0.071,  8       0.070,  8          0.070,  8         0.0008, 4
    chain of 4 with springs, h = 0.01      diverges        0.0015, 4          0.0015, 4         0.0002, 4
    flyball governor, h = 0.001            diverges        NaN                0.009,  5         6e-5,   3
    flyball governor, h = 0.01             diverges        NaN                0.40,  25         0.019,  7

(springs of 1e6 N/m and 1e3 N s/m, on members of 1 kg). Without stiff forces it gains nothing, because J turns. With them M + h D + h^2 K is
positive definite where springs and dampers are at rest, but not where multipliers or springs compress members: relative to M the governor's
smallest eigenvalue is -589 at h = 0.01. Solvers that factorize M fail then. On the null space of J that eigenvalue is 0.99, enough for
solvers that take massless coordinates. But D and K cost nv forward derivatives and a dense matrix as well, for a worse ratio (0.41 with the
part that is not symmetric). So it is not offered: `SaddlePointNewton` is for many bodies, `DenseNewton` for stiff forces.
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

from jaxdae._pytree import pytree, static
from jaxdae.batching.axes import worlds_first
from jaxdae.batching.last import repeated_so_often
from jaxdae.checkpointing import FACTOR, ROOT, named
from jaxdae.requirements import checked_count, not_negative, offers
from jaxdae.thresholds import CORRECTIONS_UNROLLED
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
    """Returns x with residual(x, args) = 0 after a fixed number of corrections, and the size () of the last one.

    Args:
        update: (x, args) -> x - C F(x, args). Separate from the two below, because parts of F that stay zero along the iteration need
            not be computed. Like them it must not close over traced values. It is not differentiated.
        residual: (x, args) -> F, a pytree like x.
        correction: (F, args) -> C F, linear in F: an approximate inverse of dF/dx. It is not differentiated.
        iterations: how many corrections, at least 1.
        x0: the start; the result does not depend on it where the iteration converges, and its derivative is taken as zero.
        args: all that the root depends on; differentiable.
        transposed: (F, args) -> C^T F; None where C is symmetric.
        moving: (x, args) -> what of x moves the system, a pytree; None for all of it.
        begun: x after the first correction, where the caller has it already; None where he has not.

    The size is the largest |change of a leaf| / (1 + |leaf|) over the leaves of what moves, in the largest entry; the error that is left
    is smaller by the ratio of convergence. It is constant under differentiation.

    Raises:
        ValueError: iterations below 1.

    Differentiable with respect to `args`, forward, reverse and second order, to the accuracy that `iterations` corrections reach.
    """
    # Without a correction the first guess would be returned, with a derivative as if it were a root.
    checked_count("iterations", iterations)
    return _newton(update, residual, (correction, transposed or correction), moving or _all, iterations, (x0, begun), args)


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
    def body(carry: Any, args: Any) -> Any:
        return carry[1], update(carry[1], args)

    (x0, begun), made = start, 0 if start[1] is None else 1
    previous, x = (x0, x0) if begun is None else start
    if iterations > max(made, CORRECTIONS_UNROLLED):
        previous, x = repeated_so_often(body, iterations - made)((previous, x), args)
    else:
        for _ in range(made, iterations):
            previous, x = x, update(x, args)
    return worlds_first((x, _relative(moving(previous, args), moving(x, args))))


def _relative(old: Any, new: Any) -> Any:
    """Returns the largest relative change () of a leaf; zero where there is nothing to change."""
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
    still, size = jax.lax.stop_gradient(_newton(update, residual, corrections, moving, iterations, start, args))
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

        # Errors of derivatives add up over the steps of a rollout. This is a few units of the last place, which iterations do not
        # always reach: then they end after twice as many as were made for x, which had a better start.
        tolerance = float(jnp.finfo(dx.dtype).eps) ** 0.9
        return jax.lax.while_loop(unfinished, body, (0, dx, dx))[1]

    def solve(at: Any, rhs: Any, looped: bool = iterations > CORRECTIONS_UNROLLED) -> Any:
        """Returns (dF/dx)^-1 rhs at x = `at`."""

        def product(dx: Any) -> Any:
            return ravel_pytree(jax.jvp(lambda y: residual(y, args), (at,), (unflatten(dx),))[1])[0]

        # One vector, because the primitive's transpose needs every part of the right-hand side to be a tangent.
        forward, backward = (partial(refine, correction, looped) for correction in corrections)
        dx = jax.lax.custom_linear_solve(product, ravel_pytree(rhs)[0], forward, transpose_solve=backward)
        return unflatten(dx * _one((at, args)))

    # One more Newton step, from a residual that is made zero but for its derivative: JAX drops custom rules where it builds linear programs
    # inside of others, and second derivatives would be lost if x did not have one that does not depend on this rule. As a loop, which ends
    # at once for a zero.
    rest = jax.tree.map(lambda r: r - jax.lax.stop_gradient(r), residual(still, args))
    x, size = named((worlds_first(jax.tree.map(operator.sub, still, solve(still, rest, looped=True))), size), ROOT)
    _, change = jax.jvp(lambda a: residual(x, a), (args,), (tangents[1],))
    return (x, size), (jax.tree.map(operator.neg, solve(x, change)), jnp.zeros_like(size))


@jax.custom_jvp
def _one(x: Any) -> Any:
    """Returns one (), with a derivative that is zero in numbers, where JAX would know that there is none.

    A linear solve keeps all that its product was given, needed or not. Where J is constant nothing of it is, and second derivatives in
    reverse mode then ask for those of a transposed solve of which JAX knows that neither matrix nor right-hand side move: it fails there.
    As a factor of the result this gives the right-hand side a derivative.
    """
    return jnp.ones((), jax.tree.leaves(x)[0].dtype)


@_one.defjvp
def _one_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    one = _one(*primals)
    return one, jnp.zeros_like(one)


# A dense matrix, where nothing is known about it.


def dense_newton(
    residual: Residual, iterations: int, factorizations: int, x0: Any, args: Any, moving: Residual | None = None
) -> tuple[Any, Any]:
    """Returns x with residual(x, args) = 0, and the size of the last correction, as `simplified_newton`; with LU factors of dF/dx.

    Args:
        residual: (x, args) -> F, a pytree like x. It must not close over traced values.
        iterations: corrections with one factorization, at least 1.
        factorizations: how often dF/dx is computed and factorized, at least 1: first at x0, then at the x of the iterations before.
        x0: the start.
        args: all that the root depends on; differentiable.
        moving: as there.

    Raises:
        ValueError: iterations or factorizations below 1.

    dF/dx is computed by forward mode, one product a column. The derivative uses the last factors.
    """
    checked_count("factorizations", factorizations)
    whole = partial(_of_problem, residual)
    forward, backward = (partial(_dense_correction, transpose) for transpose in (0, 1))
    moving = partial(_of_problem, moving or _all)
    update = partial(_corrected, whole, forward)
    x, still = jax.lax.stop_gradient((x0, args))

    def iterated(x: Any, args: Any) -> tuple[Any, Any]:
        factors = _factorized(residual, x, still)
        return simplified_newton(update, whole, forward, iterations, x, (args, factors), transposed=backward, moving=moving)

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


# What the integrators are told.


@dataclasses.dataclass(frozen=True)
class Corrections:
    """What a method knows of its Newton iteration: how saddle-point factors become corrections, and which unknowns have to converge.

    Attributes:
        moving: (x, args) -> what of the unknowns moves the system, a pytree; see `simplified_newton`.
        factors: returns those of the saddle point, a pytree; called where they are used.
        forward: (F, factors) -> C F.
        backward: (F, factors) -> C^T F.
    """

    moving: Residual
    factors: Callable[[], Any]
    forward: Correction
    backward: Correction


class NewtonMethod(Protocol):
    """Where the corrections of an implicit method come from: `DenseNewton` or `SaddlePointNewton`."""

    @property
    def iterations(self) -> int:
        """How many corrections a factorization serves."""
        ...

    @property
    def tolerance(self) -> Any:
        """The last correction above which the status is NOT_CONVERGED; None for what the precision can reach."""
        ...

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Returns x with residual(x, args) = 0, and the size () of the last correction, as `simplified_newton`."""
        ...


def is_newton(newton: Any) -> tuple[bool, str]:
    """Returns what a field `newton` has to satisfy, as `jaxdae.requirements` takes it."""
    return offers(newton, "root"), "newton must be DenseNewton(...) or SaddlePointNewton(...)"


@pytree
class DenseNewton:
    """Corrections by LU factors of the whole Newton matrix, computed by forward mode, one product a column.

    For stiff forces of any kind, and for small systems: the cost is (nv + nc)^3, three times that size in `RadauIIA`. The matrix belongs
    to the first guess of the step, which has the acceleration at its start. Where a force bends within this guess, such as dry friction
    near rest, the status is NOT_CONVERGED: take more factorizations, a shorter step or a larger `friction_speed`.

    Attributes:
        iterations: corrections with one factorization, at least 1.
        factorizations: of Newton's matrix a step, at least 1: first at the guess, then where the corrections before have led.
        tolerance: the last correction of velocities (or of displacements, where a method solves for these), relative to 1 + their size,
            above which the status is NOT_CONVERGED; None for what the precision can reach, eps^0.6 and some eps (1 + |q|) / h, see
            `jaxdae.integrators.interface.convergence`.
    """

    iterations: int = static(default=8)
    factorizations: int = static(default=1)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Returns the root and the size of the last correction; makes no use of saddle-point factors."""
        return dense_newton(residual, self.iterations, self.factorizations, x0, args, corrections.moving)


@pytree
class SaddlePointNewton:
    """Corrections by the method's saddle-point solver, with M and J at the start of the step: cost and structure are those of the solver.

    For many bodies, and forces that are not stiff: where they are, the status is NOT_CONVERGED. The factorization serves the first guess of
    the step too. Where the solver allows dependent rows, the method does.

    Attributes:
        iterations: corrections, at least 1. Each gains a factor, see the module: about the angle, in rad, that bodies turn by in a step, of
            backward Euler twice that. Sixteen are enough for 0.1 rad: 0.2^16 = 7e-12.
        tolerance: as in `DenseNewton`.
    """

    iterations: int = static(default=16)
    tolerance: Leaf = None

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield not_negative(self.tolerance), "tolerance must not be negative"

    def root(self, residual: Residual, x0: Any, args: Any, corrections: Corrections) -> tuple[Any, Any]:
        """Returns the root and the size of the last correction."""
        x0, factors = jax.lax.stop_gradient((x0, corrections.factors()))
        whole = partial(_of_problem, residual)
        forward, backward = (partial(_with_factors, part) for part in (corrections.forward, corrections.backward))
        moving = partial(_of_problem, corrections.moving)
        update = partial(_corrected, whole, forward)
        return simplified_newton(update, whole, forward, self.iterations, x0, (args, factors), transposed=backward, moving=moving)


def _with_factors(correction: Correction, rhs: Any, args: Any) -> Any:
    return correction(rhs, args[1])


def _corrected(residual: Residual, correction: Correction, x: Any, args: Any) -> Any:
    return jax.tree.map(operator.sub, x, correction(residual(x, args), args))
