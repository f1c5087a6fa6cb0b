"""Episodes of a task, as pure functions of one world: `jax.vmap` makes thousands of them, `jax.grad` differentiates through them.

    environment = Environment(task)
    state, observation = environment.reset(key, params)
    found = environment.step(key, state, action, params)      # found.state, found.observation, found.reward, ...

`params` are leaves of the system by dotted path, such as {"mass": ..., "gravity": ...}; {} or None is the system as it is. They are
arguments of the compiled program like any others: a world for each, gradients with respect to them, no derived constants to refresh.

A world whose simulation fails stays at its last good state, says why in `status`, and its episode is over as *terminated*, with the reward
`Task.failure`: NaN reaches neither observation nor reward, and derivatives stay finite (`jaxdae.guard`). Every leaf is strongly typed, so
that a loop over steps compiles once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import get_leaf, pytree, set_leaf, static
from jaxdae.batching.layout import Fused
from jaxdae.checkpointing import Keep
from jaxdae.consistency import first_status
from jaxdae.envs.task import Start, Task, check_task
from jaxdae.fused import fuse
from jaxdae.integrators.interface import checked_input
from jaxdae.rollout_arguments import Plan, as_controls, checked_tolerance
from jaxdae.status import Status, first_failure
from jaxdae.system import State, checked_state
from jaxdae.trajectory import advance
from jaxdae.typing import Leaf


@pytree
class EnvState:
    """Where an episode is.

    Attributes:
        state: the mechanical state.
        memory: what the integrator carries.
        goal: of the episode, see `Task`.
        status: `jaxdae.Status` () of the simulation; anything but OK is its end.
        count: actions () since the episode began.
    """

    state: Any
    memory: Any
    goal: Any
    status: Leaf
    count: Leaf


@pytree
class Step:
    """What an action led to.

    Attributes:
        state: from where the next action goes on.
        observation: (no,) there.
        reward: of the action ().
        terminated: whether the episode is over (), for good or bad, or because its simulation failed.
        truncated: whether it was cut off after `Task.limit` actions () and not terminated: what would have come is not worth nothing.
        final_observation: (no,) at the end of the action, before any reset; the observation itself without `AutoReset`.
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
        """Whether the episode is over for either reason ()."""
        return self.terminated | self.truncated


@pytree
class Environment:
    """The episodes of a task; see the module.

    Attributes:
        task: the task.
        kernel: `Fused()` to run the simulation of an action as one kernel on CPUs, for batches made by `jax.vmap`; None for XLA. XLA runs
            resets, observations and rewards in both cases.

    Differentiable with respect to task, state, action and params, as far as its functions are; forward and reverse.
    """

    task: Any
    kernel: Fused | None = static(default=None)

    def reset(self, key: Any, params: Mapping[str, Any] | None = None) -> tuple[EnvState, Any]:
        """Returns the state and the observation (no,) with which an episode begins.

        Args:
            key: of random numbers.
            params: leaves of the system by path; None for the system as it is.

        Raises:
            TypeError: no task, or a reset that returns something else than a `Start`.
            ValueError: params that name no leaf of the system, or have another shape.
        """
        task = self.task
        check_task(task)
        system = with_params(task.system, params)
        start = task.reset(key, system)
        if not isinstance(start, Start):
            raise TypeError(f"Task.reset must return a jaxdae.envs.Start(state, goal), got {type(start).__name__}")
        state = checked_state(start.state)
        dt = jnp.asarray(task.dt, state.q.dtype)
        tolerance = checked_tolerance(None, state.q.dtype)
        begun = first_status(*jax.lax.stop_gradient((system, task.integrator, task.control, state, dt, tolerance)), False)
        given = jnp.asarray(start.status, jnp.int32)
        memory = task.integrator.init(system, state)
        # The status of `initialize` knows better why a start breaks its constraints.
        status = first_failure(given, begun)
        at = strong(EnvState(state, memory, start.goal, status, jnp.zeros((), jnp.int32)))
        return at, self._observed(system, at)

    def step(self, key: Any, state: EnvState, action: Any, params: Mapping[str, Any] | None = None) -> Step:
        """Returns what an action leads to.

        Args:
            key: of random numbers; a step as such needs none, wrappers such as `AutoReset` do.
            state: from `reset` or the step before. After the end of an episode, the world goes on all the same where it has not failed.
            action: (actions,) between -1 and 1.
            params: as in `reset`; the same ones throughout an episode.

        Raises:
            ValueError: an action of another shape, or params as in `reset`.
        """
        task = self.task
        system = with_params(task.system, params)
        before = state.state
        action = jnp.asarray(action, before.q.dtype)
        if action.shape != (task.actions,):
            raise ValueError(f"action must have shape ({task.actions},), got {action.shape}; jax.vmap steps many worlds")
        new, memory, status = _simulated(task, system, state, action, self.kernel)
        failed = status != Status.OK
        # An action that is NaN fails the world; it must not reach the reward, nor its derivative.
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
        """Returns the observation (no,) of a state."""
        return self._observed(with_params(self.task.system, params), state)

    def is_over(self, state: EnvState, params: Mapping[str, Any] | None = None) -> Any:
        """Returns whether the episode is over in a state (), for good or bad, or because its simulation failed."""
        return self._is_over(with_params(self.task.system, params), state)

    def _is_over(self, system: Any, at: EnvState) -> Any:
        return jnp.asarray(self.task.terminated(system, at.state, at.goal), bool) | (at.status != Status.OK)

    def _observed(self, system: Any, at: EnvState) -> Any:
        observation = jnp.asarray(self.task.observe(system, at.state, at.goal), at.state.q.dtype)
        if observation.ndim != 1:
            raise ValueError(f"Task.observe must return a vector, got shape {observation.shape}; jnp.concatenate([...]) makes one")
        return strong(observation)


@pytree
class AutoReset:
    """An environment that begins a new episode in the step that ends one.

    `observation` and `state` are then those of the new episode, `final_observation` and `status` those of the end of the old one; reward,
    `terminated` and `truncated` belong to the old one. The reset is computed in every step and taken where it is needed, as compiled
    batches have it; where `Task.reset` is dear, because it closes loops, draw from `StartPool`.

    Attributes:
        environment: what is reset.
    """

    environment: Any

    @property
    def task(self) -> Task:
        """The task of the environment."""
        return self.environment.task

    def reset(self, key: Any, params: Mapping[str, Any] | None = None) -> tuple[EnvState, Any]:
        """Returns the state and the observation (no,) with which an episode begins."""
        return self.environment.reset(key, params)

    def step(self, key: Any, state: EnvState, action: Any, params: Mapping[str, Any] | None = None) -> Step:
        """Returns what an action leads to, and the begin of the next episode where this one is over."""
        key_step, key_reset = jax.random.split(key)
        found = self.environment.step(key_step, state, action, params)
        fresh = self.environment.reset(key_reset, params)
        at, observation = jax.tree.map(lambda new, old: jnp.where(found.done, new, old), fresh, (found.state, found.observation))
        return dataclasses.replace(found, state=at, observation=observation)


def with_params(system: Any, params: Mapping[str, Any] | None) -> Any:
    """Returns the system with leaves replaced by path.

    Args:
        system: any pytree.
        params: new leaves by dotted path, each of the shape of the old one; None for none.

    Raises:
        ValueError: a path that names no leaf, or another shape; all of them at once.
    """
    wrong, real = [], real_type(system)
    for path, value in (params or {}).items():
        try:
            old = get_leaf(system, path)
        except KeyError as error:
            wrong.append(str(error.args[0]))
            continue
        if not jax.tree_util.all_leaves([old]):
            wrong.append(f"{path!r} is no leaf of the system; jaxdae.leaf_paths(system) lists them")
        elif jnp.shape(value) != jnp.shape(old):
            wrong.append(f"{path!r} must have shape {jnp.shape(old)}, got {jnp.shape(value)}; jax.vmap takes stacks of worlds apart")
        else:
            system = set_leaf(system, path, _as_leaf(value, jnp.result_type(old), real))
    if wrong:
        raise ValueError(f"params: {'; '.join(wrong)}")
    return system


def _as_leaf(value: Any, dtype: Any, real: Any) -> Any:
    """Returns a value in the type of the leaf that it replaces; reals stay so where they replace a whole number."""
    new = jnp.asarray(value)
    stays = jnp.issubdtype(new.dtype, jnp.inexact) and not jnp.issubdtype(dtype, jnp.inexact)
    return new.astype(real if stays else dtype)


def real_type(system: Any) -> Any:
    """Returns the type of the real arrays of a system; the default one where it has none."""
    types = (jnp.result_type(leaf) for leaf in jax.tree.leaves(system) if not isinstance(leaf, float))
    return next((dtype for dtype in types if jnp.issubdtype(dtype, jnp.inexact)), jnp.result_type(float))


def strong(tree: Any) -> Any:
    """Returns the tree with every leaf a strongly typed array: a weak type, as of 0.0, would compile the next step anew."""
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x) if not isinstance(x, np.generic) else x.dtype), tree)


def _simulated(task: Task, system: Any, at: EnvState, action: Any, kernel: Fused | None) -> tuple[State, Any, Any]:
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
