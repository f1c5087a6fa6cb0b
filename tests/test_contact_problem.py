"""Contact problems against closed forms, enumeration and an independent form of De Saxcé's conditions."""

import dataclasses
import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import in_ci

from jaxdae.contact_problem import (
    ContactNewton,
    ContactProblem,
    GaussSeidel,
    InteriorPoint,
    Robust,
    residual,
    solve,
)
from jaxdae.contact_problem.contact_law import is_unsolved

DATA = pathlib.Path(__file__).parent / "reference" / "contact"
SOLVERS = [Robust(), Robust.quick(), InteriorPoint(25), ContactNewton(12), GaussSeidel(200)]
NAMES = ["robust", "quick", "interior", "newton", "gauss_seidel"]


@jax.jit
def exactly(problem):
    """Return impulses without compliance, and the residual."""
    return solve(Robust(), problem, compliance=jnp.zeros_like(problem.velocity))


@jax.jit
def softly(problem):
    """Return impulses with the compliance that `solve` chooses, and the residual."""
    return solve(Robust(), problem)


softly_each = jax.jit(jax.vmap(softly))


def load(name):
    with np.load(DATA / f"{name}.npz") as data:
        delassus, velocity, friction = data["D"], data["b"], data["mu"]
    return delassus, velocity, np.broadcast_to(friction, (len(velocity), velocity.shape[1] // 3))


def random_problem(seed, contacts=4, velocities=9, friction=0.6, tangents=2, one_sided=0, dry=0):
    """Return a problem of random rows; it has redundant rows if there are fewer velocities than rows.

    A velocity exists that separates all normals by 0.3 without slip, so that the problem has a solution.
    """
    random = np.random.default_rng(seed)
    rows = random.normal(size=(contacts * (1 + tangents) + one_sided + dry, velocities))
    b = rows @ random.normal(size=velocities)
    b[: contacts * (1 + tangents) : 1 + tangents] += 0.3
    b[contacts * (1 + tangents) :][:one_sided] += 0.3
    return ContactProblem(
        jnp.asarray(rows @ rows.T),
        jnp.asarray(b),
        jnp.full(contacts, friction),
        jnp.asarray(random.uniform(0.01, 0.3, dry)) if dry else None,
        tangents=tangents,
    )


def violations(problem, p):
    """Return by how much p violates De Saxcé's conditions, and those of single rows, relative to max |b|."""
    matrix, p = np.asarray(problem.delassus), np.asarray(p)
    contacts, one_sided, dry = problem.sizes
    size, found = 1 + problem.tangents, [0.0]
    u = matrix @ p + np.asarray(problem.velocity)
    for contact, mu in enumerate(np.asarray(problem.friction)):
        row = slice(contact * size, (contact + 1) * size)
        own, rate = p[row], u[row].copy()
        rate[0] += mu * np.linalg.norm(rate[1:])
        found += [
            np.linalg.norm(own[1:]) - mu * own[0],
            mu * np.linalg.norm(rate[1:]) - rate[0],
            abs(own @ rate),
        ]
    first = contacts * size
    for row in range(first, first + one_sided):
        found += [-p[row], -u[row], abs(p[row] * u[row])]
    for row, bound in enumerate(np.asarray(problem.bound) if dry else (), first + one_sided):
        found += [abs(p[row]) - bound, abs(bound * abs(u[row]) + u[row] * p[row])]
    return max(found) / np.abs(problem.velocity).max()


@pytest.mark.parametrize("solver", SOLVERS, ids=NAMES)
def test_one_contact_has_the_closed_form(solver):
    normal, tangent, mu = 2.0, 0.5, 0.7
    # Pushed, sticking, sliding, separating.
    velocities = [[-1.0, 0.0, 0.0], [-1.0, 0.3, -0.4], [-1.0, 3.0, -4.0], [1.0, 5.0, -3.0]]
    matrix = jnp.diag(jnp.asarray([normal, tangent, tangent]))

    def impulses(b):
        return solve(solver, ContactProblem(matrix, b, jnp.asarray([mu])), compliance=jnp.zeros(3))

    p, error = jax.jit(jax.vmap(impulses))(jnp.asarray(velocities))
    expected = []
    for b_n, *b_t in velocities:
        p_n, stick = max(0.0, -b_n / normal), -np.asarray(b_t) / tangent
        expected.append([p_n, *(stick * min(1.0, mu * p_n / (np.linalg.norm(stick) or 1.0)))])
    np.testing.assert_allclose(p, expected, atol=1e-9)
    assert error.max() < 1e-9


def many_problems(friction, tangents=2):
    """Return 40 problems with rows of all kinds."""
    return [
        random_problem(
            seed, friction=friction, tangents=tangents, one_sided=2, dry=2, velocities=6 + seed % 8
        )
        for seed in range(40)
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "tangents", [pytest.param(1, marks=pytest.mark.exhaustive), 2], ids=["plane", "space"]
)
@pytest.mark.parametrize(("friction", "share"), [(0.0, 1.0), (0.6, 1.0), (3.0, 0.7)])
def test_random_problems_satisfy_the_conditions(tangents, friction, share):
    problems = many_problems(friction, tangents)
    p, error = softly_each(jax.tree.map(lambda *x: jnp.stack(x), *problems))
    converged = np.asarray(error) < 1e-9
    # The solution exists in all cases. The method has no guarantee, least of all for steep cones.
    assert converged.mean() >= share
    for problem, own, good in zip(problems, p, converged, strict=True):
        assert not good or violations(problem, own) < 1e-7


@pytest.mark.long
def test_one_sided_rows_equal_enumeration():
    for seed in range(5):
        problem = random_problem(seed, contacts=0, one_sided=4, velocities=6)
        matrix, b = np.asarray(problem.delassus), np.asarray(problem.velocity)
        solutions = []
        for active in itertools.product([False, True], repeat=4):
            rows = np.flatnonzero(active)
            p = np.zeros(4)
            p[rows] = np.linalg.solve(matrix[np.ix_(rows, rows)], -b[rows])
            if (p >= 0).all() and (matrix @ p + b >= -1e-12).all():
                solutions.append(p)
        (expected,) = solutions
        p, error = exactly(problem)
        np.testing.assert_allclose(p, expected, atol=1e-9)
        assert error < 1e-9


@pytest.mark.long
def test_dry_friction_holds_up_to_its_bound():
    matrix = jnp.diag(jnp.asarray([2.0, 2.0, 0.5]))
    problem = ContactProblem(
        matrix, jnp.asarray([0.1, 3.0, -4.0]), jnp.zeros(0), jnp.asarray([0.2, 0.2, 0.0])
    )
    p, error = exactly(problem)
    np.testing.assert_allclose(p, [-0.05, -0.2, 0.0], atol=1e-12)
    assert error < 1e-12


def test_impulses_of_open_rows_are_exactly_zero():
    """A parallelogram at the upper limits of two of its hinges, far from the lower ones, with dry friction."""
    ways = np.array([1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    b, bound = np.array([0.9, 0.9, -1.2e-3, -1.2e-3, *(1.23e-3 * ways[4:])]), 1.5e-7
    noise = np.random.default_rng(0).integers(-1, 2, (20, 8, 8)) * 2.0**-52  # Rounding errors of D.
    matrices = np.outer(ways, ways) / 1.7 + (noise + noise.transpose(0, 2, 1)) / 2.0

    @jax.jit
    @jax.vmap
    def solved(matrix):
        problem = ContactProblem(matrix, jnp.asarray(b), jnp.zeros(0), jnp.full(4, bound))
        return solve(ContactNewton(12), problem)

    p, error = solved(jnp.asarray(matrices))
    assert np.max(error) < 1e-14
    np.testing.assert_array_equal(p[:, :2], 0.0)
    np.testing.assert_allclose(p[:, 2] + p[:, 3], 1.7 * 1.2e-3 - 4.0 * bound, rtol=1e-12)


@pytest.mark.long
def test_a_sliding_body_does_not_lift_off():
    # The convexified problem would give u_n = mu |u_t| here.
    problem = ContactProblem(jnp.eye(3), jnp.asarray([-0.05, 6.0, 0.0]), jnp.asarray([0.5]))
    p, _ = exactly(problem)
    np.testing.assert_allclose(problem.velocities(p), [0.0, 6.0 - 0.025, 0.0], atol=1e-12)


@pytest.mark.long
def test_planar_contact_equals_spatial_contact_without_a_second_tangent():
    plane = random_problem(3, contacts=3, velocities=8, tangents=1)
    rows = np.asarray([0, 1, 3, 4, 6, 7])
    matrix, b = np.eye(9), np.zeros(9)
    matrix[np.ix_(rows, rows)], b[rows] = plane.delassus, plane.velocity
    flat, _ = exactly(plane)
    full, _ = exactly(ContactProblem(jnp.asarray(matrix), jnp.asarray(b), plane.friction))
    np.testing.assert_allclose(np.asarray(full)[rows], flat, atol=1e-10)
    np.testing.assert_allclose(np.asarray(full)[[2, 5, 8]], 0.0, atol=1e-12)


@pytest.mark.long
def test_stack_with_mass_ratio_1000():
    arrays = load("stack64")
    problems = jax.vmap(ContactProblem)(*map(jnp.asarray, arrays))
    p, error = softly_each(problems)
    # The target is relative to max |S b|, which is larger than the largest velocity of approach.
    factors, size = jax.vmap(ContactProblem.scales)(problems)
    relative = error * size / jnp.max(jnp.abs(factors * problems.velocity), axis=1)
    assert (np.asarray(relative) < 1e-6).all()
    assert (np.asarray(error) < 1e-5).all()
    for problem, own in zip(map(ContactProblem, *arrays), p, strict=True):
        assert violations(problem, own) < 1e-3


# Most of the random problems above have redundant rows, too.
@pytest.mark.long
@pytest.mark.parametrize("name", in_ci(["redundant13", "legs4", "legs_restarted"], "legs_restarted"))
def test_redundant_contacts_of_random_scenes(name):
    problems = jax.vmap(ContactProblem)(*map(jnp.asarray, load(name)))
    p, error = softly_each(problems)
    assert (np.asarray(error) < 1e-6).all()
    for problem, own in zip(map(ContactProblem, *load(name)), p, strict=True):
        assert violations(problem, own) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.exhaustive)])
def test_feet_of_a_humanoid_converge_in_a_few_newton_iterations(dtype):
    problems = jax.vmap(ContactProblem)(*(jnp.asarray(x, dtype) for x in load("humanoid63")))
    run = jax.jit(jax.vmap(lambda problem, guess: solve(ContactNewton(4), problem, guess)))
    p, error = run(problems, jnp.zeros_like(problems.velocity))
    assert p.dtype == dtype
    tolerance = 1e-10 if dtype == "float64" else 1e-4
    assert (np.asarray(error) < tolerance).mean() > 0.9
    again = run(problems, p * 1.01)[1]
    assert (np.asarray(again) < tolerance).mean() > 0.9


@pytest.mark.long
def test_rows_may_be_masked():
    problem = random_problem(5, one_sided=1, dry=1, velocities=20)
    active = jnp.asarray([True, False, True, True, False])
    p, _ = softly(problem.masked(active))
    assert (np.asarray(p)[[3, 4, 5, 12]] == 0.0).all()
    kept = np.asarray([0, 1, 2, 6, 7, 8, 9, 10, 11, 13])
    small = ContactProblem(
        problem.delassus[np.ix_(kept, kept)],
        problem.velocity[kept],
        problem.friction[np.asarray([0, 2, 3])],
        problem.bound,
    )
    # D is regular, so that the solution is unique.
    assert violations(small, np.asarray(p)[kept]) < 1e-9


@pytest.mark.long
def test_masked_rows_do_not_set_the_scale():
    # A body of 1e-12 kg touches a plane, and a stop is open. The body got no impulse in single precision.
    b = jnp.asarray([-0.02, 0.005, 0.3], "float32")
    problem = ContactProblem(
        jnp.diag(jnp.asarray([1e12, 1e12, 3e12], "float32")), b, b[1:2] + 0.5, tangents=1
    )
    p, error = solve(ContactNewton(10), problem.masked(jnp.asarray([True, False])))
    # The compliance is sqrt(eps) = 3.5e-4 of D.
    np.testing.assert_allclose(p, [2e-14, -5e-15, 0.0], rtol=5e-4, atol=0)
    assert error < 1e-4


@pytest.mark.long
def test_units_do_not_matter():
    problem = random_problem(7, one_sided=1, dry=1, velocities=20)
    p, error = softly(problem)
    scaled = ContactProblem(
        1e6 * problem.delassus, 1e-3 * problem.velocity, problem.friction, 1e-9 * problem.bound
    )
    small, small_error = softly(scaled)
    np.testing.assert_allclose(1e9 * small, p, rtol=1e-7, atol=1e-9)
    assert error < 1e-9
    assert small_error < 1e-9


def test_iterations_end_at_the_round_off_of_large_impulses():
    error = jnp.asarray(1e-12)
    assert is_unsolved((jnp.ones(3), error))
    assert not is_unsolved((jnp.full(3, 1e3), error))


@pytest.mark.long
def test_problems_without_velocity_or_rows_are_finite():
    p, error = exactly(ContactProblem(jnp.eye(3), jnp.zeros(3), jnp.ones(1)))
    np.testing.assert_allclose(p, 0.0, atol=1e-12)
    assert error < 1e-10
    p, error = softly(ContactProblem(jnp.zeros((0, 0)), jnp.zeros(0), jnp.zeros(0)))
    assert p.shape == (0,)
    assert error == 0.0


@pytest.mark.long
def test_nan_stays_in_its_world():
    problems = jax.tree.map(lambda *x: jnp.stack(x), *many_problems(0.6))
    clean = softly_each(problems)
    p, error = softly_each(dataclasses.replace(problems, velocity=problems.velocity.at[1, 0].set(jnp.nan)))
    np.testing.assert_array_equal(np.delete(p, 1, axis=0), np.delete(clean[0], 1, axis=0))
    assert not error[1] < 1e-6


@pytest.mark.long
def test_a_body_between_approaching_walls_has_a_large_residual():
    problem = ContactProblem(jnp.asarray([[1.0, -1.0], [-1.0, 1.0]]), -jnp.ones(2), jnp.zeros(0))
    assert softly(problem)[1] > 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"friction": jnp.asarray([-0.1])}, "friction must be non-negative"),
        ({"bound": jnp.asarray([-1.0])}, "bound must be non-negative"),
        ({"smoothing": 0.0}, "smoothing must be positive, or None for the exact law"),
    ],
)
def test_meaningless_problems_raise(change, message):
    size = 4 if "bound" in change else 3
    fields = {"delassus": jnp.eye(size), "velocity": jnp.ones(size), "friction": jnp.ones(1), **change}
    with pytest.raises(ValueError, match=message):
        solve(Robust(), ContactProblem(**fields))


def test_gauss_seidel_needs_the_exact_law():
    problem = ContactProblem(jnp.eye(3), jnp.ones(3), jnp.ones(1), smoothing=jnp.asarray(1e-6))
    for solver in (GaussSeidel(), Robust.quick()):
        with pytest.raises(ValueError, match="use InteriorPoint or Robust with smoothing"):
            solve(solver, problem)


@pytest.mark.long
@pytest.mark.parametrize("kappa", [1e-2, 1e-6])
def test_smoothing_ends_on_the_central_path(kappa):
    problem = random_problem(11, one_sided=1, dry=1, velocities=20)
    smooth = ContactProblem(*jax.tree.leaves(problem), smoothing=jnp.asarray(kappa))
    p, error = exactly(smooth)
    u = smooth.velocities(p)
    assert error < 1e-9
    assert residual(smooth, p) < 1e-9
    np.testing.assert_allclose(smooth.normals(p) * smooth.normals(u), kappa, rtol=1e-5)
    assert (smooth.normals(p) > 0.0).all()
    width = kappa / (2.0 * smooth.radii(smooth.normals(p)))
    slip = np.linalg.norm(smooth.discs(u), axis=1)
    psi = width + np.sqrt(width**2 + slip**2)
    np.testing.assert_allclose(
        smooth.discs(p), -(smooth.radii(smooth.normals(p)) / psi)[:, None] * smooth.discs(u), atol=1e-8
    )


@pytest.mark.long
def test_smoothed_solutions_tend_to_the_exact_one():
    problem = random_problem(13, one_sided=1, dry=1, velocities=20)
    exact, _ = softly(problem)
    errors = []
    for kappa in (1e-4, 1e-6, 1e-8):
        smooth = ContactProblem(*jax.tree.leaves(problem), smoothing=jnp.asarray(kappa))
        errors.append(np.abs(exactly(smooth)[0] - exact).max())
    assert errors[0] > 5 * errors[1] > 25 * errors[2]
    assert errors[2] < 1e-4


def test_newton_solves_redundant_contacts_in_one_iteration():
    # A weight on four corners: three of its four normal impulses are independent. In the modes of the guess,
    # the law is linear.
    corners = np.asarray([[1.0, x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])
    rows = np.zeros((12, 6))
    rows[0::3, :3] = corners
    rows[1::3, 3], rows[2::3, 4] = 1.0, 1.0
    rows[1::3, 5], rows[2::3, 5] = corners[:, 2], -corners[:, 1]
    b = rows @ np.asarray([-1.0, 0.02, 0.04, 0.02, 0.01, 0.05])
    compliance = 1.5e-8 * np.eye(12)
    problem = ContactProblem(jnp.asarray(rows @ rows.T + compliance), jnp.asarray(b), jnp.full(4, 0.6))
    guess = jnp.asarray(np.tile([0.25, 0.0, 0.0], 4))
    p, error = jax.jit(ContactNewton(1).solve)(problem, guess)
    assert error < 1e-13
    assert violations(problem, p) < 1e-13
