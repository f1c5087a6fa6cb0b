"""Points on curves and surfaces, and spheres that roll on a surface of any shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief
from jaxdae.geometry.spatial_frames import Frame, Twist, Vector
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import PointOfB, TwoBodies
from jaxdae.mechanisms.describe.elements import BodyName, Number, Rows
from jaxdae.mechanisms.describe.kinds import GROUND, NOTHING
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.mechanisms.joints.spatial_base import SpatialJoint

_SAMPLES = 64
"""Number of samples in the initial search for the nearest point of a curve."""

_ITERATIONS = 8
"""Number of Newton iterations from that sample.

Well within the sample spacing, each iteration squares the error, so this number has a large margin.
"""


@pytree
class _Curve(TwoBodies):
    curve: Any = fields.curve(
        "the curve, a function of s that returns a position (3,) in the frame of a in m"
    )


@pytree
class PointOnCurve(PointOfB, _Curve, SpatialJoint):
    """A bead on a wire: a point of b stays on a curve that is fixed in a, and b turns freely.

    The curve is r(s), a position (3,) in the frame of a (ground: the world) in m for s from `first` to
    `last`. It must be smooth with r' != 0. With p the point of b in the frame of a, the rows are p - r(s) in
    two directions normal to the curve, where s is the parameter of the nearest point,

        phi(s, p) = (r(s) - p) . r'(s) = 0.

    s is not a coordinate. Newton's method computes it, starting at the nearest of a set of samples, and s has
    the derivatives of an implicit function, ds/dp = r'(s) / (|r'|^2 + (r - p) . r''), so the rows have exact
    derivatives of all orders. The two directions start from the axis of a that is most nearly normal to the
    tangent, without its component along the tangent. They jump along some curves; the constraint force does
    not. The ends do not stop the bead: beyond them, the curve continues as its function does, but the samples
    lie between the ends. If Newton's method does not converge from an end to the bead, as from 1 to 1.4 on y
    = x^3, the rollout ends with NOT_CONVERGED, and accelerations at such a state are wrong. Choose ends
    beyond the range of motion.

    Derivatives with respect to the parameters of the curve are also exact. One evaluation of the rows costs
    about 80 evaluations of the curve.
    """

    rows: ClassVar[dict[str, str]] = {"across_1": "m", "across_2": "m"}

    site: ClassVar[str] = "the point"

    a: BodyName = fields.body("the body with the curve, or ground")
    b: BodyName = fields.body("the body with the point, or ground")
    first: Number = fields.number("the parameter s where the curve begins", value=0.0)
    last: Number = fields.number("the parameter s where it ends", value=1.0)

    @property
    def key(self) -> str:
        """The name of the element's group, from the curve type."""
        return f"{self.type_key()}_{type(self.curve).__name__.lower()}"

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the curve has no length or is not finite."""
        first, last = concrete(self.first), concrete(self.last)
        if first is None or last is None or first.shape != () or last.shape != ():
            return
        if first == last:
            yield "first and last must differ; they are the parameters of the two ends of the curve"
            return
        if list(self.kinds()["curve"].mistakes(self.curve, NOTHING)):
            return  # The field itself reports this error.
        found = concrete(
            jnp.stack([jnp.asarray(self.curve(jnp.asarray(s))) for s in np.linspace(first, last, 5)])
        )
        if found is not None and not np.all(np.isfinite(found)):
            yield (
                f"curve must return finite positions for s = {self.first} to {self.last}, got "
                f"{brief(found.tolist())}; change first and last"
            )
        elif found is not None and np.all(found == found[0]):
            yield (
                f"curve must not be a single point, got {found[0].tolist()} for s = {self.first} to "
                f"{self.last}; use a Ball instead"
            )

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the fields, and the condition that the curve has a length."""
        yield from SpatialJoint.requirements(self)
        yield self.first != self.last, "first and last must differ"

    def parameter(self, p: Array) -> Array:
        """Return the parameter s of the curve point nearest to a position p (3,) in the frame of a."""
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
        """Return the distances normal to the curve in m; the multipliers are forces in N."""
        p = a.turned_back(b.point(self.point_b) - a.place).array()
        r, tangent = jax.jvp(self.curve, (s := self.parameter(p),), (jnp.ones_like(s),))
        tangent = tangent / jnp.sqrt(jnp.sum(tangent**2))
        away = jnp.eye(3, dtype=p.dtype)[jnp.argmin(jnp.abs(tangent))]
        first = away - jnp.sum(away * tangent) * tangent
        first = first / jnp.sqrt(jnp.sum(first**2))
        gap = p - r
        return jnp.sum(gap * first), jnp.sum(gap * jnp.cross(tangent, first))


@pytree
class OnSurface(TwoBodies, SpatialJoint):
    """A joint with a surface that is fixed in a, a function of a position in the frame of a."""

    surface: Any = fields.surface(
        "the surface, a function of a position (3,) in the frame of a in m that is zero on the surface"
    )

    @property
    def key(self) -> str:
        """The name of the element's group, from the surface type."""
        return f"{self.type_key()}_{type(self.surface).__name__.lower()}"


@pytree
class PointOnSurface(PointOfB, OnSurface):
    """A point of b stays on a surface that is fixed in a, and b turns freely.

    The surface is f(p) = 0, with f a function of a position p (3,) in the frame of a (ground: the world). The
    gradient of f must not vanish on the surface. The row is f / |grad f|, the distance from the surface to
    first order. It does not depend on the scale of f, and its multiplier is the force along the normal.
    """

    rows: ClassVar[dict[str, str]] = {"normal": "m"}

    site: ClassVar[str] = "the point"

    a: BodyName = fields.body("the body with the surface, or ground")
    b: BodyName = fields.body("the body with the point, or ground")

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the distance from the surface to first order in m.

        The multiplier is the force along the gradient in N.
        """
        value, gradient = jax.value_and_grad(self.surface)(
            a.turned_back(b.point(self.point_b) - a.place).array()
        )
        return (value / jnp.sqrt(jnp.sum(gradient**2)),)

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the surface has no normal at the start."""
        length = _steepness(self, places["point_b"])
        if length is not None and not 0.0 < length < np.inf:
            yield (
                f"surface must have a finite, nonzero gradient at the start, got length {length:.6g} at "
                f"{places['point_b'].tolist()}; start elsewhere, or use a function that is smooth with a "
                "nonzero gradient there"
            )


def _steepness(joint: Any, place: Any) -> float | None:
    """Return the gradient norm of a surface at a start position in the world, or None if it is unknown."""
    if place is None or joint.a != GROUND:
        return None  # The frame of a is unknown at this stage.
    if list(joint.kinds()["surface"].mistakes(joint.surface, NOTHING)):
        return None  # The field itself reports this error.
    with jax.ensure_compile_time_eval():
        length = concrete(
            jnp.linalg.norm(jax.grad(joint.surface)(jnp.asarray(place, jnp.result_type(float))))
        )
    return None if length is None else float(length)


_LENGTH = 1e-3
"""Tolerance on the gradient norm 1 of a distance function at the start."""


@pytree
class SphereOnSurface(PointOfB, OnSurface):
    """A sphere rolls without slip on a surface of any shape that is fixed in a, such as the wall of a pipe.

    It may turn about the normal.

    The surface is a function d(p) of a position p (3,) in the frame of a (ground: the world). It returns the
    distance from the surface in m, positive on the side of the sphere: |grad d| = 1. With c the center in
    that frame and n = grad d(c), the sphere touches the surface at c - r n, and

        height     d(c) - r = 0                     multiplier: normal force in N, positive in compression
        across_1   e_1 . (slip at the contact) = 0  multiplier: force on the sphere along e_1 in N
        across_2   e_2 . (slip at the contact) = 0  multiplier: force on the sphere along e_2 in N

    The slip is the velocity of the material point of b at the contact relative to a. e_1 is the axis of a
    that is most nearly normal to n, projected normal to n, and e_2 = n x e_1. e_1 jumps when another axis
    becomes the most nearly normal axis; the force does not. This joint does not detect a second contact, or a
    sphere that is larger than the hollow in which it rolls. `RollingSphere` on ground z = h(x, y) detects
    both.
    """

    rows: ClassVar[dict[str, str]] = {"height": "m"}
    velocity_rows: ClassVar[dict[str, str]] = {"across_1": "m/s", "across_2": "m/s"}

    site: ClassVar[str] = "the center of the sphere"

    a: BodyName = fields.body("the body with the surface, or ground")
    b: BodyName = fields.body("the sphere")
    surface: Any = fields.surface(
        "the surface, a function of a position (3,) in the frame of a that returns the distance from the "
        "surface in m"
    )
    radius: Number = fields.number(
        "the radius of the sphere", "m", value=None, kw_only=True, above=0.0, required=True
    )

    def residual(self, a: Frame, b: Frame, t: Any) -> Rows:
        """Return the clearance of the sphere in m; the multiplier is the normal force in N."""
        return (self.surface(a.turned_back(b.point(self.point_b) - a.place).array()) - self.radius,)

    def velocity_residual(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return the slip in two directions normal to n in m/s.

        The multipliers are the forces of the surface in these directions in N.
        """
        center = b.point(self.point_b)
        normal = jax.grad(self.surface)(a.turned_back(center - a.place).array())
        away = jnp.eye(3, dtype=normal.dtype)[jnp.argmin(jnp.abs(normal))]
        first = away - jnp.sum(away * normal) * normal
        first = first / jnp.sqrt(jnp.sum(first**2))
        place = center - a.turned(Vector(*normal)).times(self.radius)
        slip = a.turned_back(moving_b.at(b, place) - moving_a.at(a, place)).array()
        return jnp.sum(slip * first), jnp.sum(slip * jnp.cross(normal, first))

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield an error if the surface function does not return distances."""
        length = _steepness(self, places["point_b"])
        if length is not None and not abs(length - 1.0) < _LENGTH:
            yield (
                "surface must return the distance from the surface, whose gradient has length 1; at the "
                "start the gradient has length"
                f" {length:.6g}; divide by that length, or return sqrt(...) - radius for a pipe or a ball"
            )
