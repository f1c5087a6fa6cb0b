"""The largest stable step of a method, from the motion linearized at a state.

Deviations (x, x') from a motion follow, to first order,

    x'' = K x + D x',        K = da/dq, D = da/dv  (nv, nv),

where the accelerations a(t, q, v) contain the forces, the feedback law, the constraints and the feedback of constraints. One
step of length h multiplies them by a matrix S(h) (2 nv, 2 nv): the integrator itself applied to this linear system. The step is
stable where the spectral radius of S is not larger than the growth of the exact motion, up to a factor,

    rho(S(h)) <= _GROWTH exp(h sigma),    h sigma <= 1,        sigma = max(0, largest real part of the eigenvalues).

sigma > 0 near an unstable equilibrium, such as an inverted pendulum. The second condition keeps that growth from hiding other modes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree
from jaxdae.integrators.interface import Integrator, check_integrator
from jaxdae.integrators.method import roles_of
from jaxdae.integrators.motion import motion
from jaxdae.prepared import prepared
from jaxdae.rollout_arguments import as_controls
from jaxdae.system import AnySystem, State, System, check_system, checked_state
from jaxdae.typing import Leaf

_GROWTH = 1.1
_SHORTEST = 2.0**-30
"""The shortest step that is tried, in units of the longest."""


def stable_step(system: AnySystem, state: State, integrator: Integrator, controls: Any = None, *, longest: float = 1.0) -> float:
    """Return the largest step in s for which an integrator is stable near a state, or `longest` if it is stable up to there.

    The limit belongs to the motion linearized at this state: dry friction is stiffest at rest, springs and feedback gains may grow along
    the motion. Modes may grow by 10 % per step more than in the exact motion, so that methods such as explicit Euler, which amplify every
    undamped oscillation slightly, have a limit. Accuracy may need a shorter step. Implicit methods are stable as long as their iteration
    converges, which a linear system does not show.

    Args:
        system: a mechanical system.
        state: time (s), coordinates and velocities.
        integrator: a one-step method, such as `Projected(RungeKutta.rk4())`.
        controls: an input (nu,), a feedback law (t, state) -> u, or None.
        longest: the longest step in s to try.

    Raises:
        TypeError: no system with forces, or no integrator.
        ValueError: `longest` is not positive, or the accelerations are not finite.

    Runs on the host, with one compilation and about 40 small eigenvalue problems. Not differentiable.

    References:
        E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", section IV.2.
    """
    check_system(system)
    check_integrator(integrator)
    state = checked_state(state)
    if not longest > 0.0:
        raise ValueError(f"stable_step: longest must be positive, got {longest}")
    law = as_controls(controls, state) if callable(controls) or controls is None else jnp.asarray(controls, state.q.dtype)
    linear = _linearized(system, state, law, roles_of(integrator))
    rates = np.block([[np.zeros_like(linear.stiffness), np.eye(len(state.v))], [linear.stiffness, linear.damping]])
    if not np.all(np.isfinite(rates)):
        raise ValueError("stable_step: the accelerations near this state are not finite, see diagnose(system, state)")
    growth = max(0.0, float(np.max(np.linalg.eigvals(rates).real, initial=0.0)))

    def stable(step: float) -> bool:
        matrix = np.asarray(_step_matrix(linear, integrator, jnp.asarray(step, state.q.dtype)))
        radius = np.max(np.abs(np.linalg.eigvals(matrix)), initial=0.0) if np.all(np.isfinite(matrix)) else np.inf
        return bool(growth * step <= 1.0 and radius <= _GROWTH * np.exp(growth * step))

    good = longest * _SHORTEST
    while good < longest and stable(min(2.0 * good, longest)):
        good = min(2.0 * good, longest)
    bad = min(2.0 * good, longest)
    while bad > 1.005 * good:
        middle = (good * bad) ** 0.5
        good, bad = (middle, bad) if stable(middle) else (good, middle)
    return good


@pytree
class _Linear(System):
    """x'' = K x + D x', without constraints."""

    stiffness: Leaf
    damping: Leaf

    def mass_matrix(self, q: Any) -> Any:
        """Return the identity."""
        return jnp.eye(q.shape[0], dtype=q.dtype)

    def force(self, t: Any, q: Any, v: Any, u: Any) -> Any:
        """Return K q + D v."""
        return self.stiffness @ q + self.damping @ v


@jax.jit
def _linearized(system: Any, state: State, law: Any, roles: Any) -> _Linear:
    system, law = prepared((system, law))

    def acceleration(x: Any, dv: Any) -> Any:
        return motion(system, State(state.t, system.retract(state.q, x), state.v + dv), law, *roles)[1]

    still = jnp.zeros_like(state.v)
    return _Linear(*jax.jacfwd(acceleration, argnums=(0, 1))(still, still))


@jax.jit
def _step_matrix(linear: _Linear, integrator: Any, dt: Any) -> Any:
    """Return S (2 nv, 2 nv) in the coordinates (x, h x'), whose entries have similar sizes."""
    still = jnp.zeros((linear.damping.shape[0],), linear.damping.dtype)

    def moved(x: Any) -> Any:
        start = State(0.0 * dt, x[: len(still)], x[len(still) :] / dt)
        end = integrator.step(linear, start, integrator.init(linear, start), None, dt)[0]
        return jnp.concatenate([end.q, dt * end.v])

    return jax.jacfwd(moved)(jnp.concatenate([still, still]))
