"""`Touching(most=k)`: only the k contacts with the smallest gaps take part in a step, and no other may close."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import contact
from jaxdae import mechanisms as jm
from jaxdae.integrators.contact_selection import Selection
from jaxdae.mechanisms import spatial as js
from jaxdae.systems.contacts import Touch


def touch(gaps):
    """Return four contacts, one joint limit and one row of dry friction with numbered rows."""
    gap = jnp.asarray([*gaps, 0.5])
    rows = jnp.arange(14.0 * 2).reshape(14, 2)
    return Touch(gap, rows, rows[:, 0], jnp.arange(4.0), jnp.arange(5.0), jnp.ones(1))


@pytest.mark.long
def test_selection_takes_the_smallest_gaps_and_returns_to_all_candidates():
    first, second = touch([0.3, 0.2, 0.1, 0.4]), touch([0.3, 0.2, 0.1, 0.0])
    selection = Selection.of(2, first, second)
    assert set(np.asarray(selection.chosen)) == {2, 3}
    small = selection.touch(first)
    assert small.sizes == (2, 1, 1)
    np.testing.assert_array_equal(small.gap, [*np.asarray(first.gap)[np.asarray(selection.chosen)], 0.5])
    back = selection.every_row(small.drift)
    expected = np.where((np.arange(14) >= 6), np.asarray(first.drift), 0.0)
    np.testing.assert_array_equal(back, expected)
    np.testing.assert_array_equal(selection.every_group(small.friction), [0.0, 0.0, 2.0, 3.0])
    assert not selection.misses(first, second)
    assert selection.misses(first, touch([0.0, 0.2, 0.1, 0.0]))
    assert Selection.of(4, first).chosen is None


@pytest.mark.long
def test_four_of_eight_corners_suffice_and_one_has_a_status():
    box = js.Body("box", 1.0, (0.02, 0.02, 0.02), place=(0.0, 0.0, 0.16), quaternion=(0.995, 0.08, 0.06, 0.0))
    pair = contact.Pair(
        "box", jm.GROUND, "box", contact.Plane(), contact.Box((0.15, 0.15, 0.1)), friction=0.4
    )
    description = jm.Description(space=jm.SPACE, bodies=[box], contacts=[pair])
    mechanism, q = jm.mechanism(description)
    state, _ = jd.initialize(mechanism, q, jnp.asarray([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    found = {}
    for most in (None, 4, 1):
        step = contact.Touching(jd.SemiImplicitEuler(), contact_solver=contact.ContactNewton(10), most=most)
        found[most] = jd.rollout(mechanism, step, state, dt=4e-3, steps=60)
    every, four = found[None], found[4]
    assert (four.info.status == 0).all()
    assert (four.info.force[-1, :, 0] > 1.0).sum() == 4  # The box slides on four corners.
    # The compliance of contacts, sqrt(eps), determines four forces on a body: round-off counts 1e8 times.
    np.testing.assert_allclose(four.state.q, every.state.q, atol=1e-7)
    np.testing.assert_allclose(four.info.gap, every.info.gap, atol=1e-7)
    assert int(found[1].info.status[-1]) == jd.Status.TOO_MANY_CONTACTS
