"""What acts along coordinates of joints (springs, damping, friction, armature, motors) and relations between
them, in both coordinates.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import accelerate_alike
from all_cases import all_cases

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js

ZERO = jnp.zeros(())
EPS = float(jnp.finfo(float).eps)
ALL = {"damping": 0.2, "friction": 0.3, "friction_speed": 0.7, "stiffness": 1.3, "armature": 0.4}


def in_plane():
    """Returns a tree of joints with elements, one of them backward, a loop that a slider closes, a weld, and
    a relation.
    """
    rng = np.random.default_rng(3)

    def somewhere():
        return rng.normal(size=2)

    joints = [
        jm.Revolute("A", "a", "ground", at=somewhere(), **ALL),
        jm.Prismatic("B", "a", "b", somewhere(), at=somewhere(), rest=0.3, **ALL),
        jm.Revolute("C", "b", "c", at=somewhere()),
        jm.Revolute("D", "c", "d", at=somewhere(), friction=0.2),
        jm.Prismatic("loop", "d", "ground", somewhere(), at=somewhere(), **ALL),
        jm.Weld("E", "b", "e", at=somewhere()),
        jm.TendonRelation("own", ("A", "loop"), (1.0, 0.3), ("B",), (0.8,), (0.1, 0.7, 0.2, -0.1, 0.05)),
    ]
    feedback = {"ratio": 1.7, "gain": (0.9, 0.2, -0.1), "bias": (0.1, -0.4, -0.3), "most_force": 5.0}
    slack = {"slack_from": -0.4, "slack_to": 0.1}
    cable = jm.Tendon(
        "cable",
        ("A", "loop", "B"),
        (0.5, -1.2, 0.7),
        2.0,
        0.3,
        **slack,
        friction=0.1,
        friction_speed=0.7,
        input=1,
        **feedback,
    )
    motors = [
        jm.Motor("motor", "A", ratio=-5.0, rotor_inertia=0.02, torque=0.3, input=0),
        jm.Motor("push", "loop", 3.0, 0.1, input=1),
    ]
    bodies = [jm.Body(name, 1.0 + rng.random(), 0.3 + rng.random(), rng.normal(size=3)) for name in "abcde"]
    forces = [*motors, cable, jm.Drag("air", "d", somewhere(), linear=0.1, quadratic=0.3)]
    return jm.Description(bodies=bodies, joints=joints, forces=forces)


def in_space():
    """Returns a tree of joints with elements, one of them backward, a loop that a cross closes, and relations
    in and across the tree.
    """
    rng = np.random.default_rng(1)

    def somewhere():
        return rng.normal(size=3)

    def body(name):
        quaternion = rng.normal(size=4)
        return js.Body(
            name, 1.0 + rng.random(), (0.3, 0.4, 0.5), somewhere(), quaternion / np.linalg.norm(quaternion)
        )

    several = {"damping": (0.1, 0.2), "stiffness": (1.0, 2.0), "rest": (0.3, 0.4), "armature": (0.5, 0.6)}
    joints = [
        js.Revolute("A", "a", "ground", axis=somewhere(), at=somewhere(), **ALL),
        js.Cylindrical("B", "a", "b", axis=somewhere(), at=somewhere(), **several),
        js.PointOnLine("C", "b", "c", axis=somewhere(), at=somewhere(), **ALL),
        js.Universal("loop", "c", "a", axis=(1, 0, 0), second=(0, 1, 0), at=somewhere(), **ALL),
        js.Relation("own", "A", "B", (0.1, 0.7, 0.2, -0.1, 0.05)),
        js.Relation("across", "loop", "B", (0.1, -0.4, 0.3), along="second", other_along="angle"),
    ]
    motors = [
        js.Motor("motor", "B", ratio=-5.0, rotor_inertia=0.02, torque=0.3, input=0, along="angle"),
        js.Motor("turn", "loop", 3.0, 0.1, input=1),
    ]
    return jm.Description(space=jm.SPACE, bodies=[body(name) for name in "abc"], joints=joints, forces=motors)


U = jnp.array([0.4, -0.3])


@jax.jit
def answers(mechanism, state):
    """Returns accelerations and multipliers, reactions, energies and M."""
    a, lam = jaxdae.forward_dynamics(mechanism, state, U, solver=jaxdae.DenseKKT())
    found = jm.reactions(mechanism, state, lam, U)
    energies = mechanism.kinetic_energy(state.q, state.v), mechanism.potential_energy(state.t, state.q)
    return a, lam, (found.force, found.torque), energies, mechanism.mass_matrix(state.q)


@pytest.fixture(
    scope="module", params=[in_plane, pytest.param(in_space, marks=pytest.mark.long)], ids=["plane", "space"]
)
def both(request):
    """Returns a mechanism in both forms, with a state in both, and what they answer."""
    description = request.param()
    absolute, _ = jm.mechanism(description)
    joints, q = jm.mechanism(description, jm.Joints(cut=("loop",)))
    rng = np.random.default_rng(2)
    count = len(joints.names.velocities)
    q, v = joints.retract(q, jnp.asarray(0.3 * rng.normal(size=count))), rng.normal(size=count)
    here = jaxdae.State(jnp.asarray(0.1), q, jnp.asarray(v))
    there = jax.jit(jm.to_absolute)(joints, here)
    return absolute, joints, there, here, answers(absolute, there), answers(joints, here)


# A quick or a long test has each claim in the plane.
exhaustive_in_space = pytest.mark.parametrize(
    "both",
    [in_plane, pytest.param(in_space, marks=pytest.mark.exhaustive)],
    ids=["plane", "space"],
    indirect=True,
)


@pytest.mark.long
def test_both_forms_accelerate_alike(both):
    absolute, joints, _, here, theirs, ours = both
    accelerate_alike(absolute, joints, here, theirs[:2], ours[:2])


@pytest.mark.long
def test_both_forms_have_the_same_energies(both):
    *_, there, here, (_, _, _, energies, mass), (_, _, _, own, tree_mass) = both
    np.testing.assert_allclose(own, energies, rtol=100 * EPS)
    for state, matrix in ((there, mass), (here, tree_mass)):
        np.testing.assert_allclose(0.5 * state.v @ matrix @ state.v, energies[0], rtol=100 * EPS)


@pytest.mark.long
def test_both_forms_have_the_same_reactions(both):
    """What acts along the coordinates is no part of them."""
    absolute, joints, *_, theirs, ours = both
    theirs, ours = (
        jm.Reactions(system.joint_names, *found[2]) for system, found in ((absolute, theirs), (joints, ours))
    )
    assert (
        set(ours.names)
        == set(theirs.names)
        == {"A", "B", "C", "loop"} | ({"D", "E"} if absolute.space is jm.PLANE else set())
    )
    for name in ours.names:
        for x, y in zip(ours.of(name), theirs.of(name), strict=True):
            np.testing.assert_allclose(
                x, y, rtol=1e-12, atol=1e-12 * max(1.0, float(jnp.abs(jnp.concatenate(theirs.force)).max()))
            )


def derivatives(kind, mechanism, state):
    """Returns J, g' and gamma as a class of systems makes them."""
    at = state.t, state.q, state.v
    return (
        kind.constraint_jacobian(mechanism, *at),
        kind.constraint_rate(mechanism, *at),
        kind.constraint_bias(mechanism, *at),
    )


@pytest.mark.long
@exhaustive_in_space
def test_rows_of_relations_are_those_of_autodiff(both):
    for system, state in ((both[0], both[2]), (both[1], both[3])):
        own, by_autodiff = (
            jax.jit(derivatives, static_argnums=0)(kind, system, state)
            for kind in (jm.Mechanism, jaxdae.System)
        )
        for a, b in zip(own, by_autodiff, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11 * float(jnp.abs(b).max()))


def test_names_and_units_of_relations(both):
    absolute = both[0]
    units = dict(zip(absolute.names.rows, absolute.names.row_units, strict=True))
    # Where radians and meters are summed, the unit is that of the weights.
    expected = (
        {"own.relation": "rad", "across.relation": "rad"}
        if absolute.space is jm.SPACE
        else {"own.relation": ""}
    )
    assert {name: unit for name, unit in units.items() if name.endswith("relation")} == expected


@jaxdae.tree.pytree(kw_only=True)
class Blocks(jm.Mechanism):
    """A mechanism that hands its rows to solvers as blocks, however few there are."""

    blocks_from: ClassVar[int] = 0


@pytest.mark.long
@exhaustive_in_space
def test_relations_and_armature_where_rows_are_blocks(both):
    """Dense rows among blocks, and a dense M: the same accelerations."""
    absolute, _, there, _, (a, lam, *_), _ = both
    blocks = Blocks(**{field.name: getattr(absolute, field.name) for field in dataclasses.fields(absolute)})
    np.testing.assert_allclose(
        jax.jit(lambda m, s: m.jacobian_operator(s.t, s.q, s.v).as_dense())(blocks, there),
        absolute.constraint_jacobian(there.t, there.q, there.v),
        rtol=1e-13,
        atol=1e-13,
    )
    own, multipliers = jax.jit(lambda m, s: jaxdae.forward_dynamics(m, s, U))(blocks, there)
    np.testing.assert_allclose(own, a, rtol=1e-8, atol=1e-9 * float(jnp.abs(a).max()))
    np.testing.assert_allclose(multipliers, lam, rtol=1e-8, atol=1e-9 * float(jnp.abs(lam).max()))


# One joint, in closed form.

LENGTH, MASS, MOMENT = 0.5, 2.0, 0.3


def pendulum(coordinates, space, forces=(), gravity=0.0, **elements):
    """Returns a body of 2 kg on a hinge 0.5 m above its mass center, and its start, where it hangs straight
    down.
    """
    if space is jm.PLANE:
        bodies = [jm.Body("rod", MASS, MOMENT, (0.0, -LENGTH, 0.0))]
        joints = [jm.Revolute("hinge", "ground", "rod", (0.0, 0.0), **elements)]
    else:
        bodies = [js.Body("rod", MASS, (MOMENT, MOMENT, MOMENT), (0.0, -LENGTH, 0.0))]
        joints = [js.Revolute("hinge", "ground", "rod", axis=(0, 0, 1), at=(0, 0, 0), **elements)]
    down = (0.0, gravity) if space is jm.PLANE else (0.0, gravity, 0.0)
    description = jm.Description(space=space, bodies=bodies, joints=joints, forces=forces, gravity=down)
    return jm.mechanism(description, coordinates)


# `test_both_forms_accelerate_alike` compares the two forms.
FORMS = pytest.mark.parametrize(
    "coordinates",
    [pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive), jm.Joints()],
    ids=["absolute", "joints"],
)
TOTAL = MOMENT + MASS * LENGTH**2


def turning(mechanism, q, rate):
    """Returns the state in which the pendulum turns at a rate about its hinge."""
    if len(q) == 1:
        v = jnp.array([rate])
    else:
        v = (
            jnp.array([LENGTH * rate, 0.0, rate])
            if len(q) == 3
            else jnp.array([LENGTH * rate, 0.0, 0.0, 0.0, 0.0, rate])
        )
    return jaxdae.State(ZERO, q, v)


@pytest.mark.long
@pytest.mark.parametrize(
    ("space", "coordinates"), [(jm.PLANE, jm.Absolute()), (jm.SPACE, jm.Joints())], ids=["plane", "space"]
)
def test_a_hinge_with_everything(space, coordinates):
    kind = jm if space is jm.PLANE else js
    motor = kind.Motor("motor", "hinge", ratio=10.0, rotor_inertia=1e-3, torque=0.2, input=0, gain=0.5)
    elements = {
        "damping": 0.1,
        "friction": 0.3,
        "friction_speed": 0.2,
        "stiffness": 4.0,
        "rest": 0.25,
        "armature": 0.05,
    }
    mechanism, q = pendulum(coordinates, space, [motor], **elements)
    at = turning(mechanism, q, 0.7)
    a, _ = jax.jit(lambda m, s: jaxdae.forward_dynamics(m, s, jnp.array([0.6])))(mechanism, at)
    effort = 10.0 * (0.2 + 0.5 * 0.6) - 0.1 * 0.7 - 0.3 * np.tanh(0.7 / 0.2) + 4.0 * 0.25
    np.testing.assert_allclose(a[-1], effort / (TOTAL + 0.05 + 0.1), rtol=1e-14)
    np.testing.assert_allclose(
        mechanism.kinetic_energy(at.q, at.v), 0.5 * (TOTAL + 0.15) * 0.7**2, rtol=1e-14
    )
    # The potential of the constant torque counts from the start, where it is zero.
    np.testing.assert_allclose(mechanism.potential_energy(at.t, at.q), 0.5 * 4.0 * 0.25**2, rtol=1e-14)


@pytest.mark.long
@FORMS
def test_friction_is_smooth_where_it_changes_its_sign(coordinates):
    mechanism, q = pendulum(coordinates, jm.SPACE, friction=0.3, friction_speed=0.02)

    @jax.jit
    def torque(rate):
        return mechanism.force(ZERO, q, turning(mechanism, q, rate).v, None)[-1]

    np.testing.assert_allclose(torque(0.0), 0.0, rtol=0, atol=1e-16)
    np.testing.assert_allclose(jax.jit(jax.grad(torque))(0.0), -0.3 / 0.02, rtol=1e-14)
    np.testing.assert_allclose([torque(1.0), torque(-1.0)], [-0.3, 0.3], rtol=1e-14)


@pytest.mark.long
def test_springs_in_the_tree_know_full_turns_and_others_pull_to_the_nearest():
    angle = 2.0 * np.pi + 0.4
    for space, coordinates, stretch in (
        (jm.PLANE, jm.Absolute(), angle),
        (jm.SPACE, jm.Absolute(), 0.4),
        (jm.SPACE, jm.Joints(), angle),
    ):
        mechanism, q = pendulum(coordinates, space, stiffness=3.0)
        there = jaxdae.State(ZERO, jnp.array([angle]), jnp.zeros(1))
        tree, _ = pendulum(jm.Joints(), space, stiffness=3.0)
        if coordinates == jm.Absolute():
            there = jm.to_absolute(tree, there)
        q = there.q.at[2].set(angle) if space is jm.PLANE else there.q
        np.testing.assert_allclose(mechanism.potential_energy(ZERO, q), 1.5 * stretch**2, rtol=1e-12)


@FORMS
def test_elements_are_leaves_that_can_be_trained(coordinates):
    """The acceleration of a hinge by its numbers: derivatives of the closed form."""
    numbers = {"damping": 0.1, "stiffness": 4.0, "rest": 0.25, "armature": 0.05}

    @jax.jit
    @jax.grad
    def slopes(numbers):
        mechanism, q = pendulum(coordinates, jm.PLANE, **numbers)
        return jaxdae.forward_dynamics(mechanism, turning(mechanism, q, 0.7))[0][-1]

    inertia = TOTAL + 0.05
    effort = 4.0 * 0.25 - 0.1 * 0.7
    expected = {
        "damping": -0.7 / inertia,
        "stiffness": 0.25 / inertia,
        "rest": 4.0 / inertia,
        "armature": -effort / inertia**2,
    }
    for name, slope in slopes(numbers).items():
        np.testing.assert_allclose(slope, expected[name], rtol=1e-12, err_msg=name)


def test_groups_go_without_what_is_zero():
    mechanism, _ = pendulum(jm.Absolute(), jm.SPACE, damping=0.1)
    group = mechanism.joints["revolute"]
    assert [group.friction, group.friction_speed, group.stiffness, group.rest, group.armature] == [None] * 5
    tree, _ = pendulum(jm.Joints(), jm.SPACE, damping=0.1)
    assert (tree.coordinates.stiffness, tree.coordinates.friction) == (None, None)


@pytest.mark.long
def test_drag_in_the_plane():
    body = jm.Body("puck", 2.0, 0.3, (0.0, 0.0, 0.4))
    mechanism, q = jm.planar_mechanism(
        [body], [], [jm.Drag("ice", "puck", point=(0.1, 0.0), linear=0.2, quadratic=0.5)], gravity=(0, 0)
    )
    v = np.array([0.3, -0.4, 1.5])
    arm = 0.1 * np.array([np.cos(0.4), np.sin(0.4)])
    velocity = v[:2] + 1.5 * np.array([-arm[1], arm[0]])
    drag = -(0.2 + 0.5 * np.linalg.norm(velocity)) * velocity
    force = mechanism.force(ZERO, q, jnp.asarray(v), None)
    np.testing.assert_allclose(force, [*drag, arm[0] * drag[1] - arm[1] * drag[0]], rtol=1e-13)
    assert np.all(np.isfinite(jax.jacfwd(lambda v: mechanism.force(ZERO, q, v, None))(jnp.zeros(3))))


# Gears.

SUN, PLANET, RING = 20, 14, 48


def planetary(coordinates, held):
    """Returns a planetary gear set: sun, planet and ring turn on the carrier, which turns on the ground; one
    of them is held.
    """
    centers = {"carrier": 0.0, "sun": 0.0, "planet": 1.0, "ring": 0.0}
    bodies = [jm.Body(name, 1.0, 0.1, (x, 0.0, 0.0)) for name, x in centers.items()]
    joints = [
        jm.Revolute("carrier shaft", "ground", "carrier", (0, 0)),
        jm.Revolute("sun bearing", "carrier", "sun", (0, 0)),
        jm.Revolute("planet bearing", "carrier", "planet", (1, 0)),
        jm.Revolute("ring bearing", "carrier", "ring", (0, 0)),
        jm.Relation("sun and planet", "planet bearing", "sun bearing", (0.0, -SUN / PLANET)),
        jm.Relation("planet and ring", "ring bearing", "planet bearing", (0.0, PLANET / RING)),
        jm.Gear("brake", "ground", held, 0.0),
    ]
    drive = jm.Torque("drive", "ground", "carrier", 3.0)
    return jm.planar_mechanism(bodies, joints, [drive], gravity=(0.0, 0.0), coordinates=coordinates)


@pytest.mark.long
@pytest.mark.parametrize(
    ("coordinates", "held"),
    [
        (jm.Joints(), "ring"),
        pytest.param(jm.Absolute(), "ring", marks=pytest.mark.exhaustive),
        pytest.param(jm.Joints(), "sun", marks=pytest.mark.exhaustive),
    ],
    ids=["joints-ring", "absolute-ring", "joints-sun"],
)
def test_planetary_gears_obey_willis(coordinates, held):
    """(omega_sun - omega_carrier) / (omega_ring - omega_carrier) = -z_ring / z_sun, after many turns as well."""
    mechanism, q = planetary(coordinates, held)
    start, _ = jaxdae.initialize(mechanism, q)
    method = jaxdae.Projected(jaxdae.RungeKutta.rk4())
    end = jax.jit(lambda m, s: jaxdae.rollout(m, method, s, dt=0.05, steps=100, save_every=100))(
        mechanism, start
    )
    jaxdae.raise_if_failed(end)
    last = jax.tree.map(lambda x: x[-1], end.state)
    spin = dict(zip(mechanism.names.bodies, np.asarray(mechanism.twists(last.q, last.v).angle), strict=True))
    turned = dict(zip(mechanism.names.bodies, np.asarray(mechanism.frames(last.q).angle), strict=True))
    for rates in (spin, turned):
        assert abs(rates["carrier"]) > 5.0
        np.testing.assert_allclose(
            (rates["sun"] - rates["carrier"]) * SUN, -(rates["ring"] - rates["carrier"]) * RING, rtol=1e-9
        )
        np.testing.assert_allclose(rates[held], 0.0, rtol=0, atol=1e-9)


@pytest.mark.long
def test_a_relation_in_space_knows_full_turns_in_joint_coordinates():
    """Two wheels on the ground with a ratio that is no whole number, after three turns; and a screw that is
    made of a relation.
    """
    bodies = [js.Body(name, 1.0, (0.1, 0.1, 0.1), (x, 0.0, 0.0)) for name, x in (("a", 0.0), ("b", 1.0))]
    joints = [
        js.Revolute("A", "ground", "a", (0, 0, 1), (0, 0, 0)),
        js.Cylindrical("B", "ground", "b", (0, 0, 1), (1, 0, 0)),
        js.Relation("gears", "B", "A", (0.0, -0.3), along="angle"),
        js.Relation("thread", "B", "B", (0.0, 0.05), along="slide", other_along="angle"),
    ]
    mechanism, _ = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    turned = jnp.array([6.0 * jnp.pi, -0.3 * 0.05 * 6.0 * jnp.pi, -0.3 * 6.0 * jnp.pi])
    np.testing.assert_allclose(mechanism.constraint(ZERO, turned), 0.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        mechanism.constraint(ZERO, turned + 0.1), [0.1 - 0.05 * 0.1, 0.1 + 0.3 * 0.1], rtol=0, atol=1e-14
    )
    # Angles that are measured between frames hold within half a turn of what is followed.
    absolute, _ = jm.spatial_mechanism(bodies, joints)
    for angle in (3.0, -3.0):
        there = jm.to_absolute(mechanism, jaxdae.State(ZERO, turned * angle / (6.0 * np.pi), jnp.zeros(3)))
        rows = absolute.constraint(ZERO, there.q)[-2:]
        np.testing.assert_allclose(rows, 0.0, rtol=0, atol=1e-14)


@pytest.mark.long
@FORMS
def test_the_multiplier_of_a_relation_is_a_torque(coordinates):
    """A mimic joint as in robot files, with multiplier and offset: what holds the follower is the torque on
    it.
    """
    bodies = [jm.Body("a", 1.0, 0.5), jm.Body("b", 1.0, 0.8, (1.0, 0.0, 0.4))]
    joints = [
        jm.Revolute("A", "ground", "a", point_a=(0, 0), point_b=(0, 0)),
        jm.Revolute("B", "ground", "b", point_a=(1, 0), point_b=(0, 0)),
        jm.Relation("mimic", "B", "A", (0.4, -2.0), 0.0, 0.0),
    ]
    mechanism, q = jm.planar_mechanism(
        bodies, joints, [jm.JointForce("motor", "A", 3.0)], coordinates=coordinates
    )
    at = jaxdae.State(ZERO, q, jnp.zeros_like(q))
    np.testing.assert_allclose(mechanism.constraint(ZERO, q), 0.0, rtol=0, atol=1e-16)
    a, lam = jaxdae.forward_dynamics(mechanism, at)
    first = 3.0 / (0.5 + 4.0 * 0.8)
    np.testing.assert_allclose(
        lam[mechanism.names.rows.index("mimic.relation")], -2.0 * first * 0.8, rtol=1e-13
    )
    np.testing.assert_allclose(a[-1], -2.0 * first, rtol=1e-13)


@pytest.mark.long
@FORMS
def test_a_tendon_at_rest_is_as_stiff_as_elsewhere(coordinates):
    """By default tendons are without force at the start pose: there mechanisms are linearized, and fits
    begin.
    """
    bodies = [jm.Body(name, 1.0, 1.0) for name in "ab"]
    joints = [jm.Revolute(name.upper(), "ground", name, at=(0.0, 0.0)) for name in "ab"]
    weights = np.array([0.2, 0.1])
    cable = jm.Tendon("cable", ("A", "B"), tuple(weights), stiffness=1e3)
    mechanism, q = jm.planar_mechanism(bodies, joints, [cable], gravity=(0.0, 0.0), coordinates=coordinates)
    angles = (
        np.array([mechanism.names.velocities.index(name) for name in ("a.omega", "b.omega")])
        if q.size == 6
        else np.arange(2)
    )

    def pulled(angle):
        return mechanism.force(ZERO, q.at[angles].add(angle), jnp.zeros_like(q), None)[angles]

    def energy(angle):
        return mechanism.potential_energy(ZERO, q.at[angles].add(angle))

    stiffness = 1e3 * np.outer(weights, weights)
    np.testing.assert_allclose(jax.jit(jax.jacrev(pulled))(jnp.zeros(2)), -stiffness, rtol=1e-13)
    np.testing.assert_allclose(jax.jit(jax.hessian(energy))(jnp.zeros(2)), stiffness, rtol=1e-13)


# Mistakes.

HINGES = [jm.Revolute("A", "ground", "a", (0, 0)), jm.Revolute("B", "a", "b", (1, 0))]
WRONG = {
    "joint 'C': other is 'D', which is not a revolute or prismatic joint (available: A, B)": jm.Relation(
        "C", "A", "D"
    ),
    "joint 'C': along is 'slide', which is not a coordinate of 'A' (available: angle)": jm.Relation(
        "C", "A", "B", along="slide"
    ),
    "joint 'C': other_along is 'slide', which is not a coordinate of 'B' (available: angle)": jm.Relation(
        "C", "A", "B", other_along="slide"
    ),
    "joint 'C': relates the coordinate of 'A' to itself; name another joint, or another of its coordinates": jm.Relation(
        "C", "A", "A"
    ),
    "joint 'C': coefficients must be a list of finite numbers, got ()": jm.Relation("C", "A", "B", ()),
    "joint 'C': joints is 'D', which is not a revolute or prismatic joint (available: A, B)": jm.TendonRelation(
        "C", ("A", "D"), (1.0, 1.0)
    ),
    "joint 'C': joints must be names of joints, such as (\"hip\", \"knee\"), got 'A'": jm.TendonRelation(
        "C", "A"
    ),
    "joint 'C': weights must be one number per joint (2 joints), got (1.0,)": jm.TendonRelation(
        "C", ("A", "B")
    ),
    "joint 'C': reference must be a finite number, got 'zero'": jm.Relation("C", "A", "B", reference="zero"),
    "joint 'C': stiffness must be a finite number, got (1.0, 2.0)": jm.Revolute(
        "C", "a", "b", (0, 0), stiffness=(1.0, 2.0)
    ),
    "force 'C': joint is 'D', which is not a revolute or prismatic joint (available: A, B)": jm.Motor(
        "C", "D"
    ),
}


@all_cases("message", WRONG)
def test_mistakes(message):
    bodies = [jm.Body("a", 1.0, 1.0), jm.Body("b", 1.0, 1.0)]
    wrong = WRONG[message]
    joints, forces = ([*HINGES, wrong], []) if message.startswith("joint") else (HINGES, [wrong])
    with pytest.raises(ValueError, match="planar_mechanism") as caught:
        jm.planar_mechanism(bodies, joints, forces)
    assert message in str(caught.value)


def test_several_numbers_are_for_several_coordinates():
    bodies = [js.Body("a", 1.0, (1.0, 1.0, 1.0))]
    shaft = js.Cylindrical("A", "ground", "a", (0, 0, 1), (0, 0, 0), damping=(1.0, 2.0, 3.0))
    with pytest.raises(
        ValueError, match=r"joint 'A': damping must be a finite number, or 2 of them, got \(1.0, 2.0, 3.0\)"
    ):
        jm.spatial_mechanism(bodies, [shaft])
    mechanism, _ = jm.spatial_mechanism(
        bodies, [dataclasses.replace(shaft, damping=0.5, armature=(0.1, 0.2))]
    )
    group = mechanism.joints["cylindrical"]
    np.testing.assert_array_equal(group.damping, [[0.5, 0.5]])
    np.testing.assert_array_equal(group.armature, [[0.1, 0.2]])


@pytest.mark.parametrize("space", ["plane", "space"])
def test_what_is_zero_costs_nothing_where_a_mechanism_is_built_inside_of_a_program(space):
    """Commands build their worlds inside of a compiled function: numbers that are known to be zero are still
    known there.
    """

    def built(mass):
        if space == "plane":
            bodies, joints = [jm.Body("arm", mass, 1.0)], [jm.Revolute("A", "ground", "arm", at=(0.0, 0.0))]
            return jm.planar_mechanism(bodies, joints, [jm.Motor("motor", "A", torque=1.0)])
        bodies, joints = (
            [js.Body("arm", mass, (1.0, 1.0, 1.0))],
            [js.Cylindrical("A", "ground", "arm", axis=(0, 0, 1), at=(0, 0, 0))],
        )
        return jm.spatial_mechanism(bodies, joints, [js.Motor("motor", "A", torque=1.0)])

    inside, outside = (jax.tree.structure(make(built, 1.0)) for make in (jax.eval_shape, lambda f, x: f(x)))
    assert inside == outside
    mechanism, q = jax.jit(built)(1.0)
    (group,) = mechanism.joints.values()
    assert (group.acts, group.reflects, group.springs) == (False, False, False)
    assert isinstance(mechanism.mass_operator(q), jaxdae.operators.DiagonalMatrix)


@pytest.mark.long
def test_what_acts_in_balls_and_free_joints():
    """Each velocity has its own, in joint coordinates on joints of the tree; elsewhere it is refused."""
    bodies = [js.Body(name, 1.0, (0.3, 0.4, 0.5)) for name in "ab"]
    at = {"armature": 0.4, "friction": 0.3, "friction_speed": 0.7}

    def made(coordinates=jm.Joints(), **numbers):
        joints = [
            js.Free("free", "ground", "a", **numbers),
            js.Ball("ball", "a", "b", at=(0, 0, 1), **numbers),
        ]
        return jm.spatial_mechanism(bodies, joints, coordinates=coordinates)

    (mechanism, q), (plain, _) = made(**at), made()
    v = jnp.linspace(-1.0, 1.0, 9)
    more = mechanism.force(ZERO, q, v, None) - plain.force(ZERO, q, v, None)
    np.testing.assert_allclose(more, -0.3 * jnp.tanh(v / 0.7), rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        mechanism.mass_matrix(q) - plain.mass_matrix(q), 0.4 * np.eye(9), rtol=0, atol=1e-14
    )
    np.testing.assert_allclose(
        mechanism.kinetic_energy(q, v) - plain.kinetic_energy(q, v), 0.2 * v @ v, rtol=1e-14
    )
    for coordinates in (jm.Absolute(), jm.Joints(cut=("ball",))):
        with pytest.raises(ValueError, match=r"joint 'ball': armature and friction act only on tree joints"):
            made(coordinates, **at)
    # A free joint is no row that could miss what acts on it: in absolute coordinates it would be lost without
    # a word.
    with pytest.raises(
        ValueError,
        match=r"joint 'free': armature acts only on tree joints in joint coordinates; use Joints\(\)",
    ):
        jm.spatial_mechanism(bodies[:1], [js.Free("free", "ground", "a", armature=0.4)])


@pytest.mark.long
def test_relations_of_angles_that_forget_turns_end():
    """Behind half a turn the row would ask for another angle; not where a full turn changes nothing, nor
    where turns are counted.
    """
    bodies = [js.Body(name, 1.0, (0.3, 0.4, 0.5)) for name in "ab"]
    hinges = [js.Revolute(name.upper(), "ground", name, axis=(0, 0, 1), at=(0, 0, 0)) for name in "ab"]

    def condition(row, coordinates, angle):
        mechanism, q = jm.spatial_mechanism(bodies, [*hinges, row], coordinates=coordinates)
        velocities = mechanism.names.velocities
        place = velocities.index("B.angle_rate" if coordinates == jm.Joints() else "b.omega_z")
        return mechanism.condition(
            ZERO, mechanism.retract(q, jnp.zeros(len(velocities)).at[place].set(angle))
        )

    half, whole = (
        js.Relation("row", "A", "B", coefficients, 0.0, 0.0) for coefficients in ((0.0, 0.5), (0.1, -2.0))
    )
    tendons = js.TendonRelation("row", ("A",), (1.0,), ("B",), (0.5,))
    end = jaxdae.Status.OUT_OF_RANGE
    assert [condition(row, jm.Absolute(), 3.0) for row in (half, whole, tendons)] == [
        end,
        jaxdae.Status.OK,
        end,
    ]
    assert [condition(row, jm.Absolute(), -2.9) for row in (half, whole, tendons)] == [jaxdae.Status.OK] * 3
    assert condition(half, jm.Joints(), 3.0) is None


def _hinge(element, coordinates, **numbers):
    """A drum on a hinge in space, with one element along the angle or springs of the hinge."""
    drum = js.Body("drum", 1.0, (0.1, 0.1, 0.1))
    hinge = js.Revolute("A", "ground", "drum", axis=(0, 0, 1), at=(0, 0, 0), **numbers)
    given = [] if element is None else [element]
    return jm.spatial_mechanism([drum], [hinge], given, coordinates=coordinates, gravity=(0.0, 0.0, 0.0))


# Elements of 1 N m/rad on the hinge, and the angle (rad) at which each has no torque. Those that read an
# input get u = 1.
JUMPING = {
    "tendon with a spring": (js.Tendon("e", ("A",), (1.0,), stiffness=1.0), {}, 0.0),
    "tendon with two weights": (js.Tendon("e", ("A", "A"), (1.5, -0.5), stiffness=1.0), {}, 0.0),
    "tendon with a bias": (js.Tendon("e", ("A",), (1.0,), bias=(0.5, -1.0, 0.0)), {}, 0.5),
    "tendon with a gain": (js.Tendon("e", ("A",), (1.0,), input=0, gain=(0.5, -1.0, 0.0)), {}, 0.5),
    "servo": (js.Actuator("e", "A", input=0, bias=(0.0, -1.0, 0.0)), {}, 1.0),
    "servo with a ratio": (js.Actuator("e", "A", ratio=-2.0, bias=(0.0, -0.25, 0.0)), {}, 0.0),
    "gain on the length": (js.Actuator("e", "A", input=0, gain=(0.5, -1.0, 0.0)), {}, 0.5),
    "spring of a JointForce": (js.JointForce("e", "A", stiffness=1.0, rest=-0.5), {}, -0.5),
    "stiffness of the joint": (None, {"stiffness": 1.0, "rest": -0.5}, -0.5),
}
CONSTANT = {
    "tendon with a damper": (js.Tendon("e", ("A",), (1.0,), damping=0.01, friction=0.01), {}),
    "tendon with a motor": (
        js.Tendon("e", ("A",), (1.0,), input=0, gain=(0.5, 0.0, 0.0), bias=(0.1, 0.0, -0.01)),
        {},
    ),
    "tendon without weight": (js.Tendon("e", ("A",), (0.0,), stiffness=1.0), {}),
    "motor": (js.Actuator("e", "A", input=0, gain=(0.5, 0.0, 0.0)), {}),
    "velocity servo": (js.Actuator("e", "A", input=0, gain=(0.1, 0.0, 0.0), bias=(0.0, 0.0, -0.1)), {}),
    "clipped to a constant": (
        js.Actuator("e", "A", bias=(0.0, -1.0, 0.0), least_force=0.1, most_force=0.1),
        {},
    ),
    "torque": (js.JointForce("e", "A", 0.5), {}),
    "damping": (None, {"damping": 0.01, "friction": 0.01}),
}


def _angles(mechanism, q, u, steps=60):
    """Returns the angles of a hinge that starts with 14 rad/s, and the statuses."""
    joints = q.shape == (1,)
    v = jnp.zeros(1 if joints else 6).at[-1].set(14.0)
    controls = None if mechanism.n_inputs == 0 else jnp.full((steps, 1), u)
    found = jaxdae.rollout(
        mechanism, jaxdae.RungeKutta(), jaxdae.State(ZERO, q, v), dt=0.01, steps=steps, controls=controls
    )
    q = found.state.q
    return np.asarray(q[:, 0] if joints else 2.0 * jnp.arctan2(q[:, 6], q[:, 3])), np.asarray(
        found.info.status
    )


def _jump(name):
    """Returns the angle of the hinge (rad) at which the effort jumps in absolute coordinates."""
    element, numbers, center = JUMPING[name]
    return np.pi + (center if numbers or isinstance(element, js.JointForce) else 0.0)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["tendon with a bias", pytest.param("stiffness of the joint", marks=pytest.mark.exhaustive)]
)
def test_rollouts_end_before_efforts_jump(name):
    """The drum swings about the angle without torque by 14 / sqrt(10) = 4.4 rad: cos and sin of sqrt(k / I)
    t.
    """
    element, numbers, center = JUMPING[name]
    times, rate = 0.01 * np.arange(61), np.sqrt(10.0)
    expected = center - center * np.cos(rate * times) + 14.0 / rate * np.sin(rate * times)
    angles, status = _angles(*_hinge(element, jm.Joints(), **numbers), 1.0)
    np.testing.assert_array_equal(status, jaxdae.Status.OK)
    np.testing.assert_allclose(angles, expected[-angles.size :], rtol=0, atol=1e-6)
    angles, status = _angles(*_hinge(element, jm.Absolute(), **numbers), 1.0)
    good = status == jaxdae.Status.OK
    assert set(status[~good]) == {jaxdae.Status.OUT_OF_RANGE}
    np.testing.assert_allclose(angles[good], expected[-angles.size :][good], rtol=0, atol=1e-6)
    assert _jump(name) - 0.2 - 0.14 < angles[-1] < _jump(name) - 0.2


@pytest.mark.long
def test_efforts_that_jump_are_out_of_range():
    """In absolute coordinates on both sides of the jump, at starts too; in joint coordinates efforts count
    turns.
    """
    for name, (element, numbers, center) in JUMPING.items():
        mechanism, _ = _hinge(element, jm.Joints(), **numbers)
        assert mechanism.condition(ZERO, jnp.array([3.1])) is None, name
        u = jnp.ones(1) if mechanism.n_inputs else None
        for angle in (0.5, 4.0, -7.0):
            force = mechanism.force(ZERO, jnp.array([angle]), jnp.zeros(1), u)
            np.testing.assert_allclose(force, center - angle, rtol=0, atol=1e-14, err_msg=name)
        mechanism, q = _hinge(element, jm.Absolute(), **numbers)
        for off, outcome in ((-0.25, "OK"), (-0.15, "OUT_OF_RANGE"), (0.15, "OUT_OF_RANGE"), (0.25, "OK")):
            turned = mechanism.retract(q, jnp.zeros(6).at[5].set(_jump(name) + off))
            assert mechanism.condition(ZERO, turned) == jaxdae.Status[outcome], (name, off)


@pytest.mark.long
def test_steps_do_not_skip_jumps():
    """A step of 2 rad over the zone around the jump, in both directions, and steps of 2 rad elsewhere."""
    for name, (element, numbers, _) in JUMPING.items():
        mechanism, q = _hinge(element, jm.Absolute(), **numbers)
        at = jnp.stack(
            [
                mechanism.retract(q, jnp.zeros(6).at[5].set(_jump(name) + off))
                for off in (-3.0, -1.0, 1.0, 3.0)
            ]
        )
        jumps = jax.vmap(
            lambda a, b, m=mechanism: m.jumps(
                jaxdae.State(ZERO, a, jnp.zeros(6)), jaxdae.State(ZERO, b, jnp.zeros(6))
            )
        )
        np.testing.assert_array_equal(
            jumps(at[jnp.array([0, 1, 2, 2, 3])], at[jnp.array([1, 2, 1, 3, 2])]),
            [0, 1, 1, 0, 0],
            err_msg=name,
        )
        mechanism, q = _hinge(element, jm.Joints(), **numbers)
        state = jaxdae.State(ZERO, q, jnp.zeros(1))
        assert mechanism.jumps(state, state) is None


@pytest.mark.long
def test_a_rollout_of_long_steps_ends_at_the_jump():
    """2 rad a step from 0: the status of the second step, from 2 to 4 rad, is OUT_OF_RANGE; in joint
    coordinates turns count.
    """
    spring = js.JointForce("e", "A", stiffness=1e-3)
    for coordinates, good in ((jm.Absolute(), 1), (jm.Joints(), 3)):
        mechanism, q = _hinge(spring, coordinates)
        v = jnp.zeros(len(mechanism.names.velocities)).at[-1].set(200.0)
        found = jaxdae.rollout(
            mechanism, jaxdae.SemiImplicitEuler(), jaxdae.State(ZERO, q, v), dt=0.01, steps=3
        )
        expected = [jaxdae.Status.OK] * good + [jaxdae.Status.OUT_OF_RANGE] * (3 - good)
        np.testing.assert_array_equal(found.info.status, expected)


@pytest.mark.long
def test_efforts_that_do_not_depend_on_the_angle_have_no_range():
    for name, (element, numbers) in CONSTANT.items():
        mechanism, q = _hinge(element, jm.Absolute(), **numbers)
        for angle in (3.1, -3.1):
            found = mechanism.condition(ZERO, mechanism.retract(q, jnp.zeros(6).at[5].set(angle)))
            assert found is None or found == jaxdae.Status.OK, name


@pytest.mark.long
def test_a_slack_tendon_that_may_tighten_after_full_turns_ends_at_half_a_turn():
    """At 5 rad the tendon pulls with k (5 - 4); between frames the angle is 5 - 2 pi, where it is slack."""
    tendon = js.Tendon("e", ("A",), (1.0,), stiffness=2.0, slack_from=-4.0, slack_to=4.0)
    mechanism, _ = _hinge(tendon, jm.Joints())
    force = mechanism.force(ZERO, jnp.array([5.0]), jnp.zeros(1), None)
    np.testing.assert_allclose(force, -2.0, rtol=0, atol=1e-14)
    mechanism, q = _hinge(tendon, jm.Absolute())
    for angle, outcome in ((2.9, "OK"), (3.1, "OUT_OF_RANGE")):
        turned = mechanism.retract(q, jnp.zeros(6).at[5].set(angle))
        assert mechanism.condition(ZERO, turned) == jaxdae.Status[outcome]


@pytest.mark.long
def test_only_angles_between_frames_are_out_of_range():
    """A cut hinge forgets turns, a screw counts them by its slide, and springs do not act in a mechanism of
    first order.
    """
    bodies = [js.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in "ab"]
    tree = js.Revolute("A", "ground", "a", axis=(0, 0, 1), at=(0, 0, 0))
    loop = js.Revolute("B", "a", "b", axis=(0, 0, 1), at=(0, 0, 0))
    screw = js.Screw("B", "a", "b", axis=(0, 0, 1), at=(0, 0, 0), lead=0.1)
    servos = [js.JointForce(f"spring_{name}", name, stiffness=1.0) for name in "AB"]
    joints = [tree, loop, js.Free("free", "ground", "b")]
    mechanism, _ = jm.spatial_mechanism(bodies, joints, servos, coordinates=jm.Joints(cut=("B",)))

    def condition(a, b):
        turn = [np.cos(0.5 * b), 0.0, 0.0, np.sin(0.5 * b)]
        return mechanism.condition(ZERO, jnp.array([a, 0.0, 0.0, 0.0, *turn]))

    assert mechanism.coordinate_names[0] == "A.angle"
    assert condition(3.1, 3.1) == jaxdae.Status.OK
    assert condition(0.0, 3.1) == jaxdae.Status.OUT_OF_RANGE
    assert condition(6.3, 6.3 + 3.1) == jaxdae.Status.OUT_OF_RANGE
    mechanism, _ = jm.spatial_mechanism(bodies, [tree, screw], servos[1:])
    assert mechanism.condition(ZERO, jnp.zeros(14)) is None
    sprung = dataclasses.replace(tree, stiffness=1.0)
    driven = jm.kinematic_mechanism(
        jm.Description(bodies=bodies[:1], joints=[sprung], drives=[jm.JointRate("w", "A")], space=jm.SPACE)
    )
    assert driven[0].condition(ZERO, driven[1]) is None
