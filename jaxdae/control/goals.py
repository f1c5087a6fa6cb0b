"""Goals: motors and end effectors as constraint rows.

A goal prescribes the position or the rate of an output y(q), such as a joint angle or the position of a hand.
With the error psi = y(q) - y*(t), the rows of a goal in a step of length h are

    position target     psi' + (beta / h) psi = 0          psi' = Jy v - dy*/dt
    velocity target     Jy v - y'* = 0
    both                Jy v - y'* + (beta / h) psi = 0    the bias pulls to y*, for any requested rate y'*

beta is the fraction of the error that a step removes: 1 removes all of it, and 2 or more diverges. The
multiplier of a row is the required motor effort: N m for a row in rad and N for a row in m. A target is a
number or an array, a function of time (a pytree with `__call__(t)` such as `jaxdae.mechanisms.Sinusoid`,
differentiated by autodiff), or an input, `InputTarget`, that is held over the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeGuard

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import came, offers
from jaxdae.control.outputs import along_motion, check_index, checked_vector, output_jacobian
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Coordinates, Input

Vector = Float[Array, " k"]


@pytree
class InputTarget:
    """A target that is read from the inputs: u[index] of the goal inputs.

    The goal inputs are the last entries of u, after the inputs of the system itself.

    Attributes:
        index: index of the input, or one index per row, counted from the first goal input (static).
    """

    index: int | tuple[int, ...] = static()


class AnyGoal(Protocol):
    """A provider of goal rows: `Goal`, `FunctionGoal`, or your own class.

    Three further fields or properties are optional, with the same meaning as in `Goal`:

    * `input_count`: the number of goal inputs that the goal reads; 0 if missing.
    * `rate`: gives the goal velocity-level rows in `WithGoals`.
    * `target`: in combination with a rate, requires the step length.
    """

    def moving(self, t: Any, q: Coordinates) -> Vector:
        """Return the controlled quantity (k,), a function of q; its derivative is J."""
        ...

    def error(self, t: Any, q: Coordinates, u: Input) -> Vector:
        """Return psi (k,); zero in rows without a position target."""
        ...

    def error_rate(self, system: AnySystem, state: State, u: Input) -> Vector:
        """Return the rows without their bias (k,): rate of the controlled quantity minus target rate."""
        ...


@pytree
class Goal:
    """A goal for an output: a target position, a target rate, or both; see the module.

    Attributes:
        output: y(q) (k,), a pytree with `__call__(q)`: `Coordinates`, `JointCoordinate`, `BodyPoint`,
            `BodyFrame`, or your own class; a plain function is part of the program.
        target: y*, in the unit of y; None for no position target.
        rate: y'*, in the unit of y per second; None for the derivative of the target.

    A target without a rate of its own, an `InputTarget`, counts as constant over the step.
    """

    output: Any = function_field()
    target: Any = function_field(default=None)
    rate: Any = function_field(default=None)

    def moving(self, t: Any, q: Coordinates) -> Vector:
        """Return y (k,)."""
        if self.target is None and self.rate is None:
            raise ValueError("Goal: give a target, a rate, or both")
        return checked_vector("Goal.output(q)", self.output(q))

    def error(self, t: Any, q: Coordinates, u: Input) -> Vector:
        """Return y - y* (k,), zero without a target."""
        y = self.moving(t, q)
        return jnp.zeros_like(y) if self.target is None else y - _value("target", self.target, t, u, y)

    def error_rate(self, system: AnySystem, state: State, u: Input) -> Vector:
        """Return y' - y'* (k,)."""
        if self.rate is None:
            return along_motion(system, state, lambda t, q: self.error(t, q, u))[1]
        y, rate = along_motion(system, state, self.moving)
        return rate - _value("rate", self.rate, state.t, u, y)

    @property
    def input_count(self) -> int:
        """The number of goal inputs that the targets read."""
        return max((_input_count(x) for x in (self.target, self.rate)), default=0)


@pytree
class FunctionGoal:
    """psi(t, q) = 0 for a user-defined function.

    Attributes:
        residual: called with (t, q), returns psi (k,): a pytree whose numbers are leaves, or a plain
            function, which is part of the program.
    """

    residual: Any = function_field()

    def moving(self, t: Any, q: Coordinates) -> Vector:
        """Return psi (k,)."""
        return checked_vector("FunctionGoal.residual(t, q)", self.residual(t, q))

    def error(self, t: Any, q: Coordinates, u: Input) -> Vector:
        """Return psi (k,)."""
        return self.moving(t, q)

    def error_rate(self, system: AnySystem, state: State, u: Input) -> Vector:
        """Return psi' (k,), including the explicit time derivative."""
        return along_motion(system, state, self.moving)[1]

    @property
    def input_count(self) -> int:
        """0: the function reads no inputs."""
        return 0


GOALS_TEXT = "goals must be a tuple of Goal(output, target) or FunctionGoal(residual)"


def are_goals(goals: Any) -> TypeGuard[tuple[AnyGoal, ...]]:
    """Return whether an object is a tuple or a list of goals."""
    return isinstance(goals, tuple | list) and all(
        offers(goal, "moving", "error", "error_rate") for goal in goals
    )


class GoalRows(NamedTuple):
    """The rows of goals at a state: psi (k,), psi' (k,) and J (k, nv)."""

    error: Any
    rate: Any
    jacobian: Any


def goal_rows(system: AnySystem, goals: tuple[Any, ...], state: State, u: Input = None) -> GoalRows:
    """Return the rows of all goals, in the order of the goals; differentiable.

    Args:
        system: the mechanical system, whose `retract` defines how v changes q.
        goals: `Goal` or `FunctionGoal`.
        state: time (s), coordinates and velocities.
        u: the goal inputs.

    Raises:
        ValueError: no goal, an output that is not a vector, or targets that do not fit it.
        TypeError: goals that are not a tuple or a list of goals, or an output that is not an array.
    """
    if not are_goals(goals):
        raise TypeError(f"{GOALS_TEXT}, got {came(goals)}")
    if not goals:
        raise ValueError("goals must hold at least one goal")
    error = jnp.concatenate([goal.error(state.t, state.q, u) for goal in goals])
    rate = jnp.concatenate([goal.error_rate(system, state, u) for goal in goals])
    jacobian = [
        output_jacobian(system, state, lambda q, goal=goal: goal.moving(state.t, q)) for goal in goals
    ]
    return GoalRows(error, rate, jnp.concatenate(jacobian))


def input_count(goals: tuple[Any, ...]) -> int:
    """Return the number of inputs that the targets of goals read."""
    return max((goal.input_count for goal in goals if offers(goal, "input_count")), default=0)


def has_rate(goal: Any) -> bool:
    """Return whether a goal has a velocity target of its own, which puts its rows at velocity level."""
    return offers(goal, "rate") and goal.rate is not None


def has_both_targets(goal: Any) -> bool:
    """Return whether a goal has a position and a velocity target; weighting them requires the step length."""
    return has_rate(goal) and offers(goal, "target") and goal.target is not None


def _value(name: str, target: Any, t: Any, u: Input, y: Any) -> Any:
    """Return a target (k,) at time t."""
    if isinstance(target, InputTarget):
        if u is None:
            raise ValueError(f"Goal.{name} is read from the inputs, but there is no input; pass controls")
        u = jnp.asarray(u, y.dtype)
        if u.ndim != 1:
            raise ValueError(
                f"Goal.{name} is read from the inputs, which must be a vector (nu,), got shape {u.shape}"
            )
        for k in _indices(target):
            check_index("InputTarget.index", k, u.shape[0], "goal input")
        value = u[jnp.asarray(target.index)]
    else:
        value = jnp.asarray(target(t) if callable(target) else target, y.dtype)
    if value.shape not in ((), y.shape):
        raise ValueError(
            f"Goal.{name} must be a number or have one entry per row, shape {y.shape}, got {value.shape}"
        )
    return jnp.broadcast_to(value, y.shape)


def _input_count(target: Any) -> int:
    if not isinstance(target, InputTarget):
        return 0
    count = max(_indices(target)) + 1
    for k in _indices(target):
        check_index("InputTarget.index", k, count, "goal input")
    return count


def _indices(target: InputTarget) -> tuple[Any, ...]:
    return target.index if isinstance(target.index, tuple) else (target.index,)
