"""Accelerations, multipliers and forces at one state.

The index-1 form of the equations of motion is the saddle-point system

    [M  -J^T] [ a ]   [   f   ]
    [J   C  ] [lam] = [   r   ]           r = -gamma (+ stabilization), C: compliance, zero if rigid

(equation 9 of the lecture). `forward_dynamics` solves it. `kkt_inverse` returns the four blocks of its left
inverse (equation 10),

    a   = L11 f - L12 gamma,     lam = L21 f - L22 gamma,

which have a meaning: L11 is the inverse mass for feasible motions, L12 is a right inverse of J, and L21 is
the share of the applied forces that the constraints carry.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization, check_stabilization
from jaxdae.saddle_point import LeastSquares, SaddlePointSolver
from jaxdae.saddle_point.derivative import solve
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.evaluation import checked
from jaxdae.systems.linearization import Linearization, linearize, linearize_at
from jaxdae.systems.state_checks import report_nonfinite, report_state
from jaxdae.systems.system import AnySystem, State, check_fit, check_system, checked_state
from jaxdae.typing import Input, Leaf, Rows, Velocity


def forward_dynamics(
    system: AnySystem,
    state: State,
    u: Input = None,
    *,
    solver: SaddlePointSolver | None = None,
    stabilization: Stabilization | None = None,
    compliance: Any = None,
    linearization: Linearization | None = None,
    tau: Velocity | None = None,
) -> tuple[Velocity, Rows]:
    """Return the accelerations and the multipliers at a state.

    Contacts, joint limits and exact dry friction have impulses over a step and no effect here; see
    `jaxdae.contact.Touching`. To apply their mean forces of a step, pass `tau = touch.rows.T @
    info.row_forces`, with the rows `touch = system.evaluate(t, q).touch`.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        u: input (nu,) for `system.force`; None if the system has no inputs.
        solver: a saddle-point solver; by default `LeastSquares(1e-5)` for a mechanism whose description or
            start pose has redundant rows, else `SchurComplement()`.
        stabilization: the term added to the acceleration row; `NoStabilization()` by default. Any explicit
            value disables the check of the state, because feedback is for states that violate the
            constraints.
        compliance: C in J a + C lam = r, scalar or (nc,), in (row unit / s^2) per unit of lam; None for rigid
            rows.
        linearization: the result of `linearize` at this state, if already known; it replaces `solver` and
            `compliance`.
        tau: generalized force (nv,) in addition to `system.force`; its power is tau^T v.

    Returns:
        The accelerations a (nv,) in the units of v per second, and the multipliers lam (nc,). The constraint
        force is +J^T lam, so a row in meters has a multiplier in newtons.

    Raises:
        TypeError: an argument is not a system, state, solver or stabilization; or a system method returns
            another dtype than the state.
        ValueError: shapes that do not fit; invalid numbers, such as a negative compliance.

    Warns:
        StateWarning: the state violates the constraints, or the result is not finite; the message names the
            rows and the cause. Checked for concrete arguments only, not under `jit`, `vmap` and `grad`; use
            `state_status` there.

    Differentiable with respect to every argument, forward and reverse, at every order. The derivative reuses
    the single factorization.
    """
    check_system(system)
    state = checked_state(state)
    check_solver(solver)
    check_stabilization(stabilization)
    if isinstance(compliance, int | float) and compliance < 0:
        raise ValueError(f"forward_dynamics: compliance must be non-negative, got {compliance}")
    used = solver or system.default_solver
    found = _forward_dynamics(
        system, state, u, used, stabilization or NoStabilization(), compliance, linearization, tau
    )
    if stabilization is None:
        report_state("forward_dynamics", system, state, found)
    report_nonfinite(
        "forward_dynamics", system, state, u, linearization.solver if linearization else used, found
    )
    return found


# Compiled as a unit, so that the stages of a Runge-Kutta method share one trace and one derivative.
@jax.jit
def _forward_dynamics(
    system: AnySystem,
    state: State,
    u: Input,
    solver: SaddlePointSolver,
    stabilization: Stabilization,
    compliance: Any,
    linearization: Linearization | None,
    tau: Velocity | None,
) -> tuple[Velocity, Rows]:
    check_fit(system, state)
    at = system.evaluate(state.t, state.q, state.v)
    here = linearization or linearize_at(at, solver, compliance)
    with jax.named_scope("constraint_terms"):
        target = stabilization.target(at, here)
    with jax.named_scope("force"):
        f = checked("force(t, q, v, u)", at.force(u), state.v.shape, state.q.dtype)
        f = f if tau is None else f + checked("tau", tau, state.v.shape, state.q.dtype)
    with jax.named_scope("saddle_point"):
        return solve(here.factors, here.mass, here.jacobian, here.compliance, f, target)


def inverse_dynamics(
    system: AnySystem, state: State, a: Velocity, lam: Rows | None = None, u: Input = None
) -> Velocity:
    """Return the generalized force that must be added for the system to accelerate by `a`.

    This is the residual M a - f(t, q, v, u) - J^T lam (nv,). It is zero for the (a, lam) of
    `forward_dynamics`. With lam = None it is the total force M a - f that constraints and motors must supply
    together.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        a: accelerations (nv,).
        lam: multipliers (nc,), or None for zero.
        u: input (nu,).

    Warns:
        StateWarning: the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `state_status` there.
    """
    state = checked_state(state)
    check_fit(system, state)
    at = system.evaluate(state.t, state.q, state.v)
    required = at.mass.times(a) - at.force(u)
    if lam is not None:
        required = required - at.jacobian.transpose_times(lam)
    report_state("inverse_dynamics", system, state, required)
    return required


@pytree
class KKTInverse:
    """The blocks of the left inverse of the saddle-point matrix.

    a = L11 f - L12 gamma, lam = L21 f - L22 gamma, with L11 (nv, nv), L12 (nv, nc), L21 (nc, nv), L22 (nc,
    nc). With the sign +J^T lam: L21 = -L12^T, L11 is symmetric, J L11 = 0, J L12 = I, and L22 is the inverse
    Delassus matrix.
    """

    L11: Leaf
    L12: Leaf
    L21: Leaf
    L22: Leaf


def kkt_inverse(system: AnySystem, state: State, *, solver: SaddlePointSolver | None = None) -> KKTInverse:
    """Return the four blocks of the left inverse of the saddle-point matrix at a state.

    If rows are dependent, the function returns the blocks of the generalized inverse: a is exact for every
    consistent gamma, and lam has minimum norm. L11 is still symmetric with J L11 = 0, but J L12 is the
    projector onto the range of J, and L22 is the pseudoinverse of the Delassus matrix.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        solver: a saddle-point solver; `LeastSquares()` by default, which allows dependent rows.

    Warns:
        StateWarning: the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `state_status` there.

    The cost is one factorization and nv + nc right-hand sides. Differentiable.

    References:
        S. Savin, "Solving Mechanical Equations with Constraints", Contact-aware Control, lecture 5, equation
        (10).
    """
    state = checked_state(state)
    check_fit(system, state)
    check_solver(solver)
    at = linearize(system, state, solver or LeastSquares())
    rows, size = at.jacobian.shape

    def column(f: Velocity, r: Rows) -> tuple[Velocity, Rows]:
        return solve(at.factors, at.mass, at.jacobian, at.compliance, f, r)

    eye_f, eye_r = jnp.eye(size, dtype=state.q.dtype), jnp.eye(rows, dtype=state.q.dtype)
    from_force = jax.vmap(lambda f: column(f, jnp.zeros((rows,), f.dtype)), out_axes=1)(eye_f)
    from_bias = jax.vmap(lambda r: column(jnp.zeros((size,), r.dtype), r), out_axes=1)(eye_r)
    report_state("kkt_inverse", system, state, from_force)
    return KKTInverse(L11=from_force[0], L12=from_bias[0], L21=from_force[1], L22=from_bias[1])
