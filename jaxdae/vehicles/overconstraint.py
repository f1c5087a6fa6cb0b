"""How a vehicle moves whose wheels contradict each other: three answers, and always a report.

Four wheels hold a car by four lateral rows for two unknowns. Where the axles of all wheels do not meet in a point, no motion satisfies all
of them: as hard rows they stop the vehicle. It moves all the same, and wheels slip. The notes give three remedies, and so do the values
here:

    LeastResidual       min sum w_i slip_i^2,  with the speed held, or a wish like the others: then it may drop,
    IndependentRows     as many rows as there are unknowns, by name: the other wheels slip,
    EquivalentBicycle   each axle as one wheel in its middle, cot(delta) = mean of cot(delta_i) of its wheels.

`WheelReport` says how fast each wheel slips. How the first answer is found is told in `jaxdae.vehicles.least_residual`.

The bicycle is a direction of the twist and never the place of an instantaneous center, which is at infinity for straight driving. A steered
wheel at (L, y) ahead of the axle that is not steered asks for omega : v = s : (L c + y s) with its angle's sine s and cosine c; the mean
of the radii v / omega of two wheels is

    omega : v = 2 s_1 s_2 : (s_2 v_1 + s_1 v_2),      v_i = L c_i + y_i s_i.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.3; lecture notes, Carnegie Mellon University.
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae._pytree import pytree, static
from jaxdae.checkpointing import made_again
from jaxdae.mechanisms.values import hint
from jaxdae.saddle_point import LeastSquares, pseudoinverse
from jaxdae.saddle_point.singular_values import singular_values
from jaxdae.status import Status
from jaxdae.system import default_tolerance
from jaxdae.typing import Leaf
from jaxdae.vehicles.layout import Wheels, numbers
from jaxdae.vehicles.least_residual import least_residual


@pytree
class WheelReport:
    """What the wheels of a vehicle do at a twist.

    Attributes:
        names: of the wheels (static).
        slip: speeds (k, 2) in m/s: e . v_c - r phi' along the heading (zero where no spins were given), n . v_c to the left of it (zero
            of wheels with rollers).
        norm: the square root of the weighted sum of their squares, in m/s; the weights are those of the answer, 1 where it has none.
        rank: of the rows that take part; 3 where they determine the twist.
        condition: the ratio of their largest singular value to the smallest that is not zero.
        status: a `Status`: SINGULAR where rows leave a motion undetermined, CONFLICTING_ROWS where the wished motion is impossible,
            NONFINITE where it is not a number for another reason, such as spins that are none.
    """

    names: tuple[str, ...] = static()
    slip: Leaf
    norm: Leaf
    rank: Leaf
    condition: Leaf
    status: Leaf

    def fighting(self, tolerance: float = 1e-6) -> tuple[str, ...]:
        """Returns the names of the wheels that slip by more than a speed in m/s, the fastest first; on the host."""
        speed = np.max(np.abs(np.asarray(self.slip)), axis=-1)
        return tuple(self.names[k] for k in np.argsort(-speed, kind="stable") if speed[k] > tolerance)


class Answer(Protocol):
    """How a vehicle moves whose wheels contradict each other."""

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Returns the twist (3,) and what the wheels do; speed (m/s) or rates (k,) in rad/s may be None."""
        ...


def vehicle_twist(wheels: Wheels, *, speed: Any = None, rates: Any = None, slip: Answer | None = None) -> tuple[Array, WheelReport]:
    """Returns the twist (v_x, v_y, omega) of a vehicle in its frame, in m/s and rad/s, and what its wheels do.

    Args:
        wheels: the wheels as they stand.
        speed: v_x that is wished in m/s; None for none.
        rates: the spins of the wheels (k,) in rad/s; None where they roll freely.
        slip: what happens where wheels contradict each other: `LeastResidual()` by default, `IndependentRows(...)`,
            `EquivalentBicycle(...)`.

    Raises:
        TypeError: neither speed nor rates.
        ValueError: rates that are not one a wheel.

    Differentiable wherever the twist is determined; in batches without LAPACK, with `LeastResidual()`.
    """
    if speed is None and rates is None:
        raise TypeError("vehicle_twist: give speed (m/s), rates (rad/s of each wheel), or both")
    dtype = wheels.place.dtype
    speed = None if speed is None else jnp.asarray(speed, dtype)
    rates = None if rates is None else jnp.asarray(rates, dtype)
    if rates is not None and rates.shape != wheels.radius.shape:
        raise ValueError(
            f"vehicle_twist: rates must have shape {wheels.radius.shape}, one a wheel ({', '.join(wheels.names)}), got {rates.shape}"
        )
    # Reverse mode keeps the arguments and computes the rest again: in batches that is faster than to store and read some dozen numbers.
    found = made_again(lambda answer, *arguments: answer.twist(*arguments))
    return found(LeastResidual() if slip is None else slip, wheels, speed, rates)


@pytree
class LeastResidual:
    """Wheels slip as little as they can: the weighted sum of the squares of all slip speeds is least.

    Attributes:
        lateral: weights of lateral slips, one or (k,), zero or more.
        rolling: weights of the slips along the headings, one or (k,), zero or more.
        speed: weight of the wished speed, which may then drop; None holds it.
        dependent: whether rows may leave the twist undetermined, so that the smallest is taken; it costs a singular value decomposition
            (static).
    """

    lateral: Leaf = 1.0
    rolling: Leaf = 1.0
    speed: Any = None
    dependent: bool = static(one_of=bool, default=False)

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Returns the twist (3,) and what the wheels do."""
        dtype = wheels.place.dtype
        held = np.asarray(wheels.held, int)

        def each(weights: Any) -> Array:
            return jnp.broadcast_to(jnp.asarray(weights, dtype), wheels.radius.shape)

        soft = [(wheels.across()[held], jnp.zeros((held.size,), dtype), each(self.lateral)[held])]
        if rates is not None:
            soft.append((wheels.rolling(), wheels.radius * rates, each(self.rolling)))
        forward = jnp.asarray([[1.0, 0.0, 0.0]], dtype)
        if speed is not None and self.speed is not None:
            soft.append((forward, speed[None], jnp.asarray(self.speed, dtype)[None]))
        rows, target, weights = (jnp.concatenate([part[k] for part in soft]) for k in range(3))
        hard, wanted = (forward, speed[None]) if speed is not None and self.speed is None else (forward[:0], target[:0])
        twist = _smallest(rows, target, weights, hard, wanted) if self.dependent else self._only(wheels, speed, rates)
        norm = _length(jnp.sqrt(weights) * (rows @ twist - target))
        counted = jnp.concatenate([jnp.sqrt(weights)[:, None] * rows, hard])
        return twist, _report(wheels, twist, rates, norm, counted, needed=None if self.dependent else 3)

    def _only(self, wheels: Wheels, speed: Any, rates: Any) -> Array:
        """Returns the one twist (3,) of least residual."""
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
        if not soft:  # Of rollers without spins nothing is known, as of a row without weight.
            soft.append(((zero, zero, zero), zero, zero))
        rows, target, counted = (tuple(part) for part in zip(*soft, strict=True))
        found: Any = least_residual(rows, target, counted, None if self.speed is not None else speed)
        ahead, others = found[0], found[1:]
        # A speed that is held is no number where the rest is none: of a wheel that is nowhere nothing is known.
        known: Any = jnp.where(others[0] == others[0], ahead, jnp.nan)
        return jnp.stack([known, *others])


@pytree
class IndependentRows:
    """Three rows, or two and the speed, determine the twist; wheels with other rows slip.

    Attributes:
        rows: names such as "rear_left.lateral" and "rear_left.rolling" (static).
    """

    rows: tuple[str, ...] = static()

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Returns the twist (3,) and what the wheels do.

        Raises:
            ValueError: unknown rows, not as many as there are unknowns, rolling rows without rates.
        """
        dtype = wheels.place.dtype
        lateral = {f"{wheels.names[k]}.lateral": (wheels.across()[k], jnp.zeros((), dtype)) for k in wheels.held}
        rolling = (
            {}
            if rates is None
            else {f"{name}.rolling": (wheels.rolling()[k], wheels.radius[k] * rates[k]) for k, name in enumerate(wheels.names)}
        )
        known = lateral | rolling
        unknown = [f"{name!r}{hint(name, list(known))}" for name in self.rows if name not in known]
        if unknown:
            raise ValueError(f"IndependentRows: no row is called {'; '.join(unknown)}")
        needed = 3 if speed is None else 2
        if len(set(self.rows)) != needed or len(self.rows) != needed:
            extra = "" if speed is None else " beside the speed"
            raise ValueError(f"IndependentRows: rows must be {needed} different names{extra}, got {self.rows}")
        chosen = [known[name] for name in self.rows]
        if speed is not None:
            chosen.append((jnp.asarray([1.0, 0.0, 0.0], dtype), speed))
        matrix, target = jnp.stack([row for row, _ in chosen]), jnp.stack([value for _, value in chosen])
        twist = jnp.linalg.solve(matrix, target)
        return twist, _report(wheels, twist, rates, None, matrix, needed=3)


@pytree
class EquivalentBicycle:
    """Steered wheels act as one in the middle of their axle; the others do not slip sideways in the middle of theirs.

    The mean of cotangents of two wheels has no derivative in one of them alone where both head straight: 2 s_1 s_2 / (s_1 + s_2) for small
    angles. Where they are steered together, by one angle, it has; that is what autodiff returns.

    Attributes:
        steered: the names of the steered wheels, all on one axle (static). The others head forward.
    """

    steered: tuple[str, ...] = static()

    def direction(self, wheels: Wheels) -> Array:
        """Returns the direction (v_x, v_y, omega) of the twist, of unit length with omega in rad/s; forward at straight driving.

        Raises:
            ValueError: unknown wheels, none that is steered, or none that is not.
        """
        numbers = [wheels.number(name) for name in self.steered]
        others = [k for k in wheels.held if k not in numbers]
        if not numbers or not others:
            raise ValueError(
                f"EquivalentBicycle: needs wheels that are steered and wheels that are not, got steered={self.steered} of {wheels.names}"
            )
        axle = jnp.mean(wheels.place[np.asarray(others), 0])
        middle = jnp.mean(wheels.place[np.asarray(others), 1])
        turn, ahead = zip(*(self._asked(wheels, k, axle, middle) for k in numbers), strict=True)
        # Over the largest sine, which changes no direction: products of small angles would underflow.
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(jnp.stack(turn))))
        share = [s / jnp.where(largest == 0.0, 1.0, largest) for s in turn]
        product = turn[0] * self._product(share[1:])
        forward = sum(speed * self._product([s for j, s in enumerate(share) if j != k]) for k, speed in enumerate(ahead))
        # The same orientation for turns to the left and to the right.
        sign = jnp.where(sum(turn) < 0.0, -1.0, 1.0) ** (len(numbers) - 1)
        straight = jnp.all(jnp.stack(turn) == 0.0)
        # Where all wheels head forward both are zero; to first order they are then the means.
        omega: Any = jnp.where(straight, sum(turn) / len(turn), sign * len(turn) * product)
        v: Any = jnp.where(straight, sum(ahead) / len(ahead), sign * forward)
        # v is along the axle that is not steered, whose middle is off the x axis of the frame by `middle`.
        found = jnp.stack([v + middle * omega, -axle * omega, omega])
        return found / _length(found)

    def _asked(self, wheels: Wheels, k: int, axle: Any, middle: Any) -> tuple[Any, Any]:
        sine, cosine = jnp.sin(wheels.steering[k]), jnp.cos(wheels.steering[k])
        return sine, (wheels.place[k, 0] - axle) * cosine + (wheels.place[k, 1] - middle) * sine

    def _product(self, factors: Any) -> Any:
        total: Any = 1.0
        for factor in factors:
            total = total * factor
        return total

    def twist(self, wheels: Wheels, speed: Any, rates: Any) -> tuple[Array, WheelReport]:
        """Returns the twist (3,) and what the wheels do; the speed must be given, and rates count for the report only.

        Steered at right angles no forward speed is possible: the twist is zero then, the status CONFLICTING_ROWS, and the slip of the
        report is that of driving straight at this speed, so that `fighting` names the wheels that stand in the way.

        Raises:
            TypeError: no speed.
        """
        if speed is None:
            raise TypeError("EquivalentBicycle: give speed (m/s); spins of wheels do not determine it")
        direction = self.direction(wheels)
        # Steered at right angles it turns about its rear axle, however fast: a forward speed is impossible.
        possible = ~(jnp.abs(direction[0]) <= default_tolerance(direction.dtype))
        twist: Any = jnp.where(possible, direction * speed / jnp.where(possible, direction[0], 1.0), 0.0)
        # Where it is impossible the wheels that stand in its way are those that would slip.
        wished = jnp.where(possible, twist, jnp.stack([speed, jnp.zeros_like(speed), jnp.zeros_like(speed)]))
        report = _report(wheels, wished, rates, None, wheels.across()[np.asarray(wheels.held, int)], needed=None)
        conflict: Any = jnp.where(possible | (speed == 0.0), report.status, Status.CONFLICTING_ROWS)
        return twist, WheelReport(report.names, report.slip, report.norm, report.rank, report.condition, conflict.astype(jnp.int32))


def _smallest(rows: Any, target: Any, weights: Any, hard: Any, wanted: Any) -> Array:
    """Returns the smallest twist of least residual."""
    root = jnp.sqrt(weights)
    scaled, aim = root[:, None] * rows, root * target
    if not hard.shape[0]:
        return pseudoinverse(scaled, LeastSquares()) @ aim
    start = pseudoinverse(hard, LeastSquares()) @ wanted
    free = jnp.eye(3, dtype=rows.dtype) - pseudoinverse(hard, LeastSquares()) @ hard
    return start + free @ (pseudoinverse(scaled @ free, LeastSquares()) @ (aim - scaled @ start))


def _report(wheels: Wheels, twist: Any, rates: Any, norm: Any, rows: Any, needed: int | None) -> WheelReport:
    """Returns what the wheels do; `rows` (m, 3) are those that take part, of which so many must be independent."""
    across: Any = wheels.across() @ twist
    held = jnp.asarray([not rolls for rolls in wheels.rollers])
    across = jnp.where(held, across, 0.0)
    along = jnp.zeros_like(across) if rates is None else wheels.rolling() @ twist - wheels.radius * rates
    slip = jnp.stack([along, across], axis=1)
    values = singular_values(jax.lax.stop_gradient(rows))
    values = jnp.concatenate([values, jnp.zeros((3 - values.shape[0],), values.dtype)]) if values.shape[0] < 3 else values
    limit = 16.0 * float(jnp.finfo(values.dtype).eps) * values[0]
    rank = jnp.sum(values > limit)
    least = jnp.min(jnp.where(values > limit, values, jnp.inf))
    status: Any = jnp.asarray(Status.OK) if needed is None else jnp.where(rank == needed, Status.OK, Status.SINGULAR)
    unknown = (status == Status.OK) & ~jnp.all(jnp.isfinite(slip))
    status = jnp.where(unknown, Status.NONFINITE, status)
    size = _length(slip) if norm is None else norm
    return WheelReport(wheels.names, slip, size, rank.astype(jnp.int32), values[0] / least, status.astype(jnp.int32))


def _length(x: Any) -> Any:
    """Returns the length of a vector; its derivative at zero is taken as zero."""
    square = jnp.sum(x * x)
    apart = square != 0.0  # Not a number is kept.
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)
