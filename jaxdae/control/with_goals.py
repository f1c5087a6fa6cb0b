"""Goals as additional constraints of a system, at acceleration level, for any integrator.

The rows of `WithGoals` are ordinary rows: hard and closed by projections, with feedback from a stabilization,
soft with `Soft`, switched with `Masked` and `Switching`. Their multipliers are in `StepInfo.lam`. Limits,
virtual work and targets from inputs require `VelocityStepping`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.control.goals import GOALS_TEXT, are_goals, has_both_targets, has_rate, input_count
from jaxdae.matrices import JacobianOperator
from jaxdae.systems.evaluation import Evaluation, WrappedEvaluation
from jaxdae.systems.names import Names, Sizes
from jaxdae.systems.system import AnySystem, State, System
from jaxdae.systems.wrapper import SameCoordinates, Wrapper
from jaxdae.typing import Coordinates, Residual, Rows, Scalar, Square, Velocity, VelocityResidual


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
        return _joined(
            [goal.error_rate(self.system, State(t, q, v), None) for goal in self.goals if has_rate(goal)], q
        )


@pytree
class _GoalEvaluation(WrappedEvaluation):
    """The terms of a system with goals: position-level rows of the system and of the goals come first."""

    @property
    def _goals(self) -> Evaluation:
        return self.system.goal_rows.evaluate(self.t, self.q, self.v)

    @property
    def position(self) -> Residual:
        return jnp.concatenate([self.inner.position, self._goals.position])

    @property
    def opening(self) -> Residual:
        return jnp.concatenate([self.inner.opening, self._goals.position])

    @property
    def velocity_constraint(self) -> VelocityResidual:
        return jnp.concatenate([self.inner.velocity_constraint, self._goals.velocity_constraint])

    @property
    def constraint_rate(self) -> Residual:
        return jnp.concatenate([self.inner.constraint_rate, self._goals.constraint_rate])

    @property
    def jacobian(self) -> JacobianOperator:
        return self._merged_rows(self.inner.jacobian, self._goals.jacobian)

    @property
    def jacobian_products(self) -> JacobianOperator:
        return self._merged_rows(self.inner.jacobian_products, self._goals.jacobian_products)

    @property
    def bias(self) -> Rows:
        return self._merged(self.inner.bias, self._goals.bias)

    @property
    def compliance(self) -> Rows | None:
        """C (nc,) with zeros for the goals; None if all rows are hard."""
        own = self.inner.compliance
        return (
            None
            if own is None
            else self._merged(own, jnp.zeros((self.system.goal_rows.sizes(self.q).nc,), self.q.dtype))
        )

    def _merged(self, own: Any, goals: Any) -> Any:
        first, second = self._counts
        return jnp.concatenate([own[:first], goals[:second], own[first:], goals[second:]])

    def _merged_rows(self, own: JacobianOperator, goals: JacobianOperator) -> JacobianOperator:
        (above, below), (goals_above, goals_below) = (
            (rows.leading(count), rows.between(count, rows.shape[0]))
            for rows, count in zip((own, goals), self._counts, strict=True)
        )
        return above.stacked(goals_above, below, goals_below)

    @property
    def _counts(self) -> tuple[int, int]:
        """The numbers of position-level rows of the system and of the goals."""
        return self.system.system.sizes(self.q).ng, self.system.goal_rows.sizes(self.q).ng


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

    evaluation: ClassVar[type[WrappedEvaluation]] = _GoalEvaluation
    system: AnySystem
    goals: tuple[Any, ...]

    def requirements(self) -> Any:
        """Yield the conditions on the goals; see `jaxdae.base.requirements`."""
        yield are_goals(self.goals), GOALS_TEXT

    @property
    def driven_rows(self) -> int:
        """The number of last rows that hold inner velocities at inputs; 0 if goal rows follow them."""
        return 0 if any(map(has_rate, self.goals)) else self.system.driven_rows

    def sizes(self, q: Any) -> Sizes:
        """Return the sizes of the system with the rows of the goals."""
        own, goals = self.system.sizes(q), self.goal_rows.sizes(q)
        return own._replace(ng=own.ng + goals.ng, nw=own.nw + goals.nw)

    @property
    def names(self) -> Names:
        """The names of the inner system, without rows: the number of rows of a goal depends on its output."""
        return self.system.names._replace(rows=(), row_units=())

    @property
    def goal_rows(self) -> _GoalSystem:
        """The system with the rows of the goals alone."""
        for goal in self.goals:
            if has_both_targets(goal):
                raise ValueError(
                    "WithGoals.goals: a goal with both a target and a rate needs the step h; use "
                    "VelocityStepping"
                )
        if input_count(self.goals):
            raise ValueError(
                "WithGoals.goals: a constraint has no access to the inputs; use VelocityStepping for an "
                "InputTarget"
            )
        return _GoalSystem(self.system, self.goals)


def _joined(rows: list[Any], q: Any) -> Any:
    return jnp.concatenate(rows) if rows else jnp.zeros((0,), q.dtype)
