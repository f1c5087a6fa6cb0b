"""What is said about descriptions: doubts about bodies, trees that cannot be, loops that stay open, coordinates that are none."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js
from jaxdae.openings import Opening, openings


def with_body(**numbers):
    """Builds a mechanism of one body that a ball joint holds."""
    numbers = {"mass": 1.0, "inertia": (1.0, 1.0, 1.0), **numbers}
    return jm.spatial_mechanism([js.Body("b", **numbers)], [js.Ball("j", "ground", "b", at=(1, 0, 0))])


DOUBTS = {
    "body 'b': no body has the principal moments of inertia [1. 1. 3.]: the largest of them is more": {"inertia": (1.0, 3.0, 1.0)},
    "no body has the principal moments of inertia [0.5 1.5 3. ]": {"inertia": [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 3.0]]},
    "body 'b': quaternion has the length 3; it was made a unit quaternion": {"quaternion": (0.0, 3.0, 0.0, 0.0)},
}


@pytest.mark.parametrize("message", DOUBTS)
def test_doubts_about_bodies_are_warnings(message):
    with pytest.warns(jm.DescriptionWarning) as caught:
        mechanism, q = with_body(**DOUBTS[message])
    assert len(caught) == 1
    assert message in str(caught[0].message)
    assert str(caught[0].message).startswith("spatial_mechanism: ")
    np.testing.assert_allclose(jnp.linalg.norm(q[3:]), 1.0, rtol=1e-15)
    assert np.all(np.isfinite(mechanism.mass_matrix(q)))


def test_all_doubts_come_in_one_warning():
    with pytest.warns(jm.DescriptionWarning, match="no body has the principal.*; body 'b': quaternion has the length 2"):
        with_body(inertia=(1.0, 1.0, 2.5), quaternion=(2.0, 0.0, 0.0, 0.0))


def test_thin_plates_needles_and_traced_numbers_raise_no_doubts():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_body(inertia=(1.0, 2.0, 3.0))
        with_body(inertia=(1.0, 2.0, 3.0001), quaternion=(0.7071, 0.7071, 0.0, 0.0))
        with_body(inertia=(1.0, 1.0, 1e-12))
        jax.jit(lambda inertia: with_body(inertia=inertia)[0].inertia)(jnp.array([1.0, 1.0, 5.0]))


# Trees that cannot be.


def four_bar():
    """Returns the bodies and joints of a planar four-bar with a rod as its coupler."""
    bodies = [jm.Body("left", 1.0, 0.1, (0.0, 0.5, 0.0)), jm.Body("right", 1.0, 0.1, (2.0, 0.5, 0.0))]
    joints = [
        jm.Revolute("A", "ground", "left", (0, 0)),
        jm.Revolute("D", "ground", "right", (2, 0)),
        jm.Rod("coupler", "left", "right", (0, 1), (2, 1)),
    ]
    return bodies, joints


def test_a_cut_that_would_need_a_rod_to_carry_a_body():
    bodies, joints = four_bar()
    with pytest.raises(ValueError, match=r"Joints\.cut") as caught:
        jm.planar_mechanism(bodies, joints, coordinates=jm.Joints(cut=("D",)))
    assert str(caught.value) == "Joints.cut: takes body 'right' off the tree, where 'coupler' (rod) cannot carry it: leave 'D' out of cut"


def test_a_cut_that_frees_a_body_which_nothing_else_holds_is_allowed():
    bodies, joints = four_bar()
    mechanism, q = jm.planar_mechanism(bodies, joints[:2], coordinates=jm.Joints(cut=("D",)))
    assert mechanism.names.coordinates == ("A.angle", "right.x", "right.y", "right.theta")
    assert mechanism.names.rows == ("D.x", "D.y")
    np.testing.assert_allclose(mechanism.constraint(jnp.zeros(()), q), 0.0, rtol=0, atol=1e-15)


@pytest.mark.parametrize("coordinates", ["joints", jm.Joints, None])
def test_coordinates_that_are_none(coordinates):
    with pytest.raises(TypeError, match=r"planar_mechanism: coordinates must be Absolute\(\) or Joints\(\), got"):
        jm.planar_mechanism(*four_bar(), coordinates=coordinates)


def test_a_cut_is_a_tuple_of_names():
    with pytest.raises(TypeError, match=r"Joints\.cut must be names of joints, such as \(\"crank_pin\",\), got 'coupler'"):
        jm.planar_mechanism(*four_bar(), coordinates=jm.Joints(cut="coupler"))


# Loops that stay open.


def test_openings_are_sums_by_joint_and_unit():
    names = ("A.x", "A.y", "A.angle", "B.length", "C.x", "row 5")
    found = openings(names, ("m", "m", "rad", "m", "m", ""), [0.003, -0.004, np.pi / 6, -0.02, 1e-12, 7.0], 1e-9)
    assert [opening.joint for opening in found] == ["A", "B"]
    np.testing.assert_allclose([found[0].distance, found[0].angle, found[1].distance, found[1].angle], [0.005, np.pi / 6, 0.02, 0.0])
    assert [str(opening) for opening in found] == ["A by 5 mm and 30 degrees", "B by 20 mm"]
    assert str(Opening("C", 0.0, np.pi)) == "C by 180 degrees"
    assert [str(Opening("C", distance, 0.0)) for distance in (0.9994, 0.9996, 3.0)] == ["C by 999 mm", "C by 1000 mm", "C by 3000 mm"]
    (broken,) = openings(("A.x",), ("m",), [np.nan], 1e-9)
    assert str(broken) == "A by nan mm"


@pytest.mark.parametrize("coordinates", [jm.Absolute(), jm.Joints()], ids=["absolute", "joints"])
def test_joints_that_stay_open_are_named(coordinates):
    """A coupler that is 0.5 m short when its cranks lie toward each other, and a weld that is turned against its hinge."""
    bodies, joints = four_bar()
    joints[2] = jm.Rod("coupler", "left", "right", point_a=(0.0, 0.5), point_b=(0.0, 0.5), length=4.5)
    mechanism, q = jm.planar_mechanism(bodies, joints, coordinates=coordinates)
    with pytest.raises(jaxdae.SimulationError, match="Open stay: ") as caught:
        jaxdae.initialize(mechanism, q)
    message = str(caught.value)
    assert "the constraints cannot be closed; largest residuals " in message
    # In absolute coordinates all three joints share what is missing; in joint coordinates there is the coupler alone.
    shared = ("coupler by", "A by", "D by") if coordinates == jm.Absolute() else ("coupler by 472 mm",)
    assert all(part in message for part in shared)
    assert message.endswith("Check lengths and joint places, start from a better guess, or free a coordinate.")


def test_a_diagnosis_names_open_joints():
    bodies, joints = four_bar()
    mechanism, q = jm.planar_mechanism(bodies, joints)
    assert jaxdae.diagnose(mechanism, jaxdae.State(0.0, q, 0 * q)).open_joints == ()
    moved = q.at[0].add(0.003).at[1].add(0.004)
    found = jaxdae.diagnose(mechanism, jaxdae.State(0.0, moved, 0 * q))
    assert [opening.joint for opening in found.open_joints] == ["A", "coupler"]
    assert "open joints                 A by 5 mm, coupler by " in str(found)
