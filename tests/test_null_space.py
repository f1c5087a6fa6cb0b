"""Projectors, pseudoinverses and blocks of the inverse with dependent rows; and one decomposition for a whole
step.

References: rational arithmetic along families of constant rank, NumPy's pseudoinverse of the symmetric
saddle-point matrix, and the formulas of the lecture with a null-space basis N from an SVD.
"""

import exact
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from problems import DoublePendulum, double_pendulum, double_pendulum_state, state
from saddle_points import ROWS, SIZE, SOLVERS, numbers, random_factors
from small_systems import central

import jaxdae as jd
from jaxdae import Metric, Origin
from jaxdae.control.riccati import solve_riccati
from jaxdae.systems.linearization import linearize

# Condition numbers below 100, which second derivatives see twice, and sums of some ten terms.
ROUND_OFF = {"rtol": 0.0, "atol": 1e5 * float(jnp.finfo(float).eps)}

PAIR = np.eye(2, SIZE)
FAMILIES = {
    "full rank": random_factors(5, ROWS),
    "rank 2": random_factors(6, 2),
    "rank 1": random_factors(7, 1),
    "rank 0": (np.zeros((ROWS, 1)), np.zeros((ROWS, 1)), *random_factors(7, 1)[2:]),
    "equal singular values": (
        [[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]],
        *random_factors(8, 2)[1:2],
        PAIR,
        random_factors(8, 2)[3],
    ),
}
FULL_RANK_ONLY = ("schur_complement", "null_space_qr", "null_space_normal")


def jacobians(family):
    """Returns J, J' and J'' of J(s) = T(s) B(s)."""
    t, dt, b, db = (np.asarray(x, float) for x in FAMILIES[family])
    return tuple(jnp.asarray(x) for x in (t @ b, dt @ b + t @ db, 2.0 * dt @ db))


@jax.jit
def lines(solver, j, dj, ddj):
    """Returns P and J^+ with their first two derivatives along s."""

    def at(s):
        moved = j + s * dj + 0.5 * s**2 * ddj
        return jd.operators.null_projector(moved, solver), jd.operators.pseudoinverse(moved, solver)

    def first(s):
        return jax.jvp(at, (s,), (1.0,))

    (values, slopes), (_, curvatures) = jax.jvp(first, (0.0,), (1.0,))
    return tuple(zip(values, slopes, curvatures, strict=True))


def exact_lines(j, dj, ddj):
    rational = [exact.rationals(x) for x in (j, dj, ddj)]

    def at(s):
        return rational[0] + s * rational[1] + s**2 * rational[2] / 2

    identity = exact.rationals(np.eye(SIZE))
    projector = exact.line(lambda s: identity - exact.pseudoinverse(at(s)) @ at(s))
    return projector, exact.line(lambda s: exact.pseudoinverse(at(s)))


class TestProjector:
    @pytest.mark.long
    @pytest.mark.parametrize("family", FAMILIES)
    def test_by_singular_values_at_any_rank(self, family):
        parts = jacobians(family)
        j, dj, _ = (np.asarray(x) for x in parts)
        results = lines(None, *parts)
        for result, expected in zip(results, exact_lines(*parts), strict=True):
            for x, y in zip(result, expected, strict=True):
                np.testing.assert_allclose(x, y, **ROUND_OFF)
        (p, dp, _), (inverse, *_) = ([np.asarray(x) for x in result] for result in results)
        for matrix in (p, dp):
            np.testing.assert_allclose(matrix, matrix.T, **ROUND_OFF)
        np.testing.assert_allclose(p @ p, p, **ROUND_OFF)
        np.testing.assert_allclose(j @ p, np.zeros((ROWS, SIZE)), **ROUND_OFF)
        np.testing.assert_allclose(np.trace(p), SIZE - np.linalg.matrix_rank(j), **ROUND_OFF)
        # The derivative that is written in its docstring.
        s = inverse @ dj @ p
        np.testing.assert_allclose(dp, -(s + s.T), **ROUND_OFF)

    @pytest.mark.parametrize("name", FULL_RANK_ONLY)
    def test_by_methods_that_need_full_rank(self, name):
        parts = jacobians("full rank")
        results = lines(SOLVERS[name], *parts)
        for result, expected in zip(results, exact_lines(*parts), strict=True):
            for x, y in zip(result, expected, strict=True):
                np.testing.assert_allclose(x, y, **ROUND_OFF)
        # The closed form.
        j = np.asarray(parts[0])
        np.testing.assert_allclose(
            results[0][0], np.eye(SIZE) - j.T @ np.linalg.solve(j @ j.T, j), **ROUND_OFF
        )

    @pytest.mark.long
    def test_reverse_mode(self):
        # The cotangents of P and J^+ in one sum; the derivative along the line is known.
        parts = jacobians("rank 2")
        rng = np.random.default_rng(0)
        weights = [jnp.asarray(numbers(rng, *shape)) for shape in ((SIZE, SIZE), (SIZE, ROWS))]

        def weighted(s):
            j = parts[0] + s * parts[1] + 0.5 * s**2 * parts[2]
            return sum(
                jnp.sum(w * x)
                for w, x in zip(
                    weights, (jd.operators.null_projector(j), jd.operators.pseudoinverse(j)), strict=True
                )
            )

        slope, curvature = jax.jit(lambda s: jax.jvp(jax.grad(weighted), (s,), (1.0,)))(0.0)
        expected = [
            sum(np.sum(w * x[k]) for w, x in zip(weights, exact_lines(*parts), strict=True)) for k in (1, 2)
        ]
        # The sum of the weights is below 40.
        np.testing.assert_allclose([slope, curvature], expected, rtol=0.0, atol=40.0 * ROUND_OFF["atol"])

    def test_a_batch_is_a_loop(self):
        stack = jnp.stack([jacobians(family)[0] for family in FAMILIES])
        projectors = jax.jit(jax.vmap(jd.operators.null_projector))(stack)
        for p, j in zip(projectors, np.asarray(stack), strict=True):
            np.testing.assert_allclose(p, np.eye(SIZE) - np.linalg.pinv(j, rcond=1e-9) @ j, **ROUND_OFF)

    @pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 2)])
    def test_no_rows_and_more_rows_than_columns(self, rows, columns):
        j = jnp.asarray(np.arange(1.0, rows * columns + 1.0).reshape(rows, columns))
        np.testing.assert_allclose(
            jax.jit(jd.operators.null_projector)(j),
            np.eye(columns) if rows == 0 else np.zeros((columns, columns)),
            **ROUND_OFF,
        )
        np.testing.assert_allclose(jax.jit(jd.operators.pseudoinverse)(j), np.linalg.pinv(j), **ROUND_OFF)

    @pytest.mark.parametrize("function", [jd.operators.null_projector, jd.operators.pseudoinverse])
    def test_derivative_of_the_compiled_function(self, function):
        # Its columns are a batch, whose axes must not change under differentiation.
        j, dj, ddj = jacobians("rank 2")
        compiled = jax.jit(lambda s: function(j + s * dj + 0.5 * s**2 * ddj))
        expected = exact_lines(j, dj, ddj)[function is jd.operators.pseudoinverse]
        for result, exact_value in zip(jax.jvp(compiled, (0.0,), (1.0,)), expected[:2], strict=True):
            np.testing.assert_allclose(result, exact_value, **ROUND_OFF)

    def test_the_tolerance_decides_what_depends(self):
        # Rows at an angle of 1e-3.
        j, projector = jnp.array([[1.0, 0.0, 0.0], [1.0, 1e-3, 0.0]]), jax.jit(jd.operators.null_projector)
        for tolerance, mobility in ((1e-2, 2.0), (1e-5, 1.0)):
            solver = jd.NullSpace(jd.operators.SingularValues(tolerance=jnp.asarray(tolerance)))
            np.testing.assert_allclose(jnp.trace(projector(j, solver)), mobility, **ROUND_OFF)


@jd.tree.pytree
class TooManyRods(DoublePendulum):
    """A double pendulum with a third row, the sum of the two."""

    def constraint(self, t, q):
        g = super().constraint(t, q)
        return jnp.concatenate([g, jnp.sum(g, keepdims=True)])


def linkage():
    plain = double_pendulum()
    system = TooManyRods(plain.mass, plain.length, plain.gravity)
    return system, double_pendulum_state(system.length, jnp.array([0.5, 1.0]), jnp.array([1.0, -0.5]))


def pinv(matrix):
    """Singular values are of order one, or round-off."""
    return np.linalg.pinv(matrix, rcond=1e-9)


class TestBlocksOfTheInverse:
    def test_dependent_rows(self):
        system, at = linkage()
        blocks = jax.jit(lambda x: jd.operators.kkt_inverse(system, x))(at)
        mass = np.asarray(system.mass_operator(at.q).as_dense())
        j = np.asarray(system.constraint_jacobian(at.t, at.q, at.v))
        inverse = pinv(np.block([[mass, j.T], [j, np.zeros((3, 3))]]))
        # In (a, -lam) and with -gamma on the right: signs as in the docstring.
        for block, expected in (
            (blocks.L11, inverse[:4, :4]),
            (blocks.L12, inverse[:4, 4:]),
            (blocks.L21, -inverse[4:, :4]),
            (blocks.L22, -inverse[4:, 4:]),
        ):
            np.testing.assert_allclose(block, expected, **ROUND_OFF)
        range_of_rows = j @ pinv(j)
        np.testing.assert_allclose(j @ np.asarray(blocks.L11), np.zeros((3, 4)), **ROUND_OFF)
        np.testing.assert_allclose(j @ np.asarray(blocks.L12), range_of_rows, **ROUND_OFF)
        np.testing.assert_allclose(blocks.L22, pinv(j @ np.linalg.solve(mass, j.T)), **ROUND_OFF)

    @pytest.mark.exhaustive
    def test_derivative(self):
        system, at = linkage()

        @jax.jit
        def along(s):
            blocks = jd.operators.kkt_inverse(
                system, state(at.q + s * jnp.array([0.3, -0.2, 0.5, 0.1]), at.v)
            )
            return jnp.concatenate([x.reshape(-1) for x in (blocks.L11, blocks.L12, blocks.L21, blocks.L22)])

        # Truncation and round-off of the difference are near 1e-10, the derivatives of order 1. Of the
        # compiled function: see `test_derivative_of_a_compiled_batch`; columns are worlds here.
        np.testing.assert_allclose(
            jax.jvp(along, (0.0,), (1.0,))[1], central(along, 0.0), rtol=0.0, atol=1e-8
        )


def count(jaxpr, name):
    """Returns how often a primitive stands in a jaxpr and in those inside of it."""
    found = 0
    for equation in jaxpr.eqns:
        found += equation.primitive.name == name
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inner = getattr(inner, "jaxpr", inner)
            found += count(inner, name) if hasattr(inner, "eqns") else 0
    return found


class TestOneDecomposition:
    """The lecture: "all these projections can be achieved with a single SVD"."""

    projection = jd.Projection(
        jd.textbook.LinearPositionProjection(Metric.EUCLIDEAN, Origin.PREVIOUS),
        jd.VelocityProjection(Metric.EUCLIDEAN),
    )

    def basis(self, system, at):
        """Returns N (n, n - rank) and J^+."""
        j = np.asarray(system.constraint_jacobian(at.t, at.q, at.v))
        return np.linalg.svd(j)[2][np.linalg.matrix_rank(j) :].T, pinv(j)

    def test_velocities(self):
        system, at = linkage()
        estimate = state(at.q, at.v + jnp.array([0.1, -0.2, 0.3, 0.05]))

        @jax.jit
        def project(estimate):
            return self.projection.velocity.project(
                system, estimate, at=linearize(system, estimate, jd.NullSpace())
            )

        projected = project(estimate)
        n, _ = self.basis(system, at)
        np.testing.assert_allclose(projected.v, n @ n.T @ estimate.v, **ROUND_OFF)

    def test_positions(self):
        system, at = linkage()
        previous = state(at.q + 0.01, at.v)  # open, so that g0 is not zero
        estimate = state(at.q + jnp.array([0.03, -0.02, 0.01, 0.04]), at.v)

        @jax.jit
        def project(estimate, previous):
            return self.projection.position.project(
                system, estimate, previous, at=linearize(system, previous, jd.NullSpace())
            )

        projected = project(estimate, previous)
        n, inverse = self.basis(system, previous)
        g0 = np.asarray(system.constraint(previous.t, previous.q))
        expected = (np.eye(4) - n @ n.T) @ (previous.q - inverse @ g0) + n @ n.T @ estimate.q
        np.testing.assert_allclose(projected.q, expected, **ROUND_OFF)

    def test_a_step_takes_one_svd(self):
        system, at = linkage()
        integrator = jd.Projected(jd.SemiImplicitEuler(solver=jd.NullSpace()), self.projection)
        jaxpr = jax.make_jaxpr(lambda x: integrator.advance(system, x, (), None, 1e-3))(
            integrator.begin(system, at)
        ).jaxpr
        assert count(jaxpr, "svd") == 1
        # Without a decomposition that can be reweighted each projection needs its own.
        other = jd.Projected(jd.SemiImplicitEuler(solver=jd.LeastSquares()), self.projection)
        jaxpr = jax.make_jaxpr(lambda x: other.advance(system, x, (), None, 1e-3))(
            other.begin(system, at)
        ).jaxpr
        assert count(jaxpr, "svd") == 3

    @pytest.mark.long
    def test_the_step_is_the_lecture(self):
        # Semi-implicit Euler, then the two projections, with J and N at the state before and at the one
        # after.
        system, at = linkage()
        h = 1e-2
        integrator = jd.Projected(jd.SemiImplicitEuler(solver=jd.NullSpace()), self.projection)
        found = jd.rollout(system, integrator, at, dt=h, steps=1)
        a, lam = jd.forward_dynamics(system, at, solver=jd.NullSpace())  # checked elsewhere
        v_e = np.asarray(at.v + h * a)
        q_e = np.asarray(at.q) + h * v_e
        n, inverse = self.basis(system, at)
        g0 = np.asarray(system.constraint(at.t, at.q))
        q = (np.eye(4) - n @ n.T) @ (at.q - inverse @ g0) + n @ n.T @ q_e
        n, _ = self.basis(system, state(q, v_e))
        np.testing.assert_allclose(found.state.q[0], q, **ROUND_OFF)
        np.testing.assert_allclose(found.state.v[0], n @ n.T @ v_e, **ROUND_OFF)
        np.testing.assert_allclose(found.info.lam[0], lam, **ROUND_OFF)


@pytest.mark.exhaustive
def test_a_batch_takes_its_svds_one_by_one():
    # jaxlib divides a batch of SVDs among the threads of XLA's pool and waits on one of them. Two independent
    # batches at a time, as in a step of RK4 whose law takes pseudoinverses, waited for each other for ever on
    # two cores.
    many = jax.random.normal(jax.random.key(0), (2, 3, ROWS, SIZE))
    compiled = jax.jit(jax.vmap(jax.vmap(jd.operators.pseudoinverse))).lower(many).compile()
    calls = [
        line.split("custom-call")[0]
        for line in compiled.as_text().splitlines()
        if "gesdd" in line and "custom-call(" in line
    ]
    assert calls
    assert all(f"f64[{ROWS},{SIZE}]" in call for call in calls), calls
    one = jax.jit(jd.operators.pseudoinverse)
    np.testing.assert_allclose(compiled(many), [[one(x) for x in row] for row in many], **ROUND_OFF)
    slope = jax.grad(lambda x: jnp.sum(jd.operators.pseudoinverse(x) ** 2))
    np.testing.assert_allclose(jax.jit(jax.vmap(slope))(many[0])[1], jax.jit(slope)(many[0, 1]), **ROUND_OFF)


def test_batches_of_assembly_and_of_riccati_equations_take_theirs_one_by_one():
    system, start = problems.pendulum("ivptest_pendulum"), problems.reference("ivptest_pendulum").start()
    assembled = jax.jit(jax.vmap(lambda q: jd.initialize(system, q)[0].v)).lower(jnp.stack([start.q] * 3))
    solved = jax.jit(jax.vmap(solve_riccati)).lower(*[jnp.ones((3, 2, 2))] * 3)
    for lowered, shape in ((assembled, "1x2xf64"), (solved, "4x2xf64")):
        calls = [line for line in lowered.as_text().splitlines() if "gesdd" in line]
        assert calls
        assert all(f"-> (tensor<{shape}>" in call for call in calls), calls
