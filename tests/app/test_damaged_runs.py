"""Run folders with each of their files removed, emptied, cut and replaced: one message, exit code 2, and
nothing is written.
"""

import errno
import json
import os
import pathlib
import shutil
import signal

import jax
import numpy as np
import pytest
import yaml
from all_cases import all_cases
from small_runs import command

from jaxdae.app.config.config_source import read
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.learn import fit_run
from jaxdae.app.model.load_config import load
from jaxdae.app.runs import locks, progress, run_folder
from jaxdae.tuning import FitResult, FitStep, checkpoint

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
  optimizer: {type: adam, learning_rate: 0.2, schedule: constant}
  iterations: 12
optimize:
  inputs: [{force: motor, knots: 3, lower: -8, upper: 8}]
  loss: [{type: effort}]
  optimizer: {type: adam, learning_rate: 0.5, schedule: constant}
  iterations: 10
"""
BLOCKS = 4
write_checkpoint, read_checkpoint = checkpoint.write, checkpoint.read


def content(folder):
    """Returns what a folder holds, by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
    return found


def fit_of(iterations, interrupted=False):
    """Returns what stands for `fit`: it leaves a checkpoint and its history behind, and nothing is compiled."""

    def fit(loss, parameters, *arguments, checkpoint, **options):
        losses = 1.0 / np.arange(1.0, iterations + 1)
        told = FitStep(losses, losses / 2, losses / 3, losses * 0 + 0.1, losses < 0, losses)
        recorded = {name: np.stack([np.asarray(x)] * iterations) for name, x in parameters.items()}
        history = {str(k): x for k, x in enumerate(jax.tree.leaves((told, recorded)))}
        write_checkpoint(
            pathlib.Path(checkpoint.file),
            {"x": np.ones(3)},
            history,
            {"program": "a", "numbers": "b", "jax": "c"},
        )
        checkpoint.saved(told, recorded)
        if interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return FitResult(parameters, parameters, losses[-1], iterations - 1, 0, told, recorded)

    return fit


def changed(folder, **entries):
    """Changes entries of the record of a run; None removes one."""
    record = json.loads((folder / "run.json").read_text()) | entries
    (folder / "run.json").write_text(
        json.dumps({key: x for key, x in record.items() if x is not None or key == "finished"})
    )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """The worlds of the config, whose loops are closed once."""
    file = tmp_path_factory.mktemp("config") / "arm.yaml"
    file.write_text(ARM)
    return load(str(file))[1]


@pytest.fixture
def closed(worlds, monkeypatch):
    """Loads without closing the loops anew."""
    monkeypatch.setattr(
        "jaxdae.app.model.load_config.load",
        lambda *arguments: (Config.model_validate(read(*arguments).data), worlds),
    )


@pytest.fixture(scope="module", autouse=True)
def without_motion():
    """What optimize simulates at its end is a run like others, which test_learn.py looks at; here it would
    only take time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_run, "_write_motion", lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory, worlds):
    """A folder with a config and runs below it: interrupted, killed and finished ones. Ctrl-C is a real
    signal.
    """
    place = tmp_path_factory.mktemp("runs")
    (place / "arm.yaml").write_text(ARM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "jaxdae.app.model.load_config.load",
            lambda *arguments: (Config.model_validate(read(*arguments).data), worlds),
        )
        update = progress.Progress.update

        def interrupted(self, done):
            update(self, done)
            if done == BLOCKS:
                os.kill(os.getpid(), signal.SIGINT)

        patch.setattr(progress.Progress, "update", interrupted)
        code, _, err = command("run", place / "arm.yaml", "--out", place / "run")
        assert code == 130
        assert "is not complete: interrupted after 4 of 10 steps; jaxdae run --resume " in err

        for name in ("tune", "optimize"):
            patch.setattr(fit_run.tuning, "fit", fit_of(4, interrupted=True))
            code, _, err = command(name, place / "arm.yaml", "--out", place / name)
            assert code == 130
            assert f"is not complete; jaxdae {name} --resume " in err
            (folder,) = (place / name).iterdir()
            killed = pathlib.Path(shutil.copytree(folder, place / f"{name}-killed" / folder.name))
            changed(killed, stopped=None, digests={})
            patch.setattr(fit_run.tuning, "fit", fit_of(10))
            assert command(name, place / "arm.yaml", "--out", place / f"{name}-finished")[0] == 0
    return place


@pytest.fixture
def copy(place, tmp_path):
    """Return a function that makes a new copy of a run."""

    def copied(kind):
        (folder,) = (place / kind).iterdir()
        shutil.rmtree(tmp_path / kind, ignore_errors=True)
        return pathlib.Path(shutil.copytree(folder, tmp_path / kind))

    return copied


@pytest.mark.long
def test_an_interrupted_run_says_so_and_is_drawn(copy):
    folder = copy("run")
    record = json.loads((folder / "run.json").read_text())
    assert (record["complete"], record["finished"]) == (False, None)
    assert record["results"]["steps"] == 4
    assert record["results"]["status"] == {"OK": 1}
    assert (
        "**The run is not complete:** interrupted after 4 of 10 steps." in (folder / "report.md").read_text()
    )
    code, out, err = command("plot", folder)
    assert (code, "drawn into" in out) == (0, True)
    assert "is not complete: interrupted after 4 of 10 steps" in err
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "parts",
        "plots",
        "report.md",
        "results.zarr",
        "run.json",
    }
    assert "**The run is not complete:**" in (folder / "report.md").read_text()


@pytest.mark.long
def test_a_run_whose_results_were_changed_is_not_continued(copy):
    folder = copy("run")
    (file,) = (folder / "results.zarr" / "q").glob("0.0.0")
    file.write_bytes(b"other")
    code, _, err = command("run", "--resume", folder)
    assert code == 2
    assert f"{file}: got a file that has changed since the run" in err


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


DAMAGES = [
    removed,
    emptied,
    cut,
    replaced_by_noise,
    replaced_by_another,
    replaced_by_a_folder,
    replaced_by_a_pipe,
    replaced_by_a_device,
]
OF_RESULTS = DAMAGES[
    :4
]  # There are many of them; what no file is at all is told by the same lines as elsewhere.


WRITTEN_ANEW = ("history.csv", "tuned.yaml", "controls.csv")
FITS = [f"{command}{state}" for command in ("tune", "optimize") for state in ("", "-killed", "-finished")]


# Both commands and all three states in five pairs; the fifty files of results are damaged in the same ways as
# the few of a fit.
QUICK_PAIRS = [
    ("plot", "tune"),
    ("plot", "optimize-killed"),
    ("plot", "tune-finished"),
    ("tune", "tune-killed"),
    ("optimize", "optimize"),
]
PAIRS = [
    *(("plot", kind) for kind in ("run", *FITS)),
    *((kind.split("-")[0], kind) for kind in FITS if not kind.endswith("finished")),
]


@pytest.mark.parametrize(
    ("action", "kind"),
    [pytest.param(*pair, marks=() if pair in QUICK_PAIRS else pytest.mark.exhaustive) for pair in PAIRS],
)
def test_every_file_damaged_in_every_way(copy, action, kind):
    whole = copy(kind)
    arguments = ["plot"] if action == "plot" else [action, "--resume"]
    anew = ("report.md", "plots", "lock", "metrics.jsonl", "parts")
    files = [
        path
        for path in sorted(whole.rglob("*"))
        if path.is_file() and path.relative_to(whole).parts[0] not in anew
    ]
    assert len(files) >= (50 if kind == "run" else 5 if kind.endswith("finished") else 4)
    for file in files:
        name, data = file.relative_to(whole), file.read_bytes()
        for damage in OF_RESULTS if len(name.parts) > 2 else DAMAGES:
            if (
                damage is removed
                and file.name == "checkpoint.npz"
                and (action, kind[-6:]) != ("plot", "killed")
            ):
                continue  # Nothing is lost then but time, see below.
            if action != "plot" and file.name in WRITTEN_ANEW and damage in DAMAGES[:5]:
                continue  # They are written again, see below.
            damage(file, whole / ("config.yaml" if name.name != "config.yaml" else "run.json"))
            if file.is_file() and not file.is_symlink() and file.read_bytes() == data:
                continue  # An empty file, cut.
            before = (
                content(whole) if (file.is_file() and not file.is_symlink()) or not file.exists() else None
            )
            code, out, err = command(*arguments, whole)
            what = f"{name} {damage.__name__}: {err}"
            assert (code, out) == (2, ""), what
            assert 1 <= len(err.splitlines()) <= 2, what
            assert str(whole) in err, what
            assert before is None or content(whole) == before, what
            shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
            file.write_bytes(data)


@pytest.mark.long
@pytest.mark.parametrize("kind", FITS)
def test_fits_are_drawn_as_far_as_they_came(copy, kind):
    folder = copy(kind)
    shutil.rmtree(folder / "plots", ignore_errors=True)
    code, out, err = command("plot", folder)
    assert (code, "drawn into" in out) == (0, True)
    reason = {"killed": "it is still in progress, or it was killed", "finished": ""}.get(
        kind.rpartition("-")[2], "interrupted"
    )
    assert err == (f"note: {folder} is not complete: {reason}\n" if reason else "")
    last = {"parameters.png"} if kind.startswith("tune") else {"controls.png"} if not reason else set()
    assert {path.name for path in (folder / "plots").iterdir()} == {"history.png"} | last
    report = (folder / "report.md").read_text()
    assert (f"**The run is not complete:** {reason}." in report) == bool(reason)
    assert ("| loss | 1 at the start, 0.1 at iteration 10 |" in report) == (not reason)
    assert not list(folder.glob("plots.*"))


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("tune", marks=pytest.mark.exhaustive),
        "tune-killed",
        pytest.param("tune-finished", marks=pytest.mark.exhaustive),
    ],
)
def test_tables_whose_content_was_changed(copy, kind):
    folder = copy(kind)
    file = folder / "history.csv"
    text = file.read_text()
    header, first, *rest = text.splitlines(keepends=True)
    for change in (
        text.replace("0.5", "nan", 1),
        text.replace("0.5", "0.6", 1),
        text.replace("loss", "lost", 1),
        text.replace("forces.motor.torque", "forces.motor.tork", 1),
        header,
        header + "".join(rest),
        text + rest[-1],
        text[:-1],
    ):
        file.write_text(change)
        code, out, err = command("plot", folder)
        assert (code, out, err.count("\n")) == (2, "", 1), change
        assert str(file) in err
    # Whoever is killed between a checkpoint and its table leaves the one before.
    file.write_text(header + first)
    assert command("plot", folder)[0] == (0 if kind == "tune-killed" else 2)
    file.rename(folder / "elsewhere.csv")
    file.symlink_to("elsewhere.csv")
    code, _, err = command("plot", folder)
    assert (code, "a symbolic link" in err) == (2, True)


def test_the_status_of_fits(copy):
    """How far one is that was killed, and how one ended."""
    folder = copy("tune-killed")
    told = command("status", folder)[1]
    assert "jaxdae tune, " in told
    assert "iteration 4 of " in told
    assert "it is still in progress, or it was killed; no process on this machine is working on it" in told
    (folder / "history.csv").unlink()
    assert "no checkpoint yet" in command("status", folder)[1]
    assert "complete, finished" in command("status", copy("tune-finished"))[1]


def test_a_fit_that_was_stopped_before_its_first_checkpoint(copy):
    folder = copy("tune-killed")
    for name in ("history.csv", "checkpoint.npz"):
        (folder / name).unlink()
        code, _, err = command("plot", folder)
        assert (code, "a run that was stopped before its first checkpoint, expected history.csv" in err) == (
            2,
            True,
        )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["tune", pytest.param("optimize-killed", marks=pytest.mark.exhaustive)])
def test_a_fit_that_is_continued_writes_its_tables_again(copy, closed, monkeypatch, kind):
    folder, name = copy(kind), kind.split("-")[0]
    before = (folder / "history.csv").read_text()
    cut(folder / "history.csv", None)
    monkeypatch.setattr(fit_run.tuning, "fit", fit_of(10))
    assert command(name, "--resume", folder)[0] == 0
    assert (folder / "history.csv").read_text().startswith(before)
    assert command("plot", folder)[0] == 0
    assert json.loads((folder / "run.json").read_text())["learned"]["resumed"] == 1


@pytest.mark.long
def test_a_longer_fit_is_complete_when_it_has_finished_again(copy, closed, monkeypatch):
    folder = copy("optimize-finished")
    shutil.rmtree(folder / "plots")
    longer = ("optimize", "--resume", folder, "--set", "optimize.iterations=20")
    before = content(folder)

    def press(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)

    def another(*arguments, checkpoint, **options):
        read_checkpoint(
            pathlib.Path(checkpoint.file), {"x": np.ones(3)}, {"program": "z", "numbers": "b", "jax": "c"}
        )

    # What ends before the checkpoint was looked at leaves the shorter run as it was.
    for fit, code, message in (
        (press, 130, "are complete; use jaxdae plot"),
        (another, 2, "belongs to a different fit: its fit has a different loss"),
    ):
        monkeypatch.setattr(fit_run.tuning, "fit", fit)
        got, _, err = command(*longer)
        assert (got, message in err) == (code, True)
        assert content(folder) == before
    monkeypatch.setattr(fit_run.tuning, "fit", fit_of(15, interrupted=True))
    assert command(*longer)[0] == 130
    record = json.loads((folder / "run.json").read_text())
    assert (record["complete"], record["finished"], record["stopped"]) == (False, None, "interrupted")
    assert record["learned"] == {"command": "optimize", "resumed": 1}
    assert record["config"]["optimize"]["iterations"] == 20
    code, _, err = command("plot", folder)
    assert (code, "is not complete: interrupted" in err) == (0, True)
    # The inputs in the folder are still those of the shorter run.
    assert {path.name for path in (folder / "plots").iterdir()} == {"history.png"}
    code, _, err = command("optimize", "--resume", folder, "--set", "optimize.iterations=15")
    assert (code, "a run can be lengthened but not shortened" in err) == (2, True)
    monkeypatch.setattr(fit_run.tuning, "fit", fit_of(20))

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "digests", full)
        code, _, err = command("optimize", "--resume", folder)
    assert (code, "is not complete; jaxdae optimize --resume" in err) == (1, True)
    assert command("optimize", "--resume", folder)[0] == 0
    record = json.loads((folder / "run.json").read_text())
    assert (record["complete"], "stopped" in record, record["learned"]["iterations"]) == (True, False, 20)
    code, _, err = command("plot", folder)
    assert (code, err) == (0, "")


def test_what_no_fit_is_continued_with(copy):
    folder = copy("tune-finished")
    before = content(folder)
    for overrides, message in (
        ((), "there is nothing to continue; --set tune.iterations=N with N above 12 lengthens it"),
        (("tune.iterations=11",), "a run can be lengthened but not shortened"),
        (
            ("tune.iterations=20", "dt=0.01"),
            "a change of dt 0.02 -> 0.01, expected no change except a larger tune.iterations",
        ),
    ):
        code, out, err = command(
            "tune", "--resume", folder, *(word for text in overrides for word in ("--set", text))
        )
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("--resume: got ")
        assert message in err
        with locks.lock(folder):
            assert (
                command("tune", "--resume", folder, "--set", "tune.iterations=20")[2].count(
                    "another process is working on"
                )
                == 1
            )
        assert content(folder) == before


@all_cases(
    ("change", "entry"),
    [
        ({"complete": False}, "complete"),
        ({"finished": None}, "complete"),
        ({"learned": {"command": "tune", "resumed": 0}}, "learned.loss_at_start"),
        ({"learned": []}, "learned"),
        ({"digests": {}}, "digests"),
    ],
)
def test_records_of_fits_that_contradict_themselves(copy, change, entry):
    folder = copy("tune-finished")
    changed(folder, **change)
    code, _, err = command("plot", folder)
    assert (code, err.count("\n")) == (2, 1)
    assert entry in err


def test_a_run_without_a_checkpoint_begins_again_and_says_so(copy, monkeypatch):
    folder = copy("tune")
    (folder / "checkpoint.npz").unlink()
    monkeypatch.setattr(
        fit_run, "learn", lambda *arguments, **options: (_ for _ in ()).throw(ValueError("as far as here"))
    )
    code, _, err = command("tune", "--resume", folder)
    assert code == 1
    assert "has no checkpoint; the fit restarts at its first iteration" in err


@pytest.mark.parametrize("kind", ["run", "tune"])
def test_a_config_of_another_mechanism_beside_the_run(copy, kind):
    folder = copy(kind)
    data = yaml.safe_load((folder / "config.yaml").read_text())
    data["mechanism"]["bodies"][0]["mass"] = 2.0
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    code, _, err = command(*(["plot"] if kind == "run" else ["tune", "--resume"]), folder)
    assert code == 2
    assert (
        "a config that differs from the config in run.json (mechanism.bodies.0.mass: 2.0 instead of 1.0)"
        in err
    )


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


@all_cases(
    ("change", "message"),
    [
        (lambda record: [], "JSON that is not a mapping"),
        (lambda record: {}, "an unfinished run"),
        (lambda record: record | {"results": {}}, "a wrong entry results.largest_violation"),
        (lambda record: record | {"complete": "yes"}, "a wrong entry complete"),
        (lambda record: record | {"digests": {}}, "without the digests of the results"),
        (lambda record: record | {"digests": {"../x": "0"}}, "outside of the folder"),
        (lambda record: record | {"config": {}}, "an invalid config"),
        (
            lambda record: {key: x for key, x in record.items() if key not in ("results", "digests")},
            "an unfinished run",
        ),
    ],
)
def test_records_that_are_none(copy, change, message):
    folder = copy("run")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(change(record)))
    code, _, err = command("plot", folder)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("name", ["report.md", "checkpoint.npz.partial", "plots", "plots/energy.png"])
@pytest.mark.parametrize("what", ["link", "folder or file"])
def test_nothing_is_written_through_links(copy, tmp_path, name, what):
    folder = copy("tune" if name.startswith("checkpoint") else "run")
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
    with locks.lock(folder):
        code, _, err = command("tune", "--resume", folder)
        assert code == 2
        assert "another process is working on" in err
        with pytest.raises(Refused, match="another process"), locks.lock(folder):
            pass
    assert not (folder / run_folder.LOCK).exists()
    (folder / run_folder.LOCK).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(Refused), locks.lock(folder):
        pass
    assert not (folder.parent / "elsewhere").exists()
