"""Vehicles on terrain: height, roll, pitch and suspension from x, y and yaw; and what becomes of every wheel there.

With y = (z, pitch, roll, suspension) and the orientation Rz(yaw) Ry(pitch) Rx(roll) of the body, the pose solves

    min |gap(y)|^2    subject to the other rows at position level,      gap: how far each wheel is above the ground, vertically.

Three contacts, or as many as the suspension has freedoms left, make all gaps zero. Four wheels on a rigid body cannot all stand on uneven
ground: then gaps remain, and are reported. The iteration is that of Gauss and Newton, which is not differentiated; the derivative is that
of the conditions of the minimum, with the second derivatives of the gaps where these are not zero. The iteration has the
derivatives of the gaps from the rows of the heights, in closed form.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.values import hint
from jaxdae.status import Status
from jaxdae.typing import Leaf

_ITERATIONS = 60
_FREE = ("x", "y", "z", "qw", "qx", "qy", "qz")


@pytree
class TerrainReport:
    """How the wheels of a vehicle stand.

    Attributes:
        gap: (k,) how far each wheel is above the ground, vertically, in m.
        inside: (k,) whether the terrain is known at its contact.
        margin: (k,) one minus the curvature of the terrain over that of the wheel; not positive where there are two contacts.
        norm: sqrt(sum of squares of the gaps) () in m.
        status: () OK; OFF_TERRAIN, TWO_CONTACTS; INCONSISTENT_START where rows stay open, or no pose was found.
        names: of the contacts (static).
    """

    gap: Leaf
    inside: Leaf
    margin: Leaf
    norm: Leaf
    status: Leaf
    names: tuple[str, ...] = static()


def terrain_report(mechanism: Mechanism, q: Any, t: Any = 0.0) -> TerrainReport:
    """Returns how the wheels of a mechanism stand on their terrains.

    Args:
        mechanism: in any coordinates.
        q: coordinates (nq,).
        t: time in s.

    Raises:
        ValueError: a mechanism without wheels on terrain.
    """
    q = jnp.asarray(q)
    t = jnp.asarray(t, q.dtype)
    groups = _standing(mechanism)
    gap = _gaps(mechanism, q, t)[0]
    motion = _still(mechanism, q)
    room = jnp.concatenate([measures.values(type(group).room, group, pair, motion, t) for group, pair in groups])
    names = tuple(name for group, _ in groups for name in group.names)
    status: Any = mechanism.condition(t, q)
    return TerrainReport(gap, room[:, 0] > 0.0, room[:, 1], jnp.sqrt(jnp.sum(gap**2)), status, names)


def place_on_terrain(
    mechanism: Mechanism, q: Any, place: Any, yaw: Any, *, body: str = "base_link", suspension: tuple[str, ...] = ()
) -> tuple[Any, TerrainReport]:
    """Returns the coordinates of a vehicle that stands on its terrain, and how its wheels stand there.

    Args:
        mechanism: in joint coordinates; its wheels are joints such as `RollingDisc` and `SlidingSphere`.
        q: coordinates (nq,), whose height, roll, pitch and suspension are a first guess; all others are kept.
        place: (2,) where the origin of the body is to be, seen from above, in m.
        yaw: the heading of the body in rad.
        body: the name of the body that moves freely.
        suspension: names of the joints with one coordinate that follow from the ground; those of steering and wheels are kept.

    Raises:
        ValueError: an unknown body or joint, one without such coordinates, shapes that do not fit, or no wheels on terrain.

    Differentiable with respect to the mechanism (its terrain, for one), place and yaw, forward and reverse. May be batched by `vmap`.
    """
    q = jnp.asarray(q)
    place, yaw = jnp.asarray(place, q.dtype), jnp.asarray(yaw, q.dtype)
    if place.shape != (2,) or yaw.shape != ():
        raise ValueError(f"place_on_terrain: place must have shape (2,) and yaw (), got {place.shape} and {yaw.shape}")
    _standing(mechanism)
    return _placed(mechanism, q, place, yaw, _where(mechanism, body, suspension))


def _where(mechanism: Mechanism, body: str, suspension: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns where in q the pose of the body is, and the coordinates of the suspension."""
    names = mechanism.names.coordinates
    wanted = [f"{body}.{name}" for name in _FREE]
    missing = [name for name in wanted if name not in names]
    if missing:
        known = sorted({name.rsplit(".", 1)[0] for name in names if name.endswith(".qw")})
        raise ValueError(
            f"place_on_terrain: body must be one that moves freely, in joint coordinates, got {body!r}{hint(body, known or ['none'])}"
        )
    found = []
    for joint in suspension:
        own = [k for k, name in enumerate(names) if name.rsplit(".", 1)[0] == joint]
        if len(own) != 1:
            known = sorted({name.rsplit(".", 1)[0] for name in names} - {body})
            raise ValueError(f"place_on_terrain: suspension must name joints with one coordinate each, got {joint!r}{hint(joint, known)}")
        found.append(own[0])
    return tuple(names.index(name) for name in wanted), tuple(found)


@partial(jax.jit, static_argnums=4)
def _placed(mechanism: Mechanism, q: Any, place: Any, yaw: Any, where: Any) -> tuple[Any, TerrainReport]:
    pose, others = (np.asarray(part, int) for part in where)
    t = jnp.zeros((), q.dtype)
    arguments = mechanism, q, place, yaw

    def at(y: Any, arguments: Any) -> Any:
        _, q, place, yaw = arguments
        return q.at[pose].set(jnp.concatenate([place, y[:1], _quaternion(yaw, y[1], y[2])])).at[others].set(y[3:])

    def gaps(y: Any, arguments: Any) -> Any:
        return _gaps(arguments[0], at(y, arguments), t)[0]

    def rows(y: Any, arguments: Any) -> Any:
        return _other_rows(arguments[0], at(y, arguments), t)

    def conditions(x: Any, arguments: Any) -> Any:
        """Returns the derivatives of |gap|^2 / 2 + mu . rows."""
        y, mu = x[: 3 + others.size], x[3 + others.size :]
        value, pull = jax.vjp(lambda y: (gaps(y, arguments), rows(y, arguments)), y)
        return jnp.concatenate([pull((value[0], mu))[0], value[1]])

    still = jax.lax.stop_gradient(arguments)

    def step(y: Any) -> tuple[Any, Any]:
        at_y = at(y, still)
        (gap, upward), row = _gaps(still[0], at_y, t), _other_rows(still[0], at_y, t)
        soft, hard = (part @ _velocities(still[0], y, where) for part in _slopes(still[0], at_y, upward, t))
        zero = jnp.zeros((hard.shape[0],) * 2, y.dtype)
        matrix = jnp.block([[soft.T @ soft, hard.T], [hard, zero]])
        solved = jnp.linalg.solve(matrix, -jnp.concatenate([soft.T @ gap, row]))
        return solved[: y.shape[0]], solved[y.shape[0] :]

    def body(carry: Any) -> Any:
        y, _, _, count = carry
        change, mu = step(y)
        # Half a meter or radian a step: from a flat guess on a steep slope the first one may be long.
        shorter = jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.max(jnp.abs(change)), 1e-3))
        return y + shorter * change, mu, jnp.max(jnp.abs(change)), count + 1

    tolerance = 4.0 * float(jnp.finfo(q.dtype).eps)
    first = jnp.concatenate([still[1][pose[2:3]], jnp.zeros((2,), q.dtype), still[1][others]])
    count = rows(first, still).shape[0]
    start = first, jnp.zeros((count,), q.dtype), jnp.asarray(jnp.inf, q.dtype), 0
    y, mu, size, _ = jax.lax.while_loop(
        lambda carry: (carry[2] > tolerance * (1.0 + jnp.max(jnp.abs(carry[0])))) & (carry[3] < _ITERATIONS), body, start
    )
    root = jnp.concatenate([y, mu])

    def tangent(linear: Any, rhs: Any) -> Any:
        return jnp.linalg.solve(jax.jacobian(linear)(rhs), rhs)

    x = jax.lax.custom_root(lambda x: conditions(x, arguments), root, lambda _, x: x, tangent)
    q = at(x[: 3 + others.size], arguments)
    report = terrain_report(mechanism, q)
    open_rows = jnp.max(jnp.abs(_other_rows(mechanism, q, t)), initial=0.0)
    limit = float(jnp.finfo(q.dtype).eps) ** 0.6
    found = (size <= limit) & (open_rows <= limit)
    status: Any = jnp.where(found, report.status, jnp.asarray(Status.INCONSISTENT_START, jnp.int32))
    return q, TerrainReport(report.gap, report.inside, report.margin, report.norm, status, report.names)


def _standing(mechanism: Mechanism) -> list[tuple[Any, measures.Pairs]]:
    """Returns the groups of wheels on terrain."""
    count = len(mechanism.body_names)
    found = [(group, measures.Pairs(group.a, group.b, count)) for group in mechanism.joints.values() if hasattr(group, "gap")]
    if not found:
        raise ValueError("the mechanism has no wheels on terrain: give it joints such as RollingDisc or SlidingSphere")
    return found


def _still(mechanism: Mechanism, q: Any) -> measures.Kinematics:
    return mechanism.coordinates.kinematics(q, jnp.zeros((len(mechanism.coordinates.velocity_names),), q.dtype))


def _gaps(mechanism: Mechanism, q: Any, t: Any) -> tuple[Any, Any]:
    """Returns the vertical gaps beneath all wheels (k,), and the z of the normals there (k,)."""
    motion = _still(mechanism, q)
    found = jnp.concatenate([measures.values(type(group).gap, group, pair, motion, t) for group, pair in _standing(mechanism)])
    return found[:, 0], found[:, 1]


def _slopes(mechanism: Mechanism, q: Any, upward: Any, t: Any) -> tuple[Any, Any]:
    """Returns the derivatives of gaps and of all other rows at position level in the directions of velocities, (k, nv) and (h, nv).

    The contact p moves on the wheel in the surface, n . p' = n . c, so that a gap p_z - h grows by n . c / n_z, the height row over n_z.
    """
    heights = _heights(mechanism)
    rows = mechanism.constraint_jacobian(t, q, jnp.zeros((len(mechanism.coordinates.velocity_names),), q.dtype))[: heights.size]
    return rows[heights] / upward[:, None], rows[~heights]


def _velocities(mechanism: Mechanism, y: Any, where: Any) -> Any:
    """Returns the velocities (nv, 3 + suspension) that the rates of z, pitch, roll and the suspension are."""
    names, coordinates = mechanism.names.velocities, mechanism.names.coordinates
    body = coordinates[where[0][0]].rsplit(".", 1)[0]
    vz, wx, wy, wz = (names.index(f"{body}.{name}") for name in ("vz", "omega_x", "omega_y", "omega_z"))
    own = np.array([names.index(f"{coordinates[k]}_rate") for k in where[1]], int)
    # omega_body = (roll', 0, 0) + Rx(roll)^T (0, pitch', 0).
    matrix = jnp.zeros((len(names), y.shape[0]), y.dtype).at[vz, 0].set(1.0).at[wx, 2].set(1.0)
    matrix = matrix.at[wy, 1].set(jnp.cos(y[2])).at[wz, 1].set(-jnp.sin(y[2]))
    return matrix.at[own, 3 + np.arange(own.size)].set(1.0)


def _heights(mechanism: Mechanism) -> np.ndarray:
    """Returns which rows at position level are heights of wheels (ng,)."""
    heights = {f"{name}.height" for group, _ in _standing(mechanism) for name in group.names}
    names = mechanism.row_names
    levels = [name for group in mechanism.joints.values() for name in group.names for _ in group.velocity_rows]
    return np.array([name in heights for name in names[: len(names) - len(levels)]], bool)


def _other_rows(mechanism: Mechanism, q: Any, t: Any) -> Any:
    """Returns the residuals at position level (h,) that are no heights of wheels."""
    return mechanism.constraint(t, q)[~_heights(mechanism)]


def _quaternion(yaw: Any, pitch: Any, roll: Any) -> Any:
    """Returns wxyz (4,) of Rz(yaw) Ry(pitch) Rx(roll)."""
    (cy, sy), (cp, sp), (cr, sr) = ((jnp.cos(0.5 * angle), jnp.sin(0.5 * angle)) for angle in (yaw, pitch, roll))
    return jnp.stack([cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy, cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy])
