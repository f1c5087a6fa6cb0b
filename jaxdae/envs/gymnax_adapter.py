"""The gymnax adapter, release 1.0.1 and newer: six values per step, and differentiable transitions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from gymnax.environments import environment as gymnax_environment  # pyright: ignore[reportMissingImports]
from gymnax.environments import spaces  # pyright: ignore[reportMissingImports]

if not hasattr(gymnax_environment.Environment, "is_truncated"):
    raise ImportError("gymnax is older than 1.0.1: its steps return five values")


class GymnaxEnvironment(gymnax_environment.Environment):
    """One world as a gymnax environment, reset by gymnax; see `to_gymnax`. Params map paths to leaves."""

    _supports_transition_gradients = True

    def __init__(self, environment: Any):
        """Store the environment without compiling it."""
        self._environment = environment

    @property
    def default_params(self) -> Any:
        """Empty params: the unmodified system."""
        return {}

    @property
    def name(self) -> str:
        """The name of the environment."""
        return "jaxdae"

    @property
    def num_actions(self) -> int:
        """The number of entries of an action."""
        return self._environment.task.actions

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Return the initial observation and state of an episode."""
        state, observation = self._environment.reset(key, params)
        return observation, state

    def step_env(
        self, key: Any, state: Any, action: Any, params: Any
    ) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return observation, state, reward, whether the episode terminated, and the simulation status."""
        found = self._environment.step(key, state, action, params)
        observation, at = self._apply_transition_gradient_policy(found.observation, found.state)
        return observation, at, found.reward, found.terminated, {"status": found.status}

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return whether the episode has reached its limit of actions."""
        limit = self._environment.task.limit
        return jnp.zeros((), bool) if limit is None else state.count >= limit

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Return whether the episode is over in a state."""
        return self._environment.is_over(state, params)

    def observe(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Return the observation of a state."""
        return self._environment.observe(state, params)

    def action_space(self, params: Any = None) -> Any:
        """Return the action space."""
        return spaces.Box(-1.0, 1.0, (self.num_actions,), self._observed().dtype)

    def observation_space(self, params: Any = None) -> Any:
        """Return the observation space."""
        seen = self._observed()
        return spaces.Box(-jnp.inf, jnp.inf, seen.shape, seen.dtype)

    def _observed(self) -> Any:
        return jax.eval_shape(self._environment.reset, jax.random.key(0))[1]
