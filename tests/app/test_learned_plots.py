"""Plots of tune and optimize, units, the table of the history, and what a run can be continued with; nothing
here compiles.
"""

import csv

import numpy as np
import yaml
from all_cases import all_cases

from jaxdae import tuning
from jaxdae.app.config.schema import Config
from jaxdae.app.draw.plot_style import styled
from jaxdae.app.learn import fit_plots as plots
from jaxdae.app.model.crosscheck_tuning import target
from jaxdae.app.model.fit_history import History, read_table
from jaxdae.app.model.units import unit_of
from jaxdae.app.runs.continuation import refusal

LOSS = [{"type": "violation"}, {"type": "energy"}]
VALUES = {
    "name": "slide",
    "mechanism": {
        "bodies": [
            {"name": "cart", "mass": 1.0, "inertia": 0.1, "pose": [0, 0, 0]},
            {"name": "rod", "mass": 1.0, "inertia": 0.1, "pose": [0, -1, 0]},
        ],
        "joints": [
            {
                "type": "prismatic",
                "name": "rail",
                "a": "ground",
                "b": "cart",
                "axis": [1, 0],
                "at": [0, 0],
                "damping": 0.1,
            },
            {"type": "revolute", "name": "pin", "a": "cart", "b": "rod", "at": [0, 0]},
            {
                "type": "prescribed_motion",
                "name": "drive",
                "joint": "rail",
                "motion": {"type": "polynomial", "coefficients": [0, 1, 2]},
            },
        ],
        "forces": [
            {"type": "joint_force", "name": "push", "joint": "rail", "force": 2.0},
            {"type": "joint_force", "name": "turn", "joint": "pin", "force": 0.5},
            {"type": "torsional_spring", "name": "coil", "a": "cart", "b": "rod", "stiffness": 3.0},
        ],
    },
    "stabilization": {"type": "baumgarte", "alpha": 5.0, "beta": 5.0},
    "duration": 0.4,
    "dt": 0.1,
    "tune": {
        "parameters": [
            {"path": "forces.push.force", "lower": 1.0, "upper": 1000.0},
            {"path": "stabilization.alpha"},
        ],
        "loss": LOSS,
        "iterations": 5,
        "optimizer": {"schedule": "constant"},
    },
    "optimize": {
        "inputs": [{"force": "push", "lower": -8, "upper": 8}, {"force": "turn", "upper": 4}],
        "loss": LOSS,
    },
}
CONFIG = Config.model_validate(VALUES)
UNITS = {
    "gravity.y": "m/s^2",
    "bodies.rod.mass": "kg",
    "bodies.rod.inertia": "kg m^2",
    "bodies.rod.pose.x": "m",
    "bodies.rod.pose.theta": "rad",
    "joints.rail.damping": "N s/m",
    "joints.pin.damping": "N m s/rad",
    "joints.rail.axis.x": "",
    "joints.drive.motion.coefficients.0": "m",
    "joints.drive.motion.coefficients.2": "m/s^2",
    "forces.push.force": "N",
    "forces.turn.force": "N m",
    "forces.coil.stiffness": "N m/rad",
    "stabilization.alpha": "1/s",
    "start.velocities.rod.theta": "rad/s",
    "start.velocities.cart.x": "m/s",
}


def step(losses, skipped):
    nothing = np.zeros(len(losses))
    return tuning.FitStep(
        np.array(losses),
        nothing + 0.5,
        nothing,
        nothing + 0.1,
        np.array(skipped),
        np.minimum.accumulate(losses),
    )


def history(folder, losses=(3.0, 0.5, 1.0, 2.0), skipped=(False, True, False, False)):
    numbers = {
        "forces/push/force": 2.0 + np.arange(len(losses)),
        "stabilization/alpha": 5.0 - np.arange(len(losses)),
    }
    told = History(folder / "history.csv")
    for count in (2, len(losses)):
        told.write(step(losses[:count], skipped[:count]), {name: x[:count] for name, x in numbers.items()})
    return read_table(folder / "history.csv")


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@all_cases("path", UNITS)
def test_units(path):
    values = CONFIG.model_dump()
    location, rest = target(values, path)
    assert not rest
    assert unit_of(values, location) == UNITS[path]


def test_the_table_grows_and_stays_whole(tmp_path):
    history(tmp_path)
    rows = list(csv.DictReader((tmp_path / "history.csv").read_text().splitlines()))
    assert list(rows[0]) == [*plots.NOT_PARAMETERS, "forces.push.force", "stabilization.alpha"]
    assert [(row["iteration"], row["loss"], row["skipped"]) for row in rows[:2]] == [
        ("1", "3.0", "0"),
        ("2", "0.5", "1"),
    ]
    assert [row["forces.push.force"] for row in rows] == ["2.0", "3.0", "4.0", "5.0"]
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]


def test_plots_of_tune_have_title_units_limits_and_the_best_iteration(tmp_path):
    columns = history(tmp_path)
    # The smallest loss was that of a skipped iteration, which does not count.
    assert plots.best_iteration(columns) == 3
    with styled() as figure_class:
        told = plots.history_figure(figure_class, CONFIG, "tune", columns)
        numbers = plots.parameters_figure(figure_class, CONFIG, CONFIG.tune, columns)
    assert told.axes[0].get_title(loc="left") == "slide: tune, 4 of 5 iterations, 1 of them skipped (gray)"
    assert texts(told.axes[0]) == ["best: iteration 3, 1"]
    push, alpha = numbers.axes
    assert (push.get_ylabel(), alpha.get_ylabel()) == (
        "forces.push.force\nin N",
        "stabilization.alpha\nin 1/s",
    )
    assert texts(push) == ["best: 4 N", "lower limit 1 N", "upper limit 1000 N, out of view"]
    assert texts(alpha) == ["best: 3 1/s", "lower limit 0 1/s"]
    assert push.get_ylim()[1] < 10


def test_inputs_are_drawn_within_their_limits_and_held_over_the_last_step():
    columns = {"t": 0.1 * np.arange(4), "push": np.array([1.0, -2.0, 3.0, -4.0]), "turn": np.zeros(4)}
    with styled() as figure_class:
        figure = plots.controls_figure(figure_class, CONFIG, CONFIG.optimize, columns, 7)
    push, turn = figure.axes
    assert (push.get_ylabel(), turn.get_ylabel(), turn.get_xlabel()) == (
        "push in N",
        "turn in N m",
        "time in s",
    )
    assert push.get_title(loc="left").startswith("slide: inputs over time")
    assert texts(push) == ["start", "optimized, iteration 7", "lower limit -8 N", "upper limit 8 N"]
    assert texts(turn) == ["start", "optimized, iteration 7", "upper limit 4 N m"]
    start, optimized = (patch.get_data() for patch in push.patches)
    np.testing.assert_allclose(optimized.edges, [0, 0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(optimized.values, columns["push"])
    np.testing.assert_array_equal(start.values, [2, 2, 2, 2])
    assert push.get_ylim()[0] < -8 < 8 < push.get_ylim()[1]


def test_what_a_run_can_be_continued_with(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(VALUES))
    unfinished, finished = (
        {"finished": when, "learned": {"command": "tune", "iterations": 5}} for when in (None, "noon")
    )

    def asked(record, *overrides):
        return refusal(tmp_path, record, "tune", overrides)

    assert (
        asked(unfinished)
        == asked(unfinished, "tune.iterations=6")
        == asked(finished, "tune.iterations=6")
        == ""
    )
    assert (
        "which finished at noon; there is nothing to continue; --set tune.iterations=N with N above 5"
        in asked(finished)
    )
    assert "tune.iterations 4, expected more than the 5 of the run" in asked(unfinished, "tune.iterations=4")
    message = "a change of dt 0.1 -> 0.2, tune.loss a list of 2"
    assert message in asked(finished, "tune.iterations=6", "dt=0.2", "tune.loss=[]")
    assert "a change of stabilization.alpha 5.0 -> nothing (null), " in asked(
        unfinished, "stabilization={type: none}"
    )
    # Mistakes are told with all others of the config, when it is read.
    assert asked(unfinished, "tune.iterations=six") == ""
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump(VALUES | {"tune": VALUES["tune"] | {"optimizer": {"schedule": "cosine"}}})
    )
    assert asked(unfinished) == ""
    assert "with cosine, the learning rate of every iteration depends on the number of iterations" in asked(
        finished, "tune.iterations=6"
    )
