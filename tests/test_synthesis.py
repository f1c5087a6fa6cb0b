"""Dimensional synthesis against closed forms of precision poses, and transmission angles against the cosine
law.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import kinematics as jk
from jaxdae import mechanisms as jm
from jaxdae.kinematics.geometric_parameters import corrected, joint_parameter, nominal_values
from jaxdae.mechanisms import spatial as js


def turned(angle, length=1.0):
    return length * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def closed(crank, a, b, c, d):
    """Returns the angles of coupler and rocker of a four-bar, with the coupler pin on the left of the diagonal."""
    diagonal = np.array([d, 0.0]) - turned(crank, a)
    size, turn = np.linalg.norm(diagonal, axis=-1), np.arctan2(diagonal[..., 1], diagonal[..., 0])
    coupler = turn + np.arccos((b**2 + size**2 - c**2) / (2.0 * b * size))
    pin = turned(crank, a) + turned(coupler, b) - np.array([d, 0.0])
    return coupler, np.arctan2(pin[..., 1], pin[..., 0])


def four_bar(a, b, c, d, crank=1.0, coordinates=None):
    """Returns a four-bar with the joints A, B, C and D, and its coordinates."""
    coupler, rocker = closed(crank, a, b, c, d)
    pins = {"A": np.zeros(2), "B": turned(crank, a), "D": np.array([d, 0.0])}
    pins["C"] = pins["D"] + turned(rocker, c)
    bodies = [
        jm.Body(name, 1.0, 1.0, (*(pins[first] + pins[last]) / 2.0, turn))
        for name, first, last, turn in (
            ("crank", "A", "B", crank),
            ("coupler", "B", "C", coupler),
            ("rocker", "D", "C", rocker),
        )
    ]
    ends = {"A": (jm.GROUND, "crank"), "B": ("crank", "coupler"), "D": (jm.GROUND, "rocker")}
    joints = [
        jm.Revolute(name, *ends.get(name, ("coupler", "rocker")), at=tuple(at)) for name, at in pins.items()
    ]
    return jm.planar_mechanism(bodies, joints, coordinates=coordinates or jm.Joints(cut=["C"]))


@pytest.mark.parametrize("form", [jm.Absolute(), jm.Joints(cut=["C"])])
def test_transmission_angle_follows_the_cosine_law(form):
    a, b, c, d = 0.3, 0.9, 0.8, 1.0
    crank = np.linspace(-np.pi, np.pi, 12, endpoint=False)

    def coordinates(crank):
        coupler, rocker = closed(crank, a, b, c, d)
        if isinstance(form, jm.Joints):
            return np.stack([crank, rocker, coupler - crank], axis=1)
        middles = (
            turned(crank, a / 2.0),
            turned(crank, a) + turned(coupler, b / 2.0),
            turned(rocker, c / 2.0) + np.array([d, 0.0]),
        )
        return np.column_stack([middles[0], crank, middles[1], coupler, middles[2], rocker])

    linkage, _ = four_bar(a, b, c, d, coordinates=form)
    angle = jax.vmap(lambda q: jk.transmission_angle(linkage, q, ("B", "C", "D")))
    rates = (coordinates(crank + 1e-6) - coordinates(crank - 1e-6)) / 2e-6
    found, slope = jax.jit(lambda *x: jax.jvp(angle, x[:1], x[1:]))(coordinates(crank), rates)
    expected = np.arccos((b**2 + c**2 - a**2 - d**2 + 2.0 * a * d * np.cos(crank)) / (2.0 * b * c))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    np.testing.assert_allclose(slope, a * d * np.sin(crank) / (b * c * np.sin(expected)), atol=1e-8)


def test_transmission_angle_in_space_and_its_errors():
    places = np.array([[0.0, 0.1, 0.2], [0.5, 0.4, -0.1], [0.9, -0.3, 0.6]])
    bodies = [js.Body(f"link{k}", 1.0, (1.0, 1.0, 1.0), place=tuple(places[k])) for k in range(3)]
    ends = (jm.GROUND, "link0", "link1", "link2")
    joints = [js.Ball(f"ball{k}", ends[k], ends[k + 1], at=tuple(places[k])) for k in range(3)]
    chain, q = (
        js.spatial_mechanism(bodies, joints)
        if hasattr(js, "spatial_mechanism")
        else jm.spatial_mechanism(bodies, joints)
    )
    u, w = places[0] - places[1], places[2] - places[1]
    expected = np.arccos(u @ w / np.linalg.norm(u) / np.linalg.norm(w))
    balls = ("ball0", "ball1", "ball2")
    np.testing.assert_allclose(jk.transmission_angle(chain, q, balls), expected, rtol=1e-14)
    with pytest.raises(ValueError, match="'ball9' is not a joint with a point; available: ball0"):
        jk.transmission_angle(chain, q, ("ball0", "ball1", "ball9"))
    with pytest.raises(ValueError, match="'ball1' coincides with another joint"):
        jk.transmission_angle(chain, q, ("ball0", "ball1", "ball1"))
    with pytest.raises(ValueError, match="names of three joints"):
        jk.transmission_angle(chain, q, ("ball0", "ball1"))


TRUE, POINT = (0.35, 0.8, 0.9, 1.1), (0.1, 0.3)
CRANKS = np.linspace(0.5, 6.0, 5)


@functools.cache
def path():
    """Returns designs whose coupler passes five points of the curve of a known four-bar."""
    coupler, _ = closed(CRANKS, *TRUE)
    x, y = np.array(POINT) + np.array([TRUE[1] / 2.0, 0.0])
    points = turned(CRANKS, TRUE[0]) + turned(coupler, x) + turned(coupler + np.pi / 2.0, y)
    linkage, start = four_bar(0.3, 0.9, 0.8, 1.0)
    bounds = {
        "joints.A.point_a": (-0.4, 0.4),
        "joints.D.point_a": ((0.6, -0.4), (1.4, 0.4)),
        "joints.B.point_a.x": (0.05, 0.4),
        "joints.B.point_b": ((-1.0, -0.8), (0.1, 0.2)),
        "joints.C.point_a": ((-0.1, -0.8), (1.0, 0.2)),
        "joints.C.point_b.x": (0.2, 0.8),
    }
    return points, jk.synthesize(
        linkage, jk.PoseTarget("coupler", position=points), bounds, start, "A", starts=48
    )


@pytest.mark.long
def test_coupler_passes_points_of_a_known_curve():
    points, found = path()
    reached = np.asarray(found.status == jd.Status.OK)
    assert reached[0]
    assert reached.sum() > 24
    np.testing.assert_allclose(found.error[reached], 0.0, atol=1e-12)
    assert np.all(np.diff(np.asarray(found.order_defect, int)) >= 0)
    for k in np.flatnonzero(reached):
        x = dict(zip(found.names, np.asarray(found.parameters[k]), strict=True))
        pair = lambda name, x=x: np.array([x[f"{name}.x"], x[f"{name}.y"]])  # noqa: E731
        crank, rocker, relative = np.asarray(found.state.q[k]).T
        rotation = np.stack([turned(crank + relative), turned(crank + relative + np.pi / 2.0)], axis=-1)
        # Half of the links of the nominal mechanism are on the other sides of their mass centers.
        b = pair("joints.A.point_a") + turned(crank, 0.15 + x["joints.B.point_a.x"])
        c = pair("joints.D.point_a") + turned(rocker, 0.4 + x["joints.C.point_b.x"])
        np.testing.assert_allclose(b - rotation @ pair("joints.B.point_b"), points, atol=1e-12)
        np.testing.assert_allclose(c - rotation @ pair("joints.C.point_a"), points, atol=1e-12)


def in_order(crank):
    steps = np.mod(np.diff(crank, append=crank[:1]), 2.0 * np.pi).sum() / (2.0 * np.pi)
    return round(steps) in (1, len(crank) - 1)


@pytest.mark.long
def test_defects_of_crank_rockers_are_exact():
    """The sine of the transmission angle has one sign on each of the two circuits of a crank-rocker."""
    _, found = path()
    seen = []
    for k in np.flatnonzero(np.asarray(found.status == jd.Status.OK)):
        x = dict(zip(found.names, np.asarray(found.parameters[k]), strict=True))
        pair = lambda name, x=x: np.array([x[f"{name}.x"], x[f"{name}.y"]])  # noqa: E731
        ground = np.linalg.norm(pair("joints.D.point_a") - pair("joints.A.point_a"))
        arm = pair("joints.C.point_a") - pair("joints.B.point_b")
        crank, coupler = 0.15 + x["joints.B.point_a.x"], np.linalg.norm(arm)
        lengths = sorted([crank, coupler, 0.4 + x["joints.C.point_b.x"], ground])
        if crank > lengths[0] or lengths[0] + lengths[3] > lengths[1] + lengths[2]:
            continue
        first, rocker, relative = np.asarray(found.state.q[k]).T
        sine = np.sin(rocker - (first + relative + np.arctan2(arm[1], arm[0])))
        one = bool(np.all(sine > 0.0) or np.all(sine < 0.0))
        assert bool(found.branch_defect[k]) == (not one)
        assert bool(found.order_defect[k]) == (not (one and in_order(first)))
        seen.append((one, in_order(first)))
    assert {True, False} <= {one for one, _ in seen}


@pytest.mark.long
def test_motion_of_a_coupler_has_burmester_points():
    """Three poses determine the fixed pivot of a rod: the circumcenter of the positions of its moving pin."""
    places, turns = np.array([[0.0, 1.0], [0.4, 1.1], [0.7, 0.8]]), np.array([0.1, -0.3, -0.8])
    pins = np.array([[-0.3, 0.1], [0.35, -0.05]])
    feet = np.array([[-0.2, 0.1], [0.8, 0.0]])
    coupler = jm.Body("coupler", 1.0, 1.0, (0.1, 1.0, 0.0))
    rods = [
        jm.Rod(f"rod{k}", jm.GROUND, "coupler", point_a=tuple(feet[k]), point_b=tuple(pins[k]))
        for k in (0, 1)
    ]
    linkage, start = jm.planar_mechanism([coupler], rods)
    bounds = {
        f"joints.rod{k}.{name}": pair
        for k in (0, 1)
        for name, pair in (("point_a", (-4.0, 4.0)), ("length", (0.2, 4.0)))
    }
    target = jk.PoseTarget("coupler", position=places, orientation=turns)
    found = jk.synthesize(
        linkage, target, bounds, start, "coupler.theta", starts=jnp.array([[*feet[0], 1.0, *feet[1], 1.0]])
    )
    assert found.status[0] == jd.Status.OK
    np.testing.assert_allclose(found.error, 0.0, atol=1e-12)
    for k in (0, 1):
        moved = places + turned(turns, pins[k][0]) + turned(turns + np.pi / 2.0, pins[k][1])
        # |center - moved|^2 is equal for all poses.
        center = np.linalg.solve(2.0 * (moved[1:] - moved[0]), np.sum(moved[1:] ** 2 - moved[0] ** 2, axis=1))
        expected = [*center, np.linalg.norm(moved[0] - center)]
        np.testing.assert_allclose(found.parameters[0, 3 * k : 3 * k + 3], expected, atol=1e-11)
        np.testing.assert_allclose(found.mechanism.joints["rod"].point_a[0, k], center, atol=1e-11)


def generator():
    """Returns a planar function generator, whose coupler is a rod, and its start."""
    _, rocker = closed(1.0, 0.4, 1.1, 0.8, 1.0)
    bodies = [jm.Body("crank", 1.0, 1.0, (0.0, 0.0, 1.0)), jm.Body("rocker", 1.0, 1.0, (1.0, 0.0, rocker))]
    joints = [
        jm.Revolute("A", jm.GROUND, "crank", at=(0.0, 0.0)),
        jm.Revolute("D", jm.GROUND, "rocker", at=(1.0, 0.0)),
        jm.Rod("link", "crank", "rocker", point_a=(0.4, 0.0), point_b=(0.8, 0.0)),
    ]
    return jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())


LINKS = {
    "joints.link.point_a.x": (0.1, 1.0),
    "joints.link.point_b.x": (0.2, 2.0),
    "joints.link.length": (0.3, 3.0),
}


def from_ratios(ratios):
    """Returns the lengths of crank, follower and rod from d / a, d / c and (a^2 + c^2 + d^2 - b^2) / (2 a c)."""
    a, c = 1.0 / ratios[0], 1.0 / ratios[1]
    return [a, c, np.sqrt(a**2 + c**2 + 1.0 - 2.0 * a * c * ratios[2])]


ANGLES = np.array([0.6, 1.1, 1.7])
ROCKER = closed(ANGLES, 0.4, 1.1, 0.8, 1.0)[1] + np.array([0.02, -0.01, 0.015])
CHANGE = np.array([1.0, -0.5, 0.3])


@jax.jit
def function(rocker, longest):
    """Returns the best design of a function generator, and its derivative along CHANGE."""
    linkage, start = generator()
    bounds = LINKS | {"joints.link.length": (0.3, longest)}

    def at(rocker):
        target = (jk.JointTarget({"A": ANGLES}), jk.JointTarget({"D": rocker}))
        found = jk.synthesize(linkage, target, bounds, start, "A", starts=4, weights=(4.0, 1.0))
        return jax.tree.map(lambda x: x[0], found)

    found, rates = jax.jvp(at, (rocker,), (CHANGE,))
    return found, (rates.parameters, rates.error)


def differences(values, step):
    """Returns the derivatives along CHANGE by differences of fourth order."""
    f = {k: values(ROCKER + step * k * CHANGE) for k in (-2, -1, 1, 2)}
    combine = lambda a, b, c, d: (8.0 * (c - b) - (d - a)) / (12.0 * step)  # noqa: E731
    return jax.tree.map(combine, *f.values())


def freudenstein(rocker):
    """Returns the lengths from d/a cos(psi) - d/c cos(phi) + (a^2 + c^2 + d^2 - b^2) / (2 a c) = cos(phi - psi)."""
    matrix = np.stack([np.cos(rocker), -np.cos(ANGLES), np.ones(3)], axis=1)
    return np.array(from_ratios(np.linalg.solve(matrix, np.cos(ANGLES - rocker))))


@pytest.mark.long
def test_planar_function_agrees_with_the_equation_of_freudenstein():
    found, (slope, errors) = function(ROCKER, 3.0)
    assert found.status == jd.Status.OK
    assert found.names == tuple(LINKS)
    np.testing.assert_allclose(found.parameters, freudenstein(ROCKER), atol=1e-11)
    np.testing.assert_allclose(found.state.q, np.stack([ANGLES, ROCKER], axis=1), atol=1e-12)
    np.testing.assert_allclose(slope, differences(freudenstein, 2e-4), atol=1e-8)
    np.testing.assert_allclose(errors, 0.0, atol=1e-10)


@pytest.mark.long
def test_errors_of_a_closest_design_have_derivatives():
    longest = freudenstein(ROCKER)[2] - 0.2
    found, rates = function(ROCKER, longest)
    assert found.status == jd.Status.UNREACHABLE
    np.testing.assert_allclose(found.parameters[2], longest, rtol=1e-14)
    assert jnp.linalg.norm(found.error) > 1e-3

    def values(rocker):
        design = function(rocker, longest)[0]
        return design.parameters, design.error

    for rate, expected in zip(rates, differences(values, 2e-3), strict=True):
        np.testing.assert_allclose(rate, expected, rtol=0, atol=1e-6)


@pytest.mark.long
def test_spatial_function_agrees_with_the_loop_equation():
    """RSSR with perpendicular axes z and y: the loop equation is linear in three ratios (Denavit, Hartenberg)."""
    crank, (a, c, length) = np.array([0.3, 0.8, 1.4]), (0.4, 0.8, 1.3)
    follower = np.arcsin(
        (length**2 - 1.0 - c**2 - a**2 + 2.0 * a * np.cos(crank)) / (2.0 * c - 2.0 * a * c * np.cos(crank))
    ) + np.array([0.02, -0.01, 0.015])
    matrix = np.stack([np.sin(follower), -np.cos(crank), np.ones(3)], axis=1)
    expected = from_ratios(np.linalg.solve(matrix, np.cos(crank) * np.sin(follower)))
    bodies = [
        js.Body("crank", 1.0, (1.0, 1.0, 1.0), place=(0.0, 0.0, 0.0)),
        js.Body("follower", 1.0, (1.0, 1.0, 1.0), place=(1.0, 0.0, 0.0)),
    ]
    joints = [
        js.Revolute("A", jm.GROUND, "crank", at=(0.0, 0.0, 0.0), axis=(0.0, 0.0, 1.0)),
        js.Revolute("D", jm.GROUND, "follower", at=(1.0, 0.0, 0.0), axis=(0.0, 1.0, 0.0)),
        js.Rod("link", "crank", "follower", point_a=(0.5, 0.0, 0.0), point_b=(0.0, 0.0, 0.6)),
    ]
    linkage, start = jm.spatial_mechanism(bodies, joints, coordinates=jm.Joints())
    bounds = {
        "joints.link.point_a.x": (0.1, 3.0),
        "joints.link.point_b.z": (0.1, 3.0),
        "joints.link.length": (0.3, 3.0),
    }
    target = jk.JointTarget({"A": crank, "D": follower})
    found = jk.synthesize(linkage, target, bounds, start, "A", starts=8)
    assert found.status[0] == jd.Status.OK
    np.testing.assert_allclose(found.parameters[0], expected, atol=1e-10)


@pytest.mark.long
def test_joint_limits_apply_to_all_poses():
    """The follower stops at its limit in the last pose, and reaches the other poses exactly."""
    limit = float(ROCKER[2]) - 0.05
    _, rocker = closed(1.0, 0.4, 1.1, 0.8, 1.0)
    bodies = [jm.Body("crank", 1.0, 1.0, (0.0, 0.0, 1.0)), jm.Body("rocker", 1.0, 1.0, (1.0, 0.0, rocker))]
    joints = [
        jm.Revolute("A", jm.GROUND, "crank", at=(0.0, 0.0)),
        jm.Revolute("D", jm.GROUND, "rocker", at=(1.0, 0.0), limits=(0.0, limit)),
        jm.Rod("link", "crank", "rocker", point_a=(0.4, 0.0), point_b=(0.8, 0.0)),
    ]
    linkage, start = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    target = jk.JointTarget({"A": ANGLES, "D": ROCKER})
    found = jk.synthesize(linkage, target, LINKS, start, "A", starts=4)
    assert found.status[0] == jd.Status.UNREACHABLE
    expected = np.zeros((3, 2))
    expected[2, 1] = -0.05
    np.testing.assert_allclose(found.error[0], expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.state.q[0, 2, 1], limit, rtol=1e-14)
    np.testing.assert_allclose(
        found.parameters[0], freudenstein(np.minimum(ROCKER, limit)), rtol=0, atol=1e-8
    )


@pytest.mark.exhaustive
def test_axis_of_a_circle_through_points():
    """Three points of a body that turns about a fixed axis lie in a plane, whose normal is the axis."""
    body = js.Body("link", 1.0, (1.0, 1.0, 1.0), place=(0.0, 0.0, 0.0))
    hinge = js.Revolute("link", jm.GROUND, "link", at=(0.0, 0.0, 0.0), axis=(0.0, 0.0, 1.0))
    linkage, start = jm.spatial_mechanism([body], [hinge], coordinates=jm.Joints())
    axis = np.array([0.2, -0.3, 1.0]) / np.linalg.norm([0.2, -0.3, 1.0])
    across = np.cross([0.0, 1.0, 0.0], axis)
    across /= np.linalg.norm(across)
    turns = np.array([0.2, 0.7, 1.5])[:, None]
    circle = 0.8 * (np.cos(turns) * across + np.sin(turns) * np.cross(axis, across)) + 0.5 * axis
    path = jk.PoseTarget("link", position=circle, point=(0.8, 0.0, 0.5))
    found = jk.synthesize(linkage, path, {"joints.link.axes_a": (-0.6, 0.6)}, start, "link", starts=4)
    assert found.status[0] == jd.Status.OK
    np.testing.assert_allclose(found.error[0], 0.0, atol=1e-12)
    axes = found.mechanism.carrying["revolute"].axes_a[0, 0]
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-14)
    normal = np.cross(circle[1] - circle[0], circle[2] - circle[0])
    np.testing.assert_allclose(axes[:, 2], normal / np.linalg.norm(normal), rtol=0, atol=1e-10)


def test_a_joint_may_have_the_name_of_its_type():
    coupler = jm.Body("coupler", 1.0, 1.0, (0.1, 1.0, 0.0))
    ends = {"link": ((-0.2, 0.1), (-0.3, 0.1)), "rod": ((0.8, 0.0), (0.35, -0.05))}
    rods = [jm.Rod(name, jm.GROUND, "coupler", point_a=a, point_b=b) for name, (a, b) in ends.items()]
    linkage, _ = jm.planar_mechanism([coupler], rods)
    chosen = tuple(joint_parameter(linkage, f"joints.rod.{x}") for x in ("length", "point_a.x"))
    values = nominal_values(linkage, chosen)
    np.testing.assert_allclose(values, [np.hypot(0.35, -0.95), 0.8], rtol=1e-15)
    rod = corrected(linkage, chosen, jnp.array([0.1, 0.2])).joints["rod"]
    np.testing.assert_allclose(rod.length, [np.hypot(0.0, 1.0), values[0] + 0.1], rtol=1e-15)
    np.testing.assert_allclose(rod.point_a, [(-0.2, 0.1), (1.0, 0.0)], rtol=1e-15)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("needs .lower, upper., got 1.0", {"parameters": {"joints.link.length": 1.0}}),
        ("with lower < upper", {"parameters": {"joints.link.length": (2.0, 1.0)}}),
        ("is not a point, a direction", {"parameters": {"bodies.crank.mass": (0.0, 1.0)}}),
        ("at least one parameter", {"parameters": {}}),
        ("one entry per pose", {"targets": jk.JointTarget({"A": 1.0})}),
        ("driver: 'E' is not a coordinate", {"driver": "E"}),
        ("or have shape .n, 3., got .2, 2.", {"starts": jnp.ones((2, 2))}),
    ],
)
def test_mistakes_are_explained(message, changes):
    linkage, start = generator()
    given = {"targets": jk.JointTarget({"A": [1.0, 1.2]}), "parameters": LINKS, "start": start, "driver": "A"}
    with pytest.raises(ValueError, match=message):
        jk.synthesize(linkage, **(given | changes))
