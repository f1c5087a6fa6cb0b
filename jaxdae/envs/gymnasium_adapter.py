"""The Gymnasium adapter: NumPy inputs and outputs around one compiled program."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from jaxdae.envs.environment import AutoReset


def _spaces(environment: Any) -> tuple[spaces.Box, spaces.Box]:
    """Return the spaces of observations and actions of one world."""
    _, observation = jax.eval_shape(environment.reset, jax.random.key(0))
    dtype: Any = np.dtype(observation.dtype)
    return (
        spaces.Box(-np.inf, np.inf, observation.shape, dtype),
        spaces.Box(-1.0, 1.0, (environment.task.actions,), dtype),
    )


class SingleEnvironment(gymnasium.Env):
    """One world as a `gymnasium.Env`; see `to_gymnasium`."""

    metadata = {"render_modes": []}  # noqa: RUF012  # as upstream

    def __init__(self, environment: Any, seed: int, params: Any):
        """Store the environment without compiling it."""
        self.observation_space, self.action_space = _spaces(environment)
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._params, self._key, self._state = dict(params or {}), jax.random.key(seed), None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the first observation and its status."""
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, key = jax.random.split(self._key)
        self._state, observation = self._reset(key, self._params)
        return np.asarray(observation), {"status": int(self._state.status)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated and the status."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        self._key, key = jax.random.split(self._key)
        found = self._step(key, self._state, np.asarray(action, self.action_space.dtype), self._params)
        self._state = found.state
        ends = bool(found.terminated), bool(found.truncated)
        return np.asarray(found.observation), float(found.reward), *ends, {"status": int(found.status)}


class ManyEnvironments(VectorEnv):
    """Many worlds as a `gymnasium.vector.VectorEnv`; see `to_gymnasium`."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}  # noqa: RUF012  # as upstream

    def __init__(self, environment: Any, worlds: int, seed: int, params: Any):
        """Store the environment without compiling it."""
        self.num_envs = worlds
        self.single_observation_space, self.single_action_space = _spaces(environment)
        self.observation_space = batch_space(self.single_observation_space, worlds)
        self.action_space = batch_space(self.single_action_space, worlds)
        self._params, self._key, self._state = dict(params or {}), jax.random.key(seed), None
        wrong = {path: jnp.shape(x) for path, x in self._params.items() if jnp.shape(x)[:1] != (worlds,)}
        if wrong:
            raise ValueError(
                f"to_gymnasium: params must be stacked over the {worlds} worlds, got shapes {wrong}"
            )
        inside = AutoReset(environment)

        def reset(key: Any, params: Any) -> Any:
            return jax.vmap(inside.reset)(jax.random.split(key, worlds), params)

        def step(key: Any, state: Any, actions: Any, params: Any) -> Any:
            return jax.vmap(inside.step)(jax.random.split(key, worlds), state, actions, params)

        self._reset, self._step = jax.jit(reset), jax.jit(step)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the first observations (worlds, no), and the status of every world."""
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._key, key = jax.random.split(self._key)
        self._state, observation = self._reset(key, self._params)
        # A copy, as in `step`.
        return np.array(observation), {"status": np.asarray(self._state.status)}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return observations, rewards, terminated, truncated (worlds, ...) and infos."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        self._key, key = jax.random.split(self._key)
        found = self._step(
            key, self._state, np.asarray(actions, self.single_action_space.dtype), self._params
        )
        self._state = found.state
        # Copies: JAX returns read-only arrays, but some trainers write to them.
        observation, reward, terminated, truncated = (
            np.array(x) for x in (found.observation, found.reward, found.terminated, found.truncated)
        )
        infos: dict[str, Any] = {"status": np.asarray(found.status)}
        done = terminated | truncated
        if np.any(done):
            final = np.full(self.num_envs, None, dtype=object)
            last = np.array(found.final_observation)
            for k in np.flatnonzero(done):
                final[k] = last[k]
            infos |= {"final_obs": final, "_final_obs": done}
        return observation, reward, terminated, truncated, infos
