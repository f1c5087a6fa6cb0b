"""Goals as additional constraints of a system, at acceleration level, for any integrator.

The rows of `WithGoals` are ordinary rows: hard and closed by projections, with feedback from a stabilization,
soft with `Soft`, switched with `Masked` and `Switching`. Their multipliers are in `StepInfo.lam`. Limits,
virtual work and targets from inputs require `VelocityStepping`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxdae._pytree import pytree
from jaxdae.control.goals import GOALS_TEXT, are_goals, has_both_targets, has_rate, input_count
from jaxdae.names import Names, Sizes
from jaxdae.operators import JacobianOperator
from jaxdae.system import AnySystem, State, System
from jaxdae.typing import Coordinates, Residual, Rows, Scalar, Square, Velocity, VelocityResidual
from jaxdae.wrapper import SameCoordinates, Wrapper


@pytree
class _GoalSystem(SameCoordinates, System):
    """The rows of goals alone, whose derivatives autodiff supplies."""

    system: AnySystem
    goals: tuple[Any, ...]

    @property
    def coordinates_of(self) -> AnySystem:
        return self.system

    def mass_matrix(self, q: Coordinates) -> Square:
        return self.system.mass_matrix(q)

    def force(self, t: Scalar, q: Coordinates, v: Velocity, u: Any) -> Velocity:
        return self.system.force(t, q, v, u)  # pyright: ignore[reportAttributeAccessIssue]

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        return _joined([goal.error(t, q, None) for goal in self.goals if not has_rate(goal)], q)

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        return _joined([goal.error_rate(self.system, State(t, q, v), None) for goal in self.goals if has_rate(goal)], q)


@pytree
class WithGoals(Wrapper):
    """A system with goals as additional rows.

    A goal with a position target gives position-level rows, after the position-level rows of the system. A
    goal with only a velocity target gives velocity-level rows, after the velocity-level rows of the system.

    Attributes:
        system: the system.
        goals: `Goal` or `FunctionGoal`, a tuple; targets are numbers or functions of time.

    Goals with both targets, and targets that are inputs, raise an error: they require the step length, which
    a system does not know.
    """

    system: AnySystem
    goals: tuple[Any, ...]

    def requirements(self) -> Any:
        """Yield the conditions on the goals; see `jaxdae.requirements`."""
        yield are_goals(self.goals), GOALS_TEXT

    def constraint(self, t: Scalar, q: Coordinates) -> Residual:
        """Return g of the system, then psi of the goals (ng,)."""
        return jnp.concatenate([self.system.constraint(t, q), self._rows.constraint(t, q)])

    def opening(self, t: Scalar, q: Coordinates) -> Residual:
        """Return the rows that check a start (ng,): `opening` of the system, then psi of the goals."""
        return jnp.concatenate([self.system.opening(t, q), self._rows.constraint(t, q)])

    def velocity_constraint(self, t: Scalar, q: Coordinates, v: Velocity) -> VelocityResidual:
        """Return w of the system, then y' - y'* of the goals (nw,)."""
        return jnp.concatenate([self.system.velocity_constraint(t, q, v), self._rows.velocity_constraint(t, q, v)])

    def constraint_rate(self, t: Scalar, q: Coordinates, v: Velocity) -> Residual:
        """Return g' (ng,)."""
        return jnp.concatenate([self.system.constraint_rate(t, q, v), self._rows.constraint_rate(t, q, v)])

    def jacobian_operator(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J of the system and of the goals, position-level rows first."""
        return self._merged_rows(q, self.system.jacobian_operator(t, q, v), self._rows.jacobian_operator(t, q, v))

    def jacobian_products(self, t: Scalar, q: Coordinates, v: Velocity) -> JacobianOperator:
        """Return J as products, without forming it."""
        return self._merged_rows(q, self.system.jacobian_products(t, q, v), self._rows.jacobian_products(t, q, v))

    def constraint_bias(self, t: Scalar, q: Coordinates, v: Velocity) -> Rows:
        """Return gamma (nc,)."""
        return self._merged(t, q, self.system.constraint_bias(t, q, v), self._rows.constraint_bias(t, q, v))

    def compliance(self, t: Scalar, q: Coordinates) -> Rows | None:
        """Return C (nc,) with zeros for the goals; None where all rows are hard."""
        own = self.system.compliance(t, q)
        if own is None:
            return None
        return self._merged(t, q, own, jnp.zeros((self._rows.sizes(q).nc,), q.dtype))

    @property
    def driven_rows(self) -> int:
        """The number of last rows that hold inner velocities at inputs; 0 if goal rows follow them."""
        return 0 if any(map(has_rate, self.goals)) else self.system.driven_rows

    def sizes(self, q: Any) -> Sizes:
        """Return the sizes of the system with the rows of the goals."""
        own, goals = self.system.sizes(q), self._rows.sizes(q)
        return own._replace(ng=own.ng + goals.ng, nw=own.nw + goals.nw)

    @property
    def names(self) -> Names:
        """The names of the inner system, without rows: the number of rows of a goal depends on its output."""
        return self.system.names._replace(rows=(), row_units=())

    @property
    def _rows(self) -> _GoalSystem:
        for goal in self.goals:
            if has_both_targets(goal):
                raise ValueError("WithGoals.goals: a goal with both a target and a rate needs the step h: use VelocityStepping")
        if input_count(self.goals):
            raise ValueError("WithGoals.goals: a constraint sees no inputs: an InputTarget needs VelocityStepping")
        return _GoalSystem(self.system, self.goals)

    def _merged(self, t: Any, q: Any, own: Any, goals: Any) -> Any:
        """Return rows of the system and of goals, with all position-level rows first."""
        first, second = self._counts(q)
        return jnp.concatenate([own[:first], goals[:second], own[first:], goals[second:]])

    def _merged_rows(self, q: Any, own: JacobianOperator, goals: JacobianOperator) -> JacobianOperator:
        first, second = self._counts(q)
        (above, below), (goals_above, goals_below) = (
            (rows.leading(count), rows.between(count, rows.shape[0])) for rows, count in ((own, first), (goals, second))
        )
        return above.stacked(goals_above, below, goals_below)

    def _counts(self, q: Any) -> tuple[int, int]:
        """Return the number of position-level rows of the system and of the goals."""
        return self.system.sizes(q).ng, self._rows.sizes(q).ng


def _joined(rows: list[Any], q: Any) -> Any:
    return jnp.concatenate(rows) if rows else jnp.zeros((0,), q.dtype)
