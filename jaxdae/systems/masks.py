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

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree
from jaxdae.base.requirements import not_negative
from jaxdae.matrices import JacobianOperator
from jaxdae.systems.evaluation import Evaluation, WrappedEvaluation
from jaxdae.systems.system import AnySystem
from jaxdae.systems.wrapper import Wrapper
from jaxdae.typing import Coordinates, Leaf, Residual, Rows, Scalar, VelocityResidual


@pytree
class _MaskedEvaluation(WrappedEvaluation):
    """The terms of a `Masked` system: inactive rows are zero and have a compliance."""

    @property
    def position(self) -> Residual:
        return self._leading(self.inner.position)

    @property
    def opening(self) -> Residual:
        return self._leading(self.inner.opening)

    @property
    def constraint_rate(self) -> Residual:
        return self._leading(self.inner.constraint_rate)

    @property
    def velocity_constraint(self) -> VelocityResidual:
        w, active = self.inner.velocity_constraint, self._active()
        active = (
            self._active(w.shape[0])
            if active.shape[0] < w.shape[0]
            else active[active.shape[0] - w.shape[0] :]
        )
        return jnp.asarray(jnp.where(active, w, 0.0))

    @property
    def jacobian(self) -> JacobianOperator:
        jacobian = self.inner.jacobian
        return jacobian.masked(self._active(jacobian.shape[0]))

    @property
    def jacobian_products(self) -> JacobianOperator:
        jacobian = self.inner.jacobian_products
        return jacobian.masked(self._active(jacobian.shape[0]))

    @property
    def bias(self) -> Rows:
        bias = self.inner.bias
        return jnp.asarray(jnp.where(self._active(bias.shape[0]), bias, 0.0))

    @property
    def compliance(self) -> Rows:
        """C (nc,): nv / trace(M), the inverse of the mean mass, in inactive rows."""
        own = self.inner.compliance
        off = jax.lax.stop_gradient(1.0 / self.inner.mass.diagonal_mean())
        active = self._active(None if own is None else own.shape[0])
        return jnp.asarray(jnp.where(active, jnp.zeros((), self.q.dtype) if own is None else own, off))

    # Position-level rows are first, velocity-level rows are last, and no other rows lie between. Only J and
    # the bias know the number of all rows; they check the length.

    def _active(self, rows: int | None = None) -> Any:
        return self.system.active_rows(self.t, self.q, rows)

    def _leading(self, g: Residual) -> Residual:
        active = self._active()
        active = (
            self._active(self.system.system.sizes(self.q).nc)
            if active.shape[0] < g.shape[0]
            else active[: g.shape[0]]
        )
        return jnp.asarray(jnp.where(active, g, 0.0))


@pytree
class Masked(Wrapper):
    """A system whose constraint rows switch on and off at run time; inactive rows have zero multipliers.

    Attributes:
        system: the system with all of its rows.
        active: (nc,), true or nonzero for active rows, position-level rows first; or a law of time and
            coordinates, a pytree with `__call__(t, q)` that returns this array. A leaf: it may change between
            steps and between worlds without recompilation.

    Derivatives with respect to `active` are zero, because switching is a jump. Inactive rows are still
    evaluated; if their derivatives are not finite, reverse mode has no finite derivative either.

    A rollout with `Projected` applies the impulse of a newly active row after the step in which the row
    becomes active, and also closes position-level rows. `Switching` switches by state and locates the
    instant.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _MaskedEvaluation
    system: AnySystem
    active: Any = function_field()

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
            raise ValueError(
                f"Masked.active must have one entry per constraint row{expected}, got shape {active.shape}"
            )
        return jax.lax.stop_gradient(active).astype(bool)


@pytree
class _SoftEvaluation(WrappedEvaluation):
    """The terms of a `Soft` system."""

    @property
    def compliance(self) -> Rows:
        """C (nc,).

        Raises:
            ValueError: the shape of `softness` is neither a scalar nor (nc,).
        """
        softness, rows = jnp.asarray(self.system.softness, self.q.dtype), self.system.system.sizes(self.q).nc
        if softness.shape not in ((), (rows,)):
            raise ValueError(
                f"Soft.softness must be a scalar or have one entry per constraint row, shape ({rows},), got "
                f"{softness.shape}"
            )
        own = self.inner.compliance
        return jnp.broadcast_to(softness, (rows,)) + (0.0 if own is None else own)


@pytree
class Soft(Wrapper):
    """A system with soft constraint rows: J a + gamma + C lam = 0.

    Attributes:
        system: the system with hard rows.
        softness: C (nc,), or a scalar for all rows, in (row unit / s^2) per unit of lam; 0 is hard.
            Non-negative. Differentiable.
    """

    evaluation: ClassVar[type[WrappedEvaluation]] = _SoftEvaluation
    system: AnySystem
    softness: Leaf

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield not_negative(self.softness), "softness must not be negative"


def hard_rows(at: Evaluation) -> Evaluation:
    """Return the terms of a system with only its hard rows active: the rows that projections use."""
    compliance = at.compliance
    return at if compliance is None else Masked(at.system, compliance == 0.0).around(at)
