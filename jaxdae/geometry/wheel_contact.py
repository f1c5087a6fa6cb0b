"""Contact of thin discs and spheres with a terrain z = h(x, y).

Let n be the unit normal of the terrain below a point p, with g = (h_x, h_y), n_z = 1 / sqrt(1 + |g|^2) and n
= (-g, 1) n_z. The contact is a point p of the wheel with a stationary clearance phi = (p_z - h) n_z along the
wheel. With center c and radius r, p = c - r d, |d| = 1:

    disc with axle s (|s| = 1)     d . s = 0,   n . e = 0 with e = s x d: the rim is tangent to the surface,
    sphere                         d = n.

*Iteration, disc.* The unknown is the angle delta = atan2(-n . e, n . d) from d to n in the plane of the
wheel. It is the angle of d minus the angle of the normal, so the normal below the center is a good start for
Newton's method. Along the rim

    delta' = 1 + r e . N e / n . d,        N x = -n_z (H x, 0) - n n_z^2 g . H x,

where N is the derivative of n with respect to the position, and H contains the second derivatives of h. For a
vertical wheel on a road h(x), delta' is 1 - r h'' / W^3. It is positive if the wheel has a larger curvature
than the terrain below it. Otherwise the wheel touches the terrain at two or more points, and the formulas
describe one of them. The correction  d <- d - e tan(delta) / delta',  after normalization, rotates d by
-delta / delta' to first order. It needs no arc tangent, cosine or sine.

*Iteration, sphere.* The same equations hold for all directions in the surface. F' of the iteration is similar
to I - r S with the shape operator S. Its eigenvalues are 1 - r kappa, with the principal curvatures kappa.

*Derivatives* follow from the contact conditions; the iteration is not differentiated. Let h_t and n_t be the
changes of h and n due to the parameters of the terrain. For the disc, let u = c' - r' d + r (d . s') s. Then
p' = u - r beta' e and

    beta' (n . d + r e . N e) = n . (s' x d) + e . (N u + n_t),    n' = N p' + n_t,    phi' = n . u - n_z h_t.

For the sphere, with the derivative D = -n_z (I - n_z^2 g g^T) of d_xy with respect to g,

    (I + r H D) g' = H (c' - r' d)_xy + g_t,    p' = c' - r' d - r n',    phi' = n . c' - r' - n_z h_t.

The motion of the contact on the wheel does not appear in n . u, because phi is stationary, but it appears in
n'. With d held constant, phi and its gradient would be correct, but the second derivatives would be wrong.
The rules use their own results and are differentiated as written, so derivatives of all orders are exact.
Accelerations need second derivatives of h, and their gradients need third derivatives.

phi' is the derivative of the distance from the surface, which equals phi to first order. The neglected term,
phi n'_z / n_z, and all its derivatives vanish along motions on the ground. Off the ground, gradients of phi
have a relative error of the clearance over the radius of the hills.

References:
    A. A. Shabana, K. E. Zaazaa, H. Sugiyama, "Railroad Vehicle Dynamics", CRC Press, 2008, chapter 4 (contact
    conditions).
    M. Tarokh, G. McDermott, "Kinematics modeling and analyses of articulated rovers", IEEE Trans. Robotics 21
    (2005) (contact angles).
    M. P. do Carmo, "Differential Geometry of Curves and Surfaces", 1976, section 3.3 (graphs of functions).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.compile.zero_tangents import is_still
from jaxdae.geometry.spatial_frames import Vector
from jaxdae.geometry.terrain import Terrain

_ITERATIONS = 8
"""The largest number of corrections. From a guess with an error of half a radian, Newton's method converges
quadratically within six corrections. For a margin below `_SLOWEST`, each correction removes only a part of
the error, half of it at a margin of 0.1. With more corrections, the iteration would leave the bottom of a pit
that is narrower than the wheel, where the margin is negative, and converge to one of its walls, where the
margin is positive."""

_FOUND = 1e-2
"""The largest last correction of a converged iteration, in rad."""

_ACCURACY = 0.6
"""The exponent of eps for the stopping tolerance. The remaining error is the square of the last correction,
times a few tens at most."""

_SLOWEST = 0.2
"""The lower bound of the slope in a correction. At a double contact the slope is zero, and the step would be
infinite."""

_FLATTEST = 0.1
"""The lower bound of the cosine of the angle between d and the normal in a correction. At a right angle the
tangent is infinite."""


class Contact(NamedTuple):
    """The contact of a wheel with a terrain, in the frame of the terrain.

    Attributes:
        place: the contact point on the wheel; at zero clearance it also lies on the terrain.
        normal: the unit normal of the terrain below the contact point.
        clearance: the clearance () in m, to first order; negative if the wheel penetrates the ground.
        margin: one minus the curvature of the terrain over the curvature of the wheel (). It is not positive
            if there are two contacts, or if the iteration did not converge. It has no derivative.
    """

    place: Vector
    normal: Vector
    clearance: Any
    margin: Any


def normal_at(terrain: Terrain, x: Any, y: Any) -> tuple[Any, Vector]:
    """Return the height of a terrain in m, and its unit normal.

    Args:
        terrain: the terrain.
        x: the x coordinate () in m.
        y: the y coordinate () in m.
    """
    height, along_x, along_y = terrain.height_and_slope(x, y)
    return height, _unit(Vector(-along_x, -along_y, jnp.ones_like(height)))


@jax.custom_jvp
def rim_contact(
    terrain: Terrain, center: Vector, axle: Vector, radius: Any, guess: Vector | None = None
) -> Contact:
    """Return the contact of a thin disc with a terrain.

    Args:
        terrain: the terrain.
        center: the center of the disc in m.
        axle: a unit vector along the axis of the disc; not normal to the surface, where the disc lies flat.
        radius: the radius in m.
        guess: a guess of d, a unit vector normal to the axle; by default the result of `rim_start`.

    The result is differentiable with respect to all arguments except the guess, to every order that the
    terrain supports. The guess has no effect on the result.
    """
    return _rim_contact(terrain, center, axle, radius, guess)


@jax.jit
def _rim_contact(
    terrain: Terrain, center: Vector, axle: Vector, radius: Any, guess: Vector | None
) -> Contact:
    start = rim_start(terrain, center, axle) if guess is None or terrain.flat else guess
    if terrain.flat:
        contact = _on_plane(terrain, center - start.times(radius))
        # A flat disc touches the ground everywhere. If the axle itself is NaN, the error is elsewhere.
        lies = jnp.isnan(start.x) & ~jnp.isnan(axle.x)
        return contact._replace(margin=jnp.where(lies, -contact.margin, contact.margin))
    return _iterated(lambda direction: rim_correction(terrain, center, axle, radius, direction), start)


def rim_start(terrain: Terrain, center: Vector, axle: Vector) -> Vector:
    """Return a first guess of d of a disc: the normal below its center, projected onto the disc plane."""
    normal = normal_at(terrain, center.x, center.y)[1]
    return _unit(normal - axle.times(axle.dot(normal)))


def rim_correction(
    terrain: Terrain, center: Vector, axle: Vector, radius: Any, direction: Vector
) -> tuple[Vector, Contact]:
    """Return a better d of a disc by one Newton step, and the contact if the given d is correct.

    Args:
        terrain: the terrain.
        center: the center of the disc in m.
        axle: a unit vector along the axis of the disc.
        radius: the radius in m.
        direction: d, a unit vector from the contact to the center, normal to the axle.

    Do not differentiate this function: it is one step of an iteration.
    """
    across = axle.cross(direction)
    place = center - direction.times(radius)
    height, normal = normal_at(terrain, place.x, place.y)
    sine, cosine = -normal.dot(across), normal.dot(direction)
    change = _turned(terrain, place, normal, across).times(-radius)
    ratio = sine / cosine
    rate = 1.0 - (change.dot(across) + ratio * change.dot(direction)) / (cosine * (1.0 + ratio * ratio))
    tangent = sine / (jnp.maximum(cosine, _FLATTEST) * jnp.maximum(rate, _SLOWEST))
    turned = _unit(direction - across.times(tangent))
    return turned, Contact(place, normal, (place.z - height) * normal.z, rate)


def _iterated(found: Any, start: Vector) -> Contact:
    """Return the contact after corrections of its direction."""

    def corrected(carry: Any) -> Any:
        direction, _, count = carry
        turned = found(direction)[0]
        change = turned - direction
        return turned, jnp.sqrt(change.dot(change)), count + 1

    # Use a loop: XLA computes its results once. It would recompute unrolled steps in every consumer.
    limit = float(jnp.finfo(start.x.dtype).eps) ** _ACCURACY
    first = start, jnp.full_like(start.x, jnp.inf), 0
    direction, change, _ = jax.lax.while_loop(
        lambda carry: (carry[1] > limit) & (carry[2] < _ITERATIONS), corrected, first
    )
    contact = found(direction)[1]
    # If the iteration does not converge, the ground is rough and its curvature somewhere exceeds the
    # curvature of the wheel.
    margin: Any = jnp.where(change <= _FOUND, contact.margin, jnp.minimum(contact.margin, -1.0))
    return contact._replace(margin=margin)


def _on_plane(terrain: Terrain, place: Vector) -> Contact:
    """Return the contact at the lowest point, over a terrain with a constant normal."""
    height, normal = normal_at(terrain, place.x, place.y)
    return Contact(place, normal, (place.z - height) * normal.z, jnp.ones_like(height))


_RIM = np.linspace(-np.pi, np.pi, 32, endpoint=False) + np.pi / 32.0
"""The angles of the rim points that are tested for a second contact, all around the rim, relative to the
contact, in rad."""

_POLAR, _AZIMUTH = np.repeat(np.arange(1, 5) * np.pi / 6.0, 8), np.tile(np.arange(8) * np.pi / 4.0, 4)
"""The test points on a sphere: polar angles from the contact, and azimuth angles."""


def rim_margin(terrain: Terrain, center: Vector, axle: Vector, radius: Any, contact: Contact) -> Any:
    """Return the margin of a disc contact.

    If the rim penetrates the ground elsewhere, the margin is at most minus the penetration over the radius.

    The curvature at a contact does not detect a step ahead. Therefore this function tests thirty-two points
    all around the rim. On a steep slope the rim is closest to the ground uphill of its middle. A disc that is
    nearly flat may touch the ground on its other side.
    """
    down = (contact.place - center).times(1.0 / radius)
    across = axle.cross(down)
    return _margin(terrain, center, radius, contact, down, [across], np.cos(_RIM), [np.sin(_RIM)])


def ball_margin(terrain: Terrain, center: Vector, radius: Any, contact: Contact) -> Any:
    """Return the margin of a sphere contact, as `rim_margin`; test 32 points within 2 pi/3 of the contact."""
    down = (contact.place - center).times(1.0 / radius)
    sines = [np.sin(_POLAR) * np.cos(_AZIMUTH), np.sin(_POLAR) * np.sin(_AZIMUTH)]
    return _margin(terrain, center, radius, contact, down, _tangents(down), np.cos(_POLAR), sines)


def _margin(
    terrain: Terrain,
    center: Vector,
    radius: Any,
    contact: Contact,
    down: Vector,
    axes: Any,
    cos: Any,
    sines: Any,
) -> Any:
    """Return the margin from the points center + radius (cos down + sines axes)."""
    if terrain.flat:
        return contact.margin
    terrain, center, radius, contact, down, axes = jax.tree.map(
        jax.lax.stop_gradient, (terrain, center, radius, contact, down, axes)
    )
    dtype = down.x.dtype

    def around(axis: str) -> Any:
        parts = [
            getattr(each, axis) * jnp.asarray(share, dtype)
            for each, share in zip((down, *axes), (cos, *sines), strict=True)
        ]
        return getattr(center, axis) + radius * sum(parts)

    deepest = jnp.min(around("z") - jax.vmap(terrain.height)(around("x"), around("y")))
    gap = jnp.abs(contact.clearance) / contact.normal.z
    # Next to the contact, the penetration is similar to the penetration at the contact. Rounding errors must
    # not count as a second contact.
    allowed = 1e-4 * radius + 2.0 * gap + float(jnp.finfo(dtype).eps) ** _ACCURACY
    return jnp.where(deepest < -allowed, jnp.minimum(contact.margin, deepest / radius), contact.margin)


@jax.jit
def _rim_rule(primals: Any, tangents: Any) -> tuple[Contact, Contact]:
    terrain, center, axle, radius, guess = primals
    terrain_dot, center_dot, axle_dot, radius_dot, _ = tangents
    out = rim_contact(terrain, center, axle, radius, guess)
    place, normal = out.place, out.normal
    direction = (center - place).times(1.0 / radius)
    across = axle.cross(direction)
    sliding = center_dot - direction.times(radius_dot) + axle.times(radius * direction.dot(axle_dot))
    height_dot, normal_dot = _own_change(terrain, terrain_dot, place, normal)
    along, divisor = _turned(terrain, place, normal, across), normal.dot(direction)
    if not terrain.flat:  # Avoid products with zero curvature.
        normal_dot = normal_dot + _turned(terrain, place, normal, sliding)
        divisor = divisor + radius * along.dot(across)
    turning = (normal.dot(axle_dot.cross(direction)) + across.dot(normal_dot)) / jnp.where(
        divisor == 0.0, 1.0, divisor
    )
    normal_dot = normal_dot if terrain.flat else normal_dot - along.times(radius * turning)
    place_dot = sliding - across.times(radius * turning)
    return out, _changes(out, normal.dot(sliding), place_dot, height_dot, normal_dot)


@jax.custom_jvp
def ball_contact(terrain: Terrain, center: Vector, radius: Any, guess: Vector | None = None) -> Contact:
    """Return the contact of a sphere with a terrain.

    Args:
        terrain: the terrain.
        center: the center of the sphere in m.
        radius: the radius in m.
        guess: a guess of d, a unit vector; by default the result of `ball_start`.

    The result is differentiable with respect to all arguments except the guess, to every order that the
    terrain supports. The guess has no effect on the result.
    """
    return _ball_contact(terrain, center, radius, guess)


@jax.jit
def _ball_contact(terrain: Terrain, center: Vector, radius: Any, guess: Vector | None) -> Contact:
    start = ball_start(terrain, center) if guess is None or terrain.flat else guess
    if terrain.flat:
        return _on_plane(terrain, center - start.times(radius))
    return _iterated(lambda direction: ball_correction(terrain, center, radius, direction), start)


def ball_start(terrain: Terrain, center: Vector) -> Vector:
    """Return a first guess of d of a sphere: the terrain normal below its center."""
    return normal_at(terrain, center.x, center.y)[1]


def ball_correction(
    terrain: Terrain, center: Vector, radius: Any, direction: Vector
) -> tuple[Vector, Contact]:
    """Return a better d of a sphere by one Newton step, and the contact if the given d is correct.

    Args:
        terrain: the terrain.
        center: the center of the sphere in m.
        radius: the radius in m.
        direction: d, a unit vector from the contact to the center.

    Do not differentiate this function: it is one step of an iteration.
    """
    e1, e2 = _tangents(direction)
    place = center - direction.times(radius)
    height, normal = normal_at(terrain, place.x, place.y)
    ahead = normal.dot(direction)
    value = -normal.dot(e1) / ahead, -normal.dot(e2) / ahead
    columns = []
    for axis, (one, other) in ((e1, (1.0, 0.0)), (e2, (0.0, 1.0))):
        change = _turned(terrain, place, normal, axis).times(radius)
        along = change.dot(direction)
        columns.append(
            (
                one + (change.dot(e1) + value[0] * along) / ahead,
                other + (change.dot(e2) + value[1] * along) / ahead,
            )
        )
    margin = _smallest_eigenvalue(columns[0], columns[1])
    # Close to a double contact, step to the normal itself.
    u, v = (
        jnp.where(margin > _SLOWEST, x, y)
        for x, y in zip(_solved(columns[0], columns[1], value), value, strict=True)
    )
    return _unit(direction - e1.times(u) - e2.times(v)), Contact(
        place, normal, (place.z - height) * normal.z, margin
    )


def _tangents(direction: Vector) -> tuple[Vector, Vector]:
    """Return tangent axes normal to a unit direction, which rotate with it; the first is in the x-z plane."""
    e1 = _unit(Vector(direction.z, jnp.zeros_like(direction.z), -direction.x))
    return e1, direction.cross(e1)


@jax.jit
def _ball_rule(primals: Any, tangents: Any) -> tuple[Contact, Contact]:
    terrain, center, radius, guess = primals
    terrain_dot, center_dot, radius_dot, _ = tangents
    out = ball_contact(terrain, center, radius, guess)
    place, normal = out.place, out.normal
    sliding = center_dot - normal.times(radius_dot)
    height_dot, own = _own_change(terrain, terrain_dot, place, normal)
    # N and D in terms of n: g' = -(n'_xy - n_xy n'_z / n_z) / n_z.
    change = own + _turned(terrain, place, normal, sliding)
    wanted = _slope_change(normal, change)
    first, second = _curved(terrain, place, normal, radius)
    along_x, along_y = _solved(first, second, wanted)
    normal_dot = _normal_change(normal, along_x, along_y)
    place_dot = sliding - normal_dot.times(radius)
    return out, _changes(out, normal.dot(sliding), place_dot, height_dot, normal_dot)


def _changes(out: Contact, rising: Any, place_dot: Vector, height_dot: Any, normal_dot: Vector) -> Contact:
    """Return the derivative of a contact from the derivatives of its parts."""
    return Contact(place_dot, normal_dot, rising - out.normal.z * height_dot, jnp.zeros_like(out.margin))


def _rule(rule: Any) -> Any:
    def jvp(primals: Any, tangents: Any) -> Any:
        still = all(is_still(dx) for dx in jax.tree.leaves(tangents[0], is_leaf=is_still))
        filled = jax.tree.map(
            lambda dx, x: jnp.zeros_like(x) if is_still(dx) else dx,
            tangents[1:],
            primals[1:],
            is_leaf=is_still,
        )
        # The terrain parameters are nearly always constant, and then their derivatives cost nothing.
        terrain_dot = None if still else jax.tree.map(_filled, tangents[0], primals[0], is_leaf=is_still)
        return rule(primals, (terrain_dot, *filled))

    return jvp


def _filled(dx: Any, x: Any) -> Any:
    return jnp.zeros_like(x) if is_still(dx) else dx


rim_contact.defjvp(_rule(_rim_rule), symbolic_zeros=True)
ball_contact.defjvp(_rule(_ball_rule), symbolic_zeros=True)


# Surface derivatives.


def _slope_change(normal: Vector, change: Vector) -> tuple[Any, Any]:
    """Return the changes of h_x and h_y from the change of the normal."""
    ratio = change.z / normal.z
    return -(change.x - normal.x * ratio) / normal.z, -(change.y - normal.y * ratio) / normal.z


def _normal_change(normal: Vector, along_x: Any, along_y: Any) -> Vector:
    """Return the change of the normal from the changes of h_x and h_y."""
    # n_z^2 g . g' = -n_z (n_x g'_x + n_y g'_y)
    shrinking = normal.z * (normal.x * along_x + normal.y * along_y)
    return Vector(-normal.z * along_x, -normal.z * along_y, jnp.zeros_like(shrinking)) + normal.times(
        shrinking
    )


def _turned(terrain: Terrain, place: Vector, normal: Vector, step: Vector) -> Vector:
    """Return N times a step: the change of the normal with the position."""
    if terrain.flat:
        zero = jnp.zeros_like(place.x)
        return Vector(zero, zero, zero)
    xx, xy, yy = terrain.second_derivatives(place.x, place.y)
    return _normal_change(normal, xx * step.x + xy * step.y, xy * step.x + yy * step.y)


def _own_change(terrain: Terrain, terrain_dot: Any, place: Vector, normal: Vector) -> tuple[Any, Vector]:
    """Return the changes of height and normal due to changes of the terrain parameters."""
    if terrain_dot is None:
        zero = jnp.zeros_like(place.x)
        return zero, Vector(zero, zero, zero)
    height, along_x, along_y = jax.jvp(
        lambda terrain: terrain.height_and_slope(place.x, place.y), (terrain,), (terrain_dot,)
    )[1]
    return height, _normal_change(normal, along_x, along_y)


def _curved(terrain: Terrain, place: Vector, normal: Vector, radius: Any) -> Any:
    """Return the columns of I + r H D."""
    one, zero = jnp.ones_like(place.x), jnp.zeros_like(place.x)
    if terrain.flat:
        return (one, zero), (zero, one)
    xx, xy, yy = terrain.second_derivatives(place.x, place.y)
    # D = -n_z (I - n_xy n_xy^T)
    columns = []
    for along_x, along_y in ((one, zero), (zero, one)):
        part = normal.x * along_x + normal.y * along_y
        u, v = (
            radius * normal.z * (s - component * part)
            for s, component in ((along_x, normal.x), (along_y, normal.y))
        )
        columns.append((along_x - xx * u - xy * v, along_y - xy * u - yy * v))
    return tuple(columns)


# Linear algebra in two dimensions.


def _solved(first: tuple[Any, Any], second: tuple[Any, Any], value: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the solution of a 2 x 2 linear system from the columns of its regular matrix."""
    (uu, vu), (uv, vv) = first, second
    determinant = uu * vv - uv * vu
    divisor = jnp.where(determinant == 0.0, 1.0, determinant)
    return (vv * value[0] - uv * value[1]) / divisor, (uu * value[1] - vu * value[0]) / divisor


def _smallest_eigenvalue(first: tuple[Any, Any], second: tuple[Any, Any]) -> Any:
    """Return the smallest eigenvalue of a 2 x 2 matrix with real eigenvalues, from its columns."""
    (uu, vu), (uv, vv) = first, second
    half = 0.5 * (uu + vv)
    return half - jnp.sqrt(jnp.maximum(half * half - (uu * vv - uv * vu), 0.0))


def _unit(vector: Vector) -> Vector:
    return vector.times(1.0 / jnp.sqrt(vector.dot(vector)))
