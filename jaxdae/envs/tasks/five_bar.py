"""A planar five-bar robot: two motors, four links, one closed loop, and a tip that moves to a target.

The cranks are l1 = 0.18 m long, and their shoulders are d = 0.4 m apart. The forearms are l2 = 0.45 m long
and meet at the tip. The forearms never stretch, 2 l2 > d + 2 l1, and the elbows never meet, 2 l1 < d. The
motors therefore control both degrees of freedom in every pose.

A tip position p determines the pose of the robot. With D = |p - s| from a shoulder s, the crank angle is the
angle of p - s plus or minus the triangle angle, arccos((l1^2 + D^2 - l2^2) / (2 l1 D)): plus for the left
crank, minus for the right crank, so that the elbows are outside.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae import mechanisms as jm
from jaxdae.control.outputs import BodyPoint
from jaxdae.envs.task import Limits, Start, Task
from jaxdae.integrators import Projected, SemiImplicitEuler
from jaxdae.systems.system import State

_CRANK, _FOREARM, _SHOULDER = 0.18, 0.45, 0.2  # lengths, and shoulder offset from the middle, m
_LOW, _HIGH = (-0.12, 0.33), (0.12, 0.5)  # box of initial tips and goals, m
_NEAR = 0.1  # the distance that costs 1 per action, m
_EFFORT = 0.02
_FAST = 10.0  # rad/s, the unit of the observed rates


def five_bar_reach() -> Task:
    """Return the task to move the tip of a five-bar to a random position and hold it there.

    Observation (10,): cosines and sines of the crank angles, their rates in units of 10 rad/s, the tip
    position and the vector to the goal, both in decimeters. Action (2,): motor torques, at most 2 N m.
    Reward: minus the remaining distance in decimeters, and minus 0.02 |action|^2. Start and goal are in a box
    of 24 cm by 17 cm. 30 actions of 20 ms.

    Parameters to randomize: "mass" (4,), "inertia" (4,), "joints.Revolute.damping". Lengths are fixed,
    because the closed-form start depends on them.
    """
    bodies, joints, q = [], [], robot_at(jnp.asarray([0.0, 0.4]))
    for k, name in enumerate(("left", "right", "left_forearm", "right_forearm")):
        mass, length = (0.5, _CRANK) if k < 2 else (0.4, _FOREARM)
        bodies.append(jm.Body(name, mass=mass, inertia=mass * length**2 / 12, pose=q[3 * k : 3 * k + 3]))
    for side, sign in (("left", -1.0), ("right", 1.0)):
        near, far = (-0.5 * _CRANK, 0.0), (0.5 * _CRANK, 0.0)
        joints.append(
            jm.Revolute(
                f"{side}_shoulder",
                jm.GROUND,
                side,
                point_a=(sign * _SHOULDER, 0.0),
                point_b=near,
                damping=0.01,
            ),
        )
        joints.append(
            jm.Revolute(f"{side}_elbow", side, f"{side}_forearm", point_a=far, point_b=(-0.5 * _FOREARM, 0.0))
        )
    ends = {"point_a": (0.5 * _FOREARM, 0.0), "point_b": (0.5 * _FOREARM, 0.0)}
    joints.append(jm.Revolute("tip", "left_forearm", "right_forearm", **ends))
    motors = [
        jm.JointForce(f"{side}_motor", f"{side}_shoulder", input=k)
        for k, side in enumerate(("left", "right"))
    ]
    system, q = jm.planar_mechanism(bodies, joints, motors, gravity=(0.0, 0.0))
    return Task(
        system=system,
        integrator=Projected(SemiImplicitEuler()),
        reset=_reset,
        observe=_observe,
        reward=_reward,
        control=Limits(jnp.asarray([2.0, 2.0], q.dtype)),
        actions=2,
        dt=0.005,
        steps=4,
        limit=30,
        failure=-100.0,
    )


def robot_at(tip: Any) -> Any:
    """Return the coordinates (12,) of the robot with the tip at a position (2,) in m."""
    poses: list[Any] = [None] * 4
    for k, sign in ((0, -1.0), (1, 1.0)):
        shoulder = jnp.asarray([sign * _SHOULDER, 0.0], tip.dtype)
        away = tip - shoulder
        far = jnp.sqrt(away @ away)
        triangle = jnp.arccos((_CRANK**2 + far**2 - _FOREARM**2) / (2.0 * _CRANK * far))
        crank = jnp.arctan2(away[1], away[0]) - sign * triangle
        elbow = shoulder + _CRANK * jnp.stack([jnp.cos(crank), jnp.sin(crank)])
        along = tip - elbow
        poses[k] = jnp.append(0.5 * (shoulder + elbow), crank)
        poses[k + 2] = jnp.append(0.5 * (elbow + tip), jnp.arctan2(along[1], along[0]))
    return jnp.concatenate(poses)


def tip(state: Any) -> Any:
    """Return the tip position (2,) of the five-bar in m."""
    return BodyPoint(2, jnp.asarray([0.5 * _FOREARM, 0.0], state.q.dtype))(state.q)


def _reset(key: Any, system: Any) -> Start:
    dtype = system.mass.dtype
    low, high = jnp.asarray(_LOW, dtype), jnp.asarray(_HIGH, dtype)
    begin, goal = jax.random.uniform(key, (2, 2), dtype, low, high)
    q = robot_at(begin)
    return Start(State(jnp.zeros((), dtype), q, jnp.zeros_like(q)), goal)


def _observe(system: Any, state: Any, goal: Any) -> Any:
    cranks, at = state.q[jnp.asarray([2, 5])], tip(state)
    rates = state.v[jnp.asarray([2, 5])] / _FAST
    return jnp.concatenate([jnp.cos(cranks), jnp.sin(cranks), rates, at / _NEAR, (goal - at) / _NEAR])


def _reward(system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
    away = tip(new) - goal
    # Smooth at the goal, on a scale of 0.1 mm.
    return -jnp.sqrt(away @ away + 1e-8) / _NEAR - _EFFORT * (action @ action)
