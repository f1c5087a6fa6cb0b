"""Shared base class of geared joint motors, in the plane and in space."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.elements import Force, Joint, Number
from jaxdae.mechanisms.describe.numbers import is_there, real

NO_RATIO = "use 1 for a motor without gears"
"""The remedy for a ratio of zero."""


@pytree
class GearedMotor(Force):
    """What the motors of both spaces share."""

    joint: Any = fields.joint("the joint that is driven")
    ratio: Number = fields.number(
        "rotor angle per joint angle, or rad per m of a slide; may be negative",
        value=1.0,
        nonzero=NO_RATIO,
    )
    rotor_inertia: Number = fields.number("the inertia of the rotor", "kg m^2", value=0.0, at_least=0.0)
    torque: Number = fields.number("the torque on the rotor", "N m", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number(
        "the torque per unit of input", "N m", value=1.0, in_config=False, needs="input"
    )

    @property
    def coordinate_name(self) -> str | None:
        """The name of the driven coordinate, or None for the first coordinate."""
        return None

    def adds_to(self, joint: Joint) -> Joint:
        """Return the driven joint with the reflected rotor inertia added; return other joints unchanged."""
        if joint.name != self.joint or not is_there(self.rotor_inertia):
            return joint
        armature, names = joint.elements()["armature"], list(joint.coordinates)
        number = 0 if self.coordinate_name is None else names.index(self.coordinate_name)
        own = jnp.zeros((len(names),)).at[number].set(real(self.rotor_inertia) * real(self.ratio) ** 2)
        total = jnp.broadcast_to(jnp.asarray(armature, own.dtype), own.shape) + own
        changes: dict[str, Any] = {"armature": total if len(names) > 1 else total[0]}
        return dataclasses.replace(joint, **changes)  # pyright: ignore[reportArgumentType, reportCallIssue]
