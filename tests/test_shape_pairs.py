"""Contacts of all pairs of shapes against independent computations, and their derivatives.

The distance of convex shapes is the largest separation over all directions, s(d) = -h_b(-d) - h_a(d), with
the support functions h of both shapes. This holds for shapes that overlap, too: there, the largest (negative)
separation is minus the penetration depth.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from jaxdae import contact as ct
from jaxdae.geometry.pairs.contact_points import tangents
from jaxdae.geometry.pairs.pair_types import PAIRS, pair_type
from jaxdae.geometry.shapes import PlanarShape, Pose
from jaxdae.geometry.terrain import Cylinder, Hills, Terrain
from jaxdae.geometry.terrain import Plane as FlatTerrain

SHAPES = {
    ct.Plane: ct.Plane(),
    ct.Sphere: ct.Sphere(0.3),
    ct.Capsule: ct.Capsule(0.2, 0.4),
    ct.Box: ct.Box((0.2, 0.5, 0.3)),
    ct.Cylinder: ct.Cylinder(0.3, 0.4),
    ct.Ellipsoid: ct.Ellipsoid((0.2, 0.3, 0.5)),
    ct.ConvexMesh: ct.ConvexMesh(
        [(0.0, 0.0, 0.0), (0.5, 0.1, 0.0), (0.0, 0.4, 0.2), (0.1, 0.0, 0.6), (0.1, 0.1, 0.1)]
    ),
    Terrain: Hills(*(jnp.asarray([x]) for x in (0.05, 0.8, 0.6, 0.3))),
    ct.Line: ct.Line(),
    ct.Disc: ct.Disc(0.3),
    ct.PlanarCapsule: ct.PlanarCapsule(0.2, 0.4),
    ct.Polygon: ct.Polygon([(-0.2, -0.3), (0.4, -0.2), (0.3, 0.3), (-0.1, 0.4)]),
}
# Gaps of two boxes that are apart are lower bounds of the distance; see test_boxes_that_touch.
BOXES = (ct.Box, ct.Box)
CONVEX = [pair for pair in PAIRS if pair[0] is not Terrain and pair != BOXES]
IDS = [f"{a.__name__}-{b.__name__}" for a, b in CONVEX]
# These pairs are special cases of a capsule and a capsule, a box and a capsule, or a polygon and a polygon.
REPEATED = (
    "Sphere-Sphere",
    "Capsule-Sphere",
    "Box-Sphere",
    "Disc-Disc",
    "PlanarCapsule-Disc",
    "Polygon-Disc",
    "PlanarCapsule-PlanarCapsule",
)


def support(shape, at, d):
    """Return max d . x over a shape, with NumPy: independent of the contact functions."""
    place, axes = (np.asarray(x) for x in at)
    local = axes.T @ d
    match shape:
        case ct.Plane() | ct.Line():
            raise NotImplementedError
        case ct.Sphere() | ct.Disc():
            most = shape.radius
        case ct.Capsule() | ct.PlanarCapsule():
            most = shape.radius + shape.half_length * abs(local[-1])
        case ct.Box():
            most = np.asarray(shape.half) @ np.abs(local)
        case ct.Cylinder():
            most = shape.radius * np.hypot(*local[:2]) + shape.half_length * abs(local[2])
        case ct.Ellipsoid():
            most = np.linalg.norm(np.asarray(shape.radii) * local)
        case _:
            most = np.max(np.asarray(shape.vertices) @ local)
    return place @ d + most


def separation(a, at_a, b, at_b):
    """Return the signed distance of two convex shapes: the maximum of the separation over directions."""
    if isinstance(a, ct.Plane | ct.Line):
        n = np.asarray(at_a.axes)[:, -1]
        return -support(b, at_b, -n) - n @ np.asarray(at_a.place)
    dimension, found = len(at_a.place), []

    def apart(x):
        d = x / np.linalg.norm(x)
        return support(b, at_b, -d) + support(a, at_a, d)

    if dimension == 2:
        angles = np.linspace(0.0, 2.0 * np.pi, 200)
        starts = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    else:
        starts = np.random.default_rng(0).normal(size=(300, 3))
    # A second search from the result of the first, because the simplex may collapse early.
    options = {"xatol": 1e-10, "fatol": 1e-11}
    for x in sorted(starts, key=apart)[:3]:
        for _ in range(2):
            x = minimize(apart, x / np.linalg.norm(x), method="Nelder-Mead", options=options).x
        found.append(-apart(x))
    return max(found)


def rotation(angles):
    """Return a rotation (d, d) from one angle or three."""
    angles = np.atleast_1d(angles)
    if len(angles) == 1:
        c, s = np.cos(angles[0]), np.sin(angles[0])
        return np.array([[c, -s], [s, c]])
    return Rotation.from_rotvec(angles).as_matrix()


def moved(pose, step):
    """Return a pose after a motion: a translation, then an infinitesimal rotation, as a linear function."""
    d = pose.place.shape[0]
    turn = jnp.asarray([[0.0, -1.0], [1.0, 0.0]])
    spin = step[2] * turn if d == 2 else jnp.cross(step[3:], jnp.eye(3)).T
    return Pose(pose.place + step[:d], pose.axes + spin @ pose.axes)


@functools.cache
def touching(kind_a, kind_b):
    """Return the compiled contact function of a pair, and the rate of its results along a motion."""
    a, b = (
        shape if isinstance(shape, Terrain) else shape.arrays() for shape in (SHAPES[kind_a], SHAPES[kind_b])
    )
    touch = pair_type(a, b).touch

    def contacts(at_a, at_b, step_a, step_b):
        return jax.jvp(
            lambda s: touch(a, moved(at_a, s * step_a), b, moved(at_b, s * step_b)), (0.0,), (1.0,)
        )

    return jax.jit(contacts)


def poses(kind, count):
    """Return random pairs of poses with motions, shapes apart, touching or overlapping by a part of a radius."""
    planar = issubclass(kind, PlanarShape)
    d, turns = (2, 1) if planar else (3, 3)
    rng = np.random.default_rng(3)
    for _ in range(count):
        found = [
            Pose(jnp.asarray(rng.normal(size=d)), jnp.asarray(rotation(rng.normal(size=turns))))
            for _ in range(2)
        ]
        distance = rng.uniform(0.3, 1.2)
        offset = found[1].place - found[0].place
        found[1] = Pose(found[0].place + distance * offset / jnp.linalg.norm(offset), found[1].axes)
        yield (*found, *(jnp.asarray(rng.normal(size=d + turns)) for _ in range(2)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind_a", "kind_b"),
    [
        pytest.param(*pair, id=name, marks=pytest.mark.exhaustive if name in REPEATED else [])
        for pair, name in zip(CONVEX, IDS, strict=True)
    ],
)
def test_smallest_gap_is_the_distance(kind_a, kind_b):
    contacts = touching(kind_a, kind_b)
    for at_a, at_b, *motion in poses(kind_a, 25):
        points, _ = contacts(at_a, at_b, *motion)
        expected = separation(SHAPES[kind_a], at_a, SHAPES[kind_b], at_b)
        if expected < -0.1:
            continue  # Overlaps beyond the radius of a rounded shape have no unique normal.
        # The error of the minimization.
        np.testing.assert_allclose(jnp.min(points.gap), expected, atol=1e-8)


@pytest.mark.long
def test_boxes_that_touch():
    """Boxes are moved along the normal of their smallest gap until they touch."""
    contacts = touching(*BOXES)
    for k, (at_a, at_b, *motion) in enumerate(poses(ct.Box, 40)):
        for _ in range(8):
            points, rates = contacts(at_a, at_b, *motion)
            first = int(jnp.argmin(points.gap))
            at_b = Pose(at_b.place - points.gap[first] * points.normal[first], at_b.axes)
        assert abs(points.gap[first]) < 1e-14
        if k < 10:
            # The error of the minimization.
            assert abs(separation(SHAPES[ct.Box], at_a, SHAPES[ct.Box], at_b)) < 1e-6
        rate_is_normal_velocity(
            points.place[first], points.normal[first], rates.gap[first], (at_a, at_b), motion
        )


@pytest.mark.long
@pytest.mark.parametrize(("yaw", "corners"), [(0.0, 4), (1e-12, 6), (0.3, 6), (np.pi / 4.0, 6)])
def test_boxes_that_lie_on_each_other(yaw, corners):
    """The contacts contain the corners of the overlap, at equal heights."""
    a, b = ct.Box((0.2, 0.1, 0.1)).arrays(), ct.Box((0.1, 0.1, 0.3)).arrays()
    touch = jax.jit(lambda at_a, at_b: pair_type(a, b).touch(a, at_a, b, at_b))
    tilt = rotation(np.array([0.5, -1.0, 2.0]))
    place = tilt @ np.array([0.05, 0.0, 0.4 - 1e-6])
    points = touch(
        Pose(jnp.zeros(3), jnp.asarray(tilt)),
        Pose(jnp.asarray(place), jnp.asarray(tilt @ rotation(np.array([0.0, 0.0, yaw])))),
    )
    closed = points.gap < 0.0
    found = np.unique(np.round(np.asarray(points.place[closed]) @ tilt, 6), axis=0)
    assert len(found) == corners
    np.testing.assert_allclose(points.gap[closed], -1e-6, atol=1e-14)
    np.testing.assert_allclose(points.normal[closed] @ tilt - np.array([0.0, 0.0, 1.0]), 0.0, atol=1e-14)

    def places(x):
        return touch(
            Pose(jnp.zeros(3), jnp.eye(3)), Pose(x, jnp.asarray(rotation(np.array([0.0, 0.0, yaw]))))
        ).place

    # Parallel sides end where borders of both boxes coincide; the derivative holds these ends fixed.
    assert np.abs(jax.jacrev(places)(jnp.array([0.1, 0.0, 0.4]))).max() < 10.0


def test_tangents_do_not_jump_where_the_normal_is_horizontal():
    for x, y in ((1.0, 0.0), (0.6, -0.8)):
        above, below = (np.stack(tangents(jnp.array([x, y, z]))) for z in (1e-17, -1e-17))
        np.testing.assert_allclose(above, below, atol=1e-15)
    for z in (-0.74, -0.76):
        normal = np.array([np.sqrt(1.0 - z * z), 0.0, z])
        axes = np.stack([normal, *tangents(jnp.asarray(normal))])
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-15)
        assert np.linalg.det(axes) > 0.0


def rate_is_normal_velocity(place, normal, rate, frames, motion):
    """Check that the rate of a gap is the normal velocity of the material points at its place."""
    d, velocities = len(place), []
    for at, step in zip(frames, motion, strict=True):
        arm = place - at.place
        turn = step[2] * np.array([-arm[1], arm[0]]) if d == 2 else np.cross(step[3:], arm)
        velocities.append(step[:d] + turn)
    # Rounding errors of velocities of order 1.
    np.testing.assert_allclose(rate, normal @ (velocities[1] - velocities[0]), atol=2e-14)


@pytest.mark.parametrize(("kind_a", "kind_b"), [pair for pair in PAIRS if pair != BOXES])
def test_gap_rate_is_the_normal_velocity_at_the_place(kind_a, kind_b):
    contacts = touching(kind_a, kind_b)
    for at_a, at_b, *motion in poses(kind_a, 6):
        points, rates = contacts(at_a, at_b, *motion)
        np.testing.assert_allclose(jnp.linalg.norm(points.normal, axis=1), 1.0, atol=1e-14)
        for place, normal, rate in zip(points.place, points.normal, rates.gap, strict=True):
            rate_is_normal_velocity(place, normal, rate, (at_a, at_b), motion)


def axes_of(kind, rng):
    """Return a random rotation: generic, aligned with the axes, or nearly aligned."""
    aligned = np.eye(3)[:, rng.permutation(3)]
    near = rotation(1e-6 * rng.normal(size=3)) @ aligned
    return (rotation(2.0 * rng.normal(size=3)), aligned, near)[kind % 3]


@pytest.mark.long
@pytest.mark.parametrize("kind", [ct.Box, ct.Capsule], ids=lambda kind: kind.__name__)
def test_capsules_in_any_direction_have_the_distance_of_sampled_axes(kind):
    rng, t = np.random.default_rng(7), np.linspace(-0.4, 0.4, 4001)[:, None]
    shape, capsule = SHAPES[kind].arrays(), SHAPES[ct.Capsule].arrays()
    frames, distances = [], []
    while len(distances) < 300:
        frame = Pose(rng.uniform(-0.9, 0.9, 3), axes_of(len(distances), rng))
        x = frame.place + t * frame.axes[:, 2]
        if kind is ct.Box:
            away = np.abs(x) - np.asarray(shape.half)
            distance = np.linalg.norm(np.maximum(away, 0.0), axis=1) + np.minimum(away.max(1), 0.0)
        else:
            beyond = np.maximum(np.abs(x[:, 2]) - shape.half_length, 0.0)
            distance = np.linalg.norm([x[:, 0], x[:, 1], beyond], axis=0) - shape.radius
        if distance.min() > 0.0:  # The axis is outside.
            frames.append(frame)
            distances.append(distance.min() - capsule.radius)
    touch = jax.jit(
        jax.vmap(lambda frame: pair_type(shape, capsule).touch(shape, at(0.0, 0.0, 0.0), capsule, frame))
    )
    points = touch(jax.tree.map(lambda *x: jnp.stack(x), *frames))
    # Samples at distances of 2e-4 m miss the distance by (1e-4 m)^2 / (2 * 0.01 m).
    np.testing.assert_allclose(jnp.min(points.gap, axis=1), distances, atol=1e-6)


def test_derivatives_of_places_and_normals():
    # Central differences along a motion have an error of 1e-9 (third derivatives of order 10 times step^2). The
    # derivative of the clearance of a terrain is that of the distance, and equal only on the ground.
    step = 1e-5
    for kind_a, kind_b in CONVEX:
        contacts = touching(kind_a, kind_b)
        for at_a, at_b, *motion in poses(kind_a, 2):
            _, rates = contacts(at_a, at_b, *motion)
            (ahead, _), (behind, _) = (
                contacts(*(moved(at, s * x) for at, x in zip((at_a, at_b), motion, strict=True)), *motion)
                for s in (step, -step)
            )
            for rate, x, y in zip(rates, ahead, behind, strict=True):
                np.testing.assert_allclose(
                    rate, (x - y) / (2.0 * step), atol=1e-7, err_msg=f"{kind_a} {kind_b}"
                )


def at(*place, turned=(0.0, 0.0, 0.0)):
    axes = rotation(turned) if len(place) == 3 else np.eye(2)
    return Pose(jnp.asarray(place, float), jnp.asarray(axes))


@functools.cache
def along_motion(kind_a, kind_b):
    """Return the compiled contact points of two shapes, and their rates along a motion of b."""

    def rates(a, at_a, b, at_b, step):
        touch = pair_type(a, b).touch
        return jax.jvp(lambda s: touch(a, at_a, b, moved(at_b, s * step)), (0.0,), (1.0,))

    return jax.jit(rates)


def rate_matches(a, at_a, b, at_b, step):
    """Return the contact points, whether all derivatives are finite, and the error of the normal velocity."""
    d = len(at_a.place)
    points, rates = along_motion(type(a), type(b))(a.arrays(), at_a, b.arrays(), at_b, step)
    arms = points.place - at_b.place
    turning = jnp.cross(step[3:], arms) if d == 3 else step[2] * jnp.stack([-arms[:, 1], arms[:, 0]], axis=1)
    velocity = jnp.sum(points.normal * (step[:d] + turning), axis=1)
    finite = all(bool(jnp.all(jnp.isfinite(x))) for x in (*points, *rates))
    return points, finite, jnp.max(jnp.abs(velocity - rates.gap))


@pytest.mark.parametrize(
    ("a", "b", "gap"),
    [
        (ct.Sphere(0.3), ct.Sphere(0.2), -0.5),
        (ct.Capsule(0.3, 0.5), ct.Sphere(0.2), -0.5),
        (ct.Capsule(0.3, 0.5), ct.Capsule(0.2, 0.4), -0.5),
        (ct.Box((0.3, 0.4, 0.5)), ct.Sphere(0.2), -0.5),
        (ct.Cylinder(0.3, 0.5), ct.Sphere(0.2), -0.5),
        (ct.Disc(0.3), ct.Disc(0.2), -0.5),
        (ct.PlanarCapsule(0.3, 0.5), ct.Disc(0.2), -0.5),
        (ct.Polygon([(-0.3, -0.4), (0.3, -0.4), (0.3, 0.4), (-0.3, 0.4)]), ct.Disc(0.2), -0.5),
        (ct.PlanarCapsule(0.3, 0.5), ct.PlanarCapsule(0.2, 0.4), -0.5),
    ],
    ids=lambda x: type(x).__name__,
)
def test_coinciding_centers(a, b, gap):
    center = at(0.1, 0.2, 0.3) if a.dimension == 3 else at(0.1, 0.2)
    step = jnp.asarray([0.3, -0.2, 0.5, 0.4, 0.1, -0.3][: 6 if a.dimension == 3 else 3])
    points, finite, error = rate_matches(a, center, b, center, step)
    assert finite
    np.testing.assert_allclose(jnp.min(points.gap), gap, atol=1e-15)
    assert error < 1e-15


def test_parallel_capsules_touch_at_both_ends_of_their_overlap():
    a, b = ct.Capsule(0.1, 1.0), ct.Capsule(0.2, 0.5)
    for flip in (0.0, np.pi):
        upper = at(0.3, 0.0, 0.7, turned=(flip, 0.0, 0.0))
        points, finite, error = rate_matches(a, at(0.0, 0.0, 0.0), b, upper, jnp.arange(1.0, 7.0))
        assert finite
        assert error < 1e-14
        np.testing.assert_allclose(points.gap, 0.0, atol=1e-15)
        np.testing.assert_allclose(points.normal, [[1.0, 0.0, 0.0]] * 3, atol=1e-15)
        np.testing.assert_allclose(points.place[:2], [[0.1, 0.0, 0.2], [0.1, 0.0, 1.0]], atol=1e-15)


@pytest.mark.parametrize("length", [0.2, 2.0])
def test_a_box_on_a_capsule_rests_on_two_points(length):
    # The capsule lies along x, below the box; it ends below the box, or beyond it.
    box, capsule, half = ct.Box((0.5, 0.4, 0.3)), ct.Capsule(0.1, length), min(length, 0.5)
    for tilt in (0.0, 1e-17, -1e-9):
        lying = at(0.0, 0.1, -0.4, turned=(0.0, np.pi / 2.0 + tilt, 0.0))
        points, finite, error = rate_matches(box, at(0.0, 0.0, 0.0), capsule, lying, jnp.arange(1.0, 7.0))
        assert finite
        assert error < 1e-13
        np.testing.assert_allclose(points.gap, 0.0, atol=1e-15 + 2.0 * abs(tilt))
        np.testing.assert_allclose(points.normal, [[0.0, 0.0, -1.0]] * 3, atol=1e-14 + 2.0 * abs(tilt))
        np.testing.assert_allclose(jnp.sort(points.place[:2, 0]), [-half, half], atol=1e-8)
        np.testing.assert_allclose(points.place[:2, 1:], [[0.1, -0.3]] * 2, atol=1e-8)


def test_a_capsule_with_its_axis_inside_a_box_is_not_apart():
    box, capsule = ct.Box((0.5, 0.4, 0.3)), ct.Capsule(0.1, 1.0)
    for height, gap in ((0.25, -0.15), (0.1, -0.3), (0.0, None)):
        inside = at(0.0, 0.0, height, turned=(0.0, np.pi / 2.0, 0.0))
        points, finite, _ = rate_matches(box, at(0.0, 0.0, 0.0), capsule, inside, jnp.arange(1.0, 7.0))
        assert finite
        if gap is None:  # The depth on the center line is not that of both shapes.
            assert jnp.min(points.gap) < -0.1
        else:
            np.testing.assert_allclose(jnp.min(points.gap), gap, atol=1e-15)


def test_a_box_on_a_box_in_the_plane_rests_on_two_points():
    # Also with aligned sides, where each corner is on two edges.
    square = ct.Polygon([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    for shift, low in ((0.0, -0.5), (0.2, -0.3), (1e-17, -0.5)):
        points, finite, error = rate_matches(
            square, at(0.0, 0.0), square, at(shift, 1.0), jnp.arange(1.0, 4.0)
        )
        assert finite
        assert error < 1e-14
        np.testing.assert_allclose(points.gap, 0.0, atol=1e-15)
        np.testing.assert_allclose(points.normal, [[0.0, 1.0]] * 2, atol=1e-15)
        np.testing.assert_allclose(jnp.sort(points.place[:, 0]), [low, 0.5], atol=1e-15)


@pytest.mark.parametrize(
    ("a", "b", "upper"),
    [
        (ct.Capsule(0.1, 1.0), ct.Capsule(0.2, 0.5), (0.3, 0.0, 0.7)),
        pytest.param(ct.Box((0.5, 0.4, 0.3)), ct.Capsule(0.1, 2.0), (0.1, 0.5, 0.0), marks=pytest.mark.long),
    ],
)
def test_derivatives_of_parallel_shapes_are_moderate_and_equal_in_both_modes(a, b, upper):
    a, b = a.arrays(), b.arrays()
    touch = pair_type(a, b).touch

    def points(step):
        return touch(a, at(0.0, 0.0, 0.0), b, moved(at(*upper), step))

    still = jnp.zeros(6)
    forward, reverse = (jax.jit(jac(points))(still) for jac in (jax.jacfwd, jax.jacrev))
    for x, y in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-14)
        assert jnp.max(jnp.abs(x)) < 20.0  # of the order of length / distance


def test_standing_and_lying_cylinder():
    cylinder, plane = ct.Cylinder(0.3, 0.5), ct.Plane()
    points, finite, error = rate_matches(
        plane, at(0.0, 0.0, 0.0), cylinder, at(0.0, 0.0, 0.5), jnp.arange(6.0)
    )
    assert finite
    assert error < 1e-14
    np.testing.assert_allclose(points.gap, [0.0, 1.0, 0.0, 0.0, 0.0], atol=1e-15)
    lying = at(0.0, 0.0, 0.3, turned=(np.pi / 2.0, 0.0, 0.0))
    points, finite, error = rate_matches(plane, at(0.0, 0.0, 0.0), cylinder, lying, jnp.arange(6.0))
    assert finite
    assert error < 1e-14
    np.testing.assert_allclose(points.gap[:2], 0.0, atol=1e-15)


def test_flat_terrain_is_a_plane():
    box, frame = ct.Box((0.2, 0.5, 0.3)).arrays(), at(0.1, 0.2, 0.6, turned=(0.3, 0.2, 0.1))
    ground = at(0.0, 0.0, 0.1, turned=(0.1, 0.0, 0.2))
    flat, plane = (
        pair_type(a, box).touch(a, ground, box, frame) for a in (FlatTerrain(), ct.Plane().arrays())
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-15), flat, plane)


@pytest.mark.long
def test_sphere_on_a_ridge_has_the_distance_of_the_axes():
    # Exact on the ground. Off the ground, the normal has an error of the order gap / radius, and the gap an
    # error of the order gap^2 / radius.
    ridge, sphere, angle = Cylinder(2.0), ct.Sphere(0.3).arrays(), 0.4
    for gap in (0.0, 1e-4, -1e-4):
        center = at((2.3 + gap) * np.sin(angle), 0.7, (2.3 + gap) * np.cos(angle))
        points = pair_type(ridge, sphere).touch(ridge, at(0.0, 0.0, 0.0), sphere, center)
        np.testing.assert_allclose(points.gap[0], gap, atol=1e-8)
        normal = [np.sin(angle), 0.0, np.cos(angle)]
        np.testing.assert_allclose(points.normal[0], normal, atol=1e-14 + abs(gap))


def test_the_order_of_a_pair_only_changes_the_sign_of_the_normal():
    a, b = ct.Capsule(0.2, 0.4).arrays(), ct.Sphere(0.3).arrays()
    frames = at(0.0, 0.1, 0.0, turned=(0.3, 0.2, 0.1)), at(0.5, 0.4, 0.3)
    one = pair_type(a, b).touch(a, frames[0], b, frames[1])
    other = pair_type(b, a).touch(b, frames[1], a, frames[0])
    np.testing.assert_array_equal(one.normal, -other.normal)
    np.testing.assert_array_equal(one.place, other.place)
    np.testing.assert_array_equal(one.gap, other.gap)


@pytest.mark.long
def test_all_pairs_keep_single_precision():
    def single(tree):
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), jnp.float32), tree)

    for kinds in PAIRS:
        a, b = (s if isinstance(s, Terrain) else s.arrays() for s in (SHAPES[kind] for kind in kinds))
        frame = single(at(*[0.0] * b.dimension))
        found = jax.eval_shape(pair_type(a, b).touch, single(a), frame, single(b), frame)
        assert {x.dtype for x in found} == {jnp.dtype("float32")}, kinds
        labels = pair_type(a, b).labels(a, b)
        assert {x.shape[0] for x in found} == {len(labels)} == {len(set(labels))}
