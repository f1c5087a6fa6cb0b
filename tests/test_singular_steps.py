"""Steps of first-order systems that pass a singular configuration, such as a steering angle of 90 degrees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}
RK4 = jd.Kinematic.rk4()
DRIVEN, RESTING, AWAY = (1.0, 2.0), (0.0, 2.0), (1.0, -2.0)
"""Speeds in m/s and steering rates in rad/s. With the first, 1.4 rad becomes pi/2 in the ninth step."""


def statuses(system, q, inputs, method=RK4, steps=12):
    """Return the statuses (worlds, steps) of rollouts with constant inputs (worlds, nu)."""
    start = jd.State(0.0, q, jnp.zeros(len(system.names.velocities)))

    @jax.jit
    @jax.vmap
    def run(u):
        return jd.rollout(system, method, start, jnp.tile(u, (steps, 1)), dt=0.01).info.status

    return np.asarray(run(jnp.asarray(inputs)))


def expect_one_failure(found):
    """Check that the first of three worlds ends in step 8, and that the others succeed."""
    np.testing.assert_array_equal(found[0], np.where(np.arange(12) < 8, jd.Status.OK, jd.Status.SINGULAR))
    np.testing.assert_array_equal(found[1:], jd.Status.OK)


BICYCLE = jv.bicycle(2.5, steering=1.4)
TRUCK = jv.truck_and_trailers(2.5, [2.0], [0.5], steering=1.4)


@pytest.mark.long
@pytest.mark.parametrize("form", [pytest.param("absolute", marks=pytest.mark.exhaustive), "joints"])
def test_a_steering_angle_that_passes_a_right_angle_is_singular(form):
    system, q = jm.kinematic_mechanism(BICYCLE, FORMS[form])
    expect_one_failure(statuses(system, q, [DRIVEN, RESTING, AWAY]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("case", "form"), [("truck", "joints"), ("embedded", "joints"), ("midpoint", "absolute")]
)
def test_all_forms_of_first_order_report_the_passage(form, case):
    system, q = jm.kinematic_mechanism(TRUCK if case == "truck" else BICYCLE, FORMS[form])
    system = jm.Embedded(system) if case == "embedded" else system
    method = jd.Kinematic.midpoint() if case == "midpoint" else RK4
    expect_one_failure(statuses(system, q, [DRIVEN, RESTING, AWAY], method))


@pytest.mark.long
def test_the_equations_in_driven_velocities_report_the_passage():
    description = jv.bicycle(2.5, steering=1.55, mass=10.0, inertia=3.0, fork_mass=1.0, fork_inertia=0.1)
    mechanism, q = jm.mechanism(description, jm.Joints())
    system = jm.EmbeddedMechanism(mechanism, jm.kinematic_mechanism(description, jm.Joints())[0])
    start = jnp.concatenate([q, jnp.array([10.0, 40.0])])
    state = jd.State(0.0, start, jnp.zeros(len(system.names.velocities)))
    found = jd.rollout(system, RK4, state, dt=0.001, steps=2).info.status
    np.testing.assert_array_equal(found, jd.Status.SINGULAR)


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        "KS",
        pytest.param("KST", marks=pytest.mark.exhaustive),
        pytest.param("ST", marks=pytest.mark.exhaustive),
    ],
)
def test_single_track_models_report_the_passage(model):
    x = jnp.array([0.0, 0.0, 1.4, 0.05, 0.0, 0.0, 0.0])
    cars = {
        "KS": (jv.KinematicSingleTrack(2.5), x[:5]),
        "KST": (jv.KinematicSingleTrackTrailer(2.5, 3.0), x[:6]),
        "ST": (jv.DynamicSingleTrack(1.2, 1.3, 1000.0, 1500.0, 0.5, 1.0, 20.0, 20.0), x),
    }
    car, x = cars[model]
    expect_one_failure(statuses(car, x, [(2.0, 0.0), (-2.0, 0.0), (1.0, 0.0)]))
    if model == "KS":
        at_the_pole = x.at[2].set(0.5 * jnp.pi)
        np.testing.assert_array_equal(statuses(car, at_the_pole, [(0.0, 0.0)]), jd.Status.SINGULAR)
        at_rest = x.at[3].set(0.0)
        np.testing.assert_array_equal(statuses(car, at_rest, [(2.0, 0.0)]), jd.Status.OK)
