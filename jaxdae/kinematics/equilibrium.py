"""Static equilibria of mechanisms with closed loops.

An equilibrium is a configuration in which a mechanism at rest stays at rest,

    g(t, q) = 0,      a(t, q, v = 0, u) = 0,      a = L11 f(t, q, 0, u) - L12 gamma.

On the manifold g = 0 at rest, the constrained accelerations vanish exactly where the applied forces do no
virtual work, f^T dq = 0 for all dq with J dq = 0 (d'Alembert's principle). The module minimizes |a| on the
manifold by the iteration of `jaxdae.kinematics.least_squares_on_loops`, with a in place of the residuals of
targets. Near an equilibrium, this is Newton's method with the stiffness -da/dq of the linear model.

References:
    C. Lanczos, "The Variational Principles of Mechanics" (1970), chapter III.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import NoStabilization
from jaxdae.kinematics.closed_chains import KinematicsInfo, solved, start_state
from jaxdae.kinematics.least_squares_on_loops import Problem
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.system import State
from jaxdae.typing import Input, Leaf


@pytree
class _Rest:
    """The target a = 0 at rest, at time t () and with the input u (nu,)."""

    t: Leaf
    u: Input

    def units(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Return the unit of each row times s^2, m or rad."""
        return tuple(mechanism.names.velocity_units)

    def error(self, mechanism: Mechanism, frames: Any, q: Array) -> Array:
        """Return the accelerations (nv,) in m/s^2 and rad/s^2."""
        still = State(self.t, q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
        return forward_dynamics(mechanism, still, self.u, stabilization=NoStabilization())[0]


def static_equilibrium(
    mechanism: Mechanism, start: State | Array, u: Input = None
) -> tuple[State, KinematicsInfo]:
    """Return an equilibrium of a mechanism near a start, in which all forces balance.

    The result may be stable or unstable: `control.modes` of the linear model shows which. To reach a stable
    equilibrium from far away, simulate the mechanism with damping first.

    Args:
        mechanism: the mechanism.
        start: a state or coordinates (nq,) with closed loops.
        u: input (nu,) in N and N m; None for no inputs, or for inputs of zero.

    Returns:
        The state at rest at the time of the start, and a `KinematicsInfo`. Its `error` is the remaining
        acceleration (nv,) in m/s^2 and rad/s^2. The status is UNREACHABLE if the iteration ends at a minimum
        of |a| that is not zero: the forces do not balance near the start.

    Raises:
        ValueError: shapes that do not fit.

    Joint limits, contacts and exact dry friction have no effect. Prescribed motions must not accelerate at
    the time of the start. If equilibria form a continuum, the result is the closest to the start. Derivatives
    and batches as in `inverse_kinematics`.

    Example:
        >>> state, info = kinematics.static_equilibrium(linkage, start, u)
    """
    state = start_state(mechanism, start)
    u = None if u is None else jnp.asarray(u, state.q.dtype)
    none = jnp.zeros((0,), state.q.dtype)
    return solved(
        Problem(
            mechanism=mechanism,
            targets=(_Rest(state.t, u),),
            weights=(jnp.ones((), state.q.dtype),),
            lower=none,
            upper=none,
            t=state.t,
            start=state.q,
            own_limits=False,
        )
    )
