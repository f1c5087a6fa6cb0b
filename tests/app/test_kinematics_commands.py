"""The command `jaxdae map`: its arrays and pictures against closed forms, and mistakes in its section."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import yaml
from small_runs import command, only

from jaxdae import Status
from jaxdae.app.config.config_source import Document
from jaxdae.app.config.schema import Config
from jaxdae.app.model.crosscheck import crosscheck
from jaxdae.app.workspace_report import TITLES, figure

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
FIVE_BAR: Any = Document("five_bar", (CONFIGS / "five_bar_workspace.yaml").read_text()).data


def found(section, **changes):
    """Returns the problems of the five-bar with a changed section, by path: what was found and the remedy."""
    data = FIVE_BAR | {section: FIVE_BAR[section] | changes}
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
