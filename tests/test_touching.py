"""Steps with contact: closed forms, loops in both coordinates, derivatives, rollouts, errors."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import G, ball, block, four_bar, thrown_box

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.contact import Box, ContactNewton, FunctionContacts, Pair, Plane, Robust, Sphere, Touching
from jaxdae.mechanisms import spatial as js

RK4 = jd.RungeKutta.rk4()
SHARED = jd.Projection(jd.PositionProjection(origin=jd.Origin.SHARED))
QUICK = Robust.quick()
# Balls and blocks share the programs of as many steps.
STEPS, RADIUS = 100, 0.1


def end(system, integrator, q, v, time, steps):
    """Return the final state and the reports of all steps."""
    state = jd.State(jnp.zeros(()), jnp.asarray(q, float), jnp.asarray(v, float))
    trajectory = jd.rollout(system, integrator, state, dt=time / steps, steps=steps)
    return jax.tree.map(lambda x: x[-1], trajectory.state), trajectory.info


RESTITUTION = 0.8


def after_two_bounces(height, time):
    """Return the height of a ball that was dropped from `height`, between its second and its third bounce."""
    first, speed = np.sqrt(2.0 * height / G), np.sqrt(2.0 * height * G)
    rest = time - first - 2.0 * RESTITUTION * speed / G
    return RESTITUTION**2 * speed * rest - G * rest**2 / 2.0


def dropped(height, time):
    """Return the height of the lowest point of a ball after STEPS steps."""
    system, contacts = ball(RADIUS, friction=0.0, restitution=RESTITUTION)
    # Free flight is a parabola, which the method follows exactly.
    q = jnp.asarray([0.0, 1.0, 0.0]) * height + jnp.asarray([0.0, RADIUS, 0.0])
    return end(system, Touching(RK4, contacts, QUICK), q, jnp.zeros(3), time, STEPS)[0].q[1] - RADIUS


@pytest.mark.parametrize("time", [1.3, 1.7])
def test_bouncing_ball_is_exact_for_any_step(time):
    assert abs(dropped(1.0, time) - after_two_bounces(1.0, time)) < 1e-12


@jax.jit
@functools.partial(jax.value_and_grad, argnums=2)
def height(system, contacts, start, speed, time):
    """Return the height of a ball after STEPS steps from a height `start` with an upward speed, and its derivative
    with respect to `start`.
    """
    up = jnp.asarray([0.0, 1.0, 0.0])
    return end(system, Touching(RK4, contacts, QUICK), start * up, speed * up, time, STEPS)[0].q[1]


@pytest.mark.long
def test_derivative_of_a_bouncing_ball_is_exact():
    _, slope = height(*ball(RADIUS, friction=0.0, restitution=RESTITUTION), 1.0 + RADIUS, 0.0, 1.3)
    difference = after_two_bounces(1.0 + 1e-5, 1.3) - after_two_bounces(1.0 - 1e-5, 1.3)
    assert abs(slope - difference / 2e-5) < 1e-8


@pytest.mark.long
def test_ball_bounces_without_loss_and_without_gravity():
    # z(T) = v T - z(0): the derivative is -1, although the ball turns around within a step.
    system, contacts = ball(radius=0.0, friction=0.0, restitution=1.0, gravity=0.0)
    z, slope = height(system, contacts, 1.003, -5.0, 1.0)
    assert abs(z - 3.997) < 1e-12
    assert abs(slope + 1.0) < 1e-10


@pytest.mark.parametrize(
    ("steps", "tolerance"), [(STEPS, 4e-4), pytest.param(1600, 3e-6, marks=pytest.mark.exhaustive)]
)
def test_ball_with_backspin_slides_and_then_rolls(steps, tolerance):
    radius, friction, speed, spin, time = RADIUS, 0.3, 2.0, -10.0, 0.8
    system, contacts = ball(radius, friction, 0.0)
    state, info = end(
        system, Touching(RK4, contacts, QUICK), [0.0, radius, 0.0], [speed, 0.0, spin], time, steps
    )
    rolls = (speed - radius * spin) / (friction * G * 3.5)
    expected = speed * rolls - friction * G * rolls**2 / 2.0 + (speed - friction * G * rolls) * (time - rolls)
    assert abs(state.q[0] - expected) < tolerance
    assert np.abs(info.gap).max() < 1e-14
    assert np.abs(info.slip[-1]).max() < 1e-12
    assert (info.status == 0).all()


@pytest.mark.parametrize("degrees", [25.0, 26.0, 27.0, 30.0])
def test_block_on_an_incline_sticks_exactly_or_slides_exactly(degrees):
    angle = np.deg2rad(degrees)
    system, contacts = block(angle, friction=0.5)
    state, info = end(system, Touching(RK4, contacts, QUICK), [0.0, 0.0, 0.0], np.zeros(3), 1.0, STEPS)
    a = max(0.0, G * (np.sin(angle) - 0.5 * np.cos(angle)))
    assert abs(state.q[0] - a / 2.0) < (1e-9 if a else 1e-12)
    assert np.abs(info.gap).max() < 1e-14
    # The mean force of a step balances the weight.
    np.testing.assert_allclose(info.impulse[-1, 0, 0] * STEPS, G * np.cos(angle), rtol=1e-10)


def planar_four_bar(coordinates, friction):
    """Return `four_bar` as a mechanism in the plane, whose rows are independent."""
    a, b, c, d = map(np.asarray, ([0.0, 0.0], [0.08, 0.289], [0.5, 0.45], [0.5, 0.0]))

    def rod(name, p, r, mass):
        along = r - p
        return jm.Body(name, mass, mass * along @ along / 12.0, (*(p + r) / 2.0, np.arctan2(*along[::-1])))

    bodies = [rod("crank", a, b, 1.0), rod("coupler", b, c, 1.5), rod("rocker", d, c, 1.0)]
    ends = [
        ("ground", "crank", a),
        ("crank", "coupler", b),
        ("coupler", "rocker", c),
        ("ground", "rocker", d),
    ]
    joints = [jm.Revolute(f"{one}-{other}", one, other, at=tuple(at)) for one, other, at in ends]
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=coordinates)

    def arm(frame):
        cosine, sine = jnp.cos(frame.angle[1]), jnp.sin(frame.angle[1])
        return jnp.stack([0.05 * cosine - 0.2 * sine, 0.05 * sine + 0.2 * cosine])

    def place(q):
        frame = mechanism.frames(q)
        return jnp.stack([frame.x[1], frame.y[1]]) + arm(frame)

    def slip(t, q, v):
        twist = mechanism.twists(q, v)
        return (twist.y[1] + twist.angle[1] * arm(mechanism.frames(q))[0])[None, None]

    wall = place(q)[0] + 0.03
    contacts = FunctionContacts(
        lambda t, q: (wall - place(q)[0])[None], slip, jnp.asarray([friction]), tangents=1
    )
    return mechanism, q, contacts, place


@pytest.mark.parametrize(
    ("make", "solver", "contact_solver"),
    [
        pytest.param(planar_four_bar, None, Robust(), marks=pytest.mark.long),
        pytest.param(four_bar, jd.LeastSquares(), QUICK, marks=pytest.mark.exhaustive),
    ],
    ids=["plane", "space"],
)
def test_loops_stay_closed_and_both_coordinates_agree_through_an_impact(make, solver, contact_solver):
    places = []
    for coordinates in (jm.Absolute(), jm.Joints()):
        mechanism, q, contacts, place = make(coordinates, friction=0.4)
        inner = jd.Projected(jd.RungeKutta.rk4(solver=solver, unroll=False))
        state = jd.State(jnp.zeros(()), q, jnp.zeros(mechanism.sizes(q).nv))
        method = Touching(inner, contacts, contact_solver)
        trajectory = jd.rollout(mechanism, method, state, dt=1e-3, steps=600)
        assert (trajectory.info.status == 0).all()
        opening = jax.jit(jax.vmap(mechanism.constraint))(trajectory.state.t, trajectory.state.q)
        assert np.abs(opening).max() < 1e-14
        np.testing.assert_allclose(
            trajectory.info.violation, np.abs(opening).max(axis=1, initial=0.0), atol=5e-16
        )
        assert trajectory.info.velocity_violation.max() < 1e-12
        assert trajectory.info.gap.min() > -1e-14
        assert (trajectory.info.impulse[:, 0, 0] > 0.0).sum() > 300
        places.append(place(trajectory.state.q[-1]))
    np.testing.assert_allclose(*places, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("inner", "factorizations"),
    [
        (jd.SemiImplicitEuler(), 2),
        pytest.param(jd.Projected(RK4), 6, marks=pytest.mark.exhaustive),
        pytest.param(jd.Projected(RK4, SHARED), 6, marks=pytest.mark.exhaustive),
    ],
    ids=["euler", "rk4", "shared"],
)
def test_steps_pass_on_their_last_factorization(inner, factorizations):
    mechanism, q, contacts, _ = planar_four_bar(jm.Absolute(), friction=0.4)
    method, state = Touching(inner, contacts, QUICK), jd.State(jnp.zeros(()), q, jnp.zeros(9))
    memory = method.init(mechanism, state)
    advance = jax.jit(lambda *at: method.advance(mechanism, *at, None, 1e-2)[:2])
    step = jax.jit(lambda *at: method.step(mechanism, *at, None, 1e-2)[:2])
    carried, plain = (method.begin(mechanism, state), memory), (state, memory)
    assert carried[0].linearization is not None
    for _ in range(60):  # The mechanism falls against the wall.
        carried, plain = advance(*carried), step(*plain)
    assert (plain[1].velocities > 0.0).any()
    # With one freedom, normal and tangential impulses of a contact are indeterminate; the motion is not.
    for x, y in zip(jax.tree.leaves(carried[0].state), jax.tree.leaves(plain[0]), strict=True):
        np.testing.assert_allclose(x, y, rtol=0.0, atol=1e-12)
    found = advance.lower(*carried).compile().as_text()
    assert len(re.findall(r'custom_call_target="(\w*potrf\w*)"', found)) == factorizations


@functools.cache
def lying_box():
    """Return a box on four points. Its tests share one program."""
    return thrown_box(friction=0.5, corners="bottom")


@pytest.mark.long
@pytest.mark.parametrize("degrees", [26.0, 27.0])
def test_box_on_four_points_in_space(degrees):
    angle = np.deg2rad(degrees)
    mechanism, q, contacts = lying_box()
    mechanism = jd.tree.set_leaf(
        mechanism, "gravity", jnp.asarray([G * np.sin(angle), 0.0, -G * np.cos(angle)])
    )
    state, info = end(mechanism, Touching(RK4, contacts), q, np.zeros(6), 1.0, 400)
    a = max(0.0, G * (np.sin(angle) - 0.5 * np.cos(angle)))
    assert abs(state.q[0] - a / 2.0) < (1e-9 if a else 1e-12)
    assert np.abs(info.gap).max() < 1e-14


@pytest.mark.long
def test_sliding_cube_does_not_lift_off_and_stops():
    mechanism, q, contacts = lying_box()
    state, info = end(mechanism, Touching(RK4, contacts), q, [6.0, 0.0, 0.0, 0.0, 0.0, 0.0], 2.0, 400)
    assert np.abs(info.gap).max() < 1e-10
    assert abs(state.q[0] - 6.0**2 / (2.0 * 0.5 * G)) < 1e-4
    assert np.abs(state.v).max() < 1e-12


@pytest.mark.long
def test_thrown_box_comes_to_rest_on_a_face_without_gaining_energy():
    mechanism, q, contacts = thrown_box(
        friction=0.6, corners="all", height=0.4, quaternion=(0.9, 0.3, 0.2, 0.1)
    )
    start = jd.State(jnp.zeros(()), q, jnp.asarray([1.0, 0.5, 0.0, 3.0, -2.0, 4.0]))
    trajectory = jd.rollout(mechanism, Touching(RK4, contacts), start, dt=1e-3, steps=1400)
    assert (trajectory.info.status == 0).all()
    assert trajectory.info.gap.min() > -1e-4
    energy = jax.jit(jax.vmap(lambda state: jd.energy(mechanism, state)))(trajectory.state)
    # While the box tips over a corner, the energy has an error of second order in the step.
    assert energy.max() < energy[0] + 1e-12
    assert np.diff(energy).max() < 1e-5
    assert np.abs(trajectory.state.v[-1]).max() < 1e-10
    assert abs(trajectory.state.q[-1, 2] - 0.1) < 1e-12


@pytest.mark.long
def test_impacts_of_a_fast_leg_add_no_energy():
    # A light thigh carries a shank of 60 times its mass, which turns by 0.15 rad per step.
    bodies = [
        js.Body("thigh", 0.2, (1e-3, 1e-3, 1e-3), place=(0.0, 0.0, 1.0)),
        js.Body("shank", 12.0, (0.06, 0.06, 0.07), place=(0.3, 0.0, 1.0)),
    ]
    knee = js.Revolute("knee", "thigh", "shank", axis=(0.0, 1.0, 0.0), at=(0.15, 0.0, 1.0))
    pairs = [
        Pair(body, jm.GROUND, body, Plane(), Sphere(0.05, at=(x, 0.0, 0.0)), friction=0.0, restitution=0.6)
        for body, x in (("thigh", -0.15), ("shank", 0.15))
    ]
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=[knee], contacts=pairs)
    mechanism, q = jm.mechanism(description, jm.Joints())
    start = jd.State(jnp.zeros(()), q, jnp.asarray([0.5, 0.3, -2.0, 1.0, 30.0, 5.0, 3.0]))
    method = Touching(jd.RungeKutta.rk4(unroll=False), contact_solver=ContactNewton(12))
    trajectory = jd.rollout(mechanism, method, start, dt=5e-3, steps=200)
    assert (trajectory.info.status == 0).all()
    states = jax.tree.map(lambda one, more: jnp.append(one[None], more, axis=0), start, trajectory.state)
    energy = jax.jit(jax.vmap(functools.partial(jd.energy, mechanism)))(states)
    # The impacts take away two thirds of the energy; RK4 and the height of bodies at impacts add 0.1 %.
    assert np.diff(energy).max() < 1e-3 * energy[0]
    assert energy[-1] < 0.5 * energy[0]


@pytest.mark.exhaustive
def test_derivatives_of_a_box_that_slides_and_spins():
    mechanism, q, contacts = lying_box()
    integrator = Touching(RK4, contacts, QUICK)

    @jax.jit
    def reached(v, change):
        return jax.jvp(lambda v: end(mechanism, integrator, q, v, 0.1, 20)[0].q[:3], (v,), (change,))

    v = jnp.asarray([6.0, 0.5, 0.0, 0.0, 0.0, 8.0])
    for direction in np.eye(6):
        ahead, behind = (reached(v + h * direction, direction)[0] for h in (1e-5, -1e-5))
        np.testing.assert_allclose(reached(v, direction)[1], (ahead - behind) / 2e-5, atol=1e-4)


@pytest.mark.long
def test_worlds_of_a_batch_are_those_of_single_rollouts():
    system, contacts = ball(0.1, 0.3, 0.5)
    integrator = Touching(RK4, contacts, QUICK)
    heights = np.linspace(0.1, 0.5, 4)
    q = jnp.stack([jnp.asarray([0.0, height, 0.0]) for height in heights])
    states = jd.State(jnp.zeros(4), q, jnp.zeros((4, 3)).at[1, 1].set(jnp.nan))
    batch = jd.batch_rollout(system, integrator, states, dt=0.01, steps=STEPS)
    assert (batch.info.status[:, -1] != 0).tolist() == [False, True, False, False]
    single, _ = end(system, integrator, q[2], np.zeros(3), 0.01 * STEPS, STEPS)
    np.testing.assert_allclose(batch.state.q[2, -1], single.q, atol=1e-13)


@pytest.mark.long
def test_a_ball_between_closing_walls_stops_the_world():
    system, _ = ball(0.1, 0.0, 0.0)
    walls = FunctionContacts(
        gap=lambda t, q: jnp.stack([q[1] - 0.1, 0.3 - t - q[1] - 0.1]),
        slip=lambda t, q, v: jnp.stack([v[:1], v[:1]]),
        friction=jnp.zeros(2),
        tangents=1,
    )
    state, info = end(system, Touching(RK4, walls, QUICK), [0.0, 0.15, 0.0], np.zeros(3), 0.2, 20)
    assert info.status[-1] == jd.Status.NOT_CONVERGED
    # The upper wall hits the falling ball, which then falls ahead of it. The walls meet the ball at 0.1 s.
    assert abs(state.t - 0.09) < 1e-12
    hit = (1.0 - np.sqrt(1.0 - 0.1 * G)) / G
    assert abs(state.q[1] - (0.2 - state.t - G * (state.t - hit) ** 2 / 2.0)) < 1e-9


@pytest.mark.long
def test_a_start_inside_the_ground_stops_the_world():
    system, contacts = ball(0.1, 0.3, 0.5)
    state, info = end(system, Touching(RK4, contacts, QUICK), [0.0, 0.09, 0.0], np.zeros(3), 0.1, STEPS)
    assert info.status[-1] == jd.Status.INCONSISTENT_START
    assert state.q[1] == 0.09
    lifted, info = end(
        system, Touching(RK4, contacts, QUICK, penetration=0.02), [0.0, 0.09, 0.0], np.zeros(3), 0.1, 10
    )
    assert info.status[-1] == jd.Status.OK
    assert abs(lifted.q[1] - 0.1) < 1e-12


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"friction": jnp.asarray([-0.1])}, ValueError, "friction must be non-negative"),
        ({"restitution": jnp.asarray([-0.1])}, ValueError, "restitution must be non-negative"),
        ({"restitution": jnp.asarray([1.1])}, ValueError, "restitution must be at most 1"),
    ],
)
def test_meaningless_coefficients_raise(change, error, message):
    system, contacts = ball(0.1, 0.3, 0.5)
    fields = {"friction": contacts.friction, "restitution": contacts.restitution, **change}
    bad = FunctionContacts(contacts.gap, contacts.slip, **fields, tangents=1)
    with pytest.raises(error, match=message):
        end(system, Touching(RK4, bad), [0.0, 0.2, 0.0], np.zeros(3), 0.1, 2)


@pytest.mark.parametrize(
    ("integrator", "error", "message"),
    [
        (
            lambda c: jd.Projected(Touching(RK4, c)),
            TypeError,
            r"write Touching\(Projected\(...\), contacts\)",
        ),
        (lambda c: Touching(RK4, 3.0), TypeError, "contacts must be contacts of a system"),
        (lambda c: Touching(jd.GeneralizedAlpha(), c), ValueError, "GeneralizedAlpha carries memory"),
        (
            lambda c: Touching(RK4, c, jd.SchurComplement()),
            TypeError,
            "contact_solver must be a contact solver",
        ),
        (lambda c: Touching(RK4, c, smoothing=0.0), ValueError, "smoothing must be positive"),
        (lambda c: Touching(RK4, c, penetration=0.0), ValueError, "penetration must be positive"),
        (lambda c: Touching(RK4, c, tolerance=-1.0), ValueError, "tolerance must be positive"),
        (lambda c: Touching(RK4, c, most=True), TypeError, "Touching.most must be an integer, got True"),
        (
            lambda c: Touching(RK4, c, Robust(warm=True)),
            TypeError,
            "Robust.warm must be an integer, got True",
        ),
        (
            lambda c: Touching(jd.switching.Switching(RK4, jd.switching.Unilateral(jnp.ones(1))), c),
            (TypeError, ValueError),
            "must not switch rows",
        ),
    ],
)
def test_wrong_combinations_raise(integrator, error, message):
    system, contacts = ball(0.1, 0.3, 0.5)
    with pytest.raises(error, match=message):
        end(system, integrator(contacts), [0.0, 0.2, 0.0], np.zeros(3), 0.1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"gap": lambda t, q: q[1] - 0.1},
            r"gap\(t, q\) must have shape \(m,\), one gap per contact, got \(\)",
        ),
        ({"slip": lambda t, q, v: v[:1]}, r"must have shape \(m, tangents\) = \(1, 1\), got \(1,\)"),
        ({"friction": jnp.ones(2)}, r"friction must be one number or have shape \(1,\), got \(2,\)"),
    ],
)
def test_contacts_of_wrong_shapes_raise(change, message):
    system, contacts = ball(0.1, 0.3, 0.5)
    fields = {name: getattr(contacts, name) for name in ("gap", "slip", "friction", "restitution")}
    bad = FunctionContacts(**{**fields, **change}, tangents=1)
    with pytest.raises(ValueError, match=message):
        end(system, Touching(RK4, bad), np.ones(3), np.ones(3), 0.1, 2)


def test_first_order_systems_have_no_contact_impulses():
    cart = jm.Prismatic("rail", "ground", "cart", axis=(1.0, 0.0), at=(0.0, 0.0))
    mechanism, q = jm.kinematic_mechanism(jm.Description(bodies=[jm.Body("cart")], joints=[cart]))
    _, contacts = ball(0.1, 0.3, 0.5)
    with pytest.raises(TypeError, match="Touching needs a system with masses"):
        end(mechanism, Touching(jd.Kinematic.rk4(), contacts), q, np.zeros(3), 0.1, 2)


@pytest.mark.long
def test_rows_are_the_rates_of_gaps():
    mechanism, q, contacts = thrown_box(friction=0.5, corners="all", quaternion=(0.9, 0.3, 0.2, 0.1))
    v = jnp.asarray([0.3, -0.2, 0.5, 1.0, -0.7, 0.4])
    h = 1e-6

    @jax.jit
    def rates(q, v):
        touch = contacts.touch(mechanism.evaluate(jnp.zeros(()), q))
        ahead, behind = jax.vmap(lambda s: contacts.gap(0.0, mechanism.retract(q, s * v)))(
            jnp.asarray([h, -h])
        )
        return touch.normals(touch.velocity(v)), (ahead - behind) / (2.0 * h)

    np.testing.assert_allclose(*rates(q, v), atol=1e-8)


@functools.cache
def smoothed():
    """Return speed -> (distance, derivative, reports) of a block on an incline with smoothed steps."""
    system, contacts = block(np.deg2rad(30.0), friction=0.5)
    integrator = Touching(RK4, contacts, smoothing=1e-8)

    def reached(speed):
        state, info = end(system, integrator, np.zeros(3), jnp.asarray([1.0, 0.0, 0.0]) * speed, 0.5, 50)
        return state.q[0], info

    return jax.jit(lambda speed: jax.jvp(reached, (speed,), (1.0,), has_aux=True))


@pytest.mark.long
@pytest.mark.parametrize("speed", [0.5, -3.0])
def test_smoothed_steps_have_the_derivative_of_what_they_compute(speed):
    x, slope, info = smoothed()(speed)
    ahead, behind = (smoothed()(speed + h)[0] for h in (1e-6, -1e-6))
    system, contacts = block(np.deg2rad(30.0), friction=0.5)
    exact, _ = end(system, Touching(RK4, contacts, QUICK), np.zeros(3), [speed, 0.0, 0.0], 0.5, 50)
    # A smoothed step does not locate the reversal of slip, which is then of first order.
    assert abs(x - exact.q[0]) < (1e-5 if speed > 0.0 else 3e-4)
    assert abs(slope - (ahead - behind) / 2e-6) < 1e-8
    assert (info.status == 0).all()
    assert 0.0 < info.gap[-1, 0] < 1e-8


@pytest.mark.long
def test_a_plank_tips_over_the_edge_of_a_box():
    # While the plank lies on the box, both faces separate the boxes equally, and contacts move between features.
    plank = js.Body("plank", 1.0, (0.001, 0.03, 0.03), place=(0.25, 0.0, 0.22))
    shapes = Box((0.2, 0.2, 0.1), at=(0.0, 0.0, 0.1)), Box((0.3, 0.05, 0.02))
    pair = Pair("edge", jm.GROUND, "plank", *shapes, friction=0.6)
    mechanism, q = jm.mechanism(jm.Description(space=jm.SPACE, bodies=[plank], contacts=[pair]))
    start = jd.State(jnp.zeros(()), q, jnp.zeros(6))
    method = Touching(jd.RungeKutta.midpoint(), contact_solver=ContactNewton(20))
    trajectory = jd.rollout(mechanism, method, start, dt=5e-3, steps=50)
    assert (trajectory.info.status == 0).all()
    state = trajectory.state
    assert 2.0 * np.arcsin(state.q[-1, 5]) > 0.4
    energy = jax.jit(jax.vmap(functools.partial(jd.energy, mechanism)))(state)
    # The error is of second order. Steps that hold contacts at their old features do not converge.
    assert np.abs(energy - jd.energy(mechanism, start)).max() < 3e-4
    # The motion stays in the plane of symmetry, up to the tolerance of the contact law, and the edge does not
    # enter the plank.
    assert np.abs(state.q[:, [1, 4, 6]]).max() < 1e-6
    assert trajectory.info.gap.min() > -1e-7


@pytest.mark.long
def test_a_contact_that_leaves_its_feature_carries_no_load():
    # A block slides on two contacts, until one of them passes an edge.
    system, contacts = block(0.0, 0.5)
    two = FunctionContacts(
        gap=lambda t, q: q[1] + jnp.where(q[0] > 0.05, jnp.array([0.1, 0.0]), 0.0),
        slip=lambda t, q, v: contacts.slip(t, q, v).repeat(2, axis=0),
        friction=0.5,
        tangents=1,
    )
    state, info = end(system, Touching(RK4, two, ContactNewton(10)), np.zeros(3), [1.0, 0.0, 0.0], 0.1, 10)
    np.testing.assert_allclose(state.v[0], 1.0 - 0.05 * G, rtol=1e-12)
    is_off = info.gap[:, 0] > 0.05
    assert is_off.sum() == 5
    assert (info.force[is_off, 0, 0] == 0.0).all()
