"""Published and closed-form problems in space as mechanisms of bodies and joints, with their states.

Each function returns the mechanism, its start, the times, and q and v at these times: places and unit
quaternions wxyz, velocities in the world and omega_body. The names are those of the files in
`tests/reference`, whose README states their conventions.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import problems
import reference_systems as systems
from problems import state

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

X, Y, Z = np.eye(3)
HERE = np.zeros(3)


class Problem(NamedTuple):
    """A mechanism in absolute coordinates, its start, what becomes of it: times (k,), q (k, 7 n), v (k, 6 n);
    and its description.
    """

    mechanism: jm.Mechanism
    start: jd.State
    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    description: jm.Description

    def in_joints(self, cut: Sequence[str] = ()) -> tuple[jm.Mechanism, jd.State]:
        """Returns mechanism and start in joint coordinates."""
        mechanism, _ = jm.mechanism(self.description, jm.Joints(cut))
        return mechanism, jax.jit(jm.to_joints)(mechanism, self.start)


@functools.cache
def file(name: str) -> dict[str, Any]:
    """Returns a file of `tests/reference`."""
    return json.loads((problems.REFERENCE / f"{name}.json").read_text())


def _published(
    name: str, bodies: list[Any], joints: list[Any], forces: Any = (), gravity: Any = (0.0, 0.0, -9.81)
) -> Problem:
    """Returns the problem of bodies with the states of a file of the DAE literature, where quaternions have
    rates.
    """
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, forces=forces, gravity=gravity)
    mechanism, q = jm.mechanism(description)
    listed_q, listed_v = systems.body_states(name)
    initial = problems.reference(name).file["initial_conditions"]
    np.testing.assert_allclose(q, initial["q"], rtol=0, atol=1e-15)
    start = state(q, systems.body_velocities(initial["q"], initial["v"]))
    return Problem(mechanism, start, problems.reference(name).t[1:], listed_q[1:], listed_v[1:], description)


def _poses(name: str) -> list[tuple[Any, Any]]:
    """Returns place and quaternion of each body at the start."""
    return [
        (pose[:3], pose[3:])
        for pose in np.array(problems.reference(name).file["initial_conditions"]["q"]).reshape(-1, 7)
    ]


def heavy_top(name: str) -> Problem:
    """Returns `heavy_top_bruls` or `heavy_top_steady`: one body on a ball joint at the origin."""
    p, (pose,) = problems.reference(name).parameters, _poses(name)
    if name == "heavy_top_bruls":
        inertia, arm = p["J_about_mass_centre"], np.array(p["X_mass_centre_from_pivot_body"], float)
    else:
        transverse = p["J_transverse_about_mass_centre"]
        inertia, arm = [transverse, transverse, p["J_axial"]], p["mass_centre_from_pivot"] * Z
    return _published(
        name,
        [js.Body("top", p["m"], inertia, *pose)],
        [js.Ball("tip", "ground", "top", point_a=HERE, point_b=-arm)],
    )


def torque_free_asymmetric() -> Problem:
    """Returns the free body that flips about its middle axis."""
    name = "torque_free_asymmetric"
    p, (pose,) = problems.reference(name).parameters, _poses(name)
    return _published(name, [js.Body("racket", p["m"], [float(x) for x in p["J"]], *pose)], [], gravity=HERE)


def spherical_pendulum() -> Problem:
    """Returns the pendulum as a body that hangs on a rod by its mass center, and does not turn."""
    given = problems.reference("spherical_pendulum")
    p = given.parameters
    bob = js.Body("bob", p["m"], (1.0, 1.0, 1.0), given.file["initial_conditions"]["q"])
    rod = js.Rod("rod", "ground", "bob", point_a=HERE, point_b=HERE, length=p["L"])
    description = jm.Description(space=jm.SPACE, bodies=[bob], joints=[rod], gravity=(0.0, 0.0, -p["g"]))
    mechanism, q = jm.mechanism(description)
    start = state(q, [*given.file["initial_conditions"]["v"], 0.0, 0.0, 0.0])
    still = np.tile([1.0, 0.0, 0.0, 0.0], (len(given.t) - 1, 1))
    q, v = (
        np.concatenate([given.q[1:], still], axis=1),
        np.concatenate([given.v[1:], 0.0 * still[:, :3]], axis=1),
    )
    return Problem(mechanism, start, given.t[1:], q, v, description)


def bricard() -> Problem:
    """Returns five rods and six hinges; one row is too many on all of the motion."""
    name = "iftomm_a04_bricard"
    p = problems.reference(name).parameters
    points, axes = (
        np.array(p["joint_points_at_start"]),
        [dict(zip("xyz", (X, Y, Z), strict=True))[a] for a in p["joint_axes_at_start"]],
    )
    across, along = (
        p["m"] * (p["L"] ** 2 + p["square_section"] ** 2) / 12.0,
        p["m"] * p["square_section"] ** 2 / 6.0,
    )
    bodies = []
    for k, (place, quaternion) in enumerate(_poses(name)):
        inertia = np.where(points[k + 1] != points[k], along, across)
        bodies.append(js.Body(f"rod{k + 1}", p["m"], inertia, place, quaternion))
    names = ["ground", *(body.name for body in bodies), "ground"]
    joints = [js.Revolute(f"hinge{k + 1}", names[k], names[k + 1], axes[k], points[k]) for k in range(6)]
    return _published(name, bodies, joints, gravity=p["g"])


def flyball() -> Problem:
    """Returns the governor: shaft, slider and two rods with their balls, and two springs with stiff dampers."""
    name = "iftomm_a05_flyball"
    p, hand = problems.reference(name).parameters, systems.flyball()[0]
    names = ("shaft", "slider", "rod1", "rod2")
    bodies = [
        js.Body(n, m, np.asarray(j), *pose)
        for n, m, j, pose in zip(names, hand.mass, hand.inertia, _poses(name), strict=True)
    ]
    top, arm, middle = float(hand.shaft_length), float(hand.arm), float(hand.middle)
    joints: list[Any] = [
        js.Revolute("bearing", "ground", "shaft", Z, HERE),
        js.Prismatic("sleeve", "shaft", "slider", Z, HERE),
    ]
    springs = []
    for sign, rod in ((1.0, "rod1"), (-1.0, "rod2")):
        joints.append(js.Revolute(f"hinge {rod}", "shaft", rod, Y, (sign * p["offset"], 0.0, top)))
        ends = {"point_a": (sign * p["offset"], 0.0, 0.0), "point_b": (middle - arm, 0.0, 0.0)}
        springs.append(
            js.LinearSpring(
                f"spring {rod}", "slider", rod, **ends, stiffness=p["K"], damping=p["C"], rest_length=p["l0"]
            )
        )
    description = jm.Description(
        space=jm.SPACE, bodies=bodies, joints=joints, forces=springs, gravity=(0.0, 0.0, -p["g"])
    )
    mechanism, q = jm.mechanism(description)
    start = systems.flyball()[1]
    np.testing.assert_allclose(q, start.q, rtol=0, atol=1e-15)
    file = problems.reference(name)
    listed_q, listed_v = systems.body_states(name)
    return Problem(mechanism, state(q, start.v), file.t[1:], listed_q[1:], listed_v[1:], description)


# Closed forms: states of bodies by name.


def _listed(name: str) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    states = file(name)["states"]
    names = list(states[0]["bodies"])
    q, v = (
        np.array(
            [
                np.concatenate([np.concatenate([s["bodies"][n][key] for key in keys]) for n in names])
                for s in states
            ]
        )
        for keys in (("position", "quat_wb"), ("velocity", "omega_body"))
    )
    return names, np.array([s["t"] for s in states]), q, v


def _closed_form(
    name: str,
    masses: Any,
    inertia: Any,
    joints: list[Any],
    forces: Any = (),
    gravity: Any = (0.0, 0.0, -9.81),
) -> Problem:
    names, t, q, v = _listed(name)
    poses = q[0].reshape(-1, 7)
    bodies = [
        js.Body(n, m, i, pose[:3], pose[3:])
        for n, m, i, pose in zip(names, masses, inertia, poses, strict=True)
    ]
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, forces=forces, gravity=gravity)
    mechanism, start = jm.mechanism(description)
    return Problem(mechanism, state(start, v[0]), t[1:], q[1:], v[1:], description)


def bennett() -> Problem:
    """Returns the four-bar of Bennett, whose three rows too many vanish on its motion only."""
    p = file("mechanism_bennett")["parameters"]
    names = ["ground", "link1", "link2", "link3", "ground"]
    axes = zip(p["axis_points"], p["axis_directions"], strict=True)
    joints = [
        js.Revolute(f"hinge{k + 1}", names[k], names[k + 1], axis, at) for k, (at, axis) in enumerate(axes)
    ]
    return _closed_form("mechanism_bennett", p["masses"], p["inertia_body_about_mass_center"], joints)


def cardan_cross() -> Problem:
    """Returns two shafts on bearings and the cross between them: a spherical four-bar, three rows too many."""
    p = file("mechanism_cardan_cross")["parameters"]
    second = np.array([np.cos(p["beta"]), np.sin(p["beta"]), 0.0])
    joints = [
        js.Revolute("bearing1", "ground", "shaft1", X, HERE),
        js.Revolute("pin1", "shaft1", "cross", Y, HERE),
        js.Revolute("pin2", "cross", "shaft2", Z, HERE),
        js.Revolute("bearing2", "shaft2", "ground", second, HERE),
    ]
    return _closed_form("mechanism_cardan_cross", p["masses"], p["inertia_body_about_mass_center"], joints)


def screw_nut() -> Problem:
    """Returns a nut that runs down a spindle against a torque, by 20 turns."""
    p = file("mechanism_screw_nut")["parameters"]
    joints = [js.Screw("thread", "ground", "nut", Z, HERE, lead=p["p"])]
    torque = js.Torque("torque", "ground", "nut", (0.0, 0.0, p["tau"]))
    return _closed_form(
        "mechanism_screw_nut",
        [p["m"]],
        [(p["J_transverse"], p["J_transverse"], p["J_axis"])],
        joints,
        [torque],
    )


def gimbal_gyroscope() -> Problem:
    """Returns a heavy rotor in two gimbals that have inertia, in steady precession."""
    p = file("mechanism_gimbal_gyroscope")["parameters"]
    axis = np.array([0.0, -np.sin(p["theta"]), np.cos(p["theta"])])
    joints = [
        js.Revolute("outer", "ground", "outer", Z, HERE),
        js.Revolute("inner", "outer", "inner", X, HERE),
        js.Revolute("rotor", "inner", "rotor", axis, HERE),
    ]
    rotor = p["rotor"]
    inertia = [p["outer"]["inertia"], p["inner"]["inertia"], (rotor["A"], rotor["A"], rotor["C"])]
    return _closed_form(
        "mechanism_gimbal_gyroscope", [p["outer"]["m"], p["inner"]["m"], rotor["m"]], inertia, joints
    )


def bevel_differential() -> Problem:
    """Returns a differential with one planet; torques on its three shafts. Masses that do not turn about
    their shafts do not matter.
    """
    name = "mechanism_bevel_differential_b"
    p = file(name)["parameters"]
    shafts = ("left", "right", "carrier")
    joints = [js.Revolute(shaft, "ground", shaft, Y, HERE) for shaft in shafts]
    joints.append(js.Revolute("planet", "carrier", "planet", X, (p["planet_radius"], 0.0, 0.0)))
    ratio = p["rg"] / p["rp"]
    joints += [
        js.BevelGear("mesh left", "left", "planet", Y, X, ratio),
        js.BevelGear("mesh right", "right", "planet", Y, X, -ratio),
    ]
    forces = [js.JointForce(f"torque {shaft}", shaft, p[f"torque_{shaft}"]) for shaft in shafts]
    inertia = [(1.0, p[f"J_{shaft}"], 1.0) for shaft in shafts]
    inertia.append((p["planet_axial"], p["planet_transverse"], p["planet_transverse"]))
    return _closed_form(name, [1.0, 1.0, 1.0, p["planet_mass"]], inertia, joints, forces, HERE)


def unbalanced_rotor(coordinates: Any = jm.Absolute()) -> tuple[jm.Mechanism, jd.State]:
    """Returns the rotor of `mechanism_reactions`, on a spherical and a radial bearing."""
    p = file("mechanism_reactions")["unbalanced_rotor"]["parameters"]
    rotor = js.Body("rotor", p["m"], p["inertia"], (p["c"], p["e"], 0.0))
    joints = [
        js.Ball("A", "ground", "rotor", HERE),
        js.PointOnLine("B", "ground", "rotor", X, (p["L"], 0.0, 0.0)),
    ]
    mechanism, q = jm.spatial_mechanism([rotor], joints, coordinates=coordinates)
    spin = p["w"] * X
    # In joint coordinates the bearing A turns alone.
    v = np.concatenate([np.cross(spin, rotor.place), spin]) if isinstance(coordinates, jm.Absolute) else spin
    return mechanism, state(q, v)


def tripod(coordinates: Any = jm.Absolute()) -> tuple[jm.Mechanism, jd.State]:
    """Returns the tripod of `mechanism_reactions` at rest: three rods with balls at both ends, and a point
    mass on top.
    """
    mass, top, height, radius = 1.5, 20.0, 1.2, 0.8
    apex = np.array([0.0, 0.0, height])
    bodies, joints = [js.Body("apex", top, (1.0, 1.0, 1.0), apex)], []
    length2 = height**2 + radius**2
    for k in range(3):
        foot = radius * np.array([np.cos(2.0 * np.pi * k / 3.0), np.sin(2.0 * np.pi * k / 3.0), 0.0])
        along = (apex - foot) / np.sqrt(length2)
        inertia = mass * length2 / 12.0 * (np.eye(3) - np.outer(along, along)) + 0.1 * np.outer(along, along)
        bodies.append(js.Body(f"rod{k}", mass, inertia, 0.5 * (foot + apex)))
        joints += [
            js.Ball(f"foot{k}", "ground", f"rod{k}", foot),
            js.Ball(f"top{k}", f"rod{k}", "apex", apex),
        ]
    mechanism, q = jm.spatial_mechanism(bodies, joints, coordinates=coordinates)
    return mechanism, state(q, jnp.zeros(len(mechanism.names.velocities)))


PROBLEMS = {
    "heavy_top_bruls": functools.partial(heavy_top, "heavy_top_bruls"),
    "heavy_top_steady": functools.partial(heavy_top, "heavy_top_steady"),
    "torque_free_asymmetric": torque_free_asymmetric,
    "spherical_pendulum": spherical_pendulum,
    "iftomm_a04_bricard": bricard,
    "iftomm_a05_flyball": flyball,
    "mechanism_bennett": bennett,
    "mechanism_cardan_cross": cardan_cross,
    "mechanism_screw_nut": screw_nut,
    "mechanism_gimbal_gyroscope": gimbal_gyroscope,
    "mechanism_bevel_differential_b": bevel_differential,
}
