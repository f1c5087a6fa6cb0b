"""The experiment `delta_robot`: the ways of its tool."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.app import precision
from jaxdae.app.config.config_source import read
from jaxdae.app.config.schema import Config

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("delta_robot", ROOT / "experiments" / "delta_robot.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
def test_ways_begin_and_end_at_rest_and_lift_half_way(experiment):
    config = Config.model_validate(read(str(ROOT / "configs" / "delta_robot.yaml")).data)
    settings = experiment.Settings.model_validate(config.experiment)
    with precision(config):
        way = experiment.first_way(config, settings)
        shape = jnp.asarray(np.random.default_rng(0).standard_normal((settings.shapes, 3)))
        other = experiment.Way(way.pick, way.place, way.lift, way.duration, shape)
        at = jax.jit(lambda one, t: (one(t), jax.jacfwd(one)(t), jax.jacfwd(jax.jacfwd(one))(t)))
        for one in (way, other):
            for t, place in ((0.0, settings.pick), (config.duration, settings.place)):
                # A hair inside, where the cut at the ends does not act: positions differ by t^3, rates by
                # t^2, seconds by t.
                inside = jnp.asarray(t + (1e-9 if t == 0.0 else -1e-9))
                position, rate, second = at(one, inside)
                np.testing.assert_allclose(position, place, rtol=0, atol=1e-12)
                np.testing.assert_allclose(rate, 0.0, rtol=0, atol=1e-9)
                np.testing.assert_allclose(second, 0.0, rtol=0, atol=1e-3)
            middle = at(one, jnp.asarray(0.5 * config.duration))[0]
            assert middle[2] == pytest.approx(
                0.5 * (settings.pick[2] + settings.place[2]) + settings.lift, abs=1e-14
            )
