"""Joint limits, exact dry friction and effort limits: closed forms, both coordinates, loops, derivatives, errors."""

import dataclasses
import warnings

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import robots
from jaxdae.contact import Disc, GaussSeidel, Line, Pair, Robust, Touching
from jaxdae.integrators import ExplicitEuler
from jaxdae.mechanisms import spatial as js

G = 9.81
FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}
RK4 = jd.RungeKutta.rk4(unroll=False)
STEP = Touching(RK4, contact_solver=GaussSeidel(10))  # one or two rows
CLOSED = Touching(jd.Projected(RK4), contact_solver=GaussSeidel(10))


def rail(coordinates, tilt=0.0, **options):
    """Return a slider of 1 kg in space on a rail that descends at an angle to the vertical, and its coordinates."""
    axis = (float(np.sin(tilt)), 0.0, float(np.cos(tilt)))
    slide = js.Prismatic("rail", "ground", "block", axis=axis, at=(0.0, 0.0, 0.0), **options)
    return jm.spatial_mechanism([js.Body("block", 1.0, (0.1, 0.1, 0.1))], [slide], coordinates=coordinates)


def pin(coordinates, **options):
    """Return a horizontal rod of 1 kg and 1 m on a pin in the plane, and its coordinates."""
    rod = jm.Body("rod", 1.0, 1.0 / 12.0, pose=(0.5, 0.0, 0.0))
    joint = jm.Revolute("pin", "ground", "rod", at=(0.0, 0.0), **options)
    return jm.planar_mechanism([rod], [joint], coordinates=coordinates)


def moved(mechanism, q, v=None, *, time, steps, integrator=STEP):
    """Return the trajectory from a start at rest, or with the velocities v."""
    v = jnp.zeros(mechanism.sizes(q).nv) if v is None else v
    state = jd.State(jnp.zeros(()), q, jnp.asarray(v, q.dtype))
    return jd.rollout(mechanism, integrator, state, dt=time / steps, steps=steps)


@pytest.mark.long
@pytest.mark.parametrize("form", ["joints", pytest.param("absolute", marks=pytest.mark.exhaustive)])
def test_slider_bounces_off_its_limit_exactly(form):
    height, restitution, time = 1.0, 0.8, 1.3
    mechanism, q = rail(FORMS[form], limits=(-height, None), restitution=restitution)
    found = moved(mechanism, q, time=time, steps=50)
    speed = np.sqrt(2.0 * G * height)
    rest = time - speed / G - 2.0 * restitution * speed / G  # after the second bounce
    expected = restitution**2 * speed * rest - G * rest**2 / 2.0 - height
    at = -1 if form == "joints" else 2
    assert abs(found.state.q[-1, at] - expected) < 1e-12
    assert (found.info.status == 0).all()
    assert found.info.limit_gap.min() > -1e-14


@pytest.mark.long
def test_a_step_may_end_exactly_at_a_limit():
    """A gap of exactly zero counted as a contact that persists: the slider stayed at 0."""
    slide = jm.Prismatic(
        "rail", "ground", "block", axis=(1.0, 0.0), at=(0.0, 0.0), limits=(None, 1.0), restitution=0.5
    )
    block = jm.Body("block", 1.0, 0.1)
    mechanism, q = jm.planar_mechanism([block], [slide], gravity=(0.0, 0.0), coordinates=jm.Joints())
    step = Touching(jd.SemiImplicitEuler(), contact_solver=GaussSeidel(10))  # without round-off
    found = moved(mechanism, q, [8.0], time=0.25, steps=2, integrator=step)
    np.testing.assert_allclose(found.state.q[:, 0], [1.0, 0.5], rtol=0, atol=1e-14)


@pytest.mark.parametrize("form", ["joints", pytest.param("absolute", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("dry", [9.82, 9.0])
def test_dry_friction_sticks_exactly_or_slides_exactly(form, dry):
    mechanism, q = rail(FORMS[form], dry_friction=dry)
    found = moved(mechanism, q, time=0.5, steps=20)
    z = found.state.q[-1, -1 if form == "joints" else 2]
    assert abs(z + max(0.0, G - dry) * 0.5**2 / 2.0) < 1e-14
    # Friction points against the velocity (up), and holds the weight at rest.
    np.testing.assert_allclose(found.info.dry_impulse[-1] / 0.025, min(G, dry), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [
        jd.SemiImplicitEuler(),
        pytest.param(jd.BackwardEuler(), marks=pytest.mark.exhaustive),
        pytest.param(ExplicitEuler(), marks=pytest.mark.exhaustive),
    ],
    ids=lambda method: type(method).__name__,
)
def test_bodies_at_rest_do_not_creep_with_methods_of_first_order(method):
    # The displacement of a step under a constant acceleration is h^2 a or 0 instead of h^2 a / 2.
    mechanism, q = rail(jm.Joints(), dry_friction=9.82)
    step = Touching(method, contact_solver=GaussSeidel(10))
    found = moved(mechanism, q, time=0.1, steps=10, integrator=step)
    assert (found.info.status == 0).all()
    assert abs(found.state.q[-1, -1]) < 1e-14


@pytest.mark.long
@pytest.mark.parametrize("form", [pytest.param("joints", marks=pytest.mark.exhaustive), "absolute"])
def test_a_rod_rests_at_both_limits_of_its_pin(form):
    mechanism, q = pin(FORMS[form], limits=(-0.3, 0.2))
    found = moved(mechanism, q, time=1.0, steps=100, integrator=CLOSED)
    assert (found.info.status == 0).all()
    np.testing.assert_allclose(found.info.limit_gap[-1], [0.0, 0.5], atol=1e-9)
    # The torque of the limit is the torque of the weight, up to the fall of the rod within a step.
    np.testing.assert_allclose(found.info.limit_impulse[-1, 0] / 1e-2, G / 2.0 * np.cos(0.3), rtol=1e-3)
    up = moved(
        mechanism, q, np.asarray(found.state.v[0]) * 0.0 + speeds(mechanism, q, 3.0), time=0.1, steps=10
    )
    # Without restitution, the rod falls from the upper limit, by less than 3 G / 2 h^2 / 2 in the same step.
    assert 0.0 < up.info.limit_gap[:, 1].min() < 1.5 * G * 1e-4 / 2.0
    assert (up.info.limit_impulse[:, 1] > 0.0).sum() == 1


def speeds(mechanism, q, rate):
    """Return the velocities of a rod on a pin that turns at a rate."""
    return np.asarray([0.0, rate / 2.0, rate] if mechanism.sizes(q).nv == 3 else [rate])


@pytest.mark.long
def test_friction_beyond_the_load_holds_at_any_strength():
    # Smooth friction drifts, and at 200 N m explicit steps of 1 ms are unstable.
    for dry in (5.0, 200.0):
        mechanism, q = pin(jm.Joints(), dry_friction=dry)
        found = moved(mechanism, q, time=1.0, steps=1000)
        assert np.abs(found.state.q).max() < 1e-12  # The rounding errors of 1000 steps.
        assert np.abs(found.state.v).max() < 1e-15


@pytest.mark.long
def test_a_loop_stays_closed_at_the_limit_of_a_loop_joint():
    moved_loop(jm.Joints())


@pytest.mark.exhaustive
def test_a_loop_with_limits_moves_alike_in_both_coordinate_forms():
    # The forms differ by the truncation error of the step, largest where the limit closes.
    np.testing.assert_allclose(*map(moved_loop, FORMS.values()), rtol=0, atol=1e-6)


def moved_loop(form):
    """Check a four-bar at the limit of a pin, and return the positions of its bodies at all times."""
    mechanism, q = four_bar(form, limits=(0.8, None))
    found = moved(mechanism, q, time=1.0, steps=500, integrator=CLOSED)
    assert (found.info.status == 0).all()
    opening = jax.vmap(mechanism.constraint)(found.state.t, found.state.q)
    assert np.abs(opening).max() < 1e-14
    # One pass of the position stage leaves gaps of second order in the displacement, (2 ms * 2 rad/s)^2 = 1.6e-5.
    assert found.info.limit_gap.min() > -1e-6
    assert (found.info.limit_impulse > 0.0).any()
    return jax.vmap(mechanism.frames)(found.state.q).x


def four_bar(coordinates, **options):
    """Return a planar four-bar whose last pin, which closes the loop in joint coordinates, has these options."""
    a, b, c, d = ((0.0, 0.0), (0.1, 0.3), (0.6, 0.45), (0.5, 0.0))

    def link(name, p, r):
        (x, y), (u, w) = p, r
        pose = ((x + u) / 2.0, (y + w) / 2.0, float(np.arctan2(w - y, u - x)))
        return jm.Body(name, 1.0, 0.02, pose=pose)

    bodies = [link("crank", a, b), link("coupler", b, c), link("rocker", d, c)]
    joints = [
        jm.Revolute("A", "ground", "crank", at=a),
        jm.Revolute("B", "crank", "coupler", at=b),
        jm.Revolute("D", "ground", "rocker", at=d),
        jm.Revolute("C", "coupler", "rocker", at=c, **options),
    ]
    description = jm.Description(bodies=bodies, joints=joints, loops=("C",))
    return jm.mechanism(description, coordinates)


def test_angles_in_space_count_from_the_middle_of_their_limits():
    # A hinge that hangs at 3 rad from its start, measured in (-pi, pi], with limits on both sides of half a turn.
    body = js.Body("rod", 1.0, (0.1, 0.1, 0.1), place=(0.0, -1.0, 0.0))
    hinge = js.Revolute("hinge", "ground", "rod", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0), limits=(2.5, 4.0))
    mechanism, _ = jm.spatial_mechanism([body], [hinge])
    for angle in (2.6, 3.1, 3.2, 3.9):
        turned = jnp.asarray(
            [np.sin(angle), -np.cos(angle), 0.0, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]
        )
        gaps = mechanism.touch(jnp.zeros(()), turned).gap
        np.testing.assert_allclose(gaps, [angle - 2.5, 4.0 - angle], atol=1e-12)


def test_a_step_through_the_limits_of_an_angle_in_space_is_out_of_range():
    """From 2.75 to 3.3 rad, limits at +-3 rad: between frames, 3.3 rad is -2.98 rad, inside the limits."""
    body = js.Body("rod", 1.0, (0.1, 0.1, 0.1))
    hinge = js.Revolute(
        "hinge", "ground", "rod", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0), limits=(-3.0, 3.0)
    )
    mechanism, q = jm.spatial_mechanism([body], [hinge])

    def state(angle):
        return jd.State(jnp.zeros(()), mechanism.retract(q, jnp.zeros(6).at[5].set(angle)), jnp.zeros(6))

    for angle, passed in ((2.99, False), (3.01, False), (3.3, True)):
        assert mechanism.jumps(state(2.75), state(angle)) == passed
    # Limits at half a turn are legitimate.
    assert mechanism.condition(jnp.zeros(()), state(3.0).q) is None
    assert (
        jm.spatial_mechanism([body], [hinge], coordinates=jm.Joints())[0].jumps(state(2.0), state(3.0))
        is None
    )


# Contacts have gradients in test_touching and test_contact_stepping.
@pytest.mark.long
@pytest.mark.parametrize("mode", ["forward", pytest.param("reverse", marks=pytest.mark.exhaustive)])
def test_derivatives_through_limits_and_friction(mode):
    mechanism, q = pin(jm.Joints(), limits=(-0.4, 0.1), restitution=0.5, dry_friction=2.0)

    def reached(speed, limits, dry):
        changed = dataclasses.replace(
            mechanism,
            joint_limits=dataclasses.replace(mechanism.joint_limits, limits=limits),
            joint_friction=dataclasses.replace(mechanism.joint_friction, dry_friction=dry),
        )
        step = Touching(jd.SemiImplicitEuler(), contact_solver=GaussSeidel(10))
        return moved(changed, q, speed[None], time=0.4, steps=40, integrator=step).state.q[-1, 0]

    gradient = jax.jit(jax.grad(reached, argnums=(0, 1, 2)))
    along = jax.jit(lambda at, tangent: jax.jvp(reached, at, tangent))
    for speed in (-1.0, 2.0):
        at = (jnp.asarray(speed, float), mechanism.joint_limits.limits, mechanism.joint_friction.dry_friction)
        flat, unravel = jax.flatten_util.ravel_pytree(at)
        if mode == "reverse":
            reverse, _ = jax.flatten_util.ravel_pytree(gradient(*at))
            forward = [along(at, unravel(e))[1] for e in np.eye(flat.size)]
            np.testing.assert_allclose(reverse, forward, atol=1e-10)
            continue
        for e in np.eye(flat.size):
            slope = along(at, unravel(e))[1]
            up, down = (along(unravel(flat + h * e), unravel(e))[0] for h in (1e-6, -1e-6))
            np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-7)


DEGREES = {
    "limits is -90, 90 rad": (-90.0, 90.0),
    "limits is 120 rad": (None, 120.0),
    "": (-10.0, 6.0 * np.pi),  # a joint that winds up
}


def test_angles_in_degrees_raise_a_warning():
    """`limits` and `rest` of hinges and rest angles of springs; a slide may go 90 m."""
    for message, limits in DEGREES.items():
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            pin(jm.Joints(), limits=limits)
            rail(jm.Joints(), limits=limits)
        assert [str(one.message).partition("; ")[0] for one in found] == (
            [f"planar_mechanism: joint 'pin': {message}"] if message else []
        )
    with pytest.warns(
        jm.DescriptionWarning, match=r"'pin': rest is 45 rad; if it is in degrees, write 0\.785"
    ):
        pin(jm.Joints(), stiffness=1.0, rest=45.0)
    with pytest.warns(jm.DescriptionWarning, match=r"'pin': rest is 22.5 rad"):
        pin(jm.Joints(), stiffness=1.0, rest=22.5)
    rod = jm.Body("rod", 1.0, 0.1)
    spring = jm.TorsionalSpring("spring", "ground", "rod", stiffness=1.0, rest_angle=30.0)
    with pytest.warns(jm.DescriptionWarning, match=r"force 'spring': rest_angle is 30 rad"):
        jm.planar_mechanism([rod], [], [spring])
    body = js.Body("body", 1.0, (0.1, 0.2, 0.2))
    slide, hinge = (
        kind("joint", "ground", "body", axis=(0, 0, 1), at=(0, 0, 0)) for kind in (js.Prismatic, js.Revolute)
    )
    servo = js.JointForce("servo", "joint", stiffness=1.0, rest=90.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", jm.DescriptionWarning)
        jm.spatial_mechanism([body], [slide], [servo])
    with pytest.warns(jm.DescriptionWarning, match=r"force 'servo': rest is 90 rad"):
        jm.spatial_mechanism([body], [hinge], [servo])
    wall = Pair("wall", "ground", "rod", Line(angle=30.0), Disc(0.1))
    with pytest.warns(jm.DescriptionWarning, match=r"contact 'wall': angle of shape_a is 30 rad"):
        jm.mechanism(jm.Description(bodies=[rod], contacts=[wall]))
    hinges = [hinge, js.Revolute("next", "body", "tip", axis=(0, 0, 1), at=(1, 0, 0))]
    bodies = [body, js.Body("tip", 1.0, (0.1, 0.2, 0.2))]
    driven = js.PrescribedMotion("driven", "next", jm.Sinusoid(45.0, 2.0, 90.0), reference=30.0)
    other = js.PrescribedMotion("other", "next", jm.Polynomial([60.0, 30.0]))
    mimic = js.Relation("mimic", "next", "joint", (15.0, 2.0), other_reference=20.0)
    for extra, names in (
        (driven, ("phase of the motion", "amplitude of the motion", "reference")),
        (other, (r"coefficients\[0\] of the motion",)),
        (mimic, (r"coefficients\[0\]", "other_reference")),
    ):
        pattern = ".*".join(f"joint '{extra.name}': {name} is [0-9]+ rad" for name in names)
        with pytest.warns(jm.DescriptionWarning, match=pattern):
            jm.spatial_mechanism(bodies, [*hinges, extra])
    arm, q = jm.spatial_mechanism(bodies, hinges, coordinates=jm.Joints())
    with pytest.warns(jm.DescriptionWarning, match=r"joint_state: next\.angle: the position is 90 rad"):
        robots.joint_state(arm, q, {"next": 90.0})


def test_effort_limits_clip_the_motor_before_its_gear():
    motors = {
        jm.JointForce("m", "pin", input=0, gain=2.0, effort_limit=3.0, force=0.0): 3.0,
        jm.Motor("m", "pin", ratio=10.0, input=0, gain=2.0, effort_limit=3.0): 30.0,
    }
    for motor, most in motors.items():
        rod = jm.Body("rod", 1.0, 1.0 / 12.0, pose=(0.5, 0.0, 0.0))
        joint = jm.Revolute("pin", "ground", "rod", at=(0.0, 0.0))
        mechanism, q = jm.planar_mechanism(
            [rod], [joint], [motor], gravity=(0.0, 0.0), coordinates=jm.Joints()
        )
        for u, share in ((1.0, 2.0 / 3.0), (1.5, 1.0), (8.0, 1.0), (-8.0, -1.0)):
            force = mechanism.force(jnp.zeros(()), q, jnp.zeros(1), jnp.asarray([u]))
            np.testing.assert_allclose(force, [share * most], rtol=1e-14)


def test_parameters_are_set_by_the_names_of_the_description():
    mechanism, q = rail(jm.Joints(), limits=(-1.0, None), restitution=0.8, dry_friction=1.0)
    changed = jd.tree.set_leaf(mechanism, "joints.rail.limits", jnp.asarray([-0.5, jnp.inf]))
    changed = jd.tree.set_leaf(changed, "joints.rail.dry_friction", 20.0)
    changed = jd.tree.set_leaf(changed, "joints.rail.restitution", 0.1)
    touch = changed.touch(jnp.zeros(()), q)
    np.testing.assert_allclose(touch.gap, [0.5])
    np.testing.assert_allclose([*touch.dry, *touch.restitution], [20.0, 0.1])
    assert mechanism.joint_limits.names == ("rail.slide.lower",)
    reversed_limits = jd.tree.set_leaf(mechanism, "joints.rail.limits", jnp.asarray([-0.5, -1.0]))
    with pytest.raises(
        ValueError, match="limits must be finite in column 1 where the description has a upper"
    ):
        moved(reversed_limits, q, time=0.1, steps=1)


def test_steps_without_contact_are_refused():
    mechanism, q = pin(jm.Joints(), limits=(-0.3, 0.2))
    with pytest.raises(ValueError, match=r"RungeKutta ignores the contacts.*Touching\(integrator\)"):
        moved(mechanism, q, time=0.1, steps=1, integrator=RK4)
    worlds = jd.State(jnp.zeros(2), jnp.stack([q, q]), jnp.zeros((2, 1)))
    with pytest.raises(ValueError, match="RungeKutta ignores the contacts"):
        jd.batch_rollout(mechanism, RK4, worlds, dt=0.1, steps=1)
    free = mechanism.without_contacts()
    assert not free.touches
    moved(free, q, time=0.1, steps=1, integrator=RK4)
    with pytest.raises(ValueError, match="Touching: Mechanism has no contacts, joint limits or dry friction"):
        moved(free, q, time=0.1, steps=1)


@pytest.mark.long
def test_a_start_beyond_a_limit_stops_the_world():
    mechanism, q = pin(jm.Joints(), limits=(0.1, 0.2))
    found = moved(mechanism, q, time=0.1, steps=2)
    assert found.info.status[0] == jd.Status.INCONSISTENT_START
    assert found.state.q[-1, 0] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": (1.0, 0.0)}, "limits must have the lower limit below the upper limit"),
        ({"limits": (np.inf, -np.inf)}, "limits must have the lower limit below the upper limit"),
        ({"limits": 1.0}, r"limits must be \(lower, upper\)"),
        ({"limits": (float("nan"), 1.0)}, r"limits must be \(lower, upper\)"),
        ({"limits": (0.0, 1.0), "restitution": 1.5}, "restitution must be at most 1"),
        ({"limits": (0.0, 1.0), "restitution": -0.5}, "restitution must be non-negative"),
        ({"restitution": 0.5}, "restitution without limits has no effect"),
        ({"dry_friction": -1.0}, "dry_friction must be non-negative"),
    ],
)
def test_meaningless_limits_raise(options, message):
    with pytest.raises(ValueError, match=message):
        pin(jm.Joints(), **options)


def test_limits_of_joints_that_cannot_have_them_raise():
    with pytest.raises(TypeError, match="Ball has no limits: it has no coordinate that can be limited"):
        js.Ball("ball", "ground", "rod", at=(0.0, 0.0, 0.0), limits=(0.0, 1.0))
    body = js.Body("rod", 1.0, (0.1, 0.1, 0.1))
    hinge = js.Revolute("hinge", "ground", "rod", axis=(0.0, 0.0, 1.0), at=(0.0, 0.0, 0.0), limits=(0.0, 7.0))
    with pytest.raises(ValueError, match="'hinge': limits must have both bounds, less than 2 pi apart"):
        jm.spatial_mechanism([body], [hinge])
    mechanism, _ = jm.spatial_mechanism([body], [hinge], coordinates=jm.Joints())
    assert mechanism.joint_limits.names == ("hinge.angle.lower", "hinge.angle.upper")


@pytest.mark.long
def test_single_precision_and_worlds_of_a_batch():
    mechanism, q = rail(jm.Joints(), limits=(-0.2, None), dry_friction=1.0)
    mechanism, q = jax.tree.map(lambda x: x.astype(jnp.float32), (mechanism, q))
    states = jd.State(
        jnp.zeros(3, jnp.float32), jnp.zeros((3, 1), jnp.float32), jnp.zeros((3, 1), jnp.float32)
    )
    states = dataclasses.replace(states, v=states.v.at[1].set(jnp.nan).at[2].set(1.0))
    integrator = Touching(RK4, contact_solver=Robust.quick())
    found = jd.batch_rollout(mechanism, integrator, states, dt=0.02, steps=50)
    assert found.state.q.dtype == jnp.float32
    assert found.info.status[:, -1].tolist() == [0, int(jd.Status.NONFINITE), 0]
    np.testing.assert_allclose(found.state.q[np.asarray([0, 2]), -1, 0], -0.2, atol=1e-6)
