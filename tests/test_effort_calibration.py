"""Calibration with motor efforts: base parameters against closed forms, and intervals against samples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import contact as ct
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae.kinematics.dynamic_parameters import calibration_parameters, sizes_of
from jaxdae.kinematics.geometric_parameters import corrected

MOTORS = ("shoulder", "elbow")
UPPER = 0.5
BODIES = ("upper", "lower")
INERTIAL = tuple(f"bodies.{body}.{field}" for body in BODIES for field in ("mass", "inertia", "center"))
ALONG = tuple(f"joints.{motor}.{field}" for motor in MOTORS for field in ("damping", "friction", "armature"))


def arm(centers=((0.2, 0.03), (0.15, -0.02)), masses=(2.0, 1.0), inertias=(0.05, 0.02), **along):
    """Returns a planar arm whose links have their centers of mass at these points from the joints before."""
    along = {"damping": (0.3, 0.2), "friction": (0.4, 0.3), "armature": (0.01, 0.005)} | along
    upper, lower = np.array(centers)
    one, two = (
        {field: values[k] for field, values in along.items()} | {"friction_speed": 0.1} for k in (0, 1)
    )
    bodies = [jm.Body(*args) for args in zip(BODIES, masses, inertias, strict=True)]
    joints = [
        jm.Revolute("shoulder", "ground", "upper", point_a=(0.0, 0.0), point_b=-upper, **one),
        jm.Revolute("elbow", "upper", "lower", point_a=(UPPER, 0.0) - upper, point_b=-lower, **two),
    ]
    return jm.planar_mechanism(bodies, joints, coordinates=jm.Joints(), gravity=(0.0, 0.0))


@functools.cache
def real():
    return arm(
        ((0.22, 0.01), (0.17, 0.03)),
        (2.3, 0.8),
        (0.06, 0.03),
        damping=(0.25, 0.22),
        friction=(0.5, 0.2),
        armature=(0.012, 0.004),
    )[0]


TIMES = jnp.linspace(0.0, 6.0, 40)


def angles(t):
    return jnp.stack([0.8 * jnp.sin(1.3 * t) + 0.5 * jnp.cos(2.9 * t), 0.9 * jnp.sin(1.7 * t + 1.0)])


def motion(path, times=TIMES):
    """Returns positions, rates and accelerations (n, motors) along a path."""
    rate = jax.jacfwd(path)
    return tuple(jax.vmap(function)(times) for function in (path, rate, jax.jacfwd(rate)))


def efforts_of(mechanism, names, states, accelerations):
    one = lambda state, a: jk.actuator_efforts(mechanism, state, a, names).efforts  # noqa: E731
    return jax.jit(jax.vmap(one))(states, accelerations)


@functools.cache
def log():
    """Returns positions, rates, accelerations and efforts (n, 2) of the real arm."""
    q, v, a = motion(angles)
    return q, v, a, efforts_of(real(), MOTORS, jd.State(TIMES * 0.0, q, v), a)


def by_name(x, names=MOTORS):
    return dict(zip(names, jnp.asarray(x).T, strict=True))


def calibrate(efforts, parameters=(*INERTIAL, *ALONG), also=(), **options):
    nominal, start = arm()
    q, v, a, _ = log()
    measured = [jk.MeasuredEfforts(by_name(v), by_name(a), by_name(efforts)), *also]
    options = {"standard_deviation": 1.0, "held_out": np.zeros(len(TIMES), bool)} | options
    return jk.calibrate(nominal, by_name(q), measured, start, parameters, **options)


def base(mechanism):
    """Returns the base parameters of the arm without gravity (6,), from its kinetic energy by hand.

    With the rates w1 of the upper link and w2 of the lower link in the world,

        2 T = Z1 w1^2 + Z2 w2^2 + 2 L w1 w2 (X cos e - Y sin e) + A2 (w2 - w1)^2

    for the elbow angle e, where Z1 = I1 + m1 |c1|^2 + m2 L^2 + A1 with the armatures A, Z2 = I2 + m2 |c2|^2,
    and (X, Y) = m2 c2.
    """
    of = lambda *path: np.asarray(jd.tree.get_leaf(mechanism, ".".join(path)))  # noqa: E731
    (m1, m2), (i1, i2) = ([of("bodies", body, x) for body in BODIES] for x in ("mass", "inertia"))
    c1, c2 = (-of("joints", motor, "point_b") for motor in MOTORS)
    length = np.linalg.norm(of("joints", "elbow", "point_a") + c1)
    first = i1 + m1 * c1 @ c1 + m2 * length**2 + of("joints", "shoulder", "armature")
    return np.array([length, first, i2 + m2 * c2 @ c2, *(m2 * c2), of("joints", "elbow", "armature")])


@pytest.mark.long
def test_the_base_parameters_of_an_arm_are_exact():
    found = calibrate(log()[-1])
    assert found.status == jd.Status.OK
    assert np.max(np.abs(base(arm()[0]) - base(real()))) > 0.04
    np.testing.assert_allclose(base(found.mechanism), base(real()), rtol=0, atol=1e-12)
    # Five combinations in the kinetic energy, and damping and friction of both joints.
    assert found.identifiable.sum() == 9
    x = dict(zip(found.names, found.correction, strict=True))
    known = {
        name for name, error in zip(found.names, found.standard_error, strict=True) if np.isfinite(error)
    }
    truth = {"joints.shoulder.damping": -0.05, "joints.elbow.damping": 0.02, "joints.shoulder.friction": 0.1}
    truth |= {"joints.elbow.friction": -0.1, "joints.elbow.armature": -0.001}
    assert known == set(truth)
    for name, value in truth.items():
        np.testing.assert_allclose(x[name], value, rtol=0, atol=1e-12)
    units = dict(zip(found.names, found.units, strict=True))
    assert units["joints.elbow.damping"] == "N m s/rad"
    assert units["bodies.upper.inertia"] == "kg m^2"
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)


@pytest.mark.long
def test_directions_without_effect_do_not_change_the_base_parameters():
    found, size = calibrate(log()[-1]), 1e-4
    nominal, chosen = arm()[0], calibration_parameters(arm()[0], (*INERTIAL, *ALONG), True)
    rate = np.sqrt(sum(np.mean(x**2) for x in log()[1].T) + sum(np.mean(x**2) ** 0.5 for x in log()[2].T))
    scale = sizes_of(nominal, found.units, rate)
    free = np.asarray(found.directions)[~np.asarray(found.identifiable)]
    assert len(free) == 5
    for direction in free:
        change = base(corrected(nominal, chosen, size * scale * direction)) - base(nominal)
        # Of second order, with second derivatives of order 1.
        assert np.max(np.abs(change)) < 10.0 * size**2


NOISE = np.array([0.05, 0.01])
DEVIATIONS = NOISE[::-1]  # Alphabetical order: elbow, shoulder.


@pytest.mark.long
def test_outliers_and_held_out_efforts():
    efforts = np.array(log()[-1] + NOISE * jax.random.normal(jax.random.key(0), (len(TIMES), 2)))
    bad, held = np.zeros(len(TIMES), bool), np.arange(len(TIMES)) % 4 == 0
    bad[[3, 18, 26]] = True
    efforts[bad] += np.array([[2.0, 0.0], [0.0, -0.5], [-1.0, 1.0]])
    found = calibrate(efforts, standard_deviation=DEVIATIONS, held_out=held)
    np.testing.assert_array_equal(found.outlier, bad)
    assert found.weight[bad].min(axis=1).max() < 0.1
    assert found.freedom == 60 - 9
    assert 0.7 < found.sigma < 1.4
    assert 0.6 < found.held_out_rms < 1.5
    low, high = found.interval(0.999)
    for motor, damping in zip(MOTORS, (-0.05, 0.02), strict=True):
        k = found.names.index(f"joints.{motor}.damping")
        assert low[k] < damping < high[k]
    wrong = calibrate(efforts + held[:, None] * 1.0, standard_deviation=DEVIATIONS, held_out=held)
    np.testing.assert_array_equal(wrong.correction, found.correction)
    assert wrong.held_out_rms > 10.0


IDENTIFIABLE = ("bodies.lower.mass", "bodies.lower.center", *ALONG[:2], *ALONG[3:])


@pytest.mark.long
def test_intervals_contain_the_truth():
    # The same inertias as in the nominal arm, so that all parameters are identifiable.
    other = {"damping": (0.25, 0.22), "friction": (0.5, 0.2), "armature": (0.01, 0.004)}
    mechanism = arm(((0.2, 0.03), (0.17, 0.03)), (2.0, 0.8), **other)[0]
    q, v, a, _ = log()
    efforts = efforts_of(mechanism, MOTORS, jd.State(TIMES * 0.0, q, v), a)
    noisy = efforts + NOISE * jax.random.normal(jax.random.key(1), (200, *efforts.shape))
    truth = np.array([-0.2, 0.02, 0.05, -0.05, 0.1, 0.02, -0.1, -0.001])
    for robust in (True, False):
        one = lambda x: calibrate(x, IDENTIFIABLE, standard_deviation=DEVIATIONS, robust=robust)  # noqa: E731, B023
        found = jax.jit(jax.vmap(one))(noisy)
        assert jnp.all(found.status == jd.Status.OK)
        assert found.identifiable[0].all()
        low, high = found.interval(0.95)
        share = np.mean((low <= truth) & (truth <= high), axis=0)
        # Three standard deviations of a share of 200.
        assert np.all(np.abs(share - 0.95) < 0.046), share
        spread = np.std(found.correction, axis=0) / np.median(found.standard_error, axis=0)
        np.testing.assert_allclose(spread, 1.0, atol=0.16)


@pytest.mark.long
def test_a_measured_point_stays_where_it_is_if_the_center_of_mass_changes():
    nominal, _ = arm()
    chosen = calibration_parameters(nominal, ["bodies.lower.center", "joints.elbow.point_a.x"], True)
    changed = corrected(nominal, chosen, jnp.array([0.03, -0.01, 0.002]))
    q, v, a, _ = log()
    efforts = efforts_of(changed, MOTORS, jd.State(TIMES * 0.0, q, v), a)
    wrist = 0.4
    turn = q[:, 0] + q[:, 1]
    tips = [
        (UPPER + 0.002) * jnp.stack([jnp.cos(q[:, 0]), jnp.sin(q[:, 0])], axis=1),
        wrist * jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=1),
    ]
    tool = jk.PoseTarget("lower", position=sum(tips), point=(wrist - 0.15, 0.02))
    found = calibrate(efforts, [one.name for one in chosen[:1]] + ["joints.elbow.point_a.x"], [tool])
    np.testing.assert_allclose(found.correction, [0.03, -0.01, 0.002], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)


BASE, CRANK, ROD = 0.3, 0.25, 0.35
LINKS = ("crank1", "rod1", "crank2", "rod2")
PINS = ("motor1", "elbow1", "motor2", "elbow2")
POSES = ((-0.22, 0.1, 2.2), (-0.15, 0.29, 0.52), (0.23, 0.1, 0.9), (0.16, 0.29, 2.6))
NOMINAL = {
    "masses": (0.4, 0.3, 0.4, 0.3),
    "inertias": (0.003, 0.004, 0.003, 0.004),
    "centers": ((0.12, 0.0), (0.17, 0.01), (0.12, 0.0), (0.17, -0.01)),
    "damping": (0.05, 0.02, 0.05, 0.02),
}


def five_bar(masses, inertias, centers, damping, coordinates=None):
    """Returns a five-bar whose links have their centers of mass at these points from the joints before."""
    near = -np.array(centers)
    far = near + np.array([[length, 0.0] for length in (CRANK, ROD) * 2])
    bodies = [jm.Body(*args, pose=pose) for *args, pose in zip(LINKS, masses, inertias, POSES, strict=True)]
    joints = [
        jm.Revolute(
            pin,
            LINKS[k - 1] if k % 2 else "ground",
            LINKS[k],
            point_a=far[k - 1] if k % 2 else ((k - 1.0) * BASE / 2.0, 0.0),
            point_b=near[k],
            damping=damping[k],
        )
        for k, pin in enumerate(PINS)
    ]
    joints.append(jm.Revolute("tip", "rod1", "rod2", point_a=far[1], point_b=far[3]))
    mechanism, q = jm.planar_mechanism(
        bodies, joints, coordinates=coordinates or jm.Joints(), gravity=(0.0, 0.0)
    )
    return mechanism, jd.initialize(mechanism, q)[0]


def cranks(t):
    one = 1.75 + 0.4 * jnp.sin(2.1 * t) + 0.12 * jnp.sin(4.3 * t)
    return jnp.stack([one, 1.35 + 0.35 * jnp.sin(2.9 * t) + 0.1 * jnp.sin(5.1 * t)])


def base_of_five_bar(mechanism):
    """Returns the base parameters of a five-bar without gravity (7,) by hand.

    A rod with first moments m (x, y) about its elbow and moment of inertia Z about it moves like a point mass
    m x / l in the tip, the rest m - m x / l in the elbow, a moment of inertia Z - m x l without a mass, and a
    first moment m y. The tip carries the point masses of both rods, and each crank that of its elbow.
    """
    of = lambda body, x: float(jd.tree.get_leaf(mechanism, f"bodies.{body}.{x}"))  # noqa: E731
    found, tip = [], 0.0
    for k in (1, 2):
        x, y = -jd.tree.get_leaf(mechanism, f"joints.motor{k}.point_b")
        crank = of(f"crank{k}", "inertia") + of(f"crank{k}", "mass") * (x**2 + y**2)
        x, y = -jd.tree.get_leaf(mechanism, f"joints.elbow{k}.point_b")
        mass = of(f"rod{k}", "mass")
        about = of(f"rod{k}", "inertia") + mass * (x**2 + y**2)
        found += [crank + (mass - mass * x / ROD) * CRANK**2, about - mass * x * ROD, mass * y]
        tip += mass * x / ROD
    return np.array([*found, tip])


@pytest.mark.long
def test_the_base_parameters_of_a_five_bar_are_exact_from_motors_alone():
    changed = NOMINAL | {
        "masses": (0.45, 0.25, 0.38, 0.32),
        "inertias": (0.0035, 0.003, 0.0032, 0.0045),
        "centers": ((0.13, 0.02), (0.18, 0.02), (0.1, -0.01), (0.16, -0.02)),
        "damping": (0.06, 0.015, 0.045, 0.03),
    }
    (nominal, start), (other, rest) = five_bar(**NOMINAL), five_bar(**changed)
    q, v, a = motion(cranks)
    moved = jk.follow(other, lambda t: jk.JointTarget(by_name(cranks(t), PINS[::2])), rest, TIMES)
    efforts = efforts_of(other, PINS[::2], moved.state, moved.a)
    parameters = [f"bodies.{link}.{field}" for link in LINKS for field in ("mass", "inertia", "center")]
    damping = [f"joints.{pin}.damping" for pin in PINS]
    log = jk.MeasuredEfforts(*(by_name(x, PINS[::2]) for x in (v, a, efforts)))
    found = jk.calibrate(nominal, by_name(q, PINS[::2]), log, start, [*parameters, *damping])
    assert found.status == jd.Status.OK
    assert np.max(np.abs(base_of_five_bar(nominal) - base_of_five_bar(other))) > 0.01
    np.testing.assert_allclose(base_of_five_bar(found.mechanism), base_of_five_bar(other), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.correction[-4:], [0.01, -0.005, -0.005, 0.01], rtol=0, atol=1e-12)
    assert found.identifiable.sum() == 7 + 4


@pytest.mark.long
def test_redundant_motors_give_the_smallest_change_of_efforts():
    mechanism, start = five_bar(**NOMINAL)
    names = ("elbow1", "motor1", "motor2")
    moved = jk.follow(mechanism, lambda t: jk.JointTarget(by_name(cranks(t), PINS[::2])), start, TIMES[3:4])
    state, a = jax.tree.map(lambda x: x[0], (moved.state, moved.a))
    places = [mechanism.names.coordinates.index(f"{name}.angle") for name in names]
    expected = jk.actuator_efforts(mechanism, state, a, names).efforts

    @jax.jit
    def error(efforts):
        parts = (state.v[jnp.array(places)], a[jnp.array(places)], efforts)
        log = jk.MeasuredEfforts(*(dict(zip(names, x, strict=True)) for x in parts))
        return log.error(mechanism, mechanism.frames(state.q), state.q)

    np.testing.assert_allclose(error(jnp.zeros(3)), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(error(expected), 0.0, atol=1e-12)


def spatial_arm(mass, center, inertia, damping):
    """Returns an arm with a vertical and a horizontal axis through the origin, and its motors."""
    bodies = [
        jm.SpatialBody("column", 2.0, (0.02, 0.02, 0.03)),
        jm.SpatialBody("link", mass, np.array(inertia)),
    ]
    ends = {"point_a": (0.0, 0.0, 0.0)}
    joints = [
        jm.spatial.Revolute("turn", "ground", "column", axis=(0, 0, 1), point_b=(0.0, 0.0, 0.0), **ends),
        jm.spatial.Revolute(
            "lift", "column", "link", axis=(0, 1, 0), point_b=-np.array(center), damping=damping, **ends
        ),
    ]
    return jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())


def base_of_spatial_arm(mechanism):
    """Returns the base parameters (8,) by hand.

    With the tensor J of the link about the origin, the lift angle b and the rates w and b', the angular velocity
    of the link in its own axes is (-w sin b, b', w cos b), so 2 T is a sum of (I + Jxx) w^2, (Jzz - Jxx) w^2
    cos^2 b, Jxz w^2 sin b cos b, Jyy b'^2, Jxy w b' sin b and Jyz w b' cos b. The weight of the link has a
    moment of m x cos b and m z sin b.
    """
    of = lambda path: np.asarray(jd.tree.get_leaf(mechanism, path))  # noqa: E731
    mass, c = of("bodies.link.mass"), -of("joints.lift.point_b")
    j = of("bodies.link.inertia") + mass * (c @ c * np.eye(3) - np.outer(c, c))
    column = of("bodies.column.inertia")[2, 2]
    pairs = [column + j[0, 0], j[2, 2] - j[0, 0], j[0, 2], j[1, 1], j[0, 1], j[1, 2]]
    return np.array([*pairs, mass * c[0], mass * c[2]])


@pytest.mark.long
def test_the_base_parameters_of_a_spatial_arm_are_exact():
    nominal, start = spatial_arm(1.0, (0.2, 0.01, 0.02), np.diag([0.01, 0.03, 0.03]), 0.2)
    tensor = [[0.012, 0.002, -0.003], [0.002, 0.035, 0.001], [-0.003, 0.001, 0.027]]
    other, _ = spatial_arm(1.2, (0.22, -0.02, 0.05), tensor, 0.25)
    names = ("turn", "lift")
    q, v, a = motion(angles)
    efforts = efforts_of(other, names, jd.State(TIMES * 0.0, q, v), a)
    parameters = ["bodies.column.inertia.zz", "bodies.link.mass", "bodies.link.center", "bodies.link.inertia"]
    log = jk.MeasuredEfforts(*(by_name(x, names) for x in (v, a, efforts)))
    found = jk.calibrate(nominal, by_name(q, names), log, start, [*parameters, "joints.lift.damping"])
    assert found.names[5:11] == tuple(
        f"bodies.link.inertia.{x}" for x in ("xx", "yy", "zz", "yz", "xz", "xy")
    )
    assert found.status == jd.Status.OK
    assert found.identifiable.sum() == 8 + 1
    expected = base_of_spatial_arm(other)
    assert np.all(np.abs(base_of_spatial_arm(nominal) - expected) > 5e-4)
    np.testing.assert_allclose(base_of_spatial_arm(found.mechanism), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.correction[-1], 0.05, rtol=0, atol=1e-12)


@pytest.mark.long
def test_motors_that_do_not_determine_the_pose_are_reported():
    q, v, a, efforts = log()
    one = lambda x: {"shoulder": x[:, 0]}  # noqa: E731
    nominal, start = arm()
    measured = jk.MeasuredEfforts(one(v), one(a), one(efforts))
    found = jk.calibrate(nominal, one(q), measured, start, ["joints.shoulder.damping"])
    np.testing.assert_array_equal(found.pose_status, jd.Status.SINGULAR)
    assert np.isinf(found.standard_error)


def test_sizes_are_powers_of_mass_length_and_time():
    mechanism, _ = arm()
    mass, length, rate = 3.0, float(mechanism.characteristic_length), 5.0
    units = {"N m s/rad": mass * length**2 * rate, "kg m^2": mass * length**2, "m/s^2": length * rate**2}
    units |= {
        "N/m": mass * rate**2,
        "rad": 1.0,
        "m": length,
        "N m/rad or N/m": mass * length**2 * rate**2,
        "": 1.0,
    }
    np.testing.assert_allclose(sizes_of(mechanism, tuple(units), rate), list(units.values()), rtol=1e-14)


def test_mistakes_are_explained_together():
    nominal, start = arm()
    q, v, a, efforts = (by_name(x) for x in log())
    elbow = {"elbow": v["elbow"]}
    measured = jk.MeasuredEfforts(v, a, efforts)
    target = jk.JointTarget({"elbow": q["elbow"]})
    for message, log_, parameters in (
        (
            "'bodies.upper.mass', 'joints.elbow.damping' act on motor efforts only; add MeasuredEfforts",
            target,
            ["bodies.upper.mass", "joints.elbow.point_a", "joints.elbow.damping"],
        ),
        (
            "'bodies.lowr.mass' is not.*; joints.elbow.stiffness: unknown parameter.*; 'gravity' acts on motor",
            target,
            ["bodies.lowr.mass", "joints.elbow.stiffness", "gravity"],
        ),
        ("'bodies.lower.mass.x' is not", measured, ["bodies.lower.mass.x"]),
        ("'bodies.lower.center.z' is not", measured, ["bodies.lower.center.z"]),
        ("each of them once", measured, ["bodies.lower.center", "bodies.lower.center.x"]),
        ("needs the same motors three times", jk.MeasuredEfforts(v, elbow, efforts), ["gravity"]),
        ("must have the motors in actuated", jk.MeasuredEfforts(elbow, elbow, elbow), ["gravity"]),
    ):
        with pytest.raises(ValueError, match=message):
            jk.calibrate(nominal, q, log_, start, parameters)


def test_centers_that_cannot_be_corrected_are_refused():
    bodies = [jm.Body("ball", 1.0, 0.1, pose=(0.0, 0.5, 0.0))]
    contacts = [ct.Pair("touch", jm.GROUND, "ball", ct.Line(), ct.Disc(0.1))]
    mechanism, q = jm.mechanism(jm.Description(space=jm.PLANE, bodies=bodies, contacts=contacts))
    still = {"ball.x": jnp.zeros(3)}
    log_ = jk.MeasuredEfforts(still, still, still)
    with pytest.raises(
        ValueError, match=r"'bodies.ball.center' has no correction, because the shape of 'touch'"
    ):
        jk.calibrate(mechanism, still, log_, q, ["bodies.ball.center"])
    mechanism, q = jm.planar_mechanism(bodies, [])
    with pytest.raises(ValueError, match=r"the coordinate 'ball.x' is a place of the center of mass"):
        jk.calibrate(mechanism, still, log_, q, ["bodies.ball.center"])
