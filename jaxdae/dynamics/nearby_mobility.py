"""Where a configuration is singular: which rank J has beside it, along the motions that the rows allow.

Dependent rows are either so wherever the loops are closed (two hinges on one axis, Bricard's linkage), or in
this configuration alone: a parallelogram that lies flat can go on as a parallelogram or crossed, and J, which
allows both, has lost a rank. The rank beside it tells the two apart.

Let N span the null space of J, W that of J^T, and q(s) = q (+) (s N z + s^2 eta) a motion. Then

    g(q(s)) = s^2 (1/2 g_2(z) + J eta) + O(s^3),    g_2(z) = d^2/ds^2 g(q (+) s N z) at s = 0,

so that loops stay closed to second order if and only if W^T g_2(z) = 0: quadratic equations, whose directions
z of length one are the tangents of the branches. Where there is none, as for a straight truss of two bars,
the loops close at q alone. From a step s along a tangent Newton's method closes them. It is O(s^2) beside a
branch at first, where rows that are dependent all along it have a singular value of that order, which has to
be left out, while one that was lost at q has come back to order s: s^(3/2) stands between the two. Once the
loops are closed the first are round-off. s = eps^(1/4) is 1e-4 in double precision; in single precision the
orders lie too close together.

References:
    A. Mueller, "Higher derivatives of the kinematic mapping and some applications", Mech. Mach. Theory 76
    (2014): kinematic tangent cones.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.systems.system import AnySystem, State

_STARTS = 12  # tangents are looked for from so many directions
_CORRECTIONS = 30  # by so many corrections of Gauss and Newton
_CLOSINGS = 6  # of Newton's method, which converges quadratically from a tangent
_REGAINED = 1.0 / 300.0  # singular values beside q over s: lost ones have 0.03 and more, dependent rows 1e-9


def mobility_nearby(system: AnySystem, state: State, jacobian: np.ndarray, rank: int) -> int:
    """Return the smallest nv - rank of J on the branches through a configuration.

    It is 0 if the configuration is isolated, and nv - rank at q if no branch is found.

    Args:
        system: a system whose rows are all of positions.
        state: where it is; concrete.
        jacobian: J there (ng, nv), double precision.
        rank: its rank, less than ng.
    """
    step, size = float(np.finfo(jacobian.dtype).eps) ** 0.25, jacobian.shape[1]
    left, _, right = np.linalg.svd(jacobian)
    free = right[rank:]
    tangents = _tangents(_second_order(system, state, free, left[:, rank:]))
    if not len(tangents):
        return 0
    terms = jax.jit(
        lambda q: (system.constraint(state.t, q), system.constraint_jacobian(state.t, q, state.v))
    )
    ranks = [rank]
    for tangent in tangents:
        q = system.retract(state.q, jnp.asarray(step * tangent @ free))
        for _ in range(_CLOSINGS):
            residual, beside = map(np.asarray, terms(q))
            q = system.retract(q, jnp.asarray(-np.linalg.lstsq(beside, residual, rcond=step**1.5)[0]))
        residual, beside = map(np.asarray, terms(q))
        values = np.linalg.svd(beside, compute_uv=False)
        if np.max(np.abs(residual)) <= step**3:
            ranks.append(int(np.sum(values > _REGAINED * step * values[0])))
    return size - max(ranks)


def _second_order(system: AnySystem, state: State, free: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return the matrices (k, m, m) of the forms W^T g_2(z); free directions (m, nv), lost rows (ng, k)."""

    def opening(z: Any) -> Any:
        return lost.T @ system.constraint(state.t, system.retract(state.q, z @ free))

    return np.asarray(jax.jit(jax.jacfwd(jax.jacfwd(opening)))(jnp.zeros(len(free), state.q.dtype)))


def _tangents(forms: np.ndarray) -> list[np.ndarray]:
    """Returns directions z (m,) of length one at which all forms vanish, those that a few starts lead to."""
    scale = max(float(np.max(np.abs(forms), initial=0.0)), 1.0)
    found: list[np.ndarray] = []
    for start in np.random.default_rng(0).normal(size=(_STARTS, forms.shape[1])):
        z = start / np.linalg.norm(start)
        for _ in range(_CORRECTIONS):
            slopes = forms @ z
            z = z - np.linalg.lstsq(np.vstack([2.0 * slopes, z]), np.append(slopes @ z, 0.0), rcond=1e-9)[0]
            z = z / np.linalg.norm(z)
        if np.max(np.abs(forms @ z @ z)) <= 1e-9 * scale and all(
            abs(z @ other) < 1.0 - 1e-6 for other in found
        ):
            found.append(z)
    return found
