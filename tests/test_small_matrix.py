"""Small matrices: LAPACK for one, unrolled code for a batch; both must say the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from factors import lower_of

from jaxdae.compile.thresholds import UNROLLED_UP_TO
from jaxdae.linalg import small_matrix
from jaxdae.linalg.small_matrix import cholesky, inverse_cholesky

WORLDS = 3
SIZES = [1, 2, 8, UNROLLED_UP_TO, UNROLLED_UP_TO + 1]

single = jax.jit(inverse_cholesky)
batched = jax.jit(jax.vmap(inverse_cholesky))


def positive_definite(size, worlds=WORLDS, dtype=float):
    """Random matrices with condition numbers below 10, so that round-off stays within some tens of eps."""
    half = np.random.default_rng(size).standard_normal((worlds, size, size)) / np.sqrt(size)
    return (half @ np.swapaxes(half, -1, -2) + np.eye(size)).astype(dtype)


def expected(matrix):
    return np.linalg.inv(np.linalg.cholesky(np.asarray(matrix, float)))


def round_off(dtype=float):
    return {"rtol": 0.0, "atol": 50.0 * float(jnp.finfo(dtype).eps)}


class TestInverseCholesky:
    @pytest.mark.long
    @all_cases("size", SIZES)
    def test_values(self, size):
        matrices = positive_definite(size)
        for w, exact in (
            (np.asarray(batched(matrices)), expected(matrices)),
            (single(matrices[0]), expected(matrices[0])),
        ):
            np.testing.assert_allclose(w, exact, **round_off())
            np.testing.assert_array_equal(w, np.tril(w))

    @all_cases("size", SIZES)
    def test_only_the_lower_triangle_is_read(self, size):
        matrices = positive_definite(size)
        spoiled = matrices + np.triu(np.full((size, size), np.nan), 1)
        spoiled[:, *np.tril_indices(size)] = matrices[:, *np.tril_indices(size)]
        np.testing.assert_array_equal(batched(spoiled), batched(matrices))
        np.testing.assert_array_equal(single(spoiled[0]), single(matrices[0]))

    @all_cases("size", SIZES)
    def test_an_indefinite_world_is_not_finite_and_alone(self, size):
        matrices = positive_definite(size)
        spoiled = matrices.copy()
        spoiled[1, -1, -1] = -1.0
        w, good = np.asarray(batched(spoiled)), batched(matrices)
        np.testing.assert_array_equal(w[::2], good[::2])
        # What counts is the solution W^T W b, in which no entry may look usable.
        for factor in (w[1], np.asarray(single(spoiled[1]))):
            assert np.all(np.isnan(factor.T @ (factor @ np.ones(size))))


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_singular_matrices_are_not_finite(matrix):
    assert not np.all(np.isfinite(single(matrix)))
    assert not np.all(np.isfinite(batched(np.stack([np.eye(2), matrix, np.eye(2)]))[1]))


@pytest.mark.parametrize("axis", [1, -1])
def test_world_axis_anywhere(axis):
    matrices = positive_definite(2)
    moved = jax.vmap(inverse_cholesky, in_axes=axis, out_axes=axis)(
        jnp.asarray(np.moveaxis(matrices, 0, axis))
    )
    np.testing.assert_allclose(np.moveaxis(moved, axis, 0), expected(matrices), **round_off())


def test_nested_batches_and_batch_of_one():
    matrices = positive_definite(2, 4).reshape(4, 1, 2, 2)
    np.testing.assert_allclose(jax.jit(jax.vmap(batched))(matrices), expected(matrices), **round_off())


@pytest.mark.parametrize("size", [2, UNROLLED_UP_TO + 1])
def test_single_precision(size):
    matrices = positive_definite(size, dtype=np.float32)
    for w, exact in ((batched(matrices), expected(matrices)), (single(matrices[0]), expected(matrices[0]))):
        assert w.dtype == np.float32
        np.testing.assert_allclose(w, exact, **round_off(np.float32))


def test_size_zero():
    assert single(np.zeros((0, 0))).shape == (0, 0)
    assert batched(np.zeros((WORLDS, 0, 0))).shape == (WORLDS, 0, 0)


def test_products():
    rng = np.random.default_rng(0)
    a, b, square = rng.standard_normal((3, 2)), rng.standard_normal((4, 2)), rng.standard_normal((2, 2))
    x, y = rng.standard_normal(2), rng.standard_normal(3)
    np.testing.assert_allclose(small_matrix.matvec(jnp.asarray(a), jnp.asarray(x)), a @ x, **round_off())
    np.testing.assert_allclose(small_matrix.rmatvec(jnp.asarray(a), jnp.asarray(y)), a.T @ y, **round_off())
    product = small_matrix.product_transposed(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(product, a @ b.T, **round_off())
    shifted = small_matrix.add_diagonal(jnp.asarray(square), jnp.asarray(x))
    np.testing.assert_allclose(shifted, square + np.diag(x), **round_off())


def test_products_with_one_operand_shared_by_all_worlds():
    rng = np.random.default_rng(1)
    matrices, xs = rng.standard_normal((WORLDS, 3, 2)), rng.standard_normal((WORLDS, 2))
    shared = jax.vmap(small_matrix.matvec, in_axes=(None, 0))(jnp.asarray(matrices[0]), xs)
    np.testing.assert_allclose(shared, xs @ matrices[0].T, **round_off())
    shared = jax.vmap(small_matrix.matvec, in_axes=(0, None))(matrices, jnp.asarray(xs[0]))
    np.testing.assert_allclose(shared, matrices @ xs[0], **round_off())


def test_matrices_without_rows():
    solve = lambda a, b: cholesky(a).solve(b)  # noqa: E731
    assert jax.jit(solve)(jnp.zeros((0, 0)), jnp.zeros(0)).shape == (0,)
    assert jax.jit(jax.vmap(solve))(jnp.zeros((3, 0, 0)), jnp.zeros((3, 0))).shape == (3, 0)


def test_rows_that_depend_on_others_are_told_beside_rows_that_nearly_do():
    """Products with the inverse of a nearly singular block would leave errors as large as pivots, of which
    some are positive.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 10, 14))
    scale = np.where(np.arange(14) < 3, 1.0, 1e-4)
    rows[:, :5] = (rng.standard_normal((2000, 5, 14)) * scale) @ np.linalg.qr(
        rng.standard_normal((2000, 14, 14))
    )[0]
    rows[:, 8] = 0.3 * rows[:, 0] + 2.0 * rows[:, 3] - rows[:, 6]
    x = jax.jit(jax.vmap(lambda j: cholesky(j @ j.T).solve(jnp.ones(10))))(rows)
    assert np.all(np.isnan(x))


@pytest.mark.parametrize("size", [1, 3, 12, UNROLLED_UP_TO + 1])
class TestSolve:
    def sides(self, size):
        return np.random.default_rng(size + 100).standard_normal((WORLDS, size))

    def test_one_and_a_batch(self, size):
        matrices, sides = jnp.asarray(positive_definite(size)), jnp.asarray(self.sides(size))
        solve = lambda a, b: cholesky(a).solve(b)  # noqa: E731
        exact = np.linalg.solve(matrices, sides[..., None])[..., 0]
        np.testing.assert_allclose(jax.jit(jax.vmap(solve))(matrices, sides), exact, **round_off())
        np.testing.assert_allclose(jax.jit(solve)(matrices[0], sides[0]), exact[0], **round_off())

    @pytest.mark.long
    def test_factors_and_sides_that_worlds_share(self, size):
        """A factor is what it is, wherever it was made: in a batch or alone, and for one side or for many."""
        matrices, sides = jnp.asarray(positive_definite(size)), jnp.asarray(self.sides(size))
        alone, together = cholesky(matrices[0]), jax.vmap(cholesky)(matrices)
        many = jax.vmap(lambda b: alone.solve(b))(sides)
        np.testing.assert_allclose(many, np.linalg.solve(matrices[0], sides.T).T, **round_off())
        shared = jax.vmap(lambda factor: factor.solve(sides[0]))(together)
        np.testing.assert_allclose(
            shared,
            np.linalg.solve(matrices, np.broadcast_to(sides[0], sides.shape)[..., None])[..., 0],
            **round_off(),
        )
        columns = jax.vmap(lambda factor: jax.vmap(factor.solve)(jnp.eye(size)))(together)
        np.testing.assert_allclose(columns, np.linalg.inv(matrices), **round_off())
        first = jax.tree.map(lambda x: x[0], together)
        np.testing.assert_allclose(
            first.solve(sides[0]), np.linalg.solve(matrices[0], sides[0]), **round_off()
        )
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *(cholesky(matrix) for matrix in matrices))
        exact = np.linalg.solve(matrices, sides[..., None])[..., 0]
        np.testing.assert_allclose(
            jax.vmap(lambda factor, b: factor.solve(b))(stacked, sides), exact, **round_off()
        )
        np.testing.assert_allclose(together.inverse, stacked.inverse, **round_off())
        second = jax.tree.map(lambda x: x[1], together)
        for lower in (np.linalg.inv(second.inverse), *([lower_of(second.blocks)] if second.blocks else [])):
            np.testing.assert_allclose(lower @ lower.T, matrices[1], **round_off())

    def test_an_indefinite_world_is_not_finite_and_alone(self, size):
        matrices, sides = jnp.asarray(positive_definite(size)), jnp.asarray(self.sides(size))
        spoiled = matrices.at[1, -1, -1].set(-1.0)
        good, x = (
            np.asarray(jax.vmap(lambda a, b: cholesky(a).solve(b))(m, sides)) for m in (matrices, spoiled)
        )
        np.testing.assert_array_equal(x[::2], good[::2])
        assert np.all(np.isnan(x[1]))
