"""The ways to learn of experiments/learning: their sums over steps as loops say, and that all of them learn."""

import dataclasses
import importlib
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae import envs

FOLDER = pathlib.Path(__file__).parents[2] / "experiments" / "learning"
NAMES = ("networks", "apg", "ppo", "shac")


@pytest.fixture(scope="module")
def learning():
    sys.path.insert(0, str(FOLDER))
    yield {name: importlib.import_module(name) for name in NAMES}
    sys.path.remove(str(FOLDER))
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def episodes():
    """Two worlds, four steps: one episode ends after the second step, with a value of what would have come."""
    rng = np.random.default_rng(1)
    reward, after, value = rng.normal(size=(3, 4, 2))
    done = np.zeros((4, 2), bool)
    done[1, 0] = True
    return reward, after, value, done


def test_returns_and_advantages_end_with_their_episodes(learning, episodes):
    reward, after, value, done = episodes
    shac, ppo = learning["shac"], learning["ppo"]
    targets, advantages = np.zeros((4, 2)), np.zeros((4, 2))
    for world in range(2):
        later, gain = after[-1, world], 0.0
        for t in reversed(range(4)):
            mixed = (1.0 - shac.LAMBDA) * after[t, world] + shac.LAMBDA * later
            targets[t, world] = later = reward[t, world] + shac.GAMMA * (
                after[t, world] if done[t, world] else mixed
            )
            gain = 0.0 if done[t, world] else gain
            gain = (
                reward[t, world]
                + ppo.GAMMA * after[t, world]
                - value[t, world]
                + ppo.GAMMA * ppo.LAMBDA * gain
            )
            advantages[t, world] = gain
    np.testing.assert_allclose(
        shac.returns(*(jnp.asarray(x) for x in (reward, after, done))), targets, rtol=1e-12
    )
    none = jnp.zeros((4, 2))
    seen = ppo.Rollout(
        none, none, none, jnp.asarray(value), jnp.asarray(reward), jnp.asarray(after), jnp.asarray(done)
    )
    np.testing.assert_allclose(ppo.advantages(seen), advantages, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "updates", "sizes"),
    [
        ("apg", 20, {"worlds": 8}),
        pytest.param("shac", 30, {"worlds": 8}, marks=pytest.mark.exhaustive),
        pytest.param("ppo", 20, {}, marks=pytest.mark.exhaustive),
    ],
)
def test_all_ways_learn_to_reach(learning, name, updates, sizes):
    # Ten actions: 0.2 s are enough to begin moving the tip towards its goal.
    environment = envs.Environment(dataclasses.replace(envs.five_bar_reach(), limit=10))
    networks, seen = learning["networks"], []

    @jax.jit
    def score(policy):
        actor = (
            (lambda x: networks.act(policy, x))
            if name != "ppo"
            else (lambda x: networks.apply(policy.mean, x))
        )
        return networks.judged(environment, actor, jax.random.key(5), worlds=32)

    def report(update, actor, policy, steps):
        if update in (0, updates - 1):
            seen.append(score(policy))

    learning[name].train(environment, jax.random.key(0), updates, report, **sizes)
    first, last = (float(each.episode_return) for each in seen)
    assert last > 0.8 * first  # both are negative
