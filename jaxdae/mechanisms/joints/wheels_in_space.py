"""Wheels in space on a terrain: thin discs and spheres that stand on it, and roll or slide.

A wheel is a body b with a center and a radius, the terrain z = h(x, y) is fixed in a body a, the ground mostly. With c_v the velocity of
the material point of b at the contact against that of a, n the normal of the surface, s the axle,

    height    (position)    clearance of the contact = 0          multiplier: the normal force in N, positive while the ground pushes
    lateral   (velocity)    (n x t) . c_v = 0                     t = s x n / |s x n|: the direction in which the disc rolls
    rolling   (velocity)    t . c_v = 0                           for spheres, which have no axle, t = (1, 0, h_x) / |.|

With s to the left and n up t is forward and n x t to the left (ISO 8855). c_v . n = 0 is the rate of the height row, never a third row at
velocity level, with which the height would drift: of three velocities of the contact two are rows.

The contact is found inside of the rows, and its derivatives follow from its conditions (`jaxdae.geometry.contact`). The other way is a
contact angle as a massless coordinate a wheel, with the condition of tangency as a further row. It makes M singular, so that most solvers
cannot be used, and the coordinates have to be started and named. What speaks for it, that no iteration is differentiated, holds here too:
the iteration finds a number, and one rule in closed form differentiates it. The compiled program has the iteration once for all rows and
their derivatives.

Wheel and terrain touch at one place as long as the wheel is curved more than the ground, `room` says by how much, and looks around the
wheel for a step that the contact does not know of; two contacts, and places beyond the terrain, end a rollout with a status.
Nothing keeps a wheel from being pulled at: the multiplier tells when it would lift off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree
from jaxdae.geometry.contact import (
    Contact,
    ball_contact,
    ball_correction,
    ball_margin,
    normal_at,
    rim_contact,
    rim_correction,
    rim_margin,
)
from jaxdae.geometry.spatial import Frame, Twist, Vector
from jaxdae.geometry.terrain import terrain_mistakes
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Name, Number, Place, Rows
from jaxdae.mechanisms.joints.spatial_base import SpatialJoint
from jaxdae.mechanisms.kinds import GROUND
from jaxdae.mechanisms.measures import Derivatives
from jaxdae.mechanisms.touching import TOUCHING, Touch
from jaxdae.mechanisms.values import concrete
from jaxdae.status import Status


class OnTerrain(SpatialJoint):
    """Something round that stands on a terrain."""

    rows: ClassVar[dict[str, str]] = {"height": "m"}
    derivatives: ClassVar[Derivatives] = TOUCHING
    limits: ClassVar[dict[str, Status]] = {"inside": Status.OFF_TERRAIN, "single": Status.TWO_CONTACTS}

    terrain: Any
    point_b: Place

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to: by the kind of terrain."""
        return f"{self.type_key()}_{type(self.terrain).__name__.lower()}"

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Returns where it touches the terrain, in the frame of a; faster with a guess of the direction from there to the center."""
        raise NotImplementedError(f"{type(self).__name__}.contact")

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Returns a better direction from the contact to the center, and the contact if the given one is right, in the frame of a."""
        raise NotImplementedError(f"{type(self).__name__}.corrected")

    def center(self, a: Frame, b: Frame) -> Vector:
        """Returns the center in the frame of a."""
        return a.turned_back(b.point(self.point_b) - a.place)

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the clearance in m; the multiplier is the normal force in N."""
        return (self.contact(a, b).clearance,)

    def gap(self, contact: Contact) -> Any:
        """Returns how far a contact is above the ground, vertically, in m; negative where it is in the ground."""
        # Not from the clearance, whose derivatives are exact on the ground only.
        return contact.place.z - self.terrain.height(contact.place.x, contact.place.y)

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Returns one minus the curvature of the terrain over that of the wheel.

        Where the wheel is in the ground beside the contact as well it is minus the depth there over the radius.
        """
        raise NotImplementedError(f"{type(self).__name__}.margin")

    def room(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns 1 on the terrain and -1 beyond it, and how far it is from a second contact."""
        contact = self.contact(a, b)
        inside = self.terrain.inside(contact.place.x, contact.place.y)
        one = jnp.ones_like(contact.margin)
        return jnp.where(inside, one, -one), self.margin(contact, a, b)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a start beside the terrain."""
        place = places["point_b"]
        # Of a terrain with mistakes of its own nobody knows where it ends.
        if place is not None and self.a == GROUND and not terrain_mistakes(self.terrain) and self.known_beside(place):
            yield f"starts at {[round(float(x), 6) for x in place[:2]]}, beside the terrain"

    def known_beside(self, place: Any) -> bool:
        """Returns whether a place of the world is known to be beside the terrain."""
        try:
            inside = concrete(jnp.where(self.terrain.inside(*(jnp.asarray(x) for x in place[:2])), 1.0, 0.0))
        except (AttributeError, IndexError, TypeError, ValueError):
            return False  # The terrain has mistakes of its own.
        return inside is not None and not inside

    def known_normal(self, place: Any) -> np.ndarray | None:
        """Returns the normal (3,) of the terrain under a place of the world, None where it is not known."""
        try:
            normal = concrete(normal_at(self.terrain, *(jnp.asarray(x) for x in place[:2]))[1].array())
        except (AttributeError, IndexError, TypeError, ValueError):
            return None  # The terrain has mistakes of its own.
        return normal

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Returns the direction of the rolling row in the frame of a, in the surface and of length 1."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def touch(self, a: Frame, b: Frame) -> Touch:
        """Returns the contact in the world with the directions of all rows."""
        contact = self.contact(a, b)
        forward = self.forward(contact, a, b)
        others = contact.normal.cross(forward), forward
        place = a.place + a.turned(contact.place)
        return Touch(place, a.turned(contact.normal), tuple(a.turned(e) for e in others), b.point(self.point_b))

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Returns the slip to the left and forward in m/s; the multipliers are the forces of the ground on the wheel there in N."""
        rows = self.touch(a, b).of_rolling() if self.velocity_rows else ()
        return tuple(e.dot(moving_b.at(b, place) - moving_a.at(a, place)) for e, place in rows)


def _across(direction: Vector, axle: Vector) -> Vector:
    """Returns the part of a direction across an axle, of length 1."""
    across = direction - axle.times(axle.dot(direction))
    return across.times(1.0 / jnp.sqrt(across.dot(across)))


@pytree
class DiscOnTerrain(OnTerrain):
    """What thin discs on a terrain are: an axle, a center and a radius."""

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the body with the terrain, or ground")
    b: BodyName = fields.body("the wheel")
    axis: Any = fields.direction("the axle, to the left of the direction in which the wheel rolls forward", "b", "at", default=None)
    at: Place = fields.world("the center of the wheel")
    point_b: Place = fields.point("the center of the wheel", "b", "at")
    radius: Number = fields.number("the radius of the wheel", "m", value=None, kw_only=True, above=0.0, required=True)
    terrain: Any = fields.terrain("the terrain")

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a start beside the terrain, and a disc that lies flat."""
        yield from super().mistakes(places)
        place, axle = places["point_b"], places["axis"]
        if place is None or axle is None or self.a != GROUND:
            return
        normal = self.known_normal(place)
        if normal is not None and np.linalg.norm(np.cross(axle, normal)) < 1e-12:
            yield "lies flat on the terrain, which it touches all around: its axis must not be normal to the ground"

    def axle(self, a: Frame, b: Frame) -> Vector:
        """Returns the axle in the frame of a."""
        return a.turned_back(b.direction(self.axis))

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Returns where the rim touches the terrain, in the frame of a."""
        axle = self.axle(a, b)
        return rim_contact(self.terrain, self.center(a, b), axle, self.radius, None if guess is None else _across(guess, axle))

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Returns a better direction, normal to the axle, and the contact if the given one, made so, is right."""
        axle = self.axle(a, b)
        return rim_correction(self.terrain, self.center(a, b), axle, self.radius, _across(direction, axle))

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Returns how far the disc is from a second contact."""
        return rim_margin(self.terrain, self.center(a, b), self.axle(a, b), self.radius, contact)

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Returns the direction in which the disc rolls."""
        forward = self.axle(a, b).cross(contact.normal)
        return forward.times(1.0 / jnp.sqrt(forward.dot(forward)))


@pytree
class SphereOnTerrain(OnTerrain):
    """What spheres on a terrain are: a center and a radius."""

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the body with the terrain, or ground")
    b: BodyName = fields.body("the sphere")
    at: Place = fields.world("the center of the sphere")
    point_b: Place = fields.point("the center of the sphere", "b", "at")
    radius: Number = fields.number("the radius of the sphere", "m", value=None, kw_only=True, above=0.0, required=True)
    terrain: Any = fields.terrain("the terrain")

    def contact(self, a: Frame, b: Frame, guess: Vector | None = None) -> Contact:
        """Returns where the sphere touches the terrain, in the frame of a."""
        return ball_contact(self.terrain, self.center(a, b), self.radius, guess)

    def corrected(self, direction: Vector, a: Frame, b: Frame) -> tuple[Vector, Contact]:
        """Returns a better direction, and the contact if the given one is right."""
        return ball_correction(self.terrain, self.center(a, b), self.radius, direction)

    def margin(self, contact: Contact, a: Frame, b: Frame) -> Any:
        """Returns how far the sphere is from a second contact."""
        return ball_margin(self.terrain, self.center(a, b), self.radius, contact)

    def forward(self, contact: Contact, a: Frame, b: Frame) -> Vector:
        """Returns the direction of x of a, in the surface."""
        n = contact.normal
        return Vector(n.z, jnp.zeros_like(n.z), -n.x).times(1.0 / jnp.sqrt(n.x * n.x + n.z * n.z))


@pytree
class SlidingDisc(DiscOnTerrain):
    """A thin disc stands on a terrain and slides freely: its height row only. Forces of tires act beside it.

    The disc may spin about its axle: what it touches with does not depend on it.
    """


@pytree
class RollingDisc(DiscOnTerrain):
    """A thin disc rolls over a terrain without slip, along it and sideways.

    The body b is what rolls: it spins about its axle, so that the body of a wheel on a hinge is meant and not the frame that carries it.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s", "rolling": "m/s"}


@pytree
class SlidingSphere(SphereOnTerrain):
    """A sphere stands on a terrain and slides freely: its height row only."""


@pytree
class RollingSphere(SphereOnTerrain):
    """A sphere rolls over a terrain without slip; it may turn about the normal.

    Forward is along x of a, in the surface.
    """

    velocity_rows: ClassVar[dict[str, str]] = {"lateral": "m/s", "rolling": "m/s"}


WHEELS = (RollingDisc, RollingSphere, SlidingDisc, SlidingSphere)
