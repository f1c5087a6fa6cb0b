"""SHAC, short-horizon actor-critic: gradients through a few steps, and a learned value for what comes after.

The actor maximizes, over windows of h steps that continue where the last ended,

    sum_{t < h} gamma^t r_t + gamma^h V(s_h)        (up to the end of an episode, with V of its last observation where it was truncated)

by its derivative through the simulation; no gradient crosses from window to window. The critic V is fitted to
the TD(lambda) returns of the same windows, and the actor sees a slow average of it.

References:
    J. Xu, V. Makoviychuk, Y. Narang, F. Ramos, W. Matusik, A. Garg, M. Macklin, "Accelerated Policy Learning
    with Parallel Differentiable Simulation", ICLR 2022.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from networks import act, apply, begun, improved, network

from jaxdae.envs import AutoReset, Environment

GAMMA, LAMBDA, SLOW = 0.97, 0.95, 0.8


def window(
    policy: Any, slow: Any, environment: Any, state: Any, observation: Any, key: Any, horizon: int
) -> Any:
    """Return (minus the mean gain of a window, (where it ends, what the critic learns from))."""

    def one(carry: Any, key: Any) -> Any:
        state, observation, discount, gain = carry
        keys = jax.random.split(key, observation.shape[0])
        found = jax.vmap(environment.step)(keys, state, act(policy, observation))
        after = jnp.where(found.terminated, 0.0, apply(slow, found.final_observation)[:, 0])
        gain = gain + discount * (found.reward + jnp.where(found.done, GAMMA * after, 0.0))
        # A new episode begins a sum of its own.
        discount = jnp.where(found.done, 1.0, discount * GAMMA)
        seen = observation, found.reward, after, found.done
        return (found.state, found.observation, discount, gain), seen

    ones = jnp.ones(observation.shape[0])
    (state, observation, discount, gain), seen = jax.lax.scan(
        one, (state, observation, ones, 0.0 * ones), jax.random.split(key, horizon)
    )
    gain = gain + jnp.where(seen[3][-1], 0.0, discount * apply(slow, observation)[:, 0])
    return -jnp.mean(gain) / horizon, (state, observation, seen)


def returns(rewards: Any, after: Any, done: Any) -> Any:
    """Return the TD(lambda) returns (h, worlds) of a window.

    `after` is the value of what each step led to.
    """

    def one(later: Any, step: Any) -> Any:
        reward, value, done = step
        target = reward + GAMMA * jnp.where(done, value, (1.0 - LAMBDA) * value + LAMBDA * later)
        return target, target

    return jax.lax.scan(one, after[-1], (rewards, after, done), reverse=True)[1]


def train(
    task_environment: Environment,
    key: Any,
    updates: int,
    report: Any,
    worlds: int = 64,
    horizon: int = 10,
    rate: float = 3e-3,
    width: int = 64,
) -> Any:
    """Return the policy; `report(update, actor, policy, environment steps)` is called after each update."""
    environment = AutoReset(task_environment)
    state, observation = begun(environment, key, worlds)
    seen = observation.shape[-1]
    policy = network(key, (seen, width, width, environment.task.actions), last=0.01)
    critic = network(jax.random.fold_in(key, 1), (seen, width, width, 1))
    schedule = optax.cosine_decay_schedule(rate, updates, 0.05)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule, b1=0.7, b2=0.95))
    memories = optimizer.init(policy), optimizer.init(critic)

    @jax.jit
    def update(
        policy: Any, critic: Any, slow: Any, memories: Any, state: Any, observation: Any, key: Any
    ) -> Any:
        state, observation = jax.lax.stop_gradient((state, observation))
        gradient, (state, observation, found) = jax.grad(window, has_aux=True)(
            policy, slow, environment, state, observation, key, horizon
        )
        policy, actor_memory = improved(optimizer, gradient, memories[0], policy)
        observations, rewards, after, done = jax.lax.stop_gradient(found)
        targets = returns(rewards, after, done)

        def fit(carry: Any, _: Any) -> Any:
            critic, memory = carry
            slope = jax.grad(lambda c: jnp.mean((apply(c, observations)[..., 0] - targets) ** 2))(critic)
            return improved(optimizer, slope, memory, critic), None

        (critic, critic_memory), _ = jax.lax.scan(fit, (critic, memories[1]), None, length=8)
        slow = jax.tree.map(lambda a, b: SLOW * a + (1.0 - SLOW) * b, slow, critic)
        return policy, critic, slow, (actor_memory, critic_memory), state, observation

    carry = policy, critic, critic, memories, state, observation
    # Episodes at different times, as they are later on.
    for k in range(updates):
        carry = update(*carry, jax.random.fold_in(key, k))
        report(k, partial(act, carry[0]), carry[0], worlds * horizon)
    return carry[0]
