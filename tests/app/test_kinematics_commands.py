"""The commands `jaxdae map` and `jaxdae calibrate`: results against closed forms, and mistakes in sections and logs."""

import functools
import json
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from small_runs import command, only

from jaxdae import Status, rotation
from jaxdae.app import calibration_report
from jaxdae.app.calibration_report import names
from jaxdae.app.config.config_source import Document
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_kinematics import Measured
from jaxdae.app.model.crosscheck import crosscheck
from jaxdae.app.workspace_report import TITLES, figure

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
FIVE_BAR: Any = Document("five_bar", (CONFIGS / "five_bar_workspace.yaml").read_text()).data
CALIBRATED: Any = Document("five_bar", (CONFIGS / "five_bar_calibration.yaml").read_text()).data


def found(section, **changes):
    """Returns the problems of the five-bar with a changed section, by path: what was found and the remedy."""
    whole = FIVE_BAR if section == "map" else CALIBRATED
    data = whole | {section: whole[section] | changes}
    document = Document("five_bar", yaml.safe_dump(data))
    return {problem.path: (problem.got, problem.remedy) for problem in crosscheck(document)}


def test_names_and_dimensions_of_a_map_are_checked():
    assert not found("map")
    assert not found("map", theta=0.3, x=-0.1)
    problems = found(
        "map",
        body="left_lin",
        point=[0.1, 0.0, 0.0],
        z=0.1,
        rpy=[0.0, 0.0, 0.0],
        actuated=["left.theta", "left.theta", "rigt.theta"],
        quantities=["type1", "margin"],
    )
    assert problems == {
        "map.body": ("the unknown body 'left_lin'", "did you mean 'left_link'?"),
        "map.point": ("a list of 3", "give a point in m"),
        "map.actuated.1": ("'left.theta' a second time", "remove it"),
        "map.actuated.2": ("the unknown coordinate 'rigt.theta'", "did you mean 'right.theta'?"),
        "map.z": ("z in the plane", "remove z"),
        "map.rpy": ("rpy in the plane", "remove rpy"),
        "map.quantities.1": ("margin without joint limits", "add limits to a joint"),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": 0.1}, "fewer than two axes with several cells"),
        ({"x": {"lower": 0.1, "upper": -0.1, "cells": 3}}, "lower 0.1 and upper -0.1"),
        ({"x": {"lower": 0.0, "upper": 0.1, "cells": 100_000}}, "1.2e+07 poses"),
    ],
)
def test_grids_without_area_or_end_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        Config.model_validate(FIVE_BAR | {"map": FIVE_BAR["map"] | changes})


def test_maps_over_three_axes_have_slices():
    axis = {"lower": -0.4, "upper": 0.4, "cells": 8}
    section = FIVE_BAR["map"] | {"x": axis, "y": 0.1, "z": axis}
    config = Config.model_validate(FIVE_BAR | {"map": section})
    assert config.map is not None
    arrays = {name: each.centers for name, each in config.map.axes.items()}
    values = np.arange(64.0).reshape(8, 1, 8)
    arrays |= {"reachable": values != 5.0, "type1": values}
    (panel, scale) = figure(config, arrays, "type1", None).axes
    assert (panel.get_xlabel(), panel.get_ylabel(), scale.get_ylabel()) == ("x in m", "z in m", "")
    mesh = panel.collections[0].get_array()
    np.testing.assert_array_equal(mesh.filled(np.nan), np.where(values == 5.0, np.nan, values)[:, 0].T)
    cube = Config.model_validate(FIVE_BAR | {"map": section | {"y": axis}})
    values = np.arange(512.0).reshape(8, 8, 8)
    drawn = figure(
        cube, arrays | {"y": arrays["x"], "reachable": values >= 0.0, "type1": values}, "type1", None
    )
    titles = [panel.get_title(loc="left") for panel in drawn.axes[:-1]]
    assert titles == [f"z = {arrays['z'][k]:.4g} m" for k in (0, 1, 3, 4, 6, 7)]
    assert drawn.axes[-1].get_ylabel() == TITLES["type1"]


@pytest.mark.long
def test_a_map_of_a_five_bar(tmp_path):
    """Each leg reaches a ring about its motor."""
    config = CONFIGS / "five_bar_workspace.yaml"
    changes = ("map.x.cells=21", "map.y.cells=20", "map.quantities=[type2, smallest_singular_value]")
    code, out, _ = command(
        "map", config, "--out", tmp_path, *(word for change in changes for word in ("--set", change))
    )
    assert code == 0
    folder = only(tmp_path)
    files = {"config.yaml", "map.npz", "report.md", "run.json", "smallest_singular_value.png", "type2.png"}
    assert {path.name for path in folder.iterdir()} == files
    with np.load(folder / "map.npz") as arrays:
        x, y, reachable, status = (arrays[name] for name in ("x", "y", "reachable", "status"))
        least = arrays["smallest_singular_value"]
    np.testing.assert_allclose(x, -0.36 + 0.82 / 21 * (np.arange(21) + 0.5), rtol=1e-14)
    away = np.hypot(x[:, None] - np.array([0.0, 0.1])[:, None, None], y)
    np.testing.assert_array_equal(reachable, np.all((away < 0.4) & (away > 0.1), axis=0))
    np.testing.assert_array_equal(reachable, status == Status.OK)
    area, count = 0.82 / 21 * 0.82 / 20 * reachable.sum(), np.sum(status == Status.UNREACHABLE)
    assert f"left_link reaches {reachable.sum()} of 420 poses: area {area:.5g} m^2." in out
    assert f"UNREACHABLE {count} ({count / 420:.1%})" in out
    record = json.loads((folder / "run.json").read_text())
    assert record["complete"]
    assert record["table"][1]["smallest"] == f"{least[reachable].min():.4g}"
    first = np.argwhere(least == least[reachable].min())[0]
    assert record["table"][1]["at (x, y) in m"] == f"({x[first[0]]:.4g}, {y[first[1]]:.4g})"


def test_a_config_without_the_section_is_rejected(tmp_path):
    body = {"name": "rod", "mass": 1.0, "inertia": 0.1, "pose": [0.0, 0.0, 0.0], "free": True}
    data = {"name": "free", "mechanism": {"bodies": [body]}, "duration": 1.0, "dt": 0.1}
    (tmp_path / "free.yaml").write_text(yaml.safe_dump(data))
    code, _, error = command("map", tmp_path / "free.yaml", "--out", tmp_path / "runs")
    assert code == 2
    assert "got no section map, expected one" in error
    assert only(tmp_path).name == "free.yaml"


def test_names_and_paths_of_a_calibration_are_checked():
    frame = {"name": "tip", "body": "rod1", "position_std": 1.0}
    assert not found("calibrate", parameters=["joints.tip.point_a", "joints.tip.point_b.y"])
    problems = found(
        "calibrate",
        actuated=["motor1", "motr2.angle"],
        measured=[frame, frame | {"body": "rod3", "point": [0.0, 0.0, 0.0]}],
        parameters=[
            "joints.elbow1.point_a",
            "joints.elbow1.point_a",
            "joints.tip.damping",
            "bodies.rod1.mass",
        ],
        offsets=["motor2"],
    )
    assert {path: got for path, (got, _) in problems.items()} == {
        "calibrate.actuated.1": "the unknown coordinate 'motr2.angle'",
        "calibrate.measured.1.body": "the unknown body 'rod3'",
        "calibrate.measured.1.point": "a list of 3",
        "calibrate.measured.1.name": "'tip' a second time",
        "calibrate.parameters.1": "'joints.elbow1.point_a' a second time",
        "calibrate.parameters.2": "'joints.tip.damping' without efforts",
        "calibrate.parameters.3": "'bodies.rod1.mass' without efforts",
        "calibrate.offsets.0": "'motor2'",
    }


def test_parameters_of_efforts_are_checked():
    acting = ["bodies.rod1.center.x", "bodies.rod1.inertia", "joints.elbow1.damping", "gravity.y"]
    assert not found("calibrate", effort_std=0.1, parameters=[*acting, "joints.elbow1.point_a"])
    wrong = ["bodies.rod9.mass", "joints.elbow1.limits", "joints.elbow1.dry_friction"]
    problems = found("calibrate", effort_std=0.1, parameters=[*wrong, "bodies.rod1.mass"])
    assert {path: got for path, (got, _) in problems.items()} == {
        f"calibrate.parameters.{k}": f"the unknown path {path!r}" for k, path in enumerate(wrong)
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": [], "offsets": []}, "no unknowns"),
        ({"measured": [{"name": "tip", "body": "rod1"}]}, "no standard deviation"),
        ({"measured": []}, "no measurements"),
        ({"effort_std": [0.1]}, "1 values of effort_std"),
    ],
)
def test_calibrations_without_unknowns_or_measurements_are_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        Config.model_validate(CALIBRATED | {"calibrate": CALIBRATED["calibrate"] | changes})


def test_columns_of_measured_frames():
    frame = Measured(name="tip", body="rod1", position_std=1.0, orientation_std=0.1)
    assert names(frame, plane=True) == ["tip.x", "tip.y", "tip.theta"]
    expected = ["tip.x", "tip.y", "tip.z", "tip.qw", "tip.qx", "tip.qy", "tip.qz"]
    assert names(frame, plane=False) == expected
    turned = Measured(name="tip", body="rod1", orientation_std=0.1)
    assert names(turned, plane=False) == expected[3:]


@pytest.mark.parametrize("plane", [True, False])
def test_measured_frames_become_targets(monkeypatch, plane):
    """Measured orientations have one number in the plane, and four numbers with three residuals in space."""
    frames = [
        {"name": "both", "body": "rod1", "position_std": 1e-4, "orientation_std": 1e-3},
        {"name": "turned", "body": "rod2", "orientation_std": 2e-3},
    ]
    section = Config.model_validate(
        CALIBRATED | {"calibrate": CALIBRATED["calibrate"] | {"measured": frames}}
    ).calibrate
    assert section is not None
    order = [*section.actuated, *(name for frame in section.measured for name in names(frame, plane))]
    columns = {name: np.array([k, k + 0.5]) for k, name in enumerate(order)}
    monkeypatch.setattr(
        calibration_report.kinematics, "calibrate", lambda *given, **options: (given, options)
    )
    given, options = calibration_report.fitted(None, section, columns, None, None, plane)
    both, turned = given[2]
    size, turn = (2, 1) if plane else (3, 4)
    table = np.stack([columns[name] for name in order[2:]], axis=1)
    np.testing.assert_array_equal(both.position, table[:, :size])
    np.testing.assert_array_equal(both.orientation, table[:, size] if plane else table[:, size : size + 4])
    np.testing.assert_array_equal(turned.orientation, table[:, -1] if plane else table[:, -turn:])
    assert turned.position is None
    rows = 1 if plane else 3
    assert options["standard_deviation"].tolist() == [1e-4] * size + [1e-3] * rows + [2e-3] * rows


def test_logged_efforts_become_a_measurement(monkeypatch):
    """Standard deviations are in the order of the config, and in alphabetical order in the library."""
    changes = {"actuated": ["motor2", "motor1"], "measured": [], "effort_std": [0.2, 0.1]}
    section = Config.model_validate(CALIBRATED | {"calibrate": CALIBRATED["calibrate"] | changes}).calibrate
    assert section is not None
    groups = calibration_report.effort_names(section)
    order = [*section.actuated, *(name for group in groups.values() for name in group.values())]
    assert order[2:4] == ["motor2.rate", "motor1.rate"]
    assert order[-1] == "motor1.effort"
    columns = {name: np.array([k, k + 0.5]) for k, name in enumerate(order)}
    monkeypatch.setattr(
        calibration_report.kinematics, "calibrate", lambda *given, **options: (given, options)
    )
    given, options = calibration_report.fitted(None, section, columns, None, None, True)
    (log,) = given[2]
    np.testing.assert_array_equal(log.rates["motor2"], columns["motor2.rate"])
    np.testing.assert_array_equal(log.accelerations["motor1"], columns["motor1.acceleration"])
    np.testing.assert_array_equal(log.efforts["motor1"], columns["motor1.effort"])
    assert options["standard_deviation"].tolist() == [0.1, 0.2]


@pytest.mark.exhaustive
def test_a_calibration_of_an_arm_with_motor_efforts(tmp_path):
    config, log = (CONFIGS / f"arm_calibration.{ending}" for ending in ("yaml", "csv"))
    code, out, _ = command("calibrate", config, log, "--out", tmp_path)
    assert code == 0
    result = json.loads((only(tmp_path) / "calibration.json").read_text())
    truth = {"bodies.lower.mass": 0.5, "bodies.lower.inertia": 0.015}
    truth |= {"bodies.lower.center.x": 0.05, "bodies.lower.center.y": 0.01}
    truth |= {"joints.shoulder.damping": -0.05, "joints.shoulder.friction": 0.1}
    truth |= {"joints.elbow.damping": 0.02, "joints.elbow.friction": -0.1}
    entries = {entry["name"]: entry for entry in result["corrections"]}
    assert set(entries) == set(truth)
    for name, value in truth.items():
        assert entries[name]["lower"] < value < entries[name]["upper"]
    x, y = (entries[f"bodies.lower.center.{axis}"]["correction"] for axis in "xy")
    np.testing.assert_allclose(result["calibrated"]["joints.elbow.point_b"], [-0.15 - x, -y], rtol=1e-14)
    assert [pose["line"] for pose in result["poses"] if pose["outlier"]] == [12]
    # 80 and 20 residuals with a standard deviation of 1; three standard errors.
    assert abs(result["sigma"] - 1.0) < 3.0 / np.sqrt(2 * 72)
    assert abs(result["held_out_rms"] - 1.0) < 3.0 / np.sqrt(2 * 20)
    assert "8 of 8 combinations" in out


def test_calibrated_axes_are_written_as_in_a_config():
    quaternion = jnp.array([0.5, 0.1, -0.7, 0.5])
    axes = rotation.rotation_matrix(quaternion)
    value = functools.partial(calibration_report.config_value, "joints.hinge.axes_a")
    np.testing.assert_allclose(value(axes), quaternion, rtol=0, atol=1e-15)
    assert value(np.array([1.0, 2.0])) == [1.0, 2.0]
    assert value(np.array(3.0)) == 3.0
    assert calibration_report.config_value("bodies.arm.inertia", np.eye(3)) == np.eye(3).tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "motor1,tip.x\n1,2\n",
            "got no column motr2, expected motor1, motr2; did you mean 'motor1'?",
        ),
        ("motor1,motr2\n1,2\n1,nan\n", "got a number that is not finite in line 3"),
        ("motor1,motr2\n", "got no poses"),
        ("motor1,motr2\n1\n", "got another format"),
        ("motor1,motr2\n1,a\n", "got another format"),
        (None, "got a file that is not readable (No such file"),
    ],
)
def test_mistakes_in_a_log_are_named(tmp_path, text, message):
    file = tmp_path / "log.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Refused) as caught:
        calibration_report.read_log(file, ["motor1", "motr2"])
    assert message in str(caught.value)


@pytest.mark.exhaustive
def test_a_calibration_of_a_five_bar(tmp_path):
    """The intervals contain the dimensions behind the simulated log, and the y of points is not identifiable."""
    config, log = (CONFIGS / f"five_bar_calibration.{ending}" for ending in ("yaml", "csv"))
    points = "elbow1.point_a", "elbow1.point_b.x", "elbow2.point_a.x", "elbow2.point_b"
    changed = f"calibrate.parameters=[{', '.join(f'joints.{point}' for point in points)}]"
    code, out, _ = command("calibrate", config, log, "--out", tmp_path, "--set", changed)
    assert code == 0
    folder = only(tmp_path)
    assert {path.name for path in folder.iterdir()} == {
        "calibration.json",
        "config.yaml",
        "report.md",
        "run.json",
    }
    result = json.loads((folder / "calibration.json").read_text())
    assert result["status"] == "OK"
    entries = {entry["name"]: entry for entry in result["corrections"]}
    truth = {
        "joints.elbow1.point_b.x": -0.0006,
        "joints.elbow2.point_a.x": -0.0003,
        "joints.elbow2.point_b.x": 0.0005,
        "offsets.motor2": -0.02,
    }
    known = {name for name, entry in entries.items() if entry["standard_error"] is not None}
    assert known == {*truth, "joints.elbow1.point_a.x"}
    for name, value in truth.items():
        assert entries[name]["lower"] < value < entries[name]["upper"]
    x, y = (entries[f"joints.elbow1.point_a.{axis}"]["correction"] for axis in "xy")
    np.testing.assert_allclose(result["calibrated"]["joints.elbow1.point_a"], [0.125 + x, y], rtol=1e-14)
    assert result["free_combinations"] == [
        {"names": ["joints.elbow1.point_a.y", "offsets.motor1"], "count": 1},
        {"names": ["joints.elbow2.point_b.y"], "count": 1},
    ]
    assert [pose["line"] for pose in result["poses"] if pose["outlier"]] == [9]
    assert sum(pose["held_out"] for pose in result["poses"]) == 10
    # Of 60 and 20 residuals with a standard deviation of 1; three standard errors.
    assert abs(result["sigma"] - 1.0) < 3.0 / np.sqrt(2 * 53)
    assert abs(result["held_out_rms"] - 1.0) < 3.0 / np.sqrt(2 * 20)
    assert "Without effect on the measurements: joints.elbow2.point_b.y." in out
    assert "Lines with outliers in five_bar_calibration.csv: 9." in out

    header, *rows = log.read_text().splitlines()
    degrees = [",".join(str(57.3 * float(word)) for word in row.split(",")) for row in rows]
    (tmp_path / "degrees.csv").write_text("\n".join([header, *degrees]))
    failed = command(
        "calibrate", config, tmp_path / "degrees.csv", "--out", tmp_path / "runs", "--set", changed
    )
    assert failed[0] == 1
    assert "got no pose that the mechanism reaches from its start" in failed[2]
    assert not list((tmp_path / "runs").iterdir())


def test_an_example_with_a_log_is_copied_whole(tmp_path):
    code, out, _ = command("example", "five_bar_calibration", "--copy", tmp_path)
    assert code == 0
    assert {pathlib.Path(line).name for line in out.splitlines()} == {
        path.name for path in tmp_path.iterdir()
    }
    assert (tmp_path / "five_bar_calibration.csv").is_file()
