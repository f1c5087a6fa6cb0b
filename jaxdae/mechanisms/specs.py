"""What a user writes to describe a mechanism: bodies, joints and forces, by name.

Plain host-side values; `planar_mechanism` checks them all and stacks them. Numbers may be traced, so that a mechanism can be built inside a
differentiated function (lengths as design variables).

Places. `at`, `at_a`, `at_b` are world coordinates (x, y) at the start pose of the bodies. `point`, `point_a`, `point_b` are coordinates in
the frame of a body, whose origin is its mass center; for the ground, in the world. Either is given. `a` and `b` are names of bodies or
`GROUND`. SI units.
"""

from __future__ import annotations

import dataclasses
from typing import Any

GROUND = "ground"
"""The name that stands for the fixed world."""

Number = Any
Place = Any


@dataclasses.dataclass(frozen=True)
class Body:
    """A rigid body.

    Attributes:
        name: unique; not "ground".
        mass: in kg, positive.
        inertia: in kg m^2 about the mass center, positive.
        pose: (x, y, theta) of the mass center at the start in m and rad; a guess will do, see `initialize`.
    """

    name: str
    mass: Number
    inertia: Number
    pose: Any = (0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Revolute:
    """A pin: a point of a and a point of b coincide. `damping` in N m s/rad."""

    name: str
    a: str
    b: str
    at: Place = None
    point_a: Place = None
    point_b: Place = None
    damping: Number = 0.0


@dataclasses.dataclass(frozen=True)
class Prismatic:
    """A slider: b moves along an axis fixed in a, without turning against a. `damping` in N s/m.

    The `axis` is a direction in the world at the start pose with `at`, in the frame of a with `point_a` and `point_b`.
    """

    name: str
    a: str
    b: str
    axis: Any
    at: Place = None
    point_a: Place = None
    point_b: Place = None
    damping: Number = 0.0


@dataclasses.dataclass(frozen=True)
class Weld:
    """Two bodies move as one. The relative rotation is that of the start pose."""

    name: str
    a: str
    b: str
    at: Place = None
    point_a: Place = None
    point_b: Place = None


@dataclasses.dataclass(frozen=True)
class Rod:
    """A massless rod between two points. `length` in m; the distance at the start pose by default."""

    name: str
    a: str
    b: str
    at_a: Place = None
    at_b: Place = None
    point_a: Place = None
    point_b: Place = None
    length: Number = None


@dataclasses.dataclass(frozen=True)
class PointOnLine:
    """A pin in a slot: the point of b stays on the line through the point of a along `axis`, fixed in a (as for `Prismatic`)."""

    name: str
    a: str
    b: str
    axis: Any
    at: Place = None
    point_a: Place = None
    point_b: Place = None


@dataclasses.dataclass(frozen=True)
class Gear:
    """theta_b = ratio theta_a, both counted from the start pose; a negative ratio for external gears."""

    name: str
    a: str
    b: str
    ratio: Number


@dataclasses.dataclass(frozen=True)
class PrescribedMotion:
    """The coordinate of a revolute or prismatic joint is a function of time, counted from the start pose.

    Attributes:
        name: unique among the joints.
        joint: the name of the `Revolute` (angle in rad) or `Prismatic` (slide in m).
        motion: called with t (s): a pytree such as `Sinusoid` or `Polynomial`, whose numbers are leaves, or a plain function.
    """

    name: str
    joint: str
    motion: Any


@dataclasses.dataclass(frozen=True)
class LinearSpring:
    """A spring and damper between two points: N/m, N s/m; `rest_length` in m, the distance at the start pose by default."""

    name: str
    a: str
    b: str
    at_a: Place = None
    at_b: Place = None
    point_a: Place = None
    point_b: Place = None
    stiffness: Number = 0.0
    damping: Number = 0.0
    rest_length: Number = None


@dataclasses.dataclass(frozen=True)
class TorsionalSpring:
    """A spring and damper on theta_b - theta_a: N m/rad, N m s/rad; `rest_angle` in rad, that of the start pose by default."""

    name: str
    a: str
    b: str
    stiffness: Number = 0.0
    damping: Number = 0.0
    rest_angle: Number = None


@dataclasses.dataclass(frozen=True)
class Torque:
    """torque + gain u[input] in N m on b, and its reaction on a; without `input` it is constant."""

    name: str
    a: str
    b: str
    torque: Number = 0.0
    input: int | None = None
    gain: Number = 1.0


@dataclasses.dataclass(frozen=True)
class Force:
    """force + u[input] direction in N on a point of a body; in the world's frame, or the body's with `body_frame`."""

    name: str
    body: str
    at: Place = None
    point: Place = None
    force: Any = (0.0, 0.0)
    input: int | None = None
    direction: Any = (1.0, 0.0)
    body_frame: bool = False


@dataclasses.dataclass(frozen=True)
class JointForce:
    """force + gain u[input] along the coordinate of a joint: N m on a `Revolute`, N on a `Prismatic`; reaction on a."""

    name: str
    joint: str
    force: Number = 0.0
    input: int | None = None
    gain: Number = 1.0


Joint = Revolute | Prismatic | Weld | Rod | PointOnLine | Gear | PrescribedMotion
ForceElement = LinearSpring | TorsionalSpring | Torque | Force | JointForce
