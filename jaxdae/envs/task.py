"""What a policy has to do: a mechanical system, how it is stepped, and pure functions that say how an episode begins, looks, pays and ends.

Every part of a task is a value of its own and may be replaced alone (`dataclasses.replace`): another reward, other observations, a
controller between policy and motors, a longer horizon. What a function needs to know beyond the state of the system, such as the place to
be reached, is its *goal*: any pytree of arrays, drawn when an episode begins, the same until it ends.

    reset(key, system) -> Start                          how an episode begins
    observe(system, state, goal) -> (no,)                what the policy sees
    control(action) -> (nu,), or a law (t, state) -> (nu,)   what an action does
    reward(system, state, action, new, goal) -> ()       what the way from `state` to `new` under the action is worth
    terminated(system, state, goal) -> ()                whether the episode is over, for good or bad

All of them see `system` with the parameters of their world, so that a reward may weigh by the mass that a randomized robot has.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import function_field, pytree, static
from jaxdae.integrators.interface import check_integrator
from jaxdae.rollout_arguments import check_dt
from jaxdae.system import check_system
from jaxdae.typing import Leaf


@pytree
class Start:
    """How an episode begins.

    Attributes:
        state: a consistent `State`; the environment checks it and reports INCONSISTENT_START otherwise.
        goal: what the functions of the task need to know beyond the state: any pytree of arrays, () for nothing.
        status: `InitializeInfo.status` () where `initialize` made the state; OK otherwise.
    """

    state: Any
    goal: Any = ()
    status: Any = 0


@pytree
class Limits:
    """Actions are numbers between -1 and 1, one an input, which are multiplied by the limits of the inputs.

    Attributes:
        limits: (nu,) of the inputs, in their units.

    Larger actions count as -1 or 1; their derivative is zero there, so a policy whose actions are differentiated should end in tanh.
    """

    limits: Leaf

    def __call__(self, action: Any) -> Any:
        """Returns the inputs (nu,)."""
        return self.limits * jnp.clip(action, -1.0, 1.0)


def never(system: Any, state: Any, goal: Any) -> Any:
    """Returns False: a task that only the limit of actions ends."""
    return jnp.zeros((), bool)


@pytree
class Task:
    """A task, see the module; functions may be plain functions or pytrees with `__call__`, whose leaves may be tuned.

    Attributes:
        system: the mechanical system. Its leaves are the parameters that may differ from world to world.
        integrator: a one-step method, such as `Projected(SemiImplicitEuler())`.
        reset: how an episode begins.
        observe: what the policy sees.
        reward: what a transition is worth.
        terminated: whether the episode is over; `never` by default.
        control: what an action does; `Limits(...)` for motors.
        actions: how many numbers an action has, each between -1 and 1.
        dt: of a step, in s.
        steps: how many steps an action lasts.
        limit: after how many actions an episode is truncated; None for never.
        failure: the reward of the action in which a simulation fails, in place of that of `reward`. Where rewards are negative, ending
            early pays, unless this is worse than what was to come.
    """

    system: Any
    integrator: Any
    reset: Any = function_field()
    observe: Any = function_field()
    reward: Any = function_field()
    control: Any = function_field()
    actions: int = static(one_of=int)
    dt: Leaf
    steps: int = static(one_of=int, default=1)
    limit: int | None = static(default=None)
    terminated: Any = function_field(default=jax.tree_util.Partial(never))
    failure: Leaf = 0.0


def check_task(task: Any) -> None:
    """Raises where a task is none, all mistakes of its counts at once.

    Raises:
        TypeError: no task, no system, no integrator, a function that is none.
        ValueError: counts or a step that are not positive.
    """
    if not isinstance(task, Task):
        raise TypeError(f"expected a jaxdae.envs.Task, got {type(task).__name__}; cart_pole() and its like return one")
    check_system(task.system)
    check_integrator(task.integrator)
    check_dt(task.dt)
    wrong = []
    for name in ("actions", "steps", "limit"):
        value = getattr(task, name)
        if name == "limit" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            wrong.append(f"{name} must be a positive integer{' or None' if name == 'limit' else ''}, got {value!r}")
    if wrong:
        raise ValueError(f"Task: {'; '.join(wrong)}")
    missing = [name for name in ("reset", "observe", "reward", "terminated", "control") if not callable(getattr(task, name))]
    if missing:
        raise TypeError(f"Task: {', '.join(missing)} must be functions, or pytrees with __call__")
