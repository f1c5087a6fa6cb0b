"""A planar mechanism in absolute coordinates: bodies, joints and forces as stacked arrays.

q = (x, y, theta) of each body, v its derivative, M = diag(m, m, I) of each body. The constraint rows are those of the joint groups in the
order of `joints`, joint by joint within a group: those of positions of all groups, then those of velocities. `row_names` says which row is
whose.

A subclass may declare further rows, by a `constraint` or a `velocity_constraint` of its own that begins with that of the base class. All
rows of that level are then differentiated as those of any `System`, joint by joint no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms import measures as fr
from jaxdae.mechanisms.measures import Kinematics, Pairs
from jaxdae.names import Names
from jaxdae.operators import BlockRows, DenseRows, DiagonalMatrix, JacobianOperator
from jaxdae.system import System, velocity_rows_bias, velocity_rows_jacobian
from jaxdae.typing import Coordinates, Input, Jacobian, Leaf, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


@pytree(kw_only=True)
class Mechanism(System):
    """A planar mechanism; made by `planar_mechanism`.

    Attributes:
        body_names: one name a body (static).
        n_inputs: how many inputs u the forces read (static).
        mass: (n,) in kg.
        inertia: (n,) in kg m^2 about the mass center.
        gravity: (2,) in m/s^2.
        joints: groups by type, such as `mechanism.joints["revolute"].point_a` (k, 2); leaf path "joints.revolute.point_a".
        forces: groups by type, such as `mechanism.forces["torque"].torque` (k,).
    """

    blocks_from: ClassVar[int] = 24
    """The number of bodies from which J is handed to solvers as rows of body pairs; a matrix is faster below."""

    body_names: tuple[str, ...] = static()
    n_inputs: int = static(default=0)
    mass: Leaf
    inertia: Leaf
    gravity: Leaf
    joints: dict[str, Any]
    forces: dict[str, Any]

    # Names.

    @property
    def names(self) -> Names:
        """The names of bodies, coordinates, velocities, constraint rows and inputs, with their units."""
        moving = tuple(f"{body}.{rate}" for body in self.body_names for rate in ("vx", "vy", "omega"))
        return Names(
            coordinates=self.coordinate_names,
            velocities=moving,
            rows=self.row_names,
            inputs=tuple(f"u{k}" for k in range(self.n_inputs)),
            bodies=self.body_names,
            coordinate_units=self.coordinate_units,
            velocity_units=("m/s", "m/s", "rad/s") * len(self.body_names),
            row_units=self.row_units,
        )

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of q, such as "crank.theta"."""
        return tuple(f"{body}.{axis}" for body in self.body_names for axis in ("x", "y", "theta"))

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        """The units of q: m or rad."""
        return ("m", "m", "rad") * len(self.body_names)

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The names of all joints, group by group."""
        return tuple(name for group in self.joints.values() for name in group.names)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the constraint rows, such as "A.x", in their order; those that a subclass adds are "constraint.0", ...

        Rows of a `velocity_constraint` are "velocity_constraint.0" and so on. A subclass may give names of its own.
        """
        joints, moving = (tuple(name for name, _ in rows) for rows in self._joint_rows())
        if not (self._has_positions or self._has_velocities):
            return (*joints, *moving)
        t, q = jax.ShapeDtypeStruct((), self.mass.dtype), jax.ShapeDtypeStruct((3 * len(self.body_names),), self.mass.dtype)
        positions = jax.eval_shape(self.constraint, t, q).shape[0] - len(joints)
        velocities = jax.eval_shape(self.velocity_constraint, t, q, q).shape[0]
        further = tuple(f"velocity_constraint.{k}" for k in range(velocities - len(moving)))
        return (*joints, *(f"constraint.{k}" for k in range(positions)), *moving, *further)

    @property
    def row_units(self) -> tuple[str, ...]:
        """The units of the constraint rows: m, rad, m/s or rad/s; empty for rows that a subclass adds."""
        units = dict(row for rows in self._joint_rows() for row in rows)
        return tuple(units.get(name, "") for name in self.row_names)

    def _joint_rows(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Returns names and units of the rows of all joints, at position and at velocity level."""
        groups = self.joints.values()
        positions = [(f"{name}.{row}", unit) for group in groups for name in group.names for row, unit in group.rows.items()]
        velocities = [(f"{name}.{row}", unit) for group in groups for name in group.names for row, unit in group.velocity_rows.items()]
        return positions, velocities

    @property
    def _has_positions(self) -> bool:
        """Whether a subclass declares position-level rows."""
        return type(self).constraint is not Mechanism.constraint

    @property
    def _has_velocities(self) -> bool:
        """Whether a subclass declares velocity-level rows."""
        return type(self).velocity_constraint is not Mechanism.velocity_constraint

    # The equations.

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns diag(m, m, I) (nv, nv), in kg and kg m^2."""
        return jnp.diag(self.mass_operator(q).diagonal)

    def mass_operator(self, q: Coordinates) -> DiagonalMatrix:
        """Returns the mass matrix as the diagonal that it is."""
        diagonal = jnp.stack([self.mass, self.mass, self.inertia], axis=1).reshape(-1)
        return DiagonalMatrix(diagonal.astype(q.dtype))

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Returns the kinetic energy in J."""
        return 0.5 * jnp.sum(self.mass_operator(q).diagonal * v**2)

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the residuals of all joints at position level (ng,), in m and rad."""
        return self._rows(fr.values, t, fr.kinematics(q, jnp.zeros_like(q)))

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns the residuals of all joints at velocity level (nw,), in m/s and rad/s."""
        return self._velocity_rows(fr.velocity_values, t, fr.kinematics(q, v))

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' (ng,)."""
        if self._has_positions:
            return super().constraint_rate(t, q, v)
        return self._rows(fr.rates, t, fr.kinematics(q, v))

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma (nc,)."""
        if self._has_positions:
            return super().constraint_bias(t, q, v)
        frames = fr.kinematics(q, v)
        moving = velocity_rows_bias(self, t, q, v) if self._has_velocities else self._velocity_rows(fr.velocity_biases, t, frames)
        return jnp.concatenate([self._rows(fr.biases, t, frames), moving])

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J (nc, nv): of joints from the blocks of the two bodies that each of them connects."""
        if self._has_positions:
            return super().constraint_jacobian(t, q, v)
        rows = [fr.dense_rows(block, pair) for _, block, pair in self._blocks(t, fr.kinematics(q, v))]
        if self._has_velocities:
            rows.append(velocity_rows_jacobian(self, t, q, v))
        return jnp.concatenate(rows) if rows else jnp.zeros((0, q.shape[0]), q.dtype)

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J: the rows of joints as blocks of the two bodies that each of them connects, a matrix where there are few bodies."""
        return self._block_rows(t, q, v) if self._has_blocks else super().jacobian_operator(t, q, v)

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J as blocks, by autodiff where there are few bodies; never formed."""
        return self._block_rows(t, q, v) if self._has_blocks else super().jacobian_products(t, q, v)

    @property
    def _has_blocks(self) -> bool:
        """Whether J is made of the blocks of joints; a subclass may have a J of its own."""
        own = self._has_positions or type(self).constraint_jacobian is not Mechanism.constraint_jacobian
        return len(self.body_names) >= self.blocks_from and not own

    def _block_rows(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        frames, still = fr.kinematics(q, v), jnp.zeros((0, 3), q.dtype)
        parts = self._blocks(t, frames)
        sides = [fr.pair_rows(block) for _, block, _ in parts]
        first, second = (jnp.concatenate([still, *(side[k] for side in sides)]) for k in range(2))
        a, b = (tuple(body for group, block, _ in parts for body in getattr(group, end) for _ in block[0][0]) for end in ("a", "b"))
        joints = BlockRows(first, second, a, b, len(self.body_names))
        return joints.stacked(DenseRows(velocity_rows_jacobian(self, t, q, v))) if self._has_velocities else joints

    def _blocks(self, t: Scalar, frames: Kinematics) -> list[tuple[Any, Any, Pairs]]:
        """Returns the groups with the blocks of their rows of J; those at velocity level last, left out where a subclass has its own."""
        holding = [(group, fr.blocks(type(group).residual, group, pair, frames, t), pair) for group, pair in self._holding()]
        if self._has_velocities:
            return holding
        guiding = self._guiding()
        return holding + [
            (group, fr.velocity_blocks(type(group).velocity_residual, group, pair, frames, t), pair) for group, pair in guiding
        ]

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns gravity, springs, dampers, torques and forces (nv,), in N and N m."""
        u = None if u is None else self._checked_input(jnp.asarray(u, q.dtype))
        weight = jnp.concatenate([self.gravity, jnp.zeros((1,), self.gravity.dtype)])
        total = (self.mass[:, None] * weight[None, :]).reshape(-1).astype(q.dtype)
        frames = fr.kinematics(q, v)
        for group, pair in self._groups(self.forces):
            inputs = self._inputs(group, u, q)
            a, b = fr.ends(pair, frames)
            measure = type(group).coordinate
            s, rate = fr.values(measure, group, pair, frames, t), fr.rates(measure, group, pair, frames, t)
            efforts = jax.vmap(type(group).effort)(group, s, rate, a, b, inputs)
            total = total + _virtual_work(measure, group, pair, frames, t, efforts)
        for group, pair in self._groups(self.joints):
            if group.drag is not None:
                measure = type(group).coordinate
                efforts = -group.drag[:, None] * fr.rates(measure, group, pair, frames, t)
                total = total + _virtual_work(measure, group, pair, frames, t, efforts)
        return total

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Returns the energy of gravity, springs and constant forces in J."""
        places = q.reshape(-1, 3)[:, :2]
        total = -jnp.sum(self.mass[:, None] * self.gravity[None, :] * places)
        frames = fr.kinematics(q, jnp.zeros_like(q))
        for group, pair in self._groups(self.forces):
            s = fr.values(type(group).coordinate, group, pair, frames, t)
            total = total + jnp.sum(jax.vmap(type(group).energy)(group, s))
        return total

    # Groups.

    def _groups(self, groups: dict[str, Any]) -> Iterator[tuple[Any, Pairs]]:
        for group in groups.values():
            yield group, fr.pairs(group.a, group.b, len(self.body_names))

    def _holding(self) -> Iterator[tuple[Any, Pairs]]:
        """Yields the groups of joints with rows at position level."""
        return self._groups({key: group for key, group in self.joints.items() if group.rows})

    def _guiding(self) -> Iterator[tuple[Any, Pairs]]:
        """Yields the groups of joints with rows at velocity level."""
        return self._groups({key: group for key, group in self.joints.items() if group.velocity_rows})

    def _rows(self, derivative: Callable[..., Any], t: Scalar, frames: Kinematics) -> Rows:
        rows = [derivative(type(group).residual, group, pair, frames, t).reshape(-1) for group, pair in self._holding()]
        return jnp.concatenate(rows) if rows else jnp.zeros((0,), frames.frame.x.dtype)

    def _velocity_rows(self, derivative: Callable[..., Any], t: Scalar, frames: Kinematics) -> VelocityResidual:
        rows = [derivative(type(group).velocity_residual, group, pair, frames, t).reshape(-1) for group, pair in self._guiding()]
        return jnp.concatenate(rows) if rows else jnp.zeros((0,), frames.frame.x.dtype)

    def _checked_input(self, u: Input) -> Input:
        if u.shape == (self.n_inputs,):
            return u
        if self.n_inputs == 0:
            raise ValueError(f"u must be None, got shape {u.shape}: no force of this mechanism has an input")
        raise ValueError(
            f"u must have shape {(self.n_inputs,)}, got {u.shape}: forces with input=k read u[k], and the largest k here is"
            f" {self.n_inputs - 1}"
        )

    def _inputs(self, group: Any, u: Input, q: Coordinates) -> Any:
        """Returns the input of each element (k,), zero where it reads none."""
        if u is None or all(k < 0 for k in group.inputs):
            return jnp.zeros((len(group.inputs),), q.dtype)
        return fr.selected(np.asarray([[float(k == j) for j in range(self.n_inputs)] for k in group.inputs]), u)


def _virtual_work(measure: Callable[..., Any], group: Any, pair: Pairs, frames: Kinematics, t: Any, efforts: Any) -> Velocity:
    """Returns the generalized force (nv,) of efforts on measured coordinates."""
    block = fr.blocks(measure, group, pair, frames, t)
    work = [[sum(row * efforts[:, r] for r, row in enumerate(direction)) for direction in side] for side in block]
    return jnp.stack([fr.summed(pair, a, b) for a, b in zip(*work, strict=True)], axis=-1).reshape(-1)
