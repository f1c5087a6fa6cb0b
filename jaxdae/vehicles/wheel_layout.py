"""Wheel layout of a vehicle: the data of the maps between its twist and the spins of its wheels.

Let V = (v_x, v_y, omega) be the twist of the vehicle frame. A wheel at p, whose heading has the angle delta
in that frame, moves along its heading and to the left of it with

    e . v_c = cos(delta) v_x + sin(delta) v_y + (p_x sin(delta) - p_y cos(delta)) omega,
    n . v_c = -sin(delta) v_x + cos(delta) v_y + (p_x cos(delta) + p_y sin(delta)) omega.

A wheel without rollers rolls with r phi' = e . v_c and enforces n . v_c = 0. A wheel with rollers at gamma
rolls with r phi' = e . v_c + tan(gamma) n . v_c and enforces no other constraint.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.geometry.trigonometry import kept_turn
from jaxdae.mechanisms import KinematicMechanism, Mechanism
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Pairs
from jaxdae.mechanisms.describe.numbers import concrete, floating, hint, shown
from jaxdae.mechanisms.joints.planar_wheels import LateralWheel, RollerWheel, RollingWheel, TractionWheel
from jaxdae.systems.system import check_mechanism
from jaxdae.typing import Leaf
from jaxdae.vehicles.argument_checks import angle_mistakes


@pytree
class Wheels:
    """The wheels of a vehicle in its frame.

    Attributes:
        names: names of the wheels (static).
        rollers: for each wheel, whether it has rollers around its rim (static).
        place: positions of the wheels (k, 2) in m.
        steering: heading angles of the wheels (k,) in rad.
        radius: (k,) in m.
        roller_angle: angle from the heading to the roller axles at the ground (k,) in rad; unused for wheels
            without rollers.
    """

    names: tuple[str, ...] = static()
    rollers: tuple[bool, ...] = static()
    place: Leaf
    steering: Leaf
    radius: Leaf
    roller_angle: Leaf

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the condition that radii are positive; see `jaxdae.base.requirements`."""
        yield self.radius > 0.0, "radius must be positive"

    def along(self) -> Array:
        """Return the rows (k, 3) that map a twist to e . v_c of each wheel."""
        cos, sin = jnp.cos(self.steering), jnp.sin(self.steering)
        return jnp.stack([cos, sin, self.place[:, 0] * sin - self.place[:, 1] * cos], axis=1)

    def across(self) -> Array:
        """Return the rows (k, 3) that map a twist to n . v_c of each wheel."""
        cos, sin = jnp.cos(self.steering), jnp.sin(self.steering)
        return jnp.stack([-sin, cos, self.place[:, 0] * cos + self.place[:, 1] * sin], axis=1)

    def rolling(self) -> Array:
        """Return the rows (k, 3) that map a twist to r phi' of each wheel, without slip."""
        oblique = jnp.asarray(np.asarray(self.rollers), self.place.dtype) * jnp.tan(self.roller_angle)
        return self.along() + oblique[:, None] * self.across()

    def single_rows(self) -> list[tuple[Any, Any, Any]]:
        """Return the rows of `along`, `across` and `rolling` per wheel as scalars; see `least_residual`."""
        found = []
        columns = (
            *(numbers(x) for x in jnp.unstack(self.place, axis=1)),
            numbers(self.steering),
            numbers(self.roller_angle),
        )
        for rolls, x, y, steering, oblique in zip(self.rollers, *columns, strict=True):
            cos, sin = kept_turn(steering)
            along, across = (cos, sin, x * sin - y * cos), (-sin, cos, x * cos + y * sin)
            rolling = (
                tuple(a + jnp.tan(oblique) * b for a, b in zip(along, across, strict=True))
                if rolls
                else along
            )
            found.append((along, across, rolling))
        return found

    @property
    def held(self) -> tuple[int, ...]:
        """The indices of the wheels without rollers, which do not slip sideways."""
        return tuple(k for k, rolls in enumerate(self.rollers) if not rolls)

    def number(self, name: str) -> int:
        """Return the index of a wheel.

        Raises:
            ValueError: an unknown name.
        """
        if name not in self.names:
            raise ValueError(f"no wheel is named {name!r}{hint(name, self.names)}")
        return self.names.index(name)


def numbers(x: Array) -> list[Any]:
    """Split an array (k,) into scalars (); reverse mode concatenates their cotangents."""
    return [part[0] for part in jnp.split(x, x.shape[0])]


def wheels(
    places: Any, *, steering: Any = 0.0, radius: Any = 1.0, roller_angle: Any = None, names: Any = None
) -> Wheels:
    """Return the wheels of a vehicle from numeric data.

    Args:
        places: wheel positions (k, 2) in the vehicle frame in m.
        steering: heading angles in rad, one or (k,).
        radius: in m, one or (k,).
        roller_angle: in rad, one or (k,), if all wheels have rollers; None if no wheel has rollers.
        names: one name per wheel; by default "wheel_0", ...

    Raises:
        ValueError: mismatched shapes or names; numbers that are not finite; a radius that is not positive; a
            steering angle that is not between -pi and pi.
    """
    place = floating(places)
    if place.ndim != 2 or place.shape[1] != 2 or not place.shape[0]:
        raise ValueError(
            f"wheels: places must have shape (k, 2), one position (x, y) per wheel, got {place.shape}"
        )
    known = concrete(place)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(f"wheels: places must be finite, in m, got {shown(places)}")
    count = place.shape[0]
    names = tuple(f"wheel_{k}" for k in range(count)) if names is None else tuple(names)
    if len(names) != count or len(set(names)) != count:
        raise ValueError(f"wheels: names must be {count} different names, got {names}")

    def each(name: str, numbers: Any) -> Array:
        given = jnp.asarray(numbers, place.dtype)
        if given.shape not in ((), (count,)):
            raise ValueError(f"wheels: {name} must be one number or have shape ({count},), got {given.shape}")
        return jnp.broadcast_to(given, (count,))

    known = concrete(radius)
    if known is not None and not np.all((known > 0.0) & np.isfinite(known)):
        raise ValueError(f"wheels: radius must be positive numbers of meters, got {shown(radius)}")
    for message in angle_mistakes("steering", steering, None):
        raise ValueError(f"wheels: {message}")
    oblique = (roller_angle is not None,) * count
    angle = each("roller_angle", 0.0 if roller_angle is None else roller_angle)
    return Wheels(names, oblique, place, each("steering", steering), each("radius", radius), angle)


_KINDS: dict[str, tuple[str, ...]] = {
    LateralWheel.type_key(): (),
    RollingWheel.type_key(): ("radius",),
    TractionWheel.type_key(): ("radius",),
    RollerWheel.type_key(): ("radius", "roller_angle"),
}
"""The wheel types of a mechanism, each with its numeric fields."""


def wheels_of(
    mechanism: Mechanism | KinematicMechanism,
    q: Any,
    body: str = "base_link",
    only: tuple[str, ...] | None = None,
) -> Wheels:
    """Return the wheels of a planar mechanism at q, in the frame of a body.

    Args:
        mechanism: a mechanism with joints `Wheel`, `MecanumWheel` or `OmniWheel`.
        q: coordinates, which determine the steering angles.
        body: the body whose frame is the vehicle frame; its origin is the mass center.
        only: names of the wheels to return; None for all wheels.

    Raises:
        ValueError: an unknown body or wheel; no wheels; wheels that move relative to the body, such as the
            wheels of trailers and of casters with an offset. The twist of the body does not determine how
            these roll. This check is skipped if q or the mechanism is traced.

    Wheels are in the order of the joint groups of the mechanism. Wheels without spin have radius 1.
    Differentiable.
    """
    inner: Any = getattr(mechanism, "mechanism", mechanism)
    check_mechanism(inner)
    if body not in inner.body_names:
        raise ValueError(f"wheels_of: no body is named {body!r}{hint(body, inner.body_names)}")
    groups = _groups(inner)
    if not groups:
        raise ValueError(
            "wheels_of: the mechanism has no wheels; wheels are joints of type Wheel, MecanumWheel or "
            "OmniWheel"
        )
    every = _standing(inner, groups, q, body)
    wanted = every.names if only is None else tuple(only)
    numbers = np.asarray([every.number(name) for name in wanted], int)
    known = all(concrete(leaf) is not None for leaf in jax.tree.leaves((inner, q)))
    swing = known and any(inner.body_names[b] != body for group, _ in groups for b in group.b)
    moving = _swinging(inner, q, body, every.names) if swing else set()
    if found := [name for name in wanted if name in moving]:
        raise ValueError(
            f"wheels_of: the wheels {', '.join(found)} move relative to {body!r}, so its twist does not "
            "determine how they roll; name the other wheels with only=(...)"
        )
    rollers = tuple(every.rollers[k] for k in numbers)
    return Wheels(
        wanted,
        rollers,
        *(each[numbers] for each in (every.place, every.steering, every.radius, every.roller_angle)),
    )


def _groups(inner: Mechanism) -> list[tuple[Any, Pairs]]:
    """Return the groups of wheels of a mechanism."""
    return [
        (group, Pairs(group.a, group.b, len(inner.body_names)))
        for group in inner.joints.values()
        if group.type_key() in _KINDS
    ]


def _standing(inner: Mechanism, groups: Any, q: Any, body: str) -> Wheels:
    """Return all wheels at q."""
    motion = inner.coordinates.kinematics(q, jnp.zeros((len(inner.form.velocity_names),), q.dtype))
    base = jax.tree.map(lambda entry: entry[inner.body_names.index(body)], motion.frame)
    found = [_seen(group, fr.ends(pair, motion)[1], base) for group, pair in groups]
    place, steering, radius, roller_angle = (jnp.concatenate([one[k] for one in found]) for k in range(4))
    names = tuple(name for group, _ in groups for name in group.names)
    rollers = tuple("roller_angle" in _KINDS[group.type_key()] for group, _ in groups for _ in group.names)
    return Wheels(names, rollers, place, steering, radius, roller_angle)


@functools.partial(jax.jit, static_argnums=2)
def _place_rates(inner: Mechanism, q: Any, body: str) -> tuple[Array, Array]:
    """Return the rates of all wheel positions in the body frame (k, 2, nv), and the Jacobian (nc, nv)."""
    still = jnp.zeros((len(inner.form.velocity_names),), q.dtype)
    groups = _groups(inner)
    rates = jax.jacfwd(lambda xi: _standing(inner, groups, inner.retract(q, xi), body).place)(still)
    return rates, inner.constraint_jacobian(jnp.zeros((), q.dtype), q, still)


def _swinging(inner: Mechanism, q: Any, body: str, names: tuple[str, ...]) -> set[str]:
    """Return the names of wheels that can move relative to the body while its joints hold, on the host."""
    rates, rows = (np.asarray(part, float) for part in _place_rates(inner, q, body))
    held = rows[: inner.constraint(jnp.zeros((), q.dtype), q).shape[0]]
    values, directions = np.linalg.svd(held)[1:] if held.size else (np.zeros(0), np.eye(rows.shape[1]))
    free = directions[np.sum(values > 1e-6 * np.max(values, initial=0.0)) :]
    speeds = np.linalg.norm(rates @ free.T, axis=(1, 2))
    return {name for name, speed in zip(names, speeds, strict=True) if speed > 1e-4}


def _seen(group: Any, frames: Any, base: Any) -> tuple[Array, Array, Array, Array]:
    """Return the positions, headings, radii and roller angles of a wheel group in the frame of a body."""

    def one(wheel: Any, frame: Any) -> tuple[Array, Array]:
        place, heading = (
            base.place_of(frame.point(wheel.point_b).array()),
            base.components_of(frame.direction(wheel.axis).array()),
        )
        return place, jnp.arctan2(heading[1], heading[0])

    place, steering = jax.vmap(one)(group, frames)
    ones = functools.partial(jnp.full_like, steering)
    numbers = {"radius": ones(1.0), "roller_angle": ones(0.0)}
    numbers |= {name: getattr(group, name) for name in _KINDS[group.type_key()]}
    return place, steering, numbers["radius"], numbers["roller_angle"]
