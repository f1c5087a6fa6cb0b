"""What is said about descriptions: doubts about bodies, trees that cannot be, loops that stay open,
coordinates that are none.
"""

import dataclasses
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases
from small_systems import without_typechecker

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.dynamics.loop_closure_error import Opening, openings
from jaxdae.mechanisms import spatial as js


def with_body(**numbers):
    """Builds a mechanism of one body that a ball joint holds."""
    numbers = {"mass": 1.0, "inertia": (1.0, 1.0, 1.0), **numbers}
    return jm.spatial_mechanism([js.Body("b", **numbers)], [js.Ball("j", "ground", "b", at=(1, 0, 0))])


DOUBTS = {
    "body 'b': the principal moments of inertia [1. 1. 3.] are not physical: the largest exceeds": {
        "inertia": (1.0, 3.0, 1.0)
    },
    "the principal moments of inertia [0.5 1.5 3. ] are not physical": {
        "inertia": [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]]
    },
    "body 'b': quaternion had length 3 and was normalized": {"quaternion": (0.0, 3.0, 0.0, 0.0)},
}


@pytest.mark.parametrize("message", DOUBTS)
def test_doubts_about_bodies_are_warnings(message):
    with pytest.warns(jm.DescriptionWarning) as caught:
        mechanism, q = with_body(**DOUBTS[message])
    assert len(caught) == 1
    assert message in str(caught[0].message)
    assert str(caught[0].message).startswith("spatial_mechanism: ")
    np.testing.assert_allclose(jnp.linalg.norm(q[3:]), 1.0, rtol=1e-15)
    assert np.all(np.isfinite(mechanism.mass_matrix(q)))


def test_all_doubts_come_in_one_warning():
    with pytest.warns(
        jm.DescriptionWarning,
        match="the principal moments of inertia .* are not physical.*; body 'b': quaternion had length 2",
    ):
        with_body(inertia=(1.0, 1.0, 2.5), quaternion=(2.0, 0.0, 0.0, 0.0))


def test_thin_plates_needles_and_traced_numbers_raise_no_doubts():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_body(inertia=(1.0, 2.0, 3.0))
        with_body(inertia=(1.0, 2.0, 3.0001), quaternion=(0.7071, 0.7071, 0.0, 0.0))
        with_body(inertia=(1.0, 1.0, 1e-12))
        jax.jit(lambda inertia: with_body(inertia=inertia)[0].inertia)(jnp.array([1.0, 1.0, 5.0]))


# Trees that cannot be.


def four_bar():
    """Returns the bodies and joints of a planar four-bar with a rod as its coupler."""
    bodies = [jm.Body("left", 1.0, 0.1, (0.0, 0.5, 0.0)), jm.Body("right", 1.0, 0.1, (2.0, 0.5, 0.0))]
    joints = [
        jm.Revolute("A", "ground", "left", (0, 0)),
        jm.Revolute("D", "ground", "right", (2, 0)),
        jm.Rod("coupler", "left", "right", (0, 1), (2, 1)),
    ]
    return bodies, joints


def test_a_cut_that_would_need_a_rod_to_carry_a_body():
    bodies, joints = four_bar()
    with pytest.raises(ValueError, match=r"Joints\.cut") as caught:
        jm.planar_mechanism(bodies, joints, coordinates=jm.Joints(cut=("D",)))
    told = (
        "removes body 'right' from the tree, and 'coupler' (rod) cannot be a tree joint; remove 'D' from cut"
    )
    assert str(caught.value) == f"planar_mechanism: Joints.cut: {told}"


def test_a_cut_that_frees_a_body_which_nothing_else_holds_is_allowed():
    bodies, joints = four_bar()
    mechanism, q = jm.planar_mechanism(bodies, joints[:2], coordinates=jm.Joints(cut=("D",)))
    assert mechanism.names.coordinates == ("A.angle", "right.x", "right.y", "right.theta")
    assert mechanism.names.rows == ("D.x", "D.y")
    np.testing.assert_allclose(mechanism.constraint(jnp.zeros(()), q), 0.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("coordinates", ["joints", jm.Joints, None])
def test_coordinates_that_are_none(coordinates):
    with pytest.raises(
        TypeError, match=r"planar_mechanism: coordinates must be Absolute\(\) or Joints\(\), got"
    ):
        jm.planar_mechanism(*four_bar(), coordinates=coordinates)


def test_a_cut_is_a_tuple_of_names():
    with pytest.raises(
        TypeError, match=r"Joints\.cut must be names of joints, such as \(\"crank_pin\",\), got 'coupler'"
    ):
        jm.planar_mechanism(*four_bar(), coordinates=jm.Joints(cut="coupler"))


# Loops that stay open.


def test_openings_are_sums_by_joint_and_unit():
    names = ("A.x", "A.y", "A.angle", "B.length", "C.x", "row 5")
    found = openings(
        names, ("m", "m", "rad", "m", "m", ""), [0.003, -0.004, np.pi / 6, -0.02, 1e-12, 7.0], 1e-9
    )
    assert [opening.joint for opening in found] == ["A", "B"]
    np.testing.assert_allclose(
        [found[0].distance, found[0].angle, found[1].distance, found[1].angle], [0.005, np.pi / 6, 0.02, 0.0]
    )
    assert [str(opening) for opening in found] == ["A by 5 mm and 30 degrees", "B by 20 mm"]
    assert str(Opening("C", 0.0, np.pi)) == "C by 180 degrees"
    assert [str(Opening("C", distance, 0.0)) for distance in (0.9994, 0.9996, 3.0)] == [
        "C by 999 mm",
        "C by 1000 mm",
        "C by 3000 mm",
    ]
    (broken,) = openings(("A.x",), ("m",), [np.nan], 1e-9)
    assert str(broken) == "A by nan mm"


@pytest.mark.long
@pytest.mark.parametrize(
    "coordinates",
    [pytest.param(jm.Absolute(), marks=pytest.mark.exhaustive), jm.Joints()],
    ids=["absolute", "joints"],
)
def test_joints_that_stay_open_are_named(coordinates):
    """A coupler that is 0.5 m short when its cranks lie toward each other, and a weld that is turned against
    its hinge.
    """
    bodies, joints = four_bar()
    joints[2] = jm.Rod("coupler", "left", "right", point_a=(0.0, 0.5), point_b=(0.0, 0.5), length=4.5)
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=coordinates)
    with pytest.raises(jaxdae.SimulationError, match="Still open: ") as caught:
        jaxdae.initialize(mechanism, q)
    message = str(caught.value)
    assert "the constraints cannot be closed; largest residuals " in message
    # In absolute coordinates all three joints share what is missing; in joint coordinates there is the
    # coupler alone.
    shared = ("coupler by", "A by", "D by") if coordinates == jm.Absolute() else ("coupler by 472 mm",)
    assert all(part in message for part in shared)
    assert message.endswith(
        "Check lengths and joint positions, start from a better guess, or free a coordinate."
    )


def test_a_diagnosis_names_open_joints():
    bodies, joints = four_bar()
    mechanism, q = jm.planar_mechanism(bodies, joints)
    assert jaxdae.diagnose(mechanism, jaxdae.State(0.0, q, 0 * q)).open_joints == ()
    moved = q.at[0].add(0.003).at[1].add(0.004)
    found = jaxdae.diagnose(mechanism, jaxdae.State(0.0, moved, 0 * q))
    assert [opening.joint for opening in found.open_joints] == ["A", "coupler"]
    assert "open joints                 A by 5 mm, coupler by " in str(found)


# All mistakes of a description at once.

EQUAL = (1.0, 1.0, 1.0)
UP = (0.0, 0.0, 1.0)


def in_space(cut):
    """Returns a description with a mistake of each kind, and what is to be said of it with this cut."""
    bodies = [
        *(js.Body(name, 1.0, EQUAL, place=(k, 0, 0)) for k, name in enumerate("abc")),
        js.Body("hollow", 1.0, (1.0, 1.0, -1.0)),
        js.Body("lost", 1.0, EQUAL, quaternion=(0, 0, 0, 0)),
        jm.Body("drawn", 1.0, 1.0),
    ]
    ends = ("ground", "a"), ("a", "b"), ("b", "c"), ("c", "ground")
    joints = [
        *(
            js.Revolute(name, *pair, axis=UP, at=(k, 0, 0))
            for k, (name, pair) in enumerate(zip("ABCD", ends, strict=True))
        ),
        js.Revolute("flat", "ground", "b", axis=(0, 0, 0), at=(0, 0, 0)),
        js.Universal("skew", "ground", "b", axis=UP, second=(0, 1, 1), at=(0, 0, 0)),
        js.Ball("nobody", "world", "bb", at=(0, 0, 0)),
        js.Ball("motor", "c", "b", at=(0, 0, 0), armature=1.0),
        jm.Weld("drawn", "a", "drawn", at=(0, 0)),
    ]
    forces = [js.JointForce("push", "motor"), js.Torque("screw", "drawn", "a", torque=(0, 0))]
    told = [
        "bodies[5] is a Body of the plane; expected SpatialBody of space, or a Description with space=PLANE",
        "joints[8] is a Weld of the plane; expected Revolute, ",
        "body 'hollow': inertia must be positive definite, got (1.0, 1.0, -1.0) with principal moments [-1. "
        " 1.  1.] (check the signs",
        "body 'lost': quaternion must be four finite numbers (w, x, y, z) that are not all zero, got (0, 0, "
        "0, 0); use (1, 0, 0, 0) for the world axes",
        "joint 'flat': axis must be three numbers that are not all zero",
        "joint 'skew': axis and second must be perpendicular",
        "joint 'nobody': a is 'world', which is not a body; use 'ground' (jaxdae.mechanisms.GROUND) for",
        "joint 'nobody': b is 'bb', which is not a body (did you mean 'b'?)",
        "force 'push': joint is 'motor', which has no coordinate; name a revolute or",
        "force 'screw': torque must be three finite numbers (x, y, z), got (0, 0)",
        "gravity must be three finite numbers",
        "Description.loops: 'E' is not a joint",
        *(
            ["joint 'motor': armature acts only on tree joints in joint coordinates"]
            if cut is None or "motor" in cut
            else []
        ),
        *(["'E' is not a joint (", "leaves a loop that 'C' closes"] if cut else []),
    ]
    return {
        "space": jm.SPACE,
        "bodies": bodies,
        "joints": joints,
        "forces": forces,
        "gravity": (0, -9.81),
        "loops": ("E",),
    }, told


def in_the_plane(cut):
    """Returns a description with a mistake of each kind, and what is to be said of it with this cut."""
    bodies = [
        *(jm.Body(name, 1.0, 1.0, (k, 0, 0)) for k, name in enumerate("abc")),
        jm.Body("hollow", 1.0, -1.0),
        jm.Body("a", 0.0, 1.0),
    ]
    ends = ("ground", "b"), ("b", "c"), ("c", "ground")
    joints = [
        *(
            jm.Revolute(name, *pair, at=(k, 0))
            for k, (name, pair) in enumerate(zip("ABC", ends, strict=True))
        ),
        jm.Rod("rod", "b", "c", at_a=(0, 1), at_b=(0, 1)),
        jm.Prismatic("flat", "ground", "b", axis=(0, 0), at=(0, 0)),
        jm.Weld("self", "b", "b", at=(0, 0)),
    ]
    told = [
        "body name 'a' is used twice; names must be unique",
        "body 'hollow': inertia must be a positive number, got -1.0",
        *(
            [
                "body 'a': mass must be a positive number, got 0.0 (only joint coordinates, Joints(), "
                "accept zero"
            ]
            if cut is None
            else []
        ),
        "joint 'rod': its points coincide at the start pose",
        "joint 'flat': axis must be two numbers that are not both zero",
        "joint 'self' connects 'b' with itself; a and b must be two different bodies",
        "gravity must be two finite numbers",
        *(["'E' is not a joint (", "leaves a loop that 'B' closes"] if cut else []),
    ]
    return {"bodies": bodies, "joints": joints, "gravity": -9.81}, told


@all_cases("cut", [None, (), ("motor", "E")], ids=["absolute", "joints", "cut"])
@all_cases("space", [in_space, in_the_plane])
def test_all_mistakes_of_a_description_come_at_once(space, cut):
    parts, told = space(cut)
    with pytest.raises(ValueError, match="mechanism: ") as caught:
        jm.mechanism(jm.Description(**parts), jm.Absolute() if cut is None else jm.Joints(cut))
    assert [part for part in told if part not in str(caught.value)] == []
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    # A caller who waits for either of both is told of all.
    assert isinstance(caught.value, TypeError) == (space is in_space)


def test_what_acts_in_a_tree_only_can_be_moved_into_the_tree():
    bodies = [js.Body(name, 1.0, EQUAL, place=place) for name, place in (("a", (0, 0, 0)), ("b", (1, 0, 0)))]
    joints = [
        js.Ball("A", "ground", "a", at=(0, 0, 0)),
        js.Ball("B", "a", "b", at=(0.5, 0, 0)),
        js.Ball("C", "ground", "b", at=(1, 0, 0)),
    ]
    joints[1] = dataclasses.replace(joints[1], armature=0.1)
    with pytest.raises(
        ValueError,
        match=r"joint 'B': armature acts only .*; name another joint of the loop in Joints\.cut, or "
        r"omit it",
    ):
        jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    assert jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints(cut=("C",)))[0].names.rows == (
        "C.x",
        "C.y",
        "C.z",
    )


def test_a_mistake_in_one_joint_raises_no_others_in_the_tree():
    """What a joint with a mistake of its own would carry is not known: that a cut tears it off cannot be
    said.
    """
    bodies, joints = four_bar()
    broken = jm.Prismatic("E", "ground", "right", axis=(0, 0), at=(0, 0))
    with pytest.raises(ValueError, match="axis must be") as caught:
        jm.planar_mechanism(bodies, [*joints, broken], coordinates=jm.Joints(cut=("D",)))
    assert "Joints.cut" not in str(caught.value)


WRONG_DESCRIPTIONS = {
    "mechanism: description must be a Description(bodies=..., joints=...), got a list": lambda: jm.mechanism(
        [js.Body("a", 1.0, EQUAL)]
    ),
    "kinematic_mechanism: description must be a Description(": lambda: jm.kinematic_mechanism(
        [js.Body("a", 1.0, EQUAL)]
    ),
    "kinematic_mechanism: bodies must be a list, got NoneType": lambda: jm.kinematic_mechanism(
        jm.Description(bodies=None)
    ),
    "Joints has no cuts (did you mean 'cut'?)": lambda: jm.Joints(cuts=("A",)),
    'must be names of joints, such as ("crank_pin",), got (a Revolute)': lambda: jm.mechanism(
        jm.Description(bodies=[jm.Body("a", 1.0, 1.0)]),
        jm.Joints((jm.Revolute("A", "ground", "a", at=(0, 0)),)),
    ),
    "Description.space must be jaxdae.mechanisms.PLANE or SPACE, got 'space'": lambda: jm.mechanism(
        jm.Description(space="space", bodies=[])
    ),
    "Description.loops must be names of joints, such as (\"crank_pin\",), got 'A'": lambda: jm.mechanism(
        jm.Description(bodies=[jm.Body("a", 1.0, 1.0)], loops="A")
    ),
    "joints[0] is the class Ball; call it: Ball(...)": lambda: jm.spatial_mechanism(
        [js.Body("a", 1.0, EQUAL)], [js.Ball]
    ),
    "Description has no joint (did you mean 'joints'?)": lambda: jm.Description(bodies=[], joint=[]),
    "Description has no coordinates: pass them to mechanism(description, coordinates)": lambda: (
        jm.Description(bodies=[], coordinates=jm.Joints())
    ),
    "Ball has no damping: add the force RotationalDamper(name, a, b, damping)": lambda: js.Ball(
        "j", "a", "b", damping=1.0
    ),
    "Ball has no stiffness: add the force RotationalSpring(name, a, b, stiffness=...)": lambda: js.Ball(
        "j", "a", "b", stiffness=1.0
    ),
    "Weld has no damping: a weld is rigid; for a compliant connection, use the force Bushing": lambda: (
        js.Weld("j", "a", "b", damping=1.0)
    ),
    "Rod has no stiffness: a rod has constant length; use the force LinearSpring": lambda: jm.Rod(
        "j", "a", "b", stiffness=1.0
    ),
    "Revolute has no dampling (did you mean 'damping'?); Revolute has no stifness (did": lambda: js.Revolute(
        "j", "a", "b", dampling=1, stifness=1
    ),
    "SpatialBody has no pose: use place=(x, y, z) and quaternion=(w, x, y, z)": lambda: js.Body(
        "a", 1.0, EQUAL, pose=(0, 0, 0)
    ),
    "Body has no place: use pose=(x, y, theta)": lambda: jm.Body("a", 1.0, 1.0, place=(0, 0)),
}


@all_cases("message", WRONG_DESCRIPTIONS)
def test_wrong_descriptions(message):
    with without_typechecker(), pytest.raises(TypeError) as caught:
        WRONG_DESCRIPTIONS[message]()
    assert message in str(caught.value)


@pytest.mark.exhaustive
def test_what_is_said_of_damping_in_balls_works():
    body = js.Body("a", 1.0, EQUAL)
    joint, forces = (
        js.Ball("j", "ground", "a", at=(0, 0, 0)),
        [js.RotationalDamper("d", "ground", "a", damping=2.0)],
    )
    for coordinates in (jm.Absolute(), jm.Joints()):
        mechanism, q = jm.spatial_mechanism([body], [joint], forces, coordinates=coordinates)
        v = jnp.zeros(mechanism.sizes(q).nv).at[-3:].set(jnp.array([1.0, -2.0, 3.0]))
        a, _ = jaxdae.forward_dynamics(mechanism, jaxdae.State(0.0, q, v))
        np.testing.assert_allclose(a[-3:], [-2.0, 4.0, -6.0], rtol=1e-13)


SHAPES = {
    "mass must be a positive number": ({"mass": jnp.ones(4)}, {}),
    "inertia must be three principal moments or a matrix (3, 3)": ({"inertia": jnp.ones((4, 3))}, {}),
    "place must be three finite numbers (x, y, z)": ({"place": jnp.ones((4, 3))}, {}),
    "quaternion must be four finite numbers (w, x, y, z)": ({"quaternion": jnp.ones((4, 4))}, {}),
    "joint 'j': axis must be three numbers": ({}, {"axis": jnp.ones((4, 3))}),
    "joint 'j': at must be three finite numbers (x, y, z)": ({}, {"at": jnp.ones((4, 3))}),
    "joint 'j': damping must be a finite number": ({}, {"damping": jnp.ones(4)}),
}


@pytest.mark.long
@all_cases("message", SHAPES)
def test_a_world_axis_by_mistake(message):
    """Numbers of many worlds, known or traced: the shapes of traced numbers are known too."""

    def made(given):
        body, joint = given
        body = js.Body("b", **{"mass": 1.0, "inertia": EQUAL, **body})
        return jm.spatial_mechanism(
            [body], [js.Revolute("j", "ground", "b", **{"axis": UP, "at": (0, 0, 0), **joint})]
        )

    for build in (made, jax.jit(made)):
        with pytest.raises(ValueError, match="spatial_mechanism: ") as caught:
            build(SHAPES[message])
        assert message in str(caught.value)
    assert jax.vmap(made)(SHAPES[message])[1].shape[0] == 4


# Bodies without inertia.


def hinged(mass, inertia, place=(0, 0, 0), axis=UP, **numbers):
    """Returns a body on a hinge."""
    return [js.Body("a", mass, inertia, place=place)], [
        js.Revolute("A", "ground", "a", axis=axis, at=(0, 0, 0), **numbers)
    ]


def carried(axis, at=(0, 0, 0)):
    """Returns a body on a hinge that a body without mass carries on a hinge along z."""
    bodies, joints = hinged(0.0, (0, 0, 0))
    return [*bodies, js.Body("b", 1.0, EQUAL, place=(1, 0, 0))], [
        *joints,
        js.Revolute("B", "a", "b", axis=axis, at=at),
    ]


RESISTS = (
    "it moves no inertia while the joints beyond it are free: the mass matrix is "
    "singular; give the bodies that it moves mass and inertia"
)
UNRESISTED = {
    "nothing on a hinge": (hinged(0.0, (0, 0, 0)), "joint 'A': " + RESISTS),
    "a point on its axis": (hinged(1.0, (0, 0, 0), place=(0, 0, 1)), "joint 'A': " + RESISTS),
    "a rod about itself": (hinged(1.0, (0, 1, 1), axis=(1, 0, 0)), "joint 'A': " + RESISTS),
    "nothing between hinges on one axis": (carried(UP), "joint 'A': " + RESISTS),
    "a free point": (
        ([js.Body("a", 1.0, (0, 0, 0))], []),
        "body 'a' moves freely but lacks mass or inertia",
    ),
    "in the plane": (
        (
            [jm.Body("a", 0.0, 0.0), jm.Body("b", 1.0, 0.0)],
            [jm.Revolute("A", "ground", "a", at=(0, 0)), jm.Revolute("B", "a", "b", at=(0, 0))],
        ),
        "joint 'A': " + RESISTS,
    ),
}


@pytest.mark.long
@all_cases(("parts", "message"), UNRESISTED.values(), ids=UNRESISTED)
def test_bodies_that_nothing_holds_back(parts, message):
    make = jm.planar_mechanism if isinstance(parts[0][0], jm.Body) else jm.spatial_mechanism
    for build in (
        lambda: make(*parts, coordinates=jm.Joints()),
        jax.jit(lambda: make(*parts, coordinates=jm.Joints())),
    ):
        with pytest.raises(ValueError, match="_mechanism: ") as caught:
            build()
        assert message in str(caught.value)


RESISTED = {
    "a point off its axis": hinged(1.0, (0, 0, 0), place=(1, 0, 0)),
    "nothing with a motor": hinged(0.0, (0, 0, 0), armature=1.0),
    "a rod about another axis": hinged(1.0, (0, 1, 1)),
    "nothing between hinges": carried((1, 0, 0)),
    "nothing between parallel hinges": carried(UP, at=(0.5, 0, 0)),
    "round-off": hinged(1.0, (-1e-17, 1, 1)),
}


@pytest.mark.long
@all_cases("parts", RESISTED.values(), ids=RESISTED)
def test_bodies_without_inertia_that_something_holds_back(parts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechanism, q = jm.spatial_mechanism(*parts, coordinates=jm.Joints())
    assert np.linalg.eigvalsh(mechanism.mass_matrix(q))[0] > 1e-3


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::jaxdae.StateWarning")
def test_rows_and_traced_numbers_may_do_without_inertia():
    """With rows M may be singular: bodies without mass move as the others let them; what is traced is not
    known.
    """
    bodies, joints = hinged(0.0, (0, 0, 0))
    turned = js.PrescribedMotion("turn", "A", jm.Sinusoid(1.0, 1.0))
    mechanism, q = jm.spatial_mechanism(bodies, [*joints, turned], coordinates=jm.Joints())
    state = jaxdae.State(jnp.zeros(()), q, 0 * q)
    assert np.all(np.isfinite(jaxdae.forward_dynamics(mechanism, state, solver=jaxdae.DenseKKT())[0]))
    jax.jit(lambda mass: jm.spatial_mechanism(*hinged(mass, (0, 0, 0)), coordinates=jm.Joints()))(0.0)
    massless = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, drives=[])
    assert jm.kinematic_mechanism(massless, jm.Joints())[1].shape == (1,)


@pytest.mark.long
def test_a_start_where_nothing_resists_is_a_warning():
    """Rings of which the outer and the inner one turn about one axis at the start, and nowhere else."""
    bodies = [*(js.Body(name, 0.0, (0, 0, 0)) for name in ("outer", "middle")), js.Body("inner", 1.0, EQUAL)]
    axes = ("ground", "outer", UP), ("outer", "middle", (1, 0, 0)), ("middle", "inner", UP)
    joints = [
        js.Revolute(name, a, b, axis=axis, at=(0, 0, 0))
        for name, (a, b, axis) in zip("ABC", axes, strict=True)
    ]
    with pytest.warns(
        jm.DescriptionWarning,
        match="the mass matrix is singular at the start because the joints 'A' move no inertia",
    ):
        mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    assert np.linalg.eigvalsh(mechanism.mass_matrix(q + 0.5))[0] > 1e-3


def test_inertia_that_no_body_has_is_refused_in_joint_coordinates_too():
    """Though the hinge does not notice: other joints would, and a sign is wrong."""
    with pytest.raises(
        ValueError,
        match=r"body 'a': inertia must be positive definite.*check the signs of the products of inertia",
    ):
        jm.spatial_mechanism(*hinged(1.0, (-1, 1, 1)), coordinates=jm.Joints())


def test_angles_in_degrees_are_doubted():
    with pytest.warns(
        jm.DescriptionWarning,
        match=r"body 'a': pose has the angle 90 rad; if the angle is in degrees, write 1.5708 rad",
    ):
        jm.planar_mechanism([jm.Body("a", 1.0, 1.0, (0, 0, 90))], [])
