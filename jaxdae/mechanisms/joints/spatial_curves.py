"""Points that stay on a curve or on a surface, and spheres that roll on a surface of any shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree
from jaxdae.geometry.spatial import Frame, Twist, Vector
from jaxdae.mechanisms import fields
from jaxdae.mechanisms.describe import BodyName, Name, Number, Place, Rows
from jaxdae.mechanisms.joints.spatial_base import SpatialJoint
from jaxdae.mechanisms.kinds import GROUND, NOTHING
from jaxdae.mechanisms.values import concrete
from jaxdae.spelling import brief

_SAMPLES = 64
"""The number of samples among which the nearest point of a curve is looked for first."""

_ITERATIONS = 8
"""Newton's method from there: the error of a point that is well within a sample's width squares in each, far more than enough."""


@pytree
class PointOnCurve(SpatialJoint):
    """A bead on a wire: a point of b stays on a curve that is fixed in a, and b turns freely.

    The curve is r(s), a place (3,) in the frame of a (ground: the world) in m for s from `first` to `last`, smooth and with r' != 0. With
    p the point of b in the frame of a, the rows are p - r(s) in two directions across the curve, where s is that of the nearest point,

        phi(s, p) = (r(s) - p) . r'(s) = 0.

    s is no coordinate: the nearest of some samples starts Newton's method, and s has the derivatives of an implicit function,
    ds/dp = r'(s) / (|r'|^2 + (r - p) . r''), so that the rows have exact derivatives of all orders. The directions across the curve are
    fixed ones, freed of their part along it: at the axes of a that are farthest from the tangent, so that they jump along some curves; the
    constraint force does not. The ends do not hold the bead: beyond them the curve goes on as its function does, but samples are
    between them. Where Newton's method finds no way from an end to the bead, as from 1 to 1.4 on y = x^3, a rollout ends NOT_CONVERGED, and
    accelerations of such a state are wrong: give ends beyond the motion.

    Derivatives with respect to the numbers of the curve are exact as well. One evaluation of the rows costs some 80 of the curve.
    """

    rows: ClassVar[dict[str, str]] = {"across_1": "m", "across_2": "m"}

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the body with the curve, or ground")
    b: BodyName = fields.body("the body with the point, or ground")
    curve: Any = fields.curve("the curve, a function of s that returns a place (3,) in the frame of a in m")
    at: Place = fields.world("the point")
    point_b: Place = fields.point("the point", "b", "at")
    first: Number = fields.number("the parameter s where the curve begins", value=0.0)
    last: Number = fields.number("the parameter s where it ends", value=1.0)

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to: by the kind of curve."""
        return f"{self.type_key()}_{type(self.curve).__name__.lower()}"

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a curve without length."""
        first, last = concrete(self.first), concrete(self.last)
        if first is None or last is None or first.shape != () or last.shape != ():
            return
        if first == last:
            yield "first and last must differ: they are the parameters of the ends of the curve"
            return
        if list(self.kinds()["curve"].mistakes(self.curve, NOTHING)):
            return  # The field says so by itself.
        found = concrete(jnp.stack([jnp.asarray(self.curve(jnp.asarray(s))) for s in np.linspace(first, last, 5)]))
        if found is not None and not np.all(np.isfinite(found)):
            yield f"curve must return finite places for s = {self.first} to {self.last}, got {brief(found.tolist())}: move first and last"
        elif found is not None and np.all(found == found[0]):
            yield f"curve must not stay at one place, got {found[0].tolist()} for s = {self.first} to {self.last}: use a Ball"

    def parameter(self, p: Array) -> Array:
        """Returns s of the point of the curve that is nearest to a place p (3,) of the frame of a."""
        samples = self.first + (self.last - self.first) * jnp.linspace(0.0, 1.0, _SAMPLES, dtype=p.dtype)
        squares = jnp.sum((jax.vmap(self.curve)(samples) - p) ** 2, axis=1)
        start = jax.lax.stop_gradient(samples[jnp.argmin(squares)])

        def slope(s: Array) -> Array:
            r, tangent = jax.jvp(self.curve, (s,), (jnp.ones_like(s),))
            return jnp.sum((r - p) * tangent)

        def solved(f: Any, s: Array) -> Array:
            for _ in range(_ITERATIONS):
                value, derivative = jax.jvp(f, (s,), (jnp.ones_like(s),))
                s = s - value / derivative
            return s

        return jax.lax.custom_root(slope, start, solved, lambda linear, y: y / linear(jnp.ones_like(y)))

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the distances across the curve in m; the multipliers are forces in N."""
        p = a.turned_back(b.point(self.point_b) - a.place).array()
        r, tangent = jax.jvp(self.curve, (s := self.parameter(p),), (jnp.ones_like(s),))
        tangent = tangent / jnp.sqrt(jnp.sum(tangent**2))
        away = jnp.eye(3, dtype=p.dtype)[jnp.argmin(jnp.abs(tangent))]
        first = away - jnp.sum(away * tangent) * tangent
        first = first / jnp.sqrt(jnp.sum(first**2))
        gap = p - r
        return jnp.sum(gap * first), jnp.sum(gap * jnp.cross(tangent, first))


@pytree
class PointOnSurface(SpatialJoint):
    """A point of b stays on a surface that is fixed in a, and b turns freely.

    The surface is f(p) = 0 with a function of places p (3,) in the frame of a (ground: the world), whose gradient is not zero there. The
    row is f / |grad f|, the distance from the surface to first order, so that it does not depend on the scale of f and its multiplier is
    the force along the normal.
    """

    rows: ClassVar[dict[str, str]] = {"normal": "m"}

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the body with the surface, or ground")
    b: BodyName = fields.body("the body with the point, or ground")
    surface: Any = fields.surface("the surface, a function of a place (3,) in the frame of a in m that is zero on it")
    at: Place = fields.world("the point")
    point_b: Place = fields.point("the point", "b", "at")

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to: by the kind of surface."""
        return f"{self.type_key()}_{type(self.surface).__name__.lower()}"

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the distance from the surface to first order in m; the multiplier is the force along its gradient in N."""
        value, gradient = jax.value_and_grad(self.surface)(a.turned_back(b.point(self.point_b) - a.place).array())
        return (value / jnp.sqrt(jnp.sum(gradient**2)),)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a surface that has no normal at the start."""
        length = _steepness(self, places["point_b"])
        if length is not None and not 0.0 < length < np.inf:
            yield (
                f"surface must have a gradient at the start, got one of length {length:.6g} at {places['point_b'].tolist()}:"
                " start elsewhere, or write the surface as a function that is smooth and not flat there"
            )


def _steepness(joint: Any, place: Any) -> float | None:
    """Returns the length of the gradient of a surface at a place of the world at the start, None where it is not known."""
    if place is None or joint.a != GROUND:
        return None  # The frame of a is not known here.
    if list(joint.kinds()["surface"].mistakes(joint.surface, NOTHING)):
        return None  # The field says so by itself.
    with jax.ensure_compile_time_eval():
        length = concrete(jnp.linalg.norm(jax.grad(joint.surface)(jnp.asarray(place, jnp.result_type(float)))))
    return None if length is None else float(length)


_LENGTH = 1e-3
"""By how much the gradient of a distance may differ from length 1 at the start."""


@pytree
class SphereOnSurface(SpatialJoint):
    """A sphere rolls without slip on a surface of any shape that is fixed in a, such as the wall of a pipe; it may turn about the normal.

    The surface is a function d(p) of places p (3,) in the frame of a (ground: the world) that returns the distance from it in m, positive
    on the side of the sphere: |grad d| = 1. With c the center in that frame and n = grad d(c), the sphere touches at c - r n, and

        height     d(c) - r = 0                     multiplier: the normal force in N, positive while the surface pushes
        across_1   e_1 . (slip at the contact) = 0  multipliers: the forces of the surface on the sphere along e_1 and e_2 in N
        across_2   e_2 . (slip at the contact) = 0

    where the slip is the velocity of the material point of b at the contact against that of a, e_1 the axis of a that is farthest from
    n, freed of its part along n, and e_2 = n x e_1. e_1 jumps where another axis becomes the farthest; the force does not. Nothing tells of
    a second contact, nor of a sphere that is larger than the hollow it rolls in. On ground z = h(x, y) a `RollingSphere` does.
    """

    rows: ClassVar[dict[str, str]] = {"height": "m"}
    velocity_rows: ClassVar[dict[str, str]] = {"across_1": "m/s", "across_2": "m/s"}

    name: Name = fields.name("joint")
    a: BodyName = fields.body("the body with the surface, or ground")
    b: BodyName = fields.body("the sphere")
    surface: Any = fields.surface("the surface, a function of a place (3,) in the frame of a that returns the distance from it in m")
    at: Place = fields.world("the center of the sphere")
    point_b: Place = fields.point("the center of the sphere", "b", "at")
    radius: Number = fields.number("the radius of the sphere", "m", value=None, kw_only=True, above=0.0, required=True)

    @property
    def key(self) -> str:
        """The name of the group that the element belongs to: by the kind of surface."""
        return f"{self.type_key()}_{type(self.surface).__name__.lower()}"

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Returns the distance of the sphere from the surface in m; the multiplier is the normal force in N."""
        return (self.surface(a.turned_back(b.point(self.point_b) - a.place).array()) - self.radius,)

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Returns the slip in two directions across the normal in m/s; the multipliers are the forces of the surface there in N."""
        center = b.point(self.point_b)
        normal = jax.grad(self.surface)(a.turned_back(center - a.place).array())
        away = jnp.eye(3, dtype=normal.dtype)[jnp.argmin(jnp.abs(normal))]
        first = away - jnp.sum(away * normal) * normal
        first = first / jnp.sqrt(jnp.sum(first**2))
        place = center - a.turned(Vector(*normal)).times(self.radius)
        slip = a.turned_back(moving_b.at(b, place) - moving_a.at(a, place)).array()
        return jnp.sum(slip * first), jnp.sum(slip * jnp.cross(normal, first))

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yields a surface whose function returns no distances."""
        length = _steepness(self, places["point_b"])
        if length is not None and not abs(length - 1.0) < _LENGTH:
            yield (
                "surface must return the distance from it, whose gradient has length 1; at the start it has length"
                f" {length:.6g}: divide by that, or return sqrt(...) - radius for a pipe or a ball"
            )
