"""Actuators in space with feedback of joint length and rate: the motors and servos of robot files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.spatial_frames import Frame
from jaxdae.mechanisms.describe import elements, fields
from jaxdae.mechanisms.describe.attachments import TwoBodies
from jaxdae.mechanisms.describe.elements import Number, Rows
from jaxdae.mechanisms.describe.kinds import Known, unknown_coordinate
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.mechanisms.describe.plane_and_space import SPACE, Plane, Space
from jaxdae.mechanisms.forces.force_bases import Driven
from jaxdae.mechanisms.forces.motors import NO_RATIO
from jaxdae.mechanisms.joints.spatial_measures import forgets_turns


@pytree
class Actuator(elements.Force):
    """A motor or servo on a joint coordinate, with affine feedback of coordinate and rate, and with bounds.

    With length L = ratio s and rate V = ratio s', the effort is ratio clip((g0 + g1 L + g2 V) clip(u) + b0 +
    b1 L + b2 V), where g is the `gain`, b the `bias` and u the input. A motor has gain (k, 0, 0). A servo
    with stiffness k and damping d to position u has gain (k, 0, 0) and bias (0, -k, -d). A velocity servo has
    gain (d, 0, 0) and bias (0, 0, -d). Angles that are coordinates count full turns; in `Joints()` these are
    the angles of the tree. All other angles are measured between frames, in (-pi, pi]. An effort that depends
    on L jumps at half a turn of such an angle: the status is OUT_OF_RANGE within 0.2 rad of half a turn.
    """

    space: ClassVar[Plane | Space] = SPACE

    joint: Any = fields.joint("the joint that is driven")
    input: Any = fields.input_index()
    ratio: Number = fields.number(
        "actuator travel per unit of the joint coordinate; may be negative", value=1.0, nonzero=NO_RATIO
    )
    gain: Any = fields.components(
        "input force, and its derivatives with respect to length and rate, N or N m",
        value=(1.0, 0.0, 0.0),
        needs="input",
    )
    bias: Any = fields.components(
        "force without input, and its derivatives with respect to length and rate, N or N m",
        value=(0.0, 0.0, 0.0),
    )
    least_force: Number = fields.number(
        "the least force", "N or N m", value=None, may_be_none=True, default="no bound"
    )
    most_force: Number = fields.number(
        "the largest force", "N or N m", value=None, may_be_none=True, default="no bound"
    )
    least_input: Number = fields.number(
        "the lower bound of the input", value=None, may_be_none=True, default="no bound", needs="input"
    )
    most_input: Number = fields.number(
        "the upper bound of the input", value=None, may_be_none=True, default="no bound", needs="input"
    )
    along: Any = fields.coordinate("the coordinate of the joint, such as slide or angle; default: the first")

    @property
    def conserves_energy(self) -> bool:
        """False, because the actuator adds or removes energy."""
        return False

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the joint does not have the coordinate."""
        return unknown_coordinate(self.joint, self.along, names)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for bounds in the wrong order."""
        for what in ("force", "input"):
            least, most = (getattr(self, f"{side}_{what}") for side in ("least", "most"))
            if least is None or most is None:
                continue
            low, high = concrete(least), concrete(most)
            if low is not None and high is not None and np.any(low > high):
                yield f"least_{what} {least:g} must not be above most_{what} {most:g}"

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the effort along the coordinate of the named joint."""
        joint = joints[self.joint]
        number = 0 if self.along is None else list(joint.coordinates).index(self.along)
        bounds = [
            sign * jnp.inf if bound is None else bound
            for bound, sign in (
                (self.least_force, -1),
                (self.most_force, 1),
                (self.least_input, -1),
                (self.most_input, 1),
            )
        ]
        return CoordinateActuator(
            self.name, joint.a, joint.b, joint, number, self.input, self.ratio, self.gain, self.bias, *bounds
        )


@pytree
class CoordinateActuator(TwoBodies, Driven):
    """An actuator along one coordinate of a joint."""

    space: ClassVar[Plane | Space] = SPACE
    of_input: ClassVar[tuple[str, ...]] = ("gain", "least_input", "most_input")
    ordered: ClassVar[tuple[tuple[str, str], ...]] = (
        ("least_force", "most_force"),
        ("least_input", "most_input"),
    )

    joint: Any = fields.inner()
    number: Any = fields.index("which coordinate")
    input: Any = fields.input_index()
    ratio: Number = fields.number(
        "actuator travel per unit of the joint coordinate", value=1.0, nonzero=NO_RATIO
    )
    gain: Any = fields.components("input force", value=(1.0, 0.0, 0.0))
    bias: Any = fields.components("force without input", value=(0.0, 0.0, 0.0))
    least_force: Number = fields.number("the least force", value=0.0)
    most_force: Number = fields.number("the largest force", value=0.0)
    least_input: Number = fields.number("the least input", value=0.0)
    most_input: Number = fields.number("the largest input", value=0.0)

    @property
    def key(self) -> str:
        """The name of the element's group, from the joint type and the coordinate index."""
        return f"actuator_{self.joint.type_key()}_{self.number[0]}"

    @property
    def measured_joint(self) -> tuple[str, int] | None:
        """The name of the measured joint and the index of the measured coordinate."""
        return self.joint.name, self.number

    def coordinate(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the coordinate in m or rad."""
        return (self.joint.coordinate(a, b, t)[self.number[0]],)

    @property
    def forgets(self) -> bool:
        """Whether the group measures angles that are known modulo 2 pi only."""
        return forgets_turns(self.joint, self.number[0])

    def lost(self, s: Array, ends: Any) -> Array:
        """Return whether an angle that the effort depends on ends at half a turn (k,)."""
        feedback = self.bias[:, 1] != 0.0
        if self.gain is not None:
            feedback |= self.gain[:, 1] != 0.0
        return ends(s[:, 0]) & feedback & (self.least_force < self.most_force)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return the torque in N m or the force in N."""
        feedback = jnp.stack([jnp.ones_like(s[0]), self.ratio * s[0], self.ratio * rate[0]])
        force = jnp.sum(self.bias * feedback)
        if self.gain is not None:
            force = force + jnp.sum(self.gain * feedback) * jnp.clip(u, self.least_input, self.most_input)
        return jnp.stack([self.ratio * jnp.clip(force, self.least_force, self.most_force)])
