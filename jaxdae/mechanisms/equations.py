"""A mechanism: coordinates x joints x forces, with bodies, joints and forces as stacked arrays.

The coordinates map q and v to the poses and motion of the bodies; joints and forces depend on the bodies
only. With T the map from v to the twists of all bodies, the equations follow from those of free bodies:

    M = T^T M_b T,      J = J_b T,      gamma = gamma_b + J_b T' v,      f = T^T (f_b - M_b T' v).

The constraint rows follow the group order of `joints`, joint by joint within a group: first the
position-level rows of all groups, then relations, then the velocity-level rows. `row_names` names each row.

A subclass may add rows with its own `constraint` or `velocity_constraint`, which must begin with the rows of
the base class. All rows of that level are then differentiated as in any `System`, no longer joint by joint.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import check_real
from jaxdae.compile.thresholds import UNROLLED_UP_TO
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.mechanisms.coordinates.absolute import absolute_form
from jaxdae.mechanisms.coordinates.body_coordinates import BodyCoordinates
from jaxdae.mechanisms.coordinates.tree_coordinates import TreeCoordinates
from jaxdae.mechanisms.couplings.relations import Relations
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Blocks, Pairs
from jaxdae.mechanisms.describe.plane_and_space import PLANE, Plane, Space
from jaxdae.mechanisms.joint_ranges import condition, counted, jumps
from jaxdae.mechanisms.joints import passive_elements
from jaxdae.mechanisms.labels import Labels
from jaxdae.mechanisms.mechanism_evaluation import ExtendedEvaluation, MechanismEvaluation
from jaxdae.saddle_point import LeastSquares, SaddlePointSolver
from jaxdae.systems.contacts import Touch
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.system import State, System, default_tolerance
from jaxdae.typing import (
    Coordinates,
    Count,
    Input,
    Jacobian,
    Leaf,
    Residual,
    Rows,
    Scalar,
    Square,
    Velocity,
    VelocityResidual,
)


@pytree(kw_only=True)
class Mechanism(Labels, System):
    """A mechanism in the plane or in space; created by `planar_mechanism` or `spatial_mechanism`.

    Attributes:
        body_names: one name per body (static).
        n_inputs: the number of inputs u that the forces read (static).
        rotors: the indices of the bodies that have an angle but no position (static).
        space: the plane or space (static).
        form: the coordinates without parameters; `coordinates` has them.
        mass: (n,) in kg.
        inertia: (n,) in the plane, (n, 3) or (n, 3, 3) in body axes in space; kg m^2 about the mass center.
        gravity: (2,) or (3,) in m/s^2.
        joints: groups by type, such as `mechanism.joints["revolute"].point_a` (k, 2); leaf path
            "joints.revolute.point_a".
        forces: groups by type, such as `mechanism.forces["torque"].torque` (k,).
        relations: groups of rows between joint coordinates, after the position-level rows of the joints.
        tendons: the tendon forces on weighted sums of joint coordinates, or None.
        joint_limits: the limits of joint coordinates, or None.
        joint_friction: exact dry friction along joint coordinates, or None.
        turns: force groups that measure entries of q, and each element's index in q or -1 (static).
        carrying: the groups of the tree joints in joint coordinates, without rows; they parametrize
            `coordinates`.
        located: the coordinates with parameters, set by `prepared`; None to compute them on use.
        length: the characteristic length, set by `prepared`; None to compute it on use.
        redundant: whether a count or the rank of J at the start shows redundant rows, see
            `overconstrained` and `have_dependent_rows` (static).
        contacts: the pairs of shapes that can touch, a `ContactPairs`, or None.
        copies: the locations of joint geometry in forces and motions, see `copies` (static).
        with_rotors: the motors with rotor inertia, which armature contains, each with its joint (static).
    """

    evaluation: ClassVar[type[MechanismEvaluation]] = MechanismEvaluation
    blocks_from: ClassVar[int] = 24
    """Number of bodies from which solvers receive J as rows of body pairs.

    The same applies if there are more rows than a batch unrolls (`small_matrix`). Below, a matrix is faster.
    Chains of hinges, microseconds per step of one world / per world of 64, with a matrix, then with blocks:
    11 links 10.7 / 13.6 and 8.5 / 6.4; 16 links 15 / 18 and 19 / 2.8; 64 links 440 / 605 and 45 / 8.
    """

    body_names: tuple[str, ...] = static()
    n_inputs: int = static(default=0)
    rotors: tuple[int, ...] = static(default=())
    space: Plane | Space = static(default=PLANE)
    form: BodyCoordinates
    mass: Leaf
    inertia: Leaf
    gravity: Leaf
    joints: dict[str, Any]
    forces: dict[str, Any]
    carrying: dict[str, Any] = dataclasses.field(default_factory=dict)
    relations: dict[str, Relations] = dataclasses.field(default_factory=dict)
    tendons: Any = None
    joint_limits: Any = None
    joint_friction: Any = None
    contacts: Any = None
    turns: tuple[tuple[str, tuple[int, ...]], ...] = static(default=())
    located: Any = None
    length: Any = None
    redundant: bool = static(default=False)
    copies: tuple[Any, ...] = static(default=())
    with_rotors: tuple[tuple[str, str], ...] = static(default=())

    @property
    def default_solver(self) -> SaddlePointSolver:
        """`LeastSquares(1e-5)` if the description or start has redundant rows, else `SchurComplement()`."""
        return redundant_solver(self) if self.redundant else super().default_solver

    @property
    def characteristic_length(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The largest joint distance from a mass center in m, else the largest radius of gyration, else 1."""
        if self.length is not None:
            return self.length
        groups, mass, inertia = jax.lax.stop_gradient(
            ((*self.joints.values(), *self.carrying.values()), self.mass, self.inertia)
        )
        arms = [arm for group in groups for arm in joint_arms(group, len(self.body_names))]
        size = jnp.max(jnp.concatenate([jnp.zeros((1,), self.dtype), *arms]))
        if mass is not None:
            moments = jnp.max(jnp.abs(inertia).reshape(len(self.body_names), -1), axis=1)
            weight: Any = jnp.where(mass > 0.0, mass, 1.0)
            size = jnp.where(
                size > 0.0, size, jnp.max(jnp.where(mass > 0.0, jnp.sqrt(moments / weight), 0.0))
            )
        return jnp.where(size > 0.0, size, 1.0)

    @property
    def coordinates(self) -> BodyCoordinates:
        """The map from q to the motion of the bodies, with the parameters of the joints."""
        return self.form.of_joints(self.carrying) if self.located is None else self.located

    def prepared(self) -> Mechanism:
        """Return the mechanism with precomputed coordinate parameters, which loops then do not recompute."""
        if self.located is not None:
            return self
        return dataclasses.replace(self, located=self.coordinates, length=self.characteristic_length)

    def prepared_axes(self, axes: Mechanism) -> Mechanism:
        """Return the batch axes of `prepared`, from a mechanism with -1 or None in place of each leaf."""
        if self.located is not None:
            return axes
        length = -1 if -1 in jax.tree.leaves((axes.joints, axes.carrying, axes.mass, axes.inertia)) else None
        return dataclasses.replace(
            axes, located=self.form.axes_of_joints(self.carrying, axes.carrying), length=length
        )

    @property
    def declares_positions(self) -> bool:
        """Whether a subclass declares position-level rows."""
        return type(self).constraint is not Mechanism.constraint

    @property
    def declares_velocities(self) -> bool:
        """Whether a subclass declares velocity-level rows."""
        return type(self).velocity_constraint is not Mechanism.velocity_constraint

    @property
    def affine_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether all velocity-level rows are affine in the velocities; rows of a subclass may not be."""
        return not self.declares_velocities

    # The bodies.

    @property
    def absolute(self) -> Any:
        """The absolute coordinates of the bodies."""
        return absolute_form(self.space, self.body_names, self.rotors)

    def frames(self, q: Coordinates) -> Any:
        """Return the frames of all bodies, a `Frame` whose entries are arrays (n,), in m and rad."""
        return self.coordinates.at_rest(q).frame

    def twists(self, q: Coordinates, v: Velocity) -> Any:
        """Return the twists of all bodies, a `Twist` whose entries are arrays (n,), in m/s and rad/s."""
        return self.coordinates.kinematics(q, v).velocity

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi."""
        return self.form.flat

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return q (+) xi."""
        return self.form.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi such that q0 (+) xi = q1."""
        return self.form.difference(q0, q1)

    def carry(self, q: Coordinates, v: Velocity, new: Coordinates) -> Velocity:
        """Return the velocities at `new` that are nearest to the twists of all bodies at q.

        With the twists T v at q, they minimize the kinetic energy of T_1 v_1 - T v, so

            M_1 v_1 = T_1^T M_b T v      <=>      M_1 (v_1 - v) = (T_1 - T)^T M_b T v + (M - M_1) v.

        The kinetic energy does not increase, and a free mechanism keeps its linear momentum. Both forms of
        coordinates agree after a projection of the velocities. The second equation contains the rotors.
        """
        if not isinstance(self.coordinates, TreeCoordinates):
            return v  # Velocities are twists.
        motion, moved = self.coordinates.kinematics(q, v), self.coordinates.at_rest(new)
        momenta = self.space.inertial(self.mass, self.inertia, motion.velocity)
        pulled = self.coordinates.pull(new, moved, momenta) - self.coordinates.pull(q, motion, momenta)
        mass = self.mass_operator(new)
        change: Any = mass.solve(pulled + self.mass_operator(q).times(v) - mass.times(v))
        return v + change

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Return xi' of q (+) xi(t) for motion with velocity v; None if a subclass overrides `retract`."""
        return self.form.step_rate(q, xi, v) if type(self).retract is Mechanism.retract else None

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the first status of a joint beyond its limits, or OK; None if no joint has limits.

        In space, rows and efforts of angles known modulo 2 pi end near half a turn with OUT_OF_RANGE.
        """
        return condition(self, t, q, forces=True)

    def jumps(self, before: State, after: State) -> Any:
        """Return whether an angle of rows or efforts passed half a turn, or a motion jumped.

        None if neither can.
        """
        return jumps(self, before, after, forces=True)

    @property
    def touches(self) -> bool:
        """Whether there are contacts, joint limits or dry friction, which need a step with contact."""
        parts = self.contacts, self.joint_limits, self.joint_friction
        return any(part is not None for part in parts)

    @property
    def rebounding(self) -> tuple[str, ...]:
        """The names of pairs of shapes and joint coordinates with a restitution above zero, if not traced."""
        parts = self.contacts, self.joint_limits
        return tuple(name for part in parts if part is not None for name in part.rebounding)

    def touch(self, t: Scalar, q: Coordinates) -> Touch | None:
        """Return the rows of contacts, joint limits and dry friction, or None without any."""
        return self.evaluate_joints(t, q).touch

    @property
    def gap_names(self) -> tuple[str, ...]:
        """The names of the gaps of `touch`: contacts such as "foot.corner2", then "knee.angle.lower"."""
        parts = self.contacts, self.joint_limits
        return tuple(name for part in parts if part is not None for name in part.names)

    def without_contacts(self) -> Mechanism:
        """Return the mechanism without contacts, joint limits and exact dry friction."""
        return dataclasses.replace(self, contacts=None, joint_limits=None, joint_friction=None)

    def row_condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the `condition` of joints and relations alone, for systems that ignore forces."""
        return condition(self, t, q, forces=False)

    def evaluate(self, t: Scalar, q: Coordinates, v: Velocity | None = None) -> Evaluation:
        """Return the terms at a state, from one set of frames; a subclass's own methods compute their own."""
        joints = self.evaluate_joints(t, q, v)
        own = any(getattr(type(self), name) is not getattr(Mechanism, name) for name in _TERMS)
        return ExtendedEvaluation(self, t, q, v, joints) if own else joints

    def evaluate_joints(self, t: Any, q: Coordinates, v: Velocity | None = None) -> MechanismEvaluation:
        """Return the terms of bodies, joints and forces alone, without the methods of a subclass."""
        coordinates = self.coordinates
        motion = coordinates.at_rest(q) if v is None else coordinates.kinematics(q, v)
        return self.evaluation(self, t, q, v, coordinates, motion)

    # The equations.

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return M (nv, nv), in kg and kg m^2."""
        return self.mass_operator(q).as_dense()

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return the mass matrix in the structure of the coordinates."""
        return self.evaluate_joints(None, q).mass

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Return the kinetic energy in J."""
        bodies = self.coordinates.kinetic_energy(q, v, self.mass, self.inertia)
        return sum(
            (
                0.5 * jnp.sum(inertia * (joint @ v) ** 2)
                for joint, inertia in self.evaluate_joints(None, q).reflected()
            ),
            bodies,
        )

    @property
    def vanishing_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether rows can vanish: lever arms of loops in joint coordinates can."""
        return self.coordinates.vanishing_rows

    @property
    def resists(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the mechanism has springs, dampers, friction, or forces that are not constant."""
        joints = [
            number
            for group in (*self.joints.values(), *self.carrying.values())
            for number in group.elements().items()
        ]
        acting = any(
            number is not None for name, number in joints if name in ("damping", "friction", "stiffness")
        )
        return acting or self.tendons is not None or any(group.resists for group in self.forces.values())

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return the position-level residuals of all joints (ng,), in m and rad."""
        return self.evaluate_joints(t, q).position

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return the velocity-level residuals of all joints (nw,), in m/s and rad/s."""
        return self.evaluate_joints(t, q, v).velocity_constraint

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,)."""
        return (
            super().constraint_rate(t, q, v)
            if self.declares_positions
            else self.evaluate_joints(t, q, v).constraint_rate
        )

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,)."""
        return (
            super().constraint_bias(t, q, v)
            if self.declares_positions
            else self.evaluate_joints(t, q, v).bias
        )

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Return J (nc, nv), assembled from the blocks of the two bodies of each joint."""
        return (
            super().constraint_jacobian(t, q, v)
            if self.declares_positions
            else self.evaluate_joints(t, q, v).dense_jacobian
        )

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J, with joint rows as blocks of their two bodies; a matrix for few bodies."""
        return (
            super().jacobian_operator(t, q, v)
            if self._has_own_rows
            else self.evaluate_joints(t, q, v).jacobian
        )

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J as blocks, or by autodiff for few bodies, without forming a matrix."""
        return self.evaluate_joints(t, q, v).jacobian_products

    @property
    def has_blocks(self) -> bool:
        """Whether J is assembled from joint blocks, as a matrix or not."""
        rows = sum(
            len(group.names) * (len(group.rows) + len(group.velocity_rows)) for group in self.joints.values()
        )
        return (len(self.body_names) >= self.blocks_from or rows > UNROLLED_UP_TO) and not self._has_own_rows

    @property
    def _has_own_rows(self) -> bool:
        """Whether a subclass defines its own J."""
        return self.declares_positions or type(self).constraint_jacobian is not Mechanism.constraint_jacobian

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Return gravity, springs, dampers, torques and forces, minus inertial terms at constant v (nv,)."""
        return self.evaluate_joints(t, q, v).force(u)

    def virtual_work(self, block: Blocks, pair: Pairs, efforts: Any) -> Any:
        """Return the wrenches on all bodies of efforts (k, rows) on measures with the given derivatives."""
        work = [jnp.sum(side * efforts.T, axis=1) for side in block]
        return self.space.twist(*(fr.summed(pair, a, b) for a, b in zip(*work, strict=True)))

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Return the energy of gravity, springs and constant forces in J."""
        motion = self.coordinates.at_rest(q)
        places = jnp.stack(motion.frame[: self.space.dimension], axis=-1)
        total = -jnp.sum(self.mass[:, None] * self.gravity[None, :] * places)
        for key, group in self.forces.items():
            if group.quasi:
                continue
            pair = Pairs(group.a, group.b, len(self.body_names))
            s = counted(self, key, fr.values(type(group).coordinate, group, pair, motion, t), q)
            total = total + jnp.sum(jax.vmap(type(group).energy)(group, s))
        for group in (group for group in self.joints.values() if group.springs):
            pair = Pairs(group.a, group.b, len(self.body_names))
            total = total + passive_elements.energy(group, pair, motion, t)
        if self.tendons is not None:
            total = total + self.tendons.energy(self.coordinates, motion, q, t)
        own = self.coordinates.elastic_energy(q)
        return total if own is None else total + own

    def checked_input(self, u: Any, dtype: Any) -> Any:
        """Return the input as an array; raise an error if it does not have one real number per input."""
        check_real("u", u)
        u = jnp.asarray(u, dtype)
        if u.shape == (self.n_inputs,):
            return u
        if self.n_inputs == 0:
            raise ValueError(
                f"u must be None because no force of this mechanism has an input, got shape {u.shape}"
            )
        raise ValueError(
            f"u must have shape {(self.n_inputs,)}, got {u.shape}: forces with input=k read u[k], and the "
            "largest k here is"
            f" {self.n_inputs - 1}"
        )


_TERMS = (
    *(
        "mass_matrix",
        "mass_operator",
        "force",
        "constraint",
        "velocity_constraint",
        "constraint_rate",
        "constraint_bias",
    ),
    *("constraint_jacobian", "jacobian_operator", "jacobian_products", "compliance"),
)
"""The methods that a subclass may override, and that its evaluation then calls."""


def joint_arms(group: Any, ground: int) -> list[Any]:
    """Return the distances (k,) in m from the points of joints to the mass centers of moving bodies."""
    kinds = group.kinds()
    points = [(getattr(group, point), getattr(group, kinds[point].body)) for _, point in group.places()]
    return [
        jnp.where(np.asarray(bodies) == ground, 0.0, jnp.linalg.norm(point, axis=-1))
        for point, bodies in points
        if point is not None
    ]


def redundant_solver(mechanism: Mechanism) -> SaddlePointSolver:
    """Return `LeastSquares(1e-5)`, the default solver for redundant rows.

    Below 1 mm and above 1 km, the tolerance is 1e-2 min(L, 1/L) with the characteristic length L in m, and at
    least 16 eps: the rows of J M^-1/2 in m are about L times as large as those in rad, and neither must count
    as zero.
    """
    dtype, length = mechanism.dtype, mechanism.characteristic_length
    usual = default_tolerance(dtype)
    ratio = jnp.minimum(length, 1.0 / length)
    small = jnp.maximum(1e-2 * ratio, 16.0 * float(jnp.finfo(dtype).eps))
    return LeastSquares(jnp.where(ratio < 1e-3, jnp.minimum(small, usual), usual).astype(dtype))
