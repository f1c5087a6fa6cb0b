"""Common parts of APG, SHAC and PPO: networks as lists of matrices, their updates, and policy evaluation."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxdae.envs import Environment, EnvState


class Score(NamedTuple):
    """How good a policy is: mean return of an episode, and its reward in the second half of it, an action.

    How many simulations failed.
    """

    episode_return: Any
    late_reward: Any
    failed: Any


def network(key: Any, sizes: tuple[int, ...], last: float = 1.0) -> list[tuple[Any, Any]]:
    """Return the layers of a network, (weights, offsets) each, for tanh between them.

    `last` scales those of the last.
    """
    keys = jax.random.split(key, len(sizes) - 1)
    init = jax.nn.initializers.orthogonal(2.0**0.5), jax.nn.initializers.orthogonal(last)
    return [
        (init[k == len(keys) - 1](one, (a, b)), jnp.zeros((b,)))
        for k, (one, a, b) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True))
    ]


def apply(layers: list[tuple[Any, Any]], x: Any) -> Any:
    """Return what a network makes of x (..., inputs)."""
    for weights, offset in layers[:-1]:
        x = jnp.tanh(x @ weights + offset)
    return x @ layers[-1][0] + layers[-1][1]


def act(policy: list[tuple[Any, Any]], observation: Any) -> Any:
    """Return the action (..., actions) between -1 and 1 of a deterministic policy."""
    return jnp.tanh(apply(policy, observation))


def improved(optimizer: Any, gradient: Any, memory: Any, network: Any) -> tuple[Any, Any]:
    """Return a network and the memory of its optimizer after a step down a gradient."""
    # Optax mixes integers with numbers of either precision; where promotion is strict, that is meant for the
    # program of its user.
    with jax.numpy_dtype_promotion("standard"):
        changes, memory = optimizer.update(gradient, memory)
        return optax.apply_updates(network, changes), memory


def begun(environment: Any, key: Any, worlds: int) -> tuple[EnvState, Any]:
    """Return states and observations of many episodes at their begin."""
    return jax.vmap(environment.reset)(jax.random.split(key, worlds))


def judged(environment: Environment, actor: Any, key: Any, worlds: int = 256) -> Score:
    """Return how good a policy is over whole episodes; after the end of an episode nothing counts."""
    limit = environment.task.limit
    state, observation = begun(environment, key, worlds)

    def one(carry: Any, _: Any) -> Any:
        state, observation, alive = carry
        found = jax.vmap(environment.step, in_axes=(None, 0, 0))(key, state, actor(observation))
        return (found.state, found.observation, alive & ~found.terminated), (
            jnp.where(alive, found.reward, 0.0),
            found.status,
        )

    _, (rewards, status) = jax.lax.scan(one, (state, observation, jnp.ones(worlds, bool)), None, length=limit)
    return Score(jnp.mean(jnp.sum(rewards, 0)), jnp.mean(rewards[limit // 2 :]), jnp.sum(status[-1] != 0))
