"""Run folders with each of their files removed, emptied, cut and replaced: one message, exit code 2, and nothing is written."""

import json
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest
import typer.testing
import yaml

from jaxdae.app import learn, opened, progress, run_folder
from jaxdae.app.command import app
from jaxdae.app.config import load
from jaxdae.app.problems import Refused
from jaxdae.tuning import checkpoint

ARM = """
name: arm
mechanism:
  bodies:
    - {name: arm, mass: 1.0, inertia: 0.0833, pose: [0.0, -0.5, -1.5707963267948966]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: arm, point_a: [0, 0], point_b: [-0.5, 0], damping: 0.2}
  forces:
    - {type: torque, name: motor, a: ground, b: arm, torque: 0.5}
duration: 0.2
dt: 0.02
integrator: {type: semi_implicit_euler, projection: none}
tune:
  parameters: [{path: forces.motor.torque, lower: 0, upper: 10}]
  loss: [{type: velocity, coordinate: arm.theta, target: 0}]
  optimizer: {type: adam, learning_rate: 0.2}
  iterations: 12
optimize:
  inputs: [{force: motor, knots: 3, lower: -8, upper: 8}]
  loss: [{type: effort}]
  optimizer: {type: adam, learning_rate: 0.5}
  iterations: 10
"""
BLOCKS = 4


def command(*arguments):
    """Returns exit code, standard output and standard error; an exception that reaches the user as a traceback is raised."""
    result = typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def content(folder):
    """Returns what a folder holds, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a config and three interrupted runs below it: run, tune, optimize. Ctrl-C is a real signal."""
    place = tmp_path_factory.mktemp("runs")
    (place / "arm.yaml").write_text(ARM)
    loaded = load(str(place / "arm.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxdae.app.config.load", lambda *arguments: loaded)
        update = progress.Progress.update

        def interrupted(self, done):
            update(self, done)
            if done == BLOCKS:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(progress.Progress, "update", interrupted)
        code, _, err = command("run", place / "arm.yaml", "--out", place / "run")
        assert code == 130
        assert "is not complete: interrupted after 4 of 10 steps; jaxdae plot " in err

        def fit(loss, *arguments, checkpoint, **options):
            identity = {"program": "a", "numbers": "b", "jax": "c"}
            checkpoint_module.write(pathlib.Path(checkpoint.file), {"x": np.ones(3)}, {"0": np.ones(2)}, identity)
            os.kill(os.getpid(), signal.SIGINT)

        checkpoint_module = checkpoint
        patch.setattr(learn.tuning, "fit", fit)
        for name in ("tune", "optimize"):
            code, _, err = command(name, place / "arm.yaml", "--out", place / name)
            assert code == 130
            assert f"is not complete; jaxdae {name} --resume " in err
    return place


@pytest.fixture
def copy(place, tmp_path):
    """Returns a copy of an interrupted run."""

    def copied(kind):
        (folder,) = (place / kind).iterdir()
        return pathlib.Path(shutil.copytree(folder, tmp_path / kind))

    return copied


def test_an_interrupted_run_says_so_and_is_drawn(copy):
    folder = copy("run")
    record = json.loads((folder / "run.json").read_text())
    assert (record["complete"], record["finished"]) == (False, None)
    assert record["results"]["steps"] == 4
    assert record["results"]["status"] == {"OK": 1}
    assert "**The run is not complete:** interrupted after 4 of 10 steps." in (folder / "report.md").read_text()
    code, out, err = command("plot", folder)
    assert (code, "drawn into" in out) == (0, True)
    assert "is not complete: interrupted after 4 of 10 steps" in err
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "plots", "report.md", "results.zarr", "run.json"}
    assert "**The run is not complete:**" in (folder / "report.md").read_text()


def removed(file, other):
    file.unlink()


def emptied(file, other):
    file.write_bytes(b"")


def cut(file, other):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def replaced_by_noise(file, other):
    file.write_bytes(np.random.default_rng(0).bytes(file.stat().st_size))


def replaced_by_another(file, other):
    shutil.copy(other, file)


def replaced_by_a_folder(file, other):
    file.unlink()
    file.mkdir()


def replaced_by_a_pipe(file, other):
    file.unlink()
    os.mkfifo(file)


def replaced_by_a_device(file, other):
    file.unlink()
    file.symlink_to("/dev/zero")


DAMAGES = [removed, emptied, cut, replaced_by_noise, replaced_by_another, replaced_by_a_folder, replaced_by_a_pipe, replaced_by_a_device]
OF_RESULTS = DAMAGES[:4]  # There are many of them; what no file is at all is told by the same lines as elsewhere.


@pytest.mark.parametrize("kind", ["run", "tune", "optimize"])
def test_every_file_damaged_in_every_way(copy, kind):
    whole = copy(kind)
    action = ["plot"] if kind == "run" else [kind, "--resume"]
    anew = ("report.md", "plots", "lock")
    files = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.relative_to(whole).parts[0] not in anew]
    assert len(files) >= (50 if kind == "run" else 3)
    for file in files:
        name, data = file.relative_to(whole), file.read_bytes()
        for damage in OF_RESULTS if len(name.parts) > 2 else DAMAGES:
            if damage is removed and file.name == "checkpoint.npz":
                continue  # Nothing is lost then but time, see below.
            damage(file, whole / ("config.yaml" if name.name != "config.yaml" else "run.json"))
            if file.is_file() and not file.is_symlink() and file.read_bytes() == data:
                continue  # An empty file, cut.
            before = content(whole) if (file.is_file() and not file.is_symlink()) or not file.exists() else None
            code, out, err = command(*action, whole)
            what = f"{name} {damage.__name__}: {err}"
            assert (code, out) == (2, ""), what
            assert 1 <= len(err.splitlines()) <= 2, what
            assert str(whole) in err, what
            assert before is None or content(whole) == before, what
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
            file.write_bytes(data)


def test_a_run_without_a_checkpoint_begins_again_and_says_so(copy, monkeypatch):
    folder = copy("tune")
    (folder / "checkpoint.npz").unlink()
    monkeypatch.setattr(learn, "learn", lambda *arguments, **options: (_ for _ in ()).throw(ValueError("as far as here")))
    code, _, err = command("tune", "--resume", folder)
    assert code == 1
    assert "holds no checkpoint: the run begins again with its first iteration" in err


@pytest.mark.parametrize("kind", ["run", "tune"])
def test_a_config_of_another_mechanism_beside_the_run(copy, kind):
    folder = copy(kind)
    data = yaml.safe_load((folder / "config.yaml").read_text())
    data["mechanism"]["bodies"][0]["mass"] = 2.0
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    code, _, err = command(*(["plot"] if kind == "run" else ["tune", "--resume"]), folder)
    assert code == 2
    assert "a config that is not that of the run in run.json (mechanism.bodies.0.mass: 2.0 instead of 1.0)" in err


def test_a_checkpoint_whose_numbers_were_changed(copy):
    folder = copy("tune")
    with np.load(folder / "checkpoint.npz") as stored:
        arrays = dict(stored)
    for change in ({"carried_0": np.full(3, np.nan)}, {"carried_0": np.ones(2)}, {"history_0": None}):
        changed = {name: x for name, x in (arrays | change).items() if x is not None}
        np.savez(folder / "checkpoint.npz", **changed)
        code, _, err = command("tune", "--resume", folder)
        assert code == 2
        assert "its content was changed" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: [], "JSON that is no mapping"),
        (lambda record: {}, "did not finish"),
        (lambda record: record | {"results": {}}, "a wrong entry results.largest_violation"),
        (lambda record: record | {"complete": "yes"}, "a wrong entry complete"),
        (lambda record: record | {"digests": {}}, "without the digests of the results"),
        (lambda record: record | {"digests": {"../x": "0"}}, "outside of the folder"),
        (lambda record: record | {"config": {}}, "a config that is none"),
        (lambda record: {key: x for key, x in record.items() if key not in ("results", "digests")}, "did not finish"),
    ],
)
def test_records_that_are_none(copy, change, message):
    folder = copy("run")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(change(record)))
    code, _, err = command("plot", folder)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("name", ["report.md", "report.md.partial", "plots", "plots/energy.png"])
@pytest.mark.parametrize("what", ["link", "folder or file"])
def test_nothing_is_written_through_links(copy, tmp_path, name, what):
    folder = copy("run")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (folder / "plots").mkdir(exist_ok=True)
    target = folder / name
    shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    if what == "link":
        target.symlink_to(outside if name == "plots" else outside / "file")
    elif name == "plots":
        target.write_text("")
    else:
        target.mkdir()
    code, _, err = command("plot", folder)
    assert code == 2
    assert str(target) in err
    assert "remove it" in err
    assert content(outside) == {"file": b"mine"}


def test_two_processes_never_continue_the_same_run(copy):
    folder = copy("tune")
    with opened.lock(folder):
        code, _, err = command("tune", "--resume", folder)
        assert code == 2
        assert "another process works on" in err
        with pytest.raises(Refused, match="another process"), opened.lock(folder):
            pass
    assert not (folder / run_folder.LOCK).exists()
    (folder / run_folder.LOCK).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(Refused), opened.lock(folder):
        pass
    assert not (folder.parent / "elsewhere").exists()
