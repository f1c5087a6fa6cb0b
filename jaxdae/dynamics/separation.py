"""Starts without penetration: the nearest position with closed loops and non-negative gaps.

From a position q0 with closed loops, the displacement x minimizes

    |x|^2 / 2      subject to      g(t, q0 (+) x) = 0,      gap(t, q0 (+) x) >= 0

over the free coordinates, in units of the characteristic sizes. Each iteration linearizes the rows and the
gaps at q, with Jacobians J and G, and solves this problem for the step dx from x = q (-) q0:

    dx = -J^+ g - P x + P G^T p,                             P = I - J^+ J
    0 <= p  perp  gap - G (J^+ g + P x) + G P G^T p >= 0

The multipliers p are the impulses of a contact problem with one-sided rows and the Delassus matrix G P G^T
(`jaxdae.contact_problem`). The iteration is a Gauss-Newton method: it neglects curvatures times p. The error
decreases per iteration by about the ratio of penetration and radius of curvature.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.compile.sharding import varying_with
from jaxdae.contact_problem import ContactNewton, ContactProblem, solve
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.systems.contacts import Touch, touch_of

_ITERATIONS = 50
_NEWTON = 20

_BLOCKED = 1e-6
"""A gap that free coordinates change by a smaller fraction than all coordinates counts as blocked."""


def gap_sizes(system: Any, touch: Touch) -> Any:
    """Return the characteristic sizes of the gaps (m + k,): the length of the system, and 1 rad."""
    in_rad = np.asarray([*(False,) * touch.sizes[0], *touch.angular], bool)
    return jnp.where(in_rad, 1.0, jnp.asarray(system.characteristic_length, touch.gap.dtype))


def gap_rows(touch: Touch) -> Any:
    """Return the derivatives of the gaps by the velocities (m + k, nv)."""
    return jax.vmap(touch.normals, in_axes=1, out_axes=1)(touch.rows)


def separated(
    system: Any, contacts: Any, t: Any, closed: Any, columns: Any, sizes: Any, limit: Any
) -> tuple[Any, Any]:
    """Return the nearest position without penetration, and which gaps push (m + k,).

    Returns the position unchanged if no gap is negative. The gaps of the result tell whether the bodies could
    be separated.

    Args:
        system: the system.
        contacts: contacts of a hand-written system; None for those of the system.
        t: the time.
        closed: coordinates q0 (nq,) with closed loops.
        columns: the characteristic sizes of the velocities (nv,), zero for fixed coordinates.
        sizes: the characteristic sizes of the rows (ng,).
        limit: the largest relative residual that counts as closed.
    """
    rows, free = sizes.shape[0], (columns > 0.0).astype(columns.dtype)
    units = columns + (1.0 - free)

    def touch_at(q: Any) -> Touch:
        return touch_of(contacts, system.evaluate(t, q), "initialize")

    def body(carry: Any) -> Any:
        q, _, count, _ = carry
        at, x = system.evaluate(t, q, jnp.zeros_like(columns)), system.difference(closed, q) / units
        touch = touch_of(contacts, at, "initialize")
        lengths = gap_sizes(system, touch)
        across = at.dense_jacobian[:rows] * columns / sizes[:, None]
        inverse = pseudoinverse(across, rank_tolerance(across, limit))
        toward = gap_rows(touch) * units / lengths[:, None]
        along = toward * free
        along = along - (along @ inverse) @ across
        blocked = jnp.sum(along**2, axis=1) <= _BLOCKED**2 * jnp.sum(toward**2, axis=1)
        along: Any = jnp.where(blocked[:, None], 0.0, along)
        back = -free * x - inverse @ (at.position / sizes - across @ x)
        wanted = touch.gap / lengths + toward @ back
        problem = ContactProblem(along @ along.T, wanted, jnp.zeros((0,), q.dtype)).masked(~blocked)
        pushes, _ = solve(ContactNewton(_NEWTON), problem)
        moves = (count > 0) | jnp.any(touch.gap < 0.0)
        step: Any = jnp.where(moves, back + along.T @ pushes, 0.0)
        return (
            system.retract(q, columns * step),
            moves & (pushes > 0.0),
            count + 1,
            jnp.max(jnp.abs(step)) <= limit,
        )

    none: Any = jnp.zeros(jax.eval_shape(touch_at, closed).gap.shape, bool)
    if not none.shape[0]:  # Dry friction alone.
        return closed, none
    start = closed, none, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    q, pushing, _, _ = jax.lax.while_loop(
        lambda c: (c[2] < _ITERATIONS) & ~c[3], body, varying_with(start, system, contacts, t, columns)
    )
    return q, pushing
