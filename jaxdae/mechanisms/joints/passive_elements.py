"""Springs, damping, dry friction and motor inertia (armature) along the coordinates of a joint.

With s a coordinate of the joint, each coordinate has the effort

    e = -stiffness (s - rest) - damping s' - friction tanh(s' / friction_speed) - armature s'',

which acts on b, with its reaction on a. The armature is the inertia of parts that turn with the coordinate
alone, such as a motor rotor: rotor inertia times the square of the gear ratio. Its kinetic energy is armature
s'^2 / 2. With s' = S v and s'' = S a + sigma, it adds S^T armature S to the mass matrix and -S^T armature
sigma to the forces. Limits and exact dry friction are rows of a step with contact (`couplings.joint_limits`).
For a tree joint in joint coordinates, S selects one velocity. Otherwise S couples two
bodies, so the mass matrix is no longer block diagonal by body.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.angle_limits import doubts_of, limits_in_degrees, rests_in_degrees
from jaxdae.mechanisms.describe.elements import Joint, Number
from jaxdae.mechanisms.describe.kinds import NOTHING
from jaxdae.mechanisms.describe.measures import Kinematics, Pairs
from jaxdae.mechanisms.describe.numbers import is_number, is_there
from jaxdae.mechanisms.describe.passive_effort import passive_effort
from jaxdae.mechanisms.joints.spatial_measures import nearest_turn


def _at_start(joint: Any, a: Any, b: Any) -> Any:
    """Return the coordinates at the start pose, or zeros without a spring, to save measuring all joints."""
    if is_there(joint.stiffness):
        return _measured(joint, a, b)
    count = len(joint.coordinates)
    return jnp.zeros(() if count == 1 else (count,), joint.stiffness.dtype)


def _measured(joint: Any, a: Any, b: Any) -> Any:
    """Return the coordinates of a joint at the frames of its bodies: () or (k,)."""
    measured = jnp.stack(joint.coordinate(a, b, None))
    return measured[0] if measured.shape[0] == 1 else measured


def with_rest(joints: Sequence[Any], frames: Mapping[str, Any], numbers: Mapping[str, int]) -> list[Any]:
    """Return described joints, with the coordinates of the start pose as `rest` of joints without a spring.

    This applies if another joint of the type has a spring. The group then has the stiffness of all its
    joints, and a stiffness that is set later must pull to the start pose.

    Args:
        joints: the described joints.
        frames: the frames of all bodies at the start pose, by name.
        numbers: the indices of all bodies, by name.
    """
    elastic = {type(joint) for joint in joints if is_there(getattr(joint, "stiffness", 0.0))}

    def rested(joint: Any) -> Any:
        if type(joint) not in elastic or is_there(joint.stiffness) or joint.rest is not None:
            return joint
        placed = joint.placed(frames, numbers)
        return dataclasses.replace(joint, rest=_measured(placed, frames[joint.a], frames[joint.b]))

    return [rested(joint) for joint in joints]


@pytree(kw_only=True)
class WithElements(Joint):
    """A type of joint with coordinates, along which something may act.

    `rest` is a value of the joint coordinate, as is q in joint coordinates; see docs/coordinates.md, "Zero of
    a joint coordinate".
    """

    movable: ClassVar[bool] = True

    counts_turns: ClassVar[bool] = True
    """Whether angles count full turns when measured between frames. If not, springs pull to the nearest turn.

    Near half a turn from rest, where such a spring jumps, the status is OUT_OF_RANGE.
    """

    damping: Number = fields.per_coordinate(
        "the damping", {"rad": "N m s/rad", "m": "N s/m"}, value=0.0, at_least=0.0
    )
    friction: Number = fields.per_coordinate(
        "the dry friction", {"rad": "N m", "m": "N"}, value=0.0, at_least=0.0
    )
    friction_speed: Number = fields.per_coordinate(
        "the speed at which friction reaches 76 % of its maximum",
        {"rad": "rad/s", "m": "m/s"},
        value=0.01,
        above=0.0,
        needs="friction",
    )
    stiffness: Number = fields.per_coordinate(
        "the stiffness of a spring", {"rad": "N m/rad", "m": "N/m"}, value=0.0, at_least=0.0
    )
    rest: Number = fields.per_coordinate(
        "the coordinate at which the spring force is zero",
        {"rad": "rad", "m": "m"},
        value=None,
        at_start=_at_start,
        needs="stiffness",
        default="the value at the start pose",
    )
    armature: Number = fields.per_coordinate(
        "the inertia that a motor adds (armature)", {"rad": "kg m^2", "m": "kg"}, value=0.0, at_least=0.0
    )
    limits: Any = fields.limits("the limits (lower, upper) of the coordinate", {"rad": "rad", "m": "m"})
    restitution: Number = fields.per_coordinate(
        "the restitution of the limits, from 0 to 1",
        {"rad": "", "m": ""},
        value=0.0,
        at_least=0.0,
        at_most=1.0,
        needs="limits",
        transient=True,
    )
    dry_friction: Number = fields.per_coordinate(
        "the largest effort of exact dry friction, which sticks",
        {"rad": "N m", "m": "N"},
        value=0.0,
        at_least=0.0,
        transient=True,
    )

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield warnings about angles that are probably in degrees: `rest` and `limits`."""
        kinds: dict[str, Any] = self.kinds()
        angles = [unit == "rad" for unit in self.coordinates.values()]
        for name, in_degrees in (("limits", limits_in_degrees), ("rest", rests_in_degrees)):
            value = getattr(self, name)
            each = [] if value is None else kinds[name].each(value)
            given = [one for one, angle in zip(each, angles, strict=False) if angle and one is not None]
            bounds = [x for one in given for x in (one if isinstance(one, tuple) else (one,))]
            yield from doubts_of(name, bounds, in_degrees)

    def idle(self, space: Any) -> Iterable[tuple[str, str]]:
        """Yield each known number without effect, such as the restitution of a coordinate without limits.

        One number applies to all coordinates; it has an effect if any coordinate has limits.
        """
        yield from super().idle(space)
        kinds: dict[str, Any] = self.kinds(space)
        if self.limits is None or any(
            any(kinds[name].mistakes(getattr(self, name), NOTHING)) for name in ("limits", "restitution")
        ):
            return
        pairs = kinds["limits"].each(self.limits)
        idle = [
            x for x, pair in zip(kinds["restitution"].each(self.restitution), pairs, strict=True) if not pair
        ]
        if any(map(is_there, idle)) and not (is_number(self.restitution) and any(pairs)):
            yield "restitution", "limits"

    @property
    def conserves_energy(self) -> bool:
        """Whether the joint has neither damping nor friction, and no limits with loss."""
        lossy = self.limits is not None or any(map(is_there, (self.damping, self.friction)))
        return not lossy and not is_there(self.dry_friction)

    @property
    def acts(self) -> bool:
        """Whether a group has any effort along its coordinates."""
        return any(
            number is not None for number in (self.damping, self.friction, self.stiffness, self.armature)
        )

    @property
    def springs(self) -> bool:
        """Whether a group has springs along its coordinates."""
        return self.stiffness is not None

    @property
    def reflects(self) -> bool:
        """Whether a group has armature along its coordinates."""
        return self.armature is not None

    def elements(self) -> dict[str, Any]:
        """Return the spring, damping, friction and armature fields of a group by name."""
        return {
            name: getattr(self, name)
            for name in ("damping", "friction", "friction_speed", "stiffness", "rest", "armature")
        }

    def each(self, number: Any) -> Array:
        """Return a field of a group with one number per coordinate (k, coordinates)."""
        return number.reshape(-1, len(self.coordinates))

    def stretch(self, s: Array) -> Array:
        """Return the deflections from rest of coordinates (k, coordinates) of a group."""
        ways = s - self.each(self.rest)
        if self.counts_turns:
            return ways
        nearest: Any = nearest_turn(ways)
        turning = np.asarray([unit == "rad" for unit in self.coordinates.values()])
        return jnp.where(turning, nearest, ways)  # pyright: ignore[reportReturnType]

    @property
    def forgets(self) -> bool:
        """Whether a group has springs on angles that are known modulo 2 pi only."""
        return self.stiffness is not None and not self.counts_turns and "rad" in self.coordinates.values()

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether an angle ends half a turn from the rest angle of its spring.

        Args:
            s: the coordinates (k, coordinates) of a group.
            ends: maps deflections (k, coordinates) to whether each one is near half a turn.

        Returns:
            One flag per element (k,).
        """
        turning = np.asarray([unit == "rad" for unit in self.coordinates.values()])
        return jnp.any(turning & ends(self.stretch(s)) & (self.each(self.stiffness) != 0.0), axis=1)


def efforts(group: WithElements, pair: Pairs, motion: Kinematics, t: Any) -> Array:
    """Return the efforts along the coordinates of a group (k, coordinates) in N and N m.

    The result omits the armature term in S a, which is part of the mass matrix.
    """
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
    """Return the spring energy of a group in J."""
    stretch = group.stretch(fr.values(type(group).coordinate, group, pair, motion, t))
    return 0.5 * jnp.sum(group.each(group.stiffness) * stretch**2)
