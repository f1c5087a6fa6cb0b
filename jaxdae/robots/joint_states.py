"""Robot states by joint name; joints that follow others move with their drivers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms.couplings.relations import Own
from jaxdae.mechanisms.describe.angle_limits import doubts_of, rests_in_degrees
from jaxdae.mechanisms.describe.bodies import DescriptionWarning
from jaxdae.mechanisms.describe.numbers import concrete, hint
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.robots.postures import Posture
from jaxdae.systems.system import State, check_mechanism
from jaxdae.typing import Coordinates


def joint_state(
    mechanism: Mechanism, q: Coordinates, positions: Mapping[str, Any], rates: Mapping[str, Any] | None = None
) -> State:
    """Return a state at t = 0 in joint coordinates, by joint name; followers move with their drivers.

    Args:
        mechanism: result of `jm.mechanism(description, jm.Joints())`.
        q: coordinates of all joints that are not named, such as the second result of `jm.mechanism` (nq,).
        positions: in rad and m, such as `robot.start`. One number for a joint with one coordinate. Several
            for other joints, such as the four of a quaternion wxyz. Under the name of a free link, its seven
            numbers: position of its origin and quaternion.
        rates: in rad/s and m/s, in the same form; zero for joints that are not named.

    Raises:
        ValueError: a name without coordinates, a wrong count of numbers, or values that are not finite
            numbers; a follower without its driver, if the relation between them is not affine with a nonzero
            slope.

    A relation between two coordinates of the tree (a mimic joint, an equality of MJCF, a `Relation`) sets the
    follower from its driver, and the rate by the slope of the polynomial. This also applies along chains:

    - A follower that is not named follows. A follower that has its original number counts as not named: in
      `start | {"driver": 0.3}`, and in the same expression with a keyframe, the follower follows. The
      original numbers are the numbers of the file. In a plain dictionary they are the numbers of q, with its
      followers at their drivers, and zero rates.
    - If you name a follower but not its driver, the driver moves, and its other followers follow. In
      `start | {"follower": 0.1}` the driver counts as not named.
    - If you name both, both keep your numbers. If these violate the relation, functions such as
      `jaxdae.forward_dynamics` warn.

    Warns:
        DescriptionWarning: for angles that are probably in degrees.

    Loops, and relations of sums or of coordinates of loop joints, are not closed: call
    `jaxdae.initialize(mechanism, state.q, state.v)`.

    Differentiable with respect to positions and rates. Traced numbers count as named.
    """
    check_mechanism(mechanism)
    names = mechanism.names
    links = _links(mechanism)
    at_q = _values(q)
    for link in links:
        at_q[link.in_q[0]] = link.position(at_q[link.in_q[1]])
    found = _given("positions", positions, names.coordinates, _values(q), at_q)
    angles = [k for k in sorted(found.chosen) if names.coordinate_units[k] == "rad"]
    doubts = [
        f"{names.coordinates[k]}: {doubt}"
        for k in angles
        for doubt in doubts_of("the position", [found.values[k]], rests_in_degrees)
    ]
    if doubts:
        warnings.warn(f"joint_state: {join_first(doubts, '; ')}", DescriptionWarning, stacklevel=2)
    moving = _given("rates", rates or {}, names.velocities, [q.dtype.type(0.0)] * len(names.velocities), None)
    for link in reversed(links):
        for numbers, (follower, driver), invert in (
            (found, link.in_q, link.inverse),
            (moving, link.in_v, link.inverse_rate),
        ):
            if follower in numbers.chosen and driver not in numbers.kept:
                if not link.invertible:
                    one, other = (brief(names.coordinates[k].rsplit(".", 1)[0]) for k in link.in_q)
                    raise ValueError(
                        f"joint_state: {numbers.what} of {one} cannot move its driver {other}, because "
                        f"their relation is not affine with nonzero slope; give {other} instead"
                    )
                numbers.values[driver] = invert(numbers.values[follower])
                numbers.chosen.add(driver)
                numbers.kept.add(driver)
    for link in links:
        x = found.values[link.in_q[1]]
        if link.in_q[0] not in found.chosen:
            found.values[link.in_q[0]] = link.position(x)
        if link.in_v[0] not in moving.chosen:
            moving.values[link.in_v[0]] = link.slope(x) * moving.values[link.in_v[1]] + 0.0  # Avoid -0.0.
    return State(jnp.zeros((), q.dtype), _array(found.values, q.dtype), _array(moving.values, q.dtype))


class _Numbers(NamedTuple):
    """Positions or rates of all coordinates.

    Attributes:
        what: "positions" or similar, for messages.
        values: all numbers, named or not.
        chosen: the indices of named numbers that differ from the original ones.
        kept: the indices of numbers that followers must not move.
    """

    what: str
    values: list[Any]
    chosen: set[int]
    kept: set[int]


def _given(
    what: str, given: Mapping[str, Any], of: Sequence[str], values: list[Any], originals: list[Any] | None
) -> _Numbers:
    """Return the numbers of all coordinates.

    Args:
        what: "positions" or similar, for messages.
        given: the named numbers.
        of: names of all coordinates.
        values: numbers of the coordinates that are not named.
        originals: the original numbers, if `given` does not know them; zeros if None.

    Raises:
        ValueError: a name without coordinates, a wrong count of numbers, or values that are not finite.
    """
    places: dict[str, list[int]] = {}
    for k, name in enumerate(of):
        places.setdefault(name.rsplit(".", 1)[0], []).append(k)
    found = _Numbers(what, values, set(), set())
    dtype, stored = values[0].dtype if values else None, given.stored if isinstance(given, Posture) else {}
    for name, numbers in given.items():
        if name not in places:
            raise ValueError(
                f"joint_state: {what} of {brief(name)}, which is not a joint with "
                f"coordinates{hint(name, list(places))}"
            )
        known = concrete(numbers)
        if known is not None and not np.all(np.isfinite(known)):
            raise ValueError(
                f"joint_state: {what} of {brief(name)} must be finite numbers, got {brief(numbers)}"
            )
        count, given_numbers = len(places[name]), _known(numbers, dtype)
        if given_numbers.shape not in (((), (1,)) if count == 1 else ((count,),)):
            named = ", ".join(of[k].rsplit(".", 1)[1] for k in places[name])
            raise ValueError(
                f"joint_state: {what} of {brief(name)} must be {count} numbers ({named}), got "
                f"{brief(numbers)}"
            )
        known = (
            np.reshape(stored[name], -1)
            if name in stored
            else [originals[k] if originals else 0.0 for k in places[name]]
        )
        for k, number, original in zip(places[name], _values(given_numbers.reshape(-1)), known, strict=True):
            values[k] = number
            chosen = not _equal(number, original)
            if chosen:
                found.chosen.add(k)
            # Stored numbers are known not to be named; in a plain dictionary every number is.
            if chosen or name not in stored:
                found.kept.add(k)
    return found


def _equal(number: Any, original: Any) -> bool:
    """Return whether numbers are known to be equal up to rounding."""
    if isinstance(number, Tracer) or isinstance(original, Tracer):
        return False
    return bool(abs(number - original) <= 100.0 * np.finfo(number.dtype).eps * (1.0 + abs(original)))


class _Link(NamedTuple):
    """A coordinate of the tree that follows another coordinate: s = reference + p(s_other - other_reference).

    Attributes:
        in_q: indices of follower and driver in q.
        in_v: indices of follower and driver in v.
        coefficients: coefficients of p.
        reference: reference of the follower.
        other_reference: reference of the driver.
    """

    in_q: tuple[int, int]
    in_v: tuple[int, int]
    coefficients: list[Any]
    reference: Any
    other_reference: Any

    def position(self, driver: Any) -> Any:
        """Return the position of the follower."""
        x, total = driver - self.other_reference, 0.0 * driver
        for coefficient in reversed(self.coefficients):
            total = total * x + coefficient
        return self.reference + total

    def slope(self, driver: Any) -> Any:
        """Return the rate of the follower per rate of the driver."""
        x, total = driver - self.other_reference, 0.0 * driver
        for k in range(len(self.coefficients) - 1, 0, -1):
            total = total * x + k * self.coefficients[k]
        return total

    @property
    def invertible(self) -> bool:
        """Return whether the polynomial is affine with a nonzero slope, as far as its numbers are known."""
        nonzero = [isinstance(c, Tracer) or bool(c != 0.0) for c in self.coefficients[1:]]
        return nonzero[:1] == [True] and not any(nonzero[1:])

    def inverse(self, follower: Any) -> Any:
        """Return the position of the driver in an affine relation."""
        return (
            self.other_reference + (follower - self.reference - self.coefficients[0]) / self.coefficients[1]
        )

    def inverse_rate(self, follower: Any) -> Any:
        """Return the rate of the driver in an affine relation."""
        return follower / self.coefficients[1]


def _links(mechanism: Mechanism) -> list[_Link]:
    """Return the relations between coordinates of the tree, drivers first, one per follower."""
    dtype, links = mechanism.dtype, dict[int, _Link]()
    for group in mechanism.relations.values():
        first, second = group.first, group.second
        if not (isinstance(first, Own) and isinstance(second, Own)):
            continue
        coefficients, reference, other = (
            _known(x, dtype) for x in (group.coefficients, group.reference, group.other_reference)
        )
        rows = zip(first.in_q, second.in_q, first.in_v, second.in_v, strict=True)
        for k, (follower, driver, of_follower, of_driver) in enumerate(rows):
            link = _Link(
                (follower, driver), (of_follower, of_driver), _values(coefficients[k]), reference[k], other[k]
            )
            links.setdefault(follower, link)
    ordered: dict[int, _Link] = {}
    for follower in links:
        way: dict[int, _Link] = {}
        at = follower
        while at in links and at not in ordered and at not in way:
            way[at] = links[at]
            at = links[at].in_q[1]
        ordered |= reversed(way.items())
    return list(ordered.values())


def _known(numbers: Any, dtype: Any) -> Any:
    """Return concrete numbers as a NumPy array, which stays concrete inside `jit`, else a traced array."""
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers))
    return jnp.asarray(numbers, dtype) if traced else np.asarray(numbers, dtype)


def _values(numbers: Any) -> list[Any]:
    """Return the entries of an array as NumPy scalars or traced scalars."""
    return (
        [numbers[k] for k in range(numbers.shape[0])]
        if isinstance(numbers, Tracer)
        else list(np.asarray(numbers))
    )


def _array(values: list[Any], dtype: Any) -> Any:
    """Return entries as an array."""
    if any(isinstance(value, Tracer) for value in values):
        return jnp.stack([jnp.asarray(value, dtype) for value in values])
    return jnp.asarray(np.asarray(values, dtype))
