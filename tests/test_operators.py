"""Operators against matrices: every method of every form of J. A new form is one row of `JACOBIANS`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import cast
from small_systems import everything, everywhere

from jaxdae.operators import (
    AutodiffRows,
    BlockDiagonalMatrix,
    BlockRows,
    DenseMatrix,
    DenseRows,
    DiagonalMatrix,
    StackedRows,
    as_jacobian_operator,
    as_mass_operator,
)

ROUND_OFF = {"rtol": 1e-12, "atol": 1e-12}
BODIES, WIDTH = 5, 3
SIZE = BODIES * WIDTH
RNG = np.random.default_rng(0)


def random(*shape):
    return jnp.asarray(RNG.standard_normal(shape))


def block_rows(a, b, width=WIDTH, bodies=BODIES):
    return BlockRows(random(len(a), width), random(len(a), width), a, b, bodies)


# Ground on either side, two rows of one joint, joints in parallel the other way round, a loop, a body with many rows, one with none.
PAIRS = block_rows((5, 0, 0, 2, 0, 3, 1, 2), (0, 1, 1, 1, 2, 2, 5, 0))
JACOBIANS = {
    "dense": DenseRows(random(4, SIZE)),
    "blocks": PAIRS,
    "blocks without rows": block_rows((), ()),
    "stacked": StackedRows((block_rows((0, 1), (1, 5)), DenseRows(random(3, SIZE)), block_rows((2,), (3,)))),
    "six wide": block_rows((2, 0, 0), (0, 1, 1), 6, 2),
    "autodiff": AutodiffRows(everything(), everywhere()),
    "masked autodiff": AutodiffRows(everything(), everywhere()).masked(jnp.array([True, False, True])),
    "autodiff below": AutodiffRows(everything(), everywhere()).stacked(DenseRows(random(2, 4))),
}
HALF = RNG.standard_normal((SIZE, SIZE))
BLOCKS = RNG.standard_normal((BODIES, WIDTH, WIDTH))
MASSES = {
    "dense": DenseMatrix(jnp.asarray(HALF @ HALF.T + np.eye(SIZE))),
    "diagonal": DiagonalMatrix(1.0 + jnp.arange(SIZE, dtype=float)),
    "blocks": BlockDiagonalMatrix(jnp.asarray(BLOCKS @ np.swapaxes(BLOCKS, 1, 2) + np.eye(WIDTH))),
}


def products(jacobian):
    """Returns all that the methods of J give, and what they give of its compositions."""
    rows, size = jacobian.shape
    x = jnp.cos(1.0 + jnp.arange(size, dtype=jacobian.dtype))
    d = 1.5 + x
    active = jnp.arange(rows) % 3 != 1
    blocks = (1.0 + jnp.arange(size * 2, dtype=d.dtype)).reshape(size // 2, 2, 2) if size % WIDTH else _wide(jacobian)
    further = DenseRows(jnp.cos(jnp.arange(2.0 * size, dtype=d.dtype)).reshape(2, size))
    parts = (
        jacobian,
        jacobian.masked(active),
        jacobian.leading(rows // 2),
        jacobian.between(rows // 3, rows),
        jacobian.over_columns(d),
        jacobian.times_blocks(blocks),
        jacobian.stacked(further),
        jacobian.stacked(further).masked(jnp.arange(rows + 2) % 2 == 0).between(rows // 2, rows + 1),
        further.stacked(jacobian),
    )
    sides = [jnp.cos(jnp.arange(part.shape[0], dtype=d.dtype)) for part in parts]
    found = [(part.times(x), part.transpose_times(y)) for part, y in zip(parts, sides, strict=True)]
    return found, [part.as_dense() for part in parts], [part.gram() for part in parts], [part.row_sizes() for part in parts]


def _wide(jacobian):
    """Returns blocks of the bodies' width."""
    width = 6 if jacobian.shape[1] == 12 else WIDTH
    count = jacobian.shape[1] // width
    return jnp.cos(jnp.arange(float(count * width**2), dtype=jacobian.dtype)).reshape(count, width, width)


def same(found, expected, **tolerance):
    leaves, others = (jax.tree.leaves(x) for x in (found, expected))
    for x, y in zip(leaves, others, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, **tolerance)


def by_hand(jacobian):
    """Returns the matrix of block rows, entry by entry."""
    matrix = np.zeros(jacobian.shape)
    width = jacobian.first.shape[1]
    for side, bodies in ((jacobian.first, jacobian.a), (jacobian.second, jacobian.b)):
        for row, body in enumerate(bodies):
            if body < jacobian.bodies:
                matrix[row, body * width : (body + 1) * width] = side[row]
    return matrix


@pytest.mark.parametrize("jacobian", JACOBIANS.values(), ids=JACOBIANS)
class TestJacobians:
    def test_equal_the_matrix(self, jacobian):
        dense = DenseRows(jacobian.as_dense())
        assert (jacobian.shape, jacobian.dtype) == (dense.shape, dense.dtype)
        same(jax.jit(products)(jacobian), jax.jit(products)(dense), **ROUND_OFF)
        assert not np.any(np.asarray(jnp.any(dense.matrix != 0.0, axis=0) & ~jacobian.touched()))

    def test_derivatives(self, jacobian):
        def weighted(operator):
            some = operator.times(jnp.arange(1.0, operator.shape[1] + 1.0)), operator.masked(jnp.arange(operator.shape[0]) > 0)
            return jnp.sum(some[0] ** 3) + jnp.sum(some[1].transpose_times(jnp.ones(operator.shape[0])) ** 2)

        found = jax.grad(weighted, allow_int=True)(jacobian)
        expected = jax.grad(lambda operator: weighted(DenseRows(operator.as_dense())), allow_int=True)(jacobian)
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            if x.dtype != jax.dtypes.float0:
                np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-9)


class TestBlockRows:
    def test_entries(self):
        for jacobian in (PAIRS, JACOBIANS["six wide"]):
            np.testing.assert_array_equal(jacobian.as_dense(), by_hand(jacobian))
            np.testing.assert_array_equal(jacobian.touched(), np.any(by_hand(jacobian) != 0.0, axis=0))
            np.testing.assert_array_equal(jacobian.gram(), jacobian.gram().T)

    def test_worlds_and_single_precision(self):
        worlds = jax.tree.map(lambda x: jnp.stack([x, -2.0 * x]), PAIRS)
        found = jax.jit(jax.vmap(products))(worlds)
        for k, factor in enumerate((1.0, -2.0)):
            expected = products(DenseRows(jnp.asarray(factor * by_hand(PAIRS))))
            same(jax.tree.map(lambda x, k=k: x[k], found), expected, rtol=1e-11, atol=1e-11)
        single = cast(PAIRS, jnp.float32)
        same(jax.jit(products)(single), jax.jit(products)(DenseRows(single.as_dense())), rtol=1e-4, atol=1e-4)

    def test_structure_is_kept(self):
        assert isinstance(DiagonalMatrix(jnp.ones(SIZE)).factorize().scaled_rows(PAIRS.masked(jnp.ones(8, bool)).leading(5)), BlockRows)
        assert isinstance(MASSES["blocks"].factorize().scaled_rows(PAIRS), BlockRows)
        assert isinstance(PAIRS.stacked(DenseRows(jnp.zeros((0, SIZE)))), BlockRows)


def test_arrays_become_operators_and_operators_stay():
    assert isinstance(as_mass_operator(np.eye(2)), DenseMatrix)
    assert isinstance(as_jacobian_operator(np.eye(2)), DenseRows)
    assert as_mass_operator(MASSES["diagonal"]) is MASSES["diagonal"]
    assert as_jacobian_operator(PAIRS) is PAIRS
