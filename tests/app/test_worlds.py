"""Worlds of a config, blocks of steps, and the mapping of Andrews' mechanism from its seven angles to seven
bodies.
"""

import json
import pathlib

import jax
import numpy as np
import pytest
import two_devices
from small_runs import SWING

import jaxdae as library
from jaxdae.app import load, precision
from jaxdae.app.config.config_source import Document
from jaxdae.app.config.schema import Config
from jaxdae.app.model import build
from jaxdae.app.model.build import sample
from jaxdae.app.runs import energy_account, simulate

ROOT = pathlib.Path(__file__).parents[2]
ANDREWS = json.loads((ROOT / "tests" / "reference" / "ivptest_andrews.json").read_text())
FREE = """
name: free
mechanism:
  gravity: [0, -10]
  bodies:
    - {name: ball, mass: 2.0, inertia: 0.1, pose: [0, 1, 0], free: true}
  forces:
    - {type: force, name: wind, body: ball, point: [0, 0], force: [1, 0]}
integrator: {type: taylor, projection: none}
duration: 1
dt: 0.01
batch:
  size: 4
  vary:
    - {path: forces.wind.force.x, distribution: uniform, scatter: 0.5}
    - {path: bodies.ball.mass, std: 0.1}
"""

ONE_OF_EVERYTHING = """
name: everything
mechanism:
  bodies:
    - {name: crank, mass: 1, inertia: 0.1, pose: [0.25, 0, 0]}
    - {name: rod, mass: 1, inertia: 0.1, pose: [1.0, 0, 0]}
    - {name: slider, mass: 0.5, inertia: 0.1, pose: [1.5, 0, 0]}
    - {name: wheel, mass: 1, inertia: 0.1, pose: [0, 1, 0]}
    - {name: box, mass: 1, inertia: 0.1, pose: [1.7, 0.3, 0]}
    - {name: hanger, mass: 1, inertia: 0.1, pose: [1.7, -0.7, 0]}
    - {name: pin, mass: 1, inertia: 0.1, pose: [-1, 1, 0]}
    - {name: dangler, mass: 1, inertia: 0.1, pose: [-1, 0.5, 0]}
  joints:
    - {type: revolute, name: O, a: ground, b: crank, at: [0, 0], damping: 0.01}
    - {type: revolute, name: P, a: crank, b: rod, at: [0.5, 0]}
    - {type: revolute, name: Q, a: rod, b: slider, at: [1.5, 0]}
    - {type: prismatic, name: S, a: ground, b: slider, axis: [1, 0], at: [1.5, 0], damping: 0.1}
    - {type: revolute, name: W, a: ground, b: wheel, at: [0, 1]}
    - {type: gear, name: G, a: crank, b: wheel, ratio: -0.5}
    - {type: weld, name: B, a: slider, b: box, at: [1.6, 0.1]}
    - {type: rod, name: R, a: slider, b: hanger, at_a: [1.5, 0], at_b: [1.7, -0.7]}
    - {type: point_on_line, name: L, a: ground, b: pin, axis: [1, 1], at: [-1, 1]}
    - {type: prescribed_motion, name: drive, joint: O, motion: {type: polynomial, coefficients: [0, 6.0]}}
  forces:
    - {type: linear_spring, name: k, a: pin, b: dangler, at_a: [-1, 1], at_b: [-1, 0.6], stiffness: 50, damping: 0.5}
    - {type: linear_spring, name: k2, a: ground, b: pin, at_a: [-1.5, 1], at_b: [-1, 1], stiffness: 50}
    - {type: torsional_spring, name: c, a: ground, b: pin, stiffness: 2, damping: 0.1}
    - {type: torque, name: m, a: ground, b: wheel, torque: 0.1}
    - {type: force, name: f, body: dangler, point: [0, 0], force: [0.3, 0], body_frame: true}
    - {type: joint_force, name: jf, joint: S, force: -1}
start:
  velocities: {crank.theta: 6.0}
duration: 1
dt: 2e-3
"""


@pytest.fixture
def free(tmp_path):
    file = tmp_path / "free.yaml"
    file.write_text(FREE)
    return lambda *overrides: load(str(file), overrides)


def collect(config, worlds, block=7):
    blocks = []
    with precision(config):
        simulator = simulate.Simulator(config, block)
        summary = simulator.run(worlds, lambda instants, block: blocks.append((instants, block)))
    time = np.concatenate([instants for instants, _ in blocks])
    return (
        summary,
        time,
        {name: np.concatenate([b[name] for _, b in blocks], axis=1) for name in blocks[0][1]},
    )


@pytest.mark.long
def test_blocks_are_one_rollout_and_parabolas(free):
    config, worlds = free()
    # 100 steps in blocks of 7: the last block reaches beyond the end, and what is beyond is dropped.
    summary, time, found = collect(config, worlds, 7)
    np.testing.assert_allclose(time, np.linspace(0, 1, 101), rtol=0, atol=1e-14)
    whole = library.batch_rollout(
        worlds.system,
        worlds.integrator,
        worlds.state,
        dt=0.01,
        steps=100,
        in_axes=(worlds.system_axes, worlds.integrator_axes, 0, None),
    )
    # Sums of 100 steps of order 0.1: a few units of round-off.
    np.testing.assert_allclose(found["q"][:, 1:], whole.state.q, rtol=0, atol=1e-14)
    force, mass = (worlds.parameters[path][:, None] for path in ("forces.wind.force.x", "bodies.ball.mass"))
    np.testing.assert_allclose(found["q"][..., 0], force / mass * time**2 / 2, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        found["q"][..., 1], np.broadcast_to(1 - 5 * time**2, (4, 101)), rtol=0, atol=1e-13
    )
    assert summary.status == {"OK": 4}
    # The work of a constant force along a straight line is exact.
    assert summary.energy_balance_error < 1e-12 * summary.energy_exchanged


def test_work_is_counted_where_friction_acts_in_other_worlds_alone():
    hinge = {
        "type": "revolute",
        "name": "hinge",
        "a": "ground",
        "b": "arm",
        "point_a": [0, 0],
        "point_b": [-0.5, 0],
    }
    bodies = [{"name": "arm", "mass": 1.0, "inertia": 0.1, "pose": [0.5, 0.0, 0.0]}]
    given = {"name": "arm", "mechanism": {"bodies": bodies, "joints": [hinge]}, "duration": 0.1, "dt": 0.01}
    assert not energy_account.does_work(Config.model_validate(given))
    vary = {"path": "joints.hinge.friction", "distribution": "uniform", "low": 0.0, "high": 1.0}
    assert energy_account.does_work(Config.model_validate(given | {"batch": {"size": 2, "vary": [vary]}}))


def test_only_what_varies_is_stacked(free):
    _, worlds = free()
    assert worlds.system_axes.mass == 0
    assert worlds.system_axes.inertia is None
    assert worlds.system.inertia.shape == (1,)
    assert worlds.system.mass.shape == (4, 1)


def test_worlds_can_be_added_without_changing_the_others(free):
    small, large = (free(f"batch.size={size}")[0] for size in (4, 9))
    for few, many in zip(sample(small)[1], sample(large)[1], strict=True):
        np.testing.assert_array_equal(few, many[:4])
        assert len(set(many)) == 9
    force, mass = sample(large)[1]
    assert (force[0], mass[0]) == (1.0, 2.0)
    assert np.all(np.abs(force - 1) <= 0.5)
    other = sample(free("batch.seed=1")[0])[1]
    assert other[0][1] != force[1]


@pytest.mark.exhaustive
def test_the_start_is_in_the_results_and_follows_the_config(free):
    config, worlds = free("start.velocities={ball.x: 3}", "batch.size=1", "duration=0.02")
    _, time, found = collect(config, worlds)
    assert time[0] == 0
    assert found["v"][0, 0].tolist() == [3, 0, 0]
    np.testing.assert_allclose(found["a"][0, :, 1], -10)


@pytest.mark.long
def test_every_joint_and_force_can_be_written(tmp_path):
    file = tmp_path / "everything.yaml"
    file.write_text(ONE_OF_EVERYTHING)
    _, worlds = load(str(file))
    system, _, state = worlds.one()
    report = library.diagnose(system, state)
    # 4 hinges and a slide with 2 rows, a weld with 3; gear, rod, point on line and prescribed motion with 1.
    assert (report.coordinates, report.rank, report.mobility) == (24, 17, 7)
    # The crank turns as prescribed, the wheel at half its speed the other way.
    rates = dict(zip(system.coordinate_names, np.asarray(state.v), strict=True))
    assert (rates["crank.theta"], rates["wheel.theta"]) == pytest.approx((6.0, -3.0), abs=1e-12)


@pytest.fixture(scope="module")
def andrews():
    config, worlds = load(str(ROOT / "configs" / "squeezing_mechanism.yaml"), ("batch.size=1",))
    return config, *worlds.one()


def angles_of(values):
    beta, fe, gamma, ge, delta, he, epsilon = np.asarray(values).reshape(7, 3)[:, 2]
    return np.array([beta, fe - beta, gamma, ge - delta, delta, he - epsilon, epsilon])


@pytest.mark.long
def test_andrews_bodies_close_at_the_angles_of_the_reference(andrews):
    _, system, _, state = andrews
    assert system.body_names == ("crank", "link_fe", "triangle", "link_ge", "link_ga", "link_he", "link_ha")
    # The start angles of the reference are consistent to round-off.
    np.testing.assert_allclose(angles_of(state.q), ANDREWS["initial_conditions"]["q"], rtol=0, atol=2e-15)
    assert float(library.energy(system, state)) == pytest.approx(
        ANDREWS["reference"]["states"][0]["energy"], rel=1e-14
    )
    report = library.diagnose(system, state)
    assert (report.rank, report.mobility) == (20, 1)


@pytest.mark.exhaustive
def test_andrews_bodies_have_the_kinetic_energy_of_the_angles(andrews):
    """At a state in full motion, against v^T M v / 2 with the mass matrix of the reference."""
    _, system, _, state = andrews
    target = ANDREWS["reference"]["states"][3]
    beta, theta, gamma, phi, delta, omega, epsilon = target["q"]
    guess = np.array(state.q).reshape(7, 3)
    guess[:, 2] = [beta, beta + theta, gamma, phi + delta, delta, omega + epsilon, epsilon]
    rates = np.zeros((7, 3))
    rates[0, 2] = target["v"][0]
    angle = np.tile([False, False, True], 7)
    first = angle & (np.arange(21) < 3)
    moving, _ = library.initialize(
        system, guess.reshape(-1), rates.reshape(-1), fixed=first, fixed_velocity=first
    )
    np.testing.assert_allclose(angles_of(moving.q), target["q"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(angles_of(moving.v), target["v"], rtol=1e-11)
    kinetic = float(system.kinetic_energy(moving.q, moving.v))
    assert kinetic == pytest.approx(_kinetic_energy_of_angles(target["q"], target["v"]), rel=1e-11)
    assert float(library.energy(system, moving)) == pytest.approx(target["energy"], rel=1e-11)


def _kinetic_energy_of_angles(q, v):
    """Returns the kinetic energy from the mass matrix that the reference gives in words."""
    p = ANDREWS["parameters"]
    _, theta, _, phi, _, omega, _ = q
    mass = np.zeros((7, 7))
    mass[0, 0] = p["m1"] * p["ra"] ** 2 + p["I1"]
    mass[2, 2] = p["m3"] * (p["sa"] ** 2 + p["sb"] ** 2) + p["I3"]
    mass[4, 4] = p["m5"] * (p["ta"] ** 2 + p["tb"] ** 2) + p["I5"]
    mass[6, 6] = p["m7"] * (p["ua"] ** 2 + p["ub"] ** 2) + p["I7"]
    links = (
        (0, 1, p["m2"], p["I2"], p["rr"], -p["da"], np.cos(theta)),
        (4, 3, p["m4"], p["I4"], p["zt"], p["e"] - p["ea"], np.sin(phi)),
        (6, 5, p["m6"], p["I6"], p["u"], p["zf"] - p["fa"], -np.sin(omega)),
    )
    for i, j, m, inertia, a, b, c in links:
        mass[i, i] += m * (a**2 + 2 * a * b * c + b**2) + inertia
        mass[i, j] += m * (b**2 + a * b * c) + inertia
        mass[j, i] += m * (b**2 + a * b * c) + inertia
        mass[j, j] += m * b**2 + inertia
    return 0.5 * np.asarray(v) @ mass @ np.asarray(v)


@pytest.mark.parametrize("name", ["crank_rocker", "pendulum_drift"])
def test_the_shipped_configs_are_sound(name):
    config, worlds = load(str(ROOT / "configs" / f"{name}.yaml"))
    assert config.name == name
    assert float(worlds.closed.violation[0]) < 1e-14


@pytest.mark.long
def test_precision_is_set_for_a_while_only():
    before = jax.config.read("jax_enable_x64")
    config, _ = load(str(ROOT / "configs" / "pendulum_drift.yaml"), ("precision=float32",))
    with precision(config):
        assert jax.numpy.zeros(1).dtype == np.float32
    assert jax.config.read("jax_enable_x64") == before


@pytest.mark.long
def test_paths_name_elements_and_fall_back_to_numbers():
    document = Document("a", "a: [{name: x}, {name: x}, {name: y}]")
    assert document.path(("a", 2)) == "a.y"
    assert document.path(("a", 1, "name")) == "a.1.name"


@pytest.mark.long
def test_loops_that_are_closed_some_at_a_time(free, monkeypatch):
    """9 worlds, 4 at a time: the last four once more with one before them; results equal those of all at
    once, to the last bit.
    """
    _, whole = free("batch.size=9")
    monkeypatch.setattr(build, "_TOGETHER", 4)
    config, some = free("batch.size=9")
    leaves = [
        jax.tree.leaves_with_path((found.system, found.integrator, found.state, found.closed, found.guess))
        for found in (whole, some)
    ]
    for (path, one), (_, other) in zip(*leaves, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=str(path))
    assert jax.tree.leaves(some.system_axes) == jax.tree.leaves(whole.system_axes)
    np.testing.assert_array_equal(
        collect(config, some.part(3, 7))[2]["q"], collect(config, whole.part(3, 7))[2]["q"]
    )


# Worlds of a mechanism in which the compiler rounds otherwise where they do not fill its vectors.
SIZES = """
from jaxdae.app.xla_flags import for_small_programs
for_small_programs()
import numpy as np
from jaxdae.app.model.load_config import load
from jaxdae.app.config.precision import precision
from jaxdae.app.runs.simulate import Simulator

def simulated(first=0, threads=1, *given):
    found, (config, worlds) = [], load(CONFIG, given)
    with precision(config):
        Simulator(config, 30, threads=threads).run(worlds.part(first, 50), lambda instants, block: found.append(block))
    return {name: np.concatenate([block[name] for block in found], axis=1) for name in found[0]}

for precise in ("precision=float64", "precision=float32"):
    whole = simulated(0, 1, precise)
    for first, threads, *given in ((0, 2), (43, 1), (0, 1, "layout.chunk=7")):
        for name, x in simulated(first, threads, precise, *given).items():
            assert np.array_equal(x, whole[name][first:]), (precise, first, threads, given, name)
print("the same")
"""


@pytest.mark.exhaustive
def test_no_bit_of_a_world_depends_on_how_many_there_are(tmp_path):
    """Optimized as the command has it, which the other tests are not: 50 worlds, the last seven of them, in
    threads and in chunks.
    """
    config = tmp_path / "swing.yaml"
    config.write_text(SWING.replace("duration: 0.9", "duration: 3").replace("size: 100", "size: 50"))
    done = two_devices.run(SIZES.replace("CONFIG", repr(str(config))), count=1)
    assert done.stdout.strip() == "the same", done.stderr
