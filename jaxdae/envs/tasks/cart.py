"""A cart-pole in absolute coordinates: three coordinates per body, four rows, two degrees of freedom."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae import mechanisms as jm
from jaxdae.envs.task import Limits, Start, Task
from jaxdae.integrators import Projected, SemiImplicitEuler
from jaxdae.systems.system import State

_HALF = 0.5  # from the hinge to the mass center of the pole, m
_TRACK, _LEAN = 2.4, 0.21  # termination limits: m and rad from the middle


def cart_pole() -> Task:
    """Return the task to balance a pole on a cart: a rail and a hinge are four rows, a force moves the cart.

    Observation (4,): position of the cart in m, lean of the pole in rad, and their rates. Action (1,): the
    force, at most 10 N. Reward: 1 per action, minus the squares of position and lean relative to their
    termination limits, 2.4 m and 0.21 rad. 250 actions of 20 ms.

    Parameters to randomize: "mass" (2,), "inertia" (2,), "gravity" (2,).
    """
    cart = jm.Body("cart", mass=1.0, inertia=0.01, pose=(0.0, 0.0, 0.0))
    pole = jm.Body("pole", mass=0.1, inertia=0.1 * (2 * _HALF) ** 2 / 12, pose=(0.0, _HALF, 0.0))
    joints = [
        jm.Prismatic("rail", jm.GROUND, "cart", axis=(1.0, 0.0), at=(0.0, 0.0)),
        jm.Revolute("hinge", "cart", "pole", at=(0.0, 0.0)),
    ]
    system, q = jm.planar_mechanism([cart, pole], joints, [jm.JointForce("motor", "rail", input=0)])
    return Task(
        system=system,
        integrator=Projected(SemiImplicitEuler()),
        reset=_reset,
        observe=_observe,
        reward=_reward,
        terminated=_terminated,
        control=Limits(jnp.asarray([10.0], q.dtype)),
        actions=1,
        dt=0.01,
        steps=2,
        limit=250,
        failure=-1.0,
    )


def _reset(key: Any, system: Any) -> Start:
    x, lean, speed, rate = jax.random.uniform(key, (4,), system.mass.dtype, -0.05, 0.05)
    cos, sin, zero = jnp.cos(lean), jnp.sin(lean), jnp.zeros_like(x)
    q = jnp.stack([x, zero, zero, x - _HALF * sin, _HALF * cos, lean])
    v = jnp.stack([speed, zero, zero, speed - _HALF * cos * rate, -_HALF * sin * rate, rate])
    return Start(State(zero, q, v))


def _observe(system: Any, state: Any, goal: Any) -> Any:
    return jnp.stack([state.q[0], state.q[5], state.v[0], state.v[5]])


def _reward(system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
    return 1.0 - (new.q[0] / _TRACK) ** 2 - (new.q[5] / _LEAN) ** 2


def _terminated(system: Any, state: Any, goal: Any) -> Any:
    return (jnp.abs(state.q[0]) > _TRACK) | (jnp.abs(state.q[5]) > _LEAN)
