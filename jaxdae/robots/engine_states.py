"""State conversion to and from the coordinates of MuJoCo and Pinocchio.

Both engines, like the joint coordinates here, use one number for a hinge or a slide. The conventions differ
in the order of coordinates, in quaternions, and above all in the velocity of a free base. Let p be the origin
of the base link, R its axes in the world, and omega its angular velocity in these axes:

                    position  linear velocity     angular velocity      quaternion
    here, MuJoCo    p         p'                  omega                 wxyz
    Pinocchio       p         R^T p'              omega                 xyzw

The coordinates here may belong to another frame of the body: a body without joints uses the frame of its mass
center. Let c and Q be the position and the axes of that frame, r the position of p in it, and R_r the axes of
the link in it. Then

    p = c + Q r,    R = Q R_r,    p' = c' + Q (omega_Q x r),    omega = R_r^T omega_Q.

Both engines place a free base first and order joints along the tree. At branches of the tree, MuJoCo follows
the order of the bodies in the file, or of the joints for URDF. Pinocchio follows the joint names for URDF.
Pinocchio stores the cosine and sine of a continuous joint in place of its angle.

References:
    MuJoCo: https://mujoco.readthedocs.io/en/stable/overview.html#floating-objects
    Pinocchio: the Lie groups of JointModelFreeFlyer and JointModelRUB in its documentation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.suggestions import brief
from jaxdae.geometry.rotation import matrix_quaternion as quaternion_of
from jaxdae.geometry.rotation import quat_conjugate, quat_multiply, quat_normalize, quat_rotate
from jaxdae.geometry.spatial_frames import Frame
from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.describe.numbers import floating
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.robots.load_report import Carried, Report
from jaxdae.robots.robot_graph import matrix_quaternion
from jaxdae.systems.system import State


class _Entry(NamedTuple):
    """A joint of an engine: its kind, its indices in q and v here, and the constants of the conversion.

    The constants are a position (3,), of a free link in the coordinate frame, and a quaternion: of a free
    link in that frame, or of a ball joint at zero.
    """

    kind: str
    in_q: np.ndarray
    in_v: np.ndarray
    wraps: bool
    arm: Any
    turned: Any


class Engine(NamedTuple):
    """The conventions of an engine.

    Attributes:
        name: name of the engine.
        scalar_first: whether quaternions are wxyz.
        body_velocity: whether the linear velocity of a free base is in the axes of the base.
        angles_as_pairs: whether a joint that turns without limits stores a cosine and a sine.
    """

    name: str
    scalar_first: bool
    body_velocity: bool
    angles_as_pairs: bool


MUJOCO = Engine("MuJoCo", scalar_first=True, body_velocity=False, angles_as_pairs=False)
PINOCCHIO = Engine("Pinocchio", scalar_first=False, body_velocity=True, angles_as_pairs=True)


def to_mujoco(report: Report, mechanism: Mechanism, state: State) -> tuple[Array, Array]:
    """Return qpos (nq,) and qvel (nv,) of MuJoCo, for a model of the same file.

    Arguments and errors are the same as in `from_mujoco`. The violation of loops and mimic joints is
    preserved; `jaxdae.state_status(mechanism, state)` reports it.
    """
    return _outward(report, mechanism, state, MUJOCO)


def from_mujoco(report: Report, mechanism: Mechanism, qpos: Any, qvel: Any = None) -> State:
    """Return the state at t = 0 of a mechanism in joint coordinates.

    Args:
        report: report of the robot.
        mechanism: `jm.mechanism(robot.description, jm.Joints())`.
        qpos: (nq,) in m and rad.
        qvel: (nv,) in m/s and rad/s; zero by default.

    Raises:
        TypeError: the mechanism has other coordinates.
        ValueError: a wrong length, or joints that the engine does not support.

    Differentiable.
    """
    return _inward(report, mechanism, qpos, qvel, MUJOCO)


def to_pinocchio(report: Report, mechanism: Mechanism, state: State) -> tuple[Array, Array]:
    """Return q and v of Pinocchio, for a model of the same file.

    Arguments and errors are the same as in `from_pinocchio`. A floating base corresponds to
    `buildModelFromUrdf(path, JointModelFreeFlyer())`. The violation of loops and mimic joints is preserved;
    `jaxdae.state_status(mechanism, state)` reports it.
    """
    return _outward(report, mechanism, state, PINOCCHIO)


def from_pinocchio(report: Report, mechanism: Mechanism, q: Any, v: Any = None) -> State:
    """Return the state at t = 0 in joint coordinates, from Pinocchio's q and v; see `from_mujoco`."""
    return _inward(report, mechanism, q, v, PINOCCHIO)


def ordered(report: Report, engine: Engine) -> list[Carried]:
    """Return the tree entries of the links in the order of an engine."""
    below: dict[str, list[Carried]] = {}
    for one in report.tree:
        below.setdefault(one.parent, []).append(one)
    names = report.by_names and engine is PINOCCHIO
    found: list[Carried] = []
    waiting = [GROUND]
    while waiting:
        link = waiting.pop()
        found += [one for one in report.tree if one.child == link]
        children = sorted(
            below.get(link, []), key=lambda one: (one.kind != "free", one.joint) if names else one.number
        )
        waiting.extend(one.child for one in reversed(children))
    return found


def _entries(report: Report, mechanism: Mechanism, engine: Engine) -> list[_Entry]:
    if not isinstance(report, Report):
        raise TypeError(f"{engine.name}: report must be robot.report, got {type(report).__name__}")
    if not hasattr(mechanism, "names"):
        got = type(mechanism).__name__
        raise TypeError(
            f"{engine.name}: mechanism must be jm.mechanism(robot.description, jm.Joints())[0], got {got}"
        )
    names = mechanism.names
    of_q, of_v = (
        [name.rsplit(".", 1)[0] for name in group] for group in (names.coordinates, names.velocities)
    )
    found = []
    for one in ordered(report, engine):
        if one.kind == "fixed":
            continue
        in_q, in_v = (np.flatnonzero([name == one.joint for name in group]) for group in (of_q, of_v))
        if not in_q.size:
            raise TypeError(
                f"the mechanism has no joint coordinate of {brief(one.joint)}; build the mechanism from "
                "this robot with jm.Joints()"
            )
        if one.reversed or (one.kind == "axes" and in_q.size != 1):
            raise ValueError(
                f"{engine.name} does not support the joint {brief(one.joint)}, which has several "
                "coordinates or points from child to parent"
            )
        arm, turned = np.zeros(3), np.asarray([1.0, 0.0, 0.0, 0.0])
        if one.kind == "free":
            arm, turned = _link_in_coordinates(report, mechanism, one.child)
        if one.kind == "ball":
            turned = matrix_quaternion(report.frames[one.parent].rotation @ one.turned)
        found.append(_Entry(one.kind, in_q, in_v, one.wraps and engine.angles_as_pairs, arm, turned))
    return found


def _link_in_coordinates(report: Report, mechanism: Mechanism, link: str) -> tuple[Any, Any]:
    """Return the position and quaternion of a free link in its coordinate frame."""
    own, tree = report.frames[link], mechanism.coordinates
    if not isinstance(tree, TreeCoordinates):  # A single body has absolute coordinates.
        return own.place, matrix_quaternion(own.rotation)
    number = mechanism.body_names.index(own.body)
    held = Frame(*(entry[number] for entry in tree.held))
    axes = [held.direction(own.rotation[:, k]).array() for k in range(3)]
    return held.point(own.place).array(), quaternion_of(jnp.stack(axes, axis=1))


def _outward(report: Report, mechanism: Mechanism, state: State, engine: Engine) -> tuple[Array, Array]:
    positions, rates = [jnp.zeros((0,), state.q.dtype)], [jnp.zeros((0,), state.q.dtype)]
    for one in _entries(report, mechanism, engine):
        q, v = state.q[one.in_q], state.v[one.in_v]
        if one.kind == "free":
            arm, turned = (jnp.asarray(x, q.dtype) for x in (one.arm, one.turned))
            place, velocity = (
                q[:3] + quat_rotate(q[3:], arm),
                v[:3] + quat_rotate(q[3:], jnp.cross(v[3:], arm)),
            )
            quaternion = quat_multiply(q[3:], turned)
            positions += [place, _written(quaternion, engine)]
            back = quat_conjugate(quaternion)
            rates += [
                quat_rotate(back, velocity) if engine.body_velocity else velocity,
                quat_rotate(quat_conjugate(turned), v[3:]),
            ]
        elif one.kind == "ball":
            positions.append(
                _written(quat_multiply(quat_conjugate(jnp.asarray(one.turned, q.dtype)), q), engine)
            )
            rates.append(v)
        else:
            positions.append(jnp.concatenate([jnp.cos(q), jnp.sin(q)]) if one.wraps else q)
            rates.append(v)
    return jnp.concatenate(positions), jnp.concatenate(rates)


def _inward(report: Report, mechanism: Mechanism, positions: Any, rates: Any, engine: Engine) -> State:
    entries = _entries(report, mechanism, engine)
    sizes = [2 if one.wraps else len(one.in_q) for one in entries], [len(one.in_v) for one in entries]
    given = floating(positions)
    dtype = given.dtype
    moving = jnp.zeros((sum(sizes[1]),), dtype) if rates is None else jnp.asarray(rates, dtype)
    for what, array, size in (("positions", given, sum(sizes[0])), ("velocities", moving, sum(sizes[1]))):
        if array.shape != (size,):
            raise ValueError(f"{engine.name}: {what} must have the shape {(size,)}, got {array.shape}")
    q, v = (
        jnp.zeros((len(mechanism.names.coordinates),), dtype),
        jnp.zeros((len(mechanism.names.velocities),), dtype),
    )
    at_q = at_v = 0
    for one, size_q, size_v in zip(entries, *sizes, strict=True):
        x, w = given[at_q : at_q + size_q], moving[at_v : at_v + size_v]
        at_q, at_v = at_q + size_q, at_v + size_v
        if one.kind == "free":
            arm, turned, of_link = (
                jnp.asarray(one.arm, dtype),
                jnp.asarray(one.turned, dtype),
                _read(x[3:], engine),
            )
            quaternion, omega = quat_multiply(of_link, quat_conjugate(turned)), quat_rotate(turned, w[3:])
            velocity = quat_rotate(of_link, w[:3]) if engine.body_velocity else w[:3]
            x = jnp.concatenate([x[:3] - quat_rotate(quaternion, arm), quaternion])
            w = jnp.concatenate([velocity - quat_rotate(quaternion, jnp.cross(omega, arm)), omega])
        elif one.kind == "ball":
            x = quat_multiply(jnp.asarray(one.turned, dtype), _read(x, engine))
        elif one.wraps:
            x = jnp.arctan2(x[1:], x[:1])
        q, v = q.at[one.in_q].set(x), v.at[one.in_v].set(w)
    return State(jnp.zeros((), dtype), q, v)


def _written(quaternion: Array, engine: Engine) -> Array:
    return quaternion if engine.scalar_first else jnp.roll(quaternion, -1)


def _read(quaternion: Array, engine: Engine) -> Array:
    return quat_normalize(quaternion if engine.scalar_first else jnp.roll(quaternion, 1))
