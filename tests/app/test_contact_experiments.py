"""Experiments with contact: closed forms, and simulations that follow them."""

import importlib.util
import pathlib

import numpy as np
import pytest

from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]
# Distances in m of a block after 1 s, and heights in m of a ball on the orbit, by closed forms in 40 digits.
SLIDES = {26.0: 0.0, 27.0: 0.041629900650504828, 30.0: 0.3285726972186642}
ON_THE_ORBIT = {0.0: 0.05373601107038445, 0.5: 0.13651851333976459, 2.0: 0.11304772541971304}
# A billiard ball with side spin: positions in m by times in s; time and velocity of rolling. In 40 digits.
MASSE = {0.1: (0.14117314433612713, -0.004280504536752125), 0.3: (0.3705582990251442, -0.03852454083076912)}
MASSE |= {0.5: (0.5417171288729093, -0.10100491145859422), 0.8: (0.7896542717300522, -0.19899348288716565)}
ROLLS = (0.3815304581786568, (0.8264571428571429, -0.3266285714285714))


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def experiment(name, *changes):
    module = script(name)
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


@pytest.mark.exhaustive
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


def test_closed_forms_of_billiard_shots():
    """A shot with side spin as in the reference, and a cushion after which the ball slides again."""
    table = script("billiard").Table(0.02858, 0.2, 9.81, 10.0, 10.0, 0.8)
    found, (rolls,) = table.shot((0.0, 0.0), (1.5, 0.0), (40.0, -30.0), np.array(list(MASSE)))
    np.testing.assert_allclose(found, list(MASSE.values()), rtol=1e-13)
    np.testing.assert_allclose([rolls[0], *rolls[1]], [ROLLS[0], *ROLLS[1]], rtol=1e-13)
    # The ball rolls at 2 m/s onto a cushion at 1 m, and leaves it with -1.6 m/s. Its slip is then -3.6 m/s,
    # so it slides for 2 * 3.6 / (7 mu g), and rolls at -1.6 + 2 * 3.6 / 7 m/s.
    table = table._replace(x=1.0)
    _, ((time, velocity),) = table.shot((0.0, 0.0), (2.0, 0.0), (0.0, 2.0 / 0.02858), np.array([1.4]))
    np.testing.assert_allclose(time, 0.5 + 7.2 / (7.0 * 0.2 * 9.81), rtol=1e-13)
    np.testing.assert_allclose(velocity, [-1.6 + 7.2 / 7.0, 0.0], rtol=1e-13)


def test_the_woodpecker_has_the_published_equilibrium_and_frequency():
    toy = script("woodpecker").Toy(
        *(3e-4, 5e-9, 4.5e-3, 7e-7), *(2.5e-3, 3.1e-3, 5.8e-3, 0.01, 0.015, 0.02, 0.0201), 5.6e-3, 9.81
    )
    found = [toy.jammed(), toy.equilibrium(), toy.least_friction(), toy.frequency()]
    # Leine, Glocker, van Campen (2001), with all printed digits.
    np.testing.assert_allclose(found, [-0.1034, -0.2216, 0.285, 72.91], rtol=1e-3)
