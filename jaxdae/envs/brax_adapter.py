"""The brax adapter."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from brax.envs.base import Env, State  # pyright: ignore[reportMissingImports]


class BraxEnvironment(Env):
    """One world as a brax environment; see `to_brax`.

    `pipeline_state` is the `EnvState`, and `metrics["status"]` is the simulation status.
    """

    def __init__(self, environment: Any, params: Any):
        """Store the environment without compiling it."""
        self._environment, self._params = environment, dict(params or {})

    def reset(self, rng: Any) -> Any:
        """Return the initial state of an episode."""
        at, observation = self._environment.reset(rng, self._params)
        zero = jnp.zeros((), observation.dtype)
        return State(at, observation, zero, zero, {"status": zero}, {})

    def step(self, state: Any, action: Any) -> Any:
        """Return the state after an action; `done` is `terminated` of jaxdae; brax truncates itself."""
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
        """The number of entries of an observation."""
        return jax.eval_shape(self._environment.reset, jax.random.key(0))[1].shape[0]

    @property
    def action_size(self) -> int:
        """The number of entries of an action."""
        return self._environment.task.actions

    @property
    def backend(self) -> str:
        """The name of the simulator."""
        return "jaxdae"
