"""First-order mechanisms: driven velocities, without masses and forces.

Joints and wheels are rows, as in other mechanisms. Each actuated quantity (a spin, a kingpin angle, a speed)
adds one velocity-level row,

    [J; D(q)] v = [-b; u],        q' = v,

so motors follow their inputs exactly. By contrast, projecting a desired velocity onto the rows in the
identity metric would slow them down. If rows and drives together leave freedom, v is the solution of minimum
norm (in the weight W, the identity by default). Dependent rows need a suitable solver (`LeastSquares`,
`NullSpace`). If rows conflict, the status of a step is CONFLICTING_ROWS, and `diagnose` names the rows that
stop all motion.

For mechanisms without rows, see `jaxdae.mechanisms.embedded`.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.3; lecture notes, Carnegie
    Mellon University.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.matrices import DenseRows, DiagonalMatrix, JacobianOperator, MassOperator
from jaxdae.mechanisms.build_mechanism import Description, built, check_is_description
from jaxdae.mechanisms.coordinates.absolute import Absolute
from jaxdae.mechanisms.describe import measures as fr
from jaxdae.mechanisms.describe.measures import Kinematics, Pairs
from jaxdae.mechanisms.equations import Mechanism, redundant_solver
from jaxdae.mechanisms.joint_copies import copies_of, copy_requirements
from jaxdae.mechanisms.joint_ranges import jumps
from jaxdae.mechanisms.joints.drives import JointRate
from jaxdae.mechanisms.massless import without_masses
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.evaluation import Evaluation, WrappedEvaluation
from jaxdae.systems.kinematic_system import KinematicSystem
from jaxdae.systems.names import Names
from jaxdae.systems.system import State, default_tolerance
from jaxdae.systems.tolerances import scales
from jaxdae.systems.wrapper import SameCoordinates
from jaxdae.typing import (
    Coordinates,
    Count,
    Input,
    Jacobian,
    Residual,
    Rows,
    Scalar,
    Square,
    Velocity,
    VelocityResidual,
)


class SlipInput(NamedTuple):
    """An input that sets a wheel parameter: its name, unit and index; the group, field and element."""

    name: str
    unit: str
    number: int
    group: str
    field: str
    element: int


@pytree
class _DrivenEvaluation(WrappedEvaluation):
    """The terms of a `KinematicMechanism`; `inner` belongs to its mechanism."""

    @property
    def mass(self) -> MassOperator:
        """W, a diagonal matrix."""
        return self.system.mass_operator(self.q)

    @property
    def velocity_constraint(self) -> VelocityResidual:
        driven = self.system.stacked(fr.velocity_values, self.t, self.inner.motion)
        return jnp.concatenate([self.inner.velocity_constraint, driven - self.system.wanted(self.q)])

    @property
    def jacobian(self) -> JacobianOperator:
        return DenseRows(self.dense_jacobian)

    @property
    def jacobian_products(self) -> JacobianOperator:
        return self.system.jacobian_products(self.t, self.q, self.v)

    @property
    def dense_jacobian(self) -> Jacobian:
        motion, coordinates = self.inner.motion, self.inner.coordinates
        rows = [
            coordinates.dense_rows(
                self.q,
                motion,
                fr.velocity_blocks(type(group).velocity_residual, group, pair, motion, self.t),
                pair,
            )
            for group, pair in self.system.groups()
        ]
        return jnp.concatenate([self.inner.dense_jacobian, *rows])

    @property
    def bias(self) -> Rows:
        return jnp.concatenate(
            [self.inner.bias, self.system.stacked(fr.velocity_biases, self.t, self.inner.motion)]
        )

    def force(self, u: Input = None) -> Velocity:
        """Raise TypeError: a first-order system has no forces."""
        return Evaluation(self.system, self.t, self.q, self.v).force(u)


@pytree(kw_only=True)
class KinematicMechanism(SameCoordinates, KinematicSystem):
    """A first-order mechanism; created by `kinematic_mechanism`.

    Attributes:
        mechanism: its bodies and joints, a `MasslessMechanism`; None in the `frame` of an
            `EmbeddedMechanism`.
        drives: groups of driven velocities by type; their rows follow the joint rows.
        order: the input index of each drive with a row, in row order (static).
        slips: the inputs that set wheel parameters (static).
        given: the inputs (nu,), set by `at_input`; None for zero velocities.
        weight: W (nv,), the weight of the minimum norm of v if rows leave freedom. None for ones; for a
            characteristic length below 1 cm or above 100 m (6 cm and 18 m in single precision), lengths count
            in its unit.
        copies: the locations of joint geometry in the drives (static).
    """

    mechanism: Any
    drives: dict[str, Any]
    order: tuple[int, ...] = static()
    slips: tuple[SlipInput, ...] = static(default=())
    given: Any = None
    weight: Any = None
    copies: tuple[Any, ...] = static(default=())

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on the weight and the copies of joint geometry."""
        if self.weight is not None:
            yield self.weight > 0.0, "weight must be positive"
        if self.mechanism is not None:
            yield from copy_requirements(self, self.copies, self.mechanism)

    def named_leaf(self, names: Sequence[str]) -> None:
        """Raise KeyError for the name of a slip value that an input replaces."""
        for slip in self.slips:
            wheel = self.mechanism.joints[slip.group].names[slip.element] if self.mechanism else ""
            if tuple(names) == ("mechanism", "joints", wheel, slip.field):
                raise KeyError(
                    f"{'.'.join(names)} does not affect the motion, because the input {slip.name!r} "
                    "replaces it"
                )

    @property
    def n_inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of driven velocities and slip inputs."""
        return len(self.order) + len(self.slips)

    @property
    def characteristic_length(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The characteristic length of the mechanism."""
        return self.mechanism.characteristic_length

    @property
    def default_solver(self) -> SaddlePointSolver:
        """The default solver.

        It is `LeastSquares(1e-5)` if the mechanism has redundant rows, or more rows than velocities, else
        `SchurComplement()`.
        """
        rows = len(self.mechanism.row_names) + len(self.order)
        redundant = self.mechanism.redundant or rows > len(self.mechanism.form.velocity_names)
        return redundant_solver(self.mechanism) if redundant else super().default_solver

    @property
    def driven_rows(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of drive rows, which are the last rows."""
        return len(self.order)

    @property
    def names(self) -> Names:
        """The names of bodies, coordinates, velocities, rows and inputs, with their units."""
        inner = self.mechanism.names
        rows = [(name, group.unit) for group in self.drives.values() for name in group.names]
        by_number = dict(zip(self.order, rows, strict=True)) | {
            slip.number: (slip.name, slip.unit) for slip in self.slips
        }
        inputs = [by_number[k] for k in range(len(by_number))]
        return inner._replace(
            rows=(*inner.rows, *(f"{name}.rate" for name, _ in rows)),
            row_units=(*inner.row_units, *(unit for _, unit in rows)),
            inputs=tuple(name for name, _ in inputs),
            input_units=tuple(unit for _, unit in inputs),
        )

    @property
    def coordinate_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of q."""
        return self.names.coordinates

    @property
    def row_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The row names: joint rows first, then drive rows such as "left_motor.rate"."""
        return self.names.rows

    def at_input(self, u: Input) -> KinematicMechanism:
        """Return the mechanism with its inputs set (nu,).

        Raises:
            TypeError: if the input is None, but velocities are driven.
            ValueError: if the input does not have one entry per drive.
        """
        if not self.n_inputs:
            return self
        inputs = self.names.inputs
        if u is None:
            raise TypeError(
                f"this mechanism reads an input u, the velocities of its drives ({', '.join(inputs)}), but "
                "none was given"
            )
        u = jnp.asarray(u, self.mechanism.dtype)
        if u.shape != (self.n_inputs,):
            raise ValueError(
                f"u must have shape ({self.n_inputs},), one velocity per drive ({', '.join(inputs)}), got "
                f"{u.shape}"
            )
        joints = dict(self.mechanism.joints)
        for slip in self.slips:
            group = joints[slip.group]
            values = getattr(group, slip.field)
            values = jnp.zeros((len(group.names),), u.dtype) if values is None else values
            changed = values.at[slip.element].set(u[slip.number])
            joints[slip.group] = dataclasses.replace(group, **{slip.field: changed})
        return dataclasses.replace(
            self, given=u, mechanism=dataclasses.replace(self.mechanism, joints=joints)
        )

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return zero (nv,), the velocity without rows and drives."""
        return jnp.zeros((len(self.mechanism.form.velocity_names),), x.dtype)

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return W (nv, nv)."""
        return self.mass_operator(q).as_dense()

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return W, a diagonal matrix."""
        ones = jnp.ones((len(self.mechanism.form.velocity_names),), q.dtype)
        if self.weight is not None:
            return DiagonalMatrix(ones * self.weight)
        sizes = jax.lax.stop_gradient(scales(self, self.names.velocity_units, ones.shape[0], q.dtype))
        # Rows in m have coefficients of 1 and of lengths, whose squares must not count as zero.
        least = 3.0 * default_tolerance(q.dtype) ** 0.5
        return DiagonalMatrix(jnp.where((sizes < least) | (sizes > 1.0 / least), sizes**-2.0, ones))

    @property
    def coordinates_of(self) -> Mechanism:
        """The mechanism."""
        return self.mechanism

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the condition of the mechanism, such as wheels beyond their terrain."""
        return self.mechanism.row_condition(t, q)

    def jumps(self, before: State, after: State) -> Any:
        """Return whether an angle of relations passed half a turn in a step; None if full turns are known."""
        return jumps(self.mechanism, before, after, forces=False)

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return the position-level rows of the joints (ng,), in m and rad."""
        return self.mechanism.constraint(t, q)

    @property
    def affine_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether all velocity-level rows are affine in the velocities; drive rows are affine."""
        return self.mechanism.affine_rows

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,)."""
        return self.mechanism.constraint_rate(t, q, v)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return the velocity-level rows of joints and drives (nw,), in m/s and rad/s."""
        return self.evaluate(t, q, v).velocity_constraint

    def driven(self, t: Scalar, q: Coordinates, v: Velocity) -> Any:
        """Return the driven velocities in row order (nu,), in m/s and rad/s."""
        return self.stacked(fr.velocity_values, t, self.mechanism.coordinates.kinematics(q, v))

    def inputs_of(self, state: State) -> Any:
        """Return the inputs (nu,) that reproduce the motion at a state, with the current slip values."""
        values = [getattr(self.mechanism.joints[slip.group], slip.field) for slip in self.slips]
        zero = jnp.zeros((), state.q.dtype)
        slips = [
            zero if value is None else value[slip.element]
            for value, slip in zip(values, self.slips, strict=True)
        ]
        numbers = np.asarray([*self.order, *(slip.number for slip in self.slips)], int)
        return jnp.concatenate(
            [self.driven(state.t, state.q, state.v), jnp.stack(slips) if slips else state.q[:0]]
        )[np.argsort(numbers)]

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Return J (nc, nv)."""
        return self.evaluate(t, q, v).dense_jacobian

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,), at constant input."""
        return self.evaluate(t, q, v).bias

    def evaluate(self, t: Scalar, q: Coordinates, v: Velocity | None = None) -> Evaluation:
        """Return the terms at a state: the rows of the joints, then the rows of the drives."""
        return _DrivenEvaluation(self, t, q, v, self.mechanism.evaluate_joints(t, q, v))

    def wanted(self, q: Coordinates) -> Any:
        """Return the inputs in row order (nu,)."""
        nothing = jnp.zeros((len(self.order),), q.dtype)
        return nothing if self.given is None else self.given[np.asarray(self.order, int)].astype(q.dtype)

    def groups(self) -> Iterator[tuple[Any, Pairs]]:
        """Yield the groups of drives with their bodies."""
        for group in self.drives.values():
            yield group, Pairs(group.a, group.b, len(self.mechanism.body_names))

    def stacked(self, derivative: Any, t: Scalar, motion: Kinematics) -> Any:
        """Return the velocity-level rows of the drives, or one of their derivatives (nu,)."""
        rows = [
            derivative(type(group).velocity_residual, group, pair, motion, t).reshape(-1)
            for group, pair in self.groups()
        ]
        return jnp.concatenate([jnp.zeros((0,), motion.frame[0].dtype), *rows])


def kinematic_mechanism(
    description: Description, coordinates: Any = Absolute()
) -> tuple[KinematicMechanism, Any]:
    """Return the first-order mechanism of a description, and its start coordinates q.

    The inputs are the velocities of `description.drives`, in their order. Masses, inertias and gravity may be
    omitted. The mechanism ignores them, and also forces, springs, damping, friction, armature, contacts
    and joint limits: its drives prescribe the motion.

    Args:
        description: bodies, joints and drives.
        coordinates: `Absolute()` or `Joints()`.

    Raises:
        ValueError: lists all mistakes.
        TypeError: for list elements that are not bodies, joints or drives; for invalid coordinates.

    Differentiable with respect to every number in the description that it uses.
    """
    check_is_description("kinematic_mechanism", description)
    given: Any = description.bodies
    if isinstance(given, Sequence):
        given = [body.with_unit_mass() if hasattr(body, "with_unit_mass") else body for body in given]
    massless = dataclasses.replace(description, bodies=given, forces=(), contacts=())
    massive, q, drives = built("kinematic_mechanism", massless, coordinates, moved=False)
    mechanism: Mechanism = without_masses(massive)
    names = [drive.name for drive in description.drives]
    order = tuple(names.index(name) for group in drives.values() for name in group.names)
    found = [
        _slip_input(mechanism, drive, number)
        for number, drive in enumerate(description.drives)
        if drive.slips
    ]
    slips = tuple(slip for slip in found if isinstance(slip, SlipInput))
    told = [(slip.group, slip.field, slip.element) for slip in slips]
    mistakes = [mistake for mistake in found if isinstance(mistake, str)]
    if twice := [slip.name for slip, number in zip(slips, told, strict=True) if told.count(number) > 1]:
        mistakes.append(f"drives {twice} set the slip of the same wheel; keep only one of them")
    if mistakes:
        raise ValueError(f"kinematic_mechanism: {'; '.join(mistakes)}")
    mechanism = _without_inputs(mechanism, slips)
    measured = {drive.name: drive.joint for drive in description.drives if isinstance(drive, JointRate)}
    copies = copies_of(mechanism, {"drives": drives}, measured)
    return KinematicMechanism(mechanism=mechanism, drives=drives, order=order, slips=slips, copies=copies), q


def _without_inputs(mechanism: Mechanism, slips: Sequence[SlipInput]) -> Mechanism:
    """Return a mechanism without the slip values that inputs replace in all wheels of a group."""
    joints, places = dict(mechanism.joints), [(slip.group, slip.field) for slip in slips]
    for key, field in dict.fromkeys(places):
        if places.count((key, field)) == len(joints[key].names):
            joints[key] = dataclasses.replace(joints[key], **{field: None})
    return dataclasses.replace(mechanism, joints=joints)


def _slip_input(mechanism: Mechanism, drive: Any, number: int) -> SlipInput | str:
    """Return the location of the wheel parameter that an input sets.

    If the wheel has no such row, or the parameter is a function of time, return an error message.
    """
    for key, group in mechanism.joints.items():
        if drive.wheel in group.names and hasattr(group, drive.slips):
            if callable(getattr(group, drive.slips)):
                break
            return SlipInput(drive.name, drive.unit, number, key, drive.slips, group.names.index(drive.wheel))
    what = "lateral" if drive.slips == "slip_angle" else "rolling"
    return (
        f"drive {drive.name!r}: {drive.wheel!r} has no {drive.slips} that an input can set; it needs a "
        f"{what} row and a numeric {drive.slips}"
    )
