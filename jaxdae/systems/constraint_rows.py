"""All constraint rows of a system at a state: residuals, J and gamma."""

from __future__ import annotations

from jaxdae.base.dataclass import pytree
from jaxdae.matrices import DenseRows
from jaxdae.systems.system import AnySystem, State, check_system, checked_state
from jaxdae.typing import Jacobian, Leaf


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


def constraint_terms(system: AnySystem, state: State) -> ConstraintTerms:
    """Return residuals, Jacobian and bias of all constraint rows, position-level rows first.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.

    Raises:
        TypeError: not a `System`.
        ValueError: if a parameter of the system is out of range.
    """
    check_system(system)
    state = checked_state(state)
    at = system.evaluate(state.t, state.q, state.v)
    return ConstraintTerms(at.position, at.velocity, DenseRows(at.dense_jacobian), at.bias)
