"""Stability limit of feedback that a sampled law holds over its period.

`Sampled(integrator, law)` evaluates the law at the start of a period T = k dt and holds the input. The
stability limit of this loop is therefore that of a zero-order hold for every integrator. Consider one mode x
with the forces per mass of the law, -p x - c x', held over one period, and freeze the other forces. All
integrators are exact for a constant acceleration, except for the share s of T^2 a in the displacement. With C
= c T and P = p T^2, a period multiplies (x, T x') by

    S = [ 1 - s P    1 - s C ]        trace S = 2 - C - s P
        [   - P      1 -   C ]        det S   = 1 - C + (1 - s) P

s is 1/2 for methods of order two and higher, 1 for semi-implicit and backward Euler and 0 for explicit Euler.
With k steps per period it is 1/2 + (s - 1/2) / k. By Jury's criterion both eigenvalues are inside the unit
circle for P > 0 and

    1 + trace S + det S > 0:    C + (s - 1/2) P < 2        (alternating errors; C < 2 for s = 1/2),
    det S < 1:                  (1 - s) P < C              (oscillations driven by the input delay).

Damping d of the mechanism itself acts within the period. With D = d T the velocity after a period is exp(-D)
x' - c (1 - exp(-D)) / d x', so that the first limit increases from 2 to D coth(D/2). The second condition
becomes (1 - s) P < C + D. `_GROWTH` leaves a margin in the second condition: every undamped oscillation of a
sampled loop grows slowly, and the rollout resolves this growth.

C, P and D belong to the stiffest mode of the feedback. Three power iterations w <- -(dv + dq / 2) compute it,
where dv and dq are the changes of the acceleration for the changes w of v and T w of q, at fixed time and
memory of the law. C = -T <w, dv> / <w, w> in the mass metric, which does not overestimate symmetric feedback.
|w| is the change of velocity 2 T |a| in two periods. The displacement along w is divided into quarters, and
dv is four times the response of the steepest quarter. An input that alternates between its limits is thus
measured by its slope between them, even under a constant load. A first-order system x' = f(u(x)) has C = -T
<w, dx'> / <w, w> and P = D = 0.

References:
    K. J. Astrom, B. Wittenmark, "Computer-Controlled Systems", 3rd ed. (1997), section 2.3 (zero-order hold)
    and section 3.2 (Jury).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.integrators.equation_of_motion import motion
from jaxdae.integrators.integrator import largest
from jaxdae.systems.linearization import linearize
from jaxdae.systems.system import AnySystem, State

_GROWTH = 0.1
_ITERATIONS = 3
_PARTS = 4
_ALIGNED = 0.8
"""Minimum cosine between w and its response; below it, the power iteration has not converged to a mode."""


def is_held_loop_unstable(
    system: AnySystem, state: State, law: Any, u: Any, period: Any, solver: Any, share: Any
) -> Any:
    """Return whether feedback held over a period exceeds its stability limit at a state ().

    Args:
        system: the system.
        state: time (s), coordinates and velocities.
        law: (t, state) -> u at fixed memory.
        u: the input (nu,) of the law at the state.
        period: T in s.
        solver: the saddle-point solver of the method.
        share: s, the share of T^2 a in the displacement over a period.

    The cost is one factorization, ten evaluations of the law, and twelve evaluations of the forces.
    """
    t, q, v = state.t, state.q, state.v
    small = float(jnp.finfo(q.dtype).eps) ** 0.5
    here = None if system.first_order else linearize(system, state, solver)
    mass = system.mass_operator(q) if here is None else here.mass

    def acceleration(at: State, u: Any) -> Any:
        if here is None:
            return motion(system, at, u, solver, None)[0]
        return forward_dynamics(system, at, u, solver=solver, linearization=here)[0]

    def response(x: Any, w: Any) -> Any:
        return acceleration(state, law(t, State(t, system.retract(q, x), v + w))) - start

    def inner(x: Any, y: Any) -> Any:
        return jnp.sum(x * mass.times(y))

    still = jnp.zeros_like(v)
    start = acceleration(state, u)
    generic = (
        small
        * (1.0 + largest(q if system.first_order else v))
        * jnp.asarray(np.cos(np.arange(v.shape[0])), v.dtype)
    )
    size = jnp.sqrt(jnp.maximum(inner(generic, generic), (2.0 * period) ** 2 * inner(start, start)))

    def iterate(w: Any, _: Any) -> tuple[Any, Any]:
        # Rescale w: the power iteration determines only its direction.
        length = jnp.sqrt(inner(w, w))
        w = w * jnp.where(length > 0.0, size / jnp.where(length > 0.0, length, 1.0), 0.0)
        if system.first_order:
            dv = response(w, still)
            return -dv, (w, dv, jnp.zeros_like(dv))
        # Scale the change of the coordinates so that it exceeds their rounding.
        ratio = jnp.maximum(1.0, small * (1.0 + largest(q)) / jnp.maximum(period * largest(w), small**2))
        pairs = jnp.stack([still, ratio * period * w]), jnp.stack([w, still])
        dv, dq = jax.lax.map(lambda pair: response(*pair), pairs)
        dq = dq / ratio
        return -(dv + 0.5 * dq), (w, dv, dq)

    _, found = jax.lax.scan(iterate, period * start + generic, None, length=_ITERATIONS)
    w, dv, dq = (x[-1] for x in found)
    if not system.first_order:
        # Use the steepest part of the displacement.
        parts = jax.lax.map(
            lambda part: response(still, part * w), jnp.arange(1, _PARTS + 1).astype(w.dtype) / _PARTS
        )
        parts = _PARTS * jnp.diff(parts, axis=0, prepend=0.0 * parts[:1])
        dv = parts[jnp.argmin(jax.vmap(partial(inner, w))(parts))]
    square = inner(w, w)
    scale = -period / jnp.where(square > 0.0, square, 1.0)
    rate, stiffness, resistance = scale * inner(w, dv), scale * inner(w, dq), jnp.zeros_like(square)
    if not system.first_order:
        resistance = jnp.maximum(scale * inner(w, acceleration(State(t, q, v + w), u) - start), 0.0)
    change = dv + 0.5 * dq
    aligned = -inner(w, change) >= _ALIGNED * jnp.sqrt(square * inner(change, change))
    half = jnp.where(resistance > small, 0.5 * resistance, 1.0)
    limit = jnp.where(resistance > small, 2.0 * half / jnp.tanh(half), 2.0)
    # Leave a margin for rounding: C = 2 for an input that alternates between two limits.
    alternates = rate + (share - 0.5) * stiffness >= 0.999 * limit
    swings = (1.0 - share) * stiffness - jnp.maximum(rate, 0.0) - resistance > _GROWTH
    return aligned & (square > 0.0) & (alternates | swings)
