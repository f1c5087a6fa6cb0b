"""The mass matrix of a tree without forming it: recursions over levels, articulated bodies, in one world and
in batches.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.matrices import DenseRows
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.coordinates.articulated_bodies import TreeMass
from jaxdae.trees.tree_layout import Tree
from jaxdae.trees.tree_sweeps import inward, outward, sum_to_leaves, sum_to_root

EPS = float(jnp.finfo(float).eps)


def some_tree(nodes, seed=0):
    """Returns a random forest with two roots: branches of all lengths, levels of more than 16 nodes where
    there are many.
    """
    rng = np.random.default_rng(seed)
    parents = [nodes, nodes, *(int(rng.integers(max(0, k // 4 - 1), k)) for k in range(2, nodes))]
    return Tree(tuple(parents[:nodes]))


@pytest.mark.long
@pytest.mark.parametrize(
    "tree",
    [Tree(()), Tree((1,)), Tree((5, 0, 1, 2, 3)), some_tree(30), some_tree(150)],
    ids=lambda t: t.count,
)
def test_sums_over_ancestors_and_descendants(tree):
    entry = jnp.asarray(np.random.default_rng(1).normal(size=(tree.count, 2)))
    above, below = np.array(entry), np.array(entry)
    for node, parent in enumerate(tree.parents):
        above[node] += above[parent] if parent < tree.count else 0.0
    for node, parent in reversed(list(enumerate(tree.parents))):
        if parent < tree.count:
            below[parent] += below[node]

    def add(own, given):
        return (own + given,) * 2

    # Along tangents alone, as rules of derivatives have them, the transpose of one sum is the other.
    @jax.custom_jvp
    def still(x):
        return x

    def gradient(along):
        still.defjvp(lambda primals, tangents: (primals[0], along(tree, tangents[0])))
        return jax.grad(lambda x: jnp.sum(entry * still(x)))(entry)

    @jax.jit
    def found(entry):
        sums = [sum_to_leaves(tree, entry), sum_to_root(tree, entry)]
        sums += [gradient(sum_to_root), gradient(sum_to_leaves)]
        if tree.count:
            slots = tree.to_slots(entry)
            sums += [tree.to_nodes(sweep(tree, add, slots, jnp.zeros(2))) for sweep in (outward, inward)]
        return sums

    for value, expected in zip(found(entry), [above, below] * 3, strict=False):
        np.testing.assert_allclose(value, expected, rtol=0, atol=100 * EPS)


def test_the_first_child_occupies_the_slot_below_its_parent():
    """Five limbs of twenty nodes on a base: a grid for the base and a grid for the limbs, without empty
    slots.
    """
    tree = Tree((101, 0, 0, 0, 0, 0, *range(1, 96)))
    assert [grid.shape for grid in tree.grids] == [(1, 1), (20, 5)]
    np.testing.assert_array_equal(tree.above[1][1:], np.broadcast_to(np.arange(5), (19, 5)))
    np.testing.assert_array_equal(tree.slot_nodes[tree.node_slots], np.arange(101))


def branching(space, bodies, seed=0):
    """Returns a tree of hinges, with balls and free bodies in space, that branches; and q somewhere."""
    rng = np.random.default_rng(seed)
    size = 3 if space is jm.SPACE else 2
    links, joints = [], []
    for k in range(bodies):
        parent = "ground" if k == 0 else f"b{int(rng.integers(max(0, k - 4), k))}"
        place = rng.normal(size=3)
        if size == 2:
            links.append(jm.Body(f"b{k}", 1.0 + rng.random(), 0.1 + rng.random(), place))
            joints.append(jm.Revolute(f"j{k}", parent, f"b{k}", at=place[:2] + 0.5))
            continue
        root, turn = rng.normal(size=(3, 3)), rng.normal(size=4)
        spread = 0.1 * root @ root.T + 0.1 * np.eye(3)
        inertia = np.trace(spread) * np.eye(3) - spread
        links.append(js.Body(f"b{k}", 1.0 + rng.random(), inertia, place, turn / np.linalg.norm(turn)))
        kind = (js.Revolute, js.Ball, js.Cylindrical, js.Weld)[k % 4]
        axes = {"axis": rng.normal(size=3)} if k % 4 in (0, 2) else {}
        if k % 7 != 3:
            joints.append(kind(f"j{k}", parent, f"b{k}", at=place + 0.5, **axes))
    mechanism, q = jm.mechanism(jm.Description(space=space, bodies=links, joints=joints), jm.Joints())
    armature = jnp.asarray(rng.random(len(mechanism.names.velocities)))
    return dataclasses.replace(
        mechanism, located=dataclasses.replace(mechanism.coordinates, armature=armature)
    ), q


@pytest.mark.long
@pytest.mark.parametrize(
    ("space", "bodies", "ways"),
    [
        (jm.SPACE, 16, ("one", "batch", "sides", "worlds", "nested")),
        pytest.param(jm.PLANE, 120, ("one", "batch", "nested"), marks=pytest.mark.exhaustive),
    ],
    ids=["space", "plane"],
)
def test_factors_are_those_of_the_matrix(space, bodies, ways):
    mechanism, q = branching(space, bodies)
    nv = len(mechanism.names.velocities)
    rng = np.random.default_rng(3)
    b, x, rows = (jnp.asarray(rng.normal(size=size)) for size in (nv, nv, (3, nv)))

    @jax.jit
    def formed(q, x):
        mass = mechanism.mass_operator(q)
        assert isinstance(mass, TreeMass)
        return mass.as_dense(), mass.times(x), mass.diagonal_mean()

    matrix, product, mean = map(np.asarray, formed(q, x))
    np.testing.assert_array_equal(matrix, matrix.T)
    condition = np.linalg.cond(matrix)
    np.testing.assert_allclose(product, matrix @ x, rtol=0, atol=100 * EPS * np.abs(matrix).max())
    np.testing.assert_allclose(mean, np.mean(np.diag(matrix)), rtol=100 * EPS)

    def solved(q, b, rows):
        factors = mechanism.mass_operator(q).factorize()
        scaled = factors.scaled(b)
        return factors.unscaled(scaled), jnp.sum(scaled**2), factors.scaled_rows(DenseRows(rows)).gram()

    expected = (
        np.linalg.solve(matrix, b),
        b @ np.linalg.solve(matrix, b),
        rows @ np.linalg.solve(matrix, rows.T),
    )
    two = jax.tree.map(lambda x: jnp.stack([x, 2.0 * x]), (b, rows))
    batch = jnp.stack([q, q])

    @jax.jit
    def in_all_ways(q, b, rows):
        first = functools.partial(jax.tree.map, lambda x: x[0])
        known = {
            "one": lambda: solved(q, b, rows),
            "batch": lambda: first(jax.vmap(solved)(batch, *two)),
            "sides": lambda: first(jax.vmap(solved, (None, 0, 0))(q, *two)),
            "worlds": lambda: first(jax.vmap(solved, (0, None, None))(batch, b, rows)),
            "nested": lambda: first(
                first(jax.vmap(jax.vmap(solved, (None, 0, 0)), (0, None, None))(batch, *two))
            ),
        }
        return {way: known[way]() for way in ways}

    for name, values in in_all_ways(q, b, rows).items():
        for value, right in zip(values, expected, strict=True):
            np.testing.assert_allclose(
                value, right, rtol=0, atol=condition * EPS * np.abs(right).max(), err_msg=name
            )


@pytest.mark.long
@pytest.mark.parametrize("way", ["one world", pytest.param("batch", marks=pytest.mark.exhaustive)])
def test_derivatives_of_accelerations_are_differences(way):
    mechanism, q = branching(jm.SPACE, 12)
    nv = len(mechanism.names.velocities)
    assert nv >= mechanism.coordinates.articulated_from
    v, xi, c = (jnp.asarray(np.random.default_rng(k).normal(size=nv)) for k in (5, 6, 7))

    @jax.jit
    def value(step):
        state = jaxdae.State(jnp.zeros(()), mechanism.retract(q, step * xi), v + step * c)
        return c @ jaxdae.forward_dynamics(mechanism, state, None)[0]

    step = 1e-5
    expected = (value(step) - value(-step)) / (2.0 * step)
    slope = jax.jacfwd(value)(0.0) if way == "one world" else jax.vmap(jax.grad(value))(jnp.zeros(2))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


@pytest.mark.long
def test_a_world_with_a_tip_without_inertia_is_nan_and_alone():
    joints = [
        jm.Revolute(f"j{k}", "ground" if k == 0 else f"b{k - 1}", f"b{k}", at=(float(k), 0.0))
        for k in range(25)
    ]
    bodies = [jm.Body(f"b{k}", 1.0, 0.1, (k + 0.5, 0.0, 0.0)) for k in range(25)]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    inertia = jnp.stack([mechanism.inertia, mechanism.inertia.at[-1].set(0.0)])
    mass = jnp.stack([mechanism.mass, mechanism.mass.at[-1].set(0.0)])

    def solved(mass, inertia):
        world = dataclasses.replace(mechanism, mass=mass, inertia=inertia)
        factors = world.mass_operator(q).factorize()
        return factors.unscaled(factors.scaled(jnp.ones(25)))

    first, second = jax.jit(jax.vmap(solved))(mass, inertia)
    assert np.all(np.isfinite(first))
    assert np.all(np.isnan(second))
    assert np.all(np.isnan(jax.jit(solved)(mass[1], inertia[1])))


@pytest.mark.exhaustive
def test_single_precision_stays_single():
    mechanism, q = branching(jm.PLANE, 30)
    mechanism, q = jax.tree.map(lambda x: x.astype(jnp.float32), (mechanism, q))
    state = jaxdae.State(jnp.zeros((), jnp.float32), q, jnp.ones(30, jnp.float32))
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), state)

    def accelerated(state):
        return jaxdae.forward_dynamics(mechanism, state, None)[0]

    # Types are known from tracing; compiling would show no more of them.
    assert jax.eval_shape(accelerated, state).dtype == jnp.float32
    assert jax.eval_shape(jax.vmap(accelerated), batch).dtype == jnp.float32
