"""Least squares with rows that hold exactly: one world, batches, derivatives, and what is not unique."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.vehicles.least_slip import constrained_normal_equations

N, H, ROWS, WORLDS = 3, 2, 5, 3
EPS = np.finfo(float).eps


def dense(rows, b, hard, g):
    """Returns the solution from the whole matrix."""
    matrix = jnp.block([[hard.T @ hard + rows[H:].T @ rows[H:], hard.T], [hard, jnp.zeros((H, H))]])
    return jnp.linalg.solve(matrix, jnp.concatenate([g @ hard + b[H:] @ rows[H:], g]))


def normal_solution(rows, b, hard, g):
    """Returns the solution; the first rows are the hard ones."""
    return jnp.concatenate(constrained_normal_equations(hard, g, rows[H:], b[H:]))


def problems():
    random = np.random.default_rng(0)
    soft, b, g = (jnp.asarray(random.normal(size=(WORLDS, *shape))) for shape in ((ROWS, N), (ROWS,), (H,)))
    return soft, b, soft[:, :H], g


@pytest.mark.long
def test_worlds_of_a_batch_and_one_world_are_solved():
    # Condition numbers of these matrices are some hundreds.
    found = jax.jit(jax.vmap(normal_solution))(*problems())
    np.testing.assert_allclose(found, jax.vmap(dense)(*problems()), rtol=1e4 * EPS)
    one = normal_solution(*(x[0] for x in problems()))
    np.testing.assert_allclose(one, found[0], rtol=1e4 * EPS)


@pytest.mark.long
def test_derivatives_of_first_and_second_order():
    def loss(solution, scale):
        rows, b, hard, g = problems()
        moved = rows + scale * jnp.sin(rows), b + scale, hard + scale * hard**2, g - scale
        return jnp.sum(jax.vmap(solution)(*moved) ** 2)

    slopes = (jax.grad(functools.partial(loss, solution)) for solution in (normal_solution, dense))
    found, wanted = (jax.jit(jax.value_and_grad(slope))(0.1) for slope in slopes)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_what_is_not_unique_is_nan_in_its_world_only():
    rows, b, hard, g = problems()
    lost = rows.at[0, :, 2].set(0.0), b, hard.at[0, :, 2].set(0.0).at[1, 1].set(2.0 * hard[1, 0]), g
    found = jax.jit(jax.vmap(normal_solution))(*lost)
    assert np.all(np.isnan(found[:2]).any(axis=1))
    np.testing.assert_allclose(found[2], dense(*(x[2] for x in problems())), rtol=1e4 * EPS)
