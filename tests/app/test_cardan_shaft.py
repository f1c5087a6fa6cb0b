"""The experiment `cardan_shaft`: the closed form of universal joints, and that shafts in and out of phase
follow it.
"""

import importlib.util
import pathlib

import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("cardan_shaft", ROOT / "experiments" / "cardan_shaft.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_closed_form_is_its_own_integral(experiment):
    """The rate of the second shaft is the derivative of its angle; bending back by the same angle undoes it."""
    beta, theta = 0.6, np.linspace(0.5 * np.pi, 0.5 * np.pi + 9.0, 200)
    step = 1e-6
    slope = (experiment.behind(beta, theta + step) - experiment.behind(beta, theta - step)) / (2.0 * step)
    np.testing.assert_allclose(slope, experiment.ratio(beta, theta), rtol=1e-8)
    np.testing.assert_allclose(
        experiment.ratio(beta, theta) * experiment.ratio(beta, experiment.behind(beta, theta)),
        1.0,
        rtol=1e-13,
    )
    np.testing.assert_allclose(
        experiment.ratio(beta, np.array([0.0, 0.5 * np.pi])), [1.0 / np.cos(beta), np.cos(beta)]
    )


@pytest.mark.long
@pytest.mark.parametrize("phase", [pytest.param(0.0, marks=pytest.mark.exhaustive), 30.0])
def test_both_joints_follow_their_closed_form(experiment, phase):
    config, worlds = load(str(ROOT / "configs" / "cardan_shaft.yaml"), ("duration=0.2",))
    with precision(config):
        mechanism, *built = experiment.with_phase(config, phase)
        shaft = experiment.simulate(*built, worlds.one()[1], phase, config)
    assert shaft.status == jd.Status.OK
    assert shaft.opening < 1e-14
    np.testing.assert_allclose(shaft.rates[:, 0], 10.0, rtol=1e-13)
    np.testing.assert_allclose(shaft.rates[:, 1:], shaft.exact, rtol=1e-12)
    assert np.allclose(shaft.rates[:, 2], 10.0) == (phase == 0.0)
    # The pins of a joint are at right angles, and both of them normal to their shafts.
    joint = next(joint for joint in mechanism.joints if joint.name == "joint2")
    np.testing.assert_allclose([np.dot(joint.axis, joint.second), joint.second[0]], 0.0, rtol=0, atol=1e-15)
