"""Projections against the formulas of the lecture, written with a null-space basis from an SVD; and against
their own definition.
"""

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import cast, double_pendulum, state
from small_systems import (
    central,
    consistent,
    everything,
    everywhere,
    oscillating,
    oscillator,
    wheels,
    wheels_states,
)

import jaxdae as jd
from jaxdae import Metric, Origin
from jaxdae.integrators.projected import projection_status
from jaxdae.systems.system import velocity_residual

ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
METRICS, ORIGINS = (Metric.EUCLIDEAN, Metric.MASS), (Origin.ESTIMATE, Origin.PREVIOUS)
SOLVERS = {name: catalogue.SOLVERS[name].solver for name in ("dense_kkt", "schur_complement")}

metrics = pytest.mark.parametrize("metric", METRICS)
origins = pytest.mark.parametrize("origin", ORIGINS)


def near():
    """A consistent state of `Everything`, and one some millimetres away from it."""
    previous = consistent()
    return previous, jd.State(
        previous.t + 0.01, previous.q + 0.01 * jnp.cos(jnp.arange(4.0)), previous.v + 0.02
    )


def basis(jacobian):
    """Returns N (n, n - rank): the right singular vectors without singular value."""
    jacobian = np.asarray(jacobian)
    return np.linalg.svd(jacobian)[2][np.linalg.matrix_rank(jacobian) :].T


def position_rows(system, t, q):
    g = system.constraint(t, q)
    return np.asarray(g), np.asarray(system.constraint_jacobian(t, q, jnp.zeros_like(q)))[: g.shape[0]]


class TestLecture:
    """The formulas of lecture 5, in the Euclidean metric."""

    @origins
    @pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
    def test_linear_position_projection(self, origin, solver):
        system, (previous, estimate) = everything(), near()
        projected = jd.textbook.LinearPositionProjection(Metric.EUCLIDEAN, origin, solver).project(
            system, estimate, previous
        )
        q0 = estimate.q if origin is Origin.ESTIMATE else previous.q
        g0, jacobian = position_rows(system, estimate.t, q0)
        n = basis(jacobian)
        expected = (np.eye(4) - n @ n.T) @ (q0 - np.linalg.pinv(jacobian) @ g0) + n @ n.T @ estimate.q
        np.testing.assert_allclose(projected.q, expected, **ROUND_OFF)
        np.testing.assert_array_equal(projected.v, estimate.v)
        np.testing.assert_array_equal(projected.t, estimate.t)

    def test_velocity_projection(self):
        # With constraints at rest, v = N N^T v_e.
        system, (_, estimate) = jd.tree.set_leaf(everything(), "frequency", jnp.zeros(())), near()
        estimate = jd.State(jnp.zeros(()), estimate.q, estimate.v)
        n = basis(jd.operators.constraint_terms(system, estimate).jacobian)
        projected = jd.VelocityProjection(Metric.EUCLIDEAN).project(system, estimate)
        np.testing.assert_allclose(projected.v, n @ n.T @ estimate.v, **ROUND_OFF)
        np.testing.assert_array_equal(projected.q, estimate.q)

    def test_linear_projection_leaves_second_order(self):
        # Ten times closer, a hundred times smaller violation.
        system, (previous, estimate) = everything(), near()
        left = []
        for scale in (0.1, 0.01):
            q = previous.q + scale * (estimate.q - previous.q)
            projected = jd.textbook.LinearPositionProjection().project(
                system, jd.State(previous.t, q, previous.v)
            )
            left.append(float(jnp.max(jnp.abs(system.constraint(projected.t, projected.q)))))
        assert 80.0 < left[0] / left[1] < 120.0


class TestMetric:
    @metrics
    def test_velocities_change_by_constraint_impulses_only(self, metric):
        # The definition of the projection: [g'; w] = 0, and W (v - v_e) is orthogonal to every feasible
        # velocity.
        system, (_, estimate) = everything(), near()
        projected = jd.VelocityProjection(metric).project(system, estimate)
        weight = (
            np.asarray(system.mass_operator(estimate.q).as_dense()) if metric is Metric.MASS else np.eye(4)
        )
        n = basis(jd.operators.constraint_terms(system, estimate).jacobian)
        np.testing.assert_allclose(velocity_residual(system, projected), np.zeros(3), rtol=0, atol=1e-14)
        np.testing.assert_allclose(n.T @ weight @ (projected.v - estimate.v), 0.0, rtol=0, atol=1e-14)

    @metrics
    @origins
    @pytest.mark.parametrize("kind", [jd.PositionProjection, jd.textbook.LinearPositionProjection])
    def test_positions_change_by_constraint_forces_only(self, kind, metric, origin):
        system, (previous, estimate) = everything(), near()
        projected = kind(metric, origin).project(system, estimate, previous)
        origin_state = estimate if origin is Origin.ESTIMATE else previous
        weight = (
            np.asarray(system.mass_operator(origin_state.q).as_dense())
            if metric is Metric.MASS
            else np.eye(4)
        )
        _, jacobian = position_rows(system, estimate.t, origin_state.q)
        np.testing.assert_allclose(
            basis(jacobian).T @ weight @ (projected.q - estimate.q), 0.0, rtol=0, atol=1e-14
        )

    def test_the_metrics_differ(self):
        system, (_, estimate) = everything(), near()
        results = [
            jd.Projection(jd.PositionProjection(m), jd.VelocityProjection(m)).project(system, estimate)
            for m in METRICS
        ]
        assert np.max(np.abs(results[0].q - results[1].q)) > 1e-4
        assert np.max(np.abs(results[0].v - results[1].v)) > 1e-4


class TestIteratedProjection:
    @metrics
    @origins
    def test_converges_to_round_off(self, metric, origin):
        system, (previous, estimate) = everything(), near()
        projected = jd.PositionProjection(metric, origin, iterations=8).project(system, estimate, previous)
        # Entries of g are sums of a few terms of order 1.
        np.testing.assert_allclose(system.constraint(projected.t, projected.q), 0.0, rtol=0, atol=4e-16)

    def test_three_corrections_take_a_small_violation_to_round_off(self):
        system, (previous, _) = everything(), near()
        estimate = jd.State(previous.t, previous.q + 1e-4 * jnp.cos(jnp.arange(4.0)), previous.v)
        assert np.max(np.abs(system.constraint(estimate.t, estimate.q))) > 5e-5
        projected = jd.PositionProjection().project(system, estimate)
        np.testing.assert_allclose(system.constraint(projected.t, projected.q), 0.0, rtol=0, atol=4e-16)

    def test_one_correction_is_the_linear_projection(self):
        system, (_previous, estimate) = everything(), near()
        once = jd.PositionProjection(iterations=1).project(system, estimate)
        np.testing.assert_allclose(
            once.q, jd.textbook.LinearPositionProjection().project(system, estimate).q, **ROUND_OFF
        )

    def test_does_not_move_a_consistent_state(self):
        system = everything()
        at = consistent()
        projected = jd.Projection().project(system, at)
        np.testing.assert_allclose(projected.q, at.q, rtol=0.0, atol=1e-15)
        np.testing.assert_allclose(projected.v, at.v, rtol=0.0, atol=1e-15)

    def test_single_precision(self):
        @jax.jit
        def project(system, estimate):
            projected = jd.Projection().project(system, estimate)
            return projected, jd.operators.constraint_terms(system, projected)

        projected, terms = project(*cast((everything(), near()[1]), jnp.float32))
        assert {x.dtype for x in jax.tree.leaves(projected)} == {jnp.dtype(jnp.float32)}
        np.testing.assert_allclose(terms.position, 0.0, rtol=0, atol=4e-7)
        np.testing.assert_allclose(terms.velocity, 0.0, rtol=0, atol=4e-6)

    @origins
    def test_coordinates_with_a_curved_retraction(self, origin):
        # In cosines and sines and in angles the tangent steps are the same, so the results must be too.
        (angles, circles), results = wheels(), []
        pairs = [wheels_states(q, (0.3, 0.2), t) for q, t in (((0.4, 0.25), 0.7), ((0.45, 0.2), 0.75))]
        for system, previous, estimate in zip((angles, circles), *pairs, strict=True):
            projection = jd.Projection(jd.PositionProjection(origin=origin, iterations=6))
            results.append(jax.jit(projection.project)(system, estimate, previous))
        np.testing.assert_allclose(circles.constraint(results[1].t, results[1].q), 0.0, rtol=0, atol=4e-16)
        pairs = results[1].q.reshape(2, 2)
        np.testing.assert_allclose(jnp.sum(pairs**2, axis=1), 1.0, rtol=1e-15)
        np.testing.assert_allclose(jnp.arctan2(pairs[:, 1], pairs[:, 0]), results[0].q, **ROUND_OFF)
        np.testing.assert_allclose(results[1].v, results[0].v, **ROUND_OFF)


class TestProjection:
    def test_velocities_are_projected_at_the_new_positions(self):
        system, (_, estimate) = everything(), near()
        both = jd.Projection().project(system, estimate)
        in_order = jd.VelocityProjection().project(system, jd.PositionProjection().project(system, estimate))
        for x, y in zip(jax.tree.leaves(both), jax.tree.leaves(in_order), strict=True):
            np.testing.assert_array_equal(x, y)
        np.testing.assert_allclose(velocity_residual(system, both), 0.0, rtol=0, atol=1e-14)

    def test_either_part_may_be_missing(self):
        system, (_, estimate) = everything(), near()
        np.testing.assert_array_equal(jd.Projection(position=None).project(system, estimate).q, estimate.q)
        np.testing.assert_array_equal(jd.Projection(velocity=None).project(system, estimate).v, estimate.v)
        assert jd.Projection(None, None).project(system, estimate) is estimate

    @pytest.mark.parametrize("position", [jd.PositionProjection(), jd.textbook.LinearPositionProjection()])
    def test_without_rows_nothing_moves(self, position):
        at = oscillating()
        projected = jd.Projection(position).project(oscillator(), at)
        for x, y in zip(jax.tree.leaves(projected), jax.tree.leaves(at), strict=True):
            np.testing.assert_array_equal(x, y)

    @pytest.mark.long
    def test_vmap_is_a_loop(self):
        system, (previous, estimate) = everything(), near()
        projection = jd.Projection(jd.PositionProjection(origin=Origin.PREVIOUS))
        estimates = [jd.State(estimate.t, estimate.q + dq, estimate.v) for dq in (0.0, 0.01, -0.02)]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *estimates)
        batch = jax.jit(jax.vmap(lambda x: projection.project(system, x, previous)))(stacked)
        for k, one in enumerate(estimates):
            single = projection.project(system, one, previous)
            for x, y in zip(jax.tree.leaves(batch), jax.tree.leaves(single), strict=True):
                np.testing.assert_allclose(x[k], y, **ROUND_OFF)

    def test_where_rows_are_dependent_the_result_is_not_finite(self):
        # Both arms of the double pendulum have length zero: J = 0.
        projected = jax.jit(jd.PositionProjection().project)(double_pendulum(), state(np.zeros(4)))
        assert not np.any(np.isfinite(projected.q))


@pytest.mark.parametrize("kind", [jd.PositionProjection, jd.textbook.LinearPositionProjection])
def test_previous_state_is_missing(kind):
    with pytest.raises(
        ValueError, match=r"no previous state was given: pass previous=..., or use Origin.ESTIMATE"
    ):
        kind(origin=Origin.PREVIOUS).project(everything(), everywhere())


@pytest.mark.parametrize("iterations", [0, -1])
def test_iterations_must_be_positive(iterations):
    with pytest.raises(ValueError, match=f"iterations must be at least 1, got {iterations}"):
        jd.PositionProjection(iterations=iterations).project(everything(), everywhere())


DIFFERENTIATED = {
    "iterated": jd.Projection(
        jd.PositionProjection(Metric.MASS, Origin.PREVIOUS, iterations=6), jd.VelocityProjection(Metric.MASS)
    ),
    "linear": jd.Projection(
        jd.textbook.LinearPositionProjection(Metric.EUCLIDEAN, Origin.ESTIMATE),
        jd.VelocityProjection(Metric.EUCLIDEAN, jd.DenseKKT()),
    ),
}
WEIGHTS = jnp.sin(1.0 + jnp.arange(8.0))


def objective(projection, arguments):
    result = projection.project(*arguments)
    return jnp.sum(WEIGHTS * jnp.concatenate([result.q, result.v]) ** 2)


@jax.jit
def derivatives(projection, arguments, direction, s):
    """Returns the derivatives along a line: forward, reverse, second."""

    def along(tree):
        return sum(
            jnp.sum(x * y) for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(direction), strict=True)
        )

    moved = jax.tree.map(lambda x, dx: x + s * dx, arguments, direction)
    value, forward = jax.jvp(lambda x: objective(projection, x), (moved,), (direction,))
    gradient, change = jax.jvp(jax.grad(lambda x: objective(projection, x)), (moved,), (direction,))
    return value, forward, along(gradient), along(change)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "closed"),
    [
        ("iterated", False),
        ("linear", True),
        pytest.param("iterated", True, marks=pytest.mark.exhaustive),
        pytest.param("linear", False, marks=pytest.mark.exhaustive),
    ],
)
def test_derivatives(name, closed):
    """A line through system and both states; also where the estimate is exactly closed and nothing has to be
    corrected.
    """
    projection = DIFFERENTIATED[name]
    previous, estimate = near()
    arguments = (everything(), previous if closed else estimate, previous)
    direction = jax.tree.map(
        lambda x: jnp.cos(1.0 + jnp.arange(x.size, dtype=float)).reshape(x.shape), arguments
    )
    _, forward, reverse, second = derivatives(projection, arguments, direction, 0.0)
    differences = central(lambda s: derivatives(projection, arguments, direction, s), 0.0)
    np.testing.assert_allclose(reverse, forward, rtol=1e-11)
    # Truncation and round-off of the difference are near 1e-10, the derivatives of order 1 to 10.
    np.testing.assert_allclose(forward, differences[0], rtol=1e-8)
    np.testing.assert_allclose(second, differences[1], rtol=1e-7)


def test_what_rounding_of_far_coordinates_leaves_is_no_failure():
    """300 m away, single precision knows places to 3e-5 m. The same opening at home, or in double precision,
    is one.
    """
    for dtype, place, expected in (
        (jnp.float32, 300.0, jd.Status.OK),
        (jnp.float32, 1.0, jd.Status.NOT_CONVERGED),
        (float, 300.0, jd.Status.NOT_CONVERGED),
    ):
        at = cast(state([place, 0.0]), dtype)
        info = jd.interfaces.StepInfo(
            at.v,
            at.v[:1],
            jnp.asarray(6e-5, dtype),
            jnp.zeros((), dtype),
            jnp.zeros((), int),
            jnp.zeros((), int),
        )
        assert projection_status(oscillator(), jd.Projection(), info, at) == expected
