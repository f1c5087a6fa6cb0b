"""The `mechanism` section of a config: bodies, joints, forces, as `jaxdae.mechanisms` names them.

Every field has a description that error messages show as the remedy. `at` places are points of the world at the start
pose; `point` places are in the frame of the body (the ground's frame is the world's). SI units.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, model_validator

Name = Annotated[str, Field(min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,99}$")]
Pair = Annotated[tuple[float, float], Strict(False)]
Triple = Annotated[tuple[float, float, float], Strict(False)]


def _at(subject: str) -> Any:
    return Field(default=None, description=f"{subject} in the world at the start pose, [x, y] in m")


def _point(subject: str, body: str) -> Any:
    return Field(default=None, description=f"{subject} in the frame of {body} (ground: the world), [x, y] in m")


class Section(BaseModel):
    """What all sections share: unknown keys are mistakes, types are taken as written, numbers are finite."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Body(Section):
    """A rigid body."""

    name: Name = Field(description="the name of the body, a word; not 'ground'")
    mass: float = Field(gt=0, description="the mass in kg")
    inertia: float = Field(gt=0, description="the moment of inertia about the center of mass in kg m^2")
    pose: Triple = Field(description="the start pose of the center of mass, [x in m, y in m, theta in rad]; a guess is enough")
    free: bool = Field(default=False, description="true where nothing is meant to connect the body to the ground")


class _Connection(Section):
    """Two bodies and how their places may be given: one of the `places` alternatives, whole and alone."""

    places: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @model_validator(mode="after")
    def _one_way_to_give_the_place(self) -> "_Connection":
        if not self.places:
            return self
        keys = list(dict.fromkeys(key for way in self.places for key in way))
        given = {key for key in keys if getattr(self, key) is not None}
        if not any(given == set(way) for way in self.places):
            ways = " or ".join(" with ".join(way) for way in self.places)
            raise ValueError(f"{', '.join(sorted(given)) or 'no place'}|the place as {ways}|give the place in one of these ways")
        return self


_POINT_WAYS = (("at",), ("point_a", "point_b"))
_TWO_POINT_WAYS = (("at_a", "at_b"), ("point_a", "point_b"), ("at_a", "point_b"), ("point_a", "at_b"))


class _Joint(_Connection):
    name: Name = Field(description="the name of the joint, a word")


class _Between(_Joint):
    a: str = Field(description="the first body, or ground")
    b: str = Field(description="the second body, or ground")


class _AtOnePoint(_Between):
    places = _POINT_WAYS
    at: Pair | None = _at("the joint")
    point_a: Pair | None = _point("the joint", "a")
    point_b: Pair | None = _point("the joint", "b")


class Revolute(_AtOnePoint):
    """A hinge."""

    type: Literal["revolute"]
    damping: float = Field(default=0.0, ge=0, description="the damping in N m s/rad")


def _no_null_direction(value: Any) -> Any:
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, int | float) and v == 0 for v in value):
        raise ValueError(f"{list(value)}|a direction of non-zero length|give the axis, for example [1, 0]")
    return value


Direction = Annotated[Pair, BeforeValidator(_no_null_direction)]


class Prismatic(_AtOnePoint):
    """A slide without turning."""

    type: Literal["prismatic"]
    axis: Direction = Field(description="the direction of the slide, [x, y]: in the world with `at`, else in the frame of a")
    damping: float = Field(default=0.0, ge=0, description="the damping in N s/m")


class Weld(_AtOnePoint):
    """A rigid connection."""

    type: Literal["weld"]


class PointOnLine(_AtOnePoint):
    """A point of b that stays on a line of a, free to turn."""

    type: Literal["point_on_line"]
    axis: Direction = Field(description="the direction of the line, [x, y]: in the world with `at`, else in the frame of a")


class _BetweenTwoPoints(_Between):
    places = _TWO_POINT_WAYS
    at_a: Pair | None = _at("the end on a")
    at_b: Pair | None = _at("the end on b")
    point_a: Pair | None = _point("the end on a", "a")
    point_b: Pair | None = _point("the end on b", "b")


class Rod(_BetweenTwoPoints):
    """A fixed distance between a point of a and a point of b."""

    type: Literal["rod"]
    length: float | None = Field(default=None, gt=0, description="the distance in m; left out: that of the start pose")


class Gear(_Between):
    """The turn of b is `ratio` times the turn of a."""

    type: Literal["gear"]
    ratio: float = Field(description="the turn of b over the turn of a; negative for wheels that touch outside")


class Polynomial(Section):
    """c0 + c1 t + c2 t^2 + ..."""

    type: Literal["polynomial"]
    coefficients: Annotated[tuple[float, ...], Strict(False), Field(min_length=1)] = Field(
        description="c0, c1, c2, ... in rad/s^k or m/s^k"
    )


class Sinusoid(Section):
    """offset + amplitude sin(2 pi frequency_hz t + phase)."""

    type: Literal["sinusoid"]
    amplitude: float = Field(description="the amplitude in rad or m")
    frequency_hz: float = Field(gt=0, description="the frequency in Hz")
    phase: float = Field(default=0.0, description="the phase in rad")
    offset: float = Field(default=0.0, description="the mean in rad or m")


class PrescribedMotion(_Joint):
    """The coordinate of a revolute or prismatic joint as a given function of time."""

    type: Literal["prescribed_motion"]
    joint: str = Field(description="the revolute or prismatic joint that is moved")
    motion: Annotated[Polynomial | Sinusoid, Field(discriminator="type")] = Field(
        description="the coordinate over time, {type: polynomial, coefficients: [...]} or {type: sinusoid, ...}"
    )


class LinearSpring(_BetweenTwoPoints):
    """A spring and damper between two points."""

    type: Literal["linear_spring"]
    stiffness: float = Field(default=0.0, ge=0, description="the stiffness in N/m")
    damping: float = Field(default=0.0, ge=0, description="the damping in N s/m")
    rest_length: float | None = Field(default=None, ge=0, description="the length without force in m; left out: that of the start pose")


class TorsionalSpring(_Between):
    """A spring and damper between the angles of two bodies."""

    type: Literal["torsional_spring"]
    stiffness: float = Field(default=0.0, ge=0, description="the stiffness in N m/rad")
    damping: float = Field(default=0.0, ge=0, description="the damping in N m s/rad")
    rest_angle: float | None = Field(default=None, description="theta_b - theta_a without torque in rad; left out: that of the start pose")


class Torque(_Between):
    """A constant torque on b, its reaction on a."""

    type: Literal["torque"]
    torque: float = Field(description="the torque on b in N m; its reaction acts on a")


class Force(_Connection):
    """A constant force on a point of a body."""

    type: Literal["force"]
    name: Name = Field(description="the name of the force, a word")
    body: str = Field(description="the body that the force acts on")
    places = (("at",), ("point",))
    at: Pair | None = _at("the point")
    point: Pair | None = _point("the point", "the body")
    force: Pair = Field(description="the force in N, [x, y]")
    body_frame: bool = Field(default=False, description="true where the force turns with the body")


class JointForce(_Joint):
    """A constant force along the coordinate of a revolute (a torque) or prismatic joint."""

    type: Literal["joint_force"]
    joint: str = Field(description="the revolute or prismatic joint that is driven")
    force: float = Field(description="the torque in N m or the force in N")


JOINTS = (Revolute, Prismatic, Weld, Rod, PointOnLine, Gear, PrescribedMotion)
FORCES = (LinearSpring, TorsionalSpring, Torque, Force, JointForce)
Joint = Annotated[Revolute | Prismatic | Weld | Rod | PointOnLine | Gear | PrescribedMotion, Field(discriminator="type")]
AnyForce = Annotated[LinearSpring | TorsionalSpring | Torque | Force | JointForce, Field(discriminator="type")]


class Mechanism(Section):
    """Bodies, the joints between them and to the ground, and what acts on them."""

    gravity: Pair = Field(default=(0.0, -9.81), description="the acceleration of gravity in m/s^2, [x, y]")
    bodies: list[Body] = Field(min_length=1, description="the bodies, a list of {name, mass, inertia, pose}")
    joints: list[Joint] = Field(default=[], description="the joints, a list of {type, name, ...}")
    forces: list[AnyForce] = Field(default=[], description="springs, torques and forces, a list of {type, name, ...}")
