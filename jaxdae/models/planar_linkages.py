"""Planar linkages in joint coordinates: walking legs, a scissor lift, an excavator and a gripper.

Every function accepts numbers or traced arrays, so that derivatives with respect to dimensions and masses are
available. Every body is a slender bar: its mass center is in the middle between two of its joints, and its x
axis points from the first one to the second one. Intersections of circles give the start pose in closed form.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.mechanisms import (
    GROUND,
    Body,
    JointForce,
    Joints,
    Mechanism,
    PointOnLine,
    Prismatic,
    Relation,
    Revolute,
    planar_mechanism,
)
from jaxdae.models.model_dimensions import check_dimensions, meet
from jaxdae.models.parallel_robots import at_rest
from jaxdae.systems.system import State


class _Linkage:
    """Bodies, joints and forces of a linkage at its start pose."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.joints: list[Any] = []
        self.forces: list[Any] = []
        self.cut: list[str] = []

    def bar(self, name: str, mass: Any, start: Array, end: Array) -> None:
        """Add a bar between two points of the world."""
        along = end - start
        turn = jnp.arctan2(along[1], along[0])
        pose = jnp.concatenate([(start + end) / 2.0, turn[None]])
        self.bodies.append(Body(name, mass, mass * (along @ along) / 12.0, pose))

    def pin(self, name: str, a: str, b: str, at: Array, *, cut: bool = False) -> None:
        """Add a revolute joint at a point of the world; `cut` excludes it from the joint coordinates."""
        self.joints.append(Revolute(name, a, b, at=at))
        self.cut += [name] * cut

    def drive(self, joint: str) -> None:
        """Drive a joint by the next input."""
        count = len(self.forces)
        self.forces.append(JointForce(f"drive{count + 1}", joint, force=0.0, input=count))

    def cylinder(self, name: str, mass: Any, a: str, start: Array, b: str, end: Array) -> None:
        """Add a cylinder from a point of a to a point of b; its slide is the distance of these points."""
        barrel, piston, half = f"{name}_barrel", f"{name}_piston", jnp.linalg.norm(end - start) / 2.0
        middle, along = (start + end) / 2.0, jnp.array([0.5, 0.0]) * half
        self.bar(barrel, mass, start, middle)
        self.bar(piston, mass, middle, end)
        self.pin(f"{name}_base", a, barrel, start)
        ends = {"point_a": -along, "point_b": along}
        self.joints.append(Prismatic(name, barrel, piston, axis=(1.0, 0.0), **ends))
        self.pin(f"{name}_rod", piston, b, end, cut=True)
        self.drive(name)

    def finished(self, gravity: Any) -> tuple[Mechanism, State]:
        """Return the mechanism and its state at rest."""
        found, q = planar_mechanism(
            self.bodies, self.joints, self.forces, gravity=gravity, coordinates=Joints(cut=self.cut)
        )
        return found, at_rest(q, found)


def jansen_leg(
    *,
    numbers: Any = (38.0, 41.5, 39.3, 40.1, 55.8, 39.4, 36.7, 65.7, 49.0, 50.0, 61.9, 7.8, 15.0),
    unit: Any = 0.01,
    mass: Any = 1.0,
    angle: Any = 0.0,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a leg of Theo Jansen's Strandbeest and its state at rest. The crank turns about the origin.

    The foot is at (i / 2, 0) in the frame of "foot", i = `numbers[8] * unit`. Its path is almost flat during
    about half of a turn of the crank.

    - bodies: "crank", "upper_rod" (j), "upper_rocker" (b, d, e), "lower_rod" (k), "lower_rocker" (c),
      "rear_rod" (f), "foot" (g, h, i);
    - motor: "motor", with the coordinate "motor.angle" of the crank and the input 0.

    Args:
        numbers: the lengths a to m (13,), "holy numbers". The fixed joint of the rockers is at (-a, -l), m is
            the crank.
        unit: length of the unit of the numbers in m.
        mass: mass of each body in kg.
        angle: start angle of the crank against the x axis in rad.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the lengths do not close a loop at the start angle.

    References:
        T. Jansen, "The Great Pretender", 010 Publishers (2007).
    """
    check_dimensions(angle, numbers=numbers, unit=unit)
    a, b, c, d, e, f, g, h, i, j, k, below, m = jnp.asarray(numbers) * unit
    center, pivot = jnp.zeros((2,)), jnp.stack([-a, -below])
    tip = center + _along(m, angle)
    upper = meet("b and j", pivot, b, tip, j)
    lower = meet("c and k", tip, k, pivot, c)
    rear = meet("d and e", pivot, d, upper, e)
    knee = meet("f and g", lower, g, rear, f)
    foot = meet("h and i", lower, i, knee, h)
    leg = _Linkage()
    leg.bar("crank", mass, center, tip)
    leg.bar("upper_rod", mass, tip, upper)
    leg.bar("upper_rocker", mass, pivot, upper)
    leg.bar("lower_rod", mass, tip, lower)
    leg.bar("lower_rocker", mass, pivot, lower)
    leg.bar("rear_rod", mass, rear, knee)
    leg.bar("foot", mass, lower, foot)
    leg.pin("motor", GROUND, "crank", center)
    leg.pin("crank_upper", "crank", "upper_rod", tip)
    leg.pin("crank_lower", "crank", "lower_rod", tip)
    leg.pin("hip_upper", GROUND, "upper_rocker", pivot)
    leg.pin("hip_lower", GROUND, "lower_rocker", pivot)
    leg.pin("top", "upper_rod", "upper_rocker", upper)
    leg.pin("rear", "upper_rocker", "rear_rod", rear)
    leg.pin("ankle", "lower_rocker", "foot", lower)
    leg.pin("ankle_rod", "lower_rod", "foot", lower)
    leg.pin("knee", "rear_rod", "foot", knee)
    leg.drive("motor")
    return leg.finished(gravity)


def klann_leg(
    *,
    crank: Any = 0.268,
    lower_pivot: Any = (-0.590, -0.176),
    upper_pivot: Any = (-0.233, 0.616),
    rod: Any = (0.590, 0.522, 1.105),
    lower_rocker: Any = 0.321,
    upper_rocker: Any = 0.518,
    leg: Any = (0.897, 0.897, 1.732),
    mass: Any = 1.0,
    angle: Any = 0.0,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return Klann's walking leg and its state at rest. The crank turns about the origin.

    The defaults are the proportions of the patent, with 1 m as unit. The foot is at (leg[2] / 2, 0) in the
    frame of "leg".

    - bodies: "crank", "rod", "lower_rocker", "upper_rocker", "leg";
    - motor: "motor", with the coordinate "motor.angle" of the crank and the input 0.

    Args:
        crank: length of the crank in m.
        lower_pivot: fixed joint of the lower rocker (2,) in m.
        upper_pivot: fixed joint of the upper rocker (2,) in m.
        rod: distances crank to elbow, elbow to knee, and crank to knee (3,) of the connecting rod in m.
        lower_rocker: length of the rocker at the elbow in m.
        upper_rocker: length of the rocker at the hip in m.
        leg: distances hip to knee, knee to foot, and hip to foot (3,) in m.
        mass: mass of each body in kg.
        angle: start angle of the crank against the x axis in rad.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the lengths do not close a loop at the start angle.

    References:
        J. C. Klann, "Walking device", US patent 6,260,862 (2001).
    """
    lengths = {"lower_rocker": lower_rocker, "upper_rocker": upper_rocker}
    check_dimensions(angle, crank=crank, rod=rod, leg=leg, **lengths)
    center, low, high = jnp.zeros((2,)), jnp.asarray(lower_pivot), jnp.asarray(upper_pivot)
    tip = center + _along(crank, angle)
    elbow = meet("lower_rocker and rod", low, lower_rocker, tip, rod[0])
    knee = meet("rod", elbow, rod[1], tip, rod[2])
    hip = meet("upper_rocker and leg", knee, leg[0], high, upper_rocker)
    foot = meet("leg", hip, leg[2], knee, leg[1])
    found = _Linkage()
    found.bar("crank", mass, center, tip)
    found.bar("rod", mass, tip, knee)
    found.bar("lower_rocker", mass, low, elbow)
    found.bar("upper_rocker", mass, high, hip)
    found.bar("leg", mass, hip, foot)
    found.pin("motor", GROUND, "crank", center)
    found.pin("crank_pin", "crank", "rod", tip)
    found.pin("lower_pivot", GROUND, "lower_rocker", low)
    found.pin("upper_pivot", GROUND, "upper_rocker", high)
    found.pin("elbow", "rod", "lower_rocker", elbow)
    found.pin("knee", "rod", "leg", knee)
    found.pin("hip", "upper_rocker", "leg", hip)
    found.drive("motor")
    return found.finished(gravity)


def scissor_lift(
    *,
    stages: int = 3,
    bar_length: Any = 1.5,
    anchor: Any = 0.6,
    reach: Any = 0.9,
    bar_mass: Any = 10.0,
    platform_mass: Any = 50.0,
    cylinder_mass: Any = 5.0,
    angle: Any = 0.5,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a scissor lift with n stages that a cylinder raises, and its state at rest.

    The bars "rising1" and "platform" are pinned on the left; the other ends of the lowest and highest bars
    slide. At the angle theta of the bars and the length s of the cylinder, the height of the platform is

        h = n bar_length sin(theta),      s^2 = anchor^2 + reach^2 - 2 anchor reach cos(theta).

    - bodies: "rising1" to "rising{n}", "falling1" to "falling{n}", "platform", "cylinder_barrel",
      "cylinder_piston";
    - motor: "cylinder", with the coordinate "cylinder.slide" (the length s) and the input 0.

    Args:
        stages: the number of stages n.
        bar_length: length of each bar in m.
        anchor: distance of the cylinder on the ground from the fixed pin of "rising1" in m.
        reach: distance of the piston on "rising1" from the same pin in m.
        bar_mass: mass of each bar in kg.
        platform_mass: mass of the platform in kg, a bar of the same length.
        cylinder_mass: mass of barrel and of piston in kg.
        angle: start angle of the bars against the ground in rad, between 0 and pi / 2.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: `stages` is less than 1, or a length is not positive.
    """
    if stages < 1:
        raise ValueError(f"stages must be at least 1, got {stages}")
    check_dimensions(angle, bar_length=bar_length, anchor=anchor, reach=reach)
    bar = _along(bar_length, angle)
    right, up = bar * jnp.array([1.0, 0.0]), bar * jnp.array([0.0, 1.0])
    lift = _Linkage()
    for n in range(1, stages + 1):
        low = (n - 1) * up
        lift.bar(f"rising{n}", bar_mass, low, low + bar)
        lift.bar(f"falling{n}", bar_mass, low + up, low + right)
    top = stages * up
    lift.bar("platform", platform_mass, top, top + jnp.array([1.0, 0.0]) * bar_length)
    lift.pin("left1", GROUND, "rising1", jnp.zeros((2,)))
    lift.cylinder("cylinder", cylinder_mass, GROUND, _along(anchor, 0.0), "rising1", _along(reach, angle))
    lift.joints.append(PointOnLine("slide", GROUND, "falling1", at=right, axis=(1.0, 0.0)))
    for n in range(1, stages + 1):
        lift.pin(f"middle{n}", f"rising{n}", f"falling{n}", (n - 1) * up + bar / 2.0, cut=n > 1)
        if n < stages:
            lift.pin(f"left{n + 1}", f"falling{n}", f"rising{n + 1}", n * up)
            lift.pin(f"right{n + 1}", f"rising{n}", f"falling{n + 1}", n * up + right)
    lift.pin("platform_pin", f"falling{stages}", "platform", top)
    lift.joints.append(
        PointOnLine("platform_slide", "platform", f"rising{stages}", at=top + right, axis=(1.0, 0.0))
    )
    return lift.finished(gravity)


def excavator(
    *,
    boom_length: Any = 5.7,
    arm_length: Any = 2.9,
    bucket_length: Any = 1.5,
    boom_mass: Any = 1500.0,
    arm_mass: Any = 800.0,
    bucket_mass: Any = 700.0,
    link_mass: Any = 60.0,
    cylinder_mass: Any = 100.0,
    angles: Any = (0.6, -1.0, -1.7),
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return the arm of an excavator with boom, arm, bucket and three cylinders, and its state at rest.

    The lengths and masses are typical of machines of 20 tons. The boom turns about the origin. All other
    dimensions are fixed fractions of the three lengths. The bucket cylinder turns the bucket by a four-bar:
    the rocker turns about a point of the arm, and the link connects it to the bucket. The teeth are at
    (bucket_length / 2, 0) in the frame of "bucket".

    - bodies: "boom", "arm", "bucket", "rocker", "link", "boom_cylinder_barrel", "boom_cylinder_piston", and
      barrels and pistons of the "arm_cylinder" and "bucket_cylinder";
    - motors: "boom_cylinder", "arm_cylinder", "bucket_cylinder". Their coordinates "boom_cylinder.slide" and
      so on are the lengths of the cylinders, and their forces are the inputs 0, 1, 2.

    Args:
        boom_length: distance of the joints of the boom in m.
        arm_length: distance of the joints of the arm in m.
        bucket_length: distance of the teeth from the joint of the bucket in m.
        boom_mass: in kg.
        arm_mass: in kg.
        bucket_mass: in kg.
        link_mass: mass of the rocker and of the link in kg.
        cylinder_mass: mass of each barrel and of each piston in kg.
        angles: start angles (3,) of boom, arm and bucket against the x axis in rad.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the four-bar of the bucket does not close at the start
            angles.
    """
    check_dimensions(*angles, boom_length=boom_length, arm_length=arm_length, bucket_length=bucket_length)
    foot = jnp.zeros((2,))
    elbow = foot + _along(boom_length, angles[0])
    wrist = elbow + _along(arm_length, angles[1])
    teeth = wrist + _along(bucket_length, angles[2])
    on_boom = _beside(foot, elbow, 0.45, 0.08)
    ear = _beside(foot, elbow, 0.5, 0.12)
    horn = _beside(elbow, wrist, -0.25, 0.1)
    shoulder = _beside(elbow, wrist, 0.05, 0.2)
    pivot = _beside(elbow, wrist, 0.85, 0.0)
    lug = _beside(wrist, teeth, 0.0, 0.28)
    joint = meet("the rocker and the link of the bucket", pivot, 0.22 * arm_length, lug, 0.2 * arm_length)
    found = _Linkage()
    found.bar("boom", boom_mass, foot, elbow)
    found.bar("arm", arm_mass, elbow, wrist)
    found.bar("bucket", bucket_mass, wrist, teeth)
    found.bar("rocker", link_mass, pivot, joint)
    found.bar("link", link_mass, joint, lug)
    found.pin("boom_pin", GROUND, "boom", foot)
    found.pin("arm_pin", "boom", "arm", elbow)
    found.pin("bucket_pin", "arm", "bucket", wrist)
    found.pin("rocker_pin", "arm", "rocker", pivot)
    found.pin("rocker_link", "rocker", "link", joint)
    found.pin("link_bucket", "link", "bucket", lug, cut=True)
    base = jnp.array([0.1, -0.1]) * boom_length
    found.cylinder("boom_cylinder", cylinder_mass, GROUND, base, "boom", on_boom)
    found.cylinder("arm_cylinder", cylinder_mass, "boom", ear, "arm", horn)
    found.cylinder("bucket_cylinder", cylinder_mass, "arm", shoulder, "rocker", joint)
    return found.finished(gravity)


def parallel_gripper(
    *,
    base: Any = 0.04,
    link_length: Any = 0.06,
    link_offset: Any = 0.03,
    finger_length: Any = 0.08,
    link_mass: Any = 0.02,
    finger_mass: Any = 0.05,
    angle: Any = 1.2,
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a gripper with two fingers on parallel links, and its state at rest.

    On each side, two links of equal length keep the finger vertical. A pair of gears turns the links of both
    sides by opposite angles. At the angle theta of the right links, the distance of the fingers is
    base + 2 link_length cos(theta), and each finger begins at the height link_length sin(theta).

    - bodies: "right_crank", "right_link", "right_finger", "left_crank", "left_link", "left_finger";
    - motor: "motor", with the coordinate "motor.angle" of the right crank and the input 0.

    Args:
        base: distance of the cranks of both sides in m.
        link_length: length of cranks and links in m.
        link_offset: distance of each link above the crank of its side in m.
        finger_length: length of the fingers in m.
        link_mass: mass of each crank and of each link in kg.
        finger_mass: mass of each finger in kg.
        angle: start angle of the right crank against the x axis in rad, between 0 and pi.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive.
    """
    lengths = {"link_length": link_length, "link_offset": link_offset, "finger_length": finger_length}
    check_dimensions(angle, base=base, **lengths)
    up = jnp.array([0.0, 1.0])
    found = _Linkage()
    for side, name, motor in ((1.0, "right", "motor"), (-1.0, "left", "left_motor")):
        mirror = jnp.array([side, 1.0])
        pivot, link = _along(base / 2.0, 0.0) * mirror, _along(link_length, angle) * mirror
        upper = pivot + link_offset * up
        crank, bar, finger = f"{name}_crank", f"{name}_link", f"{name}_finger"
        found.bar(crank, link_mass, pivot, pivot + link)
        found.bar(bar, link_mass, upper, upper + link)
        found.bar(finger, finger_mass, pivot + link, pivot + link + finger_length * up)
        found.pin(motor, GROUND, crank, pivot)
        found.pin(f"{name}_upper", GROUND, bar, upper)
        found.pin(f"{name}_knuckle", crank, finger, pivot + link)
        found.pin(f"{name}_guide", bar, finger, upper + link)
    found.joints.append(Relation("gears", "left_motor", "motor", coefficients=(0.0, -1.0)))
    found.drive("motor")
    return found.finished(gravity)


def _along(length: Any, angle: Any) -> Array:
    """Return the vector (2,) of a length in the direction of an angle."""
    return length * jnp.stack([jnp.cos(jnp.asarray(angle, float)), jnp.sin(jnp.asarray(angle, float))])


def _beside(start: Array, end: Array, along: float, across: float) -> Array:
    """Return the point at fractions of the distance of two points, along their line and to its left."""
    line = end - start
    return start + along * line + across * jnp.stack([-line[1], line[0]])
