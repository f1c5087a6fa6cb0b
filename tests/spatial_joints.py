"""Joints and forces in space, of every type, with the motions that the joints leave: the tables that
`test_spatial_mechanisms` loops over.

Joints connect "left" or the ground with "right", and hold at the start pose, where nothing is zero or
parallel by accident.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae.mechanisms import spatial as js

PLACES = {"ground": (0.0, 0.0, 0.0), "left": (0.3, -0.2, 0.4), "right": (1.1, 0.6, -0.7)}
TURNS = {
    "ground": Rotation.identity(),
    "left": Rotation.from_rotvec([0.4, -1.1, 0.7]),
    "right": Rotation.from_rotvec([-0.9, 0.3, 1.6]),
}
INERTIA = [[0.30, 0.02, -0.01], [0.02, 0.41, 0.03], [-0.01, 0.03, 0.52]]
AT, AXIS, SECOND = (0.7, 0.1, -0.3), (1.0, -2.0, 0.5), (2.0, 1.0, 0.0)


def wxyz(turn: Rotation) -> np.ndarray:
    """Returns the quaternion of a rotation, scalar first."""
    return np.roll(turn.as_quat(), 1)


BODIES = [
    js.Body("left", 1.3, (0.2, 0.3, 0.4), PLACES["left"], wxyz(TURNS["left"])),
    js.Body("right", 0.8, INERTIA, PLACES["right"], wxyz(TURNS["right"])),
]


@jd.tree.pytree
class Helix:
    """A curve with a tangent in every direction but one."""

    radius: Any
    pitch: Any

    def __call__(self, s):
        return jnp.stack([self.radius * jnp.cos(s), self.radius * jnp.sin(s), self.pitch * s])


@jd.tree.pytree
class Ellipsoid:
    """A surface around the origin, zero where (x/a)^2 + (y/b)^2 + (z/c)^2 = 1."""

    radii: Any

    def __call__(self, p):
        return jnp.sum((p / self.radii) ** 2) - 1.0


HELIX, ELLIPSOID = Helix(0.6, 0.2), Ellipsoid(jnp.array([0.5, 0.7, 0.9]))


def _on_helix(s: float) -> np.ndarray:
    return np.array([0.6 * np.cos(s), 0.6 * np.sin(s), 0.2 * s])


def _on_ellipsoid(u: float, w: float) -> np.ndarray:
    return np.array([0.5 * np.cos(u) * np.cos(w), 0.7 * np.sin(u) * np.cos(w), 0.9 * np.sin(w)])


def _in_world(body: str, place: Any) -> np.ndarray:
    return PLACES[body] + TURNS[body].apply(place)


@dataclasses.dataclass(frozen=True)
class Free:
    """A type of joint and the motions that it leaves to b.

    Attributes:
        joint: from its name, and the names of the bodies.
        motion: from numbers to the rotation and the place of b in the axes of the joint in a.
        numbers: how many numbers that takes: the freedoms of the joint, or fewer where not all of them have
            simple formulas.
        freedoms: 6 less the number of rows.
        measured: how many of the numbers are its coordinates, the first ones.
    """

    joint: Callable[..., Any]
    motion: Callable[..., tuple[Rotation, Any]]
    numbers: int
    freedoms: int
    measured: int = 0


def _turn(x: float, y: float, z: float) -> Rotation:
    return Rotation.from_rotvec([x, y, z])


STILL, HERE = Rotation.identity(), np.zeros(3)
LEAD, LENGTH, RADIUS = -0.07, 0.9, 0.3


def _on_sphere(longitude: float, latitude: float) -> np.ndarray:
    flat = np.cos(latitude)
    return LENGTH * np.array([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)])


FREE: dict[str, Free] = {
    "revolute": Free(
        lambda *ab: js.Revolute(*ab, AXIS, AT, damping=0.3), lambda w: (_turn(0, 0, w), HERE), 1, 1, 1
    ),
    "prismatic": Free(
        lambda *ab: js.Prismatic(*ab, AXIS, AT, damping=0.4), lambda s: (STILL, (0, 0, s)), 1, 1, 1
    ),
    "cylindrical": Free(
        lambda *ab: js.Cylindrical(*ab, AXIS, AT, damping=0.5),
        lambda s, w: (_turn(0, 0, w), (0, 0, s)),
        2,
        2,
        2,
    ),
    "screw": Free(
        lambda *ab: js.Screw(*ab, AXIS, AT, lead=LEAD, damping=0.6),
        lambda w: (_turn(0, 0, w), (0, 0, LEAD * w)),
        1,
        1,
        1,
    ),
    "universal": Free(
        lambda *ab: js.Universal(*ab, AXIS, SECOND, AT, damping=0.7),
        lambda u, w: (_turn(u, 0, 0) * _turn(0, w, 0), HERE),
        2,
        2,
        2,
    ),
    "ball": Free(lambda *ab: js.Ball(*ab, AT), lambda *w: (_turn(*w), HERE), 3, 3),
    "planar": Free(
        lambda *ab: js.Planar(*ab, AXIS, AT, damping=0.8),
        lambda x, y, w: (_turn(0, 0, w), (x, y, 0)),
        3,
        3,
        3,
    ),
    "weld": Free(lambda *ab: js.Weld(*ab, AT), lambda: (STILL, HERE), 0, 0),
    "rod": Free(
        lambda *ab: js.Rod(*ab, AT, (0.7, 0.1, 0.6)),
        lambda u, w, *turn: (_turn(*turn), _on_sphere(u, w)),
        5,
        5,
    ),
    "point_on_line": Free(
        lambda *ab: js.PointOnLine(*ab, AXIS, AT, damping=0.9),
        lambda s, *turn: (_turn(*turn), (0, 0, s)),
        4,
        4,
        1,
    ),
    "point_on_plane": Free(
        lambda *ab: js.PointOnPlane(*ab, AXIS, AT), lambda x, y, *turn: (_turn(*turn), (x, y, 0)), 5, 5
    ),
    "constant_velocity": Free(
        lambda *ab: js.ConstantVelocity(*ab, AXIS, AT), lambda x, y: (_turn(x, y, 0), HERE), 2, 2
    ),
    "rack_and_pinion": Free(
        lambda *ab: js.RackAndPinion(*ab, AXIS, SECOND, at=AT, radius=RADIUS),
        lambda w, y, z: (_turn(0, w, 0), (RADIUS * w, y, z)),
        3,
        5,
    ),
    "point_on_curve": Free(
        lambda name, a, b: js.PointOnCurve(
            name, a, b, HELIX, _in_world(a, _on_helix(1.3)), first=-2.0, last=7.0
        ),
        lambda s, *turn: (_turn(*turn), _on_helix(s)),
        4,
        4,
    ),
    "point_on_surface": Free(
        lambda name, a, b: js.PointOnSurface(name, a, b, ELLIPSOID, _in_world(a, _on_ellipsoid(0.4, 0.9))),
        lambda u, w, *turn: (_turn(*turn), _on_ellipsoid(u, w)),
        5,
        5,
    ),
}
"""The joints with rows of positions, by the keys of their types."""

KINDS: dict[str, Callable[..., Any]] = {
    **{key: free.joint for key, free in FREE.items()},
    "gear": lambda *ab: js.Gear(*ab, (0.0, 3.0, 4.0), (1.0, 0.0, 1.0), -1.7),
    "bevel_gear": lambda *ab: js.BevelGear(*ab, (0.0, 3.0, 4.0), (1.0, 0.0, 1.0), -1.7),
    "prescribed_motion": lambda name, a, b: js.PrescribedMotion(
        name, f"cylindrical {a}", jm.Sinusoid(0.4, 0.3, 0.2), "angle"
    ),
    "prescribed_slide": lambda name, a, b: js.PrescribedMotion(
        name, f"cylindrical {a}", jm.Polynomial((0.1, 0.4, 0.3))
    ),
}
"""All types of joints: from a name and the names of two bodies to the joint. Joints are named after their
keys and their bodies a.
"""

NUMBERS = (0.7, -0.4, 1.1, 0.3, -0.8)
"""Values for the freedoms, as many as there are."""

HINGES = [FREE[key].joint(key, "left", "right") for key in ("revolute", "cylindrical", "universal")]
"""The joints along whose coordinates forces act."""

FORCES: dict[str, list[Any]] = {
    "linear_spring": [
        js.LinearSpring("spring", "left", "right", AT, (0.1, 0.2, 0.3), stiffness=3.0, rest_length=0.4),
        js.LinearSpring("anchored spring", "ground", "left", (1.0, 0.0, 0.0), (0.1, 0.2, 0.3), stiffness=2.0),
    ],
    "force": [js.Force("wind", "left", AT, force=(1.0, -2.0, 0.5))],
    "torque": [js.Torque("wheel", "left", "right", (1.0, -2.0, 0.5), input=1, direction=(0.0, 1.0, 2.0))],
    "joint_force": [
        js.JointForce("motor", "revolute", stiffness=3.0, rest=0.3),
        js.JointForce("push", "cylindrical", 0.4, stiffness=3.0, rest=0.3),
        js.JointForce("turn", "cylindrical", along="angle", stiffness=3.0, rest=6.0),
        js.JointForce("steer", "universal", along="second", stiffness=2.0),
    ],
    "motor": [js.Motor("geared", "universal", ratio=-4.0, torque=0.3, along="second")],
    "rotational_damper": [js.RotationalDamper("oil", "left", "right", 0.7)],
    "rotational_spring": [
        js.RotationalSpring("torsion", "left", "right", axes_a=(0.8, 0.0, 0.6, 0.0), stiffness=0.7)
    ],
    "drag": [js.Drag("air", "right", point=(0.1, 0.2, -0.3), linear=0.3, quadratic=0.7)],
    "actuator": [
        js.Actuator(
            "servo",
            "universal",
            ratio=2.0,
            gain=(0.0, 0.0, 0.0),
            bias=(0.2, -0.4, -0.1),
            most_force=0.15,
            along="second",
        )
    ],
    "bushing": [
        js.Bushing(
            "rubber", "left", "right", AT, stiffness=(1.0, 2.0, 3.0), rotational_stiffness=(0.4, 0.5, 0.6)
        )
    ],
}
"""Forces by the keys of their types."""

CONSERVATIVE = ("linear_spring", "force", "joint_force", "rotational_spring", "bushing")
