"""The one-stage step with contact: closed forms, loops, limits, derivatives, and rejected restitution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import G, ball, block, four_bar

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.contact import ContactNewton, ContactStepping, Disc, FunctionContacts, Line, Pair

SOLVER, STEPS, DT, MU, RADIUS = ContactNewton(10), 100, 0.01, 0.5, 0.1


def run(system, contacts, q, v):
    """Return the final state and the reports after STEPS steps."""
    start = jd.State(jnp.zeros(()), jnp.asarray(q, float), jnp.asarray(v, float))
    trajectory = jd.rollout(system, ContactStepping(contacts, SOLVER), start, dt=DT, steps=STEPS)
    assert (trajectory.info.status == jd.Status.OK).all()
    return jax.tree.map(lambda x: x[-1], trajectory.state), trajectory.info


@pytest.mark.parametrize("degrees", [26.0, 27.0])
def test_block_on_an_incline_sticks_or_is_one_half_step_ahead(degrees):
    angle = np.deg2rad(degrees)
    state, info = run(*block(angle, MU), np.zeros(3), np.zeros(3))
    a = max(0.0, G * (np.sin(angle) - MU * np.cos(angle)))
    # h sum(k h a) over n steps of h = t / n.
    assert abs(state.q[0] - (a / 2.0 + a * DT / 2.0)) < 1e-14
    assert np.abs(info.gap).max() < 1e-14
    # Forces and accelerations of the report are the means of the step.
    np.testing.assert_allclose(info.force[-1, 0, 0], G * np.cos(angle), rtol=1e-12)
    np.testing.assert_allclose(info.a[-1], [a, 0.0, 0.0], atol=1e-12)


def test_ball_lands_at_rest_and_rolls():
    state, info = run(*ball(RADIUS, MU, 0.0), [0.0, 0.5, 0.0], [0.3, 0.0, 0.0])
    assert np.abs(info.gap[-1]).max() < 1e-14
    # A solid ball that begins to roll keeps 5/7 of its speed.
    np.testing.assert_allclose(state.v, [0.3 * 5.0 / 7.0, 0.0, 0.3 * 5.0 / 7.0 / RADIUS], atol=1e-14)
    np.testing.assert_allclose(info.impulse[:, 0, 0].sum(), G * DT * STEPS, rtol=1e-12)


@pytest.mark.long
def test_derivatives_where_contacts_stick_slide_and_are_open():
    system, contacts = ball(RADIUS, MU, 0.0)

    def reached(x):
        start, method = jd.State(jnp.zeros(()), x[:3], x[3:]), ContactStepping(contacts, SOLVER)
        end = method.step(system, start, method.init(system, start), None, DT)[0]
        return jnp.concatenate([end.q, end.v])

    starts = np.array(
        [
            [0.0, RADIUS, 0.0, 0.4, -0.1, 4.0],  # rolls
            [0.0, RADIUS, 0.0, 2.0, -0.1, -10.0],  # slides
            [0.0, 0.5, 0.0, 1.0, 0.2, 3.0],  # flies
            [0.0, 0.103, 0.0, 1.0, -0.5, 3.0],  # lands
        ]
    )
    both = jax.jit(jax.vmap(lambda x: (jax.jacfwd(reached)(x), jax.jacrev(reached)(x))))
    forward, reverse = both(starts)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-10)
    moved = jax.jit(jax.vmap(jax.vmap(reached)))
    ahead, behind = (moved(starts[:, None] + sign * 1e-6 * np.eye(6)) for sign in (1.0, -1.0))
    np.testing.assert_allclose(forward, np.moveaxis(ahead - behind, 1, 2) / 2e-6, rtol=0, atol=1e-7)


@pytest.mark.exhaustive
def test_slider_stops_by_dry_friction_and_at_its_limit():
    rail = jm.Prismatic(
        "rail", "ground", "cart", axis=(1.0, 0.0), at=(0.0, 0.0), limits=(-1.0, 0.25), dry_friction=2.0
    )
    cart = jm.Body("cart", 1.0, 1.0)
    mechanism, q = jm.mechanism(jm.Description(bodies=[cart], joints=[rail]), jm.Joints())
    state, info = run(mechanism, None, q, [-0.5])
    # The velocity falls by h F / m per step: it is zero after 25 steps, and the mean is that at their ends.
    np.testing.assert_allclose(state.q, -(0.5**2) / 4.0 + 0.5 * DT / 2.0, atol=1e-14)
    np.testing.assert_allclose(info.dry_impulse[:26, 0], [0.02] * 25 + [0.0], atol=1e-14)
    state, info = run(mechanism, None, q, [1.5])
    np.testing.assert_allclose(state.q, 0.25, atol=1e-14)
    assert info.limit_impulse[:, 1].sum() > 0.5


@pytest.mark.long
def test_loops_stay_closed_through_an_impact_in_both_coordinates():
    places = []
    for coordinates in (jm.Absolute(), jm.Joints()):
        mechanism, q, contacts, place = four_bar(coordinates, friction=0.4)
        step = ContactStepping(contacts, SOLVER, solver=jd.LeastSquares())
        start = jd.State(jnp.zeros(()), q, jnp.zeros(mechanism.sizes(q).nv))
        trajectory = jd.rollout(mechanism, step, start, dt=2e-3, steps=300)
        assert (trajectory.info.status == jd.Status.OK).all()
        assert trajectory.info.violation.max() < 1e-15
        assert trajectory.info.gap.min() > -1e-15
        assert (trajectory.info.impulse[:, 0, 0] > 0.0).sum() > 100
        places.append(place(trajectory.state.q[-1]))
    np.testing.assert_allclose(*places, atol=1e-8)


@pytest.mark.long
def test_restitution_is_rejected_by_name():
    reason = "must be 0, because ContactStepping stops bodies before they rebound; use Touching"
    pair = Pair("floor", jm.GROUND, "ball", Line(), Disc(RADIUS), friction=MU, restitution=0.5)
    disc = jm.Body("ball", 1.0, 0.01, pose=(0.0, 0.5, 0.0))
    mechanism, q = jm.mechanism(jm.Description(bodies=[disc], contacts=[pair]))
    with pytest.raises(ValueError, match=f"the restitution of floor {reason}"):
        run(mechanism, None, q, np.zeros(3))
    system, contacts = ball(RADIUS, MU, 0.5)
    with pytest.raises(ValueError, match="contacts must have the restitution 0"):
        run(system, contacts, np.ones(3), np.zeros(3))

    def status(e):
        found = FunctionContacts(contacts.gap, contacts.slip, contacts.friction, e, tangents=1)
        start = jd.State(jnp.zeros(()), jnp.ones(3), jnp.zeros(3))
        return jd.rollout(system, ContactStepping(found, SOLVER), start, dt=DT, steps=2).info.status[-1]

    assert jax.jit(status)(jnp.asarray([0.5])) == jd.Status.OUT_OF_RANGE
