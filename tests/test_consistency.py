"""Starts that break the constraints: reported at once by rollouts, batches and adaptive rollouts, in
positions and in velocities.
"""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from all_cases import all_cases
from catalogue import METHODS
from problems import state

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm
from jaxdae.systems.consistency import start_status

compiled_status = jax.jit(start_status)
OK, INCONSISTENT = jd.Status.OK, jd.Status.INCONSISTENT_START
RK4 = jd.Projected(jd.RungeKutta.rk4())
EULER = jd.Projected(jd.SemiImplicitEuler())


def pendulum(dtype=float):
    return problems.Pendulum(*(jnp.asarray(x, dtype) for x in (1.3, 1.0, 9.81)))


def at(position=0.0, velocity=0.0, dtype=float):
    """A start whose length is off by the fraction `position`, and which moves along the rod by `velocity`
    m/s.
    """
    direction = np.array([0.6, -0.8])
    q, v = (1.0 + position) * direction, velocity * direction + np.array([0.8, 0.6])
    return jd.State(*(jnp.asarray(x, dtype) for x in (0.0, q, v)))


class TestStatus:
    @all_cases(
        ("position", "velocity", "expected"),
        [(0.0, 0.0, OK), (1e-6, 0.0, OK), (0.0, 1e-6, OK)]
        + [(off, 0.0, INCONSISTENT) for off in (1e-3, -0.05, 1 / 3, -1 / 3)]
        + [(0.0, off, INCONSISTENT) for off in (1e-3, -0.05, 1 / 3)],
    )
    def test_of_a_pendulum(self, position, velocity, expected):
        assert compiled_status(pendulum(), at(position, velocity), 1e-5) == expected

    def test_rounding_of_single_precision_is_no_break_and_a_millimeter_is(self):
        far = jd.State(jnp.float32(0.0), jnp.float32([6e3, -8e3]), jnp.zeros(2, jnp.float32))
        long = problems.Pendulum(*(jnp.float32(x) for x in (1.0, 1e4, 9.81)))
        tolerance = jd.systems.system.default_tolerance(jnp.float32)
        assert compiled_status(long, far, tolerance) == OK
        assert compiled_status(pendulum(jnp.float32), at(1e-3, dtype=jnp.float32), tolerance) == INCONSISTENT

    def test_the_units_of_a_row_do_not_matter(self):
        """A pendulum of 1 mm, a third off: its row is in m^2, and is 3e-7 m^2 off."""
        short = jd.tree.set_leaf(pendulum(), "length", jnp.asarray(1e-3))
        assert compiled_status(short, state([0.8e-3, -1.0667e-3], [0.0, 0.0]), 1e-5) == INCONSISTENT
        assert compiled_status(short, state([0.6e-3, -0.8e-3], [0.0, 0.0]), 1e-5) == OK

    def test_rows_that_are_soft_or_off_do_not_count(self):
        broken = at(0.05, 0.05)
        assert compiled_status(jd.Masked(pendulum(), jnp.array([False])), broken, 1e-5) == OK
        assert compiled_status(jd.Soft(pendulum(), jnp.array(0.1)), broken, 1e-5) == OK
        goal = jc.Goal(jc.Coordinates((0,)), jnp.array([0.3]))
        assert compiled_status(jc.WithGoals(pendulum(), (goal,)), at(), 1e-5) == INCONSISTENT

    @pytest.mark.long
    @pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.exhaustive)])
    def test_rows_that_nothing_can_change(self, dtype):
        """The second of two hinges on one axis, in joint coordinates: zero up to rounding is closed, and a
        centimeter is open.
        """
        axis = np.array([0.48, 0.6, 0.64])
        door = jm.spatial.Body("door", 1.0, (0.1, 0.1, 0.1), (0.3, 0.1, 0.2), (0.5, 0.1, 0.7, -0.5))
        hinges = [
            jm.spatial.Revolute(name, "ground", "door", axis, at * axis)
            for name, at in (("low", 0.3), ("high", 1.7))
        ]
        mechanism, q = jm.spatial_mechanism([door], hinges, coordinates=jm.Joints())
        mechanism = jax.tree.map(lambda x: x.astype(dtype), mechanism)
        start = jd.State(*(jnp.asarray(x, dtype) for x in (0.0, q, [3.0])))
        tolerance, name = jd.systems.system.default_tolerance(dtype), "joints.revolute.point_a"
        assert compiled_status(mechanism, start, tolerance) == OK
        aside = jd.tree.set_leaf(
            mechanism, name, jd.tree.get_leaf(mechanism, name) + jnp.asarray([0.01, 0.0, 0.0], dtype)
        )
        assert compiled_status(aside, start, tolerance) == INCONSISTENT

    def test_what_is_not_finite_is_left_to_the_step(self):
        assert compiled_status(pendulum(), state([jnp.nan, 0.0], [0.0, 0.0]), 1e-5) == OK


# The rollout checks the start and freezes the world, for every method by the same code. Cases: a projection,
# an iteration, memory, stages that are solved together, a composition, and the velocity stepper.
FROZEN = {"rk4": RK4, "velocity_stepping": jc.VelocityStepping()}
FROZEN |= {name: METHODS[name].integrator for name in ("rattle", "generalized_alpha", "radau_iia", "suzuki4")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in ("radau_iia", "suzuki4") else ())
        for name in FROZEN
    ],
)
def test_every_method_reports_it_and_does_not_move(name):
    starts = jax.tree.map(lambda *x: jnp.stack(x), at(), at(position=0.05), at(velocity=1e-3))
    found = jd.batch_rollout(pendulum(), FROZEN[name], starts, dt=0.01, steps=2)
    np.testing.assert_array_equal(found.info.status, [[OK] * 2, [INCONSISTENT] * 2, [INCONSISTENT] * 2])
    np.testing.assert_array_equal(found.state.q[1:], np.broadcast_to(starts.q[1:, None], (2, 2, 2)))
    np.testing.assert_array_equal(found.state.t[1:], 0.0)


@pytest.mark.long
def test_adaptive_rollouts_report_it_too():
    found = jd.diffrax.adaptive_rollout(
        pendulum(), jd.diffrax.Adaptive(), at(position=1 / 3), times=jnp.array([0.1, 0.2])
    )
    np.testing.assert_array_equal(found.info.status, INCONSISTENT)
    np.testing.assert_array_equal(found.state.q, np.broadcast_to(at(position=1 / 3).q, (2, 2)))


class TestTolerance:
    def test_any_start_passes_where_the_user_says_so(self):
        """Feedback that is to close a constraint begins with it open."""
        baumgarte = jd.RungeKutta.rk4(stabilization=jd.Baumgarte(10.0, 10.0))
        found = jd.rollout(
            pendulum(), baumgarte, at(position=0.05), dt=0.01, steps=200, start_tolerance=jnp.inf
        )
        np.testing.assert_array_equal(found.info.status, OK)
        assert found.info.violation[-1] < 1e-6 < 0.04 < found.info.violation[0]

    @pytest.mark.long
    def test_a_rollout_that_goes_on_is_not_checked_anew(self):
        """Without a projection constraints drift off, which is what the first rollout did already."""
        euler = jd.ExplicitEuler()
        first = jd.rollout(pendulum(), euler, at(), dt=0.05, steps=10)
        end = jax.tree.map(lambda x: x[-1], first.state)
        again = jd.rollout(pendulum(), euler, end, dt=0.05, steps=10, memory=first.memory)
        np.testing.assert_array_equal(again.info.status, OK)
        np.testing.assert_array_equal(
            jd.rollout(pendulum(), euler, end, dt=0.05, steps=10).info.status, INCONSISTENT
        )

    @pytest.mark.parametrize("tolerance", [-1.0, jnp.nan, jnp.ones(2)])
    def test_mistakes(self, tolerance):
        with pytest.raises(ValueError, match="start_tolerance must be non-negative"):
            jd.rollout(pendulum(), RK4, at(), dt=0.01, steps=1, start_tolerance=tolerance)


class TestDerivatives:
    """Of a rollout that failed they are NaN in the entries that failed, and in nothing else."""

    def end(self, position, pick):
        def value(mass):
            system = jd.tree.set_leaf(pendulum(), "mass", mass)
            return pick(jd.rollout(system, EULER, at(position), dt=0.01, steps=2))

        return value

    @pytest.mark.long
    def test_none_of_an_inconsistent_start_in_any_mode(self):
        value = self.end(1e-3, lambda trajectory: jnp.sum(trajectory.state.q[-1]))
        assert np.isnan(jax.jit(jax.grad(value))(1.3))
        assert np.isnan(jax.jvp(value, (1.3,), (1.0,))[1])

    @pytest.mark.long
    def test_no_loss_is_flat_enough_to_hide_it(self):
        value = self.end(
            1e-3, lambda trajectory: jnp.maximum(jnp.sum(trajectory.state.q[-1] ** 2) - 5.0, 0.0)
        )
        assert value(1.3) == 0.0
        assert np.isnan(jax.grad(value)(1.3))

    @pytest.mark.long
    def test_a_loss_over_a_batch_may_leave_failed_worlds_out(self):
        def value(length):
            system = jd.tree.set_leaf(pendulum(), "length", length)
            starts = jax.tree.map(lambda *x: jnp.stack(x), at(), at(0.05))
            found = jd.batch_rollout(system, EULER, starts, dt=0.01, steps=2)
            return jnp.sum(jnp.where(found.info.status == OK, found.state.q[..., 1], 0.0))

        def alone(length):
            return jnp.sum(
                jd.rollout(
                    jd.tree.set_leaf(pendulum(), "length", length), EULER, at(), dt=0.01, steps=2
                ).state.q[:, 1]
            )

        expected = jax.jacfwd(alone)(1.0)
        for derivative in (jax.grad, jax.jacfwd):
            np.testing.assert_allclose(derivative(value)(1.0), expected, rtol=1e-12)

    @pytest.mark.exhaustive
    def test_entries_before_the_failure_keep_theirs_in_forward_mode(self):
        class Driven(problems.Pendulum):
            def force(self, t, q, v, u):
                return super().force(t, q, v, u).at[0].add(u[0])

        Driven = jd.tree.pytree(Driven)
        controls = jnp.array([[0.0], [0.3], [jnp.nan]])

        def height(length, entry, controls):
            system = Driven(jnp.asarray(1.3), length, jnp.asarray(9.81))
            return jd.rollout(system, EULER, at(), controls, dt=0.01).state.q[entry, 1]

        def slope(entry, controls):
            return jax.jvp(lambda length: height(length, entry, controls), (1.0,), (1.0,))[1]

        np.testing.assert_allclose(slope(1, controls), slope(1, controls.at[2].set(0.0)), rtol=1e-12)
        assert np.isnan(slope(2, controls))
        assert np.isnan(jax.grad(height)(1.0, 1, controls))


class TestRanges:
    """A number without a meaning is an error where it is known, and a status where it is traced."""

    def run(self, softness, starts):
        soft = jd.Soft(pendulum(), softness)
        return jd.batch_rollout(
            soft,
            RK4,
            starts,
            dt=0.01,
            steps=2,
            in_axes=(jd.tree.batch_axes(soft, "softness"), None, None, None),
        )

    @pytest.mark.long
    def test_world_by_world(self):
        softness = jnp.array([0.0, 1.0, -1.0])
        with pytest.raises(
            ValueError, match=r"system: Soft.softness must not be negative, got \[ 0.  1. -1.\]"
        ):
            self.run(softness, at())
        found = jax.jit(self.run)(softness, at())
        np.testing.assert_array_equal(found.info.status, [[OK] * 2, [OK] * 2, [jd.Status.OUT_OF_RANGE] * 2])

    @pytest.mark.exhaustive
    def test_a_fit_that_leaves_the_range_gets_no_gradient_there(self):
        def value(softness):
            return jd.rollout(jd.Soft(pendulum(), softness), RK4, at(), dt=0.01, steps=2).state.q[-1, 1]

        assert np.isfinite(jax.grad(value)(0.1))
        assert np.isnan(jax.grad(value)(-0.1))
