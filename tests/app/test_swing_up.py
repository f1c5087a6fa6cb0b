"""The experiment `swing_up` in small: a cart with a pole is nudged to a near target from two random starts."""

import importlib.util
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxdae
from jaxdae.app import load

ROOT = pathlib.Path(__file__).parents[2]
ROBOT, CART = (str(ROOT / "configs" / name) for name in ("swing_up.yaml", "swing_up_cart_pole.yaml"))
SMALL = (
    "integrator=midpoint",  # half of the stages, half of the time to compile
    "duration=1.2",
    "dt=0.06",
    "save_every=4",
    "experiment.knots=5",
    "experiment.starts=2",
    "experiment.guess=0.1",
    "experiment.coarse_dt=0.06",
    "experiment.iterations=12",
    "experiment.certificate_steps=10",
    "experiment.target={cart.x: 0.05, pole.theta: -1.6}",
)


@pytest.fixture(scope="module")
def experiment():
    spec = importlib.util.spec_from_file_location("swing_up", ROOT / "experiments" / "swing_up.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["swing_up"] = module  # its dataclasses look for their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["swing_up"]


@pytest.fixture(scope="module")
def cart(experiment):
    config, worlds = load(CART, SMALL)
    return config, experiment.Settings.model_validate(config.experiment), worlds


@pytest.fixture(scope="module")
def task(experiment, cart):
    return experiment.task_of(*cart)


@pytest.mark.long
def test_no_torque_can_pass_its_limit(task):
    z = jnp.array([[-1e3, -30.0, 0.0, 1.0, 1e3]])
    torques = task.torques(z)
    np.testing.assert_allclose(torques[0, :, 0], 10.0 * np.tanh(z[0] / 2.0), rtol=1e-14)
    assert float(jnp.max(jnp.abs(torques))) <= 10.0


def test_angles_are_compared_by_the_nearer_way_around_and_places_are_not(task):
    q = (
        jnp.zeros((3, 6))
        .at[:, 0]
        .set(7.0)
        .at[:, 5]
        .set(jnp.array([-1.5, -1.5 + 4.0 * np.pi, -1.7 - 2.0 * np.pi]))
    )
    away, rates = task.errors(q, 2.0 * jnp.ones((3, 6)))
    np.testing.assert_allclose(away, [[6.95, 0.1], [6.95, 0.1], [6.95, -0.1]], rtol=1e-12)
    np.testing.assert_array_equal(rates, 2.0)
    # The number of turns is a jump, which must not reach the derivative.
    slope = jax.jacfwd(lambda q: task.errors(q, q)[0])(q[1])
    np.testing.assert_array_equal(slope, np.eye(6)[np.array([0, 5])])


@pytest.mark.long
def test_the_robot_has_half_of_the_static_torque_and_rests_at_both_ends(experiment):
    config, worlds = load(ROBOT)
    settings = experiment.Settings.model_validate(config.experiment)
    robot = experiment.task_of(config, settings, worlds)
    # With parallel cranks the forearms are moved but not turned: each motor carries half of a crank and a
    # forearm.
    static = 9.81 * (0.5 * 0.09 + 0.4 * 0.18)
    np.testing.assert_allclose(experiment.static_torques(robot, settings.held), static, rtol=1e-9)
    np.testing.assert_allclose(robot.limits, static / 2.0, rtol=1e-5)
    for goal in (
        dict(zip(("left.theta", "right.theta"), np.asarray(robot.start.q)[robot.entries], strict=True)),
        settings.target,
    ):
        assert np.abs(experiment.static_torques(robot, goal)).max() < 1e-5 * static


@pytest.mark.exhaustive
def test_a_target_is_reached_and_everything_is_written(experiment, monkeypatch, tmp_path, capsys):
    arguments = [part for change in SMALL for part in ("--set", change)]
    monkeypatch.setattr(sys, "argv", ["swing_up.py", CART, *arguments, "--out", str(tmp_path)])
    monkeypatch.setattr(experiment, "REPEATS", 1)
    assert experiment.main() == 0
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == {
        "config.yaml",
        "swing_up.png",
        "swing_up.gif",
        "swing_up.zarr",
        "report.md",
        "run.json",
    }
    found = json.loads((folder / "run.json").read_text())
    assert found["successes"] == found["starts"] == 2
    assert found["gradient"]["passed"]
    assert found["gradient"]["modes_error"] < 1e-10
    assert "**2 of 2** random starts swing up; limits kept by 2" in (folder / "report.md").read_text()
    assert "2 of 2 random starts" in capsys.readouterr().out
    with xr.open_zarr(folder / "swing_up.zarr", consolidated=False) as data:
        # The written motions end where they should, and begin at rest where the config says.
        end = data.isel(time=-1).sel(coordinate=["cart.x", "pole.theta"])
        np.testing.assert_allclose(end.q, np.broadcast_to([0.05, -1.6], (2, 2)), rtol=0, atol=1e-9)
        np.testing.assert_allclose(end.v, 0.0, rtol=0, atol=1e-8)
        np.testing.assert_array_equal(data.v.isel(time=0), 0.0)
        np.testing.assert_allclose(data.q.isel(time=0).sel(coordinate="pole.theta"), -np.pi / 2)
        np.testing.assert_allclose(data.time, [0.0, 0.24, 0.48, 0.72, 0.96, 1.2])
        assert float(abs(data.torque).max()) < 10.0
        # Different starts find different forces.
        assert float(abs(data.torque[0] - data.torque[1]).max()) > 1e-3
        assert float(data.violation.max()) < 1e-12
        assert int(data.status.max()) == jaxdae.Status.OK


def test_mistakes_are_named(experiment, cart):
    config, settings, worlds = cart
    for change, message in (
        ({"motors": {"engine": 1.0}}, "motors: no force is called 'engine'; there is: motor"),
        (
            {"target": {"pole.phi": 1.0}},
            "experiment.target: no coordinate is called 'pole.phi'; there is: cart.x",
        ),
        ({"held": {"cart": 1.0}}, "experiment.held: no coordinate is called 'cart'"),
        (
            {"coarse_dt": 0.07},
            "experiment.coarse_dt: 1.2 s must be a whole number of steps of 0.07 s, a multiple of 5 knots",
        ),
        ({"knots": 3}, "dt: 1.2 s must be a whole number of steps of 0.06 s, a multiple of 3 knots"),
        ({"certificate_steps": 12}, "experiment.certificate_steps: 12 must be a multiple of 5 knots"),
    ):
        with pytest.raises(ValueError, match=message):
            experiment.task_of(config, settings.model_copy(update=change), worlds)


@pytest.mark.long
def test_mistakes_in_the_settings_end_with_their_place(experiment, monkeypatch, tmp_path, capsys):
    for change, message in (
        ("experiment.guess=1.5", "experiment.guess: Input should be less than 1"),
        ("experiment.motors={engine: 1}", "motors: no force is called 'engine'"),
    ):
        monkeypatch.setattr(sys, "argv", ["swing_up.py", CART, "--set", change, "--out", str(tmp_path)])
        assert experiment.main() == 2
        assert message in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.iterdir())
