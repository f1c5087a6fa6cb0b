"""The experiment `car`, and configs with wheels, rotors and tires."""

import importlib.util
import pathlib

import jax
import numpy as np
import pytest
import rich.console
import xarray as xr
from all_cases import all_cases

import jaxdae as jd
from jaxdae.app import precision, run
from jaxdae.app.config.config_source import read
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.model import coordinate_names, structure
from jaxdae.app.model.build import worlds
from jaxdae.app.model.load_config import load

ROOT = pathlib.Path(__file__).parents[2]

ROBOT = """
name: robot
description: Two driven wheels.
mechanism:
  gravity: [0, 0]
  bodies:
    - {name: chassis, mass: 20, inertia: 1, pose: [0, 0, 0.3], free: true}
  rotors:
    - {name: left, inertia: 0.02}
    - {name: right, inertia: 0.02, angle: 0.5}
  joints:
    - {type: wheel, name: left_wheel, body: chassis, axis: [1, 0], point: [0, 0.25], radius: 0.1, spin: left}
    - {type: wheel, name: right_wheel, body: chassis, axis: [1, 0], point: [0, -0.25], radius: 0.1, spin: right, lateral: false}
  forces:
    - {type: torque, name: left_motor, a: ground, b: left, torque: 0.4}
    - {type: torque, name: right_motor, a: ground, b: right, torque: 1.0}
integrator: rk4
duration: 0.1
dt: 0.01
save_every: 1
output: {plots: false}
"""


@pytest.mark.exhaustive
def test_the_car_runs_as_the_closed_form_says():
    spec = importlib.util.spec_from_file_location("car", ROOT / "experiments" / "car.py")
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    config = Config.model_validate(read(str(ROOT / "configs" / "car.yaml")).data)
    with precision(config):
        system, method, start = worlds(config).one()
        car = experiment.car(system, config)
        np.testing.assert_allclose([car.mass, car.inertia, car.wheelbase], [1260.0, 3103.1, 2.5], rtol=1e-12)
        run = jd.rollout(system, method, start, dt=config.dt, steps=100)
        jd.raise_if_failed(run.info)
        motion = next(iter(group.motion for group in system.joints.values() if hasattr(group, "motion")))
        exact = experiment.closed_form(car, jax.tree.map(lambda leaf: leaf[0], motion), 3.0, config.dt, 100)
        np.testing.assert_allclose(experiment.rear_axle(car, run.state), exact, rtol=0, atol=1e-10)


@pytest.mark.long
def test_a_config_with_rotors_runs_in_both_forms_of_coordinates(tmp_path):
    found = []
    for form in ("absolute", "joints"):
        file = tmp_path / f"{form}.yaml"
        file.write_text(ROBOT.replace("  gravity", f"  coordinates: {form}\n  gravity"))
        config, made = load(str(file))
        assert len(structure.lines(config)) > 3
        with precision(config):
            system, method, start = made.one()
            assert system.names.coordinates == (
                "chassis.x",
                "chassis.y",
                "chassis.theta",
                "left.theta",
                "right.theta",
            )
            assert coordinate_names.of_values(config.model_dump()) == coordinate_names.of_system(system)
            found.append(jd.rollout(system, method, start, dt=config.dt, steps=10).state.q[-1])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-13)
    # A run holds the poses of bodies; rotors have none.
    done = run(config, made, tmp_path, rich.console.Console(quiet=True))
    data = xr.open_zarr(done.folder / "results.zarr")
    assert list(data.body.values) == ["chassis"]
    np.testing.assert_allclose(data.pose.values[0, -1, 0], found[1][:3], rtol=0, atol=1e-15)


def test_a_config_with_rotors_is_built(tmp_path):
    file = tmp_path / "robot.yaml"
    file.write_text(ROBOT)
    config, made = load(str(file))
    assert coordinate_names.of_values(config.model_dump()) == coordinate_names.of_system(made.system)
    assert structure.lines(config)[-3:-1] == [
        "  left_wheel (wheel below chassis)",
        "  right_wheel (wheel below chassis)",
    ]
    np.testing.assert_allclose(made.state.q[0], [0.0, 0.0, 0.3, 0.0, 0.5])


@all_cases(
    ("old", "new", "parts"),
    [
        ("spin: left}", "spin: lft}", ("unknown rotor 'lft'", "did you mean 'left'")),
        ("spin: left}", "spin: chassis}", ("'chassis', which is not a rotor",)),
        ("radius: 0.1, spin: left}", "radius: 0.1}", ("radius but no spin",)),
        ("{name: left, inertia: 0.02}", "{name: left, inertia: 0}", ("inertia", "> 0")),
        ("{name: left, ", "{name: chassis, ", ("'chassis' a second time",)),
    ],
)
def test_mistakes_about_rotors_have_their_place(tmp_path, old, new, parts):
    file = tmp_path / "robot.yaml"
    file.write_text(ROBOT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    for part in parts:
        assert part in str(caught.value)
