"""Adapters: each is checked by the library that it is for, where that is installed; Gymnasium is with the
tools for development.

The others come with `make test-envs`.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae import envs

KEY = jax.random.key(0)
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cart():
    """A cart and a pole; episodes of three actions of a step."""
    return envs.Environment(dataclasses.replace(envs.cart_pole(), limit=3, steps=1))


def test_what_is_missing_is_named(cart, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", missing)
    for adapter, remedy in (
        (envs.to_gymnasium, r"pip install '\.\[envs\]' in a clone of jaxdae"),
        (envs.to_gymnax, "gymnax>=1.0.1"),
        (envs.to_brax, "brax"),
    ):
        with pytest.raises(ImportError, match=f"{adapter.__name__} needs .*{remedy}"):
            adapter(cart)


@pytest.mark.long
def test_gymnasium(cart):
    gymnasium = pytest.importorskip(
        "gymnasium", reason="the extra envs is not installed: pip install '.[envs]'"
    )
    many = envs.to_gymnasium(cart, 3, params={"mass": jnp.ones((3, 2))})
    assert isinstance(many, gymnasium.vector.VectorEnv)
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(many)
    first, infos = recorded.reset(seed=1)
    np.testing.assert_array_equal(infos["status"], 0)
    assert first in many.observation_space
    for count in (1, 2, 3):
        actions = np.zeros((3, 1))
        assert actions in many.action_space
        actions[1] = np.nan if count == 2 else 0.0
        observation, reward, terminated, truncated, infos = recorded.step(actions)
        assert observation in many.observation_space
        assert reward.shape == (3,)
        # The second world fails in the second action, begins anew, and is not at its limit when the others
        # are.
        np.testing.assert_array_equal(terminated, [False, count == 2, False])
        np.testing.assert_array_equal(truncated, [count == 3, False, count == 3])
        np.testing.assert_array_equal(infos["status"], [0, count == 2, 0])
        done = terminated | truncated
        np.testing.assert_array_equal(infos.get("_final_obs", np.zeros(3, bool)), done)
        for k in np.flatnonzero(done):
            assert np.any(infos["final_obs"][k] != observation[k])
    np.testing.assert_array_equal(infos["episode"]["l"][[0, 2]], 3)
    again, _ = many.reset(seed=1)
    np.testing.assert_array_equal(first, again)
    for wrong, message in (
        ({"worlds": 0}, "worlds must be at least 1, got 0"),
        ({"worlds": 2, "params": {"mass": jnp.ones(2)[:1]}}, "stacked"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.to_gymnasium(cart, **wrong)
    with pytest.raises(TypeError, match="without AutoReset, got AutoReset"):
        envs.to_gymnasium(envs.AutoReset(cart))
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.to_gymnasium(cart, 2).step(np.zeros((2, 1)))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(
    "ignore:.*(minimum|maximum) value is.*infinity.*:UserWarning", "ignore:.*not having a spec.*:UserWarning"
)
def test_gymnasium_checks_one_world(cart):
    checker = pytest.importorskip(
        "gymnasium.utils.env_checker", reason="the extra envs is not installed: pip install '.[envs]'"
    )
    checker.check_env(envs.to_gymnasium(cart))


@pytest.mark.long
def test_gymnax(cart):
    """Its own step: six values, a reset in it, and gradients only where they are asked for."""
    pytest.importorskip("gymnax", reason="gymnax is not installed: make test-envs")
    made = envs.to_gymnax(cart)
    observation, state = made.reset(KEY)
    assert made.observation_space(None).contains(observation)
    assert made.action_space(None).contains(made.action_space(None).sample(KEY))
    for count in (1, 2, 3):
        observation, state, _, terminated, truncated, info = made.step(KEY, state, jnp.zeros(1))
        assert (bool(terminated), bool(truncated)) == (False, count == 3)
        assert int(info["status"]) == 0
        assert bool(jnp.all(info["final_observation"] == observation)) == (count != 3)
    assert int(state.count) == 0
    assert not made.is_terminated(state, {})
    np.testing.assert_array_equal(made.observe(KEY, state, None, {}), observation)

    def speed(action, environment):
        return environment.step(KEY, state, action)[0][2]

    assert float(jax.grad(speed)(jnp.zeros(1), made)[0]) == 0.0
    # 10 N on the cart of 1 kg, less what the pole takes, for 0.01 s.
    got = float(jax.grad(speed)(jnp.zeros(1), made.with_transition_gradients())[0])
    assert 0.08 < got < 0.11


@pytest.mark.long
def test_brax_wraps_and_trains():
    """PPO of brax keeps poles up for longer. In a process of its own: brax mixes types, and wants programs
    that are optimized.
    """
    pytest.importorskip("brax", reason="brax is not installed: make test-envs")
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    program = [sys.executable, str(pathlib.Path(__file__).with_name("brax_program.py"))]
    done = subprocess.run(
        program, capture_output=True, text=True, env=environment | {"PYTHONPATH": str(ROOT)}, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    first, last = map(float, done.stdout.splitlines()[-1].split())
    # 1 an action at most: poles fall after some 20 actions before, and stay up for more afterwards.
    assert last > first + 20.0
