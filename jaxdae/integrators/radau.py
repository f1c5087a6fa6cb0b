"""Three-stage Radau IIA (order 5) on the stabilized index-2 form of Gear, Gupta and Leimkuhler.

The index-3 equations together with the rates of their constraints are overdetermined,

    q' = v,    M(q) v' = f + J^T lam,    g(t, q) = 0,    [g'; w](t, q, v) = 0.

An additional multiplier mu, which is zero for the exact solution, turns them into a system of index two with
as many unknowns as equations, and allows the numerical solution to satisfy all of them:

    q' = v + G^T mu,        G^T = M(q0)^-1 J_g(q0)^T, J_g: the position-level rows.

Any G of full rank is suitable; the method uses G at the start of the step, constant within the step. The
collocation method is stiffly accurate: its last stage is the end of the step, so position and velocity
constraints hold there to the accuracy of Newton's iteration. The method has order five in positions and
velocities (three in lam), damps infinitely fast modes completely, and needs no projection.

The unknowns of stage i are h a_i, h lam_i and mu_i (h times nu_i below; see `Unknowns`). Positions and
velocities follow from them,

    V_i = v0 + h sum_j A_ij a_j,        Q_i = q0 (+) xi_i,  xi_i = h sum_j A_ij (D_j V_j + h G^T nu_j).

With g divided by h^2 and the rates by h, all blocks of Newton's matrix are of order one. D_j converts
velocities at Q_j to rates of xi_j (`tangent_rate`; the identity for flat coordinates), so the order also
holds for quaternions.

*Corrections from a saddle-point solver.* If forces change little within a step (with M, J and G of the
start), Newton's matrix couples the stages only through A. The following combinations of its rows r, r', r''
(forces, rates, closures; E = h A a, L = h A lam, both over stages) remove this coupling:

    M E - J^T L = A r,      J E + C L = r' (A r' in soft rows),      J_g E + J_g G mu = A^-1 r''.

The correction is two saddle-point solves for each of the three stages, then h a = A^-1 E, h lam = A^-1 L.
With D and K, the stages would not decouple.

References:
    C. Fuehrer, B. J. Leimkuhler, "Numerical solution of differential-algebraic equations for constrained
    mechanical motion", Numer. Math. 59 (1991). C. W. Gear, B. Leimkuhler, G. K. Gupta, J. Comput. Appl. Math.
    12 (1985). E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", sections IV.5 and VII.4.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.integrators.implicit import dynamic_rows, hard_or_soft
from jaxdae.integrators.integrator import StepInfo, closed_step_info, convergence, dynamics_at_start
from jaxdae.integrators.method import PointMethod
from jaxdae.integrators.tangent_rates import tangent_rate
from jaxdae.linalg.newton import Corrections, DenseNewton, NewtonMethod, is_newton
from jaxdae.systems.linearization import Linearization, Point, factorized, linearize
from jaxdae.systems.system import AnySystem, State, velocity_residual
from jaxdae.typing import Leaf

_S = sqrt(6.0)
_A = np.array(
    [
        [(88 - 7 * _S) / 360, (296 - 169 * _S) / 1800, (-2 + 3 * _S) / 225],
        [(296 + 169 * _S) / 1800, (88 + 7 * _S) / 360, (-2 - 3 * _S) / 225],
        [(16 - _S) / 36, (16 + _S) / 36, 1 / 9],
    ]
)
_A_INVERSE = np.linalg.inv(_A)
_C = _A.sum(axis=1)
# Amplification of an error of g / h by J_g G mu = A^-1 r''; the sign of the error may differ between stages.
_CLOSING = float(np.max(np.sum(np.abs(_A_INVERSE), axis=1)))


@pytree
class StageUnknowns:
    """h a (3, nv), h lam (3, nc) and mu (3, ng)."""

    dv: Leaf
    impulse: Leaf
    mu: Leaf


def _stages(x: StageUnknowns, system: AnySystem, state: State, drift: Any, dt: Any) -> State:
    """Return the stages as a stacked state.

    The rates of xi at a stage depend on its position, which in turn depends on the rates. For curved
    coordinates, the sum is iterated, starting from the rates of a flat space. Each correction gains an order
    of h. Four corrections make the error smaller than the error of the method.
    """
    weights = jnp.asarray(_A, state.v.dtype)
    v = state.v + weights @ x.dv
    moved = x.mu @ drift.T
    xi = dt * weights @ (v + moved)

    def corrected(_: Any, xi: Any) -> Any:
        rates = jax.vmap(lambda step, rate: tangent_rate(system, state.q, step, rate))(xi, v)
        return dt * weights @ (rates + moved)

    if not system.flat:
        xi = jax.lax.fori_loop(0, 4, corrected, xi)
    q = jax.vmap(lambda step: system.retract(state.q, step))(xi)
    return State(state.t + dt * jnp.asarray(_C, state.v.dtype), q, v)


def _residual(x: StageUnknowns, args: Any) -> StageUnknowns:
    system, state, drift, u, dt = args
    stages = _stages(x, system, state, drift, dt)

    def rows(at: State, dv: Any, impulse: Any, mu: Any) -> tuple[Any, Any, Any]:
        a, lam = dv / dt, impulse / dt
        rates = hard_or_soft(system, at, a, lam, velocity_residual(system, at) / dt)
        closed = system.constraint(at.t, at.q) / dt
        compliance = system.compliance(at.t, at.q)
        if compliance is not None:
            # A soft or inactive row imposes no closure.
            closed = jnp.where(compliance[: closed.shape[0]] > 0.0, mu, closed)
        return dt * dynamic_rows(system, at, a, lam, u), dt * rates, closed

    return StageUnknowns(*jax.vmap(rows)(stages, x.dv, x.impulse, x.mu))


@pytree
class _StageFactors:
    """Factors of the saddle point and of its position-level part.

    `jacobian` is J of the position-level rows. `soft` marks soft rows (nc,); None if no row is soft.
    """

    whole: Leaf
    positions: Leaf
    jacobian: Leaf
    soft: Leaf


def _velocities(x: StageUnknowns, args: Any) -> Any:
    """Return the changes of v and of G^T mu, the two parts of the position rates (3, nv) each."""
    _, _, drift, *_ = args
    return x.dv, x.mu @ drift.T


def _corrections(at: Linearization, rows: int) -> Corrections:
    """Return the corrections from the linearization at the start; `rows` counts position-level rows."""

    def factors() -> _StageFactors:
        jacobian = at.jacobian.leading(rows)
        soft = None if at.compliance is None else at.compliance > 0.0
        if rows == 0 or (soft is None and at.jacobian.shape[0] == rows):
            return _StageFactors(at.factors, at.factors, jacobian, soft)
        # In soft rows, mu equals the residual, because soft rows impose no closure.
        hard = jacobian if soft is None else jacobian.masked(~soft[:rows])
        positions = factorized(
            at.solver, at.mass, hard, None if soft is None else soft[:rows].astype(jacobian.dtype)
        )
        return _StageFactors(at.factors, positions.factors, hard, soft)

    return Corrections(_velocities, factors, _correction, _transposed_correction)


def _by_softness(soft: Any, in_soft: Any, in_hard: Any) -> Any:
    """Return the entries (3, rows), from `in_soft` for soft rows and from `in_hard` for hard rows."""
    return in_hard if soft is None else jnp.where(soft[: in_hard.shape[1]], in_soft, in_hard)


def _correction(rhs: StageUnknowns, factors: _StageFactors) -> StageUnknowns:
    weights, inverse = (jnp.asarray(x, rhs.dv.dtype) for x in (_A, _A_INVERSE))
    turned = _by_softness(factors.soft, weights @ rhs.impulse, rhs.impulse)
    dv, impulse = jax.vmap(factors.whole.solve)(weights @ rhs.dv, turned)
    mu = rhs.mu
    if mu.shape[1]:
        moved = jax.vmap(factors.jacobian.times)(dv)
        open_rows = _by_softness(factors.soft, mu, inverse @ mu - moved)
        mu = jax.vmap(lambda r: factors.positions.solve(None, r)[1])(open_rows)
    return StageUnknowns(inverse @ dv, inverse @ impulse, mu)


def _transposed_correction(rhs: StageUnknowns, factors: _StageFactors) -> StageUnknowns:
    weights, inverse = (jnp.asarray(x.T, rhs.dv.dtype) for x in (_A, _A_INVERSE))
    dv, mu = inverse @ rhs.dv, rhs.mu
    if mu.shape[1]:
        mu = jax.vmap(lambda r: factors.positions.solve(None, r)[1])(mu)
        dv = dv - jax.vmap(factors.jacobian.transpose_times)(_by_softness(factors.soft, 0.0, mu))
        mu = _by_softness(factors.soft, mu, inverse @ mu)
    dv, impulse = jax.vmap(factors.whole.solve)(dv, -(inverse @ rhs.impulse))
    return StageUnknowns(weights @ dv, _by_softness(factors.soft, -(weights @ impulse), -impulse), mu)


@pytree
class RadauIIA(PointMethod):
    """Radau IIA of order 5 with position and velocity constraints (Gear, Gupta, Leimkuhler).

    The method is suitable for stiff systems.

    Attributes:
        solver: a saddle-point solver for the first guess, the corrections of `SaddlePointNewton`, and
            projections around the method.
        newton: `DenseNewton(...)`, or `SaddlePointNewton(...)` for many bodies; the corrections update h a, h
            lam and mu of all stages.

    `DenseNewton` takes one LU factorization of size 3 (nv + nc + ng) per step. `SaddlePointNewton` takes one
    factorization of the solver, or two if rows are soft or at velocity level.
    """

    solver: Leaf = None
    newton: NewtonMethod = DenseNewton(iterations=6)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_newton(self.newton)

    def advance(
        self, system: AnySystem, point: Point, memory: Any, u: Any, dt: Any
    ) -> tuple[Point, Any, StepInfo]:
        """Return the point after dt."""
        state, dt = point.state, jnp.asarray(dt, point.q.dtype)
        at = point.linearization or linearize(system, state, self.solver)
        a, lam = dynamics_at_start(self, system, state, at, u)
        rows = jax.eval_shape(system.constraint, state.t, state.q).shape[0]
        jacobian = system.constraint_jacobian(state.t, state.q, state.v)[:rows]
        mass = system.mass_operator(state.q)
        drift = jax.vmap(mass.solve, out_axes=1)(jacobian) if rows else jacobian.T
        guess = StageUnknowns(
            *(jnp.broadcast_to(y, (3, *y.shape)) for y in (dt * a, dt * lam, jnp.zeros((rows,), a.dtype)))
        )
        args = (system, state, drift, u, dt)
        x, change = self.newton.root(_residual, guess, args, _corrections(at, rows))
        stages = _stages(x, system, state, drift, dt)
        new = State(state.t + dt, stages.q[-1], stages.v[-1])
        status = convergence(change, self.newton.tolerance, new.q, _CLOSING / dt)
        info = closed_step_info(system, new, a, lam, self.newton.iterations, status)
        return Point(new, stage=point.linearization), memory, info
