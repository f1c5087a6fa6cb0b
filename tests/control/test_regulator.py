"""Linear-quadratic regulators against minimal coordinates, SciPy, and the dense solution of the same problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from control_problems import GRAVITY, cart_pole, cart_pole_linear
from problems import state
from small_systems import central, without_typechecker

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm
from jaxdae.control.riccati import solve_lyapunov, solve_riccati

EULER = jd.Projected(jd.SemiImplicitEuler())
POSITION = jnp.array([2.0, 1.0, 1.0, 1.0, 1.0, 3.0])
WEIGHTS = {"position_weight": POSITION, "velocity_weight": 0.5, "input_weight": 0.1}


@jd.tree.pytree
class PushedPendulum(jd.System):
    """A double pendulum of point masses in Cartesian coordinates; the input pushes the lower mass sideways."""

    mass: jax.Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.repeat(self.mass, 2, total_repeat_length=4))

    def force(self, t, q, v, u):
        return jnp.stack([jnp.zeros_like(q[0]), -GRAVITY * self.mass[0], u[0], -GRAVITY * self.mass[1]])

    def constraint(self, t, q):
        return 0.5 * jnp.stack([q[0] ** 2 + q[1] ** 2 - 1.0, (q[2] - q[0]) ** 2 + (q[3] - q[1]) ** 2 - 1.0])


# The Riccati equation.

riccati = jax.jit(solve_riccati)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 1), (8, 3)])
def test_the_riccati_equation_is_scipys(n, m):
    rng = np.random.default_rng(n)
    a, b, r = rng.normal(size=(n, n)), rng.normal(size=(n, m)), np.diag(rng.uniform(0.1, 2.0, m))
    q = np.diag(rng.uniform(0.1, 2.0, n))
    expected = scipy.linalg.solve_continuous_are(a, b, q, r)
    # Both are backward stable; the equations are well conditioned.
    np.testing.assert_allclose(
        riccati(a, b @ np.linalg.inv(r) @ b.T, q), expected, rtol=0.0, atol=1e-11 * np.abs(expected).max()
    )


def test_the_riccati_equation_without_a_stabilizing_solution_is_nan():
    eye, none = jnp.eye(2), jnp.zeros((2, 2))
    unreachable = riccati(jnp.diag(jnp.array([1.0, -1.0])), jnp.diag(jnp.array([0.0, 1.0])), eye)
    oscillating = riccati(
        jnp.array([[0.0, 1.0], [-1.0, 0.0]]), eye, none
    )  # Nothing in the cost sees the oscillation.
    assert np.all(np.isnan(unreachable))
    assert np.all(np.isnan(oscillating))


def test_the_cheapest_control_mirrors_unstable_eigenvalues():
    """With Q = 0 the solution is not zero: the unstable mode 1 moves to -1, the stable one stays."""
    x = riccati(jnp.diag(jnp.array([1.0, -1.0])), jnp.eye(2), jnp.zeros((2, 2)))
    np.testing.assert_allclose(x, np.diag([2.0, 0.0]), rtol=0, atol=1e-14)


@pytest.mark.long
def test_the_riccati_equation_has_first_and_second_derivatives():
    a, b = jnp.array([[0.3, 1.0], [0.2, -0.1]]), jnp.array([[0.1, 0.0], [0.0, 1.0]])

    @jax.jit
    def value(s):
        return jnp.sum(
            solve_riccati(a + s * b, b * (1.0 + s), jnp.eye(2) * (1.0 + s * s))
            * jnp.array([[1.0, 2.0], [2.0, 3.0]])
        )

    slope = jax.jit(jax.grad(value))
    np.testing.assert_allclose(slope(0.3), central(value, 0.3), rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(value, (0.3,), (1.0,))[1], slope(0.3), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.hessian(value))(0.3), central(slope, 0.3), rtol=1e-8)


def test_the_lyapunov_equation_is_scipys():
    a, q = np.random.default_rng(0).normal(size=(2, 3, 3))
    np.testing.assert_allclose(
        solve_lyapunov(jnp.asarray(a), jnp.asarray(q)),
        scipy.linalg.solve_continuous_lyapunov(a.T, -q),
        rtol=0,
        atol=1e-12,
    )


# Equilibrium.


@pytest.fixture(scope="module")
def upright():
    mechanism, start = cart_pole()
    return mechanism, start, jc.linear_quadratic_regulator(mechanism, start, **WEIGHTS)


@pytest.mark.long
def test_the_gain_is_that_of_minimal_coordinates(upright):
    _, _, law = upright
    a, b, place = cart_pole_linear(1.2, 0.3, 0.8)
    weights = place.T @ np.diag([*POSITION, *[0.5] * 6]) @ place
    x = scipy.linalg.solve_continuous_are(a, b, weights, np.array([[0.1]]))
    np.testing.assert_allclose(law.gain @ place, b.T @ x / 0.1, rtol=0, atol=1e-11)
    np.testing.assert_allclose(place.T @ law.cost @ place, x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(law.u, 0.0, rtol=0, atol=1e-14)


@pytest.mark.long
def test_the_linear_model_has_the_eigenvalues_of_minimal_coordinates(upright):
    mechanism, start, _ = upright
    model = jc.linearize_equilibrium(mechanism, start, jnp.zeros(1))
    a, b, place = cart_pole_linear(1.2, 0.3, 0.8)
    np.testing.assert_allclose(
        np.sort(np.linalg.eigvals(model.a).real), np.sort(np.linalg.eigvals(a).real), rtol=0, atol=1e-7
    )  # 0 is double.
    # Similar by z = N^+ T (minimal coordinates).
    change = np.asarray(model.inverse @ place)
    np.testing.assert_allclose(model.a @ change, change @ a, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.b, change @ b, rtol=0, atol=1e-12)


@pytest.mark.long
def test_the_gain_does_not_see_what_the_constraints_forbid(upright):
    mechanism, start, law = upright
    jacobian = jax.jit(mechanism.constraint_jacobian)(start.t, start.q, start.v)
    np.testing.assert_allclose(law.gain.reshape(2, 6) @ jacobian.T, 0.0, rtol=0, atol=1e-12)


@pytest.mark.long
def test_the_upright_cart_pole_is_stabilized(upright):
    """From 0.4 rad off the vertical and 0.3 m off the place, at a speed: all of it within nonlinear reach."""
    mechanism, _, law = upright
    x, p = 0.3, 0.4
    start = state([x, 0.0, 0.0, x + 0.4 * np.sin(p), 0.4 * np.cos(p), np.pi / 2 - p])
    trajectory = jd.rollout(mechanism, EULER, start, law, dt=0.01, steps=1000, save_every=100)
    jd.raise_if_failed(trajectory)
    off = jnp.max(jnp.abs(jax.jit(jax.vmap(law.deviation))(trajectory.state)), axis=1)
    assert float(off[0]) > 0.1
    assert float(off[-1]) < 1e-5  # The slowest closed-loop eigenvalue is near -1.5: exp(-15) is 3e-7.
    assert float(jnp.max(trajectory.info.violation)) < 1e-13


@pytest.mark.exhaustive
def test_gains_are_differentiated_exactly():
    """A push holds the double pendulum away from the vertical; the equilibrium moves with the mass, and so
    does the basis.
    """
    push, lower = 2.0, 0.5

    def gain(mass, weight):
        system = PushedPendulum(jnp.stack([mass, jnp.full_like(mass, lower)]))
        # Each rod is in line with what hangs on it: weight downward, push sideways.
        rods = jnp.stack(
            [
                jnp.stack([jnp.full_like(mass, push), -GRAVITY * m])
                for m in (mass + lower, jnp.full_like(mass, lower))
            ]
        )
        rods = rods / jnp.linalg.norm(rods, axis=1)[:, None]
        place = state(jnp.concatenate([rods[0], rods[0] + rods[1]]))
        u = jnp.full((1,), push)
        return jc.linear_quadratic_regulator(
            system, place, u, position_weight=1.0, velocity_weight=weight, input_weight=0.1
        ).gain

    along = jax.jit(lambda m, w, *d: jax.jvp(gain, (m, w), d))
    slopes = []
    for value, direction, step in ((1.0, (1.0, 0.0), 1e-5), (3.0, (0.0, 1.0), 1e-4)):
        slopes.append(along(1.0, 3.0, *direction)[1])
        difference = central(
            lambda x, k=len(slopes): along(*((x, 3.0) if k == 1 else (1.0, x)), 1.0, 0.0)[0], value, step
        )
        np.testing.assert_allclose(slopes[-1], difference, rtol=0, atol=1e-8 * np.abs(difference).max())
    reverse = jax.jit(jax.grad(lambda m: jnp.sum(gain(m, 3.0) ** 2)))(1.0)
    np.testing.assert_allclose(reverse, 2.0 * jnp.sum(along(1.0, 3.0, 1.0, 0.0)[0] * slopes[0]), rtol=1e-11)


@pytest.mark.long
def test_a_slope_needs_an_input(upright):
    """On a slope the motor has to hold the weight, which `static_inputs` finds."""
    _, start, _ = upright
    mechanism, _ = cart_pole(slope=0.2)
    law = jc.linear_quadratic_regulator(mechanism, start, **WEIGHTS)
    np.testing.assert_allclose(law.u, 1.5 * GRAVITY * np.sin(0.2), rtol=1e-12)


def test_messages_about_equilibria(upright):
    mechanism, start, _ = upright
    with pytest.raises(
        ValueError, match=r"state and u must be an equilibrium, but the largest acceleration is 14\.7"
    ):
        jc.linear_quadratic_regulator(mechanism, start, jnp.array([10.0]), **WEIGHTS)
    with without_typechecker():
        with pytest.raises(ValueError, match=r"u must have shape \(1,\), got \(2,\)"):
            jc.linear_quadratic_regulator(mechanism, start, jnp.zeros(2), **WEIGHTS)
        for name, weight, expected in (
            ("position_weight", jnp.ones(5), r"\(6,\) or \(6, 6\), got \(5,\)"),
            ("velocity_weight", jnp.ones((6, 5)), r"\(6,\) or \(6, 6\), got \(6, 5\)"),
            ("input_weight", jnp.ones(3), r"\(1,\) or \(1, 1\), got \(3,\)"),
        ):
            with pytest.raises(ValueError, match=f"{name} must be a number, or of shape {expected}"):
                jc.linear_quadratic_regulator(mechanism, start, **{**WEIGHTS, name: weight})
    with pytest.raises(ValueError, match=r"dimension must be between 1 and 2 nv = 12, got 0"):
        jc.linear_quadratic_regulator(mechanism, start, dimension=0, **WEIGHTS)
    # A place that costs nothing is never returned to: an eigenvalue zero that the cost does not see.
    with pytest.raises(ValueError, match="no stabilizing feedback"):
        jc.linear_quadratic_regulator(
            mechanism, start, position_weight=0.0, velocity_weight=0.5, input_weight=0.1
        )


@pytest.mark.long
def test_a_motion_that_no_input_reaches_is_named():
    # Two particles side by side, of which the input pushes the first one, to the right alone.
    bodies = [
        jm.Body(name, mass=1.0, inertia=1.0, pose=(0.0, y, 0.0))
        for name, y in (("pushed", 0.0), ("left", 1.0))
    ]
    rails = [
        jm.Prismatic(f"rail of {body.name}", jm.GROUND, body.name, axis=(1.0, 0.0), at=(0.0, 0.0))
        for body in bodies
    ]
    pair, q = jm.planar_mechanism(bodies, rails, [jm.JointForce("motor", "rail of pushed", input=0)])
    with pytest.raises(ValueError, match=r"do not affect an undamped motion of left\.vx"):
        jc.linear_quadratic_regulator(
            pair, jd.State(0.0, q, 0.0 * q), position_weight=1.0, velocity_weight=1.0, input_weight=1.0
        )


@jd.tree.pytree
class TwoOnSprings(jd.System):
    """A particle in space: a row y = 0 to soften, and z = 0, which is hard. A spring along x - y, inputs
    along x and y.
    """

    def mass_matrix(self, q):
        return 2.0 * jnp.eye(3)

    def force(self, t, q, v, u):
        pull = 3.0 * (q[0] - q[1])
        return jnp.stack([u[0] - pull, u[1] + pull, jnp.zeros_like(pull)])

    def constraint(self, t, q):
        return q[1:]


SOFT = jd.Soft(TwoOnSprings(), jnp.array([0.4, 0.0]))
FEEDBACK = jd.Baumgarte(jnp.asarray(0.7), jnp.asarray(1.9))


@pytest.mark.long
def test_rows_that_give_way_are_dynamics():
    """(M + 1 / C) y'' = f - (2 alpha y' + beta^2 y) / C; the hard row takes z away, and nothing else."""
    rest = state([0.0, 0.0, 0.0])
    model = jc.linearize_equilibrium(SOFT, rest, jnp.zeros(2), stabilization=FEEDBACK)
    rates = (
        np.array([[-1.5, 1.5], [3.0 / 4.5, -(3.0 + 1.9**2 / 0.4) / 4.5]]),
        np.diag([0.0, -1.4 / 0.4 / 4.5]),
    )
    a = np.block([[np.zeros((2, 2)), np.eye(2)], list(rates)])
    place = np.eye(6)[:, [0, 1, 3, 4]]
    change = np.asarray(model.inverse) @ place
    np.testing.assert_allclose(model.a @ change, change @ a, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        model.b, change @ np.array([[0.0, 0.0], [0.0, 0.0], [0.5, 0.0], [0.0, 1.0 / 4.5]]), rtol=0, atol=1e-13
    )
    weights = {"position_weight": 1.0, "velocity_weight": 0.5, "input_weight": 0.1}
    law = jc.linear_quadratic_regulator(SOFT, rest, jnp.zeros(2), stabilization=FEEDBACK, **weights)
    b = np.asarray(np.linalg.solve(change, model.b))
    x = scipy.linalg.solve_continuous_are(a, b, np.diag([1.0, 1.0, 0.5, 0.5]), 0.1 * np.eye(2))
    np.testing.assert_allclose(law.gain @ place, b.T @ x / 0.1, rtol=0, atol=1e-11)
    with pytest.raises(
        ValueError, match=r"dimension must be given under transformations if rows may be soft \(Soft\)"
    ):
        jax.jit(lambda at: jc.linearize_equilibrium(SOFT, at, jnp.zeros(2)))(rest)


@pytest.mark.exhaustive
def test_rows_that_give_way_are_seen_by_the_regulator_of_a_trajectory():
    """One step: K = (R + B^T Q B)^-1 B^T Q A, with A and B of the step in x and y."""
    method = jd.Projected(jd.RungeKutta.heun(stabilization=FEEDBACK))
    weights = {"position_weight": 1.0, "velocity_weight": 0.5, "input_weight": 0.1}
    law = jc.trajectory_regulator(SOFT, method, state([0.2, 0.1, 0.0]), jnp.zeros((1, 2)), dt=0.1, **weights)

    def step(x, u):
        at = jd.State(jnp.zeros(()), jnp.append(x[:2], 0.0), jnp.append(x[2:], 0.0))
        new, _, _ = method.step(SOFT, at, (), u, 0.1)
        return jnp.concatenate([new.q[:2], new.v[:2]])

    a, b = jax.jit(jax.jacfwd(step, argnums=(0, 1)))(jnp.array([0.2, 0.1, 0.0, 0.0]), jnp.zeros(2))
    cost = np.diag([1.0, 1.0, 0.5, 0.5])
    gain = np.linalg.solve(0.1 * np.eye(2) + b.T @ cost @ b, b.T @ cost @ a)
    np.testing.assert_allclose(law.gains[0][:, [0, 1, 3, 4]], gain, rtol=0, atol=1e-12)
    np.testing.assert_allclose(law.gains[0][:, [2, 5]], 0.0, rtol=0, atol=1e-12)


# Trajectory.

DT, STEPS = 0.03, 6
FINAL = {"final_position_weight": 10.0, "final_velocity_weight": jnp.array([2.0, 1.0, 2.0, 1.0])}
ON_STATE = {"position_weight": jnp.array([2.0, 1.0, 1.0, 3.0]), "velocity_weight": 0.5, "input_weight": 0.1}
CONTROLS = jnp.array([1.0, -2.0, 3.0, 0.5, -1.0, 2.0])[:, None]


@pytest.fixture(scope="module")
def swinging():
    system = PushedPendulum(jnp.array([1.0, 0.5]))
    guess = jnp.array([np.sin(0.3), -np.cos(0.3), np.sin(0.3) + np.sin(0.8), -np.cos(0.3) - np.cos(0.8)])
    start, _ = jd.initialize(system, guess, jnp.array([0.5, 0.2, -0.3, 0.1]))
    return system, start, jc.trajectory_regulator(system, EULER, start, CONTROLS, dt=DT, **ON_STATE, **FINAL)


def free_directions(system, start):
    """Returns an orthonormal basis (8, 4) of what the constraints allow, from the singular values of
    numerical derivatives.
    """

    def rows(d):
        q, v = start.q + d[:4], start.v + d[4:]
        return jnp.concatenate([system.constraint(start.t, q), system.constraint_jacobian(start.t, q, v) @ v])

    jacobian = np.stack(
        [np.asarray(central(lambda s, k=k: rows(s * jnp.eye(8)[k]), 0.0)) for k in range(8)], axis=1
    )
    return np.linalg.svd(jacobian)[2][4:].T


@pytest.mark.long
def test_trajectory_gains_solve_the_dense_problem(swinging):
    """The quadratic program over all inputs at once, with the derivatives of whole rollouts in all
    coordinates: no basis, no recursion.
    """
    system, start, law = swinging

    @jax.jit
    def states(d, controls):
        near = jd.State(start.t, start.q + d[:4], start.v + d[4:])
        run = jd.rollout(system, EULER, near, controls, dt=DT)
        return jnp.concatenate([run.state.q, run.state.v], axis=1)

    by_start, by_input = jax.jit(jax.jacfwd(states, argnums=(0, 1)))(jnp.zeros(8), CONTROLS)
    by_input = by_input[..., 0]
    inner = np.diag([2.0, 1.0, 1.0, 3.0, 0.5, 0.5, 0.5, 0.5])
    end = np.diag([10.0, 10.0, 10.0, 10.0, 2.0, 1.0, 2.0, 1.0])
    hessian, mixed = 0.1 * np.eye(STEPS), np.zeros((STEPS, 8))
    for k in range(STEPS):
        weight = end if k == STEPS - 1 else inner
        hessian += np.asarray(by_input[k].T @ weight @ by_input[k])
        mixed += np.asarray(by_input[k].T @ weight @ by_start[k])
    free = free_directions(system, start)
    best = -np.linalg.solve(hessian, mixed) @ free  # (steps, 4)
    np.testing.assert_allclose(-law.gains[0] @ free, best[:1], rtol=0, atol=1e-9 * np.abs(best).max())
    # The later gains, along the motion that the first inputs lead to.
    for k in range(1, STEPS):
        moved = np.asarray(by_start[k - 1] @ free + by_input[k - 1] @ best)
        np.testing.assert_allclose(
            -law.gains[k] @ moved, best[k : k + 1], rtol=0, atol=1e-9 * np.abs(best).max()
        )


@pytest.mark.long
def test_on_the_trajectory_the_feedback_is_the_given_input(swinging):
    system, start, law = swinging
    run = jd.rollout(system, jc.Sampled(EULER, law), start, dt=DT, steps=STEPS)
    np.testing.assert_allclose(run.state.q, law.q[1:], rtol=0, atol=1e-14)
    # Between the steps q and v are interpolated; after the end the last state is the reference.
    middle = jd.State(0.015, 0.5 * (law.q[0] + law.q[1]), 0.5 * (law.v[0] + law.v[1]))
    np.testing.assert_allclose(law(jnp.asarray(0.015), middle), CONTROLS[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        law(jnp.asarray(9.0), jd.State(9.0, law.q[-1], law.v[-1])), CONTROLS[-1], rtol=0, atol=1e-12
    )
    # 3 dt is not 0.09 exactly: a rounding error early is on time.
    just_before = jnp.asarray(0.09 - 1e-12)
    np.testing.assert_allclose(
        law(just_before, jd.State(just_before, law.q[3], law.v[3])), CONTROLS[3], rtol=0, atol=1e-8
    )


@pytest.mark.exhaustive
def test_trajectory_gains_are_differentiated_exactly(swinging):
    system, start, law = swinging

    def gains(mass):
        model = jd.tree.set_leaf(system, "mass", jnp.stack([mass, jnp.full_like(mass, 0.5)]))
        return jc.trajectory_regulator(model, EULER, start, CONTROLS, dt=DT, **ON_STATE, **FINAL).gains

    both = jax.jit(lambda mass: jax.jvp(gains, (mass,), (1.0,)))
    found, slope = both(1.0)
    np.testing.assert_allclose(found, law.gains, rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        slope, central(lambda mass: both(mass)[0], 1.0), rtol=0, atol=1e-7 * np.abs(slope).max()
    )


@pytest.mark.long
def test_messages_about_trajectories(swinging):
    system, start, _ = swinging
    with pytest.raises(ValueError, match=r"controls must have shape \(steps, nu\), got \(6,\)"):
        jc.trajectory_regulator(system, EULER, start, CONTROLS[:, 0], dt=DT, **ON_STATE)
    with pytest.raises(jd.SimulationError):
        jc.trajectory_regulator(system, EULER, start, CONTROLS * jnp.nan, dt=DT, **ON_STATE)
