"""Parking a car without slip between two others: `KinematicSingleTrack`, rectangles, and rates as inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.envs.task import Start, Task
from jaxdae.integrators import Kinematic
from jaxdae.systems.system import State
from jaxdae.typing import Leaf
from jaxdae.vehicles import KinematicSingleTrack

_LENGTH, _WIDTH, _REAR = 4.4, 1.8, 0.9  # of all cars, and rear overhang behind the rear axle, m
_PARKED = ((-4.6, 0.0), (7.4, 0.0))  # centers of the parked cars, m; the goal of the rear axle is (0, 0)
_HIT, _THERE = -50.0, 20.0


@pytree
class Pedals:
    """Map actions to steering rate and acceleration, which stop at the limits of steering angle and speed.

    Attributes:
        rate: largest steering rate in rad/s.
        acceleration: largest acceleration in m/s^2.
        steering: largest steering angle in rad.
        speed: largest speed in m/s, forward and backward.
        time: time constant in s of the approach to a limit of angle or speed.
    """

    rate: Leaf = 0.8
    acceleration: Leaf = 1.5
    steering: Leaf = 0.6
    speed: Leaf = 2.0
    time: Leaf = 0.1

    def __call__(self, action: Any) -> Any:
        """Return the control law of the inputs (2,)."""
        return _Held(self, jnp.clip(action, -1.0, 1.0))


@pytree
class _Held:
    pedals: Pedals
    action: Leaf

    def __call__(self, t: Any, state: Any) -> Any:
        """Return steering rate and acceleration (2,), limited so that no limit is exceeded within `time`."""
        of, at = self.pedals, state.q[jnp.asarray([2, 3])]
        most, range_ = (
            jnp.stack([jnp.asarray(x, at.dtype) for x in pair])
            for pair in ((of.rate, of.acceleration), (of.steering, of.speed))
        )
        return jnp.clip(self.action * most, (-range_ - at) / of.time, (range_ - at) / of.time)


def parking() -> Task:
    """Return the task to park a car between two others, parallel to the road, from the adjacent lane.

    Observation (8,): position of the rear axle in units of 5 m, cosine and sine of the heading, steering
    angle in rad, speed in m/s, and the gaps to both parked cars in m. Action (2,): steering rate and
    acceleration, at most 0.8 rad/s and 1.5 m/s^2. Reward: decrease of the distance to the goal in m, where 1
    rad of heading counts as 2 m; 20 for standing at the goal within 10 cm, 0.06 rad and 0.1 m/s; -50 for
    touching a car. Both events end the episode. 150 actions of 0.2 s.

    Parameters to randomize: "wheelbase" ().
    """
    return Task(
        system=KinematicSingleTrack(jnp.asarray(2.6)),
        integrator=Kinematic.rk4(),
        reset=_reset,
        observe=_observe,
        reward=_reward,
        terminated=_terminated,
        control=Pedals(),
        actions=2,
        dt=0.1,
        steps=2,
        limit=150,
        failure=_HIT,
    )


def gaps(q: Any) -> Any:
    """Return the gaps between the car (5,) and the parked cars (2,) in m; negative if they overlap.

    The gap of two rectangles is the largest gap between their projections on the normals of their sides, two
    for each (separating axes). The parked cars are parallel to the axes.
    """
    half = 0.5 * jnp.asarray([_LENGTH, _WIDTH], q.dtype)
    cos, sin = jnp.cos(q[4]), jnp.sin(q[4])
    turned = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
    middle = q[:2] + turned[:, 0] * (half[0] - _REAR)
    away = jnp.asarray(_PARKED, q.dtype) - middle
    # The projection of a rectangle on the sides of a rotated rectangle is |R| times its half sides.
    reach = half + jnp.abs(turned) @ half
    on_world, on_car = jnp.abs(away) - reach, jnp.abs(away @ turned) - (half + jnp.abs(turned.T) @ half)
    return jnp.max(jnp.concatenate([on_world, on_car], axis=1), axis=1)


def _left(q: Any) -> Any:
    """Return the distance to the goal in m, including the heading."""
    return jnp.sqrt(q[0] ** 2 + q[1] ** 2 + (2.0 * jnp.sin(0.5 * q[4]) * 2.0) ** 2 + 1e-6)


def _is_there(q: Any) -> Any:
    return (jnp.hypot(q[0], q[1]) < 0.1) & (jnp.abs(q[4]) < 0.06) & (jnp.abs(q[3]) < 0.1)


def _reset(key: Any, system: Any) -> Start:
    dtype = jnp.result_type(system.wheelbase)
    low, high = jnp.asarray([5.5, 2.2, -0.1], dtype), jnp.asarray([8.5, 3.0, 0.1], dtype)
    x, y, heading = jax.random.uniform(key, (3,), dtype, low, high)
    zero = jnp.zeros((), dtype)
    return Start(State(zero, jnp.stack([x, y, zero, zero, heading]), jnp.zeros((5,), dtype)))


def _observe(system: Any, state: Any, goal: Any) -> Any:
    x, y, steering, speed, heading = state.q
    return jnp.concatenate(
        [jnp.stack([x / 5, y / 5, jnp.cos(heading), jnp.sin(heading), steering, speed]), gaps(state.q)]
    )


def _reward(system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
    nearer = _left(state.q) - _left(new.q)
    return (
        nearer + jnp.where(_is_there(new.q), _THERE, 0.0) + jnp.where(jnp.min(gaps(new.q)) < 0.0, _HIT, 0.0)
    )


def _terminated(system: Any, state: Any, goal: Any) -> Any:
    return (jnp.min(gaps(state.q)) < 0.0) | _is_there(state.q)
