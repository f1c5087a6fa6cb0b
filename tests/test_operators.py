"""Operators against matrices: every method of every class, and a chain whose J is blocks under all that uses
J.

A new operator is one row of `JACOBIANS` or `MASSES`. The chains differ in nothing but the form in which they
hand out J.
"""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import METHODS, SOLVERS
from control_problems import arm
from problems import cast
from small_systems import everything, everywhere

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.control import Coordinates, Goal, WithGoals
from jaxdae.matrices import (
    AutodiffRows,
    BlockDiagonalMatrix,
    BlockRows,
    DenseMatrix,
    DenseRows,
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


# Ground on either side, two rows of one joint, joints in parallel the other way round, a loop, a body with
# many rows, one with none.
PAIRS = block_rows((5, 0, 0, 2, 0, 3, 1, 2), (0, 1, 1, 1, 2, 2, 5, 0))
JACOBIANS = {
    "dense": DenseRows(random(4, SIZE)),
    "blocks": PAIRS,
    "blocks without rows": block_rows((), ()),
    "stacked": StackedRows((block_rows((0, 1), (1, 5)), DenseRows(random(3, SIZE)), block_rows((2,), (3,)))),
    "six wide": block_rows((2, 0, 0), (0, 1, 1), 6, 2),
    "two rows a joint, twenty joints on one body": block_rows(
        (0,) * 40, tuple(np.repeat(1 + np.arange(20) % 5, 2).tolist())
    ),
    "autodiff": AutodiffRows(everything(), everywhere()),
    "masked autodiff": AutodiffRows(everything(), everywhere()).masked(jnp.array([True, False, True])),
    "autodiff below": AutodiffRows(everything(), everywhere()).stacked(DenseRows(random(2, 4))),
}
HALF = RNG.standard_normal((SIZE, SIZE))
BLOCKS = RNG.standard_normal((BODIES, WIDTH, WIDTH))
MASSES = {
    "dense": DenseMatrix(jnp.asarray(HALF @ HALF.T + np.eye(SIZE))),
    "diagonal": jd.operators.DiagonalMatrix(1.0 + jnp.arange(SIZE, dtype=float)),
    "blocks": BlockDiagonalMatrix(jnp.asarray(BLOCKS @ np.swapaxes(BLOCKS, 1, 2) + np.eye(WIDTH))),
}


def products(jacobian):
    """Returns all that the methods of J give, and what they give of its compositions."""
    rows, size = jacobian.shape
    x = jnp.cos(1.0 + jnp.arange(size, dtype=jacobian.dtype))
    d = 1.5 + x
    active = jnp.arange(rows) % 3 != 1
    blocks = (
        (1.0 + jnp.arange(size * 2, dtype=d.dtype)).reshape(size // 2, 2, 2)
        if size % WIDTH
        else _wide(jacobian)
    )
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
    return (
        found,
        [part.as_dense() for part in parts],
        [part.gram() for part in parts],
        [part.row_sizes() for part in parts],
    )


def _wide(jacobian):
    """Returns blocks of the bodies' width, of half of it where they have six velocities."""
    count = jacobian.shape[1] // WIDTH
    return jnp.cos(jnp.arange(float(count * WIDTH**2), dtype=jacobian.dtype)).reshape(count, WIDTH, WIDTH)


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

    @pytest.mark.long
    def test_derivatives(self, jacobian):
        def weighted(operator):
            some = (
                operator.times(jnp.arange(1.0, operator.shape[1] + 1.0)),
                operator.masked(jnp.arange(operator.shape[0]) > 0),
            )
            return jnp.sum(some[0] ** 3) + jnp.sum(some[1].transpose_times(jnp.ones(operator.shape[0])) ** 2)

        found = jax.grad(weighted, allow_int=True)(jacobian)
        expected = jax.grad(lambda operator: weighted(DenseRows(operator.as_dense())), allow_int=True)(
            jacobian
        )
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            if x.dtype != jax.dtypes.float0:
                np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-9)


class TestBlockRows:
    def test_entries(self):
        for jacobian in (PAIRS, JACOBIANS["six wide"]):
            np.testing.assert_array_equal(jacobian.as_dense(), by_hand(jacobian))
            np.testing.assert_array_equal(jacobian.touched(), np.any(by_hand(jacobian) != 0.0, axis=0))
            np.testing.assert_array_equal(jacobian.gram(), jacobian.gram().T)

    @pytest.mark.long
    def test_worlds_and_single_precision(self):
        worlds = jax.tree.map(lambda x: jnp.stack([x, -2.0 * x]), PAIRS)
        found = jax.jit(jax.vmap(products))(worlds)
        for k, factor in enumerate((1.0, -2.0)):
            expected = jax.jit(products)(DenseRows(jnp.asarray(factor * by_hand(PAIRS))))
            same(jax.tree.map(lambda x, k=k: x[k], found), expected, rtol=1e-11, atol=1e-11)
        single = cast(PAIRS, jnp.float32)
        same(jax.jit(products)(single), jax.jit(products)(DenseRows(single.as_dense())), rtol=1e-4, atol=1e-4)

    def test_structure_is_kept(self):
        assert isinstance(
            jd.operators.DiagonalMatrix(jnp.ones(SIZE))
            .factorize()
            .scaled_rows(PAIRS.masked(jnp.ones(8, bool)).leading(5)),
            BlockRows,
        )
        assert isinstance(MASSES["blocks"].factorize().scaled_rows(PAIRS), BlockRows)
        assert isinstance(PAIRS.stacked(DenseRows(jnp.zeros((0, SIZE)))), BlockRows)


@pytest.mark.parametrize("mass", MASSES.values(), ids=MASSES)
def test_masses_equal_the_matrix(mass):
    hand = jnp.asarray(by_hand(PAIRS))

    @jax.jit
    def methods(mass):
        x, columns = jnp.cos(jnp.arange(float(SIZE))), jnp.sin(jnp.arange(2.0 * SIZE)).reshape(SIZE, 2)
        factors = mass.factorize()
        root = [jax.vmap(f, in_axes=1, out_axes=1)(jnp.eye(SIZE)) for f in (factors.scaled, factors.unscaled)]
        rows = [factors.scaled_rows(jacobian) for jacobian in (DenseRows(hand), PAIRS)]
        roots = mass.root_times(x), mass.root_times(columns)
        extended, identity = mass.extended(2).as_dense(), mass.identity().as_dense()
        along = jax.jvp(lambda m: m.solve(x), (mass,), (mass,))
        grams = [part.gram() for part in rows], [part.as_dense() for part in rows]
        return (
            mass.times(x),
            mass.times_matrix(columns),
            along,
            mass.diagonal_mean(),
            root,
            grams,
            roots,
            extended,
            identity,
        )

    x, columns = np.cos(np.arange(float(SIZE))), np.sin(np.arange(2.0 * SIZE)).reshape(SIZE, 2)
    matrix, rows = np.asarray(mass.as_dense()), by_hand(PAIRS)
    assert (mass.shape, mass.dtype) == (matrix.shape, matrix.dtype)
    times, times_matrix, (solved, slope), mean, (lower, upper), (grams, scaled), roots, extended, identity = (
        methods(mass)
    )
    inverse = np.linalg.inv(matrix)
    for found, expected in (
        (times, matrix @ x),
        (times_matrix, matrix @ columns),
        (solved, inverse @ x),
        (slope, -inverse @ x),  # d(M^-1) = -M^-1 dM M^-1, dM = M.
        (mean, np.trace(matrix) / SIZE),
        (upper @ lower, inverse),
        (upper, lower.T),
        (grams[0], rows @ inverse @ rows.T),
        (grams[1], rows @ inverse @ rows.T),
        (scaled[0], rows @ upper),
        (scaled[1], rows @ upper),
        (roots[0] @ roots[0], x @ matrix @ x),
        (roots[1].T @ roots[1], columns.T @ matrix @ columns),
        (extended, np.block([[matrix, np.zeros((SIZE, 2))], [np.zeros((2, SIZE)), np.eye(2)]])),
        (identity, np.eye(SIZE)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_arrays_become_operators_and_operators_stay():
    assert isinstance(as_mass_operator(np.eye(2)), DenseMatrix)
    assert isinstance(as_jacobian_operator(np.eye(2)), DenseRows)
    assert as_mass_operator(MASSES["diagonal"]) is MASSES["diagonal"]
    assert as_jacobian_operator(PAIRS) is PAIRS


# The chain.


@jd.tree.pytree(kw_only=True)
class Blocks(jm.Mechanism):
    """A mechanism whose J is always blocks."""

    blocks_from: ClassVar[int] = 0


@jd.tree.pytree(kw_only=True)
class Dense(jm.Mechanism):
    """The same with a matrix."""

    blocks_from: ClassVar[int] = 10**6


@pytest.fixture(scope="module")
def chains():
    """Returns a chain of 6 links, once in each form, and a state."""
    mechanism, at = arm((1.0, 0.8, 1.2, 0.9, 1.1, 0.7), (0.7, -0.4, 1.9, 0.3, -1.2, 0.5))
    given = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    at, _ = jd.initialize(mechanism, at.q, jnp.sin(jnp.arange(18.0)))
    return Blocks(**given), Dense(**given), at


# Methods that use J in ways of their own; others are made of the same steps.
OWN_USES_OF_J = ("rk4", "half_explicit4", "generalized_alpha", "radau_iia")
INPUTS = jnp.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])


def wrapped(system, few):
    """Returns the system in all wrappers, with the solvers to be tried: those with ways of their own with J.
    Or without wrappers, and in all at once, with fewer solvers.
    """
    goals = (Goal(Coordinates((15,)), lambda t: 2.0 + 0.1 * t), Goal(Coordinates((5,)), rate=0.3))
    all_at_once = jd.Masked(jd.Soft(WithGoals(system, goals), 1e-2), jnp.arange(14) % 4 != 2)
    if few:
        return {
            "plain": (system, ("null_space", "conjugate_gradient")),
            "all": (all_at_once, ("schur_complement",)),
        }
    return {
        "plain": (system, SOLVERS),
        "masked": (jd.Masked(system, jnp.arange(12) % 5 != 3), ("schur_complement",)),
        "soft": (jd.Soft(system, jnp.where(jnp.arange(12) < 4, 0.1, 0.0)), ("schur_complement",)),
        "with goals": (WithGoals(system, goals), ("proximal",)),
        "all": (all_at_once, ("schur_complement", "conjugate_gradient")),
    }


@functools.partial(jax.jit, static_argnames="few")
def dynamics(system, at, few):
    """Returns accelerations and multipliers in all wrappers under all solvers, projections, and what inverse
    dynamics leaves over.
    """
    found, systems = {}, wrapped(system, few)
    feedback = jd.textbook.MultiplierFeedback(3.0, 2.0)
    for name, (inside, solvers) in systems.items():
        for key in solvers:
            found[name, key] = jd.forward_dynamics(
                inside, at, INPUTS, solver=SOLVERS[key].solver, stabilization=feedback
            )
        found[name, "inverse"] = jd.inverse_dynamics(inside, at, *found[name, key], INPUTS)
    if few:
        return found
    found["with goals", "projected"] = jd.Projection().project(
        systems["with goals"][0], jd.State(at.t, at.q + 1e-3, at.v + 1e-2)
    )
    return found


def close(found, expected, tolerance=1e-11):
    paths = jax.tree_util.tree_flatten_with_path(found)[0]
    for (path, x), y in zip(paths, jax.tree.leaves(expected), strict=True):
        scale = max(1.0, np.max(np.abs(y), initial=0.0))
        np.testing.assert_allclose(x, y, rtol=0.0, atol=tolerance * scale, err_msg=jax.tree_util.keystr(path))


class TestChain:
    @pytest.mark.long
    def test_forms_of_the_jacobian(self, chains):
        blocks, dense, at = chains
        assert isinstance(blocks.jacobian_operator(at.t, at.q, at.v), BlockRows)
        assert isinstance(blocks.jacobian_products(at.t, at.q, at.v), BlockRows)
        assert isinstance(
            jd.Masked(jd.Soft(blocks, 0.1), jnp.ones(12, bool)).jacobian_operator(at.t, at.q, at.v), BlockRows
        )
        assert isinstance(dense.jacobian_operator(at.t, at.q, at.v), DenseRows)
        expected = dense.constraint_jacobian(at.t, at.q, at.v)
        np.testing.assert_allclose(
            blocks.jacobian_operator(at.t, at.q, at.v).as_dense(), expected, **ROUND_OFF
        )
        below, above = (arm((1.0,) * n, (0.0,) * n)[0] for n in (2, jm.Mechanism.blocks_from))
        for mechanism, kind in ((below, DenseRows), (above, BlockRows)):
            q = jnp.zeros(3 * len(mechanism.body_names))
            assert isinstance(mechanism.jacobian_operator(jnp.zeros(()), q, q), kind)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "few", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["few", "all"]
    )
    def test_solvers_and_wrappers(self, chains, few):
        blocks, dense, at = chains
        found = dynamics(blocks, at, few)
        expected = dynamics(dense, at, few)
        for (name, key), value in found.items():
            close(value, expected[name, key], 1e-9 if key in SOLVERS and SOLVERS[key].iterative else 1e-11)
        for name in wrapped(blocks, few):
            np.testing.assert_allclose(found[name, "inverse"], 0.0, rtol=0, atol=1e-9)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "solver", [jd.SchurComplement(), pytest.param(jd.Proximal(), marks=pytest.mark.exhaustive)]
    )
    def test_derivatives(self, chains, solver):
        @jax.jit
        def gradient(system, at):
            return jax.grad(
                lambda s, x: jnp.sum(
                    jnp.cos(jnp.concatenate(jd.forward_dynamics(s, x, INPUTS, solver=solver)))
                ),
                (0, 1),
            )(system, at)

        blocks, dense, at = chains
        close(gradient(blocks, at), gradient(dense, at), 1e-9)

    @pytest.mark.long
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=pytest.mark.exhaustive if name in ("rk4", "radau_iia") else [])
            for name in OWN_USES_OF_J
        ],
    )
    def test_integrators(self, chains, name):
        method = METHODS[name].integrator if METHODS[name].closed else jd.Projected(METHODS[name].integrator)

        @jax.jit
        def two_steps(system, at):
            def one_step(carry, _):
                *carry, info = method.step(system, *carry, INPUTS, 1e-2)
                return tuple(carry), info

            (at, _), infos = jax.lax.scan(one_step, (at, method.init(system, at)), length=2)
            return at, infos

        blocks, dense, at = chains
        close(two_steps(blocks, at), two_steps(dense, at))

    @pytest.mark.long
    def test_starts_and_reports(self, chains):
        blocks, dense, at = chains
        starts = [jd.initialize(system, at.q + 1e-2, at.v)[0] for system in (blocks, dense)]
        close(*starts)
        reports = [vars(jd.diagnose(system, at)) for system in (blocks, dense)]
        numbers = [
            {key: value for key, value in report.items() if isinstance(value, float)} for report in reports
        ]
        np.testing.assert_allclose(*(list(x.values()) for x in numbers), rtol=1e-9, atol=1e-12)
        others = [
            {key: value for key, value in report.items() if key not in numbers[0]} for report in reports
        ]
        assert others[0] == others[1]
