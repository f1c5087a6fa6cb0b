"""The contract of saddle-point solvers: a new solver is one more row of `SOLVERS`.

The reference is the matrix [M -J^T; J C] written out in NumPy. With K x = b along a line (K + s K', b + s b'), the derivatives of the
solution are

    x' = K^-1 (b' - K' x),        x'' = -2 K^-1 K' x',

so that first and second derivatives are checked to round-off, without difference quotients.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import cast

import jaxdae as jd
from jaxdae.saddle_point import mass as mass_matrix
from jaxdae.saddle_point import solve

SOLVERS = {"dense": jd.DenseKKT(), "schur": jd.SchurComplement()}
MASSES = ("full", "diagonal")
SIZE, ROWS = 5, 3

# Entries and condition numbers are of order 1 to 30, so that the solutions are good to some hundreds of eps.
TOLERANCE = {"rtol": 0.0, "atol": 1e-13}

solvers = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
masses = pytest.mark.parametrize("kind", MASSES)


def problem(kind, size=SIZE, rows=ROWS, compliance=0.0, seed=0):
    """Returns (M, J, f, r, C)."""
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((size, size)) / np.sqrt(size)
    diagonal = jnp.asarray(rng.uniform(0.5, 2.0, size))
    mass = jd.DiagonalMatrix(diagonal) if kind == "diagonal" else jnp.asarray(half @ half.T + np.diag(diagonal))
    jacobian = jnp.asarray(rng.standard_normal((rows, size)))
    f, r = jnp.asarray(rng.standard_normal(size)), jnp.asarray(rng.standard_normal(rows))
    return mass, jacobian, f, r, jnp.asarray(compliance * rng.uniform(0.5, 2.0, rows))


def matrix(mass, jacobian, compliance):
    dense = np.diag(mass.diagonal) if isinstance(mass, jd.DiagonalMatrix) else np.asarray(mass)
    return np.block([[dense, -np.asarray(jacobian).T], [np.asarray(jacobian), np.diag(compliance)]])


def reference(mass, jacobian, f, r, compliance):
    return np.linalg.solve(matrix(mass, jacobian, compliance), np.concatenate([f, r]))


@jax.jit
def solution(solver, arguments):
    return jnp.concatenate(solver(*arguments))


@solvers
@masses
class TestValues:
    @pytest.mark.parametrize("compliance", [0.0, 1.0])
    def test_both_rows_hold(self, solver, kind, compliance):
        arguments = problem(kind, compliance=compliance)
        np.testing.assert_allclose(solution(solver, arguments), reference(*arguments), **TOLERANCE)

    def test_one_row(self, solver, kind):
        arguments = problem(kind, rows=1)
        np.testing.assert_allclose(solution(solver, arguments), reference(*arguments), **TOLERANCE)

    def test_no_rows(self, solver, kind):
        arguments = problem(kind, rows=0)
        a, lam = jax.jit(solver)(*arguments)
        assert lam.shape == (0,)
        np.testing.assert_allclose(a, reference(*arguments), **TOLERANCE)

    def test_as_many_rows_as_columns(self, solver, kind):
        # The constraints alone determine a; the solution is J^-1 r whatever the mass is.
        arguments = problem(kind, size=2, rows=2)
        a = solution(solver, arguments)[:2]
        np.testing.assert_allclose(a, np.linalg.solve(*(np.asarray(x) for x in arguments[1:4:2])), **TOLERANCE)

    def test_single_precision(self, solver, kind):
        arguments = problem(kind, compliance=0.1)
        result = solution(solver, cast(arguments, jnp.float32))
        assert result.dtype == jnp.float32
        np.testing.assert_allclose(result, reference(*arguments), rtol=0.0, atol=1e-5)

    def test_scalar_and_missing_compliance(self, solver, kind):
        mass, jacobian, f, r, none = problem(kind)
        np.testing.assert_array_equal(
            jnp.concatenate(jax.jit(solver)(mass, jacobian, f, r)), solution(solver, (mass, jacobian, f, r, none))
        )
        soft = jnp.concatenate(jax.jit(solver)(mass, jacobian, f, r, 0.3))
        np.testing.assert_allclose(soft, reference(mass, jacobian, f, r, np.full(ROWS, 0.3)), **TOLERANCE)


@solvers
@masses
class TestTransformations:
    def test_vmap_is_a_loop(self, solver, kind):
        worlds = [problem(kind, compliance=0.1, seed=seed) for seed in range(3)]
        stacked = jax.tree.map(lambda *x: jnp.stack(x, axis=-1), *worlds)
        result = jax.jit(jax.vmap(lambda x: jnp.concatenate(solver(*x)), in_axes=-1))(stacked)
        np.testing.assert_allclose(result, np.stack([reference(*x) for x in worlds]), **TOLERANCE)

    def test_vmap_without_rows(self, solver, kind):
        # Batched masses make even the empty Delassus matrix a batched one.
        worlds = [problem(kind, size=2, rows=0, seed=seed) for seed in range(3)]
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *worlds)
        result = jax.jit(jax.vmap(lambda x: jnp.concatenate(solver(*x))))(stacked)
        np.testing.assert_allclose(result, np.stack([reference(*x) for x in worlds]), **TOLERANCE)

    def test_one_factorization_serves_many_right_hand_sides(self, solver, kind):
        mass, jacobian, f, r, compliance = problem(kind)
        factors = solver.factorize(mass, jacobian, compliance)
        for k in (1.0, -2.0):
            result = np.concatenate(solve(factors, mass, jacobian, compliance, k * f, r))
            np.testing.assert_allclose(result, reference(mass, jacobian, k * f, r, compliance), **TOLERANCE)


@solvers
def test_vmap_over_the_right_hand_side_only(solver):
    mass, jacobian, f, r, compliance = problem("full")
    forces = jnp.stack([f, 2.0 * f, -f])
    result = jax.jit(jax.vmap(lambda x: jnp.concatenate(solver(mass, jacobian, x, r, compliance))))(forces)
    np.testing.assert_allclose(result, np.stack([reference(mass, jacobian, x, r, compliance) for x in forces]), **TOLERANCE)


@solvers
def test_vmap_over_the_mass_only(solver):
    arguments = problem("full")
    factors = jnp.array([0.5, 1.0, 2.0])

    def scaled(factor):
        mass = jax.tree.map(lambda x: factor * x, arguments[0])
        return jnp.concatenate(solver(mass, *arguments[1:]))

    heavy = [(jax.tree.map(lambda x, k=k: k * x, arguments[0]), *arguments[1:]) for k in factors]
    result = jax.jit(jax.vmap(scaled))(factors)
    np.testing.assert_allclose(result, np.stack([reference(*x) for x in heavy]), **TOLERANCE)


@solvers
@masses
class TestDerivatives:
    def line(self, kind):
        """Returns a point, a direction, and the solution with its first and second derivative along the line."""
        at, along = problem(kind, compliance=0.2, seed=1), problem(kind, compliance=0.3, seed=2)
        at, along = (*at[:4], at[4]), along
        inverse = np.linalg.inv(matrix(at[0], at[1], at[4]))
        change = matrix(along[0], along[1], along[4])
        x = inverse @ np.concatenate([at[2], at[3]])
        dx = inverse @ (np.concatenate([along[2], along[3]]) - change @ x)
        return at, along, x, dx, -2.0 * inverse @ change @ dx

    def test_forward_and_second_order(self, solver, kind):
        at, along, x, dx, ddx = self.line(kind)

        @jax.jit
        def derivatives(at, along):
            def first(at):
                return jax.jvp(lambda y: jnp.concatenate(solver(*y)), (at,), (along,))

            return *first(at), jax.jvp(first, (at,), (along,))[1][1]

        for result, exact in zip(derivatives(at, along), (x, dx, ddx), strict=True):
            np.testing.assert_allclose(result, exact, rtol=1e-12, atol=1e-12)

    def test_reverse_and_hessian(self, solver, kind):
        at, along, _x, dx, ddx = self.line(kind)
        weights = np.arange(1.0, SIZE + ROWS + 1.0)

        @jax.jit
        def derivatives(at, along):
            gradient = jax.grad(lambda y: jnp.sum(weights * jnp.concatenate(solver(*y))))
            value, curvature = jax.jvp(gradient, (at,), (along,))
            return tuple(
                sum(jnp.sum(a * b) for a, b in zip(jax.tree.leaves(y), jax.tree.leaves(along), strict=True)) for y in (value, curvature)
            )

        slope, curvature = derivatives(at, along)
        np.testing.assert_allclose(slope, weights @ dx, rtol=1e-12)
        np.testing.assert_allclose(curvature, weights @ ddx, rtol=1e-12)

    def test_each_argument_alone(self, solver, kind):
        # Other tangents are symbolic zeros then.
        at, along, *_ = self.line(kind)
        inverse = np.linalg.inv(matrix(at[0], at[1], at[4]))
        x = inverse @ np.concatenate([at[2], at[3]])
        zero = jax.tree.map(jnp.zeros_like, along)

        @jax.jit
        def derivatives(at, along):
            return [jax.jvp(lambda y, k=k: jnp.concatenate(solver(*at[:k], y, *at[k + 1 :])), (at[k],), (along[k],))[1] for k in range(5)]

        for k, result in enumerate(derivatives(at, along)):
            only = tuple(along[j] if j == k else zero[j] for j in range(5))
            rhs = np.concatenate([only[2], only[3]]) - matrix(only[0], only[1], only[4]) @ x
            np.testing.assert_allclose(result, inverse @ rhs, rtol=1e-12, atol=1e-12)


@solvers
def test_redundant_rows_with_compliance(solver):
    # Without compliance the matrix would be singular; with it the multipliers share the load.
    mass, jacobian, f, r, _ = problem("diagonal", rows=1)
    twice = jnp.concatenate([jacobian, jacobian])
    a, lam = solver(mass, twice, f, jnp.concatenate([r, r]), 1e-3)
    np.testing.assert_allclose(lam[0], lam[1], rtol=1e-10)
    np.testing.assert_allclose(jnp.concatenate([a, lam]), reference(mass, twice, f, np.repeat(r, 2), np.full(2, 1e-3)), rtol=1e-10)


def test_massless_coordinate_held_by_a_constraint():
    # The promise of DenseKKT: M need only be positive definite on the null space of J.
    arguments = (jnp.diag(jnp.array([1.0, 0.0])), jnp.array([[1.0, 1.0]]), jnp.array([3.0, -1.0]), jnp.zeros(1), jnp.zeros(1))
    a, lam = jd.DenseKKT()(*arguments)
    np.testing.assert_allclose(jnp.concatenate([a, lam]), [4.0, -4.0, 1.0], **TOLERANCE)
    assert not np.any(np.isfinite(jd.SchurComplement()(*arguments)[1]))


@solvers
def test_indefinite_mass_is_not_hidden(solver):
    # A negative mass in a free direction is no mechanical system; SchurComplement, which takes roots, must not return numbers.
    result = solver(jd.DiagonalMatrix(jnp.array([1.0, -1.0])), jnp.array([[1.0, 0.0]]), jnp.ones(2), jnp.zeros(1), 0.0)
    if isinstance(solver, jd.SchurComplement):
        assert not np.all(np.isfinite(jnp.concatenate(result)))
    else:
        np.testing.assert_allclose(jnp.concatenate(result), [0.0, -1.0, -1.0], **TOLERANCE)


class TestMassMatrix:
    def test_operators(self):
        dense, _, b, *_ = problem("full")
        diagonal, *_ = problem("diagonal")
        for mass, array in ((dense, np.asarray(dense)), (diagonal, np.diag(diagonal.diagonal))):
            np.testing.assert_array_equal(mass_matrix.as_dense(mass), array)
            np.testing.assert_allclose(mass_matrix.times(mass, b), array @ b, **TOLERANCE)
            np.testing.assert_allclose(mass_matrix.solve(mass, b), np.linalg.solve(array, b), **TOLERANCE)
            np.testing.assert_array_equal(mass_matrix.as_dense(mass_matrix.identity_like(mass)), np.eye(SIZE))

    @masses
    def test_derivatives_of_the_solve(self, kind):
        mass, _, b, *_ = problem(kind)
        change, *_ = problem(kind, seed=3)
        array, d = np.asarray(mass_matrix.as_dense(mass)), np.asarray(mass_matrix.as_dense(change))
        inverse = np.linalg.inv(array)

        def along(s):
            moved = jax.tree.map(lambda x, y: x + s * y, mass, change)
            return mass_matrix.solve(moved, b)

        first, second = jax.jit(jax.jacfwd(along)), jax.jit(jax.jacfwd(jax.jacrev(along)))
        np.testing.assert_allclose(first(0.0), -inverse @ d @ inverse @ b, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(second(0.0), 2.0 * inverse @ d @ inverse @ d @ inverse @ b, rtol=1e-12, atol=1e-12)
