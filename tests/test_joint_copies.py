"""Forces, motors, tendons, relations and driven velocities along a joint have copies of its axes and points.
Copies that disagree with their joint are out of range.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.base.requirements import check_requirements, requirements_met
from jaxdae.mechanisms import spatial as js

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}
TURN = np.array([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])


def planar(form, *, force=True):
    slide = jm.Prismatic("slide", "ground", "block", (1.0, 0.0), point_a=(0.0, 0.0), point_b=(0.0, 0.0))
    hinge = jm.Revolute("hinge", "block", "arm", point_a=(0.0, 0.0), point_b=(-0.5, 0.0))
    motor = jm.PrescribedMotion("motor", "slide", jm.Polynomial([0.0, 0.0, 1.0]))
    forces = (
        [jm.JointForce("push", "slide", force=3.0), jm.Motor("drive", "hinge", ratio=2.0, input=0)]
        if force
        else []
    )
    bodies = [jm.Body("block", 1.0, 0.1), jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0))]
    return jm.planar_mechanism(
        bodies,
        [slide, hinge, *([] if force else [motor])],
        forces,
        gravity=(0.0, 0.0),
        coordinates=FORMS[form],
    )


def spatial(form):
    slide = js.Prismatic(
        "slide", "ground", "block", (1.0, 0.0, 0.0), point_a=(0.0, 0.0, 0.0), point_b=(0.0, 0.0, 0.0)
    )
    push = js.JointForce("push", "slide", force=3.0)
    return jm.spatial_mechanism(
        [js.Body("block", 1.0, (0.1, 0.1, 0.1))], [slide], [push], coordinates=FORMS[form]
    )


CASES = {
    "force": (planar, "axis", "forces.slide_force.axis", [0.6, 0.8]),
    "motor": (
        lambda form: planar(form, force=False),
        "axis",
        "joints.prescribed_slide_polynomial.axis",
        [0.6, 0.8],
    ),
    "in space": (spatial, "axes_a", "forces.joint_force_prismatic_0.joint.axes_a", TURN),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_a_copy_that_disagrees_with_its_joint_is_out_of_range(case, form):
    make, name, copy, value = CASES[case]
    mechanism, _ = make(form)
    assert requirements_met(mechanism)
    check_requirements("system", mechanism)
    alone = jd.tree.set_leaf(mechanism, f"joints.slide.{name}", jnp.asarray(value))
    assert not requirements_met(alone)
    with pytest.raises(
        ValueError, match=rf"{copy} must equal (joints|carrying)\.prismatic\.{name}; change both"
    ):
        check_requirements("system", alone)
    both = jd.tree.set_leaf(alone, copy, jnp.asarray(value)[None])
    assert requirements_met(both)
    check_requirements("system", both)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_slide_and_its_force_turn_together(form):
    mechanism, q = planar(form)
    changed = jd.tree.set_leaf(mechanism, "joints.slide.axis", jnp.array([0.0, 1.0]))
    changed = jd.tree.set_leaf(changed, "forces.slide_force.axis", jnp.array([[0.0, 1.0]]))
    a = jd.forward_dynamics(
        changed, jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities))), jnp.zeros(1)
    )[0]
    # Along y, the arm turns about its end: M = [[2, 0.5], [0.5, 0.35]] for the slide and the hinge.
    expected = np.linalg.solve([[2.0, 0.5], [0.5, 0.35]], [3.0, 0.0])
    found = a[jnp.array([1, 5])] if form == "absolute" else a
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_points_of_a_hinge_with_a_motor_change_freely():
    mechanism, _ = planar("joints")
    assert requirements_met(jd.tree.set_leaf(mechanism, "joints.hinge.point_b", jnp.array([-0.7, 0.0])))


def test_a_tire_on_a_wheel_of_another_radius_is_out_of_range():
    wheel = js.SlidingDisc(
        "contact", "ground", "wheel", (0.0, 1.0, 0.0), point_b=(0.0, 0.0, 0.0), radius=0.3, terrain=jv.Plane()
    )
    tire = js.BrushTire(name="tire", wheel="contact", stiffness=100.0, friction=0.8, load=10.0)
    mechanism, _ = jm.spatial_mechanism(
        [js.Body("wheel", 1.0, (0.1, 0.1, 0.1), place=(0.0, 0.0, 0.3))], [wheel], [tire]
    )
    assert requirements_met(mechanism)
    alone = jd.tree.set_leaf(mechanism, "joints.contact.radius", 0.2)
    assert not requirements_met(alone)


def coupled(element):
    """Return a slide and a hinge that a tendon or a relation connects."""
    slide = jm.Prismatic("slide", "ground", "block", (1.0, 0.0), point_a=(0.0, 0.0), point_b=(0.0, 0.0))
    hinge = jm.Revolute("hinge", "block", "arm", point_a=(0.0, 0.0), point_b=(-0.5, 0.0))
    bodies = [jm.Body("block", 1.0, 0.1), jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0))]
    couplings = {
        "tendon": {"forces": [jm.Tendon("t", ("slide", "hinge"), (1.0, 0.3), stiffness=10.0)]},
        "relation": {"joints": [slide, hinge, jm.Relation("r", "slide", "hinge", (0.0, 0.7))]},
        "tendon_relation": {
            "joints": [
                slide,
                hinge,
                jm.TendonRelation("r", ("slide",), (1.0,), ("hinge",), (1.0,), (0.0, 0.7)),
            ]
        },
        "rate": {"drives": [jm.JointRate("drive", "slide")]},
    }
    return jm.Description(
        bodies=bodies, gravity=(0.0, 0.0), **{"joints": [slide, hinge]} | couplings[element]
    )


COUPLINGS = {
    "tendon": "tendons.lengths.parts.0.joints.axis",
    "relation": "relations.prismatic_0_revolute_0_m_2.first.joints.axis",
    "tendon_relation": "relations.tendon_relation.first.parts.0.joints.axis",
}


@pytest.mark.parametrize("element", COUPLINGS)
def test_tendons_and_relations_have_the_axes_of_their_joints(element):
    mechanism, _ = jm.mechanism(coupled(element), jm.Absolute())
    assert requirements_met(mechanism)
    axis = jnp.array([0.6, 0.8])
    alone = jd.tree.set_leaf(mechanism, "joints.slide.axis", axis)
    assert not requirements_met(alone)
    copy = COUPLINGS[element]
    with pytest.raises(ValueError, match=rf"{copy} must equal joints\.prismatic\.axis; change both"):
        check_requirements("system", alone)
    assert requirements_met(jd.tree.set_leaf(alone, copy, axis[None]))
    # In joint coordinates, the coordinates of the slide and the hinge are entries of q, without copies.
    mechanism, _ = jm.mechanism(coupled(element), jm.Joints())
    assert requirements_met(jd.tree.set_leaf(mechanism, "joints.slide.axis", axis))


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_driven_velocities_have_the_axes_of_their_joints(form):
    description = coupled("rate")
    system, q = jm.kinematic_mechanism(description, FORMS[form])
    state, axis = jd.State(0.0, q, jnp.zeros(len(system.names.velocities))), jnp.array([0.6, 0.8])
    alone = jd.tree.set_leaf(system, "mechanism.joints.slide.axis", axis)
    copy = "drives.coordinate_rate_prismatic_0.joint.axis"
    assert not requirements_met(alone)
    with pytest.raises(
        ValueError, match=rf"{copy} must equal (joints|carrying)\.prismatic\.axis; change both"
    ):
        jd.kinematic_velocity(alone, state, jnp.ones(1))
    moved = jd.kinematic_velocity(jd.tree.set_leaf(alone, copy, axis[None]), state, jnp.ones(1))[0]
    expected = [0.6, 0.8] if form == "absolute" else [1.0]
    np.testing.assert_allclose(moved[: len(expected)], expected, rtol=0, atol=1e-12)
    embedded = jm.EmbeddedMechanism(jm.mechanism(description, FORMS[form])[0], system)
    assert requirements_met(embedded)
    assert not requirements_met(jd.tree.set_leaf(embedded, "mechanism.joints.slide.axis", axis))


@pytest.mark.parametrize("terrain", ["plane", pytest.param("map", marks=pytest.mark.exhaustive)])
def test_a_tire_has_the_terrain_of_its_wheel(terrain):
    maps = {
        "plane": (jv.Plane(jnp.array([0.0, 0.0, 1.0])), "normal", jnp.array([0.0, 0.6, 0.8])),
        "map": (jv.HeightMap(jnp.zeros((3, 3)), 0.5), "z", jnp.ones((3, 3))),
    }
    ground, leaf, value = maps[terrain]
    bodies = [js.Body(name, 1.0, (0.1, 0.1, 0.1), place=(0.2, 0.2, 0.1)) for name in ("one", "two")]
    wheels = [
        js.SlidingDisc(
            f"under {body.name}",
            "ground",
            body.name,
            axis=(0.0, 1.0, 0.0),
            point_b=(0.0, 0.0, 0.0),
            radius=0.1,
            terrain=ground,
        )
        for body in bodies
    ]
    tire = js.BrushTire("tire", wheel="under two", stiffness=30.0, friction=0.8, load=20.0)
    mechanism, _ = jm.spatial_mechanism(bodies, wheels, [tire])
    (wheel,), (contact,) = mechanism.joints, mechanism.forces
    assert requirements_met(mechanism)
    changed = jd.tree.set_leaf(mechanism, f"joints.{wheel}.terrain.{leaf}", jnp.stack([value, value]))
    assert not requirements_met(changed)
    path = rf"forces\.{contact}\.joint\.terrain\.{leaf} must equal joints\.{wheel}\.terrain\.{leaf}"
    with pytest.raises(ValueError, match=path):
        check_requirements("system", changed)
    both = jd.tree.set_leaf(changed, f"forces.{contact}.joint.terrain.{leaf}", value[None])
    assert requirements_met(both)
    check_requirements("system", both)
