"""Forces of planar mechanisms, by virtual work. `PLANAR_FORCES` lists all of them.

An element measures one or more coordinates s between two frames (a length, an angle, the position of a point)
and returns an effort e for each coordinate. The virtual work e ds gives the generalized force (ds/dq)^T e.
Therefore an element consists of its measure and its effort; `measures` computes the derivatives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame
from jaxdae.mechanisms.describe import elements, fields
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.attachments import AxisInA, PointOfBoth, TwoBodies
from jaxdae.mechanisms.describe.elements import Number, Rows
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
from jaxdae.mechanisms.forces.planar_tires import TIRES
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.joints import joint_measures


@pytree
class TorsionalSpring(TwoBodies, elements.Force):
    """A spring and damper on theta_b - theta_a; its rest angle is that of the start pose by default."""

    stiffness: Number = fields.number("the stiffness", "N m/rad", value=0.0, at_least=0.0, sparse=True)
    damping: Number = fields.number("the damping", "N m s/rad", value=0.0, at_least=0.0)
    rest_angle: Number = fields.at_start(
        "theta_b - theta_a at zero torque", "rad", joint_measures.turn, needs="stiffness"
    )

    def doubts(self, joints: Mapping[str, Any]) -> Iterable[str]:
        """Yield a warning about a rest angle that is probably in degrees."""
        yield from doubts_of("rest_angle", [self.rest_angle], rests_in_degrees)

    @property
    def conserves_energy(self) -> bool:
        """Whether the spring has no damping."""
        return self.damping == 0.0

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the relative angle in rad."""
        return (joint_measures.turn(self, a, b),)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque on b in N m."""
        spring = 0.0 if self.stiffness is None else self.stiffness * (s - self.rest_angle)
        return -spring - self.damping * rate

    def energy(self, s: Array) -> Any:
        """Return the elastic energy in J."""
        return (
            jnp.zeros_like(s[0])
            if self.stiffness is None
            else 0.5 * self.stiffness * (s[0] - self.rest_angle) ** 2
        )


@pytree
class Torque(TwoBodies, Driven):
    """A torque on b, with its reaction on a.

    It is torque + gain u[input] in N m, clipped to `effort_limit`; without `input`, it is constant.
    """

    resists: ClassVar[bool] = False
    described: ClassVar[Mapping[str, str]] = {"force": "torque"}

    torque: Number = fields.number(
        "the torque on b, with its reaction on a,", "N m", value=0.0, required=True
    )
    input: Any = fields.input_index()
    gain: Number = fields.number(
        "the torque per unit of input", "N m", value=1.0, in_config=False, needs="input"
    )
    effort_limit: Number = effort_limit()

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the relative angle in rad."""
        return (joint_measures.turn(self, a, b),)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque in N m."""
        return jnp.stack([limited(self.torque + times(self.gain, u), self.effort_limit)])

    def energy(self, s: Array) -> Any:
        """Return the potential energy of the constant part in J."""
        return -limited(self.torque, self.effort_limit) * s[0]


@pytree
class JointForce(elements.Force):
    """A torque in a revolute joint, or a force along a prismatic joint; it acts on b, its reaction on a.

    The effort is force + gain u[input], in N m or N, clipped to `effort_limit`; without `input`, it is
    constant.
    """

    joint: Any = fields.joint("the revolute or prismatic joint that is driven")
    force: Number = fields.number("the torque or force", "N m or N", value=0.0, required=True)
    input: Any = fields.input_index()
    gain: Number = fields.number(
        "the effort per unit of input", "N m or N", value=1.0, in_config=False, needs="input"
    )
    effort_limit: Number = effort_limit()

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the torque or the force along the slide."""
        effort = joints[self.joint].driven(self.name, self.force, self.input, self.gain)
        return dataclasses.replace(effort, effort_limit=self.effort_limit)


@pytree
class SlideForce(PointOfBoth, AxisInA, Driven):
    """A force along a prismatic joint, on b with its reaction on a: force + gain u[input], in N."""

    resists: ClassVar[bool] = False
    line: ClassVar[str] = "the direction of the slide"
    described: ClassVar[Mapping[str, str]] = {"torque": "force"}

    force: Number = fields.number("the force", "N", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number("the force per unit of input", "N", value=1.0)
    effort_limit: Number = effort_limit()

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the slide along the axis in m."""
        return (joint_measures.along(self, a, b),)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the force in N."""
        return jnp.stack([limited(self.force + times(self.gain, u), self.effort_limit)])

    def energy(self, s: Array) -> Any:
        """Return the potential energy of the constant part in J."""
        return -limited(self.force, self.effort_limit) * s[0]


@pytree
class GearedTorque(Geared, Torque):
    """The torque of a motor with a gear: ratio (torque + gain u[input])."""


@pytree
class GearedSlideForce(Geared, SlideForce):
    """The force of a motor with a gear along a prismatic joint: ratio (force + gain u[input])."""


@pytree
class Motor(GearedMotor):
    """A motor with a gear: effort ratio (torque + gain u[input]), and armature ratio^2 rotor_inertia.

    The rotor turns with the joint coordinate alone, ratio times as fast. Its spin about axes that turn with
    the bodies is neglected, as is usual for small rotors with large gear ratios.
    """

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the torque or the force along the slide."""
        effort = joints[self.joint].driven(self.name, self.torque, self.input, self.gain)
        effort = dataclasses.replace(effort, effort_limit=self.effort_limit)
        return self.geared(effort, GearedTorque if isinstance(effort, Torque) else GearedSlideForce)


PLANAR_FORCES = (
    LinearSpring,
    TorsionalSpring,
    Torque,
    Force,
    JointForce,
    Motor,
    Drag,
    Tendon,
    *TIRES,
)
