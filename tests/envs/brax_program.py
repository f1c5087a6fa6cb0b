"""Wraps an environment as brax does, and trains on another with its PPO; prints the returns of its
evaluations on the last line.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from brax.envs.wrappers.training import wrap
from brax.training.agents.ppo import train as ppo

from jaxdae import envs


def main():
    """Runs both."""
    task = envs.cart_pole()
    wrapped = wrap(envs.to_brax(envs.Environment(dataclasses.replace(task, steps=1))), episode_length=3)
    state, step = jax.jit(wrapped.reset)(jax.random.split(jax.random.PRNGKey(0), 2)), jax.jit(wrapped.step)
    for count in (1, 2, 3):
        state = step(state, jnp.zeros((2, 1)))
        np.testing.assert_array_equal(state.done, count == 3)
        np.testing.assert_array_equal(state.info["truncation"], count == 3)
    assert step._cache_size() == 1
    returns = []
    ppo.train(
        environment=envs.to_brax(envs.Environment(task)),
        num_timesteps=50_000,
        episode_length=100,
        num_envs=64,
        batch_size=64,
        num_minibatches=4,
        unroll_length=10,
        num_updates_per_batch=4,
        learning_rate=1e-3,
        entropy_cost=1e-3,
        discounting=0.97,
        normalize_observations=True,
        num_evals=2,
        num_eval_envs=32,
        seed=0,
        progress_fn=lambda steps, metrics: returns.append(float(metrics["eval/episode_reward"])),
    )
    print(*returns)


if __name__ == "__main__":
    main()
