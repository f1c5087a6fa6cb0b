"""The notes' three routes of enforcing constraints, on systems with forces: formulas, orders, drift,
derivatives, messages.

Of first-order systems they are tested in `test_kinematic`.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from catalogue import SYSTEMS
from problems import cast
from small_systems import central, consistent, everything, wheels, wheels_states, without_typechecker

import jaxdae as jd
from jaxdae.systems.system import velocity_residual

EUCLIDEAN = jd.Metric.EUCLIDEAN
ROUTES = {
    "sequential": jd.textbook.Sequential,
    "projected_step": jd.textbook.ProjectedStep,
    "projected_step_in_the_middle": lambda integrator: jd.textbook.ProjectedStep(integrator, 0.5),
    "projected_derivative": jd.textbook.ProjectedDerivative,
}
DT = 0.01


def both(integrator):
    """Returns the two routes that are not `Projected` by another name in one: what holds for every method is
    tested with this.
    """
    return jd.textbook.ProjectedStep(jd.textbook.ProjectedDerivative(integrator), 0.5)


ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
each_route = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
each_metric = pytest.mark.parametrize("metric", jd.Metric)


@jax.jit
def step(integrator, system, at, dt=DT):
    return integrator.step(system, at, integrator.init(system, at), None, dt)


def leaves(tree):
    return zip(jd.tree.leaf_paths(tree), jax.tree.leaves(tree), strict=True)


def weighted(system, q, metric):
    return np.asarray(system.mass_matrix(q)) if metric is jd.Metric.MASS else np.eye(q.shape[0])


def correction(jacobian, weight, excess):
    """Returns -J^+ excess, J^+ = W^-1 J^T (J W^-1 J^T)^-1, by plain NumPy."""
    spread = np.linalg.solve(weight, jacobian.T)
    return -spread @ np.linalg.solve(jacobian @ spread, excess)


def at_rest_rates(system, t, q):
    """Returns b = [dg/dt; w(t, q, 0)]: how fast the rows move by themselves."""
    return np.asarray(velocity_residual(system, jd.State(t, q, jnp.zeros_like(q))))


class TestFormulas:
    """One step on a system with every kind of term, rheonomic and nonholonomic rows and a full mass matrix,
    against NumPy.
    """

    @pytest.mark.long
    def test_sequential_is_a_step_and_a_root(self):
        system, at = everything(), consistent()
        new, _, info = step(jd.textbook.Sequential(jd.RungeKutta.heun()), system, at)
        estimate, _, plain = step(jd.RungeKutta.heun(), system, at)
        root = jax.jit(jd.PositionProjection(iterations=8).project)(system, estimate)
        np.testing.assert_allclose(new.q, root.q, **ROUND_OFF)
        np.testing.assert_array_equal(new.v, estimate.v)
        assert plain.violation > 1e-8
        assert info.violation < 1e-15
        assert (info.status, info.iterations) == (jd.Status.OK, 8)

    @pytest.mark.long
    @each_metric
    @pytest.mark.parametrize("point", [0.0, pytest.param(0.5, marks=pytest.mark.exhaustive)])
    def test_projected_step(self, metric, point):
        system, at = everything(), consistent()
        new, _, info = step(jd.textbook.ProjectedStep(jd.RungeKutta.heun(), point, metric), system, at)
        estimate, _, inner = step(jd.RungeKutta.heun(), system, at)
        xi, dv = np.asarray(estimate.q - at.q), np.asarray(estimate.v - at.v)
        t, q, v = at.t + point * DT, at.q + point * xi, at.v + point * dv
        jacobian, weight = np.asarray(system.constraint_jacobian(t, q, v)), weighted(system, q, metric)
        xi = xi + correction(jacobian, weight, jacobian @ xi + DT * at_rest_rates(system, t, q))
        dv = dv + correction(
            jacobian, weight, jacobian @ dv + DT * np.asarray(system.constraint_bias(t, q, v))
        )
        np.testing.assert_allclose(new.q, at.q + xi, **ROUND_OFF)
        np.testing.assert_allclose(new.v, at.v + dv, **ROUND_OFF)
        np.testing.assert_allclose(info.lam, inner.lam, **ROUND_OFF)

    @each_metric
    @pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
    def test_projected_derivative(self, metric):
        system, at = (
            everything(),
            dataclasses.replace(consistent(), v=consistent().v + jnp.array([0.1, -0.2, 0.3, 0.1])),
        )
        new, _, info = step(jd.textbook.ProjectedDerivative(jd.ExplicitEuler(), metric), system, at)
        a, lam = jd.forward_dynamics(system, at)
        jacobian, weight = (
            np.asarray(system.constraint_jacobian(at.t, at.q, at.v)),
            weighted(system, at.q, metric),
        )
        feasible = at.v + correction(jacobian, weight, jacobian @ at.v + at_rest_rates(system, at.t, at.q))
        np.testing.assert_allclose(new.q, at.q + DT * feasible, **ROUND_OFF)
        np.testing.assert_allclose(new.v, at.v + DT * a, **ROUND_OFF)
        np.testing.assert_allclose(info.lam, lam, **ROUND_OFF)
        np.testing.assert_allclose(
            velocity_residual(system, dataclasses.replace(at, v=feasible)), 0.0, rtol=0, atol=1e-14
        )

    def test_positions_move_by_retraction(self):
        results = [
            step(both(jd.ExplicitEuler()), system, at)[0]
            for system, at in zip(wheels(), wheels_states((0.4, -0.9), (1.3, 0.6), 0.7), strict=True)
        ]
        pairs = results[1].q.reshape(2, 2)
        np.testing.assert_allclose(jnp.arctan2(pairs[:, 1], pairs[:, 0]), results[0].q, **ROUND_OFF)
        np.testing.assert_allclose(results[1].v, results[0].v, **ROUND_OFF)

    @pytest.mark.long
    def test_solvers(self):
        system, at, other = everything(), consistent(), jd.LeastSquares()
        expected, _, _ = step(both(jd.ExplicitEuler()), system, at)
        new, _, _ = step(
            jd.textbook.ProjectedStep(
                jd.textbook.ProjectedDerivative(jd.ExplicitEuler(), solver=other), 0.5, solver=other
            ),
            system,
            at,
        )
        np.testing.assert_allclose(new.q, expected.q, **ROUND_OFF)
        np.testing.assert_allclose(new.v, expected.v, **ROUND_OFF)

    @pytest.mark.long
    def test_soft_rows_are_left_alone(self):
        soft, at = jd.Soft(everything(), jnp.array([0.3, 0.1, 0.2])), consistent()
        new, _, _ = step(both(jd.ExplicitEuler()), soft, at)
        plain, _, _ = step(jd.ExplicitEuler(), soft, at)
        np.testing.assert_allclose(new.q, plain.q, **ROUND_OFF)
        np.testing.assert_allclose(new.v, plain.v, **ROUND_OFF)


# Orders. As in `test_accuracy_orders`: errors at a fixed time for several steps, all from one compiled
# program.

COUNTS = (64, 128, 256)
RK4 = jd.RungeKutta.rk4()
PROBLEMS = ("double_pendulum", "bead_rotating_wire")
# The projected step bends everything down to first order, and to second in the middle of the step: see its
# module.
ORDERS = {
    "sequential": (jd.textbook.Sequential(RK4), 4),
    "projected_derivative": (jd.textbook.ProjectedDerivative(RK4, EUCLIDEAN), 4),
    "projected_step": (jd.textbook.ProjectedStep(RK4, 0.0), 1),
    "projected_step_in_the_middle": (jd.textbook.ProjectedStep(RK4, 0.5), 2),
}


def slope(errors):
    return -np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]


@functools.cache
def runs(problem, route):
    """Returns (error, largest |g|, largest |[g'; w]|) for each number of steps, until 0.5 s."""
    method = RK4 if route == "plain" else ORDERS[route][0]
    reference, (system, start) = problems.reference(problem), SYSTEMS[problem]()
    k, found = reference.at(0.5), []
    for count in COUNTS:
        trajectory = jd.rollout(system, method, start, dt=0.5 / count, steps=COUNTS[-1])
        state, info = jax.tree.map(lambda x, n=count: np.asarray(x)[:n], (trajectory.state, trajectory.info))
        assert np.all(info.status == jd.Status.OK)
        error = max(
            np.max(np.abs(state.q[-1] - reference.q[k])), np.max(np.abs(state.v[-1] - reference.v[k]))
        )
        found.append((error, np.max(info.violation), np.max(info.velocity_violation)))
    return np.array(found)


class TestOrders:
    @pytest.mark.parametrize("route", ORDERS)
    @pytest.mark.parametrize(
        "problem", ["double_pendulum", pytest.param("bead_rotating_wire", marks=pytest.mark.exhaustive)]
    )
    def test_order(self, problem, route):
        # The fit of a method of order p is off by O(h); neighboring orders are 1 apart.
        fitted = slope(runs(problem, route)[:, 0])
        assert abs(fitted - ORDERS[route][1]) <= 0.1, f"fitted {fitted:.3f}"

    @pytest.mark.exhaustive
    def test_order_of_the_projected_derivative_with_rows_of_every_kind(self):
        system, at = everything(), consistent()
        fine = jd.rollout(system, RK4, at, dt=0.5 / 1024, steps=1024, save_every=1024).state
        errors = []
        for count in COUNTS[:2]:
            trajectory = jd.rollout(
                system, ORDERS["projected_derivative"][0], at, dt=0.5 / count, steps=COUNTS[1]
            )
            errors.append(np.max(np.abs(trajectory.state.q[count - 1] - fine.q[-1])))
        assert abs(np.log2(errors[0] / errors[1]) - 4.0) <= 0.2


class TestDrift:
    """Largest violations until 0.5 s, against those of RK4 alone. Measured on the double pendulum with 256 steps: |g| of 5e-11 alone, at
    round-off after root-finding, 3e-11 with the projected derivative, 2e-3 with projected steps (3e-9 in the
    middle).
    """

    @pytest.mark.long
    def test_root_finding_leaves_round_off(self):
        for problem in PROBLEMS:
            assert np.all(runs(problem, "sequential")[:, 1] < 1e-15)

    @pytest.mark.exhaustive
    def test_the_projected_derivative_drifts_less_than_the_plain_method(self):
        for problem in PROBLEMS:
            plain, projected = runs(problem, "plain"), runs(problem, "projected_derivative")
            assert np.all(projected[:, 1] < plain[:, 1])
            assert abs(slope(projected[:, 1]) - 4.0) <= 0.1

    @pytest.mark.exhaustive
    def test_projected_steps_leave_the_manifold_by_its_curvature(self):
        for order, route in ((1.0, "projected_step"), (2.0, "projected_step_in_the_middle")):
            for problem in PROBLEMS:
                violation = runs(problem, route)[:, 1]
                assert slope(violation) > order - 0.1
                assert np.all(violation > 10.0 * runs(problem, "plain")[:, 1])

    def test_g_is_an_invariant_of_the_projected_derivative_whatever_the_velocities_are(self):
        """With velocities that point off the manifold the plain method leaves it at their speed."""
        system, start = SYSTEMS["double_pendulum"]()
        start = dataclasses.replace(start, v=start.v + jnp.array([0.1, 0.0, 0.0, 0.0]))
        drift = {}
        for name, method in (("plain", RK4), ("projected", ORDERS["projected_derivative"][0])):
            found = jd.rollout(system, method, start, dt=0.5 / 256, steps=256, start_tolerance=jnp.inf)
            drift[name] = float(found.info.violation[-1])
        assert drift["plain"] > 0.01
        assert drift["projected"] < 1e-9


class TestTransformations:
    @pytest.mark.long
    def test_derivatives(self):
        """Forward = reverse = central difference of a step, with respect to system, start, feedback gains,
        point and step size.
        """
        start = consistent()

        def loss(x):
            system = dataclasses.replace(
                everything(), mass=x["mass"], radius=x["radius"], stiffness=x["stiffness"]
            )
            method = both(jd.ExplicitEuler(stabilization=jd.Baumgarte(*x["gains"])))
            method = dataclasses.replace(method, point=x["point"])
            at = dataclasses.replace(start, q=start.q + x["shift"], v=start.v - x["shift"])
            end, _, _ = method.step(system, at, (), None, x["dt"])
            return jnp.array([1.0, 2.0, -3.0, 4.0]) @ end.q + jnp.array([0.5, -1.0, 2.0, 1.0]) @ end.v

        rng, system = np.random.default_rng(0), everything()
        at = {
            "mass": system.mass,
            "radius": system.radius,
            "stiffness": system.stiffness,
            "gains": jnp.array([2.0, 3.0]),
        }
        at |= {
            "shift": 1e-2 * jnp.asarray(rng.normal(size=4)),
            "dt": jnp.asarray(0.05),
            "point": jnp.asarray(0.5),
        }
        tangent = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), at)
        along = jax.jit(lambda x: jax.jvp(loss, (x,), (tangent,)))
        gradient = jax.jit(jax.grad(loss))(at)
        forward = float(along(at)[1])
        reverse = float(
            sum(
                jnp.vdot(x, y)
                for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(tangent), strict=True)
            )
        )
        difference = float(
            central(lambda s: along(jax.tree.map(lambda x, dx: x + s * dx, at, tangent))[0], 0.0, 1e-5)
        )
        np.testing.assert_allclose(reverse, forward, rtol=1e-12)
        np.testing.assert_allclose(forward, difference, rtol=1e-7)

    @pytest.mark.long
    def test_compiled_worlds_are_single_steps(self):
        method, system, at = both(jd.ExplicitEuler()), everything(), consistent()
        worlds = jd.State(jnp.full(3, at.t), *(x + jnp.array([[0.0], [1e-3], [-1e-3]]) for x in (at.q, at.v)))
        batch = jax.jit(jax.vmap(lambda world: method.step(system, world, (), None, DT)[::2]))(worlds)
        for k in range(3):
            alone = step(method, system, jax.tree.map(lambda x, k=k: x[k], worlds))[::2]
            for (path, x), y in zip(leaves(alone), jax.tree.leaves(batch), strict=True):
                np.testing.assert_allclose(y[k], x, rtol=1e-12, atol=1e-13, err_msg=path)

    @pytest.mark.long
    def test_points_of_many_worlds(self):
        """The point of a projected step is a leaf: it may differ from world to world."""
        system, start = SYSTEMS["double_pendulum"]()
        methods = jd.textbook.ProjectedStep(RK4, jnp.array([0.0, 0.5]))
        axes = (None, jd.tree.batch_axes(methods, "point"), None, None)
        batch = jd.batch_rollout(
            system, methods, start, dt=0.5 / 128, steps=128, save_every=128, in_axes=axes
        )
        known = [
            runs("double_pendulum", route)[1, 1]
            for route in ("projected_step", "projected_step_in_the_middle")
        ]
        np.testing.assert_allclose(batch.info.violation[:, 0], known, rtol=1e-4)

    @each_route
    def test_single_precision(self, route):
        system, at = cast((everything(), consistent()), jnp.float32)
        method = route(jd.RungeKutta.heun())
        new, memory, info = jax.eval_shape(step, method, system, at)
        assert jax.tree.structure(memory) == jax.tree.structure(method.init(system, at))
        for name, x in leaves((new, info)):
            assert x.dtype == (jnp.int32 if name in ("1.status", "1.iterations") else jnp.float32), name

    def test_numbers_in_single_precision(self):
        system, at = cast((everything(), consistent()), jnp.float32)
        single, _, _ = step(both(jd.ExplicitEuler()), system, at)
        double, _, _ = step(both(jd.ExplicitEuler()), everything(), consistent())
        np.testing.assert_allclose(single.q, double.q, rtol=0, atol=1e-6)
        np.testing.assert_allclose(single.v, double.v, rtol=0, atol=1e-5)


class TestNesting:
    @pytest.mark.long
    def test_a_projected_step_around_a_projected_method_hands_on_a_matrix_of_its_own_end(self):
        # `Projected` remembers the linearization at the end of its step; the start of the next one is
        # elsewhere.
        system, at = SYSTEMS["double_pendulum"]()
        method = jd.textbook.ProjectedStep(jd.Projected(jd.ExplicitEuler(), jd.Projection(None)))
        advance = jax.jit(lambda *x: method.advance(*x, (), None, DT))
        first, _, _ = advance(system, method.begin(system, at))
        second, _, info = advance(system, first)
        fresh, _, expected = step(method, system, first.state)
        np.testing.assert_allclose(second.q, fresh.q, **ROUND_OFF)
        np.testing.assert_allclose(info.a, expected.a, **ROUND_OFF)

    def test_the_projected_derivative_needs_stages(self):
        for wrong in (jd.textbook.Taylor(), jd.Projected(RK4)):
            with (
                without_typechecker(),
                pytest.raises(TypeError, match=f"whose stages it projects, got {type(wrong).__name__}"),
            ):
                step(jd.textbook.ProjectedDerivative(wrong), everything(), consistent())

    def test_sequential_says_when_it_has_not_converged(self):
        root = jd.PositionProjection(iterations=1, tolerance=1e-30)
        _, _, info = step(jd.textbook.Sequential(jd.ExplicitEuler(), root), everything(), consistent())
        assert info.status == jd.Status.NOT_CONVERGED
