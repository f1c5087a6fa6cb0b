"""Values of fields that have no meaning: Python, configs and robot files refuse the same ones, all of them at
once.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import pytest
import yaml
from all_cases import all_cases
from small_systems import without_typechecker

import jaxdae as jd
import jaxdae.mechanisms as jm
import jaxdae.vehicles as jv
from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema_mechanism import DRIVE_SECTIONS, DRIVE_TYPES, SECTIONS, TYPES
from jaxdae.app.model.load_config import load
from jaxdae.base.requirements import check_requirements
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.describe.description_checks import DescriptionError
from jaxdae.mechanisms.describe.kinds import NOTHING, Truth
from jaxdae.mechanisms.describe.number_kinds import Bounded, Components

ARM = jm.Body("arm", 1.0, 0.1, pose=(0.5, 0.0, 0.0))
ARM_IN_SPACE = js.Body("arm", 1.0, (0.1, 0.1, 0.1), place=(0.5, 0.0, 0.0))
ZERO = jnp.zeros(())
NO_MEANING = (
    np.nan,
    np.inf,
    True,
    np.bool_(False),
    "1.0",
    1j,
    [1.0] * 7,
    {"a": 1.0},
    jnp.array(True),
    float,
    None,
)
"""Values that are not the number that a field needs; None where the field must be given."""


def numbers_of(space):
    """Yields the section of each type with a config, the name and the kind of each of its fields that has
    numbers.
    """
    for types, sections in ((TYPES[space], SECTIONS[space]), (DRIVE_TYPES[space], DRIVE_SECTIONS[space])):
        for key, kind in types.items():
            yield from (
                (sections[key], name, field)
                for name, field in kind.kinds().items()
                if isinstance(field, Bounded | Truth)
            )


def outside(field):
    """Returns numbers that break the bounds of a field."""
    if not isinstance(field, Bounded):
        return []
    limits = (
        (field.above, field.above),
        (field.at_least, -0.5),
        (field.within, field.within),
        (field.nonzero or None, 0.0),
    )
    return [value for bound, value in limits if bound is not None]


def refused_in_config(section, name, value):
    """Returns whether the section of a config refuses the value of a field."""
    try:
        section.model_validate({"type": section.kind.type_key(), name: value})
    except pydantic.ValidationError as error:
        return any(each["loc"][0] == name for each in error.errors())
    return False


@pytest.mark.parametrize("space", ["plane", "space"])
def test_python_and_configs_refuse_the_same_values_of_every_field(space):
    """Every field of every type: values that are not numbers, and numbers out of bounds, as one number or as
    components.
    """
    looked_at = 0
    for section, name, field in numbers_of(space):
        components = isinstance(field, Components)
        bad = [
            *NO_MEANING,
            *((value,) * field.dimension if components else value for value in outside(field)),
        ]
        bad = [
            value for value in bad if not (isinstance(field, Truth) and isinstance(value, bool | np.bool_))
        ]
        bad = [value for value in bad if value is not None or section.kind.default_of(name) is not None]
        for value in bad:
            where = f"{section.kind.__name__}.{name} = {value!r}"
            assert list(field.mistakes(value, NOTHING)), where
            if (
                field.in_config
                and value is not None
                and not isinstance(value, np.bool_ | jax.Array | type | complex)
            ):
                assert refused_in_config(section, name, value), where
            looked_at += 1
    assert looked_at > 300


# Each has the mistakes of Python and of a config, None where a config has no such key. Elements have their
# places besides.
PLANE = {
    "damping": (
        {"type": "revolute", "damping": -1.0},
        "damping must be non-negative, got -1.0",
        "a finite number >= 0",
    ),
    "speed": (
        {"type": "revolute", "friction_speed": 0.1},
        "friction_speed without friction has no effect",
        "friction_speed without friction",
    ),
    "rest": (
        {"type": "revolute", "rest": 1.0},
        "rest = 1.0; remove rest or give stiffness",
        "remove rest, or add stiffness",
    ),
    "lengthy": ({"type": "rod", "length": 0.0}, "length must be positive, got 0.0", "a finite number > 0"),
    "turning": (
        {"type": "prescribed_motion", "motion": jm.Sinusoid(1.0, -2.0)},
        "motion is invalid: Sinusoid.frequency must be positive, got -2.0",
        None,
    ),
    "still": (
        {"type": "prescribed_motion", "motion": jm.Polynomial([])},
        "coefficients must be a list of at least one number, got []",
        None,
    ),
    "scalar": (
        {"type": "prescribed_motion", "motion": jm.Polynomial(2.0)},
        "must be a list of at least one number, got 2.0",
        None,
    ),
    "drag": ({"type": "drag", "linear": -1.0}, "linear must be non-negative", "a finite number >= 0"),
    "spring": (
        {"type": "linear_spring", "rest_length": 1.0},
        "rest_length without stiffness has no effect",
        "rest_length without stiffness",
    ),
    "negative": (
        {"type": "linear_spring", "stiffness": 1.0, "rest_length": -1.0},
        "rest_length must be non-neg",
        "a finite number >= 0",
    ),
    "coil": (
        {"type": "torsional_spring", "rest_angle": 1.0},
        "rest_angle without stiffness",
        "rest_angle without stiffness",
    ),
    "motor": (
        {"type": "motor", "ratio": 0.0},
        "ratio must not be zero, got 0.0: use 1",
        "a number that must not be zero; use 1",
    ),
    "slack": (
        {"type": "tendon", "slack_from": 0.1},
        "slack_from without stiffness has no effect",
        "slack_from without stiffness",
    ),
    "nowhere": (
        {"type": "tendon", "joints": (), "weights": (1.0,)},
        "joints must be names of joints",
        "of length >= 1",
    ),
    "gain": (
        {"type": "torque", "gain": 5.0},
        "gain without input has no effect, got gain = 5.0; remove gain or give input",
        None,
    ),
    "push": ({"type": "force", "direction": (0.0, 1.0)}, "direction without input has no effect", None),
    "tire": (
        {"type": "linear_tire", "steer": 20.0},
        "steer must lie between -1.5708 and 1.5708, got 20.0: the unit is rad",
        "-1.5708",
    ),
    "magic": (
        {"type": "magic_formula_tire", "peak": -1.0},
        "peak must be non-negative",
        "a finite number >= 0",
    ),
    "long": (
        {"type": "torque", "torque": "a" * 999},
        f"torque must be a finite number, got '{116 * 'a'}...",
        "the text",
    ),
}
SPACE = {
    "bushing": (
        {"type": "bushing", "stiffness": (1.0, 1.0, -1.0)},
        "stiffness must be non-negative",
        "a finite number >= 0",
    ),
    "both": (
        {"type": "cylindrical", "friction": (1.0, -1.0)},
        "friction must be non-negative, got (1.0, -1.0)",
        "or a list of 2 of them",
    ),
    "screw": (
        {"type": "screw", "lead": 0.0},
        "lead must not be zero",
        "must not be zero; use a Revolute joint",
    ),
    "ball": (
        {"type": "ball", "friction_speed": 0.2},
        "friction_speed without friction",
        "friction_speed without friction",
    ),
    "servo": ({"type": "actuator", "most_input": 1.0}, "most_input without input has no effect", None),
    "servo gain": ({"type": "actuator", "gain": (2.0, 0.0, 0.0)}, "gain without input has no effect", None),
    "torque": (
        {"type": "torque", "direction": (0.0, 1.0, 0.0)},
        "direction without input has no effect",
        None,
    ),
    "joint force": ({"type": "joint_force", "gain": 5.0}, "gain without input has no effect", None),
    "rest": (
        {"type": "joint_force", "rest": 1.0},
        "rest without stiffness has no effect",
        "rest without stiffness",
    ),
    "damper": (
        {"type": "rotational_damper", "damping": -1.0},
        "damping must be non-negative",
        "a finite number >= 0",
    ),
    "whole": ({"type": "force", "body_frame": 1}, "body_frame must be True or False, got 1", "true or false"),
}
JOINTS = ("revolute", "rod", "prescribed_motion", "cylindrical", "screw", "ball")


def described(space, name, given):
    """Returns the fields of an element with its name, its bodies and its place."""
    kinds = TYPES[space][given["type"]].kinds()
    zero, one = ((0.0,) * 2, (1.0, 0.0)) if space == "plane" else ((0.0,) * 3, (1.0, 0.0, 0.0))
    usual = {
        "name": name,
        "a": "ground",
        "b": "arm",
        "body": "arm",
        "joint": "hinge",
        "joints": ("hinge",),
        "weights": (1.0,),
    }
    usual |= {"at": zero, "at_a": zero, "at_b": one, "axis": one, "load": 1.0, "lateral": 1.0}
    return {
        key: value
        for key, value in usual.items()
        if key in kinds and (key != "lateral" or "tire" in given["type"])
    } | given


@pytest.mark.parametrize(("space", "cases"), [("plane", PLANE), ("space", SPACE)], ids=["plane", "space"])
def test_all_meaningless_values_of_a_description_are_reported_at_once(space, cases, tmp_path):
    """As elements in Python, and as keys of a config: each with the name of the element, the value and the
    remedy.
    """
    hinge = {
        "type": "revolute",
        "name": "hinge",
        "a": "ground",
        "b": "arm",
        "at": (0.0,) * (2 if space == "plane" else 3),
    }
    hinge |= {} if space == "plane" else {"axis": (0.0, 0.0, 1.0)}
    elements = {
        name: described(space, name.replace(" ", "_"), given) for name, (given, _, _) in cases.items()
    }

    def built(given):
        return TYPES[space][given["type"]](**{key: value for key, value in given.items() if key != "type"})

    of_joints = {name: given["type"] in JOINTS for name, given in elements.items()}
    with without_typechecker():
        joints, forces = (
            [built(given) for name, given in elements.items() if of_joints[name] == which]
            for which in (True, False)
        )
    body, make = (ARM, jm.planar_mechanism) if space == "plane" else (ARM_IN_SPACE, jm.spatial_mechanism)
    with pytest.raises(DescriptionError) as caught:
        make([body], [built(hinge), *joints], forces)
    told = {name: text for _, name, text in caught.value.mistakes}
    assert len(told) == len(caught.value.mistakes) == len(cases)
    for name, (_, python, _) in cases.items():
        assert told[name.replace(" ", "_")].startswith(
            f"{'joint' if of_joints[name] else 'force'} '{name.replace(' ', '_')}': "
        )
        assert python in told[name.replace(" ", "_")]

    in_config = [name for name, (_, _, config) in cases.items() if config is not None]
    sections = {
        which: [elements[name] for name in in_config if of_joints[name] == which] for which in (True, False)
    }
    pose = [0.5, 0, 0] if space == "plane" else {"place": [0.5, 0, 0]}
    moving = {
        "name": "arm",
        "mass": 1.0,
        "inertia": 0.1 if space == "plane" else [0.1, 0.1, 0.1],
        "pose": pose,
    }
    mechanism = {
        "space": space,
        "bodies": [moving],
        "joints": [hinge, *sections[True]],
        "forces": sections[False],
    }
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({"name": "a", "mechanism": plain(mechanism), "duration": 1.0, "dt": 0.1}))
    with pytest.raises(ConfigError) as refused:
        load(str(file), ())
    lines = str(refused.value).splitlines()
    for name in in_config:
        assert any(f".{name.replace(' ', '_')}." in line and cases[name][2] in line for line in lines), (
            name,
            lines,
        )


def plain(tree):
    """Returns lists in place of tuples, for YAML."""
    return (
        jax.tree.map(lambda leaf: leaf, {k: plain(v) for k, v in tree.items()})
        if isinstance(tree, dict)
        else _listed(tree)
    )


def _listed(value):
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def test_numbers_of_every_kind_are_numbers():
    """Numbers of Python, NumPy and JAX, whole ones and zeros that are given; traced values are not looked at."""
    for one in (1, 1.0, np.float32(1.0), np.int64(1), np.ones(()), jnp.ones(()), jnp.ones((), int)):
        joint = jm.Revolute(
            "A",
            "ground",
            "arm",
            at=(0, 0),
            damping=one,
            stiffness=0.0,
            rest=one,
            friction=0,
            friction_speed=one,
        )
        motor = jm.Torque("f", "ground", "arm", torque=one, gain=0)
        mechanism, _ = jm.planar_mechanism([jm.Body("arm", one, one)], [joint], [motor])
        assert mechanism.mass[0] == 1.0

    def built(x):
        joint = jm.Revolute("A", "ground", "arm", at=(0, 0), damping=x, rest=x, friction_speed=x)
        forces = [
            jm.Torque("f", "ground", "arm", gain=x),
            jm.LinearSpring("s", "ground", "arm", (0, 1), (1, 0), stiffness=x, rest_length=x),
        ]
        motion = jm.PrescribedMotion("p", "A", jm.Polynomial([x, 1.0]))
        return jm.planar_mechanism([jm.Body("arm", 1.0, 0.1)], [joint, motion], forces)[0].mass[0] * x

    assert jax.grad(built)(-1.0) == 1.0
    np.testing.assert_array_equal(jax.vmap(built)(jnp.array([-1.0, 2.0])), [-1.0, 2.0])


CALLS = {
    "mass must be a positive number, got True": lambda: jm.planar_mechanism([jm.Body("a", True, 1.0)], []),
    "mass must be a positive number, got '1.0'": lambda: jm.planar_mechanism([jm.Body("a", "1.0", 1.0)], []),
    "inertia must be a positive number, got True": lambda: jm.planar_mechanism(
        [jm.Rotor("a", np.bool_(True))], []
    ),
    "pose must be three finite numbers (x, y, theta), got (0, 0, True)": lambda: jm.planar_mechanism(
        [jm.Body("a", 1, 1, (0, 0, True))], []
    ),
    "inertia must be three principal moments": lambda: jm.spatial_mechanism(
        [js.Body("a", 1.0, ("1", 1.0, 1.0))], []
    ),
    "gravity must be two finite numbers (x, y) in m/s^2, got ('0', -9.81)": lambda: jm.planar_mechanism(
        [ARM], [], gravity=("0", -9.81)
    ),
    "steering must lie between -pi and pi, got 20.0": lambda: jv.ackermann_angles(2.5, 1.5, 20.0),
    "steering must lie between -pi and pi, got nan": lambda: jv.ackermann_angles(2.5, 1.5, np.nan),
    "track must be positive and finite, in m, got -1.5": lambda: jv.ackermann_angles(2.5, -1.5, 0.2),
    "wheelbase must be positive and finite, in m, got -2.5": lambda: jv.bicycle(-2.5),
    "wheel_radius must be positive, got (0.1, -0.1)": lambda: jv.differential_drive(0.5, (0.1, -0.1)),
    "wheel_separation must be positive and finite, in m, got -0.5": lambda: jv.differential_drive(-0.5, 0.1),
    "roller_angle must lie between -pi and pi, got 45.0": lambda: jv.mecanum(
        1.0, 1.0, 0.1, roller_angle=45.0
    ),
    "distance must be positive and finite, in m, got inf": lambda: jv.omni(3, np.inf, 0.1),
    "height must be non-negative and finite, got -0.5": lambda: check_requirements(
        "car", jv.LoadTransfer(None, -0.5)
    ),
    "height must be non-negative and finite, got nan": lambda: jv.LoadTransfer(None, np.nan).loads(None),
    "wheelbase must be positive and finite, got -1.0": lambda: check_requirements(
        "car", jv.KinematicSingleTrack(-1.0)
    ),
    "alpha must not be negative, got -1.0": lambda: check_requirements(
        "method", jd.RungeKutta.rk4(stabilization=jd.Baumgarte(-1.0, 1.0))
    ),
    "beta must not be negative, got nan": lambda: check_requirements(
        "gains", jd.textbook.MultiplierFeedback(1.0, np.nan)
    ),
}


@all_cases("message", CALLS)
def test_bodies_vehicles_and_gains_of_no_meaning(message):
    with without_typechecker(), pytest.raises(ValueError, match=": ") as caught:
        CALLS[message]()
    assert message in str(caught.value)


def test_truth_values_are_no_numbers_of_methods():
    """Gains, tolerances, lengths of vehicles, the step and the tolerance of the start."""
    mechanism, q = jm.planar_mechanism([ARM], [])
    start = jd.State(ZERO, q, jnp.zeros(3))
    with without_typechecker():
        for thing, name in (
            (jd.Baumgarte(True, 1.0), "alpha"),
            (jd.Baumgarte(1.0, np.bool_(True)), "beta"),
            (jd.textbook.MultiplierFeedback(1.0, jnp.array(True)), "beta"),
            (jd.PositionProjection(tolerance=True), "tolerance"),
            (jv.LoadTransfer(None, True), "height"),
            (jv.KinematicSingleTrack(True), "wheelbase"),
        ):
            with pytest.raises(TypeError, match=f"{name} must be a number, got True"):
                check_requirements("method", thing)
        for given in ({"dt": True}, {"dt": jnp.array(True)}, {"dt": 0.1, "start_tolerance": True}):
            with pytest.raises(TypeError, match=f"{list(given)[-1]} must be a number"):
                jd.rollout(mechanism, jd.RungeKutta(), start, steps=1, **given)


@pytest.mark.long
@pytest.mark.parametrize(
    ("space", "start", "coordinates"),
    [
        pytest.param("plane", 0.5, jm.Joints(), id="plane-joints"),
        *(
            pytest.param(space, start, form, id=f"{space}-{name}", marks=pytest.mark.exhaustive)
            for space, start, form, name in (
                ("plane", 0.5, jm.Absolute(), "absolute"),
                ("space", 0.0, jm.Joints(), "joints"),
            )
        ),
        pytest.param("axes", 0.5, jm.Absolute(), id="axes-absolute"),
    ],
)
def test_everything_along_a_joint_counts_its_coordinate(space, start, coordinates):
    """The table of docs/coordinates.md, for a body that is turned by 0.5 rad against the body before it at
    the start.
    """
    kinds, flat = (jm if space == "plane" else js), space == "plane"
    motion = jm.Polynomial([0.2])
    joints = [
        kinds.Relation("relation", "B", "A", (0.2,), reference=0.0),
        jm.TendonRelation("tendon", ("B",), (1.0,), coefficients=(0.2,), reference=0.0),
        kinds.PrescribedMotion("motion from the start", "B", motion),
        kinds.Relation("relation from the start", "B", "A", (0.2,)),
        *([] if flat else [js.PrescribedMotion("motion", "B", motion, reference=0.0)]),
    ]
    forces = [
        jm.Tendon("spring", ("B",), (1.0,), stiffness=2.0, slack_from=0.2, slack_to=0.2),
        jm.Tendon("servo", ("B",), (1.0,), bias=(0.2 * 4.0, -4.0, 0.0)),
        *(
            []
            if flat
            else [
                js.JointForce("hinge", "B", stiffness=8.0, rest=0.2),
                js.Actuator("motor", "B", bias=(0.2 * 16.0, -16.0, 0.0)),
            ]
        ),
    ]
    if flat:
        bodies = [jm.Body("a", 1.0, 0.1, (0.0, 0.0, 0.3)), jm.Body("b", 1.0, 0.1, (0.0, 0.0, 0.8))]
        hinges = [
            jm.Revolute("A", "ground", "a", at=(0, 0)),
            jm.Revolute("B", "a", "b", at=(0, 0), stiffness=1.0, rest=0.2),
        ]
    else:
        turns = [(np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)) for angle in (0.3, 0.8)]
        bodies = [
            js.Body(name, 1.0, (0.1, 0.1, 0.1), quaternion=turn)
            for name, turn in zip("ab", turns, strict=True)
        ]
        axes = {"axes_a": np.eye(3), "axes_b": np.eye(3)} if space == "axes" else {"axis": (0, 0, 1)}
        hinges = [js.Revolute("A", "ground", "a", axis=(0, 0, 1), at=(0, 0, 0))]
        hinges += [
            js.Revolute("B", "a", "b", point_a=(0, 0, 0), point_b=(0, 0, 0), stiffness=1.0, rest=0.2, **axes)
        ]
    gravity = (0.0,) * (2 if flat else 3)
    mechanism, q = (jm.planar_mechanism if flat else jm.spatial_mechanism)(
        bodies, [*hinges, *joints], forces, gravity=gravity, coordinates=coordinates
    )
    if coordinates == jm.Joints():
        np.testing.assert_allclose(q[-1], start, rtol=0, atol=1e-14)
    # The last velocity is that about the hinge; the stiffnesses are powers of two, so that each effort is
    # seen in the sum.
    torque = mechanism.force(ZERO, q, jnp.zeros(mechanism.sizes(q).nv), None)[-1]
    np.testing.assert_allclose(torque, (7.0 if flat else 31.0) * (0.2 - start), rtol=0, atol=1e-13)
    rows = dict(zip(mechanism.names.rows, mechanism.constraint(ZERO, q), strict=True))
    counted = {name.rpartition(".")[0]: float(row) for name, row in rows.items()}
    for joint in joints:
        assert counted[joint.name] == pytest.approx(-0.2 if "start" in joint.name else start - 0.2, abs=1e-14)
