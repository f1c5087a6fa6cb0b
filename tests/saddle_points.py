"""What the tests of saddle-point solvers share: the solvers, problems that move along a line, and one
compiled report of all derivatives.

A `Line` gives every part of M a - J^T lam = f, J a + C lam = r as a polynomial in s. Its numbers are
multiples of 1/16 or exact doubles, so that `exact.line` knows the Moore-Penrose solution and its derivatives
to the last bit, whatever the rank of J is.

Compiling is the cost: all problems have the same shape, and two programs are compiled for each solver,
without LLVM's optimizations: `report`, of one problem with a full mass matrix and compliance, and
`batch_report`, of a batch with diagonal masses and hard rows.
"""

from fractions import Fraction
from typing import Any

import catalogue
import exact
import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd

SIZE, ROWS, WORLDS = 5, 3, 3


SOLVERS = {name: row.solver for name, row in catalogue.SOLVERS.items()}
ANY_RANK = catalogue.every(catalogue.SOLVERS, lambda row: row.any_rank)
MASSLESS = catalogue.every(catalogue.SOLVERS, lambda row: row.massless)
"""Solvers that ask for M > 0 on the null space of J only."""


@jd.tree.pytree
class Line:
    """A saddle-point problem along s: the k-th entry of a field is its k-th derivative at s = 0."""

    mass: Any
    jacobian: Any
    f: Any
    r: Any
    compliance: Any = None

    def at(self, s: Any) -> tuple[Any, ...]:
        """Returns (M, J, f, r, C) at s."""
        parts = (self.mass, self.jacobian, self.f, self.r, self.compliance)
        return tuple(None if part is None else _polynomial(part, s) for part in parts)


def _polynomial(derivatives: Any, s: Any) -> Any:
    value, *rest = derivatives
    for k, derivative in enumerate(rest, 1):
        value = jax.tree.map(lambda x, y, k=k: x + (s**k / k) * y, value, derivative)  # k! = k up to 2
    return value


def numbers(rng: Any, *shape: int) -> Any:
    """Returns random multiples of 1/4 up to 2 in magnitude: their products are exact in any precision."""
    return rng.integers(-8, 9, shape) / 4.0


def masses(kind: str, seed: int = 0, scale: Any = 1.0) -> tuple[Any, Any]:
    """Returns M and its derivative: diagonal or full, positive definite, the coordinate k in units of
    scale[k] (powers of 4).
    """
    rng = np.random.default_rng(seed)
    scale = np.broadcast_to(np.asarray(scale, float), (SIZE,))
    diagonal, change = rng.integers(4, 17, SIZE) / 8.0, numbers(rng, SIZE)
    if kind == "diagonal":
        return jd.operators.DiagonalMatrix(jnp.asarray(scale * diagonal)), jd.operators.DiagonalMatrix(
            jnp.asarray(scale * change)
        )
    half, other = numbers(rng, SIZE, SIZE) / 2.0, numbers(rng, SIZE, SIZE) / 4.0
    units = np.sqrt(scale[:, None] * scale[None, :])
    return jnp.asarray(units * (half @ half.T + np.diag(diagonal))), jnp.asarray(units * (other + other.T))


def line(
    kind: str,
    factors: Any = None,
    *,
    seed: int = 0,
    scale: Any = 1.0,
    consistent: bool = True,
    compliance: Any = None,
    forces: float = 1.0,
) -> Line:
    """Returns a problem with J(s) = T(s) B(s) of constant rank.

    Args:
        kind: of mass matrix, "full" or "diagonal".
        factors: T, T' (rows, rank), B, B' (rank, SIZE); random, of full rank, by default.
        seed: of everything random.
        scale: of the masses.
        consistent: whether r(s) = J(s) c(s), or anything.
        compliance: C and its derivative; None for hard rows.
        forces: factor on f and r.
    """
    rng = np.random.default_rng(seed)
    t, dt, b, db = random_factors(seed, ROWS) if factors is None else (np.asarray(x, float) for x in factors)
    jacobian = (t @ b, dt @ b + t @ db, 2.0 * dt @ db)
    rows = len(t)
    f, c, r = ([forces * numbers(rng, n), forces * numbers(rng, n)] for n in (SIZE, SIZE, rows))
    if consistent:
        r = [
            jacobian[0] @ c[0],
            jacobian[1] @ c[0] + jacobian[0] @ c[1],
            jacobian[2] @ c[0] + 2.0 * jacobian[1] @ c[1],
        ]
    else:
        r = [*r, np.zeros(rows)]
    soft = None if compliance is None else tuple(jnp.asarray(x, float) for x in compliance)
    j, f, r = (tuple(jnp.asarray(x) for x in part) for part in (jacobian, f, r))
    return Line(masses(kind, seed, scale), j, f, r, soft)


def random_factors(seed: int, rank: int, moving: bool = True) -> tuple[Any, ...]:
    """Returns T, T', B, B' of a Jacobian whose dependencies move with s, or not."""
    rng = np.random.default_rng(100 + seed)
    t = np.eye(ROWS) if rank == ROWS else numbers(rng, ROWS, rank)
    return t, moving * numbers(rng, *t.shape), numbers(rng, rank, SIZE), numbers(rng, rank, SIZE)


def _apply(solver: Any, problem: Line, s: Any) -> Any:
    mass, jacobian, f, r, compliance = problem.at(s)
    return jnp.concatenate(jd.solve_saddle_point(solver, mass, jacobian, f, r, compliance))


@jax.jit
def report(solver: Any, problem: Line, weights: Any) -> tuple[Any, ...]:
    """Returns (a, lam), its first and second derivative along s, and w^T of these two by reverse mode and by
    forward over reverse.
    """

    def first(s: Any) -> Any:
        return jax.jvp(lambda z: _apply(solver, problem, z), (s,), (jnp.ones_like(s),))

    def slope(s: Any) -> Any:
        return jax.grad(lambda z: jnp.sum(weights * _apply(solver, problem, z)))(s)

    zero = jnp.zeros((), weights.dtype)
    (x, dx), (_, ddx) = jax.jvp(first, (zero,), (jnp.ones_like(zero),))
    return x, dx, ddx, *jax.jvp(slope, (zero,), (jnp.ones_like(zero),))


@jax.jit
def batch_report(solver: Any, problems: Line, weights: Any) -> tuple[Any, ...]:
    """Returns (a, lam), and w^T of its first two derivatives, of `WORLDS` problems; worlds last everywhere,
    as in a batch rollout.
    """

    def slope(moving: Line, s: Any) -> Any:
        return jax.grad(lambda z: jnp.sum(weights * _apply(solver, moving, z)))(s)

    def one(moving: Line) -> tuple[Any, ...]:
        zero = jnp.zeros((), weights.dtype)
        return _apply(solver, moving, zero), *jax.jvp(
            lambda s: slope(moving, s), (zero,), (jnp.ones_like(zero),)
        )

    return jax.vmap(one, in_axes=-1, out_axes=-1)(problems)


def batch_reports(solver: Any, problems: list[Line], weights: Any) -> list[tuple[Any, ...]]:
    """Returns the batch report of each problem, all from one compiled program: batches of `WORLDS`, the last
    one filled up.
    """
    found = []
    for start in range(0, len(problems), WORLDS):
        some = problems[start : start + WORLDS]
        worlds = stacked([*some, *[some[0]] * (WORLDS - len(some))])
        results = batch_report(solver, worlds, weights)
        found += [tuple(np.asarray(x)[..., k] for x in results) for k in range(len(some))]
    return found


def stacked(problems: list[Line]) -> Line:
    """Returns the problems as one, with a world axis at the end."""
    return jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *problems)


def exact_line(problem: Line) -> tuple[Any, Any, Any]:
    """Returns (a, lam) with the shortest lam, and its first two derivatives, from rational arithmetic."""

    def dense(mass: Any) -> Any:
        return np.diag(mass.diagonal) if isinstance(mass, jd.operators.DiagonalMatrix) else np.asarray(mass)

    compliance = problem.compliance or (np.zeros(problem.r[0].shape),)
    parts = ([dense(m) for m in problem.mass], problem.jacobian, problem.f, problem.r, compliance)
    rational = [[exact.rationals(x) for x in part] for part in parts]

    def at(s: Fraction) -> Any:
        return exact.saddle_point(
            *(sum(x * s**k / max(k, 1) for k, x in enumerate(part)) for part in rational)
        )

    return exact.line(at)


def force(problem: Line, lam: Any, dlam: Any, ddlam: Any) -> tuple[Any, Any, Any]:
    """Returns J^T lam and its first two derivatives: what all multipliers of a problem have in common."""
    j, dj, ddj = (np.asarray(x).T for x in problem.jacobian)
    return j @ lam, dj @ lam + j @ dlam, ddj @ lam + 2.0 * dj @ dlam + j @ ddlam
