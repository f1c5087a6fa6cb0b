"""Range checks of a mechanism: joint limits, half turns of angles in space, and jumps of motions.

Such angles are known modulo 2 pi only. Relations, springs, servos and tendons that depend on them would jump
at half a turn.

Rows act on accelerations, so a prescribed motion that jumps opens its joint, unless a projection closes it. A
motion p jumps in a step from t to t + h if |p(t + h) - p(t)| exceeds h times twice the largest rate |p'| at
the start, the middle and the end of the step. A motion that the steps resolve never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms.couplings.relations import with_turns
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Kinematics, Pairs
from jaxdae.mechanisms.describe.motions import Polynomial, Sinusoid
from jaxdae.mechanisms.joints.spatial_measures import near_half_turn
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, default_tolerance
from jaxdae.typing import Coordinates, Count, Scalar


def condition(mechanism: Any, t: Scalar, q: Coordinates, *, forces: bool) -> Count | None:
    """Return the first status of a joint or effort out of range, or OK; None if nothing has a range.

    Args:
        mechanism: the mechanism.
        t: time in s.
        q: coordinates (nq,).
        forces: whether springs, servos and tendons act.
    """
    limited, turning = (
        [group for group in mechanism.joints.values() if group.margins],
        _turning(mechanism, forces),
    )
    if not limited and not turning:
        return None
    motion, found = mechanism.coordinates.at_rest(q), jnp.asarray(Status.OK, jnp.int32)
    for lost in turning:
        found = jnp.where(
            jnp.any(lost(motion, q, t, near_half_turn)), jnp.asarray(Status.OUT_OF_RANGE, jnp.int32), found
        )
    for group in limited:
        room = fr.values(
            type(group).room, group, Pairs(group.a, group.b, len(mechanism.body_names)), motion, t
        )
        for k, status in enumerate(group.margins.values()):
            beyond = (found == Status.OK) & ~jnp.all(room[:, k] > 0.0)
            found = jnp.where(beyond, jnp.asarray(status, jnp.int32), found)
    return found


def jumps(mechanism: Any, before: State, after: State, *, forces: bool) -> Any:
    """Return whether an angle passes half a turn or a prescribed motion jumps open in a step ().

    The result is None without such angles and motions. The step itself must be less than half a turn. An
    angle with limits that passes half a turn from the middle of its range has passed through a limit.

    Args:
        mechanism: the mechanism.
        before: the state before the step.
        after: the state after the step.
        forces: whether springs, servos and tendons act.
    """
    turning, limits = _turning(mechanism, forces), mechanism.joint_limits
    if forces and limits is not None and limits.forgets:
        turning.append(partial(limits.lost, mechanism.coordinates))
    jumping = [
        group
        for group in mechanism.joints.values()
        if group.prescribes and not isinstance(group.motion, Polynomial | Sinusoid)
    ]
    found = [_opens(mechanism, group, before, after) for group in jumping] + (
        [_turns(mechanism, turning, before, after)] if turning else []
    )
    return jnp.any(jnp.stack(found)) if found else None


def _opens(mechanism: Any, group: Any, before: State, after: State) -> Any:
    """Return whether a prescribed motion of a group jumps in a step and leaves its joint open ()."""
    pair, end = Pairs(group.a, group.b, len(mechanism.body_names)), mechanism.coordinates.at_rest(after.q)
    times = jnp.stack([before.t, 0.5 * (before.t + after.t), after.t])

    def motion(element: Any) -> tuple[Any, Any]:
        return jax.vmap(lambda t: jax.jvp(element.motion, (t,), (jnp.ones_like(t),)))(times)

    values, rates = jax.vmap(motion)(group)
    unit = next(iter(group.rows.values()))
    tolerance = default_tolerance(after.q.dtype) * (mechanism.characteristic_length if unit == "m" else 1.0)
    resolved = 2.0 * (after.t - before.t) * jnp.max(jnp.abs(rates), axis=1)
    residual = fr.values(type(group).residual, group, pair, end, after.t)[:, 0]
    return jnp.any(
        (jnp.abs(values[:, 2] - values[:, 0]) > resolved + tolerance) & (jnp.abs(residual) > tolerance)
    )


def _turns(mechanism: Any, turning: list[Callable[..., Any]], before: State, after: State) -> Any:
    """Return whether an angle passes half a turn in a step ()."""
    angles: list[Any] = []

    def store(angle: Any) -> Any:
        angles.append(angle)
        return jnp.zeros_like(angle, bool)

    def passes(angle: Any) -> Any:
        return jnp.abs(angle - angles.pop(0)) > jnp.pi

    start, end = (mechanism.coordinates.at_rest(state.q) for state in (before, after))
    for lost in turning:
        lost(start, before.q, before.t, store)
    return jnp.any(jnp.stack([jnp.any(lost(end, after.q, after.t, passes)) for lost in turning]))


def _turning(mechanism: Any, forces: bool) -> list[Callable[..., Any]]:
    """Return functions (motion, q, t, ends) of rows and efforts that depend on angles modulo 2 pi.

    Each function returns whether `ends(angle)` holds for an angle at which the row or effort would jump.
    """
    related = [
        partial(group.lost, mechanism.coordinates) for group in mechanism.relations.values() if group.forgets
    ]
    return [*related, *_jumping(mechanism)] if forces else related


def _jumping(mechanism: Any) -> Iterator[Callable[..., Any]]:
    """Yield the functions of efforts that may jump; see `_turning`."""
    if mechanism.tendons is not None and mechanism.tendons.lengths.forgets:
        yield partial(mechanism.tendons.lost, mechanism.coordinates)

    def lost(group: Any, places: Any, motion: Kinematics, q: Coordinates, t: Scalar, ends: Any) -> Any:
        pair = Pairs(group.a, group.b, len(mechanism.body_names))
        return (places < 0) & group.lost(fr.values(type(group).coordinate, group, pair, motion, t), ends)

    for groups, turns in ((mechanism.joints, {}), (mechanism.forces, dict(mechanism.turns))):
        for key, group in groups.items():
            places = np.asarray(turns.get(key, (-1,) * len(group.a)))
            if group.forgets and np.any(places < 0):
                yield partial(lost, group, places)


def counted(mechanism: Any, key: str, s: Any, q: Coordinates) -> Any:
    """Return the measured coordinates (k, rows) of a force group with full turns.

    Full turns come from q, or from the turn nearest to `nearest`.
    """
    group, places = mechanism.forces[key], dict(mechanism.turns).get(key)
    if places is None and group.nearest is None:
        return s
    return with_turns(s, q, places or (-1,) * len(group.a), group.nearest)
