"""Elimination of loop rows together with the bodies of a tree, against the dense saddle point."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae.mechanisms as jm
from jaxdae.geometry.screws import PlanarInertia, PlanarScrew
from jaxdae.mechanisms.coordinates.articulated_bodies import TreeMass
from jaxdae.mechanisms.coordinates.loop_order import loop_order
from jaxdae.mechanisms.coordinates.loop_rows import LoopRows
from jaxdae.trees.tree_layout import Tree

EPS = float(jnp.finfo(float).eps)
GROUND = 11

PARENTS = (GROUND, 0, 0, 0, 0, 1, 5, GROUND, 7, 8, 6)
"""Two trees: in the first the branches 1, 2 and 3, 4 meet on body 0, on which they close loops of their own."""

ENDS = ((1, 2), (3, 4), (0, 6), (6, 8), (), (3, 4), (4, 3), (10, GROUND))
"""What the rows push on: one of them on body 0 itself, one on both trees, one on the ground."""

OWN = ((), (), (), (), (5, 9), (2,), (), ())
"""Relations between velocities, and one between a velocity and what is measured of two bodies."""

GROUNDED = (False, False, False, False, False, False, True, False)


def some_tree(seed):
    """Returns M and J of random motions, inertias and pushes; rows push on both bodies oppositely but where
    they see common motions.
    """
    rng = np.random.default_rng(seed)
    nv, rows = len(PARENTS), len(ENDS)
    mass, place, moment = 1.0 + rng.random(nv), rng.normal(size=(2, nv)), rng.random(nv)
    inertia = PlanarInertia(
        *map(jnp.asarray, (mass, *(mass * place), moment + mass * np.sum(place**2, axis=0)))
    )
    columns = rng.normal(size=(nv, 3))
    matrix = TreeMass(
        jm.PLANE, Tree(PARENTS), PlanarScrew(*jnp.asarray(columns).T), inertia, jnp.asarray(rng.random(nv))
    )
    force = rng.normal(size=(rows, 3))
    pushes = np.stack([force, -force + np.asarray(GROUNDED)[:, None] * rng.normal(size=(rows, 3))], axis=1)
    pushes *= np.asarray([[len(ends) > k for k in range(2)] for ends in ENDS])[..., None]
    entries = rng.normal(size=(rows, 2)) * np.asarray([[len(own) > k for k in range(2)] for own in OWN])
    return matrix, LoopRows(
        Tree(PARENTS), jnp.asarray(columns), jnp.asarray(pushes), jnp.asarray(entries), ENDS, OWN, GROUNDED
    )


def solved(mass, rows, soft, f, r):
    return rows.eliminated(mass, soft).solve(f, r)


def by_matrices(mass, rows, soft, f, r):
    matrix, jacobian = np.asarray(mass.as_dense()), np.asarray(rows.as_dense())
    whole = np.block([[matrix, -jacobian.T], [jacobian, np.diag(soft)]])
    return np.split(np.linalg.solve(whole, np.concatenate([f, r])), [len(f)]), np.linalg.cond(whole)


@pytest.mark.long
def test_rows_are_those_of_the_matrix():
    rng = np.random.default_rng(1)
    _, rows = some_tree(0)
    x, y = jnp.asarray(rng.normal(size=rows.shape[1])), jnp.asarray(rng.normal(size=rows.shape[0]))
    dense = np.asarray(rows.as_dense())
    np.testing.assert_allclose(rows.times(x), dense @ x, rtol=0, atol=100 * EPS * np.abs(dense).max())
    np.testing.assert_allclose(
        rows.transpose_times(y), y @ dense, rtol=0, atol=100 * EPS * np.abs(dense).max()
    )
    np.testing.assert_array_equal(rows.between(2, 7).as_dense(), dense[2:7])
    np.testing.assert_array_equal(rows.masked(y > 0.0).as_dense(), np.where(y[:, None] > 0.0, dense, 0.0))
    np.testing.assert_array_equal(rows.with_nan(y > 0.0).as_dense()[y > 0.0], np.nan)
    np.testing.assert_array_equal(rows.with_nan(y > 0.0).as_dense()[y <= 0.0], dense[y <= 0.0])


@pytest.mark.long
def test_solutions_are_those_of_matrices_in_one_world_and_in_batches():
    rng = np.random.default_rng(2)
    worlds = [some_tree(seed) for seed in range(2)]
    count, nv = worlds[0][1].shape
    soft, r = jnp.asarray(rng.random((2, count))).at[0].set(0.0), jnp.asarray(rng.normal(size=(2, count)))
    f = jnp.asarray(rng.normal(size=(2, nv)))
    mass, rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)

    @jax.jit
    def in_all_ways(mass, rows, soft, f, r):
        first = jax.tree.map(lambda x: x[0], (mass, rows, soft))
        return (
            solved(*first, f[0], r[0]),
            jax.vmap(solved)(mass, rows, soft, f, r),
            sides(*first, f, r),
            jax.vmap(sides, (0, 0, 0, None, None))(mass, rows, soft, f, r),
        )

    sides = jax.vmap(solved, (None, None, None, 0, 0))
    one, batch, several, both = in_all_ways(mass, rows, soft, f, r)
    ways = [
        (one, 0, 0),
        *((tuple(x[k] for x in batch), k, k) for k in range(2)),
        (tuple(x[1] for x in several), 0, 1),
    ]
    ways += [(tuple(x[world, k] for x in both), world, k) for world in range(2) for k in range(2)]
    for found, world, k in ways:
        expected, condition = by_matrices(*worlds[world], soft[world], f[k], r[k])
        for value, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(
                value, right, rtol=0, atol=10 * condition * EPS * max(np.abs(x).max() for x in expected)
            )


@pytest.mark.long
def test_a_row_that_depends_on_others_is_nan_and_alone():
    mass, rows = some_tree(0)
    twice = dataclasses.replace(
        rows, pushes=rows.pushes.at[5].set(rows.pushes[1]), entries=rows.entries.at[5].set(0.0)
    )
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), rows, twice)
    r = jnp.ones(rows.shape[0])
    good, bad = jax.jit(jax.vmap(lambda rows: solved(mass, rows, None, None, r)[1]))(both)
    assert np.all(np.isfinite(good))
    assert np.any(np.isnan(bad))


@pytest.mark.long
def test_recursions_may_stand_under_a_condition_that_differs_from_world_to_world():
    loops = [
        (joint, a, b)
        for k in range(8)
        for joint, a, b in (("d", f"b{k}", f"a{k}"), ("e", f"b{k}", f"c{k}"), ("f", f"c{k}", f"a{k}"))
    ]
    bodies = [
        jm.Body(f"{name}{k}", 1.0, 0.1, (k + x, y, 0.0))
        for k in range(8)
        for name, x, y in (("a", 0.0, 0.0), ("b", 1.0, 0.0), ("c", 0.0, 1.0))
    ]
    joints = [
        jm.Revolute(f"a{k}", f"a{k - 1}" if k else "ground", f"a{k}", at=(float(k), 0.0)) for k in range(8)
    ]
    joints += [
        jm.Revolute(f"{joint}{b}", a, b, at=(float(k), 0.5 * k)) for k, (joint, a, b) in enumerate(loops)
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())

    def moved(q):
        mass, rows = mechanism.mass_operator(q), mechanism.jacobian_operator(jnp.zeros(()), q, q)
        together = rows.eliminated(mass, None).solve(q, jnp.zeros(rows.shape[0]))[0]
        return together + mass.factorize().unscaled(q) + mechanism.coordinates.near(q).bodies.x[0]

    # What fails, fails when it is traced.
    shape = jax.eval_shape(
        jax.vmap(lambda q, on: jax.lax.cond(on, moved, jnp.negative, q)), jnp.stack([q, q]), jnp.ones(2, bool)
    )
    assert shape.shape == (2, *q.shape)


def test_loops_on_one_body_and_on_the_ground_are_closed_apart():
    for base in ((), (0,)):
        ground, first = len(base) + 24, len(base)
        parents, ends = [ground] * first, []
        for k in range(first, ground, 3):
            parents += [0 if base else ground, k, 0 if base else ground]
            ends += [(k + 1, k + 2)] * 2
        order = loop_order(tuple(parents), tuple(ends), ((),) * 16, (False,) * 16)
        assert order.width == 2
        assert order.tree.count == ground + 8
