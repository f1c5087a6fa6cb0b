"""Runs that end early or are shared: whatever happens on the way, the finished store equals that of the uninterrupted run, byte by byte."""

import contextlib
import datetime
import importlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import rich.console
import typer.testing
import xarray as xr

from jaxdae.app import grid as grids
from jaxdae.app import hosts, identity, launch, opened, parts, results, run_folder, shares
from jaxdae.app.command import app
from jaxdae.app.config import load
from jaxdae.app.grid import Grid, grid
from jaxdae.app.problems import Refused
from jaxdae.app.schema import Config

# 100 worlds of a damped pendulum, whose work integral reaches over blocks.
SWING = """
name: swing
mechanism:
  bodies:
    - {name: rod, mass: 1.0, inertia: 0.08, pose: [0.5, 0, 0]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: rod, at: [0, 0], damping: 0.3}
duration: 0.9
dt: 0.01
save_every: 2
integrator: {type: semi_implicit_euler}
batch: {size: 100, vary: [{path: bodies.rod.mass, scatter: 0.1}]}
output: {plots: false}
"""


def command(*arguments):
    result = typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def content(store):
    """Returns what a store holds, by path."""
    return {str(file.relative_to(store)): file.read_bytes() for file in store.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the config; its loops are closed once."""
    place = tmp_path_factory.mktemp("runs")
    (place / "swing.yaml").write_text(SWING)
    swing = load(str(place / "swing.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxdae.app.config.load", lambda *arguments: swing)
        yield place


def loaded():
    """Returns config and worlds as the fixture has loaded them."""
    return importlib.import_module("jaxdae.app.config").load()


@pytest.fixture(scope="module")
def whole(place):
    """The folder of the run that nothing interrupted."""
    code, out, err = command("run", place / "swing.yaml", "--out", place / "whole")
    assert code == 0, out + err
    return only(place / "whole")


def only(out):
    (folder,) = out.iterdir()
    return folder


def assert_equal(folder, whole):
    """Asserts that a run ended as the one that nothing interrupted."""
    assert content(folder / "results.zarr") == content(whole / "results.zarr")
    found, expected = (run_folder.read_record(each) for each in (folder, whole))
    assert found["complete"]
    assert found["results"] == expected["results"]
    assert found["digests"] == expected["digests"]
    assert not (folder / "parts").exists()


SIZES = [(1, 1, 100), (2, 7, 100), (33, 40, 200), (65, 1000, 10_000), (1000, 12, 1_000_000), (1_000_001, 3, 400)]


@pytest.mark.parametrize(("size", "saved", "entry"), SIZES)
def test_results_are_cut_by_the_config_alone(size, saved, entry):
    values = {"name": "a", "mechanism": {"bodies": [{"name": "b", "mass": 1, "inertia": 1, "pose": [0, 0, 0], "free": True}]}, "dt": 1.0}
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


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.long), 3])
def test_jobs_that_share_a_run(place, whole, tmp_path, count):
    for index in reversed(range(count)):
        told = f"chunk {index} of {count}, worlds "
        for again in ("complete", "was complete before"):
            code, out, err = command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", count, "--chunk", index)
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
        assert "results.zarr/v/3.0.0: got a file that is not what the run wrote (worlds 96 to 99, saved states 0 to 45), expected" in err
    assert command("merge", only(tmp_path))[0] == 0
    assert_equal(only(tmp_path), whole)
    code, out, _ = command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", count, "--chunk", 0)
    assert (code, out) == (0, f"{only(tmp_path)} is complete\n")


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
    """Killed when three of five rows of chunks were written; then a file, a list or the metrics are changed, cut off or removed."""
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
    assert (complete.complete, complete.worlds, begun.complete, begun.worlds) == (True, (0, 32), False, (32, 64))
    assert begun.told["written"] == 30
    assert command("plot", folder)[0] == 2  # Nobody has counted yet what there is.

    def resumed():
        code, _, err = command("run", "--resume", folder)
        return code, err

    same, other = "use the folder as the run left it, or remove ", "got a file that is not what the run wrote"
    first, second = "parts/worlds-00000000-00000031.json, and worlds 0 to 31", "parts/worlds-00000032-00000063.npz, and worlds 32 to 63"
    for name, change, got, remedy in (
        ("q/0.4.0", lambda data: data[:-1], f"{other} (worlds 0 to 31, saved states 40 to 45)", first),
        ("status/0.0", lambda data: None, "got no such file (worlds 0 to 31, saved states 0 to 9)", first),
        ("lam/1.2.0", lambda data: data[:-1] + bytes([data[-1] ^ 1]), f"{other} (worlds 32 to 63, saved states 20 to 29)", second),
        (".zmetadata", lambda data: data + b" ", other, "results.zarr and parts, and it"),
        ("time/0", lambda data: None, "got no such file", "results.zarr and parts, and it"),
    ):
        with damaged(store / name, change):
            code, err = resumed()
        assert (code, f"{store / name}: {got}, expected what the run wrote; {same}" in err, remedy in err) == (2, True, True), err
    with damaged(folder / "parts" / "worlds-00000000-00000031.sha256", lambda data: data[: len(data) // 2]):
        code, err = resumed()
        assert (code, "a file that was not listed" in err) == (2, True), err
    assert content(folder) == before
    store.rename(tmp_path / "elsewhere")
    code, err = resumed()
    assert (code, "got no such file" in err, store.exists()) == (2, True, False)
    (tmp_path / "elsewhere").rename(store)
    # What was added after the last checkpoint may be cut off.
    for name, torn in (("parts/worlds-00000032-00000063.sha256", "0123456789"), ("metrics.jsonl", '{"time": "20')):
        with (folder / name).open("a") as stream:
            stream.write(torn)
    (store / "q" / "1.3.0").write_bytes(b"half of a chunk")
    assert resumed()[0] == 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4 * 45 + 1  # The last block before the kill once more.
    with xr.open_zarr(store) as data, xr.open_zarr(whole / "results.zarr") as expected:
        assert data.identical(expected)


def test_worlds_that_another_process_completes_while_a_job_waits(place, whole, tmp_path, monkeypatch):
    """They are left as they are, and so is a run that is put together meanwhile; worlds on which another process works are refused."""
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
    assert (code, "worlds 0 to 63: was complete before" in out) == (0, True), out
    folder = only(tmp_path)
    assert written == [{file: file.stat().st_mtime_ns for file in (folder / "results.zarr").rglob("*.0")}]
    with opened.lock(folder, "parts/worlds-00000032-00000099.lock"):
        code, _, err = command(*job, 1)
        assert (code, "while another process works on worlds 32 to 99" in err) == (2, True), err
    (found,) = parts.found(folder)
    run_folder.write_record(folder, run_folder.read_record(folder) | {"complete": True})
    working = shares.Shares(folder, run_folder.read_record(folder) | {"complete": False}, checked, worlds, rich.console.Console(quiet=True))
    assert working.share(1, 2).endswith("was complete before")
    assert parts.found(folder) == [found]


@pytest.mark.long
def test_jobs_that_cut_the_run_in_two_ways_at_the_same_moment(place, whole, tmp_path):
    """A job of two and one of three have both simulated the first worlds: they count once."""
    checked, worlds = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    working = shares.Shares(folder, run_folder.read_record(folder), checked, worlds, rich.console.Console(quiet=True))
    assert "complete" in working.share(0, 2)
    (part,) = parts.found(folder)
    first = (0, 32)
    assert first < part.worlds
    shutil.copy(parts.listed(folder, part.worlds), parts.listed(folder, first))
    shutil.copy(folder / "parts" / "worlds-00000000-00000063.json", folder / "parts" / "worlds-00000000-00000031.json")
    assert "complete" in working.share(1, 2)
    assert parts.overlap(parts.found(folder))
    assert command("merge", folder)[0] == 0
    assert run_folder.read_record(folder)["results"]["status"] == {"OK": 100}


def test_parts_of_a_run_that_does_not_fit_the_memory(place, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "_PART_BYTES", 1)
    code, _, err = command("run", place / "swing.yaml", "--out", tmp_path)
    assert code == 0
    told = r"note: 100 worlds in 4 parts of at most 32: [\d.]+ kB of starts and [\d.]+ kB of results in memory at a time"
    assert re.search(told, err)
    assert_equal(only(tmp_path), whole)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_a_run_that_is_stopped_goes_on(place, whole, tmp_path, monkeypatch, number):
    """Stopped after every fifteenth block, the last of which is the last of all."""
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    add, blocks = shares.Metrics.add, []

    def stopping(self, *arguments):
        add(self, *arguments)
        blocks.append(arguments)
        if len(blocks) % 15 == 0:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(shares.Metrics, "add", stopping)
    arguments = ["run", place / "swing.yaml", "--out", tmp_path]
    stops = 0
    while (code := command(*arguments)[0]) == 128 + number:
        folder = only(tmp_path)
        code, out, _ = command("status", folder)
        assert code == 0
        assert "100 worlds, 90 steps" in out
        assert "no process of this machine works on it" in out
        with results.read(folder / "results.zarr", run_folder.read_record(folder)["written"]) as data:
            assert data.q.notnull().all()
            assert data.sizes["time"] == (16, 31, 46)[stops]
        arguments = ["run", "--resume", folder]
        stops += 1
    assert (code, stops) == (0, 3)
    assert_equal(only(tmp_path), whole)
    assert "complete, finished" in command("status", only(tmp_path))[1]


@pytest.mark.long
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
        assert err.endswith("is not complete; the same command goes on with it\n")
    for index in range(3):
        assert command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 3, "--chunk", index)[0] == 0
    assert command("merge", only(tmp_path))[0] == 0
    assert_equal(only(tmp_path), whole)


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
    real = identity._code
    monkeypatch.setattr(identity, "_code", lambda: "other code")
    job = ("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 3, "--chunk", 0)
    for arguments in (("run", "--resume", folder), ("merge", folder), job):
        code, _, err = command(*arguments)
        assert code == 2
        assert f"which is of another run: its code of jaxdae was {real()} and is other code; numbers would not fit together" in err
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
    record.write_text("{}")
    code, _, err = command("merge", folder)
    assert code == 2
    assert f"{record}: got no record of a part" in err


def test_a_part_on_which_another_process_works(place, tmp_path):
    checked, _ = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    assert launch.shared_folder(checked, tmp_path, "swing.yaml") == folder
    assert only(tmp_path) == folder
    with parts.locked(folder, (0, 66)):
        assert parts.at_work(folder) == [(0, 66)]
        with pytest.raises(Refused, match="another process works on"), parts.locked(folder, (0, 66)):
            pass
    assert parts.at_work(folder) == []


def test_a_process_waits_for_the_worlds_of_others(place, tmp_path, monkeypatch):
    """By looking at their files, however long that takes, and says how far all of them are."""
    checked, worlds = loaded()
    folder = launch.shared_folder(checked, tmp_path, "swing.yaml")
    console = rich.console.Console(record=True, width=200)
    mine = shares.Shares(folder, run_folder.read_record(folder), checked, worlds, console, number=0, reports=True)
    looks = iter([[(0, 66)], [(0, 66)], [(0, 66), (66, 100)]])
    monkeypatch.setattr(shares.Shares, "_found", lambda self: (next(looks), []))
    for name in ("SECONDS_BETWEEN_LOOKS", "SECONDS_BETWEEN_CHECKPOINTS"):
        monkeypatch.setattr(shares, name, 0.0)
    mine.wait()
    assert next(looks, "all looked at") == "all looked at"
    assert console.export_text().count("all processes: 0.0 % on disk, 0 of 100 worlds complete, 0 failed\n") == 2


MAIN = "from jaxdae.app import shares; shares.SECONDS_BETWEEN_CHECKPOINTS = 0.1; from jaxdae.app.command import main; main()"


@pytest.mark.long
def test_processes_that_are_killed(tmp_path):
    """Killed twenty times at random instants, by SIGKILL and SIGTERM, and continued."""
    config = tmp_path / "swing.yaml"
    config.write_text(SWING.replace("duration: 0.9", "duration: 300"))
    assert run_process("run", config, "--out", tmp_path / "whole").wait() == 0
    chance, out = random.Random(0), tmp_path / "killed"
    arguments, kills = ["run", config, "--out", out], 0
    while kills < 20:
        process = run_process(*arguments)
        _wait_for_blocks(process, out)
        time.sleep(0.3 * chance.random())
        process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        code = process.wait()
        # SIGTERM after the end of the command, while Python ends, is no longer answered.
        assert code in (-signal.SIGKILL, -signal.SIGTERM, 143, 0)
        if run_folder.read_record(only(out))["complete"]:
            break
        kills += 1
        arguments = ["run", "--resume", only(out)]
    else:
        assert run_process(*arguments).wait() == 0
    assert kills >= 2
    assert_equal(only(out), only(tmp_path / "whole"))


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_processes_that_know_each_other(place, whole, tmp_path, count):
    """Simulates by several processes that JAX's runtime connects over the loopback interface."""
    options = ["--distributed", "--coordinator", f"localhost:{_free_port()}", "--processes", count]
    arguments = ["run", place / "swing.yaml", "--out", tmp_path, *options]
    processes = [run_process(*arguments, "--process", index) for index in range(count)]
    assert [process.wait() for process in processes] == [0] * count
    assert_equal(only(tmp_path), whole)


@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.long)])
def test_worlds_are_divided_among_cores(place, whole, tmp_path, devices):
    """100 worlds do not divide among eight: some are computed twice."""
    assert command("run", place / "swing.yaml", "--out", tmp_path, "--devices", devices)[0] == 0
    assert_equal(only(tmp_path), whole)
    assert run_folder.read_record(only(tmp_path))["layout"]["threads"] == devices


@pytest.mark.long
def test_the_layout_of_a_config_changes_no_bit(place, whole, tmp_path, monkeypatch):
    plain, given = loaded()[0], load(str(place / "swing.yaml"), ("layout.devices=3", "layout.chunk=7"))
    monkeypatch.setattr("jaxdae.app.config.load", lambda *arguments: given)
    # A folder that jobs share is found by what the numbers depend on: this one was begun with another layout.
    folder = launch.shared_folder(plain, tmp_path, "swing.yaml")
    assert command("run", place / "swing.yaml", "--out", tmp_path, "--chunks", 1, "--chunk", 0)[0] == 0
    assert only(tmp_path) == folder
    (part,) = parts.found(folder)
    assert (part.summary.layout["threads"], part.summary.layout["chunk"]) == (3, 7)
    assert part.summary.layout["program_bytes"] > 0
    assert command("merge", folder)[0] == 0
    assert_equal(folder, whole)


@pytest.mark.long
def test_clocks_that_jump(place, whole, tmp_path, monkeypatch):
    """Every look at the clock is a day before the last one, but that two runs begin in the same second."""
    days, begun = itertools.count(), datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)  # reset before each run

    class Backwards(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return begun - datetime.timedelta(days=max(0, next(days) - 1))

    monkeypatch.setattr(datetime, "datetime", Backwards)
    monkeypatch.setattr(shares, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    for _ in range(2):
        days = itertools.count()
        assert command("run", place / "swing.yaml", "--out", tmp_path)[0] == 0
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["swing-20260131T120000Z", "swing-20260131T120000Z-2"]
    for folder in tmp_path.iterdir():
        assert_equal(folder, whole)
        assert "complete" in command("status", folder)[1]


@pytest.mark.long
def test_a_disk_that_fills_up_and_one_that_is_read_only(tmp_path):
    """A file system of 60 MB in memory, which another file fills on the way; needs the right to mount one."""
    disk, config = tmp_path / "disk", tmp_path / "swing.yaml"
    disk.mkdir()
    config.write_text(SWING.replace("duration: 0.9", "duration: 20"))
    assert run_process("run", config, "--out", tmp_path / "whole").wait() == 0
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        process = run_process("run", config, "--out", disk / "runs", stderr=subprocess.PIPE)
        _wait_for_blocks(process, disk / "runs")
        with contextlib.suppress(OSError), open(disk / "filler", "wb") as filler:
            while True:
                filler.write(bytes(4096))
                filler.flush()
        _, err = process.communicate()
        folder = only(disk / "runs")
        assert process.returncode == 1, err
        assert b"the disk is full" in err
        assert f"jaxdae run --resume {folder} continues it".encode() in b" ".join(err.split())
        (disk / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for arguments in (("run", config, "--out", disk / "other"), ("run", "--resume", folder)):
            process = run_process(*arguments, stderr=subprocess.PIPE)
            _, err = process.communicate()
            assert process.returncode in (1, 2)
            assert b"read-only" in err.lower()
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert run_process("run", "--resume", folder).wait() == 0
        assert_equal(folder, only(tmp_path / "whole"))
    finally:
        subprocess.run(["umount", disk], check=True)


def test_processes_that_do_not_find_each_other(monkeypatch):
    port = _free_port()
    for options, told in (
        ((None, None, None), "got neither options nor the environment of SLURM or Open MPI, expected --coordinator"),
        ((f"localhost:{port}", 2, None), "got no --process, expected"),
        (("localhost", 2, 0), "--coordinator: got 'localhost', expected HOST:PORT"),
        ((f"localhost:{port}", 2, 2), "--process: got 2 of 2 processes, expected 0 to 1"),
        ((f"localhost:{port}", 2, 1), "where nobody answered for 0.3 s"),
    ):
        with pytest.raises(Refused, match=re.escape(told)):
            hosts.join(*options, seconds=0.3)
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        with pytest.raises(Refused, match="a port that process 0 cannot open"):
            hosts.join(f"localhost:{port}", 2, 0)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(Refused, match="no task of it, expected a start by srun"):
        hosts.join(None, None, None)
    monkeypatch.setenv("SLURM_PROCID", "1")
    for nodes, host in (("localhost", "localhost"), ("node[001-015],host2", "node001"), ("node[3,7-9]", "node3"), ("a7,b8", "a7")):
        monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
        assert hosts._slurm() == (host, 61457, 1)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "localhost")
    with pytest.raises(Refused, match=re.escape("--coordinator: got localhost:61457, where nobody answered for 0.3 s")):
        hosts.join(None, None, None, seconds=0.3)
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    with pytest.raises(Refused, match="as releases from 5 on, expected --coordinator"):
        hosts.join(None, None, None)
    for address, host in (("tcp://10.96.0.1,10.148.0.1:34911", "10.96.0.1"), ("tcp6://[fe80::b9b,2620:10d::1]:43370", "fe80::b9b")):
        monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", f"1531576320.0;{address}")
        assert hosts._open_mpi() == (host, 61440 + 1531576320 // 4096 % 4096, 1)


def _free_port():
    with socket.socket() as trial:
        trial.bind(("localhost", 0))
        return trial.getsockname()[1]


def _wait_for_blocks(process, out):
    """Waits until a process has written the metrics of a block."""
    before = {file: file.stat().st_size for file in out.glob("*/metrics.jsonl")}
    while process.poll() is None and not any(file.stat().st_size > before.get(file, 0) for file in out.glob("*/metrics.jsonl")):
        time.sleep(0.01)


def run_process(*arguments, stderr=subprocess.DEVNULL):
    root = pathlib.Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    words = [sys.executable, "-c", MAIN, *map(str, arguments)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=stderr)
