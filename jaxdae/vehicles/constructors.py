"""Descriptions of common vehicles in the plane: bodies, wheels, drives and numeric parameters.

The vehicle frame follows REP-103 and ISO 8855: x forward, y to the left. Its origin is on the ground in the
middle of the unsteered axle (of all wheels, if no wheel or every wheel is steered). One description serves
both orders: `jm.kinematic_mechanism` takes the drives as inputs and needs no masses; `jm.mechanism` takes
masses and forces. All numbers may be traced and are differentiable. Add forces with `dataclasses.replace`.
The frame of the body `base_link` is at the mass center, which is at `center` in the vehicle frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.mechanisms import (
    Body,
    Description,
    JointRate,
    MecanumWheel,
    OmniWheel,
    Revolute,
    Rotor,
    Speed,
    SpinRate,
    Wheel,
)
from jaxdae.mechanisms.describe.numbers import concrete, real, vector
from jaxdae.vehicles.argument_checks import (
    angle_mistakes,
    frame_mistakes,
    length_mistakes,
    offset_mistakes,
    radius_mistakes,
    refuse,
    wheel_mistakes,
)

BASE = "base_link"
FORWARD = (1.0, 0.0)
NO_GRAVITY = (0.0, 0.0)


def differential_drive(
    wheel_separation: Any,
    wheel_radius: Any,
    *,
    mass: Any = None,
    inertia: Any = None,
    wheel_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
    gravity: Any = NO_GRAVITY,
) -> Description:
    """Return a robot with two wheels, driven by `left_motor` and `right_motor` in rad/s, without caster rows.

    Args:
        wheel_separation: distance between the wheels in m.
        wheel_radius: in m, one number or (left, right).
        mass: of the robot with its wheels in kg.
        inertia: about the vertical through the mass center, wheels included, in kg m^2.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        center: (x, y) of the mass center in the vehicle frame in m.
        pose: initial (x, y, heading) of the vehicle frame in m and rad.
        gravity: (x, y) in the plane in m/s^2.
    """
    refuse(
        "differential_drive",
        length_mistakes("wheel_separation", wheel_separation),
        radius_mistakes("wheel_radius", wheel_radius, 2),
        frame_mistakes(center, pose),
    )
    radii = _each(wheel_radius, 2)
    places = [(0.0, 0.5 * wheel_separation), (0.0, -0.5 * wheel_separation)]
    sides = ("left", "right")
    joints = [
        Wheel(
            side,
            BASE,
            FORWARD,
            point=_seen(at, center),
            radius=radius,
            spin=f"{side}_wheel",
            lateral=side == "left",
        )
        for side, at, radius in zip(sides, places, radii, strict=True)
    ]
    rotors = [Rotor(f"{side}_wheel", wheel_inertia) for side in sides]
    drives = [SpinRate(f"{side}_motor", f"{side}_wheel") for side in sides]
    return Description(
        bodies=[_base(mass, inertia, center, pose), *rotors], joints=joints, drives=drives, gravity=gravity
    )


_CORNERS = ("front_left", "front_right", "rear_left", "rear_right")


def _corner_places(wheelbase: Any, track: Any) -> list[tuple[Any, Any]]:
    return [(x * wheelbase, y * track) for x in (0.5, -0.5) for y in (0.5, -0.5)]


def skid_steer(
    wheelbase: Any,
    track: Any,
    wheel_radius: Any,
    *,
    mass: Any = None,
    inertia: Any = None,
    wheel_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return a robot with four fixed wheels, each with a lateral and a rolling row; turning requires slip.

    Its rows conflict except on a straight line. `vehicle_twist` computes motion and slip. The drives are
    the spin rates of the wheels `front_left`, `front_right`, `rear_left`, `rear_right` in rad/s.

    Args:
        wheelbase: distance between the axles in m.
        track: distance between left and right wheels in m.
        wheel_radius: in m, one number or four.
        mass: in kg.
        inertia: about the vertical through the mass center in kg m^2.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        center: (x, y) of the mass center in m; the vehicle frame has its origin in the middle of the wheels.
        pose: initial (x, y, heading) of the vehicle frame.
    """
    refuse(
        "skid_steer",
        length_mistakes("wheelbase", wheelbase),
        length_mistakes("track", track),
        radius_mistakes("wheel_radius", wheel_radius, 4),
        frame_mistakes(center, pose),
    )
    joints = [
        Wheel(name, BASE, FORWARD, point=_seen(at, center), radius=radius, spin=f"{name}_wheel")
        for name, at, radius in zip(
            _CORNERS, _corner_places(wheelbase, track), _each(wheel_radius, 4), strict=True
        )
    ]
    return _on_four_wheels(joints, mass, inertia, wheel_inertia, center, pose)


def mecanum(
    wheelbase: Any,
    track: Any,
    wheel_radius: Any,
    *,
    roller_angle: Any = jnp.pi / 4,
    mass: Any = None,
    inertia: Any = None,
    wheel_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return a platform on four Mecanum wheels whose rollers form an X from above: it moves in any direction.

    The drives are the spin rates of the wheels `front_left`, `front_right`, `rear_left`, `rear_right` in
    rad/s (ROS 2's mecanum_drive_controller has the rear wheels in the opposite order).

    Args:
        wheelbase: distance between the axles in m.
        track: distance between left and right wheels in m.
        wheel_radius: in m, one number or four.
        roller_angle: angle from the heading to the roller axles in rad; negative if the rollers form an O.
        mass: in kg.
        inertia: about the vertical through the mass center in kg m^2.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        center: (x, y) of the mass center in m; the vehicle frame has its origin in the middle of the wheels.
        pose: initial (x, y, heading) of the vehicle frame.
    """
    refuse(
        "mecanum",
        length_mistakes("wheelbase", wheelbase),
        length_mistakes("track", track),
        radius_mistakes("wheel_radius", wheel_radius, 4),
        angle_mistakes("roller_angle", roller_angle, 1),
        frame_mistakes(center, pose),
    )
    points = [_seen(at, center) for at in _corner_places(wheelbase, track)]
    angles = [sign * roller_angle for sign in (-1.0, 1.0, 1.0, -1.0)]
    joints = [
        MecanumWheel(
            name, BASE, FORWARD, None, point, spin=f"{name}_wheel", radius=radius, roller_angle=angle
        )
        for name, point, angle, radius in zip(_CORNERS, points, angles, _each(wheel_radius, 4), strict=True)
    ]
    return _on_four_wheels(joints, mass, inertia, wheel_inertia, center, pose)


def _on_four_wheels(
    joints: Sequence[Any], mass: Any, inertia: Any, wheel_inertia: Any, center: Any, pose: Any
) -> Description:
    rotors = [Rotor(f"{name}_wheel", wheel_inertia) for name in _CORNERS]
    drives = [SpinRate(f"{name}_motor", f"{name}_wheel") for name in _CORNERS]
    return Description(
        bodies=[_base(mass, inertia, center, pose), *rotors], joints=joints, drives=drives, gravity=NO_GRAVITY
    )


def omni(
    count: int,
    distance: Any,
    wheel_radius: Any,
    *,
    angle: Any = 0.0,
    mass: Any = None,
    inertia: Any = None,
    wheel_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return a platform on omni wheels in a circle; positive spins of all wheels turn it counterclockwise.

    Args:
        count: number of wheels `wheel_0`, `wheel_1`, ..., at least 3; their spin rates are in rad/s.
        distance: distance of the wheels from the center in m.
        wheel_radius: in m, one number or one per wheel.
        angle: polar angle of the position of the first wheel in rad, from the x axis.
        mass: in kg.
        inertia: about the vertical through the mass center in kg m^2.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        center: (x, y) of the mass center in the vehicle frame in m.
        pose: initial (x, y, heading) of the vehicle frame.

    Raises:
        ValueError: fewer than three wheels, which cannot drive every motion.
    """
    whole = concrete(count)
    if whole is None or whole.ndim or not (3.0 <= whole < np.inf and whole == np.floor(whole)):
        raise ValueError(
            f"omni: count must be a whole number, at least 3, got {count}; with two omni wheels, one "
            "motion is not driven"
        )
    count = int(count)
    refuse(
        "omni",
        length_mistakes("distance", distance),
        radius_mistakes("wheel_radius", wheel_radius, count),
        wheel_mistakes("angle", angle, 1),
        frame_mistakes(center, pose),
    )
    places = [angle + 2.0 * jnp.pi * k / count for k in range(count)]
    names = [f"wheel_{k}" for k in range(count)]
    points = [_seen((distance * jnp.cos(a), distance * jnp.sin(a)), center) for a in places]
    joints = [
        OmniWheel(name, BASE, (-jnp.sin(a), jnp.cos(a)), point=point, spin=f"{name}_spin", radius=r)
        for name, a, point, r in zip(names, places, points, _each(wheel_radius, count), strict=True)
    ]
    rotors = [Rotor(f"{name}_spin", wheel_inertia) for name in names]
    drives = [SpinRate(f"{name}_motor", f"{name}_spin") for name in names]
    return Description(
        bodies=[_base(mass, inertia, center, pose), *rotors], joints=joints, drives=drives, gravity=NO_GRAVITY
    )


def bicycle(
    wheelbase: Any,
    *,
    steering: Any = 0.0,
    mass: Any = None,
    inertia: Any = None,
    fork_mass: Any = None,
    fork_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return the single-track model: a rear wheel at the origin and a steered front wheel, no lateral slip.

    The drives are `speed` of the rear wheel in m/s and `steering`, the kingpin rate in rad/s. In joint
    coordinates q is (x, y, heading, steering angle), CommonRoad's KS without its speed.

    Args:
        wheelbase: in m, positive; for rear steering, drive the vehicle backward.
        steering: initial steering angle in rad, positive to the left.
        mass: of the frame in kg.
        inertia: inertia of the frame about the vertical through its mass center in kg m^2.
        fork_mass: mass of fork and front wheel, located at the kingpin, in kg.
        fork_inertia: inertia of fork and front wheel about the kingpin in kg m^2.
        center: (x, y) of the mass center of the frame in m.
        pose: initial (x, y, heading) of the vehicle frame.
    """
    refuse(
        "bicycle",
        length_mistakes("wheelbase", wheelbase),
        angle_mistakes("steering", steering, 1),
        frame_mistakes(center, pose),
    )
    front = (wheelbase, 0.0)
    fork, kingpin, wheel, drive = _steered(
        "front", front, steering, fork_mass, fork_inertia, center, pose, "steering"
    )
    joints = [kingpin, Wheel("rear", BASE, FORWARD, point=_seen((0.0, 0.0), center)), wheel]
    return Description(
        bodies=[_base(mass, inertia, center, pose), fork],
        joints=joints,
        drives=[Speed("speed", BASE, FORWARD, point=_seen((0.0, 0.0), center)), drive],
        gravity=NO_GRAVITY,
    )


def ackermann(
    wheelbase: Any,
    track: Any,
    *,
    steering: Any = (0.0, 0.0),
    mass: Any = None,
    inertia: Any = None,
    knuckle_mass: Any = None,
    knuckle_inertia: Any = None,
    center: Any = (0.0, 0.0),
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return a car on four wheels without lateral slip and with independently steered front wheels.

    The four lateral rows have rank two if all wheel axles meet in a point (`ackermann_angles`). Otherwise
    they have rank three, and the car cannot move without slip; see `vehicle_twist`. The drives are `speed` of
    the rear axle in m/s, and the kingpin rates `left_steering` and `right_steering` in rad/s.

    Args:
        wheelbase: in m, positive; for rear steering, drive the vehicle backward.
        track: distance between left and right wheels in m.
        steering: initial steering angles (left, right) in rad, positive to the left.
        mass: of the chassis in kg.
        inertia: inertia of the chassis about the vertical through its mass center in kg m^2.
        knuckle_mass: mass of each front wheel with its knuckle, located at the kingpin, in kg.
        knuckle_inertia: inertia of each front wheel with its knuckle about its kingpin in kg m^2.
        center: (x, y) of the mass center of the chassis in m.
        pose: initial (x, y, heading) of the vehicle frame.
    """
    refuse(
        "ackermann",
        length_mistakes("wheelbase", wheelbase),
        length_mistakes("track", track),
        angle_mistakes("steering", steering, 2),
        frame_mistakes(center, pose),
    )
    bodies: list[Any] = [_base(mass, inertia, center, pose)]
    joints: list[Any] = []
    drives: list[Any] = [Speed("speed", BASE, FORWARD, point=_seen((0.0, 0.0), center))]
    for side, y, angle in zip(("left", "right"), (0.5, -0.5), _each(steering, 2), strict=True):
        place = (wheelbase, y * track)
        front = place, angle, knuckle_mass, knuckle_inertia, center, pose
        knuckle, kingpin, wheel, drive = _steered(f"front_{side}", *front, f"{side}_steering")
        bodies.append(knuckle)
        joints += [
            kingpin,
            wheel,
            Wheel(f"rear_{side}", BASE, FORWARD, point=_seen((0.0, y * track), center)),
        ]
        drives.append(drive)
    return Description(bodies=bodies, joints=joints, drives=drives, gravity=NO_GRAVITY)


def truck_and_trailers(
    wheelbase: Any,
    lengths: Sequence[Any],
    offsets: Sequence[Any],
    *,
    steering: Any = 0.0,
    headings: Sequence[Any] | None = None,
    mass: Any = None,
    inertia: Any = None,
    fork_mass: Any = None,
    fork_inertia: Any = None,
    trailer_mass: Any = None,
    trailer_inertia: Any = None,
    pose: Any = (0.0, 0.0, 0.0),
) -> Description:
    """Return a single-track truck with single-axle trailers, whose mass centers lie above their axles.

    The drives are `speed` and `steering` as in `bicycle`. The trailers are the bodies `trailer_1`,
    `trailer_2`, ..., with frames in the middle of their axles.

    Args:
        wheelbase: wheelbase of the truck in m.
        lengths: L_i, distance from the hitch to the axle of each trailer in m, nonzero.
        offsets: M_i, distance from the preceding axle back to each hitch in m; negative if the hitch is
            ahead.
        steering: initial steering angle in rad.
        headings: initial headings of the trailers in rad; by default the heading of the truck.
        mass: of the truck in kg.
        inertia: inertia of the truck about the vertical through its rear axle in kg m^2.
        fork_mass: mass of the front wheel, located at its kingpin, in kg.
        fork_inertia: inertia of the front wheel about its kingpin in kg m^2.
        trailer_mass: mass of the trailers in kg, one number or one per trailer.
        trailer_inertia: inertia of each trailer about the vertical through its axle in kg m^2.
        pose: initial (x, y, heading) of the truck's rear axle.

    Raises:
        ValueError: different numbers of lengths, offsets and headings; a length of zero.
    """
    if not all(isinstance(some, Sequence) or jnp.ndim(some) for some in (lengths, offsets)):
        raise ValueError(
            "truck_and_trailers: lengths and offsets must be lists with one number per trailer, got "
            f"{lengths} "
            f"and {offsets}"
        )
    if len(lengths) != len(offsets) or (headings is not None and len(headings) != len(lengths)):
        given = len(lengths), len(offsets), len(lengths if headings is None else headings)
        raise ValueError(
            f"truck_and_trailers: give one length, offset and heading per trailer, got {given[0]}, "
            f"{given[1]} "
            f"and {given[2]}"
        )
    refuse(
        "truck_and_trailers",
        length_mistakes("wheelbase", wheelbase),
        angle_mistakes("steering", steering, 1),
        *(offset_mistakes(f"lengths[{number}]", each) for number, each in enumerate(lengths)),
        *(wheel_mistakes(f"offsets[{number}]", each, 1) for number, each in enumerate(offsets)),
        *(
            wheel_mistakes(f"headings[{number}]", each, 1)
            for number, each in enumerate([] if headings is None else headings)
        ),
        *(
            wheel_mistakes(name, each, len(lengths), "trailer", listed=True)
            for name, each in (("trailer_mass", trailer_mass), ("trailer_inertia", trailer_inertia))
            if each is not None
        ),
        frame_mistakes((0.0, 0.0), pose),
    )
    own_masses = {"mass": mass, "inertia": inertia, "fork_mass": fork_mass, "fork_inertia": fork_inertia}
    truck = bicycle(wheelbase, steering=steering, pose=pose, **own_masses)
    masses, inertias = (
        [None] * len(lengths) if each is None else _each(each, len(lengths))
        for each in (trailer_mass, trailer_inertia)
    )
    bodies, joints = list(truck.bodies), list(truck.joints)
    x, y, heading = vector(pose)
    ahead = BASE
    for number, (length, offset) in enumerate(zip(lengths, offsets, strict=True)):
        own = vector(pose)[2] if headings is None else real(headings[number])
        x, y = (
            start - offset * along(heading) - length * along(own)
            for start, along in ((x, jnp.cos), (y, jnp.sin))
        )
        name = f"trailer_{number + 1}"
        bodies.append(Body(name, masses[number], inertias[number], (x, y, own)))
        joints.append(
            Revolute(f"hitch_{number + 1}", ahead, name, point_a=(-offset, 0.0), point_b=(length, 0.0))
        )
        joints.append(Wheel(f"axle_{number + 1}", name, FORWARD, point=(0.0, 0.0)))
        ahead, heading = name, own
    return Description(bodies=bodies, joints=joints, drives=truck.drives, gravity=NO_GRAVITY)


def ackermann_angles(wheelbase: Any, track: Any, steering: Any) -> Any:
    """Return the angles (left, right) (2,) in rad of front wheels whose axles meet on the rear axle line.

    cot(left) = cot(steering) - track / (2 wheelbase), cot(right) = cot(steering) + track / (2 wheelbase).
    The formula avoids the division by zero in straight driving.

    Args:
        wheelbase: in m.
        track: in m.
        steering: angle of an equivalent single wheel in the middle in rad, between -pi and pi.

    Raises:
        ValueError: a wheelbase or a track that is not positive; an angle beyond half a turn.
    """
    lengths = length_mistakes("wheelbase", wheelbase), length_mistakes("track", track)
    refuse("ackermann_angles", *lengths, angle_mistakes("steering", steering, None))
    half = 0.5 * real(track) / wheelbase
    sine, cosine = jnp.sin(steering), jnp.cos(steering)
    # Of the two directions of each heading, take the direction close to the middle wheel.
    return jnp.stack([jnp.arctan2(sine, cosine - side * half * sine) for side in (1.0, -1.0)])


def _base(mass: Any, inertia: Any, center: Any, pose: Any) -> Body:
    return Body(BASE, mass, inertia, (*_in_world(center, pose), pose[2]))


def _seen(place: Any, center: Any) -> tuple[Any, Any]:
    """Return a point of the vehicle frame in the body frame, whose origin is the mass center."""
    return place[0] - center[0], place[1] - center[1]


def _in_world(place: Any, pose: Any) -> tuple[Any, Any]:
    cos, sin = jnp.cos(real(pose[2])), jnp.sin(real(pose[2]))
    return pose[0] + cos * place[0] - sin * place[1], pose[1] + sin * place[0] + cos * place[1]


def _steered(
    name: str, place: Any, angle: Any, mass: Any, inertia: Any, center: Any, pose: Any, drive: str
) -> tuple[Body, Revolute, Wheel, JointRate]:
    """Return a knuckle at a point of the vehicle, its kingpin, its wheel, and the drive of its angle."""
    knuckle = Body(f"{name}_knuckle", mass, inertia, (*_in_world(place, pose), pose[2] + angle))
    kingpin = Revolute(
        f"{name}_kingpin", BASE, knuckle.name, point_a=_seen(place, center), point_b=(0.0, 0.0)
    )
    return (
        knuckle,
        kingpin,
        Wheel(name, knuckle.name, FORWARD, point=(0.0, 0.0)),
        JointRate(drive, kingpin.name),
    )


def _each(numbers: Any, count: int) -> list[Any]:
    """Return one number per wheel, from one number or `count` numbers."""
    given = jnp.asarray(numbers, jnp.result_type(float))
    if given.shape not in ((), (count,)):
        raise ValueError(f"give one number, or {count} of them, one per wheel; got shape {given.shape}")
    return list(jnp.broadcast_to(given, (count,)))
