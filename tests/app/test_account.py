"""The energy account: work of motors, inputs, dampers and prescribed motions, and the verdicts on a run."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import command, only

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae.app import precision
from jaxdae.app.config.schema import Config
from jaxdae.app.model import build
from jaxdae.app.runs import energy_account, verdicts
from jaxdae.app.runs.result_grid import Grid
from jaxdae.app.runs.simulate import Simulator, Summary
from jaxdae.mechanisms import spatial as js

INERTIA = 0.33  # of the rod about its hinge
HINGE = {"type": "revolute", "name": "hinge", "a": "ground", "b": "rod", "at": [0, 0]}
ROD = {"bodies": [{"name": "rod", "mass": 1, "inertia": 1, "pose": [0.02, 0, 0]}], "joints": [HINGE]}
MOTOR = {"type": "torque", "name": "motor", "a": "ground", "b": "rod", "torque": 2.0}
DRIVE = {
    "type": "prescribed_motion",
    "name": "drive",
    "joint": "hinge",
    "motion": {"type": "sinusoid", "amplitude": 0.5, "frequency_hz": 1.25},
}


def simulated(joints, forces=(), gravity=(0.0, 0.0), **more):
    """Returns the summary and the results of 0.2 s of a rod on a hinge."""
    mechanism = {
        "coordinates": "joints",
        "gravity": list(gravity),
        "bodies": [{"name": "rod", "mass": 1.0, "inertia": 0.08, "pose": [0.5, 0, 0]}],
        "joints": list(joints),
        "forces": list(forces),
    }
    given = {"name": "rod", "mechanism": mechanism, "duration": 0.2, "dt": 2e-3, "solver": "dense_kkt"}
    config = Config.model_validate(given | more)
    blocks = []
    with precision(config):
        worlds = build.worlds(config)
        summary = Simulator(config, 2).run(worlds, lambda _, block: blocks.append(block))
    return config, summary, {name: np.concatenate([x[name] for x in blocks], axis=1) for name in blocks[0]}


@pytest.mark.long
@pytest.mark.parametrize("names", ["jump", pytest.param("friction driven", marks=pytest.mark.exhaustive)])
def test_a_motor_does_work_and_the_account_does_not_depend_on_save_every(names):
    """An input with a jump, in closed form; damping with friction; and a prescribed motion: order four, as
    RK4 has it.
    """
    jump = {"controls": {"times": [0.0, 0.098, 0.1], "inputs": {"motor": [2.0, 2.0, -1.0]}}}
    damped = HINGE | {"damping": 0.3, "friction": 0.5, "friction_speed": 0.2}
    weight = (0.0, -9.81)
    cases = {
        "jump": (([HINGE], [MOTOR]), jump, (2.0 * 0.1 - 1.0 * 0.1) ** 2 / INERTIA / 2.0, 1e-13),
        "friction": (([damped], [MOTOR], weight), {}, None, 1e-9),
        "driven": (([HINGE, DRIVE], [], weight), {}, None, 3e-9),
    }
    for name in names.split():
        given, more, expected, tolerance = cases[name]
        accounts = []
        for every in (1, 50):
            _, summary, found = simulated(*given, save_every=every, **more)
            accounts.append((summary.energy_balance_error, summary.energy_exchanged, found["work"][0, -1]))
            assert summary.energy_balance_relative < tolerance, name
        np.testing.assert_allclose(*accounts, rtol=1e-6, atol=1e-14, err_msg=name)
        stored = found["kinetic_energy"] + found["potential_energy"]
        np.testing.assert_allclose(
            found["work"], stored - stored[:, :1], rtol=0, atol=10 * tolerance, err_msg=name
        )
        if expected is not None:
            np.testing.assert_array_equal(found["potential_energy"], 0.0, err_msg=name)
            np.testing.assert_allclose(found["work"][0, -1], expected, rtol=1e-12, err_msg=name)


def test_a_balance_is_judged_by_the_energy_exchanged():
    config = Config.model_validate({"name": "rod", "mechanism": ROD, "duration": 1.0, "dt": 0.1})
    for relative, expected in (
        (0.0, "ok"),
        (verdicts.ENERGY_LIMIT, "ok"),
        (1.01 * verdicts.ENERGY_LIMIT, "poor"),
        (np.inf, "unknown"),
    ):
        summary = Summary(
            energy_balance_relative=relative,
            energy_balance_error=1.0,
            energy_exchanged=2.0,
            energy_balance_world=3,
        )
        energy = verdicts.energy_balance(config, summary)
        assert energy["verdict"] == expected, relative
        told = verdicts.sentences({"energy_balance": energy})
        assert [
            f"The energy balance is {expected}: its error in world 3 is 1 J" in each for each in told
        ] == [True] * (expected != "ok")


@pytest.mark.long
def test_an_oscillation_that_the_step_does_not_resolve_is_poor():
    """At 0.87 rad a step, a spring of 10 kN m/rad is within the stability limit of RK4, which damps it."""
    config, summary, _ = simulated([HINGE | {"stiffness": 1e4, "rest": 0.1}], dt=5e-3, duration=1.0)
    energy = verdicts.energy_balance(config, summary)
    assert summary.status == {"OK": 1}
    assert energy["verdict"] == "poor"
    assert energy["relative"] > 0.5
    assert energy["error_J"] > 1.0
    (told,) = verdicts.sentences(
        {"energy_balance": energy, "constraints": verdicts.constraints(config, summary)}
    )
    assert told.startswith("The energy balance is poor: its error is ")
    assert "% of the exchanged energy; the limit is 5 %" in told


@pytest.mark.exhaustive
def test_friction_that_the_step_does_not_resolve_ends_the_run():
    _, summary, _ = simulated([HINGE | {"friction": 200.0}], gravity=(0.0, -9.81), dt=1e-3)
    assert summary.status == {"UNSTABLE": 1}
    assert summary.failure.startswith("UNSTABLE after t = 0 s")


def test_violations_are_judged_by_tolerance_and_size():
    config = Config.model_validate({"name": "rod", "mechanism": ROD, "duration": 1.0, "dt": 0.1})
    assert verdicts.size(config) == pytest.approx(0.02)
    # The limits are the tolerance of a start, 1e-5, times the size, or times the size and the largest speed.
    for violation, velocity, expected in (
        (1.9e-7, 0.0, "ok"),
        (2.1e-7, 0.0, "poor"),
        (0.0, 3.01e-5, "ok"),
        (0.0, 3.03e-5, "poor"),
        (float("nan"), 0.0, "unknown"),
    ):
        summary = Summary(
            largest_violation=violation, largest_velocity_violation=velocity, largest_velocity=3.0
        )
        assert verdicts.constraints(config, summary)["verdict"] == expected, (violation, velocity)


@pytest.mark.long
def test_a_run_says_its_verdicts_and_that_its_config_belongs_to_a_script(tmp_path):
    text = """
name: rod
description: Rods that fly.
script: experiments/parking.py
experiment: {speed: 1}
mechanism:
  bodies: [{name: rod, mass: 1, inertia: 0.08, pose: [0.5, 0, 0]}]
  joints: [{type: revolute, name: hinge, a: ground, b: rod, at: [0, 0]}]
duration: 0.1
dt: 0.01
output: {plots: false}
"""
    (tmp_path / "rod.yaml").write_text(text)
    told = "This config belongs to experiments/parking.py. The command jaxdae simulates only its mechanism"
    code, _, errors = command("check", tmp_path / "rod.yaml")
    assert code == 0
    assert told in errors
    code, shown, errors = command("run", tmp_path / "rod.yaml", "--out", tmp_path / "runs")
    assert code == 0
    assert told in errors
    assert "rod (mechanism only)" in shown
    folder = only(tmp_path / "runs")
    results = json.loads((folder / "run.json").read_text())["results"]
    assert {results[key]["verdict"] for key in ("energy_balance", "constraints")} == {"ok"}
    assert set(results["energy_balance"]) == {
        "error_J",
        "exchanged_J",
        "relative",
        "limit",
        "world",
        "verdict",
    }
    report = (folder / "report.md").read_text()
    assert report.startswith("# rod (mechanism only)\n")
    assert told in report
    assert "Rods that fly" not in report


def test_parts_are_as_equal_as_chunks_allow():
    for size, worlds, part, expected in (
        (500, 32, 480, [256, 244]),
        (500, 32, 512, [500]),
        (1000, 32, 320, [256, 256, 256, 232]),
        (96, 32, 32, [32, 32, 32]),
    ):
        grid = Grid(size, 2, worlds, 1, 1, part)
        parts = grid.parts((0, size))
        assert [behind - first for first, behind in parts] == expected
        # A run that goes on after its first part has the same parts.
        assert grid.parts((0, size), parts[:1]) == parts[1:]


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates", [pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive), jm.Joints()]
)
def test_the_spring_of_a_joint_force_is_potential_energy_and_its_constant_is_not(coordinates):
    body = js.Body("block", 2.0, (0.1, 0.1, 0.1))
    slide = js.Prismatic("slide", "ground", "block", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0))
    force = js.JointForce("force", "slide", 5.0, stiffness=3.0, rest=0.2)
    system, q = jm.spatial_mechanism([body], [slide], [force], coordinates=coordinates)
    q = q.at[2 if q.size > 1 else 0].set(0.5)
    state = jaxdae.State(jnp.zeros(()), q, jnp.zeros(len(system.names.velocities)))
    found = energy_account.energies(system, state)[1]
    np.testing.assert_allclose(found, 2.0 * 9.81 * 0.5 + 0.5 * 3.0 * 0.3**2, rtol=1e-14)
