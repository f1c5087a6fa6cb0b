"""Kinematics of closed chains against closed forms, differences and forward dynamics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae import models
from jaxdae.mechanisms import spatial as js

ARM, FOREARM, INWARD = 0.25, 0.5, 0.06 - 0.2


def delta_angles(p):
    """Returns the motor angles of the Delta robot for a position of its platform, with elbows outward.

    The elbow is at the distance b from the platform: u cos x - z sin x = (u^2 + s^2 + z^2 + a^2 - b^2) / (2 a),
    with the components u outward and s sideways of the arm.
    """
    turns = 2.0 * np.pi * np.arange(3) / 3.0
    u = p[0] * np.cos(turns) + p[1] * np.sin(turns) + INWARD
    s = p[1] * np.cos(turns) - p[0] * np.sin(turns)
    k = (u**2 + s**2 + p[2] ** 2 + ARM**2 - FOREARM**2) / (2.0 * ARM)
    return -np.arctan2(p[2], u) - np.arccos(k / np.hypot(u, p[2]))


def of(mechanism, *names):
    return np.array([mechanism.names.coordinates.index(name) for name in names])


@functools.cache
def delta():
    robot, start = models.delta()
    return robot, start, of(robot, "motor1.angle", "motor2.angle", "motor3.angle")


@pytest.mark.long
def test_delta():
    robot, start, motors = delta()

    @jax.jit
    @jax.vmap
    def pose(p):
        def angles(p):
            state, info = jk.inverse_kinematics(robot, jk.PoseTarget("platform", p), start)
            return state.q[motors], (state.q[motors], info)

        return jax.jacfwd(angles, has_aux=True)(p)

    places = np.random.default_rng(0).uniform((-0.15, -0.15, -0.55), (0.15, 0.15, -0.35), (31, 3))
    places[-1] = (0.0, 0.0, -1.0)  # Out of reach: the legs are straight.
    slopes, (found, info) = pose(jnp.array(places))
    assert list(info.status) == [jd.Status.OK] * 30 + [jd.Status.UNREACHABLE]
    # Newton's iteration ends at rounding, which the Jacobian amplifies by some 10.
    angles = np.array([delta_angles(p) for p in places[:30]])
    np.testing.assert_allclose(found[:30], angles, rtol=0, atol=1e-12)
    differences = [
        [(delta_angles(p + h) - delta_angles(p - h)) / 2e-5 for h in 1e-5 * np.eye(3)] for p in places[:30]
    ]
    # h^2 = 1e-10 of third derivatives of some 10, and rounding / h.
    np.testing.assert_allclose(slopes[:30], np.swapaxes(differences, 1, 2), rtol=0, atol=1e-7)
    assert float(jnp.max(info.violation)) < 1e-12
    lowest = -np.sqrt((ARM + FOREARM) ** 2 - INWARD**2)
    # The platform is accurate to second order in the angles, which are at rounding^0.5.
    np.testing.assert_allclose(info.error[30], [0.0, 0.0, 1.0 + lowest], rtol=0, atol=1e-9)


@pytest.mark.long
def test_efforts_along_a_path_of_the_delta_robot():
    robot, start, _ = delta()

    def path(t):
        return jk.PoseTarget("platform", jnp.array([0.1 * jnp.cos(3 * t), 0.1 * jnp.sin(2 * t), -0.45]))

    h = 1e-4
    moved = jk.follow(robot, path, start, jnp.array([0.3 - h, 0.3, 0.3 + h]))
    assert not np.any(moved.info.status)
    q, v = moved.state.q, moved.state.v
    # h^2 = 1e-8 of derivatives of some 30.
    ahead, behind = (robot.difference(q[1], q[k]) for k in (2, 0))
    np.testing.assert_allclose(v[1], (ahead - behind) / (2 * h), rtol=0, atol=1e-6)
    np.testing.assert_allclose(moved.a[1], (v[2] - v[0]) / (2 * h), rtol=0, atol=1e-5)
    state = jax.tree.map(lambda x: x[1], moved.state)
    found = jk.actuator_efforts(robot, state, moved.a[1], ("motor1", "motor2", "motor3"))
    # Efforts of some 10 N m, at rounding times a condition number of 100.
    np.testing.assert_allclose(found.residual, 0.0, atol=1e-12)
    a, lam = jd.forward_dynamics(robot, state, tau=found.force)
    np.testing.assert_allclose(a, moved.a[1], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(lam, found.lam, rtol=1e-12, atol=1e-11)
    a, _ = jd.forward_dynamics(robot, state, found.efforts)  # The motors are the inputs.
    np.testing.assert_allclose(a, moved.a[1], rtol=1e-12, atol=1e-11)


def leg_lengths(p, quaternion):
    """Returns the distances (6,) of the anchors of the Stewart platform."""
    side, turns = np.array([1, -1] * 3), 2.0 * np.pi / 3.0 * np.array([0, 1, 1, 2, 2, 3])
    low, up = (
        radius * np.stack([np.cos(angle), np.sin(angle), 0 * angle])
        for radius, angle in ((0.5, turns + 0.25 * side), (0.3, turns + (np.pi / 3.0 - 0.25) * side))
    )
    return np.linalg.norm(p[:, None] + np.asarray(jd.rotation.rotation_matrix(quaternion)) @ up - low, axis=0)


@pytest.mark.exhaustive
def test_stewart_platform():
    robot, start = models.stewart()
    names = [f"leg{k}.slide" for k in range(1, 7)]
    legs = of(robot, *names)
    np.testing.assert_allclose(
        start.q[legs], leg_lengths(np.array([0.0, 0.0, 0.6]), jnp.eye(4)[0]), rtol=1e-14
    )

    @jax.jit
    @jax.vmap
    def pose(p, quaternion):
        target = jk.PoseTarget("platform", p, quaternion)
        return jk.inverse_kinematics(robot, target, start)

    random = np.random.default_rng(1)
    places = random.uniform((-0.2, -0.2, 0.5), (0.2, 0.2, 0.8), (20, 3))
    turns = jax.vmap(jd.rotation.quat_exp)(jnp.array(random.uniform(-0.4, 0.4, (20, 3))))
    found, info = pose(jnp.array(places), turns)
    assert not np.any(info.status)
    lengths = [leg_lengths(*both) for both in zip(places, turns, strict=True)]
    np.testing.assert_allclose(found.q[:, legs], lengths, rtol=0, atol=1e-12)
    # From the lengths back to the pose, on the branch of the start.
    back, info = jk.forward_kinematics(robot, dict(zip(names, lengths[0], strict=True)), start)
    assert int(info.status) == 0
    np.testing.assert_allclose(robot.frames(back.q)[0][0], places[0][0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(back.q, found.q[0], rtol=0, atol=1e-11)


@pytest.mark.long
def test_derivative_with_respect_to_a_length():
    """Motor angles of the five-bar by the law of cosines, elbows outward."""

    def angles(a, p=np.array([0.05, 0.4]), rod=0.35):
        x, y = p[0] + np.array([0.15, -0.15]), p[1]
        inner = np.arccos((x**2 + y**2 + a**2 - rod**2) / (2.0 * a * np.hypot(x, y)))
        return np.arctan2(y, x) + np.array([1.0, -1.0]) * inner

    @jax.jit
    def found(a):
        linkage, start = models.five_bar(crank_length=a)
        target = jk.PoseTarget("rod1", (0.05, 0.4), point=(0.175, 0.0))
        motors = of(linkage, "motor1.angle", "motor2.angle")
        return jk.inverse_kinematics(linkage, target, start)[0].q[motors]

    value, slope = jax.jvp(found, (jnp.array(0.25),), (jnp.array(1.0),))
    np.testing.assert_allclose(value, angles(0.25), rtol=0, atol=1e-12)
    # h^2 = 1e-10 of third derivatives of some 100.
    difference = (angles(0.25 + 1e-5) - angles(0.25 - 1e-5)) / 2e-5
    np.testing.assert_allclose(slope, difference, rtol=0, atol=1e-7)


@pytest.mark.long
def test_branches():
    """Each motor has two angles for a position of the tip."""
    linkage, start = models.five_bar()
    target = jk.PoseTarget("rod1", (0.05, 0.4), point=(0.175, 0.0))
    starts = start.q + np.random.default_rng(3).normal(size=(32, start.q.size))
    found = jk.branches(linkage, target, starts)
    labels, turns = (
        np.asarray(found.label),
        np.asarray(found.state.q)[:, of(linkage, "motor1.angle", "motor2.angle")],
    )
    assert set(labels) - {-1} == set(range(4))
    x, y = 0.05 + np.array([0.15, -0.15]), 0.4
    inner = np.arccos((x**2 + y**2 + 0.25**2 - 0.35**2) / (0.5 * np.hypot(x, y)))
    expected = {
        tuple(np.round(np.arctan2(y, x) + np.array([a, b]) * inner, 9)) for a in (1, -1) for b in (1, -1)
    }
    for k in range(4):
        one = turns[labels == k]
        wrapped = np.arctan2(np.sin(one), np.cos(one))
        np.testing.assert_allclose(wrapped, wrapped[:1].repeat(len(one), 0), rtol=0, atol=1e-10)
        expected.remove(tuple(np.round(wrapped[0], 9)))
    assert not expected


# The platform of P. Dietmaier, "The Stewart-Gough platform of general geometry can have 40 real postures",
# Advances in Robot Kinematics (1998): anchors on the base and on the platform, and lengths of the legs.
BASE = np.array(
    [
        (0.0, 0.0, 0.0),
        (1.107915, 0.0, 0.0),
        (0.549094, 0.756063, 0.0),
        (0.735077, -0.223935, 0.525991),
        (0.514188, -0.526063, -0.368418),
        (0.590473, 0.094733, -0.205018),
    ]
)
PLATFORM = np.array(
    [
        (0.0, 0.0, 0.0),
        (0.542805, 0.0, 0.0),
        (0.956919, -0.528915, 0.0),
        (0.665885, -0.353482, 1.402538),
        (0.478359, 1.158742, 0.107672),
        (-0.137087, -0.235121, 0.353913),
    ]
)
LENGTHS = np.array([1.0, 0.645275, 1.086284, 1.503439, 1.281933, 0.771071])


def turned(quaternion, points):
    """Returns points (n, 3), turned by a unit quaternion wxyz."""
    across = jnp.cross(quaternion[1:], points)
    return points + 2.0 * (quaternion[0] * across + jnp.cross(quaternion[1:], across))


def postures():
    """Returns position and rotation matrix (40, 12) of the platform, from the equations of its legs.

    Newton's iteration in position and quaternion, from random starts. The equations have at most 40 isolated
    solutions (C. W. Wampler, Mech. Mach. Theory 31 (1996)).
    """

    def rows(x):
        legs = x[:3] + turned(x[3:], PLATFORM) - BASE
        return jnp.concatenate([jnp.sum(legs**2, axis=1) - LENGTHS**2, x[3:] @ x[3:, None] - 1.0])

    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(size=(3000, 3)), turns_from(random, 3000)], axis=1)
    both = jax.jit(jax.vmap(lambda x: (rows(x), jax.jacfwd(rows)(x))))
    for _ in range(60):
        gap, slope = (np.asarray(y) for y in both(x))
        full = np.linalg.solve(slope, gap[..., None])[..., 0]
        x = x - full / np.maximum(1.0, 2.0 * np.linalg.norm(full, axis=1, keepdims=True))
    closed = x[np.max(np.abs(both(x)[0]), axis=1) < 1e-12]
    matrices = jax.vmap(lambda x: turned(x[3:], jnp.eye(3)).T.ravel())(closed)
    return distinct(np.concatenate([closed[:, :3], matrices], axis=1))


def turns_from(random, count):
    """Returns random unit quaternions (count, 4)."""
    found = random.normal(size=(count, 4))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def distinct(poses):
    found = poses[:1]
    for pose in poses:
        if np.min(np.max(np.abs(found - pose), axis=1)) > 1e-6:
            found = np.concatenate([found, pose[None]])
    return found


@pytest.mark.long
def test_all_postures_of_a_stewart_platform():
    """The first leg has a motor, the others are locked: their lengths are constant.

    Every posture of the platform has two poses of the cylinder, which the universal joint can turn over.
    """
    bodies = [js.Body(name, 1.0, (1.0, 1.0, 1.0)) for name in ("cylinder", "piston", "platform")]
    zero, x, y, z = np.zeros(3), *np.eye(3)
    joints = [
        js.Universal("base", jm.GROUND, "cylinder", at=zero, axis=x, second=y),
        js.Prismatic("leg", "cylinder", "piston", axis=z, point_a=zero, point_b=zero),
        js.Ball("ball", "piston", "platform", at=zero),
    ]
    for k in range(1, 6):
        ends = {"point_a": BASE[k], "point_b": PLATFORM[k], "length": LENGTHS[k]}
        joints.append(js.Rod(f"leg{k}", jm.GROUND, "platform", **ends))
    robot, _ = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    random = np.random.default_rng(0)
    leg = random.uniform((-np.pi, -np.pi / 2.0, 1.0), (np.pi, np.pi / 2.0, 1.0), (2048, 3))
    starts = jnp.concatenate([leg, turns_from(random, 2048)], axis=1)

    @jax.jit
    def poses(starts):
        found = jk.branches(robot, jk.JointTarget({"leg": LENGTHS[0]}), starts)
        frames = jnp.stack(list(jax.vmap(robot.frames)(found.state.q)), axis=1)
        return frames[:, :, robot.body_names.index("platform")], found.label

    platform, label = (np.asarray(x) for x in poses(starts))
    expected, seen = postures(), distinct(platform[label >= 0])
    assert expected.shape == seen.shape == (40, 12)
    nearest = np.argmin(np.max(np.abs(expected[:, None] - seen), axis=2), axis=1)
    # Rounding times the condition of the equations, up to 2e5.
    np.testing.assert_allclose(seen[nearest], expected, rtol=0, atol=1e-10)


@functools.cache
def arm():
    """A planar arm of three links with the lengths 1, 1 and 0.5, and the point at its end."""
    lengths, x = (1.0, 1.0, 0.5), 0.0
    bodies, joints, before = [], [], jm.GROUND
    for name, hinge, length in zip("abc", ("shoulder", "elbow", "wrist"), lengths, strict=True):
        bodies.append(jm.Body(name, 1.0, 0.1, (x + length / 2, 0.0, 0.0)))
        joints.append(jm.Revolute(hinge, before, name, at=(x, 0.0)))
        x, before = x + length, name
    return jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())[0], jnp.array([0.3, 0.8, 0.4])


def reach(place, start, **options):
    target = jk.PoseTarget("c", place, point=(0.25, 0.0))
    return jk.inverse_kinematics(arm()[0], options.pop("targets", target), start, **options)


def slopes(function, x, h=1e-5):
    return np.stack(
        [(np.asarray(function(x + e)) - np.asarray(function(x - e))) / (2 * h) for e in h * np.eye(len(x))],
        axis=-1,
    )


@pytest.mark.long
def test_free_directions():
    start, place = arm()[1], jnp.array([0.9, 1.2])
    compiled = jax.jit(lambda place, start: reach(place, start)[0].q)
    state, info = reach(place, start)
    assert int(info.status) == 0
    np.testing.assert_allclose(info.error, 0.0, atol=1e-14)
    # The closest pose: the displacement is orthogonal to all motions that leave the point in its place.
    jacobian = slopes(lambda q: tip(q), np.asarray(state.q))
    kernel = np.linalg.svd(jacobian)[2][2]
    np.testing.assert_allclose(kernel @ (state.q - start), 0.0, atol=1e-9)
    for k, x in enumerate((place, start)):
        both = [place, start]
        found = jax.jacrev(lambda x, k=k, both=both: compiled(*both[:k], x, *both[k + 1 :]))(x)
        expected = slopes(lambda x, k=k, both=both: compiled(*both[:k], x, *both[k + 1 :]), x)
        # Solutions at 1e-9 / h; see above.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def tip(q):
    turns = np.cumsum(q)
    return np.array([np.cos(turns), np.sin(turns)]) @ np.array([1.0, 1.0, 0.5])


@pytest.mark.exhaustive
def test_contradicting_targets():
    """The end and the last angle cannot both be reached: the pose minimizes the sum of squares."""
    robot, start = arm()

    @jax.jit
    def pose(place):
        targets = jk.PoseTarget("c", place, 0.5, (0.25, 0.0)), jk.PoseTarget("a", orientation=0.4)
        state, info = jk.inverse_kinematics(robot, targets, start, weights=(1.0, 0.5))
        return state.q, info.status

    place = jnp.array([1.2, 1.3])
    q, status = pose(place)
    assert int(status) == jd.Status.UNREACHABLE
    length = float(robot.characteristic_length)

    def cost(q):
        gap = (tip(q) - np.asarray(place)) / length
        return gap @ gap + (np.sum(q) - 0.5) ** 2 + 0.5 * (q[0] - 0.4) ** 2

    np.testing.assert_allclose(slopes(cost, np.asarray(q)), 0.0, atol=1e-8)
    np.testing.assert_allclose(
        jax.jacfwd(lambda x: pose(x)[0])(place), slopes(lambda x: pose(x)[0], place, 1e-4), rtol=0, atol=1e-6
    )


@pytest.mark.long
def test_limits():
    """With a locked wrist, a point too close to the shoulder: the elbow is at its limit."""
    start = jnp.array([0.3, 0.8, 0.0])
    limits = {"wrist": (0.0, 0.0), "elbow.angle": (-2.0, 2.0)}
    state, info = reach(jnp.array([0.0, 0.5]), start, limits=limits)
    nearest = np.sqrt(1.0 + 1.5**2 + 3.0 * np.cos(2.0))
    assert int(info.status) == jd.Status.UNREACHABLE
    np.testing.assert_allclose(state.q[1:], [2.0, 0.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(info.error, [0.0, nearest - 0.5], rtol=0, atol=1e-12)
    # A limit that the start violates becomes active, and is released later.
    start = start.at[0].set(0.5)
    state, info = reach(jnp.array([2.2, 0.6]), start, limits=limits | {"shoulder": (-0.4, 0.3)})
    elbow = np.arccos((2.2**2 + 0.6**2 - 1.0 - 1.5**2) / 3.0)
    shoulder = np.arctan2(0.6, 2.2) - np.arctan2(1.5 * np.sin(elbow), 1.0 + 1.5 * np.cos(elbow))
    assert int(info.status) == 0
    np.testing.assert_allclose(state.q, [shoulder, elbow, 0.0], rtol=0, atol=1e-13)
    # With a lower limit of the shoulder, only the other branch is left: the straight arm is singular.
    targets = jk.PoseTarget("c", (2.2, 0.6), point=(0.25, 0.0)), jk.JointTarget({"wrist": 0.0})
    for lower, turns in ((-0.4, [shoulder, elbow]), (0.4, [2.0 * np.arctan2(0.6, 2.2) - shoulder, -elbow])):
        state, info = reach(None, start, targets=targets, limits={"shoulder": (lower, 2.0)})
        assert int(info.status) == 0
        assert bool(info.crossed) == (lower > 0.0)
        np.testing.assert_allclose(state.q, [*turns, 0.0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", [jm.Joints(), jm.Absolute()])
def test_too_few_motors_are_singular(form):
    """A double pendulum, whose second link keeps its angle if no motor moves it."""
    bodies = [jm.Body("one", 1.0, 0.1, pose=(0.5, 0.0, 0.0)), jm.Body("two", 1.0, 0.1, pose=(1.5, 0.0, 0.0))]
    joints = [
        jm.Revolute("first", "ground", "one", at=(0.0, 0.0)),
        jm.Revolute("second", "one", "two", at=(1.0, 0.0)),
    ]
    arm, q = jm.planar_mechanism(bodies, joints, coordinates=form)
    names = ("first", "second") if form == jm.Joints() else ("one.theta", "two.theta")
    few, info = jk.forward_kinematics(arm, {names[0]: 0.2}, q)
    assert int(info.status) == jd.Status.SINGULAR
    np.testing.assert_allclose(arm.frames(few.q).angle[0], 0.2, atol=1e-12)
    _, info = jk.forward_kinematics(arm, {names[0]: 0.2, names[1]: 0.3}, q)
    assert int(info.status) == jd.Status.OK


@pytest.mark.long
def test_a_rod_between_ball_joints_may_spin():
    """A spatial four-bar: the crank determines the pose except for the spin of the rod."""
    bodies = [
        js.Body("crank", 1.0, (0.1, 0.1, 0.1), place=(0.0, 0.07, 0.07)),
        js.Body("rod", 1.0, (0.1, 0.1, 0.1), place=(0.5, 0.17, 0.07)),
        js.Body("rocker", 1.0, (0.1, 0.1, 0.1), place=(1.0, 0.1, 0.0)),
    ]
    joints = [
        js.Revolute("motor", "ground", "crank", at=(0.0, 0.0, 0.0), axis=(0.6, 0.0, 0.8)),
        js.Ball("pin", "crank", "rod", at=(0.0, 0.14, 0.14)),
        js.Ball("ball", "rod", "rocker", at=(1.0, 0.2, 0.0)),
        js.Revolute("pivot", "ground", "rocker", at=(1.0, 0.0, 0.0), axis=(0.0, 0.0, 1.0)),
    ]
    linkage, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    _, info = jk.forward_kinematics(linkage, {"motor": 0.1}, q)
    assert int(info.status) == jd.Status.OK


def test_mistakes():
    robot, start = arm()
    for targets, options, text in (
        ((), {}, "at least one"),
        (jk.PoseTarget("d", (0.0, 0.0)), {}, "no body 'd'; available: a, b, c"),
        (jk.PoseTarget("a"), {}, "give a position, an orientation, or both"),
        (jk.PoseTarget("a", (0.0, 0.0, 0.0)), {}, r"position must have shape \(2,\), got \(3,\)"),
        (jk.JointTarget({"knee": 0.1}), {}, "'knee' is not a coordinate; available: shoulder.angle"),
        (jk.JointTarget({"wrist": 0.1}), {"weights": (1.0, 2.0)}, "one weight per target, 1, got 2"),
        (jk.JointTarget({"wrist": 0.1}), {"limits": {"elbow": (1.0, 0.0)}}, "lower <= upper"),
    ):
        with pytest.raises(ValueError, match=text):
            jk.inverse_kinematics(robot, targets, start, **options)
    state, tool = jd.State(jnp.zeros(()), start, 0.0 * start), jk.JointTarget({"wrist": 0.0})
    for actuated, stiffness, text in (
        ((), None, "at least one motor"),
        (("knee",), None, "actuated: 'knee' is not a coordinate"),
        (("elbow", "wrist"), np.ones(3), r"have shape \(2,\), one per motor, got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=text):
            jk.transmission(robot, state, tool, actuated, motor_stiffness=stiffness)
    with pytest.raises(ValueError, match=r"points must have shape .* got \(3,\)"):
        jk.workspace(robot, lambda p: tool, jnp.zeros(3), start, ("wrist",))
