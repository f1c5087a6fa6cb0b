"""`jaxdae export` and the scenes of run folders."""

import csv
import importlib.util
import json

import numpy as np
import pytest
import typer.testing

from jaxdae.app.cli import app
from jaxdae.app.export.export_results import export
from jaxdae.app.export.view_run import Seen
from jaxdae.app.runs import open_run

PENDULUM = """
name: pendulum
mechanism:
  bodies: [{name: bob, mass: 2.0, inertia: 0.1, pose: [1.0, 0.0, 0.0]}]
  joints: [{type: revolute, name: pin, a: ground, b: bob, at: [0, 0]}]
integrator: semi_implicit_euler
duration: 0.04
dt: 0.01
save_every: 2
batch: {size: 2, vary: [{path: bodies.bob.mass, scatter: 0.1}]}
output: {plots: false}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pendulum.yaml").write_text(PENDULUM)
    done = typer.testing.CliRunner().invoke(app, ["run", str(folder / "pendulum.yaml"), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.mark.long
def test_tables_hold_what_the_results_hold(run, tmp_path):
    command = ["export", str(run), "--format", "csv", "--out", str(tmp_path / "p.csv")]
    assert typer.testing.CliRunner().invoke(app, command).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"p.csv", "p_columns.csv"}
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    meaning = {
        row["column"]: row for row in csv.DictReader((tmp_path / "p_columns.csv").read_text().splitlines())
    }
    assert list(rows[0]) == list(meaning)
    found = open_run.drawable(run)
    (archive,) = export(found, "npz", tmp_path / "p.npz")
    with np.load(archive) as arrays:
        assert arrays["q"].shape == (2, 3, 3)
        assert list(arrays["coordinate"]) == ["bob.x", "bob.y", "bob.theta"]
        assert list(arrays["axes_of_lam"]) == ["world", "time", "row"]
        # Bit for bit: the shortest text that is read as the same number.
        for name, number, unit in (
            ("q.bob.theta", arrays["q"][..., 2], "rad"),
            ("v.bob.x", arrays["v"][..., 0], "m/s"),
        ):
            np.testing.assert_array_equal(np.reshape([float(row[name]) for row in rows], (2, 3)), number)
            assert meaning[name]["unit"] == unit
        pin = np.reshape([float(row["lam.pin.y"]) for row in rows], (2, 3))
        np.testing.assert_array_equal(pin, arrays["lam"][..., list(arrays["row"]).index("pin.y")])
        # At rest the pin carries what of the weight the fall leaves: m g I / (I + m r^2).
        np.testing.assert_allclose(pin[0, 0], 2 * 9.81 * 0.1 / 2.1, rtol=1e-9)
    units = (meaning["lam.pin.y"]["unit"], meaning["a.bob.theta"]["unit"], meaning["kinetic_energy"]["unit"])
    assert units == ("N", "rad/s^2", "J")
    one = export(found, "csv", tmp_path / "one.csv", worlds=1)[0]
    assert len(one.read_text().splitlines()) == 4


@pytest.mark.long
def test_the_scene_of_a_run_has_its_worlds_and_their_forces(run):
    seen = Seen(open_run.drawable(run))
    assert (seen.scene.worlds, seen.scene.title, seen.scene.bodies) == (2, "pendulum", ("bob",))
    assert seen.scene.violation is not None
    np.testing.assert_allclose(seen.scene.times, [0.0, 0.02, 0.04])
    weights = []
    for world in (0, 1):
        reactions, forces = seen.arrows(world)
        assert (reactions.labels, forces.labels) == (("pin",), ("bob",))
        weights.append(forces.vectors[0, 0, 1])
        # At the start the pin carries its part of the weight of this world.
        mass = -weights[-1] / 9.81
        np.testing.assert_allclose(
            reactions.vectors[0, 0], [0, mass * 9.81 * 0.1 / (0.1 + mass), 0], rtol=1e-9, atol=1e-12
        )
    assert weights[0] == pytest.approx(-2 * 9.81)
    assert weights[1] != pytest.approx(weights[0])


@pytest.mark.long
def test_messages(run, tmp_path):
    runner = typer.testing.CliRunner()
    wrong = runner.invoke(app, ["export", str(run), "--format", "xml"])
    assert (wrong.exit_code, "got --format xml, expected one of csv, npz, mcap" in wrong.output) == (2, True)
    flat = runner.invoke(app, ["plot", str(run), "--dark"])
    assert (flat.exit_code, "without --html, expected them only with --html" in flat.output) == (2, True)
    (tmp_path / "taken.csv").mkdir()
    taken = runner.invoke(app, ["export", str(run), "--format", "csv", "--out", str(tmp_path / "taken.csv")])
    assert (
        taken.exit_code,
        "got something that is not a regular file; remove it, or choose another --out" in taken.output,
    ) == (2, True)
    for package, command in (
        ("viser", ["plot", str(run), "--html"]),
        ("foxglove", ["export", str(run), "--format", "mcap"]),
    ):
        if importlib.util.find_spec(package) is None:
            missing = runner.invoke(app, command)
            assert missing.exit_code == 2
            assert (
                f"pip install '.[{'viewer' if package == 'viser' else 'export'}]' in a clone of jaxdae"
                in missing.output
            )


def test_messages_over_time(run, tmp_path):
    """Read back with nothing of the library that wrote them: the JSON in the file is plain without
    compression of chunks.
    """
    pytest.importorskip("foxglove", reason="needs foxglove-sdk: make test-viewer installs it")
    reader = pytest.importorskip("mcap.reader", reason="needs mcap: make test-viewer installs it")
    (path,) = export(open_run.drawable(run), "mcap", tmp_path / "p.mcap")
    with path.open("rb") as stream:
        messages = list(reader.make_reader(stream).iter_messages())
    topics = {channel.topic for _, channel, _ in messages}
    assert topics == {
        f"/world_{k}/{name}"
        for k in (0, 1)
        for name in ("tf", "scene", "coordinates", "multipliers", "state")
    }
    found = [
        (message.log_time, json.loads(message.data))
        for _, channel, message in messages
        if channel.topic == "/world_0/multipliers"
    ]
    assert [time for time, _ in found] == [0, 20_000_000, 40_000_000]
    assert found[0][1]["pin.y"] == pytest.approx(2 * 9.81 * 0.1 / 2.1)
