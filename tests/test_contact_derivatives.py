"""Derivatives of contact problems: central differences, both modes, second order, kinks, smoothing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdae.contact_problem import ContactProblem, Robust, solve

# One contact each that sticks, slides and separates, a closed stop, an open stop, and two dry rows.
MIXED = ContactProblem(
    jnp.eye(13) * 2.0 + 0.2 * jnp.asarray(np.cos(np.add.outer(np.arange(13.0), np.arange(13.0)))),
    jnp.asarray([-1.0, 0.1, 0.2, -1.0, 2.0, -1.0, 1.0, 0.3, 0.1, -0.5, 0.7, 0.05, -3.0]),
    jnp.asarray([0.5, 0.6, 0.7]),
    jnp.asarray([0.3, 0.2]),
)


def vector(problem):
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(problem)])


def from_vector(x, like):
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [x[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(structure, parts)


def directions(problem, count=6):
    """Return random changes of a problem that keep D symmetric (count, size)."""
    random = np.random.default_rng(0)
    changes = []
    for _ in range(count):
        change = jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape)), problem)
        change = dataclasses.replace(change, delassus=change.delassus + change.delassus.T)
        changes.append(vector(change))
    return jnp.stack(changes)


def differences(function, x, changes, h):
    return np.stack([(function(x + h * dx) - function(x - h * dx)) / (2.0 * h) for dx in changes])


def check_derivatives(problem, changes_and_tolerances):
    """Compare both modes with central differences at each problem.

    One program computes the impulses, the linear map and its transpose.
    """

    @jax.jit
    def found(x, changes):
        impulses, push = jax.linearize(lambda x: solve(Robust(finish=8), from_vector(x, problem))[0], x)
        pull = jax.linear_transpose(push, x)
        return impulses, jax.vmap(push)(changes), jax.vmap(lambda row: pull(row)[0])(jnp.eye(impulses.size))

    for x, changes, tolerance in changes_and_tolerances:
        _, forward, jacobian = found(x, changes)
        np.testing.assert_allclose(forward, changes @ jacobian.T, atol=1e-11)
        expected = differences(lambda x, changes=changes: found(x, changes)[0], x, changes, 1e-5)
        np.testing.assert_allclose(forward, expected, atol=tolerance)


@pytest.mark.long
def test_derivatives_equal_central_differences_in_both_modes():
    check_derivatives(MIXED, [(vector(MIXED), directions(MIXED), 1e-8)])


@pytest.mark.exhaustive
def test_derivatives_of_smoothed_problems_equal_central_differences_in_both_modes():
    smooth = dataclasses.replace(MIXED, smoothing=jnp.asarray(1.0))
    changes = directions(smooth)
    check_derivatives(
        smooth,
        [
            (vector(smooth).at[-1].set(kappa), changes.at[:, -1].multiply(0.1 * kappa), tolerance)
            for kappa, tolerance in ((1e-2, 1e-8), (1e-4, 1e-7), (1e-6, 1e-5))
        ],
    )


@pytest.mark.long
def test_second_derivatives():
    x, change = vector(MIXED), directions(MIXED, 1)[0]

    @jax.jit
    def both(x):
        gradient = jax.grad(lambda x: jnp.sum(solve(Robust(), from_vector(x, MIXED))[0] ** 2))
        return jax.jvp(gradient, (x,), (change,))

    expected = differences(lambda x: both(x)[0], x, [change], 1e-5)[0]
    np.testing.assert_allclose(both(x)[1], expected, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("kappa", [None, pytest.param(1e-5, marks=pytest.mark.exhaustive)])
def test_derivatives_at_kinks_are_finite(kappa):
    # At rest, landing, apart, grazing, and at the corner of the friction law.
    velocities = [[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.5, 0.0]]
    smoothing = None if kappa is None else jnp.asarray(kappa)

    def impulses(delassus, velocity, friction):
        return solve(Robust(), ContactProblem(delassus, velocity, friction, smoothing=smoothing))[0]

    derivative = jax.jacrev(impulses, argnums=(0, 1, 2))
    jacobians = jax.jit(jax.vmap(lambda b: derivative(jnp.eye(3), b, jnp.asarray([0.5]))))(
        jnp.asarray(velocities)
    )
    assert all(np.isfinite(x).all() for x in jacobians)


@pytest.mark.exhaustive
def test_frictionless_contacts_transmit_no_tangential_change():
    def impulses(velocity):
        return solve(Robust(), ContactProblem(jnp.eye(3), velocity, jnp.zeros(1)), compliance=jnp.zeros(3))[0]

    jacobian = jax.jit(jax.jacfwd(impulses))(jnp.asarray([-1.0, 0.0, 0.0]))
    np.testing.assert_allclose(jacobian, np.diag([-1.0, 0.0, 0.0]), atol=1e-12)


@pytest.mark.long
def test_redundant_contacts_have_the_derivatives_of_the_unique_motion():
    # Eight points of one rigid body stick: J^T p is unique, and so is its derivative.
    random = np.random.default_rng(2)
    points = np.concatenate([random.uniform(-1.0, 1.0, (8, 2)), np.full((8, 1), -0.5)], axis=1)
    rows = []
    for x, y, z in points:
        rows += [[0, 0, 1, y, -x, 0], [1, 0, 0, 0, z, -y], [0, 1, 0, -z, 0, x]]
    rows = jnp.asarray(rows, float)
    free = jnp.asarray([0.01, -0.02, -1.0, 0.01, 0.02, 0.05])

    def motion(free):
        p, error = solve(Robust(), ContactProblem(rows @ rows.T, rows @ free, jnp.full(8, 0.8)))
        return free + rows.T @ p, error

    velocity, error = motion(free)
    assert error < 1e-9
    np.testing.assert_allclose(velocity, 0.0, atol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(lambda free: motion(free)[0])(free), 0.0, atol=1e-6)


@pytest.mark.long
def test_masked_rows_have_zero_derivatives():
    active = jnp.asarray([True, False, True, True, False])

    def impulses(x):
        return solve(Robust(), from_vector(x, MIXED).masked(active))[0]

    jacobian = from_vector(jnp.arange(vector(MIXED).size), MIXED)
    full = np.asarray(jax.jacfwd(impulses)(vector(MIXED)))
    masked = [3, 4, 5, 10]
    assert (full[masked] == 0.0).all()
    assert (full[:, np.asarray(jacobian.velocity)[masked].astype(int)] == 0.0).all()
    assert (full[:, np.asarray(jacobian.delassus)[:, masked].astype(int)] == 0.0).all()
