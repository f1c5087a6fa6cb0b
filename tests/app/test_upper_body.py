"""The experiment `upper_body`: goals are reached while they are on, hinges hold, and wrong settings are
named.
"""

import importlib.util
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("upper_body", ROOT / "experiments" / "upper_body.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(experiment, monkeypatch, out, *changes):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        sys,
        "argv",
        ["upper_body.py", "--out", str(out), *(x for change in changes for x in ("--set", change))],
    )
    return experiment.main()


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path, capsys):
    """Half a second, with two goals that come on at once."""
    goals = (
        "[{hand: left, place: [-0.5, 0.3], on: 0.0, off: 0.4}, {hand: right, place: [0.6, 0.2], on: "
        "0.1, off: 0.5}]"
    )
    short = (
        "duration=0.5",
        "dt=2e-3",
        "save_every=25",
        "experiment.reach_time=0.05",
        "experiment.strength=50.0",
    )
    assert run(experiment, monkeypatch, tmp_path, *short, f"experiment.goals={goals}") == 0
    (folder,) = tmp_path.iterdir()
    files = {
        "config.yaml",
        "upper_body.png",
        "upper_body.zarr",
        "upper_body_hard.gif",
        "upper_body_soft.gif",
        "report.md",
        "run.json",
    }
    assert {path.name for path in folder.iterdir()} == files
    rows = {
        (row["world"], row["goal"]): row
        for row in json.loads((folder / "run.json").read_text())["upper_body"]
    }
    assert rows["hard", "left 0"]["on, s"] == "0 to 0.4"
    assert rows["other times", "left 0"]["on, s"] == "0.1 to 0.5"
    # 0.4 m fall by e every 0.05 s: exp(-8), up to the error of steps.
    assert float(rows["hard", "left 0"]["distance at the end, mm"]) < 1.0
    assert 1.0 < float(rows["soft", "left 0"]["distance at the end, mm"]) < 400.0
    # Limited in both directions: no more than sqrt(2) times as much in all.
    assert float(rows["too far", "right 1"]["largest force at an entry, N"]) <= 71
    assert float(rows["too far", "right 1"]["distance at the end, mm"]) > 100.0
    assert "Hinges" in (folder / "report.md").read_text()
    assert str(folder) in capsys.readouterr().out


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        (
            "experiment.goals=[{hand: left, place: [0.0, 0.0], on: 1.0, off: 0.5}]",
            "each must end after it begins, and the left hand",
        ),
        (
            "experiment.too_far={goal: 9, place: [1.0, 1.0]}",
            "too_far.goal: there are 4 goals, counted from 0",
        ),
        ("experiment.stiffness=-1.0", "experiment.stiffness: Input should be greater than 0"),
    ):
        assert run(experiment, monkeypatch, tmp_path, change) == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
