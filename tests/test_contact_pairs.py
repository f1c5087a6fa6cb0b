"""Contacts of mechanisms: the normal row is the rate of the gap, names, leaves, and errors of descriptions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import contact as ct
from jaxdae import mechanisms as jm
from jaxdae.base.requirements import check_requirements, requirements_met
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.contacts.contact_elements import neighbors

FORMS = [jm.Absolute(), jm.Joints()]


def solid(name, at, quaternion=(1.0, 0.0, 0.0, 0.0)):
    return jm.SpatialBody(name, 1.0, (1.0, 1.2, 1.5), at, quaternion=quaternion)


def in_space():
    """Return two tilted bodies at a joint, over tilted planes of the ground and of a body."""
    bodies = [solid("foot", (0.1, 0.2, 0.9), (0.8, 0.0, 0.6, 0.0)), solid("ball", (1.0, 0.3, 1.1))]
    joints = [js.Revolute("knee", "foot", "ball", at=(0.5, 0.2, 1.0), axis=(1.0, 1.0, 0.2))]
    ground = ct.Plane(at=(0.0, 0.1, -0.2), quaternion=(3.0, 0.4, -0.3, 0.2))
    box = ct.Box((0.1, 0.2, 0.3), at=(0.1, 0.0, -0.4), quaternion=(1.0, 0.2, 0.3, 0.4))
    contacts = [
        ct.Pair("sole", "ground", "foot", ground, box, friction=0.5, restitution=0.1),
        ct.Pair("ball", "ball", "ground", ct.Sphere(0.2, at=(0.0, 0.3, 0.1)), ground, friction=0.6),
        ct.Pair("lid", "ball", "foot", ct.Plane(at=(0.0, 0.0, 0.3)), ct.Sphere(0.1), friction=0.7),
    ]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, contacts=contacts)


def in_the_plane():
    """Return two tilted bodies at a joint, over tilted lines of the ground and of a body."""
    bodies = [jm.Body("foot", 1.0, 0.3, (0.1, 0.9, 0.4)), jm.Body("ball", 1.0, 0.2, (1.0, 1.1, 0.0))]
    joints = [jm.Revolute("knee", "foot", "ball", at=(0.5, 1.0))]
    ground = ct.Line(at=(0.0, -0.2), angle=0.3)
    shape = ct.Polygon([(0.0, 0.0), (0.3, -0.1), (0.2, 0.4)], at=(0.1, -0.2), angle=0.2)
    contacts = [
        ct.Pair("sole", "ground", "foot", ground, shape, friction=0.5, restitution=0.1),
        ct.Pair("ball", "ball", "ground", ct.Disc(0.2, at=(0.1, 0.0)), ground, friction=0.6),
        ct.Pair("lid", "ball", "foot", ct.Line(at=(0.0, 0.3)), ct.Disc(0.1), friction=0.7),
    ]
    return jm.Description(space=jm.PLANE, bodies=bodies, joints=joints, contacts=contacts)


def touch(mechanism, q):
    coordinates = mechanism.coordinates
    return mechanism.contacts.touch(coordinates, coordinates.at_rest(q), q, jnp.zeros((), q.dtype))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("described", [in_space, in_the_plane])
def test_rows_are_the_relative_velocity_at_the_contact(described, form):
    mechanism, q = jm.mechanism(described(), form)
    rng = np.random.default_rng(1)
    v = jnp.asarray(rng.normal(size=len(mechanism.names.velocities)))
    bodies = list(mechanism.body_names)
    pairs = {pair.name: pair for pair in described().contacts}

    @jax.jit
    def found(q, v):
        gap, rate = jax.jvp(lambda s: touch(mechanism, mechanism.retract(q, s * v)).gap, (0.0,), (1.0,))
        return gap, rate, touch(mechanism, q), mechanism.frames(q), mechanism.twists(q, v)

    gap, rate, at, frames, twists = found(q, v)
    c = (at.rows @ v).reshape(len(at.gap), -1)
    # A few rounding errors of velocities of order 1.
    np.testing.assert_allclose(c[:, 0], rate, atol=1e-14)
    np.testing.assert_array_equal(gap, at.gap)
    assert at.rows.shape == (at.gap.shape[0] * at.normal.shape[1], len(v))
    assert not at.drift.any()

    def velocity(body, place):
        if body == "ground":
            return np.zeros(len(place))
        frame, twist = (jax.tree.map(lambda x: x[bodies.index(body)], part) for part in (frames, twists))
        return np.asarray(twist.at(frame, type(frame.place)(*place)).array())

    for name, slip, place, normal, mu, e in zip(
        mechanism.contacts.names, c, at.place, at.normal, at.friction, at.restitution, strict=True
    ):
        pair = pairs[name.split(".")[0]]
        moving = velocity(pair.b, place) - velocity(pair.a, place)
        # The components in orthonormal axes have the length of the velocity.
        np.testing.assert_allclose(np.linalg.norm(slip), np.linalg.norm(moving), rtol=1e-13)
        np.testing.assert_allclose(slip[0], normal @ moving, atol=1e-14)
        assert (mu, e) == (pair.friction, pair.restitution)


@pytest.mark.long
@pytest.mark.parametrize("described", [in_space, pytest.param(in_the_plane, marks=pytest.mark.exhaustive)])
def test_both_forms_have_the_same_contacts(described):
    (one, q), (other, p) = (jm.mechanism(described(), form) for form in FORMS)
    first, second = touch(one, q), touch(other, p)
    assert one.contacts.names == other.contacts.names
    for name in ("gap", "place", "normal"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-14)


@pytest.mark.long
def test_names_of_contacts_and_leaves():
    mechanism, q = jm.mechanism(in_the_plane())
    corners = tuple(f"sole.vertex{k}" for k in range(3))
    assert mechanism.contacts.names == ("ball", "lid", *corners)
    assert jd.tree.get_leaf(mechanism, "contacts.ball.friction") == 0.6
    changed = jd.tree.set_leaf(mechanism, "contacts.ball.friction", 0.2)
    changed = jd.tree.set_leaf(changed, "contacts.lid.shape_b.radius", 0.05)
    before, after = touch(mechanism, q), touch(changed, q)
    np.testing.assert_allclose(after.friction - before.friction, [-0.4, 0.0, 0.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(after.gap - before.gap, [0.0, 0.05, 0.0, 0.0, 0.0], atol=1e-15)
    with pytest.raises(KeyError):
        jd.tree.get_leaf(mechanism, "contacts.left.friction")


@pytest.mark.exhaustive
def test_single_precision():
    mechanism, q = jm.mechanism(in_space(), jm.Joints())
    half, q32 = jax.tree.map(lambda x: x.astype(jnp.float32), (mechanism, q))
    at, exact = touch(half, q32), touch(mechanism, q)
    assert {x.dtype for x in jax.tree.leaves(at)} == {jnp.dtype("float32")}
    # A few rounding errors of lengths of order 1.
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-6), at, exact)


@pytest.mark.long
def test_gradients_of_a_description_reach_the_gaps():
    def gaps(radius, height):
        pair = ct.Pair("ball", "ground", "ball", ct.Plane(at=(0.0, 0.0, height)), ct.Sphere(radius))
        description = jm.Description(space=jm.SPACE, bodies=[solid("ball", (0.0, 0.0, 1.0))], contacts=[pair])
        mechanism, q = jm.mechanism(description)
        return touch(mechanism, q).gap[0]

    assert jax.grad(gaps, (0, 1))(0.1, 0.2) == (-1.0, -1.0)


def test_all_mistakes_of_contacts_are_reported_at_once():
    box, plane = ct.Box((0.1, 0.1, 0.1)), ct.Plane()
    contacts = [
        ct.Pair("flat", "grund", "foot", plane, ct.Box((0.1, 0.0, 0.3)), friction=-1.0),
        ct.Pair("flat", "foot", "foot", ct.Disc(0.1), ct.Sphere(-1.0), restitution=2.0),
        ct.Pair("planes", "ground", "foot", plane, plane),
        ct.Pair("turned", "ground", "foot", ct.Plane(quaternion=(0, 0, 0, 0)), box),
        ct.Pair("class", "ground", "foot", ct.Plane, box),
        ct.Pair("truth", "ground", "foot", plane, ct.Sphere(True)),
        ct.Pair("text", "ground", "foot", plane, ct.Box(("0.1", "0.1", "0.1"))),
        3,
    ]
    body = solid("foot", (0.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="contact") as error:
        jm.mechanism(jm.Description(space=jm.SPACE, bodies=[body], contacts=contacts))
    for text in (
        "contacts[7] is a int; expected Pair",
        "contact name 'flat' is used twice",
        "contact 'flat': a is 'grund', which is not a body (did you mean 'ground'?)",
        "contact 'flat': shape_b half must be positive, got (0.1, 0.0, 0.3)",
        "contact 'flat': friction must be non-negative, got -1",
        "contact 'flat' connects 'foot' with itself",
        "contact 'flat': shape_a must be a shape of space",
        "contact 'flat': shape_b radius must be non-negative, got -1",
        "contact 'flat': restitution must be at most 1, got 2",
        "contact 'planes': contacts between plane and plane are not supported; supported pairs",
        "contact 'turned': shape_a quaternion must not be zero",
        "contact 'class': shape_a must be a shape of space",
        "contact 'truth': shape_b radius must be a finite number, got True",
        "contact 'text': shape_b half must be 3 finite numbers, got ('0.1', '0.1', '0.1')",
    ):
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("vertices", "message"),
    [
        ([(0, 0), (1, 0)], "at least 3"),
        ([(0, 0), (0, 1), (1, 0)], "reverse the list"),
        ([(0, 0), (2, 0), (0.5, 0.5), (0, 2)], "check vertex 2"),
        ([(0, 0), (1, 0), (2, 0), (0, 2)], "check vertex 1"),
        ([(np.cos(x), np.sin(x)) for x in 0.8 * np.pi * np.arange(5)], "convex"),
        ([(0, 0), (1, 0), (np.nan, 1)], "finite"),
    ],
)
def test_mistakes_of_polygons(vertices, message):
    pair = ct.Pair("tip", "ground", "foot", ct.Line(), ct.Polygon(vertices))
    with pytest.raises(ValueError, match=f"contact 'tip': shape_b vertices .*{message}"):
        jm.mechanism(jm.Description(bodies=[jm.Body("foot", 1.0, 1.0, (0, 0, 0))], contacts=[pair]))


def test_requirements_of_a_traced_mechanism():
    mechanism = jm.mechanism(in_the_plane())[0]
    jax.eval_shape(lambda traced: check_requirements("mechanism", traced), mechanism)
    bent = jnp.asarray([[0.0, 0.0], [0.3, -0.1], [0.1, 0.1], [0.2, 0.4]])
    for turned in range(4):
        part = ct.Polygon(jnp.roll(bent, turned, axis=0))
        with pytest.raises(ValueError, match="vertices must be convex"):
            check_requirements("polygon", part)


def test_a_rotor_has_no_contacts():
    bodies = [jm.Body("frame", 1.0, 1.0, (0, 0, 0)), jm.Rotor("spin", 1.0)]
    pair = ct.Pair("tip", "ground", "spin", ct.Line(), ct.Disc(0.1))
    with pytest.raises(ValueError, match="'spin' is a rotor, which has an angle but no position"):
        jm.mechanism(jm.Description(bodies=bodies, contacts=[pair]))


def test_numbers_out_of_range_at_run_time():
    mechanism, _ = jm.mechanism(in_space())
    for path, value, text in (
        ("contacts.ball.friction", -0.1, "friction must be non-negative"),
        ("contacts.ball.restitution", 1.1, "restitution must be at most 1"),
        ("contacts.sole.shape_b.half", jnp.asarray([0.1, -0.1, 0.1]), "half must be positive"),
    ):
        with pytest.raises(ValueError, match=text):
            jd.tree.set_leaf(mechanism, path, value)
        # Traced numbers are known at run time only.
        changed = partial(jd.tree.set_leaf, mechanism, path)
        assert not jax.jit(lambda x, changed=changed: requirements_met(changed(x)))(value)


@pytest.mark.long
def test_neighbors_are_the_bodies_of_joints_except_the_ground():
    bodies = [solid(name, (x, 0.0, 0.0)) for name, x in (("a", 0.0), ("b", 1.0), ("c", 2.0))]
    joints = [
        js.Revolute("base", jm.GROUND, "a", at=(0.0, 0.0, 0.0), axis=(0.0, 1.0, 0.0)),
        js.Revolute("knee", "a", "b", at=(0.5, 0.0, 0.0), axis=(0.0, 1.0, 0.0)),
        js.Ball("loop", "c", "b", at=(1.5, 0.0, 0.0)),
        js.Rod("rod", "a", "c", at_a=(0.0, 0.0, 0.0), at_b=(2.0, 0.0, 0.0)),
    ]
    jm.mechanism(jm.Description(space=jm.SPACE, bodies=bodies, joints=joints))
    assert neighbors(joints) == {frozenset("ab"), frozenset("bc")}


def test_traced_vertices_are_checked_at_run_time():
    square = jnp.asarray([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])

    @jax.jit
    def met(vertices):
        polygon = ct.Polygon(vertices)
        check_requirements("polygon", polygon)
        return requirements_met(polygon)

    assert met(square)
    assert not met(square[::-1])
