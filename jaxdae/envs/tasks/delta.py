"""A Delta robot: three motor-driven arms carry a level platform by two rods each; six loops, three freedoms.

The rods are massless distance rows. Half of the mass of a rod belongs to the arm and half to the platform. In
the plane of an arm, with e outward and z up, the elbow is at (R + L cos a, -L sin a) for the motor angle a,
down from the horizontal. A rod of length B to the platform joint at (x, y across, z) requires

    2 L (x - R) cos a - 2 L z sin a = (x - R)^2 + y^2 + z^2 + L^2 - B^2.

With the elbow outside, a = atan2(-z, x - R) - arccos(right side / (2 L |(x - R, z)|)): the start has a closed
form.

References:
    R. Clavel, "Conception d'un robot parallele rapide a 4 degres de liberte", thesis, EPFL, 1991.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae import mechanisms as jm
from jaxdae.base.dataclass import pytree, static
from jaxdae.envs.task import Limits, Start, Task
from jaxdae.integrators import Projected, SemiImplicitEuler
from jaxdae.mechanisms import spatial as js
from jaxdae.systems.system import State

_BASE, _ARM, _ROD, _PLATFORM, _APART = 0.12, 0.2, 0.45, 0.05, 0.04  # radii, lengths, half rod spacing, m
_LOW, _HIGH = (-0.12, -0.12, -0.46), (0.12, 0.12, -0.36)  # workspace of the tool, m
_WITHIN, _DEEP, _HIGHEST = 0.2, -0.55, -0.26  # bounds of radius and height that avoid stretched arms, m
_NEAR, _OUT = 0.1, -50.0
_ANGLES = tuple(2.0 * math.pi * k / 3.0 for k in range(3))


@pytree
class _Platform:
    """The indices of the robot in q and v, and the functions of the task (static)."""

    arms: tuple[int, ...] = static()
    rates: tuple[int, ...] = static()
    pose: tuple[int, ...] = static()
    half: float = static()

    def wanted(self, state: Any, goal: Any) -> Any:
        """Return the target (3,) of the tool: the first goal for half of an episode, then the second."""
        return jnp.where(state.t < self.half - 1e-6, goal[0], goal[1])

    def place(self, state: Any) -> Any:
        """Return the tool position (3,) in m."""
        return state.q[jnp.asarray(self.pose[:3])]

    def reset(self, key: Any, system: Any) -> Start:
        dtype = system.mass.dtype
        low, high = jnp.asarray(_LOW, dtype), jnp.asarray(_HIGH, dtype)
        begin, pick, place = jax.random.uniform(key, (3, 3), dtype, low, high)
        q = jnp.zeros((len(self.arms) + 7,), dtype)
        q = (
            q.at[jnp.asarray(self.arms)]
            .set(arm_angles(begin))
            .at[jnp.asarray(self.pose[:4])]
            .set(jnp.append(begin, jnp.ones((), dtype)))
        )
        return Start(State(jnp.zeros((), dtype), q, jnp.zeros((q.shape[0] - 1,), dtype)), (pick, place))

    def observe(self, system: Any, state: Any, goal: Any) -> Any:
        at = self.place(state)
        rates = state.v[jnp.asarray(self.rates)] / 10.0
        way = jnp.stack([self.wanted(state, goal) - at, goal[1] - at]).reshape(-1) / _NEAR
        return jnp.concatenate([state.q[jnp.asarray(self.arms)], rates, at / _NEAR, way])

    def reward(self, system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
        away = self.place(new) - self.wanted(state, goal)
        return (
            -jnp.sqrt(away @ away + 1e-8) / _NEAR
            - 0.02 * (action @ action)
            + jnp.where(self.terminated(system, new, goal), _OUT, 0.0)
        )

    def terminated(self, system: Any, state: Any, goal: Any) -> Any:
        x, y, z = self.place(state)
        return (x**2 + y**2 > _WITHIN**2) | (z < _DEEP) | (z > _HIGHEST)


def delta_pick() -> Task:
    """Return the pick-and-place task of a Delta robot: its tool moves to a place, at half time to another.

    Observation (15,): motor angles in rad, their rates in units of 10 rad/s, the tool position, and the
    vectors from it to the current target and to the second place, in decimeters. Action (3,): motor torques,
    at most 4 N m. Reward: minus the remaining distance in decimeters and minus 0.02 |action|^2. All places
    are in a box of 24 cm by 24 cm by 10 cm. If the tool is more than 20 cm from the axis, or at heights that
    would stretch the arms, the episode ends with a reward of -50. 60 actions of 20 ms.

    Parameters to randomize: "mass" (4,), "inertia" (4, 3, 3), of which the last entry is the platform with
    its load.
    """
    system, q = jm.mechanism(description(), jm.Joints())
    coordinates, velocities = list(system.names.coordinates), list(system.names.velocities)
    steps, dt, limit = 4, 0.005, 60
    at = _Platform(
        arms=tuple(coordinates.index(f"motor{k}.angle") for k in range(3)),
        rates=tuple(velocities.index(f"motor{k}.angle_rate") for k in range(3)),
        pose=tuple(coordinates.index(f"platform.{name}") for name in ("x", "y", "z", "qw", "qx", "qy", "qz")),
        half=0.5 * limit * steps * dt,
    )
    return Task(
        system=system,
        integrator=Projected(SemiImplicitEuler()),
        reset=at.reset,
        observe=at.observe,
        reward=at.reward,
        terminated=at.terminated,
        control=Limits(jnp.full((3,), 4.0, q.dtype)),
        actions=3,
        dt=dt,
        steps=steps,
        limit=limit,
        failure=-100.0,
    )


def description() -> Any:
    """Return the description of the robot with level arms."""
    gap = _BASE + _ARM - _PLATFORM
    height = -math.sqrt(_ROD**2 - gap**2)
    bodies, joints, motors = [], [], []
    for k, angle in enumerate(_ANGLES):
        e, across = (math.cos(angle), math.sin(angle), 0.0), (-math.sin(angle), math.cos(angle), 0.0)
        middle = tuple((_BASE + 0.5 * _ARM) * x for x in e)
        bodies.append(js.Body(f"arm{k}", 0.15, (6e-4, 6e-4, 6e-4), middle))
        joints.append(js.Revolute(f"motor{k}", "ground", f"arm{k}", across, at=tuple(_BASE * x for x in e)))
        for side in (-1.0, 1.0):
            elbow = tuple((_BASE + _ARM) * x + side * _APART * y for x, y in zip(e, across, strict=True))
            ball = tuple(
                _PLATFORM * x + side * _APART * y + z
                for x, y, z in zip(e, across, (0.0, 0.0, height), strict=True)
            )
            joints.append(js.Rod(f"rod{k}{'lr'[side > 0]}", f"arm{k}", "platform", at_a=elbow, at_b=ball))
        motors.append(js.JointForce(f"torque{k}", f"motor{k}", input=k))
    bodies.append(js.Body("platform", 0.3, (3e-4, 3e-4, 5e-4), (0.0, 0.0, height)))
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, forces=motors)


def arm_angles(tool: Any) -> Any:
    """Return the motor angles (3,) in rad, down from the horizontal, for a tool position (3,) in m."""
    angles = jnp.asarray(_ANGLES, tool.dtype)
    x = tool[0] * jnp.cos(angles) + tool[1] * jnp.sin(angles) + _PLATFORM - _BASE
    y = tool[1] * jnp.cos(angles) - tool[0] * jnp.sin(angles)
    far = jnp.hypot(x, tool[2])
    right = x**2 + y**2 + tool[2] ** 2 + _ARM**2 - _ROD**2
    return jnp.arctan2(-tool[2], x) - jnp.arccos(right / (2.0 * _ARM * far))
