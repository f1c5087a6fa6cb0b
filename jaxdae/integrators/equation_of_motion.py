"""Velocity and acceleration of first- and second-order systems."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import Stabilization
from jaxdae.integrators.integrator import input_at
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.kinematic_system import feasible_velocity
from jaxdae.systems.status import Status
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Count, Rows, Velocity


def motion(
    system: AnySystem,
    state: State,
    u: Any,
    solver: SaddlePointSolver | None,
    stabilization: Stabilization | None,
) -> tuple[Velocity, Velocity, Rows, Count]:
    """Return velocity (nv,), acceleration (nv,), multipliers (nc,) and status () at a state.

    For a first-order system, the velocity is the feasible velocity nearest to its rate, the acceleration is
    zero, and the velocity in the state is ignored. For a system with forces, the velocity is that of the
    state, and the status is OK.

    Args:
        system: the system.
        state: time (s), coordinates and velocities.
        u: input (nu,), a feedback law, or None.
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row, for systems with forces.
    """
    given = input_at(u, state, system)
    if system.first_order:
        v, lam, status = feasible_velocity(system, state, given, solver)
        return v, jnp.zeros_like(v), lam, status
    a, lam = forward_dynamics(system, state, given, solver=solver, stabilization=stabilization)
    return state.v, a, lam, jnp.asarray(Status.OK, jnp.int32)


def bound(system: AnySystem, state: State, u: Any) -> AnySystem:
    """Return a first-order system with its rows at the input of a state, and any other system unchanged.

    Args:
        system: the system.
        state: the state.
        u: input (nu,), a feedback law, or None.
    """
    return system.at_input(input_at(u, state, system)) if system.first_order else system


def with_feasible_velocity(
    system: AnySystem, state: State, u: Any, solver: SaddlePointSolver | None
) -> tuple[State, Count]:
    """Return the state and a status (); give a first-order system its feasible velocity at these coordinates.

    The state of any other system is returned unchanged.

    Args:
        system: the system.
        state: the state, with coordinates that have changed.
        u: input (nu,), a feedback law, or None.
        solver: a saddle-point solver; None for the default solver of the system.
    """
    if not system.first_order:
        return state, jnp.asarray(Status.OK, jnp.int32)
    v, _, _, status = motion(system, state, u, solver, None)
    return State(state.t, state.q, v), status
