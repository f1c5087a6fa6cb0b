"""The experiment `delta_workspace`: margins against closed forms, and the smallest design."""

import importlib.util
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
BOUNDS, PLATFORM = np.array([0.4, 0.5]), 0.05
DESIGN = np.array([0.1, 0.3164, 0.4241, 0.2878])
"""Smallest design for these bounds, to four digits."""


@pytest.fixture(scope="module")
def experiment():
    path = ROOT / "experiments" / "delta_workspace.py"
    spec = importlib.util.spec_from_file_location("delta_workspace", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings(experiment):
    numbers = {"radius": 0.25, "height": 0.2, "platform_radius": PLATFORM, "speed": 0.4, "dexterities": [0.5]}
    ranges = {"start": [0.25, 0.4, 0.9, 0.75], "lower": [0.1, 0.1, 0.2, 0.1], "upper": [0.5, 1.0, 2.0, 2.0]}
    return experiment.Settings(**numbers, **ranges, grid=[4, 3, 3], fine=[13, 41, 9])


def motor_angles(x, p):
    """Returns the motor angles (3,) at which the elbows have the distance of a forearm from the platform."""
    base, arm, forearm, depth = x
    found = []
    for turn in 2.0 * np.pi * np.arange(3) / 3.0:
        c, s = np.cos(turn), np.sin(turn)
        u, v, w = c * p[0] + s * p[1] + PLATFORM - base, c * p[1] - s * p[0], p[2] - depth
        # The elbow is at the intersection of two circles in the plane of the arm.
        far, flat = np.hypot(u, w), np.sqrt(forearm**2 - v**2)
        along = (far**2 + arm**2 - flat**2) / (2.0 * far)
        across = np.sqrt(arm**2 - along**2)
        outward, up = (along * u - across * w) / far, (along * w + across * u) / far
        found.append(np.arctan2(-up, outward))
    return np.array(found)


def test_the_closed_form_has_the_derivatives_of_the_motor_angles(experiment):
    for p in ([0.1, 0.05, -0.03], [0.0, 0.0, 0.0], [-0.2, 0.1, 0.1]):
        p = np.array(p)
        inverse = [
            (motor_angles(DESIGN, p + h) - motor_angles(DESIGN, p - h)) / 2e-5 for h in 1e-5 * np.eye(3)
        ]
        singular = np.linalg.svd(np.linalg.inv(np.array(inverse).T), compute_uv=False)
        expected = np.array([singular[2] / DESIGN[1], singular[2] / singular[0]]) / BOUNDS - 1.0
        (found,) = experiment.closed_form(DESIGN, BOUNDS, p[None], PLATFORM)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)
    far = np.array([[0.0, 0.0, -2.0]])
    np.testing.assert_array_equal(experiment.closed_form(DESIGN, BOUNDS, far, PLATFORM), -1.0)


def test_the_design_contains_the_cylinder_and_a_smaller_one_does_not(experiment, settings):
    fine = experiment.cylinder(settings, settings.fine)
    worst = experiment.closed_form(DESIGN, BOUNDS, fine, PLATFORM).min()
    assert -1e-3 < worst < 1e-3
    # The robot has the symmetry of the sector.
    turn = 2.0 * np.pi / 3.0
    turned = fine @ np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    for points in (turned, fine * [1.0, -1.0, 1.0]):
        assert abs(experiment.closed_form(DESIGN, BOUNDS, points, PLATFORM).min() - worst) < 1e-12
    assert experiment.smaller(experiment.Designed(DESIGN, BOUNDS), settings) < -5e-3


@pytest.mark.exhaustive
def test_margins_through_the_loops_are_those_of_the_closed_form(experiment, settings):
    points = experiment.cylinder(settings, [2, 2, 2])[:4]
    x = DESIGN * [1.5, 1.05, 1.1, 1.1]

    def both(x):
        found = experiment.margins(x, BOUNDS, points, PLATFORM)
        return found, found

    slopes, found = jax.jit(jax.jacfwd(both, has_aux=True))(jnp.asarray(x))
    np.testing.assert_allclose(found, experiment.closed_form(x, BOUNDS, points, PLATFORM), rtol=0, atol=1e-12)
    near = lambda step: experiment.closed_form(x + step, BOUNDS, points, PLATFORM)  # noqa: E731
    differences = np.array([(near(h) - near(-h)) / 2e-5 for h in 1e-5 * np.eye(4)])
    np.testing.assert_allclose(slopes, np.moveaxis(differences, 0, -1), rtol=0, atol=1e-6)


@pytest.mark.exhaustive
def test_a_run(experiment, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    changes = ("experiment.grid=[3,5,3]", "experiment.dexterities=[0.5]", "experiment.fine=[7,21,5]")
    words = [word for change in changes for word in ("--set", change)]
    monkeypatch.setattr(sys, "argv", ["delta_workspace.py", "--out", str(tmp_path), *words])
    assert experiment.main() == 0
    (folder,) = tmp_path.iterdir()
    assert (folder / "delta_workspace.png").is_file()
    (row,) = json.loads((folder / "run.json").read_text())["table"]
    found = [float(row[f"{name}, m"]) for name in experiment.NAMES]
    np.testing.assert_allclose(found, DESIGN, rtol=0, atol=0.01)
    assert float(row["1 % smaller"].removesuffix(" %")) < -1.0
