"""The experiment `stewart_platform`: against two other engines, and inverse against forward dynamics."""

import importlib.util
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import precision
from jaxdae.app.config.config_source import read
from jaxdae.app.config.schema import Config

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location(
        "stewart_platform", ROOT / "experiments" / "stewart_platform.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def platform(experiment):
    config = Config.model_validate(read(str(ROOT / "configs" / "stewart_platform.yaml")).data)
    with precision(config):
        return config, experiment.driven(config)


def states(system):
    """Returns states of the reference, and the accelerations of the legs; its platform is known by its
    origin, ours by its mass center.
    """
    found = json.loads((ROOT / "tests" / "reference" / "trajectory_stewart.json").read_text())["states"]
    names = system.names
    legs = [name for k in range(6) for name in (f"base{k}.first", f"base{k}.second", f"leg{k}.slide")]
    in_q, in_v = (
        [names.coordinates.index(name) for name in legs],
        [names.velocities.index(f"{name}_rate") for name in legs],
    )
    q, v, a = (np.array([state[key] for state in found]) for key in ("q", "v", "acceleration"))
    center = jnp.array([0.01, -0.02, 0.03])
    ours_q, ours_v = np.zeros((len(q), 25)), np.zeros((len(q), 24))
    ours_q[:, in_q], ours_v[:, in_v] = q[:, :18], v[:, :18]
    turned = jax.vmap(lambda p: jd.rotation.quat_rotate(p, center))(q[:, 21:])
    moving = jax.vmap(lambda p, w: jd.rotation.quat_rotate(p, jnp.cross(w, center)))(q[:, 21:], v[:, 21:])
    ours_q[:, 18:21], ours_q[:, 21:] = q[:, 18:21] + turned, q[:, 21:]
    ours_v[:, 18:21], ours_v[:, 21:] = v[:, 18:21] + moving, v[:, 21:]
    return jnp.asarray(ours_q), jnp.asarray(ours_v), a[:, :18], in_v


@pytest.mark.long
def test_accelerations_are_those_of_two_other_engines(platform):
    _, (system, _, _) = platform
    q, v, expected, legs = states(system)
    np.testing.assert_allclose(
        jax.vmap(lambda q: system.constraint(jnp.zeros(()), q))(q), 0.0, rtol=0, atol=1e-12
    )
    a = jax.jit(
        jax.vmap(lambda q, v: jd.forward_dynamics(system, jd.State(jnp.zeros(()), q, v), jnp.zeros(6))[0])
    )(q, v)
    np.testing.assert_allclose(np.asarray(a)[:, legs], expected, rtol=0.0, atol=1e-10)


@pytest.mark.exhaustive
def test_inverse_and_forward_dynamics_agree(experiment, platform):
    config, (system, absolute, q) = platform
    path = experiment.Settings.model_validate(config.experiment).path
    with precision(config):
        motion = experiment.on_path(system, q, path, np.array([0.0, 0.13, 0.4 - 1e-5, 0.4, 0.4 + 1e-5]))
        found = experiment.inverse_dynamics(system, absolute, motion)
    np.testing.assert_array_equal(motion.status, jd.Status.OK)
    for name in ("forward", "absolute", "reactions", "balance"):
        assert np.max(getattr(found, name)) < 1e-11, name
    # Velocities and accelerations of the legs are the differences of their slides.
    assert system.names.coordinates[12] == "leg0.slide"
    slides, rates, a = (np.asarray(x)[:, 12:18] for x in (motion.states.q, motion.states.v, motion.a))
    np.testing.assert_allclose((slides[4] - slides[2]) / 2e-5, rates[3], rtol=0, atol=1e-8)
    np.testing.assert_allclose((rates[4] - rates[2]) / 2e-5, a[3], rtol=0, atol=1e-7)
