"""Tasks: a mechanical system, its integrator, and functions for start, observation, reward and termination.

Every part of a task is a separate value that you can replace (`dataclasses.replace`): another reward, other
observations, a controller between policy and motors, a longer horizon. The *goal* holds the data that a
function needs beyond the state of the system, such as a target position. It is any pytree of arrays, drawn at
the start of an episode and constant until its end.

    reset(key, system) -> Start                          initial state and goal
    observe(system, state, goal) -> (no,)                observation of the policy
    control(action) -> (nu,), or a law (t, state) -> (nu,)   inputs of an action
    reward(system, state, action, new, goal) -> ()       reward of the transition from `state` to `new`
    terminated(system, state, goal) -> ()                whether the episode is over, by success or failure

All functions see `system` with the parameters of their world, so that a reward may depend on the mass of a
randomized robot.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.integrators.integrator import check_integrator
from jaxdae.integrators.method import check_resolves
from jaxdae.rollouts.rollout_arguments import check_dt
from jaxdae.systems.system import check_system
from jaxdae.typing import Leaf


@pytree
class Start:
    """The start of an episode.

    Attributes:
        state: a consistent `State`; the environment checks it and otherwise reports INCONSISTENT_START.
        goal: data for the functions of the task beyond the state: any pytree of arrays, () for none.
        status: `InitializeInfo.status` () if `initialize` computed the state; OK otherwise.
    """

    state: Any
    goal: Any = ()
    status: Any = 0


@pytree
class Limits:
    """Scale actions between -1 and 1, one per input, by the limits of the inputs.

    Attributes:
        limits: (nu,) limits of the inputs, in their units.

    Actions are clipped to -1 and 1 with zero derivative. End a policy in tanh if you differentiate its
    actions.
    """

    limits: Leaf

    def __call__(self, action: Any) -> Any:
        """Return the inputs (nu,)."""
        return self.limits * jnp.clip(action, -1.0, 1.0)


def never(system: Any, state: Any, goal: Any) -> Any:
    """Return False: only the limit of actions ends the episode."""
    return jnp.zeros((), bool)


@pytree
class Task:
    """A task, see the module; functions may be plain functions or pytrees with `__call__` and tunable leaves.

    Attributes:
        system: the mechanical system. Its leaves are the parameters that may differ between worlds.
        integrator: a one-step method, such as `Projected(SemiImplicitEuler())`.
        reset: start of an episode.
        observe: observation of the policy.
        reward: reward of a transition.
        terminated: whether the episode is over; `never` by default.
        control: inputs of an action; `Limits(...)` for motors.
        actions: number of entries of an action, each between -1 and 1.
        dt: duration of a step in s.
        steps: number of steps per action.
        limit: number of actions after which an episode is truncated; None for no limit.
        failure: reward of an action whose simulation fails, in place of `reward`. With negative rewards, an
            early end is profitable unless this is worse than the remaining rewards.
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
    """Raise if a task is invalid, with all mistakes in its counts at once.

    Raises:
        TypeError: an invalid task, system, integrator or function.
        ValueError: counts or a step that are not positive.
    """
    if not isinstance(task, Task):
        raise TypeError(
            f"expected a jaxdae.envs.Task, got {type(task).__name__}; functions such as cart_pole() return "
            "one"
        )
    check_system(task.system)
    check_integrator(task.integrator)
    check_resolves(task.system, task.integrator)
    check_dt(task.dt)
    wrong = []
    for name in ("actions", "steps", "limit"):
        value = getattr(task, name)
        if name == "limit" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            wrong.append(
                f"{name} must be a positive integer{' or None' if name == 'limit' else ''}, got {value!r}"
            )
    if wrong:
        raise ValueError(f"Task: {'; '.join(wrong)}")
    missing = [
        name
        for name in ("reset", "observe", "reward", "terminated", "control")
        if not callable(getattr(task, name))
    ]
    if missing:
        raise TypeError(f"Task: {', '.join(missing)} must be functions, or pytrees with __call__")
