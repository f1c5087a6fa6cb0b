"""Dimensional synthesis: parameters of a mechanism that reaches targets in K poses.

Let x (p,) be parameters of joints, q_k the coordinates of pose k, g the loop rows, e_k the residuals of its
targets times the roots of their weights, and c the gaps of the joint limits. The design solves

    minimize    sum_k |e_k(x, q_k)|^2
    subject to  g(x, q_k) = 0,   c(x, q_k) >= 0,   lower <= x <= upper.                                (1)

This is the problem of `least_squares_on_loops` with the unknowns (x, q_1, ..., q_K) in place of q. The bounds
of x are gaps. Targets without a driver position leave free directions in the poses, which (1) uses (path
generation without prescribed timing). If the targets also leave free directions in x, the result is one of
the designs that reach them.

*Branches.* The poses are sorted by the position phi of the driver, modulo full turns if it is an angle. From
each pose, the driver moves continuously to the position of the next pose, and from the last one to the first
one. The interval between the two poses is passable if this motion ends in the next pose without crossing a
singular configuration. All poses are on one branch if at most one interval is not passable: the branch is
the rest of the circle. The poses are in order if the driver, in one of its two senses, passes them in the
order of the targets within one turn, without the interval that is not passable.

References:
    G. N. Sandor, A. G. Erdman, "Advanced Mechanism Design", vol. 2 (1984), chapter 3, for precision poses and
    the tasks. T. R. Chase, J. A. Mirth, "Circuits and Branches of Single-Degree-of-Freedom Planar Linkages",
    J. Mech. Des. 115 (1993), for the defects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief
from jaxdae.compile.precompute import prepared
from jaxdae.kinematics.closed_chains import check_poses, problem_of, same_poses, solved
from jaxdae.kinematics.geometric_parameters import (
    Parameter,
    check_entries,
    corrected,
    joint_parameter,
    nominal_values,
)
from jaxdae.kinematics.least_squares_on_loops import Problem, Rows
from jaxdae.kinematics.targets import JointTarget, PoseTarget, coordinate_indices, stacked_targets
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, check_mechanism
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf

_ITERATIONS = 300
"""Nine points on a full turn of a four-bar take 160 to 300 iterations; five points take 20 to 150."""


@pytree
class Synthesis:
    """Designs of `synthesize` from n starts, with p parameters, for K poses with m residuals each.

    Designs without defects come first, and failed ones last. Within these groups, designs that reach all
    targets come first, in the order of their starts, then the other designs in the order of their `cost`.

    Attributes:
        mechanism: the mechanisms; every array has the starts as its first axis.
        names: the names of the parameters (p,) (static).
        parameters: their values (n, p) in m and rad.
        state: the states of the poses, with the axes (n, K, ...).
        error: residuals (n, K, m) of the targets in m and rad.
        cost: weighted sum (n,) of squared residuals, with lengths divided by the characteristic length of the
            nominal mechanism.
        status: OK if all targets are reached; UNREACHABLE at a minimum with residuals; NOT_CONVERGED;
            NONFINITE or INCONSISTENT_START for failed designs, whose loops are open (n,).
        branch_defect: whether the driver cannot reach all poses on one branch (n,).
        order_defect: whether the driver does not pass the poses in their order (n,); also true for a branch
            defect.
        iterations: the number of iterations (n,).
    """

    mechanism: Mechanism
    names: tuple[str, ...] = static()
    parameters: Leaf
    state: State
    error: Leaf
    cost: Leaf
    status: Leaf
    branch_defect: Leaf
    order_defect: Leaf
    iterations: Leaf


def synthesize(
    mechanism: Mechanism,
    targets: PoseTarget | JointTarget | Sequence[PoseTarget | JointTarget],
    parameters: Mapping[str, Any],
    start: State | Array,
    driver: str,
    *,
    starts: Any = 64,
    key: Array | None = None,
    weights: Sequence[Any] | None = None,
) -> Synthesis:
    """Return dimensions of a mechanism that reaches targets in several poses, from many starts.

    A `PoseTarget` with positions specifies a path, with orientations a motion. A `JointTarget` of the driver
    and the follower specifies a function. Add a `JointTarget` of the driver to prescribe its positions at the
    points of a path.

    Args:
        mechanism: the nominal mechanism.
        targets: one or several targets, whose values are stacked along a first axis as in `calibrate`:
            positions (K, 2) or (K, 3), orientations (K,) or (K, 4), values (K,) of a `JointTarget`.
        parameters: (lower, upper) bounds by the names of parameters, as in `calibrate`, in m and rad. The
            bounds of points, lengths and angles limit their values. The bounds of axes and directions limit
            the rotation vector from the nominal axes.
        start: a state or coordinates (nq,) of the nominal mechanism with closed loops, at which all poses
            start. It selects the branch for parameters near the nominal ones.
        driver: the coordinate, or joint with one coordinate, whose motion determines the pose.
        starts: the number of random starts, uniform between the bounds; or values of the parameters (n, p) in
            the order of `parameters`.
        key: for random starts; `jax.random.key(0)` by default.
        weights: one positive number per target; 1 by default.

    Raises:
        TypeError: `mechanism` is a wrapper or a first-order mechanism.
        ValueError: unknown names, parameters that are not geometric, bounds without lower < upper, or shapes
            that do not fit; rows of velocity level, as in `forward_kinematics`.

    Joint limits apply to all poses. Idle freedoms, such as the spin of a body between two ball joints, appear
    as branch defects: use a `Rod` instead of the body. All starts are one compiled program. Derivatives and
    batches as in `inverse_kinematics`; in directions that the targets leave free, the derivative is the
    smallest change of the design.

    Example:
        >>> target = kinematics.PoseTarget("coupler", position=points)
        >>> bounds = {"joints.A.point_a": (-1.0, 1.0), "joints.B.point_a.x": (0.1, 0.5)}
        >>> found = kinematics.synthesize(four_bar, target, bounds, start, "A")
    """
    check_mechanism(mechanism)
    check_poses("synthesize", mechanism)
    chosen = tuple(joint_parameter(mechanism, path) for path in parameters)
    check_entries(chosen)
    place = coordinate_indices("driver", mechanism, [driver])[0]
    listed = (targets,) if isinstance(targets, PoseTarget | JointTarget) else tuple(targets)
    poses = stacked_targets("targets", mechanism, listed)
    pose = problem_of(mechanism, jax.tree.map(lambda x: x[0], poses), start, None, weights)
    sizes = [parameter.size for parameter in chosen]
    pairs = [_bounds(mechanism, *item, size) for item, size in zip(parameters.items(), sizes, strict=True)]
    lower, upper = (jnp.concatenate(side) for side in zip(*pairs, strict=True))
    if np.ndim(starts):
        x = jnp.asarray(starts, mechanism.dtype)
    else:
        random = jax.random.key(0) if key is None else key
        x = jax.random.uniform(random, (int(starts), sum(sizes)), mechanism.dtype, lower, upper)
    if x.ndim != 2 or not x.shape[0] or x.shape[1] != sum(sizes):
        raise ValueError(f"starts must be a positive number or have shape (n, {sum(sizes)}), got {x.shape}")
    task = _Task(
        pose=dataclasses.replace(pose, targets=poses),
        lower=lower,
        upper=upper,
        nominal=nominal_values(mechanism, chosen),
        start=jnp.zeros((0,), x.dtype),
        parameters=chosen,
    )
    return _synthesized(task, x, place)


def _bounds(mechanism: Mechanism, name: str, pair: Any, size: int) -> tuple[Array, Array]:
    """Return the bounds (size,) of a parameter."""
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise ValueError(f"parameters: {brief(name)} needs (lower, upper), got {pair}")
    lower, upper = (jnp.broadcast_to(jnp.asarray(x, mechanism.dtype), (size,)) for x in pair)
    known = concrete((lower, upper))
    if known is not None and not np.all(np.isfinite(known) & (known[0] < known[1])):
        raise ValueError(
            f"parameters: {brief(name)} needs finite (lower, upper) with lower < upper, got {pair}"
        )
    return lower, upper


@pytree
class _Task:
    """The problem (1); its unknowns z are the parameters (p,), then the coordinates (nq,) of each pose.

    Attributes:
        pose: the nominal mechanism and the targets of all poses; all sizes are nominal.
        lower: lower bounds (p,).
        upper: upper bounds (p,).
        nominal: nominal values (p,).
        start: z at the start.
        parameters: the parameters (static).
    """

    closest = False
    pose: Problem
    lower: Leaf
    upper: Leaf
    nominal: Leaf
    start: Leaf
    parameters: tuple[Parameter, ...] = static()

    def prepared(self) -> _Task:
        """Return the task, because the frames of the joints depend on z."""
        return self

    def design(self, x: Array) -> Mechanism:
        """Return the mechanism with the parameters x (p,)."""
        return corrected(self.pose.mechanism, self.parameters, x - self.nominal)

    def split(self, z: Array) -> tuple[Array, Array]:
        """Return the parameters (p,) and the coordinates (K, nq)."""
        count = self.lower.shape[0]
        return z[:count], z[count:].reshape(self.count, -1)

    @property
    def count(self) -> int:
        """The number K of poses."""
        return jax.tree.leaves(self.pose.targets)[0].shape[0]

    @property
    def t(self) -> Array:
        """The time of all poses."""
        return self.pose.t

    @property
    def columns(self) -> Array:
        """The characteristic sizes of the displacements (p + K nv,)."""
        units = tuple(parameter.unit for parameter in self.parameters for _ in range(parameter.size))
        sizes = scales(self.pose.mechanism, units, len(units), self.nominal.dtype)
        return jnp.concatenate([jax.lax.stop_gradient(sizes), jnp.tile(self.pose.columns, self.count)])

    @property
    def loop_sizes(self) -> Array:
        """The characteristic sizes of the loop rows (K ng,)."""
        return jnp.tile(self.pose.loop_sizes, self.count)

    @property
    def error_sizes(self) -> Array:
        """The characteristic sizes of the residuals over the roots of their weights (K m,)."""
        return jnp.tile(self.pose.error_sizes, self.count)

    def moved(self, z: Array, xi: Array) -> Array:
        """Return z after a displacement xi (p + K nv,) relative to `columns`."""
        x, q = self.split(z)
        dx, dq = self.split(self.columns * xi)
        return jnp.concatenate([x + dx, jax.vmap(self.pose.mechanism.retract)(q, dq).reshape(-1)])

    def away(self, z: Array) -> Array:
        """Return zero displacements (p + K nv,), because designs need not be close to their starts."""
        return jnp.zeros_like(self.columns)

    def rows(self, z: Array) -> Rows:
        """Return all rows at z, relative to their sizes."""
        rows = self._measured(z)
        return Rows(rows.loops / self.loop_sizes, rows.gaps, rows.errors / self.error_sizes)

    def errors(self, z: Array) -> Array:
        """Return the residuals (K m,) in m and rad."""
        return self._measured(z).errors

    def _measured(self, z: Array) -> Rows:
        x, q = self.split(z)
        design = prepared(self.design(x))

        def one(q: Array, targets: Any) -> Rows:
            return dataclasses.replace(self.pose, mechanism=design, targets=targets).measured(q)

        rows = jax.tree.map(jnp.ravel, jax.vmap(one)(q, self.pose.targets))
        return rows._replace(gaps=jnp.concatenate([x - self.lower, self.upper - x, rows.gaps]))


@partial(jax.jit, static_argnames="driver")
def _synthesized(task: _Task, starts: Array, driver: int) -> Synthesis:
    @jax.vmap
    def one(x: Array) -> Synthesis:
        z = jnp.concatenate([x, jnp.tile(task.pose.start, task.count)])
        state, info = solved(dataclasses.replace(task, start=z), _ITERATIONS)
        x, q = task.split(state.q)
        still = jnp.zeros((task.count, *task.pose.columns.shape), q.dtype)
        branch, order = _defects(task, *jax.lax.stop_gradient((x, q)), driver)
        failed = _failed(info.status)
        return Synthesis(
            mechanism=task.design(x),
            names=tuple(entry for parameter in task.parameters for entry in parameter.entries),
            parameters=x,
            state=State(jnp.broadcast_to(task.t, (task.count,)), q, still),
            error=info.error.reshape(task.count, -1),
            cost=jnp.sum((info.error / task.error_sizes) ** 2),
            status=info.status,
            branch_defect=branch | failed,
            order_defect=order | failed,
            iterations=info.iterations,
        )

    found = one(starts)
    # Costs of rounding do not count.
    cost: Any = jnp.where(found.status == Status.OK, 0.0, jax.lax.stop_gradient(found.cost))
    last = [x.astype(cost.dtype) for x in (found.order_defect, _failed(found.status))]
    best = jnp.lexsort([cost, *last])
    return jax.tree.map(lambda leaf: leaf[best], found)


def _failed(status: Any) -> Any:
    """Return whether the loops of designs are open."""
    return (status == Status.INCONSISTENT_START) | (status == Status.NONFINITE)


def _defects(task: _Task, x: Array, q: Array, driver: int) -> tuple[Array, Array]:
    """Return whether poses q (K, nq) of a design have a branch defect (), and an order defect ()."""
    design, count = prepared(task.design(x)), task.count
    circular = design.names.coordinate_units[driver] == "rad"
    phi = q[:, driver]
    phase = jnp.mod(phi - phi[0], 2.0 * jnp.pi) if circular else phi
    order = jnp.argsort(phase)
    after = jnp.roll(order, -1)
    # The last step completes the turn.
    steps = (phase[after] - phase[order]).at[-1].add(2.0 * jnp.pi if circular else 0.0)

    def passable(q: Array, step: Array, end: Array) -> Array:
        target = JointTarget({design.names.coordinates[driver]: q[driver] + step})
        problem = dataclasses.replace(
            task.pose, mechanism=design, targets=(target,), weights=task.pose.weights[:1], start=q
        )
        state, info = solved(problem)
        reached = same_poses(design, design.frames(state.q), design.frames(end))
        return (info.status == Status.OK) & ~info.crossed & reached

    passed = jax.vmap(passable)(q[order], steps, q[after])
    if not circular:
        passed = passed.at[-1].set(False)
    whole = jnp.all(passed)
    rank = jnp.argsort(order)
    first = jnp.where(whole, rank[0], jnp.argmin(passed) + 1)
    up = jnp.mod(rank - first, count)
    down: Any = jnp.where(whole, jnp.mod(-up, count), count - 1 - up)
    ordered = jnp.all(jnp.diff(up) > 0) | jnp.all(jnp.diff(down) > 0)
    branch = jnp.sum(~passed) > 1
    return branch, branch | ~ordered
