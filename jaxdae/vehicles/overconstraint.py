"""The motion of vehicles with conflicting wheels: three remedies, each with a report.

Four wheels constrain a car by four lateral rows for two unknowns. If the wheel axles do not meet in a point,
no motion satisfies all rows: as hard rows they stop the vehicle. A real vehicle moves, and its wheels slip.
The three remedies of the lecture notes are

    LeastResidual       min sum w_i slip_i^2,  with the speed prescribed, or weighted so that it may drop,
    IndependentRows     as many rows as unknowns, selected by name: the other wheels slip,
    EquivalentBicycle   each of two axles as one wheel in its middle, cot(delta) = mean of cot(delta_i) of its
    wheels.

`WheelReport` holds the slip of each wheel. `jaxdae.vehicles.least_residual` describes the solution of the
first remedy.

The bicycle is represented by the direction of the twist and never by the position of an instantaneous center,
which is at infinity in straight driving. A steered wheel at (x, y) has the lateral row n = (-s, c, x c + y
s), with s and c the sine and cosine of its angle. The wheel in the middle of an axle has the mean of the
cotangents if n / s is the mean of n_i / s_i. Two such rows leave one twist:

    n = n_1 s_2 + n_2 s_1,      (v_x, v_y, omega) ~ n_rear x n_front.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.3; lecture notes, Carnegie
    Mellon
    University.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import came, check_requirements, offers
from jaxdae.compile.rematerialization import made_again
from jaxdae.linalg.singular_values import singular_values
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.saddle_point import LeastSquares, pseudoinverse
from jaxdae.systems.status import Status
from jaxdae.systems.system import default_tolerance
from jaxdae.typing import Leaf
from jaxdae.vehicles.least_residual import least_residual
from jaxdae.vehicles.wheel_layout import Wheels, numbers


@pytree
class WheelReport:
    """The slip of the wheels of a vehicle at a twist.

    Attributes:
        names: names of the wheels (static).
        slip: speeds (k, 2) in m/s: e . v_c - r phi' along the heading (zero without given spins), and n . v_c
            to the left of it (zero for wheels with rollers).
        norm: square root of the weighted sum of the squared slips, in m/s, with the weights of the remedy, or
            1.
        rank: rank of the active rows; 3 if they determine the twist.
        condition: ratio of their largest singular value to the smallest nonzero singular value.
        status: a `Status`: SINGULAR if rows leave a motion undetermined, CONFLICTING_ROWS if the desired
            motion is impossible, NONFINITE if the slip is not finite for another reason, such as NaN spins.
    """

    names: tuple[str, ...] = static()
    slip: Leaf
    norm: Leaf
    rank: Leaf
    condition: Leaf
    status: Leaf

    def fighting(self, tolerance: float = 1e-6) -> tuple[str, ...]:
        """Return the names of wheels that slip faster than a tolerance in m/s, fastest first, on the host."""
        speed = np.max(np.abs(np.asarray(self.slip)), axis=-1)
        return tuple(self.names[k] for k in np.argsort(-speed, kind="stable") if speed[k] > tolerance)


class Answer(Protocol):
    """A remedy: it computes the motion of a vehicle with conflicting wheels."""

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Return the twist (3,) and the wheel report; speed (m/s) or rates (k,) in rad/s may be None."""
        ...


def vehicle_twist(
    wheels: Wheels, *, speed: Any = None, rates: Any = None, slip: Answer | None = None
) -> tuple[Array, WheelReport]:
    """Return the twist (v_x, v_y, omega) of a vehicle in its frame, in m/s and rad/s, and the wheel report.

    Args:
        wheels: the wheels at their current steering angles.
        speed: desired v_x in m/s, or None.
        rates: spins of the wheels (k,) in rad/s; None if they roll freely.
        slip: remedy for conflicting wheels: `LeastResidual()` by default, `IndependentRows(...)`,
            `EquivalentBicycle()`.

    Raises:
        TypeError: neither speed nor rates, or an invalid slip.
        ValueError: rates do not have one entry per wheel, speed is not one number, or a known radius is not
            positive.

    Differentiable wherever the twist is determined. With `LeastResidual()`, batches run without LAPACK.
    """
    if speed is None and rates is None:
        raise TypeError("vehicle_twist: give speed (m/s), rates (rad/s of each wheel), or both")
    check_requirements("wheels", wheels)
    dtype = wheels.place.dtype
    speed = None if speed is None else jnp.asarray(speed, dtype)
    rates = None if rates is None else jnp.asarray(rates, dtype)
    if speed is not None and speed.shape != ():
        raise ValueError(
            f"vehicle_twist: speed must be one number in m/s, got shape {speed.shape}; use jax.vmap for "
            "many vehicles"
        )
    if slip is not None and not offers(slip, "twist"):
        raise TypeError(
            "vehicle_twist: slip must be an answer such as LeastResidual() or EquivalentBicycle(), got "
            f"{came(slip)}"
        )
    if rates is not None and rates.shape != wheels.radius.shape:
        raise ValueError(
            f"vehicle_twist: rates must have shape {wheels.radius.shape}, one per wheel "
            f"({', '.join(wheels.names)}), got {rates.shape}"
        )
    # Rematerialize in reverse mode: in batches that is faster than saving and loading some dozen numbers.
    found = made_again(lambda answer, *arguments: answer.twist(*arguments))
    return found(LeastResidual() if slip is None else slip, wheels, speed, rates)


@pytree
class LeastResidual:
    """Wheels slip as little as possible: minimize the weighted sum of all squared slip speeds.

    Attributes:
        lateral: non-negative weights of lateral slips, one or (k,).
        rolling: non-negative weights of the slips along the headings, one or (k,).
        speed: weight of the desired speed, which may then drop; None prescribes the speed.
        dependent: whether rows may leave the twist undetermined; the smallest twist is then returned, at the
            cost of a singular value decomposition (static).
    """

    lateral: Leaf = 1.0
    rolling: Leaf = 1.0
    speed: Any = None
    dependent: bool = static(one_of=bool, default=False)

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Return the twist (3,) and the wheel report."""
        dtype = wheels.place.dtype
        held = np.asarray(wheels.held, int)
        for name, weights in (("lateral", self.lateral), ("rolling", self.rolling)):
            shape = jnp.asarray(weights, dtype).shape
            if shape not in ((), wheels.radius.shape):
                raise ValueError(
                    f"LeastResidual: {name} must be one weight, or have shape {wheels.radius.shape}, one "
                    f"per wheel, got {shape}"
                )

        def each(weights: Any) -> Array:
            return jnp.broadcast_to(jnp.asarray(weights, dtype), wheels.radius.shape)

        soft = [(wheels.across()[held], jnp.zeros((held.size,), dtype), each(self.lateral)[held])]
        if rates is not None:
            soft.append((wheels.rolling(), wheels.radius * rates, each(self.rolling)))
        forward = jnp.asarray([[1.0, 0.0, 0.0]], dtype)
        if speed is not None and self.speed is not None:
            soft.append((forward, speed[None], jnp.asarray(self.speed, dtype)[None]))
        rows, target, weights = (jnp.concatenate([part[k] for part in soft]) for k in range(3))
        hard, wanted = (
            (forward, speed[None]) if speed is not None and self.speed is None else (forward[:0], target[:0])
        )
        twist = (
            _smallest(rows, target, weights, hard, wanted)
            if self.dependent
            else self._only(wheels, speed, rates)
        )
        norm = _length(jnp.sqrt(weights) * (rows @ twist - target))
        counted = jnp.concatenate([jnp.sqrt(weights)[:, None] * rows, hard])
        return twist, _report(wheels, twist, rates, norm, counted, needed=None if self.dependent else 3)

    def _only(self, wheels: Wheels, speed: Any, rates: Any) -> Array:
        """Return the unique twist (3,) of least residual."""
        dtype = wheels.place.dtype
        zero, one = jnp.zeros((), dtype), jnp.ones((), dtype)

        def each(weights: Any) -> list[Any]:
            weights = jnp.asarray(weights, dtype)
            return numbers(weights) if weights.ndim else [weights] * len(wheels.names)

        single, lateral, rolling = wheels.single_rows(), each(self.lateral), each(self.rolling)
        soft = [(single[k][1], zero, lateral[k]) for k in wheels.held]
        if rates is not None:
            wanted = numbers(wheels.radius * rates)
            soft += [(single[k][2], wanted[k], rolling[k]) for k in range(len(single))]
        if speed is not None and self.speed is not None:
            soft.append(((one, zero, zero), speed, jnp.asarray(self.speed, dtype)))
        if not soft:  # Rollers without spins determine nothing, like a row of zero weight.
            soft.append(((zero, zero, zero), zero, zero))
        rows, target, counted = (tuple(part) for part in zip(*soft, strict=True))
        found: Any = least_residual(rows, target, counted, None if self.speed is not None else speed)
        ahead, others = found[0], found[1:]
        # If the other unknowns are NaN, return NaN for the prescribed speed too: an undefined wheel position
        # determines nothing.
        known: Any = jnp.where(others[0] == others[0], ahead, jnp.nan)
        return jnp.stack([known, *others])


@pytree
class IndependentRows:
    """Three rows, or two rows and the speed, determine the twist; the other wheels slip.

    Attributes:
        rows: names such as "rear_left.lateral" and "rear_left.rolling" (static).
    """

    rows: tuple[str, ...] = static()

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Return the twist (3,) and the wheel report.

        Raises:
            ValueError: unknown rows, a number of rows different from the number of unknowns, rolling rows
                without rates.
        """
        dtype = wheels.place.dtype
        lateral = {
            f"{wheels.names[k]}.lateral": (wheels.across()[k], jnp.zeros((), dtype)) for k in wheels.held
        }
        rolling = (
            {}
            if rates is None
            else {
                f"{name}.rolling": (wheels.rolling()[k], wheels.radius[k] * rates[k])
                for k, name in enumerate(wheels.names)
            }
        )
        known = lateral | rolling
        unknown = [f"{name!r}{hint(name, list(known))}" for name in self.rows if name not in known]
        if unknown:
            raise ValueError(f"IndependentRows: no row is named {'; '.join(unknown)}")
        needed = 3 if speed is None else 2
        if len(set(self.rows)) != needed or len(self.rows) != needed:
            extra = "" if speed is None else " in addition to the speed"
            raise ValueError(
                f"IndependentRows: rows must be {needed} different names{extra}, got {self.rows}"
            )
        chosen = [known[name] for name in self.rows]
        if speed is not None:
            chosen.append((jnp.asarray([1.0, 0.0, 0.0], dtype), speed))
        matrix, target = jnp.stack([row for row, _ in chosen]), jnp.stack([value for _, value in chosen])
        twist = jnp.linalg.solve(matrix, target)
        return twist, _report(wheels, twist, rates, None, matrix, needed=3)


@pytree
class EquivalentBicycle:
    """Each of two axles acts as one wheel in its middle, with cot(delta) = mean of cot(delta_i).

    The mean of the cotangents of two wheels is not differentiable with respect to one wheel alone if both
    head straight: it is 2 s_1 s_2 / (s_1 + s_2) for small angles. It is differentiable if one angle steers
    both wheels together; autodiff returns that derivative.

    Attributes:
        steered: names of the steered wheels, all on one axle (static). The other wheels head forward,
            regardless of their angles. None for two axles that may both be steered: the wheels ahead of the
            mean position of all wheels, and the wheels behind it.
    """

    steered: tuple[str, ...] | None = static(default=None)

    def direction(self, wheels: Wheels) -> Array:
        """Return the direction (v_x, v_y, omega) of the twist with unit length; forward if driving straight.

        Omega is in rad/s. NaN if all wheels are on one axle and no wheel is named.

        Raises:
            ValueError: unknown wheels; no steered wheel, or no unsteered wheel; a single wheel.
        """
        named = () if self.steered is None else tuple(wheels.number(name) for name in self.steered)
        used = np.asarray(sorted({*wheels.held, *named}), int)
        if self.steered is None and used.size < 2:
            raise ValueError(
                f"EquivalentBicycle: needs wheels without rollers on two axles, got {used.size} of "
                f"{wheels.names}"
            )
        if self.steered is not None and len(set(named)) in (0, used.size):
            raise ValueError(
                "EquivalentBicycle: needs both steered and unsteered wheels, got "
                f"steered={self.steered} of {wheels.names}"
            )
        along = wheels.place[used, 0]
        ahead = along > jnp.mean(along) if self.steered is None else jnp.asarray(np.isin(used, named))
        rows = wheels.across()[used]
        if self.steered is not None:
            forward = jnp.stack([jnp.zeros_like(along), jnp.ones_like(along), along], axis=1)
            rows = jnp.where(ahead[:, None], rows, forward)
        found = jnp.cross(self._in_the_middle(rows, ~ahead), self._in_the_middle(rows, ahead))
        steered_behind = jnp.mean(along, where=ahead) < jnp.mean(along)
        return jnp.where(steered_behind, -found, found) / _length(found)

    def _in_the_middle(self, rows: Array, mine: Array) -> Array:
        """Return the row (3,) of the wheel that replaces the wheels in `mine`, up to a positive factor."""
        count = rows.shape[0]
        sines: list[Any] = [jnp.where(mine[k], -rows[k, 0], 0.0) for k in range(count)]
        # Divide by the largest sine, which does not change the direction: products of small angles would
        # underflow.
        largest: Any = jax.lax.stop_gradient(jnp.max(jnp.abs(jnp.stack(sines))))
        share = [
            jnp.where(mine[k], sines[k] / jnp.where(largest == 0.0, 1.0, largest), 1.0) for k in range(count)
        ]
        total: Any = jnp.zeros_like(rows[0])
        for k in range(count):
            total = total + jnp.where(mine[k], rows[k], 0.0) * math.prod([*share[:k], *share[k + 1 :]])
        # Use the same orientation for left and right turns.
        odd = jnp.sum(mine) % 2 == 1
        oriented = jnp.where(odd | (sum(sines) >= 0.0), total, -total)
        # If all wheels head forward, the products are zero; to first order the row is then the mean.
        mean = jnp.mean(rows, axis=0, where=mine[:, None])
        straight = jnp.all(jnp.stack(sines) == 0.0)
        found: Any = jnp.where(straight, mean, oriented)
        return found

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Return the twist (3,) and the wheel report; speed is required, and rates only affect the report.

        At right-angle steering, no forward speed is possible: the twist is zero and the status is
        CONFLICTING_ROWS. The slip of the report then refers to straight driving at this speed, so that
        `fighting` names the blocking wheels.

        Raises:
            TypeError: speed is None.
        """
        if speed is None:
            raise TypeError("EquivalentBicycle: give speed (m/s); spins of wheels do not determine it")
        direction = self.direction(wheels)
        # At right-angle steering the vehicle turns about its rear axle: a forward speed is impossible.
        possible = ~(jnp.abs(direction[0]) <= default_tolerance(direction.dtype))
        twist: Any = jnp.where(possible, direction * speed / jnp.where(possible, direction[0], 1.0), 0.0)
        # If the speed is impossible, report the wheels that block it.
        wished = jnp.where(possible, twist, jnp.stack([speed, jnp.zeros_like(speed), jnp.zeros_like(speed)]))
        report = _report(
            wheels, wished, rates, None, wheels.across()[np.asarray(wheels.held, int)], needed=None
        )
        conflict: Any = jnp.where(possible | (speed == 0.0), report.status, Status.CONFLICTING_ROWS)
        return twist, WheelReport(
            report.names, report.slip, report.norm, report.rank, report.condition, conflict.astype(jnp.int32)
        )


def _smallest(rows: Any, target: Any, weights: Any, hard: Any, wanted: Any) -> Array:
    """Return the smallest twist of least residual."""
    root = jnp.sqrt(weights)
    scaled, aim = root[:, None] * rows, root * target
    if not hard.shape[0]:
        return pseudoinverse(scaled, LeastSquares()) @ aim
    start = pseudoinverse(hard, LeastSquares()) @ wanted
    free = jnp.eye(3, dtype=rows.dtype) - pseudoinverse(hard, LeastSquares()) @ hard
    return start + free @ (pseudoinverse(scaled @ free, LeastSquares()) @ (aim - scaled @ start))


def _report(wheels: Wheels, twist: Any, rates: Any, norm: Any, rows: Any, needed: int | None) -> WheelReport:
    """Return the wheel report; `rows` (m, 3) are the active rows, of which `needed` must be independent."""
    across: Any = wheels.across() @ twist
    held = jnp.asarray([not rolls for rolls in wheels.rollers])
    across = jnp.where(held, across, 0.0)
    along = jnp.zeros_like(across) if rates is None else wheels.rolling() @ twist - wheels.radius * rates
    slip = jnp.stack([along, across], axis=1)
    values = singular_values(jax.lax.stop_gradient(rows))
    values = (
        jnp.concatenate([values, jnp.zeros((3 - values.shape[0],), values.dtype)])
        if values.shape[0] < 3
        else values
    )
    limit = 16.0 * float(jnp.finfo(values.dtype).eps) * values[0]
    rank = jnp.sum(values > limit)
    least = jnp.min(jnp.where(values > limit, values, jnp.inf))
    status: Any = (
        jnp.asarray(Status.OK) if needed is None else jnp.where(rank == needed, Status.OK, Status.SINGULAR)
    )
    unknown = (status == Status.OK) & ~jnp.all(jnp.isfinite(slip))
    status = jnp.where(unknown, Status.NONFINITE, status)
    size = _length(slip) if norm is None else norm
    return WheelReport(
        wheels.names, slip, size, rank.astype(jnp.int32), values[0] / least, status.astype(jnp.int32)
    )


def _length(x: Any) -> Any:
    """Return the length of a vector; its derivative at zero is defined as zero."""
    square = jnp.sum(x * x)
    apart = square != 0.0  # NaN stays NaN.
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
