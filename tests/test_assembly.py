"""Consistent starts: closed loops from rough guesses, and derivatives that know the manifold and not the
iteration.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import CrankRocker, cast, double_pendulum, pendulum, state
from small_systems import (
    central,
    consistent,
    everything,
    everywhere,
    oscillating,
    oscillator,
    without_typechecker,
)

import jaxdae as jd
from jaxdae import control
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js
from jaxdae.systems.consistency import start_status
from jaxdae.systems.system import velocity_residual

compiled_status = jax.jit(start_status)
CRANK = np.arange(9) < 3


def four_bar(**numbers):
    mechanism, start = CrankRocker(**numbers).build()
    return mechanism, start.q


def rough(q, held=CRANK, size=0.1):
    """A guess some centimetres and degrees away, with the held coordinates as they were."""
    return q + jnp.where(held, 0.0, size * jnp.cos(jnp.arange(float(q.size))))


def parallelogram(angle=0.7, coordinates=jm.Absolute(), apart=0.0, far=0.0):
    """A coupler on three parallel cranks: one of its 12 rows is redundant, and the motion is that of two
    cranks.

    The last foot may be apart from its crank, and all of it far from the origin.
    """
    c, s = np.cos(angle), np.sin(angle)
    bodies = [jm.Body(f"crank{k}", 1.0, 0.1, (far + k + 0.5 * c, far + 0.5 * s, angle)) for k in range(3)]
    bodies.append(jm.Body("coupler", 2.0, 0.5, (far + 1.0 + c, far + s, 0.0)))
    feet = [(far + k + apart * (k == 2), far) for k in range(3)]
    joints = [
        jm.Revolute(f"foot{k}", "ground", f"crank{k}", point_a=foot, point_b=(-0.5, 0.0))
        for k, foot in enumerate(feet)
    ]
    joints += [
        jm.Revolute(f"tip{k}", f"crank{k}", "coupler", point_a=(0.5, 0.0), point_b=(k - 1.0, 0.0))
        for k in range(3)
    ]
    return jm.planar_mechanism(bodies, joints, coordinates=coordinates)


@jd.tree.pytree
class Chain(jd.System):
    """Two links of lengths 1 and 1.5, from the origin to (distance, 0); q = (x1, y1, x2, y2) is the elbow and
    the end.
    """

    distance: Any

    def mass_matrix(self, q):
        return jnp.eye(4, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)

    def constraint(self, t, q):
        links = jnp.stack([q[:2] @ q[:2] - 1.0, (q[2:] - q[:2]) @ (q[2:] - q[:2]) - 2.25])
        return jnp.concatenate(
            [0.5 * links, q[2:] - jnp.stack([self.distance, jnp.zeros_like(self.distance)])]
        )


@jd.tree.pytree
class Rod(jd.System):
    """A point mass at (x, y) on a rod of length 1 whose angle is a coordinate of its own, q = (x, y, angle)."""

    mass: Any
    inertia: Any = 0.0

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.mass, self.mass, jnp.asarray(self.inertia, q.dtype)]))

    def force(self, t, q, v, u):
        return jnp.zeros_like(q)

    def constraint(self, t, q):
        return q[:2] - jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])


ELBOW_UP = jnp.array([0.8, 0.4, 2.2, 0.1])


def chain(distance):
    return Chain(jnp.asarray(distance, float))


@pytest.mark.long
@pytest.mark.parametrize("kind", [js.Weld, pytest.param(js.Revolute, marks=pytest.mark.exhaustive)])
def test_joints_that_are_turned_over_are_open(kind):
    """Their rows are sines, zero at half a turn as well: neither may assembly end there, nor a rollout begin."""
    at = {"point_a": (0, 0, 0), "point_b": (0, 0, 0), "axes_a": np.eye(3), "axes_b": np.eye(3)}
    body = js.Body("lid", 1.0, (0.1, 0.2, 0.3), place=(1.0, 0.0, 0.0), quaternion=(0.28, 0.96, 0.0, 0.0))
    turned, still = jnp.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]), jnp.zeros(6)
    mechanism, q = jm.spatial_mechanism([body], [kind("hinge", "ground", "lid", **at)])
    np.testing.assert_array_equal(
        mechanism.constraint(jnp.zeros(()), turned), np.zeros(len(mechanism.names.rows))
    )
    for system, status in (
        (mechanism, jd.Status.INCONSISTENT_START),
        (jd.Masked(mechanism, jnp.arange(len(kind.rows)) < 3), jd.Status.OK),
    ):
        assert compiled_status(system, jd.State(jnp.zeros(()), turned, still), 1e-5) == status
    closed, _ = jd.initialize(mechanism, q)
    np.testing.assert_allclose(closed.q, np.eye(7)[3], rtol=0, atol=1e-12)
    with pytest.raises(jd.SimulationError, match="Still open: hinge by 180 degrees"):
        jd.initialize(mechanism, turned, fixed=np.ones(6, bool))


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "coordinates"),
    [
        pytest.param(jnp.float64, jm.Joints(), id="joints", marks=pytest.mark.exhaustive),
        pytest.param(jnp.float32, jm.Absolute(), id="absolute, single precision"),
    ],
)
def test_a_straight_chain_that_is_too_long_bends(coordinates, dtype):
    """No row changes to first order where its links turn; the iteration goes on from aside, and has the
    triangle of the links.
    """
    bodies = [jm.Body(name, 1.0, 0.1, (x, 0.0, 0.0)) for name, x in (("left", 0.5), ("right", 1.5))]

    def chain(length):
        joints = [
            jm.Revolute("base", "ground", "left", point_a=(0.0, 0.0), point_b=(-0.5, 0.0)),
            jm.Revolute("knee", "left", "right", point_a=(0.5, 0.0), point_b=(-0.5, 0.0)),
            jm.Revolute("end", "ground", "right", point_a=(length, 0.0), point_b=(0.5, 0.0)),
        ]
        made = jm.planar_mechanism(bodies, joints, coordinates=coordinates)
        return jax.tree.map(lambda x: x.astype(dtype), made)

    mechanism, q = chain(1.8)
    state, _ = jd.initialize(mechanism, q)
    frames = mechanism.frames(state.q)
    np.testing.assert_allclose(
        np.abs(np.asarray(frames.y)),
        0.5 * np.sqrt(1.0 - 0.9**2),
        rtol=0,
        atol=1e4 * float(jnp.finfo(dtype).eps),
    )
    # An end that is out of reach stays so, and the chain straight.
    mechanism, q = chain(2.1)
    state, info = jax.jit(lambda q: jd.initialize(mechanism, q))(q)
    assert info.status == jd.Status.INCONSISTENT_START
    np.testing.assert_allclose(
        mechanism.frames(state.q).y, 0.0, rtol=0, atol=10 * float(jnp.finfo(dtype).eps)
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("coordinates", "apart", "far"),
    [
        (jm.Joints(), 1e-12, 0.0),
        (jm.Absolute(), 3e-10, 0.0),
        (jm.Joints(), 0.0, 1000.3),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                (jm.Absolute(), 1e-12, 0.0),
                (jm.Joints(), 3e-10, 0.0),
                (jm.Absolute(), 0.0, 1000.3),
            )
        ),
    ],
)
def test_redundant_rows_of_rounded_lengths_neither_move_nor_stop_a_mechanism(coordinates, apart, far):
    """They depend on each other up to the digits of lengths or places: the start is that of the guess, and
    moves.
    """
    exact, start = parallelogram(coordinates=coordinates)
    wanted = jnp.ones((exact.sizes(start).nv,))
    expected, _ = jd.initialize(exact, start, wanted)
    mechanism, q = parallelogram(coordinates=coordinates, apart=apart, far=far)
    found, info = jd.initialize(mechanism, q, wanted)
    assert info.status == jd.Status.OK
    np.testing.assert_allclose(found.q, q, rtol=0, atol=1e-9)
    assert np.max(np.abs(expected.v)) > 0.1
    np.testing.assert_allclose(found.v, expected.v, rtol=0, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("kind", [js.Weld, pytest.param(js.Prismatic, marks=pytest.mark.exhaustive)])
def test_bodies_at_half_a_turn_about_any_axis_turn_back(kind):
    """At half a turn about n the rows change for turns about n alone."""
    at = {"point_a": (0, 0, 0), "point_b": (0, 0, 0), "axes_a": np.eye(3), "axes_b": np.eye(3)}
    mechanism, q = jm.spatial_mechanism(
        [js.Body("lid", 1.0, (0.1, 0.2, 0.3))], [kind("hinge", "ground", "lid", **at)]
    )
    axes = jnp.asarray(
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.6, -0.8], [0.6, -0.8, 0.0]]
    )
    turned = jax.vmap(lambda n: jnp.concatenate([q[:4].at[3].set(0.0), n]))(axes)
    states, info = jax.jit(jax.vmap(lambda q: jd.initialize(mechanism, q)))(turned)
    np.testing.assert_array_equal(info.status, jd.Status.OK)
    np.testing.assert_allclose(np.abs(states.q[:, 3]), 1.0, rtol=0, atol=1e-12)


@pytest.mark.long
def test_a_loop_in_space_closes_on_the_side_of_its_guess():
    """A rod from a crank about z to a rocker about y: at a held crank it fits two angles of the rocker, in
    closed form.
    """
    bodies = [
        js.Body("crank", 1.0, (0.01, 0.02, 0.02), place=(0.25, 0.0, 0.0)),
        js.Body("rocker", 1.0, (0.1, 0.1, 0.01), place=(2.0, 0.0, 0.5)),
    ]
    joints = [
        js.Revolute("A", "ground", "crank", axis=(0, 0, 1), at=(0, 0, 0)),
        js.Revolute("B", "ground", "rocker", axis=(0, 1, 0), at=(2, 0, 0)),
        js.Rod("coupler", "crank", "rocker", (0.5, 0, 0), (2, 0, 1)),
    ]
    mechanism, _ = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    across = 2.0 - 0.5 * np.cos(0.4)
    low = np.arcsin((3.25 - across**2 - 1.0 - (0.5 * np.sin(0.4)) ** 2) / (2.0 * across))
    guesses = jnp.array([[0.4, 0.6], [0.4, 2.6]])
    closed = jax.jit(jax.vmap(lambda q: jd.initialize(mechanism, q, fixed=np.array([True, False]))[0].q))(
        guesses
    )
    np.testing.assert_allclose(closed, [[0.4, low], [0.4, np.pi - low]], rtol=0, atol=1e-13)


def lids():
    """A lid that is welded to the ground, in four systems of which each has these rows, and the start that is
    near to half a turn.
    """
    at = {"point_a": (0, 0, 0), "point_b": (0, 0, 0), "axes_a": np.eye(3), "axes_b": np.eye(3)}
    body, joint = (
        js.Body("lid", 1.0, (0.1, 0.2, 0.3), quaternion=(0.28, 0.96, 0.0, 0.0)),
        js.Weld("hinge", "ground", "lid", **at),
    )
    mechanism, q = jm.spatial_mechanism([body], [joint])
    first_order, _ = jm.kinematic_mechanism(jm.Description(space=jm.SPACE, bodies=[body], joints=[joint]))
    goals = control.WithGoals(mechanism, (control.FunctionGoal(lambda t, q: q[:1]),))
    return (mechanism, first_order, goals, jd.Soft(goals, 0.0)), q


@pytest.mark.long
def test_systems_made_of_joints_that_are_turned_over_are_open():
    turned = jnp.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    at = jd.State(jnp.zeros(()), turned, jnp.zeros(6))
    systems, _ = lids()
    for system in systems:
        there = system.evaluate(at.t, turned)
        assert there.turns_over
        np.testing.assert_allclose(np.max(np.abs(there.opening)), np.pi, rtol=1e-15)
        np.testing.assert_array_equal(system.constraint(at.t, turned), np.zeros(system.sizes(turned).ng))
    assert compiled_status(systems[-1], at, 1e-5) == jd.Status.INCONSISTENT_START
    assert [opening.joint for opening in jd.diagnose(systems[0], at).open_joints] == ["hinge"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [1, 2], ids=["first order", "goals"])
def test_systems_made_of_joints_do_not_end_turned_over(number):
    systems, q = lids()
    closed, _ = jd.initialize(systems[number], q)
    np.testing.assert_allclose(closed.q, np.eye(7)[3], rtol=0, atol=1e-12)


@pytest.mark.long
def test_quaternions_that_are_not_of_length_one():
    """In joint coordinates no row would notice them, and bodies would be as much longer."""
    body, joint = (
        js.Body("top", 1.0, (0.1, 0.2, 0.3), place=(0.0, 0.0, 1.0)),
        js.Ball("ball", "ground", "top", at=(0, 0, 0)),
    )
    mechanism, q = jm.spatial_mechanism([body], [joint], coordinates=jm.Joints())
    q = mechanism.retract(q, jnp.array([0.3, -0.2, 0.5]))
    for start, status in ((2.0 * q, jd.Status.INCONSISTENT_START), (q, jd.Status.OK)):
        assert compiled_status(mechanism, jd.State(jnp.zeros(()), start, jnp.zeros(3)), 1e-5) == status
    np.testing.assert_allclose(jd.initialize(mechanism, 2.0 * q)[0].q, q, rtol=0, atol=1e-15)


class TestPositions:
    @pytest.mark.long
    def test_closes_a_four_bar_from_a_rough_guess(self):
        mechanism, q = four_bar()
        at, info = jd.initialize(mechanism, rough(q), fixed=CRANK)
        np.testing.assert_array_equal(at.q[CRANK], q[CRANK])
        np.testing.assert_allclose(at.q, q, rtol=0, atol=1e-14)
        assert info.status == jd.Status.OK
        assert info.violation <= 1e-15
        assert 2 <= info.iterations <= 15
        np.testing.assert_array_equal(at.v, np.zeros(9))
        assert at.t == 0.0

    @pytest.mark.long
    def test_one_coordinate_held(self):
        mechanism, q = four_bar()
        held = np.arange(9) == 2
        at, _ = jd.initialize(mechanism, rough(q, held), fixed=held)
        assert at.q[2] == q[2]
        np.testing.assert_allclose(at.q, q, rtol=0, atol=1e-14)

    def test_a_closed_guess_stays(self):
        mechanism, q = four_bar()
        at, info = jd.initialize(mechanism, q)
        np.testing.assert_allclose(at.q, q, rtol=0.0, atol=1e-15)
        assert info.iterations <= 3

    def test_redundant_rows(self):
        mechanism, q = parallelogram()
        held = np.arange(12) == 2
        at, info = jd.initialize(mechanism, rough(q, held, 0.05), fixed=held)
        assert info.status == jd.Status.OK
        assert info.violation <= 1e-15
        np.testing.assert_allclose(at.q, q, rtol=0, atol=1e-14)

    def test_straight_chain(self):
        # At full stretch J loses rank and the closure is a double root: convergence is slow, the angle is
        # good to the root of g.
        at, info = jd.initialize(chain(2.5), ELBOW_UP)
        assert info.status == jd.Status.OK
        assert info.violation <= 4e-10
        np.testing.assert_allclose(at.q, [1.0, 0.0, 2.5, 0.0], rtol=0, atol=1e-4)

    def test_one_chain_can_not_reach(self):
        with pytest.raises(
            jd.SimulationError, match="the constraints cannot be closed; largest residuals row"
        ):
            jd.initialize(chain(2.6), ELBOW_UP)

    def test_a_guess_on_a_symmetry_axis_takes_one_of_both_sides(self):
        # Straight, but too short: no step to the side is better than the other.
        at, _ = jd.initialize(chain(2.0), jnp.array([0.8, 0.0, 2.0, 0.0]))
        np.testing.assert_allclose(
            jnp.abs(at.q), jnp.abs(jd.initialize(chain(2.0), ELBOW_UP)[0].q), rtol=0, atol=1e-9
        )

    def test_without_constraints(self):
        at = oscillating()
        result, info = jd.initialize(oscillator(), at.q, at.v, t=1.5)
        np.testing.assert_array_equal(result.q, at.q)
        np.testing.assert_array_equal(result.v, at.v)
        assert (float(result.t), int(info.iterations), float(info.violation)) == (1.5, 0, 0.0)

    def test_all_coordinates_held(self):
        mechanism, q = four_bar()
        jd.initialize(mechanism, q, fixed=np.ones(9, bool))
        with pytest.raises(
            jd.SimulationError, match="cannot be closed with 9 coordinates held fixed; largest residuals"
        ):
            jd.initialize(mechanism, rough(q), fixed=np.ones(9, bool))

    def test_single_precision(self):
        at, info = jd.initialize(*cast((chain(2.0), ELBOW_UP), jnp.float32))
        assert at.q.dtype == at.v.dtype == at.t.dtype == info.violation.dtype == jnp.float32
        # The elbow of the triangle with sides 1, 1.5 and 2.
        x = (1.0 + 4.0 - 2.25) / 4.0
        np.testing.assert_allclose(at.q, [x, np.sqrt(1.0 - x**2), 2.0, 0.0], rtol=0, atol=1e-6)

    def test_explicit_time(self):
        system, start = everything(), everywhere()
        for t in (0.3, 2, jnp.asarray(1.0, float)):
            at, _ = jd.initialize(system, start.q, t=t)
            np.testing.assert_allclose(
                system.constraint(jnp.asarray(t, float), at.q), 0.0, rtol=0, atol=1e-15
            )


class TestVelocities:
    @pytest.mark.long
    def test_nearest_in_the_mass_metric(self):
        system, start = everything(), everywhere()
        at, info = jd.initialize(system, start.q, start.v, t=start.t)
        expected = jd.VelocityProjection().project(system, jd.State(at.t, at.q, start.v))
        np.testing.assert_allclose(at.v, expected.v, rtol=0, atol=1e-14)
        assert info.velocity_violation <= 1e-14

    def test_a_driven_crank_drives_the_rest(self):
        mechanism, q = four_bar()
        at, _ = jd.initialize(mechanism, q, jnp.zeros(9).at[2].set(2.0), fixed_velocity=np.arange(9) == 2)
        assert at.v[2] == 2.0
        np.testing.assert_allclose(
            mechanism.constraint_jacobian(at.t, at.q, at.v) @ at.v, 0.0, rtol=0, atol=1e-14
        )

    @pytest.mark.long
    def test_nearest_beside_those_that_are_held(self):
        """Joint coordinates, whose mass matrix is dense: the smallest dv^T M dv with J dv = -J v that leaves
        held rates alone.
        """
        bodies = [jm.Body(f"link{k}", 1.0 + k, 0.1 * (k + 1), (0.5 + k, 0.1 * k, 0.2 * k)) for k in range(5)]
        joints = [
            jm.Revolute(f"pin{k}", bodies[k - 1].name if k else "ground", f"link{k}", at=(k, 0.1 * k))
            for k in range(5)
        ]
        rod = jm.Rod("rod", "link4", "ground", at_a=(5.0, 0.5), at_b=(6.0, 3.0))
        chain, q = jm.planar_mechanism(bodies, [*joints, rod], coordinates=jm.Joints())
        wanted, held = np.array([0.3, -1.2, 0.7, 0.2, 1.5]), np.array([False, True, False, False, True])
        at, _ = jd.initialize(chain, q, wanted, fixed_velocity=held)
        free = ~held
        mass = np.asarray(chain.mass_matrix(q))[np.ix_(free, free)]
        row = np.asarray(chain.constraint_jacobian(at.t, q, at.v))[0]
        along = np.linalg.solve(mass, row[free])
        expected = wanted.copy()
        expected[free] -= along * (row @ wanted) / (row[free] @ along)
        np.testing.assert_allclose(at.v, expected, rtol=0.0, atol=1e-13)

    def test_redundant_rows(self):
        mechanism, q = parallelogram()
        at, _ = jd.initialize(mechanism, q, jnp.zeros(12).at[2].set(2.0), fixed_velocity=np.arange(12) == 2)
        np.testing.assert_allclose(at.v[2:9:3], 2.0, rtol=1e-13)
        np.testing.assert_allclose(at.v[9:], [-2.0 * np.sin(0.7), 2.0 * np.cos(0.7), 0.0], rtol=0, atol=1e-13)

    @pytest.mark.long
    def test_massless_coordinates_that_the_constraints_determine(self):
        """The angle of a rod without inertia: velocities and their derivatives are those of the point mass at
        its end.
        """
        at = jnp.array([0.6, 0.8, np.arctan2(0.8, 0.6)])
        tangent = np.array([-0.8, 0.6])

        def speed(wanted, mass=2.0):
            return jd.initialize(Rod(jnp.asarray(mass)), at, wanted)[0].v

        wanted = jnp.array([1.0, -0.5, 3.0])
        # The nearest velocity of the mass along the circle; the angle follows, whatever was wanted of it.
        along = tangent @ np.asarray(wanted)[:2]
        np.testing.assert_allclose(speed(wanted), [*(along * tangent), along], rtol=0, atol=1e-14)
        expected = np.zeros((3, 3))
        expected[:, :2] = np.concatenate([np.outer(tangent, tangent), tangent[None]])
        for mode in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(mode(speed)(wanted), expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(
            jax.jacfwd(jax.jacrev(speed, 1), 1)(wanted, 2.0), np.zeros(3), rtol=0, atol=1e-13
        )
        held, _ = jd.initialize(
            Rod(jnp.asarray(2.0)), at, wanted, fixed_velocity=np.array([False, False, True])
        )
        np.testing.assert_allclose(held.v, [*(3.0 * tangent), 3.0], rtol=0, atol=1e-14)

    def test_a_light_coordinate_is_the_limit_of_a_massless_one(self):
        at, wanted = jnp.array([0.6, 0.8, np.arctan2(0.8, 0.6)]), jnp.array([1.0, -0.5, 3.0])
        rod = Rod(jnp.asarray(2.0))
        light = jd.initialize(Rod(jnp.asarray(2.0), jnp.asarray(1e-9)), at, wanted)[0].v
        np.testing.assert_allclose(light, jd.initialize(rod, at, wanted)[0].v, rtol=0, atol=1e-8)

    def test_velocities_that_move_with_time(self):
        # Prescribed motion: at rest is not consistent.
        bodies, pin = [jm.Body("wheel", 1.0, 0.1)], jm.Revolute("pin", "ground", "wheel", at=(0.0, 0.0))
        motor = jm.PrescribedMotion("motor", "pin", jm.Polynomial((0.0, 3.0, 0.5)))
        at, _ = jd.initialize(*jm.planar_mechanism(bodies, [pin, motor]), t=2.0)
        np.testing.assert_allclose(at.q, [0.0, 0.0, 8.0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(at.v, [0.0, 0.0, 5.0], rtol=0, atol=1e-14)

    def test_velocities_held_against_the_constraints(self):
        mechanism, q = four_bar()
        with pytest.raises(jd.SimulationError) as caught:
            jd.initialize(mechanism, q, jnp.ones(9), fixed_velocity=np.ones(9, bool))
        assert "the velocities cannot be made consistent with 9 velocities held fixed; largest rates" in str(
            caught.value
        )
        assert "Free a velocity" in str(caught.value)


class TestDerivatives:
    """Central differences of the whole procedure; the iteration ends at round-off, so they are good to about
    1e-9.
    """

    def build_and_close(self, lengths, guess, wanted):
        numbers = {"coupler": lengths[0], "rocker": lengths[1]}
        bodies = [
            jm.Body(name, 1.0, 0.1, pose)
            for name, pose in zip(("crank", "coupler", "rocker"), guess.reshape(3, 3), strict=True)
        ]
        half = {name: 0.5 * numbers.get(name, 1.0) for name in ("crank", "coupler", "rocker")}
        joints = [
            jm.Revolute("A", "ground", "crank", point_a=(0.0, 0.0), point_b=(-0.5, 0.0)),
            jm.Revolute("B", "crank", "coupler", point_a=(0.5, 0.0), point_b=(-half["coupler"], 0.0)),
            jm.Revolute(
                "C", "coupler", "rocker", point_a=(half["coupler"], 0.0), point_b=(half["rocker"], 0.0)
            ),
            jm.Revolute("D", "ground", "rocker", point_a=(2.0, 0.0), point_b=(-half["rocker"], 0.0)),
        ]
        mechanism, q = jm.planar_mechanism(bodies, joints)
        at, _ = jd.initialize(
            mechanism, q, wanted, fixed=jnp.arange(9) == 2, fixed_velocity=jnp.arange(9) == 2
        )
        return at

    @pytest.mark.long
    def test_of_lengths_guess_and_wanted_velocities(self):
        _, q = four_bar()
        arguments = (jnp.array([2.5, 2.0]), rough(q), jnp.zeros(9).at[2].set(1.5))
        direction = jax.tree.map(lambda x: jnp.cos(2.0 + jnp.arange(x.size, dtype=float)), arguments)
        weights = jnp.sin(1.0 + jnp.arange(9.0))

        def objective(arguments):
            at = self.build_and_close(*arguments)
            return jnp.sum(weights * at.q**2) + jnp.sum(weights * at.v)

        @jax.jit
        def derivatives(s):
            moved = jax.tree.map(lambda x, dx: x + s * dx, arguments, direction)
            value, forward = jax.jvp(objective, (moved,), (direction,))
            gradient, change = jax.jvp(jax.grad(objective), (moved,), (direction,))
            along = [
                sum(
                    jnp.sum(x * y)
                    for x, y in zip(jax.tree.leaves(z), jax.tree.leaves(direction), strict=True)
                )
                for z in (gradient, change)
            ]
            return value, forward, *along

        _, forward, reverse, second = derivatives(0.0)
        differences = central(derivatives, 0.0, 1e-5)
        np.testing.assert_allclose(reverse, forward, rtol=1e-11)
        np.testing.assert_allclose(forward, differences[0], rtol=1e-7)
        np.testing.assert_allclose(second, differences[1], rtol=1e-6)

    @pytest.mark.long
    @pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
    def test_held_coordinates_pass_their_derivative_on_and_closed_ones_follow(self, derivative):
        # With the crank held, the others are a function of its angle: dq = (I - P J) d(crank), that is J dq =
        # 0.
        mechanism, q = four_bar()

        def closed(angle):
            crank = jnp.stack([0.5 * jnp.cos(angle), 0.5 * jnp.sin(angle), angle])
            return jd.initialize(mechanism, q.at[:3].set(crank), fixed=CRANK)[0].q

        slope = jax.jit(derivative(closed))(1.0)
        np.testing.assert_allclose(slope[2], 1.0, rtol=1e-14)
        np.testing.assert_allclose(
            mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(9)) @ slope, 0.0, rtol=0, atol=1e-13
        )

    @pytest.mark.long
    def test_with_redundant_rows(self):
        # J has an exact zero singular value; the derivative of the minimum-norm correction is finite and
        # consistent all the same.
        mechanism, q = parallelogram()

        def closed(guess):
            return jd.initialize(mechanism, guess)[0].q

        slope = jax.jit(jax.jacrev(closed))(q)
        jacobian = np.asarray(mechanism.constraint_jacobian(jnp.zeros(()), q, jnp.zeros(12)))
        np.testing.assert_allclose(
            slope, np.eye(12) - np.linalg.pinv(jacobian, rcond=1e-10) @ jacobian, rtol=0, atol=1e-12
        )

    def test_from_a_rough_guess_it_is_that_of_closing_once_more(self):
        """A circle, from twice its radius: the way there is radial, and half of a step to the side arrives.
        Closed first, it is exact.
        """
        system, guess = pendulum("iftomm_a01_pendulum"), jnp.array([1.2, -1.6])

        @jax.jit
        def closed(guess):
            return jd.initialize(system, guess)[0].q

        q = closed(guess)
        of_rough, of_closed = (jax.jacfwd(closed)(x) for x in (guess, q))
        along = np.array([0.8, 0.6])
        np.testing.assert_allclose(of_rough, np.outer(along, along), rtol=0, atol=1e-13)
        np.testing.assert_allclose(of_closed, of_rough, rtol=0, atol=1e-13)
        for at, share in ((guess, 0.5), (q, 1.0)):
            np.testing.assert_allclose(
                central(lambda s, at=at: closed(at + s * along), 0.0), share * along, rtol=1e-8
            )

    def test_where_the_loop_stays_open_nothing_is_nan(self):
        gradient = jax.jit(jax.grad(lambda d: jnp.sum(jd.initialize(Chain(d), ELBOW_UP)[0].q)))
        assert np.isfinite(gradient(2.6))


class TestTransformations:
    def test_under_jit_the_status_tells(self):
        close = jax.jit(jax.vmap(lambda d: jd.initialize(Chain(d), ELBOW_UP)))
        at, info = close(jnp.array([2.0, 2.6, 1.5, jnp.nan]))
        good, bad = jd.Status.OK, jd.Status.INCONSISTENT_START
        np.testing.assert_array_equal(info.status, [good, bad, good, bad])
        for k, distance in ((0, 2.0), (2, 1.5)):
            single, _ = jd.initialize(chain(distance), ELBOW_UP)
            np.testing.assert_allclose(at.q[k], single.q, rtol=0, atol=1e-14)
        # The best that can be done is 0.1 m short, shared among the rows.
        assert 0.01 < info.violation[1] < 0.1
        with pytest.raises(jd.SimulationError, match="INCONSISTENT_START"):
            jd.raise_if_failed(info)

    def test_status_of_consistent_states(self):
        at = consistent()
        assert np.max(np.abs(velocity_residual(everything(), at))) < 1e-14


def test_message_names_the_open_rows():
    mechanism, q = four_bar()
    mechanism = jd.tree.set_leaf(
        mechanism, "joints.revolute.point_b", mechanism.joints["revolute"].point_b.at[3, 0].set(-9.0)
    )
    with pytest.raises(jd.SimulationError) as caught:
        jd.initialize(mechanism, q, fixed=CRANK)
    message = str(caught.value)
    assert message.startswith(
        "INCONSISTENT_START: the constraints cannot be closed with 3 coordinates held fixed; largest "
        "residuals"
    )
    assert "D.x: " in message
    assert message.endswith(
        "Check lengths and joint positions, start from a better guess, or free a coordinate."
    )


MISTAKES = {
    "integers": ({"q": [0, 0]}, "q must be a floating-point vector, got shape (2,) and dtype int64"),
    "a matrix": ({"q": np.zeros((1, 2))}, "q must be a floating-point vector, got shape (1, 2)"),
    "not finite": ({"q": [0.0, np.nan]}, "q must be finite, got [ 0. nan]"),
    "velocities of another length": ({"v": np.zeros(3)}, "v must have shape (2,), got (3,)"),
    "velocities that are not finite": ({"v": [0.0, np.inf]}, "v must be finite, got [ 0. inf]"),
    "many times": ({"t": np.zeros(2)}, "t must be a single number, got shape (2,)"),
    "indices instead of a mask": (
        {"fixed": [0]},
        "fixed must be a boolean mask of shape (2,), got int64(1,)",
    ),
    "names instead of a mask": (
        {"fixed": ["x", "y"]},
        "fixed must be a boolean mask of shape (2,), got <U1(2,)",
    ),
    "numbers instead of a mask": (
        {"fixed_velocity": [0.0, 1.0]},
        "fixed_velocity must be a boolean mask of shape (2,), got float64(2,)",
    ),
    "tolerance": ({"tolerance": 0.0}, "tolerance must be positive, got 0.0"),
}


@all_cases(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        jd.initialize(oscillator(), **{"q": [0.0, 0.0], **arguments})
    assert message in str(caught.value)


def test_guess_of_another_length():
    mechanism, q = four_bar()
    with pytest.raises(
        ValueError, match=r"fails for q of shape \(8,\) and v of shape \(9,\); check the lengths"
    ):
        jd.initialize(mechanism, q[:8])


def test_something_else_instead_of_a_system():
    with without_typechecker(), pytest.raises(TypeError, match="planar_mechanism returns"):
        jd.initialize((double_pendulum(), None), state(np.zeros(4)).q)
