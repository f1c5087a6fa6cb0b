"""The experiment `conditioning`: its exact reference, and a small run of it."""

import fractions
import importlib.util
import json
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("conditioning", ROOT / "experiments" / "conditioning.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_exact_solution_of_a_matrix_that_doubles_cannot_solve(experiment):
    # [1 1; 1 1 + u] with u the distance of 1 to the next double: the inverse is [1 + u, -1; -1, 1] / u.
    u = np.finfo(float).eps
    solution = experiment.exact_solution(np.array([[1.0, 1.0], [1.0, 1.0 + u]]), np.eye(2))
    over = fractions.Fraction(1) / fractions.Fraction(u)
    assert solution == [[over + 1, -over], [-over, over]]


def test_rows_are_exchanged_where_a_pivot_is_zero(experiment):
    solution = experiment.exact_solution(np.array([[0.0, 2.0], [0.5, 1.0]]), np.array([[4.0], [3.0]]))
    assert solution == [[2], [2]]


def test_digits(experiment):
    exact = [fractions.Fraction(1), fractions.Fraction(-8)]
    assert experiment.digits(np.array([1.0, -8.0]), exact) == experiment.MOST
    assert experiment.digits(np.array([1.0, -8.0 - 2.0**-30]), exact) == pytest.approx(
        33 * np.log10(2), rel=1e-12
    )
    assert experiment.digits(np.array([1.0, np.nan]), exact) == 0.0


@pytest.mark.exhaustive
def test_a_small_run(experiment, monkeypatch, tmp_path, capsys):
    # Two solvers and one family: the remark that the full system is better, for a light link.
    monkeypatch.chdir(ROOT)
    for name, kept in (("SOLVERS", ("DenseKKT", "SchurComplement")), ("FAMILIES", ("link",))):
        monkeypatch.setattr(experiment, name, {key: getattr(experiment, name)[key] for key in kept})
    monkeypatch.setattr(experiment, "MASSES", ("diagonal",))
    changes = ("experiment.count=2", "experiment.highest=1e6", "experiment.samples=2")
    monkeypatch.setattr(
        sys,
        "argv",
        ["conditioning.py", "--out", str(tmp_path), *(x for change in changes for x in ("--set", change))],
    )
    assert experiment.main() == 0
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml",
        "digits.png",
        "digits.zarr",
        "report.md",
        "run.json",
    }
    found = json.loads((folder / "run.json").read_text())
    light = {row["solver"]: row for row in found["digits"]}
    # The full matrix has a condition number of 12, the small one of 1e6.
    assert float(light["DenseKKT"]["a at 1e+06"]) > 14.0
    assert float(light["SchurComplement"]["a at 1e+06"]) < 12.0
    assert "the remark holds" in found["findings"][0]
    assert "the remark holds" in (folder / "report.md").read_text()
    assert str(folder) in capsys.readouterr().out


@pytest.mark.long
def test_mistakes_in_the_settings_are_named(experiment, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    for change, message in (
        ("experiment.count=1", "experiment.count: Input should be greater than or equal to 2, got 1"),
        ("experiment.light=couplet", "experiment.light: got couplet, expected one of crank, coupler, rocker"),
    ):
        monkeypatch.setattr(sys, "argv", ["conditioning.py", "--out", str(tmp_path), "--set", change])
        assert experiment.main() == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
