"""Pictures and results of mechanisms in space: shapes in the frames of bodies, one scale for all axes, poses
in either form.
"""

import matplotlib.figure
import numpy as np
import pytest
import typer.testing
import xarray as xr
import yaml
from PIL import Image

from jaxdae.app import skeleton, write_animation
from jaxdae.app.cli import app
from jaxdae.app.config.schema import Config
from jaxdae.app.draw import plots
from jaxdae.app.draw.picture_space import draw
from jaxdae.app.model import build
from jaxdae.app.model.config_outline import outline, places, start_pose
from jaxdae.app.runs import results
from jaxdae.app.runs.result_grid import Grid
from jaxdae.viewer.outline import placed

HALF = np.sqrt(0.5)
LEG = {"inertia": [1, 1, 1], "mass": 1.0}
MECHANISM = {
    "space": "space",
    "coordinates": "joints",
    "bodies": [
        # A quarter turn about z: its x axis is y of the world.
        {"name": "bar", **LEG, "pose": {"place": [1, 0, 0], "quaternion": [2, 0, 0, 2]}},
        {"name": "plate", **LEG, "pose": {"place": [0, 0, 1]}},
        {"name": "star", **LEG, "pose": {"place": [0, 0, 2]}},
        {
            "name": "cross",
            "mass": 3.0,
            "inertia": [[2, 0, 0], [0, 5, 0], [0, 0, 5]],
            "pose": {"place": [0, 0, 0]},
            "free": True,
        },
    ],
    "joints": [
        {
            "type": "universal",
            "name": "A",
            "a": "ground",
            "b": "bar",
            "axis": [0, 0, 1],
            "second": [0, 1, 0],
            "at": [1, -1, 0],
        },
        {"type": "prismatic", "name": "B", "a": "bar", "b": "plate", "axis": [0, 1, 0], "at": [1, 1, 0]},
        {"type": "ball", "name": "C", "a": "plate", "b": "star", "at": [0, 1, 1]},
        {"type": "ball", "name": "D", "a": "plate", "b": "star", "at": [-1, 0, 1]},
        {"type": "ball", "name": "E", "a": "plate", "b": "star", "at": [0, 0, 3]},
        {"type": "ball", "name": "F", "a": "ground", "b": "star", "at": [0.5, 0, 2]},
    ],
    "forces": [
        {
            "type": "linear_spring",
            "name": "k",
            "a": "ground",
            "b": "star",
            "at_a": [5, 5, 5],
            "point_b": [0.5, 0, 0],
            "stiffness": 1,
        }
    ],
}
CONFIG = Config.model_validate({"name": "shapes", "mechanism": MECHANISM, "duration": 1.0, "dt": 0.5})


def test_shapes_follow_from_joints_and_inertia():
    shape = outline(CONFIG.mechanism)
    # One meter along y of the world is one along x of the bar.
    np.testing.assert_allclose(shape.joints["bar"], [[-1, 0, 0], [1, 0, 0]], rtol=0, atol=1e-15)
    bar, pin = shape.lines["bar"]
    np.testing.assert_allclose(bar, shape.joints["bar"], rtol=0, atol=1e-15)
    # The pin of the universal joint that is fixed in the bar, along y of the world, about the joint.
    np.testing.assert_allclose(pin - [-1, 0, 0], [[-0.24, 0, 0], [0.24, 0, 0]], rtol=0, atol=1e-15)
    # Four joints that do not lie in a plane are a star.
    assert [line.shape for line in shape.lines["star"]] == [(2, 3)] * 4
    # A box with m (b^2 + c^2) / 3 = 2 and m (a^2 + c^2) / 3 = 5: half sides 2, 1, 1.
    lengths = sorted(np.linalg.norm(line[1] - line[0]) for line in shape.lines["cross"])
    np.testing.assert_allclose(lengths, [2, 2, 4])
    assert [(kind, a, b) for kind, a, _, b, _ in shape.links] == [
        ("slide", "bar", "plate"),
        ("spring", "ground", "star"),
    ]
    np.testing.assert_allclose(shape.ground_points, [[1, -1, 0], [0.5, 0, 2], [5, 5, 5]])


def test_joints_in_a_plane_are_the_corners_of_a_polygon():
    given = {"space": "space", "bodies": [{"name": "plate", **LEG, "pose": {"place": [0, 0, 1]}}]}
    corners = [(1, 1, 1), (-1, 1, 1), (0, 0, 1), (-1, -1, 1), (1, -1, 1)]
    joints = [
        {"type": "ball", "name": f"J{k}", "a": "ground", "b": "plate", "at": list(at)}
        for k, at in enumerate(corners)
    ]
    shape = outline(type(CONFIG.mechanism).model_validate(given | {"joints": joints}))
    (polygon,) = shape.lines["plate"]
    assert polygon.shape == (5, 3)
    np.testing.assert_allclose(polygon[0], polygon[-1])
    assert {tuple(np.round(corner, 12)) for corner in polygon} == {
        (1, 1, 0),
        (-1, 1, 0),
        (-1, -1, 0),
        (1, -1, 0),
    }
    drawn = {"outline": [[0, 0, 0], [2, 0, 0], [0, 2, 1]], "points": [[0, 0, 3]]}
    bodies = [given["bodies"][0] | drawn]
    shape = outline(type(CONFIG.mechanism).model_validate(given | {"joints": joints, "bodies": bodies}))
    np.testing.assert_array_equal(shape.lines["plate"], [[[0, 0, 0], [2, 0, 0], [0, 2, 1], [0, 0, 0]]])
    np.testing.assert_array_equal(shape.joints["plate"][0], [0, 0, 3])


def motion(times=3):
    """Returns poses (time, body, 7) of the start, moved along x."""
    start = np.stack([start_pose(body) for body in CONFIG.mechanism.bodies])
    moved = np.tile(start, (times, 1, 1))
    moved[:, :, 0] += 0.1 * np.arange(times)[:, None]
    return moved


def test_bodies_are_drawn_where_their_poses_are():
    poses = motion()
    np.testing.assert_allclose(placed(poses[0, 0], np.array([[1.0, 0, 0]])), [[1, 1, 0]], rtol=0, atol=1e-15)
    lines = skeleton(CONFIG.mechanism, poses)
    assert list(lines) == ["bar", "plate", "star", "cross"]
    np.testing.assert_allclose(lines["bar"][2, :2], [[1.2, -1, 0], [1.2, 1, 0]], rtol=0, atol=1e-15)
    # Lines of a body are apart.
    assert np.isnan(lines["cross"][0]).all(axis=-1).sum() == 2
    seen = places(CONFIG.mechanism, poses)
    assert seen.shape[0] == 3
    assert np.isfinite(seen).all()


def test_the_overlay_has_one_scale_and_holds_everything():
    axes = matplotlib.figure.Figure().add_subplot(projection="3d")
    draw(axes, CONFIG.mechanism, np.array([0.0, 1.0]), motion()[[0, 2]], motion())
    limits = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    sides = limits[:, 1] - limits[:, 0]
    np.testing.assert_allclose(
        np.asarray(axes._box_aspect) / sides, (np.asarray(axes._box_aspect) / sides)[0]
    )
    seen = places(CONFIG.mechanism, motion()).reshape(-1, 3)
    assert np.all(seen >= limits[:, 0])
    assert np.all(seen <= limits[:, 1])
    labels = [text.get_text() for text in axes.figure.legends[0].get_texts()]
    assert labels == ["at 0 s", "at 1 s", "on the ground", "spring", "paths of the joints"]


def test_animations_in_space(tmp_path):
    poses = motion(5)
    lines = skeleton(CONFIG.mechanism, poses)
    file = write_animation(
        tmp_path / "m.gif",
        np.arange(5) / 10,
        lines,
        traces={"center": poses[:, 0, :3]},
        points={"o": np.zeros((1, 3))},
    )
    with Image.open(file) as gif:
        assert gif.n_frames == 5
    with pytest.raises(ValueError, match=r"traces\['center'\] must have shape \(5, 2\), got \(5, 3\)"):
        write_animation(
            tmp_path / "m.gif",
            np.arange(5),
            {"bar": lines["bar"][..., :2]},
            traces={"center": poses[:, 0, :3]},
        )


def stored(config, tmp_path, poses):
    """Returns what a run of so many poses holds, of two worlds that do the same."""
    system, q, v, _ = build.construct(config.model_dump())
    times, count = len(poses), len(config.mechanism.bodies)
    cut = Grid(size=2, saved=times, worlds=2, entries=times, block=times, part=2)
    results.create(tmp_path / "results.zarr", tmp_path / "store.sha256", config, cut, system, {})
    writer = results.Writer(tmp_path / "results.zarr", cut, (0, 2), tmp_path / "worlds.sha256")
    scalars = ("violation", "velocity_violation", "kinetic_energy", "potential_energy", "work")
    block = {name: np.zeros((2, times)) for name in scalars} | {"status": np.zeros((2, times), np.int32)}
    block |= {"q": np.tile(np.asarray(q), (2, times, 1)), "lam": np.zeros((2, times, len(system.row_names)))}
    block |= {name: np.zeros((2, times, len(v))) for name in ("v", "a")}
    block |= {"pose": np.stack([poses] * 2), "twist": np.zeros((2, times, count, 6))}
    writer.add(0.5 * np.arange(times), block)
    return system, results.read(tmp_path / "results.zarr")


@pytest.mark.long
def test_runs_hold_poses_and_named_velocities(tmp_path):
    system, data = stored(CONFIG, tmp_path, motion())
    with data:
        assert data.sizes["velocity"] == len(system.names.velocities)
        assert list(data.velocity.values) == list(system.names.velocities)
        assert list(data.velocity_unit.values) == list(system.names.velocity_units)
        np.testing.assert_allclose(data.pose.sel(body="bar", in_pose="x", world=1), [1.0, 1.1, 1.2])
        assert data.twist.dims == ("world", "time", "body", "in_twist")
        np.testing.assert_array_equal(results.poses(data, 4), data.pose)
        # 8 bytes for q, v, a, multipliers, poses and twists of four bodies and five scalars, and 4 of a
        # status.
        numbers = len(data.coordinate) + 2 * len(data.velocity) + len(data.row) + 4 * 13 + 5
        assert results.entry_bytes(system, 8) == 8 * numbers + 4
        files = plots.draw_all(tmp_path / "plots", CONFIG, data)
    assert [file.stem for file in files] == ["positions", "coordinates", "violation", "energy", "overlay"]
    assert all(file.stat().st_size > 10_000 for file in files)


def test_poses_of_absolute_coordinates_are_the_coordinates():
    q = np.arange(2 * 3 * 14.0).reshape(2, 3, 14)
    data = xr.Dataset({"q": (("world", "time", "coordinate"), q)})
    np.testing.assert_array_equal(results.poses(data, 2), q.reshape(2, 3, 2, 7))


def test_the_angle_of_a_turn_is_that_of_the_rotation():
    angles = np.array([0.0, 0.3, 3.0, 4.0])
    quaternions = np.stack([np.cos(angles / 2), np.sin(angles / 2), 0 * angles, 0 * angles], axis=-1)[:, None]
    np.testing.assert_allclose(
        plots._turn(-quaternions)[:, 0], [0.0, 0.3, 3.0, 2.0 * np.pi - 4.0], rtol=0, atol=1e-15
    )


@pytest.mark.exhaustive
def test_check_tells_the_tree_and_of_quaternions(tmp_path):
    free = MECHANISM | {"joints": MECHANISM["joints"][:1], "forces": []}
    free["bodies"] = [body | {"free": True} for body in MECHANISM["bodies"][:2]]
    file = tmp_path / "shapes.yaml"
    file.write_text(yaml.safe_dump({"name": "shapes", "mechanism": free, "duration": 1.0, "dt": 0.5}))
    done = typer.testing.CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 0
    assert "ground\n  bar (universal A)\n  plate (moves freely)\nloops closed by: none\n" in done.stdout
    assert "mobility                    8" in done.stdout
    assert "redundant joints            none" in done.stdout
    assert "note: bodies.bar.pose.quaternion has length 2.82843; it is normalized" in done.stderr
