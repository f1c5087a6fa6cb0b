"""`initialize(..., contacts=...)`: starts without penetration, in both coordinates, with loops and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import in_ci
from contact_systems import four_bar

import jaxdae as jd
from jaxdae import contact
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}


def raised(q, ball, box):
    """Return coordinates with both bodies raised."""
    q = np.array(q)
    q[[2, 9]] += ball, box
    return q


@pytest.mark.long
@pytest.mark.parametrize("form", ["joints", pytest.param("absolute", marks=pytest.mark.exhaustive)])
def test_sunken_bodies_rise_to_the_ground_and_others_stay(form):
    bodies = [
        js.Body(name, 1.0, (0.1,) * 3, place=(x, 0.0, 0.0)) for name, x in (("ball", 0.0), ("box", 3.0))
    ]
    shapes = {"ball": contact.Sphere(0.3), "box": contact.Box((0.3, 0.2, 0.25))}
    pairs = [contact.Pair(name, jm.GROUND, name, contact.Plane(), shape) for name, shape in shapes.items()]
    mechanism, q = jm.mechanism(jm.Description(space=jm.SPACE, bodies=bodies, contacts=pairs), FORMS[form])
    # A level body rises by its depth: turning would not help any corner.
    found, info = jd.initialize(mechanism, jnp.asarray(raised(q, 0.2, 0.24)), contacts=True)
    np.testing.assert_allclose(found.q, raised(q, 0.3, 0.25), atol=1e-14)
    assert abs(info.gap.min()) < 1e-15
    apart = jnp.asarray(raised(q, 0.3, 0.26))  # The ball touches the ground.
    np.testing.assert_array_equal(jd.initialize(mechanism, apart, contacts=True)[0].q, apart)
    sunken, fixed = jnp.asarray(raised(q, 0.2, 0.24)), np.arange(12) < 6
    with pytest.raises(jd.SimulationError, match=r"separated with 6 coordinates .* gaps ball: -0\.1"):
        jd.initialize(mechanism, sunken, fixed=fixed, contacts=True)


@pytest.mark.exhaustive
def test_four_bar_that_leans_into_a_wall_turns_back_with_closed_loops():
    joints, q, wall, _ = four_bar(jm.Joints(), 0.3)
    leaning, _ = jd.initialize(joints, q.at[0].set(0.3), fixed=np.arange(3) == 0)
    assert wall.gap(jnp.zeros(()), leaning.q)[0] < -0.02
    absolute, _, same_wall, _ = four_bar(jm.Absolute(), 0.3)
    found, info = jd.initialize(joints, leaning.q, contacts=wall)
    other, other_info = jd.initialize(absolute, jm.to_absolute(joints, leaning).q, contacts=same_wall)
    for report in (info, other_info):
        assert report.violation < 1e-15
        assert abs(report.gap[0]) < 1e-15
    # One degree of freedom: the position at the wall does not depend on the coordinates.
    np.testing.assert_allclose(jm.to_absolute(joints, found).q, other.q, atol=1e-12)


def rod(coordinates, **options):
    """Return a rod of 1 m on a pin, 0.1 rad above the x axis, whose tip may not pass the wall x = 0.9."""
    body = jm.Body("rod", 1.0, 1.0 / 12.0, pose=(0.5 * np.cos(0.1), 0.5 * np.sin(0.1), 0.1))
    pin = jm.Revolute("pin", "ground", "rod", at=(0.0, 0.0), **options)
    wall, tip = contact.Line(at=(0.9, 0.0), angle=np.pi / 2.0), contact.Disc(0.0, at=(0.5, 0.0))
    pairs = [contact.Pair("tip", jm.GROUND, "rod", wall, tip)]
    return jm.mechanism(jm.Description(bodies=[body], joints=[pin], contacts=pairs), coordinates)


@pytest.mark.long
@pytest.mark.parametrize("form", in_ci(FORMS, "joints"))
def test_rod_at_a_wall_has_the_angle_and_the_derivative_of_the_closed_form(form):
    mechanism, q = rod(FORMS[form])

    def angle(radius):
        changed = jd.tree.set_leaf(mechanism, "contacts.tip.shape_b.radius", radius)
        return jd.initialize(changed, q, contacts=True)[0].q[-1]

    value, slope = jax.jit(jax.value_and_grad(angle))(0.1)
    assert abs(value - np.arccos(0.8)) < 1e-15  # cos(angle) = 0.9 - radius
    assert abs(slope - 1.0 / np.sin(np.arccos(0.8))) < 1e-12


@pytest.mark.long
def test_joint_beyond_its_limit_turns_back_to_it():
    mechanism, q = rod(jm.Joints(), limits=(0.5, None))
    state, info = jd.initialize(mechanism, q, contacts=True)
    assert abs(state.q[0] - 0.5) < 1e-15
    assert info.gap[0] > 0.0  # The tip is 0.02 m away from the wall.
