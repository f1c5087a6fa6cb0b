"""Absolute coordinates: the pose of every body, so that T is the identity, M is constant, and joints are rows.

In the plane q is (x, y, theta) of each body, of a rotor theta alone, and v = q'.

In space q is (place of the mass center, unit quaternion wxyz body to world) of each body, and v is (velocity of the mass center in the
world, omega_body). q (+) xi turns the quaternion by the rotation vector in xi. That keeps its length, so that no row has to hold it.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static
from jaxdae.geometry import planar, spatial
from jaxdae.geometry.rotation import matrix_quaternion, quat_difference, quat_retract, rotation_vector_rate
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.bodies import Body, Rotor, SpatialBody
from jaxdae.mechanisms.coordinates.interface import BodyCoordinates, Terms
from jaxdae.mechanisms.graph import holds, lost_off_the_tree
from jaxdae.mechanisms.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.space import Plane, Space
from jaxdae.operators import BlockDiagonalMatrix, BlockRows, DenseRows, DiagonalMatrix, JacobianOperator, MassOperator
from jaxdae.typing import Coordinates, Jacobian, Scalar, Velocity


class _Absolute(BodyCoordinates):
    """Each body has coordinates of its own."""

    bodies: tuple[str, ...]

    def at_rest(self, q: Coordinates) -> Kinematics:
        """Returns the frames of all bodies."""
        return Kinematics(self.located(q), None)

    @abc.abstractmethod
    def mass_operator(self, q: Coordinates, mass: Any, inertia: Any) -> MassOperator:
        """Returns M, which does not depend on q."""

    @abc.abstractmethod
    def of_frames(self, frames: Any) -> Coordinates:
        """Returns q where bodies have these frames."""

    def of_twists(self, q: Coordinates, twists: Any) -> Velocity:
        """Returns v with which bodies have these twists."""
        return jnp.stack(twists, axis=-1).reshape(-1)

    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Returns the wrenches (nv,)."""
        return jnp.stack(wrench, axis=-1).reshape(-1)

    def kinetic_energy(self, q: Coordinates, v: Velocity, mass: Any, inertia: Any) -> Scalar:
        """Returns the kinetic energy in J."""
        return 0.5 * jnp.sum(v * self.mass_operator(q, mass, inertia).times(v))

    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Returns the rows of a group."""
        return measures.dense_rows(block, pair)

    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Returns the rows of several groups by the bodies that each of them connects."""
        return rows_by_bodies(self.bodies, q, motion, groups)


def rows_by_bodies(bodies: Sequence[str], q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> BlockRows:
    """Returns the rows of several groups by the bodies that each of them connects."""
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
        jnp.concatenate([still, *(sides[k] if k < len(sides) else jnp.zeros_like(sides[0]) for sides in parts)]) for k in range(most)
    )
    a, b = (tuple(on[k] for on in connected) for k in range(2))
    others = tuple(on[2:] for on in connected) if more else ()
    return BlockRows(first, second, a, b, ground, jnp.stack(more, axis=1) if more else None, others)


def _merged(on: Sequence[tuple[int, ...]], sides: Sequence[Any], ground: int) -> tuple[list[tuple[int, ...]], list[Any]]:
    """Returns the bodies of rows, all different, with the sums of their sides: several measures of one row may look at one body."""
    found = [tuple(dict.fromkeys(each)) for each in on]
    found = [each if len(each) > 1 else (*each, ground) for each in found]
    summed = []
    for k in range(max(len(of) for of in found)):
        seen = [np.asarray([k < len(of) and body[x] == of[k] for body, of in zip(on, found, strict=True)]) for x in range(len(sides))]
        first, *more = (jnp.where(at[:, None], side, 0.0) for at, side in zip(seen, sides, strict=True))
        summed.append(sum(more, first))
    return found, summed


@pytree
class PlanarAbsolute(_Absolute):
    """(x, y, theta) of each body in m and rad, theta alone of rotors.

    Attributes:
        bodies: the names of all bodies (static).
        rotors: the numbers of those that have an angle only (static).
        known: the frames of all bodies at some q, see `BodyCoordinates`.
    """

    bodies: tuple[str, ...] = static()
    rotors: tuple[int, ...] = static(default=())
    known: Any = None

    flat = True

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of q, such as "crank.theta", with their units."""
        return self._named((("x", "m"), ("y", "m"), ("theta", "rad")))

    @property
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """The names of v, such as "crank.omega", with their units."""
        return self._named((("vx", "m/s"), ("vy", "m/s"), ("omega", "rad/s")))

    def _named(self, axes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        every = [(f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes]
        return tuple(every[k] for k in self._kept)

    @property
    def _kept(self) -> np.ndarray:
        """Which entries of the poses of all bodies are coordinates (nq,)."""
        return np.flatnonzero([body not in self.rotors or axis == 2 for body in range(len(self.bodies)) for axis in range(3)])

    def _poses(self, entries: Any) -> list[Any]:
        """Returns coordinates or velocities as three arrays (n,), those of rotors with a place that is zero."""
        if self.rotors:
            numbers = np.full(3 * len(self.bodies), entries.shape[0])
            numbers[self._kept] = np.arange(entries.shape[0])
            return [measures.selected(numbers[axis::3], entries) for axis in range(3)]
        return [jax.lax.slice_in_dim(entries, axis, None, 3) for axis in range(3)]

    def _entries(self, poses: Any) -> Any:
        """Returns three arrays (n,) as coordinates or velocities."""
        every = jnp.stack(poses, axis=-1).reshape(-1)
        return every[self._kept] if self.rotors else every

    def kinematics(self, q: Coordinates, v: Velocity) -> Kinematics:
        """Returns frames and twists of all bodies."""
        return Kinematics(self.located(q), planar.Twist(*self._poses(v)))

    @jax.jit  # A step asks for it a dozen times: compiled as a unit, JAX traces and differentiates it once.
    def locate(self, q: Coordinates) -> planar.Frame:
        """Returns the frames of all bodies."""
        return planar.Frame.of_pose(*self._poses(q))

    def of_frames(self, frames: Any) -> Coordinates:
        """Returns q where bodies have these frames."""
        return self._entries([frames.x, frames.y, frames.angle])

    def of_twists(self, q: Coordinates, twists: Any) -> Velocity:
        """Returns v with which bodies have these twists."""
        return self._entries(twists)

    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Returns the wrenches (nv,); of rotors the torques."""
        return self._entries(wrench)

    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Returns the rows of a group."""
        rows = measures.dense_rows(block, pair)
        return rows[:, self._kept] if self.rotors else rows

    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Returns the rows of several groups by the bodies that each of them connects; a matrix where there are rotors."""
        if not self.rotors:
            return rows_by_bodies(self.bodies, q, motion, groups)
        return DenseRows(self.group_rows(q, motion, groups))

    def mass_operator(self, q: Coordinates, mass: Any, inertia: Any) -> DiagonalMatrix:
        """Returns diag(m, m, I) of each body, I of rotors."""
        return DiagonalMatrix(self._entries([mass, mass, inertia]).astype(q.dtype))

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q + xi."""
        return q + xi

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns q1 - q0."""
        return q1 - q0

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Returns v."""
        return v


@pytree
class SpatialAbsolute(_Absolute):
    """Place (3,) in m and quaternion wxyz (4,) of each body.

    Attributes:
        bodies: the names of all bodies (static).
        known: the frames of all bodies at some q, see `BodyCoordinates`.
    """

    bodies: tuple[str, ...] = static()
    known: Any = None

    flat = False

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """The names of q, such as "crank.x" and "crank.qw", with their units."""
        axes = (*((axis, "m") for axis in "xyz"), *((f"q{axis}", "") for axis in "wxyz"))
        return tuple((f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes)

    @property
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """The names of v, such as "crank.vx" and "crank.omega_x" (in the axes of the body), with their units."""
        axes = (*((f"v{axis}", "m/s") for axis in "xyz"), *((f"omega_{axis}", "rad/s") for axis in "xyz"))
        return tuple((f"{body}.{axis}", unit) for body in self.bodies for axis, unit in axes)

    def kinematics(self, q: Coordinates, v: Velocity) -> Kinematics:
        """Returns frames and twists of all bodies; the rate of a twist has no part of its own."""
        return Kinematics(self.located(q), spatial.Twist(*jnp.unstack(v.reshape(-1, 6), axis=1)))

    @jax.jit
    def locate(self, q: Coordinates) -> spatial.Frame:
        """Returns the frames of all bodies."""
        entries = jnp.unstack(q.reshape(-1, 7), axis=1)
        return spatial.Frame.of_pose(entries[:3], entries[3:])

    def of_frames(self, frames: Any) -> Coordinates:
        """Returns q where bodies have these frames; quaternions have w >= 0."""
        quaternions = frame_quaternions(frames)
        return jnp.concatenate([jnp.stack(frames[:3], axis=-1), quaternions], axis=1).reshape(-1)

    def mass_operator(self, q: Coordinates, mass: Any, inertia: Any) -> MassOperator:
        """Returns diag(m, m, m, I) of each body, with principal moments (n, 3) a diagonal matrix."""
        masses = jnp.repeat(mass[:, None], 3, axis=1)
        if inertia.ndim == 2:
            return DiagonalMatrix(jnp.concatenate([masses, inertia], axis=1).reshape(-1).astype(q.dtype))
        # Two blocks a body, of half the size of one.
        blocks = jnp.stack([masses[:, :, None] * np.eye(3, dtype=mass.dtype), inertia], axis=1).reshape(-1, 3, 3)
        return BlockDiagonalMatrix(blocks.astype(q.dtype))

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns the moved poses; quaternions stay of length 1."""
        poses, moved = q.reshape(-1, 7), xi.reshape(-1, 6)
        turned = jax.vmap(quat_retract)(poses[:, 3:], moved[:, 3:])
        return jnp.concatenate([poses[:, :3] + moved[:, :3], turned], axis=1).reshape(-1)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with q0 (+) xi = q1, rotations by at most half a turn."""
        before, after = q0.reshape(-1, 7), q1.reshape(-1, 7)
        turned = jax.vmap(quat_difference)(before[:, 3:], after[:, 3:])
        return jnp.concatenate([after[:, :3] - before[:, :3], turned], axis=1).reshape(-1)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Returns xi' of q (+) xi(t) where it moves with velocity v."""
        moved, moving = xi.reshape(-1, 6), v.reshape(-1, 6)
        turning = jax.vmap(rotation_vector_rate)(moved[:, 3:], moving[:, 3:])
        return jnp.concatenate([moving[:, :3], turning], axis=1).reshape(-1)


def frame_quaternions(frames: spatial.Frame) -> Any:
    """Returns the quaternions wxyz (n, 4) of stacked frames."""
    rows = jnp.stack(frames[3:], axis=-1).reshape(-1, 3, 3)
    return jax.vmap(matrix_quaternion)(rows)


FORMS = {"plane": PlanarAbsolute, "space": SpatialAbsolute}


def absolute_form(space: Plane | Space, bodies: Sequence[str], rotors: tuple[int, ...]) -> PlanarAbsolute | SpatialAbsolute:
    """Returns the absolute coordinates of named bodies, of which some, by their numbers, are rotors."""
    return FORMS[space.name](tuple(bodies), *((rotors,) if rotors else ()))


@dataclasses.dataclass(frozen=True)
class Absolute:
    """The choice of absolute coordinates: the pose of every body; all joints are constraint rows."""

    massless: ClassVar[bool] = False
    """Whether bodies may go without mass and inertia."""

    def wrong_kinds(self) -> Iterable[str]:
        """Yields nothing."""
        return ()

    def mistakes(self, bodies: Sequence[str], joints: Sequence[Any], unsound: Sequence[Any], loops: Sequence[str]) -> Iterable[Any]:
        """Yields joints with what acts on joints of a tree alone."""
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
        """Returns the coordinates of bodies, q at their start poses, the joints that are rows, all of them, and those in a tree, none."""
        rotors = tuple(k for k, body in enumerate(bodies) if body.turns_only)
        form = absolute_form(space, [body.name for body in bodies], rotors)
        return form, jnp.concatenate([body.coordinates() for body in bodies]), [joint for joint in joints if holds(joint)], ()
