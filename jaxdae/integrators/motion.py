"""How a system moves at a state, of whichever order its equation is."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae.dynamics import forward_dynamics
from jaxdae.integrators.interface import input_at
from jaxdae.kinematic import feasible_velocity
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.stabilization import Stabilization
from jaxdae.status import Status
from jaxdae.system import AnySystem, State
from jaxdae.typing import Count, Rows, Velocity


def motion(
    system: AnySystem, state: State, u: Any, solver: SaddlePointSolver | None, stabilization: Stabilization | None
) -> tuple[Velocity, Velocity, Rows, Count]:
    """Returns velocity (nv,), acceleration (nv,), multipliers (nc,) and status () at a state.

    The velocity of a first-order system is the feasible one that is nearest to its rate, its acceleration counts as zero; the velocity in
    the state is not used. Systems with forces move with the velocity of the state, and the status is OK.

    Args:
        system: the system.
        state: time (s), coordinates and velocities.
        u: input (nu,), a feedback law, or None.
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row, of systems with forces.
    """
    given = input_at(u, state, system)
    if system.first_order:
        v, lam, status = feasible_velocity(system, state, given, solver)
        return v, jnp.zeros_like(v), lam, status
    a, lam = forward_dynamics(system, state, given, solver=solver, stabilization=stabilization)
    return state.v, a, lam, jnp.asarray(Status.OK, jnp.int32)


def bound(system: AnySystem, state: State, u: Any) -> AnySystem:
    """Returns a system of first order with its rows at the input of a state, any other system as it is.

    Args:
        system: the system.
        state: the state.
        u: input (nu,), a feedback law, or None.
    """
    return system.at_input(input_at(u, state, system)) if system.first_order else system


def with_feasible_velocity(system: AnySystem, state: State, u: Any, solver: SaddlePointSolver | None) -> tuple[State, Count]:
    """Returns a state whose coordinates have been moved, and a status (): of a first-order system with its velocity there, else as it is.

    Args:
        system: the system.
        state: the state.
        u: input (nu,), a feedback law, or None.
        solver: a saddle-point solver; None for the default solver of the system.
    """
    if not system.first_order:
        return state, jnp.asarray(Status.OK, jnp.int32)
    v, _, _, status = motion(system, state, u, solver, None)
    return State(state.t, state.q, v), status
