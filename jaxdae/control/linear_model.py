"""Linear models of constrained systems in minimal coordinates, by autodiff on the manifold.

*Tangent space.* The neighbors of a state (q, v) are (q (+) xi, v + dv). Neighbors on the manifold satisfy all
constraints on states,

    c(xi, dv) = [g(t, q (+) xi); g'(t, q (+) xi, v + dv); w(t, q (+) xi, v + dv)] = 0.

Let C = dc/d(xi, dv), (2 ng + nw, 2 nv), be the derivative and N a basis of the null space of C. The neighbors
are d = (xi, dv) = N z + O(|z|^2), where z are the minimal coordinates. Their number is the number of
independent states: twice the mobility for holonomic rows. At rest C = diag(J, J) and N = diag(N_J, N_J). Any
left inverse of N maps d to z. This module uses N^+ = (N^T N)^-1 N^T, so that z = N^+ d + O(|z|^2) for every d
on the manifold.

*At an equilibrium* (v = 0, a = 0) neighbors move by d' = Phi(d, u) = (dv, a(t, q (+) xi, dv, u)), because a
retraction equals the identity to first order. Hence

    z' = A z + B du,      A = N^+ DPhi N,      B = N^+ Phi_u,

where forward mode through the constrained dynamics, a = L11 f - L12 gamma, computes DPhi and Phi_u. It
differentiates a along the manifold only; values of a off the manifold do not matter.

*Along a trajectory* the same linearization applies to the step of an integrator, d_{k+1} = F_k(d_k, u_k),
with the bases of both ends:

    z_{k+1} = A_k z_k + B_k du_k,      A_k = N_{k+1}^+ DF_k N_k,      B_k = N_{k+1}^+ dF_k/du.

*Compliant rows* (`Soft`) and inactive rows (`Masked`) do not constrain the state and are excluded from c. The
effect of compliant rows on the motion is part of a, with the feedback of the stabilization that the
simulation uses. Without this feedback, a compliant row would have a mass but no spring.

*Derivatives of the basis.* N is not unique: an SVD may rotate it arbitrarily, and has no derivative at equal
singular values. Instead N = P N0. Here P is the projector onto the null space, which is differentiable at
constant rank, and N0 is the basis at the point, held constant. P N0 is smooth, equals N0 at the point, and is
also a basis nearby. It is orthonormal at the point only, which requires N^+ instead of N^T. Quantities that
do not depend on the basis, such as the gain K N^+ (nu, 2 nv) in all coordinates, have exact derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jaxtyping import Float

from jaxdae.base.dataclass import pytree
from jaxdae.control.gravity import at_rest
from jaxdae.control.inputs import count_inputs
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import NoStabilization, Stabilization, check_stabilization
from jaxdae.linalg.singular_values import svd
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, null_projector
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.state_checks import report_coordinates
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Input, Leaf

RANK_TOLERANCE = 1e-5
"""Rank tolerance of `SingularValues`, which the projector uses."""


@pytree
class LinearModel:
    """z' = a z + b du in minimal coordinates z = inverse d, d = (xi, dv) = basis z.

    Attributes:
        a: A (n, n), in 1/s.
        b: B (n, nu).
        basis: N (2 nv, n), whose orthonormal columns span the tangent space of the constraints.
        inverse: N^+ (n, 2 nv).
    """

    a: Leaf
    b: Leaf
    basis: Leaf
    inverse: Leaf


def linearize_equilibrium(
    system: AnySystem,
    state: State,
    u: Input,
    *,
    dimension: int | None = None,
    solver: SaddlePointSolver | None = None,
    stabilization: Stabilization | None = None,
) -> LinearModel:
    """Return the linear model of a constrained system about an equilibrium.

    Args:
        system: the mechanical system.
        state: time (s) and coordinates of the equilibrium; velocities are taken as zero.
        u: input (nu,) that holds the equilibrium, see `static_inputs`.
        dimension: dimension of the model, twice the mobility. By default it is counted from the rank for a
            known state. Under transformations the default is 2 nv - 2 ng - nw, which is correct without
            dependent rows.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.
        stabilization: the stabilization of the integrator, which defines stiffness and damping of compliant
            rows (`Soft`). Hard rows on the manifold are not affected. `NoStabilization()` by default.

    Raises:
        ValueError: a dimension that is not between 1 and 2 nv, or a missing dimension under transformations
            if rows may be compliant or inactive.

    Warns:
        StateWarning: if the coordinates violate the constraints.

    Eigenvalues of A, and gains computed from A, do not depend on the basis and are differentiable at constant
    rank. The entries of A are not unique.
    """
    state = at_rest(system, state)
    check_solver(solver)
    check_stabilization(stabilization)
    dimension = count_dimension(system, state, dimension)
    roles = (solver or NullSpace(), stabilization or NoStabilization())
    model = _linearize_equilibrium(system, state, jnp.asarray(u, state.q.dtype), dimension, roles)
    report_coordinates("linearize_equilibrium", system, state.q, model)
    return model


@partial(jax.jit, static_argnums=3)
def _linearize_equilibrium(
    system: AnySystem, state: State, u: Input, dimension: int, roles: tuple[SaddlePointSolver, Stabilization]
) -> LinearModel:
    solver, stabilization = roles
    basis, inverse = tangent_basis(system, state, dimension)

    def rate(z: Array, u: Array) -> Array:
        xi, dv = jnp.split(basis @ z, 2)
        a, _ = forward_dynamics(
            system,
            State(state.t, system.retract(state.q, xi), dv),
            u,
            solver=solver,
            stabilization=stabilization,
        )
        return inverse @ jnp.concatenate([dv, a])

    a, b = jax.jacfwd(rate, argnums=(0, 1))(jnp.zeros((dimension,), u.dtype), u)
    return LinearModel(a, b, basis, inverse)


def state_constraints(system: AnySystem, state: State) -> Callable[[Any], Any]:
    """Return d (2 nv,) -> [g; g'; w], all constraints on states near the given state.

    Compliant and inactive rows are zero.
    """
    t, q, v = state.t, state.q, state.v
    system = hard_rows(system.evaluate(t, q, v)).system

    def rows(d: Array) -> Array:
        xi, dv = jnp.split(d, 2)
        at = system.evaluate(t, system.retract(q, xi), v + dv)
        return jnp.concatenate([at.position, at.velocity])

    return rows


@jax.jit
def _state_jacobian(system: AnySystem, state: State) -> Array:
    return jax.jacfwd(state_constraints(system, state))(jnp.zeros((2 * state.v.shape[0],), state.q.dtype))


def count_dimension(system: AnySystem, state: State, dimension: int | None) -> int:
    """Return the number of independent states near the given state: 2 nv minus the rank of C.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        dimension: the number, if the caller knows it.

    Raises:
        ValueError: rows that are not finite, a dimension that is not between 1 and 2 nv (0: no motion is
            possible), or a missing dimension under transformations if rows may be compliant or inactive.
    """
    size = 2 * state.v.shape[0]
    count = dimension
    if count is None:
        jacobian = _state_jacobian(system, state)
        if isinstance(jacobian, Tracer):
            if system.compliance(state.t, state.q) is not None:
                raise ValueError(
                    "dimension must be given under transformations if rows may be soft (Soft) or inactive "
                    "(Masked)"
                )
            count = size - jacobian.shape[0]
        elif not np.all(np.isfinite(np.asarray(jacobian))):
            raise ValueError(
                "the dimension is undefined because the rows are not finite; check the values of the state "
                "and the system"
            )
        else:
            values = (
                np.linalg.svd(np.asarray(jacobian), compute_uv=False) if jacobian.shape[0] else np.zeros(0)
            )
            count = size - int(np.sum(values > RANK_TOLERANCE * values[:1]))
    if not 1 <= count <= size:
        raise ValueError(
            f"dimension must be between 1 and 2 nv = {size}, got {count}; it is twice the mobility, and "
            "must be given under transformations if rows are dependent"
        )
    return count


def tangent_basis(
    system: AnySystem, state: State, dimension: int
) -> tuple[Float[Array, "nd n"], Float[Array, "n nd"]]:
    """Return N (2 nv, n) and N^+ (n, 2 nv) at a state, with derivatives at constant rank.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities on the manifold.
        dimension: n.
    """
    jacobian = _state_jacobian(system, state)
    if jacobian.shape[0] == 0:
        eye = jnp.eye(jacobian.shape[1], dtype=jacobian.dtype)
        return eye[:, :dimension], eye[:dimension]
    still = jax.lax.stop_gradient(jacobian)
    last = svd(still, full=True)[2][jacobian.shape[1] - dimension :]
    basis = null_projector(jacobian) @ last.T
    return basis, jnp.linalg.solve(basis.T @ basis, basis.T)


def check_input(system: AnySystem, u: Any, inputs: int | None) -> None:
    """Raise ValueError if the shape of the input differs from the shape that the system expects."""
    size = count_inputs(system, inputs) if inputs is not None or system.n_inputs is not None else None
    if jnp.ndim(u) != 1 or size not in (None, jnp.shape(u)[0]):
        raise ValueError(f"u must have shape ({'nu' if size is None else size},), got {jnp.shape(u)}")
