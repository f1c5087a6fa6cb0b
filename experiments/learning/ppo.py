"""PPO, proximal policy optimization: the comparison without gradients of the simulation.

Noise on the actions explores; the advantage of what it led to is estimated from rewards and a learned value
(GAE), and the likelihood of good actions is raised, by no more than a clip from the policy that made them.

References:
    J. Schulman, F. Wolski, P. Dhariwal, A. Radford, O. Klimov, "Proximal Policy Optimization Algorithms",
    arXiv:1707.06347, 2017. J. Schulman, P. Moritz, S. Levine, M. Jordan, P. Abbeel, "High-Dimensional
    Continuous Control Using Generalized Advantage Estimation", ICLR 2016.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from networks import apply, begun, improved, network

from jaxdae.envs import AutoReset, Environment

GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 0.97, 0.95, 0.2, 1e-3, 0.5


class Agent(NamedTuple):
    """A policy with normally distributed actions, and the value of observations."""

    mean: Any
    log_spread: Any
    value: Any


class Rollout(NamedTuple):
    """What was seen (steps, worlds, ...).

    `after` is the value of what each step led to, zero where the episode was over.
    """

    observation: Any
    action: Any
    log_likelihood: Any
    value: Any
    reward: Any
    after: Any
    done: Any


def agent(key: Any, seen: int, actions: int, width: int) -> Agent:
    """Return an agent that knows nothing."""
    first, second = jax.random.split(key)
    return Agent(
        network(first, (seen, width, width, actions), last=0.01),
        -0.5 * jnp.ones((actions,)),
        network(second, (seen, width, width, 1)),
    )


def log_likelihood(one: Agent, observation: Any, action: Any) -> Any:
    """Return the logarithm of the density of actions (...,)."""
    away = (action - apply(one.mean, observation)) / jnp.exp(one.log_spread)
    return jnp.sum(-0.5 * away**2 - one.log_spread - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)


def value_of(one: Agent, observation: Any) -> Any:
    """Return the values (...,) of observations."""
    return apply(one.value, observation)[..., 0]


def explore(
    one: Agent, environment: Any, state: Any, observation: Any, key: Any, steps: int
) -> tuple[Any, Any, Rollout]:
    """Return where the worlds end, and what was seen on the way."""

    def act(carry: Any, key: Any) -> Any:
        state, observation = carry
        key_act, key_step = jax.random.split(key)
        mean = apply(one.mean, observation)
        action = mean + jnp.exp(one.log_spread) * jax.random.normal(key_act, mean.shape)
        found = jax.vmap(environment.step)(jax.random.split(key_step, len(mean)), state, action)
        after = jnp.where(found.terminated, 0.0, value_of(one, found.final_observation))
        likely, value = log_likelihood(one, observation, action), value_of(one, observation)
        return (found.state, found.observation), Rollout(
            observation, action, likely, value, found.reward, after, found.done
        )

    (state, observation), seen = jax.lax.scan(act, (state, observation), jax.random.split(key, steps))
    return state, observation, seen


def advantages(seen: Rollout) -> Any:
    """Return the advantages (steps, worlds) by GAE; sums end where episodes do."""

    def one(later: Any, step: Rollout) -> Any:
        now = step.reward + GAMMA * step.after - step.value
        total = now + GAMMA * LAMBDA * jnp.where(step.done, 0.0, later)
        return total, total

    return jax.lax.scan(one, jnp.zeros_like(seen.reward[0]), seen, reverse=True)[1]


def loss(one: Agent, seen: Rollout, advantage: Any, target: Any) -> Any:
    """Return the clipped loss of a batch: policy, value, and a little entropy."""
    ratio = jnp.exp(log_likelihood(one, seen.observation, seen.action) - seen.log_likelihood)
    gain = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
    worse = jnp.minimum(ratio * gain, jnp.clip(ratio, 1.0 - CLIP, 1.0 + CLIP) * gain)
    error = jnp.mean((value_of(one, seen.observation) - target) ** 2)
    return -jnp.mean(worse) + VALUE * error - ENTROPY * jnp.sum(one.log_spread)


def train(
    task_environment: Environment,
    key: Any,
    updates: int,
    report: Any,
    worlds: int = 256,
    steps: int = 15,
    epochs: int = 4,
    batches: int = 8,
    rate: float = 1e-3,
    width: int = 64,
) -> Agent:
    """Return the agent.

    Each update ends with a call of `report(update, actor, agent, environment steps)`; the actor is the mean
    policy.
    """
    environment = AutoReset(task_environment)
    state, observation = begun(environment, key, worlds)
    one = agent(key, observation.shape[-1], environment.task.actions, width)
    schedule = optax.linear_schedule(rate, 0.05 * rate, updates * epochs * batches)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(schedule))
    memory = optimizer.init(one)

    @jax.jit
    def update(one: Agent, memory: Any, state: Any, observation: Any, key: Any) -> Any:
        key_explore, key_epochs = jax.random.split(key)
        state, observation, seen = explore(one, environment, state, observation, key_explore, steps)
        advantage = advantages(seen)
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (seen, advantage, advantage + seen.value))

        def batch(carry: Any, chosen: Any) -> Any:
            one, memory = carry
            gradient = jax.grad(loss)(one, *jax.tree.map(lambda x: x[chosen], data))
            return improved(optimizer, gradient, memory, one), None

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, worlds * steps).reshape(batches, -1)
            return jax.lax.scan(batch, carry, order)[0], None

        (one, memory), _ = jax.lax.scan(epoch, (one, memory), jax.random.split(key_epochs, epochs))
        return one, memory, state, observation

    carry = one, memory, state, observation
    for k in range(updates):
        carry = update(*carry, jax.random.fold_in(key, k))
        mean = carry[0].mean
        report(k, lambda observation, mean=mean: apply(mean, observation), carry[0], worlds * steps)
    return carry[0]
