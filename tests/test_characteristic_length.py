"""Mechanisms of any size are judged alike: tolerances scale with the characteristic length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

SIZES = (1.0, 1e-6, 1e4)


def pendulum(length):
    body = jm.Body("a", 1.0, 0.1 * length**2, pose=(0.5 * length, 0.0, 0.0))
    joint = jm.Revolute("A", "ground", "a", point_a=(0.0, 0.0), point_b=(-0.5 * length, 0.0))
    return jm.planar_mechanism([body], [joint], gravity=(0.0, -9.81 * length))


@pytest.mark.long
def test_starts_and_steps_that_open_a_joint_fail_at_every_size():
    @jax.jit
    def status(mechanism, q, v):
        trajectory = jd.rollout(
            mechanism, jd.Projected(jd.RungeKutta.rk4()), jd.State(0.0, q, v), dt=1e-3, steps=10
        )
        return trajectory.info.status, trajectory.info.violation

    for length in SIZES:
        mechanism, q = pendulum(length)
        np.testing.assert_allclose(mechanism.characteristic_length, 0.5 * length, rtol=1e-15)
        for stretched, expected in (
            (1.0, jd.Status.OK),
            (1.0 + 1e-4, jd.Status.INCONSISTENT_START),
            (3.0, jd.Status.INCONSISTENT_START),
        ):
            assert status(mechanism, q.at[0].multiply(stretched), 0 * q)[0][-1] == expected, (
                length,
                stretched,
            )
        # 10 rad a step.
        found, violation = status(mechanism, q, jnp.array([0.0, 0.5 * length, 1.0]) * 1e4)
        assert found[0] == jd.Status.NOT_CONVERGED
        assert np.all(violation[found == jd.Status.OK] < 1e-5 * length)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        jd.Rattle(),
        *(pytest.param(m, marks=pytest.mark.exhaustive) for m in (jd.RadauIIA(), jd.BackwardEuler())),
    ],
)
def test_methods_that_close_positions_do_so_at_every_size(method):
    for length in SIZES:
        mechanism, q = pendulum(length)
        fast = jd.rollout(
            mechanism, method, jd.State(0.0, q, jnp.array([0.0, 0.5 * length, 1.0]) * 1e3), dt=1e-3, steps=10
        )
        good = fast.info.status == jd.Status.OK
        assert np.all(fast.info.violation[good] <= 1e-5 * length)


@pytest.mark.long
def test_initialize_closes_loops_of_every_size():
    for length in SIZES:
        bodies = [
            jm.Body("crank", 1.0, 0.1 * length**2, pose=(0.0, 0.5 * length, np.pi / 2)),
            jm.Body("coupler", 1.0, 0.3 * length**2, pose=(length, length, 0.0)),
            jm.Body("rocker", 1.0, 0.1 * length**2, pose=(2 * length, 0.5 * length, np.pi / 2)),
        ]
        places = {
            "A": ("ground", "crank", 0, 0),
            "B": ("crank", "coupler", 0, 1),
            "C": ("coupler", "rocker", 2, 1),
            "D": ("ground", "rocker", 2, 0),
        }
        joints = [
            jm.Revolute(name, a, b, at=(x * length, y * length)) for name, (a, b, x, y) in places.items()
        ]
        mechanism, q = jm.planar_mechanism(bodies, joints)
        rough = q + 0.05 * jnp.where(jnp.arange(9) % 3 < 2, length, 1.0)
        _, info = jd.initialize(mechanism, rough)
        assert info.violation <= 1e-14 * length


@pytest.mark.parametrize("length", [1.0, 1e-3])
def test_distance_from_the_origin_does_not_open_joints(length):
    """1 km away, a joint could be open by 1 cm with the status OK, ten times the length of a small pendulum."""
    status, far = jax.jit(jd.state_status), 1000.0
    body = jm.Body("a", 1.0, 0.1 * length**2, pose=(far + 0.5 * length, 0.0, 0.3))
    joint = jm.Revolute("A", "ground", "a", at=(far, 0.0))
    mechanism, q = jm.planar_mechanism([body], [joint])
    for opening, expected in ((0.0, jd.Status.OK), (1e-3, jd.Status.INCONSISTENT_START)):
        assert status(mechanism, jd.State(0.0, q.at[1].add(opening * length), 0.0 * q)) == expected


@pytest.mark.long
def test_distance_from_the_origin_does_not_tilt_hinges_or_stretch_quaternions():
    status, far = jax.jit(jd.state_status), 1000.0
    body = js.Body("a", 1.0, (0.1, 0.2, 0.3), place=(far + 0.5, 0.0, 0.0))
    joint = js.Revolute("A", "ground", "a", at=(far, 0.0, 0.0), axis=(0.0, 0.0, 1.0))
    mechanism, q = jm.spatial_mechanism([body], [joint])
    v = jnp.zeros(6)
    about_joint = jd.State(0.0, mechanism.retract(q, jnp.array([0.0, 0.0, -5e-4, 0.0, 1e-3, 0.0])), v)
    stretched = jd.State(0.0, q.at[3:7].multiply(1.001), v)
    assert status(mechanism, jd.State(0.0, q, v)) == jd.Status.OK
    assert status(mechanism, about_joint) == jd.Status.INCONSISTENT_START
    assert status(mechanism, stretched) == jd.Status.INCONSISTENT_START


@pytest.mark.long
def test_relations_of_angles_end_at_half_a_turn_at_every_size():
    """A rack of 0.1 micrometers per rad jumped by a full turn of its pinion, with the status OK."""
    bodies = [js.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in "ab"]
    pinion = js.Revolute("A", "ground", "a", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0))
    rack = js.Prismatic("B", "ground", "b", axis=(1.0, 0.0, 0.0), at=(0.0, 0.0, 0.0))
    for length in SIZES:
        row = js.Relation("row", "B", "A", (length, 0.1 * length))
        mechanism, q = jm.spatial_mechanism(bodies, [pinion, rack, row])
        for angle, expected in ((2.9, jd.Status.OK), (3.1, jd.Status.OUT_OF_RANGE)):
            turned = mechanism.retract(q, jnp.zeros(12).at[5].set(angle))
            assert mechanism.condition(jnp.zeros(()), turned) == expected, length


@pytest.mark.exhaustive
def test_independent_rows_of_loops_in_space_are_independent_at_every_size():
    """A spatial loop of micrometers counted as redundant, and its default solver dropped rows in m."""
    for length in (1.0, 1e-6):
        bodies = [
            js.Body(name, 1.0, tuple(np.array([0.1, 0.2, 0.15]) * length**2), place=tuple(place * length))
            for name, place in zip("abc", np.array([[0, 0, 0.5], [0.5, 0, 1], [1, 0.3, 0.5]]), strict=True)
        ]
        end = np.array([1.0, 0.3, 1.0]) * length
        joints = [
            js.Revolute("A", "ground", "a", axis=(0, 1, 0), at=(0, 0, 0)),
            js.Ball("B", "a", "b", at=(0, 0, length)),
            js.Universal("C", "b", "c", axis=(0, 0, 1), second=(0, 1, 0), at=tuple(end)),
            js.Revolute("D", "ground", "c", axis=(0.2, 1, 0), at=(length, 0.3 * length, 0)),
        ]
        mechanism, _ = jm.spatial_mechanism(bodies, joints)
        assert not mechanism.redundant, length


@pytest.mark.long
def test_redundant_loops_in_space_have_the_same_accelerations_at_every_size():
    """A spatial four-bar with parallel hinges did not fall as micrometers: its rows in m counted as zero.

    At 1e6 m, its rows in rad counted as zero, so that accelerations were wrong by 10 %.
    """
    hinges = np.array([[0, 0, 0], [0, 0, 1], [2, 0, 1.5], [2, 0, 0]])

    def rates(length):
        places = 0.5 * length * (hinges[1:] + hinges[:-1])
        bodies = [
            js.Body(name, 1.0, tuple(np.array([0.1, 0.2, 0.15]) * length**2), place=tuple(place))
            for name, place in zip("abc", places, strict=True)
        ]
        joints = [
            js.Revolute(a + b, a, b, axis=(0, 1, 0), at=tuple(length * at))
            for a, b, at in zip(("ground", "a", "b", "ground"), "abcc", hinges, strict=True)
        ]
        mechanism, q = jm.spatial_mechanism(bodies, joints, gravity=(length, 0.5 * length, -9.81 * length))
        assert mechanism.redundant
        a, _ = jax.jit(jd.forward_dynamics)(mechanism, jd.State(0.0, q, jnp.zeros(18)))
        return a.reshape(3, 6)[:, 3:]

    for length in (1e-6, 1e6):
        np.testing.assert_allclose(rates(length), rates(1.0), rtol=0, atol=1e-8)


def single(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


@pytest.mark.long
def test_single_precision_judges_openings_at_every_size():
    # At 1 um, rounding errors of 1 m hid an opening of 9 % of the length. At 1 km, a correct step failed.
    once = jd.Projection(jd.PositionProjection(iterations=1))
    method = jd.Projected(jd.RungeKutta.rk4(), once)
    run = jax.jit(lambda m, s: jd.rollout(m, method, s, dt=1e-3, steps=20).info.status[-1])
    for length in (1.0, 1e-6, 1e3):
        mechanism, q = single(pendulum(length))
        for rate, expected in ((1e3, jd.Status.OK), (3e3, jd.Status.NOT_CONVERGED)):
            state = single(jd.State(0.0, q, rate * jnp.array([0.0, 0.5 * length, 1.0])))
            assert run(mechanism, state) == expected, (length, rate)


@pytest.mark.long
def test_rows_that_become_active_while_open_fail_at_every_size():
    # The hinge of a body at rest closes after two steps.
    integrator = jd.switching.Switching(
        jd.Projected(jd.RungeKutta.rk4()), jd.switching.Scheduled(2e-3, jnp.inf), events=0
    )
    run = jax.jit(lambda m, s: jd.rollout(m, integrator, s, dt=1e-3, steps=5).info.status[-1])
    for length in (1.0, 1e-6, 1e3):
        mechanism, q = pendulum(length)
        system = jd.Masked(mechanism, jnp.zeros(2, bool))
        for opening, expected in ((1e-3, jd.Status.OK), (0.1, jd.Status.INCONSISTENT_START)):
            state = jd.State(jnp.zeros(()), q.at[0].add(opening * length), 0.0 * q)
            assert run(system, state) == expected, (length, opening)


@pytest.mark.exhaustive
def test_steps_too_long_for_a_driven_slide_are_unstable_at_small_sizes():
    @jax.jit
    def run(system, state):
        law = lambda t, state: -50.0 * state.q[:1]  # noqa: E731
        return jd.rollout(system, jd.Kinematic.rk4(), state, law, dt=0.1, steps=1).info.status[-1]

    for length in (1.0, 1e-6):
        body = jm.Body("slide", 1.0, 0.1 * length**2, pose=(length, 0.0, 0.0))
        rail = jm.Prismatic("rail", "ground", "slide", axis=(1.0, 0.0), at=(0.0, 0.0))
        drive = jm.JointRate("drive", "rail")
        system, q = jm.kinematic_mechanism(jm.Description(bodies=[body], joints=[rail], drives=[drive]))
        assert run(*single((system, jd.State(jnp.zeros(()), q, 0.0 * q)))) == jd.Status.UNSTABLE, length


@pytest.mark.exhaustive
def test_rows_of_mixed_units_judge_openings_at_every_size():
    """A slide that follows an angle, and an angle that follows a slide, of a wheel with a radius of 1 um."""
    length = 1e-6
    wheel = jm.Body("wheel", 1.0, 0.5 * length**2, pose=(0.0, length, 0.0))
    rack = jm.Body("rack", 1.0, 0.1 * length**2, pose=(0.0, 0.0, 0.0))
    pin = jm.Revolute("pin", "ground", "wheel", at=(0.0, length))
    slide = jm.Prismatic("slide", "ground", "rack", axis=(1.0, 0.0), at=(0.0, 0.0))
    for names, slope, coordinates, k in (
        (("pin", "slide"), 1.0 / length, jm.Absolute(), 3),
        (("slide", "pin"), length, jm.Joints(), 1),
    ):
        relation = jm.Relation("relation", *names, (0.0, slope))
        mechanism, q = jm.planar_mechanism([wheel, rack], [pin, slide, relation], coordinates=coordinates)
        opened = length * jnp.array([1e-7, 1e-2])
        zero = jnp.zeros((4, mechanism.sizes(q).nv))
        moved, moving = zero.at[:2, k].set(opened), zero.at[2:, k].set(opened)
        states = jd.State(jnp.zeros(4), q + moved, moving)
        statuses = jax.jit(jax.vmap(jd.state_status, in_axes=(None, 0)))(*single((mechanism, states)))
        np.testing.assert_array_equal(statuses, 2 * [jd.Status.OK, jd.Status.INCONSISTENT_START])


WHEELED = {
    "mecanum": (lambda size: jv.mecanum(0.4 * size, 0.5 * size, 0.1 * size), [-10.0, 10.0, -10.0, 10.0]),
    "conflict": (lambda size: jv.mecanum(0.4 * size, 0.5 * size, 0.1 * size), [10.0, 10.0, 10.0, -10.0]),
    "two wheels": (lambda size: jv.differential_drive(0.4 * size, 0.1 * size), [3.0, 5.0]),
}
WHEELED_VELOCITIES = {
    "mecanum": (jd.Status.OK, [0.0, 0.0, 2.0 / 0.9]),
    "conflict": (jd.Status.CONFLICTING_ROWS, None),
    "two wheels": (jd.Status.OK, [0.4, 0.0, 0.5]),
}


@pytest.mark.long
@pytest.mark.parametrize("form", [jm.Absolute(), pytest.param(jm.Joints(), marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "name",
    [
        "mecanum",
        pytest.param("conflict", marks=pytest.mark.long),
        pytest.param("two wheels", marks=pytest.mark.exhaustive),
    ],
)
def test_vehicles_of_first_order_have_the_same_motion_at_every_size(name, form):
    """The expected velocities are closed forms: rim speeds of 1 m/s at 1 m, 0.2 m + 0.25 m."""
    build, inputs = WHEELED[name]
    status, expected = WHEELED_VELOCITIES[name]
    for size in SIZES:
        robot, q = jm.kinematic_mechanism(build(size), form)
        state = jd.State(jnp.zeros(()), q, jnp.zeros(robot.sizes(q).nv))
        assert int(jd.kinematic_status(robot, state, jnp.array(inputs))) == status, size
        if expected is not None:
            v = jd.kinematic_velocity(robot, state, jnp.array(inputs))[0][:3]
            np.testing.assert_allclose(v / np.array([size, size, 1.0]), expected, rtol=0, atol=1e-8)
