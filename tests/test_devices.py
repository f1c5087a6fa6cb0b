"""What is written otherwise for accelerators says the same; here it runs on the CPU, which is told to be one."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from factors import lower_of

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae.compile.platform import on_accelerator
from jaxdae.linalg.small_matrix import (
    cholesky,
    inverse_cholesky,
    matvec,
    product_transposed,
    rmatvec,
    solving_factors,
)

WORLDS = 3


@pytest.fixture
def accelerator(monkeypatch):
    """JAX finds an accelerator. What was traced before it did is traced anew, and what is traced now does not
    stay.
    """
    jax.clear_caches()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    yield
    jax.clear_caches()


def test_the_cpu_is_none():
    assert not on_accelerator()


@pytest.mark.long
@all_cases("size", [1, 2, 7, 13])
def test_factors_of_a_batch(accelerator, size):
    half = np.random.default_rng(size).standard_normal((WORLDS, size, size)) / np.sqrt(size)
    matrices = half @ np.swapaxes(half, -1, -2) + np.eye(size)
    matrices[1, -1, -1] = -1.0
    # Only the lower triangle is read.
    given = jnp.asarray(matrices).at[:, *np.triu_indices(size, 1)].set(jnp.nan)
    side = np.arange(1.0, size + 1.0)
    factors, solved = jax.jit(jax.vmap(lambda a: (cholesky(a), cholesky(a).solve(jnp.asarray(side)))))(given)
    at_once = jax.jit(jax.vmap(lambda a: solving_factors(a).solve(jnp.asarray(side))))(given)
    inverse = np.asarray(jax.jit(jax.vmap(inverse_cholesky))(given))
    good = [0, 2]
    expected = np.linalg.cholesky(matrices[good])
    for world, lower in zip(good, expected, strict=True):
        found = lower_of(jax.tree.map(lambda x, k=world: x[k], factors.blocks))
        np.testing.assert_allclose(found, lower, rtol=0.0, atol=1e-14)
        np.testing.assert_allclose(
            solved[world], np.linalg.solve(matrices[world], side), rtol=0.0, atol=1e-13
        )
    np.testing.assert_allclose(at_once, solved, rtol=0.0, atol=1e-13)
    np.testing.assert_allclose(
        jax.jit(lambda a: solving_factors(a).solve(jnp.asarray(side)))(given[0]),
        solved[0],
        rtol=0.0,
        atol=1e-13,
    )
    assert np.all(np.isnan(solved[1]))
    np.testing.assert_allclose(inverse[good], np.linalg.inv(expected), rtol=0.0, atol=1e-14)
    np.testing.assert_array_equal(inverse[good], np.tril(inverse[good]))
    assert np.all(np.isnan(inverse[1].T @ (inverse[1] @ np.ones(size))))


@pytest.mark.long
def test_a_row_that_depends_on_others_after_rows_that_nearly_do(accelerator):
    """A pivot that is left of rounding errors of the first half is no pivot of the second."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((13, 20))
    rows[1] = rows[0] + 1e-6 * rows[1]
    independent = rows @ rows.T
    rows[12] = rows[0] + rows[2] - rows[8]
    inverses = jax.jit(jax.vmap(lambda a: solving_factors(a).solve(jnp.ones(13))))(
        jnp.asarray([independent, rows @ rows.T])
    )
    assert np.all(np.isfinite(inverses[0]))
    assert np.all(np.isnan(inverses[1]))


@pytest.mark.long
@all_cases(("rows", "columns"), [(0, 3), (1, 1), (3, 2), (20, 20), (3, 21)])
def test_products(accelerator, rows, columns):
    rng = np.random.default_rng(rows)
    a, b = (jnp.asarray(rng.standard_normal((WORLDS, rows, columns))) for _ in range(2))
    x, y = (
        jnp.asarray(rng.standard_normal((WORLDS, columns))),
        jnp.asarray(rng.standard_normal((WORLDS, rows))),
    )

    def products(a, b, x, y):
        return matvec(a, x), rmatvec(a, y), product_transposed(a, b)

    found = jax.jit(jax.vmap(products))(a, b, x, y)
    expected = np.einsum("wij,wj->wi", a, x), np.einsum("wij,wi->wj", a, y), np.einsum("wij,wkj->wik", a, b)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=0.0, atol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates",
    [pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive), jm.Joints()],
    ids=["absolute", "joints"],
)
def test_rollouts_and_gradients_of_a_loop(monkeypatch, coordinates):
    corners = [(0.0, 0.0), (0.1, 1.0), (1.1, 1.2), (1.4, 0.0)]
    middles = [(0.5 * (x0 + x1), 0.5 * (y0 + y1), 0.0) for (x0, y0), (x1, y1) in pairwise(corners)]
    links = ["ground", "crank", "coupler", "rocker", "ground"]
    bodies = [
        jm.Body(name, mass=1.0, inertia=0.1, pose=pose)
        for name, pose in zip(links[1:4], middles, strict=True)
    ]
    joints = [
        jm.Revolute(f"{a} {b}", a, b, at=at) for (a, b), at in zip(pairwise(links), corners, strict=True)
    ]
    system, q = jm.mechanism(jm.Description(bodies=bodies, joints=joints, gravity=(0.0, -9.81)), coordinates)
    states = jaxdae.State(
        jnp.zeros(WORLDS), jnp.tile(q, (WORLDS, 1)), jnp.zeros((WORLDS, len(system.names.velocities)))
    )
    method = jaxdae.Projected(jaxdae.SemiImplicitEuler())

    def end(mass, state):
        found = jaxdae.rollout(jaxdae.tree.set_leaf(system, "mass", mass), method, state, dt=1e-2, steps=20)
        return jnp.sum(jnp.cos(found.state.q[-1])), found.state.q

    def everything():
        jax.clear_caches()
        wanted = jax.value_and_grad(end, has_aux=True)
        lowered = jax.jit(jax.vmap(wanted, in_axes=(None, 0))).lower(system.mass, states)
        return lowered.compile()(system.mass, states), lowered.as_text()

    expected, _ = everything()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found, program = everything()
    monkeypatch.undo()
    jax.clear_caches()
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)
    # XLA's compiler for GPUs aborts at some products in derivatives, and rounds their factors to TF32.
    assert "dot_general" not in program
