"""Tires and single-track models: published forces and paths, limits of stiffness and speed, signs,
derivatives, mistakes.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from vehicle_references import central, problem, states_at, within

import jaxdae as jd
import jaxdae.mechanisms as jm
from jaxdae import control
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

RK4 = jd.RungeKutta.rk4()
EXACT = jd.RungeKutta.dormand_prince5()


def test_magic_formula_and_brush_have_their_published_values():
    p, reference, digits, _ = problem("slip_models")
    m, b = p["magic"], p["brush"]
    numbers = m["B"], m["C"], m["D"], m["E"]
    for case in reference["magic"]:
        slip = float(case["slip"])
        value, slope = jax.value_and_grad(jm.magic_formula)(slip, *numbers)
        within(digits["all"], value, case["mu"])
        within(digits["all"], slope, case["dmu_dslip"])
    within(
        digits["all"],
        jm.magic_formula(reference["magic_peak"]["slip"], *numbers),
        reference["magic_peak"]["mu"],
    )

    def fiala(tangent):
        return jm.brush_forces(jnp.zeros_like(tangent), tangent, b["C_alpha"], b["mu"], b["Fz"])[1]

    for case in reference["brush"]:
        tangent = jnp.tan(float(case["alpha"]))
        within(digits["all"] - 3, fiala(tangent), case["Fy"])
        np.testing.assert_allclose(fiala(tangent), case["Fy"], rtol=1e-13)
        np.testing.assert_allclose(jax.grad(fiala)(tangent), central(fiala, tangent), rtol=1e-7, atol=1e-4)
    # At no slip the slope is the stiffness; it is continuous where all bristles slide.
    np.testing.assert_allclose(jax.grad(fiala)(0.0), -b["C_alpha"], rtol=1e-15)
    edge = float(np.tan(reference["brush_slide_angle"]))
    np.testing.assert_allclose(fiala(edge), -b["mu"] * b["Fz"], rtol=1e-14)
    assert abs(float(jax.grad(fiala)(edge * (1.0 - 1e-9)))) < 1e-3
    for case in reference["brush_combined"]:
        got = jm.brush_forces(case["sigma_x"], case["sigma_y"], b["C_alpha"], b["mu"], b["Fz"])
        np.testing.assert_allclose(got, [case["Fx"], case["Fy"]], rtol=1e-13)


@pytest.mark.long
def test_viscous_wheels_steer_a_robot_as_published():
    p, reference, digits, _ = problem("skid_steer_viscous")
    wheels = [
        (sx * 0.5 * p["l"] - p["x0"], sy * 0.5 * p["W"], p["u"][0 if sy > 0 else 1])
        for sx in (1, -1)
        for sy in (1, -1)
    ]
    tires = [
        jm.ViscousTire(
            name=f"tire_{k}",
            body="base",
            axis=(1.0, 0.0),
            point=(x, y),
            lateral=p["cy"],
            longitudinal=p["cx"],
            **({"input": 0 if y > 0 else 1, "gain": p["r"]} if k % 2 else {"rim_speed": p["r"] * u}),
        )
        for k, (x, y, u) in enumerate(wheels)
    ]
    # Left wheels have their speed as a number here, right ones as an input.
    mechanism, q = jm.planar_mechanism([jm.Body("base", p["m"], p["I"])], [], tires, gravity=(0.0, 0.0))
    states = reference["states"][1:]
    u = jnp.tile(jnp.asarray(p["u"]), (1500, 1))
    run = states_at(mechanism, EXACT, q, jnp.zeros(3), [s["t"] for s in states], 2e-3, u)
    within(digits["q"], jnp.concatenate([run.state.q, run.state.v], axis=1), [s["qv"] for s in states])


def straight(kind, **law):
    """Returns a body of 100 kg on one tire with a rotor, heading along x."""
    tire = kind(name="tire", body="body", axis=(1.0, 0.0), point=(0.0, 0.0), radius=0.3, spin="spin", **law)
    return jm.planar_mechanism(
        [jm.Body("body", 100.0, 10.0), jm.Rotor("spin", 1.0)], [], [tire], gravity=(0.0, 0.0)
    )


TIRES = {
    jm.ViscousTire: {"lateral": 900.0, "longitudinal": 700.0},
    jm.LinearTire: {"lateral": 2e4, "longitudinal": 3e4, "most": 900.0},
    jm.BrushTire: {"stiffness": 2e4, "friction": 0.9, "load": 1000.0},
    jm.MagicFormulaTire: {"load": 1000.0, "peak_longitudinal": 1.2},
}


def test_slip_of_tires_is_reported():
    """A steered wheel that rolls freely, and a wheel with a rotor, whose velocities follow from the chassis."""
    law = {"axis": (1.0, 0.0), "stiffness": 6e4, "friction": 0.9, "load": 5900.0}
    bodies = [
        jm.Body("chassis", 1200.0, 1800.0),
        jm.Body("fork", 1.0, 0.1, (1.2, 0.0, 0.0)),
        jm.Rotor("wheel", 2.0),
    ]
    forces = [
        jm.BrushTire(name="front", body="fork", point=(0.0, 0.0), **law),
        jm.BrushTire(name="rear", body="chassis", point=(-1.3, 0.0), spin="wheel", radius=0.3, **law),
    ]
    kingpin = jm.Revolute("kingpin", "chassis", "fork", at=(1.2, 0.0))
    car, _ = jm.planar_mechanism(bodies, [kingpin], forces, gravity=(0.0, 0.0), coordinates=jm.Joints())
    values = {"chassis.theta": 0.4, "kingpin.angle": 0.1}
    rates = {"chassis.vx": 9.0, "chassis.vy": 4.5, "chassis.omega": 0.3, "wheel.omega": 36.0}
    q = jnp.array([values.get(name, 0.0) for name in car.names.coordinates])
    v = jnp.array([rates.get(name, 0.0) for name in car.names.velocities])
    found = jv.tire_slip(car, jd.State(jnp.zeros(()), q, v))
    turn = lambda angle: np.exp(-1j * angle)  # noqa: E731
    own = (9.0 + 4.5j) * turn(0.4)
    rear, front = own - 1.3 * 0.3j, (own + 1.2 * 0.3j) * turn(0.1)
    expected = {"front": (0.0, np.angle(front)), "rear": (0.3 * 36.0 / rear.real - 1.0, np.angle(rear))}
    for name, ratio, angle in zip(found.names, found.ratio, found.angle, strict=True):
        np.testing.assert_allclose([ratio, angle], expected[name], rtol=1e-13, atol=1e-15)
    empty, q = jm.planar_mechanism(bodies, [kingpin])
    with pytest.raises(ValueError, match="the mechanism has no planar tires"):
        jv.tire_slip(empty, jd.State(jnp.zeros(()), q, jnp.zeros(7)))


@pytest.mark.long
@all_cases("kind", TIRES)
def test_signs_of_slip_friction_and_rest(kind):
    mechanism, q = straight(kind, **TIRES[kind])

    @jax.jit
    def force(vx, vy, spin):
        return mechanism.force(jnp.zeros(()), q, jnp.stack([vx, vy, jnp.zeros(()), spin]), None)

    # Driving: forward, and the rotor is held back by r F_x. To the left: a force to the right.
    driving, sliding = force(10.0, 0.0, 35.0), force(10.0, 0.2, 10.0 / 0.3)
    assert driving[0] > 0.0
    np.testing.assert_allclose(driving[3], -0.3 * driving[0], rtol=1e-14)
    assert sliding[1] < 0.0
    np.testing.assert_allclose([driving[1], sliding[0]], 0.0, rtol=0, atol=1e-9)
    # Backward too.
    assert force(-10.0, 0.2, -10.0 / 0.3)[1] < 0.0
    assert force(-10.0, 0.0, -10.0)[0] > 0.0
    # At rest there is no force, and everything is finite and differentiable.
    np.testing.assert_array_equal(force(0.0, 0.0, 0.0), 0.0)
    for at in ((0.0, 0.0, 0.0), (10.0, 0.0, 10.0 / 0.3), (0.03, 0.01, 0.2), (12.0, 0.3, 45.0)):
        slopes = jnp.stack(jax.jacfwd(force, argnums=(0, 1, 2))(*at))
        assert np.all(np.isfinite(slopes))
        for k in range(3):
            # The brush has a jump in its second derivative at no slip.
            step = 1e-6 if at[0] else 1e-9

            def along(x, k=k, at=at):
                return force(*at[:k], x, *at[k + 1 :])

            np.testing.assert_allclose(slopes[k], central(along, at[k], step), rtol=1e-6, atol=0.05)


@pytest.mark.long
def test_combined_forces_stay_in_their_ellipse():
    mechanism, q = straight(jm.MagicFormulaTire, **TIRES[jm.MagicFormulaTire])
    linear, _ = straight(jm.LinearTire, **TIRES[jm.LinearTire])
    rng = np.random.default_rng(1)
    v = jnp.asarray(rng.uniform([1.0, -3.0, 0.0, 0.0], [20.0, 3.0, 0.0, 90.0], (200, 4)))
    for system, half_x, half_y in ((mechanism, 1200.0, 1000.0), (linear, 900.0, 900.0)):
        force = jax.vmap(lambda v, s=system: s.force(jnp.zeros(()), q, v, None))(v)
        size = np.hypot(force[:, 0] / half_x, force[:, 1] / half_y)
        assert np.max(size) <= 1.0 + 1e-12
        assert np.max(size) > 0.99


@pytest.mark.long
def test_a_bicycle_on_linear_tires_has_its_published_path():
    p, reference, digits, _ = problem("bicycle_linear_tyres")

    def car(a, b):
        tires = [
            jm.LinearTire(
                name="front", body="car", axis=(1.0, 0.0), point=(a, 0.0), lateral=p["Cf"], steer=p["delta"]
            ),
            jm.LinearTire(name="rear", body="car", axis=(1.0, 0.0), point=(-b, 0.0), lateral=p["Cr"]),
        ]
        return jm.planar_mechanism([jm.Body("car", p["m"], p["I"])], [], tires, gravity=(0.0, 0.0))

    @jd.tree.pytree(kw_only=True)
    class Held(jm.Mechanism):
        """The forward speed is held."""

        def velocity_constraint(self, t, q, v):
            held = v[0] * jnp.cos(q[2]) + v[1] * jnp.sin(q[2]) - p["u"]
            return jnp.concatenate([super().velocity_constraint(t, q, v), held[None]])

    mechanism, q = car(p["a"], p["b"])
    held = Held(**{field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)})
    states = reference["states"][1:]
    method = jd.Projected(EXACT, jd.Projection())
    run = states_at(held, method, q, jnp.asarray([p["u"], 0.0, 0.0]), [0.1 * k for k in range(1, 41)], 2e-3)
    at = [round(s["t"] / 0.1) - 1 for s in states]
    found = jnp.concatenate([run.state.q, run.state.v], axis=1)[np.asarray(at)]
    within(digits["q"], found, [s["qv"] for s in states])
    lam = jax.vmap(lambda s: jd.forward_dynamics(held, s)[1][0])(run.state)[np.asarray(at)]
    within(9, lam, [s["drive_force"][0] for s in states])
    # Eigenvalues of side slip and yaw at constant speed, for cars that are neutral, and that are stable or
    # not at speed.
    for variant in reference["variants"]:
        system, _ = car(variant["a"], variant["b"])
        force = jax.jacfwd(lambda v, s=system: s.force(jnp.zeros(()), jnp.zeros(3), v, None))(
            jnp.asarray([p["u"], 0.0, 0.0])
        )
        # In the turning frame there is the centripetal term u omega.
        a = np.asarray(force)[1:, 1:] / np.array([[p["m"]], [p["I"]]]) - np.array([[0.0, p["u"]], [0.0, 0.0]])
        values = np.sort_complex(np.linalg.eigvals(a))
        expected = np.sort_complex(np.array([complex(*pair) for pair in variant["eigenvalues_at_15"]]))
        np.testing.assert_allclose(values, expected, rtol=1e-7)


def viscous(c):
    """Returns a blade whose lateral row is viscous, in a tangential wind of gravity."""
    tire = jm.ViscousTire(name="blade", body="body", axis=(1.0, 0.0), point=(0.1, 0.0), lateral=c)
    return jm.planar_mechanism([jm.Body("body", 2.0, 0.5)], [], [tire], gravity=(0.3, -0.2))[0]


@pytest.mark.exhaustive
def test_stiff_viscous_rows_are_hard_rows_and_steps_may_take_them_implicitly():
    hard, q = jm.planar_mechanism(
        [jm.Body("body", 2.0, 0.5)],
        [jm.Wheel("blade", "body", (1.0, 0.0), point=(0.1, 0.0))],
        gravity=(0.3, -0.2),
    )
    v = jnp.asarray([0.5, -0.1, 1.0])
    expected = states_at(hard, RK4, q, v, [0.5], 1e-3).state
    errors = []
    for c in (1e3, 1e4):
        got = states_at(viscous(c), RK4, q, v, [0.5], 1e-4).state
        errors.append(float(jnp.max(jnp.abs(got.q - expected.q))))
    # The slip speed is force over c.
    assert errors[0] < 2e-3
    np.testing.assert_allclose(errors[0] / errors[1], 10.0, rtol=0.05)
    # Of an implicit method the force is taken as it is: at 5 ms, 1e7 times the step of an explicit one, the
    # slip is still force over c.
    method = jd.RadauIIA()
    drive = jax.jit(
        lambda c: jd.rollout(viscous(c), method, jd.State(0.0, q, v), dt=5e-3, steps=100, save_every=100)
    )
    for c in (1e6, 1e9):
        run = drive(c)
        jd.raise_if_failed(run.info)
        np.testing.assert_allclose(
            c * jnp.max(jnp.abs(run.state.q[-1] - expected.q[0])), 1e4 * errors[1], rtol=0.01
        )

    # Implicit: a soft row of an impulse, J dv + p / (h c) = -w, is lam = -c w at the end of the step. First
    # order in h, at any c.
    reference = states_at(viscous(50.0), RK4, q, v, [0.5], 1e-3).state
    errors = []
    for h in (0.01, 0.005):
        soft = jd.Soft(hard, 1.0 / (50.0 * h))
        run = jd.rollout(
            soft,
            control.VelocityStepping(),
            jd.State(0.0, q, v),
            dt=h,
            steps=round(0.5 / h),
            start_tolerance=jnp.inf,
        )
        jd.raise_if_failed(run.info)
        errors.append(float(jnp.max(jnp.abs(run.state.q[-1] - reference.q[0]))))
        w = hard.velocity_constraint(jnp.zeros(()), run.state.q[-2], run.state.v[-1])
        np.testing.assert_allclose(run.info.lam[-1], -50.0 * w, rtol=1e-9)
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)
    # So stiff that an explicit step of this size would explode, it is the hard row.
    run = jd.rollout(
        jd.Soft(hard, 1.0 / (1e9 * 0.005)),
        control.VelocityStepping(),
        jd.State(0.0, q, v),
        dt=0.005,
        steps=100,
    )
    again = jd.rollout(hard, control.VelocityStepping(), jd.State(0.0, q, v), dt=0.005, steps=100)
    np.testing.assert_allclose(run.state.q[-1], again.state.q[-1], rtol=0, atol=1e-7)


@pytest.mark.exhaustive
def test_a_viscous_robot_goes_to_the_least_residual_of_its_weights():
    # Wheels that contradict each other: the steady twist of a light robot on stiff viscous tires, weights c.
    p, _, _, _ = problem("skid_steer_viscous")
    places = jnp.asarray([[x * 0.5 * p["l"], y * 0.5 * p["W"]] for x in (1, -1) for y in (1, -1)])
    rates = jnp.asarray([3.0, 6.0, 3.0, 6.0])
    tires = [
        jm.ViscousTire(
            name=f"t{k}",
            body="base",
            axis=(1.0, 0.0),
            point=place,
            lateral=p["cy"],
            longitudinal=p["cx"],
            rim_speed=p["r"] * u,
        )
        for k, (place, u) in enumerate(zip(places, rates, strict=True))
    ]
    mechanism, q = jm.planar_mechanism([jm.Body("base", 1.0, 1.0)], [], tires, gravity=(0.0, 0.0))
    answer = jv.LeastResidual(lateral=p["cy"], rolling=p["cx"])
    twist, _ = jv.body_twist(jv.wheels(places, radius=p["r"]), rates, answer)
    force = mechanism.force(jnp.zeros(()), q, twist, None)
    np.testing.assert_allclose(force, 0.0, rtol=0, atol=1e-10)


def single_track():
    """Returns the model of CommonRoad's vehicle 2, a BMW 320i."""
    p, reference, digits, values = problem("commonroad_single_track")
    stiffness = -p["p_ky1"] / p["p_dy1"]
    car = jv.DynamicSingleTrack(
        front=p["a"],
        rear=p["b"],
        mass=p["m"],
        inertia=p["I_z"],
        height=p["h_s"],
        friction=p["p_dy1"],
        front_stiffness=stiffness,
        rear_stiffness=stiffness,
    )
    return p, reference, digits, values, car


@pytest.mark.long
def test_single_track_models_have_their_published_paths():
    p, reference, digits, values, car = single_track()
    models = {
        "KS": jv.KinematicSingleTrack(p["a"] + p["b"]),
        "KST": jv.KinematicSingleTrackTrailer(
            p["vehicle4"]["a"] + p["vehicle4"]["b"], p["vehicle4"]["trailer_l_wb"]
        ),
        "ST": car,
    }
    for name, model in models.items():
        case = reference[name]
        x = jnp.asarray(case["x0"])
        states = case["states"][1:]
        u = jnp.tile(jnp.asarray(case["u"]), (1000, 1))
        run = states_at(model, jd.Kinematic.rk4(), x, jnp.zeros_like(x), [s["t"] for s in states], 2e-3, u)
        within(digits["x"], run.state.q, [s["x"] for s in states])
    published = values["published"]
    for model, key in ((models["KS"], "ks"), (car, "st")):
        x = jnp.asarray(published[key]["x"])
        u = jv.limited_inputs(
            jnp.asarray(published["input"]),
            x[2],
            x[3],
            steering=(-1.066, 1.066),
            speed=(-13.6, 50.8),
            acceleration=11.5,
            switching_speed=7.319,
        )
        within(13, model.rate(jnp.zeros(()), x, u), published[key]["f"])


@pytest.mark.exhaustive
def test_the_single_track_model_stands_still_and_is_the_bicycle_without_slip():
    p, _, _, _, car = single_track()
    side = p["b"] / (p["a"] + p["b"])
    for v in (0.0, 0.05, -0.05):
        x = jnp.asarray([0.0, 0.0, 0.4, v, 0.1, 0.0, 0.0])
        rate = car.rate(jnp.zeros(()), x, jnp.asarray([0.2, 0.3]))
        assert np.all(np.isfinite(rate))
        slopes = jax.jacfwd(car.rate, argnums=1)(jnp.zeros(()), x, jnp.asarray([0.2, 0.3]))
        assert np.all(np.isfinite(slopes))
        # d beta/dt is that of beta = atan(tan(delta) b / l).
        beta = jax.grad(lambda delta: jnp.arctan(jnp.tan(delta) * side))(0.4)
        np.testing.assert_allclose(rate[6], beta * 0.2, rtol=1e-14)
    # KS is the mechanism of first order.
    x = jnp.asarray([0.5, -0.3, 0.2, 3.0, 0.7])
    state, speed = jv.from_commonroad(x)
    mechanism, _ = jm.kinematic_mechanism(jv.bicycle(p["a"] + p["b"]), jm.Joints())
    got = jd.kinematic_velocity(mechanism, state, jnp.stack([speed, jnp.asarray(0.1)]))[0]
    expected = jv.KinematicSingleTrack(p["a"] + p["b"]).rate(jnp.zeros(()), x, jnp.asarray([0.1, 0.0]))
    np.testing.assert_allclose(got, expected[jnp.asarray([0, 1, 4, 2])], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(jv.to_commonroad(state, speed), x)


def test_the_slow_single_track_model_moves_where_its_wheels_point():
    p, _, _, _, car = single_track()
    # After braking with slip beta is not that of the wheels; CommonRoad's package takes that of the wheels as
    # well.
    rate = car.rate(
        jnp.zeros(()), jnp.asarray([0.0, 0.0, 0.4, 0.05, 0.3, 0.2, -0.1]), jnp.asarray([0.2, 0.3])
    )
    beta = np.arctan(np.tan(0.4) * p["b"] / (p["a"] + p["b"]))
    np.testing.assert_allclose(rate[:2], [0.05 * np.cos(0.3 + beta), 0.05 * np.sin(0.3 + beta)], rtol=1e-14)
    # The velocity of the rear axle is along the car.
    np.testing.assert_allclose(-np.sin(0.3) * rate[0] + np.cos(0.3) * rate[1], p["b"] * rate[4], rtol=1e-13)


def test_a_steered_linear_tire_and_the_single_track_model_backward():
    tire = jm.LinearTire(
        name="tire", body="car", axis=(1.0, 0.0), point=(0.0, 0.0), lateral=1000.0, steer=0.02
    )
    mechanism, q = jm.planar_mechanism([jm.Body("car", 1.0, 1.0)], [], [tire], gravity=(0.0, 0.0))
    # A small angle turns the wheel as its axis would: it pushes forward to the left, backward to the right,
    # at rest not at all.
    for speed, force in ((5.0, 20.0), (0.0, 0.0), (-5.0, -20.0)):
        found = mechanism.force(jnp.zeros(()), q, jnp.asarray([speed, 0.0, 0.0]), None)
        np.testing.assert_allclose(found, [0.0, force, 0.0], rtol=0, atol=1e-12)
    # ST: the force of an axle is against the velocity at which it slides to the side, over the speed, in both
    # directions.
    p, _, _, _, car = single_track()
    delta, turn, beta = 0.03, 0.1, -0.02
    for v in (5.0, -5.0):
        rate = car.rate(jnp.zeros(()), jnp.asarray([0.0, 0.0, delta, v, 0.0, turn, beta]), jnp.zeros(2))
        a, b, grip = p["a"], p["b"], car.front_stiffness * p["p_dy1"] * p["m"] * 9.81 / (p["a"] + p["b"])
        front = -grip * b * (v * (beta - delta) + a * turn) / abs(v)
        rear = -grip * a * (v * beta - b * turn) / abs(v)
        np.testing.assert_allclose(
            rate[5:], [(a * front - b * rear) / p["I_z"], (front + rear) / (p["m"] * v) - turn], rtol=1e-12
        )
    # A wheel that is pulled at, or carries nothing, has no force.
    for load in (0.0, -100.0):
        np.testing.assert_array_equal(jm.brush_forces(0.1, 0.05, 1e4, 1.0, load), 0.0)


def brush_tires(places, rim_speed, stiffness, friction=0.9):
    """Returns the tires of a car at places by name; the load of 1 N stands for the one that is computed."""
    return [
        jm.BrushTire(
            name=name,
            body="car",
            axis=(1.0, 0.0),
            point=place,
            rim_speed=rim_speed,
            stiffness=stiffness,
            friction=friction,
            load=1.0,
        )
        for name, place in places.items()
    ]


@pytest.mark.exhaustive
def test_a_car_that_is_held_on_a_slope_carries_more_at_its_lower_wheels():
    angle, places = (
        np.deg2rad(20.0),
        {"fl": (1.0, 0.7), "fr": (1.0, -0.7), "rl": (-1.0, 0.7), "rr": (-1.0, -0.7)},
    )
    tires = brush_tires(places, rim_speed=0.0, stiffness=1e5, friction=1.0)
    gravity = (-9.81 * np.sin(angle), 0.0)
    mechanism, q = jm.planar_mechanism([jm.Body("car", 1000.0, 1000.0)], [], tires, gravity=gravity)
    system = jv.LoadTransfer(mechanism, 0.5, gravity=9.81 * np.cos(angle))

    def at(speed):
        state = jd.State(jnp.zeros(()), q, jnp.stack([speed, jnp.zeros(()), jnp.zeros(())]))
        return jd.forward_dynamics(system, state)[0][0], system.loads(state)

    # It creeps backward at the speed at which tires hold it.
    along = jax.jit(lambda speed: jax.jvp(at, (speed,), (jnp.ones(()),), has_aux=True))
    creep = jnp.asarray(-5e-4)
    for _ in range(8):
        acceleration, slope, _ = along(creep)
        creep = creep - acceleration / slope
    acceleration, _, loads = along(creep)
    np.testing.assert_allclose(acceleration, 0.0, rtol=0, atol=1e-10)
    # Moments about the lower contacts: m g (cos l -+ sin h) over the wheelbase, two wheels an axle.
    expected = [1000.0 * 9.81 * (np.cos(angle) - side * 0.5 * np.sin(angle)) / 4.0 for side in (1, 1, -1, -1)]
    np.testing.assert_allclose(loads, expected, rtol=1e-10)


def test_single_tracks_of_no_length_are_named():
    cars = {
        "wheelbase must be positive": jv.KinematicSingleTrack(0.0),
        "trailer must not be zero": jv.KinematicSingleTrackTrailer(2.5, 0.0),
    }
    for (message, car), size in zip(cars.items(), (5, 6), strict=True):
        start = jd.State(jnp.zeros(()), jnp.zeros(size), jnp.zeros(size))
        with pytest.raises(ValueError, match=message):
            jd.rollout(car, jd.Kinematic.rk4(), start, jnp.zeros((1, 2)), dt=0.01)
    start = jd.State(jnp.zeros(()), jnp.zeros(7).at[3].set(5.0), jnp.zeros(7))
    rest = (0.5, 1.0, 20.0, 20.0)
    wrong = {
        r"front \+ rear, the wheelbase, must be positive": (1.0, -1.0, 1.0, 1.0, *rest),
        "mass must be positive": (1.0, 1.0, 0.0, 1.0, *rest),
        "gravity must not be negative": (1.0, 1.0, 1.0, 1.0, *rest, -9.81),
    }
    for message, numbers in wrong.items():
        with pytest.raises(ValueError, match=message):
            jd.rollout(
                jv.DynamicSingleTrack(*numbers),
                jd.Kinematic.rk4(),
                start,
                jnp.zeros((1, 2)),
                dt=0.01,
            )


def test_an_axle_that_lifts_off_has_no_side_force():
    # At 30 m/s^2 the front wheel lifts off. Its load was negative, so that the car turned away from the steering.
    car = jv.DynamicSingleTrack(1.2, 1.4, 1200.0, 1800.0, 0.5, 1.0, 20.0, 20.0)
    x = jnp.asarray([0.0, 0.0, 0.1, 10.0, 0.0, 0.2, 0.01])
    rate = car.rate(jnp.zeros(()), x, jnp.asarray([0.0, 30.0]))
    rear = 20.0 * 1200.0 * 9.81 * (-0.01 + 1.4 * 0.2 / 10.0)
    np.testing.assert_allclose(rate[5:], [-1.4 * rear / 1800.0, rear / 12000.0 - 0.2], rtol=1e-12)


def test_a_state_that_is_too_short_is_told_what_it_lacks():
    start = jd.State(jnp.zeros(()), jnp.zeros(4), jnp.zeros(4))
    with pytest.raises(ValueError, match=r"state.q must have 5 numbers \(sx, sy, delta, v, psi\), got 4"):
        jd.rollout(jv.KinematicSingleTrack(2.5), jd.Kinematic.rk4(), start, jnp.zeros((1, 2)), dt=0.01)


def test_loads_of_axles_and_wheels():
    loads = jv.axle_loads(1000.0, 1.2, 1.3, 0.5, 2.0)
    np.testing.assert_allclose(jnp.sum(loads), 9810.0, rtol=1e-15)
    np.testing.assert_allclose(
        loads[1] - jv.axle_loads(1000.0, 1.2, 1.3)[1], 1000.0 * 2.0 * 0.5 / 2.5, rtol=1e-12
    )
    places = jnp.asarray([[1.2, 0.7], [1.2, -0.7], [-1.3, 0.7], [-1.3, -0.7]])
    wheels = jv.wheel_loads(1000.0, places, 0.5, (2.0, 3.0))
    np.testing.assert_allclose([wheels[:2].sum(), wheels[2:].sum()], loads, rtol=1e-12)
    # To the left it accelerates: the right wheels carry.
    np.testing.assert_allclose(
        wheels[1] + wheels[3] - wheels[0] - wheels[2], 2 * 1000.0 * 3.0 * 0.5 / 1.4, rtol=1e-12
    )


@pytest.mark.long
def test_loads_follow_from_the_accelerations_that_they_make():
    places = {"fl": (1.2, 0.7), "fr": (1.2, -0.7), "rl": (-1.3, 0.7), "rr": (-1.3, -0.7)}
    tires = brush_tires(places, rim_speed=19.0, stiffness=4e4)
    mechanism, q = jm.planar_mechanism(
        [jm.Body("car", 1000.0, 1500.0, pose=(3.0, -2.0, 0.4))], [], tires, gravity=(0.0, 0.0)
    )
    turn = np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    # It brakes, drifts to the left and turns.
    state = jd.State(jnp.zeros(()), q, jnp.asarray([*(turn @ [20.0, 1.0]), 0.3]))

    @jax.jit
    def compiled(height, v, gravity):
        def seen(height):
            system = jv.LoadTransfer(mechanism, height, gravity=gravity)
            moving = dataclasses.replace(state, v=v)
            return system.loads(moving), jd.forward_dynamics(system, moving)[0]

        (loads, acceleration), (slope, _) = jax.jvp(seen, (height,), (1.0,))
        return loads, acceleration, slope

    def at(height, v=state.v, gravity=9.81):
        """Return loads, accelerations, and the derivative of the loads with respect to the height."""
        return compiled(height, v, gravity)

    assert jv.LoadTransfer(mechanism, 0.5).tire_names == tuple(places)
    static = jv.wheel_loads(1000.0, jnp.asarray(list(places.values())))
    np.testing.assert_allclose(at(0.0)[0], static, rtol=1e-14)
    loads, _, slope = at(0.5)
    # The equations themselves, in the axes of the car; of a high one as well, whose inner rear wheel nearly
    # lifts off.
    for height in (0.5, 1.0):
        found, moving, _ = at(height)
        expected = jv.wheel_loads(1000.0, jnp.asarray(list(places.values())), height, turn.T @ moving[:2])
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0.0)
    np.testing.assert_allclose(jnp.sum(loads), 9810.0, rtol=1e-12)
    assert loads[:2].sum() > static[:2].sum()
    # It is pushed to the right, so that the left wheels carry more.
    assert loads[0] + loads[2] > loads[1] + loads[3]
    np.testing.assert_allclose(slope, central(lambda h: at(h)[0], 0.5, 1e-5), rtol=1e-6, atol=1e-3)
    # Where two wheels of a high car hang in the air, no loads balance: it tips.
    tipping = jnp.asarray([22.92, -1.9416, 0.95315])
    assert jnp.all(jnp.isfinite(at(0.5, tipping)[1]))
    assert not jnp.any(jnp.isfinite(at(1.4986, tipping)[1]))
    # Without weight, and a center on the ground, nothing is carried, which is found at once.
    carried, acceleration, _ = at(0.0, gravity=0.0)
    assert not carried.any()
    assert jnp.all(jnp.isfinite(acceleration))
    # In single precision as well: loads change by the rounding of slip speeds, 20 m/s times eps, over the 1
    # m/s between wheel and ground.
    single, there = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), (jv.LoadTransfer(mechanism, 0.5), state)
    )
    found = jax.jit(jv.LoadTransfer.loads)(single, there)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, loads, rtol=100 * np.finfo(np.float32).eps)
    few, _ = jm.planar_mechanism([jm.Body("car", 1.0, 1.0)], [], tires[:2], gravity=(0.0, 0.0))
    with pytest.raises(ValueError, match=r"at least three tires with a load.*got 2"):
        jv.LoadTransfer(few, 0.5).loads(state)


@pytest.mark.long
def test_three_wheels_carry_the_weight_of_a_car_that_lifts_the_fourth():
    """Locked wheels slide with mu F against their velocities; three loads follow from three moments."""
    places = {"fl": (1.2, 0.75), "fr": (1.2, -0.75), "rl": (-1.3, 0.7), "rr": (-1.3, -0.7)}
    tires = brush_tires(places, rim_speed=0.0, stiffness=1e7)
    mechanism, q = jm.planar_mechanism([jm.Body("car", 1000.0, 1500.0)], [], tires, gravity=(0.0, 0.0))

    @jax.jit
    def at(height, v):
        state, system = jd.State(jnp.zeros(()), q, v), jv.LoadTransfer(mechanism, height)
        return system.report(state), jd.forward_dynamics(system, state)[0]

    velocity = np.array([15.0, 12.0, 0.3])
    report, acceleration = at(0.9, velocity)
    assert (int(report.status), report.lifted()) == (jd.Status.OK, ("rr",))
    p = np.array(list(places.values()))[:3]
    moving = velocity[:2] + velocity[2] * np.stack([-p[:, 1], p[:, 0]], axis=1)
    push = -0.9 * moving / np.linalg.norm(moving, axis=1)[:, None]
    loads = np.linalg.solve(np.vstack([np.ones(3), (p + 0.9 * push).T]), [9810.0, 0.0, 0.0])
    np.testing.assert_allclose(report.load, [*loads, 0.0], rtol=1e-9)
    np.testing.assert_allclose(acceleration[:2], loads @ push / 1000.0, rtol=1e-9)
    # At 2 m, it would brake with 2.6 g: no loads balance.
    report, acceleration = at(2.0, np.array([20.0, 0.0, 0.0]))
    assert int(report.status) == jd.Status.NOT_CONVERGED
    assert not jnp.isfinite(acceleration).any()


@all_cases(
    ("tire", "message"),
    [
        ({"spin": "spin"}, "but no radius; give the radius in m"),
        ({"radius": 0.3}, "radius but no spin"),
        ({"spin": "spin", "radius": 0.3, "rim_speed": 1.0}, "has both a spin and a rim_speed"),
        ({"axis": (0, 0)}, "axis must be two numbers"),
        ({"spin": "body", "radius": 0.3}, "a body with a pose"),
    ],
)
def test_mistakes_of_tires_are_named(tire, message):
    given = {
        "name": "t",
        "body": "body",
        "axis": (1, 0),
        "point": (0, 0),
        "stiffness": 1.0,
        "friction": 1.0,
        "load": 1.0,
    } | tire
    with pytest.raises(ValueError, match=message):
        jm.planar_mechanism([jm.Body("body", 1.0, 1.0), jm.Rotor("spin", 1.0)], [], [jm.BrushTire(**given)])


@pytest.mark.long
def test_a_pendulum_on_two_wheels_has_its_published_motion():
    p, reference, digits, values = problem("segway")
    robot = jv.Segway(
        mass=p["M"],
        height=p["d"],
        inertia=(p["Ix"], p["Iy"], p["Iz"]),
        wheel_mass=p["mw"],
        wheel_inertia=p["Jw"],
        wheel_inertia_across=p["Kw"],
        wheel_radius=p["r"],
        wheel_separation=p["W"],
        gravity=p["g"],
    )

    def torques(t, state):
        swing = 2.0 * jnp.sin(2.0 * t)
        return jnp.stack([swing - 3.5, swing + 1.5])

    start = values["initial_conditions"]
    q, v = jnp.asarray(start["q"]), jnp.asarray(start["v"])
    method = jd.Projected(EXACT, jd.Projection())
    run = states_at(robot, method, q, v, [0.05 * k for k in range(1, 19)], 5e-3, torques)
    states = reference["states"][1:]
    at = np.asarray([round(s["t"] / 0.05) - 1 for s in states])
    within(digits["q"], jnp.concatenate([run.state.q, run.state.v], axis=1)[at], [s["qv"] for s in states])
    lam = jd.forward_dynamics(robot, jd.State(0.0, q, v), torques(jnp.zeros(()), None))[1]
    within(9, lam, reference["states"][0]["lam"])
    # Upright it falls at the rate of the reference.
    free = jd.operators.null_projector(robot.constraint_jacobian(jnp.zeros(()), jnp.zeros(6), jnp.zeros(6)))
    assert round(float(jnp.trace(free))) == 3

    def pitching(alpha):
        return jd.forward_dynamics(
            robot, jd.State(0.0, jnp.zeros(6).at[3].set(alpha), jnp.zeros(6)), jnp.zeros(2)
        )[0][3]

    within(9, jnp.sqrt(jax.grad(pitching)(0.0)), reference["upright_pole"])


@pytest.mark.exhaustive
def test_a_pendulum_on_two_wheels_is_the_mechanism_of_three_bodies():
    p = problem("segway")[0]
    numbers = {
        "mass": p["M"],
        "height": p["d"],
        "inertia": (p["Ix"], p["Iy"], p["Iz"]),
        "wheel_mass": p["mw"],
        "wheel_inertia": p["Jw"],
        "wheel_inertia_across": p["Kw"],
        "wheel_radius": p["r"],
        "wheel_separation": p["W"],
    }
    robot = jv.Segway(**numbers, gravity=p["g"])
    motors = [
        js.JointForce(f"{side}_motor", f"{side}_hub", 0.0, k) for k, side in enumerate(("left", "right"))
    ]
    description = dataclasses.replace(jv.segway(**numbers, gravity=p["g"], place=(0.3, -0.2)), forces=motors)
    mechanism, q = jm.mechanism(description, jm.Joints())
    # Pitch 0.4 at a yaw rate of 0.7, a pitch rate of -0.5 and 0.9 m/s.
    pitch, yaw, tilting, speed, u = 0.4, 0.7, -0.5, 0.9, jnp.asarray([-3.5, 1.5])
    spins = [(speed - side * 0.5 * p["W"] * yaw) / p["r"] for side in (1.0, -1.0)]
    plain = jd.State(0.0, jnp.zeros(6).at[3].set(pitch), jnp.asarray([speed, 0.0, yaw, tilting, *spins]))
    expected = jd.forward_dynamics(robot, plain, u)[0]
    names, sin, cos = mechanism.names.velocities, np.sin(pitch), np.cos(pitch)
    q = q.at[:7].add(
        jnp.asarray(
            [
                p["d"] * sin,
                0.0,
                p["d"] * (cos - 1.0),
                np.cos(0.5 * pitch) - 1.0,
                0.0,
                np.sin(0.5 * pitch),
                0.0,
            ]
        )
    )
    v = {"vx": speed + p["d"] * cos * tilting, "vy": p["d"] * sin * yaw, "vz": -p["d"] * sin * tilting}
    v |= {"omega_x": -sin * yaw, "omega_y": tilting, "omega_z": cos * yaw}
    v = {f"base_link.{name}": x for name, x in v.items()} | {
        f"{side}_hub.angle_rate": spin - tilting for side, spin in zip(("left", "right"), spins, strict=True)
    }
    state = jd.State(0.0, q, jnp.asarray([v[name] for name in names]))
    assert jd.diagnose(mechanism, state).velocity_violation < 1e-15
    a = dict(zip(names, jd.forward_dynamics(mechanism, state, u, solver=jd.LeastSquares())[0], strict=True))
    # omega_y' in the axes of the body is the acceleration of the pitch.
    found = [
        a["base_link.omega_y"],
        *(a[f"{side}_hub.angle_rate"] + a["base_link.omega_y"] for side in ("left", "right")),
    ]
    np.testing.assert_allclose(found, expected[3:], rtol=1e-11)
