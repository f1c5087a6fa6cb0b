"""`jaxdae tune` and `optimize` whose worlds are divided among processes: the same numbers, to the rounding of
a sum.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import typer.testing
from all_cases import all_cases

from jaxdae.app.cli import app
from jaxdae.app.jobs import hosts

ROOT = pathlib.Path(__file__).parents[2]
# Five worlds, which do not divide among two or three processes.
BATCH = (
    "--set",
    "batch.size=5",
    "--set",
    "batch.vary=[{path: bodies.arm.mass, scatter: 0.1}]",
    "--set",
    "output.plots=false",
)


def started(*arguments):
    words = [sys.executable, "-c", "from jaxdae.app.cli import main; main()", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finished(count, *arguments):
    """Runs a command in several processes that know each other, or in one."""
    with socket.socket() as trial:
        trial.bind(("localhost", 0))
        port = trial.getsockname()[1]
    shared = ("--distributed", "--coordinator", f"localhost:{port}", "--processes", count)
    each = [(*arguments, *shared, "--process", index) for index in range(count)] if count > 1 else [arguments]
    processes = [started(*one) for one in each]
    told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count, told
    return told


def losses(out):
    (folder,) = out.iterdir()
    assert json.loads((folder / "run.json").read_text())["complete"]
    return folder, np.genfromtxt(folder / "history.csv", delimiter=",", names=True)["loss"]


def fitted(count, command, iterations, out):
    given = ("--set", f"{command}.iterations={iterations}", "--set", f"{command}.optimizer.schedule=constant")
    return finished(count, command, ROOT / "configs" / "arm.yaml", *BATCH, *given, "--out", out)


@pytest.mark.exhaustive
def test_optimize_divides_its_worlds_among_processes(tmp_path):
    fitted(1, "optimize", 3, tmp_path / "alone")
    told = fitted(2, "optimize", 3, tmp_path / "two")
    assert "run folder" in told[0]
    assert "run folder" not in told[1]
    alone, two = (losses(tmp_path / name)[1] for name in ("alone", "two"))
    assert np.ptp(alone) > 0.01
    # Sums of five numbers in another order, and what three steps make of it.
    np.testing.assert_allclose(two, alone, rtol=1e-12)


@pytest.mark.exhaustive
def test_another_number_of_processes_continues_a_fit(tmp_path):
    fitted(1, "tune", 6, tmp_path / "alone")
    fitted(2, "tune", 4, tmp_path / "shared")
    folder, _ = losses(tmp_path / "shared")
    finished(1, "tune", "--resume", folder, "--set", "tune.iterations=6")
    alone, shared = (losses(tmp_path / name)[1] for name in ("alone", "shared"))
    assert shared.shape == (6,)
    np.testing.assert_allclose(shared, alone, rtol=1e-12)


@all_cases(
    ("arguments", "told"),
    [
        (("tune", "arm.yaml"), "tune --distributed: got one world, expected several worlds to divide"),
        (("tune", "arm.yaml", "--set", "dt=soon"), "got the text 'soon'"),
        (("optimize", "crank_rocker.yaml", *BATCH[:2]), "got no section optimize, expected one"),
        (
            ("tune", "--resume", "arm.yaml"),
            "arm.yaml: got no such folder, expected the folder of a run of jaxdae tune",
        ),
        (("tune",), "tune: got neither, expected a CONFIG or --resume RUN"),
        (("run", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_is_wrong_is_told_before_processes_are_connected(tmp_path, monkeypatch, arguments, told):
    def join(*given):
        raise AssertionError("connected")

    monkeypatch.setattr(hosts, "join", join)
    monkeypatch.chdir(ROOT / "configs")
    shared = ("--distributed", "--coordinator", "localhost:1", "--processes", "2", "--process", "0")
    folder = () if "--resume" in arguments else ("--out", str(tmp_path))
    result = typer.testing.CliRunner().invoke(app, [*arguments, *folder, *shared])
    assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
    assert not list(tmp_path.iterdir())
