"""Rows of what touches: velocities of two bodies against each other at a place, in some directions.

A wheel on a terrain has a contact p, and unit vectors e there: the normal n, and the directions across and along its track. All of its
rows are made of the velocity of the material points that are at p,

    c = v_b + omega_b x (p - x_b) - v_a - omega_a x (p - x_a),        height' = n . c,        others: e . c,

because the clearance is stationary along the wheel, so that the motion of the contact on it does not count. No row has to be
differentiated for J: it is a force of size one along e at p on b, and the opposite one on a. Along a motion p and e change, by
the rates p', e' that the contact has (`jaxdae.geometry.contact`), so that with A the accelerations of the bodies at v' = 0

    gamma = e' . c + e . (A_b + alpha_b x (p - x_b) + omega_b x (p' - v_b) - the same of a).

Both levels need one contact and one rate of it, whatever the number of rows and of directions in which bodies can move. Differentiated
row by row and direction by direction the contact of a wheel was computed two dozen times for J.

References:
    R. M. Murray, Z. Li, S. S. Sastry, "A Mathematical Introduction to Robotic Manipulation", CRC Press, 1994, chapter 5 (rolling contact).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.geometry.spatial import Frame, Twist, Vector
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.measures import Blocks, Derivatives, Kinematics, Pairs


class Touch(NamedTuple):
    """A place in the world, unit vectors of the world, and the center of what touches there.

    The vectors are the normal of the surface of a, out of it, and those of the velocity rows. A row is a component of the velocity of b
    over a along a vector, at a place.
    """

    place: Vector
    normal: Vector
    others: tuple[Vector, ...]
    center: Vector

    def of_height(self) -> tuple[tuple[Vector, Vector], ...]:
        """Returns the direction and the place of the rate of the row at position level."""
        return ((self.normal, self.place),)

    def of_rolling(self) -> tuple[tuple[Vector, Vector], ...]:
        """Returns the directions and the places of the rows at velocity level."""
        return tuple((e, self.place) for e in self.others)

    def of_tire(self) -> tuple[tuple[Vector, Vector], ...]:
        """Returns the directions and the places of what a tire sees: slip forward and to the left, and the center forward."""
        left, forward = self.others
        return (forward, self.place), (left, self.place), (forward, self.center)


# Compiled as units, as in `measures`; static: what is asked of the contact, and which bodies touch.
_unit = functools.partial(jax.jit, static_argnums=(0, 2))


@jax.jit
def _touches(group: Any, a: Frame, b: Frame) -> Touch:
    return jax.vmap(lambda element, a, b: element.touch(a, b))(group, a, b)


def _velocity(a: Frame, b: Frame, moving: tuple[Twist, Twist], place: Vector) -> Vector:
    """Returns the velocity of b over a at a place of the world."""
    return moving[1].at(b, place) - moving[0].at(a, place)


@_unit
def _values(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Array:
    """Returns the components of the velocity (k, rows)."""
    a, b = measures.ends(pair, motion)
    twists = measures.both(pair, motion.velocity)
    return jnp.stack([e.dot(_velocity(a, b, twists, place)) for e, place in chosen(_touches(group, a, b))], axis=-1)


@_unit
def _biases(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Array:
    """Returns the rates of the components of the velocity, without what accelerations of the coordinates make, (k, rows)."""
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
    """Returns the rate of the velocity of a body at a place that moves."""
    turned = twist.omega_world(frame).cross(moving - twist.velocity)
    return turned if change is None else turned + change.at(frame, place)


@_unit
def _blocks(chosen: Callable[[Touch], Any], group: Any, pair: Pairs, motion: Kinematics) -> Blocks:
    """Returns the rows as forces on both bodies, in the axes of twists."""
    a, b = measures.ends(pair, motion)
    return pushing(a, b, chosen(_touches(group, a, b)))


def pushing(a: Frame, b: Frame, rows: Sequence[tuple[Vector, Vector]]) -> Blocks:
    """Returns rows as forces on both bodies, in the axes of twists.

    Args:
        a: the frames of the first bodies, stacked (k,).
        b: those of the second bodies.
        rows: the direction of each row in the world, and the place of the world where its force acts: on b, with the opposite one on a.
    """

    def forces(frame: Frame, sign: float) -> list[tuple[Any, ...]]:
        pushes = [e.times(sign) for e, _ in rows]
        turning = [frame.turned_back((place - frame.place).cross(e)) for e, (_, place) in zip(pushes, rows, strict=True)]
        return [tuple(getattr(e, axis) for e in vectors) for vectors in (pushes, turning) for axis in "xyz"]

    return [forces(a, -1.0), forces(b, 1.0)]


def _without_measure(function: Any, chosen: Callable[[Touch], Any]) -> Any:
    """Returns a function of `Derivatives`, which is told what to differentiate; the rows of a contact are known."""

    def derivative(measure: Any, group: Any, pair: Pairs, motion: Kinematics, t: Any) -> Any:
        return function(chosen, group, pair, motion)

    return derivative


def _touching(moving: Callable[[Touch], Any]) -> Derivatives:
    """Returns the derivatives of what touches, with these rows at velocity level."""
    blocks = _without_measure(_blocks, Touch.of_height)
    return Derivatives(
        values=measures.values,
        rates=_without_measure(_values, Touch.of_height),
        biases=_without_measure(_biases, Touch.of_height),
        blocks=blocks,
        sides=measures.put_together(blocks),
        velocity_values=_without_measure(_values, moving),
        velocity_biases=_without_measure(_biases, moving),
        velocity_blocks=_without_measure(_blocks, moving),
    )


TOUCHING = _touching(Touch.of_rolling)
"""The derivatives of a joint whose `touch` says what it touches with. Its row at position level is the clearance along the normal."""

TIRES = _touching(Touch.of_tire)
"""The derivatives of what a tire sees."""
