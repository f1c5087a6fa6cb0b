"""Vehicles of first order and their embedded forms: published paths, closed forms, both orders on one path,
conflicts, mistakes.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vehicle_references import central, problem, states_at, within

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae import tuning
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

RK4 = jd.Kinematic.rk4()
TOLERANT = jd.Kinematic.rk4(solver=jd.LeastSquares())


def arc_robot(p, coordinates=jm.Absolute(), pose=(0.3, -0.2, 0.4)):
    return jm.kinematic_mechanism(jv.differential_drive(p["W"], p["r"], pose=pose), coordinates)


@pytest.mark.long
def test_a_differential_drive_runs_on_its_arc():
    p, reference, digits, _ = problem("diff_drive_arc")
    states = reference["states"][1:]
    robot, q = arc_robot(p)
    assert robot.names.inputs == ("left_motor", "right_motor")
    assert robot.names.input_units == ("rad/s", "rad/s")
    u = jnp.asarray(p["u"])
    run = states_at(robot, RK4, q, jnp.zeros(5), [s["t"] for s in states], 5e-3, jnp.tile(u, (2000, 1)))
    within(digits["x"], run.state.q, [s["x"] for s in states])
    assert np.max(run.info.velocity_violation) < 1e-14
    v, omega = reference["twist"]
    got = run.state.v[-1]
    np.testing.assert_allclose([np.hypot(got[0], got[1]), got[2]], [v, omega], rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("euler", marks=pytest.mark.exhaustive),
        "midpoint",
        pytest.param("rk4", marks=pytest.mark.exhaustive),
    ],
)
def test_a_differential_drive_without_rows_has_the_errors_of_the_methods(name):
    p, reference, digits, _ = problem("diff_drive_arc")
    robot, q = arc_robot(p)
    method, u = getattr(jd.Kinematic, name)(), jnp.asarray(p["u"])
    end = states_at(jm.Embedded(robot), method, q, jnp.zeros(5), [5.0], 0.1, jnp.tile(u, (50, 1))).state.q[
        0, :3
    ]
    within(digits["x"], end, reference["steps_of_0.1_50_times"][name])


def test_motors_that_are_no_rows_are_slowed_down():
    @jd.tree.pytree
    class Wish(jd.KinematicSystem):
        robot: Any
        wish: Any

        def rate(self, t, x, u):
            return self.wish

        def velocity_constraint(self, t, x, xdot):
            return self.robot.velocity_constraint(t, x, xdot)

    p, reference, _, _ = problem("diff_drive_arc")
    robot, q = arc_robot(p)
    wish = Wish(robot.mechanism, jnp.asarray([0.0, 0.0, 0.0, *p["u"]]))
    v, lam = jd.kinematic_velocity(wish, jd.State(0.0, q, jnp.zeros(5)))
    expected = reference["projection_identity_weight_at_start"]
    within(13, v, expected["xdot"])
    within(13, lam, expected["lam"])


@pytest.mark.exhaustive
def test_sensitivities_of_a_path_are_those_of_the_closed_form():
    p, reference, _, _ = problem("diff_drive_arc")
    numbers, u = {name: jnp.asarray(p[name]) for name in ("r", "W")}, jnp.asarray(p["u"])

    def end(numbers, u):
        robot, q = arc_robot(p | numbers)
        run = jd.rollout(
            jm.Embedded(robot),
            RK4,
            jd.State(0.0, q, jnp.zeros(5)),
            jnp.tile(u, (100, 1)),
            dt=0.05,
            save_every=100,
        )
        return run.state.q[-1, :3]

    # Reverse mode transposes forward mode, so that an error of either shows.
    of_numbers, of_u = jax.jit(jax.jacrev(end, argnums=(0, 1)))(numbers, u)
    within(8, of_u.T, [reference["sensitivities_at_5"][key] for key in ("uL", "uR")])
    for name, found in of_numbers.items():
        within(8, found, reference["sensitivities_at_5"][name])


@pytest.mark.long
def test_four_wheels_with_ackermann_steering_are_the_bicycle():
    p, reference, digits, _ = problem("ackermann_ideal")
    speed = jnp.asarray([p["v"], 0.0, 0.0])
    for case in reference["cases"]:
        angles = jv.ackermann_angles(p["L"], p["w"], case["bicycle_steer"])
        within(digits["all"], angles, [case["inner_left"], case["outer_right"]])
        car, start = jm.kinematic_mechanism(jv.ackermann(p["L"], p["w"], steering=angles), jm.Joints())
        state = jd.State(0.0, start, jnp.zeros(5))
        report = jd.diagnose(car.mechanism, state)
        assert (report.coordinates, report.rows, report.rank) == (5, 4, 2)
        v, _ = jd.kinematic_velocity(car, state, speed, solver=jd.LeastSquares())
        within(digits["all"], v[:3], case["twist_rear_axle"])
        for place in case["path"][1:]:
            within(digits["all"], jv.integrate_twist(jnp.zeros(3), v[:3], place["t"]), place["x"])
        rows = np.asarray(car.mechanism.constraint_jacobian(jnp.zeros(()), start, state.v))[:, :3]
        values = np.linalg.svd(rows, compute_uv=False)
        within(digits["all"], values[:2], case["singular_values"][:2])
        # Solvers that need full rank say so.
        for solver in (jd.SchurComplement(), jd.DenseKKT()) if case is reference["cases"][0] else ():
            assert int(jd.kinematic_status(car, state, speed, solver=solver)) == jd.Status.SINGULAR


@pytest.mark.exhaustive
def test_paths_with_ackermann_steering_are_those_of_the_bicycle():
    p, reference, digits, _ = problem("ackermann_ideal")
    speed = jnp.asarray([p["v"], 0.0, 0.0])
    angles = [jv.ackermann_angles(p["L"], p["w"], case["bicycle_steer"]) for case in reference["cases"]]
    cars = [
        jm.kinematic_mechanism(jv.ackermann(p["L"], p["w"], steering=pair), jm.Joints()) for pair in angles
    ]
    car, q = cars[0][0], [start for _, start in cars]
    run = jax.jit(
        jax.vmap(
            lambda q: jd.rollout(
                car,
                TOLERANT,
                jd.State(0.0, q, jnp.zeros(5)),
                jnp.tile(speed, (2000, 1)),
                dt=2e-3,
                save_every=500,
            )
        )
    )(jnp.stack(q))
    jd.raise_if_failed(run.info)
    for k, case in enumerate(reference["cases"]):
        # RK4 on a circle: 12 m (omega h)^4 / 2880 is 3e-14 m; round-off of 2000 steps takes a digit.
        within(digits["all"] - 1, run.state.q[k, [0, 3], :3], [s["x"] for s in case["path"][1:]])


@pytest.mark.long
def test_steering_that_conflicts_is_told_and_named():
    p, _, _, _ = problem("ackermann_nonideal")
    car, q = jm.kinematic_mechanism(jv.ackermann(p["L"], p["w"], steering=(0.3, 0.3)), jm.Joints())
    state = jd.State(0.0, q, jnp.zeros(5))
    for solver in (jd.LeastSquares(), jd.NullSpace()):
        assert (
            int(jd.kinematic_status(car, state, jnp.asarray([3.0, 0.0, 0.0]), solver=solver))
            == jd.Status.CONFLICTING_ROWS
        )
    # The wheels that fight have names.
    frozen = jm.planar_mechanism(
        [jm.Body("car", 1.0, 1.0)],
        [
            jm.Wheel("front_left", "car", (np.cos(0.3), np.sin(0.3)), point=(p["L"], p["w"] / 2)),
            jm.Wheel("front_right", "car", (np.cos(0.3), np.sin(0.3)), point=(p["L"], -p["w"] / 2)),
            jm.Wheel("rear", "car", (1.0, 0.0), point=(0.0, 0.0)),
        ],
    )[0]
    report = jd.diagnose(frozen, jd.State(0.0, jnp.zeros(3), jnp.zeros(3)))
    assert report.mobility == 0
    assert {"front_left.lateral", "front_right.lateral"} <= set(report.blocking_rows)


@pytest.mark.exhaustive
def test_casters_turn_around_or_trail():
    p, reference, digits, _ = problem("caster_kinematic")

    def robot(start, turning):
        bodies = [jm.Body("base", pose=(0.0, 0.0, 0.0)), jm.Body("fork", pose=(p["d"], 0.0, start))]
        joints = [
            jm.Revolute("pivot", "base", "fork", point_a=(p["d"], 0.0), point_b=(0.0, 0.0)),
            jm.Wheel("caster", "fork", (1.0, 0.0), point=(-p["b"], 0.0)),
        ]
        drives = [
            jm.Speed("forward", "base", (1.0, 0.0), point=(0.0, 0.0)),
            jm.Speed("side", "base", (0.0, 1.0), point=(0.0, 0.0)),
            jm.YawRate("yaw", "base"),
        ]
        return jm.kinematic_mechanism(
            jm.Description(bodies=bodies, joints=joints, drives=drives), jm.Joints()
        )

    system, q = robot(0.3, 0.0)
    straight, turning = jnp.asarray([p["V"], 0.0, 0.0]), jnp.asarray([p["V"], 0.0, p["omega"]])

    @jax.jit
    def run(start, u):
        state = jd.State(0.0, q.at[3].set(start), jnp.zeros(4))
        return jd.rollout(system, RK4, state, jnp.tile(u, (8000, 1)), dt=2.5e-4, save_every=200)

    for case in reference["straight"].values():
        found = run(case["phi"][0], straight)
        jd.raise_if_failed(found.info)
        within(digits["phi"], found.state.q[np.array([0, 1, 5]), 3], case["phi"][1:])
    found = run(reference["turning"]["start"], turning)
    within(digits["phi"], found.state.q[np.array([1, 5, 39]), 3], reference["turning"]["phi"][1:])
    # The closed form of vehicles.md V2: pulled at 1 m/s by 0.2 m it comes around, pushed it goes away.
    for speed, start, expected in ((1.0, 2.5, 0.4843826777), (-1.0, 0.1, 1.0949447168)):
        closed = 2.0 * np.arctan(np.tan(0.5 * start) * np.exp(-speed * 0.5 / 0.2))
        np.testing.assert_allclose(closed, expected, rtol=0, atol=5e-11)
        # The same caster on a scale of p.b / 0.2 in time.
        got = run(start, straight * speed * p["b"] / (0.2 * p["V"])).state.q[9, 3]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


@pytest.mark.long
def test_trailers_follow():
    p, reference, digits, _ = problem("trailer_straight")
    description = jv.truck_and_trailers(1.0, (p["L"],), (0.0,), headings=(p["theta0"],))
    states = reference["states"][1:]
    truck, q = jm.kinematic_mechanism(description, jm.Joints())
    u = jnp.asarray([p["v"], 0.0])
    run = states_at(truck, RK4, q, jnp.zeros(5), [s["t"] for s in states], 5e-3, jnp.tile(u, (1000, 1)))
    poses = jax.vmap(lambda s: jm.to_absolute(truck.mechanism, s).q)(run.state)
    within(digits["x"], poses[:, [0, 1, 2, 8]], [s["x"] for s in states])


@pytest.mark.exhaustive
def test_a_truck_with_three_trailers_goes_in_circles():
    p, reference, digits, values = problem("trailer_circle")
    start = np.asarray(values["initial_conditions"]["x"]).reshape(4, 3)
    description = jv.truck_and_trailers(
        p["car_wheelbase"], p["L"], p["M"], steering=p["steer"], headings=list(start[1:, 2])
    )
    truck, q = jm.kinematic_mechanism(description, jm.Joints())
    absolute = jax.jit(jax.vmap(lambda s: jm.to_absolute(truck.mechanism, s).q))
    axles = np.r_[0:3, 6:15]
    within(
        digits["x"], absolute(jd.State(jnp.zeros(1), q[None], jnp.zeros((1, 7))))[0][axles], start.reshape(-1)
    )
    states = reference["states"][1:]
    u = jnp.tile(jnp.asarray([p["v"], 0.0]), (1000, 1))
    run = states_at(truck, RK4, q, jnp.zeros(7), [s["t"] for s in states], 1e-2, u)
    within(digits["x"], absolute(run.state)[:, axles], [s["x"] for s in states])

    # Steering 0.3 sin(0.8 t), by a law of its rate: with hitches as rows, in absolute coordinates.
    p, reference, digits, values = problem("trailer_transient")
    headings = np.asarray(values["initial_conditions"]["minimal"])
    pose = tuple(headings[:3])
    description = jv.truck_and_trailers(
        p["car_wheelbase"], p["L"], p["M"], headings=list(headings[3:]), pose=pose
    )
    truck, q = jm.kinematic_mechanism(description)
    states = reference["states"][1:]

    def law(t, state):
        return jnp.stack([jnp.full_like(t, p["v"]), 0.24 * jnp.cos(0.8 * t)])

    method = jd.Projected(RK4, jd.Projection())
    run = states_at(truck, method, q, jnp.zeros(15), [s["t"] for s in states], 1e-2, law)
    within(digits["x"], run.state.q[:, axles], [s["x"] for s in states])
    assert np.max(run.info.violation) < 1e-13


def car_of_both_orders(coordinates=jm.Joints()):
    description = jv.bicycle(
        2.5,
        steering=0.3,
        mass=1240.0,
        inertia=1545.0,
        fork_mass=20.0,
        fork_inertia=1.2,
        center=(1.0645161290322580, 0.0),
    )
    push = jm.Force(
        "push", "base_link", point=(-1.0645161290322580, 0.0), force=(800.0, 0.0), body_frame=True
    )
    hold = jm.JointForce("hold", "front_kingpin", 0.0, 0)
    description = dataclasses.replace(description, forces=[push, hold])
    return jm.mechanism(description, coordinates), jm.kinematic_mechanism(description, coordinates)[0]


@pytest.mark.long
def test_both_orders_and_the_embedded_form_run_on_one_path():
    (car, q), frame = car_of_both_orders()
    hold = jnp.asarray([0.2])
    v = jd.kinematic_velocity(frame, jd.State(0.0, q, jnp.zeros(4)), jnp.asarray([3.0, 0.1]))[0]
    second = states_at(
        car,
        jd.Projected(jd.RungeKutta.rk4(unroll=False), jd.Projection()),
        q,
        v,
        [2.0],
        5e-3,
        jnp.tile(hold, (400, 1)),
    )
    embedded = jm.EmbeddedMechanism(car, frame)
    start = embedded.start(jd.State(jnp.zeros(()), q, v))
    np.testing.assert_allclose(start.q[4:], [3.0, 0.1], rtol=1e-14)
    third = states_at(embedded, RK4, start.q, start.v, [2.0], 5e-3, jnp.tile(hold, (400, 1)))
    end = embedded.state(jax.tree.map(lambda x: x[0], third.state))
    np.testing.assert_allclose(end.q, second.state.q[0], rtol=0, atol=1e-11)
    np.testing.assert_allclose(end.v, second.state.v[0], rtol=0, atol=1e-11)
    # Accelerations at one state agree to rounding.
    a, _ = jd.forward_dynamics(car, jd.State(0.0, q, v), hold)
    z = embedded.rate(jnp.zeros(()), start.q, hold)[4:]
    np.testing.assert_allclose(
        z,
        [a[0] * np.cos(q[2]) + a[1] * np.sin(q[2]) + 1.0645161290322580 * v[2] ** 2, a[3]],
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.exhaustive
def test_the_rear_axle_of_a_car_with_held_steering_stays_on_its_circle():
    (_, q), frame = car_of_both_orders()
    path = states_at(
        frame, RK4, q, jnp.zeros(4), [1.0, 2.0], 5e-3, jnp.tile(jnp.asarray([3.0, 0.0]), (400, 1))
    ).state.q
    x, y = (
        path[:, 0] - 1.0645161290322580 * np.cos(path[:, 2]),
        path[:, 1] - 1.0645161290322580 * np.sin(path[:, 2]),
    )
    radius = 2.5 / np.tan(0.3)
    np.testing.assert_allclose(np.hypot(x, y - radius), radius, rtol=0, atol=1e-11)
    np.testing.assert_allclose(path[:, 2], np.array([3.0, 6.0]) / radius, rtol=0, atol=1e-12)


@pytest.mark.long
def test_derivatives_of_velocities_at_straight_driving_at_rest_and_at_a_right_angle():
    frame = car_of_both_orders()[1]

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def velocity(angle, speed):
        q = jnp.zeros(4).at[3].set(angle)
        return jd.kinematic_velocity(
            frame, jd.State(0.0, q, jnp.zeros(4)), jnp.stack([speed, jnp.zeros(())])
        )[0][2]

    # omega = speed tan(angle) / L
    np.testing.assert_allclose(velocity(0.0, 1.0)[1], [0.4, 0.0], rtol=0, atol=1e-14)
    for angle, speed in ((0.0, 1.0), (0.3, 0.0), (0.3, 2.0), (-1.2, 1.0)):
        got = velocity(angle, speed)[1]
        np.testing.assert_allclose(
            got[0], central(lambda x, s=speed: velocity(x, s)[0], angle), rtol=1e-7, atol=1e-7
        )
        np.testing.assert_allclose(
            got[1], central(lambda x, a=angle: velocity(a, x)[0], speed), rtol=1e-7, atol=1e-7
        )

    # At a right angle the rear wheel stands: nothing moves from a forward wish, with derivative -2.5 in the
    # yaw rate row.
    q = jnp.zeros(4).at[3].set(0.5 * jnp.pi)
    state = jd.State(0.0, q, jnp.zeros(4))
    status = jd.kinematic_status(frame, state, jnp.asarray([1.0, 0.0]), solver=jd.LeastSquares())
    assert int(status) == jd.Status.CONFLICTING_ROWS
    # As a projected wish it is free of conflict: x' = 0, and differentiable there.
    mechanism, _ = jm.planar_mechanism(
        [jm.Body("body", 1.0, 1.0)], [jm.Wheel("rear", "body", (1.0, 0.0), point=(0.0, 0.0))]
    )

    def wished(angle):
        front = jnp.stack([-jnp.sin(angle), jnp.cos(angle), 2.5 * jnp.cos(angle)])
        rows = jnp.stack([mechanism.constraint_jacobian(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3))[0], front])
        return jd.operators.null_projector(rows) @ jnp.asarray([1.0, 0.0, 0.0])

    np.testing.assert_allclose(wished(0.5 * np.pi), 0.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(jax.jacfwd(wished)(0.5 * np.pi), [0.0, 0.0, -2.5], rtol=0, atol=1e-14)


@pytest.mark.long
def test_a_report_counts_drives_by_themselves():
    robot, q = jm.kinematic_mechanism(jv.differential_drive(0.5, 0.1), jm.Joints())
    report = jd.diagnose(robot, jd.State(0.0, q, jnp.zeros(5)))
    assert (report.rows, report.rank, report.mobility, report.driven) == (3, 3, 2, 2)
    assert report.blocking_rows == ()
    assert "driven by inputs            2" in str(report)
    # Wheels in parallel leave a car its steering alone, and the row of the speed holds nothing that the
    # wheels have not stopped.
    car, q = jm.kinematic_mechanism(jv.ackermann(2.5, 1.5, steering=(0.3, 0.3)), jm.Joints())
    report = jd.diagnose(car, jd.State(0.0, q, jnp.zeros(5)))
    assert (report.rows, report.mobility, report.driven) == (4, 2, 2)
    # The wheels that fight have names although the kingpins may turn, with hitches and kingpins as rows too.
    assert report.stopped == ("speed.rate",)
    assert set(report.blocking_rows) == {"front_left.lateral", "front_right.lateral"}
    assert "blocked inputs" in str(report)
    right_angle, at = jm.kinematic_mechanism(jv.truck_and_trailers(2.0, [3.0], [1.0], steering=0.5 * np.pi))
    found = jd.diagnose(right_angle, jd.State(0.0, at, jnp.zeros(at.shape)))
    assert (found.stopped, found.blocking_rows) == (("speed.rate",), ("front.lateral",))
    assert (jd.diagnose(robot, jd.State(0.0, q, jnp.zeros(5))).stopped, report.told) == ((), ())
    inside = jd.diagnose(car.mechanism, jd.State(0.0, q, jnp.zeros(5)))
    assert (inside.rank, inside.mobility, inside.driven) == (report.rank, 2, 0)


def test_inputs_that_do_not_fit_and_drives_that_are_mistaken():
    robot, q = arc_robot(problem("diff_drive_arc")[0])
    state = jd.State(0.0, q, jnp.zeros(5))
    with pytest.raises(TypeError, match=r"velocities of its drives \(left_motor, right_motor\)"):
        jd.kinematic_velocity(robot, state)
    with pytest.raises(ValueError, match=r"shape \(2,\), one velocity per drive"):
        jd.kinematic_velocity(robot, state, jnp.zeros(3))
    description = jv.differential_drive(0.5, 0.1)
    with pytest.raises(ValueError, match=r"mass must be a positive number, got None.*inertia"):
        jm.mechanism(description)
    for drive, message in (
        (jm.SpinRate("motor", "left"), "not a rotor"),
        (jm.SpinRate("motor", None), "needs a spin"),
        (jm.Speed("motor", "base_lnk", (1, 0), point=(0, 0)), "did you mean 'base_link'"),
        (jm.JointRate("motor", "kingpin"), "which is not a revolute or prismatic joint"),
        (jm.YawRate("left", "base_link"), None),
    ):
        changed = dataclasses.replace(description, drives=[drive])
        if message is None:
            assert jm.kinematic_mechanism(changed)[0].names.inputs == ("left",)
        else:
            with pytest.raises(ValueError, match=message):
                jm.kinematic_mechanism(changed)
    with pytest.raises(
        TypeError, match=r"drives\[0\] is a Rotor; expected SpinRate, YawRate, Speed, JointRate"
    ):
        jm.kinematic_mechanism(dataclasses.replace(description, drives=[jm.Rotor("left")]))


@pytest.mark.long
def test_embedded_velocities_do_not_hide_a_conflict():
    car, q = jm.kinematic_mechanism(jv.ackermann(2.5, 1.5, steering=(0.3, 0.3)), jm.Joints())
    run = jd.rollout(
        jm.Embedded(car, jd.LeastSquares()), RK4, jd.State(0.0, q, jnp.zeros(5)), jnp.ones((2, 3)), dt=0.1
    )
    assert int(run.info.status[-1]) == jd.Status.CONFLICTING_ROWS
    run = jd.rollout(car, TOLERANT, jd.State(0.0, q, jnp.zeros(5)), jnp.ones((2, 3)), dt=0.1)
    assert int(run.info.status[-1]) == jd.Status.CONFLICTING_ROWS


@pytest.mark.long
def test_embedded_mechanisms_say_whether_rows_conflict_or_merely_depend_on_each_other():
    masses = {"mass": 1000.0, "inertia": 1500.0, "knuckle_mass": 20.0, "knuckle_inertia": 1.2}

    @functools.partial(jax.jit, static_argnums=1)
    def status(angles, solver):
        description = jv.ackermann(2.5, 1.5, steering=angles, **masses)
        mechanism, q = jm.mechanism(description, jm.Joints())
        embedded = jm.EmbeddedMechanism(
            mechanism, jm.kinematic_mechanism(description, jm.Joints())[0], solver
        )
        x = jnp.concatenate([q, jnp.asarray([1.0, 0.0, 0.0])])
        return jd.kinematic_status(embedded, jd.State(jnp.zeros(()), x, jnp.zeros_like(x)))

    about_one_point = jnp.arctan(1.0 / (1.0 / jnp.tan(0.3) - jnp.asarray([1.0, -1.0]) * 0.3))
    parallel = jnp.asarray([0.3, 0.3])
    assert int(status(about_one_point, jd.LeastSquares())) == jd.Status.OK
    assert int(status(parallel, jd.LeastSquares())) == jd.Status.CONFLICTING_ROWS
    for angles in (about_one_point, parallel):
        assert int(status(angles, jd.SchurComplement())) == jd.Status.SINGULAR


@pytest.mark.long
def test_embedded_mechanisms_say_that_a_freedom_is_left():
    """A fork without a wheel swings as it likes: the equations in the spins do not know of it."""
    description = jv.differential_drive(0.5, 0.1, mass=20.0, inertia=1.0, wheel_inertia=0.02)
    pivot = jm.Revolute("pivot", "base_link", "fork", point_a=(-0.3, 0.0), point_b=(0.2, 0.0))
    bodies = [*description.bodies, jm.Body("fork", 1.0, 0.1, (-0.3, 0.0, 0.8))]
    swinging = dataclasses.replace(description, bodies=bodies, joints=[*description.joints, pivot])
    held = dataclasses.replace(swinging, drives=[*swinging.drives, jm.JointRate("motor", "pivot")])

    def embedded(description):
        mechanism, q = jm.mechanism(description, jm.Joints())
        frame = jm.kinematic_mechanism(description, jm.Joints())[0]
        return jm.EmbeddedMechanism(mechanism, frame), jnp.concatenate([q, jnp.ones(len(description.drives))])

    for case, expected in ((swinging, jd.Status.SINGULAR), (held, jd.Status.OK)):
        system, x = embedded(case)
        assert int(jax.jit(system.rate_status)(jnp.zeros(()), x, None)) == expected
    slip = jm.SlipRatio("slip", "right")
    system, x = embedded(dataclasses.replace(description, drives=[*description.drives, slip]))
    with pytest.raises(ValueError, match=r"frame has slip inputs \(slip\), which are not velocities"):
        system.rate(jnp.zeros(()), x[:-1], None)
    twice = dataclasses.replace(description, drives=[slip, dataclasses.replace(slip, name="again")])
    with pytest.raises(ValueError, match=r"\['slip', 'again'\] set the slip of the same wheel"):
        jm.kinematic_mechanism(twice)


@pytest.mark.exhaustive
def test_slip_angles_and_a_slip_ratio_are_identified_from_a_path():
    def path(slip):
        bodies = [jm.Body("base_link"), jm.Body("fork", pose=(2.5, 0.0, 0.3)), jm.Rotor("spin")]
        joints = [
            jm.Revolute("kingpin", "base_link", "fork", point_a=(2.5, 0.0), point_b=(0.0, 0.0)),
            jm.Wheel(
                "rear",
                "base_link",
                (1.0, 0.0),
                point=(0.0, 0.0),
                radius=0.3,
                spin="spin",
                slip_angle=slip[1],
                slip_ratio=slip[2],
            ),
            jm.Wheel("front", "fork", (1.0, 0.0), point=(0.0, 0.0), slip_angle=slip[0]),
        ]
        drives = [jm.SpinRate("motor", "spin"), jm.JointRate("steering", "kingpin")]
        system, q = jm.kinematic_mechanism(jm.Description(bodies=bodies, joints=joints, drives=drives))
        u = jnp.tile(jnp.asarray([5.0, -0.3]), (40, 1))
        run = jd.rollout(system, RK4, jd.State(0.0, q, jnp.zeros_like(q)), u, dt=0.05, save_every=4)
        return run.state.q[:, :3]

    true = jnp.asarray([0.05, 0.03, 0.1])
    seen = jax.jit(path)(true)
    found = tuning.least_squares(lambda p: path(p["slip"]) - seen, {"slip": jnp.zeros(3)})
    np.testing.assert_allclose(found.parameters["slip"], true, rtol=0, atol=1e-9)


@pytest.mark.exhaustive
def test_a_differential_drive_on_an_incline_in_space():
    """Two discs and a caster ball on a slope, the discs driven at their hubs; both lateral rows say the same."""
    p, reference, digits, values = problem("diff_drive_incline")
    start = np.asarray(values["initial_conditions"]["x"])
    place, quaternion = start[:3], start[3:7]
    axes = np.asarray(jd.rotation.rotation_matrix(jnp.asarray(quaternion)))
    slope = jv.Plane(normal=p["plane_normal"])
    hubs = {"left": place + 0.5 * p["W"] * axes[:, 1], "right": place - 0.5 * p["W"] * axes[:, 1]}
    bodies = [
        js.Body(name, place=at, quaternion=quaternion) for name, at in ({"chassis": place} | hubs).items()
    ]
    joints = [
        js.Revolute(f"{name}_hub", "chassis", name, axis=axes[:, 1], at=at) for name, at in hubs.items()
    ]
    joints += [
        js.RollingDisc(f"{name}_wheel", jm.GROUND, name, axis=axes[:, 1], at=at, radius=p["r"], terrain=slope)
        for name, at in hubs.items()
    ]
    ball = place + axes @ np.asarray(p["caster_ball_at_body"])
    joints.append(
        js.SlidingSphere("caster", jm.GROUND, "chassis", at=ball, radius=p["ball_radius"], terrain=slope)
    )
    drives = [jm.JointRate(f"{name}_motor", f"{name}_hub") for name in hubs]
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, drives=drives)
    robot, q = jm.kinematic_mechanism(description, jm.Joints())
    states = reference["states"][1:]
    method, times = jd.Kinematic.rk4(solver=jd.NullSpace()), [s["t"] for s in states]
    run = states_at(
        robot,
        method,
        q,
        jnp.zeros(8),
        times,
        5e-3,
        jnp.tile(jnp.asarray(p["u"]), (round(times[-1] / 5e-3), 1)),
    )
    within(digits["x"], run.state.q, [s["x"] for s in states])


@pytest.mark.long
def test_a_ball_beyond_its_terrain_is_seen_in_first_order_too():
    trough = jv.Cylinder(radius=-2.0, center=(0.0, 0.0, 2.0))
    ball = js.Body("ball", place=(0.0, 0.0, 0.1))
    joint = js.RollingSphere("contact", jm.GROUND, "ball", at=(0.0, 0.0, 0.1), radius=0.1, terrain=trough)
    robot, q = jm.kinematic_mechanism(jm.Description(space=jm.SPACE, bodies=[ball], joints=[joint]))
    condition = jax.jit(lambda system, q: system.condition(jnp.zeros(()), q))
    for system in (robot, jm.Embedded(robot)):
        assert int(condition(system, q)) == jd.Status.OK
        assert int(condition(system, q.at[0].set(3.0))) == jd.Status.OFF_TERRAIN
