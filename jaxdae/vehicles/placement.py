"""Vehicles on terrain: height, roll, pitch and suspension from x, y and yaw, and a report for every wheel.

With y = (z, pitch, roll, suspension) and the body orientation Rz(yaw) Ry(pitch) Rx(roll), the pose solves

    min |gap(y)|^2    subject to the other position-level rows,      gap: vertical distance of each wheel from
    the ground.

With three contacts, or as many as the suspension has remaining degrees of freedom, all gaps are zero. Four
wheels on a rigid body cannot all touch uneven ground: the remaining gaps are reported. The Gauss-Newton
iteration is not differentiated. The derivative is the derivative of the optimality conditions, with the
second derivatives of the gaps where the gaps are nonzero. The second derivatives dominate the cost of a
derivative, and are computed only if a world has gaps.

The contacts are computed along with the pose: before every correction of y, each contact is corrected once
from its last position. Its error is then e^2, where e is the size of the last correction of y. A gap does not
change with the contact to first order, so its error is e^4. The iteration therefore converges as fast as with
contacts that are recomputed each time. All contacts start below their centers, within the planes of the
discs: the first correction turns each of them to about the normal there, without a known frame.

With the slopes S of the gaps and H of the other rows h, a correction d solves

    [ S^T S + H^T H   H^T ] [ d  ]     [ S^T gap + H^T h ]
    [ H               0   ] [ mu ] = - [ h               ],

where H^T H does not change the solution and makes the first block positive definite. The slope of a gap is
the height row divided by the z component of the normal: the contact p moves on the wheel in the surface, n .
p' = n . c with c the velocity of the material point there, so that p_z - h grows by n . c / n_z.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.sharding import varying_with
from jaxdae.compile.zero_tangents import Moving
from jaxdae.geometry.spatial_frames import Vector
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.joints.terrain_contact import pushing
from jaxdae.systems.status import Status
from jaxdae.systems.system import check_mechanism
from jaxdae.typing import Leaf
from jaxdae.vehicles.least_slip import constrained_normal_equations, is_on_terrain, without_wheels

_ITERATIONS = 60
_FREE = ("x", "y", "z", "qw", "qx", "qy", "qz")


@pytree
class TerrainReport:
    """The contact of the wheels of a vehicle with the terrain.

    Attributes:
        gap: (k,) vertical distance of each wheel from the ground, in m.
        inside: (k,) whether the terrain is defined at the contact of the wheel.
        margin: (k,) one minus the ratio of the curvatures of terrain and wheel. It is not positive with two
            contacts. It is minus the ratio of depth to radius if a wheel penetrates the ground beside its
            contact.
        norm: () sqrt(sum of squares of the gaps) in m.
        status: () OK; OFF_TERRAIN, TWO_CONTACTS; INCONSISTENT_START if rows remain violated, or no pose was
            found.
        names: names of the contacts (static).
    """

    gap: Leaf
    inside: Leaf
    margin: Leaf
    norm: Leaf
    status: Leaf
    names: tuple[str, ...] = static()


def terrain_report(mechanism: Mechanism, q: Any, t: Any = 0.0) -> TerrainReport:
    """Return the contact report of the wheels of a mechanism on terrain.

    Args:
        mechanism: in any coordinates.
        q: coordinates (nq,).
        t: time in s.

    Raises:
        ValueError: a mechanism without wheels on terrain.
    """
    check_mechanism(mechanism)
    q = jnp.asarray(q)
    return _report(mechanism, q, jnp.asarray(t, q.dtype), None)


def _report(mechanism: Mechanism, q: Any, t: Any, guesses: Any) -> TerrainReport:
    """Return the report; guesses are contact-to-center directions per group, or None if unknown."""
    groups = _standing(mechanism)
    found = [
        _stood(group, pair, _still(mechanism, q), guess) for (group, pair), guess in _guessed(groups, guesses)
    ]
    gap, inside, margin = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
    of_others: Any = without_wheels(mechanism).condition(t, q)
    status: Any = jnp.asarray(Status.OK, jnp.int32) if of_others is None else of_others
    for _, on_terrain, of_group in found:
        for good, failure in ((on_terrain, Status.OFF_TERRAIN), (of_group > 0.0, Status.TWO_CONTACTS)):
            beyond = (status == Status.OK) & ~jnp.all(good)
            status = jnp.where(beyond, jnp.asarray(failure, jnp.int32), status)
    names = tuple(name for group, _ in groups for name in group.names)
    square = jnp.sum(gap**2)
    closed = square == 0.0
    # The derivative is finite if all gaps are zero.
    norm: Any = jnp.where(closed, 0.0, jnp.sqrt(jnp.where(closed, 1.0, square)))
    return TerrainReport(gap, inside, margin, norm, status, names)


def place_on_terrain(
    mechanism: Mechanism,
    q: Any,
    place: Any,
    yaw: Any,
    *,
    body: str = "base_link",
    suspension: tuple[str, ...] = (),
) -> tuple[Any, TerrainReport]:
    """Return the coordinates of a vehicle that stands on its terrain, and the contact report of its wheels.

    Args:
        mechanism: a mechanism in joint coordinates, with wheel joints such as `RollingDisc` and
            `SlidingSphere`.
        q: coordinates (nq,). Height, roll, pitch and suspension are an initial guess; the other coordinates
            are preserved.
        place: (2,) horizontal position of the origin of the body in m.
        yaw: heading of the body in rad.
        body: name of the body that moves freely.
        suspension: names of the joints with one coordinate that the ground determines. The coordinates of
            steering and wheels are preserved.

    Raises:
        ValueError: an unknown body or joint, a joint without exactly one coordinate, mismatched shapes, no
            wheels on terrain, or absolute coordinates of several bodies.

    Differentiable with respect to the mechanism (such as its terrain), place and yaw, forward and reverse.
    Supports `vmap`.
    """
    check_mechanism(mechanism)
    q = jnp.asarray(q)
    place, yaw = jnp.asarray(place, q.dtype), jnp.asarray(yaw, q.dtype)
    if place.shape != (2,) or yaw.shape != ():
        raise ValueError(
            f"place_on_terrain: place must have shape (2,) and yaw (), got {place.shape} and {yaw.shape}"
        )
    if not isinstance(mechanism.coordinates, TreeCoordinates) and len(mechanism.body_names) > 1:
        raise ValueError(
            "place_on_terrain: mechanism must be in joint coordinates, jm.mechanism(description, "
            "jm.Joints()); in absolute coordinates, "
            f"wheels do not move with {body!r}"
        )
    _standing(mechanism)
    return _placed(mechanism, q, place, yaw, _where(mechanism, body, suspension))


def _where(
    mechanism: Mechanism, body: str, suspension: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices in q of the pose of the body and of the suspension."""
    names = mechanism.names.coordinates
    wanted = [f"{body}.{name}" for name in _FREE]
    missing = [name for name in wanted if name not in names]
    if missing:
        known = sorted({name.rsplit(".", 1)[0] for name in names if name.endswith(".qw")})
        raise ValueError(
            "place_on_terrain: body must be a free body in joint coordinates, got "
            f"{body!r}{hint(body, known or ['none'])}"
        )
    found = []
    for joint in suspension:
        own = [k for k, name in enumerate(names) if name.rsplit(".", 1)[0] == joint]
        if len(own) != 1:
            known = sorted({name.rsplit(".", 1)[0] for name in names} - {body})
            raise ValueError(
                "place_on_terrain: suspension must name joints with one coordinate each, got "
                f"{joint!r}{hint(joint, known)}"
            )
        found.append(own[0])
    return tuple(names.index(name) for name in wanted), tuple(found)


@partial(jax.jit, static_argnums=4)
def _placed(mechanism: Mechanism, q: Any, place: Any, yaw: Any, where: Any) -> tuple[Any, TerrainReport]:
    t = jnp.zeros((), q.dtype)
    x, left, guesses = _stood_on(where, mechanism, q, place, yaw)
    q = _at(x[: 3 + len(where[1])], q, place, yaw, where)
    report = _report(mechanism, q, t, guesses)
    open_rows = jnp.max(jnp.abs(without_wheels(mechanism).constraint(t, q)), initial=0.0)
    limit = float(jnp.finfo(q.dtype).eps) ** 0.6
    found = (left <= limit) & (open_rows <= limit)
    status: Any = jnp.where(found, report.status, jnp.asarray(Status.INCONSISTENT_START, jnp.int32))
    return q, TerrainReport(report.gap, report.inside, report.margin, report.norm, status, report.names)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _stood_on(where: Any, mechanism: Mechanism, q: Any, place: Any, yaw: Any) -> tuple[Any, Any, Any]:
    """Return x = (y, mu), the remaining correction, and the contact directions; only x has a derivative."""
    given = mechanism, q, place, yaw
    begun = varying_with(_begun(where, *given), given)
    found = jax.lax.while_loop(_goes_on, lambda at: _corrected(where, at, *given), begun)
    return jnp.concatenate([found.y, found.mu]), found.left, found.guesses


def _stood_on_rule(where: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return the pose and its derivative -K^-1 dF, where F are the conditions and K = dF/dx is symmetric."""
    out = x, _, guesses = _stood_on(where, *primals)
    moving = Moving.of(primals, tangents)

    def conditions(x: Any, values: Any) -> Any:
        return _conditions(where, x, guesses, *moving.filled(values))

    def along(dx: Any) -> Any:
        return jax.jvp(lambda x: conditions(x, moving.values), (x,), (dx,))[1]

    def solve(_: Any, rhs: Any) -> Any:
        return jnp.linalg.solve(_slopes_of_conditions(where, x, guesses, *primals), rhs)

    change = jax.jvp(partial(conditions, x), (moving.values,), (moving.tangents,))[1]
    dx = -jax.lax.custom_linear_solve(along, change, solve, symmetric=True)
    return out, (dx, *jax.tree.map(jnp.zeros_like, out[1:]))


_stood_on.defjvp(_stood_on_rule, symbolic_zeros=True)


def _conditions(where: Any, x: Any, guesses: Any, mechanism: Mechanism, q: Any, place: Any, yaw: Any) -> Any:
    """Return the derivative of |gap|^2 / 2 + mu . rows with respect to y, and the rows."""
    free = 3 + len(where[1])
    value, pull = jax.vjp(lambda y: _measured(where, y, guesses, mechanism, q, place, yaw), x[:free])
    return jnp.concatenate([pull((value[0], x[free:]))[0], value[1]])


def _measured(
    where: Any, y: Any, guesses: Any, mechanism: Mechanism, q: Any, place: Any, yaw: Any
) -> tuple[Any, Any]:
    """Return the gaps and the rows other than wheel rows, differentiable."""
    at_y = _at(y, q, place, yaw, where)
    return _gaps(mechanism, at_y, guesses), without_wheels(mechanism).constraint(jnp.zeros((), q.dtype), at_y)


def _slopes_of_conditions(where: Any, x: Any, guesses: Any, *arguments: Any) -> Any:
    """Return the derivative of the conditions with respect to x; not differentiable.

        [ S^T S + B   H^T ]
        [ H           0   ],      B: the second derivatives of gaps and rows, times gaps and mu.

    B is zero if all wheels touch the ground, which is the usual case. It would dominate the cost, so it is
    computed only if gaps remain.
    """
    free = 3 + len(where[1])

    def goes_on(carried: Any) -> Any:
        _, x, weights = carried
        rounding = 64.0 * float(jnp.finfo(x.dtype).eps)
        return jnp.max(jnp.abs(weights)) > rounding * (1.0 + jnp.max(jnp.abs(x[:free])))

    def bent(carried: Any) -> Any:
        # Use the carried x and change it, because XLA hoists loop-invariant code and would always compute it.
        matrix, x, weights = carried
        second = jax.jacfwd(
            jax.grad(lambda y: weights @ jnp.concatenate(_measured(where, y, guesses, *arguments)))
        )(x[:free])
        return matrix + jnp.pad(second, (0, x.size - free)), jnp.zeros_like(x), jnp.zeros_like(weights)

    gap, slopes, _, rows, _ = _linearized(where, x[:free], guesses, *arguments)
    matrix = jnp.block([[slopes.T @ slopes, rows.T], [rows, jnp.zeros((rows.shape[0],) * 2, x.dtype)]])
    begun = varying_with((matrix, x, jnp.concatenate([gap, x[free:]])), (x, guesses, arguments))
    return jax.lax.while_loop(goes_on, bent, begun)[0]


def _at(y: Any, q: Any, place: Any, yaw: Any, where: Any) -> Any:
    """Return the coordinates with the unknowns y = (z, pitch, roll, suspension)."""
    pose, others = where
    height, pitch, roll, *suspension = jnp.unstack(y)
    wanted = dict(
        zip(
            (*pose, *others),
            (*jnp.unstack(place), height, *_quaternion(yaw, pitch, roll), *suspension),
            strict=True,
        )
    )
    return jnp.stack([wanted.get(k, x) for k, x in enumerate(jnp.unstack(q))])


class _Search(NamedTuple):
    """The search state: y and mu, the last and the remaining correction of y, the contacts, and the count."""

    y: Any
    mu: Any
    size: Any
    left: Any
    guesses: Any
    count: Any


def _begun(where: Any, mechanism: Mechanism, q: Any, place: Any, yaw: Any) -> _Search:
    """Return the initial state of the search."""
    y = jnp.concatenate(
        [q[where[0][2] : where[0][2] + 1], jnp.zeros((2,), q.dtype), q[np.asarray(where[1], int)]]
    )
    zeros = [jnp.zeros((len(group.names),), q.dtype) for group, _ in _standing(mechanism)]
    guesses = [Vector(zero, zero, jnp.ones_like(zero)) for zero in zeros]
    rows = jax.eval_shape(without_wheels(mechanism).constraint, jnp.zeros((), q.dtype), q)
    mu = jnp.zeros(rows.shape, rows.dtype)
    infinite = jnp.asarray(jnp.inf, q.dtype)
    return _Search(y, mu, infinite, infinite, guesses, jnp.zeros((), jnp.int32))


def _goes_on(at: _Search) -> Any:
    """Return whether another correction is needed."""
    tolerance = 4.0 * float(jnp.finfo(at.y.dtype).eps)
    # NaN continues, and is not a pose in the end.
    return ~(at.left <= tolerance * (1.0 + jnp.max(jnp.abs(at.y)))) & (at.count < _ITERATIONS)


def _corrected(where: Any, at: _Search, mechanism: Mechanism, q: Any, place: Any, yaw: Any) -> _Search:
    """Return the search state after a correction of y and of the contacts; not differentiable."""
    change, mu, guesses = _correction(where, at, mechanism, q, place, yaw)
    size = jnp.max(jnp.abs(change))
    # Limit the step to half a meter or radian: from a flat guess on a steep slope the first step may be long.
    shorter = jnp.minimum(1.0, 0.5 / jnp.maximum(size, 1e-3))
    # Corrections shrink by a ratio that does not increase: the remainder is at most their geometric series.
    ratio: Any = jnp.where(jnp.isfinite(at.size), size / at.size, 1.0)
    left: Any = jnp.where(ratio < 0.5, size * ratio / (1.0 - ratio), size)
    return _Search(at.y + shorter * change, mu, size, left, guesses, at.count + 1)


def _correction(
    where: Any, at: _Search, mechanism: Mechanism, q: Any, place: Any, yaw: Any
) -> tuple[Any, Any, Any]:
    """Return a correction of y, the multipliers, and improved contact guesses."""
    gap, soft, row, hard, guesses = _linearized(where, at.y, at.guesses, mechanism, q, place, yaw)
    change, mu = constrained_normal_equations(hard, -row, soft, -gap)
    return change, mu, guesses


def _linearized(
    where: Any, y: Any, guesses: Any, mechanism: Mechanism, q: Any, place: Any, yaw: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Return the gaps and the other rows, their y slopes, and better contact guesses; not differentiable."""
    t, at_y = jnp.zeros((), q.dtype), _at(y, q, place, yaw, where)
    here = mechanism.evaluate_joints(t, at_y, jnp.zeros((len(mechanism.form.velocity_names),), at_y.dtype))
    motion, rest = here.motion, here.with_system(without_wheels(mechanism))
    found = [
        (pair, _touched(group, pair, motion, guess))
        for (group, pair), guess in _guessed(_standing(mechanism), guesses)
    ]
    gap = jnp.concatenate([each[1] for _, each in found])
    slopes = jnp.concatenate(
        [here.coordinates.dense_rows(at_y, motion, each[2], pair) for pair, each in found]
    )
    row = rest.position
    rows = rest.dense_jacobian[: row.shape[0]]
    return (
        gap,
        _along(mechanism, slopes, y, where),
        row,
        _along(mechanism, rows, y, where),
        [each[0] for _, each in found],
    )


def _standing(mechanism: Mechanism) -> list[tuple[Any, measures.Pairs]]:
    """Return the groups of wheels on terrain."""
    count = len(mechanism.body_names)
    found = [
        (group, measures.Pairs(group.a, group.b, count))
        for group in mechanism.joints.values()
        if is_on_terrain(group)
    ]
    if not found:
        raise ValueError(
            "the mechanism has no wheels on terrain; add joints such as RollingDisc or SlidingSphere"
        )
    return found


def _guessed(groups: Any, guesses: Any) -> Any:
    """Return pairs of groups and their contact guesses."""
    return zip(groups, [None] * len(groups) if guesses is None else guesses, strict=True)


def _still(mechanism: Mechanism, q: Any) -> measures.Kinematics:
    return mechanism.coordinates.kinematics(q, jnp.zeros((len(mechanism.form.velocity_names),), q.dtype))


# Compile these functions separately, so that one contact serves all quantities.
_unit = partial(jax.jit, static_argnums=1)


@_unit
def _touched(
    group: Any, pair: measures.Pairs, motion: measures.Kinematics, guess: Any
) -> tuple[Any, Any, measures.Blocks]:
    """Return improved contact guesses, the vertical gaps (k,), and their derivatives in both body twists."""
    a, b = measures.ends(pair, motion)

    def touched(wheel: Any, a: Any, b: Any, guess: Any) -> tuple[Any, Any]:
        better = wheel.corrected(guess, a, b)[0]
        return better, wheel.corrected(better, a, b)[1]  # XLA removes the unused correction.

    better, contact = jax.vmap(touched)(group, a, b, guess)
    upward = a.turned(contact.normal).times(1.0 / contact.normal.z)
    return (
        better,
        contact.clearance / contact.normal.z,
        pushing(a, b, [(upward, a.place + a.turned(contact.place))]),
    )


@_unit
def _stood(group: Any, pair: measures.Pairs, motion: measures.Kinematics, guess: Any) -> tuple[Any, Any, Any]:
    """Return the vertical gaps (k,), whether contacts are on the terrain, and two-contact margins (k,)."""

    def stood(wheel: Any, a: Any, b: Any, guess: Any) -> tuple[Any, Any, Any]:
        contact = wheel.contact(a, b, guess)
        return (
            wheel.gap(contact),
            wheel.terrain.inside(contact.place.x, contact.place.y),
            wheel.margin(contact, a, b),
        )

    return jax.vmap(stood)(group, *measures.ends(pair, motion), guess)


def _gaps(mechanism: Mechanism, q: Any, guesses: Any) -> Any:
    """Return the vertical gaps below all wheels (k,)."""
    motion = _still(mechanism, q)
    return jnp.concatenate(
        [
            _stood(group, pair, motion, guess)[0]
            for (group, pair), guess in _guessed(_standing(mechanism), guesses)
        ]
    )


def _along(mechanism: Mechanism, rows: Any, y: Any, where: Any) -> Any:
    """Map rows (k, nv) to rows (k, 3 + suspension) in the rates of z, pitch, roll and the suspension."""
    names, coordinates = mechanism.names.velocities, mechanism.names.coordinates
    body = coordinates[where[0][0]].rsplit(".", 1)[0]
    vz, wx, wy, wz = (
        rows[:, names.index(f"{body}.{name}")] for name in ("vz", "omega_x", "omega_y", "omega_z")
    )
    own = [rows[:, names.index(f"{coordinates[k]}_rate")] for k in where[1]]
    # omega_body = (roll', 0, 0) + Rx(roll)^T (0, pitch', 0).
    cos, sin = kept_cos_sin(y[2])
    return jnp.stack([vz, wy * cos - wz * sin, wx, *own], axis=1)


def _quaternion(yaw: Any, pitch: Any, roll: Any) -> tuple[Any, Any, Any, Any]:
    """Return wxyz of Rz(yaw) Ry(pitch) Rx(roll)."""
    (cy, cp, cr), (sy, sp, sr) = (
        jnp.unstack(part) for part in kept_cos_sin(0.5 * jnp.stack([yaw, pitch, roll]))
    )
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )
