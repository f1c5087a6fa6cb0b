"""Runs in real processes: killed, on disks that fill up, and several at once; the finished store equals that
of the run that nothing interrupted."""

import contextlib
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import jax
import pytest
from forked import Command
from small_runs import SWING, assert_equal, only

from jaxdae.app.config.problems import Failed, Refused
from jaxdae.app.jobs import hosts
from jaxdae.app.runs import run_folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for the programs that all processes here compile."""
    return tmp_path_factory.mktemp("cache")


# The least that leaves something to go on from: states, and a work integral that reaches over blocks.
SPINNING = """
name: spinning
mechanism:
  bodies: [{name: rod, mass: 1.0, inertia: 0.08, pose: [0.5, 0, 0], free: true}]
  forces: [{type: torsional_spring, name: spring, a: ground, b: rod, stiffness: 2, damping: 0.01}]
start: {velocities: {rod.theta: 1}}
duration: 0.9
dt: 0.01
save_every: 2
integrator: {type: semi_implicit_euler, projection: none}
batch: {size: 100, vary: [{path: bodies.rod.inertia, scatter: 0.1}]}
output: {plots: false}
"""


def made(place, duration, cache, text=SWING):
    """Returns a config of so many seconds, and the folder of its run that nothing interrupted."""
    config = place / "small.yaml"
    config.write_text(text.replace("duration: 0.9", f"duration: {duration}"))
    assert Command("run", config, "--out", place / "whole", cache=cache).wait() == 0
    return config, only(place / "whole")


@pytest.mark.exhaustive
def test_processes_that_are_killed(tmp_path, cache):
    """Killed ten times at random instants, by SIGKILL and SIGTERM, and continued; a run that ends
    meanwhile is begun anew.
    """
    config, whole = made(tmp_path, 30, cache, SPINNING)
    chance, out, kills, complete = random.Random(0), tmp_path / "0", 0, False
    while kills < 10 or not complete:
        arguments = (
            ["run", "--resume", only(out)] if out.exists() and not complete else ["run", config, "--out", out]
        )
        process = Command(*arguments, cache=cache, seconds=0.01)
        if kills < 10:
            _wait_for_blocks(process, out)
            time.sleep(0.1 * chance.random())
            process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        code = process.wait()
        complete = run_folder.read_record(only(out))["complete"]
        # SIGTERM after the end of the command, while Python ends, is no longer answered.
        assert code in (-signal.SIGKILL, -signal.SIGTERM, 143, *([0] if complete else []))
        if complete:
            if code == -signal.SIGKILL:  # Its last act is to remove the folder of parts.
                shutil.rmtree(only(out) / "parts", ignore_errors=True)
            assert_equal(only(out), whole)
            out = tmp_path / str(kills)
        else:
            kills += 1


@pytest.mark.long
def test_processes_that_know_each_other(tmp_path, cache):
    """Simulates by three processes, among which the worlds do not divide, that JAX's runtime connects over the
    loopback interface.
    """
    count = 3
    config, whole = made(tmp_path, 0.9, cache)
    options = ["--distributed", "--coordinator", f"localhost:{_free_port()}", "--processes", count]
    arguments = ["run", config, "--out", tmp_path / "shared", *options]
    processes = [Command(*arguments, "--process", index, cache=cache) for index in range(count)]
    assert [process.wait() for process in processes] == [0] * count
    assert_equal(only(tmp_path / "shared"), whole)


@pytest.mark.exhaustive
def test_a_disk_that_fills_up_and_one_that_is_read_only(tmp_path, cache):
    """A file system of 60 MB in memory, which another file fills on the way; needs the right to mount one."""
    disk, (config, whole) = tmp_path / "disk", made(tmp_path, 20, cache)
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", disk], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        errors = tmp_path / "errors"
        process = Command("run", config, "--out", disk / "runs", errors=errors, cache=cache)
        _wait_for_blocks(process, disk / "runs")
        with contextlib.suppress(OSError), open(disk / "filler", "wb") as filler:
            while True:
                filler.write(bytes(4096))
                filler.flush()
        code, err, folder = process.wait(), errors.read_text(), only(disk / "runs")
        assert code == 1, err
        assert "the disk is full" in err
        assert f"jaxdae run --resume {folder} continues it" in " ".join(err.split())
        (disk / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for arguments in (("run", config, "--out", disk / "other"), ("run", "--resume", folder)):
            assert Command(*arguments, errors=errors, cache=cache).wait() in (1, 2)
            assert "read-only" in errors.read_text().lower()
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert Command("run", "--resume", folder, cache=cache).wait() == 0
        assert_equal(folder, whole)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.exhaustive
def test_processes_that_count_differently(tmp_path, cache):
    config = tmp_path / "small.yaml"
    config.write_text(SWING)
    address = ("--coordinator", f"localhost:{_free_port()}")
    given = [
        (
            "run",
            config,
            "--out",
            tmp_path / "runs",
            "--distributed",
            *address,
            "--processes",
            2 + k,
            "--process",
            k,
        )
        for k in range(2)
    ]
    errors = [tmp_path / f"errors{k}" for k in range(2)]
    processes = [
        Command(*arguments, errors=file, cache=cache) for arguments, file in zip(given, errors, strict=True)
    ]
    assert [process.wait() for process in processes] == [2, 2]
    for file in errors:
        assert (
            "--processes: got 2 and 3 from different processes, expected the same number from all"
            in " ".join(file.read_text().split())
        )
    assert not (tmp_path / "runs").exists()


def test_processes_of_which_some_do_not_come(monkeypatch, capsys):
    def initialize(*given, **more):
        time.sleep(0.5)
        raise RuntimeError("nobody came")

    monkeypatch.setattr("jax.distributed.initialize", initialize)
    with pytest.raises(Refused, match="JAX could not connect the processes"):
        hosts.join(f"localhost:{_free_port()}", 2, 0, seconds=0.3)
    assert "processes are missing at localhost:" in capsys.readouterr().err


def test_a_process_that_ends_while_another_waits_for_it(monkeypatch):
    def lost(name):
        raise RuntimeError("Gloo AllGather failed: connection closed by peer")

    monkeypatch.setattr("jax.experimental.multihost_utils.sync_global_devices", lost)
    with pytest.raises(
        Failed, match="another process ended before this process; repeat the same command to continue"
    ):
        hosts.Hosts(0, 2).meet()


def test_processes_that_do_not_find_each_other(monkeypatch):
    port = _free_port()
    for options, told in (
        (
            (None, None, None),
            "got neither options nor the environment of SLURM or Open MPI, expected --coordinator",
        ),
        ((f"localhost:{port}", 2, None), "got no --process, expected"),
        (("localhost", 2, 0), "--coordinator: got 'localhost', expected HOST:PORT"),
        ((f"localhost:{port}", 2, 2), "--process: got 2 of 2 processes, expected 0 to 1"),
        ((f"localhost:{port}", 2, 1), "where process 0 did not answer for 0.3 s"),
    ):
        with pytest.raises(Refused, match=re.escape(told)):
            hosts.join(*options, seconds=0.3)
    with socket.socket() as taken:
        taken.bind(("", port))
        taken.listen()
        with pytest.raises(Refused, match="a port that process 0 cannot open"):
            hosts.join(f"localhost:{port}", 2, 0)
        told = r"where process 0 did not answer for 0.3 s \(the answer does not come from JAX\)"
        other = threading.Thread(target=_greet, args=(taken,))
        other.start()
        with pytest.raises(Refused, match=told):
            hosts.join(f"localhost:{taken.getsockname()[1]}", 2, 1, seconds=0.3)
        taken.shutdown(socket.SHUT_RDWR)
        other.join()
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(Refused, match="instead of a task, expected a start by srun"):
        hosts.join(None, None, None)
    monkeypatch.setenv("SLURM_PROCID", "1")
    for nodes, host in (
        ("localhost", "localhost"),
        ("node[001-015],host2", "node001"),
        ("node[3,7-9]", "node3"),
        ("a7,b8", "a7"),
    ):
        monkeypatch.setenv("SLURM_STEP_NODELIST", nodes)
        assert hosts._slurm() == (host, 61457, 1)
    monkeypatch.setenv("SLURM_STEP_NODELIST", "localhost")
    with pytest.raises(
        Refused,
        match=re.escape("--coordinator: got localhost:61457, where process 0 did not answer for 0.3 s"),
    ):
        hosts.join(None, None, None, seconds=0.3)
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    with pytest.raises(Refused, match=re.escape("(5 and later), expected --coordinator")):
        hosts.join(None, None, None)
    for address, host in (
        ("tcp://10.96.0.1,10.148.0.1:34911", "10.96.0.1"),
        ("tcp6://[fe80::b9b,2620:10d::1]:43370", "fe80::b9b"),
    ):
        monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", f"1531576320.0;{address}")
        assert hosts._open_mpi() == (host, 61440 + 1531576320 // 4096 % 4096, 1)


def test_process_0_listens_at_the_address_that_was_asked_for(monkeypatch, capsys):
    """Names of the host for its loopback address and addresses of no interface leave all interfaces; a note
    says so.
    """
    port = _free_port()
    given = []
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *arguments, **options: given.append((arguments[0], options))
    )
    monkeypatch.setattr(hosts, "_said_by_all", lambda number: {number})
    addresses = {"node17": "127.0.1.1", "other": "203.0.113.7"}
    found = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: found(addresses.get(host, host), *rest, **more)
    )
    for host, listening in (
        ("127.0.0.1", "127.0.0.1"),
        ("node17", None),
        ("other", None),
        ("203.0.113.7", None),
    ):
        hosts.join(f"{host}:{port}", 1, 0)
        address, options = given.pop()
        assert address == f"{host}:{port}"
        assert options["coordinator_bind_address"] == (listening and f"{listening}:{port}")
        assert ("process 0 listens on all interfaces" in capsys.readouterr().err) == (listening is None)
    hosts.join(f"localhost:{port}", 1, 0)
    assert given.pop()[1]["coordinator_bind_address"] in (f"127.0.0.1:{port}", f"[::1]:{port}")
    if socket.has_ipv6:
        hosts.join(f"[::1]:{port}", 1, 0)
        assert given.pop()[1]["coordinator_bind_address"] in (f"[::1]:{port}", None)
    for text in ("::1:80", "[::1]", "[::1:80", ":80", "host:0", "host:65536"):
        expected = f"--coordinator: got {text!r}, expected HOST:PORT, such as node17:12345 or [::1]:12345"
        with pytest.raises(Refused, match=re.escape(expected)):
            hosts.join(text, 1, 0)


def _greet(taken):
    """Answers as a program of another kind until its socket is shut."""
    with contextlib.suppress(OSError):
        while True:
            with taken.accept()[0] as asking:
                asking.recv(64)
                asking.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")


def _free_port():
    with socket.socket() as trial:
        trial.bind(("localhost", 0))
        return trial.getsockname()[1]


def _wait_for_blocks(process, out):
    """Waits until a process has written the metrics of a block."""
    before = {file: file.stat().st_size for file in out.glob("*/metrics.jsonl")}
    while process.poll() is None and not any(
        file.stat().st_size > before.get(file, 0) for file in out.glob("*/metrics.jsonl")
    ):
        time.sleep(0.01)
