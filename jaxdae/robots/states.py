"""States of robots by the names of joints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.values import hint
from jaxdae.spelling import brief
from jaxdae.system import State
from jaxdae.typing import Coordinates


def joint_state(mechanism: Mechanism, q: Coordinates, positions: Mapping[str, Any], rates: Mapping[str, Any] | None = None) -> State:
    """Returns a state at t = 0 of a mechanism in joint coordinates, by the names of joints.

    Args:
        mechanism: as `jm.mechanism(description, jm.Joints())` returns it.
        q: the coordinates of all that is not named, such as the second that `jm.mechanism` returns (nq,).
        positions: in rad and m, such as `robot.start`: a number for a joint with one coordinate, as many as it has for others, such as the
            four of a quaternion wxyz, and under the name of a free link its seven, place of its origin and quaternion.
        rates: in rad/s and m/s, in the same way; zero where not named.

    Raises:
        ValueError: a name without coordinates, or another count of numbers.

    Differentiable with respect to positions and rates.
    """
    names = mechanism.names
    v = jnp.zeros((len(names.velocities),), q.dtype)
    parts = []
    for what, given, of, values in (("positions", positions, names.coordinates, q), ("rates", rates or {}, names.velocities, v)):
        places: dict[str, list[int]] = {}
        for k, name in enumerate(of):
            places.setdefault(name.rsplit(".", 1)[0], []).append(k)
        for name, numbers in given.items():
            if name not in places:
                raise ValueError(f"joint_state: {what} of {brief(name)}, which is no joint with coordinates{hint(name, list(places))}")
            count, given_numbers = len(places[name]), jnp.asarray(numbers, q.dtype)
            if given_numbers.shape not in (((), (1,)) if count == 1 else ((count,),)):
                named = ", ".join(of[k].rsplit(".", 1)[1] for k in places[name])
                raise ValueError(f"joint_state: {what} of {brief(name)} must be {count} numbers ({named}), got {brief(numbers)}")
            values = values.at[jnp.asarray(places[name])].set(given_numbers)
        parts.append(values)
    return State(jnp.zeros((), q.dtype), parts[0], parts[1])
