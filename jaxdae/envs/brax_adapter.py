"""Environments as those of brax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State  # pyright: ignore[reportMissingImports]


class BraxEnvironment(Env):
    """One world as an environment of brax; see `to_brax`. `pipeline_state` is our state, `metrics["status"]` that of the simulation."""

    def __init__(self, environment: Any, params: Any):
        """Compiles nothing yet."""
        self._environment, self._params = environment, dict(params or {})

    def reset(self, rng: Any) -> Any:
        """Returns the state at the begin of an episode."""
        at, observation = self._environment.reset(rng, self._params)
        zero = jnp.zeros((), observation.dtype)
        return State(at, observation, zero, zero, {"status": zero}, {})

    def step(self, state: Any, action: Any) -> Any:
        """Returns the state after an action; `done` is what jaxdae calls terminated, brax truncates by itself."""
        found = self._environment.step(jax.random.key(0), state.pipeline_state, action, self._params)
        done, status = (x.astype(found.reward.dtype) for x in (found.terminated, found.status))
        return state.replace(
            pipeline_state=found.state,
            obs=found.observation,
            reward=found.reward,
            done=done,
            metrics=state.metrics | {"status": status},
        )

    @property
    def observation_size(self) -> int:
        """How many numbers an observation has."""
        return jax.eval_shape(self._environment.reset, jax.random.key(0))[1].shape[0]

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return self._environment.task.actions

    @property
    def backend(self) -> str:
        """The name of the simulator."""
        return "jaxdae"
