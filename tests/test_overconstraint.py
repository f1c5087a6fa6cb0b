"""Wheels that contradict each other, and maps between spins, twists and poses: published values, closed
forms, derivatives, reports.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from vehicle_references import central, problem, within

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae import vehicles as jv

NAMES = ("front_left", "front_right", "rear_left", "rear_right")
FRONT = NAMES[:2]


def car(length, width, left, right, radius=1.0):
    """Returns four wheels, the reference point amid the rear ones."""
    half = 0.5 * width
    places = jnp.asarray([[length, half], [length, -half], [0.0, half], [0.0, -half]])
    steering = jnp.stack(
        [*jnp.broadcast_arrays(jnp.asarray(left), jnp.asarray(right)), jnp.zeros(()), jnp.zeros(())]
    )
    return jv.wheels(places, steering=steering, radius=radius, names=NAMES)


@pytest.mark.long
def test_steering_that_is_not_ackermann_has_its_published_answers():
    p, reference, digits, _ = problem("ackermann_nonideal")
    for case in reference["cases"]:
        wheels = car(p["L"], p["w"], case["left"], case["right"], p["r"])
        within(digits["twist"], wheels.across(), case["lateral_rows"])
        within(digits["twist"], wheels.along(), case["longitudinal_rows"])
        a = case["A_speed_hard"]
        twist, report = jv.vehicle_twist(wheels, speed=p["v"])
        within(digits["twist"], twist, [p["v"], a["vy"], a["omega"]])
        within(digits["twist"], report.slip[:, 1], a["residual"])
        within(digits["twist"], report.norm, a["norm"])
        assert (int(report.rank), int(report.status)) == (3, jd.Status.OK)
        assert set(report.fighting(1e-3)[:2]) == set(FRONT)
        b = case["B_eight_soft_rows"]
        twist, report = jv.body_twist(wheels, np.asarray(b["wanted_rolling_speeds"]) / p["r"])
        within(digits["twist"], twist, b["twist"])
        within(digits["twist"], jnp.concatenate([report.slip[:, 1], report.slip[:, 0]]), b["residual"])
        within(digits["twist"], report.norm, b["norm"])
        for side, name in (("left", "rear+left"), ("right", "rear+right")):
            rows = jv.IndependentRows(("rear_left.lateral", f"front_{side}.lateral"))
            twist, report = jv.vehicle_twist(wheels, speed=p["v"], slip=rows)
            within(digits["twist"], twist, case["C_two_rows"][name])
            assert report.fighting() == tuple(n for n in FRONT if side not in n)
        twist, _ = jv.vehicle_twist(wheels, speed=p["v"], slip=jv.EquivalentBicycle(FRONT))
        within(digits["twist"], twist, case["D_equivalent_bicycle"]["twist"])


@pytest.mark.exhaustive
def test_the_car_of_the_specification():
    # vehicles.md V4: L = 2.5, W = 1.5, a bicycle at 0.3 rad; both front wheels at 0.3.
    wheels = car(2.5, 1.5, 0.3, 0.3)
    values = np.linalg.svd(wheels.across(), compute_uv=False)
    np.testing.assert_allclose(values, [3.71477388, 1.30598359, 0.03818656], rtol=0, atol=5e-9)
    twist, _ = jv.vehicle_twist(wheels, speed=1.0)
    np.testing.assert_allclose(twist, [1.0, 0.00239195, 0.12172939], rtol=0, atol=5e-9)
    for rows, curvature in (
        (("rear_left.lateral", "front_left.lateral"), 0.1132269),
        (("rear_left.lateral", "front_right.lateral"), 0.1363918),
    ):
        got = jv.vehicle_twist(wheels, speed=1.0, slip=jv.IndependentRows(rows))[0]
        np.testing.assert_allclose(got[2], curvature, rtol=0, atol=5e-8)
    got = jv.vehicle_twist(wheels, speed=1.0, slip=jv.EquivalentBicycle(FRONT))[0]
    np.testing.assert_allclose(got, [1.0, 0.0, 0.1237345], rtol=0, atol=5e-8)
    angles = jv.ackermann_angles(2.5, 1.5, 0.3)
    np.testing.assert_allclose(angles, [0.3286162, 0.2758508], rtol=0, atol=5e-8)
    ideal, report = jv.vehicle_twist(car(2.5, 1.5, *angles), speed=1.0)
    np.testing.assert_allclose(ideal, [1.0, 0.0, np.tan(0.3) / 2.5], rtol=0, atol=1e-15)
    assert report.norm < 1e-15
    assert report.fighting() == ()


@jd.tree.pytree
class Forward(jd.KinematicSystem):
    """A wish of 1 m/s forward that the wheels of a mechanism hold."""

    mechanism: jm.Mechanism

    def rate(self, t, x, u):
        return jnp.asarray([1.0, 0.0, 0.0])

    def velocity_constraint(self, t, x, xdot):
        return self.mechanism.velocity_constraint(t, x, xdot)


def wished(wheels):
    joints = [
        jm.Wheel(name, "car", (jnp.cos(angle), jnp.sin(angle)), point=place)
        for name, angle, place in zip(NAMES, wheels.steering, wheels.place, strict=True)
    ]
    return Forward(jm.planar_mechanism([jm.Body("car", 1.0, 1.0)], joints)[0])


STILL = jd.State(0.0, jnp.zeros(3), jnp.zeros(3))


def test_soft_rows_slow_a_car_down_as_far_as_one_lets_them():
    car_that_fights = wished(car(2.5, 1.5, 0.3, 0.3))

    @jax.jit
    def velocity(c):
        return jd.kinematic_velocity(jd.Soft(car_that_fights, c), STILL)[0]

    for c, u in ((1.0, 0.985649), (0.1, 0.971442), (0.01, 0.860005), (1e-3, 0.400857), (1e-4, 0.063238)):
        np.testing.assert_allclose(velocity(c)[0], u, rtol=0, atol=5e-7)


@pytest.mark.long
@pytest.mark.parametrize(
    "solver",
    [
        jd.LeastSquares(),
        *(
            pytest.param(solver, marks=pytest.mark.exhaustive)
            for solver in (jd.NullSpace(), jd.ConjugateGradient(), jd.Proximal())
        ),
    ],
)
def test_a_wish_of_a_car_with_ackermann_steering_is_slowed_down_to_that_of_the_bicycle(solver):
    system = wished(car(2.5, 1.5, *jv.ackermann_angles(2.5, 1.5, 0.3)))
    bend = np.tan(0.3) / 2.5
    np.testing.assert_allclose(1.0 / (1.0 + bend**2), 0.984921, rtol=0, atol=5e-7)
    found = jax.jit(lambda: jd.kinematic_velocity(system, STILL, solver=solver)[0])()
    np.testing.assert_allclose(found, np.array([1.0, 0.0, bend]) / (1.0 + bend**2), rtol=0, atol=1e-14)


@pytest.mark.long
def test_skid_steering_has_its_effective_track():
    p, reference, digits, _ = problem("skid_steer_least_residual")
    for case in reference["cases"]:
        system, q = jm.kinematic_mechanism(jv.skid_steer(p["l"], p["W"], p["r"]))
        wheels = jv.wheels_of(system, q)
        assert wheels.names == NAMES
        left, right = case["u"]
        answer = jv.LeastResidual(lateral=case["lateral_weight"])
        twist, report = jv.body_twist(wheels, [left, right, left, right], answer)
        within(digits["all"], twist, case["twist"])
        within(digits["all"], report.norm, case["norm"])
        for state in case["path"]:
            within(digits["all"], jv.integrate_twist(jnp.zeros(3), twist, state["t"]), state["x"])
    # vehicles.md V2 e: L = 1, W = 0.8, r phi' = 0.6 and 0.4.
    wheels = jv.wheels([[0.5, 0.4], [0.5, -0.4], [-0.5, 0.4], [-0.5, -0.4]])
    rates = [0.4, 0.6, 0.4, 0.6]
    alone, report = jv.body_twist(wheels, rates, jv.LeastResidual(lateral=0.0, dependent=True))
    np.testing.assert_allclose(alone, [0.5, 0.0, 0.25], rtol=0, atol=1e-15)
    np.testing.assert_allclose(np.abs(report.slip[:, 1]), 0.125, rtol=0, atol=1e-15)
    np.testing.assert_allclose(jv.body_twist(wheels, rates)[0][2], 0.8 * 0.2 / (0.8**2 + 1.0), rtol=1e-14)
    # Without the tolerance for undetermined motions that is told.
    assert int(jv.body_twist(wheels, rates, jv.LeastResidual(lateral=0.0))[1].status) == jd.Status.SINGULAR
    rollers = jv.wheels([[0.2, 0.2], [-0.2, -0.2]], roller_angle=[0.7, -0.7])
    for slip in (None, jv.LeastResidual(speed=0.5)):
        assert int(jv.vehicle_twist(rollers, speed=1.0, slip=slip)[1].status) == jd.Status.SINGULAR


@pytest.mark.long
def test_mecanum_wheels_map_both_ways():
    p, reference, digits, _ = problem("mecanum_kinematics")
    system, q = jm.kinematic_mechanism(jv.mecanum(2 * p["l"], 2 * p["w"], p["r"]))
    wheels = jv.wheels_of(system, q)
    for case in reference["inverse"]:
        within(digits["all"], jv.wheel_rates(wheels, [float(x) for x in case["twist"]]), case["wheel_rates"])
    for case in reference["forward"]:
        twist, report = jv.body_twist(wheels, [float(x) for x in case["wheel_rates"]])
        within(digits["all"], twist, case["twist"])
        within(digits["all"], report.norm, case["residual_norm"])
        for state in case["path"]:
            within(digits["all"], jv.integrate_twist(jnp.zeros(3), twist, state["t"]), state["x"])
    # As a mechanism: its rows move it by the same twist, and spins that contradict each other are told.
    state = jd.State(0.0, q, jnp.zeros(7))
    solver = jd.LeastSquares()
    v, _ = jd.kinematic_velocity(system, state, jnp.asarray([10.0, 12.0, 8.0, 14.0]), solver=solver)
    within(13, v[:3], reference["forward"][0]["twist"])
    assert (
        int(jd.kinematic_status(system, state, jnp.asarray([7.0, 3.0, -2.0, 5.0]), solver=solver))
        == jd.Status.CONFLICTING_ROWS
    )


@pytest.mark.exhaustive
def test_omni_wheels_drive_in_any_direction():
    system, q = jm.kinematic_mechanism(jv.omni(3, 0.2, 0.05))
    wheels = jv.wheels_of(system, q)
    np.testing.assert_allclose(jv.wheel_rates(wheels, [0.0, 0.0, 1.0]), 0.2 / 0.05, rtol=1e-14)
    twist = jnp.asarray([0.3, -0.2, 0.7])
    np.testing.assert_allclose(
        jv.body_twist(wheels, jv.wheel_rates(wheels, twist))[0], twist, rtol=0, atol=1e-14
    )
    v, _ = jd.kinematic_velocity(system, jd.State(0.0, q, jnp.zeros(6)), jv.wheel_rates(wheels, twist))
    np.testing.assert_allclose(v[:3], twist, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="count must be a whole number, at least 3"):
        jv.omni(2, 0.2, 0.05)


@pytest.mark.exhaustive
def test_a_differential_drive_of_the_specification():
    wheels = jv.wheels([[0.0, 0.25], [0.0, -0.25]], radius=0.1)
    twist, _ = jv.body_twist(wheels, [4.0, 6.0])
    np.testing.assert_allclose(twist, [0.5, 0.0, 0.4], rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        jv.integrate_twist(jnp.zeros(3), twist, 5.0), [1.136622, 1.770184, 2.0], rtol=0, atol=5e-7
    )
    np.testing.assert_allclose(jv.wheel_rates(wheels, twist), [4.0, 6.0], rtol=0, atol=1e-14)


@pytest.mark.long
def test_integration_is_exact_at_any_step_and_differentiable_at_no_turn():
    pose, twist = jnp.asarray([0.3, -0.1, 0.7]), jnp.asarray([0.5, 0.2, 1.3])
    once = jv.integrate_twist(pose, twist, 2.0)
    many = pose
    for _ in range(8):
        many = jv.integrate_twist(many, twist, 0.25)
    np.testing.assert_allclose(once, many, rtol=0, atol=1e-15)
    slopes = jax.jacfwd(lambda omega: jv.integrate_twist(pose, jnp.stack([twist[0], twist[1], omega]), 2.0))
    for omega in (0.0, 1e-9, 0.3):

        def along(x):
            return jv.integrate_twist(pose, jnp.stack([twist[0], twist[1], x]), 2.0)

        np.testing.assert_allclose(slopes(omega), central(along, omega), rtol=0, atol=1e-8)
    # Whole numbers are numbers.
    whole, real = (
        jv.odometry_covariance(jnp.eye(3), at, (1, 0, 0), jnp.eye(3), 1)
        for at in ((0, 0, 0), (0.0, 0.0, 0.0))
    )
    np.testing.assert_array_equal(whole, real)
    np.testing.assert_allclose(np.diag(whole), [2.0, 2.0 + 1.0 + 1.0 / 3.0, 2.0], rtol=1e-15)


@pytest.mark.long
def test_a_turn_of_rounding_errors_has_the_derivatives_of_none():
    # As maps make it at straight driving: x = v sin(w t) / w, y = v (1 - cos(w t)) / w.
    def straight(omega):
        return jv.integrate_twist(
            jnp.zeros(3, omega.dtype), jnp.stack([jnp.ones_like(omega), jnp.zeros_like(omega), omega]), 1
        )[:2]

    first, second = (
        jax.jit(jax.vmap(slope)) for slope in (jax.jacfwd(straight), jax.jacfwd(jax.jacfwd(straight)))
    )
    for omega, dtype in (([0.0, 1e-17, 1e-30], float), ([1e-8, 1e-30], np.float32)):
        at, eps = jnp.asarray(omega, dtype), float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(first(at), [[-x / 3.0, 0.5] for x in omega], rtol=4 * eps)
        np.testing.assert_allclose(second(at), [[-1.0 / 3.0, -0.25 * x] for x in omega], rtol=4 * eps)
    # On both sides of where the series ends.
    at = np.array([0.999, 1.001, -1.001])
    sine, cosine = np.sin(at), np.cos(at)
    np.testing.assert_allclose(
        jax.vmap(straight)(at), np.stack([sine / at, (1.0 - cosine) / at], axis=1), rtol=4e-16
    )
    np.testing.assert_allclose(first(at)[:, 0], cosine / at - sine / at**2, rtol=1e-14)


@pytest.mark.long
def test_odometry_takes_lists():
    wheels = jv.wheels([(0.0, 0.3), (0.0, -0.3)], radius=0.1)
    one, each = (jv.wheel_noise(wheels, [5.0, 7.0], variance) for variance in (1e-3, [1e-3, 1e-3]))
    np.testing.assert_array_equal(one, each)
    got, expected = (
        jv.odometry_covariance(noise, [0, 0, 0], [1, 0, 1], noise, 1)
        for noise in (np.asarray(one).tolist(), one)
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.long
def test_odometry_drifts_as_its_closed_form_says():
    p, reference, digits, _ = problem("odometry_straight")
    wheels = jv.wheels([[0.0, 0.5 * p["W"]], [0.0, -0.5 * p["W"]]], radius=0.1)
    covariance, moved = jax.jit(jv.odometry_covariance), jax.jit(jv.integrate_twist)
    for case in reference["cases"]:
        rates = jv.wheel_rates(wheels, [p["v"], 0.0, case["omega"]])
        noise = jv.wheel_noise(wheels, rates, p["variance_per_metre"])
        twist = jnp.asarray([p["v"], 0.0, case["omega"]])
        at = (np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 2, 2]))
        for state in case["states"][1:]:
            got = covariance(jnp.zeros((3, 3)), jnp.zeros(3), twist, noise, float(state["t"]))
            within(digits["P"], np.asarray(got)[at], state["P_xx_xy_xth_yy_yth_thth"])
    # On an arc two steps are one.
    twist = jnp.asarray([0.7, 0.1, 0.9])
    start = jnp.diag(jnp.asarray([1e-4, 2e-4, 3e-4]))
    whole = covariance(start, jnp.zeros(3), twist, noise, 2.0)
    half = covariance(start, jnp.zeros(3), twist, noise, 1.0)
    again = covariance(half, moved(jnp.zeros(3), twist, 1.0), twist, noise, 1.0)
    np.testing.assert_allclose(whole, again, rtol=0, atol=1e-16)
    # So are a hundred steps that turn by less than a radian, ten full turns in all, with noise in all
    # directions.
    noise = jnp.asarray([[2e-4, 3e-5, 1e-5], [3e-5, 1e-4, -2e-5], [1e-5, -2e-5, 3e-4]])
    whole = covariance(start, jnp.zeros(3), twist, noise, 70.0)
    for k in range(100):
        at = moved(jnp.zeros(3), twist, 0.7 * k)
        start = covariance(start, at, twist, noise, 0.7)
    np.testing.assert_allclose(whole, start, rtol=1e-12)


def answered(answer):
    @jax.jit
    def turn(left, right):
        return jv.vehicle_twist(car(2.5, 1.5, left, right), speed=1.0, slip=answer)[0][2]

    return turn


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [
        None,
        pytest.param(
            jv.IndependentRows(("rear_left.lateral", "front_left.lateral")), marks=pytest.mark.exhaustive
        ),
        pytest.param(jv.EquivalentBicycle(), marks=pytest.mark.exhaustive),
    ],
)
def test_answers_are_differentiable_from_straight_driving_to_right_angles(answer):
    turn = answered(answer)
    slopes = jax.jit(jax.grad(turn, argnums=(0, 1)))
    for left, right in ((0.3, 0.25), (-0.4, -0.3), (1.4, 1.2)):
        got = slopes(left, right)
        np.testing.assert_allclose(
            got[0], central(lambda x, r=right: turn(x, jnp.asarray(r)), left), rtol=1e-7, atol=1e-7
        )
        np.testing.assert_allclose(
            got[1], central(lambda x, lf=left: turn(jnp.asarray(lf), x), right), rtol=1e-7, atol=1e-7
        )

    # Along the Ackermann angles all of them are the bicycle, whose derivative at straight driving is u / L.
    def steered(delta):
        return turn(*jv.ackermann_angles(2.5, 1.5, delta))

    steered = jax.jit(steered)
    for delta in (-0.2, 0.0, 0.5):
        np.testing.assert_allclose(steered(delta), np.tan(delta) / 2.5, rtol=0, atol=1e-14)
        np.testing.assert_allclose(jax.grad(steered)(delta), 1.0 / (2.5 * np.cos(delta) ** 2), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(steered)(0.0), 0.4, rtol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize(
    ("left", "speed", "held"),
    [pytest.param(0.0, 3.0, True, marks=pytest.mark.exhaustive), (0.5 * np.pi, 0.0, False)],
)
def test_second_derivatives_of_the_least_residual_reach_places_angles_and_weights(left, speed, held):
    start = jnp.concatenate(
        [
            car(2.5, 1.5, 0.0, 0.0).place.ravel(),
            jnp.asarray([left, 0.1, 0.0, 0.0, 1.0, 0.8, 1.2, 0.9, 0.6, speed]),
        ]
    )
    toward = jnp.asarray(np.sin(1.0 + np.arange(start.size)))

    def moved(z):
        slip = jv.LeastResidual(lateral=z[12:16], speed=None if held else z[16])
        twist, report = jv.vehicle_twist(
            jv.wheels(z[:8].reshape(4, 2), steering=z[8:12]), speed=z[17], slip=slip
        )
        return jnp.sum(jnp.sin(twist)) + jnp.sum(report.slip**3)

    slope = jax.grad(moved)
    twice = jax.jit(jax.vmap(lambda z: (slope(z), jax.jvp(slope, (z,), (toward,))[1], moved(z))))
    gradients, changes, values = twice(start + 1e-5 * jnp.asarray([-1.0, 0.0, 1.0])[:, None] * toward)
    np.testing.assert_allclose(gradients[1] @ toward, (values[2] - values[0]) / 2e-5, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(changes[1], (gradients[2] - gradients[0]) / 2e-5, rtol=1e-6, atol=1e-7)


@pytest.mark.long
def test_bicycles_at_right_angles_crabs_and_no_track():
    bicycle = jv.EquivalentBicycle(("front_left", "front_right"))
    # Steered past a right angle the direction turns on; at it the vehicle turns about its rear axle.
    directions = [bicycle.direction(car(2.5, 0.0, angle, angle)) for angle in (1.5, 0.5 * np.pi, 1.65)]
    np.testing.assert_allclose(directions[1], [0.0, 0.0, 1.0], rtol=0, atol=1e-15)
    assert directions[0][0] > 0.0 > directions[2][0]
    assert all(abs(float(jnp.linalg.norm(d)) - 1.0) < 1e-14 for d in directions)
    twist, report = jv.vehicle_twist(car(2.5, 0.0, 0.5 * np.pi, 0.5 * np.pi), speed=1.0, slip=bicycle)
    assert int(report.status) == jd.Status.CONFLICTING_ROWS
    np.testing.assert_array_equal(twist, 0.0)
    # The wheels that are in the way have names.
    assert set(report.fighting()) == set(FRONT)
    # All wheels parallel: it crabs, and nothing slips.
    crab = jv.wheels([[1.0, 0.5], [1.0, -0.5], [-1.0, 0.5], [-1.0, -0.5]], steering=0.4)
    twist, report = jv.vehicle_twist(crab, speed=1.0)
    np.testing.assert_allclose(twist, [1.0, np.tan(0.4), 0.0], rtol=0, atol=1e-14)
    assert report.norm < 1e-14
    # A wheel at the instantaneous center stands, and does not slip.
    angles = jv.steering_angles(crab, [0.5, 0.0, 1.0])
    np.testing.assert_allclose(
        jv.steering_angles(jv.wheels([[0.0, 0.5]]), [0.5, 0.0, 1.0]), 0.0, rtol=0, atol=0
    )
    swerve = jv.wheels(crab.place, steering=angles)
    np.testing.assert_allclose(swerve.across() @ jnp.asarray([0.5, 0.0, 1.0]), 0.0, rtol=0, atol=1e-15)


@pytest.mark.long
def test_a_bicycle_of_two_steered_axles():
    for front in (0.4, -0.4, 0.0):
        # Ideal angles about one center on both axles: no wheel slips, and neither do those in the middle.
        twist = jnp.asarray([1.3, 0.2, front])
        places = jnp.asarray([[1.5, 0.7], [-1.0, 0.7], [1.5, -0.7], [-1.0, -0.7]])
        wheels = jv.wheels(places, steering=jv.steering_angles(jv.wheels(places), twist))
        got, report = jv.vehicle_twist(wheels, speed=1.3, slip=jv.EquivalentBicycle())
        np.testing.assert_allclose(got, twist, rtol=0, atol=1e-14)
        assert report.norm < 1e-14
    # Wheels that fight: the mean of cotangents on each axle, as a bicycle with two handlebars has it.
    angles = np.asarray([0.30, -0.10, 0.22, -0.16])
    middle = np.arctan(1.0 / np.asarray([np.mean(1.0 / np.tan(angles[pair])) for pair in ([0, 2], [1, 3])]))
    two = jv.wheels([[1.5, 0.0], [-1.0, 0.0]], steering=middle)
    bicycle = jv.EquivalentBicycle()
    turned = jax.jit(
        jax.vmap(
            lambda steering: jv.vehicle_twist(jv.wheels(places, steering=steering), speed=1.0, slip=bicycle)[
                0
            ]
        )
    )
    turns = turned(jnp.stack([angles, -angles, np.roll(angles, 1)]))
    np.testing.assert_allclose(turns[0], jv.vehicle_twist(two, speed=1.0)[0], rtol=0, atol=1e-14)
    # Turned the other way, sides in the same places: everything but the speed changes its sign.
    np.testing.assert_allclose(turns[1], turns[0] * jnp.asarray([1.0, -1.0, -1.0]), rtol=0, atol=1e-14)
    assert bicycle.direction(jv.wheels(places))[0] == 1.0
    # Steered behind, by name or not, it heads forward as well; all on one axle nobody knows.
    behind = jv.wheels(places, steering=[0.0, -0.1, 0.0, -0.1])
    both = [answer.direction(behind) for answer in (bicycle, jv.EquivalentBicycle(("wheel_1", "wheel_3")))]
    np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-15)
    assert both[0][0] > 0.5
    assert both[0][2] > 0.0
    twist, report = jv.vehicle_twist(
        jv.wheels([[0.0, 0.5], [0.0, -0.5]]), speed=1.0, slip=jv.EquivalentBicycle()
    )
    assert np.isnan(twist).all()
    assert int(report.status) != jd.Status.OK


@pytest.mark.long
@pytest.mark.parametrize("dtype", [pytest.param(jnp.float64, marks=pytest.mark.exhaustive), jnp.float32])
def test_a_bicycle_that_is_hardly_steered_goes_its_way(dtype):
    for angle in (1e-3, 1e-22, -1e-30):
        wheels = jax.tree.map(lambda x: x.astype(dtype), car(2.5, 1.5, angle, angle))
        twist, report = jv.vehicle_twist(wheels, speed=1.0, slip=jv.EquivalentBicycle(FRONT))
        np.testing.assert_allclose(twist, [1.0, 0.0, angle / 2.5], rtol=1e-6)
        assert int(report.status) == jd.Status.OK


def test_what_is_no_number_is_told():
    wheels = car(2.5, 1.5, 0.3, 0.3)
    spins = {"rates": jnp.asarray([np.nan, 1.0, 1.0, 1.0]), "speed": 1.0}
    # A concrete NaN raises an error at once.
    lost = jax.jit(lambda left: car(2.5, 1.5, left, 0.3))(np.nan)
    bicycle = jv.EquivalentBicycle(FRONT)
    for given, answer, told in (
        (wheels, None, spins),
        (wheels, None, {"speed": np.nan}),
        (lost, bicycle, {"speed": 1.0}),
    ):
        twist, report = jv.vehicle_twist(given, slip=answer, **told)
        assert int(report.status) == jd.Status.NONFINITE
        assert np.all(np.isnan([report.norm, *twist[1:]]))


@pytest.mark.long
def test_wheels_that_swing_do_not_tell_the_twist():
    robot = jv.differential_drive(0.5, 0.1)
    caster = (
        jm.Revolute("pivot", "base_link", "fork", point_a=(-0.3, 0.0), point_b=(0.0, 0.0)),
        jm.Wheel("caster", "fork", (1.0, 0.0), point=(-0.04, 0.0)),
    )
    fork = jm.Body("fork", pose=(-0.3, 0.0, 0.8))
    robot = dataclasses.replace(robot, bodies=[*robot.bodies, fork], joints=[*robot.joints, *caster])
    for coordinates in (jm.Absolute(), jm.Joints()):
        system, q = jm.kinematic_mechanism(robot, coordinates)
        with pytest.raises(ValueError, match=r"wheels caster move relative to 'base_link'.*only=\(\.\.\.\)"):
            jv.wheels_of(system, q)
        wheels = jv.wheels_of(system, q, only=("right", "left"))
        assert wheels.names == ("right", "left")
        np.testing.assert_allclose(jv.body_twist(wheels, [6.0, 4.0])[0], [0.5, 0.0, 0.4], rtol=0, atol=1e-14)
    # Of a truck as it is steered only the trailer swings; of the trailer its own axle is known.
    truck, q = jm.kinematic_mechanism(
        jv.truck_and_trailers(2.0, (3.0,), (1.0,), steering=0.2, headings=(0.3,)), jm.Joints()
    )
    with pytest.raises(ValueError, match="wheels axle_1 move"):
        jv.wheels_of(truck, q)
    np.testing.assert_allclose(
        jv.wheels_of(truck, q, only=("rear", "front")).steering, [0.0, 0.2], rtol=0, atol=1e-15
    )
    # Of numbers that are not known yet nobody can tell.
    np.testing.assert_allclose(
        jax.jit(lambda car: jv.wheels_of(car, q).steering)(truck)[:2], [0.0, 0.2], rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(
        jv.wheels_of(truck, q, "trailer_1", only=("axle_1",)).place, [[0.0, 0.0]], rtol=0, atol=1e-15
    )


@pytest.mark.long
def test_reports_in_batches_and_single_precision():
    angles = jnp.asarray([[0.3, 0.3], [np.nan, 0.3], [0.0, 0.0]])
    twists, report = jax.jit(
        jax.vmap(lambda pair: jv.vehicle_twist(car(2.5, 1.5, pair[0], pair[1]), speed=1.0))
    )(angles)
    np.testing.assert_allclose(twists[0, 2], 0.12172939, rtol=0, atol=5e-9)
    np.testing.assert_allclose(twists[2], [1.0, 0.0, 0.0], rtol=0, atol=1e-15)
    assert np.all(np.isnan(twists[1]))
    assert int(report.status[1]) == jd.Status.SINGULAR
    single = jax.tree.map(lambda x: x.astype(jnp.float32), car(2.5, 1.5, 0.3, 0.3))
    twist, _ = jv.vehicle_twist(single, speed=1.0)
    assert twist.dtype == jnp.float32
    np.testing.assert_allclose(twist, twists[0], rtol=0, atol=1e-6)


@pytest.mark.long
def test_redundant_rear_wheels_share_their_force():
    # Two rear wheels have one row twice: the same force each, together that of one in the middle.
    def lateral(places):
        bodies = [jm.Body("car", 1000.0, 1500.0, (0.0, 0.0, 0.0))]
        joints = [jm.Wheel(f"rear_{k}", "car", (1.0, 0.0), point=(-1.1, y)) for k, y in enumerate(places)]
        front = jm.Wheel("front", "car", (np.cos(0.2), np.sin(0.2)), point=(1.4, 0.0))
        mechanism, q = jm.planar_mechanism(bodies, [*joints, front], gravity=(0.0, 0.0))
        yaw = 5.0 * np.tan(0.2) / 2.5
        state = jd.State(0.0, q, jnp.asarray([5.0, 1.1 * yaw, yaw]))
        lam = jd.forward_dynamics(mechanism, state, solver=jd.LeastSquares())[1]
        return np.array(
            [x for x, name in zip(lam, mechanism.names.rows, strict=True) if name.startswith("rear")]
        )

    both, one = lateral((0.75, -0.75)), lateral((0.0,))
    np.testing.assert_allclose(both[0], both[1], rtol=1e-12)
    np.testing.assert_allclose(both.sum(), one[0], rtol=1e-12)


SEGWAY = dict.fromkeys(
    (
        "mass",
        "wheel_mass",
        "wheel_inertia",
        "wheel_inertia_across",
        "height",
        "wheel_radius",
        "wheel_separation",
    ),
    0.2,
)
SEGWAY |= {"inertia": (0.1, 0.1, 0.1)}


def test_mistakes_about_wheels():
    wheels = car(2.5, 1.5, 0.3, 0.3)
    with pytest.raises(TypeError, match="give speed"):
        jv.vehicle_twist(wheels)
    with pytest.raises(ValueError, match=r"rates must have shape \(4,\), one per wheel \(front_left"):
        jv.body_twist(wheels, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"did you mean 'rear_left\.lateral'"):
        jv.vehicle_twist(
            wheels, speed=1.0, slip=jv.IndependentRows(("rear_lft.lateral", "front_left.lateral"))
        )
    with pytest.raises(ValueError, match="must be 2 different names in addition to the speed"):
        jv.vehicle_twist(wheels, speed=1.0, slip=jv.IndependentRows(("rear_left.lateral",)))
    with pytest.raises(ValueError, match="both steered and unsteered wheels"):
        jv.vehicle_twist(wheels, speed=1.0, slip=jv.EquivalentBicycle(NAMES))
    with pytest.raises(ValueError, match="needs wheels without rollers on two axles, got 1 of"):
        jv.vehicle_twist(jv.wheels([[0.0, 0.5]]), speed=1.0, slip=jv.EquivalentBicycle())
    with pytest.raises(ValueError, match="no wheel is named 'front'"):
        jv.vehicle_twist(wheels, speed=1.0, slip=jv.EquivalentBicycle(("front",)))
    with pytest.raises(TypeError, match="give speed"):
        jv.body_twist(wheels, jnp.ones(4), jv.EquivalentBicycle(FRONT))
    with pytest.raises(TypeError, match=r"slip must be an answer .*, got the class LeastResidual; call it"):
        jv.vehicle_twist(wheels, speed=1.0, slip=jv.LeastResidual)
    with pytest.raises(ValueError, match=r"Segway: inertia must be three numbers, .*, got shape \(2,\)"):
        jv.Segway(**SEGWAY | {"inertia": (1.0, 1.0)}).kinetic_energy(jnp.zeros(6), jnp.zeros(6))
    still = jd.State(jnp.zeros(()), jnp.zeros(6), jnp.zeros(6))
    for field, value in (("inertia", jnp.array([-1.0, 1.0, 1.0])), ("wheel_mass", -1.0)):
        with pytest.raises(ValueError, match=f"Segway.{field} must not be negative"):
            jd.rollout(jv.Segway(**SEGWAY | {field: value}), jd.RungeKutta.rk4(), still, dt=0.01, steps=1)
    for arguments, message in (
        ({"places": [0.0, 1.0]}, r"shape \(k, 2\)"),
        ({"places": [[0.0, 1.0]], "radius": [1.0, 2.0]}, "radius must be one number"),
        ({"places": [[0.0, 1.0]], "steering": 20.0}, "steering must lie between -pi and pi, got 20"),
        ({"places": [[0.0, 1.0], [1.0, 0.0]], "names": ("a", "a")}, "2 different names"),
        ({"places": [[0.0, 1.0], [1.0, 0.0]], "names": ("a", "b", "b")}, "2 different names"),
        ({"places": [[0.0, 1.0]], "radius": 0}, "radius must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            jv.wheels(**arguments)
    with pytest.raises(ValueError, match=r"twist must have shape \(3,\)"):
        jv.wheel_rates(wheels, (1.0, 0.2))
    with pytest.raises(ValueError, match=r"gravity must be finite and nonzero, in m/s\^2"):
        jv.linear_bicycle(gravity=0.0)
    mechanism, q = jm.planar_mechanism([jm.Body("base_link", 1.0, 1.0)], [])
    with pytest.raises(ValueError, match="has no wheels"):
        jv.wheels_of(mechanism, q)
    with pytest.raises(ValueError, match="no body is named 'car'"):
        jv.wheels_of(mechanism, q, "car")
    with pytest.raises(ValueError, match="wheelbase must be positive and finite, in m"):
        jv.ackermann(0.0, 1.5)
    with pytest.raises(ValueError, match=r"lengths\[1\] must be"):
        jv.truck_and_trailers(3.0, (1.0, 0.0), (0.0, 0.0))
    with pytest.raises(ValueError, match="one length, offset and heading per trailer, got 2, 1 and 2"):
        jv.truck_and_trailers(3.0, (1.0, 2.0), (0.0,))
    with pytest.raises(ValueError, match="or 4 of them, one per wheel"):
        jv.skid_steer(1.0, 1.0, (0.1, 0.2))


@all_cases(
    ("make", "message"),
    [
        (
            lambda: jv.bicycle(0.0, steering=30.0, pose=(0.0, 1.0)),
            "wheelbase must be .*; steering must lie .* rad; pose must be 3 finite",
        ),
        (lambda: jv.bicycle(2.5, steering=(0.1, 0.2)), "bicycle: steering must be one number, finite, got"),
        (
            lambda: jv.ackermann(2.5, 1.5, steering=(0.1, 0.2, 0.3)),
            "steering must be one number, or 2 of them",
        ),
        (
            lambda: jv.differential_drive(0.0, None, center=(0.0, 0.0, 1.0)),
            "wheel_separation .* positive.*; wheel_radius .*None; center must be 2",
        ),
        (lambda: jv.skid_steer(0.0, 0.0, 0.1), "skid_steer: wheelbase .*; track"),
        (lambda: jv.truck_and_trailers(0.0, [3.0], [1.0]), "truck_and_trailers: wheelbase must be"),
        (
            lambda: jv.truck_and_trailers(3.0, [3.0, 4.0], [1.0, 0.0], trailer_mass=[1.0] * 3),
            "trailer_mass must be .* one per trailer",
        ),
        (lambda: jv.mecanum(1.0, 1.0, 0.1, roller_angle=[0.7] * 4), "roller_angle must be one number"),
        (lambda: jv.rocker_bogie(rocker=(0.1, 0.2), rear=np.nan), "rocker must be 3 finite numbers.*; rear"),
        (lambda: jv.linear_bicycle(jv.BicycleParameters(w=0.0)), "w, the wheelbase, must be"),
        (
            lambda: jv.integrate_twist((0.0, 0.0), (1.0, 0.0, 0.0), 1.0),
            r"integrate_twist: pose must have shape \(3,\)",
        ),
        (
            lambda: jv.steering_angles(car(2.5, 1.5, 0.0, 0.0), (1.0, 0.0)),
            r"steering_angles: twist must have shape \(3,\)",
        ),
        (
            lambda: jv.odometry_covariance(np.eye(2), np.zeros(3), np.ones(3), np.eye(3), 1.0),
            r"covariance must have shape \(3, 3\)",
        ),
        (lambda: jv.from_commonroad(np.zeros(7)), r"x must have shape \(5,\)"),
        (lambda: jv.to_commonroad(jd.State(0.0, jnp.zeros(6), jnp.zeros(6)), 1.0), "in joint coordinates"),
        (lambda: jv.wheel_loads(1.0, [[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]]), "must not all be on a line"),
        (lambda: jv.axle_loads(1.0, 1.0, -1.0), r"front \+ rear must not be zero"),
        (
            lambda: jv.wheel_loads(1.0, [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], 0.5, 3.0),
            r"acceleration must have shape \(2,\)",
        ),
        (lambda: jv.ackermann(0.0, "wide"), "ackermann: wheelbase .*; track must be positive.* got 'wide'"),
        (lambda: jv.omni(3, 1.0, 0.1, angle=(0.0, 1.0)), "omni: angle must be one number"),
        (
            lambda: jv.truck_and_trailers(3.0, [0.0], [None], headings=[np.nan]),
            r"lengths\[0\] .*; offsets\[0\] .*; headings\[0\] must",
        ),
        (
            lambda: jv.segway(**SEGWAY | {"height": None, "gravity": (0.0, 0.0, -9.81)}),
            "segway: height must be one .*; gravity must be one",
        ),
        (
            lambda: jv.vehicle_twist(car(2.5, 1.5, 0.0, 0.0), speed=[1.0, 2.0]),
            r"speed must be one number in m/s, got shape \(2,\)",
        ),
        (
            lambda: jv.vehicle_twist(
                car(2.5, 1.5, 0.0, 0.0), speed=1.0, slip=jv.LeastResidual(lateral=(1.0, 2.0))
            ),
            r"LeastResidual: lateral must be one weight, or have shape \(4,\), one per wheel, got \(2,\)",
        ),
    ],
)
def test_what_is_given_to_vehicles_is_looked_at_all_at_once(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.long
def test_masses_of_a_single_trailer_may_be_listed():
    truck = jv.truck_and_trailers(3.0, [4.0], [0.5], trailer_mass=[7.0], trailer_inertia=[2.0])
    assert (float(truck.bodies[-1].mass), float(truck.bodies[-1].inertia)) == (7.0, 2.0)
