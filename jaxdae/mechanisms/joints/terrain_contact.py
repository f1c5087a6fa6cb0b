"""Rows of contacts: relative velocity components of two bodies at a point.

A wheel on a terrain has a contact p, and unit vectors e there: the normal n, and the directions across and
along its track. All of its rows depend on the relative velocity of the material points at p,

    c = v_b + omega_b x (p - x_b) - v_a - omega_a x (p - x_a),        height' = n . c,        others: e . c,

because the clearance is stationary along the wheel, so that the motion of the contact point on the wheel has
no effect. J needs no differentiation of rows: a row of J is a unit force along e at p on b, and the opposite
force on a. Along a motion, p and e change at the rates p', e' of the contact (`geometry.wheel_contact`).
With A the accelerations of the bodies at v' = 0,

    gamma = e' . c + e . (A_b + alpha_b x (p - x_b) + omega_b x (p' - v_b) - the same for a).

Both levels need one contact and one contact rate, for any number of rows and of velocity directions. Autodiff
by row and direction computed the contact of a wheel two dozen times for J.

References:
    R. M. Murray, Z. Li, S. S. Sastry, "A Mathematical Introduction to Robotic Manipulation", CRC Press, 1994,
    chapter 5 (rolling contact).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.geometry.spatial_frames import Frame, Twist, Vector
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.measures import Blocks, Derivatives, Kinematics, Pairs


class Touch(NamedTuple):
    """A contact point, unit vectors, and the center of the touching body, all in the world.

    The vectors are the outward normal of the surface of a, and the directions of the velocity rows. A row is
    a component of the velocity of b relative to a along a vector, at a point.
    """

    place: Vector
    normal: Vector
    others: tuple[Vector, ...]
    center: Vector

    def of_height(self) -> tuple[tuple[Vector, Vector], ...]:
        """Return the direction and the point of the rate of the position-level row."""
        return ((self.normal, self.place),)

    def of_rolling(self) -> tuple[tuple[Vector, Vector], ...]:
        """Return the directions and the points of the velocity-level rows."""
        return tuple((e, self.place) for e in self.others)

    def of_tire(self) -> tuple[tuple[Vector, Vector], ...]:
        """Return directions and points of a tire: slip forward, slip to the left, and the center forward."""
        left, forward = self.others
        return (forward, self.place), (left, self.place), (forward, self.center)


# Jitted, as in `measures`. Static arguments: the selected rows of the contact, and the pairs of bodies.
_unit = functools.partial(jax.jit, static_argnums=(0, 2))


@jax.jit
def _touches(group: Any, a: Frame, b: Frame) -> Touch:
    return jax.vmap(lambda element, a, b: element.touch(a, b))(group, a, b)


def _velocity(a: Frame, b: Frame, moving: tuple[Twist, Twist], place: Vector) -> Vector:
    """Return the velocity of b relative to a at a world point."""
    return moving[1].at(b, place) - moving[0].at(a, place)


@_unit
def _values(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Array:
    """Return the velocity components (k, rows)."""
    a, b = measures.ends(pair, motion)
    twists = measures.both(pair, motion.velocity)
    return jnp.stack(
        [e.dot(_velocity(a, b, twists, place)) for e, place in chosen(_touches(group, a, b))], axis=-1
    )


@_unit
def _biases(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Array:
    """Return the rates of the velocity components (k, rows), at zero acceleration of the coordinates."""
    at, twists = measures.ends(pair, motion), measures.both(pair, motion.velocity)
    along = tuple(frame.along(twist) for frame, twist in zip(at, twists, strict=True))
    touch, rate = jax.jvp(lambda a, b: _touches(group, a, b), at, along)
    changes = (None, None) if motion.bias is None else measures.both(pair, motion.bias)

    def bias(e: Vector, place: Vector, turning: Vector, moving: Vector) -> Any:
        on_a, on_b = (_acceleration(*side, place, moving) for side in zip(at, twists, changes, strict=True))
        return turning.dot(_velocity(*at, twists, place)) + e.dot(on_b - on_a)

    rows = zip(chosen(touch), chosen(rate), strict=True)
    return jnp.stack([bias(*row, *change) for row, change in rows], axis=-1)


def _acceleration(frame: Frame, twist: Twist, change: Twist | None, place: Vector, moving: Vector) -> Vector:
    """Return the rate of the velocity of a body at a moving point."""
    turned = twist.omega_world(frame).cross(moving - twist.velocity)
    return turned if change is None else turned + change.at(frame, place)


@_unit
def _blocks(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Blocks:
    """Return the rows as forces on both bodies, in twist axes."""
    a, b = measures.ends(pair, motion)
    return pushing(a, b, chosen(_touches(group, a, b)))


def pushing(a: Frame, b: Frame, rows: Sequence[tuple[Vector, Vector]]) -> Blocks:
    """Return rows as forces on both bodies, in twist axes.

    Args:
        a: the frames of the first bodies, stacked (k,).
        b: the frames of the second bodies.
        rows: the direction of each row in the world, and the world point where its force acts: on b, with the
            opposite force on a.
    """
    push, place = (
        Vector(*jnp.stack([vector.array() for vector in some], axis=1)) for some in zip(*rows, strict=True)
    )

    def force(frame: Frame) -> Array:
        turning = frame.turned_back((place - frame.place).cross(push))
        return jnp.concatenate([push.array(), turning.array()])

    return -force(a), force(b)


def _without_measure(function: Any, chosen: Callable[[Touch], Any]) -> Any:
    """Return a `Derivatives` function that ignores the measure, because contact rows are known."""

    def derivative(measure: Any, group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Any:
        return function(chosen, group, pair, motion)

    return derivative


def _touching(moving: Callable[[Touch], Any]) -> Derivatives:
    """Return the derivatives of a contact with the given velocity-level rows."""
    return Derivatives(
        values=measures.values,
        rates=_without_measure(_values, Touch.of_height),
        biases=_without_measure(_biases, Touch.of_height),
        blocks=_without_measure(_blocks, Touch.of_height),
        velocity_values=_without_measure(_values, moving),
        velocity_biases=_without_measure(_biases, moving),
        velocity_blocks=_without_measure(_blocks, moving),
    )


TOUCHING = _touching(Touch.of_rolling)
"""The derivatives of a joint with a `touch` method; its position-level row is the normal clearance."""

TIRES = _touching(Touch.of_tire)
"""The derivatives of tire slip."""
