"""A car on tires in the plane, seen from above."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.mechanisms import (
    GROUND,
    Body,
    Joints,
    MagicFormulaTire,
    Mechanism,
    Polynomial,
    PrescribedMotion,
    Relation,
    Revolute,
    Rotor,
    Torque,
    planar_mechanism,
)
from jaxdae.models.model_dimensions import check_dimensions
from jaxdae.models.parallel_robots import at_rest
from jaxdae.systems.system import State

_FORWARD = (1.0, 0.0)


def tire_car(
    *,
    front: Any = 1.1561957064,
    rear: Any = 1.4227170936,
    track: Any = (1.38684, 1.36398),
    mass: Any = 1093.2952334674046,
    inertia: Any = 1791.5995300122856,
    wheel_mass: Any = 31.9,
    wheel_radius: Any = 0.344,
    wheel_inertia: Any = 1.7,
    friction: Any = 1.0489,
    stiffness: Any = (20.898, 20.898),
    shape: Any = 1.3507,
    curvature: Any = -0.0074722,
    speed: Any = 15.0,
    steering: Any = 0.0,
    gravity: Any = 9.81,
) -> tuple[Mechanism, State]:
    """Return a car on four Magic Formula tires, and its state at time 0 in straight motion along x.

        rear_left        front_left       y
           ==               ==            ^
            |                |            |
            +-------- c -----+            +--> x
            |                |
           ==               ==
        rear_right       front_right
            |- rear -|-front-|

    The mass center c of the car is at the origin. A tie rod turns both front wheels by the same angle, as the
    argument `steering` prescribes. The tire loads are the loads of the car at rest;
    `vehicles.LoadTransfer` computes loads that follow from the acceleration. `vehicles.tire_slip` returns the
    slip of the tires.

    - tires: "front_left", "front_right", "rear_left", "rear_right";
    - bodies: "chassis" with the rear wheels, "front_left", "front_right" with the front wheels, and the
      rotors "front_left_wheel" to "rear_right_wheel";
    - steering angle: "left_kingpin.angle" and "right_kingpin.angle", positive to the left;
    - inputs 0 to 3: torques in N m on the wheels, in the order of the tires, positive when driving.

    Args:
        front: distance of the front axle from c in m.
        rear: distance of the rear axle from c in m.
        track: distances of left and right wheels at the front and at the rear (2,) in m.
        mass: mass of the whole car in kg.
        inertia: inertia of the whole car about the vertical through c in kg m^2.
        wheel_mass: mass of each front wheel with its knuckle, at the kingpin, in kg.
        wheel_radius: in m.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        friction: largest force of a tire divided by its load.
        stiffness: cornering stiffness of the front and rear tires (2,), divided by friction and load, in
            1/rad; also the longitudinal stiffness. The stiffness factor of the Magic Formula is stiffness /
            shape.
        shape: shape factor of the Magic Formula.
        curvature: curvature factor of the Magic Formula.
        speed: start speed in m/s, positive.
        steering: steering angle in rad: a number, or a function of the time in s such as `Sinusoid`.
        gravity: normal to the ground in m/s^2.

    Raises:
        ValueError: a length, the speed, the gravity, or the mass or inertia of a body is not positive.

    References:
        M. Althoff, M. Koschi, S. Manzinger, "CommonRoad: composable benchmarks for motion planning on roads",
        IEEE Intelligent Vehicles Symposium (2017), vehicle 2 (BMW 320i) of the vehicle models, with the
        coefficients of the lateral force of its tires. The wheel mass is half of the unsprung mass of the
        front axle.
    """
    lengths = {"front": front, "rear": rear, "track": track, "wheel_radius": wheel_radius}
    check_dimensions(*(() if callable(steering) else (steering,)), **lengths, speed=speed, gravity=gravity)
    motion = steering if callable(steering) else Polynomial(jnp.stack([jnp.asarray(steering, float)]))
    knuckle_inertia = wheel_inertia / 2.0
    width = jnp.asarray(track, float)
    # The chassis has the mass and inertia of the car without its front wheels.
    chassis_mass = mass - 2.0 * wheel_mass
    shift = -2.0 * wheel_mass * front / chassis_mass
    corner = front**2 + width[0] ** 2 / 4.0
    chassis_inertia = inertia - 2.0 * (wheel_mass * corner + knuckle_inertia) - chassis_mass * shift**2
    chassis = jnp.zeros((3,)).at[0].set(shift)
    bodies: list[Any] = [Body("chassis", chassis_mass, chassis_inertia, chassis)]
    joints: list[Any] = []
    forces: list[Any] = []
    law = {"radius": wheel_radius, "peak": friction, "peak_longitudinal": friction}
    law |= {"shape": shape, "curvature": curvature}
    share = mass * gravity / (2.0 * (front + rear))
    for k, name in enumerate(("front_left", "front_right", "rear_left", "rear_right")):
        axle, side = divmod(k, 2)
        place = jnp.stack([jnp.asarray((front, -rear)[axle], float), (0.5 - side) * width[axle]])
        body, spin = ("chassis" if axle else name), f"{name}_wheel"
        if not axle:
            bodies.append(Body(name, wheel_mass, knuckle_inertia, jnp.append(place, 0.0)))
            joints.append(Revolute(f"{name.removeprefix('front_')}_kingpin", "chassis", name, at=place))
        at = {"at": place, "load": share * (front if axle else rear), "stiffness": stiffness[axle] / shape}
        forces.append(MagicFormulaTire(name=name, body=body, axis=_FORWARD, spin=spin, **at, **law))
        forces.append(Torque(f"{name}_torque", GROUND, spin, torque=0.0, input=k))
    joints.append(PrescribedMotion("steering", "left_kingpin", motion))
    joints.append(Relation("tie_rod", "right_kingpin", "left_kingpin"))
    bodies += [Rotor(f"{force.name}_wheel", wheel_inertia) for force in forces[::2]]
    found, q = planar_mechanism(bodies, joints, forces, gravity=(0.0, 0.0), coordinates=Joints())
    angle, rate = jax.jvp(motion, (jnp.zeros(()),), (jnp.ones(()),))
    start = at_rest(_filled(q, found.names.coordinates, {"kingpin.angle": angle}), found)
    rates = {"chassis.vx": speed, "kingpin.angle_rate": rate, "wheel.omega": speed / wheel_radius}
    return found, dataclasses.replace(start, v=_filled(start.v, found.names.velocities, rates))


def _filled(x: Array, names: Sequence[str], values: Mapping[str, Any]) -> Array:
    """Return x (n,) with a value at all entries whose name ends with its key."""
    for end, value in values.items():
        x = x.at[jnp.array([k for k, name in enumerate(names) if name.endswith(end)])].set(value)
    return x
