"""Weighted sums of joint coordinates: tendons with springs, dampers and motors, and rows between sums.

With s_i the joint coordinates and w_i constant weights, the length of a tendon, its rate, its derivative by
the velocities and its second derivative at zero acceleration are weighted sums of the coordinate quantities:

    L = sum_i w_i s_i,      V = sum_i w_i s_i',      dV/dv = sum_i w_i S_i,      sum_i w_i sigma_i.

An effort e along L does the work e dL, so the coordinate s_i receives w_i e. The row L - reference -
p(L_other - other_reference) = 0 with a polynomial p is the row of `jaxdae.mechanisms.couplings.relations`,
with sums instead of single coordinates.

References:
    MuJoCo documentation, "Computation", tendons and actuators; "XML reference", tendon/fixed and
    equality/tendon.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates, Terms
from jaxdae.mechanisms.couplings.relations import (
    Measured,
    Own,
    Relations,
    measured_coordinate,
    stacked_coordinates,
)
from jaxdae.mechanisms.describe.measures import Kinematics
from jaxdae.mechanisms.describe.numbers import real, vector
from jaxdae.mechanisms.describe.passive_effort import passive_effort
from jaxdae.mechanisms.forces.tendon import Tendon
from jaxdae.mechanisms.joints.relation_elements import TendonRelation
from jaxdae.typing import Input, Leaf, Scalar, Velocity


@pytree
class Sums:
    """Weighted sums of joint coordinates; the counterpart of `Own` and `Measured` for single coordinates.

    Attributes:
        parts: the coordinates, of one kind per part.
        weights: the weights of the coordinates of each part in the sums (k, coordinates).
        count: the number of sums, k (static).
    """

    parts: tuple[Own | Measured, ...]
    weights: tuple[Any, ...]
    count: int = static()

    wraps = False

    @property
    def forgets(self) -> bool:
        """Whether any coordinate is an angle that is known modulo 2 pi only."""
        return any(part.forgets for part in self.parts)

    def lost(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any, ends: Any) -> Array:
        """Return whether an angle known modulo 2 pi ends at half a turn (k,)."""
        near = jnp.zeros((self.count,), bool)
        for part, weights in zip(self.parts, self.weights, strict=True):
            if part.forgets:
                turned = ends(part.values(coordinates, motion, q, t))
                near |= jnp.any((weights != 0.0) & turned, axis=1)
        return near

    def _summed(self, each: Callable[[Own | Measured], Array], dtype: Any) -> Array:
        total = jnp.zeros((self.count,), dtype)
        for part, weights in zip(self.parts, self.weights, strict=True):
            total = total + weights.astype(dtype) @ each(part)
        return total

    def values(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the sums (k,)."""
        return self._summed(lambda part: part.values(coordinates, motion, q, t), q.dtype)

    def rates(self, coordinates: BodyCoordinates, motion: Kinematics, v: Any, t: Any) -> Array:
        """Return the rates of the sums (k,)."""
        return self._summed(lambda part: part.rates(coordinates, motion, v, t), v.dtype)

    def biases(self, coordinates: BodyCoordinates, motion: Kinematics, t: Any) -> Array:
        """Return the second derivatives of the sums at zero acceleration (k,)."""
        return self._summed(lambda part: part.biases(coordinates, motion, t), motion.frame[0].dtype)

    def rows(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the derivatives of the sums by the velocities (k, nv)."""
        none = jnp.zeros((self.count, len(coordinates.velocity_names)), q.dtype)
        return none + coordinates.term_rows(
            q, motion, self.terms(motion, t, jnp.ones((self.count,), q.dtype))
        )

    def terms(self, motion: Kinematics, t: Any, factor: Any) -> Terms:
        """Return row terms with the derivatives of the sums times a factor (k,).

        There is one term per coordinate, which all rows share.
        """
        found = Terms()
        for part, weights in zip(self.parts, self.weights, strict=True):
            terms = part.terms(motion, t, jnp.ones((weights.shape[1],), factor.dtype))
            for k in range(weights.shape[1]):
                found = found.and_also(terms.repeated(k, weights[:, k].astype(factor.dtype) * factor))
        return found

    def pulls(self, efforts: Array) -> tuple[tuple[Own | Measured, Array], ...]:
        """Return the coordinates with the efforts along them that result from efforts (k,) along the sums."""
        return tuple(
            (part, efforts @ weights.astype(efforts.dtype))
            for part, weights in zip(self.parts, self.weights, strict=True)
        )


_SPRING = "stiffness", "damping", "slack_from", "slack_to", "friction", "friction_speed"
_BOUNDS = "least_force", "most_force", "least_input", "most_input"
_OF_INPUT = "gain", "least_input", "most_input"


@pytree
class Tendons:
    """A group of tendons.

    Attributes:
        names: the names of the tendons (static).
        inputs: the inputs that they read, -1 for none (static).
        lengths: the tendon lengths as weighted sums.
        spring: stiffness, damping, bounds of the slack length, friction and its speed (k, 6).
        ratio: actuator travel per tendon travel (k,).
        gain: force per input, constant and per length and rate (k, 3); None if no tendon reads an input.
        bias: force without input, constant and per length and rate (k, 3).
        bounds: least and largest force, least and largest input (k, 4).
    """

    names: tuple[str, ...] = static()
    inputs: tuple[int, ...] = static()
    lengths: Sums
    spring: Leaf
    ratio: Leaf
    gain: Leaf
    bias: Leaf
    bounds: Leaf

    def leaf_of(self, field: str, number: int) -> tuple[str, int | None] | None:
        """Return the leaf and the column that hold a field of the description of a tendon, or None."""
        if field in _OF_INPUT and self.inputs[number] < 0:
            return None
        for leaf, columns in (("spring", _SPRING), ("bounds", _BOUNDS)):
            if field in columns:
                return leaf, columns.index(field)
        return (
            (field, None) if field in ("ratio", "gain", "bias") and getattr(self, field) is not None else None
        )

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        spring = {name: self.spring[..., k] for k, name in enumerate(_SPRING)}
        for name in ("stiffness", "damping", "friction"):
            yield (
                spring[name] >= 0.0,
                f"spring must have non-negative {name} in column {_SPRING.index(name)}",
            )
        yield spring["friction_speed"] > 0.0, "spring must have positive friction_speed in column 5"
        yield (
            spring["slack_from"] <= spring["slack_to"],
            "spring must not have slack_from (column 2) above slack_to (column 3)",
        )
        yield self.ratio != 0.0, "ratio must not be zero"
        for k, what in ((0, "force"), (2, "input")):
            yield (
                self.bounds[..., k] <= self.bounds[..., k + 1],
                f"bounds must not have least_{what} (column {k}) above most_{what} (column {k + 1})",
            )

    def _stretch(self, length: Array) -> Array:
        # min + max instead of `clip`: if both slack bounds coincide, as at the start pose by default, each
        # term contributes half of its slope, and the sum is the slope of a spring.
        return jnp.minimum(length - self.spring[:, 2], 0.0) + jnp.maximum(length - self.spring[:, 3], 0.0)

    def efforts(self, length: Array, rate: Array, u: Array) -> Array:
        """Return the efforts (k,) along the tendons from lengths, rates and inputs, each (k,)."""
        stiffness, damping, _, _, friction, speed = self.spring.T
        stretch = self._stretch(length)
        passive = passive_effort(
            stretch, rate, stiffness=stiffness, damping=damping, friction=friction, friction_speed=speed
        )
        feedback = jnp.stack([jnp.ones_like(length), self.ratio * length, self.ratio * rate], axis=1)
        force = jnp.sum(self.bias * feedback, axis=1)
        if self.gain is not None:
            force = force + jnp.sum(self.gain * feedback, axis=1) * jnp.clip(
                u, self.bounds[:, 2], self.bounds[:, 3]
            )
        return passive + self.ratio * jnp.clip(force, self.bounds[:, 0], self.bounds[:, 1])

    def acting(
        self, coordinates: BodyCoordinates, motion: Kinematics, state: tuple[Any, Any, Any], u: Input
    ) -> Array:
        """Return the efforts (k,) at a state (t, q, v) with inputs u; None means zero."""
        t, q, v = state
        numbers = np.asarray(self.inputs)
        given: Any = jnp.zeros((len(self.inputs),), q.dtype)
        if u is not None and np.any(numbers >= 0):
            given = jnp.where(numbers >= 0, jnp.asarray(u, q.dtype)[np.maximum(numbers, 0)], 0.0)
        return self.efforts(
            self.lengths.values(coordinates, motion, q, t),
            self.lengths.rates(coordinates, motion, v, t),
            given,
        )

    def pull(
        self, coordinates: BodyCoordinates, motion: Kinematics, state: tuple[Any, Any, Any], u: Input
    ) -> Velocity:
        """Return the generalized forces of the tendons (nv,)."""
        t, q, _ = state
        return self.acting(coordinates, motion, state, u) @ self.lengths.rows(coordinates, motion, q, t)

    def lost(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any, ends: Any) -> Array:
        """Return whether an angle on which the effort depends ends at half a turn (k,)."""
        feedback = self.bias[:, 1] != 0.0
        if self.gain is not None:
            feedback |= self.gain[:, 1] != 0.0
        feedback &= self.bounds[:, 0] < self.bounds[:, 1]
        # A slack tendon has no force at half a turn, but it may tighten after full turns, which are unknown.
        tightens = (self.spring[:, 0] != 0.0) & jnp.any(jnp.isfinite(self.spring[:, 2:4]), axis=1)
        depends, found = feedback | tightens, jnp.zeros(self.ratio.shape, bool)
        for part, weights in zip(self.lengths.parts, self.lengths.weights, strict=True):
            if part.forgets:
                ending = ends(part.values(coordinates, motion, q, t))
                found |= jnp.any(ending & (weights != 0.0) & depends[:, None], axis=1)
        return found

    def energy(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Scalar:
        """Return the spring energy in J."""
        return 0.5 * jnp.sum(
            self.spring[:, 0] * self._stretch(self.lengths.values(coordinates, motion, q, t)) ** 2
        )


class Sides:
    """Locations of the coordinates of described joints: in q, or measured between bodies."""

    def __init__(
        self,
        joints: Mapping[str, Any],
        own: Callable[[str, int], tuple[int, int] | None],
        frames: Mapping[str, Any],
        numbers: Mapping[str, int],
    ) -> None:
        self.joints, self.own, self.frames, self.numbers = joints, own, frames, numbers

    def sums(self, terms: Sequence[tuple[Sequence[str], Any]]) -> tuple[Sums, Array]:
        """Return weighted sums of the first coordinates of joints, and their values at the start pose (k,).

        Args:
            terms: for each sum, the names of joints and their weights.
        """
        names = tuple(dict.fromkeys(itertools.chain.from_iterable(joints for joints, _ in terms)))
        placed = {name: self.joints[name].placed(self.frames, self.numbers) for name in names}
        found: dict[str, list[tuple[Own | Measured, str]]] = {}
        for name in names:
            place = self.own(name, 0)
            side = measured_coordinate(placed[name], 0) if place is None else Own((place[0],), (place[1],))
            found.setdefault(side.key, []).append((side, name))
        parts = [
            (stacked_coordinates([side for side, _ in one]), [name for _, name in one])
            for one in found.values()
        ]
        zero = real(0.0)
        start = {
            name: joint.coordinate(
                *(self.frames[end] for end in (self.joints[name].a, self.joints[name].b)), zero
            )[0]
            for name, joint in placed.items()
        }

        def weight(term: Any, name: str) -> Any:
            return sum((real(w) for joint, w in zip(*term, strict=True) if joint == name), zero)

        weights = [
            jnp.stack([jnp.stack([weight(term, name) for name in part]) for term in terms])
            for _, part in parts
        ]
        values = [
            sum((weight(term, name) * start[name] for name in dict.fromkeys(term[0])), zero) for term in terms
        ]
        return Sums(tuple(part for part, _ in parts), tuple(weights), len(terms)), jnp.stack(values)

    def tendons(self, elements: Sequence[Tendon]) -> Tendons | None:
        """Return described tendons as a group, or None if there are none."""
        if not elements:
            return None
        lengths, start = self.sums([(one.joints, one.weights) for one in elements])

        def spring(one: Tendon, at_start: Any) -> Iterator[Any]:
            yield from (one.stiffness, one.damping)
            yield from (at_start if length is None else length for length in (one.slack_from, one.slack_to))
            yield from (one.friction, one.friction_speed)

        sides = tuple(zip(_BOUNDS, (-1.0, 1.0, -1.0, 1.0), strict=True))
        bounds = [
            [sign * jnp.inf if getattr(one, name) is None else getattr(one, name) for name, sign in sides]
            for one in elements
        ]
        return Tendons(
            names=tuple(one.name for one in elements),
            inputs=tuple(-1 if one.input is None else one.input for one in elements),
            lengths=lengths,
            spring=jnp.stack(
                [vector([*spring(one, length)]) for one, length in zip(elements, start, strict=True)]
            ),
            ratio=vector([one.ratio for one in elements]),
            gain=jnp.stack([vector(one.gain) for one in elements])
            if any(one.input is not None for one in elements)
            else None,
            bias=jnp.stack([vector(one.bias) for one in elements]),
            bounds=jnp.stack([vector(row) for row in bounds]),
        )

    def relations(self, elements: Sequence[TendonRelation]) -> dict[str, Relations]:
        """Return described tendon relations as a group, or an empty dictionary if there are none."""
        if not elements:
            return {}
        first, start = self.sums([(one.joints, one.weights) for one in elements])
        second, other_start = self.sums(
            [(one.others, () if not one.others else one.other_weights) for one in elements]
        )
        longest = max(len(one.coefficients) for one in elements)
        coefficients = [
            jnp.pad(vector(one.coefficients), (0, longest - len(one.coefficients))) for one in elements
        ]
        references = [
            vector([at if given is None else given for at, given in zip(at_start, asked, strict=True)])
            for at_start, asked in (
                (start, [one.reference for one in elements]),
                (other_start, [one.other_reference for one in elements]),
            )
        ]
        names = tuple(one.name for one in elements)
        return {"tendon_relation": Relations(names, "", first, second, jnp.stack(coefficients), *references)}
