"""The nearest feasible velocity for velocity-level rows that are not affine in x'.

First-order systems need the feasible velocity nearest to their rate f. Starts, projections and impulses of
second-order systems need the feasible velocity nearest to f = v_e. The problem is

    minimize |x' - f|_W^2 / 2     subject to     r(x') + C lam = 0,

with r = [c'; w] and the compliance C of soft rows. Its stationary points satisfy W (x' - f) = J(x')^T lam. A
Newton step from (x', lam) is the saddle-point system

    [ H  -J^T ] [ dx' ]   [ W (f - x') ]
    [ J    C  ] [ lam ] = [    -r      ]        H = W - d(J^T lam)/dx',

in which H contains the curvature of the rows. `NullSpace()` solves it, because H must be positive definite
only on the null space of J, and because rows may be dependent. The search starts at f and has two phases:

1. Restoration: Gauss-Newton steps of least norm |dx'|_W, shortened until the residual decreases, reach the
   rows.
2. Newton steps as above move along the rows to the nearest velocity. The multipliers in H are the multipliers
   of the projection at the current x'. If H is not positive definite on the null space of J, W replaces it.

The search finds a local minimum near the rate, and is not differentiated. The result comes from two more
Newton steps from the solution as a constant. By the implicit function theorem their derivatives are exact,
because F = 0 there. Two steps are exact up to the third derivative.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import DenseMatrix, DenseRows, JacobianOperator
from jaxdae.saddle_point import NullSpace
from jaxdae.saddle_point.derivative import solve, solve_saddle_point
from jaxdae.systems.evaluation import WrappedEvaluation
from jaxdae.systems.linearization import Linearization, linearize
from jaxdae.systems.system import AnySystem, State, default_tolerance, velocity_residual
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Leaf, Rows, Velocity, VelocityResidual

_RESTORATIONS = 40
_NEWTON_STEPS = 20
_SHORTEST = 20
"""The number of trial lengths of a restoration step, each half of the previous length."""


@pytree
class Curved:
    """Information about rows that may be curved.

    Attributes:
        bent: whether the rows differ from their linearization at the rate, so that iterations computed the
            velocity ().
        settled: whether these iterations converged to a minimum ().
        flat: whether the rows are affine in x', judged by one more velocity ().
    """

    bent: Leaf
    settled: Leaf
    flat: Leaf


def has_affine_rows(system: AnySystem, at: State) -> bool:
    """Return whether all rows are known to be affine in the velocities.

    Either the system declares it, or the derivatives of the rows do not depend on the velocities.
    """
    if system.affine_rows:
        return True

    def derivative(v: Velocity, change: Velocity) -> Any:
        return jax.jvp(lambda x: system.velocity_constraint(at.t, at.q, x), (v,), (change,))[1]

    program = jax.make_jaxpr(derivative)(at.v, at.v)
    return not any(_dependent(program.jaxpr, [True, False]))


def _dependent(program: Any, given: list[bool]) -> list[bool]:
    """Return which outputs of a traced program may depend on the given inputs."""
    found = {id(variable) for variable, is_given in zip(program.invars, given, strict=True) if is_given}
    for equation in program.eqns:
        inputs = [id(variable) in found for variable in equation.invars]
        inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
        outputs = [any(inputs)] * len(equation.outvars) if inner is None else _dependent(inner.jaxpr, inputs)
        found |= {
            id(variable) for variable, depends in zip(equation.outvars, outputs, strict=True) if depends
        }
    return [id(variable) in found for variable in program.outvars]


def on_curved_rows(
    rows: AnySystem, at: State, here: Linearization, v: Velocity, lam: Rows
) -> tuple[Velocity, Rows, Curved]:
    """Return the nearest feasible velocity, the multipliers, and information about the rows.

    Args:
        rows: the system.
        at: the state with the rate f as velocity.
        here: the linearization there.
        v: the solution of one linearization, which is returned if the rows are affine.
        lam: its multipliers.
    """
    bent, flat = _bends(*jax.lax.stop_gradient((rows, at, here, v, lam)))

    def refined() -> tuple[Velocity, Rows, Any]:
        start = jax.lax.stop_gradient(_Problem(rows, at, here.mass.as_dense(), here.compliance, bent))
        found, multipliers, minimum = start.solved()
        x, mu = jax.lax.stop_gradient((found, multipliers))
        problem = _Problem(rows, at, here.mass.as_dense(), here.compliance, bent)
        for _ in range(2):
            before, (x, mu) = x, problem.newton(x, mu)
        small = jnp.max(jnp.abs(x - before)) <= default_tolerance(x.dtype) * (1.0 + jnp.max(jnp.abs(x)))
        return x, mu, minimum & small

    v, lam, settled = jax.lax.cond(bent, refined, lambda: (v, lam, jnp.ones((), bool)))
    return v, lam, Curved(*jax.lax.stop_gradient((bent, settled, flat)))


def nearest_on_curved_rows(rows: AnySystem, at: State, weight: Any, free: Any) -> Velocity:
    """Return the feasible velocity nearest to a desired velocity, with some velocities fixed.

    Args:
        rows: the system.
        at: the state with the desired velocity.
        weight: W (nv, nv), whose off-diagonal entries for fixed velocities are zero.
        free: 1 for free velocities and 0 for fixed ones (nv,).
    """
    rows = _WithHeld(rows, free, at.v)
    here = linearize(rows, at, NullSpace(), weight=DenseMatrix(weight))
    change, lam = solve(
        here.factors, here.mass, here.jacobian, here.compliance, None, -velocity_residual(rows, at)
    )
    return on_curved_rows(rows, at, here, at.v + change, lam)[0]


@pytree
class _HeldEvaluation(WrappedEvaluation):
    """The terms of `_WithHeld`; all rows count as hard."""

    @property
    def velocity_constraint(self) -> VelocityResidual:
        held, free = self.system.held, self.system.free
        return self.inner.with_velocities(held + free * (self.v - held)).velocity_constraint

    @property
    def jacobian(self) -> JacobianOperator:
        """J with zeros in the columns of fixed velocities."""
        return DenseRows(self.inner.jacobian.as_dense() * self.system.free)

    @property
    def compliance(self) -> None:
        return None


@pytree
class _WithHeld(Wrapper):
    """Rows that depend on the free velocities only.

    Attributes:
        system: the inner system.
        free: 1 for free velocities and 0 for fixed ones (nv,).
        held: the values (nv,) of the fixed velocities.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _HeldEvaluation
    system: AnySystem
    free: Leaf
    held: Leaf


def _bends(rows: AnySystem, at: State, here: Linearization, v: Velocity, lam: Rows) -> tuple[Any, Any]:
    """Return whether the rows and their gradients at v differ from the linearization ().

    The second result is whether the rows are affine elsewhere ().
    """
    size = 1.0 + jnp.max(jnp.abs(v)) + jnp.max(jnp.abs(at.v))
    limit = float(jnp.finfo(v.dtype).eps) ** 0.8
    residual = velocity_residual(rows, at)

    def error(x: Velocity) -> Any:
        linear = residual + here.jacobian.times(x - at.v)
        scale = size + jnp.max(jnp.abs(residual)) + jnp.max(jnp.abs(x))
        return jnp.max(jnp.abs(velocity_residual(rows, State(at.t, at.q, x)) - linear)) > limit * scale

    def pulled(x: Velocity) -> Velocity:
        return jax.vjp(lambda y: velocity_residual(rows, State(at.t, at.q, y)), x)[1](lam)[0]

    turned = jnp.max(jnp.abs(pulled(v) - pulled(at.v))) > limit * (1.0 + jnp.sum(jnp.abs(lam)))
    probe = at.v + size * jnp.asarray(np.cos(1.0 + np.arange(v.shape[0])), v.dtype)
    return (error(v) | turned) & jnp.all(jnp.isfinite(v)), ~error(probe)


@pytree
class _Problem:
    """The minimization problem of this module.

    Attributes:
        rows: the system.
        at: the state with the rate f as velocity.
        weight: W (nv, nv).
        compliance: C (nc,), None for hard rows.
        active: whether there is a problem to solve (); if not, steps solve a trivial system, so that their
            derivatives are finite.
    """

    rows: Leaf
    at: Leaf
    weight: Leaf
    compliance: Leaf
    active: Leaf

    def residual(self, x: Velocity) -> Rows:
        """Return r (nc,)."""
        return velocity_residual(self.rows, State(self.at.t, self.at.q, x))

    def bend(self, x: Velocity, lam: Rows) -> Any:
        """Return the curvature d(J^T lam)/dx' (nv, nv)."""

        def along(y: Velocity) -> Any:
            w = self.rows.velocity_constraint(self.at.t, self.at.q, y)
            return w @ lam[lam.shape[0] - w.shape[0] :]

        return jax.hessian(along)(x)

    def step(self, matrix: Any, x: Velocity, f: Velocity | None) -> tuple[Velocity, Rows]:
        """Return dx' and multipliers of a saddle point with this matrix and this first right-hand side."""
        jacobian = self.rows.jacobian_operator(self.at.t, self.at.q, x).as_dense()
        soft = jnp.zeros((jacobian.shape[0],), x.dtype) if self.compliance is None else self.compliance
        matrix = jnp.where(self.active, matrix, jnp.eye(x.shape[0], dtype=x.dtype))
        jacobian, soft = jnp.where(self.active, jacobian, 0.0), jnp.where(self.active, soft, 1.0)
        return solve_saddle_point(NullSpace(), matrix, jacobian, f, -self.residual(x), soft)

    def newton(self, x: Velocity, lam: Rows) -> tuple[Velocity, Rows]:
        """Return velocity and multipliers after a Newton step."""
        change, lam = self.step(self.weight - self.bend(x, lam), x, self.weight @ (self.at.v - x))
        return x + change, lam

    def solved(self) -> tuple[Velocity, Rows, Any]:
        """Return velocity, multipliers, and whether Newton steps ended at a minimum."""
        eps = float(jnp.finfo(self.at.v.dtype).eps)
        hard: Any = True if self.compliance is None else self.compliance == 0.0

        def opening(x: Velocity) -> Any:
            return jnp.max(jnp.abs(jnp.where(hard, self.residual(x), 0.0)))

        def restore(carry: Any) -> Any:
            count, x, size, _ = carry
            change = self.step(self.weight, x, None)[0]
            lengths = jnp.asarray(0.5 ** np.arange(_SHORTEST), x.dtype)
            sizes = jax.vmap(lambda length: opening(x + length * change))(lengths)
            # The first length that decreases the residual; if none does, argmax returns 0.
            k = jnp.argmax(sizes < (1.0 - 0.1 * lengths) * size)
            better = sizes[k] < size
            return (
                count + 1,
                jnp.where(better, x + lengths[k] * change, x),
                jnp.where(better, sizes[k], size),
                better,
            )

        def is_open(carry: Any) -> Any:
            count, x, size, better = carry
            return (
                self.active
                & better
                & (count < _RESTORATIONS)
                & (size > eps**0.7 * (1.0 + jnp.max(jnp.abs(x))))
            )

        def improve(carry: Any) -> Any:
            count, x, *_ = carry
            wish = self.weight @ (self.at.v - x)
            projected, lam = self.step(self.weight, x, wish)
            change, mu = self.step(self.weight - self.bend(x, lam), x, wish)
            regular = jnp.all(jnp.isfinite(change))
            change, mu = jnp.where(regular, change, projected), jnp.where(regular, mu, lam)
            return count + 1, x + change, mu, jnp.max(jnp.abs(change)), regular

        def moves(carry: Any) -> Any:
            count, x, _, change, regular = carry
            return (
                self.active
                & (count < _NEWTON_STEPS)
                & ((change > eps**0.6 * (1.0 + jnp.max(jnp.abs(x)))) | ~regular)
            )

        f, true = self.at.v, jnp.ones((), bool)
        x = jax.lax.while_loop(is_open, restore, (0, f, opening(f), true))[1]
        none = jnp.zeros_like(self.residual(f))
        _, x, lam, _, minimum = jax.lax.while_loop(
            moves, improve, (0, x, none, jnp.full((), jnp.inf, x.dtype), true)
        )
        return x, lam, minimum
