"""The contract of saddle-point solvers at full rank: a new solver is one more row of `saddle_points.SOLVERS`.

The reference is rational arithmetic (`exact`): values, first and second derivatives of (a, lam) along lines
through all arguments are known to the last bit, and every solver must return them, compiled, in batches,
forward, reverse, and forward over reverse.
"""

import dataclasses

import agreement
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from problems import cast
from saddle_points import (
    ANY_RANK,
    MASSLESS,
    ROWS,
    SIZE,
    SOLVERS,
    batch_report,
    batch_reports,
    exact_line,
    line,
    masses,
    numbers,
    report,
    stacked,
)

import jaxdae as jd
from jaxdae.matrices import DenseRows, as_mass_operator
from jaxdae.saddle_point import solve

SOFT = ([0.5, 0.25, 0.75], [0.25, -0.5, 0.125])
WEIGHTS = jnp.arange(1.0, SIZE + ROWS + 1.0)
ROUND_OFF = float(jnp.finfo(float).eps)

# The condition numbers of the matrices below are under 300, the numbers of terms in a sum under 10.
ACCURACY = 3000.0 * ROUND_OFF

each_solver = all_cases("solver", SOLVERS.values(), ids=SOLVERS)
# In batches, and in derivatives, they go the same ways; two that factorize and one that iterates are quick.
QUICK = ("dense_kkt", "schur_complement", "proximal")
FEW = (*QUICK, "null_space", "conjugate_gradient")


def solvers(long=tuple(SOLVERS)):
    """Return the decorator for tests with each solver; those neither quick nor long are exhaustive."""
    return pytest.mark.parametrize(
        "solver",
        [
            pytest.param(
                solver,
                id=name,
                marks=() if name in QUICK else pytest.mark.long if name in long else pytest.mark.exhaustive,
            )
            for name, solver in SOLVERS.items()
        ],
    )


batched_solvers = solvers()


def close(result, expected, accuracy=ACCURACY):
    agreement.close(result, expected, accuracy)


def problem(kind, seed=0, compliance=None):
    return line(kind, seed=seed, consistent=False, compliance=compliance)


def sized(rows, size, seed=0):
    """Returns a problem of another size that does not move, as arguments of a solver, without compliance."""
    rng = np.random.default_rng(seed)
    half, jacobian = numbers(rng, size, size), numbers(rng, rows, size) + np.eye(rows, size)
    mass = jnp.asarray(half @ half.T + np.eye(size))
    return mass, jnp.asarray(jacobian), jnp.asarray(numbers(rng, size)), jnp.asarray(numbers(rng, rows))


def reference(mass, jacobian, f, r, compliance=0.0):
    """Returns (a, lam) by NumPy."""
    rows = len(r)
    corner = np.diag(np.broadcast_to(compliance, (rows,)))
    matrix = np.block(
        [
            [np.asarray(as_mass_operator(mass).as_dense()), -np.asarray(jacobian).T],
            [np.asarray(jacobian), corner],
        ]
    )
    return np.linalg.solve(matrix, np.concatenate([f, r]))


def expected(moving):
    """Returns what `report` has to return."""
    x, dx, ddx = exact_line(moving)
    return x, dx, ddx, WEIGHTS @ dx, WEIGHTS @ ddx


def check(results, moving):
    for result, exact in zip(results, expected(moving), strict=True):
        close(result, exact)


def without(moving, *fields):
    """Returns the problem with some of its parts at rest."""
    still = {name: getattr(moving, name) for name in fields if getattr(moving, name) is not None}
    return dataclasses.replace(
        moving, **{name: (part[0], *jax.tree.map(jnp.zeros_like, part[1:])) for name, part in still.items()}
    )


@batched_solvers
class TestOneWorld:
    """Full mass matrices, all rows soft."""

    @pytest.mark.long
    def test_values_and_derivatives(self, solver):
        moving = problem("full", 1, SOFT)
        check(report(solver, moving, WEIGHTS), moving)

    def test_zero_right_hand_sides(self, solver):
        moving = problem("full", 1, SOFT)
        at_rest = dataclasses.replace(moving, **jax.tree.map(jnp.zeros_like, {"f": moving.f, "r": moving.r}))
        for result in report(solver, at_rest, WEIGHTS):
            np.testing.assert_array_equal(result, np.zeros_like(result))

    def test_each_argument_alone(self, solver):
        fields = ("mass", "jacobian", "f", "r", "compliance")
        for moves in fields:
            alone = without(problem("full", 1, SOFT), *(name for name in fields if name != moves))
            check(report(solver, alone, WEIGHTS), alone)


@solvers(FEW)
class TestBatches:
    """Diagonal mass matrices, all rows hard."""

    @pytest.mark.long
    def test_values_and_derivatives(self, solver):
        worlds = [problem("diagonal", seed) for seed in (1, 3, 4)]
        for results, world in zip(batch_reports(solver, worlds, WEIGHTS), worlds, strict=True):
            x, _, _, *slopes = expected(world)
            for result, exact in zip(results, (x, *slopes), strict=True):
                close(result, exact)

    @all_cases("part", ["mass", "jacobian", "f", "r"])
    def test_a_world_that_is_not_a_number_is_alone(self, solver, part):
        worlds = stacked([problem("diagonal", seed) for seed in (1, 3, 4)])
        spoiled = dataclasses.replace(
            worlds, **{part: jax.tree.map(lambda x: x.at[..., 1].set(jnp.nan), getattr(worlds, part))}
        )
        results = [batch_report(solver, x, WEIGHTS) for x in (worlds, spoiled)]
        for good, result in zip(*results, strict=True):
            np.testing.assert_array_equal(result[..., ::2], good[..., ::2])
            assert not np.all(np.isfinite(result[..., 1]))

    def test_batch_of_one_and_shared_arguments(self, solver):
        # Only the mass differs from world to world: in one batch of one.
        mass, jacobian, f, r, _ = problem("full", 1).at(0.0)
        result = jax.jit(
            jax.vmap(lambda m: jnp.concatenate(jd.solve_saddle_point(solver, m, jacobian, f, r)))
        )(mass[None])
        close(result[0], reference(mass, jacobian, f, r))


@batched_solvers
@pytest.mark.parametrize(
    "compliance",
    [([0.0, 0.0, 0.0], [0.5, 0.25, 0.75]), ([0.0, 0.5, 0.0], [0.25, 0.0, 0.5])],
    ids=["none", "one"],
)
def test_rows_that_begin_to_give_way(solver, compliance):
    # sqrt(C) has no derivative at zero, the solution has.
    moving = problem("full", 2, compliance)
    check(report(solver, moving, WEIGHTS), moving)


@batched_solvers
class TestSoftRows:
    def test_a_row_that_is_switched_off_has_no_multiplier_and_no_effect(self, solver):
        moving = problem("full", 3, ([0.0, 1.0, 0.0], [0.0, 0.0, 0.0]))
        off = jax.tree.map(lambda x: x.at[1].set(0.0), (moving.jacobian, moving.r))
        moving = dataclasses.replace(moving, jacobian=off[0], r=off[1])
        results = report(solver, moving, WEIGHTS)
        check(results, moving)
        x = np.asarray(results[0])
        mass, jacobian, f, r, _ = moving.at(0.0)
        close(np.delete(x, SIZE + 1), reference(mass, jacobian[::2], f, r[::2]))
        assert x[SIZE + 1] == 0.0

    def test_a_number_stands_for_all_rows(self, solver):
        mass, jacobian, f, r, _ = problem("full", 1).at(0.0)
        close(
            jax.jit(lambda *x: jnp.concatenate(jd.solve_saddle_point(solver, *x)))(mass, jacobian, f, r, 0.3),
            reference(mass, jacobian, f, r, 0.3),
        )

    def test_redundant_rows_share_the_load(self, solver):
        # Without compliance the matrix would be singular.
        moving = problem("full", 1, (np.full(ROWS, 2.0**-10), np.zeros(ROWS)))
        alike = dataclasses.replace(
            moving,
            jacobian=jax.tree.map(lambda x: x.at[1].set(x[0]), moving.jacobian),
            r=jax.tree.map(lambda x: x.at[1].set(x[0]), moving.r),
        )
        x = np.asarray(report(solver, alike, WEIGHTS)[0])
        # 2^10 times the round-off of C lam = r - J a.
        np.testing.assert_allclose(x[SIZE], x[SIZE + 1], rtol=2.0**10 * ACCURACY)
        close(x, exact_line(alike)[0], 2.0**10 * ACCURACY)


class TestShapes:
    """Sizes that tempt code into special cases; without compliance, compiled."""

    def run(self, solver, arguments):
        a, lam = jax.jit(jd.solve_saddle_point)(solver, *arguments)
        assert (a.shape, lam.shape) == (arguments[2].shape, arguments[3].shape)
        return np.concatenate([a, lam])

    @each_solver
    def test_one_row(self, solver):
        arguments = sized(1, 2)
        close(self.run(solver, arguments), reference(*arguments))

    @pytest.mark.long
    @each_solver
    def test_no_rows(self, solver):
        # M a = f alone has a derivative, too: along M and f.
        mass, jacobian, f, r = sized(0, 2)

        def along(s):
            a, lam = jd.solve_saddle_point(solver, mass + s * jnp.eye(2), jacobian, f + s, r)
            assert lam.shape == (0,)
            return a

        a, slope = jax.jit(lambda s: jax.jvp(along, (s,), (1.0,)))(0.0)
        close(a, np.linalg.solve(mass, f))
        close(slope, np.linalg.solve(mass, np.ones(2) - a))

    @pytest.mark.long
    @each_solver
    def test_as_many_rows_as_columns(self, solver):
        # The constraints alone determine a; the solution is J^-1 r whatever the mass is.
        _, jacobian, _, r = arguments = sized(2, 2)
        x = self.run(solver, arguments)
        close(x[:2], np.linalg.solve(jacobian, r))
        close(x, reference(*arguments))

    @pytest.mark.long
    @each_solver
    def test_single_precision(self, solver):
        arguments = problem("full", 1).at(0.0)[:4]
        result = self.run(solver, cast(arguments, jnp.float32))
        assert result.dtype == jnp.float32
        close(result, reference(*arguments), 3000.0 * float(jnp.finfo(jnp.float32).eps))


@solvers(())
def test_derivative_of_a_compiled_batch(solver):
    # JAX fixes the world axes of the results when it compiles the batch, before it is differentiated; here
    # only f differs between worlds.
    moving = without(problem("diagonal", 1), "f")
    factors = (1.0, -2.0, 0.5, 3.0)

    @jax.jit
    def batch(s):
        mass, jacobian, f, r, _ = moving.at(s)
        return jax.vmap(lambda k: jnp.concatenate(jd.solve_saddle_point(solver, mass, jacobian, k * f, r)))(
            jnp.array(factors)
        )

    x, dx = jax.jvp(batch, (0.0,), (1.0,))
    assert x.shape == dx.shape == (4, SIZE + ROWS)
    for k, *results in zip(factors, x, dx, strict=True):
        exact = exact_line(dataclasses.replace(moving, f=jax.tree.map(lambda y, k=k: k * y, moving.f)))
        for result, expected_here in zip(results, exact[:2], strict=True):
            close(result, expected_here)


@pytest.mark.parametrize("name", ["dense_kkt", "schur_complement", "null_space", "least_squares"])
def test_one_factorization_serves_many_right_hand_sides(name):
    solver = SOLVERS[name]
    mass, jacobian, f, r, _ = problem("diagonal", 1).at(0.0)

    @jax.jit
    def both(mass, jacobian, f, r):
        rows = DenseRows(jacobian)
        factors = solver.factorize(mass, rows, None)
        return [jnp.concatenate(solve(factors, mass, rows, None, force, r)) for force in (f, -2.0 * f, None)]

    for x, k in zip(both(mass, jacobian, f, r), (1.0, -2.0, 0.0), strict=True):
        close(x, reference(mass, jacobian, k * f, r))


class TestRequirements:
    """What solvers ask for: where it is not given they raise, or return NaN; never numbers."""

    @all_cases("name", SOLVERS)
    def test_massless_coordinate_held_by_a_constraint(self, name):
        arguments = (
            jnp.diag(jnp.array([1.0, 0.0])),
            jnp.array([[1.0, 1.0]]),
            jnp.array([3.0, -1.0]),
            jnp.zeros(1),
        )
        a, lam = jax.jit(jd.solve_saddle_point)(SOLVERS[name], *arguments)
        if name in MASSLESS:
            close(jnp.concatenate([a, lam]), [4.0, -4.0, 1.0])
        else:
            assert not np.any(np.isfinite(lam))
            assert not np.all(np.isfinite(a))

    @all_cases("name", SOLVERS)
    def test_negative_mass_is_not_hidden(self, name):
        # No mechanical system; solvers that take roots must not return numbers.
        arguments = (
            jd.operators.DiagonalMatrix(jnp.array([1.0, -1.0])),
            jnp.array([[1.0, 0.0]]),
            jnp.ones(2),
            jnp.zeros(1),
        )
        result = jnp.concatenate(jax.jit(jd.solve_saddle_point)(SOLVERS[name], *arguments))
        if name == "dense_kkt":
            close(result, [0.0, -1.0, -1.0])
        else:
            assert not np.all(np.isfinite(result[:2]))

    @pytest.mark.long
    @all_cases("name", [name for name in SOLVERS if name not in (*ANY_RANK, "biconjugate_gradient")])
    def test_dependent_rows_are_never_hidden(self, name):
        # Rounding decides whether the last pivot is zero or some eps; either way there must be no multipliers
        # that look usable.
        solver, rng = SOLVERS[name], np.random.default_rng(0)
        half, jacobians = rng.standard_normal((60, SIZE, SIZE)), rng.standard_normal((60, ROWS, SIZE))
        mass = half @ np.swapaxes(half, -1, -2) + np.eye(SIZE)
        jacobians[:15, 2] = jacobians[:15, 0]
        jacobians[15:30, 2] = 3.0 * jacobians[15:30, 1]
        jacobians[30:45, 2] = jacobians[30:45, 0] - jacobians[30:45, 1]
        jacobians[45:, 2] = 0.0
        batch = jax.jit(
            jax.vmap(lambda m, j: jd.solve_saddle_point(solver, m, j, jnp.ones(SIZE), jnp.zeros(ROWS))[1])
        )(mass, jacobians)
        assert not np.any(np.isfinite(batch))
        single = jax.jit(lambda m, j: jd.solve_saddle_point(solver, m, j, jnp.ones(SIZE), jnp.zeros(ROWS))[1])
        for m, j in zip(mass, jacobians, strict=True):
            assert not np.any(np.isfinite(single(m, j)))

    def test_householder_needs_no_more_rows_than_columns(self):
        arguments = sized(3, 2)
        with pytest.raises(
            ValueError,
            match="HouseholderQR needs full row rank, but J has 3 rows and 2 columns; use SingularValues",
        ):
            jd.solve_saddle_point(SOLVERS["null_space_qr"], *arguments)
        # Soft rows bring columns of their own.
        result = jnp.concatenate(jax.jit(jd.solve_saddle_point)(SOLVERS["null_space_qr"], *arguments, 0.5))
        close(result, reference(*arguments, 0.5))

    @pytest.mark.parametrize("iterations", [0, -1])
    def test_proximal_needs_an_iteration(self, iterations):
        with pytest.raises(ValueError, match=f"Proximal.iterations must be at least 1, got {iterations}"):
            jd.solve_saddle_point(jd.Proximal(iterations=iterations), *sized(1, 2))


class TestMassMatrix:
    def test_operators(self):
        b = jnp.asarray(numbers(np.random.default_rng(0), SIZE))
        dense, diagonal = masses("full")[0], masses("diagonal")[0]
        for mass, array in (
            (as_mass_operator(dense), np.asarray(dense)),
            (diagonal, np.diag(diagonal.diagonal)),
        ):
            np.testing.assert_array_equal(mass.as_dense(), array)
            close(mass.times(b), array @ b)
            close(mass.solve(b), np.linalg.solve(array, b))
            np.testing.assert_array_equal(mass.identity().as_dense(), np.eye(SIZE))

    @pytest.mark.parametrize("kind", ["full", "diagonal"])
    def test_derivatives_of_the_solve(self, kind):
        mass, change = (as_mass_operator(x) for x in masses(kind))
        b = jnp.asarray(numbers(np.random.default_rng(0), SIZE))
        array, d = np.asarray(mass.as_dense()), np.asarray(change.as_dense())
        inverse = np.linalg.inv(array)

        def along(s):
            return jax.tree.map(lambda x, y: x + s * y, mass, change).solve(b)

        first, second = jax.jit(jax.jacfwd(along)), jax.jit(jax.jacfwd(jax.jacrev(along)))
        close(first(0.0), -inverse @ d @ inverse @ b)
        close(second(0.0), 2.0 * inverse @ d @ inverse @ d @ inverse @ b)
