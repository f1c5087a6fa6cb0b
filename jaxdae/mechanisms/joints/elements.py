"""What acts along the coordinates of a joint: a spring, damping, dry friction, and the inertia of a motor.

With s a coordinate of the joint, each coordinate has the effort

    e = -stiffness (s - rest) - damping s' - friction tanh(s' / friction_speed) - armature s'',

on b with its reaction on a. The armature is the inertia of what turns with the coordinate alone, such as the rotor of a motor times the
square of its gear ratio: its kinetic energy is armature s'^2 / 2. With s' = S v and s'' = S a + sigma it adds S^T armature S to the mass
matrix and -S^T armature sigma to the forces. In joint coordinates S picks one velocity for a joint of the tree; elsewhere it ties two
bodies together, so that the mass matrix is no longer one of single bodies.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms import measures as fr
from jaxdae.mechanisms.describe import Joint, Number
from jaxdae.mechanisms.joints.spatial_parts import nearest_turn
from jaxdae.mechanisms.measures import Kinematics, Pairs
from jaxdae.mechanisms.passive import passive_effort
from jaxdae.mechanisms.values import is_there


def _at_start(joint: Any, a: Any, b: Any) -> Any:
    """Returns the coordinates at the start pose; zero where nothing asks for them, because to measure all joints takes time."""
    count = len(joint.coordinates)
    measured = jnp.stack(joint.coordinate(a, b, None)) if is_there(joint.stiffness) else jnp.zeros((count,), joint.stiffness.dtype)
    return measured[0] if count == 1 else measured


@pytree(kw_only=True)
class WithElements(Joint):
    """A type of joint with coordinates, along which something may act.

    `rest` counts the coordinate of the joint, as q does in joint coordinates; see docs/coordinates.md, "Zero of a joint coordinate".
    """

    movable: ClassVar[bool] = True

    counts_turns: ClassVar[bool] = True
    """Whether its angles count full turns when they are measured between frames; springs pull to the nearest turn where they do not.

    Near half a turn from rest, where such a spring jumps, the status is OUT_OF_RANGE."""

    damping: Number = fields.per_coordinate("the damping", {"rad": "N m s/rad", "m": "N s/m"}, value=0.0, at_least=0.0)
    friction: Number = fields.per_coordinate("the dry friction", {"rad": "N m", "m": "N"}, value=0.0, at_least=0.0)
    friction_speed: Number = fields.per_coordinate(
        "the speed at which friction has 76 % of its size", {"rad": "rad/s", "m": "m/s"}, value=0.01, above=0.0, needs="friction"
    )
    stiffness: Number = fields.per_coordinate("the stiffness of a spring", {"rad": "N m/rad", "m": "N/m"}, value=0.0, at_least=0.0)
    rest: Number = fields.per_coordinate(
        "the coordinate without force of the spring",
        {"rad": "rad", "m": "m"},
        value=None,
        at_start=_at_start,
        needs="stiffness",
        default="that of the start pose",
    )
    armature: Number = fields.per_coordinate("the inertia that a motor adds", {"rad": "kg m^2", "m": "kg"}, value=0.0, at_least=0.0)

    @property
    def conserves_energy(self) -> bool:
        """Whether the joint has neither damping nor friction."""
        return not (is_there(self.damping) or is_there(self.friction))

    @property
    def acts(self) -> bool:
        """Whether something acts along the coordinates of a group."""
        return any(number is not None for number in (self.damping, self.friction, self.stiffness, self.armature))

    @property
    def springs(self) -> bool:
        """Whether there are springs along the coordinates of a group."""
        return self.stiffness is not None

    @property
    def reflects(self) -> bool:
        """Whether motors add to the inertia of the coordinates of a group."""
        return self.armature is not None

    def elements(self) -> dict[str, Any]:
        """Returns what acts along the coordinates of an element of a group, by the names of the fields."""
        return {name: getattr(self, name) for name in ("damping", "friction", "friction_speed", "stiffness", "rest", "armature")}

    def each(self, number: Any) -> Array:
        """Returns a field of a group as a number for each coordinate (k, coordinates)."""
        return number.reshape(-1, len(self.coordinates))

    def stretch(self, s: Array) -> Array:
        """Returns by how much coordinates (k, coordinates) of a group differ from those at rest."""
        ways = s - self.each(self.rest)
        if self.counts_turns:
            return ways
        nearest: Any = nearest_turn(ways)
        turning = np.asarray([unit == "rad" for unit in self.coordinates.values()])
        return jnp.where(turning, nearest, ways)  # pyright: ignore[reportReturnType]

    @property
    def forgets(self) -> bool:
        """Whether a group has springs on angles that forget full turns."""
        return self.stiffness is not None and not self.counts_turns and "rad" in self.coordinates.values()

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether an angle ends half a turn from the rest position of its spring (k,), from coordinates (k, coordinates)."""
        turning = np.asarray([unit == "rad" for unit in self.coordinates.values()])
        return jnp.any(turning & ends(self.stretch(s)) & (self.each(self.stiffness) != 0.0), axis=1)


def efforts(group: WithElements, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Returns what acts along the coordinates of a group (k, coordinates) in N and N m, without what the armature takes for S a."""
    arguments = type(group).coordinate, group, pair, motion, t
    names = "stiffness", "damping", "friction", "friction_speed"
    numbers = {name: None if (own := getattr(group, name)) is None else group.each(own) for name in names}
    rate = None if group.damping is None and group.friction is None else fr.rates(*arguments)
    stretch = None if group.stiffness is None else group.stretch(fr.values(*arguments))
    total = passive_effort(stretch, rate, **numbers)
    if group.armature is not None:
        total = total - group.each(group.armature) * fr.biases(*arguments)
    return total


def energy(group: WithElements, pair: Pairs, motion: Kinematics, t: Any) -> Any:
    """Returns the energy of the springs of a group in J."""
    stretch = group.stretch(fr.values(type(group).coordinate, group, pair, motion, t))
    return 0.5 * jnp.sum(group.each(group.stiffness) * stretch**2)
