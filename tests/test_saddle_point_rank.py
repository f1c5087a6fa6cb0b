"""Dependent rows: the Moore-Penrose solution and its derivatives, whatever the rank, or NaN and a status;
never a wrong number.

Families J(s) = T(s) B(s) have constant rank; with T at rest the dependencies stay what they are, with T
moving they change. The exact solution is K^+ b in (a, -lam), K symmetric: a is unique, lam the shortest of
all multipliers with the same force, and where r is not consistent its part that no accelerations can produce
is ignored.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import close
from all_cases import all_cases
from catalogue import in_ci
from problems import Pendulum, cast, state
from saddle_points import (
    ANY_RANK,
    ROWS,
    SIZE,
    SOLVERS,
    batch_reports,
    exact_line,
    force,
    line,
    random_factors,
    report,
)

import jaxdae as jd

EPS = float(jnp.finfo(float).eps)

# Nonzero eigenvalues of the matrices lie within a factor of 1e4, second derivatives see that twice over a sum
# of some ten terms.
ROUND_OFF = 5e4 * EPS
# Proximal: what rounding leaves along dependent rows is (iterations) eps / mu, with mu = eps^(1/2), times the
# condition number above mu.
PROXIMAL = 100.0 * EPS**0.5
# All masses near 1e-6 or 1e6: accelerations or multipliers are 1e6 times the right-hand sides, and so are
# their rounding errors.
OTHER_UNITS = 1e1 * 4.0**10 * EPS
# Masses from 1e-6 to 1e6: free accelerations f / m of 1e6 and more, which the constraints cancel to order 1
# to 40.
MIXED_MASSES = 1e2 * 4.0**10 * EPS
# C = 1e-8: a load along dependent rows is 1e8 times larger as a multiplier than it is as an acceleration.
NEARLY_HARD = 1e2 * 1e8 * EPS

WEIGHTS = {"a": jnp.where(jnp.arange(SIZE + ROWS) < SIZE, jnp.arange(1.0, SIZE + ROWS + 1.0), 0.0)}
WEIGHTS["lam"] = jnp.arange(1.0, SIZE + ROWS + 1.0) - WEIGHTS["a"]

FORCES_ONLY = ("proximal", "conjugate_gradient")
"""Solvers that promise derivatives of a, and of lam as far as it makes a force."""

solvers = pytest.mark.parametrize("name", ANY_RANK)
few_solvers = pytest.mark.parametrize(
    "name",
    in_ci(ANY_RANK, "null_space", "conjugate_gradient"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem with dependent rows, and how exactly double precision can solve it: (a, lam)."""

    factors: Any
    settings: Any = dataclasses.field(default_factory=dict)
    accuracy: tuple[float, float] = (ROUND_OFF, ROUND_OFF)
    resting: bool = False
    unseen: bool = False
    """Whether the compliance is so much smaller than what Proximal adds to the diagonal that it takes the
    rows for hard ones.
    """

    @property
    def consistent(self) -> bool:
        return self.settings.get("consistent", True)

    @functools.cached_property
    def soft(self) -> Any:
        """The problem with a full mass matrix and compliance, and its exact solution."""
        compliance = self.settings.get("compliance", (np.zeros(ROWS), np.zeros(ROWS)))
        problem = line("full", self.factors, **(self.settings | {"compliance": compliance}))
        return problem, exact_line(problem)

    @functools.cached_property
    def hard(self) -> Any:
        """The problem with diagonal masses and without compliance, and its exact solution."""
        problem = line(
            "diagonal", self.factors, **{key: x for key, x in self.settings.items() if key != "compliance"}
        )
        return problem, exact_line(problem)


_, DT, B, DB = random_factors(0, 2)
PAIR = np.eye(2, SIZE)
TWICE, MIXED = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[1.0, 0.5], [-0.5, 1.0], [0.25, 1.5]]
REST = np.zeros((ROWS, 2))
UNITS = 4.0 ** np.array([-10, 0, 10, -10, 10])

CASES = {
    "dependent": Case(random_factors(1, 2, moving=False), resting=True),
    "dependencies that move": Case(random_factors(1, 2)),
    "rank 1": Case(random_factors(2, 1)),
    "a row twice": Case((TWICE, REST, B, DB), resting=True),
    "a row of zeros": Case(([[1.0, 0.0], [0.0, 0.0], [0.5, 1.0]], REST, B, DB), resting=True),
    "no row but zeros": Case((REST, REST, B, DB), resting=True),
    "equal singular values": Case((TWICE, DT, PAIR, DB)),
    "equal singular values, twice as large": Case((2.0 * np.array(TWICE), DT, PAIR, DB)),
    "orthonormal rows": Case(
        (np.eye(ROWS), np.zeros((ROWS, ROWS)), np.eye(ROWS, SIZE), random_factors(3, 3)[3]), resting=True
    ),
    # The sum of two rods that carry the same load: a rhombus with an extra rod along its axis of symmetry.
    "symmetric": Case(
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], REST, [[1.0, 1, 0, 0, 0], [1, -1, 0, 0, 0]], DB), resting=True
    ),
    "inconsistent": Case((MIXED, REST, B, DB), {"consistent": False}, resting=True),
    "inconsistent, moving": Case((MIXED, DT, B, DB), {"consistent": False}),
    "no row but zeros, inconsistent": Case((REST, REST, B, DB), {"consistent": False}, resting=True),
    "zero right-hand sides": Case((MIXED, DT, B, DB), {"forces": 0.0}),
    "one soft row": Case(random_factors(4, 1), {"compliance": ([0.0, 0.5, 0.0], [0.0, 0.25, 0.0])}),
    "one soft row, inconsistent": Case(
        random_factors(4, 1), {"compliance": ([0.0, 0.5, 0.0], [0.0, 0.25, 0.0]), "consistent": False}
    ),
    "nearly hard rows": Case(
        (MIXED, REST, B, DB),
        {"compliance": (np.full(3, 1e-8), np.full(3, 1e-8))},
        (ROUND_OFF, NEARLY_HARD),
        resting=True,
    ),
    "nearly hard rows, inconsistent": Case(
        (MIXED, REST, B, DB),
        {"compliance": (np.full(3, 1e-8), np.full(3, 1e-8)), "consistent": False},
        (NEARLY_HARD, ROUND_OFF),
        resting=True,
        unseen=True,
    ),
    "light": Case((MIXED, DT, B, DB), {"scale": 4.0**-10}, (OTHER_UNITS, OTHER_UNITS)),
    "heavy": Case((MIXED, DT, B, DB), {"scale": 4.0**10}, (OTHER_UNITS, OTHER_UNITS)),
    "light and heavy": Case((MIXED, DT, B, DB), {"scale": UNITS}, (MIXED_MASSES, MIXED_MASSES)),
    "light and heavy, inconsistent": Case(
        (MIXED, DT, B, DB), {"scale": UNITS, "consistent": False}, (MIXED_MASSES, MIXED_MASSES)
    ),
}
HARD = [case for case in CASES if "compliance" not in CASES[case].settings]


def promised(name, case, order):
    """Returns the accuracy of a and of lam in a derivative of some order; infinite where a solver makes no
    promise.
    """
    a, lam = case.accuracy
    if name == "proximal" and case.unseen:
        return (max(a, PROXIMAL) if order == 0 else np.inf), np.inf
    if name == "proximal" and order == 0:
        return (a if case.consistent else max(a, PROXIMAL)), max(lam, PROXIMAL)
    if name in FORCES_ONLY:
        # Multipliers without force are anything; derivatives take r to be consistent.
        if name == "proximal" and "compliance" in case.settings:
            # Beside soft rows rounding stays along dependent rows, and derivatives see J'^T lam.
            a = max(a, PROXIMAL)
        return (a if case.consistent or order == 0 else np.inf), np.inf
    return a, lam


@few_solvers
class TestLines:
    @pytest.mark.long
    @all_cases("name_of_case", CASES)
    def test_values_and_derivatives(self, name, name_of_case):
        case = CASES[name_of_case]
        problem, exact = CASES[name_of_case].soft
        results = report(SOLVERS[name], problem, WEIGHTS["a"])[:3]
        for order, (result, x) in enumerate(zip(results, exact, strict=True)):
            a, lam = promised(name, case, order)
            assert np.all(np.isfinite(result))
            close(result[:SIZE], x[:SIZE], a)
            close(result[SIZE:], x[SIZE:], lam)
        if name in FORCES_ONLY and case.consistent:
            # The force of their multipliers is the one that all have in common.
            forces = (force(problem, *(np.asarray(x)[SIZE:] for x in lines)) for lines in (results, exact))
            for order, (result, x) in enumerate(zip(*forces, strict=True)):
                close(result, x, promised(name, case, order)[0])


@few_solvers
class TestBatches:
    @pytest.mark.long
    @all_cases("name_of_case", HARD)
    def test_reverse_mode(self, name, name_of_case):
        case = CASES[name_of_case]
        _, (x, dx, ddx) = case.hard
        for k, part in enumerate(WEIGHTS):
            value, slope, curvature = in_batches(name, part)[name_of_case]
            shown = slice(None, SIZE) if part == "a" else slice(SIZE, None)
            for order, (result, exact) in enumerate(
                ((value[shown], x[shown]), (slope, WEIGHTS[part] @ dx), (curvature, WEIGHTS[part] @ ddx))
            ):
                assert np.all(np.isfinite(result))
                # Weights up to 8.
                close(result, exact, 8.0 * promised(name, case, order)[k])


@functools.cache
def in_batches(name, part):
    """Returns (a, lam) and the weighted derivatives of all cases with hard rows."""
    problems = [CASES[case].hard[0] for case in HARD]
    return dict(zip(HARD, batch_reports(SOLVERS[name], problems, WEIGHTS[part]), strict=True))


@solvers
class TestShapes:
    @all_cases("consistent", [True, False])
    def test_more_rows_than_columns(self, name, consistent):
        # The rows alone determine a; in the least-squares sense where they contradict each other.
        jacobian = np.array([[1.0, 0.5], [-0.5, 1.0], [0.25, 1.5], [2.0, 0.0]])
        mass, f = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -1.0])
        r = jacobian @ np.array([0.5, 1.5]) if consistent else np.array([1.0, 2.0, -1.0, 0.5])
        a, lam = jax.jit(jd.solve_saddle_point)(
            SOLVERS[name], *(jnp.asarray(x) for x in (mass, jacobian, f, r))
        )
        accuracy = PROXIMAL if name == "proximal" and not consistent else ROUND_OFF
        close(a, np.linalg.lstsq(jacobian, r)[0], accuracy)
        close(jacobian.T @ lam, mass @ np.asarray(a) - f, accuracy)
        if consistent or name != "conjugate_gradient":
            close(lam, np.linalg.pinv(jacobian.T) @ (mass @ np.asarray(a) - f), accuracy)

    def test_single_precision(self, name):
        problem, exact = CASES["dependencies that move"].hard
        a, lam = jax.jit(jd.solve_saddle_point)(SOLVERS[name], *cast(problem.at(0.0)[:4], jnp.float32))
        assert a.dtype == lam.dtype == jnp.float32
        eps = float(jnp.finfo(jnp.float32).eps)
        close(a, exact[0][:SIZE], 1e2 * eps)
        # The noise of Proximal as above; the tolerance on singular values is eps^(1/2), too, and nothing lies
        # between here.
        close(lam, exact[0][SIZE:], 1e2 * eps)


class TestConvergence:
    """Iterations that end too early say so."""

    problem = CASES["dependent"].hard[0]

    @pytest.mark.parametrize(
        "solver", [jd.ConjugateGradient(max_iterations=1), jd.BiconjugateGradient(max_iterations=1)]
    )
    def test_no_wrong_number_after_too_few_iterations(self, solver):
        assert not np.any(np.isfinite(jax.jit(jd.solve_saddle_point)(solver, *self.problem.at(0.0)[:4])[1]))

    @pytest.mark.long
    def test_more_regularization_takes_more_iterations(self):
        # An error of the multipliers falls by mu / (s + mu) in each: below 1 / 2 for mu = s.
        exact = CASES["dependent"].hard[1][0]
        errors = []
        for count in (5, 10, 20):
            solver = jd.Proximal(regularization=jnp.asarray(0.1), iterations=count)
            errors.append(
                np.max(
                    np.abs(
                        jax.jit(jd.solve_saddle_point)(solver, *self.problem.at(0.0)[:4])[0] - exact[:SIZE]
                    )
                )
            )
        assert errors[1] < 2.0**-5 * errors[0]
        assert errors[2] < 2.0**-10 * errors[1]


@jd.tree.pytree
class PendulumTwice(Pendulum):
    """A pendulum with two rods in one place; `stretch` per meter to the side makes them differ."""

    stretch: Any

    def constraint(self, t, q):
        g = super().constraint(t, q)
        return jnp.concatenate([g, g + self.stretch * q[:1]])


NUMBERS = tuple(jnp.asarray(x, float) for x in (1.0, 1.0, 9.81))
START = state([0.6, -0.8], [0.8, 0.6])
STEPS = {"dt": 1e-2, "steps": 4}


def method(solver):
    return jd.Projected(jd.SemiImplicitEuler(solver=solver))


class TestRollouts:
    @pytest.mark.long
    @few_solvers
    def test_a_rod_too_many_changes_nothing(self, name):
        once = jd.rollout(Pendulum(*NUMBERS), method(jd.SchurComplement()), START, **STEPS)
        twice = jd.rollout(PendulumTwice(*NUMBERS, jnp.zeros(())), method(SOLVERS[name]), START, **STEPS)
        jd.raise_if_failed(twice)
        close(twice.state.q, once.state.q, ROUND_OFF)
        close(twice.state.v, once.state.v, ROUND_OFF)
        # Each rod carries one half.
        close(
            twice.info.lam,
            0.5 * np.repeat(once.info.lam, 2, axis=1),
            PROXIMAL if name == "proximal" else ROUND_OFF,
        )

    @pytest.mark.parametrize("name", ["dense_kkt", "schur_complement", "null_space_qr"])
    def test_other_solvers_say_so(self, name):
        found = jd.rollout(PendulumTwice(*NUMBERS, jnp.zeros(())), method(SOLVERS[name]), START, **STEPS)
        np.testing.assert_array_equal(found.info.status, np.full(4, jd.Status.NONFINITE))
        np.testing.assert_array_equal(found.state.q, np.broadcast_to(START.q, (4, 2)))
        with pytest.raises(
            jd.SimulationError, match="redundant constraints with a solver that needs full rank"
        ):
            jd.raise_if_failed(found)

    @pytest.mark.long
    def test_in_a_batch_only_the_world_that_has_them(self):
        # The second world's rods differ; at (0, -1) they hold the mass at rest.
        system = PendulumTwice(*NUMBERS, jnp.array([0.0, 1.0]))
        starts = jd.State(0.0, jnp.tile(jnp.array([0.0, -1.0]), (2, 1)), jnp.zeros((2, 2)))
        axes = (jd.tree.batch_axes(system, "stretch"), None, 0, None)
        found = jd.batch_rollout(system, method(SOLVERS["schur_complement"]), starts, **STEPS, in_axes=axes)
        np.testing.assert_array_equal(found.info.status, [[jd.Status.NONFINITE] * 4, [jd.Status.OK] * 4])
        np.testing.assert_array_equal(found.state.q[0], np.broadcast_to(starts.q[0], (4, 2)))
        close(found.state.q[1], np.broadcast_to(starts.q[1], (4, 2)), ROUND_OFF)
        close(found.info.lam[1], np.broadcast_to([-9.81, 0.0], (4, 2)), ROUND_OFF)
