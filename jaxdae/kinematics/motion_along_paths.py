"""Motion of closed chains along a path of targets.

With the rows r(t, q) = [g; e] of loops and targets, and A = dr/dxi,

    A v + dr/dt = 0,        A a + d^2/ds^2 r(t + s, q (+) s v) = 0      at s = 0.

The pseudoinverse of A gives the smallest v and a of free directions (resolved motion rate control).

References:
    D. E. Whitney, "Resolved motion rate control of manipulators and human prostheses", IEEE Trans.
    Man-Machine Systems 10 (1969).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.callables import as_pytree
from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.minimum_norm import pseudoinverse, rank_tolerance
from jaxdae.kinematics.closed_chains import KinematicsInfo, check_poses, checked_targets, problem_of, solved
from jaxdae.kinematics.least_squares_on_loops import Problem, tolerance
from jaxdae.mechanisms import Mechanism
from jaxdae.systems.system import State, check_mechanism, uniform_motion
from jaxdae.typing import Leaf


@pytree
class PathMotion:
    """The motion along a path.

    Attributes:
        state: times, coordinates and velocities, one entry per time.
        a: accelerations (times, nv).
        info: a `KinematicsInfo` with one entry per time. Velocities and accelerations are exact where its
            status is OK.
    """

    state: State
    a: Leaf
    info: KinematicsInfo


def follow(
    mechanism: Mechanism,
    path: Callable[[Array], Any],
    start: State | Array,
    times: Any,
    *,
    limits: Mapping[str, Any] | None = None,
    weights: Sequence[Any] | None = None,
) -> PathMotion:
    """Return positions, velocities and accelerations of a mechanism along a path of targets.

    Every pose is the start of the next one, so the motion stays on the branch of the start.

    Args:
        mechanism: the mechanism.
        path: a function of the time () in s that returns one or several targets, twice differentiable.
        start: a state or coordinates (nq,) near the first pose; see `inverse_kinematics`.
        times: (times,) in s.
        limits: as in `inverse_kinematics`. They limit the poses, not the velocities.
        weights: as in `inverse_kinematics`.

    Raises:
        TypeError: `mechanism` is not a mechanism, such as a wrapper or a first-order mechanism.
        ValueError: as in `inverse_kinematics`; `times` is not a vector; or rows of velocity level, as in
            `forward_kinematics`.

    Differentiable, like `inverse_kinematics`. The poses of a path are computed in one `lax.scan`.
    """
    check_mechanism(mechanism)
    times = jnp.asarray(times, mechanism.dtype)
    if times.ndim != 1 or not times.shape[0]:
        raise ValueError(f"follow: times must be a vector of at least one time, got shape {times.shape}")
    check_poses("follow", mechanism)
    problem = problem_of(mechanism, path(times[0]), start, limits, weights)
    return _followed(problem, as_pytree(path), times)


@jax.jit
def _followed(problem: Problem, path: Any, times: Array) -> PathMotion:
    def at(t: Array, q: Array) -> Problem:
        targets = checked_targets(problem.mechanism, path(t))
        return dataclasses.replace(problem, targets=targets, t=t, start=q)

    def step(q: Array, t: Array) -> Any:
        state, info = solved(at(t, q))
        v, a = _motion(at, problem.mechanism, t, state.q)
        return state.q, PathMotion(State(t, state.q, v), a, info)

    return jax.lax.scan(step, problem.start, times)[1]


def _motion(at: Callable[..., Problem], mechanism: Mechanism, t: Array, q: Array) -> tuple[Array, Array]:
    """Return velocities and accelerations along the path."""
    columns = at(t, q).columns
    still, zero, one = jnp.zeros_like(columns), jnp.zeros_like(t), jnp.ones_like(t)

    def rows(t: Array, q: Array) -> Array:
        found = at(t, q).rows(q)
        return jnp.concatenate([found.loops, found.errors])

    across = jax.jacfwd(lambda xi: rows(t, mechanism.retract(q, columns * xi)))(still)
    limit = jax.lax.stop_gradient(rank_tolerance(across, tolerance(q.dtype)))
    inverse = columns[:, None] * pseudoinverse(across, limit)
    v = -inverse @ jax.jvp(lambda s: rows(s, q), (t,), (one,))[1]
    place = uniform_motion(mechanism, t, q, v)

    def rate(s: Array) -> Array:
        return jax.jvp(lambda r: rows(*place(r)), (s,), (one,))[1]

    return v, -inverse @ jax.jvp(rate, (zero,), (one,))[1]
