"""Mechanisms of first order: no masses and no forces, but velocities that are driven.

Joints and wheels are rows as ever. What is actuated, spins and angles of kingpins and speeds, is one more row each at velocity level,

    [J; D(q)] v = [-b; u],        q' = v,

so that motors do as they are told: the projection of a wanted velocity onto the rows in the metric of the identity would slow them down.
Where rows and drives together leave freedom, v is the smallest of its kind (in the weight W, the identity by default). Where rows depend
on each other a solver for dependent rows is needed (`LeastSquares`, `NullSpace`); where they contradict each other the status of a step is
CONFLICTING_ROWS, and `diagnose` names those that stop all motion.

*Embedded* is the same motion without rows, v as a function of q and u. `EmbeddedMechanism` is that of second order: with the driven
velocities z as unknowns in place of inputs,

    v = N(q) z + n(t, q),        N^T M N z' = N^T (f - M d),        [J; D] [N d] = [0 -gamma; 1 -gamma],

with a = N z' + d: as few equations as there are freedoms, no multipliers, and wheels that never slip by what an integrator leaves.

References:
    A. Kelly, "Mobile Robotics: Mathematics, Models, and Methods", section 3.4.3; lecture notes, Carnegie Mellon University.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree, static
from jaxdae.kinematic import KinematicSystem, feasible_velocity, held_velocity
from jaxdae.linearization import linearize
from jaxdae.mechanisms import measures as fr
from jaxdae.mechanisms.build import Description, built
from jaxdae.mechanisms.coordinates.absolute import Absolute
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.measures import Kinematics, Pairs
from jaxdae.names import Names
from jaxdae.operators import DenseMatrix, DiagonalMatrix, MassOperator
from jaxdae.saddle_point import SaddlePointSolver, SchurComplement
from jaxdae.saddle_point.derivative import solve
from jaxdae.status import Status
from jaxdae.system import State, default_tolerance, velocity_residual
from jaxdae.typing import Coordinates, Count, Input, Jacobian, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


class SlipInput(NamedTuple):
    """An input that is a number of a wheel: its name, its unit, which input; the group, field and element that it sets."""

    name: str
    unit: str
    number: int
    group: str
    field: str
    element: int


@pytree(kw_only=True)
class KinematicMechanism(KinematicSystem):
    """A mechanism of first order; made by `kinematic_mechanism`.

    Attributes:
        mechanism: its bodies and joints; masses and forces are not used.
        drives: groups of driven velocities by type; rows below those of the joints.
        order: the input of each drive that is a row, in the order of the rows (static).
        slips: the inputs that are numbers of wheels (static).
        given: the inputs (nu,), set by `at_input`; without them drives stand still.
        weight: W (nv,), by which v is small where rows leave freedom; None for ones.
    """

    mechanism: Mechanism
    drives: dict[str, Any]
    order: tuple[int, ...] = static()
    slips: tuple[SlipInput, ...] = static(default=())
    given: Any = None
    weight: Any = None

    @property
    def n_inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many velocities are driven."""
        return len(self.order) + len(self.slips)

    @property
    def driven_rows(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many rows are those of drives, the last ones."""
        return len(self.order)

    @property
    def names(self) -> Names:
        """The names of bodies, coordinates, velocities, rows and inputs, with their units."""
        inner = self.mechanism.names
        rows = [(name, group.unit) for group in self.drives.values() for name in group.names]
        by_number = dict(zip(self.order, rows, strict=True)) | {slip.number: (slip.name, slip.unit) for slip in self.slips}
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
        """The names of the rows: of joints, and below them of drives, such as "left_motor.rate"."""
        return self.names.rows

    def at_input(self, u: Input) -> KinematicMechanism:
        """Returns the mechanism with its drives at these velocities (nu,).

        Raises:
            TypeError: no input, though velocities are driven.
            ValueError: not one for each drive.
        """
        if not self.n_inputs:
            return self
        inputs = self.names.inputs
        if u is None:
            raise TypeError(f"this mechanism reads an input u, the velocities of its drives ({', '.join(inputs)}), but none was given")
        u = jnp.asarray(u, self.mechanism.mass.dtype)
        if u.shape != (self.n_inputs,):
            raise ValueError(f"u must have shape ({self.n_inputs},), one velocity a drive ({', '.join(inputs)}), got {u.shape}")
        joints = dict(self.mechanism.joints)
        for slip in self.slips:
            group = joints[slip.group]
            changed = getattr(group, slip.field).at[slip.element].set(u[slip.number])
            joints[slip.group] = dataclasses.replace(group, **{slip.field: changed})
        return dataclasses.replace(self, given=u, mechanism=dataclasses.replace(self.mechanism, joints=joints))

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Returns zero (nv,): what is neither held nor driven stays."""
        return jnp.zeros((len(self.mechanism.coordinates.velocity_names),), x.dtype)

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns W (nv, nv)."""
        return self.mass_operator(q).as_dense()

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns W, a diagonal."""
        ones = jnp.ones((len(self.mechanism.coordinates.velocity_names),), q.dtype)
        return DiagonalMatrix(ones if self.weight is None else ones * self.weight)

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi."""
        return self.mechanism.flat

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi."""
        return self.mechanism.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with q0 (+) xi = q1."""
        return self.mechanism.difference(q0, q1)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Returns the condition of the mechanism, such as wheels beyond their terrain."""
        return self.mechanism.condition(t, q)

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the rows of joints at position level (ng,), in m and rad."""
        return self.mechanism.constraint(t, q)

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the rows by which a start is judged (ng,)."""
        return self.mechanism.opening(t, q)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' (ng,)."""
        return self.mechanism.constraint_rate(t, q, v)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns the rows of joints at velocity level and those of drives (nw,), in m/s and rad/s."""
        held = self.mechanism.velocity_constraint(t, q, v)
        return jnp.concatenate([held, self.driven(t, q, v) - self._wanted(q)])

    def driven(self, t: Scalar, q: Coordinates, v: Velocity) -> Any:
        """Returns the velocities that are driven, in the order of the rows (nu,), in m/s and rad/s."""
        motion = self.mechanism.coordinates.kinematics(q, v)
        return self._stacked(fr.velocity_values, t, motion)

    def inputs_of(self, state: State) -> Any:
        """Returns the inputs (nu,) with which a mechanism moves as it does at a state, slips as they are."""
        slips = [getattr(self.mechanism.joints[slip.group], slip.field)[slip.element] for slip in self.slips]
        numbers = np.asarray([*self.order, *(slip.number for slip in self.slips)], int)
        return jnp.concatenate([self.driven(state.t, state.q, state.v), jnp.stack(slips) if slips else state.q[:0]])[np.argsort(numbers)]

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J (nc, nv)."""
        coordinates = self.mechanism.coordinates
        motion = coordinates.kinematics(q, v)
        rows = [
            coordinates.dense_rows(q, motion, fr.velocity_blocks(type(group).velocity_residual, group, pair, motion, t), pair)
            for group, pair in self._groups()
        ]
        return jnp.concatenate([self.mechanism.constraint_jacobian(t, q, v), *rows])

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma (nc,), at a constant input."""
        motion = self.mechanism.coordinates.kinematics(q, v)
        return jnp.concatenate([self.mechanism.constraint_bias(t, q, v), self._stacked(fr.velocity_biases, t, motion)])

    def _wanted(self, q: Coordinates) -> Any:
        """Returns the inputs in the order of the rows (nu,)."""
        nothing = jnp.zeros((len(self.order),), q.dtype)
        return nothing if self.given is None else self.given[np.asarray(self.order, int)].astype(q.dtype)

    def _groups(self) -> Iterator[tuple[Any, Pairs]]:
        for group in self.drives.values():
            yield group, Pairs(group.a, group.b, len(self.mechanism.body_names))

    def _stacked(self, derivative: Any, t: Scalar, motion: Kinematics) -> Any:
        rows = [derivative(type(group).velocity_residual, group, pair, motion, t).reshape(-1) for group, pair in self._groups()]
        return jnp.concatenate([jnp.zeros((0,), motion.frame[0].dtype), *rows])


def kinematic_mechanism(description: Description, coordinates: Any = Absolute()) -> tuple[KinematicMechanism, Any]:
    """Returns the mechanism of first order of a description, and its start coordinates q.

    The inputs are the velocities of `description.drives`, in their order. Masses and inertias may be left out, forces are not used.

    Args:
        description: bodies, joints and drives.
        coordinates: `Absolute()` or `Joints()`.

    Raises:
        ValueError: every mistake at once.
        TypeError: things in the lists that are no bodies, joints or drives; coordinates that are none.

    Differentiable with respect to every number in the description.
    """
    bodies = [body.with_unit_mass() if hasattr(body, "with_unit_mass") else body for body in description.bodies]
    massless = dataclasses.replace(description, bodies=bodies, forces=())
    mechanism, q, drives = built("kinematic_mechanism", massless, coordinates)
    names = [drive.name for drive in description.drives]
    order = tuple(names.index(name) for group in drives.values() for name in group.names)
    slips = tuple(_slip_input(mechanism, drive, number) for number, drive in enumerate(description.drives) if drive.slips)
    return KinematicMechanism(mechanism=mechanism, drives=drives, order=order, slips=slips), q


def _slip_input(mechanism: Mechanism, drive: Any, number: int) -> SlipInput:
    """Returns where a number of a wheel is that an input sets.

    Raises:
        ValueError: a wheel without the row, or whose number is a function of time already.
    """
    for key, group in mechanism.joints.items():
        if drive.wheel in group.names and hasattr(group, drive.slips):
            if callable(getattr(group, drive.slips)):
                break
            return SlipInput(drive.name, drive.unit, number, key, drive.slips, group.names.index(drive.wheel))
    what = "lateral" if drive.slips == "slip_angle" else "rolling"
    raise ValueError(
        f"kinematic_mechanism: drive {drive.name!r}: {drive.wheel!r} has no {drive.slips} that an input could set: it needs a {what} row,"
        f" and a {drive.slips} that is a number"
    )


@pytree
class Embedded(KinematicSystem):
    """A system of first order without rows: its rate is the velocity that rows and drives of the system inside leave.

    The rate is NaN where it does not hold the rows of the system inside, and a rollout stops where `kinematic_status` is not OK at the
    begin or the end of a step: with CONFLICTING_ROWS where wheels fight. Rows at position level are not watched: `Joints()` has none
    but those of loops.

    Attributes:
        system: a `KinematicMechanism`, or any `KinematicSystem`.
        solver: a saddle-point solver.
    """

    system: KinematicSystem
    solver: SaddlePointSolver = SchurComplement()

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of inputs of the system inside."""
        return self.system.n_inputs

    @property
    def names(self) -> Names:
        """The names of the system inside, without rows."""
        return self.system.names._replace(rows=(), row_units=())

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi in the system inside."""
        return self.system.flat

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Returns the velocity (nv,)."""
        return held_velocity(self.system, self._still(t, x, u), u, self.solver)

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Returns the status of the velocity, as `kinematic_status` has it."""
        # The compiled program has what both begin with once.
        return feasible_velocity(self.system, self._still(t, x, u), u, self.solver)[2]

    def _still(self, t: Scalar, x: Coordinates, u: Input) -> State:
        return State(t, x, jnp.zeros(jax.eval_shape(self.system.rate, t, x, u).shape, x.dtype))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns W of the system inside."""
        return self.system.mass_matrix(q)

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns W of the system inside."""
        return self.system.mass_operator(q)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Returns the condition of the system inside."""
        return self.system.condition(t, q)

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi of the system inside."""
        return self.system.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns the inverse of `retract` of the system inside."""
        return self.system.difference(q0, q1)


@pytree
class EmbeddedMechanism(KinematicSystem):
    """The equations of motion of a mechanism in its driven velocities: x = (q, z), z as many as there are freedoms.

    Integrate it with `Kinematic`; its inputs are those of the forces. The driven velocities of `frame` are what z is: in the order of its
    inputs. Rows and drives together have to leave no freedom. Where they contradict each other the rate is NaN and the status of a step is
    CONFLICTING_ROWS, or SINGULAR with a solver that needs full rank.

    Attributes:
        mechanism: the mechanism with masses and forces.
        frame: the `KinematicMechanism` of the same description in the same coordinates.
        solver: a saddle-point solver.
    """

    mechanism: Mechanism
    frame: KinematicMechanism
    solver: SaddlePointSolver = SchurComplement()

    @property
    def n_inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How many inputs the forces read."""
        return self.mechanism.n_inputs

    @property
    def names(self) -> Names:
        """The names of q and z."""
        inner, driven = self.mechanism.names, self.frame.names
        return Names(
            coordinates=(*inner.coordinates, *driven.inputs),
            velocities=(*inner.velocities, *(f"{name}_rate" for name in driven.inputs)),
            inputs=inner.inputs,
            bodies=inner.bodies,
            coordinate_units=(*inner.coordinate_units, *driven.input_units),
            velocity_units=(*inner.velocity_units, *(f"{unit[:-1]}s^2" for unit in driven.input_units)),
        )

    @property
    def flat(self) -> bool:
        """Whether q (+) xi is q + xi."""
        return self.mechanism.flat

    @property
    def _freedoms(self) -> int:
        return len(self.frame.order)

    def start(self, state: State) -> State:
        """Returns the start x = (q, z) of a state of the mechanism."""
        x = jnp.concatenate([state.q, self.frame.inputs_of(state)])
        return State(state.t, x, jnp.zeros((state.v.shape[0] + self._freedoms,), x.dtype))

    def state(self, state: State) -> State:
        """Returns the state (q, v) of the mechanism."""
        q, z = state.q[: -self._freedoms], state.q[-self._freedoms :]
        return State(state.t, q, self._moving(state.t, q, z)[0])

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Returns CONFLICTING_ROWS where no velocity satisfies rows and drives, SINGULAR where the solver cannot tell, else OK."""
        # The compiled program has this once: it is what the rate begins with.
        return self._moving(t, x[: -self._freedoms], x[-self._freedoms :])[2]

    def _moving(self, t: Scalar, q: Coordinates, z: Any) -> tuple[Velocity, Any, Count]:
        """Returns v (nv,), NaN without one; what finds velocities or accelerations from right-hand sides of the rows; and a `Status`.

        What is left of rows that conflict is left again by a second solution. Where it is not, the solver needs full rank and has made
        its factors of rounding errors.
        """
        frame = self.frame.at_input(z)
        still = State(t, q, jnp.zeros((len(self.mechanism.coordinates.velocity_names),), q.dtype))
        at = linearize(frame, still, self.solver)

        def solved(target: Rows) -> Velocity:
            return solve(at.factors, at.mass, at.jacobian, at.compliance, None, target)[0]

        v = solved(-velocity_residual(frame, still))
        left = velocity_residual(frame, State(t, q, v))
        holds = jnp.max(jnp.abs(left), initial=0.0) <= default_tolerance(q.dtype) * (1.0 + jnp.max(jnp.abs(v)))
        again = at.jacobian.times(solved(-left))
        reliable = jnp.max(jnp.abs(again), initial=0.0) <= 1e-3 * jnp.max(jnp.abs(left), initial=0.0)
        failed: Any = jnp.where(reliable, Status.CONFLICTING_ROWS, Status.SINGULAR)
        status: Any = jnp.where(holds, Status.OK, failed)
        return jnp.where(holds, v, jnp.nan), solved, status.astype(jnp.int32)

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Returns (v, z') (nv + freedoms,); NaN where rows and drives contradict each other."""
        q, z = x[: -self._freedoms], x[-self._freedoms :]
        v, solved, _ = self._moving(t, q, z)
        # [J; D] a + gamma = [0; z']
        bias = self.frame.constraint_bias(t, q, v)
        drift = solved(-bias)
        held = bias.shape[0] - self._freedoms
        rows = held + np.argsort(np.asarray(self.frame.order, int))
        basis = jax.vmap(solved, out_axes=1)(jnp.asarray(np.eye(bias.shape[0])[rows], q.dtype))
        mass = self.mechanism.mass_operator(q)
        rest = self.mechanism.force(t, q, v, u) - mass.times(drift)
        reduced = DenseMatrix(basis.T @ jax.vmap(mass.times, in_axes=1, out_axes=1)(basis))
        return jnp.concatenate([v, reduced.solve(basis.T @ rest)])

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns the identity (nv + freedoms): there are no rows, and nothing is weighed."""
        return DiagonalMatrix(jnp.ones((len(self.mechanism.coordinates.velocity_names) + self._freedoms,), q.dtype))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns the identity (nv + freedoms, nv + freedoms)."""
        return self.mass_operator(q).as_dense()

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Returns the condition of the mechanism."""
        return self.mechanism.condition(t, q[: -self._freedoms])

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns x (+) xi."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.retract(q[:-k], xi[:-k]), q[-k:] + xi[-k:]])

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with x0 (+) xi = x1."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.difference(q0[:-k], q1[:-k]), q1[-k:] - q0[-k:]])
