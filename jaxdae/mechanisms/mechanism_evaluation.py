"""The equations of a mechanism: all terms at one state, from one set of frames.

With T the map from v to the twists of all bodies, the terms follow from those of free bodies:

    M = T^T M_b T,      J = J_b T,      gamma = gamma_b + J_b T' v,      f = T^T (f_b - M_b T' v).

The coordinates supply the frames, T and T'. Joints and forces depend on the bodies only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import AutodiffRows, DenseMatrix, DenseRows, JacobianOperator, MassOperator
from jaxdae.mechanisms.coordinates.body_coordinates import BodyTerm, Terms
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Blocks, Kinematics, Pairs
from jaxdae.mechanisms.joint_ranges import counted
from jaxdae.mechanisms.joints import passive_elements
from jaxdae.systems.contacts import Touch
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.system import State, velocity_rows_bias, velocity_rows_jacobian
from jaxdae.typing import Input, Jacobian, Leaf, Residual, Rows, Velocity, VelocityResidual


@pytree
class MechanismEvaluation(Evaluation):
    """The terms of bodies, joints and forces at a state.

    Attributes:
        coordinates: the coordinates with the parameters of the joints.
        motion: the frames and twists of all bodies; without v, the frames only.
    """

    coordinates: Leaf = None
    motion: Leaf = None

    def with_velocities(self, v: Velocity) -> MechanismEvaluation:
        """Return the terms at the same time and coordinates and at other velocities (nv,)."""
        located = self.motion.frame if self.motion.located is None else self.motion.located
        return dataclasses.replace(self, v=v, motion=self.coordinates.moving(located, v))

    @property
    def mass(self) -> MassOperator:
        """M in the structure of the coordinates."""
        mechanism = self.system
        bodies = self.coordinates.mass_operator(self.q, self.motion, mechanism.mass, mechanism.inertia)
        motors = [joint.T @ (inertia[:, None] * joint) for joint, inertia in self.reflected()]
        return DenseMatrix(sum(motors, bodies.as_dense())) if motors else bodies

    def reflected(self) -> list[tuple[Jacobian, Any]]:
        """Return the derivatives S (k, nv) of row-joint coordinates with armature, and that armature (k,)."""
        groups = list(
            self._groups({key: group for key, group in self.system.joints.items() if group.reflects})
        )
        if not groups:
            return []
        motion, t = self.motion, jnp.zeros((), self.q.dtype)
        return [
            (
                self.coordinates.dense_rows(
                    self.q, motion, fr.blocks(type(group).coordinate, group, pair, motion, t), pair
                ),
                group.each(group.armature).reshape(-1).astype(self.q.dtype),
            )
            for group, pair in groups
        ]

    @property
    def position(self) -> Residual:
        """The position-level residuals of all joints (ng,), in m and rad."""
        return self._position(judged=False)

    @property
    def opening(self) -> Residual:
        """The position-level rows (ng,), with angles instead of their sines; see `Joint.opening`."""
        return self._position(judged=self.turns_over)

    @property
    def turns_over(self) -> bool:
        """Whether any joint has rows that are sines of angles."""
        return any(group.turns_over for group in self.system.joints.values())

    @property
    def velocity_constraint(self) -> VelocityResidual:
        """The velocity-level residuals of all joints (nw,), in m/s and rad/s."""
        return self._velocity_rows("velocity_values")

    @property
    def constraint_rate(self) -> Residual:
        """The rate g' (ng,)."""
        motion = self.motion
        related = [
            group.rate(self.coordinates, motion, self.q, self.v, self.t)
            for group in self.system.relations.values()
        ]
        return self._rows_of("rates", related)

    @property
    def bias(self) -> Rows:
        """The bias gamma (nc,)."""
        motion, args = self.motion, (self.t, self.q, self.v)
        own = self.system.declares_velocities
        moving = velocity_rows_bias(self.system, *args) if own else self._velocity_rows("velocity_biases")
        related = [
            group.bias(self.coordinates, motion, self.q, self.v, self.t)
            for group in self.system.relations.values()
        ]
        return jnp.concatenate([self._rows_of("biases", related), moving])

    @property
    def jacobian(self) -> JacobianOperator:
        """J, with joint rows as blocks of their two bodies; a matrix for few bodies."""
        coordinates = self.coordinates
        return self.rows_by(
            coordinates.block_rows if self.system.has_blocks else coordinates.dense_group_rows
        )

    @property
    def jacobian_products(self) -> JacobianOperator:
        """J as blocks, or by autodiff for few bodies, without forming a matrix."""
        if self.system.has_blocks:
            return self.rows_by(self.coordinates.block_rows)
        return AutodiffRows(self.system, State(self.t, self.q, self.v))

    @property
    def dense_jacobian(self) -> Jacobian:
        """J (nc, nv), assembled from the blocks of the two bodies of each joint."""
        return self.rows_by(self.coordinates.dense_group_rows).as_dense()

    def rows_by(self, of_joints: Callable[..., JacobianOperator]) -> JacobianOperator:
        """Return J with the rows of the joints assembled by a method of the coordinates."""
        joints = of_joints(self.q, self.motion, self._terms())
        if not self.system.declares_velocities:
            return joints
        return joints.stacked(DenseRows(velocity_rows_jacobian(self.system, self.t, self.q, self.v)))

    def _terms(self) -> list[Terms]:
        """Return the terms of the rows in group order; omit velocity-level rows that a subclass overrides."""
        found, motion, at = [], self.motion, (self.motion, self.t)
        for group, pair in self._holding():
            block = group.derivatives.blocks(type(group).residual, group, pair, *at)
            found.append(Terms((BodyTerm(block, pair, group.relative),)))
        found += [
            group.terms(self.coordinates, motion, self.q, self.t) for group in self.system.relations.values()
        ]
        if self.system.declares_velocities:
            return found
        for group, pair in self._guiding():
            block = group.derivatives.velocity_blocks(type(group).velocity_residual, group, pair, *at)
            found.append(Terms((BodyTerm(block, pair, group.relative),)))
        return found

    @property
    def touch(self) -> Touch | None:
        """The rows of contacts, joint limits and dry friction, or None without any."""
        mechanism, asked = self.system, (self.coordinates, self.motion, self.q, self.t)
        if not mechanism.touches:
            return None
        none: Any = jnp.zeros((0,), self.q.dtype)
        rows, gaps, restitution, friction, dry = [], [none], [none], none, none
        angular: tuple[bool, ...] = ()
        if mechanism.contacts is not None:
            contacts = mechanism.contacts.touch(*asked)
            rows.append(contacts.rows)
            gaps.append(contacts.gap)
            restitution.append(contacts.restitution)
            friction = contacts.friction
        if (limits := mechanism.joint_limits) is not None:
            rows.append(limits.rows(*asked))
            gaps.append(limits.gaps(*asked))
            restitution.append(limits.restitution[limits.of_rows])
            angular = tuple(limits.angular[k] for k in limits.of_rows)
        if mechanism.joint_friction is not None:
            rows.append(mechanism.joint_friction.along.rows(*asked))
            dry = mechanism.joint_friction.dry_friction
        every, dtype = jnp.concatenate(rows), self.q.dtype
        return Touch(
            jnp.concatenate(gaps),
            every,
            jnp.zeros((every.shape[0],), dtype),
            friction.astype(dtype),
            jnp.concatenate([part.astype(dtype) for part in restitution]),
            dry.astype(dtype),
            mechanism.space.dimension - 1,
            angular,
        )

    def force(self, u: Input = None) -> Velocity:
        """Return gravity, springs, dampers, torques and forces, minus inertial terms at constant v (nv,)."""
        motion, tendons = self.motion, self.system.tendons
        pulled, own = (
            self.coordinates.pull(self.q, motion, self.applied(u)),
            self.coordinates.efforts(self.q, self.v),
        )
        if tendons is not None:
            pulled = pulled + tendons.pull(self.coordinates, motion, (self.t, self.q, self.v), u)
        return pulled if own is None else pulled + own

    def applied(self, u: Input) -> Any:
        """Return a `Twist` of wrenches: weights, forces, row joints, gyroscopic terms, minus M_b T' v."""
        mechanism, motion, t, q = self.system, self.motion, self.t, self.q
        space, mass, inertia = (
            mechanism.space,
            mechanism.mass.astype(q.dtype),
            mechanism.inertia.astype(q.dtype),
        )
        u = None if u is None else mechanism.checked_input(u, q.dtype)
        wrenches = [space.weight(mass, mechanism.gravity.astype(q.dtype))]
        gyroscopic = space.gyroscopic(inertia, motion.velocity)
        if gyroscopic is not None:
            wrenches.append(gyroscopic)
        if motion.bias is not None:
            wrenches.append(jax.tree.map(jnp.negative, space.inertial(mass, inertia, motion.bias)))
        for key, group in mechanism.forces.items():
            pair = Pairs(group.a, group.b, len(mechanism.body_names))
            s, rate, block = _measured(group, pair, motion, t)
            s = counted(mechanism, key, s, q)
            a, b = fr.ends(pair, motion)
            efforts = jax.vmap(type(group).effort)(group, s, rate, a, b, self._inputs(group, u))
            wrenches.append(mechanism.virtual_work(block, pair, efforts))
        for group, pair in self._groups(mechanism.joints):
            if group.acts:
                block = fr.blocks(type(group).coordinate, group, pair, motion, t)
                wrenches.append(
                    mechanism.virtual_work(block, pair, passive_elements.efforts(group, pair, motion, t))
                )
        total = wrenches[0]
        for wrench in wrenches[1:]:
            total = jax.tree.map(jnp.add, total, wrench)
        return total

    # Groups.

    def _groups(self, groups: dict[str, Any]) -> Iterator[tuple[Any, Pairs]]:
        for group in groups.values():
            yield group, Pairs(group.a, group.b, len(self.system.body_names))

    def _holding(self) -> Iterator[tuple[Any, Pairs]]:
        """Yield the groups of joints with position-level rows."""
        return self._groups({key: group for key, group in self.system.joints.items() if group.rows})

    def _guiding(self) -> Iterator[tuple[Any, Pairs]]:
        """Yield the groups of joints with velocity-level rows."""
        return self._groups({key: group for key, group in self.system.joints.items() if group.velocity_rows})

    def _position(self, judged: bool) -> Rows:
        motion = self.motion
        related = [
            group.residual(self.coordinates, motion, self.q, self.t)
            for group in self.system.relations.values()
        ]
        return self._rows_of("values", related, judged)

    def _rows_of(self, which: str, related: list[Any], judged: bool = False) -> Rows:
        """Return the position-level rows or one of their `Derivatives` (ng,); `judged` selects `opening`."""
        rows, motion = [], self.motion
        for group, pair in self._holding():
            measure = type(group).opening if judged and group.turns_over else type(group).residual
            rows.append(getattr(group.derivatives, which)(measure, group, pair, motion, self.t).reshape(-1))
        rows += related
        return jnp.concatenate(rows) if rows else jnp.zeros((0,), motion.frame.x.dtype)

    def _velocity_rows(self, which: str) -> VelocityResidual:
        """Return the velocity-level rows or one of their `Derivatives` (nw,)."""
        motion = self.motion
        rows = [
            getattr(group.derivatives, which)(
                type(group).velocity_residual, group, pair, motion, self.t
            ).reshape(-1)
            for group, pair in self._guiding()
        ]
        return jnp.concatenate(rows) if rows else jnp.zeros((0,), motion.frame.x.dtype)

    def _inputs(self, group: Any, u: Input) -> Any:
        """Return the input of each element (k,), or zero for elements without an input."""
        if u is None or all(k < 0 for k in group.inputs):
            return jnp.zeros((len(group.inputs),), self.q.dtype)
        return fr.selected(np.asarray([k if k >= 0 else self.system.n_inputs for k in group.inputs]), u)


@pytree
class ExtendedEvaluation(Evaluation):
    """The terms of a subclass of `Mechanism` with methods of its own: each term calls its method.

    Attributes:
        joints: the terms of bodies, joints and forces alone.
    """

    joints: Leaf = None

    @property
    def touch(self) -> Touch | None:
        """The rows of contacts, joint limits and dry friction, or None without any."""
        return self.joints.touch

    @property
    def opening(self) -> Residual:
        """The position-level rows with angles instead of their sines, unless the subclass declares rows."""
        return self.joints.opening if self.turns_over else self.position

    @property
    def turns_over(self) -> bool:
        """Whether any joint has rows that are sines of angles, and the subclass declares no rows."""
        return not self.system.declares_positions and self.joints.turns_over


def _measured(group: Any, pair: Pairs, motion: Kinematics, t: Any) -> tuple[Any, Any, Blocks]:
    """Return the measures of forces (k, rows), their rates, and the twist derivatives of the rates."""
    derivatives, arguments = group.derivatives, (group, pair, motion, t)
    if group.quasi:
        rate = derivatives.velocity_values(type(group).rate, *arguments)
        return jnp.zeros_like(rate), rate, derivatives.velocity_blocks(type(group).rate, *arguments)
    measure = type(group).coordinate
    return (
        derivatives.values(measure, *arguments),
        derivatives.rates(measure, *arguments),
        derivatives.blocks(measure, *arguments),
    )
