"""J J^T of block rows by elimination over a tree: the same numbers as by a matrix, for every shape of
mechanism.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.matrices import BlockRows
from jaxdae.matrices.block_rows import lower_gram
from jaxdae.matrices.elimination import elimination
from jaxdae.matrices.elimination_factors import factorize
from jaxdae.mechanisms.coordinates.loop_rows import LoopRows

EPS = float(jnp.finfo(float).eps)
WIDTH = 3


def chain(links=22):
    """Has more rows than one world takes as a matrix."""
    return [(links if k == 0 else k - 1, k, 2) for k in range(links)], links


def floating_body_with_limbs():
    """A free body with eight limbs of two bodies each, whose joints have two rows and one."""
    pairs = [pair for limb in range(8) for pair in ((0, 2 * limb + 1, 2), (2 * limb + 2, 2 * limb + 1, 1))]
    return pairs, 17


def standing_body_with_limbs():
    """The same with a leg of two bodies to the ground, whose joints may not be eliminated before the body's
    motion.
    """
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


def related_limbs():
    """The standing body with relations between the joints of a limb, of two limbs, and of a limb and the leg
    that stands.
    """
    pairs, bodies = standing_body_with_limbs()
    return [
        *pairs,
        (0, 1, 2, 1),
        (0, 3, 5, 1),
        (4, 3, 6, 5, 1),
        (0, bodies - 2, bodies - 1, 7, 1),
        (1, 0, bodies, 1),
    ], bodies


SHAPES = (
    chain,
    floating_body_with_limbs,
    standing_body_with_limbs,
    ladder,
    two_joints_on_one_pair,
    one_row,
    related_limbs,
)


def rows_of(shape, seed=0):
    """Returns block rows that, as those of joints do, look at relative motion: the entries of all bodies of a
    row add up to zero.
    """
    joints, bodies = shape()
    rng = np.random.default_rng(seed)
    connected = [joint[:-1] for joint in joints for _ in range(joint[-1])]
    sides = np.zeros((max(len(on) for on in connected), len(connected), WIDTH))
    for row, on in enumerate(connected):
        sides[: len(on), row] = rng.normal(size=(len(on), WIDTH))
        sides[: len(on), row] -= np.mean(sides[: len(on), row], axis=0)
        sides[: len(on), row] *= (np.asarray(on) < bodies)[:, None]
    a, b = (tuple(on[k] for on in connected) for k in range(2))
    if len(sides) == 2:
        return BlockRows(*jnp.asarray(sides), a, b, bodies)
    others = tuple(on[2:] for on in connected)
    return BlockRows(*jnp.asarray(sides[:2]), a, b, bodies, jnp.asarray(sides[2:].swapaxes(0, 1)), others)


def solved(jacobian, compliance, r):
    order, gram = (
        elimination(jacobian.connected, jacobian.bodies, WIDTH),
        functools.partial(lower_gram, jacobian.connected, jacobian.bodies),
    )
    return factorize(order, jacobian.sides, compliance, gram).solve(r)


@pytest.mark.long
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(
            shape,
            marks=() if shape in (chain, ladder, one_row) else pytest.mark.exhaustive,
        )
        for shape in SHAPES
    ],
    ids=lambda shape: shape.__name__,
)
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
            jax.vmap(worlds, (0, None, None))(jax.tree.map(lambda x: jnp.stack([x, x]), jacobian), soft, r)[
                1
            ],
        )

    one, *many = in_all_ways(jacobian, r, soft)
    rigid, compliant = matrix @ matrix.T, matrix @ matrix.T + np.diag(soft)
    expected = np.linalg.solve(rigid, r[0])
    np.testing.assert_allclose(
        one[0], expected, rtol=0, atol=10 * np.linalg.cond(rigid) * EPS * np.abs(expected).max()
    )
    for found in many:
        np.testing.assert_allclose(found, np.linalg.solve(compliant, r.T).T, rtol=0, atol=1e3 * EPS)


def test_a_body_on_which_branches_hang_keeps_borders_small():
    pairs, bodies = floating_body_with_limbs()
    a, b = (tuple(pair[k] for pair in pairs for _ in range(pair[2])) for k in range(2))
    assert elimination(tuple(zip(a, b, strict=True)), bodies, WIDTH).sizes == (WIDTH, WIDTH)


def test_dependent_rows_are_nan_and_alone():
    jacobian = rows_of(chain)
    twice = jacobian.first.at[3].set(jacobian.first[2]), jacobian.second.at[3].set(jacobian.second[2])
    both = BlockRows(
        *(jnp.stack(sides) for sides in zip((jacobian.first, jacobian.second), twice, strict=True)),
        *structure(jacobian),
    )
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
    assert jax.eval_shape(solved, jacobian, 0.0 * r, r).dtype == jnp.float32


def ladder_of_four_bars(steps, coordinates):
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
    # Between hinges far from each other, one of them that closes a loop of joint coordinates, and two on one
    # body.
    joints += [jm.Relation("far", "A0", "A2", (0.1, 0.7, 0.2)), jm.Relation("near", "C1", "B2", (0.0, -0.4))]
    return jm.planar_mechanism(bodies, joints, coordinates=coordinates)


@pytest.mark.long
@pytest.mark.parametrize(
    ("coordinates", "steps", "kind"),
    [(jm.Absolute(), 4, BlockRows), pytest.param(jm.Joints(), 17, LoopRows, marks=pytest.mark.exhaustive)],
    ids=["absolute", "joints"],
)
def test_a_ladder_moves_as_with_matrices_and_so_do_its_derivatives(coordinates, steps, kind):
    mechanism, q = ladder_of_four_bars(steps, coordinates)
    v = jnp.asarray(np.random.default_rng(2).normal(size=q.shape))

    def accelerations(gravity, solver):
        world = dataclasses.replace(mechanism, gravity=gravity)
        return jaxdae.forward_dynamics(world, jaxdae.State(jnp.zeros(()), q, v), None, solver=solver)

    operator = jax.jit(mechanism.jacobian_operator)(jnp.zeros(()), q, v)
    assert isinstance(operator, kind)
    dense = jax.jit(mechanism.constraint_jacobian)(jnp.zeros(()), q, v)
    np.testing.assert_allclose(operator.as_dense(), dense, rtol=0, atol=100 * EPS * np.abs(dense).max())
    at, along = jnp.asarray([0.3, -9.81]), jnp.asarray([1.0, 2.0])
    found, expected = (
        jax.jit(lambda g, s=solver: jax.jvp(lambda g: accelerations(g, s), (g,), (along,)))(at)
        for solver in (jaxdae.SchurComplement(), jaxdae.DenseKKT())
    )
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * np.abs(other).max())


def hinged_chain(links, coordinates):
    bodies = [jm.Body(f"b{k}", 1.0, 0.1, (k + 0.5, 0.0, 0.0)) for k in range(links)]
    joints = [
        jm.Revolute(f"p{k}", f"b{k - 1}" if k else "ground", f"b{k}", at=(float(k), 0.0))
        for k in range(links)
    ]
    return jm.planar_mechanism(
        bodies, joints, [jm.Torque("motor", "ground", "b0", torque=0.0, input=0)], coordinates=coordinates
    )


def assert_worlds_are_as_alone(made, end):
    """end(mechanism, method, start, size) -> trajectory, of sizes that differ from world to world: nothing
    else does.
    """
    mechanism, q = made
    rest = jaxdae.State(jnp.zeros(()), q, jnp.zeros(len(mechanism.names.velocities)))
    start = jaxdae.initialize(mechanism, q)[0] if mechanism.names.rows else rest
    alone = functools.partial(end, mechanism, jaxdae.Projected(jaxdae.SemiImplicitEuler()), start)
    sizes = jnp.asarray([0.0, 1.0])
    one, many = jax.jit(alone), jax.jit(jax.vmap(alone))(sizes)
    assert np.all(np.asarray(many.info.status) == jaxdae.Status.OK)
    for k, size in enumerate(sizes):
        right = one(size)
        for value, expected in ((many.state.v[k], right.state.v), (many.info.lam[k], right.info.lam)):
            np.testing.assert_allclose(
                value, expected, rtol=0, atol=1e-9 * (1.0 + np.abs(expected).max(initial=0.0))
            )


@pytest.mark.long
@pytest.mark.parametrize(
    "made",
    [
        functools.partial(hinged_chain, 24, jm.Joints()),
        pytest.param(functools.partial(hinged_chain, 12, jm.Absolute()), marks=pytest.mark.exhaustive),
        pytest.param(functools.partial(ladder_of_four_bars, 8, jm.Joints()), marks=pytest.mark.exhaustive),
    ],
    ids=["tree", "rows", "loops"],
)
def test_worlds_with_one_start_may_differ_in_gravity(made):
    """The start could be factorized once for all worlds, the states after it cannot."""

    def end(mechanism, method, start, size):
        pulled = dataclasses.replace(mechanism, gravity=size * mechanism.gravity)
        return jaxdae.rollout(pulled, method, start, dt=1e-3, steps=2)

    assert_worlds_are_as_alone(made(), end)


@pytest.mark.long
def test_worlds_with_one_start_may_differ_in_what_a_law_captures():
    """What a function captures is no argument of the rollout."""

    def end(mechanism, method, start, size):
        return jaxdae.rollout(
            mechanism, method, start, lambda t, state: jnp.stack([size + 0.0 * t]), dt=1e-3, steps=2
        )

    assert_worlds_are_as_alone(hinged_chain(24, jm.Joints()), end)
