"""Every leaf of a mechanism acts, in both coordinate forms, and is addressed by the names of the description."""

import dataclasses
import re
from typing import Any

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spatial_joints

import jaxdae as jd
from jaxdae import contact, robots, tuning
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js


def of_second_order(some: Any, state: jd.State, u: Any) -> Any:
    """Return the terms of the equation, the potential energy, the frames, the contacts and the status.

    Other outputs, such as the bias and the reactions, depend on the same leaves, and take three
    times as long to compile.
    """
    t, q, v = state.t, state.q, state.v
    return [
        some.mass_matrix(q),
        some.force(t, q, v, u),
        some.constraint(t, q),
        some.velocity_constraint(t, q, v),
        some.potential_energy(t, q),
        list(some.frames(q)),
        () if (status := some.condition(t, q)) is None else status.astype(float),
        [] if (touch := some.touch(t, q)) is None else jax.tree.leaves(touch),
    ]


def of_first_order(some: Any, state: jd.State, u: Any) -> Any:
    """Return the rate, the weight, the rows, the frames and the status."""
    t, q, v = state.t, state.q, state.v
    some = some.at_input(u)
    return [
        some.rate(t, q, u),
        some.mass_matrix(q),
        some.constraint(t, q),
        some.velocity_constraint(t, q, v),
        list(some.mechanism.frames(q)),
        () if (status := some.condition(t, q)) is None else status.astype(float),
    ]


@jax.jit
def outputs(system: Any, state: jd.State, u: Any) -> Any:
    """Return all that the system computes, as one array."""
    found = (of_first_order if system.first_order else of_second_order)(system, state, u)
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(found)])


def dead_leaves(mechanism: Any, state: jd.State, u: Any = None) -> list[str]:
    """Return the paths of leaves that change nothing that the system computes."""
    before, dead = np.asarray(outputs(mechanism, state, u)), []
    rng = np.random.default_rng(5)
    for path in jd.tree.leaf_paths(mechanism):
        leaf = np.asarray(jd.tree.get_leaf(mechanism, path))
        # Small changes first, then values at which limits act.
        for changed in (
            leaf + 0.1 * rng.normal(size=leaf.shape),
            0.0 * np.nan_to_num(leaf),
            -np.nan_to_num(leaf) - 1.0,
        ):
            after = np.asarray(outputs(catalogue.with_leaf(mechanism, path, jnp.asarray(changed)), state, u))
            if not np.allclose(after, before, rtol=1e-9, atol=1e-12, equal_nan=True):
                break
        else:
            dead.append(path)
    return dead


FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}


def generic_state(mechanism, q):
    rng = np.random.default_rng(0)
    xi, v = rng.normal(size=(2, len(mechanism.names.velocities)))
    return jd.State(jnp.asarray(0.3), mechanism.retract(q, 0.3 * jnp.asarray(xi)), jnp.asarray(v))


def spatial_forces(joint):
    """Return the forces of the catalogue that act between the bodies or along this joint."""
    every = [
        force
        for forces in spatial_joints.FORCES.values()
        for force in forces
        if not isinstance(force, js.Bushing)
    ]
    bushing = js.Bushing(
        "rubber",
        "left",
        "right",
        (0.2, -0.5, 0.4),
        stiffness=(1.0, 2.0, 3.0),
        rotational_stiffness=(0.4, 0.5, 0.6),
    )
    return [bushing, *(force for force in every if getattr(force, "joint", joint) == joint)]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_no_leaf_of_a_planar_mechanism_is_dead(form):
    joints = [*catalogue.JOINTS, *catalogue.MOTIONS]
    mechanism, q = jm.planar_mechanism(catalogue.BODIES, joints, catalogue.FORCES, coordinates=FORMS[form])
    assert dead_leaves(mechanism, generic_state(mechanism, q)) == []


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_no_leaf_of_a_planar_mechanism_of_first_order_is_dead(form):
    joints, drives = (
        [*catalogue.JOINTS, *catalogue.MOTIONS],
        [jm.JointRate("turn", hinge_name(catalogue.JOINTS))],
    )
    description = jm.Description(
        bodies=catalogue.BODIES, joints=joints, forces=catalogue.FORCES, drives=drives
    )
    mechanism, q = jm.kinematic_mechanism(description, FORMS[form])
    assert dead_leaves(mechanism, generic_state(mechanism, q), jnp.ones(1)) == []


def hinge_name(joints):
    return next(joint.name for joint in joints if isinstance(joint, jm.Revolute))


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("space", ["plane", "space"])
def test_no_leaf_of_limits_and_contacts_is_dead(space, form):
    """Discs and spheres have no leaf for their orientation, which has no effect."""
    numbers = {"limits": (-1.0, 2.0), "restitution": 0.3, "dry_friction": 0.2}
    if space == "plane":
        bodies = [jm.Body("arm", 1.0, 0.1, pose=(0.5, 1.0, 0.2)), jm.Body("ball", 2.0, 0.1)]
        joints = [jm.Revolute("hinge", "ground", "arm", at=(0.0, 1.0), **numbers)]
        balls = contact.Disc(0.2, at=(0.1, 0.2)), contact.Disc(0.3)
        ground = contact.Line(at=(0.1, 0.2), angle=0.1)
    else:
        moments = (0.1, 0.2, 0.3)
        bodies = [js.Body("arm", 1.0, moments, place=(0.5, 0.0, 1.0)), js.Body("ball", 2.0, moments)]
        joints = [js.Revolute("hinge", "ground", "arm", axis=(0.0, 1.0, 0.0), at=(0.0, 0.0, 1.0), **numbers)]
        balls = contact.Sphere(0.2, at=(0.1, 0.2, 0.3)), contact.Sphere(0.3)
        ground = contact.Plane(at=(0.1, 0.2, 0.3))
    pairs = [
        contact.Pair("floor", "ground", "ball", ground, balls[1], friction=0.4, restitution=0.2),
        contact.Pair("hit", "arm", "ball", *balls, friction=0.3),
    ]
    plane = jm.PLANE if space == "plane" else jm.SPACE
    mechanism, q = jm.mechanism(
        jm.Description(space=plane, bodies=bodies, joints=joints, contacts=pairs), FORMS[form]
    )
    assert dead_leaves(mechanism, generic_state(mechanism, q)) == []
    orientation = "angle" if space == "plane" else "quaternion"
    with pytest.raises(KeyError, match=rf"hit\.shape_b\.{orientation} has no effect, and no leaf"):
        jd.tree.get_leaf(mechanism, f"contacts.hit.shape_b.{orientation}")


VEHICLES = {
    "differential_drive": lambda: jv.differential_drive(0.5, 0.1),
    "bicycle": lambda: jv.bicycle(2.5),
    "ackermann": lambda: jv.ackermann(2.5, 1.5, steering=(0.3, 0.3)),
    "truck_and_trailers": lambda: jv.truck_and_trailers(2.0, [3.0], [1.0]),
    "skid_steer": lambda: jv.skid_steer(1.0, 0.5, 0.1),
    "mecanum": lambda: jv.mecanum(1.0, 0.5, 0.1),
    "omni": lambda: jv.omni(3, 0.2, 0.05),
}


@pytest.mark.parametrize(
    ("vehicle", "form"),
    [
        *(("differential_drive", form) for form in FORMS),
        *(
            pytest.param(vehicle, form, marks=pytest.mark.long)
            for vehicle, form in zip(list(VEHICLES)[1:], 3 * tuple(FORMS), strict=True)
        ),
    ],
)
def test_no_leaf_of_a_vehicle_of_first_order_is_dead(vehicle, form):
    system, q = jm.kinematic_mechanism(VEHICLES[vehicle](), FORMS[form])
    assert dead_leaves(system, generic_state(system, q), jnp.ones(system.n_inputs)) == []


@pytest.mark.long
def test_vehicles_of_first_order_have_no_leaves_of_masses():
    mechanism, _ = jm.mechanism(jv.rocker_bogie(), jm.Joints())
    rover = jv.LeastSlip(mechanism, tuple(f"{wheel}.angle_rate" for wheel in jv.ROVER_WHEELS))
    assert not [
        path
        for path in jd.tree.leaf_paths(rover)
        if path.split(".")[-1] in ("mass", "inertia", "gravity", "damping", "armature")
    ]
    with pytest.raises(KeyError, match="does not exist in a first-order mechanism"):
        jd.tree.set_leaf(rover, "mechanism.bodies.base_link.mass", 1.0)


@pytest.mark.long
def test_an_embedded_mechanism_has_each_parameter_once():
    """A new wheel radius moves the same vehicle as a description with this radius."""

    def embedded(radius):
        description = jv.differential_drive(0.5, radius, mass=20.0, inertia=1.0, wheel_inertia=0.02)
        mechanism, q = jm.mechanism(description, jm.Joints())
        return jm.EmbeddedMechanism(mechanism, jm.kinematic_mechanism(description, jm.Joints())[0]), q

    (system, q), (expected, _) = embedded(0.1), embedded(0.2)
    assert not [
        path
        for path in jd.tree.leaf_paths(system)
        if "frame" in path and path.split(".")[-1] in ("radius", "axis", "point_b")
    ]
    changed = jd.tree.set_leaf(
        system,
        "mechanism.joints.rolling_wheel.radius",
        jd.tree.get_leaf(expected, "mechanism.joints.rolling_wheel.radius"),
    )
    changed = jd.tree.set_leaf(changed, "mechanism.joints.traction_wheel.radius", jnp.asarray([0.2]))
    x = jnp.concatenate([q, jnp.asarray([1.0, 2.0])])
    rate = jax.jit(lambda some: some.rate(jnp.zeros(()), x, None))
    for some in (changed, jax.tree.map(lambda leaf: leaf, changed)):
        np.testing.assert_allclose(rate(some), rate(expected), rtol=0, atol=1e-12)


def every_joint_in_space():
    """Return a description in which each kind of joint connects two bodies of its own."""
    bodies, joints = [], []
    for key, free in spatial_joints.FREE.items():
        names = {body.name: f"{body.name} of {key}" for body in spatial_joints.BODIES}
        bodies += [dataclasses.replace(body, name=names[body.name]) for body in spatial_joints.BODIES]
        joint = free.joint(key, "left", "right")
        joints.append(dataclasses.replace(joint, a=names["left"], b=names["right"]))
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=joints)


def without_ends_of_curves(paths):
    """The ends of a curve act at the ends only, by OUT_OF_RANGE."""
    return [path for path in paths if not re.search(r"point_on_curve.*\.(first|last)$", path)]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_no_leaf_of_a_joint_in_space_of_first_order_is_dead(form):
    system, q = jm.kinematic_mechanism(every_joint_in_space(), FORMS[form])
    assert without_ends_of_curves(dead_leaves(system, generic_state(system, q))) == []


@pytest.mark.parametrize("form", FORMS)
def test_masses_and_forces_do_not_exist_in_first_order(form):
    body = jm.Body("arm", 2.0, 0.1, pose=(0.5, 0.0, 0.0))
    joint = jm.Revolute(
        "A", "ground", "arm", point_a=(0.0, 0.0), point_b=(-0.5, 0.0), damping=0.3, stiffness=2.0
    )
    described = jm.Description(bodies=[body], joints=[joint], drives=[jm.JointRate("turn", "A")])
    system, _ = jm.kinematic_mechanism(described, FORMS[form])
    group = "carrying" if form == "joints" else "joints"
    assert {path.split(".")[-1] for path in jd.tree.leaf_paths(system)} == {"point_a", "point_b"}
    paths = [
        "mass",
        "inertia",
        "gravity",
        "bodies.arm.mass",
        "joints.A.damping",
        "joints.A.armature",
        f"{group}.revolute.stiffness",
    ]
    for path in paths:
        message = (
            rf"{re.escape(path)} does not exist in a first-order mechanism, because it does not "
            r"affect the motion"
        )
        for address in (
            jd.tree.get_leaf,
            jd.tree.batch_axes,
            lambda tree, path: jd.tree.set_leaf(tree, path, jnp.ones(1)),
        ):
            with pytest.raises(KeyError, match=message):
                address(system, f"mechanism.{path}")
    np.testing.assert_array_equal(jd.tree.get_leaf(system, "mechanism.joints.A.point_b"), [-0.5, 0.0])
    with pytest.raises(ValueError, match=r"the parameters have no leaf 'mechanism.mass'"):
        tuning.reparametrize(system, ["mechanism.mass"])


def test_functions_that_need_masses_refuse_mechanisms_of_first_order():
    body = jm.Body("arm", 2.0, 0.1)
    system, q = jm.kinematic_mechanism(jm.Description(bodies=[body], drives=[jm.YawRate("turn", "arm")]))
    state = jd.State(0.0, q, 0.0 * q)
    for needs, what in (
        (lambda: jd.forward_dynamics(system.mechanism, state), "forces"),
        (lambda: system.mechanism.kinetic_energy(q, q), "kinetic energy"),
        (lambda: system.mechanism.potential_energy(jnp.zeros(()), q), "potential energy"),
        (lambda: system.mechanism.force(jnp.zeros(()), q, q, None), "forces"),
        (lambda: robots.center_of_mass(system.mechanism, q), "masses"),
    ):
        with pytest.raises(TypeError, match=rf"a first-order mechanism has no {what}"):
            needs()


@pytest.mark.long
@pytest.mark.parametrize(
    ("joint", "form"),
    [
        ("cylindrical", "absolute"),
        pytest.param("universal", "joints", marks=pytest.mark.exhaustive),
    ],
)
def test_no_leaf_of_forces_in_space_is_dead(joint, form):
    hinge = spatial_joints.FREE[joint].joint(joint, "left", "right")
    mechanism, q = jm.spatial_mechanism(
        spatial_joints.BODIES, [hinge], spatial_forces(joint), coordinates=FORMS[form]
    )
    # The least force of an actuator acts for one sign of its input, the largest one for the other.
    found = [
        set(dead_leaves(mechanism, generic_state(mechanism, q), sign * jnp.ones(2))) for sign in (-3.0, 3.0)
    ]
    assert set.intersection(*found) == set()


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_no_leaf_of_a_joint_in_space_is_dead(form):
    mechanism, q = jm.mechanism(every_joint_in_space(), FORMS[form])
    assert without_ends_of_curves(dead_leaves(mechanism, generic_state(mechanism, q))) == []


def hinge(form, **numbers):
    body = jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
    joint = jm.Revolute("A", "ground", "arm", point_a=(0.0, 0.0), point_b=(-0.5, 0.0), damping=0.3, **numbers)
    return jm.planar_mechanism([body], [joint], coordinates=FORMS[form])


@pytest.mark.long
def test_parameters_of_tree_joints_change_the_motion():
    mechanism, q = hinge("joints")
    state = jd.State(0.0, q, jnp.ones(1))
    longer = jd.tree.set_leaf(mechanism, "carrying.revolute.point_b", jnp.array([[-2.0, 0.0]]))
    np.testing.assert_allclose(longer.mass_matrix(q), 0.1 + 2.0**2, rtol=0, atol=1e-12)
    np.testing.assert_allclose(longer.frames(q).x, 2.0, rtol=0, atol=1e-15)
    damped = jd.tree.set_leaf(mechanism, "joints.A.damping", 100.0)
    np.testing.assert_allclose(
        jd.forward_dynamics(damped, state)[0], -(9.81 * 0.5 + 100.0) / 0.35, rtol=1e-14
    )


@pytest.mark.long
def test_a_batch_varies_parameters_of_tree_joints():
    mechanism, q = hinge("joints")
    lengths = jnp.array([0.5, 1.0, 2.0])
    points = jnp.stack([-lengths, jnp.zeros(3)], axis=1)[:, None]
    worlds = jd.tree.set_leaf(mechanism, "carrying.revolute.point_b", points)
    axes = jd.tree.batch_axes(worlds, "carrying.revolute.point_b")
    state = jd.State(0.0, jnp.tile(q, (3, 1)), jnp.zeros((3, 1)))
    method = jd.RungeKutta.rk4()
    ends = jd.batch_rollout(
        worlds, method, state, dt=1e-3, steps=20, save_every=20, in_axes=(axes, None, 0, None)
    ).state.q[:, -1]
    for end, point in zip(ends, points, strict=True):
        alone = jd.tree.set_leaf(mechanism, "carrying.revolute.point_b", point)
        np.testing.assert_allclose(
            end,
            jd.rollout(alone, method, jd.State(0.0, q, 0 * q), dt=1e-3, steps=20).state.q[-1],
            rtol=0,
            atol=1e-15,
        )
    # I q'' = -m g l - c q' from rest, as long as cos q = 1.
    inertia, t = 0.1 + lengths**2, 0.02
    expected = -9.81 * lengths / 0.3 * (t - inertia / 0.3 * -jnp.expm1(-0.3 * t / inertia))
    np.testing.assert_allclose(ends[:, 0], expected, rtol=1e-5)


@pytest.mark.long
def test_derivatives_reach_the_parameters_of_tree_joints():
    mechanism, q = hinge("joints")
    state = jd.State(0.0, q, jnp.ones(1))

    def end(length):
        longer = jd.tree.set_leaf(mechanism, "joints.A.point_b", jnp.stack([-length, 0.0 * length]))
        return jd.rollout(longer, jd.RungeKutta.rk4(), state, dt=1e-2, steps=20).state.q[-1, 0]

    both = jax.jit(lambda length: jax.jvp(end, (length,), (1.0,)))
    slope = (both(0.5 + 1e-5)[0] - both(0.5 - 1e-5)[0]) / 2e-5
    np.testing.assert_allclose(both(0.5)[1], slope, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_the_names_of_a_description_address_its_parameters(form):
    mechanism, _ = hinge(form)
    for path, value in {
        "bodies.arm.mass": 3.0,
        "bodies.arm.inertia": 0.7,
        "joints.A.damping": 9.0,
        "joints.A.point_b": [-0.7, 0.1],
    }.items():
        changed = jd.tree.set_leaf(mechanism, path, jnp.asarray(value))
        np.testing.assert_array_equal(jd.tree.get_leaf(changed, path), value)
    group = "carrying" if form == "joints" else "joints"
    assert jax.tree.leaves(jd.tree.batch_axes(mechanism, "joints.A.damping")) == [0]
    assert getattr(jd.tree.batch_axes(mechanism, "joints.A.damping"), group)["revolute"].damping == 0
    with pytest.raises(KeyError, match=r"joints\.A\.friction: unknown parameter, or zero for every revolute"):
        jd.tree.get_leaf(mechanism, "joints.A.friction")
    with pytest.raises(KeyError, match="no 'Z' in dict"):
        jd.tree.get_leaf(mechanism, "joints.Z.damping")


def test_a_group_that_reads_an_input_has_a_gain():
    """Groups go without the gain if no element reads an input. An input without a gain must not be lost."""
    bodies, joints = (
        [jm.Body("arm", 1.0, 0.1, (0.5, 0.0, 0.0))],
        [jm.Revolute("pivot", jm.GROUND, "arm", (0.0, 0.0))],
    )
    mechanism, q = jm.planar_mechanism(
        bodies, joints, [jm.Torque("motor", jm.GROUND, "arm", 0.0)], gravity=(0.0, 0.0)
    )
    torque, start, u = mechanism.forces["torque"], jd.State(0.0, q, 0.0 * q), jnp.array([2.0])

    def turned(group):
        driven = dataclasses.replace(mechanism, n_inputs=1, forces={"torque": group})
        return jd.forward_dynamics(driven, start, u)[0][2]

    with pytest.raises(
        ValueError,
        match=r"^torque: the group reads inputs \(0,\) without gain; give one entry per element",
    ):
        turned(dataclasses.replace(torque, input=(0,)))
    inertia = 0.1 + 1.0 * 0.5**2  # kg m^2, about the pivot
    np.testing.assert_allclose(
        turned(dataclasses.replace(torque, input=(0,), gain=jnp.ones(1))), 2.0 / inertia, rtol=1e-14
    )


TIRES = {
    "rolls freely": {},
    "rim speed": {"rim_speed": 0.3},
    "input": {"input": 0},
    "rotor": {"spin": "rotor", "radius": 0.3},
}


# Tires that roll freely have other leaves than driven ones. All laws share the code of the rim speed.
@pytest.mark.parametrize(
    ("law", "wheel"),
    [
        *(("linear", wheel) for wheel in TIRES),
        *(
            pytest.param(law, wheel, marks=pytest.mark.long)
            for law, driven in (("viscous", "rotor"), ("brush", "rim speed"), ("magic", "input"))
            for wheel in ("rolls freely", driven)
        ),
    ],
)
def test_no_leaf_of_a_tire_is_dead(law, wheel):
    # At this speed below `slow`, all numbers act.
    slow, driven = {"slow": 9.0}, bool(TIRES[wheel])
    along = {"longitudinal": 3.0} if driven else {}
    kind, numbers = {
        "viscous": (jm.ViscousTire, {"lateral": 2.0, **along}),
        "linear": (jm.LinearTire, {"lateral": 2.0, "steer": 0.1, **slow, **along}),
        "brush": (jm.BrushTire, {"stiffness": 3.0, "friction": 0.8, "load": 2.0, **slow}),
        "magic": (
            jm.MagicFormulaTire,
            {"load": 2.0, **slow, **({"peak_longitudinal": 1.1} if driven else {})},
        ),
    }[law]
    bodies = [jm.Body("car", 1.0, 0.2), jm.Rotor("rotor", 0.1)]
    dead = []
    for limit in ({"most": 0.2}, {"most": 50.0}) if law == "linear" else ({},):
        tire = kind("tire", "car", (1.0, 0.0), point=(0.1, 0.2), **TIRES[wheel], **numbers, **limit)
        mechanism, q = jm.mechanism(jm.Description(bodies=bodies, forces=[tire]))
        u = jnp.ones(1) if "input" in TIRES[wheel] else None
        dead.append(set(dead_leaves(mechanism, generic_state(mechanism, q), u)))
    # The limit acts on large forces only, and then `slow` does not.
    assert set.intersection(*dead) == set()
