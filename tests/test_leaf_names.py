"""Leaves that are set by the names of a description, against mechanisms with the same values."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}
T, V, U = jnp.asarray(0.1), jnp.asarray([0.4, -0.7]), jnp.asarray([0.3, -0.6, 0.2])


def planar(form, forces, joints=()):
    """Return a cart with an arm, and its state away from the start pose."""
    bodies = [jm.Body("cart", 1.0, 0.1), jm.Body("arm", 2.0, 0.2, pose=(0.5, 0.0, 0.3))]
    slide = jm.Prismatic("slide", "ground", "cart", (1.0, 0.0), at=(0.0, 0.0))
    hinge = jm.Revolute("hinge", "cart", "arm", at=(0.0, 0.0))
    return moved(*jm.planar_mechanism(bodies, joints or [slide, hinge], forces, coordinates=FORMS[form]))


def spatial(form, forces, joints=()):
    """Return a cart with an arm in space, and its state away from the start pose."""
    bodies = [
        js.Body("cart", 1.0, (0.1, 0.2, 0.3)),
        js.Body("arm", 2.0, (0.1, 0.2, 0.3), place=(0.5, 0.0, 0.0)),
    ]
    slide = js.Prismatic("slide", "ground", "cart", axis=(1.0, 0.0, 0.0), at=(0.0, 0.0, 0.0))
    hinge = js.Cylindrical("hinge", "cart", "arm", axis=(0.0, 1.0, 0.0), at=(0.0, 0.0, 0.0))
    return moved(*jm.spatial_mechanism(bodies, joints or [slide, hinge], forces, coordinates=FORMS[form]))


def moved(mechanism, q):
    numbers = np.linspace(-0.6, 0.7, len(mechanism.names.velocities))
    return mechanism, jd.State(
        T, mechanism.retract(q, jnp.asarray(numbers)), jnp.asarray(numbers[::-1].copy())
    )


@jax.jit
def terms(mechanism, state, u):
    """Return mass, force, rows and energy."""
    t, q, v = state.t, state.q, state.v
    return (
        mechanism.mass_matrix(q),
        mechanism.force(t, q, v, u),
        mechanism.constraint(t, q),
        mechanism.potential_energy(t, q),
    )


def same(some, other, state, u):
    """Check that two mechanisms have the same mass, force, rows and energy."""
    for found, expected in zip(terms(some, state, u), terms(other, state, u), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


MOTORS = {
    "slide": {"ratio": -2.0, "torque": 0.4, "input": 1, "gain": 0.5},
    "hinge": {"ratio": 3.0, "torque": 0.7, "input": 0, "gain": 2.0},
}


@pytest.mark.long
@pytest.mark.parametrize("form", [pytest.param("absolute", marks=pytest.mark.exhaustive), "joints"])
@pytest.mark.parametrize("build", [planar, pytest.param(spatial, marks=pytest.mark.long)])
def test_parameters_of_geared_motors_have_the_meaning_of_the_description(build, form):
    kind, third = (jm.Motor, {}) if build is planar else (js.Motor, {"along": "angle"})
    motors = [
        kind(f"{joint}_motor", joint, **numbers, **(third if joint == "hinge" else {}))
        for joint, numbers in MOTORS.items()
    ]
    mechanism, state = build(form, motors)
    for k, motor in enumerate(motors):
        for field in ("ratio", "torque", "gain"):
            path = f"forces.{motor.name}.{field}"
            assert jd.tree.get_leaf(mechanism, path) == getattr(motor, field)
            rebuilt = [dataclasses.replace(m, **{field: 1.9}) if i == k else m for i, m in enumerate(motors)]
            same(jd.tree.set_leaf(mechanism, path, 1.9), build(form, rebuilt)[0], state, U[:2])


@pytest.mark.parametrize("form", FORMS)
def test_terms_of_a_sum_of_inertia_have_no_leaf(form):
    motor = jm.Motor("motor", "slide", ratio=2.0, torque=0.3, rotor_inertia=0.1)
    mechanism, _ = planar(form, [motor])
    for path in ("joints.slide.armature", "forces.motor.ratio", "forces.motor.rotor_inertia"):
        with pytest.raises(KeyError, match=r"the sum armature \+ ratio\^2 rotor_inertia with motor 'motor'"):
            jd.tree.get_leaf(mechanism, path)
    assert jd.tree.get_leaf(mechanism, "forces.motor.torque") == 0.3


@pytest.mark.long
@pytest.mark.parametrize("form", [pytest.param("absolute", marks=pytest.mark.exhaustive), "joints"])
def test_tendons_and_relations_have_the_names_of_their_descriptions(form):
    tendon = jm.Tendon(
        "tendon",
        ("slide", "hinge"),
        (1.0, -2.0),
        stiffness=3.0,
        damping=0.2,
        slack_from=0.05,
        slack_to=0.1,
        friction=0.4,
        friction_speed=0.3,
        input=0,
        ratio=2.0,
        gain=(1.0, 0.2, 0.3),
        bias=(0.1, 0.2, 0.3),
        least_force=-3.0,
        most_force=40.0,
        least_input=-3.0,
        most_input=0.2,
    )
    relation = jm.Relation("relation", "hinge", "slide", (0.1, 2.0), reference=0.2, other_reference=0.3)
    joints = [
        jm.Prismatic("slide", "ground", "cart", (1.0, 0.0), at=(0.0, 0.0)),
        jm.Revolute("hinge", "cart", "arm", at=(0.0, 0.0)),
    ]
    mechanism, state = planar(form, [tendon], [*joints, relation])
    for place, element in (("forces", tendon), ("joints", relation)):
        for field in dataclasses.fields(element):
            given = getattr(element, field.name)
            if not isinstance(given, float | tuple) or field.name in ("joints", "weights"):
                continue
            value = np.asarray(given) + 0.01
            path = f"{place}.{element.name}.{field.name}"
            np.testing.assert_array_equal(jd.tree.get_leaf(mechanism, path), given)
            other = dataclasses.replace(element, **{field.name: value})
            forces, rows = ([other], relation) if place == "forces" else ([tendon], other)
            same(
                jd.tree.set_leaf(mechanism, path, value),
                planar(form, forces, [*joints, rows])[0],
                state,
                U[:1],
            )


@pytest.mark.long
def test_a_stiffness_that_is_set_later_pulls_to_the_start_pose():
    for form, build, kind in (("absolute", planar, jm.Revolute), ("joints", planar, jm.Revolute)):
        first, at = kind("first", "ground", "cart", at=(0.0, 0.0), stiffness=2.0), (0.0, 0.0)
        plain, elastic = (kind("hinge", "cart", "arm", at=at, stiffness=k) for k in (0.0, 5.0))
        (mechanism, state), (expected, _) = build(form, (), [first, plain]), build(form, (), [first, elastic])
        same(jd.tree.set_leaf(mechanism, "joints.hinge.stiffness", 5.0), expected, state, None)


def test_numbers_that_scale_an_input_exist_only_with_an_input():
    forces = [jm.Torque("driven", "cart", "arm", 0.0, input=0), jm.Torque("constant", "cart", "arm", 1.0)]
    mechanism, _ = planar("absolute", forces)
    assert jd.tree.get_leaf(mechanism, "forces.driven.gain") == 1.0
    with pytest.raises(KeyError, match=r"forces\.constant\.gain: unknown parameter"):
        jd.tree.get_leaf(mechanism, "forces.constant.gain")


def steered(*wheels):
    """Return a first-order vehicle in which inputs set slip angles, and its state."""
    drives = [jm.Speed("speed", "chassis", (1.0, 0.0), at=(0.0, 0.0)), jm.SlipAngle("slip", "front")]
    description = jm.Description(bodies=[jm.Body("chassis")], joints=wheels, drives=drives)
    vehicle, q = jm.kinematic_mechanism(description)
    return vehicle, jd.State(jnp.zeros(()), q, 0.0 * q)


def test_a_slip_that_an_input_replaces_is_no_leaf():
    front = jm.Wheel("front", "chassis", (1.0, 0.0), at=(1.0, 0.0), slip_angle=0.2)
    back = jm.Wheel("back", "chassis", (1.0, 0.0), at=(-1.0, 0.0), slip_angle=0.1)
    path, u = "mechanism.joints.front.slip_angle", jnp.asarray([2.0, 0.3])
    for wheels in ([front], [front, back]):
        vehicle, state = steered(*wheels)
        for call in (
            jd.tree.get_leaf,
            lambda tree, path: jd.tree.set_leaf(tree, path, 0.0),
            jd.tree.batch_axes,
        ):
            with pytest.raises(
                KeyError, match=r"front\.slip_angle does not affect the motion, because the input 'slip'"
            ):
                call(vehicle, path)
        np.testing.assert_allclose(vehicle.at_input(u).inputs_of(state)[1], 0.3, rtol=1e-15)
    assert jd.tree.get_leaf(vehicle, "mechanism.joints.back.slip_angle") == 0.1
    only_front, _ = steered(front)
    assert not [path for path in jd.tree.leaf_paths(only_front) if path.endswith("slip_angle")]
    # Both wheels roll without slip at their angles: v_y + w x = -tan(slip) v_x at x = 1 and x = -1.
    velocity = jd.kinematic_velocity(vehicle, state, u)[0]
    turn = -(np.tan(0.3) - np.tan(0.1))  # (slope_front - slope_back) v_x / 2 with v_x = 2
    np.testing.assert_allclose(velocity, [2.0, -np.tan(0.3) - np.tan(0.1), turn], rtol=0, atol=1e-12)


def test_values_of_named_parameters_have_their_shape():
    mechanism, _ = planar("joints", ())
    worlds = jd.tree.set_leaf(mechanism, "carrying.revolute.point_b", jnp.zeros((3, 1, 2)))
    for tree, path, value in (
        (mechanism, "joints.hinge.point_b", 0.3),
        (mechanism, "bodies.arm.mass", [1.0, 2.0]),
        (worlds, "joints.hinge.point_b", [0.3, 0.1]),
    ):
        with pytest.raises(ValueError, match=rf"{path} must have shape \(.*\), got"):
            jd.tree.set_leaf(tree, path, jnp.asarray(value))
