"""Constraints that switch, and constraints that give way.

*Masked.* A row that is switched off is replaced by 0 a + 1 lam = 0: its residual and its row of J are zero, its compliance is one. The
saddle point keeps its shape, the row's multiplier is zero, and no solver meets a zero pivot; rows therefore switch inside a compiled
program, and per world. A row that switches on with a velocity that breaks it needs an impulse: the velocity projection in the mass metric,

    M (v+ - v) = J^T p,   J v+ = 0,        v+ = v - M^-1 J^T (J M^-1 J^T)^-1 J v.

v+ is the M-orthogonal projection of v onto the null space of J. So momentum along the manifold, N^T M v, is kept, and the kinetic energy
falls by |v - v+|_M^2 / 2, never rises. Inside of `Projected` that projection runs after every step and the impulse comes of itself.

*Soft.* A row with compliance C > 0 reads J a + gamma + C lam = 0 instead of J a + gamma = 0, with whatever feedback a stabilization adds;
as C -> 0 it becomes the hard row continuously. With Baumgarte feedback, C lam = -(g'' + 2 alpha g' + beta^2 g): a spring of stiffness
beta^2 / C and a damper 2 alpha / C next to an inertia 1 / C. Projections leave soft rows alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.saddle_point import MassMatrix
from jaxdae.system import State, System
from jaxdae.typing import Coordinates, Input, Jacobian, Leaf, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


class Wrapper(System):
    """A system around another one, `system`, to which everything is passed on."""

    system: System

    def mass_matrix(self, q: Coordinates) -> Square:
        """Returns M(q) of the system inside."""
        return self.system.mass_matrix(q)

    def mass_operator(self, q: Coordinates) -> MassMatrix:
        """Returns the mass operator of the system inside."""
        return self.system.mass_operator(q)

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Input) -> Velocity:
        """Returns f of the system inside."""
        return self.system.force(t, q, v, u)

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns g of the system inside."""
        return self.system.constraint(t, q)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns w of the system inside."""
        return self.system.velocity_constraint(t, q, v)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Returns C of the system inside."""
        return self.system.compliance(t, q)

    def retract(self, q: Coordinates, xi: Velocity) -> Coordinates:
        """Returns q (+) xi of the system inside."""
        return self.system.retract(q, xi)

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        """Returns the inverse of `retract` of the system inside."""
        return self.system.difference(q0, q1)

    def kinetic_energy(self, q: Coordinates, v: Velocity) -> Scalar:
        """Returns the kinetic energy of the system inside, in J."""
        return self.system.kinetic_energy(q, v)

    def potential_energy(self, t: Scalar, q: Coordinates) -> Scalar:
        """Returns the potential energy of the system inside, in J."""
        return self.system.potential_energy(t, q)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' of the system inside."""
        return self.system.constraint_rate(t, q, v)

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J of the system inside."""
        return self.system.constraint_jacobian(t, q, v)

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma of the system inside."""
        return self.system.constraint_bias(t, q, v)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the rows of the system inside, where it has them."""
        return self.system.row_names  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """The names of the coordinates of the system inside, where it has them."""
        return self.system.coordinate_names  # pyright: ignore[reportAttributeAccessIssue]


@pytree
class Masked(Wrapper):
    """A system whose constraint rows switch on and off at run time; off, a row's multiplier is zero.

    Attributes:
        system: the system with all of its rows.
        active: (nc,), true or nonzero where a row is on, position-level rows first; or a law of time and coordinates, a pytree with
            `__call__(t, q)` that returns that. A leaf: it may change from step to step and from world to world without recompiling.

    Nothing is differentiated with respect to `active`: switching is a jump.
    """

    system: System
    active: Leaf

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns g (ng,), zero in rows that are off."""
        g = self.system.constraint(t, q)
        return jnp.where(self.active_rows(t, q)[: g.shape[0]], g, 0.0)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns w (nw,), zero in rows that are off."""
        w = self.system.velocity_constraint(t, q, v)
        return jnp.where(self._last(t, q, w), w, 0.0)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' (ng,), zero in rows that are off."""
        rate = self.system.constraint_rate(t, q, v)
        return jnp.where(self.active_rows(t, q)[: rate.shape[0]], rate, 0.0)

    def constraint_jacobian(self, t: Scalar, q: Coordinates, v: Velocity) -> Jacobian:
        """Returns J (nc, nv), zero in rows that are off."""
        return jnp.where(self.active_rows(t, q)[:, None], self.system.constraint_jacobian(t, q, v), 0.0)

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma (nc,), zero in rows that are off."""
        return jnp.where(self.active_rows(t, q), self.system.constraint_bias(t, q, v), 0.0)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Returns C (nc,): one in rows that are off."""
        own = self.system.compliance(t, q)
        return jnp.where(self.active_rows(t, q), jnp.zeros((), q.dtype) if own is None else own, 1.0)

    def active_rows(self, t: Scalar, q: Coordinates) -> Any:
        """Returns which rows are on (nc,), as booleans.

        Raises:
            ValueError: not one entry a row.
        """
        active = jnp.asarray(self.active(t, q) if callable(self.active) else self.active)
        active = jax.lax.stop_gradient(active) != 0
        rows = _count_rows(self.system, t, q)
        if active.shape != (rows,):
            raise ValueError(f"Masked.active must have one entry a constraint row, shape ({rows},), got {active.shape}")
        return active

    def _last(self, t: Scalar, q: Coordinates, w: VelocityResidual) -> Any:
        active = self.active_rows(t, q)
        return active[active.shape[0] - w.shape[0] :]


def _count_rows(system: System, t: Any, q: Any) -> int:
    size = jax.eval_shape(system.mass_matrix, q).shape[0]
    v = jax.ShapeDtypeStruct((size,), q.dtype)
    return jax.eval_shape(system.constraint, t, q).shape[0] + jax.eval_shape(system.velocity_constraint, t, q, v).shape[0]


@pytree
class Soft(Wrapper):
    """A system some of whose constraint rows give way: J a + gamma + C lam = 0.

    Attributes:
        system: the system with hard rows.
        softness: C (nc,), or a scalar for all rows, in (row unit / s^2) per unit of lam; 0 is hard. Differentiable.
    """

    system: System
    softness: Leaf

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Returns C (nc,)."""
        rows = jnp.broadcast_to(jnp.asarray(self.softness, q.dtype), (_count_rows(self.system, t, q),))
        own = self.system.compliance(t, q)
        return rows if own is None else rows + own


def hard_rows(system: System, state: State) -> System:
    """Returns the system with only the rows without compliance at a state switched on: those that projections see."""
    compliance = system.compliance(state.t, state.q)
    return system if compliance is None else Masked(system, compliance == 0.0)
