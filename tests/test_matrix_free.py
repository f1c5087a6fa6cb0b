"""Krylov methods that are given products with the Jacobian instead of the Jacobian: same numbers, same
derivatives.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import state
from small_systems import everything, everywhere, oscillating, oscillator

import jaxdae as jd
from jaxdae.matrices import AutodiffRows, JacobianOperator, as_mass_operator

ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
METHODS = {"conjugate_gradient": jd.ConjugateGradient, "biconjugate_gradient": jd.BiconjugateGradient}

methods = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def terms():
    """Returns M and J of `Everything`; its rows are holonomic and nonholonomic, and move with time."""
    system, at = everything(), everywhere()
    return system.mass_matrix(at.q), system.constraint_jacobian(at.t, at.q, at.v)


class TestOperator:
    def test_products(self):
        system, at = everything(), everywhere()
        _, jacobian = terms()
        operator = AutodiffRows(system, at)
        assert isinstance(operator, JacobianOperator)
        assert operator.shape == jacobian.shape
        x, y = jnp.arange(1.0, 5.0), jnp.arange(1.0, 4.0)
        np.testing.assert_allclose(operator.times(x), jacobian @ x, **ROUND_OFF)
        np.testing.assert_allclose(operator.transpose_times(y), y @ jacobian, **ROUND_OFF)

    @pytest.mark.long
    @methods
    def test_stands_for_the_matrix(self, method):
        mass, jacobian = terms()
        f, r = jnp.arange(1.0, 5.0), jnp.arange(1.0, 4.0)
        results = [
            jax.jit(
                lambda j: jnp.concatenate(jd.solve_saddle_point(method(), mass, j, f, r, jnp.full(3, 0.1)))
            )(j)
            for j in (jacobian, AutodiffRows(everything(), everywhere()))
        ]
        np.testing.assert_allclose(*results, **ROUND_OFF)
        matrix = np.block([[mass, -jacobian.T], [jacobian, 0.1 * np.eye(3)]])
        np.testing.assert_allclose(results[0], np.linalg.solve(matrix, np.concatenate([f, r])), **ROUND_OFF)

    def test_the_matrix_is_never_formed(self):
        # A derivative for each column of J would be three more axes of this length.
        at = everywhere()
        jaxpr = str(
            jax.make_jaxpr(lambda s, x: jd.forward_dynamics(s, x, solver=jd.ConjugateGradient()))(
                everything(), at
            )
        )
        assert "f64[3,4]" not in jaxpr
        assert "f64[4,3]" not in jaxpr


WEIGHTS = jnp.arange(1.0, 8.0)


@jax.jit
def derivatives(solver, system, at):
    """Returns (a, lam), the gradient of their weighted sum, and that gradient's derivative along all leaves."""

    def weighted(arguments):
        return jnp.sum(WEIGHTS * jnp.concatenate(jd.forward_dynamics(*arguments, solver=solver)))

    arguments = (system, at)
    direction = jax.tree.map(
        lambda x: jnp.cos(1.0 + jnp.arange(x.size, dtype=float)).reshape(x.shape), arguments
    )
    return jd.forward_dynamics(*arguments, solver=solver), *jax.jvp(
        jax.grad(weighted), (arguments,), (direction,)
    )


class TestForwardDynamics:
    @pytest.mark.long
    def test_values_and_derivatives(self):
        found, expected = (
            derivatives(solver, everything(), everywhere())
            for solver in (jd.ConjugateGradient(), jd.DenseKKT())
        )
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            # Second derivatives reach 100; condition numbers are below 100.
            np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)

    @pytest.mark.long
    @pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
    @pytest.mark.parametrize("block", [pytest.param(1, marks=pytest.mark.exhaustive), 3])
    @methods
    def test_preconditioners_change_nothing(self, method, block):
        solver = method(preconditioner=jd.operators.block_preconditioner(*terms(), block))
        found, expected = (
            jd.forward_dynamics(everything(), everywhere(), solver=s) for s in (solver, jd.DenseKKT())
        )
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, **ROUND_OFF)

    @methods
    def test_without_rows(self, method):
        a, lam = jd.forward_dynamics(oscillator(), oscillating(), solver=method())
        np.testing.assert_allclose(a, [-2.1, 0.3], **ROUND_OFF)
        assert lam.shape == (0,)

    @pytest.mark.long
    def test_projections_of_positions_take_the_leading_rows(self):
        system, estimate = everything(), everywhere()
        estimate = state(estimate.q + 0.01, estimate.v, 0.3)
        projections = [
            jd.Projection(
                jd.textbook.LinearPositionProjection(solver=solver), jd.VelocityProjection(solver=solver)
            )
            for solver in (jd.ConjugateGradient(), jd.SchurComplement())
        ]
        found, expected = (jax.jit(projection.project)(system, estimate) for projection in projections)
        np.testing.assert_allclose(found.q, expected.q, **ROUND_OFF)
        np.testing.assert_allclose(found.v, expected.v, **ROUND_OFF)


class TestPreconditioner:
    def test_inverses_of_the_diagonal_blocks(self):
        rng = np.random.default_rng(0)
        jacobian, half = rng.standard_normal((4, 6)), rng.standard_normal((6, 6))
        for mass in (
            jd.operators.DiagonalMatrix(jnp.arange(1.0, 7.0)),
            jnp.asarray(half @ half.T + np.eye(6)),
        ):
            delassus = jacobian @ np.linalg.solve(np.asarray(as_mass_operator(mass).as_dense()), jacobian.T)
            np.testing.assert_allclose(
                jd.operators.block_preconditioner(mass, jnp.asarray(jacobian)),
                1.0 / np.diag(delassus),
                **ROUND_OFF,
            )
            for k, block in enumerate(jd.operators.block_preconditioner(mass, jnp.asarray(jacobian), 2)):
                np.testing.assert_allclose(
                    block, np.linalg.inv(delassus[2 * k : 2 * k + 2, 2 * k : 2 * k + 2]), **ROUND_OFF
                )

    @methods
    @pytest.mark.parametrize("block", [1, 2])
    def test_saves_iterations(self, method, block):
        # Single rows, or pairs of rows, that do not touch each other, in units that differ by 1e3.
        # Preconditioned there is one eigenvalue, which one iteration finds; without there are four.
        jacobian = jnp.array(
            [
                [1.0, 0, 0, 0],
                [0.5 * (block - 1.0), 1, 0, 0],
                [0, 0, 1e3, 0],
                [0, 0, 500.0 * (block - 1.0), 1e3],
            ]
        )
        mass, f, r = (
            jd.operators.DiagonalMatrix(jnp.array([1.0, 2.0, 3.0, 4.0])),
            jnp.ones(4),
            jnp.array([1.0, -2.0, 3.0, 5.0]),
        )
        good = method(
            preconditioner=jd.operators.block_preconditioner(mass, jacobian, block), max_iterations=1
        )
        a, _ = jax.jit(jd.solve_saddle_point)(good, mass, jacobian, f, r)
        np.testing.assert_allclose(jacobian @ a, r, **ROUND_OFF)
        a, _ = jax.jit(jd.solve_saddle_point)(method(max_iterations=1), mass, jacobian, f, r)
        assert not np.any(np.isfinite(a))

    def test_the_tolerance_ends_the_loop(self):
        # The residual, here the acceleration itself, ends within the tolerance; and not far below, because
        # the loop ends there, too. Its second round starts from the residual of the first.
        rng = np.random.default_rng(1)
        jacobian, r = jnp.asarray(rng.standard_normal((20, 40))), jnp.asarray(rng.standard_normal(20))
        mass = jd.operators.DiagonalMatrix(jnp.ones(40))
        for tolerance in (1e-2, 1e-6):
            solver = jd.ConjugateGradient(tolerance=jnp.asarray(tolerance))
            a, _ = jax.jit(lambda x, s=solver: jd.solve_saddle_point(s, mass, jacobian, None, x))(r)
            left = float(jnp.linalg.norm(jacobian @ a - r) / jnp.linalg.norm(r))
            assert 1e-4 * tolerance < left < 10.0 * tolerance

    @pytest.mark.parametrize("block", [0, 2])
    def test_blocks_must_fit(self, block):
        with pytest.raises(ValueError, match=f"block must divide the number of rows, 3, got {block}"):
            jd.operators.block_preconditioner(*terms(), block)


class TestInconsistentRows:
    """Two rows that are the same and ask for different things: forces are those of least squares, multipliers
    are not the shortest.
    """

    def test_conjugate_gradients_add_a_multiple_of_what_is_inconsistent(self):
        row = [1.0, 1.3, -2.0]
        problem = (jd.operators.DiagonalMatrix(jnp.ones(3)), jnp.array([row, row]), None)
        for r, longer in ((jnp.array([1.0, 2.0]), True), (jnp.array([1.5, 1.5]), False)):
            a, lam = jd.solve_saddle_point(jd.ConjugateGradient(), *problem, r)
            shortest_a, shortest = jd.solve_saddle_point(jd.LeastSquares(), *problem, r)
            np.testing.assert_allclose(a, shortest_a, rtol=1e-12)
            np.testing.assert_allclose(shortest, np.full(2, 0.75 / np.dot(row, row)), rtol=1e-12)
            # Q r is half of the difference of the rows.
            multiple = (lam - shortest) / np.array([-0.5, 0.5]) if longer else (lam - shortest)
            np.testing.assert_allclose(multiple, np.full(2, multiple[0]), rtol=0, atol=1e-12)
            assert (jnp.linalg.norm(lam) > 1.01 * jnp.linalg.norm(shortest)) == longer


class TestMistakes:
    @methods
    @all_cases("shape", [(4,), (2, 3), (1, 2, 2), (3, 1, 2)])
    def test_a_preconditioner_that_does_not_fit(self, method, shape):
        message = (
            rf"{method.__name__}.preconditioner must be a diagonal \(3,\) or blocks \(k, b, b\) with "
            r"k b = 3, got shape"
        )
        with pytest.raises(ValueError, match=message):
            jd.forward_dynamics(everything(), everywhere(), solver=method(preconditioner=jnp.ones(shape)))

    @methods
    def test_no_iterations(self, method):
        with pytest.raises(ValueError, match=f"{method.__name__}.max_iterations must be at least 1, got 0"):
            jd.forward_dynamics(everything(), everywhere(), solver=method(max_iterations=0))
