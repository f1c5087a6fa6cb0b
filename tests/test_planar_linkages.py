"""The planar linkages of `jaxdae.models` against closed forms and published facts."""

import functools
import pathlib
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae import models
from jaxdae.app.config.config_source import read
from jaxdae.app.config.schema import Config

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
ALL = {
    "jansen_leg": 1,
    "klann_leg": 1,
    "scissor_lift": 1,
    "excavator": 3,
    "parallel_gripper": 1,
    "cassie_leg": 5,
}
FEET = {"jansen_leg": ("foot", 0.245), "klann_leg": ("leg", 0.866)}
TURN = np.linspace(0.0, 2.0 * np.pi, 121)


def place(mechanism, q, body, x):
    """Returns the world position (2,) of the point (x, 0) of a body."""
    frame = jax.tree.map(lambda leaf: leaf[mechanism.body_names.index(body)], mechanism.frames(q))
    return frame.point(jnp.array([x, 0.0])).array()


@functools.cache
def walk(name):
    """Returns the coordinates (121, nq), positions of the foot (121, 2) and statuses over a turn of the crank."""
    mechanism, start = getattr(models, name)()

    @jax.jit
    @jax.vmap
    def pose(angle):
        state, info = jk.forward_kinematics(mechanism, {"motor": angle}, start)
        return state.q, place(mechanism, state.q, *FEET[name]), info.status

    return [np.asarray(x) for x in pose(TURN)]


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_loops_are_closed_at_the_start(name):
    mechanism, start = getattr(models, name)()
    found = jd.diagnose(mechanism, start)
    assert found.mobility == ALL[name]
    # Coordinates of the excavator are up to 7 m.
    assert found.violation < 1e-15 * max(1.0, float(mechanism.characteristic_length))


def meet(p, from_p, q, from_q):
    """Returns the intersection of two circles to the left of the line from p to q, by complex numbers."""
    line = q - p
    cosine = (abs(line) ** 2 + from_p**2 - from_q**2) / (2.0 * abs(line) * from_p)
    return p + from_p * line / abs(line) * np.exp(1j * np.arccos(cosine))


def jansen_foot(angle):
    """Returns the foot in units of the holy numbers; U, L, W, K are upper, lower, rear joint and knee."""
    crank, pivot = 15.0 * np.exp(1j * angle), -38.0 - 7.8j
    upper, lower = meet(pivot, 41.5, crank, 50.0), meet(crank, 61.9, pivot, 39.3)
    rear = meet(pivot, 40.1, upper, 55.8)
    return meet(lower, 49.0, meet(lower, 36.7, rear, 39.4), 65.7)


def flatness(feet, share):
    """Returns the least height range during a share of the turn, and the length of this part of the path."""
    count = round(share * (len(feet) - 1))
    twice = np.concatenate([feet[:-1], feet[1:]])
    ranges = np.array([np.ptp(twice[k : k + count], axis=0) for k in range(len(feet) - 1)])
    best = np.argmin(ranges[:, 1])
    return ranges[best, 1], ranges[best, 0]


@pytest.mark.long
@pytest.mark.parametrize("name", FEET)
def test_legs_stay_on_one_branch_over_a_turn(name):
    q, feet, status = walk(name)
    assert np.all(status == jd.Status.OK)
    np.testing.assert_allclose(feet[-1], feet[0], rtol=0, atol=1e-13)
    assert np.max(np.abs(np.diff(q[:, 1:], axis=0))) < 0.2


def test_the_foot_of_jansen_walks_on_a_flat_path():
    _, feet, _ = walk("jansen_leg")
    expected = np.array([jansen_foot(angle) for angle in TURN])
    np.testing.assert_allclose(feet / 0.01, np.stack([expected.real, expected.imag], axis=1), atol=1e-10)
    # The length of a step is 4.5 cranks, and half of the turn is flat to a tenth of a crank.
    assert abs(np.ptp(feet[:, 0]) / 0.01 - 67.9) < 0.1
    height, length = flatness(feet / 0.01, 0.5)
    assert height < 2.0
    assert length > 60.0
    assert np.ptp(feet[:, 1]) / 0.01 > 20.0


def test_the_foot_of_klann_walks_on_a_flat_path():
    _, feet, _ = walk("klann_leg")
    height, length = flatness(feet, 0.5)
    assert height < 0.06
    assert length > 0.99
    assert np.ptp(feet[:, 1]) > 0.5


@pytest.mark.long
@pytest.mark.parametrize("stages", [pytest.param(1, marks=pytest.mark.exhaustive), 3])
def test_the_height_of_the_lift_is_a_closed_form(stages):
    mechanism, start = models.scissor_lift(stages=stages)
    # The platform is a bar of 1.5 m from its pin, and the cylinder acts at 0.6 m and 0.9 m.
    length = jnp.array([0.4, 0.6, 0.85])

    @jax.jit
    @jax.vmap
    def lifted(length):
        state, info = jk.forward_kinematics(mechanism, {"cylinder": length}, start)
        return place(mechanism, state.q, "platform", -0.75), info.status

    places, status = lifted(length)
    assert np.all(status == jd.Status.OK)
    turn = np.arccos((0.6**2 + 0.9**2 - length**2) / (2.0 * 0.6 * 0.9))
    np.testing.assert_allclose(places[:, 1], stages * 1.5 * np.sin(turn), rtol=0, atol=1e-12)
    np.testing.assert_allclose(places[:, 0], 0.0, atol=1e-12)


@pytest.mark.exhaustive
def test_cylinders_of_the_excavator_have_the_lengths_of_triangles():
    mechanism, start = models.excavator()
    names = list(mechanism.names.coordinates)

    def slide(angles, name):
        _, state = models.excavator(angles=angles)
        return float(state.q[names.index(f"{name}.slide")])

    # The boom cylinder spans a triangle with the joint of the boom.
    base, end = 5.7 * abs(0.1 - 0.1j), 5.7 * abs(0.45 + 0.08j)
    for angle in (0.3, 0.6, 0.9):
        opening = angle + np.arctan2(0.08, 0.45) + np.pi / 4.0
        expected = np.sqrt(base**2 + end**2 - 2.0 * base * end * np.cos(opening))
        assert abs(slide((angle, angle - 1.6, angle - 2.3), "boom_cylinder") - expected) < 1e-14
    # The lengths of the cylinders determine the pose.
    angles = (0.7, -0.7, -1.6)
    lengths = {f"{x}_cylinder": slide(angles, f"{x}_cylinder") for x in ("boom", "arm", "bucket")}
    state, info = jax.jit(lambda x: jk.forward_kinematics(mechanism, x, start))(lengths)
    assert info.status == jd.Status.OK
    turns = [
        mechanism.frames(state.q).angle[mechanism.body_names.index(x)] for x in ("boom", "arm", "bucket")
    ]
    np.testing.assert_allclose(turns, angles, rtol=0, atol=1e-12)


@pytest.mark.long
def test_fingers_of_the_gripper_are_symmetric():
    mechanism, start = models.parallel_gripper()

    @jax.jit
    @jax.vmap
    def ends(angle):
        state, info = jk.forward_kinematics(mechanism, {"motor": angle}, start)
        fingers = [place(mechanism, state.q, f"{side}_finger", -0.04) for side in ("right", "left")]
        return jnp.stack(fingers), mechanism.frames(state.q).angle, info.status

    angles = np.array([0.6, 1.0, 1.4, 1.8])
    places, turns, status = ends(angles)
    assert np.all(status == jd.Status.OK)
    np.testing.assert_allclose(places[:, 0, 0] - places[:, 1, 0], 0.04 + 0.12 * np.cos(angles), atol=1e-13)
    np.testing.assert_allclose(places[:, 0, 0], -places[:, 1, 0], atol=1e-13)
    np.testing.assert_allclose(places[:, :, 1], 0.06 * np.sin(angles)[:, None] * np.ones(2), atol=1e-13)
    fingers = [mechanism.body_names.index(f"{side}_finger") for side in ("right", "left")]
    np.testing.assert_allclose(turns[:, fingers], np.pi / 2.0, atol=1e-13)


def chain(name, angles):
    """Returns position and axes of a body of the left leg of Cassie, from its hip on, as MJCF defines them."""
    tree = ElementTree.parse(CONFIGS.parent / "tests" / "reference" / "models" / "cassie.xml")
    parents = {child: body for body in tree.iter("body") for child in body.findall("body")}
    body = next(x for x in tree.iter("body") if x.get("name") == name)
    place, axes = np.zeros(3), np.eye(3)
    while body.get("name") != "left-hip-pitch":
        x, y = np.array(body.get("xyaxes", "1 0 0 0 1 0").split(), float).reshape(2, 3)
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
        cos, sin = np.cos(angles.get(body.get("name"), 0.0)), np.sin(angles.get(body.get("name"), 0.0))
        turn = np.stack([x, y, np.cross(x, y)], axis=1) @ [[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]]
        place = np.array(body.get("pos").split(), float) + turn @ place
        axes, body = turn @ axes, parents[body]
    return place, axes


def test_the_rod_of_cassie_couples_tarsus_and_knee_as_in_space():
    """The joints are at -45 degrees (knee) and 58 degrees (tarsus) in the file, where the rod closes."""
    socket, axes = chain("left-achilles-rod", {})
    heel, frame = chain("left-heel-spring", {})
    on_spring = frame.T @ (socket + 0.5012 * axes[:, 0] - heel)

    def opening(tarsus, knee):
        angles = {"left-knee": knee + np.pi / 4.0, "left-tarsus": tarsus - np.deg2rad(58.0)}
        place, axes = chain("left-heel-spring", angles)
        return np.linalg.norm(place + axes @ on_spring - socket) - 0.5012

    for knee in (-1.0, -1.6, -2.2):
        leg, start = models.cassie_leg(angles=(-1.0, knee, -1.6))
        found = float(start.q[leg.names.coordinates.index("tarsus.angle")])
        # The dimensions of the model have six digits.
        assert abs(found - brentq(opening, 0.6, 3.0, args=(knee,))) < 2e-6
        assert abs(np.rad2deg(found + knee) - 13.0) < 1.0


@pytest.mark.long
def test_springs_of_cassie_are_linear():
    leg, start = models.cassie_leg(gravity=(0.0, 0.0))
    names = ("hip", "knee", "foot", "shin", "heel_spring")
    angles = dict(zip(names, (-1.0, -1.4, -1.5, 0.05, -0.1), strict=True))

    @jax.jit
    def efforts(angles):
        state, info = jk.forward_kinematics(leg, angles, start)
        return jk.actuator_efforts(leg, state, jnp.zeros_like(state.v), names).efforts, info.status

    found, status = efforts(angles)
    assert status == jd.Status.OK
    np.testing.assert_allclose(found, [0.0, 0.0, 0.0, 1500.0 * 0.05, 1250.0 * -0.1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_configs_describe_the_default_models(name):
    mechanism, start = getattr(models, name)()
    described = Config.model_validate(read(str(CONFIGS / f"{name}.yaml")).data).mechanism
    assert tuple(body.name for body in described.bodies) == mechanism.body_names
    frames = mechanism.frames(start.q)
    poses = np.stack([frames.x, frames.y, np.mod(frames.angle, 2.0 * np.pi)], axis=1)
    given = np.array([body.pose for body in described.bodies])
    given[:, 2] = np.mod(given[:, 2], 2.0 * np.pi)
    np.testing.assert_allclose(given, poses, rtol=0, atol=1e-11)


def test_lengths_that_do_not_close_are_explained():
    numbers = [38.0, 41.5, 39.3, 40.1, 55.8, 39.4, 36.7, 65.7, 49.0, 5.0, 61.9, 7.8, 15.0]
    with pytest.raises(ValueError, match=r"b and j do not close the loop: got 0\.415 m and 0\.05 m between"):
        models.jansen_leg(numbers=numbers)
    with pytest.raises(ValueError, match="upper_rocker and leg do not close"):
        models.klann_leg(upper_rocker=0.1)
    with pytest.raises(ValueError, match="stages must be at least 1, got 0"):
        models.scissor_lift(stages=0)
    with pytest.raises(ValueError, match=r"the rods do not close the loop: got 0\.05 m and 0\.05 m between"):
        models.five_bar(rod_length=0.05)
    with pytest.raises(
        ValueError, match=r"the forearms of 0\.05 m do not reach the platform: the arms end 0\.37"
    ):
        models.delta(forearm_length=0.05)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("five_bar", "rod_length"),
        ("delta", "arm_length"),
        ("stewart", "height"),
        ("jansen_leg", "unit"),
        ("klann_leg", "crank"),
        ("scissor_lift", "reach"),
        ("excavator", "arm_length"),
        ("parallel_gripper", "base"),
        ("cassie_leg", "achilles_length"),
    ],
)
def test_lengths_must_be_positive(name, length):
    for value in (-0.3, 0.0, float("nan")):
        with pytest.raises(ValueError, match=f"{length} must be positive, got {value}"):
            getattr(models, name)(**{length: value})


def test_start_angles_in_degrees_raise_a_warning():
    with pytest.warns(
        jm.DescriptionWarning, match="the start angle is 20 rad; if it is in degrees, write 0.349066"
    ):
        models.scissor_lift(angle=20.0)


@pytest.mark.long
def test_lengths_have_derivatives():
    def step(j):
        numbers = jnp.array([38.0, 41.5, 39.3, 40.1, 55.8, 39.4, 36.7, 65.7, 49.0, 50.0, 61.9, 7.8, 15.0])
        mechanism, start = models.jansen_leg(numbers=numbers.at[9].set(j), angle=1.0)
        return place(mechanism, start.q, "foot", 0.245)

    h = 1e-4
    slope = (step(50.0 + h) - step(50.0 - h)) / (2.0 * h)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(step))(50.0), slope, rtol=1e-7)
