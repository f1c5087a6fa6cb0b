"""Environments as those of gymnax, release 1.0.1 and newer: six values a step, and transitions that keep their gradients."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from gymnax.environments import environment as gymnax_environment  # pyright: ignore[reportMissingImports]
from gymnax.environments import spaces  # pyright: ignore[reportMissingImports]

if not hasattr(gymnax_environment.Environment, "is_truncated"):
    raise ImportError("gymnax is older than 1.0.1: its steps return five values")


class GymnaxEnvironment(gymnax_environment.Environment):
    """One world as an environment of gymnax, which resets it; see `to_gymnax`. Params are a dictionary of leaves by path."""

    _supports_transition_gradients = True

    def __init__(self, environment: Any):
        """Compiles nothing yet."""
        self._environment = environment

    @property
    def default_params(self) -> Any:
        """The system as it is."""
        return {}

    @property
    def name(self) -> str:
        """The name of the function that rewards."""
        return "jaxdae"

    @property
    def num_actions(self) -> int:
        """How many numbers an action has."""
        return self._environment.task.actions

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        """Returns observation and state at the begin of an episode."""
        state, observation = self._environment.reset(key, params)
        return observation, state

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Returns observation, state, reward, whether the episode is over, and the status of the simulation."""
        found = self._environment.step(key, state, action, params)
        observation, at = self._apply_transition_gradient_policy(found.observation, found.state)
        return observation, at, found.reward, found.terminated, {"status": found.status}

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Returns whether the episode has lasted as many actions as it may."""
        limit = self._environment.task.limit
        return jnp.zeros((), bool) if limit is None else state.count >= limit

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Returns whether the episode is over in a state."""
        return self._environment.is_over(state, params)

    def observe(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        """Returns the observation of a state."""
        return self._environment.observe(state, params)

    def action_space(self, params: Any = None) -> Any:
        """Returns the space of actions."""
        return spaces.Box(-1.0, 1.0, (self.num_actions,), self._observed().dtype)

    def observation_space(self, params: Any = None) -> Any:
        """Returns the space of observations."""
        seen = self._observed()
        return spaces.Box(-jnp.inf, jnp.inf, seen.shape, seen.dtype)

    def _observed(self) -> Any:
        return jax.eval_shape(self._environment.reset, jax.random.key(0))[1]
