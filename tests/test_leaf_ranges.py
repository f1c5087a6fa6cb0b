"""Leaves that are replaced at run time have the ranges of the description: an error if known, OUT_OF_RANGE if
traced.
"""

import itertools

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spatial_joints

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import robots
from jaxdae import vehicles as jv
from jaxdae.base.requirements import check_requirements, requirements_met
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.describe.number_kinds import Bounded
from jaxdae.mechanisms.describe.place_kinds import Direction, JointAxes

FORMS = {"absolute": jm.Absolute(), "joints": jm.Joints()}


def outside(kind, leaf):
    """Return values outside the range of a field, with the shape of its leaf."""
    if isinstance(kind, Bounded):
        bounds = (
            (kind.above, kind.above),
            (kind.at_least, -0.5),
            (kind.within, kind.within),
            (kind.nonzero or None, 0.0),
        )
        return [jnp.full_like(leaf, value) for bound, value in bounds if bound is not None]
    if isinstance(kind, JointAxes):  # scaled, mirrored, sheared
        return [3.0 * leaf, leaf.at[..., 2].multiply(-1.0), leaf.at[..., 0].add(0.1 * leaf[..., 1])]
    return [3.0 * leaf, 0.0 * leaf, 1.001 * leaf] if isinstance(kind, Direction) else []


def out_of_range(mechanism):
    """Yield the path of each leaf with a range, and a value outside of it."""
    for place in ("joints", "carrying", "forces"):
        for key, group in getattr(mechanism, place).items():
            for name, kind in group.kinds().items():
                leaf = getattr(group, name)
                if leaf is not None and not callable(leaf):
                    yield from ((f"{place}.{key}.{name}", value) for value in outside(kind, leaf))
    yield from ((name, -jd.tree.get_leaf(mechanism, name)) for name in ("mass", "inertia"))


def checked(mechanism):
    """Check all values of `out_of_range`, and return their number."""
    met, count = jax.jit(requirements_met), 0
    assert met(mechanism)
    check_requirements("system", mechanism)
    for path, value in out_of_range(mechanism):
        changed = catalogue.with_leaf(mechanism, path, value)
        assert not met(changed), path
        for call in (
            lambda changed=changed: check_requirements("system", changed),
            lambda path=path, value=value: jd.tree.set_leaf(mechanism, path, value),
        ):
            with pytest.raises(ValueError, match=path.split(".")[-1]):
                call()
        count += 1
    return count


@pytest.mark.parametrize("form", FORMS)
def test_leaves_of_a_planar_mechanism_have_the_ranges_of_its_description(form):
    joints = [*catalogue.JOINTS, *catalogue.MOTIONS]
    assert (
        checked(jm.planar_mechanism(catalogue.BODIES, joints, catalogue.FORCES, coordinates=FORMS[form])[0])
        > 15
    )


# Other joints have the same kinds of leaves.
SIMPLE = ("prismatic", "cylindrical", "ball", "planar", "weld", "point_on_line", "point_on_plane")


@pytest.mark.long
@pytest.mark.parametrize(
    ("joint", "form"),
    [
        pytest.param("revolute", "absolute", marks=pytest.mark.exhaustive),
        ("revolute", "joints"),
        *(
            pytest.param(joint, form, marks=pytest.mark.exhaustive if joint in SIMPLE else pytest.mark.long)
            for joint, form in zip(
                (joint for joint in spatial_joints.FREE if joint != "revolute"), itertools.cycle(FORMS)
            )
        ),
    ],
)
def test_leaves_of_a_mechanism_in_space_have_the_ranges_of_its_description(joint, form):
    every = [
        force
        for forces in spatial_joints.FORCES.values()
        for force in forces
        if getattr(force, "joint", joint) == joint
    ]
    joints = [spatial_joints.FREE[joint].joint(joint, "left", "right")]
    assert (
        checked(jm.spatial_mechanism(spatial_joints.BODIES, joints, every, coordinates=FORMS[form])[0]) > 10
    )


def arm(form, space):
    if space == "plane":
        hinge = jm.Revolute("A", "ground", "arm", at=(0.0, 0.0), damping=0.1)
        return jm.planar_mechanism(
            [jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0))], [hinge], coordinates=FORMS[form]
        )
    hinge = js.Revolute("A", "ground", "arm", axis=(0.0, 1.0, 0.0), at=(0.0, 0.0, 0.0), damping=0.1)
    return jm.spatial_mechanism(
        [js.Body("arm", 1.0, (0.1, 0.1, 0.1), place=(0.5, 0.0, 0.0))], [hinge], coordinates=FORMS[form]
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("space", "path", "form"),
    [
        pytest.param("plane", "joints.A.damping", "absolute", marks=pytest.mark.exhaustive),
        ("plane", "joints.A.damping", "joints"),
        pytest.param("space", "joints.A.axes_a", "joints", marks=pytest.mark.long),
        pytest.param("space", "joints.A.axes_b", "absolute", marks=pytest.mark.exhaustive),
    ],
)
def test_a_rollout_reports_a_leaf_out_of_range(space, path, form):
    mechanism, q = arm(form, space)
    start = jd.State(0.0, q, jnp.zeros(len(mechanism.names.velocities)))
    leaf = jd.tree.get_leaf(mechanism, path)

    def rollout(x):
        changed = jd.tree.set_leaf(mechanism, path, x)
        return jd.rollout(
            changed, jd.SemiImplicitEuler(), start, dt=1e-3, steps=1, start_tolerance=jnp.inf
        ).info.status[-1]

    np.testing.assert_array_equal(
        jax.jit(jax.vmap(rollout))(jnp.stack([leaf, -1.1 * leaf])), [jd.Status.OK, jd.Status.OUT_OF_RANGE]
    )
    for call in (rollout, lambda x: jd.forward_dynamics(jd.tree.set_leaf(mechanism, path, x), start)):
        with pytest.raises(ValueError, match=f"Revolute.{path.split('.')[-1]} must be"):
            call(-1.1 * leaf)


@pytest.mark.long
def test_a_batch_reports_its_worlds_out_of_range():
    mechanism, q = arm("joints", "plane")
    worlds = catalogue.with_leaf(mechanism, "mass", jnp.array([[1.0], [-1.0]]))
    with pytest.raises(ValueError, match=r"mass: Mechanism\.mass must be non-negative"):
        jd.tree.set_leaf(mechanism, "mass", worlds.mass)
    starts = jd.State(jnp.zeros(2), jnp.stack([q, q]), jnp.zeros((2, 1)))
    axes = (jd.tree.batch_axes(worlds, "mass"), None, 0, None)

    def run(worlds):
        return jd.batch_rollout(
            worlds, jd.RungeKutta.rk4(), starts, dt=1e-3, steps=1, in_axes=axes
        ).info.status[:, -1]

    with pytest.raises(ValueError, match=r"Mechanism\.mass must be non-negative"):
        run(worlds)
    np.testing.assert_array_equal(jax.jit(run)(worlds), [jd.Status.OK, jd.Status.OUT_OF_RANGE])


MATRIX = np.array([[0.3, 0.1, 0.0], [0.1, 0.4, 0.05], [0.0, 0.05, 0.5]])
INERTIAS = {
    "positive": (MATRIX, True),
    "thin rod": (np.diag([0.0, 1.0, 1.0]), True),
    "point mass": (np.zeros((3, 3)), True),
    "indefinite": (MATRIX + np.array([[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0]]), False),
    "negative": (-MATRIX, False),
    "two negative": (np.diag([1.0, -1.0, -1.0]), False),
    "not symmetric": (MATRIX + np.array([[0, 0.1, 0], [0, 0, 0], [0, 0, 0]]), False),
}


@pytest.mark.parametrize("case", INERTIAS)
@pytest.mark.parametrize("count", [1, 3])
def test_inertia_matrices_at_run_time(case, count):
    matrix, fine = INERTIAS[case]
    bodies = [js.Body(f"body_{k}", 1.0, MATRIX) for k in range(count)]
    mechanism, _ = jm.spatial_mechanism(bodies, [])
    changed = catalogue.with_leaf(mechanism, "inertia", jnp.asarray([matrix] * count))
    assert bool(requirements_met(changed)) is fine
    if not fine:
        with pytest.raises(ValueError, match=r"Mechanism\.inertia must be"):
            check_requirements("system", changed)


TERRAINS = {
    "plane": (jv.Plane(jnp.array([0.0, 0.0, 1.0])), "normal", jnp.array([0.0, 0.0, -1.0])),
    "cylinder": (jv.Cylinder(jnp.array(2.0)), "radius", jnp.array(0.0)),
    "axis": (jv.Cylinder(2.0, jnp.array([0.0, 1.0])), "axis", jnp.zeros(2)),
    "map": (jv.HeightMap(jnp.zeros((3, 3)), jnp.array(0.5)), "spacing", jnp.array(-0.5)),
}


@pytest.mark.parametrize("case", TERRAINS)
def test_parameters_of_terrains_at_run_time(case):
    terrain, name, value = TERRAINS[case]
    body, at = js.Body("ball", 1.0, (1.0, 1.0, 1.0), place=(0.2, 0.2, 0.3)), (0.0, 0.0, 0.0)
    mechanism, _ = jm.spatial_mechanism(
        [body], [js.SlidingSphere("on", "ground", "ball", point_b=at, radius=0.1, terrain=terrain)]
    )
    key = next(iter(mechanism.joints))
    changed = catalogue.with_leaf(mechanism, f"joints.{key}.terrain.{name}", value[None])
    assert requirements_met(mechanism)
    assert not requirements_met(changed)
    with pytest.raises(ValueError, match=rf"{name} must"):
        check_requirements("system", changed)


@pytest.mark.parametrize("column", range(6))
def test_parameters_of_tendons_at_run_time(column):
    mechanism, _ = arm("joints", "plane")
    tendon = jm.Tendon(
        "t", ("A",), (1.0,), stiffness=2.0, damping=0.1, slack_from=0.1, slack_to=0.2, friction=0.3
    )
    hinge, body = (
        jm.Revolute("A", "ground", "arm", at=(0.0, 0.0)),
        jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0)),
    )
    mechanism, _ = jm.planar_mechanism([body], [hinge], [tendon])
    spring = jd.tree.get_leaf(mechanism, "tendons.spring")
    changed = catalogue.with_leaf(
        mechanism, "tendons.spring", spring.at[0, column].set(0.3 if column == 2 else -0.3)
    )
    assert requirements_met(mechanism)
    assert not requirements_met(changed)
    with pytest.raises(ValueError, match=r"spring must"):
        check_requirements("system", changed)
    # One call replaces one bound, so that the order of both counts later.
    for name, value in (("slack_from", 0.5), ("slack_to", 0.6)):
        mechanism = jd.tree.set_leaf(mechanism, f"forces.t.{name}", value)
    assert requirements_met(mechanism)


def test_radii_of_a_wheel_layout():
    wheels = jv.wheels([[1.0, 1.0], [1.0, -1.0]], radius=0.1, names=("left", "right"))
    for radius in (-0.1, 0.0):
        changed = catalogue.with_leaf(wheels, "radius", jnp.array([0.1, radius]))
        for call in (
            lambda layout=changed: jv.wheel_rates(layout, jnp.ones(3)),
            lambda layout=changed: jv.body_twist(layout, jnp.ones(2)),
        ):
            with pytest.raises(ValueError, match=r"wheels: Wheels\.radius must be positive, got \["):
                call()


def test_functions_of_one_instant_refuse_leaves_out_of_range():
    vehicle, q = jm.kinematic_mechanism(jv.differential_drive(0.5, 0.1))
    path = "mechanism.joints.rolling_wheel.axis"
    longer = catalogue.with_leaf(vehicle, path, 3.0 * jd.tree.get_leaf(vehicle, path))
    state, rates = jd.State(0.0, q, 0.0 * q), jnp.array([3.0, 4.0])
    for call in (jd.kinematic_velocity, jd.kinematic_status):
        with pytest.raises(ValueError, match=r"RollingWheel\.axis must have length 1"):
            call(longer, state, rates)
    mechanism, q = arm("joints", "plane")
    damped = catalogue.with_leaf(mechanism, "carrying.revolute.damping", jnp.array([-1.0]))
    state, none = jd.State(jnp.zeros(()), q, 0.0 * q), jnp.zeros(0)
    for call in (
        lambda: jm.reactions(damped, state, none),
        lambda: jm.to_absolute(damped, state),
        lambda: jm.to_joints(damped, jd.State(0.0, jnp.array([0.5, 0.0, 0.0]), jnp.zeros(3))),
        lambda: jd.energy(damped, state),
        lambda: jd.operators.constraint_terms(damped, state),
        lambda: robots.nonlinear_effects(damped, state),
    ):
        with pytest.raises(ValueError, match=r"Revolute\.damping must be non-negative"):
            call()
