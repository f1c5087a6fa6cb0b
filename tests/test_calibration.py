"""Geometric calibration against closed forms, and its intervals against samples."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae import models
from jaxdae.kinematics.calibration_fit import t_quantile
from jaxdae.kinematics.geometric_parameters import corrected, encoder_offset, joint_parameter

MOTORS = ("motor1", "motor2")
BASE, CRANK, ROD = 0.3, 0.25, 0.35
LENGTHS = tuple(f"joints.elbow{k}.{point}" for k in (1, 2) for point in ("point_a", "point_b"))
READINGS = np.stack(np.meshgrid(np.linspace(1.3, 2.2, 5), np.linspace(0.9, 1.8, 4)), axis=-1).reshape(-1, 2)


def tips(angles, cranks=(CRANK, CRANK), rods=(ROD, ROD)):
    """Returns the positions (n, 2) of the tip of a five-bar from the intersection of two circles."""
    elbows = [
        np.array([x, 0.0]) + crank * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        for x, crank, turn in zip((-BASE / 2.0, BASE / 2.0), cranks, np.asarray(angles).T, strict=True)
    ]
    across = elbows[1] - elbows[0]
    width = np.linalg.norm(across, axis=1, keepdims=True)
    along = (width**2 + rods[0] ** 2 - rods[1] ** 2) / (2.0 * width)
    height = np.sqrt(rods[0] ** 2 - along**2)
    return elbows[0] + (along * across + height * np.stack([-across[:, 1], across[:, 0]], axis=1)) / width


def calibrate(positions, parameters=LENGTHS, readings=READINGS, **options):
    linkage, start = models.five_bar()
    tool = jk.PoseTarget("rod1", position=positions, point=(ROD / 2.0, 0.0))
    actuated = dict(zip(MOTORS, np.asarray(readings).T, strict=True))
    return jk.calibrate(linkage, actuated, tool, start, parameters, **options)


@functools.cache
def exact():
    """The calibration of a five-bar whose links and encoders differ, from exact positions."""
    cranks, rods = (CRANK + 0.004, CRANK - 0.003), (ROD + 0.006, ROD - 0.005)
    return calibrate(tips(READINGS + np.array([0.01, -0.02]), cranks, rods), offsets=MOTORS)


@pytest.mark.long
def test_lengths_and_offsets_of_a_five_bar_are_exact():
    found = exact()
    x = dict(zip(found.names, found.correction, strict=True))
    assert found.status == jd.Status.OK
    assert found.freedom == 40 - 6
    for k, crank, rod, offset in ((1, 0.004, 0.006, 0.01), (2, -0.003, -0.005, -0.02)):
        elbow = CRANK + x[f"joints.elbow{k}.point_a.x"], x[f"joints.elbow{k}.point_a.y"]
        end = ROD - x[f"joints.elbow{k}.point_b.x"], x[f"joints.elbow{k}.point_b.y"]
        # The y of point_a and the offset both turn the crank.
        turn = np.arctan2(elbow[1], elbow[0]) + found.offsets[f"motor{k}"]
        found_here = (np.hypot(*elbow) - CRANK, np.hypot(*end) - ROD, turn)
        np.testing.assert_allclose(found_here, (crank, rod, offset), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)


def test_the_calibrated_mechanism_reaches_the_measured_positions():
    found, angles = exact(), READINGS[7]
    _, start = models.five_bar()
    motors = {name: angle + found.offsets[name] for name, angle in zip(MOTORS, angles, strict=True)}
    state, info = jk.forward_kinematics(found.mechanism, motors, start)
    tip = found.mechanism.frames(state.q)
    body = found.mechanism.body_names.index("rod1")
    place = jax.tree.map(lambda x: x[body], tip).point(jnp.array([ROD / 2.0, 0.0])).array()
    expected = tips(READINGS + np.array([0.01, -0.02]), (0.254, 0.247), (0.356, 0.345))[7]
    assert info.status == jd.Status.OK
    np.testing.assert_allclose(place, expected, rtol=0, atol=1e-12)


def test_directions_without_effect_on_the_tip_are_reported():
    found = exact()
    names, size = list(found.names), float(models.five_bar()[0].characteristic_length)
    assert found.identifiable.sum() == 6
    rows = []
    for k in (1, 2):
        # The rod turns about its end at the tip.
        rows.append(np.eye(10)[names.index(f"joints.elbow{k}.point_b.y")])
        # The elbow moves along its circle, against the offset.
        row = np.zeros(10)
        row[names.index(f"joints.elbow{k}.point_a.y")] = CRANK / size
        row[names.index(f"offsets.motor{k}")] = -1.0
        rows.append(row / np.linalg.norm(row))
    free = np.asarray(found.directions)[~np.asarray(found.identifiable)]
    np.testing.assert_allclose(free.T @ free, np.stack(rows).T @ np.stack(rows), atol=1e-9)
    fixed = [name for name, error in zip(names, found.standard_error, strict=True) if np.isfinite(error)]
    assert fixed == [f"joints.elbow{k}.point_{side}.x" for k in (1, 2) for side in "ab"]
    # The solution has no component along them.
    scale = np.where(np.array(found.units) == "m", size, 1.0)
    np.testing.assert_allclose(free @ (found.correction / scale), 0.0, atol=1e-12)


def test_intervals_without_information_are_infinite():
    found = dataclasses.replace(exact(), freedom=jnp.array(0), standard_error=jnp.full((10,), jnp.inf))
    low, high = found.interval()
    assert np.all(np.isneginf(low))
    assert np.all(np.isposinf(high))


@pytest.mark.long
def test_forward_kinematics_has_derivatives_by_lengths():
    linkage, start = models.five_bar()
    chosen = (joint_parameter(linkage, "joints.elbow1.point_a.x"),)

    def tip(crank):
        motors = dict(zip(MOTORS, READINGS[7], strict=True))
        state, _ = jk.forward_kinematics(corrected(linkage, chosen, crank[None]), motors, start)
        turn = state.q[0] + state.q[2]
        links = jnp.stack([CRANK + crank, jnp.asarray(ROD)])
        angles = jnp.stack([state.q[0], turn])
        return jnp.stack([links @ jnp.cos(angles), links @ jnp.sin(angles)])

    h = 1e-4  # h^2 = 1e-8 of third derivatives of some 10 per m^2, against rounding / h.
    below, above = (tips(READINGS[7:8], (CRANK + step, CRANK))[0] for step in (-h, h))
    slope = jax.jit(jax.jacfwd(tip))(jnp.zeros(()))
    np.testing.assert_allclose(slope, (above - below) / (2.0 * h), rtol=1e-6)


def noisy(key, count=None):
    """Returns measured positions (n, 2) with errors of 0.1 mm, of a five-bar with errors of the links."""
    positions = tips(READINGS, (CRANK + 4e-4, CRANK - 3e-4), (ROD + 6e-4, ROD - 5e-4))
    shape = positions.shape if count is None else (count, *positions.shape)
    return positions + 1e-4 * jax.random.normal(jax.random.key(key), shape)


TRUTH = {"joints.elbow1.point_a.x": 4e-4, "joints.elbow2.point_a.x": -3e-4}
TRUTH |= {"joints.elbow1.point_b.x": -6e-4, "joints.elbow2.point_b.x": 5e-4}


def errors(found):
    """Returns the errors (..., 4) of the identifiable corrections, and their standard errors."""
    here = np.array([found.names.index(name) for name in TRUTH])
    return found.correction[..., here] - np.array(list(TRUTH.values())), found.standard_error[..., here]


@pytest.mark.long
def test_outliers_are_found_and_have_little_influence():
    positions = np.array(noisy(0))
    clean = calibrate(positions, offsets=MOTORS)
    assert not clean.outlier.any()
    bad = np.zeros(len(positions), bool)
    bad[[3, 11, 16]] = True
    positions[bad] += np.array([[0.03, 0.0], [0.0, -0.02], [0.02, 0.02]])
    found = calibrate(positions, offsets=MOTORS)
    np.testing.assert_array_equal(found.outlier, bad)
    error, deviation = errors(found)
    assert np.max(np.abs(error) / deviation) < 3.0
    assert np.max(deviation / errors(clean)[1]) < 2.5
    assert found.status == jd.Status.OK
    assert found.weight[bad].min(axis=1).max() < 0.02


def angles_of_rod():
    """Returns the angles (n,) of rod 1 of the five-bar of `noisy`, from the intersection of two circles."""
    crank = CRANK + 4e-4
    tip = tips(READINGS, (crank, CRANK - 3e-4), (ROD + 6e-4, ROD - 5e-4)) + np.array([BASE / 2.0, 0.0])
    first = READINGS[:, 0]
    return np.arctan2(tip[:, 1] - crank * np.sin(first), tip[:, 0] - crank * np.cos(first))


def calibrate_with(target, parameters=LENGTHS, offsets=()):
    linkage, start = models.five_bar()
    actuated = dict(zip(MOTORS, READINGS.T, strict=True))
    options = {"offsets": offsets, "standard_deviation": 1e-4}
    return jk.calibrate(linkage, actuated, target, start, parameters, **options)


@pytest.mark.long
def test_exact_angles_do_not_turn_noisy_positions_into_outliers():
    positions = np.array(noisy(4))
    bad = np.zeros(len(positions), bool)
    bad[[3, 11]] = True
    positions[bad] += np.array([[0.03, 0.0], [0.0, -0.02]])
    tool = jk.PoseTarget("rod1", position=positions, orientation=angles_of_rod(), point=(ROD / 2.0, 0.0))
    found = calibrate_with(tool, offsets=MOTORS)
    assert found.status == jd.Status.OK
    np.testing.assert_array_equal(found.outlier, bad)
    # Most weights of both groups are 1.
    assert np.all(np.median(found.weight, axis=0) == 1.0)
    assert found.weight[bad].min(axis=1).max() < 0.02
    error, deviation = errors(found)
    assert np.max(np.abs(error) / deviation) < 3.0


@pytest.mark.exhaustive
def test_exact_numbers_do_not_change_the_weights_of_their_group():
    turn = angles_of_rod() - READINGS[:, 0] + 1e-4 * jax.random.normal(jax.random.key(5), (20,))
    parameters = [f"joints.elbow{k}.point_a.x" for k in (1, 2)]
    # The angle of the motor equals its reading, up to rounding errors.
    both = calibrate_with(jk.JointTarget({"motor2": READINGS[:, 1] + 1e-15, "elbow1": turn}), parameters)
    assert not both.outlier.any()
    np.testing.assert_array_equal(both.weight[:, 1], 1.0)
    assert np.median(both.weight[:, 0]) == 1.0
    one = calibrate_with(jk.JointTarget({"elbow1": turn}), parameters)
    np.testing.assert_allclose(both.standard_error, one.standard_error, rtol=0.1)


def test_held_out_poses_do_not_change_the_fit():
    positions = np.array(noisy(1))
    held = np.arange(len(positions)) % 4 == 0
    first = calibrate(positions, offsets=MOTORS, held_out=held, standard_deviation=1e-4)
    assert 0.6 < first.sigma < 1.4
    assert 0.5 < first.held_out_rms < 2.0
    assert first.freedom == 30 - 6
    assert not first.weight[held].any()
    positions[held] += 0.01
    second = calibrate(positions, offsets=MOTORS, held_out=held, standard_deviation=1e-4)
    np.testing.assert_array_equal(first.correction, second.correction)
    assert second.held_out_rms > 50.0
    assert second.outlier[held].all()


def test_unreachable_poses_are_reported_and_excluded():
    positions, readings = np.array(noisy(2)), READINGS.copy()
    readings[5] = 2.9, 0.2
    found = calibrate(positions, offsets=MOTORS, readings=readings)
    assert found.pose_status[5] == jd.Status.UNREACHABLE
    assert found.outlier[5]
    assert not found.weight[5].any()
    assert found.status == jd.Status.OK
    error, deviation = errors(found)
    assert np.max(np.abs(error) / deviation) < 3.5


@pytest.mark.long
@pytest.mark.parametrize("robust", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_intervals_agree_with_samples(robust):
    fit = jax.jit(jax.vmap(lambda x: calibrate(x, offsets=MOTORS, robust=robust)))
    found = fit(noisy(3, 400))
    error, deviation = errors(found)
    assert jnp.all(found.status == jd.Status.OK)
    np.testing.assert_allclose(np.std(error, axis=0), np.median(deviation, axis=0), rtol=0.12)
    low, high = found.interval(0.95)
    here = np.array([found.names.index(name) for name in TRUTH])
    truth = np.array(list(TRUTH.values()))
    share = np.mean((low[:, here] <= truth) & (truth <= high[:, here]), axis=0)
    # Three standard deviations of a share of 400.
    assert np.all(np.abs(share - 0.95) < 0.033), share


@pytest.mark.exhaustive
def test_intervals_contain_the_truth_if_angles_are_exact():
    angles = angles_of_rod()

    def one(positions):
        tool = jk.PoseTarget("rod1", position=positions, orientation=angles, point=(ROD / 2.0, 0.0))
        return calibrate_with(tool, offsets=MOTORS)

    found = jax.jit(jax.vmap(one))(noisy(3, 400))
    assert jnp.all(found.status == jd.Status.OK)
    error, deviation = errors(found)
    # The standard deviation of 400 samples has an error of 3.5 %.
    ratio = np.median(deviation, axis=0) / np.std(error, axis=0)
    assert np.all((ratio > 0.9) & (ratio < 1.2)), ratio
    share = np.mean(np.abs(error) <= t_quantile(0.95, found.freedom)[:, None] * deviation, axis=0)
    assert np.all(share > 0.95 - 0.033), share
    assert np.mean(found.outlier) < 0.01


@pytest.mark.exhaustive
def test_axes_of_a_delta_robot_are_exact():
    robot, start = models.delta()
    motors = ("motor1", "motor2", "motor3")
    paths = (*(f"joints.forearm{k}a.length" for k in (1, 2, 3)), *(f"joints.{x}.axes_a" for x in motors))
    chosen = tuple(joint_parameter(robot, path) for path in paths)
    # The rotation about the motor axis is zero, because no encoder offset is calibrated.
    truth = jnp.array([3e-4, -2e-4, 1e-4, 3e-3, -2e-3, 0.0, -3e-3, 1e-3, 0.0, 2e-3, 2e-3, 0.0])
    real = jax.jit(lambda x: corrected(robot, chosen, x))(truth)
    readings = jax.random.uniform(jax.random.key(0), (12, 3), minval=-0.2, maxval=0.9)

    @jax.jit
    @jax.vmap
    def pose(angles):
        state, info = jk.forward_kinematics(real, dict(zip(motors, angles, strict=True)), start)
        indices = [
            robot.names.coordinates.index(f"platform.{x}") for x in ("x", "y", "z", "qw", "qx", "qy", "qz")
        ]
        return state.q[jnp.array(indices)], info.status

    poses, status = pose(readings)
    assert jnp.all(status == jd.Status.OK)
    tool = jk.PoseTarget("platform", position=poses[:, :3], orientation=poses[:, 3:])
    found = jk.calibrate(robot, dict(zip(motors, readings.T, strict=True)), tool, start, paths)
    assert found.status == jd.Status.OK
    np.testing.assert_allclose(found.correction, truth, rtol=0, atol=1e-9)
    axes, copies = (
        found.mechanism.carrying["revolute"].axes_a,
        found.mechanism.forces["joint_force_revolute_0"],
    )
    np.testing.assert_array_equal(axes, copies.joint.axes_a)
    np.testing.assert_allclose(axes @ axes.mT, np.broadcast_to(np.eye(3), (3, 3, 3)), atol=1e-14)


def test_directions_stay_unit_vectors():
    bodies = [jm.Body("cart", 1.0, 0.1)]
    slide = jm.Prismatic("slide", "ground", "cart", (1.0, 0.0), at=(0.0, 0.0))
    mechanism, _ = jm.planar_mechanism(bodies, [slide], coordinates=jm.Joints())
    chosen = (joint_parameter(mechanism, "joints.slide.axis"), encoder_offset(mechanism, ["slide"], "slide"))
    assert [x.entries for x in chosen] == [("joints.slide.axis",), ("offsets.slide",)]
    assert [x.unit for x in chosen] == ["rad", "m"]
    axis = jd.tree.get_leaf(corrected(mechanism, chosen, jnp.array([0.3, 0.1])), "joints.slide.axis")
    np.testing.assert_allclose(axis, [np.cos(0.3), np.sin(0.3)], atol=1e-15)


def test_quantiles_are_those_of_student():
    level, freedom = np.array([[0.5], [0.95], [0.999]]), np.array([1, 4, 30, 318])
    expected = scipy.stats.t.ppf(0.5 + 0.5 * level, freedom)
    np.testing.assert_allclose(t_quantile(level, freedom), expected, rtol=1e-9)


@pytest.mark.long
def test_mistakes_are_explained():
    positions = np.zeros((20, 2))
    for message, options in (
        ("parameters: 'bodies.rod1.mass' acts on motor efforts only", {"parameters": ["bodies.rod1.mass"]}),
        ("unknown parameter, or zero for every", {"parameters": ["joints.elbow1.length"]}),
        ("each of them once", {"parameters": [*LENGTHS, f"{LENGTHS[0]}.x"]}),
        ("point_a.z' is not a point", {"parameters": [f"{LENGTHS[0]}.z"]}),
        ("name at least one parameter", {"parameters": []}),
        ("offsets: 'elbow1' is not in actuated", {"offsets": ["elbow1"]}),
        (r"held_out must have shape \(20,\)", {"held_out": [True]}),
        (r"standard_deviation must have shape \(\) or \(2,\)", {"standard_deviation": np.ones(3)}),
        ("one entry per pose", {"readings": READINGS[:3]}),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(positions, **options)
