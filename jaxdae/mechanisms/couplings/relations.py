"""Relations between joint coordinates: one coordinate follows another by a polynomial.

The coordinates may be anywhere in the mechanism. With s of one joint and x = s_other - other_reference of the
other joint, a position-level row is

    s - reference - p(x) = 0,      p(x) = c_0 + c_1 x + c_2 x^2 + ...,

and its derivatives along the motion follow from those of both coordinates,

    rate s' - p' s_other',      row of J  S - p' S_other,      bias sigma - p' sigma_other - p'' s_other'^2.

The multiplier is the torque or force along s; the other joint receives -p' times the multiplier. In joint
coordinates, a tree coordinate is an entry of q, including full turns. Other coordinates are measured between
the frames of two bodies, and angles in space are then known modulo 2 pi only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates, BodyTerm, Terms, VelocityTerm
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Kinematics, Pairs
from jaxdae.mechanisms.describe.numbers import real, vector
from jaxdae.mechanisms.joints.relation_elements import Relation, joint_coordinate
from jaxdae.mechanisms.joints.spatial_measures import nearest_turn
from jaxdae.typing import Leaf


@pytree
class Measured:
    """A joint coordinate that is measured between the frames of two bodies.

    Attributes:
        joints: the joints, stacked elements of one type (k,), without names and body indices.
        names: the names of the joints (static).
        number: the coordinate index (static).
        a: the indices of the first bodies (static).
        b: the indices of the second bodies (static).
        wraps: whether it is an angle that is known modulo 2 pi only (static).
    """

    joints: Any
    names: tuple[str, ...] = static()
    number: int = static()
    a: tuple[int, ...] = static()
    b: tuple[int, ...] = static()
    wraps: bool = static()

    @property
    def count(self) -> int:
        """The number of coordinates, k."""
        return len(self.a)

    @property
    def key(self) -> str:
        """The joint type and coordinate index."""
        return f"{self.joints.type_key()}_{self.number}"

    @property
    def forgets(self) -> bool:
        """Whether full turns are unknown."""
        return self.wraps

    def _measured(
        self, derivative: Callable[..., Any], coordinates: BodyCoordinates, motion: Kinematics, t: Any
    ) -> Any:
        pair = Pairs(self.a, self.b, motion.frame[0].shape[0])
        return derivative(type(self.joints).coordinate, self.joints, pair, motion, t)

    def values(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the coordinates (k,) in m or rad."""
        return self._measured(fr.values, coordinates, motion, t)[:, self.number]

    def rates(self, coordinates: BodyCoordinates, motion: Kinematics, v: Any, t: Any) -> Array:
        """Return the coordinate rates (k,)."""
        return self._measured(fr.rates, coordinates, motion, t)[:, self.number]

    def biases(self, coordinates: BodyCoordinates, motion: Kinematics, t: Any) -> Array:
        """Return the second derivatives of the coordinates at zero acceleration (k,)."""
        return self._measured(fr.biases, coordinates, motion, t)[:, self.number]

    def blocks(self, motion: Kinematics, t: Any) -> tuple[fr.Blocks, Pairs]:
        """Return the derivatives by the twists of both bodies, and the pairs of bodies."""
        pair = Pairs(self.a, self.b, motion.frame[0].shape[0])
        block = fr.blocks(type(self.joints).coordinate, self.joints, pair, motion, t)
        on_a, on_b = (side[:, self.number][:, None] for side in block)
        return (on_a, on_b), pair

    def terms(self, motion: Kinematics, t: Any, factor: Any) -> Terms:
        """Return row terms with the coordinate derivatives times a factor (k,)."""
        block, pair = self.blocks(motion, t)
        scaled = block[0] * factor, block[1] * factor
        return Terms(on_bodies=(BodyTerm(scaled, pair, self.joints.relative),))

    def pulls(self, efforts: Array) -> tuple[tuple[Any, Array], ...]:
        """Return the coordinates with efforts (k,) along them."""
        return ((self, efforts),)

    def stacked(self, others: Sequence[Measured]) -> Measured:
        """Return this coordinate and others with the same key as one stack."""
        every = (self, *others)
        joints = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(one.joints for one in every))
        return Measured(
            joints,
            sum((one.names for one in every), ()),
            self.number,
            sum((one.a for one in every), ()),
            sum((one.b for one in every), ()),
            self.wraps,
        )


@pytree
class Own:
    """A joint coordinate that is an entry of q, with its rate an entry of v.

    Attributes:
        in_q: the indices in q (k,) (static).
        in_v: the indices in v (k,) (static).
    """

    in_q: tuple[int, ...] = static()
    in_v: tuple[int, ...] = static()

    key = "own"
    wraps = False
    forgets = False

    @property
    def count(self) -> int:
        """The number of coordinates, k."""
        return len(self.in_v)

    def values(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the coordinates (k,) in m or rad."""
        return q[np.asarray(self.in_q)]

    def rates(self, coordinates: BodyCoordinates, motion: Kinematics, v: Any, t: Any) -> Array:
        """Return the coordinate rates (k,)."""
        return v[np.asarray(self.in_v)]

    def biases(self, coordinates: BodyCoordinates, motion: Kinematics, t: Any) -> Array:
        """Return zeros (k,), because the second derivatives are accelerations."""
        return jnp.zeros((len(self.in_v),), motion.frame[0].dtype)

    def terms(self, motion: Kinematics, t: Any, factor: Any) -> Terms:
        """Return row terms with the coordinate derivatives times a factor (k,)."""
        return Terms(on_velocities=(VelocityTerm(self.in_v, factor),))

    def pulls(self, efforts: Array) -> tuple[tuple[Any, Array], ...]:
        """Return the coordinates with efforts (k,) along them."""
        return ((self, efforts),)

    def stacked(self, others: Sequence[Own]) -> Own:
        """Return this coordinate and others as one stack."""
        every = (self, *others)
        return Own(sum((one.in_q for one in every), ()), sum((one.in_v for one in every), ()))


def with_turns(measured: Array, q: Any, places: Sequence[int], nearest: Any = None) -> Array:
    """Return force measures (k, rows) with the full turns of their entries of q, in m and rad.

    Args:
        measured: the coordinates (k, rows), of which the first may be in q.
        q: coordinates (nq,).
        places: the indices in q (k,), -1 for coordinates that are not in q.
        nearest: angles (k,) in rad: coordinates that are not in q are shifted by full turns to be nearest to
            them; None for no turns.
    """
    at = np.asarray(places)
    own: Any = jnp.where(at >= 0, q[at], measured[:, 0] if nearest is None else nearest.astype(q.dtype))
    # Equal up to full turns; the derivatives are those of the measure.
    near = measured[:, 0] + 2.0 * jnp.pi * jnp.round((own - measured[:, 0]) / (2.0 * jnp.pi))
    return measured.at[:, 0].set(near)


@pytree
class Relations:
    """A group of relations.

    Attributes:
        names: the names of the relations (static).
        unit: the unit of the rows, m or rad (static).
        first: the coordinates that follow, or weighted sums of them
            (`jaxdae.mechanisms.couplings.weighted_sums`).
        second: the coordinates that are followed, or weighted sums of them.
        coefficients: the polynomial coefficients (k, m).
        reference: the reference subtracted from the first coordinates (k,), in m or rad.
        other_reference: the reference subtracted from the second coordinates (k,), in m or rad.
    """

    names: tuple[str, ...] = static()
    unit: str = static()
    first: Any
    second: Any
    coefficients: Leaf
    reference: Leaf
    other_reference: Leaf

    def leaf_of(self, field: str, number: int) -> tuple[str, None] | None:
        """Return the leaf that holds a field of the description of a relation, or None."""
        return (field, None) if field in ("coefficients", "reference", "other_reference") else None

    def polynomial(self, x: Array) -> Array:
        """Return p(x) (k,), in m or rad."""
        total = jnp.zeros_like(x)
        for k in reversed(range(self.coefficients.shape[1])):
            total = total * x + self.coefficients[:, k]
        return total

    def slope(self, x: Array) -> Array:
        """Return p'(x) (k,)."""
        return jax.jvp(self.polynomial, (x,), (jnp.ones_like(x),))[1]

    def followed(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return x (k,), in m or rad."""
        x = self.second.values(coordinates, motion, q, t) - self.other_reference
        return nearest_turn(x) if self.second.wraps else x

    @property
    def forgets(self) -> bool:
        """Whether full turns are unknown on a side where they may matter."""
        return self.second.forgets or (self.first.forgets and not self.first.wraps)

    def lost(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any, ends: Any) -> Array:
        """Return whether an angle ends at half a turn, where the row would jump (k,).

        A jump counts if it exceeds 1e-6 of the polynomial's change over half a turn, whatever the unit.
        """
        arguments = coordinates, motion, q, t
        if not self.second.wraps:  # Weighted sums of coordinates.
            return self.first.lost(*arguments, ends) | self.second.lost(*arguments, ends)
        x = self.followed(*arguments)
        jump = self.polynomial(x) - self.polynomial(x - 2.0 * jnp.pi * jnp.sign(x))
        jump = nearest_turn(jump) if self.first.wraps else jump
        powers = np.pi ** np.arange(1, self.coefficients.shape[1])
        change = jnp.sum(jnp.abs(self.coefficients[:, 1:]) * powers.astype(x.dtype), axis=1)
        return ends(x) & (jnp.abs(jump) > 1e-6 * change)

    def residual(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the rows (k,) in m or rad."""
        x = self.followed(coordinates, motion, q, t)
        rest = self.first.values(coordinates, motion, q, t) - self.reference - self.polynomial(x)
        return nearest_turn(rest) if self.first.wraps else rest

    def rate(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, v: Any, t: Any) -> Array:
        """Return the rates of the rows along the motion (k,)."""
        slope = self.slope(self.followed(coordinates, motion, q, t))
        return self.first.rates(coordinates, motion, v, t) - slope * self.second.rates(
            coordinates, motion, v, t
        )

    def bias(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, v: Any, t: Any) -> Array:
        """Return the second derivatives of the rows along the motion at zero acceleration (k,)."""
        x = self.followed(coordinates, motion, q, t)
        slope, bend = jax.jvp(self.slope, (x,), (jnp.ones_like(x),))
        first, second = (side.biases(coordinates, motion, t) for side in (self.first, self.second))
        return first - slope * second - bend * self.second.rates(coordinates, motion, v, t) ** 2

    def terms(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Terms:
        """Return the terms whose sum is the rows of J."""
        slope = self.slope(self.followed(coordinates, motion, q, t))
        return self.first.terms(motion, t, jnp.ones_like(slope)).and_also(
            self.second.terms(motion, t, -slope)
        )

    def efforts(
        self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any, lam: Array
    ) -> tuple[tuple[Any, Array], ...]:
        """Return the coordinates of both sides with the efforts of multipliers (k,), in N or N m."""
        slope = self.slope(self.followed(coordinates, motion, q, t))
        return *self.first.pulls(lam), *self.second.pulls(-slope * lam)


def groups_of(
    relations: Sequence[Relation],
    joints: Mapping[str, Any],
    own: Callable[[str, int], tuple[int, int] | None],
    frames: Mapping[str, Any],
    numbers: Mapping[str, int],
) -> dict[str, Relations]:
    """Return described relations as groups.

    Args:
        relations: the relations.
        joints: all described joints by name.
        own: returns the indices of a joint coordinate in q and v, or None if it is not in q.
        frames: the frames of all bodies at the start pose, by name.
        numbers: the indices of all bodies, by name.
    """
    found: dict[str, list[Relations]] = {}
    for relation in relations:
        sides, references, units = [], [], []
        for name, along, given in (
            (relation.joint, relation.along, relation.reference),
            (relation.other, relation.other_along, relation.other_reference),
        ):
            joint = joints[name]
            number = joint_coordinate(joint, along)
            placed = joint.placed(frames, numbers)
            at_start = placed.coordinate(frames[joint.a], frames[joint.b], real(0.0))[number]
            place = own(name, number)
            sides.append(Own((place[0],), (place[1],)) if place else measured_coordinate(placed, number))
            references.append(at_start if given is None else real(given))
            units.append(list(joint.coordinates.values())[number])
        coefficients = vector(relation.coefficients)
        one = Relations(
            (relation.name,), units[0], sides[0], sides[1], coefficients, references[0], references[1]
        )
        key = "_".join([side.key for side in sides] + [units[0], str(coefficients.shape[0])])
        found.setdefault(key, []).append(one)
    return {key: _stacked(found[key]) for key in sorted(found)}


def measured_coordinate(placed: Any, number: int) -> Measured:
    """Return a coordinate of one joint, given as a group element."""
    unit = list(placed.coordinates.values())[number]
    return Measured(
        placed.measuring(number),
        placed.names,
        number,
        placed.a,
        placed.b,
        unit == "rad" and not placed.counts_turns,
    )


def stacked_coordinates(single: Sequence[Any]) -> Any:
    """Return single coordinates with the same key as one stack (k,)."""
    first, *others = single
    return first.stacked(others)


def _stacked(single: Sequence[Relations]) -> Relations:
    """Return one group of single relations of the same form."""
    coefficients, reference, other_reference = (
        jnp.stack([getattr(one, name) for one in single])
        for name in ("coefficients", "reference", "other_reference")
    )
    return Relations(
        sum((one.names for one in single), ()),
        single[0].unit,
        stacked_coordinates([one.first for one in single]),
        stacked_coordinates([one.second for one in single]),
        coefficients,
        reference,
        other_reference,
    )
