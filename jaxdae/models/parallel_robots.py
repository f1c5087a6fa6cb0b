"""Parallel robots in joint coordinates: a five-bar, a Delta robot and a Stewart platform.

Every function accepts numbers or traced arrays, so that derivatives with respect to dimensions and masses are
available. Links are slender cylinders, platforms are thin discs.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.suggestions import brief
from jaxdae.geometry.rotation import matrix_quaternion
from jaxdae.mechanisms import (
    GROUND,
    SPACE,
    Body,
    Description,
    JointForce,
    Joints,
    Mechanism,
    Revolute,
    mechanism,
    planar_mechanism,
    spatial,
)
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.models.model_dimensions import check_dimensions, meet
from jaxdae.systems.system import State

_SLENDER = 0.05
"""Radius of a link over its length."""


def five_bar(
    *,
    base: Any = 0.3,
    crank_length: Any = 0.25,
    rod_length: Any = 0.35,
    crank_mass: Any = 0.3,
    rod_mass: Any = 0.3,
    angles: Any = (2.2, 0.9),
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a symmetric five-bar linkage in the plane, and its state at rest with the tip above the cranks.

    The motors turn the cranks about (-base / 2, 0) and (base / 2, 0). The rods meet at the tip. The tip is at
    (rod_length / 2, 0) in the frame of "rod1", whose origin is its mass center.

    - bodies: "crank1", "rod1", "crank2", "rod2";
    - motors: "motor1", "motor2", with the coordinates "motor1.angle" and "motor2.angle" and the inputs 0, 1.

    Args:
        base: distance of the motors in m.
        crank_length: length of both cranks in m.
        rod_length: length of both rods in m.
        crank_mass: mass of each crank in kg.
        rod_mass: mass of each rod in kg.
        angles: start angles (2,) of both cranks against the x axis in rad.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the rods do not meet at the start angles.
    """
    check_dimensions(*angles, base=base, crank_length=crank_length, rod_length=rod_length)
    hinges = jnp.array([[-0.5, 0.0], [0.5, 0.0]]) * base
    angles = jnp.asarray(angles, hinges.dtype)
    elbows = hinges + crank_length * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    tip = meet("the rods", elbows[0], rod_length, elbows[1], rod_length)
    bodies, joints, forces = [], [], []
    for k in (0, 1):
        along = tip - elbows[k]
        crank, rod, motor = f"crank{k + 1}", f"rod{k + 1}", f"motor{k + 1}"
        pose = jnp.concatenate([(hinges[k] + elbows[k]) / 2.0, angles[k : k + 1]])
        bodies.append(Body(crank, crank_mass, crank_mass * crank_length**2 / 12.0, pose))
        turn = jnp.arctan2(along[1], along[0])
        pose = jnp.concatenate([(elbows[k] + tip) / 2.0, turn[None]])
        bodies.append(Body(rod, rod_mass, rod_mass * rod_length**2 / 12.0, pose))
        joints.append(Revolute(motor, GROUND, crank, at=hinges[k]))
        joints.append(Revolute(f"elbow{k + 1}", crank, rod, at=elbows[k]))
        forces.append(JointForce(f"torque{k + 1}", motor, force=0.0, input=k))
    ends = {"point_a": (rod_length / 2.0, 0.0), "point_b": (rod_length / 2.0, 0.0)}
    joints.append(Revolute("tip", "rod1", "rod2", **ends))
    found, q = planar_mechanism(bodies, joints, forces, gravity=gravity, coordinates=Joints())
    return found, at_rest(q, found)


def delta(
    *,
    base_radius: Any = 0.2,
    platform_radius: Any = 0.06,
    arm_length: Any = 0.25,
    forearm_length: Any = 0.5,
    forearm_width: Any = 0.08,
    arm_mass: Any = 0.4,
    platform_mass: Any = 0.5,
    angle: Any = 0.3,
    gravity: Any = (0.0, 0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a Delta robot with three motors that moves a platform without rotation, and its state at rest.

    Motor k turns the arm k about a horizontal axis at `base_radius` from the z axis, in the directions 0, 120
    and 240 degrees from x. At the angle 0 the arm points outward; positive angles lower it. Two massless rods
    at the distance `forearm_width` connect each arm to the platform.

    - bodies: "arm1", "arm2", "arm3", "platform";
    - motors: "motor1", "motor2", "motor3", with the coordinates "motor1.angle" and so on, and the inputs 0,
      1, 2. The mass of the forearms may be included half in the arms and half in the platform.

    Args:
        base_radius: distance of the motors from the z axis in m.
        platform_radius: distance of the rods from the center of the platform in m.
        arm_length: length of each arm in m.
        forearm_length: length of each rod in m.
        forearm_width: distance of the two rods of an arm in m.
        arm_mass: mass of each arm in kg.
        platform_mass: mass of the platform in kg.
        angle: start angle () of all motors in rad.
        gravity: (3,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the forearms do not reach the platform at the start angle.

    References:
        R. Clavel, "Conception d'un robot parallele rapide a 4 degres de liberte", EPFL thesis 925 (1991).
    """
    lengths = {"arm_length": arm_length, "forearm_length": forearm_length, "forearm_width": forearm_width}
    check_dimensions(angle, base_radius=base_radius, platform_radius=platform_radius, **lengths)
    reach = platform_radius - base_radius - arm_length * jnp.cos(angle)
    square = concrete(forearm_length**2 - reach**2)
    if square is not None and square < 0.0:
        raise ValueError(
            f"the forearms of {brief(forearm_length)} m do not reach the platform: the arms end "
            f"{float(abs(reach)):.4g} m beside its joints; change the lengths or the start angle"
        )
    height = -arm_length * jnp.sin(angle) - jnp.sqrt(forearm_length**2 - reach**2)
    bodies = [_platform(platform_mass, platform_radius, height)]
    joints: list[Any] = []
    forces: list[Any] = []
    for k in range(3):
        arm, motor, turn = f"arm{k + 1}", f"motor{k + 1}", 2.0 * jnp.pi * k / 3.0
        outward = jnp.array([jnp.cos(turn), jnp.sin(turn), 0.0])
        tangent = jnp.array([-jnp.sin(turn), jnp.cos(turn), 0.0])
        quaternion = jnp.array([jnp.cos(turn / 2.0), 0.0, 0.0, jnp.sin(turn / 2.0)])
        center = (base_radius + arm_length / 2.0) * outward
        bodies.append(spatial.Body(arm, arm_mass, _slender(arm_mass, arm_length), center, quaternion))
        joints.append(spatial.Revolute(motor, GROUND, arm, at=base_radius * outward, axis=tangent))
        forces.append(spatial.JointForce(f"torque{k + 1}", motor, force=0.0, input=k))
        for side, name in ((0.5, "a"), (-0.5, "b")):
            aside = side * forearm_width
            on_arm = jnp.array([1.0, 0.0, 0.0]) * arm_length / 2.0 + jnp.array([0.0, 1.0, 0.0]) * aside
            on_platform = platform_radius * outward + aside * tangent
            joints.append(
                spatial.Rod(
                    f"forearm{k + 1}{name}",
                    arm,
                    "platform",
                    point_a=on_arm,
                    point_b=on_platform,
                    length=forearm_length,
                )
            )
    found, q = _in_joint_coordinates(bodies, joints, forces, gravity)
    motors = [found.names.coordinates.index(f"motor{k}.angle") for k in (1, 2, 3)]
    return found, at_rest(q.at[jnp.array(motors)].set(angle), found)


def stewart(
    *,
    base_radius: Any = 0.5,
    platform_radius: Any = 0.3,
    base_spread: Any = 0.25,
    platform_spread: Any = 0.25,
    height: Any = 0.6,
    leg_mass: Any = 1.0,
    platform_mass: Any = 5.0,
    gravity: Any = (0.0, 0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a Stewart platform with six telescopic legs, and its state at rest at the given height.

    The anchors on the base are at the angles 0, 120 and 240 degrees plus and minus `base_spread`, those on
    the platform at 60, 180 and 300 degrees plus and minus `platform_spread`. Universal joints connect the
    cylinders to the base, ball joints the pistons to the platform.

    - bodies: "platform", "cylinder1" to "cylinder6", "piston1" to "piston6";
    - motors: "leg1" to "leg6". Their coordinates "leg1.slide" and so on are the distances of the anchors, and
      their forces are the inputs 0 to 5.

    Args:
        base_radius: radius of the circle of anchors on the base in m.
        platform_radius: radius of the circle of anchors on the platform in m.
        base_spread: half of the angle between neighboring anchors on the base in rad.
        platform_spread: half of the angle between neighboring anchors on the platform in rad.
        height: start height of the platform in m.
        leg_mass: mass of each cylinder and of each piston in kg.
        platform_mass: mass of the platform in kg.
        gravity: (3,) in m/s^2.

    Raises:
        ValueError: a length is not positive.

    References:
        D. Stewart, "A platform with six degrees of freedom", Proc. Inst. Mech. Eng. 180 (1965).
    """
    check_dimensions(base_radius=base_radius, platform_radius=platform_radius, height=height)
    bodies = [_platform(platform_mass, platform_radius, height)]
    joints: list[Any] = []
    forces: list[Any] = []
    up = jnp.array([0.0, 0.0, 1.0])
    for k in range(6):
        cylinder, piston, side = f"cylinder{k + 1}", f"piston{k + 1}", 1.0 if k % 2 == 0 else -1.0
        turn = 2.0 * jnp.pi * ((k + 1) // 2) / 3.0
        low = _on_circle(base_radius, turn + side * base_spread)
        on_platform = _on_circle(platform_radius, turn + side * (jnp.pi / 3.0 - platform_spread))
        leg = up * height + on_platform - low
        length = jnp.linalg.norm(leg)
        direction = leg / length
        first = jnp.cross(up, direction)
        first = first / jnp.linalg.norm(first)
        second = jnp.cross(direction, first)
        quaternion = matrix_quaternion(jnp.stack([first, second, direction], axis=1))
        half = length / 2.0
        inertia = _slender(leg_mass, half)[jnp.array([1, 2, 0])]
        for name, middle in ((cylinder, 0.25), (piston, 0.75)):
            bodies.append(spatial.Body(name, leg_mass, inertia, low + middle * leg, quaternion))
        joints.append(spatial.Universal(f"base{k + 1}", GROUND, cylinder, at=low, axis=first, second=second))
        ends = {"point_a": -up * half / 2.0, "point_b": up * half / 2.0}
        joints.append(spatial.Prismatic(f"leg{k + 1}", cylinder, piston, axis=up, **ends))
        joints.append(spatial.Ball(f"ball{k + 1}", piston, "platform", at=low + leg))
        forces.append(spatial.JointForce(f"force{k + 1}", f"leg{k + 1}", force=0.0, input=k))
    found, q = _in_joint_coordinates(bodies, joints, forces, gravity)
    return found, at_rest(q, found)


def _platform(mass: Any, radius: Any, height: Any) -> Any:
    """Return a thin disc at a height on the z axis."""
    disc = mass * radius**2 / 4.0 * jnp.array([1.0, 1.0, 2.0])
    return spatial.Body("platform", mass, disc, jnp.zeros((3,)).at[2].set(height))


def _in_joint_coordinates(bodies: Any, joints: Any, forces: Any, gravity: Any) -> tuple[Mechanism, Array]:
    description = Description(space=SPACE, bodies=bodies, joints=joints, forces=forces, gravity=gravity)
    return mechanism(description, Joints())


def _on_circle(radius: Any, angle: Any) -> Array:
    return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), jnp.zeros_like(radius * angle)])


def _slender(mass: Any, length: Any) -> Array:
    """Return the principal moments (3,) of a cylinder along x, in kg m^2."""
    square = mass * length**2 * jnp.ones((3,))
    return square * jnp.array([_SLENDER**2 / 2.0, *(1.0 / 12.0 + _SLENDER**2 / 4.0,) * 2])


def at_rest(q: Array, found: Mechanism) -> State:
    """Return the state at rest at time 0 with coordinates q (nq,)."""
    return State(jnp.zeros((), q.dtype), q, jnp.zeros((len(found.names.velocities),), q.dtype))
