"""Switchable constraints and soft constraints.

*Masked.* An inactive row is replaced by 0 a + C lam = 0: its residual and its row of J are zero, its
compliance is C > 0. The saddle point keeps its shape, the multiplier of the row is zero, and no solver meets
a zero pivot. Rows can therefore switch inside a compiled program, and per world. Any C > 0 would work. The
value nv / trace(M), the inverse of the mean mass, keeps the pivot of the row near the pivots of rows in
meters. Solvers that compare singular values to determine rank then see the active rows unchanged.

*Impulses.* A row that becomes active while the velocity violates it needs an impulse: the velocity projection
in the mass metric,

    M (v+ - v) = J^T p,   J v+ = 0,        v+ = v - M^-1 J^T (J M^-1 J^T)^-1 J v.

v+ is the M-orthogonal projection of v onto the null space of J. The projection conserves the momentum along
the manifold, N^T M v, and reduces the kinetic energy by |v - v+|_M^2 / 2. Inside of `Projected` that
projection runs after every step, so that the impulse needs no extra code. `constraint_impulse` returns its
size, and `Switching` detects its time.

*Soft.* A row with compliance C > 0 reads J a + gamma + C lam = 0 instead of J a + gamma = 0, plus the
feedback of a stabilization. As C -> 0 it becomes the hard row continuously. With Baumgarte feedback,
C lam = -(g'' + 2 alpha g' + beta^2 g): a spring of stiffness beta^2 / C and a damper 2 alpha / C parallel to
an inertia 1 / C. For time-independent rows the power of the multiplier is lam g', so that the energy of the
system together with the energy of the row,

    E + (g'^2 + beta^2 g^2) / (2 C),        decreases at the rate 2 alpha g'^2 / C.

Projections ignore soft rows.
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
    """A system whose constraint rows switch on and off at run time; inactive rows have zero multipliers.

    Attributes:
        system: the system with all of its rows.
        active: (nc,), true or nonzero for active rows, position-level rows first; or a law of time and
            coordinates, a pytree with `__call__(t, q)` that returns this array. A leaf: it may change between
            steps and between worlds without recompilation.

    Nothing is differentiated with respect to `active`, because switching is a jump. Inactive rows are still
    evaluated; if their derivatives are not finite, reverse mode has no finite derivative either.

    A rollout with `Projected` applies the impulse of a newly active row after the step in which the row
    becomes active, and also closes position-level rows. `Switching` switches by state and locates the
    instant.
    """

    system: AnySystem
    active: Any = function_field()

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return g (ng,), zero in inactive rows."""
        g = self.system.constraint(t, q)
        return jnp.where(self._leading(t, q, g), g, 0.0)

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Return the residual (ng,) that closes and checks a start, zero in inactive rows."""
        opening = self.system.opening(t, q)
        return jnp.where(self._leading(t, q, opening), opening, 0.0)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return w (nw,), zero in inactive rows."""
        w = self.system.velocity_constraint(t, q, v)
        return jnp.where(self._trailing(t, q, w), w, 0.0)

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,), zero in inactive rows."""
        rate = self.system.constraint_rate(t, q, v)
        return jnp.where(self._leading(t, q, rate), rate, 0.0)

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J, zero in inactive rows."""
        jacobian = self.system.jacobian_operator(t, q, v)
        return jacobian.masked(self.active_rows(t, q, jacobian.shape[0]))

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return the matrix-free J, zero in inactive rows."""
        jacobian = self.system.jacobian_products(t, q, v)
        return jacobian.masked(self.active_rows(t, q, jacobian.shape[0]))

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,), zero in inactive rows."""
        bias = self.system.constraint_bias(t, q, v)
        return jnp.where(self.active_rows(t, q, bias.shape[0]), bias, 0.0)

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Return C (nc,): nv / trace(M), the inverse of the mean mass, in inactive rows."""
        own = self.system.compliance(t, q)
        off = jax.lax.stop_gradient(1.0 / self.system.mass_operator(q).diagonal_mean())
        active = self.active_rows(t, q, None if own is None else own.shape[0])
        return jnp.where(active, jnp.zeros((), q.dtype) if own is None else own, off)

    def active_rows(self, t: Scalar, q: Coordinates, rows: int | None = None) -> Any:
        """Return the mask of active rows (nc,), as booleans.

        Args:
            t: time in s.
            q: coordinates.
            rows: nc for the check, if the caller knows it.

        Raises:
            ValueError: the length differs from the number of rows.
        """
        active = jnp.asarray(self.active(t, q) if callable(self.active) else self.active)
        if active.ndim != 1 or (rows is not None and active.shape[0] != rows):
            expected = "" if rows is None else f", shape ({rows},)"
            raise ValueError(f"Masked.active must have one entry a constraint row{expected}, got shape {active.shape}")
        return jax.lax.stop_gradient(active).astype(bool)

    # Position-level rows are first, velocity-level rows are last, and no other rows lie between. Only J and
    # the bias know the number of all rows; they check the length.

    def _leading(self, t: Scalar, q: Coordinates, g: Residual) -> Any:
        active = self.active_rows(t, q)
        return self.active_rows(t, q, self.system.sizes(q).nc) if active.shape[0] < g.shape[0] else active[: g.shape[0]]

    def _trailing(self, t: Scalar, q: Coordinates, w: VelocityResidual) -> Any:
        active = self.active_rows(t, q)
        return self.active_rows(t, q, w.shape[0]) if active.shape[0] < w.shape[0] else active[active.shape[0] - w.shape[0] :]


@pytree
class Soft(Wrapper):
    """A system with soft constraint rows: J a + gamma + C lam = 0.

    Attributes:
        system: the system with hard rows.
        softness: C (nc,), or a scalar for all rows, in (row unit / s^2) per unit of lam; 0 is hard.
            Non-negative. Differentiable.
    """

    system: AnySystem
    softness: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.requirements`."""
        yield not_negative(self.softness), "softness must not be negative"

    def compliance(self, t: Scalar, q: Coordinates) -> Rows:
        """Return C (nc,).

        Raises:
            ValueError: the shape is neither a scalar nor (nc,).
        """
        softness, rows = jnp.asarray(self.softness, q.dtype), self.system.sizes(q).nc
        if softness.shape not in ((), (rows,)):
            raise ValueError(f"Soft.softness must be a scalar or have one entry a constraint row, shape ({rows},), got {softness.shape}")
        own = self.system.compliance(t, q)
        return jnp.broadcast_to(softness, (rows,)) + (0.0 if own is None else own)


def hard_rows(system: AnySystem, state: State) -> AnySystem:
    """Return the system with only its hard rows at a state active: the rows that projections use."""
    compliance = system.compliance(state.t, state.q)
    return system if compliance is None else Masked(system, compliance == 0.0)
