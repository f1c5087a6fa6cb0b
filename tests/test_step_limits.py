"""Steps beyond the stability limit: the status UNSTABLE, and `stable_step` against closed forms."""

import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import in_ci

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

LOAD, INERTIA, SPEED = 9.81 * 0.3, 0.011 + 0.3**2, 0.01
"""Of an arm of 1 kg whose mass center is 0.3 m from its hinge, and the speed of the friction law."""


def arm(coordinates=jm.Joints(), forces=(), **numbers):
    body = jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0))
    mechanism, q = jm.planar_mechanism(
        [body],
        [jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0), **numbers)],
        forces,
        coordinates=coordinates,
    )
    return mechanism, jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities)))


EXPLICIT = {
    "rk4": (jd.Projected(jd.RungeKutta.rk4()), 2.785),
    "heun": (jd.RungeKutta.heun(), 2.0),
    "semi_implicit_euler": (jd.Projected(jd.SemiImplicitEuler()), 2.0),
    "taylor": (jd.textbook.Taylor(), 2.0),
    "velocity_stepping": (jc.VelocityStepping(), 2.0),
}


@pytest.mark.long
@pytest.mark.parametrize("method", in_ci(EXPLICIT, "rk4", "velocity_stepping"))
def test_friction_that_holds_is_correct_or_unstable(method):
    integrator, limit = EXPLICIT[method]
    correct = {
        5.0: -0.006753,
        20.0: -0.001482,
        200.0: -0.000147,
    }  # Radau at 1e-10 on I q'' = -m g r cos q - f tanh(q' / 0.01).
    run = jax.jit(lambda m, s, dt: jd.rollout(m, integrator, s, dt=dt, steps=200, save_every=200))
    for friction in correct:
        mechanism, state = arm(friction=friction)
        status = run(mechanism, state, 1e-3).info.status[-1]
        assert status == (jd.Status.UNSTABLE if 1e-3 * friction / SPEED / INERTIA > limit else jd.Status.OK)
    mechanism, state = arm(friction=20.0)
    end = jd.rollout(mechanism, integrator, state, dt=5e-5, steps=20_000, save_every=20_000)
    assert end.info.status[-1] == jd.Status.OK
    np.testing.assert_allclose(end.state.q[-1, 0], correct[20.0], rtol=0, atol=2e-6)


@pytest.mark.long
def test_inputs_of_goals_do_not_hide_friction_that_holds():
    motor = jm.JointForce("motor", "hinge", force=0.0, input=0)
    mechanism, state = arm(forces=[motor], friction=200.0)
    goal = jc.Goal(jc.Coordinates((0,)), jc.InputTarget(0))
    method = jc.VelocityStepping(groups=(jc.GoalGroup(goals=(goal,), compliance=1e9),))  # almost no force
    u = jnp.tile(jnp.asarray([0.5, 0.0]), (5, 1))  # of the motor and of the goal
    run = jax.jit(lambda dt: jd.rollout(mechanism, method, state, u, dt=dt, steps=5).info.status[-1])
    assert [run(dt) for dt in (5e-6, 1e-3)] == [jd.Status.OK, jd.Status.UNSTABLE]
    # Modes may grow by 1 % per step. The friction law is linear at rest.
    np.testing.assert_allclose(
        jd.stable_step(mechanism, state, method, u[0]), 2.01 * SPEED * INERTIA / 200.0, rtol=0.01
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates", [pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive), jm.Joints()]
)
def test_a_fast_rotor_does_not_hide_friction_that_holds(coordinates):
    # The rotor accelerates at 1e5 rad/s^2, the arm at 29 rad/s^2. The arm turned 0.030 rad in 1 s with the status OK.
    bodies = [
        jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0)),
        jm.Body("rotor", 0.1, 1e-4, pose=(2.0, 0.0, 0.0)),
    ]
    hinges = [
        jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0), friction=20.0),
        jm.Revolute("axle", "ground", "rotor", at=(2.0, 0.0)),
    ]
    motor = jm.Torque("motor", "ground", "rotor", torque=10.0)
    mechanism, q = jm.planar_mechanism(bodies, hinges, [motor], coordinates=coordinates)
    start = jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities)))
    method = jd.Projected(jd.RungeKutta.rk4())
    run = jax.jit(lambda dt: jd.rollout(mechanism, method, start, dt=dt, steps=5).info.status[-1])
    assert [run(dt) for dt in (5e-5, 2e-4, 1e-3)] == [jd.Status.OK, jd.Status.UNSTABLE, jd.Status.UNSTABLE]


@pytest.mark.long
def test_steps_that_resolve_a_coupling_are_not_called_unstable():
    # A cart under a constant force pulls a second one, at rest at first, by a soft spring.
    bodies = [jm.Body(name, 1.0, 0.1, pose=(x, 0.0, 0.0)) for name, x in (("one", 0.0), ("two", 1.0))]
    rails = [jm.Prismatic(f"rail_{b.name}", "ground", b.name, axis=(1.0, 0.0), at=b.pose[:2]) for b in bodies]
    forces = [
        jm.LinearSpring(
            "spring", "one", "two", point_a=(0, 0), point_b=(0, 0), stiffness=1.0, rest_length=1.0
        ),
        jm.Force("push", "one", point=(0, 0), force=(1.0, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(bodies, rails, forces, gravity=(0, 0), coordinates=jm.Joints())
    for v in (jnp.zeros(2), jnp.array([0.0, -1e-4]), jnp.array([1e-4, 0.0]), jnp.array([-1e-3, 1e-4])):
        found = jd.rollout(mechanism, jd.RungeKutta.rk4(), jd.State(0.0, q, v), dt=0.01, steps=1)
        assert found.info.status[-1] == jd.Status.OK


@pytest.mark.long
@pytest.mark.parametrize("method", in_ci(EXPLICIT, "heun", "semi_implicit_euler", "taylor"))
def test_coupled_joints_that_friction_holds_are_correct_or_unstable(method):
    # The stiffest mode of three links has small accelerations in one joint. Steps above 0.7 times the limit
    # were UNSTABLE.
    names = ["ground", "one", "two", "three"]
    bodies = [jm.Body(name, 1.0, 1.0 / 12.0, pose=(i + 0.5, 0.0, 0.0)) for i, name in enumerate(names[1:])]
    joints = [
        jm.Revolute(f"joint_{b}", a, b, at=(i, 0.0), friction=50.0)
        for i, (a, b) in enumerate(itertools.pairwise(names))
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    state, (integrator, limit) = jd.State(0.0, q, jnp.zeros(3)), EXPLICIT[method]
    # At rest, M a = -friction / SPEED v in joint coordinates.
    longest = limit * SPEED / 50.0 * np.linalg.eigvalsh(mechanism.mass_matrix(q))[0]
    run = jax.jit(lambda dt: jd.rollout(mechanism, integrator, state, dt=dt, steps=200, save_every=1))
    found = {share: run(share * longest) for share in (0.48, 0.96, 1.1, 4.0)}
    for share, trajectory in found.items():
        assert trajectory.info.status[-1] == (jd.Status.OK if share < 1.0 else jd.Status.UNSTABLE), share
    # RK4 damps the stiffest mode by 0.9 per step, 2e-5 after 100 steps. Semi-implicit Euler has order one.
    tolerance = 1e-4 if method == "rk4" else 5e-3
    np.testing.assert_allclose(found[0.96].state.v[99], found[0.48].state.v[199], rtol=tolerance)


@pytest.mark.long
def test_short_rollouts_find_friction_that_saturates_at_the_start():
    # The arm stops within two steps. Then friction holds it, beyond the limit of RK4.
    mechanism, start = arm(friction=20.0)
    start = jd.State(0.0, start.q, jnp.ones(1))
    end = jd.rollout(mechanism, jd.RungeKutta.rk4(), start, dt=2e-3, steps=80, save_every=80)
    assert end.info.status[-1] == jd.Status.UNSTABLE


@pytest.mark.long
def test_friction_is_found_after_a_start_in_equilibrium():
    # The cranks of a four-bar stand upright, so that the first test sees no acceleration. Rounding errors grow
    # until the velocities alternate between two unequal values. The faster one is beyond the slope of friction.
    bodies = [
        jm.Body("crank", 1.0, 0.01, pose=(0.0, 0.1, np.pi / 2.0)),
        jm.Body("rod", 1.0, 0.05, pose=(0.25, 0.25, 0.2)),
        jm.Body("rocker", 1.0, 0.02, pose=(0.5, 0.15, np.pi / 2.0)),
    ]
    joints = [
        jm.Revolute("motor", "ground", "crank", at=(0.0, 0.0)),
        jm.Revolute("pin", "crank", "rod", at=(0.0, 0.2)),
        jm.Revolute("top", "rod", "rocker", at=(0.5, 0.3), friction=10.0),
        jm.Revolute("pivot", "ground", "rocker", at=(0.5, 0.0)),
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    start, method = jd.State(0.0, q, jnp.zeros(3)), jd.Projected(jd.SemiImplicitEuler())
    run = jax.jit(lambda dt: jd.rollout(mechanism, method, start, dt=dt, steps=320, save_every=320))
    longest = jd.stable_step(mechanism, start, method)
    found = [int(run(share * longest).info.status[-1]) for share in (0.9, 4.0, 30.0)]
    assert found == [jd.Status.OK, jd.Status.UNSTABLE, jd.Status.UNSTABLE]


@pytest.mark.long
def test_friction_is_found_where_a_joint_comes_to_rest():
    mechanism, state = arm(friction=20.0)
    state = jd.State(0.0, jnp.tile(state.q, (3, 1)), jnp.array([[0.0], [5.0], [-3.0]]))
    found = jd.batch_rollout(
        mechanism, jd.Projected(jd.RungeKutta.rk4()), state, dt=1e-3, steps=1000, save_every=50
    ).info.status
    assert found[0, 0] == jd.Status.UNSTABLE
    assert list(found[1:, 0]) == [jd.Status.OK] * 2  # They slide.
    assert list(found[:, -1]) == [jd.Status.UNSTABLE] * 3


@pytest.mark.long
@pytest.mark.parametrize(
    "save_every", [20, *(pytest.param(every, marks=pytest.mark.exhaustive) for every in (1, 50, 100))]
)
def test_resolved_motions_are_not_called_unstable(save_every):
    # A load above the friction slides through its largest slope, at steps of 2.5 times the limit there.
    mechanism, state = arm(friction=2.9)
    moved = jd.rollout(
        mechanism,
        jd.RungeKutta.rk4(),
        jd.State(0.0, state.q, state.v + 2.0),
        dt=2e-3,
        steps=100,
        save_every=save_every,
    )
    assert not np.any(moved.info.status)


@pytest.mark.long
def test_feedback_beyond_the_limit_is_unstable_from_the_start():
    mechanism, state = arm(jm.Absolute())

    @jax.jit
    def status(method):
        return jd.rollout(mechanism, method, state, dt=1e-3, steps=5).info.status[0]

    cases = [
        # lambda = -alpha twice: R(-h alpha) of RK4 has magnitude 1 at 2.785, that of Euler's methods at 2 and
        # 0.828.
        (lambda gains: jd.RungeKutta.rk4(stabilization=gains), 2750.0, 2820.0),
        (lambda gains: jd.ExplicitEuler(stabilization=gains), 1980.0, 2020.0),
        (lambda gains: jd.SemiImplicitEuler(stabilization=gains), 820.0, 840.0),
    ]
    for method, stable, unstable in cases:
        found = [
            int(status(method(jd.Baumgarte(jnp.asarray(gain), jnp.asarray(gain)))))
            for gain in (stable, unstable)
        ]
        assert found == [jd.Status.OK, jd.Status.UNSTABLE]
    implicit = jd.BackwardEuler()
    assert status(implicit) == jd.Status.OK


def test_stable_step_matches_closed_forms():
    rk4, rate = jd.Projected(jd.RungeKutta.rk4()), 20.0 / SPEED / INERTIA
    # Modes may grow by 1 % a step: |R(-2.79)| = 1.01 for RK4, |1 - 2.01| for Euler.
    for coordinates, method, limit in (
        (jm.Absolute(), rk4, 2.79),
        (jm.Joints(), jd.SemiImplicitEuler(), 2.01),
    ):
        mechanism, state = arm(coordinates, friction=20.0)
        np.testing.assert_allclose(jd.stable_step(mechanism, state, method) * rate, limit, rtol=0.01)
    mechanism, state = arm(jm.Absolute(), friction=20.0)
    with pytest.warns(jd.StateWarning, match=r"stable_step: the state violates the constraints: hinge\.x"):
        jd.stable_step(mechanism, jd.State(0.0, state.q.at[0].add(0.1), state.v), rk4)
    mechanism, state = arm(forces=[jm.TorsionalSpring("coil", "ground", "arm", stiffness=1e4)])
    np.testing.assert_allclose(
        jd.stable_step(mechanism, state, jd.SemiImplicitEuler()) * (1e4 / INERTIA) ** 0.5, 2.0, rtol=0.01
    )
    mechanism, state = arm()
    assert jd.stable_step(mechanism, state, rk4, longest=0.3) == 0.3


def test_stable_step_refuses_what_it_cannot_judge():
    mechanism, state = arm()
    for longest in (0.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"longest must be positive and finite, got {longest}"):
            jd.stable_step(mechanism, state, jd.RungeKutta.rk4(), longest=longest)
    with pytest.raises(ValueError, match="accelerations near this state are not finite"):
        jd.stable_step(mechanism, jd.State(0.0, state.q * jnp.nan, state.v), jd.RungeKutta.rk4())


def slider(coordinates=jm.Joints()):
    body, rail = (
        jm.Body("mass", 1.0, 0.1),
        jm.Prismatic("rail", "ground", "mass", axis=(1.0, 0.0), at=(0.0, 0.0)),
    )
    mechanism, q = jm.planar_mechanism(
        [body], [rail], [jm.Motor("drive", "rail", input=0)], gravity=(0.0, 0.0), coordinates=coordinates
    )
    return mechanism, jd.State(0.0, q, jnp.zeros_like(q))


def drive(mechanism, kp, kd, **others):
    gains = {
        "model": mechanism,
        "output": jc.Coordinates((0,)),
        "reference": jnp.array([0.1]),
        "kp": kp,
        "kd": kd,
    }
    return (jc.PID if others else jc.PD)(**gains, **others)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [*(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("rk4", "radau")), "euler"],
)
def test_held_feedback_is_stable_up_to_its_closed_form_limit(method):
    # Of x'' = -kp x - kd x' held over T: kd T + (s - 1/2) kp T^2 < 2 and (1 - s) kp T^2 < kd T, s = 1/2 or,
    # for Euler's method, 1.
    integrator, share = {
        "rk4": (jd.RungeKutta.rk4(), 0.5),
        "euler": (jd.SemiImplicitEuler(), 1.0),
        "radau": (jd.Projected(jd.RadauIIA()), 0.5),
    }[method]
    for coordinates, every in ((jm.Joints(), 1), (jm.Absolute(), 5)):
        mechanism, state = slider(coordinates)
        period, part = 1e-3 * every, 0.5 + (share - 0.5) / every

        @jax.jit
        def final(kp, kd, mechanism=mechanism, state=state, every=every):
            law = jc.Sampled(integrator, drive(mechanism, kp, kd), every)
            return jd.rollout(mechanism, law, state, dt=1e-3, steps=5).info.status[-1]

        for p, c in (
            (1e-4, 1.98),
            (1e-4, 2.02),
            (1e-4, 5.0),
            (1.0, 1.4),
            (1.0, 0.3),
            (1.0, 0.7),
            (3.0, 1.0),
            (3.0, 1.9),
        ):
            unstable = c + (part - 0.5) * p > 2.0 or (1.0 - part) * p - c > 0.1
            assert final(p / period**2, c / period) == (jd.Status.UNSTABLE if unstable else jd.Status.OK), (
                every,
                p,
                c,
            )


@pytest.mark.long
def test_a_saturated_servo_that_alternates_every_step_is_unstable():
    # h kd = 11.3. The servo alternates between its limits of 50 N. Examinations at even steps alone saw the same side.
    mechanism, state = slider()
    servo = jc.Saturated(drive(mechanism, 1e5, 4e3), -50.0, 50.0)
    found = jd.rollout(
        mechanism, jd.SemiImplicitEuler(), state, servo, dt=2.83e-3, steps=4000, save_every=100
    )
    assert found.info.status[-1] == jd.Status.UNSTABLE


@pytest.mark.long
def test_all_sampled_laws_are_examined():
    mechanism, state = slider()
    table = jc.HeldInputs(1e-3 * jnp.arange(500.0), jnp.where(jnp.arange(500)[:, None] % 2 == 0, 50.0, -50.0))
    cases = [
        (jc.Sum((drive(mechanism, 100.0, 1500.0), drive(mechanism, 1.0, 600.0, ki=10.0))), [7, 7]),
        (
            jc.Saturated(drive(mechanism, 0.0, 5000.0), -50.0, 50.0),
            [0, 7],
        ),  # Saturated at first, then alternating between its limits.
        (table, [0, 0]),
    ]
    for law, expected in cases:
        sampled, moving = jc.Sampled(jd.RungeKutta.rk4(), law), jd.State(0.0, state.q, state.v + 1.0)
        found = jd.rollout(mechanism, sampled, moving, dt=1e-3, steps=500, save_every=250).info.status
        assert [found[0], found[-1]] == expected


@jd.tree.pytree
class Unexamined:
    """A law that is too expensive for the stability tests, like `ModelPredictive`."""

    examined: ClassVar[bool] = False

    def __call__(self, t, state):
        return jnp.ones(1)


@pytest.mark.long
def test_a_sampled_law_does_not_hide_steep_forces():
    friction = [jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0), friction=20.0)]
    body, motor = jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0)), jm.Motor("drive", "hinge", input=0)
    mechanism, q = jm.planar_mechanism([body], friction, [motor], coordinates=jm.Joints())
    for law in (drive(mechanism, 1.0, 0.1), Unexamined()):
        method = jc.Sampled(jd.RungeKutta.rk4(), law)
        for dt, status in ((1e-3, jd.Status.UNSTABLE), (5e-5, jd.Status.OK)):
            found = jd.rollout(mechanism, method, jd.State(0.0, q, 0.0 * q), dt=dt, steps=5)
            assert found.info.status[-1] == status


@pytest.mark.long
def test_stable_step_of_held_feedback_matches_its_closed_form():
    mechanism, state = slider()
    law = drive(mechanism, 100.0, 5000.0, ki=10.0)
    # Modes may grow by 1 % per period: |1 - 2.01|.
    limit = jd.stable_step(mechanism, state, jc.Sampled(jd.RungeKutta.rk4(), law, every=5))
    np.testing.assert_allclose(limit * 5 * 5000.0, 2.01, rtol=0.01)


@pytest.mark.long
@pytest.mark.parametrize("method", [pytest.param("semi_implicit_euler", marks=pytest.mark.exhaustive), "rk4"])
def test_servos_are_unstable_beyond_the_stable_step_only(method):
    """Two undamped servos with force limits, that leave their set points. Stable steps once looked unstable, and
    unstable steps stable."""
    bodies = [
        js.Body(name, 1.0, (0.1, 0.1, 0.1), place=(x, 0, 0)) for name, x in (("arm", 0.5), ("fore", 1.5))
    ]
    ends = (("A", "ground", "arm", 0.0), ("B", "arm", "fore", 1.0))
    joints = [js.Revolute(name, a, b, axis=(0, 0, 1), at=(x, 0, 0)) for name, a, b, x in ends]
    servos = [
        js.Actuator(f"servo_{name}", name, bias=(0, -1e4, 0), least_force=-1.0, most_force=1.0)
        for name in "AB"
    ]
    mechanism, q = jm.spatial_mechanism(bodies, joints, servos, coordinates=jm.Joints(), gravity=(0, 0, 0))
    integrator = EXPLICIT[method][0]
    stiffest = np.linalg.eigh(mechanism.mass_matrix(q))[1][
        :, 0
    ]  # mode, because all servos have one stiffness
    state = jd.State(0.0, q, 1e-4 * jnp.asarray(stiffest))
    longest = jd.stable_step(mechanism, state, integrator)
    run = jax.jit(
        lambda dt: jd.rollout(mechanism, integrator, state, dt=dt, steps=1000, save_every=1000).info.status[
            -1
        ]
    )
    for share in (0.5, 0.75, 0.9, 0.99):
        assert run(share * longest) == jd.Status.OK
    for share in (1.1, 2.0, 4.0):
        assert run(share * longest) == jd.Status.UNSTABLE


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [jd.Rattle(), pytest.param(jd.Composition.yoshida4(jd.Rattle()), marks=pytest.mark.exhaustive)],
)
def test_methods_that_solve_for_velocities_fail_beyond_their_limits(method):
    """The stability tests exclude these methods, because their own statuses are sufficient; see docs/statuses.md."""
    for numbers, status in (
        ({"friction": 20.0}, jd.Status.NOT_CONVERGED),
        ({"damping": 300.0}, jd.Status.NOT_CONVERGED),
        ({"stiffness": INERTIA * 3e3**2, "rest": 0.0}, jd.Status.NONFINITE),
    ):
        mechanism, state = arm(**numbers)
        info = jd.rollout(mechanism, method, state, dt=1e-3, steps=300, save_every=300).info
        assert info.status[-1] == status


@pytest.mark.parametrize(
    ("method", "unstable", "stable"),
    [
        (jd.RungeKutta.heun(), [(0.6, 0.0), (0.9, 0.02), (1.5, 0.1), (1.8, 0.02)], [(0.3, 0.0), (1.5, 0.5)]),
        (jd.SemiImplicitEuler(), [(1.5, 0.5), (1.8, 0.5), (1.9, 0.1)], [(1.8, 0.0), (1.2, 0.5)]),
        (jd.ExplicitEuler(), [(0.5, 0.0), (1.2, 0.5)], [(0.5, 0.5)]),
    ],
    ids=["heun", "semi_implicit_euler", "explicit_euler"],
)
def test_springs_beyond_the_limits_of_their_damping_ratio_are_unstable(method, unstable, stable):
    """A mode (h omega, damping ratio) grows if the spectral radius of the step matrix is above one."""
    dt, steps = 1e-3, 400
    body = jm.Body("block", 1.0, 0.1)
    slide = jm.Prismatic("slide", "ground", "block", (1.0, 0.0), at=(0.0, 0.0), stiffness=1.0, damping=1.0)
    mechanism, q = jm.planar_mechanism([body], [slide], coordinates=jm.Joints())

    @jax.jit
    @jax.vmap
    def status(rate, ratio):
        stiff = jd.tree.set_leaf(mechanism, "joints.slide.stiffness", (rate / dt) ** 2)
        damped = jd.tree.set_leaf(stiff, "joints.slide.damping", 2.0 * ratio * rate / dt)
        start = jd.State(jnp.zeros(()), q + 1e-3, jnp.zeros(1))
        trajectory = jd.rollout(damped, method, start, dt=dt, steps=steps, save_every=steps)
        return trajectory.info.status[-1]

    found = status(*np.transpose(unstable + stable))
    expected = [jd.Status.UNSTABLE] * len(unstable) + [jd.Status.OK] * len(stable)
    np.testing.assert_array_equal(found, expected)
