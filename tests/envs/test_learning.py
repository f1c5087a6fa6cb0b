"""The ways to learn of experiments/learning: their sums over steps as loops say."""

import importlib
import pathlib
import sys

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("optax")
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
            targets[t, world] = later = reward[t, world] + shac.GAMMA * (after[t, world] if done[t, world] else mixed)
            gain = 0.0 if done[t, world] else gain
            gain = reward[t, world] + ppo.GAMMA * after[t, world] - value[t, world] + ppo.GAMMA * ppo.LAMBDA * gain
            advantages[t, world] = gain
    np.testing.assert_allclose(shac.returns(*(jnp.asarray(x) for x in (reward, after, done))), targets, rtol=1e-12)
    none = jnp.zeros((4, 2))
    seen = ppo.Rollout(none, none, none, jnp.asarray(value), jnp.asarray(reward), jnp.asarray(after), jnp.asarray(done))
    np.testing.assert_allclose(ppo.advantages(seen), advantages, rtol=1e-12)
