"""Accelerations, multipliers and forces at one state.

The index-1 form of the equations of motion is the saddle-point system

    [M  -J^T] [ a ]   [   f   ]
    [J   C  ] [lam] = [   r   ]           r = -gamma (+ stabilization), C: compliance, zero for rigid constraints

(the lecture's equation 9). `forward_dynamics` solves it; `kkt_inverse` returns the four blocks of its left inverse (equation 10),

    a   = L11 f - L12 gamma,     lam = L21 f - L22 gamma,

which show the structure: L11 is the inverse mass seen by feasible motions, L12 a right inverse of J, L21 what part of the
applied forces the constraints carry.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.linearization import Linearization, linearize, located
from jaxdae.saddle_point import LeastSquares, SaddlePointSolver
from jaxdae.saddle_point.derivative import solve
from jaxdae.saddle_point.interface import check_solver
from jaxdae.stabilization import NoStabilization, Stabilization, check_stabilization
from jaxdae.state_checks import report_nonfinite, report_state
from jaxdae.system import AnySystem, State, applied_force, check_fit, check_system, checked, checked_state
from jaxdae.terms import TermsOnDemand
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
) -> tuple[Velocity, Rows]:
    """Returns the accelerations and the multipliers at a state.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        u: input (nu,), passed on to `system.force`; None where the system has none.
        solver: a saddle-point solver; by default `LeastSquares(1e-5)` if the rows of a mechanism are redundant by its description, else
            `SchurComplement()`.
        stabilization: what is added to the acceleration row; `NoStabilization()` by default. With any
            explicit value the state is not checked, because feedback is for states that violate the
            constraints.
        compliance: diagonal of the zero block, scalar or (nc,), in (row unit / s^2) per unit of lam; None is rigid.
        linearization: what `linearize` returned at this state, where it is known already; takes the place of `solver` and `compliance`.

    Returns:
        The accelerations a (nv,) in the units of v per second, and the multipliers lam (nc,). The constraint force is +J^T lam, so the
        row of a constraint in meters has its multiplier in newtons.

    Raises:
        TypeError: no system, state, solver or stabilization; what methods of the system return has another dtype than the state.
        ValueError: shapes that do not fit; numbers that have no meaning, such as a negative compliance.

    Warns:
        StateWarning: the state violates the constraints, or the result is not finite; the message names the
            rows and the cause. Checked for concrete arguments only, not under `jit`, `vmap` and `grad`; use
            `state_status` there.

    Differentiable with respect to every argument, forward and reverse, at every order; one factorization, reused by the derivative.
    """
    check_system(system)
    state = checked_state(state)
    check_solver(solver)
    check_stabilization(stabilization)
    if isinstance(compliance, int | float) and compliance < 0:
        raise ValueError(f"forward_dynamics: compliance must not be negative, got {compliance}")
    used = solver or system.default_solver
    found = _forward_dynamics(system, state, u, used, stabilization or NoStabilization(), compliance, linearization)
    if stabilization is None:
        report_state("forward_dynamics", system, state, found)
    report_nonfinite("forward_dynamics", system, state, u, linearization.solver if linearization else used, found)
    return found


# Compiled as a unit: the stages of a Runge-Kutta method then share one trace and one derivative.
@jax.jit
def _forward_dynamics(
    system: AnySystem,
    state: State,
    u: Input,
    solver: SaddlePointSolver,
    stabilization: Stabilization,
    compliance: Any,
    linearization: Linearization | None,
) -> tuple[Velocity, Rows]:
    check_fit(system, state)
    if linearization:
        system, at = located(system, state.q, linearization.solver), linearization
    else:
        system = located(system, state.q, solver)
        at = linearize(system, state, solver, compliance)
    with jax.named_scope("constraint_terms"):
        target = stabilization.target(TermsOnDemand(system, state, at.jacobian), at.mass)
    with jax.named_scope("force"):
        force = applied_force(system, state.t, state.q, state.v, u)
        f = checked("force(t, q, v, u)", force, state.v.shape, state.q.dtype)
    with jax.named_scope("saddle_point"):
        return solve(at.factors, at.mass, at.jacobian, at.compliance, f, target)


def inverse_dynamics(system: AnySystem, state: State, a: Velocity, lam: Rows | None = None, u: Input = None) -> Velocity:
    """Returns the generalized force that has to be added for the system to accelerate by `a`.

    The residual M a - f(t, q, v, u) - J^T lam (nv,). It is zero for the (a, lam) of `forward_dynamics`; with lam = None it is
    the total force M a - f that constraints and motors together must supply.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        a: accelerations (nv,).
        lam: multipliers (nc,), or None for none.
        u: input (nu,).

    Warns:
        StateWarning: the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `state_status` there.
    """
    state = checked_state(state)
    check_fit(system, state)
    required = system.mass_operator(state.q).times(a) - applied_force(system, state.t, state.q, state.v, u)
    if lam is not None:
        required = required - system.jacobian_operator(state.t, state.q, state.v).transpose_times(lam)
    report_state("inverse_dynamics", system, state, required)
    return required


@pytree
class KKTInverse:
    """The blocks of the left inverse of the saddle-point matrix: a = L11 f - L12 gamma, lam = L21 f - L22 gamma.

    L11 (nv, nv), L12 (nv, nc), L21 (nc, nv), L22 (nc, nc). With the sign +J^T lam: L21 = -L12^T, L11 symmetric, J L11 = 0,
    J L12 = I, and L22 the inverse Delassus matrix.
    """

    L11: Leaf
    L12: Leaf
    L21: Leaf
    L22: Leaf


def kkt_inverse(system: AnySystem, state: State, *, solver: SaddlePointSolver | None = None) -> KKTInverse:
    """Returns the four blocks of the lecture's left inverse at a state.

    With dependent rows they are the blocks of the generalized inverse: a is exact for every consistent gamma, lam the shortest of all
    multipliers. L11 is symmetric and J L11 = 0 still, but J L12 is the projector onto the range of J, and L22 the pseudoinverse of the
    Delassus matrix there.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        solver: a saddle-point solver; `LeastSquares()` by default, which allows dependent rows.

    Warns:
        StateWarning: the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `state_status` there.

    One factorization and nv + nc right-hand sides; differentiable.

    References:
        S. Savin, "Solving Mechanical Equations with Constraints", Contact-aware Control, lecture 5, equation (10).
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
