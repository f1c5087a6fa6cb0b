"""The experiment `bricard`: a loop with a row too many stays closed, reaches its reference, and needs a
solver that decides the rank.
"""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

import jaxdae as jd
from jaxdae.app import load, precision

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("bricard", ROOT / "experiments" / "bricard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_that_of_the_file(experiment):
    states = json.loads((ROOT / "tests" / "reference" / "iftomm_a04_bricard.json").read_text())["reference"][
        "states"
    ]
    places = {state["t"]: state["P3"] for state in states}
    for t, place in experiment.REFERENCE.items():
        assert list(place) == places[t]


def test_the_error_is_that_at_the_times_of_the_reference(experiment):
    time, hinge = np.array([0.4, 0.5, 1.0]), np.zeros((3, 3))
    hinge[1:] = [experiment.REFERENCE[0.5], experiment.REFERENCE[1.0]]
    hinge[0] = 9.0
    hinge[2, 1] += 1e-3
    result = experiment.Result(time, np.zeros(3), np.zeros(3), hinge, np.zeros((3, 5, 7)), np.zeros(3))
    assert experiment.error(result) == pytest.approx(1e-3)
    assert np.isnan(experiment.error(result._replace(time=time + 0.01)))


@pytest.mark.exhaustive
def test_the_loop_stays_closed_with_rank_and_fails_without(experiment):
    config, worlds = load(str(ROOT / "configs" / "bricard.yaml"))
    with precision(config):
        system, _, start = worlds.one()
        result = experiment.simulate(system, start, experiment.SOLVERS["null_space"], config.dt, 100, 10)
        plain = experiment.simulate(system, start, experiment.SOLVERS["schur_complement"], config.dt, 10, 10)
    assert np.all(result.status == jd.Status.OK)
    assert result.opening.max() < 1e-14
    assert result.energy.max() < 1e-10
    assert experiment.error(result) < 1e-11
    assert plain.status[-1] != jd.Status.OK
