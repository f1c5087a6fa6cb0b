"""Configs with `vehicle:`, `wheels:` and `terrain:`: what they stand for, and every mistake that they can
have.
"""

import copy
import pathlib

import jax
import numpy as np
import pytest
import typer.testing
import xarray as xr
import yaml
from all_cases import all_cases

from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.app.cli import app
from jaxdae.app.config import config_elements
from jaxdae.app.config.config_source import Document, find
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_terrain import KINDS, TERRAINS, terrain
from jaxdae.app.config.type_tables import table
from jaxdae.app.config.vehicle_section import PARAMETERS
from jaxdae.app.export.export_results import columns
from jaxdae.app.model.crosscheck import crosscheck
from jaxdae.app.model.load_config import load
from jaxdae.app.model.units import unit_of
from jaxdae.mechanisms.joints.drives import DRIVES

DRIVE = {
    "type": "differential_drive",
    "wheel_separation": 0.5,
    "wheel_radius": 0.1,
    "mass": 20,
    "inertia": 1,
    "wheel_inertia": 0.02,
}
BICYCLE = {
    "type": "bicycle",
    "wheelbase": 2.5,
    "mass": 1000,
    "inertia": 900,
    "fork_mass": 10,
    "fork_inertia": 1,
}
CHASSIS = [{"name": "chassis", "mass": 20, "inertia": 1, "pose": [0, 0, 0.3], "free": True}]
WHEEL = {"name": "left", "body": "chassis", "point": [0, 0.25], "radius": 0.1, "inertia": 0.02}
DISC = [
    {"name": "disc", "mass": 2, "inertia": [0.045, 0.09, 0.045], "pose": {"place": [0, 0, 0.3]}, "free": True}
]
CONTACT = {"name": "contact", "a": "ground", "b": "disc", "axis": [0, 1, 0], "at": [0, 0, 0.3], "radius": 0.3}
FLAT = [[0.0, 0.0, 0.0]] * 3
MAP = {"type": "height_map", "heights": FLAT, "spacing": 1.0, "origin": [-1, -1]}


def written(mechanism, *overrides):
    text = yaml.safe_dump(
        {"name": "test", "mechanism": mechanism, "duration": 1, "dt": 0.01}, sort_keys=False
    )
    return Document("test", text, overrides)


def built(mechanism, *overrides):
    """Returns the description of a config, which has no mistakes."""
    document = written(mechanism, *overrides)
    config = Config.model_validate(document.data)
    assert not document.problems
    assert crosscheck(document, config) == []
    return config_elements.description(config.model_dump())


def assert_same(ours, theirs):
    """Two descriptions are of the same mechanism."""
    one, q = jm.mechanism(ours)
    other, r = jm.mechanism(theirs)
    assert one.names == other.names
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for mine, given in zip(jax.tree.leaves((one, q)), jax.tree.leaves((other, r)), strict=True):
        np.testing.assert_allclose(mine, given, rtol=0, atol=1e-15)


@pytest.mark.long
def test_a_vehicle_is_what_its_constructor_returns():
    numbers = {key: value for key, value in DRIVE.items() if key != "type"}
    ours = built({"vehicle": DRIVE | {"pose": [1, 2, 0.3], "center": [0.1, 0]}}, "vehicle.mass=25")
    assert_same(ours, jv.differential_drive(**numbers | {"mass": 25}, pose=(1, 2, 0.3), center=(0.1, 0)))
    ours = built({"vehicle": {"type": "ackermann", "wheelbase": 2.5, "track": 1.5, "steering": [0.3, 0.2], "mass": 1200, "inertia": 1500,
                              "knuckle_mass": 20, "knuckle_inertia": 1.2}})  # fmt: skip
    masses = {"mass": 1200, "inertia": 1500, "knuckle_mass": 20, "knuckle_inertia": 1.2}
    assert_same(ours, jv.ackermann(2.5, 1.5, steering=(0.3, 0.2), **masses))
    trailers = {
        "lengths": [3.0, 4.0],
        "offsets": [0.5, -0.2],
        "trailer_mass": [500, 400],
        "trailer_inertia": 600,
    }
    truck = {"wheelbase": 3, "mass": 2000, "inertia": 3000, "fork_mass": 10, "fork_inertia": 1}
    assert_same(
        built({"vehicle": {"type": "truck_and_trailers"} | truck | trailers}),
        jv.truck_and_trailers(**truck | trailers),
    )
    hills = {"amplitudes": [0.1, 0.2], "kx": [1.0, 0.0], "ky": [0.5, 2.0], "phase": [0.2, 0.1]}
    rover = {"vehicle": {"type": "rocker_bogie", "mass": 9}, "terrain": {"type": "hills"} | hills}
    assert_same(
        built(rover),
        jv.rocker_bogie(jv.Hills(**{key: np.asarray(each) for key, each in hills.items()}), mass=9),
    )
    bicycle = built({"vehicle": {"type": "whipple_bicycle", "mB": 80}})
    assert_same(
        bicycle,
        jv.whipple_bicycle(
            jv.BicycleParameters(mB=80), terrain=jv.Plane(np.array([0.0, 0.0, 1.0]), np.array(0.0))
        ),
    )


def test_every_parameter_of_a_vehicle_is_described():
    assert all(each.text for kind in PARAMETERS.values() for key, each in kind.items() if key != "terrain")


def test_wheels_beside_bodies_are_joints_with_rotors():
    mechanism = {
        "gravity": [0, 0],
        "bodies": CHASSIS,
        "wheels": [WHEEL, WHEEL | {"name": "right", "point": [0, -0.25], "lateral": False}],
    }
    bodies = [
        jm.Body("chassis", 20, 1, (0, 0, 0.3)),
        jm.Rotor("left_spin", 0.02),
        jm.Rotor("right_spin", 0.02),
    ]
    wheels = [
        jm.Wheel("left", "chassis", (1, 0), point=(0, 0.25), radius=0.2, spin="left_spin"),
        jm.Wheel("right", "chassis", (1, 0), point=(0, -0.25), radius=0.1, spin="right_spin", lateral=False),
    ]
    theirs = jm.Description(bodies=bodies, joints=wheels, gravity=(0, 0))
    assert_same(built(mechanism, "wheels.left.radius=0.2"), theirs)
    data = Config.model_validate(written(mechanism).data).model_dump()
    assert find(data, ["wheels", "right", "radius"]) == (("mechanism", "joints", 1, "radius"), [])


@pytest.mark.long
def test_terrains_are_those_of_the_library():
    sections = {
        "plane": {"normal": [0.0, 0.1, 1.0], "offset": 0.2},
        "hills": {"amplitudes": [0.1], "kx": [1.0], "ky": [2.0], "phase": [0.0]},
        "cylinder": {"radius": -3.0},
        "height_map": {"z": [[0.0, 1.0], [2.0, 3.0]], "spacing": [0.5, 0.25]},
    }
    for key, numbers in sections.items():
        found = (
            built({"space": "space", "bodies": DISC, "wheels": [CONTACT], "terrain": {"type": key} | numbers})
            .joints[0]
            .terrain
        )
        expected = KINDS[key](**numbers)
        assert type(found) is type(expected)
        np.testing.assert_allclose(found.height(0.1, 0.2), expected.height(0.1, 0.2), rtol=1e-15)
    through = terrain(TERRAINS["height_map"].model_validate(MAP | {"heights": [[0, 1], [2, 5]]}).model_dump())
    np.testing.assert_allclose(through.height(0.0, 0.0), 5.0, rtol=1e-15)
    own = built(
        {
            "space": "space",
            "bodies": DISC,
            "wheels": [CONTACT | {"terrain": {"type": "cylinder", "radius": 2}}],
            "terrain": "plane",
        }
    )
    assert isinstance(own.joints[0].terrain, jv.Cylinder)
    data = Config.model_validate(
        written({"space": "space", "bodies": DISC, "terrain": MAP}).data
    ).model_dump()
    assert unit_of(data, ("mechanism", "terrain", "spacing")) == "m"


def space(**keys):
    return {"space": "space", "bodies": DISC, "wheels": [CONTACT], **keys}


def without(given, *keys):
    return {key: value for key, value in given.items() if key not in keys}


MISTAKES = {
    "no type": (
        {"vehicle": {"wheelbase": 1}},
        "mechanism.vehicle.type",
        "no type",
        "one of differential_drive",
    ),
    "unknown type": (
        {"vehicle": {"type": "bicycl"}},
        "mechanism.vehicle.type",
        "'bicycl'",
        "did you mean 'bicycle'?",
    ),
    "no mapping": ({"vehicle": 3}, "mechanism.vehicle", "got 3", "a mapping"),
    "unknown key": (
        {"vehicle": DRIVE | {"wheel_radios": 1}},
        "mechanism.vehicle.wheel_radios",
        "did you mean 'wheel_radius'?",
    ),
    "no mass": (
        {"vehicle": without(DRIVE, "mass")},
        "mechanism.vehicle.mass",
        "got nothing",
        "add mass: of the robot",
    ),
    "nan": (
        {"vehicle": DRIVE | {"wheel_radius": float("nan")}},
        "mechanism.vehicle.wheel_radius",
        "got .nan",
        "finite numbers",
    ),
    "negative radius": (
        {"vehicle": DRIVE | {"wheel_radius": -1}},
        "mechanism.vehicle.wheel_radius",
        "got -1",
        "numbers > 0",
    ),
    "a list of masses": (
        {"vehicle": DRIVE | {"mass": [20]}},
        "mechanism.vehicle",
        "a list instead of a number",
        "one number",
    ),
    "three radii": (
        {"vehicle": DRIVE | {"wheel_radius": [1, 2, 3]}},
        "mechanism.vehicle",
        "one number, or 2 of them",
        "shape (3,)",
    ),
    "short pose": (
        {"vehicle": DRIVE | {"pose": [1, 2]}},
        "mechanism.vehicle.pose",
        "a list of 2",
        "a list of 3 numbers",
    ),
    "wheelbase 0": (
        {"vehicle": BICYCLE | {"wheelbase": 0}},
        "mechanism.vehicle",
        "wheelbase must be positive and finite",
        "got 0",
    ),
    "steering": (
        {"vehicle": BICYCLE | {"steering": 4.0}},
        "mechanism.vehicle",
        "between -pi and pi",
        "got 4.0",
    ),
    "two omni wheels": (
        {
            "vehicle": {
                "type": "omni",
                "count": 2,
                "distance": 1,
                "wheel_radius": 0.1,
                "mass": 1,
                "inertia": 1,
                "wheel_inertia": 1,
            }
        },
        "mechanism.vehicle",
        "count must be a whole number, at least 3, got 2",
    ),
    "terrain of a rover": (
        {"vehicle": {"type": "rocker_bogie", "terrain": 3}},
        "mechanism.vehicle.terrain",
        "mechanism.terrain is",
    ),
    "in space": (
        {"space": "space", "vehicle": DRIVE},
        "mechanism.vehicle.type",
        "with space: space",
        "expected space: plane",
    ),
    "in the plane": (
        {"space": "plane", "vehicle": {"type": "rocker_bogie"}},
        "mechanism.vehicle.type",
        "expected space: space",
    ),
    "wheels no list": (
        {"bodies": CHASSIS, "wheels": {"name": "w"}},
        "mechanism.wheels",
        "got a mapping",
        "a list",
    ),
    "wheel no mapping": ({"bodies": CHASSIS, "wheels": [3]}, "mechanism.wheels.0", "got 3", "a mapping"),
    "wheel of another type": (
        {"bodies": CHASSIS, "wheels": [WHEEL | {"type": "weld"}]},
        "mechanism.wheels.left.type",
        "one of wheel, mec",
    ),
    "no heading": (
        {"bodies": CHASSIS, "wheels": [without(WHEEL, "point") | {"at": [0, 1]}]},
        "mechanism.wheels.left.axis",
        "the heading",
    ),
    "null heading": (
        {"bodies": CHASSIS, "wheels": [WHEEL | {"axis": [0, 0]}]},
        "mechanism.wheels.left.axis",
        "of non-zero length",
    ),
    "unknown body": (
        {"bodies": CHASSIS, "wheels": [WHEEL | {"body": "chasis"}]},
        "mechanism.wheels.left.body",
        "mean 'chassis'?",
    ),
    "unknown key of a wheel": (
        {"bodies": CHASSIS, "wheels": [WHEEL | {"radios": 1}]},
        "mechanism.wheels.left.radios",
        "'radius'?",
    ),
    "inertia of a wheel": (
        {"bodies": CHASSIS, "wheels": [WHEEL | {"inertia": -1}]},
        "mechanism.rotors.left_spin.inertia",
        "got -1",
    ),
    "no name": (
        {"bodies": CHASSIS, "wheels": [without(WHEEL, "name")]},
        "mechanism.wheels.0.name",
        "got nothing",
    ),
    "inertia in space": (
        space(wheels=[CONTACT | {"inertia": 1}], terrain="plane"),
        "mechanism.wheels.contact.inertia",
        "the body has",
    ),
    "no ground": (space(), "mechanism.wheels.contact", "without a terrain", "add terrain"),
    "ground in the plane": (
        {"bodies": CHASSIS, "terrain": "plane"},
        "mechanism.terrain",
        "has level ground",
    ),
    "unknown terrain": (space(terrain={"type": "plain"}), "mechanism.terrain.type", "did you mean 'plane'?"),
    "holes": (
        space(terrain=MAP | {"heights": [[0, None], [float("nan"), 0]]}),
        "terrain.heights",
        "2 of 4 heights",
        "first at [0, 1]",
    ),
    "ragged": (
        space(terrain=MAP | {"heights": [[0, 0], [0]]}),
        "mechanism.terrain.heights",
        "rows of [1, 2] numbers",
        "the same length",
    ),
    "no heights": (space(terrain=without(MAP, "heights")), "mechanism.terrain", "neither heights nor z"),
    "spacing": (
        space(terrain=MAP | {"spacing": 0}),
        "mechanism.terrain",
        "invalid height_map: spacing must be a positive number",
        "a surface",
    ),
    "three spacings": (
        space(terrain=MAP | {"spacing": [1, 1, 1]}),
        "mechanism.terrain.spacing",
        "got [1, 1, 1]",
        "or a list of two",
    ),
    "no radius": (
        space(terrain={"type": "cylinder", "radius": 0}),
        "mechanism.terrain",
        "radius must be a nonzero number",
    ),
}


def messages(mechanism, tmp_path, **others):
    data = {"name": "test", "mechanism": copy.deepcopy(mechanism), "duration": 1, "dt": 0.01, **others}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "test.yaml"))
    return [str(problem) for problem in caught.value.problems]


@all_cases("name", MISTAKES)
def test_each_mistake_is_told_with_its_place_and_remedy(tmp_path, name, monkeypatch):
    # What is asked here is found before loops are closed, which takes long.
    monkeypatch.setattr("jaxdae.app.model.load_config._skeleton", lambda document: None)
    mechanism, *expected = MISTAKES[name]
    (line,) = messages(mechanism, tmp_path)
    for part in expected:
        assert part in line


def test_all_mistakes_are_told_at_once(tmp_path):
    motor = {"type": "torque", "name": "motor", "a": "ground", "b": "left_wheel", "torque": 1}
    wrong = {"vehicle": DRIVE | {"wheel_radios": 1, "mass": -1}, "forces": [motor]}
    mass, key, dt = messages(wrong, tmp_path, dt=-1, start={"velocities": {"base_link.x": 1}})
    assert "mechanism.vehicle.mass: got -1" in mass
    assert "wheel_radios" in key
    assert "dt: got -1" in dt


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        (without(WHEEL, "radius"), "has the spin 'left_spin' but no radius"),
        (without(WHEEL, "inertia"), "has a radius but no spin"),
    ],
    ids=["no radius", "no spin"],
)
def test_a_rolling_row_needs_spin_and_radius(tmp_path, wheel, expected):
    (line,) = messages({"bodies": CHASSIS, "wheels": [wheel]}, tmp_path)
    assert "mechanism.wheels.left" in line
    assert expected in line


LOSS = {"type": "coordinate", "coordinate": "base_link.x", "target": 1.0}
FIRST = {
    "order": "first",
    "coordinates": "joints",
    "vehicle": {"type": "differential_drive", "wheel_separation": 0.5, "wheel_radius": 0.1},
}


@pytest.mark.long
def test_a_vehicle_of_first_order_is_driven_by_rates_and_by_a_table(tmp_path):
    (tmp_path / "u.csv").write_text("t,right_motor\n0,4.0\n0.5,6.0\n")
    mechanism = FIRST | {"rates": {"left_motor": 4.0}}
    values = {
        "name": "test",
        "mechanism": mechanism,
        "duration": 1,
        "dt": 0.05,
        "save_every": 10,
        "output": {"plots": False},
    }
    values |= {"integrator": {"type": "rk4", "projection": "none"}, "controls": "u.csv"}
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(values))
    done = typer.testing.CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert "energy" not in (folder / "report.md").read_text()
    with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
        names, q, v = list(data.coordinate.values), data.q.values[0], data.v.values[0]
        assert np.all(data.status.values == 0)
        # Half a second straight at 0.4 m/s, then on an arc: v = 0.5 m/s, omega = 0.4 rad/s.
        np.testing.assert_allclose(
            q[1, [names.index(f"base_link.{name}") for name in ("x", "y", "theta")]],
            [0.2, 0.0, 0.0],
            rtol=0,
            atol=1e-14,
        )
        end = [0.2 + 1.25 * np.sin(0.2), 1.25 * (1.0 - np.cos(0.2)), 0.2]
        np.testing.assert_allclose(
            q[2, [names.index(f"base_link.{name}") for name in ("x", "y", "theta")]], end, rtol=0, atol=1e-9
        )
        np.testing.assert_allclose(v[2, names.index("base_link.theta")], 0.4, rtol=1e-13)
        assert list(data.row.values)[-2:] == ["left_motor.rate", "right_motor.rate"]
        assert (
            data.lam.attrs["long_name"] == "multipliers; the velocities are +J^T lam"
        )  # Not forces: nothing has a mass.
        assert {column.unit for column in columns(data) if column.variable == "lam"} == {"m/s", "rad/s"}


def test_the_table_of_drives_is_that_of_their_fields():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "configs_reference.md").read_text()
    assert table(DRIVES["plane"]) in text, "put this table into docs/configs_reference.md:\n" + table(
        DRIVES["plane"]
    )


@all_cases(
    ("changed", "others", "place", "text"),
    [
        ({"order": "second"}, {}, "mechanism.vehicle.mass", "got nothing"),
        ({"rates": {"left": 1.0}}, {}, "mechanism.rates.left", "the unknown drive 'left'"),
        (
            {"forces": [{"type": "torque", "name": "m", "a": "ground", "b": "left_wheel", "torque": 1}]},
            {},
            "mechanism",
            "forces with order",
        ),
        (
            {"drives": [{"type": "spin_rate", "name": "spin", "spin": "middle"}]},
            {},
            "mechanism.drives.spin.spin",
            "unknown rotor 'middle'",
        ),
        ({}, {"integrator": "rattle"}, "integrator", "one of explicit_euler, midpoint, rk4"),
        (
            {},
            {"controls": {"times": [0.0], "inputs": {"motor": [1.0]}}},
            "controls.inputs.motor",
            "the unknown drive 'motor'",
        ),
        (
            {},
            {"start": {"velocities": {"base_link.x": 1.0}}},
            "start.velocities",
            "velocities follow from the drives",
        ),
        (
            {},
            {"batch": {"size": 2, "vary": [{"path": "mechanism.bodies.base_link.mass", "std": 0.1}]}},
            "batch.vary",
            "'mechanism.bodies.base_link.mass', which does not change the motion",
        ),
        (
            {},
            {"tune": {"parameters": [{"path": "mechanism.gravity.0"}], "loss": [LOSS]}},
            "tune.parameters",
            "'mechanism.gravity.0', which does not change the motion",
        ),
    ],
)
def test_mistakes_of_first_order_are_named(changed, others, place, text, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxdae.app.model.load_config._skeleton", lambda document: None)
    found = messages(FIRST | changed, tmp_path, **others)
    assert any(place in line and text in line for line in found), found


def test_of_a_vehicle_that_is_refused_nobody_asks_what_its_drives_are_called(tmp_path):
    vehicle = {"type": "bicycle", "wheelbase": 0}
    control = {
        "type": "pd",
        "inputs": ["steering"],
        "coordinates": ["front_kingpin.angle"],
        "reference": [0.3],
        "kp": 5.0,
        "kd": 0.0,
    }
    (line,) = messages(FIRST | {"vehicle": vehicle, "rates": {"speed": 1.0}}, tmp_path, control=control)
    assert "mechanism.vehicle: got wheelbase must be" in line


@pytest.mark.long
def test_a_start_beyond_the_terrain_is_a_mistake(tmp_path):
    (line,) = messages(space(terrain=MAP | {"origin": [5, 5]}), tmp_path)
    assert "mechanism.wheels.contact" in line
    assert "beyond its terrain" in line


@pytest.mark.long
def test_a_disc_that_lies_flat_is_a_mistake_and_no_open_loop(tmp_path):
    (line,) = messages(space(terrain="plane", wheels=[CONTACT | {"axis": [0, 0, 1]}]), tmp_path)
    assert "mechanism.wheels.contact" in line
    assert "touches the ground at two points" in line
