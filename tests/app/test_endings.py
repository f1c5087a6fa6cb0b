"""How the command ends where the world lets it down: Ctrl-C, full disks, files that are none, names that are
too long.
"""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import types

import numpy as np
import pytest
import yaml
from small_runs import command

from jaxdae.app.config import safe_files
from jaxdae.app.config.config_source import Document
from jaxdae.app.config.problems import Refused
from jaxdae.app.jobs import run_record
from jaxdae.app.learn import fit_run
from jaxdae.app.model.load_config import load
from jaxdae.app.runs import disk_space, interrupts, locks, results, run_folder, simulate
from jaxdae.base import atomic_writes

PENDULUM = """
name: pendulum
mechanism:
  bodies:
    - {name: rod, mass: 1.0, inertia: 0.08, pose: [0.5, 0, 0]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: rod, at: [0, 0]}
  forces:
    - {type: torque, name: motor, a: ground, b: rod, torque: 0.5}
duration: 0.4
dt: 0.01
integrator: {type: semi_implicit_euler, projection: none}
output: {plots: false}
tune:
  parameters: [{path: forces.motor.torque, lower: 0, upper: 10}]
  loss: [{type: velocity, coordinate: rod.theta, target: 0}]
  iterations: 12
"""
OBJECTIVE = ("loss", "batch_loss", "parameters", "trainable", "batch")


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "pendulum.yaml"
    file.write_text(PENDULUM)
    return file


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    file = tmp_path_factory.mktemp("config") / "pendulum.yaml"
    file.write_text(PENDULUM)
    return load(str(file))


@pytest.fixture
def closed(loaded, monkeypatch):
    """Loads without closing the loops anew."""
    monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: loaded)


def press(*_):
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_that_was_swallowed_is_raised_again():
    before = signal.getsignal(signal.SIGINT)  # A run in the background ignores it.
    with interrupts.listening():
        try:
            press()
        except KeyboardInterrupt:
            swallowed = True
        assert swallowed
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.forget()
        interrupts.check()
        done = []
        with pytest.raises(KeyboardInterrupt):
            _hold(done)
        assert done == ["pressed", "done"]
    interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before


def _hold(done):
    with interrupts.held():
        press()
        done.append("pressed")
        done.append("done")


class _Compiler:
    """Stands for `jax` in a module: swallows a Ctrl-C while it compiles, as callbacks and finalizers do, and
    then goes on.
    """

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    def jit(self, function):
        try:
            press()
        except KeyboardInterrupt:
            return self._real.jit(function)
        return None


@pytest.mark.long
def test_ctrl_c_while_compiling(config, closed, tmp_path, monkeypatch):
    monkeypatch.setattr(simulate, "jax", _Compiler(simulate.jax))
    code, _, err = command("run", config, "--out", tmp_path / "out")
    assert code == 130
    (folder,) = (tmp_path / "out").iterdir()
    way_on = f"jaxdae run --resume {folder} continues it"
    assert err == f"interrupted: {folder} is not complete: interrupted after 0 of 40 steps; {way_on}\n"
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "run.json", "results.zarr", "parts"}
    code, _, err = command("plot", folder)
    assert code == 2


def test_ctrl_c_while_a_fit_compiles(config, closed, tmp_path, monkeypatch):
    def fit(*arguments, progress, **options):
        try:
            press()
        except KeyboardInterrupt:
            progress(0, fit_run.tuning.FitStep(*np.zeros(6)))

    monkeypatch.setattr(
        fit_run, "objective", lambda *arguments: types.SimpleNamespace(**dict.fromkeys(OBJECTIVE))
    )
    monkeypatch.setattr(fit_run.tuning, "fit", fit)
    code, _, err = command("tune", config, "--out", tmp_path / "out")
    assert code == 130
    (folder,) = (tmp_path / "out").iterdir()
    assert err == f"interrupted: {folder} is not complete; jaxdae tune --resume {folder} continues it\n"
    assert {path.name for path in folder.iterdir()} == {"config.yaml", "run.json"}


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [
        errno.ENOSPC,
        pytest.param(errno.EDQUOT, marks=pytest.mark.exhaustive),
        pytest.param(errno.EROFS, marks=pytest.mark.exhaustive),
        pytest.param(errno.EACCES, marks=pytest.mark.exhaustive),
        pytest.param(errno.EIO, marks=pytest.mark.exhaustive),
    ],
)
def test_a_disk_that_fails_on_the_way(config, closed, tmp_path, monkeypatch, number):
    def full(*arguments):
        raise OSError(number, os.strerror(number), "results.zarr/q/0.0.0")

    monkeypatch.setattr(results.Writer, "_write", full)
    code, _, err = command("run", config, "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert code == 1
    assert err.count("\n") == 1
    assert "results.zarr/q/0.0.0: " in err
    assert os.strerror(number) in err
    assert err.endswith(f"{folder} is not complete; jaxdae run --resume {folder} continues it\n")
    assert command("plot", folder)[0] == 2


@pytest.mark.long
def test_a_folder_that_is_removed_on_the_way(config, closed, tmp_path, monkeypatch):
    """What is not there any more cannot be continued, unless it comes back."""
    monkeypatch.setattr(
        results.Writer,
        "_write",
        lambda writer, *_: shutil.rmtree(tmp_path / "out") or os.stat(tmp_path / "out"),
    )
    code, _, err = command("run", config, "--out", tmp_path / "out")
    assert (code, err.count("\n")) == (1, 1), err
    assert ": the folder was removed during the run, or its disk is gone; restore it, and " in err


@pytest.mark.parametrize("what", ["write_config", "create"])
def test_a_disk_that_fails_at_once_leaves_nothing(config, closed, tmp_path, monkeypatch, what):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")

    monkeypatch.setattr(run_folder, what, full)
    for name in ("run", "tune"):
        code, _, err = command(name, config, "--out", tmp_path / "out")
        assert code == 2
        assert err == (
            "somewhere: the disk is full, or a quota or limit is reached (No space left on device);"
            " free some space, or choose another folder\n"
        )
        assert not list((tmp_path / "out").iterdir())


def test_a_fit_whose_disk_is_full_can_be_continued(config, closed, tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fit_run, "objective", full)
    code, _, err = command("tune", config, "--out", tmp_path / "out")
    (folder,) = (tmp_path / "out").iterdir()
    assert code == 1
    assert f"jaxdae tune --resume {folder} continues it" in err


def test_drawing_that_fails_leaves_the_old_plots(tmp_path):
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "energy.png").write_text("old")
    with pytest.raises(OSError, match="full"):
        _draw_half(tmp_path)
    assert (tmp_path / "plots" / "energy.png").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plots"]


def _draw_half(folder):
    with run_folder.pictures(folder) as place:
        (place / "energy.png").write_text("new")
        raise OSError("full")


def test_a_run_that_does_not_fit_the_disk(config, loaded, closed, tmp_path, monkeypatch):
    monkeypatch.setattr(
        safe_files.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=5_000_000, total=5_000_000)
    )
    for name in ("run", "tune"):
        code, _, err = command(name, config, "--out", tmp_path / "deep" / "out")
        assert code == 2
        assert "with 5 MB of free space, expected 10.0" in err
        assert "nothing was written" in err
        assert not (tmp_path / "deep").exists()
    # 8 bytes for q, v, a of one body, two multipliers and five scalars, and 4 of a status, of 41 instants.
    entry = results.entry_bytes(loaded[1].one()[0], 8)
    assert entry == 8 * 16 + 4
    assert disk_space.results_bytes(loaded[0], entry) == 41 * entry


def test_configs_that_are_no_files(tmp_path):
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    large = tmp_path / "large.yaml"
    with large.open("wb") as stream:
        stream.truncate(20_000_000)
    for file, message in (
        (
            pipe,
            "got a pipe, a device or a socket, expected a config file; write its content to a file and give "
            "the path of that file",
        ),
        ("/dev/zero", "got a pipe, a device or a socket"),
        (large, "got a file of 20 MB, expected a config file; the limit is 10 MB"),
        (tmp_path / ("a" * 300), "got an unreadable file (File name too long)"),
    ):
        for name in ("run", "check", "tune"):
            code, _, err = command(name, file)
            assert code == 2
            assert message in err


def test_characters_that_no_text_holds(config, tmp_path):
    config.write_bytes(PENDULUM.encode().replace(b"dt: 0.01", b"dt: 0.01\0"))
    code, _, err = command("run", config, "--out", tmp_path / "out")
    assert code == 2
    assert "pendulum.yaml:11: got the character U+0000, which YAML does not allow, expected text" in err
    (problem,) = Document("pendulum.yaml", PENDULUM, ("dt=\x07",)).problems
    assert "got the character U+0007, which YAML does not allow" in str(problem)


def test_names_that_are_too_long(config, tmp_path):
    places = ("name", "mechanism.bodies.0.name", "mechanism.joints.0.name", "mechanism.forces.0.name")
    settings = [word for place in places for word in ("--set", f"{place}={'a' * 240}")]
    code, _, err = command("run", config, *settings, "--out", tmp_path / "out")
    assert code == 2
    assert (
        err.count(
            "expected a word of letters, digits, _ and -, starting with a letter or _, at most 100 of them"
        )
        == 4
    )
    assert not (tmp_path / "out").exists()


def test_folders_with_names_that_are_too_long(config, closed, tmp_path):
    name = tmp_path / ("a" * 300)
    for arguments in (
        ("run", config, "--out", name),
        ("tune", config, "--out", name),
        ("plot", name),
        ("tune", "--resume", name),
    ):
        code, _, err = command(*arguments)
        assert code == 2
        assert "a" * 300 in err


def test_the_resolved_config_of_a_run_is_that_of_its_record(config, loaded, tmp_path):
    folder, record = run_record.begin(loaded[0], tmp_path, str(config))
    assert (
        yaml.safe_load((folder / "config.yaml").read_text())["name"] == record["config"]["name"] == "pendulum"
    )
    assert record["complete"] is False


def test_a_lock_ends_with_its_process(tmp_path):
    text = "import fcntl, sys, time; held = open(sys.argv[1], 'w'); fcntl.flock(held, fcntl.LOCK_EX);"
    text += "print('locked', flush=True); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / run_folder.LOCK)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child, child.stdout as stream:
        assert stream.readline() == "locked\n"
        with pytest.raises(Refused, match="another process is working on"), locks.lock(tmp_path):
            pass
        child.kill()
        child.wait()
    with locks.lock(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_what_a_living_process_writes_is_no_leftover(tmp_path, monkeypatch):
    """Beside it lie a file of this process, one of a process that has ended, and a folder that somebody else
    has made.
    """
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        for number in (child.pid, os.getpid()):
            monkeypatch.setattr(os, "getpid", lambda number=number: number)
            atomic_writes.beside(tmp_path / "report.md").write_text("half")
        (tmp_path / f"x{atomic_writes.PARTIAL}").mkdir()
        kept = tmp_path / f"report.md.{socket.gethostname()}.{child.pid}{atomic_writes.PARTIAL}"
        safe_files.remove_leftovers(tmp_path)
        assert list(tmp_path.iterdir()) == [kept]
        child.communicate(b"\n")
    safe_files.remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fit_that_goes_on_has_no_motion_of_its_last_inputs(loaded, tmp_path):
    """Until its new inputs are simulated: `jaxdae view` and `export` take what is there for the motion that
    was found.
    """
    folder, record = run_record.begin(loaded[0], tmp_path)
    (folder / run_folder.MOTION / run_folder.RESULTS).mkdir(parents=True)
    fit_run._Place(
        folder, record | {"learned": {"resumed": 0}, "complete": True}, loaded[0], "optimize", complete=True
    ).take()
    assert run_folder.read_record(folder)["learned"] == {"command": "optimize", "resumed": 1}
    assert not (folder / run_folder.MOTION).exists()
