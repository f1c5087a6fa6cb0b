"""The command from its entry point: exit codes, messages, what it writes and what it leaves alone."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from jaxdae import Status
from jaxdae.app.cli import main

PENDULUM = """
name: pendulum
description: A rod on a hinge.
mechanism:
  bodies:
    - {name: rod, mass: 1.0, inertia: 0.08, pose: [0.5, 0, 0]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: rod, at: [0, 0], damping: 0.1}
integrator: {type: heun, projection: {metric: euclidean, iterations: 2}}
duration: 0.4
dt: 0.01
save_every: 2
batch:
  size: 3
  seed: 7
  vary:
    - {path: bodies.rod.mass, scatter: 0.1}
    - {path: start.velocities.rod.theta, distribution: uniform, low: -1, high: 1}
"""


def jaxdae(monkeypatch, capsys, *arguments):
    """Returns exit code, standard output and standard error of the command."""
    monkeypatch.setattr(sys, "argv", ["jaxdae", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def command(monkeypatch, capsys):
    return lambda *arguments: jaxdae(monkeypatch, capsys, *arguments)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "pendulum.yaml"
    file.write_text(PENDULUM)
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, its folder and what the command printed on a pipe; from a process of its own."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "pendulum.yaml").write_text(PENDULUM)
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from jaxdae.app.cli import main; main()",
            "run",
            "pendulum.yaml",
            "--set",
            "dt=0.005",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
            "PATH": "/usr/bin:/bin",
            "XLA_FLAGS": os.environ["XLA_FLAGS"],
        },
    )
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "runs").iterdir()
    return made, done


def test_a_run_folder_holds_everything(run):
    folder, _ = run
    assert folder.name.startswith("pendulum-20")
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml",
        "metrics.jsonl",
        "plots",
        "report.md",
        "results.zarr",
        "run.json",
    }
    plots = {file.name: file.stat().st_size for file in (folder / "plots").iterdir()}
    assert set(plots) == {"positions.png", "violation.png", "energy.png", "overlay.png"}
    assert min(plots.values()) > 10_000
    report = (folder / "report.md").read_text()
    assert "# pendulum" in report
    assert "3 OK" in report
    assert "plots/overlay.png" in report


def test_the_record_says_how_the_numbers_came_about(run):
    record = json.loads((run[0] / "run.json").read_text())
    environment = record["environment"]
    assert {"python", "jax", "jaxlib", "jaxdae", "numpy"} <= set(environment["versions"])
    assert environment["hardware"]["cores"] >= 1
    assert (record["seed"], record["precision"], record["source"]) == (7, "float64", "pendulum.yaml")
    assert record["config"]["dt"] == 0.005
    assert record["results"]["status"] == {"OK": 3}
    assert record["timing"]["worlds_per_s"] > 0
    assert record["finished"]


def test_results_are_labelled(run):
    with xr.open_zarr(run[0] / "results.zarr", chunks=None) as data:
        assert dict(data.sizes) == {"world": 3, "time": 41, "coordinate": 3, "row": 2, "parameter": 2}
        assert data.coordinate.values.tolist() == ["rod.x", "rod.y", "rod.theta"]
        assert data.unit.values.tolist() == ["m", "m", "rad"]
        assert data.row.values.tolist() == ["hinge.x", "hinge.y"]
        np.testing.assert_allclose(data.time.values, np.linspace(0, 0.4, 41), rtol=0, atol=1e-12)
        assert data.q.dtype == np.float64
        # World 0 is the nominal one, and start values vary as asked.
        assert data.varied.sel(world=0).values.tolist() == [1.0, 0.0]
        np.testing.assert_allclose(
            data.v.sel(coordinate="rod.theta").isel(time=0), data.varied.isel(parameter=1), rtol=0, atol=1e-12
        )
        assert float(data.violation.max()) < 1e-12
        # The hinge damps: its work, integrated from the saved states, closes the balance. Heun's method
        # leaves an error of the order of (dt omega)^2 = 4e-4 relative, omega = 4/s; the work itself is about
        # 0.5 J.
        work = data.work.isel(time=-1).values
        energy = data.kinetic_energy + data.potential_energy
        assert np.all(work < -1e-3)
        np.testing.assert_allclose(
            (energy.isel(time=-1) - energy.isel(time=0)).values, work, rtol=0, atol=1e-3
        )


def test_a_pipe_gets_plain_lines(run):
    _, done = run
    assert "simulating 80 steps of 3 worlds" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert "run folder: runs" in done.stdout


@pytest.mark.exhaustive
def test_plot_redraws_a_run(run, command):
    folder, _ = run
    picture = folder / "plots" / "energy.png"
    picture.unlink()
    code, out, _ = command("plot", folder)
    assert (code, picture.exists()) == (0, True)
    assert "drawn into" in out


@pytest.mark.exhaustive
def test_the_resolved_config_runs_again(run, command):
    code, out, err = command("check", run[0] / "config.yaml")
    assert (code, err) == (0, "")
    assert "mobility                    1" in out
    assert "3 worlds, 80 steps" in out


@pytest.mark.exhaustive
def test_single_precision_and_runs_that_never_overwrite(config, tmp_path, command):
    out = tmp_path / "out"
    overrides = ("--set", "precision=float32", "--set", "batch.size=1", "--set", "output.plots=false")
    before = []
    for _ in range(2):
        code, _, err = command("run", config, "--out", out, *overrides)
        assert (code, err) == (0, "")
        made = sorted(out.iterdir())
        assert made[: len(before)] == before or set(before) < set(made)
        before = made
    assert len(before) == 2
    for folder in before:
        with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
            assert data.q.dtype == np.float32
            assert 0 < float(data.violation.max()) < 5e-6
        assert not (folder / "plots").exists()


def test_folders_made_in_the_same_second_get_numbers(tmp_path):
    import datetime

    from jaxdae.app.runs.run_folder import create

    now = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    names = [create(tmp_path, "a", now).name for _ in range(3)]
    assert names == ["a-20260102T030405Z", "a-20260102T030405Z-2", "a-20260102T030405Z-3"]


@pytest.mark.long
def test_a_failed_simulation_ends_with_1_and_keeps_what_there_is(config, tmp_path, command):
    out = tmp_path / "out"
    feedback = "stabilization={type: baumgarte, alpha: 1, beta: 1000}"
    vary = "batch.vary=[{path: stabilization.alpha, distribution: uniform, low: 1, high: 2}]"
    settings = (
        "integrator={type: explicit_euler, projection: none}",
        feedback,
        vary,
        "duration=4",
        "output.plots=false",
    )
    code, stdout, err = command("run", config, "--out", out, *(x for s in settings for x in ("--set", s)))
    assert code == 1
    assert "the simulation failed: UNSTABLE after t = 0 s" in err
    assert "in world " in err
    (folder,) = out.iterdir()
    assert "3 UNSTABLE" in stdout
    assert "**The simulation failed:**" in (folder / "report.md").read_text()
    with xr.open_zarr(folder / "results.zarr", chunks=None) as data:
        assert np.all(np.isfinite(data.q.values))
        assert np.all(data.status.values[:, -1] == Status.UNSTABLE)


@pytest.mark.parametrize("subcommand", ["run", "check"])
def test_mistakes_end_with_2_and_nothing_is_written(config, tmp_path, command, monkeypatch, subcommand):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(subcommand, config, "--set", "dt=0", "--set", "solver=shur")
    assert (code, out) == (2, "")
    assert "--set dt=0: dt: got 0" in err
    assert "--set solver=shur: solver: got the unknown type 'shur'" in err
    assert "2 problems in" in err
    assert "nothing was written" in err
    assert list(tmp_path.iterdir()) == [config]


LOOP = """
name: loop
mechanism:
  bodies:
    - {name: crank, mass: -1.0, inertia: 0.1, pose: [0.5, 0, 0]}
    - {name: rod, mass: 1.0, inertia: 0.1, pose: [1.5, 0, 0]}
  joints:
    - {type: revolute, name: A, a: ground, b: crank, point_a: [0, 0], point_b: [-0.5, 0]}
    - {type: revolute, name: B, a: crank, b: rod, point_a: [0.5, 0], point_b: [-0.5, 0]}
    - {type: revolute, name: C, a: ground, b: rod, point_a: [3, 0], point_b: [0.5, 0]}
duration: 1
dt: 0
"""


def test_a_loop_that_cannot_close_is_reported_with_all_the_rest(tmp_path, command):
    file = tmp_path / "loop.yaml"
    file.write_text(LOOP)
    code, _, err = command("run", file, "--out", tmp_path / "out")
    assert code == 2
    assert "loop.yaml:5: mechanism.bodies.crank.mass: got -1.0" in err
    assert "loop.yaml:12: dt: got 0" in err
    (line,) = (line for line in err.splitlines() if "loops that do not close" in line)
    assert "stay open at" in line
    assert "check lengths, places and start poses" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_velocities_that_the_joints_do_not_allow(config, command):
    code, _, err = command(
        "check", config, "--set", "start.velocities={rod.x: 1.0}", "--set", "batch.vary=[]"
    )
    assert code == 2
    assert "velocities that violate the joints" in err
    assert "start.velocities" in err


@pytest.mark.long
def test_redundant_joints_are_named(config, tmp_path, command):
    second = "mechanism.joints=[{type: revolute, name: hinge, a: ground, b: rod, at: [0, 0]},"
    second += " {type: revolute, name: twin, a: ground, b: rod, at: [0, 0]}]"
    code, out, _ = command("check", config, "--set", second, "--set", "batch.size=1")
    assert code == 0
    assert "twin.x, twin.y" in out


@pytest.mark.long
def test_a_run_of_what_cannot_move_says_so(config, tmp_path, command):
    held = "mechanism.joints=[{type: weld, name: hold, a: ground, b: rod, at: [0, 0]}]"
    code, _, err = command(
        "run", config, "--out", tmp_path, "--set", held, "--set", "batch={size: 1}", "--set", "duration=0.02"
    )
    assert code == 0
    assert "the mechanism cannot move at the start, because of hold" in err


def test_what_is_no_run_cannot_be_plotted(tmp_path, command):
    for folder, got in ((tmp_path, "a folder without"), (tmp_path / "nothing", "no such folder")):
        code, _, err = command("plot", folder)
        assert code == 2
        assert got in err


@pytest.mark.long
def test_out_must_be_a_folder(config, tmp_path, command):
    (tmp_path / "file").write_text("")
    code, _, err = command("run", config, "--out", tmp_path / "file", "--set", "batch.size=1")
    assert code == 2
    assert "--out: got" in err


def test_version_and_help(command):
    code, out, _ = command("--version")
    assert code == 0
    assert out.startswith("jaxdae ")
    code, out, _ = command("--help")
    assert code == 0
    for word in ("run", "check", "plot"):
        assert word in out


def test_shells_complete_the_command(command, monkeypatch):
    assert "--install-completion" in command("--help")[1]
    commands = "run merge status tune optimize check map calibrate example view plot export"
    for words, expected in (
        ("jaxdae ", commands),
        ("jaxdae opt", "optimize"),
        ("jaxdae tune --re", "--resume"),
    ):
        for name, value in (
            ("_JAXDAE_COMPLETE", "complete_bash"),
            ("COMP_WORDS", words),
            ("COMP_CWORD", str(words.count(" "))),
        ):
            monkeypatch.setenv(name, value)
        code, out, err = command()
        assert (code, out.split(), err) == (0, expected.split(), "")


@pytest.mark.parametrize(("release", "known"), [("0.9.2", 2), ("0.11.2", 0), ("0.12.0.1", 1)])
def test_flags_of_xla_are_added_where_jax_knows_them_and_the_user_said_nothing(monkeypatch, release, known):
    import importlib.metadata

    from jaxdae.app.xla_flags import EMITTERS, SCHEDULER, for_small_programs

    monkeypatch.setattr(importlib.metadata, "version", lambda package: release)
    flags = (SCHEDULER, EMITTERS)[:known]
    own = SCHEDULER.replace("false", "true") + " a_word_that_is_no_flag"
    for given, expected in (("", " ".join(flags)), (own, " ".join([*flags[1:], own]))):
        monkeypatch.setenv("XLA_FLAGS", given)
        for _ in range(2):
            for_small_programs()
            assert os.environ["XLA_FLAGS"] == expected
