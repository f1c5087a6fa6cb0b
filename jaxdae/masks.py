"""Constraints that switch, and constraints that give way.

*Masked.* A row that is switched off is replaced by 0 a + C lam = 0: its residual and its row of J are zero, its compliance C > 0. The
saddle point keeps its shape, the row's multiplier is zero, and no solver meets a zero pivot; rows therefore switch inside a compiled
program, and per world. Any C > 0 would do; nv / trace(M), the inverse of the mean mass, keeps the row's pivot near those of rows in meters,
so that solvers that judge rank by comparing singular values see the rows that are on as they are.

*Impulses.* A row that switches on with a velocity that breaks it needs an impulse: the velocity projection in the mass metric,

    M (v+ - v) = J^T p,   J v+ = 0,        v+ = v - M^-1 J^T (J M^-1 J^T)^-1 J v.

v+ is the M-orthogonal projection of v onto the null space of J. So momentum along the manifold, N^T M v, is kept, and the kinetic energy
falls by |v - v+|_M^2 / 2, never rises. Inside of `Projected` that projection runs after every step and the impulse comes of itself;
`constraint_impulse` says how large it is, and `Switching` finds out when.

*Soft.* A row with compliance C > 0 reads J a + gamma + C lam = 0 instead of J a + gamma = 0, with whatever feedback a stabilization adds;
as C -> 0 it becomes the hard row continuously. With Baumgarte feedback, C lam = -(g'' + 2 alpha g' + beta^2 g): a spring of stiffness
beta^2 / C and a damper 2 alpha / C next to an inertia 1 / C. For rows that do not move by themselves the power of the multiplier is
lam g', so that the energy of the system together with that of the row,

    E + (g'^2 + beta^2 g^2) / (2 C),        falls at the rate 2 alpha g'^2 / C.

Projections leave soft rows alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import function_field, pytree
from jaxdae.operators import JacobianOperator
from jaxdae.requirements import not_negative
from jaxdae.system import AnySystem, State
from jaxdae.typing import Coordinates, Leaf, Residual, Rows, Scalar, Velocity, VelocityResidual
from jaxdae.wrapper import Wrapper


@pytree
class Masked(Wrapper):
    """A system whose constraint rows switch on and off at run time; off, a row's multiplier is zero.

    Attributes:
        system: the system with all of its rows.
        active: (nc,), true or nonzero where a row is on, position-level rows first; or a law of time and coordinates, a pytree with
            `__call__(t, q)` that returns that. A leaf: it may change from step to step and from world to world without recompiling.

    Nothing is differentiated with respect to `active`: switching is a jump. Rows that are off are evaluated all the same; where their
    derivatives are not finite, reverse mode has no finite derivative either.

    A rollout with `Projected` gives rows that come on their impulse after the step in which they do; position-level rows are closed there
    as well. `Switching` switches by state and locates the instant.
    """

    system: AnySystem
    active: Any = function_field()

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns g (ng,), zero in rows that are off."""
        g = self.system.constraint(t, q)
        return jnp.where(self._leading(t, q, g), g, 0.0)

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Returns the rows by which a start is judged (ng,), zero in rows that are off."""
        opening = self.system.opening(t, q)
        return jnp.where(self._leading(t, q, opening), opening, 0.0)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Returns w (nw,), zero in rows that are off."""
        w = self.system.velocity_constraint(t, q, v)
        return jnp.where(self._trailing(t, q, w), w, 0.0)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Returns g' (ng,), zero in rows that are off."""
        rate = self.system.constraint_rate(t, q, v)
        return jnp.where(self._leading(t, q, rate), rate, 0.0)

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J, zero in rows that are off."""
        jacobian = self.system.jacobian_operator(t, q, v)
        return jacobian.masked(self.active_rows(t, q, jacobian.shape[0]))

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Returns J, zero in rows that are off; never formed."""
        jacobian = self.system.jacobian_products(t, q, v)
        return jacobian.masked(self.active_rows(t, q, jacobian.shape[0]))

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Returns gamma (nc,), zero in rows that are off."""
        bias = self.system.constraint_bias(t, q, v)
        return jnp.where(self.active_rows(t, q, bias.shape[0]), bias, 0.0)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Returns C (nc,): nv / trace(M), the inverse of the mean mass, in rows that are off."""
        own = self.system.compliance(t, q)
        off = jax.lax.stop_gradient(1.0 / self.system.mass_operator(q).diagonal_mean())
        active = self.active_rows(t, q, None if own is None else own.shape[0])
        return jnp.where(active, jnp.zeros((), q.dtype) if own is None else own, off)

    def active_rows(self, t: Scalar, q: Coordinates, rows: int | None = None) -> Any:
        """Returns which rows are on (nc,), as booleans.

        Args:
            t: time in s.
            q: coordinates.
            rows: nc where the caller knows it; for the check.

        Raises:
            ValueError: not one entry a row.
        """
        active = jnp.asarray(self.active(t, q) if callable(self.active) else self.active)
        if active.ndim != 1 or (rows is not None and active.shape[0] != rows):
            expected = "" if rows is None else f", shape ({rows},)"
            raise ValueError(f"Masked.active must have one entry a constraint row{expected}, got shape {active.shape}")
        return jax.lax.stop_gradient(active).astype(bool)

    # Between these two lies no other row, but only J and the bias know how many there are in all: they check the length.

    def _leading(self, t: Scalar, q: Coordinates, g: Residual) -> Any:
        active = self.active_rows(t, q)
        return self.active_rows(t, q, self.system.sizes(q).nc) if active.shape[0] < g.shape[0] else active[: g.shape[0]]

    def _trailing(self, t: Scalar, q: Coordinates, w: VelocityResidual) -> Any:
        active = self.active_rows(t, q)
        return self.active_rows(t, q, w.shape[0]) if active.shape[0] < w.shape[0] else active[active.shape[0] - w.shape[0] :]


@pytree
class Soft(Wrapper):
    """A system some of whose constraint rows give way: J a + gamma + C lam = 0.

    Attributes:
        system: the system with hard rows.
        softness: C (nc,), or a scalar for all rows, in (row unit / s^2) per unit of lam; 0 is hard. Not negative. Differentiable.
    """

    system: AnySystem
    softness: Leaf

    def requirements(self) -> Any:
        """Yields what the numbers have to satisfy; see `jaxdae.requirements`."""
        yield not_negative(self.softness), "softness must not be negative"

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Returns C (nc,).

        Raises:
            ValueError: neither a scalar nor one entry a row.
        """
        softness, rows = jnp.asarray(self.softness, q.dtype), self.system.sizes(q).nc
        if softness.shape not in ((), (rows,)):
            raise ValueError(f"Soft.softness must be a scalar or have one entry a constraint row, shape ({rows},), got {softness.shape}")
        own = self.system.compliance(t, q)
        return jnp.broadcast_to(softness, (rows,)) + (0.0 if own is None else own)


def hard_rows(system: AnySystem, state: State) -> AnySystem:
    """Returns the system with only the rows without compliance at a state switched on: those that projections see."""
    compliance = system.compliance(state.t, state.q)
    return system if compliance is None else Masked(system, compliance == 0.0)
