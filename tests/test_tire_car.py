"""The car on tires of `jaxdae.models` against closed forms of vehicle dynamics."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
import yaml
from scipy.optimize import fsolve
from small_runs import command, only
from vehicle_references import problem

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import models
from jaxdae import vehicles as jv
from jaxdae.app.config import config_elements
from jaxdae.app.config.config_source import read
from jaxdae.app.config.schema import Config
from jaxdae.app.export.export_results import columns

CONFIG = pathlib.Path(__file__).resolve().parents[1] / "configs" / "tire_car.yaml"


def last(car, start, torques, steps):
    """Returns the last state of a rollout in steps of 5 ms, and its status."""
    method, torques = jd.Projected(jd.RungeKutta.rk4()), jnp.tile(torques, (steps, 1))
    run = jd.rollout(car, method, start, torques, dt=5e-3, steps=steps, save_every=steps)
    return jax.tree.map(lambda x: x[-1], run.state), run.info.status[-1]


@pytest.mark.long
def test_steady_cornering_has_the_published_gains():
    """Derivatives with respect to the steering angle of cars that are neutral, oversteer and understeer."""
    p, reference, _, _ = problem("bicycle_linear_tyres")

    @jax.jit
    def gains(front, rear, factors):
        def cornering(angle):
            car, start = models.tire_car(
                front=front, rear=rear, stiffness=factors, steering=angle, speed=p["u"]
            )
            state, status = last(car, start, jnp.zeros(4), 800)
            slip, yaw = jv.tire_slip(car, state), state.v[car.names.velocities.index("chassis.omega")]
            return (yaw, slip.angle), (slip.ratio, status)

        return jax.jvp(cornering, (0.0,), (1.0,), has_aux=True)[1:]

    for case in reference["variants"]:
        arms, stiff = (np.array([case[name] for name in names]) for names in (("a", "b"), ("Cf", "Cr")))
        loads = p["m"] * 9.81 * arms[::-1] / arms.sum()
        (yaw, angles), (ratios, status) = gains(*arms, stiff / (1.0489 * loads))
        assert status == jd.Status.OK
        np.testing.assert_allclose(yaw, case["yaw_gain_at_15"], rtol=1e-9)
        # The axles share the centripetal force m u r like their loads, F = -C alpha.
        expected = -p["u"] * case["yaw_gain_at_15"] * loads / 9.81 / stiff
        np.testing.assert_allclose(angles, np.repeat(expected, 2), rtol=1e-9)
        np.testing.assert_allclose(ratios, 0.0, rtol=0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("torque", [600.0, -600.0])
def test_driven_and_braked_rear_wheels_slip_at_a_constant_ratio(torque):
    """With r omega = (1 + k) v, the equations of car and wheels are algebraic in a and the slip ratios k."""
    mass, radius, spin = 1093.2952334674046, 0.344, 1.7
    loads = mass * 9.81 / 2.0 * np.array([1.4227170936, 1.1561957064]) / (1.1561957064 + 1.4227170936)

    def missing(x):
        a, k = x[0], x[1:]
        s = 20.898 / 1.3507 * k
        force = 1.0489 * loads * np.sin(1.3507 * np.arctan(s + 0.0074722 * (s - np.arctan(s))))
        wheels = np.array([0.0, torque]) - radius * force - spin * (1.0 + k) * a / radius
        return [(mass * a - 2.0 * force.sum()) / mass, *wheels / 100.0]

    expected = np.asarray(fsolve(missing, [torque / 200.0, 0.0, torque / 3e4], xtol=1e-13), float)
    car, start = models.tire_car(speed=30.0)
    torques = jnp.array([0.0, 0.0, torque, torque])
    state, status = jax.jit(lambda start: last(car, start, torques, 400))(start)
    assert status == jd.Status.OK
    slip = jv.tire_slip(car, state)
    np.testing.assert_allclose(slip.ratio, np.repeat(expected[1:], 2), rtol=1e-8)
    np.testing.assert_array_equal(slip.names, ["front_left", "front_right", "rear_left", "rear_right"])
    np.testing.assert_allclose(slip.angle, 0.0, rtol=0, atol=1e-12)
    assert 0.02 < abs(expected[2]) < 0.05
    a = jd.forward_dynamics(car, state, torques)[0][car.names.velocities.index("chassis.vx")]
    np.testing.assert_allclose(a, expected[0], rtol=1e-8)


def test_the_start_follows_the_steering():
    car, start = models.tire_car(steering=jm.Sinusoid(0.1, 0.5, 0.3), speed=20.0)
    np.testing.assert_allclose(car.constraint(start.t, start.q), 0.0, rtol=0, atol=1e-15)
    q = dict(zip(car.names.coordinates, start.q, strict=True))
    v = dict(zip(car.names.velocities, start.v, strict=True))
    np.testing.assert_allclose(q["right_kingpin.angle"], 0.1 * np.sin(0.3), rtol=1e-15)
    np.testing.assert_allclose(v["right_kingpin.angle_rate"], 0.1 * np.pi * np.cos(0.3), rtol=1e-15)
    np.testing.assert_allclose([v["chassis.vx"], v["rear_left_wheel.omega"]], [20.0, 20.0 / 0.344])


def test_mass_and_inertia_are_those_of_the_whole_car():
    car, start = models.tire_car(mass=1100.0, inertia=1800.0)
    k = [car.names.velocities.index(f"chassis.{name}") for name in ("vx", "vy", "omega")]
    found = np.asarray(car.mass_matrix(start.q))[np.ix_(k, k)]
    # The chassis moves by its distance from the mass center of the car, at the origin.
    turning = np.array([0.0, start.q[0], 1.0])
    np.testing.assert_allclose(found[0, 0], 1100.0, rtol=1e-14)
    np.testing.assert_allclose(found @ turning, [0.0, 0.0, 1800.0], rtol=0, atol=1e-11)


def test_numbers_that_describe_no_car_raise():
    with pytest.raises(ValueError, match="speed must be positive, got 0"):
        models.tire_car(speed=0)
    with pytest.raises(ValueError, match="body 'chassis': mass must be a positive number, got -106"):
        models.tire_car(wheel_mass=600.0)


def test_the_config_describes_the_default_model():
    described = Config.model_validate(read(str(CONFIG)).data)
    found, q = jm.mechanism(config_elements.description(described.model_dump()), jm.Joints())
    car, start = models.tire_car()
    assert found.body_names == car.body_names
    np.testing.assert_allclose(q, start.q, rtol=0, atol=1e-12)
    for name in ("mass", "inertia"):
        np.testing.assert_allclose(getattr(found, name), getattr(car, name), rtol=1e-8)
    tires = [system.forces["spinning_magic_formula_contact"] for system in (found, car)]
    assert tires[0].names == tires[1].names
    for one, other in zip(*map(jax.tree.leaves, tires), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-12)


@pytest.mark.long
def test_the_command_reports_the_slip_of_tires(tmp_path):
    vary = {"path": "forces.left_engine.torque", "distribution": "normal", "scatter": 0.1}
    changed = yaml.safe_load(CONFIG.read_text()) | {"duration": 0.2, "output": {}}
    changed |= {"batch": {"size": 2, "vary": [vary]}}
    (tmp_path / "car.yaml").write_text(yaml.safe_dump(changed))
    out = tmp_path / "runs"
    assert command("run", tmp_path / "car.yaml", "--out", out)[0] == 0
    assert (only(out) / "plots" / "slip.png").is_file()
    with xr.open_zarr(only(out) / "results.zarr") as data:
        units = {column.name: column.unit for column in columns(data)}
        assert units["slip_ratio.front_left"] == "1"
        assert units["slip_angle.rear_right"] == "rad"
        chassis = data.twist.sel(body="chassis")
        heading, turn = data.pose.sel(body="chassis", in_pose="theta"), chassis.sel(in_twist="omega")
        moving = (chassis.sel(in_twist="vx") + 1j * chassis.sel(in_twist="vy")) * np.exp(-1j * heading)
        # The rear left wheel relative to the mass center of the chassis.
        wheel = moving + 1j * turn * (-1.4227170936 + 0.0716518966483 + 0.68199j)
        rim = 0.344 * data.v.sel(coordinate="rear_left_wheel.theta")
        expected = rim / wheel.real - 1.0
        np.testing.assert_allclose(data.slip_ratio.sel(tire="rear_left"), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(data.slip_angle.sel(tire="rear_left"), np.angle(wheel), rtol=0, atol=1e-13)
        assert np.all(data.slip_ratio.sel(tire="rear_left")[:, -1] > 0.01)
