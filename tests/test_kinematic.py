"""First-order systems: closed-form motions on a circle and of wheels, the notes' three routes, derivatives,
batches, messages.

The wind: a constant rate (1, 0) on a circle of radius r(t) = exp(s t). With x = r (cos phi, sin phi), the
feasible part of the wind is r phi' = -sin phi, so that tan(phi / 2) = tan(phi0 / 2) exp(-T), T = int dt / r =
(1 - exp(-s t)) / s, T = t for s = 0.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from catalogue import quick
from problems import Pendulum, cast, state
from small_systems import central, without_typechecker

import jaxdae as jd
from jaxdae import rotation
from jaxdae.systems.kinematic_system import feasible_velocity
from jaxdae.systems.nonaffine_rows import has_affine_rows
from jaxdae.systems.system import velocity_residual

ROUND_OFF = {"rtol": 1e-13, "atol": 1e-13}


@jd.tree.pytree
class Wind(jd.KinematicSystem):
    """A point on a circle around the origin that grows at the relative rate `growth`, in a wind."""

    wind: Any
    growth: Any

    def rate(self, t, x, u):
        return self.wind if u is None else self.wind + u

    def constraint(self, t, x):
        return jnp.stack([0.5 * (jnp.sum(x**2) - jnp.exp(2.0 * self.growth * t))])


@jd.tree.pytree
class Wave(jd.KinematicSystem):
    """A point on the curve y = sin(x) with a rate that is feasible by itself, x' = x."""

    def rate(self, t, x, u):
        return x[0] * jnp.stack([jnp.ones_like(x[0]), jnp.cos(x[0])])

    def constraint(self, t, x):
        return jnp.stack([x[1] - jnp.sin(x[0])])


@jd.tree.pytree
class Skate(jd.KinematicSystem):
    """(x, y, theta): pushed by a rate u, may not slip sideways against ground that slides at `slide` along
    its own y.
    """

    slide: Any

    def rate(self, t, x, u):
        return u

    def velocity_constraint(self, t, x, xdot):
        return jnp.stack([jnp.cos(x[2]) * (xdot[1] - self.slide) - jnp.sin(x[2]) * xdot[0]])


@jd.tree.pytree
class Coupled(jd.KinematicSystem):
    """Three coordinates of which the first would move: one row at each level."""

    def rate(self, t, x, u):
        return jnp.array([1.0, 0.0, 0.0])

    def constraint(self, t, x):
        return x[:1] + x[1:2]

    def velocity_constraint(self, t, x, xdot):
        return xdot[1:2] - xdot[2:]


@jd.tree.pytree
class Unicycle(jd.KinematicSystem):
    """Wheel of radius 1/2 m on (x, y, theta, roll): u (2,) is its rolling rate and turning rate; two rows say
    that it does not slip.
    """

    weight: Any

    def rate(self, t, x, u):
        zero = jnp.zeros_like(x[0])
        return jnp.stack([zero, zero, u[1], u[0]])

    def velocity_constraint(self, t, x, xdot):
        speed = 0.5 * xdot[3]
        return jnp.stack([xdot[0] - speed * jnp.cos(x[2]), xdot[1] - speed * jnp.sin(x[2])])

    def mass_matrix(self, q):
        return jnp.diag(self.weight)


def wind(growth=0.0):
    return Wind(jnp.array([1.0, 0.0]), jnp.asarray(growth, float))


def on_the_circle(angle, radius=1.0):
    return radius * np.stack([np.cos(angle), np.sin(angle)])


def blown(t, growth=0.0, angle=2.0):
    """Returns where the wind has taken a point."""
    blown_for = (1.0 - np.exp(-growth * t)) / growth if growth else t
    return on_the_circle(2.0 * np.arctan(np.tan(angle / 2.0) * np.exp(-blown_for)), np.exp(growth * t))


def surfed(t, start=0.4):
    """Returns where a point on the wave is."""
    return np.stack([start * np.exp(t), np.sin(start * np.exp(t))])


FREE = jd.Kinematic(projected=False)
ROUTES = {
    "projected_derivative": jd.Kinematic(),
    "sequential": jd.textbook.Sequential(FREE),
    "projected_step": jd.textbook.ProjectedStep(FREE, 0.0),
    "projected_step_in_the_middle": jd.textbook.ProjectedStep(FREE, 0.5),
}
each_route = pytest.mark.parametrize("route", ROUTES)


@jax.jit
def step(integrator, system, at, u=None, dt=0.1):
    return integrator.step(system, at, integrator.init(system, at), u, dt)


class TestVelocity:
    def test_is_the_notes_formula(self):
        """x' = (I - C^T (C C^T)^-1 C) f, and their multiplier (C C^T)^-1 C f with the house's sign."""
        system, at = wind(), state([0.6, 0.8], t=0.4)
        xdot, lam = jd.kinematic_velocity(system, at)
        gradient, f = np.array([[0.6, 0.8]]), np.array([1.0, 0.0])
        right_inverse = gradient.T @ np.linalg.inv(gradient @ gradient.T)
        np.testing.assert_allclose(xdot, f - right_inverse @ gradient @ f, **ROUND_OFF)
        np.testing.assert_allclose(lam, -np.linalg.inv(gradient @ gradient.T) @ gradient @ f, **ROUND_OFF)
        np.testing.assert_allclose(xdot, f + gradient.T @ lam, **ROUND_OFF)

    def test_follows_rows_that_move(self):
        # On the growing circle x . x' = growth r^2; the skate's ground slides with it.
        at = state(1.5 * np.array([0.6, 0.8]), t=np.log(1.5) / 0.7)
        xdot, _ = jd.kinematic_velocity(wind(0.7), at)
        np.testing.assert_allclose(xdot @ at.q, 0.7 * 1.5**2, **ROUND_OFF)
        np.testing.assert_allclose(xdot @ jnp.array([-0.8, 0.6]), -0.8, **ROUND_OFF)
        xdot, _ = jd.kinematic_velocity(
            Skate(jnp.asarray(0.3)), state([0.0, 0.0, 0.0]), jnp.array([2.0, 5.0, 1.0])
        )
        np.testing.assert_allclose(xdot, [2.0, 0.3, 1.0], **ROUND_OFF)

    def test_is_the_nearest_in_the_systems_weight(self):
        system, at, u = (
            Unicycle(jnp.array([2.0, 2.0, 1.0, 0.5])),
            state([0.0, 0.0, 0.4, 0.0]),
            jnp.array([3.0, 1.0]),
        )
        xdot, lam = jd.kinematic_velocity(system, at, u)
        jacobian = np.asarray(system.constraint_jacobian(at.t, at.q, xdot))
        np.testing.assert_allclose(
            system.weight * (xdot - system.rate(at.t, at.q, u)), jacobian.T @ lam, **ROUND_OFF
        )
        # |x' - rate|^2 = 2 (roll' / 2)^2 + (roll' - 3)^2 / 2 is least at roll' = 3 / 2.
        np.testing.assert_allclose(xdot, [0.75 * np.cos(0.4), 0.75 * np.sin(0.4), 1.0, 1.5], **ROUND_OFF)

    def test_without_rows_it_is_the_rate(self):
        @jd.tree.pytree
        class Free(jd.KinematicSystem):
            def rate(self, t, x, u):
                return t - x

        xdot, lam = jd.kinematic_velocity(Free(), state([1.0, 2.0], t=3.0))
        np.testing.assert_array_equal(xdot, [2.0, 1.0])
        assert lam.shape == (0,)

    def test_solvers_take_dependent_rows(self):
        """Two rear wheels of a car make the same constraint twice (the notes' redundant constraints)."""

        @jd.tree.pytree
        class Car(Skate):
            def velocity_constraint(self, t, x, xdot):
                row = super().velocity_constraint(t, x, xdot)
                return jnp.concatenate([row, row])

        at, u = state([0.0, 0.0, 0.5]), jnp.array([1.0, 0.0, 0.2])
        one, lam = jd.kinematic_velocity(Skate(jnp.asarray(0.1)), at, u)
        two, lams = jd.kinematic_velocity(Car(jnp.asarray(0.1)), at, u, solver=jd.LeastSquares())
        np.testing.assert_allclose(two, one, **ROUND_OFF)
        np.testing.assert_allclose(lams, 0.5 * jnp.repeat(lam, 2), **ROUND_OFF)


# Orders: (system, exact position after 1 s, start), and the order of each route with RK4.

COUNTS = (16, 32, 64)
PROBLEMS = {
    "wind": (wind(), blown, on_the_circle(2.0)),
    "wind_on_a_growing_circle": (wind(0.3), functools.partial(blown, growth=0.3), on_the_circle(2.0)),
    "wave": (Wave(), surfed, surfed(0.0)),
}
# x' = f alone knows nothing of what the constraint does to its derivatives: root-finding after the step, or
# projecting it, is of first order where f is not feasible, however good the tableau. Of a feasible f
# root-finding keeps the order. Steps that are projected onto the tangent plane at their start are bent to
# first order always; in their middle to second order where f is feasible, and on circles, whose normals in
# the middle of a step are those in the middle of its projection.
ORDERS = {
    "projected_derivative": {"wind": 4, "wind_on_a_growing_circle": 4, "wave": 4},
    "sequential": {"wind": 1, "wind_on_a_growing_circle": 1, "wave": 4},
    "projected_step": {"wind": 1, "wind_on_a_growing_circle": 1, "wave": 1},
    "projected_step_in_the_middle": {"wind": 2, "wind_on_a_growing_circle": 1, "wave": 2},
}


def slope(errors):
    return -np.polyfit(np.log(COUNTS), np.log(errors), 1)[0]


@functools.cache
def runs(problem, route):
    """Returns (error, largest violation) at 1 s for each number of steps."""
    system, exact, start = PROBLEMS[problem]
    method = FREE if route == "unconstrained" else ROUTES[route]
    found = []
    for count in COUNTS:
        trajectory = jd.rollout(system, method, state(start), dt=1.0 / count, steps=COUNTS[-1])
        assert np.all(trajectory.info.status == jd.Status.OK)
        error = np.max(np.abs(trajectory.state.q[count - 1] - exact(1.0)))
        found.append(
            (
                error,
                np.max(trajectory.info.violation[:count]),
                np.max(trajectory.info.velocity_violation[:count]),
            )
        )
    return np.array(found)


class TestRoutes:
    @each_route
    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_order(self, problem, route):
        fitted = slope(runs(problem, route)[:, 0])
        assert abs(fitted - ORDERS[route][problem]) <= 0.2, f"fitted {fitted:.3f}"

    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_drift(self, problem):
        """Velocities are feasible in all of them; positions are at round-off after root-finding, and drift by
        the order elsewhere.
        """
        found = {route: runs(problem, route) for route in ROUTES}
        for results in found.values():
            assert np.all(results[:, 2] < 1e-14)
        # Eight corrections, each of which gains a factor of about h.
        assert np.all(found["sequential"][:, 1] < 1e-12)
        assert np.all(found["sequential"][1:, 1] < 1e-15)
        assert slope(found["projected_derivative"][:, 1]) > 3.8
        assert abs(slope(found["projected_step"][:, 1]) - 1.0) < 0.2
        assert np.all(found["projected_step_in_the_middle"][:, 1] < 0.2 * found["projected_step"][:, 1])

    def test_the_unconstrained_equation_leaves_with_the_wind(self):
        assert np.all(runs("wind", "unconstrained")[:, 1] > 0.05)

    @pytest.mark.parametrize("tableau", ["euler", "midpoint"])
    def test_euler_and_midpoint(self, tableau):
        method, errors = getattr(jd.Kinematic, tableau)(), []
        for count in COUNTS:
            trajectory = jd.rollout(
                wind(0.3), method, state(on_the_circle(2.0)), dt=1.0 / count, steps=COUNTS[-1]
            )
            errors.append(np.max(np.abs(trajectory.state.q[count - 1] - blown(1.0, growth=0.3))))
        assert abs(slope(errors) - {"euler": 1, "midpoint": 2}[tableau]) < 0.1

    @pytest.mark.long
    def test_root_finding_removes_the_drift_of_the_projected_derivative(self):
        trajectory = jd.rollout(
            wind(0.3), jd.Projected(jd.Kinematic()), state(on_the_circle(2.0)), dt=1.0 / 64, steps=64
        )
        np.testing.assert_allclose(trajectory.state.q[-1], blown(1.0, growth=0.3), rtol=0.0, atol=1e-8)
        assert np.max(trajectory.info.violation) < 1e-15
        assert np.max(trajectory.info.velocity_violation) < 1e-14

    @pytest.mark.long
    def test_euler_steps_of_all_routes_in_numbers(self):
        """From (0, 1) in the wind f = (1, 0), which is feasible there, and from (0.6, 0.8), where it is not."""
        at, h = state([0.6, 0.8]), 0.1
        free, _, _ = step(jd.Kinematic.euler(projected=False), wind(), at)
        np.testing.assert_allclose(free.q, [0.7, 0.8], **ROUND_OFF)
        parallel = np.array([1.0, 0.0]) - 0.6 * np.array([0.6, 0.8])
        for method in (jd.Kinematic.euler(), jd.textbook.ProjectedStep(jd.Kinematic.euler(projected=False))):
            new, _, info = step(method, wind(), at)
            np.testing.assert_allclose(new.q, at.q + h * parallel, **ROUND_OFF)
            np.testing.assert_allclose(info.lam, [-0.6], **ROUND_OFF)
            np.testing.assert_allclose(info.violation, 0.5 * (h * 0.8) ** 2, **ROUND_OFF)
        root, _, info = step(jd.textbook.Sequential(jd.Kinematic.euler(projected=False)), wind(), at)
        # Root-finding moves along the gradient at the estimate, which on a circle is the radius.
        np.testing.assert_allclose(root.q, np.array([0.7, 0.8]) / np.hypot(0.7, 0.8), rtol=0.0, atol=1e-11)
        assert info.iterations == 8

    @pytest.mark.long
    def test_root_finding_moves_along_rows_at_velocity_level(self):
        """Linear rows x + y = 0 and y' = z': every route goes on at the feasible rate, and nothing slips on
        the way to the root.
        """
        for name, method in ROUTES.items():
            new, _, info = step(method, Coupled(), state(np.zeros(3)))
            np.testing.assert_allclose(
                new.q, 0.1 * np.array([1.0, -1.0, -1.0]) / 3.0, **ROUND_OFF, err_msg=name
            )
            assert (info.status, float(info.violation) < 1e-15) == (jd.Status.OK, True)


class TestReports:
    @pytest.mark.long
    def test_the_velocity_is_that_at_the_end_and_a_the_mean(self):
        system, at = wind(0.3), state(on_the_circle(2.0), [7.0, 7.0])
        for name, method in ROUTES.items():
            new, memory, info = step(method, system, at)
            assert memory == ()
            start, lam = jd.kinematic_velocity(system, at)
            # The step of 0.1 s leaves the circle, which `kinematic_velocity` reports outside of `jit`.
            velocity = jax.jit(jd.kinematic_velocity)(system, new)[0]
            np.testing.assert_allclose(new.v, velocity, **ROUND_OFF, err_msg=name)
            np.testing.assert_allclose(info.lam, lam, **ROUND_OFF, err_msg=name)
            np.testing.assert_allclose(
                info.violation, np.abs(system.constraint(new.t, new.q)[0]), rtol=0, atol=1e-15
            )
            np.testing.assert_allclose(info.velocity_violation, 0.0, rtol=0, atol=1e-14)
            if name == "projected_derivative":
                np.testing.assert_allclose(info.a, (new.v - start) / 0.1, rtol=1e-12)

    def test_the_start_needs_no_velocity(self):
        for method in ROUTES.values():
            first, second = (
                step(method, wind(0.3), state(on_the_circle(2.0), v))[0] for v in ([0.0, 0.0], [5.0, -3.0])
            )
            np.testing.assert_array_equal(first.q, second.q)
            np.testing.assert_array_equal(first.v, second.v)

    def test_what_systems_have_in_common(self):
        system = wind(0.3)
        at, info = jd.initialize(system, jnp.array([1.1, 0.9]), t=0.5)
        assert info.violation < 1e-15
        np.testing.assert_allclose(velocity_residual(system, at), 0.0, rtol=0, atol=1e-15)


class TestWheels:
    def test_an_arc(self):
        """Constant inputs drive a wheel along an arc, whose closed form Runge-Kutta misses by its error of
        quadrature only.
        """
        system = Unicycle(jnp.array([1.0, 1.0, 1.0, 1.0]))
        controls = jnp.tile(jnp.array([2.5, 0.8]), (40, 1))
        trajectory = jd.rollout(system, jd.Kinematic(), state([1.0, -1.0, 0.3, 0.0]), controls, dt=0.05)
        # Wanted is a roll of 2.5 rad/s without moving along; the nearest that rolls without slip is 2.5 / (1
        # + 1/4).
        turned, speed = 0.8 * 2.0, 0.5 * 2.0
        x = 1.0 + speed / 0.8 * (np.sin(0.3 + turned) - np.sin(0.3))
        y = -1.0 - speed / 0.8 * (np.cos(0.3 + turned) - np.cos(0.3))
        # The error of Simpson's rule, h^4 / 2880 theta'^4 times the length of the path.
        np.testing.assert_allclose(trajectory.state.q[-1], [x, y, 0.3 + turned, 4.0], rtol=0.0, atol=2e-9)
        assert np.max(trajectory.info.velocity_violation) < 1e-15

    @pytest.mark.long
    @pytest.mark.parametrize("route", quick(ROUTES, "projected_derivative", "sequential"))
    def test_a_skate_on_sliding_ground(self, route):
        """Pushed along x while it turns, it moves by the part of that along its blade, (cos(t)^2, sin(t)
        cos(t)).

        The ground takes along its part across the blade, cos(t) times (-sin(t), cos(t)). Velocity-level rows
        are in the derivative on all routes.
        """
        controls = jnp.tile(jnp.array([1.0, 0.0, 1.0]), (50, 1))
        trajectory = jd.rollout(
            Skate(jnp.asarray(0.2)), ROUTES[route], state([0.0, 0.0, 0.0]), controls, dt=0.02
        )
        along, across = 0.5 + 0.25 * np.sin(2.0), 0.5 * np.sin(1.0) ** 2
        expected = [along - 0.2 * across, across + 0.2 * along, 1.0]
        bound = {"projected_step": 2e-2, "projected_step_in_the_middle": 1e-4}.get(route, 1e-8)
        np.testing.assert_allclose(trajectory.state.q[-1], expected, rtol=0.0, atol=bound)
        assert np.max(trajectory.info.velocity_violation) < 1e-14

    @pytest.mark.long
    def test_a_feedback_law_sees_time_and_place_of_each_stage(self):
        """theta' = -2 (theta - sin t) from 0: theta = (4 sin t - 2 cos t + 2 exp(-2 t)) / 5."""

        def law(t, at):
            return jnp.stack([jnp.ones_like(t), jnp.zeros_like(t), -2.0 * (at.q[2] - jnp.sin(t))])

        trajectory = jd.rollout(
            Skate(jnp.zeros(())), jd.Kinematic(), state([0.0, 0.0, 0.0]), law, dt=1.0 / 64, steps=64
        )
        exact = (4.0 * np.sin(1.0) - 2.0 * np.cos(1.0) + 2.0 * np.exp(-2.0)) / 5.0
        np.testing.assert_allclose(trajectory.state.q[-1, 2], exact, rtol=0.0, atol=1e-8)

    @pytest.mark.long
    def test_headings_on_a_circle_move_by_retraction(self):
        """The skate with q = (x, y, cos theta, sin theta): four coordinates, three velocities."""

        @jd.tree.pytree
        class Round(Skate):
            def velocity_constraint(self, t, x, xdot):
                return jnp.stack([x[2] * (xdot[1] - self.slide) - x[3] * xdot[0]])

            def mass_matrix(self, q):
                return jnp.eye(3, dtype=q.dtype)

            def retract(self, q, xi):
                c, s = jnp.cos(xi[2]), jnp.sin(xi[2])
                return jnp.stack([q[0] + xi[0], q[1] + xi[1], q[2] * c - q[3] * s, q[3] * c + q[2] * s])

            def difference(self, q0, q1):
                turn = jnp.arctan2(q1[3] * q0[2] - q1[2] * q0[3], q1[2] * q0[2] + q1[3] * q0[3])
                return jnp.stack([q1[0] - q0[0], q1[1] - q0[1], turn])

        u, slide = jnp.array([1.0, 0.4, 1.2]), jnp.asarray(0.2)
        start = jd.State(jnp.zeros(()), jnp.array([0.0, 0.0, np.cos(0.3), np.sin(0.3)]), jnp.zeros(3))
        method = jd.textbook.ProjectedStep(FREE, 0.5)
        curved, _, _ = step(method, Round(slide), start, u)
        flat, _, _ = step(method, Skate(slide), state([0.0, 0.0, 0.3]), u)
        np.testing.assert_allclose(curved.q[:2], flat.q[:2], **ROUND_OFF)
        np.testing.assert_allclose(jnp.arctan2(curved.q[3], curved.q[2]), flat.q[2], **ROUND_OFF)
        np.testing.assert_allclose(curved.v, flat.v, **ROUND_OFF)


@jd.tree.pytree
class Turning(jd.KinematicSystem):
    """A body that turns with omega_body = (b, a sin bt, a cos bt), so that quat_wb = exp(a t e3) exp(b t e1)."""

    a: Any
    b: Any

    def rate(self, t, x, u):
        return jnp.stack([self.b, self.a * jnp.sin(self.b * t), self.a * jnp.cos(self.b * t)])

    def mass_matrix(self, q):
        return jnp.eye(3, dtype=q.dtype)

    def retract(self, q, xi):
        return rotation.quat_retract(q, xi)

    def place(self, t):
        first, second = (0.5 * np.asarray(x) * t for x in (self.a, self.b))
        (c1, s1), (c2, s2) = (np.cos(first), np.sin(first)), (np.cos(second), np.sin(second))
        return np.stack([c1 * c2, c1 * s2, s1 * s2, s1 * c2])


@jd.tree.pytree
class TurningWithInverse(Turning):
    def difference(self, q0, q1):
        return rotation.quat_difference(q0, q1)


class TestQuaternions:
    """The tableau's order on the sphere of unit quaternions, with the inverse of `retract` and without."""

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("method", "order"),
        [
            pytest.param("euler", 1, marks=pytest.mark.exhaustive),
            pytest.param("midpoint", 2, marks=pytest.mark.exhaustive),
            ("rk4", 4),
        ],
    )
    def test_order(self, method, order):
        system, errors, counts = TurningWithInverse(jnp.asarray(1.7), jnp.asarray(-2.3)), [], (40, 80)
        for count in counts:
            start = jd.State(jnp.zeros(()), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
            found = jd.rollout(
                system, getattr(jd.Kinematic, method)(), start, dt=2.0 / count, steps=counts[-1]
            )
            errors.append(np.max(np.abs(found.state.q[count - 1] - system.place(2.0))))
        assert abs(np.log2(errors[0] / errors[1]) - order) <= 0.1

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("method", "order"),
        [pytest.param("backward_euler", 1, marks=pytest.mark.exhaustive), ("midpoint", 2)],
    )
    def test_order_of_implicit_methods(self, method, order):
        system, errors, counts = Turning(jnp.asarray(1.7), jnp.asarray(-2.3)), [], (80, 160)
        for count in counts:
            start = jd.State(jnp.zeros(()), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
            found = jd.rollout(
                system, getattr(jd.KinematicImplicit, method)(), start, dt=2.0 / count, steps=counts[-1]
            )
            assert found.info.status[count - 1] == jd.Status.OK
            errors.append(np.max(np.abs(found.state.q[count - 1] - system.place(2.0))))
        assert abs(np.log2(errors[0] / errors[1]) - order) <= 0.1

    @pytest.mark.long
    def test_without_the_inverse_steps_are_the_same(self):
        numbers = jnp.asarray(1.7), jnp.asarray(-2.3)
        start = jd.State(jnp.zeros(()), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        ends = [
            step(jd.Kinematic(), kind(*numbers), start, None, 0.3)[0].q
            for kind in (Turning, TurningWithInverse)
        ]
        np.testing.assert_allclose(*ends, **ROUND_OFF)


@jd.tree.pytree
class Decay(jd.KinematicSystem):
    """x' = -rate x."""

    speed: Any

    def rate(self, t, x, u):
        return -self.speed * x


IMPLICIT = {
    "backward_euler": (jd.KinematicImplicit.backward_euler(), 1),
    "midpoint": (jd.KinematicImplicit.midpoint(), 2),
    "midpoint_by_saddle_point": (
        jd.KinematicImplicit.midpoint(newton=jd.SaddlePointNewton(iterations=12)),
        2,
    ),
}
each_implicit = pytest.mark.parametrize("name", IMPLICIT)


class TestImplicit:
    @each_implicit
    def test_order(self, name):
        (method, order), errors = IMPLICIT[name], []
        for count in COUNTS:
            trajectory = jd.rollout(
                wind(0.3), method, state(on_the_circle(2.0)), dt=1.0 / count, steps=COUNTS[-1]
            )
            assert np.all(trajectory.info.status == jd.Status.OK)
            assert np.max(trajectory.info.violation[:count]) < 1e-14
            assert np.max(trajectory.info.velocity_violation[:count]) < 1e-13
            errors.append(np.max(np.abs(trajectory.state.q[count - 1] - blown(1.0, growth=0.3))))
        assert abs(slope(errors) - order) < 0.1

    @pytest.mark.long
    def test_fast_modes(self):
        """Backward Euler multiplies by 1 / (1 + 5), the midpoint rule by (1 - 2.5) / (1 + 2.5); Euler's
        method by 1 - 5.
        """
        for name, factor in (("backward_euler", 1.0 / 6.0), ("midpoint", -1.5 / 3.5)):
            trajectory = jd.rollout(
                Decay(jnp.asarray(50.0)), IMPLICIT[name][0], state([1.0, -2.0]), dt=0.1, steps=5
            )
            assert np.all(trajectory.info.status == jd.Status.OK)
            np.testing.assert_allclose(
                trajectory.state.q, np.outer(factor ** np.arange(1, 6), [1.0, -2.0]), rtol=1e-12
            )

    @pytest.mark.parametrize(
        "name",
        [
            "backward_euler",
            pytest.param("midpoint", marks=pytest.mark.exhaustive),
            pytest.param("midpoint_by_saddle_point", marks=pytest.mark.long),
        ],
    )
    def test_wheels(self, name):
        """An arc of a wheel that rolls without slip, as of the explicit methods."""
        system, (method, order) = Unicycle(jnp.ones(4)), IMPLICIT[name]
        trajectory = jd.rollout(
            system, method, state([1.0, -1.0, 0.3, 0.0]), jnp.tile(jnp.array([2.5, 0.8]), (40, 1)), dt=0.05
        )
        x = 1.0 + 1.0 / 0.8 * (np.sin(0.3 + 1.6) - np.sin(0.3))
        y = -1.0 - 1.0 / 0.8 * (np.cos(0.3 + 1.6) - np.cos(0.3))
        np.testing.assert_allclose(
            trajectory.state.q[-1], [x, y, 1.9, 4.0], rtol=0.0, atol={1: 5e-2, 2: 5e-4}[order]
        )
        assert np.all(trajectory.info.status == jd.Status.OK)
        assert np.max(trajectory.info.velocity_violation) < 1e-14

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            "midpoint",
            pytest.param("backward_euler", marks=pytest.mark.exhaustive),
            pytest.param("midpoint_by_saddle_point", marks=pytest.mark.exhaustive),
        ],
    )
    def test_derivatives(self, name):
        def final(growth):
            end = jd.rollout(
                wind(growth), IMPLICIT[name][0], state(on_the_circle(2.0)), dt=0.1, steps=10, save_every=10
            )
            return jnp.sum(jnp.sin(end.state.q)) + jnp.sum(end.state.v**2)

        both = jax.jit(lambda x: jax.jvp(final, (x,), (jnp.ones(()),)))
        at, h = jnp.asarray(0.3), 1e-4
        np.testing.assert_allclose(jax.jit(jax.grad(final))(at), both(at)[1], rtol=1e-11)
        np.testing.assert_allclose(both(at)[1], (both(at + h)[0] - both(at - h)[0]) / (2.0 * h), rtol=1e-7)

    def test_mistakes(self):
        pendulum = Pendulum(*(jnp.asarray(x, float) for x in (1.0, 1.0, 9.81)))
        with pytest.raises(TypeError, match=r"system must be a jaxdae.KinematicSystem"):
            jd.rollout(pendulum, jd.KinematicImplicit(), state([1.0, 0.0]), dt=0.1, steps=1)
        with pytest.raises(ValueError, match=r"KinematicImplicit.share must lie between 1/2"):
            jd.rollout(wind(), jd.KinematicImplicit(share=0.2), state([1.0, 0.0]), dt=0.1, steps=1)


class TestAdaptive:
    @pytest.mark.long
    def test_errors_follow_the_tolerance(self):
        for tolerance in (1e-5, 1e-9):
            method = jd.diffrax.Adaptive(rtol=tolerance, atol=tolerance)
            trajectory = jd.rollout(wind(0.3), method, state(on_the_circle(2.0)), dt=0.25, steps=4)
            assert np.all(trajectory.info.status == jd.Status.OK)
            assert np.max(trajectory.info.violation) < 1e-13
            assert np.max(trajectory.info.velocity_violation) < 1e-12
            assert np.max(np.abs(trajectory.state.q[-1] - blown(1.0, growth=0.3))) < 20.0 * tolerance
            at = jd.State(*(x[-1] for x in (trajectory.state.t, trajectory.state.q, trajectory.state.v)))
            np.testing.assert_allclose(at.v, jd.kinematic_velocity(wind(0.3), at)[0], rtol=1e-13)

    @pytest.mark.long
    def test_in_one_go(self):
        times, method = jnp.array([0.3, 1.0]), jd.diffrax.Adaptive(rtol=1e-9, atol=1e-9)
        trajectory = jd.diffrax.adaptive_rollout(wind(0.3), method, state(on_the_circle(2.0)), times=times)
        assert np.all(trajectory.info.status == jd.Status.OK)
        np.testing.assert_allclose(
            trajectory.state.q, [blown(t, growth=0.3) for t in (0.3, 1.0)], rtol=0, atol=1e-8
        )
        for k in range(2):
            at = jd.State(*(x[k] for x in (trajectory.state.t, trajectory.state.q, trajectory.state.v)))
            np.testing.assert_allclose(at.v, jd.kinematic_velocity(wind(0.3), at)[0], rtol=1e-13)

    @pytest.mark.exhaustive
    def test_quaternions(self):
        system = TurningWithInverse(jnp.asarray(1.7), jnp.asarray(-2.3))
        start = jd.State(jnp.zeros(()), jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        end = jd.rollout(system, jd.diffrax.Adaptive(rtol=1e-9, atol=1e-9), start, dt=1.0, steps=2)
        np.testing.assert_allclose(end.state.q[-1], system.place(2.0), rtol=0, atol=2e-8)
        assert np.all(end.info.status == jd.Status.OK)

    @pytest.mark.long
    def test_rows_that_fight_are_reported(self):
        trajectory = jd.rollout(
            Clash(), jd.diffrax.Adaptive(solver=jd.LeastSquares()), state([0.0, 0.0]), dt=0.1, steps=1
        )
        assert trajectory.info.status[0] == jd.Status.CONFLICTING_ROWS


@jd.tree.pytree
class Clash(jd.KinematicSystem):
    """Two rows that ask for different speeds."""

    def rate(self, t, x, u):
        return jnp.ones(2)

    def velocity_constraint(self, t, x, xdot):
        return jnp.stack([xdot[0] - 1.0, xdot[0] - 2.0])


@jd.tree.pytree
class Car(jd.KinematicSystem):
    """(x, y, theta): four wheels that may not slip sideways, the front ones steered by two angles; wants to
    go straight on.
    """

    steering: Any
    row_names = ("rear_left", "rear_right", "front_left", "front_right")

    def rate(self, t, x, u):
        return jnp.stack([jnp.cos(x[2]), jnp.sin(x[2]), jnp.zeros_like(x[2])])

    def velocity_constraint(self, t, x, xdot):
        cos, sin = jnp.cos(x[2]), jnp.sin(x[2])
        ahead, aside = cos * xdot[0] + sin * xdot[1], cos * xdot[1] - sin * xdot[0]
        zero = jnp.zeros_like(x[2])
        wheels = (
            (0.0, 0.5, zero),
            (0.0, -0.5, zero),
            (2.0, 0.5, self.steering[0]),
            (2.0, -0.5, self.steering[1]),
        )
        return jnp.stack(
            [jnp.cos(d) * (aside + xdot[2] * a) - jnp.sin(d) * (ahead - xdot[2] * b) for a, b, d in wheels]
        )


@jd.tree.pytree
class Three(Car):
    """The car without the row of its left rear wheel."""

    def velocity_constraint(self, t, x, xdot):
        return super().velocity_constraint(t, x, xdot)[1:]


CENTERED = jnp.array(
    [np.arctan(2.0 / 4.5), np.arctan(2.0 / 5.5)]
)  # about a point 5 m to the left of the rear axle
PARALLEL = jnp.array([0.3, 0.3])
AT_REST = jd.State(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3))


class TestStatus:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "solver",
        [
            jd.NullSpace(),
            pytest.param(jd.LeastSquares(), marks=pytest.mark.exhaustive),
            jd.ConjugateGradient(),
            pytest.param(jd.Proximal(), marks=pytest.mark.exhaustive),
        ],
    )
    def test_wheels_that_fight_are_no_rest(self, solver):
        """Of four rows two are independent where all axes meet in one point, three where they do not."""
        status = functools.partial(jd.kinematic_status, solver=solver)
        assert status(Car(CENTERED), AT_REST) == jd.Status.OK
        assert status(Car(jnp.zeros(2)), AT_REST) == jd.Status.OK
        assert status(Car(PARALLEL), AT_REST) == jd.Status.CONFLICTING_ROWS

    @pytest.mark.long
    @pytest.mark.parametrize("solver", [jd.SchurComplement(), jd.DenseKKT()])
    def test_solvers_that_need_full_rank_say_so(self, solver):
        found = jd.rollout(Car(CENTERED), jd.Kinematic(solver=solver), AT_REST, dt=0.1, steps=2)
        np.testing.assert_array_equal(found.info.status, jd.Status.SINGULAR)

    @pytest.mark.long
    def test_rollouts_report_it_world_by_world(self):
        cars = Car(jnp.stack([CENTERED, PARALLEL]))
        method = jd.Kinematic(solver=jd.LeastSquares())
        found = jd.batch_rollout(cars, method, AT_REST, dt=0.1, steps=2, in_axes=(0, None, None, None))
        np.testing.assert_array_equal(
            found.info.status, [[jd.Status.OK] * 2, [jd.Status.CONFLICTING_ROWS] * 2]
        )

    def test_a_diagnosis_names_the_rows(self):
        found = jd.diagnose(Car(PARALLEL), AT_REST)
        assert (found.mobility, set(found.blocking_rows)) == (0, {"front_left", "front_right"})
        assert 0.0 < found.blocking_value < 0.02
        assert "all motion blocked by" in str(found)
        found = jd.diagnose(Car(CENTERED), AT_REST)
        assert (found.mobility, found.blocking_rows, found.blocking_value) == (1, (), 0.0)

    @pytest.mark.long
    def test_angles_of_steering_are_no_freedom_of_the_car(self):
        """With the steering among the coordinates the angles may move, the car may not."""

        @jd.tree.pytree
        class Steered(Car):
            def rate(self, t, x, u):
                return jnp.concatenate([super().rate(t, x, u), jnp.zeros(2)])

            def velocity_constraint(self, t, x, xdot):
                return Car(x[3:]).velocity_constraint(t, x, xdot)

        for steering, expected in ((PARALLEL, jd.Status.CONFLICTING_ROWS), (CENTERED, jd.Status.OK)):
            start = jd.State(jnp.zeros(()), jnp.concatenate([jnp.zeros(3), steering]), jnp.zeros(5))
            assert jd.kinematic_status(Steered(None), start, solver=jd.LeastSquares()) == expected

    def test_drives_that_leave_no_freedom_move_all_the_same(self):
        """Three rows for three velocities, which prescribe them: that is no conflict, at rest neither."""

        @jd.tree.pytree
        class Driven(Car):
            def velocity_constraint(self, t, x, xdot):
                return xdot - jnp.stack([self.steering[0], self.steering[1], jnp.zeros_like(t)])

            def rate(self, t, x, u):
                return jnp.zeros_like(x)

        for speed in ([1.0, 0.5], [0.0, 0.0]):
            system = Driven(jnp.array(speed))
            assert jd.kinematic_status(system, AT_REST) == jd.Status.OK
            np.testing.assert_allclose(
                jd.kinematic_velocity(system, AT_REST)[0], [*speed, 0.0], rtol=0, atol=1e-14
            )

    def test_rows_that_contradict_each_other(self):
        @jd.tree.pytree
        class Twice(Car):
            def velocity_constraint(self, t, x, xdot):
                return jnp.stack([xdot[0] - 1.0, xdot[0] - 2.0])

        assert (
            jd.kinematic_status(Twice(PARALLEL), AT_REST, solver=jd.LeastSquares())
            == jd.Status.CONFLICTING_ROWS
        )

    @pytest.mark.parametrize("method", [jd.Kinematic.euler(), jd.Kinematic.midpoint(), jd.Kinematic.rk4()])
    def test_steps_too_long_for_the_rate(self, method):
        """x' = -50 x at h = 0.1, where RK4 multiplies x by 13.7; at h = 0.01, and on a quick turn of the
        input, all is well.
        """

        @jd.tree.pytree
        class Decay(jd.KinematicSystem):
            pull: Any

            def rate(self, t, x, u):
                return -self.pull * x + 20.0 * jnp.sin(30.0 * t)

        start = jd.State(jnp.zeros(()), jnp.array([1.0, 0.5]), jnp.zeros(2))
        runs = {
            (50.0, 0.1): jd.Status.UNSTABLE,
            (29.0, 0.1): jd.Status.UNSTABLE,
            (50.0, 0.01): jd.Status.OK,
            (0.5, 0.1): jd.Status.OK,
        }
        for (pull, dt), expected in runs.items():
            found = jd.rollout(Decay(jnp.asarray(pull)), method, start, dt=dt, steps=20)
            assert found.info.status[-1] == expected

    def test_slopes_that_cancel_are_a_false_equilibrium(self):
        """x' = 0.1 - tanh(x / 1 mm) rests at 0.1003 mm. With steps of 10 ms, RK4 stops at 3.6 mm."""

        @jd.tree.pytree
        class Saturating(jd.KinematicSystem):
            def rate(self, t, x, u):
                return 0.1 - jnp.tanh(x / 1e-3)

        start = jd.State(0.0, jnp.array([0.02]), jnp.zeros(1))
        run = jax.jit(lambda dt: jd.rollout(Saturating(), jd.Kinematic.rk4(), start, dt=dt, steps=400))
        assert run(1e-2).info.status[-1] == jd.Status.UNSTABLE
        resolved = run(1e-3)
        np.testing.assert_array_equal(resolved.info.status, jd.Status.OK)
        np.testing.assert_allclose(resolved.state.q[-1], 1e-3 * np.arctanh(0.1), rtol=1e-9)

    @pytest.mark.parametrize(
        "method",
        [
            jd.Kinematic.euler(),
            *(
                pytest.param(method, marks=pytest.mark.exhaustive)
                for method in (jd.Kinematic.midpoint(), jd.Kinematic.rk4())
            ),
        ],
    )
    def test_rates_that_jump_or_run_away_are_not_unstable(self, method):
        @jd.tree.pytree
        class Line(jd.KinematicSystem):
            kind: str = jd.tree.static()

            def rate(self, t, x, u):
                if self.kind == "relay":
                    return jnp.where(x > 0.017, -1.0, 3.0)
                return 50.0 * x if self.kind == "runs away" else jnp.where(x > 0.317, 6.0, 1.0)

        for kind, dt in (("relay", 0.05), ("runs away", 0.1), ("jump", 0.01)):
            start = jd.State(jnp.zeros(()), jnp.array([0.01]), jnp.zeros(1))
            found = jd.rollout(Line(kind), method, start, dt=dt, steps=40)
            np.testing.assert_array_equal(found.info.status, jd.Status.OK)

    @pytest.mark.long
    @all_cases(
        ("solver", "off"),
        itertools.product((jd.SchurComplement(), jd.ConjugateGradient()), (1e-8, 1e-7, 1e-6, 1e-5)),
    )
    def test_rows_that_are_nearly_dependent_do_not_move_a_car_by_rounding_errors(self, solver, off):
        """Three rows and three velocities, steering off by so many radians: no motion is allowed, and the car
        wants 1 m/s.

        A solver that takes rows so near to each other for dependent moves it along the arc, and says OK.
        """
        car = Three(CENTERED + jnp.array([0.0, off]))
        if jd.kinematic_status(car, AT_REST, solver=solver) == jd.Status.OK:
            exact, _ = jd.kinematic_velocity(Car(CENTERED), AT_REST, solver=jd.LeastSquares())
            np.testing.assert_allclose(
                jd.kinematic_velocity(car, AT_REST, solver=solver)[0], exact, rtol=0, atol=1e-6
            )


class TestTransformations:
    @pytest.mark.long
    @pytest.mark.parametrize(
        "route",
        [
            "projected_derivative",
            pytest.param("sequential", marks=pytest.mark.exhaustive),
            pytest.param("projected_step_in_the_middle", marks=pytest.mark.exhaustive),
        ],
    )
    def test_derivatives(self, route):
        """Forward = reverse = central difference, with respect to system, start, input and step size."""

        def loss(x):
            system = Wind(x["wind"], x["growth"])
            start = state(on_the_circle(2.0))
            start = jd.State(start.t, start.q + x["shift"], start.v)
            end, _, _ = ROUTES[route].step(system, start, (), x["u"], x["dt"])
            return jnp.array([1.0, -2.0]) @ end.q + jnp.array([0.5, 3.0]) @ end.v

        rng = np.random.default_rng(0)
        at = {
            "wind": jnp.array([1.0, 0.3]),
            "growth": jnp.asarray(0.3),
            "shift": jnp.zeros(2),
            "dt": jnp.asarray(0.1),
        }
        at["u"] = jnp.asarray(rng.normal(size=2))
        tangent = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), at)
        along = jax.jit(lambda x: jax.jvp(loss, (x,), (tangent,)))
        gradient, forward = jax.jit(jax.grad(loss))(at), float(along(at)[1])
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
        np.testing.assert_allclose(forward, difference, rtol=1e-8)

    @pytest.mark.exhaustive
    def test_the_derivative_of_the_end_is_that_of_the_closed_form(self):
        """d phi / d phi0 = sin phi / sin phi0 in the wind."""

        def end(angle):
            start = state(jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
            return jd.rollout(wind(), jd.Kinematic(), start, dt=1.0 / 64, steps=64, save_every=64).state.q[-1]

        reached, moved = jax.jit(lambda x: jax.jvp(end, (x,), (jnp.ones(()),)))(jnp.asarray(2.0))
        phi = np.arctan2(reached[1], reached[0])
        np.testing.assert_allclose(
            moved, np.sin(phi) / np.sin(2.0) * np.array([-np.sin(phi), np.cos(phi)]), rtol=0.0, atol=1e-8
        )

    @pytest.mark.long
    def test_worlds(self):
        angles, growths = np.array([0.5, 1.0, 2.0]), np.array([0.0, 0.2, 0.4])
        system = Wind(jnp.array([1.0, 0.0]), jnp.asarray(growths))
        starts = jd.State(jnp.zeros(()), jnp.asarray(on_the_circle(angles).T), jnp.zeros((3, 2)))
        axes = (jd.tree.batch_axes(system, "growth"), None, 0, None)
        batch = jd.batch_rollout(
            system, jd.Kinematic(), starts, dt=0.1, steps=10, save_every=10, in_axes=axes
        )
        for k in range(3):
            alone = jd.rollout(
                wind(growths[k]),
                jd.Kinematic(),
                state(on_the_circle(angles[k])),
                dt=0.1,
                steps=10,
                save_every=10,
            )
            for x, y in zip(jax.tree.leaves(alone), jax.tree.leaves(batch), strict=True):
                np.testing.assert_allclose(y[k], x, rtol=1e-12, atol=1e-14)

    @each_route
    def test_single_precision(self, route):
        system, at = cast((wind(0.3), state(on_the_circle(2.0))), jnp.float32)
        new, _, info = step(ROUTES[route], system, at, dt=np.float32(0.1))
        for x in (*jax.tree.leaves(new), info.a, info.lam, info.violation):
            assert x.dtype == jnp.float32
        double, _, _ = step(ROUTES[route], wind(0.3), state(on_the_circle(2.0)))
        np.testing.assert_allclose(new.q, double.q, rtol=0, atol=1e-6)

    def test_another_number_does_not_compile_anew(self):
        count = 0

        @jd.tree.pytree
        class Counting(Wind):
            def rate(self, t, x, u):
                nonlocal count
                count += 1
                return super().rate(t, x, u)

        seen = []
        for growth in (0.1, 0.2):
            system = Counting(jnp.array([1.0, 0.0]), jnp.asarray(growth))
            jd.rollout(system, jd.Kinematic.euler(), state([1.0, 0.0]), dt=growth, steps=2)
            seen.append(count)
        assert 0 < seen[0] == seen[1]


class TestMistakes:
    def test_methods_for_forces(self):
        for method in (jd.RungeKutta.rk4(), jd.textbook.ProjectedDerivative()):
            with pytest.raises(
                TypeError,
                match=r"Wind is a KinematicSystem, .* has no forces; integrate it with Kinematic.rk4\(\)",
            ):
                jd.rollout(wind(), method, state([1.0, 0.0]), dt=0.1, steps=1)

    def test_systems_with_forces(self):
        system = Pendulum(*(jnp.asarray(x, float) for x in (1.0, 1.0, 9.81)))
        with pytest.raises(
            TypeError,
            match=r"x' = rate\(t, x, u\), got Pendulum; use RungeKutta",
        ):
            jd.rollout(system, jd.Kinematic(), state([1.0, 0.0]), dt=0.1, steps=1)
        with without_typechecker(), pytest.raises(TypeError, match="must be a jaxdae"):
            jd.kinematic_velocity(system, state([1.0, 0.0]))

    def test_rates_that_do_not_fit(self):
        with without_typechecker():
            with pytest.raises(
                ValueError, match=r"system.rate\(t, x, u\) must return an array of shape \(2,\), got \(3,\)"
            ):
                jd.kinematic_velocity(Wind(jnp.zeros(3), jnp.zeros(())), state([1.0, 0.0]))
            with pytest.raises(
                TypeError, match=r"system.rate\(t, x, u\) returned float32, but the state is float64"
            ):
                jd.kinematic_velocity(Wind(jnp.zeros(2, jnp.float32), jnp.zeros(())), state([1.0, 0.0]))


@jd.tree.pytree
class CurvedRows(jd.KinematicSystem):
    """A wanted velocity, and rows that are not affine in x'."""

    wanted: Any
    weight: Any
    kind: str = jd.tree.static()

    def rate(self, t, x, u):
        return self.wanted

    def mass_matrix(self, q):
        return jnp.diag(self.weight)

    def velocity_constraint(self, t, x, xdot):
        square = xdot @ xdot
        return {
            "quadratic": jnp.stack([square - 1.0]),
            "moving": jnp.stack([square - (1.0 + t) ** 2]),
            "quartic": jnp.stack([jnp.sum(xdot**4) - 1.0]),
            "coupled": jnp.stack([square - 2.0, xdot[0] * xdot[1] - 0.5]),
            "twice": jnp.stack([square - 1.0, 2.0 * square - 2.0]),
            "impossible": jnp.stack([square + 1.0]),
        }[self.kind]


def curved(kind, wanted, weight=(1.0, 1.0, 1.0), dtype=float):
    return CurvedRows(jnp.asarray(wanted, dtype), jnp.asarray(weight, dtype), kind)


@jax.jit
def velocity_and_status(system, at, solver):
    velocity = jd.kinematic_velocity(system, at, solver=solver)
    return *velocity, jd.kinematic_status(system, at, solver=solver)


class TestCurvedRows:
    AT = jd.State(jnp.asarray(0.5), jnp.zeros(3), jnp.zeros(3))
    WANTED = np.array([1.6, 1.2, 0.3])
    NORM = np.sqrt(1.6**2 + 1.2**2 + 0.3**2)

    def found(self, system, at=AT, solver=None):
        v, lam, status = velocity_and_status(system, at, solver)
        return v, lam, jd.Status(int(status))

    @pytest.mark.exhaustive
    def test_the_nearest_velocity_on_a_sphere(self):
        """|x'| = r: the nearest velocity is r f / |f|, for rates of any size; its derivatives are known."""

        def velocity(wanted, t):
            v, _, status = feasible_velocity(
                curved("moving", wanted), jd.State(t, self.AT.q, self.AT.v), None, None
            )
            return v, status

        unit = self.WANTED / self.NORM
        slope = 1.5 * (np.eye(3) - np.outer(unit, unit)) / self.NORM
        for mode in (jax.jacfwd, jax.jacrev):
            run = jax.jit(
                lambda *at, mode=mode: (velocity(*at), mode(lambda *x: velocity(*x)[0], argnums=(0, 1))(*at))
            )
            for size in (1.0, 1e-2, -30.0):
                (v, status), (by_rate, by_time) = run(jnp.array(size * self.WANTED), self.AT.t)
                assert status == jd.Status.OK
                np.testing.assert_allclose(v, np.sign(size) * 1.5 * unit, rtol=0, atol=1e-14)
                np.testing.assert_allclose(by_rate, slope / abs(size), rtol=1e-12, atol=1e-14)
                np.testing.assert_allclose(by_time, np.sign(size) * unit, rtol=0, atol=1e-13)

    @pytest.mark.long
    @pytest.mark.parametrize("kind", ["coupled", pytest.param("quartic", marks=pytest.mark.exhaustive)])
    def test_the_nearest_velocity_in_the_metric_of_the_weight(self, kind):
        """W (x' - f) = J^T lam and w(x') = 0; the derivatives are those of differences."""
        weight = np.array([1.0, 2.0, 5.0])

        @jax.jit
        @functools.partial(jax.jacrev, has_aux=True)
        def found(wanted):
            v, lam, status = velocity_and_status(curved(kind, wanted, weight), self.AT, None)
            return v, (v, lam, status)

        slope, (v, lam, status) = found(jnp.array(self.WANTED))
        assert status == jd.Status.OK
        rows = functools.partial(curved(kind, self.WANTED).velocity_constraint, self.AT.t, self.AT.q)
        np.testing.assert_allclose(rows(v), 0.0, rtol=0, atol=1e-14)
        np.testing.assert_allclose(
            weight * (v - self.WANTED), jax.jacobian(rows)(v).T @ lam, rtol=0, atol=1e-13
        )
        ends = [[found(jnp.array(self.WANTED + s * e))[1][0] for e in 1e-5 * np.eye(3)] for s in (1.0, -1.0)]
        np.testing.assert_allclose(slope, np.subtract(*ends).T / 2e-5, rtol=0, atol=1e-8)

    @pytest.mark.long
    def test_soft_rows(self):
        """min (x' - f)^2 / 2 + r^2 / (2 C): for r = |x'|^2 - 1 and x' along f, x' - f + 2 x' r / C = 0."""
        wanted, compliance = np.array([2.0, 0.0, 0.0]), 0.5
        v, lam, status = self.found(jd.Soft(curved("quadratic", wanted), jnp.array([compliance])))
        assert status == jd.Status.OK
        (expected,) = (
            root.real
            for root in np.roots([2.0 / compliance, 0.0, 1.0 - 2.0 / compliance, -2.0])
            if abs(root.imag) < 1e-9
        )
        np.testing.assert_allclose(v, [expected, 0.0, 0.0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(lam, [-(expected**2 - 1.0) / compliance], rtol=1e-12)
        # An affine row: the slip x' - slide is w C / (1 + C).
        skate = jd.Soft(Skate(jnp.asarray(0.0)), jnp.array([compliance]))
        at = jd.State(jnp.zeros(()), jnp.zeros(3), jnp.zeros(3))
        u = jnp.array([1.0, 0.3, 0.2])
        assert jd.kinematic_status(skate, at, u) == jd.Status.OK
        np.testing.assert_allclose(
            jd.kinematic_velocity(skate, at, u)[0], [1.0, 0.1, 0.2], rtol=0, atol=1e-14
        )

    def test_a_system_knows_whether_its_rows_are_affine(self):
        cases = (
            (wind(), jnp.zeros(2), True),
            (Car(PARALLEL), jnp.zeros(3), True),
            (curved("coupled", np.ones(3)), jnp.zeros(3), False),
        )
        for system, at, affine in cases:
            masked = jd.Masked(system, jnp.ones(system.sizes(at).ng + system.sizes(at).nw))
            for one in (system, masked):
                assert has_affine_rows(one, jd.State(jnp.zeros(()), at, jnp.zeros_like(at))) == affine

    @pytest.mark.long
    def test_rows_that_no_velocity_satisfies_have_a_status(self):
        """sin x' = 2, whose iterations diverge; and |x'|^2 = -1 in the middle of a step, which moved with the status OK."""

        @jd.tree.pytree
        class Rows(jd.KinematicSystem):
            row: Any = jd.tree.static()

            def rate(self, t, x, u):
                return jnp.array([0.3, 0.5])

            def velocity_constraint(self, t, x, xdot):
                return self.row(t, xdot)[None]

        start = jd.State(jnp.zeros(()), jnp.zeros(2), jnp.zeros(2))
        system = Rows(lambda t, v: jnp.sin(v[0]) - 2.0)
        assert jd.kinematic_status(system, start) == jd.Status.NOT_CONVERGED
        system = Rows(lambda t, v: v @ v - jnp.where(jnp.abs(t - 0.015) < 1e-3, -1.0, 1.0))
        found = jd.rollout(system, jd.Kinematic.midpoint(), start, dt=0.01, steps=3)
        np.testing.assert_array_equal(found.info.status, [jd.Status.OK, *[jd.Status.NONFINITE] * 2])
        np.testing.assert_array_equal(found.state.t, 0.01)

    @pytest.mark.long
    def test_statuses(self):
        zero = np.zeros(3)
        assert self.found(curved("impossible", self.WANTED))[2] == jd.Status.NOT_CONVERGED
        assert self.found(curved("quadratic", zero))[2] == jd.Status.SINGULAR
        assert self.found(curved("twice", self.WANTED))[2] == jd.Status.SINGULAR
        self.check_dependent_rows(jd.LeastSquares())
        single = jax.tree.map(lambda x: x.astype(jnp.float32), self.AT)
        v, _, status = self.found(curved("quadratic", self.WANTED, dtype=jnp.float32), single)
        assert (v.dtype, status) == (jnp.float32, jd.Status.OK)
        np.testing.assert_allclose(v, self.WANTED / self.NORM, rtol=0, atol=1e-6)

    @pytest.mark.exhaustive
    def test_statuses_of_other_solvers(self):
        status = self.found(curved("quadratic", np.zeros(3)), solver=jd.LeastSquares())[2]
        assert status == jd.Status.SINGULAR
        self.check_dependent_rows(jd.ConjugateGradient())

    def check_dependent_rows(self, solver):
        v, _, status = self.found(curved("twice", self.WANTED), solver=solver)
        assert status == jd.Status.OK
        np.testing.assert_allclose(v, self.WANTED / self.NORM, rtol=0, atol=1e-14)

    @pytest.mark.long
    def test_worlds_do_not_disturb_each_other(self):
        """A NaN, a rate without nearest velocity and a feasible rate beside others; also a batch of one."""
        wanted = jnp.array([self.WANTED, [np.nan, 1.0, 1.0], np.zeros(3), [0.6, 0.8, 0.0]])

        def found(wanted):
            v, _, status = velocity_and_status(curved("quadratic", wanted), self.AT, None)
            return v, (v, status)

        slope, (v, status) = jax.jit(jax.vmap(jax.jacrev(found, has_aux=True)))(wanted)
        OK, SINGULAR = jd.Status.OK, jd.Status.SINGULAR
        np.testing.assert_array_equal(status, [OK, OK, SINGULAR, OK])
        for k, f in ((0, self.WANTED), (3, np.array([0.6, 0.8, 0.0]))):
            size = np.linalg.norm(f)
            np.testing.assert_allclose(v[k], f / size, rtol=0, atol=1e-14)
            np.testing.assert_allclose(
                slope[k], (np.eye(3) - np.outer(f, f) / size**2) / size, rtol=0, atol=1e-14
            )
        np.testing.assert_allclose(jax.jit(jax.vmap(found))(wanted[:1])[0], v[:1], rtol=0, atol=1e-15)
