"""Wheels of planar mechanisms: published motions, closed forms, slip as it is told, forms of coordinates,
mistakes.
"""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from vehicle_references import central, problem, states_at, within

import jaxdae as jd
import jaxdae.mechanisms as jm
import jaxdae.vehicles as jv

# Rounding makes wheels slip a little more with every step; the projection takes that back.
METHOD = jd.Projected(jd.RungeKutta.dormand_prince5(), jd.Projection())
REDUNDANT = jd.RungeKutta.rk4(solver=jd.LeastSquares())
FORMS = (jm.Absolute(), jm.Joints())


def coin(p, coordinates=jm.Absolute(), **slip):
    bodies = [jm.Body("coin", p["m"], p["I_yaw"], (0.0, 0.0, -0.4)), jm.Rotor("spin", p["I_axle"])]
    wheel = jm.Wheel("wheel", "coin", (1.0, 0.0), point=(0.0, 0.0), radius=p["R"], spin="spin", **slip)
    gravity = (p["g"] * np.sin(p["alpha"]), 0.0)
    return jm.planar_mechanism(bodies, [wheel], gravity=gravity, coordinates=coordinates)


@pytest.mark.long
def test_an_upright_coin_on_an_incline_has_its_published_motion():
    p, reference, digits, _ = problem("coin_incline")
    mechanism, q = coin(p)
    assert mechanism.names.rows == ("wheel.lateral", "wheel.rolling")
    assert mechanism.names.row_units == ("m/s", "m/s")
    states = reference["states"]
    swap = np.array([0, 1, 3, 2])  # heading before spin
    v = jnp.asarray(states[0]["qv"][4:])[swap]
    run = states_at(mechanism, METHOD, q, v, [s["t"] for s in states[1:]], 4e-3)
    expected = np.array([s["qv"] for s in states[1:]])
    within(digits["q"], run.state.q, expected[:, :4][:, swap])
    within(digits["v"], run.state.v, expected[:, 4:][:, swap])
    # The forces of the ground: along n and e here, along x and y in the file.
    n = np.stack([-np.sin(expected[:, 3]), np.cos(expected[:, 3])], axis=1)
    e = np.stack([np.cos(expected[:, 3]), np.sin(expected[:, 3])], axis=1)
    lam = jax.vmap(lambda s: jd.forward_dynamics(mechanism, s)[1])(run.state)
    within(11, lam[:, :1] * n + lam[:, 1:] * e, [s["lam"] for s in states[1:]])


@pytest.mark.exhaustive
def test_a_knife_edge_on_an_incline_has_its_published_motion():
    p, reference, digits, values = problem("knife_edge_incline")
    edge = jm.Wheel("edge", "blade", (1.0, 0.0), point=(0.0, 0.0))
    start = values["initial_conditions"]
    gravity = (p["g"] * np.sin(p["alpha"]), 0.0)
    mechanism, q = jm.planar_mechanism(
        [jm.Body("blade", p["m"], p["I"], start["q"])], [edge], gravity=gravity
    )
    states = reference["states"][1:]
    run = states_at(mechanism, METHOD, q, jnp.asarray(start["v"]), [s["t"] for s in states], 4e-3)
    within(digits["q"], jnp.concatenate([run.state.q, run.state.v], axis=1), [s["qv"] for s in states])
    lam = jax.vmap(lambda s: jd.forward_dynamics(mechanism, s)[1])(run.state)
    within(digits["lam"], lam, [s["lam"] for s in states])


def differential_drive(coordinates=jm.Absolute(), gravity=(0.0, 0.0)):
    """Returns the robot of vehicles.md V2: m = 20, Iz = 1, Iw = 0.02, r = 0.1, track 0.5, torques 1 and 0.4 N
    m.
    """
    bodies = [jm.Body("chassis", 20.0, 1.0), jm.Rotor("left", 0.02), jm.Rotor("right", 0.02)]
    joints = [
        jm.Wheel("left_wheel", "chassis", (1.0, 0.0), point=(0.0, 0.25), radius=0.1, spin="left"),
        jm.Wheel(
            "right_wheel", "chassis", (1.0, 0.0), point=(0.0, -0.25), radius=0.1, spin="right", lateral=False
        ),
    ]
    forces = [
        jm.Torque("left_motor", "ground", "left", 0.4),
        jm.Torque("right_motor", "ground", "right", 1.0),
    ]
    return jm.planar_mechanism(bodies, joints, forces, gravity=gravity, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", FORMS)
def test_torques_on_wheels_accelerate_a_differential_drive_as_the_closed_form_says(coordinates):
    mechanism, q = differential_drive(coordinates)
    a, lam = jd.forward_dynamics(mechanism, jd.State(0.0, q, jnp.zeros(5)))
    m, turning = 20.0 + 2 * 0.02 / 0.1**2, 1.0 + 0.02 * 0.5**2 / (2 * 0.1**2)
    forward, yaw = 1.4 / (0.1 * m), 0.5 * 0.6 / (2 * 0.1 * turning)
    np.testing.assert_allclose(forward, 0.583333, rtol=0, atol=5e-7)
    spins = [(forward - 0.25 * yaw) / 0.1, (forward + 0.25 * yaw) / 0.1]
    np.testing.assert_allclose(a, [forward, 0.0, yaw, *spins], rtol=0, atol=1e-13)
    # The force of the ground on each wheel is what its torque leaves after its spin.
    forces = dict(zip(mechanism.names.rows, lam, strict=True))
    np.testing.assert_allclose(
        forces["left_wheel.rolling"], (0.4 - 0.02 * spins[0]) / 0.1, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        forces["right_wheel.rolling"], (1.0 - 0.02 * spins[1]) / 0.1, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(forces["left_wheel.lateral"], 0.0, rtol=0, atol=1e-12)


def test_four_discs_roll_down_a_slope():
    # 100 kg with four discs of 5 kg, whose inertia about the axle is m r^2 / 2: 9.81 sin(10 deg) 120 / 130.
    names = ("fl", "fr", "rl", "rr")
    places = ((0.5, 0.4), (0.5, -0.4), (-0.5, 0.4), (-0.5, -0.4))
    bodies = [jm.Body("cart", 120.0, 20.0), *(jm.Rotor(name, 0.5 * 5.0 * 0.3**2) for name in names)]
    joints = [
        jm.Wheel(f"{name}_wheel", "cart", (1.0, 0.0), point=place, radius=0.3, spin=name)
        for name, place in zip(names, places, strict=True)
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(9.81 * np.sin(np.deg2rad(10.0)), 0.0))
    state = jd.State(0.0, q, jnp.zeros(7))
    a, lam = jd.forward_dynamics(mechanism, state, solver=jd.LeastSquares())
    np.testing.assert_allclose(a[0], 9.81 * np.sin(np.deg2rad(10.0)) * 120.0 / 130.0, rtol=1e-12)
    np.testing.assert_allclose(a[0], 1.572451, rtol=0, atol=5e-7)
    rolling = np.array([name.endswith("rolling") for name in mechanism.names.rows])
    np.testing.assert_allclose(np.asarray(lam)[rolling], -0.5 * 5.0 * a[0], rtol=1e-11)
    # Four lateral rows hold the heading and the side; two of them say nothing new.
    report = jd.diagnose(mechanism, state)
    assert (report.rows, report.rank, report.mobility) == (8, 6, 1)
    assert all(row.endswith("lateral") for row in report.redundant_rows)


def notes_car(steering, angle=0.0):
    """Returns the car of the notes (vehicles.md A3): welded rear wheels, a front wheel on a rotary joint that
    is steered.
    """
    bodies = [
        jm.Body("chassis", 1200.0, 1500.0, (1.1, 0.0, 0.0)),
        jm.Body("left", 20.0, 1.2, (0.0, 0.75, 0.0)),
        jm.Body("right", 20.0, 1.2, (0.0, -0.75, 0.0)),
        jm.Body("front", 20.0, 1.2, (2.5, 0.0, angle)),
    ]
    joints = [
        jm.Weld("left_hub", "chassis", "left", at=(0.0, 0.75)),
        jm.Weld("right_hub", "chassis", "right", at=(0.0, -0.75)),
        jm.Revolute("kingpin", "chassis", "front", at=(2.5, 0.0)),
        jm.PrescribedMotion("steering", "kingpin", steering),
        *(
            jm.Wheel(f"{name}_wheel", name, (1.0, 0.0), point=(0.0, 0.0))
            for name in ("left", "right", "front")
        ),
    ]
    push = jm.Force("push", "chassis", point=(-1.1, 0.0), force=(800.0, 0.0), body_frame=True)
    return jm.planar_mechanism(bodies, joints, [push], gravity=(0.0, 0.0))


def rear_axle(q):
    return jnp.stack([q[0] - 1.1 * jnp.cos(q[2]), q[1] - 1.1 * jnp.sin(q[2]), q[2]])


def started(mechanism, q, speed, turning):
    """Returns the start of the notes' car at a speed of the rear axle, with the rate of its steering."""
    yaw = speed * float(np.tan(q[11] - q[2])) / 2.5
    v = [
        speed,
        1.1 * yaw,
        yaw,
        speed - 0.75 * yaw,
        0.0,
        yaw,
        speed + 0.75 * yaw,
        0.0,
        yaw,
        speed,
        2.5 * yaw,
        yaw + turning,
    ]
    return jnp.asarray(v)


@pytest.mark.long
def test_the_car_of_the_notes_with_fixed_steering():
    mechanism, q = notes_car(jm.Polynomial((0.0,)), 0.3)
    v = started(mechanism, q, 3.0, 0.0)
    state = jd.State(0.0, q, v)
    report = jd.diagnose(mechanism, state)
    assert (report.coordinates, report.rows, report.rank, report.mobility) == (12, 12, 11, 1)
    assert report.velocity_violation < 1e-14
    a, lam = jd.forward_dynamics(mechanism, state, solver=jd.LeastSquares())
    # (m_t + J kappa^2) u' = F
    m_total, inertia, kappa = 1260.0, 3103.1, np.tan(0.3) / 2.5
    forward = 800.0 / (m_total + inertia * kappa**2)
    np.testing.assert_allclose(forward, 0.6118503963, rtol=0, atol=5e-11)
    np.testing.assert_allclose(a[3] + 0.75 * a[5], forward, rtol=1e-11)
    lateral = {name: lam[k] for k, name in enumerate(mechanism.names.rows) if name.endswith("lateral")}
    np.testing.assert_allclose(lateral["front_wheel.lateral"], 737.15295, rtol=0, atol=5e-6)
    np.testing.assert_allclose(
        lateral["left_wheel.lateral"] + lateral["right_wheel.lateral"], 802.63871, rtol=0, atol=5e-6
    )
    run = states_at(mechanism, REDUNDANT, q, v, [1.0, 2.0, 4.0], 5e-3)
    # On a circle of radius L / tan(delta) about (0, R), as the car of first order.
    places = jax.vmap(rear_axle)(run.state.q)
    radius = 1.0 / kappa
    np.testing.assert_allclose(np.hypot(places[:, 0], places[:, 1] - radius), radius, rtol=0, atol=1e-11)
    np.testing.assert_allclose(places[-1], [7.0148686890, 12.0952275899, 2.0904700203], rtol=0, atol=1e-10)
    speed = np.hypot(*(run.state.v[-1, 3:5] + run.state.v[-1, 6:8]) / 2.0)
    np.testing.assert_allclose(speed, 5.4474015853, rtol=0, atol=1e-10)


@pytest.mark.exhaustive
def test_the_car_of_the_notes_with_steering_that_swings():
    mechanism, q = notes_car(jm.Sinusoid(0.3, 1.3 / (2.0 * np.pi)))
    run = states_at(mechanism, REDUNDANT, q, started(mechanism, q, 3.0, 0.39), [4.0], 5e-3)
    speed = np.hypot(*(run.state.v[-1, 3:5] + run.state.v[-1, 6:8]) / 2.0)
    np.testing.assert_allclose(speed, 5.4365126407, rtol=0, atol=1e-10)


def bicycle(front=0.0, rear=0.0, steer=0.3):
    """Returns a body on two wheels 2.5 m apart, steered by a number, with slip angles."""
    heading = jnp.stack([jnp.cos(steer), jnp.sin(steer)])
    wheels = [
        jm.Wheel("rear", "frame", (1.0, 0.0), point=(0.0, 0.0), slip_angle=rear),
        jm.Wheel("front", "frame", heading, point=(2.5, 0.0), slip_angle=front),
    ]
    return jm.planar_mechanism([jm.Body("frame", 1.0, 1.0)], wheels, gravity=(0.0, 0.0))


@jax.jit
def yaw_rate(front, rear, steer):
    """Returns the yaw rate of the bicycle at 1 m/s."""
    mechanism, q = bicycle(front, rear, steer)
    rows = mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(3))
    return jnp.linalg.solve(rows[:, 1:], -rows[:, 0])[1]


def test_wheels_slip_as_they_are_told():
    got = yaw_rate(0.05, 0.03, 0.3)
    np.testing.assert_allclose(got, (np.tan(0.25) + np.tan(0.03)) / 2.5, rtol=1e-14)
    np.testing.assert_allclose(got, 0.1141404, rtol=0, atol=5e-8)
    # A wheel that slips by a tenth: 6 rad/s right, 4 rad/s left, r = 0.1, track 0.5.
    bodies = [jm.Body("chassis", 1.0, 1.0), jm.Rotor("left", 1.0), jm.Rotor("right", 1.0)]
    joints = [
        jm.Wheel("left_wheel", "chassis", (1.0, 0.0), point=(0.0, 0.25), radius=0.1, spin="left"),
        jm.Wheel(
            "right_wheel",
            "chassis",
            (1.0, 0.0),
            point=(0.0, -0.25),
            radius=0.1,
            spin="right",
            lateral=False,
            slip_ratio=0.1,
        ),
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, gravity=(0.0, 0.0))
    rows = mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(5))
    twist = jnp.linalg.solve(rows[:, :3], -rows[:, 3:] @ jnp.asarray([4.0, 6.0]))
    np.testing.assert_allclose(twist, [0.47, 0.0, 0.28], rtol=0, atol=1e-15)


@pytest.mark.long
def test_slip_is_a_function_of_time_or_an_input():
    """A wheel that slides by alpha(t) = 0.1 sin(2 t), and slips of a robot as inputs, against the numbers at
    an instant.
    """
    wave = jm.Sinusoid(amplitude=0.1, frequency=1.0 / np.pi)
    (moving, q), (plain, _) = (bicycle(front, 0.0, 0.3) for front in (wave, 0.1 * np.sin(0.8)))
    t, v = jnp.asarray(0.4), jnp.asarray([1.0, 0.2, 0.3])
    np.testing.assert_allclose(
        moving.constraint_jacobian(t, q, v), plain.constraint_jacobian(t, q, v), rtol=1e-15
    )
    # The row moves by itself: gamma has alpha' e . v / cos^2(alpha) beside what turning makes.
    of_time = moving.constraint_bias(t, q, v) - plain.constraint_bias(t, q, v)
    along = np.cos(0.3) * 1.0 + np.sin(0.3) * (0.2 + 2.5 * 0.3)
    np.testing.assert_allclose(
        of_time, [0.0, 0.2 * np.cos(0.8) * along / np.cos(0.1 * np.sin(0.8)) ** 2], rtol=0, atol=1e-15
    )

    description = jv.differential_drive(0.5, 0.1)
    drives = [
        description.drives[0],
        jm.SlipRatio("slip", "right"),
        description.drives[1],
        jm.SlipAngle("drift", "left"),
    ]
    robot, q = jm.kinematic_mechanism(dataclasses.replace(description, drives=drives), jm.Joints())
    assert robot.names.inputs == ("left_motor", "slip", "right_motor", "drift")
    assert robot.names.input_units == ("rad/s", "", "rad/s", "rad")
    state = jd.State(0.0, q, jnp.zeros(5))
    u = jnp.asarray([4.0, 0.1, 6.0, 0.0])
    twist = jd.kinematic_velocity(robot, state, u)[0]
    np.testing.assert_allclose(twist[:3], [0.47, 0.0, 0.28], rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        robot.inputs_of(jd.State(jnp.zeros(()), q, twist)), [4.0, 0.0, 6.0, 0.0], rtol=0, atol=1e-14
    )
    slope = jax.jacobian(lambda u: jd.kinematic_velocity(robot, state, u)[0])(u.at[1].set(0.0))
    # v = (4 + (1 - s) 6) r / 2, omega = ((1 - s) 6 - 4) r / W, v_y = -tan(drift) e . v of the left wheel,
    # which is 0.4 m/s.
    np.testing.assert_allclose(slope[:3, 1], [-0.3, 0.0, -1.2], rtol=0, atol=1e-14)
    np.testing.assert_allclose(slope[:3, 3], [0.0, -0.4, 0.0], rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match=r"drive 'drift': 'right' has no slip_angle .*a lateral row"):
        jm.kinematic_mechanism(dataclasses.replace(description, drives=[jm.SlipAngle("drift", "right")]))
    with pytest.raises(ValueError, match=r"wheel is 'rihgt', which is not a joint \(did you mean 'right'"):
        jm.kinematic_mechanism(dataclasses.replace(description, drives=[jm.SlipRatio("slip", "rihgt")]))
    with pytest.raises(ValueError, match=r"slip_angle must be a number or a function of time"):
        bicycle(lambda t: jnp.zeros(2), 0.0, 0.3)


@pytest.mark.long
def test_derivatives_in_slip_and_steering_at_zero_and_at_a_right_angle():
    slopes = jax.grad(yaw_rate, argnums=(0, 1, 2))(0.0, 0.0, 0.0)
    # omega = (tan(steer - front) + tan(rear)) / L
    np.testing.assert_allclose(slopes, [-0.4, 0.4, 0.4], rtol=1e-14)
    for k in range(3):
        start = [0.0, 0.0, 0.0]

        def along(x, k=k, start=start):
            return yaw_rate(*start[:k], x, *start[k + 1 :])

        np.testing.assert_allclose(slopes[k], central(along, 0.0), rtol=1e-7)

    # At a right angle the rows leave the turn about the rear wheel, and stay differentiable: the front row is
    # along -x.
    def front_row(steer):
        mechanism, q = bicycle(steer=steer)
        return mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(3))[1]

    np.testing.assert_allclose(front_row(0.5 * np.pi), [-1.0, 0.0, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(jax.jacfwd(front_row)(0.5 * np.pi), [0.0, -1.0, -2.5], rtol=0, atol=1e-15)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
def test_no_slip_is_the_mechanism_of_a_skate_to_the_last_bit():
    bodies = [jm.Body("blade", 1.5, 0.3, (0.2, 0.1, 0.7))]
    q, v = jnp.asarray([0.2, 0.1, 0.7]), jnp.asarray([0.5, 0.6, 1.3])
    wheel, skate = (
        jm.planar_mechanism(bodies, [joint])[0]
        for joint in (
            jm.Wheel("w", "blade", (0.6, 0.8), point=(0.3, 0.1), slip_angle=0.0),
            jm.Skate("w", "ground", "blade", (0.6, 0.8), point_b=(0.3, 0.1)),
        )
    )
    t = jnp.zeros(())
    np.testing.assert_array_equal(wheel.constraint_jacobian(t, q, v), skate.constraint_jacobian(t, q, v))
    np.testing.assert_allclose(
        wheel.velocity_constraint(t, q, v), skate.velocity_constraint(t, q, v), rtol=0, atol=4.5e-16
    )
    for got, expected in zip(
        *(jd.forward_dynamics(m, jd.State(0.0, q, v)) for m in (wheel, skate)), strict=True
    ):
        # Two last bits of the forces that meet in it, m omega v = 1.5 N.
        np.testing.assert_allclose(got, expected, rtol=0, atol=2 * np.finfo(float).eps * 1.5)


def test_rollers_hold_the_velocity_along_their_axles():
    def row(joint):
        bodies = [jm.Body("base", 1.0, 1.0, (0.3, -0.2, 0.4)), jm.Rotor("spin", 1.0)]
        mechanism, q = jm.planar_mechanism(bodies, [joint], gravity=(0.0, 0.0))
        return np.asarray(mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(4))[0])

    e, n = np.array([np.cos(0.4), np.sin(0.4)]), np.array([-np.sin(0.4), np.cos(0.4)])
    mecanum = row(
        jm.MecanumWheel(
            "wheel", "base", (1.0, 0.0), point=(0.2, 0.15), spin="spin", radius=0.05, roller_angle=-np.pi / 4
        )
    )
    c = (e - n) / np.sqrt(2.0)
    np.testing.assert_allclose(mecanum, [*c, -0.35 / np.sqrt(2.0), -0.05 / np.sqrt(2.0)], rtol=0, atol=1e-15)
    omni = row(jm.OmniWheel("wheel", "base", (0.0, 1.0), point=(0.2, 0.15), spin="spin", radius=0.05))
    np.testing.assert_allclose(omni, [*n, 0.2, -0.05], rtol=0, atol=1e-15)


@pytest.mark.exhaustive
def test_rotors_in_both_forms_of_coordinates():
    absolute, q = differential_drive()
    joints, theta = differential_drive(jm.Joints())
    assert absolute.names.coordinates == (
        "chassis.x",
        "chassis.y",
        "chassis.theta",
        "left.theta",
        "right.theta",
    )
    assert joints.names.coordinates == absolute.names.coordinates
    state = jd.State(jnp.zeros(()), theta + jnp.arange(5.0) / 7.0, jnp.arange(5.0) / 3.0)
    there = jm.to_absolute(joints, state)
    np.testing.assert_allclose(there.q, state.q, rtol=0, atol=1e-15)
    back = jm.to_joints(joints, there)
    np.testing.assert_allclose(back.q, state.q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(back.v, state.v, rtol=0, atol=1e-14)
    for function in (
        jd.energy,
        lambda m, s: m.force(s.t, s.q, s.v, None),
        lambda m, s: m.constraint_bias(s.t, s.q, s.v),
    ):
        np.testing.assert_allclose(function(absolute, there), function(joints, state), rtol=0, atol=1e-13)
    # Blocks of bodies are a matrix where there are rotors, the same one.
    blocks = (
        absolute.evaluate_joints(state.t, state.q, state.v)
        .rows_by(absolute.coordinates.block_rows)
        .as_dense()
    )
    np.testing.assert_array_equal(blocks, absolute.constraint_jacobian(state.t, state.q, state.v))
    frames = absolute.frames(state.q)
    np.testing.assert_allclose(
        [frames.x[1], frames.y[1], frames.angle[1]], [0.0, 0.0, state.q[3]], rtol=0, atol=0
    )
    assert q.shape == (5,)


@pytest.mark.exhaustive
def test_wheels_do_no_work_and_their_forces_are_reactions():
    p = problem("coin_incline")[0]
    mechanism, q = coin(p)
    v = jnp.asarray([0.69, -0.29, 1.7, 3.0])
    state, _ = jd.initialize(mechanism, q, v)
    start = jd.energy(mechanism, state)
    run = states_at(mechanism, METHOD, state.q, state.v, [1.0], 4e-3)
    end = jax.tree.map(lambda x: x[-1], run.state)
    np.testing.assert_allclose(jd.energy(mechanism, end), start, rtol=0, atol=1e-11)
    lam = jd.forward_dynamics(mechanism, state)[1]
    force, torque = jm.reactions(mechanism, state, lam).of("wheel")
    e = np.array([np.cos(-0.4), np.sin(-0.4)])
    np.testing.assert_allclose(force, lam[1] * e + lam[0] * np.array([-e[1], e[0]]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(torque, 0.0, rtol=0, atol=1e-14)


@pytest.mark.exhaustive
def test_wheels_in_single_precision_and_in_batches_of_one():
    mechanism, q = differential_drive()
    single = jax.tree.map(lambda x: x.astype(jnp.float32), mechanism)
    a, lam = jd.forward_dynamics(single, jd.State(0.0, q.astype(jnp.float32), jnp.zeros(5, jnp.float32)))
    assert a.dtype == lam.dtype == jnp.float32
    one = jax.vmap(lambda q: jd.forward_dynamics(mechanism, jd.State(0.0, q, jnp.zeros(5)))[0])(q[None])
    np.testing.assert_allclose(a, one[0], rtol=1e-5, atol=1e-5)


CHASSIS = [jm.Body("chassis", 1.0, 1.0), jm.Rotor("spin", 1.0)]


@all_cases(
    ("bodies", "joints", "message"),
    [
        (CHASSIS, [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), radius=0.1)], "radius but no spin"),
        (CHASSIS, [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), spin="spin")], "'spin' but no radius"),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", (0, 0), point=(0, 0))],
            "axis must be two numbers that are not both zero",
        ),
        (CHASSIS, [jm.Wheel("w", "chassis", None, point=(0, 0))], "axis must be two numbers"),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", point=(0, 0))],
            "axis must be two numbers that are not both zero (the heading of the wheel), got",
        ),
        (
            CHASSIS,
            [jm.OmniWheel("w", "chassis", (1, 0), point=(0, 0), spin="spin")],
            "radius must be a finite number, got None",
        ),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), slip_angle=[0.1, 0.2])],
            "slip_angle must be a finite number",
        ),
        (CHASSIS, [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), lateral=False)], "has no rows"),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", (1, 0), (0, 0), None, 0.1, "spin", False, 0.1)],
            "slip_angle and lateral=False",
        ),
        (CHASSIS, [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), slip_ratio=0.1)], "slip_ratio but no spin"),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), radius=0.1, spin="chassis")],
            "'chassis', which is a body with a pose",
        ),
        (
            CHASSIS,
            [jm.Wheel("w", "chassis", (1, 0), point=(0, 0), radius=0.1, spin="spn")],
            "did you mean 'spin'",
        ),
        (
            CHASSIS[:1],
            [jm.OmniWheel("w", "chassis", (1, 0), point=(0, 0), spin="spin", radius=0.1)],
            "not a rotor (none available)",
        ),
        (
            CHASSIS,
            [jm.Wheel("w", "spin", (1, 0), point=(0, 0))],
            "'spin' is a rotor, which has an angle but no position",
        ),
        (CHASSIS, [jm.Revolute("pin", "chassis", "spin", at=(0, 0))], "'spin' is a rotor"),
        (
            CHASSIS,
            [jm.MecanumWheel("w", "chassis", (1, 0), point=(0, 0), spin=None, radius=0.1, roller_angle=0.8)],
            "needs a spin",
        ),
        ([*CHASSIS[:1], jm.Rotor("spin", 0.0)], [], "inertia must be a positive number"),
        ([*CHASSIS[:1], jm.Rotor("spin", 1.0, np.nan)], [], "angle must be a finite number"),
    ],
)
def test_mistakes_are_named(bodies, joints, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        jm.planar_mechanism(bodies, joints)
    assert len(caught.value.mistakes) == 1


@pytest.mark.long
def test_derivatives_with_respect_to_radius_and_inertia():
    def forward(radius, inertia):
        mechanism, q = differential_drive()
        wheels = {
            key: dataclasses.replace(group, radius=radius * jnp.ones_like(group.radius))
            for key, group in mechanism.joints.items()
        }
        mass = mechanism.inertia.at[1:].set(inertia)
        changed = dataclasses.replace(mechanism, joints=wheels, inertia=mass)
        return jd.forward_dynamics(changed, jd.State(0.0, q, jnp.zeros(5)))[0][0]

    slopes = jax.jit(jax.grad(forward, argnums=(0, 1)))(0.1, 0.02)
    forward = jax.jit(forward)
    np.testing.assert_allclose(slopes[0], central(lambda r: forward(r, 0.02), 0.1), rtol=1e-7)
    np.testing.assert_allclose(slopes[1], central(lambda i: forward(0.1, i), 0.02), rtol=1e-7)
