"""Shared base class of geared joint motors, in the plane and in space."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.elements import Force, Joint, Number
from jaxdae.mechanisms.describe.numbers import concrete, is_there, real
from jaxdae.mechanisms.forces.force_bases import effort_limit

NO_RATIO = "use 1 for a motor without gears"
"""The remedy for a ratio of zero."""


@pytree(kw_only=True)
class Geared(Force):
    """An effort at the joint: `ratio` times the effort at the rotor, which the other fields describe."""

    ratio: Number = fields.number("rotor angle per joint angle", value=1.0, nonzero=NO_RATIO)

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the torque or the force at the joint, in N m or N."""
        return self.ratio * super().effort(s, rate, a, b, u)

    def energy(self, s: Array) -> Any:
        """Return the potential energy of the constant part in J."""
        return self.ratio * super().energy(s)


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
    effort_limit: Number = effort_limit("the largest absolute value of the torque on the rotor", "N m")

    @property
    def coordinate_name(self) -> str | None:
        """The name of the driven coordinate, or None for the first coordinate."""
        return None

    def geared(self, effort: Force, kind: Callable[..., Force]) -> Force:
        """Return the effort of the rotor as an effort at the joint; the effort itself at ratio 1.

        Args:
            effort: the effort without the gear.
            kind: the type with the gear.
        """
        ratio = concrete(self.ratio)
        if ratio is not None and ratio == 1.0:
            return effort
        values = {field.name: getattr(effort, field.name) for field in dataclasses.fields(effort)}
        return kind(**values, ratio=self.ratio)

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
