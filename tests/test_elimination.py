"""J J^T of block rows by elimination over a tree: the same numbers as by a matrix, for every shape of mechanism."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.operators import BlockRows
from jaxdae.operators.elimination import elimination
from jaxdae.operators.elimination_factors import eliminate

EPS = float(jnp.finfo(float).eps)
WIDTH = 3


def chain(links=12):
    return [(links if k == 0 else k - 1, k, 2) for k in range(links)], links


def floating_body_with_limbs():
    """A free body with eight limbs of two bodies each, whose joints have two rows and one."""
    pairs = [pair for limb in range(8) for pair in ((0, 2 * limb + 1, 2), (2 * limb + 2, 2 * limb + 1, 1))]
    return pairs, 17


def standing_body_with_limbs():
    """The same with a leg of two bodies to the ground, whose joints may not be eliminated before the body's motion."""
    pairs, bodies = floating_body_with_limbs()
    return [*pairs, (0, bodies, 2), (bodies, bodies + 1, 2), (bodies + 1, bodies + 2, 2)], bodies + 2


def ladder(steps=8):
    pairs, bodies = [], 3 * steps
    for k in range(steps):
        base = bodies if k == 0 else 3 * (k - 1) + 1
        pairs += [(base, 3 * k, 2), (3 * k, 3 * k + 1, 2), (3 * k + 1, 3 * k + 2, 2), (3 * k + 2, base, 2)]
    return pairs, bodies


def two_joints_on_one_pair():
    return [(2, 0, 1), (0, 1, 1), (1, 0, 1), (0, 2, 1)], 2


def one_row():
    return [(1, 0, 1)], 1


SHAPES = (chain, floating_body_with_limbs, standing_body_with_limbs, ladder, two_joints_on_one_pair, one_row)


def rows_of(shape, seed=0):
    """Returns block rows that, as those of joints do, look at relative motion: the entries of both bodies are opposite."""
    pairs, bodies = shape()
    rng = np.random.default_rng(seed)
    a, b = (tuple(pair[k] for pair in pairs for _ in range(pair[2])) for k in range(2))
    entries = rng.normal(size=(len(a), WIDTH))
    sides = (jnp.asarray(np.where(np.asarray(side)[:, None] < bodies, sign * entries, 0.0)) for side, sign in ((a, -1.0), (b, 1.0)))
    return BlockRows(*sides, a, b, bodies)


def solved(jacobian, compliance, r):
    order = elimination(jacobian.a, jacobian.b, jacobian.bodies, WIDTH)
    return eliminate(order, jacobian.first, jacobian.second, compliance).solve(r)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_solutions_are_those_of_the_matrix(shape):
    jacobian = rows_of(shape)
    matrix, count = np.asarray(jacobian.as_dense()), jacobian.shape[0]
    rng = np.random.default_rng(1)
    r, soft = jnp.asarray(rng.normal(size=(2, count))), jnp.asarray(rng.random(count))

    @jax.jit
    def in_all_ways(jacobian, r, soft):
        worlds = jax.vmap(solved, (None, None, 0))
        return (
            solved(jacobian, jnp.zeros(count), r[0])[None],
            worlds(jacobian, soft, r),
            jax.vmap(solved)(jax.tree.map(lambda x: jnp.stack([x, x]), jacobian), jnp.stack([soft, soft]), r),
            jax.vmap(worlds, (0, None, None))(jax.tree.map(lambda x: jnp.stack([x, x]), jacobian), soft, r)[1],
        )

    one, *many = in_all_ways(jacobian, r, soft)
    rigid, compliant = matrix @ matrix.T, matrix @ matrix.T + np.diag(soft)
    expected = np.linalg.solve(rigid, r[0])
    np.testing.assert_allclose(one[0], expected, atol=10 * np.linalg.cond(rigid) * EPS * np.abs(expected).max())
    for found in many:
        np.testing.assert_allclose(found, np.linalg.solve(compliant, r.T).T, atol=1e3 * EPS)


def test_a_body_on_which_branches_hang_keeps_borders_small():
    pairs, bodies = floating_body_with_limbs()
    a, b = (tuple(pair[k] for pair in pairs for _ in range(pair[2])) for k in range(2))
    assert elimination(a, b, bodies, WIDTH).sizes == (WIDTH, WIDTH)


def test_dependent_rows_are_nan_and_alone():
    jacobian = rows_of(chain)
    twice = jacobian.first.at[3].set(jacobian.first[2]), jacobian.second.at[3].set(jacobian.second[2])
    both = BlockRows(*(jnp.stack(sides) for sides in zip((jacobian.first, jacobian.second), twice, strict=True)), *structure(jacobian))
    r = jnp.ones(jacobian.shape[0])
    good, bad = jax.jit(jax.vmap(lambda world: solved(world, jnp.zeros_like(r), r)))(both)
    assert np.all(np.isfinite(good))
    assert np.any(np.isnan(bad))
    assert np.any(np.isnan(jax.jit(solved)(BlockRows(*twice, *structure(jacobian)), jnp.zeros_like(r), r)))


def structure(jacobian):
    return jacobian.a, jacobian.b, jacobian.bodies


def test_single_precision_stays_single():
    jacobian = jax.tree.map(lambda x: x.astype(jnp.float32), rows_of(ladder))
    r = jnp.ones(jacobian.shape[0], jnp.float32)
    assert jax.jit(solved)(jacobian, 0.0 * r, r).dtype == jnp.float32


def ladder_of_four_bars(steps):
    bodies, joints = [], []
    for k in range(steps):
        base, at = ("ground", 0.0) if k == 0 else (f"coupler{k - 1}", 0.1)
        poses = {"crank": (0.05, k + 0.5), "coupler": (0.6, k + 1.0), "rocker": (1.05, k + 0.5)}
        bodies += [jm.Body(f"{name}{k}", 1.0, 0.1, (*place, 0.0)) for name, place in poses.items()]
        joints += [
            jm.Revolute(f"A{k}", base, f"crank{k}", at=(at, k)),
            jm.Revolute(f"B{k}", f"crank{k}", f"coupler{k}", at=(0.1, k + 1.0)),
            jm.Revolute(f"C{k}", f"coupler{k}", f"rocker{k}", at=(1.1, k + 1.0)),
            jm.Revolute(f"D{k}", f"rocker{k}", base, at=(1.0 + at, k)),
        ]
    return jm.planar_mechanism(bodies, joints)


def test_a_ladder_moves_as_with_matrices_and_so_do_its_derivatives():
    mechanism, q = ladder_of_four_bars(4)
    v = jnp.asarray(np.random.default_rng(2).normal(size=q.shape))

    def accelerations(gravity, solver):
        world = dataclasses.replace(mechanism, gravity=gravity)
        return jaxdae.forward_dynamics(world, jaxdae.State(jnp.zeros(()), q, v), None, solver=solver)

    at, along = jnp.asarray([0.3, -9.81]), jnp.asarray([1.0, 2.0])
    found, expected = (
        jax.jit(lambda g, s=solver: jax.jvp(lambda g: accelerations(g, s), (g,), (along,)))(at)
        for solver in (jaxdae.SchurComplement(), jaxdae.DenseKKT())
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11 * np.abs(other).max())
