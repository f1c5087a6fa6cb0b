"""Vehicles that stand on terrain, and the rover: poses, velocities and slip of published problems, closed
forms, and messages.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from terrain_references import file

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

JOINTS = ("left_rocker", "left_bogie", "right_rocker", "right_bogie")


@functools.cache
def hills():
    given = file("rover_pose_hills")["model"]["terrain"]
    return jv.Hills(
        *(jnp.array([float(x) for x in given[key]]) for key in ("amplitudes", "kx", "ky", "phase"))
    )


@functools.cache
def rover():
    return jm.mechanism(jv.rocker_bogie(hills()), jm.Joints())


def on(terrain):
    """Returns the rover on another terrain; its group keeps its name."""
    return jm.mechanism(jv.rocker_bogie(terrain), jm.Joints())


def seen(mechanism, q):
    """Returns (x, y, z, yaw, pitch, roll, D1, B1, D2, B2), the coordinates of the files."""
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    turned = jnp.arctan2(frame.r21, frame.r11), jnp.arcsin(-frame.r31), jnp.arctan2(frame.r32, frame.r33)
    names = mechanism.names.coordinates
    return jnp.stack(
        [frame.x, frame.y, frame.z, *turned, *(q[names.index(f"{name}.angle")] for name in JOINTS)]
    )


def placed(mechanism, q, at, yaw):
    return jv.place_on_terrain(mechanism, q, at, yaw, suspension=jv.ROVER_SUSPENSION)


@pytest.mark.long
def test_poses_on_hills():
    mechanism, q = rover()
    for case in file("rover_pose_hills")["reference"]["cases"]:
        expected = np.array(case["q"])
        x, report = placed(mechanism, q, expected[:2], expected[3])
        np.testing.assert_allclose(seen(mechanism, x), expected, rtol=0, atol=1e-14)
        assert report.status == jd.Status.OK
        assert report.norm < 1e-15
        assert np.all(report.inside & (report.margin > 0.9))


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in (1, 2, 3, 4))]
)
def test_poses_in_closed_form(number):
    case = file("rover_pose_closed")["reference"]["cases"][number]
    ground, expected = case["terrain"], np.array(case["q"])
    if ground["type"] == "plane":
        terrain = jv.Plane(tuple(float(np.squeeze(x)) for x in ground["normal"]))
    else:
        terrain = jv.Cylinder(
            ground["radius"],
            (0.0, 1.0) if ground["axis"] == "y" else (1.0, 0.0),
            (0.0, 0.0, -ground["radius"]),
        )
    mechanism, q = on(terrain)
    x, report = placed(mechanism, q, expected[:2], expected[3])
    np.testing.assert_allclose(seen(mechanism, x), expected, rtol=0, atol=1e-13)
    assert report.status == jd.Status.OK


@pytest.mark.long
def test_drive_over_hills_with_least_slip():
    given = file("rover_drive_hills")
    mechanism, q = rover()
    start = np.array(given["initial_conditions"]["q"])
    q = placed(mechanism, q, start[:2], start[3])[0]
    system = jv.LeastSlip(mechanism, tuple(f"{name}.angle_rate" for name in jv.ROVER_WHEELS))
    u = jnp.asarray(given["parameters"]["wheel_spin_rates"])
    # Ours: lateral, rolling of a wheel; theirs: rolling, lateral.
    order = np.arange(12).reshape(6, 2)[:, ::-1].reshape(-1)
    moved = jax.jit(system.motion)
    v, slip = moved(jnp.zeros(()), q, u)
    np.testing.assert_allclose(np.array(slip)[order], given["reference"]["slip_at_start"], rtol=0, atol=1e-14)
    np.testing.assert_allclose(jnp.linalg.norm(slip), given["reference"]["slip_norm"], rtol=0, atol=1e-15)
    assert [system.slip_names[k] for k in order[:2]] == [
        "front_left_contact.rolling",
        "front_left_contact.lateral",
    ]
    # RK4 in the tangent space of the start of each step, by the method of Munthe-Kaas to this order.
    step = jax.jit(lambda s, state: jd.Kinematic.rk4().step(s, state, (), u, 0.05)[0])
    state = jd.State(jnp.zeros(()), q, v)
    for expected in given["reference"]["states"][1:]:
        for _ in range(20):
            state = step(system, state)
        np.testing.assert_allclose(seen(mechanism, state.q), expected["q"], rtol=0, atol=1e-9)


def car(terrain, places, height=0.5):
    """Returns a body with points to stand on below it."""
    wheels = [
        js.SlidingSphere(
            f"point_{k}", "ground", "base_link", point_b=(*place, -height), radius=1e-12, terrain=terrain
        )
        for k, place in enumerate(places)
    ]
    return jm.spatial_mechanism([js.Body("base_link", 1.0, (1.0, 1.0, 1.0))], wheels, coordinates=jm.Joints())


def pose(mechanism, q):
    """Returns z, roll and pitch."""
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    return np.array([frame.z, jnp.arctan2(frame.r32, frame.r33), jnp.arcsin(-frame.r31)])


@jd.tree.pytree
class Dome(jv.Terrain):
    """A sphere of radius 10 about the origin 10 m below."""

    def height(self, x, y):
        return jnp.sqrt(100.0 - x * x - y * y) - 10.0


@jd.tree.pytree
class Saddle(jv.Terrain):
    k: float

    def height(self, x, y):
        return self.k * x * y


FOUR = [(1.0, 0.6), (1.0, -0.6), (-1.0, 0.6), (-1.0, -0.6)]


@pytest.mark.long
@pytest.mark.parametrize(
    "places", [FOUR[:3], pytest.param(FOUR, marks=pytest.mark.exhaustive)], ids=["three", "four"]
)
def test_points_on_a_plane_stand_as_the_plane_lies(places):
    normal = np.array([-0.2, 0.1, 1.0])
    mechanism, q = car(jv.Plane(tuple(normal), 0.3 / np.linalg.norm(normal)), places)
    x, report = jv.place_on_terrain(mechanism, q, jnp.array([1.0, 2.0]), 0.7)
    np.testing.assert_allclose(pose(mechanism, x), [0.81234754, -0.20174513, -0.08831633], rtol=0, atol=5e-9)
    assert report.norm < 1e-14
    assert report.status == jd.Status.OK


@pytest.mark.exhaustive
def test_four_points_on_a_dome_and_on_a_saddle():
    mechanism, q = car(Dome(), FOUR)
    x, report = jv.place_on_terrain(mechanism, q, jnp.array([3.0, -2.0]), 0.7)
    np.testing.assert_allclose(pose(mechanism, x)[0], -0.21114066, rtol=0, atol=5e-9)
    assert report.norm < 1e-14
    mechanism, q = car(Saddle(0.15), FOUR)
    x, report = jv.place_on_terrain(mechanism, q, jnp.zeros(2), 0.0)
    # Spheres of 1e-12 m stand for points.
    np.testing.assert_allclose(pose(mechanism, x), [0.5, 0.0, 0.0], rtol=0, atol=2e-12)
    # k L W / 4 under each wheel: what is left of four contacts of a rigid body.
    np.testing.assert_allclose(report.gap, [-0.09, 0.09, 0.09, -0.09], rtol=0, atol=1e-14)
    np.testing.assert_allclose(report.norm, 0.18, rtol=0, atol=1e-14)
    assert report.names == ("point_0", "point_1", "point_2", "point_3")


# The next test has derivatives of poses without gaps.
@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [1, 2])
def test_placement_is_differentiable_where_gaps_are_left(order):
    def found(p):
        k, x = p
        mechanism, q = car(Saddle(k), FOUR)
        q, report = jv.place_on_terrain(mechanism, q, jnp.stack([x, jnp.asarray(-0.1)]), 0.3)
        return q[2] + report.norm

    # Value, gradient in reverse mode, derivative in forward mode, and that of the gradient, in one program.
    @jax.jit
    @jax.vmap
    def derivatives(p, d):
        if order == 1:
            return *jax.value_and_grad(found)(p), jax.jvp(found, (p,), (d,))[1]
        (value, slope), (along, bent) = jax.jvp(jax.value_and_grad(found), (p,), (d,))
        return value, slope, along, bent

    # Worlds with gaps, one without and one that is not a number; along each of the two numbers.
    worlds, step = jnp.array([[0.15, 0.2], [0.0, 0.3], [np.nan, 0.2], [-0.1, 0.4]]), 1e-5
    curved = np.array([0, 3])
    for k in range(2):
        d = jnp.broadcast_to(jnp.eye(2)[k], worlds.shape)
        _, slope, along, *bent = derivatives(worlds, d)
        behind, ahead = (derivatives(worlds + side * step * d, d) for side in (-1, 1))
        for i, rate in enumerate((along, *bent)):
            difference = (ahead[i] - behind[i]) / (2.0 * step)
            np.testing.assert_allclose(rate[curved], difference[curved], rtol=0, atol=1e-8)
        np.testing.assert_allclose(slope[curved, k], along[curved], rtol=0, atol=1e-14)
        assert np.all(np.isfinite(slope[1]))
        assert np.all(np.isnan(slope[2]))


@pytest.mark.long
def test_standing_and_moving_on_hills_are_differentiable_at_right_angles_and_at_rest():
    """A tricycle with a steered front wheel: pose and least slip by height of hills, place, heading, steering
    and spins.
    """
    wheels = {
        "left": ("base_link", (-0.4, 0.5)),
        "right": ("base_link", (-0.4, -0.5)),
        "front": ("fork", (0.6, 0.0)),
    }
    up, axle = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)

    def loss(p):
        terrain = jv.Hills(
            jnp.stack([p[0], 0.5 * p[0]]),
            jnp.array([1.1, -0.7]),
            jnp.array([0.6, 1.9]),
            jnp.array([0.3, 1.0]),
        )
        bodies = [js.Body(name, 1.0, (0.1, 0.1, 0.1)) for name in ("base_link", "fork", *wheels)]
        joints = [
            js.Revolute("kingpin", "base_link", "fork", up, point_a=(0.6, 0.0, 0.0), point_b=(0.0, 0.0, 0.0))
        ]
        for name, (carrier, place) in wheels.items():
            at = (0.0, 0.0, -0.1) if carrier == "fork" else (*place, -0.1)
            joints.append(
                js.Revolute(f"{name}_hub", carrier, name, axle, point_a=at, point_b=(0.0, 0.0, 0.0))
            )
            joints.append(
                js.RollingDisc(
                    f"{name}_contact",
                    "ground",
                    name,
                    axle,
                    point_b=(0.0, 0.0, 0.0),
                    radius=0.2,
                    terrain=terrain,
                )
            )
        mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
        q = q.at[mechanism.names.coordinates.index("kingpin.angle")].set(p[4])
        q, _ = jv.place_on_terrain(mechanism, q, p[1:3], p[3])
        driven = "kingpin.angle_rate", "left_hub.angle_rate", "front_hub.angle_rate"
        v, slip = jv.LeastSlip(mechanism, driven).motion(jnp.zeros(()), q, p[5:])
        seen = jnp.concatenate([q, v, slip])
        return np.sin(1.0 + np.arange(seen.size)) @ seen

    found = jax.jit(jax.value_and_grad(loss))
    for angle, rates in (
        (0.5 * np.pi, (0.0, 0.0, 0.0)),
        (0.5 * np.pi, (0.3, 2.0, -1.0)),
        (0.0, (0.0, 3.0, 3.0)),
    ):
        p = jnp.array([0.1, 0.3, -0.4, 0.5, angle, *rates])
        differences = [(found(p + d)[0] - found(p - d)[0]) / 2e-5 for d in 1e-5 * np.eye(p.size)]
        np.testing.assert_allclose(found(p)[1], differences, rtol=1e-7, atol=1e-7)


@pytest.mark.long
def test_bodies_in_absolute_coordinates_are_not_placed():
    """Their wheels would stay where they are."""
    mechanism, q = jm.mechanism(jv.rocker_bogie())
    with pytest.raises(ValueError, match="mechanism must be in joint coordinates"):
        jv.place_on_terrain(mechanism, q, jnp.zeros(2), 0.0)


@pytest.mark.long
def test_what_cannot_be_placed_is_named():
    mechanism, q = car(jv.HeightMap(jnp.zeros((4, 4)), 1.0, (-1.5, -1.5)), FOUR)
    _, report = jv.place_on_terrain(mechanism, q, jnp.array([1.0, 0.0]), 0.0)
    assert report.status == jd.Status.OFF_TERRAIN
    assert list(report.inside) == [False, False, True, True]
    cases = [
        (lambda: jv.place_on_terrain(mechanism, q, jnp.zeros(3), 0.0), "place must have shape (2,)"),
        (
            lambda: jv.place_on_terrain(mechanism, q, jnp.zeros(2), 0.0, body="base"),
            "did you mean 'base_link'?",
        ),
        (
            lambda: jv.place_on_terrain(mechanism, q, jnp.zeros(2), 0.0, suspension=("arm",)),
            "joints with one coordinate each, got 'arm'",
        ),
        (
            lambda: jv.terrain_report(jm.spatial_mechanism([js.Body("b", 1.0, (1, 1, 1))], [])[0], q),
            "no wheels on terrain",
        ),
        (lambda: jv.rocker_bogie(jv.Cylinder(0.0)), "terrain radius must be a nonzero number"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match="terrain") as error:
            call()
        assert message in str(error.value)
    system = jv.LeastSlip(mechanism, ("base_link.vz",))
    with pytest.raises(ValueError, match=r"u must have shape \(1,\)"):
        system.motion(jnp.zeros(()), q, jnp.zeros(2))
    # Three velocities of the ground plane are free: with one of them driven the others are not determined.
    three = car(jv.Plane(), FOUR[:3])[0]
    free = ("base_link.vx", "base_link.vy", "base_link.omega_z")
    for driven, expected in ((free[:1], jd.Status.SINGULAR), (free, jd.Status.OK)):
        assert (
            int(jv.LeastSlip(three, driven).rate_status(jnp.zeros(()), q, jnp.ones(len(driven)))) == expected
        )
    assert (
        int(jv.LeastSlip(three, free).rate_status(jnp.zeros(()), q * jnp.nan, jnp.ones(3))) == jd.Status.OK
    )  # NaN speaks for itself.
    # Heights of four wheels on a rigid body depend on each other, for which there are other solvers.
    four = car(jv.Plane(), FOUR)[0]
    for solver, expected in ((jd.SchurComplement(), jd.Status.SINGULAR), (jd.LeastSquares(), jd.Status.OK)):
        assert int(jv.LeastSlip(four, free, solver).rate_status(jnp.zeros(()), q, jnp.ones(3))) == expected
    with pytest.raises(ValueError, match="each velocity must appear once"):
        jv.LeastSlip(three, ("base_link.vx", "base_link.vx")).motion(jnp.zeros(()), q, jnp.ones(2))
    with pytest.raises(ValueError, match=r"no velocity 'base_link\.v'"):
        jv.LeastSlip(mechanism, ("base_link.v",)).motion(jnp.zeros(()), q, jnp.zeros(1))
