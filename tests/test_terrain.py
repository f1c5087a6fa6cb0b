"""Terrains and contacts by themselves: derivatives, smoothness, edges, and what is wrong with them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.geometry.spatial_frames import Vector
from jaxdae.geometry.terrain import check_terrain
from jaxdae.geometry.wheel_contact import ball_contact, ball_margin, rim_contact, rim_margin
from jaxdae.mechanisms import spatial as js

EPS = np.finfo(float).eps
HEIGHTS = np.random.default_rng(0).normal(size=(7, 6)) * 0.1
MAP = jv.HeightMap.through(jnp.asarray(HEIGHTS), 0.5, (-1.0, 2.0))
WAVES = jv.Hills(
    *(jnp.asarray(x) for x in ([0.10, 0.06, 0.04], [1.1, -0.7, 2.3], [0.6, 1.9, -0.4], [0.3, 1.0, -0.5]))
)
TERRAINS = {
    "plane": (jv.Plane((0.2, -0.1, 2.0), 0.3), (0.4, 2.9)),
    "hills": (WAVES, (0.4, 2.9)),
    "ridge": (jv.Cylinder(3.0, (0.3, 1.0), (0.2, 2.0, 0.1)), (0.4, 2.9)),
    "trough": (jv.Cylinder(-3.0, (0.3, 1.0), (0.2, 2.0, 0.1)), (0.4, 2.9)),
    "map": (MAP, (0.4, 2.9)),
    "edge of the map": (MAP, (-0.9, 4.45)),
}


def vector(x):
    return Vector(*(jnp.asarray(entry) for entry in x))


@pytest.mark.long
@all_cases("name", TERRAINS)
def test_derivatives_are_those_of_the_heights(name):
    terrain, (x, y) = TERRAINS[name]
    h, step = jax.jit(lambda p: terrain.height(p[0], p[1])), 1e-4
    slope = jax.jit(jax.grad(h))
    p = jnp.array([x, y])
    steps = step * np.eye(2)
    gradient = np.array([(h(p + d) - h(p - d)) / (2 * step) for d in steps])
    # Central differences: step^2 times a third derivative of size 1, and round-off over the step.
    np.testing.assert_allclose(slope(p), gradient, rtol=0, atol=1e-7)
    hessian = np.array([(slope(p + d) - slope(p - d)) / (2 * step) for d in steps])
    xx, xy, yy = jax.jit(terrain.second_derivatives)(*p)
    np.testing.assert_allclose([[xx, xy], [xy, yy]], hessian, rtol=0, atol=1e-6)


def test_heights_of_a_subclass_of_hills_have_their_own_derivatives():
    @jd.tree.pytree
    class Ramp(jv.Hills):
        def height(self, x, y):
            return super().height(x, y) + 0.5 * x * x

    x, y = jnp.asarray(0.3), jnp.asarray(-0.7)
    hills = ([0.2, 0.1], [1.1, -0.7], [0.6, 1.9], [0.3, 1.0])
    plain, other = jv.Hills(*hills), Ramp(*hills)
    np.testing.assert_allclose(
        np.subtract(other.height_and_slope(x, y), plain.height_and_slope(x, y)),
        [0.045, 0.3, 0.0],
        rtol=0,
        atol=10 * EPS,
    )
    np.testing.assert_allclose(
        np.subtract(other.second_derivatives(x, y), plain.second_derivatives(x, y)),
        [1.0, 0.0, 0.0],
        rtol=0,
        atol=10 * EPS,
    )


@pytest.mark.long
def test_a_map_goes_through_its_heights_and_through_planes():
    at = np.array([[MAP.height(-1.0 + 0.5 * i, 2.0 + 0.5 * j) for j in range(6)] for i in range(7)])
    np.testing.assert_allclose(at, HEIGHTS, rtol=0, atol=10 * EPS)
    sloped = jv.HeightMap(
        jnp.asarray([[0.3 * i - 0.2 * j + 1.0 for j in range(5)] for i in range(2)]), (1.0, 2.0), (0.5, 0.0)
    )
    for x, y in ((0.5, 0.0), (1.5, 8.0), (0.7, 3.3)):
        np.testing.assert_allclose(
            sloped.height(x, y), 0.3 * (x - 0.5) - 0.1 * y + 1.0, rtol=0, atol=10 * EPS
        )
        # On the border as well, which belongs to the map.
        np.testing.assert_allclose(
            sloped.height_and_slope(jnp.asarray(x), jnp.asarray(y))[1:], [0.3, -0.1], rtol=0, atol=10 * EPS
        )
    whole, real = (
        jv.HeightMap.through(np.arange(9).reshape(3, 3).astype(kind) ** 2, 1.0) for kind in (int, float)
    )
    np.testing.assert_array_equal(whole.z, real.z)
    # A hole would be everywhere in z; here it is told where it is.
    with pytest.raises(
        ValueError,
        match=r"HeightMap.through: .* 1 of 42 non-finite heights, the first at \[2, 3\]",
    ):
        jv.HeightMap.through(jnp.asarray(HEIGHTS).at[2, 3].set(jnp.nan), 0.5)


@pytest.mark.long
@pytest.mark.parametrize("along", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_map_has_no_jumps_in_second_derivatives_at_its_knots(along):
    for knot in (0.0, 0.5, 1.0):
        p = np.array([-0.3, 2.8])
        p[along] = knot + 0.5 + 2.0 * along
        beside = [np.array(MAP.second_derivatives(*(p + side * 1e-9 * np.eye(2)[along]))) for side in (-1, 1)]
        # Third derivatives are of size 0.1 / 0.5^3, over 2e-9 m.
        np.testing.assert_allclose(*beside, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_far_edge_of_a_map_belongs_to_it_however_it_is_rounded(dtype):
    """Over maps of many sizes: there the slope is that of the plane that the map is, and a hundredth of a
    cell farther is outside.
    """

    def at_the_edge(spacing, origin):
        ground = jv.HeightMap(
            jnp.stack([2.0 * spacing * jnp.arange(11.0, dtype=dtype)] * 2, axis=1),
            spacing,
            jnp.stack([origin, 0.0 * origin]),
        )
        x, y = origin + 10.0 * spacing, 0.5 * spacing
        return ground.inside(x, y), ground.inside(x + 0.01 * spacing, y), jax.grad(ground.height)(x, y)

    spacing, origin = (
        x.ravel() for x in np.meshgrid([0.1, 0.3, 0.7, 0.05, 0.01], [0.3, -3.1, 123.4, 0.0, -20.3, 0.1])
    )
    inside, beyond, slope = jax.jit(jax.vmap(at_the_edge))(
        jnp.asarray(spacing, dtype), jnp.asarray(origin, dtype)
    )
    assert np.all(inside)
    assert not np.any(beyond)
    # Of the cells of 1 cm at 123 m single precision leaves a thousandth.
    np.testing.assert_allclose(slope, 2.0, rtol=1e-2 if dtype == jnp.float32 else 1e-10)


@pytest.mark.long
def test_a_map_ends_where_its_grid_ends_and_is_differentiable_in_its_numbers():
    inside = [
        bool(MAP.inside(x, y))
        for x, y in ((-1.0, 2.0), (2.0, 4.5), (-1.001, 2.5), (0.0, 4.51), (jnp.nan, 2.5))
    ]
    assert inside == [True, True, False, False, False]
    assert MAP.height(-5.0, 3.1) == MAP.height(-1.0, 3.1)
    assert np.isnan(MAP.height(jnp.nan, 3.1))

    def of(z):
        return jv.HeightMap(z, 0.5, (-1.0, 2.0)).height(0.37, 3.21)

    weights = jax.grad(of)(MAP.z)
    # It is linear in its numbers; sixteen of them count, and the weights of a spline add up to one.
    np.testing.assert_allclose(jnp.sum(weights * MAP.z), MAP.height(0.37, 3.21), rtol=0, atol=10 * EPS)
    assert np.count_nonzero(weights) == 16
    np.testing.assert_allclose(jnp.sum(weights), 1.0, rtol=0, atol=10 * EPS)
    # So is it in the heights that it goes through, all of which count.
    weights = jax.grad(lambda heights: jv.HeightMap.through(heights, 0.5, (-1.0, 2.0)).height(0.37, 3.21))(
        jnp.asarray(HEIGHTS)
    )
    np.testing.assert_allclose(jnp.sum(weights * HEIGHTS), MAP.height(0.37, 3.21), rtol=0, atol=10 * EPS)
    np.testing.assert_allclose(jnp.sum(weights), 1.0, rtol=0, atol=10 * EPS)
    single = jv.HeightMap(MAP.z.astype(jnp.float32), jnp.float32(0.5), jnp.asarray([-1.0, 2.0], jnp.float32))
    x = single.height(jnp.float32(0.37), jnp.float32(3.21))
    assert x.dtype == jnp.float32
    np.testing.assert_allclose(x, MAP.height(0.37, 3.21), rtol=0, atol=1e-6)


@pytest.mark.parametrize("angle", [0.0, 0.5, -1.0, 1.5])
@pytest.mark.parametrize("wheel", ["disc", "sphere"])
def test_a_wheel_in_a_trough_touches_along_its_radius(wheel, angle):
    trough, length, r = jv.Cylinder(-1.1), 0.9, 0.2
    at = np.array([np.sin(angle), 0.0, -np.cos(angle)])
    center = vector(length * at + np.array([0.0, 0.3, 0.0]))
    found = (
        rim_contact(trough, center, vector((0.0, 1.0, 0.0)), r)
        if wheel == "disc"
        else ball_contact(trough, center, r)
    )
    np.testing.assert_allclose(found.place.array(), 1.1 * at + np.array([0.0, 0.3, 0.0]), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.normal.array(), -at, rtol=0, atol=1e-13)  # The slope at 1.5 rad is 14.
    np.testing.assert_allclose([found.clearance, found.margin], [0.0, 1.0 - 0.2 / 1.1], rtol=0, atol=1e-13)


def seen(q, kind):
    """Returns place, clearance and normal of the contact of a leaning wheel on hills, of all their numbers
    (7,).
    """
    hills = jv.Hills(q[6:9], WAVES.kx, WAVES.ky, WAVES.phase)
    axle = jnp.stack([q[3], jnp.ones(()), q[4]])
    axle, center = vector(axle / jnp.linalg.norm(axle)), vector(q[:3])
    found = rim_contact(hills, center, axle, q[5]) if kind == "disc" else ball_contact(hills, center, q[5])
    return jnp.concatenate([found.place.array(), found.clearance[None], found.normal.array()])


def on_the_ground(kind):
    """Returns numbers with which the clearance is zero."""
    q = jnp.array([0.3, 0.2, 0.4, 0.2, 0.3, 0.3, 0.10, 0.06, 0.04])
    for _ in range(6):
        q = q.at[2].add(-seen(q, kind)[3] / jax.jacfwd(seen)(q, kind)[3, 2])
    return q


@pytest.mark.long
@pytest.mark.parametrize("kind", ["disc", pytest.param("sphere", marks=pytest.mark.exhaustive)])
def test_contacts_on_the_ground_have_exact_derivatives(kind):
    q, step = on_the_ground(kind), 1e-4
    first = jax.jit(jax.jacfwd(lambda q: seen(q, kind)))
    d = jnp.array([0.3, -0.5, 0.2, 0.7, 0.4, 0.1, 0.2, -0.3, 0.2])

    def differences(f, d):
        return (f(q + step * d) - f(q - step * d)) / (2 * step)

    assert abs(seen(q, kind)[3]) < 1e-15
    np.testing.assert_allclose(
        first(q) @ d, differences(jax.jit(lambda q: seen(q, kind)), d), rtol=0, atol=1e-7
    )
    # Along a motion on the ground, of the second derivatives.
    d = d.at[2].add(-(first(q) @ d)[3] / first(q)[3, 2])
    second = jax.jvp(first, (q,), (d,))[1]
    np.testing.assert_allclose(second @ d, differences(first, d) @ d, rtol=0, atol=1e-6)
    np.testing.assert_allclose(jax.jacrev(lambda q: seen(q, kind))(q), first(q), rtol=0, atol=1e-13)


ACCURATE = {"disc": 1e-2, "sphere": 5e-2}
"""Of margins near zero after eight corrections, from 0.1 rad away: those of a disc leave 0.3 of it each, of a
sphere 0.85.
"""


@pytest.mark.parametrize("kind", ["disc", "sphere"])
def test_a_hollow_that_is_narrower_than_the_wheel_leaves_no_margin(kind):
    def margin(amplitude, aside=0.0):
        hollow = jv.Hills(
            jnp.array([amplitude]), jnp.array([10.0]), jnp.array([0.0]), jnp.array([-np.pi / 2])
        )
        center = vector((aside, 0.0, 0.2 - amplitude))
        return (
            rim_contact(hollow, center, vector((0.0, 1.0, 0.0)), 0.2)
            if kind == "disc"
            else ball_contact(hollow, center, 0.2)
        ).margin

    # 1 - r h'' with h'' = 100 amplitude.
    np.testing.assert_allclose([margin(0.02), margin(0.06)], [0.6, -0.2], rtol=0, atol=1e-13)
    # Beside the middle, at x - r h'/(1 + h'^2)^0.5 = 3 mm, a wheel that is hardly narrower is found, too: 1 -
    # r h''/(1 + h'^2)^1.5.
    x, slope_there = 0.025891055117141976, 0.45 * np.sin(0.25891055117141976)
    assert abs(x - 0.2 * slope_there / np.hypot(1.0, slope_there) - 0.003) < 1e-12
    curved = 4.5 * np.cos(10.0 * x) / np.hypot(1.0, slope_there) ** 3
    np.testing.assert_allclose(margin(0.045, 0.003), 1.0 - 0.2 * curved, rtol=0, atol=ACCURATE[kind])


@jd.tree.pytree
class Step(jv.Terrain):
    """A smooth step, 0.3 m high within 0.1 m."""

    def height(self, x, y):
        return 0.15 * (1.0 + jnp.tanh(x / 0.05))


@pytest.mark.parametrize("kind", ["disc", "sphere"])
def test_a_step_ahead_leaves_no_margin(kind):
    center, axle = vector((0.0, 0.0, 0.5)), vector((0.0, 1.0, 0.0))

    @jax.jit
    def margins(x):
        at = dataclasses.replace(center, x=x)
        disc, ball = rim_contact(Step(), at, axle, 0.5), ball_contact(Step(), at, 0.5)
        return (
            disc.margin,
            rim_margin(Step(), at, axle, 0.5, disc),
            ball.margin,
            ball_margin(Step(), at, 0.5, ball),
        )

    for x in (-0.6, -0.35, -0.2):
        # How deep the rim is in the step at its deepest: the ground below the wheel does not know of it.
        s = np.linspace(-0.499, 0.499, 4001)
        depth = np.max(0.15 * (1.0 + np.tanh((x + s) / 0.05)) - (0.5 - np.sqrt(0.25 - s * s)))
        local, found = margins(jnp.asarray(x))[:2] if kind == "disc" else margins(jnp.asarray(x))[2:]
        assert local > 0.9
        if depth < 1e-6:
            assert found == local
        else:
            # So many places see most of it.
            assert -depth / 0.5 <= found < -0.5 * depth / 0.5


def test_a_disc_that_nearly_lies_flat_meets_a_step_at_its_other_side():
    center, axle = vector((-0.45, 0.0, 0.5 * np.sin(0.1))), vector((-np.sin(0.1), 0.0, np.cos(0.1)))
    contact = rim_contact(Step(), center, axle, 0.5)
    np.testing.assert_allclose(
        contact.place.array(), [-0.45 - 0.5 * np.cos(0.1), 0.0, 0.0], rtol=0, atol=1e-12
    )
    gap = 2.0 * 0.5 * np.sin(0.1) - 0.15 * (1.0 + np.tanh((-0.45 + 0.5 * np.cos(0.1)) / 0.05))
    assert gap / 0.5 <= rim_margin(Step(), center, axle, 0.5, contact) < 0.8 * gap / 0.5 < 0.0


WRONG = {
    "normal must be three numbers (x, y, z) with z > 0": jv.Plane((1.0, 0.0, 0.0)),
    "must be lists of equal length": jv.Hills([0.1, 0.2], [1.0], [0.0], [0.0]),
    "radius must be a nonzero number": jv.Cylinder(0.0),
    "axis must be two numbers (x, y) that are not both zero": jv.Cylinder(1.0, (0.0, 0.0)),
    "must be a table (nx, ny) of at least 2 x 2 heights, got shape (4,)": jv.HeightMap(
        [0.0, 1.0, 2.0, 3.0], 1.0
    ),
    "z has 2 of 9 non-finite heights, the first at [0, 1]": jv.HeightMap(
        [[0.0, np.nan, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, np.inf]], 1.0
    ),
    "spacing must be a positive number": jv.HeightMap(np.zeros((3, 3)), 0.0),
    "origin must be two numbers": jv.HeightMap(np.zeros((3, 3)), 1.0, 0.0),
    "offset must be finite numbers": jv.Plane(offset=np.nan),
    "offset must be one number": jv.Plane(offset=(0.0, 1.0)),
    "contains a non-numeric value": jv.Hills(["high"], [1.0], [0.0], [0.0]),
    "must be a terrain, such as Plane() or HeightMap(z, spacing), got 3.0": 3.0,
    "got <class": jv.Plane,
}


@all_cases("message", WRONG)
def test_what_is_wrong_with_a_terrain_is_said_in_words(message):
    with pytest.raises(ValueError, match="terrain") as error:
        check_terrain("here", WRONG[message])
    assert message in str(error.value)
    disc = js.RollingDisc(
        "tire", "ground", "wheel", (0, 1, 0), point_b=(0, 0, 0), radius=0.3, terrain=WRONG[message]
    )
    with pytest.raises(ValueError, match="'tire': terrain") as error:
        jm.spatial_mechanism([js.Body("wheel", 1.0, (1.0, 1.0, 1.0))], [disc])
    assert message in str(error.value)
    assert "beside" not in str(error.value)  # Of a terrain that is none nobody knows where it ends.


@pytest.mark.parametrize(
    "terrain", [jv.Hills([0.1, 0.2], [1.0], [0.0], [0.0]), jv.HeightMap(np.zeros((3, 3)), (1.0, -0.5))]
)
def test_heights_are_refused_of_numbers_that_make_no_surface(terrain):
    with pytest.raises(ValueError, match=r"lists of equal length|spacing must be a positive number"):
        terrain.height(0.1, 0.2)


def test_wheels_that_cannot_be_are_named():
    joints = [
        js.RollingDisc("left", "ground", "wheel", (0, 0, 0), (9.0, 9.0, 0.0), radius=0.0, terrain=MAP),
        js.RollingSphere("right", "ground", "wheel", (9.0, 9.0, 0.0), radius=-1.0, terrain=MAP),
    ]
    with pytest.raises(ValueError, match="radius") as error:
        jm.spatial_mechanism([js.Body("wheel", 1.0, (1.0, 1.0, 1.0))], joints)
    for part in (
        "joint 'left': axis must be three numbers that are not all zero",
        "joint 'left': radius must be positive, got 0.0",
        "joint 'left': starts at [9.0, 9.0], outside the terrain",
        "joint 'right': radius must be positive, got -1.0",
    ):
        assert part in str(error.value)


def test_a_disc_that_lies_flat_is_named_and_touches_all_around():
    lying = js.RollingDisc(
        "coin",
        "ground",
        "wheel",
        (0.2, -0.1, 1.0),
        point_b=(0, 0, 0),
        radius=0.3,
        terrain=jv.Plane((0.2, -0.1, 1.0)),
    )
    with pytest.raises(ValueError, match="joint 'coin': lies flat on the terrain"):
        jm.spatial_mechanism([js.Body("wheel", 1.0, (1.0, 1.0, 1.0))], [lying])
    with pytest.raises(
        ValueError, match=r"radius must be a finite number, got None.*terrain must be a terrain"
    ):
        jm.spatial_mechanism(
            [js.Body("wheel", 1.0, (1.0, 1.0, 1.0))],
            [js.RollingDisc("coin", "ground", "wheel", (0, 1, 0), point_b=(0, 0, 0))],
        )
    # Where it comes to lie flat later the margin says so, as on hills.
    assert rim_contact(jv.Plane(), vector((0.0, 0.0, 0.0)), vector((0.0, 0.0, 1.0)), 0.3).margin < 0.0
