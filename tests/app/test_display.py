"""What people see: progress on a terminal and on a pipe, and the drawing of a mechanism."""

import io

import numpy as np
import rich.console

from jaxdae.app.config.schema_mechanism import PlanarMechanism
from jaxdae.app.draw.picture import outline
from jaxdae.app.runs import progress as display


def shown(monkeypatch, terminal):
    """Returns what a run of 1000 steps in ten blocks of two seconds shows."""
    clock = iter(np.arange(0.0, 1000.0, 2.0))
    monkeypatch.setattr(display.time, "perf_counter", lambda: float(next(clock)))
    text = io.StringIO()
    console = rich.console.Console(file=text, force_terminal=terminal, width=100)
    with display.Progress(1000, console, worlds=16) as progress:
        for done in range(100, 1001, 100):
            progress.update(16 * done)
            if terminal:
                progress._bar.refresh()
    return text.getvalue()


def test_a_pipe_gets_a_line_now_and_then(monkeypatch):
    lines = shown(monkeypatch, terminal=False).splitlines()
    assert lines[0] == "simulating 1000 steps of 16 worlds"
    # Every five seconds at most, with blocks of two seconds: each third block, 50 steps/s of each world.
    assert lines[1] == "compiling the steps of 16 worlds"
    assert lines[2] == "4800/16000 world steps (30 %), 800 world steps/s, 14 s left"
    assert len(lines) == 5
    assert not any(character in line for line in lines for character in "\r\x1b")


def test_a_terminal_gets_a_bar_with_speed_and_time_left(monkeypatch):
    text = shown(monkeypatch, terminal=True)
    assert "simulating" in text
    assert "steps/s" in text
    assert "\x1b" in text


def test_long_times_are_readable():
    assert [display.duration(seconds) for seconds in (3.2, 75.0, 3700.0)] == [
        "3 s",
        "1 min 15 s",
        "1 h 01 min",
    ]


def test_places_in_the_world_are_drawn_in_the_frames_of_the_bodies():
    quarter = np.pi / 2
    mechanism = PlanarMechanism.model_validate(
        {
            "bodies": [
                {"name": "plate", "mass": 1.0, "inertia": 1.0, "pose": [1, 2, quarter]},
                {"name": "bob", "mass": 1.0, "inertia": 1.0, "pose": [0, 0, 0]},
            ],
            "joints": [
                {"type": "revolute", "name": "A", "a": "ground", "b": "plate", "at": [1, 3]},
                {"type": "prismatic", "name": "S", "a": "ground", "b": "bob", "axis": [3, 4], "at": [0, 0]},
                {"type": "rod", "name": "R", "a": "plate", "b": "bob", "at_a": [0, 2], "point_b": [0, 1]},
            ],
            "forces": [
                {
                    "type": "linear_spring",
                    "name": "k",
                    "a": "ground",
                    "b": "plate",
                    "at_a": [5, 5],
                    "at_b": [2, 2],
                    "stiffness": 1.0,
                }
            ],
        }
    )
    shape = outline(mechanism)
    # (1, 3) lies one meter above the plate's center, which is its x axis after a quarter turn.
    np.testing.assert_allclose(shape.joints["plate"], [[1, 0], [0, 1], [0, -1]], rtol=0, atol=1e-15)
    assert len(shape.bodies["plate"]) == 3
    np.testing.assert_allclose(shape.joints["bob"], [[0, 0], [0, 1]], rtol=0, atol=1e-15)
    assert [(kind, a, b) for kind, a, _, b, _ in shape.links] == [
        ("rod", "plate", "bob"),
        ("spring", "ground", "plate"),
    ]
    np.testing.assert_allclose(shape.ground_points, [[1, 3], [0, 0], [5, 5]], rtol=0, atol=1e-15)
    ((_, axis),) = shape.slides
    np.testing.assert_allclose(axis, [0.6, 0.8])


def test_points_and_outlines_of_bodies_are_drawn():
    corners = [[-1, -1], [1, -1], [1, 1], [0, 0], [-1, 1]]
    plain = {"mass": 1, "inertia": 1, "pose": [0, 0, 0]}
    mechanism = PlanarMechanism.model_validate(
        {
            "bodies": [
                {"name": "crank", **plain, "points": [[2, 1], [0, 3]]},
                {"name": "plate", **plain, "outline": corners, "points": [[0, 5]]},
            ],
            "joints": [
                {"type": "revolute", "name": "A", "a": "ground", "b": "crank", "at": [0, 0]},
                {"type": "revolute", "name": "B", "a": "crank", "b": "plate", "at": [1, 0]},
            ],
        }
    )
    shape = outline(mechanism)
    np.testing.assert_array_equal(shape.joints["crank"], [[2, 1], [0, 3], [0, 0], [1, 0]])
    np.testing.assert_array_equal(shape.bodies["crank"], [[0, 0], [1, 0], [2, 1], [0, 3]])
    np.testing.assert_array_equal(shape.bodies["plate"], corners)
    np.testing.assert_array_equal(shape.joints["plate"], [[0, 5], [1, 0]])
