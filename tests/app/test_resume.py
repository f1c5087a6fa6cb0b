"""Runs that end early or are shared: whatever happens on the way, the finished store equals that of the
uninterrupted run, byte by byte.
"""

import contextlib
import dataclasses
import datetime
import errno
import importlib
import itertools
import json
import os
import re
import shutil
import signal

import jax
import numpy as np
import pytest
import rich.console
import xarray as xr
from all_cases import all_cases
from small_runs import SWING, assert_equal, command, content, only

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.jobs import launch, parts, shares
from jaxdae.app.model.load_config import load
from jaxdae.app.runs import locks, results, run_folder, run_identity
from jaxdae.app.runs import result_grid as grids
from jaxdae.app.runs.result_grid import Grid, grid


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the config; its loops are closed once."""
    place = tmp_path_factory.mktemp("runs")
    (place / "swing.yaml").write_text(SWING)
    swing = load(str(place / "swing.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: swing)
        yield place


def loaded():
    """Returns config and worlds as the fixture has loaded them."""
    return importlib.import_module("jaxdae.app.model.load_config").load()


@pytest.fixture(scope="module")
def whole(place):
    """The folder of the run that nothing interrupted."""
    code, out, err = command("run", place / "swing.yaml", "--out", place / "whole")
    assert code == 0, out + err
    return only(place / "whole")


SIZES = [
    (1, 1, 100),
    (2, 7, 100),
    (33, 40, 200),
    (65, 1000, 10_000),
    (1000, 12, 1_000_000),
    (1_000_001, 3, 400),
]


@all_cases(("size", "saved", "entry"), SIZES)
def test_results_are_cut_by_the_config_alone(size, saved, entry):
    values = {
        "name": "a",
        "mechanism": {"bodies": [{"name": "b", "mass": 1, "inertia": 1, "pose": [0, 0, 0], "free": True}]},
        "dt": 1.0,
    }
    cut = grid(Config.model_validate(values | {"duration": float(saved), "batch": {"size": size}}), entry)
    assert cut.saved == saved + 1
    assert cut.entries % cut.block == 0
    assert cut.part % cut.worlds == 0
    for count in {1, min(2, cut.chunks), min(5, cut.chunks), cut.chunks}:
        ranges = [part for k in range(count) for part in cut.parts(cut.share(k, count))]
        assert [first for first, _ in ranges] == [0, *(behind for _, behind in ranges[:-1])]
        assert ranges[-1][1] == size
        # Whole chunks, never one world alone.
        assert all(first % cut.worlds == 0 and behind - first > (size > 1) for first, behind in ranges)
    with pytest.raises(Refused, match=f"--chunks: got {cut.chunks + 1}, expected at most {cut.chunks}"):
        cut.share(0, cut.chunks + 1)


def test_parts_leave_out_what_is_taken():
    cut = Grid(size=100, saved=2, worlds=10, entries=1, block=1, part=20)
    assert cut.parts((0, 100), [(40, 60), (0, 10)]) == [(10, 30), (30, 40), (60, 80), (80, 100)]
    assert cut.parts((30, 50), [(40, 60)]) == [(30, 40)]
    assert cut.parts((40, 60), [(40, 60)]) == []


@pytest.mark.long
def test_the_store_says_what_it_holds(whole):
    with xr.open_zarr(whole / "results.zarr") as data:
        assert dict(data.sizes)["world"] == 100
        np.testing.assert_array_equal(data.time, 0.01 * (2 * np.arange(46)))
        assert data.status.dtype == np.int32
        assert data.q.notnull().all()
        assert data.q.attrs["long_name"] == "coordinates"
        assert list(data.q.coords["coordinate"].values) == ["rod.x", "rod.y", "rod.theta"]
        np.testing.assert_array_equal(data.varied[0], [1.0])
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines][-1] == 90
    assert all(line["of"] == 90 and line["worlds"] == [0, 100] and line["failed"] == 0 for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_jobs_that_share_a_run(place, whole, tmp_path, monkeypatch, count):
    for index in reversed(range(count)):
        told = f"chunk {index} of {count}, worlds "
        for again in ("complete", "already complete"):
            code, out, err = command(
                "run", place / "swing.yaml", "--out", tmp_path, "--chunks", count, "--chunk", index
            )
            assert (code, err) == (0, "")
            assert told in out
            assert f": {again}\n" in out
        if index:
            code, _, err = command("merge", only(tmp_path))
            assert code == 2
            assert "where worlds 0 to " in err
            assert err.endswith(" are missing; simulate them first\n")
    with damaged(only(tmp_path) / "results.zarr" / "v" / "3.0.0"):
        code, _, err = command("merge", only(tmp_path))
        assert code == 2
        assert (
            "results.zarr/v/3.0.0: got a file that has changed since the run (worlds 96 to 99, saved states "
            "0 to 45), expected" in err
        )
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_record", full)
        code, _, err = command("merge", only(tmp_path))
    assert (code, f"run jaxdae merge {only(tmp_path)} again\n" in err) == (1, True), err
    assert command("merge", only(tmp_path))[0] == 0
    assert_equal(only(tmp_path), whole)
    code, out, _ = command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", count, "--chunk", 0)
    assert (code, out) == (0, f"{only(tmp_path)} is complete\n")


@pytest.mark.exhaustive
def test_jobs_of_which_worlds_fail(tmp_path, monkeypatch):
    """A job ends as a run does, whenever it is started; the first failure is that of all worlds, not that of
    the first job.
    """
    # The faster the hinge turns, the less a projection reaches the constraints.
    varied = "{path: forces.motor.torque, distribution: uniform, low: -80, high: -1}"
    motor = "damping: 0.3}\n  forces:\n    - {type: torque, name: motor, a: ground, b: rod, torque: 40}"
    config = tmp_path / "swing.yaml"
    config.write_text(
        SWING.replace("{path: bodies.rod.mass, scatter: 0.1}", varied)
        .replace("damping: 0.3}", motor)
        .replace("size: 100,", "size: 100, seed: 2,")
    )
    made = load(str(config))
    monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: made)
    code, _, err = command("run", config, "--out", tmp_path / "whole")
    assert (code, "NOT_CONVERGED after t = 0.2 s in world 97 of 100" in err) == (1, True), err
    with xr.open_zarr(only(tmp_path / "whole") / "results.zarr") as data:
        gained, failed = np.diff(data.work.values), data.status.values[:, :-1] != 0
    assert failed.sum() > 100
    assert not gained[failed].any()  # What has failed stands still.
    job = ("run", config, "--out", tmp_path / "shared", "--chunks", 2, "--chunk")
    told = (
        "57 of worlds 0 to 63 failed: 57 NOT_CONVERGED\n",
        "32 of worlds 64 to 99 failed: 32 NOT_CONVERGED\n",
    )
    for index in (0, 1, 1):
        code, _, err = command(*job, index)
        assert (code, err) == (1, told[index])
    assert command("merge", only(tmp_path / "shared"))[0] == 1
    assert_equal(only(tmp_path / "shared"), only(tmp_path / "whole"))
    code, _, err = command(*job, 0)
    assert (code, err) == (1, told[0])


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.json")


@contextlib.contextmanager
def damaged(file, change=lambda data: data[:-1] + bytes([data[-1] ^ 1])):
    """Changes what a file holds for a while; None removes it."""
    data = file.read_bytes()
    changed = change(data)
    file.unlink() if changed is None else file.write_bytes(changed)
    try:
        yield
    finally:
        file.write_bytes(data)


class Killed(BaseException):
    """Stands for the end of a process that cannot do anything more."""


@pytest.mark.long
def test_results_that_were_changed_after_a_kill(place, whole, tmp_path, monkeypatch):
    """Killed when three of five rows of chunks were written; then a file, a list or the metrics are changed,
    cut off or removed.
    """
    monkeypatch.setattr(grids, "_ENTRIES", 10)
    monkeypatch.setattr(grids, "_PART_BYTES", 1)
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    add, blocks = shares.Metrics.add, []

    def killing(self, *arguments):
        add(self, *arguments)
        blocks.append(arguments)
        if len(blocks) == 80:
            raise Killed

    monkeypatch.setattr(shares.Metrics, "add", killing)
    with pytest.raises(Killed):
        command("run", place / "swing.yaml", "--out", tmp_path)
    folder = only(tmp_path)
    store, before = folder / "results.zarr", content(folder)
    complete, begun = parts.found(folder)
    assert (complete.complete, complete.worlds, begun.complete, begun.worlds) == (
        True,
        (0, 32),
        False,
        (32, 64),
    )
    assert begun.told["written"] == 30
    assert command("plot", folder)[0] == 2  # Nobody has counted yet what there is.

    def resumed():
        code, _, err = command("run", "--resume", folder)
        return code, err

    same, other = (
        ("restore the folder as the run left it, or remove "),
        "got a file that has changed since the run",
    )
    first, second = (
        "parts/worlds-00000000-00000031.json to restart worlds 0 to 31",
        "parts/worlds-00000032-00000063.npz to restart worlds 32 to 63",
    )
    for name, change, got, remedy in (
        ("q/0.4.0", lambda data: data[:-1], f"{other} (worlds 0 to 31, saved states 40 to 45)", first),
        ("status/0.0", lambda data: None, "got no such file (worlds 0 to 31, saved states 0 to 9)", first),
        (
            "lam/1.2.0",
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            f"{other} (worlds 32 to 63, saved states 20 to 29)",
            second,
        ),
        (".zmetadata", lambda data: data + b" ", other, "results.zarr and parts to restart"),
        ("time/0", lambda data: None, "got no such file", "results.zarr and parts to restart"),
    ):
        with damaged(store / name, change):
            code, err = resumed()
        assert (
            code,
            f"{store / name}: {got}, expected the original file of the run; {same}" in err,
            remedy in err,
        ) == (2, True, True), err
    with damaged(folder / "parts" / "worlds-00000000-00000031.sha256", lambda data: data[: len(data) // 2]):
        code, err = resumed()
        assert (code, "an unlisted file" in err) == (2, True), err
    assert content(folder) == before
    store.rename(tmp_path / "elsewhere")
    code, err = resumed()
    assert (code, "got no such file" in err, store.exists()) == (2, True, False)
    (tmp_path / "elsewhere").rename(store)
    # What was added after the last checkpoint may be cut off.
    for name, torn in (
        ("parts/worlds-00000032-00000063.sha256", "0123456789"),
        ("metrics.jsonl", '{"time": "20'),
    ):
        with (folder / name).open("a") as stream:
            stream.write(torn)
    (store / "q" / "1.3.0").write_bytes(b"half of a chunk")
    assert resumed()[0] == 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4 * 45 + 1  # The last block before the kill once more.
    with xr.open_zarr(store) as data, xr.open_zarr(whole / "results.zarr") as expected:
        assert data.identical(expected)


@pytest.mark.long
def test_what_is_shown_of_runs_that_were_killed(place, tmp_path, monkeypatch):
    """What is in the store, and not what only the checkpoint holds; stopped again before anything more was
    simulated.
    """
    monkeypatch.setattr(grids, "_ENTRIES", 10)
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    add, blocks = shares.Metrics.add, []

    def killing(self, *arguments):
        add(self, *arguments)
        blocks.append(arguments)
        if len(blocks) == 35:
            raise Killed

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(shares.Metrics, "add", killing)
    with pytest.raises(Killed):
        command("run", place / "swing.yaml", "--out", tmp_path)
    folder = only(tmp_path)
    assert parts.found(folder)[0].told["steps"] == 68
    monkeypatch.setattr(shares.Simulator, "carried", interrupted)
    assert command("run", "--resume", folder)[0] == 130
    with results.read(folder / "results.zarr", run_folder.read_record(folder)["written"]) as data:
        assert dict(data.sizes)["time"] == 30
        assert data.q.notnull().all()
    (checkpoint,) = (folder / "parts").glob("*.npz")
    other = checkpoint.rename(checkpoint.with_name("worlds-00000032-00000131.npz"))
    code, _, err = command("run", "--resume", folder)
    assert (code, f"{other}: got an invalid checkpoint of a part" in err) == (2, True), err
    # Without the nominal world there is nothing to draw.
    other.unlink()
    assert command("run", "--resume", folder)[0] == 130
    code, _, err = command("plot", folder)
    assert (code, f"jaxdae run --resume {folder} continues it" in err) == (2, True), err


def test_files_that_two_processes_write_at_the_same_moment(tmp_path, monkeypatch):
    """The other one begins and ends while this one is on its way: both succeed, nothing is left beside the
    file.
    """
    file, force, other = tmp_path / "run.json", os.fsync, iter([None])

    def late(descriptor):
        force(descriptor)
        for _ in other:
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: 0)
                safe_files.write_text(file, "that of the other")
            assert file.read_text() == "that of the other"

    monkeypatch.setattr(os, "fsync", late)
    safe_files.write_text(file, "mine")
    assert (file.read_text(), list(tmp_path.iterdir())) == ("mine", [file])


@pytest.mark.long
def test_what_outlives_a_loss_of_power(place, tmp_path, monkeypatch):
    """The store is forced to the disk before anything counts on it: all of its files, and their names."""
    checked, worlds = loaded()
    folder, force, forced = launch.shared_folder(checked, tmp_path, "swing.yaml"), os.fsync, set()

    def noted(descriptor):
        forced.add(os.fstat(descriptor).st_ino)
        force(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    working = shares.Shares(
        folder, run_folder.read_record(folder), checked, worlds, rich.console.Console(quiet=True)
    )
    working._check((0, 100))
    store = folder / "results.zarr"
    assert not {path for path in (folder, store, *store.rglob("*")) if path.stat().st_ino not in forced}


@pytest.mark.exhaustive
def test_worlds_that_another_process_completes_while_a_job_waits(place, whole, tmp_path, monkeypatch):
    """They are left as they are, and so is a run that is put together meanwhile; worlds on which another
    process works are refused.
    """
    job = ["run", place / "swing.yaml", "--out", tmp_path, "--chunks", 2, "--chunk"]
    real, written = parts.locked, []

    def late(folder, worlds):
        monkeypatch.undo()
        assert command(*job, 0)[0] == 0
        written.append({file: file.stat().st_mtime_ns for file in (folder / "results.zarr").rglob("*.0")})
        return real(folder, worlds)

    checked, worlds = loaded()
    monkeypatch.setattr(parts, "locked", late)
    code, out, _ = command(*job, 0)
    assert (code, "worlds 0 to 63: already complete" in out) == (0, True), out
    folder = only(tmp_path)
    assert written == [{file: file.stat().st_mtime_ns for file in (folder / "results.zarr").rglob("*.0")}]
    with locks.lock(folder, "parts/worlds-00000032-00000099.lock"):
        code, _, err = command(*job, 1)
        assert (code, "while another process is working on worlds 32 to 99" in err) == (2, True), err
    (found,) = parts.found(folder)
    run_folder.write_record(folder, run_folder.read_record(folder) | {"complete": True})
    working = shares.Shares(
        folder,
        run_folder.read_record(folder) | {"complete": False},
        checked,
        worlds,
        rich.console.Console(quiet=True),
    )
    assert working.share(1, 2).endswith("already complete")
    assert parts.found(folder) == [found]


@pytest.mark.long
def test_jobs_that_cut_the_run_in_two_ways_at_the_same_moment(place, whole, tmp_path):
    """A job of two and one of three have both simulated the first worlds: they count once."""
    checked, worlds = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    working = shares.Shares(
        folder, run_folder.read_record(folder), checked, worlds, rich.console.Console(quiet=True)
    )
    assert "complete" in working.share(0, 2)
    (part,) = parts.found(folder)
    first = (0, 32)
    assert first < part.worlds
    shutil.copy(parts.listed(folder, part.worlds), parts.listed(folder, first))
    told = (folder / "parts" / "worlds-00000000-00000063.json").read_text()
    (folder / "parts" / "worlds-00000000-00000031.json").write_text(told.replace("-00000063", "-00000031"))
    assert "complete" in working.share(1, 2)
    assert parts.overlap(parts.found(folder))
    assert command("merge", folder)[0] == 0
    assert run_folder.read_record(folder)["results"]["status"] == {"OK": 100}


@pytest.mark.exhaustive
def test_parts_of_a_run_that_does_not_fit_the_memory(place, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "_PART_BYTES", 1)
    code, _, err = command("run", place / "swing.yaml", "--out", tmp_path)
    assert code == 0
    told = (
        r"note: 100 worlds in 4 parts of at most 32: [\d.]+ kB of starts and [\d.]+ kB of results in "
        r"memory at a time"
    )
    assert re.search(told, err)
    assert_equal(only(tmp_path), whole)


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive), signal.SIGTERM]
)
def test_a_run_that_is_stopped_goes_on(place, whole, tmp_path, monkeypatch, number):
    """Stopped on the way and after the last block."""
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    add, blocks = shares.Metrics.add, []

    def stopping(self, *arguments):
        add(self, *arguments)
        blocks.append(arguments)
        if len(blocks) in (20, 45):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(shares.Metrics, "add", stopping)
    arguments = ["run", place / "swing.yaml", "--out", tmp_path]
    stops = 0
    while (code := command(*arguments)[0]) == 128 + number:
        folder = only(tmp_path)
        code, out, _ = command("status", folder)
        assert code == 0
        assert "100 worlds, 90 steps" in out
        assert "no process on this machine is working on it" in out
        with results.read(folder / "results.zarr", run_folder.read_record(folder)["written"]) as data:
            assert data.q.notnull().all()
            assert data.sizes["time"] == (21, 46)[stops]
        code, _, err = command("export", folder, "--format", "npz", "--out", tmp_path.with_suffix(".npz"))
        assert (code, err) == (
            0,
            f"note: {folder} is not complete: interrupted after {(40, 90)[stops]} of 90 steps\n",
        )
        code, _, err = command("run", "--resume", folder, "--out", tmp_path)
        assert (code, err) == (
            2,
            "run --resume: got --set, --chunks or --out, expected none of them: a continued run keeps its "
            "folder and settings\n",
        )
        arguments = ["run", "--resume", folder]
        stops += 1
    assert (code, stops) == (0, 2)
    assert_equal(only(tmp_path), whole)
    assert "complete, finished" in command("status", only(tmp_path))[1]


@pytest.mark.exhaustive
def test_a_run_that_another_number_of_jobs_ends(place, whole, tmp_path, monkeypatch):
    """Begun by two jobs, of which one is stopped; ended by three."""
    add = shares.Metrics.add

    def stopping(self, *arguments):
        add(self, *arguments)
        if arguments[1].steps > 40:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(shares.Metrics, "add", stopping)
        code, _, err = command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 2, "--chunk", 1)
        assert code == 143
        assert err.endswith("is not complete; repeat the same command to continue\n")
    for index in range(3):
        assert (
            command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 3, "--chunk", index)[0] == 0
        )
    assert command("merge", only(tmp_path))[0] == 0
    assert_equal(only(tmp_path), whole)


@pytest.mark.long
def test_what_is_not_continued(place, whole, tmp_path, monkeypatch):
    code, _, err = command("run", "--resume", whole)
    assert code == 2
    assert f"--resume: got {whole}, which is complete" in err
    for arguments in (("run",), ("run", place / "swing.yaml", "--resume", whole)):
        assert command(*arguments)[0] == 2
    assert command("run", "--resume", whole, "--set", "dt=1")[0] == 2
    assert command("run", place / "swing.yaml", "--chunks", 3, "--chunk", 3)[0] == 2
    assert command("run", place / "swing.yaml", "--chunks", 3)[0] == 2
    assert command("status", tmp_path)[0] == 2
    command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 3, "--chunk", 1)
    folder = only(tmp_path)
    before = content(folder)
    real = run_identity._code
    monkeypatch.setattr(run_identity, "_code", lambda: "other code")
    job = ("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 3, "--chunk", 0)
    for arguments in (("run", "--resume", folder), ("merge", folder), job):
        code, _, err = command(*arguments)
        assert code == 2
        assert (
            f"which belongs to another run: its code of jaxdae was {real()} and is other code; the results "
            "would not be consistent" in err
        )
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        code, _, err = command("merge", folder)
    assert (code, "environment variable XLA_FLAGS was " in err) == (2, True), err
    with jax.default_matmul_precision("tensorfloat32"):
        code, _, err = command("merge", folder)
    assert (code, "jax_default_matmul_precision was default and is tensorfloat32; " in err) == (2, True), err
    assert content(folder) == before
    (record,) = (folder / "parts").glob("*.json")
    told = json.loads(record.read_text())
    told["identity"]["jax"] = "0.1"
    record.write_text(json.dumps(told))
    code, _, err = command("merge", folder)
    assert code == 2
    assert "its version of JAX was 0.1 and is" in err
    told["part"] = "worlds-00000000-00000031"
    for text, reason in (
        ("{}", "'summary'"),
        (json.dumps(told), "worlds-00000000-00000031 under another name"),
    ):
        record.write_text(text)
        code, _, err = command("merge", folder)
        assert code == 2
        assert f"{record}: got an invalid record of a part ({reason})" in err
    for change in (lambda data: b"{", lambda data: data.replace(b'"identity"', b'"other"')):
        with damaged(folder / "run.json", change):
            code, _, err = command(*job)
        assert (code, str(folder) in err) == (2, True), err


def test_a_part_on_which_another_process_works(place, tmp_path):
    checked, _ = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    assert launch.shared_folder(checked, tmp_path, "swing.yaml") == folder
    assert only(tmp_path) == folder
    with parts.locked(folder, (0, 66)):
        assert parts.at_work(folder) == [(0, 66)]
        with pytest.raises(Refused, match="another process is working on"), parts.locked(folder, (0, 66)):
            pass
    assert parts.at_work(folder) == []


def test_a_run_that_is_stopped_while_a_job_goes_on(place, tmp_path, monkeypatch):
    """Its record stays that of a run that goes on: the files of the job are not yet those that anybody should
    expect.
    """
    checked, worlds = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    working = shares.Shares(
        folder, run_folder.read_record(folder), checked, worlds, rich.console.Console(quiet=True)
    )

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(shares.Shares, "_simulate", interrupted)
    with (
        parts.locked(folder, (66, 100)),
        pytest.raises(KeyboardInterrupt, match="; other processes continue the run; jaxdae run"),
    ):
        working.all()
    assert "stopped" not in run_folder.read_record(folder)
    with pytest.raises(KeyboardInterrupt, match="interrupted after 0 of 90 steps; jaxdae run --resume"):
        working.all()
    assert run_folder.read_record(folder)["stopped"] == "interrupted after 0 of 90 steps"
    working.grid = dataclasses.replace(working.grid, part=34)
    with pytest.raises(KeyboardInterrupt, match="interrupted with 0 of 100 worlds complete; jaxdae"):
        working.all()
    # A job takes that back, unless the run has been ended meanwhile.
    assert working._go_on()
    assert "stopped" not in run_folder.read_record(folder)
    run_folder.write_record(folder, run_folder.read_record(folder) | {"complete": True})
    assert not working._go_on()
    # Nor does anybody wait for worlds of which nothing is known any more, or miss them.
    working.wait()
    for end in (working.all, working.merge):
        with pytest.raises(
            Refused, match="another process has finished in the meantime; use jaxdae plot to draw it"
        ):
            end()


def test_a_process_waits_for_the_worlds_of_others(place, tmp_path, monkeypatch):
    """By looking at their files, however long that takes, and says how far all of them are."""
    checked, worlds = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    console = rich.console.Console(record=True, width=200)
    mine = shares.Shares(
        folder, run_folder.read_record(folder), checked, worlds, console, number=0, reports=True
    )
    looks = iter([[(0, 66)], [(0, 66)], [(0, 66), (66, 100)]])
    monkeypatch.setattr(shares.Shares, "_found", lambda self: (next(looks), []))
    for name in ("SECONDS_BETWEEN_LOOKS", "SECONDS_BETWEEN_CHECKPOINTS"):
        monkeypatch.setattr(shares, name, 0.0)
    mine.wait()
    assert next(looks, "all looked at") == "all looked at"
    assert (
        console.export_text().count("all processes: 0.0 % on disk, 0 of 100 worlds complete, 0 failed\n") == 2
    )


@pytest.mark.long
@pytest.mark.parametrize(("devices", "threads"), [pytest.param(1, 1, marks=pytest.mark.exhaustive), (8, 7)])
def test_worlds_are_divided_among_cores(place, whole, tmp_path, devices, threads):
    """100 worlds do not divide among eight: seven take 16 each, with copies of the last."""
    assert command("run", place / "swing.yaml", "--out", tmp_path, "--devices", devices)[0] == 0
    assert_equal(only(tmp_path), whole)
    assert run_folder.read_record(only(tmp_path))["layout"]["threads"] == threads


@pytest.mark.long
def test_the_layout_of_a_config_changes_no_bit(place, whole, tmp_path, monkeypatch):
    plain, given = loaded()[0], load(str(place / "swing.yaml"), ("layout.devices=3", "layout.chunk=7"))
    monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments: given)
    # A folder that jobs share is found by what the numbers depend on: this one was begun with another layout.
    folder = launch.shared_folder(plain, tmp_path, "swing.yaml")
    assert command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 1, "--chunk", 0)[0] == 0
    assert only(tmp_path) == folder
    (part,) = parts.found(folder)
    assert (part.summary.layout["threads"], part.summary.layout["chunk"]) == (3, 4)
    assert part.summary.layout["program_bytes"] > 0
    assert command("merge", folder)[0] == 0
    assert_equal(folder, whole)


@pytest.mark.exhaustive
def test_chunks_of_worlds_change_no_bit(tmp_path, monkeypatch):
    """Where several saved states are computed at a time: a program with a loop over chunks rounds otherwise
    than that of one chunk.
    """
    config, stores = tmp_path / "swing.yaml", []
    config.write_text(SWING.replace("duration: 0.9", "duration: 2.0"))
    for chunk in (100, 16):
        given = load(str(config), (f"layout.chunk={chunk}",))
        monkeypatch.setattr("jaxdae.app.model.load_config.load", lambda *arguments, given=given: given)
        assert command("run", config, "--out", tmp_path / str(chunk), "--devices", 1)[0] == 0
        stores.append(content(only(tmp_path / str(chunk)) / "results.zarr"))
    assert stores[0] == stores[1]


@pytest.mark.exhaustive
def test_clocks_that_jump(place, whole, tmp_path, monkeypatch):
    """Every look at the clock is a day before the last one, but that two runs begin in the same second."""
    days, begun = (
        itertools.count(),
        datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
    )  # reset before each run

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return begun - datetime.timedelta(days=max(0, next(days) - 1))

    monkeypatch.setattr(datetime, "datetime", Backwards)
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for _ in range(2):
        days = itertools.count()
        assert command("run", place / "swing.yaml", "--out", tmp_path)[0] == 0
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [
        "swing-20260131T120000Z",
        "swing-20260131T120000Z-2",
    ]
    for folder in tmp_path.iterdir():
        assert_equal(folder, whole)
        assert "complete" in command("status", folder)[1]
