"""Mechanisms of first order and of second order without rows: velocities as a function of coordinates, as few equations as freedoms.

`Embedded` is the motion of a `KinematicMechanism` without rows, v as a function of q and u. `EmbeddedMechanism` is that of second order:
with the driven velocities z as unknowns in place of inputs,

    v = N(q) z + n(t, q),        N^T M N z' = N^T (f - M d),        [J; D] [N d] = [0 -gamma; 1 -gamma],

with a = N z' + d: as few equations as there are freedoms, no multipliers, and wheels that never slip by what an integrator leaves.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree
from jaxdae.kinematic import KinematicSystem, determines, feasible_velocity, held_velocity
from jaxdae.linearization import linearize
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.first_order import KinematicMechanism
from jaxdae.names import Names
from jaxdae.operators import DenseMatrix, DiagonalMatrix, MassOperator
from jaxdae.saddle_point.derivative import solve
from jaxdae.status import Status
from jaxdae.system import State, default_tolerance, velocity_residual
from jaxdae.typing import Coordinates, Count, Input, Leaf, Rows, Scalar, Square, Velocity
from jaxdae.wrapper import SameCoordinates


@pytree
class Embedded(SameCoordinates, KinematicSystem):
    """A system of first order without rows: its rate is the velocity that rows and drives of the system inside leave.

    The rate is NaN where it does not hold the rows of the system inside, and a rollout stops where `kinematic_status` is not OK at the
    begin or the end of a step: with CONFLICTING_ROWS where wheels fight. Rows at position level are not watched: `Joints()` has none
    but those of loops.

    Attributes:
        system: a `KinematicMechanism`, or any `KinematicSystem`.
        solver: a saddle-point solver; None for the default solver of the system.
    """

    system: KinematicSystem
    solver: Leaf = None

    @property
    def n_inputs(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of inputs of the system inside."""
        return self.system.n_inputs

    @property
    def names(self) -> Names:
        """The names of the system inside, without rows."""
        return self.system.names._replace(rows=(), row_units=())

    @property
    def coordinates_of(self) -> KinematicSystem:
        """The system inside."""
        return self.system

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

    def jumps(self, before: State, after: State) -> Any:
        """Return whether relations of the system inside jump in a step."""
        return self.system.jumps(before, after)


@pytree
class EmbeddedMechanism(KinematicSystem):
    """The equations of motion of a mechanism in its driven velocities: x = (q, z), z as many as there are freedoms.

    Integrate it with `Kinematic`; its inputs are those of the forces. The driven velocities of `frame` are what z is: in the order of its
    inputs. Rows and drives together have to leave no freedom, or the status of a step is SINGULAR: what is left would move by forces, and
    no z knows of it. Where they contradict each other the rate is NaN and the status CONFLICTING_ROWS, or SINGULAR with a solver that
    needs full rank.

    Attributes:
        mechanism: the mechanism with masses and forces.
        frame: the `KinematicMechanism` of the same description in the same coordinates.
        solver: a saddle-point solver; None for the default solver of the system.
    """

    mechanism: Mechanism
    frame: KinematicMechanism
    solver: Leaf = None

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
        q, frame = self._at(state.q)
        return State(state.t, q, self._moving(frame, state.t, q)[0])

    def rate_status(self, t: Scalar, x: Coordinates, u: Input) -> Count:
        """Returns CONFLICTING_ROWS where no velocity satisfies rows and drives, SINGULAR where many do or nobody can tell, else OK."""
        # The compiled program has this once: it is what the rate begins with.
        q, frame = self._at(x)
        return self._moving(frame, t, q)[2]

    def _at(self, x: Any) -> tuple[Any, KinematicMechanism]:
        """Returns q, and the frame at the driven velocities z of x = (q, z), which knows what its terms share at q."""
        if self.frame.slips:
            given = ", ".join(slip.name for slip in self.frame.slips)
            raise ValueError(f"EmbeddedMechanism: frame has inputs that are no velocities ({given}): give wheels their slips as numbers")
        q, z = x[: -self._freedoms], x[-self._freedoms :]
        return q, self.frame.at_input(z).at(q)

    def _moving(self, frame: KinematicMechanism, t: Scalar, q: Coordinates) -> tuple[Velocity, Any, Count]:
        """Returns v (nv,), NaN without one; what finds velocities or accelerations from right-hand sides of the rows; and a `Status`.

        What is left of rows that conflict is left again by a second solution. Where it is not, the solver needs full rank and has made
        its factors of rounding errors.
        """
        still = State(t, q, jnp.zeros((len(self.mechanism.form.velocity_names),), q.dtype))
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
        determined = determines(lambda x: solved(at.jacobian.times(x)), v.shape[0], v.dtype)
        status = jnp.where((status == Status.OK) & ~determined, Status.SINGULAR, status)
        return jnp.where(holds, v, jnp.nan), solved, status.astype(jnp.int32)

    def rate(self, t: Scalar, x: Coordinates, u: Input) -> Velocity:
        """Returns (v, z') (nv + freedoms,); NaN where rows and drives contradict each other."""
        q, frame = self._at(x)
        v, solved, _ = self._moving(frame, t, q)
        # [J; D] a + gamma = [0; z']
        bias = frame.constraint_bias(t, q, v)
        drift = solved(-bias)
        held = bias.shape[0] - self._freedoms
        rows = held + np.argsort(np.asarray(self.frame.order, int))
        basis = jax.vmap(solved, out_axes=1)(jnp.asarray(np.eye(bias.shape[0])[rows], q.dtype))
        mechanism = self.mechanism.at(q)
        mass = mechanism.mass_operator(q)
        rest = mechanism.force(t, q, v, u) - mass.times(drift)
        reduced = DenseMatrix(basis.T @ jax.vmap(mass.times, in_axes=1, out_axes=1)(basis))
        return jnp.concatenate([v, reduced.solve(basis.T @ rest)])

    def mass_operator(self, q: Coordinates) -> MassOperator:
        """Returns the identity (nv + freedoms): there are no rows, and nothing is weighed."""
        return DiagonalMatrix(jnp.ones((len(self.mechanism.form.velocity_names) + self._freedoms,), q.dtype))

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns the identity (nv + freedoms, nv + freedoms)."""
        return self.mass_operator(q).as_dense()

    def condition(self, t: Scalar, q: Coordinates) -> Count | None:
        """Returns the condition of the mechanism."""
        return self.mechanism.condition(t, q[: -self._freedoms])

    def jumps(self, before: State, after: State) -> Any:
        """Return whether rows or efforts of the mechanism jump in a step."""
        k = self._freedoms
        return self.mechanism.jumps(*(State(state.t, state.q[:-k], state.v[:-k]) for state in (before, after)))

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns x (+) xi."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.retract(q[:-k], xi[:-k]), q[-k:] + xi[-k:]])

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns xi with x0 (+) xi = x1."""
        k = self._freedoms
        return jnp.concatenate([self.mechanism.difference(q0[:-k], q1[:-k]), q1[-k:] - q0[-k:]])

    def step_rate(self, q: Coordinates, xi: Velocity, v: Velocity) -> Velocity | None:
        """Returns xi' of x (+) xi(t) where it moves with velocity v, as far as the mechanism knows it."""
        k = self._freedoms
        known = self.mechanism.step_rate(q[:-k], xi[:-k], v[:-k])
        return None if known is None else jnp.concatenate([known, v[-k:]])
