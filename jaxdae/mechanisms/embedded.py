"""First- and second-order mechanisms without rows: one equation per degree of freedom.

`Embedded` is the motion of a `KinematicMechanism` without rows, with v as a function of q and u.
`EmbeddedMechanism` is the second-order counterpart. With the driven velocities z as unknowns instead of
inputs,

    v = N(q) z + n(t, q),        N^T M N z' = N^T (f - M d),        [J; D] [N d] = [0 -gamma; 1 -gamma],

with a = N z' + d. It has one equation per degree of freedom, no multipliers, and no wheel slip from
integration error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import DenseMatrix, DiagonalMatrix, MassOperator
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.first_order import KinematicMechanism
from jaxdae.mechanisms.joint_copies import copy_requirements
from jaxdae.mechanisms.massless import without_masses
from jaxdae.saddle_point.derivative import solve
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.kinematic_system import (
    KinematicSystem,
    determines,
    feasible_velocity,
    held_velocity,
    step_status,
)
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.names import Names
from jaxdae.systems.status import Status
from jaxdae.systems.system import State, default_tolerance
from jaxdae.systems.wrapper import SameCoordinates
from jaxdae.typing import Coordinates, Count, Input, Leaf, Rows, Scalar, Square, Velocity


@pytree
class Embedded(SameCoordinates, KinematicSystem):
    """A first-order system without rows: its rate satisfies the rows and drives of an inner system.

    The rate is NaN if it violates the rows of the inner system. A rollout stops if `kinematic_status` is not
    OK at the beginning or end of a step: with CONFLICTING_ROWS if wheels conflict. A rollout does not check
    position-level rows. In `Joints()`, only loops have such rows.

    Attributes:
        system: a `KinematicMechanism`, or any `KinematicSystem`.
        solver: a saddle-point solver; None for the default solver of the system.
    """

    system: KinematicSystem
    solver: Leaf = None

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of inputs of the inner system."""
        return self.system.n_inputs

    @property
    def names(self) -> Names:
        """The names of the inner system, without rows."""
        return self.system.names._replace(rows=(), row_units=())

    @property
    def coordinates_of(self) -> KinematicSystem:
        """The inner system."""
        return self.system

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return the velocity (nv,)."""
        return held_velocity(self.system, self._still(t, x, u), u, self.solver)

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Return the status of the velocity, as in `kinematic_status`."""
        # The compiled program computes the common part of rate and status once.
        return feasible_velocity(self.system, self._still(t, x, u), u, self.solver)[2]

    def step_status(self, before: State, after: State, u: Input) -> Count:
        """Return SINGULAR if a step passes a singular configuration of the inner system (), else OK."""
        return step_status(self.system, before, after, u, self.solver)

    def _still(self, t: Scalar, x: Coordinates, u: Input) -> State:
        return State(t, x, jnp.zeros(jax.eval_shape(self.system.rate, t, x, u).shape, x.dtype))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return W of the inner system."""
        return self.system.mass_matrix(q)

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return W of the inner system."""
        return self.system.mass_operator(q)

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the condition of the inner system."""
        return self.system.condition(t, q)

    def jumps(self, before: State, after: State) -> Any:
        """Return whether relations of the inner system jump in a step."""
        return self.system.jumps(before, after)


@pytree
class EmbeddedMechanism(KinematicSystem):
    """The equations of motion in the driven velocities z of a mechanism, with the state x = (q, z).

    Integrate it with `Kinematic`; its inputs are the force inputs. z contains the driven velocities of
    `frame`, in the order of the inputs of `frame`. Rows and drives together must determine the velocity of
    the mechanism. Otherwise the status of a step is SINGULAR, because forces would cause motion that z does
    not describe. If rows and drives conflict, the rate is NaN and the status is CONFLICTING_ROWS, or SINGULAR
    with a solver that needs full rank.

    Attributes:
        mechanism: the mechanism with masses and forces.
        frame: the `KinematicMechanism` of the same description in the same coordinates. It is stored without
            bodies and joints, and uses the bodies and joints of `mechanism`, so that each parameter is one
            leaf.
        solver: a saddle-point solver; None for the default solver of the system.
    """

    mechanism: Mechanism
    frame: KinematicMechanism
    solver: Leaf = None

    def __post_init__(self) -> None:
        """Remove the bodies and joints of `frame`."""
        if isinstance(self.frame, KinematicMechanism) and isinstance(self.frame.mechanism, Mechanism):
            object.__setattr__(self, "frame", dataclasses.replace(self.frame, mechanism=None))

    def requirements(self) -> Iterator[tuple[Any, str]]:
        """Yield the conditions on copies of joint geometry in the drives; see `jaxdae.base.requirements`."""
        if isinstance(self.frame, KinematicMechanism):
            yield from copy_requirements(self.frame, self.frame.copies, self.mechanism)

    @property
    def _frame(self) -> KinematicMechanism:
        """The first-order mechanism, with the bodies and joints of `mechanism`."""
        return dataclasses.replace(self.frame, mechanism=without_masses(self.mechanism))

    @property
    def n_inputs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of force inputs."""
        return self.mechanism.n_inputs

    @property
    def names(self) -> Names:
        """The names of q and z."""
        inner, driven = self.mechanism.names, self._frame.names
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
        """Return the start x = (q, z) of a state of the mechanism."""
        x = jnp.concatenate([state.q, self._frame.inputs_of(state)])
        return State(state.t, x, jnp.zeros((state.v.shape[0] + self._freedoms,), x.dtype))

    def state(self, state: State) -> State:
        """Return the state (q, v) of the mechanism."""
        at = self._at(state.t, state.q)
        return State(state.t, at.q, self._moving(at)[0])

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Return the status of the velocity.

        CONFLICTING_ROWS means that no velocity satisfies rows and drives. SINGULAR means that many velocities
        do, or that the solver cannot determine which. Otherwise the status is OK.
        """
        # The compiled program computes this once, because the rate begins with it.
        return self._moving(self._at(t, x))[2]

    def step_status(self, before: State, after: State, u: Input) -> Count:
        """Return SINGULAR if a step passes a singular configuration of rows and drives (), else OK."""
        k = self._freedoms
        start, end = (State(state.t, state.q[:-k], state.v[:-k]) for state in (before, after))
        return step_status(self._frame, start, end, after.q[-k:], self.solver)

    def _at(self, t: Scalar, x: Any) -> Evaluation:
        """Return the terms of the frame at rest at q and at the driven velocities z of x = (q, z)."""
        if self.frame.slips:
            given = ", ".join(slip.name for slip in self.frame.slips)
            raise ValueError(
                f"EmbeddedMechanism: frame has slip inputs ({given}), which are not velocities; give the "
                "slips of the wheels as numbers"
            )
        q, z = x[: -self._freedoms], x[-self._freedoms :]
        return self._frame.at_input(z).evaluate(
            t, q, jnp.zeros((len(self.mechanism.form.velocity_names),), q.dtype)
        )

    def _moving(self, still: Evaluation) -> tuple[Velocity, Any, Count]:
        """Return v, a solver for right-hand sides of the rows, and a `Status`.

        v (nv,) is NaN if no velocity satisfies the rows. The solver computes velocities or accelerations. A
        second solve does not change the residual of conflicting rows. If it does, the solver needs full rank
        and its factors consist of rounding errors.
        """
        q, at = still.q, linearize_at(still, self.solver)

        def solved(target: Rows) -> Velocity:
            return solve(at.factors, at.mass, at.jacobian, at.compliance, None, target)[0]

        v = solved(-still.velocity)
        left = still.with_velocities(v).velocity
        holds = jnp.max(jnp.abs(left), initial=0.0) <= default_tolerance(q.dtype) * (
            1.0 + jnp.max(jnp.abs(v))
        )
        again = at.jacobian.times(solved(-left))
        reliable = jnp.max(jnp.abs(again), initial=0.0) <= 1e-3 * jnp.max(jnp.abs(left), initial=0.0)
        failed: Any = jnp.where(reliable, Status.CONFLICTING_ROWS, Status.SINGULAR)
        status: Any = jnp.where(holds, Status.OK, failed)
        determined = determines(lambda x: solved(at.jacobian.times(x)), v.shape[0], v.dtype)
        status = jnp.where((status == Status.OK) & ~determined, Status.SINGULAR, status)
        return jnp.where(holds, v, jnp.nan), solved, status.astype(jnp.int32)

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Return (v, z') (nv + freedoms,); NaN if rows and drives conflict."""
        still = self._at(t, x)
        v, solved, _ = self._moving(still)
        # [J; D] a + gamma = [0; z']
        bias = still.with_velocities(v).bias
        drift = solved(-bias)
        held = bias.shape[0] - self._freedoms
        rows = held + np.argsort(np.asarray(self.frame.order, int))
        basis = jax.vmap(solved, out_axes=1)(jnp.asarray(np.eye(bias.shape[0])[rows], still.q.dtype))
        at = self.mechanism.evaluate(t, still.q, v)
        mass = at.mass
        rest = at.force(u) - mass.times(drift)
        reduced = DenseMatrix(basis.T @ jax.vmap(mass.times, in_axes=1, out_axes=1)(basis))
        return jnp.concatenate([v, reduced.solve(basis.T @ rest)])

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Return the identity (nv + freedoms): there are no rows, so the weights have no effect."""
        return DiagonalMatrix(jnp.ones((len(self.mechanism.form.velocity_names) + self._freedoms,), q.dtype))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Return the identity (nv + freedoms, nv + freedoms)."""
        return self.mass_operator(q).as_dense()

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Return the condition of the mechanism."""
        return self.mechanism.condition(t, q[: -self._freedoms])

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or efforts of the mechanism jump in a step."""
        k = self._freedoms
        return self.mechanism.jumps(
            *(State(state.t, state.q[:-k], state.v[:-k]) for state in (before, after))
        )

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Return x (+) xi."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.retract(q[:-k], xi[:-k]), q[-k:] + xi[-k:]])

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Return xi such that x0 (+) xi = x1."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.difference(q0[:-k], q1[:-k]), q1[-k:] - q0[-k:]])

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Return xi' of x (+) xi(t) for motion with velocity v, or None if the mechanism has none."""
        k = self._freedoms
        known = self.mechanism.step_rate(q[:-k], xi[:-k], v[:-k])
        return None if known is None else jnp.concatenate([known, v[-k:]])
