"""The experiments `incline` and `bouncing_table`: closed forms, and simulations that follow them."""

import importlib.util
import pathlib

import numpy as np
import pytest

from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]
# Distances in m of a block after 1 s, and heights in m of a ball on the orbit, by closed forms in 40 digits.
SLIDES = {26.0: 0.0, 27.0: 0.041629900650504828, 30.0: 0.3285726972186642}
ON_THE_ORBIT = {0.0: 0.05373601107038445, 0.5: 0.13651851333976459, 2.0: 0.11304772541971304}


def experiment(name, *changes):
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, *load(str(ROOT / "configs" / f"{name}.yaml"), changes)


@pytest.mark.long
def test_a_plate_stays_or_slides_on_the_incline():
    module, config, worlds = experiment("incline", "dt=0.05")
    angles = list(SLIDES)
    slides = module.acceleration(9.81, 0.5, np.radians(angles)) / 2.0
    np.testing.assert_allclose(slides, list(SLIDES.values()), rtol=1e-14)
    with precision(config):
        found = module.simulate(*worlds.one(), angles, config)
        assert not np.any(found.info.status)
        np.testing.assert_allclose(found.state.q[:, -1, 0], slides, atol=1e-13)


@pytest.mark.long
def test_a_ball_stays_on_its_orbit():
    module, config, worlds = experiment("bouncing_table")
    orbit = module.Orbit(0.03, 20.0, 0.5, 9.81)
    for time, height in ON_THE_ORBIT.items():
        np.testing.assert_allclose(orbit.at(time), height, rtol=1e-13)
    # From the return map of the impacts, in 40 digits.
    np.testing.assert_allclose([orbit.trace, orbit.determinant], [-0.1724863668191257, 0.25], rtol=1e-12)
    with precision(config):
        system, method, start = worlds.one()
        found = module.simulate(system, method, start, orbit.period / 200, 200)
        assert not np.any(found.info.status)
        height = found.state.q[:, module.BALL]
        np.testing.assert_allclose(height, orbit.at(np.asarray(found.state.t)), atol=3e-7)
