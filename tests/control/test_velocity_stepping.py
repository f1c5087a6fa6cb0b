"""The velocity-level time stepper: its step against dense algebra, groups in all couplings, limits, motors,
transformations.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from all_cases import all_cases
from control_problems import arm
from problems import Pendulum, cast, state
from small_systems import everything, everywhere, oscillating, oscillator

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.control import (
    BodyPoint,
    ConstraintOrder,
    Coordinates,
    Coupling,
    FunctionGoal,
    Goal,
    GoalGroup,
    InputTarget,
    JointCoordinate,
    VelocityStepping,
    VirtualWork,
    goal_rows,
    spring_and_damper,
)

H = 0.01


@jax.jit
def step(integrator, system, at, u=None, dt=H):
    """Returns state and report; one program a structure."""
    new, _, info = integrator.step(system, at, (), u, dt)
    return new, info


@jd.tree.pytree
class Masses(jd.System):
    """Two masses on a line at a distance of one, each pushed by its input."""

    mass: jax.Array

    def mass_matrix(self, q):
        return jnp.diag(self.mass)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v) if u is None else u

    def constraint(self, t, q):
        return (q[1] - q[0] - 1.0)[None]


def masses():
    return Masses(jnp.array([2.0, 3.0])), state([0.0, 1.0], [0.0, 0.0])


def rate_of(index, rate):
    return Goal(Coordinates((index,)), rate=rate)


def group(*goals, **kwargs):
    return GoalGroup(goals=goals, **kwargs)


class TestStep:
    @pytest.mark.long
    def test_is_the_formula(self):
        """All kinds of terms: rows that move with time, nonholonomic ones, a full mass matrix, a state off
        the constraints.
        """
        system, at = everything(), everywhere()
        beta = np.array([0.3, 1.1])
        new, info = step(VelocityStepping(jnp.asarray(beta)), system, at, jnp.array([0.2, -0.1, 0.4, 0.3]))
        rows = jax.jit(jd.operators.constraint_terms)(system, at)
        mass, force = (
            system.mass_matrix(at.q),
            system.force(at.t, at.q, at.v, jnp.array([0.2, -0.1, 0.4, 0.3])),
        )
        # J v+ + b = -(beta / h) g: of the rates at v, J (v+ - v) is what changes.
        target = -np.asarray(rows.velocity) - np.append(beta / H * rows.position, 0.0)
        matrix = np.block(
            [[np.asarray(mass), -rows.jacobian.T], [np.asarray(rows.jacobian), np.zeros((3, 3))]]
        )
        dv, p = np.split(np.linalg.solve(matrix, np.concatenate([H * force, target])), [4])
        np.testing.assert_allclose(new.v, at.v + dv, rtol=1e-12)
        np.testing.assert_allclose(new.q, at.q + H * (at.v + dv), rtol=1e-13)
        np.testing.assert_allclose(new.t, at.t + H)
        np.testing.assert_allclose(info.lam, p / H, rtol=1e-11)
        np.testing.assert_allclose(info.a, dv / H, rtol=1e-11)
        assert info.status == jd.Status.OK
        assert info.goal_lam == info.efforts == ()

    def test_violations_fall_by_beta(self):
        system, at = everything(), everywhere()
        start = np.max(np.abs(system.constraint(at.t, at.q)))
        for beta in (0.0, 0.5, 1.0):
            _, info = step(VelocityStepping(jnp.full(2, beta)), system, at, jnp.zeros(4), 1e-6)
            # What is left beyond that is of second order in the correction.
            np.testing.assert_allclose(info.violation, (1.0 - beta) * start, rtol=0, atol=start**2)

    def test_order_is_one(self):
        system, at = (
            Pendulum(jnp.asarray(1.3), jnp.ones(()), jnp.asarray(9.81)),
            state([0.6, -0.8], [0.0, 0.0]),
        )
        angle = scipy.integrate.solve_ivp(
            lambda t, x: [x[1], -9.81 * np.sin(x[0])],
            (0.0, 0.2),
            [np.arcsin(0.6), 0.0],
            rtol=1e-10,
            atol=1e-10,
        )
        errors = []
        for steps in (20, 40, 80):
            moved = at
            for _ in range(steps):
                moved, _ = step(VelocityStepping(), system, moved, dt=0.2 / steps)
            errors.append(float(abs(moved.q[0] - np.sin(angle.y[0, -1]))))
        np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 1.0, rtol=0, atol=0.1)

    def test_a_projection_closes_what_is_left_and_keeps_the_efforts(self):
        system, at = (
            Pendulum(jnp.asarray(1.3), jnp.ones(()), jnp.asarray(9.81)),
            state([0.6, -0.8], [1.2, 0.9]),
        )
        stepper = VelocityStepping(groups=(group(FunctionGoal(lambda t, q: (q[0] - 0.5)[None])),))
        new, info = step(jd.Projected(stepper), system, at)
        assert info.violation < 1e-15
        np.testing.assert_allclose(info.efforts[0], step(stepper, system, at)[1].efforts[0], rtol=1e-14)
        np.testing.assert_allclose(new.q @ new.q, 1.0, rtol=1e-15)

    def test_a_soft_row_of_the_system_is_j_a_plus_c_lam(self):
        system, at = masses()
        at = dataclasses.replace(at, v=jnp.array([0.3, -0.2]))
        _, info = step(VelocityStepping(), jd.Soft(system, 0.7), at)
        # From J v+ + C p = 0 with J v = -0.5 and J M^-1 J^T = 5/6.
        np.testing.assert_allclose(info.lam, [0.5 / (5.0 / 6.0 + 0.7) / H], rtol=1e-12)

    @pytest.mark.parametrize(("dtype", "rows"), [(jnp.float32, 3), (jnp.float64, 0)])
    def test_shapes_and_dtypes(self, dtype, rows):
        system, at = cast((everything(), everywhere()) if rows else (oscillator(), oscillating()), dtype)
        new, info = jax.eval_shape(step, VelocityStepping(), system, at)
        assert {x.dtype for x in jax.tree.leaves((new, info))} == {jnp.dtype(dtype), jnp.dtype(jnp.int32)}
        assert (new.q.shape, new.v.shape, info.a.shape, info.lam.shape) == (*(at.v.shape,) * 3, (rows,))

    def test_without_rows_it_is_semi_implicit_euler(self):
        system, at = oscillator(), oscillating()
        found, info = step(VelocityStepping(), system, at)
        known, _, _ = jd.SemiImplicitEuler().step(system, at, (), None, H)
        np.testing.assert_allclose(found.q, known.q, rtol=1e-15)
        np.testing.assert_allclose(found.v, known.v, rtol=1e-15)
        assert info.violation == info.velocity_violation == 0.0

    @pytest.mark.exhaustive
    def test_jit_is_eager(self):
        system, at = masses()
        goal = group(Goal(Coordinates((0,)), 0.3), limit=5.0)
        for x, y in zip(
            jax.tree.leaves(step(VelocityStepping(groups=(goal,)), system, at)),
            jax.tree.leaves(VelocityStepping(groups=(goal,)).step(system, at, (), None, H)[::2]),
            strict=True,
        ):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


class TestGoals:
    """Rows of goals; y = q0 of `everything`, which moves."""

    def rows(self, goal, u=None):
        system, at = everything(), everywhere()
        return at, jax.jit(lambda goal, u: goal_rows(system, (goal,), at, u))(goal, u)

    @pytest.mark.parametrize(
        ("goal", "error", "rate"),
        [
            (Goal(Coordinates((0,)), 0.2), 0.4, 0.5),
            (Goal(Coordinates((0,)), rate=0.2), 0.0, 0.3),
            (Goal(Coordinates((0,)), 0.2, 0.1), 0.4, 0.4),
            # A target that moves is followed at its own rate; t = 0.3.
            (Goal(Coordinates((0,)), jm.Polynomial(jnp.array([0.1, 2.0]))), 0.6 - 0.7, 0.5 - 2.0),
            (Goal(Coordinates((0,)), lambda t: t**2), 0.6 - 0.09, 0.5 - 0.6),
            (FunctionGoal(lambda t, q: (q[0] * t)[None]), 0.18, 0.5 * 0.3 + 0.6),
        ],
    )
    def test_rows(self, goal, error, rate):
        at, rows = self.rows(goal)
        np.testing.assert_allclose(rows.error, [error], rtol=0, atol=1e-15)
        np.testing.assert_allclose(rows.rate, [rate], rtol=0, atol=1e-15)
        np.testing.assert_allclose(
            rows.jacobian, [[float(at.t) if isinstance(goal, FunctionGoal) else 1.0, 0, 0, 0]]
        )

    def test_inputs_are_targets(self):
        _, rows = self.rows(
            Goal(Coordinates((0, 1)), InputTarget((1, 0)), InputTarget(2)), jnp.array([5.0, 6.0, 7.0])
        )
        np.testing.assert_allclose(rows.error, [0.6 - 6.0, 0.8 - 5.0])
        np.testing.assert_allclose(rows.rate, [0.5 - 7.0, -0.3 - 7.0])

    def test_the_step_takes_them_from_the_end_of_u(self):
        system, at = masses()
        goal = group(rate_of(0, InputTarget(0)), coupling=Coupling.TOGETHER)
        new, info = step(VelocityStepping(groups=(goal,)), system, at, jnp.array([1.0, 2.0, 0.5]))
        np.testing.assert_allclose(new.v, [0.5, 0.5], rtol=1e-14)
        # The first two entries are the system's forces: the motor has to bring the rest of the momentum.
        np.testing.assert_allclose(info.efforts[0], [(0.5 * 5.0 - H * 3.0) / H], rtol=1e-13)
        only = Masses(jnp.array([2.0, 3.0]))
        new, _ = step(VelocityStepping(groups=(goal,)), only, at, jnp.array([0.5]))
        np.testing.assert_allclose(new.v, [0.5, 0.5], rtol=1e-14)


class TestGroups:
    """Two masses, 2 kg and 3 kg, tied together at rest: all by hand."""

    def velocities(self, *groups, **kwargs):
        new, info = step(VelocityStepping(groups=groups, **kwargs), *masses())
        return np.asarray(new.v), [np.asarray(x) * H for x in info.efforts]

    def test_together_moves_both(self):
        v, (p,) = self.velocities(group(rate_of(1, 1.0)))
        np.testing.assert_allclose(v, [1.0, 1.0], rtol=1e-14)
        np.testing.assert_allclose(p, [5.0], rtol=1e-14)

    def test_a_solver_without_matrices_gives_the_same(self):
        found, expected = (
            step(VelocityStepping(groups=(group(rate_of(0, 1.0)),), solver=solver), *masses())[0]
            for solver in (jd.ConjugateGradient(), jd.SchurComplement())
        )
        np.testing.assert_allclose(found.v, expected.v, rtol=1e-13)

    def test_free_sees_one_mass(self):
        free = group(rate_of(1, 1.0), coupling=Coupling.FREE)
        v, (p,) = self.velocities(free)
        np.testing.assert_allclose(p, [3.0], rtol=1e-14)
        np.testing.assert_allclose(v, [0.6, 0.6], rtol=1e-14)
        v, _ = self.velocities(free, constraints=ConstraintOrder.FREE)
        np.testing.assert_allclose(v, [0.0, 1.0], rtol=0, atol=1e-15)

    @pytest.mark.long
    def test_order_matters_after_one_another(self):
        first, second = rate_of(1, 1.0), rate_of(1, 0.25)
        for coupling, expected in ((Coupling.FREE, [3.0, 0.75]), (Coupling.AFTER, [3.0, 0.25 * 3.0 - 3.0])):
            v, p = self.velocities(group(first, coupling=coupling), group(second, coupling=coupling))
            np.testing.assert_allclose(np.concatenate(p), expected, rtol=1e-13)
            np.testing.assert_allclose(v, [sum(expected) / 5.0] * 2, rtol=1e-13)
        # After a group that is solved together, wherever that stands in the list.
        v, p = self.velocities(group(second, coupling=Coupling.AFTER), group(first))
        np.testing.assert_allclose(np.concatenate(p), [3.0 * (0.25 - 1.0), 5.0], rtol=1e-13)

    def test_goals_fight_constraints_only_together(self):
        """Both masses are to move apart: least squares among equals, or the constraint has its way."""
        apart = FunctionGoal(lambda t, q: (q[1] - q[0] - 1.0 - 0.1 * t)[None])
        system, at = masses()
        new, _ = step(VelocityStepping(groups=(group(apart),), solver=jd.LeastSquares(1e-9)), system, at)
        np.testing.assert_allclose(new.v[1] - new.v[0], 0.05, rtol=1e-9)
        for kwargs in ({"coupling": Coupling.FREE}, {"coupling": Coupling.AFTER}):
            v, _ = self.velocities(group(apart, **kwargs))
            np.testing.assert_allclose(v, 0.0, rtol=0, atol=1e-15)

    @pytest.mark.long
    def test_rows_that_are_off_do_nothing(self):
        masked = group(rate_of(1, 1.0), rate_of(0, -1.0), active=jnp.array([True, False]))
        v, (p,) = self.velocities(masked)
        np.testing.assert_allclose(v, [1.0, 1.0], rtol=1e-14)
        np.testing.assert_allclose(p, [5.0, 0.0], rtol=1e-14)
        law = jax.tree_util.Partial(lambda t, q: jnp.stack([t > 1.0, q[0] > 1.0]))
        for coupling in Coupling:
            v, (p,) = self.velocities(dataclasses.replace(masked, active=law, coupling=coupling))
            np.testing.assert_allclose(np.concatenate([v, p]), 0.0, rtol=0, atol=1e-15)

    def test_soft_goals_are_springs_and_dampers(self):
        k, d = 40.0, 7.0
        beta, compliance = spring_and_damper(k, d, H)
        system, at = oscillator(), oscillating()
        free = dataclasses.replace(system, stiffness=jnp.zeros(()))
        new, info = step(
            VelocityStepping(groups=(group(Goal(Coordinates((1,)), 0.0), beta=beta, compliance=compliance),)),
            free,
            at,
        )
        # Implicit Euler of m x'' = -k x - d x' with m = 2, x = -0.2, v = 0.4.
        after = (2.0 * 0.4 - H * k * -0.2) / (2.0 + H * d + H**2 * k)
        np.testing.assert_allclose(new.v, [0.1, after], rtol=1e-13)
        np.testing.assert_allclose(info.efforts[0], [-k * (-0.2 + H * after) - d * after], rtol=1e-12)
        for numbers, name in (((-k, d, H), "stiffness"), ((k, -d, H), "damping"), ((k, d, -H), "dt")):
            with pytest.raises(ValueError, match=f"spring_and_damper: {name} must be non-negative, got -"):
                spring_and_damper(*numbers)


@pytest.fixture(scope="module")
def two_links():
    mechanism, at = arm((1.0, 0.7), (0.3, -0.5))
    motors = tuple(JointCoordinate.named(mechanism, name) for name in ("hinge0", "hinge1"))
    return mechanism, at, motors


class TestMotors:
    @pytest.mark.long
    def test_the_multiplier_is_the_torque(self, two_links):
        """What the motors did, given to the motors of the mechanism itself, is the same step."""
        mechanism, at, motors = two_links
        goal = group(Goal(motors[0], rate=0.5), Goal(motors[1], -0.9), beta=0.2)
        new, info = step(VelocityStepping(groups=(goal,)), mechanism, at)
        again, _ = step(VelocityStepping(), mechanism, at, info.efforts[0])
        np.testing.assert_allclose(again.v, new.v, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            [new.v[2], new.v[5] - new.v[2]], [0.5, 0.2 / H * (-0.9 - -0.8)], rtol=1e-11
        )

    def test_limits_saturate_and_the_hinges_hold(self, two_links):
        mechanism, at, motors = two_links
        goal = group(Goal(motors[0], rate=5.0), Goal(motors[1], rate=-5.0), limit=jnp.array([2.0, 3.0]))
        new, info = step(VelocityStepping(groups=(goal,)), mechanism, at)
        assert np.all(np.abs(info.goal_lam[0]) > 10.0)
        np.testing.assert_allclose(info.efforts[0], np.sign(info.goal_lam[0]) * [2.0, 3.0], rtol=1e-15)
        again, alone = step(VelocityStepping(), mechanism, at, info.efforts[0])
        np.testing.assert_allclose(new.v, again.v, rtol=0, atol=1e-13)
        np.testing.assert_allclose(info.lam, alone.lam, rtol=1e-10)
        rates = mechanism.constraint_jacobian(at.t, at.q, at.v) @ new.v
        np.testing.assert_allclose(rates, 0.0, rtol=0, atol=1e-14)
        wide, _ = step(
            VelocityStepping(groups=(dataclasses.replace(goal, limit=jnp.array([1e9, 1e9])),)), mechanism, at
        )
        np.testing.assert_allclose([wide.v[2], wide.v[5] - wide.v[2]], [5.0, -5.0], rtol=1e-9)

    @pytest.mark.long
    def test_an_end_effector_moves_by_motors_alone(self, two_links):
        """Solved with the hinges and exchanged for the torques of both joints, a goal of the tip is reached
        to round-off.
        """
        mechanism, at, motors = two_links
        tip = BodyPoint.named(mechanism, "rod1", (0.35, 0.0))
        place = tip(at.q) + jnp.array([0.01, -0.02])
        goal = group(Goal(tip, place), beta=0.5, motors=VirtualWork(motors), limit=jnp.full(2, jnp.inf))
        new, info = step(VelocityStepping(groups=(goal,)), mechanism, at)
        jacobian = jax.jacfwd(tip)(at.q)
        np.testing.assert_allclose(jacobian @ new.v, 0.5 / H * np.array([0.01, -0.02]), rtol=1e-10)
        again, _ = step(VelocityStepping(), mechanism, at, info.efforts[0])
        np.testing.assert_allclose(again.v, new.v, rtol=0, atol=1e-12)
        limited, info = step(
            VelocityStepping(groups=(dataclasses.replace(goal, limit=jnp.ones(2)),)), mechanism, at
        )
        assert np.max(np.abs(info.efforts[0])) == 1.0
        assert np.max(np.abs(mechanism.constraint_jacobian(at.t, at.q, at.v) @ limited.v)) < 1e-14

    @pytest.mark.exhaustive
    def test_dependent_rows(self, two_links):
        """A second pin beside the first: a solver for dependent rows moves as before."""
        mechanism, at, motors = two_links
        pins = mechanism.joints["revolute"]
        double = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), pins)
        double = dataclasses.replace(
            double, name=(*pins.names, "again"), a=(*pins.a, pins.a[0]), b=(*pins.b, pins.b[0])
        )
        redundant = dataclasses.replace(mechanism, joints={"revolute": double})
        tip = Goal(BodyPoint.named(mechanism, "rod1", (0.35, 0.0)), rate=jnp.array([0.3, 0.1]))
        goal = group(tip, beta=0.5, motors=VirtualWork(motors), limit=jnp.full(2, 50.0))
        single, _ = step(VelocityStepping(groups=(goal,)), mechanism, at)
        found, _ = step(VelocityStepping(groups=(goal,), solver=jd.NullSpace()), redundant, at)
        np.testing.assert_allclose(found.v, single.v, rtol=1e-9, atol=1e-11)


@pytest.fixture(scope="module")
def reaching():
    """A rollout of 6 steps, with a motor that is limited in the first of them, as a function of gains, limit
    and target.
    """
    system, at = masses()
    count = []

    def final(x):
        count.append(None)
        pushing = VirtualWork((Coordinates((0,)),))
        goals = (
            group(Goal(Coordinates((1,)), 1.0 + x[0]), beta=x[1], motors=pushing, limit=x[2]),
            group(
                Goal(Coordinates((0,)), -0.1),
                beta=0.1,
                coupling=Coupling.AFTER,
                compliance=x[3],
                active=x[4] > 0.0,
            ),
        )
        # The constraint begins open, for its beta to be seen.
        off = jd.State(at.t, at.q + jnp.array([0.0, 1e-3]), at.v)
        trajectory = jd.rollout(
            system, VelocityStepping(x[5], goals), off, dt=H, steps=6, start_tolerance=jnp.inf
        )
        return trajectory.state.q[-1, 0] + 1e-3 * trajectory.info.efforts[0][-1, 0], trajectory

    return jax.jit(final), final, count, jnp.array([0.05, 0.5, 800.0, 0.5, 1.0, 0.9])


class TestTransformations:
    @pytest.mark.long
    def test_derivatives_and_worlds(self, reaching):
        compiled, final, _, x = reaching
        value = lambda x: final(x)[0]  # noqa: E731
        forward, reverse = jax.jit(lambda x: (jax.jacfwd(value)(x), jax.grad(value)(x)))(x)
        steps = jnp.concatenate([jnp.eye(6), -jnp.eye(6)]) * 1e-6
        moved = jax.jit(jax.vmap(value))(x + steps)
        np.testing.assert_allclose(moved[2], compiled(x + steps[2])[0], rtol=1e-13)
        np.testing.assert_allclose(reverse, forward, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(forward, (moved[:6] - moved[6:]) / 2e-6, rtol=1e-5, atol=1e-7)
        assert np.count_nonzero(forward) == 5  # all but the switch

    @pytest.mark.long
    def test_values_change_without_compiling_anew(self, reaching):
        compiled, _, count, x = reaching
        on = compiled(x)[1]
        before = len(count)
        off = compiled(x.at[4].set(-1.0))[1]
        assert len(count) == before
        np.testing.assert_array_equal(off.info.efforts[1], 0.0)
        assert np.all(on.info.efforts[1][1:] != 0.0)
        assert np.max(np.abs(on.info.efforts[0])) == 800.0
        assert np.min(np.abs(on.info.efforts[0])) < 800.0
        # The constraint is linear: beta removes that part of it, whatever the motors do.
        np.testing.assert_allclose(on.info.violation, 1e-3 * 0.1 ** np.arange(1, 7), rtol=1e-6, atol=1e-15)


class TestMistakes:
    @all_cases(
        ("change", "message"),
        [
            ({"goals": ()}, "goals must hold at least one goal"),
            ({"goals": (Goal(Coordinates((0,))),)}, "Goal: give a target, a rate, or both"),
            (
                {"beta": jnp.ones(3)},
                r"GoalGroup\.beta must be a number or have one entry per row, shape \(1,\), got \(3,\)",
            ),
            (
                {"limit": jnp.ones(2)},
                r"GoalGroup\.limit must be a number or have one entry per row, shape \(1,\), got \(2,\)",
            ),
            ({"active": jnp.ones(2)}, r"GoalGroup\.active must be a number or have one entry per row"),
            (
                {"compliance": jnp.ones(2)},
                r"GoalGroup\.compliance must be a number or have one entry per row",
            ),
            (
                {"goals": (Goal(Coordinates((0,)), jnp.ones(2)),)},
                r"Goal\.target must be a number or have one entry per row, shape \(1,\)",
            ),
            (
                {"goals": (Goal(lambda q: q[0], 0.0),)},
                r"Goal\.output\(q\) must return a vector, got shape \(\)",
            ),
            (
                {"goals": (rate_of(0, InputTarget(0)),)},
                r"Goal\.rate is read from the inputs, but there is no input",
            ),
        ],
    )
    def test_of_groups(self, change, message):
        groups = (GoalGroup(**{"goals": (rate_of(0, 1.0),), **change}),)
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(step, VelocityStepping(groups=groups), *masses())

    def test_of_types(self):
        groups = (group(Goal(lambda q: [q[0]], 0.0)),)
        with pytest.raises(TypeError, match=r"Goal\.output\(q\) must return an array, got list"):
            jax.eval_shape(step, VelocityStepping(groups=groups), *masses())

    def test_of_the_stepper(self):
        with pytest.raises(
            ValueError,
            match=r"VelocityStepping\.beta must be a number or have one entry per position-level row",
        ):
            jax.eval_shape(step, VelocityStepping(jnp.ones(2)), *masses())
        groups = (group(rate_of(0, InputTarget(3))),)
        with pytest.raises(
            ValueError, match=r"vector whose last 4 entries are the targets of goals, got shape \(2,\)"
        ):
            jax.eval_shape(step, VelocityStepping(groups=groups), *masses(), jnp.ones(2))
