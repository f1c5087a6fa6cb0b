"""The experiment `overconstrained`: without error all answers are one, with it each slips where it says."""

import importlib.util
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae import vehicles as jv

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.long
def test_answers_meet_without_error_and_slip_where_they_say():
    spec = importlib.util.spec_from_file_location(
        "overconstrained", ROOT / "experiments" / "overconstrained.py"
    )
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    names = ("front_left", "front_right", "rear_left", "rear_right")
    wheels = jv.wheels([[2.5, 0.75], [2.5, -0.75], [0.0, 0.75], [0.0, -0.75]], names=names)
    angles = jv.ackermann_angles(2.5, 1.5, 0.3)
    found = {
        name: experiment.driven(wheels, angles, jnp.asarray([0.0, 0.05]), answer, 10.0)
        for name, answer in experiment.ANSWERS.items()
        if name != "rear and right row"
    }
    # Ten meters on the circle of the bicycle.
    radius = 2.5 / np.tan(0.3)
    exact = [radius * np.sin(10.0 / radius), radius * (1.0 - np.cos(10.0 / radius)), 10.0 / radius]
    for places, slips in found.values():
        np.testing.assert_allclose(places[0], exact, rtol=0, atol=1e-13)
        np.testing.assert_allclose(slips[0], 0.0, rtol=0, atol=1e-14)
    # Rear and left row: the right wheel slips alone, and the path is that without error.
    places, slips = found["rear and left row"]
    np.testing.assert_allclose(places[1], exact, rtol=0, atol=1e-13)
    assert slips[1, 1] > 0.05
    np.testing.assert_allclose(np.delete(slips[1], 1), 0.0, rtol=0, atol=1e-14)
    # The sum of squares of the least slip is the least.
    squares = {name: np.sum(slips[1] ** 2) for name, (_, slips) in found.items()}
    assert squares["least slip"] == min(squares.values())
