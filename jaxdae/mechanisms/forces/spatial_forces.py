"""Forces of spatial mechanisms, by virtual work. `SPATIAL_FORCES` lists all of them.

As in the plane, an element measures coordinates s between two frames and returns an effort for each
coordinate. Torques on bodies are not conjugate to any coordinate. They use angular velocities, as
quasi-velocities, instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.rotation import matrix_quaternion, quat_log
from jaxdae.geometry.spatial_frames import Frame, Twist
from jaxdae.mechanisms.describe import elements, fields
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.attachments import AxesOfBoth, PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Number, Rows
from jaxdae.mechanisms.describe.kinds import Known, unknown_coordinate
from jaxdae.mechanisms.describe.numbers import is_there
from jaxdae.mechanisms.describe.plane_and_space import SPACE, Plane, Space
from jaxdae.mechanisms.forces.actuators import Actuator
from jaxdae.mechanisms.forces.force_bases import (
    Drag,
    Driven,
    Force,
    LinearSpring,
    effort_limit,
    limited,
    times,
)
from jaxdae.mechanisms.forces.motors import Geared, GearedMotor
from jaxdae.mechanisms.forces.spatial_tires import TERRAIN_TIRES
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.joints import spatial_measures as parts


class SpatialForce(elements.Force):
    """A force in space."""

    space: ClassVar[Plane | Space] = SPACE


class SpatialDriven(Driven, SpatialForce):
    """A force in space that may read an input."""


@pytree
class JointForce(SpatialForce):
    """A torque or force along a joint coordinate on b, with its reaction on a, and an optional spring.

    The effort is force + gain u[input] - stiffness (s - rest), in N m or N; without `input`, the second term
    is zero. The sum of the first two terms is clipped to `effort_limit`. Angles of the tree in `Joints()`
    count full turns. A spring on any other angle pulls toward the nearest equivalent of its rest angle,
    because frames do not count turns. The force of such a spring jumps at half a turn: the status is
    OUT_OF_RANGE within 0.2 rad of half a turn.
    """

    joint: Any = fields.joint("the joint that is driven")
    force: Number = fields.number("the torque or force", "N m or N", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number(
        "the effort per unit of input", "N m or N", value=1.0, in_config=False, needs="input"
    )
    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")
    stiffness: Number = fields.number(
        "the stiffness of the spring", "N m/rad or N/m", value=0.0, at_least=0.0
    )
    rest: Number = fields.number(
        "the coordinate at which the spring force is zero", "rad or m", value=0.0, needs="stiffness"
    )
    effort_limit: Number = effort_limit()

    @property
    def conserves_energy(self) -> bool:
        """Whether the force is a spring alone.

        A constant torque has no potential, because its angle is known modulo 2 pi only.
        """
        return self.force == 0.0

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the joint does not have the coordinate."""
        return unknown_coordinate(self.joint, self.along, names)

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the effort along the coordinate of the named joint."""
        joint = joints[self.joint]
        names = list(joint.coordinates)
        number = 0 if self.along is None else names.index(self.along)
        numbers = self.force, self.input, self.gain, self.stiffness, self.rest
        return CoordinateForce(
            *(self.name, joint.a, joint.b, joint, number, joint.coordinates[names[number]] == "rad"),
            *numbers,
            effort_limit=self.effort_limit,
        )


@pytree
class CoordinateForce(TwoBodies, SpatialDriven):
    """An effort along one joint coordinate: force + gain u[input] - stiffness (s - rest), in N m or N."""

    described: ClassVar[Mapping[str, str]] = {"torque": "force"}

    joint: Any = fields.inner()
    number: Any = fields.index("which coordinate")
    turns: Any = fields.index("whether it is an angle")
    force: Number = fields.number("the torque or force", "N m or N", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number("the effort per unit of input", "N m or N", value=1.0)
    stiffness: Number = fields.number(
        "the stiffness of the spring", "N m/rad or N/m", value=0.0, at_least=0.0, sparse=True
    )
    rest: Number = fields.number(
        "the coordinate at which the spring force is zero", "rad or m", value=0.0, needs="stiffness"
    )
    effort_limit: Number = effort_limit()

    @property
    def key(self) -> str:
        """The name of the element's group, from the joint type and the coordinate index."""
        return f"joint_force_{self.joint.type_key()}_{self.number[0]}"

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield a warning about a rest angle that is probably in degrees."""
        if self.turns and is_there(self.stiffness):
            yield from doubts_of("rest", [self.rest], rests_in_degrees)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the coordinate in m or rad."""
        return (self.joint.coordinate(a, b, t)[self.number[0]],)

    @property
    def measured_joint(self) -> tuple[str, int] | None:
        """The name of the measured joint and the index of the measured coordinate; None without a spring."""
        return (self.joint.name, self.number) if is_there(self.stiffness) else None

    @property
    def forgets(self) -> bool:
        """Whether the group has springs on angles that are known modulo 2 pi only."""
        return self.stiffness is not None and parts.forgets_turns(self.joint, self.number[0])

    @property
    def nearest(self) -> Any:
        """The rest angles (k,) in rad of springs on angles that are known modulo 2 pi only, or None."""
        return self.rest if self.forgets else None

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether an angle ends half a turn from the rest angle of its spring (k,)."""
        return ends(parts.nearest_turn(s[:, 0] - self.rest)) & (self.stiffness != 0.0)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque in N m or the force in N."""
        return jnp.stack([limited(self.force + times(self.gain, u), self.effort_limit)]) - (
            0.0 if self.stiffness is None else self.stiffness * (s - self.rest)
        )

    def energy(self, s: Array) -> Any:
        """Return the potential energy of the spring in J; for a slide, add that of the constant force."""
        spring = (
            jnp.zeros_like(s[0]) if self.stiffness is None else 0.5 * self.stiffness * (s[0] - self.rest) ** 2
        )
        return spring if self.turns[0] else spring - limited(self.force, self.effort_limit) * s[0]


@pytree
class GearedCoordinateForce(Geared, CoordinateForce):
    """The effort of a motor with a gear along one joint coordinate: ratio (force + gain u[input])."""

    @property
    def key(self) -> str:
        """The name of the element's group, from the joint type and the coordinate index."""
        return f"geared_{super().key}"


@pytree
class Motor(GearedMotor, SpatialForce):
    """A motor with a gear: effort ratio (torque + gain u[input]), and armature ratio^2 rotor_inertia.

    The rotor turns with the joint coordinate alone, ratio times as fast. Its spin about axes that turn with
    the bodies is neglected, as is usual for small rotors with large gear ratios.
    """

    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")

    @property
    def coordinate_name(self) -> str | None:
        """The name of the driven coordinate, or None for the first coordinate."""
        return self.along

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the joint does not have the coordinate."""
        return unknown_coordinate(self.joint, self.along, names)

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the effort along the coordinate of the named joint."""
        effort = JointForce(
            *(self.name, self.joint, self.torque, self.input, self.gain, self.along),
            effort_limit=self.effort_limit,
        )
        return self.geared(effort.resolved(joints), GearedCoordinateForce)


@pytree
class Torque(TwoBodies, SpatialDriven):
    """A torque on b, with its reaction on a; its direction is fixed in the world, or in b with `body_frame`.

    It is torque + u[input] direction in N m; without `input`, it is constant.
    """

    resists: ClassVar[bool] = False
    quasi: ClassVar[bool] = True
    of_input: ClassVar[tuple[str, ...]] = ("direction",)

    a: BodyName = fields.body("the body with the reaction, or ground")
    b: BodyName = fields.body("the body that the torque acts on, or ground")
    torque: Any = fields.components("the torque", "N m", value=(0.0, 0.0, 0.0), required=True)
    input: Any = fields.input_index()
    direction: Any = fields.components(
        "the torque per unit of input", "N m", value=(1.0, 0.0, 0.0), in_config=False, needs="input"
    )
    body_frame: Any = fields.truth("true if the torque rotates with b", value=False)

    @property
    def conserves_energy(self) -> bool:
        """False, because a torque with fixed direction has no potential."""
        return False

    @property
    def key(self) -> str:
        """The name of the element's group: torques in the world and in bodies are separate groups."""
        return "body_torque" if self.body_frame[0] else "world_torque"

    def rate(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the angular velocity of b relative to a in the world, in rad/s."""
        return parts.spin(a, b, moving_a, moving_b)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque in the world, in N m."""
        torque = self.torque + times(self.direction, u)
        return b.direction(torque).array() if self.body_frame[0] else torque


@pytree
class RotationalDamper(TwoBodies, SpatialForce):
    """A torque against the angular velocity of b relative to a, as in a ball joint or a fluid."""

    quasi: ClassVar[bool] = True

    damping: Number = fields.number("the damping", "N m s/rad", value=0.0, at_least=0.0, required=True)

    @property
    def conserves_energy(self) -> bool:
        """Whether the damping is zero."""
        return self.damping == 0.0

    def rate(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the angular velocity of b relative to a in the world, in rad/s."""
        return parts.spin(a, b, moving_a, moving_b)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque in the world, in N m."""
        return -self.damping * rate


@pytree
class RotationalSpring(AxesOfBoth, SpatialForce):
    """A spring against the rotation of b relative to a about any axis: the stiffness of a ball joint.

    With phi the rotation vector from the spring axes in a to the spring axes in b, the energy is stiffness
    |phi|^2 / 2 and the torque on b is -stiffness phi. The measure is |phi|^2 / 2, which is differentiable at
    rest. At half a turn the torque jumps, in all coordinates: the status is OUT_OF_RANGE within 0.2 rad of
    half a turn.
    """

    stiffness: Number = fields.number("the stiffness", "N m/rad", value=0.0, at_least=0.0, required=True)

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return |phi|^2 / 2 in rad^2."""
        axes = [[parts.axis_a(self, a, i).dot(parts.axis_b(self, b, k)) for k in range(3)] for i in range(3)]
        phi = quat_log(matrix_quaternion(jnp.stack([jnp.stack(row) for row in axes])))
        return (0.5 * jnp.sum(phi * phi),)

    @property
    def forgets(self) -> bool:
        """True, because the rotation vector changes sign at half a turn."""
        return True

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether rotations are near half a turn (k,).

        The angle alone does not show whether a step passes half a turn.
        """
        return ends(jnp.sqrt(2.0 * s[:, 0])) & (self.stiffness != 0.0)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the negative derivative of the energy, in N m."""
        return -self.stiffness * jnp.ones_like(s)

    def energy(self, s: Array) -> Any:
        """Return the elastic energy in J."""
        return self.stiffness * s[0]


@pytree
class Bushing(AxesOfBoth, PointOfBoth, SpatialForce):
    """A rubber bushing between two bodies: springs and dampers along and about its axes.

    The bushing axes are the axes of body a, or the columns of `axes_a` in a; gaps are measured along them.
    Rotations are measured as in `Weld`: sin(angle) times the rotation axis. The bushing is unstrained at the
    start.
    """

    site: ClassVar[str] = "the bushing"

    stiffness: Any = fields.components(
        "the stiffness along x, y, z", "N/m", value=(0.0, 0.0, 0.0), at_least=0.0
    )
    rotational_stiffness: Any = fields.components(
        "the stiffness about x, y, z", "N m/rad", value=(0.0, 0.0, 0.0), at_least=0.0
    )
    damping: Any = fields.components(
        "the damping along x, y, z", "N s/m", value=(0.0, 0.0, 0.0), at_least=0.0
    )
    rotational_damping: Any = fields.components(
        "the damping about x, y, z", "N m s/rad", value=(0.0, 0.0, 0.0), at_least=0.0
    )

    @property
    def conserves_energy(self) -> bool:
        """Whether the bushing has no damping."""
        return not any((*self.damping, *self.rotational_damping))

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the gap along the axes in m and the rotation about them in rad."""
        return *(parts.slide(self, a, b, k) for k in range(3)), *parts.rotation(self, a, b)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return forces in N and torques in N m."""
        stiffness = jnp.concatenate([self.stiffness, self.rotational_stiffness])
        damping = jnp.concatenate([self.damping, self.rotational_damping])
        return -stiffness * s - damping * rate

    def energy(self, s: Array) -> Any:
        """Return the elastic energy in J."""
        return 0.5 * jnp.sum(jnp.concatenate([self.stiffness, self.rotational_stiffness]) * s**2)


SPATIAL_FORCES = (
    LinearSpring,
    Force,
    Torque,
    JointForce,
    Motor,
    RotationalDamper,
    RotationalSpring,
    Drag,
    Bushing,
    Actuator,
    *TERRAIN_TIRES,
    Tendon,
)
