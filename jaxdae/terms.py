"""All constraint rows of a system at a state: residuals, J and gamma, together or separately."""

from __future__ import annotations

import dataclasses

import jax

from jaxdae._pytree import pytree
from jaxdae.operators import DenseRows, JacobianOperator
from jaxdae.system import AnySystem, State, checked, checked_state, velocity_residual
from jaxdae.typing import Jacobian, Leaf, Residual, Rows


@pytree
class ConstraintTerms:
    """All terms at a state: g (ng,), [g'; w] (nc,), J as an operator and gamma (nc,)."""

    position: Leaf
    velocity: Leaf
    jacobian_operator: Leaf
    bias: Leaf

    @property
    def jacobian(self) -> Jacobian:
        """J (nc, nv) as an array."""
        return self.jacobian_operator.as_dense()


@dataclasses.dataclass(frozen=True)
class TermsOnDemand:
    """Constraint terms that are evaluated and checked on access, so that unused derivatives are never formed.

    Attributes:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        jacobian_operator: J at this state.
    """

    system: AnySystem
    state: State
    jacobian_operator: JacobianOperator

    def __post_init__(self) -> None:
        """Check that J fits the rows. The class is not a pytree, so JAX never constructs it."""
        rows = jax.eval_shape(velocity_residual, self.system, self.state).shape[0]
        shape = rows, *self.state.v.shape
        checked("constraint_jacobian(t, q, v)", self.jacobian_operator, shape, self.state.q.dtype, self._declared(rows))

    @staticmethod
    def _declared(rows: int) -> str:
        return f" ({rows} rows are declared by constraint and velocity_constraint)"

    @property
    def position(self) -> Residual:
        """The residual g (ng,)."""
        return checked("constraint(t, q)", self.system.constraint(self.state.t, self.state.q), (None,), self.state.q.dtype)

    @property
    def velocity(self) -> Rows:
        """The rates and residuals [g'; w] (nc,)."""
        return velocity_residual(self.system, self.state)

    @property
    def bias(self) -> Rows:
        """The bias gamma (nc,)."""
        state, rows = self.state, self.jacobian_operator.shape[0]
        gamma = self.system.constraint_bias(state.t, state.q, state.v)
        return checked("constraint_bias(t, q, v)", gamma, (rows,), state.q.dtype, self._declared(rows))

    @property
    def jacobian(self) -> Jacobian:
        """J (nc, nv) as an array."""
        return self.jacobian_operator.as_dense()


Terms = ConstraintTerms | TermsOnDemand
"""The constraint terms at a state, for a stabilization: `position`, the residual g (ng,); `velocity`, the
rates and residuals [g'; w] (nc,); `jacobian_operator` and `jacobian`, J (nc, nv); `bias`, gamma (nc,)."""


def constraint_terms(system: AnySystem, state: State) -> ConstraintTerms:
    """Return residuals, Jacobian and bias of all constraint rows, position-level rows first.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
    """
    state = checked_state(state)
    terms = TermsOnDemand(system, state, DenseRows(system.constraint_jacobian(state.t, state.q, state.v)))
    return ConstraintTerms(terms.position, terms.velocity, terms.jacobian_operator, terms.bias)
