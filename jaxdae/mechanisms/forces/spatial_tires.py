"""Tire forces of thin discs that slip on terrain in space.

A `SlidingDisc` constrains only the height of a wheel. With its contact p, rolling direction t, l = n x t to
the left of t, and c the velocity of the material point of the wheel at p, its tire has the inputs

    w_x = t . c,      w_y = l . c,      v_x = t . (velocity of the center),      rim speed V_r = v_x - w_x,

and returns F_x along t and F_y along l at p, by the laws of `jaxdae.mechanisms.forces.planar_tires`. The
wheel is the spinning body, so F_x also turns it, by virtual work.

Here the normal load F_z is a number. The normal load of a moving vehicle is the multiplier of the height row,
`jaxdae.vehicles.HeightLoads`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.spatial_frames import Frame, Twist
from jaxdae.mechanisms.describe import elements, fields
from jaxdae.mechanisms.describe.attachments import TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Rows
from jaxdae.mechanisms.describe.kinds import Known
from jaxdae.mechanisms.describe.measures import Derivatives
from jaxdae.mechanisms.describe.numbers import hint, said
from jaxdae.mechanisms.describe.plane_and_space import SPACE, Plane, Space
from jaxdae.mechanisms.forces.planar_tires import BrushLaw, MagicFormulaLaw, parameters
from jaxdae.mechanisms.joints.terrain_contact import TIRES, Touch
from jaxdae.mechanisms.joints.terrain_wheels import SlidingDisc


@pytree(kw_only=True)
class TerrainContact(TwoBodies, elements.Force):
    """A tire between a, the body with the terrain, and b, the wheel."""

    space: ClassVar[Plane | Space] = SPACE
    quasi: ClassVar[bool] = True
    derivatives: ClassVar[Derivatives] = TIRES

    a: BodyName = fields.body("the body with the terrain, or ground")
    b: BodyName = fields.body("the wheel")
    joint: Any = fields.inner()
    stands_on: Any = fields.index("the name of the joint whose height row holds the wheel")

    @property
    def key(self) -> str:
        """The name of the element's group, from the terrain type."""
        wheel: Any = self.joint
        return f"{self.type_key()}_{type(wheel.terrain).__name__.lower()}"

    def touch(self, a: Frame, b: Frame) -> Touch:
        """Return the contact of the wheel."""
        wheel: Any = self.joint
        return wheel.touch(a, b)

    def rate(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return w_x, w_y and v_x in m/s."""
        rows = self.touch(a, b).of_tire()
        return tuple(e.dot(moving_b.at(b, place) - moving_a.at(a, place)) for e, place in rows)

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return F_x and F_y in N, and zero."""
        force_x, force_y = self.forces(rate[0], rate[1], rate[2])
        return jnp.stack([force_x, force_y, jnp.zeros_like(force_x)])

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return F_x and F_y in N from slip speeds w_x, w_y and the speed v_x in m/s."""
        raise NotImplementedError(f"{type(self).__name__}.forces")


@pytree(kw_only=True)
class BrushOnTerrain(BrushLaw, TerrainContact):
    """F of a brush."""


@pytree(kw_only=True)
class MagicFormulaOnTerrain(MagicFormulaLaw, TerrainContact):
    """F of the Magic Formula."""


@pytree(kw_only=True)
class TireOnWheel(elements.Force):
    """Base class of tire descriptions for wheels on terrain."""

    space: ClassVar[Plane | Space] = SPACE
    contact: ClassVar[type[TerrainContact]]
    law: ClassVar[type[Any]]

    wheel: Any = fields.wheel("the sliding disc that has the tire")

    @property
    def conserves_energy(self) -> bool:
        """False, because slip dissipates energy."""
        return False

    def unknown(self, names: Known) -> Iterable[str]:
        """Yield an error if the wheel does not exist."""
        if not isinstance(self.wheel, str) or self.wheel not in names.coordinates:
            yield (
                f"wheel is {said(self.wheel)}, which is not a "
                f"joint{hint(self.wheel, list(names.coordinates))}"
            )

    def resolved(self, joints: Mapping[str, Any]) -> elements.Force:
        """Return the tire between the terrain and its wheel.

        Raises:
            ValueError: if the joint is not a `SlidingDisc`.
        """
        wheel = joints[self.wheel]
        if not isinstance(wheel, SlidingDisc):
            raise ValueError(
                f"force {self.name!r}: wheel must be a SlidingDisc, which leaves the lateral force to its "
                f"tire; {self.wheel!r} is a {type(wheel).__name__}"
            )
        return self.contact(
            name=self.name, a=wheel.a, b=wheel.b, joint=wheel, stands_on=self.wheel, **parameters(self)
        )  # pyright: ignore[reportCallIssue]


@pytree(kw_only=True)
class BrushTire(BrushLaw, TireOnWheel):
    """Fiala's brush tire with combined slip on terrain: a disc with elastic bristles."""

    contact: ClassVar[type[TerrainContact]] = BrushOnTerrain
    law: ClassVar[type[Any]] = BrushLaw


@pytree(kw_only=True)
class MagicFormulaTire(MagicFormulaLaw, TireOnWheel):
    """Pacejka's Magic Formula on a disc that slides on terrain, one curve for combined slip."""

    contact: ClassVar[type[TerrainContact]] = MagicFormulaOnTerrain
    law: ClassVar[type[Any]] = MagicFormulaLaw


TERRAIN_TIRES = (BrushTire, MagicFormulaTire)
