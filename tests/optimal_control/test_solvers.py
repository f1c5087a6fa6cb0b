"""Optimal control on the manifold: against SciPy, against exact second derivatives, and at the edges.

One pendulum in Cartesian coordinates, pushed sideways, serves most tests: two coordinates, one rod, so that a
wrong tangent space shows.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from control_problems import cart_pole
from problems import state
from small_systems import Oscillator, without_typechecker

import jaxdae as jd
from jaxdae import control as jc
from jaxdae import mechanisms as jm
from jaxdae import optimal_control as oc
from jaxdae.optimal_control.box_newton import box_minimum
from jaxdae.optimal_control.minimal_coordinates import chart_at, coordinates, moved, placed
from jaxdae.optimal_control.model_predictive import shifted

EULER = jd.Projected(jd.SemiImplicitEuler())


@jd.tree.pytree
class Pushed(jd.System):
    """A point mass of 1 kg on a rod of 1 m about the origin; the input pushes it sideways, in N."""

    gravity: jax.Array
    n_inputs = 1

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.stack([u[0], -self.gravity])

    def constraint(self, t, q):
        return 0.5 * jnp.stack([q @ q - 1.0])


def running(at, u):
    return 0.5 * (1e-2 * u @ u + 1e-2 * at.v @ at.v)


def final(at):
    return 0.5 * (10.0 * (at.q[0] - 0.6) ** 2 + at.v @ at.v)


def hanging(**changes):
    """Returns the problem of a pendulum that is to swing from the lowest point to x = 0.6 m."""
    start = state([0.0, -1.0])
    given = {"dt": 0.05, "steps": 12, "running": running, "final": final}
    return oc.Problem(system=Pushed(jnp.array(9.81)), integrator=EULER, state=start, **{**given, **changes})


ZERO = jnp.zeros((12, 1))
LIMITED = hanging(lower=-3.0, upper=3.0)


@pytest.fixture(scope="module")
def limited():
    return oc.ilqr(LIMITED, ZERO, tolerance=1e-10)


@pytest.mark.exhaustive
def test_inputs_are_those_of_scipy_within_limits(limited):
    by = oc.as_scipy(LIMITED, ZERO)
    found = scipy.optimize.minimize(
        **by.arguments, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-9, "maxiter": 500}
    )
    assert int(limited.status) == jd.Status.OK
    np.testing.assert_allclose(limited.controls, by.controls(found.x), rtol=0, atol=1e-6)
    assert float(jnp.max(jnp.abs(limited.controls))) == 3.0  # limits hold, and are met exactly
    np.testing.assert_allclose(limited.cost, found.fun, rtol=1e-12)
    # The states are the motion of these inputs, and lie on the manifold.
    motion = jd.rollout(LIMITED.system, EULER, LIMITED.state, LIMITED.held(limited.controls), dt=0.05)
    np.testing.assert_allclose(limited.states.q[1:], motion.state.q, rtol=0, atol=1e-14)
    np.testing.assert_allclose(jnp.linalg.norm(limited.states.q, axis=1), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("INCONSISTENT_START", {"state": state([0.0, -1.1])}),
        ("NONFINITE", {"final": lambda at: jnp.log(at.q[1] - 5.0)}),
    ],
)
def test_what_no_optimizer_of_scipy_could_tell_is_told_at_the_guess(name, changes):
    """They call an infinite cost without slope a success."""
    problem = dataclasses.replace(hanging(steps=2), **changes)
    with pytest.raises(jd.SimulationError, match=f"as_scipy: {name} at the guess"):
        oc.as_scipy(problem, ZERO[:2])


def test_guesses_and_starts_that_are_no_numbers():
    with pytest.raises(ValueError, match="controls must be finite"):
        oc.as_scipy(hanging(), ZERO.at[3].set(jnp.nan))
    with pytest.raises(ValueError, match="because the rows are not finite"):
        oc.ilqr(dataclasses.replace(hanging(), state=state([0.0, -1.0], [np.nan, 0.0])), ZERO)


@pytest.mark.exhaustive
def test_exact_curvature_converges_quadratically():
    found = oc.ilqr(hanging(), ZERO, curvature=oc.Curvature.EXACT, tolerance=1e-13)
    slope = np.asarray(found.history.gradient)
    slope = slope[: int(found.iterations)]
    assert int(found.status) == jd.Status.OK
    last = slope[slope < 0.1]
    # Each is below the square of the one before, times a constant, down to rounding: not so with Gauss-
    # Newton, which is linear.
    assert len(last) >= 3
    assert all(b <= 10.0 * a**2 + 1e-14 for a, b in itertools.pairwise(last))
    # Its gains are derivatives of solutions: from a start nearby the feedback answers as a new solution does,
    # to second order.
    near = dataclasses.replace(hanging(), state=state([np.sin(1e-3), -np.cos(1e-3)]))
    again = oc.ilqr(near, found.controls, curvature=oc.Curvature.EXACT, tolerance=1e-11)
    first = jax.tree.map(lambda x: x[0], again.states)
    answer = found.feedback(hanging())(first.t, first) - found.controls[0]
    np.testing.assert_allclose(answer, again.controls[0] - found.controls[0], rtol=5e-3)
    linear = np.asarray(oc.ilqr(hanging(), ZERO, tolerance=1e-13).history.gradient)
    linear = linear[np.isfinite(linear)]
    assert any(b > 10.0 * a**2 + 1e-14 for a, b in itertools.pairwise(linear[linear < 0.1]))


@pytest.mark.exhaustive
def test_newton_agrees_with_the_hessian_of_all_inputs_at_once():
    """The step of the first pass, with its curved charts and costates, is -H^-1 g of the whole problem by
    plain differentiation.
    """
    guess = 0.3 * jnp.sin(jnp.arange(12.0))[:, None] + 1.0
    near = oc.ilqr(hanging(), guess, tolerance=1e-6).controls + 1e-3 * jnp.cos(jnp.arange(12.0))[:, None]
    by = oc.as_scipy(hanging(), near)
    newton = by.x0 - np.linalg.solve(by.hess(by.x0), by.jac(by.x0))
    one = oc.ilqr(hanging(), near, curvature=oc.Curvature.EXACT, iterations=1, damping=0.0)
    # Feedback and linear steps differ by second order in the change, 1e-3.
    np.testing.assert_allclose(one.controls.ravel(), newton, rtol=0, atol=2e-5)
    np.testing.assert_allclose(by.hessp(by.x0, by.x0), by.hess(by.x0) @ by.x0, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [oc.ilqr, pytest.param(oc.multiple_shooting, marks=pytest.mark.exhaustive)]
)
def test_constraints_hold_and_the_inputs_are_those_of_scipy(method):
    """A speed that may not be passed, an end that is prescribed, and a speed at the end; all of them are
    felt.
    """
    problem = hanging(
        inequality=lambda at, u: jnp.stack([at.v[0] - 1.4]),
        final_equality=lambda at: jnp.stack([at.q[0] - 0.55]),
        final_inequality=lambda at: jnp.stack([at.v[0] - 0.05]),
        lower=-8.0,
        upper=8.0,
    )
    found = method(problem, ZERO, tolerance=1e-9, feasibility=1e-9, iterations=200)
    by = oc.as_scipy(problem, found.controls + 0.01)
    best = scipy.optimize.minimize(**by.arguments, method="SLSQP", options={"ftol": 1e-15, "maxiter": 300})
    assert int(found.status) == jd.Status.OK
    assert float(found.violation) <= 1e-9
    np.testing.assert_allclose(found.controls.ravel(), best.x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.states.q[-1, 0], 0.55, rtol=0, atol=1e-9)
    for side in (found.states.v[:-1, 0] - 1.4, found.states.v[-1:, 0] - 0.05):
        np.testing.assert_allclose(jnp.max(side), 0.0, rtol=0, atol=1e-9)
    for rows in by.constraints:
        y = np.ones(len(rows["fun"](by.x0)))
        bend = (rows["jac"](by.x0 + 1e-6) - rows["jac"](by.x0 - 1e-6)).T @ y / 2e-6
        np.testing.assert_allclose(rows["hess"](by.x0, y) @ np.ones(12), bend, rtol=0, atol=1e-7)
    # With weak motors the end is out of reach: no solution, and no NaN.
    never = method(
        dataclasses.replace(problem, lower=-4.0, upper=4.0),
        ZERO,
        tolerance=1e-9,
        feasibility=1e-9,
        iterations=200,
    )
    assert int(never.status) == jd.Status.NOT_CONVERGED
    assert float(never.violation) > 0.1
    assert np.isfinite(never.cost)


@pytest.mark.exhaustive
def test_the_cart_pole_of_a_mechanism_is_that_of_scipy():
    """Six coordinates, four rows, two freedoms."""
    mechanism, upright = cart_pole()
    lean = 0.2
    start = state([0.0, 0.0, 0.0, 0.4 * np.sin(lean), 0.4 * np.cos(lean), np.pi / 2 - lean])

    def cost(at, u=None):
        return 0.5 * (at.q[0] ** 2 + 5.0 * (at.q[5] - np.pi / 2) ** 2 + 0.1 * at.v @ at.v)

    problem = oc.Problem(
        system=mechanism,
        integrator=EULER,
        state=start,
        dt=0.02,
        steps=20,
        every=2,
        running=lambda at, u: cost(at) + 0.005 * u @ u,
        final=lambda at: 10.0 * cost(at),
        lower=-15.0,
        upper=15.0,
    )
    found = oc.ilqr(problem, jnp.zeros((10, 1)), tolerance=1e-10)
    by = oc.as_scipy(problem, jnp.zeros((10, 1)))
    best = scipy.optimize.minimize(
        **by.arguments, method="L-BFGS-B", options={"ftol": 0.0, "gtol": 1e-8, "maxiter": 2000, "maxcor": 20}
    )
    assert int(found.status) == jd.Status.OK
    np.testing.assert_allclose(found.controls.ravel(), best.x, rtol=0, atol=1e-6)
    np.testing.assert_allclose(upright.q[5], np.pi / 2)


@pytest.mark.long
def test_a_guess_of_states_that_is_no_motion_leads_to_the_same_end(limited):
    angle = np.linspace(0.0, 0.6, 13)
    guess = jd.State(jnp.zeros(13), jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1), jnp.zeros((13, 2)))
    found = oc.multiple_shooting(LIMITED, ZERO, guess, tolerance=1e-10)
    assert int(found.status) == jd.Status.OK
    assert float(found.history.gap[0]) > 0.1
    assert float(found.gap) < 1e-12
    np.testing.assert_allclose(found.controls, limited.controls, rtol=0, atol=1e-7)


@pytest.mark.long
def test_statuses_say_what_went_wrong():
    open_ = dataclasses.replace(LIMITED, state=state([0.0, -1.2]))
    assert int(oc.ilqr(open_, ZERO, tolerance=1e-10).status) == jd.Status.INCONSISTENT_START
    # A motion that fails costs infinity for SciPy, and is no number anywhere else.
    assert np.isinf(oc.as_scipy(LIMITED, ZERO).fun(np.full(12, np.nan)))


@pytest.mark.exhaustive
def test_a_guess_on_a_maximum_is_the_end_and_one_beside_it_is_not():
    """The cost is even about the lowest point, where it is largest: without a slope nothing but the damping
    tells.
    """
    away = hanging(final=lambda at: 5.0 * (1.0 - at.q[0] ** 2) + 0.5 * at.v @ at.v)
    found = jax.vmap(lambda u: oc.ilqr(away, u))(jnp.stack([ZERO, ZERO + 3e-3]))
    np.testing.assert_array_equal(found.status, jd.Status.OK)
    np.testing.assert_array_equal(found.controls[0], ZERO)
    assert found.history.damping[0, 0] > 1e-6  # that of the start
    assert found.cost[1] < 0.95 * found.cost[0]


@pytest.mark.long
def test_charts_are_exact_to_second_order():
    system, at = (
        Pushed(jnp.array(9.81)),
        jd.State(jnp.zeros(()), jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])),
    )
    chart = chart_at(system, at, 2)
    z = jnp.array([0.3, -0.5])
    off = []
    for size in (1e-1, 1e-2):
        near = placed(system, chart, at, size * z, True)
        np.testing.assert_allclose(coordinates(system, chart, at, near), size * z, rtol=0, atol=1e-15)
        off.append(float(jnp.abs(system.constraint(0.0, near.q)[0])) + float(jnp.abs(near.q @ near.v)))
    assert off[1] < 2e-3 * off[0]  # third order: a thousandth
    back = moved(system, chart, at, 1e-2 * z)
    np.testing.assert_allclose([back.q @ back.q - 1.0, back.q @ back.v], 0.0, rtol=0, atol=1e-12)


@pytest.mark.long
def test_quadratic_functions_in_boxes_are_those_of_scipy():
    rng = np.random.default_rng(0)
    solve = jax.jit(box_minimum)
    for _ in range(20):
        a, g = rng.normal(size=(4, 4)), rng.normal(size=4)
        h, lower, upper = a @ a.T + 0.1 * np.eye(4), -rng.uniform(0.0, 0.5, 4), rng.uniform(0.0, 0.5, 4)
        x, free, w, good = solve(h, g, lower, upper)
        best = scipy.optimize.lsq_linear(
            np.linalg.cholesky(h).T, -np.linalg.solve(np.linalg.cholesky(h), g), (lower, upper), tol=1e-14
        )
        np.testing.assert_allclose(
            x, best.x, rtol=0, atol=1e-7
        )  # that solver's interior points stay that far from limits
        slope = np.asarray(h @ x + g)
        np.testing.assert_allclose(slope[free], 0.0, rtol=0, atol=1e-12)
        assert bool(good)
        np.testing.assert_allclose(
            (w.T @ w)[np.ix_(free, free)], np.linalg.inv(h[np.ix_(free, free)]), rtol=0, atol=1e-9
        )
    x, _, _, good = solve(np.diag([1.0, -1.0, 1.0, 1.0]), g, lower, upper)
    assert not bool(good)
    assert np.all(np.isfinite(x))


# Model-predictive control.


def test_plans_are_shifted():
    values = jnp.array([[0.0], [1.0], [4.0]])
    np.testing.assert_allclose(shifted(values, jnp.array(0.0)), values)
    np.testing.assert_allclose(
        shifted(values, jnp.array(1.0 - 1e-9)), [[1.0], [4.0], [4.0]], rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(shifted(values, jnp.array(0.5)), [[0.5], [2.5], [4.0]])
    np.testing.assert_allclose(shifted(values, jnp.array(9.0)), [[4.0]] * 3)


@pytest.mark.exhaustive
def test_model_predictive_control_in_a_batch_rollout(limited):
    """The plant is the model: what was planned is what happens as long as the horizon sees it, in every
    world.
    """
    hold = hanging(
        running=lambda at, u: 0.5 * (10.0 * (at.q[0] - 0.2) ** 2 + at.v @ at.v + 1e-2 * u @ u),
        lower=-6.0,
        upper=6.0,
    )
    law = oc.ModelPredictive(problem=hold, guess=ZERO, iterations=2)
    angle = np.array([0.0, 0.1])
    starts = jd.State(0.0, jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1), jnp.zeros((2, 2)))
    run = jd.batch_rollout(hold.system, jc.Sampled(EULER, law), starts, dt=0.05, steps=60)
    jd.raise_if_failed(run)
    plan = run.memory[1]
    np.testing.assert_array_equal(plan.status, jd.Status.OK)
    np.testing.assert_array_equal(plan.failures, 0)
    # At rest where the cost is least; the input has a cost too, so that it is near 0.2 and the same in both
    # worlds.
    np.testing.assert_allclose(run.state.q[:, -1, 0], 0.2, rtol=0, atol=0.05)
    np.testing.assert_allclose(run.state.q[0, -1], run.state.q[1, -1], rtol=0, atol=1e-4)
    np.testing.assert_allclose(run.state.v[:, -1], 0.0, rtol=0, atol=1e-3)
    # A model that fails leaves the plan before, and says so.
    broken = oc.ModelPredictive(
        problem=dataclasses.replace(hold, running=lambda at, u: jnp.nan * at.q[0]), guess=ZERO + 0.5
    )
    run = jd.rollout(hold.system, jc.Sampled(EULER, broken), hold.state, dt=0.05, steps=3)
    jd.raise_if_failed(run)
    assert int(run.memory[1].failures) == 3
    assert int(run.memory[1].status) == jd.Status.NONFINITE
    np.testing.assert_array_equal(run.memory[1].controls, 0.5)


# Awkward points.


@pytest.mark.long
def test_costs_without_a_bound_and_ends_out_of_reach_are_told():
    free = Oscillator(mass=jnp.array([1.0]), stiffness=jnp.asarray(0.0))
    endless = oc.Problem(
        system=free, integrator=EULER, state=state([0.0]), dt=0.1, steps=5, running=lambda at, u: u[0]
    )
    found = oc.ilqr(endless, ZERO[:5])
    assert int(found.status) == jd.Status.NOT_CONVERGED
    assert float(found.gradient) == 1.0
    far = hanging(lower=-1e-3, upper=1e-3, final=None, final_equality=lambda at: at.q[:1] - 0.5)
    plan = oc.ModelPredictive(problem=far, guess=ZERO).init(far.system, far.state)
    _, plan = jax.jit(
        lambda plan: oc.ModelPredictive(problem=far, guess=ZERO).update(0.05, far.state, plan, 0.05)
    )(plan)
    assert int(plan.failures) == 0
    assert 0.49 < float(plan.violation) < 0.51


@pytest.mark.long
def test_awkward_starts_limits_and_guesses_in_one_program(limited):
    """Guesses at a limit, limits that leave no choice, starts that are NaN or off the rod, each beside the
    others.
    """
    lowest = LIMITED.state
    cases = [  # start, lower, upper, guess, status
        (lowest.q, -3.0, 3.0, 0.0, jd.Status.OK),
        (lowest.q, -3.0, 3.0, 3.0, jd.Status.OK),
        (lowest.q, 0.5, 0.5, -7.0, jd.Status.OK),
        (lowest.q, 0.0, 0.0, 0.0, jd.Status.OK),
        (lowest.q * jnp.nan, -3.0, 3.0, 0.0, jd.Status.NONFINITE),
        (lowest.q * 1.2, -3.0, 3.0, 0.0, jd.Status.INCONSISTENT_START),
        (lowest.q, -3.0, 3.0, jnp.nan, jd.Status.NONFINITE),
    ]
    q, lower, upper, guess, expected = (
        jnp.stack([jnp.asarray(case[k], float) for case in cases]) for k in range(5)
    )

    @jax.jit
    @jax.vmap
    def solved(q, lower, upper, guess):
        problem = dataclasses.replace(LIMITED, state=jd.State(0.0, q, lowest.v), lower=lower, upper=upper)
        return oc.ilqr(problem, ZERO + guess, tolerance=1e-10)

    found = solved(q, lower, upper, guess)
    np.testing.assert_array_equal(found.status, expected)
    np.testing.assert_array_equal(np.isfinite(found.cost), expected == jd.Status.OK)
    for k, held in ((0, limited.controls), (1, limited.controls), (2, 0.5), (3, 0.0)):
        np.testing.assert_allclose(found.controls[k], ZERO + held, rtol=0, atol=1e-7)
    # Where nothing can be chosen nothing answers either, and where the answer is at its limits nearly
    # nothing.
    np.testing.assert_array_equal(found.gains[2:4], 0.0)
    assert np.all(np.isfinite(found.gains[:4]))
    # A batch of one is the problem itself.
    one = solved(q[:1], lower[:1], upper[:1], guess[:1])
    np.testing.assert_allclose(one.controls[0], limited.controls, rtol=0, atol=1e-9)


@pytest.mark.exhaustive
def test_a_horizon_of_one_stage():
    """The best input is that of a search along the line."""
    problem = hanging(steps=1, dt=0.1, lower=-20.0, upper=20.0)
    found = oc.ilqr(problem, jnp.zeros((1, 1)), tolerance=1e-12)
    by = oc.as_scipy(problem, jnp.zeros((1, 1)))
    best = scipy.optimize.minimize_scalar(
        lambda u: by.fun(np.array([u])), bounds=(-20.0, 20.0), options={"xatol": 1e-9}
    )
    assert int(found.status) == jd.Status.OK
    np.testing.assert_allclose(found.controls, best.x, rtol=0, atol=1e-5)


@pytest.mark.long
def test_a_singular_start_has_no_motion_and_says_so():
    """Where two lines cross, the row x^2 = y^2 has no derivative: no direction is its own."""

    @jd.tree.pytree
    class Crossing(Pushed):
        def constraint(self, t, q):
            return 0.5 * jnp.stack([q[0] ** 2 - q[1] ** 2])

    problem = dataclasses.replace(LIMITED, system=Crossing(jnp.array(9.81)), state=state([0.0, 0.0]))
    found = oc.ilqr(problem, ZERO)
    assert int(found.status) not in (jd.Status.OK, jd.Status.NOT_CONVERGED)
    assert np.isnan(found.cost)
    assert np.all(np.isfinite(found.controls))


@pytest.mark.long
def test_a_cost_that_bends_downward_does_not_stop_a_controller():
    """Away from the middle is to be rewarded: no input has least cost in the quadratic problem, but one pass
    moves on nevertheless.
    """
    high = hanging(
        running=lambda at, u: -50.0 * at.q[0] ** 2 + 1e-2 * u @ u, final=None, lower=-3.0, upper=3.0
    )
    found = oc.ilqr(high, ZERO + 0.1, iterations=1)
    assert int(found.iterations) == 1
    assert float(found.history.damping[0]) > 1e-6
    assert float(found.history.step[0]) > 0.0
    assert float(found.cost) < float(found.history.cost[0])


# Messages.


@pytest.mark.long
@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_forces_beyond_the_stability_limit_are_unstable(speed):
    """Friction that holds an arm against its weight. From a speed of 1 rad/s, the arm stops within 50 ms."""
    mechanism, q = jm.planar_mechanism(
        [jm.Body("arm", 1.0, 0.011, pose=(0.3, 0.0, 0.0))],
        [jm.Revolute("hinge", "ground", "arm", at=(0.0, 0.0), friction=5.0)],
        [jm.JointForce("motor", "hinge", force=0.0, input=0)],
        coordinates=jm.Joints(),
    )
    problem = oc.Problem(
        system=mechanism,
        integrator=jd.RungeKutta.rk4(),
        state=jd.State(0.0, q, jnp.full(1, speed)),
        dt=2e-3,  # The limit of RK4 is 0.57 ms.
        steps=30,
        running=lambda at, u: u @ u,
    )
    solve = jax.jit(lambda dt: oc.ilqr(dataclasses.replace(problem, dt=dt), jnp.zeros((30, 1))))
    assert solve(2e-3).status == jd.Status.UNSTABLE
    assert solve(5e-4).status == jd.Status.OK


def test_mistakes_are_named():
    @jd.tree.pytree
    class Still(Pushed):
        n_inputs = 0

    still = Still(jnp.array(9.81))
    cases = [
        (
            lambda: oc.ilqr(LIMITED, jnp.zeros(12)),
            ValueError,
            r"controls must have the shape \(stages, nu\) = \(12, 1\), got \(12,\)",
        ),
        (lambda: oc.ilqr("problem", ZERO), TypeError, "problem must be a Problem"),
        (lambda: oc.ilqr(hanging(steps=13, every=2), ZERO), ValueError, "every = 2 must divide steps = 13"),
        (lambda: oc.ilqr(hanging(steps=0), ZERO), ValueError, r"Problem.steps must be at least 1, got 0"),
        (
            lambda: oc.ilqr(hanging(start_tolerance=-1.0), ZERO),
            ValueError,
            "start_tolerance must be non-negative",
        ),
        (lambda: oc.ilqr(hanging(lower=1.0, upper=-1.0), ZERO), ValueError, "lower must not be above upper"),
        (
            lambda: oc.ilqr(hanging(lower=jnp.zeros(2)), ZERO),
            ValueError,
            r"Problem.lower must be a number or have the shape",
        ),
        (lambda: oc.ilqr(hanging(running=None, final=None), ZERO), ValueError, "at least one cost"),
        (
            lambda: oc.ilqr(hanging(running=lambda at, u: u * at.q), ZERO),
            ValueError,
            r"Problem.running must return a number",
        ),
        (lambda: oc.ilqr(hanging(final=3.0), ZERO), TypeError, "final must be a function or None"),
        (lambda: oc.ilqr(LIMITED, jnp.nan * ZERO), ValueError, "controls must be finite"),
        (
            lambda: oc.ilqr(dataclasses.replace(LIMITED, system=still), ZERO[:, :0]),
            ValueError,
            "no inputs to optimize",
        ),
        (lambda: oc.ilqr(LIMITED, ZERO, iterations=0), ValueError, "iterations must be at least 1"),
        (lambda: oc.ilqr(LIMITED, ZERO, tolerance=-1.0), ValueError, "tolerance must be positive"),
        (
            lambda: oc.multiple_shooting(LIMITED, ZERO, state([0.0, -1.0])),
            ValueError,
            r"states.q must have the shape",
        ),
        (lambda: oc.multiple_shooting(LIMITED, ZERO, ZERO), TypeError, r"states must be a stacked State"),
        (
            lambda: oc.ModelPredictive(problem=LIMITED, guess=ZERO)(0.0, LIMITED.state),
            TypeError,
            "has memory",
        ),
    ]
    for call, kind, message in cases:
        with without_typechecker(), pytest.raises(kind, match=message):
            call()
