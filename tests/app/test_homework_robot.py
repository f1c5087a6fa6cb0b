"""The experiment `homework_robot`: its reference in both forms of coordinates, and what a projection about
the state before leaves open.
"""

import importlib.util
import pathlib

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
        "homework_robot", ROOT / "experiments" / "homework_robot.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def robot(experiment):
    config = Config.model_validate(read(str(ROOT / "configs" / "homework_robot.yaml")).data)
    with precision(config):
        return config, experiment.forms(config)


def method(experiment, how):
    return jd.Projected(jd.RungeKutta.rk4(), jd.Projection(position=experiment.PROJECTIONS[how]))


@pytest.mark.long
def test_both_forms_reach_the_reference(experiment, robot):
    """To the ten digits that it has, at all its times: what RK4 leaves of 2e-8 with steps of 1 ms falls by
    5^4.
    """
    config, forms = robot
    found, dt = {}, config.dt / 5.0
    for form, (system, start) in forms.items():
        with precision(config):
            found[form] = experiment.simulate(system, start, method(experiment, "iterated"), dt, 10000)
        assert (found[form].status, len(system.names.coordinates)) == (0, {"joint": 3, "absolute": 9}[form])
        assert found[form].opening.max() < 1e-14
        assert experiment.error(found[form], dt) < 1e-10
    assert np.abs(found["joint"].angles - found["absolute"].angles).max() < 1e-10


@pytest.mark.exhaustive
def test_a_projection_about_the_state_before_leaves_the_loop_open(experiment, robot):
    config, forms = robot
    with precision(config):
        system, start = forms["joint"]
        right, wrong = (
            experiment.simulate(
                system, start, method(experiment, f"linear about the {where}"), config.dt, 2000
            ).opening.max()
            for where in ("estimate", "state before")
        )
    assert right < 1e-13
    assert 1.4e-4 < wrong < 1.6e-4


def test_an_error_without_a_time_of_the_reference(experiment):
    assert np.isnan(experiment.error(experiment.Result(np.zeros(3), np.zeros((3, 3)), 0.0, 0), 1e-3))
