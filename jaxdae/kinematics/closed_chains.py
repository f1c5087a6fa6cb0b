"""Forward and inverse kinematics of closed chains; `least_squares_on_loops` contains the mathematics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.suggestions import brief, join_first
from jaxdae.compile.precompute import prepared
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.kinematics.least_squares_on_loops import ITERATIONS, Problem, iterate, tolerance, with_derivative
from jaxdae.kinematics.targets import JointTarget, PoseTarget, coordinate_indices
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.angle_limits import doubts_of, limits_in_degrees, rests_in_degrees
from jaxdae.mechanisms.describe.bodies import DescriptionWarning
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, check_fit, check_mechanism, checked_state
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf


@pytree
class KinematicsInfo:
    """Report of `forward_kinematics` and `inverse_kinematics`.

    Attributes:
        status: OK; UNREACHABLE if the targets are not reached, so that the result is a closest pose on the
            branch of the start; NOT_CONVERGED if the iteration did not converge; NONFINITE if the residuals
            are not finite; INCONSISTENT_START if the loops cannot be closed, or the limits cannot be
            satisfied; SINGULAR if the positions given to `forward_kinematics` do not determine the pose.
        error: residuals (m,) of the targets in m and rad, in their order.
        violation: largest |g| () of the loops, in row units.
        crossed: whether the path from the start crossed a singular configuration (), where branches meet;
            False if the number of rows of loops and targets differs from the number of velocities, because
            the crossing is then not detected.
        iterations: the number of iterations ().
    """

    status: Leaf
    error: Leaf
    violation: Leaf
    crossed: Leaf
    iterations: Leaf


@pytree
class Branches:
    """Solutions of inverse kinematics from several starts.

    Attributes:
        state: the states, one entry per start.
        info: a `KinematicsInfo` with one entry per start.
        label: the number of the branch (starts,), from 0 in the order of the starts; -1 where the status is
            not OK. Two starts have the same label if all bodies have the same poses.
    """

    state: State
    info: KinematicsInfo
    label: Leaf


def forward_kinematics(
    mechanism: Mechanism,
    actuated: Mapping[str, Any],
    start: State | Array,
    *,
    limits: Mapping[str, Any] | None = None,
) -> tuple[State, KinematicsInfo]:
    """Return the pose of a mechanism with closed loops, from the positions of its motors.

    The motors move continuously from their positions at the start to the given positions. The start therefore
    selects the assembly branch.

    If there are too few motors, or if the pose is a singular configuration of type 2, the loops and motors
    leave free velocities v with J v = 0 and S v = 0, where S are the rows of the motors. The pose is then one
    of many, and the status is SINGULAR. Free velocities that only spin a link between ball joints about an
    axis through its mass center do not count.

    Args:
        mechanism: the mechanism. In joint coordinates, motor positions are coordinates.
        actuated: positions in rad or m by the names of coordinates, or of joints with one coordinate.
        start: a state or coordinates (nq,) with closed loops on the desired branch.
        limits: as in `inverse_kinematics`.

    Returns:
        The state at rest at the time of the start, and a `KinematicsInfo`.

    Raises:
        TypeError: as in `inverse_kinematics`.
        ValueError: unknown names, or shapes that do not fit; or rows of velocity level, such as those of
            rolling wheels or of `RackAndPinion`, because motor positions then do not determine the pose.

    Derivatives and batches as in `inverse_kinematics`.

    Example:
        >>> state, info = kinematics.forward_kinematics(robot, {"motor1": 0.3, "motor2": 0.1}, start)
    """
    check_mechanism(mechanism)
    check_poses("forward_kinematics", mechanism)
    state, info = inverse_kinematics(mechanism, JointTarget(actuated), start, limits=limits)
    return state, replace(info, status=determined(mechanism, state, info.status, actuated))


def determined(mechanism: Mechanism, state: State, status: Any, actuated: Mapping[str, Any]) -> Array:
    """Return a status (), SINGULAR instead of OK if the motors do not determine the pose."""
    places = coordinate_indices("actuated", mechanism, sorted(actuated))
    moves = (status == Status.OK) & _leaves_motion(mechanism, state, places)
    found: Any = jnp.where(moves, Status.SINGULAR, status)
    return found.astype(jnp.int32)


@partial(jax.jit, static_argnames="places")
def _leaves_motion(mechanism: Mechanism, state: State, places: tuple[int, ...]) -> Array:
    """Return whether loops and motors leave velocities that move a mass center or a joint coordinate ()."""
    mechanism, state = jax.lax.stop_gradient(prepared((mechanism, state)))
    names, size, dtype = mechanism.names, mechanism.space.dimension, state.q.dtype
    shown = [k for k, unit in enumerate(names.coordinate_units) if unit in ("m", "rad")]
    units = ("m",) * (size * len(mechanism.body_names)) + tuple(names.coordinate_units[k] for k in shown)
    loops = hard_rows(mechanism.evaluate(state.t, state.q, jnp.zeros_like(state.v))).dense_jacobian

    def moved(xi: Array) -> tuple[Array, Array]:
        q = mechanism.retract(state.q, xi)
        return q, jnp.concatenate([*mechanism.frames(q)[:size], q[jnp.asarray(shown, int)]])

    turns, across = jax.jacfwd(moved)(jnp.zeros_like(state.v))
    columns = scales(mechanism, names.velocity_units, state.v.shape[0], dtype)
    rows = jnp.concatenate([loops, turns[jnp.asarray(places)]]) * columns
    kinds = (*names.row_units[: loops.shape[0]], *(names.coordinate_units[k] for k in places))
    rows = rows / scales(mechanism, kinds, rows.shape[0], dtype)[:, None]
    across = across * columns / scales(mechanism, units, across.shape[0], dtype)[:, None]
    limit = tolerance(dtype)
    free = across - (across @ pseudoinverse(rows, rank_tolerance(rows, limit))) @ rows
    return jnp.max(jnp.abs(free), initial=0.0) > limit**0.5


def inverse_kinematics(
    mechanism: Mechanism,
    targets: PoseTarget | JointTarget | Sequence[PoseTarget | JointTarget],
    start: State | Array,
    *,
    limits: Mapping[str, Any] | None = None,
    weights: Sequence[Any] | None = None,
) -> tuple[State, KinematicsInfo]:
    """Return the pose of a mechanism that reaches targets.

    Closed loops and limits hold exactly. If the targets contradict each other or are out of reach, the pose
    minimizes the weighted sum of their squared residuals, with lengths in units of the characteristic length.
    If they leave free directions, the pose is the closest to the start.

    The iteration moves along the manifold of closed loops, in short steps from the start. The start therefore
    selects the branch, and `info.crossed` reports paths through a singular configuration. A result is a local
    solution: another start may reach targets that this start does not.

    Args:
        mechanism: the mechanism.
        targets: one or several `PoseTarget` and `JointTarget`.
        start: a state or coordinates (nq,) with closed loops; close the loops of a rough guess with
            `jaxdae.initialize`. It should not be singular: a straight arm does not know which way to bend.
        limits: (lower, upper) in rad or m by the names of coordinates, or of joints with one coordinate. None
            for the joint limits of the mechanism; {} for no limits.
        weights: one positive number per target; 1 by default.

    Returns:
        The state at rest at the time of the start, and a `KinematicsInfo`.

    Raises:
        TypeError: `mechanism` is not a mechanism, such as a wrapper or a first-order mechanism.
        ValueError: unknown or repeated names, limits without lower <= upper, weights that are not positive,
            or shapes that do not fit.

    Warns:
        DescriptionWarning: target angles or limits that are probably in degrees.

    Rows of velocity level do not restrict poses: rolling wheels may slip on the way from the start to the
    result.

    Differentiable in forward and reverse mode with respect to parameters of the mechanism, targets, weights,
    limits and start, by the implicit function theorem. The derivative is exact except where the branch ends,
    at singular configurations, and where a limit becomes active. `jax.vmap` computes many poses at once.

    Example:
        >>> target = kinematics.PoseTarget("platform", position=(0.1, 0.0, -0.4))
        >>> state, info = kinematics.inverse_kinematics(robot, target, start)
    """
    return solved(problem_of(mechanism, targets, start, limits, weights))


def check_poses(function: str, mechanism: Mechanism) -> None:
    """Raise ValueError if a mechanism has rows of velocity level, which poses do not show."""
    levels = mechanism.sizes(jax.ShapeDtypeStruct((len(mechanism.names.coordinates),), mechanism.dtype))
    if levels.nw:
        raise ValueError(
            f"{function}: motor positions do not determine the pose, because the mechanism has rows of "
            f"velocity level ({join_first(mechanism.names.rows[levels.ng :])}); simulate it, for example as "
            "a kinematic_mechanism"
        )


def branches(
    mechanism: Mechanism,
    targets: PoseTarget | JointTarget | Sequence[PoseTarget | JointTarget],
    starts: Array,
    *,
    limits: Mapping[str, Any] | None = None,
    weights: Sequence[Any] | None = None,
) -> Branches:
    """Return the solutions of inverse kinematics from several starts, with a label for each distinct pose.

    The result contains the branches that the starts reach. Other branches may exist, for any number of
    starts.

    Args:
        mechanism: the mechanism; its targets should leave no free directions.
        targets: as in `inverse_kinematics`.
        starts: coordinates (starts, nq), such as random ones. The iteration closes their loops.
        limits: as in `inverse_kinematics`.
        weights: as in `inverse_kinematics`.

    Raises:
        ValueError: as in `inverse_kinematics`.
    """
    check_mechanism(mechanism)
    starts = jnp.asarray(starts, mechanism.dtype)
    state, info = jax.vmap(
        lambda q: inverse_kinematics(mechanism, targets, q, limits=limits, weights=weights)
    )(starts)
    return Branches(state, info, _labels(mechanism, state.q, info.status == Status.OK))


@jax.jit
def _labels(mechanism: Mechanism, q: Array, solved: Array) -> Array:
    """Return the number of the branch of each pose (starts,), or -1."""
    frames = jax.vmap(mechanism.frames)(q)
    pairs = (jax.tree.map(lambda x, k=k: jnp.expand_dims(x, k), frames) for k in (1, 0))
    same = solved & same_poses(mechanism, *pairs)
    first = jnp.argmax(same, axis=1)
    leads = solved & (first == jnp.arange(len(q)))
    return jnp.where(solved, (jnp.cumsum(leads) - 1)[first], -1)


def same_poses(mechanism: Mechanism, one: Any, other: Any) -> Array:
    """Return whether all bodies have the same poses (...), for frames with arrays (..., n) that broadcast."""
    length, gaps = mechanism.characteristic_length, []
    for name, a, b in zip(one._fields, one, other, strict=True):
        if name != "angle":  # Known modulo full turns; its cosine and sine follow.
            size = length if name in one.PLACE else jnp.ones_like(length)
            gaps.append(jnp.max(jnp.abs(a - b), axis=-1) / size)
    return jnp.max(jnp.stack(gaps), axis=0) <= tolerance(one[0].dtype) ** 0.5


def problem_of(
    mechanism: Mechanism,
    targets: Any,
    start: State | Array,
    limits: Mapping[str, Any] | None,
    weights: Sequence[Any] | None,
) -> Problem:
    """Return the problem (1); arguments and errors as in `inverse_kinematics`."""
    listed = checked_targets(mechanism, targets)
    given = (1.0,) * len(listed) if weights is None else tuple(weights)
    if len(given) != len(listed):
        raise ValueError(f"weights: expected one weight per target, {len(listed)}, got {len(given)}")
    for weight in given:
        known = concrete(weight)
        if known is not None and not np.all(known > 0.0):
            raise ValueError(f"weights must be positive numbers, got {brief(weight)}")
    state = start_state(mechanism, start)
    pairs = {} if limits is None else limits
    places = coordinate_indices("limits", mechanism, pairs)
    for name, pair in pairs.items():
        bounds = [concrete(x) for x in pair]
        known = [float(x) for x in bounds if x is not None and np.ndim(x) == 0]
        if len(pair) != 2 or any(math.isnan(x) for x in known) or known != sorted(known):
            raise ValueError(f"limits: {brief(name)} needs (lower, upper) with lower <= upper, got {pair}")
    lower, upper = (
        jnp.array([pair[k] for pair in pairs.values()], state.q.dtype).reshape(len(pairs)) for k in (0, 1)
    )
    _warn_of_degrees(mechanism, listed, pairs, places)
    return Problem(
        mechanism=mechanism,
        targets=listed,
        weights=tuple(jnp.asarray(weight, state.q.dtype) for weight in given),
        lower=lower,
        upper=upper,
        t=state.t,
        start=state.q,
        places=places,
        own_limits=limits is None,
    )


def _warn_of_degrees(mechanism: Mechanism, targets: Any, limits: Mapping[str, Any], places: Any) -> None:
    """Warn about target angles and limits that are probably in degrees."""
    units = mechanism.names.coordinate_units
    angles = {name: angle for target in targets for name, angle in target.angles(mechanism).items()}
    doubts = [doubt for name, x in angles.items() for doubt in doubts_of(name, [x], rests_in_degrees)]
    for (name, pair), place in zip(limits.items(), places, strict=True):
        if units[place] == "rad":
            doubts.extend(doubts_of(f"the limit of {brief(name)}", pair, limits_in_degrees))
    if doubts:
        warnings.warn(join_first(doubts, "; "), DescriptionWarning, stacklevel=4)


def start_state(mechanism: Mechanism, start: State | Array) -> State:
    """Return a start, a state or coordinates (nq,), as a state of the mechanism.

    Raises:
        ValueError: shapes that do not fit.
    """
    check_mechanism(mechanism)
    if not isinstance(start, State):
        start = jnp.asarray(start, mechanism.dtype)
        still = jnp.zeros((len(mechanism.names.velocities),), start.dtype)
        start = State(jnp.zeros((), start.dtype), start, still)
    state = checked_state(start)
    check_fit(mechanism, state)
    return state


def checked_targets(mechanism: Mechanism, targets: Any) -> tuple[Any, ...]:
    """Return one or several targets as a tuple, after checks.

    Raises:
        ValueError: no target, or an invalid one.
    """
    check_mechanism(mechanism)
    listed = (targets,) if isinstance(targets, PoseTarget | JointTarget) else tuple(targets)
    if not listed:
        raise ValueError("targets: give at least one PoseTarget or JointTarget")
    return tuple(target.checked(mechanism) for target in listed)


@jax.jit
def solved(problem: Any, most: Any = ITERATIONS) -> tuple[State, KinematicsInfo]:
    """Return the state at rest of a problem and its report, after at most `most` iterations."""
    problem = prepared(problem)
    still: Any = jax.lax.stop_gradient
    found = still(iterate(still(problem), most))
    rows, limit = found.rows, tolerance(found.q.dtype)
    reached = jnp.sum(rows.errors**2) <= limit**2
    errors = still(rows.errors * problem.error_sizes)
    q, errors = with_derivative(problem, found.q, errors, found.active, reached & problem.closest)
    violation = still(jnp.max(jnp.abs(rows.loops * problem.loop_sizes), initial=0.0))
    holds = jnp.max(jnp.abs(rows.hard(rows.gaps < 0.0, False)), initial=0.0) <= limit
    status = jnp.select(
        [
            ~(holds & jnp.all(jnp.isfinite(q))),
            ~jnp.all(jnp.isfinite(errors)),
            ~found.settled,
            ~reached,
        ],
        [Status.INCONSISTENT_START, Status.NONFINITE, Status.NOT_CONVERGED, Status.UNREACHABLE],
        Status.OK,
    ).astype(jnp.int32)
    info = KinematicsInfo(status, errors, violation, found.crossed, found.iterations)
    return State(problem.t, q, jnp.zeros_like(problem.columns)), info
