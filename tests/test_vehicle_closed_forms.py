"""Vehicles on terrain by closed forms: tracks, hills, suspensions, and planes, on which every result is that
seen from above.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js

UP, LEFT, NONE = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)


@jd.tree.pytree
class Saddle(jv.Terrain):
    k: float

    def height(self, x, y):
        return self.k * x * y


POINT = 1e-12
"""The radius in m of spheres that stand for points; as much higher bodies stand."""


def point(name, body, place, terrain):
    """Returns a point of a body that stands on the ground."""
    return js.SlidingSphere(name, "ground", body, point_b=place, radius=POINT, terrain=terrain)


def standing(terrain, places, height, at, yaw=0.0):
    """Returns z, roll and pitch of a body on points at a height below it, and the report."""
    joints = [point(f"point_{k}", "base_link", (*place, -height), terrain) for k, place in enumerate(places)]
    mechanism, q = jm.spatial_mechanism(
        [js.Body("base_link", 1.0, (1.0, 1.0, 1.0))], joints, coordinates=jm.Joints()
    )
    q, report = jv.place_on_terrain(mechanism, q, jnp.asarray(at), yaw)
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    return np.array([frame.z, jnp.arctan2(frame.r32, frame.r33), jnp.arcsin(-frame.r31)]), report


@pytest.mark.long
def test_a_track_of_waves_pitches_and_lifts_a_vehicle_as_its_wheelbase_says():
    waves = jv.Hills([0.1], [2.0], [0.0], [0.0])  # z = 0.1 sin(2 x)
    places = [(0.5, 0.3), (0.5, -0.3), (-0.5, 0.0)]
    # Nose up is a negative pitch. Amid two wheels 1 m apart the body is not on the ground: sin(pitch) = 0.2
    # sin(cos(pitch)).
    pose, report = standing(waves, places, 0.0, (0.0, 0.4))
    np.testing.assert_allclose(pose, [0.0, 0.0, -0.167547350], rtol=0, atol=5e-10)
    assert report.norm < 1e-15
    pose, report = standing(waves, places, 0.0, (0.25 * np.pi, 0.4))
    np.testing.assert_allclose(pose, [0.1 * np.cos(1.0), 0.0, 0.0], rtol=0, atol=2 * POINT)
    np.testing.assert_allclose(pose[0], 0.054030231, rtol=0, atol=5e-10)
    assert report.norm < 1e-15


@pytest.mark.exhaustive
def test_a_square_vehicle_stands_across_a_saddle_without_gaps():
    places = [(0.5, 0.5), (0.5, -0.5), (-0.5, 0.5), (-0.5, -0.5)]
    pose, report = standing(Saddle(0.15), places, 0.4, (0.0, 0.0), 0.25 * np.pi)
    np.testing.assert_allclose(pose, [0.4, 0.0, 0.0], rtol=0, atol=2 * POINT)
    assert report.norm < 1e-14


@pytest.mark.long
def test_arms_of_a_suspension_close_the_gaps_that_a_saddle_leaves():
    k, length, width, height = 0.15, 2.0, 1.2, 0.5
    ground = Saddle(k)
    bodies, joints = [js.Body("base_link", 1.0, (1.0, 1.0, 1.0))], []
    for arm, y in (("left", 0.5 * width), ("right", -0.5 * width)):
        bodies.append(js.Body(arm, 1.0, (1.0, 1.0, 1.0)))
        joints.append(js.Revolute(arm, "base_link", arm, LEFT, point_a=(0.0, y, -height), point_b=NONE))
        joints += [
            point(f"{arm}_{end}", arm, (x, 0.0, 0.0), ground)
            for end, x in (("front", 0.5 * length), ("rear", -0.5 * length))
        ]
    joints.append(js.Relation("differential", "left", "right", (0.0, -1.0), 0.0, 0.0))
    mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    q, report = jv.place_on_terrain(mechanism, q, jnp.zeros(2), 0.0, suspension=("left", "right"))
    assert report.norm < 1e-15
    assert report.status == jd.Status.OK
    angles = [q[mechanism.names.coordinates.index(f"{arm}.angle")] for arm in ("left", "right")]
    # The ground rises by k W / 2 a meter on the left and falls so on the right; a front that goes up is a
    # negative angle.
    np.testing.assert_allclose(np.tan(angles), [-0.5 * k * width, 0.5 * k * width], rtol=0, atol=1e-14)
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    np.testing.assert_allclose(
        [frame.z, frame.r11, frame.r22, frame.r33], [height, 1.0, 1.0, 1.0], rtol=0, atol=2 * POINT
    )


@pytest.mark.exhaustive
def test_a_wheel_over_a_round_hill_turns_by_the_way_of_its_center():
    rho, r = 2.0, 0.5
    start = (rho + r) * np.array([-np.sqrt(0.5), 0.0, np.sqrt(0.5)])
    bodies = [js.Body(name, place=start) for name in ("across", "up", "wheel")]
    joints = [
        js.Prismatic("x", "ground", "across", (1.0, 0.0, 0.0), at=start),
        js.Prismatic("z", "across", "up", UP, at=start),
        js.Revolute("hub", "up", "wheel", LEFT, at=start),
        js.RollingDisc("road", "ground", "wheel", LEFT, at=start, radius=r, terrain=jv.Cylinder(rho)),
    ]
    description = jm.Description(
        space=jm.SPACE, bodies=bodies, joints=joints, drives=[jm.JointRate("motor", "hub")]
    )
    system, q = jm.kinematic_mechanism(description, jm.Joints())
    turns = 0.5 * np.pi * (rho + r) / r
    np.testing.assert_allclose(turns, 7.853982, rtol=0, atol=5e-7)
    # Held upright it does not slip sideways: the lateral row says nothing new.
    method, still = jd.Kinematic.rk4(solver=jd.LeastSquares()), jnp.zeros(3)
    run = jd.rollout(
        system, method, jd.State(0.0, q, still), jnp.full((200, 1), turns), dt=5e-3, save_every=200
    )
    jd.raise_if_failed(run.info)
    frame = jax.tree.map(lambda x: x[-1], system.mechanism.frames(run.state.q[-1]))
    # From 45 degrees before the top to 45 degrees behind it: a quarter of the hill. By arc over radius it
    # would be 6.283185.
    np.testing.assert_allclose([frame.x, frame.z], [-start[0], start[2]], rtol=0, atol=1e-9)


def on_discs(terrain, radius=0.1, steering=0.0):
    """Returns a body with four wheels on terrain, 1 m by 0.8 m, the front ones turned by an angle; their
    names and its start.
    """
    names = {
        "front_left": (0.5, 0.4),
        "front_right": (0.5, -0.4),
        "rear_left": (-0.5, 0.4),
        "rear_right": (-0.5, -0.4),
    }
    bodies, joints = [js.Body("base_link", 1.0, (1.0, 1.0, 1.0))], []
    for name, place in names.items():
        angle = steering if name.startswith("front") else 0.0
        axle = (-np.sin(angle), np.cos(angle), 0.0)
        bodies.append(js.Body(name, 1.0, (1.0, 1.0, 1.0)))
        joints.append(
            js.Revolute(f"{name}_hub", "base_link", name, axle, point_a=(*place, 0.0), point_b=NONE)
        )
        joints.append(
            js.RollingDisc(
                f"{name}_contact", "ground", name, axle, point_b=NONE, radius=radius, terrain=terrain
            )
        )
    mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    return tuple(names), jnp.asarray(list(names.values())), mechanism, q


@pytest.mark.long
@pytest.mark.parametrize(
    "normal", [pytest.param(UP, marks=pytest.mark.exhaustive), (0.2, -0.1, 1.0)], ids=["level", "slope"]
)
def test_least_slip_on_a_plane_is_the_least_residual_of_wheels_seen_from_above(normal):
    names, places, mechanism, q = on_discs(jv.Plane(normal), steering=0.3)
    q, report = jv.place_on_terrain(mechanism, q, jnp.asarray([1.0, 2.0]), 0.7)
    assert report.norm < 1e-14
    rates = jnp.asarray([4.0, 6.0, 4.5, 6.5])
    system = jv.LeastSlip(mechanism, tuple(f"{name}_hub.angle_rate" for name in names), jd.LeastSquares())
    v, slip = system.motion(jnp.zeros(()), q, rates)
    frame, twist = (jax.tree.map(lambda x: x[0], x) for x in (mechanism.frames(q), mechanism.twists(q, v)))
    found = (
        frame.components_of(jnp.stack([twist.x, twist.y, twist.z])),
        frame.components_of(twist.omega_world(frame).array()),
    )
    wheels = jv.wheels(places, steering=[0.3, 0.3, 0.0, 0.0], radius=0.1, names=names)
    expected, seen = jv.body_twist(wheels, rates)
    np.testing.assert_allclose(
        np.concatenate(found), [expected[0], expected[1], 0.0, 0.0, 0.0, expected[2]], rtol=0, atol=1e-13
    )
    np.testing.assert_allclose(slip.reshape(4, 2)[:, ::-1], seen.slip, rtol=0, atol=1e-13)
