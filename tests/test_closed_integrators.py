"""Methods that keep the constraints by themselves: iterations, derivatives, energy, rows that are off, single
precision, mistakes.

Shapes, reports and transformations are in `test_integrators`, orders in `test_accuracy_orders_implicit`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from all_cases import all_cases
from catalogue import METHODS, POSITIONS, distinct, in_ci, quick
from problems import Pendulum, cast, state
from small_systems import consistent, everything, wheels, wheels_states

import jaxdae as jd
from jaxdae.integrators import radau
from jaxdae.systems.linearization import linearize

# Where methods differ in nothing but their price: one that iterates with a solver, one with a dense matrix,
# and one that does not.
NAMES = [*distinct(lambda method: method.closed), "rk4"]
FEW = ("generalized_alpha", "radau_iia")
few_methods = pytest.mark.parametrize(
    "name",
    [
        row
        if row.values[0] in (*FEW, "rattle", "rk4")
        else pytest.param(*row.values, marks=pytest.mark.exhaustive)
        for row in quick(NAMES, "rattle", "rk4")
    ],
)


def pendulum(mass=1.3, length=1.0):
    # From rest at an angle of 0.64 rad: it swings.
    return Pendulum(*(jnp.asarray(x, float) for x in (mass, length, 9.81))), state([0.6, -0.8])


@functools.partial(jax.jit, static_argnames="steps")
def rolled(system, method, start, dt, steps):
    return jd.rollout(system, method, start, dt=dt, steps=steps)


IMPLICIT = {
    kind.__name__: kind
    for kind in (
        jd.DiscreteEulerLagrange,
        jd.BackwardEuler,
        jd.ImplicitMidpoint,
        jd.GeneralizedAlpha,
        jd.RadauIIA,
    )
}


def dense(method, **options):
    return method(newton=dataclasses.replace(method().newton, **options))


def by_saddle_point(method, **options):
    return method(newton=jd.SaddlePointNewton(**options))


MAKERS = {
    "Rattle": jd.Rattle,
    **{name: functools.partial(dense, kind) for name, kind in IMPLICIT.items()},
    **{
        f"{kind.__name__} by saddle point": functools.partial(by_saddle_point, kind)
        for kind in (jd.GeneralizedAlpha, jd.RadauIIA)
    },
}


class TestIterations:
    """Too few iterations are a status, and enough of them a derivative of the exact step: nothing in between."""

    @pytest.mark.long
    @all_cases("make", MAKERS.values(), ids=MAKERS)
    def test_a_world_with_too_few_stays_where_it_is(self, make):
        system, start = pendulum()
        end = rolled(system, make(iterations=1), start, 0.03, 5)
        assert end.info.status[-1] == jd.Status.NOT_CONVERGED
        np.testing.assert_array_equal(end.state.q[-1], start.q)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("Rattle", marks=pytest.mark.exhaustive),
            pytest.param("ImplicitMidpoint", marks=pytest.mark.exhaustive),
            pytest.param("GeneralizedAlpha by saddle point", marks=pytest.mark.exhaustive),
            "RadauIIA",
        ],
    )
    def test_too_few_and_enough(self, name):
        (system, start), make = pendulum(), MAKERS[name]

        def final(gravity, iterations):
            moved = jd.tree.set_leaf(system, "gravity", gravity)
            end = jd.rollout(moved, make(iterations=iterations), start, dt=0.03, steps=5, save_every=5)
            return jnp.sum(jnp.sin(end.state.q) + end.state.v), end

        @functools.partial(jax.jit, static_argnums=1)
        def slope(gravity, iterations):
            # Forward mode, which is less to compile; that reverse mode gives the same is tested below.
            return jax.jvp(
                functools.partial(final, iterations=iterations), (gravity,), (jnp.ones(()),), has_aux=True
            )[1:]

        one, many = (slope(system.gravity, n) for n in (1, 12))
        # A world that failed in its first step has moved nowhere: a derivative of zero would pass for that of
        # the motion.
        assert np.isnan(one[0])
        assert many[1].info.status[-1] == jd.Status.OK
        enough = slope(system.gravity, make().iterations if make is jd.Rattle else make().newton.iterations)
        assert enough[1].info.status[-1] == jd.Status.OK
        # What is left after the last correction is below 4e-10 in the state, and multiplied by little in its
        # derivative.
        np.testing.assert_allclose(enough[0], many[0], rtol=1e-8)

    def test_the_tolerance_is_a_leaf(self):
        system, start = pendulum()
        for tolerance, status in ((1e-1, jd.Status.OK), (1e-16, jd.Status.NOT_CONVERGED)):
            method = jd.Rattle(iterations=2, tolerance=jnp.asarray(tolerance))
            assert rolled(system, method, start, 0.05, 1).info.status[-1] == status

    @pytest.mark.long
    def test_a_second_factorization_converges_in_fewer_corrections(self):
        system, start = everything(), consistent()
        sizes = []
        for factorizations in (1, 2):
            loose = dense(
                jd.BackwardEuler, iterations=2, factorizations=factorizations, tolerance=jnp.asarray(1e-9)
            )
            sizes.append(int(rolled(system, loose, start, 0.05, 1).info.status[-1]))
        assert sizes == [jd.Status.NOT_CONVERGED, jd.Status.OK]


class TestDerivatives:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            *("half_explicit4", "rattle", "generalized_alpha", "radau_iia"),
            *(
                pytest.param(name, marks=pytest.mark.exhaustive)
                for name in (
                    *("discrete_euler_lagrange", "discrete_euler_lagrange_trapezoidal"),
                    *("implicit_midpoint", "suzuki4"),
                )
            ),
        ],
    )
    def test_forward_reverse_and_central_differences_over_300_steps(self, name):
        """Of a swing of 1.5 s, with respect to gravity and the length, with which the start moves."""

        def final(parameters):
            gravity, length = parameters
            system = Pendulum(jnp.asarray(1.3, float), length, 9.81 * gravity)
            start = jd.State(jnp.zeros(()), length * jnp.array([0.6, -0.8]), jnp.zeros(2))
            end = jd.rollout(system, METHODS[name].integrator, start, dt=0.005, steps=300, save_every=300)
            return jnp.sum(jnp.sin(end.state.q)) + jnp.sum(end.state.v**2)

        along, at = jnp.array([0.6, 0.8]), jnp.ones(2)
        reverse = jax.jit(jax.grad(final))(at) @ along
        # Forward mode has the value as well: one program less to compile.
        both = jax.jit(lambda x, dx: jax.jvp(final, (x,), (dx,)))
        np.testing.assert_allclose(both(at, along)[1], reverse, rtol=1e-9)

        def central(h):
            return (both(at + h * along, along)[0] - both(at - h * along, along)[0]) / (2.0 * h)

        # Richardson's extrapolation: the error is of order h^4 = 1e-12 and of round-off over h.
        h = 1e-3
        np.testing.assert_allclose(reverse, (4.0 * central(h / 2) - central(h)) / 3.0, rtol=1e-7)

    @pytest.mark.long
    def test_second_derivatives(self):
        def final(gravity, method):
            system, start = pendulum()
            end = jd.rollout(
                jd.tree.set_leaf(system, "gravity", gravity), method, start, dt=0.05, steps=2, save_every=2
            )
            return jnp.sum(jnp.sin(end.state.q)) + jnp.sum(end.state.v**2)

        both = jax.jit(lambda x, method: jax.jvp(lambda y: jax.grad(final)(y, method), (x,), (jnp.ones(()),)))
        at, h = jnp.asarray(9.81), 1e-3
        for method in (jd.Rattle(), jd.BackwardEuler()):
            second = both(at, method)[1]
            expected = (both(at + h, method)[0] - both(at - h, method)[0]) / (2.0 * h)
            np.testing.assert_allclose(second, expected, rtol=1e-6)

    @pytest.mark.long
    def test_of_the_damping_of_fast_modes(self):
        system, start = pendulum()

        def final(rho):
            return jd.rollout(
                system, jd.GeneralizedAlpha(rho), start, dt=0.02, steps=20, save_every=20
            ).state.q[-1, 0]

        h, both = 1e-5, jax.jit(jax.value_and_grad(final))
        expected = (both(jnp.asarray(0.6 + h))[0] - both(jnp.asarray(0.6 - h))[0]) / (2.0 * h)
        np.testing.assert_allclose(both(jnp.asarray(0.6))[1], expected, rtol=1e-6)


class TestEnergy:
    @pytest.mark.long
    def test_symplectic_methods_do_not_drift(self):
        """Over 200 swings the energy error stays what it is in the first one; that of RK4 at this step does
        not.
        """
        system, start = pendulum()
        steps, dt = 20_000, 0.02

        def error(method):
            end = jd.rollout(system, method, start, dt=dt, steps=steps, save_every=10)
            energies = jax.vmap(lambda x: jd.energy(system, x))(end.state)
            return np.abs(np.asarray(energies - jd.energy(system, start))), end.info

        for method in (jd.Rattle(), jd.Composition.suzuki4(jd.Rattle())):
            energy, info = error(method)
            assert np.max(info.status) == jd.Status.OK
            assert np.max(energy[-100:]) <= 1.01 * np.max(energy[:100])
            assert np.max(info.violation) <= 1e-14
            assert np.max(info.velocity_violation) <= 1e-13
        energy, _ = error(jd.Projected(jd.RungeKutta.rk4()))
        assert np.max(energy[-100:]) > 10.0 * np.max(energy[:100])

    @pytest.mark.long
    def test_numerical_damping(self):
        """A spring of 1e6 rad/s in a step of 0.01 s: rho_inf = 1 and the midpoint rule keep its energy, the
        others remove it.
        """
        start = state([0.6, -0.8, 1e-6])

        @jd.tree.pytree
        class Stiff(Pendulum):
            def mass_matrix(self, q):
                return jnp.eye(3)

            def force(self, t, q, v, u):
                return jnp.stack([0.0 * q[0], -9.81 + 0.0 * q[1], -1e12 * q[2]])

            def constraint(self, t, q):
                return super().constraint(t, q[:2])

        system = Stiff(*(jnp.asarray(x, float) for x in (1.0, 1.0, 9.81)))
        left = {}
        for name, method in {
            "rho 1": jd.GeneralizedAlpha(jnp.asarray(1.0)),
            "rho 0.5": jd.GeneralizedAlpha(jnp.asarray(0.5)),
            "midpoint": jd.ImplicitMidpoint(),
            "backward": jd.BackwardEuler(),
            "radau": jd.RadauIIA(),
        }.items():
            end = rolled(system, method, start, 0.01, 50)
            assert end.info.status[-1] == jd.Status.OK
            left[name] = np.abs(float(end.state.q[-1, 2])) / 1e-6
        assert left["rho 1"] > 0.9
        assert left["midpoint"] > 0.9
        assert max(left["rho 0.5"], left["backward"], left["radau"]) < 1e-6


class TestMasked:
    @pytest.mark.long
    @few_methods
    def test_rows_that_are_off_do_nothing(self, name):
        """A pendulum whose rod is off falls freely: -g t^2 / 2, exactly for methods of order two."""
        system, start = pendulum()
        end = rolled(jd.Masked(system, jnp.array([False])), METHODS[name].integrator, start, 0.01, 100)
        # After ten steps; with as many as in the tests of precision, programs are shared.
        reached, info = jax.tree.map(lambda x: x[:10], (end.state, end.info))
        assert info.status[-1] == jd.Status.OK
        assert np.max(np.abs(info.lam)) == 0.0
        fallen = -0.8 - 0.5 * 9.81 * 0.1**2
        expected = fallen - 0.5 * 9.81 * 0.1 * 0.01 if name == "backward_euler" else fallen
        np.testing.assert_allclose(reached.q[-1], [0.6, expected], rtol=1e-13)

    @few_methods
    def test_rows_that_are_on_are_as_without(self, name):
        system, start = pendulum()
        masked, plain = (
            rolled(s, METHODS[name].integrator, start, 0.01, 100).state.q[:10]
            for s in (jd.Masked(system, jnp.array([True])), system)
        )
        np.testing.assert_allclose(masked, plain, rtol=1e-13, atol=1e-14)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            *("rattle", "radau_iia", "half_explicit4"),
            *(
                pytest.param(name, marks=pytest.mark.exhaustive)
                for name in ("implicit_midpoint", "generalized_alpha")
            ),
        ],
    )
    def test_soft_rows_are_the_index_one_equation(self, name):
        """J a + gamma + C lam = 0 without feedback, against an accurate explicit run of the same; of order
        one in variational methods.
        """
        system, start = pendulum()
        soft = jd.Soft(system, jnp.asarray(0.3))
        exact = rolled(soft, jd.RungeKutta.dormand_prince5(), start, 0.002, 100).state
        error = rolled(soft, METHODS[name].integrator, start, 0.002, 100).state.q[-1] - exact.q[-1]
        assert np.max(np.abs(error)) <= (5e-5 if name == "rattle" else 1e-5)


class TestPrecision:
    @few_methods
    def test_single_precision(self, name):
        """The error against double precision stays a small multiple of the rounding of 100 steps."""
        system, start = pendulum()
        double = rolled(system, METHODS[name].integrator, start, 0.01, 100)
        single = rolled(
            *cast((system, METHODS[name].integrator, start), jnp.float32), jnp.asarray(0.01, jnp.float32), 100
        )
        assert single.state.q.dtype == jnp.float32
        assert single.info.status[-1] == jd.Status.OK
        np.testing.assert_allclose(single.state.q[-1], double.state.q[-1], rtol=0.0, atol=2e-5)
        if POSITIONS in METHODS[name].closed:
            assert np.max(single.info.violation) <= 1e-6

    @pytest.mark.parametrize(
        "name", ["generalized_alpha", pytest.param("radau_iia", marks=pytest.mark.exhaustive)]
    )
    @pytest.mark.long
    def test_single_precision_in_meters(self, name):
        """Rounding of positions of some meters, over a small step, is not taken for an iteration that fails."""
        mechanism, start = problems.CrankRocker().build()
        dt = jnp.asarray(0.0025, jnp.float32)
        single = rolled(*cast((mechanism, METHODS[name].integrator, start), jnp.float32), dt, 40)
        assert single.info.status[-1] == jd.Status.OK
        double = rolled(mechanism, METHODS[name].integrator, start, dt.astype(float), 40)
        np.testing.assert_allclose(single.state.q[-1], double.state.q[-1], rtol=0.0, atol=2e-5)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            "radau_iia",
            *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("rattle", "generalized_alpha")),
        ],
    )
    def test_batches_are_the_worlds_one_by_one(self, name):
        system, _ = pendulum()
        angles = np.linspace(0.1, 2.0, 5)
        starts = jd.State(
            jnp.zeros(5), jnp.asarray(np.stack([np.sin(angles), -np.cos(angles)], axis=1)), jnp.zeros((5, 2))
        )
        batch = jd.batch_rollout(system, METHODS[name].integrator, starts, dt=0.02, steps=20, save_every=20)
        for k in (0, 4):
            one = rolled(
                system, METHODS[name].integrator, jax.tree.map(lambda x, k=k: x[k], starts), 0.02, 20
            )
            np.testing.assert_allclose(batch.state.q[k, -1], one.state.q[-1], rtol=1e-12, atol=1e-12)

    @pytest.mark.long
    def test_one_world_that_fails_leaves_the_others_alone(self):
        system, start = pendulum()
        starts = jax.tree.map(lambda x: jnp.stack([x, x, x]), start)
        starts = jd.State(starts.t, starts.q.at[1].set(jnp.nan), starts.v)
        batch = jd.batch_rollout(system, jd.RadauIIA(), starts, dt=0.02, steps=5, save_every=5)
        assert list(batch.info.status[:, -1]) == [jd.Status.OK, jd.Status.NONFINITE, jd.Status.OK]
        np.testing.assert_array_equal(batch.state.q[0], batch.state.q[2])


@pytest.mark.long
def test_derivatives_of_radau_keep_to_the_constraints():
    """In long steps, too, in which the multipliers that close the positions are not small."""
    system, lengths = problems.double_pendulum(), jnp.array([1.0, 0.7])
    system = dataclasses.replace(system, length=lengths)

    def left(angle):
        start = problems.double_pendulum_state(lengths, angle, jnp.array([2.0, -3.0]))
        end = rolled(system, jd.RadauIIA(newton=jd.DenseNewton(iterations=12)), start, 0.04, 1)
        return system.constraint(end.state.t[-1], end.state.q[-1]), end.info.status

    changes, status = jax.jit(jax.jacfwd(left, has_aux=True))(jnp.array([0.4, 0.9]))
    assert status == jd.Status.OK
    np.testing.assert_allclose(changes, 0.0, rtol=0.0, atol=1e-13)


@jd.tree.pytree
class Doubled(Pendulum):
    def constraint(self, t, q):
        row = super().constraint(t, q)
        return jnp.concatenate([row, 2.0 * row])


class TestRedundantRows:
    @pytest.mark.long
    def test_rattle_takes_a_solver_that_allows_them(self):
        system, start = pendulum()
        doubled = Doubled(system.mass, system.length, system.gravity)
        plain = rolled(system, jd.Rattle(), start, 0.01, 50)
        twice = rolled(doubled, jd.Rattle(jd.LeastSquares()), start, 0.01, 50)
        assert twice.info.status[-1] == jd.Status.OK
        np.testing.assert_allclose(twice.state.q, plain.state.q, rtol=0.0, atol=1e-11)


class TestSaddlePointNewton:
    """Corrections by the solver lead to the root that the dense matrix finds."""

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            "RadauIIA",
            *(
                pytest.param(name, marks=pytest.mark.exhaustive)
                for name in ("GeneralizedAlpha", "BackwardEuler")
            ),
        ],
    )
    def test_of_all_kinds_of_rows(self, name):
        """Position-level and velocity-level rows, one of which gives way and one is off."""
        system, start = everything(), consistent()
        rows = int(system.constraint_jacobian(start.t, start.q, start.v).shape[0])
        softness = jnp.where(jnp.arange(rows) == 1, 1e-2, 0.0)
        for problem in (system, jd.Masked(jd.Soft(system, softness), jnp.arange(rows) > 0)):
            ends = [
                rolled(problem, make(IMPLICIT[name], iterations=20), start, 0.01, 1)
                for make in (dense, by_saddle_point)
            ]
            assert [int(x.info.status[-1]) for x in ends] == [jd.Status.OK, jd.Status.OK]
            for x, y in zip(*(jax.tree.leaves(x.state) for x in ends), strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)

    @pytest.mark.long
    def test_takes_a_solver_that_allows_redundant_rows(self):
        system, start = pendulum()
        plain, twice = (
            rolled(
                kind(system.mass, system.length, system.gravity),
                jd.RadauIIA(solver, jd.SaddlePointNewton()),
                start,
                0.01,
                20,
            )
            for kind, solver in ((Pendulum, jd.SchurComplement()), (Doubled, jd.LeastSquares()))
        )
        assert twice.info.status[-1] == jd.Status.OK
        np.testing.assert_allclose(twice.state.q, plain.state.q, rtol=0.0, atol=1e-11)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name", ["RadauIIA", pytest.param("GeneralizedAlpha", marks=pytest.mark.exhaustive)]
    )
    def test_derivatives(self, name):
        """Forward, reverse and central differences, with respect to gravity."""

        def final(gravity):
            system, start = pendulum()
            moved = jd.tree.set_leaf(system, "gravity", gravity)
            end = jd.rollout(
                moved, by_saddle_point(IMPLICIT[name], iterations=10), start, dt=0.02, steps=10, save_every=10
            )
            return jnp.sum(jnp.sin(end.state.q)) + jnp.sum(end.state.v**2)

        both = jax.jit(lambda x: jax.jvp(final, (x,), (jnp.ones(()),)))
        at, h = jnp.asarray(9.81), 1e-3
        np.testing.assert_allclose(jax.jit(jax.grad(final))(at), both(at)[1], rtol=1e-9)
        np.testing.assert_allclose(both(at)[1], (both(at + h)[0] - both(at - h)[0]) / (2.0 * h), rtol=1e-6)

    @pytest.mark.exhaustive
    def test_transposed_corrections_of_radau(self):
        """<C^T c, b> = <c, C b>, with rows at both levels, one soft."""
        system, start = everything(), consistent()
        rows = int(system.constraint_jacobian(start.t, start.q, start.v).shape[0])
        soft = jd.Soft(system, jnp.where(jnp.arange(rows) == 1, 1e-2, 0.0))
        positions = system.constraint(start.t, start.q).shape[0]
        corrections = radau._corrections(linearize(soft, start), positions)
        factors = corrections.factors()
        shapes = ((3, start.v.size), (3, rows), (3, positions))
        b, c = (
            radau.StageUnknowns(*(jax.random.normal(jax.random.key(seed), shape) for shape in shapes))
            for seed in (0, 1)
        )

        def dot(x, y):
            return sum(jnp.vdot(i, j) for i, j in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))

        np.testing.assert_allclose(
            dot(corrections.backward(c, factors), b), dot(c, corrections.forward(b, factors)), rtol=1e-11
        )


class TestMistakes:
    @pytest.mark.parametrize(
        "name",
        in_ci(MAKERS, "Rattle", "BackwardEuler", "RadauIIA by saddle point"),
    )
    def test_counts(self, name):
        make = MAKERS[name]
        system, start = pendulum()
        with pytest.raises(ValueError, match=r"iterations must be at least 1, got 0"):
            jd.rollout(system, make(iterations=0), start, dt=0.01, steps=1)
        # Not in a rollout: a program that was compiled for 1 is taken for True.
        method = make(iterations=True)
        with pytest.raises(TypeError, match=r"iterations must be an integer, got True"):
            method.step(system, start, method.init(system, start), None, 0.01)
        if hasattr(method, "newton") and isinstance(method.newton, jd.DenseNewton):
            with pytest.raises(ValueError, match=r"factorizations must be at least 1, got 0"):
                jd.rollout(system, make(factorizations=0), start, dt=0.01, steps=1)

    def test_coefficients_of_compositions(self):
        system, start = pendulum()
        with pytest.raises(ValueError, match=r"must sum to 1, got 0.75"):
            jd.Composition(jd.Rattle(), (0.25, 0.5)).init(system, start)
        with pytest.raises(ValueError, match=r"must be symmetric, got \(0.25, 0.75\)"):
            jd.Composition(jd.Rattle(), (0.25, 0.75)).init(system, start)

    def test_tableaus_of_half_explicit_methods(self):
        system, start = pendulum()
        tableau = jd.Tableau(a=((), (0.5,), (1.0, 0.0)), b=(0.5, 0.0, 0.5), c=(0.0, 0.5, 1.0))
        with pytest.raises(
            ValueError, match=r"must not be zero; got \[0.5, 0.0, 0.5\]; HEM4 is a suitable tableau"
        ):
            jd.HalfExplicitRungeKutta(tableau).init(system, start)

    def test_a_retraction_without_its_inverse(self):
        _, circles = wheels()
        _, start = wheels_states((0.4, -0.9), (1.3, 0.6), 0.7)

        @jd.tree.pytree
        class Forgetful(type(circles)):
            def difference(self, q0, q1):
                return q1 - q0

        system = Forgetful(inertia=circles.inertia, radius=circles.radius, stiffness=circles.stiffness)
        with pytest.raises(
            ValueError,
            match=r"must return a tangent step of shape \(2,\), got \(4,\).*must also define its inverse",
        ):
            jd.rollout(system, jd.RungeKutta.rk4(), start, dt=0.01, steps=1)

    def test_a_retraction_without_an_inverse_is_told_where_one_is_needed(self):
        _, circles = wheels()

        @jd.tree.pytree
        class Without(jd.System):
            def mass_matrix(self, q):
                return circles.mass_matrix(q)

            def force(self, t, q, v, u):
                return circles.force(t, q, v, u)

            def retract(self, q, xi):
                return circles.retract(q, xi)

        _, start = wheels_states((0.4, -0.9), (1.3, 0.6), 0.7)
        with pytest.raises(
            TypeError, match=r"Without defines retract\(q, xi\) but not its inverse, difference"
        ):
            jd.rollout(Without(), jd.textbook.ProjectedStep(jd.RungeKutta.rk4()), start, dt=0.01, steps=1)


class TestStagesInALoop:
    """One stage that is run through in a loop is a shorter program of the same method."""

    @pytest.mark.long
    @pytest.mark.parametrize(
        "curved",
        [
            pytest.param(False, id="flat"),
            pytest.param(True, id="on a curved space", marks=pytest.mark.exhaustive),
        ],
    )
    def test_steps_and_gradients_are_those_of_stages_by_themselves(self, curved):
        if curved:  # Nothing is known at the start of a step: every stage is in the loop.
            _, system = wheels()
            _, start = wheels_states((0.4, -0.9), (1.3, 0.6), 0.7)
            start = jd.initialize(system, start.q, start.v, t=start.t)[0]
        else:  # The projection keeps a linearization for the first stage, and projects by that of the last.
            system, start = everything(), consistent()
        position = jd.PositionProjection(origin=jd.Origin.STAGE)

        def method(unroll):
            if curved:
                return jd.RungeKutta.rk4(unroll=unroll)
            return jd.Projected(
                jd.RungeKutta.rk4(unroll=unroll), jd.Projection(position, jd.VelocityProjection())
            )

        def law(t, state):
            return jnp.sin(t) * state.v

        def end(v, unroll):
            at = dataclasses.replace(start, v=v)
            controls = None if curved else law
            found = jd.rollout(
                system, method(unroll), at, controls, dt=0.01, steps=20, start_tolerance=jnp.inf
            )
            return jnp.sum(found.state.q[-1] ** 2 + jnp.sum(found.state.v[-1] ** 2)), found

        both = jax.jit(jax.value_and_grad(end, has_aux=True), static_argnums=1)
        alone, looped = (both(start.v, unroll) for unroll in (True, False))
        np.testing.assert_array_equal(alone[0][1].info.status, 0)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14), alone, looped)

    @pytest.mark.long
    def test_it_is_yes_or_no(self):
        with pytest.raises(TypeError, match="unroll"):
            jd.RungeKutta.rk4(unroll=2)
