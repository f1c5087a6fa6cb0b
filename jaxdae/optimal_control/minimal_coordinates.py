"""Minimal coordinates near a state, exact to second order, for Newton's method on a manifold.

The states near a state x on the manifold of c = [g; g'; w] are x (+) d, d = (xi, dv), with the Jacobian
C = dc/dd at d = 0 (see `control.minimal`). With the singular value decomposition of C, of rank r,

    C = U S V^T,   N = the columns of V beyond r,   C^+ = V_r S_r^-1 U_r^T,   N^T N = 1,   N^T C^+ = 0,

z = N^T d are coordinates of the manifold. Their inverse, a state for every z, is

    d(z) = N z - C^+ c(N z) + O(|z|^3).

A Newton step with the constant C^+ removes the residual of second order and leaves a residual of third order,
and N^T d(z) = z holds exactly. Second derivatives at z = 0 of any function on the manifold therefore use
constant N and C^+: the basis is not differentiated. Without the second term they would miss the curvature of
the manifold, (dl/dx) C^+ c'' z z.

A move of finite length returns to the manifold by more such steps, d <- d - C^+ c(d).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.control.linear_model import state_constraints
from jaxdae.linalg.singular_values import svd
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf

CORRECTIONS = 5
"""Newton steps back to the manifold after a move. Each step multiplies the residual by about |z|: moves of
0.1 rad return to 1e-7. Subsequent moves remove the remaining residual, because they start with it."""


@pytree
class Chart:
    """Minimal coordinates near a state.

    Attributes:
        basis: N (2 nv, n), orthonormal.
        correction: C^+ (2 nv, 2 ng + nw).
    """

    basis: Leaf
    correction: Leaf


def chart_at(system: AnySystem, state: State, dimension: int) -> Chart:
    """Return the chart of n = dimension coordinates at a state; do not differentiate it."""
    size = 2 * state.v.shape[0]
    zero = jnp.zeros((size,), state.q.dtype)
    jacobian = jax.jacfwd(state_constraints(system, state))(zero)
    if jacobian.shape[0] == 0:
        return Chart(jnp.eye(size, dtype=zero.dtype)[:, :dimension], jnp.zeros((size, 0), zero.dtype))
    left, values, right = svd(jacobian, full=True)
    rank = size - dimension
    correction = (right[:rank].T / values[:rank]) @ left[:, :rank].T
    return Chart(right[rank:].T, correction)


def away(system: AnySystem, origin: State, state: State) -> Array:
    """Return d (2 nv,) with origin (+) d = state."""
    return jnp.concatenate([system.difference(origin.q, state.q), state.v - origin.v])


def coordinates(system: AnySystem, chart: Chart, origin: State, state: State) -> Array:
    """Return z (n,) of a state in the chart at the origin."""
    return chart.basis.T @ away(system, origin, state)


def displaced(system: AnySystem, origin: State, d: Array) -> State:
    """Return origin (+) d."""
    xi, dv = jnp.split(d, 2)
    return State(origin.t, system.retract(origin.q, xi), origin.v + dv)


def placed(system: AnySystem, chart: Chart, origin: State, z: Array, curved: bool) -> State:
    """Return the state at z: exact to second order if `curved`, else to first order."""
    d = chart.basis @ z
    if curved and chart.correction.shape[1]:
        d = d - chart.correction @ state_constraints(system, origin)(d)
    return displaced(system, origin, d)


def moved(system: AnySystem, chart: Chart, origin: State, z: Array) -> State:
    """Return the state on the manifold after a move z from the origin."""
    d = chart.basis @ z
    if chart.correction.shape[1]:
        rows = state_constraints(system, origin)

        def correct(_: Any, d: Array) -> Array:
            return d - chart.correction @ rows(d)

        d = jax.lax.fori_loop(0, CORRECTIONS, correct, d)
    return displaced(system, origin, d)
