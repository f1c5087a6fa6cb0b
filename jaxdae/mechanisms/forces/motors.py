"""Motors with gears in joints: what those of both spaces share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import Force, Joint, Name, Number
from jaxdae.mechanisms.values import concrete, is_there, real
from jaxdae.spelling import brief


@pytree
class GearedMotor(Force):
    """What the motors of both spaces share."""

    name: Name = fields.name("force")
    joint: Any = fields.joint("the joint that is driven")
    ratio: Number = fields.number("turns of the rotor for one of the joint, or rad for a m of a slide; may be negative", value=1.0)
    rotor_inertia: Number = fields.number("the inertia of the rotor", "kg m^2", value=0.0, at_least=0.0)
    torque: Number = fields.number("the torque on the rotor", "N m", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number("the torque of the input", "N m", value=1.0, in_config=False)

    @property
    def coordinate_name(self) -> str | None:
        """The name of the coordinate that is driven, None for the first."""
        return None

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a ratio of zero and a negative inertia."""
        ratio, inertia = concrete(self.ratio), concrete(self.rotor_inertia)
        if ratio is not None and ratio.shape == () and ratio == 0.0:
            yield "ratio must not be zero: give 1 for a motor without gears"
        if inertia is not None and inertia.shape == () and inertia < 0.0:
            yield f"rotor_inertia must not be negative, got {brief(self.rotor_inertia, str)}"

    def adds_to(self, joint: Joint) -> Joint:
        """Returns the driven joint with the inertia of the rotor, as its coordinate feels it; others as they are."""
        if joint.name != self.joint or not is_there(self.rotor_inertia):
            return joint
        armature, names = joint.elements()["armature"], list(joint.coordinates)
        number = 0 if self.coordinate_name is None else names.index(self.coordinate_name)
        own = jnp.zeros((len(names),)).at[number].set(real(self.rotor_inertia) * real(self.ratio) ** 2)
        total = jnp.broadcast_to(jnp.asarray(armature, own.dtype), own.shape) + own
        changes: dict[str, Any] = {"armature": total if len(names) > 1 else total[0]}
        return dataclasses.replace(joint, **changes)  # pyright: ignore[reportArgumentType, reportCallIssue]
