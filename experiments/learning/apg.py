"""Analytic policy gradient: differentiate the return of whole episodes through every step of the simulation.

    gradient = d/d policy  mean over worlds of sum of rewards

One reverse pass through policy, mechanics and projections gives the exact gradient of every episode of the
batch; there is no value function, no exploration noise and no estimate of an advantage. What it needs is a
simulator whose gradient is right.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from networks import act, begun, improved, network

from jaxdae.envs import Environment


def episode_return(policy: Any, environment: Environment, key: Any, worlds: int) -> Any:
    """Return the mean return of episodes from random starts."""
    state, observation = begun(environment, key, worlds)

    def one(carry: Any, _: Any) -> Any:
        state, observation, alive = carry
        found = jax.vmap(environment.step, in_axes=(None, 0, 0))(key, state, act(policy, observation))
        return (found.state, found.observation, alive & ~found.terminated), jnp.where(
            alive, found.reward, 0.0
        )

    _, rewards = jax.lax.scan(
        one, (state, observation, jnp.ones(worlds, bool)), None, length=environment.task.limit
    )
    return jnp.mean(jnp.sum(rewards, axis=0))


def train(
    environment: Environment,
    key: Any,
    updates: int,
    report: Any,
    worlds: int = 64,
    rate: float = 3e-3,
    width: int = 64,
) -> Any:
    """Return the policy; `report(update, actor, policy, environment steps)` is called after each update."""
    sizes = (environment.reset(key)[1].shape[0], width, width, environment.task.actions)
    policy = network(key, sizes, last=0.01)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(rate, updates, 0.05))
    )
    memory = optimizer.init(policy)

    @jax.jit
    def update(policy: Any, memory: Any, key: Any) -> Any:
        gradient = jax.grad(episode_return)(policy, environment, key, worlds)
        return improved(optimizer, jax.tree.map(jnp.negative, gradient), memory, policy)

    for k in range(updates):
        policy, memory = update(policy, memory, jax.random.fold_in(key, k))
        report(k, partial(act, policy), policy, worlds * environment.task.limit)
    return policy
