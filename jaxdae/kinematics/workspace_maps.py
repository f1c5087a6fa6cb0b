"""Workspace of a mechanism: inverse kinematics and transmission over a set of points, as one program.

The points are solved in chunks, in random order. The first chunk starts at the given start. Each later point
starts at the pose of the nearest point that is already solved, on the branch of the start. Motions to the
points are therefore short, lead around holes of the workspace, and stay on one branch. At the end, the first
chunk is solved again from nearer poses, because a hole can stop the motion from the given start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.callables import as_pytree
from jaxdae.base.dataclass import pytree
from jaxdae.kinematics.closed_chains import KinematicsInfo, checked_targets, problem_of, solved
from jaxdae.kinematics.least_squares_on_loops import ITERATIONS, Problem
from jaxdae.kinematics.motor_transmission import checked_motors, transmitted
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, check_mechanism
from jaxdae.typing import Leaf

_CHUNK = 256
"""Points that are solved side by side; a chunk takes as many iterations as its slowest point."""
_POOL = 4096
"""Points from whose poses later points can start."""
_LATER = 60
"""Iterations after the first chunk. Reachable points near a solved one take 5, rarely 40."""


@pytree
class Workspace:
    """Poses and measures at points; every array has the shape of the points as its leading axes.

    Attributes:
        state: states at rest; poses near the closest one where a point is out of reach.
        info: a `KinematicsInfo`. Where a point is out of reach, the status is UNREACHABLE or, after 60
            iterations, NOT_CONVERGED.
        reachable: whether the status is OK.
        margin: the smallest distance from a limit in rad or m; infinite without limits, negative only where
            limits cannot be satisfied.
        transmission: a `Transmission` from the motors to the point.
    """

    state: State
    info: KinematicsInfo
    reachable: Leaf
    margin: Leaf
    transmission: Leaf


def workspace(
    mechanism: Mechanism,
    target: Callable[[Array], Any],
    points: Any,
    start: State | Array,
    actuated: Sequence[str],
    *,
    limits: Mapping[str, Any] | None = None,
    weights: Sequence[Any] | None = None,
    motor_stiffness: Any = None,
) -> Workspace:
    """Return reachability, limit margins, singularity distances and transmission at every point of a grid.

    Args:
        mechanism: the mechanism.
        target: a function of a point (k,) that returns one or several targets.
        points: (..., k), such as `jnp.stack(jnp.meshgrid(x, y, indexing="ij"), axis=-1)`.
        start: a state or coordinates (nq,), as in `inverse_kinematics`. It selects the branch.
        actuated: the coordinates that the motors drive, or joints with one coordinate.
        limits: as in `inverse_kinematics`.
        weights: as in `inverse_kinematics`.
        motor_stiffness: as in `transmission`.

    Raises:
        ValueError: as in `inverse_kinematics` and `transmission`, or points of a wrong shape.

    The program is compiled once per shape of the points. Differentiable, like `inverse_kinematics`, if the
    targets leave no free directions; `reachable` has no derivative.

    Example:
        >>> reach = lambda p: kinematics.PoseTarget("platform", position=p)
        >>> found = kinematics.workspace(robot, reach, points, start, ("motor1", "motor2", "motor3"))
    """
    check_mechanism(mechanism)
    points = jnp.asarray(points, mechanism.dtype)
    if points.ndim < 2 or not points.size:
        raise ValueError(f"points must have shape (..., k) with at least one point, got {points.shape}")
    flat = points.reshape(-1, points.shape[-1])
    problem = problem_of(mechanism, target(flat[0]), start, limits, weights)
    places, stiffness = checked_motors(mechanism, actuated, motor_stiffness)
    found = _mapped(problem, as_pytree(target), flat, stiffness, places)
    return jax.tree.map(lambda x: x.reshape(*points.shape[:-1], *x.shape[1:]), found)


class _Pool(NamedTuple):
    """Solved points: the points (n, k), their coordinates (n, nq), and whether they can be a start (n,)."""

    points: Any
    poses: Any
    usable: Any

    def nearest(self, point: Array, start: Array) -> Array:
        """Return the coordinates of the nearest usable point, else the start."""
        away = jnp.sum((self.points - point) ** 2, axis=1)
        best = jnp.argmin(jnp.where(self.usable, away, jnp.inf))
        found: Any = jnp.where(self.usable[best], self.poses[best], start)
        return found

    def extended(self, new: _Pool, at: Any) -> _Pool:
        """Return the pool with new points at an index, while there is room."""
        room = at + new.usable.shape[0] <= self.usable.shape[0]
        put = jax.lax.dynamic_update_slice_in_dim
        return jax.tree.map(lambda old, x: jnp.where(room, put(old, x, at, 0), old), self, new)


@partial(jax.jit, static_argnames="places")
def _mapped(
    problem: Problem, target: Any, points: Array, stiffness: Any, places: tuple[int, ...]
) -> Workspace:
    mechanism, count = problem.mechanism, points.shape[0]
    chunks = -(-count // _CHUNK)
    size = -(-count // chunks)
    order = np.random.default_rng(0).permutation(count)
    # The first points fill the last chunk.
    order = np.concatenate([order, order[: chunks * size - count]])

    def at(point: Array, start: Array, most: Any) -> Workspace:
        targets = checked_targets(mechanism, target(point))
        posed = dataclasses.replace(problem, targets=targets, start=start)
        state, info = solved(posed, most)
        return Workspace(
            state=state,
            info=info,
            reachable=info.status == Status.OK,
            margin=jnp.min(posed.rows(state.q).gaps, initial=jnp.inf),
            transmission=transmitted(mechanism, state, targets, stiffness, places),
        )

    def chunk(pool: _Pool, step: Array) -> tuple[_Pool, Workspace]:
        number = step % chunks
        now = points[jax.lax.dynamic_slice_in_dim(jnp.asarray(order), number * size, size)]
        starts = jax.vmap(pool.nearest, in_axes=(0, None))(now, problem.start)
        most = jnp.where(step == 0, ITERATIONS, _LATER)
        found = jax.vmap(at, in_axes=(0, 0, None))(now, jax.lax.stop_gradient(starts), most)
        new = _Pool(now, found.state.q, found.reachable & ~found.info.crossed)
        return pool.extended(new, number * size), found

    room = min(chunks, _POOL // size) * size
    pool = _Pool(
        jnp.zeros((room, points.shape[1]), points.dtype),
        jnp.zeros((room, *problem.start.shape), points.dtype),
        jnp.zeros((room,), bool),
    )
    # The first chunk is solved again at the end, from nearer starts.
    found = jax.lax.scan(chunk, pool, jnp.arange(chunks + 1))[1]
    back = np.argsort(order[:count])
    return jax.tree.map(lambda x: jnp.roll(x[1:], 1, axis=0).reshape(-1, *x.shape[2:])[back], found)
