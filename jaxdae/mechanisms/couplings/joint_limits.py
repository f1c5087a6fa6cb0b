"""Joint limits and dry friction along joint coordinates: rows of a step with contact.

With s a joint coordinate and S v its rate, limits and dry friction are the rows

    lower limit         gap s - lower >= 0,    row  S
    upper limit         gap upper - s >= 0,    row -S
    dry friction        row S,  |effort| <= dry_friction

of a `Touch` (`jaxdae.systems.contacts`). The rows of contacts and loops never mix: the impulses of these rows
act in the space that the loops leave free (`jaxdae.integrators.touching`).

In joint coordinates, a tree coordinate is an entry of q, including full turns. In space, other angles are
measured between frames and known modulo 2 pi. Such a range must be shorter than a full turn, and the angle
counts as the one nearest to the middle of the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates
from jaxdae.mechanisms.couplings.relations import Measured, Own, measured_coordinate, stacked_coordinates
from jaxdae.mechanisms.describe.measures import Kinematics
from jaxdae.mechanisms.describe.numbers import concrete, is_there, named_positive
from jaxdae.mechanisms.joints.spatial_measures import nearest_turn
from jaxdae.typing import Leaf


@pytree
class AlongJoints:
    """Joint coordinates, in stacks of one kind each.

    Attributes:
        names: the joint of each coordinate (static).
        labels: the names of the coordinates, such as "knee.angle" (static).
        parts: the coordinates.
    """

    names: tuple[str, ...] = static()
    labels: tuple[str, ...] = static()
    parts: tuple[Own | Measured, ...]

    def values(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the coordinates (k,) in m or rad."""
        return jnp.concatenate([part.values(coordinates, motion, q, t) for part in self.parts])

    def rows(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the derivatives of the rates by the velocities (k, nv)."""
        rows = []
        for part in self.parts:
            ones = jnp.ones((part.count,), q.dtype)
            rows.append(coordinates.term_rows(q, motion, part.terms(motion, t, ones)))
        return jnp.concatenate(rows)

    def pulls(self, efforts: Array) -> Iterator[tuple[Own | Measured, Array]]:
        """Yield the coordinates of each stack with their efforts, from the efforts of all (k,)."""
        used = 0
        for part in self.parts:
            yield part, efforts[used : used + part.count]
            used += part.count

    @property
    def wraps(self) -> np.ndarray:
        """Whether each coordinate (k,) is an angle that is known modulo 2 pi only."""
        return np.concatenate([np.full(part.count, part.wraps) for part in self.parts])

    def number_of(self, joint: str) -> int:
        """Return the index of the only coordinate of a joint.

        Raises:
            KeyError: the joint has several coordinates.
        """
        found = [k for k, name in enumerate(self.names) if name == joint]
        if len(found) > 1:
            labels = ", ".join(self.labels[k] for k in found)
            raise KeyError(
                f"{joint!r} has several coordinates ({labels}); set the leaf of all joints instead"
            )
        return found[0]


@pytree
class JointLimits:
    """The limits of joint coordinates.

    Attributes:
        along: the limited coordinates.
        limits: lower and upper limits (k, 2) in m or rad; infinite without a limit.
        restitution: Newton's coefficient (k,).
        lower: indices of the coordinates with a lower limit (static).
        upper: indices of the coordinates with an upper limit (static).
        angular: whether each coordinate is an angle (static).
    """

    along: AlongJoints
    limits: Leaf
    restitution: Leaf
    lower: tuple[int, ...] = static()
    upper: tuple[int, ...] = static()
    angular: tuple[bool, ...] = static()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows: lower limits, then upper limits, such as "knee.angle.lower"."""
        labels = self.along.labels
        return (
            *(f"{labels[k]}.lower" for k in self.lower),
            *(f"{labels[k]}.upper" for k in self.upper),
        )

    @property
    def rebounding(self) -> tuple[str, ...]:
        """The names of the coordinates with a restitution above zero in any world, if not traced."""
        return named_positive(self.along.labels, self.restitution)

    @property
    def forgets(self) -> bool:
        """Whether any coordinate is an angle that is known modulo 2 pi only."""
        return bool(self.along.wraps.any())

    def _from_middle(self, s: Array) -> tuple[Array, Array]:
        """Return the middles (k,) of the ranges, and angles known modulo 2 pi relative to them; else 0, s."""
        wraps = self.along.wraps
        # Limits of angles known modulo 2 pi are finite.
        bounds: Any = jnp.where(wraps[:, None], self.limits, 0.0)
        middle = jnp.sum(bounds, axis=1) / 2.0
        away: Any = jnp.where(wraps, nearest_turn(s - middle), s)
        return middle, away

    def lost(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any, ends: Any) -> Array:
        """Return whether an angle known modulo 2 pi ends half a turn from the middle of its range (k,)."""
        return self.along.wraps & ends(self._from_middle(self.along.values(coordinates, motion, q, t))[1])

    def gaps(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the distances from the limits, lower limits first, in m or rad."""
        s, limits = self.along.values(coordinates, motion, q, t), self.limits
        if self.forgets:
            middle, away = self._from_middle(s)
            s = middle + away
        lower, upper = np.asarray(self.lower, int), np.asarray(self.upper, int)
        return jnp.concatenate([s[lower] - limits[lower, 0], limits[upper, 1] - s[upper]])

    def rows(self, coordinates: BodyCoordinates, motion: Kinematics, q: Any, t: Any) -> Array:
        """Return the derivatives of the rates of the gaps by the velocities."""
        rows = self.along.rows(coordinates, motion, q, t)
        return jnp.concatenate([rows[np.asarray(self.lower, int)], -rows[np.asarray(self.upper, int)]])

    def efforts(self, forces: Array) -> Array:
        """Return the efforts along the coordinates (k,) of forces of the rows, in N or N m."""
        signs = jnp.asarray(np.repeat([1.0, -1.0], [len(self.lower), len(self.upper)]), forces.dtype)
        none = jnp.zeros((len(self.along.labels),), forces.dtype)
        return none.at[self.of_rows].add(signs * forces)

    @property
    def of_rows(self) -> np.ndarray:
        """The index of the coordinate of each row."""
        return np.asarray([*self.lower, *self.upper], int)

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        for k, side in enumerate(("lower", "upper")):
            limited = np.isin(np.arange(len(self.along.labels)), getattr(self, side))
            yield (
                (abs(self.limits[..., k]) < np.inf) == limited,
                f"limits must be finite in column {k} where the description has a {side} limit, and infinite "
                "elsewhere",
            )
        yield (
            self.limits[..., 0] < self.limits[..., 1],
            "limits must have the lower limit below the upper one",
        )
        span = self.limits[..., 1] - self.limits[..., 0]
        yield (
            ~self.along.wraps | (span < 2.0 * np.pi),
            "limits must span less than a full turn where an angle is known modulo 2 pi",
        )
        yield (self.restitution >= 0.0) & (self.restitution <= 1.0), "restitution must be between 0 and 1"

    def leaf_of(self, field: str, joint: str) -> tuple[str, int] | None:
        """Return the leaf that holds a field of the description of a joint, and its index, or None."""
        if field in ("limits", "restitution") and joint in self.along.names:
            return field, self.along.number_of(joint)
        return None


@pytree
class DryFriction:
    """Dry friction along joint coordinates.

    Attributes:
        along: the coordinates.
        dry_friction: the largest effort (k,) in N or N m.
        angular: whether each coordinate is an angle (static).
    """

    along: AlongJoints
    dry_friction: Leaf
    angular: tuple[bool, ...] = static()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows, such as "knee.angle"."""
        return self.along.labels

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield self.dry_friction >= 0.0, "dry_friction must be non-negative"

    def leaf_of(self, field: str, joint: str) -> tuple[str, int] | None:
        """Return the leaf that holds a field of the description of a joint, and its index, or None."""
        if field == "dry_friction" and joint in self.along.names:
            return field, self.along.number_of(joint)
        return None


class _Coordinate(NamedTuple):
    """One coordinate of a described joint, with what limits it or resists its motion."""

    joint: str
    label: str
    is_angle: bool
    where: Own | Measured
    limits: Any
    restitution: Any
    dry_friction: Any


def limits_of(
    joints: Sequence[Any],
    own: Callable[[str, int], tuple[int, int] | None],
    frames: Mapping[str, Any],
    numbers: Mapping[str, int],
) -> tuple[JointLimits | None, DryFriction | None]:
    """Return the limits and the dry friction of described joints, each None without any.

    Args:
        joints: the described joints.
        own: returns the indices of a joint coordinate in q and v, or None if it is not in q.
        frames: the frames of all bodies at the start pose, by name.
        numbers: the indices of all bodies, by name.

    Raises:
        ValueError: limits of an angle that is known modulo 2 pi are missing or span a full turn.
    """
    every = [one for joint in joints for one in _coordinates(joint, own, frames, numbers)]
    limited = [one for one in every if one.limits is not None]
    dry = [one for one in every if one.dry_friction is not None]
    return _limits(limited) if limited else None, _dry_friction(dry) if dry else None


def _coordinates(joint: Any, own: Any, frames: Any, numbers: Any) -> Iterator[_Coordinate]:
    """Yield the coordinates of a joint that have limits or dry friction."""
    kinds = joint.kinds()
    if "limits" not in kinds:
        return
    limits, restitution, given = (
        kinds[name].each(getattr(joint, name)) for name in ("limits", "restitution", "dry_friction")
    )
    dry = [number if is_there(number) else None for number in given]
    for number, (coordinate, unit) in enumerate(joint.coordinates.items()):
        if limits[number] is None and dry[number] is None:
            continue
        place = own(joint.name, number)
        where = (
            Own((place[0],), (place[1],))
            if place
            else measured_coordinate(joint.placed(frames, numbers), number)
        )
        label = f"{joint.name}.{coordinate}"
        yield _Coordinate(
            joint.name, label, unit == "rad", where, limits[number], restitution[number], dry[number]
        )


def _limits(given: Sequence[_Coordinate]) -> JointLimits:
    ordered, along = _stacked(given)
    limits = [tuple(_bound(one, k) for k in range(2)) for one in ordered]
    known = [tuple(concrete(bound) for bound in pair) for pair in limits]
    present = [[bound is None or bool(np.isfinite(bound)) for bound in pair] for pair in known]
    mistakes = [
        f"joint {brief(one.joint)}: limits must have both bounds, less than 2 pi apart, because its angle is "
        "known modulo 2 pi; put the joint into the tree of Joints(), or narrow the limits"
        for one, there, (lower, upper) in zip(ordered, present, known, strict=True)
        if one.where.wraps
        and not (all(there) and (lower is None or upper is None or upper - lower < 2.0 * np.pi))
    ]
    if mistakes:
        raise ValueError("; ".join(mistakes))
    dtype = jnp.result_type(float)
    return JointLimits(
        along,
        jnp.stack([jnp.stack([jnp.asarray(bound, dtype) for bound in pair]) for pair in limits]),
        jnp.stack([jnp.asarray(one.restitution, dtype) for one in ordered]),
        tuple(k for k, (lower, _) in enumerate(present) if lower),
        tuple(k for k, (_, upper) in enumerate(present) if upper),
        tuple(one.is_angle for one in ordered),
    )


def _bound(one: _Coordinate, side: int) -> Any:
    """Return the lower (0) or upper (1) limit of a coordinate, infinite without one."""
    bound = one.limits[side]
    return (-np.inf, np.inf)[side] if bound is None else bound


def _dry_friction(given: Sequence[_Coordinate]) -> DryFriction:
    ordered, along = _stacked(given)
    return DryFriction(
        along,
        jnp.stack([jnp.asarray(one.dry_friction, jnp.result_type(float)) for one in ordered]),
        tuple(one.is_angle for one in ordered),
    )


def _stacked(given: Sequence[_Coordinate]) -> tuple[list[_Coordinate], AlongJoints]:
    """Return coordinates ordered by kind, and the same in stacks of one kind."""
    stacks: dict[str, list[_Coordinate]] = {}
    for one in given:
        stacks.setdefault(one.where.key, []).append(one)
    parts = tuple(stacked_coordinates([one.where for one in stack]) for stack in stacks.values())
    ordered = [one for stack in stacks.values() for one in stack]
    return ordered, AlongJoints(
        tuple(one.joint for one in ordered), tuple(one.label for one in ordered), parts
    )
