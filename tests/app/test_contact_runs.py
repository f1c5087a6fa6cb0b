"""Runs of configs with contacts and joint limits: stored results by name, plots, tables and arrows."""

import csv

import jax
import numpy as np
import pytest
import xarray as xr
import yaml
from small_runs import command, only

from jaxdae.app import ConfigError, load, precision
from jaxdae.app.config.schema import Config
from jaxdae.app.draw import plots
from jaxdae.app.draw.plot_style import styled
from jaxdae.app.export.view_run import Seen
from jaxdae.app.model.objective import objective
from jaxdae.app.runs import open_run

# A ball bounces, a controller with memory presses a slider against its limit, and dry friction holds a brake.
CONFIG = """
name: touching
mechanism:
  gravity: [0, -10]
  bodies:
    - {name: ball, mass: 2.0, inertia: 0.01, pose: [0, 0.6, 0], free: true}
    - {name: slide, mass: 1.0, inertia: 1.0, pose: [1, 0, 0]}
    - {name: pad, mass: 1.0, inertia: 1.0, pose: [2, 0, 0]}
  joints:
    - {type: prismatic, name: brake, a: ground, b: pad, at: [2, 0], axis: [0, 1], dry_friction: 30.0}
    - {type: prismatic, name: rail, a: ground, b: slide, at: [1, 0], axis: [1, 0], limits: [null, 0.02]}
  forces:
    - {type: joint_force, name: motor, joint: rail, force: 0.0}
  contacts:
    - name: floor
      a: ground
      b: ball
      shape_a: {type: line}
      shape_b: {type: disc, radius: 0.1}
      restitution: 0.5
control: {type: pid, inputs: [motor], coordinates: [slide.x], reference: [3.0], kp: 4.0, kd: 0.0, ki: 0.0}
integrator: {type: midpoint}
duration: 0.4
dt: 0.01
tune:
  parameters: [{path: bodies.ball.mass}]
  loss:
    - {type: gap, contact: floor, target: 0.2, over: final}
    - {type: slip, contact: floor}
    - {type: normal_force, contact: floor, target: 1.0, weight: 0.001}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "touching.yaml").write_text(CONFIG)
    code, _, error = command("run", folder / "touching.yaml", "--out", folder / "out")
    assert code == 0, error
    return only(folder / "out")


@pytest.mark.long
def test_results_have_contacts_and_limits_by_name(run):
    with xr.open_zarr(run / "results.zarr") as data:
        data = data.isel(world=0).load()
    assert list(data.contact.values) == list(data.pair.values) == ["floor"]
    assert list(data.limit.values) == ["rail.slide.upper"]
    gap, force = data.contact_gap.sel(contact="floor"), data.contact_force.sel(contact="floor", axis="normal")
    # A fall of 0.5 m takes 0.316 s, and the ball leaves with half of its speed of sqrt(10) m/s.
    t = data.time.values
    fall = np.sqrt(0.1)
    after = t - fall
    rise = 0.5 * np.sqrt(10.0) * after - 5.0 * after**2
    np.testing.assert_allclose(gap, np.where(after < 0.0, 0.5 - 5.0 * t**2, rise), atol=1e-12)
    assert np.isnan(force[0])
    np.testing.assert_allclose(force[1:].sum() * 0.01, 2.0 * 1.5 * np.sqrt(10.0), rtol=1e-9)
    np.testing.assert_allclose(data.limit_gap[-1], 0.0, atol=1e-12)
    # The motor presses with kp times the distance from the target.
    np.testing.assert_allclose(data.limit_force[-1], 4.0 * (3.0 - data.q.sel(coordinate="slide.x")[-1]))
    np.testing.assert_allclose(data.friction_force.sel(friction="brake.slide")[1:], 10.0, rtol=1e-6)
    # Accelerations contain the forces of contacts, limits and dry friction.
    np.testing.assert_allclose(data.a.sel(coordinate="slide.x")[-1], 0.0, atol=1e-5)
    np.testing.assert_allclose(data.a.sel(coordinate="pad.y")[1:], 0.0, atol=1e-5)
    np.testing.assert_allclose(data.a.sel(coordinate="ball.y")[1:], force[1:] / 2.0 - 10.0, atol=1e-9)


@pytest.mark.exhaustive
def test_loss_terms_of_contacts(run):
    config, worlds = load(str(run / "config.yaml"))
    with precision(config):
        found = objective(config, worlds, config.tune)
        loss = jax.jit(found.loss)(found.parameters)
    with xr.open_zarr(run / "results.zarr") as data:
        gap, slip, force = (data[name].values[0] for name in ("contact_gap", "contact_slip", "contact_force"))
    squares = (gap[-1, 0] - 0.2) ** 2, np.mean(slip[1:] ** 2), np.mean((force[1:, 0, 0] - 1.0) ** 2)
    np.testing.assert_allclose(loss, squares[0] + squares[1] + 1e-3 * squares[2], rtol=1e-9)
    with pytest.raises(ConfigError, match=r"got the unknown contact 'flor'.* did you mean 'floor'"):
        load(str(run / "config.yaml"), ("tune.loss.0.contact=flor",))


@pytest.mark.long
def test_plots_tables_and_arrows(run, tmp_path):
    for name in ("contacts", "limits"):
        assert (run / "plots" / f"{name}.png").stat().st_size > 10_000
    assert command("export", run, "--format", "csv", "--out", tmp_path / "t.csv")[0] == 0
    meaning = {
        row["column"]: row["unit"]
        for row in csv.DictReader((tmp_path / "t_columns.csv").read_text().splitlines())
    }
    units = {
        "contact_gap.floor": "m",
        "contact_slip.floor.tangent1": "m/s",
        "contact_force.floor.normal": "N",
        "limit_gap.rail.slide.upper": "m",
        "limit_force.rail.slide.upper": "N",
        "friction_force.brake.slide": "N",
    }
    assert {name: meaning.get(name) for name in units} == units
    reactions, _, contacts = Seen(open_run.drawable(run), all_instants=True).arrows(0)
    # The guide of the brake carries no force: the weight acts along it, and dry friction holds it.
    np.testing.assert_allclose(reactions.vectors[1:, reactions.labels.index("brake")], 0.0, atol=1e-5)
    assert contacts.labels == ("floor",)
    hit = int(np.nanargmax(contacts.vectors[:, 0, 1]))
    assert hit == 32  # in the step that ends at 0.32 s
    assert contacts.vectors[hit, 0, 1] > 900.0
    # The contact is halfway between the ball and the floor.
    gap = 0.5 * np.sqrt(10.0) * (0.32 - np.sqrt(0.1)) - 5.0 * (0.32 - np.sqrt(0.1)) ** 2
    np.testing.assert_allclose(contacts.starts[hit, 0], [0.0, gap / 2.0, 0.0], atol=1e-12)


def test_plots_show_friction_relative_to_the_normal_force():
    # Two contacts of a box share 10 N and slide with the coefficient 0.5. A ball is open, then it rests.
    time = np.linspace(0.0, 1.0, 11)
    force = np.zeros((1, 11, 3, 3))
    force[..., :2, :] = [[4.0, 2.0, 0.0], [6.0, 0.0, -3.0]]
    force[:, 6:, 2, 0] = 1.0
    force[:, 0] = np.nan  # No step ends at the start.
    data = xr.Dataset(
        {
            "status": (("world", "time"), np.zeros((1, 11), int)),
            "contact_gap": (("world", "time", "contact"), np.zeros((1, 11, 3))),
            "contact_force": (("world", "time", "contact", "axis"), force),
        },
        {"time": time, "pair": ("contact", ["box", "box", "ball"])},
    )
    config = Config.model_validate(yaml.safe_load(CONFIG))
    with styled() as figure_class:
        figure = plots.contacts(figure_class, config, data)
    _, normal, friction = figure.axes
    assert friction.get_ylabel() == "friction / normal force"
    box, ball = (line.get_ydata() for line in friction.get_lines()[:2])
    np.testing.assert_allclose(box[1:], 0.5)
    np.testing.assert_allclose(ball[1:], 0.0)
    np.testing.assert_allclose(normal.get_lines()[0].get_ydata()[1:], 10.0)
