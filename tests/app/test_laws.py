"""Inputs over time and feedback laws in configs."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import typer.testing
import xarray as xr
import yaml
from PIL import Image

import jaxdae
from jaxdae import control
from jaxdae.app.cli import app
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.export.view_run import Seen
from jaxdae.app.model import build, config_laws
from jaxdae.app.model.load_config import load
from jaxdae.app.model.objective import objective
from jaxdae.app.runs import open_run

ARM = {
    "name": "arm",
    "mechanism": {
        "bodies": [{"name": "arm", "mass": 1.0, "inertia": 0.0833, "pose": [0.0, -0.5, -np.pi / 2]}],
        "joints": [
            {
                "type": "revolute",
                "name": "hinge",
                "a": "ground",
                "b": "arm",
                "point_a": [0, 0],
                "point_b": [-0.5, 0],
                "damping": 0.2,
            }
        ],
        "forces": [{"type": "torque", "name": "motor", "a": "ground", "b": "arm", "torque": 0.5}],
    },
    "start": {"fixed": ["arm.theta"]},
    "duration": 0.1,
    "dt": 0.01,
    "save_every": 5,
    "integrator": "semi_implicit_euler",
    "output": {"plots": False},
}
PD = {
    "type": "pd",
    "inputs": ["motor"],
    "coordinates": ["arm.theta"],
    "reference": [-1.0],
    "kp": 20,
    "kd": 6,
    "gravity": True,
}


@jaxdae.tree.pytree
class Falling(jaxdae.System):
    n_inputs = 1

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return u


def written(folder, **others):
    """Returns the file of a config."""
    file = folder / "arm.yaml"
    file.write_text(yaml.safe_dump(ARM | others))
    return file


@pytest.mark.long
def test_inputs_over_time_are_replayed(tmp_path):
    inputs = np.linspace(-2.0, 2.0, 10) ** 3
    (tmp_path / "u.csv").write_text(
        "t,motor\n" + "".join(f"{0.01 * k!r},{u!r}\n" for k, u in enumerate(inputs.tolist()))
    )
    file = written(tmp_path, controls="u.csv")
    done = typer.testing.CliRunner().invoke(
        app, ["run", str(file), "--out", str(tmp_path / "runs"), "--animate"]
    )
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    config, worlds = load(str(file))
    with precision(config):
        system, method, start = worlds.one()
        bare = method.integrator
        expected = jaxdae.rollout(system, bare, start, jnp.asarray(inputs)[:, None], dt=0.01, save_every=5)
        # What the run says of accelerations and reactions is with the input of the step that begins there.
        last = jaxdae.State(0.05, expected.state.q[0], expected.state.v[0])
        a, lam = jaxdae.forward_dynamics(system, last, jnp.asarray(inputs[5:6]))
    with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
        np.testing.assert_allclose(data.q.values[0, 1:], expected.state.q, rtol=0, atol=1e-13)
        np.testing.assert_allclose(data.a.values[0, 1], a, rtol=0, atol=1e-10)
        np.testing.assert_allclose(data.lam.values[0, 1], lam, rtol=0, atol=1e-10)
        assert abs(data.q.values[0, -1, 2] - data.q.values[0, 0, 2]) > 1e-3
    # The reaction of the hinge is that with these inputs.
    reactions, _ = Seen(open_run.drawable(folder)).arrows(0)
    np.testing.assert_allclose(reactions.vectors[1, 0, :2], lam, rtol=0, atol=1e-10)
    with Image.open(folder / "plots" / "motion.gif") as gif:
        assert gif.n_frames == 3
    # The folder has all that it was made of: its config holds the numbers.
    (tmp_path / "u.csv").unlink()
    assert load(str(folder / "config.yaml"))[0] == config


@pytest.mark.long
def test_laws_of_configs_are_those_of_the_library(tmp_path):
    tracking = {key: PD[key] for key in ("inputs", "coordinates", "reference", "kp", "kd")}
    for law, kind in (
        (PD | {"upper": 3.0}, control.Saturated),
        ({"type": "computed_torque", **tracking}, control.ComputedTorque),
        ({"type": "regulator", "inputs": ["motor"], "input_weight": 0.1}, control.LinearFeedback),
    ):
        config, worlds = load(str(written(tmp_path, control=law)))
        with precision(config):
            system, method, start = worlds.one()
            assert isinstance(method.law, kind)
            u = config_laws.input_of(method, start, (), config.dt)
            assert u.shape == (1,)
            a = jaxdae.forward_dynamics(system, start, u)[0]
        if law["type"] == "pd":
            # kp (-1 + pi / 2) = 11.4 is above the limit; hanging down nothing of the weight turns the arm.
            assert float(u[0]) == 3.0
        elif law["type"] == "computed_torque":
            assert float(a[2]) == pytest.approx(20 * (-1 + np.pi / 2))
        else:
            assert float(u[0]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.exhaustive
def test_a_regulator_knows_of_redundant_rows_and_of_starts_that_nothing_holds(tmp_path):
    law = {"type": "regulator", "inputs": ["motor"], "input_weight": 0.1}
    hinge, body = ARM["mechanism"]["joints"][0], ARM["mechanism"]["bodies"][0]
    twice = ARM["mechanism"] | {"joints": [hinge, hinge | {"name": "again"}]}
    config, worlds = load(str(written(tmp_path, control=law, mechanism=twice, solver="null_space")))
    with precision(config):
        system, method, start = worlds.one()
        expected = control.linear_quadratic_regulator(
            system, start, position_weight=1.0, velocity_weight=1.0, input_weight=0.1
        )
    assert float(jnp.max(jnp.abs(expected.gain))) > 0.1
    np.testing.assert_allclose(method.law.gain, expected.gain, rtol=0, atol=1e-9)
    falling = ARM["mechanism"] | {"joints": [], "bodies": [body | {"free": True}]}
    with pytest.raises(
        ConfigError,
        match="control: got a regulator that does not exist: state and u must be an equilibrium, but the largest",
    ):
        load(str(written(tmp_path, control=law, mechanism=falling)))


@pytest.mark.exhaustive
def test_a_law_with_a_memory_runs_and_is_replayed(tmp_path):
    pid = PD | {"type": "pid", "ki": 30.0, "upper": 9.0}
    (runner, runs), every = (typer.testing.CliRunner(), tmp_path / "runs"), {"save_every": 1, "duration": 0.2}
    done = runner.invoke(app, ["run", str(written(tmp_path, control=pid, **every)), "--out", str(runs)])
    assert done.exit_code == 0, done.output
    (folder,) = runs.iterdir()
    config, worlds = load(str(folder / "config.yaml"))
    with precision(config):
        system, method, start = worlds.one()
        law = method.integrator.law
        assert isinstance(law, control.PID)
    with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
        theta, inputs, times, a = (
            data.q.values[0, :, 2],
            data.u.values[0, :, 0],
            data.time.values,
            data.a.values[0],
        )
        assert (data.input.values, data.input_unit.values) == ("motor", "N m")
        with precision(config):
            state = jaxdae.State(times[7], jnp.asarray(data.q.values[0, 7]), jnp.asarray(data.v.values[0, 7]))
            np.testing.assert_allclose(
                a[7], jaxdae.forward_dynamics(system, state, jnp.asarray(inputs[7:8]))[0], rtol=0, atol=1e-10
            )
    # At the limit at first, where the integral stands still; then the input is that of the law with its sum
    # so far.
    limited = int(np.argmax(inputs < 9.0))
    assert 0 < limited < 15
    expected = 20 * (-1.0 - theta) + np.concatenate(
        [np.zeros(limited), 0.3 * np.cumsum(-1.0 - theta[limited:]) - 0.3 * (-1.0 - theta[limited:])]
    )
    weight = 9.81 * 0.5 * np.cos(theta)
    with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
        np.testing.assert_allclose(
            inputs[limited:], (expected + weight - 6 * data.v.values[0, :, 2])[limited:], rtol=0, atol=1e-9
        )
    # What the motor did is a table that gives the same motion.
    (tmp_path / "u.csv").write_text(
        "t,motor\n" + "".join(f"{t!r},{u!r}\n" for t, u in zip(times.tolist(), inputs.tolist(), strict=True))
    )
    replayed, worlds = load(str(written(tmp_path, controls="u.csv", **every)))
    with precision(replayed):
        system, method, start = worlds.one()
        again = jaxdae.rollout(system, method, start, dt=replayed.dt, steps=replayed.steps)
    np.testing.assert_allclose(again.state.q[:, 2], theta[1:], rtol=0, atol=1e-13)


@pytest.mark.long
def test_held_inputs_change_on_time():
    law = control.HeldInputs(jnp.array([0.0, 0.1, 0.3]), jnp.array([[1.0], [2.0], [3.0]]))
    state = jaxdae.State(0.0, jnp.zeros(1), jnp.zeros(1))
    # 0.1 + 0.2 is above 0.3 by rounding, three times 0.1 less than 0.3 by as much may be: both are on time.
    times = [-1.0, 0.0, 0.0995, 0.1, 0.1 - 1e-13, 0.2, 0.1 + 0.2, 0.3 - 1e-13, 9.0]
    assert [float(law(t, state)[0]) for t in times] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert float(control.HeldInputs(jnp.zeros(1), jnp.ones((1, 1)))(5.0, state)[0]) == 1.0
    # Not by a thousandth of an interval, which may be many steps.
    law = control.HeldInputs(jnp.array([0.0, 10.0]), jnp.array([[1.0], [2.0]]))
    assert [float(law(t, state)[0]) for t in (9.9999, 10.0 - 1e-14)] == [1, 2]
    # In configs a table of few digits is on the steps that it means.
    held = config_laws._held(
        {"times": [0.0, 0.3333], "inputs": {"motor": [1.0, 2.0]}}, 1.0 / 3.0, state.q.dtype
    )
    assert [float(held(t, state)[0]) for t in (0.33331, 1.0 / 3.0)] == [1, 2]
    # A jump that is written as two times within one step stays one.
    held = config_laws._held(
        {"times": [0.0, 0.1, 0.100001], "inputs": {"motor": [1.0, 1.0, 2.0]}}, 0.01, state.q.dtype
    )
    assert [float(held(t, state)[0]) for t in (0.1, 0.11)] == [1, 2]
    # A clock of single precision to which steps were added, and are 9e-6 s short of a second.
    summed = np.cumsum(np.full(1000, 1e-3, np.float32), dtype=np.float32)[-1]
    single = jaxdae.State(jnp.float32(0.0), jnp.zeros(1, jnp.float32), jnp.zeros(1, jnp.float32))
    law = control.HeldInputs(jnp.array([0.0, 1.0], jnp.float32), jnp.array([[1.0], [2.0]], jnp.float32))
    assert summed < 1.0
    assert float(law(summed, single)[0]) == 2.0
    wrong = control.HeldInputs(jnp.array([1.0, 0.0]), jnp.ones((2, 1)))
    free = dataclasses.replace(state, v=jnp.zeros(1))
    with pytest.raises(ValueError, match=r"HeldInputs\.times must be increasing, got"):
        jaxdae.rollout(Falling(), control.Sampled(jaxdae.SemiImplicitEuler(), wrong), free, dt=0.1, steps=1)
    with pytest.raises(
        ValueError, match=r"times must have the shape \(k,\), values \(k, nu\), got \(2,\) and \(1, 1\)"
    ):
        dataclasses.replace(wrong, values=jnp.ones((1, 1)))(0.0, state)


@pytest.mark.long
def test_all_mistakes_at_once(tmp_path):
    (tmp_path / "empty.csv").write_text("time,motor\n0,1\n")
    torque, loss = (
        {"path": "forces.motor.torque"},
        [{"type": "coordinate", "coordinate": "arm.theta", "target": 0.0}],
    )
    wrong = {
        "a": ({"controls": "nowhere.csv"}, "controls: got 'nowhere.csv', which is not readable"),
        "b": ({"controls": "empty.csv"}, "which has another format, expected numbers in a column t"),
        "c": (
            {"controls": {"times": [0.0, 0.0], "inputs": {"motor": [1.0, 2.0]}}},
            "got times that are not ascending",
        ),
        "d": ({"controls": {"times": [0.0], "inputs": {"engine": [1.0]}}}, "got the unknown force 'engine'"),
        "e": ({"control": PD | {"coordinates": ["arm.phi"]}}, "got the unknown coordinate 'arm.phi'"),
        "f": ({"control": PD | {"reference": [1.0, 2.0]}}, "got 2 references for 1 coordinates"),
        "g": (
            {"control": PD, "controls": {"times": [0.0], "inputs": {"motor": [1.0]}}},
            "got controls and control, expected one of them",
        ),
        "h": ({"control": PD | {"inputs": ["motor", "motor"]}}, "got 2 inputs for 1 coordinates"),
        "i": (
            {"control": PD, "batch": {"size": 2, "vary": [torque | {"scatter": 0.1}]}},
            "batch.vary.0.path: got 'forces.motor.torque', which an input replaces",
        ),
        "j": (
            {"control": PD, "tune": {"parameters": [torque], "loss": loss}},
            "'forces.motor.torque', which an input replaces",
        ),
    }
    for others, text in wrong.values():
        with pytest.raises(ConfigError) as told:
            load(str(written(tmp_path, **others)))
        assert text in " ".join(str(told.value).split()), str(told.value)


@pytest.mark.exhaustive
def test_gains_can_be_tuned(tmp_path):
    loss = [{"type": "coordinate", "coordinate": "arm.theta", "target": -1.0}]
    section = {"parameters": [{"path": "control.kp"}], "loss": loss, "iterations": 2}
    config, worlds = load(str(written(tmp_path, control=PD, tune=section)))
    with precision(config):
        found = objective(config, worlds, config.tune)
        at = float(found.loss(found.parameters))
        higher = float(found.loss({name: 1.1 * x for name, x in found.parameters.items()}))
    assert higher < at
    assert build.construct(config.model_dump())[0].n_inputs == 1


def test_units_of_inputs_are_those_of_the_coordinates_that_they_drive():
    joints = [{"name": "shaft", "type": "cylindrical"}, {"name": "hinge", "type": "revolute"}]
    forces = [
        {"name": "push", "type": "joint_force", "joint": "shaft", "along": None},
        {"name": "turn", "type": "joint_force", "joint": "shaft", "along": "angle"},
        {"name": "motor", "type": "joint_force", "joint": "hinge", "along": None},
        {"name": "torque", "type": "torque"},
    ]
    values = {
        "mechanism": {"space": "space", "joints": joints, "forces": forces},
        "control": {"inputs": [x["name"] for x in forces]},
    }
    assert config_laws.input_units(values) == ["N", "N m", "N m", "N m"]
