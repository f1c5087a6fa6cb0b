"""The largest stable step of a method, from the motion linearized at a state.

Deviations (x, x') from a motion follow, to first order,

    x'' = K x + D x',        K = da/dq, D = da/dv  (nv, nv),

where the accelerations a(t, q, v) contain the forces, the feedback law, the constraints and the feedback of
constraints. One step of length h multiplies them by a matrix S(h) (2 nv, 2 nv): the integrator itself applied
to this linear system. The step is stable where the spectral radius of S is not larger than the growth of the
exact motion, up to a factor,

    rho(S(h)) <= GROWTH exp(h sigma),    h sigma <= 1,
    sigma = max(0, largest real part of the eigenvalues).

sigma > 0 near an unstable equilibrium, such as an inverted pendulum. The second condition keeps that growth
from hiding other modes.

A sampled law is held over its period. It adds K_u x + D_u x', taken at the start of the period, to the
accelerations, and S is the matrix of a period. sigma is that of the same law without hold.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import offers
from jaxdae.compile.precompute import prepared
from jaxdae.integrators.equation_of_motion import motion
from jaxdae.integrators.integrator import Integrator, check_integrator, input_at
from jaxdae.integrators.method import of_points, on_linear_systems, roles_of, sampled_law, samples_law
from jaxdae.integrators.stability import GROWTH
from jaxdae.rollouts.rollout_arguments import as_controls
from jaxdae.systems.state_checks import report_state
from jaxdae.systems.system import AnySystem, State, System, check_system, checked_state
from jaxdae.typing import Leaf

_SHORTEST = 2.0**-30
"""The shortest step that is tried, in units of the longest."""


def stable_step(
    system: AnySystem, state: State, integrator: Integrator, controls: Any = None, *, longest: float = 1.0
) -> float:
    """Return the largest step in s, at most `longest`, for which an integrator is stable near a state.

    The limit applies to the motion linearized at this state. Other states may have a lower limit: smooth
    friction is stiffest at rest, and springs and feedback gains may grow along the motion. Modes may grow by
    1 % per step more than in the exact motion, so that methods such as explicit Euler, which amplify every
    undamped oscillation slightly, have a limit. Accuracy may need a shorter step. Implicit methods are stable
    as long as their iteration converges, which a linear system does not show.

    Args:
        system: a mechanical system.
        state: time (s), coordinates and velocities.
        integrator: a one-step method, such as `Projected(RungeKutta.rk4())`, or `Sampled(method, law)`, whose
            input is held over the sampling period; a law with memory is evaluated with its memory at the
            start.
        controls: an input (nu,), a feedback law (t, state) -> u, or None.
        longest: the longest step in s to try.

    Raises:
        TypeError: no system with forces, or no integrator.
        ValueError: `longest` is not positive and finite, the accelerations are not finite, or the sampled law
            is not supported (`ModelPredictive`).

    Warns:
        StateWarning: if the state violates the constraints.

    Runs on the host, with one compilation and about 40 small eigenvalue problems. Not differentiable.

    References:
        E. Hairer, G. Wanner, "Solving Ordinary Differential Equations II", section IV.2.
    """
    check_system(system)
    check_integrator(integrator)
    state = checked_state(state)
    if not 0.0 < longest < float("inf"):
        raise ValueError(f"stable_step: longest must be positive and finite, got {longest}")
    law = (
        as_controls(controls, state)
        if callable(controls) or controls is None
        else jnp.asarray(controls, state.q.dtype)
    )
    method: Any = on_linear_systems(integrator)
    linear, held = _linearized(system, state, law, method, integrator)
    every = 1 if held is None else method.every
    if held is not None:
        method = dataclasses.replace(method, law=held)
    parts = [linear] if held is None else [linear, held]
    stiffness, damping = sum(x.stiffness for x in parts), sum(x.damping for x in parts)
    rates = np.block([[np.zeros_like(stiffness), np.eye(len(state.v))], [stiffness, damping]])
    if not np.all(np.isfinite(rates)):
        raise ValueError(
            "stable_step: the accelerations near this state are not finite; see diagnose(system, state)"
        )
    report_state("stable_step", system, state)
    growth = max(0.0, float(np.max(np.linalg.eigvals(rates).real, initial=0.0)))

    def stable(step: float) -> bool:
        matrix = np.asarray(_step_matrix(linear, method, jnp.asarray(step, state.q.dtype), every))
        radius = (
            np.max(np.abs(np.linalg.eigvals(matrix)), initial=0.0) if np.all(np.isfinite(matrix)) else np.inf
        )
        return bool(growth * every * step <= 1.0 and radius <= GROWTH * np.exp(growth * every * step))

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
    """x'' = K x + D x' + u, without constraints."""

    stiffness: Leaf
    damping: Leaf

    def mass_matrix(self, q: Any) -> Any:
        """Return the identity."""
        return jnp.eye(q.shape[0], dtype=q.dtype)

    def force(self, t: Any, q: Any, v: Any, u: Any) -> Any:
        """Return K q + D v + u."""
        force = self.stiffness @ q + self.damping @ v
        return force if u is None else force + u


@pytree
class _LinearLaw:
    """u = K_u x + D_u x'."""

    stiffness: Leaf
    damping: Leaf

    def __call__(self, t: Any, state: State) -> Any:
        """Return u (nv,)."""
        return self.stiffness @ state.q + self.damping @ state.v


@jax.jit
def _linearized(
    system: Any, state: State, law: Any, integrator: Any, given: Any
) -> tuple[_Linear, _LinearLaw | None]:
    """Return the linear motion, and the accelerations by a sampled law around it, None without one.

    `given` is the integrator with contacts and goals, which knows the inputs of goals.
    """
    system, integrator, law = prepared((system, integrator, law))
    roles, still, own = roles_of(integrator), jnp.zeros_like(state.v), of_points(given).system_input

    def moved(x: Any, dv: Any) -> State:
        return State(state.t, system.retract(state.q, x), state.v + dv)

    def derivatives(point: Any) -> Any:
        def moves(x: Any, dv: Any) -> Any:
            at, u = point(x, dv)
            return motion(system, at, own(u), *roles)[1]

        return jax.jacfwd(moves, argnums=(0, 1))(still, still)

    if not samples_law(integrator):
        return _Linear(*derivatives(lambda x, dv: (moved(x, dv), law))), None
    # The period matters for the memory of the next one only.
    sampled = sampled_law(integrator, integrator.init(system, state), jnp.ones_like(state.t))
    if sampled is None or not offers(integrator, "law", "every"):
        raise ValueError(
            "stable_step: this sampled law cannot be linearized; pass the integrator without the law"
        )

    def held(at: State) -> Any:
        added = input_at(law, at)
        return sampled[0](state.t, at) if added is None else sampled[0](state.t, at) + added

    plant = derivatives(lambda x, dv: (moved(x, dv), held(state)))
    return _Linear(*plant), _LinearLaw(*derivatives(lambda x, dv: (state, held(moved(x, dv)))))


@partial(jax.jit, static_argnums=3)
def _step_matrix(linear: _Linear, integrator: Any, dt: Any, every: int) -> Any:
    """Return S (2 nv, 2 nv) of `every` steps in the coordinates (x, h x') of similar size."""
    still = jnp.zeros((linear.damping.shape[0],), linear.damping.dtype)

    def moved(x: Any) -> Any:
        at = State(0.0 * dt, x[: len(still)], x[len(still) :] / dt)
        memory = integrator.init(linear, at)
        for _ in range(every):
            at, memory = integrator.step(linear, at, memory, None, dt)[:2]
        return jnp.concatenate([at.q, dt * at.v])

    return jax.jacfwd(moved)(jnp.concatenate([still, still]))
