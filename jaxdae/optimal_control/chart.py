"""Minimal coordinates next to a state, exact to second order: what Newton's method on a manifold needs.

Next to a state x on the manifold of c = [g; g'; w] lie x (+) d, d = (xi, dv), with the Jacobian C = dc/dd at d = 0 (see `control.minimal`).
With the singular value decomposition of C, of rank r,

    C = U S V^T,      N = the columns of V beyond r,      C^+ = V_r S_r^-1 U_r^T,      N^T N = 1,  N^T C^+ = 0,

z = N^T d are coordinates of the manifold. Their inverse, a state for every z, is

    d(z) = N z - C^+ c(N z) + O(|z|^3),

because a step of Newton's method with the constant C^+ leaves a residual of third order where the first, of second order, was removed; and
N^T d(z) = z exactly. So second derivatives at z = 0 of anything that is a function on the manifold are found with constant N and C^+: no
basis is differentiated. Without the second term they would miss (dl/dx) C^+ c'' z z, the curvature of the manifold.

A move of some length goes back to the manifold by more such steps, d <- d - C^+ c(d).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.control.minimal import state_constraints
from jaxdae.saddle_point.singular_values import svd
from jaxdae.system import AnySystem, State
from jaxdae.typing import Leaf

CORRECTIONS = 5
"""Steps back to the manifold after a move. Each multiplies the residual by some |z|: moves of 0.1 rad come back to 1e-7, and the rest goes
with the moves that follow, which begin by the residual that is left."""


@pytree
class Chart:
    """Minimal coordinates next to a state.

    Attributes:
        basis: N (2 nv, n), orthonormal.
        correction: C^+ (2 nv, 2 ng + nw).
    """

    basis: Leaf
    correction: Leaf


def chart_at(system: AnySystem, state: State, dimension: int) -> Chart:
    """Returns the chart of n = dimension coordinates at a state; not meant to be differentiated."""
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
    """Returns d (2 nv,) with origin (+) d = state."""
    return jnp.concatenate([system.difference(origin.q, state.q), state.v - origin.v])


def coordinates(system: AnySystem, chart: Chart, origin: State, state: State) -> Array:
    """Returns z (n,) of a state in the chart at the origin."""
    return chart.basis.T @ away(system, origin, state)


def displaced(system: AnySystem, origin: State, d: Array) -> State:
    """Returns origin (+) d."""
    xi, dv = jnp.split(d, 2)
    return State(origin.t, system.retract(origin.q, xi), origin.v + dv)


def placed(system: AnySystem, chart: Chart, origin: State, z: Array, curved: bool) -> State:
    """Returns the state at z: exact to second order where `curved`, else to first."""
    d = chart.basis @ z
    if curved and chart.correction.shape[1]:
        d = d - chart.correction @ state_constraints(system, origin)(d)
    return displaced(system, origin, d)


def moved(system: AnySystem, chart: Chart, origin: State, z: Array) -> State:
    """Returns the state on the manifold after a move z from the origin."""
    d = chart.basis @ z
    if chart.correction.shape[1]:
        rows = state_constraints(system, origin)

        def correct(_: Any, d: Array) -> Array:
            return d - chart.correction @ rows(d)

        d = jax.lax.fori_loop(0, CORRECTIONS, correct, d)
    return displaced(system, origin, d)
