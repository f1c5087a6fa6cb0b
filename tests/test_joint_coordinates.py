"""Joint coordinates: the same mechanics as absolute coordinates, for every type of joint, in the plane and in
space.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import accelerate_alike

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.forces.spatial_forces import SPATIAL_FORCES
from jaxdae.mechanisms.joints.planar_joints import PLANAR_JOINTS
from jaxdae.mechanisms.joints.spatial_joints import SPATIAL_JOINTS

EPS = float(jnp.finfo(float).eps)


def in_space():
    """Returns a chain of every joint that a tree can have, some of them backward, with two loops and a free
    body.
    """
    rng = np.random.default_rng(1)

    def somewhere():
        return rng.normal(size=3)

    def body(name):
        root, quaternion = rng.normal(size=(3, 3)), rng.normal(size=4)
        spread = 0.1 * root @ root.T + 0.1 * np.eye(3)
        inertia = np.trace(spread) * np.eye(3) - spread
        return js.Body(
            name, 1.0 + rng.random(), inertia, somewhere(), quaternion / np.linalg.norm(quaternion)
        )

    joints = [
        js.Revolute("hinge", "ground", "a", axis=somewhere(), at=somewhere(), damping=0.4),
        js.Prismatic("slider", "b", "a", axis=somewhere(), at=somewhere(), damping=0.3),
        js.Ball("ball", "b", "c", at=somewhere()),
        js.Universal(
            "cardan", "d", "b", axis=(1.0, 0.0, 0.0), second=(0.0, 1.0, 0.0), at=somewhere(), damping=0.2
        ),
        js.Cylindrical("sleeve", "d", "e", axis=somewhere(), at=somewhere(), damping=0.2),
        js.Screw("screw", "f", "e", axis=somewhere(), at=somewhere(), lead=0.3, damping=0.2),
        js.Planar("table", "f", "g", axis=somewhere(), at=somewhere()),
        js.Weld("weld", "g", "h", at=somewhere()),
        js.PointOnLine("slot", "i", "h", axis=somewhere(), at=somewhere()),
        js.PointOnPlane("foot", "i", "j", axis=somewhere(), at=somewhere()),
        js.Revolute("loop", "h", "a", axis=somewhere(), at=somewhere(), damping=0.2),
        js.Rod("rod", "c", "ground", at_a=somewhere(), at_b=somewhere()),
        js.Free("afloat", "ground", "l", somewhere(), (0.5, -0.5, 0.5, 0.5)),
    ]
    forces = [
        js.LinearSpring("spring", "c", "k", at_a=somewhere(), at_b=somewhere(), stiffness=3.0, damping=0.4),
        js.JointForce("motor", "sleeve", force=2.0, along="angle"),
        js.Force("push", "h", at=somewhere(), force=(1.0, 2.0, 3.0), body_frame=True),
        js.Torque("twist", "ground", "e", (1.0, 2.0, 1.0)),
    ]
    return jm.Description(
        space=jm.SPACE, bodies=[body(name) for name in "abcdefghijkl"], joints=joints, forces=forces
    ), ("loop",)


def few_in_space():
    """Return a chain of a hinge, a ball and a screw that a rod closes, with a free body and a planar joint. Two of
    the joints are backward.
    """
    whole, _ = in_space()
    bodies = {body.name: body for body in whole.bodies}
    rng = np.random.default_rng(4)
    joints = [
        js.Revolute("hinge", "ground", "a", axis=rng.normal(size=3), at=rng.normal(size=3), damping=0.4),
        js.Ball("ball", "b", "a", at=rng.normal(size=3)),
        js.Screw("screw", "b", "c", axis=rng.normal(size=3), at=rng.normal(size=3), lead=0.3, damping=0.2),
        js.Rod("rod", "c", "ground", at_a=rng.normal(size=3), at_b=rng.normal(size=3)),
        js.Free("afloat", "c", "d", rng.normal(size=3), (0.5, -0.5, 0.5, 0.5)),
        js.Planar("table", "e", "c", axis=rng.normal(size=3), at=rng.normal(size=3)),
    ]
    forces = [
        js.JointForce("motor", "hinge", force=2.0),
        js.Force("push", "c", at=rng.normal(size=3), force=(1.0, 2.0, 3.0)),
    ]
    return jm.Description(
        space=jm.SPACE, bodies=[bodies[name] for name in "abcde"], joints=joints, forces=forces
    ), ()


def in_plane():
    """Returns a tree of planar joints, one of them backward, with loops and free bodies."""
    rng = np.random.default_rng(0)

    def somewhere():
        return rng.normal(size=2)

    joints = [
        jm.Revolute("hinge", "ground", "a", at=somewhere(), damping=0.4),
        jm.Prismatic("slider", "b", "a", somewhere(), at=somewhere(), damping=0.3),
        jm.Weld("weld", "b", "c", at=somewhere()),
        jm.Revolute("elbow", "d", "c", at=somewhere()),
        jm.Revolute("loop", "d", "ground", at=somewhere()),
        jm.Rod("rod", "e", "d", at_a=somewhere(), at_b=somewhere()),
        jm.Gear("gear", "a", "e", -2.0),
        jm.Skate("skate", "ground", "f", somewhere(), at=somewhere()),
    ]
    forces = [
        jm.LinearSpring("spring", "c", "f", at_a=somewhere(), at_b=somewhere(), stiffness=3.0, damping=0.4),
        jm.Torque("torque", "a", "d", 1.0),
        jm.JointForce("motor", "slider", 2.0),
    ]
    bodies = [jm.Body(name, 1.0 + rng.random(), 0.3 + rng.random(), rng.normal(size=3)) for name in "abcdef"]
    return jm.Description(bodies=bodies, joints=joints, forces=forces), ("loop",)


@pytest.fixture(
    scope="module",
    params=[
        in_plane,
        pytest.param(few_in_space, marks=pytest.mark.long),
        pytest.param(in_space, marks=pytest.mark.exhaustive),
    ],
    ids=["plane", "few", "space"],
)
def both(request):
    """Returns a mechanism in both forms, with a state in both. Every joint in space takes minutes to compile,
    a few of them seconds.
    """
    description, cut = request.param()
    absolute, _ = jm.mechanism(description)
    joints, q = jm.mechanism(description, jm.Joints(cut))
    v = jnp.asarray(np.random.default_rng(2).normal(size=len(joints.names.velocities)))
    state = jaxdae.State(jnp.asarray(0.1), q, v)
    return absolute, joints, jax.jit(jm.to_absolute)(joints, state), state


# `test_joint_elements` compares both forms in space, too.
exhaustive_in_space = pytest.mark.parametrize(
    "both",
    [in_plane, *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in (few_in_space, in_space))],
    ids=["plane", "few", "space"],
    indirect=True,
)


def test_every_type_that_can_be_in_a_tree_is_in_the_examples():
    used = {type(joint) for description, _ in (in_plane(), in_space()) for joint in description.joints}
    assert {kind for kind in (*PLANAR_JOINTS, *SPATIAL_JOINTS) if kind.in_tree} <= used
    assert len(SPATIAL_FORCES) > 0


@pytest.mark.long
def test_frames_are_those_of_the_start(both, request):
    absolute, joints, _, here = both
    description, _ = request.node.callspec.params["both"]()
    _, start = jm.mechanism(description)
    for a, b in zip(absolute.frames(start), joints.frames(here.q), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=100 * EPS)


@pytest.mark.long
def test_twists_are_the_rates_of_frames(both):
    _, joints, _, here = both
    frames, along = jax.jvp(lambda s: joints.frames(joints.retract(here.q, s * here.v)), (0.0,), (1.0,))
    for a, b in zip(frames.along(joints.twists(here.q, here.v)), along, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e3 * EPS)


@pytest.mark.long
def test_velocities_carried_to_other_coordinates_are_nearest_to_the_twists(both):
    absolute, joints, there, here = both
    new = joints.retract(here.q, 0.3 * here.v)
    carried = joints.carry(here.q, here.v, new)
    before = joints.twists(here.q, here.v)

    def distance(v):
        apart = jax.tree.map(jnp.subtract, joints.twists(new, v), before)
        momenta = joints.space.inertial(joints.mass, joints.inertia, apart)
        return 0.5 * sum(jnp.sum(x * p) for x, p in zip(apart, momenta, strict=True))

    # The least distance: its derivative vanishes, relative to the momenta.
    size = np.abs(jax.grad(distance)(jnp.zeros_like(here.v))).max()
    np.testing.assert_allclose(jax.grad(distance)(carried) / size, 0.0, atol=1e4 * EPS)
    assert distance(carried) < distance(here.v)
    assert joints.kinetic_energy(new, carried) < joints.kinetic_energy(here.q, here.v)
    np.testing.assert_array_equal(joints.carry(here.q, here.v, here.q), here.v)
    assert absolute.carry(there.q, there.v, there.q) is there.v


@pytest.mark.long
def test_derivatives_of_frames_and_motions_are_those_of_autodiff(both):
    _, joints, _, here = both
    tree, rate = joints.coordinates, jax.jvp(lambda s: joints.retract(here.q, s * here.v), (0.0,), (1.0,))[1]
    np.testing.assert_allclose(tree.velocity_of(here.q, rate), here.v, rtol=0, atol=10 * EPS)
    rng = np.random.default_rng(3)

    def some(x):
        return jnp.asarray(rng.normal(size=x.shape))

    # Axes keep their length, and frames stay frames.
    turning = jnp.cross(some(tree.turning), tree.turning) if tree.turning.ndim == 2 else some(tree.turning)
    fixed = tree.fixed.along(tree.space.twist(*(some(tree.fixed.x) for _ in tree.space.twist._fields)))
    design = {
        "fixed": fixed,
        "turning": turning,
        "sliding": some(tree.sliding),
        "held": jax.tree.map(some, tree.held),
    }
    names = list(design)

    @jax.jit
    def compared(q, rate, parts, dots):
        def near(q, *parts):
            return dataclasses.replace(tree, **dict(zip(names, parts, strict=True))).near(q)

        at, along = jax.jvp(near, (q, *parts), (rate, *dots))
        return tree.near_along(
            q, at, rate, dataclasses.replace(tree, **dict(zip(names, dots, strict=True)))
        ), along

    found, expected = compared(here.q, rate, [getattr(tree, name) for name in names], list(design.values()))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e4 * EPS), found, expected)


def terms(at):
    return (
        at.mass.as_dense(),
        at.position,
        at.constraint_rate,
        at.velocity_constraint,
        at.jacobian.as_dense(),
        at.bias,
        at.force(),
    )


@jax.jit
def evaluated_and_called(system, t, q, v):
    """Returns the terms of one evaluation, and those of the methods of the system."""
    at = system.evaluate(t, q, 2.0 * v).with_velocities(v)
    rows = (
        f(t, q, v)
        for f in (
            system.constraint_rate,
            system.velocity_constraint,
            system.constraint_jacobian,
            system.constraint_bias,
        )
    )
    return terms(at), (system.mass_matrix(q), system.constraint(t, q), *rows, system.force(t, q, v, None))


@pytest.mark.long
@pytest.mark.parametrize("joints", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_an_evaluation_returns_the_terms_of_the_methods(joints):
    """From one set of frames, at other velocities, and through a wrapper; an evaluation is a value, also for
    `jit` and derivatives.
    """
    (description, cut), t = in_plane(), jnp.zeros(())
    mechanism, q = jm.mechanism(description, jm.Joints(cut=cut) if joints else jm.Absolute())
    sizes = mechanism.sizes(q)
    system, v = (
        jaxdae.Masked(mechanism, np.arange(sizes.nc) % 2 == 0),
        jnp.arange(1.0, sizes.nv + 1.0) / sizes.nv,
    )
    for found, expected in zip(*evaluated_and_called(system, t, q + 0.1, v), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-12)
    position = jax.jit(lambda at: at.position)
    found = jax.jit(jax.jacfwd(lambda x: position(mechanism.evaluate(t, x))))(q)
    expected = jax.jit(jax.jacfwd(lambda x: mechanism.constraint(t, x)))(q)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_bodies_on_the_ground_stay_where_they_are():
    bodies = [jm.Body("base", 1.0, 0.1, (0.3, 0.2, 0.1)), jm.Body("arm", 1.0, 0.1, (2.5, 1.0, 0.0))]
    joints = [
        jm.Weld("weld", jm.GROUND, "base", at=(0.0, 0.0)),
        jm.Revolute("hinge", jm.GROUND, "arm", at=(2.0, 1.0)),
    ]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    np.testing.assert_allclose(
        jnp.stack(mechanism.frames(q)[:3]), [[0.3, 2.5], [0.2, 1.0], [0.1, 0.0]], rtol=0, atol=10 * EPS
    )


def test_states_go_round(both):
    _, joints, there, here = both
    back = jax.jit(jm.to_joints)(joints, there)
    np.testing.assert_allclose(joints.difference(here.q, back.q), 0.0, rtol=0, atol=1e-14)
    # Velocities are differences of those of the bodies, which are larger.
    np.testing.assert_allclose(back.v, here.v, rtol=0.0, atol=1e-14 * max(1.0, float(jnp.abs(there.v).max())))


@jax.jit
def solved(system, state):
    return jaxdae.forward_dynamics(system, state, None, solver=jaxdae.DenseKKT())


@pytest.mark.long
def test_accelerations_and_multipliers_are_the_same(both):
    absolute, joints, there, here = both
    accelerate_alike(absolute, joints, here, solved(absolute, there), solved(joints, here))


@pytest.mark.long
def test_energies_are_the_same(both):
    absolute, joints, there, here = both
    energies = jax.jit(
        lambda system, state: (
            system.kinetic_energy(state.q, state.v),
            system.potential_energy(state.t, state.q),
        )
    )
    for a, b in zip(energies(absolute, there), energies(joints, here), strict=True):
        np.testing.assert_allclose(a, b, rtol=100 * EPS)
    mass = joints.mass_matrix(here.q)
    np.testing.assert_allclose(0.5 * here.v @ mass @ here.v, energies(joints, here)[0], rtol=100 * EPS)


@pytest.mark.long
@exhaustive_in_space
def test_rows_and_bias_are_those_of_autodiff(both):
    _, joints, _, here = both
    t, q, v = here.t, here.q, here.v
    own = jax.jit(
        lambda m: (m.constraint_jacobian(t, q, v), m.constraint_rate(t, q, v), m.constraint_bias(t, q, v))
    )(joints)
    by_autodiff = jax.jit(
        lambda m: (
            jaxdae.System.constraint_jacobian(m, t, q, v),
            jaxdae.System.constraint_rate(m, t, q, v),
            jaxdae.System.constraint_bias(m, t, q, v),
        )
    )(joints)
    for a, b in zip(own, by_autodiff, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * float(jnp.abs(b).max()))


def arm(lengths, coordinates):
    """Returns a double pendulum in space that swings about two axes, with its start."""
    first, second = lengths
    bodies = [
        js.Body("upper", 1.0, (0.1, 0.02, 0.1), (0.0, 0.0, -first / 2)),
        js.Body("lower", 0.5, (0.05, 0.05, 0.01), (0.0, 0.0, -first - second / 2)),
    ]
    joints = [
        js.Revolute("shoulder", "ground", "upper", axis=(0.0, 1.0, 0.0), at=(0.0, 0.0, 0.0)),
        js.Ball("elbow", "upper", "lower", at=jnp.stack([0.0, 0.0, -first])),
    ]
    return jm.spatial_mechanism(bodies, joints, coordinates=coordinates)


def end(lengths, coordinates, integrator, steps=50):
    """Returns where the lower body is after 0.05 s."""
    mechanism, _ = arm(lengths, coordinates)
    joints, start = arm(lengths, jm.Joints())
    state = jaxdae.State(jnp.zeros(()), start, jnp.asarray([2.0, 0.5, -1.0, 3.0]))
    if isinstance(coordinates, jm.Absolute):
        state = jm.to_absolute(joints, state)
    last = jaxdae.rollout(mechanism, integrator, state, dt=0.05 / steps, steps=steps, save_every=steps).state
    frame = mechanism.frames(last.q[-1])
    return jnp.stack([frame.x[1], frame.y[1], frame.z[1]])


@pytest.mark.exhaustive
def test_rollouts_are_the_same():
    lengths, method = jnp.asarray([0.7, 0.4]), jaxdae.RungeKutta.rk4(unroll=False)
    of_joints = jax.jit(lambda x: end(x, jm.Joints(), method))(lengths)
    of_bodies = jax.jit(lambda x: end(x, jm.Absolute(), jaxdae.Projected(method)))(lengths)
    # Steps of 1 ms leave an error of 1e-10 in both.
    np.testing.assert_allclose(of_joints, of_bodies, rtol=0, atol=2e-9)


@pytest.mark.long
def test_derivatives_of_rollouts():
    def of(lengths):
        return end(lengths, jm.Joints(), jaxdae.SemiImplicitEuler(), steps=20)

    @jax.jit
    def reverse(lengths, row):
        value, pull = jax.vjp(of, lengths)
        return value, pull(row)[0]

    lengths, step = jnp.asarray([0.7, 0.4]), 1e-5
    # Reverse mode transposes forward mode, so that an error of either shows.
    jacobian = jnp.stack([reverse(lengths, row)[1] for row in np.eye(3)])
    differences = [
        (reverse(lengths + step * e, np.zeros(3))[0] - reverse(lengths - step * e, np.zeros(3))[0])
        / (2.0 * step)
        for e in np.eye(2)
    ]
    # Differences of second order leave 1e-10, and rounding over the step 1e-11.
    np.testing.assert_allclose(jacobian, jnp.stack(differences, axis=1), rtol=0, atol=1e-8)


@pytest.mark.long
@exhaustive_in_space
def test_reactions_are_the_same(both):
    absolute, joints, there, here = both
    known = {}
    for system, state in ((absolute, there), (joints, here)):
        found = jax.jit(jm.reactions)(system, state, solved(system, state)[1])
        known[system is joints] = {name: found.of(name) for name in found.names}
    assert set(known[True]) == set(known[False]) == set(absolute.joint_names)
    size = max(float(jnp.abs(force).max()) for force, _ in known[False].values())
    for name, (force, torque) in known[False].items():
        np.testing.assert_allclose(known[True][name][0], force, rtol=0, atol=1e-12 * size)
        np.testing.assert_allclose(known[True][name][1], torque, rtol=0, atol=1e-12 * size)
    with pytest.raises(ValueError, match="no joint 'nobody'"):
        found.of("nobody")
    rows = len(joints.names.rows)
    for count in (rows - 1, rows + 1):
        with pytest.raises(
            ValueError, match=rf"reactions: lam must have shape \({rows},\), .* got \({count},\)"
        ):
            jm.reactions(joints, here, jnp.zeros(count))


@pytest.mark.long
def test_reactions_in_the_axes_of_the_bodies():
    """Of the body b of each joint, in both forms; where b is the ground they are those of the world."""
    tree, q = arm((0.7, 0.4), jm.Joints())
    here = jaxdae.State(
        jnp.zeros(()), tree.retract(q, jnp.asarray([0.3, 0.2, -0.4, 0.5])), jnp.asarray([1.0, 2.0, 3.0, 4.0])
    )
    absolute, _ = arm((0.7, 0.4), jm.Absolute())
    bodies = [jm.Body("left", 1.0, 0.1, (0.5, 0.0, 0.3)), jm.Body("right", 1.0, 0.2, (1.5, 0.0, -0.4))]
    hinges = [
        jm.Revolute("base", "left", "ground", at=(0.0, 0.0)),
        jm.Revolute("knee", "left", "right", at=(1.0, 0.0)),
    ]
    plane, p = jm.planar_mechanism(bodies, hinges)
    cases = [
        (tree, here, {"shoulder": 0, "elbow": 1}),
        (absolute, jm.to_absolute(tree, here), {"shoulder": 0, "elbow": 1}),
        (plane, jaxdae.State(jnp.zeros(()), p, jnp.zeros(6)), {"base": None, "knee": 1}),
    ]

    @jax.jit
    def of_both_axes(mechanism, state):
        lam = jaxdae.forward_dynamics(mechanism, state)[1]
        return jm.reactions(mechanism, state, lam), jm.reactions(mechanism, state, lam, body_frame=True)

    for mechanism, state, carried in cases:
        world, own = of_both_axes(mechanism, state)
        frames = mechanism.frames(state.q)
        for name, body in carried.items():
            (force, torque), (own_force, own_torque) = world.of(name), own.of(name)
            if body is not None:
                frame = jax.tree.map(lambda entry, k=body: entry[k], frames)
                force, torque = (
                    frame.components_of(force),
                    frame.components_of(torque) if torque.ndim else torque,
                )
                assert np.max(np.abs(own_force - world.of(name)[0])) > 0.1
            np.testing.assert_allclose(
                own_force, force, rtol=0, atol=1e-14 * float(jnp.abs(world.force).max())
            )
            np.testing.assert_allclose(
                own_torque, torque, rtol=0, atol=1e-14 * float(jnp.abs(world.force).max())
            )


@pytest.mark.exhaustive
def test_derivatives_of_conversions_and_reactions_in_several_directions_at_once():
    mechanism, q = arm((0.7, 0.4), jm.Joints())
    v, directions = jnp.cos(jnp.arange(4.0)), jnp.sin(jnp.arange(8.0)).reshape(2, 4)
    there = jax.jit(lambda at: jm.to_absolute(mechanism, at))(jaxdae.State(jnp.zeros(()), q, v))

    def found(x):
        at = jaxdae.State(there.t, mechanism.retract(q, x @ directions), v)
        reactions = jm.reactions(mechanism, at, jnp.zeros(0))
        # With velocities of bodies that stay as they are.
        back = jm.to_joints(mechanism, jaxdae.State(at.t, jm.to_absolute(mechanism, at).q, there.v))
        values = back.v, reactions.force, reactions.torque
        return values, values

    step, both = 1e-4, jax.jit(jax.jacfwd(found, has_aux=True))
    forward, _ = both(jnp.zeros(2))
    shifted = [[both(sign * step * e)[1] for e in np.eye(2)] for sign in (1.0, -1.0)]
    for k, one in enumerate(forward):
        differences = jnp.stack(
            [(ahead[k] - behind[k]) / (2.0 * step) for ahead, behind in zip(*shifted, strict=True)], axis=-1
        )
        # Differences of second order leave the square of the step times third derivatives.
        np.testing.assert_allclose(one, differences, rtol=0, atol=1e-6 * (1.0 + float(jnp.abs(one).max())))


@pytest.mark.exhaustive
def test_batches_are_the_worlds_one_by_one():
    joints, q = arm((0.7, 0.4), jm.Joints())
    rng = np.random.default_rng(3)
    v = jnp.asarray(rng.normal(size=(5, 4)))
    states = jaxdae.State(jnp.zeros((5,)), jnp.broadcast_to(q, (5, 5)), v)
    method = jaxdae.SemiImplicitEuler()
    many = jaxdae.batch_rollout(joints, method, states, dt=1e-3, steps=20, save_every=20)
    one = jaxdae.rollout(
        joints, method, jaxdae.State(jnp.zeros(()), q, v[3]), dt=1e-3, steps=20, save_every=20
    )
    np.testing.assert_allclose(many.state.q[3], one.state.q, rtol=1e-13, atol=1e-13)


@pytest.mark.long
def test_digits_do_not_depend_on_how_far_away_the_ground_joint_is():
    far = np.asarray([1e5, -2e5, 3e5])
    near, moved = (
        jm.spatial_mechanism(
            [js.Body("b", 1.0, (0.1, 0.2, 0.3), np.asarray([0.5, 0.0, 0.0]) + shift)],
            [js.Revolute("h", "ground", "b", axis=(0.0, 1.0, 0.0), at=shift, point_b=None)],
            coordinates=jm.Joints(),
        )
        for shift in (np.zeros(3), far)
    )
    np.testing.assert_allclose(near[0].mass_matrix(near[1]), moved[0].mass_matrix(moved[1]), rtol=1e-9)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (("nothing",), "'nothing' is not a joint"),
        (("rod",), "Joints.cut: leaves a loop that 'weld' closes"),
        (("nothing", "rod"), "'nothing' is not a joint.*; leaves a loop that 'weld' closes"),
    ],
)
def test_mistakes_in_the_cut(cut, message):
    with pytest.raises(ValueError, match=message):
        jm.mechanism(in_plane()[0], jm.Joints(cut))


def test_the_tree_is_the_same_whatever_is_cut_by_itself():
    description, _ = in_plane()
    first, _ = jm.mechanism(description, jm.Joints())
    again, _ = jm.mechanism(dataclasses.replace(description), jm.Joints())
    assert first.names == again.names
    assert set(first.joint_names) == {joint.name for joint in description.joints}


def test_conversion_needs_joint_coordinates():
    absolute, q = jm.mechanism(in_plane()[0])
    with pytest.raises(TypeError, match="must have joint coordinates"):
        jm.to_joints(absolute, jaxdae.State(jnp.zeros(()), q, jnp.zeros_like(q)))


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 4])
def test_welds_that_hold_all_bodies_leave_no_joint_coordinate(count):
    bodies = [jm.Body(f"b{k}", 1.0, 0.1, (float(k), 0.0, 0.0)) for k in range(count)]
    ends = [jm.GROUND, *(body.name for body in bodies), jm.GROUND]
    ring = [jm.Weld(f"w{k}", a, b, at=(0.0, 0.0)) for k, (a, b) in enumerate(itertools.pairwise(ends))]
    for joints in (ring, ring[:-1]):
        with pytest.raises(
            ValueError,
            match=r"Joints\(\): welds hold all bodies \(b0.*\) to the ground, .* or use Absolute\(\)",
        ):
            jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    mechanism, q = jm.planar_mechanism(bodies, ring)
    assert jaxdae.diagnose(mechanism, jaxdae.State(0.0, q, 0.0 * q)).mobility == 0
