"""Absolute coordinates: the pose of every body.

T is the identity, M is constant, and every joint contributes constraint rows.

In the plane, q contains (x, y, theta) of each body, and theta alone of a rotor; v = q'.

In space, q contains the position of the mass center and the unit quaternion wxyz (body to world) of each
body. v contains the velocity of the mass center in the world and omega_body. q (+) xi rotates the quaternion
by the rotation vector in xi. This keeps the quaternion at length 1, so no constraint row is needed for its
length.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.geometry import planar_frames, spatial_frames
from jaxdae.geometry.rotation import matrix_quaternion, quat_difference, quat_retract, rotation_vector_rate
from jaxdae.matrices import (
    BlockDiagonalMatrix,
    BlockRows,
    DenseRows,
    DiagonalMatrix,
    JacobianOperator,
    MassOperator,
)
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates, Terms
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space
from jaxdae.mechanisms.describe.spanning_tree import holds, lost_off_the_tree
from jaxdae.systems.system import plain_sum
from jaxdae.typing import Coordinates, Jacobian, Scalar, Velocity


class _Absolute(BodyCoordinates):
    """Base class of the absolute coordinates, in which each body has its own coordinates."""

    bodies: tuple[str, ...]

    def resting(self, located: Any) -> Kinematics:
        """Return the frames of all bodies."""
        return Kinematics(located, None)

    @abc.abstractmethod
    def mass_operator(self, q: Coordinates, motion: Any, mass: Any, inertia: Any) -> MassOperator:
        """Return M, which does not depend on q."""

    @abc.abstractmethod
    def of_frames(self, frames: Any) -> Coordinates:
        """Return the coordinates q of bodies with these frames."""

    def of_twists(self, q: Coordinates, twists: Any) -> Velocity:
        """Return the velocities v of bodies with these twists."""
        return jnp.stack(twists, axis=-1).reshape(-1)

    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Return T^T F (nv,), which is the wrenches themselves."""
        return jnp.stack(wrench, axis=-1).reshape(-1)

    def kinetic_energy(self, q: Coordinates, v: Velocity, mass: Any, inertia: Any) -> Scalar:
        """Return the kinetic energy in J."""
        return 0.5 * jnp.sum(v * self.mass_operator(q, None, mass, inertia).times(v))

    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Return the Jacobian rows of a group as an array."""
        return measures.dense_rows(block, pair)

    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Return the Jacobian rows of several groups in blocks, one block per connected body."""
        return rows_by_bodies(self.bodies, q, motion, groups)


def rows_by_bodies(
    bodies: Sequence[str], q: Coordinates, motion: Kinematics, groups: Sequence[Terms]
) -> BlockRows:
    """Return the Jacobian rows of several groups in blocks, one block per connected body."""
    ground, width = len(bodies), len(motion.velocity)
    connected: list[tuple[int, ...]] = []
    parts: list[list[Any]] = []
    for terms in groups:
        sides = [side for term in terms.on_bodies for side in term.sides]
        count = sides[0].shape[0] // len(terms.on_bodies[0].pair.a)
        on = [
            tuple(int(k) for k in each)
            for each in zip(*(side for term in terms.on_bodies for side in term.pair.sides), strict=True)
            for _ in range(count)
        ]
        if len(terms.on_bodies) > 1:
            on, sides = _merged(on, sides, ground)
        connected += on
        parts.append(sides)
    most = max((len(sides) for sides in parts), default=2)
    still = jnp.zeros((0, width), q.dtype)
    first, second, *more = (
        jnp.concatenate(
            [still, *(sides[k] if k < len(sides) else jnp.zeros_like(sides[0]) for sides in parts)]
        )
        for k in range(most)
    )
    a, b = (tuple(on[k] for on in connected) for k in range(2))
    others = tuple(on[2:] for on in connected) if more else ()
    return BlockRows(first, second, a, b, ground, jnp.stack(more, axis=1) if more else None, others)


def _merged(
    on: Sequence[tuple[int, ...]], sides: Sequence[Any], ground: int
) -> tuple[list[tuple[int, ...]], list[Any]]:
    """Return the distinct bodies of each row, and the summed Jacobian blocks of each body.

    Several terms of one row may refer to the same body.
    """
    found = [tuple(dict.fromkeys(each)) for each in on]
    found = [each if len(each) > 1 else (*each, ground) for each in found]
    summed = []
    for k in range(max(len(of) for of in found)):
        seen = [
            np.asarray([k < len(of) and body[x] == of[k] for body, of in zip(on, found, strict=True)])
            for x in range(len(sides))
        ]
        first, *more = (jnp.where(at[:, None], side, 0.0) for at, side in zip(seen, sides, strict=True))
        summed.append(sum(more, first))
    return found, summed


@pytree
class PlanarAbsolute(_Absolute):
    """Absolute coordinates in the plane: (x, y, theta) of each body in m and rad, theta alone of a rotor.

    Attributes:
        bodies: the names of all bodies (static).
        rotors: the indices of the rotors, whose only coordinate is an angle (static).
    """

    bodies: tuple[str, ...] = static()
    rotors: tuple[int, ...] = static(default=())

    flat = True

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the coordinates q, such as "crank.theta", with their units."""
        return self._named((("x", "m"), ("y", "m"), ("theta", "rad")))

    @property
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the velocities v, such as "crank.omega", with their units."""
        return self._named((("vx", "m/s"), ("vy", "m/s"), ("omega", "rad/s")))

    def _named(self, axes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        every = [(f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes]
        return tuple(every[k] for k in self._kept)

    @property
    def _kept(self) -> np.ndarray:
        """Return the indices of the coordinates among the pose entries (x, y, theta) of all bodies (nq,)."""
        return np.flatnonzero(
            [body not in self.rotors or axis == 2 for body in range(len(self.bodies)) for axis in range(3)]
        )

    def _poses(self, entries: Any) -> list[Any]:
        """Return coordinates or velocities as three arrays (n,); the x and y entries of rotors are zero."""
        if self.rotors:
            numbers = np.full(3 * len(self.bodies), entries.shape[0])
            numbers[self._kept] = np.arange(entries.shape[0])
            return [measures.selected(numbers[axis::3], entries) for axis in range(3)]
        return [jax.lax.slice_in_dim(entries, axis, None, 3) for axis in range(3)]

    def _entries(self, poses: Any) -> Any:
        """Return three arrays (n,) as a vector of coordinates or velocities."""
        every = jnp.stack(poses, axis=-1).reshape(-1)
        return every[self._kept] if self.rotors else every

    def moving(self, located: planar_frames.Frame, v: Velocity) -> Kinematics:
        """Return the frames and twists of all bodies."""
        return Kinematics(located, planar_frames.Twist(*self._poses(v)))

    @jax.jit  # Called a dozen times per step: traced once.
    def locate(self, q: Coordinates) -> planar_frames.Frame:
        """Return the frames of all bodies."""
        return planar_frames.Frame.of_pose(*self._poses(q))

    def of_frames(self, frames: Any) -> Coordinates:
        """Return the coordinates q of bodies with these frames."""
        return self._entries([frames.x, frames.y, frames.angle])

    def of_twists(self, q: Coordinates, twists: Any) -> Velocity:
        """Return the velocities v of bodies with these twists."""
        return self._entries(twists)

    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Return T^T F (nv,): the wrenches on bodies, and the torques on rotors."""
        return self._entries(wrench)

    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Return the Jacobian rows of a group as an array."""
        rows = measures.dense_rows(block, pair)
        return rows[:, self._kept] if self.rotors else rows

    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Return the Jacobian rows of several groups, in blocks, or densely if there are rotors."""
        if not self.rotors:
            return rows_by_bodies(self.bodies, q, motion, groups)
        return DenseRows(self.group_rows(q, motion, groups))

    def mass_operator(self, q: Coordinates, motion: Any, mass: Any, inertia: Any) -> DiagonalMatrix:
        """Return the diagonal matrix of (m, m, I) of each body, and of I alone of a rotor."""
        return DiagonalMatrix(self._entries([mass, mass, inertia]).astype(q.dtype))

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q + xi."""
        return plain_sum(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return q1 - q0."""
        return q1 - q0

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Return v."""
        return v


@pytree
class SpatialAbsolute(_Absolute):
    """Absolute coordinates in space: position (3,) in m and quaternion wxyz (4,) of each body.

    Attributes:
        bodies: the names of all bodies (static).
    """

    bodies: tuple[str, ...] = static()

    flat = False

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the coordinates q, such as "crank.x" and "crank.qw", with their units."""
        axes = (*((axis, "m") for axis in "xyz"), *((f"q{axis}", "") for axis in "wxyz"))
        return tuple((f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes)

    @property
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the velocities v, such as "crank.vx" and "crank.omega_x", with their units.

        The angular velocities are components in the body axes.
        """
        axes = (*((f"v{axis}", "m/s") for axis in "xyz"), *((f"omega_{axis}", "rad/s") for axis in "xyz"))
        return tuple((f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes)

    def moving(self, located: spatial_frames.Frame, v: Velocity) -> Kinematics:
        """Return the frames and twists of all bodies; the velocity-dependent acceleration T' v is zero."""
        return Kinematics(located, spatial_frames.Twist(*jnp.unstack(v.reshape(-1, 6), axis=1)))

    @jax.jit
    def locate(self, q: Coordinates) -> spatial_frames.Frame:
        """Return the frames of all bodies."""
        entries = jnp.unstack(q.reshape(-1, 7), axis=1)
        return spatial_frames.Frame.of_pose(entries[:3], entries[3:])

    def of_frames(self, frames: Any) -> Coordinates:
        """Return the coordinates q of bodies with these frames; quaternions have w >= 0."""
        quaternions = frame_quaternions(frames)
        return jnp.concatenate([jnp.stack(frames[:3], axis=-1), quaternions], axis=1).reshape(-1)

    def mass_operator(self, q: Coordinates, motion: Any, mass: Any, inertia: Any) -> MassOperator:
        """Return diag(m, m, m, I) of each body; it is a diagonal matrix for principal moments (n, 3)."""
        masses = jnp.repeat(mass[:, None], 3, axis=1)
        if inertia.ndim == 2:
            return DiagonalMatrix(jnp.concatenate([masses, inertia], axis=1).reshape(-1).astype(q.dtype))
        # Two blocks of 3 x 3 per body, instead of one block of 6 x 6.
        blocks = jnp.stack([masses[:, :, None] * np.eye(3, dtype=mass.dtype), inertia], axis=1).reshape(
            -1, 3, 3
        )
        return BlockDiagonalMatrix(blocks.astype(q.dtype))

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi; quaternions keep length 1."""
        poses, moved = q.reshape(-1, 7), xi.reshape(-1, 6)
        turned = jax.vmap(quat_retract)(poses[:, 3:], moved[:, 3:])
        return jnp.concatenate([poses[:, :3] + moved[:, :3], turned], axis=1).reshape(-1)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi with q0 (+) xi = q1; rotations are at most half a turn."""
        before, after = q0.reshape(-1, 7), q1.reshape(-1, 7)
        turned = jax.vmap(quat_difference)(before[:, 3:], after[:, 3:])
        return jnp.concatenate([after[:, :3] - before[:, :3], turned], axis=1).reshape(-1)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Return xi' such that q (+) xi(t) moves with velocity v."""
        moved, moving = xi.reshape(-1, 6), v.reshape(-1, 6)
        turning = jax.vmap(rotation_vector_rate)(moved[:, 3:], moving[:, 3:])
        return jnp.concatenate([moving[:, :3], turning], axis=1).reshape(-1)


def frame_quaternions(frames: spatial_frames.Frame) -> Any:
    """Return the quaternions wxyz (n, 4) of stacked frames."""
    rows = jnp.stack(frames[3:], axis=-1).reshape(-1, 3, 3)
    return jax.vmap(matrix_quaternion)(rows)


FORMS = {"plane": PlanarAbsolute, "space": SpatialAbsolute}


def absolute_form(
    space: Plane | Space, bodies: Sequence[str], rotors: tuple[int, ...]
) -> PlanarAbsolute | SpatialAbsolute:
    """Return the absolute coordinates of named bodies; `rotors` contains the indices of the rotors."""
    return FORMS[space.name](tuple(bodies), *((rotors,) if rotors else ()))


@dataclasses.dataclass(frozen=True)
class Absolute:
    """Select absolute coordinates: the pose of every body; all joints are constraint rows."""

    massless: ClassVar[bool] = False
    """Whether bodies may lack mass and inertia."""

    def wrong_kinds(self) -> Iterable[str]:
        """Yield nothing."""
        return ()

    def mistakes(
        self, bodies: Sequence[str], joints: Sequence[Any], unsound: Sequence[Any], loops: Sequence[str]
    ) -> Iterable[Any]:
        """Yield the joints with parameters that act only on tree joints."""
        return lost_off_the_tree([*joints, *unsound], "use Joints()")

    def of(
        self,
        space: Plane | Space,
        bodies: Sequence[Body | Rotor | SpatialBody],
        joints: Sequence[Any],
        frames: Any,
        numbers: Any,
        loops: Any = (),
    ) -> tuple[BodyCoordinates, Any, Sequence[Any], Sequence[Any]]:
        """Return the coordinates, q at the start poses, the joints with constraint rows, and the tree joints.

        All joints that constrain motion have constraint rows. The sequence of tree joints is empty.
        """
        rotors = tuple(k for k, body in enumerate(bodies) if body.turns_only)
        form = absolute_form(space, [body.name for body in bodies], rotors)
        return (
            form,
            jnp.concatenate([body.coordinates() for body in bodies]),
            [joint for joint in joints if holds(joint)],
            (),
        )
