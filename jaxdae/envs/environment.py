"""Episodes of a task, as pure functions of one world: batch with `jax.vmap`, differentiate with `jax.grad`.

    environment = Environment(task)
    state, observation = environment.reset(key, params)
    found = environment.step(key, state, action, params)      # found.state, found.observation, found.reward,
    ...

`params` are leaves of the system by dotted path, such as {"mass": ..., "gravity": ...}. {} or None leaves the
system unchanged. They are ordinary arguments of the compiled program: they may differ between worlds,
gradients with respect to them exist, and no derived constants need a refresh.

If the simulation of a world fails, the world stays at its last good state, and `status` gives the reason. Its
episode is then *terminated* with the reward `Task.failure`. Observation and reward do not become NaN, and
derivatives stay finite (`jaxdae.rollouts.guard`). Every leaf is strongly typed, so that a loop over steps
compiles only once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import get_leaf, pytree, set_leaf, static
from jaxdae.compile.layout import Fused
from jaxdae.compile.rematerialization import Keep
from jaxdae.envs.task import Start, Task, check_task
from jaxdae.fused import fuse
from jaxdae.integrators.integrator import checked_input
from jaxdae.integrators.stability import feedback_status
from jaxdae.rollouts.rollout_arguments import Plan, as_controls, checked_tolerance
from jaxdae.rollouts.trajectory import advance
from jaxdae.systems.consistency import first_status
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import State, checked_state
from jaxdae.typing import Leaf


@pytree
class EnvState:
    """The state of an episode.

    Attributes:
        state: the mechanical state.
        memory: the carry of the integrator.
        goal: goal of the episode, see `Task`.
        status: `jaxdae.Status` () of the simulation; a status other than OK ends it.
        count: number of actions () since the start of the episode.
    """

    state: Any
    memory: Any
    goal: Any
    status: Leaf
    count: Leaf


@pytree
class Step:
    """The result of an action.

    Attributes:
        state: episode state for the next action.
        observation: observation (no,) of this state.
        reward: reward of the action ().
        terminated: whether the episode is over (), by success, by failure, or because its simulation failed.
        truncated: whether the episode was truncated after `Task.limit` actions () without termination; the
            value of its remaining rewards is then not zero.
        final_observation: (no,) at the end of the action, before any reset; equal to `observation` without
            `AutoReset`.
        status: `jaxdae.Status` () of the simulation at the end of the action, before any reset.
    """

    state: Any
    observation: Leaf
    reward: Leaf
    terminated: Leaf
    truncated: Leaf
    final_observation: Leaf
    status: Leaf

    @property
    def done(self) -> Any:
        """Whether the episode is terminated or truncated ()."""
        return self.terminated | self.truncated


@pytree
class Environment:
    """The episodes of a task; see the module.

    Attributes:
        task: the task.
        kernel: `Fused()` to run the simulation of an action as one CPU kernel, for batches of `jax.vmap`;
            None for XLA. XLA always runs resets, observations and rewards.

    Differentiable with respect to task, state, action and params, as far as the functions of the task are,
    forward and reverse.
    """

    task: Any
    kernel: Fused | None = static(default=None)

    def reset(self, key: Any, params: Mapping[str, Any] | None = None) -> tuple[EnvState, Any]:
        """Return the initial state and observation (no,) of an episode.

        Args:
            key: random key.
            params: leaves of the system by path; None for the unmodified system.

        Raises:
            TypeError: task is not a `Task`, or its reset does not return a `Start`.
            ValueError: params that name no leaf of the system, or have another shape.
        """
        task = self.task
        check_task(task)
        system = with_params(task.system, params)
        start = task.reset(key, system)
        if not isinstance(start, Start):
            raise TypeError(
                f"Task.reset must return a jaxdae.envs.Start(state, goal), got {type(start).__name__}"
            )
        state = checked_state(start.state)
        dt = jnp.asarray(task.dt, state.q.dtype)
        tolerance = checked_tolerance(None, state.q.dtype)
        begun = first_status(
            *jax.lax.stop_gradient((system, task.integrator, task.control, state, dt, tolerance)), False
        )
        gains = feedback_status(*jax.lax.stop_gradient((system, task.integrator, state, dt)))
        given = jnp.asarray(start.status, jnp.int32)
        memory = task.integrator.init(system, state)
        # The status of `initialize` is more specific about why a start violates its constraints.
        status = first_failure(given, begun, gains)
        at = strong(EnvState(state, memory, start.goal, status, jnp.zeros((), jnp.int32)))
        return at, self._observed(system, at)

    def step(self, key: Any, state: EnvState, action: Any, params: Mapping[str, Any] | None = None) -> Step:
        """Return the result of an action.

        Args:
            key: random key; a plain step ignores it, wrappers such as `AutoReset` use it.
            state: state from `reset` or the previous step. A world that has not failed continues after the
                end of an episode.
            action: (actions,) between -1 and 1.
            params: as in `reset`, and constant throughout an episode.

        Raises:
            ValueError: an action of another shape, or invalid params as in `reset`.
        """
        task = self.task
        system = with_params(task.system, params)
        before = state.state
        action = jnp.asarray(action, before.q.dtype)
        if action.shape != (task.actions,):
            raise ValueError(
                f"action must have shape ({task.actions},), got {action.shape}; use jax.vmap for many worlds"
            )
        new, memory, status = _simulated(task, system, state, action, self.kernel)
        failed = status != Status.OK
        # A NaN action fails the world. It must not affect the reward or its derivative.
        seen = jnp.where(failed, jnp.zeros_like(action), action)
        worth = jnp.asarray(task.reward(system, before, seen, new, state.goal), before.q.dtype)
        if worth.shape != ():
            raise ValueError(f"Task.reward must return a single number, got shape {worth.shape}")
        reward = jnp.where(failed, jnp.asarray(task.failure, worth.dtype), worth)
        count = state.count + 1
        at = EnvState(new, memory, state.goal, status, count)
        terminated = self._is_over(system, at)
        truncated = jnp.zeros((), bool) if task.limit is None else (count >= task.limit) & ~terminated
        observation = self._observed(system, at)
        return strong(Step(at, observation, reward, terminated, truncated, observation, status))

    def observe(self, state: EnvState, params: Mapping[str, Any] | None = None) -> Any:
        """Return the observation (no,) of a state."""
        return self._observed(with_params(self.task.system, params), state)

    def is_over(self, state: EnvState, params: Mapping[str, Any] | None = None) -> Any:
        """Return whether the episode is over in a state (): success, failure, or a failed simulation."""
        return self._is_over(with_params(self.task.system, params), state)

    def _is_over(self, system: Any, at: EnvState) -> Any:
        return jnp.asarray(self.task.terminated(system, at.state, at.goal), bool) | (at.status != Status.OK)

    def _observed(self, system: Any, at: EnvState) -> Any:
        observation = jnp.asarray(self.task.observe(system, at.state, at.goal), at.state.q.dtype)
        if observation.ndim != 1:
            raise ValueError(
                f"Task.observe must return a vector, got shape {observation.shape}; use "
                "jnp.concatenate([...])"
            )
        return strong(observation)


@pytree
class AutoReset:
    """An environment that starts a new episode in the step that ends the previous episode.

    In that step `observation` and `state` belong to the new episode. `final_observation`, `status`, reward,
    `terminated` and `truncated` belong to the old episode. As usual in compiled batches, every step computes
    the reset and selects it if needed. If `Task.reset` is expensive, because it closes loops, draw starts
    from a `StartPool`.

    Attributes:
        environment: the environment to reset.
    """

    environment: Any

    @property
    def task(self) -> Task:
        """The task of the environment."""
        return self.environment.task

    def reset(self, key: Any, params: Mapping[str, Any] | None = None) -> tuple[EnvState, Any]:
        """Return the initial state and observation (no,) of an episode."""
        return self.environment.reset(key, params)

    def step(self, key: Any, state: EnvState, action: Any, params: Mapping[str, Any] | None = None) -> Step:
        """Return the result of an action, with the start of the next episode if this episode is over."""
        key_step, key_reset = jax.random.split(key)
        found = self.environment.step(key_step, state, action, params)
        fresh = self.environment.reset(key_reset, params)
        at, observation = jax.tree.map(
            lambda new, old: jnp.where(found.done, new, old), fresh, (found.state, found.observation)
        )
        return dataclasses.replace(found, state=at, observation=observation)


def with_params(system: Any, params: Mapping[str, Any] | None) -> Any:
    """Return the system with leaves replaced by path.

    Args:
        system: any pytree.
        params: new leaves by dotted path, each with the shape of the old leaf; None for no replacement.

    Raises:
        ValueError: paths that name no leaf, or other shapes; the message lists all of them.
    """
    wrong, real = [], real_type(system)
    for path, value in (params or {}).items():
        try:
            old = get_leaf(system, path)
        except KeyError as error:
            wrong.append(str(error.args[0]))
            continue
        if not jax.tree_util.all_leaves([old]):
            wrong.append(
                f"{path!r} is not a leaf of the system; jaxdae.tree.leaf_paths(system) lists all leaves"
            )
        elif jnp.shape(value) != jnp.shape(old):
            wrong.append(
                f"{path!r} must have shape {jnp.shape(old)}, got {jnp.shape(value)}; use jax.vmap for "
                "stacked worlds"
            )
        else:
            system = set_leaf(system, path, _as_leaf(value, jnp.result_type(old), real))
    if wrong:
        raise ValueError(f"params: {'; '.join(wrong)}")
    return system


def _as_leaf(value: Any, dtype: Any, real: Any) -> Any:
    """Return a value with the dtype of the replaced leaf; a real value for an integer leaf stays real."""
    new = jnp.asarray(value)
    stays = jnp.issubdtype(new.dtype, jnp.inexact) and not jnp.issubdtype(dtype, jnp.inexact)
    return new.astype(real if stays else dtype)


def real_type(system: Any) -> Any:
    """Return the dtype of the real arrays of a system; the default real dtype if it has none."""
    types = (jnp.result_type(leaf) for leaf in jax.tree.leaves(system) if not isinstance(leaf, float))
    return next((dtype for dtype in types if jnp.issubdtype(dtype, jnp.inexact)), jnp.result_type(float))


def strong(tree: Any) -> Any:
    """Return the tree with strongly typed arrays: a weak type, as of 0.0, would recompile the next step."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, jnp.result_type(x) if not isinstance(x, np.generic) else x.dtype), tree
    )


def _simulated(
    task: Task, system: Any, at: EnvState, action: Any, kernel: Fused | None
) -> tuple[State, Any, Any]:
    """Return state, memory and status at the end of an action."""
    before = at.state
    given = task.control(action)
    if callable(given):
        controls = as_controls(given, before)
    else:
        u = checked_input(task.control, given, system)
        controls = jnp.broadcast_to(u, (task.steps, *u.shape))
    plan = Plan(task.steps, task.steps, 0, Keep.STATES)
    dt = jnp.asarray(task.dt, before.q.dtype)

    def simulate(*given: Any) -> tuple[State, Any, Any]:
        (states, info), memory = advance(*given, plan=plan)
        return jax.tree.map(lambda x: x[-1], states), memory, info.status[-1]

    run = simulate if kernel is None else fuse(simulate)
    return run(system, task.integrator, before, controls, dt, at.memory, at.status)
