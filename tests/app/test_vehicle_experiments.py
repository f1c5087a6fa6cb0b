"""The experiments with vehicles in the plane: odometry_drift, parking, path_following, tire_identification,
segway_balance.
"""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxdae.app import precision
from jaxdae.app.config.config_source import read
from jaxdae.app.config.schema import Config
from jaxdae.app.model.build import worlds

ROOT = pathlib.Path(__file__).parents[2]


def opened(name, **settings):
    """Returns an experiment as a module and its config, some of its settings changed."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "experiments" / f"{name}.py")
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    config = Config.model_validate(read(str(ROOT / "configs" / f"{name}.yaml")).data)
    return experiment, config.model_copy(update={"experiment": config.experiment | settings})


@pytest.mark.exhaustive
def test_odometry_scatters_as_the_closed_form_says_and_squares_tell_the_wheels():
    experiment, config = opened("odometry_drift", loops=2)
    given, runs = config.experiment, 4000
    wheels = experiment.vehicles.wheels(
        jnp.asarray([[0.0, 0.25], [0.0, -0.25]]), radius=0.1, names=("left", "right")
    )
    dt, rates = given["time"] / given["steps"], experiment.rates_of_s(wheels, given)
    poses = experiment.scattered(wheels, rates, dt, given["variance_per_meter"], runs, 3)
    exact = np.asarray(experiment.closed_form(wheels, rates, dt, given["variance_per_meter"]))
    for k in (119, 239):
        scale = np.sqrt(np.diag(exact[k]))
        # Four standard errors of a covariance of so many runs, sqrt(2 / n) at most; linear in headings, which
        # scatter by 0.05 rad.
        np.testing.assert_allclose(
            np.cov(np.asarray(poses)[:, k].T) / np.outer(scale, scale),
            exact[k] / np.outer(scale, scale),
            rtol=0,
            atol=0.09,
        )
    numbers, errors, _ = experiment.identified(wheels, given)
    assert np.all(np.abs(np.asarray(numbers) - [*given["radii"], given["track"]]) < 4.0 * np.asarray(errors))
    assert np.max(errors) < 1e-4


@pytest.mark.exhaustive
def test_a_car_parks_from_starts_all_over_the_lane():
    experiment, config = opened("parking", starts=3, seed=5)
    given = config.experiment
    car = experiment.vehicles.KinematicSingleTrack(2.6)
    states, knots = experiment.parked(car, experiment.starts(given), given)
    np.testing.assert_allclose(states[:, -1, jnp.asarray([0, 1, 3, 4])], 0.0, rtol=0, atol=experiment.TURNED)
    assert float(jnp.min(jax.vmap(lambda each: jnp.min(experiment.apart(each, given)))(states))) > 0.0
    assert np.max(np.abs(states[:, :, 2])) < given["steering"]
    assert np.max(np.abs(states[:, :, 3])) < given["speed"]
    rates = jax.vmap(lambda each: jnp.max(jnp.abs(experiment.controls(each, given)), axis=0))(knots)
    assert np.all(np.asarray(rates) <= [given["rate"], given["acceleration"]])


def test_rectangles_are_apart_along_the_normals_of_their_sides():
    experiment, config = opened("parking")
    given = config.experiment | {"parked": [[10.0, 0.0]]}
    # The car, 4.4 m by 1.8 m, its rear axle 0.9 m from its rear end: its front is at 3.5 m, the parked one
    # begins at 7.8 m.
    states = jnp.asarray(
        [[0.0, 0.0, 0.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0, 0.0], [10.0, 3.0, 0.0, 0.0, 0.5 * np.pi]]
    )
    np.testing.assert_allclose(
        experiment.apart(states, given)[:, 0], [4.3, -0.7, 3.0 - 0.9 - 0.9], rtol=0, atol=1e-14
    )


@pytest.mark.exhaustive
def test_a_trailer_is_reversed_by_tuned_gains():
    experiment, config = opened("path_following", reverse_offsets=[2.0])
    given = config.experiment
    truck, law = experiment.vehicles.KinematicSingleTrackTrailer(2.6, given["trailer"]), experiment.reversing
    starts = jnp.asarray([[0.0, 2.0, 0.0, given["reverse"], 0.0, 0.0]])
    before = jax.tree.map(jnp.asarray, given["gains"]["reversing"])
    after = experiment.tuned(law, experiment.off_line, truck, starts, before, config)
    away = [
        experiment.off_line(truck, experiment.followed(law, truck, starts, gains, config)[0], given)
        for gains in (before, after)
    ]
    assert float(jnp.sum(away[1] ** 2)) < 0.8 * float(jnp.sum(away[0] ** 2))
    assert abs(float(away[1][0, -1])) < 0.05
    # Without feedback it folds: a hitch that is bent a little bends more.
    bent = starts.at[0, 5].set(0.1)
    loose = experiment.followed(law, truck, bent, jax.tree.map(jnp.zeros_like, before), config)[0]
    assert float(jnp.abs(loose[0, -1, 5])) > 1.0


@pytest.mark.long
def test_a_train_of_one_trailer_moves_as_the_single_track_model_with_one():
    experiment, config = opened("path_following", trailers=[4.0])
    car, one = (
        experiment.train(2.6, config.experiment),
        experiment.vehicles.KinematicSingleTrackTrailer(2.6, 4.0),
    )
    x, u = jnp.asarray([0.3, -0.2, 0.2, -1.5, 0.4, 0.3]), jnp.asarray([0.1, 0.2])
    np.testing.assert_allclose(
        jax.jit(car.rate)(jnp.zeros(()), x, u), one.rate(jnp.zeros(()), x, u), rtol=0, atol=1e-14
    )


@pytest.mark.exhaustive
def test_hard_steering_tells_stiffness_and_friction_of_tires():
    experiment, config = opened("tire_identification", amplitudes=[0.1])
    with precision(config):
        system, method, start = worlds(config).one()
        true = jnp.asarray([9.0e4, 1.1e5, 0.9])
        numbers, errors, _ = (
            np.asarray(each) for each in experiment.fitted(system, method, start, true, config)
        )
    assert np.all(np.abs(numbers[0] - true) < 4.0 * errors[0])
    assert np.all(errors[0] < 0.01 * np.asarray(true))


@pytest.mark.long
def test_a_pendulum_on_two_wheels_balances_and_drives():
    experiment, config = opened("segway_balance", tilts=[0.3])
    with precision(config):
        system = experiment.robot(config)
        a, b = experiment.linearized(system)
        weights = config.experiment["weights"]
        gain = experiment.regulator(a, b, weights)
        q = np.diag([weights[name] for name in experiment.NAMES])
        riccati = scipy.linalg.solve_continuous_are(a, b, q, weights["torque"] * np.eye(2))
        np.testing.assert_allclose(gain, b.T @ riccati / weights["torque"], rtol=1e-9, atol=1e-9)
        numbers, _, status = experiment.balanced(system, gain, config.experiment["tilts"], config)
    # What is wished, after the five seconds since it was: the slowest pole has made of it exp(-7).
    np.testing.assert_allclose(numbers[0, -1], [0.0, 0.0, 1.0, 0.5], rtol=0, atol=2e-3)
    assert int(status[0]) == 0
