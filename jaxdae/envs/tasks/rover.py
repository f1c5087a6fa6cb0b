"""A rocker-bogie rover on hills: six height rows and the differential hold, and slip is least-squares."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae import mechanisms as jm
from jaxdae import vehicles
from jaxdae.base.dataclass import pytree
from jaxdae.envs.task import Start, Task
from jaxdae.integrators import Kinematic
from jaxdae.systems.system import State
from jaxdae.typing import Leaf

_FASTEST = 6.0  # rad/s
_REACHED = 0.1  # m


@pytree
class Sides:
    """Map actions to the rates of the left and the right wheels, relative to the fastest rate.

    Attributes:
        fastest: fastest rate in rad/s.
    """

    fastest: Leaf

    def __call__(self, action: Any) -> Any:
        """Return the rates of the six wheels (6,)."""
        return self.fastest * jnp.repeat(jnp.clip(action, -1.0, 1.0), 3)


def rover_drive(terrain: Any = None) -> Task:
    """Return the task to drive a rover on hills to a place two meters away, with left and right wheel rates.

    Observation (12,): vector to the place in m and its direction as cosine and sine, all in the horizontal
    frame of the rover; the z axis of the rover in the world (3,), and the z component of its x axis;
    suspension angles in rad. Action (2,): rates of the left and right wheels, at most 6 rad/s. Reward:
    decrease of the distance in m; 1 within 10 cm, which ends the episode. Beyond the terrain, or if a wheel
    has two contacts, the simulation fails and reports it. 150 actions of 0.1 s.

    The placement on the ground takes Newton iterations: with `AutoReset`, draw starts from a `StartPool`.

    Args:
        terrain: a terrain of `jaxdae.vehicles`, with the rover within 4 m of its center; by default hills of
            0.1 m.
    """
    if terrain is None:
        waves = ([0.05, 0.03, 0.02], [2.2, -1.4, 4.6], [1.2, 3.8, -0.8], [0.3, 1.0, -0.5])
        terrain = vehicles.Hills(*(jnp.asarray(x) for x in waves))
    mechanism, _ = jm.mechanism(vehicles.rocker_bogie(terrain), jm.Joints())
    system = vehicles.LeastSlip(mechanism, tuple(f"{wheel}.angle_rate" for wheel in vehicles.ROVER_WHEELS))
    return Task(
        system=system,
        integrator=Kinematic.rk4(),
        reset=_reset,
        observe=_observe,
        reward=_reward,
        terminated=_terminated,
        control=Sides(jnp.asarray(_FASTEST)),
        actions=2,
        dt=0.1,
        steps=1,
        limit=150,
        failure=-1.0,
    )


def _reset(key: Any, system: Any) -> Start:
    mechanism = system.mechanism
    names, dtype = list(mechanism.names.coordinates), jnp.result_type(float)
    key_place, key_turn = jax.random.split(key)
    place = jax.random.uniform(key_place, (2,), dtype, -1.0, 1.0)
    yaw, way = jax.random.uniform(key_turn, (2,), dtype, -jnp.pi, jnp.pi)
    guess = (
        jnp.zeros((len(names),), dtype)
        .at[names.index("base_link.qw")]
        .set(1.0)
        .at[names.index("base_link.z")]
        .set(0.3)
    )
    q, report = vehicles.place_on_terrain(mechanism, guess, place, yaw, suspension=vehicles.ROVER_SUSPENSION)
    goal = place + 2.0 * jnp.stack([jnp.cos(way), jnp.sin(way)])
    state = State(jnp.zeros((), dtype), q, jnp.zeros((len(mechanism.names.velocities),), dtype))
    return Start(state, goal, report.status)


def _distance(state: Any, goal: Any) -> Any:
    away = goal - state.q[:2]
    return jnp.sqrt(away @ away + 1e-8)


def _observe(system: Any, state: Any, goal: Any) -> Any:
    mechanism = system.mechanism
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(state.q))
    heading = jnp.arctan2(frame.r21, frame.r11)
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    away = goal - state.q[:2]
    way = jnp.stack([cos * away[0] + sin * away[1], cos * away[1] - sin * away[0]])
    angles = [mechanism.names.coordinates.index(f"{joint}.angle") for joint in vehicles.ROVER_SUSPENSION]
    axes = jnp.stack([frame.r13, frame.r23, frame.r33, frame.r31])
    return jnp.concatenate([way, way / jnp.sqrt(way @ way + 1e-8), axes, state.q[jnp.asarray(angles)]])


def _reward(system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
    left = _distance(new, goal)
    return _distance(state, goal) - left + jnp.where(left < _REACHED, 1.0, 0.0)


def _terminated(system: Any, state: Any, goal: Any) -> Any:
    return _distance(state, goal) < _REACHED
