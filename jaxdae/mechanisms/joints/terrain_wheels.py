"""Wheels in space on a terrain: thin discs and spheres that roll or slide.

A wheel is a body b with a center and a radius. The terrain z = h(x, y) is fixed in a body a, usually the
ground. With c_v the velocity of the material point of b at the contact relative to a, n the normal of the
surface, and s the axle,

    height    (position)    clearance of the contact = 0          multiplier: the normal force in N, positive
    while the ground pushes
    lateral   (velocity)    (n x t) . c_v = 0                     t = s x n / |s x n|: the direction in which
    the disc rolls
    rolling   (velocity)    t . c_v = 0                           for spheres, which have no axle, t = (1, 0,
    h_x) / |.|

With s to the left and n up, t points forward and n x t to the left (ISO 8855). c_v . n = 0 is the rate of the
height row. It is not a third velocity row, because the height would then drift. Thus two of the three contact
velocity components are rows.

The rows solve for the contact, and its derivatives follow from the contact conditions
(`geometry.wheel_contact`). The alternative is a contact angle as a massless coordinate per wheel, with the
tangency condition as an additional row. It makes M singular, so most solvers cannot be used, and the
coordinates need names and initial values. Its advantage, no differentiation through an iteration, holds here
too: the iteration computes a number, and one closed-form rule differentiates it. The compiled program
contains the iteration once for all rows and their derivatives.

Wheel and terrain touch at a single point as long as the curvature of the wheel exceeds the curvature of the
ground. `room` returns this margin, and also searches around the wheel for a step that the contact does not
detect. A second contact, or a contact beyond the terrain, ends a rollout with a status. The rows can also
pull on a wheel: the sign of the multiplier tells when it would lift off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.spatial_frames import Frame, Twist, Vector
from jaxdae.geometry.terrain import terrain_mistakes
from jaxdae.geometry.wheel_contact import (
    Contact,
    ball_contact,
    ball_correction,
    ball_margin,
    normal_at,
    rim_contact,
    rim_correction,
    rim_margin,
)
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxisInB, PointOfB
from jaxdae.mechanisms.describe.elements import BodyName, Number, Rows
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.measures import Derivatives
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.mechanisms.joints.spatial_base import SpatialJoint
from jaxdae.mechanisms.joints.terrain_contact import TOUCHING, Touch
from jaxdae.systems.status import Status


@pytree
class OnTerrain(PointOfB, SpatialJoint):
    """A round body on a terrain."""

    site: ClassVar[str] = "the center of the sphere"

    rows: ClassVar[dict[str, str]] = {"height": "m"}
    derivatives: ClassVar[Derivatives] = TOUCHING
    margins: ClassVar[dict[str, Status]] = {"inside": Status.OFF_TERRAIN, "single": Status.TWO_CONTACTS}

    a: BodyName = fields.body("the body with the terrain, or ground")
    b: BodyName = fields.body("the sphere")
    radius: Number = fields.number(
        "the radius of the sphere", "m", value=None, kw_only=True, above=0.0, required=True
    )
    terrain: Any = fields.terrain("the terrain")

    @property
    def key(self) -> str:
        """The name of the element's group, from the terrain type."""
        return f"{self.type_key()}_{type(self.terrain).__name__.lower()}"

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Return the contact with the terrain, in the frame of a.

        A guess of the direction from the contact to the center makes the solution faster.
        """
        raise NotImplementedError(f"{type(self).__name__}.contact")

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Return a better direction from the contact to the center, and the contact, both in the frame of a.

        The contact is valid if the given direction is correct.
        """
        raise NotImplementedError(f"{type(self).__name__}.corrected")

    def center(self, a: Frame, b: Frame) -> Vector:
        """Return the center in the frame of a."""
        return a.turned_back(b.point(self.point_b) - a.place)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the clearance in m; the multiplier is the normal force in N."""
        return (self.contact(a, b).clearance,)

    def gap(self, contact: Contact) -> Any:
        """Return the vertical height of a contact above the ground in m; negative below the ground."""
        # The clearance is not used, because its derivatives are exact on the ground only.
        return contact.place.z - self.terrain.height(contact.place.x, contact.place.y)

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Return one minus the curvature of the terrain divided by the curvature of the wheel.

        If the wheel also penetrates the ground next to the contact, the result is minus the depth there
        divided by the radius.
        """
        raise NotImplementedError(f"{type(self).__name__}.margin")

    def room(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return 1 on the terrain and -1 beyond it, and the margin to a second contact."""
        contact = self.contact(a, b)
        inside = self.terrain.inside(contact.place.x, contact.place.y)
        one = jnp.ones_like(contact.margin)
        return jnp.where(inside, one, -one), self.margin(contact, a, b)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the start is outside the terrain."""
        place = places["point_b"]
        # The boundary of an invalid terrain is unknown.
        if (
            place is not None
            and self.a == GROUND
            and not terrain_mistakes(self.terrain)
            and self.known_beside(place)
        ):
            yield f"starts at {[round(float(x), 6) for x in place[:2]]}, outside the terrain"

    def known_beside(self, place: Any) -> bool:
        """Return whether a world position is known to be outside the terrain."""
        try:
            inside = concrete(jnp.where(self.terrain.inside(*(jnp.asarray(x) for x in place[:2])), 1.0, 0.0))
        except (AttributeError, IndexError, TypeError, ValueError):
            return False  # The terrain itself is invalid.
        return inside is not None and not inside

    def known_normal(self, place: Any) -> np.ndarray | None:
        """Return the terrain normal (3,) under a world position, or None if it is unknown."""
        try:
            normal = concrete(normal_at(self.terrain, *(jnp.asarray(x) for x in place[:2]))[1].array())
        except (AttributeError, IndexError, TypeError, ValueError):
            return None  # The terrain itself is invalid.
        return normal

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Return the unit direction of the rolling row in the frame of a, tangent to the surface."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def touch(self, a: Frame, b: Frame) -> Touch:
        """Return the contact in the world with the directions of all rows."""
        contact = self.contact(a, b)
        forward = self.forward(contact, a, b)
        others = contact.normal.cross(forward), forward
        place = a.place + a.turned(contact.place)
        return Touch(
            place, a.turned(contact.normal), tuple(a.turned(e) for e in others), b.point(self.point_b)
        )

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the slip to the left and forward in m/s.

        The multipliers are the forces of the ground on the wheel in these directions in N.
        """
        rows = self.touch(a, b).of_rolling() if self.velocity_rows else ()
        return tuple(e.dot(moving_b.at(b, place) - moving_a.at(a, place)) for e, place in rows)


def _across(direction: Vector, axle: Vector) -> Vector:
    """Return the unit vector along the component of a direction normal to an axle."""
    across = direction - axle.times(axle.dot(direction))
    return across.times(1.0 / jnp.sqrt(across.dot(across)))


@pytree
class DiscOnTerrain(OnTerrain, AxisInB):
    """A thin disc on a terrain, with an axle, a center and a radius."""

    site: ClassVar[str] = "the center of the wheel"
    line: ClassVar[str] = "the axle, to the left of the direction in which the wheel rolls forward"

    a: BodyName = fields.body("the body with the terrain, or ground")
    b: BodyName = fields.body("the wheel")
    axis: Any = fields.direction("b", "at", default=None)
    radius: Number = fields.number(
        "the radius of the wheel", "m", value=None, kw_only=True, above=0.0, required=True
    )

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for a start outside the terrain, and for a disc that lies flat."""
        yield from super().mistakes(places)
        place, axle = places["point_b"], places["axis"]
        if place is None or axle is None or self.a != GROUND:
            return
        normal = self.known_normal(place)
        if normal is not None and np.linalg.norm(np.cross(axle, normal)) < 1e-12:
            yield ("lies flat on the terrain; its axis must not be normal to the ground")

    def axle(self, a: Frame, b: Frame) -> Vector:
        """Return the axle in the frame of a."""
        return a.turned_back(b.direction(self.axis))

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Return the contact of the rim with the terrain, in the frame of a."""
        axle = self.axle(a, b)
        return rim_contact(
            self.terrain,
            self.center(a, b),
            axle,
            self.radius,
            None if guess is None else _across(guess, axle),
        )

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Return a better direction normal to the axle, and the contact.

        The contact is valid if the given direction, projected normal to the axle, is correct.
        """
        axle = self.axle(a, b)
        return rim_correction(self.terrain, self.center(a, b), axle, self.radius, _across(direction, axle))

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Return the margin of the disc to a second contact."""
        return rim_margin(self.terrain, self.center(a, b), self.axle(a, b), self.radius, contact)

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Return the rolling direction of the disc."""
        forward = self.axle(a, b).cross(contact.normal)
        return forward.times(1.0 / jnp.sqrt(forward.dot(forward)))


@pytree
class SphereOnTerrain(OnTerrain):
    """A sphere on a terrain, with a center and a radius."""

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Return the contact of the sphere with the terrain, in the frame of a."""
        return ball_contact(self.terrain, self.center(a, b), self.radius, guess)

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Return a better direction, and the contact, which is valid if the given direction is correct."""
        return ball_correction(self.terrain, self.center(a, b), self.radius, direction)

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Return the margin of the sphere to a second contact."""
        return ball_margin(self.terrain, self.center(a, b), self.radius, contact)

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Return the x direction of a, projected on the surface."""
        n = contact.normal
        return Vector(n.z, jnp.zeros_like(n.z), -n.x).times(1.0 / jnp.sqrt(n.x * n.x + n.z * n.z))


@pytree
class SlidingDisc(DiscOnTerrain):
    """A thin disc stays in contact with a terrain and slides freely. Add a tire for its horizontal forces.

    The disc may spin about its axle, because the contact does not depend on the spin.
    """


@pytree
class RollingDisc(DiscOnTerrain):
    """A thin disc rolls over a terrain without longitudinal or lateral slip.

    The body b is the rolling body, which spins about its axle. For a wheel on a hinge, b is the wheel and not
    the frame that carries it.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s", "rolling": "m/s"}


@pytree
class SlidingSphere(SphereOnTerrain):
    """A sphere stays in contact with a terrain and slides freely; it has only a height row."""


@pytree
class RollingSphere(SphereOnTerrain):
    """A sphere rolls over a terrain without slip; it may turn about the normal.

    The forward direction is along x of a, in the surface.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s", "rolling": "m/s"}


WHEELS = (RollingDisc, RollingSphere, SlidingDisc, SlidingSphere)
