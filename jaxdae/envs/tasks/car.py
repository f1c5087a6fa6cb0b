"""A car without slip is to be parked between two others: `KinematicSingleTrack`, rectangles, and rates as inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.envs.task import Start, Task
from jaxdae.integrators import Kinematic
from jaxdae.system import State
from jaxdae.typing import Leaf
from jaxdae.vehicles import KinematicSingleTrack

_LENGTH, _WIDTH, _REAR = 4.4, 1.8, 0.9  # of all cars, and from the rear axle to the rear end, m
_PARKED = ((-4.6, 0.0), (7.4, 0.0))  # the middles of those that stand there, m; the goal of the rear axle is (0, 0)
_HIT, _THERE = -50.0, 20.0


@pytree
class Pedals:
    """Actions are steering rate and acceleration relative to their limits; at the limits of steering angle and speed they end.

    Attributes:
        rate: of steering in rad/s, at most.
        acceleration: in m/s^2, at most.
        steering: the largest angle in rad.
        speed: the largest one in m/s, forward and back.
        time: in s, in which an angle or speed near its limit is approached.
    """

    rate: Leaf = 0.8
    acceleration: Leaf = 1.5
    steering: Leaf = 0.6
    speed: Leaf = 2.0
    time: Leaf = 0.1

    def __call__(self, action: Any) -> Any:
        """Returns the law of the inputs (2,)."""
        return _Held(self, jnp.clip(action, -1.0, 1.0))


@pytree
class _Held:
    pedals: Pedals
    action: Leaf

    def __call__(self, t: Any, state: Any) -> Any:
        """Returns steering rate and acceleration (2,), no more than what leads to a limit within the time of the pedals."""
        of, at = self.pedals, state.q[jnp.asarray([2, 3])]
        most, range_ = (
            jnp.stack([jnp.asarray(x, at.dtype) for x in pair]) for pair in ((of.rate, of.acceleration), (of.steering, of.speed))
        )
        return jnp.clip(self.action * most, (-range_ - at) / of.time, (range_ - at) / of.time)


def parking() -> Task:
    """Returns the task to park a car between two others, parallel to the road, from the lane beside them.

    Observation (8,): rear axle in m/5, cosine and sine of the heading, steering angle in rad, speed in m/s, and the gaps to both parked
    cars in m. Action (2,): steering rate and acceleration, 0.8 rad/s and 1.5 m/s^2 at most. Reward: how much nearer an action gets to the
    goal in m, with 2 m for 1 rad of heading; 20 for standing there within 10 cm, 0.06 rad and 0.1 m/s, -50 for touching a car, and either
    ends the episode. 150 actions of 0.2 s.

    Parameters worth drawing: "wheelbase" ().
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
    """Returns how far the car (5,) is from each parked one (2,) in m; negative where they overlap.

    Rectangles are apart by the largest gap between their shadows on the normals of their sides, two for each (separating axes). The parked
    ones are parallel to the axes.
    """
    half = 0.5 * jnp.asarray([_LENGTH, _WIDTH], q.dtype)
    cos, sin = jnp.cos(q[4]), jnp.sin(q[4])
    turned = jnp.stack([jnp.stack([cos, -sin]), jnp.stack([sin, cos])])
    middle = q[:2] + turned[:, 0] * (half[0] - _REAR)
    away = jnp.asarray(_PARKED, q.dtype) - middle
    # The shadow of a rectangle on the sides of one turned against it is |R| times its halves.
    reach = half + jnp.abs(turned) @ half
    on_world, on_car = jnp.abs(away) - reach, jnp.abs(away @ turned) - (half + jnp.abs(turned.T) @ half)
    return jnp.max(jnp.concatenate([on_world, on_car], axis=1), axis=1)


def _left(q: Any) -> Any:
    """Returns how far the goal is, in m."""
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
    return jnp.concatenate([jnp.stack([x / 5, y / 5, jnp.cos(heading), jnp.sin(heading), steering, speed]), gaps(state.q)])


def _reward(system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
    nearer = _left(state.q) - _left(new.q)
    return nearer + jnp.where(_is_there(new.q), _THERE, 0.0) + jnp.where(jnp.min(gaps(new.q)) < 0.0, _HIT, 0.0)


def _terminated(system: Any, state: Any, goal: Any) -> Any:
    return (jnp.min(gaps(state.q)) < 0.0) | _is_there(state.q)
