"""`jaxdae tune`, `jaxdae optimize`, `--resume` and `check --gradients`: wrong configs, runs, and a run killed
in the middle.
"""

import csv
import json
import pathlib
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import typer.testing
import xarray as xr
import yaml

from jaxdae.app.cli import app
from jaxdae.app.config.precision import precision
from jaxdae.app.model.load_config import load
from jaxdae.app.model.objective import objective

ROOT = pathlib.Path(__file__).parents[2]
ARM = """
name: arm
mechanism:
  bodies:
    - {name: arm, mass: 1.0, inertia: 0.0833, pose: [0.0, -0.5, -1.5707963267948966]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: arm, point_a: [0, 0], point_b: [-0.5, 0], damping: 0.2}
  forces:
    - {type: torque, name: motor, a: ground, b: arm, torque: 0.5}
start: {fixed: [arm.theta]}
duration: 0.2
dt: 0.02
save_every: 5
integrator: {type: semi_implicit_euler, projection: none}
stabilization: {type: baumgarte, alpha: 5, beta: 5}
output: {plots: false}
tune:
  parameters:
    - {path: forces.motor.torque, lower: 0, upper: 10}
    - {path: stabilization.alpha}
  loss:
    - {type: coordinate, coordinate: arm.theta, target: -1.4, over: final}
    - {type: velocity, coordinate: arm.theta, target: 0, weight: 0.01}
    - {type: violation, weight: 10}
    - {type: reaction, joint: hinge, weight: 1.0e-6}
  optimizer: {type: adam, learning_rate: 0.2}
  iterations: 12
  checkpoint_every: 3
optimize:
  inputs:
    - {force: motor, knots: 3, lower: -8, upper: 8}
  loss:
    - {type: point, body: arm, point: [0.5, 0], target: [0.2, -0.9797958971132712], over: final}
    - {type: effort, weight: 1.0e-4}
  optimizer: {type: adam, learning_rate: 0.5}
  iterations: 10
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "arm.yaml"
    file.write_text(ARM)
    return file


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = typer.testing.CliRunner()

    def call(*arguments):
        result = runner.invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return call


def test_every_wrong_config_is_told_at_once_and_nothing_is_written(config, tmp_path, command):
    data = yaml.safe_load(ARM)
    data["tune"] = {
        "parameters": [
            {"path": "forces.motor.torqe"},
            {"path": "forces.motor.torque", "lower": 0.5},
            {"path": "stabilization.alpha", "upper": 4},
            {"path": "bodies.arm.mass"},
            {"path": "bodies.arm.mass"},
            {"path": "dt"},
            {"path": "start.velocities.leg.theta"},
            {"path": "gravity.x", "lower": 1, "upper": -1},
        ],
        "loss": [
            {"type": "coordinate", "coordinate": "arm.phi", "target": 1},
            {"type": "reaction", "joint": "hinges"},
            {"type": "effort"},
            {"type": "drift"},
        ],
        "optimizer": "adamm",
        "iterations": 0,
    }
    data["optimize"]["inputs"] = [{"force": "engine"}, {"force": "motor", "lower": 1}, {"force": "motor"}]
    data["optimize"]["loss"] = []
    config.write_text(yaml.safe_dump(data, sort_keys=False))
    code, _, err = command("tune", config)
    assert code == 2
    for message in (
        "tune.parameters.0.path: got the unknown path 'forces.motor.torqe', expected the path of a number "
        "of this config;"
        " after 'mechanism.forces.motor' did you mean 'torque'?",
        "tune.parameters.1: got forces.motor.torque, which starts at 0.5, expected a start above 0.5",
        "tune.parameters.2: got stabilization.alpha, which starts at 5, expected a start below 4",
        "tune.parameters.4.path: got 'bodies.arm.mass' a second time",
        "tune.parameters.5.path: got 'dt', which is a finite number, expected a number of the sections "
        "mechanism, start",
        "tune.parameters.6.path: got the unknown path 'start.velocities.leg.theta'",
        "got lower 1 and upper -1, expected lower below upper",
        "tune.loss.0.coordinate: got the unknown coordinate 'arm.phi'",
        "tune.loss.1.joint: got the unknown joint 'hinges', expected a joint of the mechanism; did you mean "
        "'hinge'?",
        "tune.loss.2.type: got effort, but section tune has no inputs",
        "tune.loss.3.type: got the unknown type 'drift'",
        "tune.optimizer.type: got the text 'adamm', expected adam or nadam or rmsprop or sgd; did you mean "
        "'adam'?",
        "tune.iterations: got 0",
        "optimize.inputs.0.force: got the unknown force 'engine'",
        "optimize.inputs.1: got motor, which starts at 0.5, expected a start above 1",
        "optimize.inputs.2.force: got 'motor' a second time",
        "optimize.loss: got an empty list, expected a list of length >= 1",
    ):
        assert message in err, err
    assert "arm.yaml:" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arm.yaml"]


def test_nothing_to_train(config, command):
    code, _, err = command("tune", config, "--set", "tune.parameters=[]")
    assert code == 2
    assert "tune.parameters: got an empty list" in err


def test_a_bound_that_the_schema_has(config, command):
    code, _, err = command(
        "tune",
        config,
        "--set",
        "joints.hinge.damping=0",
        "--set",
        "tune.parameters=[{path: joints.hinge.damping}]",
    )
    assert code == 2
    assert (
        "joints.hinge.damping, which starts at 0, expected a start above 0; change the start value or the "
        "bound" in err
    )


@pytest.mark.long
def test_a_target_out_of_reach(config, tmp_path, command):
    code, _, err = command("optimize", config, "--set", "optimize.loss.0.target=[1.2, -0.5]")
    assert code == 2
    assert "optimize.loss.0.target: got a target that the mechanism cannot reach: " in err
    # The tip reaches 1 m, the target is 1.3 m away: of the 0.3 m least squares leaves some to the hinge and
    # some to the tip.
    assert "expected a target within reach" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arm.yaml"]


@pytest.mark.long
def test_what_cannot_be_run_or_continued(config, tmp_path, command):
    for arguments, message in (
        (("tune",), "got neither, expected a CONFIG"),
        (("tune", config, "--resume", tmp_path), "got both"),
        (("tune", "--resume", tmp_path / "none"), "no such folder"),
        (("tune", "--resume", tmp_path, "--out", tmp_path), "got --out"),
        (("optimize", "--resume", tmp_path), "a folder without config.yaml, run.json"),
    ):
        code, _, err = command(*arguments)
        assert code == 2
        assert message in err
    data = yaml.safe_load(ARM)
    del data["tune"]
    config.write_text(yaml.safe_dump(data))
    code, _, err = command("tune", config)
    assert code == 2
    assert "got no section tune" in err
    config.write_text((pathlib.Path(__file__).parents[2] / "configs" / "kinematic_bicycle.yaml").read_text())
    code, _, err = command("tune", config)
    assert code == 2
    assert "got order first, expected order second for tune" in err


@pytest.mark.exhaustive
def test_optimized_inputs(config, tmp_path, command):
    code, out, _ = command("optimize", config, "--out", tmp_path / "runs", "--set", "output.plots=true")
    assert code == 0, out
    assert (
        "compiling the loss over 10 steps and its derivatives with respect to 3 numbers, in forward mode"
        in out.splitlines()
    )
    (folder,) = (tmp_path / "runs").iterdir()
    names = {path.name for path in folder.iterdir()}
    files = {
        "checkpoint.npz",
        "config.yaml",
        "controls.csv",
        "history.csv",
        "metrics.jsonl",
        "optimized.yaml",
        "report.md",
        "run.json",
    }
    assert names == {*files, "plots", "motion"}
    # The motion is a run of its own, of what jaxdae run optimized.yaml reads: its end is where the loss says.
    assert (folder / "motion" / "plots" / "motion.gif").stat().st_size > 1000
    with xr.open_zarr(folder / "motion" / "results.zarr", chunks=None) as data:
        x, y, angle = data.q.values[0, -1]
    away = np.hypot(x + 0.5 * np.cos(angle) - 0.2, y + 0.5 * np.sin(angle) + 0.9797958971132712)
    assert away**2 < json.loads((folder / "run.json").read_text())["learned"]["loss"]
    assert {path.name for path in (folder / "plots").iterdir()} == {"controls.png", "history.png"}
    learned = json.loads((folder / "run.json").read_text())["learned"]
    assert learned["loss"] < 0.5 * learned["loss_at_start"]
    controls = list(csv.DictReader((folder / "controls.csv").read_text().splitlines()))
    assert len(controls) == 10
    assert all(abs(float(row["motor"])) < 8.0 for row in controls)
    assert "controls.png" in (folder / "report.md").read_text()
    redrawn_from_the_folder(folder, command)


def redrawn_from_the_folder(folder, command):
    """`jaxdae plot` draws what the run drew, also where it had not finished."""
    for path in [*(folder / "plots").iterdir(), folder / "report.md"]:
        path.unlink()
    assert command("plot", folder)[0] == 0
    assert {path.name for path in (folder / "plots").iterdir()} == {"controls.png", "history.png"}
    assert "controls.png" in (folder / "report.md").read_text()
    record = json.loads((folder / "run.json").read_text())
    record |= {"complete": False, "finished": None, "digests": {}}
    (folder / "run.json").write_text(json.dumps(record))
    code, _, err = command("plot", folder)
    assert (code, "is not complete: it is still in progress, or it was killed" in err) == (0, True)
    (folder / "history.csv").rename(folder / "kept.csv")
    code, _, err = command("plot", folder)
    assert code == 2
    assert "stopped before its first checkpoint" in err


@pytest.mark.exhaustive
def test_the_loss_of_many_worlds_is_that_of_each(config):
    """Whatever a world differs in: what violations and energies are of is that world, not the nominal one."""
    paths = ("bodies.arm.mass", "joints.hinge.point_b.x", "stabilization.alpha")
    loss = [
        {"type": kind, "weight": weight}
        for kind, weight in (("violation", 1e4), ("energy", 1.0), ("velocity_violation", 1e2))
    ]
    scatter = ("batch.size=2", f"batch.vary={json.dumps([{'path': path, 'scatter': 0.2} for path in paths])}")
    both = f"tune.loss={json.dumps(loss)}", "optimize=null", "tune.parameters=[{path: forces.motor.torque}]"
    loaded, worlds = load(str(config), scatter + both)
    with precision(loaded):
        many = objective(loaded, worlds, loaded.tune)
        losses = jax.jit(jax.vmap(many.batch_loss, in_axes=(None, 0)))(many.parameters, many.batch)
    assert many.batch is not None
    numbers = {path: float(many.batch[path][1]) for path in paths}
    assert all(number != float(many.batch[path][0]) for path, number in numbers.items())
    alone, world = load(str(config), tuple(f"{path}={number!r}" for path, number in numbers.items()) + both)
    with precision(alone):
        one = objective(alone, world, alone.tune)
        np.testing.assert_allclose(losses[1], jax.jit(one.loss)(one.parameters), rtol=1e-9)


@pytest.mark.long
def test_the_loss_of_numbers_is_that_of_a_config_with_them(tmp_path):
    """A length in joint coordinates, from which places follow, and a velocity at the start, from which the
    energy does.
    """
    data = yaml.safe_load(ARM) | {"start": {"velocities": {"hinge.angle": 1.0}}, "stabilization": "none"}
    data["mechanism"] |= {"coordinates": "joints"}
    data["mechanism"]["bodies"].append(
        {"name": "fore", "mass": 1.0, "inertia": 0.08, "pose": [0.0, -1.5, -np.pi / 2]}
    )
    elbow = {
        "type": "revolute",
        "name": "elbow",
        "a": "arm",
        "b": "fore",
        "point_a": [0.5, 0],
        "point_b": [-0.5, 0],
    }
    data["mechanism"]["joints"].append(elbow)
    paths = {"joints.elbow.point_a.x": 0.7, "start.velocities.hinge.angle": 2.0}
    loss = [{"type": "point", "body": "fore", "target": [0.3, -1.5]}, {"type": "energy"}]
    data["tune"] = {"parameters": [{"path": path} for path in paths], "loss": loss}
    file = tmp_path / "arm.yaml"
    file.write_text(yaml.safe_dump(data))

    def loss_at(numbers, *overrides):
        loaded, worlds = load(str(file), overrides)
        with precision(loaded):
            found = objective(loaded, worlds, loaded.tune)
            return float(jax.jit(found.loss)(found.parameters | numbers))

    there = loss_at({path.replace(".", "/"): number for path, number in paths.items()})
    np.testing.assert_allclose(
        there, loss_at({}, *(f"{path}={number}" for path, number in paths.items())), rtol=1e-12
    )


@pytest.mark.exhaustive
def test_the_certificate_of_a_config(config, command):
    code, out, _ = command("check", config, "--gradients", "--set", "optimize=null", "--set", "duration=0.1")
    assert code == 0, out
    assert "forces/motor/torque" in out
    assert "not chaotic" in out
    assert out.rstrip().endswith("passed")


@pytest.mark.exhaustive
def test_a_killed_run_continues_bit_for_bit(config, tmp_path, command):
    """kill -9 in the middle, then --resume with more iterations, beside a run of so many that is left alone."""
    program = [sys.executable, "-c", "from jaxdae.app.cli import main; main()", "tune"]
    changes = ["--set", "tune.checkpoint_every=2", "--set", "tune.optimizer.schedule=constant"]
    shorter, longer = (["--set", f"tune.iterations={count}"] for count in (100, 140))
    process = subprocess.Popen(
        [*program, str(config), "--out", str(tmp_path / "killed"), *changes, *shorter], cwd=ROOT
    )
    try:
        while process.poll() is None and not list(tmp_path.glob("killed/*/checkpoint.npz")):
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").iterdir()
    with np.load(folder / "checkpoint.npz") as stored:
        losses = stored["history_0"]
    assert 2 <= len(losses) < 100
    # The table follows the checkpoint: it has its rows, or those of the one before, and is whole.
    partial = (folder / "history.csv").read_text() if (folder / "history.csv").exists() else ""
    rows = list(csv.DictReader(partial.splitlines()))
    assert len(rows) in (len(losses), len(losses) - 2)
    assert [float(row["loss"]) for row in rows] == losses[: len(rows)].tolist()
    # Continued, and lengthened on the way.
    subprocess.run([*program, "--resume", str(folder), *longer], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(
        [*program, str(config), "--out", str(tmp_path / "whole"), *changes, *longer],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (whole,) = (tmp_path / "whole").iterdir()
    assert (whole / "history.csv").read_text().startswith(partial)
    assert (folder / "config.yaml").read_bytes() == (whole / "config.yaml").read_bytes()
    for name in ("history.csv", "tuned.yaml"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    # Every checkpoint has a line; the last one of the process that was killed may be missing.
    lines, straight = (
        [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (folder, whole)
    )
    every = [line["iterations"] for line in straight]
    assert every == list(range(2, 141, 2))
    assert {len(every) - len(lines)} <= {0, 1}
    losses = {line["iterations"]: (line["loss"], line["gradient_norm"]) for line in straight}
    assert all(losses[line["iterations"]] == (line["loss"], line["gradient_norm"]) for line in lines)
    assert all(
        line["world_steps_per_s"] > 0 and line["skipped"] == 0 and line["of"] == 140 for line in straight
    )
    a, b = (json.loads((path / "run.json").read_text())["learned"] for path in (folder, whole))
    assert (a.pop("resumed"), b.pop("resumed")) == (1, 0)
    assert a == b
    assert a["loss"] < 0.5 * a["loss_at_start"]
    assert not list(folder.rglob("*.partial"))
    code, _, err = command("tune", "--resume", folder)
    assert code == 2
    assert "there is nothing to continue" in err
