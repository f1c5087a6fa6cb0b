"""Joint coordinates: the coordinates of the joints of a spanning tree.

The other joints are constraint rows that close loops.

The notes call this form embedded: rounding errors cannot open the tree joints. S_j is the motion subspace of
velocity v_j, about an origin near the tree and in world axes (`jaxdae.geometry.screws`). The motion of a body
is a sum over the joints that carry it, and so is its acceleration at v' = 0,

    V_b = sum_j S_j v_j,        A_b = sum_j (V_j x S_j) v_j,

where V_j is the motion of the link of v_j, in which S_j is fixed. The mass matrix consists of composite
inertias,

    M_jk = S_j . I_k S_k        if j is k or an ancestor of k,
    I_k = sum of the inertias of the bodies in the subtree of k.

Wrenches on bodies act on all joints that carry the bodies: (T^T F)_j = S_j . sum of F over the bodies in the
subtree of j. A constant 0/1 matrix contains the ancestor relation. Up to 96 velocities, the sums are products
with this matrix; larger trees use recursions (`jaxdae.trees.tree_sweeps`). From 10 velocities on, 24 with
loops, M is a `TreeMass` (`articulated`). Batches and trees beyond 96 velocities factorize it by articulated
bodies, without forming the matrix. The frame of a link follows from the frame of its parent (`poses`).

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapters 4 and 6.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.platform import on_accelerator
from jaxdae.compile.rematerialization import made_again
from jaxdae.compile.thresholds import DENSE_UP_TO
from jaxdae.compile.zero_tangents import Moving, is_still
from jaxdae.linalg import small_matrix
from jaxdae.matrices import DenseMatrix, JacobianOperator, MassOperator
from jaxdae.mechanisms.coordinates import ball_joints
from jaxdae.mechanisms.coordinates.articulated_bodies import TreeMass
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates, Terms
from jaxdae.mechanisms.coordinates.link_frames import frames_of_free_links, link_frames, taken
from jaxdae.mechanisms.coordinates.loop_rows import loop_rows, order_of
from jaxdae.mechanisms.coordinates.tree_parameters import parameter_axes, with_tree_parameters
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.links import AXIS, BALL, COORDINATES, VELOCITIES, Structure
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.describe.passive_effort import passive_effort
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space
from jaxdae.systems.system import plain_sum
from jaxdae.trees.tree_layout import padded_take
from jaxdae.trees.tree_sweeps import sum_to_leaves, sum_to_root
from jaxdae.typing import Coordinates, Jacobian, Leaf, Scalar, Velocity

DESIGN = ("fixed", "turning", "sliding", "held")
"""The parameters of `TreeCoordinates` that determine the frames."""


class Near(NamedTuple):
    """Tree kinematics about the origin of each tree.

    The fields are the frames of links and bodies, the motion subspaces S_j (nv,), and the origin of each
    body.
    """

    links: Any
    bodies: Any
    columns: Any
    origins: Any


@pytree
class TreeCoordinates(BodyCoordinates):
    """The coordinates of the joints of a tree; its leaves follow from the joints, see `of_joints`.

    Attributes:
        space: the plane or space (static).
        structure: the structure of the tree (static).
        articulated_from: the number of velocities from which solvers use articulated bodies for M (static).
        fixed: the frame of each link in its parent at coordinate zero, a `Frame` of arrays (links,).
        turning: the rotation of the link per unit of each velocity: (nv,) in the plane, (nv, 3) in link axes
            in space.
        sliding: the translation of the link per unit of each velocity: (nv, 2) or (nv, 3), in link axes.
        held: the frame of each body in the link that carries it, a `Frame` of arrays (n,).
        damping: the damping of each velocity (nv,), in N s/m or N m s/rad.
        armature: the rotor inertia of motors for each velocity (nv,), in kg or kg m^2.
        friction: the dry friction of each velocity (nv,), in N or N m; None without friction.
        friction_speed: the speed at which friction reaches 76 % of its maximum (nv,), in m/s or rad/s.
        stiffness: the stiffness of the spring on each coordinate (nv,), in N/m or N m/rad; zero for
            orientations; None without springs.
        rest: the coordinates at which the springs have no force (nv,), in m or rad.
    """

    vanishing_rows: ClassVar[bool] = True
    space: Plane | Space = static()
    structure: Structure = static()
    articulated_from: int = static()
    fixed: Leaf = None
    turning: Leaf = None
    sliding: Leaf = None
    held: Leaf = None
    damping: Leaf = None
    armature: Leaf = None
    friction: Any = None
    friction_speed: Any = None
    stiffness: Any = None
    rest: Any = None

    def of_joints(self, groups: Mapping[str, Any]) -> TreeCoordinates:
        """Return the coordinates with the parameters of the stacked joints."""
        return with_tree_parameters(self, dict(groups))

    def axes_of_joints(self, groups: Mapping[str, Any], axes: Mapping[str, Any]) -> TreeCoordinates:
        """Return the batch axes of the result of `of_joints`, with -1 or None in place of each leaf.

        The batch axes of the joints have the same form.
        """
        return dataclasses.replace(self, **parameter_axes(self.space, groups, axes))

    @property
    def flat(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return whether q (+) xi is q + xi."""
        return BALL not in self.structure.kinds

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the coordinates q, such as "A.angle", with their units."""
        return self.structure.names

    @property
    def velocity_names(self) -> tuple[tuple[str, str], ...]:
        """Return the names of the velocities v, such as "A.angle_rate", with their units."""
        return self.structure.velocity_names

    # Frames and kinematics.

    def _moved(self, q: Coordinates) -> Any:
        """Return the displacements of all links by their own coordinates, as frames.

        All links are first treated as axes. A matrix product then inserts the frames of all other links.
        Indexing would look up the links separately for each of the twelve entries.
        """
        frame, shape = self.space.frame, self.structure
        at, columns = shape.starts(COORDINATES), shape.starts(VELOCITIES)
        frames = frame.of_axis(
            *(taken(x, k) for x, k in ((q, at), (self.turning, columns), (self.sliding, columns)))
        )
        others = [k for k, kind in enumerate(shape.kinds) if kind != AXIS]
        if not others:
            return frames
        found, links = frames_of_free_links(frame, shape, q)
        own = jnp.concatenate([jnp.stack(one) for one in found], axis=1)
        placed = own @ jnp.asarray(np.eye(shape.count)[links], q.dtype)
        is_other = np.isin(np.arange(shape.count), others)
        return frame(*(jnp.where(is_other, entry, axis) for entry, axis in zip(placed, frames, strict=True)))

    def near(self, q: Coordinates) -> Near:
        """Return frames and motion subspaces about the origin of each tree, the position of its first link.

        `_near` has a derivative rule.
        """
        shape, frame = self.structure, self.space.frame
        links, places = link_frames(frame, self.fixed, self._moved(q), shape)
        carriers, on_links = np.asarray(shape.body_links, int), np.asarray(shape.column_links, int)
        bodies = measures.frames_of(carriers, links).then(self.held)
        columns = self.space.screw.of_axis(measures.frames_of(on_links, links), self.turning, self.sliding)
        if np.any(carriers == shape.count):  # The world origin, for bodies on the ground.
            places = [jnp.concatenate([place, jnp.zeros_like(place[:1])]) for place in places]
        origins = np.append(shape.roots, shape.count)[carriers]
        return Near(links, bodies, columns, [measures.columns(place, origins) for place in places])

    def near_along(self, q: Coordinates, near: Near, rate: Any, designed: Any = None) -> Near:
        """Return the derivative of `near` along coordinate rates, or along a change of the design parameters.

        Each link moves like a rigid body, together with everything fixed in it. Let V be the motion of the
        link: the sum of the motions S_j xi_j, with velocities xi, over all links that carry it. A frame fixed
        in the link then changes like a frame that moves with V, and a motion S fixed in the link has the
        derivative V x S. All quantities are relative to the origin of the tree, the position of its first
        link. Translations of the first link therefore move the origin instead of the links.

        Args:
            q: the coordinates (nq,).
            near: the result of `near`.
            rate: the rates of the coordinates (nq,), or None if the coordinates are constant.
            designed: the derivative of the tree itself, as another tree; None if the design is constant.
        """
        shape, screw, count = self.structure, self.space.screw, len(near.origins)
        motions: Any = jnp.stack(near.columns)
        moving = jnp.zeros_like(motions) if rate is None else motions * self.velocity_of(q, rate)
        if designed is not None:
            moving = moving + self._designed(q, near, designed)
        first = np.isin(shape.column_links, shape.roots)
        slides = np.arange(len(near.columns))[:, None] < count
        seen = jnp.where(first & slides, 0.0, moving)
        wanted = tuple(range(shape.count)), tuple(shape.body_links), tuple(int(k) for k in shape.column_links)
        pushed = dict(
            zip(lists := list(dict.fromkeys(wanted)), self._sum_to_leaves(seen, lists), strict=True)
        )
        links, bodies, columns = (screw(*pushed[of]) for of in wanted)
        origins = self._sum_to_leaves(jnp.where(first, moving[:count], 0.0), [shape.body_links])[0]
        along = Near(
            links.moving(near.links), bodies.moving(near.bodies), columns.cross(near.columns), list(origins)
        )
        if designed is None:
            return along
        on_links, on_bodies = (
            measures.frames_of(np.asarray(of, int), near.links) for of in (wanted[2], wanted[1])
        )
        turned = screw.of_axis(on_links, designed.turning, designed.sliding)
        held = jax.jvp(on_bodies.then, (self.held,), (designed.held,))[1]
        columns, bodies = (
            jax.tree.map(jnp.add, *each) for each in ((along.columns, turned), (along.bodies, held))
        )
        return along._replace(columns=columns, bodies=bodies)

    def _designed(self, q: Coordinates, near: Near, designed: Any) -> Any:
        """Return the motions (k, nv) of all links due to changes of their fixed frames and axes.

        The motion of a link is at the column of its last velocity.
        """
        at, along = ((tree.fixed, tree.turning, tree.sliding) for tree in (self, designed))

        def own(fixed: Any, turning: Any, sliding: Any) -> Any:
            return fixed.then(dataclasses.replace(self, turning=turning, sliding=sliding)._moved(q))

        twist = jax.jvp(own, at, along)
        motions = jnp.stack(self.space.screw.of_axis(near.links, *twist[0].turning_and_sliding(twist[1])))
        last = self.structure.last_columns[:-1]
        if np.array_equal(last, np.arange(len(self.velocity_names))):
            return motions
        return (
            jnp.zeros((motions.shape[0], len(self.velocity_names)), motions.dtype)
            .at[:, last]
            .set(motions, unique_indices=True)
        )

    def velocity_of(self, q: Coordinates, rate: Any) -> Velocity:
        """Return the velocities (nv,) for coordinate rates (nq,); rates along a quaternion have no effect."""
        return rate if self.flat else ball_joints.velocity_of(self.structure, q, rate)

    def resting(self, located: Near) -> Kinematics:
        """Return the frames of all bodies, for callers that need no twists."""
        return Kinematics(_in_the_world(located), None, None, located)

    def moving(self, located: Near, v: Velocity) -> Kinematics:
        """Return the frames, the twists, and the rates of the twists at v' = 0 of all bodies."""
        return _kinematics(self, located, v)._replace(located=located)

    def locate(self, q: Coordinates) -> Near:
        """Return frames and motion subspaces about the origin of each tree."""
        return _near(self, q)

    def _moving(self, near: Near, v: Velocity) -> Kinematics:
        shape, screw = self.structure, self.space.screw
        motions = jnp.stack(near.columns)
        motion, links = (
            screw(*found)
            for found in self._sum_to_leaves(motions * v, [shape.body_links, shape.column_links])
        )
        rates = jnp.stack(links.cross(near.columns)) * v
        rate = screw(*self._sum_to_leaves(rates, [shape.body_links])[0])
        twists = motion.at(near.bodies)
        bias = rate.acceleration_at(near.bodies, motion, twists)
        return Kinematics(_in_the_world(near), twists, bias)

    def _sum_to_leaves(self, entries: Any, wanted: Sequence[Any]) -> list[Any]:
        """Return sums (k, links) of entries (k, nv) over the velocities that move a link, per list."""
        if self._is_small:
            return [
                small_matrix.product_transposed(entries, self._carried(links, entries.dtype))
                for links in wanted
            ]
        sums = sum_to_leaves(self.structure.tree, entries.T)
        return [padded_take(sums, self.structure.last_columns[np.asarray(links, int)]).T for links in wanted]

    def _sum_to_root(self, entries: Any) -> Any:
        """Return the sums (k, nv) of k entries (n,) of bodies over the bodies that each velocity moves."""
        if self._is_small:
            stacked, carried = jnp.stack(entries), self._carried(self.structure.body_links, entries[0].dtype)
            return (
                small_matrix.product_transposed(stacked, carried.T) if on_accelerator() else stacked @ carried
            )
        return sum_to_root(self.structure.tree, self._at_columns(entries).T).T

    def _at_columns(self, entries: Any) -> Any:
        """Return k entries (n,) of bodies, summed per link, at the last velocity of each link (k, nv)."""
        columns = self.structure.last_columns[np.asarray(self.structure.body_links, int)]
        return _summed_at(columns, jnp.stack(entries), len(self.velocity_names))

    @property
    def _is_small(self) -> bool:
        """Return whether to compute sums over the tree as products with 0/1 matrices."""
        return len(self.velocity_names) <= DENSE_UP_TO

    def _carried(self, links: Any, dtype: Any) -> Any:
        """Return the matrix (k, nv) with a one where a velocity moves one of these links."""
        return jnp.asarray(self.structure.carried[np.asarray(links, int)], dtype)

    # Forces, inertia and Jacobian rows.

    def pull(self, q: Coordinates, motion: Kinematics, wrench: Any) -> Velocity:
        """Return T^T F (nv,)."""
        near = motion.located
        forces = self._sum_to_root(self.space.screw.of_wrench(near.bodies, wrench))
        return jnp.sum(jnp.stack(near.columns) * forces, axis=0)

    def efforts(self, q: Coordinates, v: Velocity) -> Velocity:
        """Return the damping, friction and spring forces of the tree joints (nv,), in N and N m."""
        stretch = None if self.stiffness is None else self._stretch(q)
        return passive_effort(
            stretch,
            v,
            stiffness=self.stiffness,
            damping=self.damping,
            friction=self.friction,
            friction_speed=self.friction_speed,
        )

    def own(self, joint: str, number: int) -> tuple[int, int] | None:
        """Return the indices of a joint coordinate in q and of its rate in v, or None if q has none."""
        links = self.structure.of_joint(joint, AXIS) if joint in self.structure.joint_names else []
        if not links:
            return None
        in_q, in_v = (int(self.structure.starts(sizes)[links[number]]) for sizes in (COORDINATES, VELOCITIES))
        return in_q, in_v

    def elastic_energy(self, q: Coordinates) -> Scalar | None:
        """Return the energy of the springs of the tree joints in J, or None without springs."""
        return None if self.stiffness is None else 0.5 * jnp.sum(self.stiffness * self._stretch(q) ** 2)

    def _stretch(self, q: Coordinates) -> Velocity:
        """Return the coordinates minus `rest` (nv,); the values for orientations are arbitrary."""
        return (
            q if self.flat else q[self.structure.starts(COORDINATES)[self.structure.column_links]]
        ) - self.rest

    def mass_operator(self, q: Coordinates, motion: Kinematics, mass: Any, inertia: Any) -> MassOperator:
        """Return M from the inertia of each velocity; a dense matrix for few velocities."""
        near = motion.located
        bodies = self.space.body_inertia.of_bodies(near.bodies, mass, inertia)
        own = type(bodies)(*self._at_columns(bodies))
        tree = TreeMass(self.space, self.structure.tree, near.columns, own, self.armature)
        return tree if len(self.velocity_names) >= self.articulated_from else DenseMatrix(tree.as_dense())

    def kinetic_energy(self, q: Coordinates, v: Velocity, mass: Any, inertia: Any) -> Scalar:
        """Return the kinetic energy of the bodies and of the motor rotors in J."""
        twist = self.kinematics(q, v).velocity
        momentum = self.space.inertial(mass, inertia, twist)
        return 0.5 * (
            sum(jnp.sum(p * w) for p, w in zip(momentum, twist, strict=True)) + jnp.sum(self.armature * v**2)
        )

    def dense_rows(self, q: Coordinates, motion: Kinematics, block: Blocks, pair: Pairs) -> Jacobian:
        """Return the Jacobian rows J_b T of a group."""
        return self.joined_rows(q, motion, [(block, pair)])

    def joined_rows(
        self, q: Coordinates, motion: Kinematics, parts: Sequence[tuple[Blocks, Pairs]]
    ) -> Jacobian:
        """Return the Jacobian rows J_b T of several groups.

        The derivatives of each side are a wrench, which acts on the joints that carry the body. One product
        handles all wrenches, because a batch pays an overhead per product, whatever the size.
        """
        near = motion.located
        columns = jnp.stack(near.columns, axis=1)
        links = np.append(np.asarray(self.structure.body_links, int), self.structure.count)
        sides = [[pair.sides[k] for _, pair in parts] for k in range(2)]
        found = []
        for side, numbers in enumerate(sides):
            rows = np.concatenate(
                [
                    np.zeros(0, int),
                    *(np.repeat(own, b[0].shape[1]) for own, (b, _) in zip(numbers, parts, strict=True)),
                ]
            )
            if np.all(links[rows] == self.structure.count):
                continue  # The ground has no ancestors.
            frames = measures.frames_of(rows, near.bodies)
            wrench = jnp.concatenate(
                [b[side].swapaxes(1, 2).reshape(b[side].shape[0], -1) for b, _ in parts], axis=1
            )
            forces = jnp.stack(self.space.screw.of_wrench(frames, self.space.twist(*wrench)), axis=-1)
            found.append((forces, self._carried(links[rows], q.dtype)))
        if not found:
            return jnp.zeros(
                (
                    sum(b[0].shape[1] * b[0].shape[2] for b, _ in parts),
                    columns.shape[0],
                ),
                q.dtype,
            )
        forces, carried = (jnp.concatenate(entries) for entries in zip(*found, strict=True))
        products = small_matrix.product_transposed(forces, columns) * carried
        return jnp.sum(products.reshape(len(found), -1, columns.shape[0]), axis=0)

    def block_rows(self, q: Coordinates, motion: Kinematics, groups: Sequence[Terms]) -> JacobianOperator:
        """Return the Jacobian rows of several groups: as pushes on links, or as a dense matrix.

        Pushes on links are used if the joint elimination of M and J takes less work.
        """
        order = order_of(self.structure, groups)
        if not order.pays:
            return self.dense_group_rows(q, motion, groups)
        near = motion.located
        return loop_rows(order, self.space, self.structure.tree, near.columns, near.bodies, groups)

    # Retraction and differences.

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi; quaternions keep length 1."""
        return plain_sum(q, xi) if self.flat else ball_joints.retracted(self.structure, q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi with q0 (+) xi = q1; rotations of ball joints are at most half a turn."""
        return q1 - q0 if self.flat else ball_joints.difference(self.structure, q0, q1)

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity:
        """Return xi' such that q (+) xi(t) moves with velocity v."""
        return v if self.flat else ball_joints.step_rate(self.structure, xi, v)


def _in_the_world(near: Near) -> Any:
    """Return the frames of all bodies relative to the origin of the world."""
    return near.bodies._replace(
        **{near.bodies._fields[k]: near.bodies[k] + origin for k, origin in enumerate(near.origins)}
    )


def _summed_at(columns: np.ndarray, entries: Any, count: int) -> Any:
    """Return the sums (k, count) of entries (k, n) by column; entries of column `count` are dropped."""
    nothing = jnp.zeros((entries.shape[0], count + 1), entries.dtype)
    if len(set(columns)) < len(columns):
        return nothing.at[:, columns].add(entries)[:, :-1]
    # At most one body per velocity: a gather is faster than scatter additions.
    bodies = np.full(count + 1, entries.shape[1])
    bodies[columns] = np.arange(len(columns))
    if np.array_equal(bodies[:-1], np.arange(entries.shape[1])):
        return entries
    return measures.columns(jnp.concatenate([entries, nothing[:, :1]], axis=1), bodies[:-1])


# Compiled separately, so that all callers share one trace. Rematerialization keeps gradients of loops from
# partially evaluating `_near`: JAX would move its constant part to a function that returns only constants,
# and the partitioner of jaxlib 0.9 crashes on such a function.
@made_again
@jax.jit
def _near(tree: TreeCoordinates, q: Any) -> Near:
    return _near_with_rule(tree, q)


@jax.custom_jvp
def _near_with_rule(tree: TreeCoordinates, q: Any) -> Near:
    return tree.near(q)


def _near_jvp(primals: Any, tangents: Any) -> tuple[Near, Near]:
    """Return `near` and its derivative by one sum over the tree, instead of chained derivatives of frames."""
    (tree, q), (design, rate) = primals, tangents
    near = _near(tree, q)
    parts = [tuple(getattr(of, name) for name in DESIGN) for of in (tree, design)]
    moving = Moving.of(*parts)
    designed = None
    if moving.places:
        dots = [
            jnp.zeros_like(x) if is_still(dx) else dx
            for x, dx in zip(moving.leaves, moving.dots, strict=True)
        ]
        designed = dataclasses.replace(
            tree, **dict(zip(DESIGN, jax.tree.unflatten(moving.structure, dots), strict=True))
        )
    if designed is None and is_still(rate):  # Other parameters, such as damping, do not affect frames.
        return near, jax.tree.map(jnp.zeros_like, near)
    return near, tree.near_along(q, near, None if is_still(rate) else rate, designed)


_near_with_rule.defjvp(_near_jvp, symbolic_zeros=True)


@jax.jit
def _kinematics(tree: TreeCoordinates, near: Near, v: Any) -> Kinematics:
    return tree._moving(near, v)
