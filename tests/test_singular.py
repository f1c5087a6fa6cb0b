"""Through singular configurations: where J loses rank for an instant, the motion goes on along the branch it
came on.

*Double four-bar.* Where all links are in line the rank falls from 14 to 12, ten times in 10 s. The reference
branch is the parallelogram, theta'' = w2 sin(theta). *Slider crank* with crank and rod of equal length: where
the rod folds onto the crank the rank falls by one, and a second branch, the folded pair that turns as one,
begins.

What is to be expected. A step of h that comes no closer to the singular configuration than the solver's rank
tolerance is as accurate as elsewhere. One that does is made with the accelerations of a mechanism of higher
mobility. Their error is of the order of g and leaves the branch, to which the projections bring the step
back: what stays is an error of about h^2 g, 6e-5 m for h = 2.5 ms. The tolerance must be so large that what
lies above it is solved well (the stages violate the constraints by about h^2, and divide that by the singular
value), and is better small, so that few steps meet it. Largest errors in m of the double four-bar after 10 s
with h = 2.5 ms, over twelve step sizes near that and over eleven starts with a step at 0 to 1 ms from the
singular configuration:

    tolerance                  1.5e-8    1e-6      1e-5      1e-4      1e-3      LU and Schur
    twelve step sizes          5e-3      5e-3      1e-5      2e-5      3e-5      5e-3
    eleven starts              lost      2e-5      2e-5      4e-5      4e-5      lost
"""

import functools
import itertools

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import redundant_problems

import jaxdae as jd

SOLVERS = {name: catalogue.SOLVERS[name].tolerant for name in ("null_space", "least_squares")}
DT = 2.5e-3
CLOSE = 1e-4  # m, rad
FOLDED = float(problems.reference("slider_crank_singular").file["reference"]["first_singular_time"])


def start_at(states):
    """Returns the only one of stacked states."""
    return jax.tree.map(lambda x: x[0], states)


# Compiled without LLVM's optimizations, which take longer than the runs.
@functools.partial(jax.jit, static_argnames="steps")
def follow(system, solver, start, dt, steps):
    """Returns the trajectory with 50 entries, and the energy at each."""
    method = jd.Projected(jd.RungeKutta.rk4(solver=solver))
    trajectory = jd.rollout(system, method, start, dt=dt, steps=steps, save_every=steps // 50)
    return trajectory, jax.vmap(lambda s: jd.energy(system, s))(trajectory.state)


def check(system, solver, start, exact, dt, steps):
    """Asserts that the motion follows the branch: positions at the end, energy and loops at all times, and
    that no step failed.
    """
    trajectory, energy = follow(system, solver, start, jnp.asarray(dt), steps)
    jd.raise_if_failed(trajectory)
    difference = np.abs(np.asarray(trajectory.state.q[-1] - exact(float(start.t) + dt * steps).q[0])).reshape(
        -1, 3
    )
    assert np.max(difference[:, :2]) <= CLOSE
    # Angles of links of 1 m; whole turns count, so a link that took another way round does not pass.
    assert np.max(difference[:, 2]) <= CLOSE
    np.testing.assert_allclose(energy, jd.energy(system, start), rtol=1e-5)
    assert np.max(trajectory.info.violation) <= 1e-12


@pytest.fixture(scope="module")
def double_four_bar():
    return redundant_problems.double_four_bar()[0]


@pytest.fixture(scope="module")
def slider_crank():
    return redundant_problems.slider_crank()[0]


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("iftomm_a02_double_four_bar", redundant_problems.double_four_bar_at),
        ("slider_crank_singular", redundant_problems.slider_crank_at),
    ],
)
def test_closed_forms_are_the_references(name, exact):
    """To the last digits: angles are up to 30 rad, of which an ulp is 4e-15."""
    reference = problems.reference(name)
    states = exact(reference.t)
    given = reference.q.shape[1]
    np.testing.assert_allclose(states.q[:, :given], reference.q, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(states.v[:, :given], reference.v, rtol=0.0, atol=1e-12)


def test_ranks(double_four_bar, slider_crank):
    """Full on the way, less where the links are in line."""
    for system, exact, instant, singular, regular in (
        (
            double_four_bar,
            redundant_problems.double_four_bar_at,
            redundant_problems.double_four_bar_in_line(),
            12,
            14,
        ),
        (slider_crank, redundant_problems.slider_crank_at, FOLDED, 7, 8),
    ):
        for t, rank in ((instant, singular), (0.5 * instant, regular)):
            at = start_at(exact(t))
            jacobian = np.asarray(jax.jit(system.constraint_jacobian)(at.t, at.q, at.v))
            values = np.linalg.svd(jacobian, compute_uv=False)
            # Lost singular values are those of angles that are right to round-off, the others of order 1.
            assert (np.sum(values > 1e-14), np.sum(values > 1e-2), len(values)) == (rank, rank, regular)


# Neighbouring step sizes, so that success is not luck.
neighbors = pytest.mark.parametrize(
    ("solver", "shift"),
    [
        ("null_space", 0),
        ("least_squares", 1),
        *(pytest.param("null_space", shift, marks=pytest.mark.exhaustive) for shift in (-2, -1, 1, 2)),
        pytest.param("least_squares", 0, marks=pytest.mark.exhaustive),
    ],
)


# A slider-crank tells the same at half the price.
@pytest.mark.exhaustive
@neighbors
def test_double_four_bar(double_four_bar, solver, shift):
    start = start_at(redundant_problems.double_four_bar_at(0.0))
    check(
        double_four_bar,
        SOLVERS[solver],
        start,
        redundant_problems.double_four_bar_at,
        DT * (1.0 + 1e-3 * shift),
        4000,
    )


# From there to 10 s; the hundredth step ends so many seconds before the links are in line.
@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "solver"),
    [
        (0.0, "null_space"),
        (1e-9, "least_squares"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in itertools.product((0.0, 1e-9, 1e-6), SOLVERS)
            if case not in ((0.0, "null_space"), (1e-9, "least_squares"))
        ),
    ],
)
def test_a_step_of_the_double_four_bar_ends_in_line(double_four_bar, solver, before):
    start = start_at(
        redundant_problems.double_four_bar_at(
            redundant_problems.double_four_bar_in_line() - before - 100 * DT
        )
    )
    check(double_four_bar, SOLVERS[solver], start, redundant_problems.double_four_bar_at, DT, 4000)


@pytest.mark.long
@neighbors
def test_slider_crank(slider_crank, solver, shift):
    start = start_at(redundant_problems.slider_crank_at(0.0))
    check(
        slider_crank,
        SOLVERS[solver],
        start,
        redundant_problems.slider_crank_at,
        DT * (1.0 + 1e-3 * shift),
        2000,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps_before", "solver"),
    [
        (0, "null_space"),
        (100, "least_squares"),
        pytest.param(100, "null_space", marks=pytest.mark.exhaustive),
        pytest.param(0, "least_squares", marks=pytest.mark.exhaustive),
    ],
)
def test_slider_crank_from_and_to_the_folded_position(slider_crank, solver, steps_before):
    """A start there, with momentum, and a step that ends there."""
    start = start_at(redundant_problems.slider_crank_at(FOLDED - steps_before * DT))
    check(slider_crank, SOLVERS[solver], start, redundant_problems.slider_crank_at, DT, 2000)
