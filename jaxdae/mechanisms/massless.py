"""The bodies and joints of a first-order mechanism, without masses and without forces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import DiagonalMatrix, MassOperator
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.mechanism_evaluation import MechanismEvaluation
from jaxdae.typing import Coordinates, Input, Scalar, Velocity

_UNUSED = ("mass", "inertia", "gravity")
"""The parameters of a `Mechanism` that do not affect velocities."""


@pytree
class _MasslessEvaluation(MechanismEvaluation):
    """The terms of a mechanism without masses and forces."""

    @property
    def mass(self) -> MassOperator:
        """The identity (nv, nv), the weight of corrections; see `KinematicSystem.mass_matrix`."""
        return DiagonalMatrix(jnp.ones((len(self.coordinates.velocity_names),), self.q.dtype))

    def applied(self, u: Input) -> Any:
        refuse("forces")


@pytree(kw_only=True)
class MasslessMechanism(Mechanism):
    """A mechanism with rows and frames only; see `KinematicMechanism.mechanism`.

    `mass`, `inertia` and `gravity` are None, as are springs, damping, friction and armature of the joints,
    because they do not change first-order motion. Functions that need them raise TypeError. `diagnose` and
    `initialize` work, in the identity metric.
    """

    evaluation: ClassVar[type[MechanismEvaluation]] = _MasslessEvaluation

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Raise TypeError."""
        refuse("kinetic energy")

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Raise TypeError."""
        refuse("potential energy")

    def named_leaf(self, names: Sequence[str]) -> tuple[str, int | tuple[int, int]] | None:
        """Return leaf path and index of a parameter named as in the description.

        Raises:
            KeyError: if the parameter has no effect in first order, for any form of path.
        """
        if names[0] in _UNUSED or (names[0] == "bodies" and names[-1] in _UNUSED) or self._acts(names):
            raise KeyError(
                f"{'.'.join(names)} does not exist in a first-order mechanism, because it does not affect "
                "the motion; leaf_paths lists all parameters, and jaxdae.mechanisms.mechanism(description) "
                "returns the second-order mechanism"
            )
        return super().named_leaf(names)

    def _acts(self, names: Sequence[str]) -> bool:
        """Return whether the path names a spring, damping, friction or armature of a joint or a group."""
        if names[0] not in ("joints", "carrying") or len(names) < 3:
            return False
        groups = (*self.joints.items(), *self.carrying.items())
        return any(names[2] in group.elements() for key, group in groups if names[1] in (key, *group.names))


def without_masses(mechanism: Mechanism) -> MasslessMechanism:
    """Return the bodies and joints of a mechanism without masses, gravity, forces and joint elements."""
    names = [field.name for field in dataclasses.fields(mechanism)]
    fields: dict[str, Any] = {name: getattr(mechanism, name) for name in names}
    joints, carrying = (
        {key: dataclasses.replace(group, **dict.fromkeys(group.elements())) for key, group in groups.items()}
        for groups in (mechanism.joints, mechanism.carrying)
    )
    fields |= dict.fromkeys(_UNUSED) | {
        "joints": joints,
        "carrying": carrying,
        "forces": {},
        "tendons": None,
        "turns": (),
        "n_inputs": 0,
    }
    return MasslessMechanism(**fields)


def refuse(what: str) -> NoReturn:
    """Raise TypeError, because a first-order mechanism has no masses or forces.

    Args:
        what: the missing quantity, a noun.
    """
    raise TypeError(
        f"a first-order mechanism has no {what}, because masses and forces do not affect its motion; use "
        "the second-order mechanism, jaxdae.mechanisms.mechanism(description)"
    )
